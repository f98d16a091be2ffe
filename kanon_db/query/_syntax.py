"""Reads expressions from sqlglot's tree, and accounts for every lexeme of the query."""

from __future__ import annotations

import re
import sys
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from types import ModuleType
from typing import Any, Final

from kanon_db.query import expressions as ex
from kanon_db.query._constructs import LITERAL_TYPES, MOMENTS, is_name
from kanon_db.query._lexer import LexemeCursor, fold, unexpected
from kanon_db.query.expressions import MOST_DIGITS, Rounded, refusal

# Importing sqlglot without what only its plug-ins need: a session's first estimate waits for it.
#
# sqlglot looks for plug-ins when it is asked for a dialect that it does not know, which never
# happens here. To do so it imports `importlib.metadata`, and with that all that e-mail needs.


_METADATA: Final = "importlib.metadata"


@contextmanager
def _metadata_later() -> Iterator[None]:
    """Let whatever is imported in the block import `importlib.metadata` when it calls it."""
    if _METADATA in sys.modules:
        yield
        return
    later = ModuleType(_METADATA)
    later.entry_points = _entry_points  # type: ignore[attr-defined]
    sys.modules[_METADATA] = later
    try:
        yield
    finally:
        del sys.modules[_METADATA]


def _entry_points(**chosen: Any) -> Any:
    from importlib.metadata import entry_points

    return entry_points(**chosen)


with _metadata_later():
    from sqlglot import exp

parsed = exp

# The allow-list: the nodes that a query's tree may have, *and* the arguments of each node.
#
# An argument that a later release of sqlglot adds to a node is refused until it is listed here.


