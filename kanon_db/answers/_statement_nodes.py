"""Nodes of statements that are shown: names, constants, and checked expressions.

They are sqlglot's, which prints them for PostgreSQL or for Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias

import sqlglot
from sqlglot import exp

from kanon_db.answers.scope import OpenQuery
from kanon_db.dataclasses import dataclass
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import DERIVED, Aggregate, Column, Expression, refusal
from kanon_db.query.formulas import LIKELY
from kanon_db.query.layout import BucketLayout, CellLayout, Lookup

Node: TypeAlias = Any
"""A node of sqlglot's trees."""


_SIMPLE: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_RESERVED: Final = frozenset(
    "analyse analyze asymmetric authorization binary both check collation concurrently"
    " current_catalog current_role current_schema deferrable do end except foreign freeze grant"
    " initially intersect isnull lateral leading localtime localtimestamp notnull only overlaps"
    " placing references returning session_user similar some symmetric system_user tablesample"
    " to trailing user using variadic verbose when window with".split()
)
"""Words that PostgreSQL reserves and sqlglot does not: as names, they must be quoted."""


def _is_plain_word(name: str) -> bool:
    words = sqlglot.dialects.Postgres.Tokenizer.KEYWORDS
    return (
        _SIMPLE.fullmatch(name) is not None and name not in _RESERVED and name.upper() not in words
    )


def identifier(name: str) -> Node:
    """Make the node of a name, quoted only if it must be."""
    return exp.to_identifier(name, quoted=not _is_plain_word(name))


def column(name: str, table: str = "") -> Node:
    return exp.Column(this=identifier(name), table=identifier(table) if table else None)


def split_name(quoted: str) -> list[str]:
    """Split a qualified name that a session quoted."""
    parts = re.findall(r'"((?:[^"]|"")*)"|([^".]+)', quoted)
    return [inside.replace('""', '"') or outside for inside, outside in parts]


def relation(quoted: str, alias: str = "") -> Node:
    *schema, name = split_name(quoted)
    table = exp.Table(this=identifier(name), db=identifier(schema[0]) if schema else None)
    if alias:
        table.set("alias", exp.TableAlias(this=identifier(alias)))
    return table


def _type(name: str) -> Node:
    """Read a type; sqlglot itself takes `bit varying` for one bit, and arrays of oid for oid."""
    if name.endswith("[]"):
        inner = _type(name.removesuffix("[]"))
        return exp.DataType(this=exp.DType.ARRAY, expressions=[inner], nested=True)
    return exp.DataType.build(name.replace("bit varying", "varbit"), dialect="postgres", udt=True)


def cast(node: Node, type_: str) -> Node:
    return exp.Cast(this=node, to=_type(type_))


def read(sql: str) -> Node:
    """Build the tree of an expression that this package has written."""
    return sqlglot.parse_one(sql, dialect="postgres")


def number(text: str) -> Node:
    digits = exp.Literal.number(text.lstrip("-+"))
    return exp.Neg(this=digits) if text.startswith("-") else digits


_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_TEXTS: Final = ("text", "character varying")
_WIDENED: Final = ("smallint", "bigint", "double precision")
"""Types whose numbers can be written without a cast."""


def constant(constant: ex.Constant) -> Node:
    """Write a constant so that PostgreSQL gives it the type that the check found."""
    text, type_ = constant.text, constant.type
    if text is None:
        return cast(exp.Null(), type_.name)
    is_own = type_.name in (*_WIDENED, ex.number_type(text).name)
    if is_own and _NUMBER.fullmatch(text):
        return number(text)
    if type_.name == "boolean" and text in ("true", "false"):
        return exp.Boolean(this=text == "true")
    written = exp.Literal.string(text)
    return written if type_.name in _TEXTS else cast(written, type_.name)


def double(number: int) -> Node:
    return cast(exp.Literal.number(number), "double precision")


def enclose(node: Node) -> Node:
    """Put an operand into parentheses, unless it is a single word or call."""
    is_whole = isinstance(
        node, exp.Column | exp.Literal | exp.Boolean | exp.Null | exp.Paren | exp.Cast | exp.Case
    ) or (isinstance(node, exp.Func) and not isinstance(node, exp.Binary | exp.Connector))
    return node if is_whole else exp.Paren(this=node)


def _binary(kind: type, left: Node, right: Node) -> Node:
    node = kind(this=enclose(left), expression=enclose(right))
    if isinstance(node, exp.Div):
        node.set("typed", True)  # whole numbers give whole numbers
    return node


