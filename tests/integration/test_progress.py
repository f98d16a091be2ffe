"""Other sessions see how far an operation is, and clients keep their own names."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from kanon_db.errors import KanonError
from kanon_db.interfaces.python import Kanon
from kanon_db.publications.pipeline import PHASES
from kanon_db.session.progress import Progress
from kanon_db.session.psycopg_session import PsycopgSession
from tests.acceptance.commands import KANON
from tests.integration.parties import (
    WAYS,
    Connection,
    Functions,
    Package,
    Parties,
    drop_all,
    everything,
    fetch,
    sqlstate_of,
    value,
)

PRIVACY = '{"l": 3}'
OWN = "own"
NAME = "SELECT current_setting('application_name')"
SEEN = "SELECT phase, phases, step, role FROM kanon.progress"
_LOCKS = 4_711
"""The first key of the advisory locks."""


@pytest.fixture(scope="module", autouse=True)
def secrets(parties: Parties) -> None:
    fetch(
        parties.publisher,
        "CREATE TABLE data.secrets AS SELECT i % 90 AS shoes, i % 2 AS hats, i % 5 AS sick"
        " FROM generate_series(1, 600) AS i",
    )
    Functions(parties.publisher).register("data.secrets", ["shoes", "hats"], "sick")


@pytest.fixture(scope="module", params=WAYS)
def way(
    request: pytest.FixtureRequest, parties: Parties, connect_as: Callable[[str, str], Connection]
) -> Iterator[Functions | Package]:
    """A client that has a name of its own, in each way."""
    with connect_as(parties.dsn, parties.publisher.info.user) as connection:
        fetch(connection, f"SET application_name = '{OWN}'")
        yield WAYS[request.param](connection)


@pytest.fixture(autouse=True)
def dropped(parties: Parties) -> Iterator[None]:
    yield
    drop_all(parties)


def publish(kanon: Functions | Package) -> None:
    """Buckets in one way, generalized rows in the other."""
    if isinstance(kanon, Functions):
        kanon.publish("data.secrets", "kept", privacy=PRIVACY)
    else:
        kanon.generalize("data.secrets", "kept", k=3, method="mondrian")


NAME_OF = "SELECT application_name FROM pg_stat_activity WHERE pid = $1::int"


@contextmanager
def in_steps(admin: Connection) -> Iterator[Callable[[threading.Thread, Callable[[], None]], None]]:
    """Let whatever defines objects wait at each of them until somebody has looked."""
    fetch(admin, "CREATE SEQUENCE public.definitions")
    fetch(
        admin,
        "CREATE FUNCTION public.wait() RETURNS event_trigger LANGUAGE plpgsql"
        " SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$BEGIN PERFORM"
        f" pg_advisory_xact_lock({_LOCKS}, nextval('public.definitions')::int); END$$",
    )
    fetch(admin, f"SELECT pg_advisory_lock({_LOCKS}, i) FROM generate_series(1, 200) AS i")
    fetch(admin, "CREATE EVENT TRIGGER wait ON ddl_command_end EXECUTE FUNCTION public.wait()")

    def follow(running: threading.Thread, look: Callable[[], None]) -> None:
        running.start()
        waiting = (
            "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND classid = $1::int::oid"
            " AND NOT granted"
        )
        while running.is_alive():
            for (number,) in fetch(admin, waiting, _LOCKS):
                look()
                fetch(admin, "SELECT pg_advisory_unlock($1::int, $2::int)", _LOCKS, number)
            time.sleep(0.002)
        running.join()

    try:
        yield follow
    finally:
        fetch(admin, "DROP EVENT TRIGGER wait")
        fetch(admin, "SELECT pg_advisory_unlock_all()")
        fetch(admin, "DROP FUNCTION public.wait")
        fetch(admin, "DROP SEQUENCE public.definitions")


@pytest.mark.long
@pytest.mark.pitfall(42)
def test_a_session_keeps_its_name_unless_it_wants_to_be_seen(
    parties: Parties, way: Functions | Package
) -> None:
    names = set()
    pid = way.connection.info.backend_pid
    with in_steps(parties.admin) as follow:
        look = lambda: names.add(value(parties.admin, NAME_OF, pid))
        follow(threading.Thread(target=lambda: publish(way)), look)
    assert names == {OWN}


@pytest.mark.long
def test_others_see_the_phases_in_order(
    parties: Parties, way: Functions | Package, connect_as: Callable[[str, str], Connection]
) -> None:
    role, pid = parties.publisher.info.user, way.connection.info.backend_pid
    seen: list[tuple[int, int, str, str]] = []
    names: list[str] = []
    with in_steps(parties.admin) as follow, connect_as(parties.dsn, role) as watcher:
        fetch(way.connection, "SET kanon.progress = on")

        def look() -> None:
            (one,) = fetch(watcher, SEEN)
            seen.append(one)
            names.append(value(parties.stranger, NAME_OF, pid))
            assert fetch(parties.analyst, SEEN) == []
            assert fetch(parties.admin, SEEN) == [one]

        follow(threading.Thread(target=lambda: publish(way)), look)
        assert value(way.connection, NAME) == OWN
        assert fetch(watcher, SEEN) == []
    assert {phases for _, phases, _, _ in seen} == {len(PHASES)}
    numbers = [number for number, *_ in seen]
    assert numbers == sorted(numbers)
    assert {1, 3, 6} <= set(numbers)
    assert {who for *_, who in seen} == {role}
    # Anybody sees these, also from other databases: nothing of the data or its names is in them.
    for name in names:
        assert name.startswith("kanon_db ")
        assert not {"secrets", "kept", "shoes", "hats", "sick", "data"} & set(name.split())


@pytest.mark.long
def test_after_an_error_the_name_is_the_clients_own(way: Functions | Package) -> None:
    """Also inside of a transaction that goes on."""
    connection = way.connection
    connection.execute("SET kanon.progress = on")
    refused = lambda: way.generalize("data.secrets", "kept", k=601)
    assert sqlstate_of(refused) is not None
    assert value(connection, NAME) == OWN
    with connection.transaction():
        connection.execute("SET LOCAL application_name = 'local'")
        with contextlib.suppress(KanonError, psycopg.Error), connection.transaction():
            refused()
        assert value(connection, NAME) == "local"
        publish(way)
        assert value(connection, NAME) == "local"
        raise psycopg.Rollback
    assert value(connection, NAME) == OWN


def test_with_the_right_to_all_statistics(
    parties: Parties, connect_as: Callable[[str, str], Connection], new_role: Callable[..., str]
) -> None:
    with connect_as(parties.dsn, new_role("kanon_analyst", "pg_read_all_stats")) as monitor:
        fetch(parties.publisher, "SET application_name = 'kanon_db 2/6 40% ~12s searching'")
        assert fetch(
            monitor, "SELECT phase, phases, step, share, remaining FROM kanon.progress"
        ) == [(2, 6, "searching", 0.4, "about 12 s left")]
        fetch(parties.publisher, "RESET application_name")


def test_any_name_can_be_read(parties: Parties) -> None:
    """A client's own name comes back as it was, whatever it is."""
    for name, expected in {
        "kanon_db ": [],
        "kanon_db 99999/1 x": [(None, "99999/1 x")],
        "kanon_db 1/2 999999999999s x": [(1, "999999999999s x")],
        "kanon_db 1/2 ~999999999s 5% x": [(1, "5% x")],
        "kanon_db 1/2 999% x'; --": [(1, "x'; --")],
        'it\'s "mine" %s $1 \\': [],
    }.items():
        fetch(parties.publisher, "SELECT set_config('application_name', $1::text, false)", name)
        assert fetch(parties.publisher, "SELECT phase, step FROM kanon.progress") == expected
    fetch(parties.publisher, "SET kanon.progress = on")
    Functions(parties.publisher).publish("data.secrets", "kept", privacy=PRIVACY)
    assert value(parties.publisher, NAME) == name
    fetch(parties.publisher, "RESET kanon.progress")
    fetch(parties.publisher, "RESET application_name")


