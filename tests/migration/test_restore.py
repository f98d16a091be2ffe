"""Dump and restore, into a server that has nothing: in the documented order, and without it."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import kanon_db
from kanon_db.cluster._host import find_programs
from kanon_db.errors import PermissionDeniedError
from kanon_db.installation.doctor import examine
from kanon_db.installation.install import install, uninstall
from tests.attacks.models import ACCEPTED, ANSWERS, BUDGET, ROW, ask, create_people
from tests.attacks.models import publish as publish_model
from tests.attacks.test_owner import ENTRY, errand, staged
from tests.clusters import create_database, private_cluster
from tests.integration.parties import (
    Connection,
    Functions,
    Package,
    create_table,
    fetch,
    sqlstate_of,
)

QUERY = "SELECT COUNT(*) FROM census WHERE age < 30 AND sick = 'disease 1'"

OF_ROWS = "SELECT COUNT(*) FROM rows WHERE age < 30"


@pytest.fixture(scope="module")
def other() -> Iterator[str]:
    """A server without any role or database of ours."""
    with private_cluster() as dsn:
        yield dsn


@pytest.fixture(scope="module")
def roles(new_role: Callable[..., str]) -> tuple[str, str]:
    """A publisher, and the only reader."""
    return new_role("kanon_publisher"), new_role("kanon_analyst")


@pytest.fixture(scope="module")
def dumped(
    module_database: str, roles: tuple[str, str], connect_as: Callable[[str, str], Connection]
) -> tuple[str, str]:
    """The dump of a database with publications, and that of its server's roles."""
    publisher, reader = roles
    with psycopg.connect(module_database, autocommit=True) as admin:
        fetch(admin, f"CREATE SCHEMA data AUTHORIZATION {publisher}")
    with connect_as(module_database, publisher) as connection:
        rows = [(i, i % 50, f"disease {i % 5}") for i in range(500)]
        create_table(connection, "data.people", "id int, age int, sick text", rows)
        kanon = Functions(connection)
        kanon.register("data.people", ["age"], "sick", entity="id")
        kanon.publish("data.people", "census", privacy='{"l": 3}', readers=[reader])
        kanon.suppress("data.people", "rows", k=3, readers=[reader])
    return (
        run("pg_dump", f"--dbname={module_database}"),
        run("pg_dumpall", "--roles-only", "-l", "postgres", f"--dbname={module_database}"),
    )


def run(program: str, *arguments: str, text: str | None = None) -> str:
    path = find_programs(None).path(program)
    return subprocess.run(
        [path, *arguments], input=text, capture_output=True, text=True, check=True
    ).stdout


def restore_roles(dsn: str, roles_dump: str) -> None:
    """Create the roles that are not there already."""
    superuser = conninfo_to_dict(dsn)["user"]
    lines = [line for line in roles_dump.splitlines() if f" ROLE {superuser}" not in line]
    run("psql", "-q", dsn, text="\n".join(lines))


def restored(dsn: str, dump: str, name: str, *, with_python: bool = True) -> str:
    """Create a database, and restore a dump there; errors are what psql prints and goes on from."""
    new = create_database(dsn, name)
    if with_python:
        with psycopg.connect(new, autocommit=True) as admin:
            fetch(admin, "CREATE EXTENSION plpython3u")
    run("psql", "-q", new, text=dump)
    return new


def amiss(dsn: str) -> list[str]:
    return [f"{found.subject}: {found.value}" for found in examine(dsn) if found.state != "ok"]


