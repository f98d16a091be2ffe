"""Weights that are learned on Spark: errors of counts beside PostgreSQL's, and what they take.

``python -m benchmarks spark_weights``. The tables are looked for as in
:mod:`benchmarks.local_assignment`. ``KANON_SPARK_WEIGHTS`` has the runs that are timed, such as
``cells:1000000:2``: an assignment, a number of rows, and with how many workers.
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
from benchmarks.local_assignment import DATA, MAX_BUCKET_SIZE, TABLES, read
from benchmarks.spark_cluster import measured, source_of
from benchmarks.weights import error
from kanon_db import spark
from kanon_db.metrics.count_queries import exact_counts
from kanon_db.spark.environment import spark_session
from tests.expected_counts import Weighted

NAME: Final = "Adult, occupation"
PRIVACY: Final = {"theta": 8, "base": 0.02}
ASKED: Final[Mapping[str, Any]] = {
    "privacy": PRIVACY, "method": "multi_size", "assignment": "cells",
    "max_bucket_size": MAX_BUCKET_SIZE,
}  # fmt: skip
N_PUBLICATIONS: Final = 5
RUNS: Final = os.environ.get("KANON_SPARK_WEIGHTS", "random:1000000:2 cells:1000000:2")


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
    found: dict[str, list[list[float]]] = {"on Spark": [], "in PostgreSQL": []}
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
        kanon.register_source("public.adult", quasi_identifiers, sensitive=sensitive)
        for number in range(N_PUBLICATIONS):
            target = Path(name, f"published-{number}", "adult_b")
            spark.publish_buckets(
                session, str(source), str(target), quasi_identifiers=quasi_identifiers,
                sensitive=sensitive, source_name="adult", on_warning=str, **ASKED,
            )  # fmt: skip
            kanon.publish_buckets("public.adult", "adult_b", replace=number > 0, **ASKED)
            with psycopg.connect(dsn, autocommit=True) as connection:
                there = Weighted.read(connection, "adult_b", sensitive)
            for where, own in (("on Spark", from_files(target)), ("in PostgreSQL", there)):
                codes = np.column_stack(
                    [np.searchsorted(labels[q], own.columns[q]) for q in quasi_identifiers]
                ).astype(np.int32)
                order = np.searchsorted(labels[sensitive], own.values)
                weights, shares = np.empty_like(own.weights), np.empty_like(own.weights)
                weights[:, order] = own.weights
                shares[:, order] = (own.counts / own.sizes[:, np.newaxis])[own.bucket]
                each = [error(codes, one, queries, actual) for one in (weights, shares)]
                found[where].append(each)
                print(where, each, file=sys.stderr, flush=True)
        kanon.close()
    rows = []
    for where, errors in found.items():
        by_weights, paper = np.array(errors).T
        ratios = by_weights / paper
        rows.append([where, f"{np.median(paper):.4f}", f"{np.median(by_weights):.4f}",
                     f"{np.median(ratios):.3f}", f"{ratios.min():.3f} to {ratios.max():.3f}"])  # fmt: skip
    return (
        f"Adult, occupation, `{json.dumps(PRIVACY)}`, multi_size, cells: mean relative errors of"
        f" {len(queries):,} counts (s = 5 %), medians of {N_PUBLICATIONS} publications.\n\n"
        + table(
            ["published", "the paper's estimates", "by weights", "of the paper's", "from, to"], rows
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
            case, n, workers = text.split(":")
            with source_of(folder, int(n)) as source:
                with_weights, without = (
                    measured(int(workers), folder / "run", source, f"{case}{estimates}")
                    for estimates in ("", "/paper")
                )
            steps = dict(with_weights["steps"])
            own = {
                words: sum(t for step, t in steps.items() if words in step)
                for words in ("learning how", "weighing values")
            }
            more = with_weights["seconds"] - without["seconds"]
            rows.append(
                [f"{int(n):,}", case, workers, f"{without['seconds']:.1f}",
                 f"{with_weights['seconds']:.1f}", f"{more:.1f}",
                 *(f"{seconds:.1f}" for seconds in own.values()),
                 f"{with_weights['workers'] / 2**30:.1f} GB", f"{with_weights['driver'] / 2**30:.1f} GB"]
            )  # fmt: skip
    return "Seconds, by `estimates`:\n\n" + table(
        ["rows", "case", "workers", "paper", "capped", "more", "learning", "weighing",
         "workers' memory", "driver"],
        rows,
    )  # fmt: skip
