"""Builds a generalization graph, and finds the cheapest cells of an original in a tree of boxes.

Originals are points, and cells are boxes around them. Level 0 of the tree holds the cells, 64 to a
block; each box of a higher level encloses the available cells of one block below, and the highest
level is a single block. A search is exact: it skips a box only if its bound proves that no cell
below it is better.

A search weighs millions of cells. So the boxes of a block are stored attribute by attribute, and
loops over a block have a fixed length, no branches and 32-bit counts: only then does the compiler
use vector instructions. Positions are unsigned, since signed ones would be checked for wrapping.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    CodeArray,
    IntArray,
    Integer,
    SmallWordArray,
)
from kanon_db.algorithms.ground.computation import inlined, innermost, kernel
from kanon_db.algorithms.recoding.loss import Ncp


def units_lost(ncp: Ncp, matches: AnyIntArray) -> int:
    """Add up the loss of all cells.

    Multiplied by ``ncp.unit`` and divided by the number of cells, it is GCP.
    """
    return int(cell_units(ncp, matches).sum())


def cell_units(ncp: Ncp, matches: AnyIntArray) -> IntArray:
    """Find what each cell loses in all attributes."""
    units = np.zeros(matches.shape[0], dtype=np.int64)
    for j in range(ncp.numeric.size):
        values = np.sort(ncp.values[:, j][matches].astype(np.int64), axis=1)
        if ncp.numeric[j]:
            units += np.minimum(values[:, -1] - values[:, 0], ncp.whole[j])
        else:
            units += (values[:, 1:] != values[:, :-1]).sum(axis=1) * ncp.step[j]
    return units


def pair_units(ncp: Ncp, ones: Integer | AnyIntArray, partners: AnyIntArray) -> IntArray:
    """Find what a cell of two records loses in all attributes."""
    apart = np.abs(ncp.values[partners].astype(np.int64) - ncp.values[ones])
    by_attribute = np.where(ncp.numeric, np.minimum(apart, ncp.whole), (apart > 0) * ncp.step)
    units: IntArray = by_attribute.sum(axis=1)
    return units


BLOCK = 64
"""Cells of a block, which are weighed at once."""


def side_by_side(ncp: Ncp) -> IntArray:
    """Order records so that those of a block, and of neighboring blocks, are similar."""
    by_row = np.lexsort(ncp.values.T[::-1])
    order = np.arange(by_row.size)
    step = np.where(ncp.numeric, 0, ncp.step)
    size = BLOCK
    while size < order.size:
        size *= 2
    _halve(ncp.values[by_row], step, size, order)
    return by_row[order]


def _halve(values: CodeArray, step: IntArray, size: int, order: IntArray) -> None:
    """Halve records at the median of the attribute in which they lose most, down to blocks."""
    while size > BLOCK:
        for start in range(0, order.size, size):
            part = order[start : start + size]
            if part.size <= size // 2:
                continue
            columns = np.sort(values[part], axis=0).astype(np.int64)
            steps = np.count_nonzero(columns[1:] != columns[:-1], axis=0) * step
            spread = np.where(step > 0, steps, columns[-1] - columns[0])
            widest = spread.argmax()
            if spread[widest] > 0:
                part[:] = part[np.argsort(values[part, widest], kind="stable")]
        size //= 2


NONE = -1
"""Stands for a record where there is none."""

FAR = 2**62
"""Price of a cell that is not available: more than any weight and price together."""


class GrowingGraph(NamedTuple):
    """Originals, the cells they are recast to so far, and a tree of boxes around the cells.

    Similar records are neighbors. Flat, since compiled code counts references in nested tuples.
    """

    record: IntArray  # (n,): record at each position
    cells_of: CodeArray  # (n, k): cells that cover each original, -1 for those to come
    # (n, p): positions of the originals in the ranges of numeric attributes; NULL is at twice the
    # range
    numbers: CodeArray
    # (n, q): which bit of a set stands for an original's value of each categorical attribute
    bits: CodeArray
    whole: CodeArray  # (p,): loss of a numeric cell that tells nothing
    step: CodeArray  # (q,): loss of one more value of a categorical cell
    low: CodeArray  # (p, boxes): ends of the boxes in numeric attributes
    high: CodeArray
    # (words, boxes): values of the boxes in categorical attributes, one bit each
    sets: SmallWordArray
    lost: CodeArray  # (boxes,): what boxes lose in numeric attributes
    # (boxes,): price of each cell, added to its weight; :data:`FAR` for a cell that is not
    # available, because it has its match of this round. The price of a box around others is the
    # least of theirs.
    price: IntArray
    # (levels,): where each level of the tree begins among the boxes; the cells, level 0, begin at
    # 0. The last block of a level is padded with boxes in which no cell is available.
    starts: IntArray
    largest: int  # More than any edge weighs


def build(ncp: Ncp, k: int) -> GrowingGraph:
    """Start a graph for k matches of each record: so far, each matches itself alone.

    No cell is available before :func:`open_round`.
    """
    record = side_by_side(ncp)
    values = ncp.values[record]
    n = record.size
    varies = (values != values[:1]).any(axis=0)  # no cell loses anything in the other attributes
    numeric, categorical = ncp.numeric & varies, ~ncp.numeric & varies
    numbers = np.ascontiguousarray(values[:, numeric])
    bits, n_words = _bits(values[:, categorical])
    starts, n_boxes = _levels(n)
    low = np.zeros((numbers.shape[1], n_boxes), dtype=np.int32)
    low[:, :n] = numbers.T
    sets = np.zeros((n_words, n_boxes), dtype=np.uint32)
    for column in bits.T:
        sets[column >> 5, np.arange(n)] |= np.uint32(1) << (column & 31).astype(np.uint32)
    cells_of = np.full((n, k), NONE, dtype=np.int32)
    cells_of[:, 0] = np.arange(n)
    return GrowingGraph(
        record,
        cells_of,
        numbers,
        bits,
        ncp.whole[numeric].astype(np.int32),
        ncp.step[categorical].astype(np.int32),
        low,
        low.copy(),
        sets,
        np.zeros(n_boxes, dtype=np.int32),
        np.full(n_boxes, FAR),
        starts,
        int(ncp.whole[ncp.numeric].sum()) + int(ncp.step[~ncp.numeric].sum()),
    )


def matches_of_records(graph: GrowingGraph) -> CodeArray:
    """Return the matches of a finished graph as numbers of records, shape (n, k)."""
    matches = np.empty_like(graph.cells_of)
    for r, cells in enumerate(graph.cells_of.T):
        matches[graph.record[cells], r] = graph.record
    return matches


def _levels(n: int) -> tuple[IntArray, int]:
    """Find where the levels of a tree over n cells begin, and where the last one ends."""
    starts, end, size = [0], 0, n
    while True:
        n_blocks = max(-(-size // BLOCK), 1)
        end += n_blocks * BLOCK
        if n_blocks == 1:
            return np.array(starts), end
        starts.append(end)
        size = n_blocks


def _bits(values: CodeArray) -> tuple[CodeArray, int]:
    """Give each value of each attribute a bit; return the bits, and the words that they take."""
    bits = np.empty(values.shape, dtype=np.int32)
    n_bits = 0
    for j, column in enumerate(values.T):
        codes = np.unique(column, return_inverse=True)[1].reshape(-1)
        bits[:, j] = codes + n_bits
        n_bits += int(codes.max(initial=-1)) + 1
    return bits, -(-n_bits // 32)


@innermost
def is_matched(cells_of: CodeArray, original: Integer, cell: Integer, n_rounds: Integer) -> bool:
    """Tell whether the edge from an original to a cell was taken in the rounds so far."""
    for r in range(n_rounds):  # noqa: SIM110  # numba has no generators in any()
        if cells_of[original, r] == cell:
            return True
    return False


_LARGEST = np.int32(2**31 - 1)
_BIT = np.uint32(1)
_NOTHING = np.int32(0)


@innermost
def weight(graph: GrowingGraph, original: Integer, box: Integer) -> Integer:
    """Return how many more units a box loses if it is to cover an original, too.

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
    graph: GrowingGraph,
    original: Integer,
    first: Integer,  # The first box of the block
    scale: Integer,  # How many units of price make one unit of weight
    grown: CodeArray,  # (64,): working memory
    # (rows, 64): one row takes the costs, in units of price; at least :data:`FAR` where no cell is
    # available
    costs: IntArray,
    row: Integer,
) -> Integer:
    """Compute the cost of an original in each box of a block: its weight plus the box's price.

    A box bounds the costs of any box inside it from below, since NCP is submodular.
    """
    start, own = np.uint64(first), np.uint64(row)
    for i in range(BLOCK):
        grown[np.uint64(i)] = _NOTHING
    for j in range(graph.whole.size):
        number, complete, attribute = graph.numbers[original, j], graph.whole[j], np.uint64(j)
        for i in range(BLOCK):
            box = start + np.uint64(i)
            low, high = graph.low[attribute, box], graph.high[attribute, box]
            span = max(high, number) - min(low, number)
            grown[np.uint64(i)] += min(np.int32(span), complete)
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
def take_in(graph: GrowingGraph, original: Integer, cell: Integer) -> None:
    """Enlarge a cell so that it covers an original."""
    for j in range(graph.whole.size):
        low = min(graph.low[j, cell], graph.numbers[original, j])
        high = max(graph.high[j, cell], graph.numbers[original, j])
        if high > graph.whole[j] and low < high:
            # A cell with NULL and a number covers the whole domain.
            low, high = _NOTHING, np.int32(2 * graph.whole[j])
        graph.low[j, cell] = low
        graph.high[j, cell] = high
    for j in range(graph.step.size):
        bit = graph.bits[original, j]
        graph.sets[bit >> 5, cell] |= _BIT << np.uint32(bit & 31)
    graph.lost[cell] = _lost(graph, cell)


