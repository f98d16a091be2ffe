"""Which sensitive values buckets have: counted once, for all that is published of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.algorithms.bucketization.slots import in_slots
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, IntArray
from kanon_db.algorithms.ground.sorting import order_of, taken


@dataclass(frozen=True, eq=False)
class Contents:
    """The sensitive values of all buckets.

    Nothing in it depends on the order of the records.

    Parameters
    ----------
    codes : ndarray of int, shape (n_records,)
        Of the values, bucket after bucket by their numbers, ascending in each.
    setting : BucketSetting
        Buckets are numbered from 1, ascending with their size.
    """

    codes: AnyIntArray
    setting: BucketSetting

    @classmethod
    def of(cls, codes: AnyIntArray, bucket_ids: CodeArray, setting: BucketSetting) -> Self:
        """Gather the values of records.

        Parameters
        ----------
        codes, bucket_ids : ndarray of int, shape (n_records,)
            The value, from 0, and the bucket's number of each record.
        setting : BucketSetting

        Examples
        --------
        >>> setting = BucketSetting.of([1, 2], [1, 2])
        >>> Contents.of(np.array([4, 0, 3, 1, 1]), np.array([2, 1, 3, 3, 2]), setting).codes
        array([0, 1, 4, 1, 3])
        """
        by_value = order_of(codes, stable=True)
        by_bucket = order_of(taken(bucket_ids, by_value), stable=True)
        return cls(taken(taken(codes, by_value), by_bucket), setting)

    @property
    def sizes(self) -> IntArray:
        """The size of each bucket, by its number."""
        return np.repeat(self.setting.sizes, self.setting.counts)

    @property
    def in_slots(self) -> AnyIntArray:
        """The codes at the bits of bitmaps: those of a bucket take its slots as they come."""
        return in_slots(self.codes, self.setting)

    def pairs(self) -> tuple[AnyIntArray, CodeArray, CodeArray]:
        """Count how often each value stands in each bucket.

        Returns
        -------
        codes, bucket_ids, counts : ndarray of int, shape (n_pairs,)
            By code and bucket.

        Examples
        --------
        >>> pairs = Contents(np.array([0, 1, 1]), BucketSetting.of([1, 2], [1, 1])).pairs()
        >>> [column.tolist() for column in pairs]
        [[0, 1], [1, 2], [1, 2]]
        """
        sizes = self.sizes
        is_first = np.ones(self.codes.size, dtype=np.bool_)
        np.not_equal(self.codes[1:], self.codes[:-1], out=is_first[1:])
        is_first[np.cumsum(sizes) - sizes] = True
        firsts = np.flatnonzero(is_first)
        counts = np.diff(firsts, append=self.codes.size).astype(np.int32)
        bucket_ids = np.repeat(np.arange(1, sizes.size + 1, dtype=np.int32), sizes)[firsts]
        codes = self.codes[firsts]
        by_value = order_of(codes, stable=True)
        return taken(codes, by_value), taken(bucket_ids, by_value), taken(counts, by_value)
