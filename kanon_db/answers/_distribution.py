"""Answers MIN, MAX, percentiles and COUNT(DISTINCT ...), which follow from several counts."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.answers.buckets.bucket_evidence import rank_in_buckets
from kanon_db.answers.rows.coded_rows import CellSums, from_types
from kanon_db.answers.rows.evidence import KnownTypes
from kanon_db.answers.rows.value_counts import MOST_SUMS, ValueCounts
from kanon_db.answers.scope import OpenQuery
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import (
    DERIVED,
    Aggregate,
    Column,
    Expression,
    Key,
    Measure,
    Query,
    attributes,
    columns,
)
from kanon_db.query.formulas import NOTHING, Estimated, Group, common_spelling
from kanon_db.query.layout import BucketLayout, CellLayout, condition_on, is_vague
from kanon_db.query.sql import Request

# Percentiles, MIN and MAX: between what they certainly lie, from counts below and above a value.
#
# **Theorem.** Let N records have a value, B of them one of at most t, and R a greater one, so that
# N = B + R. PostgreSQL returns the value of a rank k(N), which never falls as N grows, and rises
# by
# at most 1 with each record. The value is at most t if and only if B >= k(B + R). Now B - k(B + R)
# never falls as B grows, and never rises as R grows. So if B is certainly at least b, R at most r,
# and N between n and m, it is enough that b' >= k(b' + r'), where r' = min(r, m - b) and
# b' = max(b, n - r'): no other B and R that are possible are worse. In the same way, with A values
# less than t and S others, the value is at least t if and only if A < k(A + S), and it is enough
# that
# a' < k(a' + s'), where s' = max(s, n - a), a' = min(a, m - s'), A is at most a, and S at least s.
#
# If N is 0, there is no value, and nothing to hold; otherwise r' = 0 or a' = 0 is enough, too.


@dataclass(frozen=True, slots=True)
class Quantile:
    """Which of N values in their order an aggregate returns.

    Examples
    --------
    >>> median = Quantile(0.5, is_continuous=True)
    >>> median.first(4), median.last(4), median.part(4)
    (2, 3, 0.5)
    >>> Quantile(0.5, is_continuous=False).first(4), Quantile(1.0, is_continuous=False).first(4)
    (2, 4)
    """

    share: float  # 0 is MIN, 1 is MAX
    is_continuous: bool  # Whether two neighbours are interpolated, as percentile_cont does

    def first(self, n: float) -> int:
        """Return the rank, from 1, of the lower neighbour; calculated as PostgreSQL does."""
        if self.is_continuous:
            return math.floor(self.share * max(n - 1, 0)) + 1
        return max(math.ceil(self.share * n), 1)

    def last(self, n: float) -> int:
        """Return the rank of the upper neighbour."""
        if self.is_continuous:
            return math.ceil(self.share * max(n - 1, 0)) + 1
        return self.first(n)

    def part(self, n: float) -> float:
        """Return how far the result is from the lower neighbour to the upper one, from 0 to 1."""
        if not self.is_continuous:
            return 0.0
        at = self.share * max(n - 1, 0)
        return at - math.floor(at)


@dataclass(frozen=True, slots=True)
class Sides:
    """What is certain of the numbers of records on both sides of a value."""

    least: float  # How many records have a value at all
    most: float
    # At least and at most so many are below the value, or above it; one side has the value itself
    below: tuple[float, float]
    above: tuple[float, float]

    def enough(self, quantile: Quantile) -> float:
        """Return by how many records those below, which have the value, are more than needed.

        Not negative if the result is surely among them.
        """
        above = min(self.above[1], self.most - self.below[0])
        if above <= 0:
            return 0
        n_below = max(self.below[0], self.least - above)
        return n_below - quantile.last(n_below + above) if n_below >= 1 else -1

    def too_many(self, quantile: Quantile) -> float:
        """Return by how many records those below are too many, the others having the value.

        Negative if the result is surely not among them.
        """
        above = max(self.above[0], self.least - self.below[1])
        n_below = min(self.below[1], self.most - above)
        return n_below - quantile.first(n_below + above) if n_below > 0 else -1

    def enough_for(self, rank: int) -> float:
        """Return the same as :meth:`enough` for the record of a rank."""
        return max(self.below[0], self.least - self.above[1]) - rank

    def too_many_for(self, rank: int) -> float:
        """Return the same as :meth:`too_many` for the record of a rank."""
        return min(self.below[1], self.most - self.above[0]) - rank


def between(low: float, high: float, part: float) -> float:
    """Interpolate as PostgreSQL does."""
    return low + part * (high - low)


def answer(
    estimate: float | None, error: float | None, low: float | None, high: float | None
) -> Estimated:
    """Put an answer together: the estimate within the bounds, no error beyond their distance."""
    low, high = (None if end is None or not math.isfinite(end) else end for end in (low, high))
    if estimate is None or not math.isfinite(estimate):
        return Estimated(None, None, low, high)
    estimate = estimate if low is None else max(estimate, low)
    estimate = estimate if high is None else min(estimate, high)
    if error is not None and low is not None and high is not None:
        error = min(error, max(high - low, 0) / 2)
    if error is not None and not math.isfinite(error):
        error = None
    return Estimated(estimate, error, low, high)


def count_distinct(
    values: Sequence[Estimated], total: Estimated, n_unlisted: int | None, n_apart: int = 0
) -> Estimated:
    """Count the values that occur.

    Parameters
    ----------
    values : sequence of Estimated
        How many records have each value that is listed.
    total : Estimated
        How many have any value, NULL not being one.
    n_unlisted : int or None
        How many records, at most, have a value that is not listed; None if none is listed.
    n_apart : int
        How many records are known that surely count and have values different from one another.

    Notes
    -----
    **Lower bound.** A value occurs that at least one record surely has. If the records that surely
    count are more than these values can take, the others take some of them: as few values as can
    hold the rest, the ones that most records may have. The values that are not listed are taken for
    one, which holds as many as there may be.

    **Upper bound.** No more values occur than may have a record, and no more than there are
    records.

    **Estimate.** With e records expected of the m that may have a value, as many independent draws
    miss it with probability (1 - e / m)^m. The error adds to the variance of these draws what the
    errors of all e come to if they go together, and half the number of values that may occur
    without being listed. If no value is listed, all that is known are the bounds: the estimate is
    their middle, the error half their distance.
    """
    surely = [one for one in values if (one.lower_bound or 0) >= 1]
    maybe = [_most(one) for one in values if (one.lower_bound or 0) < 1 <= _most(one)]
    rest = (total.lower_bound or 0) - sum(map(_most, surely))
    lower = len(surely)
    holders = sorted([*maybe, *([n_unlisted] if n_unlisted else [])], reverse=True)
    if n_unlisted is None:
        holders = [math.inf]
    for most in holders:
        if rest <= 0:
            break
        rest -= most
        lower += 1
    lower = max(lower, n_apart)
    upper = _most(total)
    n_more = 0.0
    if n_unlisted is not None:
        n_listed = len(surely) + len(maybe)
        upper = min(upper, n_listed + n_unlisted)
        n_more = max(upper - n_listed, 0)
    width = (upper - lower) / 2
    if n_unlisted is None:
        return Estimated(lower + width, width, lower, upper)
    chances = [_chance(one, 0) for one in values]
    variance = sum(chance * (1 - chance) for chance in chances)
    shift = sum(_chance(one, 1) - _chance(one, -1) for one in values) / 2
    error = min(math.sqrt(variance + shift * shift + (n_more / 2) ** 2), width)
    return Estimated(min(max(sum(chances), lower), upper), error, lower, upper)


def _most(count: Estimated) -> float:
    return count.upper_bound or 0


def _chance(count: Estimated, errors: int) -> float:
    """Return how likely a value occurs, if its count is off by so many errors."""
    most = _most(count)
    if (count.lower_bound or 0) >= 1 or most < 1:
        return float(most >= 1)
    expected = (count.estimate or 0) + errors * (count.std_error or 0)
    return 1.0 - math.pow(1 - min(max(expected / most, 0), 1), most)


_MOST_COUNTS: Final = 2_000
"""How many counts one percentile may take, for all groups."""

_FIRST_COUNTS: Final = 16
"""How many values are counted at first, if there are many groups."""

_CLOSE: Final = 1e-9

Counts = Mapping[str, Estimated]
"""The answer for each group."""


class CountsByValue(Protocol):
    """Counts the records of each group whose value lies below or above any number."""

    @property
    def places(self) -> FloatArray:
        """The values that there are, ascending."""

    def count(self, operator: ex.ComparisonOperator, number: float) -> Counts:
        """Count the records of each group, by its key, whose value compares like that."""


_Test = Callable[[int], float | None]
"""Of a value's place: a number that is not negative where something holds, and never falls from
value to value; None if it is not known."""


class QuantileSearch:
    """Finds one percentile, for all groups, given how many records have a value."""

    def __init__(
        self,
        opened: OpenQuery,
        aggregate: ex.Aggregate,
        counts: CountsByValue,
        totals: Counts,
    ) -> None:
        self._opened = opened
        self._aggregate = aggregate
        self._counts = counts
        self._values: list[float] = counts.places.tolist()
        self._totals = totals
        self._quantile = Quantile(aggregate.share or 0.0, aggregate.function == "cont")
        self._known: dict[tuple[str, float], Counts] = {}
        self._left = min(_MOST_COUNTS, opened.limits.n_answers // (len(totals) + 1))
        layout, names = opened.layout, ex.attributes(aggregate.operand)
        cells = [] if isinstance(layout, BucketLayout) else [layout.cells[n] for n in names]
        self._is_between = any(cell.kind == "range" for cell in cells)
        # What a group counts that no published record may be in: records that are left out may.
        left_out = 0 if isinstance(layout, BucketLayout) else layout.left_out
        self._missing = Estimated(0.0, left_out / 2, 0, left_out)
        self._is_known = not left_out and not any(map(is_vague, cells))

    def answers(self) -> dict[str, Estimated]:
        """Answer for each group."""
        if len(self._totals) > 1:
            step = max(len(self._values) // _FIRST_COUNTS, 1)
            for value in self._values[step // 2 :: step]:
                self._at("<=", value)
        return {group: self._answer(group, total) for group, total in self._totals.items()}

    # -- one group ----------------------------------------------------------------------------

    def _answer(self, group: str, total: Estimated) -> Estimated:
        self._opened.session.heartbeat()
        if not total.upper_bound or not self._values:
            return NOTHING
        low, high = self._bounds(group, total)
        if low is not None and low == high:
            return answer(low, 0.0, low, high)
        return answer(*self._estimate(group, total), low, high)

    def _bounds(self, group: str, total: Estimated) -> tuple[float | None, float | None]:
        quantile, n = self._quantile, total.lower_bound or 0
        first, last = quantile.first(n), quantile.last(n)
        if n != total.upper_bound or first == last:
            return (
                self._greatest(group, total, lambda sides: sides.too_many(quantile)),
                self._least(group, total, lambda sides: sides.enough(quantile)),
            )
        # The ranks of both neighbours are known: each has bounds of its own.
        lows = (
            self._greatest(group, total, lambda sides: sides.too_many_for(first)),
            self._greatest(group, total, lambda sides: sides.too_many_for(last)),
        )
        highs = (
            self._least(group, total, lambda sides: sides.enough_for(first)),
            self._least(group, total, lambda sides: sides.enough_for(last)),
        )
        low, high = (
            None if one is None or other is None else between(one, other, quantile.part(n))
            for one, other in (lows, highs)
        )
        return low, high

    def _greatest(
        self, group: str, total: Estimated, too_many: Callable[[Sides], float]
    ) -> float | None:
        """Return the greatest value below which there are not too many records."""

        def test(place: int) -> float | None:
            sides = self._less(group, total, place)
            return None if sides is None else too_many(sides)

        return self._first(test)[0]

    def _least(
        self, group: str, total: Estimated, enough: Callable[[Sides], float]
    ) -> float | None:
        """Return the least value up to which there are enough records."""

        def test(place: int) -> float | None:
            sides = self._up_to(group, total, self._values[place])
            return None if sides is None else enough(sides)

        return self._first(test)[1]

    # -- the estimate -------------------------------------------------------------------------

    def _estimate(self, group: str, total: Estimated) -> tuple[float | None, float | None]:
        """Estimate the value, and its error from that of how many records are below it."""
        # Woodruff (1952): the values at which one error less, and one more, are expected below.
        # They are read off what is counted already: on straight lines if there are values in
        # between, and otherwise at the next value outwards.
        n, quantile = round(total.estimate or 0, 9), self._quantile
        if n <= 0:
            return None, None
        ends, width = [], 0.0
        for rank in dict.fromkeys((quantile.first(n), quantile.last(n))):
            target = rank - 0.5
            if target >= n:
                target = n * min(max(quantile.share, 0.05), 0.95)
            value, step, after = self._expect(group, target)
            ends.append(value)
            off = max(self._error_below(group, total, after), 1.0)  # a rank is a whole number
            low, high = (self._near(group, target + sign * off, sign) for sign in (-1, 1))
            width = max(width, high - low, step)
        return between(ends[0], ends[-1], quantile.part(n)), width / 2

    def _expect(self, group: str, target: float) -> tuple[float, float, float]:
        """Return up to which value so many records are expected, the step to it, what follows."""

        def test(place: int) -> float | None:
            counts = self._at("<=", self._values[place])
            if counts is None:
                return None
            return (counts.get(group, self._missing).estimate or 0) - (target - _CLOSE)

        before, after = self._first(test)
        first, last = self._values[0], self._values[-1]
        if after is None:  # less are expected altogether, or values that are infinite
            is_beyond = self._count_beyond(">", last, group) >= 1
            return (math.inf if is_beyond else last), 0.0, last
        if before is None:
            is_beyond = self._count_beyond("<", first, group) >= target - _CLOSE
            return (-math.inf if is_beyond else first), 0.0, first
        step = max(after - before, 0)
        if not self._is_between or not math.isfinite(step):
            return after, step, after
        less, more = (self._count_beyond("<=", value, group) for value in (before, after))
        part = (target - less) / (more - less) if more > less else 1
        place = between(before, after, min(max(part, 0), 1))
        is_whole = self._aggregate.type is not None and self._aggregate.type.category == "integer"
        if is_whole:
            return float(math.ceil(place)), 1.0, after
        return place, 0.0, after

    def _near(self, group: str, target: float, sign: int) -> float:
        """Return about the value up to which so many are expected."""
        known = sorted(
            (value, counts.get(group, self._missing).estimate or 0)
            for (operator, value), counts in self._known.items()
            if operator == "<="
        )
        before = None
        for place, n in known:
            if n >= target - _CLOSE:
                if before is None or n <= before[1]:
                    return place
                if not self._is_between:
                    return place if sign > 0 else before[0]
                part = min(max((target - before[1]) / (n - before[1]), 0), 1)
                return between(before[0], place, part)
            before = (place, n)
        return known[-1][0] if known else math.nan

    def _error_below(self, group: str, total: Estimated, value: float) -> float:
        """Return by how many records the result's place among the others may be off."""
        error = (self._at("<=", value) or {}).get(group, self._missing).std_error or 0
        if total.lower_bound == total.upper_bound:
            return error
        above = (self._at(">", value) or {}).get(group, self._missing).std_error or 0
        share = self._quantile.share
        return (1 - share) * error + share * above

    # -- counts -------------------------------------------------------------------------------

    def _count_beyond(self, operator: ex.ComparisonOperator, value: float, group: str) -> float:
        """Return how many records are expected on a side of a value; 0 if it is not known."""
        return (self._at(operator, value) or {}).get(group, self._missing).estimate or 0

    def _first(self, test: _Test) -> tuple[float | None, float | None]:
        """Search for where a test begins to hold: the last value before that, and the first after.

        They are neighbours, unless the test does not know more.
        """
        low, high = self._narrow(test)
        return (
            self._values[low] if low >= 0 else None,
            self._values[high] if high < len(self._values) else None,
        )

    def _narrow(self, test: _Test) -> tuple[int, int]:
        """Search by turns where the number would be 0 on a straight line, and in the middle."""
        low, high = -1, len(self._values)
        at_low = at_high = math.nan
        is_turn = True
        while high - low > 1:
            number = (low + high) // 2
            if is_turn and at_low < 0 < at_high:
                number = round(low - at_low / (at_high - at_low) * (high - low))
                number = min(max(number, low + 1), high - 1)
            is_turn = not is_turn
            excess = test(number)
            if excess is None:  # no more counts: only those that are known already
                known = ((i, test(i)) for i in range(low + 1, high))
                number, excess = next(((i, one) for i, one in known if one is not None), (0, None))
            if excess is None:
                break
            if excess >= 0:
                high, at_high = number, excess
            else:
                low, at_low = number, excess
        return low, high

    def _up_to(self, group: str, total: Estimated, value: float) -> Sides | None:
        """Return what is known of the records up to a value, and above it."""
        return self._sides(group, total, self._at("<=", value), lambda: self._at(">", value))

    def _less(self, group: str, total: Estimated, place: int) -> Sides | None:
        """Return what is known of the records below a value, and of the others."""
        if self._is_known:
            if place:
                return self._up_to(group, total, self._values[place - 1])
            least, most = total.lower_bound or 0, total.upper_bound or 0
            return Sides(least, most, (0, 0), (least, most))
        value = self._values[place]
        return self._sides(group, total, self._at("<", value), lambda: self._at(">=", value))

    def _sides(
        self,
        group: str,
        total: Estimated,
        counts_below: Counts | None,
        counts_above: Callable[[], Counts | None],
    ) -> Sides | None:
        if counts_below is None:
            return None
        least, most = total.lower_bound or 0, total.upper_bound or 0
        one = _ends(counts_below.get(group, self._missing))
        if least == most:
            return Sides(least, most, one, (least - one[1], least - one[0]))
        above = counts_above()
        return (
            None
            if above is None
            else Sides(least, most, one, _ends(above.get(group, self._missing)))
        )

    def _at(self, operator: ex.ComparisonOperator, value: float) -> Counts | None:
        """Count the records of each group whose value compares like that; None if no more may."""
        counts = self._known.get((operator, value))
        if counts is None and self._left > 0:
            self._left -= 1
            counts = self._counts.count(operator, value)
            self._known[operator, value] = counts
        return counts


