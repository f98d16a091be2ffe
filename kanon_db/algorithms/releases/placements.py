"""Releases as a reader of all of them sees them: who is in which bucket, and what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, CodeArray, IntArray
from kanon_db.errors import InvalidParameterError

NOWHERE: Final = -1
"""The bucket of people who are in other releases only."""


@dataclass(frozen=True, eq=False)
class Release:
    """One release: a partition of people into buckets, with the values that each bucket holds.

    A class of generalized or suppressed rows is a bucket, too.

    Parameters
    ----------
    tuple_of, bucket_of, people : ndarray of int, shape (n_placements,)
        How many people of a tuple, a combination of quasi-identifiers, are in a bucket, at least 1.
        Each pair of a tuple and a bucket once; buckets are numbered from 0.
    bucket, value, count : ndarray of int, shape (n_cells,)
        How often a value occurs in a bucket, at least 1. Each pair once; values have the same codes
        in all releases.

    Notes
    -----
    A bucket may hold more values than people: the others are counterfeits, which belong to nobody.
    """

    tuple_of: AnyIntArray
    bucket_of: AnyIntArray
    people: AnyIntArray
    bucket: AnyIntArray
    value: AnyIntArray
    count: AnyIntArray

    @classmethod
    def of(cls, tuples: AnyIntArray, buckets: AnyIntArray, values: AnyIntArray) -> Self:
        """Publish records, whose tuples, buckets and values are given, shape (n_records,).

        Examples
        --------
        >>> release = Release.of(np.array([4, 4, 7]), np.array([0, 0, 0]), np.array([1, 2, 1]))
        >>> release.tuple_of.tolist(), release.people.tolist()
        ([4, 7], [2, 1])
        >>> release.value.tolist(), release.count.tolist()
        ([1, 2], [2, 1])
        """
        placed, people = _counted(tuples, buckets)
        cells, count = _counted(buckets, values)
        return cls(placed[0], placed[1], people, cells[0], cells[1], count)

    @property
    def n_buckets(self) -> int:
        """The number of buckets."""
        return max(int(self.bucket_of.max(initial=-1)), int(self.bucket.max(initial=-1))) + 1

    def numbers(self, n_tuples: int) -> IntArray:
        """Return how many people of each tuple are in the release, shape (n_tuples,)."""
        return np.bincount(self.tuple_of, self.people, minlength=n_tuples).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Releases:
    """Several releases, with everything that is known of a tuple in one place.

    Parameters
    ----------
    n_tuples, n_values, n_releases : int
        Tuples from ``n_tuples`` on are counterfeits.
    first_placement : ndarray of int64, shape (n_all + 1,)
        Where the placements of each tuple begin, those of counterfeits included.
    release, bucket, people : ndarray of int32, shape (n_placements,)
        By tuple, and by release in each tuple. Buckets of all releases are numbered together. In
        :data:`NOWHERE` are those people of a tuple who are in other releases only; a release in
        which none of them are has no placement.
    first_cell : ndarray of int64, shape (n_buckets + 1,)
        Where the cells of each bucket begin.
    value, count : ndarray of int32, shape (n_cells,)
        By bucket; values ascend in each.
    first_member, member : ndarray of int64, shape (n_buckets + 1,), and int32
        Placements in each bucket.
    tuple_of : ndarray of int32, shape (n_placements,)
    total : ndarray of int64, shape (n_all,)
        People of each tuple: the most that are in one release.

    Notes
    -----
    Equal quasi-identifiers are the same people, as far as numbers allow: that is how a reader
    links releases, and what every result is about. If somebody left and somebody else with the
    same quasi-identifiers came, readers are misled.
    """

    n_tuples: int
    n_values: int
    n_releases: int
    first_placement: IntArray
    release: CodeArray
    bucket: CodeArray
    people: CodeArray
    first_cell: IntArray
    value: CodeArray
    count: CodeArray
    first_member: IntArray
    member: CodeArray
    tuple_of: CodeArray
    total: IntArray

    @classmethod
    def of(cls, releases: Sequence[Release], n_tuples: int, n_values: int) -> Self:
        """Put releases together.

        Raises
        ------
        InvalidParameterError
            If a bucket holds fewer values than people.

        Examples
        --------
        >>> first = Release.of(np.array([0, 1]), np.array([0, 0]), np.array([0, 1]))
        >>> second = Release.of(np.array([1]), np.array([0]), np.array([1]))
        >>> both = Releases.of([first, second], 2, 2)
        >>> both.first_placement.tolist(), both.bucket.tolist(), both.total.tolist()
        ([0, 1, 3], [0, 0, 1], [1, 1])
        """
        offsets = np.cumsum([0] + [one.n_buckets for one in releases])
        parts: list[tuple[AnyIntArray, ...]] = []
        counterfeit = n_tuples
        for number, (one, offset) in enumerate(zip(releases, offsets[:-1].tolist(), strict=True)):
            spare = np.bincount(one.bucket, one.count, one.n_buckets)
            spare = (spare - np.bincount(one.bucket_of, one.people, one.n_buckets)).astype(np.int64)
            if (spare < 0).any():
                raise InvalidParameterError(
                    "a bucket holds fewer values than people",
                    detail=f"release {number + 1}: {int((spare < 0).sum()):,} such buckets",
                )
            its_own = np.flatnonzero(spare)
            theirs = np.arange(counterfeit, counterfeit + its_own.size)
            counterfeit += its_own.size
            parts.append((
                np.concatenate([one.tuple_of, theirs]),
                np.full(one.tuple_of.size + its_own.size, number),
                np.concatenate([one.bucket_of, its_own]) + offset,
                np.concatenate([one.people, spare[its_own]]),
            ))  # fmt: skip
        tuple_of, release, bucket, people = _joined(parts, counterfeit, len(releases))
        cells = [
            (one.bucket + k, one.value, one.count)
            for one, k in zip(releases, offsets[:-1], strict=True)
        ]
        cell_bucket, value, count = (
            np.concatenate([part[k] for part in cells] or [np.empty(0, np.int64)]) for k in range(3)
        )
        order = np.lexsort((value, cell_bucket))
        here = np.flatnonzero(bucket != NOWHERE)
        first_member, at = _grouped(bucket[here], int(offsets[-1]))
        total = np.zeros(counterfeit, dtype=np.int64)
        # Each release has the same number, those nowhere included.
        is_first = np.diff(tuple_of, prepend=-1) != 0
        of_first = release == np.repeat(
            release[is_first], np.diff(np.append(np.flatnonzero(is_first), tuple_of.size))
        )
        np.add.at(total, tuple_of[of_first], people[of_first])
        return cls(
            n_tuples=n_tuples,
            n_values=n_values,
            n_releases=len(releases),
            first_placement=_starts(tuple_of, counterfeit),
            release=release.astype(np.int32),
            bucket=bucket.astype(np.int32),
            people=people.astype(np.int32),
            first_cell=_starts(cell_bucket[order], int(offsets[-1])),
            value=value[order].astype(np.int32),
            count=count[order].astype(np.int32),
            first_member=first_member,
            member=here[at].astype(np.int32),
            tuple_of=tuple_of.astype(np.int32),
            total=total,
        )

    @property
    def n_all(self) -> int:
        """The number of tuples, counterfeits included."""
        return int(self.total.size)

    @property
    def n_buckets(self) -> int:
        """The number of buckets of all releases."""
        return int(self.first_cell.size) - 1

    @property
    def n_people(self) -> int:
        """The number of people, without counterfeits."""
        return int(self.total[: self.n_tuples].sum())

    @property
    def is_person(self) -> BoolArray:
        """Which tuples are people in some release, not counterfeits, shape (n_all,)."""
        return (np.arange(self.n_all) < self.n_tuples) & (self.total > 0)


def _counted(first: AnyIntArray, second: AnyIntArray) -> tuple[tuple[IntArray, IntArray], IntArray]:
    """Return the distinct pairs, ascending, and how often each occurs."""
    width = int(second.max(initial=0)) + 1
    keys = np.sort(first.astype(np.int64) * width + second)
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return (keys[starts] // width, keys[starts] % width), np.diff(starts, append=keys.size)


def _joined(
    parts: list[tuple[AnyIntArray, ...]], n_all: int, n_releases: int
) -> tuple[AnyIntArray, AnyIntArray, AnyIntArray, AnyIntArray]:
    """Sort placements by tuple and release, with those who are nowhere in a release."""
    numbers = np.zeros((n_releases, n_all), dtype=np.int32)
    for number, (tuple_of, _, _, people) in enumerate(parts):
        numbers[number] = np.bincount(tuple_of, people, n_all)
    most = numbers.max(axis=0, initial=0)
    for number in range(n_releases):
        some = np.flatnonzero((numbers[number] > 0) & (numbers[number] < most))
        absent = most[some] - numbers[number, some]
        parts.append((some, np.full(some.size, number), np.full(some.size, NOWHERE), absent))
    tuple_of, release, bucket, people = (
        np.concatenate([part[k] for part in parts] or [np.empty(0, np.int64)]) for k in range(4)
    )
    order = np.argsort(tuple_of.astype(np.int64) * n_releases + release, kind="stable")
    return tuple_of[order], release[order], bucket[order], people[order]


def _starts(ascending: AnyIntArray, n: int) -> IntArray:
    """Return where each number from 0 to n begins."""
    return np.append(0, np.cumsum(np.bincount(ascending, minlength=n))).astype(np.int64)


def _grouped(numbers: AnyIntArray, n: int) -> tuple[IntArray, IntArray]:
    """Return where each number begins if they are sorted, and their positions in that order."""
    return _starts(numbers, n), np.argsort(numbers, kind="stable")
