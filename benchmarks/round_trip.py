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
from typing import Final

import psycopg

from benchmarks.harness import peak_memory, private_server, seconds, table
from benchmarks.publication import PRIVACY, make_census

N_RECORDS: Final = 1_000_000
RUNS: Final = 5
TABLES: Final = ("census", "census_numbers")
ASSIGNMENTS: Final[Mapping[str, str]] = {
    "random": "",
    "cells": "",
    "local": """, accept => '{"uninformed_reader": "a benchmark"}'""",
}
TARGETS: Final = {
    "random": {"census": 3.5, "census_numbers": 4.0},
    "cells": {"census": 5.0, "census_numbers": 5.0},
    "local": {"census": 7.0, "census_numbers": 7.0},
    "verify": {"census": 2.0, "census_numbers": 2.0},
}
NUMBERS: Final = (
    "SELECT age, right(workclass, 1)::int AS workclass, substr(education, 11)::int AS education,"
    " right(marital_status, 1)::int AS marital_status, right(race, 1)::int AS race,"
    " right(sex, 1)::int AS sex, substr(native_country, 9)::int AS native_country,"
    " substr(occupation, 12)::int AS occupation FROM census"
)
QUASI_IDENTIFIERS: Final = "age,workclass,education,marital_status,race,sex,native_country"
_STEP: Final = re.compile(r"kanon_db (?:(?P<phase>\d)/\d )?(?:\d+% )?(?:[~<]\d+s )?(?P<step>.*)")


class Steps:
    """Watches which step a session says that it is at, and adds up their seconds."""

    def __init__(self, dsn: str, backend_pid: int, *, every: float = 0.005) -> None:
        self.seconds: Counter[str] = Counter()
        self._dsn, self._pid, self._every = dsn, backend_pid, every
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
            before = time.perf_counter()
            while not self._is_over.wait(self._every):
                (name,) = connection.execute(statement, [self._pid], prepare=True).fetchone() or (
                    "",
                )
                now = time.perf_counter()
                if found := _STEP.fullmatch(name):
                    self.seconds[found["step"]] += now - before
                before = now


def main() -> str:
    """Return the results as Markdown."""
    with private_server() as dsn:
        make_tables(dsn)
        floors = {name: floor(dsn, name) for name in TABLES}
        times, steps = [], []
        for assignment in ASSIGNMENTS:
            for name in TABLES:
                taken, memory, profile = measure(dsn, name, assignment)
                times.append(
                    _row(f"publish, {assignment}", name, taken, floors, assignment, memory)
                )
                steps += [[assignment, name, *line] for line in _shares(profile)]
                if assignment == "random":
                    taken, memory, profile = measure_verify(dsn, name)
                    times.append(_row("verify", name, taken, floors, "verify", memory))
                    steps += [["verify", name, *line] for line in _shares(profile)]
    return (
        f"{N_RECORDS:,} records, 8 columns; medians of {RUNS} runs, {os.cpu_count()} cores. The"
        " ratio is to `CREATE TABLE … AS SELECT … ORDER BY random()` of the same table ("
        + ", ".join(f"{name} {taken:.2f} s" for name, taken in floors.items())
        + "); the memory is the peak of the backend in its first call, shared buffers of 512 MB"
        " included.\n\n"
        + table(["what", "table", "seconds", "ratio", "target", "memory"], times)
        + "\nWhat a session says of itself, looked at every 5 ms in one more run:\n\n"
        + table(["what", "table", "step", "seconds", "share"], steps)
    )


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


def floor(dsn: str, name: str) -> float:
    """Return the seconds of a plain shuffled copy."""
    with psycopg.connect(dsn, autocommit=True) as connection:

        def shuffled_copy() -> None:
            connection.execute("DROP TABLE IF EXISTS shuffled")
            connection.execute(f"CREATE TABLE shuffled AS SELECT * FROM {name} ORDER BY random()")

        taken = seconds(shuffled_copy, runs=RUNS)
        connection.execute("DROP TABLE shuffled")
        return taken


def measure(dsn: str, name: str, assignment: str) -> tuple[float, float, Counter[str]]:
    """Return the seconds of publishing, its memory, and the seconds of its steps."""
    return _measured(
        dsn,
        f"SELECT kanon.publish_buckets('public.{name}', '{name}_b', method => 'two_size',"
        f" assignment => '{assignment}', replace => true, privacy => '{PRIVACY}'"
        f"{ASSIGNMENTS[assignment]})",
    )


def measure_verify(dsn: str, name: str) -> tuple[float, float, Counter[str]]:
    """Return the same of verifying what was published."""
    return _measured(dsn, f"SELECT * FROM kanon.verify('{name}_b')")


def _measured(dsn: str, statement: str) -> tuple[float, float, Counter[str]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        run = _runner(connection, statement)
        run()
        memory = peak_memory(connection.info.backend_pid)
        taken = seconds(run, runs=RUNS)
        steps = Steps(dsn, connection.info.backend_pid)
        with steps.watched():
            run()
    return taken, memory, steps.seconds


def _runner(connection: psycopg.Connection, statement: str) -> Callable[[], object]:
    return lambda: connection.execute(statement).fetchall()


def _row(
    what: str, name: str, taken: float, floors: Mapping[str, float], goal: str, memory: float
) -> list[str]:
    ratio = taken / floors[name]
    target = f"≤ {TARGETS[goal][name]:g}"
    return [what, name, f"{taken:.2f}", f"{ratio:.2f}", target, f"{memory:.0f} MB"]


def _shares(profile: Counter[str]) -> list[list[str]]:
    total = sum(profile.values())
    return [
        [step, f"{taken:.2f}", f"{taken / total:.0%}"]
        for step, taken in profile.items()
        if taken > 0.005 * total
    ]


if __name__ == "__main__":
    print(main())
