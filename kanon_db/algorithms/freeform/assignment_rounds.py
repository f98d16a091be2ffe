"""The frame of the heuristics: one assignment a round, found by the method's own way."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from kanon_db.algorithms.freeform.box_tree import extend, open_round, refresh
from kanon_db.algorithms.freeform.graph import FAR, NONE, Graph, build, matches_of_records
from kanon_db.algorithms.freeform.improvement import improved_matches
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.recoding.ncp import Ncp

VISITS_PER_CALL = 2**21
"""Boxes that are looked at between two heartbeats: some milliseconds."""


class Round(Protocol):
    """A way to find the assignment of one round."""

    def __call__(
        self, graph: Graph, n_rounds: int, original_of_cell: IntArray, pulse: Pulse
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
        pulse : Pulse
            To be beaten every few milliseconds.
        """


def run_rounds(
    ncp: Ncp, k: int, assign: Round, *, greedily: bool, improve: bool, pulse: Pulse
) -> CodeArray:
    """Build k disjoint assignments, the identity first, one in each round.

    Parameters
    ----------
    ncp : Ncp
    k : int
        From 1 to the number of records.
    assign : Round
    greedily : bool
        Whether identical records, if there are at least k of them, match each other at no cost:
        the r-th round shifts them by r places. It leaves less to the others.
    improve : bool
        Whether the finished graph is improved
        (:func:`~kanon_db.algorithms.freeform.improvement.improved_matches`).
    pulse : Pulse

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
        pulse.beat()
        open_round(graph)
        original_of_cell = np.full(graph.record.size, NONE, dtype=np.int64)
        if greedily:
            place = np.arange(by_type.size) - first
            shifted = by_type[first + (place + n_rounds) % size]
            rotated = size >= k
            original_of_cell[by_type[rotated]] = shifted[rotated]
            graph.price[by_type[rotated]] = FAR
            refresh(graph)
        assign(graph, n_rounds, original_of_cell, pulse)
        extend(graph, original_of_cell, n_rounds)
    matches = matches_of_records(graph)
    return improved_matches(ncp, matches, pulse=pulse) if improve else matches


def _identical(values: CodeArray) -> tuple[IntArray, IntArray, IntArray]:
    """Sort records by their rows; find where the equals of each begin, and how many there are."""
    order = np.lexsort(values.T[::-1])
    rows = values[order]
    is_first = np.append(True, (rows[1:] != rows[:-1]).any(axis=1))
    starts = np.flatnonzero(is_first)
    sizes = np.diff(starts, append=order.size)
    return order, np.repeat(starts, sizes), np.repeat(sizes, sizes)
