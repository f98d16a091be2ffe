"""What an answer says beside its numbers, and what is refused because its number would mislead."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isnan
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from kanon_db.interfaces import cli
from kanon_db.interfaces.python import Kanon
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.parties import (
    Functions,
    Parties,
    create_source,
    fetch,
    hearing,
    sqlstate_of,
    value,
)

REFUSED = "0A000"
KEPT = (
    "these are kept records: each person has one, the first by began; 60 records of the same people"
    " are not published"
)

_TABLES = """
CREATE TYPE data.mood AS ENUM ('sad', 'ok', 'happy', 'unused');
CREATE TABLE data.taken AS
  SELECT 1 + i % 60 AS person, i AS began, i % 60 % 5 AS age, 'drug ' || (i + i / 60) % 4 AS drug
  FROM generate_series(0, 119) AS i;
CREATE TABLE data.town AS
  SELECT CASE WHEN i <= 40 THEN 'a' ELSE 'b' || i END AS town, 'd' || i % 5 AS ill
  FROM generate_series(1, 60) AS i;
CREATE TABLE data.streets AS
  SELECT CASE i % 11 WHEN 0 THEN NULL WHEN 1 THEN 't' || i ELSE 't' || i % 4 END AS town,
    CASE i * 7 % 17 WHEN 0 THEN 's' || i ELSE 's' || i % 3 END AS street, i * i % 5 AS floor,
    'd' || i % 5 AS ill
  FROM generate_series(1, 90) AS i;
CREATE TABLE data.pairs AS
  SELECT CASE WHEN i > 20 AND i < 27 THEN 90 WHEN i <= 20 THEN i END AS x, 5 * (i % 8) AS y
  FROM generate_series(1, 30) AS i;
CREATE TABLE data.moods AS
  SELECT i % 10 AS age, (ARRAY['sad', 'ok', 'happy'])[1 + i % 3]::data.mood AS mood,
    (ARRAY['red', 'green'])[1 + i % 2] AS color, CASE WHEN i % 3 = 0 THEN '{"a": 1}'::json END AS j,
    point(i, i) AS place, 'd' || i % 7 AS ill
  FROM generate_series(1, 60) AS i;
CREATE TABLE data.moods_again AS TABLE data.moods;
CREATE TABLE data.rare AS
  SELECT 'w' || i % 3 AS ward, CASE WHEN i % 10 = 0 THEN i % 7 END AS score, 'd' || i % 5 AS ill
  FROM generate_series(1, 60) AS i;
CREATE TABLE data.big AS
  SELECT 1500000000000 + i * 1000000000::int8 AS seen_ms, i * 900 AS x, i * 700 AS y,
    'd' || i % 5 AS ill
  FROM generate_series(1, 40) AS i;
CREATE TABLE data.huge AS
  SELECT i % 6 AS age, 1e300::float8 * (1 + i % 2) AS h, 'd' || i % 4 AS ill
  FROM generate_series(1, 60) AS i;
CREATE TABLE data.uneven AS
  SELECT i AS age, CASE WHEN i IN (12, 13, 14, 40) THEN 1e300::float8 ELSE i % 5 END AS h,
    'd' || i % 4 AS ill
  FROM generate_series(1, 60) AS i
