"""Each formula as SQL gives what its numpy twin gives, on random buckets."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kanon_db.query.formulas import (
    BUCKET_SUMS,
    COUNTS,
    REACHED,
    SLOPE_DOUBT,
    TOTALS,
    Estimated,
    Trust,
    Weighed,
    all_but,
    all_but_answer,
    answer_sql,
    calibrated_sql,
    corrected,
    count_buckets,
    count_correlation,
    count_measures,
    sum_answer,
    sum_buckets,
    weights,
)
from kanon_db.query.sql import Select, Steps

DATABASE = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
TRUSTED = Trust(1.5, doubted=1.5)
VALUES = st.sampled_from([-3.5, -1.0, 0.0, 0.25, 2.0, 7.0])


@pytest.fixture(scope="module")
def connection(module_database: str):
    with psycopg.connect(module_database, autocommit=True) as opened:
        yield opened


@st.composite
def counted_buckets(draw: Any) -> list[tuple[int, int, int]]:
    """Buckets as (size, q, s)."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=30))
    return [(size, draw(st.integers(0, size)), draw(st.integers(0, size))) for size in sizes]


@st.composite
def weighed_buckets(draw: Any) -> list[tuple[int, list[float], int]]:
    """Buckets as (size, values of the q, s), with at least one of each."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=20))
    return [
        (size, draw(st.lists(VALUES, min_size=1, max_size=size)), draw(st.integers(1, size)))
        for size in sizes
    ]


def rows(names: list[str], values: list[Any]) -> list[str]:
    """Write rows of numbers as a relation."""
    lines = ", ".join(f"({', '.join(map(str, line))})" for line in values)
    return [f"(VALUES {lines}) AS b ({', '.join(names)})"]


def run(connection: psycopg.Connection[Any], source: list[str], *columns: dict[str, str]) -> Any:
    """Run steps, each over the one before; the answer is a row of four numbers."""
    steps = Steps()
    for number, step in enumerate(columns):
        steps.add(f"step_{number}", "A step.", Select(step, source))
        source = [f"step_{number}"]
    (row,) = connection.execute(steps.write().encode()).fetchall()
    return row


def numbers(estimated: Estimated) -> tuple[float | None, ...]:
    return (
        estimated.estimate, estimated.std_error, estimated.lower_bound, estimated.upper_bound,
    )  # fmt: skip


@given(buckets=counted_buckets())
@DATABASE
def test_counts(connection: psycopg.Connection[Any], buckets: list[tuple[int, int, int]]) -> None:
    sizes = sorted({size for size, _, _ in buckets})
    q, s = ([np.array([b[at] for b in buckets if b[0] == size], dtype=np.uint16) for size in sizes]
            for at in (1, 2))  # fmt: skip
    found, doubt = count_buckets(q, s, sizes)
    by_numpy = corrected(found, (0.0, doubt), TRUSTED)
    n_records = sum(size for size, _, _ in buckets)
    totals = [f"{sum(b[at] for b in buckets)}::float8" for at in (1, 2)] + [
        f"{sum(b[at] ** 2 / b[0] for b in buckets)!r}::float8" for at in (1, 2)
    ]
    source = rows(["size", "q", "s", "n", "n_q", "n_s", "packed_q", "packed_s"],
        [(*bucket, 1, *totals) for bucket in buckets if bucket[1] and bucket[2]]
        or [(1, 0, 0, 0, *totals)],
    )  # fmt: skip
    steps = (
        COUNTS, count_measures(n_records), count_correlation(n_records, len(buckets)), SLOPE_DOUBT,
        answer_sql(TRUSTED),
    )  # fmt: skip
    by_sql = run(connection, source, *steps)
    # The sums' last digits decide whether an error of nothing is 0.
    assert by_sql == pytest.approx(numbers(by_numpy), rel=1e-6, abs=1e-6)
    others = run(connection, source, *steps, all_but_answer(n_records))
    assert others == pytest.approx(numbers(all_but(n_records, by_numpy)), rel=1e-6, abs=1e-6)


@given(buckets=weighed_buckets(), is_average=st.booleans())
@DATABASE
def test_sums(
    connection: psycopg.Connection[Any],
    buckets: list[tuple[int, list[float], int]],
    is_average: bool,
) -> None:
    by_size: dict[int, list[tuple[list[float], int]]] = defaultdict(list)
    for size, x, s in buckets:
        by_size[size].append((x, s))
    sizes = sorted(by_size)
    weighed = [
        Weighed(*(np.array([f(x) for x, _ in by_size[size]], dtype=float) for f in MEASURES))
        for size in sizes
    ]
    others = [np.array([s for _, s in by_size[size]], dtype=np.uint16) for size in sizes]
    matched = sum_buckets(weighed, others, sizes, is_average=is_average)
    assert matched is not None
    by_numpy = corrected(matched, (0.0, 0.0), TRUSTED)
    names = ["size", "s", "q", *weights("x", "")]
    source = rows(names,
        [[f"({n!r})::float8" for n in (size, s, *(float(f(x)) for f in MEASURES))]
         for size, x, s in buckets],
    )  # fmt: skip
    sums = (REACHED, BUCKET_SUMS, TOTALS)
    steps = (sum_answer(is_average=is_average), calibrated_sql(1.5))
    by_sql = run(connection, source, *sums, *steps)
    assert by_sql == pytest.approx(numbers(by_numpy), rel=1e-6, abs=1e-6)


MEASURES = (
    len,
    sum,
    lambda x: sum(v * v for v in x),
    lambda x: sum(max(v, 0) for v in x),
    lambda x: sum(min(v, 0) for v in x),
    min,
    max,
)
"""Of the values of a bucket, in the order of :class:`Weighed`."""


@given(x=st.lists(VALUES, min_size=1, max_size=8))
@DATABASE
def test_weights(connection: psycopg.Connection[Any], x: list[float]) -> None:
    source = rows(["x"], [[f"({v!r})::float8"] for v in x])
    found = run(connection, source, weights("x", ""))
    assert found == pytest.approx(tuple(f(x) for f in MEASURES[1:]))
