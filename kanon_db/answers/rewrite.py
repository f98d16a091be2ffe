"""Writes the paper's estimate of a query as one readable statement over the published view.

The statement is built as a sqlglot tree and printed by sqlglot, for PostgreSQL or for Spark. It
contains its constants with their types, so that it runs wherever the view can be read.

**Source:** buckets, [GB] section 3.2: the weight of a record and a value of its bucket is the share
of the bucket's records that have the value; rows, [FF] section 3: all values that a cell may stand
for are equally likely, and columns are independent within a record.

**Deviations:** HAVING, and ORDER BY with LIMIT, round estimates to nine digits after the point,
since a sum of weights is not exact. docs/start/queries.md lists queries without such a statement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final, TypeAlias
from typing import Literal as OneOf

import sqlglot
from sqlglot import exp

from kanon_db.answers.scope import OpenQuery
from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import can_cover, holds_anything, is_endless
from kanon_db.query.expressions import DERIVED, Aggregate, Column, Expression, refusal
from kanon_db.query.layout import (
    ANYTHING,
    BucketLayout,
    CellDescription,
    CellLayout,
    RowView,
    is_vague,
)
from kanon_db.query.sql import leaves

Node: TypeAlias = Any
"""A node of sqlglot's trees."""

Dialect = OneOf["postgres", "spark"]

Spelling = Callable[[Column], Node]
"""Writes a column as the statement names it."""


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


def _column(name: str, table: str = "") -> Node:
    return exp.Column(this=identifier(name), table=identifier(table) if table else None)


def _split_name(quoted: str) -> list[str]:
    """Split a qualified name that a session quoted."""
    parts = re.findall(r'"((?:[^"]|"")*)"|([^".]+)', quoted)
    return [inside.replace('""', '"') or outside for inside, outside in parts]


def _relation(quoted: str, alias: str = "") -> Node:
    *schema, name = _split_name(quoted)
    table = exp.Table(this=identifier(name), db=identifier(schema[0]) if schema else None)
    if alias:
        table.set("alias", exp.TableAlias(this=identifier(alias)))
    return table


def _type(name: str) -> Node:
    return exp.DataType.build(name, dialect="postgres", udt=True)


def _cast(node: Node, type_: str) -> Node:
    return exp.Cast(this=node, to=_type(type_))


def _number(text: str) -> Node:
    digits = exp.Literal.number(text.lstrip("-+"))
    return exp.Neg(this=digits) if text.startswith("-") else digits


_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_TEXTS: Final = ("text", "character varying")
_WIDENED: Final = ("smallint", "bigint", "double precision")
"""Types whose numbers can be written without a cast."""


def _constant(constant: ex.Constant) -> Node:
    """Write a constant so that PostgreSQL gives it the type that the check found."""
    text, type_ = constant.text, constant.type
    if text is None:
        return _cast(exp.Null(), type_.name)
    is_own = type_.name in (*_WIDENED, ex.number_type(text).name)
    if is_own and _NUMBER.fullmatch(text):
        return _number(text)
    if type_.name == "boolean" and text in ("true", "false"):
        return exp.Boolean(this=text == "true")
    written = exp.Literal.string(text)
    return written if type_.name in _TEXTS else _cast(written, type_.name)


def _double(number: int) -> Node:
    return _cast(exp.Literal.number(number), "double precision")


def _operand(node: Node) -> Node:
    """Put an operand into parentheses, unless it is a single word or call."""
    is_whole = isinstance(
        node, exp.Column | exp.Literal | exp.Boolean | exp.Null | exp.Paren | exp.Cast | exp.Case
    ) or (isinstance(node, exp.Func) and not isinstance(node, exp.Binary | exp.Connector))
    return node if is_whole else exp.Paren(this=node)


def _binary(kind: type, left: Node, right: Node) -> Node:
    node = kind(this=_operand(left), expression=_operand(right))
    if isinstance(node, exp.Div):
        node.set("typed", True)  # whole numbers give whole numbers
    return node


def _negate(node: Node, negated: bool) -> Node:
    return exp.Not(this=_operand(node)) if negated else node


