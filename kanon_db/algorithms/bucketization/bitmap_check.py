"""Whether a bitmap has the buckets that it should have; knows nothing of how it was made."""

from __future__ import annotations

from typing import Final

import numba
import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, WordArray


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
        words = np.zeros(-(-bits.size // 8), dtype="<u8")
        words.view(np.uint8)[: bits.size] = bits
        return int(_differing(words, self._bucket_of_bit, buckets, counts, self._balance))


_DE_BRUIJN: Final = 0x03F79D71B4CB0A89
_SHIFTED: Final = np.array([(_DE_BRUIJN << i) % 2**64 >> 58 for i in range(64)])
_MULTIPLIER: Final = np.uint64(_DE_BRUIJN)
_HIGHEST: Final = np.uint64(58)
_LOWEST: Final = np.argsort(_SHIFTED)
"""The place of a word's lowest bit, which alone is set, by the highest six bits of its product with
a number of which all parts of six bits differ: H. S. Warren, *Hacker's Delight* (2002), 5-4."""


@numba.njit(cache=True, nogil=True)
def _differing(
    words: WordArray,
    bucket_of_bit: CodeArray,
    buckets: CodeArray,
    counts: CodeArray,
    balance: IntArray,
) -> int:
    """Count them; the balance of each bucket is 0 before and afterwards."""
    left = 0
    for i in range(words.size):
        word = words[i]
        while word:
            lowest = word & (~word + np.uint64(1))
            bucket = bucket_of_bit[64 * i + _LOWEST[lowest * _MULTIPLIER >> _HIGHEST]]
            if bucket >= 0:
                balance[bucket] += 1
                left += 1
            word ^= lowest
    for i in range(buckets.size):
        balance[buckets[i]] -= counts[i]
        left -= counts[i]
    differing = 0
    for bucket in buckets:
        if balance[bucket]:
            differing += 1
            balance[bucket] = 0
    # Other buckets have only what their bits gave: nothing, if all the rest comes to nothing.
    if left or differing:
        differing += int(np.count_nonzero(balance))
        balance[:] = 0
    return differing
