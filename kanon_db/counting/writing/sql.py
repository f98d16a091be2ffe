"""Writing checked expressions as SQL.

Every word is ours, every name was quoted by the server or the driver, and every constant is a
bound value: nothing of the analyst's text is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kanon_db.counting import expressions as ex

Spelling = Callable[[ex.Column], str]
"""Names a column as a statement does, with the alias of its relation."""


class Statement(NamedTuple):
    """SQL with its values, bound as ``$1`` and so on: a text each, or an array of texts."""

    text: str
    bound: tuple[str | list[str], ...]


class Constants:
    """The constants of one statement, each bound to a parameter, and each list of them to one.

    Parameters
    ----------
    literal : callable, optional
        Quotes a value: the values are then part of the text, for people to read and run.
    first : int
        Number of the first parameter.
    """

    def __init__(self, literal: Callable[[str], str] | None = None, first: int = 1) -> None:
        self._literal = literal
        self._first = first
        self._numbers: dict[str | tuple[str, ...], int] = {}

    @property
    def are_shown(self) -> bool:
        """Whether the values are part of the text, for people."""
        return self._literal is not None

    @property
    def bound(self) -> tuple[str | list[str], ...]:
        """What was written so far: a text, or an array of texts, for each parameter."""
        return tuple(text if isinstance(text, str) else list(text) for text in self._numbers)

    def write(self, constant: ex.Constant) -> str:
        """Write a constant with its type."""
        if constant.text is None:
            return f"NULL::{constant.type.name}"
        if self._literal is not None:
            return f"{self._literal(constant.text)}::{constant.type.name}"
        value = f"{self._parameter(constant.text)}::text::{constant.type.name}"
        # Read once, not for each row, where the planner cannot do that by itself.
        return value if constant.type.has_constant_input else f"(SELECT {value})"

    def array(self, items: Sequence[ex.Expression], type_: ex.Type | None) -> str | None:
        """Write constants as one array: the server would copy an array for each element of it.

        Returns
        -------
        str or None
            None for what has to be written one by one: values to be shown, expressions, and arrays.
        """
        by_type: dict[ex.Type, list[str]] = {}
        for item in items:
            if not isinstance(item, ex.Constant) or item.text is None:
                return None
            by_type.setdefault(item.type, []).append(item.text)
        if self._literal is not None or type_ is None or type_.name.endswith("[]"):
            return None
        arrays = []
        for of, texts in by_type.items():
            value = f"{self._parameter(tuple(texts))}::text[]::{of.name}[]"
            if of.name != type_.name:
                value += f"::{type_.name}[]"
            arrays.append(value if of.has_constant_input else f"(SELECT {value})")
        return f"({' || '.join(arrays)})::{type_.name}[]"

    def texts(self, texts: tuple[str, ...]) -> str:
        """Write an array of texts."""
        if self._literal is not None:
            return f"ARRAY[{', '.join(map(self._literal, texts))}]::text[]"
        return f"{self._parameter(texts)}::text[]"

    def _parameter(self, value: str | tuple[str, ...]) -> str:
        return f"${self._numbers.setdefault(value, len(self._numbers) + self._first)}"


def write(expression: ex.Expression, spell: Spelling, constants: Constants) -> str:
    """Write a checked expression as SQL.

    Parameters
    ----------
    expression : Expression
    spell : callable
        Names a column.
    constants : Constants
        Collects the constants.
    """

    def inner(part: ex.Expression) -> str:
        return write(part, spell, constants)

    match expression:
        case ex.Column():
            return spell(expression)
        case ex.Constant():
            return constants.write(expression)
        case ex.Matched(column):
            return f"({spell(column)} IS NOT NULL)"
        case ex.Negative(operand):
            return f"(- {inner(operand)})"
        case ex.Arithmetic(operator, left, right):
            return f"({inner(left)} {operator} {inner(right)})"
        case ex.Rank(operand, labels):
            return f"array_position({constants.texts(labels)}, {inner(operand)})"
        case ex.DatePart("extract", field, operand):
            return f"EXTRACT({field} FROM {inner(operand)})"
        case ex.DatePart(function, field, operand):
            return f"{function}('{field}', {inner(operand)})"
        case ex.Case(branches, default):
            written = " ".join(f"WHEN {inner(when)} THEN {inner(then)}" for when, then in branches)
            otherwise = "" if default is None else f" ELSE {inner(default)}"
            return f"CASE {written}{otherwise} END"
        case ex.Age(later, earlier):
            return f"age({inner(later)}, {inner(earlier)})"
        case ex.Cast(operand, to):
            return f"CAST({inner(operand)} AS {to})"
        case ex.Coalesce(operands):
            return f"COALESCE({', '.join(map(inner, operands))})"
        case ex.NullIf(left, right):
            return f"NULLIF({inner(left)}, {inner(right)})"
        case ex.And(parts):
            return f"({' AND '.join(map(inner, parts))})"
        case ex.Or(parts):
            return f"({' OR '.join(map(inner, parts))})"
        case ex.Not(part):
            return f"(NOT {inner(part)})"
        case ex.NullTest(operand, negated):
            return f"({inner(operand)} IS {_not(negated)}NULL)"
        case ex.TruthTest(operand, truth, negated):
            return f"({inner(operand)} IS {_not(negated)}{truth.upper()})"
        case ex.Pattern(operand, pattern, escape, is_case_sensitive, negated):
            like = "LIKE" if is_case_sensitive else "ILIKE"
            ending = "" if escape is None else f" ESCAPE {inner(escape)}"
            return f"({inner(operand)} {_not(negated)}{like} {inner(pattern)}{ending})"
        case ex.Comparison(operator, left, right):
            return f"({inner(left)} {_operator(operator, left, right)} {inner(right)})"
        case ex.Range():
            return inner(ex.spelled_out(expression))
        case ex.Distinct(left, right, negated):
            equal = inner(ex.Comparison("=", left, right))
            # A row of NULLs IS NULL, and yet it is a value.
            neither = f"num_nulls({inner(left)}, {inner(right)}) = 2"
            same = f"({equal} IS TRUE OR {neither})"
            return same if negated else f"(NOT {same})"
        case ex.Membership(operand, items, negated, type_):
            if (array := constants.array(items, type_)) is not None:
                equal = _operator("=", operand, items[0])
                return f"({_not(negated)}{inner(operand)} {equal} ANY ({array}))"
            if _schema(operand) is not None:
                # IN would look its operator up by name, in pg_catalog.
                return inner(ex.spelled_out(expression))
            return f"({inner(operand)} {_not(negated)}IN ({', '.join(map(inner, items))}))"
    raise TypeError(f"{type(expression).__name__} is not checked")


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


def _operator(symbol: str, left: ex.Expression, right: ex.Expression) -> str:
    schema = _schema(left) or _schema(right)
    return symbol if schema is None else f"OPERATOR({schema}.{symbol})"


def _schema(operand: ex.Expression) -> str | None:
    return operand.type.operator_schema if isinstance(operand, ex.Column | ex.Constant) else None