def works(dsn: str, roles: tuple[str, str], connect_as: Callable[[str, str], Connection]) -> None:
    """The reader reads, the publisher is the publisher, and nobody else is."""
    publisher, reader = roles
    with connect_as(dsn, reader) as connection:
        kanon = Functions(connection)
        assert kanon.publications() == ["census", "rows"]
        _, _, lower, upper = kanon.estimate(QUERY)
        assert lower <= 60 <= upper
        for name in ("census", "rows"):
            assert all(holds for *_, holds in kanon.verify(name))
        assert fetch(connection, "SELECT sum(weight)::int FROM published.census") == [(500,)]
        denied = lambda: fetch(connection, "TABLE published.rows_row")
        assert sqlstate_of(denied) == "42501"
    with connect_as(dsn, publisher) as connection:
        kanon = Functions(connection)
        again = lambda: kanon.publish(
            "data.people", "census", privacy='{"l": 3}', readers=[reader], replace=True
        )
        assert sqlstate_of(again) in ("42804", "42501")  # another table, another role
        kanon.register("data.people", ["age"], "sick", entity="id")
        # The ledger knows its roles and relations again, by their names.
        assert fetch(
            connection,
            "SELECT name, state, readers -> -1 ->> 'role' FROM kanon.releases ORDER BY release_id",
        ) == [("census", "live", reader), ("rows", "live", reader)]
        # It also knows who was published, and so who is new.
        fetch(
            connection,
            "INSERT INTO data.people SELECT i, i % 9, 'new ' || i % 4"
            " FROM generate_series(500, 589) AS i",
        )
        row = kanon.call("refresh", "census")
        assert row["added"] == 90
        # Of records, it knows who has some, and not with what: no dump has that key.
        assert row["waits"].keys() == {"corrected"}
        assert row["waits"]["corrected"]["records"] is None
        with psycopg.connect(dsn, autocommit=True) as admin:
            fetch(admin, "UPDATE kanon.setting SET value = '' WHERE name = 'combined_releases'")
            assert sqlstate_of(again) == "KN005"
            fetch(admin, "UPDATE kanon.setting SET value = 'warn' WHERE name = 'combined_releases'")
        again()


@pytest.mark.slow("publishes as a service, and restores elsewhere")
def test_a_server_of_another_version(
    service_cluster_dsn: str, new_database: Callable[..., str]
) -> None:
    """What a service published is read as plain tables, and answers as before.

    The other server is that of ``KANON_SERVICE_BIN``: see tests/service.py.
    """
    dsn, name = new_database(installed=False), f"kanon_{uuid.uuid4().hex[:8]}"
    install(dsn, service=True)
    with psycopg.connect(dsn, autocommit=True) as admin:
        rows = [(i, i % 50, f"disease {i % 5}") for i in range(500)]
        create_table(admin, "public.people", "id int, age int, sick text", rows)
    with kanon_db.connect(dsn) as kanon:
        kanon.register_source("people", quasi_identifiers=["age"], sensitive="sick", entity="id")
        kanon.publish_buckets("people", "census", privacy={"l": 3})
        kanon.publish_suppressed("people", "rows", k=3, accept={"combined_releases": "a test"})
        expected = [str(kanon.estimate_count(question)) for question in (QUERY, OF_ROWS)]
    text = run("pg_dump", f"--dbname={dsn}")
    for role in ("kanon_owner", "kanon_publisher", "kanon_analyst", "kanon_user"):
        run("psql", "-q", service_cluster_dsn, text=f"CREATE ROLE {role}")
    there = restored(service_cluster_dsn, text, name, with_python=False)
    with psycopg.connect(there) as admin:
        assert fetch(admin, "SELECT sum(weight)::int FROM published.census") == [(500,)]
        assert fetch(admin, "SELECT count(*) FROM published.rows") == [(500,)]
    assert install(there, service=True).is_service
    with kanon_db.connect(there) as kanon:
        assert [str(kanon.estimate_count(question)) for question in (QUERY, OF_ROWS)] == expected
        for publication in ("census", "rows"):
            assert kanon.verify(publication)["holds"].all()
    for one in (there, dsn):
        uninstall(one, drop_publications=True)
    with psycopg.connect(dsn) as admin:
        assert fetch(admin, "SELECT 1 FROM pg_roles WHERE rolname = 'kanon_worker'") == []


