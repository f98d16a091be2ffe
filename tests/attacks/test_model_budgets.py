"""Attacks on the budget of a model: being told more than it pays for.

What PostgreSQL undoes for a reader (a transaction, a savepoint, an error) must not undo that the
reader was told something.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kanon_db.cluster.local_cluster import LocalCluster
from kanon_db.installation.doctor import examine
from kanon_db.installation.install import install
from tests.attacks.models import (
    ANSWERS,
    BUDGET,
    GIVEN,
    ask,
    ask_anew,
    asked,
    create_people,
    publish,
    question,
)
from tests.clusters import cluster_folder
from tests.integration.parties import Connection, Functions, Parties, fetch, sqlstate_of, value
from tests.migration.test_restore import restored, run
from tests.profiles import examples

SPENT, FORBIDDEN = "KN006", "42501"


@dataclass(frozen=True)
class Readers:
    """Two reader roles, a person of each, and one of both."""

    parties: Parties
    roles: tuple[str, str]
    people: dict[str, Connection]


@pytest.fixture(scope="module")
def readers(
    parties: Parties, new_role: Callable[..., str], connect_as: Callable[[str, str], Connection]
) -> Iterator[Readers]:
    """A model ``m`` with a budget for each of two roles."""
    first, second = new_role("kanon_analyst"), new_role("kanon_analyst")
    names = {
        "first": new_role("kanon_analyst", first),
        "second": new_role("kanon_analyst", second),
        "both": new_role("kanon_analyst", first, second),
    }
    create_people(parties.publisher)
    publish(parties.publisher, "m", budget=BUDGET, readers=[first, second])
    with contextlib.ExitStack() as stack:
        people = {
            name: stack.enter_context(connect_as(parties.dsn, role)) for name, role in names.items()
        }
        yield Readers(parties, (first, second), people)
        Functions(parties.publisher).drop("m")


@pytest.fixture
def whole(readers: Readers) -> Readers:
    """Nobody has asked yet."""
    ask_anew(readers.parties.admin, "m")
    return readers


def _plainly(connection: Connection, n: int) -> int:
    return len(ask(connection, "m", n))


def _rolled_back(connection: Connection, n: int) -> int:
    with connection.transaction(force_rollback=True):
        return len(ask(connection, "m", n))


def _in_a_savepoint(connection: Connection, n: int) -> int:
    with connection.transaction(), connection.transaction(force_rollback=True):
        return len(ask(connection, "m", n))


def _before_an_error(connection: Connection, n: int) -> int:
    """The answer is kept in a variable, and everything else is undone."""
    told: list[str] = []
    connection.add_notice_handler(lambda notice: told.append(str(notice.message_primary)))
    fetch(
        connection,
        "DO $$ DECLARE _found record; _all text := ''; BEGIN"
        f" BEGIN FOR _found IN {question('m', n)} LOOP _all := _all || 'x'; END LOOP;"
        " RAISE 'undo' USING ERRCODE = 'P0002'; EXCEPTION WHEN no_data_found THEN NULL; END;"
        " RAISE NOTICE 'told %', length(_all); END $$",
    )
    return int(told[-1].removeprefix("told "))


def _through_a_cursor(connection: Connection, n: int) -> int:
    with connection.transaction(force_rollback=True):
        fetch(connection, f"DECLARE c CURSOR FOR {question('m', n)}")
        return len(fetch(connection, "FETCH ALL FROM c"))


def _into_a_table(connection: Connection, n: int) -> int:
    with connection.transaction(force_rollback=True):
        fetch(connection, f"CREATE TEMPORARY TABLE told AS {question('m', n)}")
        return int(value(connection, "SELECT count(*) FROM told"))


def _repeatably(connection: Connection, n: int) -> int:
    with connection.transaction(force_rollback=True):
        fetch(connection, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        return len(ask(connection, "m", n))


WAYS = {
    function.__name__: function
    for function in (
        _plainly, _rolled_back, _in_a_savepoint, _before_an_error, _through_a_cursor,
        _into_a_table, _repeatably,
    )
}  # fmt: skip
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("first", "second", "both")),
        st.sampled_from(list(WAYS)),
        st.sampled_from((1, 1, 2, 3, 5, ANSWERS, ANSWERS + 1)),
    ),
    max_size=12,
)


@pytest.mark.slow("many questions, each in a transaction")
@pytest.mark.pitfall(33)
@settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_no_sequence_of_questions_is_told_more_than_the_budget(
    readers: Readers, steps: list[tuple[str, str, int]]
) -> None:
    """Whoever asks, and whatever is undone: all answers are counted, and refused ones are not."""
    admin = readers.parties.admin
    ask_anew(admin, "m")
    first, second = readers.roles
    left = {first: ANSWERS, second: ANSWERS}
    pays = {"first": [first], "second": [second], "both": sorted(left, key=oid_of(admin))}
    for who, way, n in steps:
        payers = [role for role in pays[who] if left[role] >= n]
        told = [0]

        def call(who: str = who, way: str = way, n: int = n, told: list[int] = told) -> None:
            told[0] = WAYS[way](readers.people[who], n)

        assert sqlstate_of(call) == (None if payers else SPENT), (who, way, n, left)
        assert told == [n if payers else 0]
        if payers:
            left[payers[0]] -= n
        assert asked(admin, "m") == {role: ANSWERS - left[role] for role in left}


def oid_of(admin: Connection) -> Callable[[str], int]:
    """Budgets were made in this order."""
    oids = dict(fetch(admin, "SELECT rolname::text, oid::text::int8 FROM pg_roles"))
    return lambda role: int(oids[role])


@pytest.mark.long
@pytest.mark.pitfall(33)
def test_sessions_at_the_same_time_share_a_budget(
    whole: Readers, connect_as: Callable[[str, str], Connection]
) -> None:
    """Of many who ask for three answers each, as many get them as the budget pays for."""
    user = whole.people["first"].info.user

    def call(_: int) -> str | None:
        with connect_as(whole.parties.dsn, user) as connection:
            return sqlstate_of(lambda: _rolled_back(connection, 3))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(call, range(6)))
    assert found.count(None) == ANSWERS // 3
    assert set(found) == {None, SPENT}
    assert asked(whole.parties.admin, "m")[whole.roles[0]] == ANSWERS // 3 * 3


@pytest.mark.pitfall(33)
def test_a_question_waits_for_nobody(
    whole: Readers, connect_as: Callable[[str, str], Connection]
) -> None:
    """What a reader does not end keeps nobody else from asking."""
    with (
        connect_as(whole.parties.dsn, whole.people["first"].info.user) as other,
        other.transaction(force_rollback=True),
    ):
        ask(other, "m")
        fetch(whole.people["first"], "SET lock_timeout = 500")
        assert ask(whole.people["first"], "m")[0]["answers_left"] == ANSWERS - 2


@pytest.mark.pitfall(33)
def test_nobody_turns_the_counter_back(whole: Readers) -> None:
    counters = fetch(whole.parties.admin, "SELECT counter FROM kanon.budget WHERE asked IS NULL")
    statements = [
        "UPDATE kanon.budget SET answers = 100",
        "DELETE FROM kanon.budget",
        "TABLE kanon.budget",
        "SELECT kanon.owner_draw(1, 1)",
        "SELECT kanon.python_vote('{}', '')",
        "SELECT kanon.owner_classify(0::oid, '{}', '')",
        "INSERT INTO kanon.question (caller, task, given) VALUES (10, 'classify', '{}')",
    ]
    for (counter,) in counters:
        statements += [
            f"SELECT setval('published.{counter}', 1, false)",
            f"SELECT nextval('published.{counter}')",
            f"SELECT currval('published.{counter}')",
            f"TABLE published.{counter}",
            f"ALTER SEQUENCE published.{counter} RESTART",
            f"ALTER SEQUENCE published.{counter} CYCLE",
            f"DROP SEQUENCE published.{counter}",
            f"GRANT ALL ON SEQUENCE published.{counter} TO CURRENT_USER",
        ]
    for who in (whole.people["first"], whole.parties.publisher, whole.parties.stranger):
        for statement in statements:
            assert sqlstate_of(lambda: fetch(who, statement)) == FORBIDDEN, statement


@pytest.mark.long
@pytest.mark.pitfall(33)
def test_a_counter_that_was_changed_counts_for_nobody(whole: Readers) -> None:
    """A superuser's slip gives no answers away: a counter that cycles would never end."""
    admin, reader = whole.parties.admin, whole.people["first"]
    (counter,) = fetch(
        admin, "SELECT kanon.counter_name(b) FROM kanon.budget AS b WHERE b.role_name = $1::text"
        " AND b.asked IS NULL", whole.roles[0],
    )[0]  # fmt: skip
    for change, back in (("CYCLE", "NO CYCLE"), (f"MAXVALUE {ANSWERS + 5}", f"MAXVALUE {ANSWERS}")):
        fetch(admin, f"ALTER SEQUENCE {counter} {change}")
        assert sqlstate_of(lambda: ask(reader, "m")) == "KN004"
        checks = Functions(whole.parties.publisher).rows("verify", "m")
        assert [row["holds"] for row in checks if whole.roles[0] in row["check"]] == [False]
        found = [one.value for one in examine(whole.parties.dsn) if one.state != "ok"]
        assert found == [f"nobody counts its answers to {whole.roles[0]}"]
        fetch(admin, f"ALTER SEQUENCE {counter} {back}")
    assert ask(reader, "m")
    assert all(one.state == "ok" for one in examine(whole.parties.dsn))


