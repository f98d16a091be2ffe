"""Reading queries: lexemes, how operators bind, names and keywords, and what a refusal says."""

from __future__ import annotations

import inspect
import re
import sys
from string import ascii_letters, digits

import pytest

from kanon_db.errors import UnsupportedQueryError
from kanon_db.query import _lexemes
from kanon_db.query._lexemes import MAX_LENGTH, MAX_NESTING, Lexeme, scan
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
from kanon_db.query.parse import parse_query

ALL = "SELECT COUNT(*) FROM t"
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


def test_a_parser_out_of_stack_refuses() -> None:
    nested = "(a OR b AND " * MAX_NESTING + "c = d || e + f * 1" + ")" * MAX_NESTING
    assert where(nested)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        with pytest.raises(UnsupportedQueryError, match="nests too deeply"):
            where(nested)
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("clause", ["WHERE a IN (1) 2", "WHERE a = 1 OR OR b = 2", "WHERE 1 END"])
def test_where_the_parser_stopped(clause: str) -> None:
    with pytest.raises(UnsupportedQueryError) as refused:
        parse_query(f"SELECT COUNT(*) FROM t {clause}")
    place = clause.index("2") if "(1)" in clause else max(clause.find("OR b"), clause.find("END"))
    assert refused.value.detail == f"at character {23 + place + 1} of the query"


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
        f"a = ANY ('{{{canary}')",
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
    letters, more = re.compile(_lexemes._LETTER), re.compile(_lexemes._IN_WORD, re.VERBOSE)
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
    "query",
    [
        "SELECT count FROM t", "SELECT p.count FROM t", "SELECT date, 'x'::date AS date FROM t",
        "SELECT CAST('x' AS date) date FROM t", "SELECT unknown IS NOT unknown FROM t",
        "SELECT nulls FROM t nulls ORDER BY first NULLS FIRST", "SELECT last nulls FROM t escape",
        "SELECT escape LIKE 'x' ESCAPE 'y' escape FROM t",
        "SELECT filter, over, within FROM t over", "SELECT at AT TIME ZONE 'UTC' AS at FROM t",
        "SELECT a::timestamp timestamp FROM t at", "SELECT row, values, interval FROM t values",
        "SELECT a::double precision AS day, b AS over FROM t",
        "WITH recursive AS (SELECT a FROM t) SELECT a FROM recursive recursive",
    ],
)  # fmt: skip
def test_keywords_are_names_elsewhere(query: str) -> None:
    from tests.rewrite.postgres_reading import canonical, read

    assert canonical(parse_query(query)) == canonical(read(query))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT COUNT(*) day FROM t", "SELECT a over FROM t", "SELECT a filter FROM t",
        "SELECT user FROM t", "SELECT a AS check FROM t", "SELECT a * b at FROM t",
        "SELECT a FROM t left", "SELECT a FROM select", "SELECT in FROM t", "SELECT t.join FROM t",
        "SELECT a FROM t tablesample", "SELECT nulls last FROM t", "SELECT format json FROM t",
    ],
)  # fmt: skip
def test_reserved_words_are_no_names(query: str) -> None:
    with pytest.raises(UnsupportedQueryError):
        parse_query(query)


