"""Says what the cells of a column may stand for, and how likely a condition holds for each.

Values are numbers on an axis, which a condition cuts into regions; a cell is a range of the axis, a
set of values, or suppressed.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers.rows.evidence import Flags, Listing, NotReadError, Truths
from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import MOST_TABLED, MOST_VALUES, can_cover, may_fail
from kanon_db.query.expressions import Type
from kanon_db.query.layout import CellDescription
from kanon_db.query.layout import Shares as WhatIsKnown

# Values of columns as numbers on an axis, and as Arrow has them.
#
# Whole numbers are themselves, days count from 2000 on, points in time are microseconds: from 2000
# on, or from 1970 where they have a time zone, as in `kanon_db.query.cell_conditions`. Decimal
# numbers are exact.


AxisValue: TypeAlias = Any
"""A value on its column's axis: a whole number, a Decimal, or one of floating point."""

_FIRST_DAY: Final = date(2000, 1, 1)
_DAYS: Final = (_FIRST_DAY - date(1970, 1, 1)).days
_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_OFFSETS: Final = {
    "timestamp without time zone": _DAYS * _DAY, "timestamp with time zone": 0,
}  # fmt: skip
_EXACT: Final = Context(prec=80)
_QUOTIENT: Final = Decimal(1).scaleb(-20)
"""How PostgreSQL rounds the quotient of such small numbers."""


def axis_values(array: Any, type_: Type) -> list[AxisValue | None]:
    """Return where the values of an Arrow array are."""
    import pyarrow as pa

    if type_.name == "date":
        days = array.cast(pa.int32()).to_pylist()
        return [None if day is None else day - _DAYS for day in days]
    if type_.name in _OFFSETS:
        moments = array.cast(pa.int64()).to_pylist()
        return [None if one is None else one - _OFFSETS[type_.name] for one in moments]
    places = array.to_pylist()
    if type_.category == "float":
        return [None if one is None else float(one) for one in places]
    return list(places)


def array_of_axis_values(values: Sequence[AxisValue | None], type_: Type) -> Any:
    """Return the values at some places as Arrow has them."""
    import pyarrow as pa

    if type_.name == "date":
        days = [None if day is None else int(day) + _DAYS for day in values]
        return pa.array(days, pa.int32()).cast(pa.date32())
    if type_.name in _OFFSETS:
        zone = "UTC" if type_.name == "timestamp with time zone" else None
        moments = [None if one is None else int(one) + _OFFSETS[type_.name] for one in values]
        return pa.array(moments, pa.int64()).cast(pa.timestamp("us", zone))
    if type_.name == "numeric":
        known = [one for one in values if one is not None]
        return pa.array(values) if known else pa.array(values, pa.decimal128(1, 0))
    whole = {"smallint": pa.int16(), "integer": pa.int32(), "bigint": pa.int64()}
    if type_.name in whole:
        return pa.array([None if v is None else int(v) for v in values], whole[type_.name])
    return pa.array(values, pa.float32() if type_.name == "real" else pa.float64())


def array_of_texts(texts: Sequence[str | None], type_: Type) -> Any:
    """Return the values that the texts of sets stand for."""
    import pyarrow as pa

    if type_.category == "boolean":
        return pa.array([None if text is None else text == "t" for text in texts], pa.bool_())
    if type_.category in ("text", "label"):
        return pa.array(texts, pa.string())
    return array_of_axis_values(
        [None if text is None else axis_value_of_text(text, type_, type_) for text in texts], type_
    )


def axis_value_of_text(text: str, type_: Type, column: Type) -> Any:
    """Return where a constant is on the axis of a column; a fraction if it lies between values.

    `type_`: of the constant. `column`: of the column.
    """
    if column.category == "float":
        return float(text)
    if column.name == "numeric" and type_ is column:
        return Decimal(text)
    if column.category != "moment":
        number = Fraction(text)
        return int(number) if number.denominator == 1 else number
    if type_.name == "date":
        at = datetime.combine(date.fromisoformat(text), datetime.min.time(), tzinfo=UTC)
    else:
        at = datetime.fromisoformat(text).replace(tzinfo=UTC)
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    micros = since.days * _DAY + since.seconds * _SECOND + since.microseconds
    if column.name == "date":
        days = Fraction(micros, _DAY) - _DAYS
        return int(days) if days.denominator == 1 else days
    return micros - _OFFSETS[column.name]


