"""Hostile input: 100,000 queries by every function that takes one, 2,000 sets of arguments.

What is drawn, and how every reply is judged, is in `tests/hostile_input`; the tests take a few
hundred of each. The tables are small, so that what a call takes is what reading, checking, writing
and refusing takes; `benchmarks.hostile_queries` asks a large one.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from time import perf_counter

import psycopg
from psycopg.conninfo import make_conninfo

from benchmarks.harness import PrivateMemory, private_server, table
from tests.hostile_input import entries, runs
from tests.hostile_input.tables import N_PEOPLE, PUBLICATIONS, make_tables
from tests.hostile_input.verdict import ANSWERED, Verdict
from tests.integration.parties import Functions, Parties, fetch

N_QUERIES = 100_000
N_SETS = 2_000
SEED = 14
_TIMEOUT_OF_QUERIES = 2
_TIMEOUT_OF_CALLS = 5


def main() -> str:
    """Return the results as Markdown."""
    with private_server() as dsn, _parties(dsn) as parties:
        make_tables(parties)
        # What a backend imports at its first call is not what hostile input takes.
        Functions(parties.analyst).estimate("SELECT COUNT(*) FROM ill WHERE age = 20")
        Functions(parties.publisher).generalize("data.people", "warm", k=3, dry_run=True)
        started = perf_counter()
        with PrivateMemory(parties.analyst.info.backend_pid) as of_queries:
            asked = runs.ask(parties, N_QUERIES, SEED, _TIMEOUT_OF_QUERIES, _TIMEOUT_OF_QUERIES + 1)
        with PrivateMemory(parties.publisher.info.backend_pid) as of_calls:
            inside, outside = runs.call(
                parties, N_SETS, SEED, _TIMEOUT_OF_CALLS, _TIMEOUT_OF_CALLS + 1
            )
        minutes = (perf_counter() - started) / 60
    defects = [*asked.defects, *inside.defects, *outside.defects]
    sections = [
        _SETTING.format(minutes=minutes),
        _DEFECTS.format(n=len(defects)),
        table(
            ["entry", "calls", "answered", "refused with SQLSTATE", "slowest"],
            [*_rows(asked), *_rows(inside), *_rows(outside)],
        ),
        f"Most memory: {of_queries.needed:.0f} MB for queries, {of_calls.needed:.0f} MB for calls.",
        _meanings("Refusals of queries", runs.REFUSED),
        _meanings("Refusals of calls", entries.REFUSED),
        *(f"Defect: {defect}" for defect in defects),
    ]
    return "\n\n".join(section.rstrip() for section in sections) + "\n"


_SETTING = (
    f"{N_QUERIES:,} queries, each by {len(runs.ASKED)} functions, under a `statement_timeout` of"
    f" {_TIMEOUT_OF_QUERIES} s, and {N_SETS:,} sets of arguments of all operations, each by every"
    f" way in, under one of {_TIMEOUT_OF_CALLS} s; all from the seed {SEED}, in one backend each,"
    f" in {{minutes:.0f}} minutes. They are about {N_PEOPLE} people with canaries in every column,"
    f" published in {len(PUBLICATIONS)} ways. Time is processor time, or wall-clock time if that is"
    " less. A call that takes a second more than its timeout is repeated, since the first call of a"
    " method compiles its code; if it takes so long again, it is a defect. Memory is private memory"
    " of the backend above what it had before."
)
_DEFECTS = (
    "**{n} defects.** Defects are crashes, hangs, tracebacks, SQLSTATEs that are not listed below"
    " (as KN000, a defect of kanon_db's own), and data values in a message, a notice or the"
    " server's log."
)


@contextlib.contextmanager
def _parties(dsn: str) -> Iterator[Parties]:
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        roles = ("publisher", "analyst", "stranger")
        for role in roles:
            fetch(admin, f"CREATE ROLE {role} LOGIN")
        fetch(admin, "GRANT kanon_publisher TO publisher")
        fetch(admin, "GRANT kanon_analyst TO analyst")
        fetch(admin, "CREATE SCHEMA data AUTHORIZATION publisher")
        connections = (
            stack.enter_context(psycopg.connect(make_conninfo(dsn, user=role), autocommit=True))
            for role in roles
        )
        yield Parties(dsn, admin, *connections)


def _rows(verdict: Verdict) -> Iterator[list[str]]:
    for entry in dict.fromkeys(entry for entry, _ in verdict.outcomes):
        found = Counter({state: n for (e, state), n in verdict.outcomes.items() if e == entry})
        states = ", ".join(f"{state} {n:,}" for state, n in found.most_common() if state)
        seconds, _ = verdict.slowest[entry]
        calls = f"{found.total():,}"
        yield [f"`{entry}`", calls, f"{found[ANSWERED]:,}", states, f"{seconds:.1f} s"]


def _meanings(what: str, states: Mapping[str, str]) -> str:
    return f"{what}: {'; '.join(f'{state}: {meaning}' for state, meaning in states.items())}."


if __name__ == "__main__":
    print(main())
