"""The typed structure of a count query's expressions: all that remains of the analyst's text.

The parser leaves :class:`Literal` and :class:`Name` at the leaves; the check puts
:class:`Constant` and :class:`Column` there, which know their types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final
from typing import Literal as OneOf

Category = OneOf["integer", "numeric", "float", "text", "boolean", "moment", "other"]
"""What can be done with a type; a ``moment`` is a date or a timestamp."""

LiteralKind = OneOf["number", "string", "boolean", "null", "date", "timestamp"]
ComparisonOperator = OneOf["=", "<>", "<", "<=", ">", ">="]
ArithmeticOperator = OneOf["+", "-", "*", "/", "%"]
Truth = OneOf["true", "false", "unknown"]
AggregateFunction = OneOf["count", "sum", "avg"]

NUMBERS: Final[frozenset[Category]] = frozenset({"integer", "numeric", "float"})


@dataclass(frozen=True, slots=True)
class Type:
    """A type as statements need it.

    Attributes
    ----------
    name : str
        SQL name, without modifiers, safe in a statement.
    category : Category
    operator_schema : str or None
        Quoted schema of the type's own comparison operators; None for PostgreSQL's.
    has_constant_input : bool
        Whether reading a text as this type depends on nothing else (on no setting, say).
    """

    name: str
    category: Category
    operator_schema: str | None = None
    has_constant_input: bool = True


# -- leaves -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant as written.

    Attributes
    ----------
    kind : {"number", "string", "boolean", "null", "date", "timestamp"}
        ``date`` and ``timestamp`` are typed literals, like ``DATE '2020-01-31'``; a plain quoted
        constant is a ``string`` and takes the type of what it is compared with.
    text : str
        The value without quotes; numbers as written, with their sign.
    """

    kind: LiteralKind
    text: str


@dataclass(frozen=True, slots=True)
class Name:
    """A column as written: its name, after the names that qualify it."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant and the type that PostgreSQL gives it; None is NULL."""

    text: str | None
    type: Type


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the publication, or of a lookup table joined to it.

    Attributes
    ----------
    name : str
        As the analyst may write it.
    sql : str
        The same, quoted for a statement.
    type : Type
    lookup : int or None
        Number of the lookup table; None for the publication's own columns.
    via : str
        The publication's column that decides the value: itself, or what its lookup is joined on.
    """

    name: str
    sql: str
    type: Type
    lookup: int | None = None
    via: str = ""

    @property
    def attribute(self) -> str:
        """The publication's column on which the value depends."""
        return self.via or self.name


@dataclass(frozen=True, slots=True)
class Matched:
    """Whether a record has a row in a lookup table; `column` is the table's join column."""

    column: Column


# -- values -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Negative:
    """``-operand``."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``left operator right``, of numbers."""

    operator: ArithmeticOperator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class DatePart:
    """``EXTRACT(field FROM operand)``, ``date_part('field', operand)`` or ``date_trunc``."""

    function: OneOf["extract", "date_part", "date_trunc"]
    field: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Case:
    """``CASE WHEN condition THEN result … ELSE default END``."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression | None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """``COUNT(*)`` (without an operand), ``COUNT(operand)``, ``SUM`` or ``AVG``."""

    function: AggregateFunction
    operand: Expression | None


# -- conditions -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left operator right``."""

    operator: ComparisonOperator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Distinct:
    """``left IS [NOT] DISTINCT FROM right``."""

    left: Expression
    right: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Membership:
    """``operand [NOT] IN (items)``."""

    operand: Expression
    items: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Range:
    """``operand [NOT] BETWEEN low AND high``, closed at both ends."""

    operand: Expression
    low: Expression
    high: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    """``operand [NOT] LIKE pattern [ESCAPE escape]``, or ILIKE."""

    operand: Expression
    pattern: Expression
    escape: Expression | None
    is_case_sensitive: bool
    negated: bool = False


@dataclass(frozen=True, slots=True)
class NullTest:
    """``operand IS [NOT] NULL``."""

    operand: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class TruthTest:
    """``operand IS [NOT] TRUE``, ``FALSE`` or ``UNKNOWN``."""

    operand: Expression
    truth: Truth
    negated: bool = False


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction of two parts or more; no part is itself an :class:`And`."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction of two parts or more; no part is itself an :class:`Or`."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Negation, in SQL's three-valued logic: unknown stays unknown."""

    part: Expression


