"""Examines an installation: what is there, what is wrong, and which command repairs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Literal

from psycopg import ConnectionInfo

import kanon_db
from kanon_db.catalog.entries import EMPTY_CATALOG, OWNER, REFILL_CATALOG, published_schema
from kanon_db.cluster.cluster_folder import ENVIRONMENT
from kanon_db.dataclasses import dataclass
from kanon_db.declaration import EVERYBODY
from kanon_db.errors import DatabaseError, PermissionDeniedError, ServerError
from kanon_db.installation.extension import EXTENSION, PUBLISHED, is_available, read_version
from kanon_db.installation.install import dependents, read_new_name
from kanon_db.installation.interpreter import (
    can_import,
    import_paths,
    is_current,
    server_interpreter,
)
from kanon_db.installation.service import (
    CREATED,
    POWERFUL,
    WORKER,
    is_service,
    is_superuser,
    logins,
)
from kanon_db.installation.sql_objects import function_names, migration_script
from kanon_db.session.protocol import fetch_one
from kanon_db.session.psycopg_session import PsycopgSession, open_connection

State = Literal["ok", "warning", "broken"]


@dataclass(frozen=True)
class Diagnosis:
    """One line of the examination."""

    subject: str
    state: State
    value: str  # What was found
    remedy: str = ""  # The command or statement that fixes it; empty when there is nothing to do


def examine(dsn: str) -> list[Diagnosis]:
    """Examine the server, its Python, the installation and the roles, without changing anything.

    Raises ServerError when no connection can be made.
    """
    with open_connection(dsn) as connection:
        session = PsycopgSession(connection)
        findings = [*_examine_connection(connection.info)]
        try:
            with session.transaction():
                findings += [*_examine_server(session), *_examine_installation(session)]
                needs_python = not session.fetch(f"SELECT 1 FROM {_AVAILABLE}") and _needs_python(
                    session
                )
        except PermissionDeniedError as error:
            # We must not call its functions, which would run with the rights of the current role.
            reason = f"{error.message}: {error.detail}"
            return [*findings, Diagnosis("schema kanon", "broken", reason, error.hint)]
    # Who is no superuser installs without PL/Python.
    later = {"kanon install": "PL/Python first, then kanon install"} if needs_python else {}
    return [replace(one, remedy=later.get(one.remedy, one.remedy)) for one in findings]


def _examine_connection(info: ConnectionInfo) -> Iterator[Diagnosis]:
    """Say what the server has said of itself, without running anything."""
    yield Diagnosis("PostgreSQL", "ok", info.parameter_status("server_version") or "unknown")
    yield Diagnosis("database", "ok", info.dbname)
    is_almighty = info.parameter_status("is_superuser") == "on"
    yield Diagnosis("role", "ok", f"{info.user}{', superuser' if is_almighty else ''}")


_AVAILABLE: Final = "pg_available_extensions WHERE name = 'plpython3u'"


def _needs_python(session: PsycopgSession) -> bool:
    """Tell whether operations are to run in PL/Python, rather than as jobs of a worker."""
    return is_superuser(session) and not is_service(session)


def _judge(subject: str, value: str, remedy: str = "kanon install", *, is_ok: bool) -> Diagnosis:
    return Diagnosis(subject, "ok", value) if is_ok else Diagnosis(subject, "broken", value, remedy)


def _examine_server(session: PsycopgSession) -> Iterator[Diagnosis]:
    if is_service(session):
        yield Diagnosis("PL/Python", "ok", "not needed: operations are jobs of a worker")
        return
    if not session.fetch(f"SELECT 1 FROM {_AVAILABLE}"):
        version = fetch_one(session, "SELECT current_setting('server_version') AS value")["value"]
        major = version.split(".")[0]
        yield Diagnosis(
            "PL/Python", "broken", "not available",
            f"apt-get install postgresql-plpython3-{major}, on the server; or kanon install"
            " --service",
        )  # fmt: skip
        return
    if not session.fetch("SELECT 1 FROM pg_extension WHERE extname = 'plpython3u'"):
        yield Diagnosis("PL/Python", "broken", "not created in this database", "kanon install")
        return
    yield Diagnosis("PL/Python", "ok", "created in this database")
    if not is_superuser(session):
        yield Diagnosis(
            "server's Python", "warning", "only a superuser can examine it",
            "kanon doctor --dsn ... as the server's administrator",
        )  # fmt: skip
        return
    server = server_interpreter(session)
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    versions = f"{server.version}, as operating-system user {server.os_user}; here {ours}"
    remedy = "run kanon from an environment of the server's Python"
    yield _judge("server's Python", versions, remedy, is_ok=server.version == ours)
    copied = [str(server.data_directory.parent / ENVIRONMENT)]
    for paths in (import_paths(), copied):
        if can_import(session, paths):
            yield Diagnosis("environment", "ok", ", ".join(paths))
            return
    yield Diagnosis(
        "environment",
        "warning",
        f"{', '.join(import_paths())} (the server cannot read it)",
        "kanon install copies it for a private cluster",
    )


def _examine_installation(session: PsycopgSession) -> Iterator[Diagnosis]:
    # Not to_regclass(), which fails if the role may not use the schema.
    rows = session.fetch(
        "SELECT has_schema_privilege(n.oid, 'USAGE') AS usable FROM pg_namespace AS n"
        " JOIN pg_class AS c ON c.relnamespace = n.oid"
        " WHERE n.nspname = 'kanon' AND c.relname = 'publications'"
    )
    if not rows:
        name = read_new_name(session)
        state = f"its schema is called {name}" if name else "not installed in this database"
        remedy = f"ALTER SCHEMA {name} RENAME TO kanon" if name else "kanon install"
        yield Diagnosis("kanon_db", "broken", state, remedy)
        return
    yield _examine_functions(session)
    yield _examine_rights(session)
    yield _examine_extension(session)
    for role in (*EVERYBODY, OWNER):
        yield _examine_role(session, role)
    if not rows[0]["usable"]:
        yield Diagnosis("kanon_db", "warning", "not open to this role", "grant it kanon_user")
        return
    version = _examine_version(session)
    yield version
    yield from _examine_catalog(session)
    if (
        version.state != "ok"
    ):  # what follows calls functions and reads columns as this package knows
        return
    if is_service(session):
        yield from _examine_service(session)
    n = fetch_one(session, "SELECT count(*) AS n FROM kanon.publications")["n"]
    yield Diagnosis("publications", "ok", f"{n} readable by this role")
    yield from _examine_publications(session)


def _examine_extension(session: PsycopgSession) -> Diagnosis:
    """Say whether PostgreSQL knows the installation as an extension."""
    version = read_version(session)
    if version is not None:
        is_ok = version == kanon_db.__version__
        return _judge("extension", f"{EXTENSION} {version}", is_ok=is_ok)
    if (
        is_available(session)
        and _needs_python(session)
        and session.fetch(
            "SELECT FROM kanon.setting WHERE (name, value) = ('published_schema', $1::text)",
            PUBLISHED,
        )
    ):
        value = "installed by statements, while the server has the extension's files"
        return Diagnosis("extension", "warning", value, "kanon install")
    return Diagnosis("extension", "ok", "none: installed by statements")


def _examine_functions(session: PsycopgSession) -> Diagnosis:
    rows = session.fetch(
        "SELECT p.proname::text AS name,"
        " p.prosecdef AND pg_get_userbyid(p.proowner) <> $1::text"
        # An expression that was parsed when it was installed looks nothing up any more.
        " OR NOT coalesce(p.proconfig && ARRAY['search_path=pg_catalog, pg_temp',"
        " 'search_path=pg_catalog, kanon_queue, pg_temp'], false)"
        " AND p.prosqlbody IS NULL AS open"
        " FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace"
        " WHERE n.nspname = 'kanon'",
        OWNER,
    )
    wanted = function_names(is_service=is_service(session))
    wrong = [
        *(f"{name} is missing" for name in sorted(wanted - {row["name"] for row in rows})),
        *(f"{row['name']} is not safe from look-alike objects" for row in rows if row["open"]),
    ]
    found = "; ".join(wrong) or f"{len(rows)}, as in this package"
    return _judge("functions", found, is_ok=not wrong)


_STRANGERS: Final = """
SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC'
    ELSE pg_get_userbyid(a.grantee)::text END AS name