@pytest.mark.long
def test_uninstall_drops_unused_roles(other: str) -> None:
    """In a cluster of its own, nothing is left; a role that somebody has stays."""
    roles = "SELECT rolname::text FROM pg_roles WHERE rolname LIKE 'kanon%' ORDER BY 1"
    with psycopg.connect(other, autocommit=True) as admin:
        install(other)
        uninstall(other)
        assert fetch(admin, roles) == []
        install(other)
        fetch(admin, "CREATE ROLE somebody IN ROLE kanon_analyst")
        uninstall(other)
        assert fetch(admin, roles) == [("kanon_analyst",)]
        fetch(admin, "DROP ROLE somebody, kanon_analyst")


@pytest.mark.slow("pg_dump and another database")
def test_a_server_without_plpython(
    other: str,
    dumped: tuple[str, str],
    module_database: str,
    roles: tuple[str, str],
    connect_as: Callable[[str, str], Connection],
) -> None:
    """Readers read, and ask by the Python client; the SQL functions are not there."""
    dump, roles_dump = dumped
    publications = re.sub(r"^(CREATE|COMMENT ON) EXTENSION .*\n", "", dump, flags=re.MULTILINE)
    restore_roles(other, roles_dump)
    dsn = restored(other, publications, "plain", with_python=False)
    _, reader = roles
    with connect_as(dsn, reader) as connection, connect_as(module_database, reader) as before:
        assert fetch(connection, "SELECT 1 FROM pg_language WHERE lanname LIKE 'plpython%'") == []
        assert fetch(connection, "SELECT sum(weight)::int FROM published.census") == [(500,)]
        for query in (QUERY, "SELECT COUNT(*) FROM rows WHERE age < 30"):
            asked = Package(connection).estimate(query)
            assert asked == pytest.approx(Functions(before).estimate(query))
        assert all(holds for *_, holds in Package(connection).verify("census"))
        assert sqlstate_of(lambda: Functions(connection).estimate(QUERY)) == "42883"


@pytest.mark.long
@pytest.mark.pitfall(19)
def test_in_the_documented_order(
    other: str,
    dumped: tuple[str, str],
    roles: tuple[str, str],
    connect_as: Callable[[str, str], Connection],
) -> None:
    """Roles, database, dump, installation: the reader reads, and all checks hold."""
    dump, roles_dump = dumped
    restore_roles(other, roles_dump)
    dsn = restored(other, dump, "in_order")
    install(dsn)
    assert amiss(dsn) == ["source data.people: it has changed since it was registered"]
    works(dsn, roles, connect_as)
    assert amiss(dsn) == []


def comments(admin: Connection) -> list[tuple[object, ...]]:
    """The comments on everything in the schema of publications."""
    return fetch(
        admin,
        "SELECT c.relname::text, d.objsubid, d.description FROM pg_description AS d"
        " JOIN pg_class AS c ON c.oid = d.objoid AND d.classoid = 'pg_class'::regclass"
        " WHERE c.relnamespace = 'published'::regnamespace ORDER BY 1, 2",
    )


