"""From the expressions of sqlglot's tree to typed ones, accounting for every lexeme.

The tree says what belongs to what. It is walked along the lexemes: each node must find there, in
order, the words that spell it, and what is in it must bind as PostgreSQL binds it or stand in
parentheses. PostgreSQL's grammar being unambiguous, a tree that passes is PostgreSQL's own reading,
however sqlglot came by it. `parsed` are sqlglot's nodes, `ex` the typed ones.
"""

from __future__ import annotations

from typing import Final

from kanon_db.counting import expressions as ex
from kanon_db.counting.reading.calls import CallReader
from kanon_db.counting.reading.constructs import is_name, unexpected
from kanon_db.counting.reading.grammar import exp as parsed
from kanon_db.counting.refusals import refusal

# PostgreSQL's precedence, ascending.
_OR, _AND, _NOT, _IS, _COMPARE, _TEST, _ADD, _MULTIPLY, _SIGN, _CAST, _OPERAND = range(1, 12)

_COMPARISONS: Final[dict[type[parsed.Expr], ex.ComparisonOperator]] = {
    parsed.EQ: "=", parsed.NEQ: "<>",
    parsed.LT: "<", parsed.LTE: "<=", parsed.GT: ">", parsed.GTE: ">=",
}  # fmt: skip
_ARITHMETIC: Final[dict[type[parsed.Expr], ex.ArithmeticOperator]] = {
    parsed.Add: "+", parsed.Sub: "-", parsed.Mul: "*", parsed.Div: "/", parsed.Mod: "%",
}  # fmt: skip
_CHAINS: Final[dict[type[parsed.Expr], int]] = {
    parsed.Or: _OR, parsed.And: _AND, parsed.Add: _ADD, parsed.Sub: _ADD,
    parsed.Mul: _MULTIPLY, parsed.Div: _MULTIPLY, parsed.Mod: _MULTIPLY,
}  # fmt: skip
_TESTS: Final[dict[type[parsed.Expr], int]] = {
    parsed.Is: _IS, parsed.NullSafeNEQ: _IS,
    parsed.Between: _TEST, parsed.In: _TEST,
    parsed.Like: _TEST, parsed.ILike: _TEST, parsed.Escape: _TEST,
}  # fmt: skip

MAX_PATTERN: Final = 1_000
"""The most characters of a pattern of LIKE."""

MAX_REPEATED: Final = 4_000
"""The most parts of what CASE compares, times the number of its WHENs."""


