"""Counting the pairs of a record and a value from bitmaps, where a condition needs both sides.

Records are divided into classes by what the condition asks of records alone, and values likewise.
The condition is then evaluated once for each pair of classes, and what a bucket gives follows from
how many records and values of each class it has.

`kanon_db.counting.writing.pairs` has the same formulas in SQL; tests hold the two to the same
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from kanon_db.counting import expressions as ex
from kanon_db.counting.bitmaps import (
    Truth,
    by_size,
    evaluate,
    some_buckets,
    weigh_slots,
)
from kanon_db.counting.formulas import Weighed, summed
from kanon_db.counting.layout import BucketLayout
from kanon_db.counting.regression import Matched
from kanon_db.counting.sides import Side, by_side, side_of

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray
    from kanon_db.counting.bitmaps import AnyArray
    from kanon_db.counting.formulas import Counts

Labels: TypeAlias = tuple[int, ...]
"""The number of a class's part in each division."""

Classes: TypeAlias = list[tuple[int, Labels]]
"""The bitmaps of classes that have nothing in common, with their labels."""

Pairs: TypeAlias = Callable[[Labels, Labels], bool | None]
"""Whether a condition is true for a class of records and one of values; None is unknown."""

_FEW_CODES: Final = 1 << 18
_MOST_CODES: Final = 1 << 62
"""Codes of how many records and values of each class a bucket has: few can be counted each."""


@dataclass(frozen=True)
class Leaves:
    """The parts of a condition by which it is evaluated: on records, on values, and on a pair."""

    on_sides: tuple[list[ex.Expression], list[ex.Expression]]
    on_pairs: list[ex.Expression]


def by_sides(condition: ex.Expression, layout: BucketLayout) -> ex.Expression:
    """Bring the parts of each AND and OR that are on one side together."""
    if side_of(condition, layout) is not None:
        return condition
    inner = ex.rebuilt(condition, lambda part: by_sides(part, layout))
    if not isinstance(inner, ex.And | ex.Or):
        return inner
    kind = type(inner)
    records, values, both = by_side(inner.parts, layout)
    sides = [one for side in (records, values) if (one := ex.joined(kind, side)) is not None]
    return kind((*sides, *both))


def leaves_of(condition: ex.Expression, layout: BucketLayout) -> Leaves:
    """Find the largest parts that are on one side, and what compares both sides."""
    found = Leaves(([], []), [])

    def collect(part: ex.Expression) -> None:
        side = side_of(part, layout)
        if side is None and isinstance(part, ex.And | ex.Or | ex.Not | ex.TruthTest | ex.Case):
            for inner in ex.children(part):
                collect(inner)
            return
        leaves = found.on_pairs if side is None else found.on_sides[side]
        if part not in leaves:
            leaves.append(part)

    collect(condition)
    return found


def divided(classes: Classes, parts: Sequence[int], most: int) -> Classes | None:
    """Divide classes by the part that they are in; None if there would be more than `most`."""
    found = []
    for bits, labels in classes:
        for number, part in enumerate(parts):
            if both := bits & part:
                found.append((both, (*labels, number)))
        if len(found) > most:
            return None
    return found


@dataclass(frozen=True)
class Matching:
    """Which classes of records and of values match; each of them matches one at least.

    Attributes
    ----------
    sides : tuple of list of int
        The bitmaps of the classes of records, and of values.
    matches : list of tuple of bool
        For each class of records, whether it matches each class of values.
    """

    sides: tuple[list[int], list[int]]
    matches: list[tuple[bool, ...]]

    def along(self, side: Side) -> list[tuple[bool, ...]]:
        """Return the matches of each class of one side."""
        return list(zip(*self.matches, strict=True)) if side else self.matches


