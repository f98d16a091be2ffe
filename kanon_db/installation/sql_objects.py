"""Writes the SQL functions of the declared operations, and replaces all SQL objects.

Each operation has two functions. One in PL/Python imports the package, calls it and returns JSON.
The one that people call is in PL/pgSQL: it passes its parameters on as JSON, and returns rows or
raises the error that came back. So a client sees only its message, detail, hint and SQLSTATE.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import psycopg

import kanon_db
from kanon_db.declaration import EVERYBODY, Operation, Parameter, ResultColumn
from kanon_db.errors import DatabaseError, InUseError, ServerError
from kanon_db.installation.interpreter import preamble, resource_directory
from kanon_db.installation.service import POWERFUL
from kanon_db.operations import operations
from kanon_db.session import SETTINGS
from kanon_db.session.protocol import DEPENDENT_OBJECTS
from kanon_db.session.psycopg_session import PsycopgSession

HEADER: Final = (
    "-- Written by `make generate` from the declarations in kanon_db/operations.py: change those."
)
ENVIRONMENT_MARK: Final = "# environment\n"
"""A line of every PL/Python body, which the installation replaces by the path to the package."""
_RESERVED: Final = {"check", "position"}
"""Names of columns that PostgreSQL wants quoted."""

_INNER: Final = """\
CREATE OR REPLACE FUNCTION kanon.python_{name}(arguments jsonb) RETURNS jsonb
LANGUAGE plpython3u {volatility}
{settings}
AS $python$
{environment}from kanon_db.interfaces.plpython import call
return call(plpy, '{name}', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_{name} IS 'called by kanon.{name}; not meant to be used directly';
"""

_SUBMITTING: Final = """\
CREATE OR REPLACE FUNCTION kanon.python_{name}(arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql {volatility}
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN ({answer});
END
$function$;
COMMENT ON FUNCTION kanon.python_{name} IS 'called by kanon.{name}; not meant to be used directly';
"""

_VERSION: Final = "version"
"""The operation that needs no worker."""

_OUTER: Final = """\
CREATE OR REPLACE FUNCTION kanon.{name}({parameters}) RETURNS {result}
LANGUAGE plpgsql {volatility}
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_{name}(jsonb_build_object({arguments}));
    _error  CONSTANT jsonb := _answer -> 'error';
BEGIN
    -- RAISE does not accept NULL, so each combination of detail and hint has its own statement.
    IF _error ? 'detail' AND _error ? 'hint' THEN
        RAISE EXCEPTION USING MESSAGE = _error ->> 'message', DETAIL = _error ->> 'detail',
            HINT = _error ->> 'hint', ERRCODE = _error ->> 'sqlstate';
    ELSIF _error ? 'detail' THEN
        RAISE EXCEPTION USING MESSAGE = _error ->> 'message', DETAIL = _error ->> 'detail',
            ERRCODE = _error ->> 'sqlstate';
    ELSIF _error ? 'hint' THEN
        RAISE EXCEPTION USING MESSAGE = _error ->> 'message', HINT = _error ->> 'hint',
            ERRCODE = _error ->> 'sqlstate';
    ELSIF _error IS NOT NULL THEN
        RAISE EXCEPTION USING MESSAGE = _error ->> 'message', ERRCODE = _error ->> 'sqlstate';
    END IF;
{body}END
$function$;
COMMENT ON FUNCTION kanon.{name} IS {comment};
"""

_PRIVILEGES: Final = """\
REVOKE ALL ON FUNCTION{functions}
FROM PUBLIC, {roles};
GRANT EXECUTE ON FUNCTION{functions}
TO {audience};
"""


def function_sql(operation: Operation, *, is_service: bool = False) -> str:
    """Write both functions of an operation, and their privileges.

    Where the server has no PL/Python, the inner one submits a job.
    """
    is_stable = operation.is_stable and (not is_service or operation.name == _VERSION)
    names = {"name": operation.name, "volatility": "STABLE" if is_stable else "VOLATILE"}
    if is_service:
        known = f"SELECT jsonb_build_object('value', {_quote(kanon_db.__version__)})"
        submitted = f"SELECT kanon.submit('{operation.name}', arguments)"
        inner = _SUBMITTING.format(
            **names, answer=known if operation.name == _VERSION else submitted
        )
    else:
        inner = _INNER.format(
            **names,
            environment=ENVIRONMENT_MARK,
            settings="\n".join(
                f"SET {name} = {_setting(value)}" for name, value in SETTINGS.items()
            ),
        )
    outer = _OUTER.format(
        **names,
        parameters=_parameters(operation),
        arguments=",".join(_argument(operation, item) for item in operation.parameters),
        result=function_result(operation),
        body=_body(operation),
        comment=_quote(operation.help),
    )
    privileges = _PRIVILEGES.format(
        functions=f"\n    kanon.{operation.name}({operation.signature}),"
        f"\n    kanon.python_{operation.name}(jsonb)",
        roles=", ".join(EVERYBODY),
        audience=", ".join(operation.audience),
    )
    title = f"-- {operation.name}(): {operation.help}."
    return "\n".join([HEADER, title, inner, outer, privileges])


def sql_default(parameters: Sequence[Parameter], parameter: Parameter) -> str | None:
    """Return a parameter's default as SQL; None if it has none.

    A required parameter after one with a default needs a default, too: NULL, which is refused.
    """
    before = parameters[: parameters.index(parameter)]
    default = parameter.default
    if parameter.is_required:
        return "NULL" if any(not item.is_required for item in before) else None
    if default is None:
        return "NULL"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return "'{}'"
    return str(default) if parameter.type.sql in ("integer", "numeric") else _quote(str(default))


def function_arguments(operation: Operation) -> str:
    """Return the parameters as PostgreSQL's ``pg_get_function_identity_arguments`` writes them."""
    return ", ".join(f"{item.name} {item.type.sql}" for item in operation.parameters)


def n_defaults(operation: Operation) -> int:
    """Return the number of parameters with a default."""
    declared = operation.parameters
    return sum(sql_default(declared, item) is not None for item in declared)


def function_result(operation: Operation) -> str:
    """Return the result as PostgreSQL's ``pg_get_function_result`` writes it."""
    if operation.is_value:
        return operation.result[0].sql
    return f"TABLE({result_columns(operation)})" if operation.result else "void"


def result_columns(operation: Operation) -> str:
    """Write the columns of a row with their types."""
    return ", ".join(f"{_name(column)} {column.sql}" for column in operation.result)


def _parameters(operation: Operation) -> str:
    declared = operation.parameters
    written = []
    for item in declared:
        default = sql_default(declared, item)
        suffix = "" if default is None else f" DEFAULT {default}"
        written.append(f"\n    {item.name} {item.type.sql}{suffix}")
    return ",".join(written) + ("\n" if written else "")


def _argument(operation: Operation, parameter: Parameter) -> str:
    value = f"{operation.name}.{parameter.name}"
    # As text, since a number in JSON may have more digits than Python keeps.
    text = "::text" if parameter.type.sql in ("regclass", "jsonb", "numeric") else ""
    return f"\n        '{parameter.name}', {value}{text}"


def _body(operation: Operation) -> str:
    if operation.is_value:
        return f"    RETURN (_answer ->> 'value')::{operation.result[0].sql};\n"
    if not operation.result:
        return ""
    return (
        "    RETURN QUERY SELECT * FROM jsonb_to_recordset(_answer -> 'rows')\n"
        f"        AS found ({result_columns(operation)});\n"
    )


def _name(column: ResultColumn) -> str:
    return f'"{column.name}"' if column.name in _RESERVED else column.name


def _setting(value: Any) -> str:
    return value if value in ("on", "off") or "pg_catalog" in value else _quote(value)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_OUTDATED = """
SELECT p.oid::regprocedure::text AS function FROM pg_proc AS p
JOIN unnest($1::text[], $2::text[], $3::text[], $4::text[]::int4[])
    AS o (name, arguments, result, defaults) ON o.name = p.proname
WHERE p.pronamespace = 'kanon'::regnamespace AND (
    pg_get_function_identity_arguments(p.oid) <> o.arguments
    OR pg_get_function_result(p.oid) <> o.result
    OR p.pronargdefaults > o.defaults)
"""


_WATCHING: Final = "95_watch.sql"
"""Creates the event trigger, which takes a superuser."""
_GENERATED: Final = "30_"


def replace_objects(
    session: PsycopgSession, paths: Sequence[str], *, is_service: bool, watches: bool
) -> int:
    """Replace the SQL objects; return the number of their files.

    Parameters
    ----------
    session : PsycopgSession
    paths : sequence of str
        Folders from which PL/Python imports kanon_db.
    is_service : bool
        Whether operations are jobs of a worker, rather than run in PL/Python.
    watches : bool
        Whether to watch GRANT with an event trigger.

    Raises
    ------
    InUseError
        When a view or another object depends on a function whose parameters, or results, have
        changed.
    ServerError
        When the server refuses an object.
    """
    _drop_outdated(session)
    texts = _texts("")
    if is_service:
        # What is called the same takes the place of the other.
        texts |= _texts("service")
        for operation in operations().values():
            texts[f"{_GENERATED}{operation.name}.sql"] = function_sql(operation, is_service=True)
    if not watches:
        del texts[_WATCHING]
    declared = operations()
    questions = [name for name, one in declared.items() if one.is_question]
    marks = {
        ENVIRONMENT_MARK: preamble(paths),
        "'{operations}'": f"'{{{','.join(declared)}}}'",
        "'{questions}'": f"'{{{','.join(questions)}}}'",
        "{powerful}": POWERFUL,
    }
    for number, (name, text) in enumerate(sorted(texts.items())):
        session.done(number, len(texts))
        for mark, meaning in marks.items():
            text = text.replace(mark, meaning)  # noqa: PLW2901
        run_script(session.connection, name, text)
    return len(texts)


def _texts(folder: str) -> dict[str, str]:
    """Read the SQL files of a folder, by name."""
    files = (resource_directory("sql") / folder).glob("*.sql")
    return {file.name: file.read_text(encoding="utf-8") for file in files}


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
                "other objects depend on a function whose parameters or results have changed",
                detail=f"function {row['function']}",
                hint="first drop the views that call it, and create them again afterwards",
            ) from None


def function_names(*, is_service: bool) -> set[str]:
    """Return the names of the SQL functions that this package installs."""
    texts = _texts("") | (_texts("service") if is_service else {})
    created = re.compile(r"^CREATE OR REPLACE FUNCTION kanon\.(\w+)", re.MULTILINE)
    return {name for text in texts.values() for name in created.findall(text)}


def run_script(connection: psycopg.Connection, name: str, text: str) -> None:
    """Run several statements; an error names the script."""
    try:
        connection.execute(text.encode())
    except psycopg.Error as error:
        raise ServerError(
            "a SQL object cannot be installed", detail=f"{name}: {error.diag.message_primary}"
        ) from error
