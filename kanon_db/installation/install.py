"""Installing kanon_db into a database, and taking it out again."""

from __future__ import annotations

import io
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
from alembic import command
from alembic.config import Config
from alembic.util import CommandError

import kanon_db
from kanon_db.cluster.local_folder import CONFIGURATION, ENVIRONMENT, NEW
from kanon_db.errors import InUseError, PermissionDeniedError, ServerError
from kanon_db.installation.resources import import_paths, resource_directory
from kanon_db.session.protocol import fetch_one
from kanon_db.session.psycopg_session import PsycopgSession, open_connection

ROLES: Final = ("kanon_publisher", "kanon_analyst")
_ENVIRONMENT_MARK: Final = "# environment\n"


@dataclass(frozen=True)
class InstallReport:
    """What an installation did.

    Attributes
    ----------
    version : str
    actions : list of str
        In order, for people.
    """

    version: str
    actions: list[str]


def install(dsn: str, *, published_schema: str = "published") -> InstallReport:
    """Install kanon_db into the database, or bring an installation up to date.

    Everything happens in one transaction: schema and catalog by migrations, SQL functions
    replaced, privileges last.

    Parameters
    ----------
    dsn : str
        Of a superuser: PL/Python functions can be made by superusers only.
    published_schema : str
        Schema for published relations; fixed by the first installation.

    Returns
    -------
    InstallReport

    Raises
    ------
    ServerError
        When the server lacks PL/Python, or its interpreter cannot import kanon_db.
    PermissionDeniedError
        When the role is no superuser, or a schema of ours exists in other hands.
    """
    actions: list[str] = []
    with open_connection(dsn) as connection:
        session = PsycopgSession(connection)
        with session.transaction():
            _require_superuser(session)
            session.fetch("LOCK TABLE pg_namespace IN SHARE ROW EXCLUSIVE MODE")  # one at a time
            _create_language(session)
            paths = _server_paths(session)
            actions.append(f"server imports kanon_db from {', '.join(paths)}")
            for role in ROLES:
                _create_role(session, role)
            require_trusted(session)
            before = _revision(session)
            schema = _chosen_schema(session, published_schema)
            for name in ("kanon", schema):
                _create_schema(session, name, is_ours=before is not None)
            _run_script(connection, "migrations", migration_script(before))
            actions.append(f"catalog at revision {_revision(session)}, was {before or 'absent'}")
            session.fetch(
                "INSERT INTO kanon.setting (name, value) VALUES ('published_schema', $1::text)"
                " ON CONFLICT ON CONSTRAINT setting_pkey DO NOTHING",
                schema,
            )
            n_files = _replace_objects(connection, paths)
            actions.append(f"{n_files} SQL objects replaced")
            _grant(session, schema)
            actions.append(f"privileges granted to {' and '.join(ROLES)}")
    return InstallReport(kanon_db.__version__, actions)


def uninstall(dsn: str, *, drop_publications: bool = False) -> None:
    """Remove kanon_db from the database; publications go only when asked for.

    Raises
    ------
    InUseError
        When publications, or other relations beside them, exist and `drop_publications` is false.
    """
    with open_connection(dsn) as connection:
        session = PsycopgSession(connection)
        with session.transaction():
            _require_superuser(session)
            require_trusted(session)
            if not session.fetch("SELECT 1 WHERE to_regclass('kanon.setting') IS NOT NULL"):
                raise ServerError(
                    "kanon_db is not installed in this database", hint="nothing is to be done"
                )
            schema = _chosen_schema(session, "published")
            rows = session.fetch("SELECT name FROM kanon.publication ORDER BY name")
            if rows and not drop_publications:
                raise InUseError(
                    "publications exist",
                    detail=f"{len(rows)}: {', '.join(row['name'] for row in rows)}",
                    hint="drop them first, or pass --drop-publications",
                )
            others = fetch_one(
                session,
                "SELECT count(*) AS n FROM pg_class AS c JOIN pg_namespace AS n"
                " ON n.oid = c.relnamespace WHERE n.nspname = $1::text AND c.relkind <> 'i'"
                " AND NOT EXISTS (SELECT FROM kanon.publication AS p"
                " WHERE c.relname = ANY (p.relations))",
                schema,
            )["n"]
            if others and not drop_publications:
                raise InUseError(
                    "the schema of publications holds relations that are none",
                    detail=f'{others} in schema "{schema}"',
                    hint="move them elsewhere, or pass --drop-publications",
                )
            session.fetch("DROP SCHEMA kanon CASCADE")
            session.fetch(f"DROP SCHEMA {session.identifier(schema)} CASCADE")
            for role in ROLES:
                # DROP OWNED takes away rights, but would also drop whatever else the role owns.
                session.fetch(f"REASSIGN OWNED BY {session.identifier(role)} TO CURRENT_USER")
                session.fetch(f"DROP OWNED BY {session.identifier(role)}")
        for role in ROLES:
            _drop_role_unless_used(session, role)


