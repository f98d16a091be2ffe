"""Reads expressions by the binding powers of their operators, which are those of PostgreSQL."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import Any, ClassVar, Final, NamedTuple

from kanon_db.errors import UnsupportedQueryError
from kanon_db.query import expressions as ex
from kanon_db.query._constructs import LISTED, Item, LexemeCursor
from kanon_db.query._lexer import Lexeme, fold
from kanon_db.query.expressions import MOST_DIGITS, Expression

MAX_PATTERN: Final = 1_000
"""The most characters of a pattern of LIKE."""

MAX_REPEATED: Final = 4_000
"""The most parts of the operand of a CASE, times its number of WHENs."""

# What binds looser comes first, as in the grammar of PostgreSQL 14 to 18.
(
    _OR, _AND, _NOT, _IS, _COMPARE, _TEST, _OTHER, _ADD, _MULTIPLY, _ZONE, _SIGN, _CAST, _OPERAND
) = range(1, 14)  # fmt: skip

_NOT_ASSOCIATIVE: Final = frozenset({_IS, _COMPARE, _TEST})

VALUE_FUNCTIONS: Final = frozenset(
    "abs btrim ceil ceiling char_length character_length concat floor initcap left length lower"
    " ltrim replace right rtrim strpos substr substring trim trunc upper".split()
)
"""The functions of values: immutable, without side effects, and of no catalog (`_bind`)."""

_SYNONYMS: Final = {
    "ceiling": "ceil", "char_length": "length", "character_length": "length", "substring": "substr",
    "trim": "btrim",
}  # fmt: skip

_CONSTANTS: Final = {
    "true": ex.Literal("boolean", "true"),
    "false": ex.Literal("boolean", "false"),
    "null": ex.Literal("null", ""),
    "current_date": ex.Literal("date", "today"),
    "current_timestamp": ex.Literal("timestamptz", "now"),
    "localtimestamp": ex.Literal("timestamp", "now"),
}
"""Words for constants; of a day or a time, that at which a question is asked."""

_TYPES: Final = {
    **dict.fromkeys(("smallint", "int2"), "smallint"),
    **dict.fromkeys(("int", "integer", "int4"), "integer"),
    **dict.fromkeys(("bigint", "int8"), "bigint"),
    **dict.fromkeys(("numeric", "decimal", "dec"), "numeric"),
    **dict.fromkeys(("real", "float4"), "real"),
    **dict.fromkeys(("double precision", "float", "float8"), "double precision"),
    "text": "text",
    **dict.fromkeys(("character varying", "varchar"), "character varying"),
    "date": "date",
    **dict.fromkeys(("timestamp without time zone", "timestamp"), "timestamp without time zone"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
}
"""The names of the types that a query may cast to, each with its SQL name."""

_TYPES_IN_A_ZONE: Final = ("timestamp with time zone", "timestamptz")
_MOST_WORDS: Final = 4  # of the name of a type

_LITERAL_TYPES: Final[Mapping[str, ex.LiteralKind]] = {
    "date": "date", "timestamp": "timestamp", "timestamp without time zone": "timestamp",
    "interval": "interval",
}  # fmt: skip
"""The types of which a quoted constant makes a constant."""

_INTERVAL: Final = re.compile(
    r"\s*[+-]?[0-9]{1,6}\s*(second|minute|hour|day|week|month|year)s?\s*", re.IGNORECASE
)
_DATE_PATTERNS: Final = {
    "YYYY-MM-DD": "%Y-%m-%d", "YYYYMMDD": "%Y%m%d", "DD.MM.YYYY": "%d.%m.%Y",
    "DD/MM/YYYY": "%d/%m/%Y", "MM/DD/YYYY": "%m/%d/%Y",
}  # fmt: skip
_TRUNCATED: Final = frozenset(
    "second minute hour day week month quarter year decade century millennium".split()
)
_EXTRACTED: Final = _TRUNCATED | frozenset("dow isodow doy isoyear epoch".split())
_BOUNDS: Final = ("[)", "[]", "()", "(]")
_SHARES: Final = {"min": 0.0, "max": 1.0}

_TRIMMED: Final = ("from", "for", "both", "leading", "trailing")
_WITHOUT_FROM: Final = {"substring": "write substr(x, 1, 3)", "trim": "write btrim(x, ' ')"}

_TYPE_HINT: Final = (
    "the types are integer, bigint, smallint, numeric, real, double precision, text, date,"
    " timestamp and boolean, without modifiers"
)
_CONSTANT_HINT: Final = (
    "write DATE '...', TIMESTAMP '...' or a plain quoted string, which takes the type of what it is"
    " compared with"
)
_ORDER_HINT: Final = (
    "write percentile_cont(0.1) ... (ORDER BY x) for percentile_cont(0.9) ... (ORDER BY x DESC)"
)


class CallParser(LexemeCursor):
    """Reads calls of functions; each method reads one construct, from its first lexeme on."""

    @abstractmethod
    def read_expression(self, least: int = _OR) -> Expression:
        """Read an expression whose operators bind at least as tightly as `least`."""

    def read_arguments(self) -> tuple[Expression, ...]:
        """Read expressions in parentheses."""
        self.open()
        operands = self.read_list(self.read_expression)
        self.close()
        return operands

    def read_call(self) -> ex.Call:
        """Read a function of values."""
        function = self.step()
        self.open()
        operands: tuple[Expression, ...] = ()
        if not self.here.is_word(*_TRIMMED):
            operands = self.read_list(self.read_expression)
        if function.is_word(*_WITHOUT_FROM) and self.here.is_word(*_TRIMMED):
            what = f"FROM in {function.text.upper()} is not supported"
            raise self.refuse(what, _WITHOUT_FROM[function.text], function)
        self.close()
        return ex.Call(_SYNONYMS.get(function.text, function.text), operands)

    def read_now(self) -> ex.Literal:
        """Read ``now()``."""
        self.step()
        self.open()
        self.close()
        return _CONSTANTS["current_timestamp"]

    def read_date(self) -> ex.Literal:
        """Read TO_DATE of a constant."""
        function = self.step()
        match self.read_arguments():
            case (ex.Literal("string", text), ex.Literal("string", pattern)):
                try:
                    day = datetime.strptime(text, _DATE_PATTERNS[pattern.upper()]).date()
                except (KeyError, ValueError):
                    what, hint = "a constant cannot be read as a date", "write DATE '2024-01-31'"
                    raise self.refuse(what, hint, function) from None
                return ex.Literal("date", day.isoformat())
        raise self.refuse(
            "TO_DATE of more than a constant could fail on some value",
            "write DATE '2024-01-31', or compare the column as it is",
            function,
        )

    def read_age(self) -> ex.Age:
        """Read AGE of two dates."""
        function = self.step()
        operands = self.read_arguments()
        if len(operands) != 2:
            raise self.refuse(
                "AGE without the date to count to is not supported",
                "write EXTRACT(YEAR FROM AGE(DATE '2024-01-31', <column>))",
                function,
            )
        return ex.Age(*operands)

    def read_cast(self) -> Expression:
        """Read ``CAST(operand AS type)``."""
        self.step()
        self.open()
        operand = self.read_expression()
        self.require("as")
        to = self.read_type()
        self.close()
        return _cast(operand, to)

    def read_type(self) -> str:
        """Read the type of a cast; return its SQL name."""
        words = takewhile(lambda one: one.kind == "word", map(self.ahead, range(_MOST_WORDS)))
        texts = [word.text for word in words]
        spellings = [" ".join(texts[:n]) for n in range(len(texts), 0, -1)]
        spelling = next((one for one in spellings if one in _TYPES or one in _TYPES_IN_A_ZONE), "")
        if spelling in _TYPES_IN_A_ZONE:
            raise self.refuse(
                "a cast to a timestamp with time zone is not supported",
                "write date_trunc(...), or compare with a quoted constant",
            )
        if not spelling:
            raise self.refuse("casts to this type are not supported", _TYPE_HINT)
        self.require(*spelling.split())
        if self.here.is_symbol("(") or self.here.is_word("with", "without"):
            raise self.refuse("a type with modifiers is not supported", "write the type alone")
        return _TYPES[spelling]

    def read_coalesce(self) -> ex.Coalesce:
        """Read COALESCE."""
        self.step()
        return ex.Coalesce(self.read_arguments())

    def read_nullif(self) -> ex.NullIf:
        """Read NULLIF."""
        self.step()
        self.open()
        left = self.read_expression()
        self.require(",")
        right = self.read_expression()
        self.close()
        return ex.NullIf(left, right)

    def read_round(self) -> ex.Rounded:
        """Read ROUND of an expression, to a number of digits."""
        self.step()
        self.open()
        operand, digits = self.read_expression(), None
        if self.takes(","):
            at = self.here
            match self.read_expression():
                case ex.Literal("number", text) if (
                    text.lstrip("-").isdecimal() and len(text) < 4 and abs(int(text)) <= MOST_DIGITS
                ):
                    digits = int(text)
                case _:
                    raise self.refuse(
                        "the digits that ROUND keeps are not a number that is written out",
                        f"write ROUND(..., 2), or another whole number up to {MOST_DIGITS}",
                        at,
                    )
        self.close()
        return ex.Rounded(operand, digits)

    def read_date_part(self) -> ex.DatePart:
        """Read EXTRACT, date_part or date_trunc."""
        function: Any = self.step().text
        self.open()
        field = self.here
        if function != "extract" and field.kind != "string":
            raise self.refuse("the part of a date must be a quoted constant", "write 'year'")
        allowed = _TRUNCATED if function == "date_trunc" else _EXTRACTED
        if field.kind not in ("word", "name", "string"):
            raise self.refuse_next()
        if fold(field.text) not in allowed:
            hint = f"the parts are {', '.join(sorted(allowed))}"
            raise self.refuse("this part of a date is not supported", hint)
        self.step()
        self.require("from" if function == "extract" else ",")
        operand = self.read_expression()
        self.close()
        return ex.DatePart(function, fold(field.text), operand)

    def read_aggregate(self) -> Expression:
        """Read COUNT, SUM, AVG, MIN or MAX, or a total of one."""
        function = self.step()
        name: Any = function.text
        self.open()
        at, operand = self.here, None
        if at.is_word("distinct"):
            name = self.read_distinct(function)
        if name != "count" or not self.takes("*"):
            operand = self.read_expression()
        if name == "distinct" and self.here.is_symbol(","):
            raise self.refuse(
                "COUNT(DISTINCT ...) of several columns is not supported",
                "SELECT DISTINCT a, b lists what they have in common",
                at,
            )
        self.close()
        if self.reads("over", "("):
            return self.read_window(function, operand)
        self.check_nesting(operand, at)
        return self.read_filter(ex.Aggregate(name, operand, share=_SHARES.get(name)))

    def read_distinct(self, function: Lexeme) -> str:
        """Read the DISTINCT of COUNT."""
        if not function.is_word("count"):
            raise self.refuse(
                "DISTINCT is only supported in COUNT(DISTINCT ...) and SELECT DISTINCT",
                "SELECT DISTINCT lists the values, each of which can be summed or averaged once",
            )
        if self.reads("distinct", "*"):
            raise self.refuse("DISTINCT is not supported with *", "name the columns")
        return self.step().text

    def read_spread(self) -> Expression:
        """Read a standard deviation or a variance."""
        function = self.step()
        self.open()
        at, operand = self.here, self.read_expression()
        self.close()
        self.check_nesting(operand, at)
        x = ex.Cast(operand, "double precision")  # squares of integers could be out of range
        squares, total = ex.Aggregate("sum", ex.Arithmetic("*", x, x)), ex.Aggregate("sum", x)
        number = ex.Aggregate("count", operand)
        return self.read_filter(ex.Deviation(squares, total, number, function.text))

    def read_percentile(self) -> Expression:
        """Read percentile_cont or percentile_disc, of one share or of an array."""
        name: Any = self.step().text.removeprefix("percentile_")
        self.open()
        is_array = self.here.is_word("array")
        shares = self.read_array(self.read_share) if is_array else (self.read_share(),)
        self.close()
        self.require("within", "group")
        self.open()
        self.require("order", "by")
        at, operand = self.here, self.read_expression()
        if self.here.is_word("desc") or self.here.is_symbol(","):
            raise self.refuse("a percentile orders by one expression, ascending", _ORDER_HINT, at)
        self.takes("asc")
        if not self.takes("nulls", "last"):  # which are ignored
            self.takes("nulls", "first")
        self.close()
        self.check_nesting(operand, at)
        percentiles = tuple(ex.Aggregate(name, operand, share=share) for share in shares)
        return self.read_filter(ex.AggregateList(percentiles) if is_array else percentiles[0])

    def read_share(self) -> float:
        """Read the share of a percentile."""
        at = self.here
        match self.read_expression():
            case ex.Literal("number", text) if 0 <= float(text) <= 1:
                return float(text)
        raise self.refuse(
            "the share of a percentile is not a number from 0 to 1",
            "write percentile_cont(0.5) WITHIN GROUP (ORDER BY <column>)",
            at,
        )

    def read_array(self, read: Callable[[], Item]) -> tuple[Item, ...]:
        """Read ``ARRAY[…]``."""
        self.require("array", "[")
        if self.here.is_symbol("]"):
            raise self.refuse("a list is empty", LISTED)
        items = self.read_list(read)
        self.require("]")
        return items

    def read_window(self, function: Lexeme, aggregate: Expression | None) -> ex.WindowTotal:
        """Read ``OVER ([PARTITION BY …])`` behind ``SUM(COUNT(*))``, or ``SUM(SUM(x))``."""
        self.step()
        self.open()
        by = self.read_list(self.read_expression) if self.takes("partition", "by") else ()
        match aggregate:
            case ex.Aggregate("distinct"):
                what = "what is distinct in groups has no total"
                raise self.refuse(what, "ask without GROUP BY", function)
            case ex.Aggregate("count" | "sum") if function.is_word("sum") and self.takes(")"):
                self.leave()
                return ex.WindowTotal(aggregate, by=by)
        raise self.refuse(
            "window functions are not supported, but for totals",
            "write SUM(COUNT(*)) OVER (), or OVER (PARTITION BY <a column of GROUP BY>)",
            function,
        )

    def read_filter(self, aggregate: Expression) -> Expression:
        """Read the ``FILTER (WHERE condition)`` of an aggregate, if it has one."""
        if not self.reads("filter", "(", "where"):
            return aggregate
        self.step()
        self.open()
        self.step()
        at, condition = self.here, self.read_expression()
        self.close()
        self.check_nesting(condition, at)

        def choose(part: Expression) -> Expression:
            return replace(part, condition=condition) if isinstance(part, ex.Aggregate) else part

        if isinstance(aggregate, ex.Aggregate):
            return choose(aggregate)
        return ex.rebuilt(aggregate, choose)

    def check_nesting(self, operand: Expression | None, at: Lexeme) -> None:
        """Refuse aggregates in what an aggregate is of."""
        if any(isinstance(part, ex.Aggregate) for part in ex.walk(operand)):
            raise self.refuse("an aggregate contains another aggregate", at=at)

    functions: ClassVar[Mapping[str, Callable[[Any], Expression]]] = {
        **dict.fromkeys(VALUE_FUNCTIONS, read_call),
        **dict.fromkeys(("count", "sum", "avg", "min", "max"), read_aggregate),
        **dict.fromkeys(
            ("stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp"), read_spread
        ),
        **dict.fromkeys(("percentile_cont", "percentile_disc"), read_percentile),
        **dict.fromkeys(("extract", "date_part", "date_trunc"), read_date_part),
        "age": read_age,
        "cast": read_cast,
        "coalesce": read_coalesce,
        "now": read_now,
        "nullif": read_nullif,
        "round": read_round,
        "to_date": read_date,
    }
    """The functions of a count query; without a parenthesis, these words are names."""


class Operator(NamedTuple):
    """What stands between two operands, or behind one."""

    power: int  # How tightly it binds
    read: Callable[[Any, Expression], Expression]  # Reads it, given its left operand


class ExpressionParser(CallParser):
    """Reads expressions; each method reads one construct, from its first lexeme on."""

    _plain_depth = -1  # where AT TIME ZONE is no operator

    def read_expression(self, least: int = _OR) -> Expression:
        """Read an expression whose operators bind at least as tightly as `least`."""
        left, power = self.read_prefix(least)
        while (operator := self.next_operator) is not None and operator.power >= least:
            if operator.power > power or (operator.power == power and power in _NOT_ASSOCIATIVE):
                raise self.refuse_grouping(power)
            power = operator.power
            left = operator.read(self, left)
        return left

    @property
    def next_operator(self) -> Operator | None:
        """The operator that comes next."""
        kind, text, _ = self.here
        if kind not in ("word", "symbol"):
            return None
        if text == "not" and not self.ahead(1).is_word("between", "ilike", "in", "like"):
            return None
        if text == "at" and (
            self.depth == self._plain_depth or not self.reads("at", "time", "zone")
        ):
            return None
        return self.operators.get(text)

    def refuse_grouping(self, power: int) -> UnsupportedQueryError:
        """Make the error for an operator behind one of this power, with which it does not group."""
        following = self.next_operator
        is_chain = following and following.power == _COMPARE and power in (_IS, _COMPARE)
        return self.refuse(
            "comparisons cannot be chained" if is_chain else "parentheses are needed",
            "combine conditions with AND, OR and NOT, using parentheses",
        )

    def read_prefix(self, least: int) -> tuple[Expression, int]:
        """Read an operand with its NOT or sign; return also how tightly that binds."""
        if self.here.is_word("not"):
            if least > _NOT:
                raise self.refuse_grouping(_NOT)
            self.enter(self.step())
            negation = ex.Not(self.read_expression(_NOT))
            self.leave()
            return negation, _NOT
        if self.here.is_symbol("+", "-"):
            return self.read_sign(), _SIGN
        return self.read_operand(), _OPERAND

    def read_sign(self) -> Expression:
        """Read ``-operand``, or ``+`` before a number."""
        sign = self.step()
        self.enter(sign)
        operand = self.read_expression(_SIGN)
        self.leave()
        match operand:
            case ex.Literal("number") if sign.text == "+":
                return operand
            case ex.Literal("number", text):
                return ex.Literal("number", text[1:] if text[0] == "-" else f"-{text}")
        if sign.text == "+":
            what = "a plus sign stands before something other than a number"
            raise self.refuse(what, at=sign)
        return ex.Negative(operand)

    def read_chain(self, left: Expression) -> Expression:
        """Read all that AND, or OR, joins."""
        word = self.here.text
        kind = ex.And if word == "and" else ex.Or
        parts = [left]
        while self.takes(word):
            parts.append(self.read_right(word))
        return kind(ex.flat(kind, parts))

    def read_right(self, operator: str) -> Expression:
        """Read what stands right of an operator: only what binds more tightly."""
        return self.read_expression(self.operators[operator].power + 1)

    def read_arithmetic(self, left: Expression) -> Expression:
        """Read ``+ right``, and so on."""
        operator: Any = self.step().text
        return ex.Arithmetic(operator, left, self.read_right(operator))

    def read_concatenation(self, left: Expression) -> Expression:
        """Read ``|| right``."""
        return ex.Call("||", (left, self.read_right(self.step().text)))

    def read_comparison(self, left: Expression) -> Expression:
        """Read ``= right``, and so on, or ``= ANY (ARRAY[…])`` and ``<> ALL (ARRAY[…])``."""
        text = self.step().text
        operator: Any = "<>" if text == "!=" else text
        quantifiers = {"=": ("any", "some"), "<>": ("all",)}.get(operator, ())
        if self.here.is_word(*quantifiers) and self.ahead(2).is_word("array"):
            return _among(left, self.read_quantified(), negated=operator == "<>")
        return ex.Comparison(operator, left, self.read_right(text))

    def read_quantified(self) -> tuple[Expression, ...]:
        """Read ``ANY (ARRAY[…]::type[])``."""
        self.step()
        self.open()
        items = self.read_array(self.read_expression)
        if self.takes("::"):
            at, to = self.here, self.read_type()
            if not self.takes("[", "]"):
                raise self.refuse("an array is cast to what is no array", LISTED, at)
            items = tuple(_cast(item, to) for item in items)
        if not self.here.is_symbol(")"):
            raise self.refuse("an array is used for more than a list", LISTED)
        self.close()
        return items

    def read_is(self, left: Expression) -> Expression:
        """Read ``IS [NOT] NULL``, and so on."""
        operator = self.step().text
        negated = self.takes("not")
        if self.takes("null"):
            return ex.NullTest(left, negated)
        if self.takes("distinct"):
            self.require("from")
            right = self.read_right(operator)
            if right == _CONSTANTS["null"]:
                return ex.NullTest(left, not negated)
            return ex.Distinct(left, right, negated)
        truth: Any = self.here.text
        if not self.here.is_word("true", "false", "unknown"):
            raise self.refuse(
                "IS is only supported with NULL, TRUE, FALSE, UNKNOWN and DISTINCT FROM"
            )
        self.step()
        return ex.TruthTest(left, truth, negated)

    def read_test(self, left: Expression) -> Expression:
        """Read ``[NOT] BETWEEN …``, ``IN``, ``LIKE`` or ``ILIKE``."""
        negated = self.takes("not")
        word = self.step().text
        if word == "in":
            return _among(left, self.read_arguments(), negated=negated)
        if word == "between":
            low = self.read_low(word)
            self.require("and")
            return ex.Range(left, low, self.read_right(word), negated)
        pattern = self.read_pattern(word)
        escape = self.read_escape() if self.takes("escape") else None
        return ex.Pattern(left, pattern, escape, word == "like", negated)

    def read_low(self, operator: str) -> Expression:
        """Read the lower end of BETWEEN: PostgreSQL wants AT TIME ZONE in parentheses there."""
        outer, self._plain_depth = self._plain_depth, self.depth
        low = self.read_right(operator)
        self._plain_depth = outer
        if self.here.is_word("at"):
            raise self.refuse_grouping(_TEST)
        return low

    def read_pattern(self, operator: str) -> Expression:
        """Read the pattern of LIKE or ILIKE."""
        at, pattern = self.here, None
        if at.kind == "string" or at.is_word("lower", "upper") or at.is_symbol("("):
            pattern = self.read_right(operator)
        parts = list(ex.walk(pattern))
        if not parts or not all(map(_is_fixed_text, parts)):
            what = "a pattern must be a quoted string"
            raise self.refuse(what, "write the pattern in single quotes", at)
        if sum(len(part.text) for part in parts if isinstance(part, ex.Literal)) > MAX_PATTERN:
            what = f"a pattern of LIKE has more than {MAX_PATTERN:,} characters"
            raise self.refuse(what, "ask for a shorter part of the text", at)
        return parts[0]

    def read_escape(self) -> ex.Literal:
        """Read the character of ESCAPE."""
        if self.here.kind != "string":
            raise self.refuse("ESCAPE needs a quoted character", "write it in single quotes")
        if len(self.here.text) > 1:
            raise self.refuse("ESCAPE needs one character or none")
        return self.read_string()

    def read_containment(self, left: Expression) -> Expression:
        """Read ``<@ range(low, high)``."""
        operator = self.step()
        function = self.here
        if not (function.is_word(*ex.RANGES) and self.ahead(1).is_symbol("(")):
            raise self.refuse(
                "<@ is only supported with a range",
                "write age <@ int4range(20, 30), or age >= 20 AND age < 30",
                operator,
            )
        self.step()
        match self.read_arguments():
            case (low, high):
                return ex.Contained(left, function.text, low, high, "[)")
            case (low, high, ex.Literal("string", bounds)) if bounds in _BOUNDS:
                return ex.Contained(left, function.text, low, high, bounds)
        raise self.refuse(
            "a range has other parts than its ends and their kinds",
            "write age <@ int4range(20, 30), or int4range(20, 30, '[]')",
            operator,
        )

    def read_zone(self, left: Expression) -> Expression:
        """Read ``AT TIME ZONE 'zone'``."""
        self.require("at", "time", "zone")
        return ex.Call("timezone", (self.read_string(), left))

    def read_cast_behind(self, left: Expression) -> Expression:
        """Read ``::type``."""
        self.step()
        return _cast(left, self.read_type())

    operators: ClassVar[Mapping[str, Operator]] = {
        "or": Operator(_OR, read_chain),
        "and": Operator(_AND, read_chain),
        "is": Operator(_IS, read_is),
        **dict.fromkeys(
            ("=", "<>", "!=", "<", "<=", ">", ">="), Operator(_COMPARE, read_comparison)
        ),
        **dict.fromkeys(("between", "in", "like", "ilike", "not"), Operator(_TEST, read_test)),
        "||": Operator(_OTHER, read_concatenation),
        "<@": Operator(_OTHER, read_containment),
        **dict.fromkeys("+-", Operator(_ADD, read_arithmetic)),
        **dict.fromkeys("*/%", Operator(_MULTIPLY, read_arithmetic)),
        "at": Operator(_ZONE, read_zone),
        "::": Operator(_CAST, read_cast_behind),
    }
    """Each operator, by the word or symbol that it begins with."""

    def read_operand(self) -> Expression:
        """Read a constant, a column, a call, CASE, or what is in parentheses."""
        kind, text, _ = self.here
        after = self.ahead(1)
        if kind == "number":
            return ex.Literal("number", self.step().text)
        if kind == "string":
            return self.read_string()
        if kind == "symbol" and text == "(":
            return self.read_total() if after.is_word("select") else self.read_parentheses()
        if kind == "word":
            if after.is_symbol("(") and text in self.functions:
                return self.functions[text](self)
            if after.kind == "string" and text in _LITERAL_TYPES:
                return self.read_typed_constant()
            if text in _CONSTANTS:
                self.step()
                return _CONSTANTS[text]
            if text == "case":
                return self.read_case()
        return self.read_column()

    def read_string(self) -> ex.Literal:
        """Read a quoted constant."""
        if self.here.kind != "string":
            raise self.refuse_next()
        return ex.Literal("string", self.step().text)

    def read_typed_constant(self) -> ex.Literal:
        """Read ``DATE '…'``, ``TIMESTAMP '…'`` or ``INTERVAL '…'``."""
        kind = self.step()
        text = self.step().text
        if kind.text == "interval" and not _INTERVAL.fullmatch(text):
            raise self.refuse(
                "an interval is more than a number and a unit",
                "write INTERVAL '30 days', or '-1 year'",
                kind,
            )
        return ex.Literal(_LITERAL_TYPES[kind.text], text)

    def read_column(self) -> ex.Name:
        """Read a column with its qualifiers."""
        first = self.here
        parts = [self.read_name()]
        while self.takes("."):
            if self.here.is_symbol("*"):
                raise self.refuse("a whole row is used as a column")
            parts.append(self.read_name())
        if self.here.kind == "string" and self.ahead(-1).kind == "word":
            raise self.refuse("constants of this type are not supported", _CONSTANT_HINT, first)
        if len(parts) > 3:
            raise self.refuse("a column has too many qualifiers", at=first)
        return ex.Name(tuple(parts), position=first.position)

    def read_parentheses(self) -> Expression:
        """Read an expression in parentheses."""
        at = self.here
        self.open()
        expression = self.read_expression()
        if self.here.is_symbol(","):
            what, hint = (
                "comparisons of rows are not supported",
                "compare column by column, with AND",
            )
            raise self.refuse(what, hint, at)
        self.close()
        return expression

    @abstractmethod
    def read_total(self) -> ex.WindowTotal:
        """Read a subselect, which is a total."""

    def read_case(self) -> ex.Case:
        """Read either form of CASE."""
        case = self.step()
        self.enter(case)
        subject = None if self.here.is_word("when") else self.read_expression()
        self.require("when")
        branches = [self.read_branch(subject)]
        while self.takes("when"):
            branches.append(self.read_branch(subject))
        if sum(1 for _ in ex.walk(subject)) * len(branches) > MAX_REPEATED:
            raise self.refuse(  # nested, it would double at each level
                "what CASE compares is too long: each WHEN repeats it",
                "write CASE WHEN <condition> THEN ...",
                case,
            )
        default = self.read_expression() if self.takes("else") else None
        self.require("end")
        self.leave()
        return ex.Case(tuple(branches), default)

    def read_branch(self, subject: Expression | None) -> tuple[Expression, Expression]:
        """Read ``condition THEN result``; the condition is that of the subject, if there is one."""
        condition = self.read_expression()
        if subject is not None:
            condition = ex.Comparison("=", subject, condition)
        self.require("then")
        return condition, self.read_expression()


def _cast(operand: Expression, to: str) -> Expression:
    match operand:
        case ex.Literal("string", text) if to in _LITERAL_TYPES:
            return ex.Literal(_LITERAL_TYPES[to], text)
    return ex.Cast(operand, to)


def _among(operand: Expression, items: tuple[Expression, ...], *, negated: bool) -> Expression:
    if len(items) == 1:
        return ex.Comparison("<>" if negated else "=", operand, items[0])
    return ex.Membership(operand, items, negated)


def _is_fixed_text(part: Expression) -> bool:
    """Whether a part of a pattern is a constant, or made of constants."""
    return (isinstance(part, ex.Call) and part.function in ("||", "lower", "upper")) or (
        isinstance(part, ex.Literal) and part.kind == "string"
    )
