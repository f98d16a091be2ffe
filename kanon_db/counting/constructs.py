"""What SQL can say and a count query may not, told by its words and symbols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kanon_db.counting.lexemes import Lexeme
from kanon_db.counting.refusals import ALLOWED, refusal
from kanon_db.errors import UnsupportedQueryError

KEYWORDS: Final = frozenset("and as between false from in is not null or select true where".split())
"""The words that a count query is made of; all but BETWEEN are reserved in PostgreSQL."""

LITERAL_TYPES: Final = frozenset({"date", "timestamp"})

_TYPE_HINT: Final = (
    "write DATE '…', TIMESTAMP '…' or a plain quoted string, which takes its column's type"
)

_CONSTRUCTS: Final = {
    "with": "WITH is not supported",
    "exists": "subqueries are not supported",
    **dict.fromkeys(("union", "intersect", "except"), "set operations (UNION …) are not supported"),
    **dict.fromkeys(
        ("cross", "full", "inner", "join", "left", "natural", "on", "outer", "right", "using"),
        "joins are not supported",
    ),
    "lateral": "LATERAL is not supported",
    "only": "ONLY is not supported",
    "tablesample": "TABLESAMPLE is not supported",
    "group": "GROUP BY is not supported",
    "having": "HAVING is not supported",
    "order": "ORDER BY is not supported",
    "limit": "LIMIT is not supported",
    "offset": "OFFSET is not supported",
    "fetch": "FETCH is not supported",
    "window": "window functions are not supported",
    "for": "row locks (FOR UPDATE …) are not supported",
    "into": "SELECT INTO is not supported",
    "distinct": "SELECT DISTINCT is not supported",
    "all": "ALL is not supported",
    "any": "ANY is not supported",
    "some": "SOME is not supported",
    "array": "arrays are not supported",
    "case": "CASE is not supported",
    "collate": "COLLATE is not supported",
    **dict.fromkeys(("asymmetric", "symmetric"), "BETWEEN SYMMETRIC is not supported"),
    "isnull": "ISNULL is not supported",
    "notnull": "NOTNULL is not supported",
    **dict.fromkeys(("ilike", "like", "similar"), "pattern matching (LIKE …) is not supported"),
    "overlaps": "OVERLAPS is not supported",
    **dict.fromkeys(
        "current_catalog current_date current_role current_schema current_time current_timestamp"
        " current_user localtime localtimestamp session_user system_user user".split(),
        "function calls are not supported",
    ),
}
"""Words that PostgreSQL reserves, by what they begin (and EXISTS, hardly ever a column's name)."""

_HINTS: Final = {
    "group": "ask one query for each group",
    "any": "write IN (…)",
    "some": "write IN (…)",
    "array": "write IN (…)",
    "isnull": "write IS NULL",
    "notnull": "write IS NOT NULL",
}

_BEFORE_PARENTHESIS: Final = {
    "values": "VALUES is not supported",
    "operator": "OPERATOR(…) is not supported",
    "row": "comparisons of rows are not supported",
}
"""Words that PostgreSQL does not reserve, that begin something else than a function call."""

_AFTER_PARENTHESIS: Final = {
    "filter": "FILTER is not supported",
    "over": "window functions are not supported",
    "within": "WITHIN GROUP is not supported",
}

_OTHER_RESERVED: Final = frozenset(
    "analyse analyze asc authorization binary both check collation column concurrently constraint"
    " create default deferrable desc do else end foreign freeze grant initially leading placing"
    " primary references returning table then to trailing unique variadic verbose when".split()
)
"""The rest of what PostgreSQL 15 to 18 reserve: as a name, each of them must be quoted."""


def refuse_constructs(lexemes: Sequence[Lexeme]) -> None:
    """Refuse the first construct that a count query cannot have, each for a reason of its own.

    Afterwards the unquoted words are :data:`KEYWORDS`, ``count`` and ``cast`` before a
    parenthesis, types where a type belongs, and names that PostgreSQL takes for names; no name
    precedes a parenthesis, ``*`` stands in ``COUNT(*)`` only, ``::`` after a string only, and a
    sign before a number only, where it is part of it.

    Parameters
    ----------
    lexemes : sequence of Lexeme
        Of the whole query.

    Raises
    ------
    UnsupportedQueryError
    """
    if not lexemes:
        raise refusal("the query is empty")
    first = lexemes[0]
    if first.is_word("with"):
        raise refusal("common table expressions (WITH) are not supported", first.position)
    if not first.is_word("select"):
        raise refusal("the query is not a SELECT statement", first.position)
    for index in range(len(lexemes)):
        _check(_Place(lexemes, index))


class _Place:
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

    def refusal(self, what: str, hint: str = ALLOWED) -> UnsupportedQueryError:
        return refusal(what, self.lexeme.position, hint)


def _check(place: _Place) -> None:
    match place.lexeme.kind:
        case "word":
            _check_word(place)
        case "name" if place.after.is_symbol("("):
            raise place.refusal("function calls are not supported")
        case "string" if place.after.kind == "string":
            raise place.refusal(
                "a string in several pieces is not supported", "write it in one piece"
            )
        case "symbol":
            _check_symbol(place)


def _check_word(place: _Place) -> None:
    word = place.lexeme.text
    called = place.after.is_symbol("(")
    if word in KEYWORDS:
        if word == "select" and place.before.kind != "end":
            raise place.refusal("subqueries are not supported")
    elif word == "count" and called:
        _check_count(place)
    elif word == "cast" and called:
        pass
    elif word in _AFTER_PARENTHESIS and place.before.is_symbol(")"):
        raise place.refusal(_AFTER_PARENTHESIS[word])
    elif called and word in ("left", "right"):
        raise place.refusal("function calls are not supported")
    elif word == "distinct" and _is_tested(place):
        raise place.refusal("IS DISTINCT FROM is not supported")
    elif word == "unknown" and _is_tested(place):
        raise place.refusal("IS is supported with NULL only", "write flag IS NULL")
    elif word in _CONSTRUCTS:
        raise place.refusal(_CONSTRUCTS[word], _HINTS.get(word, ALLOWED))
    elif word in _OTHER_RESERVED or word == "cast":
        raise place.refusal("a reserved word stands for a name", "put a name into double quotes")
    elif called:
        what = _BEFORE_PARENTHESIS.get(word, "function calls are not supported")
        raise place.refusal(what)
    elif (place.after.kind == "string" or _is_cast_target(place)) and word not in LITERAL_TYPES:
        raise place.refusal("constants of this type are not supported", _TYPE_HINT)


def _is_tested(place: _Place) -> bool:
    """Whether the word comes after IS or IS NOT."""
    before = place.neighbor(-2) if place.before.is_word("not") else place.before
    return before.is_word("is")


def _check_count(place: _Place) -> None:
    argument = place.neighbor(2)
    if argument.is_word("distinct"):
        raise place.refusal("COUNT(DISTINCT …) is not supported", "write COUNT(*)")
    if not (argument.is_symbol("*") and place.neighbor(3).is_symbol(")")):
        raise place.refusal(
            "COUNT of an expression is not supported",
            "write COUNT(*), with WHERE … IS NOT NULL to count a column's values",
        )


def _is_cast_target(place: _Place) -> bool:
    """Whether a type belongs here: after ``::``, or in ``CAST('…' AS``."""
    return place.before.is_symbol("::") or (
        place.before.is_word("as") and place.neighbor(-2).kind == "string"
    )


def _check_symbol(place: _Place) -> None:
    match place.lexeme.text:
        case ";" if place.after.kind != "end":
            raise place.refusal("several statements are not supported", "ask one query at a time")
        case "::" if place.before.kind != "string":
            raise place.refusal("casts are supported of quoted strings only", _TYPE_HINT)
        case "+" | "-" if place.after.kind != "number" or _ends_operand(place.before):
            raise place.refusal("arithmetic is not supported", "compare columns with constants")
        case "*" if not (place.before.is_symbol("(") and place.neighbor(-2).is_word("count")):
            if place.before.is_word("select") or place.before.is_symbol(",", "."):
                raise place.refusal("the select list is not one COUNT(*)")
            raise place.refusal("* is supported in COUNT(*) only")


def _ends_operand(lexeme: Lexeme) -> bool:
    """Whether a sign after this lexeme would add or subtract."""
    if lexeme.kind == "word":
        return lexeme.text not in KEYWORDS or lexeme.text in ("null", "true", "false")
    return lexeme.kind != "symbol" or lexeme.text in (")", "*", "+", "-")
