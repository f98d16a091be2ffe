"""Counting below many values at once: from how many records of each cell of a column count.

What is sure and possible follows from the least and the greatest value that a cell may stand for,
compared as exact numbers; what is expected, from the shares of the values in it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol, Self
from typing import Literal as OneOf

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import BoolArray, FloatArray, IntArray
    from kanon_db.session.protocol import Row


class Below(Protocol):
    """Of each cell, the share of its records whose value counts and is below a number."""

    def __call__(self, number: float, *, is_included: bool) -> FloatArray:
        """Return the shares; `is_included` counts the number itself, too."""


@dataclass(frozen=True, eq=False)
class Listed:
    """Values of cells, with shares.

    Attributes
    ----------
    cells : ndarray of int64, shape (n,)
        The cell of each value.
    values : ndarray of float64, shape (n,)
        The values, ascending.
    shares : ndarray of float64, shape (n,)
    n_cells : int
    """

    cells: IntArray
    values: FloatArray
    shares: FloatArray
    n_cells: int

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Self:
        """Read the arrays of each cell; those of a suppressed one are all others together."""
        import numpy as np

        sizes = [len(row["xs"] or ()) for row in rows]
        cells = np.repeat(np.arange(len(rows)), sizes)
        values = np.array([x for row in rows for x in row["xs"] or ()], dtype=float)
        shares = np.array([w for row in rows for w in row["ws"] or ()], dtype=float)
        # Of values that do not count, nothing is listed: those that do weigh what is known of them.
        listed = np.bincount(cells, shares, minlength=len(rows))
        t = np.array([row["t"] for row in rows], dtype=float)
        shares = shares * (t / np.where(listed > 0, listed, 1))[cells]
        order = np.argsort(values, kind="stable")
        return cls(cells[order], values[order], shares[order], len(rows))

    def __call__(self, number: float, *, is_included: bool) -> FloatArray:
        """Return the shares; see :class:`Below`."""
        import numpy as np

        last = np.searchsorted(self.values, number, "right" if is_included else "left")
        below = np.bincount(self.cells[:last], self.shares[:last], minlength=self.n_cells)
        return below.astype(np.float64)


class Ranges:
    """Ranges whose values are as likely as an axis tells, or evenly."""

    def __init__(self, rows: Sequence[Row], axis: Row | None, *, is_discrete: bool) -> None:
        import numpy as np

        def column(name: str, default: float) -> FloatArray:
            found = (row[name] for row in rows)
            return np.array([default if x is None else float(x) for x in found])

        self._is_discrete = is_discrete
        # Ranges that say nothing, and NULLs, have no part below anything.
        self._low, self._high = column("least", np.inf), column("most", np.inf)
        self._low[np.isinf(self._low) & np.isfinite(self._high)] = -np.inf
        self._axis: tuple[FloatArray, FloatArray] | None = None
        if axis is not None:
            self._axis = (
                np.array(axis["points"], dtype=float),
                np.concatenate([[0.0], np.cumsum(axis["shares"])]),
            )
            self._own = column("own", 0)
            self._before = column("first", 1).astype(int) - 1
            self._last = column("last", 1).astype(int)

    def __call__(self, number: float, *, is_included: bool) -> FloatArray:
        """Return the shares; see :class:`Below`."""
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

        low, high = self._low, np.where(np.isfinite(self._high), self._high, self._low)
        low = np.where(np.isfinite(low), low, high)
        low, high = (np.where(np.isfinite(end), end, 0) for end in (low, high))
        if self._is_discrete:
            last = np.floor(number) if is_included else np.ceil(number) - 1
            part: FloatArray = (last - low + 1) / (high - low + 1)
        else:
            part = (number - low) / np.maximum(high - low, 1e-300)
        return part

    @staticmethod
    def _below(ends: FloatArray, number: float, is_included: bool) -> BoolArray:
        found: BoolArray = ends <= number if is_included else ends < number
        return found


@dataclass(frozen=True, eq=False)
class CellSums:
    """How many records of each group, a row, have each distinct cell, a column, and count.

    Attributes
    ----------
    expected, sure, possible, unknown : ndarray of float64, shape (n_groups, n_cells)
        Whether they count for all that is not about the column; of `unknown`, the share of which
        nothing is known.
    """

    expected: FloatArray
    sure: FloatArray
    possible: FloatArray
    unknown: FloatArray


class Ends:
    """The least or the greatest values of cells in their order, with sums of all before them.

    Parameters
    ----------
    texts : sequence of str or None
        Exact numbers; None where a value could be anything.
    sums : CellSums
    surely, possibly : ndarray of bool, shape (n_cells,)
        Whether a record with the cell counts, if its value does.

    Raises
    ------
    ArithmeticError
        Where there are values that are no numbers.
    """

    def __init__(
        self, texts: Sequence[str | None], sums: CellSums, surely: BoolArray, possibly: BoolArray
    ) -> None:
        import numpy as np

        known = [(Decimal(text), at) for at, text in enumerate(texts) if text is not None]
        if any(end.is_nan() for end, _ in known):
            raise ArithmeticError("not a number")
        known.sort()
        order = np.array([at for _, at in known], dtype=int)
        self._ends = [end for end, _ in known]
        self._sure, self._possible = (
            np.cumsum(np.pad((numbers * counts)[:, order], ((0, 0), (1, 0))), axis=1)
            for numbers, counts in ((sums.sure, surely), (sums.possible, possibly))
        )
        is_known = np.zeros(len(texts), dtype=bool)
        is_known[order] = True
        self.anywhere: FloatArray = (sums.possible * (possibly & ~is_known)).sum(axis=1)

    def _upto(self, at: Decimal, *, is_included: bool) -> int:
        return (bisect_right if is_included else bisect_left)(self._ends, at)

    def sure(self, at: Decimal, *, is_included: bool, is_above: bool) -> FloatArray:
        """Sum what is sure of the cells below a number, or of those that are not."""
        place = self._upto(at, is_included=is_included)
        below: FloatArray = self._sure[:, place]
        return self._sure[:, -1] - below if is_above else below

    def possible(self, at: Decimal, *, is_included: bool, is_above: bool) -> FloatArray:
        """Sum what is possible of the cells below a number, or of those that are not."""
        place = self._upto(at, is_included=is_included)
        below: FloatArray = self._possible[:, place]
        return (self._possible[:, -1] - below if is_above else below) + self.anywhere
