"""The cells of a column, with the records that count: what percentiles and DISTINCT follow from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kanon_db.counting.writing.cells import CellWriter
from kanon_db.counting.writing.intervals import on_axis
from kanon_db.counting.writing.pieces import PieceWriter
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
        columns = self._shown(name, "t")
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

    def _shown(self, name: str, alias: str) -> dict[str, str]:
        """Show the cell of a column."""
        cell, sql = self._cell(name), f"{alias}.c{self._places[name]}"
        if cell.kind != "range":
            return {"elements": f"to_jsonb({sql})::text"}
        return {end: f"{bound}({on_axis(cell, sql)})::text" for end, bound in _ENDS.items()}


class NumberedSureCellWriter(SureCellWriter, PieceWriter):
    """Writes the cells that have numbers."""

    def numbered_cells(self, name: str, numbers: Sequence[int]) -> Statement:
        """Write the cells of a column with these numbers, as :meth:`sure_cells`."""
        self.cells(name)
        place = self._places[name]
        listed = ", ".join(map(str, numbers)) or "-1"
        self.steps.add(
            "sure_cells",
            "The cells of which every record counts.",
            Select(self._shown(name, "c"), [f"cells{place} AS c"], [f"c.i{place} IN ({listed})"]),
        )
        return Statement(self.steps.write(), self.constants.bound)
