"""Compiling the usual searches when kanon_db is installed, so that first calls do not wait for it.

Loops are compiled when they are first called, for the types that they are called with, and kept in
a cache of the server's OS user. So each kind of publication is tried once, on made-up people.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Final

from psycopg import sql

from kanon_db.session.psycopg_session import PsycopgSession, open_connection

_PEOPLE: Final = """
CREATE TABLE {} AS
SELECT i % 37 AS age, i % 5 AS children, 'town ' || i % 7 AS town, i * 0.5::float8 AS income,
    date '2000-01-01' + i % 50 AS day, 'illness ' || i % 4 AS illness
FROM generate_series(1, 160) AS i
"""
_REGISTER: Final = """
SELECT kanon.register_source({}, sensitive => 'illness',
    quasi_identifiers => '{{age, children, town, income, day}}')
"""
_BUCKETS: Final = """privacy => '{"l": 2}', readers => '{}'"""
_ROWS: Final = "k => 3, readers => '{}'"
_ACCEPTED: Final = """accept => '{"uninformed_reader": "a trial"}'"""
_BRIEFLY: Final = """options => '{"time_limit": 2}'"""
_TRIALS: Final = (
    ("buckets", "publish_buckets", (_BUCKETS,)),
    ("local buckets", "publish_buckets", (_BUCKETS, "assignment => 'local'", _ACCEPTED)),
    ("Mondrian", "publish_generalized", (_ROWS, "method => 'mondrian'", _BRIEFLY)),
    ("greedy search", "publish_generalized", (_ROWS, "method => 'greedy_search'", _BRIEFLY)),
    ("K-Member", "publish_generalized", (_ROWS, "method => 'k_member'", "refine => false")),
    ("freeform rows", "publish_freeform", (_ROWS,)),
    ("suppressed rows", "publish_suppressed", (_ROWS,)),
)
"""What is tried, under which name."""


def compile_searches(dsn: str) -> Iterator[tuple[str, int, int]]:
    """Compile what the searches need, for the OS user of a server.

    Nothing is left: everything happens in one transaction, which is rolled back.

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
    name = f"kanon_{secrets.token_hex(8)}"  # nobody has a publication of this name
    schema = sql.Identifier(name)
    people = sql.SQL("{}.people").format(schema)
    source = sql.Literal(people.as_string())
    n = len(_TRIALS) + 1
    with (
        open_connection(dsn) as connection,
        PsycopgSession(connection).translated_errors(),
        connection.transaction(force_rollback=True),
    ):

        def call(function: str, *given: str) -> None:
            connection.execute(
                sql.SQL("SELECT count(*) FROM kanon.{}({})").format(
                    sql.Identifier(function),
                    sql.SQL(", ").join([source, sql.Literal(name), *map(sql.SQL, given)]),
                )
            )

        connection.execute("SET LOCAL client_min_messages = error")
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
        connection.execute(sql.SQL(_PEOPLE).format(people))
        connection.execute(sql.SQL(_REGISTER).format(source))
        for done, (what, function, given) in enumerate(_TRIALS):
            yield what, done, n
            call(function, *given, "dry_run => true")
        yield "several releases", n - 1, n
        call("publish_buckets", _BUCKETS)
        call("check_release")
