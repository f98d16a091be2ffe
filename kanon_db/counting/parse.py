"""Reading a count query: from text to a typed structure, or a refusal with its reason.

sqlglot parses; what it made is then walked with an allow-list of node types *and* of the arguments
of each, so that whatever a later release of sqlglot adds to a node is refused until it is allowed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeVar

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from kanon_db.counting.constructs import KEYWORDS, refuse_constructs
from kanon_db.counting.lexemes import MAX_NAME_BYTES, Lexeme, fold, scan
from kanon_db.counting.predicate import (
    And,
    Comparison,
    Literal,
    LiteralKind,
    Membership,
    Not,
    NullTest,
    Operator,
    Or,
    Predicate,
    Range,
)
from kanon_db.counting.refusals import refusal

MAX_NESTING: Final = 40
"""Parentheses inside each other; parsing and rewriting recurse with them."""

_OPERATORS: Final[dict[type[exp.Expr], Operator]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}

_FLIPPED: Final[dict[Operator, Operator]] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}

_TYPES: Final[dict[exp.DType, LiteralKind]] = {
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
}

_NOT_ALWAYS_NAMES: Final = frozenset({"cast", "count", "date", "timestamp"})
"""Words that are names in some places only."""

Node = TypeVar("Node", bound=exp.Expr)


@dataclass(frozen=True, slots=True)
class CountText:
    """What a count query says, before anything is known of the publication.

    Attributes
    ----------
    schema : str or None
        As written; None when the relation stands alone.
    relation : str
        The publication's name.
    predicate : Predicate or None
        The WHERE clause; None without one.
    """

    schema: str | None
    relation: str
    predicate: Predicate | None


def parse_count(query: str, published_schema: str = "published") -> CountText:
    """Read ``SELECT COUNT(*) FROM [published.]name [[AS] alias] [WHERE …] [;]``.

    Parameters
    ----------
    query : str
        SQL as the analyst wrote it.
    published_schema : str
        The only schema that the relation may be qualified with.

    Returns
    -------
    CountText

    Raises
    ------
    UnsupportedQueryError
        For everything else: its message names the construct, and neither message nor detail
        repeats a name or a value of the query.

    Notes
    -----
    What sqlglot's dialect reads otherwise than PostgreSQL is refused before (`lexemes`,
    `constructs`) or after parsing: quoting and escapes that differ, chained comparisons, and names
    that PostgreSQL would cut off. Unquoted names fold to lower case in ASCII only. IN with one
    constant is a comparison, which matters for types. The tests compare what is accepted with the
    server's own grammar.

    Examples
    --------
    >>> parse_count("SELECT COUNT(*) FROM census_b WHERE age >= 18").predicate
    Comparison(column='age', operator='>=', literal=Literal(kind='number', text='18'))
    """
    lexemes = scan(query)
    refuse_constructs(lexemes)
    _refuse_deep_nesting(lexemes)
    try:
        statements = sqlglot.parse(query, dialect="postgres")
        parsed = _read(statements, published_schema)
    except (SqlglotError, RecursionError):
        raise refusal("the query is not a SELECT that can be read") from None
    _refuse_lost_text(lexemes, statements)
    return parsed


def _refuse_deep_nesting(lexemes: Sequence[Lexeme]) -> None:
    depth = 0
    for lexeme in lexemes:
        depth += lexeme.is_symbol("(") - lexeme.is_symbol(")")
        if depth > MAX_NESTING:
            raise refusal(f"more than {MAX_NESTING} parentheses inside each other", lexeme.position)


def _refuse_lost_text(lexemes: Sequence[Lexeme], statements: Sequence[exp.Expr | None]) -> None:
    """Refuse a query of which some piece is not in the tree, or stands there as something else.

    sqlglot passes over pieces that it does not expect, where PostgreSQL finds a syntax error.
    """
    nodes = [node for statement in statements if statement for node in statement.walk()]
    tables_and_columns = [node for node in nodes if isinstance(node, exp.Table | exp.Column)]
    identifiers = [node for node in nodes if isinstance(node, exp.Identifier)]
    unquoted = {fold(node.name) for node in identifiers if not node.args.get("quoted")}

    def count(*kinds: type[exp.Expr]) -> int:
        return sum(isinstance(node, kinds) for node in nodes)

    def words(text: str) -> int:
        return sum(lexeme.is_word(text) for lexeme in lexemes)

    def symbols(text: str) -> int:
        return sum(lexeme.is_symbol(text) for lexeme in lexemes)

    def texts(*kinds: str) -> Counter[str]:
        return Counter(lexeme.text for lexeme in lexemes if lexeme.kind in kinds)

    names = Counter(
        node.name if node.args.get("quoted") else fold(node.name) for node in identifiers
    )
    literals = [node for node in nodes if isinstance(node, exp.Literal)]
    strings = Counter(node.name for node in literals if node.is_string)
    for word in (*KEYWORDS, *_NOT_ALWAYS_NAMES):
        names.pop(word, None)
    written = texts("name", "word")
    for word in (*KEYWORDS, *_NOT_ALWAYS_NAMES):
        written.pop(word, None)
    kept = (
        names == written
        and not unquoted & KEYWORDS
        and strings == texts("string")
        and len(literals) - strings.total() == texts("number").total()
        and symbols("(") == symbols(")")
        and symbols(",") == sum(len(node.expressions) - 1 for node in nodes if type(node) is exp.In)
        and symbols(".") == sum(len(node.parts) - 1 for node in tables_and_columns)
        and words("select") == words("from") == 1
        and words("as") <= count(exp.Alias, exp.TableAlias, exp.Cast)
        and not lexemes[-1].is_word("as")
        and words("and") == count(exp.And, exp.Between)
        and words("or") == count(exp.Or)
        and words("is") == count(exp.Is)
        and not any(
            lexeme.is_word("not") and after.is_word("is") for lexeme, after in pairwise(lexemes)
        )
    )
    if not kept:
        raise refusal("the query is not a SELECT that can be read")


def _read(statements: Sequence[exp.Expr | None], published_schema: str) -> CountText:
    if len(statements) != 1:
        raise refusal("several statements are not supported")
    if statements[0] is not None and statements[0].args.get("joins"):
        raise refusal("several relations in FROM are not supported")
    select = _expect(
        statements[0], exp.Select, "anything but a SELECT", "expressions", "from_", "where"
    )
    _read_select_list(select.expressions)
    table = _expect(
        _expect(select.args.get("from_"), exp.From, "a query without FROM", "this").this,
        exp.Table,
        "anything but one relation's name in FROM",
        "this",
        "db",
        "alias",
    )
    name = _name(table.this)
    schema = None if table.args.get("db") is None else _name(table.args["db"])
    if schema not in (None, published_schema):
        raise refusal(
            "only published relations can be counted",
            hint=f"name the publication by its name alone, or with the schema {published_schema}",
        )
    qualifiers: tuple[tuple[str, ...], ...] = ((name,), (published_schema, name))
    if table.args.get("alias") is not None:
        alias = _expect(table.args["alias"], exp.TableAlias, "a list of column aliases", "this")
        qualifiers = ((_name(alias.this),),)
    predicate = None
    if select.args.get("where") is not None:
        where = _expect(select.args["where"], exp.Where, "this WHERE clause", "this")
        predicate = _Conditions(qualifiers).read(where.this)
    return CountText(schema, name, predicate)


def _read_select_list(expressions: Sequence[exp.Expr]) -> None:
    if len(expressions) == 1:
        (counted,) = expressions
        if isinstance(counted, exp.Alias):
            _name(_expect(counted, exp.Alias, "this alias", "this", "alias").args["alias"])
            counted = counted.this
        if isinstance(counted, exp.Count):
            star = _expect(counted, exp.Count, "this COUNT", "this", "big_int").this
            if isinstance(star, exp.Star) and not _filled(star):
                return
    raise refusal("the select list is not one COUNT(*)")


class _Conditions:
    """Reads the WHERE clause; columns may be qualified with the given names."""

    def __init__(self, qualifiers: Sequence[tuple[str, ...]]) -> None:
        self._qualifiers = qualifiers

    def read(self, node: exp.Expr) -> Predicate:
        """Read a condition of any form."""
        node = _unwrapped(node)
        match node:
            case exp.And() | exp.Or():
                kind = And if isinstance(node, exp.And) else Or
                return kind(tuple(self._operands(node, type(node))))
            case exp.Not():
                return self._negated(_expect(node, exp.Not, "this NOT", "this").this)
            case exp.In() | exp.Between() | exp.Is():
                return self._test(node, negated=False)
            case _ if type(node) in _OPERATORS:
                return self._comparison(_expect(node, type(node), "this comparison",
                                                "this", "expression"))  # fmt: skip
            case exp.Column():
                raise refusal(
                    "a column stands where a condition is needed",
                    hint="compare it with a constant: flag = TRUE",
                )
            case exp.Literal() | exp.Boolean() | exp.Null():
                raise refusal("a constant stands where a condition is needed")
        raise refusal(f"{_describe(node)} is not supported in a condition")

    def _operands(self, node: exp.Expr, chain: type[exp.Expr]) -> list[Predicate]:
        """Read the operands of a chain of ANDs or ORs, flat and without recursing along it."""
        operands, pending = [], [node]
        while pending:
            inner = _unwrapped(pending.pop())
            if type(inner) is chain:
                _expect(inner, chain, "this condition", "this", "expression")
                pending += [inner.args["expression"], inner.this]
            else:
                operands.append(self.read(inner))
        return operands

    def _negated(self, node: exp.Expr) -> Predicate:
        # sqlglot reads both `NOT x IN (…)` and `x NOT IN (…)` as Not(In): they mean the same.
        if isinstance(node, exp.In | exp.Between):
            return self._test(node, negated=True)
        return Not(self.read(node))

    def _test(self, node: exp.Expr, *, negated: bool) -> Predicate:
        if isinstance(node, exp.In):
            listed = _expect(node, exp.In, "IN with a subquery", "this", "expressions")
            column, literals = self._column(listed.this), tuple(map(_literal, listed.expressions))
            if not literals:
                raise refusal("IN needs a list of constants")
            if len(literals) == 1:
                return Comparison(column, "<>" if negated else "=", literals[0])
            return Membership(column, literals, negated)
        if isinstance(node, exp.Between):
            between = _expect(node, exp.Between, "BETWEEN SYMMETRIC", "this", "low", "high")
            low, high = _literal(between.args["low"]), _literal(between.args["high"])
            return Range(self._column(between.this), low, high, negated)
        test = _expect(node, exp.Is, "this test", "this", "expression", "negate")
        if not isinstance(test.expression, exp.Null):
            raise refusal(
                "IS is supported with NULL only", hint="write flag = TRUE instead of IS TRUE"
            )
        return NullTest(self._column(test.this), bool(test.args.get("negate")))

    def _comparison(self, node: exp.Expr) -> Predicate:
        left, right = _unwrapped(node.this), _unwrapped(node.args["expression"])
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            raise refusal(
                "a comparison of two columns is not supported",
                hint="compare each with a constant; strings go into single quotes, not double",
            )
        operator = _OPERATORS[type(node)]
        if isinstance(left, exp.Column):
            return Comparison(self._column(left), operator, _literal(right))
        if isinstance(right, exp.Column):
            return Comparison(self._column(right), _FLIPPED[operator], _literal(left))
        if type(left) in _OPERATORS or type(right) in _OPERATORS:
            raise refusal(
                "comparisons cannot be chained", hint="join conditions by AND, OR and NOT"
            )
        if isinstance(left, exp.Literal) and isinstance(right, exp.Literal):
            raise refusal("a comparison of two constants is not supported")
        raise refusal(f"a comparison with {_describe(left)} is not supported")

    def _column(self, node: exp.Expr) -> str:
        node = _unwrapped(node)
        if not isinstance(node, exp.Column):
            raise refusal(f"{_describe(node)} stands where a column is needed")
        column = _expect(node, exp.Column, "this column", "this", "table", "db")
        qualifier = tuple(
            _name(column.args[part]) for part in ("db", "table") if column.args.get(part)
        )
        if qualifier and qualifier not in self._qualifiers:
            raise refusal(
                "a column is qualified with a name that FROM does not have",
                hint="write the column's name alone",
            )
        return _name(column.this)


def _literal(node: exp.Expr) -> Literal:
    node = _unwrapped(node)
    match node:
        case exp.Literal():
            return Literal("string" if node.is_string else "number", node.name)
        case exp.Boolean():
            return Literal("boolean", "true" if node.this else "false")
        case exp.Neg(this=exp.Literal(is_string=False) as number):
            return Literal("number", f"-{number.name}")
        case exp.Null():
            raise refusal("a comparison with NULL is never true", hint="write IS NULL")
        case exp.Cast(this=exp.Literal(is_string=True) as text, to=exp.DataType() as to):
            _expect(node, exp.Cast, "this cast", "this", "to")
            _expect(to, exp.DataType, "a type with modifiers", "this", "nested")
            if to.this in _TYPES:
                return Literal(_TYPES[to.this], text.name)
            raise refusal("only the types date and timestamp are supported for constants")
        case exp.Column():
            raise refusal(
                "a column stands where a constant is needed",
                hint="put strings into single quotes; double quotes are for names",
            )
    raise refusal(f"{_describe(node)} stands where a constant is needed")


def _unwrapped(node: exp.Expr) -> exp.Expr:
    """Take off parentheses, which the tree's shape makes superfluous."""
    while isinstance(node, exp.Paren):
        node = _expect(node, exp.Paren, "these parentheses", "this").this
    return node


