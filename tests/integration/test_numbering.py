"""The numbers of cells where equal values are written in several ways, and where there are none."""

from __future__ import annotations

from dataclasses import astuple
from types import ModuleType

import pytest

from kanon_db.answers import coded_rows, evidence, evidence_sql, scope
from kanon_db.answers.estimates import answer
from kanon_db.errors import UnsupportedQueryError
from kanon_db.publications.rows import distinct_cells
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_table,
    fetch,
    keep_cells_with_rows,
    value,
)

CHECK = "the numbers of the cells are those of the rows"
NAMES = ("wide", "few")
COLUMNS = (
    "age int, price numeric, ratio numeric, score float8, span interval, note jsonb, ends text,"
    " list numeric[], pair data.pair, sick text"
)


@pytest.fixture(scope="module", autouse=True)
def published(parties: Parties) -> None:
    fetch(parties.publisher, "CREATE TYPE data.pair AS (a int, b text)")
    rows = [
        (
            20 + i // 4 if i < 58 else 50, ("1.0", "1.00", "2")[i % 3], ("7", "7.0")[i % 2],
            ("0", "-0", "NaN")[i % 3], ("1 day", "24:00:00")[i % 2],
            ('{"a": 1.0}', '{"a": 1.00}', None)[i % 3], ("a", "b ")[i % 2],
            ("{1.0}", "{1.00}", "{}", None)[i % 4], ("(,)", None)[i % 2],
            "flu" if i % 3 else "cold",
        )
        for i in range(60)
    ]  # fmt: skip
    create_table(parties.publisher, "data.spelled", COLUMNS, rows)
    kanon = Functions(parties.publisher)
    kanon.register(
        "data.spelled", ["age", "ratio"], "sick",
        insensitive=["price", "score", "span", "note", "ends", "list", "pair"],
    )  # fmt: skip
    kanon.generalize("data.spelled", "wide", k=4, method="mondrian")
    kanon.suppress("data.spelled", "few", k=4)


def holds(parties: Parties, name: str) -> bool:
    return bool({row[0]: row[3] for row in Functions(parties.admin).verify(name)}[CHECK])


def asked(parties: Parties, query: str) -> list[tuple[object, ...]]:
    session = PsycopgSession(parties.analyst)
    with session.transaction():
        return [astuple(row) for row in answer(session, query).rows]


