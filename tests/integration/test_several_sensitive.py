"""Buckets of a source with several sensitive attributes, their checks and their answers."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from kanon_db.errors import InvalidParameterError, KanonError, RiskError
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_table,
    failed_checks,
    fetch,
    value,
)
from tests.profiles import long_but

N_RECORDS = 600
ILLNESSES = ("flu", "gout", "measles", "mumps", "asthma", None)
COSTS = (100, 200, 300, 400, 500)
INSURANCES = ("public", "private", "none", "other")


def people() -> list[tuple[Any, ...]]:
    """Records whose cost depends on the illness, and both on the age."""
    draw = random.Random(40)  # noqa: S311  # made-up data
    rows = []
    for _ in range(N_RECORDS):
        age = draw.randrange(20, 60)
        ill = draw.choices(ILLNESSES, (5, 4, 3, 3, 4, 1 + age // 30))[0]
        at = ILLNESSES.index(ill)
        cost = COSTS[min(4, max(0, at + draw.randrange(-1, 3)))] if draw.random() < 0.7 else None
        cost = draw.choice(COSTS) if cost is None else cost
        rows.append((age, draw.choice("mf"), ill, cost, draw.choice(INSURANCES)))
    return rows


PEOPLE = people()


@pytest.fixture(scope="module", autouse=True)
def registered(parties: Parties) -> Functions:
    """Two sources: with two sensitive attributes, and with three."""
    create_table(
        parties.publisher,
        "data.stays",
        "age int, sex text, ill text, cost int, insurance text",
        PEOPLE,
    )
    kanon = Functions(parties.publisher)
    kanon.register("data.stays", ["age", "sex"], "ill", also_sensitive=["cost"])
    fetch(parties.publisher, "CREATE VIEW data.stays_3 AS TABLE data.stays")
    kanon.register("data.stays_3", ["age", "sex"], "ill", also_sensitive=["cost", "insurance"])
    return kanon


def shares(parties: Parties, name: str, column: str) -> Counter[Fraction]:
    """Return how often each value has which share of a bucket."""
    rows = fetch(
        parties.analyst,
        "SELECT sum(count)::int8, (SELECT count(*) FROM"
        f" published.{name}_qit AS q WHERE q.bucket_id = s.bucket_id)"
        f" FROM published.{name}_sat AS s"
        f" GROUP BY s.bucket_id, s.{column}",
    )
    return Counter(Fraction(n, size) for n, size in rows)


WAYS = [
    {"assignment": "random"},
    {"assignment": "random", "method": "anatomy"},
    {"assignment": "random", "method": "multi_size"},
    {"assignment": "random", "method": "optimal"},
    {},
    {"method": "anatomy"},
    {"method": "multi_size"},
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "way"),
    long_but([("stays", WAYS[0]), ("stays_3", WAYS[4])], product(["stays", "stays_3"], WAYS)),
    ids=lambda part: part if isinstance(part, str) else "-".join(part.values()) or "cells",
)
def test_every_way_keeps_the_bound_of_each(parties: Parties, source: str, way: Any) -> None:
    kanon = Functions(parties.publisher)
    made = kanon.publish(f"data.{source}", "kept", privacy='{"l": 3}', replace=True, **way)
    names = ["ill", "cost", *(["insurance"] if source == "stays_3" else [])]
    assert all(holds for *_, holds in kanon.verify("kept"))
    for name in names:
        assert max(shares(parties, "kept", name)) <= Fraction(1, 3)
    assert "without a bound" in made["guarantee"]
    # Combinations, and quasi-identifiers, are those of the source.
    columns = ", ".join(names)
    found = fetch(
        parties.analyst,
        f"SELECT {columns}, sum(count)::int8 FROM published.kept_sat GROUP BY {columns}",
    )
    wanted = Counter(row[2 : 2 + len(names)] for row in PEOPLE)
    assert {row[:-1]: row[-1] for row in found} == wanted
    assert value(parties.analyst, "SELECT round(sum(weight)) FROM published.kept") == N_RECORDS


def test_thresholds_of_each(parties: Parties) -> None:
    kanon = Functions(parties.publisher)
    made = kanon.publish(
        "data.stays", "kept", replace=True,
        privacy='{"l": 3, "attributes": {"cost": {"l": 2, "values": {"500": "1/3"}}}}',
    )  # fmt: skip
    assert "l 3, cost (l 2, 1 value" in made["guarantee"]
    assert max(shares(parties, "kept", "ill")) <= Fraction(1, 3)
    assert max(shares(parties, "kept", "cost")) <= Fraction(1, 2)
    assert not failed_checks(parties.publisher, "kept")


@pytest.mark.parametrize(
    ("privacy", "says"),
    [
        ('{"l": 3, "attributes": {"costs": {"l": 2}}}', "not sensitive"),
        ('{"attributes": {"cost": {"l": 2}}}', "no rule"),
        ('{"l": 3, "values": {"flu": 0.1}}', "which one they are of"),
        ('{"l": 3, "attributes": {"cost": {"l": 2, "attributes": {}}}}', "attributes must be"),
        ('{"l": 3, "attributes": ["cost"]}', "attributes must be"),
        ('{"l": 20}', "no publication can satisfy"),
    ],
)
def test_refused_specifications(parties: Parties, privacy: str, says: str) -> None:
    with pytest.raises(KanonError, match=says):
        Package(parties.publisher).publish("data.stays", "refused", privacy=privacy)


def test_an_assignment_for_one_attribute_refuses(parties: Parties) -> None:
    with pytest.raises(InvalidParameterError, match="protects one sensitive attribute"):
        Package(parties.publisher).publish(
            "data.stays", "refused", privacy='{"l": 3}', assignment="m_invariant"
        )


@pytest.fixture(scope="module", params=["random", "cells"])
def published(parties: Parties, request: pytest.FixtureRequest, registered: Functions) -> str:
    name = f"stays_{request.param}"
    registered.publish("data.stays", name, privacy='{"l": 3}', assignment=request.param)
    return name


@pytest.mark.long
def test_what_is_on_sensitive_attributes_is_exact(parties: Parties, published: str) -> None:
    kanon = Functions(parties.analyst)
    for condition, holds in (
        ("ill = 'flu' AND cost = 200", lambda ill, cost: ill == "flu" and cost == 200),
        ("ill = 'flu' OR cost > 300", lambda ill, cost: ill == "flu" or cost > 300),
        ("cost = 100", lambda _, cost: cost == 100),
        ("ill IS NULL AND cost < 400", lambda ill, cost: ill is None and cost < 400),
        (
            "ill LIKE 'm%' AND cost IN (100, 500)",
            lambda ill, cost: (ill or "")[:1] == "m" and cost in (100, 500),
        ),
    ):
        wanted = sum(holds(ill, cost) for _, _, ill, cost, _ in PEOPLE)
        query = f"SELECT count(*) FROM {published} WHERE {condition}"
        assert kanon.estimate(query) == (wanted, 0, wanted, wanted), condition
        summed = sum(cost for _, _, ill, cost, _ in PEOPLE if holds(ill, cost))
        query = f"SELECT sum(cost) FROM {published} WHERE {condition}"
        assert estimate(parties, query) == (summed, 0, summed, summed), condition


QUERIES = (
    "SELECT count(*) FROM {} WHERE age < 40 AND ill = 'flu'",
    "SELECT count(*) FROM {} WHERE age < 40 AND ill = 'flu' AND cost > 200",
    "SELECT count(*) FROM {} WHERE sex = 'f' AND (ill = 'mumps' OR cost = 500)",
    "SELECT count(*) FROM {} WHERE age < 30 AND ill = 'flu' OR sex = 'f' AND cost = 500",
    "SELECT sum(cost) FROM {} WHERE age < 40 AND ill = 'flu'",
    "SELECT avg(cost) FROM {} WHERE sex = 'm' AND ill IS NULL",
    "SELECT sum(age) FROM {} WHERE ill = 'gout' AND cost = 200",
    "SELECT count(*) FROM {} WHERE age > cost / 10",
    "SELECT ill, cost, count(*) FROM {} WHERE sex = 'f' GROUP BY ill, cost",
    "SELECT ill, avg(cost) FROM {} WHERE age >= 40 GROUP BY ill",
    "SELECT sex, cost, count(*) FROM {} GROUP BY sex, cost",
)


def estimate(parties: Parties, query: str) -> tuple[float, ...]:
    (numbers,) = fetch(
        parties.analyst,
        "SELECT estimate, std_error, lower_bound, upper_bound FROM kanon.estimate($1::text)",
        query,
    )
    return tuple(map(float, numbers))


def test_bounds_hold(parties: Parties, published: str) -> None:
    for text in QUERIES:
        if "GROUP BY" not in text and "avg" not in text:
            wanted = value(parties.publisher, text.format("data.stays"))
            _, error, low, high = estimate(parties, text.format(published))
            assert low <= wanted <= high, text
            assert error > 0 or low == high, text  # all records of a cell may have the sex


def test_rewritten_statements_say_the_same(parties: Parties, published: str) -> None:
    """The paper's estimate of counts, as a statement over the view of weights."""
    for text in QUERIES:
        query = text.format(published)
        if "GROUP BY" in text or "count" not in text:
            continue
        with parties.analyst.transaction(force_rollback=True):
            fetch(parties.analyst, "SET LOCAL kanon.estimator = 'paper'")
            wanted = estimate(parties, query)[0]
        ((shown, *_),) = fetch(parties.analyst, Functions(parties.analyst).rewrite(query))
        assert float(shown) == pytest.approx(wanted), text


