"""Installs kanon_db into a database, or brings it up to date, and removes it again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import psycopg

import kanon_db
from kanon_db.catalog.entries import OWNER
from kanon_db.dataclasses import dataclass
from kanon_db.declaration import EVERYBODY
from kanon_db.errors import (
    DatabaseError,
    InUseError,
    InvalidParameterError,
    PermissionDeniedError,
    ServerError,
)
from kanon_db.installation.extension import (
    EXTENSION,
    PUBLISHED,
    become_extension,
    update_extension,
)
from kanon_db.installation.interpreter import server_paths
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
from kanon_db.installation.sql_objects import (
    ROLES,
    WORKER_LOGIN,
    create_language,
    migration_script,
    object_scripts,
    revisions,
    run_script,
)
from kanon_db.publications.registry import kind_named
from kanon_db.session import fetch_one
from kanon_db.session.progress import Watcher
from kanon_db.session.protocol import (
    LOCK_NOT_AVAILABLE,
    UNDEFINED_SCHEMA,
    UNDEFINED_TABLE,
    settings,
)
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
    """Install kanon_db into the database, or bring an installation up to date, all or nothing.

    `dsn`: of a superuser; of a role with CREATEROLE and CREATE, it becomes a service.
    """
    # Schema and catalog come by migrations, then SQL functions are replaced, privileges last. The
    # first installation decides on the schema of published relations. Only superusers can create
    # functions in PL/Python.
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
            if watches:
                session.fetch("LOCK TABLE pg_namespace IN SHARE ROW EXCLUSIVE MODE")
            # Else, of two that create the same schemas and roles, the server refuses one.
            _refuse_renamed(session)
            paths = []
            if not queued:
                create_language(session)
                paths = server_paths(session)
                actions.append(f"server imports kanon_db from {', '.join(paths)}")
            scripts = object_scripts(paths, is_service=queued, watches=watches)
            run_script(connection, ROLES, scripts.pop(ROLES))
            before = _revision(session)
            schema = _choose_schema(session, published_schema or PUBLISHED)
            if published_schema not in (None, schema):
                actions.append(
                    f'schema "{published_schema}" ignored: publications stay in schema "{schema}",'
                    " which the first installation chose"
                )
            require_trusted(session, schema)
            _create_schema(session)
            session.fetch("SELECT set_config('kanon.published_schema', $1::text, true)", schema)
            with owning(session):
                session.phase("migrating the catalog")
                actions += update_extension(session)
                run_script(connection, "migrations", migration_script(_revision(session)))
                found = f"catalog at revision {_revision(session)}"
                actions.append(f"{found}, was {before or 'absent'}")
                if queued:
                    run_script(connection, WORKER_LOGIN, scripts.pop(WORKER_LOGIN))
                    actions.append(install_queue(session))
                session.phase("replacing SQL objects")
                for number, (name, text) in enumerate(scripts.items()):
                    session.done(number, len(scripts))
                    run_script(connection, name, text)
                actions.append(f"{len(scripts)} SQL objects replaced")
                actions.append(f"privileges granted to {' and '.join(EVERYBODY)}")
                session.phase("looking after publications")
                actions += give_back(session, schema)
                is_elsewhere = bool(session.fetch(_ELSEWHERE))
                session.fetch("SELECT kanon.come_home($1::text::boolean)", str(is_elsewhere))
                actions += repair_restored(session, schema) if is_elsewhere else []
                session.fetch("SELECT kanon.owner_note_names()")
                session.fetch("SELECT kanon.owner_note_readers(p) FROM kanon.publication AS p")
                session.fetch("SELECT kanon.owner_sweep()")
                session.fetch("SELECT kanon.owner_provide_guard($1::text)", schema)
            actions += [] if queued else become_extension(session, schema)
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
    # Raises InUseError when there are publications, or other objects in their schema, and
    # `drop_publications` is false; or when views elsewhere, or other objects, depend on any of
    # this.
    with open_connection(dsn) as connection:
        # What others publish while this waits for them must be seen.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        session = PsycopgSession(connection)
        with session.transaction():
            if not is_superuser(session):
                require_rights(session)
                _require_own_schema(session)
            _refuse_renamed(session)
            _close(session)
            schema = _choose_schema(session, PUBLISHED)
            rows = session.fetch("SELECT name FROM kanon.publication ORDER BY name")
            if rows and not drop_publications:
                raise InUseError(
                    "publications exist",
                    detail=f"{len(rows)}: {', '.join(row['name'] for row in rows)}",
                    hint="drop them first, or pass --drop-publications",
                )
            _refuse_others(session, schema, drop=drop_publications)
            _refuse_dependents(session, schema)
            is_queued = is_service(session)
            session.fetch("DELETE FROM kanon.publication")
            session.fetch(f"DROP SCHEMA {session.identifier(schema)} CASCADE")
            session.fetch(f"DROP EXTENSION IF EXISTS {EXTENSION}")
            for name in ("kanon", QUEUE):
                session.fetch(f"DROP SCHEMA IF EXISTS {name} CASCADE")
            is_used = _roles_of_ours(session, is_queued=is_queued)
            _drop_roles(session, [role for role, used in is_used.items() if not used])
            owned = {role: _describe_owned(session, role) for role, used in is_used.items() if used}
            for role in owned:
                session.fetch(
                    f"REVOKE TEMPORARY ON DATABASE {_database(session)}"
                    f" FROM {session.identifier(role)}"
                )
            kept = [*owned, *logins(session)]
            has_python = session.fetch("SELECT FROM pg_extension WHERE extname = 'plpython3u'")
    left = ["the tables and views that were registered as sources"]
    if has_python:
        left.append("the extension plpython3u")
    if kept:
        left.append(f"roles that people or other databases have: {', '.join(kept)}")
    left += [f"what {role} owns: {', '.join(names)}" for role, names in owned.items() if names]
    return left


# Of an extension, what it has made goes and stays with it. Ours lies there, too.
_OTHERS: Final = """
SELECT pg_describe_object(d.classid, d.objid, 0) AS name, e.oid IS NOT NULL AS is_extension
FROM pg_depend AS d JOIN pg_namespace AS n ON n.oid = d.refobjid
LEFT JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
LEFT JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
LEFT JOIN pg_extension AS e ON d.classid = 'pg_extension'::regclass AND e.oid = d.objid
WHERE d.refclassid = 'pg_namespace'::regclass AND n.nspname = $1::text AND d.deptype = 'n'
  AND NOT EXISTS (SELECT FROM pg_depend AS m WHERE m.deptype = 'e'
                  AND m.classid = d.classid AND m.objid = d.objid)
  AND NOT EXISTS (SELECT FROM kanon.publication AS o WHERE c.relname = ANY (o.relations))
  AND NOT EXISTS (SELECT FROM kanon.budget AS b WHERE b.counter = c.relname)
  AND NOT EXISTS (SELECT FROM kanon.withdrawn() AS w WHERE w.relation = c.oid)
  AND e.extname IS DISTINCT FROM $2::text AND p.proname IS DISTINCT FROM 'require_visible'
