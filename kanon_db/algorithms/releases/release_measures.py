"""Measures what several releases disclose together, one row for each check.

Differencing compares the exact counts of two releases, which disclose values of those who came or
left.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Literal

import numpy as np

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, kernel
from kanon_db.algorithms.releases.bucket_releases import (
    NOWHERE,
    BucketRelease,
    BucketReleases,
    PossibleValues,
    components_of,
    possible_values,
)
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError


@dataclass(frozen=True, eq=False)
class Differences:
    """Groups of people, in buckets of two releases, with the differences of their counts.

    Parameters
    ----------
    old, new : int
        The releases.
    inserted, deleted : ndarray of int64, shape (n_groups,)
        How many people are in the group in the new release only, and in the old one only.
        Counterfeits are among them.
    group, value, change : ndarray of int64, shape (n,)
        Occurrences of a value in the new release less those in the old one, where these differ.
    group_of_bucket : ndarray of int64, shape (n_buckets,)
        The group of each bucket of either release; -1 for buckets of other releases, and for
        buckets with nobody who is in both.
    """

    old: int
    new: int
    inserted: IntArray
    deleted: IntArray
    group: IntArray
    value: IntArray
    change: IntArray
    group_of_bucket: IntArray

    @property
    def is_one_sided(self) -> BoolArray:
        """Groups in which people only came or only left, so that the values of all are known."""
        flags: BoolArray = (self.inserted == 0) | (self.deleted == 0)
        return flags

    @property
    def is_contradicted(self) -> BoolArray:
        """Groups that gained more values than people, so that somebody's value changed."""
        more = np.bincount(self.group, np.maximum(self.change, 0), self.inserted.size)
        flags: BoolArray = more > self.inserted
        return flags

    def surely(self, *, inserted: bool) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return the least number of people who came or left, for each value.

        Exact for one-sided groups, a lower bound for others; contradicted groups are omitted.

        Parameters
        ----------
        inserted : bool
            Whether to count those who came, or those who left.

        Returns
        -------
        group, value, least, size : ndarray of int64, shape (n,)
            ``size`` is that of the virtual bucket: how many people came or left.
        """
        sign, sizes = (1, self.inserted) if inserted else (-1, self.deleted)
        some = (sign * self.change > 0) & ~self.is_contradicted[self.group]
        group = self.group[some]
        return group, self.value[some], sign * self.change[some], sizes[group]


def differences(
    releases: BucketReleases, old: int, new: int, group_of_bucket: AnyIntArray | None = None
) -> Differences:
    """Compare the values of groups of people in two releases.

    Exact: every reader of both can compute ``values(inserted) - values(deleted)`` of each group.

    Parameters
    ----------
    releases : BucketReleases
    old, new : int
        Releases, from 0.
    group_of_bucket : ndarray of int64, shape (n_buckets,), optional
        A group for each bucket of the two releases, such as a cell for which both have exact
        counts. Everybody must be in one group. By default the finest groups: the components of
        buckets linked by people who are in both.

    Returns
    -------
    Differences

    Raises
    ------
    InvalidParameterError
        If a tuple is in buckets of two groups.

    Examples
    --------
    >>> before = BucketRelease.of(np.arange(4), np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
    >>> after = BucketRelease.of(np.arange(5), np.array([0, 0, 1, 1, 1]), np.array([0, 1, 0, 1, 2]))
    >>> found = differences(BucketReleases.of([before, after], 5, 3), 0, 1)
    >>> found.inserted.tolist(), found.group.tolist(), found.value.tolist()
    ([0, 1], [1], [2])
    """
    in_old = (releases.release == old) & (releases.bucket != NOWHERE)
    in_new = (releases.release == new) & (releases.bucket != NOWHERE)
    in_both = np.zeros((2, releases.n_all), dtype=np.bool_)
    in_both[0, releases.tuple_of[in_old]] = True
    in_both[1, releases.tuple_of[in_new]] = True
    stays = (in_both[0] & in_both[1])[releases.tuple_of]
    concerned = np.zeros(releases.n_buckets, dtype=np.bool_)
    if group_of_bucket is None:
        links = (in_old | in_new) & stays
        groups = components_of(releases, links)
        concerned[releases.bucket[links]] = True
    else:
        groups = group_of_bucket.astype(np.int64)
        concerned[releases.bucket[in_old | in_new]] = True
    numbers, dense = np.unique(groups[concerned], return_inverse=True)
    group_of = np.full(releases.n_buckets, -1, dtype=np.int64)
    group_of[concerned] = dense
    placed = np.flatnonzero(in_old | in_new)
    group_of_tuple = np.full(releases.n_all, -1, dtype=np.int64)
    group_of_tuple[releases.tuple_of[placed]] = group_of[releases.bucket[placed]]
    stray = group_of_tuple[releases.tuple_of[placed]] != group_of[releases.bucket[placed]]
    if (stray & stays[placed]).any():
        raise InvalidParameterError(
            "people are in different groups of the two releases",
            hint="use groups that are unions of buckets of both releases",
        )
    keys, change = _number_changes(releases, old, new, group_of)
    group = keys // max(1, releases.n_all)
    return Differences(
        old,
        new,
        np.bincount(group, np.maximum(change, 0), numbers.size).astype(np.int64),
        np.bincount(group, np.maximum(-change, 0), numbers.size).astype(np.int64),
        *_changes(releases, in_old, in_new, group_of),
        group_of,
    )


def everybody(releases: BucketReleases) -> IntArray:
    """Return one group for all buckets: differencing of whole releases."""
    return np.zeros(releases.n_buckets, dtype=np.int64)


def compare_all(releases: BucketReleases, pulse: Pulse = UNLIMITED) -> list[Differences]:
    """Compare each release with each later one: as a whole, and then by the finest groups."""
    comparisons = []
    for old, new in combinations(range(releases.n_releases), 2):
        for groups in (everybody(releases), None):
            pulse.beat()
            comparisons.append(differences(releases, old, new, groups))
    return comparisons


def people_of(
    releases: BucketReleases, compared: Differences, groups: BoolArray, *, inserted: bool
) -> tuple[IntArray, IntArray, IntArray]:
    """Return who came or left in some of the groups."""
    keys, change = _number_changes(
        releases, compared.old, compared.new, compared.group_of_bucket
    )  # fmt: skip
    group, tuples = np.divmod(keys, max(1, releases.n_all))
    change = change if inserted else -change
    some = groups[group] & (change > 0)
    return group[some], tuples[some], change[some]


def _number_changes(
    releases: BucketReleases, old: int, new: int, group_of_bucket: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the change of each tuple's number in each group, as sparse keys."""
    compared = (releases.release == old) | (releases.release == new)
    placed = np.flatnonzero(compared & (releases.bucket != NOWHERE))
    placed = placed[group_of_bucket[releases.bucket[placed]] >= 0]
    keys = group_of_bucket[releases.bucket[placed]] * releases.n_all + releases.tuple_of[placed]
    signed = np.where(releases.release[placed] == new, 1, -1) * releases.people[placed]
    return _sum_by_key(keys, signed)


def _changes(
    releases: BucketReleases, in_old: BoolArray, in_new: BoolArray, groups: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    sign = np.zeros(releases.n_buckets, dtype=np.int64)
    sign[releases.bucket[in_old]] = -1
    sign[releases.bucket[in_new]] = 1
    bucket = np.repeat(np.arange(releases.n_buckets), np.diff(releases.first_cell))
    cells = np.flatnonzero((sign[bucket] != 0) & (groups[bucket] >= 0))
    keys = groups[bucket[cells]] * releases.n_values + releases.value[cells]
    keys, change = _sum_by_key(keys, sign[bucket[cells]] * releases.count[cells])
    kept = change != 0
    group, value = np.divmod(keys[kept], max(1, releases.n_values))
    return group, value, change[kept]


def _sum_by_key(keys: IntArray, amounts: AnyIntArray) -> tuple[IntArray, IntArray]:
    """Add up amounts with the same key; keys ascend."""
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    if not starts.size:
        return keys[:0], keys[:0]
    return keys[order[starts]], np.add.reduceat(amounts[order].astype(np.int64), starts)


Kind = Literal["exact", "sound"]
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ReleaseCheck:
    """The result of one check.

    Parameters
    ----------
    name : str
        ``inserted``, ``deleted`` or ``candidates``.
    kind : str
        ``exact``: a reader of that kind knows just this; ``sound``: a reader knows at least this.
    people : int
        Number of people with a value that is more likely, or more frequent among those who came or
        left, than its bound allows.
    certain : int
        How many of these people have a certain value.
    value, bound : float
        The probability that exceeds its bound by the largest factor, or comes closest, and the
        bound. For candidates, 1 / number of candidates, and the mean of their bounds.
    holds : bool
        Whether nobody's value exceeds its bound.
    """

    name: str
    kind: Kind
    people: int
    certain: int
    value: float
    bound: float
    holds: bool


@dataclass(frozen=True)
class ReleaseMeasures:
    """What several releases disclose together.

    Parameters
    ----------
    checks : tuple of ReleaseCheck
    people : int
        People in some release.
    contradicted : int
        How many of them have no value that all their releases allow.
    contradicted_groups : int
        Number of groups of two releases that gained more values than people. If either is not 0,
        values or quasi-identifiers changed between releases, and other results may be wrong.
    """

    checks: tuple[ReleaseCheck, ...]
    people: int
    contradicted: int
    contradicted_groups: int

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)

    def check(self, name: str) -> ReleaseCheck:
        """Return the check with a name."""
        return next(check for check in self.checks if check.name == name)


def measure_releases(
    releases: Sequence[BucketRelease],
    n_tuples: int,
    bounds: Sequence[Fraction],
    pulse: Pulse = UNLIMITED,
) -> ReleaseMeasures:
    """Measure what readers of all releases who know everybody's quasi-identifiers can infer.

    Parameters
    ----------
    releases : sequence of BucketRelease
        In the order in which they were published.
    n_tuples : int
    bounds : sequence of Fraction, shape (n_values,)
        The largest probability allowed for each value, such as f' or 1/l; 1 for none.
    pulse : Pulse

    Returns
    -------
    ReleaseMeasures

    Notes
    -----
    Readers take equal quasi-identifiers for the same people; see
    :class:`~kanon_db.algorithms.releases.bucket_releases.BucketReleases`. Values of people do not
    change.

    Examples
    --------
    >>> before = BucketRelease.of(np.arange(4), np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
    >>> after = BucketRelease.of(np.arange(5), np.array([0, 0, 1, 1, 1]), np.array([0, 1, 0, 1, 1]))
    >>> found = measure_releases([before, after], 5, [Fraction(1, 2), Fraction(2, 3)])
    >>> [(check.name, check.people, check.certain) for check in found.checks if not check.holds]
    [('inserted', 1, 1)]
    """
    limits = np.array([float(bound) for bound in bounds])
    joint = BucketReleases.of(releases, n_tuples, len(bounds))
    compared, checks = _compare_all(joint, bounds, pulse)
    candidates = possible_values(joint, pulse)
    checks.append(_check_candidates("candidates", "exact", joint, candidates, limits))
    return ReleaseMeasures(
        checks=tuple(checks),
        people=joint.n_people,
        contradicted=int(joint.total[joint.is_person & (candidates.number == 0)].sum()),
        contradicted_groups=sum(int(one.is_contradicted.sum()) for one in compared),
    )


def measure_differences(
    releases: Sequence[BucketRelease],
    n_tuples: int,
    bounds: Sequence[Fraction],
    pulse: Pulse = UNLIMITED,
) -> list[ReleaseCheck]:
    """Measure what counts alone disclose of those who came or left."""
    return _compare_all(BucketReleases.of(releases, n_tuples, len(bounds)), bounds, pulse)[1]


def _compare_all(
    releases: BucketReleases, bounds: Sequence[Fraction], pulse: Pulse
) -> tuple[list[Differences], list[ReleaseCheck]]:
    compared = compare_all(releases, pulse)
    return compared, [
        _check_differences(releases, compared, bounds, inserted=came) for came in (True, False)
    ]


def _check_differences(
    releases: BucketReleases,
    compared: Sequence[Differences],
    bounds: Sequence[Fraction],
    *,
    inserted: bool,
) -> ReleaseCheck:
    """Find groups in which more people came or left with a value than its bound allows."""
    people, certain = np.zeros(releases.n_all), np.zeros(releases.n_all)
    worst: tuple[Fraction, Fraction, bool] = (Fraction(0), Fraction(1), True)
    for pair in compared:
        group, value, least, size = pair.surely(inserted=inserted)
        if not group.size:
            continue
        exceeds, ratio = _compare_fractions(value, least, size, bounds)
        top = int(ratio.argmax())
        share = Fraction(int(least[top]), int(size[top]))
        bound = bounds[int(value[top])]
        if share * worst[1] > worst[0] * bound:
            worst = (share, bound, bool(pair.is_one_sided[group[top]]))
        for numbers, wanted in ((people, exceeds), (certain, exceeds & (least == size))):
            if not wanted.any():
                continue
            groups = np.zeros(pair.inserted.size, dtype=np.bool_)
            groups[group[wanted]] = True
            _, tuples, change = people_of(releases, pair, groups, inserted=inserted)
            np.maximum(numbers, np.bincount(tuples, change, numbers.size), out=numbers)
    n_people = int(people[: releases.n_tuples].sum())
    return ReleaseCheck(
        name="inserted" if inserted else "deleted",
        kind="exact" if worst[2] else "sound",
        people=n_people,
        certain=int(certain[: releases.n_tuples].sum()),
        value=float(worst[0]),
        bound=float(worst[1]),
        holds=n_people == 0,
    )


def _compare_fractions(
    value: IntArray, least: IntArray, size: IntArray, bounds: Sequence[Fraction]
) -> tuple[BoolArray, FloatArray]:
    """Tell exactly where a fraction exceeds its bound, and by which factor, rounded."""
    above, below = ([getattr(b, k) for b in bounds] for k in ("numerator", "denominator"))
    largest = int(size.max(initial=1)) * max(below, default=1)
    integer = np.int64 if largest < 2**63 else object
    allowed = np.array(above, dtype=integer)[value] * size.astype(integer)
    reached = np.array(below, dtype=integer)[value] * least.astype(integer)
    exceeds: BoolArray = (reached > allowed).astype(np.bool_)
    return exceeds, (reached / allowed).astype(np.float64)


def _check_candidates(
    name: str, kind: Kind, releases: BucketReleases, candidates: PossibleValues, limits: FloatArray
) -> ReleaseCheck:
    """Find people whose candidates' bounds add up to less than 1, so that one is exceeded."""
    sums = _bounds_left(candidates.first, candidates.value, candidates.number, limits)
    looked_at = releases.is_person & (candidates.number > 0)
    exceeding = looked_at & (sums < 1 - _ROUNDING)
    top = int(np.where(looked_at, sums, np.inf).argmin()) if looked_at.any() else -1
    number = int(candidates.number[top]) if top >= 0 else 1
    return ReleaseCheck(
        name=name,
        kind=kind,
        people=int(releases.total[exceeding].sum()),
        certain=int(releases.total[exceeding & (candidates.number == 1)].sum()),
        value=1 / number if top >= 0 else 0.0,
        bound=float(sums[top]) / number if top >= 0 else 1.0,
        holds=not exceeding.any(),
    )


@kernel
def _bounds_left(
    first: IntArray, value: CodeArray, number: IntArray, limits: FloatArray
) -> FloatArray:
    """Add up the bounds of each tuple's candidates."""
    sums = np.zeros(number.size)
    for t in range(number.size):
        for j in range(first[t], first[t] + number[t]):
            sums[t] += limits[value[j]]
    return sums
