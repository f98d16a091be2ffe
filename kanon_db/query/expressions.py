"""Defines the typed structure of a query: its types, expressions and clauses.

Only this structure remains of the analyst's text. `refusal` makes the error for a query that is
not answered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from functools import cached_property, lru_cache
from operator import is_
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar, dataclass_transform
from typing import Literal as OneOf

from kanon_db.dataclasses import dataclass
from kanon_db.errors import UnsupportedQueryError

ALLOWED: Final = (
    "ask SELECT COUNT(*) FROM <publication> [JOIN <lookup table> ON ...] WHERE ... [GROUP BY ...];"
    " COUNT(DISTINCT x), SUM, AVG, MIN, MAX and percentile_cont may stand beside it;"
    " conditions are made of columns and constants by =, <>, <, <=, >, >=, IN, BETWEEN, LIKE,"
    " IS NULL, IS DISTINCT FROM, AND, OR, NOT, arithmetic, EXTRACT (also of AGE), date_trunc, CASE,"
    " COALESCE, NULLIF, casts, and functions such as floor, upper, left and ||"
)


Values: TypeAlias = Mapping[str, object] | Sequence[object]
"""The values of a query's parameters, by name or in turn."""


def refusal(
    what: str, position: int | None = None, hint: str = ALLOWED, *, detail: str = ""
) -> UnsupportedQueryError:
    """Make the error for a query that is not answered; `hint`: what to write instead.

    `what` is never the query's own text, which may hold values; `position` counts from 1.
    """
    if position is not None:
        detail = f"at character {position} of the query"
    return UnsupportedQueryError(what, detail=detail, hint=hint)


Category = OneOf["integer", "numeric", "float", "text", "boolean", "moment", "label", "other"]
"""Kinds of types, which decide the operations they allow; a ``moment`` is a date or a timestamp, a
``label`` the text of a value whose own type is not published."""

NUMBERS: Final[frozenset[Category]] = frozenset({"integer", "numeric", "float"})


@dataclass(frozen=True, slots=True)
class Type:
    """A PostgreSQL type, as far as statements depend on it."""

    name: str  # SQL name, without modifiers, safe in a statement
    category: Category
    # Quoted schema of the type's own comparison operators; None for PostgreSQL's
    operator_schema: str | None = None
    # Whether a text is read as this type in the same way under all settings
    has_constant_input: bool = True
    labels: tuple[str, ...] = ()  # The values of an enumeration, in its order
    # Whether ``<`` and ``>`` order published values as they order the source's
    is_ordered: bool = True
    has_equality: bool = True  # Whether published values are equal exactly where the source's are

    @property
    def is_grouped(self) -> bool:
        """Whether the server can group values of the type: of others, only NULL is told apart."""
        return self.name.removesuffix("[]") not in _UNGROUPED


_UNGROUPED: Final = frozenset({
    "json", "jsonpath", "xml", "point", "line", "lseg", "box", "path", "polygon", "circle", "xid",
    "cid", "aclitem", "pg_snapshot", "txid_snapshot",
})  # fmt: skip
"""PostgreSQL's types without an order."""

CATEGORIES: Final[Mapping[str, Category]] = {
    **dict.fromkeys(("smallint", "integer", "bigint"), "integer"),
    "numeric": "numeric",
    **dict.fromkeys(("real", "double precision"), "float"),
    **dict.fromkeys(("text", "character varying", "bpchar"), "text"),
    "boolean": "boolean",
    **dict.fromkeys(("date", "timestamp without time zone", "timestamp with time zone"), "moment"),
}
"""The categories of PostgreSQL's own types."""


# Expressions of a query.
#
# The parser puts :class:`Literal` and :class:`Name` at the leaves of an expression; the check
# replaces them by :class:`Constant` and :class:`Column`, which have types. The parts of an
# expression are those of its fields that hold an expression, or a tuple of expressions.