def _call(name: str, *given: Node) -> Node:
    return exp.Anonymous(this=name, expressions=list(given))


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
            return _constant(expression)
        case ex.Literal("number", text):
            return _number(text)
        case ex.KeyMatch(column):
            return exp.Not(this=exp.Is(this=inner(column), expression=exp.Null()))
        case ex.Negative(operand):
            return exp.Neg(this=_operand(inner(operand)))
        case ex.Arithmetic(operator, left, right):
            return _binary(_ARITHMETIC[operator], inner(left), inner(right))
        case ex.Rank(operand, labels):
            listed = exp.Array(expressions=[exp.Literal.string(label) for label in labels])
            return _call("ARRAY_POSITION", _cast(listed, "text[]"), inner(operand))
        case ex.DatePart("extract", part, operand):
            return exp.Extract(this=exp.var(part.upper()), expression=inner(operand))
        case ex.DatePart(function, part, operand):
            return _call(function.upper(), exp.Literal.string(part), inner(operand))
        case ex.Age(later, earlier):
            return _call("AGE", inner(later), inner(earlier))
        case ex.Case(branches, default):
            return exp.Case(
                ifs=[exp.If(this=inner(when), true=inner(then)) for when, then in branches],
                default=None if default is None else inner(default),
            )
        case ex.Cast(operand, to):
            return _cast(inner(operand), to)
        case ex.Call("||", (left, right)):
            return exp.DPipe(this=_operand(inner(left)), expression=_operand(inner(right)))
        case ex.Call("timezone", (zone, operand)):
            return exp.AtTimeZone(this=_operand(inner(operand)), zone=inner(zone))
        case ex.Call(function, operands):
            return _call(function.upper(), *map(inner, operands))
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
        case ex.Deviation(function=function):
            raise refusal(
                f"{function} is not shown as one statement",
                hint="ask for it in kanon.estimate, or for SUM(x * x), SUM(x) and COUNT(x) here",
            )
        case ex.Rounded(operand, digits, is_float):
            rounded = inner(operand) if is_float else _cast(inner(operand), "numeric")
            return _call("ROUND", rounded, *([] if digits is None else [_number(str(digits))]))
        case _:
            return _condition(expression, inner)


def _condition(expression: Expression, inner: Callable[[Expression], Node]) -> Node:
    match expression:
        case ex.And(parts):
            return exp.and_(*map(inner, parts), copy=False)
        case ex.Or(parts):
            return exp.or_(*map(inner, parts), copy=False)
        case ex.Not(part):
            return _negate(inner(part), True)
        case ex.NullTest(operand, negated):
            is_null = exp.Is(this=_operand(inner(operand)), expression=exp.Null())
            return exp.Not(this=is_null) if negated else is_null
        case ex.TruthTest(operand, truth, negated):
            value = exp.Null() if truth == "unknown" else exp.Boolean(this=truth == "true")
            test = exp.Is(this=_operand(inner(operand)), expression=value)
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
                this=_operand(inner(left)), operator=f"{schema}.{operator}",
                expression=_operand(inner(right)),
            )  # fmt: skip
        case ex.Distinct(left, right, negated) if _schema_of(left, right) is None:
            equality = exp.NullSafeEQ if negated else exp.NullSafeNEQ
            return _binary(equality, inner(left), inner(right))
        case ex.Distinct(left, right, negated):
            equal = ex.TruthTest(ex.Comparison("=", left, right), "true")
            neither = ex.And((ex.NullTest(left), ex.NullTest(right)))
            return _negate(inner(ex.Or((equal, neither))), not negated)
        case ex.Membership() | ex.Range() if _schema_of(*ex.children(expression)) is not None:
            return inner(ex.spell_out(expression))
        case ex.Membership(operand, items, negated):
            membership = exp.In(
                this=_operand(inner(operand)), expressions=[inner(one) for one in items]
            )
            return _negate(membership, negated)
        case ex.Range(operand, low, high, negated):
            between = exp.Between(
                this=_operand(inner(operand)), low=_operand(inner(low)), high=_operand(inner(high))
            )
            return _negate(between, negated)
    raise TypeError(f"{type(expression).__name__} is not checked")


