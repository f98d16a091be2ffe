"""Random count queries, and what a publication is good for."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.metrics.count_errors import CountErrors
from kanon_db.metrics.workload import CountQuery, random_queries
from kanon_db.publications.results import CountAccuracy


@dataclass(frozen=True, eq=False)
class Usefulness:
    """What a publication is good for.

    Attributes
    ----------
    answers : ndarray of float64, shape (n_queries,)
        What `estimate_count` answers.
    losses : ndarray of float64, shape (n_qi,)
        Of each quasi-identifier: 0 if each row shows its value, 1 if no row shows anything.
    """

    answers: FloatArray
    losses: FloatArray


SELECTIVITY: Final = (0.01, 0.05, 0.1)
"""Expected shares of matching records, of which each random query draws one."""


@dataclass(frozen=True)
class Workload:
    """Random count queries, as the parameters of `evaluate_counts` describe them."""

    queries: int
    dimensionality: tuple[int, ...] | None = None
    selectivity: tuple[float, ...] = SELECTIVITY
    seed: int | None = None


@dataclass(frozen=True, eq=False)
class Compared:
    """The two sides that queries are asked of.

    Attributes
    ----------
    phase : callable
        Hears what is done next.
    hold : callable
        Refuses what needs too much memory, given bytes and what for.
    count : callable
        Counts in the source.
    estimate : callable
        Estimates from the publication.
    """

    phase: Callable[[str], None]
    hold: Callable[[float, str], None]
    count: Callable[[Sequence[CountQuery]], IntArray]
    estimate: Callable[[Sequence[CountQuery]], FloatArray]


def compare_counts(
    workload: Workload, n_values: Sequence[int], n_sensitive: int, compared: Compared, pulse: Pulse
) -> list[CountAccuracy]:
    """Draw random queries, and compare the answers of both sides.

    Parameters
    ----------
    workload : Workload
    n_values : sequence of int
        The number of values of each quasi-identifier in the source.
    n_sensitive : int
        The same of the sensitive attribute.
    compared : Compared
    pulse : Pulse
    """
    compared.phase("drawing the queries")
    queries, dimensionality = workload.queries, workload.dimensionality
    largest = sorted(n_values, reverse=True)
    n_conditions = max(dimensionality or [len(largest)], default=0)
    # A byte for each value of a condition, twice: the publication's may be others.
    n_bytes = sum(largest[: max(n_conditions, 0)]) + n_sensitive
    compared.hold(2 * queries * n_bytes, f"{queries:,} queries of {n_bytes:,} values")
    seed = secrets.randbits(128) if workload.seed is None else workload.seed
    chosen = random_queries(
        queries,
        n_values,
        n_sensitive,
        np.random.default_rng(seed),
        dimensionality=dimensionality or range(1, len(n_values) + 1),
        selectivity=workload.selectivity,
        pulse=pulse,
    )
    compared.phase("counting in the source")
    actual = compared.count(chosen)
    compared.phase("estimating from the publication")
    errors = CountErrors(actual, compared.estimate(chosen))
    expected = np.array([query.selectivity for query in chosen])
    return [
        *(_accuracy(s, errors.select(expected == s)) for s in sorted(set(workload.selectivity))),
        _accuracy(None, errors),
    ]


def _accuracy(selectivity: float | None, errors: CountErrors) -> CountAccuracy:
    """Summarize the errors of some queries."""
    return CountAccuracy(
        selectivity, errors.actual.size, errors.n_undefined, errors.mean, errors.median
    )
