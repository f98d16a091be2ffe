"""Reads several columns at once: a digit for each value, and the digits packed into an int8.

The values that a column may have are known beforehand: all whole numbers between two ends
(`WholeNumbers`), or few values, listed in a table (`ListedValues`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Generic, Self, TypeVar

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.dataclasses import dataclass
from kanon_db.heartbeat import beat
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.snapshot import Records, Snapshot
from kanon_db.transfer.values import (
    CodedColumn,
    DistinctValues,
    least_type,
    number_values,
    read_integers,
)

_BITS_AT_ONCE: Final = 63
"""Bits of all columns that are read together: an int8 without its sign."""

_AT_ONCE: Final = 1 << 20
"""Records whose numbers are taken apart at once, so that this takes little memory."""


@dataclass(frozen=True)
class KnownValues(ABC):
    """The values that a column is known to have, in an order: the server sends a digit for each.

    By default their digits are 1 and more, and 0 is that of a value that is not known.
    """

    column: ColumnType
    n_values: int  # How many are known, beside NULL

    @property
    def places(self) -> IntArray:
        """The place among the values that each digit means, shape (2^n_bits,).

        It is :attr:`n_values` for NULL, the greatest digit, and -1 for a value that is not known.
        """
        return self._with_null(np.arange(-1, self.n_values))

    @abstractmethod
    def digit(self, value: str) -> str:
        """Write the digit of the value that an expression gives."""

    @abstractmethod
    def number_values(self, records: Records, counts: IntArray) -> DistinctValues:
        """Give codes to the values that occur, by the number of records with each, and with NULL.

        Raises InfeasibleError as :func:`.number_values`.
        """

    def codes_of(self, values: DistinctValues) -> IntArray:
        """Return the codes of the values that occur, by their places, without that of NULL."""
        return np.arange(len(values.labels) - (None in values.labels))

    @property
    def null(self) -> int:
        """The digit of NULL: all of its bits are set, so that it does not tell how many others."""
        return (1 << self.n_bits) - 1

    @property
    def n_bits(self) -> int:
        """Number of bits that a digit takes."""
        return (self.n_values + 1).bit_length()

    def _with_null(self, places: IntArray) -> IntArray:
        """Complete the places that digits mean by unknown ones, and by NULL."""
        padded = np.full(1 << self.n_bits, -1)
        padded[: places.size] = places
        padded[-1] = self.n_values
        return padded


_Known = TypeVar("_Known", bound=KnownValues)


@dataclass(frozen=True)
class PackedColumns(Generic[_Known]):
    """Some columns whose digits share an int8."""

    columns: Sequence[_Known]  # The digits of the first one are in the highest bits

    @classmethod
    def of(cls, columns: Sequence[_Known]) -> Iterator[Self]:
        """Divide columns among as few numbers as their order allows."""
        start = 0
        while start < len(columns):
            end, n_bits = start, 0
            while end < len(columns) and n_bits + columns[end].n_bits <= _BITS_AT_ONCE:
                n_bits += columns[end].n_bits
                end += 1
            yield cls(columns[start:end])
            start = end

    def expression(self, session: Session) -> str:
        """Write the number of a record ``s``."""
        packed = ""
        for known in self.columns:
            digit = f"({known.digit(f's.{session.identifier(known.column.name)}')})::int8"
            packed = f"(({packed} << {known.n_bits}) | {digit})" if packed else digit
        return packed

    def unpacked(self, packed: AnyIntArray) -> Iterator[PackedDigits]:
        """Find the digits of each column, from the last one on.

        `packed`, shape (n_records,): the number of each record, in any order of bytes.
        """
        shift = 0
        for known in reversed(self.columns):
            yield PackedDigits(known, packed, shift)
            shift += known.n_bits


class PackedDigits:
    """The digits of a column in packed numbers, which are taken out a block at a time.

    `are_known`: whether each record has a value that is known.
    """

    def __init__(self, known: KnownValues, packed: AnyIntArray, shift: int) -> None:
        self.known = known
        self._packed = packed
        self._shift = shift
        counts = np.zeros(1 << known.n_bits, dtype=np.int64)
        for _, digits in self._blocks():
            counts += np.bincount(digits, minlength=counts.size)
        places = known.places
        means = places >= 0
        self.are_known = not counts[~means].any()
        self._counts = np.zeros(known.n_values + 1, dtype=np.int64)
        self._counts[places[means]] = counts[means]

    def coded(self, records: Records) -> CodedColumn:
        """Give codes to the values of the column.

        Raises InfeasibleError as :func:`.number_values`.
        """
        known, counts = self.known, self._counts
        values = known.number_values(records, counts)
        code_at = np.zeros(known.n_values + 1, dtype=least_type(values))
        code_at[:-1][counts[:-1] > 0] = known.codes_of(values)
        code_at[-1] = max(len(values.labels) - 1, 0)  # NULL comes last
        code_of = code_at[known.places]
        codes: AnyIntArray = np.empty(self._packed.size, dtype=least_type(values))
        for block, digits in self._blocks():
            np.take(code_of, digits, out=codes[block])
        return CodedColumn(values, codes)

    def _blocks(self) -> Iterator[tuple[slice, AnyIntArray]]:
        """Give each block of records with their digits."""
        for start in range(0, self._packed.size, _AT_ONCE):
            block = slice(start, start + _AT_ONCE)
            digits = self._packed[block].astype(np.int64)
            digits >>= self._shift
            digits &= self.known.null
            yield block, digits
            beat()


Ends = Mapping[str, tuple[int, int]]
"""The least and the greatest number of each column that has any."""

_MOST_BITS: Final = 20
"""Bits of a column: its numbers are counted in an array with a place for each between the ends."""

_LEAST: Final = -(2**63)
"""The least int8: one less, from which all numbers are subtracted, would not exist."""


def are_close(ends: Ends, column: ColumnType) -> bool:
    """Tell whether a column can be read as :class:`WholeNumbers`."""
    if column.name not in ends:
        return False
    least, greatest = ends[column.name]
    return least > _LEAST and (greatest - least + 2).bit_length() <= _MOST_BITS


def widen_ends(least: int, greatest: int) -> tuple[int, int]:
    """Move ends apart by what a digit has room for, with a bit more; not below 0 from above.

    Examples
    --------
    >>> widen_ends(17, 90), widen_ends(0, 1), widen_ends(-3, 3)
    ((0, 253), (0, 5), (-14, 15))
    """
    n_values = greatest - least + 1
    n_bits = max(min((n_values + 1).bit_length() + 1, _MOST_BITS), (n_values + 1).bit_length())
    low = max(least - ((1 << n_bits) - 2 - n_values) // 2, 0 if least >= 0 else _LEAST + 1)
    return low, max(greatest, min(low + (1 << n_bits) - 3, -_LEAST - 1))


@dataclass(frozen=True)
class WholeNumbers(KnownValues):
    """The numbers between two ends."""

    least: int
    below: str  # SQL for the number below the least one
    # SQL for both ends; None where all numbers are certain to lie between them
    ends: tuple[str, str] | None = None

    def digit(self, value: str) -> str:
        """See :meth:`KnownValues.digit`."""
        digit, null = f"{value} - {self.below}", self.null
        if self.ends is None:
            return f"coalesce({digit}, {null})"
        least, greatest = self.ends
        return (
            f"CASE WHEN {value} BETWEEN {least} AND {greatest} THEN {digit}"
            f" WHEN {value} IS NULL THEN {null} ELSE 0 END"
        )

    def number_values(self, records: Records, counts: IntArray) -> DistinctValues:
        """See :meth:`KnownValues.number_values`."""
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
    """Read columns of whole numbers that :func:`are_close`, whatever number of values they have."""
    # Equal numbers are the same number, so the server need not group them: each record's numbers
    # are sent as differences from the least of their column, a few bits each, and counted here.
    known = []
    for column in columns:
        least, greatest = snapshot.ends[column.name]
        known.append(WholeNumbers(column, greatest - least + 1, least, ""))
    columns_read: dict[str, CodedColumn] = {}
    for packing in PackedColumns.of(known):
        snapshot.session.step("reading values")
        own = [replace(one, below=f"${i}::int8") for i, one in enumerate(packing.columns, start=1)]
        numbers = read_integers(
            snapshot,
            PackedColumns(own).expression(snapshot.session),
            "",
            *(str(one.least - 1) for one in own),
            kind="int8",
        )
        for digits in packing.unpacked(numbers):
            columns_read[digits.known.column.name] = digits.coded(snapshot)
    return columns_read


_TEXTS = ("text", "character varying")


@dataclass(frozen=True)
class ListedValues(KnownValues):
    """Values in a table, in their type's order, where the server looks them up one by one."""

    value: str  # The table's column with them, in which other rows have NULL; quoted
    table: str  # Quoted

    def digit(self, value: str) -> str:
        """See :meth:`KnownValues.digit`."""
        known = f"(SELECT array_agg(k.v ORDER BY k.v) FROM ({self._values}) AS k)"
        null = f"CASE WHEN {value} IS NULL THEN {self.null} ELSE 0 END"
        return f"coalesce(array_position({known}, {value}), {null})"

    def number_values(self, records: Records, counts: IntArray) -> DistinctValues:
        """See :meth:`KnownValues.number_values`."""
        return number_values(
            records,
            self.column,
            "SELECT k.v AS value, c.records FROM unnest($1::text[]::int8[]) WITH ORDINALITY AS c"
            " (records, place) LEFT JOIN (SELECT k.v, row_number() OVER"
            f" (ORDER BY {self._key('k.v')}) AS place FROM ({self._values}) AS k) AS k"
            " ON k.place = c.place WHERE c.records > 0",
            [*map(str, counts.tolist())],
        )

    @property
    def _values(self) -> str:
        return f"SELECT {self.value} AS v FROM {self.table} WHERE {self.value} IS NOT NULL"

    def _key(self, value: str) -> str:
        """Write what values are ordered by."""
        return value


