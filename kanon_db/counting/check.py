"""May this query be answered? Columns, types, groups; what passes is typed throughout.

A constant gets the type that PostgreSQL gives it in the same place, so that the statements written
from a checked query mean what the query means on the original table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kanon_db.counting.expressions import (
    NUMBERS,
    Aggregate,
    And,
    Arithmetic,
    Case,
    Category,
    Column,
    Comparison,
    Constant,
    DatePart,
    Distinct,
    Expression,
    Literal,
    Matched,
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
    columns,
    conjoin,
    walk,
)
from kanon_db.counting.query import QueryText, RelationText
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
    "integer": "write a number",
    "numeric": "write a number",
    "float": "write a number",
    "text": "write the constant in single quotes",
    "boolean": "write TRUE or FALSE",
    "moment": "write DATE '…', TIMESTAMP '…' or the date in single quotes",
    "other": "write the constant in single quotes",
}

_TIMES: Final = frozenset({"hour", "minute", "second"})


@dataclass(frozen=True, slots=True)
class Scope:
    """A relation of the query's FROM with the columns that it offers.

    Attributes
    ----------
    relation : RelationText
    columns : mapping of str to Column
    hidden : str or None
        Column that USING merges into the publication's.
    """

    relation: RelationText
    columns: Mapping[str, Column]
    hidden: str | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """An expression that GROUP BY names, and the name that the answer gives it."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Measure:
    """An aggregate to estimate; one that only HAVING or ORDER BY mention is not shown."""

    label: str
    aggregate: Aggregate
    is_shown: bool = True