def text_of_axis_value(place: AxisValue, type_: Type) -> str:
    """Write a number as :func:`~kanon_db.query.sql.number_text` does."""
    if isinstance(place, float):
        return repr(float(np.float32(place)) if type_.name == "real" else place)
    return f"{place:f}" if isinstance(place, Decimal) else str(place)


def coordinate(place: AxisValue, type_: Type) -> float:
    """Return a place as a number of floating point: points in time in seconds."""
    return float(place / _SECOND if type_.name in _OFFSETS else place)


def nearest_axis_value(at: float, type_: Type) -> AxisValue:
    """Return the value that is nearest to a coordinate, as PostgreSQL casts it."""
    if type_.name in _OFFSETS:
        return round(at * _SECOND)
    if type_.category == "float":
        return at
    if type_.name == "numeric":
        return Decimal(f"{at:.15g}")
    return round(at)


def axis_value_between(low: AxisValue, high: AxisValue, part: Fraction, type_: Type) -> AxisValue:
    """Return the value at a part of the way from one to another, as PostgreSQL calculates it."""
    if isinstance(low, float):
        return low + (high - low) * float(part)
    if type_.name in _OFFSETS:
        return round(low + (int(high) - int(low)) * float(part))
    at = _EXACT.divide(Decimal(part.numerator), Decimal(part.denominator))
    at = at.quantize(_QUOTIENT, ROUND_HALF_UP, _EXACT).normalize(_EXACT)
    found = _EXACT.fma(_EXACT.subtract(Decimal(high), Decimal(low)), at, Decimal(low))
    if type_.name == "numeric":
        return found
    return int(found.to_integral_value(ROUND_HALF_UP))


# Conditions that cut an axis into regions, and how much of a range they cover.
#
# The constants of a condition are points; between two of them, and at each, it is true everywhere
# or nowhere. It is what `kanon_db.query.cell_conditions` writes as multiranges.


_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_OPERATORS: Final = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq,
    "<>": operator.ne,
}  # fmt: skip


