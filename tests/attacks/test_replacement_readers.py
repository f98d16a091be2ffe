"""Readers during a replacement get the old answer or the new one: security pitfall 23.

This is the quick form of ``python -m benchmarks load``, whose figures docs/reference/reliability.md
has.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from benchmarks.load.analysts import MODES, RETRYABLE, RIGHT
from benchmarks.load.crowd import let_them_ask
from benchmarks.load.releases import Publisher, Release
from kanon_db.errors import NotFoundError
from tests.integration.parties import (
    Connection,
    Functions,
    Package,
    Parties,
    create_table,
    drop_all,
    fetch,
    holds,
    refused_in_savepoint,
    sqlstate_of,
    value,
)


@pytest.mark.long
@pytest.mark.pitfall(23)
def test_readers_see_the_old_or_the_new(
    parties: Parties, connect_as: Callable[[str, str], Connection]
) -> None:
    """Analysts who ask all the time, while publications are replaced, get no wrong answer."""
    crowd = let_them_ask(
        lambda who: connect_as(parties.dsn, getattr(parties, who).info.user),
        n_analysts=len(MODES),
        n_records=1_000,
        seconds=5,
        publisher_pause=0.1,
        analyst_pause=0.02,
        is_watched=False,
    )
    assert min(map(len, crowd.publisher.releases.values())) > 2
    assert {asked.mode for asked in crowd.asked} == set(MODES)
    assert crowd.publisher.errors.keys() <= RETRYABLE
    assert [asked for asked in crowd.asked if asked.outcome not in {RIGHT, *RETRYABLE}] == []
    drop_all(parties)


def test_whose_answer_is_right(parties: Parties) -> None:
    """A release may be seen from the begin of its call to the end of the next one's."""
    publisher = Publisher(parties.publisher, pause=0)
    releases = ("even", 0, 2), ("odd", 10, 12), ("even", 20, float("inf"))
    publisher.releases["p"] = [Release(*one) for one in releases]
    both = {"even", "odd"}
    for began, ended, sides in (
        (5, 6, {"even"}), (5, 11, both), (11.5, 11.6, both), (13, 14, {"odd"}), (25, 26, both)
    ):  # fmt: skip
        assert publisher.sides("p", began, ended) == sides


BEFORE, AFTER = 120, 80
KINDS: dict[str, dict[str, Any]] = {
    "publish_buckets": {"privacy": '{"l": 2}'},
    "publish_suppressed": {"k": 2},
}
WITH_VIEWS = {f"{kind} with views": kind for kind in KINDS}
"""Readers have views of all that is published, which live on."""

QUERY = "SELECT COUNT(*) FROM p WHERE sick <> 'nothing'"
READ: dict[str, Callable[[Connection], object]] = {
    "estimate_count": lambda c: Functions(c).estimate(QUERY)[2:4],
    "estimate_counts": lambda c: fetch(
        c, "SELECT lower_bound, upper_bound FROM kanon.estimate_counts($1::text)", QUERY
    )[0],
    "metrics": lambda c: (int(Functions(c).metrics("p")["records"]),) * 2,
    "verify": lambda c: holds(c, "p"),
}


