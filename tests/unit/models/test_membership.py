"""Guesses about who was in the source."""

from __future__ import annotations

from math import inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.errors import InvalidParameterError
from kanon_db.models._votes import (
    best_threshold,
    calibrated_scores,
    highest_rate,
    membership_rate,
)

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
    scores = calibrated_scores(own, others)
    assert membership_rate(scores[:1000], scores[1000:], 1.5) > 0.9 > 0.65 > plain
    assert calibrated_scores(own, np.repeat(own[None], 2, axis=0)).tolist() == [0] * 2000


@given(st.floats(0, 25), st.just(0.0) | st.floats(0, 1))
def test_the_bound_is_that_of_randomized_response(epsilon: float, delta: float) -> None:
    rate = highest_rate(epsilon, delta)
    assert 0.5 <= rate <= 1
    if delta == 0 and rate < 1:
        # An answer that is true with this probability is epsilon-differentially private.
        assert log(rate / (1 - rate)) == pytest.approx(epsilon, rel=1e-3, abs=1e-9)
    assert highest_rate(epsilon, 1.0) == 1
    assert highest_rate(1000) == 1
