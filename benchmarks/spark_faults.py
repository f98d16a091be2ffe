"""Workers killed at every step, and shuffle files deleted while records are published on Spark.

``python -m benchmarks --write spark_faults``; ``KANON_SPARK_TRIALS`` (3) says how often each.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks.harness import table
from kanon_db.spark.environment import StandaloneCluster
from tests.spark import data
from tests.spark.test_faults import N, is_whole, run

TRIALS: Final = int(os.environ.get("KANON_SPARK_TRIALS", "3"))
STEPS: Final = (
    "reading the source",
    "counting values",
    "counting combinations of quasi-identifiers",
    "cutting the table into cells",
    "assigning records to buckets in cells",
    "writing the quasi-identifier table",
    "writing the sensitive table",
    "verifying",
    "publishing",
)
_LATEST_SECONDS: Final = 2.0


def main() -> str:
    """Return the results as Markdown."""
    with (
        tempfile.TemporaryDirectory(prefix="kanon-bench-spark-") as folder,
        StandaloneCluster(workers=2, cores=1, memory="800m") as cluster,
    ):
        people = Path(folder, "people")
        people.mkdir()
        source = data.write(people, N, files=3)
        faults = {"a worker is killed": kill, "shuffle files are deleted": delete}
        lines = [
            [name, step, *tried(cluster, source, Path(folder), step, fault)]
            for name, fault in faults.items()
            for step in STEPS
        ]
    return (
        f"Cells of {N:,} records are published on two workers; up to {_LATEST_SECONDS:g} seconds"
        " after a step has begun, one of them is killed and another one started, or all shuffle"
        " files of both are deleted. *Whole* are publications with each record of the source"
        " exactly once, in the bucket that has its value; *nothing left* are runs that failed and"
        " left no file.\n\n"
        + table(["fault", "step", "trials", "whole", "nothing left", "stages run again"], lines)
    )


Fault = Callable[[StandaloneCluster], None]


def kill(cluster: StandaloneCluster) -> None:
    """Kill the older of two workers, and start another one."""
    os.killpg(cluster.workers[-2].pid, signal.SIGKILL)
    cluster.add_worker()


def delete(cluster: StandaloneCluster) -> None:
    """Delete what tasks have written for others."""
    for file in cluster.folder.rglob("shuffle_*"):
        file.unlink(missing_ok=True)


def tried(
    cluster: StandaloneCluster, source: str, folder: Path, step: str, fault: Fault
) -> list[int]:
    """Break some runs at a step, and count how they ended.

    Raises
    ------
    AssertionError
        When a run has left anything but a whole publication.
    """
    ends: Counter[str] = Counter()
    for _ in range(TRIALS):
        target = folder / "published" / "people_b"
        waiting: list[threading.Timer] = []

        def at(said: str, waiting: list[threading.Timer] = waiting) -> None:
            if said == step and not waiting:
                late = random.SystemRandom().uniform(0, _LATEST_SECONDS)
                waiting.append(threading.Timer(late, fault, [cluster]))
                waiting[0].start()

        try:
            ends["again"] += run(cluster, source, target, at=at)
            is_whole(target)
            ends["whole"] += 1
        except ChildProcessError:
            left = [path for path in target.parent.rglob("*") if path.is_file()]
            if left:
                raise AssertionError("a run that failed has left files") from None
            ends["nothing"] += 1
        for timer in waiting:
            timer.join()
        time.sleep(1)
        with suppress(FileNotFoundError):
            shutil.rmtree(target.parent)
    return [TRIALS, ends["whole"], ends["nothing"], ends["again"]]
