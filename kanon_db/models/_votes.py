"""Counts the votes of members, adds noise to votes and inputs, and calculates what answers cost.

Differential privacy rests on the noise on votes, a discrete Gaussian that is drawn in whole
numbers. The Laplace noise on inputs only hides the networks. Membership inference measures how
often somebody's presence can be guessed all the same.
"""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from functools import lru_cache
from math import exp, inf, isqrt, log, log1p, sqrt
from typing import Any, Final, Protocol

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray, IntArray
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InfeasibleError, InvalidParameterError, ServerError
from kanon_db.models._network import Float32Array
from kanon_db.models.request import Budget
from kanon_db.randomness import SecureRandom

_BYTES_AT_ONCE = 4096


class VoteRandomness(Protocol):
    """Yields uniformly random bytes, as :class:`kanon_db.randomness.SecureRandom` does."""

    def bytes(self, length: int) -> bytes:
        """Return uniformly random bytes."""
        ...


def discrete_gaussian(variance: Fraction, n: int, random: VoteRandomness) -> IntArray:
    """Draw `n` whole numbers x with probabilities proportional to exp(-x^2 / (2 variance))."""
    # C. Canonne, G. Kamath, T. Steinke, The discrete Gaussian for differential privacy, NeurIPS
    # 2020, Algorithms 1 to 3. All arithmetic is on whole numbers; no probability is rounded. How
    # long a draw takes depends on the number drawn, so whoever can time single draws learns
    # something of them.
    sampler = _DiscreteGaussianSampler(random)
    return np.fromiter((sampler.gaussian(variance) for _ in range(n)), dtype=np.int64, count=n)