FROM (
    SELECT n.nspowner AS owner, n.nspacl AS acl FROM pg_namespace AS n WHERE n.nspname = 'kanon'
    UNION ALL
    SELECT c.relowner, c.relacl FROM pg_class AS c
    WHERE c.relnamespace = 'kanon'::regnamespace
    UNION ALL
    SELECT p.proowner, coalesce(p.proacl, acldefault('f', p.proowner)) FROM pg_proc AS p
    WHERE p.pronamespace = 'kanon'::regnamespace
) AS o CROSS JOIN LATERAL aclexplode(o.acl) AS a
WHERE a.grantee <> o.owner AND pg_get_userbyid(a.grantee) <> ALL ($1::text[]) ORDER BY 1
"""


def _examine_rights(session: PsycopgSession) -> Diagnosis:
    """Look whether others than our roles may do anything in the schema."""
    rows = session.fetch(_STRANGERS, [*EVERYBODY, OWNER, WORKER])
    strangers = ", ".join(row["name"] for row in rows)
    roles = f"also of {strangers}" if rows else "of our roles"
    return _judge("rights in kanon", roles, is_ok=not rows)


_ACTING: Final = f"""
SELECT l.rolname::text AS login, r.rolname::text AS role,
       l.rolcanlogin AND r.rolcanlogin AS is_open, {POWERFUL} AS is_for_too_much,
       l.rolsuper OR l.rolcreaterole OR l.rolinherit OR (SELECT count(*) FROM pg_auth_members AS m
           WHERE m.member = l.oid) <> 1 AS is_powerful
