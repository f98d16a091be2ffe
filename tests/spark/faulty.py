"""A driver of its own: publishes cells on a cluster, says each step, and what was run again.

``python -m tests.spark.faulty MASTER SOURCE TARGET [FOLDER]``: with a folder, shuffle files in it
are deleted once while records are dealt, by the first task that deals some.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kanon_db import spark
from kanon_db.spark.environment import spark_session
from kanon_db.spark.kinds import _bucket_dealing
from tests.spark import data

ASKED: dict[str, Any] = {
    "quasi_identifiers": ["age", "sex", "zip", "id"], "sensitive": "disease",
    "privacy": data.THETA, "max_bucket_size": 40,
}  # fmt: skip
SETTINGS = {
    "spark__driver__memory": "700m",
    "spark__executor__memory": "600m",
    "spark__sql__shuffle__partitions": "4",
    "spark__sql__adaptive__coalescePartitions__enabled": "false",
    "spark__ui__retainedStages": "100000",
}


def deleting(folder: str, deal: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Deal as before, but delete shuffle files first, once."""

    def deal_and_delete(known: Any, batches: Iterator[Any]) -> Iterator[Any]:
        try:
            os.close(os.open(folder + "/deleted", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            for file in Path(folder).rglob("shuffle_*"):
                file.unlink(missing_ok=True)
        yield from deal(known, batches)

    return deal_and_delete


def main(master: str, source: str, target: str, folder: str = "") -> None:
    """Publish, and say ``again N`` at the end: how many stages were run again."""
    _bucket_dealing._RECORDS_OF_PART = 512  # type: ignore[misc]  # several parts, as of a large table
    if folder:
        _bucket_dealing.deal = deleting(folder, _bucket_dealing.deal)
    with spark_session(master, **SETTINGS) as session:
        session.sparkContext.setLogLevel("OFF")
        spark.publish_buckets(
            session, source, target, on_warning=str,
            on_progress=lambda said: print(said.step, flush=True), **ASKED,
        )  # fmt: skip
        context: Any = session.sparkContext._jsc.sc()  # type: ignore[attr-defined]
        stages = context.statusStore().stageList(
            None, False, False, session.sparkContext._gateway.new_array(  # type: ignore[union-attr]
                session._jvm.double, 0), None  # type: ignore[union-attr]
        )  # fmt: skip
        again = sum(stages.apply(i).attemptId() > 0 for i in range(stages.size()))
        print(f"again {again}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
