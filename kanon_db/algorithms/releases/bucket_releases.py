"""Describes releases as a reader of all of them sees them: who is in which bucket.

It derives the possible values of each tuple (intersection attack), the components of buckets that
share people, and whether one release only coarsens another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Self

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, CodeArray, IntArray, Integer
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, kernel
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError

NOWHERE: Final = -1
"""The bucket of people who are in other releases only."""


@dataclass(frozen=True, eq=False)
class BucketRelease:
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
        """Make a release of records, given their tuples, buckets and values, shape (n_records,).

        Examples
        --------
        >>> buckets, values = np.array([0, 0, 0]), np.array([1, 2, 1])
        >>> release = BucketRelease.of(np.array([4, 4, 7]), buckets, values)
        >>> release.tuple_of.tolist(), release.people.tolist()
        ([4, 7], [2, 1])
        >>> release.value.tolist(), release.count.tolist()
        ([1, 2], [2, 1])
        """
        placed, people = _count_pairs(tuples, buckets)
        cells, count = _count_pairs(buckets, values)
        return cls(placed[0], placed[1], people, cells[0], cells[1], count)

    @property
    def n_buckets(self) -> int:
        """The number of buckets."""
        return max(int(self.bucket_of.max(initial=-1)), int(self.bucket.max(initial=-1))) + 1


@dataclass(frozen=True, eq=False)
class BucketReleases:
    """Several releases, indexed by tuple and by bucket.

    Parameters
    ----------
    n_tuples, n_values, n_releases : int
        Tuples from ``n_tuples`` on are counterfeits.
    first_placement : ndarray of int64, shape (n_all + 1,)
        Where the placements of each tuple begin, those of counterfeits included.
    release, bucket, people : ndarray of int32, shape (n_placements,)
        By tuple, and by release in each tuple. Buckets of all releases are numbered together. The
        people of a tuple who are in other releases only are in the bucket :data:`NOWHERE`; a tuple
        has no placement in a release without any of its people.
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
    People with equal quasi-identifiers count as the same, as far as numbers allow: so a reader
    links releases, and all results assume it. Readers are misled if somebody left and somebody else
    with the same quasi-identifiers came.
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
    def of(cls, releases: Sequence[BucketRelease], n_tuples: int, n_values: int) -> Self:
        """Put releases together.

        Raises
        ------
        InvalidParameterError
            If a bucket holds fewer values than people.

        Examples
        --------
        >>> first = BucketRelease.of(np.array([0, 1]), np.array([0, 0]), np.array([0, 1]))
        >>> second = BucketRelease.of(np.array([1]), np.array([0]), np.array([1]))
        >>> both = BucketReleases.of([first, second], 2, 2)
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
        tuple_of, release, bucket, people = _sort_placements(parts, counterfeit, len(releases))
        cells = [
            (one.bucket + k, one.value, one.count)
            for one, k in zip(releases, offsets[:-1], strict=True)
        ]
        cell_bucket, value, count = (
            np.concatenate([part[k] for part in cells] or [np.empty(0, np.int64)]) for k in range(3)
        )
        order = np.lexsort((value, cell_bucket))
        here = np.flatnonzero(bucket != NOWHERE)
        first_member, at = _group(bucket[here], int(offsets[-1]))
        total = np.zeros(counterfeit, dtype=np.int64)
        # Each release has the same number of people, those nowhere included.
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


def _count_pairs(
    first: AnyIntArray, second: AnyIntArray
) -> tuple[tuple[IntArray, IntArray], IntArray]:
    """Return the distinct pairs, ascending, and how often each occurs."""
    width = int(second.max(initial=0)) + 1
    keys = np.sort(first.astype(np.int64) * width + second)
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return (keys[starts] // width, keys[starts] % width), np.diff(starts, append=keys.size)


def _sort_placements(
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


def _group(numbers: AnyIntArray, n: int) -> tuple[IntArray, IntArray]:
    """Return where each number begins if they are sorted, and their positions in that order."""
    return _starts(numbers, n), np.argsort(numbers, kind="stable")


PER_BEAT: Final = 20_000
"""Tuples or buckets for which a compiled loop runs without a beat."""


@dataclass(frozen=True, eq=False)
class PossibleValues:
    """The values that the people of each tuple may have.

    Parameters
    ----------
    first : ndarray of int64, shape (n_all + 1,)
        Where the values of each tuple begin.
    value : ndarray of int32, shape (n_candidates,)
        Ascending for each tuple.
    number : ndarray of int64, shape (n_all,)
        How many of the values are left; these come first.
    """

    first: IntArray
    value: CodeArray
    number: IntArray


def possible_values(releases: BucketReleases, pulse: Pulse = UNLIMITED) -> PossibleValues:
    """Intersect releases: list the values of each tuple that all its releases allow.

    Exact for a reader who only intersects. A person of a tuple may be in any of its buckets, so a
    release allows all values of these. A release with fewer people of the tuple than another one
    says nothing about the missing ones.

    Parameters
    ----------
    releases : BucketReleases
    pulse : Pulse

    Returns
    -------
    PossibleValues
        If a tuple has none, its releases contradict each other: its people changed.

    Notes
    -----
    **Source:** S. R. Ganta, S. P. Kasiviswanathan, A. Smith, *Composition attacks and auxiliary
    information in data privacy*, KDD 2008, the intersection attack. Cost: one pass over the cells
    of each placement.

    Examples
    --------
    >>> from kanon_db.algorithms.releases.bucket_releases import BucketRelease
    >>> one = BucketRelease.of(np.array([0, 1, 2]), np.array([0, 0, 0]), np.array([0, 1, 2]))
    >>> two = BucketRelease.of(np.array([0, 3]), np.array([0, 0]), np.array([2, 3]))
    >>> found = possible_values(BucketReleases.of([one, two], 4, 4))
    >>> found.number.tolist(), found.value[:1].tolist()
    ([1, 3, 3, 2], [2])
    """
    number = np.zeros(releases.n_all, dtype=np.int64)
    mark = np.zeros(releases.n_values, dtype=np.int64)
    nothing = np.zeros(1, dtype=np.int32)

    def listed(first: IntArray, value: CodeArray, *, is_kept: bool) -> None:
        for low, high in in_steps(releases.n_all, pulse):
            _list(
                low, high, is_kept, first, value, number, mark, releases.first_placement,
                releases.release, releases.bucket, releases.first_cell, releases.value,
            )  # fmt: skip
        mark[:] = 0

    listed(np.zeros(1, dtype=np.int64), nothing, is_kept=False)
    first = np.append(0, np.cumsum(number))
    value = np.empty(int(first[-1]), dtype=np.int32)
    listed(first, value, is_kept=True)
    sort_each(first, value)
    return PossibleValues(first, value, number)


def in_steps(n: int, pulse: Pulse) -> Iterator[tuple[int, int]]:
    """Divide a compiled loop into parts, with a beat before each."""
    for low in range(0, n, PER_BEAT):
        pulse.beat()
        yield low, min(low + PER_BEAT, n)


@kernel
def _list(
    low: Integer,
    high: Integer,
    is_kept: bool,
    first: IntArray,
    value: CodeArray,
    number: IntArray,
    mark: IntArray,
    first_placement: IntArray,
    release: CodeArray,
    bucket: CodeArray,
    first_cell: IntArray,
    cell_value: CodeArray,
) -> None:
    """Count or list the candidates of tuples; a value's mark counts the releases that allow it."""
    n_marks = 0
    for v in range(mark.size):
        n_marks = max(n_marks, mark[v])
    for t in range(low, high):
        base, n_before, n_found = n_marks, 0, 0
        start, end = first_placement[t], first_placement[t + 1]
        while start < end:
            stop = start + 1
            constrains = bucket[start] != NOWHERE
            while stop < end and release[stop] == release[start]:
                constrains &= bucket[stop] != NOWHERE
                stop += 1
            if constrains:
                n_found = 0
                for p in range(start, stop):
                    for c in range(first_cell[bucket[p]], first_cell[bucket[p] + 1]):
                        v = cell_value[c]
                        allowed = mark[v] <= base if n_before == 0 else mark[v] == base + n_before
                        if allowed:
                            mark[v] = base + n_before + 1
                            if is_kept and n_found < first[t + 1] - first[t]:
                                value[first[t] + n_found] = v
                            n_found += 1
                n_before += 1
            start = stop
        number[t] = n_found
        n_marks = base + n_before


