"""Installs what a server without PL/Python needs: the queue of jobs, and logins for its workers.

A worker has a login for the queue, which reads no data, and one for each role that submits jobs,
which is a member of that role and of nothing else. So code of a role's that runs in such a session
can become nobody else, whatever it does (RESET ROLE included).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata, resources
from pathlib import Path
from typing import Final

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from kanon_db.catalog.entries import OWNER
from kanon_db.errors import DatabaseError, NotFoundError, PermissionDeniedError, ServerError
from kanon_db.session import fetch_one
from kanon_db.session.psycopg_session import PsycopgSession, open_connection

QUEUE: Final = "kanon_queue"
"""The schema of the queue; procrastinate's objects name none."""
WORKER: Final = "kanon_worker"
"""The login that fetches jobs from the queue."""
ACTING: Final = "kanon_as_"
"""How logins that act for a role begin; its number follows, since a role may be renamed."""
_CONNECTIONS: Final = 8
"""Of such a login at once: what its role's code opens takes none from others."""

_REACHABLE: Final = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""By which a worker notices within a minute that a server is out of reach."""

POWERFUL: Final = """EXISTS (
    SELECT FROM pg_roles AS p WHERE pg_has_role(r.oid, p.oid, 'MEMBER') AND (
        p.rolsuper OR p.rolcreaterole OR p.rolreplication OR p.rolname IN ('kanon_owner',
            'kanon_worker', 'pg_execute_server_program', 'pg_read_server_files',
            'pg_write_server_files')))"""
"""Whether a role `r` is a superuser or an administrator, or can become one: nobody acts for it."""

_SET_OPTION: Final = 160000
"""The server's version from which a membership says whether it is inherited and can be set."""


def is_service(session: PsycopgSession) -> bool:
    """Tell whether operations are jobs of a worker in this database."""
    rows = session.fetch(
        "SELECT 1 FROM pg_namespace AS n JOIN pg_class AS c ON c.relnamespace = n.oid"
        " AND c.relname = 'procrastinate_jobs' WHERE n.nspname = $1::text",
        QUEUE,
    )
    return bool(rows)


def require_rights(session: PsycopgSession) -> None:
    """Make sure that a role that is no superuser may create what an installation consists of."""
    row = fetch_one(
        session,
        "SELECT rolname::text AS role, rolcreaterole AS creates_roles, current_database()::text"
        " AS database, has_database_privilege(current_database(), 'CREATE') AS creates_schemas"
        " FROM pg_roles WHERE rolname = current_user",
    )
    lacking = [
        what
        for what, held in (
            ("CREATEROLE", row["creates_roles"]),
            (f"CREATE on database {row['database']}", row["creates_schemas"]),
        )
        if not held
    ]
    if lacking:
        raise PermissionDeniedError(
            "installing needs a superuser, or a role that may create roles and schemas",
            detail=f"role {row['role']} lacks {' and '.join(lacking)}",
            hint="connect as the server's administrator; publishing does not need these rights",
        )


@contextmanager
def owning(session: PsycopgSession) -> Iterator[None]:
    """Run the block as a member of the owner of publications, as superusers always are.

    Where the role that installs is no superuser, it could not give the owner anything.
    """
    if is_superuser(session):
        yield
        return
    for statement in BEFORE_OWNING:
        session.fetch(statement)
    yield
    for statement in AFTER_OWNING:
        session.fetch(statement)


@contextmanager
def member_of(session: PsycopgSession, roles: Sequence[str]) -> Iterator[None]:
    """Run the block with the rights of roles; after an error, the transaction gives them back."""
    if is_superuser(session):
        yield
        return
    names = ", ".join(map(session.identifier, roles))
    session.fetch(_BECOMING.format(roles=names))
    yield
    session.fetch(_LEAVING.format(roles=names))


