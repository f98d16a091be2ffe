"""Methods of freeform generalization, what is drawn from their graphs, and its verification."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kanon_db.algorithms.freeform._generalization_graph import cell_units
from kanon_db.algorithms.freeform.improvement import ring
from kanon_db.algorithms.freeform.matches import (
    FreeformMatches,
    MatchedPart,
    cells,
    draw_assignments,
    partitioned,
)
from kanon_db.algorithms.freeform.matching_checks import least_coverage, verify_matching
from kanon_db.algorithms.freeform.matching_heuristics import (
    greedy,
    hungarian,
    reciprocal,
    sort_greedy,
)
from kanon_db.algorithms.freeform.optimal_graph import (
    MAX_COLUMNS,
    MAX_MATCHES,
    min_cost_flow,
    optimal,
)
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.generalized_cells import Ranges, Sets
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.errors import InfeasibleError, InvalidParameterError
from kanon_db.randomness import SecureRandom
from tests.generalization_plain import random_table
from tests.unit.freeform.plain import assert_valid, graph_loss, run

METHODS = (greedy, sort_greedy, hungarian, ring, min_cost_flow)


@pytest.mark.parametrize("kinds", ["n0c", "ccc"])
def test_min_cost_flow_against_another_solver(kinds: str) -> None:
    """The sum of weights is that of scipy's linear program over all edges."""
    optimize = pytest.importorskip("scipy.optimize")
    n, k = 40, 4
    table = random_table(np.random.default_rng(6), n, kinds, 5)
    ncp, alone = Ncp.of(table), np.arange(n)[:, np.newaxis]
    # Of every edge; rows are originals.
    weights = np.array(
        [cell_units(ncp, np.column_stack([alone, np.full(n, original)])) for original in range(n)]
    ) - cell_units(ncp, alone)
    best = optimize.linprog(
        weights.ravel(),
        A_eq=np.vstack([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))]),
        b_eq=np.full(2 * n, k - 1),
        bounds=[(0, float(i != j)) for i in range(n) for j in range(n)],
    )
    matches = run(min_cost_flow, table, k)
    assert_valid(table, matches, k)
    found = sum(weights[matches[:, column], np.arange(n)].sum() for column in range(1, k))
    assert found == pytest.approx(best.fun)


@pytest.mark.parametrize("who", ["the caller", "a thread"])
def test_threads_end_together(who: str) -> None:
    """None is left, and none has taken a signal meant for the caller."""
    table = random_table(np.random.default_rng(2), 400, "n0c", 40)
    before = threading.active_count()
    masks: list[set[int]] = []

    class Stopped(BaseException):
        pass

    def method(ncp: Ncp, k: int, *, pulse: Pulse) -> CodeArray:
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        if who == "a thread" and len(masks) == 2:
            raise Stopped
        while True:  # until the caller stops it
            pulse.beat()

    def stop() -> None:
        assert threading.current_thread() is threading.main_thread()
        if who == "the caller" and len(masks) == 2:
            raise Stopped

    own = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with pytest.raises(Stopped):
        partitioned(table, 3, method, 50, workers=2, pulse=Pulse(heartbeat=stop))
    assert threading.active_count() == before
    assert all({signal.SIGINT, signal.SIGTERM} <= mask for mask in masks)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == own


@pytest.mark.parametrize("method", [*METHODS, optimal])
def test_small_tables(method: Callable[..., Any]) -> None:
    def found(table: Microdata, k: int) -> CodeArray:
        if method is optimal:
            return optimal(table, k).matches
        return run(method, table, k)

    table = random_table(np.random.default_rng(2), 6, "n0c", 4)
    for k in range(1, 7):
        assert_valid(table, found(table, k), k)
    with pytest.raises(InfeasibleError, match="k must not exceed"):
        found(table, 7)
    with pytest.raises(InvalidParameterError, match="k must be at least 1"):
        found(table, 0)
    nothing = Microdata(np.empty((0, 3), dtype=np.int32), table.attributes)
    assert found(nothing, 3).shape == (0, 3)


