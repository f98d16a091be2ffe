"""Reading what is called: aggregates, parts of dates, typed constants."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Final

from kanon_db.counting import expressions as ex
from kanon_db.counting.reading.constructs import LITERAL_TYPES, unexpected
from kanon_db.counting.reading.cursor import Cursor
from kanon_db.counting.reading.grammar import exp as parsed
from kanon_db.counting.reading.lexemes import fold
from kanon_db.counting.refusals import refusal
from kanon_db.counting.rounding import MOST_DIGITS, Round

_AGGREGATES: Final[dict[type[parsed.Expr], ex.AggregateFunction]] = {
    parsed.Count: "count", parsed.Sum: "sum", parsed.Avg: "avg", parsed.Min: "min",
    parsed.Max: "max",
}  # fmt: skip
_SHARES: Final = {"min": 0.0, "max": 1.0}
_LITERALS: Final[dict[parsed.DType, ex.LiteralKind]] = {
    parsed.DType.DATE: "date", parsed.DType.TIMESTAMP: "timestamp",
}  # fmt: skip
_TYPES: Final[dict[parsed.DType, str]] = {
    parsed.DType.SMALLINT: "smallint", parsed.DType.INT: "integer", parsed.DType.BIGINT: "bigint",
    parsed.DType.DECIMAL: "numeric", parsed.DType.FLOAT: "real",
    parsed.DType.DOUBLE: "double precision", parsed.DType.TEXT: "text",
    parsed.DType.VARCHAR: "character varying", parsed.DType.DATE: "date",
    parsed.DType.TIMESTAMP: "timestamp without time zone", parsed.DType.BOOLEAN: "boolean",
}  # fmt: skip
_DATE_FIELDS: Final = frozenset(
    "year month day quarter week dow isodow doy isoyear decade century millennium"
    " hour minute second epoch".split()
)
_TRUNCATED: Final = frozenset(
    "second minute hour day week month quarter year decade century millennium".split()
)


class CallReader(Cursor):
    """Walks calls along the lexemes, each method over one construct."""

    @abstractmethod
    def expression(self, node: parsed.Expr | None) -> ex.Expression:
        """Read what is inside."""

    def string(self, node: parsed.Expr | None) -> ex.Literal:
        """Read a quoted constant."""
        if not isinstance(node, parsed.Literal) or not node.is_string:
            raise unexpected(self.here)
        return ex.Literal("string", self.leaf(node, "string").text)

    def is_cast_after(self, node: parsed.Cast, start: int) -> bool:
        """Whether a node is a cast with ``::``, rather than CAST or ``DATE '...'``."""
        if isinstance(node, parsed.TryCast):
            return False
        first = self.lexeme(self.within(start))
        return not (isinstance(node.this, parsed.Literal) and first.is_word(*LITERAL_TYPES))

    def typed(self, node: parsed.Cast) -> ex.Literal:
        """Read ``DATE '…'`` or ``TIMESTAMP '…'``."""
        kind = _LITERALS.get(_type_of(node))
        if kind is None:
            raise unexpected(self.here)
        self.require(kind)
        return ex.Literal(kind, self.string(node.this).text)

    def cast(self, node: parsed.TryCast) -> ex.Expression:
        """Read ``CAST(operand AS type)``."""
        self.require("cast", "(")
        operand = self.expression(node.this)
        self.require("as")
        found = self.cast_to(node, operand)
        self.require(")")
        return found

    def cast_to(self, node: parsed.Cast, operand: ex.Expression) -> ex.Expression:
        """Read the type that an operand is cast to; a date in quotes is one from the start."""
        to = _type_of(node)
        if self.here.kind != "type" or _TYPES.get(to) != self.here.text:
            raise unexpected(self.here)
        self.step()
        match operand:
            case ex.Literal("string", text) if to in _LITERALS:
                return ex.Literal(_LITERALS[to], text)
        return ex.Cast(operand, _TYPES[to])

    def coalesce(self, node: parsed.Coalesce) -> ex.Coalesce:
        """Read COALESCE."""
        self.require("coalesce", "(")
        operands = self.listed([node.this, *node.expressions], self.expression)
        self.require(")")
        return ex.Coalesce(operands)

    def nullif(self, node: parsed.Nullif) -> ex.NullIf:
        """Read NULLIF."""
        self.require("nullif", "(")
        left = self.expression(node.this)
        self.require(",")
        right = self.expression(node.expression)
        self.require(")")
        return ex.NullIf(left, right)

    def rounded(self, node: parsed.Round) -> Round:
        """Read ROUND of an expression, to a number of digits."""
        self.require("round", "(")
        operand, digits = self.expression(node.this), None
        if node.args.get("decimals") is not None:
            self.require(",")
            at = self.here.position
            match self.expression(node.args["decimals"]):
                case ex.Literal("number", text) if (
                    text.lstrip("-").isdecimal() and len(text) < 4 and abs(int(text)) <= MOST_DIGITS
                ):
                    digits = int(text)
                case _:
                    raise refusal(
                        "the digits that ROUND keeps are not a number that is written out",
                        at,
                        f"write ROUND(..., 2), or another whole number up to {MOST_DIGITS}",
                    )
        self.require(")")
        return Round(operand, digits)

    def age(self, node: parsed.Anonymous) -> ex.Age:
        """Read AGE of two dates."""
        at = self.here.position
        self.require("age", "(")
        operands = self.listed(node.expressions, self.expression)
        self.require(")")
        if len(operands) != 2:
            raise refusal(
                "AGE without the date to count to is not supported",
                at,
                "write EXTRACT(YEAR FROM AGE(DATE '2024-01-31', <column>))",
            )
        return ex.Age(*operands)

    def date_part(self, node: parsed.Extract | parsed.TimestampTrunc) -> ex.DatePart:
        """Read EXTRACT, date_part or date_trunc."""
        is_extract = self.here.is_word("extract")
        function: ex.DateFunction = "extract" if is_extract else "date_part"
        unit, operand, fields = node.this, node.expression, _DATE_FIELDS
        if isinstance(node, parsed.TimestampTrunc):
            function, fields = "date_trunc", _TRUNCATED
            unit, operand = node.args.get("unit"), node.this
        self.require(function, "(")
        field = self.field(unit, fields, *(("word", "name") if is_extract else ()), "string")
        self.require("from" if is_extract else ",")
        found = ex.DatePart(function, field, self.expression(operand))
        self.require(")")
        return found

    def field(self, node: parsed.Expr | None, allowed: frozenset[str], *kinds: str) -> str:
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

    def aggregate(self, node: parsed.Expr) -> ex.Aggregate:
        """Read ``COUNT(*)``, or COUNT, COUNT(DISTINCT), SUM, AVG, MIN, MAX of an expression."""
        function = _AGGREGATES[type(node)]
        self.require(function, "(")
        operand = None
        if isinstance(node, parsed.Count) and isinstance(node.this, parsed.Star):
            self.require("*")
        elif isinstance(node, parsed.Count) and isinstance(node.this, parsed.Distinct):
            self.require("distinct")
            function, at = "distinct", self.here.position
            operand, *others = self.listed(node.this.expressions, self.expression)
            if others:
                raise refusal(
                    "COUNT(DISTINCT ...) of several columns is not supported",
                    at,
                    "SELECT DISTINCT a, b lists what they have in common",
                )
            _refuse_nested(operand, at)
        else:
            operand = self.expression(node.this)
            _refuse_nested(operand, self.here.position)
        self.require(")")
        return ex.Aggregate(function, operand, share=_SHARES.get(function))

    def percentile(self, node: parsed.WithinGroup) -> ex.Aggregate:
        """Read percentile_cont or percentile_disc."""
        called, order = node.this, node.expression
        function: ex.AggregateFunction = "cont"
        if isinstance(called, parsed.PercentileDisc):
            function = "disc"
        elif not isinstance(called, parsed.PercentileCont):
            raise unexpected(self.here)
        self.require(f"percentile_{function}", "(")
        at = self.here.position
        match self.expression(called.this):
            case ex.Literal("number", text) if 0 <= float(text) <= 1:
                share = float(text)
            case _:
                raise refusal(
                    "the share of a percentile is not a number from 0 to 1",
                    at,
                    f"write percentile_{function}(0.5) WITHIN GROUP (ORDER BY <column>)",
                )
        self.require(")", "within", "group", "(", "order", "by")
        ordered = order.expressions if isinstance(order, parsed.Order) else []
        at = self.here.position
        operand = None
        if len(ordered) == 1 and isinstance(ordered[0], parsed.Ordered):
            operand = self.expression(ordered[0].this)
        if operand is None or self.here.is_word("desc"):
            raise refusal(
                "a percentile orders by one expression, ascending",
                at,
                "write percentile_cont(0.1) ... (ORDER BY x) for percentile_cont(0.9) ... (ORDER BY"
                " x DESC)",
            )
        _refuse_nested(operand, at)
        self.takes("asc")
        if not self.takes("nulls", "last"):  # which are ignored
            self.takes("nulls", "first")
        self.require(")")
        return ex.Aggregate(function, operand, share=share)

    def filtered(self, node: parsed.Filter) -> ex.Aggregate:
        """Read an aggregate with ``FILTER (WHERE condition)``."""
        if isinstance(node.this, parsed.WithinGroup):
            aggregate = self.percentile(node.this)
        elif type(node.this) in _AGGREGATES:
            aggregate = self.aggregate(node.this)
        else:
            raise unexpected(self.here)
        where = node.expression
        self.require("filter", "(", "where")
        condition = self.expression(where.this if isinstance(where, parsed.Where) else None)
        _refuse_nested(condition, self.here.position)
        self.require(")")
        return replace(aggregate, condition=condition)


def _refuse_nested(expression: ex.Expression, position: int) -> None:
    if any(isinstance(part, ex.Aggregate) for part in ex.walk(expression)):
        raise refusal("an aggregate contains another aggregate", position)


def _type_of(node: parsed.Cast) -> parsed.DType:
    to = node.args.get("to")
    return to.this if isinstance(to, parsed.DataType) else parsed.DType.UNKNOWN
