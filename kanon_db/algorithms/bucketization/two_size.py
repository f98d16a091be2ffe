"""Optimal bucket setting of at most two sizes ([GB] Section 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.setting import BucketSetting, record_counts
from kanon_db.algorithms.ground.arrays import IntArray, SmallIntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.errors import IneligibleError, InfeasibleError, InvalidParameterError

Pruning = Literal["none", "loss", "full"]

MAX_BUCKET_SIZE = 5000
"""Largest ``max_bucket_size``: the search looks at every pair of sizes."""

_MAX_SUGGESTED_SIZE = 1000
_MAX_CELLS = 2**26  # occurrence limits held at once: 128 MB
# Each of these is a few milliseconds of work.
_PAIRS_PER_BLOCK = 2**14
_CELLS_PER_CHUNK = 2**16
_ALWAYS = 2**62
_FIRST_CHUNK = 32

ValueTypes = Counter[tuple[int, Fraction]]
"""How many sensitive values have the same number of records and the same threshold."""


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
        known; "full" takes pairs by the loss of the first candidate that can fill its buckets,
        and stops when that exceeds the best.
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
    - Size pairs are taken by a lower bound of their loss, best first, rather than in
      lexicographic order; so Eq. (11), which is wrong at equality, is not needed.
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
    instance = _Instance.of(types, smallest, largest, pulse)
    best = _search(instance, _pair_blocks(smallest, largest), pruning, pulse)
    if best is None:
        raise InfeasibleError(
            "no bucket setting of at most two sizes is valid",
            detail=f"bucket sizes {smallest} to {largest}, n_records = {n_records:,}",
            hint=_hint(types, smallest, max_bucket_size, pulse),
        )
    return best


@dataclass(frozen=True)
class _Instance:
    """What the search needs to know of a table; the last axis of each array is a bucket size."""

    n_records: int
    capacity: IntArray  # (M' + 1,): most buckets of a size that the records can fill
    counts: IntArray  # (r,): o_i of the binding values
    limits: SmallIntArray  # (r, M' + 1): floor(f'_i S) of the binding values

    @classmethod
    def of(cls, types: ValueTypes, smallest: int, largest: int, pulse: Pulse) -> _Instance:
        counts = np.array([count for count, _ in types], dtype=np.int64)
        privacy = FPrimePrivacy(tuple(threshold for _, threshold in types))
        n_values = np.array(list(types.values()), dtype=np.int64)
        limits = privacy.limits_of_many(np.arange(largest + 1), pulse)
        capacity = np.zeros(largest + 1, dtype=np.int64)
        step = max(1, _CELLS_PER_CHUNK // counts.size)
        for first in range(smallest, largest + 1, step):
            pulse.beat()
            sizes = np.arange(first, min(first + step, largest + 1))
            capacity[sizes] = _fill_capacity(counts, limits[:, sizes], n_values, sizes)
        binding = _binding_values(counts, limits)
        return cls(int(counts @ n_values), capacity, counts[binding], limits[binding])


def _fill_capacity(
    counts: IntArray, limits: SmallIntArray, n_values: IntArray, sizes: IntArray
) -> IntArray:
    """Find the largest b with sum_i min{limits_i b, o_i} >= size b, [GB] Eq. (14) and (15).

    With the values in the order of o_i / limits_i, the sum is the smallest of the linear functions
    "o_i of the first j values, limits_i b of the others". So b must pass all of these.
    """
    per_bucket = limits * n_values[:, np.newaxis]
    available = np.where(limits > 0, (counts * n_values)[:, np.newaxis], 0)
    lasting = np.where(limits > 0, counts[:, np.newaxis] // np.maximum(limits, 1), _ALWAYS)
    order = np.argsort(lasting, axis=0)
    exhausted = np.cumsum(np.take_along_axis(available, order, axis=0), axis=0)
    held = np.cumsum(np.take_along_axis(per_bucket, order, axis=0), axis=0)
    lacking = sizes - (held[-1] - held)  # once the first j + 1 values are exhausted
    most = np.where(lacking > 0, exhausted // np.maximum(lacking, 1), _ALWAYS).min(axis=0)
    return np.where(held[-1] < sizes, 0, most)


def _binding_values(counts: IntArray, limits: SmallIntArray) -> npt.NDArray[np.intp]:
    """Leave out values that are never harder to place than another one.

    Limits grow with the threshold at every size, so their sum orders the values by threshold as
    far as bucket sizes can tell. A value is easy to place if another has no higher limits and no
    fewer records.
    """
    order = np.lexsort((-counts, limits.sum(axis=1)))
    most_before = np.maximum.accumulate(np.concatenate(([0], counts[order][:-1])))
    return order[counts[order] > most_before]


def _pair_blocks(smallest: int, largest: int) -> Iterable[tuple[IntArray, IntArray]]:
    """All pairs S1 <= S2 in lexicographic order, in blocks of bounded length."""
    return _few_pairs(smallest, largest) if largest < _SMALL else _pairs(smallest, largest)


@lru_cache(maxsize=8)
def _few_pairs(smallest: int, largest: int) -> tuple[tuple[IntArray, IntArray], ...]:
    return tuple(_pairs(smallest, largest))


def _pairs(smallest: int, largest: int) -> Iterator[tuple[IntArray, IntArray]]:
    n_rows = max(1, _PAIRS_PER_BLOCK // (largest - smallest + 1))
    for start in range(smallest, largest + 1, n_rows):
        rows = range(start, min(start + n_rows, largest + 1))
        yield (
            np.concatenate([np.full(largest + 1 - size, size) for size in rows]),
            np.concatenate([np.arange(size, largest + 1) for size in rows]),
        )


@dataclass(frozen=True)
class _Candidates:
    """The lists Gamma of size pairs, [GB] Lemma 4: candidate t is (b1 - t d1, b2 + t d2).

    Loss increases with t (Lemma 3). Only candidates ``low`` to ``high`` can fill their buckets.
    """

    size1: IntArray
    size2: IntArray
    b1: IntArray
    b2: IntArray
    d1: IntArray
    d2: IntArray
    low: IntArray
    high: IntArray

    @classmethod
    def of(cls, instance: _Instance, size1: IntArray, size2: IntArray) -> _Candidates:
        gcd, inverse = _gcd_and_inverse(size2, size1)
        d1, d2 = size2 // gcd, size1 // gcd  # Eq. (8)
        # Eq. (7): the smallest b2 with S1 b1 + S2 b2 = n_records, by the inverse of S2 modulo S1.
        b2 = (instance.n_records // gcd) % d2 * inverse % d2
        b1 = (instance.n_records - size2 * b2) // size1
        low = np.maximum(0, -((instance.capacity[size1] - b1) // d1))
        high = np.minimum(b1 // d1, (instance.capacity[size2] - b2) // d2)
        high[instance.n_records % gcd != 0] = -1
        return cls(size1, size2, b1, b2, d1, d2, low, high)

    def take(self, pairs: npt.NDArray[np.intp]) -> _Candidates:
        """Select the lists of some pairs."""
        return _Candidates(*(array[pairs] for array in vars(self).values()))

    def loss(self, t: IntArray) -> IntArray:
        """Loss of candidate t of each list, Eq. (6)."""
        small = (self.b1 - t * self.d1) * (self.size1 - 1) ** 2
        large = (self.b2 + t * self.d2) * (self.size2 - 1) ** 2
        return small + large


def _gcd_and_inverse(a: IntArray, b: IntArray) -> tuple[IntArray, IntArray]:
    """Greatest common divisors g, and x with a x = g modulo b."""
    if max(a.max(), b.max()) < _SMALL:  # with cells, there are a thousand searches
        gcd, inverse = _small_ones()
        return gcd[a, b], inverse[a, b]
    return _euclid(a, b)


@lru_cache(maxsize=1)
def _small_ones() -> tuple[IntArray, IntArray]:
    gcd, inverse = _euclid(*(part.ravel() for part in np.indices((_SMALL, _SMALL))))
    return gcd.reshape(_SMALL, _SMALL), inverse.reshape(_SMALL, _SMALL)


_SMALL: Final = 128


def _euclid(a: IntArray, b: IntArray) -> tuple[IntArray, IntArray]:
    r, s = a, b
    x, y = np.ones_like(a), np.zeros_like(a)
    while (going := s > 0).any():
        quotient = np.floor_divide(r, s, out=np.zeros_like(r), where=going)
        r, s = np.where(going, s, r), np.where(going, r - quotient * s, s)
        x, y = np.where(going, y, x), np.where(going, x - quotient * y, y)
    return r, x


def _search(
    instance: _Instance,
    pair_blocks: Iterable[tuple[IntArray, IntArray]],
    pruning: Pruning,
    pulse: Pulse,
) -> BucketSetting | None:
    best = None  # loss, S1, S2, b1, b2: equal losses are compared on, so that order does not show
    longest_chunk = max(_FIRST_CHUNK, _CELLS_PER_CHUNK // instance.counts.size)
    for size1, size2 in pair_blocks:
        pulse.beat()
        if best is not None and pruning != "none":
            # Pairs come by increasing S1, and loss per record, (S - 1)² / S, increases with S.
            least = int(size1[0])
            if instance.n_records * (least - 1) ** 2 > best[0] * least:
                break
        lists = _Candidates.of(instance, size1, size2)
        bound = lists.loss(lists.low if pruning == "full" else np.zeros_like(lists.low))
        pairs = np.flatnonzero(lists.low <= lists.high)
        if pruning == "full":
            pairs = pairs[np.argsort(bound[pairs], kind="stable")]
        length = _FIRST_CHUNK
        while pairs.size:
            pulse.beat()
            found = _best_valid(instance, lists.take(pairs[:length]))
            pairs = pairs[length:]
            best = min(filter(None, (best, found)), default=None)
            if best is not None and pruning != "none":
                pairs = pairs[bound[pairs] <= best[0]]
            # A short chunk finds a good setting, longer ones then prove that it is the best.
            length = min(2 * length, longest_chunk)
    return None if best is None else BucketSetting.of(best[1:3], best[3:])


def _best_valid(instance: _Instance, lists: _Candidates) -> tuple[int, ...] | None:
    """First valid candidate of each list, and of these the one of the smallest loss."""
    limit1 = instance.limits[:, lists.size1].astype(np.int64)
    limit2 = instance.limits[:, lists.size2].astype(np.int64)
    # Eq. (17): candidate t places value i if and only if t slope_i >= lacking_i.
    slope = limit2 * lists.d2 - limit1 * lists.d1
    lacking = instance.counts[:, np.newaxis] - limit1 * lists.b1 - limit2 * lists.b2
    from_t = -np.floor_divide(-lacking, slope, out=np.zeros_like(slope), where=slope > 0)
    up_to_t = np.full_like(slope, np.iinfo(np.int64).max)
    np.floor_divide(lacking, slope, out=up_to_t, where=slope < 0)
    t = np.maximum(lists.low, from_t.max(axis=0))
    never = ((slope == 0) & (lacking > 0)).any(axis=0)
    valid = np.flatnonzero(~never & (t <= np.minimum(lists.high, up_to_t.min(axis=0))))
    if not valid.size:
        return None
    lists, t = lists.take(valid), t[valid]
    loss = lists.loss(t)
    i = np.lexsort((lists.size2, lists.size1, loss))[0]
    b1, b2 = lists.b1[i] - t[i] * lists.d1[i], lists.b2[i] + t[i] * lists.d2[i]
    return tuple(int(x) for x in (loss[i], lists.size1[i], lists.size2[i], b1, b2))


def _hint(types: ValueTypes, smallest: int, max_bucket_size: int, pulse: Pulse) -> str:
    """Name the smallest sufficient max_bucket_size, if it is not far."""
    n_records = sum(count * n_values for (count, _), n_values in types.items())
    largest = min(n_records, 4 * max_bucket_size, _MAX_SUGGESTED_SIZE, _MAX_CELLS // len(types))
    if largest <= max_bucket_size:
        return "raise the thresholds of the privacy specification"
    instance = _Instance.of(types, smallest, largest, pulse)
    for size in range(max_bucket_size + 1, largest + 1):
        size1 = np.arange(smallest, size + 1)
        pairs = [(size1, np.full_like(size1, size))]
        if _search(instance, pairs, "full", pulse) is not None:
            return f"raise max_bucket_size to {size}"
    return (
        "raise the thresholds of the privacy specification: "
        f"no max_bucket_size up to {largest} suffices"
    )
