"""What answers need to know of published cells beside counts, wherever it is found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
    from kanon_db.counting import expressions as ex
    from kanon_db.counting.read_pieces import PieceReader
    from kanon_db.session.protocol import Row


class KnownTypes(Protocol):
    """The types of records that a request tells apart, and what each of their cells tells."""

    @property
    def read(self) -> PieceReader:
        """What each cell, and each value, tells."""

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return the numbers of the cells of some types, by the column, and their records."""


class KnownColumn(Protocol):
    """The distinct cells of one column, by the numbers that :class:`KnownTypes` has of them."""

    def values(
        self,
        operand: ex.Expression,
        condition: ex.Expression,
        type_: ex.Type,
        most: int | None,
        *,
        is_numbered: bool,
    ) -> Sequence[Row]:
        """Return what values an expression on the column has in each cell.

        The rows, and the parameters, are those of
        :meth:`~kanon_db.counting.writing.cell_sums.CellSumWriter.values`; `is_numbered` says
        whether cells are asked for by their numbers, or by themselves.
        """

    def axis(self) -> Row | None:
        """Return the ``points`` and ``shares`` of the parts of an axis of ranges, if known."""

    def sure_cells(self, numbers: Sequence[int] | None, most: int) -> Sequence[Row]:
        """Return cells with these numbers, or of the records that surely count.

        The rows are those of
        :meth:`~kanon_db.counting.writing.sure_cells.SureCellWriter.sure_cells`.
        """
