"""Settings and assignments of small random tables against exhaustive search."""

from __future__ import annotations

import importlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import compress, product
from math import floor
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.bucketization.bucket_assignment import (
    is_valid,
    partition_records,
    round_robin,
)
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.multi_size import multi_size, optimal
from kanon_db.algorithms.bucketization.privacy import (
    FPrimePrivacy,
    PrivacySpecification,
    check_eligible,
)
from kanon_db.algorithms.bucketization.two_size import (
    SettingProblem,
    ValueTypes,
    anatomy,
    two_size,
)
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED
from kanon_db.errors import IneligibleError, InfeasibleError, InvalidParameterError
from tests.profiles import examples
from tests.property import strategies

module = importlib.import_module("kanon_db.algorithms.bucketization.two_size")

Table = tuple[list[int], tuple[Fraction, ...]]
Pairs = tuple[tuple[int, int], ...]


# --- Reference: Gale's criterion for every set of values, on rationals ---------------------------


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


def feasible_settings(n_records: int, max_size: int) -> list[tuple[int, Pairs]]:
    """All settings of one or two sizes with their losses, by increasing loss."""
    found = set()
    for size1 in range(1, max_size + 1):
        for count1 in range(n_records // size1 + 1):
            rest = n_records - size1 * count1
            for size2 in range(size1 + 1, max_size + 1):
                if rest % size2 == 0:
                    pairs = ((size1, count1), (size2, rest // size2))
                    found.add(tuple(pair for pair in pairs if pair[1]))
            if rest == 0:
                found.add(((size1, count1),))
    return sorted((sum(b * (s - 1) ** 2 for s, b in pairs), pairs) for pairs in found)


def two_size_or_none(table: Table, max_size: int) -> BucketSetting | None:
    try:
        return two_size(table[0], FPrimePrivacy(table[1]), max_size)
    except (InfeasibleError, IneligibleError):
        return None


# --- Settings ------------------------------------------------------------------------------------


@given(strategies.tables(6, 30), st.integers(1, 14))
@settings(max_examples=examples(300), deadline=None)
def test_two_size_is_the_first_valid_setting_of_a_sequential_scan(
    table: Table, max_size: int
) -> None:
    found = two_size_or_none(table, max_size)
    valid = [
        (loss, pairs)
        for loss, pairs in feasible_settings(sum(table[0]), max_size)
        if holds_every_set(table, *zip(*pairs, strict=True))
    ]
    if found is None:
        assert not valid
    else:
        assert (found.loss, found.pairs) in valid
        assert found.loss == valid[0][0]


# Two settings of loss 16, of which the second is found first.
@pytest.mark.long
@example(([3, 6, 1, 7], (Fraction(1, 3), Fraction(1), Fraction(1), Fraction(2, 3))), 8)
@given(strategies.tables(6, 1000, eligible=True), st.integers(1, 40))
@settings(max_examples=examples(150), deadline=None)
def test_pruning_blocks_and_the_order_of_values_do_not_change_the_result(
    table: Table, max_size: int
) -> None:
    found = two_size_or_none(table, max_size)
    assume(found is not None)
    assert found is not None
    counts, privacy = table[0], FPrimePrivacy(table[1])
    assert two_size(counts, privacy, max_size, pruning="loss").pairs == found.pairs
    assert two_size(counts, privacy, max_size, pruning="none").pairs == found.pairs
    reversed_privacy = FPrimePrivacy(table[1][::-1])
    assert two_size(counts[::-1], reversed_privacy, max_size).pairs == found.pairs
    with mock.patch.object(module, "_STEPS_PER_BEAT", 1):
        assert two_size(counts, privacy, max_size).pairs == found.pairs


@given(strategies.tables(5, 2**45, eligible=True), st.integers(1, 5000), st.integers(0, 12))
@settings(max_examples=examples(100), deadline=None)
def test_64_bits_suffice_for_the_largest_tables(table: Table, largest: int, more: int) -> None:
    """What is compiled would overflow in silence; the interpreter warns, which is an error."""
    counts, thresholds = table
    types = ValueTypes.of(np.array(counts, np.int64), FPrimePrivacy(thresholds))
    smallest = max(1, largest - more)

    def best() -> Pairs | None:
        found = SettingProblem.of(types, smallest, largest, UNLIMITED).best("none", UNLIMITED)
        return None if found is None else found.pairs

    compiled = best()
    functions = ("fill_capacity", "gcd_and_inverse", "_loss", "_look_at_pairs", "_first_valid")
    interpreted = {name: getattr(module, name).py_func for name in functions}
    with mock.patch.multiple(module, **interpreted):
        assert best() == compiled


@given(strategies.tables(5, 25, eligible=True), st.integers(1, 12))
@settings(max_examples=examples(200), deadline=None)
def test_the_hint_names_the_smallest_sufficient_size(table: Table, max_size: int) -> None:
    counts, privacy = table[0], FPrimePrivacy(table[1])
    try:
        two_size(counts, privacy, max_size)
    except InfeasibleError as error:
        named = re.search(r"max_bucket_size to (?:at least )?(\d+)$", error.hint)
        if named is None:
            tried = re.search(r"up to (\d+) suffices$", error.hint)
            largest = max_size if tried is None else int(tried[1])
            assert largest >= min(sum(counts), 4 * max_size)
            assert two_size_or_none(table, largest) is None
        else:
            assert two_size_or_none(table, int(named[1]) - 1) is None
            if "at least" not in error.hint:
                assert two_size_or_none(table, int(named[1])) is not None


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
    fewer = two_size_or_none(table, max_size)
    if fewer is not None:
        several = multi_size(table[0], FPrimePrivacy(table[1]), max_size)
        assert found.proof.objective <= several.loss <= fewer.loss
        assert several.largest_size <= max_size
        assert holds_every_set(table, several.sizes.tolist(), several.counts.tolist())
    sizes, n_buckets = found.setting.sizes.tolist(), found.setting.counts.tolist()
    assert holds_every_set(table, sizes, n_buckets)


# --- Assignments ---------------------------------------------------------------------------------


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


def check_assignment(table: list[int], limits: IntArray, setting: BucketSetting) -> None:
    """Deal all records and look into each bucket."""
    partition = partition_records(table, limits, setting)
    assert partition.sum(axis=1).tolist() == table
    assert (partition >= 0).all()
    allotment = round_robin(partition, setting)
    records = [(value, rank) for value, count in enumerate(table) for rank in range(count)]
    values, ranks = (np.array(column) for column in zip(*records, strict=True))
    buckets = allotment.bucket_of(values, ranks)
    sizes = np.repeat(setting.sizes, setting.counts)
    assert np.bincount(buckets, minlength=sizes.size).tolist() == sizes.tolist()
    size_class = np.repeat(np.arange(setting.sizes.size), setting.counts)
    for (bucket, value), occurrences in Counter(zip(buckets, values, strict=True)).items():
        assert occurrences <= limits[value, size_class[bucket]]
    # The formula of the class's description, entry by entry.
    for value, rank, bucket in zip(values, ranks, buckets, strict=True):
        (entry,) = np.flatnonzero(
            (allotment.value == value)
            & (allotment.first_rank <= rank)
            & (rank < allotment.first_rank + allotment.n_records)
        )
        step = allotment.start[entry] + rank - allotment.first_rank[entry]
        assert bucket == allotment.first_bucket[entry] + step % allotment.n_buckets[entry]


@pytest.mark.long
@given(st.data())
@settings(max_examples=examples(400), deadline=None)
def test_a_setting_is_valid_if_no_set_of_values_is_crowded(data: st.DataObject) -> None:
    table = data.draw(strategies.tables(5, 12, eligible=True))
    setting = data.draw(wide_settings(sum(table[0]), 14))
    limits = FPrimePrivacy(table[1]).occurrence_limits(setting.sizes)
    expected = holds_every_set(table, setting.sizes.tolist(), setting.counts.tolist())
    assert is_valid(table[0], limits, setting) == expected
    if expected:
        check_assignment(table[0], limits, setting)
        return
    with pytest.raises(InfeasibleError):
        partition_records(table[0], limits, setting)


@given(strategies.counts(8, 15), st.integers(1, 9))
@settings(max_examples=examples(200), deadline=None)
def test_anatomy_puts_each_value_at_most_once_in_each_bucket(table: list[int], l: int) -> None:
    n_records = sum(table)
    if max(table) * l > n_records:
        with pytest.raises(IneligibleError) as caught:
            anatomy(table, l)
        advised = re.fullmatch(r"lower l to (\d+)", str(caught.value.hint))
        assert (advised is None) == (2 * max(table) > n_records)  # else only l = 1 is left
        largest = int(advised[1]) if advised else 1
        anatomy(table, largest)
        with pytest.raises(IneligibleError):
            anatomy(table, largest + 1)
        return
    setting = anatomy(table, l)
    assert setting.n_buckets == n_records // l
    assert setting.sizes.min() >= l
    assert setting.largest_size - setting.sizes.min() <= 1
    if n_records % l <= n_records // l:
        assert setting.largest_size <= l + 1
    check_assignment(table, np.ones((len(table), setting.sizes.size), dtype=np.int64), setting)


# --- Specifications ------------------------------------------------------------------------------

decimals = st.decimals(0, 1, places=3).map(str)


@st.composite
def specifications(draw: st.DrawFn) -> dict[str, object]:
    """Specifications, most of them valid, for values named v0, v1, … and NULL."""
    document: dict[str, object] = {}
    rules = ["theta", "base", "default", "l", "null", "cap"]
    for rule in draw(st.sets(st.sampled_from(rules))):
        document[rule] = draw(st.integers(1, 12).map(str) if rule == "l" else decimals)
    own = draw(st.sets(st.integers(0, 3)))
    if own:
        document["values"] = {f"v{i}": draw(decimals) for i in sorted(own)}
    return document


def remedied(
    document: dict[str, object], hint: str, values: list[str | None], table: list[int]
) -> list[dict[str, object]]:
    """Follow a hint; where it offers a choice, each way."""
    alternatives = [document]
    for remedy in hint.split("; "):
        if own := re.fullmatch(r"raise (\d+) of the values' thresholds to (\S+)", remedy):
            listed = document["values"]
            assert isinstance(listed, dict)
            low = [
                v
                for v, count in zip(values, table, strict=True)
                if v in listed and Fraction(listed[v]) < Fraction(count, sum(table))
            ]
            assert len(low) == int(own[1])
            raised = listed | dict.fromkeys(low, own[2])
            alternatives = [alternative | {"values": raised} for alternative in alternatives]
        else:
            changes = re.findall(r"(theta|base|default|l|null|cap) to (\S+)", remedy)
            assert changes
            alternatives = [a | {rule: number} for a in alternatives for rule, number in changes]
    return alternatives


@pytest.mark.long
@given(specifications(), st.lists(st.integers(1, 50), min_size=4, max_size=7), st.booleans())
@settings(max_examples=examples(800), deadline=None)
def test_specifications(document: dict[str, Any], table: list[int], null: bool) -> None:
    """The strictest general rule, or a threshold of one's own; and never above the cap.

    What is refused passes with the numbers that the hint names.
    """
    values: list[str | None] = [f"v{i}" for i in range(len(table) - null)] + [None] * null
    try:
        spec = PrivacySpecification.parse(json.dumps(document))
        privacy = spec.thresholds(values, table)
    except InvalidParameterError:
        assume(False)
    number = {rule: Fraction(text) for rule, text in document.items() if rule != "values"}
    cap = number.get("cap", Fraction(1))
    for value, count, threshold in zip(values, table, privacy.thresholds, strict=True):
        general = [number[rule] for rule in ("default", "cap") if rule in number]
        if "l" in number:
            general.append(1 / number["l"])
        if "theta" in number or "base" in number:
            slope = number.get("theta", 0) * Fraction(count, sum(table))
            general.append(min(slope + number.get("base", 0), Fraction(1)))
        own = document.get("null" if value is None else "values")
        if isinstance(own, dict):
            own = own.get(value)
        assert threshold == (min(general) if own is None else min(Fraction(own), cap))
    broken = [f < Fraction(o, sum(table)) for f, o in zip(privacy.thresholds, table, strict=True)]
    assert privacy.ineligible(table).tolist() == broken
    if not any(broken):
        check_eligible(spec, values, table)
        return
    with pytest.raises(IneligibleError) as caught:
        check_eligible(spec, values, table)
    assert caught.value.detail.startswith(f"{sum(broken)} of {len(table)} ")
    for alternative in remedied(document, caught.value.hint, values, table):
        check_eligible(PrivacySpecification.parse(json.dumps(alternative)), values, table)


@given(
    st.lists(st.fractions(Fraction(1, 10**9), 1), min_size=1, max_size=5),
    st.lists(st.integers(1, 5000), min_size=1, max_size=5),
)
def test_occurrence_limits_are_exact_floors(thresholds: list[Fraction], sizes: list[int]) -> None:
    privacy = FPrimePrivacy(tuple(thresholds))
    assert privacy.occurrence_limits(sizes).tolist() == [
        [floor(f * size) for size in sizes] for f in thresholds
    ]
    inverses = [-(-f.denominator // f.numerator) for f in thresholds]
    assert privacy.smallest_bucket_size() == min(inverses)
    assert privacy.corresponding_l() == max(inverses)
