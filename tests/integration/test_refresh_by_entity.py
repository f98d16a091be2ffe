"""Who is new by a keyed hash of the entity, where no column says when a record came."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.integration.growing import Source
from tests.integration.parties import Functions, Parties, fetch, sqlstate_of, value

pytestmark = pytest.mark.usefixtures("refused_by_default")


def test_what_is_not_new(parties: Parties) -> None:
    """Further records, changed ones, and somebody who was gone for a while."""
    source = Source(parties, 120)
    source.publish("generalized")
    source.add(5, ids=[1, 2, 3, 4, 4])
    row = source.refresh()
    assert (row["added"], row["waiting"]) == (0, 5)
    assert row["missing"] == "at least 5 are of people who are published"
    source.run("UPDATE {} SET age = 59, sick = 'ill 4' WHERE id BETWEEN 10 AND 30")
    source.run("DELETE FROM {} WHERE id BETWEEN 40 AND 90")
    assert source.refresh()["added"] == 0
    source.add(0, ids=list(range(40, 91)))
    source.add(30)
    row = source.refresh()
    assert (row["added"], row["records"], row["waiting"]) == (30, 150, 5)


def test_who_comes_back_later_is_not_new(parties: Parties) -> None:
    """With an arrival, too: the source has nothing left to tell that they were published."""
    source = Source(parties, arrival=True)
    source.add(100)
    source.publish("anatomy")
    source.run("DELETE FROM {} WHERE id < 50")
    source.add(0, ids=list(range(50)), day=1)
    source.add(60, day=1)
    row = source.refresh()
    assert (row["added"], row["waiting"], row["records"]) == (60, 50, 160)
    assert "50 are of people who are published" in row["missing"]


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
        for table in ("release_entity", "release_key"):
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
    assert fetch(parties.admin, state) == [(True, 1)]
    source.add(60)
    source.refresh()
    assert fetch(parties.admin, state) == [(True, 1)]
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
    for table in ("release_key", "release_entity"):
        fetch(parties.admin, f"DELETE FROM kanon.{table}")
    with pytest.raises(psycopg.Error, match="not known who came since"):
        source.refresh()


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
        assert row["waiting"] == (0 if row["added"] else len(new))
        if row["added"]:
            published |= new
        assert (row["records"], source.kept()) == (len(published), len(published))


@pytest.mark.parametrize(("kind", "first"), [("generalized", True), ("suppressed", False)])
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
