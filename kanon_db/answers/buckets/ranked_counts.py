"""Counts, for MIN, MAX and percentiles, the records up to each value, and from each one on.

The values of what is ordered have ranks. One sort of the slots of each bucket by rank tells all of
its counts: these change only at the ranks that the bucket has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray, IntArray
from kanon_db.dataclasses import dataclass
from kanon_db.publications.buckets.tallies import (
    GroupCounts,
    Margin,
    PairsOfGroups,
    PairSums,
    SideSums,
    SumsByGroup,
    count_draws,
)
from kanon_db.publications.codes import Sizes
from kanon_db.query.formulas import Estimated
from kanon_db.query.layout import Side

_KINDS: Final = 4
"""The estimate, its variance, and both bounds."""


class _Lines(NamedTuple):
    """The ranks that each group of a bucket has: a line for each, arrays of shape (n_lines,)."""

    place: IntArray  # The group times the number of ranks, and the rank
    before: FloatArray  # How many slots of the group have lower ranks
    upto: FloatArray  # The same with the rank itself
    every: FloatArray  # How many slots the group has
    bucket: IntArray

    @classmethod
    def of(cls, place: AnyIntArray, n_ranks: int, n_places: int) -> _Lines:
        """Sort the places of slots, shape (size, n_buckets); `n_places` is none."""
        size, n_buckets = place.shape
        ordered = np.sort(place, axis=0)
        group = ordered // n_ranks
        at = np.arange(size)[:, np.newaxis]
        edge = np.ones((1, n_buckets), np.bool_)
        is_first = np.concatenate([edge, ordered[1:] != ordered[:-1]])
        begins = np.concatenate([edge, group[1:] != group[:-1]])
        start, before = (
            np.maximum.accumulate(np.where(mask, at, 0), axis=0) for mask in (begins, is_first)
        )
        ends = np.where(np.concatenate([begins[1:], edge]), at + 1, size)
        end = np.minimum.accumulate(ends[::-1], axis=0)[::-1]
        is_last = np.concatenate([is_first[1:], edge])
        line, bucket = np.nonzero(is_last & (ordered < n_places))
        since = start[line, bucket]
        before, upto, every = (
            (count - since).astype(np.float64)
            for count in (before[line, bucket], line + 1, end[line, bucket])
        )
        return cls(ordered[line, bucket].astype(np.int64), before, upto, every, bucket)


class RankedSums:
    """Adds up how counts change from rank to rank; those of chunks are added."""

    def __init__(self, n_groups: tuple[int, int], n_ranks: int, side: Side = 0) -> None:
        self.n_groups, self.n_ranks, self.side = n_groups, n_ranks, side  # Of what is ordered
        self.n_records = self.n_buckets = 0
        # By pair of groups and rank: how the counts up to a rank, and from it on, change there
        self.pairs = SumsByGroup(2 * _KINDS)
        # By group and rank: how many slots there are, and how the sums of n² / size change
        self.own = SumsByGroup(3)
        self.other = Margin(n_groups[1 - side])

    def begin(self) -> RankedSums:
        """Return the sums of no bucket."""
        return RankedSums(self.n_groups, self.n_ranks, self.side)

    def __add__(self, more: RankedSums) -> RankedSums:
        """Add the sums of other buckets."""
        both = self.begin()
        both.n_records = self.n_records + more.n_records
        both.n_buckets = self.n_buckets + more.n_buckets
        both.pairs, both.own = self.pairs + more.pairs, self.own + more.own
        both.other = self.other + more.other
        return both

    def add(self, sizes: Sizes, place: AnyIntArray, beside: GroupCounts) -> None:
        """Add buckets, given the place of each slot, and the groups of the other side.

        A place is a group times the number of ranks, and a rank.
        """
        lines = _Lines.of(place, self.n_ranks, self.n_groups[self.side] * self.n_ranks)
        size = sizes.of(lines.bucket)
        after, since = lines.every - lines.upto, lines.every - lines.before
        squares = (lines.upto**2 - lines.before**2) / size, (since**2 - after**2) / size
        self.own.add(lines.place, np.stack([lines.upto - lines.before, *squares]))
        is_first = beside.is_first
        self.other.add(sizes.among(is_first), beside.group[is_first], beside.n[is_first])
        other, line = np.nonzero(is_first[:, lines.bucket])
        bucket = lines.bucket[line]
        s = beside.n[other, bucket].astype(np.float64)
        upto, before, after, since = (
            count_draws(one[line], s, sizes.of(bucket))
            for one in (lines.upto, lines.before, after, since)
        )
        number = self._number(lines.place[line], beside.group[other, bucket])
        self.pairs.add(number, np.concatenate([upto - before, since - after]))

    def _number(self, place: IntArray, other: AnyIntArray) -> IntArray:
        """Return the numbers of pairs of groups with their ranks."""
        own, rank = np.divmod(place, self.n_ranks)
        sides = (other, own) if self.side else (own, other)
        pair: IntArray = sides[0].astype(np.int64) * self.n_groups[1] + sides[1]
        return pair * self.n_ranks + rank

    @property
    def numbers(self) -> IntArray:
        """The pairs of groups that have something."""
        return np.unique(self.pairs.group // self.n_ranks)

    def of_pair(self, number: int) -> RanksOfPair:
        """Add up what a pair of groups has below, and above, each boundary at which it changes."""
        g, h = divmod(number, self.n_groups[1])
        group, other = (h, g) if self.side else (g, h)
        steps = [
            _Steps.of(self.pairs, number, self.n_ranks),
            _Steps.of(self.own, group, self.n_ranks),
        ]
        boundaries = np.unique(np.concatenate([[0], *(one.ranks + 1 for one in steps)]))
        (upto, since), (margins, rest) = (one.on_both_sides(boundaries) for one in steps)
        beside = self.other.of(np.full(boundaries.size, other))

        def put_together(pairs: FloatArray, n: FloatArray, packed: FloatArray) -> CountedPair:
            sides = [SideSums(n, n, packed, n), beside]
            if self.side:
                sides.reverse()
            numbers = np.full(boundaries.size, number)
            return (
                PairsOfGroups(numbers, *pairs),
                PairSums(sides[0], sides[1], self.n_records, self.n_buckets),
            )

        return RanksOfPair(
            boundaries,
            put_together(upto[:_KINDS], margins[0], margins[1]),
            put_together(since[_KINDS:], rest[0], rest[2]),
        )


class _Steps(NamedTuple):
    """How the sums of a group change from rank to rank."""

    ranks: IntArray  # Those at which they change, ascending
    changes: FloatArray  # (n_kinds, n_ranks)

    @classmethod
    def of(cls, sums: SumsByGroup, group: int, n_ranks: int) -> _Steps:
        first, end = np.searchsorted(sums.group, [group * n_ranks, (group + 1) * n_ranks])
        return cls(sums.group[first:end] - group * n_ranks, sums.totals[:, first:end])

    def on_both_sides(self, boundaries: IntArray) -> tuple[FloatArray, FloatArray]:
        """Add up the changes below boundaries, and above: (n_kinds, n_boundaries) each."""
        # Differences have to be as exact as sums.
        sums = np.cumsum(np.pad(self.changes, ((0, 0), (1, 0))), axis=1, dtype=np.longdouble)
        upto = sums[:, np.searchsorted(self.ranks, boundaries)]
        return upto.astype(np.float64), (sums[:, -1:] - upto).astype(np.float64)


CountedPair: TypeAlias = tuple[PairsOfGroups, PairSums]
"""What buckets tell of some ranks of a pair of groups, and what both sides have."""


class RanksOfPair(NamedTuple):
    """What a pair of groups has on both sides of its boundaries, by order of value."""

    boundaries: IntArray  # How many ranks are below each, ascending from 0
    below: CountedPair
    above: CountedPair


Judge: TypeAlias = Callable[[CountedPair, Sequence[range]], Callable[[int], Estimated]]
"""Judges, one by one, counts of some ranks of one pair of groups."""


@dataclass(frozen=True)
class RankedCounts:
    """The records of each group by the order of their values."""

    sums: RankedSums
    places: FloatArray  # The values that there are, ascending
    keys: Mapping[str, int]  # The pair of groups of each key
    judge: Judge

    def group(self, key: str) -> RankedPair:
        """Return one of the groups."""
        return RankedPair(self.places, self.sums.of_pair(self.keys[key]), self.judge)


class RankedPair:
    """One pair of groups; see :class:`~kanon_db.answers.value_ranks.RankedGroup`."""

    def __init__(self, places: FloatArray, ranks: RanksOfPair, judge: Judge) -> None:
        self.places, self.boundaries = places, ranks.boundaries
        self.has_least = bool(np.isneginf(places[:1]).any())
        (lower_side, _), (upper_side, _) = ranks.below, ranks.above
        self.bounds = np.stack(
            [lower_side.lower, lower_side.upper, upper_side.lower, upper_side.upper]
        )
        n, ends = places.size, ranks.boundaries.tolist()
        self._below = judge(ranks.below, [range(end) for end in ends])
        self._above = judge(ranks.above, [range(end, n) for end in ends])

    def count(self, boundary: int, *, is_above: bool = False) -> Estimated:
        """Count the records on one side of a boundary."""
        at = int(np.searchsorted(self.boundaries, boundary, "right")) - 1
        return self._above(at) if is_above else self._below(at)

    def expect(self, boundary: int, *, is_above: bool = False) -> float:
        """Return the estimate alone."""
        return self.count(boundary, is_above=is_above).estimate or 0
