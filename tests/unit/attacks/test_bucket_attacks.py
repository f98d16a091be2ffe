"""Attacks on buckets, against brute force and against tables whose answer is known."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations, permutations

import numpy as np
import pytest

from kanon_db.algorithms.attacks import (
    Beliefs,
    BucketCandidates,
    BucketValues,
    SweepOrder,
    TrueValues,
    candidates_of,
    learned_weights,
    name_rarest,
    score_guesses,
    sweep_orders,
    unusual_records,
    weights_of_source,
)
from kanon_db.algorithms.attacks.minimality_attack import ends_of_buckets
from kanon_db.algorithms.bucketization.bucket_assignment import assign_randomly
from kanon_db.algorithms.bucketization.local_assignment import assign_locally
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.two_size import two_size
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, FloatArray
from kanon_db.algorithms.ground.computation import Pulse
from tests.attacks.sparse import sparse_codes


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def table(random: np.random.Generator, n: int = 300) -> tuple[CodeArray, AnyIntArray, AnyIntArray]:
    """Quasi-identifiers, buckets without gaps, and values of records in random order."""
    codes = random.integers(0, [4, 3, 5], (n, 3)).astype(np.int32)
    return codes, random.permutation(n) // 6, random.integers(0, 5, n)


def share_right(
    candidates: BucketCandidates, weights: FloatArray, values: AnyIntArray, n_values: int
) -> float:
    """Name as many as have each value, everybody being alone with their quasi-identifiers."""
    alone = np.arange(values.size)
    named = Beliefs.of(candidates, weights, alone, n_values).named(np.bincount(values))
    return float(np.average(named.values == values[named.tuples], weights=named.people))


def test_truth_is_the_share_of_those_who_look_alike(random: np.random.Generator) -> None:
    tuples, values = random.integers(0, 20, 200), random.integers(-1, 4, 200)
    truth = TrueValues.of(tuples, values, 25, 4)
    for t in range(25):
        alike = values[tuples == t]
        for v in range(4):
            (share,) = truth.share(np.array([t]), np.array([v]))
            if alike.size:
                assert share == np.mean(alike == v)
            else:
                assert np.isnan(share)
    assert truth.most_frequent == Counter(values[values >= 0].tolist()).most_common(1)[0][0]


def test_achieved_leaves_out_what_is_not_bounded() -> None:
    truth = TrueValues.of(np.array([0, 1, 2]), np.array([0, 1, 1]), 4, 2)
    guesses, tuples = np.array([0, 1, 1, -1, 1]), np.array([0, 1, 0, 2, 3])
    found = score_guesses(truth, tuples, guesses, np.array([1.0, 0.25]))
    # Of persons 1 and 0, the one who has the value; nobody in the source has the tuple 3.
    assert (found.people, found.rate, found.base_rate, found.bound) == (2, 0.5, 0.5, 0.25)
    nobody = score_guesses(truth, tuples, guesses, np.array([1.0, 1.0]))
    assert (nobody.people, nobody.rate, nobody.base_rate, nobody.bound) == (0, None, None, None)
    unbounded = score_guesses(truth, tuples, guesses, None)
    assert (unbounded.people, unbounded.bound) == (3, None)
    several = score_guesses(truth, tuples, guesses, None, np.array([4, 1, 3, 9, 9]))
    assert (several.people, several.rate) == (8, 5 / 8)
    assert score_guesses(truth, tuples, guesses, None, np.zeros(5, dtype=int)).people == 0


def test_candidates_and_names(random: np.random.Generator) -> None:
    _, buckets, values = table(random)
    sat = BucketValues.of(buckets, values, 5)
    found = candidates_of(buckets, sat)
    expected = [
        (record, value, int(((buckets == bucket) & (values == value)).sum()))
        for record, bucket in enumerate(buckets.tolist())
        for value in sorted(set(values[buckets == bucket].tolist()))
    ]
    assert list(zip(found.record.tolist(), found.value.tolist(), found.count, strict=True)) == [
        (record, value, float(count)) for record, value, count in expected
    ]
    told = (found.value == values[found.record]).astype(np.float64)
    beliefs = Beliefs.of(found, told, np.arange(buckets.size), 5)
    # Whoever is told who has which value names everybody with their own.
    for guesses in (beliefs.named(np.bincount(values)), beliefs.most_likely):
        assert sorted(guesses.tuples.tolist()) == list(range(buckets.size))
        assert (guesses.values == values[guesses.tuples]).all()
        assert (guesses.people == 1).all()


def test_beliefs_average_over_records_that_look_alike(random: np.random.Generator) -> None:
    _, buckets, values = table(random)
    tuples = random.integers(0, 40, buckets.size)
    found = candidates_of(buckets, BucketValues.of(buckets, values, 5))
    beliefs = Beliefs.of(found, found.share, tuples, 5)
    for t in range(40):
        shares = np.zeros(5)
        for record in np.flatnonzero(tuples == t):
            bucket = values[buckets == buckets[record]]
            shares += np.bincount(bucket, minlength=5) / bucket.size
        at = beliefs.tuples == t
        n = int((tuples == t).sum())
        assert beliefs.weights[at] == pytest.approx(shares[shares > 0] / n)
        assert beliefs.people[at].tolist() == [n] * int(at.sum())
        (guess,) = beliefs.most_likely.values[beliefs.most_likely.tuples == t]
        assert shares[guess] == pytest.approx(shares.max())
    protected = beliefs.among(np.array([False, True, False, False, True]))
    assert set(protected.values.tolist()) == {1, 4}


def test_as_many_people_are_named_as_have_a_value(random: np.random.Generator) -> None:
    _, buckets, values = table(random)
    tuples = random.integers(0, 40, buckets.size)
    found = candidates_of(buckets, BucketValues.of(buckets, values, 5))
    beliefs = Beliefs.of(found, found.share, tuples, 5)
    holders = np.bincount(values, minlength=5)
    named = beliefs.named(holders)
    assert np.bincount(named.values, named.people).tolist() == holders.tolist()
    for v in range(5):
        at, chosen = beliefs.values == v, named.values == v
        weights = dict(zip(beliefs.tuples[at].tolist(), beliefs.weights[at], strict=True))
        left_out = [w for t, w in weights.items() if t not in named.tuples[chosen]]
        assert max(left_out, default=0) <= min(weights[t] for t in named.tuples[chosen].tolist())


def test_unusual_records(random: np.random.Generator) -> None:
    codes, _, _ = table(random, 60)
    for most in (1, 3):
        unusual = [
            any(
                sum(other[a] == record[a] and other[b] == record[b] for other in codes.tolist())
                <= most
                for a, b in combinations(range(3), 2)
            )
            for record in codes.tolist()
        ]
        assert unusual_records(codes, most).tolist() == unusual
    alone = np.array([[0], [0], [1]], dtype=np.int32)
    assert unusual_records(alone, 1).tolist() == [False, False, True]


def test_all_orders_of_few_attributes_are_tried(random: np.random.Generator) -> None:
    codes, _, _ = table(random)
    orders = sweep_orders(codes)
    assert {order.attributes for order in orders} == set(permutations(range(3)))
    assert len(set(orders)) == len(orders) == 2 * 6
    many = random.integers(0, 3, (50, 9)).astype(np.int32)
    orders = sweep_orders(many)
    assert len(set(orders)) == len(orders) == 2 * (24 + 5)
    assert {order.attributes[0] for order in orders} == set(range(9))
    assert all(sorted(order.attributes) == list(range(9)) for order in orders)


def test_ends_of_buckets(random: np.random.Generator) -> None:
    _, buckets, _ = table(random)
    keys = random.permutation(buckets.size)
    by_bucket = np.argsort(buckets, kind="stable")
    starts = np.searchsorted(buckets[by_bucket], np.arange(buckets.max() + 1))
    first, last = ends_of_buckets(keys, by_bucket, starts)
    for bucket in range(buckets.max() + 1):
        members = np.flatnonzero(buckets == bucket)
        assert first[bucket] == members[keys[members].argmin()]
        assert last[bucket] == members[keys[members].argmax()]


def test_minimality_names_the_opening_record() -> None:
    """Buckets of four in the order of the second attribute; the first of each has the value 1."""
    n = 400
    codes = np.column_stack([np.arange(n) * 7 % 11, np.arange(n)]).astype(np.int32)
    buckets, values = np.arange(n) // 4, (np.arange(n) % 4 == 0).astype(np.int64)
    sat = BucketValues.of(buckets, values, 2)
    truth = TrueValues.of(np.arange(n), values, n, 2)
    half = np.arange(100) % 2 == 0
    bounds = np.array([1.0, 0.25])
    given = (codes, buckets, sat, np.arange(n), truth, bounds)
    found = name_rarest(*given, sweep_orders(codes), half)
    assert (found.people, found.rate, found.base_rate, found.bound) == (100, 1.0, 0.0, 0.25)
    blind = name_rarest(*given, [SweepOrder((0, 1), reflected=False)], half)
    assert blind.rate is not None
    assert blind.rate < 0.5
    unbounded = name_rarest(*given[:-1], np.array([1.0, 1.0]), sweep_orders(codes), half)
    assert (unbounded.people, unbounded.rate) == (0, None)


@pytest.mark.parametrize("assignment", ["random", "local"])
def test_minimality_breaks_local_and_not_random(assignment: str) -> None:
    """Birth date, zip, sex: whoever opens a local bucket has the rare value."""
    codes, values = sparse_codes(12_000)
    counts = np.bincount(values)
    privacy = FPrimePrivacy((Fraction(1), Fraction(1, 10)))
    random = np.random.default_rng(2)
    if assignment == "local":
        buckets = assign_locally(codes, values, privacy, 50, random).bucket_of_record
    else:
        setting = two_size(counts, privacy, 50)
        limits = privacy.occurrence_limits(setting.sizes)
        buckets = assign_randomly(values, counts, limits, setting, random)
    sat = BucketValues.of(buckets, values, 2)
    tuples = np.arange(values.size)
    truth = TrueValues.of(tuples, values, values.size, 2)
    half = random.random(sat.sizes.size) < 0.5
    bounds = np.array([1.0, 0.1])
    found = name_rarest(codes, buckets, sat, tuples, truth, bounds, sweep_orders(codes), half)
    assert found.people > 100
    assert found.rate is not None
    if assignment == "local":
        assert found.rate > 0.9
    else:
        assert found.rate < 0.1 + 4 * (0.1 * 0.9 / found.people) ** 0.5


def test_learners_find_correlations(random: np.random.Generator) -> None:
    """The first attribute tells the value; buckets are of random records with four values each."""
    n, n_values = 4000, 4
    values = np.repeat(np.arange(4), n // 4)
    codes = np.column_stack([values, random.integers(0, 3, n)]).astype(np.int32)
    buckets = np.concatenate([random.permutation(n // 4) for _ in range(4)])
    candidates = candidates_of(buckets, BucketValues.of(buckets, values, 4))
    right = lambda weights: share_right(candidates, weights, values, n_values)
    assert right(weights_of_source(codes, candidates, codes, values, 4)) == 1
    assert right(candidates.share) < 0.3
    # With pairs of buckets' values that repeat, the publication itself gives the correlation away.
    uneven = np.where(np.arange(n) < n // 2, 0, 1 + np.arange(n) % 3)
    codes[:, 0] = uneven
    buckets = random.permutation(n) // 5
    candidates = candidates_of(buckets, BucketValues.of(buckets, uneven, 4))
    learned = learned_weights(codes, candidates, 4)
    assert share_right(candidates, learned, uneven, 4) > 0.9


def test_own_record_teaches_nothing(random: np.random.Generator) -> None:
    """A quasi-identifier that everybody has alone gives away nobody's value."""
    n, n_values = 1000, 2
    codes, values = np.arange(n, dtype=np.int32)[:, np.newaxis], random.integers(0, 2, n)
    buckets = random.permutation(n) // 10
    candidates = candidates_of(buckets, BucketValues.of(buckets, values, 2))
    own = (candidates.value == values[candidates.record]).astype(np.float64)
    given = (codes, candidates, codes, values, 2)
    right = lambda weights: share_right(candidates, weights, values, n_values)
    assert right(weights_of_source(*given)) > 0.95
    shares = right(candidates.share)
    assert right(weights_of_source(*given, own=own)) == pytest.approx(shares, abs=0.05)