class _DiscreteGaussianSampler:
    def __init__(self, random: VoteRandomness) -> None:
        self._random = random
        self._buffer = b""
        self._position = 0

    def gaussian(self, variance: Fraction) -> int:
        """Algorithm 3: discrete Laplace, accepted with the ratio of the two."""
        p, q = variance.as_integer_ratio()
        t = isqrt(p // q) + 1
        while True:
            y = self._laplace(t)
            # exp(-(|y| - variance / t)^2 / (2 variance))
            if self._exp((abs(y) * t * q - p) ** 2, 2 * p * q * t * t):
                return y

    def _laplace(self, t: int) -> int:
        """Algorithm 2: whole numbers x with probabilities proportional to exp(-|x| / t)."""
        while True:
            u = self._below(t)
            if not self._exp(u, t):
                continue
            v = 0
            while self._exp(1, 1):
                v += 1
            size, is_negative = u + t * v, self._below(2)
            if size or not is_negative:
                return -size if is_negative else size

    def _exp(self, numerator: int, denominator: int) -> bool:
        """Algorithm 1: true with the probability exp(-numerator / denominator)."""
        while numerator > denominator:
            if not self._exp_within_1(1, 1):
                return False
            numerator -= denominator
        return self._exp_within_1(numerator, denominator)

    def _exp_within_1(self, numerator: int, denominator: int) -> bool:
        k = 1
        while self._below(denominator * k) < numerator:
            k += 1
        return k % 2 == 1

    def _below(self, limit: int) -> int:
        """Draw a number from 0 to limit - 1, each with the same probability."""
        bits = (limit - 1).bit_length()
        n_bytes = (bits + 7) // 8
        while True:
            drawn = int.from_bytes(self._bytes(n_bytes), "little") >> (8 * n_bytes - bits)
            if drawn < limit:
                return drawn

    def _bytes(self, n: int) -> bytes:
        if self._position + n > len(self._buffer):
            self._buffer, self._position = self._random.bytes(max(n, _BYTES_AT_ONCE)), 0
        self._position += n
        return self._buffer[self._position - n : self._position]


@dataclass(frozen=True)
class Votes:
    """Answers of an ensemble about some rows."""

    winner: IntArray  # (n_rows,): the class with most votes; among several, the lowest number
    # (n_rows,): share of the members that voted for the winner; with noise, an estimate from 0 to 1
    share: FloatArray


def count_votes(labels: AnyIntArray, classes: int) -> IntArray:
    """Count the votes for each class.

    `labels` (n_members, n_rows): the most probable class of each; returns (n_rows, classes).
    """
    n_rows = labels.shape[1]
    places = (labels + np.arange(n_rows) * classes).ravel()
    return np.bincount(places, minlength=n_rows * classes).reshape(n_rows, classes)


def vote(labels: AnyIntArray, classes: int) -> Votes:
    """Let the members vote; `labels` (n_members, n_rows) are the most probable class of each."""
    # [TH] 4.2.3, equation 4.2.5: the largest set of members that agree answers. The thesis does not
    # mention ties; here the class with the lowest number wins them.
    counts = count_votes(labels, classes)
    return Votes(counts.argmax(axis=1), counts.max(axis=1, initial=0) / len(labels))


def noisy_vote(
    labels: AnyIntArray, classes: int, sigma: int, random: VoteRandomness | None = None
) -> Votes:
    """Let the members vote, with noise on the number of votes for each class.

    `labels` (n_members, n_rows), of disjoint parts; `sigma`: about the noise's standard deviation.
    """
    # GNMax (N. Papernot et al., Scalable private learning with PATE, ICLR 2018) with the discrete
    # Gaussian in place of the continuous one: the attack on floating-point noise (I. Mironov 2012)
    # has nothing to work on. Someone whose records are replaced changes one part, thus one member,
    # thus at most one vote, from one class to another: the counts of a row by sqrt(2) in L2. So the
    # noisy counts of a row satisfy zero-concentrated differential privacy with rho = sqrt(2)^2 / (2
    # sigma^2) = 1 / sigma^2 (Canonne, Kamath, Steinke, Theorem 14), and so do winner and share,
    # which are computed from these alone (their share within 0 and 1). Rows add up. It holds if
    # nothing else that the reader sees, or that all members share, was made from the records:
    # classes, ranges and categories must be declared.
    if not isinstance(sigma, int) or sigma < 1:
        raise InvalidParameterError(
            "the noise on votes must be a whole number from 1", detail=f"sigma = {sigma}"
        )
    counts = count_votes(labels, classes)
    drawn = discrete_gaussian(Fraction(sigma) ** 2, counts.size, random or SecureRandom())
    counts = counts + drawn.reshape(counts.shape)
    share = counts.max(axis=1, initial=-(2**62)) / len(labels)
    return Votes(counts.argmax(axis=1), np.clip(share, 0.0, 1.0))


def noisy_inputs(
    inputs: Float32Array, scale: float, random: VoteRandomness | None = None
) -> Float32Array:
    """Add Laplace noise to inputs, so that whatever a network makes of them is noisy.

    `scale`: b, in units of the encoded input; the standard deviation is sqrt(2) b.
    """
    # [TH] 4.2.2, equations 4.2.3 and 4.2.4; each member of an ensemble gets noise of its own.
    # Unlike noise on logits, it cannot be averaged away exactly: the mean of a network's answers is
    # not its answer to the mean (docs/understand/model-robustness.md measures how close averages
    # get). It is no differential privacy, so that the gaps of floating-point Laplace noise (I.
    # Mironov, CCS 2012) tell nothing of people; noise that privacy rests on is drawn in whole
    # numbers. It is from the operating system, so that no one who learns a seed or a state can
    # subtract it.
    if not scale:
        return inputs
    drawn = np.frombuffer((random or SecureRandom()).bytes(4 * inputs.size), dtype=np.uint32)
    # The lowest bit is the sign; of the others, (2 i + 1) / 2^32 lies strictly between 0 and 1.
    magnitude = np.log((drawn | 1).astype(np.float64) / 2**32) * -scale
    signed = np.where(drawn & 1, magnitude, -magnitude).reshape(inputs.shape)
    return (inputs + signed).astype(np.float32)


MOST_VOTES = 10**9


def epsilon_after(votes: int, delta: float, noise: int) -> float:
    """Return the epsilon that `votes` rows cost, of noise with the sigma of :func:`noisy_vote`."""
    # For replacing all records of one person, whatever the votes were. A vote satisfies zCDP with
    # rho = 1 / noise^2, thus Renyi differential privacy of every order a with a / noise^2: the same
    # as continuous Gaussian noise of the multiplier noise / sqrt(2), which is what dp-accounting is
    # asked about. Its other accountants must not be used here: they assume continuous noise.
    _check_budget(delta, noise)
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
    """Return the number of noisy votes that a budget pays for.

    0 if one vote costs more. Raises InvalidParameterError, or ServerError without dp-accounting.
    """
    _check_budget(delta, noise)
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


def _check_budget(delta: float, noise: int) -> None:
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


@dataclass(frozen=True)
class PaidAnswers:
    """A budget, with the number of answers that it pays for."""

    epsilon: float  # As in :class:`~kanon_db.models.request.Budget`
    delta: float
    noise: int
    answers: int  # Rows that each reader role may have classified

    @property
    def plain(self) -> dict[str, Any]:
        """Return the budget as JSON for the catalog."""
        return asdict(self)


@lru_cache(maxsize=1)  # asked for before the training, and again after it
def answers_of_budget(budget: Budget | None) -> PaidAnswers | None:
    """Calculate how many answers a budget pays for.

    Raises InfeasibleError if it pays for none, ServerError without dp-accounting.
    """
    if budget is None:
        return None

    answers = votes_within(budget.epsilon, budget.delta, budget.noise)
    if not answers:
        raise InfeasibleError(
            "the budget does not pay for a single answer",
            detail=f"epsilon {budget.epsilon:g}, delta {budget.delta:g}, noise {budget.noise}",
            hint="give more noise: four times as many answers for twice the noise",
        )
    return PaidAnswers(budget.epsilon, budget.delta, budget.noise, answers)


_ORDERS: Final = [1 + 1.002**power / 1000 for power in range(10_000)]


def epsilon_of_answers(answers: int, delta: float, noise: int) -> float:
    """Return the epsilon of answers, by a formula that needs no library, for verification.

    **Source:** Canonne, Kamath, Steinke 2020, Proposition 12: an answer costs rho = 1 / noise^2.
    """
    rho = answers / noise**2
    costs = (
        order * rho + log1p(-1 / order) - (log(delta) + log(order)) / (order - 1)
        for order in _ORDERS
    )
    return max(0.0, min(costs, default=inf))


def best_threshold(inside: FloatArray, outside: FloatArray) -> float:
    """Learn from which score on to guess that someone was in the source; infinity: of nobody.

    The scores are of people who are not guessed about: balanced accuracy is highest for them.
    """
    _check_scores(inside, outside)
    candidates = np.unique(np.concatenate([inside, outside]))
    right_inside = 1 - np.searchsorted(np.sort(inside), candidates, side="left") / inside.size
    wrong_outside = 1 - np.searchsorted(np.sort(outside), candidates, side="left") / outside.size
    advantages = right_inside - wrong_outside
    best = int(advantages.argmax())
    return float(candidates[best]) if advantages[best] > 0 else np.inf


def membership_rate(inside: FloatArray, outside: FloatArray, threshold: float) -> float:
    """Return the rate of right guesses by a threshold, if half of the people are in the source.

    0.5 is as good as a coin. The threshold is from :func:`best_threshold`, of other people.
    """
    # S. Yeom et al., Privacy risk in machine learning, CSF 2018; with thresholds of shadow models,
    # R. Shokri et al., Membership inference attacks against machine learning models, S&P 2017. One
    # attack that fails shows little; the bound holds against all.
    _check_scores(inside, outside)
    right = (inside >= threshold).mean() + (outside < threshold).mean()
    return float(right) / 2


def calibrate_scores(own: FloatArray, reference: FloatArray) -> FloatArray:
    """Compare logits for people with those of models that were not trained on them.

    `own` (n_people,), `reference` (n_models, n_people): logits or log-odds of the true class.
    """
    # N. Carlini et al., Membership inference attacks from first principles, S&P 2022, the offline
    # form, with one spread for all people. With disjoint parts, the members that were not trained
    # on someone are such shadow models.
    spread = float((reference - reference.mean(axis=0)).std()) or 1.0
    scores: FloatArray = (own - reference.mean(axis=0)) / spread
    return scores


def highest_rate(epsilon: float, delta: float = 0.0) -> float:
    """Return the highest balanced accuracy that any attack can reach under a budget."""
    # (epsilon, delta)-differential privacy is a region of error rates: true positives minus false
    # positives are at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) (P. Kairouz, S. Oh, P.
    # Viswanath, The composition theorem for differential privacy, ICML 2015). This holds for a
    # person's presence as for any other pair of neighbors of the guarantee.
    if epsilon > 700:
        return 1.0
    advantage = (exp(epsilon) - 1 + 2 * delta) / (exp(epsilon) + 1)
    return min(1.0, 0.5 + advantage / 2)


def _check_scores(inside: FloatArray, outside: FloatArray) -> None:
    if not inside.size or not outside.size:
        raise InvalidParameterError(
            "membership needs people inside and outside of the source",
            detail=f"{inside.size} inside, {outside.size} outside",
        )
