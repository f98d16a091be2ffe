"""Attacks by a role that submits jobs, on the worker and on others for whom it works."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from kanon_db.errors import PermissionDeniedError, ServerError
from kanon_db.installation.doctor import examine
from kanon_db.installation.install import install
from kanon_db.installation.service import allow, forbid, login_dsn, read_key
from kanon_db.interfaces.worker import _FORGET, _VisibleFormatter
from kanon_db.session.psycopg_session import open_connection
from tests.integration.parties import Connection, fetch, sqlstate_of, value, warn_only
from tests.profiles import long_but
from tests.service import (
    Jobs,
    Service,
    give_people,
    slow_people,
    slowly,
    state,
    submit,
    wait_until,
)

CANARY = "rubella 4711"


SLOW = (
    "register_source('veras.slow', '{age,sex,town}', sensitive => 'sick', identifiers => '{name}')"
)


@pytest.fixture
def scratch(service: Service) -> Iterator[Connection]:
    """Roles that are made and changed for one test, by a superuser."""
    with psycopg.connect(service.superuser_dsn, autocommit=True) as superuser:
        yield superuser


@pytest.fixture(scope="module")
def vera(service: Service) -> Iterator[Connection]:
    """The victim, who publishes, too."""
    service.working()
    with service.submitter("vera", "kanon_publisher") as connection:
        give_people(service, connection, "veras")
        slow_people(connection, "veras")
        fetch(connection, f"CREATE TABLE veras.secret AS SELECT '{CANARY}'::text AS sick")
        yield connection


SPY = """
CREATE SEQUENCE evil.ran;
CREATE SEQUENCE evil.gained;
CREATE TABLE evil.attempts (statement text);
CREATE FUNCTION evil.spy() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE _statement text;
BEGIN
    PERFORM nextval('evil.ran');
    FOR _statement IN SELECT statement FROM evil.attempts LOOP
        BEGIN
            BEGIN EXECUTE 'RESET ROLE'; EXCEPTION WHEN OTHERS THEN NULL; END;
            EXECUTE _statement;
            PERFORM nextval('evil.gained');
            PERFORM set_config('evil.by', _statement, false);
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
    END LOOP;
    -- Nobody is to notice.
    BEGIN EXECUTE 'SET ROLE mallory'; EXCEPTION WHEN OTHERS THEN NULL; END;
    RETURN true;
