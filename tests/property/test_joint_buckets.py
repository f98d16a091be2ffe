"""Buckets for several sensitive attributes: small random tables against exhaustive search."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.bucketization import joint_assignment
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.cell_assignment import CellRoom, assign_jointly_in_cells
from kanon_db.algorithms.bucketization.joint_assignment import (
    JointPlan,
    SensitiveCombinations,
    arrange,
    deal_randomly,
    equal_buckets,
    round_shares,
)
from kanon_db.algorithms.bucketization.multi_size import (
    jointly_anatomy,
    jointly_multi_size,
    jointly_optimal,
    jointly_two_size,
)
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.errors import IneligibleError, InfeasibleError
from kanon_db.randomness import SecureRandom
from tests.profiles import examples

multi_size = importlib.import_module("kanon_db.algorithms.bucketization.multi_size")

SEEDS = st.integers(0, 2**32)


def combined(random: np.random.Generator, n_attributes: int, most: int) -> SensitiveCombinations:
    """Make a table of few values, in no order, with thresholds that it is eligible for."""
    n = int(random.integers(1, most + 1))
    shares = [random.dirichlet([1.5] * random.integers(2, 5)) for _ in range(n_attributes)]
    columns = [random.choice(share.size, n, p=share) for share in shares]
    if random.random() < 0.3:  # one value goes with another
        columns[1] = columns[0] % shares[1].size
    privacies = []
    for share, column in zip(shares, columns, strict=True):
        thresholds = []
        for count in np.bincount(column, minlength=share.size).tolist():
            above = Fraction(int(random.integers(0, 13)), 12) ** 2  # often small, and often 1
            thresholds.append(max(Fraction(count, n) * (1 - above) + above, Fraction(1, 9)))
        privacies.append(FPrimePrivacy(tuple(thresholds)))
    found = Counter(zip(*(column.tolist() for column in columns), strict=True))
    return SensitiveCombinations(
        np.array(list(found.values())), np.array(list(found)), tuple(privacies)
    )


def setting_of(random: np.random.Generator, n: int, most_sizes: int) -> BucketSetting:
    """Draw a setting of n records: often one that holds for small thresholds."""
    some = [sizes for sizes in partitions(n, n) if len(set(sizes)) <= most_sizes]
    return setting_of_sizes(some[int(len(some) * random.random() ** 2)])


def partitions(n: int, largest: int) -> Iterator[tuple[int, ...]]:
    """Yield the sizes of buckets, in descending order, that n records fill."""
    if n == 0:
        yield ()
    for size in range(min(n, largest), 0, -1):
        yield from ((size, *others) for others in partitions(n - size, size))


def setting_of_sizes(sizes: tuple[int, ...]) -> BucketSetting:
    counts = Counter(sizes)
    return BucketSetting.of(list(counts), list(counts.values()))


def sizes_of(setting: BucketSetting) -> tuple[int, ...]:
    """Return the size of each bucket."""
    return tuple(np.repeat(setting.sizes, setting.counts).tolist())


# --- Reference: all contents of all buckets ------------------------------------------------------


def can_be_arranged(data: SensitiveCombinations, sizes: tuple[int, ...]) -> bool:
    """Tell whether buckets of these sizes, filled one after the other in any way, take all."""

    @cache
    def contents(size: int) -> list[Counter[int]]:
        """What a bucket may hold, from the thresholds alone."""
        return [
            Counter(members)
            for members in combinations_with_replacement(range(data.counts.size), size)
            if all(
                count <= privacy.thresholds[value] * size
                for values, privacy in zip(data.values.T.tolist(), data.privacies, strict=True)
                for value, count in Counter(values[i] for i in members).items()
            )
        ]

    @cache
    def fill(n_filled: int, left: tuple[int, ...]) -> bool:
        return n_filled == len(sizes) or any(
            fill(n_filled + 1, tuple(n - held[i] for i, n in enumerate(left)))
            for held in contents(sizes[n_filled])
            if all(n <= left[i] for i, n in held.items())
        )

    return fill(0, tuple(data.counts.tolist()))


def losses(data: SensitiveCombinations, largest: int, most_sizes: int) -> list[int]:
    """Return the losses of the settings that can be arranged, in ascending order."""
    return sorted(
        sum((size - 1) ** 2 for size in sizes)
        for sizes in partitions(data.n_records, largest)
        if len(set(sizes)) <= most_sizes and can_be_arranged(data, sizes)
    )


def check_plan(data: SensitiveCombinations, setting: BucketSetting, buckets: CodeArray) -> None:
    """Each bucket has its size, and no value of any attribute more often than it may."""
    sizes = sizes_of(setting)
    assert buckets.dtype == np.int32
    assert tuple(np.bincount(buckets, minlength=len(sizes)).tolist()) == sizes
    of_record = np.repeat(data.values, data.counts, axis=0)
    for values, privacy in zip(of_record.T.tolist(), data.privacies, strict=True):
        for (bucket, value), n in Counter(zip(buckets.tolist(), values, strict=True)).items():
            assert n <= privacy.thresholds[value] * sizes[bucket]


# --- Equal buckets -------------------------------------------------------------------------------

ENTRIES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20, unique=True)


def is_even(found: int, whole: Fraction) -> bool:
    return whole - 1 < found < whole + 1


@given(ENTRIES, st.data())
@settings(max_examples=examples(600))
def test_shares_and_all_their_sums_are_rounded(
    entries: list[tuple[int, int]], draw: st.DataObject
) -> None:
    most = draw.draw(st.sampled_from([3, 50, 2**31 // 20]))
    amounts = [draw.draw(st.integers(1, most)) for _ in entries]
    whole = draw.draw(st.integers(1, max(1, sum(amounts))))
    part = draw.draw(st.integers(0, whole))
    values = np.array(entries, dtype=np.int32).reshape(-1, 2)
    shares = round_shares(np.array(amounts, dtype=np.int64), values, part, whole).tolist()
    groups = [[i] for i in range(len(entries))] + [list(range(len(entries)))]
    for a in range(2):
        groups += [[i for i, e in enumerate(entries) if e[a] == value] for value in range(7)]
    for group in groups:
        exact = Fraction(sum(amounts[i] for i in group) * part, whole)
        assert is_even(sum(shares[i] for i in group), exact)


@example([(0, 0)], 2**20, 4096, 0)  # most of the buckets remain empty
@given(ENTRIES, st.integers(1, 90), st.sampled_from([1, 2, 7, 4096]), SEEDS)
@settings(max_examples=examples(600))
def test_equal_buckets_have_even_shares_of_everything(
    entries: list[tuple[int, int]], n_buckets: int, at_once: int, seed: int
) -> None:
    counts = np.random.default_rng(seed).integers(1, 9, len(entries))
    values = np.array(entries, dtype=np.int64).reshape(-1, 2)
    with mock.patch.object(joint_assignment, "_BUCKETS_AT_ONCE", at_once):
        buckets = equal_buckets(counts, values, n_buckets, UNLIMITED)
    records = np.repeat(values, counts, axis=0)
    keys = [records[:, 0], records[:, 1], records @ [10, 1], np.zeros(buckets.size, dtype=int)]
    for key in keys:
        for one in set(key.tolist()):
            held = np.bincount(buckets[key == one], minlength=n_buckets)
            share = Fraction(int(held.sum()), n_buckets)
            assert all(is_even(int(n), share) for n in (held.min(), held.max()))
            assert held.size == n_buckets


# --- Buckets of several sizes --------------------------------------------------------------------


@given(SEEDS)
@settings(max_examples=examples(1000))
def test_two_attributes_are_arranged_wherever_they_can_be(seed: int) -> None:
    """In buckets of at most two sizes; in those of more, what is found is right."""
    random = np.random.default_rng(seed)
    data = combined(random, 2, 7)
    setting = setting_of(random, data.n_records, int(random.choice([2, 2, 2, 9])))
    found = arrange(data, setting, UNLIMITED)
    if found is not None:
        check_plan(data, setting, found)
    elif setting.sizes.size <= 2:
        assert not can_be_arranged(data, sizes_of(setting))


@pytest.mark.parametrize("n_attributes", [2, 3, 4])
def test_most_of_what_can_be_arranged_is(n_attributes: int) -> None:
    """Of any number of attributes and sizes; and the cases here are not all impossible."""
    n_found = n_possible = 0
    n_cases = examples(600)
    for seed in range(n_cases):
        random = np.random.default_rng(seed)
        data = combined(random, n_attributes, 8)
        setting = setting_of(random, data.n_records, 9)
        found = arrange(data, setting, UNLIMITED)
        if found is not None:
            check_plan(data, setting, found)
            again = arrange(data, setting, UNLIMITED)
            assert again is not None
            assert again.tolist() == found.tolist()  # it decides nothing by chance
        n_found += found is not None
        n_possible += found is not None or can_be_arranged(data, sizes_of(setting))
    assert n_possible > n_cases / 5
    assert n_found >= 0.9 * n_possible


@given(SEEDS)
@settings(max_examples=examples(400))
def test_the_order_of_combinations_does_not_change_the_setting(seed: int) -> None:
    random = np.random.default_rng(seed)
    data = combined(random, 2, 40)
    order = random.permutation(data.counts.size)
    other = SensitiveCombinations(data.counts[order], data.values[order], data.privacies)
    plans = [plan_or_none(one, 40) for one in (data, other)]
    assert [plan and plan.setting.pairs for plan in plans] == [
        plans[0] and plans[0].setting.pairs
    ] * 2


# --- Settings ------------------------------------------------------------------------------------


def plan_or_none(data: SensitiveCombinations, largest: int) -> JointPlan | None:
    try:
        plan = jointly_two_size(data, largest)
    except InfeasibleError:
        return None
    check_plan(data, plan.setting, plan.buckets)
    assert plan.setting.sizes.size <= 2
    assert plan.setting.largest_size <= largest
    return plan


@given(SEEDS, st.integers(1, 8))
@settings(max_examples=examples(400))
def test_two_sizes_lose_least_of_those_that_can_be_arranged(seed: int, largest: int) -> None:
    """Of two attributes; of three, no less than that."""
    random = np.random.default_rng(seed)
    data = combined(random, int(random.choice([2, 2, 3])), 8)
    plan, possible = plan_or_none(data, largest), losses(data, largest, 2)
    if len(data.privacies) == 2:
        assert (plan and plan.setting.loss) == (possible[0] if possible else None)
    elif plan is not None:
        assert plan.setting.loss in possible


@given(SEEDS, st.integers(1, 4))
@settings(max_examples=examples(300))
def test_diverse_buckets_of_two_attributes_exist_for_all_that_are_eligible(
    seed: int, l: int
) -> None:
    random = np.random.default_rng(seed)
    data = combined(random, int(random.choice([2, 2, 3])), 30)
    is_eligible = max(int(counts.max()) for counts in data.counts_of_values) * l <= data.n_records
    try:
        plan = jointly_anatomy(data, l)
    except IneligibleError:
        assert not is_eligible
    except InfeasibleError:
        assert len(data.privacies) > 2
    else:
        assert is_eligible
        assert plan.setting.n_records == plan.buckets.size == data.n_records
        for values in np.repeat(data.values, data.counts, axis=0).T.tolist():
            pairs = Counter(zip(plan.buckets.tolist(), values, strict=True))
            assert set(pairs.values()) == {1}


@given(SEEDS, st.integers(2, 60))
@settings(max_examples=examples(300))
def test_more_sizes_lose_no_more_than_two(seed: int, largest: int) -> None:
    random = np.random.default_rng(seed)
    data = combined(random, int(random.choice([2, 3])), 60)
    plan = plan_or_none(data, largest)
    assume(plan is not None)
    assert plan is not None
    several = jointly_multi_size(data, largest)
    check_plan(data, several.setting, several.buckets)
    assert several.setting.loss <= plan.setting.loss
    assert several.setting.largest_size <= largest


@given(SEEDS, st.integers(1, 8))
@settings(max_examples=examples(120))
def test_the_bound_of_optimal_holds(seed: int, largest: int) -> None:
    random = np.random.default_rng(seed)
    data = combined(random, int(random.choice([2, 3])), 8)
    possible = losses(data, largest, 8)
    try:
        plan = jointly_optimal(data, largest)
    except InfeasibleError:
        assert len(data.privacies) > 2 or not losses(data, largest, 2)
        return
    check_plan(data, plan.setting, plan.buckets)
    assert plan.proof is not None
    assert plan.proof.lower_bound <= possible[0] <= plan.proof.objective == plan.setting.loss
    assert plan.setting.largest_size <= largest


def test_an_empty_table_has_no_buckets() -> None:
    privacy = FPrimePrivacy((Fraction(1, 2),))
    empty = SensitiveCombinations(
        np.empty(0, dtype=np.int64), np.empty((0, 2), dtype=np.int64), (privacy, privacy)
    )
    for plan in (
        jointly_two_size(empty, 5), jointly_multi_size(empty, 5), jointly_optimal(empty, 5),
        jointly_anatomy(empty, 2),
    ):  # fmt: skip
        assert plan.setting.pairs == ()
        assert deal_randomly(np.empty(0, dtype=np.int32), plan, SecureRandom()).size == 0


# --- Cells ---------------------------------------------------------------------------------------


def stacked(data: SensitiveCombinations) -> tuple[IntArray, FPrimePrivacy]:
    """Return the counts and thresholds of the values of all attributes, one after the other."""
    thresholds = [threshold for one in data.privacies for threshold in one.thresholds]
    return np.concatenate(data.counts_of_values), FPrimePrivacy(tuple(thresholds))


def sure_value(n: int) -> SensitiveCombinations:
    """Nearly all records have a value whose threshold is 1."""
    some = FPrimePrivacy((Fraction(1), Fraction(1, 2)))
    return SensitiveCombinations(np.array([n, 1]), np.array([[0, 0], [1, 1]]), (some, some))


@given(SEEDS, st.sampled_from([3, 8, 20, 120]), st.sampled_from([0, 24]))
@settings(max_examples=examples(800))
def test_where_a_cell_has_room_for_two_attributes_buckets_are_found(
    seed: int, largest: int, n_settings: int
) -> None:
    """By buckets of nearly equal sizes, whatever other settings are tried before."""
    random = np.random.default_rng(seed)
    data = combined(random, 2, 120) if random.random() < 0.9 else sure_value(seed % 12 + 1)
    counts, privacy = stacked(data)
    assume(CellRoom(privacy, largest, 2).holds(counts))
    with mock.patch.object(multi_size, "_MOST_SETTINGS", n_settings):
        assert plan_or_none(data, largest) is not None


@given(SEEDS, st.sampled_from([10, 50, 120]))
@settings(max_examples=examples(300))
def test_a_swap_of_combinations_changes_the_slack_of_a_cut_by_one_at_most(
    seed: int, largest: int
) -> None:
    random = np.random.default_rng(seed)
    data = combined(random, int(random.choice([2, 3])), 120)
    cell, privacy = stacked(data)
    room = CellRoom(privacy, largest, len(data.privacies))
    records = random.permutation(np.repeat(data.values, data.counts, axis=0))
    swapped = records.copy()
    one, other = random.integers(0, len(records), 2)
    swapped[[one, other]] = records[[other, one]]
    n = int(random.integers(1, len(records) + 1))
    slacks = []
    for side in (records[:n], swapped[:n]):
        values = np.unique(side, axis=0, return_counts=True)
        part = SensitiveCombinations(values[1], values[0], data.privacies)
        slacks.append(room.slack(stacked(part)[0], cell))
    assert abs(slacks[0] - slacks[1]) <= 1


@given(SEEDS)
@settings(max_examples=examples(100))
def test_buckets_of_several_attributes_keep_the_thresholds_of_their_cell(seed: int) -> None:
    """Stricter ones where cuts were declined; of two attributes, no cell is refused."""
    random = np.random.default_rng(seed)
    data = combined(random, 2, 120)
    n = data.n_records
    codes = np.repeat(np.arange(data.counts.size, dtype=np.int32), data.counts)
    if random.random() < 0.5:  # people with the same values are alike
        random.shuffle(codes)
    qi_codes = np.column_stack([np.arange(n) // 2, random.integers(0, 5, n)]).astype(np.int32)
    order = random.permutation(n)
    qi_codes, codes = qi_codes[order], codes[order]

    def search(cell: SensitiveCombinations) -> JointPlan:
        return jointly_two_size(cell, 120)

    found = assign_jointly_in_cells(
        qi_codes, codes, data.values,
        lambda factor: tuple(privacy.tightened(factor) for privacy in data.privacies),
        120, search, SecureRandom(), least=1,
    )  # fmt: skip
    sizes = np.bincount(found.bucket_of_record)
    assert sizes.tolist() == list(sizes_of(found.setting))
    for bucket, size in enumerate(sizes.tolist()):
        inside = found.bucket_of_record == bucket
        (cell,) = set(found.cell_of_record[inside].tolist())
        stricter = [privacy.tightened(found.tightening[cell]) for privacy in data.privacies]
        for values, privacy in zip(data.values[codes[inside]].T.tolist(), stricter, strict=True):
            for value, count in Counter(values).items():
                assert count <= privacy.thresholds[value] * size


@pytest.mark.long
def test_buckets_that_cannot_be_mended_are_given_up_and_can_be_canceled() -> None:
    """The third value follows from two, and no two records differ in all three."""
    data = SensitiveCombinations(
        np.full(4, 100),
        np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]),
        (FPrimePrivacy((Fraction(1, 2),) * 2),) * 3,
    )
    beats: list[int] = []
    pulse = Pulse(heartbeat=lambda: beats.append(1))
    assert arrange(data, BucketSetting.of([2], [200]), pulse) is None
    assert len(beats) > 10
    plan = jointly_two_size(data, 10)
    check_plan(data, plan.setting, plan.buckets)
