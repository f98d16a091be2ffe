"""From sqlglot's tree to the typed structure, accounting for every lexeme of the query.

The tree says what belongs to what. An allow-list holds its node types *and* the arguments of each,
so that whatever a later release of sqlglot adds to a node is refused until it is allowed. Then the
tree is walked along the lexemes: each node must find there, in order, the words that spell it, and
what is in it must bind as PostgreSQL binds it or stand in parentheses. PostgreSQL's grammar being
unambiguous, a tree that passes is PostgreSQL's own reading, however sqlglot came by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from sqlglot import exp

from kanon_db.counting.constructs import is_bare_alias, is_name, unexpected
from kanon_db.counting.expressions import (
    Aggregate,
    AggregateFunction,
    And,
    Arithmetic,
    ArithmeticOperator,
    Case,
    Comparison,
    ComparisonOperator,
    DatePart,
    Distinct,
    Expression,
    Literal,
    LiteralKind,
    Membership,
    Name,
    Negative,
    Not,
    NullTest,
    Or,
    Pattern,
    Range,
    Truth,
    TruthTest,
    walk,
)
from kanon_db.counting.lexemes import Lexeme, fold
from kanon_db.counting.query import ItemText, LookupText, OrderText, QueryText, RelationText
from kanon_db.counting.refusals import refusal

MAX_ROWS: Final = 10**9
"""That LIMIT and OFFSET may name."""

# PostgreSQL's precedence, ascending.
_OR, _AND, _NOT, _IS, _COMPARE, _TEST, _ADD, _MULTIPLY, _SIGN, _OPERAND = range(1, 11)

_COMPARISONS: Final[dict[type[exp.Expr], ComparisonOperator]] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_ARITHMETIC: Final[dict[type[exp.Expr], ArithmeticOperator]] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
}  # fmt: skip
_AGGREGATES: Final[dict[type[exp.Expr], AggregateFunction]] = {
    exp.Count: "count", exp.Sum: "sum", exp.Avg: "avg",
}  # fmt: skip
_TYPES: Final[dict[exp.DType, LiteralKind]] = {
    exp.DType.DATE: "date", exp.DType.TIMESTAMP: "timestamp",
}  # fmt: skip
_CHAINS: Final[dict[type[exp.Expr], int]] = {
    exp.Or: _OR, exp.And: _AND, exp.Add: _ADD, exp.Sub: _ADD,
    exp.Mul: _MULTIPLY, exp.Div: _MULTIPLY, exp.Mod: _MULTIPLY,
}  # fmt: skip
_TESTS: Final[dict[type[exp.Expr], int]] = {
    exp.Is: _IS, exp.NullSafeEQ: _IS, exp.NullSafeNEQ: _IS,
    exp.Between: _TEST, exp.In: _TEST, exp.Like: _TEST, exp.ILike: _TEST, exp.Escape: _TEST,
}  # fmt: skip

_BINARY: Final = frozenset({"this", "expression"})
_ALLOWED: Final[dict[type[exp.Expr], frozenset[str]]] = {
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
    **dict.fromkeys((*_COMPARISONS, *_ARITHMETIC, exp.And, exp.Or), _BINARY),
    exp.Div: _BINARY | {"typed", "safe"},
    **dict.fromkeys((exp.Is, exp.NullSafeNEQ, exp.Like, exp.ILike, exp.Escape), _BINARY),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.In: frozenset({"this", "expressions"}),
    **dict.fromkeys((exp.Not, exp.Neg, exp.Paren, exp.Sum, exp.Avg), frozenset({"this"})),
    exp.Count: frozenset({"this", "big_int"}),
    exp.Star: frozenset(),
    exp.Extract: _BINARY,
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
"""The nodes of a count query, with the arguments that each may have."""

_REASONS: Final[dict[tuple[type[exp.Expr], str], str]] = {
    (exp.Subquery, ""): "subqueries are not supported",
    (exp.Tuple, ""): "comparisons of rows are not supported",
    (exp.Dot, ""): "a name has too many qualifiers",
    (exp.Table, "catalog"): "a relation of another database is not supported",
    (exp.Column, "catalog"): "a column has too many qualifiers",
}
"""Why a node, or an argument of it, is refused, where more can be said than that it is."""

_DATE_FIELDS: Final = frozenset(
    "year month day quarter week dow isodow doy isoyear decade century millennium"
    " hour minute second epoch".split()
)
_TRUNCATED: Final = frozenset(
    "second minute hour day week month quarter year decade century millennium".split()
)

Item = TypeVar("Item")


def read_tree(tree: exp.Expr | None, lexemes: Sequence[Lexeme], published_schema: str) -> QueryText:
    """Read a parsed query.

    Parameters
    ----------
    tree : sqlglot's Expr or None
        Of the query, each name and constant replaced by the number of its lexeme.
    lexemes : sequence of Lexeme
        Of the query; their parentheses are balanced.
    published_schema : str
        The only schema that the publication may be qualified with.

    Returns
    -------
    QueryText

    Raises
    ------
    UnsupportedQueryError
        When the tree holds what is not on the allow-list, does not account for every lexeme, or
        groups operators otherwise than PostgreSQL.
    """
    _refuse_unlisted(tree)
    if not isinstance(tree, exp.Select):
        raise unexpected(lexemes[0])
    return _Reader(lexemes).query(tree, published_schema)


def _refuse_unlisted(tree: exp.Expr | None) -> None:
    for node in () if tree is None else tree.walk():
        kind = type(node)
        if kind not in _ALLOWED:
            raise refusal(_REASONS.get((kind, ""), f"{_describe(node)} is not supported"))
        for name in _filled(node) - _ALLOWED[kind]:
            raise refusal(_REASONS.get((kind, name), "the query is not a SELECT that can be read"))


def _filled(node: exp.Expr) -> set[str]:
    """Return the names of the arguments that say something."""
    return {name for name, value in node.args.items() if value not in (None, False, [])}


def _describe(node: exp.Expr) -> str:
    """Name a construct in words of ours."""
    if isinstance(node, exp.Func):
        return "a function call"
    return f"a construct of another kind ({type(node).__name__})"


def _unwrapped(node: exp.Expr) -> exp.Expr:
    # sqlglot also wraps what had no parentheses: where they are is read from the lexemes.
    while isinstance(node, exp.Paren):
        node = node.this
    return node


class _Reader:
    """Walks a tree along the lexemes, each method over one construct."""

    def __init__(self, lexemes: Sequence[Lexeme]) -> None:
        self._lexemes = lexemes
        self._at = 0
        self._openings: dict[int, int] = {}  # of each closing parenthesis, the opening one
        opened = []
        for number, lexeme in enumerate(lexemes):
            if lexeme.is_symbol("("):
                opened.append(number)
            elif lexeme.is_symbol(")"):
                self._openings[number] = opened.pop()

    # -- lexemes ------------------------------------------------------------------------------

    @property
    def here(self) -> Lexeme:
        return self.ahead(0)

    def ahead(self, offset: int) -> Lexeme:
        """Return the lexeme so far ahead, past the end one of the kind ``end``."""
        index = self._at + offset
        if index < len(self._lexemes):
            return self._lexemes[index]
        return Lexeme("end", "", self._lexemes[-1].position + 1)

    def step(self) -> Lexeme:
        lexeme = self.here
        self._at += 1
        return lexeme

    def takes(self, symbol: str) -> bool:
        """Pass over a symbol, if it comes next."""
        if self.here.is_symbol(symbol):
            self._at += 1
            return True
        return False

    def takes_words(self, *words: str) -> bool:
        """Pass over these words, if they come next."""
        if all(self.ahead(i).is_word(word) for i, word in enumerate(words)):
            self._at += len(words)
            return True
        return False

    def require(self, symbol: str) -> None:
        if not self.takes(symbol):
            raise unexpected(self.here)

    def require_words(self, *words: str) -> None:
        if not self.takes_words(*words):
            raise unexpected(self.here)

    def leaf(self, node: exp.Expr | None, *kinds: str) -> Lexeme:
        """Return the lexeme that a name or a constant of the tree stands for: the next one."""
        if node is None or self.here.kind not in kinds or node.name != str(self._at):
            raise unexpected(self.here)
        return self.step()

    def listed(
        self, nodes: Sequence[exp.Expr] | None, read: Callable[[exp.Expr], Item]
    ) -> tuple[Item, ...]:
        """Read one or more, separated by commas."""
        if not nodes:
            raise unexpected(self.here)
        found: list[Item] = []
        for node in nodes:
            if found:
                self.require(",")
            found.append(read(node))
        return tuple(found)

    def within(self, start: int) -> int:
        """Return the number of the first lexeme inside the parentheses that open at `start`."""
        while start < len(self._lexemes) and self._lexemes[start].is_symbol("("):
            start += 1
        return start

    def closes(self, start: int) -> bool:
        """Pass over the parentheses that close here and opened at `start`, if any."""
        inside = self.within(start)
        closed = False
        while self.here.is_symbol(")") and start <= self._openings[self._at] < inside:
            self._at += 1
            closed = True
        return closed

    # -- clauses ------------------------------------------------------------------------------

    def query(self, select: exp.Select, published_schema: str) -> QueryText:
        clauses = select.args
        self.require_words("select")
        items = self.listed(select.expressions, self.item)
        if clauses.get("from_") is None:
            raise refusal("a query without FROM is not supported")
        self.require_words("from")
        publication = self.relation(clauses["from_"].this)
        if publication.schema not in (None, published_schema):
            raise refusal(
                "only published relations can be counted",
                hint="name the publication by its name alone, or with the schema"
                f" {published_schema}",
            )
        if publication.schema is None:
            publication = RelationText(published_schema, publication.name, publication.alias)
        lookups = tuple(map(self.lookup, clauses.get("joins") or ()))
        where = having = None
        group: tuple[Expression, ...] = ()
        order: tuple[OrderText, ...] = ()
        limit, offset = None, 0
        if clauses.get("where"):
            self.require_words("where")
            where = self.expression(clauses["where"].this)
        if clauses.get("group"):
            self.require_words("group", "by")
            group = self.listed(clauses["group"].expressions, self.expression)
        if clauses.get("having"):
            self.require_words("having")
            having = self.expression(clauses["having"].this)
        if clauses.get("order"):
            self.require_words("order", "by")
            order = self.listed(clauses["order"].expressions, self.order)
        if clauses.get("limit"):
            self.require_words("limit")
            limit = self.row_count(clauses["limit"].expression)
        if clauses.get("offset"):
            self.require_words("offset")
            offset = self.row_count(clauses["offset"].expression)
        if self.here.kind != "end":
            raise unexpected(self.here)
        return QueryText(items, publication, lookups, where, group, having, order, limit, offset)

    def item(self, node: exp.Expr) -> ItemText:
        if not isinstance(node, exp.Alias):
            return ItemText(self.expression(node))
        expression = self.expression(node.this)
        if not self.takes_words("as") and not is_bare_alias(self.here):
            raise unexpected(self.here)
        return ItemText(expression, self.name(node.args["alias"]))

    def relation(self, node: exp.Expr) -> RelationText:
        if not isinstance(node, exp.Table):
            raise unexpected(self.here)
        schema = self.name(node.args["db"]) if node.args.get("db") else None
        if schema is not None:
            self.require(".")
        name = self.name(node.this)
        alias = node.args.get("alias")
        if alias is None:
            return RelationText(schema, name)
        self.takes_words("as")
        return RelationText(schema, name, self.name(alias.this))

    def lookup(self, node: exp.Join) -> LookupText:
        if self.here.is_symbol(","):
            raise refusal(
                "several relations in FROM are not supported",
                self.here.position,
                "join a lookup table by JOIN … ON …",
            )
        side, kind = str(node.args.get("side") or ""), str(node.args.get("kind") or "")
        is_outer = side == "LEFT"
        self.require_words(*side.lower().split(), *kind.lower().split(), "join")
        at = self.here.position
        relation = self.relation(node.this)
        if relation.schema is None:
            raise refusal(
                "a lookup table is named without its schema",
                at,
                "write it like public.regions: no search path is used",
            )
        if node.args.get("using"):
            return self.merging(relation, node.args["using"], is_outer=is_outer)
        self.require_words("on")
        if node.args.get("on") is not None:
            match self.expression(node.args["on"]):
                case Comparison("=", Name() as left, Name() as right):
                    return LookupText(relation, left, right, is_outer)
        raise refusal(
            "a join on anything but the equality of two columns is not supported",
            at,
            "write JOIN <lookup table> ON <publication column> = <lookup column>",
        )

    def merging(
        self, relation: RelationText, columns: Sequence[exp.Expr], *, is_outer: bool
    ) -> LookupText:
        """Read what follows USING."""
        self.require_words("using")
        self.require("(")
        if len(columns) > 1:
            raise refusal("a join on several columns is not supported", self.here.position)
        column = Name((self.name(columns[0]),))
        self.require(")")
        return LookupText(relation, column, column, is_outer, is_using=True)

    def order(self, node: exp.Expr) -> OrderText:
        if not isinstance(node, exp.Ordered):
            raise unexpected(self.here)
        expression = self.expression(node.this)
        is_descending = bool(node.args.get("desc"))
        if is_descending:
            self.require_words("desc")
        else:
            self.takes_words("asc")
        if self.takes_words("nulls", "first"):
            return OrderText(expression, is_descending, nulls_first=True)
        if self.takes_words("nulls", "last"):
            return OrderText(expression, is_descending, nulls_first=False)
        return OrderText(expression, is_descending, nulls_first=is_descending)

    def row_count(self, node: exp.Expr) -> int:
        lexeme = self.leaf(node, "number")
        if not lexeme.text.isdecimal() or len(lexeme.text) > 10:
            raise refusal("LIMIT and OFFSET take a whole number", lexeme.position)
        if int(lexeme.text) > MAX_ROWS:
            raise refusal(f"LIMIT and OFFSET go up to {MAX_ROWS}", lexeme.position)
        return int(lexeme.text)

    def name(self, node: exp.Expr) -> str:
        if not isinstance(node, exp.Identifier) or not is_name(self.here):
            raise unexpected(self.here)
        return self.leaf(node, "word", "name").text

    # -- expressions --------------------------------------------------------------------------

    def expression(self, node: exp.Expr, level: int = _OR, start: int | None = None) -> Expression:
        """Read a node where operators must bind at least as tightly as `level`.

        Parameters
        ----------
        start : int, optional
            Number of the lexeme with which the node begins, parentheses included; by default, the
            next one. Parentheses that open there enclose this node, or another one that begins
            there too: which, is told by where they close.
        """
        node = _unwrapped(node)
        start = self._at if start is None else start
        found, binding = self.unclosed(node, start)
        if not self.closes(start) and binding < level:
            raise refusal(
                "comparisons cannot be chained"
                if level == _TEST and binding in (_IS, _COMPARE)
                else "parentheses are needed",
                self.here.position,
                "join conditions by AND, OR and NOT, with parentheses",
            )
        return found

    def unclosed(self, node: exp.Expr, start: int) -> tuple[Expression, int]:
        """Read a node up to the parentheses that close after it; and tell how tightly it binds."""
        kind = type(node)
        if kind in _CHAINS:
            return self.chain(node, start), _CHAINS[kind]
        if kind in _COMPARISONS:
            return self.comparison(node, start), _COMPARE
        if kind in _TESTS:
            return self.test(node, start), _TESTS[kind]
        self._at = self.within(start)
        if isinstance(node, exp.Not):
            self.require_words("not")
            return Not(self.expression(node.this, _NOT)), _NOT
        if self.here.is_symbol("+", "-"):
            return self.signed(node), _SIGN
        return self.operand(node), _OPERAND

    def chain(self, node: exp.Expr, start: int) -> Expression:
        """Read operators that bind alike, without recursing along them; AND and OR flat."""
        binding = _CHAINS[type(node)]
        chained, first = [node], _unwrapped(node.this)
        while _CHAINS.get(type(first)) == binding:
            chained.append(first)
            first = _unwrapped(first.this)
        found = self.expression(first, binding + 1, start)
        parts = [found]
        for link in reversed(chained):
            if len(parts) > 1 or link is not chained[-1]:
                self.closes(start)
            operator = _ARITHMETIC.get(type(link))
            if operator is None:
                self.require_words("and" if binding == _AND else "or")
            else:
                self.require(operator)
            parts.append(self.expression(link.expression, binding + 1))
            if operator is not None:
                found = Arithmetic(operator, found, parts[-1])
        if binding in (_ADD, _MULTIPLY):
            return found
        joined = And if binding == _AND else Or
        return joined(
            tuple(
                inner
                for part in parts
                for inner in (part.parts if isinstance(part, joined) else (part,))
            )
        )

    def comparison(self, node: exp.Expr, start: int) -> Expression:
        left = self.expression(node.this, _COMPARE + 1, start)
        operator = _COMPARISONS[type(node)]
        if not (operator == "<>" and self.takes("!=")):
            self.require(operator)
        return Comparison(operator, left, self.expression(node.expression, _COMPARE + 1))

    def test(self, node: exp.Expr, start: int) -> Expression:
        """Read a test of one operand: IS …, [NOT] BETWEEN, IN, LIKE or ILIKE."""
        binding = _TESTS[type(node)]
        escape = None
        if isinstance(node, exp.Escape):
            node, escape = node.this, node.expression
            if not isinstance(node, exp.Like | exp.ILike):
                raise unexpected(self.here)
        left = self.expression(node.this, binding + 1, start)
        if binding == _IS:
            return self.tested(node, left)
        negated = self.takes_words("not")
        match node:
            case exp.Between():
                self.require_words("between")
                low = self.expression(node.args["low"], _ADD)
                self.require_words("and")
                return Range(left, low, self.expression(node.args["high"], _ADD), negated)
            case exp.In():
                self.require_words("in")
                self.require("(")
                items = self.listed(node.expressions, self.expression)
                self.require(")")
                if len(items) == 1:
                    return Comparison("<>" if negated else "=", left, items[0])
                return Membership(left, items, negated)
        is_case_sensitive = isinstance(node, exp.Like)
        self.require_words("like" if is_case_sensitive else "ilike")
        pattern = self.string(node.expression)
        if escape is None:
            return Pattern(left, pattern, None, is_case_sensitive, negated)
        self.require_words("escape")
        character = self.string(escape)
        if len(character.text) > 1:
            raise refusal("ESCAPE takes one character or none", self.here.position)
        return Pattern(left, pattern, character, is_case_sensitive, negated)

    def tested(self, node: exp.Expr, left: Expression) -> Expression:
        """Read what follows the operand of IS."""
        self.require_words("is")
        negated = self.takes_words("not")
        if isinstance(node, exp.NullSafeNEQ):
            self.require_words("distinct", "from")
            right = self.expression(node.expression, _COMPARE)
            if right == Literal("null", ""):
                return NullTest(left, not negated)
            return Distinct(left, right, negated)
        match node.expression:
            case exp.Null():
                if self.takes_words("unknown"):
                    return TruthTest(left, "unknown", negated)
                self.require_words("null")
                return NullTest(left, negated)
            case exp.Boolean(this=value):
                truth: Truth = "true" if value else "false"
                self.require_words(truth)
                return TruthTest(left, truth, negated)
        raise unexpected(self.here)

    def string(self, node: exp.Expr) -> Literal:
        if not isinstance(node, exp.Literal):
            raise unexpected(self.here)
        return Literal("string", self.leaf(node, "string").text)

    def signed(self, node: exp.Expr) -> Expression:
        """Read an operand with a sign."""
        sign = self.step()
        if sign.text == "+":  # which the tree leaves out
            number = self.expression(node, _SIGN)
            if isinstance(number, Literal) and number.kind == "number":
                return number
            raise refusal("a plus sign stands before something else than a number", sign.position)
        if not isinstance(node, exp.Neg):
            raise unexpected(sign)
        match self.expression(node.this, _SIGN):
            case Literal("number", text):
                return Literal("number", text[1:] if text[0] == "-" else f"-{text}")
            case operand:
                return Negative(operand)

    def operand(self, node: exp.Expr) -> Expression:
        match node:
            case exp.Literal() if self.here.kind == "number":
                return Literal("number", self.leaf(node, "number").text)
            case exp.Literal():
                return self.string(node)
            case exp.Boolean(this=value):
                self.require_words("true" if value else "false")
                return Literal("boolean", "true" if value else "false")
            case exp.Null():
                self.require_words("null")
                return Literal("null", "")
            case exp.Column():
                return self.column(node)
            case exp.Cast():
                return self.typed(node)
            case exp.Case():
                return self.case(node)
            case exp.Extract() | exp.TimestampTrunc():
                return self.date_part(node)
            case _ if type(node) in _AGGREGATES:
                return self.aggregate(node)
        raise unexpected(self.here)

    def column(self, node: exp.Column) -> Name:
        parts: list[str] = []
        for part in ("db", "table", "this"):
            if node.args.get(part) is not None:
                if parts:
                    self.require(".")
                parts.append(self.name(node.args[part]))
        return Name(tuple(parts))

    def typed(self, node: exp.Cast) -> Literal:
        """Read ``DATE '…'``, ``'…'::date`` or ``CAST('…' AS date)``."""
        to = node.args["to"]
        if not isinstance(to, exp.DataType) or to.this not in _TYPES:
            raise unexpected(self.here)
        kind = _TYPES[to.this]
        if self.takes_words(kind):
            return Literal(kind, self.string(node.this).text)
        if self.takes_words("cast"):
            self.require("(")
            text = self.string(node.this).text
            self.require_words("as", kind)
            self.require(")")
            return Literal(kind, text)
        text = self.string(node.this).text
        self.require("::")
        self.require_words(kind)
        return Literal(kind, text)

    def case(self, node: exp.Case) -> Case:
        self.require_words("case")
        subject = None if node.this is None else self.expression(node.this)
        branches: list[tuple[Expression, Expression]] = []
        for branch in node.args["ifs"]:
            self.require_words("when")
            when = self.expression(branch.this)
            self.require_words("then")
            branches.append(
                (
                    when if subject is None else Comparison("=", subject, when),
                    self.expression(branch.args["true"]),
                )
            )
        default = None
        if node.args.get("default") is not None:
            self.require_words("else")
            default = self.expression(node.args["default"])
        self.require_words("end")
        return Case(tuple(branches), default)

    def date_part(self, node: exp.Extract | exp.TimestampTrunc) -> DatePart:
        """Read EXTRACT, date_part or date_trunc."""
        if isinstance(node, exp.TimestampTrunc):
            self.require_words("date_trunc")
            self.require("(")
            field = self.field(node.args.get("unit"), _TRUNCATED, "string")
            self.require(",")
            found = DatePart("date_trunc", field, self.expression(node.this))
        elif self.takes_words("extract"):
            self.require("(")
            field = self.field(node.this, _DATE_FIELDS, "word", "name", "string")
            self.require_words("from")
            found = DatePart("extract", field, self.expression(node.expression))
        else:
            self.require_words("date_part")
            self.require("(")
            field = self.field(node.this, _DATE_FIELDS, "string")
            self.require(",")
            found = DatePart("date_part", field, self.expression(node.expression))
        self.require(")")
        return found

    def field(self, node: exp.Expr | None, allowed: frozenset[str], *kinds: str) -> str:
        lexeme = self.leaf(node, *kinds)
        field = fold(lexeme.text)
        if field not in allowed:
            raise refusal(
                "this part of a date is not supported",
                lexeme.position,
                f"the parts are {', '.join(sorted(allowed))}",
            )
        return field

    def aggregate(self, node: exp.Expr) -> Aggregate:
        function = _AGGREGATES[type(node)]
        self.require_words(function)
        self.require("(")
        operand = None
        if isinstance(node.this, exp.Star) and function == "count":
            self.require("*")
        elif node.this is None:
            raise unexpected(self.here)
        else:
            operand = self.expression(node.this)
            if any(isinstance(part, Aggregate) for part in walk(operand)):
                raise refusal("an aggregate stands inside another", self.here.position)
        self.require(")")
        return Aggregate(function, operand)
