"""A thousand publications in one catalog, beside ten."""

from __future__ import annotations

import psycopg

from benchmarks.harness import seconds, table
from tests.integration.parties import warn_only

FEW, MANY = 10, 1_000
RUNS = 25
CALLS = {
    "`TABLE kanon.publications`": "TABLE kanon.publications",
    "`SELECT … FROM kanon.publications WHERE name = …`": (
        "SELECT * FROM kanon.publications WHERE name = 'small_3'"
    ),
    "`estimate_count`": (
        "SELECT * FROM kanon.estimate_count('SELECT COUNT(*) FROM small_3 WHERE age < 3')"
    ),
    "`verify`": "SELECT * FROM kanon.verify('small_3')",
}


def many_publications(dsn: str) -> str:
    """Return the times of listing and asking, as Markdown."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(
            "CREATE TABLE public.small AS SELECT i % 9 AS age, i % 5 AS sick"
            " FROM generate_series(1, 60) AS i"
        )
        admin.execute("SELECT kanon.register_source('public.small', '{age}', sensitive => 'sick')")
        admin.execute("CREATE ROLE reader LOGIN IN ROLE kanon_analyst")
        warn_only(admin)
        times = []
        made = 0
        for n in (FEW, MANY):
            for number in range(made, n):
                admin.execute(
                    "SELECT * FROM kanon.publish_buckets('public.small', %s,"
                    " privacy => '{\"l\": 3}', assignment => 'random')",
                    [f"small_{number}"],
                )
            made = n
            admin.execute("VACUUM ANALYZE")
            times.append(_times(dsn))
    few, many = times
    rows = [
        [name, f"{1000 * few[name]:.2f} ms", f"{1000 * many[name]:.2f} ms",
         f"{many[name] / few[name]:.2f}"]
        for name in CALLS
    ]  # fmt: skip
    return (
        f"Asked by an analyst who may read all of them, medians of {RUNS}. The list of"
        f" {MANY:,} has {MANY // FEW} times as many rows as that of {FEW}.\n\n"
        + table(["call", f"{FEW} publications", f"{MANY:,} publications", "ratio"], rows)
    )


def _times(dsn: str) -> dict[str, float]:
    with psycopg.connect(dsn, autocommit=True) as analyst:
        analyst.execute("SET SESSION AUTHORIZATION reader")
        return {name: _time(analyst, call) for name, call in CALLS.items()}


def _time(analyst: psycopg.Connection, call: str) -> float:
    def ask() -> None:
        analyst.execute(call.encode()).fetchall()

    ask()  # warm up
    return seconds(ask, runs=RUNS)
