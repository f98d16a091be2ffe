"""Counts shaped like [GB]'s CENSUS tables, by Occupation (OCC)."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray

OCC_SHARES = np.concatenate(
    [[0.075], 0.925 * 0.93 ** np.arange(49) / (0.93 ** np.arange(49)).sum()]
)
"""50 values, the most frequent 7.5% of the records, the others in geometric progression."""


def counts_of(shares: FloatArray, n_records: int) -> IntArray:
    """Round shares of a table to numbers of records that add up.

    Parameters
    ----------
    shares : ndarray of float64, shape (m,)
        Frequencies, adding up to 1.
    n_records : int

    Returns
    -------
    ndarray of int64, shape (m,)
    """
    counts = np.rint(np.cumsum(shares) * n_records).astype(np.int64)
    counts[1:] -= counts[:-1].copy()
    return counts


def split(counts: IntArray, factor: int, generator: np.random.Generator) -> IntArray:
    """Replace each value by ``factor`` values, one of which each record draws.

    Parameters
    ----------
    counts : ndarray of int64, shape (m,)
    factor : int
    generator : numpy.random.Generator

    Returns
    -------
    ndarray of int64, shape (at most m * factor,)
        Without values that no record drew.

    Notes
    -----
    **Source:** [GB] Section 7.3.2.
    """
    drawn = generator.multinomial(counts, np.full(factor, 1 / factor)).ravel()
    return drawn[drawn > 0]
