"""Answers of the estimator, and what HAVING, ORDER BY and LIMIT leave of them."""

from __future__ import annotations

import json
import math
import operator as operators
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from typing import Any, Final, NamedTuple

from kanon_db.counting import expressions as ex
from kanon_db.counting.checking.query import Order, Query
from kanon_db.counting.refusals import refusal
from kanon_db.counting.rounding import Round
from kanon_db.declaration.shown import Shown


@dataclass(frozen=True, slots=True)
class Estimated(Shown):
    """The answer to one aggregate; see docs/estimation.md.

    Attributes
    ----------
    estimate, std_error, lower_bound, upper_bound : float or None
        Numbers for a count, with whole bounds. Of a sum or an average, None where there is nothing
        to sum; only a bound is None where none is certain.
    """

    estimate: float | None
    std_error: float | None
    lower_bound: float | None
    upper_bound: float | None


NOTHING = Estimated(None, None, None, None)
"""The sum, or the average, of no value."""


class Group(NamedTuple):
    """The answer for one group.

    Attributes
    ----------
    key : str
        JSON object: the group's values by the names that the query gives them.
    ranks : tuple of int
        Places of the values in their order; those of NULL come last.
    estimates : tuple of Estimated
        One for each measure of the query.
    """

    key: str
    ranks: tuple[int, ...]
    estimates: tuple[Estimated, ...]


_EXACT: Final = 2.0**53
"""Up to this, every whole number is a floating-point number."""


_WHOLE_QUOTIENT: Final = 2.0**20
"""An average of whole numbers below it that is whole is not rounded: of fewer than 2^32 records,
another one is farther from it than floating-point numbers are from each other."""

_LOST: Final = 2.0**-40
"""How much of a bound adding up may lose where values are no whole numbers; see also
:func:`.formulas.rounding`."""


def in_doubles(groups: Sequence[Group], aggregates: Sequence[ex.Aggregate]) -> list[Group]:
    """Widen bounds of aggregates that a floating-point number cannot tell.

    Sums and averages of numbers that are not whole are rounded when they are read, added up and
    divided, averages of whole numbers when they are divided only. Bounds move outward by that.

    Raises
    ------
    UnsupportedQueryError
        For sums and averages of infinite values, or of what is no number.
    """
    if all(one.function in ("count", "distinct") for one in aggregates):
        return list(groups)
    return [
        group._replace(
            estimates=tuple(map(_in_doubles, group.estimates, aggregates)),
        )
        for group in groups
    ]


def _in_doubles(found: Estimated, aggregate: ex.Aggregate) -> Estimated:
    function = aggregate.function
    if function in ("count", "distinct"):
        return found
    low, high = found.lower_bound, found.upper_bound
    if function in ("sum", "avg") and not all(
        number is None or math.isfinite(number) for number in (found.estimate, low, high)
    ):
        raise refusal(
            "sums and averages of infinite values, or of what is no number, are not answered",
            hint="COUNT, MIN, MAX and percentiles are; for a sum, the source needs a view that has"
            " NULL in place of such values",
        )
    if function in ("sum", "avg"):
        is_whole = aggregate.type is not None and aggregate.type.category == "integer"
        lost = 0.0 if is_whole else _LOST * max(abs(low or 0.0), abs(high or 0.0))
        low, high = (None if end is None else end + sign * lost
                     for end, sign in ((low, -1), (high, 1)))  # fmt: skip
    low, high = (
        end if end is None or _is_exact(end, aggregate) else math.nextafter(end, towards)
        for end, towards in ((low, -math.inf), (high, math.inf))
    )
    return replace(found, lower_bound=low, upper_bound=high)


def _is_exact(end: float, aggregate: ex.Aggregate) -> bool:
    if aggregate.function == "avg":
        return end == math.trunc(end) and abs(end) < _WHOLE_QUOTIENT
    return abs(end) < _EXACT


def within_limit(groups: Sequence[Group], query: Query) -> list[Group]:
    """Apply OFFSET and LIMIT."""
    end = None if query.limit is None else query.offset + query.limit
    return list(groups[query.offset : end])


