"""What publications imply: shares of values in cells, and how the values of buckets go together."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.algorithms.bucketization.buckets import composition
from kanon_db.algorithms.recoding.generalized_cells import (
    Sets,
    distribution_of_ranges,
    distribution_of_sets,
)

RECORDS = st.integers(1, 50)


@st.composite
def set_cells(draw: Any) -> tuple[Sets, np.ndarray, np.ndarray]:
    sets = draw(
        st.lists(st.sets(st.integers(0, 8), min_size=1, max_size=5), min_size=1, max_size=8)
    )
    sizes = np.array([len(one) for one in sets])
    records = np.array([len(one) * draw(RECORDS) for one in sets])
    known = np.array([draw(st.floats(0, 1)) for _ in sets]) * records / sizes
    codes = np.concatenate([sorted(one) for one in sets]).astype(np.int32)
    return Sets(codes, np.cumsum(sizes)), records, known


@given(set_cells())
def test_shares_of_a_set_are_shares(case: tuple[Sets, np.ndarray, np.ndarray]) -> None:
    """They add up to one, and no value has less than its witnesses."""
    cells, records, known = case
    shares = distribution_of_sets(cells, records, known)
    owner = np.repeat(np.arange(records.size), cells.sizes)
    assert np.allclose(np.bincount(owner, weights=shares), 1)
    assert (shares >= (known / records)[owner] - 1e-9).all()


@given(set_cells())
def test_a_set_of_one_value_tells_of_others(case: tuple[Sets, np.ndarray, np.ndarray]) -> None:
    """More records that surely have a value never make it less likely elsewhere."""
    cells, records, known = case
    value = int(cells.codes[0])
    more = Sets(
        np.append(cells.codes, np.int32(value)), np.append(cells.ends, cells.codes.size + 1)
    )
    before = distribution_of_sets(cells, records, known)
    after = distribution_of_sets(more, np.append(records, 10_000), np.append(known, 0.0))
    its = np.flatnonzero(cells.codes == value)
    assert (after[its] >= before[its] - 1e-6).all()


@st.composite
def range_cells(draw: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    ends = draw(
        st.lists(st.tuples(st.integers(-40, 40), st.integers(0, 30)), min_size=1, max_size=8)
    )
    low = np.array([one for one, _ in ends], dtype=float)
    high = low + np.array([width for _, width in ends])
    records = np.array([2 * draw(RECORDS) for _ in ends])
    known = np.array([draw(st.floats(0, 0.5)) for _ in ends]) * records
    return low, high, records, known


@given(range_cells(), st.booleans())
def test_an_axis_has_the_records_where_the_ranges_are(
    case: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], is_whole: bool
) -> None:
    """Its shares add up to one; no part that lies outside of all ranges has any."""
    low, high, records, known = case
    if is_whole:
        low, high = low - 0.5, high + 0.5
    axis = distribution_of_ranges(low, high, records, known, is_whole=is_whole)
    assert np.isclose(axis.shares.sum(), 1)
    assert (np.diff(axis.edges) > 0).all()
    assert axis.is_each == is_whole
    first, last = axis.parts_of(low, high)
    assert ((first >= 0) & (first <= last) & (last < axis.shares.size)).all()
    covered = np.zeros(axis.shares.size, dtype=bool)
    for one, other in zip(first, last, strict=True):
        covered[one : other + 1] = True
    assert axis.shares[~covered].sum() < 1e-6
    if is_whole:
        assert np.allclose(axis.middles[first], low + 0.5)
        assert np.allclose(axis.middles[last], high - 0.5)


def test_wide_axes_have_small_parts() -> None:
    """Numbers in the millions: no more parts than allowed, none with much of the records."""
    random = np.random.default_rng(15)
    low = np.sort(random.integers(0, 10**7, 300)).astype(float)
    high = low + random.integers(1, 10**5, 300)
    records = random.integers(2, 40, 300)
    axis = distribution_of_ranges(low - 0.5, high + 0.5, records, records / 10, is_whole=True)
    assert not axis.is_each
    assert axis.shares.size <= 4_000
    assert axis.shares.max() < 0.02
    assert np.allclose(axis.edges % 1, 0.5)


@st.composite
def bucketizations(draw: Any) -> tuple[np.ndarray, np.ndarray, int]:
    n_values = draw(st.integers(2, 6))
    buckets = draw(
        st.lists(
            st.lists(st.integers(0, n_values - 1), min_size=1, max_size=5), min_size=2, max_size=12
        )
    )
    values = np.array([value for bucket in buckets for value in bucket], dtype=np.int32)
    numbers = np.repeat(np.arange(len(buckets), dtype=np.int32), [len(b) for b in buckets])
    return values, numbers, n_values


@given(bucketizations())
def test_compositions_are_those_of_the_definition(case: tuple[np.ndarray, np.ndarray, int]) -> None:
    """C and H as docs/understand/estimation.md defines them, bucket by bucket."""
    values, buckets, n_values = case
    found = composition(values, np.bincount(buckets), n_values)
    totals = np.bincount(values, minlength=n_values).astype(float)
    together = np.zeros((n_values, n_values))
    for bucket in range(int(buckets.max()) + 1):
        counts = np.bincount(values[buckets == bucket], minlength=n_values).astype(float)
        together += np.outer(counts, counts) / counts.sum()
    differ = together - np.outer(totals, totals) / values.size
    ev, directions = found.eigenvalues, found.directions
    assert np.allclose(directions @ np.diag(ev) @ directions.T, differ, atol=1e-6)
    assert np.allclose(found.hidden, (np.diag(totals) - together) @ directions, atol=1e-6)
    assert np.allclose(found.expected, directions.T @ totals / values.size)
    assert (ev > 0).all()
    # What is added to one value is taken from the others.
    assert np.allclose(found.hidden.sum(axis=0), 0, atol=1e-6)
