"""How long every kind of question takes on 1,000,000 rows of every kind, against plain SQL."""

from __future__ import annotations

import os
import statistics

import psycopg

from benchmarks.harness import REST, private_server, seconds, table

N_RECORDS = int(os.environ.get("KANON_ANSWERED", "1000000"))
COLUMNS = ("age", "hours", "country", "born", "education", "race", "sex")
SENSITIVE = "occupation"
_PRIVACY = 'privacy => \'{"theta": 8, "base": 0.02}\''
WAYS = {
    "buckets, random": ("publish_buckets", f"{_PRIVACY}, assignment => 'random'"),
    "buckets, cells": ("publish_buckets", _PRIVACY),
    "generalized, Mondrian": (
        "publish_generalized",
        "k => 10, method => 'mondrian', refine => false",
    ),
    "generalized, greedy": (
        "publish_generalized",
        "k => 10, method => 'greedy_search', refine => false, options => '{\"block_size\": 5000}'",
    ),
    "freeform": ("publish_freeform", "k => 5, options => '{\"refine\": false}'"),
    "suppressed": ("publish_suppressed", "k => 10"),
}
QUESTIONS = (
    "SELECT count(*) FROM {} WHERE age BETWEEN 30 AND 40 AND occupation = 'job 12'",
    "SELECT count(*) FROM {} WHERE age > 50 AND education IN ('school 3', 'school 4')",
    "SELECT count(*) FROM {} WHERE age > 50 AND hours < 30 AND country = 7 AND sex = 'f'",
    "SELECT count(*) FROM {} WHERE occupation LIKE 'job 1%' OR age < 25",
    "SELECT count(*) FROM {} WHERE education LIKE '%1' AND age % 5 = 0 AND occupation > 'job 3'",
    "SELECT count(*) FROM {} WHERE born < DATE '1960-01-01' AND extract(month FROM born) = 3",
    "SELECT count(*) FROM {} WHERE age + hours > 100",
    "SELECT count(*) FROM {} WHERE age < hours AND race = 'race 1'",
    "SELECT count(*) FROM {} WHERE age + hours > 100 AND (sex = 'f' OR country > 30)",
    "SELECT count(*) FROM {} WHERE CASE WHEN age > 40 THEN occupation = 'job 2' ELSE sex = 'f' END",
    "SELECT count(*) FILTER (WHERE age > 60), count(*) FROM {} WHERE occupation = 'job 3'",
    "SELECT avg(age) FROM {} WHERE occupation = 'job 3'",
    "SELECT sum(hours) FROM {} WHERE age < 30 AND race = 'race 2'",
    "SELECT avg(age * 2) FROM {} WHERE hours > age",
    "SELECT race, count(*) FROM {} WHERE occupation = 'job 3' GROUP BY race",
    "SELECT age / 10 AS decade, count(*) FROM {} WHERE sex = 'f' GROUP BY 1",
    "SELECT race, avg(age) FROM {} WHERE hours > 50 GROUP BY race",
    "SELECT education, sex, count(*) FROM {} GROUP BY 1, 2",
    "SELECT occupation, count(*) FROM {} WHERE age > 40 GROUP BY occupation",
    "SELECT occupation, avg(hours) FROM {} GROUP BY occupation HAVING count(*) > 1000",
    "SELECT count(DISTINCT education) FROM {} WHERE sex = 'f'",
    "SELECT min(age), max(age) FROM {} WHERE race = 'race 1'",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY hours) FROM {} WHERE sex = 'm'",
    "SELECT 100.0 * count(*) FILTER (WHERE sex = 'f') / count(*) FROM {} WHERE age > 30",
)
RUNS = 3


def main() -> str:
    """Return the results as Markdown."""
    with private_server() as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET client_min_messages = error")
        _make(connection)
        exact = [_time(connection, question.format("people")) for question in QUESTIONS]
        rows, slowest = [], []
        for number, (way, (function, parameters)) in enumerate(WAYS.items()):
            name = f"people_{number}"
            connection.execute(
                f"SELECT * FROM kanon.{function}('public.people', '{name}', {parameters})"
            )
            times = [_asked(connection, question.format(name)) for question in QUESTIONS]
            found = [(time, i) for i, time in enumerate(times) if time is not None]
            ratios = [time / exact[i] for time, i in found]
            taken = [time for time, _ in found]
            slow, worst = max(found)
            median, few = statistics.median(ratios), sum(ratio <= 2 for ratio in ratios)
            rows.append(
                [way, _ms(statistics.median(taken)), f"{median:.1f}", f"{few} of {len(ratios)}",
                 f"{max(ratios):.1f}", _ms(slow)]
            )  # fmt: skip
            question = f"`{QUESTIONS[worst].format('t')}`"
            slowest.append([way, question, _ms(slow), _ms(exact[worst])])
    heading = ["published as", "median", "ratio, median", "at most 2", "ratio, most", "slowest"]
    return (
        f"{len(QUESTIONS)} questions to {N_RECORDS:,} records with {len(COLUMNS)} quasi-identifiers"
        " (numbers, a date and texts, independent of each other) and 50 sensitive values, each"
        f" asked by `kanon.estimate` in a warm session, medians of {RUNS} runs; the ratio is to the"
        " exact query on the source, which the server runs on all cores"
        f" ({_ms(min(exact))} to {_ms(max(exact))}). Target: 2, and 1 s.\n\n"
        + table(heading, rows)
        + REST
        + "The slowest of each:\n\n"
        + table(["published as", "question", "time", "exact"], slowest)
    )


def _ms(time: float) -> str:
    return f"{time * 1000:.0f} ms"


def _make(connection: psycopg.Connection) -> None:
    connection.execute("SELECT setseed(0.5)")
    connection.execute(
        "CREATE TABLE people AS SELECT (random() * 90)::int AS age, (random() * 100)::int AS hours,"
        " (random() * 40)::int AS country, DATE '1930-01-01' + (random() * 25000)::int AS born,"
        " 'school ' || (random() * 16)::int AS education, 'race ' || (random() * 4)::int AS race,"
        " CASE WHEN random() < 0.5 THEN 'f' ELSE 'm' END AS sex,"
        f" 'job ' || (random() * 49)::int AS occupation FROM generate_series(1, {N_RECORDS})"
    )
    connection.execute("VACUUM ANALYZE people")
    connection.execute(
        "SELECT kanon.register_source('public.people', %s, %s)", [list(COLUMNS), SENSITIVE]
    )


def _time(connection: psycopg.Connection, query: str) -> float:
    return seconds(lambda: connection.execute(query).fetchall(), runs=RUNS)


def _asked(connection: psycopg.Connection, question: str) -> float | None:
    """Time a question; None if it is refused, since all cells of a column are suppressed."""

    def ask() -> None:
        connection.execute("SELECT * FROM kanon.estimate(%s)", [question]).fetchall()

    try:
        ask()
    except psycopg.errors.FeatureNotSupported:
        return None
    return seconds(ask, runs=RUNS)
