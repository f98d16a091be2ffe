"""The differentially private answers that buckets are compared with keep their own promise.

They are checked against the definition, not against themselves: how much likelier one answer may be
with a person than without.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.noisy_counts import (
    gaussian_scale,
    geometric_noise,
    randomized_response,
    truth_probability,
    zcdp_budget,
)

pytestmark = pytest.mark.long

N_DRAWS = 400_000


def gaussian_delta(epsilon: float, ratio: float) -> float:
    """Return the exact delta of a Gaussian mechanism; ratio: sensitivity / standard deviation.

    B. Balle, Y.-X. Wang, Improving the Gaussian mechanism for differential privacy, ICML 2018,
    Theorem 8.
    """

    def phi(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    return phi(ratio / 2 - epsilon / ratio) - math.exp(epsilon) * phi(-ratio / 2 - epsilon / ratio)


@pytest.mark.parametrize(("epsilon", "n_questions"), [(1.0, 1), (2.0, 1), (5.0, 10)])
def test_privacy_loss_of_geometric_noise_is_the_share_of_epsilon(
    epsilon: float, n_questions: int
) -> None:
    noise = geometric_noise(N_DRAWS, epsilon, n_questions, np.random.default_rng(0))
    often = {int(x): int(n) for x, n in zip(*np.unique(noise, return_counts=True), strict=True)}
    compared = 0
    for x, n in often.items():
        if min(n, often.get(x + 1, 0)) < 2000:
            continue
        # With the person, the same answer needs a noise that is smaller by 1.
        loss = abs(math.log(n / often[x + 1]))
        assert loss == pytest.approx(epsilon / n_questions, abs=5 * math.sqrt(2 / often[x + 1]))
        compared += 1
    assert compared >= 4


def test_geometric_noise_is_unbiased_and_grows_with_the_number_of_questions() -> None:
    for n_questions in (1, 10, 100):
        noise = geometric_noise(N_DRAWS, 1.0, n_questions, np.random.default_rng(1))
        ratio = math.exp(-1 / n_questions)
        deviation = math.sqrt(2 * ratio) / (1 - ratio)
        assert noise.mean() == pytest.approx(0, abs=5 * deviation / math.sqrt(N_DRAWS))
        assert noise.std() == pytest.approx(deviation, rel=0.02)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 5.0, 10.0])
@pytest.mark.parametrize("delta", [1e-6, 30162**-1.1])
def test_zcdp_budget_keeps_delta_and_is_nearly_used_up(epsilon: float, delta: float) -> None:
    rho = zcdp_budget(epsilon, delta)
    assert gaussian_delta(epsilon, math.sqrt(2 * rho)) <= delta
    assert gaussian_delta(epsilon, math.sqrt(2 * 1.5 * rho)) > delta
    # At least what the simple conversion allows (Bun and Steinke 2016, Proposition 1.3).
    simple = (math.sqrt(math.log(1 / delta) + epsilon) - math.sqrt(math.log(1 / delta))) ** 2
    assert rho >= simple


def test_gaussian_composition_adds_up_the_budgets_of_the_questions() -> None:
    assert gaussian_scale(0.5, 1) == 1
    for n_questions in (1, 10, 10_000):
        whole = gaussian_scale(0.03, n_questions)
        assert whole == pytest.approx(gaussian_scale(0.03 / n_questions, 1))


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomized_response_favors_the_truth_by_e_to_the_epsilon(epsilon: float) -> None:
    generator = np.random.default_rng(2)
    for value in range(3):
        truth = np.full(N_DRAWS, value, dtype=np.int32)
        reported = np.bincount(randomized_response(truth, 3, epsilon, generator), minlength=3)
        assert reported[value] / N_DRAWS == pytest.approx(truth_probability(epsilon, 3), abs=0.005)
        for other in {0, 1, 2} - {value}:
            loss = math.log(reported[value] / reported[other])
            assert loss == pytest.approx(epsilon, abs=5 * math.sqrt(2 / reported[other]))
