"""Assigns records with similar quasi-identifiers to the same bucket: local assignment.

A sweep over the sorted records makes the buckets; :mod:`.marginal_refinement` then swaps records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from kanon_db.algorithms.bucketization.bucket_assignment import Permuter, assign_randomly
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.marginal_refinement import refine
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.two_size import MAX_BUCKET_SIZE, two_size
from kanon_db.algorithms.ground.arrays import (
    CodeArray,
    IntArray,
    SmallIntArray,
    order_of,
    sort_keys,
    taken,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.errors import InfeasibleError, InvalidParameterError

UNPLACED = -1
"""Stands in place of a bucket number for a record that the sweep has left over."""

_RECORDS_PER_SWEPT_BLOCK = 2**15
_CELLS_PER_BLOCK = 2**22


def sweep(
    order: IntArray,  # (n_records,): A permutation of the records: similar ones follow each other
    sa_codes: CodeArray,  # (n_records,): sensitive value of each record
    # (m, M + 1): most occurrences of each value in a bucket of each size 0 … M; not decreasing with
    # the size
    limits: SmallIntArray,
    pulse: Pulse = UNLIMITED,
) -> IntArray:
    """Gather records in their order into buckets that respect the limits.

    As soon as the pooled records can fill a bucket that every pooled value may be in, the largest
    such bucket is closed, with those that have waited longest. O(n_records M).
    """
    n_values, n_sizes = limits.shape
    buckets = np.full(order.size, UNPLACED, dtype=np.int64)
    following = np.full(order.size, UNPLACED, dtype=np.int64)
    queues = np.zeros((3, n_values), dtype=np.int64)
    pooled = np.zeros(n_values, dtype=np.int64)
    usable = np.zeros(n_sizes, dtype=np.int64)
    progress = np.zeros(3, dtype=np.int64)
    able = limits > 0
    smallest = np.where(able.any(axis=1), able.argmax(axis=1), n_sizes).astype(np.int64)
    length = max(1, min(_RECORDS_PER_SWEPT_BLOCK, _CELLS_PER_BLOCK // n_sizes))
    for start in range(0, order.size, length):
        pulse.beat()
        _sweep_block(
            order[start : start + length],
            sa_codes,
            limits,
            smallest,
            buckets,
            following,
            queues,
            pooled,
            usable,
            progress,
        )
    return buckets


def place_unplaced(
    # (n_records,): what :func:`sweep` returned; changed in place. A record for whose value no
    # bucket has room remains :data:`UNPLACED`.
    buckets: IntArray,
    order: IntArray,
    sa_codes: CodeArray,
    limits: SmallIntArray,
    pulse: Pulse = UNLIMITED,
) -> None:
    """Add each record left over to the nearest bucket that has room for its value.

    One more record of a value raises the share of that value only, and limits do not decrease with
    the size, so no other value is affected.
    """
    waiting = order[buckets[order] == UNPLACED]
    if not waiting.size or waiting.size == order.size:
        return
    sizes = np.bincount(buckets[buckets != UNPLACED])
    # The search starts at the bucket of the closest record before it.
    last_bucket = np.maximum.accumulate(np.maximum(buckets[order], 0))
    beside = np.empty(order.size, dtype=np.int64)
    beside[order] = last_bucket
    by_value = order_of(sa_codes, stable=True)
    ends = np.cumsum(np.bincount(sa_codes))
    waiting = waiting[order_of(sa_codes[waiting], stable=True)]
    values, starts = np.unique(sa_codes[waiting], return_index=True)
    for value, records in zip(values.tolist(), np.split(waiting, starts[1:]), strict=True):
        pulse.beat()
        own_buckets = buckets[by_value[ends[value - 1] if value else 0 : ends[value]]]
        own = np.bincount(own_buckets[own_buckets != UNPLACED], minlength=sizes.size)
        _place(records, beside, sizes, own, limits[value], buckets)


@numba.njit(cache=True, nogil=True)
def _sweep_block(
    order: IntArray,
    sa_codes: CodeArray,
    limits: SmallIntArray,
    smallest: IntArray,
    buckets: IntArray,
    following: IntArray,
    queues: IntArray,
    pooled: IntArray,
    usable: IntArray,
    progress: IntArray,
) -> None:
    first, last, values = queues  # queues of waiting records, and the values that have one
    n_pooled, n_buckets, least = progress  # least: size large enough for every pooled value
    largest = limits.shape[1] - 1
    taken = np.empty(limits.shape[0], dtype=np.int64)
    for record in order:
        value = sa_codes[record]
        if pooled[value] == 0:
            values[n_pooled] = value
            n_pooled += 1
            first[value] = record
            least = max(least, smallest[value])
        else:
            following[last[value]] = record
        last[value] = record
        pooled[value] += 1
        size = largest
        while size > 0 and limits[value, size] >= pooled[value]:
            usable[size] += 1
            size -= 1
        while n_pooled:
            size = largest
            while size >= least and usable[size] < size:
                size -= 1
            if size < least:
                break
            excess = usable[size] - size
            for k in range(n_pooled):
                taken[k] = min(pooled[values[k]], np.int64(limits[values[k], size]))
            for _ in range(excess):
                taken[np.argmax(taken[:n_pooled])] -= 1
            for k in range(n_pooled - 1, -1, -1):
                value = values[k]
                for _ in range(taken[k]):
                    buckets[first[value]] = n_buckets
                    first[value] = following[first[value]]
                pooled[value] -= taken[k]
                if pooled[value] == 0:
                    n_pooled -= 1
                    values[k] = values[n_pooled]
            n_buckets += 1
            usable[:] = 0
            least = 0
            for k in range(n_pooled):
                value = values[k]
                least = max(least, smallest[value])
                for size in range(1, largest + 1):
                    usable[size] += min(pooled[value], np.int64(limits[value, size]))
    progress[:] = n_pooled, n_buckets, least


@numba.njit(cache=True, nogil=True)
def _place(
    records: IntArray,
    beside: IntArray,
    sizes: IntArray,
    own: IntArray,
    limits: SmallIntArray,
    buckets: IntArray,
) -> None:
    """Place the records of one value; ``limits`` are those of the value."""
    n_buckets, largest = sizes.size, limits.size - 1
    # Next bucket on either side that may have room; one more at each end stops the search. Room
    # is not regained while one value is placed, so paths are shortened as they are walked.
    skips = np.empty((2, n_buckets + 2), dtype=np.int64)
    for g in range(n_buckets + 2):
        skips[:, g] = g
    for g in range(n_buckets):
        if sizes[g] >= largest or own[g] >= limits[sizes[g] + 1]:
            skips[0, g + 1], skips[1, g + 1] = g, g + 2
    found = np.empty(2, dtype=np.int64)
    for record in records:
        origin = beside[record] + 1
        for side in range(2):
            at = origin
            while skips[side, at] != at:
                skips[side, at] = skips[side, skips[side, at]]
                at = skips[side, at]
            found[side] = at
        low, high = found
        if low == 0 and high == n_buckets + 1:
            return
        near = high
        if high == n_buckets + 1 or (low != 0 and origin - low <= high - origin):
            near = low
        chosen = near - 1
        buckets[record] = chosen
        sizes[chosen] += 1
        own[chosen] += 1
        if sizes[chosen] >= largest or own[chosen] >= limits[sizes[chosen] + 1]:
            skips[0, near], skips[1, near] = near - 1, near + 1


_MAX_CELLS = 2**26  # occurrence limits held at once: 128 MB
_LEAST_LARGEST = 64
_FIRST_REOPENED = 4
_TERMS_OF_REFINEMENT = 2 * 10**9  # a few seconds


@dataclass(frozen=True, eq=False)
class LocalAssignment:
    """A bucket for each record, and the setting that the buckets make up."""

    # (n_records,): 0-based bucket numbers; buckets of smaller sizes come first
    bucket_of_record: CodeArray
    setting: BucketSetting  # How many buckets of which size


def assign_locally(
    # (n_records, n_qi): quasi-identifiers as codes from 0; codes of ordered types in the type's
    # order
    qi_codes: CodeArray,
    # (n_records,): position of each record's sensitive value in the thresholds
    sa_codes: CodeArray,
    privacy: FPrimePrivacy,  # Thresholds of the m sensitive values
    max_bucket_size: int,  # M', the most records in a bucket, in [1, 5000]
    # Source of randomness, asked for at most some forty permutations of the records
    random: Permuter,
    *,
    pulse: Pulse = UNLIMITED,
) -> LocalAssignment:
    """Put records with similar quasi-identifiers into the same bucket.

    **Source:** our own, after [GB] Sections 5 and 6; `docs/understand/local-buckets.md` measures
    its privacy. Bounds of every bucket hold as with any other assignment.
    """
    n_values = len(privacy.thresholds)
    _check(qi_codes, sa_codes, n_values)
    counts = np.bincount(sa_codes, minlength=n_values)
    if (
        not 1 <= max_bucket_size <= MAX_BUCKET_SIZE
        or max_bucket_size < privacy.smallest_bucket_size()
        or privacy.ineligible(counts).any()
    ):
        two_size(counts, privacy, max_bucket_size, pulse=pulse)  # says why not
    limits = _limits(privacy, max_bucket_size, sa_codes.size, pulse)
    order = _similar_order(qi_codes, random)
    buckets = sweep(order, sa_codes, limits, pulse)
    place_unplaced(buckets, order, sa_codes, limits, pulse)
    if (buckets == UNPLACED).any():
        _reopen(buckets, sa_codes, privacy, max_bucket_size, random, pulse)
    refine(
        buckets,
        qi_codes,
        sa_codes,
        n_values,
        random,
        n_terms=_TERMS_OF_REFINEMENT,
        pulse=pulse,
    )
    return _by_size(buckets)


def _check(qi_codes: CodeArray, sa_codes: CodeArray, n_values: int) -> None:
    if qi_codes.ndim != 2 or sa_codes.shape != qi_codes.shape[:1]:
        raise InvalidParameterError(
            "codes must hold one row of quasi-identifiers and one sensitive value for each record",
            detail=f"quasi-identifiers: shape {qi_codes.shape}, sensitive: shape {sa_codes.shape}",
        )
    if min(qi_codes.min(initial=0), sa_codes.min(initial=0)) < 0:
        raise InvalidParameterError("codes must be at least 0")
    if sa_codes.max(initial=-1) >= n_values:
        raise InvalidParameterError(
            "a record has a sensitive value without a threshold",
            detail=f"{n_values} thresholds",
        )


def _limits(
    privacy: FPrimePrivacy, max_bucket_size: int, n_records: int, pulse: Pulse
) -> SmallIntArray:
    """Limits at sizes 0 … M, where M is the largest size that the sweep considers."""
    sufficient = max(2 * privacy.corresponding_l(), _LEAST_LARGEST)
    largest = max(1, min(max_bucket_size, n_records, sufficient))
    n_values = len(privacy.thresholds)
    if n_values * (largest + 1) > _MAX_CELLS:
        raise InvalidParameterError(
            "the assignment needs too much memory",
            detail=f"{n_values:,} sensitive values, max_bucket_size = {max_bucket_size}",
            hint=f"lower max_bucket_size to at most {_MAX_CELLS // n_values - 1}",
        )
    return privacy.limits_of_many(np.arange(largest + 1), pulse)


def _similar_order(qi_codes: CodeArray, random: Permuter) -> IntArray:
    """Sort the records so that neighbors agree in many attributes; equal ones come at random."""
    n_records, n_qi = qi_codes.shape
    shuffled = random.permutation(n_records).astype(np.int64, copy=False)
    if not n_qi or not n_records:
        return shuffled
    agreement = [float(np.square(np.bincount(column) / n_records).sum()) for column in qi_codes.T]
    columns = [qi_codes[:, a] for a in np.argsort(np.negative(agreement), kind="stable")]
    keys = sort_keys(columns, reflected=True)
    # However a sort orders equal keys: that records come to it at random makes their order random.
    return taken(shuffled, order_of(taken(keys, shuffled)))


def _reopen(
    buckets: IntArray,
    sa_codes: CodeArray,
    privacy: FPrimePrivacy,
    max_bucket_size: int,
    random: Permuter,
    pulse: Pulse,
) -> None:
    """Deal records without a place anew, together with those of the last buckets."""
    n_buckets = int(buckets.max(initial=UNPLACED)) + 1
    n_reopened = _FIRST_REOPENED
    while True:
        pulse.beat()
        kept = max(0, n_buckets - n_reopened)
        records = np.flatnonzero((buckets >= kept) | (buckets == UNPLACED))
        codes = sa_codes[records]
        counts = np.bincount(codes, minlength=len(privacy.thresholds))
        try:
            if not kept or not privacy.ineligible(counts).any():
                setting = two_size(counts, privacy, max_bucket_size, pulse=pulse)
                break
        except InfeasibleError:
            if not kept:
                raise
        n_reopened *= 4
    limits = privacy.occurrence_limits(setting.sizes)
    buckets[records] = kept + assign_randomly(codes, counts, limits, setting, random)


def _by_size(buckets: IntArray) -> LocalAssignment:
    """Renumber the buckets, ascending with their size."""
    sizes = np.bincount(buckets)
    order = np.argsort(sizes, kind="stable")
    numbers = np.empty(sizes.size, dtype=np.int32)
    numbers[order] = np.arange(sizes.size)
    distinct, counts = np.unique(sizes, return_counts=True)
    return LocalAssignment(numbers[buckets], BucketSetting.of(distinct, counts))
