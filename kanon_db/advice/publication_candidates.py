"""Chooses candidates for a purpose and a protection, ranks them, and writes their calls.

It knows no database: which settings are worth trying, in which order and for how long, which of
those tried comes first and why another does not, and how it is published in SQL and on the command
line.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from math import inf, isnan
from typing import Any, Final, Literal

from kanon_db.dataclasses import dataclass
from kanon_db.publications.guarantees import (
    InferenceBound,
    buckets_in_words,
    classes_in_words,
    inferred_in_words,
    least_bound,
    linked_in_words,
    rows_in_words,
)
from kanon_db.publications.results import is_attack


@dataclass(frozen=True)
class ProtectionLevel:
    """A level of protection."""

    k: int  # How many people each published row could belong to
    # The threshold of a sensitive value with frequency f is min(cap, theta f + base)
    theta: Fraction
    base: Fraction
    cap: Fraction
    sentence: str  # The same, for people

    def cap_for(self, counts: Sequence[int]) -> Fraction:
        """Return the cap, raised where a value is too frequent for it.

        No publication can make anybody less sure of a value than its share of the table.

        Examples
        --------
        >>> [str(PROTECTIONS["standard"].cap_for(counts)) for counts in ([1] * 9, [6, 4], [97, 3])]
        ['1/3', '3/4', '197/200']
        """
        return max(self.cap, least_bound(Fraction(max(counts), sum(counts))))

    def privacy(self, counts: Sequence[int]) -> dict[str, Any]:
        """Return the privacy specification, as JSON, for a table with these numbers of values."""
        return {
            "theta": _number(self.theta),
            "base": _number(self.base),
            "cap": _number(self.cap_for(counts)),
        }

    def flat_privacy(self, counts: Sequence[int]) -> dict[str, Any]:
        """Return one threshold for all values."""
        return {"default": _number(self.cap_for(counts))}


def _number(exact: Fraction) -> int | float | str:
    """Write a number that reads back as the same: as a decimal where there is an exact one."""
    if exact.denominator == 1:
        return exact.numerator
    decimal = float(exact)
    return decimal if Fraction(repr(decimal)) == exact else str(exact)


def _sentence(sure: str, k: int) -> str:
    return (
        f"nobody is more than {sure} sure of a person's sensitive value (unless it is too frequent"
        f" in the table for that), or a published row could be any of {k} people's; each candidate"
        " says which of the two it promises"
    )


PROTECTIONS: Final = {
    "basic": ProtectionLevel(
        3, Fraction(8), Fraction("0.02"), Fraction("0.5"), _sentence("half", 3)
    ),
    "standard": ProtectionLevel(
        5, Fraction(4), Fraction("0.02"), Fraction(1, 3), _sentence("one third", 5)
    ),
    "strict": ProtectionLevel(
        10, Fraction(2), Fraction("0.02"), Fraction("0.2"), _sentence("one fifth", 10)
    ),
}  # fmt: skip
"""Protections, weakest first; docs/start/choosing.md says where the numbers come from."""

PURPOSES: Final = {
    "counts": "analysts ask how many people have which properties",
    "rows": "analysts need a row for each person, for statistics of their own",
    "both": "rows, or buckets where rows leave values certain; counts are asked of either",
}


# The list is short: for each kind, the settings that were best somewhere in the benchmarks
# (docs/reference/benchmarks.md). None of them takes a risk that would have to be accepted by name.

Protects = Literal["value", "row and value", "row"]
"""The inference that is bounded: somebody's value, whose row it is, or both."""

ORDER: Final[Mapping[str, Sequence[Protects]]] = {
    "counts": ("value", "row and value", "row"),
    "rows": ("row and value", "row"),
    "both": ("row and value", "row", "value"),
}
"""Order for each purpose: bounds on inferred values come first, where they serve it."""

SEARCH_SECONDS: Final = 3
"""Time in a trial for a search that goes on until its time is over."""


@dataclass(frozen=True)
class SourceTraits:
    """The facts on which candidates depend."""

    # The columns to protect, each with how often its values occur
    sensitive: Mapping[str, Sequence[int]] = field(default_factory=dict)
    has_entities: bool = False  # Whether several records can be about the same person

    @property
    def is_flat(self) -> bool:
        """Whether all values of a column get one threshold."""
        # Frequencies of records are not those of people, and for several columns, buckets with
        # thresholds for each frequency take minutes to find.
        return self.has_entities or len(self.sensitive) > 1


@dataclass(frozen=True)
class Candidate:
    """A publication that may be tried."""

    kind: str
    title: str  # What it is, in a few words
    protects: Protects
    guarantee: str  # In one plain sentence
    given: Mapping[str, Any]  # The parameters to publish with
    suffix: str  # For the name of the publication
    trial: Mapping[str, Any] = field(default_factory=dict)  # Those that differ in a trial
    # Whether it is drawn at random, and quickly, so that it is worth drawing several times
    is_drawn: bool = False
    cost: int = 0  # By how much time it takes: cheaper ones are tried first