# Before PostgreSQL 16, the member itself inherits or not.
_BECOMING: Final = """\
DO $becoming$
BEGIN
    EXECUTE $grant$GRANT {roles} TO CURRENT_USER$grant$
        || CASE WHEN pg_catalog.current_setting('server_version_num')::pg_catalog.int4 >= 160000
           THEN ' WITH INHERIT TRUE, SET TRUE' ELSE '' END;
END
$becoming$"""
_LEAVING: Final = "REVOKE {roles} FROM CURRENT_USER"

BEFORE_OWNING: Final = (
    _BECOMING.format(roles=OWNER),
    f"GRANT CREATE ON SCHEMA kanon TO {OWNER}",
)
AFTER_OWNING: Final = (
    f"REVOKE CREATE ON SCHEMA kanon FROM {OWNER}",
    _LEAVING.format(roles=OWNER),
)
"""By which who is no superuser becomes a member of the owner of publications, and leaves it."""


def is_superuser(session: PsycopgSession) -> bool:
    """Tell whether the current role is a superuser."""
    row = fetch_one(session, "SELECT current_setting('is_superuser') AS value")
    return bool(row["value"] == "on")


def _options(session: PsycopgSession) -> str:
    """Write that a login inherits nothing; before PostgreSQL 16, the login itself says so."""
    row = fetch_one(session, "SELECT current_setting('server_version_num')::int4 AS value")
    return "" if row["value"] < _SET_OPTION else " WITH INHERIT FALSE, SET TRUE"


_QUEUE_SCRIPT: Final = """
SELECT pg_catalog.set_config('search_path', '{queue}, pg_catalog, pg_temp', true);
{scripts}
-- Whoever may connect would hear of each job; workers look for them instead.
DROP TRIGGER IF EXISTS procrastinate_jobs_notify_queue_job_inserted_v1
    ON {queue}.procrastinate_jobs;
DROP TRIGGER IF EXISTS procrastinate_jobs_notify_queue_job_aborted_v1
    ON {queue}.procrastinate_jobs;
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
INSERT INTO kanon.setting (name, value) VALUES ('queue', '{version}')
ON CONFLICT ON CONSTRAINT setting_pkey DO UPDATE SET value = excluded.value;
"""


def queue_script(before: str | None = None) -> str:
    """Write how the queue is created, or brought up to date from an earlier procrastinate's.

    Raises ServerError where procrastinate is missing, or older than the queue.
    """
    try:
        version = metadata.version("procrastinate")
        scripts = resources.files("procrastinate") / "sql"
    except (metadata.PackageNotFoundError, ModuleNotFoundError):
        raise ServerError(
            "the queue needs procrastinate",
            detail="it is not installed here",
            hint="pip install 'kanon_db[service]'",
        ) from None
    if before is None:
        wanted = [f"CREATE SCHEMA {QUEUE};", (scripts / "schema.sql").read_text(encoding="utf-8")]
    elif _numbers(before) > _numbers(version):
        raise ServerError(
            "the queue is newer than this procrastinate",
            detail=f"queue: {before}, here: {version}",
            hint="pip install --upgrade 'kanon_db[service]'",
        )
    else:
        # Their names begin with the version that needs them, as 03.04.00.
        migrations = sorted(
            (path for path in (scripts / "migrations").iterdir() if path.name.endswith(".sql")),
            key=lambda path: path.name,
        )
        wanted = [
            path.read_text(encoding="utf-8")
            for path in migrations
            if _numbers(before) < _numbers(path.name[:8]) <= _numbers(version)
        ]
    return _QUEUE_SCRIPT.format(queue=QUEUE, scripts="\n".join(wanted), version=version)


def install_queue(session: PsycopgSession) -> str:
    """Create the queue, or bring it up to date; say so, for people to read."""
    statement = "SELECT value FROM kanon.setting WHERE name = 'queue'"
    rows = session.fetch(statement)
    before = str(rows[0]["value"]) if rows else None
    session.connection.execute(queue_script(before).encode())
    version = fetch_one(session, statement)["value"]
    return f"queue of procrastinate {version}, was {before or 'absent'}"


