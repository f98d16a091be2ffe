"""Time, CPU seconds and memory of what is published, of ten and a hundred times as many rows, too.

``KANON_SCALE_ROWS`` has the numbers of rows (by default ``1000000 10000000 100000000``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final, Self

import numpy as np
import psycopg

from benchmarks.harness import (
    PrivateMemory,
    peak_memory,
    private_server,
    processor_seconds,
    table,
)
from benchmarks.publication import OCCUPATIONS, PRIVACY
from benchmarks.round_trip import QUASI_IDENTIFIERS, Steps

_ROWS: Final = os.environ.get("KANON_SCALE_ROWS", "1000000 10000000 100000000")
ROWS: Final = tuple(map(int, _ROWS.split()))
RUNS: Final = 5
COPY: Final = "a shuffled copy"
VERIFY: Final = "verify of random buckets"
TARGETS: Final[Mapping[str, float]] = {
    "buckets, random": 3.5,
    VERIFY: 1.3,
    "buckets, cells": 4.5,
    "generalized, Mondrian": 4.0,
    "suppressed": 3.5,
}
"""CPU seconds for 1,000,000 rows."""
MOST_OVER_FIRST: Final = 1.25
MOST_GIGABYTES: Final = 2.0
WARM_UP_ROWS: Final = 20_000
MOST_OF_ALL: Final = 10_000_000
OF_MORE: Final = ("buckets, random", "generalized, Mondrian", "suppressed")
"""The calls that are made of more rows, with more memory than by default."""
LEARNING: Final = (
    "learning how likely values are",
    "measuring how strongly values depend on quasi-identifiers",
)
"""The steps of a publication that learn from it, also where it is verified; PostgreSQL shows only
the beginning of long ones."""
CALLS: Final[Mapping[str, str]] = {
    "buckets, random": f"publish_buckets(%s, 'p', assignment => 'random', privacy => '{PRIVACY}')",
    "buckets, cells": f"publish_buckets(%s, 'p', assignment => 'cells', privacy => '{PRIVACY}')",
    "generalized, Mondrian": (
        "publish_generalized(%s, 'p', k => 10, method => 'mondrian', refine => false)"
    ),
    "suppressed": "publish_suppressed(%s, 'p', k => 10)",
}
RELATED: Final = tuple(CALLS)[:2]
"""The calls that are also made of people half of whose occupations follow from others."""
BOUNDED_BY: Final = (
    "What bounds them, by CPU seconds of the steps of one run of 1,000,000 rows. Buckets:"
    " inserting QIT and SAT 0.9, reading the source 0.5 and both tables again 0.5, the order of"
    " records 0.3, dependences and likely values 0.3, statistics and codes 0.2 each; in cells,"
    " 1.0 more. Generalized rows: the materialized view 1.0, hashing its ranges 0.5, Mondrian"
    " 0.4, reading 0.5, the table of rows 0.3, the order of records 0.3. Suppressed rows: the"
    " view 1.0, hashing its cells 0.3, patterns 0.4, reading 0.5, classes 0.3, the table of rows"
    " 0.3. INSERT adds rows one by one; COPY, which does not, reads from a client or a file"
    " only.\n\n"
    "Where half of the occupations follow from others, learning is a fit to 120,000 records, and"
    " weighing each of the 1,000,000 records.\n"
)
MEMORY: Final = (
    "Whose memory that is, by `/proc/PID/status` and `smaps` at the peak of one run of"
    " 1,000,000 rows in a session that has published 20,000. Buckets, random (an earlier state than"
    " the table's): of 406 MB, 190 MB are the process's own, of which it had 110 MB before; 110"
    " MB are shared buffers, and 105 MB pages of libraries' files (67 MB of them LLVM's, which"
    " loads kernels, too): these two are in memory once, however many sessions use them."
    " Generalized rows, Mondrian: of 397 MB, 203 MB (119 MB after 20,000 rows); 90 MB; and 104"
    " MB.\n"
)


def main() -> str:
    """Return the results as Markdown."""
    found: dict[tuple[str, int], _Needed] = {}
    with private_server() as dsn:
        with psycopg.connect(dsn, autocommit=True) as admin:
            # What other processes calculated would not be seen.
            admin.execute("ALTER SYSTEM SET max_parallel_workers_per_gather = 0")
            admin.execute("SELECT pg_reload_conf()")
            admin.execute("SELECT setseed(0.5)")
            make_people(admin, "warm_up", WARM_UP_ROWS)
        for n in ROWS:
            runs = RUNS if n == ROWS[0] else 1
            with psycopg.connect(dsn, autocommit=True) as admin:
                if n > MOST_OF_ALL:
                    admin.execute("INSERT INTO kanon.setting VALUES ('publish_memory', '16 GB')")
                make_people(admin, f"people_{n}", n)
                copy = f"CREATE TABLE copied AS SELECT * FROM people_{n} ORDER BY random()"
                found[COPY, n] = _Needed.by(admin, runs, copy, undone="DROP TABLE copied")
                admin.execute("DROP TABLE copied")
            for what in CALLS if n <= MOST_OF_ALL else OF_MORE:
                found |= _published(dsn, what, CALLS[what], f"people_{n}", n, runs)
            if n == ROWS[0]:
                with psycopg.connect(dsn, autocommit=True) as admin:
                    relate(admin, f"people_{n}", "related")
                for what in RELATED:
                    found |= _published(
                        dsn, f"{what}, half follows", CALLS[what], "related", n, runs
                    )
            with psycopg.connect(dsn, autocommit=True) as admin:
                admin.execute(f"DROP TABLE people_{n}")
    rows = []
    for (what, n), needed in found.items():
        first = found[what, ROWS[0]].cpu / ROWS[0]
        rows.append([
            what, f"{n:,}", f"{needed.wall:.2f}", f"{needed.cpu:.2f}",
            TARGETS.get(what, "") if n == ROWS[0] else "", f"{needed.cpu / found[COPY, n].cpu:.1f}",
            f"{needed.learning / found[COPY, n].cpu:.2f}" if what.startswith("buckets") else "",
            "" if n == ROWS[0] else f"{needed.cpu / n / first:.2f}",
            f"{needed.private / 1024:.2f} GB", f"{needed.whole / 1024:.2f} GB",
        ])  # fmt: skip
    return (
        "Rows of 7 quasi-identifiers and a sensitive attribute, all whole numbers, with"
        " the frequencies of the tables above; verified, as always, in a session that has published"
        f" {WARM_UP_ROWS:,} rows before. Of {ROWS[0]:,} rows, medians of {RUNS} runs; else one"
        " run. CPU seconds are those of the session's process, which a busy machine changes less"
        " than the time; no plan is parallel. Targets: the CPU seconds named; at most"
        f" {MOST_OVER_FIRST:g} times as many a row as of {ROWS[0]:,} rows, and {MOST_GIGABYTES:g}"
        " GB. Shared buffers have 128 MB, and"
        f" `publish_memory` is 4 GB, as by default, but 16 GB for more than {MOST_OF_ALL:,} rows."
        " *Half follows*: half of the occupations follow from age and education. *Learning*: CPU"
        " seconds of the steps that learn how likely values are, and how strongly they depend on"
        " quasi-identifiers, over those of the copy.\n\n"
        + table(
            ["what", "rows", "seconds", "CPU seconds", "target", "over a shuffled copy",
             "learning, over the copy", f"a row, over {ROWS[0]:,}", "private memory",
             "with shared buffers and libraries"],
            rows,
        )
        + f"\n{BOUNDED_BY}\n{MEMORY}"
    )  # fmt: skip


@dataclass(frozen=True)
class _Needed:
    """What a statement needs, as the median of some runs."""

    wall: float  # seconds
    cpu: float  # seconds of the session's process
    learning: float  # of these, the seconds that it learns
    private: float  # MB at most, without shared buffers and libraries
    whole: float  # MB at most

    @classmethod
    def by(
        cls,
        session: psycopg.Connection,
        runs: int,
        statement: str,
        values: Sequence[str] = (),
        *,
        undone: str | None = None,
    ) -> Self:
        """Run a statement; `undone` is run before the next, so that the last one's result stays."""
        pid = session.info.backend_pid
        walls, seconds, learning, private = [], [], [], 0.0
        for run in range(runs):
            if run and undone:
                session.execute(undone)
            steps = Steps(session.info.dsn, pid, clock=partial(processor_seconds, pid))
            with PrivateMemory(pid) as memory, steps.watched():
                before, started = processor_seconds(pid), time.perf_counter()
                session.execute(statement, values)
                walls.append(time.perf_counter() - started)
                seconds.append(processor_seconds(pid) - before)
            learning.append(sum(
                spent for step, spent in steps.seconds.items()
                if any(step and name.startswith(step) for name in LEARNING)
            ))  # fmt: skip
            private = max(private, memory.most)
        medians = map(median, (walls, seconds, learning))
        return cls(*medians, private, peak_memory(pid))


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
    _register(admin, name)


