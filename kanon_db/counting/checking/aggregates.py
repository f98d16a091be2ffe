"""Checking aggregates: in the select list, in HAVING and in ORDER BY."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Final

from kanon_db.counting import expressions as ex
from kanon_db.counting.checking.binder import Binder
from kanon_db.counting.checking.query import Formula, Measure
from kanon_db.counting.checking.types import number_type
from kanon_db.counting.refusals import refusal
from kanon_db.counting.rounding import Round
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
        self.formulas: list[Formula] = []
        self._listed: list[int] = []

    @property
    def listed(self) -> tuple[int, ...]:
        """The places of what the select list shows; formulas come after all measures."""
        return tuple(map(self.settled, self._listed))

    def settled(self, place: int) -> int:
        """Return the final place of a formula, which has a negative one before."""
        return len(self.found) - 1 - place if place < 0 else place

    def show(self, expression: ex.Expression, alias: str | None) -> None:
        """Add an item of the select list: an aggregate, or what is calculated from some."""
        if not isinstance(expression, ex.Aggregate):
            bound, _ = self._calculated(expression)
            self.formulas.append(Formula(self._label(alias, bound), bound))
            self._listed.append(-len(self.formulas))
            return
        aggregate = self._bound(expression)
        label = self._label(alias, aggregate)
        for place, measure in enumerate(self.found):
            if measure.aggregate == aggregate and not measure.is_shown:
                self.found[place] = Measure(label, aggregate)
                self._listed.append(place)
                return
        self._add(Measure(label, aggregate))
        self._listed.append(len(self.found) - 1)

    def place(self, expression: ex.Expression) -> int:
        """Return the place of what ORDER BY mentions, to be settled."""
        if isinstance(expression, ex.Aggregate):
            return self._place(self._bound(expression))
        bound, _ = self._calculated(expression)
        for number, formula in enumerate(self.formulas, start=1):
            if formula.expression == bound:
                return -number
        self.formulas.append(Formula("", bound))
        return -len(self.formulas)

    def _calculated(self, expression: ex.Expression) -> tuple[ex.Expression, ex.Category]:
        """Bind arithmetic of aggregates and numbers; tell what kind of number it is."""
        match expression:
            case ex.Aggregate():
                bound = self._bound(expression)
                self._place(bound)
                return bound, self._kind(expression)
            case ex.Literal("number", text):
                if not _is_numeric(text) or not math.isfinite(float(text)):
                    raise refusal("a constant is too large to calculate with")
                return expression, number_type(text).category
            case ex.Negative(operand):
                inner, kind = self._calculated(operand)
                return ex.Negative(inner), kind
            case ex.Cast(operand, "numeric" | "double precision" as to):
                inner, _ = self._calculated(operand)
                return ex.Cast(inner, to), "numeric" if to == "numeric" else "float"
            case ex.NullIf(left, ex.Literal("number") as right):
                (one, kind), (other, _) = self._calculated(left), self._calculated(right)
                return ex.NullIf(one, other), kind
            case ex.Arithmetic("+" | "-" | "*" | "/" as operator, left, right):
                (one, kind), (other, another) = self._calculated(left), self._calculated(right)
                if operator == "/" and kind == another == "integer":
                    raise refusal(
                        "the division of whole numbers would be cut to a whole number",
                        hint="multiply by 1.0 first, as in 100.0 * COUNT(*) FILTER (WHERE ...)"
                        " / COUNT(*)",
                    )
                return ex.Arithmetic(operator, one, other), max(kind, another, key=_KINDS.index)
            case Round(operand, digits):
                inner, kind = self._calculated(operand)
                if digits is not None and kind == "float":
                    raise refusal(
                        "ROUND to a number of digits needs a numeric, as in PostgreSQL",
                        hint="cast what is rounded, as in ROUND(CAST(AVG(...) AS numeric), 2)",
                    )
                # PostgreSQL rounds a whole number as a floating-point number.
                found: ex.Category = "numeric" if digits is not None else kind
                found = "float" if found == "integer" else found
                is_rough = any(self._kind(part) == "float" for part in _aggregates(operand))
                return Round(inner, digits, found == "float", is_rough), found
        raise refusal(
            "calculations with aggregates are made of aggregates and numbers by + - * / only",
            hint="NULLIF(..., 0), ROUND and casts to numeric are accepted, too; a condition belongs"
            " into FILTER (WHERE ...) of an aggregate, and COALESCE can be left out",
        )

    def _kind(self, aggregate: ex.Aggregate) -> ex.Category:
        """Tell what kind of number an aggregate is."""
        if aggregate.operand is None or aggregate.function in ("count", "distinct"):
            return "integer"
        _, type_ = self._binder.value(aggregate.operand)
        if type_.category == "float" or aggregate.function == "cont":
            return "float"
        if aggregate.share is not None:
            return type_.category
        is_whole = aggregate.function == "sum" and type_.name in ("smallint", "integer")
        return "integer" if is_whole else "numeric"

    def having(self, expression: ex.Expression | None) -> ex.Expression | None:
        """Check HAVING, and add the aggregates in it."""
        if expression is None:
            return None
        bound = self._condition(expression)
        for inner in ex.walk(bound):
            if isinstance(inner, ex.Aggregate):
                self._place(inner)
        return bound

    def _label(self, alias: str | None, bound: ex.Expression) -> str:
        """Name a result as the query does, or by function and column; never two alike."""
        match bound:
            case ex.Aggregate(function, operand, condition):
                inside = operand.name if isinstance(operand, ex.Column) else "..."
                label = f"{function}({'*' if operand is None else inside})"
                if function in ("disc", "cont"):
                    label = f"percentile_{function}({bound.share:g}) of {inside}"
                if function == "distinct":
                    label = f"count(distinct {inside})"
                label += "" if condition is None else " filter (...)"
            case Round():
                label = "round"
            case _:
                label = "?column?"
        label = label if alias is None else alias
        taken = {one.label for one in self.found} | {one.label for one in self.formulas}
        numbered, number = label, 1
        while numbered in taken:
            number += 1
            numbered = f"{label} {number}"
        return numbered

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
        if aggregate.function == "distinct":
            operand, of = self._binder.value(aggregate.operand)
            if not of.has_equality:
                raise refusal(
                    "which values of a column are equal is not published",
                    hint="count groups of its texts, with GROUP BY",
                    detail=f'column "{operand.name}"' if isinstance(operand, ex.Column) else "",
                )
            return ex.Aggregate("distinct", operand, condition)
        operand, type_ = self._binder.bind(aggregate.operand)
        if aggregate.share is not None:
            type_ = _answered_type(type_)
            return replace(aggregate, operand=operand, condition=condition, type=type_)
        if type_ is None or type_.category not in ex.NUMBERS:
            raise refusal(
                "SUM and AVG are only supported for numbers",
                hint="a condition can be counted, with COUNT(*) FILTER (WHERE ...), and a part of"
                " a date is a number, as in AVG(EXTRACT(YEAR FROM <column>))",
            )
        return ex.Aggregate(aggregate.function, operand, condition, type=type_)

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
            case ex.Arithmetic("/") | ex.Cast() | ex.NullIf() | Round() if _aggregates(
                expression
            ) or not _names(expression):
                return self._calculated(expression)[0]
        raise _beyond_having()


_KINDS: Final[tuple[ex.Category, ...]] = ("integer", "numeric", "float")


def _aggregates(expression: ex.Expression) -> list[ex.Aggregate]:
    return [part for part in ex.walk(expression) if isinstance(part, ex.Aggregate)]


def _names(expression: ex.Expression) -> bool:
    return any(isinstance(part, ex.Name) for part in ex.walk(expression))


def _answered_type(type_: ex.Type | None) -> ex.Type:
    """Return the type of what MIN, MAX or a percentile is of; an answer is a number."""
    if type_ is not None and type_.category in ex.NUMBERS:
        return type_
    if type_ is not None and type_.category == "moment":
        raise refusal(
            "MIN, MAX and percentiles of dates are not supported: answers are numbers",
            hint="ask for MIN(EXTRACT(YEAR FROM <column>)), or EPOCH for seconds since 1970; SELECT"
            " DISTINCT <column> ... ORDER BY 1 lists the dates",
        )
    raise refusal(
        "MIN, MAX and percentiles are only supported for numbers",
        hint="SELECT DISTINCT <column> ... ORDER BY 1 lists the values in their order",
    )


def _is_numeric(text: str) -> bool:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    return abs(number.adjusted()) < _MOST_DIGITS


def _beyond_having() -> UnsupportedQueryError:
    return refusal(
        "HAVING can only compare aggregates, what is calculated from them, and numbers",
        hint="put conditions on columns into WHERE",
    )
