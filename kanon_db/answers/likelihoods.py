"""Says which values of cells are listed to answer a question, and how errors go together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.dataclasses import dataclass
from kanon_db.publications.rows.cell_columns import Flags, Truths
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Query, by_attribute
from kanon_db.query.layout import (
    CellDescription,
    CellLayout,
    condition_of,
    is_vague,
    parts_of,
)
from kanon_db.query.ranges import AXES, MOST_VALUES, may_fail
from kanon_db.query.sql import (
    Request,
    is_leaf,
    leaves,
    require_few,
)

MOST_GROUPED: Final = 100_000
"""The most values of a range that GROUP BY spreads out."""

_MOST_SPREAD: Final = 100_000
"""Combinations of values of several ranges, of all rows."""

_FEWEST: Final = 2
"""The least number of values to list of a wide range, where several are spread."""

WHOLE: Final = 0.999999999
"""Shares that add up to one, up to rounding."""


class JointCondition(ex.Expression):
    """A condition on columns that nothing else mentions: it has a list of values of its own."""

    condition: ex.Expression


@dataclass(frozen=True)
class Arranged:
    """A request's condition, and the columns that need a row for each value of a cell."""

    condition: ex.Expression | None  # Parts of it that are :class:`JointCondition` count as leaves
    spread: list[str]  # What all other parts, groups and sums need
    apart: list[str]  # What the parts that are :class:`JointCondition` need


def arrange(query: Query, aggregate: ex.Aggregate, layout: CellLayout) -> Arranged:
    """Find which columns need a row for each value that a cell may stand for, and where."""
    # The combinations of the values of many columns are too many. So conditions that have no column
    # in common are listed apart: they are taken as independent within a record anyway.
    condition = condition_of(query, aggregate)
    expressions = [key.expression for key in query.keys]
    is_summed = aggregate.operand is not None and aggregate.function not in ("count", "distinct")
    if is_summed and find_summed_column(query, aggregate, layout) is None:
        expressions += [aggregate.operand] if aggregate.operand is not None else []
    names = {name for expression in expressions for name in ex.attributes(expression)}
    names |= {
        column.attribute
        for expression in (*expressions, condition)
        for column in ex.columns(expression)
        if column.lookup is not None
    }
    apart = leaves(condition)
    require_few(len(set(apart)))
    if condition is None:
        return Arranged(None, _in_order(names, layout), [])
    put = _together(condition, frozenset(names), _linking(apart, layout), layout)
    rest = [leaf for leaf in leaves(put) if not isinstance(leaf, JointCondition)]
    names |= _find_listed(rest, layout)
    inner = [leaf.condition for leaf in leaves(put) if isinstance(leaf, JointCondition)]
    listed = {name for one in inner for name in _find_listed(leaves(one), layout)}
    return Arranged(put, _in_order(names, layout), _in_order(listed, layout))


def columns_to_list(condition: ex.Expression, layout: CellLayout) -> list[str]:
    """Return the columns of a condition that need a row for each value, taken by itself."""
    return _in_order(_find_listed(leaves(condition), layout), layout)


def _in_order(names: Collection[str], layout: CellLayout) -> list[str]:
    return [name for name, cell in layout.cells.items() if name in names and is_vague(cell)]


def _find_listed(apart: Sequence[ex.Expression], layout: CellLayout) -> set[str]:
    """Find the columns that a leaf compares with others, and those of several leaves."""
    names = {name for leaf in apart if len(ex.attributes(leaf)) > 1 for name in ex.attributes(leaf)}
    # A continuous range has points only, which leave its bounds open: better apart.
    n_leaves = Counter(name for leaf in apart for name in ex.attributes(leaf))
    names |= {name for name, n in n_leaves.items() if n > 1 and not _is_continuous(name, layout)}
    return {name for name in names if is_vague(layout.cells[name])}


def _is_continuous(name: str, layout: CellLayout) -> bool:
    cell = layout.cells[name]
    return cell.kind == "range" and not cell.is_discrete


def _linking(apart: Sequence[ex.Expression], layout: CellLayout) -> frozenset[str]:
    """Find the columns whose conditions belong together."""
    compared = {n for leaf in apart if len(ex.attributes(leaf)) > 1 for n in ex.attributes(leaf)}
    return frozenset(
        name
        for leaf in apart
        for name in ex.attributes(leaf)
        if is_vague(layout.cells[name]) and (name in compared or not _is_continuous(name, layout))
    )


