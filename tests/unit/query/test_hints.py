"""Refusals name what to write instead of this very query, not all that could be written."""

from __future__ import annotations

import pytest

from kanon_db.errors import UnsupportedQueryError
from kanon_db.query.expressions import ALLOWED
from kanon_db.query.parse import parse_query


@pytest.mark.parametrize(
    ("query", "instead"),
    [
        ("SELECT MEDIAN(a) FROM t", "percentile_cont"),
        ("SELECT bool_or(a) FROM t", "FILTER"),
        ("SELECT string_agg(a, ',') FROM t", "SELECT DISTINCT"),
        ("SELECT COUNT(*) FROM t WHERE lower(a) = 'x'", "ILIKE"),
        ("SELECT COUNT(*) FROM t WHERE substring(a, 1, 2) = 'x'", "LIKE"),
        ("SELECT COUNT(*) FROM t WHERE left(a, 2) = 'x'", "LIKE"),
        ("SELECT COUNT(*) FROM t WHERE abs(a) > 1", "CASE"),
        ("SELECT COUNT(*) FROM t WHERE greatest(a, b) > 1", "CASE"),
        ("SELECT COUNT(*) FROM t WHERE floor(a) = 1", "CAST"),
        ("SELECT COUNT(*) FROM t WHERE to_char(a, 'YYYY') = '2020'", "EXTRACT"),
        ("SELECT COUNT(*) FROM t WHERE a > now()", "DATE"),
        ("SELECT COUNT(*) FROM t WHERE a IN (SELECT b FROM u)", "lookup table"),
        ("SELECT COUNT(*) FROM t WHERE EXISTS (SELECT 1)", "lookup table"),
        ("SELECT COUNT(*) FROM t UNION SELECT 1", "a query for each"),
        ("SELECT COUNT(*) OVER () FROM t", "GROUP BY"),
        ("SELECT COUNT(*) FROM t GROUP BY ROLLUP (a)", "a query for each"),
        ("SELECT COUNT(*) FROM t RIGHT JOIN s.u ON a = b", "LEFT JOIN"),
        ("SELECT COUNT(*) FROM t WHERE (a, b) = (1, 2)", "AND"),
        ("SELECT COUNT(*) FROM t WHERE a BETWEEN SYMMETRIC 2 AND 1", "lower value first"),
        ("SELECT COUNT(*) FROM t WHERE a ~ 'x'", "LIKE"),
        ("SELECT COUNT(*) FROM t FOR UPDATE", "leave it out"),
        ("SELECT * FROM t", "SELECT DISTINCT"),
        ("SELECT COUNT(*) FROM (SELECT DISTINCT a FROM t) AS u", "COUNT(DISTINCT"),
    ],
)
def test_hint(query: str, instead: str) -> None:
    with pytest.raises(UnsupportedQueryError) as refused:
        parse_query(query)
    assert instead in refused.value.hint
    assert refused.value.hint != ALLOWED