ORDER BY 1
"""


def _refuse_others(session: PsycopgSession, schema: str, *, drop: bool) -> None:
    """Refuse to drop what others have laid beside publications, unless asked to.

    An extension is never dropped: what others have made with it would go, too.
    """
    objects = session.fetch(_OTHERS, schema, EXTENSION)
    names = [row["name"] for row in objects if row["is_extension"] or not drop]
    if names:
        hint = "move them elsewhere" if drop else "move them elsewhere, or pass --drop-publications"
        raise InUseError(
            "the schema of publications holds what is no publication",
            detail=f'in schema "{schema}": {", ".join(names)}',
            hint=hint,
        )


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


def _refuse_renamed(session: PsycopgSession) -> None:
    """Refuse to go on where somebody has renamed the schema kanon, and say what it is called."""
    if (name := read_new_name(session)) is not None:
        raise ServerError(
            "the schema kanon has been renamed",
            detail=f"schema {name}",
            hint=f"ALTER SCHEMA {name} RENAME TO kanon",
        )


_ABSENT: Final = (UNDEFINED_SCHEMA, UNDEFINED_TABLE)


def _lock(session: PsycopgSession) -> None:
    """Let nobody else install or remove kanon_db meanwhile."""
    try:
        with session.savepoint():
            session.fetch("LOCK TABLE kanon.setting IN SHARE ROW EXCLUSIVE MODE")
    except DatabaseError as error:
        if error.sqlstate not in _ABSENT:
            raise


_TABLES: Final = """
SELECT string_agg(c.oid::regclass::text, ', ') AS names FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = ANY ($1::text[]) AND c.relkind = 'r'
HAVING bool_or(c.oid = to_regclass('kanon.setting'))
"""
_BRIEFLY: Final = {"lock_timeout": "500ms"}
_PAUSE: Final = 0.1
"""Seconds in which others get the locks that they wait for."""


def _close(session: PsycopgSession) -> None:
    """Wait for all who use kanon_db, publishers and jobs among them, and let nobody begin."""
    # Each has some tables, and will need others: who waited for one, and held another, would make a
    # deadlock.
    while tables := session.fetch(_TABLES, ["kanon", QUEUE]):
        try:
            with session.savepoint(), settings(session, _BRIEFLY):
                session.fetch(f"LOCK TABLE {tables[0]['names']} IN ACCESS EXCLUSIVE MODE")
        except DatabaseError as error:
            if error.sqlstate not in (LOCK_NOT_AVAILABLE, *_ABSENT):
                raise
            time.sleep(_PAUSE)
        else:
            return
    raise ServerError("kanon_db is not installed in this database", hint="there is nothing to do")


def _choose_schema(session: PsycopgSession, wanted: str) -> str:
    """Return the schema of publications, which the first installation chose for good."""
    if session.fetch("SELECT 1 WHERE to_regclass('kanon.setting') IS NULL"):
        return wanted
    rows = session.fetch("SELECT value FROM kanon.setting WHERE name = 'published_schema'")
    return str(rows[0]["value"]) if rows else wanted


def _create_schema(session: PsycopgSession) -> None:
    """Create the schema of kanon_db; take an existing one only if it is empty or ours."""
    rows = session.fetch(
        "SELECT EXISTS (SELECT FROM pg_depend AS d"
        " WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = n.oid) AS filled"
        " FROM pg_namespace AS n WHERE n.nspname = 'kanon'"
    )
    if not rows:
        session.fetch("CREATE SCHEMA kanon")
    elif rows[0]["filled"] and _revision(session) is None:
        raise PermissionDeniedError(
            "a schema of this name exists and is not empty",
            detail='schema "kanon"',
            hint=NOT_ADOPTED,
        )


def _revision(session: PsycopgSession) -> str | None:
    if session.fetch("SELECT 1 WHERE to_regclass('kanon.alembic_version') IS NULL"):
        return None
    rows = session.fetch("SELECT version_num FROM kanon.alembic_version")
    return str(rows[0]["version_num"]) if rows else None


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


# Where the roles of a dump are missing, whoever restores it owns its relations. Only who owns a
# relation can give it the mark of a publication.
_UNOWNED: Final = """
SELECT c.relname::text AS name, CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE'
    WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'TABLE' END AS kind
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_roles AS r ON r.oid = c.relowner
WHERE n.nspname = $1::text AND r.rolname <> $2::text
  AND (r.rolname = current_user OR r.rolsuper AND (
    SELECT u.rolsuper FROM pg_roles AS u WHERE u.rolname = current_user))
  AND (c.relkind IN ('r', 'v', 'm') AND EXISTS (
        SELECT FROM kanon.publication AS p WHERE c.relname = ANY (p.relations)
        AND starts_with(obj_description(c.oid, 'pg_class'), kanon.mark(p.publication_id)))
    OR c.relkind = 'S' AND EXISTS (SELECT FROM kanon.budget AS b WHERE b.counter = c.relname))
