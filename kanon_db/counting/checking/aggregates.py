"""Checking aggregates: in the select list, in HAVING and in ORDER BY."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Final

from kanon_db.counting import expressions as ex
from kanon_db.counting.checking.binder import Binder
from kanon_db.counting.checking.query import Measure
from kanon_db.counting.refusals import refusal
from kanon_db.errors import UnsupportedQueryError

_MOST_DIGITS: Final = 131_072
"""Digits that PostgreSQL's numeric may have before the decimal point."""

MOST_MEASURES: Final = 50
"""The most aggregates of a query: each reads all records."""


class Measures:
    """Collects the aggregates of a query: those that it shows, and others that it depends on."""

    def __init__(self, binder: Binder) -> None:
        self._binder = binder
        self.found: list[Measure] = []

    def show(self, aggregate: ex.Aggregate, alias: str | None) -> None:
        """Add an item of the select list."""
        bound = self._bound(aggregate)
        self._add(Measure(_label(alias, bound, self.found), bound))

    def place(self, aggregate: ex.Aggregate) -> int:
        """Return the place of an aggregate that HAVING or ORDER BY mentions."""
        return self._place(self._bound(aggregate))

    def having(self, expression: ex.Expression | None) -> ex.Expression | None:
        """Check HAVING, and add the aggregates in it."""
        if expression is None:
            return None
        bound = self._condition(expression)
        for inner in ex.walk(bound):
            if isinstance(inner, ex.Aggregate):
                self._place(inner)
        return bound

    def _place(self, bound: ex.Aggregate) -> int:
        for place, measure in enumerate(self.found):
            if measure.aggregate == bound:
                return place
        self._add(Measure("", bound, is_shown=False))
        return len(self.found) - 1

    def _add(self, measure: Measure) -> None:
        if len(self.found) == MOST_MEASURES:
            raise refusal(
                f"the query has more than {MOST_MEASURES} aggregates",
                hint="ask for fewer aggregates at a time; those of HAVING and ORDER BY count, too",
            )
        self.found.append(measure)

    def _bound(self, aggregate: ex.Aggregate) -> ex.Aggregate:
        condition = aggregate.condition
        if condition is not None:
            condition = self._binder.condition(condition)
        if aggregate.operand is None:
            return replace(aggregate, condition=condition)
        if aggregate.function == "count":
            return ex.Aggregate("count", self._binder.value(aggregate.operand)[0], condition)
        operand, type_ = self._binder.bind(aggregate.operand)
        if type_ is None or type_.category not in ex.NUMBERS:
            raise refusal("SUM and AVG are only supported for numbers")
        return ex.Aggregate(aggregate.function, operand, condition)

    def _condition(self, expression: ex.Expression) -> ex.Expression:
        """Bind a condition of HAVING: comparisons of aggregates and numbers, joined."""
        match expression:
            case ex.And() | ex.Or() | ex.Not():
                return ex.rebuilt(expression, self._condition)
            case ex.Comparison() | ex.Range() | ex.NullTest():
                return ex.rebuilt(expression, self._number)
        raise _beyond_having()

    def _number(self, expression: ex.Expression) -> ex.Expression:
        match expression:
            case ex.Aggregate():
                return self._bound(expression)
            case ex.Literal("number", text):
                if not _is_numeric(text):
                    raise refusal(
                        "a constant cannot be read as numeric",
                        hint=f"numbers have at most {_MOST_DIGITS:,} digits before the point",
                    )
                return expression
            case ex.Negative() | ex.Arithmetic("+" | "-" | "*"):
                return ex.rebuilt(expression, self._number)
        raise _beyond_having()


def _is_numeric(text: str) -> bool:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    return abs(number.adjusted()) < _MOST_DIGITS


def _label(alias: str | None, aggregate: ex.Aggregate, others: Sequence[Measure]) -> str:
    """Name an aggregate as the query does, or by its function and column; never two alike."""
    match aggregate.operand:
        case None:
            inside = "*"
        case ex.Column(name=name):
            inside = name
        case _:
            inside = "..."
    label = alias if alias is not None else f"{aggregate.function}({inside})"
    if alias is None and aggregate.condition is not None:
        label += " filter (...)"
    taken = {measure.label for measure in others}
    numbered, number = label, 1
    while numbered in taken:
        number += 1
        numbered = f"{label} {number}"
    return numbered


def _beyond_having() -> UnsupportedQueryError:
    return refusal(
        "HAVING can only compare aggregates with numbers",
        hint="put conditions on columns into WHERE",
    )
