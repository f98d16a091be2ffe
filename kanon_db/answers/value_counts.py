"""Counts the records below many values of a column from one or two statements."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import accumulate
from math import isnan, sqrt
from typing import TYPE_CHECKING, Any, Final, Protocol, Self
from typing import Literal as OneOf

from kanon_db.answers.rows.coded_rows import (
    CellSums,
    TypeCounter,
    count_cells,
    from_types,
    key_of_values,
)
from kanon_db.answers.rows.evidence import KnownTypes
from kanon_db.answers.scope import OpenQuery
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Measure, Query
from kanon_db.query.formulas import Estimated, common_spelling
from kanon_db.query.layout import CellLayout, condition_on, parts_of
from kanon_db.query.sql import Request

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import BoolArray, FloatArray, IntArray
    from kanon_db.session.protocol import Row


# Counting below many values at once: from how many records of each cell of a column count.
#
# What is sure and possible follows from the least and the greatest value that a cell may stand for,
# compared as exact numbers; what is expected, from the shares of the values in it.


class SharesBelow(Protocol):
    """Of each cell, the share of its records whose value counts and is below a number."""

    def __call__(self, number: float, *, is_included: bool) -> FloatArray:
        """Return the shares; `is_included` counts the number itself, too."""


@dataclass(frozen=True, eq=False)
class ListedCells:
    """Values of cells, with shares."""

    cells: IntArray  # (n,): the cell of each value
    values: FloatArray  # (n,): the values, ascending
    shares: FloatArray  # (n,)
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
        """Return the shares; see :class:`SharesBelow`."""
        import numpy as np

        last = np.searchsorted(self.values, number, "right" if is_included else "left")
        sums = np.bincount(self.cells[:last], self.shares[:last], minlength=self.n_cells)
        return sums.astype(np.float64)


class RangeCells:
    """Ranges whose values are as likely as an axis tells, or evenly."""

    def __init__(self, rows: Sequence[Row], axis: Row | None, *, is_discrete: bool) -> None:
        import numpy as np

        def column(name: str, default: float) -> FloatArray:
            cells = (row[name] for row in rows)
            return np.array([default if x is None else float(x) for x in cells])

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
        """Return the shares; see :class:`SharesBelow`."""
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
        parts: FloatArray = np.where(self._below(self._low, number, is_included), part, 0.0)
        clipped: FloatArray = np.clip(parts, 0, 1)
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
        are_below: BoolArray = ends <= number if is_included else ends < number
        return are_below


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
        if at.is_nan():  # greater than all others, as PostgreSQL has it
            return len(self._ends)
        return (bisect_right if is_included else bisect_left)(self._ends, at)

    def sure(self, at: Decimal, *, is_included: bool, is_above: bool) -> FloatArray:
        """Sum what is sure of the cells below a number, or of those that are not."""
        place = self._upto(at, is_included=is_included)
        sums: FloatArray = self._sure[:, place]
        return self._sure[:, -1] - sums if is_above else sums

    def possible(self, at: Decimal, *, is_included: bool, is_above: bool) -> FloatArray:
        """Sum what is possible of the cells below a number, or of those that are not."""
        place = self._upto(at, is_included=is_included)
        sums: FloatArray = self._possible[:, place]
        return (self._possible[:, -1] - sums if is_above else sums) + self.anywhere


@dataclass
class _Sums:
    """Numbers in the order of values, and the sums of all before each."""

    pairs: list[tuple[float, float]] = field(default_factory=list)

    def in_order(self) -> Self:
        self.pairs.sort()
        self._values = [value for value, _ in self.pairs]
        self._sums = list(accumulate((n for _, n in self.pairs), initial=0.0))
        return self

    def below(self, number: float, *, is_included: bool) -> float:
        if isnan(number):  # greater than all others, as PostgreSQL has it
            return self.total
        return self._sums[(bisect_right if is_included else bisect_left)(self._values, number)]

    @property
    def total(self) -> float:
        return self._sums[-1]


class _GroupTotals:
    """What is known of one group."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.expected, self.surely_least, self.surely_most = _Sums(), _Sums(), _Sums()
        self.least, self.most = _Sums(), _Sums()
        self.anywhere = 0.0
        for row in rows:
            n = float(row["n"])
            if row["is_value"]:
                self.expected.pairs.append((row["least"], n))
            elif row["least"] is None or row["most"] is None:
                self.anywhere += n
            else:
                self.least.pairs.append((row["least"], n))
                self.most.pairs.append((row["most"], n))
                if row["surely"]:
                    self.surely_least.pairs.append((row["least"], n))
                    self.surely_most.pairs.append((row["most"], n))
        for sums in (
            self.expected, self.least, self.most, self.surely_least, self.surely_most
        ):  # fmt: skip
            sums.in_order()


