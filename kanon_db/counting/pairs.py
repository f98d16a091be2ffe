"""Counting the pairs of a record and a value that match, where a condition needs both sides.

Which of them match follows from their classes; see `kanon_db.counting.classes`. What a bucket gives
follows from how many records and values of each class it has or, where there are many classes, from
its records and values one by one.

`kanon_db.counting.writing.pairs` has the same formulas in SQL; tests hold the two to the same
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kanon_db.counting.bitmaps import (
    by_size,
    in_buckets,
    numbered,
    some_buckets,
    weigh_slots,
)
from kanon_db.counting.formulas import Weighed, summed
from kanon_db.counting.regression import Matched

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import BoolArray, FloatArray
    from kanon_db.counting.bitmaps import AnyArray
    from kanon_db.counting.formulas import Counts

_FEW_CODES: Final = 1 << 18
_MOST_CODES: Final = 1 << 62
"""Codes of how many records and values of each class a bucket has: few can be counted each."""


class Divided:
    """How the records, or values, of each bucket are divided into classes.

    What is not asked for is not worked out; what is, is kept.

    Parameters
    ----------
    bits : int
        The bitmap of the records, or values.
    classes : sequence of int
        The bitmaps of all classes, which have nothing in common.
    shape : tuple of sequence of int
        Each bucket size, ascending; its number of buckets.
    heartbeat : callable
    """

    def __init__(
        self,
        bits: int,
        classes: Sequence[int],
        shape: tuple[Sequence[int], Sequence[int]],
        heartbeat: Callable[[], None],
    ) -> None:
        self._bits = bits
        self._classes = classes
        self.shape = shape
        self.heartbeat = heartbeat

    @cached_property
    def counts(self) -> list[Counts]:
        """For each class, how many of it each bucket has, for each bucket size."""
        return [in_buckets(bits, *self.shape) for bits in self._parts()]

    @cached_property
    def slots(self) -> list[AnyArray]:
        """For each bucket size, the class at each place, from 1, shape (size, n_buckets)."""
        n_records = sum(size * n for size, n in zip(*self.shape, strict=True))
        numbers = numbered(self._parts(), len(self._classes), n_records)
        return [slots for slots, *_ in by_size(numbers, *self.shape)]

    def _parts(self) -> Iterator[int]:
        for bitmap in self._classes:
            self.heartbeat()
            yield self._bits & bitmap


def is_one_by_one(size: int, n_pairs: int) -> bool:
    """Whether the places of a bucket make fewer pairs than the classes."""
    return size * size < n_pairs


def count_pairs(records: Divided, values: Divided, matches: Sequence[Sequence[bool]]) -> Matched:
    """Count over all buckets what records and values of each class allow.

    Parameters
    ----------
    records, values : Divided
    matches : sequence of sequence of bool
        For each class of records, whether it matches each class of values.

    Notes
    -----
    A bucket has t pairs that match, and t / size of them are expected to be real. The variance is
    that of Hoeffding 1951. Every cover of the pairs by records and values (König) bounds their
    number from above, and a cover of the other pairs from below. See docs/estimation.md.
    """
    import numpy as np

    estimate = variance = 0.0
    lower = upper = 0
    m = np.array(matches, dtype=np.float64)
    for place, (size, n_buckets) in enumerate(zip(*records.shape, strict=True)):
        if is_one_by_one(size, m.size):
            found = _one_by_one(records.slots[place], values.slots[place], m)
        else:
            in_records, in_values = (
                [counts[place] for counts in side.counts] for side in (records, values)
            )
            found = _by_classes(in_records, in_values, m, size, n_buckets)
        for n, q, of_q, s, of_s in found:
            records.heartbeat()
            q_any, s_any = (q * (of_q > 0)).sum(axis=0), (s * (of_s > 0)).sum(axis=0)
            q_full, s_full = (q * (of_q == size)).sum(axis=0), (s * (of_s == size)).sum(axis=0)
            q_all = (q * ((of_q == s_any) & (of_q > 0))).sum(axis=0)
            s_all = (s * ((of_s == q_any) & (of_s > 0))).sum(axis=0)
            q_rest = (q * (of_q > s_full)).sum(axis=0)
            s_rest = (s * (of_s > q_full)).sum(axis=0)
            t = (q * of_q).sum(axis=0)
            squares = (q * of_q * of_q).sum(axis=0) + (s * of_s * of_s).sum(axis=0)
            estimate += float((n * t).sum()) / size
            variance += float((n * _spread(t, squares, t * t, size)).sum())
            least = np.maximum.reduce(
                [q_full, s_full, q_any + s_all - size, q_all + s_any - size, np.zeros(t.shape)]
            )
            most = np.minimum.reduce([q_any, s_any, q_full + s_rest, s_full + q_rest])
            lower += int((n * least).sum())
            upper += int((n * most).sum())
    return Matched(estimate, variance, lower, upper)


def _by_classes(
    records: Sequence[AnyArray], values: Sequence[AnyArray], m: FloatArray, size: int, n: int
) -> Iterator[tuple[FloatArray, ...]]:
    """Yield some buckets at a time, with how many are like each.

    For each class of either side, this is how many each bucket has of it, and of its matches.
    """
    import numpy as np

    every, n_classes = (*records, *values), len(records) + len(values)
    n_codes = (size + 1) ** n_classes
    if n_codes <= _MOST_CODES:  # buckets with the same numbers together
        code = np.zeros(n, dtype=np.int64)
        for counts in every:
            code = code * (size + 1) + counts
        if n_codes <= _FEW_CODES:
            times = np.bincount(code)
            different = np.flatnonzero(times)
            times = times[different]
        else:
            different, times = np.unique(code, return_counts=True)
        numbers = np.empty((n_classes, different.size))
        for row in reversed(numbers):
            different, row[:] = np.divmod(different, size + 1)
        q, s = numbers[: len(records)], numbers[len(records) :]
        yield times.astype(np.float64), q, m @ s, s, m.T @ q
        return
    for here in some_buckets(n, n_classes):
        numbers = np.array([counts[here] for counts in every], dtype=np.float64)
        q, s = numbers[: len(records)], numbers[len(records) :]
        yield np.ones(q.shape[1]), q, m @ s, s, m.T @ q


def _one_by_one(
    records: AnyArray, values: AnyArray, m: FloatArray
) -> Iterator[tuple[FloatArray, ...]]:
    """Yield what :func:`_by_classes` does, with each record and value as a class of its own."""
    import numpy as np

    size, n = records.shape
    for here in some_buckets(n, size * size):
        q, s = records[:, here], values[:, here]
        hits = _hits(q, s, m)
        of_q, of_s = (hits.sum(axis=axis, dtype=np.float64) for axis in (0, 1))
        yield np.ones(q.shape[1]), (q > 0).astype(float), of_q, (s > 0).astype(float), of_s


def _hits(records: AnyArray, values: AnyArray, m: FloatArray) -> BoolArray:
    """Return which places match, shape (size of values, size of records, n_buckets)."""
    import numpy as np

    matches = np.zeros((m.shape[0] + 1, m.shape[1] + 1), dtype=bool)  # no class matches nothing
    matches[1:, 1:] = m
    first = records.astype(np.intp) * matches.shape[1]
    found: BoolArray = matches.ravel()[first + values[:, np.newaxis]]
    return found


@dataclass(frozen=True)
class _Lines:
    """What each line of a side weighs, in some buckets, and each of the other side's.

    A line is a class, or one place. Arrays have the shape (n_lines, n_buckets).

    Attributes
    ----------
    own : Weighed
    others : ndarray of float64
        How many of the other side a line stands for.
    of_own, of_others : ndarray of float64
        How many of the other side match.
    x : ndarray of float64
        For lines of the other side, the sum over what matches.
    least, most : ndarray of float64
        The extremes of what matches; infinite where there is none.
    """

    own: Weighed
    others: FloatArray
    of_own: FloatArray
    of_others: FloatArray
    x: FloatArray
    least: FloatArray
    most: FloatArray


def sum_pairs(
    own: Divided,
    numbers: tuple[AnyArray, FloatArray],
    others: Divided,
    matches: Sequence[Sequence[bool]],
    *,
    is_average: bool,
) -> Matched | None:
    """Sum, or average, what the records, or the values, of each class have over their matches.

    Parameters
    ----------
    own, others : Divided
        The side that has what is summed, and the other one.
    numbers : tuple of ndarray
        Which of the numbers each place of this side has, from 1 (0 for none), and the numbers.
    matches : sequence of sequence of bool
        For each class of this side, whether it matches each class of the other one.

    Returns
    -------
    Matched or None
        None where there is nothing to sum.

    Notes
    -----
    A bound of a bucket's sum is what each place of this side can add at most, or what each place of
    the other side can; the tighter one is taken.
    """
    import numpy as np

    m = np.array(matches, dtype=np.float64)
    which, x_of = numbers
    totals, extremes = np.zeros(9), (math.inf, -math.inf)
    for place, (slots, size, n) in enumerate(by_size(which, *own.shape)):
        for here in some_buckets(n, size * min(size, len(m))):
            own.heartbeat()
            classes, x = own.slots[place][:, here], slots[:, here]
            if is_one_by_one(size, m.size):
                lines = _places(classes, x, x_of, others.slots[place][:, here], m)
            else:
                s = np.array([counts[place][here] for counts in others.counts], dtype=np.float64)
                lines = _weighed_classes(classes, x, x_of, s, m)
            found, (least, most) = _sums(lines, size)
            totals += found
            extremes = min(extremes[0], least), max(extremes[1], most)
    return summed(totals.tolist(), extremes, is_average=is_average)


def _weighed_classes(
    classes: AnyArray, slots: AnyArray, x_of: FloatArray, s: FloatArray, m: FloatArray
) -> _Lines:
    """Weigh the classes of some buckets."""
    import numpy as np

    weighed = (
        weigh_slots(np.where(classes == number, slots, 0), x_of) for number in range(1, len(m) + 1)
    )
    own = Weighed(*np.stack(list(weighed), axis=1))
    of_own = m @ s
    low, high = np.where(of_own > 0, own.least, np.inf), np.where(of_own > 0, own.most, -np.inf)
    least = np.array([low[column > 0].min(axis=0) for column in m.T])
    most = np.array([high[column > 0].max(axis=0) for column in m.T])
    return _Lines(own, s, of_own, m.T @ own.n, m.T @ own.x, least, most)


def _places(
    classes: AnyArray, slots: AnyArray, x_of: FloatArray, values: AnyArray, m: FloatArray
) -> _Lines:
    """Weigh each place of some buckets."""
    import numpy as np

    has = slots > 0
    x = np.concatenate(([0.0], x_of))[slots]
    hits = _hits(classes * has, values, m)
    of_own, of_others = (hits.sum(axis=axis, dtype=np.float64) for axis in (0, 1))
    low, high = np.where(hits, x, np.inf).min(axis=1), np.where(hits, x, -np.inf).max(axis=1)
    own = Weighed(
        has.astype(np.float64), x, x * x, np.maximum(x, 0), np.minimum(x, 0),
        np.where(has, x, np.inf), np.where(has, x, -np.inf),
    )  # fmt: skip
    s = (values > 0).astype(np.float64)
    return _Lines(own, s, of_own, of_others, np.where(hits, x, 0).sum(axis=1), low, high)


def _sums(lines: _Lines, size: int) -> tuple[FloatArray, tuple[float, float]]:
    """Add up some buckets' sums as :data:`~kanon_db.counting.formulas.TOTALS` names them."""
    import numpy as np

    own, of_own, q_of, x_of = lines.own, lines.of_own, lines.of_others, lines.x
    q, x, s = own.n, own.x, lines.others
    has, full, is_full = of_own > 0, of_own == size, q_of == size
    # What a place of the other side can add: the extremes of what it matches, or nothing.
    is_any = (s > 0) & (q_of > 0)
    lowest, highest = (np.where(is_any, ends, 0) for ends in (lines.least, lines.most))
    lowest = np.where(is_full, lowest, np.minimum(lowest, 0))
    highest = np.where(is_full, highest, np.maximum(highest, 0))
    sx, sc, sxx = ((numbers * of_own).sum(axis=0) for numbers in (x, q, own.squares))
    lxx, lcc, lxc = (
        (numbers * of_own * of_own).sum(axis=0) + (s * one * other).sum(axis=0)
        for numbers, one, other in ((own.squares, x_of, x_of), (q, q_of, q_of), (x, x_of, q_of))
    )
    own_high, own_low = (
        (has * np.where(full, x, ends)).sum(axis=0) for ends in (own.positive, own.negative)
    )
    t_high = np.minimum(own_high, (s * highest).sum(axis=0))
    t_low = np.maximum(own_low, (s * lowest).sum(axis=0))
    c_high = np.minimum((q * has).sum(axis=0), (s * (q_of > 0)).sum(axis=0))
    c_low = np.maximum((q * full).sum(axis=0), (s * is_full).sum(axis=0))
    parts = (
        sx / size, sc / size, _spread(sxx, lxx, sx * sx, size), _spread(sc, lcc, sc * sc, size),
        _spread(sx, lxc, sx * sc, size), t_low, t_high, c_low, c_high,
    )  # fmt: skip
    least, most = np.where(has, own.least, np.inf), np.where(has, own.most, -np.inf)
    return np.array([part.sum() for part in parts]), (float(least.min()), float(most.max()))


def _spread(pairs: FloatArray, lines: FloatArray, product: FloatArray, size: int) -> FloatArray:
    """Return a variance, or the covariance, over random matchings."""
    found: FloatArray = (pairs - lines / size + product / (size * size)) / max(size - 1, 1)
    return found
