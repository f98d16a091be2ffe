"""Splits a query into lexemes by PostgreSQL's rules, and moves along them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from typing import Literal as OneOf

from kanon_db.declaration import MAX_NAME_BYTES
from kanon_db.errors import UnsupportedQueryError
from kanon_db.query.expressions import ALLOWED, refusal

# PostgreSQL's lexical rules, narrowed to those that a count query needs.
#
# Dialects read some texts differently. These are refused before a parser sees them: other quotes,
# escapes, binary and hexadecimal constants, parameters, operators in one piece.


MAX_LENGTH: Final = 100_000
"""The most characters that a query may have."""

MAX_LEXEMES: Final = 40_000
"""The most words, constants and symbols: parsing them takes about half a second."""

Kind = OneOf["word", "name", "number", "string", "symbol", "type", "end"]


class Lexeme(NamedTuple):
    """A word, name, constant or symbol of the query."""

    # A ``word`` is a keyword or an unquoted name, a ``name`` was in double quotes; a ``type``, by
    # its SQL name, is cast to (see `casts`); ``end`` stands past the last piece
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


def unexpected(lexeme: Lexeme) -> UnsupportedQueryError:
    """Make the error for a lexeme that does not belong where it stands."""
    if lexeme.kind == "end":
        return refusal("the query ends too early", lexeme.position)
    return refusal("the query cannot be read as a SELECT", lexeme.position)


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
"""The names of the types that a query may cast to, each with its SQL name."""

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
    """Return the number of words of the type that begins here, and the type's lexeme."""
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


RANGE_TYPES: Final = {
    "int4range": "integer", "int8range": "bigint", "numrange": "numeric", "daterange": "date",
    "tsrange": "timestamp without time zone", "tstzrange": "timestamp with time zone",
}  # fmt: skip
"""The ranges that ``<@`` accepts, with the types of their values."""

_CONTAINED: Final = "write age <@ int4range(20, 30), or age >= 20 AND age < 30"
_LISTED: Final = "write IN (1, 2, 3), or = ANY (ARRAY[1, 2, 3])"


def merge_words(lexemes: Sequence[Lexeme]) -> list[Lexeme]:
    """Put one symbol where several words are one operator, and LIMIT where FETCH stands.

    Afterwards ``= any``, ``<> all`` (each with the type that its array is cast to), and ``<@`` with
    the name of a range stand before a parenthesis with a list; ``array[`` before a list of shares.

    Raises
    ------
    UnsupportedQueryError

    Examples
    --------
    >>> [x.text for x in merge_words(scan("a = ANY (ARRAY[1]) FETCH FIRST 5 ROWS ONLY"))]
    ['a', '= any', '(', '1', ')', 'limit', '5']
    """
    return _Merger(lexemes).merge()


class _Merger:
    def __init__(self, lexemes: Sequence[Lexeme]) -> None:
        self._lexemes = lexemes
        self._at = 0
        self._found: list[Lexeme] = []
        self._lists: list[int] = []  # of each open bracket, where its list begins in what is found

    def merge(self) -> list[Lexeme]:
        while self._at < len(self._lexemes):
            self._step()
        if self._lists:
            raise refusal("a list does not end", self._found[self._lists[-1]].position, _LISTED)
        return _limit_first(self._found)

    def _step(self) -> None:
        here = self._lexemes[self._at]
        quantified = ("any", "some") if here.is_symbol("=") else ("all",)
        if here.is_symbol("=", "<>", "!=") and self._follows(quantified, "(", "array", "["):
            text = "= any" if here.text == "=" else "<> all"
            self._put(5, Lexeme("symbol", text, here.position))
            self._lists.append(len(self._found) - 1)
            self._found.append(Lexeme("symbol", "(", here.position))
        elif here.is_word("percentile_cont", "percentile_disc") and self._follows(
            "(", "array", "["
        ):
            self._put(4, here, self._lexemes[self._at + 1])
            self._lists.append(len(self._found))
            self._found.append(Lexeme("symbol", "array[", here.position))
        elif here.is_symbol("]") and self._lists:
            self._close(here)
        elif here.is_symbol("[", "]"):
            raise refusal(
                "brackets are not supported",
                here.position,
                f"{_LISTED}; quote names with double quotes, and do not subscript",
            )
        elif here.is_symbol("<@"):
            name = self._ahead(1)
            if not (name.kind == "word" and name.text in RANGE_TYPES and self._ahead(2).reads("(")):
                raise refusal("<@ is only supported with a range", here.position, _CONTAINED)
            self._put(2, Lexeme("symbol", f"<@ {name.text}", here.position))
        elif here.is_word("at") and self._follows("time", "zone"):
            self._put(3, Lexeme("symbol", "at time zone", here.position))
        elif here.is_word("over") and self._follows("(", ")") and self._is_after_call:
            self._put(3, Lexeme("symbol", "over ()", here.position))
        elif here.is_word("over") and self._follows("(", "partition", "by") and self._is_after_call:
            by = Lexeme("symbol", "partition by", self._ahead(2).position)
            self._put(4, Lexeme("symbol", "over", here.position), self._ahead(1), by)
        elif here.is_word("fetch") and self._follows(("first", "next")):
            self._fetch(here)
        elif here.is_word("offset") and self._ahead(2).is_word("row", "rows"):
            self._put(3, here, self._ahead(1))
        else:
            self._put(1, here)

    @property
    def _is_after_call(self) -> bool:
        return bool(self._found) and self._found[-1].is_symbol(")")

    def _put(self, n_read: int, *lexemes: Lexeme) -> None:
        self._found += lexemes
        self._at += n_read

    def _ahead(self, offset: int) -> Lexeme:
        at = self._at + offset
        return self._lexemes[at] if at < len(self._lexemes) else Lexeme("end", "", 0)

    def _follows(self, *texts: str | tuple[str, ...]) -> bool:
        return all(
            any(self._ahead(i).reads(text) for text in ((one,) if isinstance(one, str) else one))
            for i, one in enumerate(texts, start=1)
        )

    def _close(self, here: Lexeme) -> None:
        """End a list; the type that an array is cast to goes to its beginning."""
        start = self._lists.pop()
        opener = self._found[start]
        if self._found[-1].is_symbol("array[") or self._found[-1] is self._found[start + 1]:
            raise refusal("a list is empty", here.position, _LISTED)
        if opener.is_symbol("array["):
            self._put(1, here)
            return
        if self._follows("::") and self._ahead(2).kind == "type":
            to = self._ahead(2)
            if not (self._ahead(3).is_symbol("[") and self._ahead(4).is_symbol("]")):
                raise refusal("an array is cast to what is no array", to.position, _LISTED)
            self._found[start] = opener._replace(text=f"{opener.text} {to.text}")
            self._at += 4
        if not self._follows(")"):
            raise refusal("an array is used for more than a list", here.position, _LISTED)
        self._put(2, Lexeme("symbol", ")", here.position))

    def _fetch(self, here: Lexeme) -> None:
        """Read ``FETCH FIRST [n] ROWS ONLY`` as LIMIT."""
        number, n_read = self._ahead(2), 5
        if number.kind != "number":
            number, n_read = Lexeme("number", "1", here.position), 4
        rows, only = self._ahead(n_read - 2), self._ahead(n_read - 1)
        if not (rows.is_word("row", "rows") and only.is_word("only")):
            raise refusal(
                "FETCH is only supported with a number of rows",
                here.position,
                "write FETCH FIRST 10 ROWS ONLY, or LIMIT 10",
            )
        self._put(n_read, Lexeme("word", "limit", here.position), number)


