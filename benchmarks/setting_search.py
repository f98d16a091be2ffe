"""Time the search for a two-size bucket setting ([GB] Section 7.3).

Run from the root of the repository: ``python -m benchmarks.setting_search``. Prints a Markdown
table; each time covers everything from counts and specification to the setting: exact thresholds,
eligibility, occurrence limits and search.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import get_args

import numpy as np

from benchmarks.census_like import EDU_SHARES, OCC_SHARES, counts_of, split
from benchmarks.harness import table
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.privacy import PrivacySpecification, check_eligible
from kanon_db.algorithms.bucketization.two_size import Pruning, two_size
from kanon_db.algorithms.ground.arrays import IntArray

SPECIFICATION = '{"theta": 8, "base": 0.02}'
MAX_BUCKET_SIZE = 50


def search(counts: IntArray, pruning: Pruning) -> BucketSetting:
    """Find the setting of a table with these counts."""
    spec = PrivacySpecification.parse(SPECIFICATION)
    values = [str(i) for i in range(counts.size)]
    check_eligible(spec, values, counts)
    return two_size(counts, spec.thresholds(values, counts), MAX_BUCKET_SIZE, pruning=pruning)


def milliseconds(tasks: list[Callable[[], object]], n_runs: int) -> list[float]:
    """Median time of each task, run in turns so that load hits all of them alike."""
    times: list[list[float]] = [[] for _ in tasks]
    for task in tasks:
        task()
    for _ in range(n_runs):
        for task, spent in zip(tasks, times, strict=True):
            start = perf_counter()
            task()
            spent.append(1000 * (perf_counter() - start))
    return [median(spent) for spent in times]


def main(n_runs: int = 15) -> str:
    """Return the results as Markdown."""
    tables = {
        "OCC-like, 100,000 records": counts_of(OCC_SHARES, 100_000),
        "OCC-like, 500,000 records": counts_of(OCC_SHARES, 500_000),
        "EDU-like, 100,000 records": counts_of(EDU_SHARES, 100_000),
        "EDU-like, 500,000 records": counts_of(EDU_SHARES, 500_000),
        "OCC-like split by 64, 500,000 records": split(
            counts_of(OCC_SHARES, 500_000), 64, np.random.default_rng(64)
        ),
    }
    prunings: tuple[Pruning, ...] = get_args(Pruning)[::-1]
    measured = milliseconds(
        [
            lambda counts=counts, pruning=pruning: search(counts, pruning)  # type: ignore[misc]
            for counts in tables.values()
            for pruning in prunings
        ],
        n_runs,
    )
    rows = np.array(measured).reshape(len(tables), len(prunings))

    lines = []
    for (name, counts), row in zip(tables.items(), rows, strict=True):
        pairs = ", ".join(f"{count:,} of {size}" for size, count in search(counts, "full").pairs)
        lines.append([name, f"{counts.size:,}", *(f"{time:.1f}" for time in row), pairs])
    ratios = ", ".join(
        f"{name}-like {rows[large, 0] / rows[small, 0]:.2f}"
        for name, small, large in (("OCC", 0, 1), ("EDU", 2, 3))
    )
    headings = [f"{pruning.replace('none', 'no')} pruning" for pruning in prunings]
    return (
        f"The time from the text of the specification `{SPECIFICATION}` to the bucket setting, with"
        f" buckets of at most {MAX_BUCKET_SIZE} records: medians of {n_runs} runs, in"
        " milliseconds.\n\n"
        + table(["table", "values", *headings, "buckets"], lines)
        + "\nThe time at 500,000 records divided by the time at 100,000, with full pruning:"
        f" {ratios} (target 1.3)."
        " Targets: 50 ms for 50 values, 2,000 ms for 3,200.\n"
    )


if __name__ == "__main__":
    print(main())