def relate(admin: psycopg.Connection, people: str, name: str) -> None:
    """Make and register a table of these people, half of whose occupations follow from others."""
    admin.execute(
        f"CREATE TABLE {name} AS SELECT {QUASI_IDENTIFIERS}, CASE WHEN random() < 0.5"
        f" THEN (age / 6 + education) % 14 ELSE occupation END AS occupation FROM {people}"
    )
    _register(admin, name)


def _register(admin: psycopg.Connection, name: str) -> None:
    admin.execute(f"VACUUM ANALYZE {name}")
    admin.execute(
        f"SELECT kanon.register_source('public.{name}', '{{{QUASI_IDENTIFIERS}}}', 'occupation')"
    )
    admin.execute("CHECKPOINT")


def _published(
    dsn: str, what: str, call: str, name: str, n: int, runs: int
) -> dict[tuple[str, int], _Needed]:
    """Publish and, where buckets are drawn at random, verify what was published."""
    drop = "SELECT kanon.drop_publication('p')"
    statement, values = f"SELECT kanon.{call}", [f"public.{name}"]
    found = {}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement, ["public.warm_up"])
        connection.execute(drop)
        found[what, n] = _Needed.by(connection, runs, statement, values, undone=drop)
        if what == next(iter(CALLS)):
            found[VERIFY, n] = _Needed.by(connection, runs, "SELECT * FROM kanon.verify('p')")
        connection.execute(drop)
    return found


if __name__ == "__main__":
    print(main())
