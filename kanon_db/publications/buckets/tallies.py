"""Counts the buckets that are alike: so many records match, and so many values, by group."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, FloatArray, IntArray
from kanon_db.publications.codes import Sizes
from kanon_db.query.formulas import Estimated, limit_average, rounding
from kanon_db.query.layout import Side

_MOST_DENSE: Final = 1 << 18
"""Numbers of (group, size, q, s) with a place of their own."""

_FEW_KEPT: Final = 1 << 16
"""Numbers that are kept as they come, before those that are equal are put together."""

_MOST_COMPARED: Final = 128
"""Slots of a bucket that are sorted by comparing them with each other, all buckets at once."""


class MatchedPairs(NamedTuple):
    """What a random matching gives."""

    estimate: float
    # Of a count or a sum; of an average, of the sum of its `number` differences from it
    variance: float
    lower_bound: float
    upper_bound: float
    number: float = 1.0


# Estimates, errors and bounds over buckets.
#
# A bucket has ``size`` records, of which ``q`` match on the quasi-identifiers, and ``s`` of its
# sensitive values match. Which record has which value is hidden: every matching of them is as
# likely as the others.
#
# **Source:** [GB] section 3.2 for the estimate; docs/understand/estimation.md for the rest.


class Weighed(NamedTuple):
    """What the matching records, or values, of each bucket of one size weigh."""

    # (n_buckets,): their number, and the sums of their values, squares, positive and negative parts
    n: FloatArray
    x: FloatArray
    squares: FloatArray
    positive: FloatArray
    negative: FloatArray
    least: FloatArray  # (n_buckets,): their extreme values; infinite where there is none
    most: FloatArray


def limit_sums(
    weighed: Weighed, drawn: tuple[Any, Any], least: Callable[..., Any], most: Callable[..., Any]
) -> tuple[Any, Any]:
    """Bound the sum of those values that are drawn, between so many: numbers, or statements.

    `least`, `most`: return the least, and the greatest, of two.
    """
    (fewest, many), x = drawn, weighed.x
    left = weighed.n - fewest, weighed.n - many
    low, high = weighed.least, weighed.most
    lowest = least(fewest * low, many * low)
    highest = most(fewest * high, many * high)
    at_least = least(x - left[0] * high, x - left[1] * high)
    at_most = most(x - left[0] * low, x - left[1] * low)
    return (
        most(most(weighed.negative, lowest), at_least),
        least(least(weighed.positive, highest), at_most),
    )


def weigh_draws(
    size: int | IntArray, weighed: Weighed, matches: AnyIntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return what a sum, or an average, takes of buckets in which records and values meet.

    Of q values, s matches in each bucket: totals (9, n_buckets), and (n_buckets,) least and most.
    """
    # In a bucket, s of size records are drawn at random; for the q values of x, the expected sum is
    # t = s sum(x) / size, their expected number c = q s / size, with the variances and the
    # covariance of drawing without replacement. Between lo = max(q + s - size, 0) and hi = min(q,
    # s) of the q are drawn; each bound of the sum is the extreme that so many can reach.
    q, x, low, high = weighed.n, weighed.x, weighed.least, weighed.most
    s = matches.astype(np.float64)
    lo, hi = np.maximum(q + s - size, 0), np.minimum(q, s)
    rest = (s - s * s / size) / np.maximum(size - 1, 1)
    lower, upper = limit_sums(weighed, (lo, hi), np.minimum, np.maximum)
    variances = ((weighed.squares - x * x / size) * rest, (q - q * q / size) * rest)
    covariance = (x - x * q / size) * rest
    parts = (x * s / size, q * s / size, *variances, covariance, lower, upper, lo, hi)
    return np.stack(parts), low, high


def summed(
    totals: Sequence[float], extremes: tuple[float, float], *, is_average: bool
) -> MatchedPairs | None:
    """Return a sum, or an average, from totals; None where there is nothing to sum."""
    # `totals` are t and c, their variances tt and cc, their covariance tc, and the bounds of both:
    # t_low, t_high, c_low, c_high. `extremes` are the least and the greatest value.
    t, c, tt, cc, tc, t_low, t_high, c_low, c_high = totals
    least, most = extremes
    if c == 0:
        return None
    lost = rounding(c_high, max(abs(least), abs(most)), t_low, t_high)
    t_low, t_high = t_low - lost, t_high + lost
    if not is_average:
        return MatchedPairs(t, tt, t_low, t_high)
    mean = t / c
    low, high = limit_average((t_low, t_high), (c_low, c_high), extremes)
    return MatchedPairs(mean, tt - 2 * mean * tc + mean * mean * cc, low, high, c)


