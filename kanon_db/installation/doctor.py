"""Examining an installation: what is there, what is wrong, and which command fixes it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import kanon_db
from kanon_db.catalog.entries import published_schema
from kanon_db.catalog.errands import OWNER
from kanon_db.cluster.local_folder import ENVIRONMENT
from kanon_db.declaration import EVERYBODY
from kanon_db.errors import DatabaseError, PermissionDeniedError, ServerError
from kanon_db.installation.install import migration_script
from kanon_db.installation.interpreter import can_import, server_interpreter
from kanon_db.installation.resources import import_paths, resource_directory
from kanon_db.installation.trust import require_trusted
from kanon_db.session.protocol import fetch_one
from kanon_db.session.psycopg_session import PsycopgSession, open_connection

State = Literal["ok", "warning", "broken"]


@dataclass(frozen=True)
class Finding:
    """One line of the examination.

    Attributes
    ----------
    subject : str
    state : {"ok", "warning", "broken"}
    value : str
        What was found.
    remedy : str
        The command or statement that fixes it; empty when there is nothing to do.
    """

    subject: str
    state: State
    value: str
    remedy: str = ""


def examine(dsn: str) -> list[Finding]:
    """Examine the server, its Python, the installation and the roles, without changing anything.

    Raises
    ------
    ServerError
        When no connection can be made.
    """
    with open_connection(dsn) as connection:
        session = PsycopgSession(connection)
        with session.transaction():
            return [*_examine_server(session), *_examine_installation(session)]


def _judged(subject: str, value: str, remedy: str = "kanon install", *, is_ok: bool) -> Finding:
    return Finding(subject, "ok", value) if is_ok else Finding(subject, "broken", value, remedy)


def _examine_server(session: PsycopgSession) -> Iterator[Finding]:
    row = fetch_one(
        session,
        "SELECT current_setting('server_version') AS version, current_user::text AS role,"
        " current_database()::text AS database, current_setting('is_superuser') AS superuser",
    )
    yield Finding("PostgreSQL", "ok", row["version"])
    yield Finding("database", "ok", row["database"])
    is_superuser = row["superuser"] == "on"
    yield Finding("role", "ok", f"{row['role']}{', superuser' if is_superuser else ''}")
    major = row["version"].split(".")[0]
    if not session.fetch("SELECT 1 FROM pg_available_extensions WHERE name = 'plpython3u'"):
        yield Finding(
            "PL/Python", "broken", "not available",
            f"apt-get install postgresql-plpython3-{major}",
        )  # fmt: skip
        return
    if not session.fetch("SELECT 1 FROM pg_extension WHERE extname = 'plpython3u'"):
        yield Finding("PL/Python", "broken", "not created in this database", "kanon install")
        return
    yield Finding("PL/Python", "ok", "created in this database")
    if not is_superuser:
        yield Finding(
            "server's Python", "warning", "only a superuser can examine it",
            "kanon doctor --dsn ... as the server's administrator",
        )  # fmt: skip
        return
    server = server_interpreter(session)
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = f"{server.version}, as operating-system user {server.os_user}; here {ours}"
    remedy = "run kanon from an environment of the server's Python"
    yield _judged("server's Python", found, remedy, is_ok=server.version == ours)
    copied = [str(server.data_directory.parent / ENVIRONMENT)]
    for paths in (import_paths(), copied):
        if can_import(session, paths):
            yield Finding("environment", "ok", ", ".join(paths))
            return
    yield Finding(
        "environment",
        "warning",
        f"{', '.join(import_paths())} (the server cannot read it)",
        "kanon install copies it for a private cluster",
    )


def _examine_installation(session: PsycopgSession) -> Iterator[Finding]:
    # Not to_regclass(), which fails if the role may not use the schema.
    rows = session.fetch(
        "SELECT has_schema_privilege(n.oid, 'USAGE') AS usable FROM pg_namespace AS n"
        " JOIN pg_class AS c ON c.relnamespace = n.oid"
        " WHERE n.nspname = 'kanon' AND c.relname = 'publications'"
    )
    if not rows:
        yield Finding("kanon_db", "broken", "not installed in this database", "kanon install")
        return
    try:
        require_trusted(session)
    except PermissionDeniedError as error:
        # We must not call its functions, which would run with the rights of the current role.
        yield Finding("schema kanon", "broken", f"{error.message}: {error.detail}", error.hint)
        return
    yield from _examine_functions(session)
    for role in EVERYBODY:
        yield _examine_role(session, role)
    if not rows[0]["usable"]:
        yield Finding("kanon_db", "warning", "not open to this role", "grant it kanon_analyst")
        return
    yield _examine_version(session)
    yield from _examine_catalog(session)
    n = fetch_one(session, "SELECT count(*) AS n FROM kanon.publications")["n"]
    yield Finding("publications", "ok", f"{n} readable by this role")


def _examine_functions(session: PsycopgSession) -> Iterator[Finding]:
    rows = session.fetch(
        "SELECT p.proname::text AS name,"
        " p.prosecdef AND pg_get_userbyid(p.proowner) <> $1::text"
        " OR NOT coalesce(p.proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false) AS open,"
        " EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a"
        " WHERE a.grantee = 0) AS exposed FROM pg_proc AS p JOIN pg_namespace AS n"
        " ON n.oid = p.pronamespace WHERE n.nspname = 'kanon'",
        OWNER,
    )
    wrong = [
        *(f"{name} is missing" for name in sorted(_functions() - {row["name"] for row in rows})),
        *(f"{row['name']} is not safe from look-alike objects" for row in rows if row["open"]),
    ]
    found = "; ".join(wrong) or f"{len(rows)}, as in this package"
    yield _judged("functions", found, is_ok=not wrong)
    exposed = sum(row["exposed"] for row in rows)
    found = f"on {exposed} functions" if exposed else "on none"
    yield _judged("EXECUTE for PUBLIC", found, is_ok=not exposed)


def _functions() -> set[str]:
    """Return the names of the SQL functions in this package."""
    files = resource_directory("sql").glob("*.sql")
    created = re.compile(r"^CREATE OR REPLACE FUNCTION kanon\.(\w+)", re.MULTILINE)
    return {name for file in files for name in created.findall(file.read_text(encoding="utf-8"))}


def _examine_version(session: PsycopgSession) -> Finding:
    try:
        with session.savepoint():
            version = fetch_one(session, "SELECT kanon.version() AS value")["value"]
    except DatabaseError as error:
        return Finding("kanon_db", "broken", f"does not run: {error.message}", "kanon install")
    found = f"{version} in the server, {kanon_db.__version__} here"
    return _judged("kanon_db", found, is_ok=version == kanon_db.__version__)


def _examine_catalog(session: PsycopgSession) -> Iterator[Finding]:
    rows = session.fetch(
        "SELECT has_table_privilege('kanon.alembic_version', 'SELECT') AS readable"
    )
    if not rows[0]["readable"]:
        return
    revision = fetch_one(session, "SELECT version_num AS value FROM kanon.alembic_version")["value"]
    try:
        behind = bool(migration_script(revision).strip())
    except ServerError as error:
        yield Finding("catalog", "broken", f"{error.message}: {error.detail}", error.hint)
        return
    found = f"revision {revision}{', behind this package' if behind else ''}"
    yield _judged("catalog", found, is_ok=not behind)


def _examine_role(session: PsycopgSession, role: str) -> Finding:
    rows = session.fetch(
        "SELECT rolsuper OR rolbypassrls AS powerful, ARRAY(SELECT name FROM unnest($2::text[])"
        " AS name LEFT JOIN pg_namespace AS n ON n.nspname = name"
        " WHERE has_schema_privilege(r.oid, n.oid, 'USAGE') IS NOT TRUE) AS closed"
        " FROM pg_roles AS r WHERE rolname = $1::text",
        role,
        ["kanon", *_schema_of_publications(session)],
    )
    subject = f"role {role}"
    if not rows:
        return Finding(subject, "broken", "missing", "kanon install")
    if rows[0]["powerful"]:
        return Finding(
            subject, "broken", "superuser or bypasses row security",
            f"ALTER ROLE {role} NOSUPERUSER NOBYPASSRLS",
        )  # fmt: skip
    if closed := rows[0]["closed"]:
        return Finding(
            subject, "broken", f"cannot use schema {' and '.join(closed)}", "kanon install"
        )
    return Finding(subject, "ok", "no special rights")


def _schema_of_publications(session: PsycopgSession) -> list[str]:
    """Return the schema's name, or nothing if the role may not read it."""
    try:
        with session.savepoint():
            return [published_schema(session)]
    except DatabaseError:
        return []
