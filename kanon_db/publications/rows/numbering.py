"""The rows of a view as the numbers of their cells, whatever the order of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, Self

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, IntArray
from kanon_db.algorithms.ground.sorting import order_of, taken
from kanon_db.counting.layout import ClassTable, RowView
from kanon_db.counting.read_pieces import ANYTHING, BEGINS
from kanon_db.counting.writing.cell_values import holds_anything
from kanon_db.publications.rows.cell_table import CellColumn
from kanon_db.session import Session, fetch_one
from kanon_db.transfer.columns import column_types, parts_of

CODES: Final = 2**63
"""What the digits of a row can be, in one number; and the base of codes of ends."""

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
    of_rows : sequence of ndarray of uint16, shape (n_rows,)
        Of each other column; class by class, ascending.
    ends : frozenset of str
        Columns with ends.
    """

    cells: Sequence[str]
    others: Sequence[str]
    sizes: IntArray
    of_classes: Sequence[AnyIntArray]
    of_rows: Sequence[AnyIntArray]
    ends: frozenset[str]

    @classmethod
    def of(
        cls,
        cells: Sequence[str],
        others: Sequence[str],
        bases: Sequence[int],
        packed: list[IntArray],
        ends: frozenset[str] = frozenset(),
    ) -> Self | None:
        """Sort rows by the cells, then by the other columns; None where a cell has no number.

        Parameters
        ----------
        cells, others : sequence of str
        bases : sequence of int
            More than the largest digit of each column.
        packed : list of ndarray of int64, shape (n_rows,)
            The digits of the rows, as :func:`packing` groups the columns; it is emptied. A digit
            is a number, or a code of ends, plus 1; or 0.
        ends : frozenset of str
            Columns with ends.
        """
        groups = packing(bases)
        if len(groups) == 1:
            ordered = [np.sort(packed.pop())]  # which is faster than to sort by their order
        else:
            order = order_of(packed[-1])
            for digits in packed[-2::-1]:
                order = taken(order, order_of(taken(digits, order), stable=True))
            ordered = [taken(packed.pop(0), order) for _ in groups]
        n_rows, n_cells = ordered[0].size, len(cells)
        is_first = np.zeros(n_rows, dtype=np.bool_)
        is_first[:1] = True
        for (start, end), digits in zip(groups, ordered, strict=True):
            if start < n_cells:
                of_cells = digits // prod(bases[max(start, n_cells) : end])
                is_first[1:] |= of_cells[1:] != of_cells[:-1]
        firsts = np.flatnonzero(is_first)
        found: list[AnyIntArray] = []
        for (start, end), digits in zip(groups, ordered, strict=True):
            for column in range(start, end):
                shown = digits[firsts] if column < n_cells else digits
                numbers = shown // prod(bases[column + 1 : end])
                numbers = (numbers % bases[column] if column > start else numbers) - 1
                if numbers.min(initial=0) < 0:
                    return None
                is_code = column < n_cells and cells[column] in ends
                found.append(numbers if is_code else numbers.astype(np.uint16))
        sizes = np.diff(firsts, append=n_rows)
        return cls(cells, others, sizes, found[:n_cells], found[n_cells:], ends)

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


def packing(bases: Sequence[int]) -> list[tuple[int, int]]:
    """Group columns so that the digits of each group are those of one number of 63 bits.

    Returns
    -------
    list of (int, int)
        The first column of each group, and that after its last; one empty group of no columns.

    Examples
    --------
    >>> packing([2**20, 2**40, 2**4, 2]), packing([])
    ([(0, 2), (2, 4)], [(0, 0)])
    """
    groups, start = [], 0
    for end in range(1, 1 + len(bases)):
        if prod(bases[start:end]) > CODES:
            groups.append((start, end - 1))
            start = end - 1
    return [*groups, (start, len(bases))]


