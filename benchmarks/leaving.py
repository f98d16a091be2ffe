"""People who come and leave: refreshes by the entity's keyed hash, and under m-invariance.

``python -m benchmarks --write leaving``. Tables are looked for in ``data/`` of the folder named by
KANON_SHARED, or of ``../shared``; their rows are put into a random order.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
import pandas as pd
import psycopg

import kanon_db
from benchmarks.harness import private_server, processor_seconds, table
from benchmarks.real_tables import DATA
from kanon_db.algorithms.releases.m_invariance import NEW, refresh

N_MONTHS: Final = 12
LEAVING: Final = 0.05
N_QUERIES: Final = 1_000
TABLES: Final = {
    "adult_30162.csv.gz": (
        ["age", "education", "marital-status", "race", "sex"], "occupation", 3,
    ),
    "fars_occupants.csv.gz": (["age", "sex", "year", "airbag", "inimpact"], "state", 4),
}  # fmt: skip
N_ROWS: Final = 1_000_000
N_NEW: Final = 10_000
N_WARM_UP: Final = 20_000
RUNS: Final = 3
MOST_PUBLICATIONS: Final = 2
_SAID: Final = (
    ("random", ["arrival"]),
    ("random", ["entity"]),
    ("random", ["arrival", "entity"]),
    ("m_invariant", ["entity"]),
)
"""How buckets are drawn, and what the source says of records."""


def main() -> str:
    """Return the results as Markdown."""
    with private_server() as dsn, tempfile.TemporaryDirectory() as folder:
        lines = [_year(dsn, Path(folder), file) for file in TABLES]
        hashes = _hashes(dsn)
    return (
        f"Two thirds of the rows, in a random order, and then each month {LEAVING:.0%} of them"
        " leave and a part of the others comes: the first publication and"
        f" {N_MONTHS - 1} refreshes of `assignment => 'm_invariant'`. *Left out* are people who"
        " stay, all months together, and their share of all rows; *counterfeits* is how many"
        " values of nobody the paper's algorithm would have published in the last month of the"
        " same year instead. *Bound kept* says whether everybody was in buckets with the same"
        " distinct values in all releases. The error is the mean relative error of"
        f" {N_QUERIES:,} random counts (up to 3 quasi-identifiers) against the source as it is at"
        " the end, people left out included; in the refreshed publication over that of a new one"
        " of the method `anatomy`.\n\n"
        + table(
            ["table", "l", "people at first, at the end", "published at the end", "left out",
             "counterfeits", "bound kept", "error: new one", "error: refreshed", "last refresh",
             "new one"],
            lines,
        )
        + f"\n\nA refresh of {N_ROWS:,} people with {N_NEW:,} more, in buckets of `{{\"l\": 3}}`:"
        f" CPU seconds of the session's process, medians of {RUNS}; no plan is parallel. Hashes are"
        " those of entities and their records, with the rows that the refresh has written anew."
        " Where people can leave (`m_invariant`), everybody is drawn anew. To reach: at most"
        f" {MOST_PUBLICATIONS} publications' time.\n\n"
        + table(
            ["assignment", "the source says", "publishing", "refresh", "over publishing",
             "hashes on disk"],
            hashes,
        )
    )  # fmt: skip


def _run(dsn: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def _months(n: int) -> Iterator[tuple[int, int, np.ndarray]]:
    """Say which rows come in each month, from one to the next, and draw who leaves of all."""
    draw = np.random.default_rng(5)
    first = n * 2 // 3
    ends = np.linspace(first, n, N_MONTHS).astype(int)
    yield 0, first, np.zeros(n, dtype=np.bool_)
    for low, high in pairwise(ends):
        yield int(low), int(high), draw.random(n) < LEAVING


def _year(dsn: str, folder: Path, file: str) -> list[object]:
    quasi_identifiers, sensitive, l = TABLES[file]
    frame = pd.read_csv(DATA / file, usecols=[*quasi_identifiers, sensitive])
    frame = frame.sample(frac=1, random_state=3).reset_index(drop=True)
    frame["number"] = range(len(frame))
    name = file.split("_")[0]
    frame.to_csv(folder / f"{name}.csv", index=False)
    privacy = {"l": l}
    with kanon_db.connect(dsn) as kanon:
        kanon.load(folder / f"{name}.csv", f"{name}_all")
        _run(dsn, f"CREATE TABLE {name} AS SELECT * FROM {name}_all WHERE false")
        kanon.register_source(
            name, quasi_identifiers=quasi_identifiers, sensitive=sensitive, entity="number"
        )
        # The same people with their number, so that their buckets can be compared.
        _run(dsn, f"CREATE VIEW {name}_linked AS SELECT *, number AS person FROM {name}")
        kanon.register_source(
            f"{name}_linked", quasi_identifiers=[*quasi_identifiers, "person"],
            sensitive=sensitive, entity="number",
        )  # fmt: skip
        states: list[dict[int, tuple[str, ...]]] = []
        left_out, here, first = 0, np.zeros(len(frame), dtype=np.bool_), 0
        for low, high, leaves in _months(len(frame)):
            gone = np.flatnonzero(here & leaves)
            here[gone] = False
            here[low:high] = True
            _run(dsn, f"DELETE FROM {name} WHERE number = ANY (%s)", gone.tolist())
            _run(
                dsn,
                f"INSERT INTO {name} SELECT * FROM {name}_all WHERE number >= {low}"
                f" AND number < {high}",
            )
            started = perf_counter()
            if not states:
                first = high
                kanon.publish_buckets(name, "moves", privacy=privacy, assignment="m_invariant")
            else:
                left_out += kanon.refresh("moves").left_out
            seconds = perf_counter() - started
            if not states:
                kanon.publish_buckets(
                    f"{name}_linked", "linked", privacy=privacy, assignment="m_invariant",
                    readers=[],
                )  # fmt: skip
            else:
                kanon.refresh("linked")
            states.append(_signatures(dsn, sensitive))
        records = int(kanon.metrics("moves").set_index("metric")["value"]["records"])
        started = perf_counter()
        kanon.publish_buckets(
            name, "fresh", privacy=privacy, method="anatomy", assignment="random",
            accept={"combined_releases": "a measurement"},
        )  # fmt: skip
        at_once = perf_counter() - started
        errors = [
            float(kanon.evaluate_counts(of, queries=N_QUERIES, dimensionality=[1, 2, 3], seed=3)[
                "mean_relative_error"
            ].mean())
            for of in ("fresh", "moves")
        ]  # fmt: skip
        for publication in ("fresh", "moves", "linked"):
            kanon.drop_publication(publication)
    return [
        name, l, f"{first:,}, {int(here.sum()):,}", f"{records:,}",
        f"{left_out:,} ({left_out / len(frame):.1%})",
        f"{_counterfeits(frame[sensitive], l):,}", "yes" if _is_kept(states, l) else "**no**",
        f"{errors[0]:.4f}", f"{errors[1] / errors[0]:.2f}x", f"{seconds:.2f} s", f"{at_once:.2f} s",
    ]  # fmt: skip


def _signatures(dsn: str, sensitive: str) -> dict[int, tuple[str, ...]]:
    """Read the values of everybody's bucket, by their number."""
    values = dict(_run(
        dsn,
        f'SELECT bucket_id, array_agg("{sensitive}"::text ORDER BY "{sensitive}"::text)'
        " FROM (SELECT *, generate_series(1, count) FROM published.linked_sat) AS s GROUP BY 1",
    ))  # fmt: skip
    people = _run(dsn, "SELECT person, bucket_id FROM published.linked_qit")
    return {person: tuple(values[bucket]) for person, bucket in people}


