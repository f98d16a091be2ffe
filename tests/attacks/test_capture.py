"""Attacks on the installation: what somebody puts in its way beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from kanon_db.errors import PermissionDeniedError
from kanon_db.installation.doctor import examine
from kanon_db.installation.install import install, uninstall
from tests.acceptance.commands import kanon
from tests.clusters import admin, dsn
from tests.integration.parties import Connection, fetch, quoted, sqlstate_of, value

__all__ = ["admin", "dsn"]


@pytest.fixture
def stranger(
    dsn: str,
    admin: Connection,
    new_role: Callable[..., str],
    connect_as: Callable[[str, str], Connection],
) -> Iterator[Connection]:
    """A role of no rights but to create schemas in this database, and objects in public."""
    role = new_role()
    fetch(admin, f"GRANT CREATE ON DATABASE {quoted(admin.info.dbname)} TO {role}")
    fetch(admin, f"GRANT CREATE ON SCHEMA public TO {role}")
    with connect_as(dsn, role) as connection:
        yield connection


def foreign_objects(admin: Connection) -> list[tuple[str, str]]:
    """Functions, relations and types in our schemas that no superuser owns."""
    return fetch(
        admin,
        "SELECT n.nspname::text, o.name FROM (SELECT pronamespace, proname::text, proowner FROM"
        " pg_proc UNION ALL SELECT relnamespace, relname, relowner FROM pg_class UNION ALL"
        " SELECT typnamespace, typname, typowner FROM pg_type) AS o (namespace, name, owner)"
        " JOIN pg_namespace AS n ON n.oid = o.namespace JOIN pg_roles AS r ON r.oid = o.owner"
        " WHERE n.nspname IN ('kanon', 'published') AND NOT r.rolsuper"
        " AND (r.rolname, o.name) NOT IN"
        " (('kanon_owner', 'answer_question'), ('kanon_owner', 'run_errand'),"
        " ('kanon_owner', 'watch_grants'), ('kanon_owner', 'keep_publications'),"
        " ('kanon_owner', 'require_visible'))",
    )


SPY = "RETURNS text LANGUAGE sql AS $$SELECT 'captured'$$"

CLIMB = (
    "CREATE FUNCTION kanon.climb() RETURNS text LANGUAGE plpgsql AS $$BEGIN"
    " EXECUTE format('ALTER ROLE %I SET work_mem = %L', session_user, '7MB');"
    " RETURN '0001'; END$$"
)
"""What a function does is done with the rights of whoever reads a view that calls it."""

PLANTED = {
    "schema kanon": ["CREATE SCHEMA kanon"],
    "schema published": ["CREATE SCHEMA published"],
    "function in a schema of its own": [
        "CREATE SCHEMA kanon",
        f"CREATE FUNCTION kanon.version() {SPY}",
    ],
    "table in a schema of its own": [
        "CREATE SCHEMA kanon",
        "CREATE TABLE kanon.alembic_version (version_num text)",
        "INSERT INTO kanon.alembic_version VALUES ('0001')",
    ],
    **{
        f"view that climbs, {view}": [
            "CREATE SCHEMA kanon",
            CLIMB,
            f"CREATE VIEW kanon.{view} AS SELECT c AS version_num, c AS value FROM kanon.climb() c",
        ]
        for view in ("alembic_version", "setting", "publication", "publications")
    },
    "version() that climbs": [
        "CREATE SCHEMA kanon",
        CLIMB.replace("climb", "version"),
        "CREATE TABLE kanon.publications ()",
    ],
}

# Into schemas that the administrator made before, and let others use.
LATER_PLANTED = {
    "function": [f"CREATE FUNCTION kanon.version() {SPY}"],
    "overloaded function": [f"CREATE FUNCTION kanon.verify(varchar) {SPY}"],
    "catalog": ["CREATE TABLE kanon.setting (name text PRIMARY KEY, value text)"],
    "revision": [
        "CREATE TABLE kanon.alembic_version (version_num text)",
        "INSERT INTO kanon.alembic_version VALUES ('0001')",
    ],
    "type": ["CREATE TYPE kanon.publications AS (a int)"],
    "publication": ["CREATE TABLE published.census (a int)"],
    "view": ["CREATE VIEW kanon.publications AS SELECT 1 AS publication_id"],
}


@pytest.mark.pitfall(4)
def test_foreign_schema(dsn: str, admin: Connection, stranger: Connection) -> None:
    """A schema that somebody else made is not taken over, and nothing in it is run."""
    with pytest.raises(PermissionDeniedError, match="superuser"):
        install(psycopg.conninfo.make_conninfo(dsn, user=stranger.info.user))
    for planted, statements in PLANTED.items():
        for statement in statements:
            fetch(stranger, statement)
        before = foreign_objects(admin)
        for operation in (install, uninstall):
            if operation is install or "published" not in planted:
                with pytest.raises(PermissionDeniedError):
                    operation(dsn)
        assert "broken" in {finding.state for finding in examine(dsn)}, planted
        assert foreign_objects(admin) == before, planted  # nothing was done, so nothing was adopted
        settings = "SELECT rolconfig FROM pg_roles WHERE rolname = session_user"
        assert value(admin, settings) is None, planted  # nor was anything run
        assert fetch(admin, "SELECT FROM pg_language WHERE lanname = 'plpython3u'") == [], planted
        fetch(stranger, "DROP SCHEMA IF EXISTS kanon, published CASCADE")


@pytest.mark.pitfall(4)
def test_foreign_objects_in_a_trusted_schema(
    dsn: str, admin: Connection, stranger: Connection
) -> None:
    """Functions, tables and types of others in an administrator's schema are not taken over."""
    for planted, statements in LATER_PLANTED.items():
        for schema in ("kanon", "published"):
            fetch(admin, f"CREATE SCHEMA {schema}")
            fetch(admin, f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {stranger.info.user}")
        for statement in statements:
            fetch(stranger, statement)
        assert sqlstate_of(lambda: install(dsn)) == PermissionDeniedError.sqlstate, planted
        fetch(admin, "DROP SCHEMA kanon, published CASCADE")


@pytest.mark.pitfall(4)
def test_foreign_function_in_an_installation(
    dsn: str, admin: Connection, stranger: Connection
) -> None:
    """Empty schemas are used; an upgrade, too, refuses a function of ours that is another's."""
    fetch(admin, "CREATE SCHEMA kanon")
    fetch(admin, "CREATE SCHEMA published")
    install(dsn)
    assert foreign_objects(admin) == []
    fetch(admin, f"ALTER FUNCTION kanon.version() OWNER TO {stranger.info.user}")
    with pytest.raises(PermissionDeniedError):
        install(dsn)


@pytest.mark.pitfall(4)
def test_objects_in_public(dsn: str, admin: Connection, stranger: Connection) -> None:
    """Whatever lies in public, the installation neither runs nor adopts it."""
    for signature in ("current_setting(text)", "to_regclass(text)", "setting()", "version()"):
        fetch(
            stranger,
            f"CREATE FUNCTION public.{signature} RETURNS text LANGUAGE plpgsql"
            " AS $$BEGIN RAISE EXCEPTION 'captured'; END$$",
        )
    for table in ("setting", "source", "publication", "alembic_version", "pg_namespace"):
        fetch(stranger, f"CREATE TABLE public.{table} (captured int)")
    fetch(admin, f"ALTER DATABASE {quoted(admin.info.dbname)} SET search_path = public, pg_catalog")
    install(dsn)
    assert foreign_objects(admin) == []
    assert value(admin, "SELECT value FROM kanon.setting WHERE name = 'published_schema'")


@pytest.mark.pitfall(5)
def test_powerful_role(dsn: str, installed_dsn: str, admin: Connection) -> None:
    """A superuser under the name of ours would make every publisher a superuser."""
    for power in ("SUPERUSER", "BYPASSRLS", "CREATEROLE"):
        fetch(admin, f"ALTER ROLE kanon_analyst {power}")
        try:
            with pytest.raises(PermissionDeniedError, match="too powerful"):
                install(dsn)
        finally:
            fetch(admin, f"ALTER ROLE kanon_analyst NO{power}")


@pytest.mark.pitfall(52)
def test_52_uninstalling_gives_nothing_away(
    dsn: str,
    admin: Connection,
    new_role: Callable[..., str],
    connect_as: Callable[[str, str], Connection],
) -> None:
    """What a member has made the group's stays the group's, and runs with no more rights."""
    install(dsn)
    groups = ("kanon_user", "kanon_analyst", "kanon_publisher")
    database = quoted(admin.info.dbname)
    climbers = {}
    for group in groups:
        role = new_role(group)
        fetch(admin, f"GRANT CREATE ON DATABASE {database} TO {role}, {group}")
        climbers[group] = connect_as(dsn, role)
        for statement in (
            f"CREATE SCHEMA of_{group}",
            f"GRANT ALL ON SCHEMA of_{group} TO {group}",
            f"CREATE FUNCTION of_{group}.climb() RETURNS name SECURITY DEFINER RETURN current_user",
            f"CREATE TABLE of_{group}.kept AS SELECT 1 AS a",
            f"ALTER FUNCTION of_{group}.climb() OWNER TO {group}",
            f"ALTER TABLE of_{group}.kept OWNER TO {group}",
        ):
            fetch(climbers[group], statement)
    left = uninstall(dsn)
    for group, climber in climbers.items():
        with climber:
            assert fetch(climber, f"SELECT of_{group}.climb()") == [(group,)]
            assert fetch(climber, f"TABLE of_{group}.kept") == [(1,)]
        owners = (
            "SELECT relowner::regrole::text FROM pg_class WHERE oid = '{0}.kept'::regclass UNION"
            " SELECT proowner::regrole::text FROM pg_proc WHERE oid = '{0}.climb'::regproc"
        )
        assert fetch(admin, owners.format(f"of_{group}")) == [(group,)]
        named = f"what {group} owns: function of_{group}.climb(), table of_{group}.kept"
        assert named in left
    for group in groups:
        fetch(admin, f"DROP SCHEMA of_{group} CASCADE")
        fetch(admin, f"REVOKE CREATE ON DATABASE {database} FROM {group}")


@pytest.mark.pitfall(55)
def test_55_a_session_from_before_an_upgrade(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told to reconnect, also where the version is the same; a new one is answered."""
    with psycopg.connect(database, autocommit=True) as before:
        assert value(before, "SELECT kanon.version()")
        monkeypatch.setattr("kanon_db.installation.interpreter.package_digest", lambda: "another")
        monkeypatch.setattr("kanon_db.installation.sql_objects.package_digest", lambda: "another")
        install(database)
        for call in ("kanon.version()", "kanon.estimate('SELECT COUNT(*) FROM a')"):
            with pytest.raises(psycopg.Error, match="this session holds an older kanon_db") as told:
                fetch(before, f"SELECT * FROM {call}")
            assert told.value.diag.message_hint == "start a new session"
    with psycopg.connect(database, autocommit=True) as after:
        assert value(after, "SELECT kanon.version()")


def test_another_state_of_the_package_names_the_installation(database: str) -> None:
    """Where columns or functions are missing that this package knows, nothing crashes."""
    with psycopg.connect(database, autocommit=True) as admin:
        fetch(admin, "UPDATE kanon.setting SET value = 'earlier' WHERE name = 'package'")
        fetch(admin, "DROP FUNCTION kanon.is_administrator(oid) CASCADE")
        fetch(
            admin, "CREATE OR REPLACE VIEW kanon.publications AS SELECT 1::bigint AS publication_id"
        )
    answer = kanon("publications", dsn=database)
    assert answer.returncode == 1
    assert "run `kanon install` of the newer of both" in " ".join(answer.stderr.split())
    broken = [one for one in examine(database) if one.state == "broken"]
    assert "kanon_db" in [one.subject for one in broken]
    assert {one.remedy for one in broken} == {"kanon install"}
    install(database)
    assert {one.state for one in examine(database)} == {"ok"}
    assert kanon("publications", dsn=database).returncode == 0
