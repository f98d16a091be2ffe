"""Publishing buckets on Spark: time and shuffled bytes a row, memory, one worker beside two.

``python -m benchmarks --write spark``. ``KANON_SPARK_ROWS`` has numbers of rows (by default
``1000000``), and ``KANON_SPARK_CASES`` the cases (by default ``random cells``). Each worker has one
core of this machine to itself, and the driver shares both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.census_like import OCC_SHARES
from benchmarks.harness import Watch, table
from benchmarks.spark_driver import PRIVACY
from kanon_db.algorithms.bucketization import PrivacySpecification
from kanon_db.algorithms.bucketization.cell_cuts import Cutter, fewest_of_cell
from kanon_db.algorithms.bucketization.local_assignment import assign_locally
from kanon_db.algorithms.ground.pulse import UNLIMITED
from kanon_db.algorithms.ground.sort_keys import sort_keys
from kanon_db.randomness import SecureRandom
from kanon_db.spark.buckets.gathering import RECORDS_OF_PART
from kanon_db.spark.standalone import StandaloneCluster

ROWS: Final = [int(n) for n in os.environ.get("KANON_SPARK_ROWS", "1000000").split()]
CASES: Final = os.environ.get("KANON_SPARK_CASES", "random cells").split()
WORKERS: Final = (1, 2)
MEMORY: Final = "4g"
LOCAL_ROWS: Final = (1_000_000,)
_ROWS_OF_FILE: Final = 1_000_000


def main() -> str:
    """Return the results as Markdown."""
    lines = []
    with tempfile.TemporaryDirectory(prefix="kanon-bench-spark-") as folder:
        for n in ROWS:
            source = Path(folder, f"source-{n}")
            write(source, n)
            for case in CASES:
                targets = [Path(folder, f"{case}-{n}-{workers}") for workers in WORKERS]
                found = [
                    measured(workers, target, source, case)
                    for workers, target in zip(WORKERS, targets, strict=True)
                ]
                lines += [
                    line(n, case, workers, one, found[0])
                    for workers, one in zip(WORKERS, found, strict=True)
                ]
    return (
        "Rows of seven quasi-identifiers and a sensitive attribute with 50 values (theta 4,"
        " base 0.02), as Parquet, published with `two_size` on a standalone cluster here. Each"
        f" worker has one core to itself and {MEMORY}; the driver shares these. A small table is"
        " published first, so that programs are loaded. *Copying* sends the same rows through one"
        " shuffle to files, in the same session: the floor. Memory is the most that the driver's"
        " two processes, and all processes of all workers, had at once.\n\n"
        + table(
            ["rows", "assignment", "workers", "seconds", "microseconds a row", "over copying",
             "one worker over these", "shuffled bytes a row", "of copying", "driver",
             "workers' memory", "cells", "loss a row"],
            lines,
        )
        + "\nThe assignment `local` gathers records in parts of the table. Its loss there, beside"
        " that of the whole table (the same algorithms, on one machine, without Spark):\n\n"
        + table(
            ["rows", "parts", "loss a row, in parts", "loss a row, whole", "in parts over whole"],
            [in_parts(n) for n in LOCAL_ROWS],
        )
    )  # fmt: skip


def in_parts(n: int) -> list[str]:
    """Gather the similar records of a table, of its parts and as a whole."""
    columns = rows(np.random.default_rng(1), n)
    codes = columns.pop("occupation").astype(np.int32)
    qi_codes = np.column_stack(list(columns.values())).astype(np.int32)
    counts = np.bincount(codes)
    given = PrivacySpecification.parse(json.dumps(PRIVACY))
    privacy = given.thresholds([str(i) for i in range(counts.size)], counts)
    order = np.argsort(sort_keys(list(qi_codes.T)), kind="stable")
    qi_codes, codes = qi_codes[order], codes[order]
    random = SecureRandom()
    least = fewest_of_cell(n, RECORDS_OF_PART)
    cutter = Cutter(qi_codes, codes, lambda _: privacy, 50, random, least, UNLIMITED)
    parts = cutter.cells()
    losses = [
        sum(
            assign_locally(qi_codes[part], codes[part], privacy, 50, random).setting.loss
            for part in several
        )
        for several in ([part.records for part in parts], [np.arange(n)])
    ]
    found, whole = (loss / (n - 1) for loss in losses)
    return [f"{n:,}", str(len(parts)), f"{found:.4f}", f"{whole:.4f}", f"{found / whole:.4f}"]


def line(n: int, case: str, workers: int, found: Any, of_one: Any) -> list[str]:
    """Format what was measured."""
    seconds = found["seconds"]
    return [
        f"{n:,}",
        case,
        str(workers),
        f"{seconds:.1f}",
        f"{seconds / n * 1e6:.1f}",
        f"{seconds / found['copying']:.1f}",
        f"{of_one['seconds'] / seconds:.2f}",
        f"{found['shuffled'] / n:.0f}",
        f"{found['shuffled_by_copying'] / n:.0f}",
        f"{found['driver'] / 2**30:.1f} GB",
        f"{found['workers'] / 2**30:.1f} GB",
        str(found["cells"] or ""),
        f"{found['msbs']:.3f}",
    ]


def write(folder: Path, n: int) -> None:
    """Write rows whose columns depend on each other."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    random = np.random.default_rng(1)
    for i, start in enumerate(range(0, n, _ROWS_OF_FILE)):
        columns = rows(random, min(_ROWS_OF_FILE, n - start))
        pq.write_table(
            pa.table({name: pa.array(values.astype(np.int32)) for name, values in columns.items()}),
            folder / f"{i:05}.parquet",
        )


