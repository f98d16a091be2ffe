"""What the search for the optimum does with what it has found of parts."""

from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.suppression.optimal_suppression import (
    SuppressionProgram,
    _with_enough_shared,
)


@pytest.mark.parametrize(
    ("counts", "costs", "cost"),
    [
        ([5, 3, 1], [0, 0], 3),  # Two of the five join
        ([4, 4, 1], [0, 0], 3),  # One of each four
        ([4, 4, 1], [0, 1], 9),  # ... which is cheaper than all of the second
        ([3, 3, 1], [0, 0], 4),  # No three has one to spare: one of them joins, whole
        ([3, 3, 1], [0, 1], 8),  # ... the one that costs most already
    ],
)
def test_what_is_found_of_parts_is_kept_where_all_lack_records(
    counts: list[int], costs: list[int], cost: int
) -> None:
    """Two parts have instances of their own, and one record of the third only the shared one."""
    dear = 1 + max(costs)
    program = SuppressionProgram(
        group=np.array([0, 0, 1, 1, 2]), instance=np.array([0, 2, 1, 2, 2]),
        costs=np.array([costs[0], dear, costs[1], dear, dear]), counts=np.array(counts), k=3,
        is_free=np.zeros(3, dtype=np.bool_),
    )  # fmt: skip
    flows = np.array([counts[0], 0, counts[1], 0, counts[2]])
    assert not program.are_valid(flows)
    joined = _with_enough_shared(program, flows, np.array([False, False, True]))
    assert program.are_valid(joined)
    assert program.cost(joined) == cost
