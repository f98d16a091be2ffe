"""Counts, for MIN, MAX and percentiles, the records up to each value, and from each one on.

The values of what is ordered have ranks. One sort of the slots of each bucket by rank tells all of
its counts: these change only at the ranks that the bucket has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray, IntArray
from kanon_db.answers.buckets.dependence import PairSums, SideSums
from kanon_db.answers.buckets.tallies import (
    GroupCounts,
    Margin,
    PairsOfGroups,
    SumsByGroup,
    count_draws,
)
from kanon_db.query.expressions import ComparisonOperator
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

    def add(self, size: int, place: AnyIntArray, beside: GroupCounts) -> None:
        """Add buckets, given the place of each slot, and the groups of the other side.

        A place is a group times the number of ranks, and a rank.
        """
        lines = _Lines.of(place, self.n_ranks, self.n_groups[self.side] * self.n_ranks)
        self.n_buckets += place.shape[1]
        self.n_records += place.size
        after, since = lines.every - lines.upto, lines.every - lines.before
        squares = (lines.upto**2 - lines.before**2) / size, (since**2 - after**2) / size
        self.own.add(lines.place, np.stack([lines.upto - lines.before, *squares]))
        self.other.add(size, beside.group[beside.is_first], beside.n[beside.is_first])
        other, line = np.nonzero(beside.is_first[:, lines.bucket])
        bucket = lines.bucket[line]
        s = beside.n[other, bucket].astype(np.float64)
        upto, before, after, since = (
            count_draws(one[line], s, size) for one in (lines.upto, lines.before, after, since)
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

    def between(self, numbers: IntArray, first: int, end: int) -> tuple[PairsOfGroups, PairSums]:
        """Count what has a rank up to an end, or from one on: both cannot be in the middle."""
        is_above = first > 0
        half = slice(_KINDS, None) if is_above else slice(_KINDS)
        pairs = PairsOfGroups(numbers, *self._of_pairs.between(numbers, first, end)[half])
        g, h = np.divmod(numbers, self.n_groups[1])
        own, other = (h, g) if self.side else (g, h)
        n, *packed = self._of_own.between(own, first, end)
        sides = [SideSums(n, n, packed[is_above]), self.other.of(other)]
        if self.side:
            sides.reverse()
        return pairs, PairSums(sides[0], sides[1], self.n_records, self.n_buckets)

    @cached_property
    def _of_pairs(self) -> RankSteps:
        return RankSteps.of(self.pairs, self.n_ranks)

    @cached_property
    def _of_own(self) -> RankSteps:
        return RankSteps.of(self.own, self.n_ranks)


class RankSteps(NamedTuple):
    """What was added up before each group and rank."""

    numbers: IntArray  # Groups times the number of ranks, and ranks, ascending
    before: NDArray[np.longdouble]  # (n_kinds, n + 1): differences have to be as exact as sums
    n_ranks: int

    @classmethod
    def of(cls, sums: SumsByGroup, n_ranks: int) -> RankSteps:
        """Add up, in their order."""
        padded = np.pad(sums.totals, ((0, 0), (1, 0)))
        return cls(sums.group, np.cumsum(padded, axis=1, dtype=np.longdouble), n_ranks)

    def between(self, groups: IntArray, first: int, end: int) -> FloatArray:
        """Return what each group has from a rank on, before another: (n_kinds, n_groups)."""
        start, stop = (
            self.before[:, np.searchsorted(self.numbers, groups * self.n_ranks + rank)]
            for rank in (first, end)
        )
        return (stop - start).astype(np.float64)


Judge: TypeAlias = Callable[[PairsOfGroups, PairSums, range], Callable[[int], Estimated]]
"""Judges, one by one, counts of some ranks."""


@dataclass(frozen=True)
class RankedCounts:
    """Counts the records of each group whose value lies below or above any number."""

    sums: RankedSums
    places: FloatArray  # The values that there are, ascending
    keys: Mapping[str, int]  # The pair of groups of each key
    judge: Judge

    def count(self, operator: ComparisonOperator, number: float) -> Mapping[str, Estimated]:
        """Count the records of each group, by its key, whose value compares like that."""
        is_above = operator in (">", ">=")
        at = int(np.searchsorted(
            self.places, number, "right" if operator in ("<=", ">") else "left"
        ))  # fmt: skip
        ranks = range(at, self.sums.n_ranks) if is_above else range(at)
        return self._count(ranks)

    def totals(self) -> Mapping[str, Estimated]:
        """Count the records of each group that have a value."""
        return self._count(range(self.sums.n_ranks))

    def _count(self, ranks: range) -> Mapping[str, Estimated]:
        numbers = np.array(list(self.keys.values()), np.int64)
        pairs, margins = self.sums.between(numbers, ranks.start, ranks.stop)
        return _JudgedCounts(self._at, self.judge(pairs, margins, ranks))

    @cached_property
    def _at(self) -> Mapping[str, int]:
        return {key: at for at, key in enumerate(self.keys)}


class _JudgedCounts(Mapping[str, Estimated]):
    """Judges a count when somebody asks for it."""

    def __init__(self, at: Mapping[str, int], judge: Callable[[int], Estimated]) -> None:
        self._at, self._judge = at, judge

    def __getitem__(self, key: str) -> Estimated:
        return self._judge(self._at[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)
