"""What votes cost agrees with formulas, and more never costs less."""

from __future__ import annotations

import sys
from math import inf, log, log1p

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kanon_db.errors import InvalidParameterError, ServerError
from kanon_db.models._votes import epsilon_after, votes_within

DELTAS = st.floats(1e-12, 0.1)
SIGMAS = st.integers(1, 300)


def closed_form(votes: int, delta: float, noise: int) -> float:
    """Rényi divergence of order a is votes * a / noise^2; the best a is looked for.

    The conversion is that of Canonne, Kamath and Steinke (2020), Proposition 12.
    """
    from scipy.optimize import minimize_scalar

    rho = votes / noise**2

    def epsilon(of_order: float) -> float:
        a = 1 + 10**of_order
        return rho * a + log1p(-1 / a) - (log(delta) + log(a)) / (a - 1)

    return max(0.0, minimize_scalar(epsilon, bounds=(-4, 8), method="bounded").fun)


@given(st.integers(1, 10_000), DELTAS, SIGMAS)
def test_epsilon_is_that_of_the_formula(votes: int, delta: float, noise: int) -> None:
    """dp-accounting tries orders from a list: never below the formula, and close to it."""
    expected = closed_form(votes, delta, noise)
    found = epsilon_after(votes, delta, noise)
    assert found >= expected * (1 - 1e-6) - 1e-9
    if 0.5 < expected < 20:
        assert found <= expected * 1.1


@given(st.integers(0, 5000), st.integers(0, 5000), DELTAS, SIGMAS, SIGMAS)
def test_more_votes_or_less_noise_never_cost_less(
    votes: int, more: int, delta: float, noise: int, other: int
) -> None:
    low, high = sorted((noise, other))
    assert epsilon_after(votes, delta, low) >= epsilon_after(votes, delta, high)
    assert epsilon_after(votes + more, delta, low) >= epsilon_after(votes, delta, low)


@given(st.floats(0.05, 20), DELTAS, st.integers(1, 100))
def test_votes_within_are_the_most(epsilon: float, delta: float, noise: int) -> None:
    votes = votes_within(epsilon, delta, noise)
    assume(votes < 10**6)
    assert epsilon_after(votes, delta, noise) <= epsilon
    assert epsilon_after(votes + 1, delta, noise) > epsilon


def test_no_votes_cost_nothing() -> None:
    assert epsilon_after(0, 1e-5, 10) == 0
    assert votes_within(0.01, 1e-6, 1) == 0


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.5])
def test_delta_is_a_probability(delta: float) -> None:
    with pytest.raises(InvalidParameterError, match="delta"):
        epsilon_after(1, delta, 10)
    with pytest.raises(InvalidParameterError, match="delta"):
        votes_within(1.0, delta, 10)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, inf])
def test_epsilon_is_a_budget(epsilon: float) -> None:
    with pytest.raises(InvalidParameterError, match="epsilon"):
        votes_within(epsilon, 1e-5, 10)


def test_other_numbers_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="fewer than 0"):
        epsilon_after(-1, 1e-5, 10)
    with pytest.raises(InvalidParameterError, match="whole number"):
        epsilon_after(1, 1e-5, 0)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ServerError, match="dp-accounting"):
        votes_within(1.0, 1e-5, 10)
