"""What buckets tell of dependences, beside all matchings, exact posteriors, and made tables."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from math import comb

import numpy as np
import pytest

from kanon_db.algorithms.bucketization.dependence import (
    ASKED,
    MOST_CLASSES,
    STRENGTHS,
    BucketHistograms,
    MatchingRecords,
    ValueDependence,
)
from kanon_db.algorithms.ground.arrays import FloatArray, IntArray


def contents_of(
    buckets: IntArray, values: IntArray, n_values: int, stratum: IntArray | None = None
) -> BucketHistograms:
    """The contents of buckets, from each record's bucket and value."""
    sizes = np.bincount(buckets).astype(np.float64)
    entries, count = np.unique(buckets * n_values + values, return_counts=True)
    if stratum is None:
        stratum = np.zeros(sizes.size, dtype=np.int64)
    return BucketHistograms(
        sizes, entries // n_values, entries % n_values, count.astype(np.float64), n_values, stratum
    )


def matching(buckets: IntArray, *numbers: FloatArray) -> MatchingRecords:
    """What the records of each group weigh, in each bucket."""
    return MatchingRecords(
        np.array([np.bincount(buckets, one) for one in numbers]),
        np.array([np.bincount(buckets, one * one) for one in numbers]),
    )


def certain(dependence: ValueDependence, strength: float, asked: float = 0.0) -> ValueDependence:
    """A publication whose dependences are known to have this strength."""
    strengths = np.outer(strength == STRENGTHS, asked == ASKED).astype(np.float64)
    return replace(dependence, strengths=strengths, hidden_strengths=strengths)


def test_a_random_matching_is_that_of_all_matchings() -> None:
    buckets = np.array([0, 0, 0, 0, 1, 1, 1])
    values = np.array([0, 1, 1, 2, 0, 2, 2])
    scores = np.array([1.0, 2.5, -1.0])
    groups = np.array([[1.0, 1, 0, 0, 1, 0, 0], [0, 0, 3.0, 0, 0, 0.5, 1]])
    totals = np.array(
        [
            [group @ scores[np.r_[first, second]] for group in groups]
            for first in permutations(values[:4])
            for second in permutations(values[4:])
        ]
    )
    dependence = ValueDependence.of(contents_of(buckets, values, 3))
    answer = dependence.estimate(matching(buckets, *groups), scores)
    assert answer.without == pytest.approx(totals.mean(axis=0))
    assert answer.draw == pytest.approx(np.cov(totals.T, bias=True))


def test_two_values_have_the_exact_posterior() -> None:
    """Of two values, the difference of the shares has a density that can be integrated."""
    random = np.random.default_rng(3)
    n, strength = 240, 0.1
    buckets, values = np.arange(n) // 3, random.integers(0, 2, n)
    matches = random.random(n) < np.where(values == 1, 0.5, 0.35)
    q, ones = (np.bincount(buckets, one).astype(int) for one in (matches, values))
    share, n_ones = matches.mean(), values.sum()
    differences = np.linspace(-0.9, 0.9, 1801) * np.sqrt(share * (1 - share))
    log_density = -(differences**2) / (8 * share * (1 - share) * strength**2)
    means, variances = np.zeros(differences.size), np.zeros(differences.size)
    of_ones = np.clip(share + differences * (n - n_ones) / n, 1e-9, 1 - 1e-9)
    of_zeros = np.clip(share - differences * n_ones / n, 1e-9, 1 - 1e-9)
    for matching_here, ones_here in zip(q, ones, strict=True):
        both = np.arange(max(0, matching_here + ones_here - 3), min(matching_here, ones_here) + 1)
        chances = np.array(
            [
                comb(ones_here, k) * of_ones**k * (1 - of_ones) ** (ones_here - k)
                * comb(3 - ones_here, matching_here - k) * of_zeros ** (matching_here - k)
                * (1 - of_zeros) ** (3 - ones_here - matching_here + k)
                for k in both.tolist()
            ]
        )  # fmt: skip
        total = chances.sum(axis=0)
        log_density += np.log(total)
        mean = both @ chances / total
        means += mean
        variances += both**2 @ chances / total - mean**2
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    exact = density @ means
    error = np.sqrt(density @ (variances + (means - exact) ** 2))

    dependence = certain(ValueDependence.of(contents_of(buckets, values, 2)), strength)
    answer = dependence.estimate(matching(buckets, matches * 1.0), np.array([0.0, 1.0]))
    assert answer.numbers[0] == pytest.approx(exact, abs=error / 10)
    assert answer.errors[0] == pytest.approx(error, rel=0.05)
    assert abs(exact - answer.without[0]) > error / 2  # so the estimate learned something


