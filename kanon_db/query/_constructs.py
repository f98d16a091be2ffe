"""Knows the words of a count query, and refuses what such a query cannot have, with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from kanon_db.errors import UnsupportedQueryError
from kanon_db.query._lexer import Lexeme, unexpected
from kanon_db.query.expressions import ALLOWED, refusal

_EXTRACT: Final = "write EXTRACT(YEAR FROM <column>), or date_trunc('month', <column>)"
_LOOKUP: Final = (
    "join a lookup table that has the result for each value, or compare with LIKE or ILIKE"
)
_ONE_BY_ONE: Final = "ask a query for each"
_ROWS: Final = "write one of the forms SUM(COUNT(*)) OVER () for the total, and GROUP BY for groups"
_WITHOUT: Final = "leave it out: an answer only reads the publication"

HINTS: Final = {
    **dict.fromkeys(("any", "array", "some"), "write IN (...), or = ANY (ARRAY[...])"),
    "all": "leave ALL out, or write NOT IN (...), or <> ALL (ARRAY[...])",
    "collate": "leave it out: texts are compared as on the source",
    "cross": "write JOIN <schema>.<lookup table> ON a = b",
    **dict.fromkeys(("full", "natural", "right"), "write LEFT JOIN ... ON a = b, or USING (a)"),
    "isnull": "write IS NULL",
    "notnull": "write IS NOT NULL",
    "fetch": "write FETCH FIRST 10 ROWS ONLY, or LIMIT 10",
    "similar": "write LIKE",
    **dict.fromkeys(("asymmetric", "symmetric"), "write BETWEEN with the lower value first"),
    "materialized": "leave it out",
    **dict.fromkeys(("for", "into", "lateral", "only", "tablesample"), _WITHOUT),
    **dict.fromkeys(("union", "intersect", "except"), _ONE_BY_ONE),
    **dict.fromkeys(
        ("exists", "select"),
        "write IN (1, 2, 3), or join a lookup table with the values that are meant",
    ),
    **dict.fromkeys(
        ("over", "window"),
        "write GROUP BY, and 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () for shares of the total",
    ),
    "overlaps": "write two comparisons, as in a <= DATE '2024-01-31' AND b >= DATE '2024-01-01'",
    **dict.fromkeys(
        ("rollup", "cube", "grouping", "sets"),
        "ask a query for each: with GROUP BY a, b, then one GROUP BY a, then one without GROUP BY",
    ),
    "row": "compare column by column, with AND",
    "values": "write IN (...)",
    "operator": "write the operator alone",
    "filter": "write COUNT(*) FILTER (WHERE ...)",
    "within": "write percentile_cont(0.5) WITHIN GROUP (ORDER BY <column>)",
    "distinct": "write SELECT DISTINCT a, b, or COUNT(DISTINCT a)",
    **dict.fromkeys(
        ("median", "percentile", "quantile", "approx_percentile"),
        "write percentile_cont(0.5) WITHIN GROUP (ORDER BY <column>)",
    ),
    **dict.fromkeys(("mean", "average"), "write AVG(<column>)"),
    **dict.fromkeys(("std", "stdev"), "write stddev(<column>)"),
    "var": "write variance(<column>)",
    "count_big": "write COUNT(*)",
    "mode": "write SELECT x, COUNT(*) ... GROUP BY x ORDER BY 2 DESC LIMIT 1",
    # functions
    **dict.fromkeys(
        ("clock_timestamp", "statement_timestamp", "transaction_timestamp", "getdate", "curdate"),
        "write CURRENT_DATE, or now()",
    ),
    **dict.fromkeys(("translate", "reverse", "lpad", "rpad", "md5", "format"), _LOOKUP),
    **dict.fromkeys(
        ("split_part", "position", "regexp_substr"),
        "write strpos(x, 'ab'), left(x, 2), or x LIKE 'ab%', or join a lookup table",
    ),
    "to_timestamp": "write TIMESTAMP '2024-01-31 00:00'",
    **dict.fromkeys(("contains", "starts_with", "ends_with"), "write x LIKE 'ab%', or '%ab%'"),
    **dict.fromkeys(("regexp_match", "regexp_like", "regexp_replace"), "write LIKE or ILIKE"),
    **dict.fromkeys(("to_char", "make_date", "year", "month", "day"), _EXTRACT),
    "datediff": "write EXTRACT(YEAR FROM AGE(DATE '2024-01-31', <column>))",
    **dict.fromkeys(("if", "iif"), "write CASE WHEN x > 1 THEN a ELSE b END"),
    **dict.fromkeys(("ifnull", "nvl"), "write COALESCE(a, b)"),
    **dict.fromkeys(
        ("surely", "possibly"), "ask as of the original table, as in age = 30: both are bounds here"
    ),
    "width_bucket": "write CASE WHEN x < 10 THEN 1 WHEN x < 20 THEN 2 ELSE 3 END",
    "mod": "write x % 2",
    **dict.fromkeys(("power", "pow", "sqrt"), "write x * x; a root is compared by its square"),
    **dict.fromkeys(
        ("greatest", "least"), "write CASE WHEN a > b THEN a ELSE b END"
    ),
    **dict.fromkeys(
        ("bool_and", "bool_or", "every"),
        "write COUNT(*) FILTER (WHERE ...): its bounds say whether there is one",
    ),
    **dict.fromkeys(
        ("array_agg", "string_agg", "json_agg", "jsonb_agg"), "SELECT DISTINCT lists the values"
    ),
    **dict.fromkeys(
        ("rank", "dense_rank", "row_number", "ntile"), "write ORDER BY ... LIMIT"
    ),
}  # fmt: skip


MAX_NESTING: Final = 40
"""The deepest nesting of parentheses, NOTs and CASEs, since reading and writing recurse."""

KEYWORDS: Final = frozenset(
    "and as asc between by case desc distinct else end false from group having ilike in inner is"
    " join left like limit not null offset on or order outer select then true using when"
    " where with".split()
)
"""The keywords of a count query, which are no names."""

VALUE_FUNCTIONS: Final = frozenset(
    "abs btrim ceil ceiling char_length character_length concat floor initcap left length lower"
    " ltrim replace right rtrim strpos substr substring trim trunc upper".split()
)
"""The functions of values: immutable, without side effects, and of no catalog (`_bind`)."""

MOMENTS: Final = frozenset("current_date current_timestamp localtimestamp".split())
"""Words that stand for the day or the time at which the query is asked."""

FUNCTIONS: Final = VALUE_FUNCTIONS | frozenset(
    "age avg cast coalesce count date_part date_trunc extract max min now nullif percentile_cont"
    " percentile_disc round stddev stddev_pop stddev_samp sum to_date var_pop var_samp"
    " variance".split()
)
"""The functions of a count query; without a parenthesis, these words are names."""

LITERAL_TYPES: Final = frozenset({"date", "timestamp", "interval"})

_CONSTRUCTS: Final = {
    **{
        word: f"{word.upper()} is not supported"
        for word in "all any collate fetch isnull lateral notnull only overlaps some"
        " tablesample with".split()
    },
    **dict.fromkeys(("exists", "select"), "subqueries are not supported"),
    **dict.fromkeys(
        ("union", "intersect", "except"), "set operations (UNION ...) are not supported"
    ),
    **dict.fromkeys(
        ("cross", "full", "natural", "right"),
        "only JOIN and LEFT JOIN with a condition on one column each are supported",
    ),
    **dict.fromkeys(("over", "window"), "window functions are not supported"),
    "filter": "FILTER stands after an aggregate, with WHERE in its parentheses",
    "within": "WITHIN GROUP stands after percentile_cont(...) or percentile_disc(...)",
    "for": "row locks (FOR UPDATE ...) are not supported",
    "into": "SELECT INTO is not supported",
    "distinct": "DISTINCT stands after SELECT, or in COUNT(DISTINCT ...)",
    "array": "arrays are not supported",
    **dict.fromkeys(("asymmetric", "symmetric"), "BETWEEN SYMMETRIC is not supported"),
    "similar": "SIMILAR TO is not supported",
    **dict.fromkeys(
        "current_catalog current_role current_schema current_time current_user localtime"
        " session_user system_user user".split(),
        "function calls are not supported",
    ),
}
"""Words that PostgreSQL reserves (and EXISTS), each with the construct that it begins."""

_ONLY_AFTER_PARENTHESIS: Final = frozenset({"over", "filter", "within"})
"""Those of the preceding words that may be names elsewhere."""

_BEFORE_PARENTHESIS: Final = {
    "mode": "mode() is not supported",
    "median": "MEDIAN(...) is not supported, nor does PostgreSQL have it",
    "values": "VALUES is not supported",
    "materialized": "MATERIALIZED is not supported",
    "operator": "OPERATOR(...) is not supported",
    "row": "comparisons of rows are not supported",
    **dict.fromkeys(
        ("rollup", "cube", "grouping", "sets"), "GROUP BY only accepts columns and expressions"
    ),
}
"""Words that PostgreSQL does not reserve, but that begin no function call."""

_OTHER_RESERVED: Final = MOMENTS | frozenset(
    "analyse analyze authorization binary both cast check collation column concurrently constraint"
    " create default deferrable do foreign freeze grant initially leading placing"
    " primary references returning table to trailing unique variadic verbose".split()
)
"""All other words that PostgreSQL 15 to 18 reserve; as names, they must be quoted."""

_NEEDS_AS: Final = frozenset(
    "char character day filter hour minute month over precision second varying within without"
    " year".split()
)
"""Words that need AS before them to be an alias in the select list."""

_TESTED: Final = frozenset("distinct false not null true unknown".split())
_VALUES: Final = frozenset("end false null true".split())
_LAST: Final = _VALUES | {"asc", "desc"}
"""The keywords that a query may end with."""

_TYPE_HINT: Final = (
    "write DATE '...', TIMESTAMP '...' or a plain quoted string, which takes the type of what it is"
    " compared with"
)


_CALCULATING: Final = frozenset("+ - * / , = <> != < <= > >=".split())
"""The symbols after which a subselect may stand: only the parser tells whether it is a total."""


def is_name(lexeme: Lexeme) -> bool:
    """Whether PostgreSQL takes a lexeme for a name, where a name may stand."""
    if lexeme.kind == "name":
        return True
    word = lexeme.text
    return lexeme.kind == "word" and (
        word in _ONLY_AFTER_PARENTHESIS
        or not (word in KEYWORDS or word in _CONSTRUCTS or word in _OTHER_RESERVED)
    )


def is_bare_alias(lexeme: Lexeme) -> bool:
    """Whether a lexeme is an alias in the select list without AS."""
    return is_name(lexeme) and not (lexeme.kind == "word" and lexeme.text in _NEEDS_AS)


class LexemePlace:
    """A lexeme among its neighbors."""

    def __init__(self, lexemes: Sequence[Lexeme], index: int) -> None:
        self._lexemes = lexemes
        self._index = index
        self.lexeme = lexemes[index]
        self.before = self.neighbor(-1)
        self.after = self.neighbor(1)

    def neighbor(self, offset: int) -> Lexeme:
        """Return the lexeme at an offset; past either end, one of the kind ``end``."""
        index = self._index + offset
        if 0 <= index < len(self._lexemes):
            return self._lexemes[index]
        return Lexeme("end", "", self.lexeme.position)

    @property
    def is_tested(self) -> bool:
        """Whether the lexeme follows IS or IS NOT."""
        before = self.neighbor(-2) if self.before.is_word("not") else self.before
        return before.is_word("is")

    @property
    def is_called(self) -> bool:
        """Whether the lexeme is an unqualified function of a count query, being called."""
        return (
            self.lexeme.is_word(*FUNCTIONS)
            and self.after.is_symbol("(")
            and not self.before.is_symbol(".")
        )

    @property
    def is_moment(self) -> bool:
        """Whether the lexeme is CURRENT_DATE, or the like."""
        return self.lexeme.is_word(*MOMENTS) and not (
            self.before.is_symbol(".") or self.before.is_word("as") or self.after.is_symbol("(")
        )

    @property
    def is_type(self) -> bool:
        """Whether the lexeme is the type before a quoted constant."""
        return self.lexeme.is_word(*LITERAL_TYPES) and self.after.kind == "string"

    @property
    def is_keyword(self) -> bool:
        """Whether PostgreSQL takes the lexeme for a keyword here, not for a name."""
        if self.lexeme.kind != "word":
            return False
        match self.lexeme.text:
            case "unknown":
                return self.is_tested
            case "filter":
                return self.before.is_symbol(")") and self.opens_with("where")
            case "within":
                return self.before.is_symbol(")") and self.after.is_word("group")
            case "escape":
                return self.neighbor(-2).is_word("like", "ilike")
            case "nulls":
                return self.after.is_word("first", "last")
            case "first" | "last":
                return self.before.is_word("nulls")
            case word:
                return word in KEYWORDS or self.is_called or self.is_type or self.is_moment

    @property
    def is_negation(self) -> bool:
        """Whether the lexeme is the NOT of a test, as in IS NOT NULL and NOT IN."""
        return self.lexeme.is_word("not") and (
            self.before.is_word("is") or self.after.is_word("between", "ilike", "in", "like")
        )

    def opens_with(self, *words: str) -> bool:
        """Whether a parenthesis with one of these words follows."""
        return self.after.is_symbol("(") and self.neighbor(2).is_word(*words)

    @property
    def begins_select(self) -> bool:
        """Whether a SELECT may stand here: the query's own, or one in FROM or WITH."""
        if self.before.is_symbol("("):  # a total is calculated with
            before = self.neighbor(-2)
            return before.is_word("from", "as", "nullif") or (
                before.kind == "symbol" and before.text in _CALCULATING
            )
        return self.before.kind == "end" or (
            self.before.is_symbol(")") and self._lexemes[0].is_word("with")
        )

    def reaches(self, word: str) -> bool:
        """Whether a word stands in the parentheses that follow, outside of inner ones."""
        depth = 0
        for offset in range(1, len(self._lexemes) - self._index):
            lexeme = self.neighbor(offset)
            depth += lexeme.is_symbol("(") - lexeme.is_symbol(")")
            if not 0 < depth <= MAX_NESTING:  # deeper ones are refused later
                return False
            if depth == 1 and lexeme.is_word(word):
                return True
        return False

    def refusal(self, what: str, hint: str = ALLOWED) -> UnsupportedQueryError:
        """Make the error for the lexeme."""
        return refusal(what, self.lexeme.position, hint)


