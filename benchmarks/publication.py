"""Publishing and answering on a 1,000,000-row, 8-column table, against plain SQL on the same data.

The table is shaped like Adult: seven quasi-identifiers with its numbers of values, and an
occupation whose 14 frequencies are Adult's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import psycopg

from benchmarks.harness import peak_memory, private_server, running_seconds, seconds, table

N_RECORDS = 1_000_000
PRIVACY = '{"theta": 8, "base": 0.02}'
_N_SESSIONS = 31
OCCUPATIONS = (3721, 9, 4030, 3992, 989, 1350, 1966, 3212, 143, 4038, 644, 3584, 912, 1572)

_QUERIES = (
    "age BETWEEN 30 AND 40 AND occupation = 'occupation 12'",
    "age >= 50 AND sex = 'sex 1' AND occupation IN ('occupation 3', 'occupation 4')",
    "education IN ('education 1', 'education 2', 'education 3') AND occupation <> 'occupation 1'",
    "race = 'race 2' AND workclass = 'workclass 3' AND occupation = 'occupation 9'",
    "native_country = 'country 7' AND age < 60 AND occupation > 'occupation 5'",
)


def main() -> str:
    """Return the results as Markdown."""
    with private_server() as dsn:
        make_census(dsn)
        return "\n".join([_publishing(dsn), _answering(dsn), _first_estimates(dsn)])


def make_census(dsn: str) -> None:
    """Make and register the table."""
    total, reached, cases = sum(OCCUPATIONS), 0, []
    for number, count in enumerate(OCCUPATIONS, start=1):
        reached += count
        cases.append(f"WHEN u < {reached / total} THEN 'occupation {number}'")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            "CREATE TABLE census AS SELECT 17 + floor(power(random(), 1.5) * 72)::int AS age,"
            " 'workclass ' || floor(power(random(), 3) * 7)::int AS workclass,"
            " 'education ' || floor(power(random(), 2) * 16)::int AS education,"
            " 'marital ' || floor(power(random(), 2) * 7)::int AS marital_status,"
            " 'race ' || floor(power(random(), 4) * 5)::int AS race,"
            " 'sex ' || floor(random() * 2)::int AS sex,"
            " 'country ' || floor(power(random(), 6) * 41)::int AS native_country,"
            f" CASE {' '.join(cases)} ELSE 'occupation 14' END AS occupation"
            f" FROM (SELECT random() AS u FROM generate_series(1, {N_RECORDS})) AS r"
        )
        connection.execute("VACUUM ANALYZE census")
        connection.execute(
            "SELECT kanon.register_source('public.census', '{age,workclass,education,"
            "marital_status,race,sex,native_country}', 'occupation')"
        )


def _publishing(dsn: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as connection:

        def shuffled_copy() -> None:
            connection.execute("DROP TABLE IF EXISTS shuffled")
            connection.execute("CREATE TABLE shuffled AS SELECT * FROM census ORDER BY random()")

        floor = seconds(shuffled_copy)
    with psycopg.connect(dsn, autocommit=True) as connection:

        def publish() -> None:
            connection.execute(
                "SELECT * FROM kanon.publish_buckets('public.census', 'census_b',"
                " method => 'two_size', assignment => 'random', replace => true,"
                f" privacy => '{PRIVACY}')"
            )

        publish()
        memory = peak_memory(connection.info.backend_pid)
        taken = seconds(publish)
    return table(
        [f"{N_RECORDS:,} records, 8 columns", "median of 5", "ratio", "target"],
        [
            ["`CREATE TABLE … AS SELECT … ORDER BY random()`", f"{floor:.2f} s", "1", ""],
            [
                "`publish_buckets` (two_size, random), verified",
                f"{taken:.2f} s",
                f"{taken / floor:.1f}",
                "≤ 6",
            ],
            [
                "peak memory of the backend, shared buffers included",
                f"{memory:.0f} MB",
                "",
                "< 500 MB",
            ],
        ],
    )


def _answering(dsn: str) -> str:
    rows = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        ratios = []
        for where in _QUERIES:
            run = _runner(connection)
            exact = seconds(run(f"SELECT count(*) FROM census WHERE {where}"), runs=15)
            estimate = seconds(
                run(
                    "SELECT * FROM kanon.estimate_count($$SELECT COUNT(*) FROM census_b"
                    f" WHERE {where}$$)"
                ),
                runs=15,
            )
            ratios.append(estimate / exact)
            rows.append(
                [f"`{where}`", f"{1000 * exact:.0f} ms", f"{1000 * estimate:.0f} ms",
                 f"{estimate / exact:.2f}"]
            )  # fmt: skip
    rows.append(["worst ratio", "", "", f"{max(ratios):.2f} (target ≤ 1.5)"])
    return table(["predicate", "exact COUNT", "estimate_count, warm", "ratio"], rows)


def _runner(connection: psycopg.Connection) -> Callable[[str], Callable[[], object]]:
    def run(statement: str) -> Callable[[], object]:
        connection.execute(statement)  # warm up
        return lambda: connection.execute(statement).fetchall()

    return run


def _first_estimates(dsn: str) -> str:
    """Time what a new session waits for: until it is connected, and then for its first estimate."""
    connecting, answering, running = [], [], []
    for _ in range(_N_SESSIONS):
        started = time.perf_counter()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connected = time.perf_counter()
            ran = running_seconds(connection.info.backend_pid)
            asked = time.perf_counter()
            connection.execute(
                "SELECT * FROM kanon.estimate_count('SELECT COUNT(*) FROM census_b"
                " WHERE sex = ''sex 1'' AND occupation = ''occupation 9''')"
            ).fetchall()
            answered = time.perf_counter()
            running.append(running_seconds(connection.info.backend_pid) - ran)
        connecting.append(connected - started)
        answering.append(answered - asked)
    return (
        table(
            [f"{_N_SESSIONS} new sessions, one after another", "median", "half of them", "target"],
            [
                ["connecting", *_middle(connecting), ""],
                ["then the first `estimate_count`", *_middle(answering), "≤ 200 ms"],
                ["while the server's process has a core", *_middle(running), ""],
            ],
        )
        + "\nThe rest of the time it waits for a core, which other processes have.\n"
    )


def _middle(times: list[float]) -> tuple[str, str]:
    low, median, high = (f"{1000 * time:.0f}" for time in statistics.quantiles(times, n=4))
    return f"{median} ms", f"{low} to {high} ms"


if __name__ == "__main__":
    print(main())