class PairsOfGroups(NamedTuple):
    """What buckets tell of pairs of groups; arrays of shape (n_pairs,)."""

    number: IntArray  # the group of records times the number of groups of values, and theirs
    estimate: FloatArray
    variance: FloatArray
    lower: FloatArray
    upper: FloatArray

    def pairs(self, at: int) -> MatchedPairs:
        """Return one of them."""
        return MatchedPairs(
            float(self.estimate[at]), float(self.variance[at]),
            int(self.lower[at]), int(self.upper[at]),
        )  # fmt: skip


def count_draws(
    q: AnyIntArray | FloatArray, s: AnyIntArray | FloatArray, size: int | AnyIntArray
) -> FloatArray:
    """Count, in buckets, the records of which both sides match: q on one, and s on the other.

    Returns the expected number, its variance and both bounds, shape (4, n_buckets).
    """
    # In a bucket, q s / size records are expected to match both; their number is hypergeometric,
    # with variance q (s / size) (1 - s / size) (size - q) / (size - 1), and lies between
    # max(q + s - size, 0) and min(q, s) ([GB] section 3.2 for the estimate).
    expected = q * s / size
    variance = expected * (size - q) * (size - s) / (size * np.maximum(size - 1, 1))
    return np.stack([expected, variance, np.maximum(q + s - size, 0), np.minimum(q, s)])


class SideSums(NamedTuple):
    """What records (or values) weigh: 1 each, or a number; arrays of shape (n_pairs,)."""

    # Who of a bucket has which of its values is hidden, so what an estimate misses is a
    # correlation inside of buckets: `kanon_db.algorithms.bucketization.strengths` measures how
    # strong those may be, and docs/understand/estimation.md derives the rest.
    total: FloatArray
    squares: FloatArray
    packed: FloatArray  # Sums over buckets, of each bucket's total squared over its size
    number: FloatArray  # How many there are

    def varying(self, n_records: int) -> FloatArray:
        """Return the sum of squares about the mean of all records."""
        return np.maximum(self.squares - self.total**2 / n_records, 0.0)

    @property
    def inside(self) -> FloatArray:
        """Return the sum of squares about the mean of each bucket."""
        return np.maximum(self.squares - self.packed, 0.0)


class DependenceEffect(NamedTuple):
    """What a dependence adds to an answer that its estimate leaves."""

    variance: float
    # What shows of it between buckets, as far as it is heard, and this part
    shown: float = 0.0
    heard: float = 0.0


def judge_pairs(
    pairs: MatchedPairs,
    hidden: DependenceEffect,
    *,
    by_weights: float | None = None,
    is_paper: bool = False,
) -> Estimated:
    """Choose an estimate, and say how far off it may be."""
    # `pairs`: what a random matching gives: the paper's estimate.
    # `by_weights`: the estimate by weights; None where there are none.
    # `is_paper`: whether the paper's estimator is asked for.
    low, high = pairs.lower_bound, pairs.upper_bound
    estimate = pairs.estimate
    learned = 0.0 if by_weights is None else (by_weights - estimate) * pairs.number
    left = hidden.shown - hidden.heard * learned
    miss = max(pairs.variance, 0.0) + hidden.variance + left * left
    if is_paper:
        miss += learned * learned
    elif by_weights is not None:
        estimate = by_weights
    # Of numbers whose squares are beyond double precision, only the bounds are known.
    if not (math.isfinite(pairs.variance) and math.isfinite(miss)):
        miss = math.inf
    # Equal bounds may differ by what is rounded.
    error = min(math.sqrt(miss) / pairs.number, max(high - low, 0) / 2)
    return Estimated(min(max(estimate, low), high), error, low, high)


def hide_mixed(variance: float, n_records: int, n_buckets: int, strength: float) -> float:
    """Return what a dependence adds to pairs that are no product of sides.

    `variance`: that of a random matching.
    """
    # A difference of sums may be a little below 0.
    return max(variance, 0.0) * (n_records - n_buckets) * strength**2


