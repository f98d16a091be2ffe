"""Percentiles, MIN and MAX: between what they certainly lie, from counts below and above a value.

**Theorem.** Let N records have a value, B of them one of at most t, and R a greater one, so that
N = B + R. PostgreSQL returns the value of a rank k(N), which never falls as N grows, and rises by
at most 1 with each record. The value is at most t if and only if B >= k(B + R). Now B - k(B + R)
never falls as B grows, and never rises as R grows. So if B is certainly at least b, R at most r,
and N between n and m, it is enough that b' >= k(b' + r'), where r' = min(r, m - b) and
b' = max(b, n - r'): no other B and R that are possible are worse. In the same way, with A values
less than t and S others, the value is at least t if and only if A < k(A + S), and it is enough that
a' < k(a' + s'), where s' = max(s, n - a), a' = min(a, m - s'), A is at most a, and S at least s.

If N is 0, there is no value, and nothing to hold; otherwise r' = 0 or a' = 0 is enough, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kanon_db.counting.answers import Estimated


@dataclass(frozen=True, slots=True)
class Quantile:
    """Which of N values in their order an aggregate returns.

    Attributes
    ----------
    share : float
        0 is MIN, 1 is MAX.
    is_continuous : bool
        Whether two neighbours are interpolated, as percentile_cont does.

    Examples
    --------
    >>> median = Quantile(0.5, is_continuous=True)
    >>> median.first(4), median.last(4), median.part(4)
    (2, 3, 0.5)
    >>> Quantile(0.5, is_continuous=False).first(4), Quantile(1.0, is_continuous=False).first(4)
    (2, 4)
    """

    share: float
    is_continuous: bool

    def first(self, n: float) -> int:
        """Return the rank, from 1, of the lower neighbour; calculated as PostgreSQL does."""
        if self.is_continuous:
            return math.floor(self.share * max(n - 1, 0)) + 1
        return max(math.ceil(self.share * n), 1)

    def last(self, n: float) -> int:
        """Return the rank of the upper neighbour."""
        if self.is_continuous:
            return math.ceil(self.share * max(n - 1, 0)) + 1
        return self.first(n)

    def part(self, n: float) -> float:
        """Return how far the result is from the lower neighbour to the upper one, from 0 to 1."""
        if not self.is_continuous:
            return 0.0
        at = self.share * max(n - 1, 0)
        return at - math.floor(at)


@dataclass(frozen=True, slots=True)
class Sides:
    """What is certain of the numbers of records on both sides of a value.

    Attributes
    ----------
    least, most : float
        How many records have a value at all.
    below, above : tuple of float
        At least and at most so many are below the value, or above it; one side has the value
        itself.
    """

    least: float
    most: float
    below: tuple[float, float]
    above: tuple[float, float]

    def enough(self, quantile: Quantile) -> float:
        """Return by how many records those below, which have the value, are more than needed.

        Not negative if the result is surely among them.
        """
        above = min(self.above[1], self.most - self.below[0])
        if above <= 0:
            return 0
        below = max(self.below[0], self.least - above)
        return below - quantile.last(below + above) if below >= 1 else -1

    def too_many(self, quantile: Quantile) -> float:
        """Return by how many records those below are too many, the others having the value.

        Negative if the result is surely not among them.
        """
        above = max(self.above[0], self.least - self.below[1])
        below = min(self.below[1], self.most - above)
        return below - quantile.first(below + above) if below > 0 else -1

    def enough_for(self, rank: int) -> float:
        """Return the same as :meth:`enough` for the record of a rank."""
        return max(self.below[0], self.least - self.above[1]) - rank

    def too_many_for(self, rank: int) -> float:
        """Return the same as :meth:`too_many` for the record of a rank."""
        return min(self.below[1], self.most - self.above[0]) - rank


def between(low: float, high: float, part: float) -> float:
    """Interpolate as PostgreSQL does."""
    return low + part * (high - low)


def answer(
    estimate: float | None, error: float | None, low: float | None, high: float | None
) -> Estimated:
    """Put an answer together: the estimate within the bounds, no error beyond their distance."""
    low, high = (None if end is None or not math.isfinite(end) else end for end in (low, high))
    if estimate is None or not math.isfinite(estimate):
        return Estimated(None, None, low, high)
    estimate = estimate if low is None else max(estimate, low)
    estimate = estimate if high is None else min(estimate, high)
    if error is not None and low is not None and high is not None:
        error = min(error, max(high - low, 0) / 2)
    if error is not None and not math.isfinite(error):
        error = None
    return Estimated(estimate, error, low, high)
