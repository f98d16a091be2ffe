"""The rows of a view as the numbers of their cells, whatever the order of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.counting.layout import ClassTable, RowView
from kanon_db.session import Session, fetch_one
from kanon_db.session.settings import grouping_by_hash
from kanon_db.transfer.columns import column_types

Numbers = NDArray[np.uint16]

_FETCHED: Final = 4096
"""Classes that are fetched at once."""

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
    of_rows : ndarray of uint16, shape (n_rows, n_others)
        Class by class, ascending.
    all_sizes : ndarray of int64
        Of the rows with the same cells in all quasi-identifiers.
    """

    cells: Sequence[str]
    others: Sequence[str]
    sizes: IntArray
    of_classes: Numbers
    of_rows: Numbers
    all_sizes: IntArray

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
            for name, numbers in zip(self.others, self.of_rows[first_row:last_row].T, strict=True):
                written[name] = numbers.astype("<u2").tobytes()
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
        for name, numbers in zip(self.others, self.of_rows.T, strict=True):
            yield name, np.bincount(numbers)


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
        self._session, self._view, self._table = session, view, table
        row = fetch_one(session, "SELECT to_regclass($1::text)::oid::text AS oid", view.view)
        self._types = column_types(session, row["oid"])
        self._places = {
            str(cell["name"]): place
            for place, cell in enumerate(described["quasi_identifiers"], start=1)
        }
        self._others = [str(name) for name in described["others"]]

    def hidden(self, place: int, alias: str, pattern: str | None = "pattern") -> str:
        """Write whether a row's cell is suppressed; of classes, or of the view."""
        if self._view.pattern is None:
            return "false"
        return f"substr({alias}.{pattern}, {place}, 1) = '*'"

    def classes(self, numbered: Sequence[str]) -> str:
        """Write the classes: cells ``c1 …``, ``pattern``, ``size``, and others' numbers.

        Parameters
        ----------
        numbered : sequence of str
            The columns whose cells have numbers.
        """
        named = enumerate(self._view.quasi_identifiers, start=1)
        cells = [f"v.{name} AS c{place}" for place, name in named]
        if self._view.pattern is not None:
            cells.append(f"v.{self._view.pattern} AS pattern")
        numbers, joins = [], ""
        for i, name in enumerate(name for name in self._others if name in numbered):
            value, alias = f"v.{self._session.identifier(name)}", f"d{i}"
            numbers.append(f"int4send({self._number(name, value, alias)})")
            joins += self._join(name, value, alias)
        gathered = f"string_agg({' || '.join(numbers)}, ''::bytea)" if numbers else "''::bytea"
        return (
            f"SELECT {', '.join(cells)}, count(*)::int4 AS size, {gathered} AS others,"
            f" row_number() OVER () AS at FROM {self._view.view} AS v{joins}"
            f" GROUP BY {', '.join(map(str, range(1, 1 + len(cells))))}"
        )

    def read(self, numbered: Sequence[str], classes: str | None = None) -> NumberedRows | None:
        """Read the numbers of all rows; None where a cell has none.

        Parameters
        ----------
        numbered : sequence of str
            The columns whose cells have numbers.
        classes : str, optional
            A table with what :meth:`classes` writes.
        """
        cells = [name for name in self._places if name in numbered]
        others = [name for name in self._others if name in numbered]
        numbers, joins = ["int4send(v.size)"], ""
        for name in cells:
            place = self._places[name]
            value, alias = f"v.c{place}", f"d{place}"
            number = self._number(name, value, alias)
            if self._view.pattern is not None:
                odd = self._odd(name, f"o.{self._table.hidden}")
                number = f"CASE WHEN {self.hidden(place, 'v')} THEN coalesce({odd}, -1)"
                number += f" ELSE {self._number(name, value, alias)} END"
            numbers.append(f"int4send({number})")
            joins += self._join(name, value, alias)
        beginning = "" if classes else f"WITH classes AS MATERIALIZED ({self.classes(numbered)}) "
        of_classes = [np.empty((0, 1 + len(cells)), dtype=np.int32)]
        of_rows = [np.empty((0, len(others)), dtype=np.int32)]
        with grouping_by_hash(self._session):
            for row in self._session.stream(
                1,
                f"{beginning}SELECT string_agg({' || '.join(numbers)}, ''::bytea) AS cells,"
                f" string_agg(v.others, ''::bytea) AS others FROM {classes or 'classes'} AS v"
                f"{joins} GROUP BY v.at / {_FETCHED}",
            ):
                of_classes.append(_array(row["cells"], 1 + len(cells)))
                of_rows.append(_array(row["others"], len(others)))
                self._session.heartbeat()
        found = np.concatenate(of_classes), np.concatenate(of_rows)
        if any(part.min(initial=0) < 0 for part in found):
            return None
        return _sorted(cells, others, *found)

    def _odd(self, name: str, condition: str) -> str:
        table = self._table
        return (
            f"(SELECT o.{table.number} FROM {table.table} AS o WHERE o.{table.codes} IS NULL"
            f" AND o.{table.attribute} = {self._session.literal(name)} AND {condition} LIMIT 1)"
        )

    def _number(self, name: str, value: str, alias: str) -> str:
        """Write the number of a cell that is not suppressed; -1 if it has none."""
        own = f"num_nulls(o.{self._session.identifier(name)}) = 1 AND NOT o.{self._table.hidden}"
        return (
            f"coalesce(CASE WHEN num_nulls({value}) = 0 THEN {alias}.{self._table.number}"
            f" ELSE {self._odd(name, own)} END, -1)"
        )

    def _join(self, name: str, value: str, alias: str) -> str:
        table, equal = self._table, self._types[name].operator(self._session, "=")
        return (
            f" LEFT JOIN {table.table} AS {alias}"
            f" ON {value} {equal} {alias}.{self._session.identifier(name)}"
            f" AND {alias}.{table.attribute} = {self._session.literal(name)}"
            f" AND {alias}.{table.codes} IS NULL"
        )