def _require_superuser(session: PsycopgSession) -> None:
    row = fetch_one(session, "SELECT current_setting('is_superuser') AS value")
    if row["value"] != "on":
        raise PermissionDeniedError(
            "installing needs a superuser",
            detail="functions in PL/Python can be made by superusers only",
            hint="connect as the server's administrator; publishing later needs none",
        )


def _create_language(session: PsycopgSession) -> None:
    if not session.fetch("SELECT 1 FROM pg_available_extensions WHERE name = 'plpython3u'"):
        version = fetch_one(session, "SELECT current_setting('server_version') AS value")["value"]
        raise ServerError(
            "the server has no PL/Python",
            detail=f"PostgreSQL {version}: extension plpython3u is not available",
            hint=f"apt-get install postgresql-plpython3-{version.split('.')[0]}",
        )
    session.fetch("CREATE EXTENSION IF NOT EXISTS plpython3u WITH SCHEMA pg_catalog")


def _server_paths(session: PsycopgSession) -> list[str]:
    """Find folders from which the server's own interpreter can import kanon_db.

    The server embeds the interpreter that PostgreSQL was built with, and runs as an operating
    system user of its own. Ours serves it when the minor versions agree and that user can read
    it; a private cluster gets a copy inside its data directory when only the latter fails.

    Raises
    ------
    ServerError
    """
    server = server_interpreter(session)
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if server.version != ours:
        raise ServerError(
            "the server's Python differs from this one",
            detail=f"server: {server.version}, here: {ours}",
            hint=f"install kanon_db for the server's interpreter:"
            f" /usr/bin/python{server.version} -m venv DIR; DIR/bin/pip install kanon_db;"
            " DIR/bin/kanon install",
        )
    paths = import_paths()
    if can_import(session, paths):
        return paths
    copied = _copy_environment(server.data_directory, paths)
    if copied is not None and can_import(session, copied):
        return copied
    raise ServerError(
        "the server cannot read the environment that holds kanon_db",
        detail=f"operating-system user {server.os_user}, folders {', '.join(paths)}",
        hint="install kanon_db in a folder that this user can read, for example under /opt",
    )


@dataclass(frozen=True)
class ServerInterpreter:
    """The Python inside the server."""

    version: str
    os_user: str
    data_directory: Path


def server_interpreter(session: PsycopgSession) -> ServerInterpreter:
    """Ask the server which Python it embeds and as whom it runs."""
    row = _ask_python(
        session,
        "import os, pwd, sys\n"
        "user = pwd.getpwuid(os.geteuid()).pw_name\n"
        "return f'{sys.version_info.major}.{sys.version_info.minor}|{user}'",
    )
    version, os_user = row.split("|", 1)
    directory = fetch_one(session, "SELECT current_setting('data_directory') AS value")["value"]
    return ServerInterpreter(version, os_user, Path(directory))


def can_import(session: PsycopgSession, paths: list[str]) -> bool:
    """Tell whether the server finds this version of kanon_db, and numpy, in the folders."""
    found = _ask_python(
        session,
        "import importlib.machinery, os\n"
        f"paths = {paths!r}\n"
        "find = importlib.machinery.PathFinder.find_spec\n"
        "specs = [find(name, paths) for name in ('kanon_db', 'numpy', 'sqlglot')]\n"
        "return str(all(s and s.origin and os.access(s.origin, os.R_OK) for s in specs))",
    )
    return found == "True"