def candidates_for(
    purpose: str, protection: ProtectionLevel, data: SourceTraits
) -> list[Candidate]:
    """List the candidates, the most promising ones first."""
    buckets, with_values, alone = [], [], []
    if data.sensitive:
        with_values = [_with_values(protection, data)]
        if not data.has_entities:
            buckets = _buckets(protection, data)
    alone = _rows(protection, data)
    if purpose == "counts":
        return [*buckets, *with_values] if buckets else [*with_values, *alone]
    if purpose == "both":
        return [*with_values, *alone, *buckets[:1]]
    return [*with_values, *alone]


def _buckets(protection: ProtectionLevel, data: SourceTraits) -> list[Candidate]:
    privacy = _privacy(protection, data)
    guarantee = buckets_in_words(_bounds(protection, data))
    return [
        Candidate(
            "buckets",
            title,
            "value",
            guarantee,
            {"privacy": privacy, **given},
            "b",
            is_drawn=True,
            cost=cost,
        )
        for title, given, cost in (
            ("buckets of several sizes, of similar people", {"method": "multi_size"}, 3),
            (
                "buckets of several sizes, of people from the whole table",
                {"method": "multi_size", "assignment": "random"},
                1,
            ),
            ("buckets of one or two sizes, of similar people", {}, 2),
        )
    ]


def _with_values(protection: ProtectionLevel, data: SourceTraits) -> Candidate:
    return Candidate(
        "generalized",
        "rows with ranges and sets, groups with different values",
        "row and value",
        classes_in_words(_linked(protection, data), inferred_in_words(_bounds(protection, data))),
        {"k": protection.k, "constraints": _privacy(protection, data)},
        "k",
        {"options": {"time_limit": SEARCH_SECONDS}},
        cost=5,
    )


def _rows(protection: ProtectionLevel, data: SourceTraits) -> list[Candidate]:
    guarantee = rows_in_words(_linked(protection, data), list(data.sensitive))
    k = {"k": protection.k}
    found = [
        Candidate(
            "generalized", "rows with ranges and sets that groups share", "row", guarantee, k, "k",
            {"options": {"time_limit": SEARCH_SECONDS}}, cost=6,
        ),
        Candidate("suppressed", "rows with hidden cells", "row", guarantee, k, "p", cost=4),
    ]  # fmt: skip
    if not data.has_entities:
        # The search of all pairs takes longest, so it comes last.
        found.append(
            Candidate(
                "freeform", "rows with ranges and sets of their own", "row", guarantee, k, "f",
                {"options": {"refine": False}}, cost=7,
            )
        )  # fmt: skip
    return found


def _linked(protection: ProtectionLevel, data: SourceTraits) -> str:
    return linked_in_words(protection.k, has_entities=data.has_entities)


def _privacy(protection: ProtectionLevel, data: SourceTraits) -> dict[str, Any]:
    """Write the privacy specification; only what has too frequent a value gets one of its own."""
    write = protection.flat_privacy if data.is_flat else protection.privacy
    caps = map(protection.cap_for, data.sensitive.values())
    each = [write(counts) for counts in data.sensitive.values()]
    general = min(zip(caps, each, strict=True), key=lambda one: one[0])[1]
    own = {name: one for name, one in zip(data.sensitive, each, strict=True) if one != general}
    return {**general, **({"attributes": own} if own else {})}


def _bounds(protection: ProtectionLevel, data: SourceTraits) -> dict[str, InferenceBound]:
    """Return what the privacy specification bounds."""
    theta, base = (None, Fraction(0)) if data.is_flat else (protection.theta, protection.base)
    return {
        name: InferenceBound(
            Fraction(max(counts), sum(counts)), protection.cap_for(counts), theta, base
        )
        for name, counts in data.sensitive.items()
    }


ON_VALUES: Final = (
    "most frequent value", "minimality", "deFinetti", "correlations of the source",
)  # fmt: skip
"""Attacks that guess everybody's sensitive value."""

ON_ROWS: Final = ("linking a row",)
"""The attack that is left where there is no sensitive value."""


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial."""

    # How many people's sensitive value is certain; None if there is none to protect
    certain_people: int | None
    # The median of |answer - count| / count of random counts; NaN if there is none
    count_error: float
    # For each quasi-identifier, from 0 (its values are shown) to 1 (nothing is)
    losses: Mapping[str, float]
    attacks: Sequence[Mapping[str, Any]]  # The rows of `attack`
    seconds: float  # Of publishing alone
    records: int  # How many records counts were answered from
    is_sample: bool  # Whether `certain_people` is that of a sample
    is_brief: bool = False  # Whether it was tried on a small sample alone, for lack of time

    @property
    def loss(self) -> float:
        """The mean of the columns' losses."""
        return sum(self.losses.values()) / len(self.losses)

    @property
    def worst_attack(self) -> Mapping[str, Any] | None:
        """The attack that gains most over guessing without it; None if none was played."""
        for names in (ON_VALUES, ON_ROWS):
            played = [
                row
                for row in self.attacks
                if row["rate"] is not None and any(is_attack(row["attack"], n) for n in names)
            ]
            if played:
                return max(played, key=lambda row: row["rate"] - (row["base_rate"] or 0))
        return None


