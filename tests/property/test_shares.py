"""What publications imply: shares of values in cells."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.algorithms.recoding.generalized_cells import (
    RangeDistributions,
    SetDistributions,
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
    distributions = SetDistributions.of(cells, records, known, is_tight=True)
    assert distributions is not None
    shares = distributions.shares
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
    for own in np.split(cells.codes, cells.ends[:-1]):
        if value in own:
            share, since = (p[value] / p[own].sum() for p in (before, after))
            assert since >= share - 1e-6


@given(set_cells())
def test_errors_say_nothing_of_what_is_certain(case: tuple[Sets, np.ndarray, np.ndarray]) -> None:
    cells, records, known = case
    certain = np.minimum(known * cells.sizes / records, 1)
    distributions = SetDistributions.of(cells, records, known, is_tight=True)
    assert distributions is not None
    assert (distributions.known >= certain - 1e-9).all()
    assert (distributions.known <= 1 + 1e-9).all()


def test_cells_that_differ_are_not_off_together() -> None:
    """Of as many records, fewer deviations add up where they lie in more distinct cells."""
    ten = np.full(10, 100)
    for n_cells in (1, 10):
        low, high = np.zeros(n_cells), 20.0 + np.arange(n_cells)
        ranges = RangeDistributions.of(
            low - 0.5, high + 0.5, ten[:n_cells], ten[:n_cells] / 5, is_tight=True, is_discrete=True
        )
        sets, _ = Sets.number(list(combinations("abcde", 2))[:n_cells])
        distributions = SetDistributions.of(sets, ten[:n_cells], ten[:n_cells] / 5, is_tight=True)
        assert ranges is not None
        assert distributions is not None
        doubted = [float((1 - one.known).max()) for one in (ranges, distributions)]
        if n_cells == 1:
            of_one = doubted
    assert all(many < 0.6 * one for many, one in zip(doubted, of_one, strict=True))


def test_whole_numbers_in_continuous_ranges_follow_what_is_learned() -> None:
    """If they lay evenly, none would be whole."""
    low, high = np.array([60.0, 61.0, 62.0]), np.array([62.0, 63.0, 62.0])
    records = np.array([10, 10, 10])
    for part in (0.0, 0.25):
        ranges = RangeDistributions.of(
            low + part, high, records, records / 5, is_tight=True, is_discrete=False
        )
        assert ranges is not None
        assert (ranges.trust == 1) == (part == 0)


def test_ranges_of_other_numbers_may_all_be_off_together() -> None:
    low, records = np.arange(20.0), np.full(20, 10)
    for part in (0.0, 0.25):
        ranges = RangeDistributions.of(
            low + part, low + 9, records, records / 5, is_tight=True, is_discrete=False
        )
        assert ranges is not None
        divided = 1 - 2 * ranges.own
        assert ((1 - ranges.known > 0.39 * divided) == (part > 0)).all()


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
