"""Binding expressions: every column is found, and everything gets its type, from the leaves up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kanon_db.counting.checking.scopes import Scopes
from kanon_db.counting.checking.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    common_type,
    misfit,
    number_type,
    result_type,
)
from kanon_db.counting.expressions import (
    NUMBERS,
    Aggregate,
    And,
    Arithmetic,
    Case,
    Column,
    Comparison,
    Constant,
    DatePart,
    Distinct,
    Expression,
    Literal,
    Membership,
    Name,
    Negative,
    Not,
    NullTest,
    Or,
    Pattern,
    Range,
    TruthTest,
    Type,
    rebuilt,
)
from kanon_db.counting.refusals import refusal

_TIMES: Final = frozenset({"hour", "minute", "second"})


class Binder:
    """Gives types to expressions over the columns of some relations."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes

    # -- values -------------------------------------------------------------------------------

    def value(self, expression: Expression) -> tuple[Expression, Type]:
        """Bind an expression that stands alone: a plain string is a text there."""
        bound, type_ = self.bind(expression)
        return (bound, type_) if type_ is not None else (self._given(bound, TEXT), TEXT)

    def bind(self, expression: Expression) -> tuple[Expression, Type | None]:
        """Bind an expression; a plain string and NULL come back as they are, without a type."""
        match expression:
            case Literal("number", text):
                type_ = number_type(text)
                return Constant(text, type_), type_
            case Literal("boolean", text):
                return Constant(text, BOOLEAN), BOOLEAN
            case Literal("date", text):
                return Constant(text, DATE), DATE
            case Literal("timestamp", text):
                return Constant(text, TIMESTAMP), TIMESTAMP
            case Literal():
                return expression, None
            case Name():
                column = self._scopes.column(expression)
                return column, column.type
            case Negative(operand):
                bound, type_ = self._number(operand)
                return Negative(bound), type_
            case Arithmetic(operator, left, right):
                (one, one_type), (other, other_type) = self._number(left), self._number(right)
                if operator == "%" and "float" in (one_type.category, other_type.category):
                    raise refusal("% is not supported on floating-point numbers")
                return Arithmetic(operator, one, other), result_type(one_type, other_type)
            case DatePart():
                return self._date_part(expression)
            case Case():
                return self._case(expression)
            case Aggregate():
                raise refusal(
                    "an aggregate stands where it cannot",
                    hint="COUNT, SUM and AVG stand in the select list, HAVING and ORDER BY",
                )
            case _:
                return self.condition(expression), BOOLEAN

    def _number(self, expression: Expression) -> tuple[Expression, Type]:
        bound, type_ = self.bind(expression)
        if type_ is None or type_.category not in NUMBERS:
            raise refusal(
                "arithmetic is only supported on numbers", hint="write numbers without quotes"
            )
        return bound, type_

    def _date_part(self, part: DatePart) -> tuple[Expression, Type]:
        operand, type_ = self.bind(part.operand)
        if type_ is None or type_.category != "moment":
            raise refusal(
                "parts are taken of dates and timestamps only",
                hint="write the column, or DATE '…'",
            )
        if part.function == "extract" and type_ == DATE and part.field in _TIMES:
            raise refusal("a date has no such part", hint="a timestamp has")
        found = DatePart(part.function, part.field, operand)
        match part.function:
            case "extract":
                return found, NUMERIC
            case "date_part":
                return found, DOUBLE
            case _:
                return found, TIMESTAMPTZ if type_.name == DATE.name else type_

    def _case(self, case: Case) -> tuple[Expression, Type]:
        conditions = [self.condition(when) for when, _ in case.branches]
        written = [then for _, then in case.branches]
        if case.default is not None:
            written.append(case.default)
        results = [self.bind(result) for result in written]
        known = [type_ for _, type_ in results if type_ is not None]
        type_ = common_type(known) if known else TEXT
        if type_ is None or type_.operator_schema is not None:
            raise refusal("the results of a CASE have types that do not go together")
        given = [self._given(result, type_) for result, _ in results]
        default = given.pop() if case.default is not None else None
        return Case(tuple(zip(conditions, given, strict=True)), default), type_

    def _given(self, expression: Expression, type_: Type) -> Expression:
        """Give a plain string or NULL a type; all else has one."""
        match expression:
            case Literal("null"):
                return Constant(None, type_)
            case Literal(_, text):
                return Constant(text, type_)
            case _:
                return expression

    # -- conditions ---------------------------------------------------------------------------

    def condition(self, expression: Expression) -> Expression:
        """Bind an expression that stands where a condition is needed."""
        match expression:
            case And() | Or() | Not() | TruthTest():
                return rebuilt(expression, self.condition)
            case Comparison(operator, left, right):
                return Comparison(operator, *self._compared(left, right))
            case Distinct(left, right, negated):
                return Distinct(*self._compared(left, right), negated)
            case Membership(operand, items, negated):
                return self._membership(operand, items, negated=negated)
            case Range(operand, low, high, negated):
                least = self._compared(operand, low)
                return Range(*least, self._compared(operand, high)[1], negated)
            case Pattern():
                return self._pattern(expression)
            case NullTest(operand, negated):
                return NullTest(self.value(operand)[0], negated)
        bound, type_ = self.bind(expression)
        if bound == Literal("null", ""):
            return Constant(None, BOOLEAN)
        if type_ is None or type_.category != "boolean":
            what = "a column" if isinstance(bound, Column) else "a value"
            raise refusal(
                f"{what} stands where a condition is needed",
                hint="compare it with a constant; strings go into single quotes, not double",
            )
        return bound

    def _compared(self, left: Expression, right: Expression) -> tuple[Expression, Expression]:
        """Bind two sides of a comparison."""
        (one, one_type), (other, other_type) = self.bind(left), self.bind(right)
        if Literal("null", "") in (one, other):
            raise refusal("a comparison with NULL is never true", hint="write IS NULL")
        if one_type is None and other_type is None:
            return self._given(one, TEXT), self._given(other, TEXT)
        if one_type is None and other_type is not None:
            return self._given(one, other_type), other
        if other_type is None and one_type is not None:
            return one, self._given(other, one_type)
        if one_type is None or other_type is None or not common_type((one_type, other_type)):
            raise misfit(one, one_type, other, other_type)
        return one, other

    def _membership(
        self, operand: Expression, items: Sequence[Expression], *, negated: bool
    ) -> Expression:
        bound, type_ = self.bind(operand)
        found = [self.bind(item) for item in items]
        if Literal("null", "") in (bound, *(item for item, _ in found)):
            raise refusal("a comparison with NULL is never true", hint="write IS NULL")
        known = [t for _, t in ((bound, type_), *found) if t is not None]
        common = common_type(known) if known else TEXT
        if common is None:
            for item, item_type in found:
                if type_ is None or (item_type is not None and not common_type((type_, item_type))):
                    raise misfit(bound, type_, item, item_type)
            raise refusal("the items of a list have types that do not go together")
        return Membership(
            self._given(bound, common),
            tuple(self._given(item, common) for item, _ in found),
            negated,
        )

    def _pattern(self, pattern: Pattern) -> Expression:
        operand, type_ = self.value(pattern.operand)
        if type_.category != "text":
            raise refusal(
                f"LIKE does not compare a value of type {type_.name}", hint="LIKE takes texts"
            )
        escape = None if pattern.escape is None else self._given(pattern.escape, TEXT)
        return Pattern(
            operand, self._given(pattern.pattern, TEXT), escape, pattern.is_case_sensitive,
            pattern.negated,
        )  # fmt: skip
