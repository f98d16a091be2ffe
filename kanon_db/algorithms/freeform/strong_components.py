"""Strongly connected components: nodes that can reach each other."""

from __future__ import annotations

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray


@numba.njit(cache=True, nogil=True)
def strong_components(ends: IntArray, others: CodeArray) -> IntArray:
    """Find the strongly connected components of a directed graph.

    Parameters
    ----------
    ends : ndarray of int64, shape (n,)
        Where the edges of each node end in ``others``; they begin where those before end.
    others : ndarray of int32, shape (n_edges,)
        Nodes that the edges lead to.

    Returns
    -------
    ndarray of int64, shape (n,)
        Component of each node.

    Notes
    -----
    **Source:** Tarjan: Depth-first search and linear graph algorithms, 1972; without recursion.

    Examples
    --------
    >>> strong_components(np.array([1, 3, 4]), np.array([1, 0, 2, 2], dtype=np.int32)).tolist()
    [1, 1, 0]
    """
    n = ends.size
    component = np.full(n, -1, dtype=np.int64)
    index, low = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64)
    following = ends.copy()
    following[1:], following[0] = ends[:-1], 0
    path, open_ones = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    n_open = n_seen = n_components = 0
    for root in range(n):
        if index[root] >= 0:
            continue
        path[0], depth = root, 1
        while depth:
            node = path[depth - 1]
            if index[node] < 0:
                index[node] = low[node] = n_seen
                n_seen += 1
                open_ones[n_open] = node
                n_open += 1
            descends = False
            while following[node] < ends[node]:
                other = others[following[node]]
                if index[other] < 0:
                    path[depth] = other
                    depth += 1
                    descends = True
                    break
                if component[other] < 0:
                    low[node] = min(low[node], low[other])
                following[node] += 1
            if descends:
                continue
            if low[node] == index[node]:
                while True:
                    n_open -= 1
                    component[open_ones[n_open]] = n_components
                    if open_ones[n_open] == node:
                        break
                n_components += 1
            depth -= 1
    return component
