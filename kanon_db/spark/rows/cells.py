"""Cells in files: ranges are structures of both ends, which belong to them, and sets are arrays.

A range of ``[20, 40]`` is ``{lower: 20, upper: 40}``; a NULL stands for NULL, and a range without
ends for anything, NULL too. PostgreSQL's range of the type that the layout names follows from it:
``int4range(lower, upper, '[]')``. A set has texts, of which one may be NULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray
from kanon_db.algorithms.recoding.generalized_cells import Ranges, Sets
from kanon_db.spark.labels import label
from kanon_db.spark.rows.columns import QuasiIdentifier
from kanon_db.spark.rows.values import number

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

LOWER: Final = "lower"
UPPER: Final = "upper"


def cell_of(place: int) -> str:
    """Name the column with the cells of a quasi-identifier, before they are published."""
    return f"q{place}"


def cell_type(column: QuasiIdentifier) -> DataType:
    """Return the type of a quasi-identifier's cells."""
    from pyspark.sql.types import ArrayType, StringType, StructType

    if column.range_type is None:
        return ArrayType(StringType(), containsNull=True)
    return StructType().add(LOWER, column.type).add(UPPER, column.type)


def cell_array(
    cells: Ranges | Sets, numbers: FloatArray | None, ends: pa.Array, of_record: AnyIntArray
) -> pa.Array:
    """Return the cell of each record.

    Parameters
    ----------
    cells : Ranges or Sets
    numbers : ndarray of float64, shape (n_values,), or None
        As of :class:`.Attribute`.
    ends : pa.Array, shape (n_values,)
        What the cells are made of.
    of_record : ndarray of int, shape (n_records,)
        The number of each record's cell; -1 for none, which is NULL.
    """
    import pyarrow as pa

    of_record = pa.array(of_record, mask=of_record < 0)
    if isinstance(cells, Sets):
        offsets = pa.array(np.append(0, cells.ends).astype(np.int32))
        return pa.ListArray.from_arrays(offsets, ends.take(pa.array(cells.codes))).take(of_record)
    is_null = np.zeros(cells.low.size, dtype=np.bool_)
    if numbers is not None:
        is_null = np.isnan(numbers)[cells.low] & ~cells.tells_nothing
    low, high = (
        ends.take(pa.array(codes, mask=cells.tells_nothing)) for codes in (cells.low, cells.high)
    )
    ranges = pa.StructArray.from_arrays(
        [low, high],
        fields=[pa.field(LOWER, ends.type), pa.field(UPPER, ends.type)],
        mask=pa.array(is_null),
    )
    return ranges.take(of_record)


def covers(column: QuasiIdentifier, cell: Column, value: Column) -> Column:
    """Say whether a value lies within a cell; never NULL."""
    from pyspark.sql import functions as f

    if column.range_type is None:
        text = label(value, column.column)
        with_null = f.exists(cell, lambda member: member.isNull())
        inside = f.when(value.isNull(), with_null).otherwise(f.array_contains(cell, text))
        return f.coalesce(inside, f.lit(False))
    low, high = cell[LOWER], cell[UPPER]
    is_anything = cell.isNotNull() & low.isNull() & high.isNull()
    inside = f.when(value.isNull(), cell.isNull()).otherwise((low <= value) & (value <= high))
    return is_anything | f.coalesce(inside, f.lit(False))


def losses(column: QuasiIdentifier, cell: Column, extent: float) -> tuple[Column, Column]:
    """Return what a cell loses: its NCP by [FF], and by [OB].

    Parameters
    ----------
    column : QuasiIdentifier
    cell : Column
        Of published rows.
    extent : float
        How far a numeric attribute's domain extends.

    Notes
    -----
    As :func:`kanon_db.metrics.information_loss.class_ncp`, from the published cells alone.
    """
    from pyspark.sql import functions as f

    if column.range_type is None:
        n_values, others = len(column.values.labels), f.size(cell) - 1
        return others / float(max(n_values - 1, 1)), others / float(n_values)
    low, high = (number(cell[end], column.column) for end in (LOWER, UPPER))
    assert low is not None  # noqa: S101  # for the type checker
    assert high is not None  # noqa: S101
    width = (high - low) / extent if extent > 0 else f.lit(0.0)
    loss = f.when(cell.isNull(), 0.0).when(cell[LOWER].isNull(), 1.0).otherwise(width)
    return loss, loss
