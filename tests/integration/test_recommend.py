"""What is recommended: measured as analysts would, said as it is, and nothing is left of it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kanon_db
from kanon_db.advice import recommendation
from kanon_db.advice.identifying_columns import copy_source
from kanon_db.advice.recommendation import TrialGround
from kanon_db.answers.estimates import measure_usefulness
from kanon_db.catalog.entries import find_publication, published_schema
from kanon_db.catalog.sources import open_source
from kanon_db.errors import InvalidParameterError, UndoneInterrupt
from kanon_db.publications.kind import AttackTarget
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.values import DistinctValues
from tests.acceptance.commands import kanon as command
from tests.integration.parties import (
    Functions,
    Parties,
    create_table,
    everything,
    fetch,
    holds,
    sqlstate_of,
    value,
    warn_only,
)
from tests.profiles import examples, long_but

FORBIDDEN = "42501"
N = 400


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    draw = np.random.default_rng(11)
    ages, jobs = draw.integers(20, 40, N).tolist(), draw.integers(0, 6, N).tolist()
    sick = [(age // 4 + int(draw.integers(0, 3))) % 6 for age in ages]
    rows = [
        (f"person {i // 2}", age, f"job {job}", f"disease {what}", i)
        for i, (age, job, what) in enumerate(zip(ages, jobs, sick, strict=True))
    ]
    columns = "person text, age int, job text, sick text, number int"
    for name in ("people", "visits", "plain", "alike", "diverse"):
        create_table(parties.publisher, f"data.{name}", columns, rows)
    fetch(parties.publisher, "UPDATE data.alike SET sick = 'disease ' || age % 2, job = 'j'")
    fetch(parties.publisher, "UPDATE data.alike SET sick = 'flu' WHERE age < 25")
    functions = Functions(parties.publisher)
    functions.register("data.people", ["age", "job"], "sick", ["person"], insensitive=["number"])
    functions.register("data.visits", ["age", "job"], "sick", entity="person")
    functions.register("data.plain", ["age", "job"], None)
    functions.register("data.alike", ["age", "job"], "sick")
    fetch(parties.publisher, "UPDATE data.diverse SET sick = 'disease ' || number % 80")
    functions.register("data.diverse", ["age", "job"], "sick")
    fetch(parties.publisher, "CREATE TABLE data.turned AS TABLE data.people")
    fetch(parties.publisher, "UPDATE data.turned SET age = nullif(age * age, 400)")
    fetch(
        parties.publisher,
        "CREATE TABLE data.moments AS SELECT sick, nullif(job, 'job 1') AS job,"
        " date '2001-01-01' + age * age AS born, (number % 37)::numeric(6, 2) / 4 AS pay"
        " FROM data.people",
    )
    functions.register("data.moments", ["born", "pay", "job"], "sick")
    functions.register("data.turned", ["job", "age"], "sick")


@pytest.fixture(autouse=True)
def dropped(parties: Parties) -> Iterator[None]:
    yield
    for name in Functions(parties.publisher).publications():
        Functions(parties.publisher).drop(name)


def recommended(parties: Parties, source: str, **given: Any) -> list[dict[str, Any]]:
    return Functions(parties.publisher).rows("recommend", f"data.{source}", **given)


PURPOSES = {"people": "both", "visits": "rows", "plain": "counts", "alike": "rows"}


@pytest.fixture(scope="module")
def advice(parties: Parties, people: None) -> Callable[[str], list[dict[str, Any]]]:
    """What is recommended for a source, of which nothing is left."""

    @functools.cache
    def advise(source: str) -> list[dict[str, Any]]:
        before = everything(parties.admin)
        rows = recommended(parties, source, purpose=PURPOSES[source], protection="basic")
        assert everything(parties.admin) == before
        return rows

    return advise


# -- what identifies people -----------------------------------------------------------------------


def test_unicity_is_as_counted_in_sql(parties: Parties) -> None:
    found = Functions(parties.publisher).rows("unicity", "data.people")
    assert {tuple(row["columns"]) for row in found} == {
        ("age", "job"), ("age",), ("job",), ("number",),
    }  # fmt: skip
    for row in found:
        names = ", ".join(row["columns"])
        alone = value(
            parties.publisher,
            "SELECT count(*) FROM (SELECT FROM data.people"
            f" GROUP BY {names} HAVING count(*) = 1) AS s",
        )
        assert (row["records"], row["share"]) == (alone, alone / N)
        assert ("no record is" in row["meaning"]) == (alone == 0)
        assert (f"{alone} records ({alone / N:.1%})" in row["meaning"]) == (alone > 1)
    (number,) = (row for row in found if row["columns"] == ["number"])
    assert "nearly unique" in number["meaning"]
    assert not any("nearly unique" in row["meaning"] for row in found if row is not number)


# -- candidates -----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("source", long_but({"people"}, ["people", "visits", "plain"]))
def test_candidates_are_measured_and_nothing_is_left(
    advice: Callable[[str], list[dict[str, Any]]], source: str
) -> None:
    found = advice(source)
    assert [row["place"] for row in found if row["place"]] == list(
        range(1, 1 + sum(row["objection"] is None for row in found))
    )
    assert found[0]["place"] == 1
    for row in found:
        assert (row["place"] is None) == (row["objection"] is not None)
        assert (row["tried_on"], row["records"]) == (N, N)
        assert row["seconds"] is not None, row["objection"]
        assert row["count_error"] >= 0
        assert 0 <= row["loss"] <= 1
        assert row["loss_by_column"].keys() == {"age", "job"}
        assert row["attacks"]
        assert 0 <= row["attack_rate"] <= 1
        assert (row["certain_people"] is None) == (source == "plain")
        assert bool(row["certain_people"]) == (row["objection"] is not None)


@pytest.mark.long
@pytest.mark.parametrize("source", long_but({"people"}, ["people", "visits"]))
def test_what_is_recommended_can_be_published_as_it_says(
    parties: Parties, advice: Callable[[str], list[dict[str, Any]]], source: str
) -> None:
    warn_only(parties.admin)
    publisher = Functions(parties.publisher)
    for row in advice(source):
        (published,) = fetch(parties.publisher, row["sql"])
        name = published[1]
        assert name.startswith(source)
        assert holds(parties.publisher, name)
        if row["place"] == 1:
            rates = {line["attack"]: line["rate"] for line in publisher.rows("attack", name)}
            assert rates.get("homogeneity", 0) == 0
        publisher.drop(name)


@pytest.mark.long
def test_nobody_is_published_in_the_clear(advice: Callable[[str], list[dict[str, Any]]]) -> None:
    """Where groups that look alike have one value, this is said, and comes last."""
    found = advice("alike")
    clear = [row for row in found if row["certain_people"]]
    assert clear
    assert found[-len(clear) :] == clear
    for row in clear:
        assert row["place"] is None
        said = f"the sensitive value of {row['certain_people']:,} people is certain"
        assert said in row["objection"]


@pytest.mark.long
def test_the_command_prints_everything(parties: Parties) -> None:
    dsn = parties.publisher.info.dsn
    done = command("recommend", "data.people", "--protection", "basic", dsn=dsn)
    assert done.returncode == 0, done.stderr
    for text in (
        "What identifies people in data.people", "age, job", "100.0%  nearly unique: ",
        "Protection wanted, basic",
        "count error", "   deFinetti: right for ",
        "promises: nobody's sick is inferred with a probability above 50%",
        "kanon publish buckets data.people people_b --privacy",
    ):  # fmt: skip
        assert text in done.stdout
    answer = command("recommend", "data.people", "--time-limit", "10", "--json", dsn=dsn)
    assert answer.json().keys() == {"identifying", "candidates"}


@pytest.mark.long
def test_each_of_several_columns_gets_its_cap(parties: Parties) -> None:
    """One with a frequent value does not keep the others from being protected."""
    fetch(
        parties.publisher,
        "CREATE TABLE data.paid AS SELECT *, number % 4 = 0 AS a FROM data.people",
    )
    Functions(parties.publisher).register(
        "data.paid", ["age", "job"], "sick", also_sensitive=["a"], entity="number"
    )
    found = recommended(parties, "paid", purpose="both")
    assert found[0]["place"] == 1
    for row in found:
        if row["attacks"] and "default" in row["sql"]:
            assert '{"default": "1/3", "attributes": {"a": {"default": 0.95}}}' in row["sql"]
            assert "nobody's sick is inferred with a probability above 1/3" in row["guarantee"]
            assert "nobody's a above 95% (not less, since 75%" in row["guarantee"]
            assert "who knows one of these" in row["guarantee"]
    fetch(parties.publisher, found[0]["sql"])


@pytest.mark.long
def test_what_was_tried_in_time_is_recommended(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No trial may take longer than the time; the others are named, and nothing is left."""
    tried = recommendation.try_candidate
    begun = time.monotonic()
    deadlines: list[float] = []

    def slow(session: Any, one: Any, small: Any, large: Any, deadline: float, **how: Any) -> Any:
        deadlines.append(deadline - begun)
        is_first = len(deadlines) == 1
        return tried(session, one, small, large, deadline if is_first else begun, **how)

    monkeypatch.setattr(recommendation, "try_candidate", slow)
    before = everything(parties.admin)
    warned: list[str] = []
    told: list[str] = []
    dsn = parties.publisher.info.dsn
    with kanon_db.connect(dsn, on_warning=warned.append, on_notice=told.append) as kanon:
        begun = time.monotonic()
        found = kanon.recommend("data.people", time_limit=600).to_dict("records")
    assert max(deadlines) <= 601
    assert everything(parties.admin) == before
    first, *others = found
    assert (first["place"], first["certain_people"], first["tried_on"]) == (1, 0, N)
    assert first["attacks"]
    assert first["candidate"] == "buckets of several sizes, of people from the whole table"
    assert len(others) == 3
    for row in others:
        assert row["objection"] == "not tried to its end: its share of the time was over"
        assert row["sql"].startswith("SELECT * FROM kanon.publish_")
        assert row["candidate"] in warned[0]
    assert "time_limit => 2400" in warned[0]
    assert told[0].startswith(f"best so far, tried on {N} of {N} records: {first['candidate']}: ")
    assert told[0].split(": ", 2)[2] in first["sql"]
    (published,) = fetch(parties.publisher, first["sql"])
    assert holds(parties.publisher, published[1])