class PairSums(NamedTuple):
    """What both sides of pairs of groups weigh, each on its own, in how many buckets."""

    records: SideSums
    values: SideSums
    n_records: int
    n_buckets: int

    @np.errstate(invalid="ignore", over="ignore")  # Sums of infinite numbers are refused later
    def hide(self, strength: float, expected: FloatArray | None = None) -> DependenceEffects:
        """Find what a dependence adds to sums of products of both sides.

        `strength`: the standard deviation of correlations with a half of the records.
        `expected`: sums that a random matching gives, where buckets are drawn from all records.
        """
        n, varying = self.n_records, self.values.varying(self.n_records)
        # Records are drawn for a bucket from others alike: as many as there are vary by this.
        drawn = self.records.inside * n / max(n - self.n_buckets, 1)
        inside, none = self.values.inside, np.zeros_like(varying)
        usual = strength**2 * self._compare_to_half(drawn)
        reach = np.divide(drawn * inside**2, varying, out=none.copy(), where=varying > 0)
        variance = usual * reach
        if expected is None:
            return DependenceEffects(variance, none, none)
        product = expected - self.records.total * self.values.total / n
        between = usual * n * np.maximum(varying - inside, 0.0)
        of_all = between + varying
        heard = np.divide(between, of_all, out=none.copy(), where=of_all > 0)
        shown = np.divide(usual * n * inside * product, of_all, out=none.copy(), where=of_all > 0)
        return DependenceEffects(variance * np.maximum(1 - heard, NEVER_SHOWN), shown, heard)

    def _compare_to_half(self, drawn: FloatArray) -> FloatArray:
        """Return squared correlations with records, as parts of those with a half of all.

        `drawn`: how much as many records vary in what those of the buckets were drawn from.
        """
        # The few differ from others by as much as the many do. So what they have together varies
        # by p (1 - p) with their share p; of numbers that differ from their own mean, by p.
        n, records = self.n_records, self.records
        share, varying = records.number / n, records.varying(n)
        squared_mean = np.divide(
            records.total**2, n * varying, out=np.zeros_like(varying), where=varying > 0
        )
        own = share * np.maximum(1 - (1 - share) * squared_mean, 0.0)
        drawn_part = np.divide(drawn, varying, out=np.zeros_like(varying), where=varying > 0)
        return np.asarray(4 * own * drawn_part)


NEVER_SHOWN: Final = 0.3
"""The part of the variance of dependences that does not show, however much values vary between
buckets: those that meet there are not those that meet inside. Chosen on the tables of
``benchmarks/calibration_tables.py`` that are there for it."""


class DependenceEffects(NamedTuple):
    """What dependences add to the answers of pairs of groups; arrays of shape (n_pairs,)."""

    variance: FloatArray
    shown: FloatArray
    heard: FloatArray

    def at(self, number: int) -> DependenceEffect:
        """Return what is added to one of them."""
        return DependenceEffect(*(float(own[number]) for own in self))


class Margin:
    """What one side has, by group: sums of numbers, and of products over the sizes of buckets."""

    def __init__(self, n_groups: int, *, is_weighed: bool = False) -> None:
        # Of n and n²; where numbers x are added up, of x, their squares, n x and x², too.
        self.sums = np.zeros((6 if is_weighed else 2, n_groups))

    def __add__(self, other: Margin) -> Margin:
        """Add what other buckets have."""
        both = Margin(0)
        both.sums = self.sums + other.sums
        return both

    def add(
        self, size: int | IntArray, group: AnyIntArray, count: AnyIntArray | FloatArray,
        x: FloatArray | None = None, squares: FloatArray | None = None,
    ) -> None:  # fmt: skip
        """Add buckets by how many of a group they have, and what these weigh."""
        n = count.astype(np.float64)
        parts = [n, n * n / size]
        if x is not None and squares is not None:
            parts += [x, squares, n * x / size, x * x / size]
        self.sums += _sum_places(group, parts, self.sums.shape[1])

    def add_counts(self, sizes: Sizes, counts: GroupCounts) -> None:
        """Add buckets by how many slots of each group they have."""
        n_groups, each = self.sums.shape[1], sizes.distinct + 1
        starts = np.cumsum(each) - each
        n_numbers = int(each.sum())  # Of size and n
        if n_groups * n_numbers > _MOST_DENSE:
            is_first = counts.is_first
            self.add(sizes.among(is_first), counts.group[is_first], counts.n[is_first])
            return
        kind = np.min_scalar_type((n_groups + 1) * n_numbers)
        numbers = counts.group.astype(kind) * kind.type(n_numbers) + counts.n
        numbers += sizes.look_up(starts.astype(kind))
        times = np.bincount(numbers.ravel(), minlength=n_groups * n_numbers)
        times = times[: n_groups * n_numbers].reshape(n_groups, n_numbers)
        n = np.arange(n_numbers) - np.repeat(starts, each)
        self.sums += np.stack([times @ n, times @ (n * n / np.repeat(sizes.distinct, each))])

    def of(self, groups: IntArray, means: FloatArray | None = None) -> SideSums:
        """Return what some groups weigh; `means`: averages, the differences from which count."""
        sums = self.sums[:, groups]
        n, nn = sums[:2]
        if len(sums) == 2:
            return SideSums(n, n, nn, n)
        x, squares, nx, xx = sums[2:]
        if means is None:
            return SideSums(x, squares, xx, n)
        return SideSums(
            x - means * n, squares - means * (2 * x - means * n),
            xx - means * (2 * nx - means * nn), n,
        )  # fmt: skip


