"""The typed structure of a count query's condition: all that remains of the analyst's text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as OneOf

LiteralKind = OneOf["number", "string", "boolean", "date", "timestamp"]
Operator = OneOf["=", "<>", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of the query.

    Attributes
    ----------
    kind : {"number", "string", "boolean", "date", "timestamp"}
        ``date`` and ``timestamp`` are typed literals, like ``DATE '2020-01-31'``; a plain quoted
        constant is a ``string`` and takes the type of the column it is compared with.
    text : str
        The value without quotes; numbers as written, with their sign.
    """

    kind: LiteralKind
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column operator literal``."""

    column: str
    operator: Operator
    literal: Literal


@dataclass(frozen=True, slots=True)
class Membership:
    """``column [NOT] IN (literals)``, of two literals or more."""

    column: str
    literals: tuple[Literal, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Range:
    """``column [NOT] BETWEEN low AND high``, closed at both ends."""

    column: str
    low: Literal
    high: Literal
    negated: bool = False


@dataclass(frozen=True, slots=True)
class NullTest:
    """``column IS [NOT] NULL``."""

    column: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction of two parts or more; no part is itself an :class:`And`."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction of two parts or more; no part is itself an :class:`Or`."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Negation, in SQL's three-valued logic: unknown stays unknown."""

    part: Predicate


Condition = Comparison | Membership | Range | NullTest
Predicate = Condition | And | Or | Not


def conditions(predicate: Predicate) -> Iterator[Condition]:
    """Yield the conditions on single columns, from left to right.

    Examples
    --------
    >>> adult = Comparison("age", ">=", Literal("number", "18"))
    >>> [condition.column for condition in conditions(And((adult, Not(NullTest("sex")))))]
    ['age', 'sex']
    """
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from conditions(part)
        case Not(part):
            yield from conditions(part)
        case _:
            yield predicate


def columns(predicate: Predicate) -> frozenset[str]:
    """Return the names of the columns that a predicate mentions."""
    return frozenset(condition.column for condition in conditions(predicate))


def literals(condition: Condition) -> tuple[Literal, ...]:
    """Return the constants of a condition on one column."""
    match condition:
        case Comparison(literal=literal):
            return (literal,)
        case Membership(literals=several):
            return several
        case Range(low=low, high=high):
            return (low, high)
        case NullTest():
            return ()


def conjoin(parts: list[Predicate]) -> Predicate | None:
    """Join parts by AND; None for no part at all."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return And(tuple(parts))
