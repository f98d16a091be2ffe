"""Answering from a publication's table of classes; see `kanon_db.counting.type_counts`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from kanon_db.answering.scope import OpenQuery
from kanon_db.counting import expressions as ex
from kanon_db.counting.answers import Estimated
from kanon_db.counting.layout import CellLayout, ClassTable
from kanon_db.counting.writing.numbered_cells import has_pieces
from kanon_db.counting.writing.pieces import PieceWriter
from kanon_db.counting.writing.statements import refuse_continuous_groups
from kanon_db.counting.writing.writer import Request
from kanon_db.errors import UnsupportedQueryError
from kanon_db.publications.examination import changed

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
    from kanon_db.counting.pieces import Pieces
    from kanon_db.counting.read_pieces import ReadPieces
    from kanon_db.counting.type_groups import Counted

Answers = dict[str, tuple[tuple[int, ...], Estimated]]
"""The places of each group's values in their order, and its answer, by its key."""

Block = dict[str, bytes]
"""The numbers of each column, by its name; the sizes of classes have the name ``""``."""

_GROUP_BYTES: Final = 160
"""What a combination of the values of all keys takes."""

_COLUMN_BYTES: Final = 5_000_000
"""What a column of a block takes, as it is read and as numbers, rounded up."""


def count_with_classes(opened: OpenQuery, request: Request) -> Answers | None:
    """Answer one aggregate from the table of classes; None if that is not possible.

    It is if no lookup table is joined, if all columns that are mentioned have numbers, and if the
    combinations of values that the query compares are not too many.

    Raises
    ------
    UnsupportedQueryError
        As the statement would be refused.
    """
    layout = opened.layout
    if not isinstance(layout, CellLayout) or not has_pieces(request, layout):
        return None
    from kanon_db.counting.read_pieces import NotReadError

    refuse_continuous_groups(opened.query, layout)
    try:
        return _answered(opened, request, layout)
    except NotReadError:
        return None


@dataclass(frozen=True, eq=False)
class OfCells:
    """How many records of each group have each cell of a column, if they count.

    Attributes
    ----------
    groups : list of str
        Their keys.
    expected, sure, possible : ndarray of float64, shape (n_groups, n_cells)
    unknown : ndarray of float64, shape (n_groups, n_cells)
        The share of them of which nothing is known.
    is_unknown : bool
        Whether most cells of a column are suppressed.
    together : float
        See `kanon_db.counting.writing.cell_totals`.
    """

    groups: list[str]
    expected: FloatArray
    sure: FloatArray
    possible: FloatArray
    unknown: FloatArray
    is_unknown: bool
    together: float


def count_cells_with_classes(
    opened: OpenQuery, request: Request, name: str, most: int
) -> OfCells | None:
    """Count the records with each cell of a column; None if that is not possible.

    Parameters
    ----------
    opened : OpenQuery
    request : Request
        A count, by conditions and groups that do not mention the column.
    name : str
        The column.
    most : int
        How many cells of all groups there may be.
    """
    layout = opened.layout
    if not isinstance(layout, CellLayout) or not has_pieces(request, layout, (name,)):
        return None
    from kanon_db.counting.read_pieces import NotReadError

    try:
        return _of_cells(opened, request, layout, name, most)
    except NotReadError:
        return None


def _of_cells(
    opened: OpenQuery, request: Request, layout: CellLayout, name: str, most: int
) -> OfCells | None:
    import numpy as np

    from kanon_db.counting.type_groups import TypeCounter

    pieces = PieceWriter(request, layout, (name,)).pieces()
    if not _has_room(opened, pieces):
        return None
    read = _read(opened, pieces)
    counter, place = TypeCounter(pieces, read, opened.session.heartbeat), pieces.places[name]
    n_cells = read.sizes[place]
    if counter.n_groups * n_cells > most:
        return None
    expected, sure, possible, unknown = np.zeros((4, counter.n_groups * n_cells))
    for codes, n in _Types(opened, layout, pieces, read).all():
        opened.session.heartbeat()
        for counted in counter.counted(codes, n):
            own = counted.of(counted.possibly)
            at = own.group * n_cells + codes[place][own.type_]
            expected += np.bincount(at, own.n * own.m, expected.size)
            sure += np.bincount(at, own.n * own.surely, expected.size)
            possible += np.bincount(at, own.n, expected.size)
            np.maximum.at(unknown, at, own.u)
            opened.session.heartbeat()
    shape = counter.n_groups, n_cells
    expected, sure, possible, unknown = (
        one.reshape(shape) for one in (expected, sure, possible, unknown)
    )
    there = np.flatnonzero(possible.any(axis=1))
    names = [key.name for key in request.query.keys]
    groups = [_group_key(names, counter.values(group)[1]) for group in there.tolist()]
    return OfCells(
        groups, expected[there], sure[there], possible[there], unknown[there],
        read.is_unknown(pieces.marked), pieces.together,
    )  # fmt: skip


