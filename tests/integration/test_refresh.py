"""Batches of new people: published under the same guarantee, with those of before as one."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import psycopg
import pytest

from tests.acceptance.commands import kanon
from tests.integration.growing import NAMES, PUBLISH, Source
from tests.integration.parties import Functions, Parties, fetch, sqlstate_of, value
from tests.profiles import long_but

pytestmark = pytest.mark.usefixtures("refused_by_default")
CONDITIONS = ("age > 40", "sex = 'm' AND sick = 'ill 3'", "sick <> 'ill 1'", "age = 33")


OTHERS_HAVE = ("anatomy", "left out")
"""Ways that are refreshed in `test_refresh_by_entity.py`, too."""

BUCKETS_AS_THEY_ARE = (
    "SELECT (SELECT string_agg(format('%s %s', age, sex), ',' ORDER BY age, sex)"
    " FROM published.grows_qit AS q WHERE q.bucket_id = b.bucket_id),"
    " (SELECT string_agg(format('%s %s', sick, count), ',' ORDER BY sick)"
    " FROM published.grows_sat AS s WHERE s.bucket_id = b.bucket_id)"
    " FROM (SELECT DISTINCT bucket_id FROM published.grows_qit) AS b"
)
"""Each bucket as its people and values, whatever its number."""


WAYS = [
    ("buckets", True), ("cells", False), ("anatomy", False),
    ("generalized", False), ("diverse", True), ("left out", False), ("freeform", True),
    ("suppressed", False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "by_entity"), long_but([way for way in WAYS if way[0] not in OTHERS_HAVE], WAYS)
)
def test_nobody_moves(parties: Parties, kind: str, by_entity: bool) -> None:
    """What a reader had before is a part of what they have now: no bucket or row has changed.

    All batches are verified, measured, attacked and asked as one; too few people wait for others.
    """
    source = Source(parties, 120, entity="int" if by_entity else None, arrival=not by_entity)
    is_rows = PUBLISH.get(kind, kind) != "buckets"
    state = "SELECT g::text FROM published.grows AS g" if is_rows else BUCKETS_AS_THEY_ARE
    seen = lambda: sorted(map(str, fetch(parties.analyst, state)))
    source.publish(kind)
    before = seen()
    assert source.refresh()["added"] == 0
    source.add(1, 1)
    row = source.refresh()
    assert (row["added"], row["waiting"], row["records"]) == (0, 1, 120)
    assert row["missing"]
    assert "ill" not in row["missing"]
    source.add(79, 2)
    row = source.refresh()
    assert (row["added"], row["waiting"], row["missing"]) == (80, 0, None)
    assert row["records"] == 200
    assert source.kept() == (200 if by_entity else 0)
    after = seen()
    for one in before:
        after.remove(one)
    if kind == "generalized":  # the batch is 4-anonymous without the others
        assert len(after) == 80
        assert min(Counter(line.split("ill")[0] for line in after).values()) >= 4
    metrics = Functions(parties.analyst).metrics("grows")
    assert metrics["records"] + metrics.get("suppressed_records", 0) == pytest.approx(200)
    assert source.kanon.attack("grows")
    source.check_answers(CONDITIONS)
    assert source.batches("records") == [120, 80]


def test_buckets_are_told_apart_by_batch(parties: Parties) -> None:
    """The layout says where the buckets of each batch begin; `test_strengths.py` says what for."""
    source = Source(parties, 300, entity=None, arrival=True)
    source.publish("cells")
    asked = "SELECT layout FROM kanon.publications WHERE name = 'grows'"
    bucket_ids = "SELECT bucket_id, count(*) FROM published.grows_qit GROUP BY 1"
    sizes = [Counter(dict(fetch(parties.publisher, bucket_ids)).values())]
    for salt in (1, 2):
        source.add(200, salt)
        assert source.refresh()["added"] == 200
        layout = value(parties.publisher, asked)
        sizes.append(Counter(dict(fetch(parties.publisher, bucket_ids)).values()))
        for before, firsts in zip(sizes, layout["batches"], strict=False):
            places = zip(layout["sizes"], layout["first_bucket_ids"], firsts, strict=True)
            assert {size: later - first for size, first, later in places if later > first} == before


def test_late_records_wait_where_nobody_says_whose_they_are(parties: Parties) -> None:
    """Without an entity, what is counted is counted by arrival, and what is not is said."""
    source = Source(parties, entity=None, arrival=True)
    source.add(100, 5)
    source.publish("diverse")
    source.add(7, 5)
    row = source.refresh()
    assert (row["added"], row["waiting"]) == (0, 7)
    assert row["missing"] == "at least 7 came late: not after the last one that was published"
    assert row["waits"].keys() == {"late", "again", "corrected"}
    assert row["waits"]["corrected"]["records"] is None
    assert "register the source with" in row["waits"]["corrected"]["hint"]
    source.run("DELETE FROM {} WHERE id < 20")
    source.add(80, 6)
    row = source.refresh()
    assert (row["added"], row["waiting"]) == (80, 13)
    assert row["missing"] == "at least 13 deleted after being published"


@pytest.mark.long
def test_late_people_are_new_where_an_entity_says_so(parties: Parties) -> None:
    """They are in no batch yet, whenever they came; further records of somebody wait."""
    source = Source(parties, arrival=True)
    source.add(100, 5)
    source.publish("diverse")
    source.add(30, 3)
    source.add(50, 6)
    source.add(0, 6, ids=[0, 1, 4])
    row = source.refresh()
    assert (row["added"], row["waiting"]) == (80, 3)
    assert row["missing"] == "3 of people who are published"
    assert source.refresh()["added"] == 0


def test_refusals(parties: Parties) -> None:
    source = Source(parties, 50, entity=None, arrival=True)
    Source(parties, 50, entity=None).publish("buckets", "fixed")
    with pytest.raises(psycopg.Error, match="not known who came since"):
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


@pytest.mark.long
def test_grants_stay(parties: Parties, new_role: Callable[..., str]) -> None:
    """Also those that the publisher made by hand, when it is replaced or refreshed."""
    guest = new_role()
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA published TO {guest}")
    source = Source(parties, 40, entity=None, arrival=True)
    source.publish("buckets")
    fetch(parties.publisher, f"GRANT SELECT ON published.grows TO {guest}, PUBLIC")
    fetch(parties.publisher, f"GRANT SELECT (age) ON published.grows_qit TO {guest}")
    readers = "SELECT has_table_privilege($1::text, 'published.grows', 'SELECT')"
    source.add(60, 1)
    assert source.refresh()["added"] == 60
    for relation in ("grows_qit", "grows_sat", "grows_cod"):  # not more than before
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


@pytest.mark.long
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


def test_new_partitions_are_part_of_the_source(parties: Parties) -> None:
    """People of a partition that was added before a refresh are in that release."""
    name, publisher = f"data.{next(NAMES)}", Functions(parties.publisher)
    columns = "(age int, sick text, came int) PARTITION BY RANGE (came)"
    fetch(parties.publisher, f"CREATE TABLE {name} {columns}")
    for part in (1, 2):
        values = f"FOR VALUES FROM ({part}) TO ({part + 1})"
        fetch(parties.publisher, f"CREATE TABLE {name}_{part} PARTITION OF {name} {values}")
        rows = f"SELECT i % 40, 'ill ' || i % 5, {part} FROM generate_series(1, 60) AS i"
        fetch(parties.publisher, f"INSERT INTO {name} {rows}")
        if part == 1:
            publisher.register(name, ["age"], "sick", arrival="came")
            publisher.publish(name, "grows", privacy='{"l": 2}')
    assert publisher.call("refresh", "grows")["added"] == 60
    publisher.register(f"{name}_2", ["age"], "sick")
    again = lambda: publisher.publish(f"{name}_2", "other", privacy='{"l": 2}')
    assert sqlstate_of(again) == "KN005"


@pytest.fixture
def growing(
    parties: Parties, connect_as: Callable[[str, str], psycopg.Connection[Any]]
) -> Iterator[tuple[Source, Functions, ThreadPoolExecutor]]:
    """A published source with people who came since; another session of its publisher; threads."""
    source = Source(parties, 80, entity=None, arrival=True)
    source.publish("buckets")
    source.add(80, 1)
    with (
        connect_as(parties.dsn, parties.publisher.info.user) as other,
        ThreadPoolExecutor() as pool,
    ):
        other.autocommit = True
        yield source, Functions(other), pool


@pytest.mark.long
def test_two_refreshes_wait_for_each_other(
    parties: Parties, growing: tuple[Source, Functions, ThreadPoolExecutor]
) -> None:
    """The second has nothing to add; neither fails."""
    source, other, pool = growing
    with parties.publisher.transaction():
        assert source.refresh()["added"] == 80
        second = pool.submit(other.call, "refresh", "grows")
        assert wait([second], timeout=0.5).not_done
    assert second.result()["added"] == 0
    assert value(parties.analyst, "SELECT sum(weight) FROM published.grows") == pytest.approx(160)


@pytest.mark.slow("two refreshes at the same time")
def test_two_refreshes_that_begin_together(
    parties: Parties, growing: tuple[Source, Functions, ThreadPoolExecutor]
) -> None:
    """Neither reads first what the other drops: both would wait, and one of them fail."""
    _, other, pool = growing
    both = Functions(parties.publisher), other
    refreshed = [pool.submit(each.call, "refresh", "grows") for each in both]
    assert sorted(one.result()["added"] for one in refreshed) == [0, 80]


@pytest.mark.long
def test_the_command(parties: Parties) -> None:
    source = Source(parties, 80, entity=None, arrival=True)
    source.publish("buckets")
    source.add(80, 1)
    dsn = parties.dsn_of("publisher")
    role = parties.stranger.info.user
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA published TO {role}")
    said = []
    source.run("DELETE FROM {} WHERE id < 9")
    for command in (
        ("refresh", "grows"),
        ("refresh", "grows", "--json"),
        ("grant", "grows", "--readers", role),
        ("check-release", source.name, "grows"),
    ):
        answer = kanon(*command, dsn=dsn)
        assert answer.returncode == 0, answer.stderr
        said.append(answer.stdout)
    assert "80" in said[0]
    assert re.search("if deleted +publish anew in place of this one", said[0])
    assert json.loads(said[1])["added"] == 0
    listed = kanon("publications", dsn=dsn).stdout
    assert "grows: 9 records wait: at least 9 deleted since 2" in listed


def test_arrivals_have_a_greatest_value(parties: Parties) -> None:
    """Nothing comes after infinity, which would end all batches: it is refused, first or later."""
    name = f"data.{next(NAMES)}"
    fetch(parties.publisher, f"CREATE TABLE {name} (age int, sick text, came uuid)")
    for column, said in (("came", "no greatest value"), ("cane", "no such column")):
        with pytest.raises(psycopg.Error, match=said):
            Functions(parties.publisher).register(name, ["age"], "sick", arrival=column)
    source = Source(parties, 60, entity=None, arrival=True)
    endless = "UPDATE {} SET came = 'infinity' WHERE id = $1::int"
    source.run(endless, 3)
    with pytest.raises(psycopg.Error, match="nothing can come after"):
        source.publish("buckets")
    source.run("UPDATE {} SET came = '2026-01-01' WHERE id = 3")
    source.publish("buckets")
    source.add(60, 1)
    source.run(endless, 70)
    with pytest.raises(psycopg.Error, match="nothing can come after"):
        source.refresh()
