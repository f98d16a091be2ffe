"""The typed structure of a count query's expressions: all that remains of the analyst's text.

The parser leaves :class:`Literal` and :class:`Name` at the leaves; the check puts
:class:`Constant` and :class:`Column` there, which know their types.

What an expression is made of follows from its fields: those that hold an expression, or a tuple
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import ClassVar, Final, TypeVar, dataclass_transform
from typing import Literal as OneOf

from kanon_db.counting.types import NUMBERS as NUMBERS
from kanon_db.counting.types import Category as Category
from kanon_db.counting.types import Type as Type

LiteralKind = OneOf["number", "string", "boolean", "null", "date", "timestamp"]
ComparisonOperator = OneOf["=", "<>", "<", "<=", ">", ">="]
ArithmeticOperator = OneOf["+", "-", "*", "/", "%"]
Truth = OneOf["true", "false", "unknown"]
AggregateFunction = OneOf["count", "distinct", "sum", "avg", "min", "max", "disc", "cont"]
DateFunction = OneOf["extract", "date_part", "date_trunc"]

Part = TypeVar("Part", bound="Expression")


@dataclass_transform(frozen_default=True)
class Expression:
    """What every class below is; each of them is a frozen dataclass.

    Expressions are equal if they are of the same class and made of the same. What compares them is
    written once, here: a first estimate would wait until it is compiled for each class.
    """

    __match_args__: ClassVar[tuple[str, ...]] = ()
    _content: ClassVar[attrgetter[object]]
    """Reads all fields: a tuple, or the only one."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False, repr=False)(cls)
        cls._content = attrgetter(*cls.__match_args__)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._content(self) == self._content(other)

    def __hash__(self) -> int:
        return hash(self._content(self))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__name__}({fields})"


# -- leaves -----------------------------------------------------------------------------------


class Literal(Expression):
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


class Name(Expression):
    """A column as written: its name, after the names that qualify it."""

    parts: tuple[str, ...]


class Constant(Expression):
    """A constant and the type that PostgreSQL gives it; None is NULL."""

    text: str | None
    type: Type


class Column(Expression):
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


class Matched(Expression):
    """Whether a record has a row in a lookup table; `column` is the table's join column."""

    column: Column


# -- values -----------------------------------------------------------------------------------


class Negative(Expression):
    """``-operand``."""

    operand: Expression


class Arithmetic(Expression):
    """``left operator right``, of numbers."""

    operator: ArithmeticOperator
    left: Expression
    right: Expression


class DatePart(Expression):
    """``EXTRACT(field FROM operand)``, ``date_part('field', operand)`` or ``date_trunc``."""

    function: DateFunction
    field: str
    operand: Expression


class Age(Expression):
    """``age(later, earlier)``, an interval of which a :class:`DatePart` takes a part."""

    later: Expression
    earlier: Expression


class Rank(Expression):
    """The place of a value of an enumeration among its labels."""

    operand: Expression
    labels: tuple[str, ...]


