"""Answering queries: speed against plain SQL, many analysts at once, and the truth of the errors.

``python -m benchmarks counting`` takes some 15 minutes on two cores; docs/understand/estimation.md
sums it up.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import psycopg
from psycopg.conninfo import conninfo_to_dict

import kanon_db
from benchmarks.harness import private_server, seconds, table
from benchmarks.publication import make_census
from kanon_db.algorithms.ground.arrays import BoolArray, FloatArray, IntArray
from kanon_db.declaration import parameters_of
from kanon_db.publications.buckets.request import BucketRequest

DATA = Path(__file__).parents[2] / "shared" / "data"

PRIVACY = '{"theta": 8, "base": 0.02}'
SOURCE, PUBLICATION = "census", "census_b"

COUNTS = (
    "age BETWEEN 30 AND 40 AND occupation = 'occupation 12'",
    "age >= 50 AND sex = 'sex 1' AND occupation IN ('occupation 3', 'occupation 4')",
    "native_country = 'country 7' AND age < 60 AND occupation > 'occupation 5'",
    "education LIKE '%1' AND age % 5 = 0 AND occupation <> 'occupation 1'",
    "CASE WHEN age > 40 THEN sex = 'sex 1' ELSE race = 'race 2' END AND occupation > 'o'",
    "age > 60 OR occupation = 'occupation 2'",
    "race = 'race 2' AND age > 20",
)
GROUPS = (
    "SELECT sex, COUNT(*) FROM {} WHERE occupation = 'occupation 12' GROUP BY sex",
    "SELECT sex, occupation, COUNT(*) FROM {} WHERE age > 40 GROUP BY sex, occupation",
    "SELECT AVG(age) FROM {} WHERE occupation = 'occupation 12'",
    "SELECT COUNT(*) FROM {} WHERE CASE WHEN age > 40 THEN occupation = 'occupation 12' END",
)
ANALYSTS = 200

N_QUERIES = 5_000


@dataclass(frozen=True)
class Table:
    """A real table to publish: its file, its columns and its privacy."""

    file: str
    quasi_identifiers: tuple[str, ...]
    sensitive: str
    privacy: str

    @property
    def name(self) -> str:
        """The file's name up to its number of rows."""
        return self.file.split("_")[0].split(".")[0]


TABLES = (
    Table(
        "adult_30162.csv.gz",
        ("age", "workclass", "education", "marital-status", "race", "sex", "native-country"),
        "occupation",
        PRIVACY,
    ),
    Table(
        "nursery.csv.gz",
        ("parents", "has_nurs", "form", "children", "housing", "finance", "social"),
        "class",
        '{"default": 0.5}',
    ),
    Table(
        "fars_occupants.csv.gz",
        ("age", "sex", "year", "airbag", "inimpact", "Restraint"),
        "injury",
        '{"default": 0.6}',
    ),
    Table(
        "cmc.csv.gz",
        ("wife_age", "wife_education", "husband_education", "children", "living_standard"),
        "method",
        '{"default": 0.6}',
    ),
)


def assignments() -> list[str]:
    """Every assignment that is declared."""
    (declared,) = [p.type for p in parameters_of(BucketRequest) if p.name == "assignment"]
    return list(declared.choices)


def main() -> str:
    """Return the results as Markdown."""
    with private_server() as dsn:
        make_census(dsn)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                f"SELECT * FROM kanon.publish_buckets('public.{SOURCE}', '{PUBLICATION}',"
                f" assignment => 'random', privacy => '{PRIVACY}')"
            )
        parts = [
            "### Speed\n",
            _speed(dsn),
            "### Many analysts at once\n",
            _many_analysts(dsn),
            "### How far off estimates are\n",
            _coverage(dsn),
        ]
    return "\n".join(parts)


# -- speed ------------------------------------------------------------------------------------


