"""The distinct cells of a column, and the values that each may stand for.

What is listed is what `kanon_db.query.cell_conditions` writes as SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers.evidence import Flags, Listing, NotReadError
from kanon_db.query.cell_conditions import MOST_VALUES
from kanon_db.query.layout import CellDescription
from kanon_db.query.layout import Shares as WhatIsKnown
from kanon_db.spark.answering.places import (
    Place,
    array_of,
    array_of_texts,
    between,
    coordinate,
)

_POINTS: Final = 100
"""How many points of a continuous range are listed."""

MOST_LISTED: Final = 400_000
"""Values that are listed of all cells of a column."""

Key: TypeAlias = Any
"""What a cell is known by: a tuple of a set's texts, or of a range's ends."""


@dataclass(frozen=True, eq=False)
class CellShares:
    """How often each value occurs in the cells of a column; see the table of shares.

    Attributes
    ----------
    kind : {"of_each", "of_parts"}
    of_sets : mapping of tuple of str to (tuple of float, float)
        The shares of a set's values, and of the records whose value is known.
    of_ranges : mapping of tuple to (int, int, float)
        The parts that a range covers, from 0, and the share of either end.
    upto : ndarray of float64, shape (n_parts + 1,)
        The share of all records below each part of the axis.
    points : list
        A value of each part.
    """

    kind: WhatIsKnown
    of_sets: Mapping[Key, tuple[Sequence[float], float]]
    of_ranges: Mapping[Key, tuple[int, int, float]]
    upto: FloatArray
    points: Sequence[Place]

    def inside(self, first: int, last: int) -> float:
        """Return the share of all records from one part to another."""
        return float(self.upto[last + 1] - self.upto[first])

    def known(self, key: Key) -> float:
        """Return the share of a cell's records whose value is known."""
        if key in self.of_sets:
            return self.of_sets[key][1]
        return 2 * self.of_ranges[key][2] if key in self.of_ranges else 0.0


