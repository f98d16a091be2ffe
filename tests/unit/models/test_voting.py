"""Votes, without noise and with it."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import exp, inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.errors import InvalidParameterError
from kanon_db.models._votes import (
    best_threshold,
    calibrate_scores,
    count_votes,
    discrete_gaussian,
    highest_rate,
    membership_rate,
    noisy_inputs,
    noisy_vote,
    vote,
)
from kanon_db.randomness import SecureRandom

RARELY = 1e-9
"""Probability of a false alarm, per test: not once in the life of the project."""

LABELS = arrays(
    np.int64, st.tuples(st.integers(1, 9), st.integers(0, 6)), elements=st.integers(0, 3)
)


@given(LABELS)
def test_votes_by_their_definition(labels: IntArray) -> None:
    found = vote(labels, 4)
    for row in range(labels.shape[1]):
        counts = Counter(labels[:, row].tolist())
        most = max(counts.values())
        assert found.winner[row] == min(c for c, n in counts.items() if n == most)
        assert found.share[row] == most / len(labels)


@given(LABELS, st.data())
def test_one_member_changes_counts_by_one_vote(labels: IntArray, data: st.DataObject) -> None:
    """The sensitivity that the proof of noisy_vote names: at most sqrt(2) in each row."""
    member = data.draw(st.integers(0, len(labels) - 1))
    changed = labels.copy()
    changed[member] = data.draw(arrays(np.int64, labels.shape[1], elements=st.integers(0, 3)))
    difference = count_votes(changed, 4) - count_votes(labels, 4)
    assert ((difference**2).sum(axis=1) <= 2).all()


@pytest.mark.parametrize(
    "variance", [Fraction(1, 3), Fraction(1), Fraction(49), Fraction(10001, 7)]
)
def test_discrete_gaussian(variance: Fraction) -> None:
    from scipy.stats import chisquare

    n = 20_000
    drawn = discrete_gaussian(variance, n, SecureRandom())
    reach = int(3 * float(variance) ** 0.5) + 1
    values = np.arange(-40 * reach, 40 * reach + 1)
    weights = np.exp(-(values.astype(np.float64) ** 2) / (2 * float(variance)))
    expected = weights / weights.sum() * n
    # Bins of what is expected at least ten times; the rest are the two tails.
    inner = abs(values) <= max(abs(values[expected >= 10]))
    low, high = values[inner][0], values[inner][-1]
    observed = [(drawn < low).sum() + (drawn > high).sum()]
    observed += [(drawn == value).sum() for value in range(low, high + 1)]
    of_tails = expected[~inner].sum()
    wanted = np.array([of_tails, *expected[inner]])
    if of_tails < 1e-6:
        assert observed.pop(0) == 0
        wanted = wanted[1:]
    assert chisquare(observed, wanted * n / wanted.sum()).pvalue > RARELY


def test_noisy_votes_are_decided_by_noisy_counts() -> None:
    """With two members of two classes, the winner's probability is that of the noise."""
    from scipy.stats import chisquare

    n, sigma = 20_000, 2
    found = noisy_vote(np.zeros((2, n), np.int64), 2, sigma)
    values = np.arange(-60, 61)
    weights = np.array([exp(-(v**2) / (2 * sigma**2)) for v in values.tolist()])
    weights /= weights.sum()
    # Class 0 has two votes more, and wins ties.
    wins = sum(
        weights[i] * weights[values <= value + 2].sum() for i, value in enumerate(values.tolist())
    )
    observed = int((found.winner == 0).sum())
    assert chisquare([observed, n - observed], [n * wins, n * (1 - wins)]).pvalue > RARELY
    assert found.share.min() >= 0
    assert found.share.max() <= 1


def test_noise_is_fresh() -> None:
    labels = np.zeros((50, 300), np.int64)
    first, second = noisy_vote(labels, 3, 30), noisy_vote(labels, 3, 30)
    assert (first.share != second.share).any()
    assert noisy_vote(labels[:, :0], 3, 30).winner.tolist() == []


