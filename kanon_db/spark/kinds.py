"""The kinds that are made on Spark: a room here for each, beside the room of its declaration."""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from kanon_db.errors import NotFoundError
from kanon_db.spark.kind import SparkKind

ROOMS: Final = {
    "buckets": "kanon_db.spark.buckets.kind",
    "generalized": "kanon_db.spark.generalized.kind",
    "suppressed": "kanon_db.spark.suppressed.kind",
    "freeform": "kanon_db.spark.freeform.kind",
}
"""The module of each kind; its ``KIND`` is a :class:`SparkKind`."""


def spark_kind(name: str) -> SparkKind:
    """Import a kind.

    Raises
    ------
    NotFoundError
        When it is not made on Spark.
    """
    if name not in ROOMS:
        raise NotFoundError(
            "publications of this kind are not made on Spark",
            detail=f'kind "{name}"',
            hint=f"publish it in PostgreSQL; on Spark there are {', '.join(ROOMS)}",
        )
    return cast("SparkKind", import_module(ROOMS[name]).KIND)
