"""What the PL/pgSQL function around each PL/Python function costs a call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import psycopg

from benchmarks.harness import private_server, table

CALLS = 500
QUERY = "SELECT COUNT(*) FROM people_b WHERE age > 30 AND sick = 2"
MISTAKE = "SELECT COUNT(*) FROM people_b WHERE agee > 30"


def main() -> str:
    """Compare the function that people call with the one in it, call by call."""
    with private_server() as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE public.people AS SELECT 20 + i % 50 AS age, i % 7 AS sick"
            " FROM generate_series(1, 10000) AS i"
        )
        connection.execute(
            "SELECT kanon.register_source('public.people', '{age}', sensitive => 'sick')"
        )
        connection.execute(
            "SELECT * FROM kanon.publish_buckets('public.people', 'people_b',"
            " assignment => 'random', privacy => '{\"l\": 3}')"
        )
        rows = [
            _row(connection, "version", {}, []),
            _row(connection, "estimate_count", {"query": QUERY}, [QUERY]),
            _row(connection, "estimate_count", {"query": MISTAKE}, [MISTAKE]),
        ]
    heading = ["call", "PL/Python alone, ms", "as people call it, ms", "ratio"]
    return (
        f"Medians of {CALLS:,} calls each, taken in turns on one connection; the last one is a"
        " refused query, which PL/Python alone returns, and the other raises.\n\n"
        + table(heading, rows)
    )


def _row(
    connection: psycopg.Connection, name: str, named: dict[str, str], values: Sequence[str]
) -> list[str]:
    arguments = ", ".join(["%s"] * len(values))
    calls = (
        (
            f"SELECT kanon.python_{name}(%s)",
            [psycopg.types.json.Jsonb(named)],
        ),
        (f"SELECT * FROM kanon.{name}({arguments})", list(values)),
    )
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(CALLS):
        for taken, (statement, given) in zip(times, calls, strict=True):
            started = time.perf_counter()
            try:
                connection.execute(statement, given).fetchall()
            except psycopg.Error as error:
                if error.sqlstate != "0A000":  # the refusal that is measured
                    raise
            taken.append(1000 * (time.perf_counter() - started))
    inner, outer = map(statistics.median, times)
    refused = ", refused" if "agee" in str(values) else ""
    return [f"`{name}`{refused}", f"{inner:.3f}", f"{outer:.3f}", f"{outer / inner:.2f}"]
