"""SortGreedy: in each round, the lightest edge of all first ([FF] Section 6)."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np

from kanon_db.algorithms.freeform.graph import FAR, NONE, Graph, nearest, take
from kanon_db.algorithms.freeform.rounds import VISITS_PER_CALL, resolve_dead_end, run_rounds
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.pulse import no_heartbeat
from kanon_db.algorithms.recoding.ncp import Ncp


def sort_greedy(
    ncp: Ncp,
    k: int,
    *,
    improve: bool = True,
    heartbeat: Callable[[], None] = no_heartbeat,
) -> CodeArray:
    """Build k disjoint assignments, each by taking the lightest edge again and again.

    Parameters
    ----------
    ncp : Ncp
    k : int
        Matches of each record, from 1 to the number of records.
    improve : bool
        Whether the finished graph is refined, which takes most of the time
        (:func:`~kanon_db.algorithms.freeform.refinement.refined_matches`). False: the paper's
        algorithm.
    heartbeat : callable
        Called every few milliseconds; what it raises ends the work.

    Returns
    -------
    ndarray of int32, shape (n, k)
        As in :class:`~kanon_db.algorithms.freeform.result.Freeform`.

    Notes
    -----
    **Source:** [FF] Algorithm 2, Lemma 5.1. Weights are the increase of NCP, times the attribute's
    weight. The paper leaves open which of equal edges comes first: here those between identical
    records do, if these are at least k, then those of the originals that come first in the order
    of the tree.

    The edges are never listed. Each original waits with the lightest of its edges, found in a
    tree of boxes; if the cell is gone when it is its turn, it looks again. As cells only become
    fewer, the edges are taken in the order of their weight exactly. Memory is O(n (m + k)), and
    time that of a few searches for each record and round.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
    >>> age = Attribute(4, numbers=np.array([20.0, 30, 50, 60]), lower=20, upper=60)
    >>> table = Microdata([[0], [1], [2], [3]], (age,))
    >>> sort_greedy(Ncp.of(table), 2).tolist()
    [[0, 1], [1, 0], [2, 3], [3, 2]]
    """
    return run_rounds(ncp, k, _assign, greedily=True, improve=improve, heartbeat=heartbeat)


def _assign(
    graph: Graph, n_rounds: int, original_of_cell: IntArray, heartbeat: Callable[[], None]
) -> None:
    take_lightest(graph, n_rounds, original_of_cell, heartbeat, mutual=False)
    for original in np.setdiff1d(np.arange(original_of_cell.size), original_of_cell).tolist():
        resolve_dead_end(graph, original, n_rounds, original_of_cell)
        heartbeat()


def take_lightest(
    graph: Graph,
    n_rounds: int,
    original_of_cell: IntArray,
    heartbeat: Callable[[], None],
    *,
    mutual: bool,
) -> None:
    """Take the lightest edge again and again, as long as there is one.

    Parameters
    ----------
    graph : Graph
        With all cells available that are not assigned yet.
    n_rounds : int
        Rounds before, whose edges are left out.
    original_of_cell : ndarray of int64, shape (n,)
        In positions, -1 for cells without; changed in place.
    heartbeat : callable
        Called every few milliseconds.
    mutual : bool
        Whether edges are taken by twos, each with the one that goes the other way, whose weight
        counts, too. Then no cell may be assigned yet.
    """
    waiting = np.setdiff1d(np.arange(original_of_cell.size), original_of_cell)
    keys = np.empty(waiting.size, dtype=np.int64)
    wanted = np.full(original_of_cell.size, NONE, dtype=np.int64)
    start = size = 0
    while start < waiting.size:
        start, size = _search(graph, n_rounds, mutual, waiting, keys, wanted, start, size)
        heartbeat()
    keys[:size].sort()
    while size:
        size = _take(graph, n_rounds, mutual, original_of_cell, keys, wanted, size)
        heartbeat()


@numba.njit(cache=True, nogil=True)
def _search(
    graph: Graph,
    n_rounds: int,
    mutual: bool,
    waiting: IntArray,
    keys: IntArray,
    wanted: IntArray,
    start: int,
    size: int,
) -> tuple[int, int]:
    """Find the lightest edge of each original that waits."""
    n_visits = 0
    while start < waiting.size and n_visits < VISITS_PER_CALL:
        original = waiting[start]
        cell, least, visits = nearest(graph, original, n_rounds, 0, mutual)
        n_visits += visits
        if cell != NONE:
            wanted[original] = cell
            keys[size] = least * wanted.size + original
            size += 1
        start += 1
    return start, size


@numba.njit(cache=True, nogil=True)
def _take(
    graph: Graph,
    n_rounds: int,
    mutual: bool,
    original_of_cell: IntArray,
    keys: IntArray,
    wanted: IntArray,
    size: int,
) -> int:
    """Take the lightest edges, out of a heap; tell how many originals are left in it."""
    n_visits = 0
    n = wanted.size
    while size and n_visits < VISITS_PER_CALL:
        original = keys[0] % n
        cell = wanted[original]
        waits = not mutual or graph.available[original]
        key = FAR
        n_visits += 1
        if waits and graph.available[cell]:
            original_of_cell[cell] = original
            take(graph, cell)
            if mutual:
                original_of_cell[original] = cell
                take(graph, original)
        elif waits:
            # It was the lightest edge, and the others are no lighter.
            cell, least, visits = nearest(graph, original, n_rounds, keys[0] // n, mutual)
            n_visits += visits
            wanted[original] = cell
            if cell != NONE:
                key = least * n + original
        if key == FAR:
            size -= 1
            key = keys[size]
        _sift(keys, size, key)
    return size


@numba.njit(cache=True, nogil=True)
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