@pytest.mark.parametrize("sigma", [0, -1, 0.5])
def test_noise_is_a_whole_number(sigma: int) -> None:
    with pytest.raises(InvalidParameterError, match="whole number"):
        noisy_vote(np.zeros((2, 2), np.int64), 2, sigma)


def test_it_is_laplace_noise() -> None:
    from scipy.stats import kstest, laplace

    drawn = noisy_inputs(np.zeros(200_000, np.float32), 0.5)
    assert kstest(drawn.astype(np.float64), laplace(scale=0.5).cdf).pvalue > RARELY


def test_signs_and_neighbors_are_independent() -> None:
    drawn = noisy_inputs(np.zeros((2, 100_000), np.float32), 1.0)
    # Standard errors of a mean of signs, and of a correlation.
    assert abs(np.sign(drawn).mean()) < 6 / np.sqrt(200_000)
    assert abs(np.corrcoef(drawn)[0, 1]) < 6 / np.sqrt(100_000)
    assert abs(np.corrcoef(abs(drawn[0]), drawn[0] > 0)[0, 1]) < 6 / np.sqrt(100_000)


def test_it_is_added_to_the_input() -> None:
    inputs = np.full((3, 8, 8, 1), 1000.0, np.float32)
    drawn = noisy_inputs(inputs, 0.1)
    assert (drawn.shape, drawn.dtype) == (inputs.shape, np.float32)
    assert abs(drawn - 1000).max() < 0.1 * 23  # the largest that 31 bits can give
    assert (drawn != noisy_inputs(inputs, 0.1)).mean() > 0.9


@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
def test_extreme_bytes_give_finite_noise(byte: bytes) -> None:
    class Extreme:
        def bytes(self, length: int) -> bytes:
            return byte * length

    assert np.isfinite(noisy_inputs(np.zeros(4, np.float32), 1.0, Extreme())).all()


def test_without_noise_inputs_stay() -> None:
    inputs = np.ones((2, 3), np.float32)
    assert noisy_inputs(inputs, 0.0) is inputs


SCORES = arrays(np.float64, st.integers(1, 12), elements=st.integers(0, 5))


@given(SCORES, SCORES)
def test_no_threshold_is_better(inside: FloatArray, outside: FloatArray) -> None:
    best = membership_rate(inside, outside, best_threshold(inside, outside))
    others = [membership_rate(inside, outside, t) for t in (*np.arange(-1, 7), inf)]
    assert best == pytest.approx(max(others))


def test_rates() -> None:
    inside, outside = np.array([3.0, 4.0]), np.array([1.0, 2.0])
    assert best_threshold(inside, outside) == 3
    assert membership_rate(inside, outside, 3) == 1
    assert membership_rate(outside, inside, 3) == 0
    assert best_threshold(outside, inside) == inf
    with pytest.raises(InvalidParameterError, match="inside and outside"):
        membership_rate(inside, outside[:0], 3)


def test_calibration_finds_who_is_easy_for_all() -> None:
    """Scores that differ from person to person hide what calibrated ones show."""
    generator = np.random.default_rng(0)
    easiness = generator.normal(0, 10, 2000)
    others = easiness + generator.normal(0, 1, (20, 2000))
    own = easiness + generator.normal(0, 1, 2000)
    own[:1000] += 3
    plain = membership_rate(own[:1000], own[1000:], best_threshold(own[:1000], own[1000:]))
    scores = calibrate_scores(own, others)
    assert membership_rate(scores[:1000], scores[1000:], 1.5) > 0.9 > 0.65 > plain
    assert calibrate_scores(own, np.repeat(own[None], 2, axis=0)).tolist() == [0] * 2000


@given(st.floats(0, 25), st.just(0.0) | st.floats(0, 1))
def test_the_bound_is_that_of_randomized_response(epsilon: float, delta: float) -> None:
    rate = highest_rate(epsilon, delta)
    assert 0.5 <= rate <= 1
    if delta == 0 and rate < 1:
        # An answer that is true with this probability is epsilon-differentially private.
        assert log(rate / (1 - rate)) == pytest.approx(epsilon, rel=1e-3, abs=1e-9)
    assert highest_rate(epsilon, 1.0) == 1
    assert highest_rate(1000) == 1
