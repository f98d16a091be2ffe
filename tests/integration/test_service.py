"""Operations as jobs of a worker, on a server without PL/Python, by a role that is no superuser."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner

import kanon_db
from kanon_db.errors import PermissionDeniedError, ServerError
from kanon_db.installation.doctor import examine
from kanon_db.installation.install import install, uninstall
from kanon_db.installation.service import allow, forbid, login_password, read_key
from kanon_db.interfaces.cli import main
from kanon_db.operations import operations
from tests.checks import OF_KINDS, Case, cases, check_direct_call_leaves_nothing, check_published
from tests.docs.console import PAGES, blocks
from tests.integration.growing import Source
from tests.integration.parties import (
    Connection,
    Package,
    Parties,
    fetch,
    remains,
    sqlstate_of,
    value,
    warn_only,
)
from tests.integration.test_battery import COLUMNS, PEOPLE, create_table
from tests.service import (
    Jobs,
    Line,
    Server,
    Service,
    Worker,
    give_people,
    served,
    slow_people,
    slowly,
    state,
    submit,
    wait_until,
)


@pytest.fixture
def worker(service: Service) -> Worker:
    return service.working()


@pytest.fixture(scope="module")
def admin(service: Service) -> Iterator[Connection]:
    """The administrator, who is no superuser."""
    with service.connect(service.administrator) as connection:
        yield connection


@pytest.fixture(scope="module")
def alice(service: Service) -> Iterator[Connection]:
    service.working()
    with service.submitter("alice", "kanon_publisher") as connection:
        give_people(service, connection, "hers")
        slow_people(connection, "hers")
        yield connection


@pytest.fixture(scope="module")
def bob(service: Service, alice: Connection) -> Iterator[Connection]:
    """An analyst; the publication is there."""
    Jobs(alice).publish("hers.people", "people_b", privacy='{"l": 2}')
    with service.submitter("bob", "kanon_analyst") as connection:
        yield connection


@pytest.fixture(scope="module")
def nobody(service: Service, admin: Connection) -> Iterator[Connection]:
    """Somebody for whom no worker acts."""
    fetch(admin, "CREATE ROLE nobodys LOGIN")
    with service.connect("nobodys") as connection:
        yield connection


FAULTS = int(os.environ.get("KANON_SERVICE_FAULTS", "200"))

SLOW = """publish_buckets('hers.slow', $1, privacy => '{"l": 2}')"""


class TestInstallation:
    def test_what_is_there(self, service: Service, admin: Connection, worker: Worker) -> None:
        """The same catalog and rights, without PL/Python, a superuser or an event trigger."""
        assert value(admin, "SELECT current_setting('is_superuser')") == "off"
        assert fetch(admin, "SELECT lanname FROM pg_language WHERE lanname ~ 'python'") == []
        assert fetch(admin, "SELECT evtname FROM pg_event_trigger") == []
        assert value(admin, "SELECT kanon.version()") == kanon_db.__version__
        assert fetch(
            admin,
            "SELECT DISTINCT pg_get_userbyid(relowner)::text FROM pg_class"
            " WHERE relnamespace IN ('kanon'::regnamespace, 'kanon_queue'::regnamespace)",
        ) == [(service.administrator,)]

    @pytest.mark.long
    def test_doctor(self, service: Service, bob: Connection, worker: Worker) -> None:
        """All is well, and no hint advises what cannot work there."""
        for role in (service.administrator, "alice", "bob"):
            findings = examine(service.as_role(role))
            assert [one for one in findings if one.state != "ok"] == []
            assert {"PL/Python", "workers", "GRANT"} <= {one.subject for one in findings}
        (superusers,) = [
            one for one in examine(service.superuser_dsn) if one.subject == "schema kanon"
        ]
        assert superusers.state == "broken"
        assert superusers.remedy == f"connect as {service.administrator}"

    def test_again(self, service: Service, admin: Connection) -> None:
        before = fetch(admin, "SELECT * FROM kanon.setting ORDER BY name")
        assert any("was 3" in action for action in install(service.dsn).actions)
        assert fetch(admin, "SELECT * FROM kanon.setting ORDER BY name") == before

    def test_by_somebody_else(self, service: Service, admin: Connection) -> None:
        fetch(admin, "CREATE ROLE another LOGIN CREATEROLE")
        fetch(admin, "CREATE ROLE low LOGIN")
        with psycopg.connect(service.superuser_dsn, autocommit=True) as superuser:
            fetch(superuser, f"GRANT CREATE ON DATABASE {superuser.info.dbname} TO another")
        for role, why in (("another", "another role"), ("low", "needs a superuser, or a role")):
            with pytest.raises(PermissionDeniedError, match=why):
                install(service.as_role(role))
        with pytest.raises(PermissionDeniedError, match="no superuser"):
            install(service.superuser_dsn, service=True)

    def test_it_goes_without_a_trace(self, service: Service, service_cluster_dsn: str) -> None:
        # In another database, which has the same administrator, and the same logins of workers.
        with served(service_cluster_dsn, "kanon_going", service.folder) as other:
            left = uninstall(other.dsn)
            assert not any("plpython" in what for what in left)
            with other.connect(other.administrator) as admin:
                assert (
                    fetch(admin, "SELECT nspname FROM pg_namespace WHERE nspname ~ 'kanon'") == []
                )

    def test_a_key_makes_the_passwords(self, service: Service, tmp_path: Path) -> None:
        """No log of the server's has them, and others cannot read the file."""
        key = read_key(tmp_path / "key", create=True)
        assert read_key(tmp_path / "key") == key
        assert login_password(key, "kanon_worker") != login_password(key, "kanon_as_1")
        with service.submitter("keyed", "kanon_analyst"):
            allow(service.dsn, ["keyed"], key)
            with psycopg.connect(service.superuser_dsn) as superuser:
                verifier = value(
                    superuser, "SELECT rolpassword FROM pg_authid WHERE rolname = 'kanon_worker'"
                )
            assert verifier.startswith("SCRAM-SHA-256$")
        forbid(service.dsn, ["keyed"])
        (tmp_path / "key").chmod(0o644)
        with pytest.raises(ServerError, match="others can read"):
            read_key(tmp_path / "key")

    @pytest.mark.slow("another server with its own pg_hba.conf, and a worker")
    def test_a_server_that_asks_for_passwords(
        self, service: Service, bob: Connection, worker: Worker, tmp_path: Path
    ) -> None:
        """By TCP, as at most hosts: all logins have passwords, which follow from the key."""
        with psycopg.connect(service.superuser_dsn) as superuser:
            methods = "SELECT DISTINCT auth_method FROM pg_hba_file_rules WHERE type = 'host'"
            assert fetch(superuser, methods) == [("scram-sha-256",)]
        for text in allow(service.dsn, ["bob"], service.key):
            login = text.split()[0]
            with pytest.raises(psycopg.OperationalError, match="no password supplied"):
                psycopg.connect(service.by_tcp(user=login))
            assert login_password(service.key, login) not in worker.said()
        assert Jobs(bob).metrics("people_b")
        read_key(tmp_path / "another", create=True)
        wrong = service.spare(key_file=str(tmp_path / "another"))
        astray = service.spare(dsn=service.by_tcp(dbname="postgres"))
        with service.submitter("keyless", "kanon_analyst") as keyless:
            forbid(service.dsn, ["keyless"])
            allow(service.dsn, ["keyless"], None)
            with pytest.raises(psycopg.Error, match="cannot log in for the role") as caught:
                Jobs(keyless).metrics("people_b")
            assert str(caught.value.diag.message_hint).endswith("kanon service allow keyless")
        forbid(service.dsn, ["keyless"])
        # They say so once, rather than look for jobs where there are none.
        for other, said in (
            (wrong, "password authentication failed"),
            (astray, "this database has no queue of jobs"),
        ):
            wait_until(lambda: said in other.said())
            assert other.stop() == 0
            assert other.said().count(said) == 1
            assert "looking for jobs" not in other.said()

    def test_roles_of_others(self, service: Service, admin: Connection) -> None:
        """From PostgreSQL 16, an administrator grants what it has created, or was given."""
        if admin.info.server_version < 160000:
            pytest.skip("before, whoever creates roles grants any")
        with psycopg.connect(service.superuser_dsn, autocommit=True) as superuser:
            fetch(superuser, "CREATE ROLE foreign_one LOGIN")
            with pytest.raises(PermissionDeniedError) as caught:
                allow(service.dsn, ["foreign_one"], service.key)
            statement = str(caught.value.hint).rpartition(", as")[0]
            assert statement.startswith("GRANT ")
            fetch(superuser, statement)
        allow(service.dsn, ["foreign_one"], service.key)
        forbid(service.dsn, ["foreign_one"])

    def test_roles_that_can_do_much_submit_nothing(self, service: Service) -> None:
        for role in (service.administrator, "postgres", "kanon_owner", "kanon_worker"):
            with pytest.raises(PermissionDeniedError, match="can do so much"):
                allow(service.dsn, [role], None)
        with service.connect("alice") as alice:
            fetch(alice, "SELECT 1")


