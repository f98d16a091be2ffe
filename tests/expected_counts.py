"""The answer to a count query from each bucket's numbers, as docs/understand/estimation.md defines
it.

Written from the definitions, bucket by bucket; shares no code with the package.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

TIMES = {"cells": 1.5, "local": 0.9, "random": 1.15}
MISSED = {"cells": 0.5, "local": 0.15}


def of_buckets(
    buckets: Iterable[tuple[int, int, int]], missing: float | None = None
) -> tuple[float, float, int, int]:
    """Answer from the size, matching records and matching values of *every* bucket.

    Parameters
    ----------
    buckets : iterable of tuple
    missing : float, optional
        In cells, what the composition of buckets seems to tell; without it, buckets are random,
        and nothing is known of more than two groups of values.
    """
    size, q, s = np.array(list(buckets), dtype=float).T
    lower, upper = int(np.maximum(0, q + s - size).sum()), int(np.minimum(q, s).sum())
    estimate = float((q * s / size).sum())
    matching = float((q * (s / size) * (1 - s / size) * (size - q) / np.maximum(size - 1, 1)).sum())
    half_width = (upper - lower) / 2
    if missing is not None or lower == upper:
        error = math.hypot(TIMES["cells"] * math.sqrt(matching), MISSED["cells"] * (missing or 0))
        return estimate, min(error, half_width), lower, upper
    p_q, p_s = q.sum() / size.sum(), s.sum() / size.sum()
    # Weighted least squares: how the share of q in a bucket depends on that of s.
    off_q, off_s = q - size * p_q, s - size * p_s
    spread = float((off_s**2 / size).sum())
    if spread <= 1e-9 * s.sum():
        return estimate, half_width, lower, upper
    slope = float((off_q * off_s / size).sum()) / spread
    slope_variance = p_q * (1 - p_q) / spread
    hidden_s = float((s * (size - s) / size).sum())
    hidden_q = float((q * (size - q) / size).sum())
    if_random = (size.sum() - len(size)) * p_q * (1 - p_q)
    miss = (slope**2 + slope_variance) * (hidden_s * hidden_q / if_random) ** 2
    error = TIMES["random"] * math.sqrt(matching + miss)
    return estimate, min(error, half_width), lower, upper


def _signal(differ: np.ndarray, r: np.ndarray, b: float) -> float:
    """The variance of theta, by matrices: three times, with weights from the one before."""
    weights = np.eye(r.size)
    for _ in range(3):
        noise = b * weights @ differ @ weights
        squares = np.trace(weights @ differ @ weights @ differ)
        shown = (r @ weights @ weights @ r - np.trace(noise)) / squares
        tau2 = max(shown, math.sqrt(2 * np.trace(noise @ noise)) / squares)
        if tau2 == 0:
            return 0.0
        weights = np.linalg.inv(tau2 * differ + b * np.eye(r.size)) * b
    return tau2


def regressed(
    records: np.ndarray,
    buckets: np.ndarray,
    composition: np.ndarray,
    asked: np.ndarray,
    *,
    variance: float = 0.0,
    number: float = 1.0,
) -> tuple[float, float]:
    """Return what is to be added to the answer of a random matching, and the error.

    By the normal equations of ridge regression, as docs/understand/estimation.md defines it.

    Parameters
    ----------
    records, buckets : ndarray, shape (n_records,)
        What each row of the QIT counts for, and its bucket, from 0.
    composition : ndarray, shape (n_buckets, n_values)
        How often each value occurs in each bucket.
    asked : ndarray, shape (n_values,)
        What each value counts for.
    variance : float
        That of a random matching.
    number : float
        What an average is divided by.
    """
    size = composition.sum(axis=1)
    n_records, totals = size.sum(), composition.sum(axis=0)
    matching = np.bincount(buckets, weights=records, minlength=size.size)
    together = composition.T @ (composition / size[:, None])
    differ = together - np.outer(totals, totals) / n_records
    hidden = (np.diag(totals) - together) @ asked
    r = composition.T @ (matching / size) - totals / n_records * matching.sum()
    b = ((matching**2 / size).sum() - matching.sum() ** 2 / n_records) / max(size.size - 1, 1)
    tau2 = _signal(differ, r, b) if b > 0 else 0.0
    if tau2 == 0:
        return 0.0, TIMES["random"] * math.sqrt(variance) / number
    eigenvalues, directions = np.linalg.eigh(differ)
    kept = eigenvalues > 1e-9 * eigenvalues.max()  # buckets tell nothing of the others
    inverse = (directions[:, kept] / (eigenvalues[kept] + b / tau2)) @ directions[:, kept].T
    doubt = b * hidden @ inverse @ hidden
    error = TIMES["random"] * math.sqrt(max(variance + doubt, 0)) / number
    return float(hidden @ inverse @ r) / number, error
