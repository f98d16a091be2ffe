"""One publication on both sides: made on Spark, loaded into PostgreSQL; answers are the same.

It is published without weights, which each side draws anew; `test_levels.py` has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kanon_db
from kanon_db import spark as on_spark
from kanon_db.errors import (
    InvalidParameterError,
    KanonError,
    NotFoundError,
    UnsupportedQueryError,
)
from kanon_db.interfaces.python import Kanon
from tests.integration.parties import Parties, fetch, parties
from tests.spark import data

__all__ = ["parties"]

QUESTIONS = [
    "SELECT count(*) FROM people_b",
    "SELECT count(*) FROM people_b WHERE age < 40 AND sex = 'f'",
    "SELECT count(*) FROM people_b WHERE age < 40 AND disease = 'disease 1'",
    "SELECT count(*) FROM people_b WHERE sex = 'f' AND disease IS NULL",
    "SELECT count(*) FROM people_b WHERE age < 30 OR disease = 'disease 2'",
    "SELECT count(*) FROM people_b WHERE zip IS NULL AND disease IN ('disease 1', 'disease 3')",
    "SELECT count(*) FROM people_b WHERE age IN (20, 30, 40) AND disease LIKE 'disease 1%'",
    "SELECT count(*) FROM people_b WHERE age * 2 > 90.5 AND disease <> 'disease 1'",
    "SELECT count(*) FROM people_b WHERE age > 39.5 AND zip IN (3.0, 4.5, 7.25)",
    (
        "SELECT count(*) FROM people_b WHERE CASE WHEN sex = 'f' THEN disease = 'disease 1'"
        " ELSE disease = 'disease 2' END"
    ),
    (
        "SELECT sex, count(*), sum(age), avg(age) FROM people_b WHERE disease = 'disease 1'"
        " GROUP BY sex"
    ),
    "SELECT zip, disease, count(*) FROM people_b WHERE zip < 5 GROUP BY zip, disease",
    (
        "SELECT sex, count(*) AS n FROM people_b WHERE disease <> 'disease 1' GROUP BY sex"
        " HAVING count(*) > 10 ORDER BY n DESC LIMIT 1"
    ),
    "SELECT count(DISTINCT zip) FROM people_b WHERE disease = 'disease 1'",
    (
        "SELECT sum(age) FROM people_b WHERE (age > 50 AND disease = 'disease 1')"
        " OR (age < 30 AND disease = 'disease 2')"
    ),
]

CORRELATED = (
    "SELECT sex, corr(age, CASE WHEN disease = 'disease 1' THEN zip ELSE 3 END) AS r FROM people_b"
    " GROUP BY sex HAVING corr(age, zip) IS NOT NULL ORDER BY r"
)
"""It is not shown as one statement."""

REFUSED = [
    ("SELECT count(*) FROM people_b WHERE disease < 'disease 2'", "order"),
    ("SELECT count(*) FROM people_b WHERE age / 10 = 3", "means something else"),
    ("SELECT count(*) FROM people_b JOIN data.zips AS z ON z.zip = people_b.zip", "lookup"),
    ("SELECT age FROM people_b", ""),
]


@pytest.fixture(scope="module")
def published(spark: Any, people: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A publication that tests only read."""
    target = tmp_path_factory.mktemp("published") / "people_b"
    on_spark.publish_buckets(
        spark, people, str(target), source_name="people", estimates="paper", **data.ASKED
    )
    return target


@pytest.fixture(scope="module")
def kanon(spark: Any, published: Path, parties: Parties) -> Iterator[Kanon]:
    dsn = parties.dsn_of("publisher")
    on_spark.load(spark, str(published), dsn)
    with kanon_db.connect(dsn) as connected:
        yield connected


def number(found: Any) -> float:
    return math.nan if found is None else float(found)


ANSWER = ("estimate", "std_error", "lower_bound", "upper_bound", "likely_low", "likely_high")


@pytest.mark.slow("a session of Spark starts, and publishes")
@pytest.mark.parametrize("question", [*QUESTIONS, CORRELATED])
def test_both_sides_answer_alike(spark: Any, published: Path, kanon: Kanon, question: str) -> None:
    here = on_spark.estimate(spark, str(published), question, on_warning=lambda _: None)
    there = kanon.perform("estimate", {"query": question})
    assert len(here) == len(there)
    wanted = {(row.group_key, row.aggregate): row for row in there.itertuples()}
    for row in here:
        other = wanted[row.group_key, row.aggregate]
        for name in ANSWER:
            assert number(getattr(row, name)) == pytest.approx(
                number(getattr(other, name)), rel=1e-9, abs=1e-9, nan_ok=True
            ), name


def test_figures_are_shown_alike(spark: Any, published: Path, kanon: Kanon) -> None:
    """By a rule of the question: no count of few, all others rounded, the same on both sides."""
    rule, n_hidden, n_rounded = {"least": 300, "round": 50}, 0, 0
    for question in QUESTIONS:
        here = on_spark.estimate(
            spark, str(published), question, figures=rule, on_warning=lambda _: None
        )
        there = kanon.perform("estimate", {"query": question, "figures": rule})
        wanted = {(row.group_key, row.aggregate): row for row in there.itertuples()}
        assert len(here) == len(wanted)
        for row in here:
            shown = [getattr(row, name) for name in ANSWER]
            other = [getattr(wanted[row.group_key, row.aggregate], name) for name in ANSWER]
            assert list(map(number, shown)) == pytest.approx(
                list(map(number, other)), rel=1e-9, abs=1e-9, nan_ok=True
            )
            if row.aggregate.startswith("count"):
                n_hidden += row.estimate is None
                n_rounded += row.estimate is not None
                assert all(n is None or n == 0 or (n >= 300 and n % 50 == 0) for n in shown)
    assert min(n_hidden, n_rounded) > 5


