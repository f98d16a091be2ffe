"""Records of people that nobody is, as Parquet and as rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

ROLES: dict[str, Any] = {"quasi_identifiers": ["age", "sex", "zip"], "sensitive": "disease"}
SETTINGS = {
    "spark__executor__memory": "700m",
    "spark__driver__memory": "700m",
    "spark__sql__shuffle__partitions": "2",
    "spark__default__parallelism": "2",
    "spark__driver__extraJavaOptions": (JAVA := "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    "spark__executor__extraJavaOptions": JAVA,
}
"""Of sessions: few and small parts, and code that is compiled once, since it does not run long."""

THETA = {"theta": 3, "base": 0.02}
ASKED: dict[str, Any] = {**ROLES, "privacy": THETA, "assignment": "random"}


def table(n: int, seed: int = 7) -> Any:
    """Return an Arrow table; NULL is a sensitive value, and a quasi-identifier."""
    import pyarrow as pa

    random = np.random.default_rng(seed)
    diseases = [None, *(f"disease {i}" for i in range(1, 12))]
    zips = [None, *range(100)]
    return pa.table(
        {
            "id": pa.array(np.arange(n)),
            "age": pa.array(random.integers(18, 90, n).astype(np.int32)),
            "sex": pa.array(np.array(["f", "m"])[random.integers(0, 2, n)]),
            "zip": pa.array([zips[i] for i in random.integers(0, 101, n)], pa.int64()),
            "disease": pa.array(
                [diseases[i] for i in np.minimum(random.geometric(0.2, n) - 1, 11)]
            ),
        }
    )


def related(n: int, seed: int = 7) -> Any:
    """Return a table of whose people an age decides on the disease, for most."""
    import pyarrow as pa

    whole = table(n, seed)
    diseases = [
        own if number % 4 == 0 else f"disease {age // 15}"
        for number, age, own in zip(
            *(whole[name].to_pylist() for name in ("id", "age", "disease")), strict=True
        )
    ]
    return whole.set_column(4, "disease", pa.array(diseases))


def write(
    folder: Path, n: int, *, files: int = 1, seed: int = 7, make: Callable[..., Any] = table
) -> str:
    """Write a table to Parquet files in a folder, and return its path."""
    import pyarrow.parquet as pq

    whole = make(n, seed)
    size = -(-n // files) or 1
    for i in range(files):
        pq.write_table(whole.slice(i * size, size), folder / f"{i}.parquet")
    return str(folder)


def read(folder: Path, suffix: str) -> Any:
    """Read the rows of a published table in the order of its files, without Spark."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (release,) = folder.glob("release-*")
    return pa.concat_tables(
        pq.read_table(file) for file in sorted((release / suffix).glob("part-*"))
    )


def rows(table: Any) -> Counter[Any]:
    """Count the rows of a table."""
    return Counter(tuple(row.values()) for row in table.to_pylist())


def require_own_values(target: Path, who: str, sensitive: str, values: Any) -> None:
    """Require that buckets have the values of the very records that are in them."""
    told = Counter((row["bucket_id"], values[row[who]]) for row in read(target, "qit").to_pylist())
    assert told == {
        (row["bucket_id"], row[sensitive]): row["count"] for row in read(target, "sat").to_pylist()
    }


def tamper(target: Path, table: str, change: Callable[[Any], Any]) -> Callable[[], None]:
    """Change the first file of a table; what is returned lets the manifest say so, too."""
    import pyarrow.parquet as pq

    (file, *_) = sorted(target.glob(f"release-*/{table}/part-*"))
    pq.write_table(change(pq.read_table(file)), file)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)

    def tell() -> None:
        manifest = json.loads((target / "manifest.json").read_text())
        for described in (one for each in manifest["tables"].values() for one in each["files"]):
            if described["name"] == file.name:
                described["size"] = file.stat().st_size
        (target / "manifest.json").write_text(json.dumps(manifest))

    return tell


def with_a_count_of_nine(sat: Any) -> Any:
    """Let the first row of a sensitive table have another count."""
    import pyarrow as pa

    return sat.set_column(2, "count", pa.array([9, *sat["count"].to_pylist()[1:]], "int32"))


ROWS: dict[str, Any] = {
    "quasi_identifiers": ["age", "born", "pay", "city"],
    "sensitive": "disease",
    "insensitive": ["id"],
}
"""The roles of :func:`mixed`; the number of each person is published, so that tests can follow."""


def mixed(n: int, seed: int = 3) -> Any:
    """Return an Arrow table with NULLs, whole numbers, dates, decimals and texts."""
    import pyarrow as pa

    random = np.random.default_rng(seed)
    day = date(1950, 1, 1)
    ages = [None if one == 25 else int(one) for one in random.integers(18, 60, n)]
    born = [day + timedelta(days=int(i)) for i in random.integers(0, 200, n)]
    cities = [None, "Ulm", "Köln", "New York", 'a "quoted" one']
    diseases = [None, *(f"disease {i}" for i in range(1, 6))]
    return pa.table(
        {
            "id": pa.array(np.arange(n)),
            "age": pa.array(ages, pa.int32()),
            "born": pa.array(born),
            "pay": pa.array([Decimal(int(i)) / 2 for i in random.integers(0, 50, n)],
                            pa.decimal128(6, 1)),
            "city": pa.array([cities[i] for i in random.integers(0, 5, n)]),
            "disease": pa.array([diseases[i] for i in random.integers(0, 6, n)]),
        }
    )  # fmt: skip
