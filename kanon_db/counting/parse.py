"""Reading a query: from text to a typed structure, or a refusal with its reason.

sqlglot parses. Before, what dialects read differently is refused (`lexemes`), and so is what a
count query cannot have (`constructs`); after, the tree is read with an allow-list, every lexeme
accounted for (`tree`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlglot
from sqlglot.errors import SqlglotError

from kanon_db.counting.constructs import MAX_NESTING, Place, refuse_constructs, unexpected
from kanon_db.counting.expressions import Aggregate, Expression, children, walk
from kanon_db.counting.lexemes import Lexeme, scan
from kanon_db.counting.query import QueryText
from kanon_db.counting.refusals import refusal
from kanon_db.counting.tree import read_tree

MAX_HEIGHT: Final = 100
"""Of an expression's tree."""


def parse_query(query: str, published_schema: str = "published") -> QueryText:
    """Read a query on a publication.

    Parameters
    ----------
    query : str
        SQL as the analyst wrote it.
    published_schema : str
        The only schema that the publication may be qualified with.

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
    refuse_constructs(lexemes)
    try:
        (tree,) = sqlglot.parse(_numbered(lexemes), dialect="postgres")
        text = read_tree(tree, lexemes, published_schema)
    except SqlglotError:
        raise unexpected(lexemes[0]) from None
    except RecursionError:
        raise refusal(f"up to {MAX_NESTING} parentheses inside each other are too many") from None
    for expression in (text.where, *text.group):
        if any(isinstance(part, Aggregate) for part in walk(expression)):
            raise refusal(
                "an aggregate stands in WHERE or GROUP BY",
                hint="put conditions on counts into HAVING",
            )
    for expression in (
        *(item.expression for item in text.items), text.where, *text.group, text.having,
        *(item.expression for item in text.order),
    ):  # fmt: skip
        _refuse_tall(expression)
    return text


def _numbered(lexemes: Sequence[Lexeme]) -> str:
    """Write a query with the number of its lexeme for each name and constant.

    Thus the parser can take none of them for anything else, nor repeat one in a message, and each
    leaf of its tree tells which lexeme it stands for. Left out are the NOTs that negate a test, as
    in IS NOT NULL: they bind nothing, and PostgreSQL and sqlglot tell them from others by the next
    word, or the one before.
    """
    written = []
    for number, lexeme in enumerate(lexemes):
        place = Place(lexemes, number)
        match lexeme.kind:
            case "number":
                written.append(f"{number}")
            case "string":
                written.append(f"'{number}'")
            case "word" | "name" if not place.is_keyword:
                written.append(f'"{number}"')
            case _ if not place.is_negation:
                written.append(lexeme.text)
    return " ".join(written)


def _refuse_tall(expression: Expression | None) -> None:
    level = [] if expression is None else [expression]
    height = 0
    while level:
        height += 1
        if height > MAX_HEIGHT:
            raise refusal(f"an expression is more than {MAX_HEIGHT} operators high")
        level = [inner for part in level for inner in children(part)]
