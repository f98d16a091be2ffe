"""What parts cost: the loss of publications made on Spark, beside that of one PostgreSQL.

``python -m benchmarks --write spark_loss``. Tables that are larger than one part are looked for in
``data/`` of the folder named by KANON_SHARED, or of ``../shared``.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

import kanon_db
from benchmarks.calibration import DATA
from benchmarks.harness import private_server, table
from kanon_db import spark
from kanon_db.spark import _coded_records
from kanon_db.spark.environment import spark_session, why_unavailable

RECORDS_OF_PART: Final = _coded_records.RECORDS_OF_PART
SMALLER: Final = (2**16, 2**15, 2**14, 2**13)
SEARCHED: Final = "generalized, `greedy_search`"
"""What depends on how many records are searched together."""

K: Final = 10
ALLOWED: Final = 1.03


@dataclass(frozen=True)
class Data:
    """A real table of more records than a part has."""

    file: str
    quasi_identifiers: tuple[str, ...]
    sensitive: str

    @property
    def name(self) -> str:
        """The file's name up to its first underscore or dot."""
        return self.file.split("_")[0].split(".")[0]


TABLES: Final = (
    Data(
        "census1980_fertility.csv.gz",
        ("age", "gender1", "gender2", "morekids", "afam", "hispanic", "other"),
        "work",
    ),
    Data(
        "fars_occupants.csv.gz",
        ("age", "sex", "state", "modelyr", "year", "airbag", "inimpact", "Restraint"),
        "injury",
    ),
)
PRIVACY: Final = {"theta": 2, "base": 0.02}
CASES: Final[dict[str, tuple[str, dict[str, Any], str]]] = {
    "generalized, `mondrian`": (
        "publish_generalized", {"k": K, "method": "mondrian", "refine": False}, "gcp",
    ),
    SEARCHED: (
        "publish_generalized", {"k": K, "method": "greedy_search", "refine": False}, "gcp",
    ),
    "freeform": ("publish_freeform", {"k": K, "options": {"refine": False}}, "gcp"),
    "suppressed": ("publish_suppressed", {"k": K}, "usefulness_loss"),
    "buckets, `random`": (
        "publish_buckets", {"privacy": PRIVACY, "assignment": "random"}, "msbs",
    ),
    "buckets, `cells`": ("publish_buckets", {"privacy": PRIVACY, "assignment": "cells"}, "msbs"),
}  # fmt: skip


def main() -> str:
    """Return the results as Markdown."""
    if reason := why_unavailable():
        raise SystemExit(f"spark_loss is skipped: Spark cannot be run here: {reason}")
    if missing := [data.file for data in TABLES if not (DATA / data.file).exists()]:
        raise SystemExit(f"spark_loss is skipped: {DATA} has no {', '.join(missing)}")
    lines, of_smaller = [], []
    with (
        tempfile.TemporaryDirectory(prefix="kanon-bench-spark-") as folder,
        private_server() as dsn,
        spark_session("local[2]", spark__driver__memory="3g") as session,
    ):
        for data in TABLES:
            source = Path(folder, f"{data.name}.parquet")
            with kanon_db.connect(dsn) as kanon:
                n = kanon.load(DATA / data.file, data.name).records
                write(dsn, data.name, source)
                kanon.register_source(
                    f"public.{data.name}", quasi_identifiers=data.quasi_identifiers,
                    sensitive=data.sensitive,
                )  # fmt: skip
                for number, (case, (function, given, metric)) in enumerate(CASES.items()):
                    name = f"{data.name}_{number}"
                    asked = {"source": f"public.{data.name}", "publication": name}
                    one = kanon.perform(function, asked | given).metrics
                    for size in (RECORDS_OF_PART, *SMALLER) if case == SEARCHED else (None,):
                        _coded_records.RECORDS_OF_PART = size or RECORDS_OF_PART  # type: ignore[misc]
                        other = getattr(spark, function)(
                            session, str(source), f"{folder}/published/{name}_{size}",
                            source_name=f"{name}_{size}", sensitive=data.sensitive,
                            quasi_identifiers=list(data.quasi_identifiers), on_warning=str,
                            **given,
                        ).metrics  # fmt: skip
                        line = _line(data.name, n, case, one[metric], other[metric], other)
                        print(*line, file=sys.stderr)
                        if size in SMALLER:
                            of_smaller.append([f"{size:,}", *line[:2], *line[3:]])
                        else:
                            lines.append(line)
    worst = max(float(line[-1]) for line in lines)
    return (
        "The same tables, published in PostgreSQL and on Spark, in parts of the size that they have"
        f" there by default, {RECORDS_OF_PART:,} records at most (k = {K}, not refined; buckets"
        " by `two_size`, theta 2, base 0.02). The loss is the GCP of generalized and freeform rows,"
        " the usefulness loss of suppressed ones, and that of the setting of buckets.\n\n"
        + table(
            ["table", "records", "publication", "parts or cells", "PostgreSQL", "Spark", "ratio"],
            lines,
        )
        + f"\nThe largest ratio is {worst:.3f} (target {ALLOWED}).\n\nIn smaller parts, as of"
        " a larger table, Greedy Search loses more in each, and what loses most in all of them is"
        f" searched again together (k = {K}, not refined):\n\n"
        + table(
            ["a part has at most", "table", "records", "parts", "PostgreSQL", "Spark", "ratio"],
            of_smaller,
        )
    )


def write(dsn: str, name: str, file: Path) -> None:
    """Write a table of PostgreSQL to a file, with the values that it has there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with psycopg.connect(dsn) as connection:
        found = connection.execute(f'SELECT * FROM public."{name}"')
        names = [column.name for column in found.description or ()]
        columns = zip(*found.fetchall(), strict=True)
    pq.write_table(pa.table(dict(zip(names, map(pa.array, columns), strict=True))), file)


def _line(name: str, n: int, case: str, one: Any, other: Any, metrics: Any) -> list[str]:
    parts = metrics.get("parts", metrics.get("cells"))
    ratio = float(other) / float(one) if float(one) else 1.0
    return [
        name, f"{n:,}", case, "" if parts is None else f"{parts:,.0f}",
        f"{float(one):.6g}", f"{float(other):.6g}", f"{ratio:.3f}",
    ]  # fmt: skip
