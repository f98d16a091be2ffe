"""The types of records in a publication's table of classes, read block by block."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kanon_db.catalog.entries import changed
from kanon_db.counting import expressions as ex
from kanon_db.counting.layout import CellLayout, ClassTable
from kanon_db.errors import UnsupportedQueryError

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
    from kanon_db.answering.opened import OpenQuery
    from kanon_db.counting.pieces import Pieces
    from kanon_db.counting.read_pieces import ReadPieces

Block = dict[str, bytes]
"""The numbers of each column, by its name; the sizes of classes have the name ``""``."""


def read_pieces(opened: OpenQuery, pieces: Pieces) -> ReadPieces:
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


class ClassBlocks:
    """:class:`~kanon_db.answering.known_types.KnownTypes` of a table of classes."""

    def __init__(self, opened: OpenQuery, layout: CellLayout, pieces: Pieces) -> None:
        if layout.classes is None:
            raise TypeError("there is no table of classes")
        self._opened, self._pieces = opened, pieces
        self._read = read_pieces(opened, pieces)
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

    @property
    def read(self) -> ReadPieces:
        """What each cell, and each value, tells."""
        return self._read

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
