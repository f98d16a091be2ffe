"""Installs kanon_db into a database, or brings it up to date, and removes it again."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError

import kanon_db
from kanon_db.catalog.entries import OWNER
from kanon_db.declaration import EVERYBODY
from kanon_db.errors import (
    InUseError,
    InvalidParameterError,
    PermissionDeniedError,
    ServerError,
)
from kanon_db.installation._existing_publications import (
    find_again,
    give_back,
    repair_restored,
)
from kanon_db.installation.interpreter import (
    package_digest,
    resource_directory,
    server_paths,
)
from kanon_db.installation.service import (
    QUEUE,
    WORKER,
    install_queue,
    is_service,
    is_superuser,
    logins,
    member_of,
    owning,
    require_rights,
)
from kanon_db.installation.sql_objects import replace_objects, run_script
from kanon_db.session import fetch_one
from kanon_db.session.progress import Watcher
from kanon_db.session.psycopg_session import (
    NOT_ADOPTED,
    PsycopgSession,
    open_connection,
    require_trusted,
)


def read_new_name(session: PsycopgSession) -> str | None:
    """Return what the schema kanon is called, where somebody has renamed it."""
    rows = session.fetch(
        "SELECT quote_ident(n.nspname) AS name FROM pg_proc AS p"
        " JOIN pg_namespace AS n ON n.oid = p.pronamespace"
        # Nobody else can have made what belongs to this role.
        " WHERE p.proname = 'run_errand' AND pg_get_userbyid(p.proowner) = $1::text"
        " AND n.nspname <> 'kanon' AND to_regnamespace('kanon') IS NULL",
        OWNER,
    )
    return str(rows[0]["name"]) if rows else None


# A view depends by its rule. Our event trigger belongs to no schema.
_DEPENDENTS: Final = """
SELECT DISTINCT CASE WHEN r.oid IS NULL THEN pg_describe_object(d.classid, d.objid, 0)
                ELSE pg_describe_object('pg_class'::regclass, r.ev_class, 0) END AS name
FROM pg_depend AS d
LEFT JOIN pg_class AS c ON d.refclassid = 'pg_class'::regclass AND c.oid = d.refobjid
LEFT JOIN pg_proc AS p ON d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
LEFT JOIN pg_type AS t ON d.refclassid = 'pg_type'::regclass AND t.oid = d.refobjid
JOIN pg_namespace AS n ON n.oid = coalesce(c.relnamespace, p.pronamespace, t.typnamespace)
LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
CROSS JOIN LATERAL pg_identify_object_as_address(d.classid, d.objid, 0) AS a
WHERE n.nspname = ANY ($1::text[]) AND d.deptype = 'n'
  AND d.classid <> 'pg_event_trigger'::regclass
  AND a.object_names[1] <> ALL ($1::text[])
  AND ($2::text IS NULL OR obj_description(c.oid, 'pg_class') = $2::text)
