from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.bucketization.buckets import (
    MAX_RECORDS,
    BucketSetting,
    record_counts,
)
from kanon_db.errors import InvalidParameterError


def test_sizes_without_buckets_are_dropped() -> None:
    assert BucketSetting.of([3, 5, 5], [2, 0, 1]).pairs == ((3, 2), (5, 1))


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [([0], [1]), ([2, 2], [1, 1]), ([2], [-1]), ([1, 2], [1]), ([[1]], [[1]])],
)
def test_refusals(sizes: list[int], counts: list[int]) -> None:
    with pytest.raises(InvalidParameterError, match="a bucket setting needs"):
        BucketSetting(np.array(sizes), np.array(counts))


def test_arrays_are_copied_and_read_only() -> None:
    sizes = np.array([1, 2])
    setting = BucketSetting(sizes, np.array([1, 1]))
    sizes[0] = 2
    assert setting.sizes.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        setting.counts[0] = 7


def test_record_counts_copies_and_adds_up() -> None:
    given = np.array([1, 2], dtype=np.int32)
    counts, n_records = record_counts(given)
    counts[0] = 5
    assert (given.tolist(), counts.dtype, n_records) == ([1, 2], np.int64, 3)
    assert record_counts([])[1] == 0


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([1.5], "whole numbers"),
        ([-1], "whole numbers"),
        ([True], "whole numbers"),
        ([[1]], "one number of records for each"),
        ([1, 2, 3], "one number of records for each"),
        ([MAX_RECORDS, 1], "too many records"),
    ],
)
def test_record_counts_refusals(counts: list[int], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        record_counts(counts, n_values=2 if len(counts) != 1 else None)


def test_the_largest_table_is_accepted() -> None:
    assert record_counts([MAX_RECORDS - 1, 1])[1] == MAX_RECORDS
