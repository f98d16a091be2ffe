from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.bucketization.loss import bucket_size_loss, mean_squared_bucket_size


def test_loss_adds_up_every_single_bucket() -> None:
    buckets = [1, 2, 2, 5]
    assert bucket_size_loss([1, 2, 5], [1, 2, 1]) == sum((size - 1) ** 2 for size in buckets)
    assert bucket_size_loss(buckets, np.ones(4, dtype=np.int64)) == bucket_size_loss(
        [1, 2, 5], [1, 2, 1]
    )


def test_msbs_of_the_extremes() -> None:
    assert mean_squared_bucket_size([1], [100]) == 0.0
    assert mean_squared_bucket_size([100], [1]) == 99.0


def test_msbs_of_equal_buckets_tends_to_the_corrected_bound() -> None:
    l = 28
    assert mean_squared_bucket_size([l], [10**9]) == pytest.approx((l - 1) ** 2 / l)


@pytest.mark.parametrize(("sizes", "counts"), [([], []), ([1], [1])])
def test_msbs_of_fewer_than_two_records(sizes: list[int], counts: list[int]) -> None:
    assert mean_squared_bucket_size(sizes, counts) == 0.0


def test_loss_does_not_overflow() -> None:
    assert bucket_size_loss([2**40 + 1], np.array([2**10])) == 2**90


def test_sizes_and_counts_must_match() -> None:
    with pytest.raises(ValueError, match="shorter"):
        bucket_size_loss([1, 2], [1])
