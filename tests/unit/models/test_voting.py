"""Votes, without noise and with it."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.errors import InvalidParameterError
from kanon_db.models._votes import count_votes, discrete_gaussian, noisy_vote, vote
from kanon_db.randomness import SecureRandom
from tests.unit.models.chance import RARELY

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