@dataclass(frozen=True)
class ListedTexts(ListedValues):
    """Texts in a table, by their bytes, where the server finds them by halving."""

    # It looks for their place among the ends of ranges that hold one text each: a text, and the
    # next one that is possible, which has a character more, with the least code. So odd digits mean
    # known texts, even ones what lies between these.

    @property
    def places(self) -> IntArray:
        """See :attr:`KnownValues.places`."""
        places = np.arange(2 * self.n_values + 1) // 2
        places[::2] = -1
        return self._with_null(places)

    @property
    def n_bits(self) -> int:
        """See :attr:`KnownValues.n_bits`."""
        return (2 * self.n_values + 1).bit_length()

    def digit(self, value: str) -> str:
        """See :meth:`KnownValues.digit`."""
        ends = (
            f"(SELECT array_agg(e.v ORDER BY e.v) FROM (SELECT {self._key('k.v')} || e.v AS v"
            f" FROM ({self._values}) AS k CROSS JOIN (VALUES (''), (chr(1))) AS e (v)) AS e)"
        )
        return f"coalesce(width_bucket({self._key(value)}, {ends}), {self.null})"

    def codes_of(self, values: DistinctValues) -> IntArray:
        """See :meth:`KnownValues.codes_of`; the order of the type may be another one."""
        rows = values.session.fetch(
            f"SELECT v.code FROM {values.table} AS v WHERE v.value IS NOT NULL"
            f" ORDER BY {self._key('v.value')}"
        )
        return np.array([row["code"] for row in rows], dtype=np.int64)

    def _key(self, value: str) -> str:
        return f'({value}::text COLLATE "C")'


