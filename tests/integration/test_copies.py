"""Copies of a server: a base backup, a standby that follows, and a server that subscribes."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from kanon_db.cluster import _host
from kanon_db.cluster.local_cluster import LocalCluster
from kanon_db.installation.doctor import examine
from kanon_db.installation.install import install
from kanon_db.operations import operations
from tests.clusters import cluster_folder, start
from tests.docs.console import PAGES, blocks
from tests.integration.parties import (
    Connection,
    Functions,
    Package,
    create_table,
    fetch,
    sqlstate_of,
    value,
    warn_only,
)
from tests.service import KANON, wait_until

PAGE = PAGES / "howto" / "operation.md"
KINDS = ("people_b", "people_k", "people_f", "people_p")
QUESTION = "SELECT COUNT(*) FROM {} WHERE age < 30 AND sick = 'disease 1'"


@dataclass(frozen=True)
class Server:
    """A private cluster, and its superuser's connection string."""

    cluster: LocalCluster
    dsn: str

    def as_role(self, role: str) -> Connection:
        return psycopg.connect(make_conninfo(self.dsn, user=role), autocommit=True)


def answers(server: Server) -> dict[str, object]:
    """What the reader is told by each publication, whose checks all hold."""
    with server.as_role("reader") as connection:
        kanon = Functions(connection)
        assert all(holds for name in KINDS for *_, holds in kanon.verify(name))
        return {name: kanon.estimate(QUESTION.format(name)) for name in KINDS}


@pytest.fixture(scope="module")
def places() -> Iterator[Callable[[], LocalCluster]]:
    """Make clusters, which go in the end."""
    with contextlib.ExitStack() as cleanup:
        yield lambda: LocalCluster(cleanup.enter_context(cluster_folder()))


@pytest.fixture(scope="module")
def primary(places: Callable[[], LocalCluster]) -> Server:
    """A private cluster with a publication of each kind, made as the page says."""
    cluster = places()
    dsn = start(cluster)
    (prepared,) = [one for one in blocks(PAGE, "sh") if "wal_level" in one]
    script(prepared, server=dsn, KANON_DIR=str(cluster.directory))
    install(dsn)
    with psycopg.connect(dsn, autocommit=True) as admin:
        warn_only(admin)
        fetch(admin, "CREATE ROLE publisher LOGIN IN ROLE kanon_publisher")
        fetch(admin, "CREATE ROLE reader LOGIN IN ROLE kanon_analyst")
        fetch(admin, "CREATE SCHEMA data AUTHORIZATION publisher")
    server = Server(cluster, dsn)
    with server.as_role("publisher") as connection:
        rows = [(i, i % 50, f"disease {i % 5}") for i in range(500)]
        create_table(connection, "data.people", "id int, age int, sick text", rows)
        kanon = Functions(connection)
        kanon.register("data.people", ["age"], "sick", entity="id")
        kanon.publish("data.people", "people_b", privacy='{"l": 3}')
        kanon.generalize("data.people", "people_k", k=5)
        kanon.freeform("data.people", "people_f", k=5)
        kanon.suppress("data.people", "people_p", k=5)
    return server


def script(text: str, **variables: str) -> None:
    """Run lines of the page; what only the server's own user may do, as this user."""
    programs = Path(_host.find_programs(None).path("psql")).parent
    path = f"{Path(KANON).parent}:{programs}:{os.environ['PATH']}"
    if os.geteuid() == 0:
        account = _host.server_account()
        text = (
            f"pg_basebackup() {{ setpriv --reuid {account.pw_uid} --regid {account.pw_gid}"
            f' --clear-groups {programs}/pg_basebackup "$@"; }}\n{text}'
        )
    done = subprocess.run(
        ["bash", "-e", "-c", text], capture_output=True, text=True, cwd="/",
        env={**os.environ, "PATH": path, **variables},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def copied(primary: Server, copy: LocalCluster, *options: str) -> Server:
    """Copy the running server as the page says."""
    (text,) = [one for one in blocks(PAGE, "sh") if "pg_basebackup" in one]
    text = text.replace("pg_basebackup", " ".join(["pg_basebackup", *options]))
    script(text, server=primary.dsn, copy=str(copy.directory))
    return Server(copy, copy.dsn())


@pytest.mark.slow("a second server starts from a copy of the first")
def test_a_base_backup(primary: Server, places: Callable[[], LocalCluster]) -> None:
    """A copy of a private cluster that is running answers, verifies, and publishes."""
    copy = copied(primary, places(), "--no-sync")
    assert copy.cluster.status().state == "running"
    assert answers(copy) == answers(primary)
    assert {one.state for one in examine(copy.dsn)} == {"ok"}
    with copy.as_role("publisher") as connection:
        Functions(connection).publish("data.people", "later", privacy='{"l": 3}')
    # It is a server of its own, which its folder's commands stop and start.
    assert copy.cluster.stop()
    copy.cluster.start()
    with primary.as_role("publisher") as connection:
        assert "later" not in Functions(connection).publications()
    with copy.as_role("reader") as connection:
        assert "later" in Functions(connection).publications()


CALLS: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("verify", "metrics", "draw"), ("people_b",)),
    **dict.fromkeys(
        ("estimate_count", "estimate", "explain_count", "rewrite_count"),
        (QUESTION.format("people_b"),),
    ),
    "estimate_counts": ("SELECT sick, COUNT(*) FROM people_k GROUP BY sick",),
    "version": (),
    "suppression_patterns": ("data.people",),
    "check_relation": ("data.people", ["age"]),
}
"""How the questions are asked that a standby answers; it has no model, whose answers are noted."""


