"""Which casts are answered: those that cannot fail on a value, nor depend on a setting.

A cast of a number to one that is too small fails as arithmetic does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kanon_db.counting import expressions as ex
from kanon_db.counting.checking.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    NUMERIC,
    TEXT,
    TIMESTAMP,
)
from kanon_db.counting.refusals import refusal

_TARGETS: Final = {
    type_.name: type_
    for type_ in (
        ex.Type("smallint", "integer"), INTEGER, BIGINT, NUMERIC, ex.Type("real", "float"),
        DOUBLE, TEXT, ex.Type("character varying", "text"), DATE, TIMESTAMP, BOOLEAN,
    )
}  # fmt: skip

_NEVER: Final[dict[tuple[str, str], tuple[str, str]]] = {
    **{
        ("text", to): (
            "a cast of texts could fail on some value",
            "compare with quoted constants, or map texts to values with CASE",
        )
        for to in ("integer", "numeric", "float", "moment", "boolean")
    },
    ("moment", "text"): (
        "the text of a date depends on a setting",
        "compare dates with DATE '...', or take parts of them with EXTRACT",
    ),
    ("float", "text"): (
        "the text of a floating-point number depends on a setting",
        "compare numbers with numbers",
    ),
    ("numeric", "text"): (
        "how many digits a number has after the point is not published",
        "compare numbers with numbers, or cast to integer first",
    ),
}
"""Why there is no cast from one category to another, and what to write."""


def target_of(to: str) -> ex.Type:
    """Return the type that a cast to this name gives a constant."""
    return _TARGETS[to]


def cast_type(type_: ex.Type, to: str) -> ex.Type:
    """Return the type of a value that is cast.

    Raises
    ------
    UnsupportedQueryError
        It says why the cast is not answered, and what to write.
    """
    target = _TARGETS[to]
    kinds = type_.category, target.category
    is_plain = type_.operator_schema is None
    if is_plain and (
        set(kinds) <= ex.NUMBERS
        or kinds in (("moment", "moment"), ("boolean", "boolean"), ("boolean", "text"))
        or kinds in (("text", "text"), ("integer", "text"))
        or (kinds == ("label", "text") and type_.labels)
        or {type_.name, to} == {INTEGER.name, BOOLEAN.name}
    ):
        return replace(target, is_ordered=type_.is_ordered, has_equality=type_.has_equality)
    what, hint = _NEVER.get(
        kinds,
        (
            f"a value of type {type_.name} cannot be cast to {to}",
            "compare it as it is, or map its values with CASE",
        ),
    )
    raise refusal(what, hint=hint)
