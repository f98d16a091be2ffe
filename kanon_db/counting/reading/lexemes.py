"""PostgreSQL's lexical rules, narrowed to what a count query needs.

Whatever dialects read differently is refused here, before any parser sees it: comments, other
ways to quote, escapes, binary and hexadecimal constants, parameters, operators in one piece.
"""

from __future__ import annotations

import re
from string import ascii_lowercase, ascii_uppercase
from typing import Final, NamedTuple
from typing import Literal as OneOf

from kanon_db.counting.refusals import ALLOWED, refusal
from kanon_db.declaration import MAX_NAME_BYTES
from kanon_db.errors import UnsupportedQueryError

MAX_LENGTH: Final = 100_000
"""The most characters that a query may have."""

MAX_LEXEMES: Final = 40_000
"""The most words, constants and symbols: parsing them takes about half a second."""

Kind = OneOf["word", "name", "number", "string", "symbol", "type", "end"]


class Lexeme(NamedTuple):
    """A smallest meaningful piece of the query.

    Attributes
    ----------
    kind : {"word", "name", "number", "string", "symbol", "type", "end"}
        A ``word`` is a keyword or an unquoted name, a ``name`` was in double quotes; a ``type``,
        by its SQL name, is cast to (see `casts`); ``end`` stands past the last piece.
    text : str
        Without its quotes; words in lower case.
    position : int
        Where its first character stands in the query, counted from 1.
    """

    kind: Kind
    text: str
    position: int

    def is_word(self, *texts: str) -> bool:
        """Whether it is one of these words, unquoted."""
        return self.kind == "word" and self.text in texts

    def is_symbol(self, *texts: str) -> bool:
        """Whether it is one of these symbols."""
        return self.kind == "symbol" and self.text in texts

    def reads(self, text: str) -> bool:
        """Whether this is a word or a symbol with this text."""
        return self.kind in ("word", "symbol") and self.text == text


# Letters of words: A-Z, a-z, _, and every character above 127, whatever it means. They are written
# as all others of ASCII, since re compiles a set of 1,114,000 characters for milliseconds.
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
  | (?P<symbol> :: | [(),.;] )
    """,
    re.VERBOSE,
)

# PostgreSQL takes the longest run of operator characters, then gives back + and - at its end,
# except from an operator that holds one of ~ ! @ # % ^ & | ` ?, hence not after "!=" and "%".
_OPERATORS: Final = re.compile(
    r"(?P<operator>=|<>|<=|>=|<|>|\*|/)?(?P<signs>[+-]*)|(?P<alone>!=|%)"
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
    "[": ("brackets are not supported", "quote names with double quotes, and do not subscript"),
}
_UNREADABLE["]"] = _UNREADABLE["["]


def scan(query: str) -> list[Lexeme]:
    r"""Split a query into its lexemes.

    Parameters
    ----------
    query : str
        SQL as the analyst wrote it.

    Returns
    -------
    list of Lexeme
        In their order; whitespace only separates them. Runs of operator characters come apart as
        in PostgreSQL; of operators, comparisons and those of arithmetic pass.

    Raises
    ------
    UnsupportedQueryError
        For text that is too long, that PostgreSQL would not read, or that a count query does not
        need; names the construct and its position.

    Notes
    -----
    With ``standard_conforming_strings`` on (PostgreSQL's default), a backslash in a plain string
    is an ordinary character.

    Examples
    --------
    >>> [lexeme.text for lexeme in scan('"Age" >=-5')]
    ['Age', '>=', '-', '5']
    """
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
                raise refusal(
                    "comments are not supported", position, "remove the comment from the query"
                )
            case "escape":
                raise refusal(
                    "prefixed quotes are not supported",
                    position,
                    "write a plain '...' string or \"...\" name, with no E, B, N, U& or X before",
                )
            case "operator":
                lexemes += _operators(text, position)
            case "word" if any(map(str.isspace, text)):
                # To PostgreSQL these are letters, to people they are space.
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


def fold(name: str) -> str:
    """Fold an unquoted name to lower case, in ASCII only, as PostgreSQL."""
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


def _operators(run: str, position: int) -> list[Lexeme]:
    """Take a run of operator characters apart."""
    match = _OPERATORS.fullmatch(run)
    if match is None:
        if run == "?":
            raise refusal("parameters are not supported", position, "write constants in the query")
        if "`" in run:
            raise refusal(
                "backquotes are not supported", position, "quote names with double quotes"
            )
        raise refusal(
            "an operator is not supported",
            position,
            "write LIKE or ILIKE for patterns, % for a remainder, and AND, OR, NOT for conditions",
        )
    pieces = [match["operator"] or match["alone"] or "", *(match["signs"] or "")]
    lexemes = []
    for piece in filter(None, pieces):
        lexemes.append(Lexeme("symbol", piece, position))
        position += len(piece)
    return lexemes


def _unreadable(character: str, position: int) -> UnsupportedQueryError:
    """Say why no lexeme starts with this character."""
    if character.isdecimal():
        return refusal(
            "a number is not in decimal notation",
            position,
            "write it like 42, 0.5 or 1.5e3, with a space or an operator after it",
        )
    what, hint = _UNREADABLE.get(character, ("a character is not supported", ALLOWED))
    return refusal(what, position, hint)
