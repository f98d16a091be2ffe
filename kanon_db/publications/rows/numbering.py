"""The rows of a view as the numbers of their cells, whatever the order of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.counting.layout import ClassTable, RowView
from kanon_db.counting.read_pieces import ANYTHING, BEGINS
from kanon_db.counting.writing.cell_values import holds_anything
from kanon_db.publications.rows.cell_table import CellColumn
from kanon_db.session import Session, fetch_one
from kanon_db.session.settings import grouping_by_hash
from kanon_db.transfer.columns import column_types

Numbers = NDArray[np.uint16]

_FETCHED: Final = 4096
"""Classes that are fetched at once."""

_MOST_BITS: Final = 63

_BLOCK: Final = 1 << 18
"""Rows that are written, and read, at a time; a larger class is written as several."""


@dataclass(frozen=True, eq=False)
class NumberedRows:
    """The rows of a view as numbers.

    Attributes
    ----------
    cells, others : sequence of str
        The columns of quasi-identifiers, and the other ones.
    sizes : ndarray of int64, shape (n_classes,)
    of_classes : list of ndarray of int, shape (n_classes,)
        Of each quasi-identifier the numbers of its cells, or their ends as codes; ascending.
        Classes that differ only in columns without either are one.
    of_rows : list of ndarray of uint16, shape (n_rows,)
        Of each other column; class by class, ascending.
    all_sizes : ndarray of int64
        Of the rows with the same cells in all quasi-identifiers.
    ends : frozenset of str
        Columns with ends.
    """

    cells: Sequence[str]
    others: Sequence[str]
    sizes: IntArray
    of_classes: Sequence[AnyIntArray]
    of_rows: Sequence[Numbers]
    all_sizes: IntArray
    ends: frozenset[str]

    @classmethod
    def of(
        cls,
        cells: Sequence[str],
        others: Sequence[str],
        sizes: IntArray,
        of_classes: Sequence[AnyIntArray],
        class_of_row: AnyIntArray,
        of_rows: Sequence[AnyIntArray],
        ends: frozenset[str] = frozenset(),
    ) -> Self:
        """Sort the classes by their cells, and the rows of each by their other columns.

        Parameters
        ----------
        sizes : ndarray of int64, shape (n_classes,)
        of_classes : sequence of ndarray of int, shape (n_classes,)
            The numbers of each quasi-identifier's cells, or their ends as codes.
        class_of_row : ndarray of int, shape (n_rows,)
        of_rows : sequence of ndarray of int, shape (n_rows,)
            The numbers of each other column.
        ends : frozenset of str
            Columns with ends.
        """
        order = np.lexsort(list(of_classes)[::-1]) if cells else np.arange(sizes.size)
        is_first = np.zeros(sizes.size, dtype=np.bool_)
        is_first[:1] = True
        ordered = [numbers[order] for numbers in of_classes]
        for numbers in ordered:
            is_first[1:] |= numbers[1:] != numbers[:-1]
        rank = np.empty(order.size, dtype=np.int64)
        rank[order] = np.cumsum(is_first) - 1
        return cls(
            cells,
            others,
            np.bincount(rank, sizes).astype(np.int64),
            [
                numbers[is_first].astype(np.int64 if name in ends else np.uint16)
                for name, numbers in zip(cells, ordered, strict=True)
            ],
            _sorted_rows(rank[class_of_row], of_rows),
            sizes,
            ends,
        )

    def blocks(self) -> Iterator[tuple[int, dict[str, bytes]]]:
        """Return the number of each block, and the bytes of each column in it, by its name.

        The sizes of classes are those of the column ``""``.
        """
        class_of, sizes = self._parts()
        ends = np.cumsum(sizes)
        number, first, first_row = 0, 0, 0
        while first < sizes.size:
            last = int(np.searchsorted(ends, first_row + _BLOCK, side="right"))
            last_row = int(ends[last - 1])
            some = class_of[first:last]
            written = {"": sizes[first:last].astype("<u4").tobytes()}
            for name, numbers in zip(self.cells, self.of_classes, strict=True):
                width = "<i8" if name in self.ends else "<u2"
                written[name] = numbers[some].astype(width).tobytes()
            for name, of_rows in zip(self.others, self.of_rows, strict=True):
                written[name] = of_rows[first_row:last_row].astype("<u2").tobytes()
            yield number, written
            number, first, first_row = number + 1, last, last_row

    def _parts(self) -> tuple[IntArray, IntArray]:
        """Divide classes larger than a block; the class of each part, and its size."""
        n_parts = -(-self.sizes // _BLOCK)
        class_of = np.repeat(np.arange(self.sizes.size), n_parts)
        sizes = np.full(class_of.size, _BLOCK, dtype=np.int64)
        sizes[np.cumsum(n_parts) - 1] = self.sizes - (n_parts - 1) * _BLOCK
        return class_of, sizes

    def records(self) -> Iterator[tuple[str, IntArray]]:
        """Return how many rows have each cell of a column, by its name; of ends, the one of all."""
        for name, numbers in zip(self.cells, self.of_classes, strict=True):
            own = np.zeros_like(numbers) if name in self.ends else numbers
            yield name, np.bincount(own, self.sizes).astype(np.int64)
        for name, of_rows in zip(self.others, self.of_rows, strict=True):
            yield name, np.bincount(of_rows)


class Numbering:
    """Finds the numbers of cells, which the table of classes has already.

    Parameters
    ----------
    session : Session
    view : RowView
    table : ClassTable
    described : mapping
        The publication's layout.
    """

    def __init__(
        self, session: Session, view: RowView, table: ClassTable, described: Mapping[str, Any]
    ) -> None:
        self.session, self.view, self.table = session, view, table
        row = fetch_one(session, "SELECT to_regclass($1::text)::oid::text AS oid", view.view)
        self._types = column_types(session, row["oid"])
        self._places = {
            str(cell["name"]): place
            for place, cell in enumerate(described["quasi_identifiers"], start=1)
        }
        self._others = [str(name) for name in described["others"]]

    def type_of(self, name: str) -> str:
        """Return the type of a column of the view."""
        return self._types[name].type_name

    def hidden(self, name: str, alias: str) -> str:
        """Write whether the cell of a row of the view is suppressed."""
        if self.view.pattern is None or name not in self._places:
            return "false"
        return _is_star(f"{alias}.{self.view.pattern}", self._places[name])

    def of_cells(self, name: str, cells: CellColumn) -> AnyIntArray:
        """Return the number of each cell of a column, and of the suppressed ones; -1 without one.

        Parameters
        ----------
        name : str
        cells : CellColumn
        """
        value = f"v.{cells.cell}"
        row = fetch_one(
            self.session,
            f"SELECT coalesce({self._odd(name, f'o.{self.table.hidden}')}, -1) AS hidden, ("
            f"SELECT string_agg(int4send(v.{cells.number}) || int4send("
            f"{self._number(name, value, 'd')}), ''::bytea)"
            f" FROM {cells.table} AS v{self._join(name, value, 'd')}) AS numbers",
        )
        found = np.full(1 + cells.n_cells, row["hidden"], dtype=np.int32)
        of_cell, numbers = _array(row["numbers"], 2).T
        found[of_cell] = numbers
        return found

    def read(self, numbered: Sequence[str]) -> NumberedRows | None:
        """Read the numbers of all rows of the view; None where a cell has none.

        Parameters
        ----------
        numbered : sequence of str
            The columns whose cells have numbers.
        """
        ends = self.table.ends
        cells = [name for name in self._places if name in numbered or name in ends]
        others = [name for name in self._others if name in numbered]
        numbers, joins = ["int4send(v.size)"], ""
        for name in cells:
            place = self._places[name]
            value, alias = f"v.c{place}", f"d{place}"
            if name in ends:
                numbers.append(f"int8send({self._code(name, value)})")
                continue
            number = self._number(name, value, alias)
            if self.view.pattern is not None:
                odd = self._odd(name, f"o.{self.table.hidden}")
                number = (
                    f"CASE WHEN {_is_star('v.pattern', place)} THEN coalesce({odd}, -1)"
                    f" ELSE {number} END"
                )
            numbers.append(f"int4send({number})")
            joins += self._join(name, value, alias)
        width = 1 + len(cells) + sum(name in ends for name in cells)
        of_classes = [np.empty((0, width), dtype=np.int32)]
        of_rows = [np.empty((0, len(others)), dtype=np.int32)]
        with grouping_by_hash(self.session):
            for row in self.session.stream(
                1,
                f"WITH classes AS MATERIALIZED ({self._classes(others)})"
                f" SELECT string_agg({' || '.join(numbers)}, ''::bytea) AS cells,"
                f" string_agg(v.others, ''::bytea) AS others FROM classes AS v"
                f"{joins} GROUP BY v.at / {_FETCHED}",
            ):
                of_classes.append(_array(row["cells"], width))
                of_rows.append(_array(row["others"], len(others)))
                self.session.heartbeat()
        found, rows = np.concatenate(of_classes), np.concatenate(of_rows)
        if found.min(initial=0) < 0 or rows.min(initial=0) < 0:
            return None
        sizes, *columns = found.T
        words = iter(columns)
        numbered_cells = [
            next(words).astype(np.int64) << BEGINS | next(words) if name in ends else next(words)
            for name in cells
        ]
        class_of_row = np.repeat(np.arange(sizes.size), sizes)
        return NumberedRows.of(
            cells, others, sizes.astype(np.int64), numbered_cells, class_of_row, list(rows.T), ends
        )

    def _classes(self, others: Sequence[str]) -> str:
        """Write the classes: cells ``c1 …``, ``pattern``, ``size``, and others' numbers."""
        named = enumerate(self.view.quasi_identifiers, start=1)
        cells = [f"v.{name} AS c{place}" for place, name in named]
        if self.view.pattern is not None:
            cells.append(f"v.{self.view.pattern} AS pattern")
        numbers, joins = [], ""
        for i, name in enumerate(others):
            value, alias = f"v.{self.session.identifier(name)}", f"d{i}"
            numbers.append(f"int4send({self._number(name, value, alias)})")
            joins += self._join(name, value, alias)
        gathered = f"string_agg({' || '.join(numbers)}, ''::bytea)" if numbers else "''::bytea"
        return (
            f"SELECT {', '.join(cells)}, count(*)::int4 AS size, {gathered} AS others,"
            f" row_number() OVER () AS at FROM {self.view.view} AS v{joins}"
            f" GROUP BY {', '.join(map(str, range(1, 1 + len(cells))))}"
        )

    def _code(self, name: str, value: str) -> str:
        """Write the ends of a range as a code; -1 if it has none within what holds all."""
        own, table = self.session.identifier(name), self.table
        low = (
            f"(SELECT lower(o.{own}) FROM {table.table} AS o WHERE o.{table.codes} IS NULL"
            f" AND o.{table.attribute} = {self.session.literal(name)} LIMIT 1)"
        )
        begins, ends = (f"({end}({value}) - {low})::int8" for end in ("lower", "upper"))
        is_within = f"{begins} >= 0 AND {begins} < {ends} AND {ends} < {1 << (BEGINS - 1)}"
        return (
            f"CASE WHEN num_nulls({value}) = 1 THEN 0 WHEN {holds_anything(value)} THEN {ANYTHING}"
            f" WHEN {is_within} THEN ({begins} << {BEGINS}) | {ends} ELSE -1 END"
        )

    def _odd(self, name: str, condition: str) -> str:
        table = self.table
        return (
            f"(SELECT o.{table.number} FROM {table.table} AS o WHERE o.{table.codes} IS NULL"
            f" AND o.{table.attribute} = {self.session.literal(name)} AND {condition} LIMIT 1)"
        )

    def _number(self, name: str, value: str, alias: str) -> str:
        """Write the number of a cell that is not suppressed; -1 if it has none."""
        own = f"num_nulls(o.{self.session.identifier(name)}) = 1 AND NOT o.{self.table.hidden}"
        return (
            f"coalesce(CASE WHEN num_nulls({value}) = 0 THEN {alias}.{self.table.number}"
            f" ELSE {self._odd(name, own)} END, -1)"
        )

    def _join(self, name: str, value: str, alias: str) -> str:
        table, equal = self.table, self._types[name].operator(self.session, "=")
        return (
            f" LEFT JOIN {table.table} AS {alias}"
            f" ON {value} {equal} {alias}.{self.session.identifier(name)}"
            f" AND {alias}.{table.attribute} = {self.session.literal(name)}"
            f" AND {alias}.{table.codes} IS NULL"
        )


def _is_star(pattern: str, place: int) -> str:
    return f"substr({pattern}, {place}, 1) = '*'"


def _array(numbers: bytes, n_columns: int) -> NDArray[np.int32]:
    found = np.frombuffer(numbers, dtype=">i4").astype(np.int32)
    return found.reshape(-1, n_columns) if n_columns else np.empty((0, 0), dtype=np.int32)


def _sorted_rows(rank: IntArray, of_rows: Sequence[AnyIntArray]) -> list[Numbers]:
    """Sort the numbers of rows by their class, then by the columns; return those of each column."""
    if not of_rows:
        return []
    packed, widths = rank, []
    for column in of_rows:
        width = int(column.max(initial=0)).bit_length()
        if int(packed.max(initial=0)).bit_length() + width > _MOST_BITS:
            order = np.lexsort([*of_rows[::-1], rank])
            return [column[order].astype(np.uint16) for column in of_rows]
        packed = (packed << width) | column
        widths.append(width)
    packed = np.sort(packed)  # the numbers themselves, which is faster than finding their order
    found: list[Numbers] = []
    for width in reversed(widths):
        found.append((packed & ((1 << width) - 1)).astype(np.uint16))
        packed >>= width
    return found[::-1]
