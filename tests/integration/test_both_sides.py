"""Conditions that need both sides of a bucketization, against all pairs of each bucket."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import astuple

import pytest

from kanon_db.answers import estimates
from kanon_db.errors import UnsupportedQueryError
from kanon_db.session.psycopg_session import PsycopgSession
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


def by_pairs(parties: Parties, name: str, source: str, condition: str) -> tuple[float, ...]:
    """Count what matches from all pairs of a record and a value of its bucket, in plain SQL.

    Estimate, standard error without what is not known of a slope, and the bounds that covers give.
    """
    pairs = fetch(
        parties.publisher,
        "SELECT bucket_id, record_id, value_id, size FROM (SELECT *, row_number() OVER () AS"
        f" record_id FROM published.{name}_qit) AS q JOIN (SELECT *, row_number() OVER () AS"
        f" value_id, count(*) OVER (PARTITION BY bucket_id) AS size FROM published.{name}_sat,"
        f" generate_series(1, count)) AS {name} USING (bucket_id) {source} WHERE {condition}",
    )
    by_bucket = defaultdict(list)
    for bucket, record, own, size in pairs:
        by_bucket[bucket, size].append((record, own))
    estimate = variance = low = high = 0.0
    for (_, size), own in by_bucket.items():
        records, values = (Counter(pair[side] for pair in own) for side in (0, 1))
        squares = sum(n * n for n in (*records.values(), *values.values()))
        estimate += len(own) / size
        variance += (len(own) - squares / size + len(own) ** 2 / size**2) / max(size - 1, 1)
        matching = max_matching(own)
        assert 0 <= matching <= size
        high += matching
        absent = [(r, v) for r in range(size) for v in range(size)]
        numbers = [{one: i for i, one in enumerate(side)} for side in (records, values)]
        present = {(numbers[0][r], numbers[1][v]) for r, v in own}
        low += size - max_matching([pair for pair in absent if pair not in present])
    return estimate, variance, low, high


def max_matching(pairs: Sequence[tuple[int, int]]) -> int:
    """Return how many pairs can be chosen that have nothing in common."""
    values_of = defaultdict(list)
    for record, own in pairs:
        values_of[record].append(own)
    record_of: dict[int, int] = {}

    def place(record: int, seen: set[int]) -> bool:
        for own in values_of[record]:
            if own not in seen:
                seen.add(own)
                if own not in record_of or place(record_of[own], seen):
                    record_of[own] = record
                    return True
        return False

    return sum(place(record, set()) for record in list(values_of))


CONDITIONS = (
    ("JOIN data.classes c ON {0}.ill = c.code", "class = age"),
    ("LEFT JOIN data.classes c ON age = c.code", "ill > class + 1"),
    ("", "age > 100 AND ill = 1 OR sex = 'x' AND ill = 2"),
    ("", "age > 3 AND ill = 1 OR sex = 'f' AND ill = 2"),
    ("", "age IS NULL AND ill = 3 OR age > ill"),
    # Arithmetic on values that the rest excludes: only the records that meet it are looked at.
    ("", "age > 0 AND (12 / age > 3 OR ill = 2)"),
    ("", "CASE WHEN sex = 'm' THEN age > ill ELSE ill IS NULL END"),
    ("", "age < 6 AND ill = 3"),
)


def test_counts_follow_from_the_pairs_of_each_bucket(parties: Parties) -> None:
    """Bounds are those of covers: no tighter than the best matchings, and mostly as tight."""
    session = PsycopgSession(parties.analyst)
    for name in PUBLICATIONS:
        n_tight = 0
        for source, condition in CONDITIONS:
            query = f"SELECT COUNT(*) FROM {name} {source.format(name)} WHERE {condition}"
            with session.transaction():
                fetch(parties.analyst, "SET LOCAL kanon.estimator = 'paper'")
                (group,) = estimates.answer(session, query).groups
            (found,) = group.estimates
            estimate, variance, low, high = by_pairs(parties, name, source.format(name), condition)
            assert found.estimate == pytest.approx(estimate, rel=1e-9, abs=1e-9), query
            assert found.std_error >= math.sqrt(max(variance, 0)) * (1 - 1e-9) or (
                found.std_error == pytest.approx((found.upper_bound - found.lower_bound) / 2)
            ), query
            assert found.lower_bound <= low, query
            assert found.upper_bound >= high, query
            n_tight += (found.lower_bound, found.upper_bound) == (low, high)
        assert n_tight > len(CONDITIONS) / 2


TOTALS = (
    ("SUM(class)", "JOIN data.classes ON ill = code WHERE age > 3 OR class = 1", "class"),
    ("SUM(age - ill)", "WHERE sex = 'm'", "age - ill"),
    ("SUM(age)", "WHERE age > ill", "age"),
    ("SUM(ill)", "WHERE age > ill OR sex = 'f' AND ill > 3", "ill"),
)


def test_sums_follow_from_the_pairs_of_each_bucket(parties: Parties) -> None:
    session = PsycopgSession(parties.analyst)
    for name in PUBLICATIONS:
        for total, rest, x in TOTALS:
            query = f"SELECT sex, {total} FROM {name} {rest} GROUP BY sex"
            with session.transaction():
                fetch(parties.analyst, "SET LOCAL kanon.estimator = 'paper'")
                rows = estimates.answer(session, query).rows
            wanted = dict(fetch(
                parties.publisher,
                f"SELECT sex, sum(({x}) / size::float8) FROM published.{name}_qit JOIN (SELECT *,"
                f" count(*) OVER (PARTITION BY bucket_id) AS size FROM published.{name}_sat,"
                f" generate_series(1, count)) AS {name} USING (bucket_id) {rest} GROUP BY sex",
            ))  # fmt: skip
            for row in rows:
                expected = wanted[json.loads(row.group_key)["sex"]]
                assert row.estimate == pytest.approx(expected, rel=1e-9), query


def test_ranks_of_groups_of_pairs_are_those_of_what_meets_the_condition(parties: Parties) -> None:
    """Also where keys are of no side, or those of both, in any order."""
    session, shown = PsycopgSession(parties.analyst), "MIN(ill), MAX(age), COUNT(DISTINCT age)"
    for key, values, condition in (
        ("age > ill AS x", {True}, "age > ill"),
        ("(age + ill) % 2 AS x, sex", {"m", 0}, "(age + ill) % 2 = 0 AND sex = 'm'"),
        (
            "ill % 2 AS x, sex, CASE WHEN age > ill THEN 'yes' END AS y",
            {"f", 1, "yes"},
            "age > ill AND ill % 2 = 1 AND sex = 'f'",
        ),
    ):
        keys = ", ".join(map(str, range(1, key.count(",") + 2)))
        query = f"SELECT {key}, {shown} FROM few GROUP BY {keys}"
        alone = f"SELECT {shown} FROM few WHERE {condition}"
        with session.transaction():
            rows, wanted = (estimates.answer(session, one).rows for one in (query, alone))
        own = [row for row in rows if set(json.loads(row.group_key).values()) == values]
        assert [astuple(row)[1:8] for row in own] == [astuple(row)[1:8] for row in wanted]


def test_errors_of_numbers_whose_squares_overflow_are_those_of_the_bounds(parties: Parties) -> None:
    x = [1e300, -1e300, 1e154, 3.5, 2.0, None]
    rows = [(i % 7, x[i % 5 if i % 2 else 5], i % 6) for i in range(60)]
    kanon = create_source(parties.publisher, "data.huge", "age int, h float8, ill int", rows)
    kanon.publish("data.huge", "huge", privacy='{"l": 2}')
    session = PsycopgSession(parties.analyst)
    for where in ("ill < 2", "age > ill"):
        query = f"SELECT SUM(h), AVG(h), SUM(h * ill) FROM huge WHERE {where}"
        with session.transaction():
            answers = estimates.answer(session, query).rows
        for row in answers:
            ends = row.lower_bound, row.upper_bound
            assert (row.likely_low, row.likely_high) == ends
            assert row.std_error == pytest.approx((ends[1] - ends[0]) / 2)


def test_correlations_follow_from_all_matchings_of_each_bucket(parties: Parties) -> None:
    """The estimate follows from expected sums, and the bounds hold in all worlds."""
    rows = [(1, 2.5), (2, 3.5), (None, 9), (4, 4.5), (5, None), (6, 7), (7, 8), (8, 1), (9, 6.5)]
    create_table(parties.publisher, "data.tiny", "age int, wage numeric", rows)
    kanon = Functions(parties.publisher)
    kanon.register("data.tiny", ["age"], "wage")
    kanon.publish("data.tiny", "tiny", privacy='{"l": 3}')
    ages, wages = defaultdict[int, list[object]](list), defaultdict[int, list[object]](list)
    for bucket, age in fetch(parties.publisher, "SELECT bucket_id, age FROM published.tiny_qit"):
        ages[bucket].append(age)
    for bucket, wage in fetch(
        parties.publisher,
        "SELECT bucket_id, wage FROM published.tiny_sat, generate_series(1, count)",
    ):
        wages[bucket].append(wage)
    assert sorted(map(len, ages.values())) == [3, 3, 3]
    worlds = [
        [pair for bucket, own in zip(ages, drawn, strict=True)
         for pair in zip(ages[bucket], own, strict=True)]
        for drawn in itertools.product(*(itertools.permutations(wages[own]) for own in ages))
    ]  # fmt: skip
    totals = [_sums_of_pairs(world) for world in worlds]
    truths = [_correlation(*own) for own in totals]
    expected = _correlation(
        *(math.fsum(column) / len(worlds) for column in zip(*totals, strict=True))
    )
    ((estimate, error, low, high),) = fetch(
        parties.analyst,
        "SELECT estimate, std_error, lower_bound, upper_bound"
        " FROM kanon.estimate('SELECT corr(age, wage) FROM tiny')",
    )
    assert estimate == pytest.approx(expected, abs=1e-9)
    assert 0 < error <= (high - low) / 2
    assert -1 <= low <= min(truths)
    assert max(truths) <= high <= 1
    plans = fetch(
        parties.analyst,
        "SELECT description FROM kanon.explain_count('SELECT corr(age, wage) FROM tiny"
        " HAVING COUNT(*) > 1') WHERE part = 'plan'",
    )
    assert [described.partition(":")[0] for (described,) in plans] == [
        "for corr(age, wage)", "for corr(age, wage)", "for HAVING or ORDER BY",
    ]  # fmt: skip


def _sums_of_pairs(world: Sequence[tuple[int | None, float | None]]) -> tuple[float, ...]:
    """Return n and the sums of y, x, y², x², xy, over the pairs without NULL."""
    pairs = [(y, float(x)) for y, x in world if y is not None and x is not None]
    parts = [(1, y, x, y * y, x * x, y * x) for y, x in pairs]
    return tuple(map(math.fsum, zip(*parts, strict=True)))


def _correlation(n: float, y: float, x: float, yy: float, xx: float, yx: float) -> float:
    return (yx - y * x / n) / math.sqrt((yy - y * y / n) * (xx - x * x / n))


def test_groups_of_numbers_that_are_written_differently(parties: Parties) -> None:
    """1.0 and 1.00 are one group, also where FILTER chooses only one of them."""
    rows = [(("1.0", "1.00", "2")[i % 3], "mfm"[i % 3], i % 5) for i in range(60)]
    kanon = create_source(parties.publisher, "data.spelled", "x numeric, sex text, ill int", rows)
    kanon.publish("data.spelled", "spelled", privacy='{"l": 2}')
    session = PsycopgSession(parties.analyst)
    query = "SELECT x, COUNT(*) FILTER (WHERE sex = 'f') FROM spelled GROUP BY x"
    with session.transaction():
        found = estimates.answer(session, query).rows
    assert [(row.lower_bound, row.upper_bound) for row in found] == [(20, 20), (0, 0)]


def test_groups_of_many_wide_columns_are_those_that_occur(parties: Parties) -> None:
    """Combinations of their values are more than there are numbers of 64 bits, or memory."""
    names = "abcdefg"
    rows = [(*(i * (k + 3) % 601 for k in range(7)), i % 5) for i in range(600)]
    columns = ", ".join(f"{name} int" for name in names)
    kanon = create_source(parties.publisher, "data.wide", f"{columns}, ill int", rows)
    kanon.publish("data.wide", "wide", privacy='{"l": 2}')
    session = PsycopgSession(parties.analyst)
    with session.transaction():
        found = estimates.answer(
            session, "SELECT a, b, c, COUNT(*) FROM wide WHERE a < 30 GROUP BY a, b, c"
        ).rows
        for aggregate in ("COUNT(*)", "SUM(ill)", "MAX(ill)", "COUNT(DISTINCT ill)"):
            of_nobody = f"SELECT a, b, c, {aggregate} FROM wide WHERE a < 0 AND ill < 2"
            assert not estimates.answer(session, f"{of_nobody} GROUP BY a, b, c").rows
        refused = []
        for query in (
            f"SELECT {', '.join(names)}, COUNT(*) FROM wide GROUP BY {', '.join(names)}",
            "SELECT COUNT(*) FROM wide WHERE CASE WHEN a > b THEN 10 / (c + 1) > d + e + f + g END",
        ):
            with pytest.raises(UnsupportedQueryError) as error, session.savepoint():
                estimates.answer(session, query)
            refused.append(error.value.hint)
    wanted = fetch(
        parties.publisher, "SELECT a, b, c, count(*) FROM data.wide WHERE a < 30 GROUP BY 1, 2, 3"
    )
    assert sorted((*json.loads(r.group_key).values(), r.estimate) for r in found) == sorted(wanted)
    assert all(refused)


def test_sums_of_more_groups_than_a_byte_can_number(parties: Parties) -> None:
    """A group's values are those of its own key, whose number times that of others is large."""
    session = PsycopgSession(parties.analyst)
    query = (
        "SELECT age, sex, ill, AVG(ill), SUM(ill), COUNT(*) FROM few"
        " WHERE ill IS NOT NULL GROUP BY age, sex, ill"
    )
    with session.transaction():
        rows = estimates.estimate(session, query)
    answers = defaultdict(dict)
    for row in rows:
        answers[row.group_key][row.aggregate] = row
    assert len(answers) > 256
    for key, own in answers.items():
        mean, total, n = own.values()
        ill = json.loads(key)["ill"]
        assert {mean.estimate, mean.lower_bound, mean.upper_bound} == {ill}
        assert total.estimate == pytest.approx(ill * n.estimate)
