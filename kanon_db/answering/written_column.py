"""The cells of one column, read by statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kanon_db.counting.writing.cell_sums import CellSumWriter, NumberedCellWriter
from kanon_db.counting.writing.sure_cells import NumberedSureCellWriter, SureCellWriter

if TYPE_CHECKING:
    from kanon_db.answering.opened import OpenQuery
    from kanon_db.counting import expressions as ex
    from kanon_db.counting.layout import CellLayout
    from kanon_db.counting.writing.writer import Request
    from kanon_db.session.protocol import Row


@dataclass(frozen=True)
class WrittenColumn:
    """:class:`~kanon_db.answering.known_types.KnownColumn` of published relations."""

    opened: OpenQuery
    request: Request
    layout: CellLayout
    name: str

    def values(
        self,
        operand: ex.Expression,
        condition: ex.Expression,
        type_: ex.Type,
        most: int | None,
        *,
        is_numbered: bool,
    ) -> Sequence[Row]:
        """Return what values an expression on the column has in each cell."""
        kind = NumberedCellWriter if is_numbered else CellSumWriter
        writer = kind(self.request, self.layout, self.name)
        written = writer.values(operand, condition, type_.name, most)
        return self.opened.fetch(written.text, *written.bound)

    def axis(self) -> Row | None:
        """Return the ``points`` and ``shares`` of the parts of an axis of ranges, if known."""
        if self.layout.cells[self.name].shares is None:
            return None
        (axis,) = self.opened.fetch(
            f"SELECT s.points, s.shares FROM {self.layout.view.shares} AS s"
            " WHERE s.attribute = $1::text AND s.cell IS NULL",
            self.name,
        )
        return axis

    def sure_cells(self, numbers: Sequence[int] | None, most: int) -> Sequence[Row]:
        """Return cells with these numbers, or of the records that surely count."""
        if numbers is None:
            written = SureCellWriter(self.request, self.layout).sure_cells(self.name, most)
        else:
            writer = NumberedSureCellWriter(self.request, self.layout)
            written = writer.numbered_cells(self.name, numbers)
        return self.opened.fetch(written.text, *written.bound)