def _all(*conditions: Node | None) -> Node | None:
    known = [one for one in conditions if one is not None]
    return exp.and_(*known, copy=False) if known else None


_POINTS: Final = 100
"""Number of points that stand for a continuous range, unless it is cut at constants."""


def _select(*columns: tuple[Node, str]) -> Node:
    return exp.Select(
        expressions=[exp.Alias(this=node, alias=identifier(name)) for node, name in columns]
    )


def _listing(node: Node, alias: str, *columns: str) -> Node:
    """Give a function or a subquery in FROM an alias, and names to its columns."""
    names = exp.TableAlias(this=identifier(alias), columns=[identifier(one) for one in columns])
    if isinstance(node, exp.Select | exp.SetOperation | exp.Values):
        return exp.Subquery(this=node, alias=names)
    return exp.Table(this=node, alias=names)


@dataclass(frozen=True)
class _RangeListing:
    """Describes how the values of a column's ranges are listed."""

    is_endless: bool = False  # Whether some ranges have one end only, with which they count
    # The constants at which to cut continuous ranges; None to list points
    cuts: list[Node] | None = None


def _values_of_cell(
    cell: CellDescription, sql: Node, ends: _RangeListing, labels: str = ""
) -> Node:
    """Select the values of a cell, ``value``, with equal shares, ``share``.

    A range that is NULL, or has no ends, has no values, and counts as NULL. `sql`: SQL of the cell.
    """
    # `ends`: how the values of ranges are listed.
    # `labels`: the name of the list of labels with their values.
    if cell.kind == "value":
        return _select((sql, "value"), (_double(1), "share"))
    if cell.labels is not None:
        element = _element(cell, _column("value", labels))
        number = exp.Window(this=exp.Count(this=exp.Star()))
        is_label = exp.NullSafeEQ(this=_column("label", labels), expression=sql)
        return (
            _select(
                (element, "value"),
                (exp.Div(typed=True, this=_double(1), expression=number), "share"),
            )
            .from_(identifier(labels))
            .where(is_label)
        )
    if cell.kind == "set":
        null = exp.Array(expressions=[exp.Null()])
        members = exp.Coalesce(this=sql, expressions=[_cast(null, "text[]")])
        share = exp.Div(typed=True, this=_double(1), expression=_call("CARDINALITY", members))
        return _select((_element(cell, _column("element", "e")), "value"), (share, "share")).from_(
            _listing(_call("UNNEST", members.copy()), "e", "element")
        )
    low, high = _call("LOWER", sql), _call("UPPER", sql.copy())
    width = exp.Sub(this=high, expression=low)
    type_ = cell.column.type
    if cell.is_discrete:
        return _whole_numbers(cell, sql, is_endless=ends.is_endless)
    cuts = ends.cuts
    if cuts is not None:
        return _pieces(cell, sql, cuts)
    part: Node = exp.Div(
        typed=True,
        this=exp.Paren(this=exp.Add(this=_column("i"), expression=exp.Literal.number("0.5"))),
        expression=exp.Literal.number(_POINTS),
    )
    if type_.category == "moment":
        part = _cast(exp.Paren(this=part), "double precision")
    else:
        part = exp.Paren(this=part)
    value = exp.Add(this=low, expression=exp.Mul(this=exp.Paren(this=width), expression=part))
    return (
        _select(
            (_cast(value, type_.name), "value"),
            (exp.Div(typed=True, this=_double(1), expression=exp.Literal.number(_POINTS)), "share"),
        )
        .from_(_series(exp.Literal.number(_POINTS - 1)))
        .where(exp.Not(this=exp.Is(this=width.copy(), expression=exp.Null())))
    )


def _element(cell: CellDescription, text: Node) -> Node:
    """Read a text as a value of the source's type."""
    if not cell.element:
        return text
    if cell.element.startswith("::"):
        return _cast(text, cell.element.removeprefix("::"))
    names = _split_name(cell.element.removeprefix(" COLLATE "))
    collation = exp.Dot.build([identifier(name) for name in names])
    return exp.Collate(this=text, expression=collation)


