"""The generalization graph while it is built: cells, weights of edges, and the tree over them."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    IntArray,
    Integer,
    WordArray,
)
from kanon_db.algorithms.recoding.ncp import Ncp

NONE = -1
"""Stands for a record where there is none."""

FAR = 2**62
"""More than any weight and price together."""

_LEAF = 8  # records


class Graph(NamedTuple):
    """Originals, the cells they are recast to so far, and a tree of boxes around the cells.

    Positions number the records in an order in which close ones lie side by side. Original i and
    cell i belong to the same record.

    Parameters
    ----------
    record : ndarray of int64, shape (n,)
        Record at each position.
    numbers : ndarray of int32, shape (n, p)
        Positions in the ranges of numeric attributes, NULL being at twice the range.
    bits : ndarray of int32, shape (n, q)
        Where the value of each categorical attribute is found in ``sets``.
    whole : ndarray of int64, shape (p,)
        Loss of a numeric cell that tells nothing.
    step : ndarray of int64, shape (q,)
        Loss of one more value of a categorical cell.
    low, high : ndarray of int32, shape (n, p)
        Ends of the numeric cells.
    sets : ndarray of uint64, shape (n, words)
        Values of the categorical cells, one bit each.
    matches : ndarray of int32, shape (n, k)
        Originals that each cell covers, -1 for those to come.
    available : ndarray of bool, shape (n,)
        Cells that have no match in this round.
    price : ndarray of int64, shape (n,)
        Added to what a cell costs.
    node_low, node_high : ndarray of int32, shape (2 * leaves, p)
        Box around the numeric cells below each node of the tree: least low, largest high.
    node_sets : ndarray of uint64, shape (2 * leaves, words)
        Union of the categorical cells below each node.
    node_price : ndarray of int64, shape (2 * leaves,)
        Least price below each node.
    node_count : ndarray of int64, shape (2 * leaves,)
        Available cells below each node; boxes, unions and prices are of these alone.

    Notes
    -----
    **Source:** [FF] Section 5 (weights). The tree is binary and has no pointers: the children of
    node x are 2x and 2x + 1, and a leaf has 8 positions. What a search in it finds is exact: it
    leaves out the nodes alone whose box proves that no cell below is better.
    """

    record: IntArray
    numbers: CodeArray
    bits: CodeArray
    whole: IntArray
    step: IntArray
    low: CodeArray
    high: CodeArray
    sets: WordArray
    matches: CodeArray
    available: BoolArray
    price: IntArray
    node_low: CodeArray
    node_high: CodeArray
    node_sets: WordArray
    node_price: IntArray
    node_count: IntArray


def build(ncp: Ncp, k: int) -> Graph:
    """Start a graph: each record matches itself, and nothing else.

    Parameters
    ----------
    ncp : Ncp
    k : int
        Matches that each record is to have.

    Returns
    -------
    Graph
        With no cell available yet; see :func:`open_round`.
    """
    n = ncp.values.shape[0]
    n_leaves = 1
    while n_leaves * _LEAF < n:
        n_leaves *= 2
    by_row = np.lexsort(ncp.values.T[::-1])
    values = ncp.values[by_row]
    step = np.where(ncp.numeric, 0, ncp.step)
    order = np.arange(n)
    _arrange(values, step, n_leaves, order)
    values = values[order]
    numbers = np.ascontiguousarray(values[:, ncp.numeric])
    bits, n_words = _bits(values[:, ~ncp.numeric])
    sets = np.zeros((n, n_words), dtype=np.uint64)
    for column in bits.T:
        sets[np.arange(n), column >> 6] |= np.uint64(1) << (column & 63).astype(np.uint64)
    p = numbers.shape[1]
    matches = np.full((n, k), NONE, dtype=np.int32)
    matches[:, 0] = np.arange(n)
    return Graph(
        record=by_row[order],
        numbers=numbers,
        bits=bits,
        whole=ncp.whole[ncp.numeric],
        step=ncp.step[~ncp.numeric],
        low=numbers.copy(),
        high=numbers.copy(),
        sets=sets,
        matches=matches,
        available=np.zeros(n, dtype=np.bool_),
        price=np.zeros(n, dtype=np.int64),
        node_low=np.zeros((2 * n_leaves, p), dtype=np.int32),
        node_high=np.zeros((2 * n_leaves, p), dtype=np.int32),
        node_sets=np.zeros((2 * n_leaves, n_words), dtype=np.uint64),
        node_price=np.zeros(2 * n_leaves, dtype=np.int64),
        node_count=np.zeros(2 * n_leaves, dtype=np.int64),
    )


def matches_of_records(graph: Graph) -> CodeArray:
    """Take the matches of a finished graph, in terms of records.

    Parameters
    ----------
    graph : Graph

    Returns
    -------
    ndarray of int32, shape (n, k)
    """
    matches = np.empty_like(graph.matches)
    matches[graph.record] = graph.record[graph.matches]
    return matches


def units_lost(ncp: Ncp, matches: AnyIntArray) -> int:
    """Add up the loss of all cells.

    Parameters
    ----------
    ncp : Ncp
    matches : ndarray of int, shape (n, q)
        Originals that each cell covers.

    Returns
    -------
    int
        In units; times ``ncp.unit``, divided by the number of cells of all attributes, it is GCP.
    """
    return int(cell_units(ncp, matches).sum())


def cell_units(ncp: Ncp, matches: AnyIntArray) -> IntArray:
    """Find what each cell loses in all attributes.

    Parameters
    ----------
    ncp : Ncp
    matches : ndarray of int, shape (c, q)
        Originals that each cell covers.

    Returns
    -------
    ndarray of int64, shape (c,)
        In units.
    """
    units = np.zeros(matches.shape[0], dtype=np.int64)
    for j in range(ncp.numeric.size):
        values = np.sort(ncp.values[:, j][matches].astype(np.int64), axis=1)
        if ncp.numeric[j]:
            units += np.minimum(values[:, -1] - values[:, 0], ncp.whole[j])
        else:
            units += (values[:, 1:] != values[:, :-1]).sum(axis=1) * ncp.step[j]
    return units


def pair_units(
    graph: Graph,
    ones: Integer | AnyIntArray,
    others: AnyIntArray,
) -> IntArray:
    """Find what a cell of two records loses in all attributes.

    Parameters
    ----------
    graph : Graph
    ones : int, or ndarray of int, shape (c,)
        Position of the first record, of all cells or of each.
    others : ndarray of int, shape (c,)
        Positions of the second ones.

    Returns
    -------
    ndarray of int64, shape (c,)
        In units.
    """
    ranges = np.abs(graph.numbers[ones].astype(np.int64) - graph.numbers[others])
    units: IntArray = np.minimum(ranges, graph.whole).sum(axis=1)
    units += ((graph.bits[ones] != graph.bits[others]) * graph.step).sum(axis=1)
    return units


def _bits(values: CodeArray) -> tuple[CodeArray, int]:
    """Give each value of each attribute a bit; attributes begin with a new word."""
    bits = np.empty(values.shape, dtype=np.int32)
    n_words = 0
    for j, column in enumerate(values.T):
        codes = np.unique(column, return_inverse=True)[1].reshape(-1)
        bits[:, j] = codes + 64 * n_words
        n_words += (int(codes.max(initial=-1)) + 64) // 64
    return bits, n_words


@numba.njit(cache=True, nogil=True)
def _arrange(values: CodeArray, step: IntArray, n_leaves: int, order: IntArray) -> None:
    """Halve the records at the median of the attribute they lose most in, down to the leaves."""
    n, m = values.shape
    size = n_leaves * _LEAF
    while size > _LEAF:
        for start in range(0, n, size):
            end = min(start + size, n)
            if end - start <= size // 2:
                continue
            part = order[start:end]
            widest, loss = 0, -1
            for j in range(m):
                column = values[part, j]
                if step[j]:
                    spread = (np.unique(column).size - 1) * step[j]
                else:
                    spread = np.int64(column.max()) - np.int64(column.min())
                if spread > loss:
                    widest, loss = j, spread
            if loss > 0:
                by_value = np.argsort(values[part, widest], kind="mergesort")
                order[start:end] = part[by_value]
        size //= 2


@numba.njit(cache=True, nogil=True)
def weight(graph: Graph, original: Integer, cell: Integer, limit: Integer) -> Integer:
    """Increase of the loss if the cell is to cover the original, too.

    Parameters
    ----------
    graph : Graph
    original, cell : int
        Positions.
    limit : int
        Where it is at least as much, any number from ``limit`` may be returned.

    Returns
    -------
    int
        In units.

    Notes
    -----
    **Source:** [FF] Section 5, with the NCP of Eq. (1) and (2).
    """
    total = np.int64(0)
    for j in range(graph.step.size):
        bit = graph.bits[original, j]
        word = graph.sets[cell, bit >> 6]
        if not (word >> np.uint64(bit & 63)) & np.uint64(1):
            total += graph.step[j]
    if total >= limit:
        return total
    for j in range(graph.whole.size):
        number = np.int64(graph.numbers[original, j])
        low, high = np.int64(graph.low[cell, j]), np.int64(graph.high[cell, j])
        if number < low:
            total += min(high - number, graph.whole[j]) - min(high - low, graph.whole[j])
        elif number > high:
            total += min(number - low, graph.whole[j]) - min(high - low, graph.whole[j])
    return total


@numba.njit(cache=True, nogil=True)
def is_matched(graph: Graph, original: int, cell: int, n_rounds: int) -> bool:
    """Tell whether the edge was taken in one of the rounds so far.

    Parameters
    ----------
    graph : Graph
    original, cell : int
        Positions.
    n_rounds : int

    Returns
    -------
    bool
    """
    for r in range(n_rounds):  # noqa: SIM110  # numba has no generators in any()
        if graph.matches[cell, r] == original:
            return True
    return False


@numba.njit(cache=True, nogil=True)
def bound(graph: Graph, original: Integer, node: Integer) -> Integer:
    """Lower bound on the weight of all available cells below a node.

    Parameters
    ----------
    graph : Graph
    original : int
        Position.
    node : int
        With an available cell below.

    Returns
    -------
    int
        In units.

    Notes
    -----
    A numeric cell that must grow to take in a number grows by its distance at least, or becomes
    the whole range. To take in NULL, a cell of numbers loses what it has not lost yet, at least
    what the box has not.
    """
    total = np.int64(0)
    for j in range(graph.step.size):
        bit = graph.bits[original, j]
        word = graph.node_sets[node, bit >> 6]
        if not (word >> np.uint64(bit & 63)) & np.uint64(1):
            total += graph.step[j]
    for j in range(graph.whole.size):
        number, whole = np.int64(graph.numbers[original, j]), graph.whole[j]
        low, high = np.int64(graph.node_low[node, j]), np.int64(graph.node_high[node, j])
        if number > whole:
            if high <= whole:
                total += whole - (high - low)
        elif number < low:
            total += min(low - number, whole)
        elif number > high:
            total += number - high
    return total


@numba.njit(cache=True, nogil=True)
def open_round(graph: Graph) -> None:
    """Make every cell available, at no price.

    Parameters
    ----------
    graph : Graph
    """
    graph.available[:] = True
    graph.price[:] = 0
    refresh(graph)


@numba.njit(cache=True, nogil=True)
def refresh(graph: Graph) -> None:
    """Compute all nodes of the tree anew.

    Parameters
    ----------
    graph : Graph
    """
    for node in range(graph.node_count.size - 1, 0, -1):
        _refresh_node(graph, node)


@numba.njit(cache=True, nogil=True)
def refresh_above(graph: Graph, cell: int) -> None:
    """Compute the nodes above one cell anew, after its price or availability changed.

    Parameters
    ----------
    graph : Graph
    cell : int
        Position.
    """
    node = graph.node_count.size // 2 + cell // _LEAF
    while node:
        _refresh_node(graph, node)
        node //= 2


@numba.njit(cache=True, nogil=True)
def _refresh_node(graph: Graph, node: int) -> None:
    n_leaves = graph.node_count.size // 2
    graph.node_count[node] = 0
    if node < n_leaves:
        for child in range(2 * node, 2 * node + 2):
            _enclose(
                graph, node, graph.node_count[child], graph.node_low[child],
                graph.node_high[child], graph.node_sets[child], graph.node_price[child],
            )  # fmt: skip
        return
    start = (node - n_leaves) * _LEAF
    for cell in range(start, min(start + _LEAF, graph.available.size)):
        if graph.available[cell]:
            _enclose(
                graph, node, 1, graph.low[cell], graph.high[cell], graph.sets[cell],
                graph.price[cell],
            )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _enclose(
    graph: Graph,
    node: int,
    count: int,
    low: CodeArray,
    high: CodeArray,
    sets: WordArray,
    price: int,
) -> None:
    """Make a node's box hold another one."""
    if not count:
        return
    if not graph.node_count[node]:
        graph.node_low[node] = low
        graph.node_high[node] = high
        graph.node_sets[node] = sets
        graph.node_price[node] = price
    else:
        for j in range(low.size):
            graph.node_low[node, j] = min(graph.node_low[node, j], low[j])
            graph.node_high[node, j] = max(graph.node_high[node, j], high[j])
        for word in range(sets.size):
            graph.node_sets[node, word] |= sets[word]
        graph.node_price[node] = min(graph.node_price[node], price)
    graph.node_count[node] += count