def list_values(
    session: Session, columns: Sequence[ColumnType], relation: str, most: int, most_bytes: int
) -> list[ListedValues] | None:
    """List the values of columns.

    In the columns' order; their table lasts for the transaction. None if too many, or too long.
    """
    table = session.identifier("pg_temp", f"kanon_known_{os.urandom(8).hex()}")
    names = [f"s.{session.identifier(column.name)}" for column in columns]
    lengths = [
        f"octet_length({name})"  # which does not read a long text
        for name, column in zip(names, columns, strict=True)
        if column.type_name in _TEXTS
    ]
    # If there are as many rows, some column has too many values, NULL among them.
    limit = (most + 1) * len(columns) + 1
    values = [f"value_{i}" for i in range(len(columns))]
    kept = [
        f"CASE WHEN octet_length({name}) <= {most_bytes} THEN {name} END"
        if column.type_name in _TEXTS
        else name
        for name, column in zip(names, columns, strict=True)
    ]
    named = ", ".join(f"{name} AS {value}" for name, value in zip(names, values, strict=True))
    session.fetch(
        f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS SELECT {named}, 0 AS longest"
        f" FROM {relation} AS s WITH NO DATA"
    )
    read = ", ".join(f"{one} AS {value}" for one, value in zip(kept, values, strict=True))
    session.fetch(
        f"INSERT INTO {table} SELECT {', '.join(values)}, max(longest) FROM"
        f" (SELECT {read}, greatest({', '.join([*lengths, '0'])}) AS longest"
        f" FROM {relation} AS s) AS s"
        f" GROUP BY GROUPING SETS ({', '.join(f'({value})' for value in values)}) LIMIT {limit}"
    )
    n_bytes = ", ".join(f"coalesce(sum(octet_length({value}::text)), 0)" for value in values)
    listing = fetch_one(
        session,
        f"SELECT count(*) AS n, max(longest) AS longest,"
        f" ARRAY[{', '.join(f'count({value})' for value in values)}] AS n_values,"
        f" ARRAY[{n_bytes}] AS n_bytes FROM {table}",
    )
    is_too_long = listing["longest"] is not None and listing["longest"] > most_bytes
    is_much = listing["n"] >= limit or is_too_long or max(listing["n_bytes"]) > most_bytes
    if is_much or max(listing["n_values"]) > most:
        session.fetch(f"DROP TABLE {table}")
        return None
    counted = zip(columns, listing["n_values"], values, strict=True)
    return [
        (ListedTexts if column.type_name in _TEXTS else ListedValues)(column, n, value, table)
        for column, n, value in counted
    ]
