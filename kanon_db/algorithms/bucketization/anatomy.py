"""Anatomy: buckets of sizes l and l + 1 for l-diversity."""

from __future__ import annotations

import numpy.typing as npt

from kanon_db.algorithms.bucketization.setting import BucketSetting, record_counts
from kanon_db.errors import IneligibleError, InvalidParameterError


def anatomy(counts: npt.ArrayLike, l: int) -> BucketSetting:
    """Find Anatomy's bucket setting, in which a value occurs at most once in each bucket.

    With at most one occurrence a bucket, no value is more frequent than 1 / l in any bucket.
    The setting is always valid under that limit: see
    :func:`~kanon_db.algorithms.bucketization.assignment.partition_records`.

    Parameters
    ----------
    counts : array_like of int, shape (m,)
        Records of each sensitive value.
    l : int
        Diversity, at least 1.

    Returns
    -------
    BucketSetting
        n_records // l buckets of sizes l and l + 1; of two greater neighboring sizes if the
        table is so small that more than one record a bucket is left over. Empty for an empty
        table.

    Raises
    ------
    InvalidParameterError
        If ``l`` is less than 1.
    IneligibleError
        If a value has more than n_records / l records.

    Notes
    -----
    **Source:** X. Xiao, Y. Tao, *Anatomy: simple and effective privacy preservation*, VLDB 2006
    ([22] in [GB]), algorithm Anatomize; eligibility: [GB] Definition 1.

    Deviations: Anatomy draws the records of each bucket one by one; here the sizes come first and
    the records follow by the same partition and round-robin assignment as for the other methods,
    which needs the counts only. Where Anatomy adds left-over records to random buckets that lack
    their value, they are spread over the buckets as evenly as possible; none is ever dropped.

    Examples
    --------
    >>> anatomy([3, 3, 3, 2], 3).pairs
    ((3, 1), (4, 2))
    """
    checked, n_records = record_counts(counts)
    if l < 1:
        raise InvalidParameterError("l must be at least 1", detail=f"l = {l}")
    largest = int(checked.max(initial=0))
    if largest * l > n_records:
        n_broken = int((checked > n_records // l).sum())
        raise IneligibleError(
            "no publication can satisfy l-diversity",
            detail=f"l = {l}; {n_broken} of {checked.size} sensitive values have more than "
            f"{n_records // l:,} of {n_records:,} records",
            hint=f"lower l to {n_records // largest}"
            if 2 * largest <= n_records
            else "one value has more than half of the records; use another method and privacy",
        )
    if n_records == 0:
        return BucketSetting.of([], [])
    n_buckets = n_records // l
    size, n_larger = divmod(n_records, n_buckets)
    return BucketSetting.of([size, size + 1], [n_buckets - n_larger, n_larger])
