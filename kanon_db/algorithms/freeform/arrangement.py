"""The order in which records become the leaves of a tree: close ones side by side."""

from __future__ import annotations

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.recoding.ncp import Ncp

LEAF = 8
"""Records of a leaf; the last ones may have fewer."""


def count_leaves(n_records: int) -> int:
    """Find how many leaves a full binary tree needs.

    Parameters
    ----------
    n_records : int

    Returns
    -------
    int
        A power of 2.
    """
    n_leaves = 1
    while n_leaves * LEAF < n_records:
        n_leaves *= 2
    return n_leaves


def side_by_side(ncp: Ncp) -> IntArray:
    """Order records so that those below any node of the tree are close to each other.

    Parameters
    ----------
    ncp : Ncp

    Returns
    -------
    ndarray of int64, shape (n,)
        Records in order.
    """
    by_row = np.lexsort(ncp.values.T[::-1])
    order = np.arange(by_row.size)
    step = np.where(ncp.numeric, 0, ncp.step)
    _halve(ncp.values[by_row], step, LEAF * count_leaves(by_row.size), order)
    return by_row[order]


@numba.njit(cache=True, nogil=True)
def _halve(values: CodeArray, step: IntArray, size: int, order: IntArray) -> None:
    """Halve the records at the median of the attribute they lose most in, down to the leaves."""
    n, m = values.shape
    while size > LEAF:
        for start in range(0, n, size):
            end = min(start + size, n)
            if end - start <= size // 2:
                continue
            part = order[start:end]
            widest, loss = 0, -1
            for j in range(m):
                column = values[part, j]
                if step[j]:
                    spread = (np.unique(column).size - 1) * step[j]
                else:
                    spread = np.int64(column.max()) - np.int64(column.min())
                if spread > loss:
                    widest, loss = j, spread
            if loss > 0:
                by_value = np.argsort(values[part, widest], kind="mergesort")
                order[start:end] = part[by_value]
        size //= 2
