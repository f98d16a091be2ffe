"""Random questions to publications of all kinds, and to their sources: certain means certain.

The tables and the grammar are those of the tests (``tests/meaning``), which ask fewer questions.
"""

from __future__ import annotations

import sys
from collections import Counter
from time import perf_counter
from typing import Final

import psycopg
from psycopg.conninfo import make_conninfo

from benchmarks.harness import REST, private_server, table
from tests.integration.parties import fetch
from tests.meaning.questions import Questions
from tests.meaning.tables import (
    SCHEMA,
    TABLES,
    WAYS,
    WITHOUT_SOME_VALUES,
    make_tables,
    publish_all,
    ways_of,
)
from tests.meaning.verdict import ask

N_RECORDS: Final = 1_000
N_QUESTIONS: Final = 10_000
"""Of each kind of publication and table: the ways of a kind share them."""

SEED: Final = 150


def main() -> str:
    """Return the results as Markdown."""
    rows, of_tables, faults, total = [], [], [], Counter[str]()
    with private_server() as dsn:
        _prepare(dsn)
        with (
            psycopg.connect(dsn, autocommit=True) as admin,
            psycopg.connect(make_conninfo(dsn, user="publisher"), autocommit=True) as publisher,
            psycopg.connect(make_conninfo(dsn, user="analyst"), autocommit=True) as analyst,
        ):
            for name in TABLES:
                publish_all(publisher, name)
                of_table, n_faults, longest = Counter[str](), len(faults), 0.0
                kinds = Counter(WAYS[way][0] for way in ways_of(name))
                for way in ways_of(name):
                    questions = Questions(publisher, *TABLES[name], seed=SEED + len(rows))
                    outcomes, wrong, slowest = Counter[str](), 0, 0.0
                    for _ in range(-(-N_QUESTIONS // kinds[WAYS[way][0]])):
                        started = perf_counter()
                        found = ask(
                            analyst, admin, f"{way}_{name}", f"{SCHEMA}.{name}",
                            questions.question(), lists_all=way not in WITHOUT_SOME_VALUES,
                        )  # fmt: skip
                        slowest = max(slowest, perf_counter() - started)
                        outcomes[found.outcome] += 1
                        wrong += bool(found.faults)
                        faults += [f"{found.question}: {fault}" for fault in found.faults[:1]]
                    total.update(outcomes)
                    of_table.update(outcomes)
                    longest = max(longest, slowest)
                    rows.append(
                        [name, way, f"{outcomes['answered']:,}", f"{outcomes['refused']:,}",
                         f"{outcomes['not SQL']:,}", wrong, f"{slowest:.1f} s"]
                    )  # fmt: skip
                    print(rows[-1], *faults, sep="\n", file=sys.stderr, flush=True)
                of_tables.append(
                    [name, f"{of_table['answered']:,}", f"{of_table['refused']:,}",
                     f"{of_table['not SQL']:,}", len(faults) - n_faults, f"{longest:.1f} s"]
                )  # fmt: skip
    return (
        f"{N_QUESTIONS:,} questions to each kind of publication of {len(TABLES)} tables of"
        f" {N_RECORDS:,} records, from seeds of {SEED} and more: {total['answered']:,} were"
        f" answered, and {len(faults)} of these answers were wrong: a bound that does not contain"
        " the true answer, an estimate outside of its bounds, or a missing group. A question is"
        " refused where the estimator says so, and not SQL where PostgreSQL itself refuses it.\n\n"
        + table(["table", "answered", "refused", "not SQL", "wrong", "slowest"], of_tables)
        + "".join(f"\nWrong: {fault}\n" for fault in faults)
        + REST
        + table(
            ["table", "published as", "answered", "refused", "not SQL", "wrong", "slowest"], rows
        )
    )


def _prepare(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as admin:
        for role in ("publisher", "analyst"):
            fetch(admin, f"CREATE ROLE {role} LOGIN IN ROLE kanon_{role}")
        fetch(admin, f"GRANT CREATE ON DATABASE {admin.info.dbname} TO publisher")
        fetch(admin, "CREATE EXTENSION citext SCHEMA public")
    with psycopg.connect(make_conninfo(dsn, user="publisher"), autocommit=True) as publisher:
        make_tables(publisher, N_RECORDS)
