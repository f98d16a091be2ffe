"""Weights of values: against all matchings of small buckets, and within their caps and levels."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.bucketization import value_model
from kanon_db.algorithms.bucketization.buckets import BucketedRecords, WeightUnits, capped
from kanon_db.algorithms.bucketization.value_model import ValueModel
from kanon_db.algorithms.ground.arrays import FloatArray, IntArray, SingleArray
from tests.profiles import examples

SEEDS = st.integers(0, 2**32)


def bucketed(random: np.random.Generator, largest: int, n_values: int) -> BucketedRecords:
    """Make a few buckets, of any values; each record has a code of its own."""
    sizes = random.integers(1, largest + 1, random.integers(1, 4))
    n = int(sizes.sum())
    values = random.integers(0, random.integers(1, n_values + 1), n).astype(np.int32)
    starts = np.append(0, np.cumsum(sizes))
    return BucketedRecords([np.arange(n, dtype=np.int32)], values, starts, n_values)


def counted(records: BucketedRecords) -> IntArray:
    """Count each value in each bucket."""
    sizes = np.diff(records.starts)
    keys = np.repeat(np.arange(sizes.size), sizes) * records.n_values + records.values
    found: IntArray = np.bincount(keys, minlength=sizes.size * records.n_values)
    return found.reshape(sizes.size, records.n_values)


def summed(records: BucketedRecords, weights: FloatArray) -> FloatArray:
    """Add up each value's weights in each bucket."""
    found: FloatArray = np.add.reduceat(weights.astype(np.float64), records.starts[:-1], axis=0)
    return found


def scored(effects: SingleArray) -> ValueModel:
    """Make a model in which each record has scores of its own."""
    n, n_values = effects.shape
    numbers = np.arange(n, dtype=np.int32)
    table = value_model._Table((0,), (numbers,), numbers)
    return ValueModel([table], effects, np.zeros(n_values, dtype=np.float32), 0.0)


def of_all_matchings(scores: SingleArray, records: BucketedRecords) -> FloatArray:
    """Weigh all ways to give a bucket's values to its records."""
    found = np.zeros(scores.shape)
    for start, end in zip(records.starts[:-1].tolist(), records.starts[1:].tolist(), strict=True):
        places = np.arange(start, end)
        ways = [list(way) for way in set(permutations(records.values[start:end].tolist()))]
        logs = np.array([float(scores[places, way].sum()) for way in ways])
        weights = np.exp(logs - logs.max())
        for way, weight in zip(ways, weights / weights.sum(), strict=True):
            found[places, way] += weight
    return found


@given(SEEDS)
def test_extreme_shares_are_those_of_some_bucket(seed: int) -> None:
    records = bucketed(np.random.default_rng(seed), 6, 4)
    sizes = np.diff(records.starts)
    by_bucket = np.lexsort((records.values, np.repeat(np.arange(sizes.size), sizes)))
    least, most = replace(records, values=records.values[by_bucket]).extreme_shares
    for value, column in enumerate(counted(records).T.tolist()):
        shares = [Fraction(n, size) for n, size in zip(column, sizes.tolist(), strict=True) if n]
        assert (least[value], most[value]) == (min(shares, default=1), max(shares, default=0))


@given(SEEDS, st.sampled_from([0.3, 1.0, 3.0, 30.0]))
@settings(max_examples=examples(80))
def test_posteriors_are_those_of_all_matchings(seed: int, spread: float) -> None:
    """Of few records, exactly."""
    random = np.random.default_rng(seed)
    records = bucketed(random, value_model._ALL_MATCHED, 4)
    scores = (spread * random.normal(size=(records.n_records, 4))).astype(np.float32)
    posteriors = scored(scores).posteriors(records, random)
    assert posteriors == pytest.approx(of_all_matchings(scores, records), abs=1e-4)


@given(SEEDS, st.sampled_from([0.3, 1.0, 3.0]))
@settings(max_examples=examples(20))
def test_swaps_are_those_of_all_matchings(seed: int, spread: float) -> None:
    """On average, in buckets that have more records."""
    random = np.random.default_rng(seed)
    n = value_model._ALL_MATCHED + 1
    values = random.integers(0, random.integers(1, 4), n).astype(np.int32)
    records = BucketedRecords([np.arange(n, dtype=np.int32)], values, np.array([0, n]), 4)
    scores = (spread * random.normal(size=(n, 4))).astype(np.float32)
    model = scored(scores)
    runs = [model.posteriors(records, random) for _ in range(60)]
    for found in runs:
        assert found.sum(axis=1) == pytest.approx(1, abs=1e-4)
        assert (found[counted(records).repeat(np.diff(records.starts), axis=0) == 0] == 0).all()
    mean = np.mean(runs, axis=0)
    error = np.std(runs, axis=0) / np.sqrt(len(runs))
    expected = of_all_matchings(scores, records)
    assert (np.abs(mean - expected) <= 6 * error + 0.01).all()
    assert np.abs(summed(records, mean) - counted(records)).max() < 0.15


