"""Reads the types of records: from a publication's store of codes, or from its view."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.ground import arrays
from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers.likelihoods import apart_from_required
from kanon_db.answers.rows.cell_columns import Cells, Flags, KnownCells, RangeColumn, RangeEnds
from kanon_db.answers.rows.cell_evidence import MOST_COMBINED, CellEvidence, TriedColumn, distinct
from kanon_db.answers.rows.cell_relations import CellRelations, StatementRunner
from kanon_db.answers.rows.pieces import Pieces
from kanon_db.answers.tries import TRUE, ColumnValues, Combinations, StatementTries
from kanon_db.catalog.entries import changed
from kanon_db.publications.codes import SIZES_OF_CLASSES
from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import ANY_END, BEGINS, may_fail, place_of
from kanon_db.query.layout import CellLayout
from kanon_db.query.sql import Request

if TYPE_CHECKING:
    from kanon_db.publications.codes import Store

_COLUMN_BYTES: Final = 5_000_000
"""What a column of a chunk takes, as it is read and as numbers, rounded up."""


def read_types(
    runner: StatementRunner,
    request: Request,
    layout: CellLayout,
    also: Sequence[str],
    room: int,
    *,
    lists_values: bool,
) -> StoredTypes | ViewTypes:
    """Read types from the store, if it has the codes of all columns, and else from the view."""
    pieces = Pieces.of(request, layout, also, lists_values=lists_values)
    if _has_codes(runner, pieces, layout) and len(pieces.places) * _COLUMN_BYTES <= room:
        return StoredTypes(runner, request, layout, pieces, room)
    return ViewTypes(runner, request, layout, also, room, lists_values=lists_values)


def _has_codes(runner: StatementRunner, pieces: Pieces, layout: CellLayout) -> bool:
    """Whether the store has all that is needed; ends of ranges are compared as whole numbers."""
    if not layout.coded or not layout.coded >= pieces.places.keys():
        return False
    names, stored = list(pieces.places), runner.store.columns
    compared = [places for unit in pieces.unit.all() for places in unit.compared.values()]
    return all(
        all(layout.cells[names[place]].is_discrete for place in places)
        for places in compared
        if any(stored[names[place]].by_ends for place in places)
    )


class StoredTypes:
    """:class:`~kanon_db.answers.rows.cell_evidence.KnownTypes` of a store of codes.

    Where a calculation may fail, only cells of records that meet the other conditions are tried.
    """

    def __init__(
        self,
        runner: StatementRunner,
        request: Request,
        layout: CellLayout,
        pieces: Pieces,
        room: int,
    ) -> None:
        self._runner, self._request, self._layout = runner, request, layout
        self._store, self.pieces = runner.store, pieces
        places, stored = pieces.places, self._store.columns
        self._of_classes = {name: at for name, at in places.items() if stored[name].of_classes}
        self._of_rows = {n: place for n, place in places.items() if n not in self._of_classes}
        self._needs_all = bool(layout.left_out or pieces.marked)
        self._met: dict[str, IntArray] = {}  # The codes that are read, of columns with fewer
        # What was read to find these, all of it and not yet numbered, if there is room
        self._kept: list[tuple[dict[str, IntArray], FloatArray]] | None = None
        self._columns: dict[int, KnownCells] = {}
        self._required = self._require()
        self._sizes: dict[int, int] = {}
        self.read = self._evidence(room)

    def column(self, name: str) -> TriedColumn:
        """Return what is known of the cells of one column."""
        own = self._columns[self.pieces.places[name]]
        return TriedColumn(name, own, StatementTries(self._runner, ()))

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return the numbers of the cells of each type, by the column, and its records."""
        for numbers, n in self._numbers(self.pieces.places, self._require_rows):
            yield self._together(numbers, n)

    def _numbers(
        self, names: Collection[str], keep: Callable[[Mapping[str, IntArray]], Any] | None = None
    ) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return what :meth:`_types` does, as the numbers of cells by the numbers of columns."""
        types = self._types(names, keep) if self._kept is None else self._kept
        for codes, n in types:
            yield {self.pieces.places[name]: self._number(name, codes[name]) for name in names}, n

    def _types(
        self, names: Collection[str], keep: Callable[[Mapping[str, IntArray]], Any] | None = None
    ) -> Iterator[tuple[dict[str, IntArray], FloatArray]]:
        """Read the codes of classes, or of rows, that meet what is required, and their records.

        `keep`: finds the rows that are needed; None for all.
        """
        needed = dict.fromkeys([*names, *(n for of, _ in self._required for n in of.domains)])
        for sizes, written in self._chunks(list(needed)):
            codes = {name: self._read(name, written) for name in needed if name in self._of_classes}
            n = sizes.astype(np.float64)
            codes_of_rows = {
                name: self._read(name, written) for name in needed if name in self._of_rows
            }
            if codes_of_rows:
                class_of_row = np.repeat(np.arange(sizes.size), sizes)
                met = None if keep is None else keep(codes_of_rows)
                if met is not None:
                    class_of_row = class_of_row[met]
                    codes_of_rows = {p: numbers[met] for p, numbers in codes_of_rows.items()}
                codes = {name: numbers[class_of_row] for name, numbers in codes.items()}
                codes |= codes_of_rows
                n = np.ones(class_of_row.size)
            for of, is_met in self._required:
                # What is about no column is one truth for all.
                chosen = np.broadcast_to(is_met[_combine(of, codes)], n.shape)
                codes, n = {name: own[chosen] for name, own in codes.items()}, n[chosen]
            if n.size:
                yield {name: codes[name] for name in names}, n

    def _require(self) -> list[tuple[Combinations, Flags]]:
        """Find which values records must have for a calculation that may fail to be tried."""
        if not self.pieces.may_fail:
            return []
        _, required = apart_from_required(self._request, self._layout, self.pieces.places)
        tries, truths = StatementTries(self._runner, ()), []
        for part in required:
            columns = [self._store.columns[name] for name in sorted(ex.attributes(part))]
            of = Combinations({c.name: _values(self._store, c.name) for c in columns})
            if of.n <= MOST_COMBINED and not may_fail(part):
                truths.append((of, tries.want_truth(part, of)))
        tries.ask()
        return [(of, truth() == TRUE) for of, truth in truths]

    def _find_codes(self, names: Sequence[str], room: int) -> dict[str, IntArray]:
        """Find the codes of columns that are in classes, or rows, that meet what is required."""
        stored, of_chunks = self._store.columns, [{name: np.empty(0, np.int64) for name in names}]
        kept: list[tuple[dict[str, IntArray], FloatArray]] = []
        for codes, n in self._types(names) if names else ():
            room -= sum(own.nbytes for own in (*codes.values(), n))
            kept = [*kept, (codes, n)] if room >= 0 else []
            of_chunks.append(
                {
                    name: arrays.distinct(own)
                    if stored[name].by_ends
                    else np.bincount(own).nonzero()[0]
                    for name, own in codes.items()
                }
            )
        if self._required and room >= 0:
            self._kept = kept
        met = {
            name: arrays.distinct(np.concatenate([own[name] for own in of_chunks]))
            for name in names
        }
        return {
            name: own
            for name, own in met.items()
            if stored[name].by_ends or own.size < stored[name].n_values
        }

    def _find_met(self, places: Sequence[int]) -> dict[int, IntArray]:
        """Find the combinations of numbers that records have in some columns."""
        names = [name for name, place in self.pieces.places.items() if place in places]
        met: dict[int, IntArray] = {p: np.empty(0, dtype=np.int64) for p in places}
        for numbers, _ in self._numbers(names):
            for place, own in numbers.items():
                met[place] = np.append(met[place], own)
            first, _ = distinct(list(met.values()), [self._sizes[place] for place in met])
            met = {place: own[first] for place, own in met.items()}
        return met

    def _evidence(self, room: int) -> CellEvidence:
        """Read the cells, and ask what each of them tells."""
        runner, places = self._runner, self.pieces.places
        stored = self._store.columns
        self._met = self._find_codes(
            [name for name in places if stored[name].by_ends or self._required], room
        )
        counts = {name: self._count(name) for name in places if stored[name].has_hidden}
        relations = CellRelations(self._layout, self._store, counts=counts, met=self._met)
        numbered = [name for name in places if not stored[name].by_ends]
        kept: dict[str, KnownCells] = {} if self._required else runner.known_cells
        kept |= relations.read(runner, [name for name in numbered if name not in kept])
        self._columns = {places[name]: _without_lists(kept[name]) for name in numbered}
        for name in places:
            if stored[name].by_ends:
                self._columns[places[name]] = self._range_cells(name)
        self._sizes = {place: column.cells.n.size for place, column in self._columns.items()}
        names = list(places)

        def ends(one: int, other: int) -> tuple[Any, ...]:
            if any(stored[names[place]].by_ends for place in (one, other)):
                return _compare_whole_ends(self._columns[one], self._columns[other])
            return relations.ends_of_two(runner, names[one], names[other])

        tries = StatementTries(runner, self._request.lookups)
        return CellEvidence(self.pieces, self._columns, tries, ends, self._find_met)

    def _range_cells(self, name: str) -> KnownCells:
        """Find the distinct ranges of a column of which each class has the ends."""
        cell = self._layout.cells[name]
        place = place_of(cell.column.type, "lower(t.v)")
        (row,) = self._runner.fetch(
            f"SELECT ({place})::int8 AS low, (upper(t.v) - lower(t.v))::int8 AS n"
            f" FROM ({self._store.values(name)}) AS t"
        )
        codes = self._met[name]
        low, end = codes >> BEGINS, codes & ((1 << BEGINS) - 1)
        is_null, is_anything = codes == 0, codes == ANY_END
        least, n_values = row["low"], row["n"]
        if least is None or n_values is None:
            raise changed(self._runner.publication)
        is_range = (low < end) & (low >= 0) & (end <= n_values)
        if not (is_range | is_null | is_anything).all():
            raise changed(self._runner.publication)
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

    def _require_rows(self, codes: Mapping[str, IntArray]) -> Any:
        """Find the rows that meet what only columns with known values decide; None for all."""
        condition = self.pieces.unit.condition
        if self._needs_all or condition is None or self._required:
            return None
        parts = condition.parts if isinstance(condition, ex.And) else (condition,)
        met = None
        for part in parts:
            places = self.pieces.unit.by_value.get(part, ())
            names = [name for name, place in self.pieces.places.items() if place in places]
            if places and all(name in codes for name in names) and places not in self.read.met:
                number: Any = 0
                for name, place in zip(names, places, strict=True):
                    number = number * self.read.n_values[place] + codes[name]
                one = self.read.tried(part).surely[number]
                met = one if met is None else met & one
        return met

    def _count(self, name: str) -> FloatArray:
        """Count the records that have each cell of a quasi-identifier."""
        n = np.zeros(self._store.columns[name].n_values)
        for sizes, written in self._chunks([name]):
            n += np.bincount(self._read(name, written), sizes, n.size)
        return n

    def _number(self, name: str, codes: IntArray) -> IntArray:
        """Return the numbers of cells that are read, by what :meth:`_types` returns."""
        is_numbered = self._store.columns[name].by_ends and self._kept is None
        if name not in self._met or is_numbered:
            return codes
        column, met = self._store.columns[name], self._met[name]
        if column.by_ends:
            return np.searchsorted(met, codes)
        places = np.zeros(column.n_values, dtype=np.int64)
        places[met] = np.arange(met.size)
        return places.take(codes)

    def _read(self, name: str, written: Mapping[str, bytes]) -> IntArray:
        """Read codes; of a column by its ends their numbers, once these are known."""
        column = self._store.columns[name]
        codes = np.frombuffer(written[name], column.dtype).astype(np.int64)
        is_known = column.by_ends and name in self._met
        return np.searchsorted(self._met[name], codes) if is_known else codes

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
        self.read = CellEvidence(
            self.pieces, self._columns, tries, ends, lambda _: self._codes, has_types=True
        )

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return the numbers of the cells of each type, by the column, and its records."""
        for first in range(0, self._n.size, _TYPES_AT_ONCE):
            some = slice(first, first + _TYPES_AT_ONCE)
            if self._n[some].any():
                yield {place: own[some] for place, own in self._codes.items()}, self._n[some]

    def column(self, name: str) -> TriedColumn:
        """Return what is known of the cells of one column."""
        own = self._columns[self.pieces.places[name]]
        return TriedColumn(name, own, StatementTries(self._runner, ()))