def _ends(count: Estimated) -> tuple[float, float]:
    return count.lower_bound or 0, count.upper_bound or 0


Ask = Callable[[OpenQuery], list[Group]]
"""Answers a query of one count, before HAVING, ORDER BY and LIMIT."""

_NONE: Final = Estimated(0.0, 0.0, 0, 0)


def is_derived(opened: OpenQuery, aggregate: Aggregate) -> bool:
    """Whether an aggregate is no statement of its own."""
    return aggregate.function in DERIVED and opened.plan(aggregate).shape != "exact"


def derive_answers(opened: OpenQuery, aggregate: Aggregate, ask: Ask) -> dict[str, Estimated]:
    """Answer such an aggregate for each group, by its :func:`.common_spelling`."""
    if aggregate.share is None:
        return _distinct(opened, aggregate, ask)

    def count(query: Query) -> dict[str, Estimated]:
        return {
            common_spelling(one.key): one.estimates[0] for one in ask(replace(opened, query=query))
        }

    if _is_one_of_each_group(opened.query, aggregate):
        constant = replace(aggregate, function="avg", share=None)
        query = opened.query._replace(measures=(Measure("", constant),))
        return count(query)
    if isinstance(opened.layout, BucketLayout):
        ranked = rank_in_buckets(opened, aggregate)
        return QuantileSearch(opened, aggregate, ranked, ranked.totals()).answers()
    totals = count(_counting(opened.query, aggregate))
    return QuantileSearch(opened, aggregate, ValueCounts.of(opened, aggregate), totals).answers()