LiteralKind = OneOf[
    "number", "string", "boolean", "null", "date", "timestamp", "timestamptz", "interval"
]
ComparisonOperator = OneOf["=", "<>", "<", "<=", ">", ">="]
ArithmeticOperator = OneOf["+", "-", "*", "/", "%"]
Truth = OneOf["true", "false", "unknown"]
PatternOperator = OneOf["LIKE", "ILIKE", "~", "~*"]
AggregateFunction = OneOf["count", "distinct", "sum", "avg", "min", "max", "disc", "cont"]
DateFunction = OneOf["extract", "date_part", "date_trunc"]

Part = TypeVar("Part", bound="Expression")


@dataclass_transform(frozen_default=True)
class Expression:
    """The base of all expressions, each of which is a frozen dataclass."""

    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.__hash__ = Expression.__hash__  # type: ignore[method-assign]  # in place of a dataclass's
        dataclass(frozen=True)(cls)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """It is asked for more often than there are expressions, each time of all inside."""
        return hash(tuple(getattr(self, name) for name in self.__match_args__))

    def __getstate__(self) -> dict[str, object]:
        # What was worked out of the fields stays here: hashes of texts are others elsewhere.
        return {name: getattr(self, name) for name in self.__match_args__}

    @cached_property
    def children(self) -> tuple[Expression, ...]:
        """Its parts, from left to right."""
        return tuple(_inside([getattr(self, name) for name in self.__match_args__]))

    @cached_property
    def attributes(self) -> frozenset[str]:
        """The publication's columns that it depends on."""
        return frozenset[str]().union(*(part.attributes for part in self.children))


class Literal(Expression):
    """A constant as written."""

    # ``date`` and ``timestamp`` are typed literals, like ``DATE '2020-01-31'``; a plain quoted
    # constant is a ``string`` and takes the type of what it is compared with
    kind: LiteralKind
    text: str  # The value without quotes; numbers as written, with their sign


class Name(Expression):
    """A column as written, after the names that qualify it."""

    parts: tuple[str, ...]
    # Where it stands in the query; names are equal wherever they stand
    position: int | None = field(default=None, kw_only=True, compare=False, repr=False)


class Constant(Expression):
    """A constant with the type that PostgreSQL gives it; None stands for NULL."""

    text: str | None
    type: Type


class Column(Expression):
    """A column of the publication, or of a lookup table joined to it."""

    name: str  # The name as an analyst writes it
    sql: str  # The name quoted for a statement
    type: Type
    lookup: int | None = None  # Number of the lookup table; None for the publication's own columns
    # The publication's column that decides the value: this one, or the one that the lookup table is
    # joined on
    via: str = ""
    prefix: int | None = None  # How many first characters of the source's texts are published

    @property
    def attribute(self) -> str:
        """The publication's column that the value depends on."""
        return self.via or self.name

    @cached_property
    def attributes(self) -> frozenset[str]:
        """That column alone."""
        return frozenset((self.attribute,))


class KeyMatch(Expression):
    """Whether a record has a row in a lookup table; `column` is the table's join column."""

    column: Column


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
    """``CAST(operand AS to)``; `to` is the SQL name of a type."""

    operand: Expression
    to: str


class Call(Expression):
    """A function of values, which PostgreSQL calculates; ``||`` is one."""

    function: str
    operands: tuple[Expression, ...]


class Contained(Expression):
    """``operand <@ range(low, high, bounds)``, until it is checked."""

    operand: Expression
    range_type: str
    low: Expression
    high: Expression
    bounds: str


class Coalesce(Expression):
    """``COALESCE(operands)``."""

    operands: tuple[Expression, ...]


class NullIf(Expression):
    """``NULLIF(left, right)``."""

    left: Expression
    right: Expression


