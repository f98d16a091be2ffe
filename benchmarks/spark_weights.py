"""Weights that are learned on Spark: errors of counts beside PostgreSQL's, and what they take.

``python -m benchmarks spark_weights``. The tables are looked for as in
:mod:`benchmarks.real_tables`. ``KANON_SPARK_WEIGHTS`` has the runs that are timed, such as
``cells:1000000``: an assignment, and a number of rows.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import psycopg

import kanon_db
from benchmarks.harness import private_server, table
from benchmarks.real_tables import DATA, MAX_BUCKET_SIZE, TABLES, read
from benchmarks.spark_cluster import measured, source_of
from benchmarks.weights import N_SEEDS, drawn_error, error
from kanon_db import spark
from kanon_db.algorithms.bucketization.privacy import PrivacySpecification
from kanon_db.metrics.count_queries import exact_counts
from kanon_db.spark.environment import spark_session
from tests.expected_counts import Weighted

NAME: Final = "Adult, occupation"
PRIVACY: Final = {"theta": 8, "base": 0.02}
ASKED: Final[Mapping[str, Any]] = {
    "privacy": PRIVACY, "method": "multi_size", "assignment": "cells",
    "max_bucket_size": MAX_BUCKET_SIZE,
}  # fmt: skip
N_PUBLICATIONS: Final = 3
RUNS: Final = os.environ.get("KANON_SPARK_WEIGHTS", "random:1000000 cells:1000000")


def main() -> str:
    """Return the results as Markdown."""
    return f"{errors_table()}\n{times_table()}"


def errors_table() -> str:
    """Publish a table on both sides, and compare counts by weights with the paper's."""
    file, quasi_identifiers, sensitive = TABLES[NAME]
    frame = pd.read_csv(DATA / file, keep_default_na=False)[[*quasi_identifiers, sensitive]]
    data = read(NAME)
    queries = data.queries()
    actual = exact_counts(data.qi_codes, data.sa_codes, queries)
    labels = {name: np.unique(frame[name]) for name in frame}

    def errors_of(own: Weighted) -> list[float]:
        """Return the errors by weights, and by the shares of values in buckets."""
        codes = np.column_stack(
            [np.searchsorted(labels[q], own.columns[q]) for q in quasi_identifiers]
        ).astype(np.int32)
        order = np.argsort(np.searchsorted(labels[sensitive], own.values))
        shares = (own.counts / own.sizes[:, np.newaxis])[own.bucket]
        each = [error(codes, one[:, order], queries, actual) for one in (own.weights, shares)]
        print(each, file=sys.stderr, flush=True)
        return each

    with (
        tempfile.TemporaryDirectory(prefix="kanon-bench-") as name,
        private_server() as dsn,
        spark_session("local[2]", spark__driver__memory="2g") as session,
    ):
        source = Path(name, "adult.parquet")
        frame.to_parquet(source)
        with psycopg.connect(dsn, autocommit=True) as connection:
            _load(connection, frame)
        kanon = kanon_db.connect(dsn)
        kanon.register_source(
            "public.adult", quasi_identifiers=quasi_identifiers, sensitive=sensitive
        )
        kanon.publish_buckets("public.adult", "adult_b", **ASKED)  # again, it would be the same
        with psycopg.connect(dsn, autocommit=True) as connection:
            there = errors_of(Weighted.read(connection, "adult_b", sensitive))
        here = []
        for number in range(N_PUBLICATIONS):
            target = Path(name, f"published-{number}", "adult_b")
            spark.publish_buckets(
                session, str(source), str(target), quasi_identifiers=quasi_identifiers,
                sensitive=sensitive, source_name="adult", on_warning=str, **ASKED,
            )  # fmt: skip
            here.append(errors_of(from_files(target)))
        kanon.close()
    thresholds = PrivacySpecification.parse(json.dumps(PRIVACY)).thresholds(
        [str(i) for i in range(data.counts.size)], data.counts
    )
    drawn = [drawn_error(data, thresholds, queries, actual, seed) for seed in range(N_SEEDS)]
    rows = []
    for where, errors in (("on Spark", here), ("in PostgreSQL", [there])):
        by_weights, paper = np.array(errors).T
        ratios = by_weights / paper
        rows.append(
            [where, f"{np.median(by_weights):.4f}", f"{np.median(ratios):.3f}",
             f"{np.median(by_weights) / np.median(drawn):.3f}"]
        )  # fmt: skip
    return (
        "Adult, occupation, theta 8, base 0.02, multi_size, cells: mean relative errors of"
        f" {len(queries):,} counts by weights, on Spark medians of {N_PUBLICATIONS} publications."
        "\n\n"
        + table(
            ["", "error", "over the paper's", "over the paper's from random buckets of two_size"],
            rows,
        )
    )


def _load(connection: psycopg.Connection, frame: pd.DataFrame) -> None:
    types = {name: "int" if frame[name].dtype.kind == "i" else "text" for name in frame}
    columns = ", ".join(f'"{name}" {type_}' for name, type_ in types.items())
    connection.execute(f"CREATE TABLE adult ({columns})")  # type: ignore[arg-type]
    with connection.cursor() as cursor, cursor.copy("COPY adult FROM STDIN") as copy:
        for row in frame.itertuples(index=False):
            copy.write_row(row)


def from_files(target: Path) -> Weighted:
    """Read a publication in files as a reader without Spark does."""
    import pyarrow.parquet as pq

    layout = json.loads((target / "manifest.json").read_text())["layout"]
    (release,) = target.glob("release-*")
    qit, sat, est = (pq.read_table(release / folder) for folder in ("qit", "sat", "est"))
    known = sorted(est.to_pylist(), key=lambda row: row[layout["weights"]])
    values = [row[layout["sensitive"]] for row in known]
    places = {value: place for place, value in enumerate(values)}
    bucket = qit[layout["bucket_id"]].to_numpy() - 1
    sizes = np.bincount(bucket)
    counts = np.zeros((sizes.size, len(values)), dtype=np.int64)
    for row in sat.to_pylist():
        at = row[layout["bucket_id"]] - 1, places[row[layout["sensitive"]]]
        counts[at] += row[layout["count"]]
    fields = qit[layout["weights"]].combine_chunks().flatten()
    levels = np.column_stack([field.to_numpy() for field in fields]).astype(np.int64)
    columns = {q: np.array(qit[q].to_pylist()) for q in layout["quasi_identifiers"]}
    parts = np.array([row[layout["parts"]] for row in known])
    return Weighted(columns, bucket, sizes, layout["assignment"], values, counts, levels, parts)


def times_table() -> str:
    """Publish with and without weights, and compare."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="kanon-bench-spark-") as name:
        folder = Path(name)
        for text in RUNS.split():
            case, n = text.split(":")
            with source_of(folder, int(n)) as source:
                with_weights, without = (
                    measured(2, folder / "run", source, f"{case}{estimates}")
                    for estimates in ("", "/paper")
                )
            steps = dict(with_weights["steps"])
            own = {
                words: sum(t for step, t in steps.items() if words in step)
                for words in ("learning how", "weighing values")
            }
            more = with_weights["seconds"] - without["seconds"]
            seconds = [without["seconds"], with_weights["seconds"], more, *own.values()]
            memory = f"{with_weights['workers'] / 2**30:.1f} GB"
            rows.append([f"{int(n):,}", case, *(f"{one:.1f}" for one in seconds), memory])
    return "Seconds, by `estimates`, of two workers:\n\n" + table(
        ["rows", "case", "paper", "capped", "more", "learning", "weighing", "memory"], rows
    )
