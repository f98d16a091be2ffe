"""F'-privacy: a threshold of its own for each sensitive value ([GB] Section 3.3).

Thresholds are exact rationals, down to the number of occurrences that a bucket may hold: in
floating point ``0.29 * 100`` is 28.999…, whose floor is one short.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.setting import record_counts
from kanon_db.algorithms.ground.arrays import BoolArray, IntArray, SmallIntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.errors import InvalidParameterError

_SIZES_PER_BLOCK = 64


@dataclass(frozen=True)
class FPrimePrivacy:
    """Upper bounds f'_i on the frequency of each sensitive value within any bucket.

    Parameters
    ----------
    thresholds : tuple of Fraction, length m
        f'_i of each sensitive value, in the range (0, 1].

    Raises
    ------
    InvalidParameterError
        If a threshold lies outside the range.

    Notes
    -----
    **Source:** [GB] Definition 3.

    Examples
    --------
    >>> privacy = FPrimePrivacy((Fraction(29, 100), Fraction(1, 3)))
    >>> privacy.occurrence_limits([3, 4, 100]).tolist()
    [[0, 1, 29], [1, 1, 33]]
    >>> privacy.smallest_bucket_size(), privacy.corresponding_l()
    (3, 4)
    """

    thresholds: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        # With cells, there are thousands of these; whole numbers are compared ten times as fast.
        outside = sum(not 0 < t.numerator <= t.denominator for t in self.thresholds)
        if outside:
            raise InvalidParameterError(
                "a privacy threshold must lie in (0, 1]",
                detail=f"{outside} of {len(self.thresholds)} thresholds lie outside",
            )

    def occurrence_limits(self, sizes: npt.ArrayLike) -> IntArray:
        """Most occurrences of each value in one bucket of each size: floor(f'_i S_j), exactly.

        Parameters
        ----------
        sizes : array_like of int, shape (q,)
            Bucket sizes, in records, at least 1.

        Returns
        -------
        ndarray of int64, shape (m, q)
            At most the bucket size.

        Notes
        -----
        **Source:** [GB] Lemma 2 (4), the factor floor(f'_i S_j) of u_ij in Definition 5.
        """
        columns = np.asarray(sizes, dtype=np.int64)
        limits: IntArray
        numerators, denominators, largest = self._in_arrays
        # No numerator exceeds its denominator.
        if largest * int(columns.max(initial=1)) < 2**63:
            limits = numerators * columns // denominators
            return limits
        products = numerators.astype(object) * columns.astype(object)
        limits = (products // denominators.astype(object)).astype(np.int64)
        return limits

    @cached_property
    def _in_arrays(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any], int]:
        """Numerators and denominators, of shape (m, 1), and the largest denominator.

        With cells, the limits of the same thresholds are asked for thousands of times.
        """
        numerators = [[threshold.numerator] for threshold in self.thresholds]
        denominators = [[threshold.denominator] for threshold in self.thresholds]
        largest = max((t.denominator for t in self.thresholds), default=1)
        integer = np.int64 if largest < 2**63 else object
        shape = (len(self.thresholds), 1)
        return (
            np.array(numerators, dtype=integer).reshape(shape),
            np.array(denominators, dtype=integer).reshape(shape),
            largest,
        )

    def limits_of_many(self, sizes: IntArray, pulse: Pulse) -> SmallIntArray:
        """Return the occurrence limits of sizes up to 2^15 - 1, a block of sizes at a time."""
        limits = np.empty((len(self.thresholds), sizes.size), dtype=np.int16)
        for start in range(0, sizes.size, _SIZES_PER_BLOCK):
            pulse.beat()
            block = slice(start, start + _SIZES_PER_BLOCK)
            limits[:, block] = self.occurrence_limits(sizes[block])
        return limits

    def tightened(self, factor: Fraction) -> FPrimePrivacy:
        """Lower the thresholds by as much as the odds of a guess may be raised.

        Parameters
        ----------
        factor : Fraction
            At least 1.

        Returns
        -------
        FPrimePrivacy
            f' / (f' + factor (1 - f')); 1 remains 1.

        Examples
        --------
        >>> FPrimePrivacy((Fraction(1, 2), Fraction(1))).tightened(Fraction(3)).thresholds
        (Fraction(1, 4), Fraction(1, 1))
        """
        return FPrimePrivacy(tuple(t / (t + factor * (1 - t)) for t in self.thresholds))

    def diverse(self) -> FPrimePrivacy:
        """Lower all thresholds to 1/l, for the smallest l whose l-diversity implies them.

        Examples
        --------
        >>> FPrimePrivacy((Fraction(2, 5), Fraction(1))).diverse().thresholds
        (Fraction(1, 3), Fraction(1, 3))
        """
        return FPrimePrivacy((Fraction(1, self.corresponding_l()),) * len(self.thresholds))

    def smallest_bucket_size(self) -> int:
        """Smallest bucket that may hold any record: M = min_i ceil(1 / f'_i).

        Returns
        -------
        int
            At least 1; 1 when there is no value at all.

        Notes
        -----
        **Source:** [GB] Section 5.
        """
        return min((-(-t.denominator // t.numerator) for t in self.thresholds), default=1)

    def corresponding_l(self) -> int:
        """Smallest l whose l-diversity implies this F'-privacy: ceil(1 / min_i f'_i).

        Returns
        -------
        int
            At least 1; 1 when there is no value at all.

        Notes
        -----
        **Source:** [GB] Remark 1.
        """
        return max((-(-t.denominator // t.numerator) for t in self.thresholds), default=1)

    def ineligible(self, counts: npt.ArrayLike) -> BoolArray:
        """Tell which values are more frequent in the whole table than their threshold.

        No bucketization satisfies F'-privacy if and only if there is such a value.

        Parameters
        ----------
        counts : array_like of int, shape (m,)
            Records of each sensitive value.

        Returns
        -------
        ndarray of bool, shape (m,)

        Notes
        -----
        **Source:** [GB] Lemma 1.
        """
        checked, n_records = record_counts(counts, len(self.thresholds))
        return np.array(
            [
                count * threshold.denominator > n_records * threshold.numerator
                for count, threshold in zip(checked.tolist(), self.thresholds, strict=True)
            ],
            dtype=np.bool_,
        )