class TestJobs:
    def test_an_answer(self, bob: Connection) -> None:
        """A function that answers submits, and kanon.wait returns the rows, to the last digit."""
        query = "SELECT COUNT(*) FROM people_b WHERE age > 10 AND sick = 'illness 1'"
        with kanon_db.connect(bob.info.dsn) as kanon:
            local = kanon.estimate_count(query)
        assert Jobs(bob).estimate(query) == (
            local.estimate, local.std_error, local.lower_bound, local.upper_bound,
        )  # fmt: skip
        assert "SUM(weight)" in Jobs(bob).rewrite(query)

    def test_the_page(self, bob: Connection) -> None:
        """What its examples say of job 12 holds for the job that they submit."""
        (block,) = blocks(PAGES / "howto" / "workers.md", "sql")
        said: list[str] = []
        bob.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
        for statement in re.sub(" *--.*", "", block).split(";\n"):
            if statement.strip():
                number = said[-1].rpartition(" ")[2] if said else "12"
                found = bob.execute(statement.replace("12", number).encode()).fetchall()
                if "jsonb_to_record" in statement:
                    assert found[0][0] > 0
        assert found == [("done",)]
        assert said == [f"submitted as job {number}"]

    def test_a_setting_of_the_session_holds_for_its_jobs(self, bob: Connection) -> None:
        fetch(bob, "SET kanon.estimator = 'no such one'")
        call = lambda: Jobs(bob).estimate("SELECT COUNT(*) FROM people_b")
        assert sqlstate_of(call) == "22023"
        fetch(bob, "RESET kanon.estimator")
        assert sqlstate_of(call) is None

    def test_an_error_is_the_same(self, bob: Connection) -> None:
        """Message, detail, hint and SQLSTATE are those of the function inside of a server."""
        with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
            Jobs(bob).estimate("SELECT nextval('x') FROM people_b")
        with (
            kanon_db.connect(bob.info.dsn) as kanon,
            pytest.raises(kanon_db.errors.UnsupportedQueryError) as local,
        ):
            kanon.estimate_count("SELECT nextval('x') FROM people_b")
        assert caught.value.diag.message_primary == local.value.message
        assert caught.value.diag.sqlstate == local.value.sqlstate

    def test_nobody_waits_in_the_transaction_that_submitted(self, bob: Connection) -> None:
        with bob.transaction():
            job = submit(bob, "metrics('people_b')")
            with pytest.raises(psycopg.Error) as caught, bob.transaction():
                fetch(bob, "SELECT * FROM kanon.wait($1)", job)
            assert caught.value.diag.sqlstate == "55000"
            assert caught.value.diag.message_hint == "COMMIT, and wait then"
        assert fetch(bob, "SELECT * FROM kanon.wait($1)", job)
        bob.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.errors.ActiveSqlTransaction), bob.transaction():
            fetch(bob, "SELECT * FROM kanon.wait($1)", job)
        bob.isolation_level = None

    def test_what_is_rolled_back_was_never_submitted(self, bob: Connection) -> None:
        before = value(bob, "SELECT count(*) FROM kanon.jobs")
        with contextlib.suppress(ZeroDivisionError), bob.transaction():
            submit(bob, "metrics('people_b')")
            raise ZeroDivisionError
        assert value(bob, "SELECT count(*) FROM kanon.jobs") == before

    def test_others_see_no_jobs(
        self, alice: Connection, bob: Connection, admin: Connection
    ) -> None:
        job = submit(bob, "metrics('people_b')")
        assert fetch(alice, "SELECT 1 FROM kanon.jobs WHERE job_id = $1", job) == []
        for call in ("kanon.wait($1)", "kanon.cancel($1)"):
            assert sqlstate_of(lambda: fetch(alice, f"SELECT * FROM {call}", job)) == "42704"
        assert fetch(admin, "SELECT role FROM kanon.jobs WHERE job_id = $1", job) == [("bob",)]
        fetch(bob, "SELECT * FROM kanon.wait($1)", job)

    def test_progress_and_cancel(self, alice: Connection) -> None:
        with slowly(alice, "hers", 0.1):
            job = submit(alice, SLOW, "canceled")
            behind = submit(alice, SLOW, "behind")
            steps = "SELECT phase, phases, step FROM kanon.jobs WHERE job_id = $1 AND phases > 0"
            ((phase, phases, step),) = wait_until(lambda: fetch(alice, steps, job))
            assert 1 <= phase <= phases
            assert step
            assert sqlstate_of(lambda: fetch(alice, "SELECT kanon.wait($1, 0.1)", job)) == "55000"
            assert value(alice, "SELECT kanon.cancel($1)", behind) == "canceled"
            assert value(alice, "SELECT kanon.cancel($1)", job) == "stopping"
            assert sqlstate_of(lambda: fetch(alice, "SELECT kanon.wait($1)", job)) == "57014"
        assert [state(alice, one) for one in (job, behind)] == ["canceled", "canceled"]
        assert value(alice, "SELECT kanon.cancel($1)", job) == "canceled"
        assert fetch(alice, "SELECT name FROM kanon.publications WHERE name = 'canceled'") == []

    def test_questions_do_not_wait_for_what_is_published(self, alice: Connection) -> None:
        with slowly(alice, "hers", 0.05):
            job = submit(alice, SLOW, "slow")
            wait_until(lambda: state(alice, job) == "running")
            assert Jobs(alice).metrics("people_b")
            assert state(alice, job) == "running"
            fetch(alice, "SELECT kanon.cancel($1)", job)
            assert sqlstate_of(lambda: fetch(alice, "SELECT kanon.wait($1)", job)) == "57014"

    @pytest.mark.slow("two workers and four roles")
    def test_work_is_done_in_turn(self, alice: Connection) -> None:
        """What is submitted later finds what was submitted earlier, whoever has several workers."""
        with slowly(alice, "hers", 0.005):
            jobs = [
                submit(alice, SLOW, "in_turn"),
                submit(alice, "drop_publication('in_turn')"),
                submit(alice, SLOW, "in_turn"),
                submit(alice, "grant_publication('in_turn', '{kanon_analyst}')"),
                submit(alice, "drop_publication('in_turn')"),
            ]
            for job in jobs:
                fetch(alice, "SELECT * FROM kanon.wait($1)", job)
        assert [state(alice, job) for job in jobs] == ["done"] * 5

    def test_declarations_say_what_is_work(self, service: Service, bob: Connection) -> None:
        """Whatever is declared has its place."""
        with psycopg.connect(service.superuser_dsn) as superuser:
            fetch(superuser, "SET LOCAL SESSION AUTHORIZATION bob")
            for name in operations():
                fetch(superuser, "SELECT kanon.submit($1, '{}')", name)
            fetch(superuser, "RESET SESSION AUTHORIZATION")
            found = fetch(
                superuser,
                "SELECT j.operation, split_part(q.lock, ' ', 1) FROM kanon.job AS j"
                " JOIN kanon_queue.procrastinate_jobs AS q ON q.id = j.queue_id"
                " WHERE j.role_name = 'bob' ORDER BY j.job_id DESC LIMIT $1",
                len(operations()),
            )
            superuser.rollback()
        assert dict(found) == {
            name: "question" if one.is_question else "work" for name, one in operations().items()
        }

    def test_too_many(self, service: Service, bob: Connection) -> None:
        """Nobody fills the queue."""
        with bob.transaction(force_rollback=True):
            for _ in range(100):
                fetch(bob, "SELECT kanon.metrics('people_b')")
            call = lambda: fetch(bob, "SELECT kanon.metrics('people_b')")
            assert sqlstate_of(call) == "54000"

    def test_a_role_for_which_no_worker_acts(self, admin: Connection, nobody: Connection) -> None:
        fetch(admin, f"GRANT kanon_analyst TO {nobody.info.user}")
        with pytest.raises(psycopg.Error) as caught:
            fetch(nobody, "SELECT kanon.metrics('people_b')")
        fetch(admin, f"REVOKE kanon_analyst FROM {nobody.info.user}")
        assert caught.value.diag.message_hint == (
            "ask an administrator for: kanon service allow nobodys"
        )

    @pytest.mark.long
    def test_models_are_not_asked(self, alice: Connection) -> None:
        """Members vote inside of the server only: that is said, and nothing is spent."""
        Jobs(alice).call(
            "publish_model", "hers.people", "net", label="sex", members=3,
            options='{"steps": 5}', accept='{"model_without_budget": "it is a test"}',
        )  # fmt: skip
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="cannot ask models"):
            Jobs(alice).call("classify", "net", '{"age": 3, "town": "town 1", "sick": null}')
        Jobs(alice).drop("net")

    def test_ends_are_forgotten(self, service: Service, alice: Connection) -> None:
        job = submit(alice, "metrics('people_b')")
        fetch(alice, "SELECT * FROM kanon.wait($1)", job)
        with service.connect("kanon_worker") as worker:
            from kanon_db.interfaces.worker import _FORGET

            worker.execute(_FORGET, {"days": 30})
            assert state(alice, job) == "done"
            worker.execute(_FORGET, {"days": 0})
        assert fetch(alice, "SELECT 1 FROM kanon.jobs WHERE job_id = $1", job) == []