@kernel
def sort_each(first: IntArray, value: CodeArray) -> None:
    """Sort the values of each tuple."""
    for t in range(first.size - 1):
        value[first[t] : first[t + 1]].sort()


def coarsening(fine: BucketRelease, coarse: BucketRelease) -> IntArray | None:
    """Return the coarse bucket of each fine bucket, if one release only merges buckets of another.

    None if a tuple is in several fine buckets: it may have been drawn again, which tells more.
    """
    n_tuples = 1 + max(
        int(one.tuple_of.max(initial=-1)) for one in (fine, coarse)
    )  # fmt: skip
    if (np.bincount(fine.tuple_of, minlength=n_tuples) > 1).any():
        return None
    place = np.full(n_tuples, -1, dtype=np.int64)
    place[coarse.tuple_of] = coarse.bucket_of
    merged_into = np.full(fine.n_buckets, -1, dtype=np.int64)
    merged_into[fine.bucket_of] = place[fine.tuple_of]
    if (merged_into < 0).any():
        return None
    width = max(coarse.n_buckets, 1)
    keys = fine.tuple_of.astype(np.int64) * width + merged_into[fine.bucket_of]
    own, inverse = np.unique(keys, return_inverse=True)
    theirs = coarse.tuple_of.astype(np.int64) * width + coarse.bucket_of
    order = np.argsort(theirs)
    people = np.bincount(inverse, fine.people, own.size).astype(np.int64)
    if not np.array_equal(own, theirs[order]):
        return None
    return merged_into if np.array_equal(people, coarse.people[order]) else None


