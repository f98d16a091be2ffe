"""Settings of any number of sizes, of small random tables, against exhaustive search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import compress, product
from math import floor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.bucketization.bucket_assignment import (
    is_valid,
    partition_records,
    round_robin,
)
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.multi_size import multi_size, optimal
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.two_size import two_size
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.errors import IneligibleError, InfeasibleError
from tests.profiles import examples
from tests.property import strategies

Table = tuple[list[int], tuple[Fraction, ...]]


# --- Reference: Gale's criterion for every set of values, on rationals ----------------------------


def holds_every_set(table: Table, sizes: Sequence[int], n_buckets: Sequence[int]) -> bool:
    """Tell whether no set of values has more records than the buckets may hold of it."""
    counts, thresholds = table
    for members in product((False, True), repeat=len(counts)):
        room = sum(
            b * min(size, sum(floor(f * size) for f in compress(thresholds, members)))
            for size, b in zip(sizes, n_buckets, strict=True)
        )
        if room < sum(compress(counts, members)):
            return False
    return True


def all_settings(n_records: int, sizes: list[int]) -> Iterator[list[int]]:
    """Every number of buckets of each size that together hold the records."""
    *smaller, size = sizes
    if not smaller:
        if n_records % size == 0:
            yield [n_records // size]
        return
    for b in range(n_records // size + 1):
        for others in all_settings(n_records - b * size, smaller):
            yield [*others, b]


def least_loss(table: Table, max_size: int) -> int | None:
    sizes = list(range(1, max_size + 1))
    candidates = sorted(
        (sum(b * (size - 1) ** 2 for size, b in zip(sizes, n_buckets, strict=True)), n_buckets)
        for n_buckets in all_settings(sum(table[0]), sizes)
    )
    return next((loss for loss, b in candidates if holds_every_set(table, sizes, b)), None)


# --- Assignment -----------------------------------------------------------------------------------


@st.composite
def wide_settings(draw: st.DrawFn, n_records: int, max_size: int) -> BucketSetting:
    """Settings of several sizes whose buckets hold exactly the records."""
    n_buckets = dict.fromkeys(range(1, max_size + 1), 0)
    rest = n_records
    while rest:
        size = draw(st.integers(1, min(max_size, rest)))
        count = draw(st.integers(1, rest // size))
        n_buckets[size] += count
        rest -= size * count
    return BucketSetting.of(list(n_buckets), list(n_buckets.values()))


@given(st.data())
@settings(max_examples=examples(400), deadline=None)
def test_a_setting_is_valid_if_no_set_of_values_is_crowded(data: st.DataObject) -> None:
    table = data.draw(strategies.tables(5, 12, eligible=True))
    setting = data.draw(wide_settings(sum(table[0]), 14))
    limits = FPrimePrivacy(table[1]).occurrence_limits(setting.sizes)
    expected = holds_every_set(table, setting.sizes.tolist(), setting.counts.tolist())
    assert is_valid(table[0], limits, setting) == expected
    if not expected:
        with pytest.raises(InfeasibleError):
            partition_records(table[0], limits, setting)
        return
    partition = partition_records(table[0], limits, setting)
    assert partition.min() >= 0
    assert partition.sum(axis=1).tolist() == table[0]
    assert (partition.sum(axis=0) == setting.sizes * setting.counts).all()
    assert (partition <= limits * setting.counts).all()
    allotment = round_robin(partition, setting)
    values = np.repeat(np.arange(len(table[0])), table[0])
    ranks = np.concatenate([np.arange(count) for count in table[0]])
    buckets = allotment.bucket_of(values, ranks)
    sizes = np.repeat(setting.sizes, setting.counts)
    assert np.bincount(buckets, minlength=sizes.size).tolist() == sizes.tolist()
    occurrences = np.zeros((len(table[0]), sizes.size), dtype=np.int64)
    np.add.at(occurrences, (values, buckets), 1)
    assert (occurrences <= np.repeat(limits, setting.counts, axis=1)).all()


# --- Settings -------------------------------------------------------------------------------------


@example(([19, 26, 25, 20], tuple(map(Fraction, ("52/225", "139/450", "67/225", "109/450")))), 7)
@given(strategies.tables(4, 6), st.integers(1, 7))
@settings(max_examples=examples(150), deadline=None)
def test_the_optimum_is_that_of_exhaustive_search(table: Table, max_size: int) -> None:
    if sum(table[0]) > 30:
        max_size = min(max_size, 4)
    try:
        found = optimal(table[0], FPrimePrivacy(table[1]), max_size)
    except (InfeasibleError, IneligibleError):
        assert least_loss(table, max_size) is None
        return
    assert found.proof.status == "optimal"
    assert found.proof.objective == found.proof.lower_bound == least_loss(table, max_size)
    sizes, n_buckets = found.setting.sizes.tolist(), found.setting.counts.tolist()
    assert holds_every_set(table, sizes, n_buckets)


def random_table(seed: int) -> tuple[list[int], FPrimePrivacy, int]:
    """A table of up to 24 values with eligible thresholds of one of three kinds."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 10 ** int(rng.integers(1, 4)), size=int(rng.integers(2, 25)))
    n_records = int(counts.sum())
    kind = seed % 3
    if kind == 0:
        extra = [Fraction(int(rng.integers(1, 400)), 1000)] * counts.size
    elif kind == 1:
        theta = int(rng.integers(1, 16))
        extra = [theta * Fraction(int(o), n_records) + Fraction(1, 50) for o in counts]
    else:
        extra = [Fraction(int(x), 1000) for x in rng.integers(30, 900, size=counts.size)]
    thresholds = tuple(
        min(Fraction(1), Fraction(int(o), n_records) + more)
        for o, more in zip(counts, extra, strict=True)
    )
    return counts.tolist(), FPrimePrivacy(thresholds), int(rng.integers(10, 40))


def test_optimal_is_never_above_multi_size_nor_that_above_two_size() -> None:
    n_compared = n_better = 0
    seed = 0
    while n_compared < 20:
        counts, privacy, max_size = random_table(seed)
        seed += 1
        try:
            two = two_size(counts, privacy, max_size)
        except InfeasibleError:
            continue
        multi = multi_size(counts, privacy, max_size)
        best = optimal(counts, privacy, max_size, pulse=Pulse(0.5))
        assert best.proof.lower_bound <= best.proof.objective <= multi.loss <= two.loss
        for setting in (multi, best.setting):
            limits = privacy.occurrence_limits(setting.sizes)
            assert is_valid(counts, limits, setting)
            assert setting.largest_size <= max_size
        n_compared += 1
        n_better += best.proof.objective < multi.loss < two.loss
    assert n_better > 3
