"""Checks whether a query can be answered: its relations, joins, aggregates and groups."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple

from kanon_db.errors import UnsupportedQueryError
from kanon_db.query import expressions as ex
from kanon_db.query._bind import Binder, Scope, Scopes
from kanon_db.query.expressions import (
    Column,
    Formula,
    ItemText,
    Key,
    KeyMatch,
    LookupText,
    Measure,
    Order,
    OrderText,
    Query,
    QueryText,
    RelationText,
    Rounded,
    number_type,
    refusal,
)
from kanon_db.query.layout import Lookup

MOST_LOOKUPS: Final = 8


class LookupTable(NamedTuple):
    """A lookup table: its quoted name, and its columns of ordinary types."""

    relation: str
    columns: Mapping[str, Column]


class Joined(NamedTuple):
    """The relations of a query, joined."""

    scopes: tuple[Scope, ...]  # The publication, then the lookup tables
    lookups: tuple[Lookup, ...]
    # Conditions of inner joins: a record must have a row in the lookup table
    matches: tuple[KeyMatch, ...]


def check_relations(text: QueryText) -> None:
    """Refuse too many lookup tables, and two relations with the same name.

    Raises UnsupportedQueryError.
    """
    if len(text.lookups) > MOST_LOOKUPS:
        raise refusal(f"more than {MOST_LOOKUPS} lookup tables are not supported")
    relations = [text.publication, *(lookup.relation for lookup in text.lookups)]
    if len({relation.alias or relation.name for relation in relations}) < len(relations):
        raise refusal(
            "two relations have the same name", hint="give each a name of its own with AS"
        )


def join(text: QueryText, columns: Mapping[str, Column], tables: Sequence[LookupTable]) -> Joined:
    """Check the joins of a query, and find the columns that they compare.

    `columns`: the publication's. `tables`: in the query's order.
    """
    # Raises UnsupportedQueryError when a join compares anything but a column of the publication
    # with a column of its lookup table, or types that do not compare.
    publication = Scope(text.publication, columns)
    scopes, lookups, matches = [publication], [], []
    for number, (written, table) in enumerate(zip(text.lookups, tables, strict=True)):
        own, key = _join_columns(written, publication, table.columns)
        via = {
            name: replace(column, lookup=number, via=own.name)
            for name, column in table.columns.items()
        }
        lookups.append(Lookup(table.relation, via[key.name], own))
        scopes.append(Scope(written.relation, via, key.name if written.is_using else None))
        if not written.is_outer:
            matches.append(KeyMatch(via[key.name]))
    return Joined(tuple(scopes), tuple(lookups), tuple(matches))


def _join_columns(
    written: LookupText, publication: Scope, columns: Mapping[str, Column]
) -> tuple[Column, Column]:
    """Tell the publication's join column from the lookup table's."""
    left, right = written.left.parts, written.right.parts
    pairs = [
        (own, key)
        for one, other in ((left, right), (right, left))
        if (own := _find(one, publication.relation, publication.columns)) is not None
        and (key := _find(other, written.relation, columns)) is not None
    ]
    if not pairs or (len(pairs) > 1 and left != right):
        raise refusal(
            "the join does not compare a column of the publication with one of the lookup table",
            hint="write ON <publication>.<column> = <lookup table>.<column>; the lookup table's"
            " column must have an ordinary type",
        )
    own, key = pairs[0]
    is_whole = own.type.category in ("integer", "numeric")
    if not (
        own.type.name == key.type.name
        or (is_whole and key.type.category in ("integer", "numeric"))
        or ({own.type.name, key.type.name} <= {"text", "character varying"})
    ):
        raise refusal(
            f"a column of type {own.type.name} cannot be joined with one of type {key.type.name}",
            hint="give the lookup table's column the type of the publication's",
            detail=f'columns "{own.name}" and "{key.name}"',
        )
    return own, key


def _find(
    parts: tuple[str, ...], relation: RelationText, columns: Mapping[str, Column]
) -> Column | None:
    *qualifier, name = parts
    if qualifier and not relation.answers_to(tuple(qualifier)):
        return None
    return columns.get(name)


_MOST_DIGITS: Final = 131_072
"""Digits that PostgreSQL's numeric may have before the decimal point."""

