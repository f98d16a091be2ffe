from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kanon_db.algorithms.suppression.greedy_suppression import RowTypes, identical_rows
from kanon_db.errors import InvalidParameterError


def test_types_of_records() -> None:
    rows = np.array([[9, -4], [3, -4], [9, 7], [9, -4]], dtype=np.int16)
    types = RowTypes.of(rows)
    assert types.codes.tolist() == [[0, 0], [1, 0], [1, 1]]
    assert types.counts.tolist() == [1, 2, 1]
    assert types.type_of_record.tolist() == [1, 0, 2, 1]
    assert types.n_records == 4


def test_no_records() -> None:
    types = RowTypes.of(np.zeros((0, 3), dtype=np.int64))
    assert (types.n_records, types.codes.shape, types.counts.size) == (0, (0, 3), 0)


def test_packing_of_more_than_64_bits() -> None:
    random = np.random.default_rng(5)
    rows = random.integers(0, 2**31, size=(50, 6))
    rows[25:] = rows[:25]
    rows[30, 5] += 1
    labels = identical_rows(rows)
    assert labels.max() == 25
    assert (labels[:25] == labels[25:]).sum() == 24
    ordered = rows[np.argsort(labels, kind="stable")].tolist()
    assert ordered == sorted(rows.tolist())


def test_without_columns_all_rows_are_identical() -> None:
    assert identical_rows(np.zeros((3, 0), dtype=np.int64)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([1, 2], "one row for each record"),
        (np.zeros((2, 0), dtype=int), "one row for each record"),
        ([[0.5]], "whole numbers"),
    ],
)
def test_refusals(codes: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        RowTypes.of(codes)
