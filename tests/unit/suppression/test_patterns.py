"""Patterns of suppression, and the methods that choose among them."""

from __future__ import annotations

import importlib
import threading
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.suppression.greedy_suppression import greedy, join_left_over
from kanon_db.algorithms.suppression.optimal_suppression import optimal
from kanon_db.algorithms.suppression.pattern_vectors import (
    MAX_PATTERNS,
    all_patterns,
    expand_rules,
    parse_patterns,
)
from kanon_db.errors import InfeasibleError, InvalidParameterError
from kanon_db.metrics.information_loss import output_row_types

COLUMNS = ["age", "work", "job", "sex"]


def test_orders() -> None:
    """Canonical, of all: the first column counts most; weights count first, and ties are ties."""
    patterns = parse_patterns(["****", "..**", "*...", "**..", "...*", "*..."], 4)
    assert patterns.texts == ("*...", "...*", "..**", "**..", "****")
    assert patterns.n_stars.tolist() == [1, 1, 2, 2, 4]
    assert patterns.suppresses_fully
    assert all_patterns(3).texts == tuple("... ..* .*. *.. .** *.* **. ***".split())
    weighed = all_patterns(3, weights=["1/3", 0.1, Fraction(1, 2)])
    assert weighed.texts == tuple("... .*. *.. **. ..* .** *.* ***".split())
    assert weighed.cost_unit == 30
    assert weighed.costs.tolist() == [0, 3, 10, 13, 15, 18, 25, 28]
    for texts in (["..*", "**."], ["**.", "..*"]):  # in floating point 0.1 + 0.2 exceeds 0.3
        assert parse_patterns(texts, 3, weights=[0.1, 0.2, 0.3]).texts == tuple(texts)


@pytest.mark.parametrize(
    "weights",
    [[1, 2], [1, 2, 0], [1, 2, -1], [1, 2, "x"], [1, 2, float("nan")], [1, 2, float("inf")],
     [1, 2, "1e999999999"], [1, 2, "1/0"], [1, 2, None], [1, 2, True]],
)  # fmt: skip
def test_refused_weights(weights: list[Any]) -> None:
    with pytest.raises(InvalidParameterError, match="one number above 0"):
        all_patterns(3, weights=weights)


@pytest.mark.parametrize("text", ["..", "....", ".x.", "", None, "..\u066d"])
def test_refused_patterns(text: Any) -> None:
    with pytest.raises(InvalidParameterError, match="one \\* or \\.") as caught:
        parse_patterns(["...", text], 3)
    assert caught.value.detail == "pattern 2, quasi-identifiers: 3"


def test_too_many_patterns() -> None:
    assert len(all_patterns(16)) == MAX_PATTERNS
    names = [f"column {i}" for i in range(40)]
    for too_many in (lambda: all_patterns(17), lambda: expand_rules([{"at_most": 10}], names)):
        with pytest.raises(InvalidParameterError, match="too many pattern vectors"):
            too_many()
    assert len(expand_rules([{"at_most": 2}], names)) == 1 + 40 + 780
    for n_columns in (0, 63):
        with pytest.raises(InvalidParameterError, match="number of quasi-identifiers"):
            all_patterns(n_columns)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([{"at_most": 0}], "...."),
        ([{"at_most": 1}], ".... ...* ..*. .*.. *..."),
        ([{"never": ["age", "work", "job"]}], ".... ...*"),
        ([{"together": ["work", "job"]}, {"at_most": 2}], ".... ...* *... .**. *..*"),
        # Tied columns are tied through one they share, and kept if one must be.
        ([{"together": ["age", "work"]}, {"together": ["work", "sex"]}], ".... ..*. **.* ****"),
        ([{"together": ["age", "work"]}, {"never": ["age"]}], ".... ...* ..*. ..**"),
        ([{"at_most": 1, "of": ["age", "work", "job"]}, {"never": ["sex"]}],
         ".... ..*. .*.. *..."),
        ([{"at_most": 1, "of": ["age"]}, {"at_most": 1}, {"outliers": "suppress"}],
         ".... ...* ..*. .*.. *... ****"),
        ([{"outliers": "suppress"}, {"never": ["age", "work", "job", "sex"]}], ".... ****"),
    ],
)  # fmt: skip
def test_rules(rules: list[dict[str, object]], expected: str) -> None:
    assert expand_rules(rules, COLUMNS).texts == tuple(expected.split())


