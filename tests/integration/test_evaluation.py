"""Random count queries, put to a bucketization and to its source."""

from __future__ import annotations

import numpy as np
import psycopg
import pytest

from kanon_db.metrics.count_queries import CountQuery, random_queries
from tests.integration.parties import (
    Package,
    Parties,
    create_source,
    fetch,
    sqlstate_of,
    value,
)

INVALID, UNKNOWN, FORBIDDEN = "22023", "42704", "42501"

AGES = [None, *range(20, 28)]
SEXES = ["f", "m"]
DISEASES = ["cold", "flu", "hiv", "none"]
PEOPLE = [
    (AGES[i * 7 % 9], SEXES[i % 2], DISEASES[min(3, i * i % 7)]) for i in range(500)
]  # fmt: skip
# Values in the order of their codes, NULL last.
VALUES = [[*AGES[1:], None], SEXES]


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    columns = "age int, sex text, sick text"
    kanon = create_source(parties.publisher, "data.people", columns, PEOPLE)
    kanon.publish("data.people", "people", privacy='{"default": 0.7}', max_bucket_size=8)


@pytest.fixture
def kanon(parties: Parties) -> Package:
    return Package(parties.publisher)


def condition(query: CountQuery) -> str:
    """Write a query out, as an analyst would."""
    parts = []
    sets = [
        *((["age", "sex"][a], VALUES[a], codes) for a, codes in query.quasi_identifiers.items()),
        ("sick", DISEASES, query.sensitive),
    ]
    for column, values, codes in sets:
        asked = [values[code] for code in np.flatnonzero(codes)]
        known = ", ".join(
            f"'{v}'" if isinstance(v, str) else str(v) for v in asked if v is not None
        )
        either = [f"{column} IN ({known})"] if known else []
        either += [f"{column} IS NULL"] if None in asked else []
        parts.append(f"({' OR '.join(either)})")
    return " AND ".join(parts)


@pytest.mark.long
def test_errors_are_those_that_analysts_see(kanon: Package, parties: Parties) -> None:
    found = kanon.evaluate("people", queries=60, selectivity=[0.05, 0.3], seed=7)
    queries = random_queries(
        60, [9, 2], 4, np.random.default_rng(7), dimensionality=[1, 2], selectivity=[0.05, 0.3]
    )
    errors: dict[float, list[float]] = {0.05: [], 0.3: []}
    undefined = dict.fromkeys(errors, 0)
    for query in queries:
        where = condition(query)
        actual = value(parties.publisher, f"SELECT count(*) FROM data.people WHERE {where}")
        estimate, *_ = kanon.estimate(f"SELECT COUNT(*) FROM people WHERE {where}")
        if actual:
            errors[query.selectivity].append(abs(estimate - actual) / actual)
        else:
            undefined[query.selectivity] += 1
    expected = [
        (s, len(errors[s]) + undefined[s], undefined[s], np.mean(errors[s]), np.median(errors[s]))
        for s in (0.05, 0.3)
    ]
    together = errors[0.05] + errors[0.3]
    expected.append((None, 60, sum(undefined.values()), np.mean(together), np.median(together)))  # type: ignore[arg-type]
    for row, wanted in zip(found, expected, strict=True):
        assert row[:3] == wanted[:3]
        assert row[3:] == pytest.approx(wanted[3:])
    assert sum(errors[0.3]) > 0


def test_seed(kanon: Package) -> None:
    same = [kanon.evaluate("people", queries=40, dimensionality=[1], seed=3) for _ in range(2)]
    assert same[0] == same[1]
    assert kanon.evaluate("people", queries=40, dimensionality=[1], seed=4) != same[0]
    assert kanon.evaluate("people", queries=40)[-1][1] == 40


def test_source_that_changed(kanon: Package, parties: Parties) -> None:
    """What the source has gained or lost since is counted as what it is: an error."""
    before = kanon.evaluate("people", queries=50, seed=1)
    with parties.publisher.transaction(force_rollback=True):
        fetch(parties.publisher, "DELETE FROM data.people WHERE age = 20 OR sick = 'hiv'")
        fetch(parties.publisher, "INSERT INTO data.people VALUES (99, NULL, 'new')")
        after = kanon.evaluate("people", queries=50, seed=1)
    assert after[-1][3] > before[-1][3]


def test_other_publications_are_refused(kanon: Package, parties: Parties) -> None:
    assert sqlstate_of(lambda: kanon.evaluate("nothing")) == UNKNOWN
    kanon.suppress("data.people", "rows", k=2)
    assert sqlstate_of(lambda: kanon.evaluate("rows")) == INVALID
    kanon.drop("rows")
    assert sqlstate_of(lambda: Package(parties.analyst).evaluate("people")) == FORBIDDEN


def test_queries_take_no_more_memory_than_there_is(parties: Parties) -> None:
    """Each has a byte for each value of its conditions: 100 GB for 100,000 of a million values."""
    statement = "SELECT * FROM kanon.evaluate_counts('people', queries => 100000)"
    fetch(parties.admin, "INSERT INTO kanon.setting VALUES ('publish_memory', '2 MB')")
    try:
        with pytest.raises(psycopg.Error, match="reading needs more room") as raised:
            fetch(parties.publisher, statement)
        assert raised.value.diag.sqlstate == "KN002"
        assert "100,000 queries of 15 values" in str(raised.value.diag.message_detail)
    finally:
        fetch(parties.admin, "DELETE FROM kanon.setting WHERE name = 'publish_memory'")