@dataclass(frozen=True, slots=True)
class Order:
    """An item of ORDER BY: the number of a key, or of a measure."""

    key: int | None
    measure: int | None
    is_descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Query:
    """A query that can be answered, with the types of all that is in it."""

    where: Expression | None
    keys: tuple[Key, ...]
    measures: tuple[Measure, ...]
    having: Expression | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Everything that is evaluated on records."""
        where = () if self.where is None else (self.where,)
        operands = (measure.aggregate.operand for measure in self.measures)
        keys = tuple(key.expression for key in self.keys)
        return (*where, *keys, *(operand for operand in operands if operand is not None))

    @property
    def columns(self) -> frozenset[Column]:
        """The columns that the query mentions."""
        return frozenset(column for part in self.expressions for column in columns(part))

    @property
    def constants(self) -> frozenset[Constant]:
        """The constants that are compared with, or part of what is grouped or summed."""
        return frozenset(
            inner
            for part in self.expressions
            for inner in walk(part)
            if isinstance(inner, Constant)
        )


def check(text: QueryText, scopes: Sequence[Scope], matches: Sequence[Matched] = ()) -> Query:
    """Check a query against its relations, and give everything in it a type.

    Parameters
    ----------
    text : QueryText
    scopes : sequence of Scope
        The publication, then the lookup tables.
    matches : sequence of Matched
        What the joins that are not outer ask of a record.

    Raises
    ------
    UnsupportedQueryError
        When a column is unknown, types do not fit, or the select list needs another GROUP BY.
    """
    binder = _Binder(scopes)
    conditions: list[Expression] = list(matches)
    if text.where is not None:
        conditions.append(binder.condition(text.where))
    keys = _keys(text, binder)
    measures: list[Measure] = []
    for item in text.items:
        if isinstance(item.expression, Aggregate):
            aggregate = binder.aggregate(item.expression)
            measures.append(Measure(_label(item.alias, aggregate, measures), aggregate))
            continue
        bound, _ = binder.value(_meant(item.expression, text, binder, by_alias=False))
        if all(key.expression != bound for key in keys):
            raise refusal(
                "the select list holds columns that no GROUP BY names",
                hint="list what GROUP BY names, and COUNT(*), COUNT(…), SUM(…) or AVG(…)",
            )
    if not measures:
        raise refusal(
            "the select list has no COUNT, SUM or AVG", hint="ask for COUNT(*) of each group"
        )

    def number(aggregate: Aggregate) -> int:
        for place, measure in enumerate(measures):
            if measure.aggregate == aggregate:
                return place
        measures.append(Measure("", aggregate, is_shown=False))
        return len(measures) - 1

    having = None
    if text.having is not None:
        having = binder.having(text.having)
        for inner in walk(having):
            if isinstance(inner, Aggregate):
                number(inner)
    order = []
    for ordered in text.order:
        expression = _meant(ordered.expression, text, binder, by_alias=True)
        key = place = None
        if isinstance(expression, Aggregate):
            place = number(binder.aggregate(expression))
        else:
            bound = binder.value(expression)[0]
            found = [i for i, other in enumerate(keys) if other.expression == bound]
            if not found:
                raise refusal(
                    "ORDER BY names what is neither grouped by nor counted",
                    hint="order by what GROUP BY names, or by COUNT(*)",
                )
            key = found[0]
        order.append(Order(key, place, ordered.is_descending, ordered.nulls_first))
    return Query(
        conjoin(conditions), keys, tuple(measures), having, tuple(order), text.limit, text.offset
    )


def _keys(text: QueryText, binder: _Binder) -> tuple[Key, ...]:
    keys: list[Key] = []
    for written in text.group:
        expression = _meant(written, text, binder, by_alias=False)
        if isinstance(expression, Aggregate):
            raise refusal("an aggregate stands in GROUP BY")
        bound, _ = binder.value(expression)
        if not columns(bound):
            raise refusal("GROUP BY names a constant", hint="name columns in GROUP BY")
        if any(key.expression == bound for key in keys):
            continue
        aliases = [
            item.alias
            for item in text.items
            if item.alias is not None
            and not isinstance(item.expression, Aggregate)
            and binder.value(_meant(item.expression, text, binder, by_alias=False))[0] == bound
        ]
        name = aliases[0] if aliases else _default_name(bound)
        if any(key.name == name for key in keys):
            raise refusal(
                "two groups have the same name", hint="name each with AS in the select list"
            )
        keys.append(Key(name, bound))
    return tuple(keys)


def _meant(
    expression: Expression, text: QueryText, binder: _Binder, *, by_alias: bool
) -> Expression:
    """Follow a number, or an alias, of the select list; `by_alias`: an alias before a column."""
    match expression:
        case Literal("number", digits) if digits.isdecimal():
            if not 1 <= int(digits[:9]) <= len(text.items):
                raise refusal("a number in GROUP BY or ORDER BY names no item of the select list")
            return text.items[int(digits[:9]) - 1].expression
        case Name((name,)) if by_alias or not binder.has(name):
            named = [item.expression for item in text.items if item.alias == name]
            if len(named) > 1 and any(other != named[0] for other in named):
                raise refusal("two items of the select list have the same name")
            return named[0] if named else expression
        case _:
            return expression


def _default_name(expression: Expression) -> str:
    """Name a column of a result as PostgreSQL does."""
    match expression:
        case Column(name=name):
            return name
        case DatePart(function=function):
            return function
        case Case(default=Column(name=name)):
            return name
        case Case():
            return "case"
        case _:
            return "?column?"


def _label(alias: str | None, aggregate: Aggregate, others: Sequence[Measure]) -> str:
    """Name an aggregate: as the query does, or by its function and column; never twice alike."""
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


class _Binder:
    """Finds columns and gives types, from the leaves up."""

    def __init__(self, scopes: Sequence[Scope]) -> None:
        self._scopes = scopes

    # -- columns ------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        return any(name in scope.columns for scope in self._scopes)

    def column(self, name: Name) -> Column:
        *qualifier, column = name.parts
        if qualifier:
            scopes = [
                scope for scope in self._scopes if scope.relation.answers_to(tuple(qualifier))
            ]
            if not scopes:
                raise refusal(
                    "a column is qualified with a name that FROM does not have",
                    hint="write the column's name alone",
                )
            found = [scope.columns[column] for scope in scopes if column in scope.columns]
        else:
            found = [
                scope.columns[column]
                for scope in self._scopes
                if column in scope.columns and column != scope.hidden
            ]
        if not found:
            raise refusal(
                "the query names a column that the publication does not have",
                hint=f"its columns are {', '.join(self._scopes[0].columns)}; strings go into"
                " single quotes, not double",
            )
        if len(found) > 1:
            raise refusal(
                "a column's name belongs to several relations", hint="qualify it with the relation"
            )
        return found[0]

    # -- values -------------------------------------------------------------------------------

    def value(self, expression: Expression) -> tuple[Expression, Type]:
        """Bind an expression that stands alone: a plain string is a text there."""
        bound, type_ = self.bind(expression)
        return (bound, type_) if type_ is not None else (self.given(bound, TEXT), TEXT)

    def bind(self, expression: Expression) -> tuple[Expression, Type | None]:
        """Bind an expression; a plain string and NULL come back as they are, without a type."""
        match expression:
            case Literal("number", text):
                type_ = _number_type(text)
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
                column = self.column(expression)
                return column, column.type
            case Negative(operand):
                bound, type_ = self.number(operand)
                return Negative(bound), type_
            case Arithmetic(operator, left, right):
                (one, one_type), (other, other_type) = self.number(left), self.number(right)
                if operator == "%" and "float" in (one_type.category, other_type.category):
                    raise refusal("% is not supported of floating-point numbers")
                return Arithmetic(operator, one, other), _result_type(one_type, other_type)
            case DatePart():
                return self.date_part(expression)
            case Case():
                return self.case(expression)
            case Aggregate():
                raise refusal(
                    "an aggregate stands where it cannot",
                    hint="COUNT, SUM and AVG stand in the select list, HAVING and ORDER BY",
                )
            case _:
                return self.condition(expression), BOOLEAN

    def number(self, expression: Expression) -> tuple[Expression, Type]:
        bound, type_ = self.bind(expression)
        if type_ is None or type_.category not in NUMBERS:
            raise refusal(
                "arithmetic is supported of numbers only", hint="write numbers without quotes"
            )
        return bound, type_

    def date_part(self, part: DatePart) -> tuple[Expression, Type]:
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

    def case(self, case: Case) -> tuple[Expression, Type]:
        conditions = [self.condition(when) for when, _ in case.branches]
        written = [then for _, then in case.branches]
        if case.default is not None:
            written.append(case.default)
        results = [self.bind(result) for result in written]
        known = [type_ for _, type_ in results if type_ is not None]
        type_ = _common(known) if known else TEXT
        if type_ is None or type_.operator_schema is not None:
            raise refusal("the results of a CASE have types that do not go together")
        given = [self.given(result, type_) for result, _ in results]
        default = given.pop() if case.default is not None else None
        return Case(tuple(zip(conditions, given, strict=True)), default), type_

    def given(self, expression: Expression, type_: Type) -> Expression:
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
            case And(parts):
                return And(tuple(map(self.condition, parts)))
            case Or(parts):
                return Or(tuple(map(self.condition, parts)))
            case Not(part):
                return Not(self.condition(part))
            case Comparison(operator, left, right):
                return Comparison(operator, *self.compared(left, right))
            case Distinct(left, right, negated):
                return Distinct(*self.compared(left, right), negated)
            case Membership(operand, items, negated):
                return self.membership(operand, items, negated=negated)
            case Range(operand, low, high, negated):
                least = self.compared(operand, low)
                return Range(*least, self.compared(operand, high)[1], negated)
            case Pattern():
                return self.pattern(expression)
            case NullTest(operand, negated):
                return NullTest(self.value(operand)[0], negated)
            case TruthTest(operand, truth, negated):
                return TruthTest(self.condition(operand), truth, negated)
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

    def compared(self, left: Expression, right: Expression) -> tuple[Expression, Expression]:
        """Bind two sides of a comparison."""
        (one, one_type), (other, other_type) = self.bind(left), self.bind(right)
        if Literal("null", "") in (one, other):
            raise refusal("a comparison with NULL is never true", hint="write IS NULL")
        if one_type is None and other_type is None:
            return self.given(one, TEXT), self.given(other, TEXT)
        if one_type is None and other_type is not None:
            return self.given(one, other_type), other
        if other_type is None and one_type is not None:
            return one, self.given(other, one_type)
        if one_type is None or other_type is None or not _common((one_type, other_type)):
            raise _misfit(one, one_type, other, other_type)
        return one, other

    def membership(
        self, operand: Expression, items: Sequence[Expression], *, negated: bool
    ) -> Expression:
        bound, type_ = self.bind(operand)
        found = [self.bind(item) for item in items]
        if Literal("null", "") in (bound, *(item for item, _ in found)):
            raise refusal("a comparison with NULL is never true", hint="write IS NULL")
        known = [t for _, t in ((bound, type_), *found) if t is not None]
        common = _common(known) if known else TEXT
        if common is None:
            for item, item_type in found:
                if type_ is None or (item_type is not None and not _common((type_, item_type))):
                    raise _misfit(bound, type_, item, item_type)
            raise refusal("the items of a list have types that do not go together")
        return Membership(
            self.given(bound, common),
            tuple(self.given(item, common) for item, _ in found),
            negated,
        )

    def pattern(self, pattern: Pattern) -> Expression:
        operand, type_ = self.value(pattern.operand)
        if type_.category != "text":
            raise refusal(
                f"LIKE does not compare a value of type {type_.name}", hint="LIKE takes texts"
            )
        escape = None if pattern.escape is None else self.given(pattern.escape, TEXT)
        return Pattern(
            operand, self.given(pattern.pattern, TEXT), escape, pattern.is_case_sensitive,
            pattern.negated,
        )  # fmt: skip

    # -- aggregates ---------------------------------------------------------------------------

    def aggregate(self, aggregate: Aggregate) -> Aggregate:
        if aggregate.operand is None:
            return aggregate
        if aggregate.function == "count":
            return Aggregate("count", self.value(aggregate.operand)[0])
        operand, type_ = self.bind(aggregate.operand)
        if type_ is None or type_.category not in NUMBERS:
            raise refusal("SUM and AVG are supported of numbers only")
        return Aggregate(aggregate.function, operand)

    def having(self, expression: Expression) -> Expression:
        """Bind a condition on aggregates: these, numbers and arithmetic, compared and joined."""
        match expression:
            case And(parts):
                return And(tuple(map(self.having, parts)))
            case Or(parts):
                return Or(tuple(map(self.having, parts)))
            case Not(part):
                return Not(self.having(part))
            case Comparison(operator, left, right):
                return Comparison(operator, self.measured(left), self.measured(right))
            case Range(operand, low, high, negated):
                one, least, most = map(self.measured, (operand, low, high))
                return Range(one, least, most, negated)
            case NullTest(operand, negated):
                return NullTest(self.measured(operand), negated)
        raise refusal(
            "HAVING compares aggregates with numbers only",
            hint="put conditions on columns into WHERE",
        )

    def measured(self, expression: Expression) -> Expression:
        match expression:
            case Aggregate():
                return self.aggregate(expression)
            case Literal("number"):
                return expression
            case Negative(operand):
                return Negative(self.measured(operand))
            case Arithmetic("+" | "-" | "*" as operator, left, right):
                return Arithmetic(operator, self.measured(left), self.measured(right))
        raise refusal(
            "HAVING compares aggregates with numbers only",
            hint="put conditions on columns into WHERE",
        )


def _number_type(text: str) -> Type:
    """Return the type that PostgreSQL gives a number."""
    digits = text.lstrip("-")
    if digits.isdecimal() and len(digits.lstrip("0")) < 20:
        if int(digits) <= _MAX_INT4:
            return INTEGER
        if int(digits) <= _MAX_INT8:
            return BIGINT
    return NUMERIC


def _result_type(one: Type, other: Type) -> Type:
    """Return the type of an arithmetic result."""
    if "float" in (one.category, other.category):
        return one if one.name == other.name else DOUBLE
    return max(one, other, key=lambda type_: _RANKS.index(type_.name))


def _common(types: Sequence[Type]) -> Type | None:
    """Return the type that PostgreSQL compares values of these types as; None if it does not."""
    first = types[0]
    if all(type_.name == first.name for type_ in types):
        return first
    if any(type_.operator_schema is not None for type_ in types):
        return None
    categories = {type_.category for type_ in types}
    if categories <= NUMBERS:
        return max(types, key=lambda type_: _RANKS.index(type_.name))
    if categories == {"moment"}:
        return max(types, key=lambda type_: _MOMENT_RANKS.index(type_.name))
    return first if categories == {"text"} else None


def _misfit(
    one: Expression, one_type: Type | None, other: Expression, other_type: Type | None
) -> UnsupportedQueryError:
    constant, column = (one, other) if isinstance(one, Constant) else (other, one)
    types = (one_type, other_type) if isinstance(one, Constant) else (other_type, one_type)
    names = [("text" if type_ is None else type_.name) for type_ in types]
    error = refusal(
        f"a value of type {names[0]} does not compare with one of type {names[1]}",
        hint="compare values of the same kind"
        if not isinstance(constant, Constant) or types[1] is None
        else _HINTS[types[1].category],
    )
    if isinstance(column, Column):
        error.detail = f'column "{column.name}"'
    return error
