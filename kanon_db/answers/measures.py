"""Answers the aggregates of a query, one at a time.

MIN, MAX, percentiles and COUNT(DISTINCT ...) follow from several counts, unless they are exact.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from kanon_db.answers.buckets.bucket_evidence import answer_in_buckets, rank_in_buckets
from kanon_db.answers.likelihoods import MOST_GROUPED, find_grouped_ranges
from kanon_db.answers.rows.coded_rows import CellSums, is_wide, record_types
from kanon_db.answers.rows.type_totals import Answers, count_types, order_types
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
    refusal,
)
from kanon_db.query.formulas import NOTHING, Estimated, Group, common_spelling, empty
from kanon_db.query.layout import BucketLayout, CellLayout, condition_on
from kanon_db.query.sql import EVERYBODY, Request


def _refuse_groups(opened: OpenQuery, layout: CellLayout) -> None:
    """Refuse to group by ranges whose values cannot be listed, or are too many for it."""
    for cell in find_grouped_ranges(opened.query, layout):
        if not cell.is_discrete:
            raise refusal(
                "GROUP BY does not accept a column of continuous ranges",
                hint="write COUNT(*) FILTER (WHERE x >= 10 AND x < 20) for each interval",
                detail=f'column "{cell.column.name}"',
            )
        if is_wide(opened, layout, cell):
            raise refusal(
                "GROUP BY accepts neither ranges without an end, such as (,) of numbers and NULL,"
                f" nor of more than {MOST_GROUPED:,} values",
                hint="ask for each interval by itself, as in COUNT(*) FILTER (WHERE x >= 65),"
                " COUNT(*) FILTER (WHERE x < 65), COUNT(*) FILTER (WHERE x IS NULL)",
                detail=f'column "{cell.column.name}"',
            )


def each_measure(opened: OpenQuery) -> list[Group]:
    """Answer each measure, and collect the answers for each group."""
    query = opened.query
    if isinstance(opened.layout, CellLayout):
        _refuse_groups(opened, opened.layout)
    aggregates = [measure.aggregate for measure in query.measures]
    everybody = Aggregate("count", None)
    # A group whose values are all NULL has no sum, but it is still a group.
    aggregates_counted = (
        aggregates if everybody in aggregates or not query.keys else [*aggregates, everybody]
    )
    n_asked = len(aggregates_counted) + len(query.formulas)

    plain = [one for one in dict.fromkeys(aggregates_counted) if not _is_derived(opened, one)]
    answers = _answer_plain(opened, plain, n_asked)
    listed: Answers = answers[everybody] if query.keys else {"{}": ((), NOTHING)}

    def rows(aggregate: Aggregate) -> Answers:
        if aggregate in answers:
            own = answers[aggregate]
            return _as_listed(own, listed) if query.keys else own
        of = _derive_answers(opened, aggregate)
        return {key: ((), of[common_spelling(key)]) for key in listed if common_spelling(key) in of}

    of_all = [(empty(aggregate), rows(aggregate)) for aggregate in aggregates]

    def estimates(key: str) -> tuple[Estimated, ...]:
        return tuple(rows[key][1] if key in rows else nothing for nothing, rows in of_all)

    return [Group(key, ranks, estimates(key)) for key, (ranks, _) in listed.items()]


def _as_listed(answers: Answers, listed: Answers) -> Answers:
    """Name groups as they are listed: equal values may be written differently, as 1.0 and 1.00."""
    if answers.keys() <= listed.keys():
        return answers
    names = {common_spelling(key): key for key in listed}
    return {names.get(common_spelling(key), key): answer for key, answer in answers.items()}


def _answer_plain(
    opened: OpenQuery, aggregates: Sequence[Aggregate], n_asked: int
) -> dict[Aggregate, Answers]:
    """Answer the aggregates that need no others."""
    # Raises UnsupportedQueryError when the answers to all `n_asked` aggregates would be too many,
    # or their keys too long.
    most = opened.limits.n_answers // n_asked
    answers: dict[Aggregate, Answers] = {}
    if isinstance(opened.layout, CellLayout):
        for one in aggregates:
            request = Request(opened.query, one, opened.lookups, most=most + 1)
            ask = order_types if one.function in DERIVED else count_types
            answers[one] = ask(opened, request, opened.layout)
    elif aggregates:
        groups = answer_in_buckets(opened, aggregates)
        if len(groups) > most:
            raise opened.limits.too_many()
        for place, one in enumerate(aggregates):
            answers[one] = {group.key: (group.ranks, group.estimates[place]) for group in groups}
    return answers


_NONE: Final = Estimated(0.0, 0.0, 0, 0)


def _is_derived(opened: OpenQuery, aggregate: Aggregate) -> bool:
    """Whether an aggregate follows from several counts."""
    return aggregate.function in DERIVED and opened.plan(aggregate).shape != "exact"


def _derive_answers(opened: OpenQuery, aggregate: Aggregate) -> dict[str, Estimated]:
    """Answer such an aggregate for each group, by its :func:`.common_spelling`."""
    if aggregate.share is None:
        return _distinct(opened, aggregate)
    if _is_one_of_each_group(opened.query, aggregate):
        constant = replace(aggregate, function="avg", share=None)
        query = opened.query._replace(measures=(Measure("", constant),))
        return _answer_by_key(opened, query)
    quantile, answers = Quantile.of(aggregate), dict[str, Estimated]()
    if isinstance(opened.layout, BucketLayout):
        ranked = rank_in_buckets(opened, aggregate)
        for key in ranked.keys:
            opened.session.heartbeat()
            pair = ranked.group(key)
            total = pair.count(ranked.places.size)
            answers[key] = find_quantile(pair, total, quantile, "empty")
        return answers
    totals = _answer_by_key(opened, _counting(opened.query, aggregate))
    gaps = _gaps(opened.layout, aggregate)
    for counts in ValueCounts.blocks(opened, aggregate):
        for key in counts.keys & totals.keys():
            opened.session.heartbeat()
            answers[key] = find_quantile(counts.group(key), totals[key], quantile, gaps)
        nobody = counts.group("")
    for key in totals.keys() - answers.keys():  # all of whose records may be left out
        answers[key] = find_quantile(nobody, totals[key], quantile, gaps)
    return answers


def _answer_one(opened: OpenQuery, query: Query) -> list[Group]:
    """Answer a query of one aggregate that follows from no others."""
    opened, aggregate = replace(opened, query=query), query.measures[0].aggregate
    is_in_buckets = isinstance(opened.layout, BucketLayout)
    return answer_in_buckets(opened, [aggregate]) if is_in_buckets else each_measure(opened)


def _answer_by_key(opened: OpenQuery, query: Query) -> dict[str, Estimated]:
    """Answer such a query by the common spelling of each group's key."""
    groups = _answer_one(opened, query)
    return {common_spelling(group.key): group.estimates[0] for group in groups}


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


