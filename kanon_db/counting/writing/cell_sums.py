"""How many records of each distinct cell of a column count, and what values the cells have.

Where a condition mentions the column together with others, its values are listed for each type of
records instead.
"""

from __future__ import annotations

from typing import Final

from kanon_db.counting import expressions as ex
from kanon_db.counting.checking.types import TEXT
from kanon_db.counting.layout import CellLayout
from kanon_db.counting.writing.cell_values import is_vague, of_cell, values_of
from kanon_db.counting.writing.cells import CellWriter
from kanon_db.counting.writing.likely import add_matched
from kanon_db.counting.writing.pieces import PieceWriter
from kanon_db.counting.writing.sql import Statement, write
from kanon_db.counting.writing.steps import Nested, Select
from kanon_db.counting.writing.types_of_records import key_of
from kanon_db.counting.writing.writer import Request, numbered

_SHARES: Final = ("first", "last", "own")
_EACH: Final = "CROSS JOIN LATERAL"


class CellSumWriter(CellWriter):
    """Writes over the cells of one column, whose values the request's condition leaves open.

    Parameters
    ----------
    request : Request
        A count, by a condition and groups that do not mention the column.
    layout : CellLayout
    name : str
        The column.
    """

    def __init__(self, request: Request, layout: CellLayout, name: str) -> None:
        super().__init__(request, layout, also=(name,))
        self._name, self._place = name, self._places[name]

    def sums(self, most: int) -> Statement:
        """Write how many records of each group have each cell, if they count.

        The statement returns the group's key as JSON, the cell's ``cell_key``, whether it is
        ``suppressed``, and how many records are ``expected``, ``sure`` and ``possible``, with
        ``u``, the share of which nothing is known; ``is_unknown`` where most cells are suppressed.
        """
        self.likely()
        constants = self.constants
        self.steps.add(
            "cell_sums",
            f"How many records of each group have each of the cells c{self._place}.",
            Select(
                {
                    "group_key": _group_key(self),
                    **self._identified("t"),
                    "expected": "sum(y.n * y.m)",
                    "sure": "coalesce(sum(y.n) FILTER (WHERE y.st), 0)",
                    "possible": "sum(y.n)",
                    "u": "max(y.u)",
                    "is_unknown": f"({self._is_unknown() or 'false'})",
                },
                ["likely_types AS y", "JOIN types AS t ON t.id = y.id"],
                ["y.pt"],
                numbered(3),
                limit=most,
            ),
        )
        return Statement(self.steps.write(), constants.bound)

    def values(
        self, operand: ex.Expression, condition: ex.Expression, type_: str, most: int | None
    ) -> Statement:
        """Write what values an expression on the column has in each of its distinct cells.

        The statement returns ``cell_key`` and ``suppressed``; ``n``, how many records have the
        cell; how likely they meet a condition on the column: ``t``, ``st`` and ``pt``, as in
        :data:`~kanon_db.counting.writing.truth.COLUMNS`; the ``least`` and the ``most`` value of
        those that do, as texts, NULL where it could be anything; and either some of these values,
        ``xs``, with their shares, ``ws``, or what the table of shares has of a range: ``first``,
        ``last`` and ``own``.

        Parameters
        ----------
        type_ : str
            Of the expression.
        most : int or None
            How many values of a wide range are listed; None for the ends of ranges only.
        """
        place, cell = self._place, self._cell(self._name)
        sql = f"d.c{place}"
        self._find_cells()
        likely = self.shares(self._name, "s")
        matched = ("", "")
        if cell.shares is not None and cell.kind == "range":
            truth = write(condition, lambda _column: "p.v", self.constants)
            matched = add_matched(self.steps, truth, "own", place)
        met = Nested(of_cell(condition, cell, sql, self.constants, likely, matched), "w", _EACH)
        joins = [f"JOIN cells{place} AS s ON {self._same('s')}"] if is_vague(cell) else []
        columns = {column: f"d.{column}" for column in ("cell_key", "suppressed", "n")}
        columns |= {column: f"w.{column}" for column in ("t", "st", "pt")}
        if most is None:
            ends = (f"lower({sql})", f"upper({sql})" + (" - 1" if cell.is_discrete else ""))
            columns |= {
                name: f"CASE WHEN NOT {side}_inf({sql}) THEN ({end})::{type_}::text END"
                for name, side, end in zip(("least", "most"), ("lower", "upper"), ends, strict=True)
            }
            columns |= {
                name: "NULL::float8" if likely is None else f"s.{name}{place}" for name in _SHARES
            }
            listed: list[str | Nested] = []
        else:
            listed = [self._listed(operand, condition, type_, most)]
            columns |= {name: f"x.{name}" for name in ("least", "most", "xs", "ws")}
        self.steps.add(
            "cell_values",
            "What values they have.",
            Select(columns, ["distinct_cells AS d", *joins, met, *listed]),
        )
        return Statement(self.steps.write(), self.constants.bound)

    def _find_cells(self) -> None:
        """List the distinct cells of the column, with the records that have each."""
        self.types()
        place = self._place
        distinct = self._identified("a") | {f"c{place}": f"a.c{place}", "n": "sum(a.n)"}
        self.steps.add("distinct_cells", f"The distinct cells c{place}.",
                       Select(distinct, ["alike AS a"], group=numbered(3)))  # fmt: skip

    def _identified(self, alias: str) -> dict[str, str]:
        """Tell a cell of the rows with an alias from others."""
        place = self._place
        mark = self._cell(self._name).mark
        return {
            "cell_key": key_of(f"{alias}.c{place}"),
            "suppressed": "false" if mark is None else f"{alias}.m{place}",
        }

    def _same(self, alias: str) -> str:
        place = self._place
        found = f"{alias}.k{place} = d.cell_key"
        if self._cell(self._name).mark is not None:
            found += f" AND {alias}.m{place} = d.suppressed"
        return found

    def _listed(
        self, operand: ex.Expression, condition: ex.Expression, type_: str, most: int
    ) -> Nested:
        """List the values of one cell that meet the condition."""
        cell, sql = self._cell(self._name), f"d.c{self._place}"
        x = f"({write(operand, lambda _column: 'v.v', self.constants)})::{type_}"
        ok = write(condition, lambda _column: "v.v", self.constants)
        values = values_of(cell, sql, most, self.shares(self._name, "s"))
        each = {"x": x, "ok": f"({ok}) IS TRUE"}
        each |= {name: f"v.{name}" for name in ("w", "is_open", "least", "most")}
        of_open = {"least": "NULL", "most": "NULL"}
        if isinstance(operand, ex.Column):
            of_open = {"least": f"min(e.least)::{type_}", "most": f"max(e.most)::{type_}"}
        columns = {
            name: f"(CASE WHEN bool_or(e.is_open) THEN {of_open[name]}"
            f" ELSE {function}(e.x) FILTER (WHERE e.ok) END)::text"
            for name, function in (("least", "min"), ("most", "max"))
        }
        columns |= {
            "xs": "array_agg(e.x::float8) FILTER (WHERE e.ok)",
            "ws": "array_agg(e.w) FILTER (WHERE e.ok)",
        }
        inner = Nested([Select(each, [Nested(values, "v")])], "e")
        return Nested([Select(columns, [inner])], "x", _EACH)


