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

    from kanon_db.transfer.columns import ColumnType

VALUE: Final = "value"
CODE: Final = "code"
RECORDS: Final = "records"
BEFORE: Final = "before"

_MOST: Final = 2**22
"""Values whose texts and counts the driver can well keep."""


@dataclass(frozen=True, eq=False)
class NumberedValues:
    """The values of a column, in order, NULL last.

    Attributes
    ----------
    column : str
        The column of the snapshot.
    frame : DataFrame
        ``code`` (from 0), ``value``, ``records``, and ``before`` (records of lower values), from
        files.
    type : ColumnType
    counts : ndarray of int64, shape (n_values,)
        Records of each.
    """

    column: str
    frame: DataFrame
    type: ColumnType
    counts: IntArray

    def labels(self) -> list[str | None]:
        """Return their texts in the order of their codes; None for NULL."""
        from pyspark.sql import functions as f

        with in_own_words("values could not be read"):
            found = self.frame.select(CODE, label(f.col(VALUE), self.type).alias("label")).toArrow()
        texts: list[str | None] = found.sort_by(CODE).column("label").to_pylist()
        return texts

    def coded(self, records: DataFrame, name: str = CODE, number: str = CODE) -> DataFrame:
        """Add the codes of the column, or another number of its values, to the snapshot's records.

        Parameters
        ----------
        records : DataFrame
        name : str
            Of the column that is added.
        number : str
            ``code`` or ``before``.
        """
        from pyspark.sql import functions as f

        known = f.broadcast(
            self.frame.select(f.col(number).alias(name), f.col(VALUE).alias("known"))
        )
        same = f.col(self.column).eqNullSafe(f.col("known"))
        return records.join(known, same).drop("known")


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
            f.count("*").alias(RECORDS)
        )
        ordered = Window.orderBy(f.col(VALUE).asc_nulls_last())
        whole = f.sum(RECORDS).over(ordered.rowsBetween(Window.unboundedPreceding, 0))
        counted.select(
            (f.row_number().over(ordered) - 1).alias(CODE), VALUE, RECORDS,
            (whole - f.col(RECORDS)).alias(BEFORE),
        ).write.parquet(folder.path)  # fmt: skip
        frame = job.session.read.parquet(folder.path)
        found = frame.select(CODE, RECORDS).where(f.col(CODE) <= _MOST).toArrow()
    if found.num_rows > _MOST:
        raise InfeasibleError(
            "a column has too many distinct values for one machine",
            detail=f'column "{name}": more than {_MOST:,} values',
            hint="coarsen it, or give it another role",
        )
    counts = found.sort_by(CODE).column(RECORDS).to_numpy().astype(np.int64)
    return NumberedValues(column, frame, job.types[name], counts)
