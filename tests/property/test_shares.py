"""What publications imply: shares of values in cells."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.algorithms.freeform import numbered_cells, partitioned, sort_greedy
from kanon_db.algorithms.recoding import Attribute, Microdata
from kanon_db.algorithms.recoding.generalized_cells import (
    NumberedCells,
    RangeDistributions,
    SetDistributions,
    Sets,
    cells_of_classes,
    distinct_cells,
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
    distributions = SetDistributions.of(cells, records, known, is_tight=True, different=None)
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
    distributions = SetDistributions.of(cells, records, known, is_tight=True, different=None)
    assert distributions is not None
    assert (distributions.known >= certain - 1e-9).all()
    assert (distributions.known <= 1 + 1e-9).all()


def test_cells_that_differ_are_not_off_together() -> None:
    """Of as many records, fewer deviations add up where they lie in more distinct cells."""
    ten = np.full(10, 100)
    for n_cells in (1, 10):
        low, high = np.zeros(n_cells), 20.0 + np.arange(n_cells)
        ranges = RangeDistributions.of(
            low - 0.5,
            high + 0.5,
            ten[:n_cells],
            ten[:n_cells] / 5,
            is_tight=True,
            different=None,
            is_discrete=True,
        )
        sets, _ = Sets.number(list(combinations("abcde", 2))[:n_cells])
        distributions = SetDistributions.of(
            sets, ten[:n_cells], ten[:n_cells] / 5, is_tight=True, different=None
        )
        assert ranges is not None
        assert distributions is not None
        doubted = [float((1 - one.known).max()) for one in (ranges, distributions)]
        if n_cells == 1:
            of_one = doubted
    assert all(many < 0.6 * one for many, one in zip(doubted, of_one, strict=True))


def _shares(
    cells: NumberedCells, witnesses: np.ndarray, different: float | None
) -> tuple[Sets, np.ndarray]:
    sets, records = cells.cells, np.bincount(cells.numbers)
    assert isinstance(sets, Sets)
    distributions = SetDistributions.of(
        sets, records, witnesses, is_tight=True, different=different
    )
    assert distributions is not None
    return sets, distributions.shares


def _off(cells: NumberedCells, shares: np.ndarray, codes: np.ndarray) -> float:
    """How far expected counts of each value are off, in all."""
    sets, records = cells.cells, np.bincount(cells.numbers)
    assert isinstance(sets, Sets)
    expected = np.bincount(sets.codes, records.repeat(sets.sizes) * shares)
    return float(np.abs(expected - np.bincount(codes)).sum())


def test_rows_most_of_which_are_alike_are_as_the_paper_says() -> None:
    """Groups of fewer than k records with a rare value may have any size."""
    random = np.random.default_rng(3)
    rare, place = (random.random(2_000) < 0.03).astype(np.int32), np.arange(2_000) % 10
    codes = np.stack([rare, place], axis=1).astype(np.int32)
    table = Microdata(codes, (Attribute(2, weight=0.001), Attribute(10)))
    both = numbered_cells(table, partitioned(table, 10, partial(sort_greedy, improve=False)))
    cells = both[0]
    different = np.unique(np.stack([one.numbers for one in both], axis=1), axis=0).shape[0] / 2_000
    assert different < 0.1
    witnesses = np.bincount(cells.numbers) / 10
    sets, shares = _shares(cells, witnesses, different)
    assert np.allclose(shares, (1 / sets.sizes).repeat(sets.sizes))
    _, followed = _shares(cells, witnesses, 1.0)
    assert _off(cells, followed, rare) > 2 * _off(cells, shares, rare)


def test_many_mixed_cells_follow_what_is_learned() -> None:
    rare = (np.random.default_rng(3).random(2_000) < 0.1).astype(np.int32)
    table = Microdata(rare[:, np.newaxis], (Attribute(2),))
    classes = np.arange(2_000) // 10
    (of_classes,) = cells_of_classes(table, classes)
    few, numbers = distinct_cells(of_classes)
    cells = NumberedCells(few, numbers[classes])
    sets, shares = _shares(cells, np.bincount(numbers).astype(float), different=None)
    evenly = (1 / sets.sizes).repeat(sets.sizes)
    assert _off(cells, shares, rare) < 0.7 * _off(cells, evenly, rare)


def test_ends_of_ranges_are_followed_as_far_as_what_lies_between() -> None:
    """Where the records of a range lie evenly as a whole, those between known ends do not."""
    low = np.array([0.0, *range(30)]) - 0.5
    for width, is_followed in ((1, False), (25, True)):
        high = np.append(0.0, low[1:] + 1 + width) + 0.5 * np.array([1] + [0] * 30)
        records = np.array([5_000] + [20] * 30)
        ranges = RangeDistributions.of(
            low, high, records, records / 5, is_tight=True, different=None, is_discrete=True
        )
        assert ranges is not None
        assert (ranges.trust > 0) == is_followed
        assert ranges.own[1:] == pytest.approx(ranges.trust / 5)


def test_whole_numbers_in_continuous_ranges_follow_what_is_learned() -> None:
    """If they lay evenly, none would be whole."""
    low, high = np.array([60.0, 61.0, 62.0]), np.array([62.0, 63.0, 62.0])
    records = np.array([10, 10, 10])
    for part in (0.0, 0.25):
        ranges = RangeDistributions.of(
            low + part,
            high,
            records,
            records / 5,
            is_tight=True,
            different=None,
            is_discrete=False,
        )
        assert ranges is not None
        assert (ranges.trust == 1) == (part == 0)


def test_ranges_of_other_numbers_may_all_be_off_together() -> None:
    low, records = np.arange(20.0), np.full(20, 10)
    for part in (0.0, 0.25):
        ranges = RangeDistributions.of(
            low + part,
            low + 9,
            records,
            records / 5,
            is_tight=True,
            different=None,
            is_discrete=False,
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
