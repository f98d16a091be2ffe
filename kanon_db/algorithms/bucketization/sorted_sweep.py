"""Buckets from one sweep over sorted records: each closes as soon as it is private."""

from __future__ import annotations

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, SmallIntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.ground.sorting import order_of

UNPLACED = -1
"""Instead of a bucket number: the sweep left this record over."""

_RECORDS_PER_BLOCK = 2**15
_CELLS_PER_BLOCK = 2**22


def sweep(
    order: IntArray,
    sa_codes: CodeArray,
    limits: SmallIntArray,
    pulse: Pulse = UNLIMITED,
) -> IntArray:
    """Gather records in their order into buckets that respect the limits.

    No bucket holds a value more often than its limit. Records that share a bucket are close in
    the order, as far as the limits allow.

    Parameters
    ----------
    order : ndarray of int64, shape (n_records,)
        A permutation of the records: similar ones follow each other.
    sa_codes : ndarray of int32, shape (n_records,)
        Sensitive value of each record.
    limits : ndarray of int16, shape (m, M + 1)
        Most occurrences of each value in a bucket of each size 0 … M; not decreasing with the size.
    pulse : Pulse
        Beaten every few milliseconds of work; what that raises ends the sweep.

    Returns
    -------
    ndarray of int64, shape (n_records,)
        Buckets, numbered from 0 in the order in which they are closed; :data:`UNPLACED` for
        records left over at the end.

    Notes
    -----
    Records arrive one by one in a pool. Of a bucket of S records the pool can fill
    usable(S) = sum_i min(limit_iS, pooled_i) slots. As soon as usable(S) >= S for a size that is
    large enough for every pooled value, the largest such bucket is closed. It takes the records of
    each value that have waited longest; whatever a value has beyond its limit stays in the pool
    and meets the records to come. If more fit than there are slots, the most frequent value
    yields.

    Cost: O(n_records M) at most, O(M) for each pooled value of a bucket that leaves some behind.

    Examples
    --------
    >>> limits = np.array([[0, 0, 1, 1], [0, 1, 2, 3]], dtype=np.int16)  # a half, and anything
    >>> values = np.array([1, 0, 0, 1, 1, 0], dtype=np.int32)
    >>> sweep(np.arange(6), values, limits).tolist()
    [0, 1, 2, 1, 2, -1]
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
    length = max(1, min(_RECORDS_PER_BLOCK, _CELLS_PER_BLOCK // n_sizes))
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


def place_left_over(
    buckets: IntArray,
    order: IntArray,
    sa_codes: CodeArray,
    limits: SmallIntArray,
    pulse: Pulse = UNLIMITED,
) -> None:
    """Add each record left over to the nearest bucket that has room for its value.

    Parameters
    ----------
    buckets : ndarray of int64, shape (n_records,)
        What :func:`sweep` returned; changed in place. A record for whose value no bucket has room
        remains :data:`UNPLACED`.
    order, sa_codes, limits, pulse
        As for :func:`sweep`.

    Notes
    -----
    Near is measured in the sequence of the buckets. One more record of a value raises that
    value's share only, and limits do not decrease with the size, so no other value is affected.

    Examples
    --------
    >>> limits = np.array([[0, 0, 1, 1], [0, 1, 2, 3]], dtype=np.int16)
    >>> buckets, values = np.array([0, 1, 1, -1]), np.array([1, 1, 1, 0], dtype=np.int32)
    >>> place_left_over(buckets, np.arange(4), values, limits)
    >>> buckets.tolist()
    [0, 1, 1, 1]
    """
    waiting = order[buckets[order] == UNPLACED]
    if not waiting.size or waiting.size == order.size:
        return
    sizes = np.bincount(buckets[buckets != UNPLACED])
    # A record waits beside the last bucket that a record before it went to.
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
    """Place records of one value, whose limits these are."""
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
