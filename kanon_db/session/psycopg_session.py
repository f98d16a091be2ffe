"""Runs statements from outside the server, through psycopg."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from kanon_db.errors import InvalidParameterError, ServerError, UndoneInterrupt
from kanon_db.session.progress import PREFIX, ReportingSession, Watcher
from kanon_db.session.protocol import SETTINGS, Row, Value, database_error

Listener = Callable[[str], None]

_NO_DATE: Final = "a date lies outside of the years 1 to 9999, which Python's dates have"
_NO_TEXT: Final = "a text holds a NUL character, or is not valid Unicode"


class PsycopgSession(ReportingSession):
    """:class:`~kanon_db.session.protocol.Session` over one psycopg connection.

    Use :meth:`transaction` around each operation: it fixes the settings and makes the operation
    atomic.
    """

    def __init__(
        self,
        connection: psycopg.Connection,
        on_progress: Watcher | None = None,
        on_warning: Listener | None = None,
        on_notice: Listener | None = None,
    ) -> None:
        super().__init__(on_progress)
        self.connection = connection
        self._on_warning = on_warning
        self._on_notice = on_notice

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in one transaction, under the settings that statements rely on."""
        with self.translated_errors(), self.connection.transaction():
            for name, value in SETTINGS.items():
                # Everything is qualified, since this still runs with the caller's search path.
                self.fetch(
                    "SELECT pg_catalog.set_config($1::pg_catalog.text, $2::pg_catalog.text, true)",
                    name,
                    value,
                )
            try:
                yield
            except KeyboardInterrupt:
                raise UndoneInterrupt from None

    def qualified(self, relation: str) -> str:
        """Find a relation with the connection's own search path, so outside of a transaction."""
        rows = self.fetch(
            "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name"
            " FROM pg_catalog.pg_class AS c"
            " JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace"
            " WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1::pg_catalog.text)",
            relation,
        )
        return str(rows[0]["name"]) if rows else relation

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run one statement; see the protocol."""
        with (
            self.translated_errors(),
            psycopg.RawCursor(self.connection, row_factory=dict_row) as cursor,
        ):
            # The text consists only of quoted identifiers and of our own words.
            cursor.execute(statement.encode(), values or None)
            return list(cursor.fetchall()) if cursor.description else []

    def stream(self, n: int, statement: str, *values: Value) -> Iterator[Row]:
        """Run one statement through a cursor of the server; see the protocol."""
        name = f"kanon_{secrets.token_hex(8)}"
        with (
            self.translated_errors(),
            _closed(psycopg.RawServerCursor(self.connection, name, row_factory=dict_row)) as cursor,
        ):
            cursor.execute(statement.encode(), values)
            while rows := cursor.fetchmany(n):
                yield from rows

    def copy(self, statement: str, blocks: Iterable[bytes]) -> None:
        """Run ``COPY ... FROM STDIN`` with data that comes in blocks."""
        with (
            self.translated_errors(),
            psycopg.RawCursor(self.connection) as cursor,
            cursor.copy(statement.encode()) as copy,
        ):
            for block in blocks:
                copy.write(block)
                self.heartbeat()

    def copied(self, statement: str) -> Iterator[bytes]:
        """Run ``COPY ... TO STDOUT``, and yield the rows; meanwhile nothing else can be run."""
        self._is_wanted, wanted = False, self._is_wanted
        try:
            with (
                self.translated_errors(),
                psycopg.RawCursor(self.connection) as cursor,
                cursor.copy(statement.encode()) as copy,
            ):
                yield from map(bytes, copy)  # libpq gives one row at a time
        finally:
            self._is_wanted = wanted

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Translate errors that the driver raises within the block; see `server_errors`."""
        try:
            yield
        except UnicodeEncodeError:
            raise InvalidParameterError(_NO_TEXT) from None
        except psycopg.Error as error:
            if isinstance(error, psycopg.DataError) and error.sqlstate is None:  # the driver's own
                is_date = str(error).startswith(("date too", "timestamp too"))
                raise InvalidParameterError(_NO_DATE if is_date else _NO_TEXT) from None
            raise database_error(error.sqlstate, error.diag.message_primary) from None

    def identifier(self, *parts: str) -> str:
        """Quote a name, or several joined by dots."""
        return sql.Identifier(*parts).as_string(self.connection)

    def literal(self, value: str) -> str:
        """Quote a value."""
        return sql.Literal(value).as_string(self.connection)

    def savepoint(self) -> AbstractContextManager[object]:
        """Run the block in a savepoint."""
        return self.connection.transaction()

    def tell(self, message: str) -> None:
        """Pass the message to the listener."""
        if self._on_notice:
            self._on_notice(message)

    def warn(self, message: str) -> None:
        """Pass the warning to the listener."""
        if self._on_warning:
            self._on_warning(message)


def open_connection(dsn: str) -> psycopg.Connection:
    """Connect in autocommit mode, so that each operation has its own transaction."""
    address = _ADDRESS.match(dsn)
    if address is not None and "@" in address["host"]:
        # The driver would ask the network for a host that is the end of the password.
        raise ServerError("the connection string cannot be read", hint=_ENCODE)
    try:
        # Statements are sent as UTF-8, whatever the database or the environment would choose; and
        # none is prepared, since a pooler may send the next transaction to another server process.
        return psycopg.connect(
            dsn, autocommit=True, application_name=PREFIX, client_encoding="UTF8",
            prepare_threshold=None,
        )  # fmt: skip
    except (psycopg.ProgrammingError, UnicodeEncodeError):
        raise ServerError(
            "the connection string cannot be read",
            hint="write it as postgresql://user@host/database or host=... dbname=... user=...",
        ) from None
    except psycopg.OperationalError as error:
        raise ServerError(
            "cannot connect to the server",
            detail=_reason(dsn, str(error)),
            hint="check the connection string; `kanon local start` starts a private server, which"
            " commands use where neither --dsn nor KANON_DSN names another",
        ) from None


_ADDRESS: Final = re.compile(r"postgres(?:ql)?://(?:[^/@]*@)?(?P<host>[^/?]*)")
"""The beginning of a connection URI, as libpq reads it."""

_ENCODE: Final = (
    "in a URI, write @ in a user's name or password as %40, / as %2F, : as %3A and % as %25"
)


def _reason(dsn: str, text: str) -> str:
    """Return the first line of libpq's reason, unless it could quote a part of the password."""
    # libpq names the host, the port, the user and the database, never the password. But it mistakes
    # parts of a password with an unencoded slash for these.
    address = _ADDRESS.match(dsn)
    if address is not None and "@" in dsn[address.end() :]:
        return f"if the user's name or the password has special characters: {_ENCODE}"
    return text.strip().splitlines()[0] if text.strip() else ""


@contextmanager
def _closed(cursor: psycopg.RawServerCursor[Row]) -> Iterator[psycopg.RawServerCursor[Row]]:
    """Close the cursor after the block, also where the connection breaks while it closes."""
    try:
        yield cursor
    finally:
        try:
            cursor.close()
        except psycopg.Error:
            cursor.close()  # without the server this time: the driver has seen that it is gone
            raise