def divide(left: Node, right: Node) -> Node:
    """Divide as the operands' types do."""
    return _binary(exp.Div, left, right)


def least(one: Node, other: Node) -> Node:
    return exp.Least(this=one.copy(), expressions=[other.copy()])


def greatest(one: Node, other: Node) -> Node:
    return exp.Greatest(this=one.copy(), expressions=[other.copy()])


ZERO: Final = exp.Literal.number(0)
DOUBLE: Final = "double precision"


def show_error(estimate: Node) -> list[tuple[Node, str]]:
    """Show how far off an estimate may be, from columns with its error and its bounds."""
    error, lower, upper = map(column, ("std_error", "lower_bound", "upper_bound"))
    reach = exp.Literal.number(repr(LIKELY)) * error
    return [
        (error, "std_error"), (lower, "lower_bound"), (upper, "upper_bound"),
        (greatest(estimate - reach, lower), "likely_low"),
        (least(estimate + reach, upper), "likely_high"),
    ]  # fmt: skip


def _negate(node: Node, negated: bool) -> Node:
    return exp.Not(this=enclose(node)) if negated else node


def call(name: str, *given: Node) -> Node:
    return exp.Anonymous(this=name, expressions=list(given))


def own_call(function: str, *given: Node) -> Node:
    """Call a function of kanon_db's."""
    return exp.Dot.build([exp.to_identifier("kanon"), call(function, *given)])


_ARITHMETIC: Final[Mapping[str, type]] = {
    "+": exp.Add, "-": exp.Sub, "*": exp.Mul, "/": exp.Div, "%": exp.Mod,
}  # fmt: skip
_PATTERNS: Final[Mapping[str, type]] = {
    "LIKE": exp.Like, "ILIKE": exp.ILike, "~": exp.RegexpLike, "~*": exp.RegexpILike,
}  # fmt: skip
_COMPARED: Final[Mapping[str, type]] = {
    "=": exp.EQ, "<>": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE,
}  # fmt: skip


def _schema_of(*operands: Expression) -> str | None:
    """Return the schema of the operands' operators; None for PostgreSQL's own."""
    typed = (one.type.operator_schema for one in operands if isinstance(one, Column | ex.Constant))
    return next((schema for schema in typed if schema is not None), None)


def tree(expression: Expression, spell: Callable[[Expression], Node | None]) -> Node:
    """Build the sqlglot tree of a checked expression."""
    # `spell`: returns the tree of a column, or of an expression that is replaced; None for all
    # others.

    def inner(part: Expression) -> Node:
        return tree(part, spell)

    if (spelled := spell(expression)) is not None:
        return spelled
    match expression:
        case ex.Constant():
            return constant(expression)
        case ex.Literal("number", text):
            return number(text)
        case ex.KeyMatch(column):
            return exp.Not(this=exp.Is(this=inner(column), expression=exp.Null()))
        case ex.Negative(operand):
            return exp.Neg(this=enclose(inner(operand)))
        case ex.Arithmetic("/" | "%" as operator, left, right) if _may_be_nobody(right):
            # Somebody may be there of whom none is expected: the others have their answers.
            divisor = exp.Nullif(this=inner(right), expression=ZERO.copy())
            return _binary(_ARITHMETIC[operator], inner(left), divisor)
        case ex.Arithmetic(operator, left, right):
            return _binary(_ARITHMETIC[operator], inner(left), inner(right))
        case ex.Rank(operand, labels):
            listed = exp.Array(expressions=[exp.Literal.string(label) for label in labels])
            return call("ARRAY_POSITION", cast(listed, "text[]"), inner(operand))
        case ex.DatePart("extract", part, operand):
            return exp.Extract(this=exp.var(part.upper()), expression=inner(operand))
        case ex.DatePart(function, part, operand):
            return call(function.upper(), exp.Literal.string(part), inner(operand))
        case ex.Age(later, earlier):
            return call("AGE", inner(later), inner(earlier))
        case ex.Case(branches, default):
            return exp.Case(
                ifs=[exp.If(this=inner(when), true=inner(then)) for when, then in branches],
                default=None if default is None else inner(default),
            )
        case ex.Cast(operand, to):
            return cast(inner(operand), to)
        case ex.Call("||", (left, right)):
            return exp.DPipe(this=enclose(inner(left)), expression=enclose(inner(right)))
        case ex.Call("timezone", (zone, operand)):
            return exp.AtTimeZone(this=enclose(inner(operand)), zone=inner(zone))
        case ex.Call(function, operands):
            return call(function.upper(), *map(inner, operands))
        case ex.WindowTotal(aggregate, is_filtered, by):
            if not is_filtered:
                raise refusal(
                    "a total of all records is not shown as one statement",
                    hint="ask for it in kanon.estimate, or for SUM(COUNT(*)) OVER () here",
                )
            total = exp.Sum(this=inner(aggregate))
            return exp.Window(this=total, partition_by=[inner(part) for part in by])
        case ex.Coalesce((first, *others)):
            return exp.Coalesce(this=inner(first), expressions=[inner(one) for one in others])
        case ex.NullIf(left, right):
            return exp.Nullif(this=inner(left), expression=inner(right))
        case ex.Statistic(function):
            raise refusal(
                f"{function} is not shown as one statement",
                hint="ask for it in kanon.estimate, or here for what it follows from: COUNT(x),"
                " SUM(x) and SUM(x * x), for two columns of both, and SUM(x * y)",
            )
        case ex.Rounded(operand, digits, is_float):
            rounded = inner(operand) if is_float else cast(inner(operand), "numeric")
            return call("ROUND", rounded, *([] if digits is None else [number(str(digits))]))
        case _:
            return _condition(expression, inner)


