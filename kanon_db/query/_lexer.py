"""Splits a query into lexemes by PostgreSQL's rules, and refuses what a count query cannot have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Final, NamedTuple
from typing import Literal as OneOf

from kanon_db.declaration import MAX_NAME_BYTES
from kanon_db.errors import UnsupportedQueryError
from kanon_db.query.expressions import ALLOWED, refusal

# PostgreSQL's lexical rules, narrowed to those that a count query needs.
#
# Dialects read some texts differently. These are refused before a parser sees them: comments, other
# quotes, escapes, binary and hexadecimal constants, parameters, operators in one piece.


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
    """Make the error for a character that begins no lexeme."""
    if character.isdecimal():
        return refusal(
            "a number is not in decimal notation",
            position,
            "write it like 42, 0.5 or 1.5e3, with a space or an operator after it",
        )
    what, hint = _UNREADABLE.get(character, ("a character is not supported", ALLOWED))
    return refusal(what, position, hint)


# Hints: what to write instead of a word, or a function, that is refused.


_EXTRACT: Final = "write EXTRACT(YEAR FROM <column>), or date_trunc('month', <column>)"
_LOOKUP: Final = (
    "join a lookup table that has the result for each value, or compare with LIKE or ILIKE"
)
_ONE_BY_ONE: Final = "ask a query for each"
_ROUND: Final = "write CAST(x AS integer), which rounds, or a condition like x >= 1 AND x < 2"
_TODAY: Final = "write the date, as DATE '2024-01-31'"
_WITHOUT: Final = "leave it out: an answer only reads the publication"

HINTS: Final = {
    **dict.fromkeys(("any", "array", "some"), "write IN (...)"),
    "all": "leave ALL out, or compare with each value by AND",
    "collate": "leave it out: texts are compared as on the source",
    "cross": "write JOIN <schema>.<lookup table> ON a = b",
    **dict.fromkeys(("full", "natural", "right"), "write LEFT JOIN ... ON a = b, or USING (a)"),
    "isnull": "write IS NULL",
    "notnull": "write IS NOT NULL",
    "fetch": "write LIMIT",
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
        "write GROUP BY; shares of the whole are 100.0 * COUNT(*) FILTER (WHERE ...) / COUNT(*)",
    ),
    "overlaps": "write two comparisons, as in a <= DATE '2024-01-31' AND b >= DATE '2024-01-01'",
    **dict.fromkeys(("rollup", "cube", "grouping", "sets"), "ask a query for each GROUP BY"),
    "row": "compare column by column, with AND",
    "values": "write IN (...)",
    "operator": "write the operator alone",
    "filter": "write COUNT(*) FILTER (WHERE ...)",
    "within": "write percentile_cont(0.5) WITHIN GROUP (ORDER BY <column>)",
    "distinct": "write SELECT DISTINCT a, b, or COUNT(DISTINCT a)",
    "median": "write percentile_cont(0.5) WITHIN GROUP (ORDER BY <column>)",
    "mode": "write SELECT x, COUNT(*) ... GROUP BY x ORDER BY 2 DESC LIMIT 1",
    # functions
    **dict.fromkeys(("current_date", "current_timestamp", "localtimestamp", "now"), _TODAY),
    **dict.fromkeys(
        ("upper", "lower", "initcap", "trim", "btrim", "ltrim", "rtrim", "replace", "concat"),
        _LOOKUP,
    ),
    **dict.fromkeys(
        ("substring", "substr", "left", "split_part", "position", "strpos", "length"),
        "compare with LIKE, as in x LIKE 'ab%' or x LIKE '___', or join a lookup table",
    ),
    **dict.fromkeys(("regexp_match", "regexp_like", "regexp_replace"), "write LIKE or ILIKE"),
    **dict.fromkeys(("to_char", "make_date", "to_date"), _EXTRACT),
    **dict.fromkeys(("ceil", "ceiling", "floor", "trunc"), _ROUND),
    "width_bucket": "write CASE WHEN x < 10 THEN 1 WHEN x < 20 THEN 2 ELSE 3 END",
    "abs": "write CASE WHEN x < 0 THEN -x ELSE x END",
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


# Refusing constructs of SQL that a count query cannot have, by the words and symbols that begin
# them, with a reason for each. The parser never sees them.


MAX_NESTING: Final = 40
"""The deepest nesting of parentheses, NOTs and CASEs, since reading and writing recurse."""

KEYWORDS: Final = frozenset(
    "and as asc between by case desc distinct else end false from group having ilike in inner is"
    " join left like limit not null offset on or order outer select then true using when"
    " where with".split()
)
"""The keywords of a count query, which are no names."""

FUNCTIONS: Final = frozenset(
    "age avg cast coalesce count date_part date_trunc extract max min nullif percentile_cont"
    " percentile_disc round stddev stddev_pop stddev_samp sum var_pop var_samp variance".split()
)
"""The functions of a count query; without a parenthesis, these words are names."""

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

_OTHER_RESERVED: Final = frozenset(
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
                return word in KEYWORDS or self.is_called or self.is_type

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
        if self.before.is_symbol("("):
            return self.neighbor(-2).is_word("from", "as")
        return self.before.kind == "end" or (
            self.before.is_symbol(")") and self._lexemes[0].is_word("with")
        )

    def refusal(self, what: str, hint: str = ALLOWED) -> UnsupportedQueryError:
        """Make the error for the lexeme."""
        return refusal(what, self.lexeme.position, hint)


def refuse_constructs(lexemes: Sequence[Lexeme]) -> None:
    """Refuse the first construct that a count query cannot have, each for a reason of its own.

    Afterwards parentheses and CASEs are balanced and not too deep; an unquoted word is a keyword
    of a count query, or a name to PostgreSQL too; of functions only :data:`FUNCTIONS` are called.

    Parameters
    ----------
    lexemes : sequence of Lexeme
        The lexemes of the whole query, with types, without a semicolon at its end.

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
        _check(LexemePlace(lexemes, index))
    _refuse_deep_nesting(lexemes)
    if last.is_word(*KEYWORDS - _LAST) or (last.kind == "symbol" and last.text != ")"):
        raise refusal("the query ends too early", last.position)


def unexpected(lexeme: Lexeme) -> UnsupportedQueryError:
    """Make the error for a lexeme that does not belong where it stands."""
    if lexeme.kind == "end":
        return refusal("the query ends too early", lexeme.position)
    return refusal("the query cannot be read as a SELECT", lexeme.position)


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


def _check_function(place: LexemePlace) -> None:
    word, argument = place.lexeme.text, place.neighbor(2)
    if word in ("date_part", "date_trunc") and argument.kind != "string":
        raise refusal(
            "the part of a date must be a quoted constant", argument.position, "write 'year'"
        )


def _called(place: LexemePlace) -> UnsupportedQueryError:
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


# Types of casts, which are recognized before the query is parsed.


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
