"""Aggregates the answers of groups for a query over these groups."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Query
from kanon_db.query.formulas import (
    NOTHING,
    Estimated,
    Group,
    TruthRange,
    calculate,
    map_answers,
    may_be_null,
    split_key,
    write_key,
)

if TYPE_CHECKING:
    from kanon_db.figures import FigureRule


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
    keys = [key.name for key in outer.keys]
    members: defaultdict[str, list[_KnownGroup]] = defaultdict(list)
    ranks: dict[str, tuple[int, ...]] = {} if outer.keys else {"{}": ()}
    for number, group in enumerate(groups):
        if number % 16 == 0:
            heartbeat()
        known = _find_group(group, query, is_shown=rule is not None)
        if known is None:
            continue
        key = write_key(keys, (known.key[names[own.expression]] for own in outer.keys))
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
    answers = map_answers(query, group)
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
    truth = TruthRange.of(condition, known.answers)
    if not truth.may_be_true:
        return None
    is_sure = known.is_sure and not (truth.may_be_false or truth.may_be_unknown)
    likelihood = known.likelihood if truth.estimate else 0.0
    return known._replace(is_sure=is_sure, likelihood=likelihood)


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
            is_sure = is_sure and not may_be_null(operand, known.answers)
            if aggregate.function != "count":
                answer = calculate(operand, known.answers)
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