def _distinct(opened: OpenQuery, aggregate: Aggregate) -> dict[str, Estimated]:
    """Count the values of each group from how many records have each of them."""
    operand = aggregate.operand
    if operand is None:
        raise TypeError("COUNT(DISTINCT ...) counts the values of something")
    totals = _answer_by_key(opened, _counting(opened.query, aggregate))
    values: defaultdict[str, list[Estimated]] = defaultdict(list)
    n_unlisted = None
    if _is_listed(opened, operand):
        n_unlisted = _count_unlisted(opened, operand)
        key, names = _value_key(opened.query, operand), {own.name for own in opened.query.keys}
        listing = replace(opened, limits=opened.limits._replace(lists_values=True))
        for group in _answer_one(listing, _counting(opened.query, aggregate, key)):
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
    with record_types(opened, request, layout, (name,)) as types:
        for sums in CellSums.blocks(opened, types, name, ()):  # one, if there is room
            return types.column(name).n_apart(sums.cell[sums.sure > 0][: opened.limits.n_answers])
    return 0


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
    with record_types(opened, EVERYBODY, layout, marked) as types:
        named = {types.pieces.places[name]: types.column(name).cells for name in marked}
        n = 0.0
        for codes, records in types.all():
            is_hidden = [own.cells.hidden[codes[place]] for place, own in named.items()]
            n += records[np.logical_or.reduce(is_hidden)].sum()
    return layout.left_out + round(n)


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
