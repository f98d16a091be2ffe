"""Local assignment: buckets of records with similar quasi-identifiers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kanon_db.algorithms.bucketization.marginal_refinement import refine
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.random_assignment import Permuter, assign_randomly
from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.algorithms.bucketization.sorted_sweep import UNPLACED, place_left_over, sweep
from kanon_db.algorithms.bucketization.two_size import MAX_BUCKET_SIZE, two_size
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, SmallIntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.ground.sort_keys import sort_keys
from kanon_db.algorithms.ground.sorting import order_of, taken
from kanon_db.errors import InfeasibleError, InvalidParameterError

_MAX_CELLS = 2**26  # occurrence limits held at once: 128 MB
_LEAST_LARGEST = 64
_FIRST_REOPENED = 4
_TERMS_OF_REFINEMENT = 2 * 10**9  # a few seconds


@dataclass(frozen=True, eq=False)
class LocalAssignment:
    """A bucket for each record, and the setting that the buckets make up.

    Parameters
    ----------
    bucket_of_record : ndarray of int32, shape (n_records,)
        0-based bucket numbers; buckets of smaller sizes come first.
    setting : BucketSetting
        How many buckets of which size.
    """

    bucket_of_record: CodeArray
    setting: BucketSetting


def assign_locally(
    qi_codes: CodeArray,
    sa_codes: CodeArray,
    privacy: FPrimePrivacy,
    max_bucket_size: int,
    random: Permuter,
    *,
    pulse: Pulse = UNLIMITED,
) -> LocalAssignment:
    """Put records with similar quasi-identifiers into the same bucket.

    Every record finds a place, and no bucket holds a sensitive value more often than its
    threshold allows, as with any other assignment. Bucket sizes result from the records. Unlike
    with a random assignment, which of a bucket's records have which of its values is *not* left
    to chance altogether: what that means for privacy is measured in ``docs/local-buckets.md``.
    Records with the same quasi-identifiers and the same sensitive value are interchangeable.

    Parameters
    ----------
    qi_codes : ndarray of int32, shape (n_records, n_qi)
        Quasi-identifiers as codes from 0; codes of ordered types in the type's order.
    sa_codes : ndarray of int32, shape (n_records,)
        Position of each record's sensitive value in the thresholds.
    privacy : FPrimePrivacy
        Thresholds of the m sensitive values.
    max_bucket_size : int
        M', the most records in a bucket, in [1, 5000].
    random : Permuter
        Source of randomness, asked for at most some forty permutations of the records.
    pulse : Pulse
        Beaten every few dozen milliseconds of work, sorts of all records excepted; what it raises
        ends the assignment.

    Returns
    -------
    LocalAssignment

    Raises
    ------
    IneligibleError
        If a value is more frequent in the table than its threshold.
    InfeasibleError
        If records are left over for which neither this method nor :func:`.two_size` finds a place
        within ``max_bucket_size``.
    InvalidParameterError
        If ``max_bucket_size`` is out of range, the arrays do not match, or the limits of all
        values at all sizes need too much memory.

    Notes
    -----
    **Source:** our own. [GB] Sections 5 and 6 choose the sizes by MSBS alone and let any records
    share a bucket. The estimate of [GB] Section 3.2 is exact for a bucket whose records all match
    a query's condition on the quasi-identifiers or all fail it, however large it is; so it is
    better to gather alike records than to save on sizes.

    1. Records are sorted by their quasi-identifiers, the attribute with the least diversity
       (chance that two records differ) foremost. So neighbors agree in as many attributes as
       possible: random predicates tell two values of one attribute apart as easily as two of
       another.
    2. One :func:`.sweep` in this order closes buckets as soon as they are within the limits;
       sizes beyond 64 and twice the least size that allows every value are not considered. What is
       left over joins the nearest buckets with room.
    3. Where there is no such room, the buckets closed last are opened again, four times as many
       each time, until :func:`.two_size` finds a setting for their records; at the latest for
       all records. So this method works wherever that one does.
    4. :func:`.refine` swaps records with the same sensitive value, in a number of passes that
       falls with the number of records and with the number of values in a bucket.

    Cost: O(n_records (log n_records + M)), where M is the largest size considered.

    Examples
    --------
    >>> from fractions import Fraction
    >>> qi_codes = np.array([[0], [1], [0], [1]], dtype=np.int32)
    >>> sa_codes = np.array([0, 0, 1, 1], dtype=np.int32)
    >>> privacy = FPrimePrivacy((Fraction(1, 2), Fraction(1, 2)))
    >>> found = assign_locally(qi_codes, sa_codes, privacy, 4, np.random.default_rng(0))
    >>> found.setting.pairs
    ((2, 2),)
    >>> bool(found.bucket_of_record[0] == found.bucket_of_record[2])
    True
    """
    n_values = len(privacy.thresholds)
    _check(qi_codes, sa_codes, n_values)
    counts = np.bincount(sa_codes, minlength=n_values)
    if (
        not 1 <= max_bucket_size <= MAX_BUCKET_SIZE
        or max_bucket_size < privacy.smallest_bucket_size()
        or privacy.ineligible(counts).any()
    ):
        two_size(counts, privacy, max_bucket_size, pulse=pulse)  # says why not
    limits = _limits(privacy, max_bucket_size, sa_codes.size, pulse)
    order = _similar_order(qi_codes, random)
    buckets = sweep(order, sa_codes, limits, pulse)
    place_left_over(buckets, order, sa_codes, limits, pulse)
    if (buckets == UNPLACED).any():
        _reopen(buckets, sa_codes, privacy, max_bucket_size, random, pulse)
    refine(
        buckets,
        qi_codes,
        sa_codes,
        n_values,
        random,
        n_terms=_TERMS_OF_REFINEMENT,
        pulse=pulse,
    )
    return _by_size(buckets)


def _check(qi_codes: CodeArray, sa_codes: CodeArray, n_values: int) -> None:
    if qi_codes.ndim != 2 or sa_codes.shape != qi_codes.shape[:1]:
        raise InvalidParameterError(
            "codes must hold one row of quasi-identifiers and one sensitive value for each record",
            detail=f"quasi-identifiers: shape {qi_codes.shape}, sensitive: shape {sa_codes.shape}",
        )
    if min(qi_codes.min(initial=0), sa_codes.min(initial=0)) < 0:
        raise InvalidParameterError("codes must be at least 0")
    if sa_codes.max(initial=-1) >= n_values:
        raise InvalidParameterError(
            "a record has a sensitive value without a threshold",
            detail=f"{n_values} thresholds",
        )


def _limits(
    privacy: FPrimePrivacy, max_bucket_size: int, n_records: int, pulse: Pulse
) -> SmallIntArray:
    """Limits at sizes 0 … M, where M is the largest size that the sweep considers."""
    sufficient = max(2 * privacy.corresponding_l(), _LEAST_LARGEST)
    largest = max(1, min(max_bucket_size, n_records, sufficient))
    n_values = len(privacy.thresholds)
    if n_values * (largest + 1) > _MAX_CELLS:
        raise InvalidParameterError(
            "the assignment needs too much memory",
            detail=f"{n_values:,} sensitive values, max_bucket_size = {max_bucket_size}",
            hint=f"lower max_bucket_size to at most {_MAX_CELLS // n_values - 1}",
        )
    return privacy.limits_of_many(np.arange(largest + 1), pulse)


def _similar_order(qi_codes: CodeArray, random: Permuter) -> IntArray:
    """Sort the records so that neighbors agree in many attributes; equal ones come at random."""
    n_records, n_qi = qi_codes.shape
    shuffled = random.permutation(n_records).astype(np.int64, copy=False)
    if not n_qi or not n_records:
        return shuffled
    agreement = [float(np.square(np.bincount(column) / n_records).sum()) for column in qi_codes.T]
    columns = [qi_codes[:, a] for a in np.argsort(np.negative(agreement), kind="stable")]
    keys = sort_keys(columns, reflected=True)
    # However a sort orders equal keys: that records come to it at random makes their order random.
    return taken(shuffled, order_of(taken(keys, shuffled)))


def _reopen(
    buckets: IntArray,
    sa_codes: CodeArray,
    privacy: FPrimePrivacy,
    max_bucket_size: int,
    random: Permuter,
    pulse: Pulse,
) -> None:
    """Deal records without a place anew, together with those of the last buckets."""
    n_buckets = int(buckets.max(initial=UNPLACED)) + 1
    n_reopened = _FIRST_REOPENED
    while True:
        pulse.beat()
        kept = max(0, n_buckets - n_reopened)
        records = np.flatnonzero((buckets >= kept) | (buckets == UNPLACED))
        codes = sa_codes[records]
        counts = np.bincount(codes, minlength=len(privacy.thresholds))
        try:
            if not kept or not privacy.ineligible(counts).any():
                setting = two_size(counts, privacy, max_bucket_size, pulse=pulse)
                break
        except InfeasibleError:
            if not kept:
                raise
        n_reopened *= 4
    limits = privacy.occurrence_limits(setting.sizes)
    buckets[records] = kept + assign_randomly(codes, counts, limits, setting, random)


def _by_size(buckets: IntArray) -> LocalAssignment:
    """Renumber the buckets, ascending with their size."""
    sizes = np.bincount(buckets)
    order = np.argsort(sizes, kind="stable")
    numbers = np.empty(sizes.size, dtype=np.int32)
    numbers[order] = np.arange(sizes.size)
    distinct, counts = np.unique(sizes, return_counts=True)
    return LocalAssignment(numbers[buckets], BucketSetting.of(distinct, counts))
