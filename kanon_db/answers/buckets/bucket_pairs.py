"""Counts and sums the pairs of a record and a value of its bucket that match a condition.

Which pairs match is an array of bytes, shape (size, size, n_buckets): records, values and some
buckets, padded to the largest. A record, or a value, that matches is a line of the other side's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from math import prod
from operator import and_
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray, IntArray
from kanon_db.answers.buckets.slots import (
    Mask,
    Outcomes,
    Slots,
    along,
    combine_codes,
    combine_truths,
    is_tried_whole,
)
from kanon_db.answers.plan import Plan
from kanon_db.publications.buckets.tallies import count_type, find_places, sum_slots
from kanon_db.publications.codes import BYTES_AT_ONCE, Block, Sizes, StoredColumn
from kanon_db.query import expressions as ex
from kanon_db.transfer.tries import TRUE


class Matches(NamedTuple):
    """The pairs of some buckets that match; arrays of shape (n_pairs,)."""

    record: IntArray  # The slots of both, and their bucket among these
    value: IntArray
    bucket: IntArray
    group: IntArray
    x: FloatArray  # What is summed; empty where nothing is
    sizes: Sizes  # Of the buckets


class PairSlots:
    """The pairs of slots of some buckets."""

    def __init__(self, slots: Slots, plan: Plan, block: Block) -> None:
        self._slots, self._plan, self._block = slots, plan, block
        self.sizes, self.n_buckets = block.sizes, block.n_buckets
        self._codes: dict[str, AnyIntArray] = {}

    def where(self, condition: ex.Expression | None, wanted: int = TRUE) -> Mask:
        """Mark the pairs for which a condition is true, or false."""
        if condition is None:
            return np.full((1, 1, 1), int(wanted == TRUE), np.uint8)
        side = self._plan.side(condition)
        if side is not None:
            return along(self._block.slots(self._slots.where(condition, wanted)), side)  # type: ignore[no-any-return]
        if is_tried_whole(condition):
            outcomes = self._slots.outcomes.truth(condition)
            return self.look_up(outcomes, (outcomes.answers == wanted).astype(np.uint8))
        return combine_truths(condition, wanted, self.where)  # type: ignore[no-any-return]

    def matching(self) -> Mask:
        """Mark the pairs that meet all conditions of the plan."""
        plan, size = self._plan, self.sizes.largest
        conditions = {plan.records, plan.values, *plan.pairs}
        hits = [*map(self.where, conditions - {None} or [None]), *self._are_there()]
        return np.broadcast_to(reduce(and_, hits), (size, size, self.n_buckets))

    def _are_there(self) -> list[Mask]:
        """Mark the pairs of slots that a bucket has, if others have more."""
        if self.sizes.which is None:
            return []
        is_there = np.arange(self.sizes.largest)[:, np.newaxis] < self.sizes.of(slice(None))
        return [along(is_there.view(np.uint8), 0), along(is_there.view(np.uint8), 1)]

    def look_up(self, outcomes: Outcomes, table: NDArray[Any]) -> NDArray[Any]:
        """Give each pair its element of a table of what was tried."""
        columns = [self._slots.outcomes.columns[name] for name in outcomes.columns]
        codes = [self._codes_of(c) for c in columns]
        number = combine_codes(codes, [c.n_values for c in columns])
        return outcomes._replace(answers=table).of(number)  # type: ignore[no-any-return]

    def choose(
        self, hits: Mask, keys: Sequence[Outcomes], summed: Outcomes | None
    ) -> Iterator[Matches]:
        """Yield the pairs that match and have a number, if one is summed, some buckets at a time.

        `keys`: what makes their groups.
        """
        n_groups, size = prod(len(key.texts) for key in keys), self.sizes.largest
        of_bucket = hits.sum(axis=(0, 1), dtype=count_type(size**2)).astype(np.int64)
        # Each group of a bucket has a number for each slot.
        n_bytes = 8 * np.cumsum(of_bucket + size * np.minimum(of_bucket, n_groups))
        ends = np.searchsorted(n_bytes, np.arange(BYTES_AT_ONCE, n_bytes[-1], BYTES_AT_ONCE))
        for first, end in zip([0, *ends], [*ends, self.n_buckets], strict=True):
            some = hits[..., first:end]
            hit = np.flatnonzero(some.view(np.bool_))
            record, value, bucket = np.unravel_index(hit, some.shape)
            places = record, value, bucket + first
            group = np.zeros(record.size, np.int64)
            for key in keys:
                group = group * len(key.texts) + self._at(key, places)
            x = np.zeros(0) if summed is None else self._at(summed, places)
            has = slice(None) if summed is None else ~np.isnan(x)
            if group[has].size:
                sizes = self.sizes.part(slice(first, end))
                yield Matches(record[has], value[has], bucket[has], group[has], x[has], sizes)

    def _codes_of(self, column: StoredColumn) -> AnyIntArray:
        if column.name not in self._codes:
            own = self._block.slots(self._slots.codes(column.name))
            self._codes[column.name] = along(own, column.side)
        return self._codes[column.name]

    def _at(self, outcomes: Outcomes, places: tuple[IntArray, IntArray, IntArray]) -> NDArray[Any]:
        """Return what was tried for some pairs."""
        record, value, bucket = places
        codes: list[AnyIntArray] = []
        columns = [self._slots.outcomes.columns[name] for name in outcomes.columns]
        for column in columns:
            own = self._codes_of(column)
            codes.append(own[0, value, bucket] if column.side else own[record, 0, bucket])
        if not columns:
            return np.full(record.size, outcomes.answers.ravel()[0])
        return outcomes.of(combine_codes(codes, [c.n_values for c in columns]))  # type: ignore[no-any-return]


def count_lines(
    of_records: AnyIntArray, of_values: AnyIntArray, size: int | IntArray
) -> FloatArray:
    """Count what lines of buckets allow.

    Parameters
    ----------
    of_records, of_values : ndarray of unsigned integers, shape (size, n_buckets)
        With how many values each record matches, and with how many records each value.
    size : int, or ndarray of int64, shape (n_buckets,)
        That of all buckets, or of each; slots beyond it match nothing.

    Returns
    -------
    ndarray of float64, shape (4, n_buckets)
        The estimate, its variance, and both bounds.

    Notes
    -----
    Of t pairs that match, t / size are expected to be real. The variance is that of Hoeffding 1951.
    Every cover of the pairs by records and values (König) bounds their number from above, and a
    cover of the other pairs from below. See docs/understand/estimation.md.
    """
    pairs, squares, least, most = _count_pairs(of_records, of_values, size)
    variance = _spread(pairs, squares, pairs * pairs, size)
    return np.stack([pairs / size, variance, least, most])


def count_all(hits: Mask, sizes: Sizes) -> FloatArray:
    """Count the pairs of all buckets together; see :func:`count_lines`."""
    of_records, of_values = (hits.sum(axis=axis, dtype=count_type(len(hits))) for axis in (1, 0))
    has = np.flatnonzero(of_records.any(axis=0))  # Buckets without a pair add nothing.
    if 2 * has.size < of_records.shape[1]:
        of_records, of_values = (of.take(has, axis=1) for of in (of_records, of_values))
        sizes = sizes.part(has)
    pairs, squares, least, most = _count_pairs(of_records, of_values, sizes.of(slice(None)))
    t, size = sizes.sums(pairs), sizes.distinct
    variance = _spread(t, sizes.sums(squares), sizes.sums(np.square(pairs)), size)
    return np.array([(t / size).sum(), variance.sum(), least.sum(), most.sum()])


def _count_pairs(
    of_records: AnyIntArray, of_values: AnyIntArray, size: int | IntArray
) -> tuple[FloatArray, FloatArray, AnyIntArray, AnyIntArray]:
    """Return the pairs of each bucket, the sum of the squares of its lines, and both bounds."""
    n: AnyIntArray = np.asarray(size, of_records.dtype)  # or comparisons would be of more bytes
    q, s = of_records > 0, of_values > 0
    q_any, s_any = sum_slots(q), sum_slots(s)
    q_full, s_full = (sum_slots(of == n) for of in (of_records, of_values))
    q_all, s_all = sum_slots((of_records == s_any) & q), sum_slots((of_values == q_any) & s)
    q_rest, s_rest = sum_slots(of_records > s_full), sum_slots(of_values > q_full)
    kind = np.min_scalar_type(-2 * len(of_records) - 1)
    q_any, s_any, q_full, s_full, n = (of.astype(kind) for of in (q_any, s_any, q_full, s_full, n))
    least = np.maximum(np.maximum(q_full, s_full), np.maximum(q_any + s_all, q_all + s_any) - n)
    most = np.minimum(np.minimum(q_any, s_any), np.minimum(q_full + s_rest, s_full + q_rest))
    pairs = of_records.sum(axis=0, dtype=count_type(len(of_records) ** 2)).astype(np.float64)
    return pairs, _sum_squares(of_records) + _sum_squares(of_values), least, most


class _GroupLines:
    """The lines of each group and bucket that have a pair."""

    def __init__(self, matches: Matches) -> None:
        n_buckets = int(matches.bucket.max(initial=0)) + 1
        number, self.place = find_places(matches.group * n_buckets + matches.bucket)
        self.group, bucket = np.divmod(number, n_buckets)
        self.sizes = matches.sizes.of(bucket)
        self._size = matches.sizes.largest
        self.lines = [slot * number.size + self.place for slot in (matches.record, matches.value)]

    def count(self, line: IntArray) -> AnyIntArray:
        """Count the pairs of each line, shape (size, n_places)."""
        counts = np.bincount(line, minlength=self._size * self.group.size)
        return counts.astype(count_type(self._size)).reshape(self._size, -1)

    def sum(self, line: IntArray, numbers: FloatArray) -> FloatArray:
        """Add up numbers of the pairs of each line, shape (size, n_places)."""
        summed = np.bincount(line, numbers, self._size * self.group.size).astype(np.float64)
        return summed.reshape(self._size, -1)

    def extremes(self, line: IntArray, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the least and the greatest number of each line; infinite where there is none."""
        least = np.full(self._size * self.group.size, np.inf)
        most = -least
        np.minimum.at(least, line, x)
        np.maximum.at(most, line, x)
        shape = self._size, -1
        return least.reshape(shape), most.reshape(shape)


