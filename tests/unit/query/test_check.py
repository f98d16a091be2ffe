from __future__ import annotations

from contextlib import suppress

import pytest

from kanon_db.errors import UnsupportedQueryError
from kanon_db.query._bind import Binder, Scope
from kanon_db.query.check import check
from kanon_db.query.expressions import (
    BIGINT,
    BOOLEAN,
    DATE,
    INTEGER,
    TEXT,
    TIMESTAMP,
    Column,
    Constant,
    Expression,
    Query,
    Rank,
    RelationText,
    Type,
    walk,
)
from kanon_db.query.layout import BucketLayout
from kanon_db.query.parse import parse_query
from tests.unit.query.layouts import bucket_tables

CITEXT = Type("public.citext", "other", '"public"')


def column(name: str, type_: Type, lookup: int | None = None, via: str = "") -> Column:
    return Column(name, f'"{name}"', type_, lookup, via)


COLUMNS = {
    "age": column("age", INTEGER),
    "years": column("years", BIGINT),
    "height": column("height", Type("real", "float")),
    "sex": column("sex", TEXT),
    "member": column("member", BOOLEAN),
    "born": column("born", DATE),
    "seen": column("seen", TIMESTAMP),
    "city": column("city", CITEXT),
    "zip": column("zip", INTEGER),
}
ILLNESS = column("illness", TEXT)
LAYOUT = BucketLayout(bucket_tables([3], [3]), COLUMNS, {"illness": ILLNESS})
PUBLICATION = RelationText("published", "t")
REGIONS = {"zip": column("zip", INTEGER, 0, "zip"), "region": column("region", TEXT, 0, "zip")}
SCOPES = [
    Scope(PUBLICATION, LAYOUT.columns),
    Scope(RelationText("geo", "regions", "r"), REGIONS),
]


def query(text: str) -> Query:
    return check(parse_query(text), SCOPES)


def where(condition: str) -> Expression:
    found = query(f"SELECT COUNT(*) FROM t WHERE {condition}").where
    assert found is not None
    return found


def constants(condition: str) -> dict[str | None, str]:
    return {
        part.text: part.type.name for part in walk(where(condition)) if isinstance(part, Constant)
    }


def test_an_unknown_column_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedQueryError) as refused:
        where("bucket_id = 1")
    assert "age, years" in refused.value.hint


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("zip = 1", "several relations"),
        ("c.age = 1", "qualified"),
        ("age", "a condition is needed here, not a column"),
        ("'x'", "a condition is needed here, not a value"),
        ("EXTRACT(year FROM '2020-01-01') = 1", "dates and timestamps"),
        ("CASE WHEN age = 1 THEN sex ELSE 1 END = 'a'", "results of a CASE"),
        ("CASE WHEN age THEN 'a' END = 'a'", "a condition is needed"),
        ("age IN (1, 'x', born)", "cannot be compared"),
        ("COUNT(*) = 1", "aggregate"),
    ],
)
def test_refused(condition: str, reason: str) -> None:
    with pytest.raises(UnsupportedQueryError, match=reason) as refused:
        where(condition)
    assert refused.value.hint


