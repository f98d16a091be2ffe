"""What the benchmarks of Spark share: generated rows in files, and a driver on a small cluster.

Each worker has one core of this machine to itself; the driver shares these.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.census_like import OCC_SHARES
from benchmarks.harness import Watch
from kanon_db.spark.environment import StandaloneCluster

QUASI_IDENTIFIERS: Final = ["age", "sex", "region", "education", "marital", "hours", "race"]
SENSITIVE: Final = "occupation"
WORKER_MEMORY: Final = "4g"
_ROWS_OF_FILE: Final = 1_000_000


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


@contextmanager
def source_of(folder: Path, n: int) -> Iterator[Path]:
    """Keep files with so many rows for the time of a block; the same rows each time."""
    source = folder / f"source-{n}"
    source.mkdir()
    sizes = [min(_ROWS_OF_FILE, n - start) for start in range(0, n, _ROWS_OF_FILE)]
    files = [source / f"{i:05}.parquet" for i in range(len(sizes))]
    try:
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            list(threads.map(_write, files, sizes, range(len(sizes))))
        yield source
    finally:
        shutil.rmtree(source)


def _write(file: Path, size: int, number: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = rows(np.random.default_rng([1, number]), size)
    arrays = {name: pa.array(values.astype(np.int32)) for name, values in columns.items()}
    pq.write_table(pa.table(arrays), file)


def measured(workers: int, folder: Path, source: Path, case: str, *, judge: bool = False) -> Any:
    """Run a case of :mod:`benchmarks.spark_driver` in a process of its own, on new workers.

    Parameters
    ----------
    workers : int
    folder : Path
        Where it may write; removed at the end, whatever happens.
    source : Path
    case : str
    judge : bool
        Whether the published rows are measured afterwards; see :mod:`benchmarks.spark_fragments`.

    Raises
    ------
    ChildProcessError
        When the driver has failed.

    Returns
    -------
    dict
        What the driver says, with the most memory, in bytes, of all that belongs to it
        (``driver``) and to all workers (``workers``) at once.
    """
    folder.mkdir()
    try:
        with StandaloneCluster(workers=0, cores=1, memory=WORKER_MEMORY) as cluster:
            found = _driven(cluster, workers, [source, folder, case, *(["judge"] if judge else [])])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{case}, {workers} workers: {found}", file=sys.stderr)
    return found


def _driven(cluster: StandaloneCluster, workers: int, arguments: list[Any]) -> dict[str, Any]:
    cores = sorted(os.sched_getaffinity(0))
    for i in range(workers):
        os.sched_setaffinity(0, {cores[i % len(cores)]})  # which the worker inherits
        cluster.add_worker()
    os.sched_setaffinity(0, set(cores))
    driver = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.spark_driver", cluster.master, *arguments],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    of_driver = Watch(lambda: memory([driver.pid]), every=0.2)
    of_workers = Watch(lambda: memory([one.pid for one in cluster.workers]), every=0.2)
    with of_driver, of_workers:
        said, _ = driver.communicate()
    if driver.returncode:
        raise ChildProcessError("the driver has failed")
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found | {"driver": of_driver.most, "workers": of_workers.most}


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