class TestGrants:
    def test_a_grant_is_found_late(
        self, service: Service, admin: Connection, alice: Connection, bob: Connection
    ) -> None:
        """Without an event trigger, a reader who could combine two releases loses one again."""
        fetch(admin, "DELETE FROM kanon.setting WHERE name = 'combined_releases'")
        try:
            Jobs(alice).publish("hers.people", "second", privacy='{"l": 2}', readers=[])
            fetch(alice, "GRANT SELECT ON published.second TO bob")
            readable = "SELECT has_table_privilege('published.second', 'SELECT')"
            assert value(bob, readable)
            wait_until(lambda: not value(bob, readable))
            noted = "SELECT readers FROM kanon.releases WHERE name = 'second'"
            assert [reader["role"] for reader in value(alice, noted)] == ["bob"]
            Jobs(alice).drop("second")
        finally:
            warn_only(admin)

    def test_a_login_of_a_worker_is_no_reader(self, admin: Connection, bob: Connection) -> None:
        readers = fetch(
            admin,
            "SELECT DISTINCT role_name FROM kanon.release_reader WHERE role_name ~ '^kanon_as'",
        )
        assert readers == []


KINDS = [case for case in cases() if case.kind != "model"]
FIRST = [next(case for case in KINDS if case.kind == kind) for kind in {c.kind: 0 for c in KINDS}]


