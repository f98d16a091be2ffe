"""Counts the records below many values of a column from one or two statements."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import accumulate
from math import sqrt
from typing import TYPE_CHECKING, Final, Protocol, Self
from typing import Literal as OneOf

from kanon_db.answers.coded_rows import OfCells, count_cells_with_classes
from kanon_db.answers.evidence_sql import CellSumWriter, SpreadSumWriter
from kanon_db.answers.scope import OpenQuery
from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import is_vague, labels, members_of, texts, values_of
from kanon_db.query.expressions import TEXT, Measure, Query
from kanon_db.query.formulas import Estimated, known_as
from kanon_db.query.layout import (
    BucketLayout,
    CellDescription,
    CellLayout,
    chosen_by,
    parts_of,
    side_of,
)
from kanon_db.query.likelihoods import most_listed
from kanon_db.query.sql import (
    Constants,
    Nested,
    Request,
    Select,
    Statement,
    Steps,
    joined_relations,
    speller,
    write,
)

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import BoolArray, FloatArray, IntArray
    from kanon_db.session.protocol import Row


# The values at which the number of records below a value can change, in their order.


MOST_RUNGS: Final = 4096
"""The most values that one statement returns: of more, some at equal distances."""


def rungs(
    request: Request,
    layout: BucketLayout | CellLayout,
    above: str | None = None,
    below: str | None = None,
) -> Statement:
    """Write the values that an aggregate's operand may have.

    Of a column of ranges, these are their ends; of an expression on ranges, some of its values.

    Parameters
    ----------
    request : Request
    layout : BucketLayout or CellLayout
    above, below : str, optional
        Only values between these, both included.

    Returns
    -------
    Statement
        Rows of ``rung`` (text) and ``place`` (double precision), ascending, and ``n``, how many
        there are in all.
    """
    operand, type_ = request.aggregate.operand, request.aggregate.type
    if operand is None or type_ is None:
        raise TypeError("the values of an operand are asked for")
    steps, constants = Steps(), Constants(request.literal)
    if isinstance(layout, BucketLayout):
        selects = [_over_buckets(operand, request, layout, constants)]
    else:
        selects = _over_cells(operand, request, layout, constants)
    steps.add("possible", "The values that there may be.", *selects)
    limits = ["p.v IS NOT NULL"]
    for sign, end in ((">=", above), ("<=", below)):
        if end is not None:
            limits.append(f"p.v {sign} {constants.write(ex.Constant(end, type_))}")
    steps.add(
        "numbered",
        "Each of them once, in their order.",
        Select(
            {
                "v": "d.v",
                "i": "row_number() OVER (ORDER BY d.v)",
                "n": "count(*) OVER ()",
            },
            [Nested([Select({"v": "p.v"}, ["possible AS p"], limits, ["1"])], "d")],
        ),
    )
    step = f"((n - 2) / {MOST_RUNGS} + 1)"
    steps.add(
        "rungs",
        f"No more than about {MOST_RUNGS}, with the first and the last.",
        Select(
            {"rung": f"(v::{type_.name})::text", "place": "v::float8", "n": "n", "i": "i"},
            ["numbered"],
            [f"((i - 1) % {step} = 0 OR i = n)"],
        ),
    )
    return Statement(f"{steps.write()}\nORDER BY i", constants.bound)


def _over_buckets(
    operand: ex.Expression, request: Request, layout: BucketLayout, constants: Constants
) -> Select:
    tables, side = layout.tables, side_of(operand, layout)
    if side is not None:
        alias, relation = "qs"[side], tables.sat if side else tables.qit
        source = joined_relations(relation, alias, [operand], request.lookups)
        return Select({"v": write(operand, speller(alias), constants)}, source)
    sensitive = layout.sensitive

    def spell(column: ex.Column) -> str:
        return speller("s" if column.name == sensitive.name else "q")(column)

    relation, *lookups = joined_relations(
        tables.qit, "q", [operand], request.lookups, {sensitive.name: f"s.{sensitive.sql}"}
    )
    bucket = tables.bucket_id
    pairs = f"JOIN {tables.sat} AS s ON s.{bucket} = q.{bucket}"
    return Select({"v": write(operand, spell, constants)}, [relation, pairs, *lookups])


def _over_cells(
    operand: ex.Expression, request: Request, layout: CellLayout, constants: Constants
) -> list[Select]:
    names = sorted(ex.attributes(operand))
    view, only = _distinct(layout, names[0], constants) if len(names) == 1 else (None, [])
    view = view or f"{layout.view.view} AS c"
    match operand:
        case ex.Column(lookup=None, name=name) if layout.cells[name].kind == "range":
            return _ends(layout.cells[name], view, only or _kept(layout, layout.cells[name]))
    vague = [name for name in names if is_vague(layout.cells[name])]
    listed = most_listed(layout.cells[name] for name in vague)
    values = {name: f"c.{layout.cells[name].column.sql}" for name in names}
    source: list[str | Nested] = [view]
    where = [*only]
    for place, name in enumerate(vague):
        cell = layout.cells[name]
        shown = f"c.{cell.column.sql}"
        if cell.labels is not None:
            json = f"{constants.write(ex.Constant(cell.labels, TEXT))}::jsonb"
            its = labels(json).write()
            source.append(f"LEFT JOIN ({its}) AS l{place} ON l{place}.label = {shown}")
            shown = members_of(shown, f"l{place}", texts(json).write())
        inner = values_of(cell, shown, listed)
        source.append(Nested(inner, f"x{place}", "CROSS JOIN LATERAL"))
        values[name] = f"x{place}.v"
        where += [] if only else _kept(layout, cell)

    def spell(column: ex.Column) -> str:
        return values[column.name] if column.lookup is None else speller("c")(column)

    _, *lookups = joined_relations(view, "c", [operand], request.lookups, values)
    return [Select({"v": write(operand, spell, constants)}, [*source, *lookups], where)]


def _distinct(layout: CellLayout, name: str, constants: Constants) -> tuple[str | None, list[str]]:
    """Read each cell of a column once, if its cells have numbers."""
    own, cell = layout.classes, layout.cells[name]
    if own is None or name not in own.columns:
        return None, []
    of_column = f"c.{own.attribute} = {constants.write(ex.Constant(name, TEXT))}"
    kept = [] if cell.mark is None else [f"NOT c.{own.hidden}"]
    return f"{own.table} AS c", [of_column, f"c.{own.codes} IS NULL", *kept]


def _kept(layout: CellLayout, cell: CellDescription) -> list[str]:
    if cell.mark is None:
        return []
    return [f"substr(c.{layout.view.pattern}, {cell.mark}, 1) <> '*'"]


def _ends(cell: CellDescription, view: str, where: list[str]) -> list[Select]:
    sql, type_ = f"c.{cell.column.sql}", cell.column.type.name
    upper = f"upper({sql}) - 1" if cell.is_discrete else f"upper({sql})"
    return [
        Select({"v": f"({end})::{type_}"}, [view], [*where, f"NOT {side}_inf({sql})"])
        for side, end in (("lower", f"lower({sql})"), ("upper", upper))
    ]


# Counting below many values at once: from how many records of each cell of a column count.
#
# What is sure and possible follows from the least and the greatest value that a cell may stand for,
# compared as exact numbers; what is expected, from the shares of the values in it.


class Below(Protocol):
    """Of each cell, the share of its records whose value counts and is below a number."""

    def __call__(self, number: float, *, is_included: bool) -> FloatArray:
        """Return the shares; `is_included` counts the number itself, too."""


@dataclass(frozen=True, eq=False)
class ListedCells:
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


class RangeCells:
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


# Counting below many values from one statement, where conditions mention a column with others.


@dataclass
class _Sums:
    """Numbers in the order of values, and the sums of all before each."""

    pairs: list[tuple[float, float]] = field(default_factory=list)

    def ordered(self) -> Self:
        self.pairs.sort()
        self._values = [value for value, _ in self.pairs]
        self._sums = list(accumulate((n for _, n in self.pairs), initial=0.0))
        return self

    def below(self, number: float, *, is_included: bool) -> float:
        return self._sums[(bisect_right if is_included else bisect_left)(self._values, number)]

    @property
    def total(self) -> float:
        return self._sums[-1]


class _Group:
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
            sums.ordered()


class ValueCounts:
    """Counts the records of each group whose value lies below or above any number.

    The bounds are those of a statement for each value; the error is one of all records together.
    """

    def __init__(
        self, groups: dict[str, _Group], together: float, left_out: int, n_published: int
    ) -> None:
        self._groups, self._together = groups, together
        self._left_out, self._n_published = left_out, n_published

    @classmethod
    def of(cls, opened: OpenQuery, aggregate: ex.Aggregate) -> Self | None:
        """Read the sums; None if these are not rows of cells, or memory does not hold the sums."""
        layout, most = opened.layout, opened.limits.n_answers
        if not isinstance(layout, CellLayout):
            return None
        summed = replace(aggregate, function="sum", share=None)
        request = Request(opened.query, summed, opened.lookups)
        rows: Sequence[Row] = opened.value_sums(request, layout, most + 1)
        if len(rows) > most:
            return None
        by_group: dict[str, list[Row]] = {}
        for row in rows:
            by_group.setdefault(known_as(row["group_key"]), []).append(row)
        left_out = opened.publication.left_out
        return cls(
            {key: _Group(own) for key, own in by_group.items()},
            SpreadSumWriter(request, layout).together(),
            left_out, opened.publication.records - left_out,
        )  # fmt: skip

    def count(self, operator: ex.ComparisonOperator, number: str) -> dict[str, Estimated]:
        """Count the records of each group, by its key, whose value compares like that."""
        at, is_included = float(number), operator in ("<=", ">")
        return {
            key: self._counted(group, at, is_included, is_above=operator in (">", ">="))
            for key, group in self._groups.items()
        }

    def _counted(
        self, group: _Group, at: float, is_included: bool, *, is_above: bool
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


# Counting below many values from two statements, where a column's cells decide.


_MOST_SUMS: Final = 1_000_000
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
        parts = parts_of(chosen_by(query, aggregate))
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
        groups: Sequence[str],
        sums: CellSums,
        values: Sequence[Row],
        below: Below,
        together: float,
        left_out: tuple[int, int],
        is_unknown: bool,
    ) -> None:
        import numpy as np

        self._groups, self._sums = [known_as(group) for group in groups], sums
        self._below, self._together = below, together
        self._left_out, self._n_published = left_out
        self._is_unknown = is_unknown
        suppressed = np.array([row["suppressed"] for row in values], dtype=bool)
        surely = np.array([bool(row["st"]) for row in values]) & ~suppressed
        possibly = np.array([bool(row["pt"]) for row in values]) | suppressed
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

        request, most = Request(counted, count, opened.lookups), opened.limits.n_answers
        numbered = count_cells_with_classes(opened, request, split.column, _MOST_SUMS)
        if numbered is None:
            own = CellSumWriter(request, layout, split.column)
            written = own.sums(most + 1)
            rows = opened.fetch(written.text, *written.bound)
            n_cells = len({(row["cell_key"], row["suppressed"]) for row in rows})
            groups = list(dict.fromkeys(row["group_key"] for row in rows))
            together, is_unknown = own.together(), any(row["is_unknown"] for row in rows)
            if len(rows) > most or n_cells * len(groups) > _MOST_SUMS:
                return None
        else:
            groups, n_cells = numbered.groups, numbered.expected.shape[1]
            together, is_unknown = numbered.together, numbered.is_unknown
        cell = layout.cells[split.column]
        is_range = split.is_plain and cell.kind == "range" and cell.mark is None
        n_listed = _MOST_LISTED // max(n_cells, 1)
        listed = None if is_range else min(max(n_listed, _FEWEST_LISTED), _MOST_OF_A_CELL)
        column = opened.column(request, layout, split.column)
        values = column.values(
            operand, split.on_column, aggregate.type, listed, is_numbered=numbered is not None
        )
        below: Below
        if listed:
            below = ListedCells.of(values)
        else:
            below = RangeCells(values, column.axis(), is_discrete=cell.is_discrete)
        sums = _gathered(rows, groups, values) if numbered is None else _in_order(numbered, values)
        left_out = opened.publication.left_out
        try:
            return cls(
                groups, sums, values, below, together,
                (left_out, opened.publication.records - left_out), is_unknown,
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
        found: FloatArray = np.where(self._suppressed, average, shares)
        return found


def _gathered(rows: Sequence[Row], groups: Sequence[str], values: Sequence[Row]) -> CellSums:
    import numpy as np

    places = {(row["cell_key"], row["suppressed"]): at for at, row in enumerate(values)}
    numbers = {group: at for at, group in enumerate(groups)}
    at = (
        np.array([numbers[row["group_key"]] for row in rows], dtype=int),
        np.array([places[row["cell_key"], row["suppressed"]] for row in rows], dtype=int),
    )

    def table(name: str) -> FloatArray:
        found = np.zeros((len(groups), len(values)))
        found[at] = [row[name] for row in rows]
        return found

    return CellSums(*map(table, ("expected", "sure", "possible", "u")))


def _in_order(counted: OfCells, values: Sequence[Row]) -> CellSums:
    """Put the numbers of cells in the order of their values."""
    at = [int(row["cell_key"]) for row in values]
    return CellSums(
        counted.expected[:, at], counted.sure[:, at], counted.possible[:, at],
        counted.unknown[:, at],
    )  # fmt: skip
