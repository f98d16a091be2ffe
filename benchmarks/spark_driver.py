"""The driver of the benchmarks of Spark: runs a case, and says what it took as a line of JSON.

A case is an assignment of buckets, with ``/paper`` without weights, ``mondrian``, or one of
:data:`benchmarks.spark_fragments.CUTS`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.spark_cluster import QUASI_IDENTIFIERS, SENSITIVE
from benchmarks.spark_fragments import CUTS, judged, publish
from kanon_db import spark
from kanon_db.spark.environment import spark_session

PRIVACY: Final = {"theta": 4, "base": 0.02}
K: Final = 10
SETTINGS: Final = {
    "spark__driver__memory": "2g",
    "spark__executor__memory": "2500m",
    "spark__ui__retainedStages": "100000",
}
_FEWEST_PARTITIONS: Final = 8
_ROWS_OF_PARTITION: Final = 1_000_000


def main(master: str, source: str, folder: str, case: str, judge: str = "") -> None:
    """Make something small first, then copy all rows, and then do what is measured."""
    import pyarrow.parquet as pq

    n = sum(pq.read_metadata(file).num_rows for file in Path(source).iterdir())
    partitions = max(_FEWEST_PARTITIONS, n // _ROWS_OF_PARTITION)
    settings = SETTINGS | {"spark__sql__shuffle__partitions": str(partitions)}
    with spark_session(master, **settings) as session:
        frame = session.read.parquet(source)
        run(session, frame.limit(20_000), f"{folder}/small", case, [])
        started, before = time.perf_counter(), shuffled(session)
        frame.repartition(partitions, "age", "hours", "region").write.parquet(f"{folder}/copy")
        copying, after = time.perf_counter() - started, shuffled(session)
        steps: list[tuple[str, float]] = []
        started = time.perf_counter()
        found = run(session, source, f"{folder}/target", case, steps)
        ended = time.perf_counter()
        told = {
            "seconds": ended - started, "copying": copying, "shuffled": shuffled(session) - after,
            "shuffled_by_copying": after - before,
            "steps": [
                (step, round(end - begin, 1)) for (step, begin), (_, end)
                in zip(steps, [*steps[1:], ("", ended)], strict=True)
            ],
        }  # fmt: skip
        if judge:
            published = f"{folder}/target" + ("" if case in CUTS else "/release-*/rows")
            found |= judged(session, published, source, K)
        print(json.dumps(told | found))


def run(session: Any, source: Any, target: str, case: str, steps: list[tuple[str, float]]) -> Any:
    """Make what is measured; return its losses, and how many cells or parts it has."""

    def step(said: str) -> None:
        if not steps or steps[-1][0] != said:
            steps.append((said, time.perf_counter()))

    if case in CUTS:
        frame = session.read.parquet(source) if isinstance(source, str) else source
        return publish(frame, target, case, K, step)
    common: dict[str, Any] = {
        "quasi_identifiers": QUASI_IDENTIFIERS, "sensitive": SENSITIVE, "on_warning": str,
        "source_name": target,  # so that no release is of the same people
        "on_progress": lambda said: step(said.title),
    }  # fmt: skip
    if case == "mondrian":
        found = spark.publish_generalized(
            session, source, target, k=K, method="mondrian", refine=False, **common
        ).metrics
        return {"gcp": float(found["gcp"]), "parts": found["parts"]}
    case, _, estimates = case.partition("/")
    found = spark.publish_buckets(
        session, source, target, privacy=PRIVACY, assignment=case, estimates=estimates or "capped",
        **common
    ).metrics  # fmt: skip
    return {"msbs": float(found["msbs"]), "parts": found.get("cells")}


def shuffled(session: Any) -> int:
    """Return the bytes that all stages have written for others."""
    context = session.sparkContext
    doubles = context._gateway.new_array(session._jvm.double, 0)
    stages = context._jsc.sc().statusStore().stageList(None, False, False, doubles, None)
    return sum(stages.apply(i).shuffleWriteBytes() for i in range(stages.size()))


if __name__ == "__main__":
    main(*sys.argv[1:])