class TestBattery:
    """The battery of kinds, as jobs; all methods in `make test-all`."""

    @pytest.fixture
    def battery(
        self,
        service: Service,
        alice: Connection,
        bob: Connection,
        nobody: Connection,
        monkeypatch: pytest.MonkeyPatch,
    ) -> Iterator[Parties]:
        for module in ("tests.checks", "tests.integration.parties", "tests.integration.growing"):
            monkeypatch.setattr(f"{module}.Functions", Jobs)
        monkeypatch.setattr("tests.checks.WAYS", {"sql": Jobs, "python": Package})
        with psycopg.connect(service.superuser_dsn, autocommit=True) as superuser:
            if not value(superuser, "SELECT to_regclass('data.people') IS NOT NULL"):
                fetch(alice, "CREATE SCHEMA data")
                create_table(alice, "data.people", COLUMNS, PEOPLE)
                visits = [(*r[:3], f"person {r[0] ** 2 // 40}", *r[4:]) for r in PEOPLE]
                create_table(alice, "data.visits", COLUMNS, visits)
                for table in ("people", "visits"):
                    Jobs(alice).register(
                        f"data.{table}", ["age", "sex"], "sick", ["name"], insensitive=["number"],
                        entity="person",
                    )  # fmt: skip
            for name in Jobs(alice).publications():
                Jobs(alice).drop(name)
            yield Parties(service.dsn, superuser, alice, bob, nobody)
            for name in Jobs(alice).publications():
                Jobs(alice).drop(name)
            assert remains(superuser) == []

    @pytest.mark.long
    @pytest.mark.parametrize("case", FIRST, ids=str)
    def test_kinds(self, battery: Parties, case: Case) -> None:
        check_published(battery, case)

    @pytest.mark.long
    @pytest.mark.parametrize("case", KINDS, ids=str)
    def test_methods(self, battery: Parties, case: Case) -> None:
        check_published(battery, case)

    @pytest.mark.long
    @pytest.mark.parametrize("case", FIRST, ids=str)
    @pytest.mark.parametrize(
        "check",
        [check for check in OF_KINDS if check is not check_direct_call_leaves_nothing],
        ids=lambda check: check.__name__,
    )
    def test_pipeline(self, battery: Parties, case: Case, check: Any) -> None:
        check(battery, case)

    @pytest.mark.long
    @pytest.mark.parametrize(
        "kind", ["diverse", pytest.param("m-invariant", marks=pytest.mark.long)]
    )
    def test_refresh(self, battery: Parties, kind: str) -> None:
        """New people join; those who changed or left are said to, or are published anew."""
        source = Source(battery, 120, alone=kind == "m-invariant", n_values=4)
        source.publish(kind)
        gone = source.leave(10)
        source.run("UPDATE {0} SET sick = 'ill 9' WHERE id = (SELECT min(id) FROM {0})")
        source.add(80)
        row = source.refresh()
        if kind == "diverse":
            assert (row["added"], row["records"]) == (80, 200)
            waits = {what: one["records"] for what, one in row["waits"].items()}
            assert waits == {"deleted": 10, "corrected": 1}
        else:
            seen = source.seen()
            assert row["records"] == len(seen)
            assert not seen.keys() & gone
        assert source.batches("records")[0] is not None
        assert all(holds for *_, holds in source.kanon.verify("grows"))
        assert source.refresh()["added"] == 0
        source.check_answers([])

    @pytest.mark.long
    def test_one_record_of_each_person(self, battery: Parties, alice: Connection) -> None:
        """The one that the rule `keep` chooses, also when others come."""
        stays = [(n, n % 40, 20 + n % 40, "mf"[n % 2], f"ill {n % 3}") for n in range(100)]
        columns = "stay int, patient int, age int, sex text, sick text"
        create_table(alice, "data.stays", columns, stays)
        kanon = Jobs(alice)
        kanon.register(
            "data.stays", ["age", "sex"], "sick", entity="patient", insensitive=["stay"],
            keep="latest by stay",
        )  # fmt: skip
        kanon.generalize("data.stays", "stays", k=3)
        shown = "SELECT array(SELECT stay FROM published.stays ORDER BY stay)"
        assert value(alice, shown) == list(range(60, 100))
        fetch(alice, "INSERT INTO data.stays VALUES (100, 99, 33, 'm', 'ill 1')")
        kanon.generalize("data.stays", "stays", k=3, replace=True)
        assert value(alice, shown) == list(range(60, 101))

    @pytest.mark.long
    def test_replace_and_drop(self, battery: Parties, alice: Connection, bob: Connection) -> None:
        """As often as is asked for, and once each."""
        kanon = Jobs(alice)
        publish = partial(kanon.publish, "data.people", "again", privacy='{"l": 2}')
        publish()
        assert sqlstate_of(publish) == "42710"
        publish(replace=True)
        releases = "SELECT count(*) FROM kanon.releases WHERE name = 'again'"
        assert value(alice, releases) == 2
        assert Jobs(bob).metrics("again")
        kanon.drop("again")
        assert sqlstate_of(lambda: kanon.drop("again")) == "42704"
        assert sqlstate_of(lambda: Jobs(bob).metrics("again")) == "42704"


