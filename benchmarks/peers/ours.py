"""Run one method on one table, as :mod:`benchmarks.peers.theirs` runs other tools."""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import numpy as np

from benchmarks.peers.tables import Saved, read
from kanon_db.algorithms.generalization.enforce import enforce
from kanon_db.algorithms.generalization.greedy_search import greedy_search
from kanon_db.algorithms.generalization.mondrian import mondrian
from kanon_db.algorithms.generalization.refine import refine
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.recoding.constraints import Constraint
from kanon_db.algorithms.recoding.microdata import Microdata

REFINED_SECONDS = 20.0
_FEW = 12_000


def main() -> None:
    """Anonymize, and write the class of each record."""
    task = json.loads(sys.argv[1])
    saved = read(task["table"])
    small = saved.first(_FEW)  # compile first
    _searched(small, task | {"seconds": 0.1})
    started = time.perf_counter()
    classes = _searched(saved, task | {"seconds": REFINED_SECONDS})
    seconds = time.perf_counter() - started
    np.save(task["output"], classes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "megabytes": peak}))


def _searched(saved: Saved, task: dict[str, Any]) -> np.ndarray:
    microdata: Microdata = saved.microdata
    k, constraint = task["k"], None
    if task["l"]:
        constraint = Constraint(saved.sensitive, int(saved.sensitive.max()) + 1, l=task["l"])
    if task["tool"] == "Mondrian":
        classes = mondrian(microdata, k, workers=2).class_of_record
    else:
        classes = greedy_search(microdata, k, block_size=task["block_size"]).class_of_record
    if constraint is not None:
        classes = enforce(microdata, classes, k, constraint).class_of_record
    if task["tool"] != "Greedy Search, refined":
        return classes
    return refine(
        microdata, classes, k, random=np.random.default_rng(1), effort=10**9,
        constraint=constraint, pulse=Pulse(task["seconds"]), workers=2,
    ).class_of_record  # fmt: skip


if __name__ == "__main__":
    main()
