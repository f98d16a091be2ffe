"""Sensitive values of classes in published rows, for the statements of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kanon_db.publications.generalized.class_constraints import ClassConstraints
from kanon_db.publications.generalized.kind import ClassValues, profile_of
from kanon_db.publications.guarantees import exposure_statement
from kanon_db.session.protocol import Row
from kanon_db.spark.labels import label
from kanon_db.spark.names import quoted
from kanon_db.spark.tables import Tables, fetch_one
from kanon_db.transfer.columns import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUES: Final = ClassValues("classed", "cells", "value", "cells", "place")
"""A class is told by the structure of its cells, and a value by its text."""


@contextmanager
def classed_values(
    session: SparkSession, rows: DataFrame, quasi_identifiers: list[str], sensitive: ColumnType
) -> Iterator[Tables]:
    """Open :data:`VALUES` of published rows."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    value = f.col(quoted(sensitive.name))
    known = rows.select(value.alias("known")).distinct()
    order = Window.orderBy(f.col("known").asc_nulls_last())
    known = known.withColumn("place", f.row_number().over(order))
    shown = rows.select(
        f.struct(*map(quoted, quasi_identifiers)).alias("cells"), value.alias("own")
    )
    joined = shown.join(f.broadcast(known), f.col("own").eqNullSafe(f.col("known")))
    tables = Tables(
        session,
        {
            VALUES.rows: joined.select(
                "cells", label(f.col("own"), sensitive).alias("value"), "place"
            )
        },
    )
    try:
        yield tables
    finally:
        tables.drop()


def measure_thresholds(tables: Tables, constraints: ClassConstraints) -> Row | None:
    """Compare the frequencies in each class with the thresholds; None where there are none."""
    if constraints.privacy is None:
        return None
    statement, bound = exposure_statement(constraints.privacy, profile_of(VALUES))
    found: Row = fetch_one(tables, statement, *bound)
    return found