"""


@pytest.fixture(scope="module", autouse=True)
def publications(parties: Parties) -> None:
    for statement in _TABLES.split(";"):
        fetch(parties.publisher, statement)
    kanon = Functions(parties.publisher)
    kanon.register("data.taken", ["age"], "drug", entity="person", keep="first by began")
    kanon.register("data.town", ["town"], "ill")
    kanon.register("data.streets", ["town", "street", "floor"], "ill")
    kanon.register("data.pairs", ["x"], "y")
    for source in ("data.moods", "data.moods_again"):
        kanon.register(source, ["age", "color", "mood"], "ill", insensitive=["j", "place"])
    kanon.register("data.rare", ["ward", "score"], "ill")
    kanon.register("data.big", ["seen_ms", "x", "y"], "ill")
    kanon.register("data.huge", ["age"], "ill", insensitive=["h"])
    kanon.register("data.uneven", ["age"], "ill", insensitive=["h"])
    kanon.publish("data.taken", "taken_b", privacy='{"default": 0.7}')
    kanon.suppress("data.town", "town_p", k=5)
    kanon.suppress("data.streets", "streets_p", k=3)
    kanon.suppress("data.pairs", "pairs_p", k=3)
    kanon.generalize("data.moods", "moods_g", k=3, method="mondrian", refine=False)
    kanon.suppress("data.moods_again", "moods_p", k=3)
    kanon.generalize("data.rare", "rare_g", k=10, method="mondrian", refine=False)
    kanon.generalize("data.big", "big_g", k=5, method="mondrian", refine=False)
    kanon.generalize("data.huge", "huge_g", k=5, method="mondrian", refine=False)
    kanon.generalize("data.uneven", "uneven_g", k=5, method="mondrian", refine=False)


def answer_of(parties: Parties, question: str) -> tuple[list[tuple[Any, ...]], list[str]]:
    """The numbers of an answer, and what is said beside them."""
    with hearing(parties.analyst) as heard:
        rows = fetch(
            parties.analyst,
            "SELECT estimate, std_error, lower_bound, upper_bound FROM kanon.estimate($1)",
            question,
        )
    return rows, heard


@pytest.mark.pitfall(68)
def test_kept_records_are_not_taken_for_all_records(parties: Parties) -> None:
    """In SQL, Python, the shell, `explain_count` and the comment of the view."""
    question = "SELECT COUNT(*) FROM taken_b WHERE drug = 'drug 1'"
    rows, heard = answer_of(parties, question)
    assert rows == [(15, 0, 15, 15)]  # certain, of the kept records; 30 people took it
    assert heard == [KEPT]
    for function in ("estimate_count", "estimate_counts"):
        with hearing(parties.analyst) as heard:
            fetch(parties.analyst, f"SELECT * FROM kanon.{function}($1)", question)
        assert heard == [KEPT], function
    explained = fetch(parties.analyst, "SELECT part, description FROM kanon.explain_count($1)",
                      question)  # fmt: skip
    assert ("note", KEPT) in explained
    frame = Kanon(PsycopgSession(parties.analyst)).count(question)
    assert frame.attrs["notes"] == [KEPT]
    assert KEPT in (frame._repr_html_() or "")  # type: ignore[operator]
    dsn = parties.dsn_of("analyst")
    shown = CliRunner().invoke(cli.main, ["query", question], env={"KANON_DSN": dsn})
    assert f"Note: {KEPT}" in shown.output
    as_json = CliRunner().invoke(cli.main, ["query", question, "--json"], env={"KANON_DSN": dsn})
    assert json.loads(as_json.stdout)["notes"] == [KEPT]
    comment = value(parties.analyst, "SELECT obj_description('published.taken_b'::regclass)")
    assert f"{KEPT[0].upper()}{KEPT[1:]}." in comment


def test_two_publications_are_not_joined(parties: Parties) -> None:
    for other in ("town_p", "published.town_p"):
        asked = f"SELECT COUNT(*) FROM taken_b JOIN {other} ON town_p.town = taken_b.drug"
        with pytest.raises(psycopg.Error, match="two publications cannot be joined") as refused:
            answer_of(parties, asked)
        assert refused.value.sqlstate == REFUSED
        assert "view that joins their sources" in (refused.value.diag.message_hint or "")
        dsn = parties.dsn_of("analyst")
        shown = CliRunner().invoke(cli.main, ["query", asked], env={"KANON_DSN": dsn})
        assert "two publications cannot be joined" in shown.output


@pytest.mark.pitfall(69)
def test_suppressed_cells_hide_groups(parties: Parties) -> None:
    """The answer says so, and an error of 0 does not pass a hidden third of the cells for known."""
    rows, heard = answer_of(parties, "SELECT town, COUNT(*) FROM town_p GROUP BY town")
    assert rows == [(60, 10, 40, 60)]
    hidden, untold = heard
    assert hidden == (
        'there may be groups that are not listed: cells of column "town" are suppressed'
    )
    assert untold.startswith("this publication does not tell count(*) in 1 of 1 groups: ")
    ((estimate, error, low, high),), _ = answer_of(
        parties, "SELECT COUNT(*) FROM town_p WHERE town = 'b45'"
    )
    assert (estimate, low, high) == (0, 0, 20)
    assert error == 10
    assert answer_of(parties, "SELECT ill, COUNT(*) FROM town_p GROUP BY ill")[1] == []


@pytest.mark.parametrize("keys", ["town", "town, street", "street, ill", "town, street, floor"])
@pytest.mark.parametrize("where", ["", "WHERE floor > 1"])
def test_every_group_of_kept_values_is_listed(parties: Parties, keys: str, where: str) -> None:
    """Others have a value that is kept of nobody, of which a note warns."""
    question = f"SELECT {keys}, COUNT(*) FROM {{}} {where} GROUP BY {keys}"
    names = keys.split(", ")
    with hearing(parties.analyst) as heard:
        rows = fetch(
            parties.analyst,
            "SELECT group_key, lower_bound, upper_bound FROM kanon.estimate_counts($1::text)",
            question.format("streets_p"),
        )
    listed = {tuple(key[name] for name in names): bounds for key, *bounds in rows}
    assert all(upper > 0 for _, upper in listed.values())
    kept = {
        name: {
            shown
            for shown, pattern in fetch(
                parties.analyst, f"SELECT {name}, pattern FROM published.streets_p"
            )
            if name == "ill" or pattern["town street floor".split().index(name)] != "*"
        }
        for name in names
    }
    truth = {tuple(key): n for *key, n in fetch(parties.publisher, question.format("data.streets"))}
    for group, n in truth.items():
        if all(own in kept[name] for name, own in zip(names, group, strict=True)):
            assert listed[group][0] <= n <= listed[group][1]
    assert truth.keys() - listed.keys() or keys == "street, ill"
    assert any("there may be groups that are not listed" in said for said in heard)


@pytest.mark.parametrize("key", ["x > 2 * y + 60", "coalesce(x, y)", "y > 20 AND x > 8"])
def test_suppressed_cells_may_be_in_each_group_of_several_columns(
    parties: Parties, key: str
) -> None:
    """Also in those to which no kept value leads beside what the record has in other columns."""
    figures = "COUNT(*) AS n, AVG(y) AS mean, MIN(y) AS least, SUM(y) AS total"
    question = f"SELECT {key} AS key, {figures} FROM {{}} GROUP BY {key}"
    answers = fetch(
        parties.analyst,
        "SELECT group_key ->> 'key', aggregate, lower_bound, upper_bound FROM kanon.estimate($1)",
        question.format("pairs_p"),
    )
    truth = {
        (own, name): figure
        for own, *of_group in fetch(
            parties.publisher,
            f"SELECT key::text, n, mean, least, total FROM ({question.format('data.pairs')}) AS q",
        )
        for name, figure in zip(("n", "mean", "least", "total"), of_group, strict=True)
    }
    compared = [
        (low is None or low <= truth[own, name]) and (high is None or truth[own, name] <= high)
        for own, name, low, high in answers
        if (own, name) in truth
    ]
    assert len(compared) > 4
    assert all(compared)


ABSENT = "no published record has {} that column {} is compared with"
COMPARED = {
    "town_p WHERE town = 'b45'": [("the value", '"town"')],
    "town_p WHERE town = 'a'": [],
    "town_p WHERE ill IN ('d1', 'd2', 'x', 'y') OR ill = 'z'": [("3 of the 5 values", '"ill"')],
    "taken_b WHERE drug <> 'drug 9' AND age = 99": [("the value", '"drug"')],
    "moods_g WHERE mood = 'unused'": [("the value", '"mood"')],
    "moods_g WHERE mood = 'sad' AND color = 'Red'": [("the value", '"color"')],
    "moods_p WHERE color IS DISTINCT FROM 'blue'": [("the value", '"color"')],
    "moods_g WHERE color LIKE 'blue%' AND 'green' = color": [],
}
"""What follows FROM, and the number of absent values with the column."""


@pytest.mark.parametrize("asked", COMPARED)
def test_values_that_nobody_has_are_said(parties: Parties, asked: str) -> None:
    _, heard = answer_of(parties, f"SELECT COUNT(*) FROM {asked}")
    notes = [note for note in heard if note.startswith("no published")]
    assert notes == [ABSENT.format(*one) for one in COMPARED[asked]]


JSON: dict[str, int | None] = {
    "SELECT COUNT(j) FROM moods_{}": 20,
    "SELECT COUNT(*) FROM moods_{} WHERE j IS NULL": 40,
    "SELECT COUNT(*) FILTER (WHERE j IS NOT NULL OR ill = 'd1') FROM moods_{}": 26,
    "SELECT COUNT(place) FROM moods_{} WHERE ill = 'd1'": 9,
    "SELECT COUNT(DISTINCT j) FROM moods_{}": None,
    "SELECT j, COUNT(*) FROM moods_{} GROUP BY j": None,
    "SELECT COUNT(COALESCE(j, '{{}}')) FROM moods_{}": None,
    "SELECT COUNT(*) FROM moods_{} WHERE j = '1'": None,
}
"""Questions about types without an order, and the true counts; None for what is refused."""


@pytest.mark.parametrize("asked", JSON)
def test_values_without_an_order_are_there_or_not(parties: Parties, asked: str) -> None:
    for way in "gp":
        question, true = asked.format(way), JSON[asked]
        if true is None:
            with pytest.raises(psycopg.Error, match="compare") as refused:
                answer_of(parties, question)
            assert refused.value.sqlstate == REFUSED
        else:
            assert answer_of(parties, question)[0] == [(true, 0, true, true)], way


ONCE_CRASHED: dict[str, Callable[[Parties], object]] = {
    "a draw of an enumeration": lambda parties: fetch(
        parties.analyst, "SELECT record FROM kanon.draw('moods_g', 1)"
    ),
    "a sum over cells without an end": lambda parties: answer_of(
        parties, "SELECT AVG(score), SUM(score), MIN(score) FROM rare_g"
        " WHERE score > 2 OR ward = 'w1'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ONCE_CRASHED)
def test_what_crashed_is_answered(parties: Parties, what: str) -> None:
    assert ONCE_CRASHED[what](parties)


def test_numbers_whose_squares_are_infinite(parties: Parties) -> None:
    """PostgreSQL has no average of them, nor a deviation."""
    assert sqlstate_of(lambda: fetch(parties.admin, "SELECT avg(h) FROM data.huge")) == "22003"
    assert sqlstate_of(lambda: answer_of(parties, "SELECT stddev(h) FROM huge_g")) == REFUSED
    for aggregate, number in (("SUM", "sum(h)"), ("AVG", "sum(h / 60)")):
        truth = value(parties.admin, f"SELECT {number} FROM data.huge")
        (((estimate, error, low, high),), _) = answer_of(
            parties, f"SELECT {aggregate}(h) FROM huge_g"
        )
        assert low <= truth <= high
        assert (estimate, error) == (pytest.approx(truth), 0)


def test_sums_beyond_double_precision_are_refused(parties: Parties) -> None:
    rows = [(i % 4, f"{(-1) ** i * 1.7976931348623157e308}") for i in range(40)]
    kanon = create_source(parties.publisher, "data.largest", "age int, cost float8", rows)
    kanon.publish("data.largest", "largest", privacy='{"default": 0.75}')
    for measure in ("SUM(cost)", "AVG(cost)", "cost, SUM(cost)"):
        query = f"SELECT {measure} FROM largest{' GROUP BY cost' if ',' in measure else ''}"
        assert sqlstate_of(lambda: answer_of(parties, query)) == REFUSED


def test_percentiles_between_minus_infinity_and_a_number_have_no_bound(parties: Parties) -> None:
    """PostgreSQL interpolates NaN, which is after all numbers."""
    numbers = ["-Infinity", "1", "2", "3"]
    rows = [(i % 7, numbers[i % 4], f"s{i // 4 % 3}") for i in range(1, 41)]
    columns = "age int, cost float8, ill text"
    quasi = (["age"], ["age", "cost"])
    kanon = create_source(
        parties.publisher, "data.least", columns, rows, quasi[0], "ill", insensitive=["cost"]
    )
    kanon.generalize("data.least", "least_g", k=3, method="mondrian", refine=False)
    create_source(parties.publisher, "data.least_too", columns, rows, quasi[1], "ill")
    kanon.publish("data.least_too", "least_b", privacy='{"l": 2}')
    middle = "SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY cost) FROM {} WHERE {}"
    for where in ("ill = 's1' AND age > 0", "ill <> 's2' AND age < 4"):
        assert isnan(value(parties.publisher, middle.format("data.least", where)))
        for name in ("least_g", "least_b"):
            (((_, _, low, high),), _) = answer_of(parties, middle.format(name, where))
            assert (low, high) == (None, None)


def test_percentiles_of_whole_numbers_without_a_lower_end_keep_their_bound(
    parties: Parties,
) -> None:
    rows = [(i % 7, f"s{i % 3}") for i in range(42)]
    kanon = create_source(
        parties.publisher, "data.ended", "age int, ill text", rows, ["age"], "ill",
        attributes='{"age": {"bottom": 3}}',
    )  # fmt: skip
    kanon.generalize("data.ended", "ended", k=3, method="mondrian", refine=False)
    query = "SELECT percentile_cont(0.1) WITHIN GROUP (ORDER BY age) FROM ended WHERE ill = 's1'"
    (((_, _, low, high),), _) = answer_of(parties, query)
    assert low is None
    assert high is not None


@pytest.mark.parametrize("measure", ["sum(h)", "avg(h)", "sum(h + age)", "age > 30, sum(h)"])
def test_errors_whose_squares_are_infinite_are_those_of_the_bounds(
    parties: Parties, measure: str
) -> None:
    """Squares that overflow are no error of 0 beside those of small numbers."""
    groups = " GROUP BY 1" if "," in measure else ""
    rows, _ = answer_of(parties, f"SELECT {measure} FROM uneven_g WHERE age < 14{groups}")
    for estimate, error, low, high in rows:
        n = 13 if "avg" in measure else 1
        assert low <= 2e300 / n <= high
        assert error == pytest.approx((high - low) / 2)
        assert error >= abs(estimate - 2e300 / n)


ENDLESS = {
    "seen_ms % 7 = 1": False,
    "seen_ms <= 1550000000000": True,
    "x <= 15500 AND y > 700": True,
}
"""Conditions, and whether there is a statement for them."""


@pytest.mark.pitfall(70)
@pytest.mark.parametrize("condition", ENDLESS)
def test_statements_that_never_end_are_not_written(parties: Parties, condition: str) -> None:
    """Each value of a wide range would be a row, and of two columns each pair of values.

    Unless they are only compared with constants: one value between these is enough.
    """
    kanon = Functions(parties.analyst)
    question = f"SELECT COUNT(*) FROM big_g WHERE {condition}"
    if ENDLESS[condition]:
        assert "kanon.numbers_of" in kanon.rewrite(question)
    else:
        with pytest.raises(psycopg.Error, match="no single statement") as refused:
            kanon.rewrite(question)
        assert "kanon.estimate" in (refused.value.diag.message_hint or "")
    assert kanon.estimate(question)
