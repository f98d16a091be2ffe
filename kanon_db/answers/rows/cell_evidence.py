"""Finds what cells of rows, the values in them, and combinations of these tell of a question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from math import prod
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.algorithms.recoding.generalized_cells import Axis, fill_hidden
from kanon_db.answers.likelihoods import WHOLE
from kanon_db.answers.rows.pieces import Pieces, Unit
from kanon_db.dataclasses import dataclass
from kanon_db.publications.rows.cell_columns import (
    Cells,
    Flags,
    KnownCells,
    Listed,
    NotReadError,
    Outcome,
    RangeColumn,
    RangeEnds,
    SetColumn,
    Truths,
    ValueColumn,
    as_doubles,
)
from kanon_db.query import expressions as ex
from kanon_db.query.layout import CellDescription
from kanon_db.query.ranges import MOST_VALUES
from kanon_db.transfer.tries import FALSE, TRUE, Combinations, Domain, Ranked, Tries, Truth

MOST_COMBINED: Final = 200_000
"""Combinations of values for which a condition is tried; less where there are many conditions."""

_OF_RECORDS: Final = 5
"""So many times as many, where only those that records may have are tried."""

_LISTED_AGAIN: Final = 10
"""So many times as many may be the same."""

_FULL: Final = 8
"""So many conditions may have as many each."""


@dataclass(frozen=True, eq=False)
class Listing:
    """The values of each cell of a column, cell by cell."""

    starts: IntArray  # (n_cells,): of the values of each cell, in the other arrays
    lengths: IntArray
    value: IntArray  # (n_listed,): numbers of values
    w: FloatArray
    evenly: FloatArray  # The shares if all values of a cell are equally likely
    is_open: Flags
    least: FloatArray  # Of what each stands for, if the column is summed; NaN where there is none
    most: FloatArray


@dataclass(frozen=True, eq=False)
class Moments:
    """What is summed of the values of each cell, on average; NaN where there is nothing."""

    x: FloatArray
    evenly: FloatArray  # The same if all values of a cell are equally likely
    xx: FloatArray
    least: FloatArray
    most: FloatArray
    is_wild: Flags


_DENSE: Final = 4
_FEW: Final = 1 << 16
"""So many combinations, beside as many times the number of types, have a place in an array each."""

LARGEST: Final = 1 << 62

Codes = Mapping[int, IntArray]
"""The numbers of the cells of each type, by the number of the column."""


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
        if size * one > LARGEST:
            numbers_met, packed = np.unique(packed, return_inverse=True)
            size = numbers_met.size
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


@dataclass(frozen=True, eq=False)
class Rows:
    """The combinations of values that the cells of types may stand for."""

    type_: IntArray  # (n_rows,): the type of each, ascending
    w: FloatArray  # (n_rows,): its share of the type, and that if all values are equally likely
    evenly: FloatArray
    at: dict[int, IntArray]  # Where its value is in the listing of each listed column
    first: IntArray  # (n_types,): the first row of each type


def combinations(lists: Mapping[int, Listing], codes: Codes, n_types: int) -> Rows:
    """List the combinations of the values that the cells of types may stand for.

    `lists`: by the number of the column.
    """
    # `codes`: mapping of int to ndarray of int64, shape (n_types,).
    each = np.arange(n_types)
    if not lists:
        return Rows(each, np.ones(n_types), np.ones(n_types), {}, each)
    type_, w, evenly = each, np.ones(n_types), np.ones(n_types)
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
        evenly = np.repeat(evenly, length)
        w *= listing.w.take(at[place])
        evenly *= listing.evenly.take(at[place])
    return Rows(type_, w, evenly, at, np.cumsum(total) - total)


class CellEvidence:
    """The pieces of one answer, from what the server has tried.

    Raises NotReadError when there is too much to be listed or tried.
    """

    def __init__(
        self,
        pieces: Pieces,
        columns: Mapping[int, KnownCells],
        tries: Tries,
        ends: Callable[[int, int], tuple[Any, ...]],
        types: Callable[[Sequence[int]], Codes],
        *,
        has_types: bool = False,
    ) -> None:
        # `types`: finds the numbers of the cells that records have together in some columns.
        # `has_types`: whether they are known already; otherwise all combinations are tried, unless
        # these are too many, or a calculation may fail on some.
        self._pieces, self._columns, self._tries = pieces, columns, tries
        self._ends, self._types, self._has_types = ends, types, has_types
        self._names = {place: name for name, place in pieces.places.items()}
        self.cells: dict[int, Cells] = {place: columns[place].cells for place in pieces.vague}
        self.sizes = {place: own.cells.n.size for place, own in columns.items()}
        self._listed: dict[int, Listed] = {}
        self._combinations: dict[tuple[int, ...], Combinations] = {}
        units = [*pieces.unit.all()]
        for place, most in pieces.most_listed.items():
            own, runs = columns[place], None
            if place in pieces.of_runs and isinstance(own, RangeColumn):
                runs = own.listed_runs(pieces.of_runs[place], tries)
            self._listed[place] = own.listed(most) if runs is None else runs
        self._domains: dict[int, Domain] = {
            place: own.domain
            for place, own in columns.items()
            if isinstance(own, ValueColumn) and place not in self._listed
        } | {place: listed.domain for place, listed in self._listed.items()}
        self.n_values = self.sizes | {place: own.n for place, own in self._domains.items()}
        self.lists = {
            place: _listing(own, self.sizes[place]) for place, own in self._listed.items()
        }
        self.met: dict[tuple[int, ...], IntArray] = {}
        self._outcomes = self._want_outcomes(units)
        self._truths = {
            leaf: cache(partial(_known, tries.want_truth(leaf, self._combined(places))))
            for unit in units
            for leaf, places in unit.by_value.items()
        }
        self._keys = [tries.want_key(key, self._combined(places)) for key, places in pieces.keys]
        self._numbers, self._moments = self._want_sums()
        tries.ask()
        if pieces.summed is not None and pieces.summed.own is not None:
            self._add_ends(pieces.summed.own)

    def _want_outcomes(self, units: Sequence[Unit]) -> dict[ex.Expression, Outcome]:
        return {
            leaf: cache(self._columns[place].outcome(leaf, self._tries))
            for unit in units
            for leaf, place in unit.by_cell.items()
        }

    def _want_sums(self) -> tuple[Any, Any]:
        summed, numbers, moments = self._pieces.summed, None, None
        self._own_numbers: Callable[[], FloatArray] | None = None
        if summed is None:
            return None, None
        if summed.moments is None:
            want = self._tries.want_rank if summed.is_ranked else self._tries.want_number
            numbers = want(summed.expression, self._combined(summed.values))
        else:
            place = summed.moments
            own = self._columns[place]
            if isinstance(own, RangeColumn) and _is_of_whole_numbers(summed.expression, own):
                return None, lambda: _sum_whole_ranges(own)
            listed = own.listed(MOST_VALUES)
            of = Combinations({self._names[place]: listed.domain})
            x = self._tries.want_number(summed.expression, of)
            moments = partial(self._sum_listed, own, listed, x, summed.expression)
        if summed.own is not None:
            of = Combinations({self._names[summed.own]: self._domains[summed.own]})
            self._own_numbers = self._tries.want_number(summed.expression, of)
        return numbers, moments

    def _combined(self, places: Sequence[int]) -> Combinations:
        key = tuple(places)
        if key not in self._combinations:
            of = Combinations({self._names[p]: self._domains[p] for p in key})
            few = MOST_COMBINED * _FULL // max(self._pieces.n_leaves, _FULL)
            if len(key) > 1 and (self._has_types or self._pieces.may_fail or of.n > few):
                most = MOST_COMBINED * _OF_RECORDS
                of = replace(of, numbers=self._find_met(key, self._types(key), most))
            if of.n > few * _OF_RECORDS:
                raise NotReadError
            self._combinations[key] = of
        return self._combinations[key]

    def _find_met(self, places: tuple[int, ...], types: Codes, most: int) -> IntArray:
        """Find the combinations of the values of some columns that records may have."""
        sizes = [self.n_values[place] for place in places]
        if prod(sizes) > LARGEST:
            raise NotReadError
        first, _ = distinct([types[place] for place in places], [self.sizes[p] for p in places])
        codes = {place: types[place][first] for place in places}
        lists = {place: self.lists[place] for place in places if place in self.lists}
        n_listed = np.ones(first.size)
        for place, listing in lists.items():
            n_listed = n_listed * listing.lengths[codes[place]]
        if n_listed.sum() > most * _LISTED_AGAIN:
            raise NotReadError
        rows = combinations(lists, codes, first.size)
        values = [
            lists[place].value[rows.at[place]] if place in lists else codes[place][rows.type_]
            for place in places
        ]
        number = np.zeros(1, dtype=np.int64)
        for value, size in zip(values, sizes, strict=True):
            number = number * size + value
        self.met[places] = np.unique(number)
        shape = [max(size, 1) for size in sizes]
        return np.column_stack(np.unravel_index(self.met[places], shape))

    @property
    def has_nan(self) -> bool:
        """Whether some number that is ordered is NaN."""
        summed = self._pieces.summed
        return summed is not None and summed.expression in self._tries.with_nan

    def outcomes(self, leaf: ex.Expression) -> Truths:
        """Return what each cell of a column tells of a condition."""
        return self._outcomes[leaf]()

    def tried(self, leaf: ex.Expression) -> Truths:
        """Return what each combination of values tells of a condition."""
        return self._truths[leaf]()

    def ends(self, one: int, other: int) -> tuple[Any, ...]:
        """Return the places of the lower and upper ends of two columns' cells on their axis."""
        return self._ends(one, other)

    def key(self, number: int) -> tuple[IntArray, list[str]]:
        """Return the number of each combination's group value, and the values as JSON."""
        ranked: Ranked = self._keys[number]()
        if ranked.texts is None:
            raise NotReadError
        return ranked.ranks, list(ranked.texts)

    def numbers(self) -> FloatArray:
        """Return the number of each combination of values; NaN where there is none."""
        numbers: FloatArray = self._numbers()
        return numbers

    def moments(self) -> Moments:
        """Return what is summed of each cell of a column."""
        if self._moments is None:
            raise TypeError("nothing is summed")
        moments: Moments = self._moments()
        return moments

    @staticmethod
    def _sum_listed(
        column: KnownCells, listed: Listed, numbers: Callable[[], FloatArray], of: ex.Expression
    ) -> Moments:
        """Say what is summed of the values of each cell, by what the server says of each."""
        cells, x = column.cells, numbers()
        is_column = isinstance(of, ex.Column)
        own = x[listed.value]
        least, most = listed.extremes(x) if is_column else (own, own)
        n_cells = cells.n.size
        is_wild = cells.endless
        if not is_column:
            is_wild = np.bincount(listed.cell, listed.is_open, n_cells) > 0
        with np.errstate(over="ignore"):
            xx = _average(listed, own * own, n_cells)
            if cells.endless.any():  # of what lies beyond a coded end nothing is published
                known = own[np.isfinite(own)]
                half = np.ptp(known) / 2 if known.size else 0.0
                xx = np.where(cells.endless, xx + half * half, xx)
        ends = []
        for function, end, empty in ((np.fmin, least, np.inf), (np.fmax, most, -np.inf)):
            of_cell, there = np.full(n_cells, empty), ~np.isnan(own)
            function.at(of_cell, listed.cell[there], end[there])
            ends.append(np.where(np.isfinite(of_cell), of_cell, np.nan))
        is_infinite = np.bincount(listed.cell, np.isinf(own), n_cells) > 0
        mean, evenly = (
            np.where(is_infinite, np.inf, _average(one, own, n_cells))
            for one in (listed, replace(listed, w=listed.evenly))
        )
        return Moments(mean, evenly, xx, ends[0], ends[1], is_wild | cells.hidden)

    def _add_ends(self, place: int) -> None:
        """Add the ends of what each value of a column that is summed itself stands for."""
        if self._own_numbers is None:
            raise TypeError("the numbers of its values were asked for")
        listed, numbers = self._listed[place], self._own_numbers()
        least, most = listed.extremes(numbers)
        hidden = self._columns[place].cells.hidden[listed.cell]
        if hidden.any():
            own = numbers[listed.value]
            least, most = np.where(hidden, own, least), np.where(hidden, own, most)
        self.lists[place] = replace(self.lists[place], least=least, most=most)


