"""Differencing: what the exact counts of two releases tell of those who came or went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, IntArray
from kanon_db.algorithms.releases.components import components_of
from kanon_db.algorithms.releases.placements import NOWHERE, Release, Releases
from kanon_db.errors import InvalidParameterError


@dataclass(frozen=True, eq=False)
class Differences:
    """Groups of people, each in buckets of one release, and nearly the same in those of another.

    Parameters
    ----------
    inserted, deleted : ndarray of int64, shape (n_groups,)
        How many people are in the group in the new release only, and in the old one only.
        Counterfeits are among them.
    group, value, change : ndarray of int64, shape (n,)
        How often a value occurs in the new release above the old one, where that differs.
    group_of_bucket : ndarray of int64, shape (n_buckets,)
        The group of each bucket of either release; -1 for those of others, and those without
        anybody who is in both.
    """

    inserted: IntArray
    deleted: IntArray
    group: IntArray
    value: IntArray
    change: IntArray
    group_of_bucket: IntArray

    @property
    def is_one_sided(self) -> BoolArray:
        """In which groups people only came, or only went: then the values of all are known."""
        found: BoolArray = (self.inserted == 0) | (self.deleted == 0)
        return found

    def surely(self, *, inserted: bool) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return the least number of those who came, or went, with a value.

        Exact for groups that are one-sided, a lower bound for the others.

        Parameters
        ----------
        inserted : bool
            Of those who came, otherwise of those who went.

        Returns
        -------
        group, value, least, size : ndarray of int64, shape (n,)
            The size is that of the virtual bucket: how many people came, or went.
        """
        sign, sizes = (1, self.inserted) if inserted else (-1, self.deleted)
        some = sign * self.change > 0
        group = self.group[some]
        return group, self.value[some], sign * self.change[some], sizes[group]


def differences(
    releases: Releases, old: int, new: int, group_of_bucket: AnyIntArray | None = None
) -> Differences:
    """Compare the values of groups of people in two releases.

    Exact: ``values(inserted) - values(deleted)`` of each group is what every reader of both can
    count.

    Parameters
    ----------
    releases : Releases
    old, new : int
        Releases, from 0.
    group_of_bucket : ndarray of int64, shape (n_buckets,), optional
        A group for each bucket of the two releases, such as a cell for which both have exact
        counts. Everybody must be in one group. By default the finest groups: the components of
        buckets that people link who are in both.

    Returns
    -------
    Differences

    Raises
    ------
    InvalidParameterError
        If a tuple is in buckets of two groups.

    Examples
    --------
    >>> before = Release.of(np.arange(4), np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
    >>> after = Release.of(np.arange(5), np.array([0, 0, 1, 1, 1]), np.array([0, 1, 0, 1, 2]))
    >>> found = differences(Releases.of([before, after], 5, 3), 0, 1)
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
    found = np.full(releases.n_buckets, -1, dtype=np.int64)
    found[concerned] = dense
    placed = np.flatnonzero(in_old | in_new)
    group_of_tuple = np.full(releases.n_all, -1, dtype=np.int64)
    group_of_tuple[releases.tuple_of[placed]] = found[releases.bucket[placed]]
    stray = group_of_tuple[releases.tuple_of[placed]] != found[releases.bucket[placed]]
    if (stray & stays[placed]).any():
        raise InvalidParameterError(
            "people are in different groups of the two releases",
            hint="use groups that are unions of buckets of both releases",
        )
    keys, change = _number_changes(releases, old, new, found)
    group = keys // max(1, releases.n_all)
    return Differences(
        np.bincount(group, np.maximum(change, 0), numbers.size).astype(np.int64),
        np.bincount(group, np.maximum(-change, 0), numbers.size).astype(np.int64),
        *_changes(releases, in_old, in_new, found),
        found,
    )


def everybody(releases: Releases) -> IntArray:
    """Return one group for all buckets: differencing of whole releases."""
    return np.zeros(releases.n_buckets, dtype=np.int64)


def virtual_releases(
    releases: Releases, numbers: Sequence[int] | None = None
) -> tuple[list[Release], int]:
    """Make releases of groups whose values are known by differencing.

    Sound: they hold what follows from the releases, for algorithms that look at each bucket alone.

    Parameters
    ----------
    releases : Releases
    numbers : sequence of int, optional
        The releases to compare, each with each; all by default.

    Returns
    -------
    releases : list of Release
        Those who came or went between two releases, in groups where others did not do the other.
    n_groups : int
        Their number.
    """
    found: list[Release] = []
    n_groups = 0
    for old, new in combinations(range(releases.n_releases) if numbers is None else numbers, 2):
        compared = differences(releases, old, new)
        for wanted, empty in (
            (compared.inserted, compared.deleted),
            (compared.deleted, compared.inserted),
        ):
            one_sided = (wanted > 0) & (empty == 0)
            if one_sided.any():
                sign = 1 if wanted is compared.inserted else -1
                found.append(_virtual(releases, old, new, compared, one_sided, sign))
                n_groups += int(one_sided.sum())
    return found, n_groups


def _virtual(
    releases: Releases, old: int, new: int, compared: Differences, wanted: BoolArray, sign: int
) -> Release:
    keys, change = _number_changes(releases, old, new, compared.group_of_bucket)
    group, tuples = np.divmod(keys, releases.n_all)
    number = np.cumsum(wanted) - 1
    some = (sign * change > 0) & wanted[group]
    cells = wanted[compared.group]
    return Release(
        tuple_of=tuples[some],
        bucket_of=number[group[some]],
        people=sign * change[some],
        bucket=number[compared.group[cells]],
        value=compared.value[cells],
        count=sign * compared.change[cells],
    )


def _number_changes(
    releases: Releases, old: int, new: int, group_of_bucket: IntArray
) -> tuple[IntArray, IntArray]:
    """Return by how much each tuple's number in each group changed, as sparse keys."""
    compared = (releases.release == old) | (releases.release == new)
    placed = np.flatnonzero(compared & (releases.bucket != NOWHERE))
    placed = placed[group_of_bucket[releases.bucket[placed]] >= 0]
    keys = group_of_bucket[releases.bucket[placed]] * releases.n_all + releases.tuple_of[placed]
    signed = np.where(releases.release[placed] == new, 1, -1) * releases.people[placed]
    return _summed(keys, signed)


def _changes(
    releases: Releases, in_old: BoolArray, in_new: BoolArray, groups: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    sign = np.zeros(releases.n_buckets, dtype=np.int64)
    sign[releases.bucket[in_old]] = -1
    sign[releases.bucket[in_new]] = 1
    bucket = np.repeat(np.arange(releases.n_buckets), np.diff(releases.first_cell))
    cells = np.flatnonzero((sign[bucket] != 0) & (groups[bucket] >= 0))
    keys = groups[bucket[cells]] * releases.n_values + releases.value[cells]
    keys, change = _summed(keys, sign[bucket[cells]] * releases.count[cells])
    kept = change != 0
    group, value = np.divmod(keys[kept], max(1, releases.n_values))
    return group, value, change[kept]


def _summed(keys: IntArray, amounts: AnyIntArray) -> tuple[IntArray, IntArray]:
    """Add up amounts with the same key; keys ascend."""
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    if not starts.size:
        return keys[:0], keys[:0]
    return keys[order[starts]], np.add.reduceat(amounts[order].astype(np.int64), starts)
