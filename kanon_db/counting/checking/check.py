"""May this query be answered? Columns, types, groups; what passes is typed throughout.

A constant gets the type that PostgreSQL gives it in the same place, so that the statements written
from a checked query mean what the query means on the original table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kanon_db.counting import expressions as ex
from kanon_db.counting.checking.aggregates import Measures
from kanon_db.counting.checking.binder import Binder
from kanon_db.counting.checking.query import Key, Order, Query
from kanon_db.counting.checking.scopes import Scope, Scopes
from kanon_db.counting.reading.query import OrderText, QueryText
from kanon_db.counting.refusals import refusal


def check(text: QueryText, scopes: Sequence[Scope], matches: Sequence[ex.Matched] = ()) -> Query:
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
    return _Checker(text, Scopes(scopes)).query(matches)


class _Checker:
    """Checks the clauses of one query."""

    def __init__(self, text: QueryText, scopes: Scopes) -> None:
        self._text = text
        self._scopes = scopes
        self._binder = Binder(scopes)
        self._measures = Measures(self._binder)

    def query(self, matches: Sequence[ex.Matched]) -> Query:
        """Check clause after clause."""
        text = self._text
        conditions: list[ex.Expression] = list(matches)
        if text.where is not None:
            conditions.append(self._binder.condition(text.where))
        keys = self._keys()
        self._select_list(keys)
        having = self._measures.having(text.having)
        found = [self._order(ordered, keys) for ordered in text.order]
        order = tuple(
            one
            if one.measure is None
            else one._replace(measure=self._measures.settled(one.measure))
            for one in found
        )
        return Query(
            ex.joined(ex.And, conditions), keys, tuple(self._measures.found), having, order,
            text.limit, text.offset, tuple(self._binder.value(part)[0] for part in text.selected),
            tuple(self._measures.formulas), self._measures.listed,
        )  # fmt: skip

    def _keys(self) -> tuple[Key, ...]:
        """Check what GROUP BY names."""
        keys: list[Key] = []
        where = "SELECT DISTINCT" if self._text.is_distinct else "GROUP BY"
        for expression in self._grouped():
            if isinstance(expression, ex.Aggregate):
                raise refusal("GROUP BY contains an aggregate")
            bound, _ = self._binder.value(expression)
            if not ex.columns(bound):
                raise refusal(f"{where} contains a constant", hint=f"name columns in {where}")
            if any(key.expression == bound for key in keys):
                continue
            name = self._name_of(bound)
            if any(key.name == name for key in keys):
                raise refusal(
                    "two groups have the same name", hint="name each with AS in the select list"
                )
            keys.append(Key(name, bound))
        return tuple(keys)

    def _grouped(self) -> list[ex.Expression]:
        """Return what GROUP BY names; of SELECT DISTINCT, what it lists."""
        if not self._text.is_distinct:
            return [self._meant(written) for written in self._text.group]
        written = [item.expression for item in self._text.items]
        ordered = [self._meant(one.expression, by_alias=True) for one in self._text.order]
        has_more = self._text.group or self._text.having is not None
        if has_more or any(map(_aggregates, (*written, *ordered))):
            raise refusal(
                "SELECT DISTINCT is only supported for columns, without aggregates and GROUP BY",
                hint="leave DISTINCT out: the groups of GROUP BY are distinct",
            )
        return written

    def _name_of(self, bound: ex.Expression) -> str:
        """Name a group by its first alias in the select list, or as PostgreSQL would."""
        for item in self._text.items:
            if item.alias is None or _aggregates(item.expression):
                continue
            if self._binder.value(self._meant(item.expression))[0] == bound:
                return item.alias
        return _default_name(bound)

    def _select_list(self, keys: Sequence[Key]) -> None:
        """Check that the select list holds aggregates, and otherwise what GROUP BY names."""
        if self._text.is_distinct:
            # How many records have the values says whether, and how certainly, they are there.
            self._measures.show(ex.Aggregate("count", None), None)
            return
        for item in self._text.items:
            if _aggregates(item.expression):
                self._measures.show(item.expression, item.alias)
                continue
            bound, _ = self._binder.value(self._meant(item.expression))
            if all(key.expression != bound for key in keys):
                raise refusal(
                    "the select list has columns that GROUP BY does not name",
                    hint="list what GROUP BY names, and COUNT(*) or other aggregates; SELECT"
                    " DISTINCT lists values",
                )
        if not self._measures.listed:
            raise refusal(
                "the select list has no COUNT, SUM or AVG",
                hint="ask for COUNT(*) of each group, or SELECT DISTINCT without GROUP BY",
            )

    def _order(self, ordered: OrderText, keys: Sequence[Key]) -> Order:
        """Check an item of ORDER BY."""
        expression = self._meant(ordered.expression, by_alias=True)
        if _aggregates(expression):
            key, measure = None, self._measures.place(expression)
        else:
            bound, _ = self._binder.value(expression)
            measure = None
            key = next((i for i, other in enumerate(keys) if other.expression == bound), None)
            if key is None:
                raise refusal(
                    "ORDER BY names something that is neither in GROUP BY nor an aggregate",
                    hint="order by what GROUP BY names, or by COUNT(*)",
                )
        return Order(key, measure, ordered.is_descending, ordered.nulls_first)

    def _meant(self, expression: ex.Expression, *, by_alias: bool = False) -> ex.Expression:
        """Follow a number or an alias to the select list; `by_alias`: before any column."""
        items = self._text.items
        match expression:
            case ex.Literal("number", digits) if digits.isdecimal():
                if not 1 <= int(digits[:9]) <= len(items):
                    raise refusal(
                        "a number in GROUP BY or ORDER BY is not the position of a selected item",
                        hint="name the column, or count the items of the select list from 1",
                    )
                return items[int(digits[:9]) - 1].expression
            case ex.Name((name,)) if by_alias or not self._scopes.has(name):
                named = [item.expression for item in items if item.alias == name]
                if len(named) > 1 and any(other != named[0] for other in named):
                    raise refusal("two items of the select list have the same name")
                return named[0] if named else expression
            case _:
                return expression


def _aggregates(expression: ex.Expression) -> bool:
    """Whether an expression has aggregates."""
    return any(isinstance(part, ex.Aggregate) for part in ex.walk(expression))


_TYPE_NAMES: Final = {
    "smallint": "int2", "integer": "int4", "bigint": "int8", "real": "float4",
    "double precision": "float8", "character varying": "varchar", "boolean": "bool",
    "timestamp without time zone": "timestamp",
}  # fmt: skip
"""What PostgreSQL calls types itself."""


def _default_name(expression: ex.Expression) -> str:
    """Name a column of a result as PostgreSQL does."""
    match expression:
        case ex.Column(name=name):
            return name
        case ex.DatePart(function=function):
            return function
        case ex.Case(default=ex.Column(name=name)):
            return name
        case ex.Case():
            return "case"
        case ex.Cast(operand, to):
            name = _default_name(operand)
            return _TYPE_NAMES.get(to, to) if name in ("case", "?column?") else name
        case ex.Coalesce():
            return "coalesce"
        case ex.NullIf():
            return "nullif"
        case _:
            return "?column?"
