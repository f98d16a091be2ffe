"""Reading queries: lexemes, constructs, the tree of the parser, and what a refusal says."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from string import ascii_letters, digits

import pytest
import sqlglot
from sqlglot import exp

from kanon_db.errors import UnsupportedQueryError
from kanon_db.query import _lexer
from kanon_db.query._constructs import MAX_NESTING, LexemePlace, refuse_constructs
from kanon_db.query._lexer import MAX_LENGTH, Lexeme, scan, with_types
from kanon_db.query.expressions import (
    ALLOWED,
    Aggregate,
    Case,
    Comparison,
    Expression,
    ItemText,
    Literal,
    LookupText,
    Name,
    Or,
    OrderText,
    RelationText,
)
from kanon_db.query.parse import parse_query, read_tree

A, B, C = (Name((name,)) for name in "abc")


def where(condition: str) -> Expression | None:
    return parse_query(f"SELECT COUNT(*) FROM t WHERE {condition}").where


def number(text: str) -> Literal:
    return Literal("number", text)


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
        ("'it''s \\ '", Literal("string", "it's \\ ")),
        ("TRUE", Literal("boolean", "true")),
        ("NULL", Literal("null", "")),
        ("DATE '2020-01-31'", Literal("date", "2020-01-31")),
        ("'2020-01-31'::date", Literal("date", "2020-01-31")),
        ("CAST('2020-01-31' AS timestamp)", Literal("timestamp", "2020-01-31")),
    ],
)
def test_constants(written: str, literal: Literal) -> None:
    assert where(f"a = {written}") == Comparison("=", A, literal)


def test_a_list_of_one_is_a_comparison() -> None:
    assert where("a IN (1)") == is_one("a")
    assert where("a NOT IN (1)") == Comparison("<>", A, number("1"))
    assert where("CASE a WHEN 1 THEN b ELSE c END") == Case(((is_one("a"), B),), C)


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
    assert where("(" * MAX_NESTING + "a = 1" + ")" * MAX_NESTING) == is_one("a")


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
        f"a = md5('{canary}')",
        f"a = to_date('{canary}', '{canary}')",
        f"a < b + INTERVAL '{canary}'",
        f"a <@ '{canary}'",
        f"a = ANY ('{{{canary}}}')",
        f"a /* {canary}",
        f"a = '{canary}'::regclass",
        f"a::{canary} = 1",
        f"EXTRACT({canary} FROM a) = 1",
        f"{canary} '1' = a",
        f"name = '{canary}' AND E'{canary}'",
    ):
        with pytest.raises(UnsupportedQueryError) as refused:
            where(condition)
        error = refused.value
        assert canary not in f"{error.message} {error.detail} {error.hint}"
        assert error.__cause__ is None


def pieces(text: str) -> list[tuple[str, str]]:
    return [(lexeme.kind, lexeme.text) for lexeme in scan(text)]


@pytest.mark.long
def test_letters_are_those_of_ascii_the_underscore_and_all_that_is_not_ascii() -> None:
    usual = set(ascii_letters + "_") | {chr(code) for code in range(128, sys.maxunicode + 1)}
    letters, more = re.compile(_lexer._LETTER), re.compile(_lexer._IN_WORD, re.VERBOSE)
    every = "\n".join(map(chr, range(sys.maxunicode + 1)))
    assert set(letters.findall(every)) == usual
    assert set(more.findall(every)) == usual | set(digits + "$")


def test_names_and_strings_stay_as_they_are() -> None:
    """Doubled quotes are one, and backslashes are kept."""
    assert pieces('"AGE" "say ""hi"""') == [("name", "AGE"), ("name", 'say "hi"')]
    assert pieces(r"'it''s' 'a\' ''") == [("string", "it's"), ("string", "a\\"), ("string", "")]
    assert scan("a\n = 'x'")[-1] == Lexeme("string", "x", 6)  # positions count from one


@pytest.mark.parametrize("run", ["= -", "<> -", ">= +", "!=", "<"])
def test_operators_give_back_their_signs(run: str) -> None:
    found = [text for _, text in pieces(f"a {run.replace(' ', '')}5")]
    assert found == ["a", *run.split(), "5"]


