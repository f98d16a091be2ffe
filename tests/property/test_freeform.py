"""Freeform generalization of small tables against the definitions, and exhaustive search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.freeform._generalization_graph import units_lost
from kanon_db.algorithms.freeform.improvement import improve_matches, ring
from kanon_db.algorithms.freeform.k_concealment import k_concealment
from kanon_db.algorithms.freeform.matches import (
    FreeformMatches,
    Method,
    cells,
    draw_assignments,
    numbered_cells,
    partitioned,
    partitions,
)
from kanon_db.algorithms.freeform.matching_heuristics import (
    greedy,
    hungarian,
    reciprocal,
    sort_greedy,
)
from kanon_db.algorithms.freeform.optimal_graph import min_cost_flow
from kanon_db.algorithms.recoding.generalized_cells import Ranges, Sets, distinct_cells
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.algorithms.recoding.microdata import Microdata, sort_order
from kanon_db.errors import InfeasibleError
from kanon_db.metrics.information_loss import measure_freeform
from tests.profiles import examples
from tests.property.generalization_tables import tables
from tests.unit.freeform.plain import (
    assert_valid,
    graph_loss,
    least_assignment,
    run,
)

Case = tuple[Microdata, int]
METHODS = (
    *(greedy, sort_greedy, hungarian, ring, min_cost_flow),
    *(partial(method, improve=False) for method in (greedy, sort_greedy, hungarian)),
)
"""Improved, and as they are printed."""


def tried(n: int, *sizes: int) -> Callable[[Any], Any]:
    """Try so many tables of at most so many records, with a k of at most so many."""
    case = given(case=tables(*sizes, least_records=2))
    return lambda test: settings(max_examples=examples(n), deadline=None)(case(test))


@pytest.fixture(scope="module", autouse=True)
def _few_proposals() -> Iterator[None]:
    """Improve a little: guarantees do not depend on how much."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kanon_db.algorithms.freeform.improvement.EFFORT", 3)
        yield


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
@tried(60, 40, 40)
def test_k_disjoint_assignments(method: Method, case: Case) -> None:
    """With ties, NULLs and repeated rows, and k up to the number of records."""
    table, k = case
    assert_valid(table, run(method, table, k), k)


@tried(60, 30, 12)
def test_improvement_never_loses_more(case: Case) -> None:
    table, k = case
    for method in (ring, partial(sort_greedy, improve=False)):
        before = run(method, table, k)
        after = improve_matches(Ncp.of(table), before)
        assert_valid(table, after, k)
        assert graph_loss(table, after) <= graph_loss(table, before)


@tried(150, 30, 30)
def test_reciprocal_graphs(case: Case) -> None:
    table, k = case
    if table.n_records * (k - 1) % 2:
        with pytest.raises(InfeasibleError, match="reciprocal"):
            run(reciprocal, table, k)
        return
    matches = run(reciprocal, table, k)
    assert_valid(table, matches, k)
    edges = {(j, i) for j, row in enumerate(matches.tolist()) for i in row}
    assert edges == {(i, j) for j, i in edges}


@tried(40, 9, 5)
def test_concealed_records_have_k_possible_matches(case: Case) -> None:
    """Each of k cells that cover an original is its match in some assignment of all."""
    table, k = case
    matches = k_concealment(table, k).matches
    n = table.n_records
    covers = np.ones((n, n), dtype=np.bool_)  # original, cell
    for j, cell in enumerate(cells(table, matches)):
        codes = table.codes[:, j]
        if isinstance(cell, Ranges):
            inside = (codes[:, np.newaxis] >= cell.low) & (codes[:, np.newaxis] <= cell.high)
            covers &= inside | cell.tells_nothing
        else:
            sets = np.split(cell.codes, cell.ends[:-1])
            covers &= np.array([[code in one for one in sets] for code in codes.tolist()])
    for original in range(n):
        possible = 0
        for cell_ in np.flatnonzero(covers[original]):
            rest = np.delete(np.delete(covers, original, axis=0), cell_, axis=1)
            possible += has_assignment(rest)
        assert possible >= k


