"""`<name>_draws`: records drawn once, in which count(*), avg and sum are right by themselves."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import kanon_db
from tests.integration.parties import (
    Functions,
    Parties,
    create_source,
    failed_checks,
    fetch,
    sqlstate_of,
    value,
)
from tests.integration.test_draws import HOSTILE
from tests.profiles import long_but

COLUMNS = "age smallint, city text, born date, d numeric, weight real, v char(4), ill text"
KNOWN = ["age", "city", "born", "d", "weight", "v"]
KINDS: Mapping[str, Mapping[str, Any]] = {
    "buckets": {"privacy": '{"default": 0.6}'},
    "generalized": {"k": 5},
    "freeform": {"k": 4},
    "suppressed": {"k": 3},
}


def people(n: int = 300) -> list[tuple[Any, ...]]:
    """Every type of ranges and sets, NULLs, and columns called like the aliases of statements."""
    draw = random.Random(58)  # noqa: S311  # made-up data
    return [
        (
            None if i % 29 == 0 else draw.randrange(20, 60), draw.choice(["Ulm", 'A "b"', "c,d"]),
            f"19{draw.randrange(50, 60)}-01-{draw.randrange(1, 28):02}",
            draw.randrange(9) * 1.25, draw.randrange(50, 90), draw.choice(["a", "bc"]),
            None if i % 17 == 0 else draw.choice("uvwxyz"),
        )
        for i in range(n)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def publisher(parties: Parties) -> Functions:
    own = create_source(parties.publisher, "data.staff", COLUMNS, people(), KNOWN, "ill")
    for kind, given in KINDS.items():
        own.of_kind(kind, "data.staff", kind, draws=True, accept='{"combined_releases": "test"}',
                    **given)  # fmt: skip
    return own


def records(parties: Parties, name: str) -> list[tuple[Any, ...]]:
    return sorted(fetch(parties.analyst, f"SELECT * FROM published.{name}_draws"), key=repr)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_what_everybody_draws(parties: Parties, publisher: Functions, kind: str) -> None:
    """In the source's types, verified, and the same for whoever draws with the seed 0."""
    assert failed_checks(parties.analyst, kind) == []
    described = (
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = $1::text::regclass AND attnum > 0 ORDER BY attnum"
    )
    found = dict(fetch(parties.admin, described, f"published.{kind}_draws"))
    wanted = dict(fetch(parties.admin, described, "data.staff"))
    assert found == wanted
    drawn = fetch(
        parties.analyst,
        f"SELECT d.* FROM kanon.draw($1, 0) AS r, json_populate_record("
        f"NULL::published.{kind}_draws, r.record::json) AS d", kind,
    )  # fmt: skip
    assert sorted(drawn, key=repr) == records(parties, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_plain_sql_is_right(parties: Parties, publisher: Functions, kind: str) -> None:
    """count(*) is the number of published people, and averages are near."""
    statement = "SELECT count(*), count(ill), avg(age)::float8, avg(d)::float8 FROM {}"
    (found,), (true,) = (
        fetch(connection, statement.format(relation))
        for connection, relation in (
            (parties.analyst, f"published.{kind}_draws"), (parties.publisher, "data.staff"),
        )
    )  # fmt: skip
    if kind != "suppressed":
        assert found[:2] == true[:2]
    assert found[2:] == pytest.approx(true[2:], rel=0.1)


@pytest.mark.parametrize("kind", ["generalized", "freeform"])
def test_each_record_lies_in_published_cells(
    parties: Parties, publisher: Functions, kind: str
) -> None:
    outside = value(
        parties.analyst,
        f"SELECT count(*) FROM published.{kind}_draws AS r WHERE NOT EXISTS ("
        f"SELECT FROM published.{kind} AS p WHERE p.ill IS NOT DISTINCT FROM r.ill"
        " AND (p.age @> r.age::int4 OR r.age IS NULL) AND r.city = ANY (p.city)"
        " AND p.born @> r.born AND p.d @> r.d AND p.weight @> r.weight::numeric"
        " AND r.v = ANY (p.v::bpchar[]))",
    )
    assert outside == 0


@pytest.mark.parametrize("kind", ["generalized", "freeform", "suppressed"])
@pytest.mark.parametrize(
    "question", ["city = 'Ulm'", "v = 'bc'", "age < 40", "born >= '1955-01-01'", "weight <= 70"]
)
def test_rows_are_drawn_as_estimates_take_them(
    parties: Parties, publisher: Functions, kind: str, question: str
) -> None:
    """Of 300 people, a question about one column differs by the rounding of each distinct cell."""
    estimate = value(
        parties.analyst, "SELECT estimate FROM kanon.estimate_count($1)",
        f"SELECT count(*) FROM {kind} WHERE {question}",
    )  # fmt: skip
    counted = f"SELECT count(*)::float8 FROM published.{kind}_draws WHERE {question}"
    assert value(parties.analyst, counted) == pytest.approx(estimate, abs=9)


TAMPERED = {
    "a value of another": "UPDATE {0} SET ill = 'u' WHERE ctid = (SELECT min(ctid) FROM {0}"
                          " WHERE ill <> 'u')",
    "values exchanged": "UPDATE {0} AS r SET ill = o.ill FROM (SELECT a.ctid AS at, b.ill FROM {0}"
                        " AS a, {0} AS b WHERE a.ctid < b.ctid AND a.ill <> b.ill AND a.age <>"
                        " b.age AND a.born <> b.born ORDER BY a.ctid, b.ctid LIMIT 1) AS o"
                        " WHERE r.ctid = o.at",
    "an age of nobody": "UPDATE {0} SET age = age + 1 WHERE ctid = (SELECT min(ctid) FROM {0}"
                        " WHERE age IS NOT NULL)",
    "a record twice": "INSERT INTO {0} SELECT * FROM {0} LIMIT 1",
    "a record less": "DELETE FROM {0} WHERE ctid = (SELECT min(ctid) FROM {0})",
}  # fmt: skip


@pytest.mark.parametrize("kind", long_but(["freeform"], KINDS))
@pytest.mark.parametrize("change", TAMPERED)
def test_verify_finds_what_was_not_drawn(
    parties: Parties, publisher: Functions, kind: str, change: str
) -> None:
    parties.admin.autocommit = False
    try:
        fetch(parties.admin, TAMPERED[change].format(f"published.{kind}_draws"))
        failed = failed_checks(parties.admin, kind)
    finally:
        parties.admin.rollback()
        parties.admin.autocommit = True
    assert "the drawn records are those that the publication gives to whoever draws" in failed


def test_values_of_two_people_exchanged(parties: Parties, publisher: Functions) -> None:
    """Both sides are as often as before, and only the draw tells."""
    table = "published.buckets_draws"
    parties.admin.autocommit = False
    try:
        fetch(
            parties.admin,
            "WITH two AS (SELECT a.ctid AS one, a.ill AS of_one, b.ctid AS other, b.ill AS of_other"
            f" FROM {table} AS a, {table} AS b WHERE a.ill < b.ill AND a.age < b.age"
            " ORDER BY 1, 3 LIMIT 1)"
            f" UPDATE {table} AS r SET ill = CASE r.ctid WHEN two.one THEN of_other ELSE of_one END"
            " FROM two WHERE r.ctid IN (two.one, two.other)",
        )
        failed = failed_checks(parties.admin, "buckets")
    finally:
        parties.admin.rollback()
        parties.admin.autocommit = True
    assert failed == ["the drawn records are those that the publication gives to whoever draws"]


def test_nobody_draws_again_until_they_like_it(parties: Parties, publisher: Functions) -> None:
    """Publishing again, with other words, is the same draw."""
    before = records(parties, "buckets")
    publisher.publish("data.staff", "buckets", privacy='{"default": "3/5"}', replace=True,
                      draws=True, accept='{"combined_releases": "again"}')  # fmt: skip
    assert records(parties, "buckets") == before


def test_readers_and_names_are_those_of_the_publication(
    parties: Parties, publisher: Functions
) -> None:
    own = {"privacy": '{"default": 0.6}', "accept": '{"combined_releases": "test"}'}
    publisher.publish("data.staff", "shown", draws=True, readers=[], **own)
    assert sqlstate_of(lambda: records(parties, "shown")) == "42501"
    publisher.publish("data.staff", "shown", replace=True, readers=["kanon_analyst"], draws=True,
                      **own)  # fmt: skip
    assert len(records(parties, "shown")) == 300
    fetch(parties.publisher, "CREATE TEMPORARY VIEW depends AS SELECT * FROM published.shown_draws")
    publisher.publish("data.staff", "shown", replace=True, **own)
    assert sqlstate_of(lambda: records(parties, "shown")) == "42P01"
    assert sqlstate_of(lambda: fetch(parties.publisher, "TABLE depends")) == "42501"
    publisher.publish("data.staff", "shown_draws", **own)
    taken = lambda: publisher.publish("data.staff", "shown", replace=True, draws=True, **own)
    assert sqlstate_of(taken) == "42710"
    for name in ("shown", "shown_draws"):
        publisher.drop(name)
    long = lambda: publisher.publish("data.staff", "n" * 58, draws=True, **own)
    assert sqlstate_of(long) == "22023"


def test_a_refresh_draws_of_everybody(parties: Parties) -> None:
    rows = [(i, *row) for i, row in enumerate(people(200))]
    own = create_source(parties.publisher, "data.growing", f"id int, {COLUMNS}", rows[:150])
    own.register("data.growing", KNOWN, "ill", entity="id")
    own.publish("data.growing", "growing", privacy='{"default": 0.6}', draws=True)
    with parties.publisher.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO data.growing VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", rows[150:]
        )
    published = fetch(parties.publisher, "SELECT records FROM kanon.refresh('growing')")
    assert published == [(len(records(parties, "growing")),)]
    assert published[0][0] > 150
    assert failed_checks(parties.analyst, "growing") == []


