"""HAVING, ORDER BY and LIMIT on estimates."""

from __future__ import annotations

import json

import pytest

from kanon_db.query._bind import Scope
from kanon_db.query.check import check
from kanon_db.query.expressions import INTEGER, Column, Query, RelationText
from kanon_db.query.formulas import NOTHING, Estimated, Group, in_order, within_limit
from kanon_db.query.parse import parse_query

SCOPE = Scope(
    RelationText("published", "t"), {name: Column(name, name, INTEGER) for name in ("a", "b")}
)

# Values of a with their ranks (NULL comes last), counts and sums of b.
GROUPS = [
    (3, 1, 5.5, 10.0),
    (None, 2, 7.0, None),
    (1, 0, 5.5, -2.0),
]


def query(clauses: str) -> Query:
    return check(parse_query(f"SELECT a, COUNT(*), SUM(b) FROM t GROUP BY a {clauses}"), [SCOPE])


def keys(clauses: str) -> list[int | None]:
    groups = [
        Group(
            json.dumps({"a": value}),
            (rank,),
            (
                Estimated(count, 0.0, 0, 9),
                NOTHING if total is None else Estimated(total, 0.0, 0, 9),
            ),
        )
        for value, rank, count, total in GROUPS
    ]
    asked = query(clauses)
    return [json.loads(group.key)["a"] for group in within_limit(in_order(groups, asked), asked)]


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("", [1, 3, None]),
        ("ORDER BY a", [1, 3, None]),
        ("ORDER BY a DESC", [None, 3, 1]),
        ("ORDER BY a NULLS FIRST", [None, 1, 3]),
        ("ORDER BY a DESC NULLS LAST", [3, 1, None]),
        ("ORDER BY COUNT(*)", [1, 3, None]),
        ("ORDER BY COUNT(*) DESC, a DESC", [None, 3, 1]),
        ("ORDER BY 2, a DESC", [3, 1, None]),
        ("ORDER BY SUM(b)", [1, 3, None]),
        ("ORDER BY SUM(b) DESC", [None, 3, 1]),
        ("LIMIT 2", [1, 3]),
        ("LIMIT 0", []),
        ("LIMIT 1 OFFSET 1", [3]),
        ("OFFSET 2", [None]),
        ("HAVING COUNT(*) > 6", [None]),
        ("HAVING COUNT(*) <= 5.5", [1, 3]),
        ("HAVING COUNT(*) = 5.5 AND SUM(b) <> 10", [1]),
        ("HAVING SUM(b) > 0", [3]),
        ("HAVING NOT SUM(b) > 0", [1]),
        ("HAVING SUM(b) > 0 OR COUNT(*) > 6", [3, None]),
        ("HAVING SUM(b) IS NULL", [None]),
        ("HAVING SUM(b) IS NOT NULL", [1, 3]),
        ("HAVING SUM(b) BETWEEN -2 AND 10", [1, 3]),
        ("HAVING SUM(b) NOT BETWEEN 0 AND 10", [1]),
        ("HAVING COUNT(*) * 2 - 1 >= 10 + -1 + SUM(b)", [1]),
        ("HAVING COUNT(*) > 5 ORDER BY SUM(b) NULLS FIRST LIMIT 2", [None, 1]),
    ],
)
def test_clauses(clauses: str, expected: list[int | None]) -> None:
    assert keys(clauses) == expected
