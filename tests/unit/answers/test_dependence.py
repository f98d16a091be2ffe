"""What buckets hide of dependences, beside tables whose correlations are known."""

from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.answers.buckets.dependence import PairSums, SideSums

SIZE = 3
STRENGTH = 0.15


def side(x: FloatArray) -> SideSums:
    """What one number of each record adds up to, in buckets of neighbors."""
    packed = (x.reshape(-1, SIZE).sum(axis=1) ** 2).sum() / SIZE
    return SideSums(*(np.array([one]) for one in (x.sum(), (x * x).sum(), packed)))


def hide(x: FloatArray, y: FloatArray) -> tuple[float, float, float]:
    """The product that is expected, what is likely beside it, and the variance of the rest."""
    expected = float((x.reshape(-1, SIZE).sum(axis=1) @ y.reshape(-1, SIZE).sum(axis=1)) / SIZE)
    sums = PairSums(side(x), side(y), x.size, x.size // SIZE)
    hidden = sums.hide(np.array([expected]), STRENGTH)
    return expected, *hidden.at(0)


def with_correlation(n: int, correlation: float, random: np.random.Generator) -> FloatArray:
    """Two numbers of each record."""
    covariance = [[1.0, correlation], [correlation, 1.0]]
    return random.multivariate_normal([2.0, -1.0], covariance, n).T


@pytest.mark.parametrize("are_marks", [False, True])
def test_errors_are_those_of_made_tables(are_marks: bool) -> None:
    random = np.random.default_rng(3)
    off, misses = [], []
    for _ in range(300):
        x, y = with_correlation(1200, random.normal(0, STRENGTH), random)
        if are_marks:
            x, y = (x > 2.3).astype(float), (y > -1.0).astype(float)
        expected, shown, untold = hide(x, y)
        inside = [one.inside[0] for one in (side(x), side(y))]
        draw = inside[0] * inside[1] / (x.size - x.size // SIZE)
        off.append((x @ y - expected - shown) / np.sqrt(untold + draw))
        misses.append((x @ y - expected) / np.sqrt(shown**2 + untold + draw))
    # What is between and inside may be off each other, which these tables are not.
    assert 0.5 < np.std(off) < 1.1
    assert abs(np.mean(off)) < 0.15
    assert np.mean(np.abs(misses) < 2.5) > 0.97


def test_a_strong_correlation_shows() -> None:
    x, y = with_correlation(30_000, 0.6, np.random.default_rng(4))
    expected, shown, _ = hide(x, y)
    assert shown == pytest.approx(x @ y - expected, rel=0.1)


def test_the_same_values_in_all_buckets_tell_nothing() -> None:
    x = np.random.default_rng(5).integers(0, 2, 600).astype(float)
    y = np.tile([1.0, 0.0, 0.0], 200)
    _, shown, untold = hide(x, y)
    records, values = side(x), side(y)
    reach = records.inside * values.inside / np.sqrt(records.varying(600) * values.varying(600))
    assert shown == 0
    assert np.sqrt(untold) == pytest.approx(STRENGTH * reach[0] * 1.5)


@pytest.mark.parametrize("x", [np.zeros(12), np.ones(12), np.repeat([0.0, 1.0, 0.0, 1.0], SIZE)])
def test_where_buckets_hide_nothing_nothing_is_in_doubt(x: FloatArray) -> None:
    y = np.random.default_rng(6).integers(0, 2, 12).astype(float)
    assert hide(x, y)[1:] == (0.0, 0.0)
    assert hide(y, x)[1:] == (0.0, 0.0)
