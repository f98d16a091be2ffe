"""Interrupted at any moment, nothing is half-published, and the same call then succeeds."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kanon_db.errors import DatabaseError
from kanon_db.installation.install import install
from kanon_db.session.psycopg_session import PsycopgSession
from tests.clusters import new_folder, private_cluster
from tests.integration.parties import (
    WAYS,
    Connection,
    Functions,
    Package,
    Parties,
    fetch,
    remains,
    sqlstate_of,
    value,
)

PRIVACY = '{"l": 3}'
SOME = 5_000
MANY = 60_000
"""Too many for a small disk."""

INTERRUPTIONS = {
    "cancel": ("PERFORM pg_cancel_backend(pg_backend_pid()); PERFORM pg_sleep(9)", "57014"),
    "disk full": ("RAISE EXCEPTION USING ERRCODE = '53100', MESSAGE = 'no space left'", "53100"),
    "out of memory": ("RAISE EXCEPTION USING ERRCODE = '53200', MESSAGE = 'no memory'", "53200"),
    "deadlock": ("RAISE EXCEPTION USING ERRCODE = '40P01', MESSAGE = 'deadlock'", "40P01"),
}


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    # Of a number that may be written in several ways, buckets need a copy.
    for name, n, age in (("few", 60, "int"), ("some", SOME, "int"), ("many", MANY, "numeric")):
        fetch(
            parties.publisher,
            f"CREATE TABLE data.{name} AS SELECT (i % 90)::{age} AS age, i % 2 AS sex,"
            f" i % 5 AS sick FROM generate_series(1, {n}) AS i",
        )
        Functions(parties.publisher).register(f"data.{name}", ["age", "sex"], "sick")


@pytest.fixture(autouse=True)
def nothing_is_left(parties: Parties) -> Iterator[None]:
    yield
    assert remains(parties.admin) == []


def at_each_definition(admin: Connection, action: str) -> None:
    """Do something at the definition of an object whose number the session sets."""
    fetch(admin, "DROP EVENT TRIGGER IF EXISTS interrupt")
    fetch(admin, "CREATE SEQUENCE IF NOT EXISTS public.definitions")
    fetch(
        admin,
        "CREATE OR REPLACE FUNCTION public.interrupt() RETURNS event_trigger LANGUAGE plpgsql"
        " SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$BEGIN"
        " IF nextval('public.definitions') = current_setting('test.at', true)::int8 THEN"
        f" {action}; END IF; END$$",
    )
    fetch(
        admin,
        "CREATE EVENT TRIGGER interrupt ON ddl_command_end EXECUTE FUNCTION public.interrupt()",
    )


@pytest.fixture
def definitions(parties: Parties) -> Iterator[Callable[[str], None]]:
    yield lambda action: at_each_definition(parties.admin, action)
    fetch(parties.admin, "DROP EVENT TRIGGER IF EXISTS interrupt")


PUBLISHERS: dict[str, Callable[[Functions | Package], dict[str, Any]]] = {
    "buckets": lambda k: k.publish("data.few", "kept", privacy=PRIVACY, replace=True),
    "generalized": lambda k: k.generalize(
        "data.few", "kept", k=3, method="mondrian", refine=False, replace=True
    ),
    "suppressed": lambda k: k.suppress("data.few", "kept", k=3, replace=True),
    "freeform": lambda k: k.freeform("data.few", "kept", k=3, replace=True),
}
"""A publication of each kind."""


ERRORS = [name for name in INTERRUPTIONS if name != "cancel"]


# Each interruption in one kind, each kind interrupted: what is undone knows nothing of why. So a
# cancel comes at every definition, and one of the errors: each at the next one in turn.
@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "interruption", "first", "step", "way"),
    [*((kind, "cancel", 1, 1, way) for kind, way in zip(PUBLISHERS, [*WAYS] * 2, strict=True)),
     *(("buckets", error, first, len(ERRORS), way)
       for way in WAYS for first, error in enumerate(ERRORS, start=1))],
)  # fmt: skip
def test_at_every_definition(
    parties: Parties, definitions: Callable[[str], None], kind: str, interruption: str,
    first: int, step: int, way: str,
) -> None:  # fmt: skip
    """Stopped at its first, second, … last definition of an object, until there is no more."""
    action, sqlstate = INTERRUPTIONS[interruption]
    definitions(action)
    kanon = WAYS[way](parties.publisher)
    kept = PUBLISHERS[kind](Functions(parties.publisher))
    before = remains(parties.admin)
    for at in itertools.count(first, step):
        fetch(parties.admin, "SELECT setval('public.definitions', 1, false)")
        fetch(parties.publisher, f"SET test.at = '{at}'")
        # Replacing: the old publication must come back.
        found = sqlstate_of(lambda: PUBLISHERS[kind](kanon))
        if found is None:
            break
        assert found == sqlstate
        assert remains(parties.admin) == before
        ids = "SELECT publication_id FROM kanon.publication"
        assert fetch(parties.admin, ids) == [(kept["publication_id"],)]
    assert at > 18
    fetch(parties.publisher, "SET test.at = '0'")
    kanon.drop("kept")


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_timeouts(parties: Parties, way: str) -> None:
    kanon = WAYS[way](parties.publisher)
    for milliseconds in [1, 2, 4, 8, 12, *range(16, 160, 16)]:
        fetch(parties.publisher, f"SET statement_timeout = {milliseconds}")
        found = sqlstate_of(lambda: kanon.publish("data.some", "some", privacy=PRIVACY))
        fetch(parties.publisher, "RESET statement_timeout")
        if found is None:
            kanon.drop("some")
        else:
            assert found == "57014"
            assert remains(parties.admin) == []
    kanon.publish("data.some", "some", privacy=PRIVACY)
    assert all(holds for *_, holds in kanon.verify("some"))
    kanon.drop("some")


@pytest.mark.long
@pytest.mark.parametrize(("way", "kind"), [("sql", "buckets"), ("python", "generalized")])
def test_timeouts_of_attacks(parties: Parties, way: str, kind: str) -> None:
    """The publication stays as it is, and nothing is kept of an attack that did not end."""
    publisher = Functions(parties.publisher)
    if kind == "buckets":
        publisher.publish("data.some", "some", privacy=PRIVACY)
    else:
        publisher.generalize("data.some", "some", k=3, method="mondrian", refine=False)
    before = remains(parties.admin)
    for milliseconds in [1, 10, *range(20, 400, 60)]:
        fetch(parties.admin, "UPDATE kanon.publication SET attacks = NULL")
        fetch(parties.publisher, f"SET statement_timeout = {milliseconds}")
        found = sqlstate_of(lambda: WAYS[way](parties.publisher).attack("some"))
        fetch(parties.publisher, "RESET statement_timeout")
        assert found in (None, "57014")
        assert remains(parties.admin) == before
        kept = value(parties.publisher, "SELECT attacks FROM kanon.publications")
        assert (kept is None) == (found is not None)
    assert WAYS[way](parties.publisher).attack("some")
    publisher.drop("some")


CANCELLED_WHILE_IT_SENDS = """
CREATE FUNCTION pg_temp.cancelled(kind text) RETURNS text LANGUAGE plpython3u AS $$
import os, signal
from kanon_db.errors import DatabaseError
from kanon_db.session.plpy_session import PlpySession
class Cancelled:
    def __getattr__(self, name):
        if name in ("notice", "warning"):
            os.kill(os.getpid(), signal.SIGINT)
        return getattr(plpy, name)
