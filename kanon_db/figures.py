"""Shows figures by a rule: no count of few people, and all others rounded.

Agencies and journals ask for it. An answer is a function of what is published, so the rule protects
nothing that the publication does not. It is applied once, to the aggregates of an answer: groups
are chosen, ordered and calculated with as they are shown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kanon_db.dataclasses import dataclass
from kanon_db.declaration import json_object, unknown
from kanon_db.errors import InvalidParameterError
from kanon_db.query import expressions as ex
from kanon_db.query.formulas import NOTHING, Estimated, Group

_MOST: Final = 1000
"""The largest number that a rule may have."""

_NEARLY: Final = 1e-6
"""What a share of people may be off by, as it was divided."""


@dataclass(frozen=True)
class FigureRule:
    """A count that is shown is 0, or a multiple of `round` that is at least `least`."""

    least: int = 1
    round: int = 1

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> FigureRule:
        """Read a rule: ``{"least": 6, "round": 5}``."""
        for name, number in given.items():
            if name not in ("least", "round"):
                raise unknown("figure", name, ["least", "round"])
            if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= _MOST:
                raise InvalidParameterError(
                    f"{name} must be a whole number of at least 1 and at most {_MOST:,}",
                    hint='write figures => \'{"least": 6, "round": 5}\'',
                )
        return cls(**given)

    def __str__(self) -> str:
        rounded = "" if self.round == 1 else f", and rounded to {self.round}"
        return (
            f"counts are 0 or at least {self.least}{rounded}; a missing estimate of a count means"
            f" {self.few}, and nothing else is told of so few"
        )

    @property
    def few(self) -> str:
        """What is said of a count that is not shown."""
        return f"fewer than {self.least}"

    def number(self, n: float) -> int | None:
        """Return a count as it is shown: the nearest that may be, or None.

        Examples
        --------
        >>> [FigureRule(6, 5).number(n) for n in (0, 3, 6, 12, 13)]
        [0, None, 10, 10, 15]
        """
        if n == 0:
            return 0
        if n < self.least:
            return None
        return max(round(n / self.round) * self.round, self._above(self.least))

    def words(self, n: float) -> str:
        """Write a count as it is shown."""
        shown = self.number(n)
        return self.few if shown is None else f"{shown:,}"

    def is_shown(self, share: float | None, n: float) -> bool:
        """Tell whether a share of n people may be shown: it is none, or not of few of them."""
        return share is None or self.number(math.ceil(share * n - _NEARLY)) is not None

    def sizes(self, numbers: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Show sizes of groups of people, each with how many groups have it."""
        shown: Counter[int] = Counter()
        for size, number in numbers:
            if (rounded := self.number(size)) is not None:
                shown[rounded] += number
        return sorted(shown.items())

    def count(self, answer: Estimated) -> Estimated:
        """Show a count: bounds and likely range are moved outward, and stay true."""
        if answer.estimate is None:
            return answer
        low, high = self._below(answer.lower_bound or 0), self._above(answer.upper_bound or 0)
        shown = self.number(answer.estimate)
        if shown is None:
            return Estimated(None, None, 0, high)
        if answer.std_error is None or answer.likely_low is None or answer.likely_high is None:
            return Estimated(float(shown), None, low, high)
        # What was rounded is off by as much as a number drawn from its range.
        error = math.hypot(answer.std_error, self.round / math.sqrt(12)) if low < high else 0.0
        likely = (float(self._below(answer.likely_low)), float(self._above(answer.likely_high)))
        return Estimated(float(shown), float(self._above(error)), low, high, likely=likely)

    def _below(self, n: float) -> int:
        shown = math.floor(n / self.round) * self.round
        return shown if shown >= self.least else 0

    def _above(self, n: float) -> int:
        return math.ceil(max(n, self.least) / self.round) * self.round if n > 0 else 0


def _read(given: Mapping[str, Any]) -> FigureRule | None:
    return FigureRule.of(given) if given else None


FIGURES: Final = json_object(_read)
"""The type of a parameter that is a rule of figures."""