_NODES: Final[dict[str, tuple[type[exp.Expr], ...]]] = {
    "": (exp.Star, exp.Null),
    "this": (
        exp.From, exp.TableAlias, exp.Where, exp.Having, exp.Not, exp.Neg, exp.Paren, exp.Sum,
        exp.Avg, exp.Min, exp.Max, exp.PercentileCont, exp.PercentileDisc, exp.Var, exp.Boolean,
        exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop,
    ),
    "expression": (exp.Limit, exp.Offset),
    "expressions": (exp.Group, exp.Order, exp.With, exp.Distinct, exp.Array),
    "this expression": (
        exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Add, exp.Sub,
        exp.Mul, exp.Mod, exp.Is, exp.NullSafeNEQ, exp.Like, exp.ILike, exp.Escape, exp.Extract,
        exp.Filter, exp.WithinGroup, exp.Nullif,
    ),
    "with_ distinct expressions from_ joins where group having order limit offset": (exp.Select,),
    "this expression safe": (exp.DPipe,),
    "this zone": (exp.AtTimeZone,),
    "this over partition_by": (exp.Window,),
    "this alias": (exp.Alias, exp.Subquery, exp.CTE),
    "this db catalog alias": (exp.Table,),
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
"""The nodes that are allowed, each with its allowed arguments."""

ALLOWED: Final = {
    kind: frozenset(arguments.split()) for arguments, kinds in _NODES.items() for kind in kinds
}

_REASONS: Final[dict[tuple[type[exp.Expr], str], str]] = {
    (exp.Tuple, ""): "comparisons of rows are not supported",
    (exp.Dot, ""): "a name has too many qualifiers",
    (exp.Column, "catalog"): "a column has too many qualifiers",
}
"""Reasons for refusing some nodes and arguments; others are refused as unreadable."""


def refuse_unlisted(tree: exp.Expr) -> None:
    """Refuse a tree with a node, or an argument of a node, that is not listed.

    Raises UnsupportedQueryError.
    """
    for node in tree.walk():
        kind = type(node)
        unlisted = [""] if kind not in ALLOWED else sorted(_arguments_of(node) - ALLOWED[kind])
        for argument in unlisted:
            if kind is exp.Tuple:
                raise refusal(_REASONS[kind, ""], hint="compare column by column, with AND")
            raise refusal(_REASONS.get((kind, argument), "the query cannot be read as a SELECT"))


def _arguments_of(node: exp.Expr) -> set[str]:
    """Return the names of a node's arguments that are set."""
    return {name for name, value in node.args.items() if value not in (None, False, [])}


_AGGREGATES: Final[dict[type[parsed.Expr], ex.AggregateFunction]] = {
    parsed.Count: "count", parsed.Sum: "sum", parsed.Avg: "avg", parsed.Min: "min",
    parsed.Max: "max",
}  # fmt: skip
_SPREADS: Final[dict[type[parsed.Expr], tuple[str, ...]]] = {
    parsed.Stddev: ("stddev",), parsed.StddevPop: ("stddev_pop",),
    parsed.StddevSamp: ("stddev_samp",), parsed.Variance: ("variance", "var_samp"),
    parsed.VariancePop: ("var_pop",),
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


_INTERVAL: Final = re.compile(
    r"\s*[+-]?[0-9]{1,6}\s*(second|minute|hour|day|week|month|year)s?\s*", re.IGNORECASE
)
_MOMENTS: Final = {
    "current_date": ex.Literal("date", "today"),
    "current_timestamp": ex.Literal("timestamptz", "now"),
    "localtimestamp": ex.Literal("timestamp", "now"),
}  # fmt: skip
"""The day and the time at which a question is asked, as PostgreSQL reads them."""

_SAME: Final = {
    "ceiling": "ceil", "char_length": "length", "character_length": "length", "substring": "substr",
    "trim": "btrim",
}  # fmt: skip
"""Functions that have another name, too."""

_PATTERNS: Final = {
    "YYYY-MM-DD": "%Y-%m-%d", "YYYYMMDD": "%Y%m%d", "DD.MM.YYYY": "%d.%m.%Y",
    "DD/MM/YYYY": "%d/%m/%Y", "MM/DD/YYYY": "%m/%d/%Y",
}  # fmt: skip


def _date(text: str, pattern: str, position: int) -> ex.Literal:
    """Read the constant of TO_DATE."""
    try:
        day = datetime.strptime(text, _PATTERNS[pattern.upper()]).date()
    except (KeyError, ValueError):
        raise refusal(
            "a constant cannot be read as a date", position, "write DATE '2024-01-31'"
        ) from None
    return ex.Literal("date", day.isoformat())


class CallReader(LexemeCursor):
    """Reads calls along the lexemes; each method reads one construct."""

    @abstractmethod
    def expression(self, node: parsed.Expr | None) -> ex.Expression:
        """Read an argument."""

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

    def read_typed(self, node: parsed.Cast) -> ex.Literal:
        """Read ``DATE '…'`` or ``TIMESTAMP '…'``."""
        at = self.here.position
        if self.takes("interval"):
            text = self.string(node.this).text
            if not _INTERVAL.fullmatch(text):
                raise refusal(
                    "an interval is more than a number and a unit",
                    at,
                    "write INTERVAL '30 days', or '-1 year'",
                )
            return ex.Literal("interval", text)
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
        literal = self.cast_to(node, operand)
        self.require(")")
        return literal

    def cast_to(self, node: parsed.Cast, operand: ex.Expression) -> ex.Expression:
        """Read the type of a cast; a quoted constant that is cast to a date is read as a date."""
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
        operands = self.read_list([node.this, *node.expressions], self.expression)
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

    def rounded(self, node: parsed.Round) -> Rounded:
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
        return Rounded(operand, digits)

    def age(self, node: parsed.Anonymous) -> ex.Age:
        """Read AGE of two dates."""
        at = self.here.position
        self.require("age", "(")
        operands = self.read_list(node.expressions, self.expression)
        self.require(")")
        if len(operands) != 2:
            raise refusal(
                "AGE without the date to count to is not supported",
                at,
                "write EXTRACT(YEAR FROM AGE(DATE '2024-01-31', <column>))",
            )
        return ex.Age(*operands)

    def call(self, node: parsed.Anonymous) -> ex.Expression:
        """Read a function of values, or the day or the time of the question."""
        lexeme = self.step()
        if lexeme.text in MOMENTS:
            return _MOMENTS[lexeme.text]
        self.require("(")
        if lexeme.is_word("now"):
            self.require(")")
            return _MOMENTS["current_timestamp"]
        operands = self.read_list(node.expressions, self.expression)
        self.require(")")
        if not lexeme.is_word("to_date"):
            return ex.Call(_SAME.get(lexeme.text, lexeme.text), operands)
        match operands:
            case (ex.Literal("string", text), ex.Literal("string", pattern)):
                return _date(text, pattern, lexeme.position)
        raise refusal(
            "TO_DATE of more than a constant could fail on some value",
            lexeme.position,
            "write DATE '2024-01-31', or compare the column as it is",
        )

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
        part = ex.DatePart(function, field, self.expression(operand))
        self.require(")")
        return part

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
            operand, *more = self.read_list(node.this.expressions, self.expression)
            if more:
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

    def spread(self, node: parsed.Expr) -> ex.Deviation:
        """Read a standard deviation or a variance."""
        names = _SPREADS[type(node)]
        function = next((name for name in names if self.takes(name)), "")
        if not function:
            raise unexpected(self.here)
        self.require("(")
        operand = self.expression(node.this)
        _refuse_nested(operand, self.here.position)
        self.require(")")
        x = ex.Cast(operand, "double precision")  # squares of integers could be out of range
        return ex.Deviation(
            ex.Aggregate("sum", ex.Arithmetic("*", x, x)),
            ex.Aggregate("sum", x),
            ex.Aggregate("count", operand),
            function,
        )

    def percentile(self, node: parsed.WithinGroup) -> ex.Aggregate | ex.AggregateList:
        """Read percentile_cont or percentile_disc."""
        called, order = node.this, node.expression
        function: ex.AggregateFunction = "cont"
        if isinstance(called, parsed.PercentileDisc):
            function = "disc"
        elif not isinstance(called, parsed.PercentileCont):
            raise unexpected(self.here)
        self.require(f"percentile_{function}", "(")
        is_array = isinstance(called.this, parsed.Array)
        if is_array:
            self.require("array[")
            shares = self.read_list(called.this.expressions, lambda one: self.share(one, function))
            self.require("]")
        else:
            shares = (self.share(called.this, function),)
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
        percentiles = tuple(ex.Aggregate(function, operand, share=share) for share in shares)
        return ex.AggregateList(percentiles) if is_array else percentiles[0]

    def share(self, node: parsed.Expr, function: str) -> float:
        """Read the share of a percentile."""
        at = self.here.position
        match self.expression(node):
            case ex.Literal("number", text) if 0 <= float(text) <= 1:
                return float(text)
        raise refusal(
            "the share of a percentile is not a number from 0 to 1",
            at,
            f"write percentile_{function}(0.5) WITHIN GROUP (ORDER BY <column>)",
        )

    def whole(self, node: parsed.Window) -> ex.WindowTotal:
        """Read ``SUM(COUNT(*)) OVER ([PARTITION BY …])``, or the same of ``SUM(x)``."""
        at, outer = self.here.position, node.this
        inner = outer.this if isinstance(outer, parsed.Sum) else None
        summed = inner.this if isinstance(inner, parsed.Filter) else inner
        if inner is None or not isinstance(summed, parsed.Count | parsed.Sum):
            raise refusal(
                "window functions are not supported, but for totals",
                at,
                "write SUM(COUNT(*)) OVER (), or OVER (PARTITION BY <a column of GROUP BY>)",
            )
        self.require("sum", "(")
        is_chosen = isinstance(inner, parsed.Filter)
        aggregate = self.read_filter(inner) if is_chosen else self.aggregate(inner)
        self.require(")")
        by: tuple[ex.Expression, ...] = ()
        if node.args.get("partition_by"):
            self.require("over", "(", "partition by")
            by = self.read_list(node.args["partition_by"], self.expression)
            self.require(")")
        else:
            self.require("over ()")
        if not isinstance(aggregate, ex.Aggregate) or aggregate.function == "distinct":
            raise refusal("what is distinct in groups has no total", at, "ask without GROUP BY")
        return ex.WindowTotal(aggregate, by=by)

    def read_filter(self, node: parsed.Filter) -> ex.Expression:
        """Read an aggregate with ``FILTER (WHERE condition)``."""
        aggregate: ex.Aggregate | ex.Deviation | ex.AggregateList
        if isinstance(node.this, parsed.WithinGroup):
            aggregate = self.percentile(node.this)
        elif type(node.this) in _AGGREGATES:
            aggregate = self.aggregate(node.this)
        elif type(node.this) in _SPREADS:
            aggregate = self.spread(node.this)
        else:
            raise unexpected(self.here)
        where = node.expression
        self.require("filter", "(", "where")
        condition = self.expression(where.this if isinstance(where, parsed.Where) else None)
        _refuse_nested(condition, self.here.position)
        self.require(")")

        def chosen(part: ex.Expression) -> ex.Expression:
            return replace(part, condition=condition) if isinstance(part, ex.Aggregate) else part

        if isinstance(aggregate, ex.Deviation | ex.AggregateList):
            return ex.rebuilt(aggregate, chosen)
        return replace(aggregate, condition=condition)


def _refuse_nested(expression: ex.Expression, position: int) -> None:
    if any(isinstance(part, ex.Aggregate) for part in ex.walk(expression)):
        raise refusal("an aggregate contains another aggregate", position)


def _type_of(node: parsed.Cast) -> parsed.DType:
    to = node.args.get("to")
    return to.this if isinstance(to, parsed.DataType) else parsed.DType.UNKNOWN


# Reading expressions.
#
# sqlglot's tree says which operand belongs to which operator. It is read along the lexemes: each
# node must find there, in order, the words that spell it, and its operands must bind as PostgreSQL
# binds them or stand in parentheses. PostgreSQL's grammar is unambiguous, so a tree that passes is
# PostgreSQL's own reading. `parsed` has sqlglot's nodes, `ex` the expressions.


# PostgreSQL's precedence, ascending.
(
    _OR, _AND, _NOT, _IS, _COMPARE, _TEST, _OTHER, _ADD, _MULTIPLY, _ZONE, _SIGN, _CAST, _OPERAND
) = range(1, 14)  # fmt: skip

_COMPARISONS: Final[dict[type[parsed.Expr], ex.ComparisonOperator]] = {
    parsed.EQ: "=", parsed.NEQ: "<>",
    parsed.LT: "<", parsed.LTE: "<=", parsed.GT: ">", parsed.GTE: ">=",
}  # fmt: skip
_ARITHMETIC: Final[dict[type[parsed.Expr], ex.ArithmeticOperator]] = {
    parsed.Add: "+", parsed.Sub: "-", parsed.Mul: "*", parsed.Div: "/", parsed.Mod: "%",
}  # fmt: skip
_CHAINS: Final[dict[type[parsed.Expr], int]] = {
    parsed.Or: _OR, parsed.And: _AND, parsed.Add: _ADD, parsed.Sub: _ADD,
    parsed.Mul: _MULTIPLY, parsed.Div: _MULTIPLY, parsed.Mod: _MULTIPLY, parsed.DPipe: _OTHER,
}  # fmt: skip
_TESTS: Final[dict[type[parsed.Expr], int]] = {
    parsed.Is: _IS, parsed.NullSafeNEQ: _IS,
    parsed.Between: _TEST, parsed.In: _TEST,
    parsed.Like: _TEST, parsed.ILike: _TEST, parsed.Escape: _TEST,
}  # fmt: skip

MAX_PATTERN: Final = 1_000
"""The most characters of a pattern of LIKE."""

MAX_REPEATED: Final = 4_000
"""The most parts of the operand of a CASE, times its number of WHENs."""


class ExpressionReader(CallReader):
    """Reads expressions along the lexemes; each method reads one construct."""

    def name(self, node: parsed.Expr | None) -> str:
        """Read one name: of a relation or a column, or a qualifier."""
        if not isinstance(node, parsed.Identifier) or not is_name(self.here):
            raise unexpected(self.here)
        return self.leaf(node, "word", "name").text

    def expression(
        self, node: parsed.Expr | None, level: int = _OR, start: int | None = None
    ) -> ex.Expression:
        """Read a node whose operator must bind at least as tightly as `level`."""
        # `start`: number of the node's first lexeme, parentheses included; by default, the next
        # one. Where parentheses that open there close decides whether they enclose this node, or
        # another one that begins at the same lexeme.
        if node is None:
            raise unexpected(self.here)
        node = _unwrap(node)
        start = self._at if start is None else start
        inner, binding = self.open_parentheses(node, start)
        if not self.closes(start) and binding < level:
            raise refusal(
                "comparisons cannot be chained"
                if level == _TEST and binding in (_IS, _COMPARE)
                else "parentheses are needed",
                self.here.position,
                "combine conditions with AND, OR and NOT, using parentheses",
            )
        return inner

    def open_parentheses(self, node: parsed.Expr, start: int) -> tuple[ex.Expression, int]:
        """Read a node without the parentheses around it; return it with its precedence."""
        kind = type(node)
        if kind in _CHAINS:
            return self.chain(node, start), _CHAINS[kind]
        if kind in _COMPARISONS:
            return self.comparison(node, start), _COMPARE
        if kind in _TESTS:
            return self.test(node, start)
        if isinstance(node, parsed.Cast) and self.is_cast_after(node, start):
            operand = self.expression(node.this, _CAST, start)
            self.require("::")
            return self.cast_to(node, operand), _CAST
        if isinstance(node, parsed.AtTimeZone):
            operand = self.expression(node.this, _ZONE, start)
            self.require("at time zone")
            return ex.Call("timezone", (self.string(node.args.get("zone")), operand)), _ZONE
        self._at = self.within(start)
        if isinstance(node, parsed.Not):
            self.require("not")
            return ex.Not(self.expression(node.this, _NOT)), _NOT
        if self.here.is_symbol("+", "-"):
            return self.signed(node), _SIGN
        return self.operand(node), _OPERAND

    def chain(self, node: parsed.Expr, start: int) -> ex.Expression:
        """Read a chain of operators of one precedence, in a loop; AND and OR become flat."""
        binding = _CHAINS[type(node)]
        links, first = [node], _unwrap(node.this)
        while _CHAINS.get(type(first)) == binding:
            links.append(first)
            first = _unwrap(first.this)
        expression = self.expression(first, binding + 1, start)
        parts = [expression]
        for link in reversed(links):
            self.closes(start)  # what encloses the part of the chain up to here
            operator = _ARITHMETIC.get(type(link))
            if isinstance(link, parsed.DPipe):
                self.require("||")
                right = self.expression(link.expression, binding + 1)
                expression = ex.Call("||", (expression, right))
            elif operator is None:
                self.require("and" if binding == _AND else "or")
                parts.append(self.expression(link.expression, binding + 1))
            else:
                self.require(operator)
                right = self.expression(link.expression, binding + 1)
                expression = ex.Arithmetic(operator, expression, right)
        if binding == _OR:
            return ex.Or(ex.flat(ex.Or, parts))
        if binding == _AND:
            return ex.And(ex.flat(ex.And, parts))
        return expression

    def comparison(self, node: parsed.Expr, start: int) -> ex.Expression:
        """Read ``=``, ``<>``, ``<``, ``<=``, ``>`` or ``>=`` between two operands."""
        left = self.expression(node.this, _COMPARE + 1, start)
        operator = _COMPARISONS[type(node)]
        if not (operator == "<>" and self.takes("!=")):
            self.require(operator)
        return ex.Comparison(operator, left, self.expression(node.expression, _COMPARE + 1))

    def test(self, node: parsed.Expr, start: int) -> tuple[ex.Expression, int]:
        """Read a test of one operand: IS …, [NOT] BETWEEN, IN, LIKE, ILIKE; with its precedence."""
        binding = _TESTS[type(node)]
        if isinstance(node, parsed.In):
            operand = self.expression(node.this, _OTHER, start)
            text = self.here.text if self.here.kind == "symbol" else ""
            if text.startswith("<@ "):
                return self.containment(node, operand), _OTHER
            if text.startswith(("= any", "<> all")):  # whose = chains with no other
                return self.quantifier(node, operand), _COMPARE
            return self.membership(node, operand), _TEST
        return self.other_test(node, start, binding), binding

    def containment(self, node: parsed.In, operand: ex.Expression) -> ex.Expression:
        """Read ``operand <@ range(low, high)``."""
        lexeme = self.step()
        self.require("(")
        given = self.read_list(node.expressions, self.expression)
        self.require(")")
        match given:
            case (low, high):
                return ex.Contained(operand, lexeme.text[3:], low, high, "[)")
            case (low, high, ex.Literal("string", "[)" | "[]" | "()" | "(]" as bounds)):
                return ex.Contained(operand, lexeme.text[3:], low, high, bounds)
        raise refusal(
            "a range has other parts than its ends and their kinds",
            lexeme.position,
            "write age <@ int4range(20, 30), or int4range(20, 30, '[]')",
        )

    def quantifier(self, node: parsed.In, operand: ex.Expression) -> ex.Expression:
        """Read ``operand = ANY (ARRAY[…])`` or ``operand <> ALL (ARRAY[…])``."""
        lexeme = self.step()
        to = lexeme.text.removeprefix("= any").removeprefix("<> all").strip()
        self.require("(")
        items = self.read_list(node.expressions, self.expression)
        self.require(")")
        if to:
            items = tuple(ex.Cast(item, to) for item in items)
        return _among(operand, items, negated=lexeme.text.startswith("<>"))

    def membership(self, node: parsed.In, operand: ex.Expression) -> ex.Expression:
        """Read ``operand [NOT] IN (…)``."""
        negated = self.takes("not")
        self.require("in", "(")
        items = self.read_list(node.expressions, self.expression)
        self.require(")")
        return _among(operand, items, negated=negated)

    def other_test(self, node: parsed.Expr, start: int, binding: int) -> ex.Expression:
        """Read a test other than of a list."""
        escape = None
        if isinstance(node, parsed.Escape):
            node, escape = node.this, node.expression
            if not isinstance(node, parsed.Like | parsed.ILike):
                raise unexpected(self.here)
        left = self.expression(node.this, binding + 1, start)
        if binding == _IS:
            return self.test_of_is(node, left)
        negated = self.takes("not")
        match node:
            case parsed.Between():
                self.require("between")
                low = self.expression(node.args.get("low"), _OTHER)
                self.require("and")
                high = self.expression(node.args.get("high"), _OTHER)
                return ex.Range(left, low, high, negated)
        is_case_sensitive = isinstance(node, parsed.Like)
        self.require("like" if is_case_sensitive else "ilike")
        position = self.here.position
        pattern = self.expression(node.expression, _OTHER)
        if not all(_is_fixed_text(part) for part in ex.walk(pattern)):
            raise refusal(
                "a pattern must be a quoted string", position, "write the pattern in single quotes"
            )
        if sum(len(part.text) for part in ex.walk(pattern) if isinstance(part, ex.Literal)) > (
            MAX_PATTERN
        ):
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

    def test_of_is(self, node: parsed.Expr, left: ex.Expression) -> ex.Expression:
        """Read the test after IS."""
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
        """Read an operand: a constant, a column, CASE or a call."""
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
                return self.read_typed(node)
            case parsed.Case():
                return self.case(node)
            case parsed.Extract() | parsed.TimestampTrunc():
                return self.date_part(node)
            case parsed.Count() | parsed.Sum() | parsed.Avg() | parsed.Min() | parsed.Max():
                return self.aggregate(node)
            case (
                parsed.Stddev() | parsed.StddevPop() | parsed.StddevSamp()
                | parsed.Variance() | parsed.VariancePop()
            ):  # fmt: skip
                return self.spread(node)
            case parsed.WithinGroup():
                return self.percentile(node)
            case parsed.Anonymous() if self.here.is_word("age"):
                return self.age(node)
            case parsed.Anonymous():
                return self.call(node)
            case parsed.Window():
                return self.whole(node)
            case parsed.Subquery():
                return self.total(node)
            case parsed.Coalesce():
                return self.coalesce(node)
            case parsed.Nullif():
                return self.nullif(node)
            case parsed.Round():
                return self.rounded(node)
            case parsed.Filter():
                return self.read_filter(node)
        raise unexpected(self.here)

    def column(self, node: parsed.Column) -> ex.Name:
        """Read a column with its qualifiers."""
        parts: list[str] = []
        at = self.here.position
        for part in ("db", "table", "this"):
            if node.args.get(part) is not None:
                if parts:
                    self.require(".")
                parts.append(self.name(node.args[part]))
        return ex.Name(tuple(parts), position=at)

    @abstractmethod
    def total(self, node: parsed.Subquery) -> ex.WindowTotal:
        """Read a subselect, which is a total."""

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


def _among(
    operand: ex.Expression, items: tuple[ex.Expression, ...], *, negated: bool
) -> ex.Expression:
    if len(items) == 1:
        return ex.Comparison("<>" if negated else "=", operand, items[0])
    return ex.Membership(operand, items, negated)


def _is_fixed_text(part: ex.Expression) -> bool:
    """Whether a part of a pattern is a constant, or made of constants."""
    return (isinstance(part, ex.Call) and part.function in ("||", "lower", "upper")) or (
        isinstance(part, ex.Literal) and part.kind == "string"
    )


def _unwrap(node: parsed.Expr) -> parsed.Expr:
    # sqlglot also wraps what had no parentheses: where they are is read from the lexemes.
    while isinstance(node, parsed.Paren):
        node = node.this
    return node
