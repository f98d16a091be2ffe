"""Answers many count queries about rows at once, by what each cell tells of their conditions.

Each is answered as a question on its own would be. It asks for values of the source; where cells
are ranges, for the numbers from such a value up to the next one that the source has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import BoolArray, FloatArray, IntArray
from kanon_db.answers.rows.cell_columns import (
    Cover,
    KnownCells,
    NotReadError,
    RangeColumn,
    SetColumn,
    ValueColumn,
)
from kanon_db.answers.rows.stored_types import StoredTypes
from kanon_db.answers.scope import cell_layout
from kanon_db.answers.tries import FALSE, TRUE, AxisCut
from kanon_db.catalog.entries import Publication
from kanon_db.errors import InfeasibleError, SchemaMismatchError
from kanon_db.metrics.count_queries import CountQuery
from kanon_db.publications.codes import CodeTables, Store
from kanon_db.publications.kind import AttackTarget, Usefulness
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Query
from kanon_db.query.layout import CellLayout
from kanon_db.query.ranges import place_of
from kanon_db.query.sql import Constants, Request
from kanon_db.session.protocol import Row, Session, fetch_one
from kanon_db.session.protocol import Value as Bound
from kanon_db.transfer.columns import fix_labels, label, text_in_set
from kanon_db.transfer.values import DistinctValues, match_values, read_numbers


class AskedColumn(Protocol):
    """A column of rows whose values queries name by their codes in the source."""

    @property
    def n_values(self) -> int:
        """How many values the source has."""

    def likely(self, matching: BoolArray) -> FloatArray:
        """Return the share of each cell's records whose value matches, given which values do."""

    def covered(self) -> IntArray:
        """Return how many values of the source each cell covers."""


@dataclass(frozen=True, eq=False)
class AskedValues:
    """An :class:`AskedColumn` of values or sets."""

    cells: ValueColumn | SetColumn
    codes: IntArray  # (n,): the source's code of each value that they stand for; -1 for none
    n_values: int

    def likely(self, matching: BoolArray) -> FloatArray:
        """Return the share of each cell's records whose value matches."""
        return self.cells.truths(np.where(np.append(matching, False)[self.codes], TRUE, FALSE)).true

    def covered(self) -> IntArray:
        """Return how many values of the source each cell covers."""
        own, is_known = self.cells, self.codes >= 0
        if isinstance(own, SetColumn):
            is_known = is_known[own.members]
            n = np.bincount(own.of_cell[is_known], minlength=own.cells.n.size)
        else:
            n = is_known.astype(np.int64)
        return np.where(own.cells.hidden, self.n_values, n)


@dataclass(frozen=True, eq=False)
class AskedNumbers:
    """An :class:`AskedColumn` of ranges."""

    cells: RangeColumn
    places: NDArray[Any]  # Where the source's values, but for NULL, lie on the axis; ascending
    n_values: int

    def likely(self, matching: BoolArray) -> FloatArray:
        """Return the share of each cell's records whose number matches."""
        cut = self._cut(matching)
        return self.cells.truths(Cover(self.cells, lambda: cut)).true

    def covered(self) -> IntArray:
        """Return how many values of the source each cell covers."""
        ends = self.cells.ends
        low, high = (ends.low, ends.high) if ends.at is None else (
            ends.coordinates(ends.low), ends.coordinates(ends.high)
        )  # fmt: skip
        first = np.where(ends.from_all, 0, np.searchsorted(self.places, low, "left"))
        end = np.searchsorted(self.places, high, "right")
        n = np.where(ends.to_all, self.places.size, end) - first
        n = np.where(ends.is_null, 1, np.where(ends.anything, self.n_values, n))
        return n.astype(np.int64)

    def _cut(self, matching: BoolArray) -> AxisCut:
        """Cut the axis before each value that matches unlike the one before it."""
        n = self.places.size
        is_in = np.concatenate([[False], matching[:n], [False]])
        start, end = (
            np.flatnonzero(~is_in[:-1] & is_in[1:]),
            np.flatnonzero(is_in[:-1] & ~is_in[1:]),
        )
        null = TRUE if matching[n:].any() else FALSE
        to_all = bool(n and matching[n - 1])
        if self.cells.ends.at is None:
            last = np.append(self.places, _FAR)[end] - 1
            none = np.empty(0, dtype=np.int64)
            return AxisCut(self.places[start], last, False, to_all, null, none, none > 0)
        last = np.append(self.places, np.inf)[end]
        numbers, code = self._asked
        n_below = np.searchsorted(last, numbers, "right")
        return AxisCut(self.places[start], last, False, to_all, null, n_below, is_in[code])

    @cached_property
    def _asked(self) -> tuple[FloatArray, IntArray]:
        """The ends and points of continuous ranges, and how many values are not above each."""
        ends, axis = self.cells.ends, self.cells.axis
        points = [] if axis is None else [np.asarray(axis.points)]
        numbers = np.concatenate([*([] if ends.at is None else [ends.at]), *points])
        return numbers, np.searchsorted(self.places, numbers, "right")


_FAR: Final = 1 << 61
"""Beyond all whole numbers of an axis."""