ORDER BY 1
"""


def dependents(
    session: PsycopgSession, schemas: Sequence[str], comment: str | None = None
) -> list[str]:
    """Describe what depends on objects in these schemas, and lies outside of them.

    `comment`: only what depends on relations with this comment.
    """
    return [row["name"] for row in session.fetch(_DEPENDENTS, list(schemas), comment)]


_ENCODINGS: Final = ("UTF8", "SQL_ASCII")
"""Of databases: in SQL_ASCII, texts are UTF-8 where whoever wrote them says so."""


_PUBLISHED: Final = "published"
"""The schema of publications, unless the first installation names another."""


@dataclass(frozen=True)
class InstallReport:
    """The result of an installation."""

    version: str
    actions: list[str]  # What was done, in order, for people to read
    is_service: bool = False  # Whether operations are jobs of a worker


_PHASES: Final = (
    "looking at the server", "migrating the catalog", "replacing SQL objects",
    "looking after publications",
)  # fmt: skip


def install(
    dsn: str,
    *,
    published_schema: str | None = None,
    service: bool = False,
    on_progress: Watcher | None = None,
) -> InstallReport:
    """Install kanon_db into the database, or bring an installation up to date.

    Everything happens in one transaction: schema and catalog by migrations, SQL functions
    replaced, privileges last.

    Parameters
    ----------
    dsn : str
        Connection string of a superuser, since only superusers can create PL/Python functions; or
        of a role with CREATEROLE and CREATE on the database, and then it is a service.
    published_schema : str, optional
        Schema for published relations; the first installation decides, by default ``published``.
    service : bool
        Whether operations are to be jobs of a worker, rather than run in PL/Python.
    on_progress : callable, optional
        Called with what is being done.

    Raises
    ------
    ServerError
        When the server lacks PL/Python, or its interpreter cannot import kanon_db.
    PermissionDeniedError
        When the role may not create what is needed, or a schema of ours belongs to somebody else.
    """
    actions: list[str] = []
    with open_connection(dsn) as connection:
        session = PsycopgSession(connection, on_progress)
        with session.transaction():
            session.plan(_PHASES)
            session.phase("looking at the server")
            watches = is_superuser(session)
            queued = service or not watches
            if not watches:
                require_rights(session)
                _require_own_schema(session)
            _lock(session)
            _require_encoding(session)
            if (name := read_new_name(session)) is not None:
                raise ServerError(
                    "the schema kanon has been renamed",
                    detail=f"schema {name}",
                    hint=f"ALTER SCHEMA {name} RENAME TO kanon",
                )
            paths = []
            if not queued:
                _create_language(session)
                paths = server_paths(session)
                actions.append(f"server imports kanon_db from {', '.join(paths)}")
            for role in EVERYBODY:
                _create_role(session, role)
            _create_owner(session)
            before = _revision(session)
            schema = _choose_schema(session, published_schema or _PUBLISHED)
            if published_schema not in (None, schema):
                actions.append(
                    f'schema "{published_schema}" ignored: publications stay in schema "{schema}",'
                    " which the first installation chose"
                )
            for name in ("kanon", schema):
                _create_schema(session, name, is_ours=before is not None)
            with owning(session):
                session.phase("migrating the catalog")
                run_script(connection, "migrations", migration_script(before))
                found = f"catalog at revision {_revision(session)}"
                actions.append(f"{found}, was {before or 'absent'}")
                session.fetch(
                    "INSERT INTO kanon.setting (name, value) VALUES ('published_schema', $1::text)"
                    " ON CONFLICT ON CONSTRAINT setting_pkey DO NOTHING",
                    schema,
                )
                session.fetch(
                    "INSERT INTO kanon.setting (name, value) VALUES ('package', $1::text)"
                    " ON CONFLICT ON CONSTRAINT setting_pkey DO UPDATE SET value = excluded.value",
                    package_digest(),
                )
                if queued:
                    actions.append(install_queue(session))
                session.phase("replacing SQL objects")
                n_files = replace_objects(session, paths, is_service=queued, watches=watches)
                actions.append(f"{n_files} SQL objects replaced")
                # Before the first GRANT, after which readers are noted by their numbers.
                is_elsewhere = find_again(session)
                _grant(session, schema)
                actions.append(f"privileges granted to {' and '.join(EVERYBODY)}")
                session.phase("looking after publications")
                actions += give_back(session, schema)
                actions += repair_restored(session, schema, is_elsewhere=is_elsewhere)
                session.fetch("SELECT kanon.owner_note_readers(p) FROM kanon.publication AS p")
                session.fetch("SELECT kanon.owner_sweep()")
    if queued:
        actions.append(
            "operations are jobs, since the server has no PL/Python or you are no superuser: let"
            " roles submit them with `kanon service allow ROLE`, and start `kanon worker`"
        )
    if not watches:
        actions.append(
            "no event trigger watches GRANT, which takes a superuser: workers look for new readers"
            " every few seconds, and models cannot be asked"
        )
    return InstallReport(kanon_db.__version__, actions, queued)


def uninstall(dsn: str, *, drop_publications: bool = False) -> list[str]:
    """Remove kanon_db from the database, and its publications only when asked to.

    Returns what is left of it, for people to read.
    """
    # Raises InUseError when there are publications, or other relations in their schema, and
    # `drop_publications` is false; or when views elsewhere, or other objects, depend on any of
    # this.
    with open_connection(dsn) as connection:
        session = PsycopgSession(connection)
        with session.transaction():
            if not is_superuser(session):
                require_rights(session)
                _require_own_schema(session)
            if not session.fetch("SELECT 1 WHERE to_regclass('kanon.setting') IS NOT NULL"):
                raise ServerError(
                    "kanon_db is not installed in this database", hint="there is nothing to do"
                )
            schema = _choose_schema(session, _PUBLISHED)
            rows = session.fetch("SELECT name FROM kanon.publication ORDER BY name")
            if rows and not drop_publications:
                raise InUseError(
                    "publications exist",
                    detail=f"{len(rows)}: {', '.join(row['name'] for row in rows)}",
                    hint="drop them first, or pass --drop-publications",
                )
            other_relations = fetch_one(
                session,
                "SELECT count(*) AS n FROM pg_class AS c JOIN pg_namespace AS n"
                " ON n.oid = c.relnamespace WHERE n.nspname = $1::text AND c.relkind <> 'i'"
                " AND NOT EXISTS (SELECT FROM kanon.publication AS p"
                " WHERE c.relname = ANY (p.relations))"
                " AND NOT EXISTS (SELECT FROM kanon.budget AS b WHERE b.counter = c.relname)"
                " AND c.oid NOT IN (SELECT w.relation FROM kanon.withdrawn() AS w)",
                schema,
            )["n"]
            if other_relations and not drop_publications:
                raise InUseError(
                    "the schema of publications holds relations that are not publications",
                    detail=f'{other_relations} in schema "{schema}"',
                    hint="move them elsewhere, or pass --drop-publications",
                )
            _refuse_dependents(session, schema)
            is_queued = is_service(session)
            session.fetch("DROP SCHEMA kanon CASCADE")
            session.fetch(f"DROP SCHEMA {session.identifier(schema)} CASCADE")
            if is_queued:
                session.fetch(f"DROP SCHEMA {QUEUE} CASCADE")
            is_used = _roles_of_ours(session, is_queued=is_queued)
            _drop_roles(session, [role for role, used in is_used.items() if not used])
            owned = {role: _describe_owned(session, role) for role, used in is_used.items() if used}
            for role in owned:
                session.fetch(
                    f"REVOKE TEMPORARY ON DATABASE {_database(session)}"
                    f" FROM {session.identifier(role)}"
                )
            kept = [*owned, *logins(session)]
    left = ["the tables and views that were registered as sources"]
    if not is_queued:
        left.append("the extension plpython3u")
    if kept:
        left.append(f"roles that people or other databases have: {', '.join(kept)}")
    left += [f"what {role} owns: {', '.join(names)}" for role, names in owned.items() if names]
    return left


def _refuse_dependents(session: PsycopgSession, schema: str) -> None:
    """Refuse to drop what others have made, which DROP SCHEMA ... CASCADE would do."""
    relations = dependents(session, ["kanon", schema])
    if relations:
        raise InUseError(
            "views elsewhere, or other objects, depend on kanon_db or its publications",
            detail=", ".join(relations),
            hint="drop them first",
        )


def _require_own_schema(session: PsycopgSession) -> None:
    """Make sure that a role that is no superuser goes on with an installation of its own."""
    rows = session.fetch(
        "SELECT pg_get_userbyid(nspowner)::text AS owner FROM pg_namespace"
        " WHERE nspname = 'kanon' AND pg_get_userbyid(nspowner) <> current_user"
    )
    if rows:
        raise PermissionDeniedError(
            "kanon_db was installed by another role",
            detail=f'schema "kanon" belongs to role "{rows[0]["owner"]}"',
            hint=f"connect as {rows[0]['owner']}",
        )


def _lock(session: PsycopgSession) -> None:
    """Let nobody else install or remove kanon_db meanwhile."""
    if is_superuser(session):
        session.fetch("LOCK TABLE pg_namespace IN SHARE ROW EXCLUSIVE MODE")
    elif session.fetch("SELECT 1 WHERE to_regclass('kanon.setting') IS NOT NULL"):
        session.fetch("LOCK TABLE kanon.setting IN SHARE ROW EXCLUSIVE MODE")
    # Else, of two that create the same schemas and roles, the server refuses one.


def _require_encoding(session: PsycopgSession) -> None:
    row = fetch_one(session, "SELECT current_setting('server_encoding') AS value")
    if row["value"] not in _ENCODINGS:
        raise ServerError(
            "the database's encoding does not fit",
            detail=f"it is {row['value']}, while PL/Python hands over statements in UTF8, so that"
            " names outside ASCII would turn into others",
            hint="CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0",
        )


def _create_language(session: PsycopgSession) -> None:
    if not session.fetch("SELECT 1 FROM pg_available_extensions WHERE name = 'plpython3u'"):
        version = fetch_one(session, "SELECT current_setting('server_version') AS value")["value"]
        raise ServerError(
            "the server has no PL/Python",
            detail=f"PostgreSQL {version}: extension plpython3u is not available",
            hint=f"apt-get install postgresql-plpython3-{version.split('.')[0]}, or"
            " kanon install --service, where workers run what PL/Python would",
        )
    session.fetch("CREATE EXTENSION IF NOT EXISTS plpython3u WITH SCHEMA pg_catalog")


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
            hint=f"ALTER ROLE {session.identifier(role)} NOSUPERUSER NOBYPASSRLS NOCREATEROLE, or"
            " rename it",
        )


def _create_owner(session: PsycopgSession) -> None:
    """Create the role that owns publications, which nobody may become."""
    rows = session.fetch(
        "SELECT r.rolsuper OR r.rolbypassrls OR r.rolcreaterole OR r.rolcreatedb OR r.rolcanlogin"
        " OR r.rolreplication OR EXISTS (SELECT FROM pg_auth_members AS m"
        " JOIN pg_roles AS u ON u.oid = m.member"
        # Who has created a role, and is no superuser, keeps the right to grant it.
        " WHERE r.oid IN (m.roleid, m.member)"
        " AND (u.rolname <> current_user OR u.rolsuper))"
        " AS powerful"
        " FROM pg_roles AS r WHERE r.rolname = $1::text",
        OWNER,
    )
    if not rows:
        session.fetch(f"CREATE ROLE {session.identifier(OWNER)} NOLOGIN")
    elif rows[0]["powerful"]:
        raise PermissionDeniedError(
            "the role that is to own publications can do too much, or somebody can become it",
            detail=f'role "{OWNER}" may log in, has an attribute, has a member or is one',
            hint=f"rename it, or ALTER ROLE {OWNER} NOLOGIN and revoke it from its members; if an"
            " administrator has installed kanon_db in another database of this server, which is one"
            " of PostgreSQL 16 or later, connect as this one",
        )


def _choose_schema(session: PsycopgSession, wanted: str) -> str:
    """Return the schema of publications, which the first installation chose for good."""
    if session.fetch("SELECT 1 WHERE to_regclass('kanon.setting') IS NULL"):
        return wanted
    rows = session.fetch("SELECT value FROM kanon.setting WHERE name = 'published_schema'")
    return str(rows[0]["value"]) if rows else wanted


def _create_schema(session: PsycopgSession, schema: str, *, is_ours: bool) -> None:
    """Create a schema; take an existing one only if it is empty or kanon_db's own.

    Uninstalling would drop whatever else is in it.
    """
    require_trusted(session, schema)
    rows = session.fetch(
        "SELECT EXISTS (SELECT FROM pg_depend AS d"
        " WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = n.oid) AS filled"
        " FROM pg_namespace AS n WHERE n.nspname = $1::text",
        schema,
    )
    if not rows:
        if is_ours and session.fetch("SELECT 1 FROM kanon.publication LIMIT 1"):
            raise ServerError(
                "the schema of the publications is missing",
                detail=f'schema "{schema}"',
                hint="`kanon doctor` looks for it; it may have been renamed",
            )
        session.fetch(f"CREATE SCHEMA {session.identifier(schema)}")
    elif rows[0]["filled"] and not is_ours:
        raise PermissionDeniedError(
            "a schema of this name exists and is not empty",
            detail=f'schema "{schema}"',
            hint=NOT_ADOPTED,
        )


def _revision(session: PsycopgSession) -> str | None:
    if session.fetch("SELECT 1 WHERE to_regclass('kanon.alembic_version') IS NULL"):
        return None
    rows = session.fetch("SELECT version_num FROM kanon.alembic_version")
    return str(rows[0]["version_num"]) if rows else None


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
    known = ScriptDirectory.from_config(_alembic_config()).walk_revisions()
    return [
        Revision(one.revision, one.down_revision, one.doc, one.is_head)  # type: ignore[arg-type]  # no branches
        for one in known
    ]


def current_revision(dsn: str) -> str | None:
    """Read the revision of the catalog in a database, None where there is none."""
    with open_connection(dsn) as connection:
        session = PsycopgSession(connection)
        with session.transaction():
            return _revision(session)


def stamp(dsn: str, revision: str) -> None:
    """Say which revision the catalog is at, without running a migration."""
    if revision not in {one.revision for one in revisions()}:
        raise InvalidParameterError(
            "no migration of this package has this revision", hint="`kanon db history` lists them"
        )
    with open_connection(dsn) as connection:
        session = PsycopgSession(connection)
        with session.transaction():
            if _revision(session) is None:
                raise ServerError(
                    "kanon_db is not installed in this database", hint="run `kanon install`"
                )
            _lock(session)
            with owning(session):
                session.fetch("UPDATE kanon.alembic_version SET version_num = $1::text", revision)


def _alembic_config(output: io.StringIO | None = None) -> Config:
    config = Config(output_buffer=output)
    config.set_main_option("script_location", str(resource_directory("migrations")))
    config.set_main_option("path_separator", "os")
    return config


def migration_script(current: str | None, target: str = "head") -> str:
    """Return the SQL that brings the catalog from one revision (None: nothing) to another.

    Raises ServerError when a newer package made the catalog.
    """
    script = io.StringIO()
    config = _alembic_config(script)
    try:
        command.upgrade(config, f"{current}:{target}" if current else target, sql=True)
    except CommandError:
        raise ServerError(
            "the installation is newer than this package",
            detail=f"its catalog is at revision {current}, which is not known here",
            hint="pip install --upgrade kanon_db",
        ) from None
    return script.getvalue()


def _grant(session: PsycopgSession, schema: str) -> None:
    name = session.identifier(schema)
    session.fetch(f"REVOKE ALL ON SCHEMA {name} FROM PUBLIC")
    session.fetch(f"REVOKE CREATE ON SCHEMA {name} FROM kanon_publisher")
    session.fetch(f"GRANT USAGE, CREATE ON SCHEMA {name} TO {session.identifier(OWNER)}")
    session.fetch(f"GRANT USAGE ON SCHEMA {name} TO {', '.join(EVERYBODY)}")
    if not fetch_one(
        session,
        "SELECT has_database_privilege('kanon_publisher', current_database(), 'TEMPORARY') AS held",
    )["held"] or is_superuser(session):
        session.fetch(f"GRANT TEMPORARY ON DATABASE {_database(session)} TO kanon_publisher")


def _database(session: PsycopgSession) -> str:
    row = fetch_one(session, "SELECT quote_ident(current_database()) AS name")
    return str(row["name"])


# Whether it has a member, is one, owns anything, or has rights in another database.
_ROLES: Final = """
SELECT r.rolname::text AS name,
    EXISTS (SELECT FROM pg_auth_members AS m WHERE r.oid IN (m.roleid, m.member)
            AND NOT (m.admin_option AND pg_get_userbyid(m.member) = current_user))
    OR EXISTS (SELECT FROM pg_shdepend AS d WHERE d.refclassid = 'pg_authid'::regclass
               AND d.refobjid = r.oid AND d.classid <> 'pg_auth_members'::regclass
               AND (d.deptype = 'o' OR b.oid NOT IN (d.dbid, d.objid))) AS is_used