def refuse_constructs(lexemes: Sequence[Lexeme]) -> None:
    """Refuse the first construct that a count query cannot have, each for a reason of its own.

    `lexemes`: the lexemes of the whole query, with types, without a semicolon at its end.
    """
    # Afterwards parentheses and CASEs are balanced and not too deep; an unquoted word is a keyword
    # of a count query, or a name to PostgreSQL too; of functions only :data:`FUNCTIONS` are called.
    if not lexemes:
        raise refusal("the query is empty")
    first, last = lexemes[0], lexemes[-1]
    if not first.is_word("select", "with"):
        raise refusal("the query is not a SELECT statement", first.position)
    for index in range(len(lexemes)):
        _check(LexemePlace(lexemes, index))
    _refuse_deep_nesting(lexemes)
    if last.is_word(*KEYWORDS - _LAST) or (last.kind == "symbol" and last.text != ")"):
        raise refusal("the query ends too early", last.position)


def _refuse_deep_nesting(lexemes: Sequence[Lexeme]) -> None:
    opened: list[tuple[Lexeme, int]] = []
    depth = signs = 0  # signs and NOTs in a row nest what follows
    for lexeme in lexemes:
        if lexeme.is_symbol("(") or lexeme.is_word("case"):
            opened.append((lexeme, 1 + signs))
            depth += 1 + signs
        elif lexeme.is_symbol(")") or lexeme.is_word("end"):
            if not opened or opened[-1][0].is_symbol("(") is not lexeme.is_symbol(")"):
                raise unexpected(lexeme)
            depth -= opened.pop()[1]
        signs = signs + 1 if lexeme.is_word("not") or lexeme.is_symbol("+", "-") else 0
        if depth + signs > MAX_NESTING:
            raise refusal(f"parentheses are nested more than {MAX_NESTING} deep", lexeme.position)
    if opened:
        raise refusal("the query ends too early", lexemes[-1].position)


