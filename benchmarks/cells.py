"""Assignment in cells: errors of count queries, what a learner gains, time and memory.

Run from the root of the repository: ``python -m benchmarks cells``. The tables are looked for as
in :mod:`benchmarks.real_tables`.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Final

import numpy as np
import psycopg

from benchmarks.harness import peak_memory, private_server, seconds, table
from benchmarks.publication import N_RECORDS, make_census
from benchmarks.real_tables import (
    MAX_BUCKET_SIZE,
    N_QUERIES,
    SELECTIVITY,
    TABLES,
    TIME_LIMIT,
    Microdata,
    read,
    right_guesses,
)
from kanon_db.algorithms.bucketization.bucket_assignment import assign_randomly
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.cell_assignment import (
    CellAssignment,
    Search,
    assign_in_cells,
)
from kanon_db.algorithms.bucketization.multi_size import multi_size, optimal
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy, PrivacySpecification
from kanon_db.algorithms.bucketization.two_size import two_size
from kanon_db.algorithms.ground.arrays import CodeArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.metrics.count_queries import CountQuery
from kanon_db.publications.buckets.bucket_workload import count_errors

SPECIFICATIONS = (
    '{"theta": 8, "base": 0.02}',
    '{"theta": 8, "base": 0.02, "cap": 0.5}',
    '{"theta": 2, "base": 0.02}',
    '{"l": 3}',
)
RUNS = 5

SEARCHES: Final[dict[str, Search]] = {
    "two_size": lambda counts, privacy: two_size(counts, privacy, MAX_BUCKET_SIZE),
    "multi_size": lambda counts, privacy: multi_size(counts, privacy, MAX_BUCKET_SIZE),
}


def main() -> str:
    """Return the results as Markdown."""
    return "\n".join([error_table(), round_trip()])


def _at_random(data: Microdata, privacy: FPrimePrivacy, setting: BucketSetting) -> CodeArray:
    limits = privacy.occurrence_limits(setting.sizes)
    random = np.random.default_rng(0)
    return assign_randomly(data.sa_codes, data.counts, limits, setting, random)


def in_cells(data: Microdata, privacy: FPrimePrivacy, search: Search, seed: int) -> CellAssignment:
    """Assign in cells; the same seed gives the same buckets."""
    return assign_in_cells(
        data.qi_codes, data.sa_codes, privacy.tightened, MAX_BUCKET_SIZE, search,
        np.random.default_rng(seed),
    )  # fmt: skip


def _row(data: Microdata, queries: Sequence[CountQuery], specification: str) -> list[str]:
    def error(buckets: CodeArray) -> float:
        return count_errors(buckets, data.qi_codes, data.sa_codes, queries).mean

    labels = [str(i) for i in range(data.counts.size)]
    privacy = PrivacySpecification.parse(specification).thresholds(labels, data.counts)
    whole = _at_random(data, privacy, two_size(data.counts, privacy, MAX_BUCKET_SIZE))
    best = optimal(data.counts, privacy, MAX_BUCKET_SIZE, pulse=Pulse(TIME_LIMIT)).setting
    floor = error(whole)
    row = [f"{floor:.4f}", f"{error(_at_random(data, privacy, best)):.4f}"]
    found = in_cells(data, privacy, SEARCHES["two_size"], 0)  # compiles, so that times do not
    for search in SEARCHES.values():
        started = perf_counter()
        found = in_cells(data, privacy, search, 0)
        taken = perf_counter() - started
        mean = error(found.bucket_of_record)
        row += [f"{mean:.4f}", f"{mean / floor:.3f}", f"{taken:.1f} s"]
    sizes = np.bincount(found.cell_of_record)
    is_tightened = np.array([factor > 1 for factor in found.tightening])
    named = [right_guesses(data, buckets)[1] for buckets in (whole, found.bucket_of_record)]
    return [
        *row,
        f"{sizes.size:,}",
        f"{sizes[is_tightened].sum() / sizes.sum():.0%}",
        " → ".join(f"{share:.0%}" for share in named),
    ]


def error_table() -> str:
    """Compare mean relative errors of the same queries, none of which any method has seen."""
    rows = []
    for name in list(TABLES)[:3]:
        data = read(name)
        queries = data.queries()
        rows += [[name, f"`{text}`", *_row(data, queries, text)] for text in SPECIFICATIONS]
    heading = [
        "table", "privacy", "two_size, random", "optimal, random",
        "two_size, cells", "of two_size, random", "time",
        "multi_size, cells", "of two_size, random", "time",
        "cells", "records tightened", "named by a learner, random → cells",
    ]  # fmt: skip
    return (
        f"Mean relative error of {N_QUERIES:,} queries, s = {SELECTIVITY}, of one publication"
        " each with a fixed seed; others differ by some 5 %. *Tightened* are the records of cells"
        " in which a cut was declined. The last columns are of multi_size in cells; *named by a"
        " learner* is the share of all records whose value is guessed right from the publication"
        " alone (the better of naive Bayes and the model).\n\n" + table(heading, rows)
    )


def round_trip() -> str:
    """Publish 1,000,000 rows, at random and then in cells."""
    rows, taken = [], {}
    with private_server() as dsn:
        make_census(dsn)
        for assignment in ("random", "cells"):
            with psycopg.connect(dsn, autocommit=True) as connection:

                def publish(assignment: str = assignment) -> None:
                    connection.execute(
                        "SELECT * FROM kanon.publish_buckets('public.census', 'census_b',"
                        f" method => 'two_size', assignment => '{assignment}', replace => true,"
                        f" privacy => '{SPECIFICATIONS[0]}')"
                    )

                publish()  # compiles
                memory = peak_memory(connection.info.backend_pid)
                taken[assignment] = seconds(publish)
                rows.append(
                    [f"`{assignment}`", f"{taken[assignment]:.2f} s",
                     f"{taken[assignment] / taken['random']:.2f}", f"{memory:.0f} MB"]
                )  # fmt: skip
    return table(
        [f"{N_RECORDS:,} records, 8 columns, verified", "median of 5", "of random", "peak memory"],
        rows,
    )
