"""What attacks achieve on publications of a real table, and what playing them costs.

The table is looked for in ``data/`` of the folder named by KANON_SHARED, or of ``../shared``.
"""

from __future__ import annotations

import os
from pathlib import Path

import psycopg

import kanon_db
from benchmarks.harness import REST, peak_memory, private_server, seconds, table
from benchmarks.publication import make_census

ADULT = Path(
    os.environ.get("KANON_SHARED", Path(__file__).resolve().parents[2] / "shared"),
    "data",
    "adult_30162.csv.gz",
)
QUASI_IDENTIFIERS = (
    "age", "workclass", "education", "marital-status", "race", "sex", "native-country",
)  # fmt: skip
_BUCKETS = """publish_buckets(%s, %s, privacy => '{"theta": 8, "base": 0.02}'"""
_ACCEPTED = """accept => '{"uninformed_reader": "measured"}'"""
PUBLICATIONS = {
    "buckets, random": f"{_BUCKETS}, assignment => 'random')",
    "buckets, optimal, random": f"{_BUCKETS}, method => 'optimal', assignment => 'random')",
    "buckets, cells": f"{_BUCKETS}, method => 'multi_size')",
    "buckets, local": f"{_BUCKETS}, assignment => 'local', {_ACCEPTED})",
    "generalized, k = 5": "publish_generalized(%s, %s, k => 5, method => 'mondrian')",
    "generalized, k = 5, l = 3": "publish_generalized(%s, %s, k => 5, method => 'mondrian',"
    """ constraints => '{"l": 3}')""",
    "freeform, k = 5": """publish_freeform(%s, %s, k => 5, options => '{"refine": false}')""",
    "suppressed, k = 5": "publish_suppressed(%s, %s, k => 5)",
}
COSTLY = {
    "buckets": f"{_BUCKETS})",
    "generalized": "publish_generalized(%s, %s, k => 10, method => 'mondrian', refine => false)",
    "suppressed": "publish_suppressed(%s, %s, k => 10)",
}


def main() -> str:
    """Return the results as Markdown."""
    with private_server() as dsn:
        return _cost(dsn) + REST + _achieved(dsn)


def _achieved(dsn: str) -> str:
    with kanon_db.connect(dsn) as kanon:
        kanon.load(ADULT, "adult")
        kanon.register_source(
            "public.adult", quasi_identifiers=QUASI_IDENTIFIERS, sensitive="occupation"
        )
    rows = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        for title, call in PUBLICATIONS.items():
            connection.execute(f"SELECT kanon.{call}".encode(), ["public.adult", "attacked"])
            found = connection.execute("SELECT * FROM kanon.attack('attacked')").fetchall()
            connection.execute("SELECT kanon.drop_publication('attacked')")
            rows += [
                [title, attack, *(_number(share) for share in shares), f"{people:,}"]
                for attack, *shares, people in found
            ]
    return (
        f"Adult, 30,162 people, {len(QUASI_IDENTIFIERS)} quasi-identifiers, occupation; thresholds"
        " min(1, 8 f + 0.02):\n\n"
        + table(["publication", "attack", "bound", "base rate", "rate", "people"], rows)
    )


def _cost(dsn: str) -> str:
    make_census(dsn)
    rows = []
    for title, call in COSTLY.items():
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"SELECT kanon.{call}".encode(), ["public.census", "attacked"])
        with psycopg.connect(dsn, autocommit=True) as connection:
            taken = seconds(
                lambda c=connection: c.execute("SELECT kanon.attack('attacked')"), runs=1
            )
            memory = peak_memory(connection.info.backend_pid)
            connection.execute("SELECT kanon.drop_publication('attacked')")
        rows.append([title, f"{taken:.0f} s", f"{memory:.0f} MB"])
    return (
        "All attacks on 1,000,000 records of 8 columns; the memory is the peak of the backend,"
        " including shared buffers of 128 MB. What the attacks achieve is [on their"
        " page](../understand/attacks.md#an-example):\n\n"
        + table(["publication", "time", "peak memory"], rows)
    )


def _number(share: float | None) -> str:
    return "" if share is None else f"{share:.3g}"


if __name__ == "__main__":
    print(main())