def value_sums(
    opened: OpenQuery, request: Request, layout: CellLayout, most: int
) -> tuple[list[Row], float]:
    """Count the records with each value of what is summed, and between which values they are.

    `together`: See `kanon_db.query.likelihoods`.
    """
    # `rows`: Of each group (``group_key``), either how many records (``n``) are expected with a
    # value (``is_value``, ``least``); or how many have values between ``least`` and ``most``, None
    # where it could be anything, and whether they ``surely`` count.
    # Raises UnsupportedQueryError if there is too much to be listed or tried, or there are more
    # than `most` rows.
    import numpy as np

    names = [key.name for key in request.query.keys]

    def counted(types: KnownTypes) -> tuple[list[Row], float]:
        counter = TypeCounter(types, opened.session.heartbeat)
        expected: defaultdict[tuple[float, ...], float] = defaultdict(float)
        between: defaultdict[tuple[float, ...], float] = defaultdict(float)
        for codes, n in types.all():
            for chunk in counter.spread(codes, n):
                for key, records in _sum_by_keys([chunk.group, chunk.x], chunk.expected):
                    expected[key] += records
                ends = [np.nan_to_num(end, nan=np.inf) for end in (chunk.least, chunk.most)]
                for key, records in _sum_by_keys([chunk.of_group, *ends, chunk.surely], chunk.n):
                    between[key] += records
                opened.session.heartbeat()
                if len(expected) + len(between) > most:
                    raise opened.limits.too_many()

        def key_of(group: float) -> str:
            return key_of_values(names, counter.values(int(group))[1])

        rows: list[Row] = [
            {"group_key": key_of(group), "is_value": True, "surely": False, "least": x,
             "most": None, "n": records}
            for (group, x), records in expected.items()
        ]  # fmt: skip
        for (group, *ends_of, surely), records in between.items():
            least, most_ = (None if np.isinf(end) else end for end in ends_of)
            rows.append(
                {"group_key": key_of(group), "is_value": False, "surely": bool(surely),
                 "least": least, "most": most_, "n": records}
            )  # fmt: skip
        return rows, types.pieces.together

    return from_types(opened, request, layout, counted, lists_values=True)


def _sum_by_keys(keys: Sequence[Any], n: FloatArray) -> Iterator[tuple[tuple[float, ...], float]]:
    """Sum numbers by the keys that they have in common."""
    import numpy as np

    distinct, place = np.unique(np.column_stack(keys), axis=0, return_inverse=True)
    sums = np.bincount(place.reshape(-1), n, len(distinct)).tolist()
    yield from zip(map(tuple, distinct.tolist()), sums, strict=True)


