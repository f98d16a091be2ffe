"""What an attacker looks at beside published rows: their order, and their files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kanon_db import spark as on_spark
from kanon_db.spark import _coded_records
from kanon_db.spark.kinds import _bucket_dealing
from tests.spark import data

N = 4_000
K = 5


@pytest.fixture(scope="module", params=["generalized", "suppressed", "freeform"])
def sorted_rows(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[Any, Path]:
    """Rows of a source that is sorted by its only quasi-identifier, with everybody's number.

    Parts are small and there are several files, as of a large table. Those who share a class, or a
    segment, stand next to each other in the source.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp(request.param)
    who = np.arange(N)
    value = [f"v{number}" for number in who % 7]
    table = pa.table({"who": who, "place": who // 8, "value": value})
    pq.write_table(table, folder / "source.parquet", row_group_size=500)
    target = folder / "sorted_rows"
    options = {"options": {"partition_size": 250, "refine": False}}
    asked: dict[str, Any] = {
        "generalized": {"method": "mondrian", "refine": False}, "suppressed": {},
        "freeform": options,
    }[request.param]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_bucket_dealing, "_RECORDS_OF_PART", 512)
        patch.setattr(_coded_records, "RECORDS_OF_PART", 500)
        getattr(on_spark, f"publish_{request.param}")(
            spark, folder / "source.parquet", str(target), quasi_identifiers=["place"],
            sensitive="value", insensitive=["who"], k=K, **asked,
        )  # fmt: skip
    return data.read(target, "rows")["who"].to_numpy(), target


def test_order_of_rows(sorted_rows: tuple[Any, Path]) -> None:
    """Rows are in a random order, which is neither that of the source nor that of classes.

    Of a random order, a correlation above 5 / sqrt(n) has a chance below one in a million. Two of
    eight records that are alike stand next to each other for about seven pairs of neighbors.
    """
    who, _ = sorted_rows
    assert sorted(who.tolist()) == list(range(N))
    most = 5 / np.sqrt(N)
    assert abs(np.corrcoef(who, np.arange(N))[0, 1]) < most
    assert abs(np.corrcoef(who[1:], who[:-1])[0, 1]) < most
    assert np.count_nonzero(who[1:] // 8 == who[:-1] // 8) < 30


def test_sizes_of_files(sorted_rows: tuple[Any, Path]) -> None:
    """Files differ in size by chance alone, and records of all parts of the source are in each."""
    import pyarrow.parquet as pq

    _, target = sorted_rows
    (release,) = target.glob("release-*")
    tables = [pq.read_table(file) for file in sorted((release / "rows").glob("part-*"))]
    assert len(tables) == 8
    expected = N / len(tables)
    chi_square = sum((table.num_rows - expected) ** 2 / expected for table in tables)
    assert chi_square < 40  # of 7 degrees of freedom; above it with a chance of 1e-6
    for table in tables:
        of_quarters = Counter((table["who"].to_numpy() * 4 // N).tolist())
        quarter = table.num_rows / 4
        assert sum((n - quarter) ** 2 / quarter for n in of_quarters.values()) < 35  # of 3: 1e-7
        assert len(of_quarters) == 4


def test_files_have_nothing_else(sorted_rows: tuple[Any, Path]) -> None:
    """No file has keys, numbers of records or of classes, or matches."""
    import pyarrow.parquet as pq

    _, target = sorted_rows
    assert sorted(path.name[:8] for path in target.iterdir()) == ["manifest", "release-"]
    (release,) = target.glob("release-*")
    assert [path.name for path in release.iterdir()] == ["rows"]
    for file in (release / "rows").glob("part-*"):
        assert set(pq.read_schema(file).names) <= {"who", "place", "value", "pattern"}
    assert [path.name for path in target.parent.glob(".kanon-*")] == []
