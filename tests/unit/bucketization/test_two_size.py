from __future__ import annotations

from fractions import Fraction
from math import gcd

import numpy as np
import pytest

from kanon_db.algorithms.bucketization.buckets import MAX_RECORDS
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.two_size import (
    binding_values,
    fill_capacity,
    gcd_and_inverse,
    two_size,
)
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.errors import IneligibleError, InfeasibleError, InvalidParameterError


def privacy(*thresholds: str) -> FPrimePrivacy:
    return FPrimePrivacy(tuple(Fraction(threshold) for threshold in thresholds))


def test_an_empty_table() -> None:
    assert two_size([], privacy(), 10).pairs == ()


def test_nothing_is_sensitive() -> None:
    assert two_size([3, 4], privacy("1", "1"), 10).pairs == ((1, 7),)


def test_one_size_when_the_smallest_is_the_largest() -> None:
    assert two_size([2, 2], privacy("1/2", "1/2"), 2).pairs == ((2, 2),)


def test_one_size_of_a_table_that_no_pair_divides() -> None:
    # One bucket of all 7 records, and the partner size of any pair lies beyond the table.
    thirds = privacy("3/7", "2/7", "2/7")
    assert two_size([3, 2, 2], thirds, 7).pairs == ((7, 1),)


def test_sizes_beyond_the_table_are_not_used() -> None:
    assert two_size([1, 1], privacy("1/2", "1/2"), 5000).pairs == ((2, 1),)


def test_values_without_records_do_not_matter() -> None:
    with_zero = two_size([0, 2, 3], privacy("1/100", "7/10", "1"), 2)
    assert with_zero.pairs == two_size([2, 3], privacy("7/10", "1"), 2).pairs


def test_input_is_not_changed() -> None:
    counts = np.array([2, 3])
    two_size(counts, privacy("7/10", "1"), 2)
    assert counts.tolist() == [2, 3]


def test_the_heartbeat_ends_the_search() -> None:
    class CanceledError(BaseException):
        pass

    beats = 0

    def heartbeat() -> None:
        nonlocal beats
        beats += 1
        if beats == 3:
            raise CanceledError

    with pytest.raises(CanceledError):
        two_size([20, 30, 50], privacy("1/4", "1/3", "3/5"), 50, pulse=Pulse(heartbeat=heartbeat))


@pytest.mark.parametrize("max_bucket_size", [0, -1, 5001])
def test_range_of_max_bucket_size(max_bucket_size: int) -> None:
    with pytest.raises(InvalidParameterError, match=r"must lie in \[1, 5000\]"):
        two_size([1, 1], privacy("1/2", "1/2"), max_bucket_size)


def test_unknown_pruning() -> None:
    with pytest.raises(InvalidParameterError, match="pruning"):
        two_size([1, 1], privacy("1/2", "1/2"), 2, pruning="some")  # type: ignore[arg-type]


def test_counts_and_thresholds_must_match() -> None:
    with pytest.raises(InvalidParameterError, match="for each sensitive value"):
        two_size([1, 1, 1], privacy("1/2", "1/2"), 2)


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


def test_fill_capacity_is_the_largest_number_of_buckets() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        counts = rng.integers(0, 30, size=4)
        limits = rng.integers(0, 5, size=(9, 4)).astype(np.int16)
        n_values = rng.integers(1, 3, size=4)
        found = np.zeros(9, dtype=np.int64)
        fill_capacity(counts, n_values, limits, 1, 9, found)
        for size in range(1, 9):
            fits = [
                b
                for b in range(int(counts @ n_values) // size + 2)
                if (np.minimum(limits[size] * b, counts) * n_values).sum() >= size * b
            ]
            assert found[size] == max(fits)
            assert fits == list(range(len(fits)))


def test_binding_values_imply_the_others() -> None:
    counts = np.array([5, 9, 9, 3, 7, 2])
    limits = np.array([[1, 1], [1, 2], [1, 2], [0, 1], [1, 1], [2, 2]], dtype=np.int16)
    binding = binding_values(counts, limits.T)
    assert sorted(zip(counts[binding], limits[binding].tolist(), strict=True)) == [
        (3, [0, 1]),
        (7, [1, 1]),
        (9, [1, 2]),
    ]


def test_gcd_and_inverse() -> None:
    for a in range(1, 60):
        for b in range(1, 60):
            divisor, inverse = gcd_and_inverse(a, b)
            assert divisor == gcd(a, b)
            assert (a * inverse - divisor) % b == 0