@dataclass(frozen=True, eq=False)
class ColumnCells:
    """The distinct cells of a column.

    Attributes
    ----------
    cell : Cell
    n : ndarray of int64, shape (n_cells,)
        The records of each.
    hidden : ndarray of bool, shape (n_cells,)
        Whether it is suppressed.
    keys : list
        What each is known by: of a range, its ends, or None for NULL, and ``(None, None)`` for
        anything; of a set, its texts. Of values, nothing.
    values : pyarrow.Array or None, shape (n_cells,)
        Of a column of values, these.
    shares : CellShares or None
    """

    cell: CellDescription
    n: IntArray
    hidden: Flags
    keys: Sequence[Key]
    values: Any
    shares: CellShares | None

    @property
    def anything(self) -> Flags:
        """Whether each is a range without ends."""
        if self.cell.kind != "range":
            return np.zeros(self.n.size, dtype=np.bool_)
        return np.array([key == ANYTHING for key in self.keys], dtype=np.bool_)

    @property
    def unknown(self) -> FloatArray:
        """The share of the records of each whose value is not known."""
        if self.shares is None:
            return np.ones(self.n.size)
        return np.array([1 - self.shares.known(key) for key in self.keys])

    def listed(self, most: int = MOST_VALUES, *, with_shares: bool = True) -> Listed:
        """List the values that each cell may stand for; none of a suppressed one.

        Parameters
        ----------
        most : int
            Values of a discrete range that are listed.
        with_shares : bool
            Whether these are not equally likely, if more is known.

        Raises
        ------
        NotReadError
            If they are too many.
        """
        if self.cell.kind == "value":
            kept = np.flatnonzero(~self.hidden)
            none = np.full(kept.size, np.nan)
            w, is_open = np.ones(kept.size), np.zeros(kept.size, dtype=np.bool_)
            return Listed(self.values, kept, kept, w, is_open, none, none, are_values=True)
        shares = self.shares if with_shares else None
        own = self._of_range if self.cell.kind == "range" else self._of_set
        numbers: dict[Any, int] = {}
        found: list[tuple[Any, ...]] = []
        for i, key in enumerate(self.keys):
            for v, *told in own(key, most, shares):
                found.append((i, numbers.setdefault(v, len(numbers)), *told))
            if len(found) > MOST_LISTED:
                raise NotReadError
        columns = list(zip(*found, strict=True)) or [()] * 6
        type_ = self.cell.column.type
        build = array_of if self.cell.kind == "range" else array_of_texts
        return Listed(
            build(list(numbers), type_),
            np.array(columns[0], dtype=np.int64), np.array(columns[1], dtype=np.int64),
            np.array(columns[2], dtype=np.float64), np.array(columns[3], dtype=np.bool_),
            np.array(columns[4], dtype=np.float64), np.array(columns[5], dtype=np.float64),
            are_values=self.cell.kind != "range",
        )  # fmt: skip

    def _of_set(
        self,
        key: Key,
        most: int,  # noqa: ARG002
        shares: CellShares | None,
    ) -> Iterator[_Value]:
        members = key or (None,)
        known = None if shares is None else shares.of_sets.get(key)
        each = [1 / len(members)] * len(members) if known is None else known[0]
        for text, w in zip(members, each, strict=True):
            yield text, w, False, np.nan, np.nan

    def _of_range(self, key: Key, most: int, shares: CellShares | None) -> Iterator[_Value]:
        if key is None or key == ANYTHING:
            yield None, 1.0, key == ANYTHING, np.nan, np.nan
            return
        low, high = key
        if shares is None or (known := shares.of_ranges.get(key)) is None:
            yield from self._evenly(low, high, most)
        elif self.cell.is_discrete and high - low < most:
            yield from self._each(low, high, most, shares, known)
        else:
            yield from self._parts(low, high, most, shares, known)

    def _evenly(self, low: Any, high: Any, most: int) -> Iterator[_Value]:
        type_ = self.cell.column.type
        least, greatest = coordinate(low, type_), coordinate(high, type_)
        if not self.cell.is_discrete:
            if low == high:
                yield low, 1.0, False, least, greatest
                return
            n = min(most, _POINTS)
            for i in range(n):
                at = between(low, high, Fraction(2 * i + 1, 2 * n), type_)
                yield at, 1 / n, True, least, greatest
            return
        width = high - low + 1
        n = min(width, most)
        for i in range(n):
            at = i if width <= most else (2 * i + 1) * width // (2 * most)
            yield low + at, 1 / n, width > most, least, greatest

    def _each(
        self, low: Any, high: Any, most: int, shares: CellShares, known: tuple[int, int, float]
    ) -> Iterator[_Value]:
        """List all values of a discrete range, with the shares of their parts if known."""
        if shares.kind != "of_each":
            yield from self._evenly(low, high, most)
            return
        first, last, own = known
        base, n = shares.inside(first, last), high - low + 1
        for i, (v, w, *more) in enumerate(self._evenly(low, high, most)):
            if base:
                inside = shares.inside(first + i, first + i)
                w = own * ((i == 0) + (i == n - 1)) + (1 - 2 * own) * inside / base  # noqa: PLW2901
            yield v, w, *more

    def _parts(
        self, low: Any, high: Any, most: int, shares: CellShares, known: tuple[int, int, float]
    ) -> Iterator[_Value]:
        """List both ends of a wide range, and a value of each of its parts."""
        type_ = self.cell.column.type
        least, greatest = coordinate(low, type_), coordinate(high, type_)
        if low == high:
            yield low, 1.0, False, least, greatest
            return
        if not self.cell.is_discrete:
            most = min(most, _POINTS)
        first, last, own = known
        base, n_parts = shares.inside(first, last), last - first + 1
        n = min(n_parts, most)
        for i in range(n):
            start = first + i * n_parts // n
            end = first + (i + 1) * n_parts // n - 1
            share = shares.inside(start, end) / base if base else 1 / n
            # Counted from 1, as the statement's arrays are.
            point = shares.points[(start + end + 2) // 2 - 1]
            at = max(low, min(high, point))
            yield at, (1 - 2 * own) * share, True, least, greatest
        for end in (low, high):
            yield end, own, True, least, greatest


_Value: TypeAlias = tuple[Any, float, bool, float, float]

ANYTHING: Final = (None, None)
"""The key of a range without ends."""


@dataclass(frozen=True, eq=False)
class Listed:
    """The values of cells, cell by cell.

    Attributes
    ----------
    values : pyarrow.Array
        The distinct ones.
    cell, value : ndarray of int64, shape (n_listed,)
        The numbers of cells, ascending, and of values.
    w : ndarray of float64
        The share of each among its cell's.
    is_open : ndarray of bool
        Whether there are others in its place.
    least, most : ndarray of float64
        What it stands for, of ranges.
    are_values : bool
        Whether it stands for itself.
    """

    values: Any
    cell: IntArray
    value: IntArray
    w: FloatArray
    is_open: Flags
    least: FloatArray
    most: FloatArray
    are_values: bool

    def listing(self, n_cells: int) -> Listing:
        """Return where the values of each cell are."""
        lengths = np.bincount(self.cell, minlength=n_cells)
        return Listing(
            np.cumsum(lengths) - lengths, lengths, self.value, self.w, self.is_open, self.least,
            self.most,
        )  # fmt: skip

    def extremes(self, numbers: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the least and the greatest that each stands for, given the numbers of values."""
        if not self.are_values:
            return self.least, self.most
        own = numbers[self.value]
        return own, own