def rows(random: np.random.Generator, size: int) -> dict[str, Any]:
    """Draw columns that depend on each other."""
    occupation = random.choice(OCC_SHARES.size, size, p=OCC_SHARES)
    education = (occupation // 4 + random.binomial(8, 0.4, size)) % 16
    age = 17 + np.minimum(random.gamma(4, 7, size) + education // 2, 73).astype(np.int32)
    return {
        "age": age,
        "sex": random.integers(0, 2, size) | (occupation % 7 == 0),
        "region": np.minimum(random.geometric(0.08, size), 50),
        "education": education,
        "marital": (age > 25 + random.integers(0, 20, size)) + random.integers(0, 3, size),
        "hours": np.clip(random.normal(40, 12, size) + occupation % 5, 1, 99),
        "race": np.minimum(random.geometric(0.7, size), 5),
        "occupation": occupation,
    }


def measured(workers: int, target: Path, source: Path, case: str) -> Any:
    """Publish in a driver of its own, on new workers."""
    with StandaloneCluster(workers=0, cores=1, memory=MEMORY) as cluster:
        cores = sorted(os.sched_getaffinity(0))
        for i in range(workers):
            os.sched_setaffinity(0, {cores[i % len(cores)]})  # which the worker inherits
            cluster.add_worker()
        os.sched_setaffinity(0, set(cores))
        driver = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.spark_driver", cluster.master, source, target, case],
            stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1],
        )  # fmt: skip
        of_driver = Watch(lambda: memory([driver.pid]), every=0.2)
        of_workers = Watch(lambda: memory([one.pid for one in cluster.workers]), every=0.2)
        with of_driver, of_workers:
            said, _ = driver.communicate()
    if driver.returncode:
        raise SystemExit("the driver has failed")
    found = json.loads(said.splitlines()[-1])
    found |= {"driver": of_driver.most, "workers": of_workers.most}
    print(workers, "workers:", found, file=sys.stderr)
    return found


def memory(processes: list[int]) -> float:
    """Return the bytes that processes and all that they have started have in memory."""
    below: dict[int, list[int]] = {}
    pages: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        below.setdefault(int(fields[1]), []).append(int(path.name))
        pages[int(path.name)] = int(fields[21])
    total, waiting = 0, list(processes)
    while waiting:
        process = waiting.pop()
        total += pages.get(process, 0)
        waiting += below.get(process, [])
    return float(total * os.sysconf("SC_PAGE_SIZE"))
