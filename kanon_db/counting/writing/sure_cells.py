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
