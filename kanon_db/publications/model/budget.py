"""What a model may tell about people: its budget, and its guarantee in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from math import inf, log, log1p
from typing import Any, Final

from kanon_db.algorithms.models import Encoding
from kanon_db.errors import InfeasibleError
from kanon_db.publications.kind import Job
from kanon_db.publications.model.features import Labels
from kanon_db.publications.model.request import Budget, ModelRequest


@dataclass(frozen=True)
class Bounded:
    """A budget, and how many answers it pays for.

    Attributes
    ----------
    epsilon, delta, noise
        As in :class:`~kanon_db.publications.model.request.Budget`.
    answers : int
        How many rows each reader role may have classified.
    """

    epsilon: float
    delta: float
    noise: int
    answers: int

    @property
    def plain(self) -> dict[str, Any]:
        """Plain JSON, for the catalog."""
        return asdict(self)


@lru_cache(maxsize=1)  # asked for before the training, and again after it
def bounded(budget: Budget | None) -> Bounded | None:
    """Find out how many answers a budget pays for.

    Raises
    ------
    InfeasibleError
        When it does not even pay for one.
    ServerError
        When the library that knows is not installed.
    """
    if budget is None:
        return None
    from kanon_db.algorithms.models.accounting import votes_within

    answers = votes_within(budget.epsilon, budget.delta, budget.noise)
    if not answers:
        raise InfeasibleError(
            "the budget does not pay for a single answer",
            detail=f"epsilon {budget.epsilon:g}, delta {budget.delta:g}, noise {budget.noise}",
            hint="give more noise: four times as many answers for twice the noise",
        )
    return Bounded(budget.epsilon, budget.delta, budget.noise, answers)


_ORDERS: Final = [1 + 1.002**power / 1000 for power in range(10_000)]


def epsilon_of(answers: int, delta: float, noise: int) -> float:
    """Return what answers cost, by a formula of its own: for verifying, without any library.

    Notes
    -----
    **Source:** [Canonne, Kamath, Steinke 2020] Proposition 12, for each of many orders of the Renyi
    divergence: an answer satisfies zCDP with rho = 1 / noise^2.
    """
    rho = answers / noise**2
    costs = (
        order * rho + log1p(-1 / order) - (log(delta) + log(order)) / (order - 1)
        for order in _ORDERS
    )
    return max(0.0, min(costs, default=inf))


def guarantee_of(
    job: Job[ModelRequest], budget: Bounded | None, encoding: Encoding, labels: Labels
) -> str:
    """Say what is promised, and what is not."""
    if budget is None:
        return (
            "nothing is promised about the people in the source: there is no limit on questions,"
            " and answers may tell who was in it, and their values"
        )
    whose = "one record" if job.source.entity is None else "one person"
    learned = [feature.name for feature in encoding.features if not feature.is_declared]
    learned += [] if labels.is_declared else [job.request.label]
    guarantee = (
        f"({budget.epsilon:g}, {budget.delta:g})-differential privacy of {whose} for each reader"
        f" role: if {whose} had been another, all {budget.answers:,} answers that the role may get"
        f" would be as likely, up to a factor of e^{budget.epsilon:g} and a difference of"
        f" {budget.delta:g}; what several roles are told adds up"
    )
    if learned:
        guarantee += (
            f"; the ranges and values of {_listed(learned)} were read from the source, and what"
            " these tell is not covered"
        )
    return guarantee


_MOST_NAMED: Final = 5


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    listed = ", ".join(names[:_MOST_NAMED])
    return listed if more <= 0 else f"{listed} and {more} more columns"