def test_without_time_to_read_the_source_nothing_is_tried(parties: Parties) -> None:
    before = everything(parties.admin)
    with (
        kanon_db.connect(parties.publisher.info.dsn) as kanon,
        pytest.raises(InvalidParameterError, match="does not suffice to read the source") as over,
    ):
        kanon.recommend("data.people", time_limit=1e-9)
    assert "time_limit => 60" in over.value.hint
    assert everything(parties.admin) == before


@pytest.mark.long
def test_whoever_stops_it_gets_the_best_so_far(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = recommendation.try_candidate
    finished: list[str] = []

    def interrupted(*given: Any, **options: Any) -> Any:
        if len(finished) == stop_after:
            raise KeyboardInterrupt
        finished.append(given[1].title)
        return tried(*given, **options)

    monkeypatch.setattr(recommendation, "try_candidate", interrupted)
    before = everything(parties.admin)
    warned: list[str] = []
    with kanon_db.connect(parties.publisher.info.dsn, on_warning=warned.append) as kanon:
        stop_after = 3
        found = kanon.recommend("data.people", protection="basic").to_dict("records")
        assert {row["candidate"] for row in found if row["place"] > 0} == set(finished)
        stopped = "not tried: it was stopped before"
        assert {row["objection"] for row in found[len(set(finished)) :]} == {stopped}
        assert warned[0].startswith("stopped: ")
        finished.clear()
        stop_after = 0
        with pytest.raises(UndoneInterrupt):
            kanon.recommend("data.people")
    assert everything(parties.admin) == before


@pytest.mark.long
def test_a_large_table_is_tried_as_a_sample(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recommendation, "MOST_TRIED", 200)
    monkeypatch.setattr(recommendation, "MOST_BRIEF", 100)
    told: list[str] = []
    with kanon_db.connect(parties.publisher.info.dsn, on_notice=told.append) as kanon:
        for source in ("data.people", "data.visits"):
            found = kanon.recommend(source, purpose="rows", protection="basic")
            assert 100 < found["tried_on"][0] < 300
            assert found["records"][0] == N
    large = [text for text in told if not text.startswith("best so far")]
    assert [text.startswith("the source has 400 records") for text in large] == [True, True]


@pytest.mark.long
def test_people_with_one_record_each_get_buckets(parties: Parties) -> None:
    """Naming the column that says who somebody is takes no kind away, unless it is needed."""
    fetch(parties.publisher, "CREATE TABLE data.once AS SELECT * FROM data.people")
    Functions(parties.publisher).register("data.once", ["age", "job"], "sick", entity="number")
    for source, expected in (("once", True), ("visits", False)):
        found = recommended(parties, source, time_limit=10)
        assert any("publish_buckets" in row["sql"] for row in found) == expected


@pytest.mark.long
def test_earlier_releases_are_warned_of(parties: Parties) -> None:
    fetch(parties.admin, "DELETE FROM kanon.setting WHERE name = 'combined_releases'")
    Functions(parties.publisher).publish("data.alike", "first", privacy='{"l": 2}')
    warned: list[str] = []
    with kanon_db.connect(parties.publisher.info.dsn, on_warning=warned.append) as kanon:
        kanon.recommend("data.alike", time_limit=10)
    (said,) = (text for text in warned if "other releases" in text)
    assert "other releases of this source (first)" in said
    assert "readers => '{team}', a role of theirs in kanon_user" in said
    assert "combined_releases" in said


def test_whoever_may_not_publish_gets_no_advice(parties: Parties) -> None:
    for function in ("recommend", "unicity"):
        for connection in (parties.analyst, parties.stranger):
            call = lambda: Functions(connection).rows(function, "data.people")
            assert sqlstate_of(call) == FORBIDDEN
    other = parties.analyst.info.user
    fetch(parties.admin, f'GRANT kanon_publisher TO "{other}"')
    fetch(parties.publisher, f'GRANT USAGE ON SCHEMA data TO "{other}"')
    fetch(parties.publisher, f'GRANT SELECT (age, job) ON data.people TO "{other}"')
    for function in ("recommend", "unicity"):
        call = lambda: Functions(parties.analyst).rows(function, "data.people")
        assert sqlstate_of(call) == FORBIDDEN


# -- the count error is that of the answers that analysts get -------------------------------------

PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    "random": ("buckets", {"privacy": '{"l": 3}', "assignment": "random"}),
    "many values": ("buckets", {"privacy": '{"l": 3}', "assignment": "random"}),
    "cells": ("buckets", {"privacy": '{"l": 2}'}),
    "generalized": ("generalized", {"k": 4, "refine": False}),
    "turned": ("generalized", {"k": 4, "refine": False}),
    "left out": ("generalized", {"k": 4, "refine": False, "max_suppressed": "0.05"}),
    "freeform": ("freeform", {"k": 4}),
    "moments": ("generalized", {"k": 4, "method": "mondrian", "refine": False}),
    "freeform moments": ("freeform", {"k": 3}),
    "suppressed": ("suppressed", {"k": 8}),
}