def _series(last: Node) -> Node:
    listed = _call("GENERATE_SERIES", exp.Literal.number(0), last)
    return _listing(listed, "s", "i")


def _whole_numbers(cell: CellDescription, sql: Node, *, is_endless: bool) -> Node:
    """List the whole numbers, or days, of a range; a range with one end counts with that."""
    one = exp.Literal.number(1)
    low, high = _call("LOWER", sql), _call("UPPER", sql.copy())
    first = exp.Coalesce(this=low, expressions=[exp.Sub(this=high, expression=one)])
    end = exp.Coalesce(this=high.copy(), expressions=[exp.Add(this=low.copy(), expression=one)])
    if not is_endless:
        first, end = low, high
    width = exp.Sub(this=end, expression=first)
    step: Node = _column("i")
    if cell.column.type.name == "date":
        step = _cast(step, "integer")
    value: Node = exp.Add(this=first.copy(), expression=step)
    if cell.column.type.name == "smallint":
        value = _cast(value, "smallint")
    share = exp.Div(typed=True, this=_double(1), expression=exp.Paren(this=width))
    last = exp.Sub(this=width.copy(), expression=one.copy())
    return _select((value, "value"), (share, "share")).from_(_series(last))


def _pieces(cell: CellDescription, sql: Node, cuts: list[Node]) -> Node:
    """Cut a continuous range at constants; the middle of each piece has its width as share."""
    low, high = _call("LOWER", sql), _call("UPPER", sql.copy())
    inside = exp.And(
        this=exp.LT(this=low, expression=_column("cut")),
        expression=exp.LT(this=_column("cut"), expression=high),
    )
    values = exp.Values(expressions=[exp.Tuple(expressions=[cut]) for cut in cuts])
    listed = _select((low.copy(), "cut"))
    listed = exp.union(listed, exp.Select(expressions=[high.copy()]), copy=False)
    if cuts:
        constants = (
            exp.Select(expressions=[_column("cut")])
            .from_(_listing(values, "c", "cut"))
            .where(inside)
        )
        listed = exp.union(listed, constants, copy=False)
    following = exp.Window(
        this=_call("LEAD", _column("cut")),
        order=exp.Order(expressions=[exp.Ordered(this=_column("cut"))]),
    )
    pieces = _select((_column("cut"), "low"), (following, "high")).from_(_listing(listed, "cuts"))

    def length(end: Node, start: Node) -> Node:
        between = exp.Sub(this=end, expression=start)
        if cell.column.type.category != "moment":
            return exp.Paren(this=between)
        return exp.Extract(this=exp.var("EPOCH"), expression=between)

    p_low, p_high = _column("low", "p"), _column("high", "p")
    width = exp.Nullif(this=length(high.copy(), low.copy()), expression=exp.Literal.number(0))
    share = exp.Coalesce(
        this=exp.Div(typed=True, this=length(p_high, p_low), expression=width),
        expressions=[_double(1)],
    )
    half = exp.Div(
        typed=True,
        this=exp.Paren(this=exp.Sub(this=p_high.copy(), expression=p_low.copy())),
        expression=exp.Literal.number(2),
    )
    middle = exp.Coalesce(
        this=exp.Add(this=p_low.copy(), expression=half), expressions=[p_low.copy()]
    )
    # A range with one value has one cut, and no piece after it.
    is_piece = exp.Or(
        this=exp.Not(this=exp.Is(this=p_high.copy(), expression=exp.Null())),
        expression=exp.EQ(this=low.copy(), expression=high.copy()),
    )
    return _select((middle, "value"), (share, "share")).from_(_listing(pieces, "p")).where(is_piece)


@dataclass
class _FromClause:
    """The relations that the statement reads."""

    relation: Node
    spell: Spelling
    weight: Node | None = None  # The weight of a row; None for 1
    # The numbers of all records and of those with a row, if records are left out
    scale: tuple[int, int] | None = None
    # Lookup tables, and the lists of values of cells
    joins: list[Node] = field(default_factory=list)
    lists: list[tuple[str, Node]] = field(default_factory=list)  # Lists of values in WITH, by name


