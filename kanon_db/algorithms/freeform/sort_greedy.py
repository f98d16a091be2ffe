"""SortGreedy: in each round, the lightest edge of all first ([FF] Section 6)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kanon_db.algorithms.freeform.arrangement import BLOCK
from kanon_db.algorithms.freeform.assignment_rounds import VISITS_PER_CALL, run_rounds
from kanon_db.algorithms.freeform.box_tree import take
from kanon_db.algorithms.freeform.dead_end import resolve_dead_end
from kanon_db.algorithms.freeform.descent import Search, find_cheapest, search_for
from kanon_db.algorithms.freeform.graph import FAR, NONE, Graph
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.compiled import innermost
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.ncp import Ncp


def sort_greedy(ncp: Ncp, k: int, *, improve: bool = True, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Build k disjoint assignments, each by taking the lightest edge again and again.

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
    **Source:** [FF] Algorithm 2, Lemma 5.1. Weights are the increase of NCP, times the attribute's
    weight. The paper leaves open which of equal edges comes first: here those between identical
    records do, if these are at least k, then those of the originals that come first in the order
    of the tree; of an original's, that to the cell which is found first
    (:func:`~kanon_db.algorithms.freeform.descent.find_cheapest`).

    The edges are never listed. Each original waits with the lightest of its edges, found in a
    tree of boxes, of which 64 are weighed at once; if the cell is gone when it is its turn, it
    looks again. As cells only become fewer, the edges are taken exactly in the order of their
    weight. Memory is O(n (m + k)), and time that of a few searches for each record and round.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
    >>> age = Attribute(4, numbers=np.array([20.0, 30, 50, 60]), lower=20, upper=60)
    >>> table = Microdata([[0], [1], [2], [3]], (age,))
    >>> sort_greedy(Ncp.of(table), 2).tolist()
    [[0, 1], [1, 0], [2, 3], [3, 2]]
    """
    return run_rounds(ncp, k, _assign, greedily=True, improve=improve, pulse=pulse)


def _assign(graph: Graph, n_rounds: int, original_of_cell: IntArray, pulse: Pulse) -> None:
    take_lightest(graph, search_for(1, n_rounds), original_of_cell, pulse)
    for original in np.setdiff1d(np.arange(original_of_cell.size), original_of_cell).tolist():
        resolve_dead_end(graph, original, n_rounds, original_of_cell)
        pulse.beat()


class _Queue(NamedTuple):
    """Originals that wait for the cell they can have at the least weight.

    Parameters
    ----------
    keys : ndarray of int64, shape (n,)
        Weight times n plus original; those of the first so many that wait, a heap.
    wanted : ndarray of int64, shape (n,)
        Cell that each original waits for.
    """

    keys: IntArray
    wanted: IntArray


def take_lightest(graph: Graph, search: Search, original_of_cell: IntArray, pulse: Pulse) -> None:
    """Take the lightest edge again and again, as long as there is one.

    Parameters
    ----------
    graph : Graph
        With all cells available that are not assigned yet.
    search : Search
        For one cell. If it is mutual, edges are taken in pairs, each with the one that goes the
        other way; then no cell may be assigned yet.
    original_of_cell : ndarray of int64, shape (n,)
        In positions, -1 for cells without one; changed in place.
    pulse : Pulse
    """
    n = original_of_cell.size
    waiting = np.setdiff1d(np.arange(n), original_of_cell)
    queue = _Queue(np.empty(n, dtype=np.int64), np.full(n, NONE, dtype=np.int64))
    start = size = 0
    while start < waiting.size:
        start, size = _enter(graph, search, queue, waiting, start, size)
        pulse.beat()
    queue.keys[:size].sort()
    while size:
        size = _serve(graph, search, queue, original_of_cell, size)
        pulse.beat()


@innermost
def _enter(
    graph: Graph, search: Search, queue: _Queue, waiting: IntArray, start: int, size: int
) -> tuple[int, int]:
    """Put each original that waits into the queue, unless no cell is left for it."""
    n_visits = 0
    while start < waiting.size and n_visits < VISITS_PER_CALL:
        original = waiting[start]
        n_visits += BLOCK * find_cheapest(graph, search, original, np.int64(0))
        if search.cells[0] != NONE:
            queue.wanted[original] = search.cells[0]
            queue.keys[size] = search.costs[0] * queue.wanted.size + original
            size += 1
        start += 1
    return start, size


@innermost
def _serve(
    graph: Graph, search: Search, queue: _Queue, original_of_cell: IntArray, size: int
) -> int:
    """Take the lightest edges, out of the queue; tell how many originals are left in it."""
    n_visits = 0
    keys, wanted, prices = queue.keys, queue.wanted, graph.price
    n = wanted.size
    while size and n_visits < VISITS_PER_CALL:
        original = keys[0] % n
        cell = np.int64(wanted[original])
        waits = not search.mutual or prices[original] < FAR
        key = FAR
        n_visits += 1
        if waits and prices[cell] < FAR:
            original_of_cell[cell] = original
            take(graph, cell)
            if search.mutual:
                original_of_cell[original] = cell
                take(graph, original)
        elif waits:
            # It was the lightest edge, and the others are no lighter.
            n_visits += BLOCK * find_cheapest(graph, search, original, keys[0] // n)
            wanted[original] = search.cells[0]
            if search.cells[0] != NONE:
                key = search.costs[0] * n + original
        if key == FAR:
            size -= 1
            key = keys[size]
        _sift(keys, size, key)
    return size


@innermost
def _sift(keys: IntArray, size: int, key: int) -> None:
    """Replace the least of a heap's keys.

    The heap is in the first ``size`` of them. Where that is one less than before, ``key`` is the
    last of the keys before.
    """
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[place] = keys[child]
        place = child
    if place < size:
        keys[place] = key
