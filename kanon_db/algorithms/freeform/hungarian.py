"""Hungarian: in each round, the assignment of least weight ([FF] Section 7)."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.freeform.arrangement import BLOCK
from kanon_db.algorithms.freeform.assignment_rounds import VISITS_PER_CALL, run_rounds
from kanon_db.algorithms.freeform.box_tree import raise_price
from kanon_db.algorithms.freeform.descent import Search, find_cheapest, search_for
from kanon_db.algorithms.freeform.graph import FAR, NONE, Graph
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.compiled import innermost
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.ncp import Ncp

_N_KNOWN = 16  # cells that each original remembers
_FIRST_SHARE = 64  # of the largest weight: the first increment
_DIVISOR = 6  # of the increment, from one pass to the next


def hungarian(ncp: Ncp, k: int, *, improve: bool = True, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Build k disjoint assignments, each of the least total weight that is left.

    Parameters
    ----------
    ncp : Ncp
    k : int
        Matches of each record, from 1 to the number of records.
    improve : bool
        Whether the finished graph is improved
        (:func:`~kanon_db.algorithms.freeform.improvement.improved_matches`). Without it, this is
        the paper's algorithm, each round of which is optimal given those before.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

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
    return run_rounds(ncp, k, assign_at_least_weight, greedily=False, improve=improve, pulse=pulse)


class _Auction(NamedTuple):
    """Who has which cell, who is without one, and what the originals remember of the cells.

    Parameters
    ----------
    owner : ndarray of int64, shape (n,)
        Original that has each cell, -1 for none.
    waiting : ndarray of int64, shape (n,)
        The first so many are the originals without a cell.
    cells : ndarray of int32, shape (n, 16)
        Cells that were the cheapest for each original when it last looked, -1 where there were
        fewer.
    weights : ndarray of int64, shape (n, 16)
        Their weights, in the scale of prices.
    others : ndarray of int64, shape (n,)
        What all other cells cost each original at least.
    """

    owner: IntArray
    waiting: IntArray
    cells: CodeArray
    weights: IntArray
    others: IntArray


def assign_at_least_weight(
    graph: Graph, n_rounds: int, original_of_cell: IntArray, pulse: Pulse
) -> None:
    """Find an assignment of least total weight, exactly.

    Parameters
    ----------
    graph : Graph
        With all cells available, at no price.
    n_rounds : int
        Rounds before, whose edges are left out.
    original_of_cell : ndarray of int64, shape (n,)
        Takes the assignment, in positions.
    pulse : Pulse

    Notes
    -----
    **Source:** Bertsekas: The auction algorithm: a distributed relaxation method for the
    assignment problem, 1988. Each original without a cell bids for the one that is cheapest for
    it by weight and price, and raises its price up to where the second cheapest would be as good,
    and by an increment; whoever had the cell before bids again. In the end the total is above the
    optimum by less than n increments. Weights count n + 1 units of price each and the last
    increment is one unit, so the assignment is optimal. Passes with larger increments give
    the prices to begin with.

    Instead of rows of a matrix, each original remembers the 16 cells that were the cheapest when
    it last looked, and what the last of them cost. As prices never fall, all other cells still
    cost at least that much: what it remembers is enough as long as two of its cells cost no more.
    Otherwise it searches the tree of boxes, which knows the least price below each node. So each
    bid is that of the plain algorithm, in O(n) memory.
    """
    n = original_of_cell.size
    search = search_for(_N_KNOWN, n_rounds, scale=n + 1)
    auction = _Auction(
        original_of_cell,
        np.arange(n),
        np.full((n, _N_KNOWN), NONE, dtype=np.int32),
        np.zeros((n, _N_KNOWN), dtype=np.int64),
        np.full(n, -1, dtype=np.int64),
    )
    increment = max(graph.largest * search.scale // _FIRST_SHARE, 1)
    while True:
        auction.owner[:] = NONE
        auction.waiting[:] = np.arange(n)
        size = n
        while size:
            size = _bid(graph, search, auction, size, increment)
            pulse.beat()
        if increment == 1:
            return
        increment = max(increment // _DIVISOR, 1)


@numba.njit(cache=True, nogil=True)
def _bid(graph: Graph, search: Search, auction: _Auction, size: int, increment: int) -> int:
    """Let originals bid, the last in the list first; tell how many are left in it."""
    n_visits = 0
    owner, waiting, others = auction.owner, auction.waiting, auction.others
    while size and n_visits < VISITS_PER_CALL:
        original = waiting[size - 1]
        best, least, second = _two_cheapest(graph, auction, original)
        n_visits += search.costs.size
        if second > others[original]:
            n_visits += BLOCK * find_cheapest(graph, search, original, -FAR)
            auction.cells[original] = search.cells
            for place in range(search.costs.size):
                price = graph.price[search.cells[place]]
                auction.weights[original, place] = search.costs[place] - price
            others[original] = search.costs[-1]
            best, least, second = _two_cheapest(graph, auction, original)
        if second == FAR:
            second = least  # its only edge
        raise_price(graph, best, graph.price[best] + second - least + increment)
        if owner[best] == NONE:
            size -= 1
        else:
            waiting[size - 1] = owner[best]
        owner[best] = original
    return size


@innermost
def _two_cheapest(graph: Graph, auction: _Auction, original: int) -> tuple[int, int, int]:
    """Find the cheapest cell an original knows, its cost and that of the second cheapest."""
    best, least, second = NONE, FAR, FAR
    for place in range(auction.cells.shape[1]):
        cell = auction.cells[original, place]
        if cell == NONE:
            break
        cost = graph.price[cell] + auction.weights[original, place]
        if cost < least:
            best, least, second = cell, cost, least
        elif cost < second:
            second = cost
    return best, least, second