@numba.njit(cache=True, nogil=True)
def take(graph: Graph, cell: int) -> None:
    """Make a cell unavailable.

    Parameters
    ----------
    graph : Graph
    cell : int
        Position.
    """
    graph.available[cell] = False
    refresh_above(graph, cell)


@numba.njit(cache=True, nogil=True)
def nearest(
    graph: Graph, original: int, n_rounds: int, floor: int, mutual: bool
) -> tuple[int, Integer, int]:
    """Find an available cell of least weight.

    Parameters
    ----------
    graph : Graph
        Without prices.
    original : int
        Position.
    n_rounds : int
        The edges of so many rounds are not available.
    floor : int
        A weight that is known to be the least possible.
    mutual : bool
        Whether the weight of the edge that goes the other way counts, too.

    Returns
    -------
    cell : int
        Position; -1 if no cell is available. Of several, one close to the original.
    weight : int
        In units.
    n_visits : int
        Cells and nodes looked at.
    """
    best, n_visits = NONE, 0
    least: Integer = FAR
    n_leaves = graph.node_count.size // 2
    if not graph.node_count[1]:
        return best, least, n_visits
    nodes = np.empty(64, dtype=np.int64)
    bounds = np.empty(64, dtype=np.int64)
    nodes[0], bounds[0], size = 1, 0, 1
    leaf = n_leaves + original // _LEAF
    while size:
        size -= 1
        if bounds[size] >= least:
            continue
        node = nodes[size]
        if node >= n_leaves:
            start = (node - n_leaves) * _LEAF
            for cell in range(start, min(start + _LEAF, graph.available.size)):
                if not graph.available[cell]:
                    continue
                n_visits += 1
                found = weight(graph, original, cell, least)
                if mutual and found < least:
                    found += weight(graph, cell, original, least - found)
                if found < least and not is_matched(graph, original, cell, n_rounds):
                    best, least = cell, found
                    if least <= floor:
                        return best, least, n_visits
            continue
        n_visits += 2
        left, right = 2 * node, 2 * node + 1
        bound_left = bound(graph, original, left) if graph.node_count[left] else FAR
        bound_right = bound(graph, original, right) if graph.node_count[right] else FAR
        # Of equal bounds, the side where the original is comes first: pushed last.
        first = right if bound_right < bound_left else left
        if bound_left == bound_right:
            above = leaf
            while above > right:
                above //= 2
            first = right if above == right else left
        other = left + right - first
        bound_first = bound_left if first == left else bound_right
        bound_other = bound_right if first == left else bound_left
        if bound_other < least:
            nodes[size], bounds[size] = other, bound_other
            size += 1
        if bound_first < least:
            nodes[size], bounds[size] = first, bound_first
            size += 1
    return best, least, n_visits