@pytest.mark.parametrize(
    "condition",
    ["age = TRUE", "age = DATE '2020-01-31'", "sex = 1", "sex = TRUE", "sex IN ('f', 1)",
     "member = 1", "born = 2020", "born BETWEEN '2020-01-01' AND 2020", "illness < 5",
     "sex = age", "city = sex", "age IS DISTINCT FROM sex"],
)  # fmt: skip
def test_values_that_postgresql_would_not_compare(condition: str) -> None:
    with pytest.raises(UnsupportedQueryError, match="cannot be compared") as refused:
        where(condition)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("condition", "text", "type_name"),
    [
        ("age = 2147483647", "2147483647", "integer"),
        ("age = 2147483648", "2147483648", "bigint"),
        ("age = 9223372036854775808", "9223372036854775808", "numeric"),
        ("age = 1e3", "1e3", "numeric"),
        ("age = '7'", "7", "integer"),
        ("age IN (1.5, '4')", "4", "numeric"),
        ("height IN (1, '4')", "4", "real"),
        ("age + years = '4'", "4", "bigint"),
        ("age * 1.5 = '4'", "4", "numeric"),
        ("height + age = '4'", "4", "double precision"),
        ("EXTRACT(year FROM born) = '4'", "4", "numeric"),
        ("date_part('year', born) = '4'", "4", "double precision"),
        ("date_trunc('year', seen) = '2020-01-01'", "2020-01-01", TIMESTAMP.name),
        ("date_trunc('year', born) = '2020-01-01'", "2020-01-01", "timestamp with time zone"),
        ("born IN ('2020-01-01', TIMESTAMP '2020-01-02')", "2020-01-01", TIMESTAMP.name),
        ("CASE WHEN member THEN 'x' END = 'y'", "y", "text"),
        ("CASE WHEN member THEN age ELSE '7' END = 8", "7", "integer"),
        ("city IN ('x', 'y')", "x", "public.citext"),
    ],
)
def test_constants_have_the_types_of_postgresql(condition: str, text: str, type_name: str) -> None:
    assert constants(condition)[text] == type_name


def test_groups() -> None:
    found = query(
        "SELECT sex AS s, COUNT(*), AVG(age) a FROM t GROUP BY sex, age + 1, s, 1 HAVING SUM(age) >"
        " 3 ORDER BY a DESC, COUNT(*) NULLS FIRST, 1"
    )
    assert [key.name for key in found.keys] == ["s", "?column?"]
    assert [measure.label for measure in found.measures] == ["count(*)", "a", ""]
    assert [measure.is_shown for measure in found.measures] == [True, True, False]
    assert [(order.key, order.measure) for order in found.order] == [
        (None, 1), (None, 0), (0, None),
    ]  # fmt: skip
    assert [order.nulls_first for order in found.order] == [True, True, False]


@pytest.mark.parametrize(
    ("aggregate", "name"),
    [
        ("COUNT(*)", "count"),
        ("COUNT(DISTINCT age)", "count"),
        ("AVG(age)", "avg"),
        ("stddev(age)", "stddev"),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY age)", "percentile_cont"),
    ],
)
def test_an_aggregate_without_as_is_ordered_by_its_name(aggregate: str, name: str) -> None:
    by_name = query(f"SELECT sex, {aggregate} FROM t GROUP BY sex ORDER BY {name} DESC")
    assert by_name == query(f"SELECT sex, {aggregate} FROM t GROUP BY sex ORDER BY 2 DESC")
    named = f"SELECT sex, {aggregate} AS n FROM t GROUP BY sex ORDER BY {name}"
    with pytest.raises(UnsupportedQueryError, match="does not have"):
        query(named)


def test_an_unknown_column_of_a_lookup_table_is_looked_for_there() -> None:
    with pytest.raises(UnsupportedQueryError, match="lookup table does not have") as refused:
        query("SELECT r.regoin, COUNT(*) FROM t JOIN geo.regions r USING (zip) GROUP BY 1")
    assert refused.value.hint.startswith('write "region"; its columns are zip, region')


def test_groups_alone_are_listed_with_their_counts() -> None:
    found = query("SELECT age FROM t GROUP BY age HAVING COUNT(*) > 1 ORDER BY COUNT(*) DESC")
    assert found.measures == query("SELECT age, COUNT(*) FROM t GROUP BY age").measures
    assert found.listed == (0,)