@dataclass(frozen=True)
class TriedCandidate:
    """A candidate with the result of its trial."""

    candidate: Candidate
    measured: TrialResult | None = None  # None if nothing was made of it; `failure` then says why
    failure: str = ""
    is_unfinished: bool = False  # Whether the time was over

    @property
    def objection(self) -> str | None:
        """Say why it is not recommended."""
        return _objection(self)


class SharedTime:
    """Time that trials share: each gets an equal part of what is left, and passes the rest on."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._end = clock() + seconds

    @property
    def is_over(self) -> bool:
        """Tell whether nothing is left."""
        return self.clock() >= self._end

    def until(self, shares: int) -> float:
        """Return when the first of so many equal shares of what is left is over."""
        now = self.clock()
        return now + max(0.0, self._end - now) / shares


Attempt = Callable[[Candidate, float, bool], TriedCandidate]
"""Tries a candidate until a time of the clock; on a small sample, if the last argument is True."""


def tried_in_time(
    candidates: Sequence[Candidate], attempt: Attempt, shared: SharedTime
) -> Iterator[TriedCandidate]:
    """Try candidates, the cheapest first, so that at any time there is one to recommend.

    A later result of a candidate takes the place of an earlier one, unless it is unfinished.
    """
    # The first are tried on a small sample, with all of the time, until one can be recommended.
    # Half of the time that is left is for small samples of the others, so that all are compared on
    # a busy machine, too; then each gets its share for more records.
    order = sorted(candidates, key=lambda one: one.cost)
    # Of a sample, rows that bound no values are not recommended.
    waiting = sorted(order, key=lambda one: one.protects == "row")
    while waiting and not shared.is_over:
        result = attempt(waiting.pop(0), shared.until(1), True)
        yield result
        if result.objection is None:
            break
    unfinished = []
    for at, one in enumerate(waiting):
        if not shared.is_over:
            result = attempt(one, shared.until(2 * (len(waiting) - at)), True)
            yield result
            unfinished += [one] if result.is_unfinished else []
    for at, one in enumerate(order):
        yield attempt(one, shared.until(len(order) - at + 1), False)
    for at, one in enumerate(unfinished):
        if not shared.is_over:
            yield attempt(one, shared.until(len(unfinished) - at), True)


@dataclass(frozen=True)
class RankedCandidate:
    """A candidate with its place."""

    place: int | None  # From 1 on; None for what is not recommended
    tried: TriedCandidate
    objection: str | None = field(default=None)  # Why it is not recommended


def ranked(tried: Sequence[TriedCandidate], purpose: str) -> list[RankedCandidate]:
    """Put candidates into order: the best first, and at the end those with an objection."""
    # Nothing is recommended that leaves somebody's value certain, or may do so. What bounds more of
    # what is inferred comes first; of the same protection, what answers counts best, or, for rows,
    # loses least. Figures of a small sample are not compared with others, so they come after these.
    order = ORDER[purpose]

    def key(one: TriedCandidate) -> tuple[int, bool, float]:
        if one.measured is None:
            return len(order), False, inf
        value = one.measured.loss if purpose == "rows" else one.measured.count_error
        protects = order.index(one.candidate.protects)
        return protects, one.measured.is_brief, inf if isnan(value) else value

    found: list[RankedCandidate] = []
    last: list[RankedCandidate] = []
    for one in sorted(tried, key=key):
        objection = one.objection
        if objection is None:
            found.append(RankedCandidate(len(found) + 1, one))
        else:
            last.append(RankedCandidate(None, one, objection))
    return [*found, *last]


def _objection(one: TriedCandidate) -> str | None:
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


_LONGEST: Final = 40
"""Bytes of the table's name that a publication's name begins with."""


def publication_name(table: str, candidate: Candidate) -> str:
    """Make a name for the publication of a table.

    Examples
    --------
    >>> publication_name("census", Candidate("buckets", "", "value", "", {}, "b"))
    'census_b'
    """
    kept = table.encode()[:_LONGEST].decode(errors="ignore")
    return f"{kept}_{candidate.suffix}"


def sql_call(source: str, name: str, candidate: Candidate, literal: Callable[[str], str]) -> str:
    """Write the call of the SQL function, without the SELECT around it; `source` is SQL text."""
    given = [
        f"{key} => {value if isinstance(value, int) else literal(_text(value))}"
        for key, value in candidate.given.items()
    ]
    arguments = ", ".join([literal(source), literal(name), *given])
    return f"kanon.publish_{candidate.kind}({arguments})"


def shell_command(source: str, name: str, candidate: Candidate) -> str:
    r"""Write the command, quoted for a POSIX shell.

    Examples
    --------
    >>> one = Candidate("buckets", "", "value", "", {"privacy": {"l": 3}}, "b")
    >>> shell_command("public.census", "census_b", one)
    'kanon publish buckets public.census census_b --privacy \'{"l": 3}\''
    """
    words = ["kanon", "publish", candidate.kind, source, name]
    for key, value in candidate.given.items():
        words += [f"--{key.replace('_', '-')}", _text(value)]
    return shlex.join(words)


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, Mapping) else str(value)