def _is_one_of_each_group(query: Query, aggregate: Aggregate) -> bool:
    """Whether all records of a group have the same value: all percentiles, and the average."""
    keys = {key.expression for key in query.keys}
    names = {key.name for key in keys if isinstance(key, Column) and key.lookup is None}
    operand = aggregate.operand
    return (
        operand is not None
        and attributes(operand) <= names
        and all(column.lookup is None for column in columns(operand))
    )


def _counting(query: Query, aggregate: Aggregate, *more: Key) -> Query:
    """Count the records that an aggregate reads, in the query's groups and others."""
    return Query(
        condition_on(query, aggregate), (*query.keys, *more),
        (Measure("", Aggregate("count", aggregate.operand)),), listed=(0,),
    )  # fmt: skip


def _value_key(query: Query, operand: Expression) -> Key:
    name = "value"
    while any(key.name == name for key in query.keys):
        name += "_"
    return Key(name, operand)


def _distinct(opened: OpenQuery, aggregate: Aggregate, ask: Ask) -> dict[str, Estimated]:
    """Count the values of each group from how many records have each of them."""
    operand = aggregate.operand
    if operand is None:
        raise TypeError("COUNT(DISTINCT ...) counts the values of something")
    totals = {
        common_spelling(group.key): group.estimates[0]
        for group in ask(replace(opened, query=_counting(opened.query, aggregate)))
    }
    values: defaultdict[str, list[Estimated]] = defaultdict(list)
    n_unlisted = None
    if _is_listed(opened, operand):
        n_unlisted = _count_unlisted(opened, operand)
        key = _value_key(opened.query, operand)
        of_values = replace(
            opened, query=_counting(opened.query, aggregate, key),
            limits=opened.limits._replace(lists_values=True),
        )  # fmt: skip
        for group in ask(of_values):
            if json.loads(group.key)[key.name] is not None:
                values[common_spelling(group.key, key.name)].append(group.estimates[0])
    n_apart = _apart(opened, aggregate, operand)
    estimates = {}
    for group_key in {*totals, *values}:
        opened.session.heartbeat()
        total = totals.get(group_key, _NONE)
        estimates[group_key] = count_distinct(values[group_key], total, n_unlisted, n_apart)
    return estimates


