"""How PostgreSQL's own grammar reads a count query: the oracle for differential tests.

Shares no code with the package beyond the typed structure that both return. Needs pglast, which
wraps the grammar of the server; tests skip without it.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from kanon_db.counting.parse import CountText
from kanon_db.counting.predicate import (
    And,
    Comparison,
    Literal,
    Membership,
    Not,
    NullTest,
    Or,
    Predicate,
    Range,
)

pglast = pytest.importorskip("pglast", reason="needs pglast, PostgreSQL's grammar")

from pglast import ast, enums  # noqa: E402

SIMPLE = {"=", "<>", "<", "<=", ">", ">="}
FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class NotACountQueryError(Exception):
    """PostgreSQL reads it, but as something that is not answered."""


def read(query: str) -> CountText:
    """Read a query with PostgreSQL's grammar; ParseError when it does not."""
    statements = pglast.parse_sql(query)
    require(len(statements) == 1)
    select = statements[0].stmt
    require(isinstance(select, ast.SelectStmt))
    filled = {
        name for name in select.__slots__ if getattr(select, name) not in (None, False, 0, ())
    }
    require(filled <= {"targetList", "fromClause", "whereClause", "limitOption", "op"})
    require(len(select.targetList or ()) == len(select.fromClause or ()) == 1)
    (target,), (relation,) = select.targetList, select.fromClause
    count = target.val
    require(isinstance(count, ast.FuncCall) and count.agg_star and count.over is None)
    require([part.sval for part in count.funcname] == ["count"])
    require(isinstance(relation, ast.RangeVar) and relation.inh and not relation.catalogname)
    require(relation.alias is None or relation.alias.colnames is None)
    predicate = None if select.whereClause is None else predicate_of(select.whereClause)
    return CountText(relation.schemaname, relation.relname, predicate)


def require(holds: bool) -> None:
    if not holds:
        raise NotACountQueryError


def predicate_of(node: Any) -> Predicate:
    if isinstance(node, ast.BoolExpr):
        parts = [predicate_of(part) for part in node.args]
        match node.boolop:
            case enums.BoolExprType.AND_EXPR:
                return And(flat(And, parts))
            case enums.BoolExprType.OR_EXPR:
                return Or(flat(Or, parts))
            case _:
                return Not(parts[0])
    if isinstance(node, ast.NullTest):
        return NullTest(column(node.arg), node.nulltesttype == enums.NullTestType.IS_NOT_NULL)
    require(isinstance(node, ast.A_Expr))
    kinds = enums.A_Expr_Kind
    operator = node.name[-1].sval
    if node.kind in (kinds.AEXPR_BETWEEN, kinds.AEXPR_NOT_BETWEEN):
        low, high = map(literal, node.rexpr)
        return Range(column(node.lexpr), low, high, node.kind == kinds.AEXPR_NOT_BETWEEN)
    if node.kind == kinds.AEXPR_IN:
        literals = tuple(map(literal, node.rexpr))
        if len(literals) == 1:
            return Comparison(column(node.lexpr), operator, literals[0])
        return Membership(column(node.lexpr), literals, operator == "<>")
    require(node.kind == kinds.AEXPR_OP and operator in SIMPLE and len(node.name) == 1)
    require(node.lexpr is not None)
    if isinstance(node.lexpr, ast.ColumnRef):
        return Comparison(column(node.lexpr), operator, literal(node.rexpr))
    return Comparison(column(node.rexpr), FLIPPED[operator], literal(node.lexpr))


def flat(kind: type[And] | type[Or], parts: list[Predicate]) -> tuple[Predicate, ...]:
    return tuple(
        inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,))
    )


def column(node: Any) -> str:
    require(isinstance(node, ast.ColumnRef) and isinstance(node.fields[-1], ast.String))
    return str(node.fields[-1].sval)


def literal(node: Any) -> Literal:
    if isinstance(node, ast.TypeCast):
        (*schema, name) = (part.sval for part in node.typeName.names)
        require(schema in ([], ["pg_catalog"]) and name in ("date", "timestamp"))
        require(not node.typeName.typmods and not node.typeName.arrayBounds)
        return Literal(name, literal(node.arg).text)
    if isinstance(node, ast.A_Expr):
        require(node.kind == enums.A_Expr_Kind.AEXPR_OP and node.lexpr is None)
        inner = literal(node.rexpr)
        require(inner.kind == "number" and node.name[0].sval in "+-")
        return Literal("number", ("-" if node.name[0].sval == "-" else "") + inner.text)
    require(isinstance(node, ast.A_Const) and not node.isnull)
    match node.val:
        case ast.Integer(ival=value):
            return Literal("number", str(value or 0))
        case ast.Float(fval=text):
            return Literal("number", text)
        case ast.Boolean(boolval=value):
            return Literal("boolean", "true" if value else "false")
        case ast.String(sval=text):
            return Literal("string", text)
        case _:
            raise NotACountQueryError


def canonical(text: CountText) -> Any:
    """Give equal readings one form: numbers by value, NOT as part of what can hold it."""
    return text.schema, text.relation, text.predicate and _canonical(text.predicate)


def _canonical(part: Predicate) -> Any:
    match part:
        case And(parts) | Or(parts):
            return type(part).__name__, [_canonical(inner) for inner in parts]
        case Not(inner):
            return _complement(_canonical(inner))
        case Comparison(name, operator, constant):
            return operator, name, _value(constant)
        case Membership(name, constants, flag):
            return ("not in" if flag else "in"), name, [_value(c) for c in constants]
        case Range(name, low, high, flag):
            return ("not between" if flag else "between"), name, [_value(low), _value(high)]
        case NullTest(name, flag):
            return ("is not null" if flag else "is null"), name


def _complement(form: Any) -> Any:
    opposite = {"=": "<>", "in": "not in", "between": "not between", "is null": "is not null"}
    opposite |= {value: key for key, value in opposite.items()}
    if form[0] == "Not":
        return form[1]
    return (opposite[form[0]], *form[1:]) if form[0] in opposite else ("Not", form)


def _value(constant: Literal) -> Any:
    text = constant.text
    return constant.kind, Decimal(text) if constant.kind == "number" else text


__all__ = ["NotACountQueryError", "canonical", "pglast", "read"]
