"""What `attack` says: against publications that an attack breaks, and against those that hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.attacks.sparse import COLUMNS, QUASI_IDENTIFIERS, sparse_people
from tests.integration.parties import ACCEPTED, Functions, Parties, create_table, remains

THRESHOLD = 0.1
PRIVACY = json.dumps({"default": 1, "values": {"HIV": THRESHOLD}})
Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_table(parties.publisher, "data.sparse", COLUMNS, sparse_people(12_000))
    Functions(parties.publisher).register("data.sparse", QUASI_IDENTIFIERS, "sick")


@pytest.fixture(autouse=True)
def nothing_left(parties: Parties) -> Iterator[None]:
    yield
    for name in Functions(parties.publisher).publications():
        Functions(parties.publisher).drop(name)
    assert remains(parties.admin) == []


def attacked(parties: Parties, name: str) -> Found:
    rows = Functions(parties.publisher).rows("attack", name)
    return {row["attack"]: row for row in rows}


def test_minimality_attack_names_the_rare_ones_of_local_buckets(parties: Parties) -> None:
    """Whoever opened a bucket waited for its rare value's limit: all of them are named."""
    Functions(parties.publisher).publish(
        "data.sparse", "p", privacy=PRIVACY, assignment="local", accept=ACCEPTED
    )
    found = attacked(parties, "p")["minimality"]
    assert found["bound"] == pytest.approx(THRESHOLD)
    assert found["rate"] > 0.9
    assert found["people"] > 100


def test_minimality_attack_on_random_buckets_stays_within_the_bound(parties: Parties) -> None:
    Functions(parties.publisher).publish("data.sparse", "p", privacy=PRIVACY)
    found = attacked(parties, "p")["minimality"]
    assert found["bound"] == pytest.approx(THRESHOLD)
    noise = 4 * (THRESHOLD * (1 - THRESHOLD) / found["people"]) ** 0.5
    assert found["rate"] < THRESHOLD + noise
