"""Attacks that repeat a publication: by publishing again, or by fixing what chance could read."""

from __future__ import annotations

import math
import os
import subprocess
from collections import defaultdict
from itertools import combinations

import pytest

from kanon_db.cluster._host import find_programs
from kanon_db.randomness import SecureRandom, SeededRandom
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_source,
    create_table,
    fetch,
    forget_draws,
    value,
)
from tests.server_log import ServerLog

SIGMAS = 7
N_RECORDS = 2000
BUCKET_SIZE = 4


@pytest.fixture(scope="module", params=["anatomy", "two_size"])
def twice(request: pytest.FixtureRequest, parties: Parties) -> list[list[tuple[int, int]]]:
    """Rows of the QIT of two publications of one source, the generator of SQL seeded alike."""
    table = f"data.people_{request.param}"
    rows = [(person, person % BUCKET_SIZE) for person in range(N_RECORDS)]
    create_source(parties.publisher, table, "person int, value int", rows)
    published = []
    for _ in range(2):
        forget_draws(parties.admin)  # as another server would draw
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

    The seeds of evaluate_counts and draw choose queries, and draws from what is published; they
    publish nothing.
    """
    names = value(
        parties.admin,
        "SELECT array_agg(name) FROM pg_catalog.pg_proc AS p, unnest(p.proargnames) AS name"
        " WHERE p.pronamespace = 'kanon'::regnamespace AND p.proname"
        " NOT IN ('evaluate_counts', 'draw')",
    )
    assert not [name for name in names if "seed" in name or "random" in name]
    settings = fetch(parties.admin, "SELECT name FROM pg_catalog.pg_settings WHERE name ~ 'kanon'")
    assert settings == []


HOW = [
    ("publish", {"privacy": '{"l": 4}', "assignment": "cells"}),
    ("publish", {"privacy": '{"l": 4}', "assignment": "m_invariant"}),
    ("suppress", {"k": 3}),
    ("freeform", {"k": 3}),
]


@pytest.mark.long
@pytest.mark.pitfall(7)
@pytest.mark.parametrize(
    ("call", "given"), HOW, ids=["cells", "m_invariant", "suppressed", "freeform"]
)
def test_what_was_drawn_is_kept_nowhere(
    parties: Parties, monkeypatch: pytest.MonkeyPatch, call: str, given: dict[str, str]
) -> None:
    """Whoever has the whole database and the log finds none of the keys, however written."""
    drawn = bytearray()

    def draw(_: SecureRandom, length: int) -> bytes:
        drawn.extend(found := os.urandom(length))
        return found

    for one in (SecureRandom, SeededRandom):
        monkeypatch.setattr(one, "bytes", draw)
    rows = [(person, person % 9, person % BUCKET_SIZE) for person in range(60)]
    kanon = Package(parties.publisher)
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.drawn")
    create_table(parties.publisher, "data.drawn", "person int, age int, value int", rows)
    kanon.register("data.drawn", ["age"], "value", insensitive=["person"])
    log = ServerLog(parties.admin)
    getattr(kanon, call)("data.drawn", "drawn", **given)
    assert len(drawn) >= 4 * len(rows)
    program = find_programs(None).path("pg_dump")
    dump = subprocess.run(
        [program, f"--dbname={parties.dsn}"], check=True, capture_output=True, text=True
    ).stdout
    assert "published.drawn" in dump
    catalogs = "pg_settings", "pg_db_role_setting", "pg_stat_activity", "pg_prepared_statements"
    told = [dump, log.text(), *(str(fetch(parties.admin, f"TABLE {name}")) for name in catalogs)]
    text = "\n".join(told)
    for start in range(0, len(drawn) - 7, 8):
        key = bytes(drawn[start : start + 8])
        for written in (
            key.hex(),
            *(str(int.from_bytes(key, order)) for order in ("big", "little")),
        ):
            assert written not in text
    kanon.drop("drawn")
