"""Records as bits and positions, from which losses of classes follow fast."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, Integer, WordArray
from kanon_db.algorithms.recoding.ncp import Ncp

_BITS = 64
# Multiplied by a power of two, its leading six bits tell which one.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_LOWEST_BIT = np.zeros(64, dtype=np.int64)
_LOWEST_BIT[[(0x03F79D71B4CB0A89 << position) % 2**64 >> 58 for position in range(64)]] = np.arange(
    64
)


class PackedRecords(NamedTuple):
    """Records as bits and positions.

    Parameters
    ----------
    words : ndarray of int32, shape (n_records, g)
        Of each group of attributes, which word the bits of the record are in.
    bits : ndarray of uint64, shape (n_records, g)
        The bits themselves: one for each attribute of the group.
    bit_loss : ndarray of int64, shape (64 n_words,)
        Loss, in units, of one more value, by its bit.
    numbers : ndarray of int32, shape (n_records, p)
        Positions of the numeric attributes.
    whole : ndarray of int64, shape (p,)
        Loss, in units, of a numeric cell that tells nothing.
    one_value : int
        Loss, in units, of the bits of one record, which a class does not lose.
    """

    words: CodeArray
    bits: WordArray
    bit_loss: IntArray
    numbers: CodeArray
    whole: IntArray
    one_value: int

    @classmethod
    def of(cls, ncp: Ncp) -> PackedRecords:
        """Pack the values of records.

        Parameters
        ----------
        ncp : Ncp

        Returns
        -------
        PackedRecords

        Notes
        -----
        Attributes with few values share a word; one with more than 64 has words of its own.
        Only values that occur get a bit.
        """
        categorical = np.flatnonzero(~ncp.numeric).tolist()
        codes = {j: np.unique(ncp.values[:, j], return_inverse=True)[1] for j in categorical}
        sizes = {j: int(codes[j].max(initial=0)) + 1 for j in categorical}
        groups: list[tuple[int, list[int]]] = []  # bits in use, attributes
        for j in sorted(categorical, key=lambda j: -sizes[j]):
            for position, (n_used, members) in enumerate(groups):
                if n_used + sizes[j] <= _BITS:
                    groups[position] = (n_used + sizes[j], [*members, j])
                    break
            else:
                groups.append((sizes[j], [j]))
        n_words = [-(-n_used // _BITS) for n_used, _ in groups]
        words = np.zeros((ncp.values.shape[0], len(groups)), dtype=np.int32)
        bits = np.zeros(words.shape, dtype=np.uint64)
        bit_loss = np.zeros(sum(n_words) * _BITS, dtype=np.int64)
        for g, (_, members) in enumerate(groups):
            offset = sum(n_words[:g]) * _BITS
            words[:, g] = offset // _BITS
            for j in members:
                positions = offset + codes[j]
                words[:, g] = positions // _BITS
                bits[:, g] |= np.uint64(1) << (positions % _BITS).astype(np.uint64)
                bit_loss[offset : offset + sizes[j]] = ncp.step[j]
                offset += sizes[j]
        numbers = np.ascontiguousarray(ncp.values[:, ncp.numeric])
        one_value = int(ncp.step.sum())
        return cls(words, bits, bit_loss, numbers, ncp.whole[ncp.numeric], one_value)

    @property
    def n_words(self) -> int:
        """Words of the set of a class."""
        return self.bit_loss.size // _BITS


@numba.njit(cache=True, nogil=True)
def _lowest_bit(bits: np.uint64) -> Integer:
    """Find the position of the lowest bit that is set."""
    alone = bits & (~bits + np.uint64(1))
    return np.int64(_LOWEST_BIT[(alone * _DE_BRUIJN) >> np.uint64(58)])


@numba.njit(cache=True, nogil=True)
def bits_loss(bits: np.uint64, word: Integer, bit_loss: IntArray) -> Integer:
    """Loss, in units, of all values of a word."""
    total = 0
    while bits:
        total += int(bit_loss[np.int64(word) * 64 + _lowest_bit(bits)])
        bits &= bits - np.uint64(1)
    return total
