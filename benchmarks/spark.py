"""Publishing on Spark: time and shuffled bytes a row, memory, one worker beside two.

``python -m benchmarks --write spark``. ``KANON_SPARK_RUNS`` has the runs, each a case, a number of
rows, and with how many workers, such as ``random/paper:10000000:1,2 mondrian:50000000:2``. Cases
are the assignments of buckets, with ``/paper`` without weights, and ``mondrian``.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.harness import REST, table
from benchmarks.spark_cluster import (
    WORKER_MEMORY,
    measured,
    source_of,
)
from benchmarks.spark_driver import K

RUNS: Final = os.environ.get(
    "KANON_SPARK_RUNS", "random/paper:1000000:1,2 cells/paper:1000000:1,2 mondrian:1000000:1,2"
)
_LEAST_SHARE: Final = 0.01


@dataclass(frozen=True)
class Run:
    """What is measured."""

    case: str
    n: int
    workers: tuple[int, ...]

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a run such as ``cells:1000000:1,2``."""
        case, n, workers = text.split(":")
        return cls(case, int(n), tuple(map(int, workers.split(","))))


def main() -> str:
    """Return the results as Markdown."""
    runs = [Run.read(text) for text in RUNS.split()]
    found: dict[Run, dict[int, Any]] = {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kanon-bench-spark-") as name:
        folder = Path(name)
        for n, of_size in groupby(sorted(runs, key=lambda run: run.n), key=lambda run: run.n):
            with source_of(folder, n) as source:
                for run in of_size:
                    for workers in run.workers:
                        try:
                            one = measured(workers, folder / "run", source, run.case)
                        except ChildProcessError:  # what was measured before must not be lost
                            failed.append(f"{run.case}, {n:,} rows, {workers} workers")
                        else:
                            found.setdefault(run, {})[workers] = one
    return (
        "Rows of seven quasi-identifiers and a sensitive attribute with 50 values, as Parquet, on a"
        f" standalone cluster here. Each worker has one core to itself and {WORKER_MEMORY}; the"
        " driver shares these. `random` and `cells` are buckets by `two_size` (theta 4, base 0.02),"
        f" with `/paper` without weights, `mondrian` generalized rows (k = {K}, not refined). A"
        " small table is published first, so that programs are loaded. *Copying* sends the same"
        " rows through one shuffle to files, in the same session: the floor. *Speed-up* is the time"
        " of one worker over that of these; that of copying is what the machine allows."
        " Memory is the most that all processes of all workers had at once."
        " The loss of buckets is that of the setting, a row; of generalized rows, the GCP."
        + "".join(f" This failed: {what}." for what in failed)
        + "\n\n"
        + table(
            ["rows", "case", "workers", "seconds", "microseconds a row", "over copying",
             "speed-up", "of copying", "shuffled bytes a row", "workers' memory", "cells or parts",
             "loss"],
            [
                line(run, workers, one, of_workers.get(1))
                for run, of_workers in found.items() for workers, one in of_workers.items()
            ],
        )
        + REST
        + "Where the time of the largest run of each case goes; steps that take less than"
        f" {_LEAST_SHARE:.0%} are in the last line of each:\n\n"
        + table(
            ["case", "rows", "workers", "step", "seconds", "share"],
            [line for case in dict.fromkeys(run.case for run in found)
             for line in steps(max((run for run in found if run.case == case), key=lambda r: r.n),
                               found)],
        )
    )  # fmt: skip


def line(run: Run, workers: int, found: Any, of_one: Any) -> list[str]:
    """Format what was measured."""
    n, seconds = run.n, found["seconds"]
    return [
        f"{n:,}",
        run.case,
        str(workers),
        f"{seconds:.1f}",
        f"{seconds / n * 1e6:.1f}",
        f"{seconds / found['copying']:.1f}",
        "" if of_one is None else f"{of_one['seconds'] / seconds:.2f}",
        "" if of_one is None else f"{of_one['copying'] / found['copying']:.2f}",
        f"{found['shuffled'] / n:.0f}",
        f"{found['workers'] / 2**30:.1f} GB",
        "" if found["parts"] is None else f"{found['parts']:,.0f}",
        f"{found['gcp']:.4f}" if "gcp" in found else f"{found['msbs']:.3f}",
    ]


def steps(run: Run, found: dict[Run, dict[int, Any]]) -> list[list[str]]:
    """Say what share of a run each step took."""
    workers, one = max(found[run].items(), key=lambda item: item[0])
    taken: Counter[str] = Counter()
    for step, seconds in one["steps"]:
        large = seconds >= _LEAST_SHARE * one["seconds"]
        taken[step.partition(": ")[2] or step if large else "others"] += seconds
    others = taken.pop("others", 0)
    return [
        [run.case, f"{run.n:,}", str(workers), step, f"{seconds:.1f}",
         f"{seconds / one['seconds']:.0%}"]
        for step, seconds in [*taken.items(), ("others", others)]
    ]  # fmt: skip
