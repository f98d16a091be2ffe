"""Greedy: in each round, each original takes the lightest of its edges in turn ([FF] Section 5)."""

from __future__ import annotations

from functools import partial

import numba
import numpy as np

from kanon_db.algorithms.freeform.arrangement import BLOCK
from kanon_db.algorithms.freeform.assignment_rounds import VISITS_PER_CALL, run_rounds
from kanon_db.algorithms.freeform.box_tree import take
from kanon_db.algorithms.freeform.dead_end import resolve_dead_end
from kanon_db.algorithms.freeform.descent import Search, find_cheapest, search_for
from kanon_db.algorithms.freeform.graph import NONE, Graph
from kanon_db.algorithms.freeform.partitions import lexicographic_order
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.ncp import Ncp


def greedy(ncp: Ncp, k: int, *, improve: bool = True, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Build k disjoint assignments, in each of which one original after the other chooses a cell.

    Parameters
    ----------
    ncp : Ncp
    k : int
        Matches of each record, from 1 to the number of records.
    improve : bool
        Whether the finished graph is improved, which takes most of the time
        (:func:`~kanon_db.algorithms.freeform.improvement.improved_matches`). Without it, this is
        the paper's algorithm.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    ndarray of int32, shape (n, k)
        As in :class:`~kanon_db.algorithms.freeform.result.Freeform`.

    Notes
    -----
    **Source:** [FF] Algorithm 1, Lemma 5.1, Theorem 5.2. Originals choose in lexicographic order
    (:func:`~kanon_db.algorithms.freeform.partitions.lexicographic_order`); only identical records,
    if there are at least k of them, have matched each other before. An original that finds no
    cell is helped by the cheapest exchange
    (:func:`~kanon_db.algorithms.freeform.dead_end.resolve_dead_end`), with any k up to n.

    The lightest edge is found in a tree of boxes: exactly, without looking at all n cells.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
    >>> age = Attribute(4, numbers=np.array([20.0, 30, 50, 60]), lower=20, upper=60)
    >>> table = Microdata([[0], [1], [2], [3]], (age,))
    >>> greedy(Ncp.of(table), 2).tolist()
    [[0, 1], [1, 0], [2, 3], [3, 2]]
    """
    rank = np.argsort(lexicographic_order(ncp.values))
    return run_rounds(ncp, k, partial(_assign, rank), greedily=True, improve=improve, pulse=pulse)


def _assign(
    rank: IntArray, graph: Graph, n_rounds: int, original_of_cell: IntArray, pulse: Pulse
) -> None:
    search = search_for(1, n_rounds)
    order = np.argsort(rank[graph.record])
    order, start = order[~np.isin(order, original_of_cell)], 0
    while start < order.size:
        start = _choose(graph, search, original_of_cell, order, start)
        pulse.beat()


@numba.njit(cache=True, nogil=True)
def _choose(
    graph: Graph, search: Search, original_of_cell: IntArray, order: IntArray, start: int
) -> int:
    """Let originals choose, one after the other from a start; tell which one is next."""
    n_visits = 0
    while start < order.size and n_visits < VISITS_PER_CALL:
        original = order[start]
        n_visits += BLOCK * find_cheapest(graph, search, original, np.int64(0))
        cell = search.cells[0]
        if cell == NONE:
            resolve_dead_end(graph, original, search.n_rounds, original_of_cell)
            n_visits += original_of_cell.size
        else:
            original_of_cell[cell] = original
            take(graph, cell)
        start += 1
    return start
