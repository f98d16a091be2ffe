"""How far classes of real tables are from the least loss that is possible: a proven bound.

Run from the root of the repository: ``python -m benchmarks loss_bounds``. The data are looked for
in ``data/`` of the folder named by KANON_SHARED, or of ``../shared``. KANON_YARDSTICKS names a
folder with the tables that papers on microaggregation compare their methods on: ``tarragona.csv``
and ``census.csv``, from ``write.csv(Tarragona, row.names = FALSE)`` and the same of
``CASCrefmicrodata``, both of R's sdcMicro. Without it, their rows are left out.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.generalization import TABLES, read
from benchmarks.harness import table, timed
from kanon_db.algorithms.generalization import greedy_search, optimal, prove_least_loss, refine
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata

SIZES = (1_000, 10_000)
K = 5
REFINE_SECONDS = 15.0
BOUND_SECONDS = 120.0
WHOLE, WHOLE_SECONDS = "adult", 600.0
YARDSTICKS = ("tarragona", "census")
YARDSTICK_KS = (3, 5, 10)
MOST = 10_000_000


def main() -> str:
    """Return the results as Markdown."""
    tables = {name: read(name) for name in TABLES}
    for whole in tables.values():  # compile first
        _bound(_sample(whole, 50))
    rows = [
        [name, f"{n_records:,}", K, *_bound(_sample(whole, n_records))]
        for n_records in SIZES
        for name, whole in tables.items()
    ]
    whole = tables[WHOLE]
    rows.append([f"{WHOLE}, all", f"{whole.n_records:,}", K, *_bound(whole, K, WHOLE_SECONDS)])
    if folder := os.environ.get("KANON_YARDSTICKS"):
        for name in YARDSTICKS:
            data = _yardstick(Path(folder, f"{name}.csv"))
            rows += [[name, f"{data.n_records:,}", k, *_bound(data, k)] for k in YARDSTICK_KS]
    heading = ["table", "records", "k", "GCP", "bound", "gap", "processor seconds of the bound"]
    return (
        f"Greedy Search, refined for at most {REFINE_SECONDS:.0f} s, then a bound in at most"
        f" {BOUND_SECONDS:.0f} s ({WHOLE_SECONDS:.0f} s of all records), on a random sample of each"
        " table. No classes lose less than *bound*; *gap* is how much others could save at most."
        " Tarragona and Census, with 13 numbers a record, are those on which methods of"
        " microaggregation are compared.\n\n" + table(heading, rows) + "\n" + _one_number()
    )


def _yardstick(path: Path) -> Microdata:
    codes, attributes = [], []
    for column in pd.read_csv(path).to_numpy(np.float64).T:
        numbers, own = np.unique(column, return_inverse=True)
        codes.append(own.astype(np.int32))
        attributes.append(Attribute(numbers.size, numbers, float(numbers[0]), float(numbers[-1])))
    return Microdata(np.column_stack(codes), tuple(attributes))


def _one_number() -> str:
    """Find the optima of a single numeric attribute."""
    random = np.random.default_rng(0)
    columns = {
        "uniform": random.integers(0, 10**9, MOST),
        "normal": np.round(random.normal(50_000, 15_000, MOST), 2),
        "ages": np.minimum(random.gamma(4.0, 10.0, MOST).astype(np.int64), 110),
    }
    rows = []
    for name, column in columns.items():
        numbers, codes = np.unique(column.astype(np.float64), return_inverse=True)
        attribute = Attribute(numbers.size, numbers, float(numbers[0]), float(numbers[-1]))
        data = Microdata(codes[:, np.newaxis].astype(np.int32), (attribute,))
        optimal(_sample(data, 1_000), K)  # compile first
        for k in (5, 10):
            found, taken = timed(partial(optimal, data, k))
            gcp = float(found.proof.objective) / MOST
            rows.append([name, f"{numbers.size:,}", k, f"{gcp:.2e}", f"{found.proof.gap:.0%}",
                         f"{taken:.1f}"])  # fmt: skip
    heading = ["values", "distinct", "k", "GCP", "gap", "processor seconds"]
    return (
        f"`optimal` of {MOST:,} records with a single numeric quasi-identifier: whole numbers up to"
        " a billion, a normal distribution with two decimals, and ages.\n\n" + table(heading, rows)
    )


def _sample(whole: Microdata, n_records: int) -> Microdata:
    chosen = np.random.default_rng(0).permutation(whole.n_records)[:n_records]
    return Microdata(whole.codes[chosen], whole.attributes)


def _bound(data: Microdata, k: int = K, seconds: float = BOUND_SECONDS) -> list[str]:
    classes = greedy_search(data, k).class_of_record
    classes = refine(
        data, classes, k, random=np.random.default_rng(0), pulse=Pulse(REFINE_SECONDS)
    ).class_of_record
    started = time.process_time()
    proof = prove_least_loss(data, k, classes, pulse=Pulse(seconds))
    taken = time.process_time() - started
    n_cells = data.n_records * len(data.attributes)
    gcp, bound = float(proof.objective) / n_cells, float(proof.lower_bound) / n_cells
    return [f"{gcp:.4f}", f"{bound:.4f}", f"{proof.gap:.0%}", f"{taken:.1f}"]


if __name__ == "__main__":
    print(main())
