"""What sqlglot's tree of a count query may hold: node types, *and* the arguments of each.

Whatever a later release of sqlglot adds to a node is refused until it is allowed here.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from kanon_db.counting.refusals import refusal

_OPERANDS: Final = frozenset({"this", "expression"})

ALLOWED: Final[dict[type[exp.Expr], frozenset[str]]] = {
    exp.Select: frozenset("expressions from_ joins where group having order limit offset".split()),
    exp.Alias: frozenset({"this", "alias"}),
    exp.From: frozenset({"this"}),
    exp.Table: frozenset({"this", "db", "alias"}),
    exp.TableAlias: frozenset({"this"}),
    exp.Join: frozenset({"this", "side", "kind", "on", "using"}),
    exp.Where: frozenset({"this"}),
    exp.Group: frozenset({"expressions"}),
    exp.Having: frozenset({"this"}),
    exp.Order: frozenset({"expressions"}),
    exp.Ordered: frozenset({"this", "desc", "nulls_first"}),
    exp.Limit: frozenset({"expression"}),
    exp.Offset: frozenset({"expression"}),
    **dict.fromkeys((exp.And, exp.Or), _OPERANDS),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), _OPERANDS),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Mod), _OPERANDS),
    exp.Div: _OPERANDS | {"typed", "safe"},
    **dict.fromkeys((exp.Is, exp.NullSafeNEQ, exp.Like, exp.ILike, exp.Escape), _OPERANDS),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.In: frozenset({"this", "expressions"}),
    **dict.fromkeys((exp.Not, exp.Neg, exp.Paren), frozenset({"this"})),
    exp.Count: frozenset({"this", "big_int"}),
    **dict.fromkeys((exp.Sum, exp.Avg), frozenset({"this"})),
    exp.Star: frozenset(),
    exp.Extract: _OPERANDS,
    exp.TimestampTrunc: frozenset({"this", "unit"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.If: frozenset({"this", "true"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.DataType: frozenset({"this", "nested"}),
    exp.Column: frozenset({"this", "table", "db"}),
    exp.Identifier: frozenset({"this", "quoted"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Var: frozenset({"this"}),
    exp.Boolean: frozenset({"this"}),
    exp.Null: frozenset(),
}

_REASONS: Final[dict[tuple[type[exp.Expr], str], str]] = {
    (exp.Subquery, ""): "subqueries are not supported",
    (exp.Tuple, ""): "comparisons of rows are not supported",
    (exp.Dot, ""): "a name has too many qualifiers",
    (exp.Column, "catalog"): "a column has too many qualifiers",
    (exp.Table, "catalog"): "a relation of another database is not supported",
}
"""Reasons for nodes and arguments of which there is more to say than that they cannot be read."""


def refuse_unlisted(tree: exp.Expr) -> None:
    """Refuse a tree with a node, or an argument of a node, that is not allowed.

    Parameters
    ----------
    tree : sqlglot's Expr

    Raises
    ------
    UnsupportedQueryError
    """
    for node in tree.walk():
        kind = type(node)
        unlisted = [""] if kind not in ALLOWED else sorted(_filled(node) - ALLOWED[kind])
        for argument in unlisted:
            raise refusal(_REASONS.get((kind, argument), "the query cannot be read as a SELECT"))


def _filled(node: exp.Expr) -> set[str]:
    """Return the names of the arguments that say something."""
    return {name for name, value in node.args.items() if value not in (None, False, [])}
