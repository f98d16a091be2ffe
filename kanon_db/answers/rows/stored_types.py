"""Reads the types of records: from a publication's table of classes, or from its view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers.rows.cell_columns import KnownCells, RangeColumn, RangeEnds
from kanon_db.answers.rows.cell_evidence import CellEvidence
from kanon_db.answers.rows.cell_relations import CellRelations
from kanon_db.answers.rows.cell_values import TriedColumn
from kanon_db.answers.rows.evidence import (
    Cells,
    KnownColumn,
    NotReadError,
    PieceReader,
    StatementRunner,
    distinct,
)
from kanon_db.answers.rows.pieces import Pieces
from kanon_db.answers.tries import StatementTries
from kanon_db.catalog.entries import changed
from kanon_db.errors import UnsupportedQueryError
from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import ANY_END, BEGINS, place_of
from kanon_db.query.layout import CellLayout, ClassTable
from kanon_db.query.likelihoods import apart_from_required
from kanon_db.query.sql import Request

_COLUMN_BYTES: Final = 5_000_000
"""What a column of a block takes, as it is read and as numbers, rounded up."""

Block = dict[str, bytes]
"""The numbers of each column, by its name; the sizes of classes have the name ``""``."""


class StoredTypes:
    """:class:`~kanon_db.answers.rows.evidence.KnownTypes` of a table of classes."""

    def __init__(
        self,
        runner: StatementRunner,
        request: Request,
        layout: CellLayout,
        also: Sequence[str],
        room: int,
        *,
        lists_values: bool,
    ) -> None:
        if layout.classes is None:
            raise TypeError("there is no table of classes")
        self._runner, self._request, self._layout = runner, request, layout
        self._classes: ClassTable = layout.classes
        self.pieces = Pieces.of(request, layout, also, lists_values=lists_values)
        places = self.pieces.places
        if len(places) * _COLUMN_BYTES > room:
            raise NotReadError
        self._of_classes = {
            name: place
            for name, place in places.items()
            if layout.cells[name].column.sql in layout.view.quasi_identifiers
        }
        self._of_rows = {n: place for n, place in places.items() if n not in self._of_classes}
        self._needs_all = bool(layout.left_out or self.pieces.marked)
        self._ended: dict[str, IntArray] = {}  # The distinct codes of columns without numbers
        self._sizes: dict[int, int] = {}
        self.read: PieceReader = self._evidence()

    def column(self, name: str) -> KnownColumn:
        """Return what is known of the cells of one column."""
        own = self._columns[self.pieces.places[name]]
        return TriedColumn(name, own, StatementTries(self._runner, ()))

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return the numbers of the cells of each type, by the column, and its records."""
        n_rows = 0
        for block in self._blocks(list(self.pieces.places)):
            sizes = self._sizes_of(block)
            codes = {
                place: self._numbers(block, name, place, sizes.size)
                for name, place in self._of_classes.items()
            }
            n = sizes.astype(np.float64)
            n_own = int(sizes.sum())
            n_rows += n_own
            if self._of_rows:
                codes_of_rows = {
                    place: self._numbers(block, name, place, n_own)
                    for name, place in self._of_rows.items()
                }
                class_of_row = np.repeat(np.arange(sizes.size), sizes)
                met = self._require_rows(codes_of_rows)
                if met is not None:
                    class_of_row = class_of_row[met]
                    codes_of_rows = {p: numbers[met] for p, numbers in codes_of_rows.items()}
                codes = {place: numbers[class_of_row] for place, numbers in codes.items()}
                codes |= codes_of_rows
                n = np.ones(class_of_row.size)
            if n.size:
                yield self._together(codes, n)
        if n_rows != self._layout.n_rows:
            raise changed(self._runner.publication)

    def _evidence(self) -> CellEvidence:
        """Read the cells, and ask; arithmetic may fail on values that no record has together."""
        runner, places = self._runner, self.pieces.places
        relations = CellRelations(self._layout, is_stored=True)
        numbered = [name for name in places if name not in self._classes.ends]
        columns = {
            places[name]: column for name, column in relations.read(runner, numbered).items()
        }
        for name in places:
            if name in self._classes.ends:
                columns[places[name]] = self._range_cells(name)
        self._columns = columns
        self._sizes = {place: column.cells.n.size for place, column in columns.items()}
        names = list(places)

        def ends(one: int, other: int) -> tuple[Any, ...]:
            if any(names[place] in self._ended for place in (one, other)):
                raise NotReadError
            return relations.ends_of_two(runner, names[one], names[other])

        tries = StatementTries(runner, self._request.lookups)
        try:
            with runner.session.savepoint():
                return CellEvidence(self.pieces, columns, tries, ends)
        except UnsupportedQueryError:
            raise NotReadError from None

    def _range_cells(self, name: str) -> KnownCells:
        """Find the distinct ranges of a column of which each class has the ends."""
        own, cell = self._classes, self._layout.cells[name]
        place = place_of(cell.column.type, f"lower(t.{cell.column.sql})")
        (row,) = self._runner.fetch(
            f"SELECT ({place})::int8 AS low, (upper(t.{cell.column.sql}) - lower("
            f"t.{cell.column.sql}))::int8 AS n FROM {own.table} AS t"
            f" WHERE t.{own.attribute} = $1::text AND t.{own.codes} IS NULL",
            name,
        )
        codes_of_blocks: list[tuple[IntArray, Any]] = []
        for block in self._blocks([name]):
            sizes = self._sizes_of(block)
            codes = self._read(block, name, sizes.size, "<i8")
            values, number = np.unique(codes, return_inverse=True)
            codes_of_blocks.append((values, np.bincount(number, sizes, values.size)))
        codes, number = np.unique(
            np.concatenate([one for one, _ in codes_of_blocks] or [np.empty(0, dtype=np.int64)]),
            return_inverse=True,
        )
        low, end = codes >> BEGINS, codes & ((1 << BEGINS) - 1)
        is_null, is_anything = codes == 0, codes == ANY_END
        least, n_values = row["low"], row["n"]
        if least is None or n_values is None:
            raise changed(self._runner.publication)
        is_range = (low < end) & (low >= 0) & (end <= n_values)
        if not (is_range | is_null | is_anything).all():
            raise changed(self._runner.publication)
        self._ended[name] = codes
        n = np.bincount(number, np.concatenate([n for _, n in codes_of_blocks]), codes.size)
        none = np.zeros(codes.size, dtype=np.bool_)
        ends = RangeEnds(least + low, least + end - 1, is_null, is_anything, is_anything)
        cells = Cells(n.astype(np.float64), np.ones(codes.size), none, is_anything, is_anything)
        return RangeColumn(name, cell, cells, ends, None)

    def _together(
        self, codes: dict[int, IntArray], n: FloatArray
    ) -> tuple[dict[int, IntArray], FloatArray]:
        """Count records with the same cells once, where there is more to do with each."""
        unit = self.pieces.unit
        if not codes:
            return codes, np.array([n.sum()])
        is_single = len(codes) == 1
        if not (unit.spread or unit.parts or is_single or self._of_rows):
            return codes, n
        first, number = distinct(list(codes.values()), [self._sizes[p] for p in codes])
        numbers_of_records = np.bincount(number, n, first.size).astype(np.float64, copy=False)
        return {place: numbers[first] for place, numbers in codes.items()}, numbers_of_records

    def _require_rows(self, codes: dict[int, IntArray]) -> Any:
        """Find the rows that meet what only columns with known values decide; None for all."""
        condition = self.pieces.unit.condition
        if self._needs_all or condition is None:
            return None
        parts = condition.parts if isinstance(condition, ex.And) else (condition,)
        met = None
        for part in parts:
            places = self.pieces.unit.by_value.get(part, ())
            if places and all(place in codes for place in places):
                number: Any = 0
                for place in places:
                    number = number * self.read.n_values[place] + codes[place]
                one = self.read.tried(part, places).surely[number]
                met = one if met is None else met & one
        return met

    def _sizes_of(self, block: Block) -> IntArray:
        written = block.get("", b"")
        if not written or len(written) % 4:
            raise changed(self._runner.publication)
        return np.frombuffer(written, dtype="<u4").astype(np.int64)

    def _numbers(self, block: Block, name: str, place: int, n: int) -> IntArray:
        if name in self._ended:
            codes = self._read(block, name, n, "<i8")
            return np.searchsorted(self._ended[name], codes).astype(np.int64)
        numbers = self._read(block, name, n, "<u2")
        if n and not int(numbers.max()) < self._sizes[place]:
            raise changed(self._runner.publication)
        return numbers

    def _read(self, block: Block, name: str, n: int, type_: str) -> IntArray:
        written = block.get(name, b"")
        if len(written) != np.dtype(type_).itemsize * n:
            raise changed(self._runner.publication)
        return np.frombuffer(written, dtype=type_).astype(np.int64)

    def _blocks(self, names: Sequence[str]) -> Iterator[Block]:
        """Read the numbers of columns, block by block."""
        own = self._classes
        rows = self._runner.stream(
            1 + len(names),
            f"SELECT coalesce(t.{own.attribute}, '') AS attribute, t.{own.number} AS block,"
            f" t.{own.codes} AS codes FROM {own.table} AS t WHERE t.{own.codes} IS NOT NULL"
            f" AND (t.{own.attribute} IS NULL OR t.{own.attribute} = ANY ($1::text[]))"
            f" ORDER BY t.{own.number}",
            list(names),
        )
        for _, of_block in groupby(rows, key=lambda row: row["block"]):
            yield {str(row["attribute"]): row["codes"] for row in of_block}


