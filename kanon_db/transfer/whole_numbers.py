"""Columns of whole numbers that lie close together: all of them in one number for each record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.heartbeat import beat
from kanon_db.session.protocol import Session
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.records import Records
from kanon_db.transfer.snapshot import Snapshot
from kanon_db.transfer.values import CodedColumn, least_type, number_values, read_integers

Ends = Mapping[str, tuple[int, int]]
"""The least and the greatest number of each column that has any."""

_MOST_BITS: Final = 20
"""Of a column: numbers are counted in an array with a place for each one between the ends."""

_LEAST: Final = -(2**63)
"""Of an int8: nothing is less, as what stands for NULL would be."""

_BITS_AT_ONCE: Final = 63
"""Of all columns that are read together: an int8 without its sign."""

_AT_ONCE: Final = 1 << 20
"""Records whose numbers are taken apart at once, so that this takes little memory."""


def are_close(ends: Ends, column: ColumnType) -> bool:
    """Tell whether a column can be read by :func:`read_whole_numbers`."""
    if column.name not in ends or ends[column.name][0] <= _LEAST:
        return False
    return _n_bits(ends, column) <= _MOST_BITS


@dataclass(frozen=True)
class Packing:
    """Some columns whose numbers, as differences from what is below all of them, share an int8.

    Attributes
    ----------
    columns : sequence of ColumnType
        Those that :func:`are_close`; the numbers of the first one are in the highest bits.
    ends : Ends
    """

    columns: Sequence[ColumnType]
    ends: Ends

    @classmethod
    def of(cls, columns: Sequence[ColumnType], ends: Ends) -> Iterator[Packing]:
        """Divide columns among as few numbers as their order allows."""
        start = 0
        while start < len(columns):
            end, n_bits = start, 0
            while end < len(columns) and n_bits + _n_bits(ends, columns[end]) <= _BITS_AT_ONCE:
                n_bits += _n_bits(ends, columns[end])
                end += 1
            yield cls(columns[start:end], ends)
            start = end

    def expression(self, session: Session, first_bound: int) -> str:
        """Write the number of a record ``s``, with :attr:`below` bound from a parameter on."""
        packed = ""
        for i, column in enumerate(self.columns, start=first_bound):
            number = f"coalesce(s.{session.identifier(column.name)} - ${i}::int8, 0)"
            packed = (
                f"(({packed} << {_n_bits(self.ends, column)}) | {number})" if packed else number
            )
        return packed

    @property
    def below(self) -> list[str]:
        """What is bound: for each column, the number that is below all others, for NULL."""
        return [str(self.ends[column.name][0] - 1) for column in self.columns]

    def unpacked(self, records: Records, packed: AnyIntArray) -> dict[str, CodedColumn]:
        """Count the values of each column, and give them codes.

        Parameters
        ----------
        records : Records
        packed : ndarray of int64, shape (n_records,)
            The number of each record, in any order of bytes.

        Raises
        ------
        InfeasibleError
            As :func:`.number_values`.
        """
        found, shift = {}, 0
        for column in reversed(self.columns):
            own = _Digits(packed, shift, _n_bits(self.ends, column))
            found[column.name] = _coded(records, column, self.ends[column.name][0], own)
            shift += own.n_bits
        return found


@dataclass(frozen=True)
class _Digits:
    """The numbers of a column in packed ones, which are taken out a block at a time."""

    packed: AnyIntArray
    shift: int
    n_bits: int

    def blocks(self) -> Iterator[tuple[slice, AnyIntArray]]:
        """Give each block of records with their numbers."""
        for start in range(0, self.packed.size, _AT_ONCE):
            block = slice(start, start + _AT_ONCE)
            numbers = self.packed[block].astype(np.int64)
            numbers >>= self.shift
            numbers &= (1 << self.n_bits) - 1
            yield block, numbers
            beat()


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
    for packing in Packing.of(columns, snapshot.ends):
        snapshot.session.step("reading values")
        expression = packing.expression(snapshot.session, 1)
        numbers = read_integers(snapshot, expression, "", *packing.below, kind="int8")
        found |= packing.unpacked(snapshot, numbers)
    return found


def _n_bits(ends: Ends, column: ColumnType) -> int:
    """Return how many bits the numbers of a column take, from 1 on; 0 is NULL."""
    least, greatest = ends[column.name]
    return (greatest - least + 1).bit_length()


def _coded(records: Records, column: ColumnType, least: int, digits: _Digits) -> CodedColumn:
    """Give codes to the values of a column, given the differences from its least, NULL as 0."""
    counts = np.zeros(1 << digits.n_bits, dtype=np.int64)
    for _, numbers in digits.blocks():
        counts += np.bincount(numbers, minlength=counts.size)
    is_null = counts[:1] > 0
    present = np.flatnonzero(counts[1:]) + 1
    values = number_values(
        records,
        column,
        f"SELECT value::{column.type_name} AS value, records"
        " FROM unnest($1::text[], $2::text[]::int8[]) AS counted (value, records)",
        [*map(str, (present + (least - 1)).tolist()), *[None][: int(is_null.sum())]],
        [*map(str, counts[present].tolist()), *map(str, counts[:1][is_null].tolist())],
    )
    code_of = np.empty(counts.size, dtype=least_type(values))
    code_of[present] = np.arange(present.size)
    code_of[0] = max(len(values.labels) - 1, 0)  # NULL comes last
    codes = np.empty(digits.packed.size, dtype=least_type(values))
    for block, numbers in digits.blocks():
        np.take(code_of, numbers, out=codes[block])
    return CodedColumn(values, codes)
