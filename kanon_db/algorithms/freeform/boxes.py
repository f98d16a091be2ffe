"""Originals as points, cells as boxes around them, and what a box loses when it grows.

A search weighs millions of cells. So boxes lie in blocks of 64, attribute by attribute, and all of
a block are weighed at once, by instructions that work on 16 numbers at a time. The compiler finds
these only if loops over a block have a fixed length, test nothing, and count in 32 bits; positions
are unsigned because it would otherwise look whether each counts from the end.
"""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.freeform.arrangement import BLOCK
from kanon_db.algorithms.freeform.graph import FAR, Graph
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, Integer
from kanon_db.algorithms.ground.compiled import inlined, innermost

_LARGEST = np.int32(2**31 - 1)
_BIT = np.uint32(1)
_NOTHING = np.int32(0)


@innermost
def weight(graph: Graph, original: Integer, box: Integer) -> Integer:
    """Find how much more a cell loses if it is to cover an original, too.

    Parameters
    ----------
    graph : Graph
    original : int
    box : int

    Returns
    -------
    int
        In units.

    Notes
    -----
    **Source:** [FF] Section 5, with the NCP of Eq. (1) and (2).
    """
    total = -np.int64(graph.lost[box])
    for j in range(graph.whole.size):
        number = graph.numbers[original, j]
        span = max(graph.high[j, box], number) - min(graph.low[j, box], number)
        total += min(span, graph.whole[j])
    for j in range(graph.step.size):
        bit = graph.bits[original, j]
        if not graph.sets[bit >> 5, box] & (_BIT << np.uint32(bit & 31)):
            total += graph.step[j]
    return total


@inlined
def weigh_block(
    graph: Graph,
    original: Integer,
    first: Integer,
    scale: Integer,
    grown: CodeArray,
    costs: IntArray,
    row: Integer,
) -> Integer:
    """Find what an original costs in each box of a block, as :func:`weight` and their prices say.

    Parameters
    ----------
    graph : Graph
    original : int
    first : int
        The first box of the block.
    scale : int
        Prices count one ``scale``-th of a unit of weight.
    grown : ndarray of int32, shape (64,)
        Room to work in.
    costs : ndarray of int64, shape (rows, 64)
        One row takes the costs, in units of price; at least :data:`FAR` where no cell is available.
    row : int

    Returns
    -------
    int
        The least of them.

    Notes
    -----
    A box around others costs at most as much as any of these, since a larger box has less to lose:
    NCP is submodular, and what an original adds to a box it adds to every smaller one, too.
    """
    start, own = np.uint64(first), np.uint64(row)
    for i in range(BLOCK):
        grown[np.uint64(i)] = _NOTHING
    for j in range(graph.whole.size):
        number, whole, attribute = graph.numbers[original, j], graph.whole[j], np.uint64(j)
        for i in range(BLOCK):
            box = start + np.uint64(i)
            low, high = graph.low[attribute, box], graph.high[attribute, box]
            span = max(high, number) - min(low, number)
            grown[np.uint64(i)] += min(np.int32(span), whole)
    for j in range(graph.step.size):
        bit, step = graph.bits[original, j], graph.step[j]
        word, mask = np.uint64(bit >> 5), np.uint32(_BIT << np.uint32(bit & 31))
        for i in range(BLOCK):
            has_value = graph.sets[word, start + np.uint64(i)] & mask
            grown[np.uint64(i)] += _NOTHING if has_value else step
    least = np.int64(FAR)
    for i in range(BLOCK):
        box = start + np.uint64(i)
        added = np.int32(grown[np.uint64(i)] - graph.lost[box])
        cost = graph.price[box] + scale * np.int64(added)
        costs[own, np.uint64(i)] = cost
        least = min(least, cost)
    return least


@innermost
def take_in(graph: Graph, original: Integer, cell: Integer) -> None:
    """Enlarge a cell so that it covers an original.

    Parameters
    ----------
    graph : Graph
    original : int
    cell : int
    """
    for j in range(graph.whole.size):
        low = min(graph.low[j, cell], graph.numbers[original, j])
        high = max(graph.high[j, cell], graph.numbers[original, j])
        if high > graph.whole[j] and low < high:
            # With NULL and a number it tells nothing, and boxes need not know why.
            low, high = _NOTHING, np.int32(2 * graph.whole[j])
        graph.low[j, cell] = low
        graph.high[j, cell] = high
    for j in range(graph.step.size):
        bit = graph.bits[original, j]
        graph.sets[bit >> 5, cell] |= _BIT << np.uint32(bit & 31)
    graph.lost[cell] = _lost(graph, cell)


@innermost
def enclose(graph: Graph, box: Integer, first: Integer) -> None:
    """Make a box the one around those of a block in which a cell is available.

    Parameters
    ----------
    graph : Graph
    box : int
        Without such a cell, its price is :data:`FAR`, and the rest stays as it is.
    first : int
        The first box of the block.
    """
    start, own = np.uint64(first), np.uint64(box)
    price = np.int64(FAR)
    for i in range(BLOCK):
        price = min(price, graph.price[start + np.uint64(i)])
    graph.price[own] = price
    if price >= FAR:
        return
    for j in range(graph.low.shape[0]):
        row, low, high = np.uint64(j), _LARGEST, _NOTHING
        for i in range(BLOCK):
            inner = start + np.uint64(i)
            is_available = graph.price[inner] < FAR
            low = min(low, graph.low[row, inner] if is_available else _LARGEST)
            high = max(high, graph.high[row, inner] if is_available else _NOTHING)
        graph.low[row, own], graph.high[row, own] = low, high
    for j in range(graph.sets.shape[0]):
        row, members = np.uint64(j), np.uint32(0)
        for i in range(BLOCK):
            inner = start + np.uint64(i)
            is_available = graph.price[inner] < FAR
            members |= graph.sets[row, inner] if is_available else np.uint32(0)
        graph.sets[row, own] = members
    graph.lost[own] = _lost(graph, box)


@innermost
def _lost(graph: Graph, box: Integer) -> np.int32:
    lost = _NOTHING
    for j in range(graph.whole.size):
        lost += min(np.int32(graph.high[j, box] - graph.low[j, box]), graph.whole[j])
    return lost