def _unique(name: str, taken: set[str]) -> str:
    """Make an alias from a name, different from those that are taken."""
    stem = name if _SIMPLE.fullmatch(name) else "x"
    candidate, number = stem, 1
    while candidate in taken:
        number += 1
        candidate = f"{stem}_{number}"
    taken.add(candidate)
    return candidate


def _source(opened: OpenQuery, dialect: Dialect) -> _FromClause:
    layout, lookups = opened.layout, opened.lookups
    taken: set[str] = {"c", "cuts", "e", "p", "s"}
    names = {name for part in opened.query.evaluated for name in ex.attributes(part)}
    vague: list[tuple[str, CellDescription]] = []
    if isinstance(layout, CellLayout):
        vague = [(n, cell) for n, cell in layout.cells.items() if n in names and is_vague(cell)]
        if vague and dialect != "postgres":
            raise _no_statement("a list of the values of ranges, sets or suppressed cells on Spark")
        _require_few_points(opened, layout.view, [cell for _, cell in vague])
        view = layout.view.view
    else:
        view = layout.tables.view
    alias = _unique(_split_name(view)[-1], taken) if lookups or vague else ""
    spread = {name: _unique(name, taken) for name, _ in vague}
    tables = [_unique(_split_name(lookup.relation)[-1], taken) for lookup in lookups]

    def spell(column: Column) -> Node:
        if column.lookup is not None:
            return _column(column.name, tables[column.lookup])
        if column.name in spread:
            return _column("value", spread[column.name])
        return _column(column.name, alias)

    source = _FromClause(_relation(view, alias), spell)
    if isinstance(layout, BucketLayout):
        if dialect == "spark":  # the view has no schema there
            source.relation.set("db", None)
        (weight,) = _split_name(layout.tables.weight)
        source.weight = _column(weight, alias)
    else:
        if layout.left_out and layout.n_rows:
            source.scale = (layout.n_rows + layout.left_out, layout.n_rows)
        shares = []
        for name, cell in vague:
            source.joins.append(_spread(opened, layout, cell, alias, spread[name], source, taken))
            share = _column("share", spread[name])
            shares.append(exp.Coalesce(this=share, expressions=[exp.Literal.number(1)])
                          if cell.kind == "range" else share)  # fmt: skip
        if shares:
            source.weight = reduce(lambda a, b: exp.Mul(this=a, expression=b), shares)
    for lookup, table in zip(lookups, tables, strict=True):
        equal = exp.EQ(this=_column(lookup.key.name, table), expression=spell(lookup.on))
        source.joins.append(exp.Join(this=_relation(lookup.relation, table), side="LEFT", on=equal))
    return source


def _spread(
    opened: OpenQuery, layout: CellLayout, cell: CellDescription, alias: str, own: str,
    source: _FromClause, taken: set[str],
) -> Node:  # fmt: skip
    """Join the list of values that a column's cells may stand for."""
    name = cell.column.name
    labels = ""
    if cell.labels is not None:
        labels = _unique(f"{own}_labels", taken)
        source.lists.append((labels, _labels(cell.labels)))
    ends = _RangeListing()
    if cell.kind == "range":
        ends = _RangeListing(_is_endless(opened, layout, cell), _cuts(opened, cell))
    values = _values_of_cell(cell, _column(name, alias), ends, labels)
    if cell.mark is not None:
        kept = _unique(f"{own}_kept", taken)
        (pattern,) = _split_name(layout.view.pattern or "")

        def mark(table: str) -> Node:
            place = exp.Literal.number(cell.mark)
            return _call("SUBSTR", _column(pattern, table), place, exp.Literal.number(1))

        source.lists.append((kept, _select_kept(layout, cell, ends, labels, mark)))
        hidden = exp.Literal.string("*")
        own_values = (
            exp.Select(expressions=[_column("value", "k"), _column("share", "k")])
            .from_(_listing(values, "k"))
            .where(exp.NEQ(this=mark(alias), expression=hidden))
        )
        unlisted = (
            exp.Select(expressions=[_column("value"), _column("share")])
            .from_(identifier(kept))
            .where(exp.EQ(this=mark(alias), expression=hidden.copy()))
        )
        values = exp.union(own_values, unlisted, distinct=False, copy=False)
    lateral = exp.Lateral(
        this=exp.Subquery(this=values),
        alias=exp.TableAlias(
            this=identifier(own), columns=[identifier("value"), identifier("share")]
        ),
    )
    if cell.kind == "range":
        return exp.Join(this=lateral, side="LEFT", on=exp.true())
    return exp.Join(this=lateral, kind="CROSS")