try:
    getattr(PlpySession(Cancelled()), kind)("of no interest")
except DatabaseError as error:
    return error.sqlstate
$$
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["tell", "warn"])
def test_cancelled_while_it_sends(parties: Parties, kind: str) -> None:
    """A cancel that comes out of sending a message ends the call as any other."""
    with psycopg.connect(parties.dsn, autocommit=True) as connection:
        kanon = Functions(connection)  # any call lets the session find the package
        assert sqlstate_of(lambda: kanon.verify("nothing")) == "42704"
        fetch(connection, CANCELLED_WHILE_IT_SENDS)
        assert value(connection, "SELECT pg_temp.cancelled($1::text)", kind) == "57014"


CANCELLED_WHILE_IT_SORTS = """
CREATE FUNCTION pg_temp.sort() RETURNS text LANGUAGE plpython3u AS $$
import threading
import numpy as np
from kanon_db.algorithms.ground.arrays import order_of
from kanon_db.errors import DatabaseError
from kanon_db.session.plpy_session import PlpySession
keys = np.random.default_rng(1).integers(0, 2**62, 2**24)
session = PlpySession(plpy)
try:
    with session.reporting():
        for _ in range(1000):
            order_of(keys)
except DatabaseError as error:
    return f"{error.sqlstate}, {threading.active_count()} thread"
$$
"""


