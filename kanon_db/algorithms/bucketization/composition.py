"""How the sensitive values of buckets go together: what buckets can tell of a relation.

With N_v the number of records of a value v, and n_gv that of bucket g, which has |g| records, let
C = sum of n_g n_g' / |g| over all buckets - N_v N_v' / N: how the composition of buckets differs
from that of the table, weighted with their sizes. Its eigenvectors are directions in which this
can be seen, each with its eigenvalue. What buckets hide is H = diag(N_v) - sum of n_g n_g' / |g|.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray, IntArray
from kanon_db.heartbeat import beat

_BUCKETS_AT_ONCE: Final = 20_000
_NEGLIGIBLE: Final = 1e-9
"""Of the largest eigenvalue: a direction in which all buckets are alike."""


@dataclass(frozen=True, eq=False)
class Composition:
    """The directions in which buckets differ.

    Attributes
    ----------
    eigenvalues : ndarray of float64, shape (n_directions,)
    directions : ndarray of float64, shape (n_values, n_directions)
        The eigenvectors, of length one.
    hidden : ndarray of float64, shape (n_values, n_directions)
        H times the eigenvectors.
    expected : ndarray of float64, shape (n_directions,)
        The share of the records with each value, along the eigenvectors.
    """

    eigenvalues: FloatArray
    directions: FloatArray
    hidden: FloatArray
    expected: FloatArray


def composition(values: AnyIntArray, sizes: AnyIntArray, n_values: int) -> Composition:
    """Find the directions in which the composition of buckets differs.

    Parameters
    ----------
    values : ndarray of int, shape (n_records,)
        The value's code, from 0, of each record, bucket after bucket.
    sizes : ndarray of int, shape (n_buckets,)
        Records of each bucket, at least 1.
    n_values : int

    Examples
    --------
    Two buckets of two values each: they differ in whether they have the first one or the second.

    >>> found = composition(np.array([0, 2, 1, 2]), np.array([2, 2]), 3)
    >>> found.eigenvalues.round(2).tolist(), found.directions.T.round(2).tolist()
    ([0.5], [[0.71, -0.71, -0.0]])
    """
    ends = np.cumsum(sizes)
    together = np.zeros((n_values, n_values))
    for low in range(0, sizes.size, _BUCKETS_AT_ONCE):
        some = sizes[low : low + _BUCKETS_AT_ONCE]
        start = ends[low] - some[0]
        keys = np.repeat(np.arange(some.size) * n_values, some)
        keys += values[start : start + keys.size]
        counts = np.bincount(keys, minlength=some.size * n_values).reshape(-1, n_values)
        together += (counts / some[:, np.newaxis]).T @ counts
        beat()
    return decomposed(together, np.bincount(values, minlength=n_values))


def decomposed(together: FloatArray, counts: IntArray) -> Composition:
    """Find the directions from what was added up over the buckets.

    Parameters
    ----------
    together : ndarray of float64, shape (n_values, n_values)
        Of each pair of values, the sum of n_g n_g' / |g| over all buckets.
    counts : ndarray of int64, shape (n_values,)
        The records of each value.
    """
    numbers, n_records = counts.astype(np.float64), int(counts.sum())
    eigenvalues, directions = np.linalg.eigh(together - np.outer(numbers, numbers) / n_records)
    kept = eigenvalues > _NEGLIGIBLE * max(float(eigenvalues.max()), _NEGLIGIBLE)
    directions = directions[:, kept]
    # The sign of an eigenvector is arbitrary: the same publication gives the same numbers.
    largest = np.abs(directions).argmax(axis=0)
    directions = directions * np.sign(directions[largest, np.arange(largest.size)])
    return Composition(
        eigenvalues[kept],
        directions,
        (np.diag(numbers) - together) @ directions,
        directions.T @ numbers / n_records,
    )
