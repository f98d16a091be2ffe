"""A publication made on Spark, in PostgreSQL: the same, and a failed load leaves no trace.

Buckets, and rows, which are verified there, measured the same, and answer queries.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kanon_db
from kanon_db import spark as on_spark
from kanon_db.errors import (
    DuplicateError,
    InvalidParameterError,
    NotFoundError,
    RiskError,
    VerificationError,
)
from kanon_db.interfaces.python import Kanon
from tests.integration.parties import Parties, fetch, parties, value
from tests.spark import data

__all__ = ["parties"]


@pytest.fixture(scope="module")
def loaded(spark: Any, published: Path, parties: Parties) -> Any:
    return on_spark.load(spark, str(published), parties.publisher)


@pytest.fixture
def kanon(parties: Parties, loaded: Any) -> Iterator[Kanon]:
    with kanon_db.connect(parties.dsn_of("publisher")) as connected:
        yield connected


def test_the_rows_are_the_same(parties: Parties, published: Path, loaded: Any) -> None:
    assert (loaded.name, loaded.records) == ("people_b", 4_000)
    for suffix in ("qit", "sat"):
        files = data.read(published, suffix)
        names = ", ".join(f'"{name}"' for name in files.column_names)
        rows = fetch(parties.analyst, f"SELECT {names} FROM published.people_b_{suffix}")
        assert rows == [tuple(row.values()) for row in files.to_pylist()]


def test_it_is_verified_and_measured_there(spark: Any, published: Path, kanon: Kanon) -> None:
    assert kanon.verify("people_b")["holds"].all()
    here = {one.metric: one.value for one in on_spark.metrics(spark, str(published))}
    there = kanon.metrics("people_b")
    found = dict(zip(there["metric"], there["value"], strict=True))
    assert {name: found[name] for name in here} == pytest.approx(here)
    exact = kanon.estimate_count("SELECT count(*) FROM people_b WHERE age < 40")
    assert exact.lower_bound == exact.estimate == exact.upper_bound


ASKED = (
    "SELECT count(*) FROM people_b WHERE age < 40 AND disease = 'disease 1'",
    "SELECT sum(age) FROM people_b WHERE age > 60 AND disease <> 'disease 2'",
)


def test_weights_are_learned_there(spark: Any, weighted: Path, parties: Parties) -> None:
    """Anew, from the same buckets: both sides have the paper's estimates, and weights of theirs."""
    on_spark.load(spark, str(weighted), parties.publisher)
    columns = "SELECT * FROM published.people_w_qit LIMIT 0"
    with parties.publisher.cursor() as cursor:
        described = cursor.execute(columns).description or []
    assert [column.name for column in described] == ["age", "sex", "zip", "bucket_id"]
    for asked in ASKED:
        question = asked.replace("people_b", "people_w")
        (here,), (plain,) = (
            on_spark.estimate(
                spark, str(weighted), question, estimator=estimator, on_warning=lambda _: None
            )
            for estimator in ("published", "paper")
        )
        statement = "SELECT estimate, lower_bound, upper_bound FROM kanon.estimate($1)"
        (there,) = fetch(parties.publisher, statement, question)
        with parties.publisher.transaction():
            fetch(parties.publisher, "SET LOCAL kanon.estimator = 'paper'")
            (paper,) = fetch(parties.publisher, statement, question)
        assert paper == pytest.approx((plain.estimate, plain.lower_bound, plain.upper_bound))
        assert there[1:] == pytest.approx(paper[1:])
        for by_weights in (there[0], here.estimate):
            assert by_weights != pytest.approx(paper[0])
    with kanon_db.connect(parties.dsn_of("publisher")) as connected:
        checks = connected.verify("people_w")
    assert checks["holds"].all()
    assert any("weights of values" in name for name in checks["check"])


def test_what_the_catalog_says(parties: Parties, loaded: Any) -> None:
    row = fetch(
        parties.publisher,
        "SELECT source, guarantee, rows, state FROM kanon.publications WHERE name = 'people_b'",
    )
    assert row == [("people", loaded.guarantee, 4_000, "whole")]
    (release,) = fetch(
        parties.publisher, "SELECT source, columns FROM kanon.releases WHERE name = 'people_b'"
    )
    assert release[0] == "people"
    assert release[1]["sensitive"] == "disease"
    note = "SELECT obj_description(to_regclass('published.people_b_qit'))"
    assert "How to use" in value(parties.analyst, note)


@pytest.mark.parametrize("operation", ["attack", "evaluate_counts"])
def test_what_needs_the_source_is_refused(kanon: Kanon, operation: str) -> None:
    with pytest.raises(NotFoundError, match="source of the publication is not in this database"):
        getattr(kanon, operation)("people_b")


def test_a_grant_needs_the_source(kanon: Kanon) -> None:
    with pytest.raises(NotFoundError, match="not in this database"):
        kanon.grant_publication("people_b", readers=["kanon_publisher"])