@numba.njit(cache=True, nogil=True)
def raise_price(graph: Graph, cell: int, price: int) -> None:
    """Give a cell a price that is not below its last one.

    Parameters
    ----------
    graph : Graph
    cell : int
        Position.
    price : int
    """
    n_leaves = graph.node_count.size // 2
    graph.price[cell] = price
    node = n_leaves + cell // _LEAF
    start = (node - n_leaves) * _LEAF
    least = graph.price[start : start + _LEAF].min()
    while node and graph.node_price[node] != least:
        graph.node_price[node] = least
        other = node ^ 1
        if node > 1 and graph.node_count[other]:
            least = min(least, graph.node_price[other])
        node //= 2


@numba.njit(cache=True, nogil=True)
def cheapest(
    graph: Graph,
    original: int,
    n_rounds: int,
    scale: int,
    cells: CodeArray,
    weights: IntArray,
    costs: IntArray,
) -> int:
    """Find the cells with the least sums of weight and price, all cells being available.

    Parameters
    ----------
    graph : Graph
    original : int
        Position.
    n_rounds : int
        The edges of so many rounds are left out.
    scale : int
        Prices count one ``scale``-th of a unit of weight.
    cells : ndarray of int32, shape (c,)
        Takes their positions, -1 where there are fewer.
    weights : ndarray of int64, shape (c,)
        Takes their weights times ``scale``.
    costs : ndarray of int64, shape (c,)
        Takes the sums, ascending; ``FAR`` where there are fewer.

    Returns
    -------
    int
        Cells and nodes looked at.
    """
    n_visits = 0
    cells[:] = NONE
    costs[:] = FAR
    last = cells.size - 1
    n_leaves = graph.node_count.size // 2
    nodes = np.empty(64, dtype=np.int64)
    bounds = np.empty(64, dtype=np.int64)
    nodes[0], bounds[0], size = 1, 0, 1
    while size:
        size -= 1
        if bounds[size] >= costs[last]:
            continue
        node = nodes[size]
        if node >= n_leaves:
            start = (node - n_leaves) * _LEAF
            for cell in range(start, min(start + _LEAF, graph.price.size)):
                n_visits += 1
                price = graph.price[cell]
                if price >= costs[last]:
                    continue
                limit = (costs[last] - price) // scale + 1
                scaled = scale * weight(graph, original, cell, limit)
                cost = price + scaled
                if cost < costs[last] and not is_matched(graph, original, cell, n_rounds):
                    place = last
                    while place and costs[place - 1] > cost:
                        cells[place] = cells[place - 1]
                        weights[place] = weights[place - 1]
                        costs[place] = costs[place - 1]
                        place -= 1
                    cells[place], weights[place], costs[place] = cell, scaled, cost
            continue
        n_visits += 2
        first, other = 2 * node, 2 * node + 1
        cost, cost_other = np.int64(FAR), np.int64(FAR)
        if graph.node_count[first]:
            cost = graph.node_price[first] + scale * bound(graph, original, first)
        if graph.node_count[other]:
            cost_other = graph.node_price[other] + scale * bound(graph, original, other)
        if cost_other < cost:
            first, other, cost, cost_other = other, first, cost_other, cost
        if cost_other < costs[last]:
            nodes[size], bounds[size] = other, cost_other
            size += 1
        if cost < costs[last]:
            nodes[size], bounds[size] = first, cost
            size += 1
    return n_visits