Expression = (
    Literal | Name | Constant | Column | Matched
    | Negative | Arithmetic | DatePart | Case | Aggregate
    | Comparison | Distinct | Membership | Range | Pattern | NullTest | TruthTest
    | And | Or | Not
)  # fmt: skip


def children(expression: Expression) -> tuple[Expression, ...]:
    """Return what an expression is made of, from left to right."""
    match expression:
        case Negative(operand) | DatePart(operand=operand):
            return (operand,)
        case NullTest(operand=operand) | TruthTest(operand=operand):
            return (operand,)
        case Aggregate(operand=operand):
            return () if operand is None else (operand,)
        case Arithmetic(_, left, right) | Comparison(_, left, right) | Distinct(left, right):
            return (left, right)
        case Membership(operand, items):
            return (operand, *items)
        case Range(operand, low, high):
            return (operand, low, high)
        case Pattern(operand, pattern, escape):
            return (operand, pattern) if escape is None else (operand, pattern, escape)
        case Case(branches, default):
            inner = tuple(part for branch in branches for part in branch)
            return inner if default is None else (*inner, default)
        case And(parts) | Or(parts):
            return parts
        case Not(part):
            return (part,)
        case _:
            return ()


def walk(expression: Expression | None) -> Iterator[Expression]:
    """Yield an expression and everything in it, from left to right, without recursing.

    Examples
    --------
    >>> adult = Comparison(">=", Name(("age",)), Literal("number", "18"))
    >>> [part.parts for part in walk(Not(adult)) if isinstance(part, Name)]
    [('age',)]
    """
    pending = [] if expression is None else [expression]
    while pending:
        inner = pending.pop()
        yield inner
        pending.extend(reversed(children(inner)))


def columns(expression: Expression | None) -> frozenset[Column]:
    """Return the columns that a checked expression mentions, those of :class:`Matched` too."""
    found = (
        inner.column if isinstance(inner, Matched) else inner
        for inner in walk(expression)
        if isinstance(inner, Column | Matched)
    )
    return frozenset(found)


def attributes(expression: Expression | None) -> frozenset[str]:
    """Return the publication's columns on which an expression depends."""
    return frozenset(column.attribute for column in columns(expression))


def conjoin(parts: list[Expression]) -> Expression | None:
    """Join parts by AND, flat; None for no part at all."""
    return _chained(And, parts)


def disjoin(parts: list[Expression]) -> Expression | None:
    """Join parts by OR, flat; None for no part at all."""
    return _chained(Or, parts)


def _chained(kind: type[And] | type[Or], parts: list[Expression]) -> Expression | None:
    flat = [
        inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,))
    ]
    if len(flat) < 2:
        return flat[0] if flat else None
    return kind(tuple(flat))


def replaced(
    expression: Expression, change: Callable[[Expression], Expression | None]
) -> Expression:
    """Rebuild an expression; where `change` gives something else than None, that takes its place.

    Parameters
    ----------
    change : callable
        Is asked from the outside in, and not about what is inside a part that it replaced.
    """
    other = change(expression)
    if other is not None:
        return other

    def inside(part: Expression) -> Expression:
        return replaced(part, change)

    match expression:
        case Negative(operand):
            return Negative(inside(operand))
        case DatePart(function, field, operand):
            return DatePart(function, field, inside(operand))
        case NullTest(operand, negated):
            return NullTest(inside(operand), negated)
        case TruthTest(operand, truth, negated):
            return TruthTest(inside(operand), truth, negated)
        case Aggregate(function, operand):
            return Aggregate(function, None if operand is None else inside(operand))
        case Arithmetic(operator, left, right):
            return Arithmetic(operator, inside(left), inside(right))
        case Comparison(operator, left, right):
            return Comparison(operator, inside(left), inside(right))
        case Distinct(left, right, negated):
            return Distinct(inside(left), inside(right), negated)
        case Membership(operand, items, negated):
            return Membership(inside(operand), tuple(map(inside, items)), negated)
        case Range(operand, low, high, negated):
            return Range(inside(operand), inside(low), inside(high), negated)
        case Pattern(operand, pattern, escape, is_case_sensitive, negated):
            return Pattern(
                inside(operand),
                inside(pattern),
                None if escape is None else inside(escape),
                is_case_sensitive,
                negated,
            )
        case Case(branches, default):
            return Case(
                tuple((inside(when), inside(then)) for when, then in branches),
                None if default is None else inside(default),
            )
        case And(parts):
            return And(tuple(map(inside, parts)))
        case Or(parts):
            return Or(tuple(map(inside, parts)))
        case Not(part):
            return Not(inside(part))
        case _:
            return expression
