"""Hungarian: in each round, the assignment of least weight ([FF] Section 7)."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np

from kanon_db.algorithms.freeform.graph import FAR, NONE, Graph, cheapest, raise_price, refresh
from kanon_db.algorithms.freeform.rounds import VISITS_PER_CALL, run_rounds
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.pulse import no_heartbeat
from kanon_db.algorithms.recoding.ncp import Ncp

_N_KNOWN = 16  # cells that each original remembers
_FIRST_SHARE = 64  # of the largest weight: the first increment
_DIVISOR = 6  # of the increment, from one pass to the next


def hungarian(
    ncp: Ncp,
    k: int,
    *,
    improve: bool = True,
    heartbeat: Callable[[], None] = no_heartbeat,
) -> CodeArray:
    """Build k disjoint assignments, each of the least total weight that is left.

    Parameters
    ----------
    ncp : Ncp
    k : int
        Matches of each record, from 1 to the number of records.
    improve : bool
        Whether the finished graph is refined
        (:func:`~kanon_db.algorithms.freeform.refinement.refined_matches`). False: the paper's
        algorithm, each round of which is optimal given those before.
    heartbeat : callable
        Called every few milliseconds; what it raises ends the work.

    Returns
    -------
    ndarray of int32, shape (n, k)
        As in :class:`~kanon_db.algorithms.freeform.result.Freeform`; optimal for k = 2.

    Notes
    -----
    **Source:** [FF] Section 7. The paper's solver is the Hungarian algorithm on an n x n matrix;
    here it is the auction algorithm for the same problem, see :func:`assign_at_least_weight`.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
    >>> age = Attribute(4, numbers=np.array([20.0, 30, 50, 60]), lower=20, upper=60)
    >>> table = Microdata([[0], [1], [2], [3]], (age,))
    >>> hungarian(Ncp.of(table), 2).tolist()
    [[0, 1], [1, 0], [2, 3], [3, 2]]
    """
    return run_rounds(
        ncp, k, assign_at_least_weight, greedily=False, improve=improve, heartbeat=heartbeat
    )


def assign_at_least_weight(
    graph: Graph, n_rounds: int, original_of_cell: IntArray, heartbeat: Callable[[], None]
) -> None:
    """Find an assignment of least total weight, exactly.

    Parameters
    ----------
    graph : Graph
    n_rounds : int
        Rounds before, whose edges are left out.
    original_of_cell : ndarray of int64, shape (n,)
        Takes the assignment, in positions.
    heartbeat : callable
        Called every few milliseconds.

    Notes
    -----
    **Source:** Bertsekas: The auction algorithm: a distributed relaxation method for the
    assignment problem, 1988. Each original without a cell bids for the one that is cheapest for
    it by weight and price, and raises its price up to where the second cheapest would be as good,
    and by an increment; who had the cell before bids again. In the end the total is above the
    optimum by less than n increments. Weights count n + 1 units of price each and the last
    increment is one unit, so the assignment is optimal. Passes with larger increments give
    the prices to begin with.

    Instead of rows of a matrix, each original remembers the 16 cells that were the cheapest when
    it last looked, and what the last of them cost. As prices never fall, all other cells cost as
    much at least: what it remembers is enough for as long as two of its cells cost no more. Then
    it searches the tree of boxes, which knows the least price below each node. So each bid is that
    of the plain algorithm, in O(n) memory.
    """
    n = original_of_cell.size
    scale = n + 1
    graph.available[:] = True
    graph.price[:] = 0
    refresh(graph)
    cells = np.full((n, _N_KNOWN), NONE, dtype=np.int32)
    weights = np.zeros((n, _N_KNOWN), dtype=np.int64)
    others = np.full(n, -1, dtype=np.int64)
    largest = int(graph.whole.sum()) + int(graph.step.sum())
    increment = max(largest * scale // _FIRST_SHARE, 1)
    while True:
        original_of_cell[:] = NONE
        waiting = np.arange(n)
        size = n
        while size:
            size = _bid(
                graph, n_rounds, original_of_cell, waiting, size, increment, cells, weights, others
            )
            heartbeat()
        if increment == 1:
            return
        increment = max(increment // _DIVISOR, 1)


@numba.njit(cache=True, nogil=True)
def _bid(
    graph: Graph,
    n_rounds: int,
    owner: IntArray,
    waiting: IntArray,
    size: int,
    increment: int,
    cells: CodeArray,
    weights: IntArray,
    others: IntArray,
) -> int:
    """Let originals bid, the last in the list first; tell how many are left in it."""
    n_visits = 0
    scale = owner.size + 1
    costs = np.empty(cells.shape[1], dtype=np.int64)
    while size and n_visits < VISITS_PER_CALL:
        original = waiting[size - 1]
        best, least, second = _two_cheapest(graph, cells[original], weights[original])
        n_visits += cells.shape[1]
        if second > others[original]:
            n_visits += cheapest(
                graph, original, n_rounds, scale, cells[original], weights[original], costs
            )
            others[original] = costs[-1]
            best, least, second = cells[original, 0], costs[0], costs[1]
        if second == FAR:
            second = least  # its only edge
        raise_price(graph, best, graph.price[best] + second - least + increment)
        if owner[best] == NONE:
            size -= 1
        else:
            waiting[size - 1] = owner[best]
        owner[best] = original
    return size


@numba.njit(cache=True, nogil=True)
def _two_cheapest(graph: Graph, cells: CodeArray, weights: IntArray) -> tuple[int, int, int]:
    """Find the cheapest of some cells, its cost and that of the second cheapest."""
    best, least, second = NONE, FAR, FAR
    for place in range(cells.size):
        cell = cells[place]
        if cell == NONE:
            break
        cost = graph.price[cell] + weights[place]
        if cost < least:
            best, least, second = cell, cost, least
        elif cost < second:
            second = cost
    return best, least, second