def _may_be_nobody(divisor: Expression) -> bool:
    return ex.has_aggregate(divisor) and not isinstance(divisor, ex.NullIf)


def _condition(expression: Expression, inner: Callable[[Expression], Node]) -> Node:
    match expression:
        case ex.And(parts):
            return exp.and_(*map(inner, parts), copy=False)
        case ex.Or(parts):
            return exp.or_(*map(inner, parts), copy=False)
        case ex.Not(part):
            return _negate(inner(part), True)
        case ex.NullTest(operand, negated):
            is_null = exp.Is(this=enclose(inner(operand)), expression=exp.Null())
            return exp.Not(this=is_null) if negated else is_null
        case ex.TruthTest(operand, truth, negated):
            value = exp.Null() if truth == "unknown" else exp.Boolean(this=truth == "true")
            test = exp.Is(this=enclose(inner(operand)), expression=value)
            return exp.Not(this=test) if negated else test
        case ex.Pattern(operand, operator, pattern, escape, negated):
            like = _binary(_PATTERNS[operator], inner(operand), inner(pattern))
            if escape is not None:
                like = exp.Escape(this=like, expression=inner(escape))
            return _negate(like, negated)
        case ex.Comparison(operator, left, right):
            schema = _schema_of(left, right)
            if schema is None:
                return _binary(_COMPARED[operator], inner(left), inner(right))
            return exp.Operator(
                this=enclose(inner(left)), operator=f"{schema}.{operator}",
                expression=enclose(inner(right)),
            )  # fmt: skip
        case ex.Distinct(left, right, negated) if _schema_of(left, right) is None:
            equality = exp.NullSafeEQ if negated else exp.NullSafeNEQ
            return _binary(equality, inner(left), inner(right))
        case ex.Distinct(left, right, negated):
            equal = ex.TruthTest(ex.Comparison("=", left, right), "true")
            neither = ex.And((ex.NullTest(left), ex.NullTest(right)))
            return _negate(inner(ex.Or((equal, neither))), not negated)
        case ex.Membership() | ex.Range() if _schema_of(*expression.children) is not None:
            return inner(ex.spell_out(expression))
        case ex.Membership(operand, items, negated):
            membership = exp.In(
                this=enclose(inner(operand)), expressions=[inner(one) for one in items]
            )
            return _negate(membership, negated)
        case ex.Range(operand, low, high, negated):
            between = exp.Between(
                this=enclose(inner(operand)), low=enclose(inner(low)), high=enclose(inner(high))
            )
            return _negate(between, negated)
    raise TypeError(f"{type(expression).__name__} is not checked")


def join_all(*conditions: Node | None) -> Node | None:
    known = [one for one in conditions if one is not None]
    return exp.and_(*known, copy=False) if known else None


def give_name(node: Node, name: str) -> Node:
    """Name an item of a select list, unless it has the name already."""
    if isinstance(node, exp.Column) and node.name == name:
        return node
    return exp.Alias(this=node, alias=identifier(name))