class Aggregate(Expression):
    """``COUNT(*)`` (without an operand), ``COUNT([DISTINCT] operand)``, ``SUM`` and so on."""

    # ``disc`` and ``cont`` are ``percentile_disc`` and ``percentile_cont``
    function: AggregateFunction
    operand: Expression | None
    condition: Expression | None = None  # The condition of ``FILTER (WHERE condition)``
    share: float | None = None  # The share of a percentile; 0 for MIN, 1 for MAX
    # Type of the operand of MIN, MAX, percentiles, SUM and AVG, once it is checked
    type: Type | None = None

    @property
    def is_moment(self) -> bool:
        """Whether it is a date or a time, in seconds since 1970."""
        return (
            self.share is not None
            and isinstance(self.operand, DatePart)
            and self.operand.field == "epoch"
        )


class GroupAggregate(Aggregate):
    """An aggregate over the groups of a subquery, of what these are answered with."""


class Statistic(Expression):
    """``stddev(x)``, ``corr(y, x)`` and so on, by the sums that they follow from."""

    function: str
    operands: tuple[Expression, ...]
    sums: tuple[Expression, ...]  # As `formulas.STATISTICS` says


class GroupMark(Expression):
    """``GROUPING(operand)``: 1 in the sets of GROUP BY that the operand is not in, otherwise 0."""

    operand: Expression


class AggregateList(Expression):
    """Aggregates that one item of the select list asks for, as percentiles of an array do."""

    parts: tuple[Expression, ...]


class WindowTotal(Expression):
    """``SUM(aggregate) OVER (PARTITION BY by)``, a total of groups; or one in a subselect."""

    aggregate: Aggregate
    is_filtered: bool = True  # Whether the query's WHERE applies to it
    by: tuple[Expression, ...] = ()  # What the groups have in common that it is the total of


DERIVED: Final = frozenset({"distinct", "min", "max", "disc", "cont"})
"""Aggregates that have a statement of their own only where they are exact."""


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
    """``operand [NOT] IN (items)``; the check adds the type that all are compared as."""

    operand: Expression
    items: tuple[Expression, ...]
    negated: bool = False
    type: Type | None = None


class Answered(Expression):
    """``operands IN (SELECT …)``: whether values are among those that a question lists."""

    operands: tuple[Expression, ...]
    question: int  # Its place in the query's questions, which are answered first
    is_distinct: bool = False  # Whether NULL is as NULL, as for IS NOT DISTINCT FROM


class Range(Expression):
    """``operand [NOT] BETWEEN low AND high``, closed at both ends."""

    operand: Expression
    low: Expression
    high: Expression
    negated: bool = False


class Pattern(Expression):
    """``operand [NOT] LIKE pattern [ESCAPE escape]``, or a regular expression, ``operand ~ …``."""

    operand: Expression
    operator: PatternOperator
    pattern: Expression
    escape: Expression | None = None
    negated: bool = False

    @property
    def is_regular(self) -> bool:
        """Whether the pattern is a regular expression."""
        return "~" in self.operator


MAX_PATTERN: Final = 1_000
"""The most characters of a pattern."""


def refers_back(pattern: str) -> bool:
    """Whether a regular expression has back references, which take long to match."""
    return re.search(r"\\[1-9]", pattern) is not None


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


def _inside(fields: Sequence[object]) -> Iterator[Expression]:
    for content in fields:
        if isinstance(content, Expression):
            yield content
        elif isinstance(content, tuple):
            yield from _inside(content)


def rebuilt(expression: Part, change: Callable[[Expression], Expression]) -> Part:
    """Rebuild an expression with each of its parts changed; one of which none is stays the same.

    Examples
    --------
    >>> rebuilt(Not(Name(("a",))), lambda part: Literal("boolean", "true"))
    Not(part=Literal(kind='boolean', text='true'))
    """
    parts = [change(part) for part in expression.children]
    if all(map(is_, parts, expression.children)):
        return expression
    following = iter(parts)

    def changed(content: object) -> object:
        if isinstance(content, Expression):
            return next(following)
        return tuple(map(changed, content)) if isinstance(content, tuple) else content

    fields = (getattr(expression, name) for name in expression.__match_args__)
    return type(expression)(*map(changed, fields))