MOST_MEASURES: Final = 50
"""The most aggregates of a query: each reads all records."""


class Measures:
    """Collects the aggregates that a query shows, and those that HAVING and ORDER BY need."""

    def __init__(self, binder: Binder, *, has_having: bool = False) -> None:
        self._binder = binder
        self._has_having = has_having
        self.grouped: tuple[ex.Expression, ...] = ()  # The expressions of GROUP BY, once known
        self.found: list[Measure] = []
        self.formulas: list[Formula] = []
        self._listed: list[int] = []

    @property
    def listed(self) -> tuple[int, ...]:
        """The numbers of the select list's measures and formulas; formulas come after measures."""
        return tuple(map(self.final_place, self._listed))

    def final_place(self, place: int) -> int:
        """Return a final number: a formula has a negative one until all measures are known."""
        return len(self.found) - 1 - place if place < 0 else place

    def show(self, expression: ex.Expression, alias: str | None) -> None:
        """Add an item of the select list: an aggregate, or a calculation with aggregates."""
        if isinstance(expression, ex.AggregateList):
            for number, part in enumerate(expression.parts, start=1):
                self.show(part, alias and f"{alias}[{number}]")
            return
        if not isinstance(expression, ex.Aggregate):
            bound = self._bind_item(expression)
            self.formulas.append(Formula(self._label(alias, bound), bound))
            self._listed.append(-len(self.formulas))
            return
        aggregate = self._bind_aggregate(expression)
        label = self._label(alias, aggregate)
        for place, measure in enumerate(self.found):
            if measure.aggregate == aggregate and not measure.is_shown:
                self.found[place] = Measure(label, aggregate)
                self._listed.append(place)
                return
        self._add(Measure(label, aggregate))
        self._listed.append(len(self.found) - 1)

    def place(self, expression: ex.Expression) -> int:
        """Return the number of an item of ORDER BY, which `settled` makes final."""
        if isinstance(expression, ex.Aggregate):
            return self._place(self._bind_aggregate(expression))
        bound = self._bind_item(expression)
        for number, formula in enumerate(self.formulas, start=1):
            if formula.expression == bound:
                return -number
        self.formulas.append(Formula("", bound))
        return -len(self.formulas)

    def _bind_item(self, expression: ex.Expression) -> ex.Expression:
        """Bind a calculation, or a condition on aggregates, which is 1 where it is true."""
        if not isinstance(expression, _CONDITIONS):
            return self.bind_calculation(expression)[0]
        one, zero = ex.Literal("number", "1"), ex.Literal("number", "0")
        condition = self.having(expression) or expression
        return ex.Case(((condition, one), (ex.Not(condition), zero)), None)

    def bind_calculation(self, expression: ex.Expression) -> tuple[ex.Expression, ex.Category]:
        """Bind arithmetic with aggregates and numbers; return it with its kind of number."""
        match expression:
            case ex.Aggregate():
                bound = self._bind_aggregate(expression)
                self._place(bound)
                return bound, self._kind(expression)
            case ex.Literal("number", text):
                if not _is_numeric(text) or not math.isfinite(float(text)):
                    raise refusal("a constant is too large to calculate with")
                return expression, number_type(text).category
            case ex.WindowTotal(aggregate, is_filtered, by):
                if self._has_having:
                    raise refusal(
                        "a total of the groups is not supported with HAVING",
                        hint="leave HAVING out, or ask for the groups and for the total",
                    )
                bound = self._bind_aggregate(aggregate)
                self._place(bound)
                is_float = self._kind(aggregate) == "float"
                of: ex.Category = "float" if is_float else "numeric" if is_filtered else "integer"
                parts = tuple(self._binder.value(part)[0] for part in by)
                if any(part not in self.grouped for part in parts):
                    raise refusal(
                        "PARTITION BY names something that GROUP BY does not",
                        hint="write SUM(COUNT(*)) OVER (PARTITION BY <column of GROUP BY>)",
                    )
                return ex.WindowTotal(bound, is_filtered, parts), of
            case ex.Negative(operand):
                inner, kind = self.bind_calculation(operand)
                return ex.Negative(inner), kind
            case ex.Cast(operand, "numeric" | "double precision" as to):
                inner, _ = self.bind_calculation(operand)
                return ex.Cast(inner, to), "numeric" if to == "numeric" else "float"
            case ex.Cast(operand, "smallint" | "integer" | "bigint"):
                inner, kind = self.bind_calculation(operand)
                if kind == "integer":
                    return inner, kind
                is_rough = any(self._kind(part) == "float" for part in _aggregates(operand))
                return Rounded(inner, None, kind == "float", is_rough), "integer"
            case ex.Coalesce((operand, ex.Literal("number") as otherwise)):
                (one, kind), (other, another) = map(self.bind_calculation, (operand, otherwise))
                for part in _aggregates(operand):
                    if (
                        part.operand is not None
                    ):  # whether there is a value tells whether it is NULL
                        self._place(self._bind_aggregate(_number_of(part)))
                return ex.Coalesce((one, other)), max(kind, another, key=_KINDS.index)
            case ex.Case(
                ((ex.Comparison("=", left, ex.Literal("number") as right), ex.Literal("null")),),
                default,
            ) if left == default:  # as Metabase spells NULLIF
                return self.bind_calculation(ex.NullIf(left, right))
            case ex.DatePart("extract" | "date_part", "epoch", ex.Aggregate("min" | "max") as part):
                bound = self._bind_aggregate(part)
                self._place(bound)
                return bound, "numeric"
            case ex.Case(branches, default):
                conditions = [self.having(when) or when for when, _ in branches]
                written = [then for _, then in branches] + ([default] if default else [])
                results, kinds = zip(*map(self.bind_calculation, written), strict=True)
                chosen = tuple(zip(conditions, results, strict=False))
                last = results[-1] if default else None
                return ex.Case(chosen, last), max(kinds, key=_KINDS.index)
            case ex.NullIf(left, ex.Literal("number") as right):
                (one, kind), (other, another) = map(self.bind_calculation, (left, right))
                return ex.NullIf(one, other), max(kind, another, key=_KINDS.index)
            case ex.Statistic(function, operands, sums):
                values = [self._binder.value(operand) for operand in operands]
                totals = tuple(self.bind_calculation(one)[0] for one in sums)
                of_values = ex.Statistic(function, tuple(one for one, _ in values), totals)
                # Those of two numbers are of double precision, as in PostgreSQL.
                is_float = len(values) > 1 or values[0][1].category == "float"
                return of_values, "float" if is_float else "numeric"
            case ex.Arithmetic("+" | "-" | "*" | "/" as operator, left, right):
                (one, kind), (other, another) = (
                    self.bind_calculation(left),
                    self.bind_calculation(right),
                )
                if operator == "/" and kind == another == "integer":
                    raise refusal(
                        "the division of whole numbers would be cut to a whole number",
                        hint="multiply by 1.0 first, as in 100.0 * COUNT(*) FILTER (WHERE ...)"
                        " / COUNT(*)",
                    )
                return ex.Arithmetic(operator, one, other), max(kind, another, key=_KINDS.index)
            case Rounded(operand, digits):
                inner, kind = self.bind_calculation(operand)
                if digits is not None and kind == "float":
                    raise refusal(
                        "ROUND to a number of digits needs a numeric, as in PostgreSQL",
                        hint="cast what is rounded, as in ROUND(CAST(AVG(...) AS numeric), 2)",
                    )
                # PostgreSQL rounds a whole number as a floating-point number.
                category: ex.Category = "numeric" if digits is not None else kind
                category = "float" if category == "integer" else category
                is_rough = any(self._kind(part) == "float" for part in _aggregates(operand))
                return Rounded(inner, digits, category == "float", is_rough), category
        raise refusal(
            "calculations with aggregates are made of aggregates and numbers by + - * / only",
            hint="NULLIF(..., 0), COALESCE(..., 0), CASE, ROUND and casts to numbers are accepted,"
            " too; a condition on records belongs into FILTER (WHERE ...) of an aggregate",
        )

    def _kind(self, aggregate: ex.Aggregate) -> ex.Category:
        """Return the kind of number that an aggregate is."""
        if aggregate.operand is None or aggregate.function in ("count", "distinct"):
            return "integer"
        _, type_ = self._binder.value(aggregate.operand)
        if type_.category == "float" or aggregate.function == "cont":
            return "float"
        if type_.category == "moment":
            raise refusal(
                "what is calculated from a date is not supported",
                hint="calculate with EXTRACT(EPOCH FROM <column>), its seconds since 1970",
            )
        if aggregate.share is not None:
            return type_.category
        is_whole = aggregate.function == "sum" and type_.name in ("smallint", "integer")
        return "integer" if is_whole else "numeric"

    def having(self, expression: ex.Expression | None) -> ex.Expression | None:
        """Check HAVING, and add its aggregates."""
        if expression is None:
            return None
        bound = self._condition(expression)
        for aggregate in _aggregates(bound):
            self._place(aggregate)
        return bound

    def _label(self, alias: str | None, bound: ex.Expression) -> str:
        """Name a result by its alias, or by function and column; each name is unique."""
        match bound:
            case ex.Aggregate(function, operand, condition):
                inside = operand.name if isinstance(operand, ex.Column) else "..."
                label = f"{function}({'*' if operand is None else inside})"
                if function in ("disc", "cont"):
                    label = f"percentile_{function}({bound.share:g}) of {inside}"
                if function == "distinct":
                    label = f"count(distinct {inside})"
                label += "" if condition is None else " filter (...)"
            case Rounded():
                label = "round"
            case ex.Statistic(function, operands=operands):
                names = (one.name if isinstance(one, ex.Column) else "..." for one in operands)
                label = f"{function}({', '.join(names)})"
            case _:
                label = "?column?"
        label = label if alias is None else alias
        taken = {one.label for one in self.found} | {one.label for one in self.formulas}
        numbered, number = label, 1
        while numbered in taken:
            number += 1
            numbered = f"{label} {number}"
        return numbered

    def _place(self, bound: ex.Aggregate) -> int:
        for place, measure in enumerate(self.found):
            if measure.aggregate == bound:
                return place
        self._add(Measure("", bound, is_shown=False))
        return len(self.found) - 1

    def _add(self, measure: Measure) -> None:
        if len(self.found) == MOST_MEASURES:
            raise refusal(
                f"the query has more than {MOST_MEASURES} aggregates",
                hint="ask for fewer aggregates at a time; those of HAVING and ORDER BY count, too",
            )
        self.found.append(measure)

    def _bind_aggregate(self, aggregate: ex.Aggregate) -> ex.Aggregate:
        condition = aggregate.condition
        if condition is not None:
            condition = self._binder.condition(condition)
        if aggregate.operand is None:
            return replace(aggregate, condition=condition)
        if aggregate.function == "count":
            return ex.Aggregate("count", self._binder.value(aggregate.operand)[0], condition)
        if aggregate.function == "distinct":
            operand, of = self._binder.value(aggregate.operand)
            _require_grouped(of)
            if not of.has_equality:
                raise refusal(
                    "which values of a column are equal is not published",
                    hint="count groups of its texts, with GROUP BY",
                    detail=f'column "{operand.name}"' if isinstance(operand, ex.Column) else "",
                )
            return ex.Aggregate("distinct", operand, condition)
        operand, type_ = self._binder.bind(aggregate.operand)
        if aggregate.share is not None:
            if type_ is not None and type_.category == "moment":
                operand, type_ = ex.DatePart("extract", "epoch", operand), ex.NUMERIC
            type_ = _type_of_answer(type_)
            return replace(aggregate, operand=operand, condition=condition, type=type_)
        if type_ is None or type_.category not in ex.NUMBERS:
            raise refusal(
                "SUM and AVG are only supported for numbers",
                hint="a condition can be counted, with COUNT(*) FILTER (WHERE ...), and a part of"
                " a date is a number, as in AVG(EXTRACT(YEAR FROM <column>))",
            )
        return ex.Aggregate(aggregate.function, operand, condition, type=type_)

    def _condition(self, expression: ex.Expression) -> ex.Expression:
        """Bind a condition of HAVING, which combines comparisons of aggregates and numbers."""
        match expression:
            case ex.And() | ex.Or() | ex.Not():
                return ex.rebuilt(expression, self._condition)
            case ex.Membership():
                return self._condition(ex.spell_out(expression))
            case ex.Comparison() | ex.Range() | ex.NullTest():
                return ex.rebuilt(expression, self._number)
        raise _beyond_having()

    def _number(self, expression: ex.Expression) -> ex.Expression:
        match expression:
            case ex.Aggregate():
                return self._bind_aggregate(expression)
            case ex.Literal("number", text):
                if not _is_numeric(text):
                    raise refusal(
                        "a constant cannot be read as numeric",
                        hint=f"numbers have at most {_MOST_DIGITS:,} digits before the point",
                    )
                return expression
            case ex.Negative() | ex.Arithmetic("+" | "-" | "*"):
                return ex.rebuilt(expression, self._number)
            case ex.Statistic():
                self.place(expression)
                return self.bind_calculation(expression)[0]
            case (
                ex.Arithmetic("/") | ex.Cast() | ex.NullIf() | ex.Coalesce() | ex.Case() | Rounded()
            ) if _aggregates(expression) or not _names(expression):
                for part in ex.walk(expression):
                    if isinstance(part, ex.Statistic):
                        self.place(part)
                return self.bind_calculation(expression)[0]
        raise _beyond_having()


