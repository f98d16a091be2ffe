"""Reads expressions by the binding powers of their operators, which are those of PostgreSQL."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from kanon_db.errors import UnsupportedQueryError
from kanon_db.query import expressions as ex
from kanon_db.query._calls import CONSTANTS, INTERVAL_TEXT, LITERAL_TYPES, CallParser, cast
from kanon_db.query._lexemes import LISTED, LISTED_PATTERNS, Lexeme
from kanon_db.query.expressions import MAX_PATTERN, Expression
from kanon_db.query.ranges import RANGES

MAX_REPEATED: Final = 4_000
"""The most parts of the operand of a CASE, times its number of WHENs."""

# What binds looser comes first, as in the grammar of PostgreSQL 14 to 18.
(
    _OR, _AND, _NOT, _IS, _COMPARE, _TEST, _OTHER, _ADD, _MULTIPLY, _ZONE, _SIGN, _CAST, _OPERAND
) = range(1, 14)  # fmt: skip

_NOT_ASSOCIATIVE: Final = frozenset({_IS, _COMPARE, _TEST})

_ELEMENT: Final = re.compile(r' *(?:"([^"\\]*)" *|([^",{}\\]+))(?:,|$)')
_ARRAY_TEXT: Final = re.compile(r'\{(?: *(?:"[^"\\]*" *|[^",{}\\]+)(?:,(?!\})|(?=\})))+\}')
_BOUNDS: Final = ("[)", "[]", "()", "(]")
_CONSTANT_HINT: Final = (
    "write DATE '...', TIMESTAMP '...' or a plain quoted string, which takes the type of what it is"
    " compared with"
)


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
        if self.here.is_word(*quantifiers) and self.begins_array:
            return _among(left, self.read_quantified(), negated=operator == "<>")
        return ex.Comparison(operator, left, self.read_right(text))

    @property
    def begins_array(self) -> bool:
        """Whether an array comes after the next word and a parenthesis."""
        return self.ahead(2).is_word("array") or self.ahead(2).kind == "string"

    def read_quantified(self) -> tuple[Expression, ...]:
        """Read ``ANY (ARRAY[…]::type[])``, or ``ANY ('{…}')``."""
        self.step()
        self.open()
        if self.here.kind == "string":
            items = self.read_array_text()
        else:
            items = self.read_array(self.read_expression)
        if self.takes("::"):
            at, to = self.here, self.read_type()
            if not self.takes("[", "]"):
                raise self.refuse("an array is cast to what is no array", LISTED, at)
            items = tuple(cast(item, to) for item in items)
        if not self.here.is_symbol(")"):
            raise self.refuse("an array is used for more than a list", LISTED)
        self.close()
        return items

    def read_array_text(self) -> tuple[Expression, ...]:
        """Read ``'{a, b}'``, an array as a text."""
        at = self.step()
        if not _ARRAY_TEXT.fullmatch(at.text):
            raise self.refuse("a text cannot be read as an array", LISTED, at)
        elements = _ELEMENT.findall(at.text[1:-1])
        return tuple(
            CONSTANTS["null"] if plain.strip().lower() == "null"
            else ex.Literal("string", quoted or plain.strip())
            for quoted, plain in elements
        )  # fmt: skip

    def read_is(self, left: Expression) -> Expression:
        """Read ``IS [NOT] NULL``, and so on."""
        operator = self.step().text
        negated = self.takes("not")
        if self.takes("null"):
            return ex.NullTest(left, negated)
        if self.takes("distinct"):
            self.require("from")
            right = self.read_right(operator)
            if right == CONSTANTS["null"]:
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
        if word == "in" and self.here.is_symbol("(") and self.ahead(1).is_word("select"):
            among = self.read_among((left,))
            return ex.Not(among) if negated else among
        if word == "in":
            return _among(left, self.read_arguments(), negated=negated)
        if word == "between":
            at, is_symmetric = self.here, self.takes("symmetric")
            if not is_symmetric:
                self.takes("asymmetric")
            low = self.read_low(word)
            self.require("and")
            ends = low, self.read_right(word)
            low, high = self.sort_ends(ends, at) if is_symmetric else ends
            return ex.Range(left, low, high, negated)
        operator: Any = word.upper()
        if self.here.is_word("any", "some", "all") and self.begins_array:
            kind = ex.And if self.here.is_word("all") else ex.Or
            tests = [ex.Pattern(left, operator, one, None, negated) for one in self.read_patterns()]
            return ex.joined(kind, tests) or tests[0]
        pattern = self.read_pattern(word)
        escape = self.read_escape() if self.takes("escape") else None
        return ex.Pattern(left, operator, pattern, escape, negated)

    def read_patterns(self) -> tuple[Expression, ...]:
        """Read ``ANY (ARRAY['a%', 'b%'])``."""
        at, patterns = self.here, self.read_quantified()
        if not all(map(_is_fixed_text, patterns)):
            raise self.refuse("a pattern must be a quoted string", LISTED_PATTERNS, at)
        return patterns

    def sort_ends(
        self, ends: tuple[Expression, Expression], at: Lexeme
    ) -> tuple[Expression, Expression]:
        """Put the ends of BETWEEN SYMMETRIC in order: two numbers, or two dates."""
        match ends:
            case (ex.Literal("number", low), ex.Literal("number", high)):
                return ends if float(low) <= float(high) else (ends[1], ends[0])
            case (ex.Literal("date", low), ex.Literal("date", high)):
                return ends if low <= high else (ends[1], ends[0])
        raise self.refuse(
            "BETWEEN SYMMETRIC is only supported with two numbers or two dates",
            "write BETWEEN with the lower value first",
            at,
        )

    def read_match(self, left: Expression) -> Expression:
        """Read ``~ 'pattern'``, and so on."""
        text = self.step().text
        operator: Any = text.removeprefix("!")
        return ex.Pattern(left, operator, self.read_pattern(text), negated=text != operator)

    def read_low(self, operator: str) -> Expression:
        """Read the lower end of BETWEEN: PostgreSQL wants AT TIME ZONE in parentheses there."""
        outer, self._plain_depth = self._plain_depth, self.depth
        low = self.read_right(operator)
        self._plain_depth = outer
        if self.here.is_word("at"):
            raise self.refuse_grouping(_TEST)
        return low

    def read_pattern(self, operator: str) -> Expression:
        """Read the pattern of LIKE, or of a regular expression."""
        at, pattern = self.here, None
        if at.kind == "string" or at.is_word("lower", "upper") or at.is_symbol("("):
            pattern = self.read_right(operator)
        parts = list(ex.walk(pattern))
        texts = [part.text for part in parts if isinstance(part, ex.Literal)]
        if "~" in operator and any(map(ex.refers_back, texts)):
            what = "a regular expression refers to what it found before"
            raise self.refuse(what, "write what is meant once more, without \\1", at)
        if not parts or not all(map(_is_fixed_text, parts)):
            what = "a pattern must be a quoted string"
            raise self.refuse(what, "write the pattern in single quotes", at)
        if sum(map(len, texts)) > MAX_PATTERN:
            what = f"a pattern has more than {MAX_PATTERN:,} characters"
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
        if not (function.is_word(*RANGES) and self.ahead(1).is_symbol("(")):
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
        return self.read_cast_to(left)

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
        **dict.fromkeys(("~", "~*", "!~", "!~*"), Operator(_OTHER, read_match)),
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
            if after.kind == "string" and text in LITERAL_TYPES:
                return self.read_typed_constant()
            if self.reads("timestamp", "with", "time", "zone") and self.ahead(4).kind == "string":
                self.require("timestamp", "with", "time", "zone")
                return ex.Literal("timestamptz", self.step().text)
            if text in CONSTANTS:
                self.step()
                return CONSTANTS[text]
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
        if kind.text == "interval" and not INTERVAL_TEXT.fullmatch(text):
            raise self.refuse(
                "an interval is more than a number and a unit",
                "write INTERVAL '30 days', or '-1 year'",
                kind,
            )
        return ex.Literal(LITERAL_TYPES[kind.text], text)

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
        """Read an expression in parentheses, or a row that is compared with others."""
        at = self.here
        operands = self.read_arguments()
        if len(operands) == 1:
            return operands[0]
        negated = self.reads("not", "in")
        if negated:
            self.step()
        if not self.takes("in"):
            hint = "compare column by column, with AND, or write (a, b) IN ((1, 2), (3, 4))"
            raise self.refuse("comparisons of rows are not supported", hint, at)
        if self.ahead(1).is_word("select"):
            among = self.read_among(operands)
        else:
            self.open()
            rows = self.read_list(self.read_arguments)
            self.close()
            tests = [_equal(operands, row) for row in rows if len(row) == len(operands)]
            if len(tests) < len(rows):
                raise self.refuse("rows of different lengths are compared", "list as many", at)
            among = ex.joined(ex.Or, tests) or tests[0]
        return ex.Not(among) if negated else among

    @abstractmethod
    def read_total(self) -> ex.WindowTotal:
        """Read a subselect, which is a total."""

    @abstractmethod
    def read_among(self, operands: tuple[Expression, ...]) -> Expression:
        """Read a subselect behind IN."""

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


def _equal(operands: tuple[Expression, ...], row: tuple[Expression, ...]) -> Expression:
    pairs = zip(operands, row, strict=True)
    return ex.And(tuple(ex.Comparison("=", one, other) for one, other in pairs))


def _among(operand: Expression, items: tuple[Expression, ...], *, negated: bool) -> Expression:
    if len(items) == 1:
        return ex.Comparison("<>" if negated else "=", operand, items[0])
    return ex.Membership(operand, items, negated)


def _is_fixed_text(part: Expression) -> bool:
    """Whether a part of a pattern is a constant, or made of constants."""
    return (isinstance(part, ex.Call) and part.function in ("||", "lower", "upper")) or (
        isinstance(part, ex.Literal) and part.kind == "string"
    )