def sure_cells_with_classes(
    opened: OpenQuery, request: Request, name: str, most: int
) -> list[int] | None:
    """Return the numbers of a column's cells of which some records surely count.

    None if that is not possible; see :func:`count_cells_with_classes`.
    """
    found = count_cells_with_classes(opened, request, name, most)
    if found is None:
        return None
    (numbers,) = found.sure.sum(axis=0).nonzero()
    return [int(number) for number in numbers]


def _has_room(opened: OpenQuery, pieces: Pieces) -> bool:
    """Whether a block of all columns that are mentioned fits into the memory of a query."""
    return len(pieces.places) * _COLUMN_BYTES <= opened.limits.bitmaps


def _read(opened: OpenQuery, pieces: Pieces) -> ReadPieces:
    """Run the statement of the pieces.

    Raises
    ------
    NotReadError
        Also where arithmetic fails on values that no record has together.
    """
    from kanon_db.counting.read_pieces import NotReadError, ReadPieces

    try:
        with opened.session.savepoint():
            rows = opened.fetch(pieces.text, *pieces.bound)
    except UnsupportedQueryError:
        raise NotReadError from None
    parts = {row["piece"]: row["part"] for row in rows}
    return ReadPieces(pieces, parts, {row["piece"]: row["texts"] for row in rows})


def _answered(opened: OpenQuery, request: Request, layout: CellLayout) -> Answers | None:
    from kanon_db.counting.type_groups import TypeCounter
    from kanon_db.counting.type_totals import Totals

    pieces = PieceWriter(request, layout).pieces()
    if not _has_room(opened, pieces):
        return None
    read = _read(opened, pieces)
    counter = TypeCounter(pieces, read, opened.session.heartbeat)
    if counter.n_groups * _GROUP_BYTES > opened.limits.bitmaps:
        return None
    totals = Totals(
        pieces, read, counter.n_groups, layout.left_out, opened.limits.bitmaps,
        is_average=request.aggregate.function == "avg",
    )  # fmt: skip
    types = _Types(opened, layout, pieces, read)
    for codes, n in types.all():
        opened.session.heartbeat()
        totals.add_records(float(n.sum()))
        for counted in counter.counted(codes, n):
            totals.add(counted)
            opened.session.heartbeat()

    def again() -> Iterator[Counted]:
        for codes, n in types.all():
            for counted in counter.counted(codes, n):
                opened.session.heartbeat()
                yield counted

    names = [key.name for key in opened.query.keys]
    found: Answers = {}
    room = opened.limits.text
    most = opened.limits.n_answers if request.most is None else request.most - 1
    if opened.query.keys and totals.n_answers > most:
        raise opened.limits.too_many()
    for number, estimated in totals.answers(again()).items():
        ranks, values = counter.values(number)
        key = _group_key(names, values)
        room -= len(key.encode())
        if room < 0:
            raise opened.limits.too_many()
        found[key] = ranks, estimated
    return found


def _group_key(names: Sequence[str], values: Sequence[str]) -> str:
    """Write an object as the server writes a jsonb: by the lengths of names, and their bytes."""
    by_name = dict(zip(names, values, strict=True))
    ordered = sorted(by_name, key=lambda name: (len(name.encode()), name.encode()))
    written = (f"{json.dumps(name, ensure_ascii=False)}: {by_name[name]}" for name in ordered)
    return f"{{{', '.join(written)}}}"


