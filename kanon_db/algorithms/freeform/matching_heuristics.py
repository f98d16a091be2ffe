"""Builds k assignments, one in each round: Greedy, SortGreedy, Hungarian ([FF] Sections 5 to 7).

Reciprocal graphs ([FF] Sections 1 and 2.2), in which matches are mutual, are built in the same way,
from pairs of records.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from kanon_db.algorithms.freeform._generalization_graph import (
    BLOCK,
    FAR,
    NONE,
    CheapestCells,
    GrowingGraph,
    build,
    extend,
    find_cheapest,
    matches_of_records,
    open_round,
    pair_units,
    raise_price,
    refresh,
    resolve_dead_end,
    search_for,
    take,
)
from kanon_db.algorithms.freeform.improvement import improve_matches
from kanon_db.algorithms.freeform.matches import as_assignments, lexicographic_order
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, innermost, kernel
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.errors import InfeasibleError

VISITS_PER_CALL = 2**21
"""Boxes examined between two heartbeats: some milliseconds of work."""


class AssignmentRound(Protocol):
    """A method to find the assignment of one round."""

    def __call__(
        self, graph: GrowingGraph, n_rounds: int, original_of_cell: IntArray, pulse: Pulse
    ) -> None:
        """Assign an original to each cell."""


def run_rounds(
    ncp: Ncp, k: int, assign: AssignmentRound, *, greedily: bool, improve: bool, pulse: Pulse
) -> CodeArray:
    """Build k disjoint assignments, the identity first, one in each round.

    **Source:** [FF] Section 5. Greedily, identical records match first: round r shifts them by r.
    """
    graph = build(ncp, k)
    by_type, first, size = _identical(ncp.values[graph.record])
    for n_rounds in range(1, k):
        pulse.beat()
        open_round(graph)
        original_of_cell = np.full(graph.record.size, NONE, dtype=np.int64)
        if greedily:
            place = np.arange(by_type.size) - first
            shifted = by_type[first + (place + n_rounds) % size]
            rotated = size >= k
            original_of_cell[by_type[rotated]] = shifted[rotated]
            graph.price[by_type[rotated]] = FAR
            refresh(graph)
        assign(graph, n_rounds, original_of_cell, pulse)
        extend(graph, original_of_cell, n_rounds)
    matches = matches_of_records(graph)
    return improve_matches(ncp, matches, pulse=pulse) if improve else matches


def _identical(values: CodeArray) -> tuple[IntArray, IntArray, IntArray]:
    """Sort records by their rows; find where the equals of each begin, and how many there are."""
    order = np.lexsort(values.T[::-1])
    rows = values[order]
    is_first = np.append(True, (rows[1:] != rows[:-1]).any(axis=1))
    starts = np.flatnonzero(is_first)
    sizes = np.diff(starts, append=order.size)
    return order, np.repeat(starts, sizes), np.repeat(sizes, sizes)


def greedy(ncp: Ncp, k: int, *, improve: bool = True, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Build k disjoint assignments, in each of which the originals choose their cells in turn.

    Parameters
    ----------
    ncp : Ncp
    k : int
        Matches of each record, from 1 to the number of records.
    improve : bool
        Whether the finished graph is improved, which takes most of the time
        (:func:`~kanon_db.algorithms.freeform.improvement.improve_matches`). Without it, this is
        the paper's algorithm.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    ndarray of int32, shape (n, k)
        As in :class:`~kanon_db.algorithms.freeform.matches.FreeformMatches`.

    Notes
    -----
    **Source:** [FF] Section 5: Algorithm 1, Lemma 5.1, Theorem 5.2. Originals choose in
    lexicographic order (:func:`~kanon_db.algorithms.freeform.matches.lexicographic_order`); only
    identical records, if there are at least k of them, have matched each other before. An original
    that finds no cell is helped by the cheapest exchange
    (:func:`~_generalization_graph.resolve_dead_end`), with any k up to n.

    The lightest edge is found in a tree of boxes: exactly, without looking at all n cells.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
    >>> age = Attribute(4, numbers=np.array([20.0, 30, 50, 60]), lower=20, upper=60)
    >>> table = Microdata([[0], [1], [2], [3]], (age,))
    >>> greedy(Ncp.of(table), 2).tolist()
    [[0, 1], [1, 0], [2, 3], [3, 2]]
    """
    rank = np.argsort(lexicographic_order(ncp.values))
    return run_rounds(
        ncp, k, partial(_assign_in_turn, rank), greedily=True, improve=improve, pulse=pulse
    )


