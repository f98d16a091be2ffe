"""Answering from a publication's table of classes; see `kanon_db.counting.type_counts`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kanon_db.answering.opened import OpenQuery
from kanon_db.counting.answers import Estimated
from kanon_db.counting.layout import CellLayout
from kanon_db.counting.writing.numbered_cells import has_pieces
from kanon_db.counting.writing.pieces import PieceWriter
from kanon_db.counting.writing.statements import refuse_continuous_groups
from kanon_db.counting.writing.writer import Request

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray
    from kanon_db.counting.pieces import Pieces
    from kanon_db.counting.type_groups import Counted

Answers = dict[str, tuple[tuple[int, ...], Estimated]]
"""The places of each group's values in their order, and its answer, by its key."""

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

    from kanon_db.counting.read_pieces import is_unknown
    from kanon_db.counting.type_groups import TypeCounter

    pieces = PieceWriter(request, layout, (name,)).pieces()
    if not _has_room(opened, pieces):
        return None
    types = opened.known_types(request, layout, pieces)
    read = types.read
    counter, place = TypeCounter(pieces, read, opened.session.heartbeat), pieces.places[name]
    n_cells = read.sizes[place]
    if counter.n_groups * n_cells > most:
        return None
    expected, sure, possible, unknown = np.zeros((4, counter.n_groups * n_cells))
    for codes, n in types.all():
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
    groups = [key_of_values(names, counter.values(group)[1]) for group in there.tolist()]
    return OfCells(
        groups, expected[there], sure[there], possible[there], unknown[there],
        is_unknown(read, pieces.marked), pieces.together,
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


def _answered(opened: OpenQuery, request: Request, layout: CellLayout) -> Answers | None:
    from kanon_db.counting.type_groups import TypeCounter
    from kanon_db.counting.type_totals import Totals

    pieces = PieceWriter(request, layout).pieces()
    if not _has_room(opened, pieces):
        return None
    types = opened.known_types(request, layout, pieces)
    read = types.read
    counter = TypeCounter(pieces, read, opened.session.heartbeat)
    if counter.n_groups * _GROUP_BYTES > opened.limits.bitmaps:
        return None
    totals = Totals(
        pieces, read, counter.n_groups, layout.left_out, opened.limits.bitmaps,
        is_average=request.aggregate.function == "avg",
    )  # fmt: skip
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
        key = key_of_values(names, values)
        room -= len(key.encode())
        if room < 0:
            raise opened.limits.too_many()
        found[key] = ranks, estimated
    return found


def key_of_values(names: Sequence[str], values: Sequence[str]) -> str:
    """Write an object as the server writes a jsonb: by the lengths of names, and their bytes."""
    by_name = dict(zip(names, values, strict=True))
    ordered = sorted(by_name, key=lambda name: (len(name.encode()), name.encode()))
    written = (f"{json.dumps(name, ensure_ascii=False)}: {by_name[name]}" for name in ordered)
    return f"{{{', '.join(written)}}}"
