"""Texts of which a prefix is read: what is published, what it tells, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from kanon_db import connect
from tests.integration.parties import (
    Functions,
    Parties,
    create_source,
    create_table,
    fetch,
    hearing,
    holds,
    value,
)

PEOPLE = [
    (
        i, f"{12 + i % 2}{i % 3}{i % 10}{i % 7}" if i % 20 else "02134-1234",
        f"{'JKC'[i % 3]}{i % 4}{i % 5}.{i % 9}", f"{i % 4}{i % 3}999", 20 + i % 50, f"ill {i % 4}",
    )
    if i % 11 else (i, None, "J9", "12", 40, "ill 1")
    for i in range(400)
]  # fmt: skip
COLUMNS = "number int, zip text, icd varchar(10), padded char(9), age int, sick text"
SHORT = {"zip": 3, "icd": 2, "padded": 2}
KINDS = {
    "buckets": {"privacy": '{"l": 2}'},
    "generalized": {"k": 3, "method": "mondrian"},
    "freeform": {"k": 3},
    "suppressed": {"k": 2, "method": "greedy"},
}


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_table(parties.publisher, "data.homes", COLUMNS, PEOPLE)
    short = ", ".join(f"left({name}, {n}) AS {name}" for name, n in SHORT.items())
    fetch(
        parties.publisher,
        f"CREATE VIEW data.shorter AS SELECT number, {short}, age, sick FROM data.homes",
    )
    create_table(
        parties.publisher, "data.people_of", "area text, people int",
        [("1200", 9_000), ("1201", 12_000), ("121", 20_000), ("122", 19_999), ("130", 50_000)],
    )  # fmt: skip


def register(parties: Parties, **attributes: dict[str, Any]) -> tuple[Functions, list[str]]:
    kanon = Functions(parties.publisher)
    for name in kanon.publications():
        kanon.drop(name)
    with hearing(parties.publisher) as heard:
        kanon.register("data.homes", [*SHORT, "age"], "sick", attributes=json.dumps(attributes))
    return kanon, heard


QUESTIONS = [
    "zip = '120'", "zip LIKE '12%'", "zip IN ('120', '131')", "zip IS NULL", "icd = 'J1'",
    "icd LIKE 'K%' AND zip < '13'", "padded = '12'", "left(zip, 2) = '13'",
    "age < 30 AND zip >= '130'",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_publishes_prefixes(parties: Parties, kind: str) -> None:
    """And no more of the texts; answers are those of a view that shortens them."""
    kanon, _ = register(parties, **{name: {"prefix": n} for name, n in SHORT.items()})
    kanon.of_kind(kind, "data.homes", "homes", **KINDS[kind])
    assert holds(parties.analyst, "homes")
    view = "homes_qit" if kind == "buckets" else "homes"
    for name, n in SHORT.items():
        row = fetch(parties.analyst, f"SELECT string_agg({name}::text, ' ') FROM published.{view}")
        words = str(row[0][0]).replace("{", " ").replace("}", " ").replace(",", " ").split()
        assert max(map(len, words)) <= max(n, len("NULL")), name
    analyst = Functions(parties.analyst)
    for where in QUESTIONS:
        truth = value(parties.publisher, f"SELECT count(*) FROM data.shorter WHERE {where}")
        estimate, _, low, high = analyst.estimate(f"SELECT COUNT(*) FROM homes WHERE {where}")
        assert low <= truth <= high, where
        if kind == "buckets":
            assert estimate == truth, where

    with connect(parties.publisher.info.dsn) as opened:
        assert "its first 3 characters" in opened.report("homes")
    for where in ("zip = '12001'", "zip IN ('120', '1201')", "zip LIKE '1200%'", "zip < '1299'"):
        with pytest.raises(psycopg.Error, match="longer than what is published") as caught:
            analyst.estimate(f"SELECT COUNT(*) FROM homes WHERE {where}")
        assert "the first 3 characters" in str(caught.value.diag.message_detail)
    assert analyst.estimate("SELECT COUNT(*) FROM homes WHERE zip LIKE '%120'")


def test_lengths_and_small_areas_are_counted(parties: Parties) -> None:
    """Areas are those of the prefix, with all of their people; no value is said."""
    areas = {"areas": "data.people_of", "least_people": 20_000}
    kanon, heard = register(
        parties, zip={"prefix": 3, **areas}, icd={"prefix": 1}, padded={"prefix": 4}
    )
    (of_zip,) = [text for text in heard if text.startswith('the texts of column "zip"')]
    lengths = value(
        parties.publisher,
        "SELECT string_agg(n, ', ' ORDER BY c DESC) FROM (SELECT length(zip) || ' in ' || count(*)"
        " || ' records' AS n, count(*) AS c FROM data.homes WHERE zip IS NOT NULL"
        " GROUP BY length(zip)) AS s",
    )
    assert of_zip == (
        f'the texts of column "zip" have different lengths: {lengths}; of each, the first 3'
        " characters are read"
    )
    small, n = fetch(
        parties.publisher,
        "SELECT count(DISTINCT left(zip, 3)), count(*) FROM data.homes"
        " WHERE left(zip, 3) NOT IN ('120', '121', '130')",
    )[0]
    assert (
        f'column "zip": {small} areas have fewer than 20,000 people, or none that are known; they'
        f" are read as 000, in {n} records"
    ) in heard
    assert not any(text[1] in line for text in PEOPLE if text[1] for line in heard)
    for kind, options in KINDS.items():
        kanon.of_kind(kind, "data.homes", "homes", **options)
        assert holds(parties.analyst, "homes")
        _, _, low, high = kanon.estimate("SELECT COUNT(*) FROM homes WHERE zip = '000'")
        assert low <= n <= high
        if kind == "buckets":
            shown = fetch(parties.analyst, "SELECT DISTINCT zip FROM published.homes_qit")
            assert {zip_ for (zip_,) in shown} == {"000", "120", "121", "130", None}
        kanon.drop("homes")


def test_areas_are_those_of_the_registration(parties: Parties) -> None:
    """What changes in the table of areas changes no later batch, and no description in use."""
    described = '{"zip": {"prefix": 3, "areas": "data.growing", "least_people": 100}}'
    fetch(parties.publisher, "CREATE TABLE data.growing AS SELECT '120' AS area, 100.5 AS people")
    kanon = create_source(
        parties.publisher, "data.coming", "id int, zip text, sick text, came int",
        [(i, ("12001", "13001")[i % 2], f"ill {i % 3}", 1) for i in range(30)],
        ["zip"], "sick", entity="id", keep="latest", arrival="came", attributes=described,
    )  # fmt: skip
    kanon.generalize("data.coming", "coming", k=3)
    fetch(parties.publisher, "INSERT INTO data.growing VALUES ('130', 500)")
    fetch(
        parties.publisher,
        "INSERT INTO data.coming SELECT 100 + i, '13001', 'ill ' || i % 3, 2"
        " FROM generate_series(1, 30) AS i",
    )
    assert kanon.call("refresh", "coming")["added"] == 30
    shown = fetch(parties.analyst, "SELECT DISTINCT unnest(zip) FROM published.coming ORDER BY 1")
    assert shown == [("000",), ("120",)]
    with pytest.raises(psycopg.Error, match="live publications"):
        kanon.register(
            "data.coming", ["zip"], "sick", entity="id", keep="latest", arrival="came",
            attributes=described,
        )  # fmt: skip
    kanon.drop("coming")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no number of characters": ({"prefix": 0}, "prefix must be a whole number of at least 1"),
    "a text": ({"prefix": "3"}, "prefix must be"),
    "ranges": ({"prefix": 3, "round": 5}, "has no ranges"),
    "numeric": ({"prefix": 3, "kind": "numeric"}, "has no ranges"),
    "no least": ({"prefix": 3, "areas": "data.people_of"}, "belong together"),
    "no prefix": ({"areas": "data.people_of", "least_people": 5}, "belong together"),
    "no relation": (
        {"prefix": 3, "areas": "data.nowhere", "least_people": 5}, "does not exist"
    ),
    "no areas": (
        {"prefix": 3, "areas": "data.homes", "least_people": 5}, "no relation of areas"
    ),
    "twice": ({"prefix": 3, "areas": "data.twofold", "least_people": 5}, "must be there once"),
    "nothing": ({"prefix": 3, "areas": "data.nobody", "least_people": 5}, "must be there once"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_prefix_is_refused(parties: Parties, case: str) -> None:
    fetch(
        parties.publisher,
        "CREATE OR REPLACE VIEW data.twofold AS TABLE data.people_of UNION ALL"
        " TABLE data.people_of",
    )
    fetch(
        parties.publisher,
        "CREATE OR REPLACE VIEW data.nobody AS SELECT 'secret' AS area, 'NaN'::float8 AS people",
    )
    attribute, message = REFUSED[case]
    with pytest.raises(psycopg.Error, match=message) as caught:
        register(parties, zip=attribute)
    assert "secret" not in str(caught.value)
    with pytest.raises(psycopg.Error, match="only texts can have a prefix"):
        register(parties, age={"prefix": 1})