class ExpressionReader(CallReader):
    """Walks expressions along the lexemes, each method over one construct."""

    def name(self, node: parsed.Expr | None) -> str:
        """Read one name, of a relation or a column, or of what is qualified with it."""
        if not isinstance(node, parsed.Identifier) or not is_name(self.here):
            raise unexpected(self.here)
        return self.leaf(node, "word", "name").text

    def expression(
        self, node: parsed.Expr | None, level: int = _OR, start: int | None = None
    ) -> ex.Expression:
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
                "combine conditions with AND, OR and NOT, using parentheses",
            )
        return found

    def unclosed(self, node: parsed.Expr, start: int) -> tuple[ex.Expression, int]:
        """Read a node up to the parentheses that close after it; and tell how tightly it binds."""
        kind = type(node)
        if kind in _CHAINS:
            return self.chain(node, start), _CHAINS[kind]
        if kind in _COMPARISONS:
            return self.comparison(node, start), _COMPARE
        if kind in _TESTS:
            return self.test(node, start), _TESTS[kind]
        if isinstance(node, parsed.Cast) and self.is_cast_after(node, start):
            operand = self.expression(node.this, _CAST, start)
            self.require("::")
            return self.cast_to(node, operand), _CAST
        self._at = self.within(start)
        if isinstance(node, parsed.Not):
            self.require("not")
            return ex.Not(self.expression(node.this, _NOT)), _NOT
        if self.here.is_symbol("+", "-"):
            return self.signed(node), _SIGN
        return self.operand(node), _OPERAND

    def chain(self, node: parsed.Expr, start: int) -> ex.Expression:
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
                self.require("and" if binding == _AND else "or")
                parts.append(self.expression(link.expression, binding + 1))
            else:
                self.require(operator)
                right = self.expression(link.expression, binding + 1)
                found = ex.Arithmetic(operator, found, right)
        if binding == _OR:
            return ex.Or(ex.flat(ex.Or, parts))
        if binding == _AND:
            return ex.And(ex.flat(ex.And, parts))
        return found

    def comparison(self, node: parsed.Expr, start: int) -> ex.Expression:
        """Read ``=``, ``<>``, ``<``, ``<=``, ``>`` or ``>=`` between two operands."""
        left = self.expression(node.this, _COMPARE + 1, start)
        operator = _COMPARISONS[type(node)]
        if not (operator == "<>" and self.takes("!=")):
            self.require(operator)
        return ex.Comparison(operator, left, self.expression(node.expression, _COMPARE + 1))

    def test(self, node: parsed.Expr, start: int) -> ex.Expression:
        """Read a test of one operand: IS …, [NOT] BETWEEN, IN, LIKE or ILIKE."""
        binding = _TESTS[type(node)]
        escape = None
        if isinstance(node, parsed.Escape):
            node, escape = node.this, node.expression
            if not isinstance(node, parsed.Like | parsed.ILike):
                raise unexpected(self.here)
        left = self.expression(node.this, binding + 1, start)
        if binding == _IS:
            return self.tested(node, left)
        negated = self.takes("not")
        match node:
            case parsed.Between():
                self.require("between")
                low = self.expression(node.args.get("low"), _ADD)
                self.require("and")
                return ex.Range(left, low, self.expression(node.args.get("high"), _ADD), negated)
            case parsed.In():
                self.require("in", "(")
                items = self.listed(node.expressions, self.expression)
                self.require(")")
                if len(items) == 1:
                    return ex.Comparison("<>" if negated else "=", left, items[0])
                return ex.Membership(left, items, negated)
        is_case_sensitive = isinstance(node, parsed.Like)
        self.require("like" if is_case_sensitive else "ilike")
        position = self.here.position
        pattern = self.string(node.expression)
        if len(pattern.text) > MAX_PATTERN:
            raise refusal(
                f"a pattern of LIKE has more than {MAX_PATTERN:,} characters",
                position,
                "ask for a shorter part of the text",
            )
        if escape is None:
            return ex.Pattern(left, pattern, None, is_case_sensitive, negated)
        self.require("escape")
        character = self.string(escape)
        if len(character.text) > 1:
            raise refusal("ESCAPE needs one character or none", self.here.position)
        return ex.Pattern(left, pattern, character, is_case_sensitive, negated)

    def tested(self, node: parsed.Expr, left: ex.Expression) -> ex.Expression:
        """Read what follows the operand of IS."""
        self.require("is")
        negated = self.takes("not")
        if isinstance(node, parsed.NullSafeNEQ):
            self.require("distinct", "from")
            right = self.expression(node.expression, _COMPARE)
            if right == ex.Literal("null", ""):
                return ex.NullTest(left, not negated)
            return ex.Distinct(left, right, negated)
        match node.expression:
            case parsed.Null():
                if self.takes("unknown"):
                    return ex.TruthTest(left, "unknown", negated)
                self.require("null")
                return ex.NullTest(left, negated)
            case parsed.Boolean(this=value):
                truth: ex.Truth = "true" if value else "false"
                self.require(truth)
                return ex.TruthTest(left, truth, negated)
        raise unexpected(self.here)

    def signed(self, node: parsed.Expr) -> ex.Expression:
        """Read an operand with a sign."""
        sign = self.step()
        if sign.text == "+":  # which the tree leaves out
            number = self.expression(node, _SIGN)
            if isinstance(number, ex.Literal) and number.kind == "number":
                return number
            raise refusal("a plus sign stands before something other than a number", sign.position)
        if not isinstance(node, parsed.Neg):
            raise unexpected(sign)
        match self.expression(node.this, _SIGN):
            case ex.Literal("number", text):
                return ex.Literal("number", text[1:] if text[0] == "-" else f"-{text}")
            case operand:
                return ex.Negative(operand)

    def operand(self, node: parsed.Expr) -> ex.Expression:
        """Read what is no operator: a constant, a column, CASE or a call."""
        match node:
            case parsed.Literal(is_string=True):
                return self.string(node)
            case parsed.Literal():
                return ex.Literal("number", self.leaf(node, "number").text)
            case parsed.Boolean(this=value):
                self.require("true" if value else "false")
                return ex.Literal("boolean", "true" if value else "false")
            case parsed.Null():
                self.require("null")
                return ex.Literal("null", "")
            case parsed.Column():
                return self.column(node)
            case parsed.TryCast():
                return self.cast(node)
            case parsed.Cast():
                return self.typed(node)
            case parsed.Case():
                return self.case(node)
            case parsed.Extract() | parsed.TimestampTrunc():
                return self.date_part(node)
            case parsed.Count() | parsed.Sum() | parsed.Avg() | parsed.Min() | parsed.Max():
                return self.aggregate(node)
            case parsed.WithinGroup():
                return self.percentile(node)
            case parsed.Anonymous():
                return self.age(node)
            case parsed.Coalesce():
                return self.coalesce(node)
            case parsed.Nullif():
                return self.nullif(node)
            case parsed.Round():
                return self.rounded(node)
            case parsed.Filter():
                return self.filtered(node)
        raise unexpected(self.here)

    def column(self, node: parsed.Column) -> ex.Name:
        """Read a column with what qualifies it."""
        parts: list[str] = []
        for part in ("db", "table", "this"):
            if node.args.get(part) is not None:
                if parts:
                    self.require(".")
                parts.append(self.name(node.args[part]))
        return ex.Name(tuple(parts))

    def case(self, node: parsed.Case) -> ex.Case:
        """Read either form of CASE."""
        self.require("case")
        subject = None if node.this is None else self.expression(node.this)
        n_repeated = len(list(ex.walk(subject))) * len(node.args.get("ifs") or ())
        if n_repeated > MAX_REPEATED:  # nested, it would double at each level
            raise refusal(
                "what CASE compares is too long: each WHEN repeats it",
                self.here.position,
                "write CASE WHEN <condition> THEN ...",
            )
        branches: list[tuple[ex.Expression, ex.Expression]] = []
        for branch in node.args.get("ifs") or ():
            self.require("when")
            when = self.expression(branch.this)
            self.require("then")
            if subject is not None:
                when = ex.Comparison("=", subject, when)
            branches.append((when, self.expression(branch.args.get("true"))))
        default = None
        if node.args.get("default") is not None:
            self.require("else")
            default = self.expression(node.args["default"])
        self.require("end")
        return ex.Case(tuple(branches), default)


def _unwrapped(node: parsed.Expr) -> parsed.Expr:
    # sqlglot also wraps what had no parentheses: where they are is read from the lexemes.
    while isinstance(node, parsed.Paren):
        node = node.this
    return node