def _ask_python(session: PsycopgSession, body: str) -> str:
    """Run a function body in the server's Python, leaving nothing behind."""
    session.fetch(
        "CREATE OR REPLACE FUNCTION pg_temp.kanon_ask() RETURNS text LANGUAGE plpython3u AS "
        + session.literal(body)
    )
    answer = fetch_one(session, "SELECT pg_temp.kanon_ask() AS value")["value"]
    session.fetch("DROP FUNCTION pg_temp.kanon_ask()")
    return str(answer)


def _copy_environment(data_directory: Path, paths: list[str]) -> list[str] | None:
    """Copy the environment beside a private cluster's data; None for any other server.

    The copy stays ours (root's): the server's user may read it, not change it.
    """
    home = data_directory.parent
    if not (home / CONFIGURATION).exists() or not os.access(home, os.W_OK):
        return None
    target, unfinished = home / ENVIRONMENT, home / (ENVIRONMENT + NEW)
    shutil.rmtree(unfinished, ignore_errors=True)
    for path in paths:
        shutil.copytree(path, unfinished, dirs_exist_ok=True, ignore=_not_for_the_server)
    for file in (unfinished, *unfinished.rglob("*")):
        file.chmod(0o755 if file.is_dir() else 0o644)
    # Never over the old files: running backends have its libraries mapped.
    shutil.rmtree(target, ignore_errors=True)
    unfinished.rename(target)
    return [str(target)]


def _not_for_the_server(folder: str, names: list[str]) -> set[str]:
    """Leave out of the copy what no import needs; of a checkout, take the package only."""
    if (Path(folder) / "pyproject.toml").exists():
        return set(names) - {"kanon_db", "sql", "migrations"}
    return {name for name in names if name == "__pycache__"}


def _create_role(session: PsycopgSession, role: str) -> None:
    rows = session.fetch(
        "SELECT rolsuper OR rolbypassrls OR rolcreaterole AS powerful, rolcanlogin AS login"
        " FROM pg_roles WHERE rolname = $1::text",
        role,
    )
    if not rows:
        session.fetch(f"CREATE ROLE {session.identifier(role)} NOLOGIN")
    elif rows[0]["powerful"]:
        raise PermissionDeniedError(
            "a role of this name exists and is too powerful",
            detail=f'role "{role}" is superuser, bypasses row security or creates roles',
            hint="ALTER ROLE it to NOSUPERUSER NOBYPASSRLS NOCREATEROLE, or rename it",
        )


def _chosen_schema(session: PsycopgSession, wanted: str) -> str:
    """Return the schema of publications: the first installation's choice stays."""
    if session.fetch("SELECT 1 WHERE to_regclass('kanon.setting') IS NULL"):
        return wanted
    rows = session.fetch("SELECT value FROM kanon.setting WHERE name = 'published_schema'")
    return str(rows[0]["value"]) if rows else wanted


def require_trusted(session: PsycopgSession) -> None:
    """Make sure that the schema kanon, if there is one, and all in it belong to superusers.

    Whoever owns an object can replace it, even after CREATE OR REPLACE; and a view or function of
    somebody else runs with the rights of whoever reads or calls it. So this comes first.

    Raises
    ------
    PermissionDeniedError
    """
    _require_trusted_owner(session, "kanon")
    n = fetch_one(
        session,
        "SELECT count(*) AS n FROM ("
        "SELECT proowner, pronamespace FROM pg_proc UNION ALL"
        " SELECT relowner, relnamespace FROM pg_class UNION ALL"
        " SELECT typowner, typnamespace FROM pg_type) AS o (owner, namespace)"
        " JOIN pg_roles AS r ON r.oid = o.owner"
        " WHERE o.namespace = to_regnamespace('kanon') AND NOT r.rolsuper",
    )["n"]
    if n:
        raise PermissionDeniedError(
            "the schema kanon holds objects that no superuser owns",
            detail=f"{n} functions, relations or types",
            hint=_NOT_ADOPTED,
        )


def _require_trusted_owner(session: PsycopgSession, schema: str) -> None:
    rows = session.fetch(
        "SELECT r.rolname::text AS owner FROM pg_namespace AS n"
        " JOIN pg_roles AS r ON r.oid = n.nspowner WHERE n.nspname = $1::text AND NOT r.rolsuper",
        schema,
    )
    if rows:
        raise PermissionDeniedError(
            "a schema of this name belongs to somebody else",
            detail=f'schema "{schema}" is owned by role "{rows[0]["owner"]}"',
            hint=_NOT_ADOPTED,
        )


