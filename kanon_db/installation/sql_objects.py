"""Writes the SQL functions of the declared operations, and collects all SQL objects.

Each operation has two functions. One in PL/Python imports the package, calls it and returns JSON.
The one that people call is in PL/pgSQL: it passes its parameters on as JSON, and returns rows or
raises the error that came back. So a client sees only its message, detail, hint and SQLSTATE.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, TextIO

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError

import kanon_db
from kanon_db.dataclasses import dataclass
from kanon_db.declaration import EVERYBODY, Operation, Parameter, ResultColumn
from kanon_db.errors import InUseError, InvalidNameError, PermissionDeniedError, ServerError
from kanon_db.installation.interpreter import package_digest, preamble, resource_directory
from kanon_db.installation.service import CREATED, POWERFUL
from kanon_db.operations import operations
from kanon_db.session import SETTINGS, fetch_one
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


_PACKAGE: Final = """
INSERT INTO kanon.setting (name, value) VALUES ('package', '{digest}')
ON CONFLICT ON CONSTRAINT setting_pkey DO UPDATE SET value = excluded.value;
"""

_OUTDATED: Final = """
DO $outdated$
DECLARE
    _outdated record;
BEGIN
    FOR _outdated IN
        SELECT p.oid::pg_catalog.regprocedure::text AS name, EXISTS (
            SELECT FROM pg_catalog.pg_depend AS d WHERE d.objid = p.oid AND d.deptype = 'e'
                AND d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass) AS is_member
        FROM pg_catalog.pg_proc AS p
        JOIN (VALUES {declared}) AS o (name, arguments, result, defaults) ON o.name = p.proname
        WHERE p.pronamespace = pg_catalog.to_regnamespace('kanon') AND (
            pg_catalog.pg_get_function_identity_arguments(p.oid) <> o.arguments
            OR pg_catalog.pg_get_function_result(p.oid) <> o.result
            OR p.pronargdefaults > o.defaults)
    LOOP
        BEGIN
            IF _outdated.is_member THEN
                EXECUTE 'ALTER EXTENSION kanon DROP FUNCTION ' || _outdated.name;
            END IF;
            EXECUTE 'DROP FUNCTION ' || _outdated.name;
        EXCEPTION WHEN dependent_objects_still_exist THEN
            RAISE EXCEPTION USING ERRCODE = 'object_in_use', MESSAGE =
                'other objects depend on a function whose parameters or results have changed',
                DETAIL = 'function ' || _outdated.name, HINT =
                'first drop the views that call it, and create them again afterwards';
        END;
    END LOOP;
