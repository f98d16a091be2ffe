"""The distinct values of a column of a snapshot: few enough for each machine to know them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.errors import InfeasibleError, ServerError
from kanon_db.spark.environment import in_own_words, through_arrow
from kanon_db.spark.kind import SparkJob
from kanon_db.spark.labels import label
from kanon_db.transfer.columns import ColumnType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_MOST: Final = 2**22
"""Values whose texts and counts each machine can well keep."""


@dataclass(frozen=True, eq=False)
class Values:
    """The values of a column, in order, NULL last.

    Attributes
    ----------
    array : pa.Array, shape (n_values,)
    labels : list of (str or None)
        Their texts; None for NULL.
    counts : ndarray of int64, shape (n_values,)
        Records of each.
    numbers : ndarray of float64, shape (n_values,), or None
        Of values that have numbers, times in seconds; NaN of NULL.
    """

    array: pa.Array
    labels: list[str | None]
    counts: IntArray
    numbers: FloatArray | None


def number(value: Column, column: ColumnType) -> Column | None:
    """Return a value as a float, times in seconds; None for types without numbers."""
    from pyspark.sql import functions as f

    if column.type_category == "N":
        return value.cast("double")
    if column.type_name == "date":
        return f.unix_date(value).cast("double") * 86400.0
    if column.type_name.startswith("timestamp"):
        return value.cast("timestamp").cast("double")
    return None


def read_values(job: SparkJob, name: str) -> Values:
    """Count the distinct values of a column.

    Raises
    ------
    InfeasibleError
        When they are too many.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import functions as f

    value, column = f.col(job.snapshot.column(name)), job.types[name]
    as_number = number(value, column)
    with in_own_words("values could not be counted"):
        found = (
            job.snapshot.frame.groupBy(value)
            .agg(f.count("*").alias("records"))
            .select(
                value.alias("value"), label(value, column).alias("label"), "records",
                (f.lit(None).cast("double") if as_number is None else as_number).alias("number"),
            )
            .limit(_MOST + 1)
            .toArrow()
        )  # fmt: skip
    if found.num_rows > _MOST:
        raise InfeasibleError(
            "a column has too many distinct values for one machine",
            detail=f'column "{name}": more than {_MOST:,}',
            hint="coarsen it, or give it another role",
        )
    found = found.take(pc.sort_indices(found.column("value")))
    chunks = found.column("value").chunks
    return Values(
        pa.concat_arrays(chunks) if chunks else pa.array([], found.schema.field("value").type),
        found.column("label").to_pylist(),
        found.column("records").to_numpy().astype(np.int64),
        None if as_number is None else found.column("number").to_numpy().astype(np.float64),
    )


def coded(
    records: DataFrame, codes: Sequence[tuple[str, Values, str]], kept: list[str]
) -> DataFrame:
    """Add the codes of columns to records.

    Parameters
    ----------
    records : DataFrame
    codes : sequence of (str, Values, str)
        A column, its values, and the name of the column of codes that is added.
    kept : list of str
        The columns that stay.
    """
    from pyspark.sql.types import IntegerType, StructType

    context: Any = records.sparkSession.sparkContext
    known = context.broadcast(([(column, values.array) for column, values, _ in codes], kept))
    schema = StructType([records.schema[name] for name in kept])
    for _, _, name in codes:
        schema.add(name, IntegerType(), nullable=False)
    return through_arrow(records, coding(known, schema.names), schema)


def coding(known: Any, names: list[str]) -> Any:
    """Return the function that numbers values.

    Parameters
    ----------
    known : Broadcast
        Of columns with their values, and of the columns that stay.
    names : list of str
        Of the result.
    """

    def code(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        columns, kept = known.value
        for batch in batches:
            found = []
            for name, values in columns:
                column = batch.column(name)
                if pa.types.is_floating(column.type):
                    column = pc.add(column, pa.scalar(0, column.type))  # -0 is 0
                codes = pc.index_in(column, value_set=values)
                if codes.null_count:
                    raise ServerError("the records have changed while they were numbered")
                found.append(codes)
            yield pa.RecordBatch.from_arrays(
                [*(batch.column(name) for name in kept), *found], names
            )

    return code