@pytest.mark.parametrize("name", long_but({"turned", "suppressed"}, PUBLISHED))
def test_answers_are_those_of_estimate_count(parties: Parties, name: str) -> None:
    kind, given = PUBLISHED[name]
    functions = Functions(parties.publisher)
    warn_only(parties.admin)
    tables = {"many values": "diverse", "turned": "turned", "moments": "moments"}
    table = f"data.{tables.get(name.removeprefix('freeform '), 'people')}"
    functions.call(f"publish_{kind}", table, "out", **given)
    session = PsycopgSession(parties.publisher)
    with session.transaction():
        source, types = open_source(session, table)
        copy = copy_source(session, source, Allowance.of(session))
        questions = TrialGround(copy).ask(session)
        queries = questions.queries[: examples(60)]
        publication = find_publication(session, "out")
        target = AttackTarget(
            session, publication, source, types, published_schema(session), Allowance.of(session)
        )
        useful = measure_usefulness(target, replace(questions, queries=queries))
    assert questions.sensitive is not None
    columns = [*questions.columns, questions.sensitive]
    written = [
        " AND ".join(
            written_set(columns[a], codes)
            for a, codes in (*query.quasi_identifiers.items(), (-1, query.sensitive))
        )
        for query in queries
    ]
    asked = [functions.estimate(f"SELECT count(*) FROM out WHERE {where}")[0] for where in written]
    assert useful.answers == pytest.approx(asked, rel=1e-6, abs=1e-6)
    assert useful.losses.shape == (len(questions.columns),)


def written_set(column: DistinctValues, codes: np.ndarray) -> str:
    """Write a set of values as an analyst would: of numbers, from each up to the next one."""
    name, values = column.column.name, column.labels
    known = [value for value in values if value is not None]
    parts = [f"{name} IS NULL"] if codes[len(known) :].any() else []
    for code in np.flatnonzero(codes[: len(known)]).tolist():
        if column.column.type_name == "text":
            parts.append(f"{name} = '{known[code]}'")
            continue
        below = f" AND {name} < '{known[code + 1]}'" if code + 1 < len(known) else ""
        parts.append(f"{name} >= '{known[code]}'{below}")
    return f"({' OR '.join(parts)})"
