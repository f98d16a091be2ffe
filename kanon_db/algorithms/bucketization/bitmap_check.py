"""Whether a bitmap has the buckets that it should have; knows nothing of how it was made."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import CodeArray


class Balance:
    """Compares sets of bits with the buckets of records, one value after the other.

    Parameters
    ----------
    bucket_of_bit : ndarray of int32, shape (n_bits,)
        The number, from 0, of the bucket that each bit stands for, -1 for bits to pass over. The
        first bit is the lowest of the first byte.
    n_buckets : int
    """

    def __init__(self, bucket_of_bit: CodeArray, n_buckets: int) -> None:
        self._bucket_of_bit = bucket_of_bit
        self._balance = np.zeros(n_buckets, dtype=np.int64)

    def differing(
        self, bits: npt.NDArray[np.uint8], buckets: CodeArray, counts: CodeArray | None = None
    ) -> int:
        """Count the buckets of which not as many bits are set as records are counted.

        Parameters
        ----------
        bits : ndarray of uint8, shape (n_bits / 8,)
        buckets : ndarray of int32, shape (n,)
            From 0, in any order, also repeatedly.
        counts : ndarray of int32, shape (n,), optional
            How many records are meant; one, if not given.

        Examples
        --------
        >>> balance = Balance(np.array([0, 0, 1, 1, 2, 2, -1, -1], dtype=np.int32), 3)
        >>> balance.differing(np.array([0b10001101], np.uint8), np.array([0, 1, 1], np.int32))
        0
        >>> balance.differing(np.array([0b10001101], np.uint8), np.array([0, 2, 1], np.int32))
        2
        """
        if counts is None:
            counts = np.ones(buckets.size, dtype=np.int32)
        return int(_differing(bits, self._bucket_of_bit, buckets, counts, self._balance))


@numba.njit(cache=True, nogil=True)
def _differing(
    bits: npt.NDArray[np.uint8],
    bucket_of_bit: CodeArray,
    buckets: CodeArray,
    counts: CodeArray,
    balance: npt.NDArray[np.int64],
) -> int:
    """Count them; the balance of each bucket is 0 before and afterwards."""
    for i in range(buckets.size):
        balance[buckets[i]] += counts[i]
    differing = 0
    for is_last in (False, True):  # first take bits off, then look at what they come to
        for i in range(bits.size):
            byte, bit = bits[i], 8 * i
            while byte:
                if byte & 1 and bucket_of_bit[bit] >= 0:
                    bucket = bucket_of_bit[bit]
                    if not is_last:
                        balance[bucket] -= 1
                    elif balance[bucket]:
                        differing += 1
                        balance[bucket] = 0
                byte >>= 1
                bit += 1
    for bucket in buckets:
        if balance[bucket]:
            differing += 1
            balance[bucket] = 0
    return differing
