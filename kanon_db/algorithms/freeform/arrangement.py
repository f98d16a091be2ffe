"""The order in which records become the cells of a tree: close ones side by side."""

from __future__ import annotations

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.recoding.ncp import Ncp

BLOCK = 64
"""Cells of a block, which are weighed at once."""


def side_by_side(ncp: Ncp) -> IntArray:
    """Order records so that those of any block, and of neighboring ones, are close to each other.

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
    size = BLOCK
    while size < order.size:
        size *= 2
    _halve(ncp.values[by_row], step, size, order)
    return by_row[order]


@numba.njit(cache=True, nogil=True)
def _halve(values: CodeArray, step: IntArray, size: int, order: IntArray) -> None:
    """Halve the records at the median of the attribute they lose most in, down to blocks."""
    n, m = values.shape
    while size > BLOCK:
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
