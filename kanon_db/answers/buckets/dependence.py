"""How far a dependence between records and values may go that buckets hide.

Who of a bucket has which of its values is hidden, so what a count or a sum misses is a correlation
inside of buckets. Records are drawn for their buckets: how they go with values from bucket to
bucket tells how they may go inside, and more so where buckets differ much.

**Source:** our own; docs/understand/estimation.md derives it. Learning a slope from totals of
groups is ecological regression (L. Goodman 1953, G. King 1997), which holds as far as groups are
drawn at random.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, Self

import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, FloatArray
from kanon_db.query.formulas import Estimated, MatchedPairs
from kanon_db.query.layout import Assignment

_ANOTHER: Final = 0.04
"""How far, as a standard deviation, the correlation inside of buckets may be off that between them:
a value's bucket also has others, whose own dependence shows with it."""

FLAT: Final = 1e-9
"""What varies less between buckets, as a part of all that varies, tells nothing."""

_GOES_ON: Final[Mapping[Assignment, float]] = {"random": 1.0, "cells": 0.5}
"""How much of a dependence between buckets is inside, too: between cells it is another one."""

_HELD_BACK: Final = 0.5
"""How much weights miss, of what they say: they are capped, and learned with care."""


class SideSums(NamedTuple):
    """What records (or values) weigh: 1 each, or a number; arrays of shape (n_pairs,)."""

    total: FloatArray
    squares: FloatArray
    packed: FloatArray  # Sums over buckets, of each bucket's total squared over its size

    def varying(self, n_records: int) -> FloatArray:
        """Return the sum of squares about the mean of all records."""
        return np.maximum(self.squares - self.total**2 / n_records, 0.0)

    @property
    def inside(self) -> FloatArray:
        """Return the sum of squares about the mean of each bucket."""
        return np.maximum(self.squares - self.packed, 0.0)


class Doubt(NamedTuple):
    """What a correlation inside of buckets may add to a count, or a sum."""

    shown: float  # As much as is likely by the correlation between buckets, if that goes on inside
    untold: float  # The variance of what does not show

    @classmethod
    def of_mixed(cls, variance: float, n_records: int, n_buckets: int, strength: float) -> Self:
        """Doubt pairs that are no product of sides, given the variance of a random matching."""
        # A difference of sums may be a little below 0.
        return cls(0.0, max(variance, 0.0) * (n_records - n_buckets) * strength**2)


def judge_pairs(
    pairs: MatchedPairs,
    doubt: Doubt,
    assignment: Assignment,
    *,
    by_weights: float | None = None,
    is_paper: bool = False,
) -> Estimated:
    """Choose an estimate, and say how far off it may be.

    `pairs`: what a random matching gives: the paper's estimate.
    """
    # `by_weights`: the estimate by weights; None where there are none.
    # `is_paper`: whether the paper's estimator is asked for.
    # The constants were chosen on eight tables; ``python -m benchmarks calibration`` measures on
    # others how often the truth lies within the errors.
    low, high = pairs.lower_bound, pairs.upper_bound
    learned = 0.0 if by_weights is None else (by_weights - pairs.estimate) * pairs.number
    estimate = pairs.estimate if by_weights is None or is_paper else by_weights
    miss = max(pairs.variance, 0.0) + doubt.untold + (_HELD_BACK * learned) ** 2
    miss += (_GOES_ON[assignment] * (doubt.shown - learned)) ** 2
    if is_paper:
        miss += learned**2
    # Equal bounds may differ by what is rounded.
    error = min(math.sqrt(miss) / pairs.number, max(high - low, 0) / 2)
    return Estimated(min(max(estimate, low), high), error, low, high)


class HiddenParts(NamedTuple):
    """The doubts of pairs of groups; arrays of shape (n_pairs,)."""

    shown: FloatArray
    untold: FloatArray

    def at(self, place: int) -> Doubt:
        """Return one of them."""
        return Doubt(float(self.shown[place]), float(self.untold[place]))


class PairSums(NamedTuple):
    """What both sides of pairs of groups weigh, each on its own, in how many buckets."""

    records: SideSums
    values: SideSums
    n_records: int
    n_buckets: int

    @np.errstate(invalid="ignore", over="ignore")  # Sums of infinite numbers are refused later
    def hide(self, expected: FloatArray, strength: float) -> HiddenParts:
        """Return what buckets hide.

        `expected`: the sum of products of both sides, by random matchings.
        `strength`: the standard deviation of correlations, before anything is seen of this one.
        """
        n, records, values = self.n_records, self.records, self.values
        varying = np.sqrt(records.varying(n) * values.varying(n))
        between = 1 - _divide(values.inside, values.varying(n))
        tells = between > FLAT
        # What is seen of a correlation is off it by the draw, with the variance 1 / (n between).
        seen = _divide(expected - records.total * values.total / n, varying * between, where=tells)
        off = _ANOTHER**2 + _divide(np.ones_like(between), n * between, where=tells)
        heard = np.where(tells, strength**2 / (strength**2 + off), 0.0)
        # A sum over all pairs of a record and another one's value, instead of the bucket's
        inside = _divide(records.inside * values.inside, varying)
        reach = inside * n / max(n - self.n_buckets, 1)
        shown = reach * heard * np.clip(seen, -1, 1)
        return HiddenParts(shown, (reach * strength) ** 2 * (1 - heard))


def _divide(
    parts: FloatArray, total: FloatArray, where: BoolArray | Literal[True] = True
) -> FloatArray:
    """Divide; what is divided by nothing is nothing."""
    return np.divide(parts, total, out=np.zeros_like(total), where=where & (total > 0))
