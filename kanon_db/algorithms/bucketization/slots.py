"""Where the records of buckets stand in bitmaps: slot by slot, so that buckets line up.

Buckets are numbered from 1, ascending with their size. All buckets of one size S follow each
other; their first records make one run of bits, their second records the next, up to S. A bitmap
shifted by a run then lies over the others, bucket on bucket, and one operation on whole bitmaps
works on all buckets at once.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray
from kanon_db.algorithms.ground.sorting import order_of, taken

_Integer = TypeVar("_Integer", bound=np.integer)


def bit_positions(
    bucket_numbers: AnyIntArray,
    order: AnyIntArray,
    setting: BucketSetting,
) -> CodeArray:
    """Give each record its place.

    Parameters
    ----------
    bucket_numbers : ndarray of int, shape (n_records,)
        Bucket of each record, from 1, ascending with the bucket size; n_records below 2^31.
    order : ndarray of int, shape (n_records,)
        A permutation of the records: in each bucket, they take their slots in this order.
    setting : BucketSetting

    Returns
    -------
    ndarray of int32, shape (n_records,)
        Distinct positions from 0 to n_records - 1.

    Examples
    --------
    >>> setting = BucketSetting.of([1, 2], [1, 2])
    >>> bit_positions(np.array([2, 1, 3, 3, 2]), np.arange(5), setting).tolist()
    [1, 0, 2, 4, 3]
    """
    ranked = taken(bucket_numbers, order)
    by_bucket = taken(order, order_of(ranked, stable=True))
    positions = np.empty(bucket_numbers.size, dtype=np.int32)
    positions[in_slots(by_bucket, setting)] = np.arange(positions.size, dtype=np.int32)
    return positions


def in_slots(by_bucket: npt.NDArray[_Integer], setting: BucketSetting) -> npt.NDArray[_Integer]:
    """Bring what is known of records, bucket after bucket, into the order of bits.

    Parameters
    ----------
    by_bucket : ndarray of int, shape (n_records,)
        By bucket number, and in each bucket by slot.
    setting : BucketSetting

    Returns
    -------
    ndarray of int, shape (n_records,)

    Examples
    --------
    >>> in_slots(np.array([7, 1, 2, 3, 4]), BucketSetting.of([1, 2], [1, 2])).tolist()
    [7, 1, 3, 2, 4]
    """
    ordered = np.empty_like(by_bucket)
    start = 0
    for size, count in setting.pairs:
        own = slice(start, start + size * count)
        # The records of a size form a table (bucket, slot): transpose it.
        ordered[own].reshape(size, count)[:] = by_bucket[own].reshape(count, size).T
        start = own.stop
    return ordered


def pack_bits(positions: AnyIntArray, n_records: int) -> bytes:
    """Set the bits at these positions; the first is the lowest of the first byte.

    Returns
    -------
    bytes
        ``int.from_bytes(…, "little")`` has bit p set for each position p.
    """
    bits = np.zeros(n_records, dtype=np.bool_)
    bits[positions] = True
    return np.packbits(bits, bitorder="little").tobytes()
