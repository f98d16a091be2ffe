"""Who is new by a keyed hash of the entity, where no column says when a record came."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from kanon_db.publications.releases.entities import StagedEntities, is_staged
from kanon_db.transfer.columns import ColumnType
from tests.integration.growing import Source
from tests.integration.parties import (
    KINDS,
    Functions,
    Parties,
    create_table,
    fetch,
    holds,
    sqlstate_of,
    value,
)
from tests.profiles import long_but

pytestmark = pytest.mark.usefixtures("refused_by_default")


@pytest.mark.long
def test_what_is_not_new(parties: Parties) -> None:
    """Further records, changed ones, and somebody who was gone for a while."""
    source = Source(parties, 120)
    source.publish("generalized")
    source.add(5, ids=[1, 2, 3, 4, 4])
    row = source.refresh()
    assert (row["added"], row["waiting"]) == (0, 5)
    assert row["missing"] == "5 of people who are published"
    source.run("UPDATE {} SET age = age + 1 WHERE id BETWEEN 10 AND 30")
    source.run("DELETE FROM {} WHERE id BETWEEN 40 AND 90")
    row = source.refresh()
    assert (row["added"], row["waiting"]) == (0, 77)
    assert {kind: one["records"] for kind, one in row["waits"].items()} == {
        "again": 5, "corrected": 21, "deleted": 51,
    }  # fmt: skip
    assert all("publish anew" in one["hint"] for one in row["waits"].values())
    source.run("UPDATE {} SET age = age - 1 WHERE id BETWEEN 10 AND 30")
    source.add(30)
    row = source.refresh()
    assert (row["added"], row["records"], row["waiting"]) == (30, 150, 56)


@pytest.mark.long
def test_who_comes_back_later_is_not_new(parties: Parties) -> None:
    """With an arrival, too: the source has nothing left to tell that they were published."""
    source = Source(parties, arrival=True)
    source.add(100)
    source.publish("anatomy")
    source.run("DELETE FROM {} WHERE id < 50")
    source.add(60, day=1)
    row = source.refresh()
    assert (row["added"], row["waiting"], row["records"]) == (60, 50, 160)
    source.run("INSERT INTO {} SELECT i, 200, 'f', 'ill 1' FROM generate_series(0, 49) AS i")
    row = source.refresh()
    assert (row["added"], row["waiting"]) == (0, 50)
    assert row["missing"] == "50 corrected after being published"


def kept(parties: Parties) -> dict[str, tuple[int | None, Any]]:
    """What the catalog says of what waits: of each kind, how many, and since when."""
    found = value(parties.publisher, "SELECT waits FROM kanon.publications WHERE name = 'grows'")
    return {kind: (one["records"], one.get("since")) for kind, one in (found or {}).items()}


def test_since_when(parties: Parties) -> None:
    """A kind waits since it was first seen, until none is left; others do not change that."""
    source = Source(parties, 100)
    source.publish("anatomy")
    assert kept(parties) == {}
    source.run("UPDATE {} SET sick = 'ill 9' WHERE id < 7")
    assert source.refresh()["missing"] == "7 corrected after being published"
    first = kept(parties)
    assert first.keys() == {"corrected"}
    source.run("UPDATE {} SET sick = 'ill 9' WHERE id = 50")
    source.run("DELETE FROM {} WHERE id = 80")
    source.add(1)
    row = source.refresh()
    assert row["missing"].startswith("1 who came wait: ")
    second = kept(parties)
    assert second["corrected"] == (8, first["corrected"][1])
    assert {kind: number for kind, (number, _) in second.items()} == {
        "new": 1, "corrected": 8, "deleted": 1,
    }  # fmt: skip
    assert second["new"][1] > first["corrected"][1]
    assert {kind: (one["records"], one["since"]) for kind, one in row["waits"].items()} == second
    waiting = "SELECT waiting FROM kanon.publications WHERE name = 'grows'"
    assert value(parties.publisher, waiting) == row["waiting"] == 10
    with parties.publisher.transaction(force_rollback=True):  # leaves no trace
        source.add(60)
        source.run("DELETE FROM {} WHERE id < 20")
        assert source.refresh()["added"] == 61
        assert kept(parties).keys() == {"corrected", "deleted"}
    assert kept(parties) == second
    source.add(60)  # those who waited are published, and what is published stays as it is
    assert source.refresh()["added"] == 61
    third = kept(parties)
    assert third == {kind: second[kind] for kind in ("corrected", "deleted")}
    source.add(1)
    source.refresh()
    fourth = kept(parties)
    assert fourth["new"][1] > second["new"][1]
    assert fourth["deleted"] == third["deleted"]
    accept = json.dumps({"combined_releases": "it is a test"})
    source.publish("anatomy", replace=True, accept=accept)  # what waited is published anew
    assert kept(parties) == {}
    assert source.refresh()["waits"] == {}
    assert value(parties.publisher, waiting) == 0
    source.run("DELETE FROM {} WHERE id = 3")
    source.refresh()
    source.kanon.drop("grows")
    assert value(parties.admin, "SELECT count(waits) FROM kanon.release") == 0


def test_what_waits_is_shown_to_the_publisher_alone(
    parties: Parties,
    connect_as: Callable[[str, str], psycopg.Connection[Any]],
    new_role: Callable[..., str],
) -> None:
    """And to administrators; whoever reads the publication finds nothing."""
    source = Source(parties, 60)
    source.publish("anatomy")
    source.run("DELETE FROM {} WHERE id < 9")
    source.refresh()
    asked = "SELECT waiting, waits FROM kanon.publications WHERE name = 'grows'"
    for connection in (parties.publisher, parties.admin):
        ((waiting, waits),) = fetch(connection, asked)
        assert (waiting, waits["deleted"]["records"]) == (9, 9)
    assert fetch(parties.analyst, asked) == [(None, None)]
    with connect_as(parties.dsn, new_role("kanon_publisher", "pg_read_all_data")) as other:
        assert fetch(other, asked) == [(None, None)]
    told = "INSERT INTO kanon.errand (task, given) VALUES ('keep waits', $1::text::jsonb)"
    noted = {"deleted": {"records": 5}, "a\x1b": {"records": 5}, "late": {"records": 0}}
    given = json.dumps({"name": "grows", "waits": noted})
    with connect_as(parties.dsn, new_role("kanon_publisher")) as other:
        assert sqlstate_of(lambda: fetch(other, told, given)) == "42501"
    fetch(parties.publisher, told, given)  # no words of its own
    assert kept(parties).keys() == {"deleted"}


def test_the_stays_of_a_hospital(parties: Parties) -> None:
    """Patients have several stays. However they come, change and go, each kind is counted."""
    draw = random.Random(1)  # noqa: S311  # made-up data
    source = Source(parties)
    source.add(0, ids=[*range(80), *range(0, 80, 3), *range(0, 80, 7)])
    source.publish("suppressed")

    def stays() -> dict[int, Counter[Any]]:
        found: dict[int, Counter[Any]] = defaultdict(Counter)
        for who, *stay in fetch(parties.publisher, f"SELECT id, age, sex, sick FROM {source.name}"):
            found[who][tuple(stay)] += 1
        return found

    published, following = stays(), 80
    for new in (0, 2, 30, 0):
        source.add(0, ids=[*range(following, following + new)])
        source.add(0, ids=draw.choices(range(80), k=6))
        some = f"(SELECT ctid FROM {source.name} ORDER BY md5(ctid::text || $1::text) LIMIT 9)"
        source.run(f"DELETE FROM {{}} WHERE ctid IN {some}", f"{new} deleted")
        source.run(f"UPDATE {{}} SET age = age + 1 WHERE ctid IN {some}", f"{new} changed")
        following += new
        row, now = source.refresh(), stays()
        expected = Counter({"new": sum(now[who].total() for who in now.keys() - published)})
        for who, stays_then in published.items():
            then, same = stays_then.total(), (stays_then & now[who]).total()
            expected["again"] += max(now[who].total() - then, 0)
            expected["deleted"] += max(then - now[who].total(), 0)
            expected["corrected"] += min(then, now[who].total()) - same
        if row["added"]:
            assert row["added"] == expected.pop("new")
            published |= {who: now[who] for who in now.keys() - published}
        assert {kind: one["records"] for kind, one in row["waits"].items()} == dict(+expected)
        assert row["waiting"] == expected.total()
        assert row["records"] == sum(one.total() for one in published.values())


def test_what_was_published_is_not_known_from_a_dump(parties: Parties) -> None:
    """Its key is in none: after a restore, it is said that corrections are not known."""
    source = Source(parties, 100)
    source.publish("anatomy")
    source.run("UPDATE {} SET sick = 'ill 9' WHERE id < 7")
    assert source.refresh()["waits"]["corrected"]["records"] == 7
    # What pg_restore does with a materialized view.
    fetch(parties.admin, "REFRESH MATERIALIZED VIEW kanon.record_key")
    source.run("DELETE FROM {} WHERE id = 3")
    source.add(40)
    for added in (40, 0):
        row = source.refresh()
        assert (row["added"], row["waiting"]) == (added, 1)
        assert row["missing"] == "1 deleted after being published"
        assert row["waits"]["corrected"]["records"] is None
        assert "published anew" in row["waits"]["corrected"]["hint"]
    accept = json.dumps({"combined_releases": "it is a test"})
    source.publish("anatomy", replace=True, accept=accept)
    source.run("UPDATE {} SET sick = 'ill 8' WHERE id < 7")
    assert source.refresh()["waits"]["corrected"]["records"] == 6


def test_without_an_entity_nobody_is_new(parties: Parties) -> None:
    """A NULL is refused, first and later, and whoever is left out of rows was seen."""
    source = Source(parties, 100)
    source.run("UPDATE {} SET id = NULL WHERE id = 7")
    with pytest.raises(psycopg.Error, match="no entity"):
        source.publish("anatomy")
    source.run("UPDATE {} SET id = 7 WHERE id IS NULL")
    source.publish("generalized", max_suppressed="0.05")
    source.run("UPDATE {} SET id = NULL WHERE id = 7")
    source.add(40)
    with pytest.raises(psycopg.Error, match="no entity"):
        source.refresh()
    source.run("UPDATE {} SET id = 7 WHERE id IS NULL")
    assert source.refresh()["added"] == 40


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "written", "again"),
    [
        ("numeric", "{}.0", "{}.000"),
        ("char(9)", "p{}", "p{}   "),
        ("uuid", "00000000-0000-0000-0000-0000000{:05}", "{{000000000000000000000000000{:05}}}"),
    ],
)
def test_equal_entities_have_one_hash(
    parties: Parties, kind: str, written: str, again: str
) -> None:
    source = Source(parties, entity=kind)
    source.add(0, ids=[written.format(i) for i in range(60)])
    source.publish("anatomy")
    source.run("TRUNCATE {}")
    source.add(0, ids=[again.format(i) for i in range(100)])
    assert source.refresh()["added"] == 40


def test_new_entities_are_joined(parties: Parties) -> None:
    """However little `work_mem` there is, nobody looks through all of them for each row."""
    publisher = parties.publisher
    staged = cast("StagedEntities", SimpleNamespace(table="pg_temp.staged"))
    condition = is_staged(ColumnType("i", "integer", "N", None, True), "i", staged)
    found = f"SELECT i FROM unnest(ARRAY[0, 5000, 5001, NULL]) AS i WHERE ({condition}) ORDER BY i"
    with publisher.transaction():
        fetch(publisher, "SET LOCAL work_mem = '64kB'")
        fetch(
            publisher,
            "CREATE TEMPORARY TABLE staged ON COMMIT DROP AS SELECT sha256(convert_to(i::text,"
            " 'UTF8')) AS digest FROM generate_series(1, 5000) AS i",
        )
        assert fetch(publisher, found) == [(5000,), (None,)]
        assert not any("SubPlan" in line for (line,) in fetch(publisher, f"EXPLAIN {found}"))


@pytest.mark.parametrize("kind", ["float8", "text COLLATE data.deaf"])
def test_entities_without_one_text_are_refused(parties: Parties, kind: str) -> None:
    """-0 is 0, and what is equal for a collation: as publications of before, by name."""
    fetch(
        parties.admin,
        "CREATE COLLATION IF NOT EXISTS data.deaf (provider = icu, locale = 'und-u-ks-level2',"
        " deterministic = false)",
    )
    source = Source(parties, 28, entity=kind)
    source.publish("anatomy")
    assert source.kept() == 0
    with pytest.raises(psycopg.Error, match="not known who came since") as raised:
        source.refresh()
    assert "different ways" in str(raised.value.diag.message_detail)


def test_the_hashes_are_closed(
    parties: Parties,
    connect_as: Callable[[str, str], psycopg.Connection[Any]],
    new_role: Callable[..., str],
) -> None:
    """Nobody reads them; nobody but the publisher asks who is new, and nobody asks for more."""
    source = Source(parties, 60)
    source.publish("anatomy")
    for connection in (parties.publisher, parties.analyst, parties.stranger):
        for table in ("release_entity", "release_key", "release_record", "record_key"):
            for statement in (f"TABLE kanon.{table}", f"DELETE FROM kanon.{table}"):
                refused = lambda c=connection, s=statement: fetch(c, s)
                assert sqlstate_of(refused) == "42501"
    errand = "INSERT INTO kanon.errand (task, given) VALUES ('unknown entities', $1::text::jsonb)"
    staged = "INSERT INTO kanon.errand (task, given) VALUES ('create table', $1::text::jsonb)"
    prefix = "kanon_" + "a" * 32
    column = {"name": "digest", "type": 17, "modifier": -1, "collating": 0}
    given = [{"prefix": prefix, "suffix": end, "columns": [column]} for end in ("", "_new")]
    with connect_as(parties.dsn, new_role("kanon_publisher")) as other:
        other.autocommit = False
        for one in given:
            fetch(other, staged, json.dumps(one))
        ask = lambda: fetch(other, errand, json.dumps({"name": "grows", "prefix": prefix}))
        assert sqlstate_of(ask) == "42501"
        other.rollback()
    # Nor does the publisher, who might try values, without the right to read the source.
    mine = "kanon_" + "b" * 32
    column_of = lambda name: {**column, "name": name}
    with parties.publisher.transaction(force_rollback=True):
        for end, names in (("", ("digest", "record")), ("_new", ("digest", "signature"))):
            columns = [column_of(name) for name in names]
            if end:
                columns[1] |= {"type": 23}
            fetch(
                parties.publisher, staged,
                json.dumps({"prefix": mine, "suffix": end, "columns": columns}),
            )  # fmt: skip
        told = json.dumps({"name": "grows", "prefix": mine})
        fetch(parties.publisher, errand, told)
        fetch(
            parties.publisher, f"REVOKE SELECT ON {source.name} FROM {parties.publisher.info.user}"
        )
        assert sqlstate_of(lambda: fetch(parties.publisher, errand, told)) == "42501"
    # Another's staged table is not emptied either.
    ask = lambda: fetch(parties.publisher, errand, json.dumps({"name": "grows", "prefix": prefix}))
    assert sqlstate_of(ask) == "42501"


@pytest.mark.pitfall(1)
def test_the_hashes_say_nothing_of_batches(parties: Parties) -> None:
    """They are HMACs of the entities, in their own order, all of one transaction."""
    source = Source(parties, 90)
    source.publish("anatomy")
    state = (
        "SELECT array_agg(hash ORDER BY ctid) = array_agg(hash ORDER BY hash),"
        " count(DISTINCT xmin::text) FROM kanon.release_entity"
    )
    states = (state, state.replace("release_entity", "release_record"))
    assert [fetch(parties.admin, one) for one in states] == [[(True, 1)]] * 2
    source.add(60)
    source.refresh()
    assert [fetch(parties.admin, one) for one in states] == [[(True, 1)]] * 2
    key = value(parties.admin, "SELECT key FROM kanon.release_key")
    assert len(key) == 32
    expected = {
        hmac.digest(key, hashlib.sha256(str(one).encode()).digest(), "sha256") for one in range(150)
    }
    assert {one for (one,) in fetch(parties.admin, "SELECT hash FROM kanon.release_entity")} == (
        expected
    )


def test_what_is_replaced_is_forgotten(parties: Parties) -> None:
    """A publication that takes the place of another has a key of its own.

    Without one, as of publications of before, what the source says may not be what was published.
    """
    source = Source(parties, 60)
    source.publish("anatomy")
    key = value(parties.admin, "SELECT key FROM kanon.release_key")
    accept = json.dumps({"combined_releases": "it is a test"})
    source.add(10)
    source.publish("anatomy", replace=True, accept=accept)
    assert source.kept() == 70
    (found,) = fetch(parties.admin, "SELECT key FROM kanon.release_key")
    assert found != (key,)
    for table in ("release_key", "release_entity", "release_record"):
        fetch(parties.admin, f"DELETE FROM kanon.{table}")
    with pytest.raises(psycopg.Error, match="not known who came since"):
        source.refresh()


@pytest.mark.long
def test_any_history(parties: Parties) -> None:
    """People come, go, come back and change: a batch has those who were never published."""
    draw = random.Random(0)  # noqa: S311  # made-up data
    source = Source(parties)
    source.add(0, ids=list(range(60)))
    source.publish("anatomy")
    here, published, following = set(range(60)), set(range(60)), 60
    for _ in range(4):
        gone = set(draw.sample(sorted(here), draw.randrange(20)))
        source.run("DELETE FROM {} WHERE id = ANY ($1::int[])", sorted(gone))
        here -= gone
        away = sorted(published - here)
        back = set(draw.sample(away, draw.randrange(len(away) + 1)))
        fresh = set(range(following, following + draw.choice([0, 1, 30])))
        following += len(fresh)
        source.add(0, ids=sorted(back | fresh))
        here |= back | fresh
        source.run("UPDATE {} SET age = age % 40 + 19 WHERE id % 7 = $1::int", draw.randrange(7))
        row = source.refresh()
        new = here - published
        assert row["added"] in (0, len(new))
        waiting = {kind: one["records"] for kind, one in row["waits"].items()}
        assert waiting.get("new", 0) == (0 if row["added"] else len(new))
        assert waiting.get("deleted", 0) == len(published - here)
        if row["added"]:
            published |= new
        assert (row["records"], source.kept()) == (len(published), len(published))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "first"),
    long_but([("generalized", True)], [("generalized", True), ("suppressed", False)]),
)
def test_batches_of_which_one_counts_entities(parties: Parties, kind: str, first: bool) -> None:
    """Somebody has several records, in the first batch or in the second one only."""
    source = Source(parties)
    twice = [*range(100), *range(0, 100, 9)]
    source.add(0, ids=twice if first else list(range(100)))
    published = source.publish(kind)
    once = list(range(100, 250))
    source.add(0, ids=once if first else [*once, *once[::9]])
    row = source.refresh()
    assert (row["added"], row["missing"]) == (150 if first else 167, None)
    n_rows = 262 if first else 267
    assert (row["records"], source.kept()) == (n_rows, 250)
    assert "4 times, for as many different people" in row["guarantee"]
    assert published["guarantee"] == row["guarantee"]
    counted = "the rows are those whose entities were counted when they were published"
    checks = {line[0]: line[-1] for line in Functions(parties.analyst).verify("grows")}
    assert checks[counted]
    assert all(checks.values())
    assert value(parties.publisher, "SELECT count(*) FROM published.grows") == n_rows
    # A third batch, with nobody twice, finds what the second one left.
    source.add(0, ids=list(range(250, 330)))
    assert source.refresh()["added"] == 80


M_INVARIANT = {"privacy": '{"l": 2}', "assignment": "m_invariant"}


@pytest.mark.long
@pytest.mark.parametrize("kind", [*KINDS, "m_invariant"])
def test_a_running_number_says_whom_a_record_is_about_and_when_it_came(
    parties: Parties, kind: str
) -> None:
    """One column with both roles is read once, also where a batch or everybody is drawn anew."""
    kanon, publisher = Functions(parties.publisher), parties.publisher
    table = f"data.running_{kind}"  # a table of the same name would be the same source
    columns = "number int, age int, ill text"
    rows = [(i, 20 + i % 7, f"d{i % 4}") for i in range(1, 121)]
    create_table(publisher, table, columns, rows[:60])
    kanon.register(table, ["age"], "ill", entity="number", arrival="number")
    function, given = ("buckets", M_INVARIANT) if kind == "m_invariant" else (kind, KINDS[kind])
    draft = kanon.call(f"publish_{function}", table, "running", **given, dry_run=True)
    assert draft["metrics"]["figures"]["attacks"]
    kanon.call(f"publish_{function}", table, "running", **given)
    assert holds(publisher, "running")
    assert kanon.attack("running")
    with publisher.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s, %s)", rows[60:])
    refreshed = kanon.call("refresh", "running")
    assert (refreshed["added"], refreshed["waiting"]) == (60, 0)
    assert holds(publisher, "running")
    kanon.drop("running")
    if kind == "buckets":
        assert kanon.rows("unicity", table)
        kanon.register(table, ["age"], "ill", entity="number", arrival="number", keep="random")
        draft = kanon.of_kind(kind, table, "running", dry_run=True)
        assert draft["records"] == 120
