"""Calculates with the answers of groups, and aggregates them for a query over these groups."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Query, Rounded, refusal
from kanon_db.query.formulas import (
    NOTHING,
    NULL,
    STATISTICS,
    Calculated,
    Estimated,
    Group,
    TruthRange,
    combine,
    multiply,
)
from kanon_db.query.layout import parts_of

if TYPE_CHECKING:
    from kanon_db.figures import FigureRule


def with_calculated(
    groups: Sequence[Group],
    query: Query,
    heartbeat: Callable[[], None] = lambda: None,
    totals: Mapping[ex.WindowTotal, Mapping[str, Estimated]] | None = None,
    exact: Sequence[Group] | None = None,
) -> list[Group]:
    """Append what the query calculates from its aggregates to each group's estimates.

    `totals` are those of groups, by what these have in common (`common_key`).
    """
    # `exact` are the groups before a rule of figures, from which a deviation is calculated. Nothing
    # is calculated from what the rule does not show.
    if not query.formulas:
        return list(groups)
    parts = chain.from_iterable(ex.walk(formula.expression) for formula in query.formulas)
    statistics = [part for part in parts if isinstance(part, ex.Statistic)]
    calculated = []
    for number, group in enumerate(groups):
        if number % 16 == 0:
            heartbeat()
        known = _map_answers(query, group)
        for total, found_totals in (totals or {}).items():
            names = [key.name for key in query.keys if key.expression in total.by]
            known[total] = found_totals.get(common_key(group.key, names), NOTHING)
        few = {query.measures[place].aggregate for place in group.hidden}
        if exact is not None:
            own = _map_answers(query, exact[number])
            known |= {
                one: _calculate(one, own)
                for one in statistics if few.isdisjoint(one.sums)
            }  # fmt: skip
        more = tuple(_calculate(one.expression, known, few) for one in query.formulas)
        calculated.append(group._replace(estimates=group.estimates + more))
    return calculated


def _map_answers(query: Query, group: Group) -> dict[ex.Expression, Estimated]:
    aggregates = (measure.aggregate for measure in query.measures)
    return dict(zip(aggregates, group.estimates, strict=False))


def common_key(key: str, names: Sequence[str]) -> str:
    """Write the values that a group's key has under some names."""
    values = json.loads(key, parse_float=str, parse_int=str)
    return json.dumps([values[name] for name in names])


def _calculate(
    expression: ex.Expression,
    known: Mapping[ex.Expression, Estimated],
    few: Set[ex.Expression] = frozenset(),
) -> Estimated:
    """Calculate from estimates, but not from those of few people."""
    # How the errors of several aggregates go together is not known: they are added, which is the
    # most that they can come to. No error is greater than half the distance between the bounds.
    while isinstance(expression, ex.Cast):
        expression = expression.operand
    if expression in known:
        return known[expression]
    value = _evaluate(expression, known)
    if value.estimate is None or not few.isdisjoint(ex.walk(expression)):
        return NOTHING
    if not math.isfinite(value.estimate):
        raise _fails()
    error: float | None = 0.0
    for part, slope in value.slopes.items():
        # An estimate that is rounded may be off by half a unit more than it was.
        own = known[part].std_error if part in known else _unit(part) / 2
        if own != 0:  # What is exact adds nothing, however steep.
            error = None if own is None or error is None else error + abs(slope) * own
    low, high = (bound if math.isfinite(bound) else None for bound in (value.low, value.high))
    estimate = value.estimate if low is None else max(value.estimate, low)
    if error is not None and low is not None and high is not None:
        error = min(error, (high - low) / 2)
    if error is not None and not math.isfinite(error):
        error = None
    return Estimated(estimate if high is None else min(estimate, high), error, low, high)