def replace_parts(
    expression: Expression, change: Callable[[Expression], Expression | None]
) -> Expression:
    """Rebuild an expression with those parts replaced for which `change` returns an expression."""
    # `change`: called from the outside in, and not for the parts of what it replaced; None keeps a
    # part.
    other = change(expression)
    return rebuilt(expression, lambda part: replace_parts(part, change)) if other is None else other


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
        pending.extend(reversed(inner.children))


def spell_out(test: Range | Membership) -> Expression:
    """Write BETWEEN as two comparisons and IN as one for each item, negated under NOT."""
    test_of_values: Expression
    if isinstance(test, Range):
        operand, low, high = test.operand, test.low, test.high
        test_of_values = And((Comparison(">=", operand, low), Comparison("<=", operand, high)))
    else:
        test_of_values = Or(tuple(Comparison("=", test.operand, item) for item in test.items))
    return Not(test_of_values) if test.negated else test_of_values


def columns(expression: Expression | None) -> frozenset[Column]:
    """Return the columns that a checked expression mentions."""
    return frozenset(inner for inner in walk(expression) if isinstance(inner, Column))


def has_aggregate(expression: Expression) -> bool:
    """Whether an expression has aggregates."""
    return any(isinstance(part, Aggregate) for part in walk(expression))


def aggregate_name(expression: Expression) -> str | None:
    """Return PostgreSQL's name for an aggregate that AS does not name."""
    match expression:
        case Aggregate(function=("cont" | "disc") as function):
            return f"percentile_{function}"
        case Aggregate(function="distinct"):
            return "count"
        case Aggregate(function=function) | Statistic(function=function):
            return function
    return None


def attributes(expression: Expression | None) -> frozenset[str]:
    """Return the publication's columns that an expression depends on."""
    return frozenset() if expression is None else expression.attributes


def flat(kind: type[And] | type[Or], parts: Sequence[Expression]) -> tuple[Expression, ...]:
    """Flatten nested chains of AND, or of OR."""
    return tuple(
        inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,))
    )


def joined(kind: type[And] | type[Or], parts: Sequence[Expression]) -> Expression | None:
    """Join parts by AND or OR into one flat chain; None if there are none."""
    pieces = flat(kind, parts)
    return kind(pieces) if len(pieces) > 1 else next(iter(pieces), None)


@lru_cache(maxsize=1 << 8)  # It is asked again for each run of buckets.
def by_attribute(condition: Expression) -> Expression:
    """Group the parts of a chain by attribute, so that each attribute is read once."""
    if not isinstance(condition, And | Or):
        return condition
    grouped: dict[object, list[Expression]] = {}
    for number, part in enumerate(condition.parts):
        mentioned = attributes(part)
        grouped.setdefault(mentioned if len(mentioned) == 1 else number, []).append(part)
    kind = type(condition)
    parts = [one for group in grouped.values() if (one := joined(kind, group)) is not None]
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


MOST_DIGITS: Final = 20
"""The most digits that ROUND may keep after the decimal point, or drop before it."""

_NEAR: Final = 1e-9
_NEAR_SINGLE: Final = 2e-6
"""Relative difference that a bound may have from PostgreSQL's own number: other digits, and for
sums of `real`, single precision."""