def _array(numbers: bytes, n_columns: int) -> NDArray[np.int32]:
    found = np.frombuffer(numbers, dtype=">i4").astype(np.int32)
    return found.reshape(-1, n_columns) if n_columns else np.empty((0, 0), dtype=np.int32)


def _sorted(
    cells: Sequence[str],
    others: Sequence[str],
    of_classes: NDArray[np.int32],
    of_rows: NDArray[np.int32],
) -> NumberedRows:
    """Sort the classes by their cells, and the rows of each by their other columns."""
    sizes, numbers = of_classes[:, 0].astype(np.int64), of_classes[:, 1:]
    order = np.lexsort(numbers[:, ::-1].T) if cells else np.arange(sizes.size)
    ordered = numbers[order]
    is_first = np.ones(sizes.size, dtype=np.bool_)
    if not sizes.size:
        return NumberedRows(cells, others, sizes, *_none(cells, others), sizes)
    is_first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    if others:
        rank = np.empty(order.size, dtype=np.int64)
        rank[order] = np.cumsum(is_first)
        of_rows = of_rows[_order_of_rows(np.repeat(rank, sizes), of_rows)]
    return NumberedRows(
        cells,
        others,
        np.add.reduceat(sizes[order], np.flatnonzero(is_first)),
        ordered[is_first].astype(np.uint16),
        of_rows.astype(np.uint16),
        sizes,
    )


def _none(cells: Sequence[str], others: Sequence[str]) -> tuple[Numbers, Numbers]:
    return np.empty((0, len(cells)), dtype=np.uint16), np.empty((0, len(others)), dtype=np.uint16)


def _order_of_rows(rank: IntArray, of_rows: NDArray[np.int32]) -> IntArray:
    """Return the order by class, then by the other columns."""
    packed, rest = rank, list(of_rows.T)
    while rest and int(packed.max()) < 1 << 46:  # another number of 16 bits fits
        packed = (packed << 16) | rest.pop(0)
    if not rest:
        return np.argsort(packed, kind="stable")
    return np.lexsort([*rest[::-1], packed])