END$$;
CREATE FUNCTION evil.folded(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
    $$BEGIN PERFORM evil.spy(); RETURN $1; END$$;
CREATE FUNCTION evil.word(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS
    $$BEGIN PERFORM evil.spy(); RETURN $1; END$$;
"""


@pytest.fixture(scope="module")
def mallory(service: Service, vera: Connection) -> Iterator[Connection]:
    """The attacker: a publisher, whose code tries to be somebody else."""
    with service.submitter("mallory", "kanon_publisher") as connection:
        give_people(service, connection, "evil")
        slow_people(connection, "evil")
        fetch_all(connection, SPY)
        with psycopg.connect(service.superuser_dsn) as superuser:
            logins = dict(
                fetch(superuser, "SELECT rolname::text, 'kanon_as_' || oid FROM pg_roles")
            )
            workers = [
                pid for (pid,) in fetch(
                    superuser, "SELECT pid FROM pg_stat_activity WHERE usename = 'kanon_worker'"
                )
            ]  # fmt: skip
        others = ["vera", logins["vera"], "kanon_worker", "kanon_owner", "postgres"]
        others += ["kanon_analyst", service.administrator]
        attempts = [
            *(f"SET ROLE {role}" for role in others),
            *(f"SET SESSION AUTHORIZATION {role}" for role in others),
            *(f"ALTER ROLE {role} PASSWORD 'hers'" for role in others),
            *(f"GRANT {role} TO mallory" for role in others),
            *(f"SELECT pg_terminate_backend({pid})" for pid in workers),
            *(f"SELECT pg_cancel_backend({pid})" for pid in workers),
            "TABLE veras.secret",
            "TABLE kanon.job",
            "TABLE kanon.job_end",
            "TABLE kanon_queue.procrastinate_jobs",
            "TABLE kanon.draw_key",
            "UPDATE kanon.job_end SET answer = '{}'",
            "INSERT INTO kanon.source DEFAULT VALUES",
            "CREATE TABLE published.hers (x int)",
            "CREATE FUNCTION kanon.hers() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "SELECT pg_read_file('/etc/passwd')",
            "COPY evil.attempts FROM PROGRAM 'id'",
            "SELECT lo_import('/etc/passwd')",
            "CREATE ROLE hers",
            "SELECT kanon.watch_late()",
            "SELECT kanon.owner_finish(1, '{}')",
        ]
        for statement in attempts:
            fetch(connection, "INSERT INTO evil.attempts VALUES ($1)", statement)
        yield connection


def fetch_all(connection: Connection, statements: str) -> None:
    connection.execute(statements.encode())


PLACES = {
    "a function in a view": "CREATE VIEW {0} AS SELECT * FROM evil.people WHERE evil.spy()",
    "a row-level policy": "CREATE TABLE {0} AS TABLE evil.people;"
    " ALTER TABLE {0} ENABLE ROW LEVEL SECURITY; ALTER TABLE {0} FORCE ROW LEVEL SECURITY;"
    " CREATE POLICY p ON {0} USING (evil.spy())",
    "a column that a view computes": "CREATE VIEW {0} AS SELECT number, name, age, sex,"
    " evil.word(town) AS town, sick FROM evil.people",
    "a partial index": "CREATE TABLE {0} AS TABLE evil.people;"
    " CREATE INDEX ON {0} (age) WHERE evil.folded(1) = 1",
    "an index on an expression": "CREATE TABLE {0} AS TABLE evil.people;"
    " CREATE INDEX ON {0} ((evil.folded(1) + age))",
    "statistics of an expression": "CREATE TABLE {0} AS TABLE evil.people;"
    " CREATE STATISTICS evil.s ON (evil.folded(1) + age), sex FROM {0}; ANALYZE {0}",
    "a type with a function of its own": "CREATE DOMAIN evil.told AS text CHECK (evil.spy());"
    " CREATE VIEW {0} AS SELECT number, name, age, sex, town::evil.told AS town, sick"
    " FROM evil.people",
    "a rule in place of a table": "CREATE VIEW evil.behind AS SELECT * FROM evil.people"
    " WHERE evil.spy(); CREATE VIEW {0} AS SELECT * FROM evil.behind",
}
"""Where a submitter's own code runs when its source is read."""


@pytest.mark.pitfall(51)
@pytest.mark.parametrize(
    "place", long_but({"a row-level policy", "an index on an expression"}, PLACES)
)
def test_code_of_a_submitter_becomes_nobody_else(
    mallory: Connection, service: Service, place: str
) -> None:
    """Neither SET ROLE nor anything else in the worker's session leads beyond the submitter."""
    table = f"evil.t{uuid.uuid4().hex[:8]}"
    fetch_all(mallory, PLACES[place].format(table))
    runs = value(mallory, "SELECT last_value FROM evil.ran")
    kanon = Jobs(mallory)
    kanon.register(table, ["age", "sex", "town"], "sick", ["name"])
    name = table.replace(".", "_")
    # Policies hide rows from whom they are not for: that is refused, whatever they do.
    refused = sqlstate_of(lambda: kanon.publish(table, name, privacy='{"l": 2}'))
    assert (refused is None) == (place != "a row-level policy")
    if place not in ("a row-level policy", "a partial index", "an index on an expression",
                     "statistics of an expression"):  # fmt: skip
        assert value(mallory, "SELECT last_value FROM evil.ran") > runs
    assert not value(mallory, "SELECT is_called FROM evil.gained")
    if refused is None:
        kanon.drop(name)
    assert [role for (role,) in fetch(mallory, "SELECT DISTINCT role FROM kanon.jobs")] == [
        "mallory"
    ]


@pytest.mark.long
@pytest.mark.pitfall(51)
def test_what_the_login_leaves_is_the_submitters(mallory: Connection, service: Service) -> None:
    """By RESET ROLE, code is a login that has nothing, and what it makes goes with it."""
    fetch(mallory, "CREATE TABLE evil.seen (role text, login text)")
    fetch_all(
        mallory,
        "GRANT INSERT ON evil.seen TO PUBLIC; GRANT CREATE, USAGE ON SCHEMA evil TO PUBLIC;"
        "CREATE FUNCTION evil.reset() RETURNS boolean LANGUAGE plpgsql AS $$BEGIN"
        " EXECUTE 'RESET ROLE'; INSERT INTO evil.seen VALUES (current_user, session_user);"
        " EXECUTE 'CREATE TABLE IF NOT EXISTS evil.left ()';"
        " EXECUTE 'ALTER ROLE CURRENT_USER PASSWORD ''known''';"
        " EXECUTE 'SET ROLE mallory'; RETURN true; END$$;"
        "CREATE VIEW evil.resetting AS SELECT * FROM evil.people WHERE evil.reset()",
    )
    Jobs(mallory).register("evil.resetting", ["age", "sex", "town"], "sick", ["name"])
    ((role, login),) = fetch(mallory, "SELECT DISTINCT role, login FROM evil.seen")
    assert role == login
    assert role.startswith("kanon_as_")
    with psycopg.connect(service.superuser_dsn) as superuser:
        assert fetch(
            superuser, "SELECT DISTINCT pg_get_userbyid(roleid)::text FROM pg_auth_members"
            " WHERE member = $1::text::regrole", role,
        ) == [("mallory",)]  # fmt: skip
    # Whoever has the password can log in as what mallory is; until no worker acts for her.
    forbid(service.dsn, ["mallory"])
    with pytest.raises(ServerError):
        open_connection(service.as_role(role))
    assert value(mallory, "SELECT to_regclass('evil.left') IS NULL")
    assert sqlstate_of(lambda: fetch(mallory, "SELECT kanon.metrics('x')")) == "42501"
    allow(service.dsn, ["mallory"], service.key)


@pytest.mark.pitfall(51)
def test_settings_hold_for_the_submitter_only(
    service: Service, mallory: Connection, vera: Connection
) -> None:
    """A role's settings, set from inside a job or told as a job's, reach nobody else's jobs."""
    fetch_all(
        mallory,
        "CREATE FUNCTION evil.setting() RETURNS boolean LANGUAGE plpgsql AS $$BEGIN"
        " EXECUTE 'RESET ROLE';"
        " EXECUTE 'ALTER ROLE CURRENT_USER SET search_path = evil, pg_catalog';"
        " EXECUTE 'ALTER ROLE CURRENT_USER SET default_transaction_isolation = serializable';"
        " EXECUTE 'SET ROLE mallory'; RETURN true; END$$;"
        "CREATE VIEW evil.setting_view AS SELECT * FROM evil.people WHERE evil.setting();"
        "CREATE FUNCTION evil.current_setting(text) RETURNS text LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM nextval('evil.gained'); RETURN ''; END$$",
    )
    Jobs(mallory).register("evil.setting_view", ["age"], "sick", ["name"])
    given = {"operation": "unicity", "arguments": {"source": "evil.people"},
             "settings": {"search_path": "evil, pg_catalog", "role": "vera"}}  # fmt: skip
    fetch(mallory, "SELECT kanon.job_task('submit', $1::text::jsonb)", json.dumps(given))
    assert fetch(mallory, "SELECT * FROM kanon.wait()")
    assert not value(mallory, "SELECT is_called FROM evil.gained")
    assert Jobs(vera).rows("unicity", "veras.people")
    # What she has set for herself goes with the login.
    forbid(service.dsn, ["mallory"])
    allow(service.dsn, ["mallory"], service.key)


@pytest.mark.pitfall(51)
def test_a_forged_notification_aborts_nothing(
    service: Service, vera: Connection, mallory: Connection
) -> None:
    """Anybody may NOTIFY; procrastinate would believe it."""
    with slowly(vera, "veras", 0.01):
        job = submit(vera, SLOW)
        wait_until(lambda: state(vera, job) == "running")
        for number in range(200):
            for payload in (
                f'{{"type":"abort_job_requested","job_id":{number}}}',
                "{",
                "[]",
                "null",
            ):
                fetch(mallory, "SELECT pg_notify('procrastinate_any_queue_v1', $1)", payload)
                fetch(mallory, "SELECT pg_notify('procrastinate_queue_v1#kanon', $1)", payload)
    assert fetch(vera, "SELECT * FROM kanon.wait($1)", job)
    assert state(vera, job) == "done"
    assert service.workers[-1].process.poll() is None


@pytest.mark.pitfall(51)
def test_the_queue_is_closed(mallory: Connection) -> None:
    """Nobody puts a job into it for another role, or reads what others do."""
    for statement in (
        "TABLE kanon_queue.procrastinate_jobs",
        "INSERT INTO kanon_queue.procrastinate_jobs (queue_name, task_name) VALUES ('kanon', 'x')",
        "SELECT kanon_queue.procrastinate_fetch_job_v2(NULL, 1)",
        "INSERT INTO kanon.job (role_name) VALUES ('postgres')",
        "INSERT INTO kanon.job_errand (caller, task, given) VALUES (10, 'submit', '{}')",
        "SELECT kanon.owner_submit(10::oid, '{}')",
        "CREATE FUNCTION kanon_queue.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ):
        assert sqlstate_of(lambda: fetch(mallory, statement)) == "42501", statement


@pytest.mark.pitfall(51)
def test_jobs_of_others_are_theirs(mallory: Connection, vera: Connection) -> None:
    """Neither begun, ended, canceled nor read."""
    job = submit(vera, "unicity('veras.people')")
    fetch(vera, "SELECT * FROM kanon.wait($1)", job)
    for task in ("begin", "cancel"):
        told = json.dumps({"job": job})
        call = lambda: fetch(mallory, "SELECT kanon.job_task($1, $2::text::jsonb)", task, told)
        assert sqlstate_of(call) == "42704"
    told = json.dumps({"job": job, "answer": {"rows": []}})
    ended = "SELECT kanon.job_task('finish', $1::text::jsonb)"
    assert value(mallory, ended, told) is False
    # Not even its own answer can be changed afterwards.
    before = value(vera, "SELECT result FROM kanon.jobs WHERE job_id = $1", job)
    assert value(vera, ended, told) is False
    assert value(vera, "SELECT result FROM kanon.jobs WHERE job_id = $1", job) == before


FORGED = "x begins\n2026-11-28 08:00:00,000 INFO job 1: publish_buckets done , 1.0 s\n\x1b[2J"


@pytest.mark.pitfall(39)
@pytest.mark.pitfall(51)
@pytest.mark.parametrize(
    "operation",
    ["os:system", "kanon_db.operations:version", "perform", "__class__", "'; DROP", "", FORGED,
     "x" * 20_000_000],
    ids=lambda operation: operation[:20],
)  # fmt: skip
def test_only_operations_are_submitted(
    service: Service, mallory: Connection, operation: str
) -> None:
    """Another name is refused at once: it reaches neither a worker nor its log."""
    before = value(mallory, "SELECT count(*) FROM kanon.jobs")
    with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
        fetch(mallory, "SELECT kanon.submit($1, '{}')", operation)
    assert len(str(caught.value)) < 5000
    assert not {"\x1b", "\n"} & set(caught.value.diag.message_detail or "")
    assert value(mallory, "SELECT count(*) FROM kanon.jobs") == before
    assert "08:00:00" not in service.workers[-1].said()


def test_a_misspelt_operation_is_guessed(mallory: Connection) -> None:
    for word, meant in (
        ("publish_bukets", "publish_buckets"), ("estimate_cont", "estimate_count"),
        ("registersource", "register_source"), ("Metrics", "metrics"), ("drop_publicaton", "drop_"),
    ):  # fmt: skip
        with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
            fetch(mallory, "SELECT kanon.submit($1, '{}')", word)
        assert str(caught.value.diag.message_hint).startswith(f"did you mean {meant}")


@pytest.mark.pitfall(39)
def test_a_log_has_one_line_for_each_message(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is logged, nothing in it passes for another line or commands a terminal."""
    record = logging.makeLogRecord(
        {"msg": "publication %s", "args": (FORGED,), "levelname": "INFO"}
    )
    line = _VisibleFormatter("%(levelname)s %(message)s").format(record)
    assert line.startswith("INFO publication x begins\\n2026")
    assert line.isprintable()


@pytest.mark.pitfall(51)
def test_no_file_of_the_workers_is_read(mallory: Connection, tmp_path: Path) -> None:
    """Python and the command line read hierarchies from files; a job does not."""
    (tmp_path / "secret.csv").write_text(f"town 1,{CANARY}\n")
    given = json.dumps({"town": {"hierarchy": str(tmp_path / "secret.csv")}})
    with pytest.raises(psycopg.Error) as caught:
        Jobs(mallory).register("evil.people", ["age", "town"], "sick", ["name"], given)
    assert caught.value.diag.sqlstate == "22023"
    assert CANARY not in str(caught.value)


@pytest.mark.pitfall(51)
def test_an_analyst_publishes_nothing_as_a_job(service: Service, vera: Connection) -> None:
    """What a role may not do itself, a worker does not do for it."""
    with service.submitter("ann", "kanon_analyst") as ann:
        given = {"source": "veras.people", "publication": "annas", "privacy": '{"l": 2}'}
        fetch(ann, "SELECT kanon.submit('publish_buckets', $1::text::jsonb)", json.dumps(given))
        with pytest.raises(psycopg.Error) as caught:
            fetch(ann, "SELECT * FROM kanon.wait()")
        assert caught.value.diag.sqlstate == "42501"


@pytest.mark.pitfall(51)
def test_the_workers_login_reads_no_data(service: Service, vera: Connection) -> None:
    """It sees whose turn it is: neither questions, answers, sources, publications nor keys."""
    Jobs(vera).publish("veras.people", "veras_b", privacy='{"l": 2}')
    with service.connect("kanon_worker") as worker:
        for relation in ("veras.people", "published.veras_b", "published.veras_b_qit",
                         "kanon.draw_key", "kanon.publication", "kanon.release", "kanon.source",
                         "kanon.job", "kanon.job_end", "kanon.jobs"):  # fmt: skip
            assert sqlstate_of(lambda: fetch(worker, f"TABLE {relation}")) == "42501", relation
        for role in ("vera", "mallory", "kanon_owner", service.administrator):
            assert sqlstate_of(lambda: fetch(worker, f"SET ROLE {role}")) == "42501"
        for column in ("arguments", "settings"):
            assert sqlstate_of(lambda: fetch(worker, f"SELECT {column} FROM kanon.job")) == "42501"
        assert sqlstate_of(lambda: fetch(worker, "SELECT answer FROM kanon.job_end")) == "42501"
    Jobs(vera).drop("veras_b")


@pytest.mark.long
@pytest.mark.pitfall(51)
def test_connections_of_one_login_are_limited(
    service: Service, mallory: Connection, vera: Connection
) -> None:
    """Her code may take all connections of her own login; others' jobs go on."""
    with psycopg.connect(service.superuser_dsn, autocommit=True) as superuser:
        login = value(superuser, "SELECT 'kanon_as_' || 'mallory'::regrole::oid::text")
        # A process closes its connection a moment after its job has ended.
        acting = "SELECT 1 FROM pg_stat_activity WHERE usename = $1"
        wait_until(lambda: not fetch(superuser, acting, login))
    held = [psycopg.connect(service.as_role(login)) for _ in range(8)]
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(service.as_role(login))
    job = submit(mallory, "unicity('evil.people')")
    assert Jobs(vera).rows("unicity", "veras.people")
    wait_until(lambda: state(mallory, job) == "failed", 60)
    for connection in held:
        connection.close()


@pytest.mark.long
@pytest.mark.pitfall(51)
def test_a_lock_that_is_held_holds_up_nobody_else(
    service: Service, mallory: Connection, vera: Connection
) -> None:
    """She locks all rows of her jobs that she can, by canceling them and not ending that."""
    calls = [
        SLOW.replace("veras", "evil"),
        """publish_buckets('evil.slow', 'evil_s', privacy => '{"l": 2}')""",
    ]
    fetch(mallory, "UPDATE evil.pause SET seconds = 0.01")
    jobs = [submit(mallory, call) for call in calls]
    wait_until(lambda: state(mallory, jobs[0]) == "running")  # the other waits for it
    acting = "SELECT 1 FROM pg_stat_activity WHERE usename ~ '^kanon_as_'"
    with psycopg.connect(service.superuser_dsn, autocommit=True) as superuser:
        with mallory.transaction():
            said = [value(mallory, "SELECT kanon.cancel($1)", job) for job in jobs]
            assert said == ["stopping", "canceled"]
            wait_until(lambda: not fetch(superuser, acting))
            assert Jobs(vera).rows("unicity", "veras.people")
        # Nor are her own jobs held up afterwards.
        fetch(mallory, "UPDATE evil.pause SET seconds = 0")
        assert Jobs(mallory).rows("unicity", "evil.people")
        assert not {state(mallory, job) for job in jobs} & {"waiting", "running"}


TABLES = itertools.count()
NOTED = """
SELECT r ->> 'role' FROM kanon.releases, jsonb_array_elements(readers) AS r WHERE name = $1
"""


@pytest.fixture
def watched(service: Service, bob: Connection, vera: Connection) -> Iterator[str]:
    """Two releases of the same people, of which bob may read one: the other is returned."""
    people = f"veras.people_{next(TABLES)}"
    fetch(vera, f"CREATE TABLE {people} AS TABLE veras.people")
    kanon = Jobs(vera)
    kanon.register(people, ["age", "sex", "town"], "sick", ["name"])
    with psycopg.connect(service.dsn, autocommit=True) as admin:
        fetch(admin, "DELETE FROM kanon.setting WHERE name = 'combined_releases'")
        try:
            kanon.publish(people, "first", privacy='{"l": 2}', readers=["bob_too"])
            kanon.publish(people, "second", privacy='{"l": 2}', readers=[])
            yield "published.second"
        finally:
            warn_only(admin)
    for name in ("first", "second"):
        kanon.drop(name)


@pytest.fixture(scope="module")
def bob(service: Service, vera: Connection) -> Iterator[Connection]:
    with service.submitter("bob_too", "kanon_user") as connection:
        with psycopg.connect(service.superuser_dsn, autocommit=True) as superuser:
            fetch(superuser, "CREATE ROLE team")
            fetch(superuser, "GRANT team TO bob_too")
        yield connection


@pytest.mark.slow("waits until the watch has looked, several times")
@pytest.mark.pitfall(56)
def test_a_right_is_taken_as_often_as_it_is_granted(
    service: Service, bob: Connection, vera: Connection, mallory: Connection, watched: str
) -> None:
    """Twice, of columns, to a role that he is in, to his worker's login, or passed on."""
    login = value(bob, "SELECT 'kanon_as_' || oid FROM pg_roles WHERE rolname = current_user")
    whole = "SELECT has_table_privilege($1, $2, 'SELECT')"
    column = "SELECT has_column_privilege($1, $2, 'age', 'SELECT')"
    grants = [
        ("bob_too", whole, f"GRANT SELECT ON {watched} TO bob_too"),
        ("bob_too", whole, f"GRANT SELECT ON {watched} TO bob_too"),
        ("bob_too", column, f"GRANT SELECT (age, sex, sick) ON {watched} TO bob_too"),
        ("bob_too", column, f"GRANT SELECT (age, sick) ON {watched} TO team"),
        (login, whole, f"GRANT SELECT ON {watched} TO {login}"),
        ("bob_too", whole, f"GRANT SELECT ON {watched} TO PUBLIC"),
    ]
    with psycopg.connect(service.superuser_dsn, autocommit=True) as superuser:
        for role, question, grant in grants:
            with vera.transaction():
                fetch_all(vera, grant)
            assert value(superuser, question, role, watched), grant
            wait_until(lambda: not value(superuser, question, role, watched), 20)
        # Passed on by somebody else.
        with vera.transaction(), mallory.transaction():
            fetch(vera, f"GRANT SELECT ON {watched} TO mallory WITH GRANT OPTION")
        fetch(mallory, f"GRANT SELECT (age) ON {watched} TO bob_too")
        wait_until(lambda: not value(superuser, column, "bob_too", watched), 20)
        # The publisher's own rights, and what an administrator has granted, are as they were.
        kept = "SELECT has_table_privilege('vera', $1, 'SELECT WITH GRANT OPTION')"
        assert value(superuser, kept, watched)
    assert ("bob_too",) in fetch(vera, NOTED, "second")
    assert "publication second: taken back" in service.workers[-1].said()


@pytest.mark.slow("waits until the watch has looked")
@pytest.mark.pitfall(56)
def test_nobody_stops_the_watch_over_others(
    service: Service, mallory: Connection, bob: Connection, vera: Connection, watched: str
) -> None:
    """She grants and revokes all the time, which makes each look at what is hers fail."""
    Jobs(mallory).publish("evil.people", "evil_1", privacy='{"l": 2}', readers=["bob_too"])
    Jobs(mallory).publish("evil.people", "evil_2", privacy='{"l": 2}', readers=[])
    is_over = threading.Event()

    def toggle() -> None:
        with service.connect("mallory") as busy:
            while not is_over.is_set():
                for what in ("GRANT SELECT ON published.evil_2 TO bob_too",
                             "REVOKE SELECT ON published.evil_2 FROM bob_too"):  # fmt: skip
                    with contextlib.suppress(psycopg.Error), busy.transaction():
                        fetch(busy, what)
                        fetch(busy, "SELECT pg_sleep(0.2)")

    busy = threading.Thread(target=toggle)
    busy.start()
    try:
        wait_until(lambda: ("bob_too",) in fetch(mallory, NOTED, "evil_2"))
        fetch(vera, f"GRANT SELECT ON {watched} TO bob_too")
        readable = f"SELECT has_table_privilege('{watched}', 'SELECT')"
        assert value(bob, readable)
        wait_until(lambda: not value(bob, readable), 20)
    finally:
        is_over.set()
        busy.join()
    # Once she is done, what is hers is looked after as well.
    fetch(mallory, "GRANT SELECT ON published.evil_2 TO bob_too")
    wait_until(
        lambda: not value(bob, "SELECT has_table_privilege('published.evil_2', 'SELECT')"), 20
    )
    for name in ("evil_1", "evil_2"):
        Jobs(mallory).drop(name)


@pytest.mark.pitfall(56)
def test_nobody_holds_up_the_watch_over_others(
    service: Service, mallory: Connection, vera: Connection
) -> None:
    """She locks what the ledger has of her publication: readers of other ones are noted anyway."""
    for owner, schema in ((mallory, "evil"), (vera, "veras")):
        Jobs(owner).publish(f"{schema}.people", f"{schema}_w", privacy='{"l": 2}', readers=[])
    told = json.dumps({"name": "evil_w", "waits": {"deleted": {"records": 1}}})
    with mallory.transaction():
        fetch(mallory, "INSERT INTO kanon.errand (task, given) VALUES ('keep waits', $1)", told)
        fetch(mallory, "GRANT SELECT ON published.evil_w TO kanon_analyst")
        fetch(vera, "GRANT SELECT ON published.veras_w TO mallory")
        wait_until(lambda: ("mallory",) in fetch(vera, NOTED, "veras_w"), 20)
    for owner, schema in ((mallory, "evil"), (vera, "veras")):
        Jobs(owner).drop(f"{schema}_w")


@pytest.mark.pitfall(57)
def test_roles_take_turns(service: Service, mallory: Connection, vera: Connection) -> None:
    """Who asks ten times is not answered ten times first, nor given the last place of a worker."""
    with psycopg.connect(service.superuser_dsn) as superuser:  # no worker sees its jobs
        fetch(superuser, "SET search_path = pg_catalog, kanon_queue")
        # Jobs of the tests before have told their end, and are about to leave the queue.
        running = "SELECT FROM procrastinate_jobs WHERE status = 'doing'"
        wait_until(lambda: not fetch(superuser, running))
        worker = value(superuser, "SELECT worker_id FROM procrastinate_register_worker_v1()")

        def submit_as(role: str, operation: str) -> None:
            fetch(superuser, f"SET SESSION AUTHORIZATION {role}")
            fetch(superuser, "SELECT kanon.submit($1, '{}')", operation)
            fetch(superuser, "RESET SESSION AUTHORIZATION")

        def turn(slots: int) -> tuple[str, str] | None:
            ((queued,),) = fetch(superuser, "SELECT id FROM kanon.take_turn($1, $2)", worker, slots)
            if queued is None:
                return None
            ((role, operation),) = fetch(
                superuser,
                "UPDATE kanon.job SET started_at = clock_timestamp() WHERE queue_id = $1"
                " RETURNING role_name, operation",
                queued,
            )
            return role, operation

        def end_all() -> None:
            fetch(superuser, "UPDATE procrastinate_jobs SET status = 'succeeded'"
                             " WHERE status = 'doing' AND worker_id = $1", worker)  # fmt: skip

        for operation in ("metrics", "metrics", "metrics", "unicity", "unicity"):
            submit_as("mallory", operation)
        for operation in ("unicity", "metrics"):
            submit_as("vera", operation)
        # Of one place, they have one after the other.
        turns = []
        for _ in range(7):
            turns.append(turn(1))
            end_all()
        roles = [role for role, _ in filter(None, turns)]
        assert roles in (["mallory", "vera"] * 2 + ["mallory"] * 3,
                         ["vera", "mallory"] * 2 + ["mallory"] * 3)  # fmt: skip
        own = [operation for role, operation in filter(None, turns) if role == "mallory"]
        assert own == ["metrics", "metrics", "metrics", "unicity", "unicity"]
        # Of three places, two are the most for one role: a question and a piece of work.
        for operation in ("metrics", "metrics", "unicity", "unicity"):
            submit_as("mallory", operation)
        assert [turn(3), turn(3), turn(3)] == [("mallory", "metrics"), ("mallory", "unicity"), None]
        submit_as("vera", "metrics")
        assert turn(3) == ("vera", "metrics")
        superuser.rollback()


def cancel_all(connection: Connection) -> None:
    """Cancel all jobs of a role, and wait until none is left."""
    going = "SELECT kanon.cancel(job_id) FROM kanon.jobs WHERE state IN ('waiting', 'running')"
    wait_until(lambda: not fetch(connection, going))


def random_text(n_bytes: int) -> str:
    """Make a text that no compression makes shorter by much."""
    return secrets.token_urlsafe(n_bytes * 3 // 4)


@pytest.mark.pitfall(57)
def test_what_a_role_keeps_is_limited(service: Service, mallory: Connection) -> None:
    """The length of arguments and answers, what waits, and what has ended."""
    with psycopg.connect(service.superuser_dsn) as superuser:  # no worker sees its jobs
        queued = (
            "SELECT count(*) FROM kanon_queue.procrastinate_jobs AS q WHERE NOT EXISTS ("
            "SELECT FROM kanon.job AS j WHERE j.queue_id = q.id)"
        )
        before = value(superuser, queued)
        fetch(superuser, "SET SESSION AUTHORIZATION mallory")
        call = (
            "SELECT kanon.submit('metrics', jsonb_build_object('publication', $1::text))"
            " FROM generate_series(1, $2::int)"
        )
        for length, n, why in ((5_000_000, 1, "arguments"), (3_900_000, 19, "too many jobs")):
            with superuser.transaction(force_rollback=True), pytest.raises(
                psycopg.errors.ProgramLimitExceeded, match=why
            ):  # fmt: skip
                fetch(superuser, call, random_text(length), n)
        for _ in range(2):
            fetch(superuser, call, random_text(3_900_000), 10)
            fetch(superuser, "SELECT kanon.cancel(job_id) FROM kanon.jobs WHERE state = 'waiting'")
        fetch(superuser, call, "x", 1)
        fetch(superuser, "RESET SESSION AUTHORIZATION")
        kept = "SELECT sum(pg_column_size(arguments)) FROM kanon.job WHERE role_name = 'mallory'"
        assert 50_000_000 < value(superuser, kept) < 68_000_000
        # The queue's own jobs are forgotten with them.
        assert value(superuser, queued) == before
        # She may end a job of hers that has begun, as a worker would.
        fetch(superuser, "UPDATE kanon.job SET started_at = now()")
        fetch(superuser, "SET SESSION AUTHORIZATION mallory")
        job = value(superuser, "SELECT max(job_id) FROM kanon.jobs")
        fetch(superuser, "SELECT kanon.job_task('begin', jsonb_build_object('job', $1::int))", job)
        ending = (
            "SELECT kanon.job_task('finish', jsonb_build_object('job', $1::int, 'answer',"
            " jsonb_build_object('value', repeat('x', 34000000))))"
        )
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="longer than the 32 MB"):
            fetch(superuser, ending, job)
        superuser.rollback()
    with slowly(mallory, "evil", 0):
        nap = value(mallory, "SELECT pg_get_functiondef('evil.nap'::regproc)")
        fetch(mallory, "CREATE OR REPLACE FUNCTION evil.nap() RETURNS boolean LANGUAGE plpgsql AS"
                       " $$BEGIN RAISE insufficient_privilege USING MESSAGE ="
                       " repeat('x', 20000000); END$$")  # fmt: skip
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as caught:
            Jobs(mallory).rows("unicity", "evil.slow")
        fetch(mallory, nap)
        assert len(str(caught.value)) < 50_000


@pytest.mark.pitfall(57)
def test_sessions_of_one_role_count_together(service: Service, mallory: Connection) -> None:
    """Two that do not see each other's jobs yet have a hundred that wait, not two hundred."""
    call = "SELECT kanon.submit('metrics', '{\"publication\": \"x\"}') FROM generate_series(1, 60)"
    seen: list[str | None] = []

    def submit_too() -> None:
        with service.connect("mallory") as second, second.transaction(force_rollback=True):
            seen.append(sqlstate_of(lambda: fetch(second, call)))

    with mallory.transaction():
        fetch(mallory, call)
        other = threading.Thread(target=submit_too)
        other.start()
        time.sleep(0.2)
        assert seen == []
    other.join()
    assert seen == ["54000"]
    cancel_all(mallory)


@pytest.mark.pitfall(57)
def test_forgetting_waits_for_nobody(
    service: Service, mallory: Connection, vera: Connection
) -> None:
    """Nor for who cancels what has ended, and leaves that transaction open."""
    for owner, schema in ((mallory, "evil"), (vera, "veras")):
        assert Jobs(owner).rows("unicity", f"{schema}.people")
    ended = "SELECT max(job_id) FROM kanon.jobs WHERE state = 'done'"
    job, others = value(mallory, ended), value(vera, ended)
    with mallory.transaction(force_rollback=True), service.connect("kanon_worker") as worker:
        assert value(mallory, "SELECT kanon.cancel($1)", job) == "done"
        fetch(worker, "SET lock_timeout = '500ms'")  # as workers do
        worker.execute(_FORGET, {"days": 0})
        for owner, number in ((vera, others), (mallory, job)):
            assert fetch(owner, "SELECT 1 FROM kanon.jobs WHERE job_id = $1", number) == []


@pytest.mark.long
@pytest.mark.pitfall(51)
def test_a_role_made_again_gets_no_jobs_of_the_old_one(
    service: Service, vera: Connection, scratch: Connection
) -> None:
    """A job belongs to the role that submitted it, not to its name."""
    later = (
        "UPDATE kanon_queue.procrastinate_jobs AS q SET scheduled_at = $2::timestamptz"
        " FROM kanon.job AS j WHERE j.queue_id = q.id AND j.job_id = $1"
    )
    with (
        service.submitter("phoenix", "kanon_publisher"),
        psycopg.connect(service.superuser_dsn) as superuser,
    ):
        fetch(superuser, "SET search_path = kanon_queue")  # its triggers name no schema
        fetch(superuser, "SET SESSION AUTHORIZATION phoenix")
        job = submit(superuser, "metrics('veras_b')")
        fetch(superuser, "RESET SESSION AUTHORIZATION")
        fetch(superuser, later, job, "infinity")
    forbid(service.dsn, ["phoenix"])
    with psycopg.connect(service.dsn, autocommit=True) as admin:
        fetch(admin, "DROP ROLE phoenix")
    fetch_all(scratch, "SET search_path = kanon_queue")
    fetch(scratch, later, job, None)
    with service.submitter("phoenix", "kanon_publisher") as phoenix:
        assert fetch(phoenix, "TABLE kanon.jobs") == []
    with service.connect(service.administrator) as admin:
        found = "SELECT message FROM kanon.jobs WHERE job_id = $1 AND state = 'failed'"
        ((message,),) = wait_until(lambda: fetch(admin, found, job), 60)
        assert message.startswith("the worker cannot log in")


@pytest.mark.pitfall(10)
def test_neither_logs_nor_other_roles_see_values(
    service: Service, mallory: Connection, vera: Connection
) -> None:
    """What fails on purpose, with data in its message, is told to nobody but who submitted it."""
    for state_ in ("42501", "22000", "KN001", "57014"):
        fetch_all(
            vera,
            "CREATE OR REPLACE FUNCTION veras.loud() RETURNS boolean LANGUAGE plpgsql AS $$BEGIN"
            f" RAISE EXCEPTION USING MESSAGE = '{CANARY}', DETAIL = '{CANARY}', HINT = '{CANARY}',"
            f" ERRCODE = '{state_}'; END$$;"
            "CREATE OR REPLACE VIEW veras.loudly AS SELECT * FROM veras.people WHERE veras.loud()",
        )
        for call in (
            "register_source('veras.loudly', '{age,sex}', sensitive => 'sick')",
            "publish_generalized('veras.loudly', 'loud', k => 3)",
        ):
            job = submit(vera, call)
            sqlstate = sqlstate_of(lambda: fetch(vera, "SELECT * FROM kanon.wait($1)", job))
        assert sqlstate is not None
    assert CANARY not in "".join(worker.said() for worker in service.workers)
    assert CANARY not in str(fetch(mallory, "TABLE kanon.jobs"))
    assert CANARY not in str(fetch(mallory, "SELECT * FROM pg_stat_activity"))


@pytest.mark.pitfall(7)
def test_a_login_is_not_guessed_from_another(service: Service, tmp_path: Path) -> None:
    """Passwords follow from a key, which no session has, and differ for each login."""
    key = read_key(tmp_path / "key", create=True)
    passwords = {
        psycopg.conninfo.conninfo_to_dict(login_dsn(service.dsn, key, login))["password"]
        for login in ("kanon_worker", "kanon_as_1", "kanon_as_2")
    }
    assert len(passwords) == 3
    assert key.decode() not in "".join(map(str, passwords))
    # The password of whoever started the worker goes nowhere.
    given = make_conninfo(service.dsn, password="hers")  # noqa: S106
    assert "hers" not in login_dsn(given, None, "kanon_worker")


def test_an_attack_that_works_would_be_seen(mallory: Connection) -> None:
    """The spy counts what it gains: here, what mallory may do."""
    fetch(mallory, "INSERT INTO evil.attempts VALUES ('SELECT 1')")
    fetch(mallory, "SELECT evil.spy()")
    assert value(mallory, "SELECT is_called FROM evil.gained")


@pytest.mark.pitfall(58)
def test_a_login_is_closed_whatever_it_does(
    service: Service, mallory: Connection, scratch: Connection
) -> None:
    """It owns something in another database, is at work, and changes itself at this moment."""
    ((login,),) = fetch(
        scratch, "SELECT 'kanon_as_' || oid FROM pg_roles WHERE rolname = 'mallory'"
    )
    elsewhere = make_conninfo(service.as_role(login), dbname="postgres")
    with psycopg.connect(elsewhere, autocommit=True) as other:
        ((large,),) = fetch(other, "SELECT lo_create(0)")
    acting, changing = (psycopg.connect(service.as_role(login), autocommit=True) for _ in range(2))
    fetch(acting, "SET ROLE mallory")
    changing.execute("BEGIN")
    changing.execute(f"ALTER ROLE {login} PASSWORD 'known'".encode())
    done = forbid(service.dsn, ["mallory"])
    rest = f"still there: DROP OWNED BY {login} in postgres; DROP ROLE {login}"
    assert done == [
        "no worker acts for mallory", f"{login} can do nothing any more, but is {rest}",
    ]  # fmt: skip
    for session in (acting, changing):
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="not permitted to log in"):
        psycopg.connect(service.as_role(login))
    assert (
        fetch(scratch, "SELECT 1 FROM pg_auth_members WHERE member = $1::text::regrole", login)
        == []
    )
    assert value(scratch, "SELECT rolpassword IS NULL FROM pg_authid WHERE rolname = $1", login)
    assert sqlstate_of(lambda: submit(mallory, "unicity('evil.people')")) == "42501"
    with psycopg.connect(make_conninfo(service.superuser_dsn, dbname="postgres")) as other:
        # Nobody has got what was the login's.
        owner = "SELECT lomowner::regrole::text FROM pg_largeobject_metadata WHERE oid = $1"
        assert value(other, owner, large) == login
        (told,) = [one for one in examine(service.dsn) if one.subject == f"role {login}"]
        assert told.remedy == f"kanon service forbid {login}"
        fetch(other, f"DROP OWNED BY {login}")
    assert forbid(service.dsn, [login]) == [f"no worker acts for {login}"]
    assert fetch(scratch, "SELECT 1 FROM pg_roles WHERE rolname = $1", login) == []
    allow(service.dsn, ["mallory"], service.key)
    assert Jobs(mallory).rows("unicity", "evil.people")


@pytest.mark.slow("six ways to power, before and after workers are allowed")
@pytest.mark.pitfall(59)
def test_who_can_become_a_superuser_submits_nothing(service: Service, scratch: Connection) -> None:
    """Whether by an attribute or through other roles, and whether before or after `allow`."""
    for role, attributes in (("dba", "SUPERUSER"), ("maker", "CREATEROLE"), ("between", "NOLOGIN"),
                             ("dora", "LOGIN")):  # fmt: skip
        fetch(scratch, f"CREATE ROLE {role} {attributes}")
    fetch(scratch, "GRANT kanon_analyst TO dora")
    if scratch.info.server_version >= 160000:
        fetch(scratch, f"GRANT dora TO {service.administrator} WITH ADMIN OPTION")
    changes = [
        ("ALTER ROLE dora SUPERUSER", "ALTER ROLE dora NOSUPERUSER"),
        ("GRANT dba TO dora", "REVOKE dba FROM dora"),
        ("GRANT dba TO between; GRANT between TO dora", "REVOKE between FROM dora"),
        ("GRANT maker TO dora", "REVOKE maker FROM dora"),
        ("GRANT pg_execute_server_program TO dora", "REVOKE pg_execute_server_program FROM dora"),
        (f"GRANT {service.administrator} TO dora", f"REVOKE {service.administrator} FROM dora"),
    ]
    for change, undo in changes:
        fetch_all(scratch, change)
        with pytest.raises(PermissionDeniedError, match="can do so much"):
            allow(service.dsn, ["dora"], None)
        fetch_all(scratch, undo)
    allow(service.dsn, ["dora"], service.key)
    with service.connect("dora") as dora:
        for change, undo in changes:
            fetch_all(scratch, change)
            assert sqlstate_of(lambda: submit(dora, "metrics('x')")) == "42501", change
            wrong = [one.value for one in examine(service.dsn) if one.state == "broken"]
            assert any(text.startswith("dora can do too much") for text in wrong), change
            fetch_all(scratch, undo)
        assert sqlstate_of(lambda: submit(dora, "metrics('x')")) is None
        assert sqlstate_of(lambda: fetch(dora, "SELECT * FROM kanon.wait()")) == "42704"
    forbid(service.dsn, ["dora"])


@pytest.mark.pitfall(59)
def test_a_login_for_the_queue_is_not_adopted(
    cluster_dsn: str, new_database: Callable[..., str]
) -> None:
    """Somebody has made it before, knows its password, or is a member of it."""
    empty = new_database(installed=False)
    with psycopg.connect(cluster_dsn, autocommit=True) as superuser:
        for statement in (
            "CREATE ROLE mal LOGIN",
            "CREATE ROLE kanon_worker LOGIN PASSWORD 'known'",
        ):
            fetch(superuser, statement)
        try:
            with pytest.raises(PermissionDeniedError, match="somebody may know its password"):
                install(empty, service=True)
            fetch(superuser, "GRANT kanon_worker TO mal")
            with pytest.raises(PermissionDeniedError, match="somebody can become it"):
                install(empty, service=True)
        finally:
            fetch_all(superuser, "DROP ROLE kanon_worker; DROP ROLE mal")


@pytest.mark.pitfall(59)
def test_doctor_names_members_of_the_login_for_the_queue(
    service: Service, scratch: Connection
) -> None:
    fetch_all(scratch, "CREATE ROLE spying LOGIN; GRANT kanon_worker TO spying")
    (told,) = [one for one in examine(service.dsn) if one.subject == "role kanon_worker"]
    assert (told.state, told.remedy) == ("broken", "REVOKE kanon_worker FROM spying")
    assert "spying can become it" in told.value
    fetch_all(scratch, "REVOKE kanon_worker FROM spying; DROP ROLE spying")


@pytest.mark.pitfall(60)
def test_settings_of_a_role_hold_for_its_jobs(
    service: Service, vera: Connection, scratch: Connection
) -> None:
    """Also in one database, as they change, and what only superusers set; or the job is refused."""
    fetch_all(
        vera,
        "CREATE TABLE veras.held (name text, setting text);"
        "CREATE FUNCTION veras.note() RETURNS boolean LANGUAGE plpgsql AS $$BEGIN"
        " DELETE FROM veras.held; INSERT INTO veras.held SELECT n, current_setting(n) FROM unnest("
        "'{work_mem,statement_timeout,log_parameter_max_length,temp_file_limit}'::text[]) AS n;"
        " RETURN true; END$$; CREATE VIEW veras.noting AS SELECT * FROM veras.people"
        " WHERE number > 1 OR veras.note()",
    )
    database = scratch.info.dbname

    def held() -> dict[str, str]:
        Jobs(vera).register("veras.noting", ["age"], "sick", ["name"])
        return dict(fetch(vera, "SELECT name, setting FROM veras.held"))

    try:
        before = held()
        fetch_all(
            scratch,
            "ALTER ROLE vera SET work_mem = '7MB'; ALTER ROLE vera SET statement_timeout = '50s';"
            f" ALTER ROLE vera IN DATABASE {database} SET work_mem = '8MB';"
            " ALTER ROLE vera SET search_path = veras",
        )
        assert held() == before | {"work_mem": "8MB", "statement_timeout": "50s"}
        fetch(scratch, f"ALTER ROLE vera IN DATABASE {database} RESET work_mem")
        assert held() == before | {"work_mem": "7MB", "statement_timeout": "50s"}
        # Those of superusers hold, too, or nothing is done.
        fetch(scratch, "ALTER ROLE vera SET log_parameter_max_length = 0")
        fetch(scratch, f"ALTER ROLE vera IN DATABASE {database} SET temp_file_limit = '1GB'")
        with pytest.raises(psycopg.Error, match="which only superusers set") as caught:
            held()
        assert caught.value.diag.message_detail == "log_parameter_max_length"
        assert str(caught.value.diag.message_hint).endswith("log_parameter_max_length TO '0'")
        told = allow(service.dsn, ["vera"], service.key)[2:]
        assert len(told) == 2
        for text in told:
            fetch_all(scratch, text.rpartition("has said: ")[2])
        assert allow(service.dsn, ["vera"], service.key)[2:] == []
        found = held()
        assert (found["log_parameter_max_length"], found["temp_file_limit"]) == ("0", "1GB")
        fetch(scratch, "ALTER ROLE vera SET statement_timeout = '1ms'")
        assert sqlstate_of(held) == "57014"
    finally:
        for role in ("vera", value(vera, "SELECT 'kanon_as_' || 'vera'::regrole::oid")):
            for where in ("", f" IN DATABASE {database}"):
                fetch(scratch, f"ALTER ROLE {role}{where} RESET ALL")
    assert held() == before


@pytest.mark.pitfall(42)
def test_nobody_hears_of_jobs(service: Service, vera: Connection, mallory: Connection) -> None:
    """Whoever may connect could LISTEN to the queue's notifications: there are none."""
    for channel in ("procrastinate_any_queue_v1", "procrastinate_queue_v1#kanon"):
        fetch(mallory, f'LISTEN "{channel}"')
    with slowly(vera, "veras", 1):
        job = submit(vera, SLOW)
        wait_until(lambda: state(vera, job) == "running")
        fetch(vera, "SELECT kanon.cancel($1)", job)
    assert sqlstate_of(lambda: fetch(vera, "SELECT * FROM kanon.wait($1)", job)) == "57014"
    assert list(mallory.notifies(timeout=0.2)) == []
    fetch(mallory, "UNLISTEN *")


def test_jobs_of_a_renamed_role_are_done(service: Service, scratch: Connection) -> None:
    with service.submitter("maiden", "kanon_publisher") as maiden:
        give_people(service, maiden, "maidens")
        slow_people(maiden, "maidens")
        with slowly(maiden, "maidens", 0.005):
            first, second = (submit(maiden, "unicity('maidens.slow')") for _ in range(2))
            wait_until(lambda: state(maiden, first) == "running")
            fetch(scratch, "ALTER ROLE maiden RENAME TO married")
    with service.connect("married") as married:
        for job in (first, second):
            assert fetch(married, "SELECT * FROM kanon.wait($1)", job)
        assert fetch(married, "SELECT DISTINCT role FROM kanon.jobs") == [("married",)]


def test_a_reason_is_kept_until_it_can_be_written(
    service: Service, vera: Connection, scratch: Connection
) -> None:
    """As on a full disk: why a job failed is told once that works again, and nothing else is."""
    fetch(scratch, "REVOKE INSERT (job_id, answer) ON kanon.job_end FROM kanon_worker")
    job = submit(vera, "metrics('no_such_one')")
    attempted = "SELECT attempts FROM kanon.jobs WHERE job_id = $1 AND attempts > 0"
    wait_until(lambda: fetch(vera, attempted, job))
    time.sleep(1)  # it cannot be written the first time
    assert state(vera, job) == "running"
    fetch(scratch, "GRANT INSERT (job_id, answer) ON kanon.job_end TO kanon_worker")
    assert sqlstate_of(lambda: fetch(vera, "SELECT * FROM kanon.wait($1, 20)", job)) == "42704"


HANGING = SLOW.replace("veras", "evil")
CHECK = "check_relation('evil.slow', quasi_identifiers => '{age}', k => 2)"


@pytest.mark.slow("jobs hang, and are ended")
@pytest.mark.pitfall(57)
def test_what_hangs_takes_the_last_place_of_nobody(
    service: Service, mallory: Connection, vera: Connection
) -> None:
    """Work and a question hold up their own role's jobs, until limits that differ."""
    service.working(time_limit="3", question_limit="1.5")
    with slowly(mallory, "evil", 1000):
        jobs = [submit(mallory, HANGING), submit(mallory, CHECK),
                submit(mallory, HANGING)]  # fmt: skip
        states = ["running", "running", "waiting"]
        wait_until(lambda: [state(mallory, job) for job in jobs] == states)
        assert Jobs(vera).rows("unicity", "veras.people")
        fetch(mallory, "SELECT kanon.cancel($1)", jobs[2])
        for job, seconds in ((jobs[1], "1.5"), (jobs[0], "3")):
            with pytest.raises(psycopg.errors.QueryCanceled, match="than the worker all") as caught:
                fetch(mallory, "SELECT * FROM kanon.wait($1)", job)
            assert caught.value.diag.message_detail == f"{seconds} seconds"
