"""People come and go: everybody is published anew, in buckets with the values of before."""

from __future__ import annotations

import json
import random

import psycopg
import pytest

from tests.integration.growing import NAMES, Source
from tests.integration.parties import Parties, fetch, sqlstate_of, value
from tests.profiles import long_but

pytestmark = pytest.mark.usefixtures("refused_by_default")


def people(parties: Parties, n: int = 400, n_values: int = 4) -> Source:
    """People with an age of their own, in a publication."""
    source = Source(parties, n, alone=True, n_values=n_values)
    source.publish("m-invariant")
    return source


@pytest.mark.long
def test_everybody_keeps_the_values_of_their_bucket(parties: Parties) -> None:
    """Over months; whoever left is not in it, and what is published is verified and answered."""
    source = people(parties)
    signature, gone = source.seen(), set[int]()
    assert len(signature) == 400
    shown_before = signature.keys()
    withdrawn: list[int | None] = [None]
    for _ in range(2):
        gone |= source.leave(20)
        source.add(40)
        row = source.refresh()
        seen, held = source.seen(), source.held()
        assert row["records"] == len(seen)
        assert not seen.keys() & gone
        assert row["added"] == len(seen.keys() - signature.keys())
        stayed = seen.keys() & signature.keys()
        withdrawn.append(len(shown_before) - len(shown_before & seen.keys()))
        assert all(seen[one] == signature[one] for one in stayed)
        assert all(held[one] in seen[one] for one in seen)
        signature, shown_before = {**signature, **seen}, seen.keys()
        source.check_answers([])
    assert "also from all its states" in row["guarantee"]
    assert source.kanon.attack("grows")
    shown = f"(SELECT * FROM {source.name} WHERE age IN (SELECT age FROM published.grows_qit)) AS s"
    conditions = ("age > 1200", "sex = 'm' AND sick = 'ill 3'", "sick <> 'ill 1'", "sick IS NULL")
    source.check_answers(conditions, shown)
    assert source.batches("withdrawn") == withdrawn


def test_whoever_left_or_was_left_out_is_not_published_again(parties: Parties) -> None:
    source = people(parties, 60)
    first = source.seen()
    rows = fetch(parties.publisher, f"SELECT id, age, sex, sick FROM {source.name}")
    left = source.leave(15)
    row = source.refresh()
    out = first.keys() - source.seen().keys()
    assert len(out) == row["withdrawn"] == 15 + row["left_out"]
    assert row["waits"]["left_out"]["records"] == row["waiting"] == row["left_out"]
    for one in rows:
        if one[0] in left:
            source.run("INSERT INTO {} VALUES ($1::int, $2::int, $3::text, $4::text)", *one)
    source.add(60)
    row = source.refresh()
    assert (row["added"], row["waiting"]) == (60, len(out) + row["left_out"])
    assert not source.seen().keys() & out


def test_what_changes(parties: Parties) -> None:
    """Quasi-identifiers may; whoever gets a value that their bucket does not have is left out."""
    source = people(parties, 300)
    first = source.seen()
    source.run("UPDATE {} SET age = age + 10000 WHERE id < 1010")
    row = source.refresh()
    assert (row["withdrawn"], row["waiting"]) == (0, 10)  # nobody came or left: nothing is drawn
    assert row["missing"] == "10 corrected after being published"
    assert "when somebody comes or leaves" in row["waits"]["corrected"]["hint"]
    (changed,) = [one for one in sorted(first) if one >= 1010][:1]
    source.run("UPDATE {} SET sick = 'ill 9' WHERE id = $1::int", changed)
    assert source.refresh()["withdrawn"] == 0
    source.run("DELETE FROM {} WHERE id = $1::int", changed + 1)
    row = source.refresh()
    assert 1 <= row["left_out"] == row["withdrawn"] - 1 < 60
    assert row["corrected"] == 11
    assert row["waits"].keys() == {"left_out"}
    seen = source.seen()
    assert not {changed, changed + 1} & seen.keys()
    moved = [one for one in seen if one > 10000]
    assert len(moved) > 5
    assert all(seen[one] == first[one - 10000] for one in moved)


