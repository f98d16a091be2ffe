"""Defines the session through which every operation reaches PostgreSQL, and its errors.

A server's message may quote data: `invalid input syntax for type integer: "HIV"`, or a DETAIL
with a whole row. We pass on the primary message only for SQLSTATE classes whose messages name
objects and limits, and never DETAIL, HINT or CONTEXT.
"""

from __future__ import annotations

import os
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
    "jit": "off",  # compiling what reads the catalog takes far longer than running it
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


def temporary_table(session: Session, what: str) -> str:
    """Make up the quoted name of a temporary table that no other has."""
    # The module `secrets` would load OpenSSL, for which a first estimate would have to wait.
    return session.identifier("pg_temp", f"kanon_{what}_{os.urandom(8).hex()}")


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
UNDEFINED_SCHEMA: Final = "3F000"
UNDEFINED_TABLE: Final = "42P01"
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

    For statements that run other people's functions: their errors may quote data, as casts do.
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


_WORK_MEMORY: Final = "16MB"


@contextmanager
def settings(session: Session, values: Mapping[str, str]) -> Iterator[None]:
    """Run the block with other settings, given by name, and then restore the caller's."""
    if not values:
        yield
        return
    rows = session.fetch(
        "SELECT name, current_setting(name) AS value FROM unnest($1::text[]) AS name", list(values)
    )
    _set(session, values)
    yield
    # After an error, the server itself restores them, with the rest of the transaction.
    _set(session, {row["name"]: row["value"] for row in rows})


def roomy(session: Session) -> AbstractContextManager[None]:
    """Run the block with enough memory to join a million rows with the cells of their classes.

    The server's default of 4 MB would spill to disk; a gigabyte would exceed what was forecast.
    """
    return settings(session, {"work_mem": _WORK_MEMORY, "hash_mem_multiplier": "2"})


def shared(session: Session) -> AbstractContextManager[None]:
    """Let other processes calculate all rows of a query, as far as the server has any to spare.

    The planner overrates passing rows on, and so leaves calculations for each to one process.
    """
    return settings(session, {"parallel_tuple_cost": "0"})


def patient(session: Session, limit: str) -> AbstractContextManager[None]:
    """Run the block without waiting for locks longer than the limit, or the caller's own one."""
    (limits,) = session.fetch(
        "SELECT setting = '0' AS is_unlimited FROM pg_settings WHERE name = 'lock_timeout'"
    )
    return settings(session, {"lock_timeout": limit} if limits["is_unlimited"] else {})


@contextmanager
def frugal(session: Session, n_bytes: int) -> Iterator[None]:
    """Run the block with at most so much memory for each sort or hash table.

    What a server is made for, with `work_mem` of a gigabyte, say, is not what one query may take.
    """
    (memory,) = session.fetch(
        "SELECT pg_size_bytes(current_setting('work_mem')) > $1::int8 AS is_much", str(n_bytes)
    )
    less = {"work_mem": f"{max(64, n_bytes // 1024)}kB", "hash_mem_multiplier": "1"}
    with settings(session, less if memory["is_much"] else {}):
        yield


@contextmanager
def grouping_by_hash(session: Session) -> Iterator[None]:
    """Run the block with GROUP BY by hashing, which spills to disk if memory does not suffice.

    The planner assumes independent columns, so expects many groups and sorts: 2 to 3 times slower.
    """
    with roomy(session), settings(session, {"enable_sort": "off"}):
        yield


@contextmanager
def joining_by_hash(session: Session) -> Iterator[None]:
    """Run the block with joins by hashing, as suits tables that the planner knows nothing of.

    It expects a thousand rows of each, and so many more after each join; it would sort them.
    """
    with roomy(session), settings(session, {"enable_mergejoin": "off"}):
        yield


@contextmanager
def run_with_helper(session: Session) -> Iterator[None]:
    """Run the block with one worker, where the server allows any, that joins what is written.

    Only the session writes, so a second worker would wait; one halves the time.
    """
    (row,) = session.fetch(
        "SELECT least(1, current_setting('max_parallel_workers_per_gather')::int4)::text AS n"
    )
    few = {"parallel_tuple_cost": "0", "max_parallel_workers_per_gather": row["n"]}
    with settings(session, few):
        yield


def _set(session: Session, values: Mapping[str, str]) -> None:
    session.fetch(
        "SELECT set_config(name, value, true)"
        " FROM unnest($1::text[], $2::text[]) AS s (name, value)",
        list(values),
        list(values.values()),
    )