FROM pg_roles AS l
LEFT JOIN pg_auth_members AS a ON a.member = l.oid AND l.rolname = 'kanon_as_' || a.roleid
LEFT JOIN pg_roles AS r ON r.oid = a.roleid
WHERE l.rolname = ANY ($1::text[]) ORDER BY l.rolname
"""


def _examine_service(session: PsycopgSession) -> Iterator[Diagnosis]:
    """Look whether somebody works, and for whom."""
    row = fetch_one(
        session,
        "SELECT count(*) AS n, (SELECT count(*) FROM kanon.jobs AS j WHERE j.state = 'waiting')"
        " AS waiting FROM kanon.workers",
    )
    waiting = f", {row['waiting']} jobs wait" if row["waiting"] else ""
    if row["n"]:
        yield Diagnosis("workers", "ok", f"{row['n']} heard of in the last minute{waiting}")
    else:
        yield Diagnosis("workers", "warning", f"none heard of{waiting}", "kanon worker")
    worker = fetch_one(
        session,
        "SELECT count(*) AS n, coalesce(bool_or(r.rolsuper OR r.rolcreaterole OR EXISTS (SELECT"
        " FROM pg_auth_members AS m WHERE m.member = r.oid)), false) AS is_powerful,"
        " (SELECT string_agg(m.member::regrole::text, ', ' ORDER BY 1) FROM pg_auth_members AS m"
        f" WHERE m.roleid = to_regrole($1::text) AND NOT {CREATED}) AS members"
        " FROM pg_roles AS r WHERE r.rolname = $1::text",
        WORKER,
    )
    if not worker["n"] or worker["is_powerful"]:
        state = "it can do more than fetch jobs" if worker["n"] else "missing"
        remedy = f"DROP ROLE {WORKER}, then kanon install" if worker["n"] else "kanon install"
        yield Diagnosis(f"role {WORKER}", "broken", state, remedy)
    if worker["members"]:
        yield Diagnosis(
            f"role {WORKER}", "broken",
            f"{worker['members']} can become it, see who asks what, and end jobs in its name",
            f"REVOKE {WORKER} FROM {worker['members']}",
        )  # fmt: skip
    acting = session.fetch(_ACTING, logins(session))
    for login in acting:
        if login["role"] is None:
            yield Diagnosis(
                f"role {login['login']}", "warning", "it acts for no role any more",
                f"kanon service forbid {login['login']}",
            )  # fmt: skip
        elif login["is_for_too_much"]:
            yield Diagnosis(
                f"role {login['login']}", "broken",
                f"{login['role']} can do too much: code attached to what it reads could, too",
                f"kanon service forbid {login['role']}",
            )  # fmt: skip
        elif login["is_powerful"]:
            yield Diagnosis(
                f"role {login['login']}", "broken", f"it can do more than {login['role']}",
                f"kanon service forbid {login['role']}, then allow it",
            )  # fmt: skip
        elif not login["is_open"]:
            yield Diagnosis(
                f"role {login['login']}", "warning", f"{login['role']} may not log in, and it may",
                f"kanon service forbid {login['role']}",
            )  # fmt: skip
    roles = ", ".join(login["role"] for login in acting if login["role"])
    yield Diagnosis("workers act for", "ok", roles or "no role: kanon service allow ROLE")
    if not session.fetch("SELECT 1 FROM pg_event_trigger WHERE evtname = 'kanon_watch_grants'"):
        yield Diagnosis("GRANT", "ok", "watched by workers, every ten seconds, and not at once")


def _examine_version(session: PsycopgSession) -> Diagnosis:
    try:
        with session.savepoint():
            version = fetch_one(session, "SELECT kanon.version() AS value")["value"]
    except DatabaseError as error:
        return Diagnosis("kanon_db", "broken", f"does not run: {error.message}", "kanon install")
    versions = f"{version} in the server, {kanon_db.__version__} here"
    if version == kanon_db.__version__ and not is_current(session):
        versions += ", which is not the same state of it"
        return Diagnosis("kanon_db", "broken", versions, "kanon install")
    return _judge("kanon_db", versions, is_ok=version == kanon_db.__version__)


def _examine_catalog(session: PsycopgSession) -> Iterator[Diagnosis]:
    rows = session.fetch(
        "SELECT has_table_privilege('kanon.alembic_version', 'SELECT') AS readable"
    )
    if not rows[0]["readable"]:
        return
    revisions = session.fetch("SELECT version_num AS value FROM kanon.alembic_version")
    if not revisions:
        yield Diagnosis("catalog", "broken", EMPTY_CATALOG, REFILL_CATALOG)
        return
    revision = revisions[0]["value"]
    try:
        behind = bool(migration_script(revision).strip())
    except ServerError as error:
        yield Diagnosis("catalog", "broken", f"{error.message}: {error.detail}", error.hint)
        return
    state = f"revision {revision}{', behind this package' if behind else ''}"
    yield _judge("catalog", state, is_ok=not behind)


# Everything that is amiss with sources and publications, each with the statement that mends it.
_AMISS: Final = """
SELECT format('publication %s', p.name) AS subject,
       'its relations are missing, have changed, or belong to somebody else' AS value,
       format('SELECT kanon.drop_publication(%L), and publish it again', p.name) AS remedy
