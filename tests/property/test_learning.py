"""Weights are learned from QIT and SAT alone: not from which record of a bucket has which value."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.algorithms.bucketization.buckets import BucketContents, BucketedRecords, BucketSetting
from kanon_db.algorithms.bucketization.value_model import learn_levels


def shuffled_within(buckets: np.ndarray, values: np.ndarray, seed: int) -> np.ndarray:
    """Give the values of each bucket to its records in another order."""
    found = values.copy()
    random = np.random.default_rng(seed)
    for bucket in np.unique(buckets):
        own = np.flatnonzero(buckets == bucket)
        found[own] = values[random.permutation(own)]
    return found


@given(
    st.dictionaries(st.integers(1, 6), st.integers(1, 5), min_size=1, max_size=3),
    st.integers(1, 7),
    st.randoms(use_true_random=False),
)
def test_contents_of_buckets_have_no_pairs(
    pairs: dict[int, int], n_values: int, random: Random
) -> None:
    """All that publishing passes on of the values is the same, whoever of a bucket has which."""
    setting = BucketSetting.of(list(pairs), list(pairs.values()))
    sizes = [size for size, n in setting.pairs for _ in range(n)]
    numbers = np.repeat(np.arange(1, len(sizes) + 1, dtype=np.int32), sizes)
    random.shuffle(numbers)
    codes = np.array([random.randrange(n_values) for _ in numbers], dtype=np.int32)
    others = shuffled_within(numbers, codes, random.randrange(2**32))
    one, other = (BucketContents.of(values, numbers, setting) for values in (codes, others))
    assert one.codes.tolist() == other.codes.tolist()
    assert one.in_slots.tolist() == other.in_slots.tolist()


def people() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Buckets of four, and values that an age decides on for most."""
    random = np.random.default_rng(7)
    n = 2_000
    ages, sexes = random.integers(0, 40, n), random.integers(0, 2, n)
    values = np.where(random.random(n) < 0.8, ages // 10, random.integers(0, 4, n))
    return ages, sexes, values, np.arange(n) // 4


def learned(values: np.ndarray, thresholds: list[Fraction]) -> tuple[np.ndarray, np.ndarray]:
    ages, sexes, _, buckets = people()
    contents = BucketContents.of(
        values.astype(np.int32), (buckets + 1).astype(np.int32), BucketSetting.of([4], [500])
    )
    records, _ = BucketedRecords.of([ages, sexes], buckets, contents.codes, 4)
    found = learn_levels(records, thresholds, np.random.default_rng(11))
    assert found is not None
    levels, units = found
    shares = [Fraction(int(m), int(p)) for m, p in zip(units.most, units.parts, strict=True)]
    assert all(share <= limit for share, limit in zip(shares, thresholds, strict=True))
    return levels, units.parts


def test_the_same_weights_whoever_has_which_value() -> None:
    """With the same draws; and they are those of a model that has found the relation."""
    ages, _, values, buckets = people()
    others = shuffled_within(buckets, values, 3)
    assert (others != values).mean() > 0.3
    free = [Fraction(1)] * 4
    levels, parts = learned(values, free)
    again, _ = learned(others, free)
    assert np.array_equal(levels, again)
    weights = levels / parts
    own = np.isin(values, [0, 1, 2, 3])
    of_decade = weights[np.arange(values.size), ages // 10]
    shares = np.array(
        [(values[buckets == b] == a // 10).mean() for a, b in zip(ages, buckets, strict=True)]
    )
    assert own.all()
    assert of_decade.mean() > shares.mean() + 0.2
