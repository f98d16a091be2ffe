"""Well-known differentially private answers to counts, to compare buckets with.

These mechanisms measure errors; they are not for releasing data. Their noise comes from a seeded
generator in floating-point numbers, neither of which a release may use (I. Mironov, *On
significance of the least significant bits for differential privacy*, CCS 2012).
"""

from __future__ import annotations

import math

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, FloatArray, IntArray

_ORDERS = 1 + np.geomspace(1e-3, 1e6, 4001)  # of the Renyi divergences that are tried
_FIT_STEPS = 400


def zcdp_budget(epsilon: float, delta: float) -> float:
    """Find the largest rho whose zero-concentrated privacy implies (epsilon, delta).

    Notes
    -----
    **Source:** C. Canonne, G. Kamath, T. Steinke, *The discrete Gaussian for differential
    privacy*, NeurIPS 2020, Proposition 12: rho-zCDP implies (epsilon, delta) if, for some
    order a > 1, delta >= exp((a - 1) (a rho - epsilon)) / (a - 1) (1 - 1/a)^a.
    """
    below = _ORDERS - 1
    rest = (math.log(delta) + np.log(below) - _ORDERS * np.log1p(-1 / _ORDERS)) / below
    return float(((epsilon + rest) / _ORDERS).max())


def geometric_noise(
    size: int, epsilon: float, n_questions: int, generator: np.random.Generator
) -> IntArray:
    """Draw the noise of counts when n_questions counts share epsilon (basic composition).

    P(x) is proportional to exp(-|x| epsilon / n_questions): the Laplace mechanism on whole numbers.

    Notes
    -----
    **Source:** A. Ghosh, T. Roughgarden, M. Sundararajan, *Universally utility-maximizing privacy
    mechanisms*, STOC 2009. One person changes a count by at most 1.
    """
    stop = -math.expm1(-epsilon / n_questions)
    return generator.geometric(stop, size) - generator.geometric(stop, size)


def gaussian_scale(rho: float, squared_sensitivity: float) -> float:
    """Return the standard deviation that spends rho on answers of this L2 sensitivity, squared.

    Notes
    -----
    **Source:** M. Bun, T. Steinke, *Concentrated differential privacy*, TCC 2016, Lemma 2.5 and,
    as the squared sensitivity of Q counts is Q, its composition (Lemma 2.3).
    """
    return math.sqrt(squared_sensitivity / (2 * rho))


def randomized_response(
    sa_codes: CodeArray, n_values: int, epsilon: float, generator: np.random.Generator
) -> CodeArray:
    """Keep each record's value with e^epsilon times the probability of any other one.

    Notes
    -----
    **Source:** S. Warner, *Randomized response*, JASA 1965, for n values; the probabilities are
    those of P. Kairouz, S. Oh, P. Viswanath, *Extremal mechanisms for local differential privacy*,
    NIPS 2014.
    """
    lies = generator.random(sa_codes.size) >= truth_probability(epsilon, n_values)
    shift = np.where(lies, generator.integers(1, n_values, sa_codes.size), 0)
    return ((sa_codes + shift) % n_values).astype(np.int32)


def truth_probability(epsilon: float, n_values: int) -> float:
    """Return the probability with which randomized response keeps a value."""
    return math.exp(epsilon) / (math.exp(epsilon) + n_values - 1)


def counts_before_response(
    n_reported: AnyIntArray,
    n_records: AnyIntArray,
    n_wanted: AnyIntArray,
    n_values: int,
    epsilon: float,
) -> FloatArray:
    """Estimate how many records truly have a value of a set, without bias.

    Parameters
    ----------
    n_reported : ndarray of int, shape (n_queries,)
        Records that match the conditions on quasi-identifiers and report a value of the set.
    n_records : ndarray of int, shape (n_queries,)
        Records that match the conditions on quasi-identifiers.
    n_wanted : ndarray of int, shape (n_queries,)
        Number of values in the set.
    n_values : int
        Number of values of the sensitive attribute.
    epsilon : float

    Returns
    -------
    ndarray of float64, shape (n_queries,)
    """
    truth = truth_probability(epsilon, n_values)
    lie = (1 - truth) / (n_values - 1)  # the probability of each other value
    return (n_reported - n_records * n_wanted * lie) / (truth - lie)


def noisy_pairs(
    qi_codes: CodeArray, sa_codes: CodeArray, n_values: int, scale: float,
    generator: np.random.Generator,
) -> list[FloatArray]:  # fmt: skip
    """Count each quasi-identifier's values with each sensitive value, with Gaussian noise.

    If one record's sensitive value changes, two counts of each table change by 1, so the squared
    sensitivity is twice the number of quasi-identifiers.
    """
    return [
        table + generator.normal(0, scale, table.shape)
        for table in _pairs(qi_codes, np.eye(n_values)[sa_codes])
    ]


def fitted_shares(qi_codes: CodeArray, pairs: list[FloatArray], scale: float) -> FloatArray:
    """Fit each record's probabilities of the sensitive values to noisy counts of pairs.

    The distribution of most entropy whose expected counts are as near to the noisy ones as their
    noise says: multinomial logistic regression on the quasi-identifiers' values, with the counts
    as its sufficient statistics and the noise's variance as its penalty. It sees nothing but public
    quasi-identifiers and noisy counts, so it costs no further privacy.

    Returns
    -------
    ndarray of float64, shape (n_records, n_values)

    Notes
    -----
    **Source:** for the penalty, M. Dudik, S. Phillips, R. Schapire, *Maximum entropy density
    estimation with generalized regularization*, JMLR 8 (2007). The steps are those of D. Bohning,
    *Multinomial logistic regression algorithm*, AISM 44 (1992), accelerated.
    """
    kinds, record = np.unique(qi_codes, axis=0, return_inverse=True)
    n_alike = np.bincount(record)[:, np.newaxis]
    n_attributes = len(pairs)
    # A bound on the curvature: each record adds at most 1/2 per attribute and value.
    steps = [
        1 / (n_attributes * np.bincount(kinds[:, j], n_alike[:, 0])[:, np.newaxis] / 2 + scale**2)
        for j in range(n_attributes)
    ]
    weights = [np.zeros_like(table) for table in pairs]
    ahead = weights
    for i in range(_FIT_STEPS):
        expected = _pairs(kinds, n_alike * _softmax(kinds, ahead))
        moved = [
            w + step * (noisy - fit - scale**2 * w)
            for w, step, noisy, fit in zip(ahead, steps, pairs, expected, strict=True)
        ]
        ahead = [new + i / (i + 3) * (new - old) for new, old in zip(moved, weights, strict=True)]
        weights = moved
    return _softmax(kinds, weights)[record]


def _softmax(kinds: CodeArray, weights: list[FloatArray]) -> FloatArray:
    scores = np.zeros((kinds.shape[0], weights[0].shape[1]))
    for table, codes in zip(weights, kinds.T, strict=True):
        scores += table[codes]
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def _pairs(qi_codes: CodeArray, shares: FloatArray) -> list[FloatArray]:
    """Add up the records' shares of each sensitive value for each quasi-identifier's values."""
    return [
        np.column_stack([np.bincount(codes, column) for column in shares.T]) for codes in qi_codes.T
    ]