FROM unnest($1::text[]) WITH ORDINALITY AS n (name, position)
JOIN pg_roles AS r ON r.rolname = n.name
JOIN pg_database AS b ON b.datname = current_database() ORDER BY n.position
"""

_OWNED: Final = """
SELECT DISTINCT CASE WHEN d.dbid IN (0, b.oid)
    THEN pg_describe_object(d.classid, d.objid, d.objsubid)
    ELSE format('something in database %I', (SELECT o.datname FROM pg_database AS o
                                             WHERE o.oid = d.dbid)) END AS name
FROM pg_shdepend AS d JOIN pg_roles AS r ON r.oid = d.refobjid
JOIN pg_database AS b ON b.datname = current_database()
WHERE r.rolname = $1::text AND d.refclassid = 'pg_authid'::regclass AND d.deptype = 'o'
ORDER BY 1
"""


def _roles_of_ours(session: PsycopgSession, *, is_queued: bool) -> dict[str, bool]:
    """Return which roles of ours there are, each with whether anybody else has a use for it."""
    names = [*EVERYBODY, OWNER, *([WORKER] if is_queued else [])]
    return {row["name"]: row["is_used"] for row in session.fetch(_ROLES, names)}


def _drop_roles(session: PsycopgSession, roles: Sequence[str]) -> None:
    """Drop roles that nobody can become, so that none of them gets to own anything meanwhile."""
    if not roles:
        return
    names = ", ".join(map(session.identifier, roles))
    with member_of(session, roles):
        session.fetch(f"DROP OWNED BY {names}")  # which is what was granted to them
    session.fetch(f"DROP ROLE {names}")


def _describe_owned(session: PsycopgSession, role: str) -> list[str]:
    """Describe what a role owns: that of people, since any member may have given it away."""
    return [str(row["name"]) for row in session.fetch(_OWNED, role)]
