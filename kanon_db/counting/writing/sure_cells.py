"""The cells of a column, with the records that count: what percentiles and DISTINCT follow from."""

from __future__ import annotations

from typing import Final

from kanon_db.counting.writing.cells import CellWriter
from kanon_db.counting.writing.intervals import on_axis
from kanon_db.counting.writing.sql import Statement
from kanon_db.counting.writing.steps import Select
from kanon_db.counting.writing.writer import numbered

_ENDS: Final = {"low": "lower", "high": "upper"}


class SureCellWriter(CellWriter):
    """Writes over the cells of types of records, as what it is derived from."""

    def sure_cells(self, name: str, most: int) -> Statement:
        """Write the cells of a column of the records that surely count, without groups.

        The statement returns ``low`` and ``high``, or the ``elements`` of a set, as texts.
        """
        self.likely()
        cell, sql = self._cell(name), f"t.c{self._places[name]}"
        columns = {"elements": f"to_jsonb({sql})::text"}
        if cell.kind == "range":
            columns = {end: f"{bound}({on_axis(cell, sql)})::text" for end, bound in _ENDS.items()}
        self.steps.add(
            "sure_cells",
            "The cells of the types of which every record counts.",
            Select(
                columns,
                ["likely_types AS y", "JOIN types AS t ON t.id = y.id"],
                ["y.st"],
                numbered(len(columns)),
                limit=most,
            ),
        )
        return Statement(self.steps.write(), self.constants.bound)

    def cell_sums(self, name: str, most: int) -> Statement:
        """Write how many records of each distinct range of a column count, without groups.

        The statement returns ``low`` and ``high`` as texts, NULL where the range says nothing; how
        many records are ``expected``, ``sure`` and ``possible``; and what the table of shares has
        of the range: ``first``, ``last`` and ``own``, with ``u``, the share that is not known.
        """
        self.likely()
        place, cell = self._places[name], self._cell(name)
        shares = dict.fromkeys(("first", "last", "own"), "NULL::float8")
        if cell.shares is not None:
            shares = {column: f"max(d.{column}{place})" for column in shares}
        ends = {end: f"{bound}({on_axis(cell, f'd.c{place}')})" for end, bound in _ENDS.items()}
        anything = f"lower_inf(d.c{place})"
        self.steps.add(
            "cell_sums",
            f"How many records of each of the cells c{place} count.",
            Select(
                {
                    **{
                        end: f"(CASE WHEN NOT {anything} THEN {sql} END)::text"
                        for end, sql in ends.items()
                    },
                    "expected": "sum(y.n * y.m)",
                    "sure": "coalesce(sum(y.n) FILTER (WHERE y.st), 0)",
                    "possible": "coalesce(sum(y.n) FILTER (WHERE y.pt), 0)",
                    "u": "max(y.u)",
                    **shares,
                },
                [
                    "likely_types AS y",
                    "JOIN types AS t ON t.id = y.id",
                    f"JOIN cells{place} AS d ON d.i{place} = t.i{place}",
                ],
                ["y.pt", f"d.c{place} IS NOT NULL"],
                [f"d.i{place}", f"d.c{place}"],
                limit=most,
            ),
        )
        return Statement(self.steps.write(), self.constants.bound)