def _check(place: LexemePlace) -> None:
    lexeme, after = place.lexeme, place.after
    match lexeme.kind:
        case "word":
            _check_word(place)
        case "name" if after.is_symbol("("):
            raise _refuse_call(place)
        case "type" if after.is_symbol("(") or after.is_word("with", "without"):
            raise refusal(
                "a type with modifiers is not supported", after.position, "write the type alone"
            )
        case "string" if after.kind == "string":
            raise refusal(
                "a string in several pieces is not supported",
                after.position,
                "write it in one piece",
            )
        case "symbol":
            _check_symbol(place)


def _check_word(place: LexemePlace) -> None:
    word, before, after = place.lexeme.text, place.before, place.after
    called = after.is_symbol("(")
    if place.is_tested:
        if word not in _TESTED:
            raise place.refusal(
                "IS is only supported with NULL, TRUE, FALSE, UNKNOWN and DISTINCT FROM"
            )
    elif word in ("limit", "offset") and after.kind != "number":
        raise place.refusal("LIMIT and OFFSET need a whole number")
    elif word in ("like", "ilike") and not (
        after.kind == "string"
        or (after.is_word("lower", "upper") and place.neighbor(2).is_symbol("("))
    ):
        raise place.refusal(
            "a pattern must be a quoted string", "write the pattern in single quotes"
        )
    elif word == "escape" and place.is_keyword and after.kind != "string":
        raise place.refusal("ESCAPE needs a quoted character", "write it in single quotes")
    elif word == "with" and after.is_word("recursive") and not place.neighbor(2).is_word("as"):
        raise place.refusal("WITH RECURSIVE is not supported", "write WITH <name> AS (SELECT ...)")
    elif (word == "select" and place.begins_select) or (word == "with" and before.kind == "end"):
        pass
    elif word == "distinct" and after.is_word("on"):
        raise place.refusal(
            "SELECT DISTINCT ON is not supported", "write SELECT DISTINCT a, b, or GROUP BY a, b"
        )
    elif word == "distinct" and before.is_symbol("(") and not place.neighbor(-2).is_word("count"):
        raise place.refusal(
            "DISTINCT is only supported in COUNT(DISTINCT ...) and SELECT DISTINCT",
            "SELECT DISTINCT lists the values, each of which can be summed or averaged once",
        )
    elif (word in ("filter", "within") and place.is_keyword) or (
        word == "distinct" and (before.is_symbol("(") or before.is_word("select"))
    ):
        pass
    elif place.is_called:
        _check_function(place)
    elif place.is_moment:
        pass
    elif called and (word == "left" or word not in KEYWORDS):
        raise _refuse_call(place)
    elif word in _CONSTRUCTS and (word not in _ONLY_AFTER_PARENTHESIS or before.is_symbol(")")):
        raise place.refusal(_CONSTRUCTS[word], HINTS.get(word, ALLOWED))
    elif word in _OTHER_RESERVED:
        raise place.refusal("a reserved word is used as a name", "put a name into double quotes")
    elif (
        word not in LITERAL_TYPES
        and after.kind == "string"
        and not place.is_keyword
        and not _ends_operand(before)
    ):
        raise place.refusal("constants of this type are not supported", _TYPE_HINT)


