"""Columns of whole numbers that lie close together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.packed import Known, Packing
from kanon_db.transfer.records import Records
from kanon_db.transfer.snapshot import Snapshot
from kanon_db.transfer.values import CodedColumn, DistinctValues, number_values, read_integers

Ends = Mapping[str, tuple[int, int]]
"""The least and the greatest number of each column that has any."""

_MOST_BITS: Final = 20
"""Of a column: numbers are counted in an array with a place for each one between the ends."""

_LEAST: Final = -(2**63)
"""Of an int8: nothing is less, as what all numbers are subtracted from would be."""


def are_close(ends: Ends, column: ColumnType) -> bool:
    """Tell whether a column can be read as :class:`WholeNumbers`."""
    if column.name not in ends:
        return False
    least, greatest = ends[column.name]
    return least > _LEAST and (greatest - least + 2).bit_length() <= _MOST_BITS


@dataclass(frozen=True)
class WholeNumbers(Known):
    """The numbers between two ends.

    Attributes
    ----------
    least : int
    below : str
        SQL for the number below the least one.
    ends : tuple of str, or None
        SQL for both ends; None where all numbers are certain to lie between them.
    """

    least: int
    below: str
    ends: tuple[str, str] | None = None

    def digit(self, value: str) -> str:
        """See :meth:`Known.digit`."""
        digit, null = f"{value} - {self.below}", self.null
        if self.ends is None:
            return f"coalesce({digit}, {null})"
        least, greatest = self.ends
        return (
            f"CASE WHEN {value} BETWEEN {least} AND {greatest} THEN {digit}"
            f" WHEN {value} IS NULL THEN {null} ELSE 0 END"
        )

    def number_values(self, records: Records, counts: IntArray) -> DistinctValues:
        """See :meth:`Known.number_values`."""
        present = np.flatnonzero(counts)
        numbers: list[str | None] = [*map(str, (present + self.least).tolist())]
        if counts[-1]:
            numbers[-1] = None
        return number_values(
            records,
            self.column,
            f"SELECT value::{self.column.type_name} AS value, records"
            " FROM unnest($1::text[], $2::text[]::int8[]) AS counted (value, records)",
            numbers,
            [*map(str, counts[present].tolist())],
        )


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
    known = []
    for column in columns:
        least, greatest = snapshot.ends[column.name]
        known.append(WholeNumbers(column, greatest - least + 1, least, ""))
    found: dict[str, CodedColumn] = {}
    for packing in Packing.of(known):
        snapshot.session.step("reading values")
        own = [replace(one, below=f"${i}::int8") for i, one in enumerate(packing.columns, start=1)]
        numbers = read_integers(
            snapshot,
            Packing(own).expression(snapshot.session),
            "",
            *(str(one.least - 1) for one in own),
            kind="int8",
        )
        for digits in packing.unpacked(numbers):
            found[digits.known.column.name] = digits.coded(snapshot)
    return found
