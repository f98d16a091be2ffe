"""The SQL objects: replaced at every installation."""

from __future__ import annotations

import psycopg

from kanon_db.errors import DatabaseError, InUseError, ServerError
from kanon_db.installation.functions import (
    ENVIRONMENT_MARK,
    function_arguments,
    function_result,
    n_defaults,
)
from kanon_db.installation.interpreter import preamble
from kanon_db.installation.resources import resource_directory
from kanon_db.operations import operations
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.session.server_errors import DEPENDENT_OBJECTS

_OUTDATED = """
SELECT p.oid::regprocedure::text AS function FROM pg_proc AS p
JOIN unnest($1::text[], $2::text[], $3::text[], $4::text[]::int4[])
    AS o (name, arguments, result, defaults) ON o.name = p.proname
WHERE p.pronamespace = 'kanon'::regnamespace AND (
    pg_get_function_identity_arguments(p.oid) <> o.arguments
    OR pg_get_function_result(p.oid) <> o.result
    OR p.pronargdefaults > o.defaults)
"""


def replace_objects(session: PsycopgSession, paths: list[str]) -> int:
    """Replace the SQL objects; return the number of their files.

    Parameters
    ----------
    paths : list of str
        Folders from which PL/Python imports kanon_db.

    Raises
    ------
    InUseError
        When a view or another object depends on a function whose parameters have changed.
    ServerError
        When the server refuses an object.
    """
    _drop_outdated(session)
    files = sorted(resource_directory("sql").glob("*.sql"))
    for number, file in enumerate(files):
        session.done(number, len(files))
        text = file.read_text(encoding="utf-8")
        run_script(session.connection, file.name, text.replace(ENVIRONMENT_MARK, preamble(paths)))
    return len(files)


def _drop_outdated(session: PsycopgSession) -> None:
    """Drop functions with other parameters or results, which CREATE OR REPLACE would keep."""
    declared = list(operations().values())
    outdated = session.fetch(
        _OUTDATED,
        [operation.name for operation in declared],
        [function_arguments(operation) for operation in declared],
        [function_result(operation) for operation in declared],
        [str(n_defaults(operation)) for operation in declared],
    )
    for row in outdated:
        try:
            session.fetch(f"DROP FUNCTION {row['function']}")
        except DatabaseError as error:
            if error.sqlstate != DEPENDENT_OBJECTS:
                raise
            raise InUseError(
                "other objects depend on a function whose parameters have changed",
                detail=f"function {row['function']}",
                hint="first drop the views that call it, and create them again afterwards",
            ) from None


def run_script(connection: psycopg.Connection, name: str, text: str) -> None:
    """Run several statements; an error names the script."""
    try:
        connection.execute(text.encode())
    except psycopg.Error as error:
        raise ServerError(
            "a SQL object cannot be installed", detail=f"{name}: {error.diag.message_primary}"
        ) from error