def _assign_in_turn(
    rank: IntArray, graph: GrowingGraph, n_rounds: int, original_of_cell: IntArray, pulse: Pulse
) -> None:
    search = search_for(1, n_rounds)
    order = np.argsort(rank[graph.record])
    order, start = order[~np.isin(order, original_of_cell)], 0
    while start < order.size:
        start = _choose(graph, search, original_of_cell, order, start)
        pulse.beat()


@kernel
def _choose(
    graph: GrowingGraph,
    search: CheapestCells,
    original_of_cell: IntArray,
    order: IntArray,
    start: int,
) -> int:
    """Let originals choose, one after the other from a start; tell which one is next."""
    n_visits = 0
    while start < order.size and n_visits < VISITS_PER_CALL:
        original = order[start]
        n_visits += BLOCK * find_cheapest(graph, search, original, np.int64(0))
        cell = search.cells[0]
        if cell == NONE:
            resolve_dead_end(graph, original, search.n_rounds, original_of_cell)
            n_visits += original_of_cell.size
        else:
            original_of_cell[cell] = original
            take(graph, cell)
        start += 1
    return start


def sort_greedy(ncp: Ncp, k: int, *, improve: bool = True, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Build k disjoint assignments, each by taking the lightest edge again and again.

    Parameters
    ----------
    ncp : Ncp
    k : int
        Matches of each record, from 1 to the number of records.
    improve : bool
        Whether the finished graph is improved, which takes most of the time
        (:func:`~kanon_db.algorithms.freeform.improvement.improve_matches`). Without it, this is
        the paper's algorithm.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    ndarray of int32, shape (n, k)
        As in :class:`~kanon_db.algorithms.freeform.matches.FreeformMatches`.

    Notes
    -----
    **Source:** [FF] Section 6: Algorithm 2; Lemma 5.1. Weights are the increase of NCP, times the
    attribute's weight. The paper leaves the order of equal edges open. Here edges between identical
    records, if there are at least k of them, come first, then those of the originals that come
    first in the order of the tree; among the edges of one original, that to the cell found first
    (:func:`~kanon_db.algorithms.freeform._generalization_graph.find_cheapest`).

    The edges are never listed. A queue holds the lightest edge of each original, found in a tree of
    boxes, of which 64 are weighed at once; if its cell is taken when the edge comes up, the
    original searches again. As cells only become fewer, the edges are taken exactly in the order
    of their weight. Memory is O(n (m + k)); time is a few searches for each record and round.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
    >>> age = Attribute(4, numbers=np.array([20.0, 30, 50, 60]), lower=20, upper=60)
    >>> table = Microdata([[0], [1], [2], [3]], (age,))
    >>> sort_greedy(Ncp.of(table), 2).tolist()
    [[0, 1], [1, 0], [2, 3], [3, 2]]
    """
    return run_rounds(ncp, k, _assign_lightest, greedily=True, improve=improve, pulse=pulse)


def _assign_lightest(
    graph: GrowingGraph, n_rounds: int, original_of_cell: IntArray, pulse: Pulse
) -> None:
    take_lightest(graph, search_for(1, n_rounds), original_of_cell, pulse)
    for original in np.setdiff1d(np.arange(original_of_cell.size), original_of_cell).tolist():
        resolve_dead_end(graph, original, n_rounds, original_of_cell)
        pulse.beat()


class _Queue(NamedTuple):
    """A queue of originals, by the weight of their lightest edges."""

    keys: IntArray  # (n,): A heap of weight times n plus original
    wanted: IntArray  # (n,): cell that each original waits for


def take_lightest(
    graph: GrowingGraph, search: CheapestCells, original_of_cell: IntArray, pulse: Pulse
) -> None:
    """Take the lightest edge again and again, as long as there is one."""
    n = original_of_cell.size
    waiting = np.setdiff1d(np.arange(n), original_of_cell)
    queue = _Queue(np.empty(n, dtype=np.int64), np.full(n, NONE, dtype=np.int64))
    start = size = 0
    while start < waiting.size:
        start, size = _enter(graph, search, queue, waiting, start, size)
        pulse.beat()
    queue.keys[:size].sort()
    while size:
        size = _serve(graph, search, queue, original_of_cell, size)
        pulse.beat()


@innermost
def _enter(
    graph: GrowingGraph,
    search: CheapestCells,
    queue: _Queue,
    waiting: IntArray,
    start: int,
    size: int,
) -> tuple[int, int]:
    """Enter each waiting original into the queue, unless no cell is left for it."""
    n_visits = 0
    while start < waiting.size and n_visits < VISITS_PER_CALL:
        original = waiting[start]
        n_visits += BLOCK * find_cheapest(graph, search, original, np.int64(0))
        if search.cells[0] != NONE:
            queue.wanted[original] = search.cells[0]
            queue.keys[size] = search.costs[0] * queue.wanted.size + original
            size += 1
        start += 1
    return start, size


@innermost
def _serve(
    graph: GrowingGraph, search: CheapestCells, queue: _Queue, original_of_cell: IntArray, size: int
) -> int:
    """Take the lightest edges off the queue; return how many originals are left in it."""
    n_visits = 0
    keys, wanted, prices = queue.keys, queue.wanted, graph.price
    n = wanted.size
    while size and n_visits < VISITS_PER_CALL:
        original = keys[0] % n
        cell = np.int64(wanted[original])
        waits = not search.mutual or prices[original] < FAR
        key = FAR
        n_visits += 1
        if waits and prices[cell] < FAR:
            original_of_cell[cell] = original
            take(graph, cell)
            if search.mutual:
                original_of_cell[original] = cell
                take(graph, original)
        elif waits:
            # It was the lightest edge, and the others are no lighter.
            n_visits += BLOCK * find_cheapest(graph, search, original, keys[0] // n)
            wanted[original] = search.cells[0]
            if search.cells[0] != NONE:
                key = search.costs[0] * n + original
        if key == FAR:
            size -= 1
            key = keys[size]
        _sift(keys, size, key)
    return size


@innermost
def _sift(keys: IntArray, size: int, key: int) -> None:
    """Replace the least of a heap's keys.

    The heap is the first ``size`` keys. To shrink it by one, ``key`` is its former last key.
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
        (:func:`~kanon_db.algorithms.freeform.improvement.improve_matches`). Without it, this is
        the paper's algorithm, each round of which is optimal given those before.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    ndarray of int32, shape (n, k)
        As in :class:`~kanon_db.algorithms.freeform.matches.FreeformMatches`; optimal for k = 2.

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
    """Owners of cells, waiting originals, and the cheapest cells that these remember."""

    owner: IntArray  # (n,): original that has each cell, -1 for none
    waiting: IntArray  # (n,): the originals without a cell come first
    # (n, 16): cells that were the cheapest for each original when it last looked, -1 where there
    # were fewer
    cells: CodeArray
    weights: IntArray  # (n, 16): their weights, in the scale of prices
    others: IntArray  # (n,): lower bound of the cost of all other cells, for each original


def assign_at_least_weight(
    graph: GrowingGraph, n_rounds: int, original_of_cell: IntArray, pulse: Pulse
) -> None:
    """Find an assignment of least total weight, exactly.

    **Source:** Bertsekas, auction, 1988; exact, as weights count n + 1 units. Cells are cached.
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


@kernel
def _bid(
    graph: GrowingGraph, search: CheapestCells, auction: _Auction, size: int, increment: int
) -> int:
    """Let originals bid, the last in the list first; return how many still wait."""
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
def _two_cheapest(graph: GrowingGraph, auction: _Auction, original: int) -> tuple[int, int, int]:
    """Find the cheapest cached cell of an original, its cost and that of the second cheapest."""
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


def reciprocal(ncp: Ncp, k: int, *, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Build a reciprocal graph by taking the pair of records of least weight again and again.

    A reciprocal graph gives no better guarantee than any other k-regular graph. Whoever learns the
    true matches of c records can use them against the others. In an equivalence class, the others
    keep at least k - c possible matches; in a connected graph, reciprocal or not, a record may keep
    a single one.

    Parameters
    ----------
    ncp : Ncp
    k : int
        Matches of each record, from 1 to the number of records.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    ndarray of int32, shape (n, k)
        As in :class:`~kanon_db.algorithms.freeform.matches.FreeformMatches`; record i matches
        record j whenever j matches i. The columns after the first need not be symmetric.

    Raises
    ------
    InfeasibleError
        If the number of records and k - 1 are both odd: then no reciprocal graph is k-regular.

    Notes
    -----
    **Source:** [FF] Sections 1 and 2.2 (after Choromanski, Jebara and Tang), which say that all
    algorithms of the paper can be tuned to reciprocity, but not how; and that c known matches leave
    k - c, which does not hold (``tests/attacks/test_known_matches.py``). Here each round is one of
    SortGreedy on pairs of records instead of edges: the weight of a pair is that of both edges.
    Records left without a partner are repaired in the end: two of them that lack one match each, or
    one that lacks two, replace a pair, whose records they match instead. Where no pair can be
    replaced, which happens only for k close to the number of records, each record matches its
    neighbors in the order of the tree.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
    >>> age = Attribute(4, numbers=np.array([20.0, 30, 50, 60]), lower=20, upper=60)
    >>> table = Microdata([[0], [1], [2], [3]], (age,))
    >>> reciprocal(Ncp.of(table), 2).tolist()
    [[0, 1], [1, 0], [2, 3], [3, 2]]
    """
    n = ncp.values.shape[0]
    if n * (k - 1) % 2:
        raise InfeasibleError(
            "no reciprocal graph exists",
            detail=f"n_records = {n}, k = {k}: n_records * (k - 1) must be even",
            hint="choose another k",
        )
    graph = build(ncp, k)
    for n_rounds in range(1, k):
        partner = np.full(n, NONE, dtype=np.int64)
        open_round(graph)
        take_lightest(graph, search_for(1, n_rounds, mutual=True), partner, pulse)
        extend(graph, partner, n_rounds)
    rows = graph.cells_of  # and the originals that each cell covers
    if not _make_up(ncp.of_records(graph.record), rows, pulse):
        rows[:] = _neighbors(n, k)
    matches = np.empty_like(rows)
    matches[graph.record] = graph.record[rows]
    return as_assignments(matches, pulse=pulse)


def _make_up(ncp: Ncp, rows: CodeArray, pulse: Pulse) -> bool:
    """Complete records that lack matches; tell whether that worked."""
    n = rows.shape[0]
    lacking = np.repeat(np.arange(n), (rows == NONE).sum(axis=1)).tolist()
    while lacking:
        pulse.beat()
        first = lacking.pop()
        partner = np.zeros(n, dtype=np.bool_)
        partner[rows[first][rows[first] != NONE]] = True
        apart = [place for place, other in enumerate(lacking) if not partner[other]]
        if apart:
            _connect(rows, first, lacking.pop(apart[-1]))
            continue
        second = lacking.pop()
        taken = np.zeros(n, dtype=np.bool_)
        taken[rows[second][rows[second] != NONE]] = True
        one, column = np.nonzero(rows[:, 1:] != NONE)
        other = rows[one, column + 1]
        free = ~partner[one] & ~taken[other]
        if not free.any():
            return False
        one, other = one[free], other[free]
        increase = pair_units(ncp, first, one) + pair_units(ncp, second, other)
        best = int(np.argmin(increase - pair_units(ncp, one, other)))
        a, b = int(one[best]), int(other[best])
        rows[a][rows[a] == b] = NONE
        rows[b][rows[b] == a] = NONE
        _connect(rows, first, a)
        _connect(rows, second, b)
    return True


def _connect(rows: CodeArray, one: int, other: int) -> None:
    rows[one, np.flatnonzero(rows[one] == NONE)[0]] = other
    rows[other, np.flatnonzero(rows[other] == NONE)[0]] = one


def _neighbors(n: int, k: int) -> CodeArray:
    """Let each position match as many positions before it in a ring as behind it."""
    half = (k - 1) // 2
    shifts = [0, *range(1, half + 1), *range(-half, 0)] + ([n // 2] if k % 2 == 0 else [])
    rows = np.empty((n, k), dtype=np.int32)
    for column, shift in enumerate(shifts):
        rows[:, column] = np.roll(np.arange(n), -shift)
    return rows
