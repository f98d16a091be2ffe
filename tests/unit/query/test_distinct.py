"""The bounds of COUNT(DISTINCT …) hold for whatever the counts of values may be."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.answers._distribution import apart_ranges, apart_sets, count_distinct
from kanon_db.query.formulas import Estimated

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