class Margins:
    """What both sides have, each on its own."""

    def __init__(self, n_groups: tuple[int, int], weighed: Side | None = None) -> None:
        self.records, self.values = (
            Margin(n, is_weighed=side == weighed) for side, n in enumerate(n_groups)
        )
        self.n_records = self.n_buckets = 0

    def __add__(self, other: Margins) -> Margins:
        """Add what other buckets have."""
        both = Margins((0, 0))
        both.records, both.values = self.records + other.records, self.values + other.values
        both.n_records = self.n_records + other.n_records
        both.n_buckets = self.n_buckets + other.n_buckets
        return both

    def of_pairs(self, numbers: IntArray, means: FloatArray | None = None) -> PairSums:
        """Return what pairs of groups have of each side."""
        g, h = np.divmod(numbers, self.values.sums.shape[1])
        return PairSums(
            self.records.of(g, means), self.values.of(h, means), self.n_records, self.n_buckets
        )


class Tally:
    """How many buckets of each size have q matching records and s values, by pairs of groups.

    A count follows from it in whole numbers; tallies of chunks are added.
    """

    # A pair of groups, a size, q and s make a number, in this order.

    def __init__(self, n_groups: tuple[int, int], sizes: AnyIntArray) -> None:
        self.n_groups, self.sizes = n_groups, sizes  # All sizes that buckets have, ascending
        self._starts, self._n_numbers = _place_sizes(sizes)
        self._known = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._more: list[tuple[IntArray, IntArray]] = []

    def begin(self) -> Tally:
        """Return the tally of no bucket."""
        none = copy(self)
        none._known, none._more = (self._known[0][:0], self._known[1][:0]), []
        return none

    def add(self, sizes: Sizes, records: GroupCounts, values: GroupCounts) -> None:
        """Add each pair of a group of records and one of values that a bucket has."""
        # In the fewest bytes, since numbers are calculated for each slot. What is counted 0 times
        # adds nothing to any group.
        (n_records, n_values), each = self.n_groups, sizes.distinct + 1
        starts, n_numbers = _place_sizes(sizes.distinct)
        limit = n_records * n_values * n_numbers
        kind = np.min_scalar_type(4 * limit) if limit < 1 << 30 else np.dtype(np.int64)
        step, start = (sizes.look_up(one.astype(kind)) for one in (each, starts))
        of_records = records.group.astype(kind) * kind.type(n_values * n_numbers)
        of_records += records.n.astype(kind) * step + start
        of_values = values.group.astype(kind) * kind.type(n_numbers) + values.n
        numbers = of_records[:, np.newaxis] + of_values
        if limit > _MOST_DENSE:
            both = records.is_first[:, np.newaxis] & values.is_first
            own, times = np.unique(numbers[both], return_counts=True)
        else:
            of_each = np.bincount(numbers.ravel(), minlength=limit)[:limit]
            own = np.flatnonzero(of_each)
            times = of_each[own]
        pair, rest = np.divmod(own.astype(np.int64), n_numbers)
        moved = self._starts[np.searchsorted(self.sizes, sizes.distinct)] - starts
        rest += moved[np.searchsorted(starts, rest, "right") - 1]
        self._add(pair * self._n_numbers + rest, times)

    def __add__(self, other: Tally) -> Tally:
        """Add the tally of other buckets."""
        both = self.begin()
        for one in (self, other):
            both._add(*one.lines())
        return both

    def _add(self, numbers: IntArray, times: IntArray) -> None:
        self._more.append((numbers, times))
        if sum(more.size for more, _ in self._more) > max(self._known[0].size, _FEW_KEPT):
            self.lines()

    def lines(self) -> tuple[IntArray, IntArray]:
        """Return the numbers of its buckets, ascending, and how many there are of each."""
        if self._more:
            every, of_each = map(np.concatenate, zip(self._known, *self._more, strict=True))
            numbers, at = np.unique(every, return_inverse=True)
            # Of fewer than 2^53, sums are exact.
            times = np.bincount(at, of_each, numbers.size).astype(np.int64)
            self._known, self._more = (numbers, times), []
        return self._known

    def groups(self) -> PairsOfGroups:
        """Return the paper's estimate of each pair of groups, with its certain bounds."""
        numbers, times = self.lines()
        pair, rest = np.divmod(numbers, self._n_numbers)
        which = np.searchsorted(self._starts, rest, "right") - 1
        size = self.sizes[which]
        q, s = np.divmod(rest - self._starts[which], size + 1)
        number, at = np.unique(pair, return_inverse=True)
        sums = [
            np.bincount(at, part, number.size).astype(np.float64)
            for part in times * count_draws(q, s, size)
        ]
        return PairsOfGroups(number, sums[0], sums[1], sums[2], sums[3])


