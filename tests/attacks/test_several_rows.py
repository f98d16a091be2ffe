"""People with several rows: why one of them is kept, by a column that is not sensitive.

Everything is enumerated: all tables that have the same people and the same number of rows with each
value, and all publications that a way to publish could have made of them. Rows that are alike in
all that is not sensitive are drawn by the server.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations, combinations_with_replacement, permutations, product
from typing import Any

import psycopg
import pytest

from kanon_db.catalog.entries import find_source
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer.columns import Relation
from tests.attacks.posterior import Table, every_outcome, tables_of
from tests.attacks.publishers import ASSIGNMENTS, in_buckets
from tests.hospital import Hospital, Stay
from tests.integration.parties import (
    Connection,
    Functions,
    Parties,
    create_table,
    fetch,
    forget_draws,
    hearing,
    holds,
)

Values = tuple[str, ...]
Buckets = tuple[int, ...]


def placed(values: Values, buckets: Sequence[Sequence[str]]) -> Iterator[Buckets]:
    """Yield every way to put rows into buckets that are to have these values."""
    left = [Counter(one) for one in buckets]

    def go(at: int, found: Buckets) -> Iterator[Buckets]:
        if at == len(values):
            yield found
            return
        for bucket, counts in enumerate(left):
            if counts[values[at]]:
                counts[values[at]] -= 1
                yield from go(at + 1, (*found, bucket))
                counts[values[at]] += 1

    return go(0, ())


def inferred(
    buckets: Sequence[Sequence[str]], may_be: Callable[[Buckets], bool] = lambda _: True
) -> Iterator[tuple[Buckets, Callable[[Callable[[Values], bool]], Fraction]]]:
    """Yield, for each way to see rows in buckets, the probability of what is true of their values.

    Of the ways that may be, each is drawn as often as the others.
    """
    rows = [value for one in buckets for value in one]
    weights: dict[Buckets, dict[Values, Fraction]] = defaultdict(dict)
    for values in set(permutations(rows)):
        found = [one for one in placed(values, buckets) if may_be(one)]
        for one in found:
            weights[one][values] = Fraction(1, len(found))
    for seen, of in weights.items():
        yield (
            seen,
            lambda holds, of=of: (
                sum(weight for values, weight in of.items() if holds(values)) / sum(of.values())
            ),
        )


def apart(persons: str) -> Callable[[Buckets], bool]:
    """Rows of one person, who has a letter, are in different buckets."""
    pairs = [(i, j) for i, j in combinations(range(len(persons)), 2) if persons[i] == persons[j]]
    return lambda seen: all(seen[i] != seen[j] for i, j in pairs)


@pytest.mark.pitfall(15)
def test_rows_of_one_person_in_different_buckets_exceed_the_sum_of_their_shares() -> None:
    """So thresholds that are divided by the number of rows are no bound."""
    persons, buckets = "AABBC", ["xy", "xyz"]
    worst = max(
        chance(lambda values, row=row: values[row] == "z") for seen, chance in
        inferred(buckets, apart(persons)) for row in range(5) if seen[row] == 1
    )  # fmt: skip
    assert worst == Fraction(2, 5) > Fraction(1, 3)
    persons, buckets = "AABBCC", ["xy", "xz", "yz"]
    excess = Fraction(0)
    for seen, chance in inferred(buckets, apart(persons)):
        for person, value in ((person, value) for person in "ABC" for value in "xyz"):
            rows = [i for i in range(6) if persons[i] == person]
            bound = sum(Fraction(buckets[seen[i]].count(value), 2) for i in rows)
            has = lambda values, rows=rows, value=value: any(values[i] == value for i in rows)
            excess = max(excess, chance(has) - bound)
    assert excess == Fraction(8, 15) - Fraction(1, 2)


@pytest.mark.parametrize(
    ("buckets", "other"), [((("xy", "z", "w"), ("x", "yw", "z")), "w"),
                           ((("x", "xyz"), ("y", "zw", "x")), "z")],
)  # fmt: skip
def test_one_row_with_all_values_keeps_the_share_of_people(
    buckets: Sequence[Sequence[str]], other: str
) -> None:
    """But whoever knows one of somebody's values can be certain of another, where sets are shown.

    In one of the buckets, y comes with the other value only.
    """
    for seen, chance in inferred(buckets):
        for person, bucket in enumerate(seen):
            has = lambda value, person=person: lambda values: value in values[person]
            for value in "xyzw":
                having = sum(value in one for one in buckets[bucket])
                assert chance(has(value)) == Fraction(having, len(buckets[bucket]))
            if any(f"y{other}" in one for one in buckets[bucket]):
                both = lambda values, person=person: {"y", other} <= {*values[person]}
                assert chance(both) == chance(has("y")) > 0


KEPT = [("x", "y"), ("y", "x"), ("x", "x"), ("y", "y")]
"""The values of somebody's first and second row, all as likely; the first was at 40 years."""


