"""Answers MIN, MAX, percentiles and COUNT(DISTINCT ...), which follow from several counts."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from kanon_db.answers.buckets.bucket_evidence import rank_in_buckets
from kanon_db.answers.rows.cell_evidence import KnownTypes
from kanon_db.answers.rows.coded_rows import CellSums, from_all_types, from_types, is_wide
from kanon_db.answers.rows.value_counts import ValueCounts
from kanon_db.answers.scope import OpenQuery
from kanon_db.answers.value_ranks import Gaps, Quantile, find_quantile
from kanon_db.query.expressions import (
    DERIVED,
    Aggregate,
    Column,
    Expression,
    Key,
    Measure,
    Query,
    attributes,
    columns,
)
from kanon_db.query.formulas import Estimated, Group, common_spelling
from kanon_db.query.layout import BucketLayout, CellLayout, condition_on
from kanon_db.query.sql import Request


def count_distinct(
    values: Sequence[Estimated], total: Estimated, n_unlisted: int | None, n_apart: int = 0
) -> Estimated:
    """Count the values that occur.

    Parameters
    ----------
    values : sequence of Estimated
        How many records have each value that is listed.
    total : Estimated
        How many have any value, NULL not being one.
    n_unlisted : int or None
        How many records, at most, have a value that is not listed; None if none is listed.
    n_apart : int
        How many records are known that surely count and have values different from one another.

    Notes
    -----
    **Lower bound.** A value occurs that at least one record surely has. If the records that surely
    count are more than these values can take, the others take some of them: as few values as can
    hold the rest, the ones that most records may have. The values that are not listed are taken for
    one, which holds as many as there may be.

    **Upper bound.** No more values occur than may have a record, and no more than there are
    records.

    **Estimate.** With e records expected of the m that may have a value, as many independent draws
    miss it with probability (1 - e / m)^m. The error adds to the variance of these draws what the
    errors of all e come to if they go together, and half the number of values that may occur
    without being listed. If no value is listed, all that is known are the bounds: the estimate is
    their middle, the error half their distance.
    """
    surely = [one for one in values if (one.lower_bound or 0) >= 1]
    maybe = [_most(one) for one in values if (one.lower_bound or 0) < 1 <= _most(one)]
    rest = (total.lower_bound or 0) - sum(map(_most, surely))
    lower = len(surely)
    holders = sorted([*maybe, *([n_unlisted] if n_unlisted else [])], reverse=True)
    if n_unlisted is None:
        holders = [math.inf]
    for most in holders:
        if rest <= 0:
            break
        rest -= most
        lower += 1
    lower = max(lower, n_apart)
    upper = _most(total)
    n_more = 0.0
    if n_unlisted is not None:
        n_listed = len(surely) + len(maybe)
        upper = min(upper, n_listed + n_unlisted)
        n_more = max(upper - n_listed, 0)
    width = (upper - lower) / 2
    if n_unlisted is None:
        return Estimated(lower + width, width, lower, upper)
    chances = [_chance(one, 0) for one in values]
    variance = sum(chance * (1 - chance) for chance in chances)
    shift = sum(_chance(one, 1) - _chance(one, -1) for one in values) / 2
    error = min(math.sqrt(variance + shift * shift + (n_more / 2) ** 2), width)
    return Estimated(min(max(sum(chances), lower), upper), error, lower, upper)


def _most(count: Estimated) -> float:
    return count.upper_bound or 0


def _chance(count: Estimated, errors: int) -> float:
    """Return how likely a value occurs, if its count is off by so many errors."""
    most = _most(count)
    if (count.lower_bound or 0) >= 1 or most < 1:
        return float(most >= 1)
    expected = (count.estimate or 0) + errors * (count.std_error or 0)
    return 1.0 - math.pow(1 - min(max(expected / most, 0), 1), most)


Ask = Callable[[OpenQuery], list[Group]]
"""Answers a query of one count, before HAVING, ORDER BY and LIMIT."""

_NONE: Final = Estimated(0.0, 0.0, 0, 0)


def is_derived(opened: OpenQuery, aggregate: Aggregate) -> bool:
    """Whether an aggregate follows from several counts."""
    return aggregate.function in DERIVED and opened.plan(aggregate).shape != "exact"


def derive_answers(opened: OpenQuery, aggregate: Aggregate, ask: Ask) -> dict[str, Estimated]:
    """Answer such an aggregate for each group, by its :func:`.common_spelling`."""
    if aggregate.share is None:
        return _distinct(opened, aggregate, ask)

    def count(query: Query) -> dict[str, Estimated]:
        return {
            common_spelling(one.key): one.estimates[0] for one in ask(replace(opened, query=query))
        }

    if _is_one_of_each_group(opened.query, aggregate):
        constant = replace(aggregate, function="avg", share=None)
        query = opened.query._replace(measures=(Measure("", constant),))
        return count(query)
    quantile, answers = Quantile.of(aggregate), dict[str, Estimated]()
    if isinstance(opened.layout, BucketLayout):
        ranked = rank_in_buckets(opened, aggregate)
        for key in ranked.keys:
            opened.session.heartbeat()
            pair = ranked.group(key)
            total = pair.count(ranked.places.size)
            answers[key] = find_quantile(pair, total, quantile, "empty")
        return answers
    totals, gaps = count(_counting(opened.query, aggregate)), _gaps(opened.layout, aggregate)
    for counts in ValueCounts.blocks(opened, aggregate):
        for key in counts.keys & totals.keys():
            opened.session.heartbeat()
            answers[key] = find_quantile(counts.group(key), totals[key], quantile, gaps)
        nobody = counts.group("")
    for key in totals.keys() - answers.keys():  # all of whose records may be left out
        answers[key] = find_quantile(nobody, totals[key], quantile, gaps)
    return answers


def _gaps(layout: CellLayout, aggregate: Aggregate) -> Gaps:
    """Say which values may lie between the neighbouring ends of cells."""
    cells = [layout.cells[name] for name in attributes(aggregate.operand)]
    if not any(cell.kind == "range" for cell in cells):
        return "empty"
    is_whole = aggregate.type is not None and aggregate.type.category == "integer"
    return "whole" if is_whole else "real"


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


def _counting(query: Query, aggregate: Aggregate, *more: Key) -> Query:
    """Count the records that an aggregate reads, in the query's groups and others."""
    return Query(
        condition_on(query, aggregate), (*query.keys, *more),
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
        common_spelling(group.key): group.estimates[0]
        for group in ask(replace(opened, query=_counting(opened.query, aggregate)))
    }
    values: defaultdict[str, list[Estimated]] = defaultdict(list)
    n_unlisted = None
    if _is_listed(opened, operand):
        n_unlisted = _count_unlisted(opened, operand)
        key, names = _value_key(opened.query, operand), {own.name for own in opened.query.keys}
        of_values = replace(
            opened, query=_counting(opened.query, aggregate, key),
            limits=opened.limits._replace(lists_values=True),
        )  # fmt: skip
        for group in ask(of_values):
            if json.loads(group.key)[key.name] is not None:
                values[common_spelling(group.key, names)].append(group.estimates[0])
    n_apart = _apart(opened, aggregate, operand)
    estimates = {}
    for group_key in {*totals, *values}:
        opened.session.heartbeat()
        total = totals.get(group_key, _NONE)
        estimates[group_key] = count_distinct(values[group_key], total, n_unlisted, n_apart)
    return estimates


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
    name = operand.name

    def counted(types: KnownTypes) -> int:
        for sums in CellSums.blocks(opened, types, name, ()):  # one, if there is room
            return types.column(name).n_apart(sums.cell[sums.sure > 0][: opened.limits.n_answers])
        return 0

    return from_types(opened, request, layout, counted, (name,))


def _is_listed(opened: OpenQuery, operand: Expression) -> bool:
    """Whether the values of an expression can be listed, as GROUP BY would."""
    layout = opened.layout
    if isinstance(layout, BucketLayout):
        return True
    cells = [layout.cells[name] for name in attributes(operand)]
    return not any(
        cell.kind == "range" and (not cell.is_discrete or is_wide(opened, layout, cell))
        for cell in cells
    )


def _count_unlisted(opened: OpenQuery, operand: Expression) -> int:
    """Return how many records may have a value that is in no other cell."""
    layout = opened.layout
    if isinstance(layout, BucketLayout):
        return 0
    marked = [name for name in sorted(attributes(operand)) if layout.cells[name].mark is not None]
    if not marked:
        return layout.left_out

    def count(types: KnownTypes) -> int:
        named = {types.pieces.places[name]: types.column(name).cells for name in marked}
        n = 0.0
        for codes, records in types.all():
            is_hidden = [own.cells.hidden[codes[place]] for place, own in named.items()]
            n += records[np.logical_or.reduce(is_hidden)].sum()
        return round(n)

    return layout.left_out + from_all_types(opened, layout, marked, count)
