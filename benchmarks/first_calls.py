"""What compiling, and loading what was compiled, cost a first publication of each kind."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import REST, private_server, table
from kanon_db.interfaces.python import connect

_PEOPLE = Path(__file__).parents[1] / "kanon_db/interfaces/fair.csv.gz"
_KNOWN = (
    "rate_marriage", "age", "yrs_married", "children", "religious", "educ", "occupation",
    "occupation_husb",
)  # fmt: skip
_BUCKETS = {"privacy": {"default": 0.2, "values": {"0.0": 0.9}}}
_ROWS = {"k": 5}
PUBLICATIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "buckets, as in `make demo`": ("publish_buckets", _BUCKETS),
    "buckets, random": ("publish_buckets", {**_BUCKETS, "assignment": "random"}),
    "generalized": ("publish_generalized", {**_ROWS, "refine": False}),
    "generalized, refined": ("publish_generalized", {**_ROWS, "options": {"time_limit": 5}}),
    "freeform": ("publish_freeform", _ROWS),
    "suppressed": ("publish_suppressed", _ROWS),
}


def main() -> str:
    """Publish the demo's people where nothing is compiled yet, and in processes after that."""
    rows, kernels = [], []
    with private_server() as dsn:
        _load(dsn)
        for name, (function, given) in PUBLICATIONS.items():
            with tempfile.TemporaryDirectory() as cache:
                compiling = _measure(dsn, function, given, cache, "compiling")
                later = [_measure(dsn, function, given, cache, "later") for _ in range(5)]
            compiled = compiling["kernels"]
            first, second = (
                statistics.median(one[call] for one in later) for call in ("first", "second")
            )
            rows.append(
                [
                    name,
                    f"{compiling['first']:.2f}",
                    f"{sum(compiled.values()):.2f}",
                    len(compiled),
                    *(f"{figure:.2f}" for figure in (first, second, first - second)),
                ]
            )
            slowest = sorted(compiled.items(), key=lambda kernel: -kernel[1])[:25]
            kernels += [[name, kernel, f"{seconds:.2f}"] for kernel, seconds in slowest]
    heading = ["publication", "first call of all", "of which compiling", "kernels",
               "first call of a later process", "its second call", "more"]  # fmt: skip
    return (
        "CPU seconds of the process that searches, for 6,366 people. The first process finds"
        " nothing compiled; later ones (medians of 5) load what it has kept.\n\n"
        + table(heading, rows)
        + REST
        + table(["publication", "kernel", "seconds of its own"], kernels)
    )


def _load(dsn: str) -> None:
    with connect(dsn) as kanon:
        kanon.load(_PEOPLE, "people")
        kanon.register_source("people", quasi_identifiers=_KNOWN, sensitive="affairs")


def _measure(
    dsn: str, function: str, given: Mapping[str, Any], cache: str, how: str
) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.first_calls", dsn, function, json.dumps(given), how],
        env={**os.environ, "NUMBA_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(run.stdout))


def _publish_twice(dsn: str, function: str, given: Mapping[str, Any], how: str) -> None:
    """Print what two calls took, and each kernel that the first has compiled."""
    taken: dict[str, Any] = {"kernels": {}}
    with connect(dsn) as kanon:
        for call in ("first", "second"):
            before = time.process_time()
            if (how, call) == ("compiling", "first"):
                _listen(taken["kernels"])
            getattr(kanon, function)("people", "people_t", dry_run=True, **given)
            taken[call] = time.process_time() - before
    print(json.dumps(taken))


def _listen(taken: dict[str, float]) -> None:
    """Note how long each kernel compiles, without those that it calls."""
    from numba.core import event  # which is imported for the first kernel anyway

    within: list[float] = []

    class Listener(event.Listener):
        def on_start(self, _event: event.Event) -> None:
            within.extend((time.thread_time(), 0.0))

        def on_end(self, happened: event.Event) -> None:
            inner = within.pop()
            passed = time.thread_time() - within.pop()
            kernel = happened.data["dispatcher"].py_func
            name = f"{kernel.__module__.removeprefix('kanon_db.algorithms.')}.{kernel.__name__}"
            taken[name] = taken.get(name, 0) + passed - inner
            if within:
                within[-1] += passed

    event.register("numba:compile", Listener())


if __name__ == "__main__":
    _publish_twice(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4])
