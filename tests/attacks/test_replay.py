"""Attacks that repeat a publication: by publishing again, or by fixing what chance could read."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import combinations

import pytest

from tests.integration.parties import Functions, Parties, create_table, fetch, value

SIGMAS = 7
N_RECORDS = 2000
BUCKET_SIZE = 4


@pytest.fixture(scope="module", params=["anatomy", "two_size"])
def twice(request: pytest.FixtureRequest, parties: Parties) -> list[list[tuple[int, int]]]:
    """Rows of the QIT of two publications of one source, the generator of SQL seeded alike."""
    table = f"data.people_{request.param}"
    rows = [(person, person % BUCKET_SIZE) for person in range(N_RECORDS)]
    create_table(parties.publisher, table, "person int, value int", rows)
    Functions(parties.publisher).register(table, ["person"], "value")
    published = []
    for _ in range(2):
        fetch(parties.publisher, "SELECT setseed(0.5)")
        Functions(parties.publisher).publish(
            table,
            "again",
            privacy='{"l": 4}',
            method=request.param,
            replace=True,
        )
        published.append(
            fetch(
                parties.publisher, "SELECT person, bucket_id FROM published.again_qit ORDER BY ctid"
            )
        )
    return published


@pytest.mark.pitfall(7, 14)
def test_same_seed_gives_other_buckets(twice: list[list[tuple[int, int]]]) -> None:
    """With the server's generator seeded alike, people come to other buckets."""
    first, second = (dict(rows) for rows in twice)
    same = sum(first[person] == second[person] for person in first)
    expected = BUCKET_SIZE  # n records, each with a chance of one in n / BUCKET_SIZE
    assert same <= expected + SIGMAS * math.sqrt(2 * expected)


@pytest.mark.pitfall(7)
def test_same_seed_gives_other_companions(twice: list[list[tuple[int, int]]]) -> None:
    """Who shares a bucket differs, whatever the numbers of the buckets."""
    companions = []
    for rows in twice:
        buckets = defaultdict(list)
        for person, bucket in rows:
            buckets[bucket].append(person)
        companions.append(
            {pair for people in buckets.values() for pair in combinations(sorted(people), 2)}
        )
    n_pairs = math.comb(N_RECORDS, 2)
    expected = len(companions[0]) * len(companions[1]) / n_pairs
    assert len(companions[0] & companions[1]) <= expected + SIGMAS * math.sqrt(2 * expected)


@pytest.mark.pitfall(7)
def test_same_seed_gives_another_order(twice: list[list[tuple[int, int]]]) -> None:
    """With the server's generator seeded alike, rows come in another order."""
    first, second = ([person for person, _ in rows] for rows in twice)
    same = sum(one == other for one, other in zip(first, second, strict=True))
    assert same <= 1 + SIGMAS * math.sqrt(2)


@pytest.mark.pitfall(7)
def test_nothing_takes_a_seed(parties: Parties) -> None:
    """Neither parameters nor settings of the functions let a caller choose the randomness.

    The seed of evaluate_counts draws queries; it publishes nothing.
    """
    names = value(
        parties.admin,
        "SELECT array_agg(name) FROM pg_catalog.pg_proc AS p, unnest(p.proargnames) AS name"
        " WHERE p.pronamespace = 'kanon'::regnamespace AND p.proname <> 'evaluate_counts'",
    )
    assert not [name for name in names if "seed" in name or "random" in name]
    settings = fetch(parties.admin, "SELECT name FROM pg_catalog.pg_settings WHERE name ~ 'kanon'")
    assert settings == []