CREATED: Final = """(m.admin_option AND EXISTS (
    SELECT FROM pg_roles AS u WHERE u.oid = m.member AND NOT u.rolsuper
        AND (u.rolname = current_user OR u.oid = (
            SELECT n.nspowner FROM pg_namespace AS n WHERE n.nspname = 'kanon'))))"""
"""Whether a membership `m` is that of the administrator, who has created the role."""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3])


def read_key(path: Path, *, create: bool = False) -> bytes:
    """Read the key of a server's workers; create it the first time, if asked to.

    Raises ServerError where it cannot be read, or others can read it.
    """
    try:
        if create and not path.exists():
            path.touch(0o600, exist_ok=False)
            path.write_text(secrets.token_hex(32) + "\n", encoding="ascii")
        mode = path.stat().st_mode
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ServerError(
            "the key of the workers cannot be read",
            detail=f"{path}: {getattr(error, 'strerror', None) or 'it is not a key'}",
            hint="kanon service allow ROLE --key-file FILE creates it",
        ) from None
    if mode & 0o077:
        raise ServerError(
            "others can read the key of the workers", detail=str(path), hint=f"chmod 600 {path}"
        )
    if len(text) < 32:
        raise ServerError(
            "the key of the workers is too short",
            detail=str(path),
            hint="give the file that kanon service allow ROLE --key-file FILE has made",
        )
    return text.encode()