def _known(truth: Callable[[], Truth]) -> Truths:
    return Truths.known(truth() == TRUE, truth() == FALSE)


def _is_of_whole_numbers(expression: ex.Expression, column: RangeColumn) -> bool:
    """Whether the column itself is summed, and its values are whole numbers."""
    is_whole = column.ends.at is None and column.cell.column.type.category in ex.NUMBERS
    return is_whole and isinstance(expression, ex.Column) and expression.lookup is None


def _sum_whole_ranges(column: RangeColumn) -> Moments:
    """Say what is summed of the cells of a column of whole numbers, by sums over its axis."""
    ends, inside = column.ends, column.ends.inside
    low, high = (end.astype(np.float64) for end in (ends.low, ends.high))
    low[ends.from_all | ends.is_null], high[ends.to_all | ends.is_null] = np.nan, np.nan
    # A range with one end is taken as this alone.
    mean = np.where(np.isnan(low), high, np.where(np.isnan(high), low, (low + high) / 2))
    square = mean**2 + np.nan_to_num((high - low + 1) ** 2 - 1) / 12
    known = np.concatenate([low, high])
    known = known[~np.isnan(known)]
    if known.size:  # of what lies beyond a coded end nothing is published
        square = np.where(ends.endless, square + (np.ptp(known) / 2) ** 2, square)
    evenly = mean.copy()
    if column.axis is not None and inside.size:
        axis, own = column.axis.of(inside), column.axis.own[inside]
        is_wide = high[inside] - low[inside] >= MOST_VALUES  # others are even where parts are more
        is_learned = ~np.isnan(own) & (is_wide | axis.is_each)
        for moment, power in ((mean, 1), (square, 2)):
            at_ends = low[inside] ** power + high[inside] ** power
            between = axis.average(low[inside], high[inside], power, moment[inside])
            learned = own * at_ends + (1 - 2 * own) * between
            moment[inside] = np.where(is_learned, learned, moment[inside])
    return Moments(mean, evenly, square, low, high, ends.endless | column.cells.hidden)


