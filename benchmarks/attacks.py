"""What attacks achieve on publications of a real table, and what playing them costs.

The table is looked for in ``data/`` of the folder named by KANON_SHARED, or of ``../shared``.
"""

from __future__ import annotations

import psycopg

import kanon_db
from benchmarks.harness import REST, peak_memory, private_server, seconds, table
from benchmarks.publication import make_census
from benchmarks.real_tables import DATA, TABLES

ADULT = DATA / "adult_30162.csv.gz"
QUASI_IDENTIFIERS = tuple(TABLES["Adult, occupation"][1])
_BUCKETS = """publish_buckets(%s, %s, privacy => '{"theta": 8, "base": 0.02}'"""
PUBLICATIONS = {
    "buckets, random": f"{_BUCKETS}, assignment => 'random')",
    "buckets, optimal, random": f"{_BUCKETS}, method => 'optimal', assignment => 'random')",
    "buckets, cells": f"{_BUCKETS}, method => 'multi_size')",
    "generalized, k = 5": "publish_generalized(%s, %s, k => 5, method => 'mondrian')",
    "generalized, k = 5, l = 3": "publish_generalized(%s, %s, k => 5, method => 'mondrian',"
    """ constraints => '{"l": 3}')""",
    "freeform, k = 5": """publish_freeform(%s, %s, k => 5, options => '{"refine": false}')""",
    "suppressed, k = 5": "publish_suppressed(%s, %s, k => 5)",
}
COSTLY = {
    "buckets": f"{_BUCKETS})",
    "generalized": "publish_generalized(%s, %s, k => 10, method => 'mondrian', refine => false)",
    "suppressed": "publish_suppressed(%s, %s, k => 10)",
}


LEARNED_AT = (
    '{"theta": 8, "base": 0.02}', '{"theta": 8, "base": 0.02, "cap": 0.5}', '{"l": 3}',
)  # fmt: skip

FURTHER = (
    '{"l": 2}', '{"l": 4}', '{"l": 6}', '{"theta": 8, "base": 0.02, "cap": 0.2}',
)  # fmt: skip


def main() -> str:
    """Return the results as Markdown."""
    with private_server() as dsn:
        return _cost(dsn) + REST + _achieved(dsn) + "\n" + _learned(dsn)


def _achieved(dsn: str) -> str:
    with kanon_db.connect(dsn) as kanon:
        kanon.load(ADULT, "adult")
        kanon.register_source(
            "public.adult", quasi_identifiers=QUASI_IDENTIFIERS, sensitive="occupation"
        )
    rows = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        for title, call in PUBLICATIONS.items():
            connection.execute(f"SELECT kanon.{call}".encode(), ["public.adult", "attacked"])
            found = connection.execute("SELECT * FROM kanon.attack('attacked')").fetchall()
            connection.execute("SELECT kanon.drop_publication('attacked')")
            rows += [
                [title, attack, *(_number(share) for share in shares), f"{people:,}"]
                for attack, *shares, people in found
            ]
    return (
        f"Adult, 30,162 people, {len(QUASI_IDENTIFIERS)} quasi-identifiers, occupation; thresholds"
        " min(1, 8 f + 0.02):\n\n"
        + table(["publication", "attack", "bound", "base rate", "rate", "people"], rows)
    )


def _learned(dsn: str) -> str:
    rows = []
    for number, title in enumerate(list(TABLES)[:3]):
        file, quasi_identifiers, sensitive = TABLES[title]
        with kanon_db.connect(dsn) as kanon:
            kanon.load(DATA / file, f"learned_{number}")
            kanon.register_source(
                f"public.learned_{number}", quasi_identifiers=quasi_identifiers, sensitive=sensitive
            )
        for privacy in (*LEARNED_AT, *(() if number else FURTHER)):
            for assignment in ("random", "cells"):
                with psycopg.connect(dsn, autocommit=True) as connection:
                    connection.execute(
                        "SELECT kanon.publish_buckets(%s, 'attacked', privacy => %s,"
                        " assignment => %s)",
                        [f"public.learned_{number}", privacy, assignment],
                    )
                    found = {
                        attack: shares
                        for attack, *shares in connection.execute(
                            "SELECT attack, bound, base_rate, rate, people"
                            " FROM kanon.attack('attacked')"
                        )
                    }
                    connection.execute("SELECT kanon.drop_publication('attacked')")
                bound, base_rate, rate, people = found["deFinetti"]
                at_least, _, surely, surer = found["surer than the bound: deFinetti"]
                shares = (base_rate, found["most frequent value"][2], rate, bound)
                rows.append(
                    [title, f"`{privacy}`", assignment, *(f"{share:.2f}" for share in shares),
                     f"{surer / people:.0%}", f"{_number(surely)} (bound {_number(at_least)})"]
                )  # fmt: skip
    heading = [
        "table", "privacy", "assignment", "base rate", "most frequent value", "deFinetti", "bound",
        "surer than the bound", "these are right",
    ]  # fmt: skip
    return "What learners achieve:\n\n" + table(heading, rows)


def _cost(dsn: str) -> str:
    make_census(dsn)
    rows = []
    for title, call in COSTLY.items():
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"SELECT kanon.{call}".encode(), ["public.census", "attacked"])
        with psycopg.connect(dsn, autocommit=True) as connection:
            taken = seconds(
                lambda c=connection: c.execute("SELECT kanon.attack('attacked')"), runs=1
            )
            memory = peak_memory(connection.info.backend_pid)
            connection.execute("SELECT kanon.drop_publication('attacked')")
        rows.append([title, f"{taken:.0f} s", f"{memory:.0f} MB"])
    return (
        "All attacks on 1,000,000 records of 8 columns; the memory is the peak of the backend,"
        " including shared buffers of 128 MB. What the attacks achieve is [on their"
        " page](../understand/attacks.md#an-example):\n\n"
        + table(["publication", "time", "peak memory"], rows)
    )


def _number(share: float | None) -> str:
    return "" if share is None else f"{share:.3g}"


if __name__ == "__main__":
    print(main())