def select(*columns: tuple[Node, str]) -> Node:
    return exp.Select(expressions=[give_name(node, name) for node, name in columns])


def listing(node: Node, alias: str, *columns: str) -> Node:
    """Give a function or a subquery in FROM an alias, and names to its columns."""
    names = exp.TableAlias(this=identifier(alias), columns=[identifier(one) for one in columns])
    if isinstance(node, exp.Select | exp.SetOperation | exp.Values):
        return exp.Subquery(this=node, alias=names)
    return exp.Table(this=node, alias=names)


def unique(name: str, taken: set[str]) -> str:
    """Make an alias from a name, different from those that are taken."""
    stem = name if _SIMPLE.fullmatch(name) else "x"
    candidate, number = stem, 1
    while candidate in taken:
        number += 1
        candidate = f"{stem}_{number}"
    taken.add(candidate)
    return candidate


Spelling = Callable[[Column], Node]
"""Writes a column as the statement names it."""


@dataclass
class FromClause:
    """The relations that the statement reads."""

    relation: Node
    spell: Spelling
    weight: Node | None = None  # The weight of a row; None for 1
    # The numbers of all records and of those with a row, if records are left out
    scale: tuple[int, int] | None = None
    # Lookup tables, and the lists of values of cells
    joins: list[Node] = field(default_factory=list)
    lists: list[tuple[str, Node]] = field(default_factory=list)  # Lists of values in WITH, by name

    def tree(self, expression: Expression | None) -> Node:
        """Build the tree of an expression, with the columns as they are named here."""
        if expression is None:
            return None
        return tree(expression, lambda part: self.spell(part) if isinstance(part, Column) else None)

    def select(self, *columns: tuple[Node, str]) -> Node:
        """Select columns."""
        statement = select(*columns).from_(self.relation.copy())
        for join in self.joins:
            statement = statement.join(join.copy())
        return statement


@dataclass(frozen=True)
class WeightedAggregates:
    """Writes aggregates over the rows of a source."""

    source: FromClause
    where: Node | None
    """A condition that is written into every aggregate, not into WHERE."""
    is_grouped: bool

    def of(self, aggregate: Aggregate) -> Node:
        """Write an aggregate."""
        condition, operand = aggregate.condition, aggregate.operand
        chosen_rows = join_all(
            None if self.where is None else self.where.copy(),
            self.source.tree(condition),
        )
        x: Node = self.source.tree(operand)
        if aggregate.type is not None and aggregate.type.name == "real":
            x = cast(x, "double precision")  # sums of `real` have its few digits
        weight = self.source.weight
        match aggregate.function:
            case "count":
                not_null = None
                if x is not None:
                    not_null = exp.Not(this=exp.Is(this=enclose(x), expression=exp.Null()))
                chosen = join_all(chosen_rows, not_null)
                if weight is None:
                    return self._scale(filter_rows(exp.Count(this=exp.Star()), chosen))
                total = filter_rows(exp.Sum(this=weight.copy()), chosen)
                if chosen is not None or not self.is_grouped:
                    total = exp.Coalesce(this=total, expressions=[exp.Literal.number(0)])
                return self._scale(total)
            case "sum":
                return self._scale(filter_rows(exp.Sum(this=self._weigh(x)), chosen_rows))
            case "avg":
                if weight is None:
                    return filter_rows(exp.Avg(this=x), chosen_rows)
                not_null = exp.Not(this=exp.Is(this=enclose(x.copy()), expression=exp.Null()))
                total = filter_rows(exp.Sum(this=self._weigh(x)), chosen_rows)
                number = filter_rows(
                    exp.Sum(this=weight.copy()),
                    join_all(None if chosen_rows is None else chosen_rows.copy(), not_null),
                )
                shares = exp.Nullif(this=number, expression=ZERO.copy())  # some may be none
                return exp.Div(typed=True, this=total, expression=shares)
            case "min":
                return filter_rows(exp.Min(this=x), chosen_rows)
            case "max":
                return filter_rows(exp.Max(this=x), chosen_rows)
            case "distinct":
                return filter_rows(exp.Count(this=exp.Distinct(expressions=[x])), chosen_rows)
            case function:
                share = exp.Literal.number(repr(aggregate.share))
                kind = exp.PercentileDisc if function == "disc" else exp.PercentileCont
                order = exp.Order(expressions=[exp.Ordered(this=x)])
                return filter_rows(
                    exp.WithinGroup(this=kind(this=share), expression=order), chosen_rows
                )

    def _weigh(self, x: Node) -> Node:
        weight = self.source.weight
        if weight is None:
            return x
        return exp.Mul(this=weight.copy(), expression=enclose(x))

    def _scale(self, total: Node) -> Node:
        """Scale a total to all records, since those that are left out count like the others."""
        if self.source.scale is None:
            return total
        everything, rows = self.source.scale
        scaled = exp.Mul(this=total, expression=double(everything))
        return exp.Div(typed=True, this=scaled, expression=exp.Literal.number(rows))