@dataclass(frozen=True)
class Special:
    """The numbers of the suppressed cells and of NULL in a column; -1 if it has none."""

    hidden: int
    null: int


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
        self._oid = row["oid"]
        self._types = column_types(session, self._oid)
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
        return f"substr({alias}.{self.view.pattern}, {self._places[name]}, 1) = '*'"

    def of_cells(self, name: str, cells: CellColumn) -> CodeArray:
        """Return the number of each cell of a column, and of the suppressed ones; -1 without one.

        Parameters
        ----------
        name : str
        cells : CellColumn
        """
        value, special = f"v.{cells.cell}", self.special(name)
        row = fetch_one(
            self.session,
            f"SELECT string_agg(int4send(v.{cells.number}) || int4send("
            f"{self._number(value, 'd', special, 'false')}), ''::bytea) AS numbers"
            f" FROM {cells.table} AS v{self._join(name, value, 'd')}",
        )
        found = np.full(1 + cells.n_cells, special.hidden, dtype=np.int32)
        of_cell, numbers = np.frombuffer(row["numbers"], dtype=">i4").reshape(-1, 2).T
        found[of_cell] = numbers
        return found

    def special(self, name: str) -> Special:
        """Look up the numbers of the cells of a column that are not compared."""
        table = self.table
        row = fetch_one(
            self.session,
            f"SELECT coalesce(min(o.{table.number}) FILTER (WHERE o.{table.hidden}), -1) AS hidden,"
            f" coalesce(min(o.{table.number}) FILTER (WHERE NOT o.{table.hidden}"
            f" AND num_nulls(o.{self.session.identifier(name)}) = 1), -1) AS null"
            f" FROM {table.table} AS o WHERE o.{table.codes} IS NULL"
            f" AND o.{table.attribute} = $1::text",
            name,
        )
        return Special(int(row["hidden"]), int(row["null"]))

    def read(self, numbered: Sequence[str], n_rows: int) -> NumberedRows | None:
        """Read the numbers of all rows of the view; None where a cell has none.

        Parameters
        ----------
        numbered : sequence of str
            The columns whose cells have numbers.
        n_rows : int
            About how many rows there are.
        """
        session, table = self.session, self.table
        cells = [name for name in self._places if name in numbered or name in table.ends]
        others = [name for name in self._others if name in numbered]
        largest = {
            row["attribute"]: row["largest"]
            for row in session.fetch(
                f"SELECT t.{table.attribute} AS attribute, max(t.{table.number}) AS largest"
                f" FROM {table.table} AS t WHERE t.{table.codes} IS NULL GROUP BY 1"
            )
        }
        bases = [
            CODES if name in table.ends else 2 + max(0, largest.get(name) or 0)
            for name in (*cells, *others)
        ]
        digits, joins = [], ""
        for i, name in enumerate([*cells, *others]):
            value = f"v.{session.identifier(name)}"
            if name in table.ends:
                digits.append(f"{self._code(name, value)} + 1")
                continue
            number = self._number(value, f"d{i}", self.special(name), self.hidden(name, "v"))
            digits.append(f"{number} + 1")
            joins += self._join(name, value, f"d{i}")
        groups = packing(bases)
        sent = []
        for start, end in groups:
            number = digits[start] if end > start else "0"
            for digit, base in zip(digits[start + 1 : end], bases[start + 1 : end], strict=True):
                number = f"({number})::int8 * {base} + {digit}"
            sent.append(f"int8send({number})")
        packed = [np.empty((0, len(groups)), dtype=np.int64)]
        for part in parts_of(session, self.view.view, n_rows, "v"):
            row = fetch_one(
                session,
                # A statement without parameters, so that the server may make a parallel plan, and
                # OFFSET, in quotes as in :func:`.digest`, so that cells stay where they are read.
                f"SELECT string_agg(r.digits, ''::bytea) AS digits FROM"
                f" (SELECT {' || '.join(sent)} AS digits"
                f" FROM {self.view.view} AS v{joins} WHERE {part} OFFSET '0') AS r",
            )
            found = np.frombuffer(row["digits"] or b"", dtype=">i8")
            packed.append(found.astype(np.int64).reshape(-1, len(groups)))
        columns = [np.ascontiguousarray(column) for column in np.concatenate(packed).T]
        return NumberedRows.of(cells, others, bases, columns, table.ends)

    def _number(self, value: str, alias: str, special: Special, hidden: str) -> str:
        """Write the number of a cell; -1 if it has none."""
        when = f"WHEN num_nulls({value}) = 0 THEN -1"
        if hidden != "false":
            when += f" WHEN {hidden} THEN {special.hidden}"
        return f"coalesce({alias}.{self.table.number}, CASE {when} ELSE {special.null} END)"

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

    def _join(self, name: str, value: str, alias: str) -> str:
        table, equal = self.table, self._types[name].operator(self.session, "=")
        return (
            f" LEFT JOIN {table.table} AS {alias}"
            f" ON {value} {equal} {alias}.{self.session.identifier(name)}"
            f" AND {alias}.{table.attribute} = {self.session.literal(name)}"
            f" AND {alias}.{table.codes} IS NULL AND NOT {alias}.{table.hidden}"
        )