@pytest.mark.parametrize("run", ["!=-", "=*", "><", "<=>", "==", "@-", "||-", "->"])
def test_runs_that_are_one_operator_to_postgresql(run: str) -> None:
    with pytest.raises(UnsupportedQueryError, match="operator"):
        scan(f"a {run} 5")


@pytest.mark.parametrize("name", ["a" * 64, f'"{"é" * 32}"', "ä" * 32])
def test_names_that_postgresql_would_cut_off(name: str) -> None:
    with pytest.raises(UnsupportedQueryError, match="too long"):
        scan(name)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a" * (MAX_LENGTH + 1), "too long"), ("a \0", "NUL"), ("'\ud800'", "Unicode"),
        ("a\u00a0b", "spaces"), ("\u2028", "spaces"), ("a = 'x", "does not end"),
        ("a = 'it''s", "does not end"), ("a /* b", "comment"), ("a =/* /* b */ 1", "comment"),
        ("{", "character"), ("a\x0bb", "character"),
    ],
)  # fmt: skip
def test_refused(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedQueryError, match=reason):
        scan(text)


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
    ("query", "reason"),
    [
        *((text, "ends too early") for text in ("(a", "CASE WHEN a THEN b", "a AND", "a +", "")),
        *((text, "cannot be read") for text in ("a)", "(CASE a) END", "a END")),
    ],
)
def test_what_was_opened_closes(query: str, reason: str) -> None:
    with pytest.raises(UnsupportedQueryError, match=reason):
        refuse_constructs(scan(f"SELECT {query}"))


