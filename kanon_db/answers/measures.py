"""Answers the aggregates of a query one at a time, and calculates with the answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kanon_db.answers._bitmap_counts import count_with_bitmaps
from kanon_db.answers._distribution import derived, is_derived
from kanon_db.answers.coded_rows import Answers, count_with_classes
from kanon_db.answers.scope import BY_BITMAPS, BY_CLASSES, BY_STATEMENT, OpenQuery
from kanon_db.answers.statements import statement
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import (
    DERIVED,
    Aggregate,
    Measure,
    Query,
    Rounded,
    refusal,
)
from kanon_db.query.formulas import NOTHING, Estimated, Group, known_as
from kanon_db.query.layout import CellLayout, parts_of
from kanon_db.query.likelihoods import MOST_GROUPED, grouped_ranges
from kanon_db.query.sql import Request

# Arithmetic of estimates: its bounds, which are certain, and its error to first order.


@dataclass(frozen=True, slots=True)
class _Value:
    """A number with its bounds, infinite where none is certain.

    Attributes
    ----------
    estimate : float or None
        None for NULL.
    low, high : float
    slopes : mapping of Expression to float
        By how much it changes with each aggregate that it depends on, and with each number that is
        rounded.
    """

    estimate: float | None
    low: float
    high: float
    slopes: Mapping[ex.Expression, float] = field(default_factory=dict)


def with_calculated(
    groups: Sequence[Group], query: Query, heartbeat: Callable[[], None] = lambda: None
) -> list[Group]:
    """Append what the query calculates from its aggregates to each group's estimates."""
    if not query.formulas:
        return list(groups)
    found = []
    for number, group in enumerate(groups):
        if number % 16 == 0:
            heartbeat()
        known = {
            measure.aggregate: estimated
            for measure, estimated in zip(query.measures, group.estimates, strict=True)
        }
        more = tuple(_calculate(formula.expression, known) for formula in query.formulas)
        found.append(group._replace(estimates=group.estimates + more))
    return found


def _calculate(expression: ex.Expression, known: Mapping[ex.Aggregate, Estimated]) -> Estimated:
    """Calculate from estimates.

    Notes
    -----
    How the errors of several aggregates go together is not known: they are added, which is the
    most that they can come to. No error is greater than half the distance between the bounds.
    """
    value = _evaluate(expression, known)
    if value.estimate is None:
        return NOTHING
    if not math.isfinite(value.estimate):
        raise _fails()
    error: float | None = 0.0
    for part, slope in value.slopes.items():
        # An estimate that is rounded may be off by half a unit more than it was.
        own = known[part].std_error if isinstance(part, ex.Aggregate) else _unit(part) / 2
        error = None if own is None or error is None else error + abs(slope) * own
    low, high = (bound if math.isfinite(bound) else None for bound in (value.low, value.high))
    estimate = value.estimate if low is None else max(value.estimate, low)
    if error is not None and low is not None and high is not None:
        error = min(error, (high - low) / 2)
    if error is not None and not math.isfinite(error):
        error = None
    return Estimated(estimate if high is None else min(estimate, high), error, low, high)


def _evaluate(expression: ex.Expression, known: Mapping[ex.Aggregate, Estimated]) -> _Value:
    match expression:
        case ex.Aggregate():
            own = known[expression]
            low = -math.inf if own.lower_bound is None else float(own.lower_bound)
            high = math.inf if own.upper_bound is None else float(own.upper_bound)
            return _Value(own.estimate, low, high, {expression: 1.0})
        case ex.Literal(_, text):
            number = float(text)
            return _Value(number, number, number)
        case ex.Negative(operand):
            return _times(_Value(-1, -1, -1), _evaluate(operand, known))
        case ex.Cast(operand, _):
            return _evaluate(operand, known)
        case Rounded(operand):
            value = _evaluate(operand, known)
            low, high = expression.between(value.low, value.high)
            estimate = None if value.estimate is None else expression.of(value.estimate)
            return _Value(estimate, low, high, {**value.slopes, expression: 1.0})
        case ex.NullIf(left, ex.Literal(_, text)):
            value = _evaluate(left, known)
            return replace(value, estimate=None) if value.estimate == float(text) else value
        case ex.Arithmetic("+" | "-" as operator, left, right):
            one, other = _evaluate(left, known), _evaluate(right, known)
            if operator == "-":
                other = _times(_Value(-1, -1, -1), other)
            estimate = None
            if one.estimate is not None and other.estimate is not None:
                estimate = one.estimate + other.estimate
            slopes = _combined(one.slopes, 1, other.slopes, 1)
            return _Value(estimate, one.low + other.low, one.high + other.high, slopes)
        case ex.Arithmetic("*", left, right):
            return _times(_evaluate(left, known), _evaluate(right, known))
        case ex.Arithmetic("/", left, right):
            return _ratio(expression, _evaluate(left, known), _evaluate(right, known))
    raise TypeError(f"{type(expression).__name__} is not checked")


