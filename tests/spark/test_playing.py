"""Attacks and evaluations on Spark find what those of PostgreSQL find, of the same publication."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kanon_db import spark as on_spark
from kanon_db.catalog.entries import Source, find_publication, published_schema
from kanon_db.errors import InvalidParameterError, NotFoundError, SchemaMismatchError
from kanon_db.publications.buckets.bucket_measurement import attack_buckets, evaluate_buckets
from kanon_db.publications.kind import SELECTIVITY, AttackTarget, Workload
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.columns import Relation, column_types, find_relation
from tests.integration.parties import Parties, create_table, parties
from tests.spark import data

__all__ = ["parties"]

DRAWN = ("deFinetti", "correlations of the source", "minimality")
"""Attacks that draw something at random."""


@pytest.fixture(scope="module")
def published(spark: Any, people: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("published") / "people_b"
    on_spark.publish_buckets(spark, people, str(target), source_name="people", **data.ASKED)
    return target


def target_of(session: PsycopgSession) -> AttackTarget:
    """Set the loaded publication against a table with the same people."""
    source = Source(
        0, Relation("data", "people"), tuple(data.ROLES["quasi_identifiers"]), "disease", (), {},
        ("id", "age", "sex", "zip", "disease"),
    )  # fmt: skip
    _, oid, _ = find_relation(session, "data.people")
    return AttackTarget(
        session, find_publication(session, "people_b"), source, column_types(session, oid),
        published_schema(session), Allowance.of(session),
    )  # fmt: skip


def test_the_same_is_found_in_postgresql(
    spark: Any, published: Path, people: str, parties: Parties
) -> None:
    on_spark.load(spark, str(published), parties.publisher)
    create_table(
        parties.publisher, "data.people", "id int8, age int4, sex text, zip int8, disease text",
        [list(row.values()) for row in data.table(4_000).to_pylist()],
    )  # fmt: skip
    heard: list[str] = []
    here = on_spark.attack(spark, str(published), people, on_warning=heard.append)
    accuracy = on_spark.evaluate_counts(spark, str(published), people, queries=200, seed=3)
    session = PsycopgSession(parties.publisher)
    with session.transaction():
        there = attack_buckets(target_of(session))
        expected = evaluate_buckets(target_of(session), Workload(200, None, SELECTIVITY, 3))
    assert [one.attack for one in here] == [one.attack for one in there]
    for one, other in zip(here, there, strict=True):
        if one.attack not in DRAWN:
            assert one == other
        elif one.bound is not None:
            assert one.bound == pytest.approx(other.bound, abs=0.05)
    assert accuracy == expected


def test_what_is_refused(spark: Any, published: Path, people: str) -> None:
    frame = spark.read.parquet(people)
    with pytest.raises(NotFoundError, match="lost columns"):
        on_spark.attack(spark, str(published), frame.drop("zip"))
    changed = frame.withColumn("zip", frame["zip"].cast("string"))
    with pytest.raises(SchemaMismatchError, match="changed"):
        on_spark.evaluate_counts(spark, str(published), changed)
    with pytest.raises(InvalidParameterError):
        on_spark.evaluate_counts(spark, str(published), people, queries=0)
    with pytest.raises(NotFoundError):
        on_spark.attack(spark, str(published) + "_not", people)
