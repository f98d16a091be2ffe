"""Random count queries, put to a bucketization and to its source."""

from __future__ import annotations

import numpy as np
import psycopg
import pytest

from kanon_db.metrics.count_queries import CountQuery, random_queries
from tests.integration.bucket_ways import as_in_the_paper
from tests.integration.frozen import parties
from tests.integration.parties import Package, Parties, fetch, sqlstate_of, value

__all__ = ["parties"]

INVALID, UNKNOWN, FORBIDDEN = "22023", "42704", "42501"
AGES, SEXES, ILLNESSES = [*range(20, 60), None], ["f", "m"], [*range(7), None]
"""Values in the order of their codes, NULL last."""


@pytest.fixture
def kanon(parties: Parties) -> Package:
    return Package(parties.publisher)


def condition(query: CountQuery) -> str:
    """Write a query out, as an analyst would."""
    columns = (("age", AGES), ("sex", SEXES))
    sets = [(*columns[a], codes) for a, codes in query.quasi_identifiers.items()]
    parts = []
    for column, values, codes in [*sets, ("ill", ILLNESSES, query.sensitive)]:
        asked = [values[code] for code in np.flatnonzero(codes)]
        known = ", ".join(repr(v) for v in asked if v is not None)
        either = [f"{column} IN ({known})"] if known else []
        either += [f"{column} IS NULL"] if None in asked else []
        parts.append(f"({' OR '.join(either)})")
    return " AND ".join(parts)


@pytest.mark.parametrize("n", [20, pytest.param(60, marks=pytest.mark.long)])
def test_errors_are_those_that_analysts_see(kanon: Package, parties: Parties, n: int) -> None:
    """By the weights of values, not as in the paper."""
    found = kanon.evaluate("drawn", queries=n, selectivity=[0.05, 0.3], seed=7)
    queries = random_queries(
        n, [len(AGES), len(SEXES)], len(ILLNESSES), np.random.default_rng(7),
        dimensionality=[1, 2], selectivity=[0.05, 0.3],
    )  # fmt: skip
    errors: dict[float, list[float]] = {0.05: [], 0.3: []}
    undefined = dict.fromkeys(errors, 0)
    for query in queries:
        where = condition(query)
        actual = value(parties.publisher, f"SELECT count(*) FROM frozen.drawn WHERE {where}")
        estimate, *_ = kanon.estimate(f"SELECT COUNT(*) FROM drawn WHERE {where}")
        if actual:
            errors[query.selectivity].append(abs(estimate - actual) / actual)
        else:
            undefined[query.selectivity] += 1
    expected = [
        (s, len(errors[s]) + undefined[s], undefined[s], np.mean(errors[s]), np.median(errors[s]))
        for s in (0.05, 0.3)
    ]
    together = errors[0.05] + errors[0.3]
    expected.append((None, n, sum(undefined.values()), np.mean(together), np.median(together)))  # type: ignore[arg-type]
    for row, wanted in zip(found, expected, strict=True):
        assert row[:3] == wanted[:3]
        assert row[3:] == pytest.approx(wanted[3:])
    assert sum(errors[0.3]) > 0
    with as_in_the_paper(parties.publisher):
        by_paper = kanon.estimate(f"SELECT COUNT(*) FROM drawn WHERE {where}")[0]
    assert by_paper != pytest.approx(estimate, rel=1e-3)  # the last one tells them apart


def test_seed(kanon: Package) -> None:
    same = [kanon.evaluate("drawn", queries=40, dimensionality=[1], seed=3) for _ in range(2)]
    assert same[0] == same[1]
    assert kanon.evaluate("drawn", queries=40, dimensionality=[1], seed=4) != same[0]
    assert kanon.evaluate("drawn", queries=40)[-1][1] == 40


def test_source_that_changed(kanon: Package, parties: Parties) -> None:
    """What the source has gained or lost since is counted as what it is: an error."""
    before = kanon.evaluate("drawn", queries=50, seed=1)
    with parties.publisher.transaction(force_rollback=True):
        fetch(parties.publisher, "DELETE FROM frozen.drawn WHERE age = 20 OR ill = 3")
        fetch(parties.publisher, "INSERT INTO frozen.drawn VALUES (99, NULL, 9)")
        after = kanon.evaluate("drawn", queries=50, seed=1)
    assert after[-1][3] > before[-1][3]


def test_other_publications_are_refused(kanon: Package, parties: Parties) -> None:
    assert sqlstate_of(lambda: kanon.evaluate("nothing")) == UNKNOWN
    assert sqlstate_of(lambda: kanon.evaluate("partly")) == INVALID
    assert sqlstate_of(lambda: Package(parties.analyst).evaluate("drawn")) == FORBIDDEN


def test_queries_take_no_more_memory_than_there_is(parties: Parties) -> None:
    """Each has a byte for each value of its conditions: 100 GB for 100,000 of a million values."""
    statement = "SELECT * FROM kanon.evaluate_counts('drawn', queries => 100000)"
    fetch(parties.admin, "INSERT INTO kanon.setting VALUES ('publish_memory', '2 MB')")
    try:
        with pytest.raises(psycopg.Error, match="reading needs more room") as raised:
            fetch(parties.publisher, statement)
        assert raised.value.diag.sqlstate == "KN002"
        assert "100,000 queries of 51 values" in str(raised.value.diag.message_detail)
    finally:
        fetch(parties.admin, "DELETE FROM kanon.setting WHERE name = 'publish_memory'")
