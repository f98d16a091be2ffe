"""Conditions that cut an axis into regions, and how much of a range they cover.

The constants of a condition are points; between two of them, and at each, it is true everywhere or
nowhere. It is what `kanon_db.query.cell_conditions` writes as multiranges.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers.evidence import Flags
from kanon_db.query import expressions as ex
from kanon_db.spark.answering.places import Place, place_of

_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_OPERATORS: Final = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq,
    "<>": operator.ne,
}  # fmt: skip


class Regions:
    """A condition on one column, which :func:`.can_cover` accepts.

    Parameters
    ----------
    condition : Expression
    column : Type
        Of the column.

    Attributes
    ----------
    of_null : bool or None
        Whether it is true of NULL.
    """

    def __init__(self, condition: ex.Expression, column: ex.Type) -> None:
        self._column = column
        constants = (part for part in ex.walk(condition) if isinstance(part, ex.Constant))
        self._points: list[Any] = sorted({self._place(constant) for constant in constants})
        self._is_true = self._found(condition)
        self.of_null = _of_null(condition)

    def truths(self, places: Sequence[Place | None]) -> tuple[Flags, Flags]:
        """Say for which values the condition is true, and for which false."""
        null = self.of_null
        found = [null if place is None else bool(self._is_true[self._region(place)])
                 for place in places]  # fmt: skip
        return (
            np.array([truth is True for truth in found], dtype=np.bool_),
            np.array([truth is False for truth in found], dtype=np.bool_),
        )

    def shares(
        self, lows: Sequence[Place], highs: Sequence[Place], *, is_discrete: bool
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
            n_covered = self._whole_upto(last, high) - self._whole_upto(first, low - 1, below=True)
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
        return place_of(constant.text or "", constant.type, self._column)

    def _region(self, place: Any) -> int:
        """Return the number of a place's region; even ones lie between points."""
        at = bisect_left(self._points, place)
        return 2 * at + (bisect_right(self._points, place, lo=at) > at)

    def _found(self, condition: ex.Expression) -> Flags:
        """Say in which regions a condition is true."""
        n, found = 2 * len(self._points) + 1, np.zeros(0, dtype=np.bool_)
        match condition:
            case ex.And(parts):
                found = np.logical_and.reduce([self._found(part) for part in parts])
            case ex.Or(parts):
                found = np.logical_or.reduce([self._found(part) for part in parts])
            case ex.Not(part):
                found = ~self._found(part)
            case ex.NullTest(_, negated):
                found = np.full(n, negated)
            case ex.Comparison(sign, ex.Column(), ex.Constant() as constant):
                found = self._compared(sign, constant)
            case ex.Comparison(sign, ex.Constant() as constant, ex.Column()):
                found = self._compared(_FLIPPED[sign], constant)
            case ex.Membership(_, items, negated):
                found = np.full(n, negated)
                for item in items:
                    if isinstance(item, ex.Constant):
                        found[self._region(self._place(item))] = not negated
            case ex.Range():
                found = self._found(ex.spelled_out(condition))
            case _:
                raise TypeError(f"{type(condition).__name__} cuts no axis")
        return found

    def _compared(self, sign: str, constant: ex.Constant) -> Flags:
        region, at = np.arange(2 * len(self._points) + 1), self._region(self._place(constant))
        found: Flags = _OPERATORS[sign](region, at)
        return found

    def _before(self) -> list[Fraction]:
        """Add up what is covered before each region, from the first point on."""
        found = [Fraction(0)]
        for region in range(2 * len(self._points)):
            is_inside = region > 0 and region % 2 == 0 and self._is_true[region]
            ends = self._points[region // 2 - 1 : region // 2 + 1] if is_inside else [0, 0]
            found.append(found[-1] + Fraction(ends[1]) - Fraction(ends[0]))
        return found

    def _length_upto(self, before: Sequence[Fraction], place: Any, region: int) -> Fraction:
        """Add up what is covered from the first point to a place in a region."""
        if region % 2 or not self._is_true[region]:
            return before[region]
        start = self._points[max(region // 2 - 1, 0)] if self._points else 0
        return before[region] + Fraction(place) - Fraction(start)

    def _whole_upto(self, region: IntArray, number: IntArray, *, below: bool = False) -> IntArray:
        """Count the whole numbers that are covered, up to each number.

        Parameters
        ----------
        region : ndarray of int64
            That of the number, or if `below`, of the next one.
        """
        if below:
            return self._whole_upto(region, number + 1) - self._is_true[region]
        first = [math.floor(self._points[0]) if self._points else 0]
        for point in self._points:  # where each region begins
            first += [math.ceil(point), math.floor(point) + 1]
        start = np.array(first, dtype=np.int64)
        n = np.append(np.diff(start), 0) * self._is_true
        before = np.cumsum(n) - n
        found: IntArray = before[region] + self._is_true[region] * (number - start[region] + 1)
        return found


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