class GroupMeasures(Measures):
    """Collects the aggregates of a query over groups, and what these need of the groups."""

    def __init__(self, binder: Binder, groups: Measures) -> None:
        super().__init__(binder)
        self._groups = groups

    def choose(self, condition: ex.Expression | None) -> ex.Expression | None:
        """Check the condition that groups must meet."""
        return self._groups.having(condition)

    def _bind_aggregate(self, aggregate: ex.Aggregate) -> ex.Aggregate:
        operand, function = aggregate.operand, aggregate.function
        if not isinstance(aggregate, ex.GroupAggregate):
            raise refusal(
                "a column of a subquery is an aggregate, and stands where none may",
                hint="aggregate it, as in AVG(n), or ask the subquery itself",
            )
        condition = self.choose(aggregate.condition)
        if operand is None:
            return replace(aggregate, condition=condition)
        if not ex.has_aggregate(operand):
            bound, _ = self._binder.value(operand)
            if function == "count" and bound in self._groups.grouped:
                return replace(aggregate, operand=bound, condition=condition)
            raise refusal(
                "of what a subquery groups by, groups can only be counted",
                hint="ask the publication itself, as in MAX(<column>) or COUNT(DISTINCT <column>)",
            )
        if function not in ("count", "sum", "avg", "min", "max"):
            raise _beyond_groups()
        bound, _ = self._groups.bind_calculation(operand)
        return replace(aggregate, operand=bound, condition=condition, share=None)

    def bind_calculation(self, expression: ex.Expression) -> tuple[ex.Expression, ex.Category]:
        """Bind arithmetic with aggregates of groups and numbers."""
        if isinstance(expression, ex.Statistic | ex.AggregateList):
            raise _beyond_groups()
        return super().bind_calculation(expression)

    def _kind(self, aggregate: ex.Aggregate) -> ex.Category:
        if aggregate.function == "count" or aggregate.operand is None:
            return "integer"
        _, kind = self._groups.bind_calculation(aggregate.operand)
        is_chosen = kind == "float" or aggregate.function in ("min", "max")
        return kind if is_chosen else "numeric"