class TestOtherWays:
    @pytest.mark.long
    def test_python_and_the_command_line(self, service: Service, alice: Connection) -> None:
        """They work where they are called, with the caller's rights, and need no worker."""
        with kanon_db.connect(service.as_role("alice")) as kanon:
            kanon.publish_generalized("hers.people", "by_python", k=3)
            assert all(kanon.verify("by_python")["holds"])
            kanon.drop_publication("by_python")
        words = ["publish", "suppressed", "hers.people", "by_cli", "--k", "3", "--json"]
        done = CliRunner().invoke(main, [*words, "--dsn", service.as_role("alice")])
        assert done.exit_code == 0
        Jobs(alice).drop("by_cli")

    @pytest.mark.long
    @pytest.mark.usefixtures("bob")
    def test_the_rest_as_jobs(self, alice: Connection) -> None:
        kanon = Jobs(alice)
        kanon.publish("hers.people", "others", privacy='{"l": 2}', replace=True)
        assert kanon.rows("recommend", "hers.people", time_limit=1)
        assert kanon.rows("unicity", "hers.people")
        assert kanon.rows("inspect_relation", "hers.people")[0]["sql"]
        assert kanon.rows("check_relation", "hers.people", quasi_identifiers=["age"], k=2)
        assert kanon.rows("check_release", "hers.people", "others") is not None
        assert kanon.evaluate("others", queries=20)
        kanon.rows("grant_publication", "others", readers=["bob"])
        kanon.drop("others")


