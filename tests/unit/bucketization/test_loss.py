from __future__ import annotations

import pytest

from kanon_db.algorithms.bucketization.buckets import BucketSetting


def test_loss_adds_up_every_single_bucket() -> None:
    setting = BucketSetting.of([1, 2, 5], [1, 2, 1])
    assert setting.loss == sum((size - 1) ** 2 for size in [1, 2, 2, 5])


def test_msbs_of_the_extremes() -> None:
    assert BucketSetting.of([1], [100]).msbs == 0.0
    assert BucketSetting.of([100], [1]).msbs == 99.0
    assert BucketSetting.of([4], [10]).msbs == pytest.approx(90 / 39)


def test_msbs_of_equal_buckets_tends_to_the_corrected_bound() -> None:
    l = 28
    assert BucketSetting.of([l], [10**9]).msbs == pytest.approx((l - 1) ** 2 / l)


@pytest.mark.parametrize(("sizes", "counts"), [([], []), ([1], [1])])
def test_msbs_of_fewer_than_two_records(sizes: list[int], counts: list[int]) -> None:
    assert BucketSetting.of(sizes, counts).msbs == 0.0


def test_loss_does_not_overflow() -> None:
    assert BucketSetting.of([2**40 + 1], [2**10]).loss == 2**90
