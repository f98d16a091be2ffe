from __future__ import annotations

import importlib
import threading

import numpy as np
import pytest

from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.suppression.optimal_suppression import optimal
from kanon_db.algorithms.suppression.pattern_vectors import all_patterns, parse_patterns
from kanon_db.errors import InfeasibleError, InvalidParameterError
from kanon_db.metrics.information_loss import output_row_types

module = importlib.import_module("kanon_db.algorithms.suppression.optimal_suppression")


class StoppedError(RuntimeError):
    pass


@pytest.fixture
def hard() -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """A table that the greedy heuristic does not solve, nor the cheapest instances."""
    return np.random.default_rng(11).integers(0, 4, size=(60, 5))


def test_no_instance_has_k_records() -> None:
    with pytest.raises(
        InfeasibleError, match="no suppression with these patterns exists"
    ) as caught:
        optimal([[0, 0], [0, 1], [71, 2]], parse_patterns([".*"], 2), 2)
    assert "1 of 3 records" in caught.value.detail
    assert "71" not in caught.value.detail


def test_out_of_time_the_greedy_suppression_remains(
    hard: np.ndarray[tuple[int, int], np.dtype[np.int64]],
) -> None:
    patterns = all_patterns(5)
    best = optimal(hard, patterns, 4)
    assert best.proof.status == "optimal"
    found = optimal(hard, patterns, 4, pulse=Pulse(1e-9))
    assert found.proof.status == "feasible"
    assert found.proof.lower_bound <= best.proof.objective < found.proof.objective
    assert found.proof.gap == float(
        (found.proof.objective - found.proof.lower_bound) / found.proof.objective
    )
    assert output_row_types(hard, found.suppression.suppressed).smallest_size >= 4


def test_out_of_time_without_a_start() -> None:
    # The greedy heuristic takes the first two records together; the others then lack them.
    rows = [[0, 0], [0, 0], [0, 1], [1, 0]]
    patterns = parse_patterns(["..", ".*", "*."], 2)
    assert optimal(rows, patterns, 2).proof.objective == 4
    with pytest.raises(InfeasibleError, match="within the time limit"):
        optimal(rows, patterns, 2, pulse=Pulse(1e-9))


def test_the_heartbeat_stops_the_solver(
    hard: np.ndarray[tuple[int, int], np.dtype[np.int64]],
) -> None:
    n_threads = threading.active_count()
    caller = threading.get_ident()
    solving = False

    def heartbeat() -> None:
        nonlocal solving
        assert threading.get_ident() == caller
        if threading.active_count() > n_threads:
            solving = True
            raise StoppedError

    with pytest.raises(StoppedError):
        optimal(hard, all_patterns(5), 3, pulse=Pulse(heartbeat=heartbeat))
    assert solving
    assert threading.active_count() == n_threads


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CELLS", 11)
    with pytest.raises(InvalidParameterError, match="too large for the method optimal"):
        optimal([[0, 0], [0, 1], [1, 1]], all_patterns(2), 1)