@innermost
def enclose(graph: GrowingGraph, box: Integer, first: Integer) -> None:
    """Fit a box around the boxes of a block, from ``first`` on, that have an available cell.

    If there are none, its price becomes :data:`FAR`, and the rest stays as it is.
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
def _lost(graph: GrowingGraph, box: Integer) -> np.int32:
    lost = _NOTHING
    for j in range(graph.whole.size):
        lost += min(np.int32(graph.high[j, box] - graph.low[j, box]), graph.whole[j])
    return lost


@innermost
def open_round(graph: GrowingGraph) -> None:
    """Make every cell available, at price 0."""
    graph.price[: graph.record.size] = 0
    refresh(graph)


@innermost
def refresh(graph: GrowingGraph) -> None:
    """Recompute all boxes above the cells."""
    starts = graph.starts
    for level in range(starts.size - 1):
        for block in range((starts[level + 1] - starts[level]) // BLOCK):
            enclose(graph, starts[level + 1] + block, starts[level] + block * BLOCK)


@innermost
def take(graph: GrowingGraph, cell: Integer) -> None:
    """Make a cell unavailable."""
    starts = graph.starts
    graph.price[cell] = FAR
    block = cell // BLOCK
    for level in range(starts.size - 1):
        enclose(graph, starts[level + 1] + block, starts[level] + block * BLOCK)
        block //= BLOCK


@innermost
def raise_price(graph: GrowingGraph, cell: Integer, price: Integer) -> None:
    """Raise the price of a cell, while all cells are available."""
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
def extend(graph: GrowingGraph, original_of_cell: IntArray, n_rounds: int) -> None:
    """End a round: let each cell cover the original that it is assigned."""
    for cell in range(original_of_cell.size):
        original = original_of_cell[cell]
        if original != NONE:
            graph.cells_of[original, n_rounds] = cell
            take_in(graph, original, cell)


_MOST_LEVELS = 6  # enough for any number of cells that has 31 bits


class CheapestCells(NamedTuple):
    """A search for the cheapest cells of an original: parameters, results and working memory."""

    n_rounds: int  # Edges taken in the first ``n_rounds`` rounds are excluded
    scale: int  # How many units of price make one unit of weight
    mutual: bool  # Whether the weight of the reverse edge is added. The scale is then 1.
    cells: CodeArray  # (c,): positions of the cells found, -1 where there are fewer
    # (c,): their prices plus ``scale`` times their weights, ascending; ``FAR`` where there are
    # fewer
    costs: IntArray
    # (n_rounds,): prices of the cells of earlier rounds, which are made unavailable during the
    # search
    hidden: IntArray
    # (levels,): first box of the block that is searched on each level, and the least cost in it
    block: IntArray
    least: IntArray
    # (levels, 64): costs of the boxes of these blocks; ``FAR`` for those that were searched
    bounds: IntArray
    grown: CodeArray  # (64,)


def search_for(
    n_cells: int, n_rounds: int, *, scale: int = 1, mutual: bool = False
) -> CheapestCells:
    """Allocate a search for ``n_cells`` cells; the other arguments are its fields."""
    return CheapestCells(
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
def find_cheapest(
    graph: GrowingGraph, search: CheapestCells, original: Integer, floor: Integer
) -> int:
    """Find the available cells that cost an original least, going down the tree cheapest box first.

    Ties: the block of the original's own cell, then the lowest bound; in a block, the first.
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
    graph: GrowingGraph, search: CheapestCells, original: Integer, first: Integer, least: Integer
) -> None:
    """Insert the cells of a weighed block into the list of the cheapest."""
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
    starts: IntArray, search: CheapestCells, level: Integer, own: Integer, floor: Integer
) -> tuple[int, int]:
    """Find the level and the first box of the block to search next; level -1 if none is better."""
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
        first = np.int64(i) if costs[own, np.uint64(i)] == cost else np.int64(BLOCK)
        place = min(place, first)
    return place


