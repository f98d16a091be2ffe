"""How often pairs of codes occur, also where a table of all pairs would not fit into memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray


@dataclass(frozen=True, eq=False)
class PairCounts:
    """How often each pair of codes occurs.

    Parameters
    ----------
    n_second : int
        One more than the largest second code.
    keys : ndarray of int64, shape (n_pairs,)
        ``first * n_second + second`` of the pairs that occur, ascending.
    counts : ndarray of int64, shape (n_pairs,)

    Examples
    --------
    >>> pairs = PairCounts.of(np.array([0, 0, 5]), np.array([1, 1, 0]), 2)
    >>> pairs.count(np.array([0, 5, 5]), np.array([1, 0, 1])).tolist()
    [2, 1, 0]
    """

    n_second: int
    keys: IntArray
    counts: IntArray

    @classmethod
    def of(cls, first: AnyIntArray, second: AnyIntArray, n_second: int) -> Self:
        """Count the pairs of two arrays of the same length, whose codes are at least 0."""
        keys, counts = np.unique(
            first.astype(np.int64) * n_second + second.astype(np.int64), return_counts=True
        )
        return cls(n_second, keys, counts.astype(np.int64))

    def count(self, first: AnyIntArray, second: AnyIntArray) -> IntArray:
        """Return how often each of these pairs occurs, shape as the arguments."""
        if not self.keys.size:
            return np.zeros(np.shape(first), dtype=np.int64)
        wanted = first.astype(np.int64) * self.n_second + second.astype(np.int64)
        place = np.minimum(np.searchsorted(self.keys, wanted), self.keys.size - 1)
        return np.where(self.keys[place] == wanted, self.counts[place], 0)
