"""Our searches, for :mod:`benchmarks.peers.searching`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from benchmarks.peers.tables import Saved, read
from kanon_db.algorithms.generalization.greedy_classes import greedy_search
from kanon_db.algorithms.generalization.mondrian import mondrian
from kanon_db.algorithms.generalization.postprocessing import enforce, refine
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.changing_classes import Constraint

TOOLS: Final = ("Mondrian", "Greedy Search", "Greedy Search, refined")
REFINED_SECONDS: Final = 20.0


def prepared(task: dict[str, Any]) -> tuple[Callable[[], IntArray], Callable[[IntArray], IntArray]]:
    """Read the table and compile; return the search, and what makes classes of its result."""
    saved = read(task["table"])
    _searched(saved, task, refined_seconds=0.1)
    return lambda: _searched(saved, task, REFINED_SECONDS), lambda classes: classes


def _searched(saved: Saved, task: dict[str, Any], refined_seconds: float) -> IntArray:
    microdata, k, constraint = saved.microdata, task["k"], None
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
        constraint=constraint, pulse=Pulse(refined_seconds), workers=2,
    ).class_of_record  # fmt: skip
