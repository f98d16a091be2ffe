"""What a worker costs beside the SQL functions that run in PL/Python, and how many wait for it."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from benchmarks.harness import private_server, table
from kanon_db.installation.service import allow
from tests.service import Service, served

RECORDS = 1_000_000
RUNS = 3
SUBMITTERS = 64
WAYS = {
    "buckets, drawn at random": """publish_buckets('{0}', '{1}', assignment => 'random',
        privacy => '{{"l": 4}}', replace => true)""",
    "buckets, in cells": """publish_buckets('{0}', '{1}', privacy => '{{"l": 4}}',
        replace => true)""",
    "suppressed": "publish_suppressed('{0}', '{1}', k => 5, replace => true)",
}
QUESTION = "estimate_count('SELECT COUNT(*) FROM buckets WHERE age > 30 AND sick = 2')"
PEOPLE = """
CREATE TABLE {0}.people AS SELECT 20 + i % 50 AS age, i % 2 AS sex, i % 97 AS town,
    i % 9973 * 79 % 13 AS work, i % 7919 * 47 % 11 AS sick, i AS number
FROM generate_series(1, {1}) AS i
"""
REGISTER = "register_source('{0}.people', '{{age,sex,town,work}}', sensitive => 'sick')"

Connection = psycopg.Connection[Any]


def main() -> str:
    """Publish in both ways, in turns; then let many roles ask at once."""
    with (
        private_server() as dsn,
        tempfile.TemporaryDirectory() as folder,
        served(dsn, "as_a_service", Path(folder)) as service,
    ):
        service.work(heartbeat="4", dsn=make_conninfo(service.superuser_dsn, user=""))
        with psycopg.connect(dsn, autocommit=True) as inside, submitter(service) as outside:
            prepare(inside, "public", lambda call: inside.execute(f"SELECT kanon.{call}"))
            prepare(outside, "hers", lambda call: as_job(outside, call))
            rows = [compared(inside, outside, name, call) for name, call in WAYS.items()]
            rows.append(compared(inside, outside, "a question", QUESTION))
        crowd = many(service)
    heading = ["1,000,000 rows", "SQL function, s", "through the worker, s", "ratio"]
    return (
        f"Medians of {RUNS} runs, in turns; the worker's processes are new for each job. Target:"
        f" 1.3 for what is published.\n\n{table(heading, rows)}\n{crowd}"
    )


@contextmanager
def submitter(service: Service) -> Iterator[Connection]:
    """Make a role that submits jobs, with a schema of its own."""
    with service.submitter("her", "kanon_publisher") as connection:
        with psycopg.connect(service.superuser_dsn, autocommit=True) as superuser:
            superuser.execute("CREATE SCHEMA hers AUTHORIZATION her")
        yield connection


def prepare(connection: Connection, schema: str, perform: Any) -> None:
    """Make people, and register them."""
    connection.execute(PEOPLE.format(schema, RECORDS).encode())
    connection.execute(f"ANALYZE {schema}.people".encode())
    perform(REGISTER.format(schema))


def as_job(connection: Connection, call: str) -> None:
    """Submit a call, and wait for it."""
    connection.execute(f"SELECT * FROM kanon.{call}".encode())
    connection.execute("SELECT * FROM kanon.wait()")


def compared(inside: Connection, outside: Connection, name: str, call: str) -> list[str]:
    """Time a call in both ways, in turns, after one of each that nobody times."""
    times: tuple[list[float], list[float]] = ([], [])
    relation = "buckets" if name != "suppressed" else "suppressed"
    for run in range(RUNS + 1):
        for taken, connection, schema in zip(
            times, (inside, outside), ("public", "hers"), strict=True
        ):
            whole = call.format(f"{schema}.people", relation)
            began = time.perf_counter()
            if connection is outside:
                as_job(connection, whole)
            else:
                connection.execute(f"SELECT * FROM kanon.{whole}".encode())
            if run:
                taken.append(time.perf_counter() - began)
            print(name, schema, f"{time.perf_counter() - began:.2f}", file=sys.stderr, flush=True)
    within, through = map(statistics.median, times)
    return [name, f"{within:.2f}", f"{through:.2f}", f"{through / within:.2f}"]


def many(service: Service) -> str:
    """Let as many roles ask at once: each answer comes, once."""
    roles = [f"reader_{i}" for i in range(SUBMITTERS)]
    with psycopg.connect(service.dsn, autocommit=True) as admin:
        for role in roles:
            admin.execute(f"CREATE ROLE {role} LOGIN IN ROLE kanon_analyst".encode())
    allow(service.dsn, roles, None)

    def ask(role: str) -> float:
        began = time.perf_counter()
        with psycopg.connect(
            make_conninfo(service.superuser_dsn, user=role), autocommit=True
        ) as one:
            as_job(one, QUESTION)
        return time.perf_counter() - began

    began = time.perf_counter()
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        waited = sorted(pool.map(ask, roles))
    whole = time.perf_counter() - began
    return (
        f"{SUBMITTERS} roles that ask at once, one worker with two processes: all are answered in"
        f" {whole:.1f} s; the median waits {statistics.median(waited):.1f} s, the last one"
        f" {waited[-1]:.1f} s.\n"
    )