class ValueCounts:
    """Counts the records of each group whose value lies below or above any number.

    The bounds are those of a statement for each value; the error is one of all records together.
    """

    def __init__(
        self, groups: dict[str, _GroupTotals], together: float, left_out: int, n_published: int
    ) -> None:
        self._groups, self._together = groups, together
        self._left_out, self._n_published = left_out, n_published

    @classmethod
    def of(cls, opened: OpenQuery, aggregate: ex.Aggregate) -> Self | None:
        """Read the sums; None if these are not rows of cells."""
        layout, most = opened.layout, opened.limits.n_answers
        if not isinstance(layout, CellLayout):
            return None
        summed = replace(aggregate, function="sum", share=None)
        request = Request(opened.query, summed, opened.lookups)
        rows, together = value_sums(opened, request, layout, most)
        by_group: dict[str, list[Row]] = {}
        for row in rows:
            by_group.setdefault(common_spelling(row["group_key"]), []).append(row)
        left_out = opened.publication.left_out
        return cls(
            {key: _GroupTotals(own) for key, own in by_group.items()},
            together,
            left_out, opened.publication.records - left_out,
        )  # fmt: skip

    def count(self, operator: ex.ComparisonOperator, number: str) -> dict[str, Estimated]:
        """Count the records of each group, by its key, whose value compares like that."""
        at, is_included = float(number), operator in ("<=", ">")
        return {
            key: self._count_below(group, at, is_included, is_above=operator in (">", ">="))
            for key, group in self._groups.items()
        }

    def _count_below(
        self, group: _GroupTotals, at: float, is_included: bool, *, is_above: bool
    ) -> Estimated:  # fmt: skip
        expected = group.expected.below(at, is_included=is_included)
        surely, possibly = group.surely_most, group.least
        if is_above:
            expected = group.expected.total - expected
            surely, possibly = group.surely_least, group.most
        lower, upper = (sums.below(at, is_included=is_included) for sums in (surely, possibly))
        if is_above:
            lower, upper = surely.total - lower, possibly.total - upper
        n = upper + group.anywhere
        p = min(max(expected / n, 0.0), 1.0) if n else 0.0
        error = sqrt(n * p * (1 - p) + (self._together * n) ** 2 * p * (1 - p))
        upper = n + self._left_out
        estimate = expected * (1 + self._left_out / max(self._n_published, 1))
        return Estimated(
            min(max(estimate, lower), upper), min(error, (upper - lower) / 2),
            round(lower), round(upper),
        )  # fmt: skip


MOST_SUMS: Final = 1_000_000
"""Groups times cells."""

_MOST_LISTED: Final = 200_000
"""Values that are listed of all cells together."""

_FEWEST_LISTED: Final = 5
_MOST_OF_A_CELL: Final = 1_000


@dataclass(frozen=True)
class _Split:
    """A condition, as what is on one column, and the rest."""

    column: str
    on_column: ex.Expression
    rest: ex.Expression | None
    is_plain: bool

    @classmethod
    def of(cls, query: Query, aggregate: ex.Aggregate) -> Self | None:
        """Split by the column that an aggregate is of; None if that is not possible."""
        operand = aggregate.operand
        if operand is None or len(ex.attributes(operand)) != 1:
            return None
        (column,) = ex.attributes(operand)
        parts = parts_of(condition_on(query, aggregate))
        own = [part for part in parts if ex.attributes(part) == {column}]
        rest = [part for part in parts if column not in ex.attributes(part)]
        has_lookup = any(
            one.lookup is not None for part in (operand, *own) for one in ex.columns(part)
        )
        in_keys = any(column in ex.attributes(key.expression) for key in query.keys)
        if has_lookup or in_keys or len(own) + len(rest) < len(parts):
            return None
        on_column = ex.joined(ex.And, [*own, ex.NullTest(operand, negated=True)])
        if on_column is None:
            raise TypeError("there is a condition at least")
        is_plain = isinstance(operand, ex.Column) and not own
        return cls(column, on_column, ex.joined(ex.And, rest), is_plain)


