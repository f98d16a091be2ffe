"""Finds k-concealments: k possible matches for each record, not equally likely ones. A baseline."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kanon_db.algorithms.freeform._generalization_graph import (
    BLOCK,
    FAR,
    NONE,
    GrowingGraph,
    build,
    is_matched,
    open_round,
    take_in,
    weigh_block,
    weight,
)
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, kernel
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.algorithms.recoding.microdata import Microdata, check_k
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError


@kernel
def strong_components(ends: IntArray, successors: CodeArray) -> IntArray:
    """Find the strongly connected components of a directed graph.

    **Source:** Tarjan: Depth-first search and linear graph algorithms, 1972; without recursion.
    """
    n = ends.size
    component = np.full(n, -1, dtype=np.int64)
    index, low = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64)
    following = np.zeros(n, dtype=np.int64)
    for node in range(1, n):  # numba compiles a copy of a slice for two seconds
        following[node] = ends[node - 1]
    path, open_ones = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    n_open = n_seen = n_components = 0
    for root in range(n):
        if index[root] >= 0:
            continue
        path[0], depth = root, 1
        while depth:
            node = path[depth - 1]
            if index[node] < 0:
                index[node] = low[node] = n_seen
                n_seen += 1
                open_ones[n_open] = node
                n_open += 1
            descends = False
            while following[node] < ends[node]:
                other = successors[following[node]]
                if index[other] < 0:
                    path[depth] = other
                    depth += 1
                    descends = True
                    break
                if component[other] < 0:
                    low[node] = min(low[node], low[other])
                following[node] += 1
            if descends:
                continue
            if low[node] == index[node]:
                while True:
                    n_open -= 1
                    component[open_ones[n_open]] = n_components
                    if open_ones[n_open] == node:
                        break
                n_components += 1
            depth -= 1
    return component


MAX_RECORDS = 20_000
"""Most records, since all pairs of them are examined repeatedly."""

_PAIRS_PER_CALL = 2**17


@dataclass(frozen=True, eq=False)
class Concealment:
    """What each published record covers, by a weaker guarantee than k-anonymity.

    Parameters
    ----------
    matches : ndarray of int32, shape (n_records, q)
        Originals whose values make up the cell of each published record, itself among them; a
        row with fewer than q is padded with the record itself. The cell may cover others, too.

    Notes
    -----
    Each original lies in at least k cells, and some assignment of all originals to cells gives it
    each of them. One cell may be its match in nearly all assignments, so that an adversary who
    knows all quasi-identifiers can be more than 1/k sure of it ([FF] Figure 3).
    """

    matches: CodeArray


def k_concealment(microdata: Microdata, k: int, *, pulse: Pulse = UNLIMITED) -> Concealment:
    """Enlarge cells until each original has k cells that it may be assigned to.

    **A weaker guarantee than k-anonymity**: the k possible matches are not equally likely.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Possible matches of each record, at least 1.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    Concealment

    Raises
    ------
    InfeasibleError
        If there are fewer than ``k`` records.
    InvalidParameterError
        If ``k`` is less than 1, or there are more than :data:`MAX_RECORDS` records.

    Notes
    -----
    **Source:** the baseline k-c of [FF] Sections 2.1 and 8, which calls it agglomerative and
    refers to Gionis, Mazza and Tassa: k-anonymization revisited, 2008. Three steps, the cheapest
    enlargement first: each cell takes in originals until it has k; each original is taken in by
    cells until it is in k; where fewer than k of them can be its match, one of those that cannot
    is made one, by taking its original into the original's own cell. A cell can be the match of
    an original in it exactly if both records lie in one strongly connected component of the
    graph, because the identity is an assignment. What cells cover by chance counts in all steps.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute
    >>> age = Attribute(4, numbers=np.array([20.0, 30, 50, 60]), lower=20, upper=60)
    >>> k_concealment(Microdata([[0], [1], [2], [3]], (age,)), 2).matches.tolist()
    [[0, 1], [1, 0], [2, 3], [3, 2]]
    """
    n = microdata.n_records
    check_k(k, n)
    if n > MAX_RECORDS:
        raise InvalidParameterError(
            "the table is too large for the method k_concealment",
            detail=f"{n:,} records, limit = {MAX_RECORDS:,}",
        )
    if not n:
        return Concealment(np.empty((0, k), dtype=np.int32))
    graph = build(Ncp.of(microdata, pulse=pulse), k)
    open_round(graph)
    matches = np.full((n, k), NONE, dtype=np.int32)
    matches[:, 0] = np.arange(n)
    for part in _parts(n, n * k, pulse):
        _fill(graph, matches, *part)
    added = [_spread(graph, k, *part) for part in _parts(n, n, pulse)]
    while True:
        coverings = [_covering(graph, *part) for part in _parts(n, n, pulse)]
        sizes, covering = map(np.concatenate, zip(*coverings, strict=True))
        ends = np.cumsum(sizes)
        component = strong_components(ends, covering)
        added.append(_reciprocate(graph, k, ends, covering, component))
        if not added[-1].size:
            return Concealment(_rows(graph, matches, np.concatenate(added)))


def _parts(n: int, n_pairs: int, pulse: Pulse) -> Iterator[tuple[int, int]]:
    """Divide records, each with ``n_pairs`` pairs to examine, into parts of some milliseconds."""
    size = max(1, _PAIRS_PER_CALL // n_pairs)
    for start in range(0, n, size):
        pulse.beat()
        yield start, min(start + size, n)


def _rows(graph: GrowingGraph, matches: CodeArray, added: IntArray) -> CodeArray:
    """Collect the originals of each cell, in terms of records."""
    n, k = matches.shape
    cell, original = added.T
    by_cell = np.argsort(cell, kind="stable")
    sizes = np.bincount(cell, minlength=n)
    place = np.arange(cell.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows = np.repeat(np.arange(n)[:, np.newaxis], k + int(sizes.max()), axis=1)
    rows[:, :k] = matches
    rows[cell[by_cell], k + place] = original[by_cell]
    result = np.empty(rows.shape, dtype=np.int32)
    result[graph.record] = graph.record[rows]
    return result


@kernel
def _fill(graph: GrowingGraph, matches: CodeArray, start: int, end: int) -> None:
    """Let cells take in the originals that cost least, one after the other."""
    n, k = matches.shape
    for cell in range(start, end):
        for n_taken in range(1, k):
            best, least = NONE, FAR
            for original in range(n):
                cost = int(weight(graph, original, cell))
                if cost < least and not is_matched(matches, cell, original, n_taken):
                    best, least = original, cost
                    if not least:
                        break
            matches[cell, n_taken] = best
            take_in(graph, best, cell)


@kernel
def _spread(graph: GrowingGraph, k: int, start: int, end: int) -> IntArray:
    """Let originals be taken in by the cells that they cost least; list cells and originals."""
    n = graph.record.size
    added = np.empty(((end - start) * k, 2), dtype=np.int64)
    n_added = 0
    grown, by_block = np.empty(BLOCK, dtype=np.int32), np.empty((-(-n // BLOCK), BLOCK), np.int64)
    for original in range(start, end):
        for block in range(by_block.shape[0]):
            weigh_block(graph, original, block * BLOCK, 1, grown, by_block, block)
        n_lacking = k
        for block in range(by_block.shape[0]):
            for place in range(BLOCK):
                n_lacking -= int(by_block[block, place] == 0)
        for _ in range(n_lacking):
            best, least = NONE, FAR
            for cell in range(n):
                cost = by_block[cell // BLOCK, cell % BLOCK]
                if 0 < cost < least:
                    best, least = cell, cost
            by_block[best // BLOCK, best % BLOCK] = 0
            take_in(graph, original, best)
            added[n_added, 0], added[n_added, 1] = best, original
            n_added += 1
    return added[:n_added]


@kernel
def _covering(graph: GrowingGraph, start: int, end: int) -> tuple[IntArray, CodeArray]:
    """List the cells that cover each original, and how many they are."""
    n = graph.record.size
    sizes = np.zeros(end - start, dtype=np.int64)
    covering = np.empty((end - start) * n, dtype=np.int32)
    grown, weights = np.empty(BLOCK, dtype=np.int32), np.empty((1, BLOCK), dtype=np.int64)
    size = 0
    for original in range(start, end):
        for first in range(0, n, BLOCK):
            if weigh_block(graph, original, first, 1, grown, weights, 0):
                continue
            for place in range(BLOCK):
                if weights[0, place] == 0:
                    covering[size] = first + place
                    size += 1
                    sizes[original - start] += 1
    return sizes, covering[:size].copy()


@kernel
def _reciprocate(
    graph: GrowingGraph,
    k: int,
    ends: IntArray,
    covering: CodeArray,
    component: IntArray,
) -> IntArray:
    """Make cells possible matches where there are too few; list cells and originals."""
    n = ends.size
    added = np.empty((n * k, 2), dtype=np.int64)
    n_added = start = 0
    for record in range(n):
        n_lacking = k
        for edge in range(start, ends[record]):
            n_lacking -= component[covering[edge]] == component[record]
        weights = np.full(ends[record] - start, FAR, dtype=np.int64)
        if n_lacking > 0:
            for edge in range(start, ends[record]):
                if component[covering[edge]] != component[record]:
                    weights[edge - start] = weight(graph, np.int64(covering[edge]), record)
        for _ in range(n_lacking):
            place = np.argmin(weights)
            weights[place] = FAR
            other = np.int64(covering[start + place])
            take_in(graph, other, record)
            added[n_added, 0], added[n_added, 1] = record, other
            n_added += 1
        start = ends[record]
    return added[:n_added]