@kernel
def resolve_dead_end(
    graph: GrowingGraph, original: int, n_rounds: int, original_of_cell: IntArray
) -> None:
    """Assign an original that may take none of the available cells.

    **Source:** [FF] Lemma 5.1, Theorem 5.2; deviation: the cheapest exchange, or shortest chain.
    """
    given_up, free = _cheapest_exchange(graph, original, n_rounds, original_of_cell)
    if given_up != NONE:
        original_of_cell[free] = original_of_cell[given_up]
        original_of_cell[given_up] = original
    else:
        free = _shift_along_chain(graph, original, n_rounds, original_of_cell)
    take(graph, free)


@kernel
def _cheapest_exchange(
    graph: GrowingGraph, original: int, n_rounds: int, original_of_cell: IntArray
) -> tuple[Integer, Integer]:
    """Find the cheapest exchange: the cell given up and the free one taken; -1 if there is none."""
    available = np.empty(original_of_cell.size, dtype=np.int64)
    n_available = 0
    for cell in range(original_of_cell.size):
        if graph.price[cell] < FAR:
            available[n_available] = cell
            n_available += 1
    cells_of = graph.cells_of
    given_up, taken, least = NONE, NONE, FAR
    for cell in range(original_of_cell.size):
        other = original_of_cell[cell]
        if other == NONE or is_matched(cells_of, original, cell, n_rounds):
            continue
        cost = weight(graph, original, cell)
        cost -= weight(graph, other, cell)
        for position in range(n_available):
            free = int(available[position])
            if cost < least and not is_matched(cells_of, other, free, n_rounds):
                moved = cost + weight(graph, other, free)
                if moved < least:
                    given_up, taken, least = cell, free, moved
    return given_up, taken