@pytest.mark.parametrize(("n_strata", "asked"), [(1, 0.0), (1, 0.1), (6, 0.0)])
def test_errors_are_those_of_made_tables(n_strata: int, asked: float) -> None:
    """Tables are drawn from the prior, and in strata whose shares lie far apart."""
    random = np.random.default_rng(5)
    n, n_values, strength = 900, 4, 0.05
    scores = np.array([0.0, 1.0, 1.0, 0.0])
    off = []
    for _ in range(150):
        stratum = np.repeat(np.arange(n_strata), n // n_strata)
        values = (random.integers(0, 6, n) + stratum) % n_values
        base = 0.2 + 0.6 * (stratum + 0.5) / n_strata
        spread = np.mean(base * (1 - base))
        frequent = np.bincount(values, minlength=n_values) / n
        centered = scores - frequent @ scores
        effects = random.normal(0, strength, n_values) * np.sqrt(n_values)
        effects += random.normal(0, asked) * centered / np.sqrt(frequent @ centered**2)
        own = np.array([effects[values[stratum == one]].mean() for one in range(n_strata)])
        chance = base + base * (1 - base) / np.sqrt(spread) * (effects[values] - own[stratum])
        matches = random.random(n) < chance
        order = np.lexsort((random.random(n), stratum))
        buckets = np.empty(n, dtype=np.int64)
        buckets[order] = np.arange(n) // 3
        contents = contents_of(
            buckets, values, n_values, np.repeat(np.arange(n_strata), n // n_strata // 3)
        )
        dependence = certain(ValueDependence.of(contents), strength, asked)
        answer = dependence.estimate(matching(buckets, matches * 1.0), scores)
        off.append((scores[values] @ matches - answer.numbers[0]) / answer.errors[0])
    assert abs(np.mean(off)) < 0.25
    assert 0.8 < np.mean(np.square(off)) < 1.25
    assert np.mean(np.abs(off) < 2) > 0.92


def made(strength: float) -> tuple[IntArray, IntArray, list[FloatArray]]:
    """Records in buckets of two unlike values, and conditions that go with the values so far."""
    random = np.random.default_rng(11)
    n = 3_000
    values = np.arange(n) % 5
    buckets = np.empty(n, dtype=np.int64)
    buckets[random.permutation(n)] = np.arange(n) // 3
    score = strength * (values - 2) / np.sqrt(2) + random.normal(size=(40, n))
    return buckets, values, [np.asarray(one, dtype=np.float64) for one in score > 0.3]


def test_nothing_is_assumed_where_conditions_show_nothing() -> None:
    for strength in (0.0, 0.5):
        buckets, values, conditions = made(strength)
        before = ValueDependence.of(contents_of(buckets, values, 5))
        dependence = before.learn(matching(buckets, *conditions))
        answer = dependence.estimate(matching(buckets, *conditions[:5]), np.arange(5.0))
        truth = np.array([np.arange(5.0)[values] @ one for one in conditions[:5]])
        assert np.array_equal(answer.numbers, answer.without) == (strength == 0)
        assert np.all(np.abs(truth - answer.numbers) < 3 * answer.errors)
        if strength:
            assert np.abs(truth - answer.numbers).sum() < np.abs(truth - answer.without).sum() / 2


def test_groups_that_are_everybody_have_opposite_errors() -> None:
    buckets, values, conditions = made(0.5)
    dependence = ValueDependence.of(contents_of(buckets, values, 5))
    groups = matching(buckets, conditions[0], 1 - conditions[0])
    answer = dependence.estimate(groups, np.array([1.0, 1, 0, 0, 0]))
    assert answer.numbers.sum() == pytest.approx(1200)
    assert answer.covariance.sum() == pytest.approx(0, abs=1e-6)
    assert answer.covariance[0, 1] == pytest.approx(-answer.covariance[0, 0])


def test_averages() -> None:
    buckets, values, conditions = made(0.5)
    dependence = ValueDependence.of(contents_of(buckets, values, 5))
    counts = matching(buckets, *conditions[:2])
    everyone = np.ones(5)
    by_value = dependence.average_values(counts, np.arange(5.0), everyone)
    total = dependence.estimate(counts, np.arange(5.0))
    n = counts.sums.sum(axis=1)
    assert by_value.numbers == pytest.approx(total.numbers / n)
    assert by_value.errors == pytest.approx(total.errors / n)
    seven = matching(buckets, *(7 * one for one in conditions[:2]))
    same = dependence.average_records(seven, counts, np.array([1.0, 1, 0, 0, 0]))
    assert same.numbers == pytest.approx([7, 7])
    assert same.errors == pytest.approx([0, 0], abs=1e-9)


def test_where_everybody_of_a_stratum_matches_nothing_is_unknown() -> None:
    stratum = np.array([0, 0, 1, 1])
    values = np.array([0, 1, 1, 0, 2, 0, 2, 1])
    contents = contents_of(np.arange(8) // 2, values, 3, stratum)
    matches = np.repeat([1.0, 0.0], 4)
    answer = ValueDependence.of(contents).estimate(
        matching(np.arange(8) // 2, matches), np.array([1.0, 0, 0])
    )
    assert (answer.numbers[0], answer.errors[0]) == (2.0, 0.0)


def test_many_values_are_taken_in_classes() -> None:
    random = np.random.default_rng(2)
    values, buckets = random.integers(0, 400, 1200), np.arange(1200) // 3
    dependence = ValueDependence.of(contents_of(buckets, values, 400))
    assert dependence.classes.max() < MOST_CLASSES
    matches = (values > 200) & (random.random(1200) < 0.7)
    scores = (np.arange(400) > 200).astype(np.float64)
    answer = dependence.estimate(matching(buckets, matches * 1.0), scores)
    assert abs(answer.numbers[0] - matches.sum()) < 3 * answer.errors[0]