def test_comments_say_which_relation_counts(parties: Parties, publisher: Functions) -> None:
    comment = "SELECT obj_description($1::text::regclass, 'pg_class')"
    assert "count(*), avg and sum" in value(parties.analyst, comment, "published.buckets_draws")
    assert "never with count(*)" in value(parties.analyst, comment, "published.buckets")


def test_hostile_names(parties: Parties) -> None:
    quoted = HOSTILE.replace('"', '""')
    rows = [(i % 9, f"{HOSTILE}{i % 5}") for i in range(200)]
    columns = f'"{quoted}" int, "{quoted}ill" text'
    own = create_source(
        parties.publisher, "data.hostile_kept", columns, rows, [HOSTILE], f"{HOSTILE}ill"
    )
    own.publish("data.hostile_kept", HOSTILE, privacy='{"default": 0.6}', draws=True)
    assert failed_checks(parties.analyst, HOSTILE) == []
    assert value(parties.analyst, f'SELECT count(*) FROM published."{quoted}_draws"') == 200


def test_it_is_exported_and_nobody_writes_it(
    parties: Parties, publisher: Functions, tmp_path: Path
) -> None:
    path = tmp_path / "draws.csv"
    with kanon_db.connect(parties.dsn) as kanon:
        report = kanon.export("buckets", path, relation="draws")
    assert report.rows == 300
    for who in (parties.analyst, parties.publisher):
        insert = lambda who=who: fetch(who, "INSERT INTO published.buckets_draws DEFAULT VALUES")
        assert sqlstate_of(insert) == "42501"


