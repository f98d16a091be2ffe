"""Says what numbers an expression has in the cells of a column, and how many are below others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, FloatArray, IntArray
from kanon_db.algorithms.recoding.generalized_cells import Axis
from kanon_db.answers.rows.cell_columns import (
    KnownCells,
    RangeColumn,
    RangeEnds,
    SetColumn,
    as_doubles,
)
from kanon_db.answers.rows.evidence import CellValues, Flags, Truths
from kanon_db.answers.tries import TRUE, Combinations, Tries
from kanon_db.query import expressions as ex
from kanon_db.query.layout import CellDescription


class ListedShares:
    """:class:`~kanon_db.answers.rows.evidence.SharesBelow` of values that are listed.

    `whole`: what the shares of each cell add up to. What is listed weighs what is known of it.
    """

    def __init__(self, cell: IntArray, x: FloatArray, w: FloatArray, whole: FloatArray) -> None:
        # `cell`, `x`, `w`: the cell of each value, the value and its weight.
        self._n_cells = whole.size
        total = np.bincount(cell, w, self._n_cells)
        order = np.argsort(x, kind="stable")
        self._cells, self._values = cell[order], x[order]
        self._shares = (w * (whole / np.where(total > 0, total, 1))[cell])[order]

    def __call__(self, number: float, *, is_included: bool) -> FloatArray:
        """Return the shares below a number."""
        last = np.searchsorted(self._values, number, "right" if is_included else "left")
        sums = np.bincount(self._cells[:last], self._shares[:last], self._n_cells)
        return sums.astype(np.float64)


@dataclass(frozen=True, eq=False)
class RangeShares:
    """Shares of ranges below a number, by an axis if known, or evenly; see `SharesBelow`."""

    low: FloatArray  # Infinite where there is no end; NaN of a range that says nothing
    high: FloatArray
    is_discrete: bool
    axis: Axis | None
    points: FloatArray  # Of the axis

    def __call__(self, number: float, *, is_included: bool) -> FloatArray:
        """Return the shares below a number."""

        def is_below(ends: FloatArray) -> BoolArray:
            below: BoolArray = ends <= number if is_included else ends < number
            return below

        part = self._evenly(number, is_included=is_included)
        if self.axis is not None:
            points, low, high = (is_below(one) for one in (self.points, self.low, self.high))
            part = self.axis.share(points, low, high, part)
        part = np.where(is_below(self.high), 1.0, part)
        shares: FloatArray = np.clip(np.where(is_below(self.low), part, 0.0), 0, 1)
        return shares

    def _evenly(self, number: float, *, is_included: bool) -> FloatArray:
        low, high = (np.where(np.isfinite(end), end, 0) for end in (self.low, self.high))
        with np.errstate(all="ignore"):
            if self.is_discrete:
                last = np.floor(number) if is_included else np.ceil(number) - 1
                part: FloatArray = (last - low + 1) / (high - low + 1)
            else:
                part = (number - low) / np.maximum(high - low, 1e-300)
        is_closed = np.isfinite(self.low) & np.isfinite(self.high)
        # A range with one end is taken as this alone.
        parts: FloatArray = np.where(is_closed, np.nan_to_num(part), np.isposinf(self.high))
        return parts


def ends_as_doubles(ends: RangeEnds, type_: ex.Type) -> tuple[FloatArray, FloatArray]:
    """Return the ends of ranges, infinite where there is none."""
    low, high = (as_doubles(ends.coordinates(end), type_) for end in (ends.low, ends.high))
    return (
        np.where(ends.is_null | ends.from_all, -np.inf, low),
        np.where(ends.is_null | ends.to_all, np.inf, high),
    )


class ListedCells(Protocol):
    """The values that cells stand for, cell by cell; see `cell_columns.Listed`."""

    @property
    def cell(self) -> IntArray: ...  # noqa: D102

    @property
    def value(self) -> IntArray: ...  # noqa: D102

    @property
    def w(self) -> FloatArray: ...  # noqa: D102

    @property
    def is_open(self) -> Flags: ...  # noqa: D102

    def extremes(self, numbers: FloatArray) -> tuple[FloatArray, FloatArray]: ...  # noqa: D102


def listed_values(
    listed: ListedCells,
    x: FloatArray,
    is_met: Flags,
    truths: Truths,
    hidden: Flags,
    *,
    is_column: bool,
    is_range: bool,
) -> CellValues:
    """Say what follows from the values that are listed of each cell.

    `x`, `is_met`: the number of each value, and whether it meets the condition.
    """
    # `is_column`: whether numbers are the column's own; `is_range`: and its cells are ranges.
    n_cells, own = hidden.size, x[listed.value]
    met = is_met[listed.value] & ~np.isnan(own) & ~hidden[listed.cell]
    is_open = np.bincount(listed.cell, listed.is_open, n_cells) > 0
    ends = []
    of_listed = listed.extremes(x) if is_column else (np.full(own.size, np.nan),) * 2
    for function, end, empty in zip((np.fmin, np.fmax), of_listed, (np.inf, -np.inf), strict=True):
        of_cell, wide = np.full(n_cells, empty), np.full(n_cells, empty)
        function.at(of_cell, listed.cell[met], own[met])
        function.at(wide, listed.cell, end)
        wide = np.where((wide == empty) | hidden, -empty, wide)
        ends.append(np.where(is_open | hidden, wide, of_cell))
    below = ListedShares(listed.cell[met], own[met], listed.w[met], truths.true)
    # The ends of ranges are enough: between these, values are on straight lines.
    there = np.concatenate([*([] if is_range else [own[met]]), *ends])
    return CellValues(truths, hidden, ends[0], ends[1], np.unique(there[np.isfinite(there)]), below)


def range_values(
    low: FloatArray,
    high: FloatArray,
    cell: CellDescription,
    axis: Axis | None,
    truths: Truths,
    hidden: Flags,
) -> CellValues:
    """Say what follows from the ends of ranges, infinite where there is none."""
    there = np.concatenate([low, high])
    points = np.empty(0) if axis is None else axis.points.astype(np.float64)
    below = RangeShares(
        np.where(np.isneginf(low) & np.isposinf(high), np.nan, low), high,
        cell.is_discrete, axis, as_doubles(points, cell.column.type),
    )  # fmt: skip
    return CellValues(truths, hidden, low, high, np.unique(there[np.isfinite(there)]), below)


@dataclass(frozen=True, eq=False)
class TriedColumn:
    """:class:`~kanon_db.answers.rows.evidence.KnownColumn` whose values the server tries."""

    name: str
    cells: KnownCells
    tries: Tries

    def values(
        self, operand: ex.Expression, condition: ex.Expression, most: int | None
    ) -> CellValues:
        """Say what numbers an expression has in each cell, where a condition holds."""
        tries, own = self.tries, self.cells
        outcome = own.outcome(condition, tries)
        if most is None and isinstance(own, RangeColumn):
            tries.ask()
            low, high = ends_as_doubles(own.ends, own.cell.column.type)
            return range_values(low, high, own.cell, own.axis, outcome(), own.cells.hidden)
        listed = own.listed(most or 1)
        of = Combinations({self.name: listed.domain})
        number, truth = tries.want_number(operand, of), tries.want_truth(condition, of)
        tries.ask()
        is_column = isinstance(operand, ex.Column)
        return listed_values(
            listed, number(), truth() == TRUE, outcome(), own.cells.hidden, is_column=is_column,
            is_range=is_column and isinstance(own, RangeColumn),
        )  # fmt: skip

    def n_apart(self, cells: IntArray) -> int:
        """Return of how many of some cells no two have a value in common."""
        own: Any = self.cells
        if isinstance(own, RangeColumn):
            low, high = ends_as_doubles(own.ends, own.cell.column.type)
            return apart_ranges(zip(low[cells].tolist(), high[cells].tolist(), strict=True))
        if isinstance(own, SetColumn):
            starts, ends = (np.searchsorted(own.of_cell, cells, side) for side in ("left", "right"))
            return apart_sets(
                own.members[start:end].tolist() for start, end in zip(starts, ends, strict=True)
            )
        return 0


def apart_ranges(ranges: Iterable[tuple[float, float]]) -> int:
    """Return how many ranges are the most of which no two have a value in common.

    Notes
    -----
    Taking the one that ends first, again and again, is optimal. Ranges that touch may both have the
    value at which they do.

    Examples
    --------
    >>> apart_ranges([(1, 5), (4, 9), (6, 7), (7, 20)])
    2
    """
    n, end = 0, None
    for high, low in sorted((high, low) for low, high in ranges):
        if end is None or low > end:
            n, end = n + 1, high
    return n


def apart_sets(sets: Iterable[Sequence[Any]]) -> int:
    """Return of how many sets no two have an element in common: small ones first.

    Examples
    --------
    >>> apart_sets(["ab", "bcd", "dc", "a"])
    2
    """
    n, used = 0, set[Any]()
    for elements in sorted(sets, key=len):
        if used.isdisjoint(elements):
            n += 1
            used.update(elements)
    return n
