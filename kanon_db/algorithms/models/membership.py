"""Membership inference: how often someone tells from answers who was in the source."""

from __future__ import annotations

from math import exp

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.errors import InvalidParameterError


def best_threshold(inside: FloatArray, outside: FloatArray) -> float:
    """Learn from which score on to guess that someone was in the source.

    Parameters
    ----------
    inside, outside : ndarray of float64
        Scores of people in the source and of others: of a half that is not guessed about, or of a
        shadow model, which the attacker trained on people of their own.

    Returns
    -------
    float
        With the highest balanced accuracy: guess *inside* at or above it. Infinity if to guess
        *outside* of everybody is best.
    """
    _check(inside, outside)
    candidates = np.unique(np.concatenate([inside, outside]))
    right_inside = 1 - np.searchsorted(np.sort(inside), candidates, side="left") / inside.size
    wrong_outside = 1 - np.searchsorted(np.sort(outside), candidates, side="left") / outside.size
    advantages = right_inside - wrong_outside
    best = int(advantages.argmax())
    return float(candidates[best]) if advantages[best] > 0 else np.inf


def membership_rate(inside: FloatArray, outside: FloatArray, threshold: float) -> float:
    """Return how often guesses by a threshold are right, if half of the people are in the source.

    Parameters
    ----------
    inside, outside : ndarray of float64
        Scores, such as the share of members that agree with the true class, or its probability.
    threshold : float
        From :func:`best_threshold`, of other people.

    Returns
    -------
    float
        Balanced accuracy: 0.5 is as good as a coin.

    Notes
    -----
    **Source:** S. Yeom et al., *Privacy risk in machine learning*, CSF 2018; with thresholds of
    shadow models, R. Shokri et al., *Membership inference attacks against machine learning models*,
    S&P 2017. One attack that fails shows little; the bound holds against all.

    Examples
    --------
    >>> membership_rate(np.array([0.9, 0.8]), np.array([0.7, 0.9]), 0.75)
    0.75
    """
    _check(inside, outside)
    right = (inside >= threshold).mean() + (outside < threshold).mean()
    return float(right) / 2


def calibrated_scores(own: FloatArray, others: FloatArray) -> FloatArray:
    """Compare what a model says of people with what models without them say.

    Parameters
    ----------
    own : ndarray of float64, shape (n_people,)
        Logits or log-odds of the true class, from the model under attack.
    others : ndarray of float64, shape (n_models, n_people)
        The same from shadow models that were trained without them.

    Returns
    -------
    ndarray of float64, shape (n_people,)
        Scores for :func:`membership_rate`.

    Notes
    -----
    **Source:** N. Carlini et al., *Membership inference attacks from first principles*, S&P 2022,
    the offline form, with one spread for all people. With disjoint parts, the members that were not
    trained on someone are such shadow models.
    """
    spread = float((others - others.mean(axis=0)).std()) or 1.0
    found: FloatArray = (own - others.mean(axis=0)) / spread
    return found


def highest_rate(epsilon: float, delta: float = 0.0) -> float:
    """Return the most that any attack can reach under a budget.

    Parameters
    ----------
    epsilon, delta : float
        Of all answers that the attacker sees, for one person's records.

    Returns
    -------
    float
        Balanced accuracy; 1 if the budget bounds nothing.

    Notes
    -----
    (epsilon, delta)-differential privacy is a region of error rates: true positives minus false
    positives are at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) (P. Kairouz, S. Oh, P.
    Viswanath, *The composition theorem for differential privacy*, ICML 2015). Of a person's
    presence, as of any other two cases that the neighbors of the guarantee are.

    Examples
    --------
    >>> highest_rate(0.0), round(highest_rate(1.0), 3)
    (0.5, 0.731)
    """
    if epsilon > 700:
        return 1.0
    advantage = (exp(epsilon) - 1 + 2 * delta) / (exp(epsilon) + 1)
    return min(1.0, 0.5 + advantage / 2)


def _check(inside: FloatArray, outside: FloatArray) -> None:
    if not inside.size or not outside.size:
        raise InvalidParameterError(
            "membership needs people inside and outside of the source",
            detail=f"{inside.size} inside, {outside.size} outside",
        )
