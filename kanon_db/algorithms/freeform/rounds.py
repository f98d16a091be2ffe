"""The shell of the heuristics: one assignment a round, and what to do where it gets stuck."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numba
import numpy as np

from kanon_db.algorithms.freeform.graph import (
    FAR,
    NONE,
    Graph,
    build,
    extend,
    is_matched,
    matches_of_records,
    open_round,
    refresh,
    take,
    weight,
)
from kanon_db.algorithms.freeform.refinement import refined_matches
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.recoding.ncp import Ncp

VISITS_PER_CALL = 2**16
"""Cells and nodes of the tree that are looked at between two heartbeats: some milliseconds."""


class Round(Protocol):
    """A way to find the assignment of one round."""

    def __call__(
        self, graph: Graph, n_rounds: int, original_of_cell: IntArray, heartbeat: Callable[[], None]
    ) -> None:
        """Assign an original to each cell.

        Parameters
        ----------
        graph : Graph
            With all cells available that are not assigned yet.
        n_rounds : int
            Rounds before, whose edges must not be taken again.
        original_of_cell : ndarray of int64, shape (n,)
            In positions; -1 for the cells that are to be filled.
        heartbeat : callable
            To be called every few milliseconds.
        """


def run_rounds(
    ncp: Ncp,
    k: int,
    assign: Round,
    *,
    greedily: bool,
    improve: bool,
    heartbeat: Callable[[], None],
) -> CodeArray:
    """Build k disjoint assignments, the identity first, one in each round.

    Parameters
    ----------
    ncp : Ncp
    k : int
        From 1 to the number of records.
    assign : Round
    greedily : bool
        Whether identical records, if there are at least k of them, match each other, at no cost:
        the r-th round shifts them by r places. It leaves less to the others.
    improve : bool
        Whether the finished graph is refined
        (:func:`~kanon_db.algorithms.freeform.refinement.refined_matches`).
    heartbeat : callable
        Called every few milliseconds.

    Returns
    -------
    ndarray of int32, shape (n, k)
        As in :class:`~kanon_db.algorithms.freeform.result.Freeform`.

    Notes
    -----
    **Source:** [FF] Section 5.
    """
    graph = build(ncp, k)
    by_type, first, size = _identical(ncp.values[graph.record])
    for n_rounds in range(1, k):
        heartbeat()
        open_round(graph)
        original_of_cell = np.full(graph.record.size, NONE, dtype=np.int64)
        if greedily:
            place = np.arange(by_type.size) - first
            shifted = by_type[first + (place + n_rounds) % size]
            rotated = size >= k
            original_of_cell[by_type[rotated]] = shifted[rotated]
            graph.available[by_type[rotated]] = False
            refresh(graph)
        assign(graph, n_rounds, original_of_cell, heartbeat)
        extend(graph, original_of_cell, n_rounds)
    matches = matches_of_records(graph)
    return refined_matches(ncp, matches, heartbeat) if improve else matches


def _identical(values: CodeArray) -> tuple[IntArray, IntArray, IntArray]:
    """Sort records by their rows; say where each one's equals begin, and how many they are."""
    order = np.lexsort(values.T[::-1])
    rows = values[order]
    is_first = np.append(True, (rows[1:] != rows[:-1]).any(axis=1))
    starts = np.flatnonzero(is_first)
    sizes = np.diff(starts, append=order.size)
    return order, np.repeat(starts, sizes), np.repeat(sizes, sizes)


@numba.njit(cache=True, nogil=True)
def resolve_dead_end(
    graph: Graph, original: int, n_rounds: int, original_of_cell: IntArray
) -> None:
    """Assign an original none of whose edges to available cells is free to be taken.

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
    predecessor that can do so; here it is the exchange that costs least, at the same order of
    time, n times the at most n_rounds cells available. For larger k there may be no single
    exchange: then it is the shortest chain of them, which always exists, because edges that were
    not taken in earlier rounds form a regular graph.
    """
    n = original_of_cell.size
    free = np.flatnonzero(graph.available)
    best_cell, best_free, least = NONE, NONE, FAR
    for cell in range(n):
        other = original_of_cell[cell]
        if other == NONE or is_matched(graph, original, cell, n_rounds):
            continue
        cost = weight(graph, original, cell, FAR) - weight(graph, other, cell, FAR)
        for position in range(free.size):
            m = int(free[position])
            if cost < least and not is_matched(graph, other, m, n_rounds):
                moved = cost + weight(graph, other, m, FAR)
                if moved < least:
                    best_cell, best_free, least = cell, m, moved
    if best_cell != NONE:
        original_of_cell[best_free] = original_of_cell[best_cell]
        original_of_cell[best_cell] = original
        take(graph, best_free)
        return
    # Breadth first, from cells to the originals that hold them: reached[cell] is who wants it.
    reached = np.full(n, NONE, dtype=np.int64)
    queue = np.empty(n + 1, dtype=np.int64)
    queue[0], begin, end = original, 0, 1
    held = np.full(n, NONE, dtype=np.int64)
    for cell in range(n):
        if original_of_cell[cell] != NONE:
            held[original_of_cell[cell]] = cell
    while begin < end:
        wanting = queue[begin]
        begin += 1
        for cell in range(n):
            if reached[cell] != NONE or is_matched(graph, wanting, cell, n_rounds):
                continue
            reached[cell] = wanting
            if original_of_cell[cell] == NONE:
                take(graph, cell)
                while True:
                    wanting = reached[cell]
                    original_of_cell[cell] = wanting
                    if wanting == original:
                        return
                    cell = held[wanting]  # noqa: PLW2901  # the loop ends here
            queue[end] = original_of_cell[cell]
            end += 1
