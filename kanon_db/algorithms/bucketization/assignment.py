"""Which records go to which bucket: record partition and round-robin ([GB] Section 4).

How many occurrences of a value a bucket may hold comes in as an array of limits, so that one
implementation serves F'-privacy (limits floor(f'_i S_j)) and Anatomy (limits 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.setting import BucketSetting, record_counts
from kanon_db.algorithms.bucketization.transportation import Transport, in_shares, transport
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, IntArray
from kanon_db.errors import InfeasibleError, InvalidParameterError


def is_valid(counts: npt.ArrayLike, limits: npt.ArrayLike, setting: BucketSetting) -> bool:
    """Tell whether the records fit a bucket setting within the limits.

    Parameters
    ----------
    counts : array_like of int, shape (m,)
        Records of each sensitive value: o_i.
    limits : array_like of int, shape (m, q)
        Most occurrences of each value in one bucket of each size.
    setting : BucketSetting
        Any number of sizes.

    Returns
    -------
    bool
        True if and only if all records can be assigned so that each bucket is full and holds no
        value more often than its limit.

    Raises
    ------
    InvalidParameterError
        If the shapes do not match.

    Notes
    -----
    **Source:** [GB] Theorem 1; Lemma 2 for one size. Its conditions are not sufficient for three
    sizes or more: there it takes a solution of the transportation problem of Section 6.1, see
    :func:`~kanon_db.algorithms.bucketization.transportation.transport`.

    Examples
    --------
    >>> is_valid([2, 3], [[1], [2]], BucketSetting.of([5], [1]))
    False
    >>> is_valid([2, 3], [[0, 1], [1, 2]], BucketSetting.of([1, 2], [1, 2]))
    True
    """
    checked, available = _available(counts, limits, setting)
    if not _satisfies_theorem_1(checked, available, setting):
        return False
    return setting.sizes.size <= 2 or not _transport(checked, available, setting).stranded.any()


def partition_records(
    counts: npt.ArrayLike, limits: npt.ArrayLike, setting: BucketSetting
) -> IntArray:
    """Decide how many records of each value go to the buckets of each size.

    Within the result, round-robin keeps every bucket within the limits.

    Parameters
    ----------
    counts : array_like of int, shape (m,)
        Records of each sensitive value: o_i.
    limits : array_like of int, shape (m, q)
        Most occurrences of each value in one bucket of each size.
    setting : BucketSetting
        Any number of sizes.

    Returns
    -------
    ndarray of int64, shape (m, q)
        Rows add up to ``counts``, columns to the capacity of the buckets of each size; no entry
        exceeds limit times number of buckets.

    Raises
    ------
    InfeasibleError
        If the setting is not valid: see :func:`is_valid`.
    InvalidParameterError
        If the shapes do not match.

    Notes
    -----
    **Source:** [GB] Algorithm 1 for one or two sizes, Section 6.1 for more.

    Deviations: a record may move to the second size only while o_i2 < min(u_i2, o_i); line 5
    forgets that the value must still have a record to move. The paper moves *any* such record;
    here the moves are spread over the values in proportion to the room each has left (each value
    within one record of its share), so that no value is exhausted before the others. For three
    sizes or more, the paper takes the partition from the solution of its program; here it follows
    from the setting alone, by a transportation problem whose solution is spread likewise.

    Examples
    --------
    >>> partition_records([2, 3], [[0, 1], [1, 2]], BucketSetting.of([1, 2], [1, 2])).tolist()
    [[0, 2], [1, 2]]
    """
    checked, available = _available(counts, limits, setting)
    valid = _satisfies_theorem_1(checked, available, setting)
    if valid and setting.sizes.size > 2:
        found = _transport(checked, available, setting)
        if not found.stranded.any():
            return found.amounts
        valid = False
    if not valid:
        raise InfeasibleError(
            "the bucket setting is not valid",
            detail=f"{setting.n_buckets:,} buckets for {setting.n_records:,} records, table of "
            f"{int(checked.sum()):,} records and {checked.size} sensitive values",
            hint="search for a setting with these counts and limits",
        )
    if setting.sizes.size == 0:
        return available
    first = available[:, 0]
    excess = int(first.sum()) - int(setting.sizes[0] * setting.counts[0])
    if excess > 0:
        first -= in_shares(excess, available[:, 1] - (checked - first))
    return np.column_stack([first, checked - first])[:, : setting.sizes.size]


_RUN: Final = 2**20
"""Records whose buckets are worked out at once."""


@dataclass(frozen=True, eq=False)
class Allotment:
    """Which bucket each record goes to, by its value and its rank among the value's records.

    A record of rank r goes to bucket ``first_bucket + (start + r - first_rank) % n_buckets``
    of the entry for its value with ``first_rank <= r < first_rank + n_records``. Whoever ranks
    the records of a value at random thereby decides at random which of them share a bucket.

    Parameters
    ----------
    value : ndarray of int64, shape (e,)
        Position of the value in the counts; ascending, at most one entry per value and size.
    first_rank : ndarray of int64, shape (e,)
        0-based rank of the entry's first record; ascending within a value.
    n_records : ndarray of int64, shape (e,)
        Number of records of the entry, at least 1.
    first_bucket : ndarray of int64, shape (e,)
        0-based number of the first bucket of the entry's size.
    n_buckets : ndarray of int64, shape (e,)
        Number of buckets of the entry's size.
    start : ndarray of int64, shape (e,)
        Where round-robin resumes, in [0, n_buckets).
    """

    value: IntArray
    first_rank: IntArray
    n_records: IntArray
    first_bucket: IntArray
    n_buckets: IntArray
    start: IntArray

    def bucket_of(self, values: npt.ArrayLike, ranks: npt.ArrayLike) -> IntArray:
        """Find the buckets of records.

        Parameters
        ----------
        values : array_like of int, shape (n,)
            Position of each record's value in the counts.
        ranks : array_like of int, shape (n,)
            0-based rank of each record among the records of its value.

        Returns
        -------
        ndarray of int64, shape (n,)
            0-based bucket numbers.

        Raises
        ------
        InvalidParameterError
            If there is no such record.
        """
        value = np.asarray(values, dtype=np.int64)
        rank = np.asarray(ranks, dtype=np.int64)
        # Entries cover the records without gaps when these are numbered value by value.
        ends = np.cumsum(self.n_records)
        offset = np.concatenate(([0], ends))[np.searchsorted(self.value, value)]
        entry = np.searchsorted(ends, offset + rank, side="right")
        known = (rank >= 0) & (entry < ends.size)
        known[known] = self.value[entry[known]] == value[known]
        if not known.all():
            raise InvalidParameterError(
                "a record is not part of the allotment",
                detail=f"{int((~known).sum())} of {known.size} records",
            )
        steps = self.start[entry] + rank - self.first_rank[entry]
        buckets: IntArray = self.first_bucket[entry] + steps % self.n_buckets[entry]
        return buckets

    def runs(self) -> Iterator[IntArray]:
        """Give the buckets of all records, value by value, each in the order of ranks."""
        ends = np.cumsum(self.n_records)
        n_records = int(ends[-1]) if ends.size else 0
        for start in range(0, n_records, _RUN):  # so that none takes much more memory
            end = min(start + _RUN, n_records)
            first, last = np.searchsorted(ends, [start, end - 1], side="right").tolist()
            numbers = np.arange(first, last + 1)
            begin = ends[numbers] - self.n_records[numbers]
            inside = np.minimum(ends[numbers], end) - np.maximum(begin, start)
            entry = np.repeat(numbers, inside)
            steps = np.arange(start, end) + (self.start - ends + self.n_records)[entry]
            yield self.first_bucket[entry] + steps % self.n_buckets[entry]

    def dealt_to(self, order: AnyIntArray) -> CodeArray:
        """Deal the buckets to records.

        Parameters
        ----------
        order : ndarray of int, shape (n_records,)
            The records, value by value, each in the order of ranks.

        Returns
        -------
        ndarray of int32, shape (n_records,)
            The bucket of each record.
        """
        buckets = np.empty(order.size, dtype=np.int32)
        dealt = 0
        for run in self.runs():
            buckets[order[dealt : dealt + run.size]] = run
            dealt += run.size
        return buckets


def round_robin(partition: npt.ArrayLike, setting: BucketSetting) -> Allotment:
    """Deal the records of each value in turn to the buckets of each size.

    A bucket gets at most ceil(records / buckets) records of a value, the fewest possible, and
    every bucket is filled exactly.

    Parameters
    ----------
    partition : array_like of int, shape (m, q)
        Records of each value for the buckets of each size; columns add up to their capacity.
    setting : BucketSetting
        Any number of sizes.

    Returns
    -------
    Allotment

    Raises
    ------
    InvalidParameterError
        If the partition does not fill the buckets.

    Notes
    -----
    **Source:** [GB] Section 4.1, Round-Robin Assignment. The pointer to the next bucket is
    carried from one value to the next: begun anew for each value, as the text can be read, bucket
    sizes would differ.

    Examples
    --------
    >>> allotment = round_robin([[3], [1]], BucketSetting.of([2], [2]))
    >>> allotment.bucket_of([0, 0, 0, 1], [0, 1, 2, 0]).tolist()
    [0, 1, 0, 1]
    """
    dealt = np.asarray(partition, dtype=np.int64)
    capacities = setting.sizes * setting.counts
    if (
        dealt.shape[1:] != capacities.shape
        or (dealt < 0).any()
        or (dealt.sum(axis=0) != capacities).any()
    ):
        raise InvalidParameterError(
            "the record partition does not fill the buckets",
            detail=f"partition: shape {dealt.shape}, bucket sizes: {setting.sizes.size}",
        )
    value, size_class = np.nonzero(dealt)
    dealt_before = np.cumsum(dealt, axis=0) - dealt
    ranked_before = np.cumsum(dealt, axis=1) - dealt
    n_buckets = setting.counts[size_class]
    return Allotment(
        value=value.astype(np.int64),
        first_rank=ranked_before[value, size_class],
        n_records=dealt[value, size_class],
        first_bucket=(np.cumsum(setting.counts) - setting.counts)[size_class],
        n_buckets=n_buckets,
        start=dealt_before[value, size_class] % n_buckets,
    )


def _available(
    counts: npt.ArrayLike, limits: npt.ArrayLike, setting: BucketSetting
) -> tuple[IntArray, IntArray]:
    """Compute o_i, and a_ij = min{limit_ij b_j, o_i} of [GB] Definition 5."""
    checked, _ = record_counts(counts)
    per_bucket = np.asarray(limits, dtype=np.int64)
    if per_bucket.shape != (checked.size, setting.sizes.size):
        raise InvalidParameterError(
            "limits must hold one number for each sensitive value and bucket size",
            detail=f"limits: shape {per_bucket.shape}, sensitive values: {checked.size}, "
            f"bucket sizes: {setting.sizes.size}",
        )
    # A bucket cannot hold more of a value than its size, whatever the limit: the product then
    # stays within the capacity of the buckets.
    per_bucket = np.minimum(per_bucket, setting.sizes)
    return checked, np.minimum(per_bucket * setting.counts, checked[:, np.newaxis])


def _satisfies_theorem_1(counts: IntArray, available: IntArray, setting: BucketSetting) -> bool:
    """Privacy (3), fill (4) and capacity (5) constraints of [GB] Theorem 1; necessary for any q."""
    return bool(
        (available.sum(axis=1) >= counts).all()
        and (available.sum(axis=0) >= setting.sizes * setting.counts).all()
        and int(counts.sum()) == setting.n_records
    )


def _transport(counts: IntArray, available: IntArray, setting: BucketSetting) -> Transport:
    """Send the records to the bucket sizes."""
    return transport(counts, setting.sizes * setting.counts, available)