def test_the_second_attribute_is_checked_too(parties: Parties, registered: Functions) -> None:
    registered.publish("data.stays", "tampered", privacy='{"l": 3}', assignment="random")
    fetch(
        parties.admin,
        "UPDATE published.tampered_sat AS s SET cost = (SELECT min(cost) FROM"
        " published.tampered_sat AS o WHERE o.bucket_id = s.bucket_id) WHERE bucket_id = 1",
    )
    failed = failed_checks(parties.publisher, "tampered")
    assert "F'-privacy: frequency in bucket <= threshold of cost" in failed
    assert "F'-privacy: frequency in bucket <= threshold of ill" not in failed
    registered.drop("tampered")


def test_attacks_on_each_and_from_one_to_the_other(parties: Parties, published: str) -> None:
    found = {row[0]: row for row in Functions(parties.publisher).attack(published)}
    for attack in ("most frequent value", "deFinetti", "homogeneity", "minimality"):
        assert {f"{attack} of ill", f"{attack} of cost"} <= found.keys()
    for name in ("knows the value of ill, guesses cost", "knows the value of cost, guesses ill"):
        _, bound, base, rate, people = found[name]
        assert bound is None
        assert 0 < base <= 1
        assert 0 < rate <= 1
        assert people == N_RECORDS


