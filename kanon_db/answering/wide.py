"""Columns of ranges with too many values to list all of them."""

from __future__ import annotations

from kanon_db.answering.opened import OpenQuery
from kanon_db.counting.layout import CellLayout
from kanon_db.counting.refusals import refusal
from kanon_db.counting.writing.spread import MOST_GROUPED, grouped_ranges


def refuse_wide_groups(opened: OpenQuery, layout: CellLayout) -> None:
    """Refuse to group by ranges with too many values to list all of them."""
    for cell in grouped_ranges(opened.query, layout):
        if cell.is_discrete and opened.is_wide(layout, cell):
            raise refusal(
                f"GROUP BY accepts neither ranges without an end nor of more than {MOST_GROUPED:,}"
                " values",
                hint="ask for each interval by itself, as in COUNT(*) FILTER (WHERE x >= 65),"
                " COUNT(*) FILTER (WHERE x < 65)",
                detail=f'column "{cell.column.name}"',
            )