@pytest.mark.parametrize(
    ("condition", "detail", "hint"),
    [
        ("agee = 1", '"agee", at character 30 of the query', 'write "age"; its columns are'),
        ("sex = 'f' AND T.Yaers = 1", '"yaers", at character 44 of the query', 'write "years"'),
        ('sex = "female"', "at character 36 of the query", "single quotes"),
        ("weight > 1", "at character 30 of the query", "write COUNT(*) for SUM(weight)"),
    ],
)
def test_an_unknown_column_is_placed_with_the_nearest_name(
    condition: str, detail: str, hint: str
) -> None:
    """One that is like none is not repeated, since it could be a value."""
    with pytest.raises(UnsupportedQueryError) as refused:
        where(condition)
    assert refused.value.detail == detail
    assert hint in refused.value.hint
    assert "female" not in f"{refused.value.message}{refused.value.hint}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT COUNT(*) FROM t GROUP BY 2", "not the position"),
        ("SELECT COUNT(*) FROM t GROUP BY t.zip, r.zip", "same name"),
        ("SELECT age a, sex a, COUNT(*) FROM t GROUP BY age, sex ORDER BY a", "same name"),
        ("SELECT COUNT(*) FROM t GROUP BY sex ORDER BY age", "neither in GROUP BY"),
        ("SELECT COUNT(*) FROM t HAVING COUNT(*) > age", "HAVING"),
        ("SELECT AVG('1') FROM t", "only supported for numbers"),
        ("SELECT COUNT(COUNT(*) + 1) FROM t", "contains another"),
    ],
)
def test_refused_queries(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedQueryError, match=reason):
        query(text)


@pytest.mark.parametrize(
    "value", ["grade", "COALESCE(grade, 'low')", "CASE WHEN TRUE THEN grade END"]
)
def test_an_enumeration_keeps_its_order(value: str) -> None:
    grade = column("grade", Type("text", "label", labels=("low", "high")))
    found = check(
        parse_query(f"SELECT COUNT(*) FROM t WHERE {value} < 'high' AND grade::text < 'high'"),
        [Scope(PUBLICATION, {"grade": grade})],
    )
    assert sum(isinstance(part, Rank) for part in walk(found.where)) == 2


@pytest.mark.parametrize("value", ["tag", "COALESCE(tag, 'x')", "tag::text"])
def test_an_order_that_is_not_published(value: str) -> None:
    tag = column("tag", Type("character varying", "text", is_ordered=False))
    with pytest.raises(UnsupportedQueryError, match="order of a column"):
        check(
            parse_query(f"SELECT COUNT(*) FROM t WHERE {value} < 'x'"),
            [Scope(PUBLICATION, {"tag": tag})],
        )


@pytest.mark.parametrize(
    "nesting",
    [
        "{} + 1", "1 - ({})", "coalesce({}, 1)", "CASE WHEN {} > 1 THEN 1 ELSE 2 END",
        "CASE WHEN age > 1 THEN 1 ELSE {} END", "nullif({}, 1)", "greatest({}, 1)", "abs({})",
        "CASE WHEN {} <@ int4range(1, 5) THEN 1 ELSE 2 END",
        "CASE WHEN {} BETWEEN 1 AND 2 THEN 1 ELSE 2 END",
    ],
)  # fmt: skip
def test_what_is_nested_is_bound_in_linear_time(
    nesting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum of forty numbers kept a server busy for hours, deaf to a cancel."""
    calls, bind = 0, Binder.bind

    def counted(binder: Binder, expression: Expression) -> tuple[Expression, Type | None]:
        nonlocal calls
        calls += 1
        assert calls <= 20_000
        return bind(binder, expression)

    monkeypatch.setattr(Binder, "bind", counted)
    text = "age"
    for _ in range(16):
        text = nesting.format(text)
    with suppress(UnsupportedQueryError):
        where(f"{text} > 2")


def test_a_range_has_the_ends_that_are_its_own() -> None:
    """Numbers that its operand is compared with are none of them."""
    where("CASE WHEN age > 30 THEN 1 ELSE 2 END <@ int4range(1, 3)")
    with pytest.raises(UnsupportedQueryError, match="ends before it begins"):
        where("age <@ int4range(3, 1)")


def test_a_test_of_ranges_is_in_no_other() -> None:
    with pytest.raises(UnsupportedQueryError, match="<@ is nested"):
        where("CASE WHEN age <@ int4range(1, 5) THEN 1 ELSE 2 END <@ int4range(1, 3)")