def test_an_average_of_records_that_are_not_expected(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suppressed cell may have any value: the average lies within bounds, but is not known."""
    query = "SELECT AVG(price) FROM few WHERE age = 99 AND price < 5"
    found = asked(parties, query)
    monkeypatch.setattr(scope, "_class_table", lambda *_: None)
    assert found == asked(parties, query)
    assert found[0][2:4] == (None, None)
    assert found[0][4:] == (pytest.approx(1), pytest.approx(2))


MANY = (
    "SELECT age, COUNT(*) FROM wide WHERE age <> 24 AND (sick = 'flu' OR age > 30) GROUP BY 1",
    "SELECT COUNT(*) FROM wide WHERE age <> 24 AND age <> 27 OR sick = 'flu' AND age < 30",
    "SELECT age, sick, COUNT(*), AVG(age) FROM wide WHERE age > ratio + 20 GROUP BY 1, 2",
)


def assert_same(found: list[tuple[object, ...]], wanted: list[tuple[object, ...]]) -> None:
    assert [one[:2] for one in found] == [one[:2] for one in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one[2:] == pytest.approx(other[2:], abs=1e-6)


@pytest.mark.parametrize(
    ("module", "limit", "most"),
    [
        (evidence, "_COLUMN_BYTES", 1 << 40), (evidence, "_TYPES_AT_ONCE", 3),
        (coded_rows, "_MOST_DENSE", 1), (evidence_sql, "_TRIED_TOGETHER", 1),
    ],
)  # fmt: skip
def test_what_is_too_much_at_once_is_counted_in_another_way(
    parties: Parties, module: ModuleType, limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Types are listed from the view, or part by part; groups have numbers as they are met."""
    wanted = [asked(parties, query) for query in MANY]
    monkeypatch.setattr(module, limit, most)
    for query, rows in zip(MANY, wanted, strict=True):
        assert_same(asked(parties, query), rows)
    monkeypatch.setattr(scope, "_class_table", lambda *_: None)
    for query, rows in zip(MANY, wanted, strict=True):
        assert_same(asked(parties, query), rows)


@pytest.mark.parametrize(
    ("module", "limit", "most"),
    [
        (evidence_sql, "MOST_LISTED", 3), (evidence_sql, "MOST_COMBINED", 2),
        (coded_rows, "_MOST_BYTES", 900),
    ],
)  # fmt: skip
def test_more_than_is_listed_or_tried_is_refused(
    parties: Parties, module: ModuleType, limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, limit, most)
    with pytest.raises(UnsupportedQueryError, match="more values") as refused:
        asked(parties, MANY[0])
    assert refused.value.hint


@pytest.mark.pitfall(4)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("order", ["price::text, ctid", "price::text DESC, ratio::text DESC"])
def test_equal_cells_have_one_text_in_any_order(parties: Parties, name: str, order: str) -> None:
    """1.0 and 1.00 have one number; which text it has must not tell of the order of the rows."""
    with parties.admin.transaction(force_rollback=True):
        keep_cells_with_rows(parties.admin, name)
        fetch(parties.admin, f"CREATE TEMP TABLE t ON COMMIT DROP AS TABLE published.{name}_row")
        fetch(parties.admin, f"DELETE FROM published.{name}_row")
        fetch(parties.admin, f"INSERT INTO published.{name}_row SELECT * FROM t ORDER BY {order}")
        fetch(parties.admin, f"REFRESH MATERIALIZED VIEW published.{name}")
        assert holds(parties, name)


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_are_gone_are_found(parties: Parties, name: str) -> None:
    with parties.admin.transaction(force_rollback=True):
        fetch(parties.admin, f"DELETE FROM published.{name}_row")
        fetch(parties.admin, f"REFRESH MATERIALIZED VIEW published.{name}")
        assert not holds(parties, name)


@pytest.mark.parametrize(("kind", "k"), [("generalize", 20), ("suppress", 4)])
def test_a_class_may_be_larger_than_a_block(
    parties: Parties, kind: str, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read at a time does not grow with the classes."""
    monkeypatch.setattr(distinct_cells, "_BLOCK", 3)
    kanon = Package(parties.publisher)
    getattr(kanon, kind)("data.spelled", "parts", k=k, replace=True)
    largest = value(
        parties.admin, "SELECT max(length(codes)) FROM published.parts_cls WHERE attribute = 'sick'"
    )
    assert largest == 2 * 3
    assert all(holds for *_, holds in kanon.verify("parts"))
    for condition in ("sick = 'flu'", "sick = 'flu' AND score = 0", "price = 1 OR age > 25"):
        query = f"SELECT COUNT(*) FROM {{}} WHERE {condition}"
        one = fetch(parties.analyst, "SELECT * FROM kanon.estimate($1)", query.format("parts"))
        fetch(parties.admin, "REVOKE SELECT ON published.parts_cls FROM kanon_analyst")
        try:
            other = fetch(
                parties.analyst, "SELECT * FROM kanon.estimate($1)", query.format("parts")
            )
        finally:
            fetch(parties.admin, "GRANT SELECT ON published.parts_cls TO kanon_analyst")
        assert one[0][2:] == pytest.approx(other[0][2:])


def test_what_the_sample_shows_does_not_matter_later(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which columns have numbers is decided once: another sample finds others."""
    monkeypatch.setattr(distinct_cells, "MOST_IN_SAMPLE", 0)
    assert all(holds for *_, holds in Package(parties.admin).verify("wide"))