@pytest.mark.long
@pytest.mark.pitfall(31)
def test_31_without_the_roles(
    other: str,
    dumped: tuple[str, str],
    roles: tuple[str, str],
    connect_as: Callable[[str, str], Connection],
) -> None:
    """A restored dump whose roles came too late: what is lost is said, and granted again."""
    restore_roles(other, dumped[1])
    with psycopg.connect(other, autocommit=True) as admin:
        for role in (*roles, "kanon_owner", "kanon_publisher", "kanon_analyst", "kanon_user"):
            fetch(admin, f"ALTER ROLE {role} RENAME TO {role}_away")
    dsn = restored(other, dumped[0], "too_late")
    publisher, reader = roles
    with psycopg.connect(dsn, autocommit=True) as admin:
        notes = comments(admin)
    # Installed first: the publications belong to nobody, and doctor says who cannot read them.
    report = " ".join(install(dsn).actions)
    assert f"there is no role {publisher}" in report
    assert f"publication census: its reader {reader} cannot read it" in amiss(dsn)
    with psycopg.connect(dsn, autocommit=True) as admin:
        fetch(admin, f"CREATE ROLE {publisher} LOGIN IN ROLE kanon_publisher")
        fetch(admin, f"CREATE ROLE {reader} LOGIN IN ROLE kanon_analyst")
    report = " ".join(install(dsn).actions)
    assert f'publication "census" granted again to {publisher}' in report
    with psycopg.connect(dsn, autocommit=True) as admin:
        assert comments(admin) == notes  # how to use them; nothing that only readers may know
        fetch(admin, f"ALTER SCHEMA data OWNER TO {publisher}")
        fetch(admin, f"ALTER TABLE data.people OWNER TO {publisher}")
    works(dsn, roles, connect_as)
    # From now on, a role that is made again under the name is a stranger.
    with psycopg.connect(dsn, autocommit=True) as admin:
        fetch(admin, f"REASSIGN OWNED BY {publisher} TO CURRENT_USER")
        fetch(admin, f"DROP OWNED BY {publisher}")
        fetch(admin, f"DROP ROLE {publisher}")
        fetch(admin, f"CREATE ROLE {publisher} LOGIN IN ROLE kanon_publisher")
    install(dsn)
    with connect_as(dsn, publisher) as connection:
        assert sqlstate_of(lambda: Functions(connection).drop("census")) == "42501"


@pytest.mark.slow("pg_dump and another database")
def test_a_dump_without_privileges(
    other: str,
    dumped: tuple[str, str],
    module_database: str,
    roles: tuple[str, str],
    connect_as: Callable[[str, str], Connection],
) -> None:
    """The installation grants again what the dump does not."""
    restore_roles(other, dumped[1])
    dump = run("pg_dump", "--no-privileges", f"--dbname={module_database}")
    dsn = restored(other, dump, "without_privileges")
    install(dsn)
    works(dsn, roles, connect_as)
    assert amiss(dsn) == []


@pytest.mark.long
def test_a_dump_without_data(other: str, dumped: tuple[str, str], module_database: str) -> None:
    """Nothing works, and what is said of it is no bug's."""
    restore_roles(other, dumped[1])
    dsn = restored(other, run("pg_dump", "-s", f"--dbname={module_database}"), "without_data")
    assert any("catalog: kanon_db's own tables are empty" in found for found in amiss(dsn))
    with psycopg.connect(dsn, autocommit=True) as admin:
        with pytest.raises(psycopg.Error) as caught:
            Functions(admin).estimate(QUERY)
        assert caught.value.diag.message_primary == (
            "kanon_db's own tables are empty, as a dump without data leaves them"
        )
    with pytest.raises(PermissionDeniedError, match="exists and is not empty"):
        install(dsn)


def test_who_may_dump(
    module_database: str, dumped: tuple[str, str], connect_as: Callable[[str, str], Connection],
    new_role: Callable[..., str],
) -> None:  # fmt: skip
    """A role that reads everything, and neither analysts nor publishers."""

    def dump_as(role: str) -> list[str]:
        dsn = psycopg.conninfo.make_conninfo(module_database, user=role)
        lines = run("pg_dump", f"--dbname={dsn}").splitlines()
        return [line for line in lines if not line.startswith("\\")]  # psql's keys, newly drawn

    everything = [line for line in dumped[0].splitlines() if not line.startswith("\\")]
    assert dump_as(new_role("pg_read_all_data")) == everything
    for group in ("kanon_analyst", "kanon_publisher"):
        with pytest.raises(subprocess.CalledProcessError):
            dump_as(new_role(group))


