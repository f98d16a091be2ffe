"""Splits a query into lexemes by PostgreSQL's rules, narrowed to those that a count query needs."""

from __future__ import annotations

import re
from string import ascii_lowercase, ascii_uppercase
from typing import Final, NamedTuple
from typing import Literal as OneOf

from kanon_db.declaration import MAX_NAME_BYTES
from kanon_db.errors import UnsupportedQueryError
from kanon_db.query.expressions import ALLOWED, refusal

MAX_LENGTH: Final = 100_000
"""The most characters that a query may have."""

MAX_LEXEMES: Final = 40_000
"""The most words, constants and symbols: parsing them takes a quarter of a second."""

Kind = OneOf["word", "name", "number", "string", "symbol", "end"]


class Lexeme(NamedTuple):
    """A word, name, constant or symbol of the query."""

    # A ``word`` is a keyword or an unquoted name, a ``name`` was in double quotes, and ``end``
    # stands past the last piece
    kind: Kind
    text: str  # Without its quotes; words in lower case
    position: int  # Where its first character stands in the query, counted from 1

    def is_word(self, *texts: str) -> bool:
        """Whether this is one of these words, unquoted."""
        return self.kind == "word" and self.text in texts

    def is_symbol(self, *texts: str) -> bool:
        """Whether this is one of these symbols."""
        return self.kind == "symbol" and self.text in texts

    def reads(self, text: str) -> bool:
        """Whether this is a word or a symbol with this text."""
        return self.kind in ("word", "symbol") and self.text == text


# Letters of words: A-Z, a-z, _, and every character above 127. The set is written by what is not
# in it, since re takes milliseconds to compile a set of 1,114,000 characters.
_LETTER: Final = r"[^\x00-@\[-^`{-\x7F]"
_IN_WORD: Final = rf"(?: {_LETTER} | [0-9$] )"

_LEXEME: Final = re.compile(
    rf"""
    (?P<space> [ \t\n\r\f]+ )
  | (?P<comment> -- | /\* )
  | (?P<escape> [BbEeNnXx]' | [Uu]&['"] )
  | (?P<word> {_LETTER} {_IN_WORD}* )
  | (?P<number> (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+) (?:[Ee][+-]?[0-9]+)? (?! {_IN_WORD} | \. ) )
  | (?P<string> '(?:[^']|'')*+' )
  | (?P<name> "(?:[^"]|"")++" )
  | (?P<operator> (?: (?!--|/\*) [-+*/<>=~!@\#%^&|`?] )+ )
  | (?P<symbol> :: | [(),.;\[\]] )
    """,
    re.VERBOSE,
)

# PostgreSQL takes the longest run of operator characters, then gives back + and - at its end,
# except from an operator that holds one of ~ ! @ # % ^ & | ` ?, hence not after "!=", "%", "||".
_OPERATORS: Final = re.compile(
    r"(?P<operator>=|<>|<=|>=|<|>|\*|/)?(?P<signs>[+-]*)|(?P<alone>!=|%|\|\||<@)"
)

_TO_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)  # ASCII only, as PostgreSQL

_UNREADABLE: Final = {
    "'": ("a quoted string does not end", "close it with a single quote; write '' for one inside"),
    '"': (
        "a quoted name is empty or does not end",
        'close it with a double quote; write "" for one inside',
    ),
    "$": ("parameters and dollar quotes are not supported", "write constants, in single quotes"),
    ":": ("parameters are not supported", "write constants in the query"),
}