def _apart(opened: OpenQuery, aggregate: Aggregate, operand: Expression) -> int:
    """Return of how many records it is certain that they count with values of their own."""
    layout = opened.layout
    if (
        opened.query.keys
        or not isinstance(layout, CellLayout)
        or not isinstance(operand, Column)
        or operand.lookup is not None
        or layout.cells[operand.name].kind == "value"
    ):
        return 0
    request = Request(
        _counting(opened.query, aggregate), Aggregate("count", operand), opened.lookups
    )
    name = operand.name

    def counted(types: KnownTypes) -> int:
        sums = CellSums.of_column(opened, types, name, (), MOST_SUMS)
        if sums is None:
            return 0
        return types.column(name).n_apart(sums.cell[sums.sure > 0][: opened.limits.n_answers])

    return from_types(opened, request, layout, counted, (name,))


def _is_listed(opened: OpenQuery, operand: Expression) -> bool:
    """Whether the values of an expression can be listed, as GROUP BY would."""
    layout = opened.layout
    if isinstance(layout, BucketLayout):
        return True
    cells = [layout.cells[name] for name in attributes(operand)]
    return not any(
        cell.kind == "range" and (not cell.is_discrete or opened.is_wide(layout, cell))
        for cell in cells
    )


def _count_unlisted(opened: OpenQuery, operand: Expression) -> int:
    """Return how many records may have a value that is in no other cell."""
    layout = opened.layout
    if isinstance(layout, BucketLayout):
        return 0
    marks = [layout.cells[name].mark for name in sorted(attributes(operand))]
    tests = [
        f"substr(c.{layout.view.pattern}, {mark}, 1) = '*'" for mark in marks if mark is not None
    ]
    if not tests:
        return layout.left_out
    (row,) = opened.fetch(
        f"SELECT count(*) AS n FROM {layout.view.view} AS c WHERE {' OR '.join(tests)}"
    )
    return int(row["n"]) + layout.left_out