@pytest.mark.pitfall(31)
def test_doctor_sees_what_is_amiss(
    module_database: str, dumped: tuple[str, str], roles: tuple[str, str]
) -> None:
    """A lost reader, a planted entry, relations that are another's or nobody's."""
    assert dumped
    install(module_database)
    with psycopg.connect(module_database, autocommit=True) as admin:
        for statement, found in {
            f"REVOKE SELECT ON published.census FROM {roles[1]}": "cannot read it",
            "ALTER TABLE published.census_qit OWNER TO CURRENT_USER": "publication census: its rel",
            "DROP TABLE published.census_cod": "publication census: its relations are missing",
            "CREATE TABLE published.planted (a int)": "published.planted: it belongs to no publica",
            "INSERT INTO kanon.publication (name, kind, method, source_schema, source_relation,"
            " parameters, layout, records, guarantee, metrics, relations, published_by) SELECT"
            " 'planted', kind, method, source_schema, source_relation, parameters, layout, records,"
            " guarantee, metrics, '{data.people}', published_by FROM kanon.publication LIMIT 1":
                "publication planted: its relations are missing",
            "ALTER TABLE data.people ALTER age TYPE bigint": "source data.people: it has changed",
        }.items():  # fmt: skip
            with admin.transaction(force_rollback=True):
                fetch(admin, statement)
                assert any(found in line for line in within(admin)), found
        # Of this, nothing is called any more.
        with admin.transaction(force_rollback=True):
            fetch(admin, "ALTER ROLE kanon_owner LOGIN")
            with pytest.raises(PermissionDeniedError, match="can become the role that owns"):
                within(admin)
        assert within(admin) == []


def within(admin: Connection) -> list[str]:
    """What doctor finds in this very transaction."""
    from kanon_db.installation import doctor
    from kanon_db.session.psycopg_session import PsycopgSession

    session = PsycopgSession(admin)
    with session.transaction():
        return [
            f"{found.subject}: {found.value}"
            for found in doctor._examine_installation(session)
            if found.state != "ok"
        ]


LABELS = ("census of 2020", "data.people", 'elsewhere: "x"')
"""Of sources elsewhere: one is called like a relation, which it is not."""
QUESTIONS = {
    "batches": "SELECT COUNT(*) FROM batches WHERE age < 6 AND sick = 'ill 1'",
    "weighted": "SELECT COUNT(*) FROM weighted WHERE age < 30 AND sick = 'yes'",
    "rows": "SELECT COUNT(*) FROM rows WHERE age < 6",
}


JOB = """
WITH job AS (
    INSERT INTO kanon.job (role, role_name, operation, arguments, settings)
    SELECT oid, rolname, 'version', '{}', '{}' FROM pg_roles WHERE rolname = $1::text
    RETURNING job_id
) INSERT INTO kanon.job_end (job_id, answer) SELECT job_id, '{}' FROM job
"""
LOOKS = {
    "publications": "SELECT name, source, parameters, guarantee, metrics, layout, published_by,"
    " attacks, state, waiting, waits FROM kanon.publications ORDER BY name",
    "releases": "SELECT release_id, name, source, readers, measured, state, batches, budgets"
    " FROM kanon.releases ORDER BY release_id",
    "ledger": "SELECT name, ARRAY(SELECT b::regclass::text FROM unnest(bases) AS b ORDER BY 1),"
    " source_oid::regclass::text, publisher::regrole::text FROM kanon.release ORDER BY release_id",
    "jobs": "SELECT j.role::regrole::text, j.role_name, e.answer FROM kanon.job AS j"
    " JOIN kanon.job_end AS e USING (job_id) ORDER BY job_id",
}
"""What administrators see, without the numbers of a server."""