class CellCounts:
    """Counts the records of each group whose value lies below or above any number.

    The numbers are those of a statement for each value, up to the accuracy of the shares.
    """

    def __init__(
        self,
        sums: CellSums,
        values: Sequence[Row],
        below: SharesBelow,
        left_out: tuple[int, int],
    ) -> None:
        import numpy as np

        self._groups, self._sums = [common_spelling(group) for group in sums.groups], sums
        self._below, self._together = below, sums.together
        self._left_out, self._n_published = left_out
        self._is_unknown = sums.is_unknown
        suppressed = np.array([row["suppressed"] for row in values], dtype=bool)
        surely = np.array([row["st"] for row in values], dtype=bool) & ~suppressed
        possibly = np.array([row["pt"] for row in values], dtype=bool) | suppressed
        self._suppressed = suppressed
        self._kept: FloatArray = np.array([float(row["n"]) for row in values]) * ~suppressed
        self._whole = self._of_all(np.array([row["t"] for row in values], dtype=float))

        def ends(name: str) -> Ends:
            texts = [None if row["suppressed"] else row[name] for row in values]
            return Ends(texts, sums, surely, possibly)

        self._least, self._most = ends("least"), ends("most")

    @classmethod
    def of(cls, opened: OpenQuery, aggregate: ex.Aggregate) -> Self | None:
        """Read the sums; None where cells of one column alone do not decide.

        Also where there are more of them than the memory of a query holds.
        """
        layout, query, operand = opened.layout, opened.query, aggregate.operand
        split = _Split.of(query, aggregate) if isinstance(layout, CellLayout) else None
        if not isinstance(layout, CellLayout) or split is None:
            return None
        if operand is None or aggregate.type is None:
            return None
        count = ex.Aggregate("count", None)
        counted = Query(split.rest, query.keys, (Measure("", count),), listed=(0,))

        request = Request(counted, count, opened.lookups)
        sums = count_cells(opened, request, layout, split.column, MOST_SUMS)
        if sums is None:
            return None
        n_cells = sums.expected.shape[1]
        cell = layout.cells[split.column]
        is_range = split.is_plain and cell.kind == "range" and cell.mark is None
        n_listed = _MOST_LISTED // max(n_cells, 1)
        listed = None if is_range else min(max(n_listed, _FEWEST_LISTED), _MOST_OF_A_CELL)
        column = sums.column
        values = column.values(operand, split.on_column, aggregate.type, listed)
        below: SharesBelow
        if listed:
            below = ListedCells.of(values)
        else:
            below = RangeCells(values, column.axis(), is_discrete=cell.is_discrete)
        left_out = opened.publication.left_out
        try:
            return cls(
                sums, values, below, (left_out, opened.publication.records - left_out),
            )  # fmt: skip
        except ArithmeticError:
            return None

    def count(self, operator: ex.ComparisonOperator, number: str) -> dict[str, Estimated]:
        """Count the records of each group, by its key, whose value compares like that."""
        import numpy as np

        at, is_included = Decimal(number), operator in ("<=", ">")
        is_above, sums = operator in (">", ">="), self._sums
        shares = self._of_all(self._below(float(number), is_included=is_included))
        surely, possibly = self._most, self._least
        if is_above:
            shares = np.clip(self._whole - shares, 0, 1)
            surely, possibly = possibly, surely
        lower = surely.sure(at, is_included=is_included, is_above=is_above)
        upper = possibly.possible(at, is_included=is_included, is_above=is_above) + self._left_out
        expected = sums.expected * shares
        p = expected / np.maximum(sums.possible, 1e-12)
        variance = np.clip(p * (1 - p), 0, None)
        added = self._together * (sums.possible * sums.unknown * np.sqrt(variance)).sum(axis=1)
        error = np.sqrt((sums.possible * variance).sum(axis=1) + added**2)
        widest = (upper - lower) / 2
        error = widest if self._is_unknown else np.minimum(error, widest)
        estimate = expected.sum(axis=1) * (1 + self._left_out / max(self._n_published, 1))
        estimate = np.clip(estimate, lower, upper)
        columns = (estimate.tolist(), error.tolist(), lower.tolist(), upper.tolist())
        return {
            group: Estimated(one, off, round(least), round(most))
            for group, one, off, least, most in zip(self._groups, *columns, strict=True)
        }

    def _of_all(self, shares: FloatArray) -> FloatArray:
        """Take suppressed cells as those that are kept, all together."""
        import numpy as np

        kept = float(self._kept.sum())
        average = float(self._kept @ shares) / kept if kept else 0.0
        filled: FloatArray = np.where(self._suppressed, average, shares)
        return filled