@pytest.mark.long
def test_cancelled_while_it_sorts(parties: Parties) -> None:
    """Sorting a long array, which nobody gave a pulse, ends as soon, and leaves no thread."""
    with psycopg.connect(parties.dsn, autocommit=True) as connection:
        kanon = Functions(connection)
        assert sqlstate_of(lambda: kanon.verify("nothing")) == "42704"
        fetch(connection, CANCELLED_WHILE_IT_SORTS)
        fetch(connection, "SET statement_timeout = '1s'")
        assert value(connection, "SELECT pg_temp.sort()") == "57014, 1 thread"


@pytest.mark.long
@pytest.mark.parametrize(
    ("way", "signal_sent"), [("sql", "pg_cancel_backend"), ("python", "pg_terminate_backend")]
)
def test_signals_from_elsewhere(
    parties: Parties,
    connect_as: Callable[[str, str], Connection],
    way: str,
    signal_sent: str,
) -> None:
    """Cancelled or ended by somebody else, after ever longer."""
    for milliseconds in range(0, 160, 40):
        with connect_as(parties.dsn, parties.publisher.info.user) as connection:
            other = subprocess.Popen(
                [sys.executable, "-c", SENDER, parties.dsn, signal_sent,
                 str(connection.info.backend_pid), str(milliseconds)],
                stdout=subprocess.PIPE,
            )  # fmt: skip
            assert other.stdout is not None
            other.stdout.readline()
            sqlstate_of(lambda: WAYS[way](connection).publish("data.some", "some", privacy=PRIVACY))
            other.communicate()
        left = remains(parties.admin)
        if left:
            assert all(holds for *_, holds in Functions(parties.publisher).verify("some"))
            Functions(parties.publisher).drop("some")
    WAYS[way](parties.publisher).publish("data.some", "some", privacy=PRIVACY)
    Functions(parties.publisher).drop("some")


@pytest.mark.long
def test_ended_while_rows_are_read(
    parties: Parties, connect_as: Callable[[str, str], Connection]
) -> None:
    """The cursor is closed where its connection breaks: the suite refuses one left open."""
    with connect_as(parties.dsn, parties.publisher.info.user) as connection:
        connection.execute("BEGIN")
        rows = PsycopgSession(connection).stream(2, "SELECT age FROM data.few")
        next(rows)
        fetch(parties.admin, "SELECT pg_terminate_backend($1::int)", connection.info.backend_pid)
        with pytest.raises(DatabaseError):
            rows.close()
        del rows
        gc.collect()


SENDER = """
import sys, time, psycopg
dsn, function, pid, milliseconds = sys.argv[1:]
with psycopg.connect(dsn, autocommit=True) as connection:
    print("ready", flush=True)
    time.sleep(int(milliseconds) / 1000)
    connection.execute(f"SELECT {function}(%s::int)", [pid])
"""

CLIENT = """
import sys, psycopg
from tests.integration.parties import WAYS
dsn, way = sys.argv[1:]
with psycopg.connect(dsn, autocommit=True) as connection:
    connection.execute("SET test.at = '5'")
    WAYS[way](connection).publish("data.few", "orphan", privacy='{"l": 3}')
"""


