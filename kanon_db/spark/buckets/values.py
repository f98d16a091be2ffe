"""The distinct values of a column of a snapshot: few enough to be known on one machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.errors import InfeasibleError
from kanon_db.spark.environment import in_own_words
from kanon_db.spark.kind import SparkJob
from kanon_db.spark.labels import label

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VALUE: Final = "value"
CODE: Final = "code"

_MOST: Final = 2**22
"""Values whose texts and counts the driver can well keep."""


@dataclass(frozen=True, eq=False)
class NumberedValues:
    """The values of a column, in order, NULL last.

    Attributes
    ----------
    frame : DataFrame
        ``code`` (from 0) and ``value``, from files.
    labels : list of (str or None)
        Their texts; None for NULL.
    counts : ndarray of int64, shape (n_values,)
        Records of each.
    """

    frame: DataFrame
    labels: list[str | None]
    counts: IntArray

    def coded(self, records: DataFrame, column: str) -> DataFrame:
        """Put the codes of a column in its place."""
        from pyspark.sql import functions as f

        values = f.broadcast(self.frame.select(CODE, f.col(VALUE).alias("known")))
        same = f.col(column).eqNullSafe(f.col("known"))
        return records.join(values, same).drop(column, "known")


def numbered_values(job: SparkJob, name: str) -> NumberedValues:
    """Count the distinct values of a column, and number them.

    Raises
    ------
    InfeasibleError
        When they are too many.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    job.voice.step("counting values")
    column = job.snapshot.column(name)
    folder = job.staging.scratch(f"values-{column}")
    with in_own_words("values could not be counted"):
        counted = job.snapshot.frame.groupBy(f.col(column).alias(VALUE)).agg(
            f.count("*").alias("records")
        )
        place = f.row_number().over(Window.orderBy(f.col(VALUE).asc_nulls_last()))
        counted.select((place - 1).alias(CODE), VALUE, "records").write.parquet(folder.path)
        frame = job.session.read.parquet(folder.path)
        n_values = frame.count()
    if n_values > _MOST:
        raise InfeasibleError(
            "a column has too many distinct values for one machine",
            detail=f'column "{name}": {n_values:,} values, of which {_MOST:,} are allowed',
            hint="coarsen it, or give it another role",
        )
    with in_own_words("values could not be read"):
        found = (
            frame.select(CODE, label(f.col(VALUE), job.types[name]).alias("label"), "records")
            .orderBy(CODE)
            .toArrow()
        )
    return NumberedValues(
        frame.select(CODE, VALUE),
        found.column("label").to_pylist(),
        found.column("records").to_numpy().astype(np.int64),
    )