def _place_sizes(sizes: AnyIntArray) -> tuple[IntArray, int]:
    """Return where the numbers of q and s begin for buckets of each size, and how many they are."""
    each = (sizes.astype(np.int64) + 1) ** 2
    return np.cumsum(each) - each, int(each.sum())


def count_type(size: int) -> np.dtype[np.unsignedinteger]:
    """Return the type of the fewest bytes for counts of a bucket's slots."""
    return np.dtype(np.min_scalar_type(size))


def sum_slots(mask: NDArray[Any]) -> AnyIntArray:
    """Count the marked slots of each bucket, whose shape is (size, n_buckets)."""
    return mask.view(np.uint8).sum(axis=0, dtype=count_type(len(mask)))  # type: ignore[no-any-return]


def sort_slots(slots: AnyIntArray) -> AnyIntArray:
    """Sort the slots of each bucket, whose shape is (size, n_buckets)."""
    # Odd-even mergesort (K. E. Batcher, "Sorting networks and their applications", AFIPS 1968)
    # compares the same slots whatever they have, so one operation compares those of all buckets.
    size = len(slots)
    if size > _MOST_COMPARED:
        return np.sort(slots, axis=0)
    ordered = slots.copy()
    for length in (1 << i for i in range((size - 1).bit_length())):
        step = length
        while step:
            for first in range(step % length, size - step, 2 * step):
                for low in range(first, min(first + step, size - step)):
                    if low // (2 * length) == (low + step) // (2 * length):
                        one, other = ordered[low], ordered[low + step]
                        least = np.minimum(one, other)
                        np.maximum(one, other, out=other)
                        one[:] = least
            step //= 2
    return ordered


class GroupCounts(NamedTuple):
    """The groups of each bucket; arrays of shape (n_lines, n_buckets)."""

    group: AnyIntArray
    n: AnyIntArray  # how many slots of the group the bucket has: in one line, in others 0

    @property
    def is_first(self) -> BoolArray:
        """Once for each group that a bucket has."""
        return self.n > 0

    @classmethod
    def of(cls, group: AnyIntArray, n_groups: int) -> Self:
        """Count the slots of each group, given the group of each; `n_groups` is none."""
        size, n_buckets = group.shape
        if n_groups < size:  # a line for each group
            n = np.stack([sum_slots(group == one) for one in range(n_groups)])
            groups = np.arange(n_groups, dtype=group.dtype)[:, np.newaxis]
            return cls(np.broadcast_to(groups, n.shape), n)
        ordered = sort_slots(group)
        goes_on = np.zeros((size, n_buckets), np.bool_)
        np.equal(ordered[1:], ordered[:-1], out=goes_on[1:])
        n = np.ones((size, n_buckets), count_type(size))
        for i in reversed(range(size - 1)):  # up to where the next group begins
            n[i] += n[i + 1] * goes_on[i + 1]
        n *= ~goes_on & (ordered < n_groups)
        return cls(ordered, n)

    @classmethod
    def of_side(cls, mask: AnyIntArray, group: AnyIntArray | None, n_groups: int) -> Self:
        """Count those of a side; where there are no groups, the marked slots are one."""
        if group is not None:
            return cls.of(group, n_groups)
        n = sum_slots(mask)[np.newaxis]
        return cls(np.zeros(n.shape, np.uint8), n)


