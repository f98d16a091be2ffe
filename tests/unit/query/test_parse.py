from __future__ import annotations

import pytest
import sqlglot

from kanon_db.errors import UnsupportedQueryError
from kanon_db.query._lexer import MAX_NESTING
from kanon_db.query.expressions import (
    Aggregate,
    And,
    Case,
    Comparison,
    DatePart,
    Expression,
    ItemText,
    Literal,
    LookupText,
    Name,
    Or,
    OrderText,
    RelationText,
)
from kanon_db.query.parse import parse_query

A, B, C = (Name((name,)) for name in "abc")


def where(condition: str) -> Expression | None:
    return parse_query(f"SELECT COUNT(*) FROM t WHERE {condition}").where


def number(text: str) -> Literal:
    return Literal("number", text)


def string(text: str) -> Literal:
    return Literal("string", text)


def is_one(column: str) -> Comparison:
    return Comparison("=", Name((column,)), number("1"))


def test_the_relation() -> None:
    assert parse_query("SELECT COUNT(*) FROM Census_B").publication == RelationText(
        "published", "census_b"
    )
    named = parse_query('SELECT COUNT(*) FROM published."B" AS c').publication
    assert named == RelationText("published", "B", "c")
    assert named.answers_to(("c",))
    assert not named.answers_to(("B",))


def test_the_published_schema_is_a_setting() -> None:
    query = 'SELECT COUNT(*) FROM "Release".b'
    assert parse_query(query, "Release").publication.schema == "Release"
    with pytest.raises(UnsupportedQueryError, match="only publications"):
        parse_query(query)


@pytest.mark.parametrize(
    ("written", "literal"),
    [
        ("-5", number("-5")),
        ("- -5", number("5")),
        ("+5", number("5")),
        ("1.5e-3", number("1.5e-3")),
        ("((7))", number("7")),
        ("'it''s \\ '", string("it's \\ ")),
        ("TRUE", Literal("boolean", "true")),
        ("NULL", Literal("null", "")),
        ("DATE '2020-01-31'", Literal("date", "2020-01-31")),
        ("'2020-01-31'::date", Literal("date", "2020-01-31")),
        ("CAST('2020-01-31' AS timestamp)", Literal("timestamp", "2020-01-31")),
    ],
)
def test_constants(written: str, literal: Literal) -> None:
    assert where(f"a = {written}") == Comparison("=", A, literal)


def test_chains_are_flat_whatever_their_parentheses() -> None:
    assert where("a = 1 AND (b = 1 AND (c = 1))") == And((is_one("a"), is_one("b"), is_one("c")))


def test_a_list_of_one_is_a_comparison() -> None:
    assert where("a IN (1)") == is_one("a")
    assert where("a NOT IN (1)") == Comparison("<>", A, number("1"))


def test_case_and_parts_of_dates() -> None:
    assert where("CASE a WHEN 1 THEN b ELSE c END") == Case(((is_one("a"), B),), C)
    assert where("EXTRACT(YEAR FROM a) = 1") == Comparison(
        "=", DatePart("extract", "year", A), number("1")
    )
    assert where("date_trunc('Month', a) = b") == Comparison(
        "=", DatePart("date_trunc", "month", A), B
    )


def test_clauses() -> None:
    query = parse_query(
        "SELECT a AS x, SUM(b) total FROM t LEFT JOIN s.r AS q ON q.k = t.c GROUP BY a"
        " HAVING COUNT(*) > 1 ORDER BY x DESC, a NULLS FIRST LIMIT 5 OFFSET 2;"
    )
    assert query.items == (ItemText(A, "x"), ItemText(Aggregate("sum", B), "total"))
    assert query.lookups == (
        LookupText(RelationText("s", "r", "q"), Name(("q", "k")), Name(("t", "c")), is_outer=True),
    )
    assert query.group == (A,)
    assert query.having == Comparison(">", Aggregate("count", None), number("1"))
    assert query.order == (
        OrderText(Name(("x",)), is_descending=True, nulls_first=True),
        OrderText(A, nulls_first=True),
    )
    assert (query.limit, query.offset) == (5, 2)


def test_long_chains_do_not_recurse() -> None:
    many = where(" OR ".join(["a = 1 AND b = 1"] * 2_000))
    assert isinstance(many, Or)
    assert len(many.parts) == 2_000


@pytest.mark.parametrize(
    "opening", ["(", "NOT ", "(NOT ", "a IN (", "CAST(", "- ", "CASE WHEN ", "COUNT(", "1 + ("]
)
def test_deep_nesting_is_refused(opening: str) -> None:
    with pytest.raises(UnsupportedQueryError):
        where(opening * 5_000 + "a = 1" + ")" * (5_000 * ("(" in opening)))


def test_tall_sums_are_refused() -> None:
    with pytest.raises(UnsupportedQueryError, match="nests more than"):
        where(" + ".join(["a"] * 5_000) + " = 1")
    assert where(" + ".join(["a"] * 90) + " = 1")


def test_the_deepest_parentheses() -> None:
    assert where("(" * MAX_NESTING + "a = 1" + ")" * MAX_NESTING) == is_one("a")
    with pytest.raises(UnsupportedQueryError, match="nested more than"):
        where("(" * (MAX_NESTING + 1) + "a = 1" + ")" * (MAX_NESTING + 1))


def test_a_parser_out_of_stack_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object, **__: object) -> None:
        raise RecursionError

    monkeypatch.setattr("sqlglot.parse", parse)
    with pytest.raises(UnsupportedQueryError, match="nests too deeply"):
        where("a = 1")


@pytest.mark.parametrize("clause", ["WHERE a IN (1) 2", "WHERE a = 1 OR OR b = 2", "WHERE 1 END"])
def test_where_the_parser_stopped(clause: str) -> None:
    with pytest.raises(UnsupportedQueryError) as refused:
        parse_query(f"SELECT COUNT(*) FROM t {clause}")
    place = clause.index("2") if "(1)" in clause else max(clause.find("OR b"), clause.find("END"))
    assert refused.value.detail == f"at character {23 + place + 1} of the query"


def test_the_parser_sees_no_name_and_no_value(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    parse = sqlglot.parse

    def listening(text: str, **options: str) -> object:
        seen.append(text)
        return parse(text, **options)

    monkeypatch.setattr("sqlglot.parse", listening)
    where("t.canary = 'canary' AND \"canary\" > 123.5")
    with pytest.raises(UnsupportedQueryError):
        where("canary 123.5 = 'canary'")
    assert len(seen) == 2
    assert not any("canary" in text or "123.5" in text for text in seen)
    assert not caplog.records


def test_no_refusal_repeats_the_query() -> None:
    canary = "canary"
    for condition in (
        f"a = '{canary}' AND",
        f"a = '{canary}' = 1",
        f"a LIKE {canary}",
        f"(a, '{canary}') = (1, 2)",
        f"a = lower('{canary}')",
        f"a = '{canary}'::regclass",
        f"a::{canary} = 1",
        f"EXTRACT({canary} FROM a) = 1",
        f"{canary} '1' = a",
    ):
        with pytest.raises(UnsupportedQueryError) as refused:
            where(condition)
        error = refused.value
        assert canary not in f"{error.message} {error.detail} {error.hint}"
        assert error.__cause__ is None
