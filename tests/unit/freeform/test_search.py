"""Weights of blocks and searches in the tree of boxes, against all pairs weighed one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.freeform._generalization_graph import (
    BLOCK,
    FAR,
    NONE,
    GrowingGraph,
    build,
    cell_units,
    extend,
    find_cheapest,
    matches_of_records,
    open_round,
    raise_price,
    refresh,
    search_for,
    take,
    weigh_block,
    weight,
)
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.recoding.loss import Ncp
from tests.profiles import examples
from tests.unit.generalization.exhaustive import random_microdata


def graph_after(
    seed: int, n: int, kinds: str, n_values: int, n_rounds: int
) -> tuple[GrowingGraph, Ncp]:
    """A graph after some rounds, in which each cell takes an original a few places further."""
    ncp = Ncp.of(random_microdata(np.random.default_rng(seed), n, kinds, n_values))
    graph = build(ncp, n_rounds)
    open_round(graph)
    for r in range(1, n_rounds):
        extend(graph, np.roll(np.arange(n), -7 * r), r)
    refresh(graph)
    return graph, ncp


def all_weights(graph: GrowingGraph, ncp: Ncp) -> IntArray:
    """Weight of each edge by the losses of the cells; rows are originals, in positions."""
    matches = matches_of_records(graph)[graph.record]
    before = cell_units(ncp, matches)
    columns = [
        cell_units(ncp, np.column_stack([matches, np.full(len(matches), record)])) - before
        for record in graph.record
    ]
    return np.array(columns)


TABLES = st.tuples(
    st.integers(0, 2**32),
    st.sampled_from([3, 64, 65, 150]),
    st.sampled_from(["n", "0", "c", "n0c", "ccc00n"]),
    st.sampled_from([2, 5, 90]),
    st.integers(1, 3),
)


@settings(max_examples=examples(30), deadline=None)
@given(TABLES)
def test_a_block_is_weighed_as_its_cells_are(
    table: tuple[int, int, str, int, int],
) -> None:
    """And a box around them costs no more than any of them that is available."""
    graph, ncp = graph_after(*table)
    n = graph.record.size
    expected = all_weights(graph, ncp)
    for cell in range(0, n, 3):
        take(graph, cell)
    is_taken = graph.price[:n] == FAR
    grown, costs = np.empty(BLOCK, dtype=np.int32), np.empty((1, BLOCK), dtype=np.int64)
    for original in range(0, n, 11):
        of_blocks = []
        for first in range(0, n, BLOCK):
            own = slice(first, min(first + BLOCK, n))
            least = weigh_block(graph, original, first, 5, grown, costs, 0)
            found = costs[0, : own.stop - first]
            assert np.array_equal(found, 5 * expected[original, own] + FAR * is_taken[own])
            assert (costs[0, own.stop - first :] >= FAR).all()
            assert least == min(costs[0].min(), FAR)
            of_blocks.append(least)
        assert weight(graph, original, n - 1) == expected[original, n - 1]
        if graph.starts.size > 1:
            weigh_block(graph, original, graph.starts[1], 5, grown, costs, 0)
            assert (np.minimum(costs[0, : len(of_blocks)], FAR) <= of_blocks).all()


@settings(max_examples=examples(30), deadline=None)
@given(TABLES, st.integers(1, 5), st.booleans())
def test_the_cheapest_cells_are_found(
    table: tuple[int, int, str, int, int], n_cells: int, mutual: bool
) -> None:
    """Among those that are available, with what they are priced at, and not of earlier rounds."""
    graph, ncp = graph_after(*table)
    n, n_rounds = graph.cells_of.shape
    random = np.random.default_rng(table[0])
    scale = 1 if mutual else n + 1
    costs = scale * all_weights(graph, ncp)
    if mutual:
        costs += costs.T
    for cell in random.permutation(n)[: n // 2].tolist():
        price = int(random.integers(0, 50))
        raise_price(graph, cell, price)
        costs[:, cell] += price
    for cell in random.permutation(n)[: n // 2].tolist():
        take(graph, cell)
        costs[:, cell] = FAR
    costs[np.arange(n)[:, np.newaxis], graph.cells_of] = FAR
    before = graph.price.copy()
    search = search_for(n_cells, n_rounds, scale=scale, mutual=mutual)
    for original in range(n):
        find_cheapest(graph, search, original, np.int64(-FAR))
        least = np.sort(np.append(costs[original], [FAR] * n_cells))[:n_cells]
        assert np.array_equal(search.costs, least)
        cells = search.cells[least < FAR]
        assert np.array_equal(costs[original, cells], least[least < FAR])
        assert len(set(cells.tolist())) == cells.size
        assert (search.cells[least == FAR] == NONE).all()
    assert np.array_equal(graph.price, before)


@pytest.mark.parametrize("n", [64, 5000])
def test_a_search_ends_at_the_floor(n: int) -> None:
    """A cell that costs no more than what is known to be the least is not looked for further."""
    graph, _ = graph_after(1, n, "nc", 3, 1)
    search = search_for(1, 1)
    assert find_cheapest(graph, search, 5, np.int64(0)) == 1
    assert search.costs[0] == 0