def _evaluate(expression: ex.Expression, known: Mapping[ex.Expression, Estimated]) -> Calculated:
    match expression:
        case _ if expression in known:
            own = known[expression]
            low = -math.inf if own.lower_bound is None else float(own.lower_bound)
            high = math.inf if own.upper_bound is None else float(own.upper_bound)
            return Calculated(own.estimate, low, high, {expression: 1.0})
        case ex.Literal(_, text):
            number = float(text)
            return Calculated(number, number, number)
        case ex.Negative(operand):
            return multiply(Calculated(-1, -1, -1), _evaluate(operand, known))
        case ex.Cast(operand, _):
            return _evaluate(operand, known)
        case Rounded(operand):
            value = _evaluate(operand, known)
            low, high = expression.between(value.low, value.high)
            estimate = None if value.estimate is None else expression.of(value.estimate)
            return Calculated(estimate, low, high, {**value.slopes, expression: 1.0})
        case ex.Statistic(function, sums=sums):
            return STATISTICS[function].of(*(_evaluate(one, known) for one in sums))
        case ex.NullIf(left, ex.Literal(_, text)):
            value = _evaluate(left, known)
            return replace(value, estimate=None) if value.estimate == float(text) else value
        case ex.Coalesce((operand, ex.Literal(_, text))):
            value, otherwise = _evaluate(operand, known), float(text)
            if not _may_be_null(operand, known):
                return value
            if value.estimate is None:
                value = replace(value, estimate=otherwise)
            low, high = min(value.low, otherwise), max(value.high, otherwise)
            return replace(value, low=low, high=high)
        case ex.Case(branches, default):
            return _choose(branches, default, known)
        case ex.Arithmetic("+" | "-" as operator, left, right):
            one, other = _evaluate(left, known), _evaluate(right, known)
            if operator == "-":
                other = multiply(Calculated(-1, -1, -1), other)
            estimate = None
            if one.estimate is not None and other.estimate is not None:
                estimate = one.estimate + other.estimate
            slopes = combine((one, 1), (other, 1))
            return Calculated(estimate, one.low + other.low, one.high + other.high, slopes)
        case ex.Arithmetic("*", left, right):
            return multiply(_evaluate(left, known), _evaluate(right, known))
        case ex.Arithmetic("/", left, right):
            return _ratio(expression, _evaluate(left, known), _evaluate(right, known))
    raise TypeError(f"{type(expression).__name__} is not checked")


def _may_be_null(expression: ex.Expression, known: Mapping[ex.Expression, Estimated]) -> bool:
    """Whether a calculation may have no result: there may be no value, or what divides is 0."""
    match expression:
        case ex.NullIf() | ex.Statistic() | ex.WindowTotal():
            return True
        case ex.Case(branches, default):
            results = [result for _, result in branches]
            return default is None or any(_may_be_null(one, known) for one in (*results, default))
        case ex.Aggregate("count" | "distinct"):
            return False
        case ex.Aggregate(_, operand, condition):
            number = known.get(ex.Aggregate("count", operand, condition))
            return number is None or number.lower_bound is None or number.lower_bound < 1
    return any(_may_be_null(part, known) for part in expression.children)


def _choose(
    branches: Sequence[tuple[ex.Expression, ex.Expression]],
    default: ex.Expression | None,
    known: Mapping[ex.Expression, Estimated],
) -> Calculated:
    """Calculate a CASE: bounds are those of all branches that may be the one."""
    chosen: Calculated | None = None
    possible = []
    for condition, result in branches:
        truth = TruthRange.of(condition, partial(_tell_truth, known))
        if truth.may_be_true:
            possible.append(_evaluate(result, known))
            if truth.estimate and chosen is None:
                chosen = possible[-1]
        if not (truth.may_be_false or truth.may_be_unknown):
            break
    else:
        possible.append(NULL if default is None else _evaluate(default, known))
        chosen = chosen or possible[-1]
    chosen = chosen or possible[-1]
    low, high = min(one.low for one in possible), max(one.high for one in possible)
    slopes = chosen.slopes
    if len(possible) > 1:  # whose odds are not known: off by as much as the bounds let it
        slopes = {**slopes, ex.Case(tuple(branches), default): math.inf}
    return replace(chosen, low=low, high=high, slopes=slopes)