def _times(one: _Value, other: _Value) -> _Value:
    ends = [_product(x, y) for x in (one.low, one.high) for y in (other.low, other.high)]
    if one.estimate is None or other.estimate is None:
        return _Value(None, min(ends), max(ends))
    slopes = _combined(one.slopes, other.estimate, other.slopes, one.estimate)
    return _Value(one.estimate * other.estimate, min(ends), max(ends), slopes)


def _ratio(division: ex.Arithmetic, one: _Value, other: _Value) -> _Value:
    """Divide; where PostgreSQL divides by zero, there is no result to hold in bounds."""
    is_nullable = _is_nullable(division.right)
    scaled = _scaled(division.right)
    if scaled is not None and scaled[0] == 1 and scaled[1].function == "count":
        # A number of records that is not 0 is at least 1.
        if other.high < 1:
            if is_nullable:
                return _Value(None, -math.inf, math.inf)
            raise _fails()
        other = replace(other, low=max(other.low, 1.0))
    elif other.low == other.high == 0 and not is_nullable and other.estimate is not None:
        raise _fails()
    low, high = -math.inf, math.inf
    if other.low > 0 or other.high < 0:
        ends = [x / y for x in (one.low, one.high) for y in (other.low, other.high)]
        if not any(map(math.isnan, ends)):
            low, high = min(ends), max(ends)
    least, most = _share(division)
    low, high = max(low, least), min(high, most)
    if one.estimate is None or other.estimate is None or other.estimate == 0:
        return _Value(None, low, high)
    ratio = one.estimate / other.estimate
    slopes = _combined(one.slopes, 1 / other.estimate, other.slopes, -ratio / other.estimate)
    return _Value(ratio, low, high, slopes)


def _is_nullable(divisor: ex.Expression) -> bool:
    return isinstance(divisor, ex.NullIf) or (
        isinstance(divisor, ex.Cast | Rounded) and _is_nullable(divisor.operand)
    )


def _unit(part: ex.Expression) -> float:
    return part.unit if isinstance(part, Rounded) else 0.0


def _share(division: ex.Arithmetic) -> tuple[float, float]:
    """Return between what a part of records, over all of them, lies."""
    part, whole = _scaled(division.left), _scaled(division.right)
    if part is None or whole is None or whole[1].function != "count" or whole[0] <= 0:
        return -math.inf, math.inf
    least, most = _each(part[1])
    if not _asked(whole[1]) <= _asked(part[1]):
        return -math.inf, math.inf
    ends = [_product(part[0] / whole[0], end) for end in (least, most)]
    return min(ends), max(ends)


def _asked(aggregate: ex.Aggregate) -> set[ex.Expression]:
    """Return what a record must meet to be counted, beside WHERE."""
    asked = set(parts_of(aggregate.condition))
    if aggregate.operand is not None and aggregate.function == "count":
        asked.add(ex.NullTest(aggregate.operand, negated=True))
    return asked


def _each(aggregate: ex.Aggregate) -> tuple[float, float]:
    """Return what each record adds at least, and at most; 0 if it is not counted."""
    if aggregate.function == "count":
        return 0, 1
    operand = aggregate.operand
    if aggregate.function == "sum" and isinstance(operand, ex.Case):
        results = [then for _, then in operand.branches]
        results += [] if operand.default is None else [operand.default]
        texts = [result.text for result in results if isinstance(result, ex.Constant)]
        if len(texts) == len(results):
            numbers = [0.0, *(_number(text) for text in texts if text is not None)]
            if all(map(math.isfinite, numbers)):
                return min(numbers), max(numbers)
    return -math.inf, math.inf


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # PostgreSQL knows more spellings
        return math.nan


def _scaled(expression: ex.Expression) -> tuple[float, ex.Aggregate] | None:
    """Read an expression as a number times an aggregate."""
    match expression:
        case ex.Aggregate():
            return 1.0, expression
        case ex.Cast(operand, _) | ex.NullIf(operand, _):
            return _scaled(operand)
        case ex.Arithmetic("*", ex.Literal(_, text), operand) | ex.Arithmetic(
            "*", operand, ex.Literal(_, text)
        ):
            inner, factor = _scaled(operand), float(text)
        case ex.Arithmetic("/", operand, ex.Literal(_, text)) if float(text) != 0:
            inner, factor = _scaled(operand), 1 / float(text)
        case _:
            return None
    return None if inner is None else (inner[0] * factor, inner[1])


def _combined(
    one: Mapping[ex.Expression, float], x: float, other: Mapping[ex.Expression, float], y: float
) -> dict[ex.Expression, float]:
    names = dict.fromkeys((*one, *other))
    return {name: one.get(name, 0) * x + other.get(name, 0) * y for name in names}


