"""Reads the types of records from a publication's store of codes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from kanon_db.algorithms.ground import arrays
from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers.likelihoods import apart_from_required, least_unknown, names_of
from kanon_db.answers.rows.cell_evidence import MOST_COMBINED, CellEvidence, TriedColumn, distinct
from kanon_db.answers.rows.pieces import Pieces
from kanon_db.catalog.entries import Publication
from kanon_db.catalog.published_types import cell_layout, read_estimator
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InfeasibleError
from kanon_db.publications.codes import SIZES_OF_CLASSES
from kanon_db.publications.rows.cell_columns import (
    Flags,
    KnownCells,
    NotReadError,
    RangeColumn,
)
from kanon_db.publications.rows.stored_cells import PublicationReader, StoredCells
from kanon_db.query import expressions as ex
from kanon_db.query.layout import CellLayout
from kanon_db.query.sql import EVERYBODY, Request
from kanon_db.session.protocol import Session
from kanon_db.transfer.tries import (
    TRUE,
    ColumnValues,
    Combinations,
    Fetcher,
    StatementTries,
    Truth,
)

if TYPE_CHECKING:
    from kanon_db.metrics.count_queries import CountQuery
    from kanon_db.publications.codes import Store
    from kanon_db.publications.kind import AttackTarget, Usefulness
    from kanon_db.transfer.values import DistinctValues

_COLUMN_BYTES: Final = 5_000_000
"""What a column of a chunk takes, as it is read and as numbers, rounded up."""

_FEW: Final = 1 << 16
"""So many values of a column are tried, whether the records that are asked for have them or not."""

_Codes = dict[str, IntArray]
"""The codes of classes, or of rows, by the names of columns."""


class StatementRunner(Fetcher, Protocol):
    """What reads published relations for a query."""

    @property
    def session(self) -> Session:
        """Runs statements."""

    @property
    def store(self) -> Store:
        """The codes of its cells."""

    @property
    def known_cells(self) -> dict[str, KnownCells]:
        """What was read of the stored cells of columns."""


class StoredTypes:
    """:class:`~kanon_db.answers.rows.cell_evidence.KnownTypes` of a store of codes.

    Only records that meet what columns with known values decide alone are read. Where a calculation
    may fail, or a column has many values, only cells of these records are tried.
    """

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
        self._runner, self._layout, self._room = runner, layout, room
        self._store = runner.store
        rest, required = apart_from_required(request, layout, also)
        pieces = Pieces.of(rest, layout, also, lists_values=lists_values)
        least = least_unknown(names_of(request), layout)  # Of all columns, not only the rest's
        self.pieces = replace(pieces, least_unknown=least)
        self._met: _Codes = {}  # The codes that are read, of columns with fewer
        # What was read to find these, all of it and not yet numbered, if there is room
        self._kept: list[tuple[_Codes, FloatArray]] | None = None
        self._columns: dict[int, KnownCells] = {}
        self._sizes: dict[int, int] = {}
        self._tries = StatementTries(runner, request.lookups)
        self._wanted: list[tuple[Combinations, Callable[[], Truth]]] = []
        self._joint: list[tuple[Combinations, ex.Expression]] = []  # Tried chunk by chunk
        for part in required:
            of = Combinations({n: _values(self._store, n) for n in sorted(ex.attributes(part))})
            if len(of.domains) > 1 and of.n > MOST_COMBINED:
                self._joint.append((of, part))
            else:
                self._wanted.append((of, self._tries.want_truth(part, of)))
        self.read = self._evidence()

    def column(self, name: str) -> TriedColumn:
        """Return what is known of the cells of one column."""
        own = self._columns[self.pieces.places[name]]
        return TriedColumn(name, own, StatementTries(self._runner, ()))

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return the numbers of the cells of each type, by the column, and its records."""
        for numbers, n in self._numbers(self.pieces.places):
            yield self._together(numbers, n)

    def _numbers(self, names: Collection[str]) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return what :meth:`_types` does, as the numbers of cells by the numbers of columns."""
        types = self._types(names) if self._kept is None else self._kept
        for codes, n in types:
            yield {self.pieces.places[name]: self._number(name, codes[name]) for name in names}, n

    def _types(self, names: Collection[str]) -> Iterator[tuple[_Codes, FloatArray]]:
        """Read the codes of classes, or of rows, that meet what is required, and their records."""
        stored = self._store.columns
        deciding = [of for of, _ in (*self._required, *self._joint)]
        needed = list(dict.fromkeys([*names, *(n for of in deciding for n in of.domains)]))
        has_rows = any(not stored[name].of_classes for name in needed)
        for sizes, written in self._parts(needed):
            every = {name: self._read(name, written) for name in needed}
            class_of_row = np.repeat(np.arange(sizes.size), sizes) if has_rows else None
            chosen = _Chosen(every, class_of_row, slice(None))
            for of, is_met in self._required:
                chosen = chosen.where(_look_up(is_met, of, self._of(chosen, of.domains)))
            for of, part in self._joint:
                chosen = chosen.where(self._try_jointly(of, part, self._of(chosen, of.domains)))
            if not has_rows:
                n = sizes[chosen.at].astype(np.float64)
            elif any(not stored[name].of_classes for name in names):
                n = np.ones(chosen.classes.size)
            else:  # only what is required differs within a class
                n = np.bincount(chosen.classes, minlength=sizes.size).astype(np.float64)
                chosen = _Chosen(every, None, np.flatnonzero(n))
                n = n[chosen.at]
            if n.size:
                yield self._of(chosen, names), n

    def _of(self, chosen: _Chosen, names: Iterable[str]) -> _Codes:
        return {n: chosen.codes(n, of_classes=self._store.columns[n].of_classes) for n in names}

    @cached_property
    def _required(self) -> list[tuple[Combinations, Flags]]:
        """The values that records must have."""
        self._tries.ask()
        return [(of, truth() == TRUE) for of, truth in self._wanted]

    def _try_jointly(self, of: Combinations, part: ex.Expression, codes: _Codes) -> Flags:
        """Find the rows that meet a condition on columns with many values together."""
        sizes = [domain.n for domain in of.domains.values()]
        first, number = distinct(list(codes.values()), sizes)
        met = replace(of, numbers=np.column_stack([own[first] for own in codes.values()]))
        tries = StatementTries(self._runner, ())
        truth = tries.want_truth(part, met)
        tries.ask()
        is_met: Flags = (truth() == TRUE)[number]
        return is_met

    def _find_codes(self, names: Sequence[str]) -> _Codes:
        """Find the codes of columns that are in classes, or rows, that meet what is required."""
        stored, room, is_required = self._store.columns, self._room, self._is_required
        is_met = {n: np.zeros(stored[n].n_values, np.bool_) for n in names if not stored[n].by_ends}
        of_ends = {name: np.empty(0, np.int64) for name in names if name not in is_met}
        kept: list[tuple[_Codes, FloatArray]] = []
        for codes, n in self._types(self.pieces.places if is_required else names) if names else ():
            room -= sum(own.nbytes for own in (*codes.values(), n))
            if room < 0:
                kept.clear()
            elif is_required:
                kept.append((codes, n))
            for name, flags in is_met.items():
                flags[codes[name]] = True
            for name, own in of_ends.items():
                of_ends[name] = arrays.distinct(np.concatenate([own, arrays.distinct(codes[name])]))
        if names and is_required and room >= 0:
            self._kept = kept
        met = {name: np.flatnonzero(flags) for name, flags in is_met.items()}
        return of_ends | {n: own for n, own in met.items() if own.size < stored[n].n_values}

    @property
    def _is_required(self) -> bool:
        return bool(self._wanted or self._joint)

    def _find_met(self, places: Sequence[int]) -> dict[int, IntArray]:
        """Find the combinations of numbers that records have in some columns.

        Raises NotReadError where there is no room for them.
        """
        names = [name for name, place in self.pieces.places.items() if place in places]
        met: dict[int, IntArray] = {p: np.empty(0, dtype=np.int64) for p in places}
        for numbers, _ in self._numbers(names):
            for place, own in numbers.items():
                met[place] = np.append(met[place], own)
            first, _ = distinct(list(met.values()), [self._sizes[place] for place in met])
            met = {place: own[first] for place, own in met.items()}
            if sum(own.nbytes for own in met.values()) > self._room:
                raise NotReadError
        return met

    def _evidence(self) -> CellEvidence:
        """Read the cells, and ask what each of them tells."""
        runner, places, stored = self._runner, self.pieces.places, self._store.columns
        is_part = self._is_required and self.pieces.may_fail
        self._met = self._find_codes(
            [
                name
                for name in places
                if is_part
                or stored[name].by_ends
                or (self._is_required and stored[name].n_values > _FEW)
            ]
        )
        kept = runner.known_cells
        unread = [name for name in places if name in self._met or name not in kept]
        counts = {name: self._count(name) for name in unread if stored[name].has_hidden}
        cells = StoredCells(self._layout, self._store, counts, self._met)
        read = cells.read(runner, unread)
        kept.update({name: own for name, own in read.items() if name not in self._met})
        self._columns = {
            place: _without_lists(read.get(name) or kept[name]) for name, place in places.items()
        }
        self._sizes = {place: column.cells.n.size for place, column in self._columns.items()}
        names = list(places)

        def ends(one: int, other: int) -> tuple[Any, ...]:
            if any(stored[names[place]].by_ends for place in (one, other)):
                return _compare_whole_ends(self._columns[one], self._columns[other])
            return cells.ends_of_two(runner, names[one], names[other])

        return CellEvidence(self.pieces, self._columns, self._tries, ends, self._find_met)

    def _together(
        self, codes: dict[int, IntArray], n: FloatArray
    ) -> tuple[dict[int, IntArray], FloatArray]:
        """Count records with the same cells once, where there is more to do with each."""
        unit = self.pieces.unit
        if not codes:
            return codes, np.array([n.sum()])
        is_single = len(codes) == 1
        has_rows = any(not self._store.columns[name].of_classes for name in self.pieces.places)
        if not (unit.spread or unit.parts or is_single or has_rows):
            return codes, n
        first, number = distinct(list(codes.values()), [self._sizes[p] for p in codes])
        numbers_of_records = np.bincount(number, n, first.size).astype(np.float64, copy=False)
        return {place: numbers[first] for place, numbers in codes.items()}, numbers_of_records

    def _count(self, name: str) -> FloatArray:
        """Count the records that have each cell of a quasi-identifier."""
        n = np.zeros(self._store.columns[name].n_values)
        for sizes, written in self._parts([name]):
            n += np.bincount(self._read(name, written), sizes, n.size)
        return n

    def _number(self, name: str, codes: IntArray) -> IntArray:
        """Return the numbers of cells that are read, by what :meth:`_types` returns."""
        is_numbered = self._store.columns[name].by_ends and self._kept is None
        if name not in self._met or is_numbered:
            return codes
        column, met = self._store.columns[name], self._met[name]
        if column.by_ends or column.n_values > codes.size:
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

    def _parts(self, names: Sequence[str]) -> Iterator[tuple[IntArray, Mapping[str, bytes]]]:
        """Read the sizes of classes, and the codes of columns: chunks, or where room is few, less.

        A class may be divided.
        """
        if sum(chunk.n_records for chunk in self._store.chunks) != self._layout.n_rows:
            raise self._runner.changed()
        stored = self._store.columns
        n_parts = -(-len(names) * _COLUMN_BYTES // self._room)
        for chunk in self._store.chunks:
            self._runner.session.heartbeat()
            written = self._store.codes(chunk, ["", *names])
            sizes = np.frombuffer(written[""], SIZES_OF_CLASSES.dtype).astype(np.int64)
            if int(sizes.sum()) != chunk.n_records:
                raise self._runner.changed()
            if n_parts <= 1:
                yield sizes, written
                continue
            ends, at_once = np.cumsum(sizes), max(chunk.n_records // n_parts, 1)
            for first in range(0, chunk.n_records, at_once):
                last = min(first + at_once, chunk.n_records)
                start, stop = np.searchsorted(ends, [first, last - 1], "right")
                some = slice(start, stop + 1)
                own = np.minimum(ends[some], last) - np.maximum(ends[some] - sizes[some], first)
                part = {}
                for name in names:
                    width = stored[name].dtype.itemsize
                    low, high = (start, stop + 1) if stored[name].of_classes else (first, last)
                    part[name] = written[name][low * width : high * width]
                yield own, part


def answer_from_rows(
    target: AttackTarget,
    columns: Sequence[DistinctValues],
    sensitive: DistinctValues | None,
    queries: Sequence[CountQuery],
) -> Usefulness:
    """Answer queries about published rows; see :func:`.measure_usefulness`."""
    # A session's first question does without what sets rows against their source.
    from kanon_db.publications.rows.published_rows import (
        TypedColumn,
        answer_from_types,
        match_cells,
    )

    session, publication = target.session, target.publication
    reader = PublicationReader.of(session, target.schema, publication)
    layout = cell_layout(session, target.schema, publication, read_estimator(session))
    every = [*columns, *([] if sensitive is None else [sensitive])]
    names = [values.column.name for values in every]
    session.step("reading the published rows")
    try:
        types = StoredTypes(
            reader, EVERYBODY, layout, names, target.room.memory // 4, lists_values=False
        )
    except NotReadError:
        raise _too_many(publication) from None
    known = [
        TypedColumn(match_cells(types.column(name).cells, values), types.pieces.places[name])
        for name, values in zip(names, every, strict=True)
    ]
    session.step("answering the queries")
    own = known[: len(columns)]
    last = None if sensitive is None else known[-1]
    return answer_from_types(types.all(), own, last, queries, layout, session.heartbeat)


def _too_many(publication: Publication) -> InfeasibleError:
    return InfeasibleError(
        "reading needs more room than it may have",
        detail=f'the rows of publication "{publication.name}"',
        hint="publish fewer quasi-identifiers; an administrator can change the settings in"
        " kanon.setting",
    )


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Some rows of a chunk, or without rows, some classes."""

    every: _Codes  # The codes of all classes, or rows, that the chunk has
    class_of_row: IntArray | None
    at: IntArray | slice

    @property
    def classes(self) -> IntArray:
        """The class of each row."""
        if self.class_of_row is None:
            raise TypeError("there are no rows")
        return self.class_of_row[self.at]

    def codes(self, name: str, *, of_classes: bool) -> IntArray:
        """Return the codes of a column."""
        at = self.classes if of_classes and self.class_of_row is not None else self.at
        return self.every[name][at]

    def where(self, is_met: Flags | bool) -> _Chosen:
        """Leave out those for which a condition does not hold."""
        if isinstance(is_met, bool):
            return self if is_met else replace(self, at=slice(0))
        at = np.flatnonzero(is_met) if isinstance(self.at, slice) else self.at[is_met]
        return replace(self, at=at)


def _values(store: Store, name: str) -> ColumnValues:
    text = store.values(name)
    return ColumnValues(lambda _: text, store.columns[name].n_values)


def _without_lists(column: KnownCells) -> KnownCells:
    """Keep no list of values longer than one request needs it."""
    return replace(column, _listings={}) if isinstance(column, RangeColumn) else column


def _look_up(is_met: Flags, of: Combinations, codes: _Codes) -> Flags | bool:
    """Tell which rows, or classes, have a combination of values that is met."""
    if not codes:  # one truth for all
        return bool(is_met.all())
    number = np.zeros(1, dtype=np.int64)
    for name, domain in of.domains.items():
        number = number * domain.n + codes[name]
    return is_met[number]


def _compare_whole_ends(one: KnownCells, other: KnownCells) -> tuple[Any, ...]:
    """Return the places of ends as :meth:`StoredCells.ends_of_two`, of whole numbers.

    Raises NotReadError where the others are continuous: there are too many ranges to compare them.
    """
    if not isinstance(one, RangeColumn) or not isinstance(other, RangeColumn):
        raise TypeError("two columns of ranges are compared")
    if not one.cell.is_discrete or not other.cell.is_discrete:
        raise NotReadError
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
