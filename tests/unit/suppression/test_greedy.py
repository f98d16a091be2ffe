from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.suppression.greedy_suppression import greedy
from kanon_db.algorithms.suppression.pattern_vectors import all_patterns, parse_patterns
from kanon_db.errors import InfeasibleError, InvalidParameterError


class StoppedError(RuntimeError):
    pass


def test_at_least_k_records_are_enough() -> None:
    patterns = parse_patterns(["..", "**"], 2)
    found = greedy([[0, 1], [0, 1], [0, 1]], patterns, 3)
    assert found.pattern_of_record.tolist() == [0, 0, 0]
    assert (found.n_left_over, found.n_suppressed, found.cost) == (0, 0, 0)


def test_left_over_records_are_fully_suppressed_and_counted() -> None:
    patterns = parse_patterns([".*", "**"], 2, weights=["0.5", 2])
    found = greedy([[0, 1], [0, 2], [1, 1]], patterns, 2)
    assert found.pattern_of_record.tolist() == [0, 0, -1]
    assert found.suppressed.tolist() == [[False, True], [False, True], [True, True]]
    assert (found.n_left_over, found.n_suppressed) == (1, 4)
    assert found.cost == Fraction(13, 2)


def test_k_records_under_the_all_star_pattern_are_not_left_over() -> None:
    patterns = parse_patterns([".*", "**"], 2)
    found = greedy([[0, 1], [0, 2], [1, 1], [2, 3]], patterns, 2)
    assert found.pattern_of_record.tolist() == [0, 0, 1, 1]
    assert found.n_left_over == 0


def test_fewer_than_k_records() -> None:
    found = greedy([[0, 1]], all_patterns(2), 2)
    assert found.pattern_of_record.tolist() == [-1]


def test_no_records() -> None:
    found = greedy(np.zeros((0, 2), dtype=int), parse_patterns([".*"], 2), 2)
    assert found.pattern_of_record.size == found.n_suppressed == found.n_left_over == 0


def test_without_the_all_star_pattern_left_over_records_are_refused() -> None:
    with pytest.raises(InfeasibleError, match="fit none of the patterns") as caught:
        greedy([[0, 1], [0, 2], [91, 1]], parse_patterns([".*"], 2), 2)
    assert "1 of 3 records" in caught.value.detail
    assert "suppresses every cell" in caught.value.hint
    assert "91" not in caught.value.detail + caught.value.hint


def test_refusals() -> None:
    with pytest.raises(InvalidParameterError, match="k must be at least 1"):
        greedy([[0, 1]], all_patterns(2), 0)
    with pytest.raises(InvalidParameterError, match="one character for each"):
        greedy([[0, 1]], all_patterns(3), 2)


def test_heartbeat_before_each_pass_can_stop_it() -> None:
    beats = 0

    def heartbeat() -> None:
        nonlocal beats
        beats += 1
        if beats == 3:
            raise StoppedError

    rows = np.arange(40).reshape(10, 4)
    with pytest.raises(StoppedError):
        greedy(rows, all_patterns(4), 2, pulse=Pulse(heartbeat=heartbeat))
    assert beats == 3
