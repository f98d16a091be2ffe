"""Random assignment: which records share a bucket is left to chance."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from kanon_db.algorithms.bucketization.assignment import partition_records, round_robin
from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, IntArray
from kanon_db.algorithms.ground.sorting import order_of, taken


class Permuter(Protocol):
    """The one kind of randomness needed; ``numpy.random.Generator`` has it, too."""

    def permutation(self, n: int, /) -> AnyIntArray:
        """Return a uniformly random order of ``0 … n-1``."""


def assign_randomly(
    codes: CodeArray,
    counts: IntArray,
    limits: IntArray,
    setting: BucketSetting,
    random: Permuter,
) -> CodeArray:
    """Draw a bucket for each record.

    Given which values each bucket holds, every way to match the records with the values is
    equally likely: that is what makes ``count / size`` the probability of a value.

    Parameters
    ----------
    codes : ndarray of int32, shape (n_records,)
        Position of each record's sensitive value in `counts`.
    counts : ndarray of int64, shape (m,)
        Records of each sensitive value: o_i.
    limits : ndarray of int64, shape (m, q)
        Most occurrences of each value in one bucket of each size.
    setting : BucketSetting
        A valid setting.
    random : Permuter
        Source of randomness.

    Returns
    -------
    ndarray of int32, shape (n_records,)
        0-based bucket numbers; buckets of smaller sizes come first.

    Raises
    ------
    InfeasibleError
        If the setting is not valid.

    Notes
    -----
    **Source:** [GB] Section 4: record partition (Algorithm 1), then round-robin assignment. "Any"
    records are moved and dealt there; here the records of each value come in random order.
    """
    allotment = round_robin(partition_records(counts, limits, setting), setting)
    # A stable sort by value leaves the records of each value in their random order.
    order = random.permutation(codes.size)
    narrow = codes.astype(np.min_scalar_type(counts.size))  # numpy sorts 16 bits by their digits
    order = taken(order, order_of(taken(narrow, order), stable=True))
    return allotment.dealt_to(order)