FROM kanon.publications AS p WHERE p.state <> 'whole'
UNION ALL
SELECT format('publication %s', p.name), format('its reader %s cannot read it', r.name),
       CASE WHEN u.oid IS NULL THEN format('CREATE ROLE %I, and grant it the publication', r.name)
            ELSE format('GRANT SELECT ON %s TO %I', string_agg(c.oid::regclass::text, ', '), r.name)
       END
FROM kanon.publication AS p
CROSS JOIN jsonb_array_elements_text(p.parameters -> 'readers') AS r (name)
LEFT JOIN pg_roles AS u ON u.rolname = r.name
JOIN kanon.setting AS s ON s.name = 'published_schema'
JOIN pg_namespace AS n ON n.nspname = s.value
JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = ANY (p.relations)
    AND (c.relname = p.name OR EXISTS (
        SELECT FROM aclexplode(c.relacl) AS a WHERE a.is_grantable))
WHERE NOT coalesce(has_table_privilege(u.oid, c.oid, 'SELECT'), false)
GROUP BY p.name, r.name, u.oid
UNION ALL
SELECT format('relation %s', c.oid::regclass), 'it belongs to no publication',
       format('DROP %s %s', kanon.relation_kind(c.relkind), c.oid::regclass)
FROM kanon.setting AS s
JOIN pg_namespace AS n ON s.name = 'published_schema' AND n.nspname = s.value
JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relkind NOT IN ('i', 't', 'I')
WHERE NOT EXISTS (SELECT FROM kanon.publication AS p WHERE c.relname = ANY (p.relations))
  AND NOT EXISTS (SELECT FROM kanon.budget AS b WHERE b.counter = c.relname AND b.asked IS NULL)
  AND c.oid NOT IN (SELECT w.relation FROM kanon.withdrawn() AS w)