def _select_kept(
    layout: CellLayout, cell: CellDescription, ends: _RangeListing, labels: str,
    mark: Callable[[str], Node],
) -> Node:  # fmt: skip
    """Select the share of each value among the kept cells of a column."""
    listed = _values_of_cell(cell, _column(cell.column.name, "r"), ends, labels)
    lateral = exp.Lateral(
        this=exp.Subquery(this=listed),
        alias=exp.TableAlias(
            this=identifier("k"), columns=[identifier("value"), identifier("share")]
        ),
    )
    number = exp.Sum(this=_column("share", "k"))
    share = exp.Div(
        typed=True, this=number, expression=exp.Window(this=exp.Sum(this=number.copy()))
    )
    return (
        _select((_column("value", "k"), "value"), (share, "share"))
        .from_(_relation(layout.view.view, "r"))
        .join(exp.Join(this=lateral, kind="CROSS"))
        .where(exp.NEQ(this=mark("r"), expression=exp.Literal.string("*")))
        .group_by(_column("value", "k"))
    )


def _labels(described: str) -> Node:
    """List each label with its values; the label of anything stands for NULL, too."""
    description = json.loads(described)
    values = description["values"]
    pairs: list[tuple[str | None, str | None]] = [(value, value) for value in values]
    for label, first, last in description["labels"]:
        pairs += [(label, value) for value in values[first : last + 1]]
    pairs += [*((ANYTHING, value) for value in values), (ANYTHING, None), (None, None)]

    def text(value: str | None) -> Node:
        return exp.Null() if value is None else exp.Literal.string(value)

    rows = [exp.Tuple(expressions=[text(label), text(value)]) for label, value in pairs]
    listed = _listing(exp.Values(expressions=rows), "v", "label", "value")
    return exp.Select(expressions=[_column("label"), _column("value")]).from_(listed)


def _conditions(opened: OpenQuery) -> Iterator[Expression]:
    query = opened.query
    conditions = [query.where, *(measure.aggregate.condition for measure in query.measures)]
    yield from (one for one in conditions if one is not None)


def _cuts(opened: OpenQuery, cell: CellDescription) -> list[Node] | None:
    """Return the constants that a continuous column is compared with; None for other uses."""
    if cell.is_discrete:
        return None
    name, constants = cell.column.name, []
    query = opened.query
    used: list[Expression] = [key.expression for key in query.keys]
    used += [one.aggregate.operand for one in query.measures if one.aggregate.operand is not None]
    if any(name in ex.attributes(part) for part in used):
        return None
    for condition in _conditions(opened):
        for leaf in leaves(condition):
            if name not in ex.attributes(leaf):
                continue
            if len(ex.attributes(leaf)) > 1 or not can_cover(cell, leaf):
                return None
            constants += [part for part in ex.walk(leaf) if isinstance(part, ex.Constant)]
    to = cell.column.type.name
    return [
        _cast(_constant(one), to if cell.column.type.category == "moment" else "numeric")
        for one in dict.fromkeys(constants)
    ]


def _is_endless(opened: OpenQuery, layout: CellLayout, cell: CellDescription) -> bool:
    """Whether a column has ranges with one end only, of which a condition counts one half each."""
    name = cell.column.name
    column = f"c.{cell.column.sql}"
    endless = f"{is_endless(column)} AND NOT {holds_anything(column)}"
    (row,) = opened.fetch(
        f"SELECT EXISTS (SELECT FROM {layout.view.view} AS c WHERE {endless}) AS found"
    )
    if not row["found"]:
        return False
    is_mentioned = any(name in ex.attributes(condition) for condition in _conditions(opened))
    if is_mentioned or not cell.is_discrete:
        raise _no_statement("an answer from ranges without an end", f'column "{name}"')
    return True


