"""Aggregates that follow from several counts: COUNT(DISTINCT …), MIN, MAX and percentiles."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Final

from kanon_db.answering.by_classes import sure_cells_with_classes
from kanon_db.answering.cell_counts import CellCounts
from kanon_db.answering.opened import OpenQuery
from kanon_db.answering.quantiles import MOST_CHEAP, Search, below
from kanon_db.answering.value_counts import ValueCounts
from kanon_db.counting.answers import Estimated, Group, known_as
from kanon_db.counting.checking import Key, Measure, Query
from kanon_db.counting.distinct import apart_ranges, apart_sets, count_distinct
from kanon_db.counting.expressions import (
    DERIVED,
    Aggregate,
    Column,
    ComparisonOperator,
    Expression,
    attributes,
    columns,
)
from kanon_db.counting.layout import BucketLayout, CellLayout
from kanon_db.counting.refusals import refusal
from kanon_db.counting.sides import chosen_by
from kanon_db.counting.writing.exact import is_plain
from kanon_db.counting.writing.writer import Request
from kanon_db.errors import UnsupportedQueryError

Ask = Callable[[OpenQuery], list[Group]]
"""Answers a query of one count, before HAVING, ORDER BY and LIMIT."""

_NONE: Final = Estimated(0.0, 0.0, 0, 0)


def is_derived(opened: OpenQuery, aggregate: Aggregate) -> bool:
    """Whether an aggregate is no statement of its own."""
    return aggregate.function in DERIVED and not is_plain(opened.query, aggregate, opened.layout)


def derived(opened: OpenQuery, aggregate: Aggregate, ask: Ask) -> dict[str, Estimated]:
    """Answer such an aggregate for each group, by :func:`~kanon_db.counting.answers.known_as`."""
    if aggregate.share is None:
        return _distinct(opened, aggregate, ask)

    def count(query: Query) -> dict[str, Estimated]:
        return {known_as(one.key): one.estimates[0] for one in ask(replace(opened, query=query))}

    if _is_one_of_each_group(opened.query, aggregate):
        constant = replace(aggregate, function="avg", share=None)
        query = opened.query._replace(measures=(Measure("", constant),))
        return count(query)
    totals = count(_counting(opened.query, aggregate))
    cells = CellCounts.of(opened, aggregate) or ValueCounts.of(opened, aggregate)
    if cells is not None:
        return Search(opened, aggregate, cells.count, totals, MOST_CHEAP).answers()

    def compared(operator: ComparisonOperator, rung: str) -> dict[str, Estimated]:
        return count(below(opened.query, aggregate, operator, rung))

    return Search(opened, aggregate, compared, totals).answers()


def _is_one_of_each_group(query: Query, aggregate: Aggregate) -> bool:
    """Whether all records of a group have the same value: all percentiles, and the average."""
    keys = {key.expression for key in query.keys}
    names = {key.name for key in keys if isinstance(key, Column) and key.lookup is None}
    operand = aggregate.operand
    return (
        operand is not None
        and attributes(operand) <= names
        and all(column.lookup is None for column in columns(operand))
    )


def counts_of(opened: OpenQuery, aggregate: Aggregate) -> Iterator[Query]:
    """Yield the queries of one count each that an aggregate follows from.

    Of a percentile, one shows the others, which compare with other values than 0.
    """
    yield _counting(opened.query, aggregate)
    operand = aggregate.operand
    if aggregate.share is not None:
        yield below(opened.query, aggregate, "<=", "0")
    elif operand is not None and _is_listed(opened, operand):
        yield _counting(opened.query, aggregate, _value_key(opened.query, operand))


def _counting(query: Query, aggregate: Aggregate, *more: Key) -> Query:
    """Count the records that an aggregate reads, in the query's groups and others."""
    return Query(
        chosen_by(query, aggregate), (*query.keys, *more),
        (Measure("", Aggregate("count", aggregate.operand)),), listed=(0,),
    )  # fmt: skip


