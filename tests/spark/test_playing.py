"""Attacks on files find what those of PostgreSQL find, and counts are what readers get."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kanon_db import spark as on_spark
from kanon_db.answers.estimates import measure_usefulness
from kanon_db.catalog.entries import Source, find_publication, published_schema
from kanon_db.errors import (
    InvalidParameterError,
    NotFoundError,
    SchemaMismatchError,
    VerificationError,
)
from kanon_db.metrics.count_queries import CountErrors, exact_counts, random_queries
from kanon_db.publications import KINDS
from kanon_db.publications.buckets.bucket_measurement import attack_buckets
from kanon_db.publications.kind import SELECTIVITY, AttackTarget, RandomQueries, Workload
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.columns import Relation, column_types, find_relation
from kanon_db.transfer.snapshot import take_snapshot
from kanon_db.transfer.values import distinct_values, read_codes
from tests.integration.parties import Parties, create_table, parties
from tests.spark import data

__all__ = ["parties"]

N = 600
TYPES = 'id int8, age int4, born date, pay numeric(6,1), city text COLLATE "C", disease text'
KINDS_OF_ROWS: dict[str, tuple[Any, list[str], dict[str, Any]]] = {
    "generalized": (
        on_spark.publish_generalized,
        ["age", "born", "pay", "city"],
        {"method": "mondrian", "refine": False, "constraints": {"l": 2, "default": 0.8}},
    ),
    "freeform": (on_spark.publish_freeform, ["age", "born", "city"], {}),
    "suppressed": (on_spark.publish_suppressed, ["age", "city"], {}),
}
DRAWN = ("deFinetti", "correlations of the source")
"""Attacks that draw something at random."""

SURER = "surer than the bound: deFinetti"


@dataclass(frozen=True)
class Made:
    """A publication in files, and what it was made from."""

    kind: str
    source: str
    target: Path
    names: list[str]


@pytest.fixture(scope="module", params=KINDS_OF_ROWS)
def made(request: pytest.FixtureRequest, spark: Any, tmp_path_factory: Any) -> Made:
    pq = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path_factory.mktemp("rows")
    pq.write_table(data.mixed(N), folder / "mixed.parquet")
    source, target = str(folder / "mixed.parquet"), folder / "published" / f"p_{request.param}"
    publish, names, given = KINDS_OF_ROWS[request.param]
    publish(
        spark, source, str(target), quasi_identifiers=names, sensitive="disease", k=5,
        source_name=request.param, **given,
    )  # fmt: skip
    return Made(request.param, source, target, names)


@pytest.fixture(scope="module")
def mixed_table(parties: Parties) -> None:
    rows = [list(row.values()) for row in data.mixed(N).to_pylist()]
    create_table(parties.publisher, "data.mixed", TYPES, rows)


def target_of(
    session: PsycopgSession, name: str, relation: str, names: list[str], columns: str
) -> AttackTarget:
    """Set a loaded publication against a table with the same people."""
    source = Source(
        0, Relation("data", relation), tuple(names), "disease", (), {}, tuple(columns.split())
    )
    _, oid, _ = find_relation(session, f"data.{relation}")
    return AttackTarget(
        session, find_publication(session, name), source, column_types(session, oid),
        published_schema(session), Allowance.of(session),
    )  # fmt: skip


@pytest.mark.usefixtures("mixed_table")
def test_the_same_is_found_in_postgresql(spark: Any, made: Made, parties: Parties) -> None:
    on_spark.load(spark, str(made.target), parties.publisher)
    here = on_spark.attack(spark, str(made.target), made.source)
    accuracy = on_spark.evaluate_counts(spark, str(made.target), made.source, queries=90, seed=3)
    kind, session = KINDS[made.kind].load(), PsycopgSession(parties.publisher)
    with session.transaction():
        columns_of_mixed = "id age born pay city disease"
        target = target_of(session, made.target.name, "mixed", made.names, columns_of_mixed)
        there = kind.attack(target)
        snapshot = take_snapshot(
            session, target.source.relation, [*made.names, "disease"], target.room
        )
        columns = [distinct_values(snapshot, target.types[name]) for name in made.names]
        sensitive = distinct_values(snapshot, target.types["disease"])
        n_values = [len(column.labels) for column in columns]
        queries = random_queries(
            90, n_values, len(sensitive.labels), np.random.default_rng(3),
            dimensionality=range(1, len(columns) + 1), selectivity=SELECTIVITY,
        )  # fmt: skip
        actual = exact_counts(
            read_codes(snapshot, columns), read_codes(snapshot, [sensitive])[:, 0], queries
        )
        asked = RandomQueries(columns, sensitive, queries, actual)
        answers = measure_usefulness(target, asked).answers
    assert [one.attack for one in here] == [one.attack for one in there]
    assert {"linking a row", "homogeneity", "most frequent value"} <= {one.attack for one in here}
    for one, other in zip(here, there, strict=True):
        assert (one.people, one.bound) == (other.people, other.bound)
        if one.attack not in DRAWN:
            assert one == other
    errors = CountErrors(actual, answers)
    assert accuracy[-1].n_queries == 90
    assert accuracy[-1].mean_relative_error == pytest.approx(errors.mean, rel=1e-9)
    assert accuracy[-1].median_relative_error == pytest.approx(errors.median, rel=1e-9)


def test_a_person_is_linked_to_the_rows_that_cover_them(spark: Any, made: Made) -> None:
    """Counted here from files and records, without codes."""
    people = data.mixed(N).to_pylist()
    rows = data.read(made.target, "rows").to_pylist()

    def is_covered(row: dict[str, Any], person: dict[str, Any], place: int, name: str) -> bool:
        cell, value = row[name], person[name]
        if made.kind == "suppressed":
            return row["pattern"][place] == "*" or cell == value
        if isinstance(cell, list):
            return value in cell
        if cell is None or value is None:
            return cell is value or (cell is not None and cell["lower"] is None)
        return cell["lower"] is None or bool(cell["lower"] <= value <= cell["upper"])

    shares = []
    for person in people:
        candidates = sum(
            all(is_covered(row, person, place, name) for place, name in enumerate(made.names))
            for row in rows
        )
        shares.append(1 / candidates if candidates else 0.0)
    found = {one.attack: one for one in on_spark.attack(spark, str(made.target), made.source)}
    linked = found["linking a row"]
    assert linked.people == N
    assert linked.rate == pytest.approx(np.mean(shares), rel=1e-9)


def test_what_is_refused(spark: Any, made: Made) -> None:
    frame = spark.read.parquet(made.source)
    with pytest.raises(NotFoundError, match="lost columns"):
        on_spark.attack(spark, str(made.target), frame.drop("city"))
    changed = frame.withColumn("age", frame["age"].cast("bigint"))
    with pytest.raises(SchemaMismatchError, match="changed"):
        on_spark.evaluate_counts(spark, str(made.target), changed)


def test_people_who_came_and_went(spark: Any, made: Made) -> None:
    """Values that the source no longer has are covered by nothing, and new ones by no row."""
    from pyspark.sql import functions as f

    frame = spark.read.parquet(made.source)
    others = frame.where("age IS NOT NULL AND age < 40").withColumn(
        "disease", f.when(f.col("id") % 7 == 0, f.lit("a new one")).otherwise(f.col("disease"))
    )
    found = {one.attack: one for one in on_spark.attack(spark, str(made.target), others)}
    assert found["linking a row"].people == others.count()
    accuracy = on_spark.evaluate_counts(spark, str(made.target), others, queries=20, seed=1)
    assert accuracy[-1].n_queries == 20


def test_tampered_files_are_refused(spark: Any, made: Made, tmp_path: Path) -> None:
    import shutil

    target = tmp_path / made.target.name
    shutil.copytree(made.target, target)
    data.tamper(target, "rows", lambda rows: rows.slice(1))()
    for play in (on_spark.attack, on_spark.evaluate_counts):
        with pytest.raises(VerificationError, match="changed"):
            play(spark, str(target), made.source)


def test_an_order_that_is_drawn_leaves_more_rows(spark: Any, tmp_path: Path) -> None:
    """The last one is like three others in the first column, and like three in the second."""
    rows = [(0, 0), (0, 1), (0, 2), (3, 5), (4, 5), (6, 5), (0, 5)]
    frame = spark.createDataFrame(rows, "a int, b int")
    for order, share in (("cheapest_first", 2), ("drawn", 3 / 4 + 3 / 3 + 1 / 7)):
        target = str(tmp_path / order / "tied")
        on_spark.publish_suppressed(
            spark, frame, target, quasi_identifiers=["a", "b"], k=3, source_name="tied",
            options={"order": order},
        )  # fmt: skip
        found = {one.attack: one for one in on_spark.attack(spark, target, frame)}
        assert found["refinement: linking a row"].rate == pytest.approx(share / len(rows))


# -- buckets ---------------------------------------------------------------------------------------


def test_the_same_is_found_of_buckets(
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
        names = data.ROLES["quasi_identifiers"]
        target = target_of(session, "people_b", "people", names, "id age sex zip disease")
        there = attack_buckets(target)
        expected = KINDS["buckets"].load().evaluate(target, Workload(200, None, SELECTIVITY, 3))
    assert [one.attack for one in here] == [one.attack for one in there]
    for one, other in zip(here, there, strict=True):
        if not one.attack.endswith((*DRAWN, "minimality")):
            assert one == other
        elif one.bound is not None and one.attack != SURER:
            assert one.bound == pytest.approx(other.bound, abs=0.05)
    assert accuracy == expected


def test_what_is_refused_of_buckets(spark: Any, published: Path, people: str) -> None:
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