@pytest.mark.long
def test_every_long_operation_says_how_far_it_is(parties: Parties) -> None:
    said: list[Progress] = []
    kanon = Kanon(PsycopgSession(parties.publisher, said.append))
    expected = {
        "publish_buckets": PHASES,
        "verify": ["verifying"],
        "attack": ["verifying", "attacking"],
        "evaluate_counts": ["reading the source", "estimating from the publication"],
        "check_release": ["looking for earlier releases", "comparing releases"],
        "recommend": [],
    }
    publication = "kept"
    given: dict[str, dict[str, object]] = {
        "publish_buckets": {
            "source": "data.secrets", "publication": publication, "privacy": PRIVACY,
        },
        "check_release": {"source": "data.secrets", "publication": publication},
        "recommend": {"source": "data.secrets", "time_limit": 2.0},
    }  # fmt: skip
    for name, phases in expected.items():
        said.clear()
        kanon.perform(name, given.get(name, {"name": publication}))
        assert said
        assert set(phases) <= {one.step for one in said}
        numbers = [one.phase for one in said if one.phases]
        assert numbers == sorted(numbers)
    assert max(numbers) == said[-1].phases > 3  # one for each candidate


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        "publish buckets data.secrets kept",
        "recommend data.secrets --purpose rows --protection basic",
    ],
)
def test_ctrl_c_at_a_terminal(parties: Parties, command: str) -> None:
    """It ends what the server does, too, and says what has become of it."""
    before = everything(parties.admin)
    # A run in the background may ignore SIGINT, and the command would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    privacy = ["--privacy", PRIVACY] if command.startswith("publish") else []
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND wait_event_type = 'Lock'"
    )
    user = parties.publisher.info.user
    # The command waits for its source, so that it is in its first phase when it is stopped.
    with parties.admin.transaction():
        fetch(parties.admin, "LOCK TABLE data.secrets IN ACCESS EXCLUSIVE MODE")
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [KANON, *command.split(), *privacy, "--dsn", parties.publisher.info.dsn],
            stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        ) as process:  # fmt: skip
            os.close(theirs)
            shown = read_until(ours, "1 of ") if privacy else ""
            with psycopg.connect(parties.dsn, autocommit=True) as watcher:
                for _ in range(1500):
                    if value(watcher, waiting, user):
                        break
                    time.sleep(0.02)
                process.send_signal(signal.SIGINT)
                said = read_until(ours, "published or changed")
                process.wait()
                assert value(watcher, waiting, user) == 0
        os.close(ours)
    assert ("1 of " in shown) == bool(privacy)
    assert "stopped: nothing was published or changed" in said
    assert "Traceback" not in said
    assert process.returncode == 1
    assert everything(parties.admin) == before


def read_until(descriptor: int, text: str) -> str:
    """Read what a terminal shows up to a text; all of it, if the command ends before."""
    shown = ""
    while text not in shown:
        try:
            got = os.read(descriptor, 4096)
        except OSError:  # the other end is closed
            break
        shown += got.decode(errors="replace")
    return shown
