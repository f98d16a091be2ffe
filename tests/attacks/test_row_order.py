"""Attacks on the order of things: rows, lines of dumps, bucket numbers, statistics.

An attacker who knows everybody's quasi-identifiers (here a number that names the person) guesses
everybody's sensitive value. Whoever knows the published bucket of a person can hope for the
value's share of that bucket; no order may give more. The same guesses against a naive layout find
everybody, which shows that they are able to.
"""

from __future__ import annotations

import math
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.cluster import _host
from tests.integration.parties import (
    Functions,
    Parties,
    create_source,
    fetch,
    sqlstate_of,
    value,
)

SIGMAS = 7
"""Standard deviations that a healthy result may stray: once in 10^11 runs it strays further."""

METHODS = {
    "anatomy": {"method": "anatomy", "assignment": "random"},
    "two_size": {"method": "two_size", "assignment": "random"},
    "cells": {"assignment": "cells"},
    "m_invariant": {"assignment": "m_invariant"},
}

N_RECORDS = 4000
PEOPLE = [(person, f"value {person * 12 // N_RECORDS}") for person in range(N_RECORDS)]
"""Sorted by sensitive value: whatever survives of the source's order betrays values."""

N_BITS = 12
"""Columns ``bit_0 …``, the binary digits of a person's number: few values, so with bitmaps."""

Qit = Sequence[tuple[int, int]]
Sat = Sequence[tuple[int, str, int]]
Guess = Mapping[int, str]


@pytest.fixture(scope="module")
def published(parties: Parties) -> Parties:
    """The people published by each method, and naively."""
    digits = [f"bit_{i}" for i in range(N_BITS)]
    columns = "person int, value text, " + ", ".join(f"{digit} int" for digit in digits)
    rows = [(person, found, *(person >> i & 1 for i in range(N_BITS))) for person, found in PEOPLE]
    create_source(parties.publisher, "data.people", columns, rows, ["person", *digits], "value")
    for name, how in METHODS.items():
        Functions(parties.publisher).publish("data.people", name, privacy='{"l": 5}', **how)
    # Both tables from the same rows, each even sorted by bucket.
    dealt = "FROM (SELECT *, person % 800 AS bucket_id FROM data.people) AS d ORDER BY bucket_id"
    for statement in (
        f"CREATE TABLE published.naive_qit AS SELECT person, bucket_id {dealt}",
        f"CREATE TABLE published.naive_sat AS SELECT bucket_id, value, 1 AS count {dealt}",
        "GRANT SELECT ON published.naive_qit, published.naive_sat TO kanon_analyst",
    ):
        fetch(parties.admin, statement)
    return parties


def by_ctid(parties: Parties, layout: str) -> tuple[Qit, Sat]:
    qit = f"SELECT person, bucket_id FROM published.{layout}_qit ORDER BY ctid"
    sat = f"SELECT bucket_id, value, count FROM published.{layout}_sat ORDER BY ctid"
    return fetch(parties.analyst, qit), fetch(parties.analyst, sat)


def by_copy(parties: Parties, layout: str) -> tuple[Qit, Sat]:
    def lines(table: str) -> list[Sequence[Any]]:
        with parties.analyst.cursor().copy(f"COPY published.{table} TO STDOUT".encode()) as copy:
            return list(copy.rows())

    return _typed(lines(f"{layout}_qit"), lines(f"{layout}_sat"))