def _name(node: exp.Expr) -> str:
    """Return a name as PostgreSQL reads it."""
    identifier = _expect(node, exp.Identifier, "anything but a plain name", "this", "quoted")
    name = str(identifier.this)
    if not identifier.args.get("quoted"):
        name = fold(name)
    if not name or len(name.encode()) > MAX_NAME_BYTES:
        raise refusal(f"names have 1 to {MAX_NAME_BYTES} bytes")
    return name


def _expect(node: exp.Expr | None, kind: type[Node], otherwise: str, *allowed: str) -> Node:
    """Return the node if it is of exactly this type and has none but the allowed arguments."""
    if type(node) is not kind or _filled(node) - set(allowed):
        raise refusal(f"{otherwise} is not supported")
    return node


def _filled(node: exp.Expr) -> set[str]:
    """Return the names of the arguments that say something."""
    return {name for name, value in node.args.items() if value not in (None, False, [])}


def _describe(node: exp.Expr) -> str:
    """Name a construct in words of ours: text of the query may hold values."""
    if isinstance(node, exp.Func):
        return "a function call"
    if isinstance(node, exp.Query):
        return "a subquery"
    if isinstance(node, exp.Connector | exp.Predicate | exp.Not):
        return "a condition"
    if isinstance(node, exp.Binary | exp.Unary):
        return "arithmetic"
    return f"a construct of another kind ({type(node).__name__})"
