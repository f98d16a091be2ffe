"""What all methods that find bucket settings have in common: small tables and refusals."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kanon_db.algorithms.bucketization import BucketSetting, FPrimePrivacy, multi_size, two_size
from kanon_db.algorithms.bucketization import optimal as optimal_setting
from kanon_db.errors import IneligibleError, InfeasibleError, InvalidParameterError

METHODS: dict[str, Callable[..., BucketSetting]] = {
    "two_size": two_size,
    "multi_size": multi_size,
    "optimal": lambda *given: optimal_setting(*given).setting,
    "paper": lambda *given: optimal_setting(*given, formulation="paper").setting,
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
HALF = FPrimePrivacy((Fraction(1, 2), Fraction(1, 2)))


@every_method
def test_small_tables(method: Callable[..., BucketSetting]) -> None:
    assert method([], FPrimePrivacy(()), 10).pairs == ()
    assert method([3, 4], FPrimePrivacy((Fraction(1), Fraction(1))), 10).pairs == ((1, 7),)
    assert method([2, 2], HALF, 2).pairs == ((2, 2),)
    assert method([1, 1], HALF, 100).pairs == ((2, 1),)  # sizes beyond the table are not used


@every_method
def test_input_is_not_changed(method: Callable[..., BucketSetting]) -> None:
    counts = np.array([2, 3])
    method(counts, FPrimePrivacy((Fraction(7, 10), Fraction(1))), 2)
    assert counts.tolist() == [2, 3]


@every_method
@pytest.mark.parametrize(
    ("counts", "largest", "error", "message"),
    [
        ([3, 1], 4, IneligibleError, "no publication can satisfy"),
        ([1, 1], 0, InvalidParameterError, r"must lie in \[1, 5000\]"),
        ([1, 1], 5001, InvalidParameterError, "max_bucket_size"),
        ([1, 1, 1], 2, InvalidParameterError, "for each sensitive value"),
        ([1, 1], 1, InfeasibleError, "smaller than the smallest possible bucket"),
    ],
)
def test_refusals(
    method: Callable[..., BucketSetting], counts: list[int], largest: int, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        method(counts, HALF, largest)
