"""Rows as numbers: sorted whether or not the numbers of a row fit into one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from kanon_db.publications.rows.distinct_cells import NumberedRows, packed_rows, packing

BASES = ([7, 5, 9, 4], [2**16, 2**16, 2**16, 2**16], [2**40, 2**10, 2**20, 2**60])


def packed(columns: list[np.ndarray], bases: list[int]) -> list[np.ndarray]:
    found = []
    for start, end in packing(bases):
        digits = np.zeros(columns[0].size, dtype=np.int64)
        for column, base in zip(columns[start:end], bases[start:end], strict=True):
            digits = digits * base + column + 1
        found.append(digits)
    return found


@pytest.mark.parametrize("bases", BASES)
def test_rows_are_sorted_by_class_and_then_by_the_others(bases: list[int]) -> None:
    random = np.random.default_rng(0)
    columns = [random.integers(3, size=500) for _ in bases]
    rows = NumberedRows.of(["a", "b"], ["c", "d"], bases, packed(columns, bases))
    assert rows is not None
    counted = Counter(zip(*(column.tolist() for column in columns[:2]), strict=True))
    assert list(zip(*(numbers.tolist() for numbers in rows.of_classes), strict=True)) == sorted(
        counted
    )
    assert rows.sizes.tolist() == [counted[each] for each in sorted(counted)]
    shown = [np.repeat(numbers, rows.sizes) for numbers in rows.of_classes]
    found = np.column_stack([*shown, *rows.of_rows]).tolist()
    assert found == sorted(np.column_stack(columns).tolist())


@pytest.mark.parametrize("column", range(4))
def test_a_cell_without_a_number_is_found(column: int) -> None:
    columns = [np.zeros(5, dtype=np.int64) for _ in range(4)]
    columns[column][3] = -1
    bases = [9, 9, 2**40, 2**40]
    assert NumberedRows.of(["a", "b"], ["c", "d"], bases, packed(columns, bases)) is None


@pytest.mark.parametrize("bases", BASES)
@pytest.mark.parametrize("n_cells", range(5))
def test_the_digits_of_classes_are_those_of_their_rows(bases: list[int], n_cells: int) -> None:
    random = np.random.default_rng(1)
    class_of_row = random.integers(20, size=300)
    of_classes = [random.integers(3, size=20) for _ in bases[:n_cells]]
    of_rows = [random.integers(3, size=300) for _ in bases[n_cells:]]
    columns = [numbers[class_of_row] for numbers in of_classes] + of_rows
    found = packed_rows(bases, of_classes, class_of_row, of_rows)
    for digits, wanted in zip(found, packed(columns, bases), strict=True):
        assert digits.tolist() == wanted.tolist()
