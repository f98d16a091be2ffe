"""What a round does about an original that finds no cell: others give theirs up for it.

It happens to a few at the end of a round, and takes time in the number of cells.
"""

from __future__ import annotations

import numba
import numpy as np

from kanon_db.algorithms.freeform.box_tree import take
from kanon_db.algorithms.freeform.boxes import weight
from kanon_db.algorithms.freeform.graph import FAR, NONE, Graph, is_matched
from kanon_db.algorithms.ground.arrays import IntArray, Integer


@numba.njit(cache=True, nogil=True)
def resolve_dead_end(
    graph: Graph, original: int, n_rounds: int, original_of_cell: IntArray
) -> None:
    """Assign an original that may take none of the available cells.

    Parameters
    ----------
    graph : Graph
    original : int
        Position.
    n_rounds : int
        Rounds before.
    original_of_cell : ndarray of int64, shape (n,)
        The assignment so far, changed in place.

    Notes
    -----
    **Source:** [FF] Lemma 5.1, Theorem 5.2: another original gives up its cell and takes one of
    those that are available, which exists for k < (n + 3) / 2. The paper takes the nearest
    predecessor that can do so; here it is the exchange that costs least, in time of the same
    order, n times the at most n_rounds cells available. For larger k there may be no single
    exchange. Then it is the shortest chain of them, which always exists, because edges that were
    not taken in earlier rounds form a regular graph.
    """
    given_up, free = _cheapest_exchange(graph, original, n_rounds, original_of_cell)
    if given_up != NONE:
        original_of_cell[free] = original_of_cell[given_up]
        original_of_cell[given_up] = original
    else:
        free = _shift_along_chain(graph, original, n_rounds, original_of_cell)
    take(graph, free)


@numba.njit(cache=True, nogil=True)
def _cheapest_exchange(
    graph: Graph, original: int, n_rounds: int, original_of_cell: IntArray
) -> tuple[Integer, Integer]:
    """Find the cell that is best given up, and the free one taken instead; -1 if there is none."""
    available = np.flatnonzero(graph.price[: original_of_cell.size] < FAR)
    cells_of = graph.cells_of
    given_up, taken, least = NONE, NONE, FAR
    for cell in range(original_of_cell.size):
        other = original_of_cell[cell]
        if other == NONE or is_matched(cells_of, original, cell, n_rounds):
            continue
        cost = weight(graph, original, cell)
        cost -= weight(graph, other, cell)
        for position in range(available.size):
            free = int(available[position])
            if cost < least and not is_matched(cells_of, other, free, n_rounds):
                moved = cost + weight(graph, other, free)
                if moved < least:
                    given_up, taken, least = cell, free, moved
    return given_up, taken


@numba.njit(cache=True, nogil=True)
def _shift_along_chain(
    graph: Graph, original: int, n_rounds: int, original_of_cell: IntArray
) -> Integer:
    """Assign the original by the shortest chain of exchanges; return the free cell at its end.

    The search is breadth first, from cells to the originals that hold them.
    """
    n = original_of_cell.size
    held = np.full(n, NONE, dtype=np.int64)
    for cell in range(n):
        if original_of_cell[cell] != NONE:
            held[original_of_cell[cell]] = cell
    wanted_by = np.full(n, NONE, dtype=np.int64)
    queue = np.empty(n + 1, dtype=np.int64)
    queue[0], begin, end = original, 0, 1
    while begin < end:
        wanting = queue[begin]
        begin += 1
        for cell in range(n):
            if wanted_by[cell] != NONE or is_matched(graph.cells_of, wanting, cell, n_rounds):
                continue
            wanted_by[cell] = wanting
            if original_of_cell[cell] == NONE:
                _pass_on(original, cell, held, wanted_by, original_of_cell)
                return cell
            queue[end] = original_of_cell[cell]
            end += 1
    return NONE


@numba.njit(cache=True, nogil=True)
def _pass_on(
    original: int, free: int, held: IntArray, wanted_by: IntArray, original_of_cell: IntArray
) -> None:
    """Give each cell of the chain to the original that wants it, from the free one backwards."""
    cell = free
    while True:
        wanting = wanted_by[cell]
        original_of_cell[cell] = wanting
        if wanting == original:
            return
        cell = held[wanting]