_MOST_POINTS: Final = 10_000_000  # a server takes some seconds for them


def _require_few_points(opened: OpenQuery, view: RowView, cells: list[CellDescription]) -> None:
    """Refuse a statement that would list too many combinations of the values of cells."""

    def size(cell: CellDescription, alias: str) -> str:
        own = f"{alias}.{cell.column.sql}"
        if cell.kind == "range" and not cell.is_discrete:
            cuts = _cuts(opened, cell)
            return str(_POINTS if cuts is None else len(cuts) + 1)
        if cell.kind == "range":
            to = "date" if cell.column.type.name == "date" else "numeric"
            return f"coalesce(upper({own})::{to} - lower({own})::{to}, 1)"
        if cell.labels is not None:
            return str(len(json.loads(cell.labels)["values"]))
        return f"cardinality({own})" if cell.kind == "set" else "1"

    numbers = ["1"]
    for cell in cells:
        numbers.append(size(cell, "c"))
        if cell.mark is not None:
            kept = f"(SELECT DISTINCT v.{cell.column.sql} FROM {view.view} AS v)"
            numbers[-1] = (
                f"CASE WHEN substr(c.{view.pattern}, {cell.mark}, 1) <> '*' THEN {numbers[-1]}"
                f" ELSE (SELECT sum({size(cell, 'k')}) FROM {kept} AS k) END"
            )
    product = " * ".join(f"({number})::float8" for number in numbers)
    (row,) = opened.fetch(f"SELECT coalesce(sum({product}), 0) AS n FROM {view.view} AS c")
    if row["n"] > _MOST_POINTS:
        detail = f"{row['n']:.0f}, of {_MOST_POINTS:,} that are allowed"
        raise _no_statement("an answer from so many combinations of values", detail)


def _no_statement(what: str, detail: str = "") -> Exception:
    return refusal(
        f"no single statement gives {what}",
        hint="ask with kanon.estimate, which answers it",
        detail=detail,
    )


@dataclass(frozen=True)
class _Aggregates:
    """Writes aggregates over the rows of a source."""

    source: _FromClause
    spell: Callable[[Expression], Node | None]
    where: Node | None
    """A condition that is written into every aggregate, not into WHERE."""
    is_grouped: bool

    def of(self, aggregate: Aggregate) -> Node:
        """Write an aggregate."""
        condition, operand = aggregate.condition, aggregate.operand
        asked = _all(
            None if self.where is None else self.where.copy(),
            None if condition is None else tree(condition, self.spell),
        )
        x: Node = None if operand is None else tree(operand, self.spell)
        if aggregate.type is not None and aggregate.type.name == "real":
            x = _cast(x, "double precision")  # sums of `real` have its few digits
        weight = self.source.weight
        match aggregate.function:
            case "count":
                not_null = None
                if x is not None:
                    not_null = exp.Not(this=exp.Is(this=_operand(x), expression=exp.Null()))
                chosen = _all(asked, not_null)
                if weight is None:
                    return self._scale(_filter(exp.Count(this=exp.Star()), chosen))
                total = _filter(exp.Sum(this=weight.copy()), chosen)
                if chosen is not None or not self.is_grouped:
                    total = exp.Coalesce(this=total, expressions=[exp.Literal.number(0)])
                return self._scale(total)
            case "sum":
                return self._scale(_filter(exp.Sum(this=self._weigh(x)), asked))
            case "avg":
                if weight is None:
                    return _filter(exp.Avg(this=x), asked)
                not_null = exp.Not(this=exp.Is(this=_operand(x.copy()), expression=exp.Null()))
                total = _filter(exp.Sum(this=self._weigh(x)), asked)
                number = _filter(
                    exp.Sum(this=weight.copy()),
                    _all(None if asked is None else asked.copy(), not_null),
                )
                return exp.Div(typed=True, this=total, expression=number)
            case "min":
                return _filter(exp.Min(this=x), asked)
            case "max":
                return _filter(exp.Max(this=x), asked)
            case "distinct":
                return _filter(exp.Count(this=exp.Distinct(expressions=[x])), asked)
            case function:
                share = exp.Literal.number(repr(aggregate.share))
                kind = exp.PercentileDisc if function == "disc" else exp.PercentileCont
                order = exp.Order(expressions=[exp.Ordered(this=x)])
                return _filter(exp.WithinGroup(this=kind(this=share), expression=order), asked)

    def _weigh(self, x: Node) -> Node:
        weight = self.source.weight
        if weight is None:
            return x
        return exp.Mul(this=weight.copy(), expression=_operand(x))

    def _scale(self, total: Node) -> Node:
        """Scale a total to all records, since those that are left out count like the others."""
        if self.source.scale is None:
            return total
        everything, rows = self.source.scale
        scaled = exp.Mul(this=total, expression=_double(everything))
        return exp.Div(typed=True, this=scaled, expression=exp.Literal.number(rows))