def count_groups(matches: Matches) -> tuple[IntArray, FloatArray]:
    """Count the pairs of each group and bucket: the groups, and :func:`count_lines` of each."""
    lines = _GroupLines(matches)
    of_records, of_values = map(lines.count, lines.lines)
    return lines.group, count_lines(of_records, of_values, lines.sizes)


def rank_groups(matches: Matches, n_ranks: int) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield groups times the number of ranks, plus a rank, and how counts change there: (8, n)."""
    lines, x = _GroupLines(matches), matches.x.astype(np.int64)
    # The ranks of each place, ascending, have numbers from 0 on: those of all places are taken at
    # once.
    distinct, at = np.unique(lines.place * n_ranks + x, return_inverse=True)
    place, rank = np.divmod(distinct, n_ranks)
    step = np.arange(distinct.size) - np.searchsorted(place, place)
    order = np.argsort(step[at], kind="stable")
    ends = np.searchsorted(step[at][order], np.arange(1, step.max(initial=-1) + 2))

    sizes = np.broadcast_to(lines.sizes, lines.group.shape)

    def count(of_lines: AnyIntArray, size: IntArray) -> FloatArray:
        of_records, of_values = of_lines
        return count_lines(of_records, of_values, size)

    every = np.stack([lines.count(line) for line in lines.lines])
    upto = np.zeros_like(every)
    before, after = count(upto, sizes), count(every, sizes)
    for number, own in enumerate(np.split(order, ends[:-1])):
        upto += np.stack([lines.count(line[own]) for line in lines.lines])
        here = np.flatnonzero(step == number)
        places = place[here]
        now, rest = (count(one[..., places], sizes[places]) for one in (upto, every - upto))
        parts = np.concatenate([now - before[:, places], after[:, places] - rest])
        yield lines.group[places] * n_ranks + rank[here], parts
        before[:, places], after[:, places] = now, rest


def sum_groups(matches: Matches) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Sum what the pairs of each group and bucket have.

    Returns the groups, the nine totals of :func:`.tallies.summed`, and the extreme values.
    """
    # A bound of a bucket's sum is what each record can add at most, or what each value can; the
    # tighter one is taken.
    lines, x = _GroupLines(matches), matches.x
    size = lines.sizes
    sums: list[list[FloatArray]] = []
    for line in lines.lines:
        tx, txx = lines.sum(line, x), lines.sum(line, x * x)
        tc = lines.count(line).astype(np.float64)
        least, most = lines.extremes(line, x)
        is_full = tc == size
        low = np.where(is_full, least, np.minimum(least, 0))
        high = np.where(is_full, most, np.maximum(most, 0))
        parts = (tx, tc, txx, tx * tx, tc * tc, tx * tc, low, high, is_full, tc > 0)
        sums.append([part.sum(axis=0) for part in parts])
    (sx, sc, sxx, *own), other = sums[0], sums[1][3:]
    lxx, lcc, lxc = (a + b for a, b in zip(own[:3], other[:3], strict=True))
    (t_low, c_low), (t_high, c_high) = (
        (choose(own[at], other[at]), choose(own[at + 2], other[at + 2]))
        for at, choose in ((3, np.maximum), (4, np.minimum))
    )
    totals = np.stack(
        [
            sx / size, sc / size, _spread(sxx, lxx, sx * sx, size),
            _spread(sc, lcc, sc * sc, size), _spread(sx, lxc, sx * sc, size),
            t_low, t_high, c_low, c_high,
        ]
    )  # fmt: skip
    n_places = lines.group.size
    least, most = np.full(n_places, np.inf), np.full(n_places, -np.inf)
    np.minimum.at(least, lines.place, x)
    np.maximum.at(most, lines.place, x)
    return lines.group, totals, least, most


def _sum_squares(of_lines: AnyIntArray) -> FloatArray:
    kind = count_type(len(of_lines) ** 3)
    squares: FloatArray = (
        np.square(of_lines.astype(kind)).sum(axis=0, dtype=kind).astype(np.float64)
    )
    return squares


def _spread(pairs: Any, of_lines: Any, product: Any, size: Any) -> FloatArray:
    """Return a variance, or the covariance, over random matchings."""
    variance: FloatArray = (pairs - of_lines / size + product / (size * size)) / np.maximum(
        size - 1, 1
    )
    return variance
