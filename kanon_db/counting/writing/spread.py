"""Columns of cells that need a row for each value that a cell may stand for, and how many rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kanon_db.counting import expressions as ex
from kanon_db.counting.checking.query import Query
from kanon_db.counting.layout import Cell, CellLayout
from kanon_db.counting.sides import condition_of
from kanon_db.counting.writing.cell_values import MOST_VALUES, is_vague
from kanon_db.counting.writing.truth import is_leaf, leaves, require_few

MOST_GROUPED: Final = 20_000
"""The most values of a range that GROUP BY spreads out."""

_MOST_SPREAD: Final = 100_000
"""Combinations of values of several ranges, of all rows."""

_FEWEST: Final = 2
"""The least number of values to list of a wide range, where several are spread."""


class Together(ex.Expression):
    """A condition on columns that nothing else mentions: it has a list of values of its own."""

    condition: ex.Expression


@dataclass(frozen=True, slots=True)
class Arranged:
    """A request's condition, and the columns that need a row for each value of a cell.

    Attributes
    ----------
    condition : Expression or None
        Parts of it that are :class:`Together` count as leaves.
    spread : list of str
        What all other parts, groups and sums need.
    apart : list of str
        What the parts that are :class:`Together` need.
    """

    condition: ex.Expression | None
    spread: list[str]
    apart: list[str]


def arranged(query: Query, aggregate: ex.Aggregate, layout: CellLayout) -> Arranged:
    """Find which columns need a row for each value that a cell may stand for, and where.

    The combinations of the values of many columns are too many. So conditions that have no column
    in common are listed apart: they are taken as independent within a record anyway.
    """
    condition = condition_of(query, aggregate)
    whole = [key.expression for key in query.keys]
    is_summed = aggregate.operand is not None and aggregate.function not in ("count", "distinct")
    if is_summed and summed_attribute(query, aggregate, layout) is None:
        whole += [aggregate.operand] if aggregate.operand is not None else []
    found = {name for expression in whole for name in ex.attributes(expression)}
    found |= {
        column.attribute
        for expression in (*whole, condition)
        for column in ex.columns(expression)
        if column.lookup is not None
    }
    apart = leaves(condition)
    require_few(len(set(apart)))
    if condition is None:
        return Arranged(None, _in_order(found, layout), [])
    put = _together(condition, frozenset(found), _linking(apart, layout), layout)
    rest = [leaf for leaf in leaves(put) if not isinstance(leaf, Together)]
    found |= _listed(rest, layout)
    inner = [leaf.condition for leaf in leaves(put) if isinstance(leaf, Together)]
    listed = {name for one in inner for name in _listed(leaves(one), layout)}
    return Arranged(put, _in_order(found, layout), _in_order(listed, layout))


def listed_within(condition: ex.Expression, layout: CellLayout) -> list[str]:
    """Return the columns of a condition that need a row for each value, taken by itself."""
    return _in_order(_listed(leaves(condition), layout), layout)


def _in_order(names: Collection[str], layout: CellLayout) -> list[str]:
    return [name for name, cell in layout.cells.items() if name in names and is_vague(cell)]


def _listed(apart: Sequence[ex.Expression], layout: CellLayout) -> set[str]:
    """Find the columns that a leaf compares with others, and those of several leaves."""
    found = {name for leaf in apart if len(ex.attributes(leaf)) > 1 for name in ex.attributes(leaf)}
    # A continuous range has points only, which leave its bounds open: better apart.
    n_leaves = Counter(name for leaf in apart for name in ex.attributes(leaf))
    found |= {name for name, n in n_leaves.items() if n > 1 and not _is_continuous(name, layout)}
    return {name for name in found if is_vague(layout.cells[name])}


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
        is_own = not ex.attributes(part) & whole and _listed(leaves(part), layout)
        return Together(part) if is_own else part

    def put(part: ex.Expression) -> ex.Expression:
        return _together(part, whole, linking, layout)

    if is_leaf(condition):
        return marked(condition)
    if not isinstance(condition, ex.And | ex.Or):
        return ex.rebuilt(condition, put)
    kind = type(condition)
    parts: list[ex.Expression] = []
    for group in _linked(condition.parts, linking):
        joined = ex.joined(kind, group)
        if len(group) == 1:
            parts.append(put(group[0]))
        elif joined is not None and isinstance(both := marked(joined), Together):
            parts.append(both)
        else:
            parts += group
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _linked(parts: Sequence[ex.Expression], linking: frozenset[str]) -> list[list[ex.Expression]]:
    """Group parts that have such a column in common, directly or through others."""
    groups: list[tuple[frozenset[str], list[ex.Expression]]] = []
    for part in parts:
        names, members = ex.attributes(part) & linking, [part]
        for group in [group for group in groups if group[0] & names]:
            groups.remove(group)
            names, members = names | group[0], group[1] + members
        groups.append((names, members))
    return [members for _, members in groups]


def summed_attribute(query: Query, aggregate: ex.Aggregate, layout: CellLayout) -> str | None:
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
    others = [key.expression for key in query.keys]
    not_null = ex.NullTest(operand, negated=True)
    apart = [leaf for leaf in leaves(condition_of(query, aggregate)) if leaf != not_null]
    if not is_vague(layout.cells[name]):
        return None
    return name if all(name not in ex.attributes(part) for part in (*others, *apart)) else None


def grouped_ranges(query: Query, layout: CellLayout) -> list[Cell]:
    """Return the columns of ranges that GROUP BY names; they must not be too wide."""
    names = {name for key in query.keys for name in ex.attributes(key.expression)}
    return [layout.cells[name] for name in sorted(names) if layout.cells[name].kind == "range"]


def most_listed(cells: Iterable[Cell], n_rows: int = 0) -> int:
    """Return how many values of a wide range are listed, so that combinations are not more.

    Parameters
    ----------
    cells : iterable of Cell
    n_rows : int
        Of several ranges, the combinations of this many rows shall not be too many.
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