class Rounded(Expression):
    """``ROUND(operand, digits)``."""

    operand: Expression
    digits: int | None  # Digits to keep after the decimal point; None in ``ROUND(operand)``
    # Whether PostgreSQL rounds a floating-point number: halves go to the even neighbour
    is_float: bool = False
    is_rough: bool = False  # Whether the operand is calculated with floating-point numbers

    @property
    def unit(self) -> float:
        """The distance between neighbouring results."""
        return float(10.0 ** -(self.digits or 0))

    def of(self, number: float) -> float:
        """Round a number as PostgreSQL does.

        Examples
        --------
        >>> half = Rounded(Expression(), 1)
        >>> half.of(0.25), half.of(-0.25), Rounded(Expression(), None, is_float=True).of(2.5)
        (0.3, -0.3, 2.0)
        """
        if not math.isfinite(number):
            return number
        with localcontext(prec=400):
            rounded = Decimal(repr(float(number))).quantize(
                Decimal(1).scaleb(-(self.digits or 0)),
                rounding=ROUND_HALF_EVEN if self.is_float else ROUND_HALF_UP,
            )
        return float(rounded)

    def between(self, low: float, high: float) -> tuple[float, float]:
        """Return bounds of the rounded number from bounds of the number."""
        # Rounding keeps the order of numbers. Each bound is first moved outward by its own possible
        # error, which matters only next to a half.
        near = _NEAR_SINGLE if self.is_rough else _NEAR
        return self.of(low - near * abs(low)), self.of(high + near * abs(high))


class RelationText(NamedTuple):
    """A relation in FROM: as written, with the names that may qualify its columns."""

    schema: str | None  # None if the name is not qualified
    name: str
    alias: str | None = None  # Hides the name

    def answers_to(self, qualifier: tuple[str, ...]) -> bool:
        """Whether this relation has that qualifier."""
        if self.alias is not None:
            return qualifier == (self.alias,)
        return qualifier in ((self.name,), (self.schema, self.name))


def beyond_publications(published_schema: str) -> UnsupportedQueryError:
    """Make the error for a relation that is no publication."""
    return refusal(
        "only publications can be queried",
        hint=f"write only the publication's name, or put the schema {published_schema} before it",
    )


class LookupText(NamedTuple):
    """``[LEFT] JOIN relation ON left = right``; for ``USING (name)``, both sides are the name."""

    relation: RelationText
    left: Name
    right: Name
    is_outer: bool
    is_using: bool = False


class ItemText(NamedTuple):
    """An item of the select list."""

    expression: Expression
    alias: str | None = None


class OrderText(NamedTuple):
    """An item of ORDER BY, with PostgreSQL's default for `nulls_first`."""

    expression: Expression
    is_descending: bool = False
    nulls_first: bool = False


class QueryText(NamedTuple):
    """A whole query: its clauses, with what they mean on the publication itself."""

    items: tuple[ItemText, ...]
    publication: RelationText
    lookups: tuple[LookupText, ...] = ()
    where: Expression | None = None
    group: tuple[Expression, ...] = ()
    having: Expression | None = None
    order: tuple[OrderText, ...] = ()
    limit: int | None = None
    offset: int = 0
    selected: tuple[Expression, ...] = ()  # The columns that subqueries in FROM select
    is_distinct: bool = False
    databases: frozenset[str] = frozenset()  # Names of databases that qualify relations
    # The items of a subquery with groups, in which its GROUP BY looks up names and numbers
    grouped: tuple[ItemText, ...] = ()
    # The sets of ROLLUP, CUBE and GROUPING SETS: places in `group`
    sets: tuple[tuple[int, ...], ...] = ()
    outer: QueryText | None = None  # The query that asks the groups of this one
    # Of the whole query: the questions that are answered first, each by those before it
    questions: tuple[QueryText, ...] = ()

    def change(self, change: Callable[[Expression], Expression]) -> QueryText:
        """Change the expressions of all clauses and questions, but for columns of joins."""

        def convert(content: Any) -> Any:
            match content:
                case Expression():
                    return change(content)
                case QueryText():
                    return content.change(change)
                case ItemText() | OrderText():
                    return content._replace(expression=change(content.expression))
            return tuple(map(convert, content)) if type(content) is tuple else content

        return QueryText(*map(convert, self))

    @property
    def expressions(self) -> list[Expression]:
        """The expressions of all clauses and questions."""
        parts: list[Expression] = []

        def collect(part: Expression) -> Expression:
            parts.append(part)
            return part

        self.change(collect)
        return parts


class Key(NamedTuple):
    """An expression of GROUP BY, with its name in the answer."""

    name: str
    expression: Expression