def login_password(key: bytes, login: str) -> str:
    """Return the password of a worker's login, which nobody can guess from another one's."""
    digest = hmac.digest(key, f"kanon_db login {login}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def login_dsn(dsn: str, key: bytes | None, login: str, **options: str) -> str:
    """Return the connection string of a worker's login, from that of the server."""
    given = _REACHABLE | {name: str(text) for name, text in conninfo_to_dict(dsn).items() if text}
    given |= {"user": login, **options}
    given.pop("password", None)
    if key is not None:
        given["password"] = login_password(key, login)
    return make_conninfo(**given)


def allow(dsn: str, roles: Sequence[str], key: bytes | None) -> list[str]:
    """Let workers act for roles, and set the passwords of all logins that this takes.

    `key`: what passwords are made of; None sets none. Returns what was done, for people.
    """
    done = []
    with open_connection(dsn) as connection:
        session = PsycopgSession(connection)
        with session.transaction():
            require_service(session)
            _set_password(session, WORKER, key)
            done.append(f"{WORKER} fetches jobs")
            for role in roles:
                login = _login_for(session, role)
                _set_password(session, login, key)
                done.append(f"{login} acts for {role}")
                done += _give_settings(session, login, role)
    return done


_SETTINGS: Final = """
SELECT coalesce(' IN DATABASE ' || quote_ident(d.datname), '') AS place,
       split_part(e, '=', 1) AS name,
       substr(e, strpos(e, '=') + 1) AS value
FROM pg_db_role_setting AS s CROSS JOIN unnest(s.setconfig) AS e
JOIN pg_settings AS g ON g.name = split_part(e, '=', 1) AND g.context <> 'user'
LEFT JOIN pg_database AS d ON d.oid = s.setdatabase
WHERE s.setrole = to_regrole($1::text) AND NOT EXISTS (
    SELECT FROM pg_db_role_setting AS l WHERE l.setrole = to_regrole($2::text)
        AND l.setdatabase = s.setdatabase AND e = ANY (l.setconfig))
"""
"""Settings of a role that it may not set itself; it sets the others when it performs a job."""


_HAVING_SETTINGS: Final = """
SELECT coalesce(' IN DATABASE ' || quote_ident(d.datname), '') AS place
FROM pg_db_role_setting AS s LEFT JOIN pg_database AS d ON d.oid = s.setdatabase
WHERE s.setrole = to_regrole($1::text)
"""


def _give_settings(session: PsycopgSession, login: str, role: str) -> list[str]:
    """Give a login the settings of its role that only superusers may set; tell what is lacking."""
    lacking = []
    for row in session.fetch(_HAVING_SETTINGS, login):
        session.fetch(f"ALTER ROLE {login}{row['place']} RESET ALL")
    for row in session.fetch(_SETTINGS, session.identifier(role), login):
        name = session.identifier(row["name"])
        statement = f"ALTER ROLE {login}{row['place']} SET {name}"
        before = fetch_one(session, "SELECT current_setting($1::text) AS value", row["name"])[
            "value"
        ]
        change = "SELECT set_config($1::text, $2::text, true)"
        try:
            with session.savepoint():
                session.fetch(change, row["name"], row["value"])
                session.fetch(f"{statement} FROM CURRENT")
                session.fetch(change, row["name"], before)
        except DatabaseError:
            lacking.append(
                f"jobs of {role} are refused until a superuser has said: {statement} TO"
                f" {session.literal(row['value'])}"
            )
    return lacking


def forbid(dsn: str, roles: Sequence[str]) -> list[str]:
    """Close and drop the logins with which workers act for roles; say what was done.

    What a login owns in another database keeps it from being dropped, and not from being closed.
    """
    done = []
    with open_connection(dsn) as connection:
        session = PsycopgSession(connection)
        for role in roles:
            with session.transaction():
                login = role if _LOGIN.fullmatch(role) else f"{ACTING}{_role(session, role)['oid']}"
            done.append(f"no worker acts for {role}")
            if login in _logins(session):
                _close(session, login)
                done += _drop(session, login)
    return done


_LOGIN: Final = re.compile(f"{ACTING}[0-9]+")
_CLOSING: Final = 20
"""How often a login is closed that changes itself at the same time."""


def _logins(session: PsycopgSession) -> list[str]:
    with session.transaction():
        return logins(session)


def _close(session: PsycopgSession, login: str) -> None:
    """Take everything from a login: nothing that its role's code does hinders or undoes this."""
    for attempt in range(_CLOSING):
        try:
            with session.transaction():
                session.fetch("SET LOCAL lock_timeout = '500ms'")
                _end_sessions(session, login)
                session.fetch(f"ALTER ROLE {login} NOLOGIN PASSWORD NULL CONNECTION LIMIT 0")
        except DatabaseError as error:
            # A session of its own changes it at this moment, and is about to end.
            if attempt + 1 == _CLOSING or error.sqlstate not in ("55P03", "XX000"):
                raise
        else:
            break
    with session.transaction():
        memberships = session.fetch(_MEMBERSHIPS, login)
    for row in memberships:
        # From PostgreSQL 16, what somebody else has granted has to be named.
        by = f" GRANTED BY {row['grantor']}" if row["grantor"] else ""
        with session.transaction():
            session.fetch(f"REVOKE {row['role']} FROM {login}{by}")
    with session.transaction():
        _end_sessions(session, login)


_MEMBERSHIPS: Final = """
SELECT m.roleid::regrole::text AS role,
       CASE WHEN current_setting('server_version_num')::int4 >= 160000
           THEN m.grantor::regrole::text END AS grantor
FROM pg_auth_members AS m WHERE m.member = to_regrole($1::text)
"""


def _end_sessions(session: PsycopgSession, login: str) -> None:
    with member_of(session, [login]):
        session.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1::text", login
        )


def _drop(session: PsycopgSession, login: str) -> list[str]:
    """Drop a login that is closed, or tell what it owns elsewhere, which nobody else gets."""
    try:
        with session.transaction():
            session.fetch("SET LOCAL lock_timeout = '2s'")
            # What code of the role's has created as the login, by RESET ROLE, goes with it.
            with member_of(session, [login]):
                session.fetch(f"DROP OWNED BY {login} CASCADE")
            session.fetch(f"DROP ROLE {login}")
    except DatabaseError as error:
        with session.transaction():
            rows = session.fetch(
                "SELECT DISTINCT quote_ident(d.datname) AS name FROM pg_shdepend AS o"
                " JOIN pg_database AS d ON d.oid = o.dbid"
                " WHERE o.refclassid = 'pg_authid'::regclass AND o.refobjid = to_regrole($1::text)"
                " ORDER BY 1",
                login,
            )
        where = ", ".join(row["name"] for row in rows)
        reason = (
            f"DROP OWNED BY {login} in {where}" if where else f"once this ends: {error.message}"
        )
        return [f"{login} can do nothing any more, but is still there: {reason}; DROP ROLE {login}"]
    return []