def match(
    condition: ex.Expression, truths: Mapping[ex.Expression, Pairs], sides: tuple[Classes, Classes]
) -> Matching:
    """Evaluate a condition for each pair of classes, and put alike ones together.

    Parameters
    ----------
    condition : Expression
    truths : mapping
        The truth of each of its leaves.
    sides : tuple of Classes
        Of records and of values.
    """
    records, values = sides
    pairs = [(record, value) for _, record in records for _, value in values]

    def read(leaf: ex.Expression) -> Truth:
        found = [truths[leaf](*pair) for pair in pairs]
        true, unknown = (
            sum(1 << place for place, truth in enumerate(found) if truth is wanted)
            for wanted in (True, None)
        )
        return Truth(true, unknown)

    true = evaluate(condition, read, (1 << len(pairs)) - 1, truths.__contains__).true
    rows = [
        tuple(bool(true >> (n * len(values) + m) & 1) for m in range(len(values)))
        for n in range(len(records))
    ]
    of_records = _alike([bits for bits, _ in records], rows)
    of_values = _alike([bits for bits, _ in values], list(zip(*of_records, strict=True)))
    matches = list(zip(*of_values, strict=True))
    return Matching((list(of_records.values()), list(of_values.values())), matches)


def _alike(bitmaps: Sequence[int], rows: Sequence[tuple[bool, ...]]) -> dict[tuple[bool, ...], int]:
    """Put classes together that match the same, and leave out those that match nothing."""
    found: dict[tuple[bool, ...], int] = {}
    for bits, row in zip(bitmaps, rows, strict=True):
        if any(row):
            found[row] = found.get(row, 0) | bits
    return found


def count_pairs(
    records: Sequence[Counts],
    values: Sequence[Counts],
    matches: Sequence[Sequence[bool]],
    sizes: Sequence[int],
) -> Matched:
    """Count over all buckets what records and values of each class allow.

    Parameters
    ----------
    records, values : sequence of list of ndarray of uint8 or uint16
        For each class, how many of it each bucket has, for each bucket size.
    matches : sequence of sequence of bool
        For each class of records, whether it matches each class of values.
    sizes : sequence of int

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
    for place, size in enumerate(sizes):
        sides = [[counts[place] for counts in side] for side in (records, values)]
        for q, s, n in _different(sides[0], sides[1], size):
            of_q, of_s = m @ s, m.T @ q
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


def _different(
    records: Sequence[AnyArray], values: Sequence[AnyArray], size: int
) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
    """Yield the counts of buckets, some at a time, with how many buckets have them."""
    import numpy as np

    all_counts, n_buckets = (*records, *values), records[0].size
    n_codes = (size + 1) ** len(all_counts)
    if n_codes <= _MOST_CODES:
        code = np.zeros(n_buckets, dtype=np.int64)
        for counts in all_counts:
            code = code * (size + 1) + counts
        if n_codes <= _FEW_CODES:
            n = np.bincount(code)
            different = np.flatnonzero(n)
            n = n[different]
        else:
            different, n = np.unique(code, return_counts=True)
        numbers = np.empty((len(all_counts), different.size))
        for row in reversed(numbers):
            different, row[:] = np.divmod(different, size + 1)
        yield numbers[: len(records)], numbers[len(records) :], n.astype(np.float64)
        return
    for here in some_buckets(n_buckets, len(all_counts)):
        numbers = np.array([counts[here] for counts in all_counts], dtype=np.float64)
        yield numbers[: len(records)], numbers[len(records) :], np.ones(numbers.shape[1])


def sum_pairs(
    numbers: tuple[AnyArray, AnyArray],
    x_of: FloatArray,
    others: Sequence[Counts],
    matches: Sequence[Sequence[bool]],
    shape: tuple[Sequence[int], Sequence[int]],
    heartbeat: Callable[[], None],
    *,
    is_average: bool,
) -> Matched | None:
    """Sum, or average, what the records, or the values, of each class have over their matches.

    Parameters
    ----------
    numbers : tuple of ndarray of unsigned int, shape (n_records,)
        For the side that has what is summed: which class each place is in, and which of the
        numbers it has, from 1; 0 for none.
    x_of : ndarray of float64
        The numbers.
    others : sequence of list of ndarray of uint8 or uint16
        For each class of the other side, how many of it each bucket has, for each bucket size.
    matches : sequence of sequence of bool
        For each class of the side, whether it matches each class of the other one.
    shape : tuple of sequence of int
        Each bucket size, ascending; its number of buckets.
    heartbeat : callable

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
    totals, extremes = np.zeros(9), (math.inf, -math.inf)
    own, x = (by_size(array, *shape) for array in numbers)
    for place, ((in_class, size, n), (slots, _, _)) in enumerate(zip(own, x, strict=True)):
        for here in some_buckets(n, size * (len(m) + m.shape[1])):
            heartbeat()
            weighed = [
                Weighed(
                    *weigh_slots(np.where(in_class[:, here] == number, slots[:, here], 0), x_of)
                )
                for number in range(1, len(m) + 1)
            ]
            s = np.array([counts[place][here] for counts in others], dtype=np.float64)
            found, (least, most) = _sums(weighed, s, m, size)
            totals += found
            extremes = min(extremes[0], least), max(extremes[1], most)
    return summed(totals.tolist(), extremes, is_average=is_average)


