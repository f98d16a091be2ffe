"""Where the records of buckets stand in bitmaps: slot by slot, so that buckets line up.

Buckets are numbered from 1, ascending with their size. All buckets of one size S follow each
other; their first records make one run of bits, their second records the next, up to S. A bitmap
shifted by a run then lies over the others, bucket on bucket, and one operation on whole bitmaps
works on all buckets at once.
"""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray


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
    # Numbers are sorted faster than places by numbers: each bucket with a place in the order.
    keys = bucket_numbers[order].astype("<i8")
    keys <<= 32
    keys |= np.arange(keys.size)
    keys.sort()
    by_bucket = order[keys.view("<i4")[::2]]
    sizes, counts = setting.sizes, setting.counts
    # In bucket order, the records of a size class form a table (bucket, slot): transpose it.
    runs = [
        np.arange(first, first + size * count, dtype=np.int32).reshape(size, count).T.ravel()
        for first, size, count in zip(
            (np.cumsum(sizes * counts) - sizes * counts).tolist(),
            sizes.tolist(),
            counts.tolist(),
            strict=True,
        )
    ]
    positions = np.empty(bucket_numbers.size, dtype=np.int32)
    positions[by_bucket] = np.concatenate(runs) if runs else []
    return positions


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
