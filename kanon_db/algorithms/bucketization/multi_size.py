"""Bucket setting of any number of sizes, by splitting into two sizes again and again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.assignment import partition_records
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.setting import BucketSetting, record_counts
from kanon_db.algorithms.bucketization.two_size import two_size
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse


def multi_size(
    counts: npt.ArrayLike,
    privacy: FPrimePrivacy,
    max_bucket_size: int,
    *,
    pulse: Pulse = UNLIMITED,
) -> BucketSetting:
    """Find a good bucket setting of any number of sizes, never worse than the best of two.

    Every record finds a place, and no bucket holds a sensitive value more often than its
    threshold allows: see :func:`~kanon_db.algorithms.bucketization.assignment.partition_records`.

    Parameters
    ----------
    counts : array_like of int, shape (m,)
        Records of each sensitive value: o_i.
    privacy : FPrimePrivacy
        Thresholds of the m values.
    max_bucket_size : int
        M', the most records in a bucket, in [1, 5000].
    pulse : Pulse
        Beaten every few milliseconds of work; what that raises ends the search.

    Returns
    -------
    BucketSetting
        Empty for an empty table.

    Raises
    ------
    IneligibleError, InfeasibleError, InvalidParameterError
        As :func:`~kanon_db.algorithms.bucketization.two_size.two_size`. There can be a valid
        setting of more sizes when there is none of two:
        :func:`~kanon_db.algorithms.bucketization.optimal.optimal` finds it.

    Notes
    -----
    **Source:** [GB] Algorithm 4: split the table by its best setting of two sizes, then the
    records of each size by theirs, as long as that lowers the loss.

    Deviations:

    - Begun with a single bucket of all records, the algorithm returns that bucket where no two
      sizes do better; but it may exceed M' or break privacy. Here there is no setting then. The
      records of one size always have one, the buckets that they come from.
    - Thresholds are those of the whole table at every depth.
    - Which records the partition moves decides how well each part can be split, and so up to a
      third of the loss. Three rules are tried, and the best result kept: to move records of all
      values in proportion, of the values with the lowest thresholds first, or the highest.
    - In the end, the records of any two sizes are put together and split anew if that lowers the
      loss, until no two are left where it does: that mends most of what an early split
      has done. Each step lowers the loss or the number of parts, so that it ends.

    Cost: hundreds to some thousands of searches by two_size, on counts alone; it grows with the
    number of sizes that the result has, not with the number of records.

    Examples
    --------
    >>> from fractions import Fraction
    >>> thresholds = ("11/50", "31/50", "21/50", "1", "41/50", "41/50")
    >>> privacy = FPrimePrivacy(tuple(map(Fraction, thresholds)))
    >>> table = [1, 3, 2, 6, 4, 4]
    >>> two_size(table, privacy, 8).loss, multi_size(table, privacy, 8).pairs
    (32, ((1, 5), (2, 5), (5, 1)))
    """
    checked, _ = record_counts(counts, len(privacy.thresholds))
    whole = two_size(checked, privacy, max_bucket_size, pulse=pulse)
    by_threshold = np.array(
        sorted(range(checked.size), key=lambda i: (privacy.thresholds[i], checked[i])),
        dtype=np.int64,
    )
    best = whole
    for order in (None, by_threshold, by_threshold[::-1]):
        splitter = _Splitter(privacy, max_bucket_size, order, pulse)
        parts = splitter.join_and_split(splitter.split(checked, whole))
        found = BucketSetting.of([part.size for part in parts], [part.n_buckets for part in parts])
        best = min(best, found, key=lambda setting: setting.loss)
    return best


@dataclass(frozen=True, eq=False)
class _Part:
    """Records, as counts of each value, that fill buckets of one size."""

    counts: IntArray
    size: int
    n_buckets: int

    @property
    def loss(self) -> int:
        return self.n_buckets * (self.size - 1) ** 2


@dataclass(frozen=True, eq=False)
class _Splitter:
    """Splits tables under the thresholds of one; ``order`` is that in which values are moved."""

    privacy: FPrimePrivacy
    max_bucket_size: int
    order: IntArray | None
    pulse: Pulse

    def split(self, counts: IntArray, setting: BucketSetting) -> list[_Part]:
        """Split a table by its best setting, then each side by its own."""
        parts = []
        waiting = [(counts, setting)]
        while waiting:
            counts, setting = waiting.pop()
            sides = self._partition(counts, setting).T
            for side, (size, n_buckets) in zip(sides, setting.pairs, strict=True):
                part = _Part(side, size, n_buckets)
                finer = self._best_setting(side) if setting.sizes.size > 1 else setting
                if finer.loss < part.loss:
                    waiting.append((side, finer))
                else:
                    parts.append(part)
        return parts

    def join_and_split(self, parts: list[_Part]) -> list[_Part]:
        """Put any two parts together and split them anew, until that lowers the loss of none."""
        settled: list[_Part] = []
        while parts:
            part = parts.pop()
            for other in settled:
                joined = part.counts + other.counts
                setting = self._best_setting(joined)
                if part.size == other.size or setting.loss < part.loss + other.loss:
                    settled.remove(other)
                    parts += self.split(joined, setting)
                    break
            else:
                settled.append(part)
        return settled

    def _best_setting(self, counts: IntArray) -> BucketSetting:
        """Find the best setting of two sizes; the records of one size always have one."""
        present = np.flatnonzero(counts)
        thresholds = tuple(self.privacy.thresholds[i] for i in present)
        return two_size(
            counts[present],
            FPrimePrivacy(thresholds),
            self.max_bucket_size,
            pulse=self.pulse,
        )

    def _partition(self, counts: IntArray, setting: BucketSetting) -> IntArray:
        """Divide the records between the sizes, [GB] Algorithm 1."""
        limits = self.privacy.occurrence_limits(setting.sizes)
        if self.order is None or setting.sizes.size < 2:
            return partition_records(counts, limits, setting)
        available = np.minimum(limits * setting.counts, counts[:, np.newaxis])
        first = available[:, 0]
        excess = int(first.sum()) - int(setting.sizes[0] * setting.counts[0])
        room = (available[:, 1] - (counts - first))[self.order]
        first[self.order] -= np.clip(excess - (np.cumsum(room) - room), 0, room)
        return np.column_stack([first, counts - first])
