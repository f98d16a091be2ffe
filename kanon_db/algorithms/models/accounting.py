"""What noisy votes cost of a budget, by the library dp-accounting."""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

from kanon_db.errors import InvalidParameterError, ServerError

MOST_VOTES = 10**9


def epsilon_after(votes: int, delta: float, noise: int) -> float:
    """Return the epsilon that a number of noisy votes has cost.

    Parameters
    ----------
    votes : int
        Rows that were classified, by all questions together.
    delta : float
    noise : int
        The sigma of :func:`kanon_db.algorithms.models.voting.noisy_vote`.

    Returns
    -------
    float

    Raises
    ------
    InvalidParameterError
        If a parameter is out of range.
    ServerError
        If dp-accounting is missing.

    Notes
    -----
    For replacing all records of one person, whatever the votes were (no data-dependent bound). A
    vote satisfies zCDP with rho = 1 / noise^2, thus Rényi differential privacy of every order a
    with a / noise^2: the same as continuous Gaussian noise of the multiplier noise / sqrt(2), which
    is what dp-accounting is asked about. It composes them and finds the best order for delta. Its
    other accountants must not be used here: they assume continuous noise.
    """
    _check(delta, noise)
    if votes < 0:
        raise InvalidParameterError("there cannot be fewer than 0 votes", detail=f"{votes}")
    if not votes:
        return 0.0
    accounting = _dp_accounting()
    event = accounting.GaussianDpEvent(noise / sqrt(2))
    accountant = accounting.rdp.RdpAccountant()
    accountant.compose(event, votes)
    return float(accountant.get_epsilon(delta))


def votes_within(epsilon: float, delta: float, noise: int) -> int:
    """Return how many noisy votes a budget allows.

    Parameters
    ----------
    epsilon, delta : float
        The budget.
    noise : int
        As in :func:`epsilon_after`.

    Returns
    -------
    int
        The largest number whose epsilon is within the budget; 0 if even one vote costs more.

    Raises
    ------
    InvalidParameterError
        If a parameter is out of range.
    ServerError
        If dp-accounting is missing.
    """
    _check(delta, noise)
    if not 0 < epsilon < inf:
        raise InvalidParameterError("epsilon must be above 0", detail=f"epsilon = {epsilon}")
    low, high = 0, 1
    while high < MOST_VOTES and epsilon_after(high, delta, noise) <= epsilon:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if epsilon_after(middle, delta, noise) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def _check(delta: float, noise: int) -> None:
    if not 0 < delta < 1:
        raise InvalidParameterError(
            "delta must be between 0 and 1", detail=f"delta = {delta}", hint="take at most 1 / n"
        )
    if not isinstance(noise, int) or noise < 1:
        raise InvalidParameterError(
            "the noise on votes must be a whole number from 1", detail=f"sigma = {noise}"
        )


def _dp_accounting() -> Any:
    try:
        import dp_accounting  # type: ignore[import-untyped]
    except ImportError:
        raise ServerError(
            "budgets need dp-accounting",
            hint="pip install 'kanon_db[models]' in the environment that publishes",
        ) from None
    return dp_accounting
