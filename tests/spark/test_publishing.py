"""What is published on Spark: whole, verified, and the same as in PostgreSQL."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kanon_db import spark as on_spark
from kanon_db.algorithms.bucketization import two_size
from kanon_db.algorithms.bucketization.privacy import PrivacySpecification
from kanon_db.errors import (
    DuplicateError,
    IneligibleError,
    InvalidNameError,
    InvalidParameterError,
    NotFoundError,
    RiskError,
    SchemaMismatchError,
    VerificationError,
)
from kanon_db.spark.environment import spark_session
from tests.spark import data


def test_every_record_is_published_once(published: Path, people: str) -> None:
    source = data.table(4_000)
    qit, sat = data.read(published, "qit"), data.read(published, "sat")
    names = data.ROLES["quasi_identifiers"]
    assert qit.column_names == [*names, "bucket_id"]
    assert sat.column_names == ["bucket_id", "disease", "count"]
    assert data.rows(qit.select(names)) == data.rows(source.select(names))
    values: Counter[Any] = Counter()
    for row in sat.to_pylist():
        values[row["disease"]] += row["count"]
    assert values == Counter(source["disease"].to_pylist())
    sizes = Counter(qit["bucket_id"].to_pylist())
    filled: Counter[Any] = Counter()
    for row in sat.to_pylist():
        filled[row["bucket_id"]] += row["count"]
    assert sizes == filled


def test_setting_and_loss_follow_from_the_counts(spark: Any, published: Path) -> None:
    counts = Counter(data.table(4_000)["disease"].to_pylist())
    privacy = PrivacySpecification.parse(json.dumps(data.THETA))
    labels = sorted(counts, key=str)
    numbers = [counts[label] for label in labels]
    setting = two_size(numbers, privacy.thresholds(labels, numbers), 50)
    found = {one.metric: one.value for one in on_spark.metrics(spark, str(published))}
    assert found["loss"] == setting.loss
    assert found["buckets"] == setting.n_buckets
    assert all(found[f"buckets_of_size_{size}"] == n for size, n in setting.pairs)


def test_verification_holds_and_finds_what_was_changed(
    spark: Any, published: Path, tmp_path: Path
) -> None:
    checks = on_spark.verify(spark, str(published))
    assert checks
    assert all(check.holds for check in checks)
    target = tmp_path / "people_b"
    shutil.copytree(published, target)
    tell = data.tamper(target, "sat", data.with_a_count_of_nine)
    (amiss, *others) = on_spark.verify(spark, str(target))
    assert not amiss.holds
    assert others == []
    with pytest.raises(VerificationError, match="changed"):
        on_spark.metrics(spark, str(target))
    # Whoever can write files can also write the manifest: then the rows tell.
    tell()
    failed = {check.check for check in on_spark.verify(spark, str(target)) if not check.holds}
    assert "SAT: every bucket has the size that follows from its number" in failed


def test_replacing_and_the_ledger(spark: Any, published: Path, people: str, tmp_path: Path) -> None:
    target = tmp_path / "published" / "people_b"
    shutil.copytree(published.parent, target.parent)
    asked = {**data.ASKED, "source_name": "people"}
    with pytest.raises(DuplicateError):
        on_spark.publish_buckets(spark, people, str(target), **asked)
    with pytest.raises(RiskError, match="combined_releases"):
        on_spark.publish_buckets(spark, people, str(target), replace=True, **asked)
    with pytest.raises(RiskError, match="combined_releases"):
        on_spark.publish_buckets(spark, people, str(target.parent / "other"), **asked)
    accepted = {"combined_releases": "a test of it"}
    again = on_spark.publish_buckets(
        spark, people, str(target), replace=True, accept=accepted, **asked
    )
    assert again.records == 4_000
    assert len(list(target.glob("release-*"))) == 1
    lines = on_spark.releases(spark, str(target.parent))
    assert [line["name"] for line in lines] == ["people_b", "people_b"]
    assert [line["replaces"] for line in lines] == [None, lines[0]["release"]]
    assert lines[0]["columns"] == ["age", "sex", "zip", "disease"]
    assert lines[0]["digest"] != lines[1]["digest"]
    assert any("accepted risk" in check.check for check in on_spark.verify(spark, str(target)))


def test_a_dry_run_leaves_nothing(spark: Any, people: str, target: Path) -> None:
    found = on_spark.publish_buckets(spark, people, str(target), dry_run=True, **data.ASKED)
    assert found.metrics["records"] == 4_000
    assert list(target.parent.iterdir()) == []
    with pytest.raises(NotFoundError, match="there is no publication"):
        on_spark.verify(spark, str(target))


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"privacy": {"l": 50}}, IneligibleError, "no publication can satisfy"),
        ({"sensitive": "ilness"}, NotFoundError, "no such column"),
        ({"readers": ["x"]}, InvalidParameterError, "readers"),
        ({"privcy": {"l": 2}}, InvalidParameterError, "privcy"),
        ({"assignment": "m_invariant", "privacy": {"l": 2}}, InvalidParameterError, "on Spark"),
        ({"estimates": "uncapped"}, RiskError, "uncapped_estimates"),
        ({"entity": "id", "identifiers": ["id"]}, InvalidParameterError, "only one role"),
        ({"options": {"time_limit": 3}}, InvalidParameterError, "time_limit"),
    ],
)
def test_refusals_leave_nothing(
    spark: Any, people: str, target: Path, given: dict[str, Any], error: type, text: str
) -> None:
    with pytest.raises(error) as caught:
        on_spark.publish_buckets(spark, people, str(target), **{**data.ASKED, **given})
    assert text in f"{caught.value.message} {caught.value.detail} {caught.value.hint}"
    assert not target.parent.exists() or list(target.parent.iterdir()) == []


def test_sources(spark: Any, people: str, target: Path) -> None:
    frame = spark.read.parquet(people)
    with pytest.raises(InvalidParameterError, match="needs a name"):
        on_spark.publish_buckets(spark, frame, str(target), **data.ASKED)
    found = on_spark.publish_buckets(
        spark, frame, str(target), source_name="people", **data.ASKED, entity="id"
    )
    assert found.records == 4_000
    with pytest.raises(NotFoundError):
        on_spark.publish_buckets(spark, people + "/none", str(target.parent / "n"), **data.ASKED)
    several = frame.withColumn("id", frame["id"] % 100)
    with pytest.raises(InvalidParameterError, match="same entity"):
        on_spark.publish_buckets(
            spark, several, str(target.parent / "s"), source_name="s", **data.ASKED, entity="id"
        )
    inexact = frame.withColumn("disease", frame["age"].cast("double"))
    with pytest.raises(SchemaMismatchError, match="inexact"):
        on_spark.publish_buckets(
            spark, inexact, str(target.parent / "i"), source_name="i", **data.ASKED
        )
    with pytest.raises(InvalidNameError, match="releases"):
        on_spark.publish_buckets(spark, people, str(target.parent / "releases"), **data.ASKED)


def test_other_files_are_left_alone(spark: Any, people: str, target: Path) -> None:
    target.mkdir(parents=True)
    (target / "letters").write_text("mine")
    with pytest.raises(InvalidParameterError, match="other files"):
        on_spark.publish_buckets(spark, people, str(target), **data.ASKED)
    assert (target / "letters").read_text() == "mine"
    assert sorted(path.name for path in target.parent.iterdir()) == ["people_b"]


def test_an_open_session_stays_open(spark: Any, spark_master: str) -> None:
    """Whoever opened it ends it."""
    with spark_session(spark_master) as again:
        assert again.range(2).count() == 2
    assert spark.range(3).count() == 3
