"""Batches of new people: published under the same guarantee, with those of before as one."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import psycopg
import pytest

from tests.acceptance.commands import kanon
from tests.integration.growing import KINDS, NAMES, Source
from tests.integration.parties import Functions, Parties, fetch, sqlstate_of, value

pytestmark = pytest.mark.usefixtures("refused_by_default")
CONDITIONS = ("age > 40", "sex = 'm' AND sick = 'ill 3'", "sick <> 'ill 1'", "age = 33")


@pytest.mark.parametrize(
    ("kind", "by_entity"),
    [*((kind, False) for kind in KINDS if kind != "m-invariant"),
     *((kind, True) for kind in ("buckets", "generalized", "freeform", "suppressed"))],
)  # fmt: skip
def test_batches_are_one_publication(parties: Parties, kind: str, by_entity: bool) -> None:
    """It is verified, measured, attacked and asked as one; too few wait for others."""
    source = Source(parties, 200, entity="int" if by_entity else None, arrival=not by_entity)
    source.publish(kind)
    assert source.refresh()["added"] == 0
    source.add(1, 1)
    row = source.refresh()
    assert (row["added"], row["waiting"], row["records"]) == (0, 1, 200)
    assert row["missing"]
    assert "ill" not in row["missing"]
    assert source.kept() == (200 if by_entity else 0)
    for day, (more, number) in enumerate(((59, 60), (90, 90)), start=2):
        source.add(more, day)
        waiting = row["waiting"]
        row = source.refresh()
        assert (row["added"], row["waiting"], row["missing"]) == (more + waiting, 0, None)
        assert row["added"] == number
    assert row["records"] == 350
    assert source.kept() == (350 if by_entity else 0)
    analyst = Functions(parties.analyst)
    metrics = analyst.metrics("grows")
    assert metrics["records"] + metrics.get("suppressed_records", 0) == pytest.approx(350)
    assert source.kanon.attack("grows")
    source.check_answers(CONDITIONS)
    assert source.batches("records") == [200, 60, 90]


@pytest.mark.parametrize("kind", ["buckets", "cells", "generalized", "suppressed", "freeform"])
def test_nobody_moves(parties: Parties, kind: str) -> None:
    """What a reader had before is a part of what they have now: nobody's bucket or row changed."""
    source = Source(parties, 150, entity=None, arrival=True)
    source.publish(kind)
    if kind in ("buckets", "cells"):
        # Each bucket as its people and values, whatever its number.
        state = (
            "SELECT (SELECT string_agg(format('%s %s', age, sex), ',' ORDER BY age, sex)"
            " FROM published.grows_qit AS q WHERE q.bucket_id = b.bucket_id),"
            " (SELECT string_agg(format('%s %s', sick, count), ',' ORDER BY sick)"
            " FROM published.grows_sat AS s WHERE s.bucket_id = b.bucket_id)"
            " FROM (SELECT DISTINCT bucket_id FROM published.grows_qit) AS b"
        )
    else:
        state = "SELECT g::text, NULL FROM published.grows AS g"
    before = sorted(map(str, fetch(parties.analyst, state)))
    source.add(80, 1)
    source.refresh()
    after = sorted(map(str, fetch(parties.analyst, state)))
    for one in before:
        after.remove(one)
    if kind == "generalized":  # the batch is 4-anonymous without the others
        columns = "age, sex"
        total = fetch(parties.analyst, f"SELECT count(*) FROM published.grows GROUP BY {columns}")
        assert min(n for (n,) in total) >= 4
        alone: dict[str, int] = {}
        for line in after:
            cells = line.split("ill")[0]
            alone[cells] = alone.get(cells, 0) + 1
        assert min(alone.values()) >= 4
    assert len(after) == (80 if kind not in ("buckets", "cells") else len(after))


def test_late_and_known_people_wait(parties: Parties) -> None:
    """A record that is not after the last one is late; of somebody published, it is another."""
    source = Source(parties, arrival=True)
    source.add(100, 5)
    source.publish("diverse")
    source.add(7, 5)
    row = source.refresh()
    assert (row["added"], row["waiting"]) == (0, 7)
    assert "7 came late" in row["missing"]
    source.add(80, 6)
    source.add(0, 6, ids=[0, 1, 4])
    row = source.refresh()
    assert (row["added"], row["waiting"]) == (80, 10)
    assert "3 are of people who are published" in row["missing"]


