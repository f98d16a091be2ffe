"""Publishing with suppressed cells: what is published, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    columns_of,
    create_table,
    fetch,
    sqlstate_of,
    value,
)
from tests.integration.row_checks import check_suppressed

INFEASIBLE = "KN002"

# The number tells which person a published row is about: it is no quasi-identifier here, so that
# the tests can compare each row with its original.
PEOPLE = [
    (i, f"name {i}", i % 5 or None, "mf"[i % 2], f"town {i % 7}", f"disease {i % 4}")
    for i in range(240)
]
QUASI_IDENTIFIERS = ("age", "sex", "town")


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_table(
        parties.publisher,
        "data.people",
        "number int, name text, age int, sex text, town text, sick text",
        PEOPLE,
    )
    Functions(parties.publisher).register(
        "data.people", QUASI_IDENTIFIERS, "sick", ["name"], insensitive=["number"]
    )


def of_people(*columns: int) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in (0, *columns)) for row in PEOPLE]


def test_view(kanon: Functions | Package, parties: Parties) -> None:
    published = kanon.suppress("data.people", "people", k=5)
    assert published["records"] == len(PEOPLE)
    assert published["guarantee"].startswith("5-anonymity by suppression")
    assert columns_of(parties.publisher, "published.people") == [
        "number", "age", "sex", "town", "sick", "pattern",
    ]  # fmt: skip
    kind = "SELECT relkind::text FROM pg_class WHERE oid = 'published.people'::regclass"
    assert value(parties.publisher, kind) == "m"
    patterns = check_suppressed(
        parties.analyst, "people", of_people(2, 3, 4), QUASI_IDENTIFIERS, k=5
    )
    stars = sum(pattern.count("*") * n for pattern, n in patterns.items())
    metrics = kanon.metrics("people")
    assert metrics == published["metrics"]
    assert metrics["suppressed_cells"] == stars
    assert metrics["suppressed_share"] == pytest.approx(stars / (3 * len(PEOPLE)))
    assert metrics["classes"] == value(
        parties.analyst,
        "SELECT count(*) FROM (SELECT DISTINCT age, sex, town, pattern FROM published.people) AS c",
    )
    assert metrics["average_class_size"] == pytest.approx(len(PEOPLE) / metrics["classes"])
    assert all(holds for *_, holds in kanon.verify("people"))


@pytest.mark.pitfall(15)
def test_null_and_suppressed_differ(kanon: Functions | Package, parties: Parties) -> None:
    """A NULL of the source is not taken for a cell that was suppressed."""
    kanon.suppress("data.people", "people", k=2, patterns=["...", "***"])
    kept = fetch(
        parties.analyst,
        "SELECT count(*) FROM published.people WHERE age IS NULL AND pattern = '...'",
    )
    assert kept == [(sum(row[2] is None for row in PEOPLE),)]


@pytest.mark.parametrize(
    "patterns", [["...", "*..", "***"], ["..*", "*.*", "***"], ["***"], [".**", "***", ".**"]]
)
def test_listed_patterns(kanon: Functions | Package, parties: Parties, patterns: list[str]) -> None:
    kanon.suppress("data.people", "people", k=7, patterns=patterns)
    found = check_suppressed(parties.analyst, "people", of_people(2, 3, 4), QUASI_IDENTIFIERS, k=7)
    assert set(found) <= set(patterns)


def test_rules(kanon: Functions | Package, parties: Parties) -> None:
    rules = '[{"at_most": 1}, {"never": ["sex"]}, {"outliers": "suppress"}]'
    shown = kanon.patterns("data.people", rules=rules)
    assert [row["pattern"] for row in shown] == ["...", "..*", "*..", "***"]
    assert [row["position"] for row in shown] == [1, 2, 3, 4]
    assert [list(row["suppressed"]) for row in shown] == [
        [], ["town"], ["age"], ["age", "sex", "town"],
    ]  # fmt: skip
    assert [row["cost"] for row in shown] == [0, 1, 1, 3]
    kanon.suppress("data.people", "people", k=7, rules=rules)
    found = check_suppressed(parties.analyst, "people", of_people(2, 3, 4), QUASI_IDENTIFIERS, k=7)
    assert set(found) <= {row["pattern"] for row in shown}


def test_weights(kanon: Functions | Package, parties: Parties) -> None:
    """A dear attribute is kept where a cheap one can be suppressed in its place."""
    weights = '{"town": 0.1, "age": 2.5}'
    shown = kanon.patterns("data.people", weights=weights)
    assert [row["pattern"] for row in shown][:3] == ["...", "..*", ".*."]
    assert [row["cost"] for row in shown][:3] == pytest.approx([0, 0.1, 1])
    published = kanon.suppress("data.people", "people", k=9, weights=weights)
    found = check_suppressed(parties.analyst, "people", of_people(2, 3, 4), QUASI_IDENTIFIERS, k=9)
    cost = {"*": (2.5, 1, 0.1), ".": (0, 0, 0)}
    expected = sum(
        n * sum(cost[mark][i] for i, mark in enumerate(pattern)) for pattern, n in found.items()
    )
    assert published["metrics"]["suppression_cost"] == pytest.approx(expected)


def test_registered_weights(kanon: Functions | Package, parties: Parties) -> None:
    fetch(parties.publisher, "DROP VIEW IF EXISTS data.weighed")
    fetch(parties.publisher, "CREATE VIEW data.weighed AS SELECT * FROM data.people")
    kanon.register(
        "data.weighed", QUASI_IDENTIFIERS, "sick", ["name"], '{"town": {"weight": 0.25}}'
    )
    cheapest = kanon.patterns("data.weighed")[1]
    assert (cheapest["pattern"], cheapest["cost"]) == ("..*", 0.25)


LONELY = [(i, 1 if i < 10 else i) for i in range(12)]
PUBLISHED = {
    "withhold": ({".": 10}, "2 left-over records are left out"),
    "join": ({".": 9, "*": 3}, "at least 3 times"),
    "publish": ({".": 10, "*": 2}, "can tell whose they are"),
}


@pytest.mark.parametrize("left_over", [None, *PUBLISHED])
def test_left_over_records(kanon: Functions | Package, parties: Parties, left_over: Any) -> None:
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.lonely")
    create_table(parties.publisher, "data.lonely", "number int, a int", LONELY)
    kanon.register("data.lonely", ["a"], None, insensitive=["number"])
    given = {
        None: {},
        "publish": {"accept": '{"left_over_records": "it is a test"}'},
    }.get(left_over, {})
    if left_over is not None:
        given |= {"options": f'{{"left_over": "{left_over}"}}'}
    published = kanon.suppress("data.lonely", "lonely", k=3, **given)
    rows, said = PUBLISHED[left_over or "withhold"]
    assert published["guarantee"].endswith(said)
    left_out = len(LONELY) - sum(rows.values())
    assert published["records"] == len(LONELY)
    assert published["metrics"]["records"] == sum(rows.values())
    assert published["metrics"]["suppressed_records"] == left_out
    shown = rows["*"] if left_over == "publish" else 0
    assert published["metrics"]["left_over_records"] == shown
    assert rows == check_suppressed(
        parties.analyst, "lonely", LONELY, ["a"], 3, left_out=left_out, left_over=shown
    )
    checks = kanon.verify("lonely")
    assert all(holds for *_, holds in checks)
    said_of_left_over = [line for line in checks if line[0].startswith("left-over records")]
    assert [line[2] for line in said_of_left_over] == ["2 records"] * (left_over == "publish")


def test_left_over_records_without_a_pattern_for_them(
    kanon: Functions | Package, parties: Parties
) -> None:
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.lonely")
    create_table(parties.publisher, "data.lonely", "number int, a int", LONELY)
    kanon.register("data.lonely", ["a"], None, insensitive=["number"])
    refused = lambda: kanon.suppress("data.lonely", "none", k=3, patterns=["."])
    assert sqlstate_of(refused) == INFEASIBLE


def test_equal_values_look_equal(kanon: Functions | Package, parties: Parties) -> None:
    """1.0 and 1.00 are equal: written apart, they would tell two rows of one class apart."""
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.scales")
    rows = [(i, ["1.0", "1.00", "1.000"][i % 3], ["1 day", "24:00"][i % 2]) for i in range(12)]
    create_table(parties.publisher, "data.scales", "number int, a numeric, b interval", rows)
    kanon.register("data.scales", ["a", "b"], None, insensitive=["number"])
    kanon.suppress("data.scales", "scales", k=12)
    texts = fetch(
        parties.analyst, "SELECT DISTINCT a::text, b::text, pattern FROM published.scales"
    )
    assert len(texts) == 1
    assert texts[0][2] == ".."


def test_taken_column_names(kanon: Functions | Package, parties: Parties) -> None:
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.taken")
    create_table(
        parties.publisher,
        "data.taken",
        "pattern int, kanon_pattern int, position int",
        [(i % 2, i % 3, i) for i in range(30)],
    )
    kanon.register("data.taken", ["pattern", "position"], "kanon_pattern")
    kanon.suppress("data.taken", "taken", k=3)
    assert columns_of(parties.publisher, "published.taken") == [
        "pattern", "kanon_pattern", "position", "kanon_pattern_",
    ]  # fmt: skip
    assert all(holds for *_, holds in kanon.verify("taken"))


def test_columns_without_a_role_are_named(parties: Parties) -> None:
    """They are not published: the publisher hears of it, as they may be missed."""
    columns = "SELECT number, age, sex, town, sick FROM data.people"
    fetch(parties.publisher, f"CREATE VIEW data.columns AS {columns}")
    heard: list[str] = []
    parties.publisher.add_notice_handler(
        lambda diagnostic: heard.append(diagnostic.message_primary)
    )
    kanon = Functions(parties.publisher)
    kanon.register("data.columns", ["age", "sex"], "sick")
    kanon.suppress("data.columns", "columns", k=5)
    kanon.drop("columns")
    registered, published = (m for m in heard if m.startswith("columns without a role"))
    assert '"number", "town"' in registered
    assert "number, town" in published


def test_values_without_order(kanon: Functions | Package, parties: Parties) -> None:
    """Columns that are published as they are need no order; quasi-identifiers do."""
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.shapes")
    create_table(
        parties.publisher, "data.shapes", "number int, a int, shape point",
        [(i, i % 2, "(1,2)") for i in range(20)],
    )  # fmt: skip
    kanon.register("data.shapes", ["a"], None, insensitive=["number", "shape"])
    kanon.suppress("data.shapes", "shapes", k=2)
    assert value(parties.analyst, "SELECT count(shape) FROM published.shapes") == 20