def _check_function(place: LexemePlace) -> None:
    word, argument = place.lexeme.text, place.neighbor(2)
    if word in ("date_part", "date_trunc") and argument.kind != "string":
        raise refusal(
            "the part of a date must be a quoted constant", argument.position, "write 'year'"
        )
    if word in ("substring", "trim") and place.reaches("from"):
        like = "substr(x, 1, 3)" if word == "substring" else "btrim(x, ' ')"
        raise place.refusal(f"FROM in {word.upper()} is not supported", f"write {like}")


def _refuse_call(place: LexemePlace) -> UnsupportedQueryError:
    """Refuse a name, or a word, before an opening parenthesis."""
    lexeme, before = place.lexeme, place.before
    if lexeme.kind == "word":
        what = _BEFORE_PARENTHESIS.get(lexeme.text) or _CONSTRUCTS.get(lexeme.text)
        if what is not None:
            return place.refusal(what, HINTS.get(lexeme.text, ALLOWED))
    if before.is_word("as") or is_name(before):
        return place.refusal(
            "a list of column aliases is not supported", "name each column with AS in the subquery"
        )
    hint = ALLOWED
    if lexeme.kind == "word":
        near = get_close_matches(lexeme.text, sorted(FUNCTIONS), n=1, cutoff=0.8)
        hint = HINTS.get(lexeme.text) or (f"write {near[0]}(...)" if near else ALLOWED)
    return place.refusal("function calls are not supported", hint)


def _check_symbol(place: LexemePlace) -> None:
    before, after = place.before, place.after
    match place.lexeme.text:
        case ";":
            raise place.refusal("several statements are not supported", "ask one query at a time")
        case "*" if before.is_word("select") and place.neighbor(-2).is_symbol("("):
            pass
        case "*" if before.is_word("distinct"):
            raise place.refusal("DISTINCT is not supported with *", "name the columns")
        case "*" if before.is_word("select") or before.is_symbol(","):
            raise place.refusal(
                "the select list has columns that GROUP BY does not name",
                "write COUNT(*), or SELECT DISTINCT and the names of columns",
            )
        case "*" if before.is_symbol("."):
            raise place.refusal("a whole row is used as a column")
        case "*" if not (
            (before.is_symbol("(") and place.neighbor(-2).is_word("count"))
            or (_ends_operand(before) and after.kind != "end" and not after.is_symbol(")", ","))
        ):
            raise place.refusal("* is only supported in COUNT(*) and between numbers")


def _ends_operand(lexeme: Lexeme) -> bool:
    if lexeme.kind == "word":
        return lexeme.text not in KEYWORDS or lexeme.text in _VALUES
    return lexeme.kind in ("name", "number", "string", "type") or lexeme.is_symbol(")")