def _sums(
    weighed: Sequence[Weighed], s: FloatArray, m: FloatArray, size: int
) -> tuple[FloatArray, tuple[float, float]]:
    """Add up some buckets' sums as :data:`~kanon_db.counting.formulas.TOTALS` names them."""
    import numpy as np

    q, x, squares, positive, negative, low, high = (
        np.array([getattr(w, name) for w in weighed])
        for name in ("n", "x", "squares", "positive", "negative", "least", "most")
    )
    of_own, q_of, x_of = m @ s, m.T @ q, m.T @ x
    has, full, is_full = of_own > 0, of_own == size, q_of == size
    low, high = np.where(has, low, np.inf), np.where(has, high, -np.inf)
    # What a place of the other side can add: the extremes of what it matches, or nothing.
    is_any = (s > 0) & (q_of > 0)
    lowest, highest = (
        np.array([extreme(ends[column > 0], axis=0) for column in m.T])
        for extreme, ends in ((np.min, low), (np.max, high))
    )
    lowest, highest = (np.where(is_any, ends, 0) for ends in (lowest, highest))
    lowest = np.where(is_full, lowest, np.minimum(lowest, 0))
    highest = np.where(is_full, highest, np.maximum(highest, 0))
    sx, sc, sxx = ((numbers * of_own).sum(axis=0) for numbers in (x, q, squares))
    lxx, lcc, lxc = (
        (numbers * of_own * of_own).sum(axis=0) + (s * one * other).sum(axis=0)
        for numbers, one, other in ((squares, x_of, x_of), (q, q_of, q_of), (x, x_of, q_of))
    )
    t_high = np.minimum((has * np.where(full, x, positive)).sum(axis=0), (s * highest).sum(axis=0))
    t_low = np.maximum((has * np.where(full, x, negative)).sum(axis=0), (s * lowest).sum(axis=0))
    c_high = np.minimum((q * has).sum(axis=0), (s * (q_of > 0)).sum(axis=0))
    c_low = np.maximum((q * full).sum(axis=0), (s * is_full).sum(axis=0))
    parts = (
        sx / size, sc / size, _spread(sxx, lxx, sx * sx, size), _spread(sc, lcc, sc * sc, size),
        _spread(sx, lxc, sx * sc, size), t_low, t_high, c_low, c_high,
    )  # fmt: skip
    return np.array([part.sum() for part in parts]), (float(low.min()), float(high.max()))


def _spread(pairs: FloatArray, lines: FloatArray, product: FloatArray, size: int) -> FloatArray:
    """Return a variance, or the covariance, over random matchings."""
    found: FloatArray = (pairs - lines / size + product / (size * size)) / max(size - 1, 1)
    return found
