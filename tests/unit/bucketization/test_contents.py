"""What is counted of buckets' values is what their records have."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.algorithms.bucketization.buckets import BucketContents, BucketSetting, bit_positions


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
    at_bits[bit_positions(numbers, np.argsort(codes, kind="stable"), setting)] = codes
    assert found.in_slots.tolist() == at_bits.tolist()
