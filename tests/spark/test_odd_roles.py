"""Roles that are probably mistakes: what registering in PostgreSQL warns of, where it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kanon_db
from kanon_db import spark as on_spark
from tests.integration.parties import Parties, parties

__all__ = ["parties"]

N = 400
ROLES: dict[str, Any] = {
    "quasi_identifiers": ["weight", "age"],
    "sensitive": "disease",
    "identifiers": ["person", "number"],
    "insensitive": ["code", "e_mail", "shop", "nothing"],
}
PRIVACY = {"privacy": {"theta": 2, "base": 0.02}}


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    """Weights, codes and numbers occur once; persons twice; shops, with NULLs, often."""
    random = np.random.default_rng(1)
    return spark.createDataFrame(
        [
            (
                float(i) / 7, int(random.integers(20, 60)), f"d{random.integers(0, 9)}",
                f"person {i // 2}", i, f"code {i}" if i % 3 else None, f"mail {i % 5}",
                None if i % 2 else f"shop {i % 8}", None,
            )
            for i in range(N)
        ],
        "weight double, age int, disease string, person string, number bigint, code string,"
        " e_mail string, shop string, nothing string",
    )  # fmt: skip


def heard(spark: Any, kind: str, source: Any, target: Path, roles: Any, **asked: Any) -> list[str]:
    said: list[str] = []
    getattr(on_spark, f"publish_{kind}")(
        spark, source, str(target), source_name="data.people", on_warning=said.append, **roles,
        **asked,
    )  # fmt: skip
    return said


def test_what_registering_warns_of_and_is_published(
    spark: Any, frame: Any, target: Path, parties: Parties
) -> None:
    rows = [tuple(row) for row in frame.collect()]
    parties.publisher.execute(
        "CREATE TABLE data.people (weight double precision, age int, disease text, person text,"
        " number bigint, code text, e_mail text, shop text, nothing text)"
    )
    with parties.publisher.cursor() as cursor:
        cursor.executemany(f"INSERT INTO data.people VALUES ({', '.join(['%s'] * 9)})", rows)
    there: list[str] = []
    dsn = parties.dsn_of("publisher")
    with kanon_db.connect(dsn, on_warning=there.append) as kanon:
        kanon.register_source("data.people", **ROLES)
    of_buckets = heard(spark, "buckets", frame, target, ROLES, **PRIVACY)
    elsewhere = target.with_name("elsewhere")  # releases side by side would be a risk
    elsewhere.mkdir()
    of_rows = heard(spark, "suppressed", frame, elsewhere / "rows", ROLES, k=2)
    assert [text.split('"')[1] for text in there] == ["weight", "code", "e_mail", "person"]
    assert of_buckets == [there[0], there[3]], "no insensitive columns are in them"
    assert of_rows == there[1:], "ranges are of weights"


def test_rows_show_ranges(spark: Any, frame: Any, target: Path) -> None:
    roles = {**ROLES, "identifiers": [], "insensitive": ["shop"]}
    assert heard(spark, "suppressed", frame, target, roles, k=2) == []


def test_an_entity_has_one_record(spark: Any, frame: Any, target: Path) -> None:
    roles = {**ROLES, "identifiers": ["person"], "insensitive": [], "entity": "number"}
    (said,) = heard(spark, "buckets", frame, target, roles, **PRIVACY)
    assert said.startswith('quasi-identifier "weight" is nearly unique (100%')


def test_identifiers_that_cannot_be_read(spark: Any, frame: Any, target: Path) -> None:
    from pyspark.sql import functions as f

    broken = frame.withColumn("person", f.raise_error(f.concat(f.lit("x"), f.col("person"))))
    roles = {**ROLES, "quasi_identifiers": ["age"], "insensitive": []}
    (said,) = heard(spark, "buckets", broken, target, roles, **PRIVACY)
    assert said.startswith("the identifiers of data.people cannot be read")
    assert "person 1" not in said


def test_values_that_cannot_be_compared(spark: Any, frame: Any, target: Path) -> None:
    from pyspark.sql import functions as f

    mapped = frame.withColumn("person", f.create_map(f.lit("name"), f.col("person")))
    roles = {**ROLES, "quasi_identifiers": ["age"], "insensitive": []}
    (said,) = heard(spark, "buckets", mapped, target, roles, **PRIVACY)
    assert said.startswith('identifier "person" has recurring values')
