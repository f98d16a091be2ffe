"""Publishing with suppressed cells: what is published, what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.parties import (
    Connection,
    Functions,
    Package,
    Parties,
    columns_of,
    create_table,
    fetch,
    forget_draws,
    quoted,
    sqlstate_of,
    value,
)
from tests.profiles import examples

DUPLICATE, INVALID, UNKNOWN, INFEASIBLE, MISMATCH = "42710", "22023", "42704", "KN002", "42804"
FORBIDDEN = "42501"

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


def check_suppressed(
    connection: Connection,
    name: str,
    originals: Sequence[tuple[Any, ...]],
    quasi_identifiers: Sequence[str],
    k: int,
    *,
    left_out: int = 0,
    left_over: int = 0,
) -> Counter[str]:
    """Compare a publication with its originals, in Python; the rows of each pattern.

    Parameters
    ----------
    originals : sequence of tuples
        A number that the view shows, and the quasi-identifiers.
    left_out, left_over : int
        How many of them have no row, or are suppressed without k records like them.
    """
    columns = ", ".join(map(quoted, ("number", *quasi_identifiers, "pattern")))
    rows = fetch(connection, f"SELECT {columns} FROM {quoted('published', name)}")
    original = {number: cells for number, *cells in originals}
    classes: Counter[tuple[Any, ...]] = Counter()
    patterns: Counter[str] = Counter()
    for number, *cells, pattern in rows:
        whole = original.pop(number)
        assert len(pattern) == len(cells)
        for mark, cell, was in zip(pattern, cells, whole, strict=True):
            assert cell == (was if mark == "." else None)
        classes[pattern, *cells] += 1
        patterns[pattern] += 1
    assert len(original) == left_out
    for (pattern, *_), n in classes.items():
        assert n >= k or (set(pattern) == {"*"} and n == left_over)
    return patterns


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


def test_autovacuum_leaves_published_rows_alone(
    kanon: Functions | Package, parties: Parties
) -> None:
    """They never change, and whoever takes their place would wait for it."""
    kanon.suppress("data.people", "people", k=3)
    for relation in ("people", "people_row", "people_cel"):
        options = value(
            parties.admin,
            f"SELECT reloptions FROM pg_class WHERE oid = 'published.{relation}'::regclass",
        )
        assert options == ["autovacuum_enabled=off"]


def test_other_columns_are_unchanged(kanon: Functions | Package, parties: Parties) -> None:
    kanon.suppress("data.people", "people", k=20)
    found = fetch(parties.analyst, "SELECT number, sick FROM published.people ORDER BY number")
    assert found == of_people(5)


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


def test_optimal(kanon: Functions | Package, parties: Parties) -> None:
    heuristic = kanon.suppress("data.people", "greedy", k=7)
    published = kanon.suppress(
        "data.people", "people", k=7, method="optimal", options='{"time_limit": 30}'
    )
    check_suppressed(parties.analyst, "people", of_people(2, 3, 4), QUASI_IDENTIFIERS, k=7)
    assert published["metrics"]["gap"] == 0
    assert published["metrics"]["smallest_class"] >= 7
    # The greedy's left-over records are exempt from k.
    assert heuristic["metrics"]["left_over_records"] == 0
    cells = "suppressed_cells"
    assert published["metrics"][cells] <= heuristic["metrics"][cells]


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


@pytest.mark.pitfall(1)
def test_random_order(kanon: Functions | Package, parties: Parties) -> None:
    """Rows come in an order that is neither the source's nor the classes', nor foreseeable."""
    orders = []
    for name in ("first", "second"):
        forget_draws(parties.admin)  # which would be the same
        kanon.suppress("data.people", name, k=5)
        for relation in (name, f"{name}_row"):
            rows = fetch(
                parties.publisher, f"SELECT number FROM published.{relation} ORDER BY ctid"
            )
            orders.append([number for (number,) in rows])
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    for order in orders:
        rising = sum(a < b for a, b in pairwise(order))
        assert 70 < rising < 170  # of 239; 7 standard deviations about half


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


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "k is 0": ({"k": 0}, INVALID),
    "k is negative": ({"k": -3}, INVALID),
    "k exceeds the table": ({"k": 241}, INVALID),
    "no such method": ({"method": "best"}, INVALID),
    "no patterns": ({"patterns": []}, INVALID),
    "short pattern": ({"patterns": ["**"]}, INVALID),
    "strange pattern": ({"patterns": ["**?"]}, INVALID),
    "patterns and rules": ({"patterns": ["***"], "rules": "[]"}, INVALID),
    "rules are an object": ({"rules": "{}"}, INVALID),
    "rule of an unknown column": ({"rules": '[{"never": ["name"]}]'}, INVALID),
    "weight of an unknown column": ({"weights": '{"name": 1}'}, INVALID),
    "weight is 0": ({"weights": '{"age": 0}'}, INVALID),
    "weight is a list": ({"weights": '{"age": [1]}'}, INVALID),
    "weights are a list": ({"weights": "[1]"}, INVALID),
    "option of no method": ({"options": '{"time_limit": 1}'}, INVALID),
    "option of greedy": ({"method": "optimal", "options": '{"left_over": "join"}'}, INVALID),
    "no such rule": ({"options": '{"left_over": "drop"}'}, INVALID),
    "strange option": ({"method": "optimal", "options": '{"seed": 1}'}, INVALID),
    "no time": ({"method": "optimal", "options": '{"time_limit": 0}'}, INVALID),
    "time is a list": ({"method": "optimal", "options": '{"time_limit": [1]}'}, INVALID),
    "infeasible": ({"patterns": ["...", "*.."]}, INFEASIBLE),
    "infeasible, optimal": ({"patterns": ["...", "*.."], "method": "optimal"}, INFEASIBLE),
    "unknown reader": ({"readers": ["nobody at all"]}, UNKNOWN),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(kanon: Functions | Package, case: str) -> None:
    given, expected = REFUSED[case]
    options = {"k": 30, **given}
    assert sqlstate_of(lambda: kanon.suppress("data.people", "people", **options)) == expected
    assert kanon.publications() == []


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


@given(
    cells=st.lists(
        st.tuples(
            st.sampled_from([None, 1, 2, 3]), st.sampled_from([None, "", "x"]), st.booleans()
        ),
        min_size=1,
        max_size=30,
    ),
    k=st.integers(2, 6),
    method=st.sampled_from(["greedy", "optimal"]),
    left_over=st.sampled_from(["withhold", "join", "publish"]),
)
@settings(
    max_examples=examples(30),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
def test_random_tables(
    parties: Parties, cells: list[tuple[Any, ...]], k: int, method: str, left_over: str
) -> None:
    kanon = Functions(parties.publisher)
    with parties.publisher.transaction(force_rollback=True):
        rows = [(number, *row) for number, row in enumerate(cells)]
        fetch(parties.publisher, "CREATE TABLE data.random (number int, a int, b text, c bool)")
        with parties.publisher.cursor() as cursor:
            cursor.executemany("INSERT INTO data.random VALUES (%s, %s, %s, %s)", rows)
        kanon.register("data.random", ["a", "b", "c"], None, insensitive=["number"])
        given = {"method": method, "accept": '{"left_over_records": "it is a test"}'}
        if method == "greedy":
            given["options"] = f'{{"left_over": "{left_over}"}}'
        publish = lambda: kanon.suppress("data.random", "random", k=k, **given)
        if k > len(rows):
            with parties.publisher.transaction(force_rollback=True):
                assert sqlstate_of(publish) == INVALID
            return
        metrics = publish()["metrics"]
        left_out, left = int(metrics["suppressed_records"]), int(metrics["left_over_records"])
        assert left_out < k
        assert left_out == 0 or (method, left_over) == ("greedy", "withhold")
        assert left == 0 or (method, left_over) == ("greedy", "publish")
        check_suppressed(
            parties.publisher, "random", rows, ["a", "b", "c"], k, left_out=left_out, left_over=left
        )
        assert all(holds for *_, holds in kanon.verify("random"))
