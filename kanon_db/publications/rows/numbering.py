"""The rows of a view as the numbers of their cells, whatever the order of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.counting.layout import ClassTable, RowView
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
    of_classes : ndarray of uint16, shape (n_classes, n_cells)
        Ascending. Classes that differ only in columns without numbers are one.
    of_rows : list of ndarray of uint16, shape (n_rows,)
        Of each other column; class by class, ascending.
    all_sizes : ndarray of int64
        Of the rows with the same cells in all quasi-identifiers.
    """

    cells: Sequence[str]
    others: Sequence[str]
    sizes: IntArray
    of_classes: Numbers
    of_rows: Sequence[Numbers]
    all_sizes: IntArray

    @classmethod
    def of(
        cls,
        cells: Sequence[str],
        others: Sequence[str],
        of_classes: AnyIntArray,
        class_of_row: AnyIntArray,
        of_rows: Sequence[AnyIntArray],
    ) -> Self:
        """Sort the classes by their cells, and the rows of each by their other columns.

        Parameters
        ----------
        of_classes : ndarray of int, shape (n_classes, 1 + n_cells)
            The size of each class, and the numbers of its cells.
        class_of_row : ndarray of int, shape (n_rows,)
        of_rows : sequence of ndarray of int, shape (n_rows,)
            The numbers of each other column.
        """
        sizes, numbers = of_classes[:, 0].astype(np.int64), of_classes[:, 1:]
        order = np.lexsort(numbers[:, ::-1].T) if cells else np.arange(sizes.size)
        ordered = numbers[order]
        is_first = np.ones(sizes.size, dtype=np.bool_)
        is_first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        rank = np.empty(order.size, dtype=np.int64)
        rank[order] = np.cumsum(is_first) - 1
        return cls(
            cells,
            others,
            np.bincount(rank, sizes).astype(np.int64),
            ordered[is_first].astype(np.uint16),
            _sorted_rows(rank[class_of_row], of_rows),
            sizes,
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
            of_classes = self.of_classes[class_of[first:last]]
            written = {"": sizes[first:last].astype("<u4").tobytes()}
            for name, numbers in zip(self.cells, of_classes.T, strict=True):
                written[name] = numbers.astype("<u2").tobytes()
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
        """Return how many rows have each cell of a column, by its name."""
        for name, numbers in zip(self.cells, self.of_classes.T, strict=True):
            yield name, np.bincount(numbers, self.sizes).astype(np.int64)
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
        cells = [name for name in self._places if name in numbered]
        others = [name for name in self._others if name in numbered]
        numbers, joins = ["int4send(v.size)"], ""
        for name in cells:
            place = self._places[name]
            value, alias = f"v.c{place}", f"d{place}"
            number = self._number(name, value, alias)
            if self.view.pattern is not None:
                odd = self._odd(name, f"o.{self.table.hidden}")
                number = (
                    f"CASE WHEN {_is_star('v.pattern', place)} THEN coalesce({odd}, -1)"
                    f" ELSE {number} END"
                )
            numbers.append(f"int4send({number})")
            joins += self._join(name, value, alias)
        of_classes = [np.empty((0, 1 + len(cells)), dtype=np.int32)]
        of_rows = [np.empty((0, len(others)), dtype=np.int32)]
        with grouping_by_hash(self.session):
            for row in self.session.stream(
                1,
                f"WITH classes AS MATERIALIZED ({self._classes(others)})"
                f" SELECT string_agg({' || '.join(numbers)}, ''::bytea) AS cells,"
                f" string_agg(v.others, ''::bytea) AS others FROM classes AS v"
                f"{joins} GROUP BY v.at / {_FETCHED}",
            ):
                of_classes.append(_array(row["cells"], 1 + len(cells)))
                of_rows.append(_array(row["others"], len(others)))
                self.session.heartbeat()
        found, rows = np.concatenate(of_classes), np.concatenate(of_rows)
        if found.min(initial=0) < 0 or rows.min(initial=0) < 0:
            return None
        class_of_row = np.repeat(np.arange(found.shape[0]), found[:, 0])
        return NumberedRows.of(cells, others, found, class_of_row, list(rows.T))

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