@pytest.mark.parametrize(
    ("query", "instead"),
    [
        ("SELECT MEDIAN(a) FROM t", "percentile_cont"),
        ("SELECT MEAN(a) FROM t", "AVG("),
        ("SELECT counts(*) FROM t", "write count(...)"),
        ("SELECT quantile(a, 0.5) FROM t", "percentile_cont"),
        ("SELECT IF(a > 1, 2, 3), COUNT(*) FROM t GROUP BY 1", "CASE"),
        ("SELECT COUNT(*) FROM t WHERE IFNULL(a, 1) = 1", "COALESCE"),
        ("SELECT COUNT(*) FROM t WHERE YEAR(a) = 2020", "EXTRACT"),
        ("SELECT COUNT(*) FROM t WHERE kanon.possibly(a, 1)", "as of the original table"),
        ("SELECT COUNT(*) FROM t WHERE starts_with(a, 'x')", "LIKE"),
        ("SELECT COUNT(*) FROM t WHERE a == 1", "write ="),
        ("SELECT COUNT(*) FROM t WHERE a => 1", "write >="),
        ("SELECT bool_or(a) FROM t", "FILTER"),
        ("SELECT string_agg(a, ',') FROM t", "SELECT DISTINCT"),
        ("SELECT COUNT(*) FROM t WHERE translate(a, 'b', 'c') = 'x'", "ILIKE"),
        ("SELECT COUNT(*) FROM t WHERE substring(a FROM 1 FOR 2) = 'x'", "substr(x, 1, 3)"),
        ("SELECT COUNT(*) FROM t WHERE split_part(a, ',', 2) = 'x'", "LIKE"),
        ("SELECT COUNT(*) FROM t WHERE a ^ 2 > 1", "x * x"),
        ("SELECT COUNT(*) FROM t WHERE a = ANY ('{1}')", "ARRAY[...]"),
        ("SELECT COUNT(*) FROM t WHERE a[1] = 1", "do not subscript"),
        ("SELECT COUNT(*) FROM t WHERE int4range(1, 2) @> a", "<@ int4range"),
        ("SELECT COUNT(*) FROM t WHERE a > (SELECT AVG(a) FROM t)", "write its number"),
        ("SELECT COUNT(*) FROM t FETCH FIRST 5 PERCENT ROWS ONLY", "ROWS ONLY"),
        ("SELECT COUNT(*) FROM t WHERE greatest(a, b) > 1", "CASE"),
        ("SELECT COUNT(*) FROM t WHERE to_char(a, 'YYYY') = '2020'", "EXTRACT"),
        ("SELECT COUNT(*) FROM t WHERE a > clock_timestamp()", "CURRENT_DATE"),
        ("SELECT COUNT(*) FROM t WHERE a IN (SELECT b FROM u)", "lookup table"),
        ("SELECT COUNT(*) FROM t WHERE EXISTS (SELECT 1)", "lookup table"),
        ("SELECT COUNT(*) FROM t UNION SELECT 1", "a query for each"),
        ("SELECT COUNT(*) OVER () FROM t", "SUM(COUNT(*)) OVER ()"),
        ("SELECT COUNT(*) OVER (PARTITION BY a) FROM t", "GROUP BY"),
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


def parsed(text: str, lexemes: Sequence[Lexeme]) -> exp.Expr | None:
    """Parse a text, each name and constant as the number of the lexeme that reads like it."""
    numbers = {lexeme.text: number for number, lexeme in reversed(list(enumerate(lexemes)))}
    pieces = scan(text)
    written = []
    for place, piece in enumerate(pieces):
        number = numbers.get(piece.text, -1)
        match piece.kind:
            case "number":
                written.append(f"{number}")
            case "string":
                written.append(f"'{number}'")
            case "word" if not LexemePlace(pieces, place).is_keyword:
                written.append(f'"{number}"')
            case _:
                written.append(piece.text)
    return sqlglot.parse(" ".join(written), dialect="postgres")[0]


def read(condition: str, tree_of: str) -> Expression | None:
    """Read a query as if the parser had read another condition."""
    lexemes = scan(f"SELECT COUNT(*) FROM t WHERE {condition}")
    refuse_constructs(lexemes)
    tree = parsed(f"SELECT COUNT(*) FROM t WHERE {tree_of}", lexemes)
    return read_tree(tree, lexemes, "published").where


@pytest.mark.parametrize(
    ("condition", "tree_of"),
    [
        ("a + b * c = 1", "(a + b) * c = 1"), ("a - b - c = 1", "a - (b - c) = 1"),
        ("a OR b AND c", "(a OR b) AND c"), ("NOT a AND b", "NOT (a AND b)"),
        ("NOT a = b", "(NOT a) = b"), ("a = b IS NULL", "a = (b IS NULL)"),
        ("a = b = c", "a = (b = c)"), ("- a * b = 1", "- (a * b) = 1"),
        ("(a + b) * c = 1", "a + b * c = 1"),
        ("a BETWEEN b AND c OR d", "a BETWEEN b AND (c OR d)"),
    ],
)  # fmt: skip
def test_another_grouping_is_refused(condition: str, tree_of: str) -> None:
    with pytest.raises(UnsupportedQueryError):
        read(condition, tree_of)


def test_parentheses_are_read_from_the_text_alone() -> None:
    assert read("a + b * c = 1", "(a + ((b) * c)) = (1)") == read("a + b * c = 1", "a + b * c = 1")
    assert read("(a + (b)) - c = 1", "a + b - c = 1") is not None


@pytest.mark.parametrize(
    ("condition", "tree_of"),
    [
        ("a = b", "b = a"), ("a = b", "a <> b"), ("a = b AND c", "a = b"),
        ("a = b", "a = b AND c"), ("a IN (b, c)", "a IN (c)"), ("a IN (b, c)", "a IN (b, c, c)"),
        ("a IS NULL", "a IS TRUE"), ("a = DATE 'x'", "a = TIMESTAMP 'x'"),
        ("a LIKE 'x'", "a ILIKE 'x'"), ("a = 1", "a = '1'"), ("a = '1'", "a = 1"),
        ("a = - 1", "a = 1"), ("a = 1", "a = - 1"), ("a = NULL", "a = FALSE"),
        ("SUM(a) = 1", "AVG(a) = 1"), ("b.a = 1", "b = 1"),
        ("EXTRACT(year FROM a) = 1", "EXTRACT(a FROM a) = 1"),
        ("CASE WHEN a THEN b ELSE c END", "CASE WHEN a THEN b END"),
    ],
)  # fmt: skip
def test_lost_or_changed_text_is_refused(condition: str, tree_of: str) -> None:
    with pytest.raises(UnsupportedQueryError):
        read(condition, tree_of)


@pytest.mark.parametrize(
    ("kind", "argument"),
    [
        (exp.Select, "distinct"), (exp.Select, "with_"), (exp.Count, "expressions"),
        (exp.In, "query"), (exp.Between, "symmetric"), (exp.Column, "join_mark"),
        (exp.Identifier, "something_new"),
    ],
)  # fmt: skip
def test_an_argument_that_is_not_listed_is_refused(kind: type[exp.Expr], argument: str) -> None:
    query = "SELECT COUNT(*) FROM t WHERE a IN (1, 2) AND b BETWEEN 3 AND 4"
    lexemes = scan(query)
    tree = parsed(query, lexemes)
    assert isinstance(tree, exp.Select)
    assert read_tree(tree, lexemes, "published").where is not None
    node = tree.find(kind)
    assert node is not None
    node.args[argument] = exp.true()
    with pytest.raises(UnsupportedQueryError):
        read_tree(tree, lexemes, "published")


@pytest.mark.parametrize("statement", ['DROP TABLE "1"', "SELECT 1 UNION SELECT 2", "COMMIT"])
def test_another_statement_is_refused(statement: str) -> None:
    (tree,) = sqlglot.parse(statement, dialect="postgres")
    with pytest.raises(UnsupportedQueryError):
        read_tree(tree, scan("SELECT COUNT(*) FROM t"), "published")


def same(one: str, other: str) -> None:
    """Hold two spellings of one query to each other."""
    assert parse_query(one) == parse_query(other)


ALL = "SELECT COUNT(*) FROM t"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("-- /* x\nSELECT COUNT(*)/* a /* b */ -- */FROM t", ALL),
        (f"{ALL} WHERE a = ANY (ARRAY[1, 2])", f"{ALL} WHERE a IN (1, 2)"),
        (f"{ALL} WHERE a <> ALL (ARRAY[1, 2])", f"{ALL} WHERE a NOT IN (1, 2)"),
        (
            f"{ALL} WHERE a = SOME(ARRAY['x', 'y']::text[])",
            f"{ALL} WHERE a IN ('x'::text, 'y'::text)",
        ),
        (f"{ALL} OFFSET 2 ROWS FETCH NEXT 5 ROWS ONLY", f"{ALL} LIMIT 5 OFFSET 2"),
        (f"{ALL} FETCH FIRST ROW ONLY", f"{ALL} LIMIT 1"),
        (f"{ALL} OFFSET 2 LIMIT 5", f"{ALL} LIMIT 5 OFFSET 2"),
        (f"{ALL} WHERE a > TO_DATE('20200131', 'YYYYMMDD')", f"{ALL} WHERE a > DATE '2020-01-31'"),
        (f"{ALL} WHERE ceiling(a) = 1", f"{ALL} WHERE ceil(a) = 1"),
    ],
)
def test_two_spellings_of_one_query(one: str, other: str) -> None:
    same(one, other)


