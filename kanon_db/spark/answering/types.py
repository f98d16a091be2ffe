"""The types of records that a question tells apart: counted by Spark, numbered on the driver."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.query.expressions import refusal
from kanon_db.query.layout import CellDescription
from kanon_db.spark.answering.cells import CellShares, ColumnCells, Key
from kanon_db.spark.answering.places import places
from kanon_db.spark.environment import in_own_words
from kanon_db.spark.names import quoted
from kanon_db.spark.rows.cells import LOWER, UPPER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MOST_TYPES: Final = 2_000_000
"""Combinations of cells that are read onto the driver."""

_COUNT: Final = "n"


@dataclass(frozen=True)
class CellColumns:
    """What is read of a column, under names of its own.

    Attributes
    ----------
    cell : Cell
    place : int
    pattern : str or None
        The column that marks suppressed cells.
    """

    cell: CellDescription
    place: int
    pattern: str | None

    @property
    def names(self) -> list[str]:
        """The names of what is read."""
        parts = {"range": ["low", "high", "null"], "set": ["set"], "value": ["value"]}
        marks = [] if self.cell.mark is None else ["hidden"]
        return [f"{part}{self.place}" for part in (*parts[self.cell.kind], *marks)]

    def __call__(self, column: Column) -> list[Column]:
        """Return what is read of a column."""
        from pyspark.sql import functions as f

        match self.cell.kind:
            case "range":
                found = [column[LOWER], column[UPPER], column.isNull()]
            case "set":
                found = [f.to_json(column)]
            case _:
                found = [column]
        if self.cell.mark is not None and self.pattern is not None:
            mark = f.substring(f.col(quoted(self.pattern)), self.cell.mark, 1)
            found.append(mark == f.lit("*"))
        return [one.alias(name) for one, name in zip(found, self.names, strict=True)]


def cell_keys(cell: CellDescription, place: int, table: Any) -> tuple[list[Key], IntArray]:
    """Return the distinct cells of a column of ranges or sets, and the number of each row's."""
    if cell.kind == "set":
        texts, codes = _coded(table[f"set{place}"])
        return [tuple(json.loads(text or "[null]")) for text in texts.to_pylist()], codes
    coded = [_coded(table[f"{part}{place}"]) for part in ("low", "high", "null")]
    number = np.zeros(table.num_rows, dtype=np.int64)
    for values, codes in coded:
        number = number * max(len(values), 1) + codes
    _, first, of_row = np.unique(number, return_index=True, return_inverse=True)
    type_ = cell.column.type
    low, high = (places(values, type_) for values, _ in coded[:2])
    is_null = coded[2][0].to_pylist()
    ends = zip(*(codes[first].tolist() for _, codes in coded), strict=True)
    found: list[Key] = [None if is_null[null] else (low[a], high[b]) for a, b, null in ends]
    return found, of_row.astype(np.int64)


def _coded(column: Any) -> tuple[Any, IntArray]:
    """Return the distinct values of an Arrow column, NULL too, and the code of each row's."""
    found = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return found.dictionary, found.indices.to_numpy().astype(np.int64)


@dataclass(frozen=True, eq=False)
class CountedTypes:
    """Types of records.

    Attributes
    ----------
    columns : dict of int to ColumnCells
        The distinct cells of each column, by its number.
    codes : dict of int to ndarray of int64, shape (n_types,)
        The number of each type's cell.
    n : ndarray of float64, shape (n_types,)
        The records of each.
    """

    columns: dict[int, ColumnCells]
    codes: dict[int, IntArray]
    n: FloatArray

    @classmethod
    def of(
        cls,
        rows: DataFrame,
        cells: Mapping[str, CellDescription],
        numbered: Mapping[str, int],
        pattern: str | None,
        shares: Mapping[str, CellShares | None],
    ) -> CountedTypes:
        """Count the rows that have the same cells in some columns.

        Parameters
        ----------
        rows : DataFrame
        cells : mapping of str to Cell
        numbered : mapping of str to int
            The columns, with their numbers.
        pattern : str or None
        shares : mapping of str to CellShares

        Raises
        ------
        UnsupportedQueryError
            If the driver would have too many of them.
        """
        from pyspark.sql import functions as f

        read = {name: CellColumns(cells[name], place, pattern)
                for name, place in numbered.items()}  # fmt: skip
        selected = [one for name, of in read.items() for one in of(f.col(quoted(name)))]
        by = [alias for of in read.values() for alias in of.names]
        with in_own_words("the rows could not be counted"):
            counted = rows.select(*selected).groupBy(*by).agg(f.count("*").alias(_COUNT))
            table = counted.limit(MOST_TYPES + 1).toArrow()
        if table.num_rows > MOST_TYPES:
            raise refusal(
                "the columns of a question have too many different combinations for the driver",
                hint="ask about fewer columns, or load the publication into PostgreSQL"
                " (kanon spark load), and ask there",
                detail=f"more than {MOST_TYPES:,} combinations of the cells of"
                f" {', '.join(numbered)}",
            )
        n = table[_COUNT].to_numpy().astype(np.float64)
        columns, codes = {}, {}
        for name, place in numbered.items():
            found, own = _cells(cells[name], place, table, n, shares.get(name))
            columns[place], codes[place] = found, own
        return cls(columns, codes, n)

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return all of them at once."""
        if self.n.sum():
            yield self.codes, self.n


def _cells(
    cell: CellDescription, place: int, table: Any, n: FloatArray, shares: CellShares | None
) -> tuple[ColumnCells, IntArray]:
    if cell.kind != "value":
        keys, of_row = cell_keys(cell, place, table)
        records = np.bincount(of_row, n, len(keys)).astype(np.int64)
        hidden = np.zeros(len(keys), dtype=np.bool_)
        return ColumnCells(cell, records, hidden, keys, None, shares), of_row
    values, codes = _coded(table[f"value{place}"])
    marks = np.zeros(n.size, dtype=np.int64)
    if cell.mark is not None:
        marks = np.asarray(table[f"hidden{place}"].to_numpy(), dtype=np.int64)
    _, first, of_row = np.unique(codes * 2 + marks, return_index=True, return_inverse=True)
    of_row = of_row.astype(np.int64)
    records = np.bincount(of_row, n, first.size).astype(np.int64)
    hidden = marks[first] == 1
    return ColumnCells(cell, records, hidden, [], values.take(codes[first]), None), of_row


def is_wide(rows: DataFrame, cell: CellDescription, most: int) -> bool:
    """Whether a cell of a column of discrete ranges has more values, or says nothing."""
    from pyspark.sql import functions as f

    column = f.col(quoted(cell.column.name))
    low, high = column[LOWER], column[UPPER]
    width = high.cast("bigint") - low.cast("bigint")
    if cell.column.type.name == "date":
        width = f.datediff(high, low)
    with in_own_words("the widths of cells could not be found"):
        (row,) = rows.select(
            f.max(width).alias("width"),
            f.max(column.isNotNull() & (low.isNull() | high.isNull())).alias("anything"),
        ).collect()
    return bool((row["width"] or 0) + 1 > most or row["anything"])


def is_known(rows: DataFrame, pattern: str, mark: int) -> bool:
    """Whether some cell of a column is not suppressed."""
    from pyspark.sql import functions as f

    kept = f.substring(f.col(quoted(pattern)), mark, 1) != f.lit("*")
    with in_own_words("suppressed cells could not be counted"):
        return bool(rows.where(kept).limit(1).count())
