"""The answer to a count query from each bucket's numbers, as docs/estimation.md defines it.

Written from the definitions, bucket by bucket; shares no code with the package.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np


def of_buckets(
    buckets: Iterable[tuple[int, int, int]],
) -> tuple[float, float, int, int]:
    """Answer from the size, matching records and matching values of *every* bucket."""
    size, q, s = np.array(list(buckets), dtype=float).T
    lower, upper = int(np.maximum(0, q + s - size).sum()), int(np.minimum(q, s).sum())
    estimate = float((q * s / size).sum())
    matching = float((q * (s / size) * (1 - s / size) * (size - q) / np.maximum(size - 1, 1)).sum())
    if lower == upper:
        return estimate, 0.0, lower, upper
    p_q, p_s = q.sum() / size.sum(), s.sum() / size.sum()
    # Weighted least squares: how the share of q in a bucket depends on that of s.
    off_q, off_s = q - size * p_q, s - size * p_s
    spread = float((off_s**2 / size).sum())
    half_width = (upper - lower) / 2
    if spread <= 1e-9 * s.sum():
        return estimate, half_width, lower, upper
    slope = float((off_q * off_s / size).sum()) / spread
    slope_variance = p_q * (1 - p_q) / spread
    hidden_s = float((s * (size - s) / size).sum())
    hidden_q = float((q * (size - q) / size).sum())
    if_random = (size.sum() - len(size)) * p_q * (1 - p_q)
    miss = (slope**2 + slope_variance) * (hidden_s * hidden_q / if_random) ** 2
    return estimate, min(math.sqrt(matching + miss), half_width), lower, upper