_NOT_ADOPTED: Final = "drop or rename it; kanon_db does not adopt foreign objects"


def _create_schema(session: PsycopgSession, schema: str, *, is_ours: bool) -> None:
    """Create a schema; take one that exists only if it is empty, or from an installation.

    What else is in it, uninstalling would drop.
    """
    _require_trusted_owner(session, schema)
    rows = session.fetch(
        "SELECT EXISTS (SELECT FROM pg_depend AS d"
        " WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = n.oid) AS filled"
        " FROM pg_namespace AS n WHERE n.nspname = $1::text",
        schema,
    )
    if not rows:
        session.fetch(f"CREATE SCHEMA {session.identifier(schema)}")
    elif rows[0]["filled"] and not is_ours:
        raise PermissionDeniedError(
            "a schema of this name exists and is not empty",
            detail=f'schema "{schema}"',
            hint=_NOT_ADOPTED,
        )


def _revision(session: PsycopgSession) -> str | None:
    if session.fetch("SELECT 1 WHERE to_regclass('kanon.alembic_version') IS NULL"):
        return None
    rows = session.fetch("SELECT version_num FROM kanon.alembic_version")
    return str(rows[0]["version_num"]) if rows else None


def migration_script(current: str | None, target: str = "head") -> str:
    """Return the SQL that brings the catalog from one revision (None: nothing) to another.

    Raises
    ------
    ServerError
        When a newer package made the catalog.
    """
    script = io.StringIO()
    config = Config(output_buffer=script)
    config.set_main_option("script_location", str(resource_directory("migrations")))
    config.set_main_option("path_separator", "os")
    try:
        command.upgrade(config, f"{current}:{target}" if current else target, sql=True)
    except CommandError:
        raise ServerError(
            "the installation is newer than this package",
            detail=f"its catalog is at revision {current}, which is not known here",
            hint="pip install --upgrade kanon_db",
        ) from None
    return script.getvalue()


def _replace_objects(connection: psycopg.Connection, paths: list[str]) -> int:
    files = sorted(resource_directory("sql").glob("*.sql"))
    for file in files:
        text = file.read_text(encoding="utf-8")
        _run_script(connection, file.name, text.replace(_ENVIRONMENT_MARK, _preamble(paths)))
    return len(files)


def _run_script(connection: psycopg.Connection, name: str, text: str) -> None:
    try:
        connection.execute(text.encode())
    except psycopg.Error as error:
        raise ServerError(
            "a SQL object cannot be installed",
            detail=f"{name}: {error.diag.message_primary}",
        ) from error


def _preamble(paths: list[str]) -> str:
    """First lines of every PL/Python body: this environment first, and no other version of it."""
    return (
        "import sys\n"
        f"sys.path[:0] = [path for path in {paths!r} if path not in sys.path]\n"
        "import kanon_db\n"
        f"if kanon_db.__version__ != {kanon_db.__version__!r}:\n"
        "    plpy.error('this session holds an older kanon_db', hint='start a new session')\n"
    )


def _grant(session: PsycopgSession, schema: str) -> None:
    name = session.identifier(schema)
    session.fetch(f"REVOKE ALL ON SCHEMA {name} FROM PUBLIC")
    session.fetch(f"GRANT USAGE, CREATE ON SCHEMA {name} TO kanon_publisher")
    session.fetch(f"GRANT USAGE ON SCHEMA {name} TO kanon_analyst")
    database = fetch_one(session, "SELECT current_database()::text AS name")["name"]
    session.fetch(f"GRANT TEMPORARY ON DATABASE {session.identifier(database)} TO kanon_publisher")


def _drop_role_unless_used(session: PsycopgSession, role: str) -> None:
    """Drop a role, unless another database or a person still has it."""
    with session.transaction():
        in_use = session.fetch(
            "SELECT 1 FROM pg_roles r WHERE r.rolname = $1::text AND (EXISTS (SELECT FROM"
            " pg_shdepend d WHERE d.refobjid = r.oid) OR EXISTS (SELECT FROM pg_auth_members m"
            " WHERE r.oid IN (m.roleid, m.member)))",
            role,
        )
        if not in_use:
            session.fetch(f"DROP ROLE IF EXISTS {session.identifier(role)}")
