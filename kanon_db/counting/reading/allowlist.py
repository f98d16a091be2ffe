"""What sqlglot's tree of a count query may hold: node types, *and* the arguments of each.

Whatever a later release of sqlglot adds to a node is refused until it is allowed here.
"""

from __future__ import annotations

from typing import Final

from kanon_db.counting.reading.grammar import exp
from kanon_db.counting.refusals import refusal

_NODES: Final[dict[str, tuple[type[exp.Expr], ...]]] = {
    "": (exp.Star, exp.Null),
    "this": (
        exp.From, exp.TableAlias, exp.Where, exp.Having, exp.Not, exp.Neg, exp.Paren, exp.Sum,
        exp.Avg, exp.Min, exp.Max, exp.PercentileCont, exp.PercentileDisc, exp.Var, exp.Boolean,
    ),
    "expression": (exp.Limit, exp.Offset),
    "expressions": (exp.Group, exp.Order, exp.With, exp.Distinct),
    "this expression": (
        exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Add, exp.Sub,
        exp.Mul, exp.Mod, exp.Is, exp.NullSafeNEQ, exp.Like, exp.ILike, exp.Escape, exp.Extract,
        exp.Filter, exp.WithinGroup, exp.Nullif,
    ),
    "with_ distinct expressions from_ joins where group having order limit offset": (exp.Select,),
    "this alias": (exp.Alias, exp.Subquery, exp.CTE),
    "this db alias": (exp.Table,),
    "this side kind on using": (exp.Join,),
    "this desc nulls_first": (exp.Ordered,),
    "this expression typed safe": (exp.Div,),
    "this low high": (exp.Between,),
    "this expressions": (exp.In, exp.Coalesce, exp.Anonymous),
    "this big_int": (exp.Count,),
    "this decimals": (exp.Round,),
    "this unit": (exp.TimestampTrunc,),
    "this ifs default": (exp.Case,),
    "this true": (exp.If,),
    "this to": (exp.Cast,),
    "this to safe": (exp.TryCast,),
    "this nested": (exp.DataType,),
    "this table db": (exp.Column,),
    "this quoted": (exp.Identifier,),
    "this is_string": (exp.Literal,),
}  # fmt: skip
"""The arguments that a node may have, with the nodes."""

ALLOWED: Final = {
    kind: frozenset(arguments.split()) for arguments, kinds in _NODES.items() for kind in kinds
}

_REASONS: Final[dict[tuple[type[exp.Expr], str], str]] = {
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
            if kind is exp.Tuple:
                raise refusal(_REASONS[kind, ""], hint="compare column by column, with AND")
            raise refusal(_REASONS.get((kind, argument), "the query cannot be read as a SELECT"))


def _filled(node: exp.Expr) -> set[str]:
    """Return the names of the arguments that say something."""
    return {name for name, value in node.args.items() if value not in (None, False, [])}