def _tell_truth(known: Mapping[ex.Expression, Estimated], condition: ex.Expression) -> TruthRange:
    """Tell the truth of a comparison, or of a test for NULL."""
    values = [_evaluate(part, known) for part in condition.children]
    if isinstance(condition, ex.NullTest):
        return TruthRange((values[0].estimate is None) != condition.negated, True, True, False)
    if not isinstance(condition, ex.Comparison):
        raise TypeError(f"{type(condition).__name__} is not checked")
    one, other = values
    return TruthRange.of_comparison(
        condition.operator, one, other,
        may_be_unknown=any(_may_be_null(part, known) for part in condition.children),
    )  # fmt: skip


def _ratio(division: ex.Arithmetic, one: Calculated, other: Calculated) -> Calculated:
    """Divide; where PostgreSQL divides by zero, there is no result to hold in bounds."""
    is_nullable = _is_nullable(division.right)
    scaled = _split_factor(division.right)
    if scaled is not None and scaled[0] == 1 and scaled[1].function == "count":
        # A number of records that is not 0 is at least 1.
        if other.high < 1:
            if is_nullable:
                return Calculated(None, -math.inf, math.inf)
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
        return Calculated(None, low, high)
    ratio = one.estimate / other.estimate
    slopes = combine((one, 1 / other.estimate), (other, -ratio / other.estimate))
    return Calculated(ratio, low, high, slopes)


def _is_nullable(divisor: ex.Expression) -> bool:
    return isinstance(divisor, ex.NullIf) or (
        isinstance(divisor, ex.Cast | Rounded) and _is_nullable(divisor.operand)
    )


def _unit(part: ex.Expression) -> float:
    return part.unit if isinstance(part, Rounded) else 1.0


def _share(division: ex.Arithmetic) -> tuple[float, float]:
    """Return between what a part of records, over all of them, lies."""
    part, total = _split_factor(division.left), _split_factor(division.right)
    if part is None or total is None or total[1].function != "count" or total[0] <= 0:
        return -math.inf, math.inf
    least, most = _each(part[1])
    if not _conditions_of(total[1]) <= _conditions_of(part[1]):
        return -math.inf, math.inf
    ends = [0.0 if part[0] == 0 else part[0] / total[0] * end for end in (least, most)]
    return min(ends), max(ends)


def _conditions_of(aggregate: ex.Aggregate) -> set[ex.Expression]:
    """Return what a record must meet to be counted, beside WHERE."""
    conditions = set(parts_of(aggregate.condition))
    if aggregate.operand is not None and aggregate.function == "count":
        conditions.add(ex.NullTest(aggregate.operand, negated=True))
    return conditions


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


def _split_factor(expression: ex.Expression) -> tuple[float, ex.Aggregate] | None:
    """Read an expression as a number times an aggregate."""
    match expression:
        case ex.Aggregate():
            return 1.0, expression
        case ex.Cast(operand, _) | ex.NullIf(operand, _):
            return _split_factor(operand)
        case ex.Arithmetic("*", ex.Literal(_, text), operand) | ex.Arithmetic(
            "*", operand, ex.Literal(_, text)
        ):
            inner, factor = _split_factor(operand), float(text)
        case ex.Arithmetic("/", operand, ex.Literal(_, text)) if float(text) != 0:
            inner, factor = _split_factor(operand), 1 / float(text)
        case _:
            return None
    return None if inner is None else (inner[0] * factor, inner[1])


def _fails() -> Exception:
    return refusal(
        "the query's arithmetic fails on some group",
        hint="write NULLIF(COUNT(*), 0), or exclude such groups with WHERE",
        detail="as for a division by zero",
    )


class _KnownGroup(NamedTuple):
    """A group that may be there, and may meet the conditions of the query over groups."""

    key: Mapping[str, str]  # Its values, as JSON
    answers: Mapping[ex.Expression, Estimated]
    is_sure: bool
    likelihood: float  # By estimates


class _Part(NamedTuple):
    """What a group adds to an aggregate over groups."""

    answer: Estimated
    is_sure: bool
    likelihood: float


_THERE: Final = ex.Aggregate("count", None)
_ONE: Final = Estimated(1.0, 0.0, 1, 1)
_ROUNDED: Final = 2.0**-40
"""What adding up numbers that are not whole may lose of a bound."""


