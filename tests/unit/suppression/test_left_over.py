from __future__ import annotations

import numpy as np

from kanon_db.algorithms.suppression.greedy_suppression import greedy, join_left_over
from kanon_db.algorithms.suppression.pattern_vectors import parse_patterns


def test_records_that_join_are_drawn_at_random() -> None:
    """Which of several equal records has lost its cells does not follow from their order."""
    rows = [[1, 1]] * 5 + [[1, 2]]
    found = greedy(rows, parse_patterns(["..", ".*", "**"], 2), 2)
    random = np.random.default_rng(1)
    drawn = {
        tuple(join_left_over(rows, found, 2, random).pattern_of_record.tolist()) for _ in range(100)
    }
    assert len(drawn) == 5
