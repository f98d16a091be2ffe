"""Which requests can be answered from the numbers of cells, or from their ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kanon_db.counting import expressions as ex
from kanon_db.counting.layout import CellLayout
from kanon_db.counting.sides import condition_of
from kanon_db.counting.writing.spread import arranged
from kanon_db.counting.writing.tabled import may_fail
from kanon_db.counting.writing.truth import leaves
from kanon_db.counting.writing.writer import Request

MOST_LEAVES: Final = 64
"""Conditions that are counted apart; more need the statement."""


def has_pieces(request: Request, layout: CellLayout, also: Iterable[str] = ()) -> bool:
    """Whether a request can be answered from the table of classes.

    Parameters
    ----------
    request : Request
    layout : CellLayout
    also : iterable of str
        Columns that are needed beside those that the request mentions.
    """
    query, aggregate = request.query, request.aggregate
    needed = [*query.evaluated, aggregate.operand, aggregate.condition]
    if layout.classes is None or aggregate.function in ex.DERIVED:
        return False
    if any(column.lookup is not None for part in needed for column in ex.columns(part)):
        return False
    if len(set(leaves(condition_of(query, aggregate)))) > MOST_LEAVES:
        return False
    names = {*also, *(name for part in needed for name in ex.attributes(part))}
    ended = names & layout.classes.ends
    if names - layout.classes.columns - ended or any(layout.cells[name].shares for name in ended):
        return False
    return not ended or not ended & {*also, *_needing_cells(request, layout)}


def _needing_cells(request: Request, layout: CellLayout) -> Iterator[str]:
    """Yield the columns of which more is asked than how likely a condition on one of them is."""
    query, aggregate = request.query, request.aggregate
    put = arranged(query, aggregate, layout)
    yield from (*put.spread, *put.apart)
    if aggregate.operand is not None and aggregate.function != "count":
        yield from ex.attributes(aggregate.operand)
    for leaf in leaves(condition_of(query, aggregate)):
        if len(ex.attributes(leaf)) > 1 or may_fail(leaf):
            yield from ex.attributes(leaf)
