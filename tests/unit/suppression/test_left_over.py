from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from kanon_db.algorithms.suppression.greedy_suppression import greedy, join_left_over
from kanon_db.algorithms.suppression.pattern_vectors import all_patterns, parse_patterns
from kanon_db.errors import InfeasibleError


def test_a_left_over_record_keeps_what_it_shares_with_a_large_class() -> None:
    """One other record suppresses its second cell; fully suppressed, the two would cost more."""
    rows = [[1, 1]] * 4 + [[2, 2]] * 2 + [[1, 3]]
    found = greedy(rows, all_patterns(2), 2)
    assert found.n_left_over == 1
    joined = join_left_over(rows, found, 2, np.random.default_rng(1))
    texts = [joined.patterns.texts[i] for i in joined.pattern_of_record]
    assert texts[6] == ".*"
    assert Counter(texts) == {"..": 5, ".*": 2}
    assert joined.cost == 2


def test_a_class_without_a_record_to_spare_joins_as_a_whole() -> None:
    rows = [[1, 1]] * 3 + [[1, 2]]
    found = greedy(rows, parse_patterns(["..", "**"], 2), 3)
    joined = join_left_over(rows, found, 3, np.random.default_rng(1))
    assert joined.pattern_of_record.tolist() == [1, 1, 1, 1]


def test_records_that_join_are_drawn_at_random() -> None:
    """Which of several equal records has lost its cells does not follow from their order."""
    rows = [[1, 1]] * 5 + [[1, 2]]
    found = greedy(rows, parse_patterns(["..", ".*", "**"], 2), 2)
    random = np.random.default_rng(1)
    drawn = {
        tuple(join_left_over(rows, found, 2, random).pattern_of_record.tolist()) for _ in range(100)
    }
    assert len(drawn) == 5


def test_nothing_changes_where_no_record_is_left_over() -> None:
    rows = [[1, 1]] * 4
    found = greedy(rows, all_patterns(2), 2)
    assert join_left_over(rows, found, 2, np.random.default_rng(1)) is found


def test_fewer_than_k_records_cannot_join() -> None:
    found = greedy([[7, 8]], all_patterns(2), 2)
    with pytest.raises(InfeasibleError, match="fewer than k records"):
        join_left_over([[7, 8]], found, 2, np.random.default_rng(1))