@pytest.mark.parametrize(
    "rule",
    [{}, {"at_most": -1}, {"at_most": "2"}, {"at_most": 1.5}, {"at_most": True}, {"never": "age"},
     {"never": []}, {"together": None}, {"at_most": 1, "never": ["age"]}, {"at_most": 1, "of": []},
     {"never": ["age"], "of": ["age"]}, {"outliers": True}, {"always": ["age"]}, ["at_most", 1], 3],
)  # fmt: skip
def test_malformed_rules(rule: Any) -> None:
    with pytest.raises(InvalidParameterError, match="a rule is malformed") as caught:
        expand_rules([{"at_most": 2}, rule], COLUMNS)
    assert caught.value.detail == "rule 2"
    assert '"at_most"' in caught.value.hint
    with pytest.raises(InvalidParameterError, match="rules must be a list"):
        expand_rules(rule if isinstance(rule, dict) else None, COLUMNS)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="not a quasi-identifier") as caught:
        expand_rules([{"never": ["name"]}], COLUMNS)
    assert caught.value.detail == 'rule 1, column "name"'


def test_refused_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left-over records without the all-star pattern, by both methods, and without their values."""
    with pytest.raises(InfeasibleError, match="fit none of the patterns") as caught:
        greedy([[0, 1], [0, 2], [91, 1]], parse_patterns([".*"], 2), 2)
    assert "suppresses every cell" in caught.value.hint
    with pytest.raises(InfeasibleError, match="no suppression with these patterns") as other:
        optimal([[0, 0], [0, 1], [91, 2]], parse_patterns([".*"], 2), 2)
    for error in (caught.value, other.value):
        assert "1 of 3 records" in error.detail
        assert "91" not in error.detail + error.hint
    with pytest.raises(InvalidParameterError, match="k must be at least 1"):
        greedy([[0, 1]], all_patterns(2), 0)
    with pytest.raises(InvalidParameterError, match="one character for each"):
        greedy([[0, 1]], all_patterns(3), 2)
    monkeypatch.setattr(module, "MAX_CELLS", 11)
    with pytest.raises(InvalidParameterError, match="too large for the method optimal"):
        optimal([[0, 0], [0, 1], [1, 1]], all_patterns(2), 1)


def test_records_that_join_are_drawn_at_random() -> None:
    """Which of several equal records has lost its cells does not follow from their order."""
    rows = [[1, 1]] * 5 + [[1, 2]]
    found = greedy(rows, parse_patterns(["..", ".*", "**"], 2), 2)
    random = np.random.default_rng(1)
    drawn = {
        tuple(join_left_over(rows, found, 2, random).pattern_of_record.tolist()) for _ in range(100)
    }
    assert len(drawn) == 5


module = importlib.import_module("kanon_db.algorithms.suppression.optimal_suppression")


HARD = np.random.default_rng(11).integers(0, 4, size=(60, 5))
"""A table that the greedy heuristic does not solve, nor the cheapest instances."""


@pytest.mark.long
def test_out_of_time_the_greedy_suppression_remains() -> None:
    patterns = all_patterns(5)
    best = optimal(HARD, patterns, 4)
    assert best.proof.status == "optimal"
    found = optimal(HARD, patterns, 4, pulse=Pulse(1e-9))
    assert found.proof.status == "feasible"
    assert found.proof.lower_bound <= best.proof.objective < found.proof.objective
    assert found.proof.gap == float(1 - found.proof.lower_bound / found.proof.objective)
    assert output_row_types(HARD, found.suppression.suppressed).smallest_size >= 4


def test_out_of_time_without_a_start() -> None:
    # The greedy heuristic takes the first two records together; the others then lack them.
    rows = [[0, 0], [0, 0], [0, 1], [1, 0]]
    patterns = parse_patterns(["..", ".*", "*."], 2)
    assert optimal(rows, patterns, 2).proof.objective == 4
    with pytest.raises(InfeasibleError, match="within the time limit"):
        optimal(rows, patterns, 2, pulse=Pulse(1e-9))


def test_the_heartbeat_stops_the_solver() -> None:
    n_threads, caller = threading.active_count(), threading.get_ident()

    def heartbeat() -> None:
        assert threading.get_ident() == caller
        if threading.active_count() > n_threads:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        optimal(HARD, all_patterns(5), 3, pulse=Pulse(heartbeat=heartbeat))
    assert threading.active_count() == n_threads