def _product(x: float, y: float) -> float:
    return 0.0 if 0 in (x, y) else x * y  # what is not known is a number


def _fails() -> Exception:
    return refusal(
        "the query's arithmetic fails on some group",
        hint="write NULLIF(COUNT(*), 0), or exclude such groups with WHERE",
        detail="as for a division by zero",
    )


# Columns of ranges with too many values to list all of them.


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


# Answering one aggregate at a time: by numbers, bitmaps or the statement, and those derived.


def each_measure(
    opened: OpenQuery, answered: Callable[[OpenQuery], tuple[list[Group], str]]
) -> tuple[list[Group], str]:
    """Answer each measure, collect the answers for each group, and say how they were found.

    Parameters
    ----------
    opened : OpenQuery
    answered : callable
        Answers the counts that an aggregate follows from, likewise.
    """
    methods = set()
    query = opened.query
    if isinstance(opened.layout, CellLayout):
        refuse_wide_groups(opened, opened.layout)
    aggregates = [measure.aggregate for measure in query.measures]
    everybody = Aggregate("count", None)
    # A group whose values are all NULL has no sum, but it is still a group.
    asked = aggregates if everybody in aggregates or not query.keys else [*aggregates, everybody]
    n_asked = len(asked) + len(query.formulas)

    def plain(aggregate: Aggregate) -> Answers:
        found, method = _rows(opened, aggregate, n_asked)
        methods.add(method)
        return found

    def ask(one: OpenQuery) -> list[Group]:
        found, method = answered(one)
        methods.add(method)
        return found

    listed: Answers = plain(everybody) if query.keys else {"{}": ((), NOTHING)}

    def rows(aggregate: Aggregate) -> Answers:
        if query.keys and aggregate == everybody:
            return listed
        if not is_derived(opened, aggregate):
            return _as_listed(plain(aggregate), listed) if query.keys else plain(aggregate)
        of = derived(opened, aggregate, ask)
        return {key: ((), of[known_as(key)]) for key in listed if known_as(key) in of}

    found = [rows(aggregate) for aggregate in aggregates]
    empty = [
        Estimated(0.0, 0.0, 0, 0) if aggregate.function in ("count", "distinct") else NOTHING
        for aggregate in aggregates
    ]

    def estimates(key: str) -> tuple[Estimated, ...]:
        pairs = zip(found, empty, strict=True)
        return tuple(rows[key][1] if key in rows else nothing for rows, nothing in pairs)

    groups = [Group(key, ranks, estimates(key)) for key, (ranks, _) in listed.items()]
    return groups, methods.pop() if len(methods) == 1 else BY_STATEMENT


def _as_listed(found: Answers, listed: Answers) -> Answers:
    """Name groups as they are listed: equal values may be written differently, as 1.0 and 1.00.

    No group is found that is not listed. So if they are as many, they are the same, and the places
    of their values are.
    """
    if len(found) != len(listed) or found.keys() == listed.keys():
        return found
    named = {ranks: key for key, (ranks, _) in listed.items()}
    return {named[ranks]: (ranks, answer) for ranks, answer in found.values()}


def _rows(opened: OpenQuery, aggregate: Aggregate, n_asked: int) -> tuple[Answers, str]:
    """Return the ranks and the answer of each group to one aggregate, and how they were found.

    Raises
    ------
    UnsupportedQueryError
        When the answers to all `n_asked` aggregates would be too many, or their keys too long.
    """
    most = opened.limits.n_answers // n_asked
    request = Request(opened.query, aggregate, opened.lookups, most=most + 1)
    by_classes = count_with_classes(opened, request)
    if by_classes is not None:
        return by_classes, BY_CLASSES
    alone = replace(opened, query=opened.query._replace(measures=(Measure("", aggregate),)))
    groups = count_with_bitmaps(alone)
    if groups is not None:
        if len(groups) > most:
            raise opened.limits.too_many()
        return {group.key: (group.ranks, group.estimates[0]) for group in groups}, BY_BITMAPS
    written = statement(request, opened.layout)
    names = [f"rank_{i}" for i in range(len(opened.query.keys))]
    text, limits = written.text, opened.limits
    if names:
        size = "sum(octet_length(a.group_key)) OVER (ROWS UNBOUNDED PRECEDING)"
        text = f"SELECT a.*, {size} <= {limits.text} AS fits FROM (\n{text}\n) AS a"
    # Of these, only what is published as it is has a statement.
    fetch = opened.fetch_plain if aggregate.function in DERIVED else opened.fetch
    found: Answers = {}
    for row in fetch(text, *written.bound):
        if names and (len(found) == most or not row["fits"]):
            raise limits.too_many()
        answer = (row["estimate"], row["std_error"], row["lower_bound"], row["upper_bound"])
        ranks = tuple(row[name] for name in names)
        found[row["group_key"] if names else "{}"] = (ranks, Estimated(*answer))
    return found, BY_STATEMENT
