"""What several releases tell together, compared with all worlds on small cases."""

from __future__ import annotations

import dataclasses
from collections import Counter
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.releases import (
    NEW,
    BucketRelease,
    BucketReleases,
    PossibleValues,
    compare_all,
    differences,
    everybody,
    possible_values,
    refresh,
)
from kanon_db.algorithms.releases.m_invariance import renew
from tests.profiles import examples
from tests.property.plain_worlds import Case, cases, plain_posterior
from tests.worlds import count_worlds, force, measure_worlds, virtual_releases

MANY = settings(max_examples=examples(600))


def listed(found: PossibleValues, t: int) -> set[int]:
    start = found.first[t]
    return set(found.value[start : start + found.number[t]].tolist())


@pytest.mark.long
@MANY
@given(cases())
def test_measures_are_those_of_all_worlds(case: Case) -> None:
    """Candidates and forced values hold in all worlds, and counted worlds are all there are.

    In the whole measurement, all bounds are below 1, so that all who are certain count.
    """
    truth, releases = plain_posterior(case), case.together
    candidates, forced = possible_values(releases), force(releases)
    virtual = virtual_releases(releases, compare_all(releases))
    more = force(BucketReleases.of([*case.arrays, *virtual], case.n_tuples, case.n_values))
    counted = count_worlds(releases, forced, 1_000_000)
    assert not forced.is_contradicted.any()
    assert not more.is_contradicted.any()
    first = forced.candidates.first
    for t, shares in truth.items():
        assert listed(candidates, t) >= listed(forced.candidates, t) >= shares.keys()
        assert listed(more.candidates, t) >= shares.keys()
        assert counted.is_known[t]
        for j in range(first[t], first[t] + forced.candidates.number[t]):
            expected = shares.get(int(forced.candidates.value[j]), 0)
            assert np.isclose(counted.share[j], float(expected))
    bounds = [Fraction(1, case.n_values)] * case.n_values
    found = measure_worlds(case.arrays, case.n_tuples, bounds, 1_000_000)
    sizes = releases.total
    certain = sum(int(sizes[t]) for t, shares in truth.items() if len(shares) == 1)
    assert found.contradicted == found.contradicted_groups == 0
    for name in ("candidates", "forced"):
        assert found.check(name).certain <= certain
    assert found.check("worlds").certain == certain
    largest = max((max(shares.values()) for shares in truth.values()), default=0)
    assert np.isclose(found.check("worlds").value, float(largest))
    exceeding = [t for t, shares in truth.items() if max(shares.values()) > bounds[0]]
    assert found.check("worlds").people == sum(int(sizes[t]) for t in exceeding)
    assert found.check("candidates").people <= found.check("worlds").people
    assert found.counted == found.people


@MANY
@given(cases())
def test_differences_are_those_of_the_people(case: Case) -> None:
    """The least numbers are not above the true ones, and equal them in one-sided groups."""
    releases = case.together
    for old, new in permutations(range(len(case.releases)), 2):
        for groups in (None, everybody(releases)):
            found = differences(releases, old, new, groups)
            came = _true_changes(case, found.group_of_bucket, old, new)
            went = _true_changes(case, found.group_of_bucket, new, old)
            for true, inserted in ((came, True), (went, False)):
                group, value, least, _ = found.surely(inserted=inserted)
                for g, v, n in zip(group.tolist(), value.tolist(), least.tolist(), strict=True):
                    assert n <= true.get((g, v), 0)
                    assert n == true[g, v] or not found.is_one_sided[g]


