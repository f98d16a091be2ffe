"""Binds expressions: finds each column, and gives each expression its type, from the leaves up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from typing import Final, NamedTuple

from kanon_db.errors import UnsupportedQueryError
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Column,
    Name,
    RelationText,
    Rounded,
    common_type,
    number_type,
    refusal,
    result_type,
)
from kanon_db.query.ranges import RANGES


class Scope(NamedTuple):
    """A relation of the query's FROM, with its columns."""

    relation: RelationText
    columns: Mapping[str, Column]
    hidden: str | None = None  # Column that USING merges into the publication's column


class Scopes:
    """The relations of a query: the publication, then its lookup tables."""

    def __init__(self, scopes: Sequence[Scope]) -> None:
        self._scopes = scopes

    def has(self, name: str) -> bool:
        """Whether any relation has a column of this name."""
        return any(name in scope.columns for scope in self._scopes)

    def column(self, name: Name) -> Column:
        """Find the column of a name.

        Raises UnsupportedQueryError when no column, or more than one, has the name.
        """
        *qualifier, column = name.parts
        columns = [
            scope.columns[column]
            for scope in self._find_scopes(tuple(qualifier))
            if column in scope.columns and (qualifier or column != scope.hidden)
        ]
        if not columns:
            raise self._unknown(name)
        if len(columns) > 1:
            raise refusal(
                "a column's name belongs to several relations", hint="qualify it with the relation"
            )
        return columns[0]

    def _unknown(self, name: Name) -> UnsupportedQueryError:
        """Say which column may be meant; a name that is like none could be a value."""
        from difflib import get_close_matches

        *qualifier, column = name.parts
        scope = self._find_scopes(tuple(qualifier))[0]
        known = scope.columns
        whose = "publication" if scope is self._scopes[0] else "lookup table"
        detail = f"at character {name.position} of the query" if name.position else ""
        hint = f"its columns are {', '.join(known)}; strings need single quotes, not double quotes"
        if column == "weight":
            return refusal(
                "answers are weighted already: weight is no column to ask for",
                hint="write COUNT(*) for SUM(weight), and SUM(x) for SUM(x * weight)",
                detail=detail,
            )
        if near := get_close_matches(column.lower(), known, n=1, cutoff=0.6):
            if column.isprintable():
                detail = f'"{column}", {detail}' if detail else f'"{column}"'
            hint = f'write "{near[0]}"; {hint}'
        return refusal(
            f"the query names a column that the {whose} does not have", hint=hint, detail=detail
        )

    def _find_scopes(self, qualifier: tuple[str, ...]) -> Sequence[Scope]:
        if not qualifier:
            return self._scopes
        scopes = [scope for scope in self._scopes if scope.relation.answers_to(qualifier)]
        if not scopes:
            raise refusal(
                "a column is qualified with a name that FROM does not have",
                hint="write only the column's name",
            )
        return scopes


# Casts: answered are those that depend on no setting, and fail on no value.
#
# Only a number that is too large for its new type fails, as in arithmetic.


_TARGETS: Final = {
    type_.name: type_
    for type_ in (
        ex.Type("smallint", "integer"), INTEGER, BIGINT, NUMERIC, ex.Type("real", "float"),
        DOUBLE, TEXT, ex.Type("character varying", "text"), DATE, TIMESTAMP, BOOLEAN,
    )
}  # fmt: skip

_NEVER: Final[dict[tuple[str, str], tuple[str, str]]] = {
    **{
        ("text", to): (
            "a cast of texts could fail on some value",
            "compare with quoted constants, or map texts to values with CASE",
        )
        for to in ("integer", "numeric", "float", "moment", "boolean")
    },
    ("moment", "text"): (
        "the text of a date depends on a setting",
        "compare dates with DATE '...', or take parts of them with EXTRACT",
    ),
    ("float", "text"): (
        "the text of a floating-point number depends on a setting",
        "compare numbers with numbers",
    ),
    ("numeric", "text"): (
        "how many digits a number has after the point is not published",
        "compare numbers with numbers, or cast to integer first",
    ),
}
"""Reasons for refusing a cast from one category to another, with what to write instead."""


def target_of(to: str) -> ex.Type:
    """Return the type that a cast to this name gives a constant."""
    return _TARGETS[to]


