"""The values that a record of a bucket may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class BucketValues:
    """The SAT as arrays: how often each sensitive value occurs in each bucket.

    Parameters
    ----------
    bucket, value, count : ndarray of int64, shape (n_pairs,)
        Each pair of a bucket and a value once, by bucket. Buckets are numbered from 0 without gaps.
    """

    bucket: IntArray
    value: IntArray
    count: IntArray

    @classmethod
    def of(cls, buckets: AnyIntArray, values: AnyIntArray, n_values: int) -> Self:
        """Count the values of records, whose buckets are given."""
        keys, counts = np.unique(buckets.astype(np.int64) * n_values + values, return_counts=True)
        return cls(keys // n_values, keys % n_values, counts.astype(np.int64))

    @property
    def starts(self) -> IntArray:
        """Where each bucket begins."""
        return np.flatnonzero(np.diff(self.bucket, prepend=-1))

    @property
    def sizes(self) -> IntArray:
        """The number of records of each bucket."""
        sizes: IntArray = np.add.reduceat(self.count, self.starts)
        return sizes

    def last_by(self, score: FloatArray | IntArray) -> IntArray:
        """Return the value of each bucket with the largest score, shape (n_buckets,).

        Examples
        --------
        >>> sat = BucketValues.of(np.array([0, 0, 0, 1]), np.array([3, 5, 5, 3]), 6)
        >>> sat.last_by(sat.count).tolist(), sat.sizes.tolist()
        ([5, 3], [3, 1])
        """
        order = np.lexsort((score, self.bucket))
        values: IntArray = self.value[order[np.append(self.starts[1:], self.bucket.size) - 1]]
        return values


@dataclass(frozen=True, eq=False)
class Candidates:
    """Each record with each value of its bucket.

    Parameters
    ----------
    record : ndarray of int64, shape (n,)
        The record, ascending.
    value : ndarray of int64, shape (n,)
    cell : ndarray of int64, shape (n,)
        The position of the pair of its bucket and the value.
    count, share : ndarray of float64, shape (n,)
        How often the value occurs in the bucket, in records and as a share of its records.
    """

    record: IntArray
    value: IntArray
    cell: IntArray
    count: FloatArray
    share: FloatArray


def candidates_of(buckets: AnyIntArray, values: BucketValues) -> Candidates:
    """List which values each record may have.

    Parameters
    ----------
    buckets : ndarray of int, shape (n_records,)
        The bucket of each record.
    values : BucketValues

    Examples
    --------
    >>> sat = BucketValues.of(np.array([0, 0, 1]), np.array([4, 5, 5]), 6)
    >>> found = candidates_of(np.array([1, 0]), sat)
    >>> found.record.tolist(), found.value.tolist(), found.share.tolist()
    ([0, 1, 1], [5, 4, 5], [1.0, 0.5, 0.5])
    """
    first = np.append(values.starts, values.bucket.size)
    lengths = np.diff(first)[buckets]
    record = np.repeat(np.arange(buckets.size), lengths)
    start = np.cumsum(lengths) - lengths
    cell = first[buckets][record] + np.arange(record.size) - start[record]
    count = values.count[cell].astype(np.float64)
    return Candidates(
        record, values.value[cell], cell, count, count / values.sizes[buckets[record]]
    )