def _limit_first(lexemes: list[Lexeme]) -> list[Lexeme]:
    """Put OFFSET behind LIMIT, in whichever order they end the query."""
    if len(lexemes) > 4 and lexemes[-4].is_word("offset") and lexemes[-2].is_word("limit"):
        return [*lexemes[:-4], *lexemes[-2:], *lexemes[-4:-2]]
    return lexemes


Item = TypeVar("Item")

Node: TypeAlias = Any
"""A node of sqlglot's trees."""


class LexemeCursor:
    """Passes over lexemes from left to right; parentheses must be balanced."""

    def __init__(self, lexemes: Sequence[Lexeme]) -> None:
        self._lexemes = lexemes
        self._at = 0
        self._openings: dict[int, int] = {}  # of each closing parenthesis, the opening one
        opened = []
        for number, lexeme in enumerate(lexemes):
            if lexeme.is_symbol("("):
                opened.append(number)
            elif lexeme.is_symbol(")"):
                self._openings[number] = opened.pop()

    @property
    def here(self) -> Lexeme:
        """The next lexeme."""
        return self.ahead(0)

    def ahead(self, offset: int) -> Lexeme:
        """Return the lexeme at an offset from the next; past the end, one of the kind ``end``."""
        return self.lexeme(self._at + offset)

    def lexeme(self, index: int) -> Lexeme:
        """Return the lexeme of this number."""
        if index < len(self._lexemes):
            return self._lexemes[index]
        return Lexeme("end", "", self._lexemes[-1].position + 1)

    def step(self) -> Lexeme:
        """Pass over the next lexeme."""
        lexeme = self.here
        self._at += 1
        return lexeme

    def takes(self, *texts: str) -> bool:
        """Pass over these words and symbols, if they come next."""
        if all(self.ahead(i).reads(text) for i, text in enumerate(texts)):
            self._at += len(texts)
            return True
        return False

    def require(self, *texts: str) -> None:
        """Pass over these words and symbols; refuse the query if another lexeme comes."""
        for text in texts:
            if not self.takes(text):
                raise unexpected(self.here)

    def leaf(self, node: Node | None, *kinds: str) -> Lexeme:
        """Pass over the lexeme of a leaf of the tree, which must be the next one."""
        if node is None or self.here.kind not in kinds or node.name != str(self._at):
            raise unexpected(self.here)
        return self.step()

    def read_list(
        self, nodes: Sequence[Node] | None, read: Callable[[Node], Item]
    ) -> tuple[Item, ...]:
        """Read one or more items, separated by commas."""
        if not nodes:
            raise unexpected(self.here)
        items: list[Item] = []
        for node in nodes:
            if items:
                self.require(",")
            items.append(read(node))
        return tuple(items)

    def within(self, start: int) -> int:
        """Return the number of the first lexeme inside parentheses that open at `start`."""
        while start < len(self._lexemes) and self._lexemes[start].is_symbol("("):
            start += 1
        return start

    def closes(self, start: int) -> bool:
        """Pass over closing parentheses that were opened at `start`; tell whether there are any."""
        inside = self.within(start)
        closed = False
        while self.here.is_symbol(")") and start <= self._openings[self._at] < inside:
            self._at += 1
            closed = True
        return closed
