"""The driver of :mod:`benchmarks.spark`: publishes, and says what it took as a line of JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from kanon_db import spark
from kanon_db.spark.environment import spark_session

QUASI_IDENTIFIERS = ["age", "sex", "region", "education", "marital", "hours", "race"]
PRIVACY = {"theta": 4, "base": 0.02}
SETTINGS = {
    "spark__driver__memory": "2g",
    "spark__executor__memory": "2500m",
    "spark__sql__shuffle__partitions": "8",
    "spark__ui__retainedStages": "100000",
}


def main(master: str, source: str, target: str, case: str) -> None:
    """Publish the first rows, copy all of them, and publish them."""
    with spark_session(master, **SETTINGS) as session:
        frame = session.read.parquet(source)
        publish(session, frame.limit(20_000), target + "-small", case)
        started, before = time.perf_counter(), shuffled(session)
        frame.repartition(8, "age", "hours", "region").write.parquet(target + "-copy")
        copying, after = time.perf_counter() - started, shuffled(session)
        steps: list[tuple[str, float]] = []
        started = time.perf_counter()
        found = publish(session, source, target, case, steps)
        ended = time.perf_counter()
        print(json.dumps({
            "seconds": ended - started, "copying": copying, "shuffled": shuffled(session) - after,
            "shuffled_by_copying": after - before, "cells": found.metrics.get("cells"),
            "msbs": float(found.metrics["msbs"]),
            "steps": [
                (title, round(end - begin, 1)) for (title, begin), (_, end)
                in zip(steps, [*steps[1:], ("", ended)], strict=True)
            ],
        }))  # fmt: skip


def publish(session: Any, source: Any, target: str, case: str, steps: Any = None) -> Any:
    """Publish with an assignment."""
    return spark.publish_buckets(
        session, source, target, quasi_identifiers=QUASI_IDENTIFIERS, sensitive="occupation",
        privacy=PRIVACY, assignment=case, on_warning=str,
        source_name=target,  # so that no release is of the same people
        accept={"uninformed_reader": "a benchmark"} if case == "local" else {},
        on_progress=lambda said: _keep(steps, said.title),
    )  # fmt: skip


def _keep(steps: Any, title: str) -> None:
    if steps is not None and (not steps or steps[-1][0] != title):
        steps.append((title, time.perf_counter()))


def shuffled(session: Any) -> int:
    """Return the bytes that all stages have written for others."""
    context = session.sparkContext
    doubles = context._gateway.new_array(session._jvm.double, 0)
    stages = context._jsc.sc().statusStore().stageList(None, False, False, doubles, None)
    return sum(stages.apply(i).shuffleWriteBytes() for i in range(stages.size()))


if __name__ == "__main__":
    main(*sys.argv[1:])