@pytest.mark.long
def test_a_standby(primary: Server, places: Callable[[], LocalCluster]) -> None:
    """It answers what only looks, refuses the rest, follows, and takes over."""
    standby = copied(primary, places(), "--write-recovery-conf")
    assert answers(standby) == answers(primary)
    assert {one.state for one in examine(standby.dsn)} == {"ok"}
    questions = {name for name, one in operations().items() if one.is_question}
    assert CALLS.keys() == questions - {"classify", "classify_all"}
    with standby.as_role("publisher") as connection:
        assert value(connection, "SELECT pg_is_in_recovery()")
        for name, given in CALLS.items():
            places_ = ", ".join(f"${i}" for i in range(1, len(given) + 1))
            assert fetch(connection, f"SELECT * FROM kanon.{name}({places_})", *given), name
        for refused in (
            "publish_suppressed('data.people', 'other', k => 5)", "drop_publication('people_b')",
            "refresh('people_b')", "unicity('data.people')", "recommend('data.people')",
            "attack('people_b')", "evaluate_counts('people_b')",
            "check_release('data.people', 'people_b')", "grant_publication('people_b', '{reader}')",
            "register_source('data.people', '{age}')",
        ):  # fmt: skip
            call = f"SELECT * FROM kanon.{refused}"
            assert sqlstate_of(lambda call=call: fetch(connection, call)) == "25006", refused
    with standby.as_role("reader") as connection:
        for name in KINDS:
            asked = [
                ask(connection).estimate(QUESTION.format(name)) for ask in (Functions, Package)
            ]
            assert asked[0] == pytest.approx(asked[1])
    with primary.as_role("publisher") as connection:
        Functions(connection).publish("data.people", "followed", privacy='{"l": 3}')
    with standby.as_role("reader") as connection:
        wait_until(lambda: "followed" in Functions(connection).publications())
        asked = Functions(connection).estimate(QUESTION.format("followed"))
    with psycopg.connect(standby.dsn, autocommit=True) as admin:
        assert value(admin, "SELECT pg_promote()")
    with standby.as_role("publisher") as connection:
        kanon = Functions(connection)
        assert kanon.estimate(QUESTION.format("followed")) == asked
        kanon.publish("data.people", "taken_over", privacy='{"l": 3}')
        assert all(holds for *_, holds in kanon.verify("taken_over"))
    with primary.as_role("publisher") as connection:
        Functions(connection).drop("followed")


@pytest.mark.long
def test_a_subscriber(primary: Server, places: Callable[[], LocalCluster]) -> None:
    """What the page says of logical replication, on two servers."""
    cluster = places()
    subscriber = Server(cluster, start(cluster))
    first, then, anew = [one for one in blocks(PAGE, "sh") if "$subscriber" in one]
    script(first, publisher=primary.dsn, subscriber=subscriber.dsn)
    with psycopg.connect(subscriber.dsn, autocommit=True) as admin:
        unfinished = "SELECT 1 FROM pg_subscription_rel WHERE srsubstate <> 'r'"
        wait_until(lambda: not fetch(admin, unfinished))
        # A materialized view is not replicated, and is filled from what is.
        unfilled = "SELECT relname FROM pg_class WHERE relkind = 'm' AND NOT relispopulated"
        assert len(fetch(admin, unfilled)) == 3
        script(then, publisher=primary.dsn, subscriber=subscriber.dsn)
        assert fetch(admin, unfilled) == []
    assert answers(subscriber) == answers(primary)
    assert {one.state for one in examine(subscriber.dsn)} == {"ok"}
    with primary.as_role("reader") as there, subscriber.as_role("reader") as here:
        for view in (*KINDS, "people_b_wgt"):
            rows = f"SELECT * FROM published.{view}"
            assert sorted(map(str, fetch(here, rows))) == sorted(map(str, fetch(there, rows)))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            fetch(here, "SELECT * FROM published.people_k_row")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            fetch(here, "SELECT source_metrics FROM kanon.publication")
    with primary.as_role("publisher") as connection:
        kanon = Functions(connection)
        fetch(
            connection,
            "INSERT INTO data.people SELECT i, i % 50, 'disease ' || i % 5"
            " FROM generate_series(500, 599) AS i",
        )
        assert kanon.call("refresh", "people_b")["added"] == 100
        kanon.suppress("data.people", "people_p", k=5, replace=True)
        kanon.drop("people_k")
    with subscriber.as_role("reader") as here:
        kanon = Functions(here)
        wait_until(lambda: kanon.publications() == ["people_f"])
        # What has other relations now is refused, rather than answered from those of before.
        for name in ("people_b", "people_k", "people_p"):
            refused = lambda name=name: kanon.estimate(QUESTION.format(name))
            assert sqlstate_of(refused) == "42704"
        # Only functions know: what is no longer published there can be read here.
        assert fetch(here, "SELECT count(*) FROM published.people_k") == [(500,)]
    script(anew + first, publisher=primary.dsn, subscriber=subscriber.dsn)
    with psycopg.connect(subscriber.dsn, autocommit=True) as admin:
        wait_until(lambda: not fetch(admin, unfinished))
    script(then, publisher=primary.dsn, subscriber=subscriber.dsn)
    with subscriber.as_role("reader") as here, primary.as_role("reader") as there:
        assert set(Functions(here).publications()) == {"people_b", "people_f", "people_p"}
        for name in ("people_b", "people_f", "people_p"):
            asked = [Functions(one).estimate(QUESTION.format(name)) for one in (here, there)]
            assert asked[0] == asked[1]
        assert sqlstate_of(lambda: fetch(here, "TABLE published.people_k")) == "42P01"
