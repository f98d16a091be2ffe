"""SortGreedy: in each round, the lightest edge of all first ([FF] Section 6)."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.freeform.graph import FAR, NONE, Graph, nearest, take
from kanon_db.algorithms.freeform.result import Freeform, no_heartbeat
from kanon_db.algorithms.freeform.rounds import VISITS_PER_CALL, resolve_dead_end, run_rounds
from kanon_db.algorithms.generalization.initial import check_k
from kanon_db.algorithms.generalization.loss import IntArray, Ncp
from kanon_db.algorithms.generalization.microdata import Microdata


def sort_greedy(
    microdata: Microdata,
    k: int,
    *,
    improve: bool = True,
    heartbeat: Callable[[], None] = no_heartbeat,
) -> Freeform:
    """Build k disjoint assignments, each by taking the lightest edge again and again.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Matches of each record, at least 1.
    improve : bool
        Whether the finished graph is refined, which takes most of the time
        (:func:`~kanon_db.algorithms.freeform.refinement.refined_matches`). False: the paper's
        algorithm.
    heartbeat : callable
        Called every few milliseconds; what it raises ends the work.

    Returns
    -------
    Freeform

    Raises
    ------
    InfeasibleError
        If there are fewer than ``k`` records.
    InvalidParameterError
        If ``k`` is less than 1.

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
    >>> from kanon_db.algorithms.generalization.microdata import Attribute
    >>> age = Attribute(4, numbers=np.array([20.0, 30, 50, 60]), lower=20, upper=60)
    >>> sort_greedy(Microdata([[0], [1], [2], [3]], (age,)), 2).matches.tolist()
    [[0, 1], [1, 0], [2, 3], [3, 2]]
    """
    check_k(k, microdata.n_records)
    return Freeform(sort_greedy_matches(Ncp.of(microdata), k, heartbeat, improve=improve))


def sort_greedy_matches(
    ncp: Ncp, k: int, heartbeat: Callable[[], None], *, improve: bool = True
) -> npt.NDArray[np.int32]:
    """Do the same for records whose losses are known in units.

    Parameters
    ----------
    ncp : Ncp
    k : int
        From 1 to the number of records.
    heartbeat : callable
    improve : bool

    Returns
    -------
    ndarray of int32, shape (n, k)
    """
    return run_rounds(ncp, k, _assign, greedily=True, improve=improve, heartbeat=heartbeat)


def _assign(
    graph: Graph, n_rounds: int, original_of_cell: IntArray, heartbeat: Callable[[], None]
) -> None:
    n = original_of_cell.size
    waits = np.ones(n, dtype=np.bool_)
    waits[original_of_cell[original_of_cell != NONE]] = False
    keys = np.empty(n, dtype=np.int64)
    wanted = np.full(n, NONE, dtype=np.int64)
    size = start = 0
    while start < n:
        start, size = _search(graph, n_rounds, waits, keys, wanted, start, size)
        heartbeat()
    keys[:size].sort()
    while size:
        size = _take(graph, n_rounds, original_of_cell, keys, wanted, size)
        heartbeat()
    done = np.zeros(n, dtype=np.bool_)
    done[original_of_cell[original_of_cell != NONE]] = True
    for original in np.flatnonzero(~done).tolist():
        resolve_dead_end(graph, original, n_rounds, original_of_cell)
        heartbeat()


@numba.njit(cache=True, nogil=True)
def _search(
    graph: Graph,
    n_rounds: int,
    waits: npt.NDArray[np.bool_],
    keys: IntArray,
    wanted: IntArray,
    start: int,
    size: int,
) -> tuple[int, int]:
    """Find the lightest edge of each original that waits."""
    n_visits = 0
    n = waits.size
    while start < n and n_visits < VISITS_PER_CALL:
        if waits[start]:
            cell, least, visits = nearest(graph, start, n_rounds, 0, False)
            n_visits += visits
            if cell != NONE:
                wanted[start] = cell
                keys[size] = least * n + start
                size += 1
        start += 1
    return start, size


@numba.njit(cache=True, nogil=True)
def _take(
    graph: Graph,
    n_rounds: int,
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
        if graph.available[cell]:
            original_of_cell[cell] = original
            take(graph, cell)
            n_visits += 1
            key = FAR
        else:
            # It was the lightest edge, and the others are no lighter.
            cell, least, visits = nearest(graph, original, n_rounds, keys[0] // n, False)
            n_visits += visits
            wanted[original] = cell
            key = least * n + original if cell != NONE else FAR
        if key == FAR:
            size -= 1
            key = keys[size]
        sift(keys, size, key)
    return size


@numba.njit(cache=True, nogil=True)
def sift(keys: IntArray, size: int, key: int) -> None:
    """Replace the least of a heap's keys.

    Parameters
    ----------
    keys : ndarray of int64
        The heap is in the first ``size`` of them; the least comes first.
    size : int
        After the replacement; where it has become smaller, ``key`` is the last of the keys before.
    key : int
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
