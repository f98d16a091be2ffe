"""Settings and assignments of small random tables against exhaustive search."""

from __future__ import annotations

import importlib
import json
import re
from collections import Counter
from fractions import Fraction
from functools import cache
from math import floor
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.bucketization.bucket_assignment import (
    partition_records,
    round_robin,
)
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.privacy import (
    FPrimePrivacy,
    PrivacySpecification,
    check_eligible,
)
from kanon_db.algorithms.bucketization.two_size import SettingProblem, anatomy, two_size
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED
from kanon_db.errors import IneligibleError, InfeasibleError, InvalidParameterError
from tests.profiles import examples
from tests.property import strategies
from tests.property.test_general_settings import holds_every_set

module = importlib.import_module("kanon_db.algorithms.bucketization.two_size")

Table = tuple[list[int], tuple[Fraction, ...]]
Pairs = tuple[tuple[int, int], ...]


# --- Reference: exhaustive, on rationals, without Theorem 1 --------------------------------------


def has_assignment(table: list[int], buckets: list[tuple[int, tuple[int, ...]]]) -> bool:
    """Try every way to fill the buckets, each a size with the limit of every value."""

    @cache
    def fill(bucket: int, value: int, free: int, left: tuple[int, ...]) -> bool:
        if value == len(left):
            if free:
                return False
            if bucket + 1 == len(buckets):
                return not any(left)
            return fill(bucket + 1, 0, buckets[bucket + 1][0], left)
        most = min(free, left[value], buckets[bucket][1][value])
        return any(
            fill(bucket, value + 1, free - k, (*left[:value], left[value] - k, *left[value + 1 :]))
            for k in range(most, -1, -1)
        )

    return fill(0, 0, buckets[0][0], tuple(table))


def limits_of(size: int, thresholds: tuple[Fraction, ...]) -> tuple[int, ...]:
    return tuple(floor(threshold * size) for threshold in thresholds)


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


# --- Settings -----------------------------------------------------------------------------------


@given(strategies.tables(4, 4), st.integers(1, 9))
@settings(max_examples=examples(300), deadline=None)
def test_two_size_loss_is_that_of_exhaustive_assignment(table: Table, max_size: int) -> None:
    found = two_size_or_none(table, max_size)
    best = next(
        (
            (loss, pairs)
            for loss, pairs in feasible_settings(sum(table[0]), max_size)
            if has_assignment(
                table[0], [(s, limits_of(s, table[1])) for s, b in pairs for _ in range(b)]
            )
        ),
        None,
    )
    assert (found and found.loss) == (best and best[0])


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
    types, smallest = Counter(zip(*table, strict=True)), max(1, largest - more)

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


# --- Theorem 1, Algorithm 1, round-robin ----------------------------------------------------------


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


@given(strategies.tables(6, 40, eligible=True), st.integers(2, 30))
@settings(max_examples=examples(200), deadline=None)
def test_two_size_assignments_keep_every_bucket_within_its_thresholds(
    table: Table, max_size: int
) -> None:
    setting = two_size_or_none(table, max_size)
    assume(setting is not None)
    assert setting is not None
    limits = np.array([[floor(f * int(size)) for size in setting.sizes] for f in table[1]])
    check_assignment(table[0], limits, setting)


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


# --- Specifications -----------------------------------------------------------------------------

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


@given(specifications(), st.lists(st.integers(1, 50), min_size=4, max_size=7), st.booleans())
@settings(max_examples=examples(400), deadline=None)
def test_a_refused_specification_passes_with_the_suggested_numbers(
    document: dict[str, object], table: list[int], null: bool
) -> None:
    values: list[str | None] = [f"v{i}" for i in range(len(table) - null)] + [None] * null
    try:
        spec = PrivacySpecification.parse(json.dumps(document))
        privacy = spec.thresholds(values, table)
    except InvalidParameterError:
        assume(False)
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


@given(specifications(), st.lists(st.integers(1, 50), min_size=4, max_size=7), st.booleans())
@settings(max_examples=examples(400), deadline=None)
def test_thresholds_against_the_rules_one_by_one(
    document: dict[str, Any], table: list[int], null: bool
) -> None:
    """The strictest general rule, or a threshold of one's own; and never above the cap."""
    values: list[str | None] = [f"v{i}" for i in range(len(table) - null)] + [None] * null
    try:
        privacy = PrivacySpecification.parse(json.dumps(document)).thresholds(values, table)
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