@pytest.mark.parametrize("workers", [1, 2])
def test_limits(workers: int) -> None:
    """Those of a method hold for each partition."""
    size = 402
    k = MAX_MATCHES // size + 1
    table = random_table(np.random.default_rng(2), 2 * size, "nc", 4)
    with pytest.raises(InvalidParameterError, match="too many matches") as caught:
        partitioned(table, k, min_cost_flow, size, workers=workers)
    assert f"{size} records, k = {k}" in caught.value.detail
    assert f"{MAX_MATCHES:,}" in caught.value.detail
    few = random_table(np.random.default_rng(2), 40, "nc", 4)
    with pytest.raises(InvalidParameterError, match="too large") as caught:
        optimal(few, 6)
    assert f"{MAX_COLUMNS:,}" in caught.value.detail
    with pytest.raises(InvalidParameterError, match="partition_size must not be less than k"):
        partitioned(few, 3, sort_greedy, 2)
    assert_valid(few, partitioned(few, 3, sort_greedy, 100).matches, 3)


def test_symmetric_graphs_exist_in_each_partition() -> None:
    """An even number of records is cut into even numbers, whatever the size asked for."""
    random = np.random.default_rng(2)
    for n in (60, 62, 74):
        table = random_table(random, n, "nc", 4)
        for size in (7, 9, 10, 15):
            assert_valid(table, partitioned(table, 4, reciprocal, size).matches, 4)
    odd = random_table(random, 61, "nc", 4)
    with pytest.raises(InfeasibleError, match="no reciprocal graph"):
        partitioned(odd, 4, reciprocal, 10)


def test_reciprocal_optimum() -> None:
    table = random_table(np.random.default_rng(4), 8, "nnc", 5)
    found, free = optimal(table, 3, symmetric=True), optimal(table, 3)
    assert_valid(table, found.matches, 3)
    edges = {(j, i) for j, row in enumerate(found.matches.tolist()) for i in row}
    assert edges == {(i, j) for j, i in edges}
    assert found.proof.status == "optimal"
    assert found.proof.objective == graph_loss(table, found.matches) >= free.proof.objective
    odd = random_table(np.random.default_rng(4), 7, "nnc", 5)
    with pytest.raises(InfeasibleError, match="no reciprocal graph"):
        optimal(odd, 4, symmetric=True)


MATCHES = np.array(
    [[0, 4, 6], [1, 0, 3], [2, 3, 1], [3, 5, 0], [4, 6, 2], [5, 1, 4], [6, 2, 5]], dtype=np.int32
)
GRAPH = FreeformMatches.whole(MATCHES)
CRITICAL_2 = 13.82  # chi-square with 2 degrees of freedom, exceeded once in 1,000


def chi_square(observed: IntArray) -> float:
    expected = observed.sum() / observed.size
    return float(((observed - expected) ** 2 / expected).sum())


@pytest.mark.long
def test_each_match_is_the_true_one_as_often() -> None:
    random = np.random.default_rng(7)
    n, k = MATCHES.shape
    drawn = [draw_assignments(GRAPH, random) for _ in range(2000)]
    assert chi_square(np.bincount([one.chosen for one in drawn], minlength=k)) < CRITICAL_2
    of_cell = np.array([np.argsort(one.cells) for one in drawn])
    for cell in range(n):
        observed = np.array([np.count_nonzero(of_cell[:, cell] == i) for i in MATCHES[cell]])
        assert observed.sum() == 2000
        assert chi_square(observed) < CRITICAL_2


def test_another_draw_of_the_same_graph_is_another_one() -> None:
    """Not only the choice, but what there is to choose from."""
    random = np.random.default_rng(11)
    graphs = Counter(
        frozenset(map(bytes, draw_assignments(GRAPH, random).cell_of_original)) for _ in range(300)
    )
    assert len(graphs) > 1
    assert graphs.most_common(1)[0][1] < 300 * 0.9


def test_the_random_source_is_asked_for_each_choice() -> None:
    """A source that rejects its first number, for it would make the choice uneven."""
    numbers, walks = [2**64 - 1, 5], np.random.default_rng(1)

    class Scripted:
        def bytes(self, length: int, /) -> bytes:
            return walks.bytes(length) if length > 8 else numbers.pop(0).to_bytes(8, "little")

    assert draw_assignments(GRAPH, Scripted()).chosen == 5 % 3
    assert not numbers


@pytest.mark.parametrize("second", [[1, 1, 0], [0, 1, 2], [1, 2, 3], [1, 0, -1]])
def test_irregular_graphs_are_refused(second: list[int]) -> None:
    """Second matches of three records: some twice, themselves, or nobody's."""
    matches = np.column_stack([np.arange(3), second]).astype(np.int32)
    with pytest.raises(InvalidParameterError, match="matches"):
        draw_assignments(FreeformMatches.whole(matches), np.random.default_rng(1))


