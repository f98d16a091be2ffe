"""Conditions that need both sides of a bucketization: bitmaps or not, the numbers are the same."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest

from kanon_db.answers import _bitmap_counts, estimates
from kanon_db.answers.scope import open_query
from kanon_db.query.formulas import Group
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.bucket_ways import join_pairs, keep_bitmaps
from tests.integration.parties import Functions, Parties, create_source, create_table, fetch

N_RECORDS = 1_200
PUBLICATIONS = {"few": '{"l": 2}', "many": '{"default": 0.12}'}
"""Small buckets, whose records are looked at one by one; large ones, which are not."""


@pytest.fixture(scope="module", autouse=True)
def published(parties: Parties) -> None:
    """NULLs on both sides, and a lookup table for either."""
    draw = random.Random(15)  # noqa: S311  # made-up data
    rows = [
        (
            None if draw.random() < 0.05 else draw.randrange(12),
            draw.choice(["m", "f", None]),
            draw.choice([None, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        )
        for _ in range(N_RECORDS)
    ]
    fetch(parties.publisher, "GRANT USAGE ON SCHEMA data TO kanon_analyst")
    create_table(parties.publisher, "data.both", "age int, sex text, ill int", rows)
    regions = [(n, n % 3) for n in range(1, 10)]
    create_table(parties.publisher, "data.classes", "code int, class int", regions)
    fetch(parties.publisher, "GRANT SELECT ON data.classes TO kanon_analyst")
    kanon = Functions(parties.publisher)
    kanon.register("data.both", ["age", "sex"], "ill")
    for name, privacy in PUBLICATIONS.items():
        kanon.publish("data.both", name, privacy=privacy, assignment="random")


def by_key(groups: Sequence[Group]) -> dict[str, tuple[float | None, ...]]:
    return {
        json.dumps(json.loads(group.key), sort_keys=True): (
            e.estimate,
            e.std_error,
            e.lower_bound,
            e.upper_bound,
        )
        for group in groups
        for e in group.estimates
    }


def assert_same(parties: Parties, query: str) -> None:
    """Compare answers from bitmaps with those from what statements count and join.

    Without bitmaps, nothing is known of how values of buckets go together: this is part of the
    error where the condition keeps both sides apart.
    """
    session = PsycopgSession(parties.analyst)
    with session.transaction():
        fetch(parties.analyst, "SET LOCAL kanon.estimator = 'paper'")
        opened = open_query(session, query)
        found = by_key(estimates.answer(session, query).groups)
        with pytest.MonkeyPatch.context() as patch:
            keep_bitmaps(patch, of_sensitive=False)
            wanted = by_key(estimates.answer(session, query).groups)
    assert found.keys() == wanted.keys(), query
    (plan,) = opened.plans
    for key, numbers in found.items():
        for place, (number, expected) in enumerate(zip(numbers, wanted[key], strict=True)):
            if place == 1 and not plan.pairs:
                continue
            assert number == (
                None if expected is None else pytest.approx(expected, rel=1e-9, abs=1e-9)
            ), (query, key)


QUERIES = (
    "SELECT COUNT(*) FROM {0} JOIN data.classes c ON {0}.ill = c.code WHERE class = age",
    "SELECT COUNT(*) FROM {0} LEFT JOIN data.classes c ON age = c.code WHERE ill > class + 1",
    "SELECT SUM(class) FROM {0} JOIN data.classes ON ill = code WHERE age > 3 OR class = 1",
    "SELECT COUNT(*) FROM {0} WHERE age > 100 AND ill = 1 OR sex = 'x' AND ill = 2",
    "SELECT AVG(age) FROM {0} WHERE age > 100 AND ill = 1 OR sex = 'x' AND ill = 2",
    "SELECT sex, COUNT(*) FROM {0} WHERE age > 100 AND ill = 1 OR ill = 99 GROUP BY sex",
    "SELECT ill, SUM(age) FROM {0} WHERE age IS NULL AND ill = 3 OR age > ill GROUP BY ill",
    # Arithmetic on values that the rest excludes: only the records that meet it are looked at.
    "SELECT COUNT(*) FROM {0} WHERE age > 0 AND (12 / age > 3 OR ill = 2)",
)


@pytest.mark.long
def test_as_without_bitmaps_in_these_cases(parties: Parties) -> None:
    for name in PUBLICATIONS:
        for query in QUERIES:
            assert_same(parties, query.format(name))
    # Too many classes are joined.
    for limit in ("_MOST_CLASSES", "_MOST_PAIRS"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_bitmap_counts, limit, 2)
            query = "SELECT COUNT(*) FROM few WHERE age > 3 AND ill = 1 OR sex = 'f' AND ill = 2"
            assert_same(parties, query)


APART = (
    "SELECT COUNT(*) FROM few WHERE age < 6 AND ill = 3",
    "SELECT sex, COUNT(*) FROM many WHERE ill IN (1, 2) GROUP BY sex",
    "SELECT sex, ill, COUNT(*) FROM few WHERE age > 5 GROUP BY sex, ill",
    "SELECT AVG(age) FROM many WHERE ill < 6",
)


def test_pairs_of_conditions_that_are_apart(parties: Parties) -> None:
    """Pairs give the same estimate, and the same bounds of a count; those of a sum are wider."""
    session = PsycopgSession(parties.analyst)
    for query in APART:
        with session.transaction(), pytest.MonkeyPatch.context() as patch:
            fetch(parties.analyst, "SET LOCAL kanon.estimator = 'paper'")
            found = by_key(estimates.answer(session, query).groups)
            join_pairs(patch)
            joined = by_key(estimates.answer(session, query).groups)
        assert joined.keys() == found.keys(), query
        for key, (estimate, _, low, high) in found.items():
            assert joined[key][0] == pytest.approx(estimate, rel=1e-9), query
            assert joined[key][2] <= low, query
            assert joined[key][3] >= high, query
            if "COUNT" in query:
                assert joined[key][2:] == (low, high), query


def test_groups_of_numbers_that_are_written_differently(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.0 and 1.00 are one group, also where FILTER chooses only one of them."""
    rows = [(("1.0", "1.00", "2")[i % 3], "mfm"[i % 3], i % 5) for i in range(60)]
    kanon = create_source(parties.publisher, "data.spelled", "x numeric, sex text, ill int", rows)
    kanon.publish("data.spelled", "spelled", privacy='{"l": 2}')
    session = PsycopgSession(parties.analyst)
    query = "SELECT x, COUNT(*) FILTER (WHERE sex = 'f') FROM spelled GROUP BY x"
    for has_bitmaps in (True, False):
        if not has_bitmaps:
            keep_bitmaps(monkeypatch, of_sensitive=False)
        with session.transaction():
            found = estimates.answer(session, query).rows
        assert [(row.lower_bound, row.upper_bound) for row in found] == [(20, 20), (0, 0)]
