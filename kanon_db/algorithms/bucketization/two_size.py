"""Finds bucket settings of at most two sizes: by Anatomy, or optimal ones ([GB] Section 5).

The search through pairs of sizes is compiled, since assignment in cells makes a thousand searches,
each of a few hundred pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.buckets import BucketSetting, record_counts
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.ground.arrays import IntArray, SmallIntArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, inlined, innermost
from kanon_db.dataclasses import dataclass
from kanon_db.errors import IneligibleError, InfeasibleError, InvalidParameterError


def anatomy(counts: npt.ArrayLike, l: int) -> BucketSetting:
    """Find Anatomy's bucket setting, in which a value occurs at most once in each bucket.

    With at most one occurrence a bucket, no value is more frequent than 1 / l in any bucket.
    The setting is always valid under that limit: see
    :func:`~kanon_db.algorithms.bucketization.bucket_assignment.partition_records`.

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


Pruning = Literal["none", "loss", "full"]

_STEPS_PER_BEAT = 2**17
"""Values examined between two beats, a few milliseconds of work."""

_STEPS_PER_PAIR: Final = 8
"""Cost of computing the candidates of a pair, in values examined."""


@dataclass(frozen=True, eq=False)
class ValueTypes:
    """Sensitive values; those with the same number of records and the same threshold are one."""

    counts: IntArray  # (m,)
    n_values: IntArray  # (m,): how many values are of the type
    privacy: FPrimePrivacy

    @classmethod
    def of(cls, counts: IntArray, privacy: FPrimePrivacy) -> ValueTypes:
        """Find the types of values, given how many records have each."""
        types = counts * (int(privacy.kinds.max(initial=0)) + 1) + privacy.kinds
        _, first, n_values = np.unique(types, return_index=True, return_counts=True)
        return cls(counts[first], n_values, privacy.of_values(first))

    @property
    def n_records(self) -> int:
        """Number of records."""
        return int(self.counts @ self.n_values)


