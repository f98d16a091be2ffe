"""Percentiles and dates by group: processor time against the exact query, for each kind.

``python -m benchmarks --write percentiles``; KANON_PERCENTILES has the numbers of rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import psycopg

from benchmarks.harness import REST, private_server, running_seconds, table

N_RECORDS: Final = [int(n) for n in os.environ.get("KANON_PERCENTILES", "30000 300000").split()]
COLUMNS: Final = ("region", "sex", "born", "income")
SENSITIVE: Final = "ill"
WAYS: Final = {
    "buckets, random": (
        "publish_buckets", "privacy => '{\"l\": 3}', assignment => 'random'",
    ),
    "buckets, cells": ("publish_buckets", "privacy => '{\"l\": 3}'"),
    "generalized": ("publish_generalized", "k => 5, method => 'mondrian', refine => false"),
    "freeform": ("publish_freeform", "k => 5, options => '{\"refine\": false}'"),
    "suppressed": ("publish_suppressed", "k => 5"),
}  # fmt: skip
_MEDIAN: Final = "percentile_cont(0.5) WITHIN GROUP (ORDER BY income)"
PERCENTILES: Final = (
    f"SELECT region, {_MEDIAN} FROM {{}} GROUP BY 1",
    f"SELECT ill, {_MEDIAN} FROM {{}} GROUP BY 1",
    f"SELECT region, sex, {_MEDIAN} FROM {{}} GROUP BY 1, 2",
    (
        "SELECT region, percentile_disc(0.9) WITHIN GROUP (ORDER BY income) FROM {}"
        " WHERE ill <> 'ill 1' GROUP BY 1"
    ),
    f"SELECT sex, {_MEDIAN} FROM {{}} WHERE income > 500 GROUP BY 1",
)
DATES: Final = (
    "SELECT extract(year FROM born), count(*) FROM {} GROUP BY 1",
    "SELECT date_trunc('month', born), count(*) FROM {} GROUP BY 1",
    "SELECT date_trunc('decade', born), avg(income) FROM {} GROUP BY 1",
    "SELECT extract(year FROM born), region, count(*) FROM {} WHERE sex = 'f' GROUP BY 1, 2",
)
RUNS: Final = 3
TARGET: Final = 10


def main() -> str:
    """Return the results as Markdown."""
    lines, slowest = [], []
    with private_server() as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET client_min_messages = error")
        # All of the exact query is then in the session's process.
        connection.execute("SET max_parallel_workers_per_gather = 0")
        for n in N_RECORDS:
            _make(connection, n)
            exact = {one: _least(connection, one.format("people")) for one in PERCENTILES + DATES}
            for number, (way, (function, parameters)) in enumerate(WAYS.items()):
                name = f"people_{number}"
                connection.execute(
                    f"SELECT kanon.{function}('public.people', '{name}', {parameters},"
                    " replace => true)"
                )
                line: list[object] = [f"{n:,}", way]
                for questions in (PERCENTILES, DATES):
                    asked = [(_asked(connection, one.format(name)), one) for one in questions]
                    line += _figures(asked, exact)
                    slowest += [
                        [f"{n:,}", way, f"`{one.format('t')}`", _ms(exact[one]),
                         "refused" if time is None else _ms(time)]
                        for time, one in asked
                    ]  # fmt: skip
                lines.append(line)
    return (
        f"{len(PERCENTILES)} percentiles by group, {len(DATES)} counts and averages by year, month"
        f" and decade, of a made table with {len(COLUMNS)} quasi-identifiers (dates over 85 years,"
        " incomes of some 1,900 values), each by `kanon.estimate` in a warm session: processor time"
        f" of the session's process, the least of {RUNS} runs, over that of the exact query on the"
        f" source; no plan is parallel. To reach: {TARGET}; what is refused is not among those at"
        f" most {TARGET}, and has no ratio.\n\n"
        + table(
            ["rows", "published as", "percentiles, median", "ratios", f"at most {TARGET}",
             "dates, median", "ratios", f"at most {TARGET}"],
            lines,
        )
        + REST
        + table(["rows", "published as", "question", "exact", "estimate"], slowest)
    )  # fmt: skip


def _figures(asked: Sequence[tuple[float | None, str]], exact: dict[str, float]) -> list[object]:
    times = sorted(time for time, _ in asked if time is not None)
    ratios = sorted(time / exact[one] for time, one in asked if time is not None)
    if not times:
        return ["", "refused", ""]
    few = sum(ratio <= TARGET for ratio in ratios)
    return [
        _ms(times[len(times) // 2]), f"{ratios[0]:.1f} to {ratios[-1]:.1f}",
        f"{few} of {len(asked)}",
    ]  # fmt: skip


def _ms(time: float) -> str:
    return f"{time * 1000:.0f} ms"


def _make(connection: psycopg.Connection, n: int) -> None:
    connection.execute("SELECT setseed(0.5)")
    connection.execute("CREATE TABLE IF NOT EXISTS people"
                       " (region text, sex text, born date, income int, ill text)")  # fmt: skip
    connection.execute("TRUNCATE people")
    connection.execute(
        "INSERT INTO people SELECT 'region ' || (random() * 4)::int,"
        " CASE WHEN random() < 0.5 THEN 'f' ELSE 'm' END, DATE '1930-01-01'"
        " + (random() * 31000)::int, (random() * random() * 1900)::int,"
        f" 'ill ' || (random() * 9)::int FROM generate_series(1, {n})"
    )
    connection.execute("VACUUM ANALYZE people")
    connection.execute(
        "SELECT kanon.register_source('public.people', %s, %s)", [list(COLUMNS), SENSITIVE]
    )


def _least(connection: psycopg.Connection, query: str) -> float:
    """Return the least processor time of the session's process."""
    times = []
    for _ in range(RUNS):
        before = running_seconds(connection.info.backend_pid)
        connection.execute(query.encode()).fetchall()
        times.append(running_seconds(connection.info.backend_pid) - before)
    return min(times)


def _asked(connection: psycopg.Connection, question: str) -> float | None:
    """Time a question; None if it is refused."""
    literal = question.replace("'", "''")
    try:
        return _least(connection, f"SELECT * FROM kanon.estimate('{literal}')")
    except psycopg.errors.FeatureNotSupported:
        return None
