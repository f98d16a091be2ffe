"""Finding the numbers of cells: those of the rows of a view, and those that are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray
from kanon_db.counting.layout import ClassTable, RowView
from kanon_db.counting.read_pieces import ANYTHING, BEGINS
from kanon_db.counting.writing.cell_values import holds_anything
from kanon_db.publications.rows.cell_table import CellColumn
from kanon_db.publications.rows.numbered_rows import CODES, NumberedRows, packed_rows
from kanon_db.session import Session, fetch_one
from kanon_db.transfer.columns import column_types


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

    def marks(self, names: Sequence[str], alias: str) -> str:
        """Write which of the cells of these columns are suppressed in a row of the view."""
        pattern = f"{alias}.{self.view.pattern}"
        if len(names) == len(self._places):
            return pattern
        return " || ".join(f"substr({pattern}, {self._places[name]}, 1)" for name in names) or "''"

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

    def stored(self, most: int) -> NumberedRows | None:
        """Read the numbers of all rows as the table has them; None where these are no numbers.

        Parameters
        ----------
        most : int
            No more rows than these can have been published.
        """
        table = self.table
        cells = [name for name in self._places if name in table.columns | table.ends]
        others = [name for name in self._others if name in table.columns]
        types: dict[str, np.dtype[np.integer]] = {"": np.dtype("<u4")}
        types |= dict.fromkeys((*cells, *others), np.dtype("<u2"))
        types |= dict.fromkeys(table.ends, np.dtype("<i8"))
        parts: dict[str, list[AnyIntArray]] = {
            name: [np.empty(0, dtype=of_column)] for name, of_column in types.items()
        }
        for row in self.session.stream(
            1,
            f"SELECT coalesce(t.{table.attribute}, '') AS attribute, t.{table.codes} AS codes"
            f" FROM {table.table} AS t WHERE t.{table.codes} IS NOT NULL ORDER BY t.{table.number}",
        ):
            name, codes = row["attribute"], row["codes"]
            if name not in types or len(codes) % types[name].itemsize:
                return None
            parts[name].append(np.frombuffer(codes, dtype=types[name]))
        found = {name: np.concatenate(of_column) for name, of_column in parts.items()}
        sizes = found[""].astype(np.int64)
        n_rows = int(sizes.sum())
        if n_rows > most:
            return None
        for names, n in ((cells, sizes.size), (others, n_rows)):
            if any(found[name].size != n or found[name].min(initial=0) < 0 for name in names):
                return None
        of_classes, of_rows = ([found[name] for name in names] for names in (cells, others))
        bases = [
            CODES if name in table.ends else 2 + int(found[name].max(initial=0))
            for name in (*cells, *others)
        ]
        class_of_row = np.repeat(np.arange(sizes.size, dtype=np.int32), sizes)
        packed = packed_rows(bases, of_classes, class_of_row, of_rows)
        return NumberedRows.of(cells, others, bases, packed, table.ends)

    def looked_up(self, names: Sequence[str]) -> tuple[list[str], str]:
        """Write the digits of the cells of some columns, and the joins that find their numbers.

        A digit is a number plus 1, or 0 for a cell without one; or a code of ends plus 1.
        """
        digits, joins = list[str](), ""
        for i, name in enumerate(names):
            value = f"v.{self.session.identifier(name)}"
            if name in self.table.ends:
                digits.append(f"{self._code(name, value)} + 1")
                continue
            number = self._number(value, f"d{i}", self.special(name), self.hidden(name, "v"))
            digits.append(f"{number} + 1")
            joins += self._join(name, value, f"d{i}")
        return digits, joins

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