ORDER BY c.relname
"""


def give_back(session: PsycopgSession, schema: str) -> list[str]:
    """Make restored relations and counters belong to the owner of all publications again.

    Returns what was done, for people to read.
    """
    rows = session.fetch(_UNOWNED, schema, OWNER)
    for row in rows:
        name, owner = session.identifier(schema, row["name"]), session.identifier(OWNER)
        session.fetch(f"ALTER {row['kind']} {name} OWNER TO {owner}")
        if row["kind"] != "SEQUENCE":
            session.fetch("SELECT kanon.owner_close_type($1::text::regclass)", name)
    return [f"{len(rows)} relations of publications belong to {OWNER} again"] if rows else []


_ELSEWHERE: Final = (
    "SELECT FROM kanon.setting AS s WHERE s.name = 'home' AND s.value <> kanon.here()"
)

_LOST: Final = """
SELECT p.name, p.kind, p.relations, p.published_by::text AS publisher,
       -- Whoever published wrote the entry: it may be anything, and must stop nothing.
       ARRAY(SELECT r.name #>> '{}' FROM jsonb_path_query(
            p.parameters, '$.readers[*] ? (@.type() == "string")') AS r (name)) AS readers,
       EXISTS (SELECT FROM pg_roles WHERE rolname = p.published_by) AS has_publisher