def kept_value_at(age: int, keep: Callable[[Values], int], value: str) -> Fraction:
    """How likely a value is for whoever sees the age of the row that is kept, and no value."""
    seen = [values[keep(values)] for values in KEPT if (40, 41)[keep(values)] == age]
    return Fraction(seen.count(value), len(seen))


@pytest.mark.pitfall(15)
def test_a_row_that_is_kept_for_its_value_tells_the_value() -> None:
    """So `keep` refuses to order rows by what is sensitive."""
    for value in "xy":
        assert kept_value_at(41, lambda _: 1, value) == Fraction(1, 2)
    latest_by_value = lambda values: max((0, 1), key=lambda row: (values[row], -row))
    assert kept_value_at(41, latest_by_value, "y") == 1


def test_other_rows_tell_what_goes_with_them() -> None:
    """Whoever knows that a disease is chronic, and what somebody had, knows what they have."""
    chronic = [values for values in KEPT if values[0] == values[1]]
    assert {values[1] for values in chronic if values[0] == "x"} == {"x"}


def test_what_publishing_all_rows_would_cost_in_a_hospital() -> None:
    """The figures of the page on what a publication protects."""
    stays_of: dict[int, list[Stay]] = defaultdict(list)
    stays = [*Hospital().stays.values()]
    for stay in stays:
        stays_of[stay.patient].append(stay)
    # m rows with thresholds of 1/5m: the most frequent value has to fit.
    ((_, most),) = Counter(stay.diagnosis for stay in stays).most_common(1)
    most_rows = len(stays) // (5 * most)
    too_many = [len(of) for of in stays_of.values() if len(of) > most_rows]
    assert (most_rows, len(too_many), round(sum(too_many) / len(stays), 2)) == (3, 909, 0.27)
    several = [of for of in stays_of.values() if len(of) > 1]
    known = [{(one.age, one.sex, one.postcode, one.insurance) for one in of} for of in several]
    assert round(sum(len(of) > 1 for of in known) / len(several), 2) == 0.47

    sets = [frozenset(one.diagnosis for one in of) for of in stays_of.values()]
    assert len({*sets}) == 3501
    draw = random.Random(1)  # noqa: S311
    draw.shuffle(sets)
    certain = [
        {one for one in bucket if known in one} == {own}
        for bucket in (sets[at : at + 10] for at in range(0, len(sets), 10))
        for own in bucket
        if len(own) > 1
        for known in [draw.choice(sorted(own))]
    ]
    assert sum(certain) / len(certain) == pytest.approx(0.83, abs=0.02)


# Rows of a person that are alike in all that is not sensitive: one of them is drawn.

ROWS = (1, 1, 2, 2)
"""How many rows each person has, all at one age."""

VARIANTS = {n: [*combinations_with_replacement(range(3), n)] for n in set(ROWS)}
"""The values that somebody can have in so many rows."""

Kept = Mapping[tuple[int, tuple[int, ...]], int]
"""The value in the row that is kept of a person with these values."""


@pytest.fixture(scope="module")
def alike(parties: Parties) -> str:
    """Each person once in each variant, with the values that it names."""
    rows = [
        (variant, person, 20 + person, ill)
        for person, n in enumerate(ROWS)
        for variant, values in enumerate(VARIANTS[n])
        for ill in values
    ]
    create_table(parties.publisher, "data.alike", "variant int, pid int, age int, ill int", rows)
    Functions(parties.publisher).register("data.alike", ["age"], "ill", entity="pid", keep="random")
    return "data.alike"


