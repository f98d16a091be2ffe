"""Reads the types of records: from a publication's store of codes, or from its view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from kanon_db.publications.codes import SIZES_OF_CLASSES
from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import ANY_END, BEGINS, place_of
from kanon_db.query.layout import CellLayout
from kanon_db.query.likelihoods import apart_from_required
from kanon_db.query.sql import Request

_COLUMN_BYTES: Final = 5_000_000
"""What a column of a chunk takes, as it is read and as numbers, rounded up."""


class StoredTypes:
    """:class:`~kanon_db.answers.rows.evidence.KnownTypes` of a store of codes."""

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
        self._runner, self._request, self._layout = runner, request, layout
        self._store = runner.store
        self.pieces = Pieces.of(request, layout, also, lists_values=lists_values)
        places = self.pieces.places
        if len(places) * _COLUMN_BYTES > room:
            raise NotReadError
        self._of_classes = {
            name: place for name, place in places.items() if self._store.columns[name].of_classes
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
        for sizes, written in self._chunks(list(self.pieces.places)):
            codes = {
                place: self._numbers(name, written) for name, place in self._of_classes.items()
            }
            n = sizes.astype(np.float64)
            if self._of_rows:
                codes_of_rows = {
                    place: self._numbers(name, written) for name, place in self._of_rows.items()
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

    def _evidence(self) -> CellEvidence:
        """Read the cells, and ask; arithmetic may fail on values that no record has together."""
        runner, places = self._runner, self.pieces.places
        stored = self._store.columns
        counts = {name: self._count(name) for name in places if stored[name].has_hidden}
        relations = CellRelations(self._layout, self._store, counts=counts)
        numbered = [name for name in places if not stored[name].by_ends]
        columns = {
            places[name]: column for name, column in relations.read(runner, numbered).items()
        }
        for name in places:
            if stored[name].by_ends:
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
        cell = self._layout.cells[name]
        place = place_of(cell.column.type, "lower(t.v)")
        (row,) = self._runner.fetch(
            f"SELECT ({place})::int8 AS low, (upper(t.v) - lower(t.v))::int8 AS n"
            f" FROM ({self._store.values(name)}) AS t"
        )
        of_chunks = [np.unique(self._read(name, written)) for _, written in self._chunks([name])]
        codes = np.unique(np.concatenate(of_chunks or [np.empty(0, dtype=np.int64)]))
        low, end = codes >> BEGINS, codes & ((1 << BEGINS) - 1)
        is_null, is_anything = codes == 0, codes == ANY_END
        least, n_values = row["low"], row["n"]
        if least is None or n_values is None:
            raise changed(self._runner.publication)
        is_range = (low < end) & (low >= 0) & (end <= n_values)
        if not (is_range | is_null | is_anything).all():
            raise changed(self._runner.publication)
        self._ended[name] = codes
        none = np.zeros(codes.size, dtype=np.bool_)
        ends = RangeEnds(least + low, least + end - 1, is_null, is_anything, is_anything)
        cells = Cells(np.ones(codes.size), np.ones(codes.size), none, is_anything, is_anything)
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

    def _count(self, name: str) -> FloatArray:
        """Count the records that have each cell of a quasi-identifier."""
        n = np.zeros(self._store.columns[name].n_values)
        for sizes, written in self._chunks([name]):
            n += np.bincount(self._read(name, written), sizes, n.size)
        return n

    def _numbers(self, name: str, written: Mapping[str, bytes]) -> IntArray:
        codes = self._read(name, written)
        if name in self._ended:
            return np.searchsorted(self._ended[name], codes).astype(np.int64)
        return codes

    def _read(self, name: str, written: Mapping[str, bytes]) -> IntArray:
        return np.frombuffer(written[name], self._store.columns[name].dtype).astype(np.int64)

    def _chunks(self, names: Sequence[str]) -> Iterator[tuple[IntArray, Mapping[str, bytes]]]:
        """Read the sizes of classes, and the codes of columns, chunk by chunk."""
        if sum(chunk.n_records for chunk in self._store.chunks) != self._layout.n_rows:
            raise changed(self._runner.publication)
        for chunk in self._store.chunks:
            written = self._store.codes(chunk, ["", *names])
            sizes = np.frombuffer(written[""], SIZES_OF_CLASSES.dtype).astype(np.int64)
            if int(sizes.sum()) != chunk.n_records:
                raise changed(self._runner.publication)
            yield sizes, written


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
        relations = CellRelations(layout, None, required)
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