FROM kanon.publication AS p
WHERE kanon.is_lost(p) AND EXISTS (SELECT FROM kanon.owned(p)) ORDER BY p.publication_id
"""


def repair_restored(session: PsycopgSession, schema: str) -> list[str]:
    """Grant publications to those who were named when they were published, after a restore.

    Returns what was done, for people to read.
    """
    # Only in another database than the one where kanon_db was last installed, and only publications
    # whose grants were lost altogether. Elsewhere, a role of the same name may be a stranger, and
    # what has been granted and revoked since then stays as it is.
    lost = session.fetch(_LOST)
    done = [
        _grant_again(session, schema, publication)
        for publication in lost
        if publication["has_publisher"]
    ]
    if any(not publication["has_publisher"] for publication in lost):
        missing = sorted(
            {publication["publisher"] for publication in lost if not publication["has_publisher"]}
        )
        return [*done, f"there is no role {', '.join(missing)}: create it, and install again"]
    session.fetch("INSERT INTO kanon.setting (name, value) VALUES ('home', kanon.here())")
    return done


def _grant_again(session: PsycopgSession, schema: str, publication: Any) -> str:
    closed = kind_named(publication["kind"]).load().closed
    wanted = publication["readers"]
    rows = session.fetch(
        "SELECT rolname::text AS role FROM pg_roles WHERE rolname = ANY ($1::text[])", wanted
    )
    readers = [row["role"] for row in rows]
    publisher = session.identifier(publication["publisher"])
    for relation in publication["relations"]:
        name = session.identifier(schema, relation)
        if relation[len(publication["name"]) :] in closed:
            session.fetch(f"GRANT SELECT ON {name} TO {publisher}")
            continue
        for reader in readers:
            session.fetch(f"GRANT SELECT ON {name} TO {session.identifier(reader)}")
        session.fetch(f"GRANT SELECT ON {name} TO {publisher} WITH GRANT OPTION")
    missing = sorted(set(wanted) - set(readers))
    return (
        f'publication "{publication["name"]}" granted again to {publication["publisher"]},'
        " who published it,"
        f" and to its readers {', '.join(readers) or '(none)'}"
        + (f"; there is no role {', '.join(missing)}" if missing else "")
    )
