"""The cells of rows in files as the codes that they cover: see the same of PostgreSQL.

:mod:`kanon_db.publications.rows.published_rows` says what codes mean. Ends of ranges and texts in
sets are compared with the source's values as they are, on the driver.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.recoding.generalized_cells import Ranges, Sets
from kanon_db.publications.rows.published_rows import RowCodes, classes_of_rows, single_values
from kanon_db.spark.coded import (
    Numbered,
    ReadColumns,
    codes_of,
    read_columns,
    require_same_types,
)
from kanon_db.spark.kind import Opened
from kanon_db.spark.names import quoted
from kanon_db.spark.rows.cells import LOWER, UPPER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SENSITIVE: Final = "sensitive"
_PATTERN: Final = "pattern"
_VALUE, _NULL, _ANYTHING = 0, 1, 2  # kinds of ranges


@dataclass(frozen=True, eq=False)
class ReadRows:
    """Published rows and their source, as they were read.

    Attributes
    ----------
    cells : sequence of mapping
        What the layout says of the quasi-identifiers.
    sensitive : str or None
        The name of the sensitive attribute.
    rows, source : ReadColumns
    columns : list of Numbered
        The values of each quasi-identifier in the source.
    """

    cells: Sequence[Mapping[str, Any]]
    sensitive: str | None
    rows: ReadColumns
    source: ReadColumns
    columns: list[Numbered]

    @classmethod
    def of(cls, opened: Opened) -> Self:
        """Read the columns that are needed.

        Raises
        ------
        NotFoundError, SchemaMismatchError
            When the source no longer has such columns.
        InfeasibleError
            When there are too many records.
        """
        layout, rows = opened.publication.layout, opened.table("")
        cells, sensitive = layout["quasi_identifiers"], layout["sensitive"]
        names = [str(cell["name"]) for cell in cells]
        its_column = [] if sensitive is None else [str(sensitive)]
        require_same_types(rows, opened.source, [*names, *its_column])
        flat, shown = _flat(rows, layout)
        in_sets = [str(cell["name"]) for cell in cells if cell["cell"] == "set"]
        read = read_columns(
            flat, shown, "the published rows", [] if sensitive is None else [_SENSITIVE]
        )
        source = read_columns(opened.source, [*names, *its_column], "the source", in_sets)
        columns = [Numbered.of(source.table[name]) for name in names]
        return cls(cells, None if sensitive is None else str(sensitive), read, source, columns)

    @property
    def names(self) -> list[str]:
        """The quasi-identifiers."""
        return [str(cell["name"]) for cell in self.cells]

    @property
    def n_codes(self) -> list[int]:
        """How many values each of them has in the source."""
        return [len(column) for column in self.columns]

    def codes(self) -> CodeArray:
        """Return the codes of the source's records, shape (n_people, n_qi)."""
        return codes_of(self.columns, self.source, self.names)

    def its_values(self, sensitive: Numbered | None) -> IntArray:
        """Return the codes of the source's sensitive values; 0 of all where there are none."""
        if sensitive is None or self.sensitive is None:
            return np.zeros(self.source.table.num_rows, dtype=np.int64)
        return sensitive.codes(self.source.table[self.sensitive]).astype(np.int64)

    def numbered(self) -> Numbered | None:
        """Return the sensitive values of the rows."""
        return None if self.sensitive is None else Numbered.of(self.rows.table[_SENSITIVE])

    def labels(self, sensitive: Numbered) -> list[str | None]:
        """Return the texts of the rows' sensitive values."""
        return sensitive.labels(self.rows.table[_SENSITIVE], self.rows.labels[_SENSITIVE])

    def coded(self, sensitive: Numbered | None) -> RowCodes:
        """Return the cells of the rows, and their values by the codes of some."""
        found: list[Ranges | Sets] = []
        numbers = np.empty((self.rows.table.num_rows, len(self.cells)), dtype=np.int32)
        its_cells: Ranges | Sets
        for place, (cell, column) in enumerate(zip(self.cells, self.columns, strict=True)):
            match cell["cell"]:
                case "range":
                    its_cells, numbers[:, place] = self._ranges(place, column)
                case "set":
                    its_cells, numbers[:, place] = self._sets(place, column)
                case _:
                    its_cells, numbers[:, place] = self._values(place, column)
            found.append(its_cells)
        values = np.zeros(len(numbers), dtype=np.int64)
        if sensitive is not None:
            values = sensitive.codes(self.rows.table[_SENSITIVE]).astype(np.int64)
        return RowCodes(found, numbers, values)

    def _ranges(self, place: int, column: Numbered) -> tuple[Ranges, IntArray]:
        """Find the codes within ranges."""
        import pyarrow as pa

        lower, upper, is_null = (
            self.rows.table[_part(place, what)] for what in (LOWER, UPPER, "null")
        )
        known = column.values.drop_null()
        ends = Numbered.of(pa.chunked_array([known, *lower.chunks, *upper.chunks]))
        is_anything = np.asarray(lower.is_null()) & np.asarray(upper.is_null())
        kind = np.where(np.asarray(is_null), _NULL, np.where(is_anything, _ANYTHING, _VALUE))
        of_row = np.stack([kind.astype(np.int32), ends.codes(lower), ends.codes(upper)], axis=1)
        numbers, first = classes_of_rows(of_row)
        kind, low, high = of_row[first].T
        order = ends.codes(known)
        low = np.searchsorted(order, low, side="left")
        high = np.searchsorted(order, high, side="right") - 1
        # NULL's code comes after all others; without one, such a cell covers no code.
        low = np.select([kind == _NULL, kind == _ANYTHING], [order.size, 0], low)
        last = len(column) - 1, order.size - 1
        high = np.select([kind == _NULL, kind == _ANYTHING], last, high)
        ranges = Ranges(low.astype(np.int32), high.astype(np.int32), kind == _ANYTHING)
        return ranges, numbers

    def _sets(self, place: int, column: Numbered) -> tuple[Sets, CodeArray]:
        """Find the codes of the texts in sets."""
        name = str(self.cells[place]["name"])
        labels = column.labels(self.source.table[name], self.source.labels[name])
        code_of = {text: code for code, text in enumerate(labels)}
        written = self.rows.table[_part(place, "set")]
        distinct = Numbered.of(written)
        codes, ends = list[int](), list[int]()
        for text in distinct.values.to_pylist():
            members = [] if text is None else json.loads(text)
            codes += sorted({code_of[member] for member in members if member in code_of})
            ends.append(len(codes))
        sets = Sets(np.array(codes, dtype=np.int32), np.array(ends, dtype=np.int64))
        return sets, distinct.codes(written)

    def _values(self, place: int, column: Numbered) -> tuple[Ranges, CodeArray]:
        """Find the codes of values, and which of them are suppressed."""
        codes = column.codes(self.rows.table[_part(place, "value")])
        # A value that the source no longer has is covered by no code.
        codes = np.where(codes < 0, np.int32(len(column) + 1), codes)
        if _PATTERN in self.rows.table.column_names:
            marks = self.rows.table[_PATTERN]
            patterns = Numbered.of(marks)
            is_star = np.array([text[place] == "*" for text in patterns.values.to_pylist()])
            codes[is_star[patterns.codes(marks)]] = len(column)
        return single_values(len(column)), codes


def _part(place: int, what: str) -> str:
    """Name what was read of a cell."""
    return f"q{place}_{what}"


def _flat(rows: DataFrame, layout: Mapping[str, Any]) -> tuple[DataFrame, list[str]]:
    """Take cells apart into columns that can be numbered: ends of ranges, and sets as JSON."""
    from pyspark.sql import functions as f

    shown: dict[str, Column] = {}
    for place, cell in enumerate(layout["quasi_identifiers"]):
        own = rows[quoted(str(cell["name"]))]
        match cell["cell"]:
            case "range":
                shown |= {_part(place, end): own[end] for end in (LOWER, UPPER)}
                shown[_part(place, "null")] = own.isNull()
            case "set":
                shown[_part(place, "set")] = f.to_json(own)
            case _:
                shown[_part(place, "value")] = own
    if layout.get("pattern"):
        shown[_PATTERN] = rows[quoted(str(layout["pattern"]))]
    if layout["sensitive"] is not None:
        shown[_SENSITIVE] = rows[quoted(str(layout["sensitive"]))]
    return rows.select(*(column.alias(name) for name, column in shown.items())), list(shown)
