"""PostgreSQL's types of constants and results, and which of them compare with each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kanon_db.counting.expressions import NUMBERS, Category, Column, Constant, Expression, Type
from kanon_db.counting.refusals import refusal
from kanon_db.errors import UnsupportedQueryError

TEXT: Final = Type("text", "text")
BOOLEAN: Final = Type("boolean", "boolean")
INTEGER: Final = Type("integer", "integer")
BIGINT: Final = Type("bigint", "integer")
NUMERIC: Final = Type("numeric", "numeric")
DOUBLE: Final = Type("double precision", "float")
DATE: Final = Type("date", "moment", has_constant_input=False)
TIMESTAMP: Final = Type("timestamp without time zone", "moment", has_constant_input=False)
TIMESTAMPTZ: Final = Type("timestamp with time zone", "moment", has_constant_input=False)

_MAX_INT4: Final = 2**31 - 1
_MAX_INT8: Final = 2**63 - 1

_RANKS: Final = ("smallint", "integer", "bigint", "numeric", "real", "double precision")
_MOMENT_RANKS: Final = (DATE.name, TIMESTAMP.name, TIMESTAMPTZ.name)

_HINTS: Final[dict[Category, str]] = {
    **dict.fromkeys(NUMBERS, "write a number"),
    "boolean": "write TRUE or FALSE",
    "moment": "write DATE '...', TIMESTAMP '...' or the date in single quotes",
    **dict.fromkeys(("text", "label", "other"), "write the constant in single quotes"),
}


def number_type(text: str) -> Type:
    """Return the type that PostgreSQL gives a number."""
    digits = text.lstrip("-")
    if digits.isdecimal() and len(digits.lstrip("0")) < 20:
        if int(digits) <= _MAX_INT4:
            return INTEGER
        if int(digits) <= _MAX_INT8:
            return BIGINT
    return NUMERIC


def result_type(one: Type, other: Type) -> Type:
    """Return the type of an arithmetic result."""
    if "float" in (one.category, other.category):
        return one if one.name == other.name else DOUBLE
    return max(one, other, key=lambda type_: _RANKS.index(type_.name))


def common_type(types: Sequence[Type]) -> Type | None:
    """Return the type that PostgreSQL compares values of these types as; None if it does not."""
    first = replace(
        types[0],
        is_ordered=all(type_.is_ordered for type_ in types),
        has_equality=all(type_.has_equality for type_ in types),
    )
    if all(
        (type_.name, type_.category, type_.labels) == (first.name, first.category, first.labels)
        for type_ in types
    ):
        return first
    if any(type_.operator_schema is not None for type_ in types):
        return None
    categories = {type_.category for type_ in types}
    if categories <= NUMBERS:
        return max(types, key=lambda type_: _RANKS.index(type_.name))
    if categories == {"moment"}:
        return max(types, key=lambda type_: _MOMENT_RANKS.index(type_.name))
    return first if categories == {"text"} else None


def misfit(
    one: Expression, one_type: Type | None, other: Expression, other_type: Type | None
) -> UnsupportedQueryError:
    """Make the refusal of a comparison of types that do not compare."""
    if not isinstance(one, Constant):
        one, one_type, other, other_type = other, other_type, one, one_type
    names = ["text" if type_ is None else type_.name for type_ in (one_type, other_type)]
    hint = "compare values of the same kind"
    if isinstance(one, Constant) and other_type is not None:
        hint = _HINTS[other_type.category]
    return refusal(
        f"a value of type {names[0]} cannot be compared with one of type {names[1]}",
        hint=hint,
        detail=f'column "{other.name}"' if isinstance(other, Column) else "",
    )
