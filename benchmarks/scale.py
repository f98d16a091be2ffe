"""Ten and a hundred times as many rows: time a row and memory of what is published at such sizes.

``KANON_SCALE_ROWS`` has the numbers of rows (by default ``1000000 10000000 100000000``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Final

import numpy as np
import psycopg

from benchmarks.harness import PrivateMemory, peak_memory, private_server, table
from benchmarks.publication import OCCUPATIONS, PRIVACY
from benchmarks.round_trip import QUASI_IDENTIFIERS

_ROWS: Final = os.environ.get("KANON_SCALE_ROWS", "1000000 10000000 100000000")
ROWS: Final = tuple(map(int, _ROWS.split()))
MOST_OVER_FIRST: Final = 1.25
MOST_GIGABYTES: Final = 2.0
WARM_UP_ROWS: Final = 20_000
MOST_OF_ALL: Final = 10_000_000
"""Of more rows, only the first of the calls is made, with more memory than by default."""
CALLS: Final[Mapping[str, str]] = {
    "buckets, random": f"publish_buckets(%s, 'p', assignment => 'random', privacy => '{PRIVACY}')",
    "buckets, cells": f"publish_buckets(%s, 'p', assignment => 'cells', privacy => '{PRIVACY}')",
    "generalized, Mondrian": (
        "publish_generalized(%s, 'p', k => 10, method => 'mondrian', refine => false)"
    ),
    "suppressed": "publish_suppressed(%s, 'p', k => 10)",
}


def main() -> str:
    """Return the results as Markdown."""
    found: dict[tuple[str, int], tuple[float, float, float]] = {}
    with private_server() as dsn:
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute("SELECT setseed(0.5)")
            make_people(admin, "warm_up", WARM_UP_ROWS)
        for n in ROWS:
            with psycopg.connect(dsn, autocommit=True) as admin:
                if n > MOST_OF_ALL:
                    admin.execute("INSERT INTO kanon.setting VALUES ('publish_memory', '16 GB')")
                make_people(admin, f"people_{n}", n)
            for what, call in list(CALLS.items())[: None if n <= MOST_OF_ALL else 1]:
                found[what, n] = _published(dsn, call, f"public.people_{n}")
            with psycopg.connect(dsn, autocommit=True) as admin:
                admin.execute(f"DROP TABLE people_{n}")
    first = ROWS[0]
    rows = []
    for (what, n), (taken, private, whole) in found.items():
        ratio = (taken / n) / (found[what, first][0] / first)
        rows.append([
            what, f"{n:,}", f"{taken:.1f}", f"{taken / n * 1e6:.2f}",
            "" if n == first else f"{ratio:.2f}", f"{private / 1024:.2f} GB",
            f"{whole / 1024:.2f} GB",
        ])  # fmt: skip
    return (
        "Rows of 7 quasi-identifiers and a sensitive attribute, all whole numbers, with"
        " the frequencies of the tables above. One run each,"
        f" in a session that has published {WARM_UP_ROWS:,} rows before; verified, as always."
        f" Targets: at most {MOST_OVER_FIRST:g} times the time a row of {first:,} rows, at most"
        f" {MOST_GIGABYTES:g} GB. Shared buffers have 128 MB, and `publish_memory` is 4 GB, as by"
        f" default, but 16 GB for more than {MOST_OF_ALL:,} rows.\n\n"
        + table(
            ["what", "rows", "seconds", "microseconds a row", f"a row, over {first:,}",
             "private memory", "with shared buffers"],
            rows,
        )
    )  # fmt: skip


def make_people(admin: psycopg.Connection, name: str, n: int) -> None:
    """Make and register a table."""
    reached = np.cumsum(OCCUPATIONS) / sum(OCCUPATIONS)
    shares = ", ".join(map(str, reached[:-1].tolist()))
    admin.execute(
        f"CREATE TABLE {name} AS SELECT 17 + floor(power(random(), 1.5) * 72)::int AS age,"
        " floor(power(random(), 3) * 7)::int AS workclass,"
        " floor(power(random(), 2) * 16)::int AS education,"
        " floor(power(random(), 2) * 7)::int AS marital_status,"
        " floor(power(random(), 4) * 5)::int AS race, floor(random() * 2)::int AS sex,"
        " floor(power(random(), 6) * 41)::int AS native_country,"
        f" width_bucket(random(), ARRAY[{shares}]::float8[]) AS occupation"
        f" FROM generate_series(1, {n})"
    )
    admin.execute(f"VACUUM ANALYZE {name}")
    admin.execute(
        f"SELECT kanon.register_source('public.{name}', '{{{QUASI_IDENTIFIERS}}}', 'occupation')"
    )
    admin.execute("CHECKPOINT")


def _published(dsn: str, call: str, source: str) -> tuple[float, float, float]:
    """Publish; return the seconds, the private memory, and that with shared buffers, in MB."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"SELECT kanon.{call}", ["public.warm_up"])
        connection.execute("SELECT kanon.drop_publication('p')")
        memory = PrivateMemory(connection.info.backend_pid)
        with memory:
            started = time.perf_counter()
            connection.execute(f"SELECT kanon.{call}", [source])
            taken = time.perf_counter() - started
        whole = peak_memory(connection.info.backend_pid)
        connection.execute("SELECT kanon.drop_publication('p')")
    return taken, memory.most, whole


if __name__ == "__main__":
    print(main())
