"""Checking aggregates: in the select list, in HAVING and in ORDER BY."""

from __future__ import annotations

from collections.abc import Sequence

from kanon_db.counting.checking.binder import Binder
from kanon_db.counting.checking.query import Measure
from kanon_db.counting.expressions import (
    NUMBERS,
    Aggregate,
    And,
    Arithmetic,
    Column,
    Comparison,
    Expression,
    Literal,
    Negative,
    Not,
    NullTest,
    Or,
    Range,
    rebuilt,
    walk,
)
from kanon_db.counting.refusals import refusal
from kanon_db.errors import UnsupportedQueryError


class Measures:
    """Collects the aggregates of a query: those that it shows, and others that it depends on."""

    def __init__(self, binder: Binder) -> None:
        self._binder = binder
        self.found: list[Measure] = []

    def show(self, aggregate: Aggregate, alias: str | None) -> None:
        """Add an item of the select list."""
        bound = self._bound(aggregate)
        self.found.append(Measure(_label(alias, bound, self.found), bound))

    def place(self, aggregate: Aggregate) -> int:
        """Return the place of an aggregate that HAVING or ORDER BY mentions."""
        return self._place(self._bound(aggregate))

    def having(self, expression: Expression | None) -> Expression | None:
        """Check HAVING, and add the aggregates in it."""
        if expression is None:
            return None
        bound = self._condition(expression)
        for inner in walk(bound):
            if isinstance(inner, Aggregate):
                self._place(inner)
        return bound

    def _place(self, bound: Aggregate) -> int:
        for place, measure in enumerate(self.found):
            if measure.aggregate == bound:
                return place
        self.found.append(Measure("", bound, is_shown=False))
        return len(self.found) - 1

    def _bound(self, aggregate: Aggregate) -> Aggregate:
        if aggregate.operand is None:
            return aggregate
        if aggregate.function == "count":
            return Aggregate("count", self._binder.value(aggregate.operand)[0])
        operand, type_ = self._binder.bind(aggregate.operand)
        if type_ is None or type_.category not in NUMBERS:
            raise refusal("SUM and AVG are only supported on numbers")
        return Aggregate(aggregate.function, operand)

    def _condition(self, expression: Expression) -> Expression:
        """Bind a condition of HAVING: comparisons of aggregates and numbers, joined."""
        match expression:
            case And() | Or() | Not():
                return rebuilt(expression, self._condition)
            case Comparison() | Range() | NullTest():
                return rebuilt(expression, self._number)
        raise _beyond_having()

    def _number(self, expression: Expression) -> Expression:
        match expression:
            case Aggregate():
                return self._bound(expression)
            case Literal("number"):
                return expression
            case Negative() | Arithmetic("+" | "-" | "*"):
                return rebuilt(expression, self._number)
        raise _beyond_having()


def _label(alias: str | None, aggregate: Aggregate, others: Sequence[Measure]) -> str:
    """Name an aggregate as the query does, or by its function and column; never two alike."""
    match aggregate.operand:
        case None:
            inside = "*"
        case Column(name=name):
            inside = name
        case _:
            inside = "…"
    label = alias if alias is not None else f"{aggregate.function}({inside})"
    taken = {measure.label for measure in others}
    numbered, number = label, 1
    while numbered in taken:
        number += 1
        numbered = f"{label} {number}"
    return numbered


def _beyond_having() -> UnsupportedQueryError:
    return refusal(
        "HAVING compares aggregates with numbers only",
        hint="put conditions on columns into WHERE",
    )
