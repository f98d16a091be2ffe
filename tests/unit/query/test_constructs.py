from __future__ import annotations

import pytest

from kanon_db.errors import UnsupportedQueryError
from kanon_db.query._lexer import MAX_NESTING, LexemePlace, refuse_constructs, scan, with_types


@pytest.mark.parametrize(
    ("query", "keywords"),
    [
        ("SELECT count FROM t", "select from"),
        ("SELECT count(*) FROM t", "select count from"),
        ("SELECT p.count(*) FROM t", "select from"),
        ("SELECT date, date 'x', 'x'::date AS date FROM t", "select date as from"),
        ("SELECT CAST('x' AS date) FROM t", "select cast as from"),
        ("SELECT unknown IS NOT unknown FROM t", "select is not unknown from"),
        ("SELECT nulls ORDER BY first NULLS FIRST", "select order by nulls first"),
        ("SELECT escape LIKE 'x' ESCAPE 'y'", "select like escape"),
    ],
)
def test_keywords_and_names(query: str, keywords: str) -> None:
    lexemes = with_types(scan(query))
    found = [lexeme.text for i, lexeme in enumerate(lexemes) if LexemePlace(lexemes, i).is_keyword]
    assert found == keywords.split()


@pytest.mark.parametrize(
    ("query", "negations"),
    [
        ("SELECT a IS NOT NULL, NOT a IS NOT TRUE, NOT NOT a", [3, 9]),
        ("SELECT a NOT IN (1), NOT a NOT BETWEEN b AND c, NOT a LIKE 'x'", [2, 10]),
    ],
)
def test_negated_tests(query: str, negations: list[int]) -> None:
    lexemes = scan(query)
    found = [i for i, _ in enumerate(lexemes) if LexemePlace(lexemes, i).is_negation]
    assert found == negations


@pytest.mark.parametrize(
    ("opening", "depth"),
    [("(", 1), ("NOT (", 2), ("- (", 2), ("(CASE WHEN ", 2), ("NOT ", 1), ("- ", 1)],
)
def test_nesting_is_limited(opening: str, depth: int) -> None:
    levels = MAX_NESTING // depth
    closing = (" THEN 1 END" if "CASE" in opening else "") + (")" if "(" in opening else "")
    refuse_constructs(scan("SELECT " + opening * levels + "a" + closing * levels))
    with pytest.raises(UnsupportedQueryError, match="nested more than"):
        refuse_constructs(scan("SELECT " + opening * (levels + 1) + "a" + closing * (levels + 1)))


@pytest.mark.parametrize(
    "query", ["SELECT (a", "SELECT CASE WHEN a THEN b", "SELECT a AND", "SELECT a +", "SELECT"]
)
def test_the_query_ends_too_early(query: str) -> None:
    with pytest.raises(UnsupportedQueryError, match="ends too early"):
        refuse_constructs(scan(query))


@pytest.mark.parametrize("query", ["SELECT a)", "SELECT (CASE a) END", "SELECT a END"])
def test_what_closes_was_opened(query: str) -> None:
    with pytest.raises(UnsupportedQueryError, match="cannot be read"):
        refuse_constructs(scan(query))
