"""Buckets of any number of sizes, through the database."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.integration.bucket_ways import as_in_the_paper
from tests.integration.parties import (
    ACCEPTED,
    Functions,
    Package,
    Parties,
    check_published,
    create_table,
    fetch,
    sqlstate_of,
)

INVALID = "22023"
COUNTS = [120, 61, 33, 20, 9, 4, 2, 1]
PEOPLE = [
    (i % 30, "mf"[i % 2], f"disease {value}") for value, n in enumerate(COUNTS) for i in range(n)
]
PRIVACY = '{"theta": 3, "base": 0.02}'


def bound(share: Fraction) -> Fraction:
    return min(Fraction(1), 3 * share + Fraction(1, 50))


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_table(parties.publisher, "data.people", "age int, sex text, sick text", PEOPLE)
    Functions(parties.publisher).register("data.people", ["age", "sex"], "sick")


def test_methods(kanon: Functions | Package, parties: Parties) -> None:
    """Each is valid, the optimum is proven, and more freedom never loses more."""
    losses = []
    for method in ("two_size", "multi_size", "optimal"):
        published = kanon.publish("data.people", method, privacy=PRIVACY, method=method)
        check_published(parties.publisher, "data.people", method, ["age", "sex"], "sick", bound)
        assert all(holds for *_, holds in kanon.verify(method))
        losses.append(published["metrics"]["loss"])
        sizes = [key for key in published["metrics"] if key.startswith("buckets_of_size_")]
        if method == "optimal":
            assert len(sizes) > 2
            assert published["metrics"]["gap"] == 0
    assert losses[0] > losses[1] >= losses[2]


def test_local(kanon: Functions | Package, parties: Parties) -> None:
    """The same bounds hold, estimates and bounds are right, and errors are smaller."""
    for assignment in ("random", "local"):
        published = kanon.publish(
            "data.people", assignment, privacy=PRIVACY, assignment=assignment, accept=ACCEPTED
        )
        check_published(parties.publisher, "data.people", assignment, ["age", "sex"], "sick", bound)
        assert all(holds for *_, holds in kanon.verify(assignment))
        assert published["metrics"]["largest_frequency_ratio"] <= 1
    errors = [
        kanon.evaluate(name, queries=300, selectivity=[0.3], seed=1)[-1][3]
        for name in ("random", "local")
    ]
    assert errors[1] < errors[0]
    for where in ("age < 12 AND sick = 'disease 1'", "sex = 'm' AND sick <> 'disease 0'"):
        query = f"SELECT COUNT(*) FROM local WHERE {where}"
        estimate, _, lower, upper = kanon.estimate(query)
        ((shown,),) = fetch(parties.analyst, kanon.rewrite(query))
        assert shown == pytest.approx(estimate)
        actual = fetch(parties.publisher, f"SELECT count(*) FROM data.people WHERE {where}")[0][0]
        assert lower <= actual <= upper


def test_local_with_diversity(kanon: Functions | Package, parties: Parties) -> None:
    kanon.publish("data.people", "people", privacy='{"l": 2}', assignment="local", accept=ACCEPTED)
    check_published(
        parties.publisher, "data.people", "people", ["age", "sex"], "sick", lambda _: Fraction(1, 2)
    )


def test_estimates(kanon: Functions | Package, parties: Parties) -> None:
    """Bitmaps of many sizes answer as the statement does."""
    kanon.publish("data.people", "people", privacy=PRIVACY, method="optimal")
    for where in (
        "age < 12 AND sick IN ('disease 1', 'disease 3')",
        "sex = 'm' AND sick = 'disease 0'",
    ):
        query = f"SELECT COUNT(*) FROM people WHERE {where}"
        with as_in_the_paper(parties.publisher):
            estimate, _, lower, upper = kanon.estimate(query)
        ((shown,),) = fetch(parties.analyst, kanon.rewrite(query))
        assert shown == pytest.approx(estimate)
        actual = fetch(parties.publisher, f"SELECT count(*) FROM data.people WHERE {where}")[0][0]
        assert lower <= actual <= upper


def test_local_has_its_own_sizes(kanon: Functions | Package) -> None:
    publish = lambda: kanon.publish(
        "data.people", "people", privacy='{"l": 2}', method="anatomy", assignment="local"
    )
    assert sqlstate_of(publish) == INVALID


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("optimal", '{"time_limit": 0}'),
        ("optimal", '{"time_limit": "soon"}'),
        ("optimal", '{"gap": 1}'),
        ("two_size", '{"time_limit": 1}'),
        ("optimal", "[]"),
    ],
)
def test_refused(kanon: Functions | Package, method: str, options: str) -> None:
    publish = lambda: kanon.publish(
        "data.people", "people", privacy=PRIVACY, method=method, options=options
    )
    assert sqlstate_of(publish) == INVALID