@pytest.mark.parametrize(
    ("opening", "depth"),
    [("(", 1), ("NOT (", 2), ("- (", 2), ("(CASE WHEN ", 2), ("NOT ", 1), ("- ", 1)],
)
def test_nesting_is_limited(opening: str, depth: int) -> None:
    levels = MAX_NESTING // depth
    closing = (" THEN 1 END" if "CASE" in opening else "") + (")" if "(" in opening else "")
    where(opening * levels + "a" + closing * levels)
    with pytest.raises(UnsupportedQueryError, match="nested more than"):
        where(opening * (levels + 1) + "a" + closing * (levels + 1))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        *((text, "ends too early") for text in ("(a", "CASE WHEN a THEN b", "a AND", "a +", "")),
        *((text, "cannot be read") for text in ("a)", "(CASE a) END", "a END")),
    ],
)
def test_what_was_opened_closes(query: str, reason: str) -> None:
    with pytest.raises(UnsupportedQueryError, match=reason):
        parse_query(f"SELECT {query}")


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
        ("SELECT COUNT(*) FROM t WHERE substring(a FROM '^x') = 'x'", "substr(x, 1, 3)"),
        ("SELECT COUNT(*) FROM t WHERE a ^ 2 > 1", "x * x"),
        ("SELECT COUNT(*) FROM t WHERE a = ANY (b)", "ARRAY[...]"),
        ("SELECT COUNT(*) FROM t WHERE a[1] = 1", "do not subscript"),
        ("SELECT COUNT(*) FROM t WHERE int4range(1, 2) @> a", "<@ int4range"),
        ("SELECT COUNT(*) FROM t WHERE a > (SELECT AVG(a) FROM t)", "write its number"),
        ("SELECT COUNT(*) FROM t FETCH FIRST 5 PERCENT ROWS ONLY", "ROWS ONLY"),
        ("SELECT COUNT(*) FROM t WHERE a > clock_timestamp()", "CURRENT_DATE"),
        ("SELECT COUNT(*) FROM t WHERE a IN (SELECT AVG(b) FROM t)", "write its values"),
        ("SELECT COUNT(*) FROM t WHERE a IN (SELECT b FROM t LIMIT 2)", "GROUP BY"),
        (
            "SELECT n FROM t JOIN (SELECT a, COUNT(*) n FROM t GROUP BY a) u ON t.a = u.a",
            "by itself",
        ),
        ("SELECT b FROM t JOIN (SELECT a, b FROM t GROUP BY a, b) u ON t.a = u.a", "with AND"),
        ("SELECT COUNT(*) FROM t WHERE EXISTS (SELECT 1)", "lookup table"),
        ("SELECT COUNT(*) FROM t UNION SELECT 1", "a query for each"),
        ("SELECT COUNT(*) OVER () FROM t", "SUM(COUNT(*)) OVER ()"),
        ("SELECT COUNT(*) OVER (PARTITION BY a) FROM t", "GROUP BY"),
        ("SELECT COUNT(*) FROM t GROUP BY ROLLUP (a, ROLLUP (b))", "ROLLUP (a, b)"),
        ("SELECT COUNT(*) FROM t WHERE cube(a) = 1", "ROLLUP (a, b)"),
        ("SELECT COUNT(*) FROM s.u LEFT JOIN t ON a = b", "FROM <publication> LEFT JOIN"),
        ("SELECT COUNT(*) FROM t RIGHT JOIN s.u ON a = b", "LEFT JOIN"),
        ("SELECT COUNT(*) FROM t WHERE (a, b) = (1, 2)", "AND"),
        ("SELECT COUNT(*) FROM t WHERE a BETWEEN SYMMETRIC b AND 1", "lower value first"),
        ("SELECT COUNT(*) FROM t WHERE a ~~ 'x'", "LIKE"),
        ("SELECT COUNT(*) FROM t FOR UPDATE", "leave it out"),
        ("SELECT * FROM t", "SELECT DISTINCT"),
    ],
)
def test_hint(query: str, instead: str) -> None:
    with pytest.raises(UnsupportedQueryError) as refused:
        parse_query(query)
    assert instead in refused.value.hint
    assert refused.value.hint != ALLOWED