def _listing(listed: Listed, n_cells: int) -> Listing:
    lengths, none = np.bincount(listed.cell, minlength=n_cells), np.empty(0)
    return Listing(
        np.cumsum(lengths) - lengths, lengths, listed.value, listed.w, listed.evenly,
        listed.is_open, none, none,
    )  # fmt: skip


def _average(listed: Listed, x: FloatArray, n_cells: int) -> FloatArray:
    """Average numbers over the values of cells; those that are not there do not count."""
    there = ~np.isnan(x)
    total = np.bincount(listed.cell[there], listed.w[there], n_cells)
    summed = np.bincount(listed.cell[there], (listed.w * x)[there], n_cells)
    means = np.full(n_cells, np.nan)
    np.divide(summed, total, out=means, where=total != 0)
    return means


class SharesBelow(Protocol):
    """Of each cell, the share of its records whose value counts and is below a number."""

    def __call__(self, number: float, *, is_included: bool) -> FloatArray:
        """Return the shares; `is_included` counts the number itself, too."""

    def of(self, cells: IntArray) -> SharesBelow:
        """Return the same of some cells."""


@dataclass(frozen=True, eq=False)
class CellValues:
    """What numbers an expression on a column has in each of its cells, where a condition holds.

    Numbers are those of double precision, whose order is PostgreSQL's: NaN is infinite.
    """

    truths: Truths  # Of the condition, which leaves NULLs out
    hidden: Flags
    least: FloatArray  # Infinite where it could be anything
    most: FloatArray
    places: FloatArray  # All finite ones that there are, ascending
    below: SharesBelow
    below_evenly: SharesBelow  # The same if all values of a cell are equally likely


