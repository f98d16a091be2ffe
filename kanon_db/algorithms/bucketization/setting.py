"""Bucket settings: how many buckets of which size ([GB] Section 3.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.errors import InvalidParameterError

MAX_RECORDS = 2**48
"""Largest table: with buckets of at most 5,000 records every product still fits 64 bits."""


@dataclass(frozen=True, eq=False)
class BucketSetting:
    """The number of buckets of each size; any number of sizes, none for an empty table.

    Parameters
    ----------
    sizes : ndarray of int64, shape (q,)
        Bucket sizes in records, strictly increasing, at least 1.
    counts : ndarray of int64, shape (q,)
        Number of buckets of each size, at least 1.

    Raises
    ------
    InvalidParameterError
        If the arrays are not as described.

    Notes
    -----
    **Source:** [GB] Section 3.4, where it is written <B_1, …, B_q> with B_j = (S_j, b_j).

    Examples
    --------
    >>> setting = BucketSetting.of([45, 3, 7], [83, 8809, 0])
    >>> setting.pairs
    ((3, 8809), (45, 83))
    >>> setting.n_records, setting.loss
    (30162, 195924)
    """

    sizes: IntArray
    counts: IntArray

    def __post_init__(self) -> None:
        sizes = np.array(self.sizes, dtype=np.int64)
        counts = np.array(self.counts, dtype=np.int64)
        if sizes.ndim != 1 or sizes.shape != counts.shape:
            raise InvalidParameterError(
                "a bucket setting needs one count for each size",
                detail=f"sizes: shape {sizes.shape}, counts: shape {counts.shape}",
            )
        if (sizes < 1).any() or (np.diff(sizes) < 1).any() or (counts < 1).any():
            raise InvalidParameterError(
                "a bucket setting needs increasing sizes and counts of at least 1",
                hint="BucketSetting.of sorts the sizes and drops those that have no bucket",
            )
        for name, array in (("sizes", sizes), ("counts", counts)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @classmethod
    def of(cls, sizes: npt.ArrayLike, counts: npt.ArrayLike) -> BucketSetting:
        """Make a setting of sizes in any order, leaving out those without a bucket.

        Parameters
        ----------
        sizes : array_like of int, shape (q,)
            Distinct bucket sizes, in records.
        counts : array_like of int, shape (q,)
            Number of buckets of each size, at least 0.

        Returns
        -------
        BucketSetting
        """
        sizes = np.asarray(sizes, dtype=np.int64)
        counts = np.asarray(counts, dtype=np.int64)
        order = np.argsort(sizes)
        order = order[counts[order] != 0]
        return cls(sizes[order], counts[order])

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Each size with its number of buckets, as plain integers."""
        return tuple(zip(self.sizes.tolist(), self.counts.tolist(), strict=True))

    @property
    def n_buckets(self) -> int:
        """Number of buckets of all sizes."""
        return int(self.counts.sum())

    @property
    def n_records(self) -> int:
        """Number of records that fill all buckets."""
        return int(self.sizes @ self.counts)

    @property
    def largest_size(self) -> int:
        """Number of records in the largest bucket, 0 without buckets."""
        return int(self.sizes.max(initial=0))

    @property
    def loss(self) -> int:
        """Loss, [GB] Eq. (2): the sum over the buckets of (size - 1) squared, exact.

        Lower is better: 0 when every record is a bucket of its own, (n_records - 1) squared when
        all records share one bucket.
        """
        return sum(count * (size - 1) ** 2 for size, count in self.pairs)

    @property
    def msbs(self) -> float:
        """Mean squared bucket size, [GB] Definition 2: the loss per record. Lower is better.

        It is loss / (n_records - 1), and 0.0 for fewer than two records. For equal buckets of size
        l it is close to (l - 1)² / l, not "between l - 1 and l" as [GB] Section 3.2 says.
        """
        return self.loss / (self.n_records - 1) if self.n_records > 1 else 0.0


def record_counts(counts: npt.ArrayLike, n_values: int | None = None) -> tuple[IntArray, int]:
    """Check the numbers of records of each sensitive value and add them up.

    Parameters
    ----------
    counts : array_like of int, shape (m,)
        Records of each sensitive value, at least 0.
    n_values : int, optional
        What m must be.

    Returns
    -------
    counts : ndarray of int64, shape (m,)
    n_records : int
        Their sum.

    Raises
    ------
    InvalidParameterError
        If they are no such array, or their sum exceeds :data:`MAX_RECORDS`.
    """
    array = np.asarray(counts)
    if array.ndim != 1 or (n_values is not None and array.size != n_values):
        raise InvalidParameterError(
            "counts must hold one number of records for each sensitive value",
            detail=f"counts: shape {array.shape}"
            + ("" if n_values is None else f", sensitive values: {n_values}"),
        )
    if array.size and (not np.issubdtype(array.dtype, np.integer) or array.min() < 0):
        raise InvalidParameterError("counts must be whole numbers of at least 0")
    n_records = sum(array.tolist())
    if n_records > MAX_RECORDS:
        raise InvalidParameterError(
            "the table has too many records",
            detail=f"n_records = {n_records:,}, limit = {MAX_RECORDS:,}",
            hint="publish parts of the table separately",
        )
    return array.astype(np.int64), n_records