class Case(Expression):
    """``CASE WHEN condition THEN result … ELSE default END``."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression | None


class Cast(Expression):
    """``CAST(operand AS to)``; `to` is the SQL name of one of `reading.casts.TYPES`."""

    operand: Expression
    to: str


class Coalesce(Expression):
    """``COALESCE(operands)``."""

    operands: tuple[Expression, ...]


class NullIf(Expression):
    """``NULLIF(left, right)``."""

    left: Expression
    right: Expression


class Aggregate(Expression):
    """``COUNT(*)`` (without an operand), ``COUNT([DISTINCT] operand)``, ``SUM`` and so on.

    Attributes
    ----------
    function : {"count", "distinct", "sum", "avg", "min", "max", "disc", "cont"}
        ``disc`` and ``cont`` are ``percentile_disc`` and ``percentile_cont``.
    operand : Expression or None
    condition : Expression or None
        What ``FILTER (WHERE condition)`` asks of a record.
    share : float or None
        Of a percentile; 0 and 1 of MIN and MAX.
    type : Type or None
        That of the operand of these, of SUM and of AVG, once it is checked.
    """

    function: AggregateFunction
    operand: Expression | None
    condition: Expression | None = None
    share: float | None = None
    type: Type | None = None


DERIVED: Final = frozenset({"distinct", "min", "max", "disc", "cont"})
"""Aggregates that have a statement of their own only where they are exact."""

# -- conditions -------------------------------------------------------------------------------


class Comparison(Expression):
    """``left operator right``."""

    operator: ComparisonOperator
    left: Expression
    right: Expression


class Distinct(Expression):
    """``left IS [NOT] DISTINCT FROM right``."""

    left: Expression
    right: Expression
    negated: bool = False


class Membership(Expression):
    """``operand [NOT] IN (items)``; checked, with the type that all of it is compared as."""

    operand: Expression
    items: tuple[Expression, ...]
    negated: bool = False
    type: Type | None = None


class Range(Expression):
    """``operand [NOT] BETWEEN low AND high``, closed at both ends."""

    operand: Expression
    low: Expression
    high: Expression
    negated: bool = False


class Pattern(Expression):
    """``operand [NOT] LIKE pattern [ESCAPE escape]``, or ILIKE."""

    operand: Expression
    pattern: Expression
    escape: Expression | None
    is_case_sensitive: bool
    negated: bool = False


class NullTest(Expression):
    """``operand IS [NOT] NULL``."""

    operand: Expression
    negated: bool = False


class TruthTest(Expression):
    """``operand IS [NOT] TRUE``, ``FALSE`` or ``UNKNOWN``."""

    operand: Expression
    truth: Truth
    negated: bool = False


class And(Expression):
    """Conjunction of two parts or more; no part is itself an :class:`And`."""

    parts: tuple[Expression, ...]


class Or(Expression):
    """Disjunction of two parts or more; no part is itself an :class:`Or`."""

    parts: tuple[Expression, ...]


class Not(Expression):
    """Negation, in SQL's three-valued logic: unknown stays unknown."""

    part: Expression


# -- what all of them have in common --------------------------------------------------------


def children(expression: Expression) -> tuple[Expression, ...]:
    """Return what an expression is made of, from left to right."""
    return tuple(_inside([getattr(expression, name) for name in expression.__match_args__]))


def _inside(fields: Sequence[object]) -> Iterator[Expression]:
    for field in fields:
        if isinstance(field, Expression):
            yield field
        elif isinstance(field, tuple):
            yield from _inside(field)


def rebuilt(expression: Part, change: Callable[[Expression], Expression]) -> Part:
    """Make an expression of the same kind, with everything that it is made of changed.

    Examples
    --------
    >>> rebuilt(Not(Name(("a",))), lambda part: Literal("boolean", "true"))
    Not(part=Literal(kind='boolean', text='true'))
    """

    def changed(field: object) -> object:
        if isinstance(field, Expression):
            return change(field)
        return tuple(map(changed, field)) if isinstance(field, tuple) else field

    names = expression.__match_args__
    return replace(expression, **{name: changed(getattr(expression, name)) for name in names})  # type: ignore[type-var]


def replaced(
    expression: Expression, change: Callable[[Expression], Expression | None]
) -> Expression:
    """Rebuild an expression; where `change` returns something other than None, that is put there.

    Parameters
    ----------
    change : callable
        Is asked from the outside in, and not about what is inside a part that it replaced.
    """
    other = change(expression)
    return rebuilt(expression, lambda part: replaced(part, change)) if other is None else other


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


def spelled_out(test: Range | Membership) -> Expression:
    """Write BETWEEN as two comparisons, IN as one for each item: joined, and maybe negated."""
    found: Expression
    if isinstance(test, Range):
        operand, low, high = test.operand, test.low, test.high
        found = And((Comparison(">=", operand, low), Comparison("<=", operand, high)))
    else:
        found = Or(tuple(Comparison("=", test.operand, item) for item in test.items))
    return Not(found) if test.negated else found


def columns(expression: Expression | None) -> frozenset[Column]:
    """Return the columns that a checked expression mentions."""
    return frozenset(inner for inner in walk(expression) if isinstance(inner, Column))


def attributes(expression: Expression | None) -> frozenset[str]:
    """Return the publication's columns on which an expression depends."""
    return frozenset(column.attribute for column in columns(expression))


def flat(kind: type[And] | type[Or], parts: Sequence[Expression]) -> tuple[Expression, ...]:
    """Put the parts of a part that is itself a chain of this kind in its place."""
    return tuple(
        inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,))
    )


def joined(kind: type[And] | type[Or], parts: Sequence[Expression]) -> Expression | None:
    """Join parts by AND or OR, flat; None for no part at all."""
    pieces = flat(kind, parts)
    return kind(pieces) if len(pieces) > 1 else next(iter(pieces), None)
