"""Places of records in bitmaps."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.algorithms.bucketization.buckets import (
    MAX_RECORDS,
    BucketContents,
    BucketSetting,
    bit_positions,
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
        ([1.5], "whole numbers"), ([-1], "whole numbers"), ([True], "whole numbers"),
        ([[1]], "one number of records for each"), ([1, 2, 3], "one number of records for each"),
        ([MAX_RECORDS, 1], "too many records"),
    ],
)  # fmt: skip
def test_record_counts_refusals(counts: list[int], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        record_counts(counts, n_values=2 if len(counts) != 1 else None)


def test_the_largest_table_is_accepted() -> None:
    assert record_counts([MAX_RECORDS - 1, 1])[1] == MAX_RECORDS


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 5)), min_size=1, max_size=3,
             unique_by=lambda pair: pair[0]),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_the_slots_of_a_bucket_lie_one_run_apart(pairs, random):
    setting = BucketSetting.of(*zip(*pairs, strict=True))
    sizes = [size for size, n in setting.pairs for _ in range(n)]
    numbers = np.repeat(np.arange(1, len(sizes) + 1), sizes)
    shuffled = np.array(random.sample(range(numbers.size), numbers.size))
    numbers = numbers[shuffled]
    order = np.array(random.sample(range(numbers.size), numbers.size))
    positions, at_bits = bit_positions(numbers, order, setting)
    assert sorted(positions.tolist()) == list(range(numbers.size))
    assert positions[at_bits].tolist() == list(range(numbers.size))
    base, number = 0, 1
    for size, n in setting.pairs:
        for bucket in range(n):
            of_bucket = [r for r in order.tolist() if numbers[r] == number]
            # In their order, the records stand at the bucket's place in each run of n bits.
            expected = [base + slot * n + bucket for slot in range(size)]
            assert positions[of_bucket].tolist() == expected
            number += 1
        base += size * n


@given(
    st.dictionaries(st.integers(1, 6), st.integers(1, 5), min_size=1, max_size=3),
    st.integers(1, 7),
    st.randoms(use_true_random=False),
)
def test_as_the_records_have_them(pairs: dict[int, int], n_values: int, random: Random) -> None:
    setting = BucketSetting.of(list(pairs), list(pairs.values()))
    sizes = [size for size, n in setting.pairs for _ in range(n)]
    numbers = np.repeat(np.arange(1, len(sizes) + 1, dtype=np.int32), sizes)
    random.shuffle(numbers)
    codes = np.array([random.randrange(n_values) for _ in numbers], dtype=np.int32)
    found = BucketContents.of(codes, numbers, setting)
    records = sorted(zip(numbers.tolist(), codes.tolist(), strict=True))
    assert found.codes.tolist() == [code for _, code in records]
    assert found.sizes.tolist() == sizes
    counted = Counter((code, number) for number, code in records)
    assert list(zip(*(column.tolist() for column in found.pairs()), strict=True)) == [
        (*pair, n) for pair, n in sorted(counted.items())
    ]
    # At the bits, as if the records took their slots in the order of their values.
    at_bits = np.empty_like(codes)
    positions, _ = bit_positions(numbers, np.argsort(codes, kind="stable"), setting)
    at_bits[positions] = codes
    assert found.in_slots.tolist() == at_bits.tolist()
