"""May this query be answered, and from which side? Columns, types, and the split by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kanon_db.counting.layout import BucketLayout, Category, Column
from kanon_db.counting.predicate import (
    And,
    LiteralKind,
    Predicate,
    columns,
    conditions,
    conjoin,
    literals,
)
from kanon_db.counting.refusals import refusal

_COMPARABLE: Final[dict[Category, frozenset[LiteralKind]]] = {
    "integer": frozenset({"number", "string"}),
    "numeric": frozenset({"number", "string"}),
    "float": frozenset({"number", "string"}),
    "text": frozenset({"string"}),
    "boolean": frozenset({"boolean", "string"}),
    "moment": frozenset({"string", "date", "timestamp"}),
    "other": frozenset({"string"}),
}
"""Kinds of constants for each category, as in PostgreSQL: text is not compared with a number."""

_HINTS: Final[dict[Category, str]] = {
    "integer": "write a number",
    "numeric": "write a number",
    "float": "write a number",
    "text": "write the constant in single quotes",
    "boolean": "write TRUE or FALSE",
    "moment": "write DATE '…', TIMESTAMP '…' or the date in single quotes",
    "other": "write the constant in single quotes",
}


@dataclass(frozen=True, slots=True)
class CountQuery:
    """A query that can be answered: a conjunction of its two sides.

    Attributes
    ----------
    quasi_identifiers : Predicate or None
        On the QIT; None for no condition.
    sensitive : Predicate or None
        On the SAT.
    """

    quasi_identifiers: Predicate | None
    sensitive: Predicate | None


def check(predicate: Predicate | None, layout: BucketLayout) -> CountQuery:
    """Check a predicate against a publication and split it by side.

    Raises
    ------
    UnsupportedQueryError
        When a column is unknown, a constant does not fit its column's type, or one part of the
        conjunction mentions both sides.
    """
    if predicate is None:
        return CountQuery(None, None)
    known = {**layout.quasi_identifiers, layout.sensitive.name: layout.sensitive}
    for condition in conditions(predicate):
        column = known.get(condition.column)
        if column is None:
            raise refusal(
                "the query names a column that the publication does not have",
                hint=f"its columns are {', '.join(known)}",
            )
        for literal in literals(condition):
            if literal.kind not in _COMPARABLE[column.category]:
                raise _misfit(column, literal.kind)
    sides: tuple[list[Predicate], list[Predicate]] = ([], [])
    for part in predicate.parts if isinstance(predicate, And) else (predicate,):
        mentioned = columns(part)
        if layout.sensitive.name in mentioned and len(mentioned) > 1:
            raise refusal(
                "one OR or NOT joins quasi-identifiers with the sensitive attribute",
                hint=f'the sensitive attribute is "{layout.sensitive.name}": join conditions on it'
                " and on other columns by AND; for any predicate, sum the weight column of the"
                " publication's view",
            )
        sides[layout.sensitive.name in mentioned].append(part)
    return CountQuery(conjoin(sides[0]), conjoin(sides[1]))


def _misfit(column: Column, kind: LiteralKind) -> Exception:
    error = refusal(
        f"a {kind} does not compare with a column of type {column.type_name}",
        hint=_HINTS[column.category],
    )
    error.detail = f'column "{column.name}"'
    return error