@dataclass(frozen=True)
class SettingProblem:
    """A table as the search needs it."""

    n_records: int
    smallest: int  # The bucket sizes to search, at least 1
    largest: int
    capacity: IntArray  # (largest + 1,): most buckets of a size that the records can fill
    counts: IntArray  # (r,): o_i of the binding values
    limits: SmallIntArray  # (largest + 1, r): floor(f'_i S) of each size and binding value

    @classmethod
    def of(cls, types: ValueTypes, smallest: int, largest: int, pulse: Pulse) -> SettingProblem:
        """Compute the capacities, and leave out values that are not binding."""
        counts, n_values = types.counts, types.n_values
        limits = np.ascontiguousarray(types.privacy.limits_up_to(largest, pulse).T)
        capacity = np.zeros(largest + 1, dtype=np.int64)
        step = max(1, _STEPS_PER_BEAT // (_STEPS_PER_PAIR * counts.size))
        for first in range(smallest, largest + 1, step):
            pulse.beat()
            fill_capacity(counts, n_values, limits, first, min(first + step, largest + 1), capacity)
        binding = binding_values(counts, limits)
        return cls(
            types.n_records, smallest, largest, capacity, counts[binding],
            np.take(limits, binding, axis=1),
        )  # fmt: skip

    def and_of(self, other: SettingProblem) -> SettingProblem:
        """Join two problems of the same records and sizes: settings must be valid for both."""
        return replace(
            self,
            capacity=np.minimum(self.capacity, other.capacity),
            counts=np.concatenate([self.counts, other.counts]),
            limits=np.concatenate([self.limits, other.limits], axis=1),
        )

    def best(
        self, pruning: Pruning, pulse: Pulse, *, least_second: int = 1, above: int = -1
    ) -> BucketSetting | None:
        """Find the valid setting of the smallest loss above a number, if there is any."""
        least_second = max(least_second, self.smallest)
        place = np.array([self.smallest, least_second])
        best_pair = np.full(5, -1)
        n_pairs = max(1, _STEPS_PER_BEAT // (_STEPS_PER_PAIR + self.counts.size))
        pulse.beat()
        while _look_at_pairs(
            self.n_records, self.capacity, self.counts, self.limits, self.largest, least_second,
            pruning != "none", pruning == "full", n_pairs, above, place, best_pair,
        ):  # fmt: skip
            pulse.beat()
        return None if best_pair[0] < 0 else BucketSetting.of(best_pair[1:3], best_pair[3:])


def binding_values(counts: IntArray, limits: SmallIntArray) -> npt.NDArray[np.intp]:
    """Leave out values that are never harder to place than another one.

    A value is easy to place if another has no higher limits at any size and no fewer records.
    """
    order = np.lexsort((-counts, limits.sum(axis=0)))
    most_before = np.maximum.accumulate(np.concatenate(([0], counts[order][:-1])))
    return order[counts[order] > most_before]


@innermost
def fill_capacity(
    counts: IntArray,  # (m,): o_i, and how many values there are of each type
    n_values: IntArray,
    limits: SmallIntArray,  # (q, m)
    first: int,  # The sizes to look at, as a range
    end: int,
    capacity: IntArray,  # (q,): set for these
) -> None:
    """Find the largest b with sum_i min{limits_i b, o_i} >= size b, [GB] Eq. (14) and (15).

    By Newton's method: the sum is concave in b, and b is lowered to where its tangent meets size b.
    """
    n_records = 0
    for i in range(counts.size):
        n_records += counts[i] * n_values[i]
    for size in range(first, end):
        n_buckets = n_records // size
        while True:
            exhausted = 0
            held = 0
            for i in range(counts.size):
                limit = np.int64(limits[size, i])
                if limit * n_buckets < counts[i]:
                    held += limit * n_values[i]
                else:
                    exhausted += counts[i] * n_values[i]
            lacking = size - held
            if exhausted >= lacking * n_buckets:
                break
            n_buckets = exhausted // lacking
        capacity[size] = n_buckets


@innermost
def gcd_and_inverse(a: int, b: int) -> tuple[int, int]:
    """Return the greatest common divisor g, and x with a x = g modulo b."""
    x, y = 1, 0
    while b > 0:
        quotient = a // b
        a, b = b, a - quotient * b
        x, y = y, x - quotient * y
    return a, x


@inlined
def _loss(size1: int, b1: int, size2: int, b2: int) -> int:
    """Loss of a candidate, [GB] Eq. (6)."""
    return b1 * (size1 - 1) * (size1 - 1) + b2 * (size2 - 1) * (size2 - 1)


@innermost
def _look_at_pairs(
    n_records: int,
    capacity: IntArray,
    counts: IntArray,
    limits: SmallIntArray,
    largest: int,
    least_second: int,
    prunes: bool,
    by_capacity: bool,
    n_pairs: int,
    above: int,
    place: IntArray,  # (2,): the pair to begin with; moved on
    # (5,): loss, S1, S2, b1, b2 of the best setting so far, its loss negative if there is none. Of
    # equal ones the first stays.
    best_pair: IntArray,
) -> bool:
    """Examine the next pairs in lexicographic order; tell whether any are left.

    The candidates of a pair are the lists Gamma of [GB] Lemma 4: candidate t is (b1 - t d1, b2 + t
    d2). Loss increases with t (Lemma 3), so that the first valid one is the best.
    """
    size1, size2 = place[0], place[1]
    for _ in range(n_pairs):
        if size2 > largest:
            size1 += 1
            size2 = max(size1, least_second)
            # Loss per record, (S - 1)² / S, increases with S, so all other pairs lose more.
            is_hopeless = _loss(size1, n_records // size1, 1, 0) > best_pair[0] >= 0
            if size1 > largest or (prunes and is_hopeless):
                return False
        gcd, inverse = gcd_and_inverse(size2, size1)
        if n_records % gcd == 0:
            d1, d2 = size2 // gcd, size1 // gcd  # Eq. (8)
            # Eq. (7): the smallest b2 with S1 b1 + S2 b2 = n_records, by the inverse of S2.
            b2 = n_records // gcd % d2 * inverse % d2
            b1 = (n_records - size2 * b2) // size1
            # Only candidates from low to high can fill their buckets.
            low = max(0, -((capacity[size1] - b1) // d1))
            high = min(b1 // d1, (capacity[size2] - b2) // d2)
            loss = _loss(size1, b1, size2, b2)
            if loss <= above:
                step = _loss(size1, -d1, size2, d2)
                low = high + 1 if step == 0 else max(low, (above - loss) // step + 1)
            bound = low if by_capacity else 0
            least = _loss(size1, b1 - bound * d1, size2, b2 + bound * d2)
            if low <= high and not (prunes and least > best_pair[0] >= 0):
                t = _first_valid(counts, limits[size1], limits[size2], b1, b2, d1, d2, low, high)
                if t >= 0:
                    b1, b2 = b1 - t * d1, b2 + t * d2
                    loss = _loss(size1, b1, size2, b2)
                    if best_pair[0] < 0 or loss < best_pair[0]:
                        best_pair[0], best_pair[1], best_pair[2] = loss, size1, size2
                        best_pair[3], best_pair[4] = b1, b2
        size2 += 1
    place[0], place[1] = size1, size2
    return True


@innermost
def _first_valid(
    counts: IntArray,
    limits1: SmallIntArray,
    limits2: SmallIntArray,
    b1: int,
    b2: int,
    d1: int,
    d2: int,
    low: int,
    high: int,
) -> int:
    """Return the first candidate from low to high that places all values, or -1.

    Eq. (17): candidate t places value i if and only if t slope_i >= lacking_i.
    """
    for i in range(counts.size):
        limit1, limit2 = np.int64(limits1[i]), np.int64(limits2[i])
        slope = limit2 * d2 - limit1 * d1
        lacking = counts[i] - limit1 * b1 - limit2 * b2
        if slope > 0:
            low = max(low, -(-lacking // slope))
        elif slope < 0:
            high = min(high, lacking // slope)
        elif lacking > 0:
            return -1
        if low > high:
            return -1
    return low


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
    threshold allows: see
    :func:`~kanon_db.algorithms.bucketization.bucket_assignment.partition_records`. Of several
    optimal settings, the one of the smallest first, then second size is found.

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
    types = ValueTypes.of(checked, privacy)
    largest = min(max_bucket_size, n_records)
    _check_memory(types, largest, max_bucket_size)
    best = SettingProblem.of(types, smallest, largest, pulse).best(pruning, pulse)
    if best is None:
        raise InfeasibleError(
            "no bucket setting of at most two sizes is valid",
            detail=f"bucket sizes {smallest} to {largest}, n_records = {n_records:,}",
            hint=_hint(types, smallest, max_bucket_size, pulse),
        )
    return best


def _check_memory(types: ValueTypes, largest: int, max_bucket_size: int) -> None:
    n_types = types.counts.size
    if n_types * largest > _MAX_CELLS:
        raise InvalidParameterError(
            "the search for a bucket setting needs too much memory",
            detail=f"{n_types:,} distinct thresholds, max_bucket_size = {max_bucket_size}",
            hint=f"lower max_bucket_size to at most {_MAX_CELLS // n_types}",
        )


def joint_problem(
    tables: Sequence[tuple[IntArray, FPrimePrivacy]], max_bucket_size: int, pulse: Pulse = UNLIMITED
) -> SettingProblem | None:
    """Describe the search for settings that are valid for several divisions of the same records.

    Parameters
    ----------
    tables : sequence of (ndarray of int64, FPrimePrivacy)
        For each division, as by the values of an attribute: how many records have each value, at
        least 1, and the thresholds. None is ineligible, and none empty.
    max_bucket_size : int
    pulse : Pulse

    Returns
    -------
    SettingProblem or None
        None if no bucket may be so small.

    Raises
    ------
    InvalidParameterError
        If it needs too much memory, as of :func:`two_size`.
    """
    n_records = int(tables[0][0].sum())
    smallest = max(privacy.smallest_bucket_size() for _, privacy in tables)
    largest = min(max_bucket_size, n_records)
    if smallest > largest:
        return None
    problem: SettingProblem | None = None
    for counts, privacy in tables:
        types = ValueTypes.of(counts, privacy)
        _check_memory(types, largest, max_bucket_size)
        own = SettingProblem.of(types, smallest, largest, pulse)
        problem = own if problem is None else problem.and_of(own)
    return problem


def _hint(types: ValueTypes, smallest: int, max_bucket_size: int, pulse: Pulse) -> str:
    """Name the smallest sufficient max_bucket_size, if it is within reach."""
    most = _MAX_CELLS // types.counts.size
    largest = min(types.n_records, 4 * max_bucket_size, _MAX_SUGGESTED_SIZE, most)
    if largest <= max_bucket_size:
        return "raise the thresholds of the privacy specification"
    instance = SettingProblem.of(types, smallest, largest, pulse)
    for size in range(max_bucket_size + 1, largest + 1):
        if replace(instance, largest=size).best("full", pulse, least_second=size) is not None:
            return f"raise max_bucket_size to {size}"
    return (
        "raise the thresholds of the privacy specification: "
        f"no max_bucket_size up to {largest} suffices"
    )