def test_parts_of_a_graph_are_split_by_themselves() -> None:
    n, k = 20_000, 4
    records = np.random.default_rng(4).permutation(n).reshape(-1, k)
    among = np.repeat(np.arange(k, dtype=np.uint8)[np.newaxis], k, axis=0)
    found = FreeformMatches([MatchedPart(some, among) for some in records])
    drawn = draw_assignments(found, SecureRandom(), workers=2)
    for cell_of_original in drawn.cell_of_original:
        assert (np.sort(cell_of_original) == np.arange(n)).all()
        assert (found.matches[cell_of_original] == np.arange(n)[:, np.newaxis]).any(axis=1).all()
    assert (np.diff(np.sort(drawn.cell_of_original, axis=0), axis=0) > 0).all()
    assert np.array_equal(np.sort(drawn.matches, axis=1), np.sort(found.matches, axis=1))


AGE = Attribute(5, np.array([20.0, 30, 40, 50, np.nan]), lower=20, upper=50)
TABLE = Microdata([[0, 0], [1, 1], [2, 0], [3, 2], [4, 1]], (AGE, Attribute(3)))
FIVE = np.array([[0, 1], [1, 0], [2, 3], [3, 4], [4, 2]])


def test_what_holds() -> None:
    checks = verify_matching(FIVE, TABLE, 2, cells(TABLE, FIVE))
    assert checks.holds
    assert (checks.least_originals, checks.least_published) == (2, 2)
    assert not verify_matching(FIVE, TABLE, 3, cells(TABLE, FIVE)).holds
    matches = FIVE.copy()
    matches[2, 1], matches[3, 1] = 5, -1
    checks = verify_matching(matches, TABLE, 2, cells(TABLE, FIVE))
    assert (checks.n_unknown, checks.holds) == (2, False)  # those that are no records


@pytest.mark.parametrize(
    ("changed", "value", "least", "of_originals"),
    [((0, 1), 0, 1, 1), ((0, 1), 3, 2, 1), ((4, 0), 2, 1, 1)],
)
def test_other_graphs(changed: tuple[int, int], value: int, least: int, of_originals: int) -> None:
    matches = FIVE.copy()
    matches[changed] = value
    checks = verify_matching(matches, TABLE, 2, cells(TABLE, matches))
    assert not checks.is_regular
    assert not checks.holds
    assert checks.least_originals == least
    assert checks.least_published == of_originals


def test_values_outside_their_cells() -> None:
    ages, jobs = cells(TABLE, FIVE)
    assert isinstance(ages, Ranges)
    assert isinstance(jobs, Sets)
    high = ages.high.copy()
    high[1] = 0
    narrow = verify_matching(FIVE, TABLE, 2, (replace(ages, high=high), jobs))
    assert (narrow.n_outside, narrow.holds) == (1, False)
    known = replace(ages, tells_nothing=np.zeros(5, dtype=np.bool_))
    assert verify_matching(FIVE, TABLE, 2, (known, jobs)).n_outside == 2
    codes = jobs.codes.copy()
    codes[1] = 2  # the first cell's set is 0 and 1
    other = verify_matching(FIVE, TABLE, 2, (ages, replace(jobs, codes=codes)))
    assert (other.n_outside, other.holds) == (1, False)


def test_coverage_against_all_pairs() -> None:
    random = np.random.default_rng(3)
    for _ in range(50):
        codes = np.column_stack([random.integers(0, 5, 8), random.integers(0, 3, 8)])
        table = Microdata(codes, (AGE, Attribute(3)))
        ages, jobs = cells(table, random.integers(0, 8, (8, 3)))
        assert isinstance(ages, Ranges)
        assert isinstance(jobs, Sets)
        sets = np.split(jobs.codes, jobs.ends[:-1])
        old, job = codes.T[:, :, np.newaxis]
        covers = ages.tells_nothing | (ages.low <= old) & (old <= ages.high)
        covers &= np.column_stack([np.isin(job, members) for members in sets])
        least = covers.sum(axis=1).min(), covers.sum(axis=0).min()
        assert least_coverage(table, (ages, jobs)) == least
