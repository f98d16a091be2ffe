"""The differentially private answers that buckets are compared with keep their own promise.

They are checked against the definition, not against themselves: how much likelier one answer may be
with a person than without.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.differential_privacy import MOST_QUESTIONS, most_questions
from benchmarks.noisy_counts import (
    counts_before_response,
    fitted_shares,
    gaussian_scale,
    geometric_noise,
    noisy_pairs,
    randomized_response,
    truth_probability,
    zcdp_budget,
)

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


def test_counts_before_response_are_unbiased() -> None:
    generator = np.random.default_rng(3)
    sa_codes = np.repeat(np.arange(5, dtype=np.int32), (400, 300, 200, 90, 10))
    wanted = np.array([True, False, False, True, False])
    answers = []
    for _ in range(2000):
        reported = randomized_response(sa_codes, 5, 1.0, generator)
        counts = np.array([wanted[reported].sum()]), np.array([1000]), np.array([2])
        answers.append(counts_before_response(*counts, n_values=5, epsilon=1.0)[0])
    deviation = float(np.std(answers))
    assert np.mean(answers) == pytest.approx(490, abs=5 * deviation / math.sqrt(2000))


def test_one_occupation_changes_pair_counts_by_twice_the_number_of_quasi_identifiers() -> None:
    generator = np.random.default_rng(4)
    qi_codes = generator.integers(4, size=(50, 7)).astype(np.int32)
    sa_codes = generator.integers(3, size=50).astype(np.int32)
    changed = sa_codes.copy()
    changed[17] = (changed[17] + 1) % 3
    before, after = (
        noisy_pairs(qi_codes, codes, 3, 0.0, generator) for codes in (sa_codes, changed)
    )
    squared = sum(float(((a - b) ** 2).sum()) for a, b in zip(before, after, strict=True))
    assert squared == 2 * 7
    noisy = noisy_pairs(qi_codes, sa_codes, 3, 10.0, np.random.default_rng(5))
    noise = np.concatenate([(a - b).ravel() for a, b in zip(noisy, before, strict=True)])
    assert 7 < noise.std() < 13


def test_fit_repeats_exact_pair_counts_and_ignores_drowned_ones() -> None:
    generator = np.random.default_rng(6)
    qi_codes = generator.integers(3, size=(900, 2)).astype(np.int32)
    sa_codes = ((qi_codes[:, 0] + generator.integers(2, size=900)) % 3).astype(np.int32)
    exact = noisy_pairs(qi_codes, sa_codes, 3, 0.0, generator)
    shares = fitted_shares(qi_codes, exact, 0.1)
    assert shares.sum(axis=1) == pytest.approx(np.ones(900))
    for j, table in enumerate(exact):
        for value in range(3):
            assert shares[qi_codes[:, j] == value].sum(axis=0) == pytest.approx(table[value], abs=1)
    drowned = fitted_shares(qi_codes, exact, 1e5)
    assert drowned == pytest.approx(np.full((900, 3), 1 / 3), abs=1e-3)


def test_break_even_is_the_last_number_of_questions_within_the_limit() -> None:
    assert most_questions(lambda n: 0.003 * n, 0.091) == 30
    assert most_questions(lambda n: 0.1 * n, 0.091) == 0
    assert most_questions(lambda n: 0 * n, 0.091) == MOST_QUESTIONS
