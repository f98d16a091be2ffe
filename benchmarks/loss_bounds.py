"""How far classes of real tables are from the least loss that is possible: a proven bound.

Run from the root of the repository: ``python -m benchmarks.loss_bounds``. The data are looked for
in ``data/`` of the folder named by KANON_SHARED, or of ``../shared``. Times are CPU seconds.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from benchmarks.generalization import TABLES, read
from benchmarks.harness import table
from kanon_db.algorithms.generalization import greedy_search, prove_least_loss, refine
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.microdata import Microdata

SIZES = (1000, 10_000)
K = 5
SECONDS = 60.0


def main(seconds: float = SECONDS) -> str:
    """Return the results as Markdown."""
    rows: list[list[str]] = []
    for name in TABLES:
        whole = read(name)
        for n in SIZES:
            chosen = np.random.default_rng(0).permutation(whole.n_records)[:n]
            data = Microdata(whole.codes[chosen], whole.attributes)
            classes = greedy_search(data, K).class_of_record
            classes = refine(
                data, classes, K, random=np.random.default_rng(0), pulse=Pulse(seconds)
            ).class_of_record
            cells = data.n_records * len(data.attributes)
            started = time.process_time()
            proof = prove_least_loss(data, K, classes, pulse=Pulse(seconds))
            taken = time.process_time() - started
            rows.append(
                [name, f"{data.n_records:,}", f"{float(proof.objective) / cells:.4f}",
                 f"{float(proof.lower_bound) / cells:.4f}", f"{proof.gap:.0%}", f"{taken:.0f} s"]
            )  # fmt: skip
    heading = ["table", "records", "GCP", "bound", "gap", "time"]
    return table(heading, rows)


if __name__ == "__main__":
    print(main(*map(float, sys.argv[1:])))