def _speed(dsn: str) -> str:
    rows = []
    with psycopg.connect(dsn, autocommit=True) as connection:

        def timed(statement: str, *values: str) -> float:
            connection.execute(statement, values or None)  # warm up
            return seconds(lambda: connection.execute(statement, values or None).fetchall(), runs=9)

        queries = [f"SELECT COUNT(*) FROM {{}} WHERE {where}" for where in COUNTS]
        for query in (*queries, *GROUPS):
            exact = timed(query.format(SOURCE))
            estimate = timed("SELECT * FROM kanon.estimate(%s)", query.format(PUBLICATION))
            shown = query.removeprefix("SELECT COUNT(*) FROM {} WHERE ").replace(" FROM {}", "")
            rows.append(
                [f"`{shown}`", f"{1000 * exact:.0f} ms", f"{1000 * estimate:.0f} ms",
                 f"{estimate / exact:.2f}"]
            )  # fmt: skip
    heading = ["1,000,000 records", "exact, from the source", "estimate, warm", "ratio"]
    return table(heading, rows)


# -- many analysts ----------------------------------------------------------------------------


def _many_analysts(dsn: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET max_connections = {ANALYSTS + 20}")
        folder = connection.execute("SELECT current_setting('data_directory')").fetchone()
    cluster = _cluster_of(str(folder[0]) if folder else "")
    with _restarted(cluster):
        alone = _pgbench(dsn, clients=1, duration=15)
        crowd = _pgbench(dsn, clients=ANALYSTS, duration=90)
    cores = os.cpu_count() or 1
    # Of a closed loop of n clients on c cores, each waits for n / c turns.
    turn = np.median(alone) * ANALYSTS / cores
    return table(
        ["analysts", "queries", "median", "95th percentile", "95th percentile / fair share"],
        [
            ["1", alone.size, f"{np.median(alone):.1f} ms", f"{np.quantile(alone, 0.95):.1f} ms",
             f"{np.quantile(alone, 0.95) / np.median(alone):.2f}"],
            [ANALYSTS, crowd.size, f"{np.median(crowd):.0f} ms",
             f"{np.quantile(crowd, 0.95):.0f} ms",
             f"{np.quantile(crowd, 0.95) / turn:.2f} (target < 3)"],
        ],
    )  # fmt: skip


def _cluster_of(data_directory: str) -> Path:
    return Path(data_directory).parent


@contextmanager
def _restarted(folder: Path) -> Iterator[None]:
    from kanon_db.cluster.local_cluster import LocalCluster

    cluster = LocalCluster(folder)
    cluster.stop()
    cluster.start()
    yield


def _pgbench(dsn: str, *, clients: int, duration: int) -> FloatArray:
    """Run estimates from so many sessions; the latencies in milliseconds.

    Of the second half: in the first, each session pays for its imports.
    """
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT current_setting('server_version_num')::int / 10000")
        version = (row.fetchone() or [0])[0]
    program = f"/usr/lib/postgresql/{version}/bin/pgbench"
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, where in enumerate(COUNTS):
            path = Path(folder, f"{number}.sql")
            query = f"SELECT COUNT(*) FROM {PUBLICATION} WHERE {where}".replace("'", "''")
            path.write_text(f"SELECT * FROM kanon.estimate_count('{query}');\n")
            files += ["-f", str(path)]
        given = conninfo_to_dict(dsn)
        subprocess.run(
            [program, "-n", "-c", str(clients), "-j", "1", "-T", str(duration), "-l",
             f"--log-prefix={folder}/log", *files, "-h", str(given["host"]), "-p",
             str(given.get("port", 5432)), "-U", str(given["user"]), str(given["dbname"])],
            check=True,
            capture_output=True,
        )  # fmt: skip
        logs = [
            pd.read_csv(path, sep=" ", header=None, usecols=[2, 4])
            for path in Path(folder).glob("log*")
        ]
    log = pd.concat(logs)
    later = log[log[4] > log[4].max() - duration / 2]
    return later[2].to_numpy(dtype=np.float64) / 1000


# -- coverage ---------------------------------------------------------------------------------


def _coverage(dsn: str) -> str:
    rows = []
    for chosen in TABLES:
        path = DATA / chosen.file
        if not path.exists():
            rows.append([chosen.name, "no data here", *[""] * 7])
            continue
        with kanon_db.connect(dsn) as kanon:
            kanon.load(path, f"public.{chosen.name}")
            kanon.register_source(
                f"public.{chosen.name}",
                quasi_identifiers=chosen.quasi_identifiers,
                sensitive=chosen.sensitive,
            )
        for assignment in assignments():
            with kanon_db.connect(dsn) as kanon:
                name = f"{chosen.name}_b"
                kanon.publish_buckets(
                    f"public.{chosen.name}", name, privacy=chosen.privacy, assignment=assignment,
                    replace=True,
                )  # fmt: skip
            rows.append([chosen.name, assignment, *_covered(dsn, chosen, name)])
    heading = ["table", "assignment", "queries", "bounds hold", "within 1", "within 2", "within 3",
               "median error", "median width"]  # fmt: skip
    return table(heading, rows)


def _covered(dsn: str, chosen: Table, publication: str) -> list[str]:
    random = np.random.default_rng(4)
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(f"SELECT * FROM public.{chosen.name}")
        names = [column.name for column in cursor.description or ()]
        source = pd.DataFrame(cursor.fetchall(), columns=names)
        coded = {
            name: pd.factorize(source[name], sort=True)
            for name in (*chosen.quasi_identifiers, chosen.sensitive)
        }
        answers = []
        while len(answers) < N_QUERIES:
            where, holds = _question(random, chosen, coded)
            row = connection.execute(
                "SELECT * FROM kanon.estimate_count(%s)",
                [f"SELECT COUNT(*) FROM {publication} WHERE {where}"],
            ).fetchone()
            if row is not None and row[2] < row[3]:  # else there is nothing to estimate
                answers.append([int(holds.sum()), *row])
    truth, estimate, error, lower, upper, *_ = np.array(answers).T
    off = np.abs(truth - estimate)
    return [
        f"{N_QUERIES:,}",
        f"{np.mean((lower <= truth) & (truth <= upper)):.2%}",
        *(f"{np.mean(off <= times * error + 1e-9):.1%}" for times in (1, 2, 3)),
        f"{np.median(off / np.maximum(truth, 1)):.1%} of the count",
        f"± {np.median(error / np.maximum(truth, 1)):.1%}",
    ]


def _question(
    random: np.random.Generator,
    chosen: Table,
    coded: dict[str, tuple[IntArray, pd.Index]],
) -> tuple[str, BoolArray]:
    """Draw a conjunction on one to three quasi-identifiers and the sensitive attribute."""
    columns = random.choice(chosen.quasi_identifiers, random.integers(1, 4), replace=False)
    parts, holds = [], None
    for column in (*columns, chosen.sensitive):
        codes, values = coded[column]
        if len(values) > 8 and random.random() < 0.5:
            low, high = np.sort(random.integers(0, len(values), 2))
            taken = np.arange(low, high + 1)
            parts.append(f'"{column}" BETWEEN {_sql(values[low])} AND {_sql(values[high])}')
        else:
            size = random.integers(1, max(2, len(values) // 2 + 1))
            taken = random.choice(len(values), size, replace=False)
            listed = ", ".join(_sql(values[i]) for i in taken)
            parts.append(f'"{column}" IN ({listed})')
        meets = np.isin(codes, taken)
        holds = meets if holds is None else holds & meets
    return " AND ".join(parts), holds


def _sql(value: object) -> str:
    return str(value) if isinstance(value, int | float | np.number) else f"'{value}'"


if __name__ == "__main__":
    started = time.perf_counter()
    results = main()
    print(results)
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)