def test_refusals(parties: Parties, kanon: Any) -> None:
    source = Source(parties, 50, entity=None, arrival=True)
    other = f"data.{next(NAMES)}"
    fetch(parties.publisher, f"CREATE TABLE {other} AS SELECT age, sex, sick FROM {source.name}")
    kanon.register(other, ["age", "sex"], "sick")
    Functions(parties.publisher).publish(other, "fixed", privacy='{"l": 2}')
    with pytest.raises(Exception, match="not known who came since"):
        source.kanon.call("refresh", "fixed")
    assert sqlstate_of(lambda: source.kanon.call("refresh", "nothing")) == "42704"
    source.publish("buckets")
    for other in (parties.analyst, parties.admin):
        assert sqlstate_of(lambda who=other: Functions(who).call("refresh", "grows")) == "42501"  # type: ignore[misc]
    source.publish("generalized", "close", constraints='{"t": 0.9}', readers=[])
    source.add(60, 1)
    with pytest.raises(psycopg.Error, match="depend on the table's frequencies"):
        source.kanon.call("refresh", "close")
    assert sqlstate_of(
        lambda: Functions(parties.publisher).register(source.name, ["age"], "sick")
    ) not in (None, "XX000")


def test_grants_stay(parties: Parties, new_role: Callable[..., str]) -> None:
    """Also those that the publisher made by hand, when it is replaced or refreshed."""
    guest = new_role()
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA published TO {guest}")
    source = Source(parties, 60, entity=None, arrival=True)
    source.publish("buckets")
    fetch(parties.publisher, f"GRANT SELECT ON published.grows TO {guest}, PUBLIC")
    fetch(parties.publisher, f"GRANT SELECT (age) ON published.grows_qit TO {guest}")
    readers = "SELECT has_table_privilege($1::text, 'published.grows', 'SELECT')"
    source.add(60, 1)
    assert source.refresh()["added"] == 60
    for relation in ("grows_qit", "grows_sat", "grows_bit"):  # not more than before
        reads = f"SELECT has_table_privilege($1::text, 'published.{relation}', 'SELECT')"
        assert not value(parties.admin, reads, guest)
    stranger = parties.stranger.info.user
    assert [value(parties.admin, readers, role) for role in (guest, stranger)] == [True, True]
    accept = json.dumps({"combined_releases": "it is a test"})
    source.publish("buckets", replace=True, accept=accept)
    assert [value(parties.admin, readers, role) for role in (guest, stranger)] == [True, True]
    source.publish("buckets", replace=True, accept=accept, readers=["kanon_analyst"])
    assert [value(parties.admin, readers, role) for role in (guest, stranger)] == [False, False]
    fetch(parties.admin, f"DROP OWNED BY {guest}")


def test_new_people_in_another_release(parties: Parties) -> None:
    """A batch of people whom the same readers have in another release is refused."""
    source = Source(parties, 80, entity=None, arrival=True)
    source.publish("buckets")
    source.add(80, 1)
    accept = json.dumps({"combined_releases": "only the first 80 are in both"})
    source.publish("diverse", "other", accept=accept)
    with pytest.raises(psycopg.Error, match="combined_releases"):
        source.refresh()
    assert value(parties.analyst, "SELECT sum(weight) FROM published.grows") == pytest.approx(80)
    assert source.refresh(accept=accept)["added"] == 80


def test_readers_see_one_state_or_the_other(parties: Parties) -> None:
    """A transaction that began before a refresh gets its old answer, or is told to repeat."""
    source = Source(parties, 80, entity=None, arrival=True)
    source.publish("buckets")
    source.add(80, 1)
    count = "SELECT estimate FROM kanon.estimate_count('SELECT COUNT(*) FROM grows')"
    with parties.analyst.transaction():
        assert value(parties.analyst, count) == 80
    source.refresh()
    assert value(parties.analyst, count) == 160


def test_what_more_people_cannot_mend_is_refused(parties: Parties) -> None:
    source = Source(parties, 60, arrival=True)
    source.publish("diverse")
    source.add(60, 1)
    fetch(parties.publisher, f"UPDATE {source.name} SET id = NULL WHERE id = 70")
    with pytest.raises(psycopg.Error, match="entity"):
        source.refresh()


