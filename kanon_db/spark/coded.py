"""Published and original records as codes, on one machine: what attacks and evaluations play with.

Values are numbered in the order of their types, NULL last, as PostgreSQL numbers them; texts in
that of their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.errors import InfeasibleError, NotFoundError, SchemaMismatchError
from kanon_db.spark.environment import in_own_words
from kanon_db.spark.labels import label
from kanon_db.spark.names import quoted
from kanon_db.spark.source import column_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

MOST_RECORDS: Final = 5_000_000
"""That are read onto the driver, whose memory must hold them."""


@dataclass(frozen=True, eq=False)
class ReadColumns:
    """Columns of a table on the driver, as Arrow has them.

    Attributes
    ----------
    table : pyarrow.Table
    labels : mapping of str to pyarrow.ChunkedArray
        The texts of values, where they were asked for.
    """

    table: Any
    labels: Mapping[str, Any]

    def numbers(self, name: str) -> IntArray:
        """Return a column of numbers."""
        return np.asarray(self.table[name].to_numpy(), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Numbered:
    """The distinct values of a column, in order.

    Attributes
    ----------
    values : pyarrow.Array
    """

    values: Any

    @classmethod
    def of(cls, column: Any) -> Numbered:
        """Return the distinct values of a column, in order."""
        import pyarrow.compute as pc

        distinct = pc.unique(column)
        return cls(distinct.take(pc.sort_indices(distinct)))  # NULL last

    def __len__(self) -> int:
        return len(self.values)

    def codes(self, column: Any) -> CodeArray:
        """Return the code of each value of a column; -1 for one that is not among them."""
        import pyarrow.compute as pc

        found = pc.fill_null(pc.index_in(column, value_set=self.values), -1)
        return np.asarray(found.to_numpy(), dtype=np.int32)

    def labels(self, column: Any, texts: Any) -> list[str | None]:
        """Return the text of each value, from a column and its texts."""
        found: list[str | None] = [None] * len(self)
        codes, first = np.unique(self.codes(column), return_index=True)
        for code, text in zip(codes.tolist(), texts.take(first).to_pylist(), strict=True):
            found[code] = text
        return found


def read_columns(
    frame: DataFrame, columns: Sequence[str], what: str, labelled: Sequence[str] = ()
) -> ReadColumns:
    """Read columns of a table onto the driver.

    Parameters
    ----------
    frame : DataFrame
    columns : sequence of str
    what : str
        What the table is called.
    labelled : sequence of str
        Those whose values' texts are wanted, too.

    Raises
    ------
    NotFoundError
        When it has no such column.
    InfeasibleError
        When it has too many records.
    """
    types = {field.name: field.dataType for field in frame.schema.fields}
    if missing := [column for column in columns if column not in types]:
        raise NotFoundError(
            "the source has lost columns", detail=f"{what} has no {', '.join(missing)}"
        )
    with in_own_words(f"{what} could not be read"):
        n_records = frame.count()
        if n_records > MOST_RECORDS:
            raise InfeasibleError(
                "this is played on one machine, which cannot hold so many records",
                detail=f"{what}: {n_records:,} records, of which {MOST_RECORDS:,} are allowed",
                hint="publish a part of the source, such as a region, and try it on that",
            )
        texts = [
            label(frame[quoted(name)], column_type(name, types[name])).alias(f"label_{i}")
            for i, name in enumerate(labelled)
        ]
        own = [
            _one_zero(frame[quoted(name)], types[name]).alias(f"c{i}")
            for i, name in enumerate(columns)
        ]
        table = frame.select(*own, *texts).toArrow()
    found = {name: table[f"label_{i}"] for i, name in enumerate(labelled)}
    return ReadColumns(table.select(range(len(columns))).rename_columns(list(columns)), found)


def require_same_types(published: DataFrame, source: DataFrame, columns: Sequence[str]) -> None:
    """Refuse a source whose columns have other types than what was published of them.

    Raises
    ------
    SchemaMismatchError
    """
    from pyspark.sql.types import ArrayType, StructType

    shown, own = (
        {field.name: field.dataType for field in frame.schema.fields}
        for frame in (published, source)
    )
    for column in columns:
        type_ = shown.get(column)
        if isinstance(type_, ArrayType):
            continue  # a set has texts, whatever the type is
        if isinstance(type_, StructType):
            type_ = type_.fields[0].dataType  # of both ends
        if column in own and type_ != own[column]:
            raise SchemaMismatchError(
                "the source's columns have changed since it was published",
                detail=f'column "{column}" has another type',
            )


def codes_of(columns: Sequence[Numbered], read: ReadColumns, names: Sequence[str]) -> CodeArray:
    """Return the codes of the values of some columns, shape (n, m)."""
    pairs = zip(columns, names, strict=True)
    return np.stack([column.codes(read.table[name]) for column, name in pairs], axis=1)


def _one_zero(value: Column, type_: DataType) -> Column:
    """Make -0.0 what it is equal to."""
    from pyspark.sql import functions as f

    if type_.typeName() not in ("float", "double"):
        return value
    return f.when(value == 0, f.lit(0).cast(type_)).otherwise(value)