_KINDS: Final[tuple[ex.Category, ...]] = ("integer", "numeric", "float")
_CONDITIONS: Final = (
    ex.Comparison, ex.Range, ex.NullTest, ex.Membership, ex.And, ex.Or, ex.Not
)  # fmt: skip


def _number_of(aggregate: ex.Aggregate) -> ex.Aggregate:
    """Return the aggregate that counts the values that another is of."""
    return replace(aggregate, function="count", share=None, type=None)


def _aggregates(expression: ex.Expression) -> list[ex.Aggregate]:
    """Return the aggregates of an expression, without those that they are of."""
    if isinstance(expression, ex.Aggregate):
        return [expression]
    return [inner for part in expression.children for inner in _aggregates(part)]


def _names(expression: ex.Expression) -> bool:
    return any(isinstance(part, ex.Name) for part in ex.walk(expression))


def _type_of_answer(type_: ex.Type | None) -> ex.Type:
    """Return the type of the operand of MIN, MAX or a percentile; only numbers are answered."""
    if type_ is not None and type_.category in ex.NUMBERS:
        return type_
    raise refusal(
        "MIN, MAX and percentiles are only supported for numbers and dates",
        hint="SELECT DISTINCT <column> ... ORDER BY 1 lists the values in their order",
    )


def _is_numeric(text: str) -> bool:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    return abs(number.adjusted()) < _MOST_DIGITS


