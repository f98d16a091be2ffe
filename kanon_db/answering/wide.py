"""Columns of ranges with too many values to list all of them."""

from __future__ import annotations

from kanon_db.answering.scope import OpenQuery
from kanon_db.counting.layout import Cell, CellLayout
from kanon_db.counting.refusals import refusal
from kanon_db.counting.writing.spread import MOST_GROUPED, grouped_ranges


def is_wide(opened: OpenQuery, layout: CellLayout, cell: Cell) -> bool:
    """Whether a cell of a column of discrete ranges has too many values, or says nothing."""
    name, classes = cell.column.sql, layout.classes
    source, bound = f"{layout.view.view} AS c", []
    if classes is not None and cell.column.name in classes.columns:  # each cell once
        source = f"{classes.table} AS c WHERE c.{classes.attribute} = $1::text"
        bound = [cell.column.name]
    (row,) = opened.fetch(
        f"SELECT coalesce(max(upper(c.{name}) - lower(c.{name})), 0) > {MOST_GROUPED}"
        f" OR coalesce(bool_or(lower_inf(c.{name}) OR upper_inf(c.{name})), false) AS wide"
        f" FROM {source}",
        *bound,
    )
    return bool(row["wide"])


def refuse_wide_groups(opened: OpenQuery, layout: CellLayout) -> None:
    """Refuse to group by ranges with too many values to list all of them."""
    for cell in grouped_ranges(opened.query, layout):
        if cell.is_discrete and is_wide(opened, layout, cell):
            raise refusal(
                f"GROUP BY accepts ranges of at most {MOST_GROUPED} values",
                hint="ask for each interval in a query of its own, with WHERE",
                detail=f'column "{cell.column.name}"',
            )
