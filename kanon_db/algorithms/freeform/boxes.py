"""Originals as points, cells as boxes around them, and what a box loses when it grows.

These functions run millions of times. They take originals and boxes rather than a graph, because
compiled code that takes a tuple out of another one counts references to all its arrays. For the
same reason they test nothing before their loops, and do not call one another with arrays: each of
these made them several times slower.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, Integer, WordArray

FAR = 2**62
"""More than any weight and price together: the price of a cell that is not available."""

_LARGEST = np.int32(2**31 - 1)


class Originals(NamedTuple):
    """The values of the originals, and what attributes cost.

    Parameters
    ----------
    numbers : ndarray of int32, shape (n, p)
        Positions in the ranges of numeric attributes; NULL is at twice the range.
    bits : ndarray of int32, shape (n, q)
        Which bit of a box's set stands for the value of each categorical attribute.
    whole : ndarray of int64, shape (p,)
        Loss of a numeric cell that tells nothing.
    step : ndarray of int64, shape (q,)
        Loss of one more value of a categorical cell.
    """

    numbers: CodeArray
    bits: CodeArray
    whole: IntArray
    step: IntArray


class Boxes(NamedTuple):
    """Cells, or nodes of a tree that enclose the available cells below them.

    Parameters
    ----------
    low, high : ndarray of int32, shape (c, p)
        Ends of the numeric cells.
    sets : ndarray of uint64, shape (c, words)
        Values of the categorical cells, one bit each.
    price : ndarray of int64, shape (c,)
        Added to what a cell costs; :data:`FAR` for a cell that is not available, because it has
        its match of this round. Of a node, the least price below it.
    """

    low: CodeArray
    high: CodeArray
    sets: WordArray
    price: IntArray


@numba.njit(cache=True, nogil=True)
def weight(
    originals: Originals, original: Integer, cells: Boxes, cell: Integer, limit: Integer
) -> Integer:
    """Find how much more a cell loses if it is to cover an original, too.

    Parameters
    ----------
    originals : Originals
    original : int
    cells : Boxes
    cell : int
    limit : int
        If the weight is at least as much, any number from ``limit`` on may be returned.

    Returns
    -------
    int
        In units.

    Notes
    -----
    **Source:** [FF] Section 5, with the NCP of Eq. (1) and (2).
    """
    total = np.int64(0)
    for j in range(originals.step.size):
        bit = originals.bits[original, j]
        if not _has_bit(cells.sets[cell, bit >> 6], bit):
            total += originals.step[j]
    if total >= limit:
        return total
    for j in range(originals.whole.size):
        number = np.int64(originals.numbers[original, j])
        low, high = np.int64(cells.low[cell, j]), np.int64(cells.high[cell, j])
        if number < low:
            total += min(high - number, originals.whole[j]) - min(high - low, originals.whole[j])
        elif number > high:
            total += min(number - low, originals.whole[j]) - min(high - low, originals.whole[j])
    return total


@numba.njit(cache=True, nogil=True)
def least_cost(
    originals: Originals, original: Integer, nodes: Boxes, node: Integer, scale: Integer
) -> Integer:
    """Bound from below the price and the weight of any available cell below a node.

    Parameters
    ----------
    originals : Originals
    original : int
    nodes : Boxes
    node : int
    scale : int
        Prices count one ``scale``-th of a unit of weight.

    Returns
    -------
    int
        In units of price; at least :data:`FAR` if no cell is available.

    Notes
    -----
    A numeric cell that must grow to take in a number grows at least by its distance, or becomes
    the whole range. To take in NULL, a cell of numbers loses what it has not lost yet, which is
    at least what the box has not lost.
    """
    total = np.int64(0)
    for j in range(originals.step.size):
        bit = originals.bits[original, j]
        if not _has_bit(nodes.sets[node, bit >> 6], bit):
            total += originals.step[j]
    for j in range(originals.whole.size):
        number, whole = np.int64(originals.numbers[original, j]), originals.whole[j]
        low, high = np.int64(nodes.low[node, j]), np.int64(nodes.high[node, j])
        if number > whole:
            if high <= whole:
                total += whole - (high - low)
        elif number < low:
            total += min(low - number, whole)
        elif number > high:
            total += number - high
    cost: Integer = nodes.price[node] + scale * total
    return cost


@numba.njit(cache=True, nogil=True)
def _has_bit(word: np.uint64, bit: Integer) -> bool:
    return bool((word >> np.uint64(bit & 63)) & np.uint64(1))


@numba.njit(cache=True, nogil=True)
def take_in(originals: Originals, original: Integer, cells: Boxes, cell: Integer) -> None:
    """Enlarge a cell so that it covers an original.

    Parameters
    ----------
    originals : Originals
    original : int
    cells : Boxes
    cell : int
    """
    for j in range(originals.whole.size):
        low = min(cells.low[cell, j], originals.numbers[original, j])
        high = max(cells.high[cell, j], originals.numbers[original, j])
        if high > originals.whole[j] and low < high:
            # With NULL and a number it tells nothing, and boxes need not know why.
            low, high = np.int32(0), np.int32(2 * originals.whole[j])
        cells.low[cell, j] = low
        cells.high[cell, j] = high
    for j in range(originals.step.size):
        bit = originals.bits[original, j]
        cells.sets[cell, bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)


@numba.njit(cache=True, nogil=True)
def enclose(nodes: Boxes, node: Integer, boxes: Boxes, first: Integer, end: Integer) -> bool:
    """Make a node the box around those of some boxes in which a cell is available.

    Parameters
    ----------
    nodes : Boxes
    node : int
        Without such a box, its price is :data:`FAR`, and the rest stays as it is.
    boxes : Boxes
    first, end : int
        The first of the boxes, and that after the last.

    Returns
    -------
    bool
        Whether the node is another than before.
    """
    price = FAR
    for box in range(first, end):
        price = min(price, boxes.price[box])
    is_new = price != nodes.price[node]
    nodes.price[node] = price
    if price == FAR:
        return bool(is_new)
    for j in range(boxes.low.shape[1]):
        low, high = _LARGEST, np.int32(0)
        for box in range(first, end):
            if boxes.price[box] != FAR:
                low, high = min(low, boxes.low[box, j]), max(high, boxes.high[box, j])
        is_new |= low != nodes.low[node, j] or high != nodes.high[node, j]
        nodes.low[node, j], nodes.high[node, j] = low, high
    for word in range(boxes.sets.shape[1]):
        members = np.uint64(0)
        for box in range(first, end):
            if boxes.price[box] != FAR:
                members |= boxes.sets[box, word]
        is_new |= members != nodes.sets[node, word]
        nodes.sets[node, word] = members
    return bool(is_new)
