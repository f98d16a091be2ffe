"""Bitmaps beside what they should repeat."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.algorithms.bucketization.buckets import BitmapBalance

N_BUCKETS = 5
BUCKETS = st.lists(st.integers(0, N_BUCKETS - 1), max_size=12)


@given(
    st.lists(st.integers(-1, N_BUCKETS - 1), min_size=8, max_size=24),
    st.lists(st.tuples(st.binary(min_size=3, max_size=3), BUCKETS, st.booleans()), max_size=4),
)
def test_as_counted_one_by_one(
    of_bit: list[int], cases: list[tuple[bytes, list[int], bool]]
) -> None:
    """Of one value after the other, so that none leaves anything behind."""
    of_bit = [*of_bit[: len(of_bit) // 8 * 8]]
    balance = BitmapBalance(np.array(of_bit, dtype=np.int32), N_BUCKETS)
    for content, buckets, are_counted in cases:
        bits = np.frombuffer(content, dtype=np.uint8)[: len(of_bit) // 8]
        number = int.from_bytes(bits.tobytes(), "little")
        found = Counter(bucket for i, bucket in enumerate(of_bit) if number >> i & 1)
        counts = Counter(buckets)
        if are_counted:
            given_counts = np.array(list(counts.values()), dtype=np.int32)
            given_buckets = np.array(list(counts), dtype=np.int32)
            differing = balance.differing(bits, given_buckets, given_counts)
        else:
            differing = balance.differing(bits, np.array(buckets, dtype=np.int32))
        assert differing == sum(found[b] != counts[b] for b in range(N_BUCKETS))