@dataclass(frozen=True, eq=False)
class ListedShares:
    """`SharesBelow` of values that are listed, ascending."""

    n_cells: int
    cell: IntArray  # (n_listed,): the cell of each value, the value, and its share
    value: FloatArray
    share: FloatArray

    @classmethod
    def weigh(cls, cell: IntArray, x: FloatArray, w: FloatArray, whole: FloatArray) -> ListedShares:
        """Weigh values, so that those of each cell have the shares `whole` together."""
        total = np.bincount(cell, w, whole.size)
        order = np.argsort(x, kind="stable")
        share = w * (whole / np.where(total > 0, total, 1))[cell]
        return cls(whole.size, cell[order], x[order], share[order])

    def __call__(self, number: float, *, is_included: bool) -> FloatArray:
        """Return the shares below a number."""
        last = np.searchsorted(self.value, number, "right" if is_included else "left")
        sums = np.bincount(self.cell[:last], self.share[:last], self.n_cells)
        return sums.astype(np.float64)

    def of(self, cells: IntArray) -> ListedShares:
        """Return the same of some cells."""
        by_cell, starts, lengths = self._by_cell
        n = lengths[cells]
        cell = np.repeat(np.arange(cells.size), n)
        at = by_cell[np.repeat(starts[cells] - (np.cumsum(n) - n), n) + np.arange(cell.size)]
        order = np.argsort(at)
        at = at[order]
        return ListedShares(cells.size, cell[order], self.value[at], self.share[at])

    @cached_property
    def _by_cell(self) -> tuple[IntArray, IntArray, IntArray]:
        """The places of the values of each cell, where these begin, and how many they are."""
        lengths = np.bincount(self.cell, minlength=self.n_cells)
        return np.argsort(self.cell, kind="stable"), np.cumsum(lengths) - lengths, lengths


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
        is_below = partial(np.greater_equal if is_included else np.greater, number)
        is_all = is_below(self.high)
        shares: FloatArray = is_all.astype(np.float64)
        between = np.flatnonzero(is_below(self.low) & ~is_all)
        part = self._evenly(number, between, is_included=is_included)
        if self.axis is not None:
            yes, no = np.ones(between.size, np.bool_), np.zeros(between.size, np.bool_)
            part = self.axis.of(between).share(is_below(self.points), yes, no, part)
        shares[between] = np.clip(part, 0, 1)
        return shares

    def of(self, cells: IntArray) -> RangeShares:
        """Return the same of some cells."""
        axis = None if self.axis is None else self.axis.of(cells)
        return replace(self, low=self.low[cells], high=self.high[cells], axis=axis)

    def _evenly(self, number: float, cells: IntArray, *, is_included: bool) -> FloatArray:
        """Return the shares of ranges that have the number between their ends."""
        low, high = self.low[cells], self.high[cells]
        with np.errstate(all="ignore"):
            if self.is_discrete:
                last = np.floor(number) if is_included else np.ceil(number) - 1
                part: FloatArray = (last - low + 1) / (high - low + 1)
            else:
                part = (number - low) / np.maximum(high - low, 1e-300)
        is_closed = np.isfinite(low) & np.isfinite(high)
        # A range with one end is taken as this alone.
        parts: FloatArray = np.where(is_closed, np.nan_to_num(part), np.isposinf(high))
        return parts