def weigh_slots(x: FloatArray) -> Weighed:
    """Add up the numbers of each bucket, shape (size, n_buckets); NaN counts as nothing."""
    has = ~np.isnan(x)
    own = np.where(has, x, 0)
    return Weighed(
        has.sum(axis=0).astype(np.float64), own.sum(axis=0), (own * own).sum(axis=0),
        np.maximum(own, 0).sum(axis=0), np.minimum(own, 0).sum(axis=0),
        np.where(has, x, np.inf).min(axis=0), np.where(has, x, -np.inf).max(axis=0),
    )  # fmt: skip


def weigh_groups(
    x: FloatArray, group: AnyIntArray, n_groups: int
) -> tuple[IntArray, IntArray, Weighed]:
    """Add up the numbers of each group of each bucket, both arrays of shape (size, n_buckets).

    Returns the groups that buckets have, the bucket of each, and its sums: arrays (n_lines,).
    """
    n_buckets = x.shape[1]
    has = (group < n_groups) & ~np.isnan(x)
    own = x[has]
    numbers, at = find_places((group * np.int64(n_buckets) + np.arange(n_buckets))[has])
    sums = (np.ones_like(own), own, own * own, np.maximum(own, 0), np.minimum(own, 0))
    totals = _sum_places(at, sums, numbers.size)
    weighed = Weighed._make([*totals, *_find_extremes(at, own, own, numbers.size)])
    return *np.divmod(numbers, n_buckets), weighed


class SumsByGroup:
    """Adds up numbers of several kinds by group, and keeps the extremes of what is summed."""

    def __init__(self, n_kinds: int) -> None:
        self.group = np.zeros(0, np.int64)
        self.totals = np.zeros((n_kinds, 0))
        self.least, self.most = np.zeros(0), np.zeros(0)

    def add(
        self,
        group: AnyIntArray,
        parts: FloatArray,
        least: FloatArray | None = None,
        most: FloatArray | None = None,
    ) -> None:
        """Add parts, shape (n_kinds, n), of these groups."""
        if not group.size:
            return
        new = _place(group, parts, least, most)
        if np.array_equal(new[0], self.group):
            self.totals += new[1]
            self.least, self.most = np.minimum(self.least, new[2]), np.maximum(self.most, new[3])
            return
        known = self.group, self.totals, self.least, self.most
        self.group, self.totals, self.least, self.most = _place(
            *(np.concatenate(both, axis=-1) for both in zip(known, new, strict=True))
        )

    def __add__(self, other: SumsByGroup) -> SumsByGroup:
        """Add the sums of other buckets."""
        both = SumsByGroup(len(self.totals))
        for one in (self, other):
            both.add(one.group, one.totals, one.least, one.most)
        return both


def _place(
    group: AnyIntArray, parts: FloatArray, least: FloatArray | None, most: FloatArray | None
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Add up what is of the same group, and find its extremes, if there are any."""
    groups, at = find_places(group)
    sums, none = _sum_places(at, parts, groups.size), np.zeros(groups.size)
    if least is None or most is None:
        return groups, sums, none, none
    return groups, sums, *_find_extremes(at, least, most, groups.size)


def _find_extremes(
    place: IntArray, least: FloatArray, most: FloatArray, n_places: int
) -> tuple[FloatArray, FloatArray]:
    """Return the least and the greatest number of each place; infinite where there is none."""
    lowest, highest = np.full(n_places, np.inf), np.full(n_places, -np.inf)
    np.minimum.at(lowest, place, least)
    np.maximum.at(highest, place, most)
    return lowest, highest


def _sum_places(
    place: AnyIntArray, parts: Sequence[FloatArray] | FloatArray, n_places: int
) -> FloatArray:
    """Add up the parts of each place, shape (n_kinds, n_places)."""
    if n_places == 1:
        return np.sum(parts, axis=1, keepdims=True)  # type: ignore[no-any-return]
    return np.stack([np.bincount(place, part, n_places) for part in parts])


def find_places(numbers: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Return the numbers that there are, ascending, and where each of them all is among these."""
    most = int(numbers.max(initial=0))
    if most > 32 * numbers.size:
        return np.unique(numbers, return_inverse=True)
    has = np.zeros(most + 1, np.bool_)
    has[numbers] = True
    found = np.flatnonzero(has)
    place = np.empty(most + 1, np.int64)
    place[found] = np.arange(found.size)
    return found, place[numbers]
