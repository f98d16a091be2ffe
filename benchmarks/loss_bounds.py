"""How far classes of real tables are from the least loss that is possible: a proven bound.

Run from the root of the repository: ``python -m benchmarks loss_bounds``. The data are looked for
in ``data/`` of the folder named by KANON_SHARED, or of ``../shared``.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from benchmarks.generalization import TABLES, read
from benchmarks.harness import table, timed
from kanon_db.algorithms.generalization import greedy_search, optimal, prove_least_loss, refine
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata

SIZES = (1_000, 10_000)
K = 5
REFINE_SECONDS = 15.0
BOUND_SECONDS = 120.0
MOST = 10_000_000


def main() -> str:
    """Return the results as Markdown."""
    tables = {name: read(name) for name in TABLES}
    for whole in tables.values():  # compile first
        _bound(_sample(whole, 50))
    rows = [
        [name, f"{n_records:,}", *_bound(_sample(whole, n_records))]
        for n_records in SIZES
        for name, whole in tables.items()
    ]
    heading = ["table", "records", "GCP", "bound", "gap", "processor seconds of the bound"]
    return (
        f"k = {K}; Greedy Search, refined for at most {REFINE_SECONDS:.0f} s, then a bound in at"
        f" most {BOUND_SECONDS:.0f} s, on a random sample of each table. No"
        " classes lose less than *bound*; *gap* is how much others could save at most.\n\n"
        + table(heading, rows)
        + "\n"
        + _one_number()
    )


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


def _bound(data: Microdata) -> list[str]:
    classes = greedy_search(data, K).class_of_record
    classes = refine(
        data, classes, K, random=np.random.default_rng(0), pulse=Pulse(REFINE_SECONDS)
    ).class_of_record
    started = time.process_time()
    proof = prove_least_loss(data, K, classes, pulse=Pulse(BOUND_SECONDS))
    taken = time.process_time() - started
    n_cells = data.n_records * len(data.attributes)
    gcp, bound = float(proof.objective) / n_cells, float(proof.lower_bound) / n_cells
    return [f"{gcp:.4f}", f"{bound:.4f}", f"{proof.gap:.0%}", f"{taken:.1f}"]


if __name__ == "__main__":
    print(main())
