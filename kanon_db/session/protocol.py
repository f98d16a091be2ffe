"""Defines the session through which every operation reaches PostgreSQL, and its errors.

A server's message may quote data: `invalid input syntax for type integer: "HIV"`, or a DETAIL
with a whole row. We pass on the primary message only for SQLSTATE classes whose messages name
objects and limits, and never DETAIL, HINT or CONTEXT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

from kanon_db.errors import DatabaseError

# An operation is written once against :class:`Session`; `plpy_session` runs it inside the server,
# `psycopg_session` outside.

Value = str | bytes | None | Sequence[str | None]
"""A bound value: text, bytes, NULL, or an array of texts. Statements cast it: ``$1::int8[]``."""

Row = Mapping[str, Any]

SETTINGS: Final = {
    "search_path": "pg_catalog, pg_temp",  # pg_temp explicitly last; otherwise it comes first
    "datestyle": "ISO, YMD",  # date constants must not depend on the caller's settings
    "extra_float_digits": "1",  # the texts of different floating-point numbers differ
    "quote_all_identifiers": "off",  # format_type() would quote, and types are known by its names
    "row_security": "on",  # if off, our own tables refuse everybody who may not bypass it
}
"""Settings for every statement. The functions in `sql/` have the same ones as SET clauses."""


class Fetching(Protocol):
    """Whatever runs statements with texts as their values: a session, or tables in files."""

    def fetch(self, statement: str, /, *values: str) -> list[Row]:
        """Run a statement, and return its rows."""


class Session(Protocol):
    """One open transaction of one role.

    Statements use ``$1 … $n``. Their text contains identifiers only as :meth:`identifier` returns
    them, and never values. Every implementation runs statements with
    ``search_path = pg_catalog, pg_temp``, so that our own objects must be schema-qualified and
    nobody can put a look-alike in their place.
    """

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run one statement, and return its rows; an empty list if it returns none.

        Values are ``int``, ``float``, ``bool``, ``str``, ``bytes``, ``Decimal``, ``None`` or lists
        of these; the statement must cast anything else to ``text``.

        Raises
        ------
        DatabaseError
            With the server's SQLSTATE, but without any text that may quote data.
        """

    def stream(self, n: int, statement: str, *values: Value) -> Iterator[Row]:
        """Run one statement that returns rows, and keep only `n` of them at a time.

        Raises
        ------
        DatabaseError
            As :meth:`fetch`, at any row.
        """

    def identifier(self, *parts: str) -> str:
        """Quote a name, or several joined by dots (schema, relation)."""

    def literal(self, value: str) -> str:
        """Quote a value, for statements that are shown or that take no parameters."""

    def savepoint(self) -> AbstractContextManager[object]:
        """Undo what the block did if it raises; the error is passed on."""

    def heartbeat(self) -> None:
        """Check for a cancel or a timeout; cheap enough to call every few milliseconds."""

    def reporting(self) -> AbstractContextManager[None]:
        """Run an operation that says how far it is; afterwards nothing shows it any more."""

    def plan(self, phases: Sequence[str]) -> None:
        """Say which phases the operation has, in their order."""

    def phase(self, name: str) -> None:
        """Begin a phase of the plan; one that is not in it is a step."""

    def step(self, name: str) -> None:
        """Say what the operation does next in its phase, so that progress can be shown."""

    def limit(self, seconds: float) -> None:
        """Say that the phase has a time limit, from now on."""

    def done(self, n: int, of: int) -> None:
        """Say how much of the step is done, with a heartbeat."""

    def tell(self, message: str) -> None:
        """Tell the caller something worth knowing before the operation goes on."""

    def warn(self, message: str) -> None:
        """Warn the caller of something that does not stop the operation."""


class _UndoneError(Exception):
    """Ends a savepoint whose work must be undone."""


@contextmanager
def undone(session: Session) -> Iterator[None]:
    """Run the block, and undo what it did in the database; an error is passed on."""
    try:
        with session.savepoint():
            yield
            raise _UndoneError  # noqa: TRY301  # the only way to undo a savepoint's work
    except _UndoneError:
        pass


def fetch_one(session: Session, statement: str, *values: Value) -> Row:
    """Run a statement that returns exactly one row."""
    (row,) = session.fetch(statement, *values)
    return row


_CLASSES_WITHOUT_DATA: Final = frozenset(
    {
        "08",  # connection
        "0A",  # feature not supported
        "25",  # transaction state
        "28",  # authorization
        "3D",  # database name
        "3F",  # schema name
        "40",  # rollback, deadlock
        "42",  # syntax, names, privileges
        "53",  # resources: disk full, out of memory
        "54",  # limits
        "55",  # object state
        "57",  # canceled, shut down
        "58",  # system
    }
)

_OWN_WORDS: Final = {
    "40": "the transaction conflicts with another one",
    "53": "the server lacks disk space, memory or another resource",
    "54": "a limit of the server is exceeded",
    "57": "the statement was canceled",
}

_READ_ONLY: Final = "25006"
INSUFFICIENT_PRIVILEGE: Final = "42501"
UNDEFINED_FUNCTION: Final = "42883"
DEPENDENT_OBJECTS: Final = "2BP01"
DUPLICATE_TABLE: Final = "42P07"
LOCK_NOT_AVAILABLE: Final = "55P03"
DATA_EXCEPTION_CLASS: Final = "22"


def database_error(sqlstate: str | None, primary: str | None) -> DatabaseError:
    """Make the error that a caller may see, from the server's SQLSTATE and primary message."""
    state = sqlstate or "XX000"
    if primary and state != _READ_ONLY and state[:2] in _CLASSES_WITHOUT_DATA:
        return DatabaseError(primary.strip().splitlines()[0], sqlstate=state)
    return withheld(state)


def withheld(sqlstate: str) -> DatabaseError:
    """Make an error without any of the server's words.

    It is for statements that run other people's functions over data, as views do: these may raise
    anything with any SQLSTATE, and casts to ``regclass`` quote a value in a message of class 42.
    """
    if sqlstate == _READ_ONLY:
        return DatabaseError(
            "the transaction is read-only",
            sqlstate=sqlstate,
            detail="this operation writes, if only temporary tables",
            hint="call it in a READ WRITE transaction, on a server that is no standby",
        )
    return DatabaseError(
        _OWN_WORDS.get(sqlstate[:2], "the server refused a statement"),
        sqlstate=sqlstate,
        detail=f"SQLSTATE {sqlstate}; the server's own message is withheld, because it may quote"
        " data",
    )
