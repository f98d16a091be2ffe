"""Publishing generalized and freeform rows through SQL, whole, against a plain copy of the table.

Each call reads the source, searches, writes the view and verifies it, in one backend of its own.
"""

from __future__ import annotations

import os

import psycopg

from benchmarks.harness import peak_memory, private_server, seconds, table
from benchmarks.publication import make_census

QUASI_IDENTIFIERS = (
    "age", "education", "workclass", "marital_status", "race", "sex", "native_country",
)  # fmt: skip
# Function, parameters, records, quasi-identifiers, and the seconds asked for.
CASES: tuple[tuple[str, str, int, int, int | None], ...] = (
    ("publish_generalized", "k => 10, method => 'mondrian', refine => false", 1_000_000, 7, 20),
    ("publish_generalized", "k => 10, method => 'greedy_search', refine => false", 100_000, 7, 60),
    ("publish_generalized", "k => 3, method => 'split_carry', refine => false", 100_000, 4, 60),
    (
        "publish_generalized",
        "k => 10, method => 'greedy_search', refine => false, options => '{\"block_size\": 5000}'",
        1_000_000,
        7,
        None,
    ),
    ("publish_freeform", "k => 10", 100_000, 7, 300),
    ("publish_freeform", "k => 10, options => '{\"refine\": false}'", 1_000_000, 7, None),
)
RUNS = 3  # of those that take less than a minute; one of the others


def main() -> str:
    """Return the results as Markdown."""
    with private_server() as dsn:
        make_census(dsn)
        rows = []
        floors: dict[int, float] = {}
        for function, parameters, n_records, n_attributes, target in CASES:
            if n_records not in floors:
                floors[n_records] = _prepare(dsn, n_records)
            _register(dsn, f"census_{n_records}", n_attributes)
            _register(dsn, "few", n_attributes)
            taken, memory = _publish(dsn, function, parameters, n_records)
            rows.append(
                [f"`{function}(…, {parameters})`", f"{n_records:,} x {n_attributes}",
                 f"{taken:.1f} s",
                 f"{taken / floors[n_records]:.0f}", "" if target is None else f"{target} s",
                 f"{memory:.0f} MB"]
            )  # fmt: skip
    return (
        "The quasi-identifiers have 2 to 72 values, and one of them is a number. The times are "
        "those of whole calls, with reading, writing and verifying. The ratio is to `CREATE TABLE "
        "… AS SELECT … ORDER BY random()` of the same table ("
        f"{', '.join(f'{n:,}: {s:.2f} s' for n, s in floors.items())}); the memory is the peak of "
        f"the backend, including shared buffers of 128 MB. Medians of {RUNS} runs where a run "
        f"takes less than a minute; {os.cpu_count()} cores.\n\n"
        + table(["call", "records", "time", "ratio", "target", "peak memory"], rows)
    )


def _prepare(dsn: str, n_records: int) -> float:
    """Make a table of so many records, and one of a few; return the seconds of a plain copy."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for name, size in (("few", 300), (f"census_{n_records}", n_records)):
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {name} AS SELECT * FROM census LIMIT {size}"
            )
            connection.execute(f"VACUUM ANALYZE {name}")

        def shuffled_copy() -> None:
            connection.execute("DROP TABLE IF EXISTS shuffled")
            connection.execute(
                f"CREATE TABLE shuffled AS SELECT * FROM census_{n_records} ORDER BY random()"
            )

        return seconds(shuffled_copy, runs=RUNS)


def _register(dsn: str, name: str, n_attributes: int) -> None:
    names = ",".join(QUASI_IDENTIFIERS[:n_attributes])
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            f"SELECT kanon.register_source('public.{name}', '{{{names}}}', 'occupation')"
        )


def _publish(dsn: str, function: str, parameters: str, n_records: int) -> tuple[float, float]:
    """Return the seconds of a call, and the peak memory of its backend in MB."""
    with psycopg.connect(dsn, autocommit=True) as connection:  # compiles first
        connection.execute(f"SELECT kanon.{function}('public.few', 'few_rows', {parameters})")
        connection.execute("SELECT kanon.drop_publication('few_rows')")

    with psycopg.connect(dsn, autocommit=True) as connection:

        def publish() -> None:
            connection.execute(
                f"SELECT kanon.{function}('public.census_{n_records}', 'census_rows',"
                f" replace => true, {parameters})"
            )

        taken = seconds(publish, runs=1)
        if taken < 60:
            taken = seconds(publish, runs=RUNS)
        memory = peak_memory(connection.info.backend_pid)
        connection.execute("SELECT kanon.drop_publication('census_rows')")
        return taken, memory
