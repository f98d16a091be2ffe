"""Compiles the usual searches at installation, so that first calls do not wait for it.

Loops are compiled when they are first called, for the types that they are called with, and kept in
a cache of the OS user. So each kind of publication is tried once, on made-up people.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

from psycopg import sql

from kanon_db.operations import operations
from kanon_db.session.psycopg_session import PsycopgSession, open_connection

_PEOPLE: Final = """
CREATE TABLE {} AS
SELECT i % 37 AS age, i % 5 AS children, 'town ' || i % 7 AS town, i * 0.5::float8 AS income,
    date '2000-01-01' + i % 50 AS day, 'illness ' || i % 4 AS illness
FROM generate_series(1, 160) AS i
"""
_QUASI_IDENTIFIERS: Final = ("age", "children", "town", "income", "day")
_Given: TypeAlias = Mapping[str, Any]
_BUCKETS: Final[_Given] = {"privacy": {"l": 2}, "readers": []}
_ROWS: Final[_Given] = {"k": 3, "readers": []}
_ACCEPTED: Final[_Given] = {"accept": {"uninformed_reader": "a trial"}}
_BRIEFLY: Final[_Given] = {"options": {"time_limit": 2}}
_TRIALS: Final[tuple[tuple[str, str, _Given], ...]] = (
    ("buckets", "publish_buckets", _BUCKETS),
    ("local buckets", "publish_buckets", {**_BUCKETS, "assignment": "local", **_ACCEPTED}),
    ("Mondrian", "publish_generalized", {**_ROWS, "method": "mondrian", **_BRIEFLY}),
    ("greedy search", "publish_generalized", {**_ROWS, "method": "greedy_search", **_BRIEFLY}),
    ("K-Member", "publish_generalized", {**_ROWS, "method": "k_member", "refine": False}),
    ("freeform rows", "publish_freeform", _ROWS),
    ("suppressed rows", "publish_suppressed", _ROWS),
)
"""The publications that are tried, by name."""


def compile_searches(dsn: str) -> Iterator[tuple[str, int, int]]:
    """Compile what the searches need, for the OS user of a server, and for that of this process.

    SQL functions run as the one; the command line and Python as the other. Both compile at the same
    time. Nothing is left: everything happens in transactions that are rolled back.

    Parameters
    ----------
    dsn : str
        Connection string of a superuser, of a database with kanon_db installed.

    Yields
    ------
    tuple of str, int and int
        What comes next, how many are done, and how many there are.

    Raises
    ------
    KanonError
        When no connection can be made, or the server refuses a trial. What was compiled until then
        stays.
    """
    n = len(_TRIALS) + 1
    with _Trial.of(dsn) as server, _Trial.of(dsn) as own, ThreadPoolExecutor(1) as beside:

        def call(function: str, given: _Given) -> None:
            by_server = beside.submit(server.call, function, given)
            own.perform(function, given)
            by_server.result()

        for done, (what, function, given) in enumerate(_TRIALS):
            yield what, done, n
            call(function, {**given, "dry_run": True})
        yield "several releases", n - 1, n
        call("publish_buckets", _BUCKETS)
        call("check_release", {})


@dataclass(frozen=True)
class _Trial:
    """Made-up people in a schema of their own, in a transaction that is rolled back."""

    session: PsycopgSession
    schema: str

    @classmethod
    @contextmanager
    def of(cls, dsn: str) -> Iterator[Self]:
        """Make the people, and register them."""
        schema = f"kanon_{secrets.token_hex(8)}"  # nobody has a publication of this name
        with open_connection(dsn) as connection:
            session = PsycopgSession(connection)
            with session.translated_errors(), connection.transaction(force_rollback=True):
                trial = cls(session, schema)
                connection.execute("SET LOCAL client_min_messages = error")
                connection.execute("SET LOCAL statement_timeout = 0")
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
                connection.execute(sql.SQL(_PEOPLE).format(sql.Identifier(schema, "people")))
                request = {"quasi_identifiers": _QUASI_IDENTIFIERS, "sensitive": "illness"}
                trial.perform(
                    "register_source", {"source": trial.source, **request}, of_people=False
                )
                yield trial

    @property
    def source(self) -> str:
        """The name of the table."""
        return f"{self.schema}.people"

    def perform(self, operation: str, given: _Given, *, of_people: bool = True) -> None:
        """Perform an operation in this process."""
        found = operations()[operation]
        named = {"source": self.source, "publication": self.schema} if of_people else {}
        with self.session.transaction():
            found.perform(self.session, found.read({**named, **given}))

    def call(self, operation: str, given: _Given) -> None:
        """Call the SQL function, in the server."""
        written = [
            sql.SQL("{} => {}").format(sql.Identifier(name), _literal(value))
            for name, value in given.items()
        ]
        arguments = sql.SQL(", ").join(
            [sql.Literal(self.source), sql.Literal(self.schema), *written]
        )
        with self.session.translated_errors():
            self.session.connection.execute(
                sql.SQL("SELECT count(*) FROM kanon.{}({})").format(
                    sql.Identifier(operation), arguments
                )
            )


def _literal(value: object) -> sql.Literal:
    """Write an argument: JSON and lists as PostgreSQL reads them."""
    if isinstance(value, Mapping):
        return sql.Literal(json.dumps(value))
    return sql.Literal("{}" if value == [] else value)
