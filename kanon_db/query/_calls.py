"""Reads calls of functions, and the types that values are cast to."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import Any, ClassVar, Final

from kanon_db.query import expressions as ex
from kanon_db.query._lexemes import LISTED, Item, Lexeme, LexemeCursor, fold
from kanon_db.query.expressions import MOST_DIGITS, Expression
from kanon_db.query.formulas import STATISTICS

VALUE_FUNCTIONS: Final = frozenset(
    "abs btrim ceil ceiling char_length character_length concat floor greatest initcap least left"
    " length lower ltrim regexp_replace replace right rtrim sign split_part strpos substr substring"
    " to_char trim trunc upper width_bucket".split()
)
"""The functions of values: immutable, without side effects, and of no catalog (`_bind`)."""

_SYNONYMS: Final = {
    "ceiling": "ceil", "char_length": "length", "character_length": "length", "substring": "substr",
    "trim": "btrim",
}  # fmt: skip

CONSTANTS: Final = {
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

LITERAL_TYPES: Final[Mapping[str, ex.LiteralKind]] = {
    "date": "date", "timestamp": "timestamp", "timestamp without time zone": "timestamp",
    "timestamptz": "timestamptz", "interval": "interval",
}  # fmt: skip
"""The types of which a quoted constant makes a constant."""

INTERVAL_TEXT: Final = re.compile(
    r"\s*[+-]?[0-9]{1,6}\s*(second|minute|hour|day|week|month|year)s?\s*", re.IGNORECASE
)
"""The texts of intervals that are read: a number and a unit."""

_DATE_PATTERNS: Final = {
    "YYYY-MM-DD": "%Y-%m-%d", "YYYYMMDD": "%Y%m%d", "DD.MM.YYYY": "%d.%m.%Y",
    "DD/MM/YYYY": "%d/%m/%Y", "MM/DD/YYYY": "%m/%d/%Y",
}  # fmt: skip
_TIME_PATTERNS: Final = {
    f"{day} {time}": f"{of_day} {of_time}"
    for day, of_day in _DATE_PATTERNS.items()
    for time, of_time in (
        ("HH24:MI", "%H:%M"), ("HH24:MI:SS", "%H:%M:%S"), ("HH24:MI:SS.US", "%H:%M:%S.%f"),
    )
}  # fmt: skip
_TRUNCATED: Final = frozenset(
    "second minute hour day week month quarter year decade century millennium".split()
)
_EXTRACTED: Final = _TRUNCATED | frozenset("dow isodow doy isoyear epoch".split())
_SHARES: Final = {"min": 0.0, "max": 1.0}

_TRIMMED: Final = ("from", "for", "both", "leading", "trailing")
_WITHOUT_FROM: Final = {"substring": "write substr(x, 1, 3)", "trim": "write btrim(x, ' ')"}

_TYPE_HINT: Final = (
    "the types are integer, bigint, smallint, numeric, real, double precision, text, date,"
    " timestamp and boolean, without modifiers"
)
_ORDER_HINT: Final = (
    "write percentile_cont(0.1) ... (ORDER BY x) for percentile_cont(0.9) ... (ORDER BY x DESC)"
)


class CallParser(LexemeCursor):
    """Reads calls of functions; each method reads one construct, from its first lexeme on."""

    @abstractmethod
    def read_expression(self, least: int = 1) -> Expression:
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
        if function.is_word("substring") and len(operands) == 1:
            operands += self.read_part_of_text()
        if function.is_word(*_WITHOUT_FROM) and self.here.is_word(*_TRIMMED):
            what = f"FROM in {function.text.upper()} is not supported"
            raise self.refuse(what, _WITHOUT_FROM[function.text], function)
        self.close()
        return ex.Call(_SYNONYMS.get(function.text, function.text), operands)

    def read_part_of_text(self) -> tuple[Expression, ...]:
        """Read ``FROM 1 FOR 3`` behind the text of SUBSTRING."""
        if self.reads("from") and self.ahead(1).kind == "string":
            return ()  # a pattern
        begin = self.read_expression() if self.takes("from") else None
        length = self.read_expression() if self.takes("for") else None
        if begin is None and length is not None:
            begin = ex.Literal("number", "1")
        return tuple(part for part in (begin, length) if part is not None)

    def read_mark(self) -> ex.GroupMark:
        """Read ``GROUPING(operand)``."""
        function, operands = self.step(), self.read_arguments()
        if len(operands) != 1:
            raise self.refuse(
                "GROUPING of several columns", "write GROUPING(a), GROUPING(b)", function
            )
        return ex.GroupMark(operands[0])

    def read_now(self) -> ex.Literal:
        """Read ``now()``."""
        self.step()
        self.open()
        self.close()
        return CONSTANTS["current_timestamp"]

    def read_moment(self) -> ex.Literal:
        """Read TO_DATE or TO_TIMESTAMP of a constant."""
        function = self.step()
        is_day = function.is_word("to_date")
        instead = "write DATE '2024-01-31'" if is_day else "write TIMESTAMP '2024-01-31 00:00'"
        match self.read_arguments():
            case (ex.Literal("string", text), ex.Literal("string", pattern)):
                patterns = _DATE_PATTERNS if is_day else {**_DATE_PATTERNS, **_TIME_PATTERNS}
                try:
                    moment = datetime.strptime(text, patterns[pattern.upper()])
                except (KeyError, ValueError):
                    what = "a constant cannot be read as a date"
                    raise self.refuse(what, instead, function) from None
                if is_day:
                    return ex.Literal("date", moment.date().isoformat())
                return ex.Literal("timestamptz", moment.isoformat(" "))
        raise self.refuse(
            f"{function.text.upper()} of more than a constant could fail on some value",
            f"{instead}, or compare the column as it is",
            function,
        )

    def read_day(self) -> Expression:
        """Read ``date(operand)``, a cast."""
        return self.read_cast_call("date")

    def read_cast_call(self, to: str) -> Expression:
        """Read a call that is a cast of its one argument."""
        function, operands = self.step(), self.read_arguments()
        if len(operands) != 1:
            raise self.refuse("a cast is given several values", _TYPE_HINT, function)
        return cast(operands[0], to)

    def read_remainder(self) -> ex.Arithmetic:
        """Read ``mod(left, right)``, which is ``left % right``."""
        function, operands = self.step(), self.read_arguments()
        if len(operands) != 2:
            raise self.refuse("MOD is given more or less than two numbers", "write x % 2", function)
        return ex.Arithmetic("%", *operands)

    def read_regular(self) -> ex.Pattern:
        """Read ``regexp_like(operand, pattern)``, which is ``operand ~ pattern``."""
        self.step()
        self.open()
        operand = self.read_expression()
        self.require(",")
        pattern = self.read_pattern("~")
        operator: ex.PatternOperator = "~*" if self.takes_flag("i") else "~"
        self.close()
        return ex.Pattern(operand, operator, pattern)

    def takes_flag(self, flag: str) -> bool:
        """Pass over ``, 'flag'``, if it comes next."""
        if not (self.reads(",") and self.ahead(1).kind == "string" and self.ahead(1).text == flag):
            return False
        self.step()
        self.step()
        return True

    @abstractmethod
    def read_pattern(self, operator: str) -> Expression:
        """Read the pattern of an operator: a quoted text, or what is made of some."""

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
        converted = self.read_cast_to(operand)
        self.close()
        return converted

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
        has_digits = spelling != "" and _TYPES[spelling] == "numeric"
        if (self.here.is_symbol("(") and not has_digits) or self.here.is_word("with", "without"):
            raise self.refuse("a type with modifiers is not supported", "write the type alone")
        return _TYPES[spelling]

    def read_cast_to(self, operand: Expression) -> Expression:
        """Read the type that an operand is cast to; ``numeric(8, 2)`` rounds, too."""
        written = ""
        match operand:
            case ex.Literal("string", text):
                written = text
            case ex.Call("||", (ex.Literal("number", n), ex.Literal("string", unit))):
                written = n + unit
        if INTERVAL_TEXT.fullmatch(written) and self.takes("interval"):
            return ex.Literal("interval", written)
        to, digits = self.read_type(), None
        if to == "numeric" and self.takes("("):
            self.read_modifier()
            digits = self.read_modifier() if self.takes(",") else 0
            self.require(")")
        converted = cast(operand, to)
        return converted if digits is None else ex.Rounded(converted, digits)

    def read_modifier(self) -> int:
        """Read a number of digits."""
        if self.here.kind != "number" or not re.fullmatch("[0-9]{1,3}", self.here.text):
            raise self.refuse("a type has other modifiers than numbers of digits", _TYPE_HINT)
        return int(self.step().text)

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

    def read_statistic(self) -> Expression:
        """Read an aggregate that follows from sums."""
        function, at = self.step(), self.ahead(1)
        operands, rule = self.read_arguments(), STATISTICS[function.text]
        if len(operands) != rule.n_operands:
            example = ", ".join(("<column>", "<other column>")[: rule.n_operands])
            raise self.refuse(
                f"{function.text} is given more or fewer values than it is of",
                f"write {function.text}({example})",
                function,
            )
        for operand in operands:
            self.check_nesting(operand, at)
        return self.read_filter(rule.make(function.text, operands))

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
            if not isinstance(part, ex.Aggregate):
                return part
            conditions = [condition] if part.condition is None else [condition, part.condition]
            return replace(part, condition=ex.joined(ex.And, conditions))

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
        **dict.fromkeys(STATISTICS, read_statistic),
        **dict.fromkeys(("percentile_cont", "percentile_disc"), read_percentile),
        **dict.fromkeys(("extract", "date_part", "date_trunc"), read_date_part),
        "age": read_age,
        "cast": read_cast,
        "coalesce": read_coalesce,
        "date": read_day,
        "grouping": read_mark,
        "mod": read_remainder,
        "now": read_now,
        "nullif": read_nullif,
        "regexp_like": read_regular,
        "round": read_round,
        **dict.fromkeys(("to_date", "to_timestamp"), read_moment),
    }
    """The functions of a count query; without a parenthesis, these words are names."""


def cast(operand: Expression, to: str) -> Expression:
    """Cast an operand; a quoted constant is read as its type."""
    match operand:
        case ex.Literal("string", text) if to in LITERAL_TYPES:
            return ex.Literal(LITERAL_TYPES[to], text)
    return ex.Cast(operand, to)