@pytest.mark.pitfall(33)
def test_who_reads_without_a_budget_is_told_nothing(
    whole: Readers, new_role: Callable[..., str], connect_as: Callable[[str, str], Connection]
) -> None:
    """GRANT SELECT gives no budget; kanon.grant_publication gives one of its own."""
    role = new_role("kanon_analyst")
    with connect_as(whole.parties.dsn, role) as connection:
        try:
            fetch(whole.parties.publisher, f"GRANT SELECT ON published.m TO {role}")
            assert Functions(connection).publications() == ["m"]
            assert sqlstate_of(lambda: ask(connection, "m")) == SPENT
            Functions(whole.parties.publisher).call("grant_publication", "m", readers=[role])
            assert ask(connection, "m", ANSWERS)[0]["answers_left"] == 0
            assert sqlstate_of(lambda: ask(connection, "m")) == SPENT
            assert ask(whole.people["first"], "m")[0]["answers_left"] == ANSWERS - 1
        finally:
            fetch(whole.parties.publisher, f"REVOKE ALL ON published.m FROM {role}")
            fetch(whole.parties.admin, f"DROP OWNED BY {role}")
        assert sqlstate_of(lambda: ask(connection, "m")) == "42704"


@pytest.mark.long
@pytest.mark.pitfall(33)
def test_a_replacement_adds_to_the_ledger(whole: Readers) -> None:
    """The same people again are another release: refused until accepted, and both are kept."""
    publisher, admin, reader = whole.parties.publisher, whole.parties.admin, whole.people["first"]
    fetch(admin, "UPDATE kanon.setting SET value = '' WHERE name = 'combined_releases'")
    given = {**GIVEN, "budget": BUDGET, "readers": list(whole.roles), "replace": True}
    try:
        ask(reader, "m", 5)
        call = lambda accept: Functions(publisher).call(
            "publish_model", "data.people", "m", **{**given, "accept": accept}
        )
        assert sqlstate_of(lambda: call("{}")) == "KN005"
        assert asked(admin, "m")[whole.roles[0]] == 5
        call('{"combined_releases": "it is a test"}')
    finally:
        fetch(admin, "UPDATE kanon.setting SET value = 'warn' WHERE name = 'combined_releases'")
    assert asked(admin, "m") == dict.fromkeys(whole.roles, 0)
    told = fetch(
        publisher,
        "SELECT b ->> 'asked' FROM kanon.releases AS r, jsonb_array_elements(r.budgets) AS b"
        " WHERE r.state = 'replaced' AND b ->> 'role' = $1::text"
        " ORDER BY release_id DESC LIMIT 1",
        whole.roles[0],
    )
    assert told == [("5",)]


