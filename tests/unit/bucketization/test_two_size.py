from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from kanon_db.algorithms.bucketization.buckets import MAX_RECORDS
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.two_size import (
    two_size,
)
from kanon_db.errors import IneligibleError, InfeasibleError, InvalidParameterError


def privacy(*thresholds: str) -> FPrimePrivacy:
    return FPrimePrivacy(tuple(Fraction(threshold) for threshold in thresholds))


def test_unknown_pruning() -> None:
    with pytest.raises(InvalidParameterError, match="pruning"):
        two_size([1, 1], privacy("1/2", "1/2"), 2, pruning="some")  # type: ignore[arg-type]


def test_ineligible() -> None:
    with pytest.raises(IneligibleError) as caught:
        two_size([3, 1], privacy("1/2", "1/2"), 4)
    assert caught.value.detail.startswith("1 of 2 ")


def test_max_bucket_size_below_the_smallest_bucket() -> None:
    with pytest.raises(InfeasibleError) as caught:
        two_size([1] * 10, privacy(*["1/10"] * 10), 9)
    assert caught.value.hint == "raise max_bucket_size to at least 10"


def test_smallest_bucket_beyond_the_limit() -> None:
    n_values = 6000
    with pytest.raises(InfeasibleError, match="smaller than the smallest") as caught:
        two_size([1] * n_values, privacy(*["1/6000"] * n_values), 5000)
    assert caught.value.hint.startswith("raise the thresholds")


def test_infeasible_with_a_sufficient_size() -> None:
    thresholds = privacy("52/225", "139/450", "67/225", "109/450")
    with pytest.raises(InfeasibleError) as caught:
        two_size([19, 26, 25, 20], thresholds, 20)
    assert caught.value.hint == "raise max_bucket_size to 27"
    assert caught.value.detail == "bucket sizes 4 to 20, n_records = 90"
    two_size([19, 26, 25, 20], thresholds, 27)


def test_infeasible_without_a_sufficient_size_nearby() -> None:
    # Only a single bucket of all 1,009 records (a prime number) keeps both frequencies.
    thresholds = privacy("504/1009", "505/1009")
    with pytest.raises(InfeasibleError) as caught:
        two_size([504, 505], thresholds, 50)
    assert caught.value.hint.endswith("no max_bucket_size up to 200 suffices")
    assert two_size([504, 505], thresholds, 1009).pairs == ((1009, 1),)
    with pytest.raises(InfeasibleError) as caught:
        two_size([504, 505], thresholds, 1000)
    assert caught.value.hint == "raise the thresholds of the privacy specification"


def test_too_many_thresholds_for_memory() -> None:
    n_values = 20_000
    thresholds = FPrimePrivacy(tuple(Fraction(1, 1 + i) for i in range(n_values)))
    counts = np.zeros(n_values, dtype=np.int64)
    counts[0] = 10_000
    with pytest.raises(InvalidParameterError, match="too much memory") as caught:
        two_size(counts, thresholds, 5000)
    assert caught.value.hint == "lower max_bucket_size to at most 3355"


@pytest.mark.parametrize("missing", [0, 1, 37])
def test_the_largest_table_does_not_overflow(missing: int) -> None:
    n_values, smallest = 5000, 4950
    count = MAX_RECORDS // n_values // 99 * 99 - missing
    n_records = count * n_values
    thresholds = FPrimePrivacy((Fraction(1, smallest),) * n_values)
    setting = two_size([count] * n_values, thresholds, 5000)
    if missing == 0:
        assert setting.pairs == ((smallest, n_records // smallest),)
    # Theorem 1 for limits of 1, on Python's integers.
    assert sum(size * n_buckets for size, n_buckets in setting.pairs) == n_records
    assert sum(n_buckets for _, n_buckets in setting.pairs) >= count
    for size, n_buckets in setting.pairs:
        assert n_values * min(n_buckets, count) >= size * n_buckets
    # A few larger buckets make up for what the smallest size leaves over.
    least_loss = n_records * (smallest - 1) ** 2 // smallest
    assert least_loss <= setting.loss < least_loss + 5000**3
