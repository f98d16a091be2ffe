"""Optimal bucket setting of at most two sizes ([GB] Section 5)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy.typing as npt

from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.setting import BucketSetting, record_counts
from kanon_db.algorithms.bucketization.size_pairs import Instance, Pruning, Types
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.errors import IneligibleError, InfeasibleError, InvalidParameterError

MAX_BUCKET_SIZE = 5000
"""Largest ``max_bucket_size``: the search looks at every pair of sizes."""

_MAX_SUGGESTED_SIZE = 1000
_MAX_CELLS = 2**26  # occurrence limits held at once: 128 MB


def two_size(
    counts: npt.ArrayLike,
    privacy: FPrimePrivacy,
    max_bucket_size: int,
    *,
    pruning: Pruning = "full",
    pulse: Pulse = UNLIMITED,
) -> BucketSetting:
    """Find the bucket setting of at most two sizes with the smallest loss.

    Every record finds a place, and no bucket holds a sensitive value more often than its
    threshold allows: see :func:`~kanon_db.algorithms.bucketization.assignment.partition_records`.
    Of several optimal settings, the one of the smallest first, then second size is found.

    Parameters
    ----------
    counts : array_like of int, shape (m,)
        Records of each sensitive value: o_i.
    privacy : FPrimePrivacy
        Thresholds of the m values.
    max_bucket_size : int
        M', the most records in a bucket, in [1, 5000].
    pruning : {"full", "loss", "none"}
        How size pairs are skipped, for comparison; the result is the same. "none" validates
        all; "loss" skips those whose first candidate already loses more than the best setting
        known; "full" those whose first candidate that can fill its buckets does.
    pulse : Pulse
        Beaten every few milliseconds of work; what that raises ends the search.

    Returns
    -------
    BucketSetting
        One or two sizes; empty for an empty table.

    Raises
    ------
    IneligibleError
        If a value is more frequent in the table than its threshold.
    InfeasibleError
        If no setting of at most two sizes up to ``max_bucket_size`` is valid. The hint names the
        smallest ``max_bucket_size`` for which one is, looking no further than four times the
        given one, 1000, or the number of records.
    InvalidParameterError
        If ``max_bucket_size`` or ``pruning`` is out of range, or ``counts`` and ``privacy`` do
        not match.

    Notes
    -----
    **Source:** [GB] Algorithm 3, with the ablations of Section 7.3.

    Deviations:

    - Section 5.4 takes "the leftmost of C_1, …, C_m", which breaks privacy: a privacy constraint
      holds on an interval of the candidate list, so that the first valid candidate is the *latest*
      of the individual first ones, provided that all constraints hold there.
    - min{a, o} + min{b, o} >= o if and only if a + b >= o. So Eq. (16) is linear in the index t
      of a candidate, and gives a lower or an upper bound on t in closed form, without the cases
      of Corollary 2 and without binary search. Only binding values are looked at: not those
      that have a threshold as high as, and no more records than, some other value.
    - The fill constraint (14), (15) of a size depends on that size alone: it is an upper bound
      on the number of its buckets, also in closed form.
    - Settings of one size are candidates as well, by way of pairs of equal sizes; Algorithm 3
      misses them when M = M'.
    - Size pairs are skipped by lower bounds of their loss, and the search ends at a smaller size
      with which no pair can lose as little as the best; so Eq. (11), which is wrong at equality,
      is not needed.
    - Sizes beyond the number of records are left out.

    Cost: for m distinct pairs of count and threshold, and q sizes, O(q m log m) to prepare and
    O(q² r) to search, where r <= m is the number of binding values. It does not grow with the
    number of records.

    Examples
    --------
    >>> from fractions import Fraction
    >>> privacy = FPrimePrivacy((Fraction(7, 10), Fraction(1)))
    >>> two_size([2, 3], privacy, 2).pairs
    ((1, 1), (2, 2))
    """
    checked, n_records = record_counts(counts, len(privacy.thresholds))
    if not 1 <= max_bucket_size <= MAX_BUCKET_SIZE:
        raise InvalidParameterError(
            f"max_bucket_size must lie in [1, {MAX_BUCKET_SIZE}]",
            detail=f"max_bucket_size = {max_bucket_size}",
        )
    if pruning not in ("none", "loss", "full"):
        raise InvalidParameterError("pruning must be none, loss or full")
    if n_records == 0:
        return BucketSetting.of([], [])
    n_broken = int(privacy.ineligible(checked).sum())
    if n_broken:
        raise IneligibleError(
            "no publication can satisfy the privacy specification",
            detail=f"{n_broken} of {checked.size} sensitive values are more frequent in the table "
            "than their threshold",
            hint="raise their thresholds",
        )
    smallest = privacy.smallest_bucket_size()
    if max_bucket_size < smallest:
        raise InfeasibleError(
            "max_bucket_size is smaller than the smallest possible bucket",
            detail=f"max_bucket_size = {max_bucket_size}, smallest bucket = {smallest}",
            hint=f"raise max_bucket_size to at least {smallest}"
            if smallest <= MAX_BUCKET_SIZE
            else f"raise the thresholds: max_bucket_size cannot exceed {MAX_BUCKET_SIZE}",
        )
    types = Counter(zip(checked.tolist(), privacy.thresholds, strict=True))
    largest = min(max_bucket_size, n_records)
    if len(types) * largest > _MAX_CELLS:
        raise InvalidParameterError(
            "the search for a bucket setting needs too much memory",
            detail=f"{len(types):,} distinct thresholds, max_bucket_size = {max_bucket_size}",
            hint=f"lower max_bucket_size to at most {_MAX_CELLS // len(types)}",
        )
    best = Instance.of(types, smallest, largest, pulse).best(pruning, pulse)
    if best is None:
        raise InfeasibleError(
            "no bucket setting of at most two sizes is valid",
            detail=f"bucket sizes {smallest} to {largest}, n_records = {n_records:,}",
            hint=_hint(types, smallest, max_bucket_size, pulse),
        )
    return best


def _hint(types: Types, smallest: int, max_bucket_size: int, pulse: Pulse) -> str:
    """Name the smallest sufficient max_bucket_size, if it is not far."""
    n_records = sum(count * n_values for (count, _), n_values in types.items())
    largest = min(n_records, 4 * max_bucket_size, _MAX_SUGGESTED_SIZE, _MAX_CELLS // len(types))
    if largest <= max_bucket_size:
        return "raise the thresholds of the privacy specification"
    instance = Instance.of(types, smallest, largest, pulse)
    for size in range(max_bucket_size + 1, largest + 1):
        if replace(instance, largest=size).best("full", pulse, least_second=size) is not None:
            return f"raise max_bucket_size to {size}"
    return (
        "raise the thresholds of the privacy specification: "
        f"no max_bucket_size up to {largest} suffices"
    )