class Measure(NamedTuple):
    """An aggregate to estimate; it is not shown if only HAVING or ORDER BY mentions it."""

    label: str
    aggregate: Aggregate
    is_shown: bool = True


class Formula(NamedTuple):
    """A calculation with aggregates, each of which is a measure of the query."""

    label: str
    expression: Expression


class Order(NamedTuple):
    """An item of ORDER BY: the number of a key, or of a measure or formula (after all measures)."""

    key: int | None
    measure: int | None
    is_descending: bool
    nulls_first: bool


class Query(NamedTuple):
    """A query that can be answered, with types throughout.

    `listed` numbers the measures and formulas of the select list; formulas come after all measures.
    `selected` are the columns of subqueries, which are evaluated where the query mentions them.
    """

    where: Expression | None
    keys: tuple[Key, ...]
    measures: tuple[Measure, ...]
    having: Expression | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0
    selected: tuple[Expression, ...] = ()
    formulas: tuple[Formula, ...] = ()
    listed: tuple[int, ...] = ()
    fixed: tuple[tuple[str, str], ...] = ()  # Constants of the select list: their names, as JSON
    # The keys of each set of ROLLUP, CUBE and GROUPING SETS, and the names that tell which it is
    sets: tuple[tuple[Key, ...], ...] = ()
    marks: tuple[tuple[str, Key], ...] = ()
    outer: Query | None = None  # The query that asks the groups of this one

    @property
    def asked(self) -> Query:
        """The query whose select list is shown."""
        return self.outer or self

    @property
    def names(self) -> tuple[str, ...]:
        """What the keys of groups name: constants come last."""
        beside = (*self.marks, *self.fixed)
        return (*(key.name for key in self.keys), *(name for name, _ in beside))

    @property
    def shown(self) -> list[tuple[int, Measure | Formula]]:
        """The measures and formulas of the select list, with their numbers."""
        everything: list[Measure | Formula] = [*self.measures, *self.formulas]
        return [(place, everything[place]) for place in self.listed]

    @property
    def is_one_count(self) -> bool:
        """Whether the select list shows a single COUNT."""
        match self.shown:
            case [(_, Measure(aggregate=Aggregate("count" | "distinct")))]:
                return True
            case _:
                return False

    @property
    def evaluated(self) -> list[Expression | None]:
        """The expressions that are evaluated for each record: condition, groups and operands."""
        expressions = [self.where, *(key.expression for key in self.keys)]
        aggregates = [measure.aggregate for measure in self.measures]
        return expressions + [part for one in aggregates for part in (one.operand, one.condition)]

    @property
    def constants(self) -> frozenset[Constant]:
        """The constants in what is evaluated for each record."""
        read = (*self.evaluated, *self.selected)
        parts = (inner for part in read for inner in walk(part))
        return frozenset(inner for inner in parts if isinstance(inner, Constant))


TEXT: Final = Type("text", "text")
BOOLEAN: Final = Type("boolean", "boolean")
INTEGER: Final = Type("integer", "integer")
BIGINT: Final = Type("bigint", "integer")
NUMERIC: Final = Type("numeric", "numeric")
DOUBLE: Final = Type("double precision", "float")
DATE: Final = Type("date", "moment", has_constant_input=False)
TIMESTAMP: Final = Type("timestamp without time zone", "moment", has_constant_input=False)
TIMESTAMPTZ: Final = Type("timestamp with time zone", "moment", has_constant_input=False)
INTERVAL: Final = Type("interval", "other", has_constant_input=False)

_MAX_INT4: Final = 2**31 - 1
_MAX_INT8: Final = 2**63 - 1

_RANKS: Final = ("smallint", "integer", "bigint", "numeric", "real", "double precision")
_MOMENT_RANKS: Final = (DATE.name, TIMESTAMP.name, TIMESTAMPTZ.name)


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
    """Return the type in which PostgreSQL compares these types; None if they do not compare."""
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
