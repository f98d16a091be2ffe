"""The search for the cheapest cells of an original: down the tree of boxes, cheapest first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kanon_db.algorithms.freeform.arrangement import BLOCK
from kanon_db.algorithms.freeform.boxes import weigh_block, weight
from kanon_db.algorithms.freeform.graph import FAR, NONE, Graph
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, Integer
from kanon_db.algorithms.ground.compiled import inlined, innermost

_MOST_LEVELS = 6  # enough for any number of cells that has 31 bits


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
    hidden : ndarray of int64, shape (n_rounds,)
        Prices of the cells of earlier rounds, which are not available meanwhile.
    block, least : ndarray of int64, shape (levels,)
        First box of the block that is looked at on each level, and the least cost in it.
    bounds : ndarray of int64, shape (levels, 64)
        What the boxes of these blocks cost; ``FAR`` for those that were looked into.
    grown : ndarray of int32, shape (64,)
    """

    n_rounds: int
    scale: int
    mutual: bool
    cells: CodeArray
    costs: IntArray
    hidden: IntArray
    block: IntArray
    least: IntArray
    bounds: IntArray
    grown: CodeArray


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
        np.empty(n_rounds, dtype=np.int64),
        np.empty(_MOST_LEVELS, dtype=np.int64),
        np.empty(_MOST_LEVELS, dtype=np.int64),
        np.empty((_MOST_LEVELS, BLOCK), dtype=np.int64),
        np.empty(BLOCK, dtype=np.int32),
    )


@innermost
def find_cheapest(graph: Graph, search: Search, original: Integer, floor: Integer) -> int:
    """Find the available cells that cost an original least.

    Of equal ones, those found first stay: they come from the block of the original's own cell, or
    else from a block that promised most, and have the first positions there.

    Parameters
    ----------
    graph : Graph
    search : Search
        Takes the cells and their costs.
    original : int
        Position.
    floor : int
        A cost that is known to be the least possible.

    Returns
    -------
    int
        Blocks looked at.
    """
    starts, price, had = graph.starts, graph.price, graph.cells_of
    for r in range(search.n_rounds):
        if had[original, r] != NONE:
            search.hidden[r] = price[had[original, r]]
            price[had[original, r]] = FAR
    search.cells[:] = NONE
    search.costs[:] = FAR
    own = original // BLOCK * BLOCK
    level, first, n_visits = 0, own, 0
    while level >= 0:
        least = weigh_block(
            graph, original, first, search.scale, search.grown, search.bounds, level
        )
        n_visits += 1
        if level:
            search.block[level], search.least[level] = first, least
        else:
            _keep_cheapest(graph, search, original, first, least)
        if n_visits == 1:  # then from the top, which knows whether it was enough
            level, first = starts.size - 1, starts[-1]
            if level and search.costs[-1] > floor:
                continue
        level, first = _most_promising(starts, search, level, own, floor)
    for r in range(search.n_rounds):
        if had[original, r] != NONE:
            price[had[original, r]] = search.hidden[r]
    return n_visits


@inlined
def _keep_cheapest(
    graph: Graph, search: Search, original: Integer, first: Integer, least: Integer
) -> None:
    """Put the cells of a block that was weighed among the cheapest ones, as far as they are."""
    cells, costs = search.cells, search.costs
    cost: Integer = least
    while cost < costs[-1]:
        place = _place_of(search.bounds, 0, cost)
        search.bounds[0, place] = FAR
        cell = first + place
        if search.mutual:
            cost += weight(graph, cell, original)
        place = costs.size
        while place and costs[place - 1] > cost:
            place -= 1
        if place < costs.size:  # the last one falls out
            for last in range(costs.size - 1, place, -1):
                cells[last], costs[last] = cells[last - 1], costs[last - 1]
            cells[place], costs[place] = cell, cost
        cost = _least(search.bounds, 0)


@inlined
def _most_promising(
    starts: IntArray, search: Search, level: Integer, own: Integer, floor: Integer
) -> tuple[int, int]:
    """Find the block to look into next: its level, -1 if none can be better, and its first box."""
    worst: Integer = search.costs[-1]
    level = max(level, 1)
    while level < starts.size and worst > floor:
        if search.least[level] >= worst:
            level += 1
            continue
        place = _place_of(search.bounds, level, np.int64(search.least[level]))
        search.bounds[level, place] = FAR
        search.least[level] = _least(search.bounds, level)
        box = search.block[level] + place
        first = starts[level - 1] + (box - starts[level]) * BLOCK
        if first != own:
            return level - 1, first
    return -1, 0


@inlined
def _least(costs: IntArray, row: Integer) -> Integer:
    """Find the least cost in a row."""
    least, own = np.int64(FAR), np.uint64(row)
    for i in range(BLOCK):
        least = min(least, costs[own, np.uint64(i)])
    return least


@inlined
def _place_of(costs: IntArray, row: Integer, cost: Integer) -> Integer:
    """Find the first place in a row that has a cost."""
    place, own = np.int64(BLOCK), np.uint64(row)
    for i in range(BLOCK):
        found = np.int64(i) if costs[own, np.uint64(i)] == cost else np.int64(BLOCK)
        place = min(place, found)
    return place