class NumberedCellWriter(CellSumWriter, PieceWriter):
    """Writes what values cells have that are numbered: ``cell_key`` is the number."""

    def _find_cells(self) -> None:
        place, cell = self._place, self._cell(self._name)
        self.cells(self._name)
        columns = {
            "cell_key": f"a.i{place}::text",
            "suppressed": "false" if cell.mark is None else f"a.m{place}",
            f"c{place}": f"a.c{place}",
            "n": f"a.n{place}",
        }
        comment = f"The distinct cells c{place}, with the records that have each."
        self.steps.add("distinct_cells", comment, Select(columns, [f"cells{place} AS a"]))

    def _same(self, alias: str) -> str:
        return f"{alias}.i{self._place}::text = d.cell_key"


class SpreadSumWriter(CellWriter):
    """Writes over the values that the columns of a sum's operand may have in each type."""

    def __init__(self, request: Request, layout: CellLayout) -> None:
        super().__init__(request, layout)
        wanted = {*self._spread, *ex.attributes(self.weighed)}
        self._spread = [
            name for name, cell in layout.cells.items() if name in wanted and is_vague(cell)
        ]
        self._summed = None

    def sums(self, most: int) -> Statement:
        """Write how many records of each group count, by the values that they may have.

        The statement returns the group's key as JSON, and either, with ``most`` NULL, how many
        records are expected (``n``) with a value (``least``); or how many have values between
        ``least`` and ``most``, NULL where it could be anything, and whether they ``surely`` count.
        """
        self.rows_of_values()
        key = _group_key(self)
        surely = "bool_and(st)" + (" AND sum(w) > 0.999999999" if self.keys else "")
        ends = {
            name: f"CASE WHEN NOT bool_or(is_wild) FILTER (WHERE pt) THEN {end} END"
            for name, end in (
                ("least", "min(least_x) FILTER (WHERE pt)"),
                ("most", "max(most_x) FILTER (WHERE pt)"),
            )
        }
        self.step(
            "ends",
            "Between which values those of each type are.",
            {"n": "n", "surely": surely, **ends},
            group=["id", "n"],
            having="bool_or(pt)",
        )
        self.steps.add(
            "sums",
            "The records with each value, and those with values between any two.",
            Select(
                {
                    "group_key": key, "is_value": "true", "surely": "false", "least": "x",
                    "most": "NULL::float8", "n": "sum(n * w * t)",
                },
                ["likelihoods"], ["pt", "x IS NOT NULL"], ["group_key", "x"],
            ),
            Select(
                {
                    "group_key": key, "is_value": "false",
                    **{name: name for name in ("surely", "least", "most")}, "n": "sum(n)",
                },
                ["ends"], [], ["group_key", "surely", "least", "most"],
            ),
        )  # fmt: skip
        return Statement(f"{self.steps.write()}\nLIMIT {most}", self.constants.bound)


class NumberedSpreadWriter(SpreadSumWriter, PieceWriter):
    """Writes what their cells tell, where these have numbers."""


def _group_key(writer: CellWriter) -> str:
    """Write a group's values as JSON."""
    named = ", ".join(
        f"{writer.constants.write(ex.Constant(key.name, TEXT))}, {sql}"
        for key, sql in zip(writer.query.keys, writer.keys, strict=True)
    )
    return f"jsonb_build_object({named})::text" if named else "'{}'::text"
