"""The search for the cheapest cells of an original: down the tree of boxes, cheapest first."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.freeform.arrangement import LEAF
from kanon_db.algorithms.freeform.boxes import FAR, least_cost, weight
from kanon_db.algorithms.freeform.graph import NONE, Graph, is_matched
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, Integer

_MOST_OPEN = 128  # nodes: more than twice the height of any tree


class Search(NamedTuple):
    """What is searched for, what was found, and the room to search in.

    Parameters
    ----------
    n_rounds : int
        The edges of so many rounds are left out.
    scale : int
        Prices count one ``scale``-th of a unit of weight.
    mutual : bool
        Whether the weight of the edge that goes the other way counts, too. The scale is then 1.
    cells : ndarray of int32, shape (c,)
        Positions of the cells found, -1 where there are fewer.
    costs : ndarray of int64, shape (c,)
        Their prices plus ``scale`` times their weights, ascending; ``FAR`` where there are fewer.
    nodes, bounds : ndarray of int64
        A stack of nodes to be looked at, and lower bounds on the costs below them.
    """

    n_rounds: int
    scale: int
    mutual: bool
    cells: CodeArray
    costs: IntArray
    nodes: IntArray
    bounds: IntArray


def search_for(n_cells: int, n_rounds: int, *, scale: int = 1, mutual: bool = False) -> Search:
    """Prepare searches for so many cells each.

    Parameters
    ----------
    n_cells : int
    n_rounds : int
    scale : int
    mutual : bool
        All of them as in :class:`Search`.

    Returns
    -------
    Search
    """
    return Search(
        n_rounds,
        scale,
        mutual,
        np.empty(n_cells, dtype=np.int32),
        np.empty(n_cells, dtype=np.int64),
        np.empty(_MOST_OPEN, dtype=np.int64),
        np.empty(_MOST_OPEN, dtype=np.int64),
    )


@numba.njit(cache=True, nogil=True)
def find_cheapest(
    graph: Graph, search: Search, original: Integer, near: Integer, floor: Integer
) -> int:
    """Find the available cells that cost an original least.

    Parameters
    ----------
    graph : Graph
    search : Search
        Takes the cells and their costs.
    original : int
        Position.
    near : int
        Position of the cell on whose side equally promising cells are looked at first.
    floor : int
        A cost that is known to be the least possible.

    Returns
    -------
    int
        Cells and nodes looked at.
    """
    n_visits = 0
    originals, cells, nodes, matches = graph.originals, graph.cells, graph.nodes, graph.matches
    costs, scale = search.costs, search.scale
    last = costs.size - 1
    search.cells[:] = NONE
    costs[:] = FAR
    search.nodes[0], search.bounds[0], size = 1, -FAR, 1
    n_leaves = nodes.price.size // 2
    leaf = n_leaves + near // LEAF
    while size and costs[last] > floor:
        size -= 1
        if search.bounds[size] >= costs[last]:
            continue
        node = search.nodes[size]
        if node < n_leaves:
            bound = least_cost(originals, original, nodes, 2 * node, scale)
            other_bound = least_cost(originals, original, nodes, 2 * node + 1, scale)
            first, other = 2 * node, 2 * node + 1
            if _goes_right(bound, other_bound, other, leaf):
                first, other, bound, other_bound = other, first, other_bound, bound
            search.nodes[size], search.bounds[size] = other, other_bound
            search.nodes[size + 1], search.bounds[size + 1] = first, bound
            size += 2
            n_visits += 2
            continue
        start = (node - n_leaves) * LEAF
        for cell in range(start, min(start + LEAF, cells.price.size)):
            price = cells.price[cell]
            if price >= costs[last]:
                continue
            n_visits += 1
            limit = costs[last] - price
            cost = price + scale * weight(originals, original, cells, cell, limit)
            if search.mutual and cost < costs[last]:
                cost += weight(originals, cell, cells, original, costs[last] - cost)
            if cost < costs[last] and not is_matched(matches, original, cell, search.n_rounds):
                _insert(search, cell, cost)
    return n_visits


@numba.njit(cache=True, nogil=True)
def _goes_right(left_bound: Integer, right_bound: Integer, right: Integer, leaf: Integer) -> bool:
    """Tell which child is more promising; of equal ones, the one with the leaf below it is."""
    if left_bound == right_bound:
        while leaf > right:
            leaf //= 2
        return bool(leaf == right)
    return bool(right_bound < left_bound)


@numba.njit(cache=True, nogil=True)
def _insert(search: Search, cell: Integer, cost: Integer) -> None:
    """Put a cell among the cheapest ones; the last of them falls out."""
    cells, costs = search.cells, search.costs
    place = costs.size - 1
    while place and costs[place - 1] > cost:
        cells[place], costs[place] = cells[place - 1], costs[place - 1]
        place -= 1
    cells[place], costs[place] = cell, cost