def _is_kept(states: list[dict[int, tuple[str, ...]]], l: int) -> bool:
    """Tell whether everybody was with the same l or more distinct values whenever published."""
    first: dict[int, tuple[str, ...]] = {}
    return all(
        len(set(values)) == len(values) >= l and first.setdefault(person, values) == values
        for state in states
        for person, values in state.items()
    )


def _counterfeits(sensitive: pd.Series, l: int) -> int:
    """Count the values of nobody in the last month, by the paper's algorithm."""
    values, _ = pd.factorize(sensitive)
    signature_of = np.full(values.size, NEW)
    signatures: tuple[tuple[int, ...], ...] = ()
    here, number = np.zeros(values.size, dtype=np.bool_), 0
    for low, high, leaves in _months(values.size):
        here &= ~leaves
        here[low:high] = True
        who = np.flatnonzero(here)
        found = refresh(
            values[who], signature_of[who], signatures, l, np.random.default_rng(low),
            counterfeits=True,
        )  # fmt: skip
        placed = ~found.waits
        signature_of[who[placed]] = found.signature_of_bucket[found.bucket_of[placed]]
        signatures, number = found.signatures, int(found.counterfeit_value.size)
    return number


_PEOPLE: Final = (
    "SELECT i AS person, i AS came, i % 97 AS age, i % 2 AS sex, hashint4(i) & 15 AS illness"
    " FROM generate_series({}, {}) AS i"
)