@kernel
def _shift_along_chain(
    graph: GrowingGraph, original: int, n_rounds: int, original_of_cell: IntArray
) -> Integer:
    """Assign the original by the shortest chain of exchanges; return the free cell at its end.

    The search is breadth first, from cells to the originals that hold them.
    """
    n = original_of_cell.size
    held = np.full(n, NONE, dtype=np.int64)
    for cell in range(n):
        if original_of_cell[cell] != NONE:
            held[original_of_cell[cell]] = cell
    wanted_by = np.full(n, NONE, dtype=np.int64)
    queue = np.empty(n + 1, dtype=np.int64)
    queue[0], begin, end = original, 0, 1
    while begin < end:
        wanting = queue[begin]
        begin += 1
        for cell in range(n):
            if wanted_by[cell] != NONE or is_matched(graph.cells_of, wanting, cell, n_rounds):
                continue
            wanted_by[cell] = wanting
            if original_of_cell[cell] == NONE:
                _pass_on(original, cell, held, wanted_by, original_of_cell)
                return cell
            queue[end] = original_of_cell[cell]
            end += 1
    return NONE


@kernel
def _pass_on(
    original: int, free: int, held: IntArray, wanted_by: IntArray, original_of_cell: IntArray
) -> None:
    """Give each cell of the chain to the original that wants it, from the free one backwards."""
    cell = free
    while True:
        wanting = wanted_by[cell]
        original_of_cell[cell] = wanting
        if wanting == original:
            return
        cell = held[wanting]