def logins(session: PsycopgSession) -> list[str]:
    """Return the logins that act for roles, also of roles that are gone."""
    rows = session.fetch(
        "SELECT rolname::text AS name FROM pg_roles WHERE rolname ~ $1::text ORDER BY rolname",
        f"^{ACTING}[0-9]+$",
    )
    return [str(row["name"]) for row in rows]


def require_service(session: PsycopgSession) -> None:
    """Make sure that operations are jobs in this database."""
    if not is_service(session):
        raise ServerError(
            "this database has no queue of jobs",
            detail="its operations run inside of the server, or kanon_db is not installed",
            hint="kanon install --service",
        )


def _role(session: PsycopgSession, role: str) -> dict[str, object]:
    rows = session.fetch(
        f"SELECT oid::text AS oid, {POWERFUL} AS is_powerful,"
        " pg_has_role(oid, 'MEMBER WITH ADMIN OPTION') AS is_ours FROM pg_roles AS r"
        " WHERE rolname = $1::text",
        role,
    )
    if not rows:
        raise NotFoundError("there is no such role", detail=f'role "{role}"')
    return dict(rows[0])


def _login_for(session: PsycopgSession, role: str) -> str:
    found = _role(session, role)
    if found["is_powerful"] or role in (OWNER, WORKER) or role.startswith(ACTING):
        raise PermissionDeniedError(
            "no worker acts for a role that can do so much",
            detail=f'role "{role}" is a superuser, creates roles, replicates, reaches the server\'s'
            " files or is our own, or is a member of such a role: code attached to what it reads"
            " would have its rights",
            hint="let a role submit jobs that can read its sources, and little else",
        )
    login = f"{ACTING}{found['oid']}"
    # An earlier login may have been given anything: only a new one is known to have nothing.
    if not session.fetch("SELECT 1 FROM pg_roles WHERE rolname = $1::text", login):
        session.fetch(f"CREATE ROLE {login}")
    session.fetch(f"ALTER ROLE {login} LOGIN NOINHERIT CONNECTION LIMIT {_CONNECTIONS}")
    options = _options(session)
    if options and not found["is_ours"]:  # before, whoever created roles could grant any
        administrator = fetch_one(session, "SELECT quote_ident(current_user) AS name")["name"]
        raise PermissionDeniedError(
            "an administrator must be allowed to grant the role",
            detail=f'somebody else has created role "{role}"',
            hint=f"GRANT {session.identifier(role)} TO {administrator} WITH ADMIN OPTION,"
            " as whoever has created it",
        )
    session.fetch(f"GRANT {session.identifier(role)} TO {login}{options}")
    memberships = session.fetch(
        "SELECT pg_get_userbyid(m.roleid)::text AS name FROM pg_auth_members AS m"
        " WHERE m.member = to_regrole($1::text) AND m.roleid <> $2::text::oid",
        login,
        str(found["oid"]),
    )
    if memberships:
        raise PermissionDeniedError(
            "a worker's login must be a member of one role only",
            detail=f"{login} is a member of {', '.join(row['name'] for row in memberships)}, too",
            hint=f"DROP ROLE {login}",
        )
    return login


def _set_password(session: PsycopgSession, login: str, key: bytes | None) -> None:
    if key is None:
        return
    # The server gets a verifier, so that no log has the password.
    verifier = session.connection.pgconn.encrypt_password(
        login_password(key, login).encode(), login.encode()
    ).decode("ascii")
    session.fetch(f"ALTER ROLE {login} PASSWORD {session.literal(verifier)}")
