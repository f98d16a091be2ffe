"""Demonstrates buckets on a small cluster of Spark, verified, and their counts: ``make spark``."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kanon_db import spark
from kanon_db.errors import KanonError
from kanon_db.interfaces import console
from kanon_db.interfaces.demo import FAIR_PRIVACY, write_fair
from kanon_db.spark.environment import StandaloneCluster, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SENSITIVE: Final = "affairs"
_QUESTIONS: Final = (
    "age > 40 AND affairs = '0.0'",
    "religious >= 3 AND children = 0 AND affairs = '0.0'",
    "rate_marriage <= 2 AND affairs <> '0.0'",
)


def main() -> None:
    """Run the demo in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="kanon-demo-") as folder:
        console.say("Starting a cluster of Spark: a master and two workers on 127.0.0.1 ...")
        with StandaloneCluster(workers=2, memory="1g") as cluster:
            settings = {"spark__executor__memory": "800m", "spark__sql__shuffle__partitions": "2"}
            with spark_session(cluster.master, **settings) as session:
                _show(session, Path(folder))


def _show(session: SparkSession, folder: Path) -> None:
    source, target = folder / "fair.parquet", folder / "published" / "fair_b"
    quasi_identifiers = _write(source, folder / "fair.csv")
    console.say(f"\nPublishing {source.name} as buckets ...")
    found = spark.publish_buckets(
        session, source, str(target), quasi_identifiers=quasi_identifiers, sensitive=_SENSITIVE,
        privacy=json.loads(FAIR_PRIVACY), assignment="random", source_name="fair",
        on_warning=console.print_warning,
    )  # fmt: skip
    console.print_fields({"guarantee": found.guarantee, "records": found.records, **found.metrics})
    console.say(f"Published and verified in {found.seconds:.1f} seconds. Its files alone say:\n")
    checks = spark.verify(session, str(target))
    console.print_table(
        ["check", "bound", "measured", "holds"],
        [[check.check, check.bound, check.measured, check.holds] for check in checks],
    )
    console.say("\nCounts from the published files, with their likely ranges, beside the truth:\n")
    columns = ["condition", "estimate", "likely range", "at least", "at most", "truth"]
    console.print_table(columns, _answers(session, source, target))


def _write(source: Path, csv: Path) -> list[str]:
    """Write the demo's people to Parquet, and return their quasi-identifiers."""
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet, string

    columns = write_fair(csv)
    as_text = arrow_csv.ConvertOptions(column_types={_SENSITIVE: string()})
    parquet.write_table(arrow_csv.read_csv(csv, convert_options=as_text), source)
    return [column for column in columns if column != _SENSITIVE]


def _answers(session: SparkSession, source: Path, target: Path) -> list[list[object]]:
    """Estimate counts from the files, and count in the source."""
    people = session.read.parquet(str(source))
    rows: list[list[object]] = []
    for condition in _QUESTIONS:
        question = f"SELECT count(*) FROM {target.name} WHERE {condition}"  # noqa: S608  # names are ours
        found = spark.estimate_count(session, str(target), question)
        rows.append(
            [
                condition, round(found.estimate or 0),
                console.format_range(found.likely_low or 0, found.likely_high or 0),
                found.lower_bound, found.upper_bound, people.where(condition).count(),
            ]
        )  # fmt: skip
    return rows


if __name__ == "__main__":
    try:
        main()
    except KanonError as error:
        console.print_error(error, as_json=False)
        raise SystemExit(1) from None
