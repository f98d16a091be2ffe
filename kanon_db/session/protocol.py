"""The protocol through which every operation reaches PostgreSQL.

An operation is written once against :class:`Session`; `plpy_session` runs it inside the server,
`psycopg_session` from outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

Value = str | bytes | None | Sequence[str]
"""A bound value: text, bytes, NULL, or an array of texts. Statements cast it: ``$1::int8[]``."""

Row = Mapping[str, Any]

SETTINGS: Final = {
    "search_path": "pg_catalog, pg_temp",  # pg_temp last, or it would be searched first
    "datestyle": "ISO, YMD",  # constants of dates do not depend on the caller's settings
    "row_security": "on",  # off, our own tables would refuse whoever may not bypass it
}
"""Settings under which every statement runs. The functions in `sql/` carry the same as SET."""


class Session(Protocol):
    """One open transaction of one role.

    Statements use ``$1 … $n``; their text holds identifiers only as :meth:`identifier` returns
    them, and values never. Every implementation runs statements with
    ``search_path = pg_catalog, pg_temp``, so that each own object must be schema-qualified and
    nobody's look-alike is picked up.
    """

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run one statement; its rows, empty for a statement that returns none.

        Columns arrive as ``int``, ``float``, ``bool``, ``str``, ``bytes``, ``Decimal``, ``None``
        or lists of those; cast anything else to ``text`` in the statement.

        Raises
        ------
        DatabaseError
            With the server's SQLSTATE, without any text that may quote data.
        """

    def identifier(self, *parts: str) -> str:
        """Quote a name, or several joined by dots (schema, relation)."""

    def literal(self, value: str) -> str:
        """Quote a value, for statements that are shown or that take no parameters."""

    def savepoint(self) -> AbstractContextManager[object]:
        """Undo what the block did if it raises; the error goes on."""

    def heartbeat(self) -> None:
        """Notice a cancel or a timeout; cheap, to be called every few milliseconds of work."""

    def step(self, name: str) -> None:
        """Say what the operation does next, for whoever shows progress."""

    def warn(self, message: str) -> None:
        """Tell the caller something that does not stop the operation."""


class _UndoneError(Exception):
    """Ends a savepoint whose work must not stay."""


@contextmanager
def undone(session: Session) -> Iterator[None]:
    """Run the block, and undo what it did in the database; an error goes on."""
    try:
        with session.savepoint():
            yield
            raise _UndoneError  # noqa: TRY301  # the one way to leave a savepoint undone
    except _UndoneError:
        pass


def fetch_one(session: Session, statement: str, *values: Value) -> Row:
    """Run a statement that returns exactly one row."""
    (row,) = session.fetch(statement, *values)
    return row