def aggregate_groups(
    groups: Sequence[Group],
    query: Query,
    heartbeat: Callable[[], None] = lambda: None,
    rule: FigureRule | None = None,
    n_missing: int = 0,
) -> list[Group]:
    """Answer the aggregates of a query over groups, of which some may be missing."""
    outer = query.asked
    names = {key.expression: key.name for key in query.keys}
    places = [[key.expression for key in query.keys].index(key.expression) for key in outer.keys]
    members: defaultdict[str, list[_KnownGroup]] = defaultdict(list)
    ranks: dict[str, tuple[int, ...]] = {} if outer.keys else {"{}": ()}
    for number, group in enumerate(groups):
        if number % 16 == 0:
            heartbeat()
        known = _find_group(group, query, is_shown=rule is not None)
        if known is None:
            continue
        values = ((json.dumps(own.name), known.key[names[own.expression]]) for own in outer.keys)
        key = f"{{{', '.join(f'{name}: {value}' for name, value in values)}}}"
        ranks[key] = tuple(group.ranks[place] for place in places)
        members[key].append(known)
    aggregates = [measure.aggregate for measure in outer.measures]
    return [
        Group(
            key,
            own_ranks,
            tuple(_aggregate(one, members[key], names, rule, n_missing) for one in aggregates),
        )
        for key, own_ranks in ranks.items()
    ]


def _find_group(group: Group, query: Query, *, is_shown: bool) -> _KnownGroup | None:
    """Tell what is known of a group; None if it is not there, or does not meet the conditions."""
    answers = _map_answers(query, group)
    n = answers[_THERE]
    if query.keys and n.upper_bound == 0:
        return None
    is_sure = not query.keys or (n.lower_bound or 0) >= 1
    likelihood = 1.0
    if not is_sure and n.estimate is not None:
        likelihood = float(n.estimate > 0) if is_shown else -math.expm1(-n.estimate)
        # Who asks of a group that is there asks of one record at least.
        answers[_THERE] = Estimated(max(n.estimate, 1.0), n.std_error, 1, n.upper_bound)
    known = _KnownGroup(split_key(group.key), answers, is_sure, likelihood)
    return _choose_group(known, query.asked.where)


def _choose_group(known: _KnownGroup, condition: ex.Expression | None) -> _KnownGroup | None:
    """Tell whether a group meets a condition; None if it cannot."""
    if condition is None:
        return known
    truth = TruthRange.of(condition, partial(_tell_truth, known.answers))
    if not truth.may_be_true:
        return None
    is_sure = known.is_sure and not (truth.may_be_false or truth.may_be_unknown)
    likelihood = known.likelihood if truth.estimate else 0.0
    return known._replace(is_sure=is_sure, likelihood=likelihood)


def split_key(key: str) -> dict[str, str]:
    """Split a group's key into its values as JSON, with all digits."""
    decoder, values, at = json.JSONDecoder(), dict[str, str](), 1
    while key[at] != "}":
        name, at = decoder.raw_decode(key, at)
        begin = at + 1 + (key[at + 1] == " ")
        _, at = decoder.raw_decode(key, begin)
        values[name] = key[begin:at]
        at += len(key[at:]) - len(key[at:].lstrip(", "))
    return values


def _aggregate(
    aggregate: ex.Aggregate,
    groups: Sequence[_KnownGroup],
    names: Mapping[ex.Expression, str],
    rule: FigureRule | None,
    n_missing: int,
) -> Estimated:
    operand, parts = aggregate.operand, list[_Part]()
    for group in groups:
        known = _choose_group(group, aggregate.condition)
        if known is None:
            continue
        answer, is_sure = _ONE, known.is_sure
        if operand is not None and operand in names:
            if known.key[names[operand]] == "null":
                continue
        elif operand is not None:
            is_sure = is_sure and not _may_be_null(operand, known.answers)
            if aggregate.function != "count":
                answer = _calculate(operand, known.answers)
        parts.append(_Part(answer, is_sure, known.likelihood))
    if aggregate.function == "count":
        n = _count(parts, n_missing)
        return n if rule is None else rule.count(n)
    if rule is not None and any(part.answer.estimate is None for part in parts):
        return NOTHING  # which is of few people
    return _combine_parts(aggregate.function, parts, may_miss=n_missing > 0)