@given(SEEDS)
@settings(max_examples=examples(20))
def test_certain_scores_are_followed(seed: int) -> None:
    """However large they are; nothing overflows."""
    random = np.random.default_rng(seed)
    records = bucketed(random, 5, 4)
    truth = np.concatenate(
        [random.permutation(records.values[a:b]) for a, b in
         zip(records.starts[:-1], records.starts[1:], strict=True)]
    )  # fmt: skip
    scores = np.full((records.n_records, 4), -300, dtype=np.float32)
    scores[np.arange(truth.size), truth] = 300
    found = scored(scores).posteriors(records, random)
    assert np.isfinite(found).all()
    assert (found.argmax(axis=1) == truth).all()


@given(SEEDS, st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=examples(80))
def test_weights_never_exceed_their_caps(seed: int, room: float) -> None:
    random = np.random.default_rng(seed)
    records = bucketed(random, 12, 5)
    shares = counted(records) / np.diff(records.starts)[:, np.newaxis]
    most = shares.max(axis=0)
    caps = (most + room * random.random(5) * (1 - most)).astype(np.float32)
    weights = random.dirichlet([0.3] * 5, records.n_records).astype(np.float32)
    capped(weights, records, caps)
    assert (weights >= 0).all()
    assert (weights <= caps * (1 + 1e-6)).all()
    assert summed(records, weights) == pytest.approx(counted(records), rel=1e-4)
    assert (weights[records.shares == 0] == 0).all()
    # A value whose share is the cap has it everywhere.
    at_cap = np.repeat(shares >= caps * (1 - 1e-6), np.diff(records.starts), axis=0)
    assert weights[at_cap] == pytest.approx(records.shares[at_cap], rel=1e-4)


FRACTIONS = st.fractions(Fraction(1, 400), 1, max_denominator=400)


@given(st.lists(st.tuples(FRACTIONS, FRACTIONS), min_size=1, max_size=5))
@settings(max_examples=examples(80))
def test_units_write_shares_below_thresholds(drawn: list[tuple[Fraction, Fraction]]) -> None:
    """None if and only if no level of at most 255 has a weight between share and threshold."""
    thresholds = [max(pair) for pair in drawn]
    shares = [min(pair) for pair in drawn]
    units = WeightUnits.of(thresholds, shares)
    possible = [
        any(
            share <= Fraction(level, -(-level * threshold.denominator // threshold.numerator))
            for level in range(1, 256)
        )
        for threshold, share in zip(thresholds, shares, strict=True)
    ]
    assert (units is not None) == all(possible)
    if units is None:
        return
    assert 1 <= units.most.min() <= units.most.max() <= 255
    for most, parts, threshold, share in zip(
        units.most.tolist(), units.parts.tolist(), thresholds, shares, strict=True
    ):
        assert share <= Fraction(most, parts) <= threshold


@given(SEEDS)
@settings(max_examples=examples(80))
def test_levels_add_up(seed: int) -> None:
    random = np.random.default_rng(seed)
    records = bucketed(random, 12, 5)
    shares = counted(records) / np.diff(records.starts)[:, np.newaxis]
    most = [Fraction(float(share)).limit_denominator(12) for share in shares.max(axis=0)]
    thresholds = [
        min(Fraction(1), max(share, Fraction(1, 12)) + Fraction(int(random.integers(0, 7)), 20))
        for share in most
    ]
    units = WeightUnits.of(thresholds, most)
    assert units is not None
    weights = random.dirichlet([0.3] * 5, records.n_records).astype(np.float32)
    capped(weights, records, units.caps)
    levels = units.levels(weights, records, random)
    assert (levels <= units.most).all()
    assert (summed(records, levels) == counted(records) * units.parts).all()
    assert (levels[records.shares == 0] == 0).all()
    off = np.abs(levels - weights.astype(np.float64) * units.parts)
    assert off.max() < 1.01