class FilledShares:
    """`SharesBelow` in which suppressed cells have the mean of those that are kept."""

    def __init__(
        self, shares: SharesBelow, hidden: Flags, mean: Callable[[float, bool], float]
    ) -> None:
        # `mean`: that of all cells that are kept; `bool`: whether the number counts itself.
        self._shares, self._hidden, self._mean = shares, hidden, mean

    @classmethod
    def of_column(
        cls, shares: SharesBelow, hidden: Flags, n: FloatArray, rarity: float
    ) -> FilledShares:
        """Fill the shares of a column; `n`: how many records have each cell."""

        @cache
        def mean(number: float, is_included: bool) -> float:
            of_all = shares(number, is_included=is_included)
            return float(fill_hidden(of_all, hidden, n, rarity)[hidden].max(initial=0))

        return cls(shares, hidden, mean)

    def __call__(self, number: float, *, is_included: bool) -> FloatArray:
        """Return the shares below a number."""
        mean = self._mean(number, is_included)
        return np.where(self._hidden, mean, self._shares(number, is_included=is_included))

    def of(self, cells: IntArray) -> FilledShares:
        """Return the same of some cells."""
        return FilledShares(self._shares.of(cells), self._hidden[cells], self._mean)


def ends_as_doubles(ends: RangeEnds, type_: ex.Type) -> tuple[FloatArray, FloatArray]:
    """Return the ends of ranges, infinite where there is none."""
    low, high = (as_doubles(ends.coordinates(end), type_) for end in (ends.low, ends.high))
    return (
        np.where(ends.is_null | ends.from_all, -np.inf, low),
        np.where(ends.is_null | ends.to_all, np.inf, high),
    )


