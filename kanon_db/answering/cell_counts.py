"""Counting below many values at once: from how many records of each range of a column count."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import accumulate
from math import sqrt
from typing import TYPE_CHECKING, Any, Self
from typing import Literal as OneOf

from kanon_db.answering.scope import OpenQuery
from kanon_db.counting import expressions as ex
from kanon_db.counting.answers import Estimated
from kanon_db.counting.checking import Measure, Query
from kanon_db.counting.layout import Cell, CellLayout
from kanon_db.counting.sides import chosen_by
from kanon_db.counting.writing import Request
from kanon_db.counting.writing.cell_totals import TOGETHER, TOGETHER_EVENLY
from kanon_db.counting.writing.spread import summed_attribute
from kanon_db.counting.writing.sure_cells import SureCellWriter

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import BoolArray, FloatArray
    from kanon_db.session.protocol import Row


class CellCounts:
    """Counts the records whose value lies below or above any number.

    The ranges of the column decide on what is sure and possible, and the shares of values in them
    on what is expected: the numbers are those of a statement for each value.
    """

    def __init__(self, opened: OpenQuery, cell: Cell, rows: Sequence[Row], axis: Row | None):
        import numpy as np

        self._cell, self._left_out = cell, opened.publication.left_out
        self._n_published = opened.publication.records - self._left_out
        self._anywhere = sum(float(row["possible"]) for row in rows if row["low"] is None)
        known = [row for row in rows if row["low"] is not None]
        self._ends = {end: _Ladder.of(known, end) for end in ("low", "high")}

        def column(name: str) -> FloatArray:
            return np.array([row[name] for row in known], dtype=float)

        self._low, self._high = column("low"), column("high")
        self._expected, self._number, self._u = map(column, ("expected", "possible", "u"))
        self._axis: tuple[FloatArray, FloatArray] | None = None
        if axis is not None:
            self._axis = (
                np.array(axis["points"], dtype=float),
                np.concatenate([[0.0], np.cumsum(axis["shares"])]),
            )
            self._own = np.nan_to_num(column("own"))
            first, last = (np.nan_to_num(column(name), nan=1) for name in ("first", "last"))
            self._before, self._last = first.astype(int) - 1, last.astype(int)

    @classmethod
    def of(cls, opened: OpenQuery, aggregate: ex.Aggregate) -> Self | None:
        """Read the sums; None where ranges of one column alone do not decide, or with groups.

        Also where there are more of them than the memory of a query holds.
        """
        layout, operand = opened.layout, aggregate.operand
        if opened.query.keys or not isinstance(layout, CellLayout):
            return None
        if not isinstance(operand, ex.Column):
            return None
        counted = replace(aggregate, function="sum", share=None)
        if summed_attribute(opened.query, counted, layout) is None:
            return None
        cell = layout.cells[operand.name]
        if cell.kind != "range" or cell.mark is not None or operand.type.category == "moment":
            return None
        count = ex.Aggregate("count", operand)
        query = Query(chosen_by(opened.query, aggregate), (), (Measure("", count),), listed=(0,))
        writer, most = (
            SureCellWriter(Request(query, count, opened.lookups), layout),
            opened.limits.n_answers,
        )
        written = writer.cell_sums(operand.name, most + 1)
        rows = opened.fetch(written.text, *written.bound)
        if len(rows) > most:
            return None
        axis: Any = None
        if cell.shares is not None:
            (axis,) = opened.fetch(
                f"SELECT s.points, s.shares FROM {layout.view.shares} AS s"
                " WHERE s.attribute = $1::text AND s.cell IS NULL",
                operand.name,
            )
        return cls(opened, cell, rows, axis)

    def count(self, operator: ex.ComparisonOperator, number: str) -> Estimated:
        """Count the records whose value compares like that with a number."""
        import numpy as np

        at, is_included = Decimal(number), operator in ("<=", ">")
        low, high = (self._ends[end].upto(at, is_included=is_included) for end in ("low", "high"))
        shares = self._shares(float(number), is_included=is_included)
        sure, possible = high.sure, low.possible
        if operator in (">", ">="):
            sure, possible = low.rest.sure, high.rest.possible
            shares = 1 - shares
        lower, upper = sure, possible + self._anywhere + self._left_out
        expected = self._expected * shares
        p = expected / np.maximum(self._number, 1e-12)
        variance = np.clip(p * (1 - p), 0, None)
        together = TOGETHER_EVENLY if self._axis is None else TOGETHER
        added = together * float((self._number * self._u * np.sqrt(variance)).sum())
        error = sqrt(float((self._number * variance).sum()) + added**2)
        estimate = float(expected.sum()) * (1 + self._left_out / max(self._n_published, 1))
        return Estimated(
            min(max(estimate, lower), upper), min(error, (upper - lower) / 2),
            round(lower), round(upper),
        )  # fmt: skip

    def _shares(self, number: float, *, is_included: bool) -> FloatArray:
        """Return which share of each range lies below a number."""
        import numpy as np

        if self._axis is None:
            part = self._evenly(number, is_included=is_included)
        else:
            points, upto = self._axis
            side: OneOf["left", "right"] = "right" if is_included else "left"
            reached = np.clip(np.searchsorted(points, number, side), self._before, self._last)
            base = np.maximum(upto[self._last] - upto[self._before], 1e-300)
            inside = (upto[reached] - upto[self._before]) / base
            ends = (self._below(end, number, is_included) for end in (self._low, self._high))
            part = self._own * sum(ends) + (1 - 2 * self._own) * inside
        part = np.where(self._below(self._high, number, is_included), 1.0, part)
        found: FloatArray = np.where(self._below(self._low, number, is_included), part, 0.0)
        clipped: FloatArray = np.clip(found, 0, 1)
        return clipped

    def _evenly(self, number: float, *, is_included: bool) -> FloatArray:
        import numpy as np

        if self._cell.is_discrete:
            last = np.floor(number) if is_included else np.ceil(number) - 1
            part: FloatArray = (last - self._low + 1) / (self._high - self._low + 1)
        else:
            part = (number - self._low) / np.maximum(self._high - self._low, 1e-300)
        return part

    @staticmethod
    def _below(ends: FloatArray, number: float, is_included: bool) -> BoolArray:
        found: BoolArray = ends <= number if is_included else ends < number
        return found


@dataclass(frozen=True)
class _Sums:
    """How many records surely count, and possibly, with the others."""

    sure: float
    possible: float
    others: tuple[float, float]

    @property
    def rest(self) -> _Sums:
        return _Sums(*self.others, (self.sure, self.possible))


@dataclass(frozen=True)
class _Ladder:
    """The sums of all ranges up to each of their ends, ascending; exact, as bounds must be."""

    ends: list[Decimal]
    sure: list[float]
    possible: list[float]

    @classmethod
    def of(cls, rows: Sequence[Row], end: str) -> Self:
        ordered = sorted(rows, key=lambda row: Decimal(row[end]))
        return cls(
            [Decimal(row[end]) for row in ordered],
            *(list(accumulate((float(row[n]) for row in ordered), initial=0.0))
              for n in ("sure", "possible")),
        )  # fmt: skip

    def upto(self, at: Decimal, *, is_included: bool) -> _Sums:
        place = (bisect_right if is_included else bisect_left)(self.ends, at)
        sure, possible = self.sure[place], self.possible[place]
        return _Sums(sure, possible, (self.sure[-1] - sure, self.possible[-1] - possible))
