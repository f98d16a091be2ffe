"""PostgreSQL's statements in Spark's SQL.

Statements are written once, for PostgreSQL. sqlglot translates them; what it does not know of both
is added here. What is left over is refused by Spark, and never answered wrongly: its session has
ANSI rules, under which what overflows is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import sqlglot
from sqlglot import exp

_LARGEST: Final = 38
"""Digits that Spark's decimals have."""

Bound: TypeAlias = str | Sequence[str | None] | None
"""A text, or an array of texts."""


def spark_sql(statement: str, relations: Mapping[str, str], values: Sequence[Bound] = ()) -> str:
    """Translate a statement.

    Parameters
    ----------
    statement : str
        Its values are ``$1 … $n``; in the result, ``:p1 … :pn``. Arrays are bound as JSON.
    relations : mapping of str to str
        What Spark calls the relations that the statement may read, by their names.
    values : sequence
        What ``$1 … $n`` are: only how many digits those have that are cast to numeric matters.

    Raises
    ------
    KeyError
        For any other relation.

    Examples
    --------
    >>> spark_sql('SELECT count(*)::int8 AS n FROM "x_qit" AS q WHERE num_nulls(q.a) = 0'
    ...           " AND q.b > $1::int8", {"x_qit": "t1"})
    'SELECT CAST(COUNT(*) AS BIGINT) AS n FROM `t1` AS q WHERE CAST(q.a IS NULL AS INT) = 0 AND \
q.b > CAST(:p1 AS BIGINT)'
    >>> spark_sql("SELECT * FROM unnest($1::text[]) AS u (x)", {})
    "SELECT * FROM (SELECT INLINE(ARRAYS_ZIP(CAST(FROM_JSON(:p1, 'array<string>') AS \
ARRAY<STRING>)))) AS u(x)"
    >>> spark_sql("SELECT (ARRAY[3, 4])[width_bucket(b, ARRAY[1, 9])] AS size", {})
    'SELECT GET(ARRAY(3, 4), SIZE(FILTER(ARRAY(1, 9), f -> f <= b)) + -1) AS size'
    >>> spark_sql("SELECT a > $1::text::numeric FROM x", {"x": "t1"}, ["10.25"])
    'SELECT a > CAST(CAST(:p1 AS STRING) AS DECIMAL(4, 2)) FROM `t1`'
    >>> spark_sql("SELECT sum(n) FILTER (WHERE a) OVER () FROM x", {"x": "t1"})
    'SELECT SUM(CASE WHEN a THEN n END) OVER () FROM `t1`'
    >>> spark_sql("SELECT d.d FROM x AS c CROSS JOIN unnest(c.a) WITH ORDINALITY AS d (d, k)",
    ...           {"x": "t1"})
    'SELECT d.d FROM `t1` AS c CROSS JOIN LATERAL (SELECT pos AS k, col AS d FROM \
(SELECT POSEXPLODE(c.a))) AS d'
    """
    tree = sqlglot.parse_one(statement, read="postgres")
    _number_elements(tree)
    _size_decimals(tree, values)
    named = {cte.alias for cte in tree.find_all(exp.CTE)}
    for table in list(tree.find_all(exp.Table)):
        if table.name not in named:
            table.set("this", exp.to_identifier(relations[table.name], quoted=True))
            table.set("db", None)
    for kind, translate in _TRANSLATIONS.items():
        for node in list(tree.find_all(kind)):
            found = translate(node)
            if found is not node:
                node.replace(found)
    return tree.sql(dialect="spark")


def _size_decimals(tree: Any, values: Sequence[Bound]) -> None:
    """Give decimals that values are cast to the digits that these have, unless they are whole."""
    for node in tree.find_all(exp.Cast):
        given = node.this
        while isinstance(given, exp.Cast | exp.Paren):
            given = given.this
        decimals = [one for one in node.to.find_all(exp.DataType) if one.this == exp.DType.DECIMAL]
        if not (values and decimals and isinstance(given, exp.Parameter)):
            continue
        value = values[int(given.name) - 1]
        texts = [value] if value is None or isinstance(value, str) else value
        parts = [text.lstrip("-").partition(".") for text in texts if text is not None]
        scale = max((len(part[2]) for part in parts), default=0)
        if not scale:
            continue
        digits = max(len(part[0]) for part in parts) + scale
        sized = exp.DataType.build(f"DECIMAL({min(digits, _LARGEST)}, {scale})", dialect="spark")
        decimals[-1].replace(sized)


def _number_elements(tree: Any) -> None:
    """Unnest arrays with the places of their elements, from 0: only their order is used."""
    for node in list(tree.find_all(exp.Unnest)):
        alias = node.args.get("alias")
        if not node.args.get("offset"):
            continue
        if alias is None:  # of the FROM clause's item around it
            raise TypeError("elements are numbered under a name")
        *names, place = [column.name for column in alias.columns] + _offset_name(node)
        first = node.expressions[0]
        elements = [exp.alias_(exp.column("pos"), place)] + [
            exp.alias_(
                exp.column("col") if i == 0 else exp.Anonymous(
                    this="GET", expressions=[one.copy(), exp.column("pos")]
                ),
                name,
            )
            for i, (name, one) in enumerate(zip(names, node.expressions, strict=True))
        ]  # fmt: skip
        exploded = exp.Select(
            expressions=[exp.Anonymous(this="POSEXPLODE", expressions=[first.copy()])]
        ).subquery()
        inner = exp.Select(expressions=elements).from_(exploded)
        numbered: exp.Expression = inner.subquery(alias.this.name)
        if first.find(exp.Column) is not None:  # of what stands before it
            numbered = exp.Lateral(
                this=inner.subquery(), alias=exp.TableAlias(this=exp.to_identifier(alias.this.name))
            )
        node.replace(numbered)


