"""Buckets from a table to verified relations, against a plain shuffled copy: time, memory, steps.

One table has integers, the other texts, with the same frequencies: those of `publication`.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Final

import psycopg

from benchmarks.harness import peak_memory, private_server, seconds, table
from benchmarks.publication import PRIVACY, make_census

N_RECORDS: Final = 1_000_000
RUNS: Final = 3
TABLES: Final = ("census", "census_numbers")
ASSIGNMENTS: Final = ("random", "cells")
TARGETS: Final = {
    "random": {"census": 3.5, "census_numbers": 4.0},
    "cells": {"census": 5.0, "census_numbers": 5.0},
    "verify": {"census": 2.0, "census_numbers": 2.0},
}
NUMBERS: Final = (
    "SELECT age, right(workclass, 1)::int AS workclass, substr(education, 11)::int AS education,"
    " right(marital_status, 1)::int AS marital_status, right(race, 1)::int AS race,"
    " right(sex, 1)::int AS sex, substr(native_country, 9)::int AS native_country,"
    " substr(occupation, 12)::int AS occupation FROM census"
)
QUASI_IDENTIFIERS: Final = "age,workclass,education,marital_status,race,sex,native_country"
_LEAST_SHARE: Final = 0.01
_STEP: Final = re.compile(r"kanon_db (?:(?P<phase>\d)/\d )?(?:\d+% )?(?:[~<]\d+s )?(?P<step>.*)")


class Steps:
    """Watches which step a session says that it is at, and adds up their seconds by a clock."""

    def __init__(
        self,
        dsn: str,
        backend_pid: int,
        *,
        every: float = 0.005,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.seconds: Counter[str] = Counter()
        self._dsn, self._pid, self._every, self._clock = dsn, backend_pid, every, clock
        self._is_over = threading.Event()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch during the block."""
        watcher = threading.Thread(target=self._watch)
        watcher.start()
        try:
            yield
        finally:
            self._is_over.set()
            watcher.join()

    def _watch(self) -> None:
        statement = "SELECT application_name FROM pg_stat_get_activity(%s)"
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            before = self._clock()
            while not self._is_over.wait(self._every):
                (name,) = connection.execute(statement, [self._pid], prepare=True).fetchone() or (
                    "",
                )
                now = self._clock()
                if step := step_of(name):
                    self.seconds[step] += now - before
                before = now


def step_of(application_name: str) -> str | None:
    """Return the step that a session says that it is at; None: it does not work."""
    found = _STEP.fullmatch(application_name)
    return found and found["step"]


def main() -> str:
    """Return the results as Markdown."""
    with private_server() as dsn:
        make_tables(dsn)
        floors = {name: floor(dsn, name) for name in TABLES}
        found: dict[tuple[str, str], Measured] = {}
        for assignment in ASSIGNMENTS:
            for name in TABLES:
                found[assignment, name] = measure(dsn, name, assignment)
        for name in TABLES:
            found["verify", name] = measure_verify(dsn, name)
    times = [
        _times(what, name, one.seconds, one.megabytes, floors)
        for (what, name), one in found.items()
    ]
    return (
        f"{N_RECORDS:,} records, 8 columns, {os.cpu_count()} cores; medians of {RUNS} runs."
        f" The ratio is to `CREATE TABLE … AS SELECT … ORDER BY random()`"
        f" of the same table ({_floors(floors)}); the memory is the peak of the backend in its"
        " first call, shared buffers of 128 MB included. The tables have the"
        " same frequencies; one has texts, the other whole numbers.\n\n"
        + table(["what", "table", "seconds", "ratio", "target", "memory"], times)
        + "\nSeconds of each step, and its share, by what the session says of itself every 5 ms in"
        f" the last run:\n\n{_profiles(found)}"
    )


@dataclass(frozen=True)
class Measured:
    """The median time of a call, its memory, and the seconds of its steps."""

    seconds: float
    megabytes: float
    steps: Mapping[str, float]


def _floors(floors: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {taken:.2f} s" for name, taken in floors.items())


def _times(
    what: str, name: str, taken: float, memory: float, floors: Mapping[str, float]
) -> list[str]:
    return [
        what, name, f"{taken:.2f}", f"{taken / floors[name]:.2f}",
        f"≤ {TARGETS[what][name]:g}", f"{memory:.0f} MB",
    ]  # fmt: skip


def _profiles(found: Mapping[tuple[str, str], Measured]) -> str:
    tables = []
    for what in TARGETS:
        profiles = [found[what, name].steps for name in TABLES]
        totals = [sum(profile.values()) for profile in profiles]
        rows = [
            [step, *(_share(profile.get(step, 0.0), total)
             for profile, total in zip(profiles, totals, strict=True))]
            for step in dict.fromkeys(step for profile in profiles for step in profile)
        ]  # fmt: skip
        tables.append(table([what, *TABLES], [row for row in rows if any(row[1:])]))
    return "\n".join(tables)


def _share(taken: float, total: float) -> str:
    share = taken / total
    return f"{taken:.2f}, {share:.0%}" if share >= _LEAST_SHARE else ""


def make_tables(dsn: str) -> None:
    """Make and register both tables."""
    make_census(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE census_numbers AS {NUMBERS}")
        connection.execute("VACUUM ANALYZE census_numbers")
        connection.execute(
            "SELECT kanon.register_source('public.census_numbers',"
            f" '{{{QUASI_IDENTIFIERS}}}', 'occupation')"
        )
        connection.execute("CHECKPOINT")  # nothing of this is left to be written later


def floor(dsn: str, name: str) -> float:
    """Return the seconds of a plain shuffled copy."""
    with psycopg.connect(dsn, autocommit=True) as connection:

        def shuffled_copy() -> None:
            connection.execute("DROP TABLE IF EXISTS shuffled")
            connection.execute(f"CREATE TABLE shuffled AS SELECT * FROM {name} ORDER BY random()")

        taken = seconds(shuffled_copy, runs=RUNS)
        connection.execute("DROP TABLE shuffled")
        return taken


def measure(dsn: str, name: str, assignment: str) -> Measured:
    """Publish a table."""
    return measured(
        dsn,
        f"SELECT kanon.publish_buckets('public.{name}', '{name}_b', method => 'two_size',"
        f" assignment => '{assignment}', replace => true, privacy => '{PRIVACY}')",
        runs=RUNS,
    )


def measure_verify(dsn: str, name: str) -> Measured:
    """Verify what was published."""
    return measured(dsn, f"SELECT * FROM kanon.verify('{name}_b')", runs=RUNS)


def measured(dsn: str, statement: str, *, runs: int) -> Measured:
    """Run a statement once, and then so many times; return their median, and the last steps."""
    times = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        run = _runner(connection, statement)
        run()
        memory = peak_memory(connection.info.backend_pid)
        for _ in range(runs):
            steps = Steps(dsn, connection.info.backend_pid)
            with steps.watched():
                times.append(seconds(run, runs=1))
    return Measured(median(times), memory, steps.seconds)


def _runner(connection: psycopg.Connection, statement: str) -> Callable[[], object]:
    return lambda: connection.execute(statement).fetchall()


if __name__ == "__main__":
    print(main())