def cast_type(type_: ex.Type, to: str) -> ex.Type:
    """Return the type of a value that is cast."""
    # Raises UnsupportedQueryError when the cast is not answered; the error says why, and what to
    # write instead.
    target = _TARGETS[to]
    kinds = type_.category, target.category
    is_plain = type_.operator_schema is None
    if is_plain and (
        set(kinds) <= ex.NUMBERS
        or kinds in (("moment", "moment"), ("boolean", "boolean"), ("boolean", "text"))
        or kinds in (("text", "text"), ("integer", "text"))
        or (kinds == ("label", "text") and type_.labels)
        or {type_.name, to} == {INTEGER.name, BOOLEAN.name}
    ):
        return replace(target, is_ordered=type_.is_ordered, has_equality=type_.has_equality)
    what, hint = _NEVER.get(
        kinds,
        (
            f"a value of type {type_.name} cannot be cast to {to}",
            "compare it as it is, or map its values with CASE",
        ),
    )
    raise refusal(what, hint=hint)


_LITERALS: Final = {
    "boolean": BOOLEAN, "date": DATE, "timestamp": TIMESTAMP, "timestamptz": TIMESTAMPTZ,
    "interval": INTERVAL,
}  # fmt: skip
_TEXTS: Final[dict[str, tuple[str, ex.Type]]] = {
    **dict.fromkeys(("upper", "lower", "initcap"), ("t", TEXT)),
    **dict.fromkeys(("btrim", "ltrim", "rtrim"), ("t|tc", TEXT)),
    **dict.fromkeys(("left", "right"), ("tn", TEXT)),
    "substr": ("tn|tnn", TEXT),
    "replace": ("tcc", TEXT),
    "split_part": ("tcn", TEXT),
    "regexp_replace": ("tcc|tccc", TEXT),
    "length": ("t", INTEGER),
    "strpos": ("tt", INTEGER),
}
"""Functions of texts: what they are given, and the type of what they return. ``t`` stands for a
text, ``c`` for a constant one, ``n`` for a whole number that is written out."""
_ROUNDED: Final = frozenset({"floor", "ceil", "trunc", "round", "sign"})
_FORMAT: Final = re.compile(
    "(?:I?YYYY|YY|MM|Mon(?:th)?|MON(?:TH)?|mon(?:th)?|DDD?|ID|Da?y|DA?Y|da?y|HH24|HH12|HH|MI|SS|MS"
    '|US|AM|PM|am|pm|Q|IW|FM|[-/.,:; _]|"[^"\\\\]{1,20}")+'
)
"""The formats of dates whose texts depend on no setting."""
_ZONE: Final = re.compile(r"[A-Za-z+\-][A-Za-z0-9_+\-/:]{0,39}")
_WRITE_CALL: Final = {
    "t": "write {}(x)", "t|tc": "write {}(x), or {}(x, ' ')", "tn": "write {}(x, 2)",
    "tn|tnn": "write {}(x, 1, 3)", "tcc": "write {}(x, 'abc', 'x'), the longer text first",
    "tt": "write {}(x, 'abc')", "tcn": "write {}(x, '-', 1)",
    "tcc|tccc": "write {}(x, 'a+', ''), or {}(x, ' +', ' ', 'g') with at most one character",
}  # fmt: skip
_ORDERED: Final = ex.NUMBERS | {"moment", "text"}
MOST_JOINED: Final = 50
"""The most texts that are joined by ``||`` and concat."""
_Typed = tuple[ex.Expression, ex.Type]
_ENDS: Final = "x >= 20 AND x < 30"
_PARTS_OF_AGES: Final = frozenset({"year", "month", "day"})
_WRITE_AGE: Final = "write EXTRACT(YEAR FROM AGE(DATE '2024-01-31', <column>))"
_TIMES: Final = frozenset({"hour", "minute", "second"})