def _together(
    condition: ex.Expression, whole: frozenset[str], linking: frozenset[str], layout: CellLayout
) -> ex.Expression:
    """Mark the parts that have no column in common with others, or with what all need."""

    def marked(part: ex.Expression) -> ex.Expression:
        is_own = not ex.attributes(part) & whole and _find_listed(leaves(part), layout)
        return JointCondition(part) if is_own else part

    def put(part: ex.Expression) -> ex.Expression:
        return _together(part, whole, linking, layout)

    if is_leaf(condition):
        return marked(condition)
    if not isinstance(condition, ex.And | ex.Or):
        return ex.rebuilt(condition, put)
    kind = type(condition)
    parts: list[ex.Expression] = []
    for group in _link(condition.parts, linking):
        joined = ex.joined(kind, group)
        if len(group) == 1:
            parts.append(put(group[0]))
        elif joined is not None and isinstance(both := marked(joined), JointCondition):
            parts.append(both)
        else:
            parts += group
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _link(parts: Sequence[ex.Expression], linking: frozenset[str]) -> list[list[ex.Expression]]:
    """Group parts that have such a column in common, directly or through others."""
    groups: list[tuple[frozenset[str], list[ex.Expression]]] = []
    for part in parts:
        names, members = ex.attributes(part) & linking, [part]
        for group in [group for group in groups if group[0] & names]:
            groups.remove(group)
            names, members = names | group[0], group[1] + members
        groups.append((names, members))
    return [members for _, members in groups]


def find_summed_column(query: Query, aggregate: ex.Aggregate, layout: CellLayout) -> str | None:
    """Return the column that is summed, if its cells alone decide on what it adds.

    That is so unless it is part of a condition or a group, too, or what is summed has others.
    """
    operand = aggregate.operand
    if operand is None or aggregate.function in ("count", "distinct"):
        return None
    names = ex.attributes(operand)
    if len(names) != 1 or any(column.lookup is not None for column in ex.columns(operand)):
        return None
    (name,) = names
    keys = [key.expression for key in query.keys]
    not_null = ex.NullTest(operand, negated=True)
    apart = [leaf for leaf in leaves(condition_of(query, aggregate)) if leaf != not_null]
    if not is_vague(layout.cells[name]):
        return None
    return name if all(name not in ex.attributes(part) for part in (*keys, *apart)) else None


def find_grouped_ranges(query: Query, layout: CellLayout) -> list[CellDescription]:
    """Return the columns of ranges that GROUP BY names; they must not be too wide."""
    names = {name for key in query.keys for name in ex.attributes(key.expression)}
    return [layout.cells[name] for name in sorted(names) if layout.cells[name].kind == "range"]


def most_listed(cells: Iterable[CellDescription], n_rows: int = 0) -> int:
    """Return how many values of a wide range are listed, so that combinations are not more.

    `n_rows`: of several ranges, the combinations of this many rows shall not be too many.
    """
    n_ranges = sum(cell.kind == "range" for cell in cells)
    if n_ranges <= 1:
        return MOST_VALUES
    of_row = min(MOST_VALUES, _MOST_SPREAD // max(n_rows, 1))
    return max(_FEWEST, int(of_row ** (1 / n_ranges)))


def accuracy_of(expression: ex.Expression, layout: CellLayout) -> str:
    """Say what is known of an expression, record by record."""
    cells = [layout.cells[name] for name in ex.attributes(expression)]
    if not any(map(is_vague, cells)):
        return "exact: the values are published as they are"
    if any(cell.mark is not None for cell in cells):
        return "estimated: a suppressed cell could be anything, likelier what is rare"
    kind = "range" if any(cell.kind == "range" for cell in cells) else "set"
    if all(cell.shares for cell in cells if is_vague(cell)):
        return f"estimated: each value of a {kind} is as likely as all cells together imply"
    return f"estimated: each value of a {kind} is as likely as the others"


OTHERWISE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}


def compares_ranges(leaf: ex.Expression, cells: Mapping[str, CellDescription]) -> bool:
    """Whether a condition compares two columns of ranges that stand on one axis."""
    match leaf:
        case ex.Comparison(_, ex.Column(lookup=None) as a, ex.Column(lookup=None) as b):
            left, right = cells[a.name], cells[b.name]
        case _:
            return False
    if any(cell.kind != "range" or cell.mark is not None for cell in (left, right)):
        return False
    # A number is rounded to compare it with one of floating point, so these have an axis of theirs.
    one, other = (AXES[cell.column.type.name].places for cell in (left, right))
    return one == other


def least_unknown(names: Collection[str], layout: CellLayout) -> float:
    """Return the least share u of records, of a question that mentions some columns."""
    cells = [layout.cells[name] for name in names]
    if not any(map(is_vague, cells)) or all(map(is_vague, cells)):
        return 0.0
    return DEPENDENT if all(cell.mark is None for cell in cells) else HIDDEN_DEPENDENT


