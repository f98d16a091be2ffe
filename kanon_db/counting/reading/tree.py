"""From the expressions of sqlglot's tree to typed ones, accounting for every lexeme.

The tree says what belongs to what. It is walked along the lexemes: each node must find there, in
order, the words that spell it, and what is in it must bind as PostgreSQL binds it or stand in
parentheses. PostgreSQL's grammar being unambiguous, a tree that passes is PostgreSQL's own reading,
however sqlglot came by it.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

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
    flat,
    walk,
)
from kanon_db.counting.reading.constructs import is_name, unexpected
from kanon_db.counting.reading.cursor import Cursor
from kanon_db.counting.reading.lexemes import fold
from kanon_db.counting.refusals import refusal

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
    exp.Is: _IS, exp.NullSafeNEQ: _IS,
    exp.Between: _TEST, exp.In: _TEST, exp.Like: _TEST, exp.ILike: _TEST, exp.Escape: _TEST,
}  # fmt: skip

_DATE_FIELDS: Final = frozenset(
    "year month day quarter week dow isodow doy isoyear decade century millennium"
    " hour minute second epoch".split()
)
_TRUNCATED: Final = frozenset(
    "second minute hour day week month quarter year decade century millennium".split()
)


class ExpressionReader(Cursor):
    """Walks expressions along the lexemes, each method over one construct."""

    def name(self, node: exp.Expr | None) -> str:
        """Read one name, of a relation or a column, or of what is qualified with it."""
        if not isinstance(node, exp.Identifier) or not is_name(self.here):
            raise unexpected(self.here)
        return self.leaf(node, "word", "name").text

    def expression(
        self, node: exp.Expr | None, level: int = _OR, start: int | None = None
    ) -> Expression:
        """Read a node where operators must bind at least as tightly as `level`.

        Parameters
        ----------
        start : int, optional
            Number of the lexeme with which the node begins, parentheses included; by default, the
            next one. Parentheses that open there enclose this node, or another one that begins
            there too: which, is told by where they close.
        """
        if node is None:
            raise unexpected(self.here)
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
        links, first = [node], _unwrapped(node.this)
        while _CHAINS.get(type(first)) == binding:
            links.append(first)
            first = _unwrapped(first.this)
        found = self.expression(first, binding + 1, start)
        parts = [found]
        for link in reversed(links):
            self.closes(start)  # what encloses the part of the chain up to here
            operator = _ARITHMETIC.get(type(link))
            if operator is None:
                self.require_words("and" if binding == _AND else "or")
                parts.append(self.expression(link.expression, binding + 1))
            else:
                self.require(operator)
                found = Arithmetic(operator, found, self.expression(link.expression, binding + 1))
        if binding == _OR:
            return Or(flat(Or, parts))
        if binding == _AND:
            return And(flat(And, parts))
        return found

    def comparison(self, node: exp.Expr, start: int) -> Expression:
        """Read ``=``, ``<>``, ``<``, ``<=``, ``>`` or ``>=`` between two operands."""
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
                low = self.expression(node.args.get("low"), _ADD)
                self.require_words("and")
                return Range(left, low, self.expression(node.args.get("high"), _ADD), negated)
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

    def string(self, node: exp.Expr | None) -> Literal:
        """Read a quoted constant."""
        if not isinstance(node, exp.Literal) or not node.is_string:
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
        """Read what is no operator: a constant, a column, CASE or a call."""
        match node:
            case exp.Literal(is_string=True):
                return self.string(node)
            case exp.Literal():
                return Literal("number", self.leaf(node, "number").text)
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
            case exp.Count() | exp.Sum() | exp.Avg():
                return self.aggregate(node)
        raise unexpected(self.here)

    def column(self, node: exp.Column) -> Name:
        """Read a column with what qualifies it."""
        parts: list[str] = []
        for part in ("db", "table", "this"):
            if node.args.get(part) is not None:
                if parts:
                    self.require(".")
                parts.append(self.name(node.args[part]))
        return Name(tuple(parts))

    def typed(self, node: exp.Cast) -> Literal:
        """Read ``DATE '…'``, ``'…'::date`` or ``CAST('…' AS date)``."""
        to = node.args.get("to")
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
        """Read either form of CASE."""
        self.require_words("case")
        subject = None if node.this is None else self.expression(node.this)
        branches: list[tuple[Expression, Expression]] = []
        for branch in node.args.get("ifs") or ():
            self.require_words("when")
            when = self.expression(branch.this)
            self.require_words("then")
            branches.append(
                (
                    when if subject is None else Comparison("=", subject, when),
                    self.expression(branch.args.get("true")),
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
        """Read the name of a part of dates."""
        lexeme = self.leaf(node, *kinds)
        field = fold(lexeme.text)
        if field not in allowed:
            raise refusal(
                "this part of a date is not supported",
                lexeme.position,
                f"the parts are {', '.join(sorted(allowed))}",
            )
        return field

    def aggregate(self, node: exp.Count | exp.Sum | exp.Avg) -> Aggregate:
        """Read ``COUNT(*)``, or COUNT, SUM or AVG of an expression."""
        function = _AGGREGATES[type(node)]
        self.require_words(function)
        self.require("(")
        operand = None
        if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
            self.require("*")
        else:
            operand = self.expression(node.this)
            if any(isinstance(part, Aggregate) for part in walk(operand)):
                raise refusal("an aggregate stands inside another", self.here.position)
        self.require(")")
        return Aggregate(function, operand)


def _unwrapped(node: exp.Expr) -> exp.Expr:
    # sqlglot also wraps what had no parentheses: where they are is read from the lexemes.
    while isinstance(node, exp.Paren):
        node = node.this
    return node