def _value_key(query: Query, operand: Expression) -> Key:
    name = "value"
    while any(key.name == name for key in query.keys):
        name += "_"
    return Key(name, operand)


def _distinct(opened: OpenQuery, aggregate: Aggregate, ask: Ask) -> dict[str, Estimated]:
    """Count the values of each group from how many records have each of them."""
    operand = aggregate.operand
    if operand is None:
        raise TypeError("COUNT(DISTINCT ...) counts the values of something")
    totals = {
        known_as(group.key): group.estimates[0]
        for group in ask(replace(opened, query=_counting(opened.query, aggregate)))
    }
    values: defaultdict[str, list[Estimated]] = defaultdict(list)
    n_unlisted = None
    if _is_listed(opened, operand):
        n_unlisted = _unlisted(opened, operand)
        key = _value_key(opened.query, operand)
        for group in _listed(opened, _counting(opened.query, aggregate, key), ask):
            if json.loads(group.key)[key.name] is not None:
                values[known_as(group.key, key.name)].append(group.estimates[0])
    n_apart = _apart(opened, aggregate, operand)
    found = {}
    for group_key in {*totals, *values}:
        opened.session.heartbeat()
        total = totals.get(group_key, _NONE)
        found[group_key] = count_distinct(values[group_key], total, n_unlisted, n_apart)
    return found


def _listed(opened: OpenQuery, query: Query, ask: Ask) -> list[Group]:
    try:
        return ask(replace(opened, query=query))
    except UnsupportedQueryError as error:
        if error.message != opened.limits.too_many().message:
            raise
        raise refusal(
            "COUNT(DISTINCT ...) would count too many values",
            hint="ask for parts of them with WHERE, or for fewer, as in COUNT(DISTINCT x::integer)",
            detail=error.detail,
        ) from None


def _apart(opened: OpenQuery, aggregate: Aggregate, operand: Expression) -> int:
    """Return of how many records it is certain that they count with values of their own."""
    layout = opened.layout
    if (
        opened.query.keys
        or not isinstance(layout, CellLayout)
        or not isinstance(operand, Column)
        or operand.lookup is not None
        or layout.cells[operand.name].kind == "value"
    ):
        return 0
    request = Request(
        _counting(opened.query, aggregate), Aggregate("count", operand), opened.lookups
    )
    most = opened.limits.n_answers
    numbers = sure_cells_with_classes(opened, request, operand.name, most)
    rows = opened.column(request, layout, operand.name).sure_cells(numbers, most)
    if layout.cells[operand.name].kind == "set":
        return apart_sets([json.loads(row["elements"]) for row in rows])
    return apart_ranges(
        [(Decimal(row["low"] or "-Infinity"), Decimal(row["high"] or "Infinity")) for row in rows]
    )


def _is_listed(opened: OpenQuery, operand: Expression) -> bool:
    """Whether the values of an expression can be listed, as GROUP BY would."""
    layout = opened.layout
    if isinstance(layout, BucketLayout):
        return True
    cells = [layout.cells[name] for name in attributes(operand)]
    return not any(
        cell.kind == "range" and (not cell.is_discrete or opened.is_wide(layout, cell))
        for cell in cells
    )


def _unlisted(opened: OpenQuery, operand: Expression) -> int:
    """Return how many records may have a value that is in no other cell."""
    layout = opened.layout
    if isinstance(layout, BucketLayout):
        return 0
    marks = [layout.cells[name].mark for name in sorted(attributes(operand))]
    tests = [
        f"substr(c.{layout.view.pattern}, {mark}, 1) = '*'" for mark in marks if mark is not None
    ]
    if not tests:
        return layout.left_out
    (row,) = opened.fetch_plain(
        f"SELECT count(*) AS n FROM {layout.view.view} AS c WHERE {' OR '.join(tests)}"
    )
    return int(row["n"]) + layout.left_out
