"""Counting published records by the numbers of their cells.

A type of records has the same cells in all columns that a query mentions. How likely its records
are counted follows from what is known of each cell, as in the statement over types of records
(`kanon_db.counting.writing.likelihoods`), of which this is the twin: tests hold the two to the same
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.counting import expressions as ex
from kanon_db.counting.pieces import Unit
from kanon_db.counting.read_pieces import (
    Flags,
    Listing,
    NotReadError,
    PieceReader,
    TriedValues,
    Truths,
)
from kanon_db.counting.writing.compared import OTHERWISE
from kanon_db.counting.writing.truth import combined

_MOST_BYTES: Final = 40_000_000
"""What the combinations of values take that are looked at together."""

_ROW_BYTES: Final = 100
_PART_BYTES: Final = 30
"""What each takes, and beside that for each condition and each column."""

_DENSE: Final = 4
_FEW: Final = 1 << 16
"""So many combinations, beside as many times the number of types, have a place in an array each."""

_LARGEST: Final = 1 << 62

Codes = Mapping[int, IntArray]
"""The numbers of the cells of each type, by the number of the column."""


class _Arrays:
    """The algebra of arrays; see `kanon_db.counting.writing.truth`."""

    certain = Truths(
        np.ones(1), np.zeros(1), np.array([True]), np.array([True]), np.array([False]),
        np.array([False]),
    )  # fmt: skip

    def every(self, parts: Sequence[Truths]) -> Truths:
        true, false = parts[0].true, 1 - parts[0].false
        surely, possibly = parts[0].surely, parts[0].possibly
        surely_false, possibly_false = parts[0].surely_false, parts[0].possibly_false
        for part in parts[1:]:
            true, false = true * part.true, false * (1 - part.false)
            surely, possibly = surely & part.surely, possibly & part.possibly
            surely_false = surely_false | part.surely_false
            possibly_false = possibly_false | part.possibly_false
        return Truths(true, 1 - false, surely, possibly, surely_false, possibly_false)

    def opposite(self, part: Truths) -> Truths:
        return Truths(
            part.false, part.true,
            part.surely_false, part.possibly_false, part.surely, part.possibly,
        )  # fmt: skip

    def told(self, part: Truths) -> Truths:
        return Truths(
            part.true, 1 - part.true, part.surely, part.possibly, ~part.possibly, ~part.surely
        )

    def unknown(self, part: Truths) -> Truths:
        true = 1 - part.true - part.false
        surely = ~(part.possibly | part.possibly_false)
        possibly = ~(part.surely | part.surely_false)
        return Truths(true, 1 - true, surely, possibly, ~possibly, ~surely)


_ARRAYS: Final = _Arrays()


@dataclass(frozen=True, eq=False)
class Rows:
    """The combinations of values that the cells of types may stand for.

    Attributes
    ----------
    type_ : ndarray of int64, shape (n_rows,)
        The type of each, ascending.
    w : ndarray of float64, shape (n_rows,)
        Its share of the type.
    at : dict of int to ndarray of int64
        Where its value is in the listing of each listed column.
    first : ndarray of int64, shape (n_types,)
        The first row of each type.
    """

    type_: IntArray
    w: FloatArray
    at: dict[int, IntArray]
    first: IntArray


class Evaluator:
    """Finds how likely records of types are counted."""

    def __init__(self, read: PieceReader, heartbeat: Callable[[], None] = lambda: None) -> None:
        self._read, self._heartbeat = read, heartbeat
        self._outcomes: dict[str, Truths] = {}
        self._of_values: dict[str, TriedValues] = {}

    def chunks(self, unit: Unit, codes: Codes, n_types: int) -> Iterator[slice]:
        """Divide types into parts that do not have too many combinations of values.

        Raises
        ------
        NotReadError
            If those of one type are too many.
        """
        n_parts = (
            len(unit.by_cell)
            + len(unit.by_ends)
            + len(unit.by_value)
            + len(unit.parts)
            + len(codes)
        )
        most = _MOST_BYTES // (_ROW_BYTES + _PART_BYTES * n_parts)
        lengths = np.ones(n_types)
        for place in unit.spread:
            lengths = lengths * self._read.lists[place].lengths[codes[place]]
        if lengths.max(initial=0) > most:
            raise NotReadError
        ends = np.cumsum(lengths)
        start = 0
        while start < n_types:
            done = ends[start - 1] if start else 0
            stop = int(np.searchsorted(ends, done + most, side="right"))
            yield slice(start, stop)
            start = stop

    def rows(self, spread: Sequence[int], codes: Codes, n_types: int) -> Rows:
        """List the combinations of values of some types."""
        return combinations({place: self._read.lists[place] for place in spread}, codes, n_types)

    def truths(self, unit: Unit, codes: Codes, rows: Rows, also_open: Sequence[int] = ()) -> Truths:
        """Find how likely a condition holds in each row.

        Parameters
        ----------
        also_open : sequence of int
            Listed columns of which all values are needed, too, for anything to be certain.
        """
        leaves: dict[ex.Expression, Truths] = {}
        for leaf, (name, place) in unit.by_cell.items():
            leaves[leaf] = self._of_cells(name).at(codes[place][rows.type_])
        for leaf, (name, place) in unit.by_ends.items():
            leaves[leaf] = self._of_ends(name, place).at(codes[place].take(rows.type_))
        for leaf, (name, places) in unit.by_value.items():
            known = self._tried(name, places).at(self.combination(places, codes, rows))
            if leaf in unit.compared:
                known = self._compared(leaf, unit.compared[leaf], known, codes, rows)
            leaves[leaf] = known
        for leaf, part in unit.parts.items():
            leaves[leaf] = self._part(part, codes).at(rows.type_)
        whole = combined(unit.condition, leaves.__getitem__, _ARRAYS)
        is_open = self.open_(unit.open_, rows)
        for place in unit.tested:
            is_open = is_open | self._read.cells[place].anything[codes[place]][rows.type_]
        closed = ~(is_open | self.open_(also_open, rows))
        return Truths(
            whole.true, whole.false,
            whole.surely & closed, whole.possibly | is_open,
            whole.surely_false & closed, whole.possibly_false | is_open,
        )  # fmt: skip

    def combination(self, places: Sequence[int], codes: Codes, rows: Rows) -> IntArray:
        """Give the combination of the values of some columns in each row a number."""
        found = np.zeros(rows.type_.size, dtype=np.int64)
        for place in places:
            if place in rows.at:
                value = self._read.lists[place].value[rows.at[place]]
            else:
                value = codes[place][rows.type_]
            found = found * self._read.n_values[place] + value
        return found

    def open_(self, places: Sequence[int], rows: Rows) -> Flags:
        """Find where some of the values of listed columns are left out."""
        found = np.zeros(rows.type_.size, dtype=np.bool_)
        for place in places:
            if place in rows.at:
                found |= self._read.lists[place].is_open[rows.at[place]]
        return found

    def _of_cells(self, name: str) -> Truths:
        if name not in self._outcomes:
            self._outcomes[name] = self._read.outcomes(name)
        return self._outcomes[name]

    def _of_ends(self, name: str, place: int) -> TriedValues:
        if name not in self._of_values:
            self._of_values[name] = self._read.tried_values(name, place)
        return self._of_values[name]

    def _tried(self, name: str, places: Sequence[int]) -> Truths:
        if name not in self._outcomes:
            self._outcomes[name] = self._read.tried(name, places)
        return self._outcomes[name]

    def _compared(
        self,
        leaf: ex.Expression,
        compared: tuple[str, int, int],
        known: Truths,
        codes: Codes,
        rows: Rows,
    ) -> Truths:
        """Find what is certain of a comparison of two ranges from their ends."""
        if not isinstance(leaf, ex.Comparison):
            raise TypeError("two columns are compared")
        name, left, right = compared
        ends = self._read.ends(name)
        a, b = codes[left], codes[right]
        a_low, a_high, b_low, b_high = ends[0][a], ends[1][a], ends[2][b], ends[3][b]
        is_known = ends[4][a] & ends[5][b]
        endless = self._read.cells[left].endless[a] | self._read.cells[right].endless[b]
        are_there = (a_low > 0) & (a_high > 0) & (b_low > 0) & (b_high > 0)
        possible = {
            "<": a_low < b_high, "<=": a_low <= b_high, ">": a_high > b_low, ">=": a_high >= b_low,
            "=": (a_low <= b_high) & (b_low <= a_high),
            "<>": ~((a_low == b_high) & (b_low == a_high)),
        }  # fmt: skip
        possibly, otherwise = (
            (is_known & (endless | (are_there & possible[operator])))[rows.type_]
            for operator in (leaf.operator, OTHERWISE[leaf.operator])
        )
        known_rows = is_known[rows.type_]
        return Truths(
            known.true, known.false,
            known_rows & ~otherwise, possibly, known_rows & ~possibly, otherwise,
        )  # fmt: skip

    def _part(self, part: Unit, codes: Codes) -> Truths:
        """Find how likely a part of the condition is, once for each combination of its cells."""
        first, of_type = distinct(
            [codes[place] for place in part.places],
            [self._read.sizes[place] for place in part.places],
        )
        own = {place: codes[place][first] for place in part.places}
        found = []
        for chunk in self.chunks(part, own, first.size):
            self._heartbeat()
            some = {place: numbers[chunk] for place, numbers in own.items()}
            n_types = chunk.stop - chunk.start
            rows = self.rows(part.spread, some, n_types)
            each = self.truths(part, some, rows)
            found.append(
                Truths(
                    np.add.reduceat(rows.w * each.true, rows.first),
                    np.add.reduceat(rows.w * each.false, rows.first),
                    np.logical_and.reduceat(each.surely, rows.first),
                    np.logical_or.reduceat(each.possibly, rows.first),
                    np.logical_and.reduceat(each.surely_false, rows.first),
                    np.logical_or.reduceat(each.possibly_false, rows.first),
                )
            )
        return Truths.joined(found).at(of_type)


def combinations(lists: Mapping[int, Listing], codes: Codes, n_types: int) -> Rows:
    """List the combinations of the values that the cells of types may stand for.

    Parameters
    ----------
    lists : mapping of int to Listing
        By the number of the column.
    codes : mapping of int to ndarray of int64, shape (n_types,)
    n_types : int
    """
    each = np.arange(n_types)
    if not lists:
        return Rows(each, np.ones(n_types), {}, each)
    type_, w = each, np.ones(n_types)
    at: dict[int, IntArray] = {}
    total = np.ones(n_types, dtype=np.int64)
    for place, listing in lists.items():  # each row so far once for each value of the next column
        cell = codes[place]
        length = listing.lengths[cell]
        total = total * length
        start = listing.starts[cell]
        if at:
            length, start = length[type_], start[type_]
        ends = np.cumsum(length)
        at = {other: np.repeat(numbers, length) for other, numbers in at.items()}
        at[place] = np.arange(ends[-1] if ends.size else 0)
        at[place] += np.repeat(start - (ends - length), length)
        type_, w = np.repeat(type_, length), np.repeat(w, length)
        w *= listing.w.take(at[place])
    return Rows(type_, w, at, np.cumsum(total) - total)


def distinct(codes: Sequence[IntArray], sizes: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Find the distinct combinations of numbers.

    Parameters
    ----------
    codes : sequence of ndarray of int, shape (n,)
    sizes : sequence of int
        What the numbers of each are below.

    Returns
    -------
    first : ndarray of int64, shape (n_distinct,)
        Where each combination occurs.
    number : ndarray of int64, shape (n,)
        The number of each combination.
    """
    packed, size = np.zeros(codes[0].size, dtype=np.int64), 1
    for numbers, one in zip(codes, sizes, strict=True):
        if size * one > _LARGEST:
            found, packed = np.unique(packed, return_inverse=True)
            size = found.size
        packed, size = packed * one + numbers, size * one
    if size > _DENSE * packed.size + _FEW:
        _, first, number = np.unique(packed, return_index=True, return_inverse=True)
        return first, number
    place = np.full(size, -1, dtype=np.int64)
    place[packed] = np.arange(packed.size)
    present = np.flatnonzero(place >= 0)
    first = place[present]
    place[present] = np.arange(present.size)
    return first, place[packed]