class _Types:
    """Reads the types of records that a request tells apart."""

    def __init__(
        self, opened: OpenQuery, layout: CellLayout, pieces: Pieces, read: ReadPieces
    ) -> None:
        if layout.classes is None:
            raise TypeError("there is no table of classes")
        self._opened, self._pieces, self._read = opened, pieces, read
        self._classes: ClassTable = layout.classes
        self._of_classes = {
            name: place
            for name, place in pieces.places.items()
            if layout.cells[name].column.sql in layout.view.quasi_identifiers
        }
        self._of_rows = {
            name: place for name, place in pieces.places.items() if name not in self._of_classes
        }
        self._needs_all = bool(layout.left_out or pieces.marked)
        self._n_rows = layout.n_rows

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return the numbers of the cells of each type, by the column, and its records."""
        import numpy as np

        n_rows = 0
        for block in self._blocks():
            written = block.get("", b"")
            if not written or len(written) % 4:
                raise changed(self._opened.publication)
            sizes = np.frombuffer(written, dtype="<u4").astype(np.int64)
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
                met = self._required(codes_of_rows)
                if met is not None:
                    class_of_row = class_of_row[met]
                    codes_of_rows = {p: numbers[met] for p, numbers in codes_of_rows.items()}
                codes = {place: numbers[class_of_row] for place, numbers in codes.items()}
                codes |= codes_of_rows
                n = np.ones(class_of_row.size)
            if n.size:
                yield self._together(codes, n)
        if n_rows != self._n_rows:
            raise changed(self._opened.publication)

    def _together(
        self, codes: dict[int, IntArray], n: FloatArray
    ) -> tuple[dict[int, IntArray], FloatArray]:
        """Count records with the same cells once, where there is more to do with each."""
        import numpy as np

        from kanon_db.counting.type_counts import distinct

        unit = self._pieces.unit
        if not codes:
            return codes, np.array([n.sum()])
        is_single = len(codes) == 1 and not self._pieces.ended
        if not (unit.spread or unit.parts or is_single or self._of_rows):
            return codes, n
        first, number = distinct(list(codes.values()), [self._read.sizes[p] for p in codes])
        together = np.bincount(number, n, first.size).astype(np.float64, copy=False)
        return {place: numbers[first] for place, numbers in codes.items()}, together

    def _required(self, codes: dict[int, IntArray]) -> Any:
        """Find the rows that meet what only columns with known values decide; None for all."""
        condition = self._pieces.unit.condition
        if self._needs_all or condition is None:
            return None
        parts = condition.parts if isinstance(condition, ex.And) else (condition,)
        met = None
        for part in parts:
            name, places = self._pieces.unit.by_value.get(part, ("", []))
            if places and all(place in codes for place in places):
                number: Any = 0
                for place in places:
                    number = number * self._read.n_values[place] + codes[place]
                one = self._read.tried(name, places).surely[number]
                met = one if met is None else met & one
        return met

    def _numbers(self, block: Block, name: str, place: int, n: int) -> IntArray:
        import numpy as np

        from kanon_db.counting.read_pieces import are_ends

        written = block.get(name, b"")
        type_ = np.dtype("<i8" if place in self._pieces.ended else "<u2")
        if len(written) != type_.itemsize * n:
            raise changed(self._opened.publication)
        found = np.frombuffer(written, dtype=type_).astype(np.int64)
        if n and not 0 <= int(found.min()) <= int(found.max()) < self._read.sizes[place]:
            raise changed(self._opened.publication)
        if n and place in self._pieces.ended and not are_ends(found, self._read.sizes[place]):
            raise changed(self._opened.publication)
        return found

    def _blocks(self) -> Iterator[Block]:
        """Read the numbers of all columns that are needed, block by block."""
        own, names = self._classes, list(self._pieces.places)
        rows = self._opened.stream(
            1 + len(names),
            f"SELECT coalesce(t.{own.attribute}, '') AS attribute, t.{own.number} AS block,"
            f" t.{own.codes} AS codes FROM {own.table} AS t WHERE t.{own.codes} IS NOT NULL"
            f" AND (t.{own.attribute} IS NULL OR t.{own.attribute} = ANY ($1::text[]))"
            f" ORDER BY t.{own.number}",
            names,
        )
        for _, of_block in groupby(rows, key=lambda row: row["block"]):
            yield {str(row["attribute"]): row["codes"] for row in of_block}
