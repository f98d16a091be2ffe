"""The tree over the cells: blocks of boxes, each around the available ones of a block below.

Level 0 are the cells, in the order of positions; the boxes of each other level stand for the blocks
of the one below, and the highest one is a single block. A search in the tree is exact, because it
leaves out only boxes that prove that no cell below them is better.
"""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.freeform.arrangement import BLOCK
from kanon_db.algorithms.freeform.boxes import enclose, take_in
from kanon_db.algorithms.freeform.graph import FAR, NONE, Graph
from kanon_db.algorithms.ground.arrays import IntArray, Integer
from kanon_db.algorithms.ground.compiled import innermost


@innermost
def open_round(graph: Graph) -> None:
    """Make every cell available, at no price.

    Parameters
    ----------
    graph : Graph
    """
    graph.price[: graph.record.size] = 0
    refresh(graph)


@innermost
def refresh(graph: Graph) -> None:
    """Compute all boxes around others anew.

    Parameters
    ----------
    graph : Graph
    """
    starts = graph.starts
    for level in range(starts.size - 1):
        for block in range((starts[level + 1] - starts[level]) // BLOCK):
            enclose(graph, starts[level + 1] + block, starts[level] + block * BLOCK)


@innermost
def take(graph: Graph, cell: Integer) -> None:
    """Make a cell unavailable.

    Parameters
    ----------
    graph : Graph
    cell : int
        Position.
    """
    starts = graph.starts
    graph.price[cell] = FAR
    block = cell // BLOCK
    for level in range(starts.size - 1):
        enclose(graph, starts[level + 1] + block, starts[level] + block * BLOCK)
        block //= BLOCK


@innermost
def raise_price(graph: Graph, cell: Integer, price: Integer) -> None:
    """Give a cell a price that is not below its last one, while all cells are available.

    Parameters
    ----------
    graph : Graph
    cell : int
        Position.
    price : int
    """
    prices, starts = graph.price, graph.starts
    prices[cell] = price
    block = np.int64(cell) // BLOCK
    for level in range(starts.size - 1):
        first = starts[level] + block * BLOCK
        least = np.int64(FAR)
        for i in range(BLOCK):
            least = min(least, prices[np.uint64(first + i)])
        if prices[starts[level + 1] + block] == least:
            return
        prices[starts[level + 1] + block] = least
        block //= BLOCK


@innermost
def extend(graph: Graph, original_of_cell: IntArray, n_rounds: int) -> None:
    """End a round: let each cell cover the original that it is assigned.

    Parameters
    ----------
    graph : Graph
    original_of_cell : ndarray of int64, shape (n,)
        An assignment, in positions; -1 for cells without one.
    n_rounds : int
        Rounds before.
    """
    for cell in range(original_of_cell.size):
        original = original_of_cell[cell]
        if original != NONE:
            graph.cells_of[original, n_rounds] = cell
            take_in(graph, original, cell)