class Binder:
    """Binds expressions over the columns of a query's relations."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes

    # -- values -------------------------------------------------------------------------------

    def value(self, expression: ex.Expression) -> tuple[ex.Expression, ex.Type]:
        """Bind an expression that stands alone, where a plain string is a text."""
        bound, type_ = self.bind(expression)
        return (bound, type_) if type_ is not None else (self._given(bound, TEXT), TEXT)

    def bind(self, expression: ex.Expression) -> tuple[ex.Expression, ex.Type | None]:
        """Bind an expression; a plain string and NULL stay without a type."""
        match expression:
            case ex.Literal("number", text):
                of_number = number_type(text)
                return ex.Constant(text, of_number), of_number
            case ex.Literal(kind, text):
                type_ = _LITERALS.get(kind)
                return (expression if type_ is None else ex.Constant(text, type_)), type_
            case ex.Name():
                column = self._scopes.column(expression)
                return column, column.type
            case ex.Negative(operand):
                bound, type_ = self._number(operand)
                return ex.Negative(bound), type_
            case ex.Arithmetic(operator, left, right):
                sides = self.bind(left), self.bind(right)  # once: sums may be deeply nested
                if operator in ("+", "-") and (moved := _move(operator, *sides)):
                    return moved
                (one, one_type), (other, other_type) = map(_number, sides)
                if operator == "%" and "float" in (one_type.category, other_type.category):
                    raise refusal("% is not supported for floating-point numbers")
                return ex.Arithmetic(operator, one, other), result_type(one_type, other_type)
            case ex.DatePart():
                return self._date_part(expression)
            case ex.Age():
                raise refusal("AGE is only supported where a part of it is taken", hint=_WRITE_AGE)
            case ex.Case():
                return self._case(expression)
            case ex.Cast(operand, to):
                return self._cast(operand, to)
            case ex.Coalesce(operands):
                given, type_ = self._results(operands, "COALESCE")
                return ex.Coalesce(given), type_
            case ex.NullIf(left, right):
                return self._null_if(left, right)
            case Rounded(operand, digits):
                of = () if digits is None else (ex.Literal("number", str(digits)),)
                return self._call(ex.Call("round", (operand, *of)))
            case ex.Call("||" | "concat"):
                return self._texts_joined(expression)
            case ex.Call("timezone"):
                return self._in_zone(expression)
            case ex.Call("greatest" | "least" as function, operands):
                return self._extreme(function, operands)
            case ex.Call("width_bucket", operands):
                return self._bucket(operands)
            case ex.Call("to_char", operands):
                return self._date_as_text(operands)
            case ex.Call():
                return self._call(expression)
            case ex.GroupMark():
                raise refusal(
                    "GROUPING is only supported as an item of the select list",
                    hint="write SELECT a, GROUPING(a), COUNT(*) ... GROUP BY ROLLUP (a)",
                )
            case ex.WindowTotal():
                raise refusal(
                    "subqueries are not supported in conditions",
                    hint="ask SELECT AVG(...) FROM <publication> first, and write its number",
                )
            case ex.AggregateList():
                raise refusal(
                    "several percentiles are only supported as an item of the select list",
                    hint="write percentile_cont(0.5) WITHIN GROUP (ORDER BY x)",
                )
            case ex.Aggregate() | ex.Statistic():
                raise refusal(
                    "an aggregate is not allowed here",
                    hint="use COUNT, SUM, AVG and so on in the select list, HAVING and ORDER BY",
                )
            case _:
                return self.condition(expression), BOOLEAN

    # -- functions ----------------------------------------------------------------------------

    def _texts_joined(self, call: ex.Call) -> tuple[ex.Expression, ex.Type]:
        """Bind texts that are joined; whole numbers and booleans are joined as their texts."""
        if sum(isinstance(part, ex.Call) for part in ex.walk(call)) > MOST_JOINED:
            raise refusal(f"more than {MOST_JOINED} texts are joined", hint="join fewer texts")
        operands, kinds = [], []
        for operand in call.operands:
            bound, type_ = self.value(operand)
            if type_.category in ("integer", "boolean"):
                bound, type_ = ex.Cast(bound, "text"), TEXT
            if type_.category != "text":
                raise refusal(
                    f"a value of type {type_.name} cannot be joined to a text",
                    hint="join texts and whole numbers; group by two columns for their pairs",
                )
            operands.append(bound)
            kinds.append(type_)
        return ex.Call(call.function, tuple(operands)), _text_of(*kinds)

    def _in_zone(self, call: ex.Call) -> tuple[ex.Expression, ex.Type]:
        zone, operand = call.operands
        if not isinstance(zone, ex.Literal) or not _ZONE.fullmatch(zone.text):
            raise refusal("a time zone is not named", hint="write AT TIME ZONE 'UTC'")
        bound, type_ = self.bind(operand)
        if type_ is None or type_.category != "moment":
            raise refusal(
                "only dates and timestamps have a time zone", hint="write <column> AT TIME ZONE"
            )
        to = TIMESTAMPTZ if type_.name == TIMESTAMP.name else TIMESTAMP
        return ex.Call("timezone", (ex.Constant(zone.text, TEXT), bound)), to

    def _extreme(
        self, function: str, operands: Sequence[ex.Expression]
    ) -> tuple[ex.Expression, ex.Type]:
        """Bind the greatest or the least of some values."""
        given, type_ = self._results(operands, function.upper())
        if type_.labels or not type_.is_ordered or type_.category not in _ORDERED:
            raise refusal(
                f"{function.upper()} is only supported for numbers, dates and texts",
                hint="write CASE WHEN a = 'x' THEN a ELSE b END",
            )
        return ex.Call(function, given), type_

    def _bucket(self, operands: Sequence[ex.Expression]) -> tuple[ex.Expression, ex.Type]:
        """Bind the number of an interval among others of one width."""
        bindings = [self._number(operand)[0] for operand in operands]
        low, high, n = [_text_in(one) for one in bindings[1:]] if len(bindings) == 4 else ("",) * 3
        if not (low and high and float(low) != float(high) and n.isdecimal() and 0 < int(n) < 1e6):
            raise refusal(
                "width_bucket is given something else than it takes",
                hint="write width_bucket(x, 0, 100, 5), of numbers that are written out",
            )
        return ex.Call("width_bucket", tuple(bindings)), INTEGER

    def _date_as_text(self, operands: Sequence[ex.Expression]) -> tuple[ex.Expression, ex.Type]:
        """Bind to_char of a date, in a format that no setting changes."""
        (moment, type_), *formats = [self.bind(operand) for operand in operands]
        match formats:
            case [(ex.Literal("string", text), _)] if _FORMAT.fullmatch(text):
                if type_ is not None and type_.category == "moment":
                    return ex.Call("to_char", (moment, ex.Constant(text, TEXT))), TEXT
        raise refusal(
            "to_char is only supported for dates and timestamps, in formats like YYYY-MM-DD",
            hint="write to_char(<column>, 'YYYY-MM'), or date_trunc('month', <column>)",
        )

    def _call(self, call: ex.Call) -> tuple[ex.Expression, ex.Type]:
        """Bind a function of numbers or texts."""
        name, operands = call.function, call.operands
        if name in _ROUNDED or name == "abs":
            return self._bind_round(name, operands)
        given, to = _TEXTS[name]
        form = next((form for form in given.split("|") if len(form) == len(operands)), None)
        bindings = [self.value(operand) for operand in operands]
        fits = form is not None and all(
            type_.category == "text" and (kind == "t" or isinstance(bound, ex.Constant))
            if kind != "n"
            else isinstance(bound, ex.Constant) and _is_short(bound.text)
            for kind, (bound, type_) in zip(form, bindings, strict=True)
        )
        if fits and name == "replace":  # or nested ones could make a text of any length
            _, (old, _), (new, _) = bindings
            fits = len(_text_in(new)) <= max(1, len(_text_in(old)))
        if fits and name == "regexp_replace":
            fits = _is_harmless(*(one for one, _ in bindings))
        if fits and name == "split_part":
            fits = _text_in(bindings[2][0]) != "0"
        if fits and name == "substr" and len(bindings) == 3:
            fits = not _text_in(bindings[2][0]).startswith("-")
        if not fits:
            raise refusal(
                f"{name} is given something else than it takes",
                hint=_WRITE_CALL[given].format(name, name) + ", of texts",
            )
        bound = ex.Call(name, tuple(one for one, _ in bindings))
        return bound, _text_of(bindings[0][1]) if to is TEXT else to

    def _bind_round(
        self, name: str, operands: Sequence[ex.Expression]
    ) -> tuple[ex.Expression, ex.Type]:
        bound, type_ = self._number(operands[0])
        digits = [self._number(operand)[0] for operand in operands[1:]]
        if name == "abs" and not digits:
            return ex.Call(name, (bound,)), type_
        is_exact = type_.category != "float"
        if name in ("trunc", "round") and len(digits) == 1 and is_exact:
            (n,) = digits
            if isinstance(n, ex.Constant) and _is_short(n.text):
                if type_.category == "integer":
                    bound = ex.Cast(bound, "numeric")
                return ex.Call(name, (bound, n)), NUMERIC
        if digits:
            what = "digits of a floating-point number" if not is_exact else "so many parts"
            raise refusal(
                f"{name} is not supported with {what}", hint=f"write {name}(x), of one number"
            )
        return ex.Call(name, (bound,)), NUMERIC if type_.category == "numeric" else DOUBLE

    def _number(self, expression: ex.Expression) -> tuple[ex.Expression, ex.Type]:
        return _number(self.bind(expression))

    def _date_part(self, part: ex.DatePart) -> tuple[ex.Expression, ex.Type]:
        if isinstance(part.operand, ex.Age):
            return self._part_of_age(part, part.operand)
        operand, type_ = self.bind(part.operand)
        if type_ is None or type_.category != "moment":
            raise refusal(
                "only dates and timestamps have parts", hint="write the column, or DATE '...'"
            )
        if part.function == "extract" and type_ == DATE and part.field in _TIMES:
            raise refusal("a date has no such part", hint="only a timestamp has it")
        part_of_date = ex.DatePart(part.function, part.field, operand)
        truncated = TIMESTAMPTZ if type_.name == DATE.name else type_
        return part_of_date, {"extract": NUMERIC, "date_part": DOUBLE}.get(part.function, truncated)

    def _part_of_age(self, part: ex.DatePart, age: ex.Age) -> tuple[ex.Expression, ex.Type]:
        """Bind a part of an interval between two dates, or timestamps."""
        if part.function == "date_trunc" or part.field not in _PARTS_OF_AGES:
            raise refusal("only the years, months and days of AGE are supported", hint=_WRITE_AGE)
        bindings = [self.bind(operand) for operand in (age.later, age.earlier)]
        known = [type_ for _, type_ in bindings if type_ is not None]
        if not known or any(type_.category != "moment" for type_ in known):
            raise refusal("AGE is only supported for dates and timestamps", hint=_WRITE_AGE)
        # PostgreSQL prefers timestamps with time zone, unless one of the two has none.
        given = TIMESTAMP if TIMESTAMP in known else TIMESTAMPTZ
        later, earlier = (self._given(operand, given) for operand, _ in bindings)
        result = NUMERIC if part.function == "extract" else DOUBLE
        return ex.DatePart(part.function, part.field, ex.Age(later, earlier)), result

    def _case(self, case: ex.Case) -> tuple[ex.Expression, ex.Type]:
        conditions = [self.condition(when) for when, _ in case.branches]
        written = [then for _, then in case.branches]
        if case.default is not None:
            written.append(case.default)
        bindings, type_ = self._results(written, "CASE")
        given = list(bindings)
        default = given.pop() if case.default is not None else None
        return ex.Case(tuple(zip(conditions, given, strict=True)), default), type_

    def _results(
        self, written: Sequence[ex.Expression], of: str
    ) -> tuple[tuple[ex.Expression, ...], ex.Type]:
        """Bind the alternatives of a result, and bring them to one type."""
        results = [self.bind(result) for result in written]
        known = [type_ for _, type_ in results if type_ is not None]
        type_ = common_type(known) if known else TEXT
        if type_ is None or type_.operator_schema is not None:
            raise refusal(
                f"the results of a {of} have incompatible types",
                hint="write results of one type, or IS NULL in a condition of its own",
            )
        return tuple(self._given(result, type_) for result, _ in results), type_

    def _cast(self, operand: ex.Expression, to: str) -> tuple[ex.Expression, ex.Type]:
        bound, type_ = self.bind(operand)
        if type_ is None:
            type_ = target_of(to)
            return self._given(bound, type_), type_
        cast = cast_type(type_, to)
        is_same = (type_.name, type_.category) == (to, cast.category)  # a label is called text, too
        return (bound, type_) if is_same else (ex.Cast(bound, to), cast)

    def _null_if(self, left: ex.Expression, right: ex.Expression) -> tuple[ex.Expression, ex.Type]:
        (one, one_type), (other, other_type) = self._bind_sides(left, right)
        if one_type.operator_schema is not None:
            raise refusal(
                "NULLIF is not supported for values of this type",
                hint="write CASE WHEN ... = ... THEN NULL ELSE ... END",
            )
        kinds = {one_type.category, other_type.category}
        # The result has the type that `=` compares: whole only if both numbers are.
        type_ = result_type(one_type, other_type) if kinds <= ex.NUMBERS else one_type
        if len(kinds) == 1:
            type_ = one_type
        return ex.NullIf(one, other), type_

    def _given(self, expression: ex.Expression, type_: ex.Type) -> ex.Expression:
        """Give a plain string or NULL a type; other expressions have one."""
        match expression:
            case ex.Literal("null"):
                return ex.Constant(None, type_)
            case ex.Literal(_, text):
                if type_.labels and text not in type_.labels:
                    raise refusal(
                        "a constant is none of the values that the column's type has",
                        hint="write it as the source's enumeration spells it",
                    )
                return ex.Constant(text, type_)
            case _:
                return expression

    # -- conditions ---------------------------------------------------------------------------

    def condition(self, expression: ex.Expression) -> ex.Expression:
        """Bind an expression that must be a condition."""
        match expression:
            case ex.And() | ex.Or() | ex.Not() | ex.TruthTest():
                return ex.rebuilt(expression, self.condition)
            case ex.Comparison("=" | "<>" as operator, left, right):
                (one, _), (other, _) = self._bind_sides(left, right)
                return ex.Comparison(operator, one, other)
            case ex.Comparison(operator, left, right):
                one, other = starmap(_order_as_source, self._bind_sides(left, right))
                return ex.Comparison(operator, one, other)
            case ex.Distinct(left, right, negated):
                (one, _), (other, _) = self._bind_sides(left, right)
                return ex.Distinct(one, other, negated)
            case ex.Membership(operand, items, negated):
                return self._membership(operand, items, negated=negated)
            case ex.Range(operand, low, high, negated):
                one, least = starmap(_order_as_source, self._bind_sides(operand, low))
                _, most = starmap(_order_as_source, self._bind_sides(operand, high))
                return ex.Range(one, least, most, negated)
            case ex.Contained():
                return self._bind_containment(expression)
            case ex.Pattern():
                return self._pattern(expression)
            case ex.NullTest(operand, negated):
                return ex.NullTest(self.value(operand)[0], negated)
        bound, type_ = self.bind(expression)
        if bound == ex.Literal("null", ""):
            return ex.Constant(None, BOOLEAN)
        if type_ is None or type_.category != "boolean":
            what = "a column" if isinstance(bound, ex.Column) else "a value"
            raise refusal(
                f"a condition is needed here, not {what}",
                hint="compare it with a constant; strings need single quotes, not double quotes",
            )
        return bound

    def _bind_containment(self, test: ex.Contained) -> ex.Expression:
        """Bind ``<@`` as comparisons with the ends of the range; one that is NULL is none."""
        of = RANGES[test.range_type].end
        if any(isinstance(part, ex.Contained) for part in ex.walk(test.operand)):
            # Each level binds its operand three times.
            raise refusal("<@ is nested in the operand of <@", hint=f"write {_ENDS}")
        _, type_ = self.bind(test.operand)
        if type_ is None or type_.name != of:
            fitting = (name for name, one in RANGES.items() if type_ and one.end == type_.name)
            raise refusal(
                f"{test.range_type} holds values of type {of}, which these are not",
                hint=f"write <@ {next(fitting, 'int4range')}(...), or {_ENDS}",
            )
        parts = []
        ends: tuple[tuple[ex.Expression, ex.ComparisonOperator], ...] = (
            (test.low, ">=" if test.bounds[0] == "[" else ">"),
            (test.high, "<=" if test.bounds[1] == "]" else "<"),
        )
        for end, operator in ends:
            given = end.operand if isinstance(end, ex.Negative) else end
            if not isinstance(given, ex.Literal | ex.Arithmetic):
                raise refusal("the end of a range is not a constant", hint="write its number")
            if given != ex.Literal("null", ""):
                typed = end if given.kind != "string" else ex.Cast(end, of)  # type: ignore[union-attr]
                parts.append(ex.Comparison(operator, test.operand, typed))
        if not parts:
            raise refusal("a range has no ends", hint="write IS NOT NULL")
        condition = self.condition(ex.joined(ex.And, parts) or parts[0])
        tests = condition.parts if isinstance(condition, ex.And) else (condition,)
        bounds = [part.right for part in tests if isinstance(part, ex.Comparison)]
        texts = [end.text for end in bounds if isinstance(end, ex.Constant) and end.text]
        if len(texts) == 2 and type_.category in ex.NUMBERS and float(texts[0]) > float(texts[1]):
            raise refusal("a range ends before it begins", hint="write the lower end first")
        return condition

    def _bind_sides(self, left: ex.Expression, right: ex.Expression) -> tuple[_Typed, _Typed]:
        """Bind two sides of a comparison."""
        (one, one_type), (other, other_type) = self.bind(left), self.bind(right)
        if ex.Literal("null", "") in (one, other):
            raise refusal("a comparison with NULL is never true", hint="write IS NULL")
        known = [type_ for type_ in (one_type, other_type) if type_ is not None] or [TEXT]
        if common_type(known) is None:
            raise _misfit(one, one_type, other, other_type)
        _require_equality(one, other)
        _require_short((one, other), (one, other))
        return (
            (self._given(one, known[-1]), one_type or known[-1]),
            (self._given(other, known[0]), other_type or known[0]),
        )

    def _membership(
        self, operand: ex.Expression, items: Sequence[ex.Expression], *, negated: bool
    ) -> ex.Expression:
        bound, type_ = self.bind(operand)
        bindings = [self.bind(item) for item in items]
        if ex.Literal("null", "") in (bound, *(item for item, _ in bindings)):
            raise refusal(
                "a comparison with NULL is never true",
                hint="leave NULL out of the list, and write OR x IS NULL where it is meant",
            )
        _require_equality(bound, *(item for item, _ in bindings))
        _require_short((bound,), [item for item, _ in bindings])
        known = [t for _, t in ((bound, type_), *bindings) if t is not None]
        common = common_type(known) if known else TEXT
        if common is None:
            for item, item_type in bindings:
                if type_ is None or (item_type is not None and not common_type((type_, item_type))):
                    raise _misfit(bound, type_, item, item_type)
            raise refusal("the items of a list have incompatible types")
        return ex.Membership(
            self._given(bound, common),
            tuple(self._given(item, common) for item, _ in bindings),
            negated,
            common,
        )

    def _pattern(self, pattern: ex.Pattern) -> ex.Expression:
        operand, type_ = self.value(pattern.operand)
        if type_.category != "text":
            raise refusal(
                f"{pattern.operator} cannot compare a value of type {type_.name}",
                hint="LIKE compares texts; a number is cast first, as in x::text LIKE '1%'",
            )
        _require_short((operand,), (pattern.pattern,), ignored="%\\")
        escape = None if pattern.escape is None else self._given(pattern.escape, TEXT)
        written = self.value(pattern.pattern)[0]
        return ex.Pattern(operand, pattern.operator, written, escape, pattern.negated)


def _text_of(*types: ex.Type) -> ex.Type:
    """Return the type of a text that is made of others."""
    return replace(
        TEXT,
        is_ordered=all(type_.is_ordered for type_ in types),
        has_equality=all(type_.has_equality for type_ in types),
    )


def _is_harmless(
    text: ex.Expression,
    pattern: ex.Expression,
    new: ex.Expression,
    flags: ex.Expression | None = None,
) -> bool:
    """Whether it can replace what it finds: texts get not much longer, nor is it slow."""
    how, by = _text_in(flags) if flags else "", _text_in(new)
    is_nested = any(
        isinstance(part, ex.Call) and "regexp" in part.function for part in ex.walk(text)
    )
    return (
        set(how) <= set("gi")
        and "\\" not in by
        and len(by) <= (0 if "g" in how and is_nested else 1 if "g" in how else ex.MAX_PATTERN)
        and len(_text_in(pattern)) <= ex.MAX_PATTERN
        and not ex.refers_back(_text_in(pattern))
    )


def _text_in(constant: ex.Expression) -> str:
    return (constant.text or "") if isinstance(constant, ex.Constant) else ""


def _is_short(text: str | None) -> bool:
    """Whether a constant is a whole number that a function may be given."""
    return text is not None and re.fullmatch(r"-?[0-9]{1,4}", text) is not None


def _require_equality(*compared: ex.Expression) -> None:
    """Refuse values whose own type is not published: different texts may be equal for it."""
    for one in compared:
        for column in ex.columns(one):
            type_ = column.type
            if type_.category == "label" and not type_.labels and not type_.has_equality:
                raise refusal(
                    "a column's values are published as texts, which do not tell what they equal",
                    hint="ask with IS NULL or GROUP BY, or publish a view that casts it, such as"
                    " money to numeric, or a composite type to text",
                    detail=f'column "{column.name}"',
                )


def _require_short(
    columns: Sequence[ex.Expression], constants: Sequence[ex.Expression], ignored: str = ""
) -> None:
    """Refuse a constant that is longer than the prefixes that a column is published as."""
    longest = max(
        (
            len(one.text) - sum(map(one.text.count, ignored))
            for one in constants
            if isinstance(one, ex.Literal)
        ),
        default=0,
    )
    for column in columns:
        if isinstance(column, ex.Column) and column.prefix and longest > column.prefix:
            raise refusal(
                "a constant is longer than what is published of a column's texts",
                hint="compare it with as many characters as are published",
                detail=f'column "{column.name}": the first {column.prefix} characters',
            )


def _order_as_source(bound: ex.Expression, type_: ex.Type) -> ex.Expression:
    """Write a value so that ``<`` and ``>`` order it as on the source."""
    if type_.is_ordered and not type_.labels:
        return bound
    if not type_.is_ordered:
        raise refusal(
            "the order of a column's values is not published",
            hint="compare with = or IN",
            detail=f'column "{bound.name}"' if isinstance(bound, ex.Column) else "",
        )
    return ex.Rank(bound, type_.labels)


_WRITE_CONSTANT: Final[dict[ex.Category, str]] = {
    **dict.fromkeys(ex.NUMBERS, "write a number"),
    "boolean": "write TRUE or FALSE",
    "moment": "write DATE '...', TIMESTAMP '...' or the date in single quotes",
    **dict.fromkeys(("text", "label", "other"), "write the constant in single quotes"),
}


def _move(
    operator: ex.ArithmeticOperator,
    left: tuple[ex.Expression, ex.Type | None],
    right: tuple[ex.Expression, ex.Type | None],
) -> tuple[ex.Expression, ex.Type] | None:
    """Move a date by days, a moment by an interval, or subtract dates; None for numbers."""
    (one, first), (other, second) = left, right
    if first is None or second is None or "moment" not in (first.category, second.category):
        return None
    if operator == "+" and second.category == "moment":
        (one, first), (other, second) = (other, second), (one, first)
    calculation = ex.Arithmetic(operator, one, other)
    if first == DATE and second.name in ("smallint", "integer"):
        return calculation, DATE
    if first.category == "moment" and second == INTERVAL:
        return calculation, TIMESTAMP if first == DATE else first
    if first.name == second.name == DATE.name and operator == "-":
        return calculation, INTEGER
    raise refusal(
        "moments can only be moved by whole days or an interval, and dates be subtracted",
        hint="write born + 30, or seen - INTERVAL '30 days'",
    )


def _number(bound: tuple[ex.Expression, ex.Type | None]) -> _Typed:
    expression, type_ = bound
    if type_ is None or type_.category not in ex.NUMBERS:
        raise refusal(
            "arithmetic is only supported for numbers", hint="write numbers without quotes"
        )
    return expression, type_


def _misfit(
    one: ex.Expression, one_type: ex.Type | None, other: ex.Expression, other_type: ex.Type | None
) -> UnsupportedQueryError:
    """Make the error for a comparison of types that do not compare."""
    if not isinstance(one, ex.Constant):
        one, one_type, other, other_type = other, other_type, one, one_type
    names = ["text" if type_ is None else type_.name for type_ in (one_type, other_type)]
    hint = "compare values of the same kind"
    if isinstance(one, ex.Constant) and other_type is not None:
        hint = _WRITE_CONSTANT[other_type.category]
    return refusal(
        f"a value of type {names[0]} cannot be compared with one of type {names[1]}",
        hint=hint,
        detail=f'column "{other.name}"' if isinstance(other, Column) else "",
    )
