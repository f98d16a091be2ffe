"""Columns of whole numbers that lie close together: all of them in one number for each record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.snapshot import Snapshot
from kanon_db.transfer.values import CodedColumn, least_type, number_values, read_integers

_MOST_BITS: Final = 20
"""Of a column: numbers are counted in an array with a place for each one between the ends."""

_LEAST: Final = -(2**63)
"""Of an int8: nothing is less, as what stands for NULL would be."""

_BITS_AT_ONCE: Final = 63
"""Of all columns that are read together: an int8 without its sign."""


def are_close(snapshot: Snapshot, column: ColumnType) -> bool:
    """Tell whether a column can be read by :func:`read_whole_numbers`."""
    if column.name not in snapshot.ends or snapshot.ends[column.name][0] <= _LEAST:
        return False
    return _n_bits(snapshot, column) <= _MOST_BITS


def read_whole_numbers(snapshot: Snapshot, columns: Sequence[ColumnType]) -> dict[str, CodedColumn]:
    """Read columns of whole numbers, whatever number of values they have.

    Equal numbers are the same number, so the server need not group them: each record's numbers are
    sent as differences from the least of their column, a few bits each, and counted here.

    Parameters
    ----------
    snapshot : Snapshot
    columns : sequence of ColumnType
        Those that :func:`are_close`.

    Returns
    -------
    dict of str to CodedColumn
        By name.

    Raises
    ------
    InfeasibleError
        As :func:`.number_values`.
    """
    found: dict[str, CodedColumn] = {}
    start = 0
    while start < len(columns):
        end, n_bits = start, 0
        while end < len(columns) and n_bits + _n_bits(snapshot, columns[end]) <= _BITS_AT_ONCE:
            n_bits += _n_bits(snapshot, columns[end])
            end += 1
        found |= _read_together(snapshot, columns[start:end])
        start = end
    return found


def _n_bits(snapshot: Snapshot, column: ColumnType) -> int:
    """Return how many bits the numbers of a column take, from 1 on; 0 is NULL."""
    least, greatest = snapshot.ends[column.name]
    return (greatest - least + 1).bit_length()


def _read_together(snapshot: Snapshot, columns: Sequence[ColumnType]) -> dict[str, CodedColumn]:
    session = snapshot.session
    session.step("reading values")
    packed, shift, shifts = "0::int8", 0, []
    below = [str(snapshot.ends[column.name][0] - 1) for column in columns]
    for i, column in enumerate(columns, start=1):
        name = f"s.{session.identifier(column.name)}"
        number = f"coalesce({name}::int8 - ${i}::int8, 0)"
        packed = f"{packed} | ({number} << {shift})"
        shifts.append(shift)
        shift += _n_bits(snapshot, column)
    numbers = read_integers(snapshot, packed, "", *below, kind="int8")
    return {
        column.name: _coded(
            snapshot, column, numbers >> first & (1 << _n_bits(snapshot, column)) - 1
        )
        for column, first in zip(columns, shifts, strict=True)
    }


def _coded(snapshot: Snapshot, column: ColumnType, numbers: IntArray) -> CodedColumn:
    """Give codes to the values of a column, given the differences from its least, NULL as 0."""
    counts = np.bincount(numbers)
    is_null = counts[:1] > 0
    present = np.flatnonzero(counts[1:]) + 1
    least, _ = snapshot.ends[column.name]
    values = number_values(
        snapshot,
        column,
        f"SELECT value::{column.type_name} AS value, records"
        " FROM unnest($1::text[], $2::text[]::int8[]) AS counted (value, records)",
        [*map(str, (present + (least - 1)).tolist()), *[None][: int(is_null.sum())]],
        [*map(str, counts[present].tolist()), *map(str, counts[:1][is_null].tolist())],
    )
    code_of = np.empty(counts.size, dtype=least_type(values))
    code_of[present] = np.arange(present.size)
    code_of[0] = max(len(values.labels) - 1, 0)  # NULL comes last
    return CodedColumn(values, code_of[numbers])
