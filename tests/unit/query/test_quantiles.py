"""The bounds of a percentile hold for all values that records may have."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.answers.measures import count_distinct
from kanon_db.answers.rows.cell_evidence import apart_ranges, apart_sets
from kanon_db.answers.value_ranks import Quantile, Sides, answer, interpolate
from kanon_db.query.formulas import Estimated

SHARES = st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 0.9, 1.0])
NUMBERS = st.tuples(st.integers(0, 4), st.integers(0, 3)).map(lambda p: (p[0], p[0] + p[1]))


@given(SHARES, st.booleans(), NUMBERS, NUMBERS, NUMBERS)
def test_the_theorem(
    share: float, is_continuous: bool, total: tuple[int, int], below: tuple[int, int],
    above: tuple[int, int],
) -> None:  # fmt: skip
    quantile = Quantile(share, is_continuous)
    sides = Sides(*total, below, above)
    tables = [
        (b, b + r)
        for b, r in product(range(below[0], below[1] + 1), range(above[0], above[1] + 1))
        if b + r >= 1 and total[0] <= b + r <= total[1]
    ]
    for b, n in tables:
        if sides.enough(quantile) >= 0:
            assert b >= quantile.last(n)
        if sides.too_many(quantile) < 0:
            assert b < quantile.first(n)
        for rank in range(1, n + 1):
            assert sides.enough_for(rank) < 0 or b >= rank
            assert sides.too_many_for(rank) >= 0 or b < rank
    # Where the numbers are certain, so is the answer.
    if len(tables) == 1 and total[0] == total[1] and below[0] == below[1]:
        ((b, n),) = tables
        assert (sides.enough(quantile) >= 0) == (b >= quantile.last(n))
        assert (sides.too_many(quantile) < 0) == (b < quantile.first(n))


@given(SHARES, st.booleans(), st.integers(1, 500))
def test_a_rank_rises_by_at_most_one(share: float, is_continuous: bool, n: int) -> None:
    quantile = Quantile(share, is_continuous)
    for rank in (quantile.first, quantile.last):
        assert 1 <= rank(n) <= n
        assert rank(n) <= rank(n + 1) <= rank(n) + 1
    assert quantile.last(n) - quantile.first(n) == (quantile.part(n) > 0)


def test_interpolation() -> None:
    quartile = Quantile(0.25, is_continuous=True)
    values = [1.0, 2.0, 4.0, 8.0]
    first, last = (values[int(rank(4)) - 1] for rank in (quartile.first, quartile.last))
    assert interpolate(first, last, quartile.part(4)) == pytest.approx(1.75)


def test_an_answer_lies_within_its_bounds() -> None:
    assert answer(9, 5, 1, 4).estimate == 4
    assert answer(9, 5, 1, 4).std_error == 1.5
    assert answer(-9, 5, 1, None).estimate == 1
    assert answer(3, math.inf, None, math.inf).upper_bound is None
    assert answer(3, math.inf, None, None).std_error is None
    assert answer(None, None, 1, 2).lower_bound == 1


BOUNDS = st.tuples(st.integers(0, 2), st.integers(0, 2)).map(lambda p: (p[0], p[0] + p[1]))


def worlds(values: list[tuple[int, int]], total: tuple[int, int], n_unlisted: int) -> Iterator[int]:
    """The numbers of values of all tables that the bounds allow."""
    listed = (range(low, high + 1) for low, high in values)
    for counts in product(*listed):
        for n_others in range(n_unlisted + 1):
            if total[0] <= sum(counts) + n_others <= total[1]:
                n = sum(count > 0 for count in counts)
                yield from range(n + min(n_others, 1), n + n_others + 1)


@given(st.lists(BOUNDS, max_size=4), BOUNDS, st.integers(0, 2))
def test_bounds_hold_in_every_table(
    values: list[tuple[int, int]], total: tuple[int, int], n_unlisted: int
) -> None:
    counts = [Estimated((low + high) / 2, 0.5, low, high) for low, high in values]
    whole = Estimated(sum(total) / 2, 0.5, *total)
    found = count_distinct(counts, whole, n_unlisted)
    of_unknown = count_distinct([], whole, None)
    for n in worlds(values, total, n_unlisted):
        assert (found.lower_bound or 0) <= n <= (found.upper_bound or 0)
        assert (of_unknown.lower_bound or 0) <= n <= (of_unknown.upper_bound or 0)
        assert (found.lower_bound or 0) <= (found.estimate or 0) <= (found.upper_bound or 0)


def test_a_certain_number_has_no_error() -> None:
    values = [Estimated(2, 0, 2, 2), Estimated(1, 0, 1, 1)]
    assert count_distinct(values, Estimated(3, 0, 3, 3), 0) == Estimated(2, 0, 2, 2)


def test_few_values_cannot_hold_all_records() -> None:
    values = [Estimated(5, 1, 0, 6), Estimated(3, 1, 0, 4), Estimated(1, 1, 0, 3)]
    found = count_distinct(values, Estimated(9, 0, 9, 9), 0)
    assert (found.lower_bound, found.upper_bound) == (2, 3)


@pytest.mark.parametrize(
    ("sets", "n"), [([], 0), ([["a"]], 1), ([["a", "b"], ["b"], ["a"]], 2), ([["a"], ["a"]], 1)]
)
def test_sets_apart(sets: list[list[str]], n: int) -> None:
    assert apart_sets(sets) == n


def test_ranges_that_touch_are_not_apart() -> None:
    assert apart_ranges([(1, 2), (2, 3)]) == 1  # type: ignore[list-item]
    assert apart_ranges([(1, 9), (2, 3), (4, 5)]) == 2  # type: ignore[list-item]