def test_replacing_and_combining(
    spark: Any, published: Path, parties: Parties, loaded: Any
) -> None:
    def load(**given: Any) -> Any:
        return on_spark.load(spark, str(published), parties.publisher, **given)

    fetch(parties.admin, "DELETE FROM kanon.setting WHERE name = 'combined_releases'")
    with pytest.raises(DuplicateError):
        load()
    with pytest.raises(RiskError, match="combined_releases") as caught:
        load(publication="again")
    assert "people_b" in caught.value.detail
    accepted = {"combined_releases": "a test of it"}
    assert load(publication="again", accept=accepted).name == "again"
    assert load(publication="others", source_name="other people").name == "others"
    again = load(publication="again", accept=accepted, replace=True)
    assert again.records == 4_000
    reasons = "SELECT parameters->'accept' FROM kanon.publications WHERE name = $1"
    assert value(parties.publisher, reasons, "again") == accepted
    assert value(parties.publisher, reasons, "others") == {}
    with pytest.raises(InvalidParameterError, match="not known"):
        load(publicaton="x")
    with pytest.raises(InvalidParameterError, match="label"):
        load(publication="x", source_name="a\nb")


def test_failures_leave_no_trace(
    spark: Any, published: Path, parties: Parties, tmp_path: Path
) -> None:
    """Files that say something else than the manifest are found out in PostgreSQL."""
    target = tmp_path / "people_b"
    shutil.copytree(published, target)
    tell = data.tamper(target, "sat", data.with_a_count_of_nine)
    relations = "SELECT count(*) FROM pg_class WHERE relnamespace = 'published'::regnamespace"
    before = value(parties.admin, relations)
    with pytest.raises(VerificationError, match="changed"):
        on_spark.load(spark, str(target), parties.publisher, publication="changed")
    tell()
    with pytest.raises(VerificationError):
        on_spark.load(
            spark, str(target), parties.publisher, publication="changed", source_name="changed"
        )
    assert value(parties.admin, relations) == before
    assert fetch(parties.admin, "SELECT FROM kanon.publication WHERE name = 'changed'") == []
    assert fetch(parties.admin, "SELECT FROM kanon.release WHERE name = 'changed'") == []


# -- rows ------------------------------------------------------------------------------------------

N = 600
KINDS = {
    "generalized": (on_spark.publish_generalized, ["age", "born", "pay", "city"]),
    "freeform": (on_spark.publish_freeform, ["age", "born", "city"]),
    "suppressed": (on_spark.publish_suppressed, ["age", "city"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_loaded(spark: Any, kind: str, parties: Parties, tmp_path: Path) -> None:
    source, target = tmp_path / "mixed.parquet", tmp_path / "published" / f"people_{kind[0]}"
    table = data.mixed(N)
    pq.write_table(table, source)
    publish, names = KINDS[kind]
    publish(
        spark, source, str(target), quasi_identifiers=names, sensitive="disease", k=5,
        source_name=f"people {kind}",
    )  # fmt: skip
    dsn = parties.dsn_of("publisher")
    loaded = on_spark.load(spark, str(target), dsn)
    assert loaded.records == N
    here = {one.metric: one.value for one in on_spark.metrics(spark, str(target))}
    with kanon_db.connect(dsn) as kanon:
        checks = kanon.verify(target.name)
        assert checks["holds"].all(), checks
        there = kanon.metrics(target.name).set_index("metric")["value"]
        assert set(here) <= set(there.index)
        for name, measured in here.items():
            assert there[name] == pytest.approx(measured), name
        question = f"SELECT count(*) FROM {target.name} WHERE disease = 'disease 1' AND age < 40"
        found = kanon.estimate_count(question)
    true = sum(
        row["disease"] == "disease 1" and row["age"] is not None and row["age"] < 40
        for row in table.to_pylist()
    )
    assert found.lower_bound <= true <= found.upper_bound
    assert found.lower_bound <= found.estimate <= found.upper_bound
    shares = "SELECT count(*) > 0 FROM published." + target.name
    assert fetch(parties.analyst, shares) == [(True,)]


def test_files_that_break_their_promise_are_not_loaded(
    spark: Any, parties: Parties, tmp_path: Path
) -> None:
    """The checks on the files find it, before anything is copied."""
    source, target = tmp_path / "mixed.parquet", tmp_path / "published" / "people_x"
    pq.write_table(data.mixed(N), source)
    on_spark.publish_suppressed(
        spark, source, str(target), quasi_identifiers=["age", "city"], sensitive="disease", k=5
    )
    data.tamper(target, "rows", lambda rows: rows.slice(1))()
    with pytest.raises(VerificationError, match="changed"):
        on_spark.load(spark, str(target), parties.publisher)


def test_rows_with_several_sensitive_attributes(
    spark: Any, people: str, tmp_path: Path, parties: Parties
) -> None:
    """They are verified there for each, and the ledger names them."""
    frame = spark.read.parquet(people).selectExpr(
        "age", "zip", "disease", "cast(id % 4 AS string) AS cost"
    )
    roles = {"quasi_identifiers": ["age", "zip"], "sensitive": "disease"}
    target = tmp_path / "several"
    on_spark.publish_generalized(
        spark, frame, str(target), source_name="several", **roles, also_sensitive=["cost"], k=5,
        method="mondrian", refine=False, constraints={"l": 3, "attributes": {"cost": {"l": 2}}},
    )  # fmt: skip
    on_spark.load(spark, str(target), parties.publisher)
    with kanon_db.connect(parties.dsn_of("publisher")) as kanon:
        verified = kanon.verify("several")
    assert verified["holds"].all()
    assert "distinct l-diversity of every class of cost" in set(verified["check"])
    columns = value(parties.publisher, "SELECT columns FROM kanon.releases WHERE name = 'several'")
    assert columns["also_sensitive"] == ["cost"]