def test_new_partitions_are_part_of_the_source(parties: Parties) -> None:
    """People of a partition that was added before a refresh are in that release."""
    name = f"data.{next(NAMES)}"
    fetch(
        parties.publisher,
        f"CREATE TABLE {name} (age int, sick text, came int) PARTITION BY RANGE (came)",
    )
    rows = "SELECT i % 40, 'ill ' || i % 5, {} FROM generate_series(1, 60) AS i"
    for part in (1, 2):
        fetch(
            parties.publisher,
            f"CREATE TABLE {name}_{part} PARTITION OF {name}"
            f" FOR VALUES FROM ({part}) TO ({part + 1})",
        )
        fetch(parties.publisher, f"INSERT INTO {name} {rows.format(part)}")
        if part == 1:
            Functions(parties.publisher).register(name, ["age"], "sick", arrival="came")
            Functions(parties.publisher).publish(name, "grows", privacy='{"l": 2}')
    assert Functions(parties.publisher).call("refresh", "grows")["added"] == 60
    Functions(parties.publisher).register(f"{name}_2", ["age"], "sick")
    again = lambda: Functions(parties.publisher).publish(f"{name}_2", "other", privacy='{"l": 2}')
    assert sqlstate_of(again) == "KN005"


def test_two_refreshes_wait_for_each_other(
    parties: Parties, connect_as: Callable[[str, str], psycopg.Connection[Any]]
) -> None:
    """The second has nothing to add; neither fails."""
    source = Source(parties, 80, entity=None, arrival=True)
    source.publish("buckets")
    source.add(80, 1)
    with (
        connect_as(parties.dsn, parties.publisher.info.user) as other,
        ThreadPoolExecutor() as pool,
    ):
        other.autocommit = True
        with parties.publisher.transaction():
            assert source.refresh()["added"] == 80
            second = pool.submit(lambda: Functions(other).call("refresh", "grows"))
            assert wait([second], timeout=0.5).not_done
        assert second.result()["added"] == 0
    assert value(parties.analyst, "SELECT sum(weight) FROM published.grows") == pytest.approx(160)


def test_the_command(parties: Parties) -> None:
    source = Source(parties, 80, entity=None, arrival=True)
    source.publish("buckets")
    source.add(80, 1)
    dsn = psycopg.conninfo.make_conninfo(parties.dsn, user=parties.publisher.info.user)
    answer = kanon("refresh", "grows", "--dsn", dsn)
    assert answer.returncode == 0, answer.stderr
    assert "80" in answer.stdout
    answer = kanon("refresh", "grows", "--dsn", dsn, "--json")
    assert json.loads(answer.stdout)["added"] == 0
    role = parties.stranger.info.user
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA published TO {role}")
    answer = kanon("grant", "grows", "--readers", role, "--dsn", dsn)
    assert answer.returncode == 0, answer.stderr
    answer = kanon("check-release", source.name, "grows", "--dsn", dsn)
    assert answer.returncode == 0, answer.stderr


def test_a_column_without_a_greatest_value_says_nothing_of_arrival(parties: Parties) -> None:
    name = f"data.{next(NAMES)}"
    fetch(parties.publisher, f"CREATE TABLE {name} (age int, sick text, came uuid, gone boolean)")
    for column in ("came", "gone"):
        with pytest.raises(psycopg.Error, match="no greatest value") as raised:
            Functions(parties.publisher).register(name, ["age"], "sick", arrival=column)
        assert raised.value.sqlstate == "22023"
    with pytest.raises(psycopg.Error, match="no such column"):
        Functions(parties.publisher).register(name, ["age"], "sick", arrival="cane")


def test_nothing_comes_after_infinity(parties: Parties) -> None:
    """Such a record would end all batches: it is refused, first or later."""
    source = Source(parties, 60, entity=None, arrival=True)
    endless = f"UPDATE {source.name} SET came = 'infinity' WHERE id = {{}}"
    fetch(parties.publisher, endless.format(3))
    with pytest.raises(psycopg.Error, match="nothing can come after"):
        source.publish("buckets")
    fetch(parties.publisher, f"UPDATE {source.name} SET came = '2026-01-01' WHERE id = 3")
    source.publish("buckets")
    source.add(60, 1)
    fetch(parties.publisher, endless.format(70))
    with pytest.raises(psycopg.Error, match="nothing can come after"):
        source.refresh()