def _ended(connection: Connection, job: int) -> str:
    with contextlib.suppress(psycopg.Error):
        fetch(connection, "SELECT * FROM kanon.wait($1, 60)", job)
    return state(connection, job)


class TestFaults:
    """Each job is done once, or failed with its reason, whoever dies."""

    def published(self, alice: Connection, name: str) -> list[tuple[Any, ...]]:
        return fetch(
            alice,
            "SELECT count(*) FROM kanon.releases WHERE name = $1 HAVING count(*) > 0",
            name,
        )

    @pytest.mark.long
    def test_a_stopped_worker_ends_what_it_does_or_gives_it_back(
        self, service: Service, alice: Connection
    ) -> None:
        """As its patience allows."""
        worker = service.working()
        with slowly(alice, "hers", 0.005):
            job = submit(alice, SLOW, "graceful")
            wait_until(lambda: state(alice, job) == "running")
            assert worker.stop() == 0
            assert state(alice, job) == "done"
        assert self.published(alice, "graceful") == [(1,)]
        worker = service.working(grace="0")
        with slowly(alice, "hers", 0.05):
            job = submit(alice, SLOW, "given_back")
            wait_until(lambda: state(alice, job) == "running")
            assert worker.stop() == 0
        assert value(alice, "SELECT attempts FROM kanon.jobs WHERE job_id = $1", job) == 0
        service.working()
        assert _ended(alice, job) == "done"
        assert self.published(alice, "given_back") == [(1,)]
        for name in ("graceful", "given_back"):
            Jobs(alice).drop(name)

    @pytest.mark.pitfall(51)
    @pytest.mark.parametrize(
        "is_canceled", [False, pytest.param(True, marks=pytest.mark.long)], ids=["done", "canceled"]
    )
    def test_a_killed_worker_is_replaced(
        self, service: Service, alice: Connection, *, is_canceled: bool
    ) -> None:
        """Its processes end with it; another worker takes its job over, or cancels it."""
        worker, name = service.working(), f"taken_over_{int(is_canceled)}"
        acting = "SELECT 1 FROM pg_stat_activity WHERE usename ~ '^kanon_as_'"
        with slowly(alice, "hers", 0.05):
            job = submit(alice, SLOW, name)
            with psycopg.connect(service.superuser_dsn, autocommit=True) as superuser:
                wait_until(lambda: fetch(superuser, acting))
                worker.stop(signal.SIGKILL)
                wait_until(lambda: not fetch(superuser, acting))
            if is_canceled:
                assert value(alice, "SELECT kanon.cancel($1)", job) == "stopping"
        service.working()
        if is_canceled:
            assert _ended(alice, job) == "canceled"
            assert self.published(alice, name) == []
            return
        assert _ended(alice, job) == "done"
        assert value(alice, "SELECT attempts FROM kanon.jobs WHERE job_id = $1", job) == 2
        assert self.published(alice, name) == [(1,)]
        Jobs(alice).drop(name)

    @pytest.mark.long
    def test_an_end_of_which_the_queue_has_not_heard(
        self, service: Service, alice: Connection
    ) -> None:
        """As when the connection that would say so is lost: other jobs do not wait for it."""
        service.working()
        job = submit(alice, "unicity('hers.people')")
        assert _ended(alice, job) == "done"
        with psycopg.connect(service.dsn, autocommit=True) as admin:
            fetch(admin, "SET search_path = kanon_queue")  # procrastinate's functions name none
            status = (
                "SELECT status::text FROM procrastinate_jobs AS q"
                " JOIN kanon.job AS j ON j.queue_id = q.id WHERE j.job_id = $1"
            )
            wait_until(lambda: value(admin, status, job) == "succeeded")
            fetch(
                admin,
                "UPDATE procrastinate_jobs AS q SET status = 'doing', worker_id = w.id"
                " FROM kanon.job AS j, procrastinate_workers AS w"
                " WHERE j.queue_id = q.id AND j.job_id = $1",
                job,
            )
            assert Jobs(alice).rows("unicity", "hers.people")
            assert value(admin, status, job) == "succeeded"

    @pytest.mark.long
    def test_two_workers_for_one_job(self, service: Service, alice: Connection) -> None:
        """A worker that only seems dead, and the one that takes its job over, do it once."""
        other = service.work()
        with slowly(alice, "hers", 0.02):
            job = submit(alice, SLOW, "twice")
            wait_until(lambda: state(alice, job) == "running")
            # As if its worker had given no sign of life for long.
            with psycopg.connect(service.dsn, autocommit=True) as admin:
                fetch(
                    admin,
                    "UPDATE kanon_queue.procrastinate_jobs SET worker_id = NULL"
                    " WHERE status = 'doing'",
                )
            attempts = "SELECT attempts FROM kanon.jobs WHERE job_id = $1 AND attempts > 1"
            wait_until(lambda: fetch(alice, attempts, job))
            assert _ended(alice, job) == "done"
        other.stop()
        assert self.published(alice, "twice") == [(1,)]
        Jobs(alice).drop("twice")

    @pytest.mark.long
    def test_a_process_that_dies_of_a_job_again_and_again(
        self, service: Service, alice: Connection
    ) -> None:
        """After three attempts, the job fails with that reason."""
        acting = "SELECT pid FROM pg_stat_activity WHERE usename ~ '^kanon_as_' AND state <> 'idle'"
        with (
            slowly(alice, "hers", 0.2),
            psycopg.connect(service.superuser_dsn, autocommit=True) as admin,
        ):
            job = submit(alice, SLOW, "deadly")

            def killed() -> bool:
                for (pid,) in fetch(admin, acting):
                    fetch(admin, "SELECT pg_terminate_backend($1)", pid)
                return state(alice, job) == "failed"

            wait_until(killed, 120)
        with pytest.raises(psycopg.Error, match="died of this job") as caught:
            fetch(alice, "SELECT * FROM kanon.wait($1)", job)
        assert caught.value.sqlstate == "KN004"
        assert self.published(alice, "deadly") == []

    def test_the_server_is_killed(
        self, service: Service, alice: Connection, service_cluster_dsn: str
    ) -> None:
        """The worker waits for it, and goes on with the job."""
        fetch(alice, "UPDATE hers.pause SET seconds = 0.05")
        job = submit(alice, SLOW, "restarted")
        with psycopg.connect(service.superuser_dsn, autocommit=True) as admin:
            ((victim,),) = wait_until(
                lambda: fetch(
                    admin, "SELECT pid FROM pg_stat_activity WHERE usename ~ '^kanon_as_' LIMIT 1"
                )
            )
        os.kill(victim, signal.SIGKILL)  # of which the whole server restarts

        def back() -> bool:
            try:
                with service.connect("alice") as again:
                    return bool(value(again, "SELECT true"))
            except psycopg.Error:
                return False

        time.sleep(0.5)
        wait_until(back)
        with service.connect("alice") as again:
            fetch(again, "UPDATE hers.pause SET seconds = 0")
            assert _ended(again, job) == "done"
            assert self.published(again, "restarted") == [(1,)]
            Jobs(again).drop("restarted")

    @pytest.mark.slow("a worker meets a disk that is full, and goes on")
    def test_a_full_disk(self, service: Service, service_server: Server, alice: Connection) -> None:
        """A job fails with that reason, or is done once there is room; nothing is left of it."""
        if not service_server.is_small:
            pytest.skip("only root may mount a small file system")
        said = service_server.log.read_text
        with service.connect("alice") as submitter, slowly(submitter, "hers", 0.02):
            job = submit(submitter, SLOW, "crowded")
            wait_until(lambda: state(submitter, job) == "running")
            before = said().count("No space left on device")
            with service_server.full():
                wait_until(lambda: said().count("No space left on device") > before)
        with service.connect("alice") as submitter:
            found = _ended(submitter, job)
            code = value(submitter, "SELECT sqlstate FROM kanon.jobs WHERE job_id = $1", job)
            assert (found, code) in (("done", None), ("failed", "53100")), (found, code)
            assert self.published(submitter, "crowded") == [(1,)] * (found == "done")
            if found == "done":
                Jobs(submitter).drop("crowded")

    @pytest.mark.long
    def test_200_faults(self, service: Service, service_server: Server) -> None:
        """Whatever dies at whatever moment: done once, or failed with a reason; nothing is left."""
        random = np.random.default_rng(42)
        service.work()
        roles = [f"sufferer_{i}" for i in range(4)]
        for role in roles:
            with service.submitter(role, "kanon_publisher") as submitter:
                give_people(service, submitter, role)
                slow_people(submitter, role)
                fetch(submitter, f"UPDATE {role}.pause SET seconds = 0.002")
        for worker in service.workers:
            worker.stop()
        line = Line(service_server.port)
        work = partial(service.work, through=line, wait=False, pace="0.05", grace="0")
        living = [work() for _ in range(3)]
        faults = ["worker", "stop", "backends", "server", "two workers", "line"]
        if service_server.is_small:
            faults.append("disk")
        ends: Counter[str] = Counter()
        done: Counter[str] = Counter()
        for n in range(FAULTS // 4):
            jobs = {}
            for role in roles:
                with service.connect(role) as submitter:
                    jobs[role] = submit(submitter, SLOW.replace("hers", role), f"{role}_{n}")
            for m in range(4):
                time.sleep(random.uniform(0, 1.5))
                fault = faults[(4 * n + m) % len(faults)]
                if fault in ("worker", "stop"):
                    living.pop(0).stop(signal.SIGKILL if fault == "worker" else signal.SIGTERM)
                    living.append(work())
                elif fault == "line":
                    line.cut()
                elif fault == "disk":
                    with service_server.full():
                        time.sleep(random.uniform(0, 1))
                else:
                    self.inject(service, fault)
                done[fault] += 1
            for role, job in jobs.items():

                def ended(role: str = role, job: int = job) -> str:
                    with contextlib.suppress(psycopg.OperationalError), service.connect(role) as me:
                        found = state(me, job)
                        return found if found in ("done", "failed") else ""
                    return ""

                found = wait_until(ended, 120)
                name = f"{role}_{n}"
                with service.connect(role) as submitter:
                    code = "SELECT sqlstate FROM kanon.jobs WHERE job_id = $1"
                    reason = value(submitter, code, job)
                    ends[f"{found} {reason}"] += 1
                    assert (reason is None) == (found == "done")
                    assert self.published(submitter, name) == [(1,)] * (found == "done")
                    if found == "done":
                        assert all(holds for *_, holds in Jobs(submitter).verify(name))
                        Jobs(submitter).drop(name)
            with service.connect(service.administrator) as admin:
                staged = "SELECT relname FROM pg_class WHERE relname ~ '^kanon_[0-9a-f]{32}'"
                assert wait_until(lambda: fetch(admin, staged) == [], 10)
            print(n, dict(ends), dict(done), flush=True)
        line.close()
        assert 2 * ends["done None"] > sum(ends.values())
        assert ends["failed KN000"] == 0

    def inject(self, service: Service, fault: str) -> None:
        """Let something die that belongs to the server; it is there again by itself."""
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(service.superuser_dsn, autocommit=True) as admin,
        ):
            acting = "SELECT pid FROM pg_stat_activity WHERE usename ~ '^kanon_(as_|worker)'"
            pids = [pid for (pid,) in fetch(admin, acting)]
            if fault == "backends":
                for pid in pids:
                    fetch(admin, "SELECT pg_terminate_backend($1)", pid)
            elif fault == "two workers":
                fetch(
                    admin,
                    "UPDATE kanon_queue.procrastinate_jobs SET worker_id = NULL"
                    " WHERE status = 'doing'",
                )
            elif pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pids[0], signal.SIGKILL)
