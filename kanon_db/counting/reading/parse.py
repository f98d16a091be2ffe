"""Reading a query: from text to a typed structure, or a refusal with its reason.

sqlglot parses. Before, what dialects read differently is refused (`lexemes`), and so is what a
count query cannot have (`constructs`). After, the tree is checked against an allow-list
(`allowlist`), then read, with every lexeme accounted for (`clauses`, `tree`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from kanon_db.counting.expressions import (
    Aggregate,
    Distinct,
    Expression,
    Literal,
    Pattern,
    Range,
    TruthTest,
    children,
    walk,
)
from kanon_db.counting.reading.casts import with_types
from kanon_db.counting.reading.clauses import read_tree
from kanon_db.counting.reading.constructs import Place, refuse_constructs, unexpected
from kanon_db.counting.reading.grammar import ParseError, SqlglotError, sqlglot
from kanon_db.counting.reading.lexemes import Lexeme, scan
from kanon_db.counting.reading.query import QueryText
from kanon_db.counting.refusals import refusal

MAX_HEIGHT: Final = 100
"""How high the tree of an expression may be."""

MAX_OPERATORS: Final = 10_000
"""The most operators of a query, each evaluated for a million records; IN is one."""

MAX_PATTERNS: Final = 10_000
"""The most characters of all patterns together: PostgreSQL hears no cancel while it compares one
text with all of them, which takes half a second for texts of the most bytes that LIKE compares."""

_PATTERN_COST: Final = 20
"""What reading the text, and lowering it for ILIKE, costs, in characters of a pattern."""

MAX_ITEMS: Final = 100
"""The most items of a select list, of GROUP BY and of ORDER BY."""

_WRITTEN_TWICE: Final = (Distinct, Range, TruthTest)
"""Tests whose operands some statements repeat: nested, they would double at each level."""


def parse_query(
    query: str,
    published_schema: str = "published",
    heartbeat: Callable[[], None] = lambda: None,
) -> QueryText:
    """Read a query on a publication.

    Parameters
    ----------
    query : str
        SQL as the analyst wrote it.
    published_schema : str
        The only schema that the publication may be qualified with.
    heartbeat : callable, optional
        Is called between the steps, none of which takes as long as a second.

    Returns
    -------
    QueryText

    Raises
    ------
    UnsupportedQueryError
        For everything that is not answered: its message names the construct, and neither message
        nor detail repeats a name or a value of the query.

    Notes
    -----
    Where sqlglot's reading and PostgreSQL's could differ, the query is read as PostgreSQL reads it
    or refused; so is what needs PostgreSQL's rule for operators that do not associate. The tests
    compare what is accepted with the server's own grammar.

    Examples
    --------
    >>> parse_query("SELECT COUNT(*) FROM census_b WHERE age >= 18").where
    Comparison(operator='>=', left=Name(parts=('age',)), right=Literal(kind='number', text='18'))
    """
    lexemes = scan(query)
    if lexemes and lexemes[-1].is_symbol(";"):
        lexemes.pop()
    lexemes = with_types(lexemes)
    heartbeat()
    refuse_constructs(lexemes)
    written = _numbered(lexemes)
    heartbeat()
    try:
        (tree,) = sqlglot.parse(" ".join(written), dialect="postgres")
        heartbeat()
        text = read_tree(tree, lexemes, published_schema)
    except SqlglotError as error:
        raise unexpected(lexemes[_stopped_at(error, written)]) from None
    except RecursionError:
        raise refusal("the query nests too deeply", hint="use fewer parentheses") from None
    heartbeat()
    for listed in (text.items, text.group, text.order):
        if len(listed) > MAX_ITEMS:
            raise refusal(
                f"a list has more than {MAX_ITEMS} items",
                hint="ask for fewer aggregates, or groups, at a time",
            )
    for expression in (text.where, *text.group):
        if any(isinstance(part, Aggregate) for part in walk(expression)):
            raise refusal(
                "WHERE or GROUP BY contains an aggregate",
                hint="put conditions on counts into HAVING",
            )
    expressions = (
        *(item.expression for item in text.items), text.where, *text.group, text.having,
        *(item.expression for item in text.order), *text.selected,
    )  # fmt: skip
    for expression in expressions:
        _refuse_tall(expression)
    written_out = [part for part in expressions if part is not None]
    if sum(_repeated(part, _operators) for part in written_out) > MAX_OPERATORS:
        raise refusal(
            f"the query has more than {MAX_OPERATORS} operators",
            hint="use IN (...), which counts as one, or ranges; BETWEEN, IS DISTINCT FROM and IS"
            " TRUE count what they compare twice",
        )
    if sum(_repeated(part, _matching) for part in written_out) > MAX_PATTERNS:
        raise refusal(
            f"the patterns of LIKE have more than {MAX_PATTERNS:,} characters together",
            hint=f"each counts {_PATTERN_COST} more than it has; ask several queries",
        )
    return text


def _numbered(lexemes: Sequence[Lexeme]) -> list[str]:
    """Write each lexeme for the parser: names and constants as their numbers.

    Thus the parser can take none of them for anything else, nor repeat one in a message, and each
    leaf of its tree tells which lexeme it stands for. Nothing is written for a NOT that negates a
    test, as in IS NOT NULL: it groups nothing, and is read from the lexemes.
    """
    written = []
    for number, lexeme in enumerate(lexemes):
        place = Place(lexemes, number)
        match lexeme.kind:
            case "number":
                written.append(f"{number}")
            case "string":
                of_type = number > 0 and Place(lexemes, number - 1).is_type
                written.append(f"'{number}' )" if of_type else f"'{number}'")
            case "word" | "name" if not place.is_keyword:
                written.append(f'"{number}"')
            case "word" if place.is_type:  # in parentheses, or it would bind less than "::"
                written.append(f"( {lexeme.text}")
            case "word" if lexeme.text == "cast":
                written.append("TRY_CAST")  # which leaves another node than "::" does
            case _:
                written.append("" if place.is_negation else lexeme.text)
    return written


def _stopped_at(error: SqlglotError, written: Sequence[str]) -> int:
    """Return the number of the lexeme where sqlglot stopped, by the column in which that ends."""
    column = error.errors[0].get("col") if isinstance(error, ParseError) and error.errors else None
    if not isinstance(column, int):
        return 0
    ends = list(accumulate(len(piece) + 1 for piece in written))
    return min(bisect_left(ends, column), len(written) - 1)


def _repeated(expression: Expression, cost: Callable[[Expression], int]) -> int:
    """Add up what operators cost, as often as statements may repeat them."""
    found = sum(_repeated(part, cost) for part in children(expression))
    return cost(expression) + (2 * found if isinstance(expression, _WRITTEN_TWICE) else found)


def _operators(expression: Expression) -> int:
    return 1 if children(expression) else 0


def _matching(expression: Expression) -> int:
    """Return what a LIKE costs, in characters of its pattern."""
    match expression:
        case Pattern(pattern=Literal(text=text)):
            return len(text) + _PATTERN_COST
    return 0


def _refuse_tall(expression: Expression | None) -> None:
    level = [] if expression is None else [expression]
    height = 0
    while level:
        height += 1
        if height > MAX_HEIGHT:
            raise refusal(f"an expression nests more than {MAX_HEIGHT} operators")
        level = [inner for part in level for inner in children(part)]
