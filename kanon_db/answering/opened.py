"""A query with everything that its names refer to, and how it is run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kanon_db.answering.limits import Limits
from kanon_db.catalog.entries import Publication
from kanon_db.counting.checking import Query
from kanon_db.counting.layout import BucketLayout, Cell, CellLayout, Lookup
from kanon_db.counting.reading import QueryText
from kanon_db.counting.refusals import refusal
from kanon_db.errors import DatabaseError
from kanon_db.session.protocol import Row, Session, Value
from kanon_db.session.server_errors import DATA_EXCEPTION_CLASS, UNDEFINED_FUNCTION, withheld
from kanon_db.session.settings import frugal

if TYPE_CHECKING:
    from kanon_db.answering.known_types import KnownColumn, KnownTypes
    from kanon_db.counting.expressions import Aggregate
    from kanon_db.counting.pieces import Pieces
    from kanon_db.counting.writing.writer import Request


@dataclass(frozen=True)
class OpenQuery:
    """A query that can be answered, with everything that its names refer to."""

    session: Session
    text: QueryText
    query: Query
    publication: Publication
    layout: BucketLayout | CellLayout
    lookups: tuple[Lookup, ...]
    limits: Limits

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run a statement of this query; if it fails because of the data, say so in our own words.

        Raises
        ------
        UnsupportedQueryError
            When its arithmetic fails on a value, or an operator does not exist for its types.
        DatabaseError
            For anything else. If there is a lookup table, without the server's message, since the
            table's owner decides what its policies raise.
        """
        with self._own_words():
            return self.session.fetch(statement, *values)

    def fetch_plain(self, statement: str, *values: Value) -> list[Row]:
        """Run a statement that reads no ranges and no sets; see :meth:`fetch`."""
        return self.fetch(statement, *values)

    def stream(self, n: int, statement: str, *values: Value) -> Iterator[Row]:
        """Run a statement as :meth:`fetch`, and keep only `n` of its rows at a time."""
        with self._own_words():
            yield from self.session.stream(n, statement, *values)

    def frugal(self) -> AbstractContextManager[None]:
        """Keep what the statements of the block need within the limits."""
        return frugal(self.session, self.limits.working)

    def known_types(self, request: Request, layout: CellLayout, pieces: Pieces) -> KnownTypes:  # noqa: ARG002
        """Find what is known of the types of records that a request tells apart.

        Raises
        ------
        NotReadError
            When there is more of it than is read.
        """
        from kanon_db.answering.class_blocks import ClassBlocks

        return ClassBlocks(self, layout, pieces)

    def is_wide(self, layout: CellLayout, cell: Cell) -> bool:
        """Whether a cell of a column of discrete ranges has too many values, or says nothing."""
        from kanon_db.counting.writing.spread import MOST_GROUPED

        name, classes = cell.column.sql, layout.classes
        source, bound = f"{layout.view.view} AS c", []
        if classes is not None and cell.column.name in classes.columns:  # each cell once
            source = f"{classes.table} AS c WHERE c.{classes.attribute} = $1::text"
            bound = [cell.column.name]
        (row,) = self.fetch(
            f"SELECT coalesce(max(upper(c.{name}) - lower(c.{name})), 0) > {MOST_GROUPED}"
            f" OR coalesce(bool_or(lower_inf(c.{name}) OR upper_inf(c.{name})), false) AS wide"
            f" FROM {source}",
            *bound,
        )
        return bool(row["wide"])

    def column(self, request: Request, layout: CellLayout, name: str) -> KnownColumn:
        """Find what is known of the cells of a column, in the types that a request tells apart."""
        from kanon_db.answering.written_column import WrittenColumn

        return WrittenColumn(self, request, layout, name)

    def value_sums(self, request: Request, layout: CellLayout, most: int) -> list[Row]:
        """Count the records with each value of what is summed, and between which these are.

        The rows, `most` of them, are those of
        :meth:`~kanon_db.counting.writing.cell_sums.SpreadSumWriter.sums`.
        """
        from kanon_db.counting.writing.cell_sums import SpreadSumWriter

        written = SpreadSumWriter(request, layout).sums(most)
        return self.fetch(written.text, *written.bound)

    def rungs(
        self, aggregate: Aggregate, above: str | None = None, below: str | None = None
    ) -> list[Row]:
        """List the values that an aggregate's operand may have, in their order.

        The rows are those of :func:`kanon_db.counting.writing.rungs.rungs`.
        """
        from kanon_db.counting.writing.rungs import rungs
        from kanon_db.counting.writing.writer import Request

        request = Request(self.query, aggregate, self.lookups)
        written = rungs(request, self.layout, above, below)
        return self.fetch(written.text, *written.bound)

    @contextmanager
    def _own_words(self) -> Iterator[None]:
        try:
            yield
        except DatabaseError as error:
            if error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
                raise refusal(
                    "the query's arithmetic fails on some value",
                    hint="exclude such values with CASE or another condition",
                    detail=f"SQLSTATE {error.sqlstate}, as for a division by zero",
                ) from None
            if error.sqlstate == UNDEFINED_FUNCTION:
                raise refusal(
                    "the query compares values whose types cannot be compared",
                    hint="compare values of the same kind",
                ) from None
            if self.lookups:
                raise withheld(error.sqlstate) from None
            raise