UNION ALL
SELECT format('publication %s', r.name), format('nobody counts its answers to %s', b.role_name),
       format('SELECT kanon.drop_publication(%L), and publish it again', r.name)
FROM kanon.budget AS b JOIN kanon.release AS r ON r.release_id = b.release_id
WHERE b.asked IS NULL AND kanon.counter_name(b) IS NULL
UNION ALL
SELECT format('source %I.%I', s.schema_name, s.relation_name),
       'it has changed since it was registered', 'register it again'
FROM kanon.source AS s JOIN pg_namespace AS n ON n.nspname = s.schema_name
JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = s.relation_name
WHERE kanon.fingerprint(c.oid) IS DISTINCT FROM s.fingerprint
UNION ALL
SELECT format('source %I.%I', s.schema_name, s.relation_name),
       format('it is called %I.%I by now', r.schema_name, r.relation_name),
       'refresh a publication of it, or register it again by that name, with the same roles'
FROM kanon.renamed_sources() AS r JOIN kanon.source AS s ON s.source_id = r.source_id
"""

# However it came about: PostgreSQL tells nobody that a role has a new member, and administrators
# grant as they like. What the ledger notes, nobody has accepted; and what was accepted for members
# of a role is for others who read both through the same one.
_COMBINING: Final = """
WITH reading AS (
    SELECT r.release_id, r.bases, r.base_names, p.name, l.role, l.name AS role_name,
           ARRAY(SELECT g.grantee FROM kanon.granted(p) AS g WHERE NOT g.is_publisher
                 AND (g.grantee = 0 OR pg_has_role(l.role, g.grantee, 'MEMBER'))) AS ways,
           coalesce(min(d.since), 'infinity') AS since, max(d.admitted) AS admitted
    FROM kanon.publication AS p JOIN kanon.release AS r ON r.publication_id = p.publication_id
    CROSS JOIN LATERAL kanon.readers(p) AS l
    LEFT JOIN kanon.release_reader AS d ON d.release_id = r.release_id AND d.role = l.role
    GROUP BY r.release_id, p.publication_id, l.role, l.name
), pairs AS (
    SELECT a.release_id AS one, b.release_id AS other, a.name, b.name AS other_name, a.role_name,
           ARRAY(SELECT unnest(a.ways) INTERSECT SELECT unnest(b.ways)) AS ways,
           coalesce(greatest(a.admitted, b.admitted) >= greatest(a.since, b.since), false)
               AS is_accepted
    FROM reading AS a JOIN reading AS b ON b.role = a.role AND b.release_id > a.release_id
        AND (a.bases && b.bases OR a.base_names && b.base_names)
)
SELECT format('role %s', p.role_name) AS subject,
       format('can read %s and %s, of the same people, which nobody has accepted', p.name,
              p.other_name) AS value,
       format('REVOKE one of the rights or roles that it reads them by; or whoever published %s'
              ' accepts it: SELECT kanon.grant_publication(%L, ''{%s}'', accept => ...)',
              p.other_name, p.other_name, p.role_name) AS remedy
FROM pairs AS p
WHERE NOT p.is_accepted AND NOT EXISTS (SELECT FROM pairs AS m
    WHERE m.is_accepted AND (m.one, m.other) = (p.one, p.other) AND m.ways && p.ways)
ORDER BY p.role_name, p.name, p.other_name
"""


# The schema of publications if it is gone: renamed to the one where most of their relations are?
_LOST_SCHEMA: Final = """
SELECT s.value AS schema, CASE
    WHEN found.schema IS NOT NULL
    THEN format('ALTER SCHEMA %I RENAME TO %I', found.schema, s.value)
    WHEN EXISTS (SELECT FROM kanon.publication)
    THEN format('restore it from a dump, or CREATE SCHEMA %I, then kanon install', s.value)
    ELSE 'kanon install' END AS remedy
