"""Distinct cells: each of them once, and which one every cell is."""

from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.recoding import Ranges, Sets, distinct_cells, generalized_cells


def listed(found: Ranges | Sets) -> list[object]:
    if isinstance(found, Sets):
        return [tuple(part.tolist()) for part in np.split(found.codes, found.ends[:-1])]
    named = zip(found.low.tolist(), found.high.tolist(), found.tells_nothing.tolist(), strict=True)
    return [None if nothing else (low, high) for low, high, nothing in named]


def random_sets(seed: int) -> Sets:
    random = np.random.default_rng(seed)
    parts = [
        np.sort(random.choice(5, size=random.integers(1, 5), replace=False)) for _ in range(60)
    ]
    ends = np.cumsum([part.size for part in parts])
    return Sets(np.concatenate(parts).astype(np.int32), ends)


def random_ranges(seed: int) -> Ranges:
    random = np.random.default_rng(seed)
    low = random.integers(4, size=60).astype(np.int32)
    high = low + random.integers(4, size=60).astype(np.int32)
    return Ranges(low, high, random.random(60) < 0.2)


@pytest.mark.parametrize("make", [random_sets, random_ranges])
@pytest.mark.parametrize("seed", range(5))
def test_each_cell_is_one_of_those_that_differ(make: object, seed: int) -> None:
    given: Ranges | Sets = make(seed)  # type: ignore[operator]
    found, numbers = distinct_cells(given)
    shown, all_cells = listed(found), listed(given)
    assert len(set(shown)) == len(shown) == len(set(all_cells))
    assert [shown[number] for number in numbers] == all_cells


def test_sets_with_the_same_sum_are_still_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """By luck, sums of different sets may be equal; then all cells stay."""
    monkeypatch.setattr(
        generalized_cells, "scattered", lambda codes: np.zeros(codes.size, dtype=np.uint64)
    )
    given = random_sets(0)
    found, numbers = distinct_cells(given)
    shown = listed(found)
    assert [shown[number] for number in numbers] == listed(given)
