"""Which candidate comes first, and why another does not; knows no database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isnan
from typing import Any, Final

from kanon_db.advice.candidates import ORDER, Candidate

ON_VALUES: Final = (
    "most frequent value", "minimality", "deFinetti", "correlations of the source",
)  # fmt: skip
"""Attacks that guess everybody's sensitive value."""

ON_ROWS: Final = ("linking a row",)
"""The attack that is left where there is no sensitive value."""


@dataclass(frozen=True)
class Measured:
    """What a trial has found.

    Attributes
    ----------
    certain_people : int or None
        How many people's sensitive value is certain; None if there is none to protect.
    count_error : float
        The median of |answer - count| / count of random counts; NaN if there is none.
    losses : dict of str to float
        Of each quasi-identifier, from 0 (its values are shown) to 1 (nothing is).
    attacks : list of dict
        The rows of `attack`.
    seconds : float
        Of publishing alone.
    records : int
        How many records counts were answered from.
    is_sample : bool
        Whether `certain_people` is that of a sample.
    """

    certain_people: int | None
    count_error: float
    losses: Mapping[str, float]
    attacks: Sequence[Mapping[str, Any]]
    seconds: float
    records: int
    is_sample: bool

    @property
    def loss(self) -> float:
        """The mean of the columns' losses."""
        return sum(self.losses.values()) / len(self.losses)

    @property
    def worst_attack(self) -> Mapping[str, Any] | None:
        """The attack that is right most often; None if none was played."""
        for names in (ON_VALUES, ON_ROWS):
            played = [
                row for row in self.attacks if row["attack"] in names and row["rate"] is not None
            ]
            if played:
                return max(played, key=lambda row: row["rate"])
        return None


@dataclass(frozen=True)
class Tried:
    """A candidate, and what became of it.

    Attributes
    ----------
    measured : Measured or None
        None if nothing was made of it; `failure` then says why.
    """

    candidate: Candidate
    measured: Measured | None = None
    failure: str = ""


@dataclass(frozen=True)
class Ranked:
    """A candidate with its place.

    Attributes
    ----------
    place : int or None
        From 1 on; None for what is not recommended.
    objection : str or None
        Why it is not recommended.
    """

    place: int | None
    tried: Tried
    objection: str | None = field(default=None)


def ranked(tried: Sequence[Tried], purpose: str) -> list[Ranked]:
    """Put candidates into order: the best first, and at the end those with an objection.

    Nothing is recommended that leaves somebody's value certain, or may do so. What bounds more of
    what is inferred comes first; of the same protection, what answers counts best, or, for rows,
    loses least.
    """
    order = ORDER[purpose]

    def key(one: Tried) -> tuple[int, float]:
        if one.measured is None:
            return len(order), inf
        value = one.measured.loss if purpose == "rows" else one.measured.count_error
        return order.index(one.candidate.protects), inf if isnan(value) else value

    found: list[Ranked] = []
    last: list[Ranked] = []
    for one in sorted(tried, key=key):
        objection = _objection(one)
        if objection is None:
            found.append(Ranked(len(found) + 1, one))
        else:
            last.append(Ranked(None, one, objection))
    return [*found, *last]


def _objection(one: Tried) -> str | None:
    measured = one.measured
    if measured is None:
        return one.failure
    if measured.certain_people:
        return (
            f"the sensitive value of {measured.certain_people:,} people is certain: all rows that"
            " may be theirs have the same one"
        )
    bounds_no_value = one.candidate.protects == "row"
    if measured.certain_people is not None and measured.is_sample and bounds_no_value:
        return (
            "it bounds no values, and only a sample was tried: in the whole table, somebody's"
            " sensitive value may be certain; a dry run of it says whether"
        )
    return None
