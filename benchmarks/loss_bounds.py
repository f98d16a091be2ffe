"""How far classes of real tables are from the least loss that is possible: a proven bound.

Run from the root of the repository: ``python -m benchmarks loss_bounds``. The data are looked for
in ``data/`` of the folder named by KANON_SHARED, or of ``../shared``.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.generalization import TABLES, read
from benchmarks.harness import table
from kanon_db.algorithms.generalization import greedy_search, prove_least_loss, refine
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.microdata import Microdata

SIZES = (1_000, 10_000)
K = 5
REFINE_SECONDS = 15.0
BOUND_SECONDS = 120.0


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
