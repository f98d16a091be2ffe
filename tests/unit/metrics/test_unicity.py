"""Unique records are counted as one would by hand."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from kanon_db.advice.identifying_columns import unique_records
from kanon_db.algorithms.ground.computation import Pulse


@pytest.mark.parametrize("n_values", [2, 7, 100_000])
@pytest.mark.parametrize("n_columns", [1, 2, 3, 5])
def test_all_combinations(n_values: int, n_columns: int) -> None:
    codes = np.random.default_rng(3).integers(0, n_values, (60, n_columns), dtype=np.int32)
    codes[:30] = codes[30:]
    codes[0] = 1
    found = {one.columns: one.records for one in unique_records(codes)}
    sizes = {1, 2, 3, n_columns} & set(range(1, n_columns + 1))
    wanted = [c for size in sorted(sizes) for c in combinations(range(n_columns), size)]
    assert sorted(found) == sorted(wanted)
    for columns, records in found.items():
        tuples = Counter(tuple(row) for row in codes[:, columns].tolist())
        assert records == sum(n == 1 for n in tuples.values())


def test_without_time_there_is_still_what_matters() -> None:
    codes = np.zeros((5, 6), dtype=np.int32)
    found = [one.columns for one in unique_records(codes, pulse=Pulse(0))]
    assert found == [(0, 1, 2, 3, 4, 5), *((a,) for a in range(6))]