@pytest.fixture(scope="module")
def states(
    new_database: Callable[..., str], new_role: Callable[..., str],
    connect_as: Callable[[str, str], Connection],
) -> tuple[str, str, str]:  # fmt: skip
    """A database in every state that an operation can leave, its publisher and its reader."""
    dsn, publisher, reader = new_database(), new_role("kanon_publisher"), new_role("kanon_analyst")
    with psycopg.connect(dsn, autocommit=True) as admin:
        fetch(admin, f"CREATE SCHEMA data AUTHORIZATION {publisher}")
        # What the queue of a service keeps: jobs that wait, and that have ended.
        for name in (publisher, reader):
            fetch(admin, JOB, name)
    with connect_as(dsn, publisher) as connection, connect_as(dsn, reader) as asking:
        kanon = Functions(connection)
        create_people(connection)
        rows = [(i, i % 12, f"ill {i % 4}") for i in range(60)]
        create_table(connection, "data.stays", "id int, age int, sick text", rows)
        kanon.register("data.stays", ["age"], "sick", entity="id")
        kanon.publish("data.people", "weighted", privacy='{"default": 0.8}')
        publish_model(connection, "model", readers=[reader], budget=BUDGET)
        ask(asking, "model", 3)
        for name in ("gone", "replaced", "rows"):
            kanon.suppress("data.stays", name, k=3, readers=[reader])
        kanon.suppress("data.stays", "replaced", k=4, readers=[reader], replace=True)
        kanon.drop("gone")
        kanon.publish("data.stays", "batches", privacy='{"l": 2}', readers=[])
        fetch(connection, "INSERT INTO data.stays SELECT i, i % 12, 'ill ' || i % 4"
              " FROM generate_series(60, 89) AS i")  # fmt: skip
        fetch(connection, "UPDATE data.stays SET sick = 'ill 0' WHERE id = 5")
        fetch(connection, "DELETE FROM data.stays WHERE id = 7")
        assert kanon.call("refresh", "batches")["added"] == 30
        kanon.call("grant_publication", "batches", readers=[reader], accept=ACCEPTED)
        kanon.suppress("data.stays", "withdrawn", k=3, readers=[reader])
        fetch(asking, "CREATE TEMPORARY VIEW mine AS TABLE published.withdrawn")
        kanon.drop("withdrawn")  # and is kept, since something depends on it
        for number, label in enumerate(LABELS):
            given = {**ENTRY, "prefix": staged(connection), "name": f"labelled_{number}"}
            errand(connection, "publish", **given, label=label)
        return dsn, publisher, reader


def state_of(dsn: str) -> dict[str, object]:
    """What administrators see of a database, and what is answered."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        kanon = Functions(admin)
        seen: dict[str, object] = {name: fetch(admin, look) for name, look in LOOKS.items()}
        return seen | {
            name: (kanon.estimate(text), kanon.verify(name)) for name, text in QUESTIONS.items()
        }


@pytest.mark.slow("every operation, then pg_dump and another database")
def test_every_state_is_restored(
    other: str, states: tuple[str, str, str], connect_as: Callable[[str, str], Connection]
) -> None:
    """Labels, batches, people who wait, budgets, weights, drafts, releases that are gone, jobs."""
    before, publisher, reader = states
    restore_roles(other, run("pg_dumpall", "--roles-only", "-l", "postgres", f"--dbname={before}"))
    dsn = restored(other, run("pg_dump", f"--dbname={before}"), "every_state")
    install(dsn)
    assert state_of(dsn) == state_of(before)
    with connect_as(dsn, reader) as asking, connect_as(before, reader) as asked:
        left = "SELECT label, agreement FROM kanon.classify_all('model', $1::jsonb)"
        rows = json.dumps([ROW] * (ANSWERS - 3))
        assert len(fetch(asking, left, rows)) == len(fetch(asked, left, rows))
        one_more = lambda: ask(asking, "model")
        assert sqlstate_of(one_more) == "KN006"
    with psycopg.connect(dsn, autocommit=True) as admin:
        assert fetch(admin, "SELECT * FROM kanon.withdrawn()") == []
    with connect_as(dsn, publisher) as connection:
        kanon = Functions(connection)
        kanon.register("data.stays", ["age"], "sick", entity="id")
        fetch(connection, "INSERT INTO data.stays SELECT i, i % 12, 'ill ' || i % 4"
              " FROM generate_series(90, 119) AS i")  # fmt: skip
        accept = {"accept": ACCEPTED}
        assert kanon.call("refresh", "batches", **accept)["added"] == 30
        for name in kanon.publications():
            kanon.drop(name)
