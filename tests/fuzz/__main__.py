"""Asks questions of random publications until there are enough, or the time is up.

python -m tests.fuzz --questions 20000 --seed 1
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator

import psycopg
from psycopg.conninfo import make_conninfo

from benchmarks.harness import private_server
from tests.fuzz.runs import Findings, run_scenario
from tests.integration.parties import Connection, fetch
from tests.meaning.tables import make_schemas


@contextlib.contextmanager
def _sessions(dsn: str) -> Iterator[tuple[Connection, Connection, Connection]]:
    with psycopg.connect(dsn, autocommit=True) as admin:
        for role in ("publisher", "analyst"):
            fetch(admin, f"CREATE ROLE {role} LOGIN IN ROLE kanon_{role}")
        fetch(admin, f'GRANT CREATE ON DATABASE "{admin.info.dbname}" TO publisher')
        with (
            psycopg.connect(make_conninfo(dsn, user="publisher"), autocommit=True) as publisher,
            psycopg.connect(make_conninfo(dsn, user="analyst"), autocommit=True) as analyst,
        ):
            make_schemas(publisher)
            fetch(admin, "UPDATE kanon.draw_key SET key = decode(repeat('07', 32), 'hex')")
            yield publisher, analyst, admin


def main() -> int:
    """Return 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--questions", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first scenario")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--most-faults", type=int, default=10, help="end after so many")
    given = parser.parse_args()
    findings, seed, end = Findings(), given.seed, time.monotonic() + 60 * given.minutes
    with private_server() as dsn, _sessions(dsn) as (publisher, analyst, admin):
        while findings.n_questions < given.questions and time.monotonic() < end:
            run_scenario(
                publisher, analyst, admin, seed, findings,
                lambda told: print(f"\n-- a fault:\n{told}", flush=True),
            )  # fmt: skip
            seed += 1
            if len(findings.faults) >= given.most_faults:
                break
            if seed % 20 == 0:
                print(seed, findings.n_questions, len(findings.faults), file=sys.stderr, flush=True)
    print(
        f"{findings.n_questions:,} questions, seeds {given.seed} to {seed - 1}:"
        f" {dict(findings.outcomes)}, {len(findings.faults)} faults"
    )
    for kind, n in findings.kinds.most_common():
        print(f"{n:6} {kind}")
    return int(bool(findings.faults))


if __name__ == "__main__":
    sys.exit(main())