_TYPES_AT_ONCE: Final = 1 << 16


def _values(store: Store, name: str) -> ColumnValues:
    text = store.values(name)
    return ColumnValues(lambda _: text, store.columns[name].n_values)


def _without_lists(column: KnownCells) -> KnownCells:
    """Keep no list of values longer than one request needs it."""
    return replace(column, _listings={}) if isinstance(column, RangeColumn) else column


def _combine(of: Combinations, codes: Mapping[str, IntArray]) -> IntArray:
    """Return the number of the combination of values that each class or row has."""
    number = np.zeros(1, dtype=np.int64)
    for name, domain in of.domains.items():
        number = number * domain.n + codes[name]
    return number


def _compare_whole_ends(one: KnownCells, other: KnownCells) -> tuple[Any, ...]:
    """Return the places of ends as :meth:`CellRelations.ends_of_two`, of whole numbers."""
    if not isinstance(one, RangeColumn) or not isinstance(other, RangeColumn):
        raise TypeError("two columns of ranges are compared")
    sides = [own.ends for own in (one, other)]
    ends = [
        np.where(own.is_null | is_open, _NOWHERE, end)
        for own in sides
        for end, is_open in ((own.low, own.from_all), (own.high, own.to_all))
    ]
    ordered = np.unique(np.concatenate([[_NOWHERE], *ends]))
    return (*(np.searchsorted(ordered, end) for end in ends), *(~own.is_null for own in sides))


_NOWHERE: Final = -(1 << 62)
"""Below all places of ends."""