def wait_for(connection: Connection, statement: str, *values: object) -> None:
    for _ in range(3000):
        if value(connection, statement, *values):
            return
        time.sleep(0.01)
    raise AssertionError("waited in vain")


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_client_killed(parties: Parties, definitions: Callable[[str], None], way: str) -> None:
    """The client dies while the server is half through: all of it is published, or nothing."""
    definitions("PERFORM pg_advisory_xact_lock_shared(7)")
    fetch(parties.admin, "SELECT setval('public.definitions', 1, false)")
    fetch(parties.admin, "SELECT pg_advisory_lock(7)")
    dsn = parties.dsn_of("publisher")
    client = subprocess.Popen([sys.executable, "-c", CLIENT, dsn, way])
    waiting = "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    wait_for(parties.admin, waiting)
    client.kill()
    client.wait()
    fetch(parties.admin, "SELECT pg_advisory_unlock(7)")
    gone = "SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = $1::text"
    wait_for(parties.admin, gone, parties.publisher.info.user)  # the fixture's own remains
    kanon = Functions(parties.publisher)
    if remains(parties.admin):
        assert way == "sql"  # its one statement may end, though nobody hears the answer
        assert all(holds for *_, holds in kanon.verify("orphan"))
    fetch(parties.publisher, "SET test.at = '0'")
    kanon.publish("data.few", "orphan", privacy=PRIVACY, replace=True)
    kanon.drop("orphan")


@pytest.fixture
def small_tablespace(parties: Parties) -> Iterator[str]:
    """A tablespace on a file system of 1 MB; needs root."""
    folder = new_folder()
    folder.mkdir()
    mounted = shutil.which("mount") and os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], capture_output=True
    ).returncode == 0  # fmt: skip
    if not mounted:
        folder.rmdir()
        pytest.skip("only root may mount a small file system")
    try:
        owner = Path(value(parties.admin, "SHOW data_directory")).stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        fetch(parties.admin, f"CREATE TABLESPACE kanon_small LOCATION '{folder}'")
        fetch(parties.admin, "GRANT CREATE ON TABLESPACE kanon_small TO PUBLIC")
        yield "kanon_small"
        fetch(parties.admin, "DROP TABLESPACE kanon_small")
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


@pytest.mark.pitfall(18)
@pytest.mark.parametrize(
    ("setting", "way"), [("temp_tablespaces", "sql"), ("default_tablespace", "python")]
)
def test_disk_full(parties: Parties, small_tablespace: str, setting: str, way: str) -> None:
    """When the disk is full, nothing is left, and the next publication succeeds."""
    kanon = WAYS[way](parties.publisher)
    fetch(parties.publisher, f"SET {setting} = {small_tablespace}")
    assert sqlstate_of(lambda: kanon.publish("data.many", "many", privacy=PRIVACY)) == "53100"
    fetch(parties.publisher, f"RESET {setting}")
    assert remains(parties.admin) == []
    kanon.publish("data.many", "many", privacy=PRIVACY)
    kanon.drop("many")


@pytest.mark.long
def test_backend_killed() -> None:
    """A backend dies of SIGKILL, as by the kernel for want of memory; the server recovers."""
    with private_cluster() as dsn:
        install(dsn)
        with psycopg.connect(dsn, autocommit=True) as admin:
            fetch(admin, "CREATE TABLE people AS SELECT i % 9 AS age, i % 5 AS sick"
                         " FROM generate_series(1, 60) AS i")  # fmt: skip
            Functions(admin).register("public.people", ["age"], "sick")
            at_each_definition(admin, "PERFORM pg_advisory_xact_lock_shared(7)")
            fetch(admin, "SELECT pg_advisory_lock(7)")
            client = subprocess.Popen(
                [sys.executable, "-c", CLIENT.replace("data.few", "public.people"), dsn, "sql"],
                stderr=subprocess.DEVNULL,
            )
            waiting = (
                "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted UNION ALL"
                " SELECT 0 ORDER BY 1 DESC LIMIT 1"
            )
            wait_for(admin, waiting)
            os.kill(value(admin, waiting), signal.SIGKILL)
            client.wait()
        wait_until_answering(dsn)
        with psycopg.connect(dsn, autocommit=True) as admin:
            fetch(admin, "DROP EVENT TRIGGER interrupt")
            assert remains(admin) == []
            Functions(admin).publish("public.people", "orphan", privacy=PRIVACY)


def wait_until_answering(dsn: str) -> None:
    for _ in range(3000):
        try:
            psycopg.connect(dsn).close()
        except psycopg.OperationalError:
            time.sleep(0.01)
        else:
            return
    raise AssertionError("waited in vain")