def _hashes(dsn: str) -> list[list[object]]:
    """Publish and refresh in one session for each way; CPU seconds are those of its process."""
    lines: list[list[object]] = []
    _run(dsn, "ALTER SYSTEM SET max_parallel_workers_per_gather = 0")
    _run(dsn, "SELECT pg_reload_conf()")
    for assignment, said in _SAID:
        with psycopg.connect(dsn, autocommit=True) as session:
            _refreshed(dsn, session, assignment, said, N_WARM_UP)
            runs = [_refreshed(dsn, session, assignment, said, N_ROWS) for _ in range(RUNS)]
        published, refreshed, size = (statistics.median(each) for each in zip(*runs, strict=True))
        lines.append([
            assignment, ", ".join(said), f"{published:.1f}", f"{refreshed:.1f}",
            f"{refreshed / published:.2f}", f"{size:,.0f} MB",
        ])  # fmt: skip
    return lines


def _refreshed(
    dsn: str, session: psycopg.Connection, assignment: str, said: Sequence[str], n: int
) -> tuple[float, float, float]:
    """Return the CPU seconds of publishing and of a refresh, and the megabytes of hashes."""
    n_new = n * N_NEW // N_ROWS
    _run(dsn, f"CREATE TABLE million AS {_PEOPLE.format(1, n)}")
    _run(dsn, "ANALYZE million")
    columns = {"arrival": "came", "entity": "person"}
    given = ", ".join(f"{name} => '{columns[name]}'" for name in said)
    session.execute(
        f"SELECT kanon.register_source('public.million', '{{age,sex}}', 'illness', {given})"
    )
    before = processor_seconds(session.info.backend_pid)
    session.execute(
        "SELECT kanon.publish_buckets('public.million', 'people', privacy => '{\"l\": 3}',"
        " assignment => %s)",
        [assignment],
    )
    published = processor_seconds(session.info.backend_pid)
    _run(dsn, f"INSERT INTO million {_PEOPLE.format(n + 1, n + n_new)}")
    (added,) = session.execute("SELECT added FROM kanon.refresh('people')").fetchone() or (0,)
    refreshed = processor_seconds(session.info.backend_pid)
    if added != n_new:
        raise RuntimeError("not everybody was found")
    ((size,),) = _run(
        dsn,
        "SELECT (pg_total_relation_size('kanon.release_entity')"
        " + pg_total_relation_size('kanon.release_record')) / 2 ^ 20",
    )
    session.execute("SELECT kanon.drop_publication('people')")
    _run(dsn, "DROP TABLE million")
    for hashes in ("release_entity", "release_record"):
        _run(dsn, f"VACUUM FULL kanon.{hashes}")
    return published - before, refreshed - published, size