def _filter(aggregate: Node, condition: Node | None) -> Node:
    if condition is None:
        return aggregate
    return exp.Filter(this=aggregate, expression=exp.Where(this=condition))


def _require_weighted(opened: OpenQuery, source: _FromClause) -> None:
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
            raise _no_statement(
                "MIN, MAX, percentiles or COUNT(DISTINCT ...) of values that are not known"
            )


def statement_tree(opened: OpenQuery, dialect: Dialect = "postgres") -> Node:
    """Build the statement that gives the paper's estimate of a query."""
    query = opened.query
    if query.sets:
        raise refusal("several sets of GROUP BY have no statement", hint="ask for one at a time")
    if query.outer is not None:
        raise refusal("a query over groups has no statement", hint="ask for the subquery's")
    source = _source(opened, dialect)
    _require_weighted(opened, source)

    def spell(expression: Expression) -> Node | None:
        return source.spell(expression) if isinstance(expression, Column) else None

    where = None if query.where is None else tree(query.where, spell)
    # Every group that has a row may have a record that is left out.
    is_apart = bool(query.keys and source.scale)
    written = _Aggregates(source, spell, where if is_apart else None, bool(query.keys))

    def calculated(expression: Expression) -> Node | None:
        return written.of(expression) if isinstance(expression, Aggregate) else spell(expression)

    def compared(expression: Expression) -> Node | None:
        statement = calculated(expression)
        return None if statement is None else _cast(statement, "numeric(38, 9)")

    columns = [(tree(key.expression, spell), key.name) for key in query.keys]
    for _, shown in query.shown:
        content = shown.aggregate if isinstance(shown, ex.Measure) else shown.expression
        columns.append((tree(content, calculated), shown.label))
    statement: Node = _select(*columns).from_(source.relation)
    for join in source.joins:
        statement = statement.join(join)
    if where is not None and not is_apart:
        statement = statement.where(where)
    places = range(1, len(query.keys) + 1)
    if query.keys:
        statement = statement.group_by(*map(exp.Literal.number, places))
    if query.having is not None:
        statement = statement.having(tree(query.having, compared))
    statement = _in_order(statement, query, compared)
    for name, listed in source.lists:
        statement = statement.with_(identifier(name), as_=listed)
    return statement


def _in_order(
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


def rewritten(opened: OpenQuery, dialect: Dialect = "postgres") -> str:
    """Print the statement that gives the paper's estimate of a query, unless it is refused."""
    statement = statement_tree(opened, dialect)
    # Laid out, the lines of a name or a constant would be indented, too.
    texts = (str(node.this) for node in statement.find_all(exp.Identifier, exp.Literal))
    is_laid_out = not any(character in text for text in texts for character in "\n\r")
    text: str = statement.sql(dialect=dialect, pretty=is_laid_out)
    if len(text) > opened.limits.text:
        raise refusal(
            "the statement of the query is too long to show",
            hint="ask for fewer aggregates at a time, or use shorter lists",
            detail=f"{opened.limits.text} characters are allowed",
        )
    return text
