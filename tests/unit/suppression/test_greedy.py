from __future__ import annotations

import pytest

from kanon_db.algorithms.suppression.greedy_suppression import greedy
from kanon_db.algorithms.suppression.pattern_vectors import all_patterns, parse_patterns
from kanon_db.errors import InfeasibleError, InvalidParameterError


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
