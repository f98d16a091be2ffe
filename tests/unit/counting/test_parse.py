from __future__ import annotations

import pytest

from kanon_db.counting.parse import MAX_NESTING, CountText, parse_count
from kanon_db.counting.predicate import (
    And,
    Comparison,
    Literal,
    Membership,
    Not,
    NullTest,
    Or,
    Predicate,
    Range,
)
from kanon_db.errors import UnsupportedQueryError


def where(condition: str) -> Predicate | None:
    return parse_count(f"SELECT COUNT(*) FROM t WHERE {condition}").predicate


def number(text: str) -> Literal:
    return Literal("number", text)


def is_one(column: str) -> Comparison:
    return Comparison(column, "=", number("1"))


def test_the_relation() -> None:
    assert parse_count("SELECT COUNT(*) FROM Census_B") == CountText(None, "census_b", None)
    assert parse_count('SELECT COUNT(*) FROM published."B"') == CountText("published", "B", None)


def test_the_published_schema_is_a_setting() -> None:
    query = 'SELECT COUNT(*) FROM "Release".b'
    assert parse_count(query, "Release").schema == "Release"
    with pytest.raises(UnsupportedQueryError, match="published relations"):
        parse_count(query)


@pytest.mark.parametrize(
    ("written", "operator"),
    [("=", "="), ("!=", "<>"), ("<>", "<>"), ("<", "<"), ("<=", "<="), (">", ">"), (">=", ">=")],
)
def test_comparisons(written: str, operator: str) -> None:
    assert where(f"age {written} 1") == Comparison("age", operator, number("1"))


def test_a_constant_on_the_left_is_flipped() -> None:
    assert where("1 < age") == Comparison("age", ">", number("1"))
    assert where("1 >= age") == Comparison("age", "<=", number("1"))
    assert where("1 <> age") == Comparison("age", "<>", number("1"))


@pytest.mark.parametrize(
    ("written", "literal"),
    [
        ("-5", number("-5")),
        ("+5", number("5")),
        ("1.5e-3", number("1.5e-3")),
        ("((7))", number("7")),
        ("'it''s \\ '", Literal("string", "it's \\ ")),
        ("TRUE", Literal("boolean", "true")),
        ("DATE '2020-01-31'", Literal("date", "2020-01-31")),
        ("'2020-01-31'::date", Literal("date", "2020-01-31")),
        ("CAST('2020-01-31' AS timestamp)", Literal("timestamp", "2020-01-31")),
    ],
)
def test_constants(written: str, literal: Literal) -> None:
    assert where(f"a = {written}") == Comparison("a", "=", literal)


def test_precedence() -> None:
    assert where("NOT a = 1 AND b = 1 OR c = 1") == Or(
        (And((Not(is_one("a")), is_one("b"))), is_one("c"))
    )


def test_chains_are_flat_whatever_their_parentheses() -> None:
    assert where("a = 1 AND (b = 1 AND (c = 1))") == And((is_one("a"), is_one("b"), is_one("c")))


def test_lists_ranges_and_nulls() -> None:
    assert where("a IN (1, 'x')") == Membership("a", (number("1"), Literal("string", "x")))
    assert where("a NOT IN (1, 2)") == Membership("a", (number("1"), number("2")), negated=True)
    assert where("a BETWEEN 1 AND 2") == Range("a", number("1"), number("2"))
    assert where("a NOT BETWEEN 1 AND 2") == Range("a", number("1"), number("2"), negated=True)
    assert where("a IS NULL") == NullTest("a")
    assert where("a IS NOT NULL") == NullTest("a", negated=True)


def test_a_list_of_one_is_a_comparison() -> None:
    assert where("a IN (1)") == is_one("a")
    assert where("a NOT IN (1)") == Comparison("a", "<>", number("1"))


def test_long_chains_do_not_recurse() -> None:
    many = where(" OR ".join(["a = 1 AND b = 1"] * 2_000))
    assert isinstance(many, Or)
    assert len(many.parts) == 2_000


@pytest.mark.parametrize("opening", ["(", "NOT ", "(NOT ", "a IN (", "CAST("])
def test_deep_nesting_is_refused(opening: str) -> None:
    with pytest.raises(UnsupportedQueryError):
        where(opening * 5_000 + "a = 1" + ")" * (5_000 * ("(" in opening)))


def test_the_deepest_parentheses() -> None:
    assert where("(" * MAX_NESTING + "a = 1" + ")" * MAX_NESTING) == is_one("a")
    with pytest.raises(UnsupportedQueryError):
        where("(" * (MAX_NESTING + 1) + "a = 1" + ")" * (MAX_NESTING + 1))


def test_no_refusal_repeats_the_query() -> None:
    canary = "canary"
    for condition in (
        f"a = '{canary}' AND",
        f"a = '{canary}' = 1",
        f"'{canary}' = '{canary}'",
        f"a LIKE '{canary}'",
        f"(a, '{canary}') = (1, 2)",
        f"a = lower('{canary}')",
        f"a = '{canary}'::int",
        f"{canary}.a = 1",
    ):
        with pytest.raises(UnsupportedQueryError) as refused:
            where(condition)
        error = refused.value
        assert canary not in f"{error.message} {error.detail} {error.hint}"
        assert error.__cause__ is None
