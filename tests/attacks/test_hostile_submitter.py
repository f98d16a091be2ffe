"""Attacks by a role that submits jobs, on the worker and on others for whom it works."""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from kanon_db.errors import ServerError
from kanon_db.installation.service import allow, forbid, login_dsn, read_key
from kanon_db.session.psycopg_session import open_connection
from tests.integration.parties import Connection, fetch, sqlstate_of, value
from tests.service import Jobs, Service, Worker, give_people, state, submit, wait_until

CANARY = "rubella 4711"


@pytest.fixture(scope="module")
def worker(service: Service) -> Worker:
    return service.work()


@pytest.fixture(scope="module")
def vera(service: Service, worker: Worker) -> Iterator[Connection]:
    """The victim, who publishes, too."""
    with service.submitter("vera", "kanon_publisher") as connection:
        give_people(service, connection, "veras")
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
@pytest.mark.parametrize("place", PLACES)
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
    fetch_all(vera, "CREATE VIEW veras.slow AS SELECT p.* FROM veras.people AS p,"
                    " LATERAL (SELECT pg_sleep(0.01 + 0 * p.age)) AS s")  # fmt: skip
    job = submit(vera, "register_source('veras.slow', '{age,sex}', sensitive => 'sick')")
    wait_until(lambda: state(vera, job) == "running")
    for number in range(200):
        for payload in (f'{{"type":"abort_job_requested","job_id":{number}}}', "{", "[]", "null"):
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


@pytest.mark.pitfall(51)
@pytest.mark.parametrize(
    "operation", ["os:system", "kanon_db.operations:version", "perform", "__class__", "'; DROP", ""]
)
def test_only_operations_are_performed(mallory: Connection, operation: str) -> None:
    fetch(mallory, "SELECT kanon.submit($1, '{}')", operation)
    with pytest.raises(psycopg.Error) as caught:
        fetch(mallory, "SELECT * FROM kanon.wait()")
    assert caught.value.diag.sqlstate in ("22023", "KN000")


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


@pytest.mark.pitfall(51)
def test_a_lock_that_is_held_holds_up_nobody_else(
    service: Service, mallory: Connection, vera: Connection
) -> None:
    """She locks all rows of her jobs that she can, by canceling them and not ending that."""
    fetch_all(mallory, "CREATE VIEW evil.slowly AS SELECT p.* FROM evil.people AS p,"
                       " LATERAL (SELECT pg_sleep(0.01 + 0 * p.age)) AS s")  # fmt: skip
    calls = ["register_source('evil.slowly', '{age,sex}', sensitive => 'sick')",
             """publish_buckets('evil.slowly', 'evil_s', privacy => '{"l": 2}')"""]  # fmt: skip
    Jobs(mallory).register("evil.slowly", ["age", "sex", "town"], "sick", ["name"])
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
        assert Jobs(mallory).rows("unicity", "evil.people")
        assert not {state(mallory, job) for job in jobs} & {"waiting", "running"}


@pytest.mark.pitfall(51)
def test_nobody_holds_up_the_watch_over_others(
    service: Service, mallory: Connection, vera: Connection
) -> None:
    """She locks what the ledger has of her publication: readers of other ones are noted anyway."""
    for owner, schema in ((mallory, "evil"), (vera, "veras")):
        Jobs(owner).publish(f"{schema}.people", f"{schema}_w", privacy='{"l": 2}', readers=[])
    told = json.dumps({"name": "evil_w", "waits": {"deleted": {"records": 1}}})
    fetch(mallory, "GRANT SELECT ON published.evil_w TO kanon_analyst")
    with mallory.transaction(), service.connect("kanon_worker") as worker:
        fetch(mallory, "INSERT INTO kanon.errand (task, given) VALUES ('keep waits', $1)", told)
        fetch(vera, "GRANT SELECT ON published.veras_w TO mallory")
        fetch(worker, "SET lock_timeout = '500ms'")  # as workers do
        fetch(worker, "SELECT kanon.watch_late()")
        noted = "SELECT readers FROM kanon.releases WHERE name = 'veras_w'"
        assert "mallory" in [reader["role"] for reader in value(vera, noted)]
    for owner, schema in ((mallory, "evil"), (vera, "veras")):
        Jobs(owner).drop(f"{schema}_w")


@pytest.mark.pitfall(51)
def test_what_hangs_is_canceled(service: Service, mallory: Connection, vera: Connection) -> None:
    """It holds up its own role's jobs, until the worker's limit of time."""
    service.working(time_limit="2")
    fetch(mallory, "CREATE VIEW evil.hanging AS SELECT p.* FROM evil.people AS p,"
                   " LATERAL (SELECT pg_sleep(1000)) AS s")  # fmt: skip
    job = submit(mallory, "register_source('evil.hanging', '{age,sex}', sensitive => 'sick')")
    wait_until(lambda: state(mallory, job) == "running")
    assert Jobs(vera).rows("unicity", "veras.people")
    with pytest.raises(psycopg.errors.QueryCanceled, match="longer than the worker allows"):
        fetch(mallory, "SELECT * FROM kanon.wait($1)", job)


@pytest.mark.pitfall(51)
def test_a_role_made_again_gets_no_jobs_of_the_old_one(service: Service, vera: Connection) -> None:
    """A job belongs to the role that submitted it, not to its name."""
    for worker in service.workers:
        worker.stop()
    with service.submitter("phoenix", "kanon_publisher") as phoenix:
        job = submit(phoenix, "metrics('veras_b')")
    forbid(service.dsn, ["phoenix"])
    with psycopg.connect(service.dsn, autocommit=True) as admin:
        fetch(admin, "DROP ROLE phoenix")
    service.work()
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


@pytest.mark.pitfall(51)
def test_a_process_ends_with_its_worker(service: Service, vera: Connection) -> None:
    """Nobody goes on as a submitter after its worker was killed."""
    service.working()
    job = submit(vera, "register_source('veras.slow', '{age,sex}', sensitive => 'sick')")
    wait_until(lambda: state(vera, job) == "running")
    acting = "SELECT 1 FROM pg_stat_activity WHERE usename ~ '^kanon_as_'"
    with psycopg.connect(service.superuser_dsn, autocommit=True) as superuser:
        wait_until(lambda: fetch(superuser, acting))
        service.workers[-1].stop(signal.SIGKILL)
        wait_until(lambda: not fetch(superuser, acting))
    service.work()
    assert fetch(vera, "SELECT * FROM kanon.wait($1, 60)", job)


def test_an_attack_that_works_would_be_seen(mallory: Connection) -> None:
    """The spy counts what it gains: here, what mallory may do."""
    fetch(mallory, "INSERT INTO evil.attempts VALUES ('SELECT 1')")
    fetch(mallory, "SELECT evil.spy()")
    assert value(mallory, "SELECT is_called FROM evil.gained")
