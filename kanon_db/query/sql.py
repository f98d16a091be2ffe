"""Writes expressions, conditions and joins as SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kanon_db.dataclasses import dataclass
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import (
    Aggregate,
    Expression,
    Query,
    by_attribute,
    columns,
    refusal,
)
from kanon_db.query.layout import Lookup

# Writing checked expressions as SQL.
#
# Nothing of the analyst's text is run: every word is written here, every name was quoted by the
# server or the driver, and every constant is bound.


Spelling = Callable[[ex.Column], str]
"""Writes a column with the alias of its relation."""


class Constants:
    """Binds each constant of a statement, and each list of constants, to a parameter.

    `literal` quotes values instead, for people to read and run; `first` numbers parameters.
    """

    def __init__(self, literal: Callable[[str], str] | None = None, first: int = 1) -> None:
        self._literal = literal
        self._first = first
        self._numbers: dict[str | tuple[str, ...], int] = {}

    @property
    def bound(self) -> tuple[str | list[str], ...]:
        """The values of the parameters so far, each a text or an array of texts."""
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

        None where items are written one by one: values to be shown, expressions, arrays.
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

    `spell`: names a column. `constants`: collects the constants.
    """

    def inner(part: ex.Expression) -> str:
        return write(part, spell, constants)

    match expression:
        case ex.Column():
            return spell(expression)
        case ex.Constant():
            return constants.write(expression)
        case ex.KeyMatch(column):
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
        case ex.Call("||", (left, right)):
            return f"({inner(left)} || {inner(right)})"
        case ex.Call("timezone", (zone, operand)):
            return f"({inner(operand)} AT TIME ZONE {inner(zone)})"
        case ex.Call(function, operands):
            return f"{function}({', '.join(map(inner, operands))})"
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
        case ex.Pattern(operand, operator, pattern, escape, negated):
            ending = "" if escape is None else f" ESCAPE {inner(escape)}"
            no = ("!" if expression.is_regular else "NOT ") if negated else ""
            return f"({inner(operand)} {no}{operator} {inner(pattern)}{ending})"
        case ex.Comparison(operator, left, right):
            return f"({inner(left)} {_operator(operator, left, right)} {inner(right)})"
        case ex.Range():
            return inner(ex.spell_out(expression))
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
                return inner(ex.spell_out(expression))
            return f"({inner(operand)} {_not(negated)}IN ({', '.join(map(inner, items))}))"
    raise TypeError(f"{type(expression).__name__} is not checked")


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


def _operator(symbol: str, left: ex.Expression, right: ex.Expression) -> str:
    schema = _schema(left) or _schema(right)
    return symbol if schema is None else f"OPERATOR({schema}.{symbol})"


def _schema(operand: ex.Expression) -> str | None:
    return operand.type.operator_schema if isinstance(operand, ex.Column | ex.Constant) else None


def join_relations(
    relation: str,
    alias: str,
    expressions: Sequence[Expression | None],
    lookups: Sequence[Lookup],
    on: Mapping[str, str] | None = None,
) -> list[str]:
    """Write a relation, and each join with the lookup tables that the expressions need.

    `on`: SQL of a publication's columns where they are not ``alias.column``.
    """
    # Every join is an outer join, so that it neither loses nor repeats a record; an inner join is a
    # condition of its own (`KeyMatch`).
    relations = [f"{relation} AS {alias}"]
    numbers = {column.lookup for expression in expressions for column in columns(expression)}
    for number in sorted(number for number in numbers if number is not None):
        lookup = lookups[number]
        own = (on or {}).get(lookup.on.name, f"{alias}.{lookup.on.sql}")
        table = f"l{number}"
        relations.append(
            f"LEFT JOIN {lookup.relation} AS {table} ON {table}.{lookup.key.sql} = {own}"
        )
    return relations


MOST_LEAVES: Final = 1_000
"""The most leaves of a condition: planning takes the server 0.1 MB for each."""

MOST_VAGUE: Final = 40
"""The most leaves on cells that stand for several values: 3 MB for each."""


COLUMNS = ("t", "f", "st", "pt", "sf", "pf")
"""What is known of a condition's truth, as columns: how likely it is true, and false; whether it is
true surely, and possibly; whether it is false surely, and possibly."""


def is_leaf(condition: ex.Expression) -> bool:
    """Whether a condition is evaluated as a whole: on one column, or not made of conditions."""
    return len(ex.attributes(condition)) <= 1 or not isinstance(
        condition, ex.And | ex.Or | ex.Not | ex.TruthTest
    )


def leaves(condition: ex.Expression | None) -> list[ex.Expression]:
    """Return the leaves of a condition in their order; one that occurs twice, twice."""
    if condition is None:
        return []
    if is_leaf(condition):
        return [condition]
    parts = by_attribute(condition).children
    return [leaf for part in parts for leaf in leaves(part)]


def require_few(n_leaves: int, n_vague: int = 0) -> None:
    """Refuse a condition with more leaves than the server can plan in the memory of a query.

    `n_leaves`, `n_vague`: all leaves, and those on cells that stand for several values.
    """
    if n_leaves > MOST_LEAVES or n_vague > MOST_VAGUE:
        raise refusal(
            "the query has too many conditions that must be counted apart",
            hint="use IN or BETWEEN for conditions on one column, or ask several queries",
            detail=f"{n_leaves}, of {MOST_LEAVES} that are allowed; {n_vague} of them on cells that"
            f" stand for several values, of {MOST_VAGUE}",
        )


@dataclass(frozen=True)
class Request:
    """What one statement is to estimate."""

    query: Query
    aggregate: Aggregate
    lookups: Sequence[Lookup] = ()
    most: int | None = None  # How many groups to answer at most, before they are put in order


EVERYBODY: Final = Request(Query(None, (), ()), ex.Aggregate("count", None))
"""All records."""