def _beyond_having() -> UnsupportedQueryError:
    return refusal(
        "HAVING can only compare aggregates, what is calculated from them, and numbers",
        hint="put conditions on columns into WHERE",
    )


def _beyond_groups() -> UnsupportedQueryError:
    return refusal(
        "groups are only aggregated by COUNT, SUM, AVG, MIN and MAX",
        hint="ask the subquery itself, and calculate from its answer",
    )


# Whole queries: clause after clause is checked, and gets its types.
#
# A constant gets the type that PostgreSQL would give it, so that statements written from a checked
# query mean what the query means on the original table.


def check(text: QueryText, scopes: Sequence[Scope], matches: Sequence[ex.KeyMatch] = ()) -> Query:
    """Check a query against its relations, and give everything in it a type.

    `scopes`: the publication, then the lookup tables.
    """
    # `matches`: conditions of inner joins: a record must have a row in the lookup table.
    # Raises UnsupportedQueryError when a column is unknown, types do not fit, or the select list
    # does not fit GROUP BY.
    return _Checker(text, Scopes(scopes)).query(matches)


class _Checker:
    """Checks the clauses of one query."""

    def __init__(self, text: QueryText, scopes: Scopes) -> None:
        self._text = text
        self._scopes = scopes
        self._binder = Binder(scopes)
        self._measures = Measures(self._binder, has_having=text.having is not None)
        self._fixed: list[tuple[str, str]] = []
        self._marks: list[tuple[str, Key]] = []

    def query(self, matches: Sequence[ex.KeyMatch]) -> Query:
        """Check one clause after the other."""
        text = self._text
        where = self._where(matches)
        keys = self._keys()
        self._measures.grouped = tuple(key.expression for key in keys)
        if text.outer is not None:
            return self._over_groups(text.outer, where, keys)
        self._select_list(keys)
        having = self._measures.having(text.having)
        keys_of_order = [self._order(ordered, keys) for ordered in text.order]
        order = tuple(
            one
            if one.measure is None
            else one._replace(measure=self._measures.final_place(one.measure))
            for one in keys_of_order
        )
        query = Query(
            where, keys, tuple(self._measures.found), having, order,
            text.limit, text.offset, tuple(self._binder.value(part)[0] for part in text.selected),
            tuple(self._measures.formulas), self._measures.listed, tuple(self._fixed),
            self._sets(keys), tuple(self._marks),
        )  # fmt: skip
        for part in (inner for one in query.evaluated for inner in ex.walk(one)):
            if not isinstance(part, ex.NullTest):
                for inner in part.children:
                    if isinstance(inner, Column):
                        _require_grouped(inner.type)
        return query

    def _where(self, matches: Sequence[ex.KeyMatch]) -> ex.Expression | None:
        """Check WHERE."""
        conditions: list[ex.Expression] = list(matches)
        if self._text.where is not None:
            conditions.append(self._binder.condition(self._text.where))
        return ex.joined(ex.And, conditions)

    def _over_groups(
        self, outer: QueryText, where: ex.Expression | None, keys: tuple[Key, ...]
    ) -> Query:
        """Check a query over groups; of the groups, what it needs is asked, and if they occur."""
        text, measures = self._text, self._measures
        _Checker(text._replace(outer=None), self._scopes).query(())
        over = _GroupChecker(outer, self._scopes, measures).query(())
        if any(key.expression not in measures.grouped for key in over.keys):
            raise refusal(
                "a query over groups is grouped by something else than they are",
                hint="group by columns that the subquery groups by, as it has them",
            )
        measures.place(ex.Aggregate("count", None))
        selected = tuple(self._binder.value(part)[0] for part in text.selected)
        return Query(
            where, keys, tuple(measures.found), None, (), text.limit, text.offset, selected,
            tuple(measures.formulas), outer=over,
        )  # fmt: skip

    def _keys(self) -> tuple[Key, ...]:
        """Check the expressions of GROUP BY."""
        keys: list[Key] = []
        where = "SELECT DISTINCT" if self._text.is_distinct else "GROUP BY"
        listed = [item.expression for item in self._text.items]
        for expression in self._keys_of_groups():
            if isinstance(expression, ex.Aggregate):
                raise refusal("GROUP BY contains an aggregate")
            bound, type_ = self._binder.value(expression)
            if not ex.columns(bound):
                if expression in listed and not self._text.is_distinct:
                    continue
                raise refusal(f"{where} contains a constant", hint=f"name columns in {where}")
            _require_grouped(type_)
            if all(key.expression != bound for key in keys):
                keys.append(Key(self._name_of(bound), bound))
        grouped = [key.expression for key in keys]
        for expression in listed if grouped and not self._text.sets else ():
            if ex.has_aggregate(expression) or isinstance(expression, ex.GroupMark):
                continue
            bound, type_ = self._binder.value(expression)
            # What follows from the groups' values is one more of them, and divides no group.
            if (
                bound not in grouped
                and ex.columns(bound)
                and not ex.columns(_without(bound, grouped))
            ):
                _require_grouped(type_)
                keys.append(Key(self._name_of(bound), bound))
        if len({key.name for key in keys}) < len(keys):
            raise refusal(
                "two groups have the same name", hint="name each with AS in the select list"
            )
        return tuple(keys)

    def _sets(self, keys: Sequence[Key]) -> tuple[tuple[Key, ...], ...]:
        """Return the keys of each set of GROUP BY, if it has several."""
        text = self._text
        if text.sets and any(
            isinstance(part, ex.WindowTotal)
            for item in text.items
            for part in ex.walk(item.expression)
        ):
            raise refusal(
                "the total of groups is not supported where GROUP BY has several sets",
                hint="leave it out: the set () of ROLLUP has the total",
            )
        bound = [self._binder.value(self._look_up(one))[0] for one in text.group]
        return tuple(
            tuple(key for key in keys if key.expression in [bound[place] for place in places])
            for places in text.sets
        )

    def _keys_of_groups(self) -> list[ex.Expression]:
        """Return the expressions of GROUP BY, or the select list of SELECT DISTINCT."""
        if not self._text.is_distinct:
            return [self._look_up(written) for written in self._text.group]
        written = [item.expression for item in self._text.items]
        ordered = [self._look_up(one.expression, by_alias=True) for one in self._text.order]
        has_more = self._text.group or self._text.having is not None
        if has_more or any(map(ex.has_aggregate, (*written, *ordered))):
            raise refusal(
                "SELECT DISTINCT is only supported for columns, without aggregates and GROUP BY",
                hint="leave DISTINCT out: the groups of GROUP BY are distinct",
            )
        return written

    def _name_of(self, bound: ex.Expression) -> str:
        """Name a group by its first alias in the select list, or as PostgreSQL would."""
        for item in self._text.items:
            if item.alias is None or ex.has_aggregate(item.expression):
                continue
            if isinstance(item.expression, ex.GroupMark):
                continue
            if self._binder.value(item.expression)[0] == bound:
                return item.alias
        return _default_name(bound)

    def _select_list(self, keys: Sequence[Key]) -> None:
        """Check that each item of the select list is an aggregate or grouped by."""
        if self._text.is_distinct:
            # The count of each combination says whether it occurs, and how certainly.
            self._measures.show(ex.Aggregate("count", None), None)
            return
        for item in self._text.items:
            if ex.has_aggregate(item.expression):
                self._measures.show(item.expression, item.alias)
                continue
            if isinstance(item.expression, ex.GroupMark):
                self._mark(item, item.expression, keys)
                continue
            bound, _ = self._binder.value(item.expression)
            if not ex.columns(bound):
                self._fix(item, keys)
                continue
            if all(key.expression != bound for key in keys):
                raise refusal(
                    "the select list has columns that GROUP BY does not name",
                    hint="list what GROUP BY names, and COUNT(*) or other aggregates; SELECT"
                    " DISTINCT lists values",
                )
        if not self._measures.listed:  # groups are listed, as by SELECT DISTINCT
            self._measures.show(ex.Aggregate("count", None), None)

    def _mark(self, item: ItemText, mark: ex.GroupMark, keys: Sequence[Key]) -> None:
        """Let GROUPING of a key stand beside the groups' values."""
        bound, _ = self._binder.value(self._look_up(mark.operand))
        key = next((key for key in keys if key.expression == bound), None)
        if key is None:
            raise refusal(
                "GROUPING names something that GROUP BY does not",
                hint="write GROUPING(<column of GROUP BY>)",
            )
        self._marks.append((self._free_name(item.alias or "grouping", keys), key))

    def _free_name(self, name: str, keys: Sequence[Key]) -> str:
        """Refuse a name that another column of the answer has."""
        if name in {key.name for key in keys} | {one for one, _ in (*self._fixed, *self._marks)}:
            raise refusal("two columns have the same name", hint="name each with AS")
        return name

    def _fix(self, item: ItemText, keys: Sequence[Key]) -> None:
        """Let a constant of the select list stand beside the groups' values."""
        value = item.expression
        name = item.alias or "?column?"
        while isinstance(value, ex.Cast):
            value = value.operand
        if not isinstance(value, ex.Literal) or value.kind not in _JSON:
            raise refusal(
                "the select list has a calculation without columns",
                hint="write its result, a number or a quoted text",
            )
        self._fixed.append((self._free_name(name, keys), _JSON[value.kind](value.text)))

    def _order(self, ordered: OrderText, keys: Sequence[Key]) -> Order:
        """Check an item of ORDER BY."""
        expression = self._look_up(ordered.expression, by_alias=True)
        if ex.has_aggregate(expression):
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

    def _look_up(self, expression: ex.Expression, *, by_alias: bool = False) -> ex.Expression:
        """Look up a number or an alias in the select list; `by_alias` prefers it to a column."""
        items = self._text.grouped or self._text.items
        match expression:
            case ex.Literal("number", digits) if digits.isdecimal():
                if not 1 <= int(digits[:9]) <= len(items):
                    raise refusal(
                        "a number in GROUP BY or ORDER BY is not the position of a selected item",
                        hint="name the column, or count the items of the select list from 1",
                    )
                return items[int(digits[:9]) - 1].expression
            case ex.Name((name,)) if by_alias or not self._scopes.has(name):
                named = [
                    item.expression
                    for item in items
                    if item.alias == name
                    or (by_alias and not item.alias and ex.aggregate_name(item.expression) == name)
                ]
                if len(named) > 1 and any(other != named[0] for other in named):
                    raise refusal("two items of the select list have the same name")
                return named[0] if named else expression
            case _:
                return expression


