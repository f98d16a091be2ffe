"""Runs statements inside the server, through PL/Python's `plpy`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from kanon_db.errors import ServerError
from kanon_db.session.progress import ReportingSession
from kanon_db.session.protocol import Row, Session, Value, database_error, fetch_one

# A flushed record makes what the transaction has done so far survive a crash.

_EMITS_AND_FLUSHES: Final = 170000
"""The server's version from which a message in its log can be flushed with the statement."""


def flush(session: Session) -> None:
    """Write the server's log (WAL) to disk, with everything that is in it by now."""
    # PostgreSQL does so when a transaction commits. What a transaction does for good before, such
    # as drawing from a sequence, a crash of the server can undo until then. Before version 17, no
    # function in SQL does it, so this calls the one in C that a commit calls. It is the last thing
    # in the log that is flushed, a message of our own, so that nothing is asked of it that it could
    # refuse.
    version = fetch_one(session, "SELECT current_setting('server_version_num')::int4 AS n")["n"]
    if version >= _EMITS_AND_FLUSHES:
        session.fetch("SELECT pg_logical_emit_message(false, 'kanon_db', ''::text, true)")
        return
    row = fetch_one(
        session,
        "SELECT (pg_logical_emit_message(false, 'kanon_db', ''::text) - '0/0'::pg_lsn)::text AS n",
    )
    import ctypes  # a few milliseconds, which only questions under a budget have to wait for

    try:
        # The lock of the interpreter is kept: the server's code is not made for threads.
        write = ctypes.PyDLL(None).XLogFlush
    except AttributeError:
        raise ServerError(
            "the server cannot write its log before a transaction ends",
            detail="it has no function XLogFlush",
            hint="upgrade to PostgreSQL 17, which needs none",
        ) from None
    write.argtypes, write.restype = [ctypes.c_uint64], None
    write(int(row["n"]))


_PLANS: Final[dict[tuple[str, ...], Any]] = {}
"""Statements that were prepared lately, with the types of their values; the oldest first."""

_MOST_KEPT: Final = 128
_LONGEST_KEPT: Final = 10_000
"""Characters of a statement."""

_CANCELED: Final = "57014"
_INTERNAL: Final = "XX000"
_SECONDS_BETWEEN_BEATS: Final = 0.01
"""Seconds between two looks for a cancel, at least."""


class PlpySession(ReportingSession):
    """:class:`~kanon_db.session.protocol.Session` over the `plpy` module of a PL/Python call.

    The caller fixes ``search_path``; of a call, which may be another user's, only plans stay.
    """

    def __init__(self, plpy: Any) -> None:
        super().__init__()
        self._plpy = plpy
        self._asked_at = 0.0

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run one statement; see the protocol."""
        try:
            result = self._run(self._plpy.execute, statement, values)
        except self._plpy.SPIError as error:
            raise database_error(error.sqlstate, str(error)) from None
        return list(result)

    def stream(self, n: int, statement: str, *values: Value) -> Iterator[Row]:
        """Run one statement through a cursor; see the protocol."""
        try:
            cursor = self._run(self._plpy.cursor, statement, values)
            while rows := list(cursor.fetch(n)):  # collected with its rows, it is closed
                yield from rows
                del rows
        except self._plpy.SPIError as error:
            raise database_error(error.sqlstate, str(error)) from None

    def _run(self, run: Callable[..., Any], statement: str, values: Sequence[Value]) -> Any:
        """Run a statement as an earlier call has prepared it, or prepare it."""
        # A plan has neither values nor rights: the server looks at these when it runs, and plans
        # anew where a relation, the role or the search path is another one.
        key = (statement, *map(_type_name, values))
        if plan := _PLANS.pop(key, None):
            _PLANS[key] = plan  # the last one
            try:
                return run(plan, list(values))
            except self._plpy.SPIError as error:
                if error.sqlstate != _INTERNAL:
                    raise
                # But not where a type was dropped, and another one has its name.
                _PLANS.pop(key, None)
        plan = self._plpy.prepare(statement, list(key[1:]))
        if len(statement) <= _LONGEST_KEPT:
            _PLANS[key] = plan
            if len(_PLANS) > _MOST_KEPT:
                del _PLANS[next(iter(_PLANS))]
        return run(plan, list(values))

    def identifier(self, *parts: str) -> str:
        """Quote a name, or several joined by dots."""
        return ".".join(self._plpy.quote_ident(part) for part in parts)

    def literal(self, value: str) -> str:
        """Quote a value."""
        return str(self._plpy.quote_literal(value))

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Run the block in a subtransaction."""
        with self._plpy.subtransaction():
            yield

    def heartbeat(self) -> None:
        """Run an empty statement now and then, so that the server checks for a cancel.

        It takes 20 microseconds, and some searches beat more often than that.
        """
        now = time.monotonic()
        if now - self._asked_at >= _SECONDS_BETWEEN_BEATS:
            self._asked_at = now
            self.fetch("SELECT 1")
            self._beat()

    def tell(self, message: str) -> None:
        """Send the client a NOTICE."""
        self._send(self._plpy.notice, message)

    def warn(self, message: str) -> None:
        """Send the client a WARNING."""
        self._send(self._plpy.warning, message)

    def _send(self, report: Callable[[str], None], message: str) -> None:
        """Send the client a message, after which the server checks for a cancel."""
        try:
            report(message)
        except self._plpy.Error as error:  # which has no SQLSTATE
            raise database_error(_CANCELED, str(error)) from None


def _type_name(value: Value) -> str:
    if isinstance(value, bytes):
        return "bytea"
    return "text" if value is None or isinstance(value, str) else "text[]"
