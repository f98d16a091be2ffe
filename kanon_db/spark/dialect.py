"""PostgreSQL's statements in Spark's SQL.

Statements are written once, for PostgreSQL. sqlglot translates them; what it does not know of both
is added here. What is left over is refused by Spark, and never answered wrongly: its session has
ANSI rules, under which what overflows is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import sqlglot
from sqlglot import exp

_LARGEST: Final = 38
"""Digits that Spark's decimals have."""


def spark_sql(statement: str, relations: Mapping[str, str]) -> str:
    """Translate a statement.

    Parameters
    ----------
    statement : str
        Its values are ``$1 … $n``; in the result, ``:p1 … :pn``. Arrays are bound as JSON.
    relations : mapping of str to str
        What Spark calls the relations that the statement may read, by their names.

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
    """
    tree = sqlglot.parse_one(statement, read="postgres")
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
    return node


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
}
"""In this order."""