FROM kanon.setting AS s
LEFT JOIN LATERAL (
    SELECT n.nspname AS schema
    FROM kanon.publication AS p
    JOIN pg_class AS c ON c.relname = ANY (p.relations)
    JOIN pg_namespace AS n ON n.oid = c.relnamespace AND kanon.is_administrator(n.nspowner)
    GROUP BY n.nspname ORDER BY count(*) DESC, n.nspname LIMIT 1
) AS found ON true
WHERE s.name = 'published_schema' AND to_regnamespace(quote_ident(s.value)) IS NULL
"""


def _examine_publications(session: PsycopgSession) -> Iterator[Diagnosis]:
    """Look for what a restored dump, or somebody with the rights to, has left amiss."""
    if not fetch_one(
        session,
        "SELECT kanon.is_administrator(oid) AS it_is FROM pg_roles WHERE rolname = current_user",
    )["it_is"]:
        return
    if lost := session.fetch(_LOST_SCHEMA):
        yield Diagnosis(f"schema {lost[0]['schema']}", "broken", "missing", lost[0]["remedy"])
        return  # each publication would seem to be gone
    states: dict[str, State] = {_AMISS: "warning", _COMBINING: "broken"}
    for statement, state in states.items():
        for row in session.fetch(statement):
            yield Diagnosis(row["subject"], state, row["value"], row["remedy"])
    yield from _examine_withdrawn(session)


def _examine_withdrawn(session: PsycopgSession) -> Iterator[Diagnosis]:
    """Say what keeps relations of publications that are gone: nothing has to be done about it."""
    row = fetch_one(
        session,
        "SELECT count(*) AS n, kanon.withdrawn_mark() AS mark,"
        " (SELECT count(*) FROM kanon.closed()) AS n_closed FROM kanon.withdrawn()",
    )
    if row["n_closed"]:
        yield Diagnosis(
            "closed relations",
            "ok",
            f"{row['n_closed']}, which nobody may read, until nobody keeps them in use (pg_locks)",
        )
    if row["n"] > row["n_closed"]:
        holders = dependents(session, _schema_of_publications(session), row["mark"])
        summary = f"{row['n'] - row['n_closed']}, empty and closed, until nothing depends on them"
        yield Diagnosis("withdrawn relations", "ok", f"{summary} ({', '.join(holders) or 'now'})")


def _examine_role(session: PsycopgSession, role: str) -> Diagnosis:
    rows = session.fetch(
        "SELECT rolsuper OR rolbypassrls AS powerful, rolcanlogin"
        " OR EXISTS (SELECT FROM pg_auth_members AS m JOIN pg_roles AS u ON u.oid = m.member"
        # Who installed it, and is no superuser, keeps the right to grant it.
        "  WHERE m.roleid = r.oid AND NOT (NOT u.rolsuper AND u.oid ="
        "   (SELECT n.nspowner FROM pg_namespace AS n WHERE n.nspname = 'kanon'))) AS open,"
        " ARRAY(SELECT name FROM unnest($2::text[])"
        " AS name JOIN pg_namespace AS n ON n.nspname = name"
        " WHERE NOT has_schema_privilege(r.oid, n.oid, 'USAGE')) AS closed"
        " FROM pg_roles AS r WHERE rolname = $1::text",
        role,
        ["kanon", *_schema_of_publications(session)],
    )
    subject = f"role {role}"
    if not rows:
        return Diagnosis(subject, "broken", "missing", "kanon install")
    if rows[0]["powerful"]:
        return Diagnosis(
            subject, "broken", "superuser or bypasses row security",
            f"ALTER ROLE {role} NOSUPERUSER NOBYPASSRLS",
        )  # fmt: skip
    if role == OWNER and rows[0]["open"]:
        return Diagnosis(
            subject, "broken", "it can log in, or has members",
            f"ALTER ROLE {role} NOLOGIN, and REVOKE it from its members",
        )  # fmt: skip
    if closed := rows[0]["closed"]:
        return Diagnosis(
            subject, "broken", f"cannot use schema {' and '.join(closed)}", "kanon install"
        )
    return Diagnosis(subject, "ok", "no special rights")


def _schema_of_publications(session: PsycopgSession) -> list[str]:
    """Return the schema's name, or nothing if the role may not read it."""
    try:
        with session.savepoint():
            return [published_schema(session)]
    except (DatabaseError, ServerError):  # may not read it; it is not there
        return []