class TypedColumn(NamedTuple):
    """A column that types of records are told apart by."""

    asked: AskedColumn
    place: int  # Its number among the types


Types = Iterable[tuple[Mapping[int, IntArray], FloatArray]]
"""The number of each type's cell, by the number of the column, and its records; part by part."""


def answer_from_types(
    types: Types,
    columns: Sequence[TypedColumn],  # the quasi-identifiers, in the order of the queries
    sensitive: TypedColumn | None,
    queries: Sequence[CountQuery],
    layout: CellLayout,
    heartbeat: Callable[[], None],
) -> Usefulness:
    """Answer queries, and measure what is lost of each quasi-identifier.

    Its loss is the mean of (n - 1) / (N - 1) over all records, where a record's cell covers n of
    the N values; a record without a row loses 1.
    """
    counts, losses = np.zeros(len(queries)), np.zeros(len(columns))
    lost = [np.clip((own.covered() - 1) / max(own.n_values - 1, 1), 0, 1) for own, _ in columns]
    for cells, n in types:
        losses += [own[cells[place]] @ n for own, (_, place) in zip(lost, columns, strict=True)]
        for at, query in enumerate(queries):
            heartbeat()
            matching = [(columns[a], mask) for a, mask in query.quasi_identifiers.items()]
            if sensitive is not None:
                matching.append((sensitive, query.sensitive))
            expected = n.copy()
            for (own, place), mask in matching:
                expected *= own.likely(mask).take(cells[place])
            counts[at] += expected.sum() if sensitive is not None or query.sensitive[0] else 0.0
    n_records = max(layout.n_rows + layout.left_out, 1)
    # Records that are left out are as likely to match as the others.
    counts *= n_records / max(layout.n_rows, 1)
    return Usefulness(counts, (losses + layout.left_out) / n_records)


class StagedRows(NamedTuple):
    """What reads the relations of a publication that may not be entered in the catalog yet."""

    session: Session
    publication: Publication
    store: Store
    known_cells: dict[str, KnownCells]

    def fetch(self, statement: str, *values: Bound) -> list[Row]:
        """Run a statement."""
        return self.session.fetch(statement, *values)

    def stream(self, n: int, statement: str, *values: Bound) -> Iterator[Row]:
        """Run a statement, and keep only `n` of its rows at a time."""
        return self.session.stream(n, statement, *values)


def answer_from_rows(
    target: AttackTarget,
    columns: Sequence[DistinctValues],
    sensitive: DistinctValues | None,
    queries: Sequence[CountQuery],
) -> Usefulness:
    """Answer queries about published rows; see :func:`.measure_usefulness`."""
    session, publication = target.session, target.publication
    tables = CodeTables.of(session, target.schema, publication.name, publication.layout)
    reader = StagedRows(session, publication, Store(session, tables), {})
    layout = cell_layout(session, target.schema, publication)
    every = [*columns, *([] if sensitive is None else [sensitive])]
    names = [values.column.name for values in every]
    count = Request(Query(None, (), ()), ex.Aggregate("count", None))
    session.step("reading the published rows")
    try:
        types = StoredTypes(
            reader, count, layout, names, target.room.memory // 4, lists_values=False
        )
    except NotReadError:
        raise _too_many(publication) from None
    known = [
        TypedColumn(_match_cells(types.column(name).cells, values), types.pieces.places[name])
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


def _match_cells(cells: KnownCells, values: DistinctValues) -> AskedColumn:
    """Find the source's values among those that cells may stand for."""
    session, n_values = values.session, len(values.labels)
    if isinstance(cells, RangeColumn):
        return AskedNumbers(cells, _places(cells, values), n_values)
    if not isinstance(cells, ValueColumn | SetColumn):
        raise TypeError("cells are values, sets or ranges")
    constants, matches = Constants(), None
    if isinstance(cells, SetColumn):  # whose texts are compared as they are
        shown, own = (text_in_set(values.column, one) for one in (label("s.v"), "d.label"))
        matches = f'{shown} COLLATE "C" = {own} COLLATE "C"'
    written = cells.domain.write(constants)
    with fix_labels(session):
        codes = match_values(values, written, *constants.bound, matches=matches)
    return AskedValues(cells, codes, n_values)


def _places(cells: RangeColumn, values: DistinctValues) -> NDArray[Any]:
    """Find where the source's values lie on the axis of ranges."""
    type_ = cells.cell.column.type
    place = place_of(type_, f"d.value::{type_.name}")
    if read_numbers(values) is None or place is None:
        raise SchemaMismatchError(
            "the source's values have changed since they were published",
            detail=f'column "{values.column.name}" was published as ranges',
            hint="publish again with replace => true",
        )
    size = "int8" if cells.ends.at is None else "float8"
    row = fetch_one(
        values.session,
        f"SELECT string_agg({size}send(({place})::{size}), ''::bytea ORDER BY d.code) AS places"
        f" FROM {values.table} AS d WHERE num_nulls(d.value) = 0",
    )
    read = np.frombuffer(row["places"] or b"", f">{size[0]}8")
    return read.astype(np.int64 if size == "int8" else np.float64)