class _GroupChecker(_Checker):
    """Checks the clauses of a query over groups."""

    def __init__(self, text: QueryText, scopes: Scopes, groups: Measures) -> None:
        super().__init__(text, scopes)
        self._measures: GroupMeasures = GroupMeasures(self._binder, groups)

    def _where(self, matches: Sequence[ex.KeyMatch]) -> ex.Expression | None:  # noqa: ARG002
        return self._measures.choose(self._text.where)


_JSON: Final[Mapping[str, Callable[[str], str]]] = {
    "number": lambda text: json.dumps(float(text) if set(text) & set(".eE") else int(text)),
    "string": json.dumps,
    "boolean": str,
    "null": lambda _: "null",
}
"""How constants are written as JSON, by their kinds."""


def _without(expression: ex.Expression, parts: Sequence[ex.Expression]) -> ex.Expression:
    """Put NULL in place of some parts of an expression."""
    null = ex.Constant(None, ex.TEXT)
    return ex.replace_parts(expression, lambda part: null if part in parts else None)


def _require_grouped(type_: ex.Type) -> None:
    """Refuse to compare values of a type like json, of which only NULL is told apart."""
    if not type_.is_grouped:
        raise refusal(
            f"values of type {type_.name} cannot be compared or grouped, as in PostgreSQL",
            hint="COUNT(<column>) and <column> IS NULL tell who has a value",
        )


_TYPE_NAMES: Final = {
    "smallint": "int2", "integer": "int4", "bigint": "int8", "real": "float4",
    "double precision": "float8", "character varying": "varchar", "boolean": "bool",
    "timestamp without time zone": "timestamp",
}  # fmt: skip
"""PostgreSQL's internal names of types."""


def _default_name(expression: ex.Expression) -> str:
    """Return PostgreSQL's default name for a column of a result."""
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
        case ex.Call(function=function) if function != "||":
            return function
        case ex.NullIf():
            return "nullif"
        case _:
            return "?column?"