@pytest.mark.long
@pytest.mark.usefixtures("refused_by_default")
@pytest.mark.parametrize(
    ("first", "second"),
    long_but(
        [(("cost",), ())], [(("cost",), ()), ((), ("cost",)), (("cost",), ("cost", "insurance"))]
    ),
)
def test_two_releases_of_the_same_people_are_refused(
    parties: Parties, first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    """Buckets of several attributes are not set against others, so nobody may read both."""
    kanon, table = Package(parties.publisher), f"data.twice_{len(first)}{len(second)}"
    fetch(parties.publisher, f"CREATE TABLE {table} AS TABLE data.stays")
    fetch(parties.publisher, f"CREATE VIEW {table}_again AS TABLE {table}")
    kanon.register(table, ["age", "sex"], "ill", also_sensitive=first)
    kanon.register(f"{table}_again", ["age", "sex"], "ill", also_sensitive=second)
    kanon.publish(table, "twice_1", privacy='{"l": 3}')
    with pytest.raises(RiskError) as refused:
        kanon.publish(f"{table}_again", "twice_2", privacy='{"l": 3}')
    assert refused.value.sqlstate == "KN005"
    kanon.publish(f"{table}_again", "twice_2", privacy='{"l": 3}', readers=[])  # a draft


@pytest.mark.long
def test_evaluated_and_tried(parties: Parties, published: str) -> None:
    kanon = Functions(parties.publisher)
    for queries in (1, 201):
        assert kanon.evaluate(published, queries=queries)[-1][1] == queries
    made = kanon.publish("data.stays", "tried", privacy='{"l": 3}', dry_run=True)
    assert made["publication_id"] is None
    assert {row["attack"] for row in made["metrics"]["figures"]["attacks"]} >= {
        "knows the value of cost, guesses ill"
    }


@pytest.mark.long
def test_the_seed_is_a_function_of_the_roles(parties: Parties, registered: Functions) -> None:
    """The same request draws the same again, also with combinations."""
    contents = []
    for name in ("again_1", "again_2"):
        registered.publish(
            "data.stays", name, privacy='{"l": 3}', accept='{"combined_releases": "a test"}'
        )
        contents.append(
            fetch(
                parties.analyst,
                f"SELECT age, sex, ill, cost, weight FROM published.{name} ORDER BY 1,2,3,4,5",
            )
        )
    assert contents[0] == contents[1]