def scan(query: str) -> list[Lexeme]:
    """Split a query into its lexemes.

    Raises UnsupportedQueryError.
    """
    # Runs of operator characters come apart as in PostgreSQL. With `standard_conforming_strings`
    # on, its default, a backslash in a plain string is an ordinary character.
    _check_characters(query)
    lexemes: list[Lexeme] = []
    at = 0
    while at < len(query):
        match = _LEXEME.match(query, at)
        if match is None or match.lastgroup is None:
            raise _unreadable(query[at], at + 1)
        position, at, text = at + 1, match.end(), match.group()
        match match.lastgroup:
            case "space":
                continue
            case "comment":
                at = _end_of_comment(query, position - 1)
            case "escape":
                raise refusal(
                    "prefixed quotes are not supported",
                    position,
                    "write a plain '...' string or \"...\" name, with no E, B, N, U& or X before",
                )
            case "operator":
                lexemes += _operators(text, position)
            case "word" if any(map(str.isspace, text)):
                # PostgreSQL takes these for letters, people for space.
                raise refusal(
                    "spaces other than ASCII spaces are not supported",
                    position,
                    "write plain spaces",
                )
            case "word":
                lexemes.append(Lexeme("word", fold(text), position))
            case "name":
                lexemes.append(Lexeme("name", text[1:-1].replace('""', '"'), position))
            case "string":
                lexemes.append(Lexeme("string", text[1:-1].replace("''", "'"), position))
            case "number":
                lexemes.append(Lexeme("number", text, position))
            case _:
                lexemes.append(Lexeme("symbol", text, position))
    if len(lexemes) > MAX_LEXEMES:
        raise UnsupportedQueryError(
            "the query is too long",
            detail=f"it has {len(lexemes)} words, constants and symbols; {MAX_LEXEMES} are allowed",
            hint="use ranges instead of long lists",
        )
    for lexeme in lexemes:
        if lexeme.kind in ("word", "name") and len(lexeme.text.encode()) > MAX_NAME_BYTES:
            raise refusal(
                "a name is too long",
                lexeme.position,
                f"PostgreSQL names have at most {MAX_NAME_BYTES} bytes",
            )
    return lexemes


def _end_of_comment(query: str, start: int) -> int:
    """Return where a comment ends: with its line, or where as many are closed as were opened."""
    if query.startswith("--", start):
        mark = re.compile(r"[\n\r]").search(query, start)
        return len(query) if mark is None else mark.end()
    depth, at = 0, start
    while mark := re.compile(r"/\*|\*/").search(query, at):
        depth, at = depth + (1 if mark.group() == "/*" else -1), mark.end()
        if not depth:
            return at
    raise refusal("a comment does not end", start + 1, "close it with */")


def fold(name: str) -> str:
    """Fold an unquoted name to lower case; like PostgreSQL, in ASCII only."""
    return name.translate(_TO_LOWER)


def _check_characters(query: str) -> None:
    if len(query) > MAX_LENGTH:
        raise UnsupportedQueryError(
            "the query is too long",
            detail=f"it has {len(query)} characters; {MAX_LENGTH} are allowed",
            hint="use ranges instead of long lists",
        )
    if "\0" in query:
        raise refusal("the query holds a NUL character", query.index("\0") + 1)
    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise refusal("the query is not valid Unicode text", error.start + 1) from None


_OPERATOR: Final = (
    "write LIKE or ILIKE for patterns, % for a remainder, and AND, OR, NOT for conditions"
)
_OTHER_OPERATORS: Final = {
    "^": "write x * x for x ^ 2; a root is compared by its square",
    "==": "write = for ==",
    "=>": "write >= for =>",
    "=<": "write <= for =<",
    **dict.fromkeys(("@>", "&&"), "write age <@ int4range(20, 30), or BETWEEN for the values"),
}


def _operators(run: str, position: int) -> list[Lexeme]:
    """Split a run of operator characters into operators."""
    match = _OPERATORS.fullmatch(run)
    if match is None:
        if run == "?":
            raise refusal("parameters are not supported", position, "write constants in the query")
        if "`" in run:
            raise refusal(
                "backquotes are not supported", position, "quote names with double quotes"
            )
        raise refusal(
            "an operator is not supported", position, _OTHER_OPERATORS.get(run, _OPERATOR)
        )
    pieces = [match["operator"] or match["alone"] or "", *(match["signs"] or "")]
    lexemes = []
    for piece in filter(None, pieces):
        lexemes.append(Lexeme("symbol", piece, position))
        position += len(piece)
    return lexemes


def _unreadable(character: str, position: int) -> UnsupportedQueryError:
    """Make the error for a character that begins no lexeme."""
    if character.isdecimal():
        return refusal(
            "a number is not in decimal notation",
            position,
            "write it like 42, 0.5 or 1.5e3, with a space or an operator after it",
        )
    what, hint = _UNREADABLE.get(character, ("a character is not supported", ALLOWED))
    return refusal(what, position, hint)
