"""Row types that lose little together, found in windows of sorted orders."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, IntArray, Integer

NONE = -1
"""Stands for a neighbor where there are too few."""

_WINDOW = 24
_MAX_ORDERS = 12
_COMPARISONS_PER_CALL = 2**17  # of two row types: some milliseconds
_FAR = 2**31 - 1


def neighbors(
    values: CodeArray,
    numeric: BoolArray,
    whole: IntArray,
    step: IntArray,
    n_neighbors: int,
    random: np.random.Generator,
    heartbeat: Callable[[], None],
) -> CodeArray:
    """Find row types that lose little in one class with each of them.

    Parameters
    ----------
    values : ndarray of int32, shape (t, m)
        Distinct rows, as in :class:`~kanon_db.algorithms.recoding.ncp.Ncp`.
    numeric : ndarray of bool, shape (m,)
    whole, step : ndarray of int64, shape (m,)
    n_neighbors : int
        Most neighbors of each row type.
    random : numpy.random.Generator
    heartbeat : callable
        Called every few milliseconds.

    Returns
    -------
    ndarray of int32, shape (t, n_neighbors)
        Other row types, nearest first; -1 behind the last.

    Notes
    -----
    Rows are sorted several times, each attribute being the last, and so the least, in one of the
    orders; neighbors are the best of those at most 24 places away in one of them. Rows that
    differ in one or two attributes come to lie side by side so. It takes time linear in the
    number of rows, apart from sorting.
    """
    n_types, m = values.shape
    nearest = np.full((n_types, n_neighbors), NONE, dtype=np.int32)
    losses = np.full((n_types, n_neighbors), _FAR, dtype=np.int32)
    for last in random.permutation(m)[:_MAX_ORDERS]:
        others = random.permutation(np.delete(np.arange(m), last))
        order = np.lexsort(values.T[[last, *others[::-1]]])
        n_rows = max(_COMPARISONS_PER_CALL // _WINDOW, 1)
        for start in range(0, n_types, n_rows):
            heartbeat()
            _compare(
                values, numeric, whole, step, order, start, min(start + n_rows, n_types),
                nearest, losses,
            )  # fmt: skip
    return nearest


@numba.njit(cache=True, nogil=True)
def _compare(
    values: CodeArray,
    numeric: BoolArray,
    whole: IntArray,
    step: IntArray,
    order: IntArray,
    start: Integer,
    end: Integer,
    nearest: CodeArray,
    losses: CodeArray,
) -> None:
    """Compare each row in a part of the order with those behind it."""
    for i in range(start, end):
        a = order[i]
        for following in range(i + 1, min(i + 1 + _WINDOW, order.size)):
            b = order[following]
            loss = 0
            for j in range(numeric.size):
                if numeric[j]:
                    loss += min(abs(np.int64(values[a, j]) - values[b, j]), whole[j])
                elif values[a, j] != values[b, j]:
                    loss += step[j]
            _keep(nearest[a], losses[a], b, loss)
            _keep(nearest[b], losses[b], a, loss)


@numba.njit(cache=True, nogil=True)
def _keep(nearest: CodeArray, losses: CodeArray, other: Integer, loss: Integer) -> None:
    """Enter a row type among the nearest if it belongs there and is not there yet."""
    if loss >= losses[-1]:
        return
    place = losses.size - 1
    while place > 0 and losses[place - 1] >= loss:
        place -= 1
        if nearest[place] == other:
            return
    while losses[place] == loss:  # behind its equals
        place += 1
    for later in range(losses.size - 1, place, -1):
        nearest[later], losses[later] = nearest[later - 1], losses[later - 1]
    nearest[place], losses[place] = other, loss
