"""Records with their cells, as the machines that search a part return them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from kanon_db.spark.chance import ORDER
from kanon_db.spark.kind import SparkJob
from kanon_db.spark.rows.cells import cell_of, cell_type, covers
from kanon_db.spark.rows.columns import QuasiIdentifier, other_columns
from kanon_db.spark.rows.writing import LEFT_OUT
from kanon_db.spark.snapshot import RECORD

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def passed_on(job: SparkJob) -> list[str]:
    """Name the columns of a record that go with its cells."""
    return [RECORD, ORDER, *(job.snapshot.column(name) for name in other_columns(job))]


def recoded_schema(
    records: DataFrame, passed: Sequence[str], columns: Sequence[QuasiIdentifier]
) -> Any:
    """Return the schema of recoded records: what is passed on, the cells, and ``left_out``."""
    from pyspark.sql.types import BooleanType, StructType

    schema = StructType([records.schema[name] for name in passed])
    for place, column in enumerate(columns):
        schema.add(cell_of(place), cell_type(column))
    return schema.add(LEFT_OUT, BooleanType())


def covered(columns: Sequence[QuasiIdentifier]) -> Column:
    """Say whether the values of a record, by the snapshot's names, lie within its cells."""
    from pyspark.sql import functions as f

    inside = [
        covers(column, f.col(cell_of(place)), f.col(column.source))
        for place, column in enumerate(columns)
    ]
    return reduce(and_, inside)