@numba.njit(cache=True, nogil=True)
def extend(graph: Graph, original_of_cell: IntArray, n_rounds: int) -> None:
    """End a round: let each cell cover the original it is assigned.

    Parameters
    ----------
    graph : Graph
    original_of_cell : ndarray of int64, shape (n,)
        An assignment, in positions; -1 for cells without.
    n_rounds : int
        Rounds before.
    """
    for cell in range(original_of_cell.size):
        graph.matches[cell, n_rounds] = original_of_cell[cell]
        if original_of_cell[cell] != NONE:
            cover(graph, original_of_cell[cell], cell)


@numba.njit(cache=True, nogil=True)
def cover(graph: Graph, original: int, cell: int) -> None:
    """Let a cell cover an original.

    Parameters
    ----------
    graph : Graph
    original, cell : int
        Positions.
    """
    for j in range(graph.whole.size):
        low = min(graph.low[cell, j], graph.numbers[original, j])
        high = max(graph.high[cell, j], graph.numbers[original, j])
        if high > graph.whole[j] and low < high:
            # With NULL and a number it tells nothing, and boxes need not know why.
            low, high = np.int32(0), np.int32(2 * graph.whole[j])
        graph.low[cell, j] = low
        graph.high[cell, j] = high
    for j in range(graph.step.size):
        bit = graph.bits[original, j]
        graph.sets[cell, bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