def has_assignment(covers: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> bool:
    """Augment along alternating paths, original by original."""
    owner: dict[int, int] = {}

    def place(original: int, seen: set[int]) -> bool:
        for cell in np.flatnonzero(covers[original]).tolist():
            if cell in seen:
                continue
            seen.add(cell)
            if cell not in owner or place(owner[cell], seen):
                owner[cell] = original
                return True
        return False

    return all(place(original, set()) for original in range(covers.shape[0]))


@tried(60, 20, 6)
def test_losses_by_the_definition(case: Case) -> None:
    table, k = case
    matches = run(sort_greedy, table, k)
    ncp, expected = Ncp.of(table), graph_loss(table, matches)
    assert units_lost(ncp, matches) * ncp.unit == expected
    lost = measure_freeform(table, cells(table, matches)).weighted_loss
    assert lost == pytest.approx(float(expected))


@tried(40, 7, 4)
def test_each_round_of_hungarian_is_the_best_of_all_assignments(case: Case) -> None:
    table, k = case
    matches = run(hungarian, table, max(k, 2), improve=False)
    assert graph_loss(table, matches) == least_assignment(table, matches[:, :-1])


@pytest.mark.long
@pytest.mark.parametrize("method", [greedy, sort_greedy, hungarian, ring])
@tried(25, 60)
def test_partitions_do_not_mix(method: Method, case: Case) -> None:
    table, k = case
    for size in (5, 20):
        matches = partitioned(table, k, method, size).matches
        assert_valid(table, matches, k)
        parts = partitions(Ncp.of(table).values, size)
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(table.n_records))
        assert all(part.size >= min(size, table.n_records) for part in parts)
        assert max(part.size for part in parts) < 2 * size + 4 or len(parts) == 1
        assert not any(part.size % 2 for part in parts[:-1])
        part_of = np.empty(table.n_records, dtype=np.int64)
        for number, part in enumerate(parts):
            part_of[part] = number
        assert (part_of[matches] == part_of[:, np.newaxis]).all()


@tried(15, 60)
def test_the_number_of_workers_does_not_matter(case: Case) -> None:
    alone = partitioned(*case, sort_greedy, 8)
    for workers in (2, 4):
        together = partitioned(*case, sort_greedy, 8, workers=workers)
        assert np.array_equal(alone.matches, together.matches)


@settings(max_examples=examples(40), deadline=None)
@given(tables(60, least_records=2), st.integers(5, 60), st.sampled_from([1, 20]))
def test_numbered_cells_are_the_cells_of_all_records(case: Case, size: int, run: int) -> None:
    """However parts are grouped for it."""
    table, k = case
    found = partitioned(table, k, sort_greedy, max(size, k))
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr("kanon_db.algorithms.freeform.matches._RECORDS_OF_RUN", run)
        numbered = numbered_cells(table, found)
        drawn = draw_assignments(found, np.random.default_rng(run))
    assert np.array_equal(np.sort(drawn.matches, axis=1), np.sort(found.matches, axis=1))
    for ours, plain in zip(numbered, cells(table, found.matches), strict=True):
        every = ours.taken(slice(None))
        if isinstance(plain, Ranges):
            assert isinstance(every, Ranges)
            assert np.array_equal(every.tells_nothing, plain.tells_nothing)
            told = ~plain.tells_nothing  # else the codes of the ends mean nothing
            assert np.array_equal(every.low[told], plain.low[told])
            assert np.array_equal(every.high[told], plain.high[told])
        else:
            assert isinstance(every, Sets)
            assert every.codes.tolist() == plain.codes.tolist()
            assert every.ends.tolist() == plain.ends.tolist()
        assert distinct_cells(ours.cells).cells.n_cells == ours.cells.n_cells
    lost, plainly = (
        measure_freeform(table, numbered),
        measure_freeform(table, cells(table, found.matches)),
    )
    assert lost.weighted_loss == pytest.approx(plainly.weighted_loss)


@settings(max_examples=examples(60), deadline=None)
@given(tables(40, 12, least_records=2), st.integers(0, 2**32))
def test_drawn_assignments_are_disjoint_and_of_the_graph(case: Case, seed: int) -> None:
    table, k = case
    matches = run(sort_greedy, table, k)
    drawn = draw_assignments(FreeformMatches.whole(matches), np.random.default_rng(seed))
    rows = np.empty_like(matches)
    for column, of_original in enumerate(drawn.cell_of_original):
        assert np.array_equal(np.sort(of_original), np.arange(table.n_records))
        rows[of_original, column] = np.arange(table.n_records)
    assert np.array_equal(np.sort(rows, axis=1), np.sort(matches, axis=1))
    assert np.array_equal(drawn.cells, drawn.cell_of_original[drawn.chosen])


@settings(max_examples=examples(25), deadline=None)
@given(tables(30, least_records=2), st.integers(0, 2**32))
def test_the_order_of_records_does_not_matter(case: Case, seed: int) -> None:
    table, k = case
    order = np.random.default_rng(seed).permutation(table.n_records)
    shuffled = Microdata(table.codes[order], table.attributes)
    rows = [one.codes[sort_order(one)] for one in (table, shuffled)]
    assert np.array_equal(*rows)
    for method in (greedy, sort_greedy, hungarian):
        losses = [graph_loss(one, run(method, one, k)) for one in (table, shuffled)]
        assert losses[0] == losses[1]