def names_of(request: Request) -> set[str]:
    """Return the columns that a request mentions."""
    query, aggregate = request.query, request.aggregate
    operand = None if aggregate.function == "count" else aggregate.operand
    keys = (key.expression for key in query.keys)
    return {
        name
        for part in (condition_of(query, aggregate), *keys, operand)
        for name in ex.attributes(part)
    }


def apart_from_required(
    request: Request, layout: CellLayout, also: Collection[str] = ()
) -> tuple[Request, list[ex.Expression]]:
    """Take from a request what rows must meet whatever their cells stand for, and cannot fail.

    Nothing where cells are suppressed, or records left out, which are like all the others.
    """
    query, aggregate = request.query, request.aggregate
    needed = (*query.evaluated, aggregate.operand, aggregate.condition)
    names = {*also, *(name for part in needed for name in ex.attributes(part))}
    if layout.left_out or any(layout.cells[name].mark is not None for name in names):
        return request, []

    def is_required(part: ex.Expression) -> bool:
        is_known = not any(is_vague(layout.cells[name]) for name in ex.attributes(part))
        is_own = all(column.lookup is None for column in ex.columns(part))
        return is_known and is_own and not may_fail(part)

    required, rests = [], []
    for condition in (query.where, aggregate.condition):
        parts = parts_of(condition)
        required += [part for part in parts if is_required(part)]
        rests.append(ex.joined(ex.And, [part for part in parts if not is_required(part)]))
    where, condition = rests
    return (
        replace(
            request,
            query=query._replace(where=where),
            aggregate=replace(aggregate, condition=condition),
        ),
        required,
    )


# Which part of the records' errors adds up, where likelihoods of types of records make an answer.
#
# A record of a type is counted with a probability m. Were the errors of records independent, the
# variance of a count would be the sum of m (1 - m). But where a distribution is a little off, it is
# so for many records in the same direction: a part of their standard deviations adds up, column by
# column, since those of different columns are off by themselves. The same model, with x in place of
# 1, gives the errors of sums and averages. ``python -m benchmarks calibration`` measures how often
# the truth lies within the errors; docs/understand/estimation.md has the figures.


TOGETHER: Final = 0.5
"""Which part of the records' standard deviations adds up, of those whose values are not known."""

DEPENDENT: Final = 0.2
"""The least share of records of which nothing is known, where a question has columns whose values
are published, too: the others may depend on these, in the same direction in all cells."""

HIDDEN_DEPENDENT: Final = 0.3
"""The same, where cells are suppressed: these may depend on it more, as nothing bounds them."""


MISLED: Final = 0.8
"""How far shares that were learned may be off, as a part of how far they are from even ones."""


def error_of_sum(
    independent: float,  # The variance of records that are independent
    deviations: float,  # The standard deviations of those whose values are not known
    away: float,  # From learned shares to even ones
    widest: float,  # Half the distance between the bounds
) -> float:
    """Return the standard error of a sum over records, at most `widest`."""
    # An error of 0 says that an answer is exact: if only the bounds differ, nothing is known.
    common = TOGETHER * deviations
    if independent + common**2 <= 0:
        return widest
    return min(math.hypot(math.sqrt(independent), common, MISLED * away), widest)


Block = tuple[int, ...]
"""Columns whose values are looked at together: their shares are off together, others' are not."""


class Likely(NamedTuple):
    """The probabilities that a condition is true, and false; what is missing to 1 is unknown."""

    true: FloatArray
    false: FloatArray

    def opposite(self) -> Likely:
        """Swap true and false."""
        return Likely(self.false, self.true)

    def tell(self) -> Likely:
        """Return whether it is true: this is never unknown."""
        return Likely(self.true, 1 - self.true)

    def unknown(self) -> Likely:
        """Return whether it is unknown, which itself never is."""
        true = 1 - self.true - self.false
        return Likely(true, 1 - true)

    @staticmethod
    def every(parts: Iterable[Likely]) -> Likely:
        """Combine parts that are independent, of which all must hold."""
        true, possible = np.ones(1), np.ones(1)
        for part in parts:
            true, possible = true * part.true, possible * (1 - part.false)
        return Likely(true, 1 - possible)


ALWAYS: Final = Likely(np.ones(1), np.zeros(1))
NEVER: Final = ALWAYS.opposite()


class Alternatives(NamedTuple):
    """How likely a condition is if one block of columns has other shares than is estimated."""

    evenly: Likely  # If all values of each cell are equally likely
    most: Likely  # If it has the values by which the condition is the most, and the least, likely
    least: Likely

    def opposite(self) -> Alternatives:
        """Return those of the opposite."""
        return Alternatives(*(own.opposite() for own in (self.evenly, self.least, self.most)))


