"""What buckets hide of dependences, beside tables whose correlations are known."""

from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.publications.buckets.tallies import (
    DependenceEffect,
    DependenceEffects,
    MatchedPairs,
    PairSums,
    SideSums,
    judge_pairs,
)

SIZE = 3
STRENGTH = 0.15


def side(x: FloatArray) -> SideSums:
    """What one number of each record adds up to, in buckets of neighbors."""
    packed = (x.reshape(-1, SIZE).sum(axis=1) ** 2).sum() / SIZE
    parts = x.sum(), (x * x).sum(), packed, float(np.count_nonzero(x))
    return SideSums(*(np.array([one]) for one in parts))


def hide(
    x: FloatArray, y: FloatArray, *, is_shown: bool = False
) -> tuple[float, DependenceEffects]:
    """The product that is expected, and what a dependence adds."""
    expected = float((x.reshape(-1, SIZE).sum(axis=1) @ y.reshape(-1, SIZE).sum(axis=1)) / SIZE)
    sums = PairSums(side(x), side(y), x.size, x.size // SIZE)
    return expected, sums.hide(STRENGTH, np.array([expected]) if is_shown else None)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.02])
def test_few_records_have_weaker_correlations_than_a_half(share: float) -> None:
    """If the few differ from others by as much as the many do, so does what they have together."""
    random = np.random.default_rng(4)
    effects = []
    for _ in range(300):
        marked = random.random(1200) < share
        y = random.normal(size=1200) + random.normal(0, 2 * STRENGTH) * marked
        x = marked.astype(float)
        effects.append(np.corrcoef(x, y)[0, 1] ** 2 - 1 / x.size)
        hidden = hide(x, y)[1].variance[0]
        drawn, inside = side(x).inside[0] * SIZE / (SIZE - 1), side(y).inside[0]
        effects[-1] *= drawn * inside**2 / side(y).varying(x.size)[0] / hidden
    assert np.mean(effects) == pytest.approx(1.0, abs=0.2)


def with_correlation(n: int, correlation: float, random: np.random.Generator) -> FloatArray:
    """Two numbers of each record."""
    covariance = [[1.0, correlation], [correlation, 1.0]]
    return random.multivariate_normal([2.0, -1.0], covariance, n).T


@pytest.mark.parametrize("are_marks", [False, True])
def test_errors_are_those_of_made_tables(are_marks: bool) -> None:
    random = np.random.default_rng(3)
    misses = []
    for _ in range(400):
        x, y = with_correlation(1200, random.normal(0, STRENGTH), random)
        strength = 0.5  # That of a half is half of it.
        if are_marks:
            x, y = (x > 2.3).astype(float), (y > -1.0).astype(float)
            strength = 0.64  # A correlation of marks is weaker.
        expected, hidden = hide(x, y)
        inside = [one.inside[0] for one in (side(x), side(y))]
        draw = inside[0] * inside[1] / (x.size - x.size // SIZE)
        misses.append((x @ y - expected) / np.sqrt(strength**2 * hidden.variance[0] + draw))
    assert np.std(misses) == pytest.approx(1.0, abs=0.1)
    assert abs(np.mean(misses)) < 0.15
    for errors, least, most in ((1, 0.63, 0.75), (2, 0.93, 0.98), (3, 0.98, 1.0)):
        assert least <= np.mean(np.abs(misses) < errors) <= most


@pytest.mark.parametrize("x", [np.zeros(12), np.ones(12), np.repeat([0.0, 1.0, 0.0, 1.0], SIZE)])
def test_where_buckets_hide_nothing_nothing_is_in_doubt(x: FloatArray) -> None:
    y = np.random.default_rng(6).integers(0, 2, 12).astype(float)
    for is_shown in (False, True):
        for one, other in ((x, y), (y, x)):
            hidden = hide(one, other, is_shown=is_shown)[1].at(0)
            assert (hidden.variance, hidden.shown) == (0.0, pytest.approx(0.0, abs=1e-12))


def test_what_shows_between_buckets_is_in_the_error() -> None:
    """The error grows with what shows, shrinks where nothing does, and knows what weights tell."""
    random, errors = np.random.default_rng(5), []
    for correlation in (0.0, 0.6):
        x, y = with_correlation(6000, correlation, random)
        expected, hidden = hide(x, y, is_shown=True)
        off = x @ y - expected
        assert hidden.at(0).shown == pytest.approx(off, abs=0.06 * x.size)
        plain = hide(x, y)[1].at(0)
        shown, weighed = (
            judge_pairs(
                MatchedPairs(expected, 0.0, -np.inf, np.inf), hidden.at(0), by_weights=by_weights
            ).std_error
            for by_weights in (None, expected + off)
        )
        errors.append((shown / np.sqrt(plain.variance), weighed / np.sqrt(plain.variance)))
    (none, _), (strong, weighed) = errors
    assert none < 0.8
    assert strong > 1.8
    assert weighed < 0.8


def test_the_paper_estimator_is_off_by_what_it_leaves_out() -> None:
    pairs = MatchedPairs(10.0, 9.0, 0.0, 100.0)
    learned, by_paper = (
        judge_pairs(pairs, DependenceEffect(16.0), by_weights=22.0, is_paper=is_paper)
        for is_paper in (False, True)
    )
    assert (learned.estimate, learned.std_error) == (22.0, 5.0)
    assert (by_paper.estimate, by_paper.std_error) == (10.0, 13.0)


@pytest.mark.parametrize("correlation", [-1.0, 0.0, 1.0])
def test_likely_ranges_of_equal_groups_meet(correlation: float) -> None:
    """However errors of two groups go together: ranges that do not meet tell them apart."""
    random, errors, apart = np.random.default_rng(8), (3.0, 5.0), 0
    for _ in range(1000):
        one, noise = random.normal(size=2)
        other = correlation * one + np.sqrt(1 - correlation**2) * noise
        low, high = (
            judge_pairs(MatchedPairs(50 + off * error, error**2, 0, 100), DependenceEffect(0.0))
            for off, error in sorted(zip((one, other), errors, strict=True), key=np.prod)
        )
        apart += (low.likely_high or 0.0) < (high.likely_low or 0.0)
    assert apart <= 20
