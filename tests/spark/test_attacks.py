"""What an attacker looks at beside the rows: their order, files, statistics, logs and plans."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kanon_db import spark as on_spark
from kanon_db.spark import _tables
from kanon_db.spark.kinds import _bucket_dealing
from tests.spark import data

N = 6_000


@pytest.fixture(scope="module")
def sorted_people(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A source whose order tells the value of everybody, published; each has a row of their own.

    With parts of 512 records there are several files, as of a large table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("sorted")
    values = np.repeat(np.arange(6), N // 6)
    table = pa.table({"who": np.arange(N), "value": [f"v{value}" for value in values]})
    pq.write_table(table, folder / "source.parquet", row_group_size=500)
    target = folder / "sorted_b"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_bucket_dealing, "_RECORDS_OF_PART", 512)
        on_spark.publish_buckets(
            spark, folder / "source.parquet", str(target), quasi_identifiers=["who"],
            sensitive="value", privacy={"default": 0.4}, assignment="random", max_bucket_size=12,
        )  # fmt: skip
    return values, target


def files(target: Path, table: str) -> list[Path]:
    (release,) = target.glob("release-*")
    return sorted((release / table).glob("part-*"))


def correlation(one: Any, other: Any) -> float:
    return abs(float(np.corrcoef(one, other)[0, 1]))


def test_order_of_rows(sorted_people: tuple[Any, Path]) -> None:
    """Rows are in a random order: it is neither that of the source nor that of buckets.

    Of a random order, a correlation above 5 / sqrt(n) has a chance below one in a million.
    """
    values, target = sorted_people
    qit = data.read(target, "qit")
    who, bucket = qit["who"].to_numpy(), qit["bucket_id"].to_numpy()
    place = np.arange(N)
    most = 5 / np.sqrt(N)
    assert correlation(who, place) < most
    assert correlation(bucket, place) < most
    assert correlation(values[who], place) < most
    assert correlation(bucket[1:], bucket[:-1]) < most
    assert correlation(values[who][1:], values[who][:-1]) < most


def test_neighbors_of_one_value(sorted_people: tuple[Any, Path]) -> None:
    """Records of one value, in the order of files, do not go from bucket to bucket in turn.

    If rows were in the order of ranks, the n-th record of one value and the n-th of another were
    dealt to buckets that follow each other in one cycle: the same differences, again and again.
    """
    values, target = sorted_people
    qit = data.read(target, "qit")
    who, bucket = qit["who"].to_numpy(), qit["bucket_id"].to_numpy()
    successors: Counter[tuple[int, int]] = Counter()
    for value in range(6):
        dealt = bucket[values[who] == value]
        successors.update(zip(dealt[:-1].tolist(), dealt[1:].tolist(), strict=True))
    # Of 6,000 pairs of some 2,000 buckets, about five occur twice by chance; in one cycle, all do.
    assert max(bucket) > 1_000
    assert sum(n > 1 for n in successors.values()) < 30


def test_sizes_and_statistics_of_files(sorted_people: tuple[Any, Path]) -> None:
    """Files differ in size by chance alone, and each has all values and buckets of all kinds."""
    import pyarrow.parquet as pq

    values, target = sorted_people
    parts = files(target, "qit")
    assert len(parts) == 16
    sizes = [pq.read_metadata(file).num_rows for file in parts]
    expected = N / len(parts)
    chi_square = sum((size - expected) ** 2 / expected for size in sizes)
    assert chi_square < 50  # of 15 degrees of freedom; above it with a chance of 1e-5
    tables = [pq.read_table(file) for file in parts]
    of_values = np.array(
        [np.bincount(values[table["who"].to_numpy()], minlength=6) for table in tables]
    )
    shares = of_values.sum(axis=1, keepdims=True) / 6
    assert ((of_values - shares) ** 2 / shares).sum() < 160  # of 75; a chance of 1e-7
    means = [float(np.mean(table["bucket_id"].to_numpy())) for table in tables]
    spread = np.std(data.read(target, "qit")["bucket_id"].to_numpy()) / np.sqrt(expected)
    assert np.ptp(means) < 8 * spread


def test_sensitive_table_has_an_order_of_its_own(sorted_people: tuple[Any, Path]) -> None:
    _, target = sorted_people
    rows = [tuple(row.values()) for row in data.read(target, "sat").to_pylist()]
    assert rows == sorted(rows, key=lambda row: (row[1], row[0]))


def test_names_and_metadata_say_nothing(sorted_people: tuple[Any, Path]) -> None:
    """No file has columns, or anything else, that the published tables do not have."""
    import pyarrow.parquet as pq

    _, target = sorted_people
    for table, columns in (("qit", ["who", "bucket_id"]), ("sat", ["bucket_id", "value", "count"])):
        for file in files(target, table):
            assert re.fullmatch(r"part-\d{5}-[0-9a-f-]{36}-c000\.snappy\.parquet", file.name)
            found = pq.read_metadata(file)
            assert found.schema.names == columns
            assert set(found.metadata) <= {
                b"org.apache.spark.version", b"org.apache.spark.sql.parquet.row.metadata",
                b"org.apache.spark.timeZone", b"org.apache.spark.legacyDateTime",
            }  # fmt: skip
    manifest = json.loads((target / "manifest.json").read_text())
    assert not re.search(r"rank|key|seed|token", json.dumps(manifest))


@pytest.fixture(scope="module")
def twice(spark: Any, people: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One source, published twice: the targets, the keys that were drawn, and Spark's plans."""
    targets = [tmp_path_factory.mktemp(name) / "b" for name in ("one", "two")]
    keys: list[bytes] = []
    plans: list[str] = []
    hashes, through = _tables.hashing_with_key, _tables.through_arrow

    def kept(key: bytes) -> Any:
        keys.append(key)
        return hashes(key)

    def planned(*given: Any) -> Any:
        frame = through(*given)
        plans.append(frame._jdf.queryExecution().toString())
        return frame

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_tables, "hashing_with_key", kept)
        patch.setattr(_tables, "through_arrow", planned)
        for target in targets:
            on_spark.publish_buckets(
                spark, people, str(target), quasi_identifiers=["id"], sensitive="disease",
                privacy=data.THETA, assignment="random",
            )  # fmt: skip
    return targets, keys, plans


def test_the_same_source_is_dealt_anew(twice: Any) -> None:
    """Two runs share no chance: about as many pairs of records share a bucket as by accident."""
    found = []
    for target in twice[0]:
        qit = data.read(target, "qit")
        found.append(dict(zip(qit["id"].to_pylist(), qit["bucket_id"].to_pylist(), strict=True)))
    same = sum(found[0][i] == found[1][i] for i in found[0])
    assert same < 40  # of 4,000 records in some 600 buckets, about 10


def test_the_key_is_secret(spark: Any, twice: Any) -> None:
    """Neither plans nor what Spark keeps of a run has the key or what is drawn with it."""
    targets, keys, plans = twice
    assert [len(key) for key in keys] == [32, 32]
    assert keys[0] != keys[1]
    assert "draw" in plans[0]
    store = spark._jsc.sc().statusStore()
    shown = "".join(plans) + "".join(
        str(stage.details()) + str(stage.description())
        for stage in spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(
            store.stageList(None, False, False, spark.sparkContext._gateway.new_array(
                spark._jvm.double, 0), None)
        )
    )  # fmt: skip
    for target, key in zip(targets, keys, strict=True):
        for text in (key.hex(), str(key), str(list(key)), str(int.from_bytes(key, "little"))):
            assert text not in shown
        for path in target.parent.rglob("*"):
            assert not path.is_file() or key not in path.read_bytes()