def test_loaded_rows_keep_their_rule_and_have_draws(
    spark: Any, people: str, tmp_path: Path, parties: Parties
) -> None:
    target, dsn = tmp_path / "people_k", parties.dsn_of("publisher")
    made = on_spark.publish_generalized(
        spark, people, str(target), source_name="people_k", k=5, method="mondrian", **data.ROLES,
        figures={"least": 30, "round": 10},
    )  # fmt: skip
    question = "SELECT count(*) FROM people_k WHERE age < 40 AND disease = 'disease 1'"
    (here,) = on_spark.estimate(spark, str(target), question, on_warning=lambda _: None)
    on_spark.load(spark, str(target), dsn, draws=True)
    with kanon_db.connect(dsn) as connected:
        (there,) = connected.perform("estimate", {"query": question}).itertuples()
        assert connected.verify("people_k")["holds"].all()
    assert [getattr(here, name) for name in ANSWER] == pytest.approx(
        [getattr(there, name) for name in ANSWER]
    )
    assert here.estimate is not None
    assert here.estimate % 10 == 0
    counted = "SELECT count(*), count(*) FILTER (WHERE age < 40 AND disease = 'disease 1')"
    ((n_all, n_young),) = fetch(parties.admin, f"{counted} FROM published.people_k_draws")
    assert n_all == made.records
    assert here.lower_bound <= n_young <= here.upper_bound


def test_verification_and_metrics_are_the_same(spark: Any, published: Path, kanon: Kanon) -> None:
    there = kanon.verify("people_b").set_index("check")
    for check in on_spark.verify(spark, str(published)):
        assert check.holds
        if check.check in there.index:
            assert there.loc[check.check, "holds"]
            assert there.loc[check.check, "measured"] == check.measured
    assert not any(name.startswith("weights of values") for name in there.index)
    measured = kanon.metrics("people_b").set_index("metric")["value"]
    for metric in on_spark.metrics(spark, str(published)):
        assert measured[metric.metric] == pytest.approx(metric.value)


def test_a_rewritten_statement_gives_the_estimate(spark: Any, published: Path) -> None:
    view = on_spark.weighted_view(spark, str(published))
    view.createOrReplaceTempView("people_b")
    n_compared = 0
    for question in QUESTIONS:
        if "DISTINCT" in question:
            with pytest.raises(UnsupportedQueryError, match="no single statement"):
                on_spark.rewrite_count(spark, str(published), question)
            continue
        wanted = on_spark.estimate(
            spark, str(published), question, estimator="paper", on_warning=lambda _: None
        )
        statement = on_spark.rewrite_count(spark, str(published), question)
        rows = view.sparkSession.sql(statement).collect()
        n_shown = len(wanted) // max(len(rows), 1)
        found = [number(x) for row in rows for x in list(row)[len(row) - n_shown :]]
        assert found == pytest.approx([row.estimate for row in wanted], rel=1e-9, abs=1e-9)
        n_compared += 1
    assert n_compared == len(QUESTIONS) - 1


@pytest.mark.parametrize(("question", "text"), REFUSED)
def test_what_would_mean_something_else_is_refused(
    spark: Any, published: Path, question: str, text: str
) -> None:
    with pytest.raises(UnsupportedQueryError) as caught:
        on_spark.estimate(spark, str(published), question)
    assert text in f"{caught.value.message} {caught.value.detail}"


def test_other_ways_to_ask(spark: Any, published: Path) -> None:
    question = "SELECT count(*) FROM people_b WHERE age < 40"
    found = on_spark.estimate_count(spark, str(published), question)
    ages = data.table(4_000)["age"].to_pylist()
    assert found.estimate == sum(age < 40 for age in ages) == found.lower_bound
    by_sex = on_spark.estimate_counts(
        spark, str(published), "SELECT sex, count(*) FROM people_b GROUP BY sex"
    )
    assert [row.group_key for row in by_sex] == ['{"sex": "f"}', '{"sex": "m"}']
    with pytest.raises(UnsupportedQueryError) as refused:
        on_spark.estimate_count(
            spark, str(published), "SELECT sex, count(*) FROM people_b GROUP BY sex"
        )
    assert any("estimate_counts" in note for note in refused.value.__notes__)
    with pytest.raises(NotFoundError, match="another publication"):
        on_spark.estimate(spark, str(published), "SELECT count(*) FROM people_c")
    with pytest.raises(InvalidParameterError):
        on_spark.estimate(spark, str(published), question, estimator="mine")


def test_arithmetic_that_fails_is_refused(spark: Any, published: Path) -> None:
    question = "SELECT count(*) FROM people_b WHERE 1 / CAST(age - age AS double precision) > 0"
    with pytest.raises(KanonError, match="arithmetic"):
        on_spark.estimate(spark, str(published), question)
