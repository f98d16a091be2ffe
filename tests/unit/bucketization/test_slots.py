"""Places of records in bitmaps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.algorithms.bucketization.buckets import BucketSetting, bit_positions, pack_bits


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
    positions = bit_positions(numbers, order, setting)
    assert sorted(positions.tolist()) == list(range(numbers.size))
    base, number = 0, 1
    for size, n in setting.pairs:
        for bucket in range(n):
            of_bucket = [r for r in order.tolist() if numbers[r] == number]
            # In their order, the records stand at the bucket's place in each run of n bits.
            expected = [base + slot * n + bucket for slot in range(size)]
            assert positions[of_bucket].tolist() == expected
            number += 1
        base += size * n


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_packed_bits_are_those_of_the_positions(case):
    n_records, positions = case
    packed = pack_bits(np.array(sorted(positions), dtype=np.int64), n_records)
    assert len(packed) == (n_records + 7) // 8
    assert int.from_bytes(packed, "little") == sum(1 << p for p in positions)