def test_few_buckets_keep_no_signature(parties: Parties) -> None:
    """With few buckets it would come close to one: the ledger does not have it."""
    source = people(parties, 18, n_values=3)
    numbers = "SELECT array_agg(DISTINCT signature) FROM kanon.release_entity"
    assert value(parties.admin, numbers) == [0]
    assert source.refresh()["withdrawn"] == 0
    source.leave(1)
    with pytest.raises(psycopg.Error, match="nobody is left to publish"):
        source.refresh()
    source.add(400)
    row = source.refresh()
    assert (row["added"], row["left_out"]) == (400, 17)
    state = (
        "SELECT signature, count(*) FILTER (WHERE signature IS NOT NULL) FROM kanon.release_entity"
        " GROUP BY 1 HAVING signature > 0"
    )
    kept = fetch(parties.admin, state)
    assert kept
    assert all(number >= 20 for _, number in kept)


def test_new_people_who_are_too_alike_wait(parties: Parties) -> None:
    source = people(parties)
    source.run("INSERT INTO {} SELECT i, i, 'm', 'ill 1' FROM generate_series(5000, 5019) AS i")
    row = source.refresh()
    assert (row["added"], row["waiting"], row["withdrawn"]) == (0, 20, 0)
    assert "20 who came wait" in row["missing"]
    source.run("DELETE FROM {} WHERE id < 1005")
    row = source.refresh()
    assert (row["added"], row["waits"]["new"]["records"]) == (0, 20)
    assert row["waiting"] == 20 + row["left_out"]
    assert row["withdrawn"] >= 4
    source.run("INSERT INTO {} SELECT i, i, 'm', 'ill 2' FROM generate_series(5020, 5039) AS i")
    assert source.refresh()["added"] == 40


def test_drawn_anew_is_not_measured(parties: Parties) -> None:
    """Readers may have copies of other buckets: other releases are refused without figures."""
    source = people(parties)
    source.leave(20)
    source.refresh()
    draft = source.publish("anatomy", "draft", readers=[])
    assert draft["records"] == 380
    (finding,) = source.kanon.rows("check_release", source.name, "draft")
    assert finding["result"] == "not measured"
    assert "drawn anew are not set against others" in finding["check"]
    refused = lambda: source.publish("anatomy", "other")
    assert sqlstate_of(refused) == "KN005"


def test_refusals(parties: Parties) -> None:
    source = Source(parties, 60, alone=True, n_values=4)
    for given, said in (
        ({"privacy": '{"l": 2, "cap": 0.4}'}, "is for l-diversity"),
        ({"privacy": '{"default": 0.5}'}, "is for l-diversity"),
        ({"method": "anatomy"}, "cannot be combined with the method anatomy"),
    ):
        with pytest.raises(psycopg.Error, match=said):
            source.publish("m-invariant", **given)
    with pytest.raises(psycopg.Error, match="no publication can satisfy"):
        source.publish("m-invariant", privacy='{"l": 20}')
    source.publish("m-invariant")
    twice = f"INSERT INTO {source.name} SELECT * FROM {source.name} WHERE id = 1003"
    fetch(parties.publisher, twice)  # which of the two was published is not known
    with pytest.raises(psycopg.Error, match="several records are about the same entity"):
        source.refresh()
    source.kanon.drop("grows")
    other = f"data.{next(NAMES)}"
    fetch(parties.publisher, f"CREATE TABLE {other} AS SELECT age, sick FROM {source.name}")
    source.kanon.register(other, ["age"], "sick")
    source.kanon.publish(other, "grows", privacy='{"l": 2}', assignment="m_invariant")
    with pytest.raises(psycopg.Error, match="not known who came since"):
        source.refresh()


@pytest.mark.parametrize("l", long_but([3], [2, 3]))  # test_everybody_keeps… has l = 2
def test_any_history(parties: Parties, l: int) -> None:
    """People come, leave and come back: nobody is ever seen under two sets of values."""
    draw = random.Random(l)  # noqa: S311  # made-up data
    source = Source(parties, 150, alone=True, n_values=4)
    source.publish("m-invariant", privacy=json.dumps({"l": l}))
    signature = source.seen()
    out: set[int] = set()
    for _ in range(3):
        source.leave(draw.randrange(30))
        source.add(draw.choice([0, 50]))
        before = source.seen()
        row = source.refresh()
        seen = source.seen()
        assert row["records"] == len(seen)
        assert row["added"] == len(seen.keys() - signature.keys())
        out |= before.keys() - seen.keys()
        assert not seen.keys() & out
        assert all(signature.setdefault(one, of) == of for one, of in seen.items())
        assert all(source.held()[one] in of for one, of in seen.items())
