"""Declares the results of publishing, verifying, measuring and attacking a publication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any, Final, NamedTuple

from kanon_db.dataclasses import dataclass
from kanon_db.declaration.shown import ShownResult
from kanon_db.errors import VerificationError

FIGURES: Final = "figures"
"""Key in the metrics of a dry run; its figures are measured by no other call."""


@dataclass(frozen=True)
class Published(ShownResult):
    """The result of a `publish_*` call."""

    publication_id: int | None  # None for a dry run
    name: str
    guarantee: str  # the privacy guarantee in words
    records: int
    # The headline metrics, by name. A dry run adds `FIGURES`: what it measured besides, as plain
    # JSON; see `kanon_db.publications.pipeline`.
    metrics: dict[str, Any]
    seconds: float  # wall-clock time of the call


@dataclass(frozen=True)
class Check:
    """One line of a verification: what must hold, the bound, and what was measured."""

    check: str
    bound: str
    measured: str
    holds: bool


@dataclass(frozen=True)
class Remark(Check):
    """A line that no bound is on, so that it cannot fail: it says what is not covered."""

    holds: bool = True


@dataclass(frozen=True)
class Examination:
    """The findings in the published relations."""

    checks: list[Check]
    # Empty if the relations are not those that were published: whatever has taken their place is
    # not read, since reading it could run code with the rights of whoever verifies.
    metrics: dict[str, float]


@dataclass(frozen=True)
class Attack:
    """One line of the attacks: what someone achieves who plays it."""

    attack: str
    # What the guarantee allows for these guesses; None where nothing bounds them.
    bound: float | None
    # The share of the same people for whom someone without the publication is right.
    base_rate: float | None
    # The share of people for whom the attack is right; None if there is nobody to guess.
    rate: float | None
    people: int  # how many people were guessed

    @property
    def excess(self) -> float:
        """How far it is right above what is allowed, or else above guessing; -1 if it cannot."""
        least = self.base_rate if self.bound is None else self.bound
        return -1.0 if self.rate is None else self.rate - (least or 0.0)

    @property
    def exceeds(self) -> bool:
        """Whether it is right more often than its bound allows, beyond chance."""
        if self.bound is None or self.rate is None or not self.people:
            return False
        return self.excess > 3 * sqrt(self.bound * (1 - self.bound) / self.people)


VALUE_ATTACKS: Final = (
    "most frequent value", "unusual people: most frequent value",
    "refinement: most frequent value", "minimality", "deFinetti",
    "unusual people: deFinetti", "unique people: deFinetti", "surer than the bound: deFinetti",
    "correlations of the source", "a part of the value",
)  # fmt: skip
"""The attacks that guess a sensitive value of somebody."""


def attacks_on(
    attacks: Sequence[Attack], sensitive: str, attributes: Sequence[str]
) -> list[Attack]:
    """Return those that guess values of one of the sensitive attributes, the worst first."""
    which = f" of {sensitive}" if len(attributes) > 1 else ""
    names = {f"{name}{which}" for name in VALUE_ATTACKS}
    names |= {f"knows the value of {known}, guesses {sensitive}" for known in attributes}
    return worst_first([line for line in attacks if line.attack in names])


def worst_first(attacks: Sequence[Attack]) -> list[Attack]:
    """Order attacks: those that exceed their bound, then by how far they do."""
    return sorted(attacks, key=lambda line: (not line.exceeds, -line.excess))


def is_attack(attack: str, name: str) -> bool:
    """Tell whether an attack has a name, whichever of several sensitive attributes it is on."""
    return f"{attack} of ".startswith(f"{name} of ")


@dataclass(frozen=True)
class CountAccuracy:
    """Errors of the answers to random count queries."""

    # Share of matching records to expect if attributes were uniform and independent; None for all
    # queries together.
    expected_selectivity: float | None
    n_queries: int
    # The number of queries that no record matches. Their relative errors are undefined, and left
    # out.
    undefined: int
    # Mean and median of |estimate - count| / count; NaN if all of them are undefined.
    mean_relative_error: float
    median_relative_error: float


@dataclass(frozen=True)
class Metric:
    """One line of the metrics."""

    metric: str
    value: float


def require_checks(checks: Sequence[Check]) -> None:
    """Refuse to publish unless every check holds."""
    failed = [check.check for check in checks if not check.holds]
    if failed:
        raise VerificationError(
            "the published relations failed their verification; nothing was published",
            detail=f"failed: {', '.join(failed)}",
            hint="this is a bug in kanon_db: please report it with the method and parameters",
        )


# Publishing is refused, and new people wait, because of the values that there are. Whoever knows
# who was in the source at that time learns something of their values, and can be surer of them
# than the bound, once they are published. So what waits is shown to the publisher alone.

WAITING_NOT_COVERED: Final = "what it tells that publishing was refused, or that people had to wait"
"""What a guarantee about values leaves out."""

WAITING_CLAUSE: Final = f"; {WAITING_NOT_COVERED}, is not covered"
"""The same, at the end of a guarantee."""

WAITING_WARNING: Final = (
    "people wait, not being enough or having too few different values: whoever knows of it can be"
    " surer of these than the guarantee says, once they are published; refresh when there are"
    " clearly enough"
)
"""For publishers."""


def check_waiting(parameters: Mapping[str, Any]) -> Remark:
    """Say in a verification what is not covered, and how often people can have waited."""
    states = int(parameters.get("batches", 1)) + int(parameters.get("renewals", 0))
    return Remark(
        f"not covered: {WAITING_NOT_COVERED}",
        "readers do not know of it",
        "published once" if states == 1 else f"published {states - 1} times more since the first",
    )


_ANEW: Final = (
    "publish anew in place of this one: readers can compare both, a risk to be accepted with a"
    " reason"
)


class HeldKind(NamedTuple):
    """Why records of one kind are held back."""

    short: str
    said: str  # the number of records comes before it
    hint: str  # what to do


HELD: Final[Mapping[str, HeldKind]] = {
    "new": HeldKind(
        "new", "who came wait", "they are published with others who come, once they are enough"
    ),
    "late": HeldKind(
        "late",
        "came late: not after the last one that was published",
        f"an entity would say that they are new: register it, then {_ANEW}",
    ),
    "again": HeldKind("more of published people", "of people who are published", _ANEW),
    "corrected": HeldKind("corrected", "corrected after being published", _ANEW),
    "deleted": HeldKind(
        "deleted",
        "deleted after being published",
        f"{_ANEW}; people can leave buckets with the assignment m_invariant",
    ),
    "left_out": HeldKind(
        "left out", "of people who left or were left out, which is for good", _ANEW
    ),
}
"""Kinds of records that are in the source, or were, and not published as they are there."""


class HeldRecords(NamedTuple):
    """Records of one kind that are held back."""

    kind: str  # a key of `HELD`
    records: int | None  # None where that cannot be told
    is_exact: bool = True  # otherwise there are at least so many
    why: str = ""
    hint: str = ""  # what to do, if it is something else

    @property
    def said(self) -> str:
        """Say how many they are, and why."""
        number = f"{'' if self.is_exact else 'at least '}{self.records:,}"
        return f"{number} {HELD[self.kind].said}" + (f": {self.why}" if self.why else "")


def waits_in_words(waits: Mapping[str, Mapping[str, Any]], *, with_numbers: bool = True) -> str:
    """Say what waits since when, as the catalog keeps it, in one line.

    Examples
    --------
    >>> late = {"records": 7, "is_exact": False, "since": "2026-03-01T12:00:00+00:00"}
    >>> waits_in_words({"late": late, "corrected": {"records": None}})
    '7 records wait: at least 7 late since 2026-03-01; not known: corrected'
    """
    there = [(HELD[kind].short, waits[kind]) for kind in HELD if kind in waits]
    held = []
    for short, one in there:
        if one["records"]:
            n = f"{'' if one['is_exact'] else 'at least '}{one['records']:,} " * with_numbers
            held.append(f"{n}{short} since {one['since'][:10]}")
    n_all = sum(one["records"] or 0 for _, one in there)
    wait = "1 record waits" if n_all == 1 else f"{n_all:,} records wait"
    wait = wait if with_numbers else "records wait"
    unknown = ", ".join(short for short, one in there if one["records"] is None)
    said = [f"{wait}: {', '.join(held)}" if held else "none"]
    return "; ".join([*said, *([f"not known: {unknown}"] if unknown else [])])
