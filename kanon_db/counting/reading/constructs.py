"""What SQL allows and a count query does not, recognized by the words and symbols it begins with.

Runs before the parser: what is refused here has a reason of its own, and the parser never sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kanon_db.counting.reading.hints import HINTS
from kanon_db.counting.reading.lexemes import Lexeme
from kanon_db.counting.refusals import ALLOWED, refusal
from kanon_db.errors import UnsupportedQueryError

MAX_NESTING: Final = 40
"""How deep parentheses, NOTs and CASEs may nest: reading and rewriting recurse with them."""

KEYWORDS: Final = frozenset(
    "and as asc between by case desc distinct else end false from group having ilike in inner is"
    " join left like limit not null offset on or order outer select then true using when"
    " where with".split()
)
"""The words that a count query is made of and that cannot be names where a name belongs."""

FUNCTIONS: Final = frozenset(
    "age avg cast coalesce count date_part date_trunc extract max min nullif percentile_cont"
    " percentile_disc round sum".split()
)
"""The functions of a count query; these words are names unless a parenthesis follows."""

LITERAL_TYPES: Final = frozenset({"date", "timestamp"})

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
        "current_catalog current_date current_role current_schema current_time current_timestamp"
        " current_user localtime localtimestamp session_user system_user user".split(),
        "function calls are not supported",
    ),
}
"""Words that PostgreSQL reserves (and EXISTS, hardly ever a column's name): what each begins."""

_ONLY_AFTER_PARENTHESIS: Final = frozenset({"over", "filter", "within"})
"""Those of them that are names anywhere else."""

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
"""Words that PostgreSQL does not reserve, but that begin something other than a function call."""

_OTHER_RESERVED: Final = frozenset(
    "analyse analyze authorization binary both cast check collation column concurrently constraint"
    " create default deferrable do foreign freeze grant initially leading placing"
    " primary references returning table to trailing unique variadic verbose".split()
)
"""The rest of what PostgreSQL 15 to 18 reserve: as a name, each of them must be quoted."""

_NEEDS_AS: Final = frozenset(
    "char character day filter hour minute month over precision second varying within without"
    " year".split()
)
"""Names that an item of the select list can only have after AS."""

_TESTED: Final = frozenset("distinct false not null true unknown".split())
_VALUES: Final = frozenset("end false null true".split())
_LAST: Final = _VALUES | {"asc", "desc"}
"""The keywords that a query may end with."""

_TYPE_HINT: Final = (
    "write DATE '...', TIMESTAMP '...' or a plain quoted string, which takes the type of what it is"
    " compared with"
)


def is_name(lexeme: Lexeme) -> bool:
    """Whether PostgreSQL takes it for a name, quoted or not, where a name belongs."""
    if lexeme.kind == "name":
        return True
    word = lexeme.text
    return lexeme.kind == "word" and (
        word in _ONLY_AFTER_PARENTHESIS
        or not (word in KEYWORDS or word in _CONSTRUCTS or word in _OTHER_RESERVED)
    )


def is_bare_alias(lexeme: Lexeme) -> bool:
    """Whether it names an item of the select list without AS."""
    return is_name(lexeme) and not (lexeme.kind == "word" and lexeme.text in _NEEDS_AS)


class Place:
    """A lexeme among its neighbors."""

    def __init__(self, lexemes: Sequence[Lexeme], index: int) -> None:
        self._lexemes = lexemes
        self._index = index
        self.lexeme = lexemes[index]
        self.before = self.neighbor(-1)
        self.after = self.neighbor(1)

    def neighbor(self, offset: int) -> Lexeme:
        """Return the lexeme so far ahead, past either end one of the kind ``end``."""
        index = self._index + offset
        if 0 <= index < len(self._lexemes):
            return self._lexemes[index]
        return Lexeme("end", "", self.lexeme.position)

    @property
    def is_tested(self) -> bool:
        """Whether it comes after IS or IS NOT."""
        before = self.neighbor(-2) if self.before.is_word("not") else self.before
        return before.is_word("is")

    @property
    def is_called(self) -> bool:
        """Whether it is a function of a count query, not qualified, with its parenthesis."""
        return (
            self.lexeme.is_word(*FUNCTIONS)
            and self.after.is_symbol("(")
            and not self.before.is_symbol(".")
        )

    @property
    def is_type(self) -> bool:
        """Whether it is the type before a quoted constant."""
        return self.lexeme.is_word(*LITERAL_TYPES) and self.after.kind == "string"

    @property
    def is_keyword(self) -> bool:
        """Whether it is a word that is no name here, to PostgreSQL."""
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
                return word in KEYWORDS or self.is_called or self.is_type

    @property
    def is_negation(self) -> bool:
        """Whether it negates a test, as in IS NOT NULL and NOT IN."""
        return self.lexeme.is_word("not") and (
            self.before.is_word("is") or self.after.is_word("between", "ilike", "in", "like")
        )

    def opens_with(self, *words: str) -> bool:
        """Whether a parenthesis with one of these words follows."""
        return self.after.is_symbol("(") and self.neighbor(2).is_word(*words)

    @property
    def begins_select(self) -> bool:
        """Whether a SELECT may stand here: the query's own, one in FROM, one of WITH."""
        if self.before.is_symbol("("):
            return self.neighbor(-2).is_word("from", "as")
        return self.before.kind == "end" or (
            self.before.is_symbol(")") and self._lexemes[0].is_word("with")
        )

    def refusal(self, what: str, hint: str = ALLOWED) -> UnsupportedQueryError:
        """Make the refusal of the lexeme."""
        return refusal(what, self.lexeme.position, hint)


def refuse_constructs(lexemes: Sequence[Lexeme]) -> None:
    """Refuse the first construct that a count query cannot have, each for a reason of its own.

    Afterwards parentheses and CASEs are balanced and not too deep; an unquoted word is a keyword
    of a count query, or a name to PostgreSQL too; of functions only :data:`FUNCTIONS` are called.

    Parameters
    ----------
    lexemes : sequence of Lexeme
        Those of the whole query, with their types, without a semicolon at its end.

    Raises
    ------
    UnsupportedQueryError
    """
    if not lexemes:
        raise refusal("the query is empty")
    first, last = lexemes[0], lexemes[-1]
    if not first.is_word("select", "with"):
        raise refusal("the query is not a SELECT statement", first.position)
    for index in range(len(lexemes)):
        _check(Place(lexemes, index))
    _refuse_deep_nesting(lexemes)
    if last.is_word(*KEYWORDS - _LAST) or (last.kind == "symbol" and last.text != ")"):
        raise refusal("the query ends too early", last.position)


def unexpected(lexeme: Lexeme) -> UnsupportedQueryError:
    """Make the refusal of a lexeme that does not belong where it stands."""
    if lexeme.kind == "end":
        return refusal("the query ends too early", lexeme.position)
    return refusal("the query cannot be read as a SELECT", lexeme.position)


def _refuse_deep_nesting(lexemes: Sequence[Lexeme]) -> None:
    opened: list[tuple[Lexeme, int]] = []
    depth = signs = 0  # the signs and NOTs in a row, which nest what comes after them
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


def _check(place: Place) -> None:
    lexeme, after = place.lexeme, place.after
    match lexeme.kind:
        case "word":
            _check_word(place)
        case "name" if after.is_symbol("("):
            raise _called(place)
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


def _check_word(place: Place) -> None:
    word, before, after = place.lexeme.text, place.before, place.after
    called = after.is_symbol("(")
    if place.is_tested:
        if word not in _TESTED:
            raise place.refusal(
                "IS is only supported with NULL, TRUE, FALSE, UNKNOWN and DISTINCT FROM"
            )
    elif word in ("limit", "offset") and after.kind != "number":
        raise place.refusal("LIMIT and OFFSET need a whole number")
    elif word in ("like", "ilike") and after.kind != "string":
        raise place.refusal("a pattern must be a quoted string", "write it in single quotes")
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
    elif called and (word == "left" or word not in KEYWORDS):
        raise _called(place)
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


def _check_function(place: Place) -> None:
    word, argument = place.lexeme.text, place.neighbor(2)
    if word in ("date_part", "date_trunc") and argument.kind != "string":
        raise refusal(
            "the part of a date must be a quoted constant", argument.position, "write 'year'"
        )


def _called(place: Place) -> UnsupportedQueryError:
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
    hint = HINTS.get(lexeme.text, ALLOWED) if lexeme.kind == "word" else ALLOWED
    return place.refusal("function calls are not supported", hint)


def _check_symbol(place: Place) -> None:
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