@pytest.mark.parametrize(
    ("written", "grouped"),
    [
        ("a OR b AND c", "a OR (b AND c)"), ("NOT a AND b", "(NOT a) AND b"),
        ("NOT a = b", "NOT (a = b)"), ("NOT NOT a", "NOT (NOT a)"),
        ("NOT a IS NULL", "NOT (a IS NULL)"), ("a = b IS NULL", "(a = b) IS NULL"),
        ("a IS DISTINCT FROM b = c", "a IS DISTINCT FROM (b = c)"),
        ("a = b IS NOT DISTINCT FROM c", "(a = b) IS NOT DISTINCT FROM c"),
        ("a = b IN (1, 2)", "a = (b IN (1, 2))"), ("a IN (1, 2) = b", "(a IN (1, 2)) = b"),
        ("a + b IN (1, 2)", "(a + b) IN (1, 2)"),
        ("a || b LIKE 'x' || 'y'", "(a || b) LIKE ('x' || 'y')"),
        ("a BETWEEN b + 1 AND c || d OR e", "(a BETWEEN (b + 1) AND (c || d)) OR e"),
        ("a BETWEEN (b AT TIME ZONE 'UTC') AND c", "a BETWEEN ((b AT TIME ZONE 'UTC')) AND (c)"),
        ("a < b || c", "a < (b || c)"), ("a + b || c * d", "(a + b) || (c * d)"),
        ("a || b <@ int4range(1, 2)", "(a || b) <@ int4range(1, 2)"),
        ("a + 1 <@ int4range(1, 2)", "(a + 1) <@ int4range(1, 2)"),
        ("a + b * c", "a + (b * c)"), ("a - b - c", "(a - b) - c"),
        ("a / b * c % d", "((a / b) * c) % d"),
        ("- a * b", "(- a) * b"), ("a - - b", "a - (- b)"), ("- a::int", "- (a::int)"),
        ("a + b = ANY (ARRAY[1, c])", "(a + b) = ANY (ARRAY[1, c])"),
        ("- a AT TIME ZONE 'UTC'", "(- a) AT TIME ZONE 'UTC'"),
        ("a * b AT TIME ZONE 'UTC'", "a * (b AT TIME ZONE 'UTC')"),
        ("a::date AT TIME ZONE 'UTC'", "(a::date) AT TIME ZONE 'UTC'"),
        ("a::int::text", "(a::int)::text"),
        ("a LIKE 'x' ESCAPE '!' OR b", "(a LIKE 'x' ESCAPE '!') OR b"),
        ("CASE WHEN a OR b THEN c END = d", "(CASE WHEN (a OR b) THEN c END) = d"),
    ],
)  # fmt: skip
def test_how_operators_bind(written: str, grouped: str) -> None:
    """As in PostgreSQL, whose grammar reads the same."""
    from tests.rewrite.postgres_reading import canonical, read

    assert where(written) == where(grouped)
    both = {canonical(read(f"{ALL} WHERE {text}")) for text in (written, grouped)}
    assert both == {canonical(parse_query(f"{ALL} WHERE {written}"))}


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        *(
            (text, "comparisons cannot be chained")
            for text in ("a = b = c", "a < b < c", "a IS NULL = b", "a <> b = ANY (ARRAY[1])")
        ),
        *(
            (text, "parentheses are needed")
            for text in (
                "a IS NULL IS NULL", "a IS NULL::boolean", "a = NOT b", "- NOT a", "a IN (1) + 1",
                "a IN (1) IN (2)", "a BETWEEN 1 AND 2 BETWEEN 3 AND 4", "a LIKE 'x' LIKE 'z'",
                "a IN (1) || b", "a AT TIME ZONE 'UTC'::text", "a <@ int4range(1, 2) + 1",
                "a BETWEEN b + c AT TIME ZONE 'UTC' AND d",
            )
        ),
        *((text, "cannot be read") for text in ("a BETWEEN b = c AND d", "a NOT = b", "a = b NOT")),
    ],
)  # fmt: skip
def test_what_does_not_group(condition: str, reason: str) -> None:
    """Also where PostgreSQL has a rule that readers do not know."""
    with pytest.raises(UnsupportedQueryError, match=reason):
        where(condition)


@pytest.mark.parametrize(
    "condition",
    [
        "a = b AND", "= b", "a b", "a IN ()", "a IN (b, )", "a IN b", "a IN (b", "a IS", "a IS NOT",
        "a IS DISTINCT b", "a BETWEEN 1", "a BETWEEN 1 OR 2", "a LIKE", "a NOT", "a NOT b", "a..b",
        "a.", ".a", "a.1", "a = DATE b", "SUM(a", "SUM()", "CASE a END", "CASE WHEN a END",
        "CASE WHEN a THEN b ELSE END", "EXTRACT(year a)", "EXTRACT(1 FROM a)", "a::", "()", "(a b)",
        "a = ANY", "a = ANY (ARRAY[1)", "a = ANY (ARRAY[1]", "a AT TIME ZONE", "COUNT(*",
        "COUNT(**)", "lower(a,)", "round(a, )", "NULLIF(a)", "COALESCE()", "1 2", "'a' b",
        "a <@ int4range(1, 2",
    ],
)  # fmt: skip
def test_words_too_few_or_too_many(condition: str) -> None:
    for clause in ("WHERE", "GROUP BY a HAVING", "ORDER BY"):
        with pytest.raises(UnsupportedQueryError):
            parse_query(f"{ALL} {clause} {condition}")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT 1 + (SELECT COUNT(*) FROM other.t) FROM t", "only publications"),
        ("SELECT 1 + (SELECT COUNT(*) FROM u) FROM t", "another relation"),
        ("SELECT 1 + (SELECT COUNT(*) FROM t WHERE a) FROM t", "but for totals"),
        ("SELECT 1 + (SELECT COUNT(*), 1 FROM t) FROM t", "but for totals"),
        ("SELECT 1 + (SELECT COUNT(*) FROM (SELECT a FROM t) AS t) FROM t", "but for totals"),
        (
            "WITH t AS (SELECT a FROM t WHERE a > 1) SELECT 1 + (SELECT COUNT(*) FROM t) FROM t",
            "but for totals",
        ),
    ],
)
def test_a_subselect_is_the_total_of_the_publication(query: str, reason: str) -> None:
    with pytest.raises(UnsupportedQueryError, match=reason):
        parse_query(query)
    total = parse_query("SELECT (SELECT COUNT(*) AS n FROM published.t AS u) FROM t")
    assert total == parse_query("SELECT (((SELECT COUNT(*) FROM t))) FROM t")


def same(one: str, other: str) -> None:
    """Hold two spellings of one query to each other."""
    assert parse_query(one) == parse_query(other)


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
