"""docs/howto/operation.md lists what an installation creates, and nothing else is created.

``KANON_WRITE_PAGES=1 pytest tests/docs/test_operation.py`` writes the list anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from kanon_db.installation.install import install, uninstall
from kanon_db.installation.sql_objects import function_names
from kanon_db.operations import operations
from tests.clusters import private_cluster
from tests.docs.console import PAGES
from tests.integration.parties import fetch, value
from tests.service import served

PAGE = PAGES / "howto" / "operation.md"
MARK, END = "<!-- generated: created -->\n", "<!-- end -->"

# What there is, by what the page calls it.
OBJECTS = {
    "schemas": "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_'",
    "roles, none of which can log in": "SELECT rolname FROM pg_roles WHERE NOT rolcanlogin",
    "logins": "SELECT rolname FROM pg_roles WHERE rolcanlogin",
    "extensions": "SELECT extname FROM pg_extension",
    "event triggers": "SELECT evtname FROM pg_event_trigger",
    "triggers": "SELECT tgrelid::regclass || '.' || tgname FROM pg_trigger WHERE NOT tgisinternal"
    " AND tgrelid::regclass::text !~ '^kanon_queue'",
    "tables": "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND oid >= 16384"
    " AND relnamespace <> (SELECT coalesce(to_regnamespace('kanon_queue')::oid, 0))",
    "views": "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'v' AND oid >= 16384",
    "functions": "SELECT DISTINCT pronamespace::regnamespace || '.' || proname FROM pg_proc"
    " WHERE oid >= 16384 AND pronamespace::regnamespace::text NOT IN ('pg_catalog', 'kanon_queue')",
    "functions with the rights of `kanon_owner`": "SELECT oid::regproc::text FROM pg_proc"
    " WHERE oid >= 16384 AND prosecdef AND pronamespace::regnamespace::text <> 'kanon_queue'",
    "privileges on the database": "SELECT privilege_type || ' of ' || grantee::regrole"
    " FROM pg_database CROSS JOIN aclexplode(datacl) WHERE datname = current_database()"
    " AND grantee <> 0 AND grantee <> datdba AND grantee::regrole::text ~ '^kanon_[a-z]+$'",
}

# Kinds of objects of which there are as many as before.
NEVER = (
    "pg_cast", "pg_operator", "pg_opclass", "pg_collation", "pg_conversion", "pg_policy",
    "pg_publication", "pg_subscription", "pg_foreign_server", "pg_default_acl",
    "pg_db_role_setting", "pg_statistic_ext", "pg_ts_config", "pg_largeobject_metadata",
)  # fmt: skip


def snapshot(dsn: str) -> dict[str, set[str]]:
    with psycopg.connect(dsn) as admin:
        found = {
            kind: {str(name) for (name,) in fetch(admin, query)} for kind, query in OBJECTS.items()
        }
        for catalog in NEVER:
            found[catalog] = {str(value(admin, f"SELECT count(*) FROM {catalog}"))}
    return found


@pytest.fixture(scope="module")
def fresh() -> Iterator[str]:
    """A server where nothing of ours has ever been."""
    with private_cluster() as dsn:
        yield dsn


def written(inside: dict[str, set[str]], service: dict[str, set[str]]) -> str:
    """Write what both ways to install create as the page's table."""
    lines = ["| | both ways | with PL/Python only | as a service only |", "|---|---|---|---|"]
    for kind in OBJECTS:
        columns = (
            inside[kind] & service[kind], inside[kind] - service[kind],
            service[kind] - inside[kind],
        )  # fmt: skip
        lines.append(f"| {kind} | {' | '.join(map(_names, columns))} |")
    return "\n".join(lines) + "\n"


def _names(names: set[str]) -> str:
    """List names of objects; functions that follow from others in short."""
    shown = {name.removeprefix("kanon.") for name in names}
    if not operations().keys() <= shown:
        return ", ".join(f"`{name}`" for name in sorted(shown))
    cells, own = {"surely", "possibly"}, function_names(is_service=False)
    guard = {"published.require_visible"}  # beside the views that call it
    assert guard <= shown
    known = own | {f"python_{name}" for name in operations()}  # to `kanon doctor`
    assert shown - guard <= known
    assert cells <= shown
    return (
        "of each operation, `python_…` with its name, `owner_…`, `surely`, `possibly`, helpers;"
        " `published.require_visible`"
    )


def test_the_page_lists_what_is_created(fresh: str, tmp_path: Path) -> None:
    """Everything, in both ways to install; what is left after uninstalling is what it says."""
    with psycopg.connect(fresh, autocommit=True) as admin:
        fetch(admin, "CREATE DATABASE inside TEMPLATE template0")
    dsn = make_conninfo(fresh, dbname="inside")
    before = snapshot(dsn)
    install(dsn)
    inside = {kind: names - before[kind] for kind, names in snapshot(dsn).items()}
    left = uninstall(dsn)
    assert left == [
        "the tables and views that were registered as sources", "the extension plpython3u",
    ]  # fmt: skip
    after = snapshot(dsn)
    assert after.pop("extensions") - before["extensions"] == {"plpython3u"}
    assert after == {kind: names for kind, names in before.items() if kind != "extensions"}
    with served(fresh, "outside", tmp_path) as service:
        there = snapshot(service.superuser_dsn)
        service_ = {kind: names - before[kind] for kind, names in there.items()}
        service_["logins"].discard(service.administrator)
        uninstall(service.dsn)
        gone = snapshot(service.superuser_dsn)
        gone["logins"].discard(service.administrator)
        assert gone == before
    assert [kind for kind in NEVER if inside[kind] or service_[kind]] == []
    page = PAGE.read_text()
    table = written(inside, service_)
    if os.environ.get("KANON_WRITE_PAGES"):
        pattern = re.compile(f"{re.escape(MARK)}.*?{re.escape(END)}", re.DOTALL)
        PAGE.write_text(pattern.sub(lambda _: f"{MARK}{table}{END}", page))
    assert f"{MARK}{table}{END}" in PAGE.read_text(), table