class ViewTypes:
    """The types of a view whose cells a statement numbers; see `evidence.KnownTypes`."""

    def __init__(
        self,
        runner: StatementRunner,
        request: Request,
        layout: CellLayout,
        also: Sequence[str],
        room: int,
        *,
        lists_values: bool,
    ) -> None:
        self._runner = runner
        rest, required = apart_from_required(request, layout, also)
        self.pieces = Pieces.of(rest, layout, also, lists_values=lists_values)
        names = list(self.pieces.places)
        relations = CellRelations(layout, is_stored=False, required=required)
        types, n = relations.types(runner, names, room)
        self._codes = {place: types[:, place] for place in range(len(names))}
        self._n = n.astype(np.float64)
        self._columns = dict(enumerate(relations.read(runner, names).values()))

        def ends(one: int, other: int) -> tuple[Any, ...]:
            return relations.ends_of_two(runner, names[one], names[other])

        tries = StatementTries(runner, request.lookups)
        self.read: PieceReader = CellEvidence(self.pieces, self._columns, tries, ends, self._codes)

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return the numbers of the cells of each type, by the column, and its records."""
        for first in range(0, self._n.size, _TYPES_AT_ONCE):
            some = slice(first, first + _TYPES_AT_ONCE)
            if self._n[some].any():
                yield {place: own[some] for place, own in self._codes.items()}, self._n[some]

    def column(self, name: str) -> KnownColumn:
        """Return what is known of the cells of one column."""
        own = self._columns[self.pieces.places[name]]
        return TriedColumn(name, own, StatementTries(self._runner, ()))


_TYPES_AT_ONCE: Final = 1 << 16