def test_weights_of_source_are_naive_bayes(random: np.random.Generator) -> None:
    """In buckets of one record each value is certain; in one bucket, odds follow the counts."""
    codes = np.array([[0], [0], [0], [1], [1]], dtype=np.int32)
    values = np.array([0, 0, 1, 1, 1])
    candidates = candidates_of(
        np.zeros(2, dtype=int), BucketValues.of(np.zeros(2, dtype=int), np.array([0, 1]), 2)
    )
    weights = weights_of_source(codes[[0, 3]], candidates, codes, values, 2)
    # P(0|0) = 3/4, P(1|0) = 1/4 of value 0; 2/5 and 3/5 of value 1: odds 3/4 * 3/5 to 1/4 * 2/5.
    matched = 3 / 4 * 3 / 5
    crossed = 1 / 4 * 2 / 5
    share = matched / (matched + crossed)
    # Sinkhorn scaling keeps the odds ratio: w/(1-w) squared is the ratio of the products.
    odds = (share / (1 - share)) ** 0.5
    assert weights[0] == pytest.approx(odds / (1 + odds), rel=1e-3)


def test_learners_and_sweeps_beat(random: np.random.Generator) -> None:
    codes, buckets, values = table(random)
    beats: list[None] = []
    pulse = Pulse(heartbeat=lambda: beats.append(None))
    sat = BucketValues.of(buckets, values, 5)
    learned_weights(codes, candidates_of(buckets, sat), 5, pulse=pulse)
    assert len(beats) > 15
    before = len(beats)
    truth = TrueValues.of(np.arange(300), values, 300, 5)
    half = np.arange(50) < 25
    orders = sweep_orders(codes)
    name_rarest(codes, buckets, sat, np.arange(300), truth, np.full(5, 0.9), orders, half, pulse)
    assert len(beats) - before == len(orders)