def in_order(
    groups: Sequence[Group], query: Query, heartbeat: Callable[[], None] = lambda: None
) -> list[Group]:
    """Apply HAVING and ORDER BY to the estimates.

    Without ORDER BY, groups come in the order of their values. The heartbeat is called every few
    milliseconds, or for each item of ORDER BY.
    """
    places = {measure.aggregate: i for i, measure in enumerate(query.measures)}
    kept = sorted(groups, key=lambda group: group.ranks)
    if query.having is not None:
        found = []
        # A product of constants that are allowed may have more digits than Decimal's default.
        with localcontext(Emax=MAX_EMAX, Emin=MIN_EMIN):
            for number, group in enumerate(kept):
                if number % 16 == 0:
                    heartbeat()
                if _holds(query.having, group, places):
                    found.append(group)
        kept = found
    for order in reversed(query.order):
        heartbeat()
        kept = _ordered(kept, order, query)
    return kept


def _ordered(groups: list[Group], order: Order, query: Query) -> list[Group]:
    def value(group: Group) -> float | None:
        if order.measure is not None:
            return group.estimates[order.measure].estimate
        place = order.key or 0
        is_null = json.loads(group.key)[query.keys[place].name] is None
        return None if is_null else group.ranks[place]

    unknown = [group for group in groups if value(group) is None]
    known = [group for group in groups if value(group) is not None]
    known.sort(key=lambda group: value(group) or 0, reverse=order.is_descending)
    return unknown + known if order.nulls_first else known + unknown


_OPERATORS: Final[Mapping[str, Callable[[Decimal, Decimal], Decimal]]] = {
    "+": operators.add,
    "-": operators.sub,
    "*": operators.mul,
    "/": operators.truediv,
}
_COMPARISONS: Final[Mapping[str, Callable[[Decimal, Decimal], bool]]] = {
    "=": operators.eq, "<>": operators.ne, "<": operators.lt,
    "<=": operators.le, ">": operators.gt, ">=": operators.ge,
}  # fmt: skip


def _holds(condition: ex.Expression, group: Group, places: dict[ex.Aggregate, int]) -> bool | None:
    """Evaluate a condition of HAVING in SQL's three-valued logic."""

    def number(expression: ex.Expression) -> Decimal | None:
        match expression:
            case ex.Aggregate():
                estimate = group.estimates[places[expression]].estimate
                return None if estimate is None else Decimal(estimate)
            case ex.Literal(_, text):
                return Decimal(text)
            case ex.Negative(operand):
                inner = number(operand)
                return None if inner is None else -inner
            case ex.Cast(operand, _):
                return number(operand)
            case Round(operand):
                inner = number(operand)
                return None if inner is None else Decimal(expression.of(float(inner)))
            case ex.NullIf(left, right):
                one, other = number(left), number(right)
                return None if one == other else one
            case ex.Arithmetic(operator, left, right):
                one, other = number(left), number(right)
                # What is divided by an estimate of 0 is not known.
                if one is None or other is None or (operator == "/" and other == 0):
                    return None
                return _OPERATORS[operator](one, other)
        raise TypeError(f"{type(expression).__name__} is not checked")

    match condition:
        case ex.And(parts) | ex.Or(parts):
            found = [_holds(part, group, places) for part in parts]
            decisive = isinstance(condition, ex.Or)
            if decisive in found:
                return decisive
            return None if None in found else not decisive
        case ex.Not(part):
            inner = _holds(part, group, places)
            return None if inner is None else not inner
        case ex.NullTest(operand, negated):
            return (number(operand) is None) != negated
        case ex.Range():
            return _holds(ex.spelled_out(condition), group, places)
        case ex.Comparison(operator, left, right):
            one, other = number(left), number(right)
            if one is None or other is None:
                return None
            return _COMPARISONS[operator](one, other)
    raise TypeError(f"{type(condition).__name__} is not checked")


def known_as(group_key: str, without: str | None = None) -> str:
    """Return a group's key in one spelling, whoever wrote it.

    Parameters
    ----------
    group_key : str
        A JSON object.
    without : str, optional
        A name to leave out.
    """
    values: dict[str, Any] = json.loads(group_key, parse_float=str, parse_int=str)
    return json.dumps(sorted((name, value) for name, value in values.items() if name != without))
