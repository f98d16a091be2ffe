"""Follows aggregates from how many records of a group have values of each rank, or up to it.

Where all is published as it is, numbers are exact; otherwise there are estimates, and bounds.

**Theorem.** Let N records have a value, B of them one of at most t, and R a greater one, so that
N = B + R. PostgreSQL returns the value of a rank k(N), which never falls as N grows, and rises by
at most 1 with each record. The value is at most t if and only if B >= k(B + R). Now B - k(B + R)
never falls as B grows, and never rises as R grows. So if B is certainly at least b, R at most r,
and N between n and m, it is enough that b' >= k(b' + r'), where r' = min(r, m - b) and
b' = max(b, n - r'): no other B and R that are possible are worse. In the same way, with A values
less than t and S others, the value is at least t if and only if A < k(A + S), and it is enough that
a' < k(a' + s'), where s' = max(s, n - a), a' = min(a, m - s'), A is at most a, and S at least s.

If N is 0, there is no value, and nothing to hold; otherwise r' = 0 or a' = 0 is enough, too.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol, Self
from typing import Literal as OneOf

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, FloatArray, IntArray
from kanon_db.dataclasses import dataclass
from kanon_db.publications.buckets.tallies import SumsByGroup
from kanon_db.query.expressions import Aggregate
from kanon_db.query.formulas import NOTHING, Estimated

_CLOSE: Final = 1e-9

Gaps = OneOf["empty", "whole", "real"]
"""Which values there may be between the neighbouring ones that are known."""


@dataclass(frozen=True)
class Quantile:
    """Which of N values in their order an aggregate returns.

    Examples
    --------
    >>> median = Quantile(0.5, is_continuous=True)
    >>> int(median.first(4)), int(median.last(4)), float(median.part(4))
    (2, 3, 0.5)
    >>> Quantile(0.5, is_continuous=False).first(np.array([4, 5])).tolist()
    [2.0, 3.0]
    """

    share: float  # 0 is MIN, 1 is MAX
    is_continuous: bool  # Whether two neighbours are interpolated, as percentile_cont does
    is_whole: bool = False  # Whether values are whole numbers, which are not infinite

    @classmethod
    def of(cls, aggregate: Aggregate) -> Self:
        """Return that of MIN, MAX or a percentile."""
        is_whole = aggregate.type is not None and aggregate.type.category == "integer"
        return cls(aggregate.share or 0.0, aggregate.function == "cont", is_whole)

    def first(self, n: Any) -> Any:
        """Return the rank, from 1, of the lower neighbour; calculated as PostgreSQL does."""
        if self.is_continuous:
            return np.floor(self.share * np.maximum(n - 1, 0)) + 1
        return np.maximum(np.ceil(self.share * n), 1)

    def last(self, n: Any) -> Any:
        """Return the rank of the upper neighbour."""
        if self.is_continuous:
            return np.ceil(self.share * np.maximum(n - 1, 0)) + 1
        return self.first(n)

    def part(self, n: float) -> float:
        """Return how far the result is from the lower neighbour to the upper one, from 0 to 1."""
        if not self.is_continuous:
            return 0.0
        at = self.share * max(n - 1, 0)
        return at - math.floor(at)


@dataclass(frozen=True, eq=False)
class ExactValues:
    """How often the records of each group have each value."""

    values: FloatArray  # All that there are, ascending; NULL is none, and its rank the last
    sums: SumsByGroup  # By the group times the number of ranks, plus a rank

    @property
    def n_ranks(self) -> int:
        """How many ranks there are, with that of NULL."""
        return self.values.size + 1

    @property
    def n_bytes(self) -> int:
        """How much memory they take."""
        return self.sums.group.nbytes * 4

    def add(
        self, group: AnyIntArray | None, rank: AnyIntArray, n: FloatArray | None = None
    ) -> None:
        """Add records: one of each group and rank, or so many."""
        number = rank if group is None else np.asarray(group, np.int64) * self.n_ranks + rank
        if n is None:
            number, n = _count(number)
        self.sums.add(number, n[np.newaxis])

    def aggregates(self, measure: Aggregate, *, has_nan: bool) -> Iterator[tuple[int, Estimated]]:
        """Answer an aggregate for each group that has a record.

        `has_nan`: whether the infinite number may be NaN.
        """
        for group, ranks, n in self._groups():
            yield group, aggregate_values(measure, self.values[ranks], n, has_nan=has_nan)

    def find_ranks(self, measure: Aggregate) -> IntArray:
        """Return the ranks of the values that MIN, MAX or a percentile of some group is made of."""
        groups = [ranks[_find_places(measure, n)] for _, ranks, n in self._groups() if n.size]
        return np.unique(np.concatenate([np.empty(0, np.int64), *groups]))

    def _groups(self) -> Iterator[tuple[int, IntArray, FloatArray]]:
        """Yield each group that has a record, its ranks but for that of NULL, and their records."""
        group, rank = np.divmod(self.sums.group, self.n_ranks)
        n = self.sums.totals[0]
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        ends = np.append(starts, group.size)[1:]
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            own = slice(start, end - int(rank[end - 1] == self.values.size))
            yield int(group[start]), rank[own], n[own]


def _count(numbers: AnyIntArray) -> tuple[AnyIntArray, FloatArray]:
    """Return the distinct numbers, ascending, and how often each occurs."""
    if int(numbers.max(initial=0)) > _DENSE * numbers.size:
        distinct, times = np.unique(numbers, return_counts=True)
        return distinct, times.astype(np.float64)
    times = np.bincount(numbers)
    distinct = np.flatnonzero(times)
    return distinct, times[distinct].astype(np.float64)


_DENSE: Final = 4
"""So many times as many numbers as there are records are counted with a place each."""


def aggregate_values(
    measure: Aggregate, x: FloatArray, n: FloatArray, *, has_nan: bool
) -> Estimated:
    """Aggregate values, ascending, that occur so many times."""
    if measure.function == "distinct":
        return Estimated(float(x.size), 0.0, x.size, x.size)
    if not x.size:
        return NOTHING
    if measure.share is None:
        exact = _sum(x, n)
        exact = exact / float(n.sum()) if measure.function == "avg" else exact
    else:
        low, high = x[_find_places(measure, n)].tolist()
        part = Quantile.of(measure).part(float(n.sum()))
        exact = interpolate(low, high, part) if part else low
        if math.isnan(exact) or (exact == math.inf and has_nan):
            return NOTHING
    return Estimated(exact, 0.0, exact, exact)


def _find_places(measure: Aggregate, n: FloatArray) -> IntArray:
    """Return where both neighbours of a quantile are among values that occur so many times."""
    upto, quantile = np.cumsum(n), Quantile.of(measure)
    ranks = quantile.first(upto[-1]), quantile.last(upto[-1])
    return np.searchsorted(upto, np.array(ranks))


def _sum(x: FloatArray, n: FloatArray) -> float:
    if not np.isfinite(x).all():
        return math.inf
    # A product of a number of records and half of a value's digits is not rounded.
    part, exponent = np.frexp(x)
    with np.errstate(over="ignore"):
        high = np.ldexp(np.round(np.ldexp(part, 26)), exponent - 26)
        products = [*(n * high).tolist(), *(n * (x - high)).tolist()]
    try:
        return math.fsum(products)
    except (OverflowError, ValueError):  # beyond double precision
        return math.inf


class Sides(NamedTuple):
    """What is certain of the numbers of records on both sides of some values."""

    least: float  # How many records have a value at all
    most: float
    # At least and at most so many are below a value, or above it; one side has the value itself
    below: tuple[Any, Any]
    above: tuple[Any, Any]

    def enough(self, quantile: Quantile) -> Any:
        """Return by how many records those below, which have the value, are more than needed.

        Not negative if the result is surely among them.
        """
        above = np.minimum(self.above[1], self.most - self.below[0])
        n_below = np.maximum(self.below[0], self.least - above)
        more = np.where(n_below >= 1, n_below - quantile.last(n_below + above), -1)
        return np.where(above <= 0, 0, more)

    def too_many(self, quantile: Quantile) -> Any:
        """Return by how many records those below are too many, the others having the value.

        Negative if the result is surely not among them.
        """
        above = np.maximum(self.above[0], self.least - self.below[1])
        n_below = np.minimum(self.below[1], self.most - above)
        return np.where(n_below > 0, n_below - quantile.first(n_below + above), -1)

    def enough_for(self, rank: int) -> Any:
        """Return the same as :meth:`enough` for the record of a rank."""
        return np.maximum(self.below[0], self.least - self.above[1]) - rank

    def too_many_for(self, rank: int) -> Any:
        """Return the same as :meth:`too_many` for the record of a rank."""
        return np.minimum(self.below[1], self.most - self.above[0]) - rank


class RankedGroup(Protocol):
    """The records of a group by the order of their values.

    A boundary is a number of places that are below it, from none to all.
    """

    @property
    def places(self) -> FloatArray:
        """The values that there are, ascending."""

    @property
    def has_least(self) -> bool:
        """Whether some value may be -infinity."""

    @property
    def boundaries(self) -> IntArray:
        """Those at which the bounds below change, ascending from 0."""

    @property
    def bounds(self) -> FloatArray:
        """At least and at most so many are below each, and above it: (4, n_boundaries)."""

    def count(self, boundary: int, *, is_above: bool = False) -> Estimated:
        """Count the records on one side of a boundary."""

    def expect(self, boundary: int, *, is_above: bool = False) -> float:
        """Return the estimate of :meth:`count` alone."""


def find_quantile(
    group: RankedGroup, total: Estimated, quantile: Quantile, gaps: Gaps
) -> Estimated:
    """Find the value of a quantile; `total`: how many records have a value."""
    if not total.upper_bound or not group.places.size:
        return NOTHING
    low, high = _find_bounds(group, total, quantile)
    may_be_nan = quantile.is_continuous and group.has_least and not quantile.is_whole
    if may_be_nan and (low is None or not math.isfinite(low)):
        high = None  # what PostgreSQL interpolates from there is NaN, which is after all numbers
    if low is not None and low == high:
        return answer(low, 0.0, low, high)
    return answer(*_ValueEstimate(group, total, quantile, gaps).find(), low, high)


def _find_bounds(
    group: RankedGroup, total: Estimated, quantile: Quantile
) -> tuple[float | None, float | None]:
    n, most = total.lower_bound or 0, total.upper_bound or 0
    bounds = group.bounds
    least_above, most_above = bounds[2:]
    if n == most:
        least_above, most_above = n - bounds[1], n - bounds[0]
    sides = Sides(n, most, (bounds[0], bounds[1]), (least_above, most_above))
    first, last = int(quantile.first(n)), int(quantile.last(n))
    if n != most or first == last:
        return (
            _greatest_until(group, sides.too_many(quantile) >= 0),
            _least_from(group, sides.enough(quantile) >= 0),
        )
    # The ranks of both neighbours are known: each has bounds of its own.
    lows = [_greatest_until(group, sides.too_many_for(rank) >= 0) for rank in (first, last)]
    highs = [_least_from(group, sides.enough_for(rank) >= 0) for rank in (first, last)]
    low, high = (
        None if one is None or other is None else interpolate(one, other, quantile.part(n))
        for one, other in (lows, highs)
    )
    return low, high


def _greatest_until(group: RankedGroup, is_over: BoolArray) -> float | None:
    """Return the greatest value before the boundary from which on something holds."""
    at = int(is_over.argmax())
    end = int(group.boundaries[at]) if is_over[at] else group.places.size
    return float(group.places[end - 1]) if end else None


def _least_from(group: RankedGroup, is_reached: BoolArray) -> float | None:
    """Return the least value with which the boundary is reached from which on something holds."""
    at = int(is_reached.argmax())
    if not is_reached[at]:
        return None
    return float(group.places[max(int(group.boundaries[at]) - 1, 0)])


class _ValueEstimate:
    """Estimates the value, and its error from that of how many records are below it.

    Woodruff (1952): the values at which one error less, and one more, are expected below.
    """

    def __init__(
        self, group: RankedGroup, total: Estimated, quantile: Quantile, gaps: Gaps
    ) -> None:
        self._group, self._total, self._quantile, self._gaps = group, total, quantile, gaps
        self._places: list[float] = group.places.tolist()

    def find(self) -> tuple[float | None, float | None]:
        n, quantile = round(self._total.estimate or 0, 9), self._quantile
        if n <= 0:
            return None, None
        ends, width = [], 0.0
        for rank in dict.fromkeys((int(quantile.first(n)), int(quantile.last(n)))):
            target = rank - 0.5
            if target >= n:
                target = n * min(max(quantile.share, 0.05), 0.95)
            value, step, after = self._expect(target)
            ends.append(value)
            off = max(self._error_below(after), 1.0)  # a rank is a whole number
            low, high = (self._near(target + sign * off, sign) for sign in (-1, 1))
            width = max(width, high - low, step)
        return interpolate(ends[0], ends[-1], quantile.part(n)), width / 2

    def _expect(self, target: float) -> tuple[float, float, int]:
        """Return up to which value so many are expected, the step to it, and the boundary."""
        boundary, n = self._reach(target), len(self._places)
        if boundary > n:  # less are expected altogether, or values that are infinite
            is_beyond = self._group.expect(n, is_above=True) >= 1
            return (math.inf if is_beyond else self._places[-1]), 0.0, n
        after = self._places[boundary - 1]
        if boundary == 1:
            is_beyond = self._group.expect(0) >= target - _CLOSE
            return (-math.inf if is_beyond else after), 0.0, 1
        before = self._places[boundary - 2]
        step = max(after - before, 0)
        if self._gaps == "empty" or not math.isfinite(step):
            return after, step, boundary
        place = interpolate(before, after, self._part(boundary, target))
        if self._gaps == "whole":
            return float(math.ceil(place)), 1.0, boundary
        return place, 0.0, boundary

    def _near(self, target: float, sign: int) -> float:
        """Return about the value up to which so many are expected."""
        boundary = self._reach(target)
        if boundary > len(self._places):
            return self._places[-1]
        after, before = self._places[boundary - 1], self._places[max(boundary - 2, 0)]
        if boundary == 1:
            return after
        if self._gaps == "empty":
            return after if sign > 0 else before
        return interpolate(before, after, self._part(boundary, target))

    def _part(self, boundary: int, target: float) -> float:
        """Return how far it is from the value before a boundary to the one that reaches it."""
        less, more = self._group.expect(boundary - 1), self._group.expect(boundary)
        return min(max((target - less) / (more - less), 0), 1) if more > less else 1

    def _reach(self, target: float) -> int:
        """Return the boundary below which so many are expected; the one after all if none is."""
        boundaries = range(1, len(self._places) + 1)
        return 1 + bisect_left(boundaries, target - _CLOSE, key=self._group.expect)

    def _error_below(self, boundary: int) -> float:
        """Return by how many records the result's place among the others may be off."""
        error = self._group.count(boundary).std_error or 0
        if self._total.lower_bound == self._total.upper_bound:
            return error
        above = self._group.count(boundary, is_above=True).std_error or 0
        share = self._quantile.share
        return (1 - share) * error + share * above


def interpolate(low: float, high: float, part: float) -> float:
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