def _true_changes(case: Case, groups, old: int, new: int):
    """Values in a group of those people and counterfeits who are in the new release only."""
    first = np.cumsum([0] + [len(r) for r in case.releases])

    def there(number: int) -> list[tuple]:
        return [
            (int(groups[first[number] + b]), who or ("counterfeit", number, b), value)
            for b, bucket in enumerate(case.releases[number])
            for who, value in bucket
        ]

    true: dict[tuple[int, int], int] = {}
    before = {(group, who) for group, who, _ in there(old)}
    for group, who, value in there(new):
        if (group, who) not in before:
            true[group, value] = true.get((group, value), 0) + 1
    return true


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from([3, 4, 12]))
def test_claims_are_true_of_many_people(seed: int, alike: int, size: int) -> None:
    """People with a single candidate have it, others have one of theirs; shares add up to 1."""
    random = np.random.default_rng(seed)
    n, n_values = 600, 8
    values = random.choice(n_values, n, p=np.arange(1, 9) / 36)
    tuples = random.integers(0, n // alike, n) if alike > 1 else np.arange(n)
    # Some people come, some go; of people with equal tuples, the first stay.
    order = np.lexsort((random.permutation(n), tuples))
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n) - np.searchsorted(tuples[order], tuples[order])
    arrays = []
    for _ in range(3):
        numbers = np.bincount(tuples, minlength=n) - (random.random(n) < 0.05)
        here = np.flatnonzero(rank < numbers[tuples])
        buckets = random.permutation(here.size) % (here.size // size)
        arrays.append(BucketRelease.of(tuples[here], buckets, values[here]))
    releases = BucketReleases.of(arrays, n, n_values)
    virtual = virtual_releases(releases, compare_all(releases))
    releases = BucketReleases.of([*arrays, *virtual], n, n_values)
    forced = force(releases)
    assert not forced.is_contradicted.any()
    published = np.flatnonzero(rank < releases.total[tuples])
    for who in published.tolist():
        assert values[who] in listed(forced.candidates, tuples[who])
    posterior = count_worlds(releases, forced, 2000)
    owner = np.repeat(np.arange(releases.n_all), np.diff(forced.candidates.first))
    whole = np.bincount(owner, posterior.share, releases.n_all)
    assert np.allclose(whole[posterior.is_known & (forced.candidates.number > 0)], 1)


@pytest.mark.long
@MANY
@given(st.integers(0, 2**32 - 1), st.integers(2, 3), st.booleans())
def test_refreshed_releases_keep_one_by_m(seed: int, m: int, counterfeits: bool) -> None:
    """Over four releases: buckets are m-unique, signatures stay, and nothing exceeds 1/m."""
    random = np.random.default_rng(seed)
    n_values = 5
    values = random.integers(0, n_values, 40)
    last = np.full(40, NEW)
    signatures: tuple[tuple[int, ...], ...] = ()
    arrays = []
    comes = random.integers(0, 4, 40)
    goes = comes + random.integers(1, 4, 40)
    for now in range(4):
        who = np.flatnonzero((comes <= now) & (now < goes))
        found = refresh(
            values[who], last[who], signatures, m, random, counterfeits=counterfeits
        )  # fmt: skip
        placed = who[~found.waits]
        buckets = found.bucket_of[~found.waits]
        assert found.signatures[: len(signatures)] == signatures
        signature_of = found.signature_of_bucket[buckets]
        assert ((last[placed] == NEW) | (last[placed] == signature_of)).all()
        all_buckets = np.concatenate([buckets, found.counterfeit_bucket])
        all_values = np.concatenate([values[placed], found.counterfeit_value])
        if all_buckets.size:
            for b in range(int(all_buckets.max()) + 1):
                held = tuple(sorted(all_values[all_buckets == b].tolist()))
                assert held == found.signatures[found.signature_of_bucket[b]]
                assert len({*held}) == len(held) >= m
            contents = BucketRelease.of(all_buckets, all_buckets, all_values)
            people = BucketRelease.of(placed, buckets, values[placed])
            arrays.append(dataclasses.replace(
                people, bucket=contents.bucket, value=contents.value, count=contents.count
            ))  # fmt: skip
        assert counterfeits or not found.counterfeit_value.size
        if counterfeits:
            assert not (found.waits & (last[who] != NEW)).any()
        last[placed], signatures = signature_of, found.signatures
    measured = measure_worlds(arrays, 40, [Fraction(1, m)] * n_values, 100_000)
    assert measured.contradicted == measured.contradicted_groups == 0
    assert all(check.holds for check in measured.checks), measured


# --- People who come and leave: what every renewal keeps ------------------------------------------

Signature = tuple[int, ...]


@st.composite
def years(draw: st.DrawFn) -> tuple[int, int, list[tuple[list[int], list[bool]]]]:
    """Return m, a seed, and for each month the values of who comes, and who leaves of all."""
    m = draw(st.integers(2, 4))
    months = []
    n = 0
    for _ in range(draw(st.integers(1, 4))):
        comes = draw(st.lists(st.integers(0, 5), max_size=25))
        n += len(comes)
        months.append((comes, draw(st.lists(st.booleans(), min_size=n, max_size=n))))
    return m, draw(st.integers(0, 2**32)), months


@given(years())
@settings(max_examples=examples(100), deadline=None)
def test_everybody_keeps_a_signature_of_values_that_are_there_once(
    year: tuple[int, int, list[tuple[list[int], list[bool]]]],
) -> None:
    m, seed, months = year
    random = np.random.default_rng(seed)
    values: list[int] = []
    under: list[Signature | None] = []
    here: set[int] = set()
    last: set[int] = set()
    releases = []
    for comes, leaves in months:
        here |= set(range(len(values), len(values) + len(comes)))
        values += comes
        under += [None] * len(comes)
        here -= {one for one in here if leaves[one]}
        asked = sorted(one for one in here if under[one] is None or one in last)
        signatures = sorted({s for one in asked if (s := under[one]) is not None})
        position = [NEW if (s := under[one]) is None else signatures.index(s) for one in asked]
        found = renew(
            np.array([values[one] for one in asked], dtype=np.int64),
            np.array(position, dtype=np.int64), signatures, m, random,
        )  # fmt: skip
        assert found.counterfeit_value.size == 0
        buckets: dict[int, list[int]] = {}
        for one, bucket in zip(asked, found.bucket_of.tolist(), strict=True):
            if bucket >= 0:
                buckets.setdefault(bucket, []).append(one)
        assert sorted(buckets) == list(range(found.signature_of_bucket.size))
        for bucket, people in buckets.items():
            signature = found.signatures[found.signature_of_bucket[bucket]]
            assert tuple(sorted(values[one] for one in people)) == signature
            assert len(signature) >= m
            assert all(under[one] in (None, signature) for one in people)
        placed = {one for people in buckets.values() for one in people}
        _none_too_few(asked, under, values, placed, m)
        for bucket, people in buckets.items():
            for one in people:
                under[one] = found.signatures[found.signature_of_bucket[bucket]]
        last = placed
        if placed:
            order = sorted(placed)
            place = dict(zip(asked, found.bucket_of.tolist(), strict=True))
            releases.append(BucketRelease.of(
                np.array(order), np.array([place[one] for one in order]),
                np.array([values[one] for one in order]),
            ))  # fmt: skip
    if releases:
        measured = measure_worlds(releases, len(values), [Fraction(1, m)] * 6, 10_000)
        assert measured.contradicted == 0
        assert [c for c in measured.checks if c.kind != "estimate" and not c.holds] == []


def _none_too_few(
    asked: list[int], under: list[Signature | None], values: list[int], placed: set[int], m: int
) -> None:
    """Nobody is left out who could be placed: of each signature, and of those who are new."""
    for signature in {under[one] for one in asked} - {None}:
        assert signature is not None
        counts = Counter(values[one] for one in asked if under[one] == signature)
        number = sum(under[one] == signature for one in placed)
        assert number == len(signature) * min(counts[value] for value in signature)
    new = [one for one in asked if under[one] is None]
    counts = Counter(values[one] for one in new)
    is_eligible = max(counts.values(), default=0) * m <= len(new)
    assert len(placed & set(new)) == (len(new) if is_eligible else 0)


def test_whose_value_changed_is_left_out() -> None:
    random = np.random.default_rng(0)
    found = renew(np.array([0, 1, 2]), np.array([0, 0, 0]), [(0, 1)], 2, random)
    assert found.waits.tolist() == [False, False, True]


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_to_publish(n: int) -> None:
    found = renew(np.zeros(n, dtype=int), np.full(n, NEW), (), 2, np.random.default_rng(0))
    assert found.waits.all()
    assert not found.signature_of_bucket.size
