"""Rows made on Spark, in PostgreSQL: verified there, measured the same, and answering queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kanon_db
from kanon_db import spark as on_spark
from kanon_db.errors import VerificationError
from tests.integration.parties import Parties, fetch, parties
from tests.spark import data

__all__ = ["parties"]

N = 600
KINDS = {
    "generalized": (on_spark.publish_generalized, ["age", "born", "pay", "city"]),
    "freeform": (on_spark.publish_freeform, ["age", "born", "city"]),
    "suppressed": (on_spark.publish_suppressed, ["age", "city"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_loaded(spark: Any, kind: str, parties: Parties, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    source, target = tmp_path / "mixed.parquet", tmp_path / "published" / f"people_{kind[0]}"
    table = data.mixed(N)
    pq.write_table(table, source)
    publish, names = KINDS[kind]
    publish(
        spark, source, str(target), quasi_identifiers=names, sensitive="disease", k=5,
        source_name=f"people {kind}",
    )  # fmt: skip
    dsn = f"{parties.dsn} user={parties.publisher.info.user}"
    loaded = on_spark.load(spark, str(target), dsn)
    assert loaded.records == N
    here = {one.metric: one.value for one in on_spark.metrics(spark, str(target))}
    with kanon_db.connect(dsn) as kanon:
        checks = kanon.verify(target.name)
        assert checks["holds"].all(), checks
        there = kanon.metrics(target.name).set_index("metric")["value"]
        assert set(here) <= set(there.index)
        for name, value in here.items():
            assert there[name] == pytest.approx(value), name
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
    import pyarrow.parquet as pq

    source, target = tmp_path / "mixed.parquet", tmp_path / "published" / "people_x"
    pq.write_table(data.mixed(N), source)
    on_spark.publish_suppressed(
        spark, source, str(target), quasi_identifiers=["age", "city"], sensitive="disease", k=5
    )
    (file, *_) = sorted(target.glob("release-*/rows/part-*"))
    pq.write_table(pq.read_table(file).slice(1), file)
    file.with_name(f".{file.name}.crc").unlink()
    manifest = json.loads((target / "manifest.json").read_text())
    for described in manifest["tables"][""]["files"]:
        if described["name"] == file.name:
            described["size"] = file.stat().st_size
    (target / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(VerificationError, match="changed"):
        on_spark.load(spark, str(target), parties.publisher)