def listed_values(
    listed: Listed,
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
    below, below_evenly = (
        ListedShares.weigh(listed.cell[met], own[met], w[met], likely)
        for w, likely in ((listed.w, truths.true), (listed.evenly, truths.evenly))
    )
    # The ends of ranges are enough: between these, values are on straight lines.
    there = np.concatenate([*([] if is_range else [own[met]]), *ends])
    places = np.unique(there[np.isfinite(there)])
    return CellValues(truths, hidden, ends[0], ends[1], places, below, below_evenly)


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
    places = np.unique(there[np.isfinite(there)])
    return CellValues(truths, hidden, low, high, places, below, replace(below, axis=None))


@dataclass(frozen=True, eq=False)
class TriedColumn:
    """The distinct cells of one column, by their numbers, whose values the server tries."""

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


class Effect(NamedTuple):
    """What one block of columns decides of a count, and of a sum, if there is one.

    A pair is a type of records, and a group. The variances are over the values of the block.
    """

    # Of what a record is expected to add, a column decides what differs between its values: the
    # variance, over these, of what is expected given each. It is by the roots of these variances
    # that an answer is off where the shares of a column are. Columns are off by themselves.

    away: FloatArray  # (1 or 2, n_pairs): how far both are from what equally likely values give
    variances: FloatArray  # (1 or 3, n_pairs): of the count, and of both together, and of the sum

    @classmethod
    def of_leaf(
        cls, mean: FloatArray, evenly: FloatArray, ends: tuple[FloatArray, FloatArray]
    ) -> Effect:
        """Find what a condition decides; arrays of shape (1 or 2, n_pairs).

        `ends`: if it surely does not hold, and if it does.
        """
        least, reach = ends[0], ends[1] - ends[0]
        share = np.zeros(mean.shape[1])
        np.divide(mean[0] - least[0], reach[0], out=share, where=reach[0] != 0)
        # Of 1, sums of shares are off by what is rounded.
        variance = np.where(np.abs(share - 0.5) > WHOLE - 0.5, 0.0, share * (1 - share))
        return cls(mean - evenly, variance * _products(reach))

    @classmethod
    def of_values(cls, mean: FloatArray, given: FloatArray, column: ListedColumn) -> Effect:
        """Find what the values of a column decide.

        `given`, of shape (1 or 2, n_values): what is expected given each of them.
        """
        away = mean - np.stack([column.add(own, evenly=True) for own in given])
        squares = np.stack([column.add(own) for own in _products(given)])
        variances = squares - _products(mean)
        variances[np.abs(variances) <= _LOST * np.abs(squares)] = 0
        return cls(away, variances)

    @classmethod
    def of_sum(cls, away: FloatArray, mean: FloatArray, square: FloatArray) -> Effect:
        """Say what a column decides that is summed, and decides of nothing else."""
        none, variance = np.zeros(away.size), square - mean**2
        variance[np.abs(variance) <= _LOST * square] = 0
        return cls(np.stack([none, away]), np.stack([none, none, variance]))

    def of(self, chosen: Flags) -> Effect:
        """Return that of some pairs."""
        return Effect(self.away[:, chosen], self.variances[:, chosen])

    def times(self, shares: FloatArray) -> Effect:
        """Multiply the variances; of nothing is nothing, even if they are infinite."""
        return Effect(self.away, np.where(shares > 0, self.variances * shares, 0.0))

    def deviation(self, average: FloatArray | float | None) -> FloatArray:
        """Return the standard deviations of a sum of x - a, or of a count."""
        variance = self.variances[0]
        if average is not None:
            _, covariance, of_sum = self.variances
            with np.errstate(over="ignore", invalid="ignore"):
                variance = of_sum - average * (2 * covariance - average * variance)
            variance = np.where(np.isnan(variance), np.inf, variance)
        deviations: FloatArray = np.sqrt(np.maximum(variance, 0))
        return deviations

    def from_even(self, average: FloatArray | float | None) -> FloatArray:
        """Return how far a sum of x - a, or a count, is from what equally likely values give."""
        away: FloatArray = self.away[0]
        return away if average is None else self.away[1] - average * away


_LOST: Final = 1e-12
"""What sums over shares lose by rounding, relative to them."""


def _products(numbers: FloatArray) -> FloatArray:
    """Multiply one by itself; of two, each by itself, and between these both together."""
    if len(numbers) == 1:
        return numbers * numbers
    one, other = numbers
    return np.stack([one * one, one * other, other * other])


class ListedColumn:
    """The values of one of several columns that are listed, in each type of records and group."""

    def __init__(
        self, place: int, lists: Mapping[int, Listing], rows: Rows, pair: IntArray
    ) -> None:
        # `pair`: that of each row.
        own = rows.at[place]
        self._pair, self._n_pairs = pair, int(pair.max(initial=-1)) + 1
        self._others: FloatArray | None = None
        self._number = np.arange(pair.size)
        self._w, self._evenly = rows.w, rows.evenly
        if len(rows.at) > 1:
            rest = [lists[other].w[at] for other, at in rows.at.items() if other != place]
            is_there = (rows.w > 0) | (rows.evenly > 0)  # others are groups that nobody is in
            self._others = np.prod(rest, axis=0) * is_there
            first, self._number = distinct([pair, own], [self._n_pairs, lists[place].value.size])
            self._pair, own = pair[first], own[first]
            self._w, self._evenly = lists[place].w[own], lists[place].evenly[own]

    def expect(self, likely: FloatArray) -> FloatArray:
        """Return what is expected given each value, from what is in each row."""
        if self._others is None:
            return likely
        return np.bincount(self._number, self._others * likely, self._w.size).astype(np.float64)

    def add(self, given: FloatArray, *, evenly: bool = False) -> FloatArray:
        """Add up what is expected given each value; `evenly`: if all are equally likely."""
        weights = self._evenly if evenly else self._w
        return np.bincount(self._pair, weights * given, self._n_pairs).astype(np.float64)


class KnownTypes(Protocol):
    """The types of records that a request tells apart, and what each of their cells tells."""

    @property
    def pieces(self) -> Pieces:
        """What the pieces mean."""

    @property
    def read(self) -> CellEvidence:
        """What each cell, and each value, tells."""

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return the numbers of the cells of some types, by the column, and their records."""

    def column(self, name: str) -> TriedColumn:
        """Return what is known of the cells of one column."""


def is_unknown(read: CellEvidence, marked: Sequence[int]) -> bool:
    """Whether more than half of a column's cells are suppressed."""
    of = [read.cells[place] for place in marked]
    return any(one.n[one.hidden].sum() > one.n.sum() / 2 for one in of)


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