def _count(parts: Sequence[_Part], n_missing: int) -> Estimated:
    n_sure, unsure = sum(part.is_sure for part in parts), [p for p in parts if not p.is_sure]
    estimate = n_sure + math.fsum(part.likelihood for part in unsure)
    error = math.sqrt(math.fsum(map(_spread, unsure)))
    return Estimated(estimate, error, n_sure, len(parts) + n_missing)


def _spread(part: _Part) -> float:
    """Return the variance of whether a group counts; a condition on estimates tells it not."""
    return part.likelihood * (1 - part.likelihood) or 0.25


def _combine_parts(function: str, parts: Sequence[_Part], *, may_miss: bool) -> Estimated:
    """Add up what groups are answered with, or take the mean, the least or the greatest."""
    lows = [
        (-math.inf if one.answer.lower_bound is None else float(one.answer.lower_bound))
        for one in parts
    ]
    highs = [
        (math.inf if one.answer.upper_bound is None else float(one.answer.upper_bound))
        for one in parts
    ]
    are_sure = [one.is_sure for one in parts]
    likely = [
        (one.answer.estimate, one.answer.std_error, one.likelihood)
        for one in parts
        if one.answer.estimate is not None and one.likelihood > 0
    ]
    if not likely:
        return NOTHING
    total = math.fsum(number * weight for number, _, weight in likely)
    n = math.fsum(weight for *_, weight in likely)
    errors = [error for _, error, _ in likely]
    error: float | None = None
    if function in ("sum", "avg"):
        if None not in errors:
            own = math.fsum((error or 0.0) * weight for _, error, weight in likely)
            unsure = math.fsum(
                _spread(one) * (one.answer.estimate or 0.0) ** 2 for one in parts if not one.is_sure
            )
            error = own + math.sqrt(unsure)
        estimate = total
        if function == "avg":
            estimate, error = total / n, None if error is None else error / n
        bound = _largest_sum if function == "sum" else _largest_mean
        low, high = -bound([-one for one in lows], are_sure), bound(highs, are_sure)
        if not all(number.is_integer() for number in (*lows, *highs)):
            low, high = low - _ROUNDED * abs(low), high + _ROUNDED * abs(high)
        elif function == "avg" and not (low == high and low.is_integer()):
            low, high = math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
        low, high = (-math.inf, math.inf) if may_miss else (low, high)
    else:
        sign = 1 if function == "max" else -1
        there = [one for one in likely if one[2] >= 0.5] or likely
        estimate, error, _ = max(there, key=lambda one: sign * one[0])
        ends = (lows, highs) if sign == 1 else ([-one for one in highs], [-one for one in lows])
        low, high = _limit_greatest(*ends, are_sure)
        high = math.inf if may_miss else high
        low, high = (low, high) if sign == 1 else (-high, -low)
    if error is not None:
        error = min(error, (high - low) / 2)
    least, most = (bound if math.isfinite(bound) else None for bound in (low, high))
    return Estimated(min(max(estimate, low), high), error, least, most)


def _largest_sum(highs: Sequence[float], are_sure: Sequence[bool]) -> float:
    return math.fsum(
        high if is_sure else max(high, 0.0) for high, is_sure in zip(highs, are_sure, strict=True)
    )


def _largest_mean(highs: Sequence[float], are_sure: Sequence[bool]) -> float:
    """Return the greatest mean, with those beside the sure ones that make it greater."""
    pairs = list(zip(highs, are_sure, strict=True))
    sure = [high for high, is_sure in pairs if is_sure]
    more = sorted((high for high, is_sure in pairs if not is_sure), reverse=True)
    total, n = math.fsum(sure), len(sure)
    for high in more:
        if n and high * n <= total:
            break
        total, n = total + high, n + 1
    return total / n


def _limit_greatest(
    lows: Sequence[float], highs: Sequence[float], are_sure: Sequence[bool]
) -> tuple[float, float]:
    sure = [low for low, is_sure in zip(lows, are_sure, strict=True) if is_sure]
    return (max(sure) if sure else min(lows)), max(highs)