def by_dump(parties: Parties, layout: str) -> tuple[Qit, Sat]:
    def lines(table: str) -> list[list[str]]:
        _, _, data = dump.partition(f"COPY published.{table} ")
        return [line.split("\t") for line in data.partition("\\.\n")[0].splitlines()[1:]]

    program = _host.find_programs(None).path("pg_dump")
    tables = [f"--table=published.{layout}_{end}" for end in ("qit", "sat")]
    dump = subprocess.run(
        [program, "--data-only", *tables, f"--dbname={parties.dsn}"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return _typed(lines(f"{layout}_qit"), lines(f"{layout}_sat"))


def _typed(qit: Iterable[Sequence[str]], sat: Iterable[Sequence[str]]) -> tuple[Qit, Sat]:
    return (
        [(int(person), int(bucket)) for person, *_, bucket in qit],
        [(int(bucket), value, int(count)) for bucket, value, count in sat],
    )


def row_by_row(qit: Qit, sat: Sat) -> Guess:
    """The i-th person has the i-th value, rows of the SAT repeated by their count."""
    values = (value for _, value, count in sat for _ in range(count))
    return {person: value for (person, _), value in zip(qit, values, strict=True)}


def row_by_row_within_buckets(qit: Qit, sat: Sat) -> Guess:
    """The i-th person of a bucket has the i-th value of that bucket."""
    values: defaultdict[int, list[str]] = defaultdict(list)
    for bucket, found, count in sat:
        values[bucket] += [found] * count
    position: Counter[int] = Counter()
    guess = {}
    for person, bucket in qit:
        guess[person] = values[bucket][position[bucket]]
        position[bucket] += 1
    return guess


def hits(guess: Guess) -> int:
    return sum(guess[person] == value for person, value in PEOPLE)


def most_by_chance(guess: Guess, qit: Qit, sat: Sat) -> float:
    """Bound the hits of someone who knows no more than each person's bucket.

    A guess is right with the probability of its value's share of the bucket. Hits within a bucket
    depend on each other, as draws without replacement: with n records their variance is at most
    n / (n - 1) <= 2 times that of independent ones.
    """
    sizes = Counter(bucket for _, bucket in qit)
    counts = {(bucket, value): count for bucket, value, count in sat}
    shares = [counts.get((bucket, guess[person]), 0) / sizes[bucket] for person, bucket in qit]
    variance = 2 * sum(share * (1 - share) for share in shares)
    return sum(shares) + SIGMAS * math.sqrt(variance)


READINGS = {"ctid": cache(by_ctid), "copy": cache(by_copy), "pg_dump": cache(by_dump)}
GUESSES: list[Callable[[Qit, Sat], Guess]] = [row_by_row, row_by_row_within_buckets]


@pytest.mark.long
@pytest.mark.pitfall(1)
@pytest.mark.parametrize("reading", READINGS)
def test_row_order_join(published: Parties, reading: str) -> None:
    """The i-th person has the i-th value: by where rows lie, in COPY, and in a dump."""
    for layout, guess in product([*METHODS, "naive"], GUESSES):
        qit, sat = READINGS[reading](published, layout)
        guessed = guess(qit, sat)
        if layout == "naive":
            assert hits(guessed) == N_RECORDS  # the attack is able to find everybody
        else:
            assert_by_chance(guessed, qit, sat, f"{layout} {guess.__name__}")


def assert_by_chance(guess: Guess, qit: Qit, sat: Sat, what: str) -> None:
    assert hits(guess) <= most_by_chance(guess, qit, sat) < 0.3 * N_RECORDS, what


@pytest.mark.long
@pytest.mark.pitfall(1)
def test_first_row_of_the_view(published: Parties) -> None:
    """The view has a row for each value of a person's bucket: the first is no likelier."""
    for layout in METHODS:
        guess: dict[int, str] = {}
        view = fetch(published.analyst, f"SELECT person, value FROM published.{layout}")
        for person, found in view:
            guess.setdefault(person, found)
        assert_by_chance(guess, *READINGS["ctid"](published, layout), layout)


@pytest.mark.pitfall(1)
@pytest.mark.parametrize("what", ["bucket_id", "row"])
def test_source_order(published: Parties, what: str) -> None:
    """Neither bucket numbers nor row numbers follow the source, as a whole or among neighbours."""
    for layout in METHODS:
        qit, _ = READINGS["ctid"](published, layout)
        place: FloatArray = np.empty(N_RECORDS)
        for row, (person, bucket) in enumerate(qit):
            place[person] = bucket if what == "bucket_id" else row
        sizes, commonest = sizes_of(qit)
        alike = np.sort([person for person, bucket in qit if sizes[bucket] == commonest])
        # Correlations of unrelated numbers have a standard deviation of 1 / sqrt(n).
        n_free = alike.size // commonest if what == "bucket_id" else alike.size
        correlation = np.corrcoef(alike, place[alike])[0, 1]
        assert abs(correlation) < SIGMAS / math.sqrt(n_free), layout
        # Records of one value are dealt to consecutive buckets: without a permutation afterwards,
        # neighbours in the source would sit in neighbouring buckets.
        n_places = len(set(place.tolist()))
        near = int((np.abs(np.diff(place)) <= 1).sum())
        expected = 3 * N_RECORDS / n_places
        assert near <= expected + SIGMAS * math.sqrt(2 * expected) + SIGMAS, layout


def sizes_of(qit: Qit) -> tuple[Counter[int], int]:
    """The sizes of buckets, by which they are numbered, and the commonest size."""
    sizes = Counter(bucket for _, bucket in qit)
    return sizes, Counter(sizes.values()).most_common(1)[0][0]


@pytest.mark.pitfall(14)
def test_neighbouring_buckets(published: Parties) -> None:
    """Buckets next to each other are no more alike than any two: numbers tell nothing."""
    for layout in METHODS:
        qit, sat = READINGS["ctid"](published, layout)
        sizes, commonest = sizes_of(qit)
        values: defaultdict[int, set[str]] = defaultdict(set)
        for bucket, found, _ in sat:
            if sizes[bucket] == commonest:
                values[bucket].add(found)
        buckets = sorted(values)
        neighbours = [len(values[a] & values[b]) for a, b in pairwise(buckets)]
        pairs = np.random.default_rng(1).choice(buckets, size=(20_000, 2)).tolist()
        any_two = [len(values[a] & values[b]) for a, b in pairs if a != b]
        # Each bucket is in two pairs of neighbours: half of them say something new.
        error = np.std(any_two) / math.sqrt(len(neighbours) / 2)
        assert abs(np.mean(neighbours) - np.mean(any_two)) < SIGMAS * error, layout


@pytest.mark.pitfall(1)
def test_system_columns(published: Parties) -> None:
    """Transaction and command numbers are the same for every row."""
    for layout, suffix in product(METHODS, ("qit", "sat")):
        rows = fetch(
            published.analyst,
            "SELECT DISTINCT xmin::text, xmax::text, cmin::text, cmax::text, tableoid"
            f" FROM published.{layout}_{suffix}",
        )
        assert len(rows) == 1, (layout, suffix)


@pytest.mark.pitfall(9)
def test_statistics(published: Parties) -> None:
    """Planner statistics show an analyst what the published columns hold, and nothing else."""
    rows = fetch(
        published.analyst,
        "SELECT schemaname::text, tablename::text, attname::text, most_common_vals::text::text[],"
        " histogram_bounds::text::text[], correlation FROM pg_catalog.pg_stats"
        " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
    )
    assert {schema for schema, *_ in rows} == {"published"}
    for layout in METHODS:
        its = [row for row in rows if row[1].startswith(layout)]
        assert {"person", "bucket_id", "value", "count"} <= {column for _, _, column, *_ in its}
        for _, table, column, common, bounds, correlation in its:
            cells = fetch(published.analyst, f"SELECT {column} FROM published.{table}")
            held = {str(found) for (found,) in cells}
            assert {*(common or ()), *(bounds or ())} <= held, (table, column)
            if table == f"{layout}_qit" and column in ("person", "bucket_id"):
                assert abs(correlation) < SIGMAS / math.sqrt(N_RECORDS), (table, column)


@pytest.mark.pitfall(9)
def test_statistics_of_the_source(published: Parties) -> None:
    """No column statistics of the source, nor of copies made on the way, reach an analyst."""
    hidden = (
        "SELECT count(*) FROM pg_catalog.{} WHERE schemaname = 'data'"
        " OR schemaname LIKE 'pg\\_temp%'"
    )
    of_copies = hidden.format("pg_stats") + " OR tablename LIKE '%kanon\\_%'"
    assert value(published.admin, of_copies) == 0
    fetch(published.publisher, "ANALYZE data.people")
    assert value(published.admin, of_copies) > 0
    for view in ("pg_stats", "pg_stats_ext", "pg_stats_ext_exprs"):
        assert value(published.analyst, hidden.format(view)) == 0, view
    for catalog in ("pg_statistic", "pg_statistic_ext_data"):
        assert sqlstate_of(lambda c=catalog: fetch(published.analyst, f"TABLE {c}")) == "42501"