@pytest.mark.long
@pytest.mark.pitfall(38)
def test_38_a_view_of_a_counter_holds_up_no_replacement(whole: Readers) -> None:
    """Neither what counts answers, nor a model, is kept in use by what others made of it."""
    parties, reader = whole.parties, whole.people["first"]
    counters = fetch(parties.admin, "SELECT counter FROM kanon.budget WHERE asked IS NULL")
    fetch(parties.admin, "CREATE SCHEMA mine; GRANT ALL ON SCHEMA mine TO PUBLIC")
    relations = fetch(
        parties.admin, "SELECT unnest(relations) FROM kanon.publication WHERE name = 'm'"
    )
    for name, *_ in [*counters, *relations]:
        fetch(reader, f"CREATE VIEW mine.v{uuid.uuid4().hex} AS TABLE published.{name}")
    publish(parties.publisher, "m", budget=BUDGET, readers=list(whole.roles), replace=True)
    assert asked(parties.admin, "m") == dict.fromkeys(whole.roles, 0)
    assert len(ask(reader, "m", 1)) == 1
    left = fetch(parties.admin, "SELECT name FROM kanon.withdrawn()")
    assert len(left) == len(counters)
    assert [f for f in examine(parties.dsn) if f.subject.startswith("relation ")] == []
    fetch(parties.admin, "DROP SCHEMA mine CASCADE")
    install(parties.dsn)
    assert fetch(parties.admin, "SELECT name FROM kanon.withdrawn()") == []