@pytest.mark.parametrize(
    "condition",
    [
        "a = b = ANY (ARRAY[1])", "a < b = ANY (ARRAY[true])", "a = ANY (ARRAY[])",
        "a = ANY (ARRAY[1]::int)", "a = ANY (ARRAY[1] || b)", "a > ANY (ARRAY[1])", "a <@ b",
        "a <@ int4range(1)", "a <@ int4range(1, 2, '{}')",
        "a AT TIME ZONE b > c", "a || b || ", "a ||- 1 = b",
        "a > INTERVAL '1 day' DAY", "a > INTERVAL '1-2'", "a LIKE b || 'x'", "now(1) > a",
        "current_date() > a", "trim(BOTH 'x' FROM a) = b", "to_date(a, 'YYYY') = b",
    ],
)  # fmt: skip
def test_what_is_not_read(condition: str) -> None:
    with pytest.raises(UnsupportedQueryError):
        where(condition)


def test_names_of_functions_are_names() -> None:
    """Without a parenthesis, as in PostgreSQL, but for those that it reserves."""
    for name in ("length", "floor", "now", "interval", "at", "replace", "lower"):
        assert where(f"{name} = 1") == is_one(name)
    for reserved in ("left", "right", "current_date.x"):
        with pytest.raises(UnsupportedQueryError):
            where(f"{reserved} = 1")