def holds_the_same(fine: BucketRelease, coarse: BucketRelease, bucket: IntArray) -> bool:
    """Whether each coarse bucket holds the values of its fine buckets, and no others."""
    width = 1 + max(int(one.value.max(initial=-1)) for one in (fine, coarse))
    sums = []
    for one, buckets in ((fine, bucket[fine.bucket]), (coarse, coarse.bucket)):
        keys, inverse = np.unique(buckets.astype(np.int64) * width + one.value, return_inverse=True)
        sums.append((keys, np.bincount(inverse, one.count, keys.size)))
    return all(np.array_equal(own, theirs) for own, theirs in zip(*sums, strict=True))


def components_of(releases: BucketReleases, links: BoolArray) -> IntArray:
    """Find the connected components of buckets linked by tuples."""
    roots = _roots(releases.n_buckets, releases.first_placement, releases.bucket, links)
    return (np.cumsum(roots == np.arange(roots.size)) - 1)[roots]


@kernel
def _roots(
    n_buckets: int, first_placement: IntArray, bucket: CodeArray, links: BoolArray
) -> IntArray:
    """Return the lowest bucket of each bucket's component."""
    root = np.arange(n_buckets)
    for t in range(first_placement.size - 1):
        a = -1
        for p in range(first_placement[t], first_placement[t + 1]):
            if not links[p]:
                continue
            b = bucket[p]
            while root[b] != b:
                root[b] = root[root[b]]
                b = root[b]
            if a >= 0 and a != b:
                a, b = min(a, b), max(a, b)
                root[b] = a
            else:
                a = b
    for b in range(n_buckets):
        root[b] = root[root[b]]
    return root
