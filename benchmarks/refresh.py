"""A table that is published in twelve monthly batches, beside one publication of all.

``python -m benchmarks --write refresh``. Tables are looked for in ``data/`` of the folder named by
KANON_SHARED, or of ``../shared``; their rows come in the order of the file.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Final

import pandas as pd
import psycopg

import kanon_db
from benchmarks.harness import private_server, table
from benchmarks.real_tables import DATA

N_BATCHES: Final = 12
N_QUERIES: Final = 1_000
TABLES: Final = {
    "adult_30162.csv.gz": (
        ["age", "education", "marital-status", "race", "sex"], "occupation",
    ),
    "fars_occupants.csv.gz": (["age", "sex", "year", "airbag", "inimpact"], "state"),
}  # fmt: skip
_PRIVACY: Final = '{"theta": 8, "base": 0.02, "cap": 0.7}'
_WAYS: Final = {
    "buckets, random": ("publish_buckets", {"privacy": _PRIVACY, "assignment": "random"}),
    "buckets, cells": ("publish_buckets", {"privacy": _PRIVACY}),
    "generalized": ("publish_generalized", {"k": 5, "method": "mondrian", "refine": False}),
    "suppressed": ("publish_suppressed", {"k": 5}),
    "freeform": ("publish_freeform", {"k": 5, "options": {"refine": False}}),
}


def main() -> str:
    """Return the results as Markdown."""
    lines = []
    with private_server() as dsn, tempfile.TemporaryDirectory() as folder:
        for file, (quasi_identifiers, sensitive) in TABLES.items():
            frame = pd.read_csv(DATA / file, usecols=[*quasi_identifiers, sensitive])
            frame["number"] = range(len(frame))
            path = Path(folder, file.removesuffix(".gz"))
            frame.to_csv(path, index=False)
            name = file.split("_")[0]
            with kanon_db.connect(dsn) as kanon:
                kanon.load(path, f"{name}_all")
                _run(dsn, f"CREATE TABLE {name} AS SELECT * FROM {name}_all WHERE false")
                for source in (f"{name}_all", name):
                    kanon.register_source(
                        source, quasi_identifiers=quasi_identifiers, sensitive=sensitive,
                        arrival="number",
                    )  # fmt: skip
                lines += [_row(dsn, kanon, name, way, len(frame)) for way in _WAYS]
    return (
        f"Rows in the order of the file, in {N_BATCHES} batches of the same size; one publication"
        " of all for comparison. The error is the mean relative error of"
        f" {N_QUERIES:,} random counts (of buckets, up to 3 quasi-identifiers), in batches over"
        " that of one publication. Times are those of a refresh: the second, and the last, when"
        " eleven batches are there; and of publishing all at once.\n\n"
        + table(
            ["table", "published as", "records", "checks hold", "error: one", "error: batches",
             "second batch", "last batch", "all at once"],
            lines,
        )
    )  # fmt: skip


def _run(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def _row(dsn: str, kanon: kanon_db.Kanon, name: str, way: str, n: int) -> list[object]:
    function, given = _WAYS[way]
    publish = getattr(kanon, function)
    publish(f"{name}_all", "warm", **given, dry_run=True)
    started = perf_counter()
    publish(f"{name}_all", "one", **given, replace=True)
    at_once = perf_counter() - started
    _run(dsn, f"TRUNCATE {name}")
    times = []
    for batch in range(N_BATCHES):
        low, high = (batch * n // N_BATCHES, (batch + 1) * n // N_BATCHES)
        rows = f"SELECT * FROM {name}_all WHERE number >= {low} AND number < {high}"
        _run(dsn, f"INSERT INTO {name} {rows}")
        started = perf_counter()
        if batch:
            found = kanon.refresh("batches")
            if found.missing:
                raise RuntimeError(found.missing)
        else:
            publish(name, "batches", **given, replace=True)
        times.append(perf_counter() - started)
    holds = kanon.verify("batches")["holds"].all()
    errors: list[object] = ["-", "-"]
    if way.startswith("buckets"):
        one, batches = (
            statistics.mean(
                kanon.evaluate_counts(of, queries=N_QUERIES, dimensionality=[1, 2, 3], seed=3)[
                    "mean_relative_error"
                ]
            )
            for of in ("one", "batches")
        )
        errors = [f"{one:.4f}", f"{batches / one:.2f}x"]
    for publication in ("one", "batches"):
        kanon.drop_publication(publication)
    return [
        name, way, f"{n:,}", "all" if holds else "**no**", *errors,
        f"{times[1]:.2f} s", f"{times[-1]:.2f} s", f"{at_once:.2f} s",
    ]  # fmt: skip
