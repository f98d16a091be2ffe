"""Information loss of a bucketization: Loss and mean squared bucket size ([GB] Section 3.2)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def bucket_size_loss(sizes: npt.ArrayLike, counts: npt.ArrayLike) -> int:
    """Loss of a bucketization: the sum over its buckets of (size - 1) squared.

    Lower is better: 0 when every record is a bucket of its own, (n_records - 1) squared when all
    records share one bucket. It depends on the sizes alone, not on which records share a bucket.

    Parameters
    ----------
    sizes : array_like of int, shape (q,)
        Bucket sizes, in records.
    counts : array_like of int, shape (q,)
        Number of buckets of each size.

    Returns
    -------
    int
        Exact, whatever its magnitude.

    Notes
    -----
    **Source:** [GB] Section 3.2, Eq. (2).

    Examples
    --------
    >>> bucket_size_loss([3, 45], [8809, 83])
    195924
    """
    return sum(count * (size - 1) ** 2 for size, count in _pairs(sizes, counts))


def mean_squared_bucket_size(sizes: npt.ArrayLike, counts: npt.ArrayLike) -> float:
    """MSBS of a bucketization: its loss per record, in the range 0 to n_records - 1.

    Lower is better.

    Parameters
    ----------
    sizes : array_like of int, shape (q,)
        Bucket sizes, in records.
    counts : array_like of int, shape (q,)
        Number of buckets of each size.

    Returns
    -------
    float
        Loss / (n_records - 1), or 0.0 for a table of fewer than two records.

    Notes
    -----
    **Source:** [GB] Definition 2, Eq. (1). For equal buckets of size l it is close to
    (l - 1)² / l, not "between l - 1 and l" as Section 3.2 says.

    Examples
    --------
    >>> mean_squared_bucket_size([4], [10])
    2.3076923076923075
    """
    n_records = sum(count * size for size, count in _pairs(sizes, counts))
    return bucket_size_loss(sizes, counts) / (n_records - 1) if n_records > 1 else 0.0


def _pairs(sizes: npt.ArrayLike, counts: npt.ArrayLike) -> list[tuple[int, int]]:
    """Sizes and counts as Python's integers, which do not overflow."""
    return list(zip(np.asarray(sizes).tolist(), np.asarray(counts).tolist(), strict=True))