WIDE = (
    "age int, hours numeric, born date, seen timestamptz, big bigint, x double precision, job text,"
    " ok boolean, row text, ill text"
)
COARSE = {
    "age": {"round": 7, "top": 50, "bottom": 25},
    "hours": {"round": 2.5, "top": 40, "bottom": 10},
    "born": {"round": "quarter", "top": "1957-02-01"},
    "seen": {"round": "hour", "bottom": "2020-01-03 12:00"},
    "job": {
        "hierarchy": {
            "nurse": ["care", "any"], "baker": ["craft", "any"], "smith": ["craft", "any"],
            "medic": ["care", "any"],
        }
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", long_but(["generalized"], ["generalized", "freeform"]))
@pytest.mark.parametrize("attributes", [{"job": COARSE["job"]}, COARSE], ids=["labels", "bins"])
def test_every_cell_is_drawn_from(
    parties: Parties, kind: str, attributes: Mapping[str, Any]
) -> None:
    """Labels, bins, half-open ends, large and broken numbers: the server finds each in its cell."""
    draw = random.Random(7)  # noqa: S311  # made-up data
    rows = [
        (
            None if i % 19 == 0 else draw.randrange(20, 60), draw.randrange(180) / 4,
            f"195{draw.randrange(5, 9)}-0{draw.randrange(1, 9)}-11",
            f"2020-01-0{draw.randrange(1, 6)} {draw.randrange(10, 24)}:15:30.5+00",
            2**62 + draw.randrange(99), draw.random(), draw.choice([*COARSE["job"]["hierarchy"]]),
            draw.choice([True, False]), draw.choice('{",\\'), draw.choice("uvw"),
        )
        for i in range(200)
    ]  # fmt: skip
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.wide_kept")
    known = [part.split()[0] for part in WIDE.split(", ")][:-1]
    own = create_source(
        parties.publisher, "data.wide_kept", WIDE, rows, known, "ill",
        attributes=json.dumps(attributes),
    )  # fmt: skip
    own.of_kind(kind, "data.wide_kept", "wide_kept", k=4, draws=True, replace=True)
    assert failed_checks(parties.analyst, "wide_kept") == []
    for asked in ("count(*) FILTER (WHERE age < 25)", "count(age)", "count(*)"):
        drawn = value(parties.analyst, f"SELECT {asked} FROM published.wide_kept_draws")
        (estimate,) = fetch(
            parties.analyst, "SELECT estimate FROM kanon.estimate($1)",
            f"SELECT {asked} FROM wide_kept",
        )[0]  # fmt: skip
        assert drawn == pytest.approx(estimate, abs=15), asked
    own.drop("wide_kept")


def test_a_model_has_no_draws_and_a_trial_leaves_none(
    parties: Parties, publisher: Functions
) -> None:
    refused = lambda: publisher.call("publish_model", "data.staff", "m", "ill", draws=True)
    assert sqlstate_of(refused) == "22023"
    publisher.publish("data.staff", "tried", privacy='{"default": 0.6}', draws=True, dry_run=True,
                      accept='{"combined_releases": "test"}')  # fmt: skip
    assert value(parties.admin, "SELECT to_regclass('published.tried_draws') IS NULL")