@pytest.fixture
def replacing(parties: Parties, request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """A publication, and a call that replaces it by one of fewer people."""
    create_table(
        parties.publisher, "data.people", "age int, sick text",
        [(i % 4, f"disease {i % 4}") for i in range(BEFORE)],
    )  # fmt: skip
    kanon = Functions(parties.publisher)
    kanon.register("data.people", ["age"], "sick")
    kind = WITH_VIEWS.get(request.param, request.param)
    publish = lambda **more: kanon.call(kind, "data.people", "p", **KINDS[kind], **more)
    publish()
    ((relations,),) = fetch(parties.admin, "SELECT relations FROM kanon.publication")
    for relation in relations if request.param in WITH_VIEWS else ():
        fetch(parties.analyst, f"CREATE TEMPORARY VIEW of_{relation} AS TABLE published.{relation}")

    def replace() -> None:
        fetch(parties.publisher, f"DELETE FROM data.people WHERE ctid IN"
              f" (SELECT ctid FROM data.people LIMIT {BEFORE - AFTER})")  # fmt: skip
        publish(replace=True)

    yield replace
    fetch(parties.analyst, "DISCARD TEMP")
    kanon.drop("p")
    fetch(parties.publisher, "DROP TABLE data.people")


@pytest.mark.long
@pytest.mark.pitfall(23)
@pytest.mark.parametrize(
    ("replacing", "function"),
    [
        pytest.param(how, read, marks=[] if (i + j // 2 + j) % 2 == 0 else [pytest.mark.long])
        for i, read in enumerate(READ)
        for j, how in enumerate((*KINDS, *WITH_VIEWS))
    ],
    indirect=["replacing"],
)
def test_who_waits_for_a_replacement_does_not_count_empty_tables(
    parties: Parties, replacing: Callable[[], None], function: str
) -> None:
    """A call that began before the replacement was committed: right, or refused as 40001."""
    answers: list[object] = []

    def read() -> None:
        refused = sqlstate_of(lambda: answers.append(READ[function](parties.analyst)))
        answers.extend([refused] if refused else [])

    reader = threading.Thread(target=read)
    with parties.publisher.transaction():
        replacing()
        reader.start()
        _wait_for_lock(parties, reader)
    reader.join()
    assert answers in ([(BEFORE, BEFORE)], [(AFTER, AFTER)], [True], ["40001"])
    again = READ[function](parties.analyst)
    assert again in ((AFTER, AFTER), True)


@pytest.mark.long
@pytest.mark.pitfall(23)
@pytest.mark.parametrize("replacing", [*KINDS, *WITH_VIEWS], indirect=True)
def test_a_snapshot_from_before_a_replacement_is_refused(
    parties: Parties, replacing: Callable[[], None]
) -> None:
    """A transaction of one snapshot does not see the new rows: a call in it says so.

    So does the view of buckets, without functions of kanon_db: it never looks empty.
    """
    with parties.analyst.transaction(force_rollback=True):
        fetch(parties.analyst, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        fetch(parties.analyst, "SELECT 1")
        replacing()
        for read in READ.values():
            assert refused_in_savepoint(parties.analyst, lambda: read(parties.analyst)) == "40001"
        is_of_buckets = value(parties.admin, "SELECT kind FROM kanon.publication") == "buckets"
        for read in (of_view, copied) if is_of_buckets else ():
            assert refused_in_savepoint(parties.analyst, lambda: read(parties.analyst)) == "40001"
    for read in READ.values():
        assert read(parties.analyst) in ((AFTER, AFTER), True)
    assert not is_of_buckets or of_view(parties.analyst) == AFTER


VIEW = "SELECT sum(weight)::int FROM published.p"


def of_view(connection: Connection) -> object:
    return value(connection, VIEW)


def copied(connection: Connection) -> object:
    with connection.cursor() as cursor, cursor.copy(f"COPY ({VIEW}) TO STDOUT".encode()) as copy:
        return list(copy)


@pytest.mark.pitfall(23)
@pytest.mark.parametrize(
    "replacing", ["publish_buckets", "publish_buckets with views"], indirect=True
)
def test_a_prepared_statement_never_finds_the_view_empty(
    parties: Parties, replacing: Callable[[], None]
) -> None:
    """EXECUTE takes its snapshot, then waits for the lock that the replacement holds."""
    parties.analyst.execute(f"PREPARE ask AS {VIEW}")
    answers: list[object] = []
    reader = threading.Thread(
        target=lambda: answers.append(_first_or_state(parties.analyst, "EXECUTE ask"))
    )
    with parties.publisher.transaction():
        replacing()
        reader.start()
        _wait_for_lock(parties, reader)
    reader.join()
    assert answers in ([BEFORE], [AFTER], ["40001"])
    assert _first_or_state(parties.analyst, "EXECUTE ask") == AFTER
    parties.analyst.execute("DEALLOCATE ask")


@pytest.mark.parametrize("way", [Functions, Package])
def test_who_waits_for_a_publication_that_is_dropped_is_told(
    parties: Parties, way: type[Functions | Package]
) -> None:
    create_table(parties.publisher, "data.people", "age int, sick text", [(1, "a"), (2, "b")] * 3)
    publisher, errors = Functions(parties.publisher), list[Any]()
    publisher.register("data.people", ["age"], "sick")
    publisher.publish("data.people", "p", privacy='{"l": 2}')

    def ask() -> None:
        with pytest.raises((NotFoundError, psycopg.Error)) as raised:
            way(parties.analyst).estimate(QUERY)
        errors.append(raised.value)

    reader = threading.Thread(target=ask)
    with parties.publisher.transaction():
        publisher.drop("p")
        reader.start()
        _wait_for_lock(parties, reader)
    reader.join()
    (error,) = errors
    assert error.sqlstate == NotFoundError.sqlstate
    assert "the publication was dropped just now" in str(error)
    fetch(parties.publisher, "DROP TABLE data.people")


def _wait_for_lock(parties: Parties, reader: threading.Thread) -> None:
    """Return when the analyst waits for a lock, or is done."""
    waiting = "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $1::int4"
    pid = parties.analyst.info.backend_pid
    while reader.is_alive() and value(parties.admin, waiting, pid) != "Lock":
        time.sleep(0.005)


def _first_or_state(connection: Connection, statement: str) -> object:
    answers: list[object] = []
    return sqlstate_of(lambda: answers.append(value(connection, statement))) or answers[0]