END
$outdated$;
"""
"""Drops functions with other parameters or results, which CREATE OR REPLACE would keep."""


ROLES: Final = "00_roles.sql"
WORKER_LOGIN: Final = "00_worker.sql"
_WATCHING: Final = "95_watch.sql"
"""Creates event triggers, which takes a superuser."""
_GENERATED: Final = "30_"


def object_scripts(paths: Sequence[str], *, is_service: bool, watches: bool) -> dict[str, str]:
    """Return what replaces the SQL objects, by names that are in their order.

    `paths`: from where PL/Python imports the package; `watches`: whether event triggers do.
    """
    declared = operations()
    texts = _texts("")
    texts["02_outdated"] = _drop_outdated(declared.values())
    texts["03_package"] = _PACKAGE.format(digest=package_digest())
    if is_service:
        # What is called the same takes the place of the other.
        texts |= _texts("service")
        for operation in declared.values():
            texts[f"{_GENERATED}{operation.name}.sql"] = function_sql(operation, is_service=True)
    if not watches:
        del texts[_WATCHING]
    questions = [name for name, one in declared.items() if one.is_question]
    marks = {
        ENVIRONMENT_MARK: preamble(paths),
        "'{operations}'": f"'{{{','.join(declared)}}}'",
        "'{questions}'": f"'{{{','.join(questions)}}}'",
        "'{everybody}'": f"'{{{','.join(EVERYBODY)}}}'",
        "{powerful}": POWERFUL,
        "{created}": CREATED,
    }
    for name, text in texts.items():
        for mark, meaning in marks.items():
            text = text.replace(mark, meaning)  # noqa: PLW2901
        texts[name] = text
    return dict(sorted(texts.items()))


def _drop_outdated(declared: Iterable[Operation]) -> str:
    rows = (
        f"({_quote(one.name)}, {_quote(function_arguments(one))},"
        f" {_quote(function_result(one))}, {n_defaults(one)})"
        for one in declared
    )
    return _OUTDATED.format(declared=", ".join(rows))


def resource_text(name: str) -> str:
    """Read a SQL file."""
    return (resource_directory("sql") / name).read_text(encoding="utf-8")


def _texts(folder: str) -> dict[str, str]:
    """Read the SQL files of a folder, by name."""
    files = (resource_directory("sql") / folder).glob("*.sql")
    return {file.name: file.read_text(encoding="utf-8") for file in files}


def migration_script(current: str | None, target: str = "head") -> str:
    """Return the SQL that brings the catalog from one revision (None: nothing) to another.

    Raises ServerError when another version made the catalog, whose revision is unknown.
    """
    script = io.StringIO()
    try:
        command.upgrade(_migrations(script), f"{current}:{target}" if current else target, sql=True)
    except CommandError:
        raise ServerError(
            "the catalog is of a newer version of kanon_db, or from before its first release",
            detail=f"it is at revision {current}, which this package does not know",
            hint="pip install --upgrade kanon_db; what is from before the first release is"
            " published again, after kanon uninstall",
        ) from None
    return script.getvalue()


@dataclass(frozen=True)
class Revision:
    """A state of the catalog, which a migration of this package makes."""

    revision: str
    follows: str | None  # The one before
    message: str  # What the migration does
    is_head: bool  # Whether it is the last

    def __str__(self) -> str:
        head = " (head)" if self.is_head else ""
        return f"{self.follows or '<base>'} -> {self.revision}{head}, {self.message}"


def revisions() -> list[Revision]:
    """List the states of the catalog that this package knows, the last one first."""
    known = ScriptDirectory.from_config(_migrations()).walk_revisions()
    return [
        Revision(one.revision, one.down_revision, one.doc, one.is_head)  # type: ignore[arg-type]  # no branches
        for one in known
    ]


def _migrations(script: TextIO | None = None) -> Config:
    config = Config(output_buffer=script)
    config.set_main_option("script_location", str(resource_directory("migrations")))
    config.set_main_option("path_separator", "os")
    return config


def function_names(*, is_service: bool) -> set[str]:
    """Return the names of the SQL functions that this package installs."""
    texts = _texts("") | (_texts("service") if is_service else {})
    created = re.compile(r"^CREATE OR REPLACE FUNCTION kanon\.(\w+)", re.MULTILINE)
    return {name for text in texts.values() for name in created.findall(text)}


def create_language(session: PsycopgSession) -> None:
    """Create PL/Python, where the server has it."""
    if not session.fetch("SELECT 1 FROM pg_available_extensions WHERE name = 'plpython3u'"):
        version = fetch_one(session, "SELECT current_setting('server_version') AS value")["value"]
        raise ServerError(
            "the server has no PL/Python",
            detail=f"PostgreSQL {version}: extension plpython3u is not available",
            hint=f"apt-get install postgresql-plpython3-{version.split('.')[0]}, or"
            " kanon install --service, where workers run what PL/Python would",
        )
    session.fetch("CREATE EXTENSION IF NOT EXISTS plpython3u WITH SCHEMA pg_catalog")


def run_script(connection: psycopg.Connection, name: str, text: str) -> None:
    """Run several statements; an error names the script, unless it is the script that refuses."""
    try:
        connection.execute(text.encode())
    except psycopg.Error as error:
        report = error.diag
        if report.source_function == "exec_stmt_raise" and report.sqlstate in _REFUSALS:
            raise _REFUSALS[report.sqlstate](
                str(report.message_primary),
                detail=report.message_detail or "",
                hint=report.message_hint or "",
            ) from None
        raise ServerError(
            "a SQL object cannot be installed", detail=f"{name}: {report.message_primary}"
        ) from error


_REFUSALS: Final = {
    refusal.sqlstate: refusal
    for refusal in (InUseError, InvalidNameError, PermissionDeniedError, ServerError)
}