class AxisRegions:
    """A condition on one column, which :func:`.can_cover` accepts.

    `column`: of the column. `of_null`: whether it is true of NULL.
    """

    def __init__(self, condition: ex.Expression, column: ex.Type) -> None:
        self._column = column
        constants = (part for part in ex.walk(condition) if isinstance(part, ex.Constant))
        self._points: list[Any] = sorted({self._place(constant) for constant in constants})
        self._is_true = self._find_regions(condition)
        self.of_null = _of_null(condition)

    def truths(self, places: Sequence[AxisValue | None]) -> tuple[Flags, Flags]:
        """Say for which values the condition is true, and for which false."""
        null = self.of_null
        outcomes = [null if place is None else bool(self._is_true[self._region(place)])
                 for place in places]  # fmt: skip
        return (
            np.array([truth is True for truth in outcomes], dtype=np.bool_),
            np.array([truth is False for truth in outcomes], dtype=np.bool_),
        )

    def shares(
        self, lows: Sequence[AxisValue], highs: Sequence[AxisValue], *, is_discrete: bool
    ) -> tuple[FloatArray, Flags, Flags]:
        """Find which share of each range is covered, whether all of it is, and whether any of it.

        Both ends belong to a range.
        """
        if not lows:
            none = np.zeros(0, dtype=np.bool_)
            return np.zeros(0), none, none
        first = np.array([self._region(low) for low in lows], dtype=np.int64)
        last = np.array([self._region(high) for high in highs], dtype=np.int64)
        if is_discrete:
            low, high = (np.array(ends, dtype=np.int64) for ends in (lows, highs))
            n_covered = self._whole_upto(last, high) - self._whole_upto(
                first, low - 1, is_next=True
            )
            part = n_covered / (high - low + 1)
            return part, part == 1, part > 0
        n_true = np.concatenate([[0], np.cumsum(self._is_true)])
        inside = n_true[last + 1] - n_true[first]
        size = np.array([float(h - l) for l, h in zip(lows, highs, strict=True)])
        before = self._before()
        ends = ((lows, first.tolist()), (highs, last.tolist()))
        from_, upto = (
            [self._length_upto(before, *pair) for pair in zip(places, regions, strict=True)]
            for places, regions in ends
        )
        length = np.array([float(b - a) for a, b in zip(from_, upto, strict=True)])
        is_whole = inside == last + 1 - first
        part = np.where(size > 0, length / np.where(size > 0, size, 1), is_whole)
        return part, is_whole, inside > 0

    # -- regions ------------------------------------------------------------------------------

    def _place(self, constant: ex.Constant) -> Any:
        return axis_value_of_text(constant.text or "", constant.type, self._column)

    def _region(self, place: Any) -> int:
        """Return the number of a place's region; even ones lie between points."""
        at = bisect_left(self._points, place)
        return 2 * at + (bisect_right(self._points, place, lo=at) > at)

    def _find_regions(self, condition: ex.Expression) -> Flags:
        """Say in which regions a condition is true."""
        n, regions = 2 * len(self._points) + 1, np.zeros(0, dtype=np.bool_)
        match condition:
            case ex.And(parts):
                regions = np.logical_and.reduce([self._find_regions(part) for part in parts])
            case ex.Or(parts):
                regions = np.logical_or.reduce([self._find_regions(part) for part in parts])
            case ex.Not(part):
                regions = ~self._find_regions(part)
            case ex.NullTest(_, negated):
                regions = np.full(n, negated)
            case ex.Comparison(sign, ex.Column(), ex.Constant() as constant):
                regions = self._compare(sign, constant)
            case ex.Comparison(sign, ex.Constant() as constant, ex.Column()):
                regions = self._compare(_FLIPPED[sign], constant)
            case ex.Membership(_, items, negated):
                regions = np.full(n, negated)
                for item in items:
                    if isinstance(item, ex.Constant):
                        regions[self._region(self._place(item))] = not negated
            case ex.Range():
                regions = self._find_regions(ex.spell_out(condition))
            case _:
                raise TypeError(f"{type(condition).__name__} cuts no axis")
        return regions

    def _compare(self, sign: str, constant: ex.Constant) -> Flags:
        region, at = np.arange(2 * len(self._points) + 1), self._region(self._place(constant))
        flags: Flags = _OPERATORS[sign](region, at)
        return flags

    def _before(self) -> list[Fraction]:
        """Add up what is covered before each region, from the first point on."""
        sums = [Fraction(0)]
        for region in range(2 * len(self._points)):
            is_inside = region > 0 and region % 2 == 0 and self._is_true[region]
            ends = self._points[region // 2 - 1 : region // 2 + 1] if is_inside else [0, 0]
            sums.append(sums[-1] + Fraction(ends[1]) - Fraction(ends[0]))
        return sums

    def _length_upto(self, before: Sequence[Fraction], place: Any, region: int) -> Fraction:
        """Add up what is covered from the first point to a place in a region."""
        if region % 2 or not self._is_true[region]:
            return before[region]
        start = self._points[max(region // 2 - 1, 0)] if self._points else 0
        return before[region] + Fraction(place) - Fraction(start)

    def _whole_upto(self, region: IntArray, number: IntArray, *, is_next: bool = False) -> IntArray:
        """Count the whole numbers that are covered, up to each number.

        `region`: that of the number, or if `is_next`, of the next one.
        """
        if is_next:
            return self._whole_upto(region, number + 1) - self._is_true[region]
        first = [math.floor(self._points[0]) if self._points else 0]
        for point in self._points:  # where each region begins
            first += [math.ceil(point), math.floor(point) + 1]
        start = np.array(first, dtype=np.int64)
        n = np.append(np.diff(start), 0) * self._is_true
        before = np.cumsum(n) - n
        counts: IntArray = before[region] + self._is_true[region] * (number - start[region] + 1)
        return counts


def _of_null(condition: ex.Expression) -> bool | None:
    match condition:
        case ex.And(parts):
            truths = [_of_null(part) for part in parts]
            return False if False in truths else None if None in truths else True
        case ex.Or(parts):
            truths = [_of_null(part) for part in parts]
            return True if True in truths else None if None in truths else False
        case ex.Not(part):
            truth = _of_null(part)
            return None if truth is None else not truth
        case ex.NullTest(_, negated):
            return not negated
    return None


# The distinct cells of a column, and the values that each may stand for.
#
# What is listed is what `kanon_db.query.cell_conditions` writes as SQL.


_POINTS: Final = 100
"""How many points of a continuous range are listed."""

MOST_LISTED: Final = 400_000
"""Values that are listed of all cells of a column."""

Key: TypeAlias = Any
"""What a cell is known by: a tuple of a set's texts, or of a range's ends."""


@dataclass(frozen=True, eq=False)
class CellShares:
    """How often each value occurs in the cells of a column; see the table of shares."""

    kind: WhatIsKnown
    # The shares of a set's values, and of the records whose value is known
    of_sets: Mapping[Key, tuple[Sequence[float], float]]
    # The parts that a range covers, from 0, and the share of either end
    of_ranges: Mapping[Key, tuple[int, int, float]]
    upto: FloatArray  # (n_parts + 1,): the share of all records below each part of the axis
    points: Sequence[AxisValue]  # A value of each part

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
    """The distinct cells of a column."""

    cell: CellDescription
    n: IntArray  # (n_cells,): the records of each
    hidden: Flags  # (n_cells,): whether it is suppressed
    # What each is known by: of a range, its ends, or None for NULL, and ``(None, None)`` for
    # anything; of a set, its texts. Of values, nothing.
    keys: Sequence[Key]
    values: Any  # (n_cells,): of a column of values, these
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

    def listed(self, most: int = MOST_VALUES, *, with_shares: bool = True) -> ListedCellValues:
        """List the values that each cell may stand for; none of a suppressed one.

        Raises NotReadError if they are too many.
        """
        if self.cell.kind == "value":
            kept = np.flatnonzero(~self.hidden)
            none = np.full(kept.size, np.nan)
            w, is_open = np.ones(kept.size), np.zeros(kept.size, dtype=np.bool_)
            return ListedCellValues(
                self.values, kept, kept, w, is_open, none, none, are_values=True
            )
        shares = self.shares if with_shares else None
        own = self._of_range if self.cell.kind == "range" else self._of_set
        numbers: dict[Any, int] = {}
        rows: list[tuple[Any, ...]] = []
        for i, key in enumerate(self.keys):
            for v, *told in own(key, most, shares):
                rows.append((i, numbers.setdefault(v, len(numbers)), *told))
            if len(rows) > MOST_LISTED:
                raise NotReadError
        columns = list(zip(*rows, strict=True)) or [()] * 6
        type_ = self.cell.column.type
        build = array_of_axis_values if self.cell.kind == "range" else array_of_texts
        return ListedCellValues(
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
                at = axis_value_between(low, high, Fraction(2 * i + 1, 2 * n), type_)
                yield at, 1 / n, True, least, greatest
            return
        width = high - low + 1
        n = min(width, most)
        for i in range(n):
            at = i if width <= most else (2 * i + 1) * width // (2 * most)
            own = coordinate(low + at, type_)
            ends = (least, greatest) if width > most else (own, own)
            yield low + at, 1 / n, width > most, *ends

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
class ListedCellValues:
    """The values of cells, cell by cell."""

    values: Any  # The distinct ones
    cell: IntArray  # (n_listed,): the numbers of cells, ascending, and of values
    value: IntArray
    w: FloatArray  # The share of each among its cell's
    is_open: Flags  # Whether there are others in its place
    least: FloatArray  # What it stands for, of ranges
    most: FloatArray
    are_values: bool  # Whether it stands for itself

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


# How likely a condition on one column holds for each of its cells.
#
# It is what `kanon_db.query.cell_conditions` writes as SQL.


ConditionOutcomes = Callable[[Any], tuple[Flags, Flags]]
"""Says for which values of an Arrow array a condition is true, and for which false."""


def outcomes_of_cells(
    leaf: ex.Expression,
    own: ColumnCells,
    outcome_of: ConditionOutcomes,
    rarity: float,
    *,
    is_tabled: bool = True,
) -> Truths:
    """Find what each cell tells.

    Parameters
    ----------
    leaf : Expression
        A condition on this column only.
    own : ColumnCells
    outcome_of : callable
    rarity : float
        See :class:`~kanon_db.query.layout.CellLayout`.
    is_tabled : bool
        Whether all values of wide ranges are tried, as :mod:`kanon_db.query.cell_conditions`
        does, or only those that are listed.
    """
    if own.cell.kind == "range":
        return _of_ranges(leaf, own, outcome_of, is_tabled=is_tabled)
    listed = own.listed()
    truths = _of_listed(listed, *outcome_of(listed.values), own.n.size)
    if own.hidden.any():
        _add_hidden(truths, own, rarity)
    return truths


def _add_hidden(truths: Truths, own: ColumnCells, rarity: float) -> None:
    """Let suppressed cells meet the condition as those do that are kept, the rarer the more."""
    kept = own.n[~own.hidden] ** rarity
    for likely in (truths.true, truths.false):
        likely[own.hidden] = kept @ likely[~own.hidden] / kept.sum() if kept.size else 0.0
    for certain in (truths.surely, truths.surely_false):
        certain[own.hidden] = False
    for possible in (truths.possibly, truths.possibly_false):
        possible[own.hidden] = True


def _of_listed(listed: ListedCellValues, true: Flags, false: Flags, n_cells: int) -> Truths:
    """Add up the values that each cell may stand for."""

    def told(of_value: Flags) -> tuple[FloatArray, Flags, Flags]:
        own = of_value[listed.value]
        likely = np.bincount(listed.cell, listed.w * own, n_cells).astype(np.float64, copy=False)
        n_sure = np.bincount(listed.cell, own & ~listed.is_open, n_cells)
        possibly = np.bincount(listed.cell, own | listed.is_open, n_cells) > 0
        return likely, n_sure == n, possibly

    n = np.bincount(listed.cell, minlength=n_cells)
    (t, st, pt), (f, sf, pf) = told(true), told(false)
    return Truths(t, f, st, pt, sf, pf)


def _of_ranges(
    leaf: ex.Expression, own: ColumnCells, outcome_of: ConditionOutcomes, *, is_tabled: bool
) -> Truths:
    type_, shares = own.cell.column.type, own.shares
    regions = AxisRegions(leaf, type_) if can_cover(own.cell, leaf) else None
    inside = np.array(
        [i for i, key in enumerate(own.keys) if key not in (None, ANYTHING)], dtype=np.int64
    )
    lows, highs = ([own.keys[i][end] for i in inside] for end in (0, 1))
    points = [None] if shares is None else [None, *shares.points, *lows, *highs]
    if regions is not None:
        true, false = regions.truths(points)
    else:
        true, false = outcome_of(array_of_axis_values(points, type_))
    truths = _of_no_value(own, is_true=bool(true[0]), is_false=bool(false[0]))
    if not inside.size:
        return truths
    if regions is not None:
        part, is_whole, some = regions.shares(lows, highs, is_discrete=own.cell.is_discrete)
        likely = Truths(part, 1 - part, is_whole, some, ~some, ~is_whole)
    else:
        likely = _try_values(leaf, own, inside, outcome_of, is_tabled=is_tabled)
    if shares is not None:
        keys = [own.keys[i] for i in inside]
        likely = _share_axis(likely, shares, keys, (true[1:], false[1:]))
    for name in Truths.__match_args__:
        getattr(truths, name)[inside] = getattr(likely, name)
    return truths


def _of_no_value(own: ColumnCells, *, is_true: bool, is_false: bool) -> Truths:
    """Say what NULL tells, and what says nothing, which could be a NULL as well."""
    n = own.n.size
    truths = Truths(
        np.full(n, float(is_true)), np.full(n, float(is_false)),
        *(np.full(n, flag) for flag in (is_true, is_true, is_false, is_false)),
    )  # fmt: skip
    for certain in (truths.surely, truths.surely_false):
        certain[own.anything] = False
    for possible in (truths.possibly, truths.possibly_false):
        possible[own.anything] = True
    return truths


def _try_values(
    leaf: ex.Expression,
    own: ColumnCells,
    inside: IntArray,
    outcome_of: ConditionOutcomes,
    *,
    is_tabled: bool,
) -> Truths:
    """Try all values that any range has, or if they are too many, those that are listed."""
    keys = [own.keys[i] for i in inside]
    if is_tabled and own.cell.is_discrete and not may_fail(leaf):
        low, high = (np.array([key[end] for key in keys], dtype=np.int64) for end in (0, 1))
        first, n, n_of = int(low.min()), int(high.max() - low.min()) + 1, high - low + 1
        if n <= min(int(np.minimum(n_of, MOST_VALUES).sum()), MOST_TABLED):
            flags = outcome_of(array_of_axis_values(range(first, first + n), own.cell.column.type))
            upto = [np.append(0, np.cumsum(of_value)) for of_value in flags]
            t, f = (one[high - first + 1] - one[low - first] for one in upto)
            return Truths(t / n_of, f / n_of, t == n_of, t > 0, f == n_of, f > 0)
    listed = replace(own, n=own.n[inside], hidden=own.hidden[inside], keys=keys).listed(
        with_shares=False
    )
    return _of_listed(listed, *outcome_of(listed.values), inside.size)


def _share_axis(
    likely: Truths, shares: CellShares, keys: Sequence[Key], truths: tuple[Flags, Flags]
) -> Truths:
    """Put the shares of the parts of the axis that meet the condition in place of even ones.

    Parameters
    ----------
    likely : Truths
        If all values of a range are equally likely.
    shares : CellShares
    keys : sequence
        The ends of the ranges.
    truths : tuple of ndarray of bool, shape (n_parts + 2 n_cells,)
        Whether the condition is true, and false, for a value of each part, and for the lower and
        the upper ends.

    Notes
    -----
    What is certain is so for each value, while the axis has parts that lie in it by half.
    """
    known = [shares.of_ranges.get(key) for key in keys]
    first, last, own = (np.array([0 if one is None else one[k] for one in known]) for k in range(3))
    base = shares.upto[last + 1] - shares.upto[first]
    has_share = np.array([one is not None for one in known]) & (base != 0)
    p, n = np.diff(shares.upto), len(keys)
    found = []
    for of_value, even, surely, possibly in (
        (truths[0], likely.true, likely.surely, likely.possibly),
        (truths[1], likely.false, likely.surely_false, likely.possibly_false),
    ):
        upto = np.append(0.0, np.cumsum(p * of_value[: p.size]))
        at_ends = of_value[p.size : p.size + n].astype(int) + of_value[p.size + n :]
        inside = np.divide(upto[last + 1] - upto[first], base, out=np.zeros(n), where=has_share)
        share = np.where(has_share, own * at_ends + (1 - 2 * own) * inside, even)
        found.append(np.where(surely, 1.0, np.where(possibly, np.clip(share, 0, 1), 0.0)))
    return replace(likely, true=found[0], false=found[1])