def kept_rows(connection: Connection) -> Kept:
    """What is kept of everybody, in all variants, by the key that there is."""
    found: dict[tuple[int, tuple[int, ...]], int] = {}
    with connection.transaction():
        session = PsycopgSession(connection)
        relation = find_source(session, Relation("data", "alike")).relation
        for variant in range(max(map(len, VARIANTS.values()))):
            rows = relation.rows(session, f"s.variant = {variant}")
            for row in session.fetch(f"SELECT s.pid, s.ill FROM {rows}"):
                found[row["pid"], VARIANTS[ROWS[row["pid"]]][variant]] = row["ill"]
    return found


def surest(
    worlds: Iterable[tuple[tuple[int, ...], ...]],
    kept: Sequence[Kept],
) -> Fraction:
    """How sure anybody can be of a kept value, if worlds and keys are equally likely.

    A world is the values of each person's rows.
    """
    likelihood: dict[Any, dict[Table, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for world in worlds:
        for by in kept:
            table = tuple(by[person, tuple(sorted(own))] for person, own in enumerate(world))
            for one, probability in published(table).items():
                likelihood[one][table] += probability
    assert len(likelihood) > 1
    return max(
        sum((p for table, p in tables.items() if table[person] == value), Fraction(0))
        / sum(tables.values())
        for tables in likelihood.values() for person in range(len(ROWS)) for value in range(3)
    )  # fmt: skip


@cache
def published(table: Table) -> Mapping[Any, Fraction]:
    """How likely each publication of a table is, with l = 2; none that is refused."""
    people = tuple((person,) for person in range(len(ROWS)))
    publish = in_buckets(people, (Fraction(1, 2),) * 3, ASSIGNMENTS["random"], "two_size")
    found: dict[Any, Fraction] = defaultdict(Fraction)
    if max(Counter(table).values()) <= len(table) / 2:
        for one, probability in every_outcome(lambda draw: publish(table, draw)):
            found[one] += probability
    return found


def of_people(table: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Give each person the next values of a table of rows."""
    rows = iter(table)
    return tuple(tuple(next(rows) for _ in range(n)) for n in ROWS)


@pytest.mark.pitfall(61)
@pytest.mark.usefixtures("alike")
def test_who_knows_all_but_the_values_is_no_surer_of_a_kept_one(parties: Parties) -> None:
    """Exactly: over all tables, and all ways in which the key can draw one of several rows.

    The reader knows everybody's number and age, how many rows they have, and either how often each
    value occurs in all rows, or that nobody has a value twice.
    """
    ways: dict[tuple[tuple[Any, int], ...], Kept] = {}
    for _ in range(40):  # of four ways, one is missed with 4 * (3/4)^40
        forget_draws(parties.admin)
        found = kept_rows(parties.publisher)
        ways[tuple(sorted(found.items()))] = found
        if len(ways) == math.prod(ROWS):
            break
    kept = [*ways.values()]
    counted = [of_people(table) for table in tables_of((2, 2, 2))]
    distinct = [of_people(table) for table in product(range(3), repeat=sum(ROWS))]
    distinct = [world for world in distinct if all(len({*own}) == len(own) for own in world)]
    assert surest(counted, kept) <= Fraction(1, 2)
    assert surest(distinct, kept) <= Fraction(1, 2)
    assert len(ways) == math.prod(ROWS)


ILL = ("asthma", "flu", "hiv", "ulcer", "gout", "mumps")
HASHED = """
WITH hashed AS (
    SELECT q.bucket_id, q.age - 20 AS pid, i AS illness, rank() OVER (PARTITION BY q.age ORDER BY
           hashtextextended(ARRAY[(q.age - 20)::text, i]::text COLLATE pg_catalog."C", 0) DESC)
           AS place
    FROM published.tied_qit AS q, unnest($1::text[]) AS i
), sure AS (
    SELECT h.pid, s.illness FROM hashed AS h
    JOIN published.tied_sat AS own ON own.bucket_id = h.bucket_id AND own.illness = h.illness
    JOIN published.tied_sat AS s ON s.bucket_id = h.bucket_id AND s.illness <> h.illness
    WHERE h.place = 1
    AND (SELECT count(*) FROM published.tied_sat AS t WHERE t.bucket_id = h.bucket_id) = 2
)
SELECT count(*), count(*) FILTER (WHERE EXISTS (SELECT FROM data.tied AS t WHERE t.pid = sure.pid
       AND t.illness = sure.illness)) FROM sure
"""


@pytest.mark.pitfall(61)
def test_whoever_hashes_all_values_finds_nobodys(parties: Parties) -> None:
    """Everybody has two of six illnesses, noted on one day.

    If the one with the greatest hash of all six were never kept, and it is one of the two in
    somebody's bucket, they would have the other.
    """
    rows = [
        (person, 20 + person, f"2026-01-{1 + person % 28:02}", ill)
        for person in range(200)
        for ill in random.Random(person).sample(ILL, 2)  # noqa: S311
    ]
    create_table(parties.publisher, "data.tied", "pid int, age int, day date, illness text", rows)
    kanon = Functions(parties.publisher)
    kanon.register("data.tied", ["age"], "illness", entity="pid", keep="latest by day")
    kanon.publish("data.tied", "tied", privacy='{"l": 2}', assignment="random", readers=[])
    ((n_sure, n_right),) = fetch(parties.publisher, HASHED, [*ILL])
    kanon.drop("tied")
    # A value of one's bucket is one's own with 1/2, or else the other row's with 1/5.
    assert n_sure >= 20
    assert n_right <= 0.6 * n_sure + 4 * math.sqrt(0.24 * n_sure)


@pytest.mark.pitfall(61)
def test_each_of_several_rows_alike_is_kept_as_often(parties: Parties) -> None:
    """Also of rows with the same value: nobody's frequent value makes room for a rare one."""
    rows = [(person, 20 + person % 30, ill) for person in range(600) for ill in "aab"]
    create_table(parties.publisher, "data.thrice", "pid int, age int, ill text", rows)
    Functions(parties.publisher).register(
        "data.thrice", ["age"], "ill", entity="pid", keep="random"
    )
    with parties.publisher.transaction():
        session = PsycopgSession(parties.publisher)
        relation = find_source(session, Relation("data", "thrice")).relation
        read = f"SELECT s.ill, count(*)::int AS n FROM {relation.rows(session)} GROUP BY s.ill"
        found = {row["ill"]: row["n"] for row in session.fetch(read)}
    assert sum(found.values()) == 600
    assert abs(found["b"] - 200) <= 4 * math.sqrt(600 * 2 / 9)


@pytest.mark.pitfall(63)
def test_the_greatest_of_many_values_is_surer_than_its_bound() -> None:
    """Two people share a bucket of a low and a high value; each row's is either, as likely."""
    rows, seen = (1, 3), {(0, 1), (1, 0)}
    weights = Counter(
        kept
        for values in product((0, 1), repeat=sum(rows))
        if (kept := (max(values[: rows[0]]), max(values[rows[0] :]))) in seen
    )
    assert Fraction(weights[0, 1], weights.total()) == Fraction(7, 8) > Fraction(1, 2)


@pytest.mark.pitfall(63)
def test_values_of_all_rows_are_a_risk_that_must_be_accepted(parties: Parties) -> None:
    """Wherever values are bounded; the guarantee then says what it does not cover."""
    rows = [(i // 2, 20 + i // 2, i % 5, i * 7 % 4) for i in range(80)]
    create_table(parties.publisher, "data.pooled", "pid int, age int, stay int, ill int", rows)
    kanon = Functions(parties.publisher)
    with hearing(parties.publisher) as heard:
        kanon.register(
            "data.pooled", ["age"], "ill", entity="pid", keep="latest by stay, max of ill"
        )
    assert any("pooled_values" in line for line in heard)
    bounded: dict[str, dict[str, Any]] = {
        "publish_buckets": {"privacy": '{"l": 2}'},
        "publish_generalized": {"k": 4, "constraints": '{"l": 2}', "refine": False},
    }
    for function, given in bounded.items():
        with pytest.raises(psycopg.Error, match="pooled_values"), parties.publisher.transaction():
            kanon.call(function, "data.pooled", "p", **given)
        accept = '{"pooled_values": "everybody has two rows"}'
        found = kanon.call(function, "data.pooled", "p", **given, accept=accept)
        assert "ill is calculated from all records of a person" in found["guarantee"]
        assert holds(parties.publisher, "p")
        kanon.drop("p")
    kanon.call("publish_generalized", "data.pooled", "p", k=4, refine=False)  # no value is bounded
    kanon.drop("p")
    kanon.register("data.pooled", ["age"], "ill", entity="pid", keep="latest by stay, max of age")
    kanon.call("publish_buckets", "data.pooled", "p", privacy='{"l": 2}')
    kanon.drop("p")