def filter_rows(aggregate: Node, condition: Node | None) -> Node:
    if condition is None:
        return aggregate
    return exp.Filter(this=aggregate, expression=exp.Where(this=condition))


Calculated = Callable[[Expression], Node | None]
"""Writes aggregates, and columns."""


def select_aggregates(query: ex.Query, write_aggregate: Calculated) -> list[tuple[Node, str]]:
    """Write the aggregates of the select list, with their names."""
    return [
        (
            tree(shown.aggregate if isinstance(shown, ex.Measure) else shown.expression,
                       write_aggregate),
            shown.label,
        )
        for _, shown in query.shown
    ]  # fmt: skip


def rounding(write_aggregate: Calculated) -> Calculated:
    """Round what is compared with numbers, since a sum of weights is not exact."""

    def round_number(expression: Expression) -> Node | None:
        node = write_aggregate(expression)
        return None if node is None else cast(node, "numeric(38, 9)")

    return round_number


def places(n: int) -> list[Node]:
    return [exp.Literal.number(place) for place in range(1, n + 1)]


def with_lists(statement: Node, lists: Sequence[tuple[str, Node]]) -> Node:
    for name, listed in lists:
        statement = statement.with_(identifier(name), as_=listed)
    return statement


def in_order(
    statement: Node, query: ex.Query, compared: Callable[[Expression], Node | None]
) -> Node:
    """Add ORDER BY, LIMIT and OFFSET; ties are ordered by the groups' values."""
    everything: list[ex.Measure | ex.Formula] = [*query.measures, *query.formulas]
    by: list[Node] = []
    for one in query.order:
        if one.measure is None:
            what: Node = exp.Literal.number((one.key or 0) + 1)
        else:
            shown = everything[one.measure]
            content = shown.aggregate if isinstance(shown, ex.Measure) else shown.expression
            what = tree(content, compared)
        by.append(exp.Ordered(this=what, desc=one.is_descending, nulls_first=one.nulls_first))
    named = {one.key for one in query.order if one.measure is None}
    by += [
        exp.Ordered(this=exp.Literal.number(place + 1), nulls_first=False)
        for place in range(len(query.keys))
        if place not in named
    ]
    if by:
        statement = statement.order_by(*by)
    if query.limit is not None:
        statement = statement.limit(query.limit)
    return statement.offset(query.offset) if query.offset else statement


def join_lookups(source: FromClause, lookups: Mapping[int, Lookup], taken: set[str]) -> None:
    own = source.spell
    tables = {
        number: unique(split_name(lookup.relation)[-1], taken) for number, lookup in lookups.items()
    }
    for number, lookup in lookups.items():
        key = column(lookup.key.name, tables[number])
        table = relation(lookup.relation, tables[number])
        equal = exp.EQ(this=key, expression=own(lookup.on))
        source.joins.append(exp.Join(this=table, side="LEFT", on=equal))

    def spell(named: Column) -> Node:
        if named.lookup is None:
            return own(named)
        return column(named.name, tables[named.lookup])

    source.spell = spell


def no_statement(what: str, detail: str = "") -> Exception:
    return refusal(
        f"no single statement gives {what}",
        hint="ask with kanon.estimate, which answers it",
        detail=detail,
    )


def require_weighted(opened: OpenQuery, source: FromClause) -> None:
    """Refuse aggregates that do not follow from the weights of values."""
    layout = opened.layout
    for measure in opened.query.measures:
        aggregate = measure.aggregate
        if aggregate.function not in DERIVED:
            continue
        is_percentile = aggregate.function in ("disc", "cont")
        if (
            opened.plan(aggregate).shape != "exact"
            or (isinstance(layout, BucketLayout) and is_percentile)
            or (isinstance(layout, CellLayout) and source.weight is not None and is_percentile)
        ):
            raise no_statement(
                "MIN, MAX, percentiles or COUNT(DISTINCT ...) of values that are not known"
            )