def _offset_name(node: exp.Expression) -> list[str]:
    offset = node.args["offset"]
    return [offset.name] if isinstance(offset, exp.Expression) else []


def _counted(node: exp.Expression) -> exp.Expression:
    """Aggregate only some rows: Spark's windows know no FILTER."""
    aggregate: exp.Expression = node.this.copy()
    condition = node.expression.this
    inner = aggregate.this
    if isinstance(inner, exp.Star):
        inner = exp.Literal.number(1)
    aggregate.set("this", exp.Case(ifs=[exp.If(this=condition.copy(), true=inner.copy())]))
    return aggregate


def _window(node: exp.Expression) -> exp.Expression:
    """Give rows numbers that differ, where they may have any."""
    if isinstance(node.this, exp.RowNumber) and not node.args.get("order"):
        return exp.Anonymous(this="MONOTONICALLY_INCREASING_ID")
    return node


def _member(node: exp.Expression) -> exp.Expression:
    """Compare with any element of an array."""
    if isinstance(node.expression, exp.Any):
        array = node.expression.this.unnest()
        return exp.Anonymous(this="ARRAY_CONTAINS", expressions=[array, node.this])
    return node


def _value(node: exp.Expression) -> exp.Expression:
    return exp.Placeholder(this=f"p{node.name}")


def _type(node: exp.Expression) -> exp.Expression:
    """Give numeric all of the digits that there are; whole numbers are compared in it."""
    if node.this == exp.DType.DECIMAL and not node.expressions:
        return exp.DataType.build(f"DECIMAL({_LARGEST}, 0)", dialect="spark")
    return node


def _bound_array(node: exp.Expression) -> exp.Expression:
    """Read an array from JSON: as an array of literals, long ones would take long to plan."""
    to = node.args["to"]
    if isinstance(node.this, exp.Parameter) and to.this == exp.DType.ARRAY:
        shape = exp.Literal.string("array<string>")
        read = exp.Anonymous(this="FROM_JSON", expressions=[node.this, shape])
        return exp.Cast(this=read, to=to)
    return node


def _rows(node: exp.Expression) -> exp.Expression:
    """Unnest several arrays side by side."""
    zipped = exp.Anonymous(
        this="INLINE",
        expressions=[exp.Anonymous(this="ARRAYS_ZIP", expressions=node.expressions)],
    )
    return exp.Subquery(this=exp.Select(expressions=[zipped]), alias=node.args["alias"])


def _function(node: exp.Expression) -> exp.Expression:
    name, given = str(node.this).lower(), node.expressions
    if name == "num_nulls":
        nulls = [
            exp.Cast(this=exp.Is(this=one, expression=exp.Null()), to=exp.DataType.build("INT"))
            for one in given
        ]
        return nulls[0] if len(nulls) == 1 else sum(nulls[1:], start=nulls[0])
    if name == "jsonb_build_object":
        return _object(given)
    return node


def _object(given: list[exp.Expression]) -> exp.Expression:
    """Write an object as JSON, whose NULLs are kept."""
    options = exp.Anonymous(
        this="MAP",
        expressions=[exp.Literal.string("ignoreNullFields"), exp.Literal.string("false")],
    )
    fields = exp.Anonymous(this="NAMED_STRUCT", expressions=given)
    return exp.Anonymous(this="TO_JSON", expressions=[fields, options])


def _format(node: exp.Expression) -> exp.Expression:
    """Write a value as text: ``format('%s', value)``."""
    return exp.Cast(this=node.expressions[0], to=exp.DataType.build("STRING", dialect="spark"))


def _place(node: exp.Expression) -> exp.Expression:
    """Count the thresholds that a number has reached; they ascend."""
    reached = exp.Lambda(
        this=exp.LTE(this=exp.column("f"), expression=node.this),
        expressions=[exp.to_identifier("f")],
    )
    kept = exp.Anonymous(this="FILTER", expressions=[node.args["threshold"], reached])
    return exp.Anonymous(this="SIZE", expressions=[kept])


def _element(node: exp.Expression) -> exp.Expression:
    """Take an element of an array, or NULL where there is none; sqlglot counts from 0."""
    return exp.Anonymous(this="GET", expressions=[node.this.unnest(), *node.expressions])


_TRANSLATIONS: Final = {
    exp.Cast: _bound_array,
    exp.Parameter: _value,
    exp.DataType: _type,
    exp.Unnest: _rows,
    exp.Bracket: _element,
    exp.WidthBucket: _place,
    exp.Format: _format,
    exp.Anonymous: _function,
    exp.Filter: _counted,
    exp.Window: _window,
    exp.EQ: _member,
}
"""In this order."""