@dataclass(frozen=True, eq=False)
class Judgement:
    """What is known of a condition's truth: arrays of one shape, or of one element."""

    likely: Likely
    surely: Flags  # Whether it is true whatever the values are, and whether it is for some
    possibly: Flags
    surely_false: Flags  # The same of being false
    possibly_false: Flags
    blocks: Mapping[Block, Alternatives]  # Of the columns that it depends on

    @staticmethod
    def of(truths: Truths, block: Block) -> Judgement:
        """Take what the cells of some columns tell; `block` is empty if their values are known."""
        alternatives = Alternatives(Likely(truths.evenly, truths.evenly_false), ALWAYS, NEVER)
        return Judgement(
            Likely(truths.true, truths.false), truths.surely, truths.possibly,
            truths.surely_false, truths.possibly_false, {block: alternatives} if block else {},
        )  # fmt: skip

    def opposite(self) -> Judgement:
        """Swap true and false."""
        return Judgement(
            self.likely.opposite(), self.surely_false, self.possibly_false, self.surely,
            self.possibly, {block: own.opposite() for block, own in self.blocks.items()},
        )  # fmt: skip

    def test(self, wanted: str) -> Judgement:
        """Return whether it is, as `wanted`, true, false or unknown: this is known of each."""
        if wanted == "false":
            return self.opposite().test("true")
        is_unknown = wanted == "unknown"
        surely = ~(self.possibly | self.possibly_false) if is_unknown else self.surely
        possibly = ~(self.surely | self.surely_false) if is_unknown else self.possibly

        def tell(likely: Likely) -> Likely:
            return likely.unknown() if is_unknown else likely.tell()

        blocks = {
            # Neither what makes it true nor what makes it false tells when it is unknown.
            block: Alternatives(tell(own.evenly), ALWAYS, NEVER) if is_unknown
            else Alternatives(*map(tell, own))
            for block, own in self.blocks.items()
        }  # fmt: skip
        return Judgement(tell(self.likely), surely, possibly, ~possibly, ~surely, blocks)

    def at(self, index: IntArray) -> Judgement:
        """Take those at some places."""

        def take(own: Any) -> Any:
            return own if own.size == 1 else own.take(index)

        def take_both(likely: Likely) -> Likely:
            return Likely(*map(take, likely))

        return Judgement(
            take_both(self.likely), take(self.surely), take(self.possibly),
            take(self.surely_false), take(self.possibly_false),
            {block: Alternatives(*map(take_both, own)) for block, own in self.blocks.items()},
        )  # fmt: skip

    @staticmethod
    def every(parts: Sequence[Judgement]) -> Judgement:
        """Combine parts of which all must hold."""
        # Conditions on different columns are taken as independent within a record; what surely or
        # possibly holds follows from three-valued logic only.
        blocks = {
            block: Alternatives(
                *(
                    Likely.every(
                        part.blocks[block][number] if block in part.blocks else part.likely
                        for part in parts
                    )
                    for number in range(len(Alternatives._fields))
                )
            )
            for block in dict.fromkeys(block for part in parts for block in part.blocks)
        }
        return Judgement(
            Likely.every(part.likely for part in parts),
            _all([part.surely for part in parts]), _all([part.possibly for part in parts]),
            ~_all([~part.surely_false for part in parts]),
            ~_all([~part.possibly_false for part in parts]), blocks,
        )  # fmt: skip


def _all(flags: Sequence[Flags]) -> Flags:
    return reduce(np.logical_and, flags)


_CERTAIN: Final = Judgement(
    ALWAYS, np.array([True]), np.array([True]), np.array([False]), np.array([False]), {}
)
"""No condition at all."""


def judge(
    condition: ex.Expression | None, of_leaf: Callable[[ex.Expression], Judgement]
) -> Judgement:
    """Combine what is known of a condition's leaves."""

    def inner(part: ex.Expression) -> Judgement:
        return judge(part, of_leaf)

    if condition is None:
        return _CERTAIN
    if is_leaf(condition):
        return of_leaf(condition)
    match by_attribute(condition):
        case ex.And(parts):
            return Judgement.every([inner(part) for part in parts])
        case ex.Or(parts):
            return Judgement.every([inner(part).opposite() for part in parts]).opposite()
        case ex.Not(part):
            return inner(part).opposite()
        case ex.TruthTest(part, wanted, negated):
            truth = inner(part).test(wanted)
            return truth.opposite() if negated else truth
    raise TypeError(f"{type(condition).__name__} has no leaves")
