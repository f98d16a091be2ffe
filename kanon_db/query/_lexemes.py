"""Splits a query into lexemes by PostgreSQL's rules, and moves along them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from string import ascii_lowercase, ascii_uppercase
from typing import ClassVar, Final, NamedTuple, TypeVar
from typing import Literal as OneOf

from kanon_db.declaration import MAX_NAME_BYTES
from kanon_db.errors import UnsupportedQueryError
from kanon_db.query.expressions import ALLOWED, Values, refusal

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

_NAME: Final = rf"{_LETTER}{_IN_WORD}{{0,62}}"
_PERCENT: Final = rf"%s (?! {_IN_WORD} ) | \?"
_PARAMETER: Final = rf"""
    \$ (?P<place> [0-9]{{1,5}} ) | : (?P<colon> {_NAME} ) | % \( (?P<key> {_NAME} ) \) s
  | {_PERCENT}
"""


def _lexeme(parameter: str, other: str) -> re.Pattern[str]:
    """Compile what is a lexeme: a parameter among them, and what is no operator for that."""
    return re.compile(
        rf"""
    (?P<space> [ \t\n\r\f]+ )
  | (?P<parameter> {parameter} )
  | (?P<comment> -- | /\* )
  | (?P<escape> [BbEeNnXx]' | [Uu]&['"] )
  | (?P<word> {_LETTER} {_IN_WORD}* )
  | (?P<number> (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+) (?:[Ee][+-]?[0-9]+)? (?! {_IN_WORD} | \. ) )
  | (?P<string> '(?:[^']|'')*+' )
  | (?P<name> "(?:[^"]|"")++" )
  | (?P<operator> (?: (?! -- | /\* | {other} ) [-+*/<>=~!@\#%^&|`?] )+ )
  | (?P<symbol> :: | [(),.;\[\]] )
    """,
        re.VERBOSE,
    )


_NEVER: Final = "(?!)"
_LEXEME: Final = _lexeme(_NEVER, _NEVER)

# PostgreSQL takes the longest run of operator characters, then gives back + and - at its end,
# except from an operator that holds one of ~ ! @ # % ^ & | ` ?, hence not after "!=", "%", "||".
_OPERATORS: Final = re.compile(
    r"(?P<operator>=|<>|<=|>=|<|>|\*|/)?(?P<signs>[+-]*)|(?P<alone>!=|%|\|\||<@|!?~\*?)"
)

_TO_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)  # ASCII only, as PostgreSQL

_VALUES_HINT: Final = (
    "pass values with params => '[30, \"flu\"]' for $1 and $2, or params => '{\"x\": 30}' for :x;"
    " or write constants, in single quotes"
)
_UNREADABLE: Final = {
    "'": ("a quoted string does not end", "close it with a single quote; write '' for one inside"),
    '"': (
        "a quoted name is empty or does not end",
        'close it with a double quote; write "" for one inside',
    ),
    "$": ("a parameter has no value, and dollar quotes are not supported", _VALUES_HINT),
    ":": ("a parameter has no value", _VALUES_HINT),
}


class Parameters:
    """Puts constants in place of a query's parameters; no value becomes text of the query."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._n_read = 0
        self._room = MAX_LENGTH

    def read(self, parameter: re.Match[str], before: Lexeme | None) -> list[Lexeme]:
        """Return the lexemes of a parameter's value; those of a list stand in its brackets."""
        position = parameter.start() + 1
        value = self._value(parameter)
        if not isinstance(value, list | tuple):
            return [self._constant(value, position)]
        if not value:
            raise refusal("a list is empty", position, LISTED)

        def symbol(text: str) -> Lexeme:
            return Lexeme("symbol", text, position)

        listed = [part for one in value for part in (symbol(","), self._constant(one, position))]
        if before and before.is_word("in"):
            return [symbol("("), *listed[1:], symbol(")")]
        return [Lexeme("word", "array", position), symbol("["), *listed[1:], symbol("]")]

    def check_all_read(self) -> None:
        """Refuse more values than the query has parameters."""
        if not isinstance(self._values, Mapping) and self._n_read < len(self._values):
            raise refusal("there are more values than parameters", hint=_VALUES_HINT)

    def _value(self, parameter: re.Match[str]) -> object:
        name = parameter["colon"] or parameter["key"]
        if isinstance(self._values, Mapping):
            if name in self._values:
                return self._values[name]
        elif not name:
            place = int(parameter["place"] or self._n_read + 1)
            if 0 < place <= len(self._values):
                self._n_read = max(self._n_read, place)
                return self._values[place - 1]
        raise refusal("a parameter has no value", parameter.start() + 1, _VALUES_HINT)

    def _constant(self, value: object, position: int) -> Lexeme:
        match value:
            case None | bool():
                return Lexeme("word", "null" if value is None else str(value).lower(), position)
            case str():
                _check_characters(value)
                self._room -= len(value)
                if self._room < 0:
                    raise refusal("the values of parameters are too long", position)
                return Lexeme("string", value, position)
            case int() | float() | Decimal() if math.isfinite(value):
                return Lexeme("number", str(value), position)
        raise refusal("the value of a parameter is no constant", position, _VALUES_HINT)


def scan(query: str, values: Values | None = None) -> list[Lexeme]:
    """Split a query into its lexemes; `values` are those of its parameters.

    Raises UnsupportedQueryError.
    """
    # Runs of operator characters come apart as in PostgreSQL. With `standard_conforming_strings`
    # on, its default, a backslash in a plain string is an ordinary character.
    _check_characters(query)
    lexemes: list[Lexeme] = []
    pattern = _LEXEME if values is None else _lexeme(_PARAMETER, rf"% \( {_NAME} | {_PERCENT}")
    parameters = Parameters(values or ())
    at = 0
    while at < len(query):
        match = pattern.match(query, at)
        if match is None or match.lastgroup is None:
            raise _unreadable(query[at], at + 1)
        position, at, text = at + 1, match.end(), match.group()
        match match.lastgroup:
            case "space":
                continue
            case "parameter":
                lexemes += parameters.read(match, lexemes[-1] if lexemes else None)
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
    parameters.check_all_read()
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
    "write LIKE, ILIKE or ~ for patterns, % for a remainder, and AND, OR, NOT for conditions"
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
            raise refusal("a parameter has no value", position, _VALUES_HINT)
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


KEYWORDS: Final = frozenset(
    "and as asc between by case desc distinct else end false from group having ilike in inner is"
    " join left like limit not null offset on or order outer select then true using when"
    " where with".split()
)
"""The keywords of a count query, which are no names."""

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
    "window": "window functions are not supported",
    "for": "row locks (FOR UPDATE ...) are not supported",
    "into": "SELECT INTO is not supported",
    "distinct": "DISTINCT stands after SELECT, or in COUNT(DISTINCT ...)",
    "array": "arrays are not supported",
    "similar": "SIMILAR TO is not supported",
    **dict.fromkeys(
        "current_catalog current_role current_schema current_time current_user localtime"
        " session_user system_user user".split(),
        "function calls are not supported",
    ),
}
"""Words that PostgreSQL reserves (and EXISTS), each with the construct that it begins."""

_SUFFIXES: Final = {
    "over": "window functions are not supported",
    "filter": "FILTER stands after an aggregate, with WHERE in its parentheses",
    "within": "WITHIN GROUP stands after percentile_cont(...) or percentile_disc(...)",
}
"""Words that are names elsewhere, but not behind an expression."""

_BEFORE_PARENTHESIS: Final = {
    "mode": "mode() is not supported",
    "median": "MEDIAN(...) is not supported, nor does PostgreSQL have it",
    "values": "VALUES is not supported",
    "operator": "OPERATOR(...) is not supported",
    "row": "comparisons of rows are not supported",
    **dict.fromkeys(("rollup", "cube", "sets"), "ROLLUP, CUBE and GROUPING SETS stand in GROUP BY"),
}
"""Words that PostgreSQL does not reserve, but that begin no function call."""

_RESERVED: Final = frozenset(
    "analyse analyze asymmetric authorization binary both cast check collation column concurrently"
    " constraint create current_date current_timestamp default deferrable do foreign freeze grant"
    " initially leading localtimestamp placing primary references returning symmetric table to"
    " trailing unique variadic verbose".split()
)
"""All other words that PostgreSQL 15 to 18 reserve; as names, they must be quoted."""

_NEEDS_AS: Final = frozenset(
    "at char character day filter hour minute month operator over precision second varying within"
    " without year".split()
)
"""Words that need AS before them to be an alias in the select list, or behind an operator."""

_NO_NAME_BEFORE: Final = {"nulls": ("first", "last"), "format": ("json",)}
"""Words that are no names before some others."""

LISTED: Final = "write IN (1, 2, 3), or = ANY (ARRAY[1, 2, 3])"
LISTED_PATTERNS: Final = "write LIKE ANY (ARRAY['a%', 'b%'])"
_BRACKETS: Final = (
    "brackets are not supported",
    f"{LISTED}; quote names with double quotes, and do not subscript",
)
_SYMBOLS: Final = {
    ";": ("several statements are not supported", "ask one query at a time"),
    "*": ("* is only supported in COUNT(*) and between numbers", ALLOWED),
    **dict.fromkeys("[]", _BRACKETS),
}

_EXTRACT: Final = "write EXTRACT(YEAR FROM <column>), or date_trunc('month', <column>)"
_LOOKUP: Final = (
    "join a lookup table that has the result for each value, or compare with LIKE or ILIKE"
)
_ONE_BY_ONE: Final = "ask a query for each"
_WITHOUT: Final = "leave it out: an answer only reads the publication"

_HINTS: Final = {
    **dict.fromkeys(("any", "array", "some"), "write IN (...), or = ANY (ARRAY[...])"),
    "all": "leave ALL out, or write NOT IN (...), or <> ALL (ARRAY[...])",
    "collate": "leave it out: texts are compared as on the source",
    "cross": "write JOIN <schema>.<lookup table> ON a = b",
    **dict.fromkeys(("full", "natural", "right"), "write LEFT JOIN ... ON a = b, or USING (a)"),
    "isnull": "write IS NULL",
    "notnull": "write IS NOT NULL",
    "fetch": "write FETCH FIRST 10 ROWS ONLY, or LIMIT 10",
    "similar": "write LIKE",
    **dict.fromkeys(("for", "into", "lateral", "only", "tablesample"), _WITHOUT),
    **dict.fromkeys(("union", "intersect", "except"), _ONE_BY_ONE),
    **dict.fromkeys(
        ("exists", "select"),
        "ask it by itself first, and write its values, as in IN (1, 2, 3); or join a lookup table"
        " with the values that are meant",
    ),
    **dict.fromkeys(
        ("over", "window"),
        "write GROUP BY, and 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () for shares of the total",
    ),
    "overlaps": "write two comparisons, as in a <= DATE '2024-01-31' AND b >= DATE '2024-01-01'",
    **dict.fromkeys(("rollup", "cube", "sets"), "write GROUP BY ROLLUP (a, b)"),
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
    **dict.fromkeys(
        ("covar_pop", "covar_samp", "regr_slope", "regr_r2", "covariance"),
        "write AVG(a * b) - AVG(a) * AVG(b) for the covariance, or corr(a, b)",
    ),
    "count_big": "write COUNT(*)",
    "mode": "write SELECT x, COUNT(*) ... GROUP BY x ORDER BY 2 DESC LIMIT 1",
    # functions
    **dict.fromkeys(
        ("clock_timestamp", "statement_timestamp", "transaction_timestamp", "getdate", "curdate"),
        "write CURRENT_DATE, or now()",
    ),
    **dict.fromkeys(("translate", "reverse", "lpad", "rpad", "md5", "format"), _LOOKUP),
    **dict.fromkeys(
        ("position", "regexp_substr"),
        "write strpos(x, 'ab'), left(x, 2), or x LIKE 'ab%', or join a lookup table",
    ),
    **dict.fromkeys(("contains", "starts_with", "ends_with"), "write x LIKE 'ab%', or '%ab%'"),
    **dict.fromkeys(("regexp_match", "regexp_matches"), "write x ~ 'pattern'"),
    **dict.fromkeys(("make_date", "year", "month", "day"), _EXTRACT),
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

Item = TypeVar("Item")


def is_name(lexeme: Lexeme) -> bool:
    """Whether PostgreSQL takes a lexeme for a name, where a name may stand."""
    return lexeme.kind == "name" or (
        lexeme.kind == "word"
        and not (lexeme.text in KEYWORDS or lexeme.text in _CONSTRUCTS or lexeme.text in _RESERVED)
    )


def is_bare_alias(lexeme: Lexeme) -> bool:
    """Whether a lexeme is an alias in the select list without AS."""
    return is_name(lexeme) and not (lexeme.kind == "word" and lexeme.text in _NEEDS_AS)


class LexemeCursor:
    """Moves over the lexemes of a query, from left to right."""

    functions: ClassVar[Collection[str]] = ()
    """The names that may be called, one of which may be meant by another."""

    def __init__(self, lexemes: Sequence[Lexeme]) -> None:
        self._lexemes = (*lexemes, Lexeme("end", "", lexemes[-1].position + 1))
        self._at = 0
        self.depth = 0  # of parentheses, NOTs, signs and CASEs
        self.here = self._lexemes[0]  # the next lexeme

    def ahead(self, offset: int) -> Lexeme:
        """Return the lexeme at an offset from the next; past the end, one of the kind ``end``."""
        return self._lexemes[min(self._at + offset, len(self._lexemes) - 1)]

    def step(self) -> Lexeme:
        """Pass over the next lexeme."""
        lexeme = self.here
        self._at += 1
        self.here = self._lexemes[self._at]
        return lexeme

    def reads(self, first: str, *more: str) -> bool:
        """Whether these words and symbols come next."""
        return self.here.reads(first) and all(
            self.ahead(i).reads(text) for i, text in enumerate(more, start=1)
        )

    def takes(self, *texts: str) -> bool:
        """Pass over these words and symbols, if they come next."""
        if not self.reads(*texts):
            return False
        for _ in texts:
            self.step()
        return True

    def require(self, *texts: str) -> None:
        """Pass over these words and symbols; refuse the query if another lexeme comes."""
        for text in texts:
            if not self.here.reads(text):
                raise self.refuse_next()
            self.step()

    def enter(self, lexeme: Lexeme) -> None:
        """Nest what follows one level deeper, down to :data:`MAX_NESTING`."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self.refuse(f"parentheses are nested more than {MAX_NESTING} deep", at=lexeme)

    def leave(self) -> None:
        """End what :meth:`enter` began."""
        self.depth -= 1

    def open(self) -> None:
        """Pass over an opening parenthesis."""
        lexeme = self.here
        self.require("(")
        self.enter(lexeme)

    def close(self) -> None:
        """Pass over the parenthesis that closes the last one that was opened."""
        self.require(")")
        self.leave()

    def read_list(self, read: Callable[[], Item]) -> tuple[Item, ...]:
        """Read one or more items, separated by commas."""
        items = [read()]
        while self.takes(","):
            items.append(read())
        return tuple(items)

    def read_name(self) -> str:
        """Read one name: of a relation or a column, a qualifier, or an alias."""
        if not is_name(self.here) or self.ahead(1).is_word(
            *_NO_NAME_BEFORE.get(self.here.text, ())
        ):
            raise self.refuse_next()
        if self.ahead(1).is_symbol("("):
            raise self.refuse_call()
        return self.step().text

    def refuse(
        self, what: str, hint: str = ALLOWED, at: Lexeme | None = None
    ) -> UnsupportedQueryError:
        """Make the error for a construct that begins at a lexeme, by default at the next one."""
        return refusal(what, (at or self.here).position, hint)

    def refuse_next(self) -> UnsupportedQueryError:
        """Make the error for the next lexeme, which does not belong where it stands."""
        here, offset = self.here, 0
        while self.ahead(offset).reads("(") or self.ahead(offset).is_word("not"):
            offset += 1  # what is meant is the construct that these begin
        construct = self.ahead(offset)
        if construct.is_word(*_CONSTRUCTS):
            return self.refuse(_CONSTRUCTS[construct.text], _hint_of(construct), construct)
        if here.is_word(*_SUFFIXES):
            return self.refuse(_SUFFIXES[here.text], _hint_of(here))
        if here.is_symbol(*_SYMBOLS):
            return self.refuse(*_SYMBOLS[here.text])
        if self.ahead(1).is_symbol("(") and self.is_unknown_function:
            return self.refuse_call()
        if here.is_word(*_RESERVED):
            return self.refuse("a reserved word is used as a name", "put a name into double quotes")
        if here.kind == self.ahead(-1).kind == "string":
            return self.refuse(
                "a string in several pieces is not supported", "write it in one piece"
            )
        if here.kind == "end":
            return self.refuse("the query ends too early")
        return self.refuse("the query cannot be read as a SELECT")

    @property
    def is_unknown_function(self) -> bool:
        """Whether the next lexeme, before a parenthesis, names a function that is not known."""
        if self.here.is_word(*self.functions):
            return self.ahead(-1).is_symbol(".")  # of another schema
        return is_name(self.here) or self.here.is_word(*_RESERVED)

    def refuse_call(self) -> UnsupportedQueryError:
        """Make the error for the call of the function that comes next."""
        here = self.here
        if here.is_word(*_BEFORE_PARENTHESIS):
            return self.refuse(_BEFORE_PARENTHESIS[here.text], _hint_of(here))
        hint = _hint_of(here)
        if here.kind == "word" and hint == ALLOWED:
            from difflib import get_close_matches  # needed for a refusal only

            for name in get_close_matches(here.text, sorted(self.functions), n=1, cutoff=0.8):
                hint = f"write {name}(...)"
        return self.refuse("function calls are not supported", hint)


def _hint_of(lexeme: Lexeme) -> str:
    return _HINTS.get(lexeme.text, ALLOWED) if lexeme.kind == "word" else ALLOWED
