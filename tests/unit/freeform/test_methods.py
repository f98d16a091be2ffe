from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kanon_db.algorithms.freeform._generalization_graph import cell_units
from kanon_db.algorithms.freeform.improvement import ring
from kanon_db.algorithms.freeform.matches import partitioned
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
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.errors import InfeasibleError, InvalidParameterError
from tests.generalization_plain import random_table
from tests.unit.freeform.plain import assert_valid, graph_loss, run

METHODS = (greedy, sort_greedy, hungarian, ring, min_cost_flow)
Weights = IntArray


def weights_after(ncp: Ncp, matches: IntArray) -> Weights:
    """Weight of every edge; rows are originals. Edges that were taken weigh -1."""
    n = matches.shape[0]
    before = cell_units(ncp, matches)
    weights = np.empty((n, n), dtype=np.int64)
    for original in range(n):
        rows = np.column_stack([matches, np.full(n, original)])
        weights[original] = cell_units(ncp, rows) - before
        weights[original, (matches == original).any(axis=1)] = -1
    return weights


@pytest.mark.parametrize("kinds", ["nnn", "n0c", "ccc"])
def test_min_cost_flow_against_another_solver(kinds: str) -> None:
    """The sum of weights is that of scipy's linear program over all edges."""
    optimize = pytest.importorskip("scipy.optimize")
    n, k = 40, 4
    table = random_table(np.random.default_rng(6), n, kinds, 5)
    weights = weights_after(Ncp.of(table), np.arange(n)[:, np.newaxis])
    rows = np.kron(np.eye(n), np.ones(n))
    columns = np.kron(np.ones(n), np.eye(n))
    best = optimize.linprog(
        np.maximum(weights, 0).ravel(),
        A_eq=np.vstack([rows, columns]),
        b_eq=np.full(2 * n, k - 1),
        bounds=[(0, float(edge >= 0)) for edge in weights.ravel()],
    )
    matches = run(min_cost_flow, table, k)
    assert_valid(table, matches, k)
    found = sum(weights[matches[:, column], np.arange(n)].sum() for column in range(1, k))
    assert found == pytest.approx(best.fun)


def test_threads_end_with_the_heartbeat() -> None:
    """None is left, and none has taken a signal meant for the caller."""
    table = random_table(np.random.default_rng(2), 400, "n0c", 40)
    before = threading.active_count()
    masks = []

    def method(ncp: Ncp, k: int, *, pulse: Pulse) -> CodeArray:
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        while True:  # until the caller stops it
            pulse.beat()

    class Stopped(BaseException):
        pass

    def stop() -> None:
        assert threading.current_thread() is threading.main_thread()
        if len(masks) == 2:
            raise Stopped

    own = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with pytest.raises(Stopped):
        partitioned(table, 3, method, 50, workers=2, pulse=Pulse(heartbeat=stop))
    assert threading.active_count() == before
    assert all({signal.SIGINT, signal.SIGTERM} <= mask for mask in masks)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == own


def test_what_a_thread_raises_ends_the_others() -> None:
    table = random_table(np.random.default_rng(2), 400, "n0c", 40)
    before = threading.active_count()
    others = iter([False, True])

    def method(ncp: Ncp, k: int, *, pulse: Pulse) -> CodeArray:
        if next(others, False):
            raise InfeasibleError("one of them fails")
        while True:
            pulse.beat()

    with pytest.raises(InfeasibleError, match="one of them"):
        partitioned(table, 3, method, 50, workers=2)
    assert threading.active_count() == before


def found(method: Callable[..., Any], table: Microdata, k: int, **options: Any) -> CodeArray:
    """Matches by a method or by the optimum, which takes microdata."""
    if method is optimal:
        return optimal(table, k, **options).matches
    return run(method, table, k, **options)


@pytest.mark.parametrize("method", [*METHODS, optimal])
def test_small_tables(method: Callable[..., Any]) -> None:
    table = random_table(np.random.default_rng(2), 6, "n0c", 4)
    for k in range(1, 7):
        assert_valid(table, found(method, table, k), k)
    with pytest.raises(InfeasibleError, match="k must not exceed"):
        found(method, table, 7)
    with pytest.raises(InvalidParameterError, match="k must be at least 1"):
        found(method, table, 0)
    nothing = Microdata(np.empty((0, 3), dtype=np.int32), table.attributes)
    assert found(method, nothing, 3).shape == (0, 3)


@pytest.mark.parametrize("method", [*METHODS, optimal])
def test_the_heartbeat_ends_the_work(method: Callable[..., Any]) -> None:
    class Stopped(BaseException):
        pass

    def stop() -> None:
        raise Stopped

    table = random_table(np.random.default_rng(2), 9, "n0c", 4)
    with pytest.raises(Stopped):
        found(method, table, 3, pulse=Pulse(heartbeat=stop))


def test_partition_sizes_that_make_no_sense() -> None:
    table = random_table(np.random.default_rng(2), 9, "n0c", 4)
    with pytest.raises(InvalidParameterError, match="partition_size must not be less than k"):
        partitioned(table, 3, sort_greedy, 2)
    assert_valid(table, partitioned(table, 3, sort_greedy, 100).matches, 3)


@pytest.mark.parametrize("workers", [1, 2])
def test_limits_of_the_methods_hold_for_each_partition(workers: int) -> None:
    size = 402
    k = MAX_MATCHES // size + 1
    table = random_table(np.random.default_rng(2), 2 * size, "nc", 4)
    with pytest.raises(InvalidParameterError, match="too many matches") as caught:
        partitioned(table, k, min_cost_flow, size, workers=workers)
    assert f"{size} records, k = {k}" in caught.value.detail
    assert f"{MAX_MATCHES:,}" in caught.value.detail


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


def test_limits_of_the_optimum() -> None:
    table = random_table(np.random.default_rng(2), 40, "nc", 4)
    with pytest.raises(InvalidParameterError, match="too large") as caught:
        optimal(table, 6)
    assert f"{MAX_COLUMNS:,}" in caught.value.detail


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
