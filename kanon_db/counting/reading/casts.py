"""Recognizing the types that a query casts to, before it is parsed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kanon_db.counting.reading.lexemes import Lexeme
from kanon_db.counting.refusals import refusal

TYPES: Final = {
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
"""What the types that may be cast to are called, and their SQL names."""

_LONGEST: Final = 4  # words of a type
_HINT: Final = (
    "the types are integer, bigint, smallint, numeric, real, double precision, text, date,"
    " timestamp and boolean, without modifiers"
)
_IN_A_ZONE: Final = ("timestamptz", "timestamp with time zone")


def with_types(lexemes: Sequence[Lexeme]) -> list[Lexeme]:
    """Put one lexeme of the kind ``type`` where the words of a type stand after ``::`` or in CAST.

    Raises
    ------
    UnsupportedQueryError
        For a type that nothing is cast to.

    Examples
    --------
    >>> from kanon_db.counting.reading.lexemes import scan
    >>> [(x.kind, x.text) for x in with_types(scan("a::double precision"))][2:]
    [('type', 'double precision')]
    """
    found: list[Lexeme] = []
    in_cast: list[bool] = []  # of each open parenthesis, whether it is that of CAST
    at = 0
    while at < len(lexemes):
        lexeme = lexemes[at]
        before = found[-1] if found else lexeme
        if before.is_symbol("::") or (before.is_word("as") and in_cast and in_cast[-1]):
            n_words, lexeme = _type_at(lexemes[at : at + _LONGEST])
            at += n_words - 1
        elif lexeme.is_symbol("("):
            in_cast.append(before.is_word("cast") and not found[-2:-1][0].is_symbol("."))
        elif lexeme.is_symbol(")") and in_cast:
            in_cast.pop()
        found.append(lexeme)
        at += 1
    return found


def _type_at(lexemes: Sequence[Lexeme]) -> tuple[int, Lexeme]:
    """Return of how many words the type consists that begins here, and its lexeme."""
    first = lexemes[0]
    for n_words in range(len(lexemes), 0, -1):
        spelled = " ".join(lexeme.text for lexeme in lexemes[:n_words])
        if any(lexeme.kind != "word" for lexeme in lexemes[:n_words]):
            continue
        if spelled in _IN_A_ZONE:
            raise refusal(
                "a cast to a timestamp with time zone is not supported",
                first.position,
                "write date_trunc(...), or compare with a quoted constant",
            )
        if spelled in TYPES:
            return n_words, Lexeme("type", TYPES[spelled], first.position)
    raise refusal("casts to this type are not supported", first.position, _HINT)