@pytest.mark.long
@pytest.mark.pitfall(33)
def test_a_dump_has_what_was_spent(whole: Readers, new_database: Callable[..., str]) -> None:
    """A restored model tells a role no more than was left of its budget."""
    ask(whole.people["first"], "m", 7)
    dumped = run("pg_dump", f"--dbname={whole.parties.dsn}")
    name = f"kanon_test_{uuid.uuid4().hex[:12]}"
    new = restored(whole.parties.dsn, dumped, name)
    try:
        install(new)
        user = whole.people["first"].info.user
        with (
            psycopg.connect(psycopg.conninfo.make_conninfo(new, user=user), autocommit=True) as it,
            psycopg.connect(new, autocommit=True) as admin,
        ):
            assert asked(admin, "m")[whole.roles[0]] == 7
            assert sqlstate_of(lambda: ask(it, "m", ANSWERS - 6)) == SPENT
            assert ask(it, "m", ANSWERS - 7)[0]["answers_left"] == 0
            assert sqlstate_of(lambda: ask(it, "m")) == SPENT
            assert all(row["holds"] for row in Functions(it).rows("verify", "m"))
    finally:
        fetch(whole.parties.admin, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.long
@pytest.mark.pitfall(33)
def test_neither_a_crash_nor_a_prepared_transaction_undoes_an_answer() -> None:
    """A server that dies before the transaction ends, and before it writes its log by itself.

    Afterwards, a transaction that was prepared is rolled back.
    """
    with cluster_folder() as folder:
        cluster = LocalCluster(folder)
        dsn = cluster.start()
        install(dsn)
        with psycopg.connect(dsn, autocommit=True) as admin:
            fetch(admin, "ALTER SYSTEM SET wal_writer_delay = '10s'")
            fetch(admin, "ALTER SYSTEM SET fsync = off")  # the machine goes on
            fetch(admin, "ALTER SYSTEM SET max_prepared_transactions = 1")
            fetch(admin, "SELECT pg_reload_conf()")
            fetch(admin, "CREATE ROLE reader LOGIN IN ROLE kanon_analyst")
            fetch(admin, "CREATE SCHEMA data")
            create_people(admin)
            publish(admin, "m", budget=BUDGET, readers=["reader"])
        reader = psycopg.connect(psycopg.conninfo.make_conninfo(dsn, user="reader"))
        assert len(ask(reader, "m", 5)) == 5
        data = Path(cluster.status().data_directory or "")
        _kill(data)
        with contextlib.suppress(psycopg.Error):
            reader.close()
        with psycopg.connect(cluster.start(), autocommit=True) as admin:
            left = ANSWERS - asked(admin, "m")["reader"]
            assert 0 <= left <= ANSWERS - 5
            ask_anew(admin, "m")
            dsn = admin.info.dsn
        with psycopg.connect(dsn, user="reader", autocommit=True) as reader:
            fetch(reader, "BEGIN")
            ask(reader, "m", 2)
            fetch(reader, "PREPARE TRANSACTION 'undone'")
            fetch(reader, "ROLLBACK PREPARED 'undone'")
            assert ask(reader, "m")[0]["answers_left"] == ANSWERS - 3


def _kill(data: Path) -> None:
    """End a server without any writing."""
    os.kill(int((data / "postmaster.pid").read_text().splitlines()[0]), signal.SIGQUIT)
    while (data / "postmaster.pid").exists():
        time.sleep(0.05)
