"""A session for the code that reads publications, over the tables of one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

from kanon_db.session.progress import Watcher
from kanon_db.session.protocol import Row, Value
from kanon_db.spark.tables import Tables
from kanon_db.spark.voice import Voice


class TableSession(Voice):
    """:class:`~kanon_db.session.protocol.Session` that reads, and writes nothing.

    Parameters
    ----------
    tables : Tables
    on_progress, on_warning : callable, optional
        See :class:`Voice`.
    """

    def __init__(
        self,
        tables: Tables,
        on_progress: Watcher | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(on_progress, on_warning)
        self.tables = tables

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run a statement; see :meth:`Tables.fetch`."""
        texts = [value.decode() if isinstance(value, bytes) else value for value in values]
        return self.tables.fetch(statement, *texts)

    def stream(self, n: int, statement: str, *values: Value) -> Iterator[Row]:  # noqa: ARG002
        """Run a statement, and return its rows one by one."""
        yield from self.fetch(statement, *values)

    def identifier(self, *parts: str) -> str:
        """Quote a name; see :meth:`Tables.identifier`."""
        return self.tables.identifier(*parts)

    def literal(self, value: str) -> str:
        """Quote a value as PostgreSQL does; statements are translated afterwards."""
        return "'" + value.replace("'", "''") + "'"

    def savepoint(self) -> AbstractContextManager[object]:
        """Undo nothing: nothing is written."""
        return nullcontext()

    def reporting(self) -> AbstractContextManager[None]:
        """Report to the watcher."""
        return nullcontext()

    def tell(self, message: str) -> None:
        """Pass on what is worth knowing."""
        self.warn(message)
