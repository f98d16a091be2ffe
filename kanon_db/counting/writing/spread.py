"""Columns of cells that need a row for each value that a cell may stand for, and how many rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from kanon_db.counting import expressions as ex
from kanon_db.counting.checking.query import Query
from kanon_db.counting.layout import Cell, CellLayout
from kanon_db.counting.sides import condition_of
from kanon_db.counting.writing.cell_values import MOST_VALUES, is_vague
from kanon_db.counting.writing.truth import leaves, require_few

MOST_GROUPED: Final = 20_000
"""The most values of a range that GROUP BY spreads out."""

_MOST_SPREAD: Final = 100_000
"""Combinations of values of several ranges, of all rows."""

_FEWEST: Final = 5
"""The least number of values to list of a wide range, where several are spread."""


def spread_attributes(query: Query, aggregate: ex.Aggregate, layout: CellLayout) -> list[str]:
    """Return the columns that need a row for each value that a cell may stand for."""
    condition = condition_of(query, aggregate)
    whole = [key.expression for key in query.keys]
    is_summed = aggregate.operand is not None and aggregate.function not in ("count", "distinct")
    if is_summed and summed_attribute(query, aggregate, layout) is None:
        whole += [aggregate.operand] if aggregate.operand is not None else []
    apart = leaves(condition)
    require_few(len(set(apart)))
    whole += [leaf for leaf in apart if len(ex.attributes(leaf)) > 1]
    found = {name for expression in whole for name in ex.attributes(expression)}
    found |= {
        column.attribute
        for expression in (*whole, condition)
        for column in ex.columns(expression)
        if column.lookup is not None
    }
    # A continuous range has points only, which leave its bounds open: better apart.
    n_leaves = Counter(name for leaf in apart for name in ex.attributes(leaf))
    found |= {
        name
        for name, cell in layout.cells.items()
        if (cell.kind != "range" or cell.is_discrete) and n_leaves[name] > 1
    }
    return [name for name, cell in layout.cells.items() if name in found and is_vague(cell)]


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
        return "estimated: a suppressed cell could be anything, as often as the cells kept"
    kind = "range" if any(cell.kind == "range" for cell in cells) else "set"
    if all(cell.shares for cell in cells if is_vague(cell)):
        return f"estimated: each value of a {kind} is as likely as all cells together imply"
    return f"estimated: each value of a {kind} is as likely as the others"