def stricter(one: FigureRule | None, other: FigureRule | None) -> FigureRule | None:
    """Return the rule of figures that satisfy both: 6 and 5 with 10 and 2 are 10 and 10."""
    if one is None or other is None:
        return one or other
    return FigureRule(max(one.least, other.least), math.lcm(one.round, other.round))


def with_people(query: ex.Query) -> ex.Query:
    """Ask also for the counts of those whom each sum, average and the like is of."""
    own = {measure.aggregate for measure in query.measures}
    counts = (count for measure in query.measures for count in _people(measure.aggregate))
    more = (ex.Measure("", count) for count in dict.fromkeys(counts) if count not in own)
    return query._replace(measures=(*query.measures, *more))


def few_last(query: ex.Query) -> ex.Query:
    """Put groups whose figure is not shown behind all others: it is not NULL."""
    order = (
        one
        if one.measure is None
        else one._replace(nulls_first=one.nulls_first > one.is_descending)
        for one in query.order
    )
    return query._replace(order=tuple(order))


def show(groups: Sequence[Group], query: ex.Query, rule: FigureRule) -> list[Group]:
    """Show the aggregates of a query in groups that answer it :func:`with_people`."""
    places = {one.aggregate: place for place, one in enumerate(with_people(query).measures)}

    def show_one(aggregate: ex.Aggregate, estimates: Sequence[Estimated]) -> Estimated:
        answer = estimates[places[aggregate]]
        if aggregate.function in _COUNTS:
            return rule.count(answer)
        people = [estimates[places[count]] for count in _people(aggregate)]
        if _is_tally(aggregate) and answer.estimate is not None:
            return rule.count(people[-1])  # those who add 1
        is_of_few = any(n.estimate is not None and rule.number(n.estimate) is None for n in people)
        return NOTHING if is_of_few else answer

    def show_group(group: Group) -> Group:
        shown = [show_one(measure.aggregate, group.estimates) for measure in query.measures]
        hidden = frozenset(
            place for place, (answer, own) in enumerate(zip(shown, group.estimates, strict=False))
            if answer.estimate is None and own.estimate is not None
        )  # fmt: skip
        return group._replace(estimates=tuple(shown), hidden=hidden)

    return [show_group(group) for group in groups]


def _people(aggregate: ex.Aggregate) -> list[ex.Aggregate]:
    """Count those whom an aggregate is of, and those who add something to a sum."""
    operand, condition = aggregate.operand, aggregate.condition
    if operand is None or aggregate.function in _COUNTS:
        return []
    counts = [ex.Aggregate("count", operand, condition)]
    if aggregate.function in ("sum", "avg") and aggregate.type is not None:
        adds = ex.Comparison("<>", operand, ex.Constant("0", aggregate.type))
        parts = [adds] if condition is None else [condition, adds]
        counts.append(ex.Aggregate("count", None, ex.joined(ex.And, parts)))
    return counts


def _is_tally(aggregate: ex.Aggregate) -> bool:
    """Whether a sum is of nothing but 1 and 0, so that it counts."""
    return aggregate.function == "sum" and _is_one_or_none(aggregate.operand)


def _is_one_or_none(value: ex.Expression | None) -> bool:
    match value:
        case None:
            return True
        case ex.Column(type=type_) | ex.Constant(type=type_) if type_.category == "boolean":
            return True
        case ex.Constant(text):
            return text is None or float(text) in (0, 1)
        case ex.Cast(inner):
            return _is_one_or_none(inner)
        case ex.Coalesce(parts):
            return all(map(_is_one_or_none, parts))
        case ex.Case(branches, default):
            return all(map(_is_one_or_none, (*(result for _, result in branches), default)))
    return isinstance(value, _TRUTHS)


_COUNTS: Final = ("count", "distinct")
_TRUTHS: Final = (
    ex.Comparison, ex.Distinct, ex.Membership, ex.Range, ex.Pattern, ex.NullTest, ex.TruthTest,
    ex.And, ex.Or, ex.Not,
)  # fmt: skip
