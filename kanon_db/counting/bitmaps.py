"""Counting with bitmaps: predicates and bucket sums on all records at once.

A bitmap is a Python integer with one bit a record, placed as
:mod:`kanon_db.algorithms.bucketization.slots` says. Integers of a million bits are combined in
microseconds; numpy adds up the slots of each bucket in some hundred.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.counting.answers import NOTHING, Counted, Estimated
from kanon_db.counting.expressions import (
    And,
    Arithmetic,
    Case,
    Expression,
    Not,
    Or,
    TruthTest,
    attributes,
    children,
    conjoin,
    disjoin,
    walk,
)

__all__ = ["Counted", "Truth", "Weighed", "by_attribute", "count_buckets", "count_exactly",
           "evaluate", "in_buckets", "is_readable", "sum_buckets", "weigh"]  # fmt: skip

Floats = FloatArray
Counts = list[NDArray[np.uint16]]
"""For each bucket size, the number of bits that each bucket of it has."""


@dataclass(frozen=True, slots=True)
class Truth:
    """For each record whether a predicate is true, or unknown for a NULL; else it is false."""

    true: int
    unknown: int


def by_attribute(condition: Expression) -> Expression:
    """Bring parts of a chain that depend on one attribute together, so that they are read once."""
    if not isinstance(condition, And | Or):
        return condition
    join = conjoin if isinstance(condition, And) else disjoin
    grouped: dict[object, list[Expression]] = {}
    for number, part in enumerate(condition.parts):
        mentioned = attributes(part)
        grouped.setdefault(mentioned if len(mentioned) == 1 else number, []).append(part)
    parts = [joined for parts in grouped.values() if (joined := join(parts)) is not None]
    return parts[0] if len(parts) == 1 else type(condition)(tuple(parts))


def is_readable(condition: Expression, with_bitmaps: frozenset[str]) -> bool:
    """Whether a condition is a combination of conditions on one attribute with bitmaps each."""
    mentioned = attributes(condition)
    if len(mentioned) <= 1:
        return bool(with_bitmaps) and mentioned <= with_bitmaps
    match condition:
        case And(parts) | Or(parts):
            return all(is_readable(part, with_bitmaps) for part in parts)
        case Not(part) | TruthTest(part):
            return is_readable(part, with_bitmaps)
        case Case():
            # What a branch keeps from a division by zero, would be evaluated without it.
            divides = any(
                isinstance(inner, Arithmetic) and inner.operator in "/%"
                for inner in walk(condition)
            )
            return not divides and all(
                is_readable(part, with_bitmaps) for part in children(condition)
            )
        case _:
            return False


def evaluate(
    condition: Expression | None, read: Callable[[Expression], Truth], everything: int
) -> Truth:
    """Evaluate a readable condition in SQL's three-valued logic.

    Parameters
    ----------
    condition : Expression or None
        None is true for every record.
    read : callable
        Finds the truth of a condition on one attribute.
    everything : int
        The bitmap of all records.
    """
    if condition is None:
        return Truth(everything, 0)
    if len(attributes(condition)) <= 1:
        return read(condition)
    match by_attribute(condition):
        case And(parts):
            true, possible = everything, everything
            for part in parts:
                truth = evaluate(part, read, everything)
                true &= truth.true
                possible &= truth.true | truth.unknown
            return Truth(true, possible & ~true)
        case Or(parts):
            true = possible = 0
            for part in parts:
                truth = evaluate(part, read, everything)
                true |= truth.true
                possible |= truth.true | truth.unknown
            return Truth(true, possible & ~true)
        case Not(part):
            truth = evaluate(part, read, everything)
            return Truth(everything & ~(truth.true | truth.unknown), truth.unknown)
        case TruthTest(part, wanted, negated):
            truth = evaluate(part, read, everything)
            held = {
                "true": truth.true,
                "false": everything & ~(truth.true | truth.unknown),
                "unknown": truth.unknown,
            }[wanted]
            return Truth(everything & ~held if negated else held, 0)
        case Case(branches, default):
            true = unknown = 0
            rest = everything
            for when, then in branches:
                here = rest & evaluate(when, read, everything).true
                truth = evaluate(then, read, everything)
                true |= here & truth.true
                unknown |= here & truth.unknown
                rest &= ~here
            truth = Truth(0, rest) if default is None else evaluate(default, read, everything)
            return Truth(true | rest & truth.true, unknown | rest & truth.unknown)
    raise TypeError("the condition is not readable")


def count_exactly(true: int) -> Counted:
    """Answer a query on one side only."""
    n = true.bit_count()
    return Counted(float(n), 0.0, n, n)


def in_buckets(bitmap: int, sizes: Sequence[int], n_buckets: Sequence[int]) -> Counts:
    """Count the bits of each bucket.

    Parameters
    ----------
    bitmap : int
    sizes, n_buckets : sequence of int
        Each bucket size, ascending, with its number of buckets.

    Examples
    --------
    >>> [counts.tolist() for counts in in_buckets(0b1101_1, [1, 2], [1, 2])]
    [[1], [2, 1]]
    """
    n_records = sum(size * n for size, n in zip(sizes, n_buckets, strict=True))
    packed = np.frombuffer(bitmap.to_bytes((n_records + 7) // 8, "little"), dtype=np.uint8)
    bits = np.unpackbits(packed, bitorder="little", count=n_records)
    counts, start = [], 0
    for size, n in zip(sizes, n_buckets, strict=True):
        slots = bits[start : start + size * n].reshape(size, n)
        # 255 slots fit one byte, which numpy adds several times as fast.
        dtype = np.uint8 if size < 256 else np.uint16
        counts.append(slots.sum(axis=0, dtype=dtype).astype(np.uint16))
        start += size * n
    return counts


def count_buckets(records: Counts, values: Counts, sizes: Sequence[int]) -> Counted:
    """Sum over all buckets what is known from q matching records and s matching values.

    Parameters
    ----------
    records, values : list of ndarray of uint16, shape (n_buckets,)
        q and s of each bucket, for each bucket size.
    sizes : sequence of int

    Returns
    -------
    Counted

    Notes
    -----
    **Source:** [GB] section 3.2 for the estimate; docs/estimation.md for the rest.

    Buckets with the same q and s count together, in whole numbers, so that neither the order nor
    the number of buckets rounds anything.
    """
    estimate = variance = 0.0
    lower = upper = n_records = n_buckets = 0
    n_q = n_s = 0
    packed_q = packed_s = 0.0
    for size, in_records, in_values in zip(sizes, records, values, strict=True):
        pair = in_records.astype(np.int32) * (size + 1) + in_values
        n = np.bincount(pair, minlength=(size + 1) ** 2).reshape(size + 1, size + 1)
        n_buckets += pair.size
        n_records += pair.size * size
        q, s = np.nonzero(n)
        n = n[q, s]
        lower += int((n * np.maximum(q + s - size, 0)).sum())
        upper += int((n * np.minimum(q, s)).sum())
        estimate += int((n * q * s).sum()) / size
        n_q += int((n * q).sum())
        n_s += int((n * s).sum())
        packed_q += int((n * q * q).sum()) / size
        packed_s += int((n * s * s).sum()) / size
        if size > 1:
            spread = q * s * (size - q) * (size - s)
            variance += int((n * spread).sum()) / (size * size * (size - 1))
    half_width = (upper - lower) / 2
    spread_s = packed_s - n_s * n_s / n_records
    share = n_q / n_records
    if half_width == 0 or variance == 0:
        return Counted(estimate, 0.0, lower, upper)
    if spread_s <= FLAT * n_s:
        return Counted(estimate, half_width, lower, upper)
    slope = (estimate - n_q * n_s / n_records) / spread_s
    within_q = (n_q - packed_q) / ((n_records - n_buckets) * share * (1 - share))
    miss = ((n_s - packed_s) * within_q) ** 2 * (slope**2 + share * (1 - share) / spread_s)
    return Counted(estimate, min(math.sqrt(variance + miss), half_width), lower, upper)


FLAT: Final = 1e-9
"""Of the matching values, what their uneven spread over buckets must exceed to tell anything."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """What the matching records, or values, of each bucket of one size weigh.

    Attributes
    ----------
    n, x, squares, positive, negative : ndarray of float64, shape (n_buckets,)
        Their number, and the sums of their values, squares, positive and negative parts.
    least, most : ndarray of float64, shape (n_buckets,)
        Their extreme values; infinite where there is none.
    """

    n: Floats
    x: Floats
    squares: Floats
    positive: Floats
    negative: Floats
    least: Floats
    most: Floats


def weigh(parts: Sequence[tuple[float, Counts]], n_buckets: Sequence[int]) -> list[Weighed]:
    """Add up what is known of each value: the buckets of each size together.

    Parameters
    ----------
    parts : sequence of (float, list of ndarray)
        Values with their matching records in each bucket.
    n_buckets : sequence of int
        Of each size.
    """
    found = []
    for place, n in enumerate(n_buckets):
        sums = np.zeros((5, n))
        least, most = np.full(n, np.inf), np.full(n, -np.inf)
        for x, counts in parts:
            count = counts[place].astype(np.float64)
            each = np.array([1, x, x * x, max(x, 0), min(x, 0)])
            sums += each[:, None] * count
            here = counts[place] > 0
            least[here & (x < least)] = x
            most[here & (x > most)] = x
        n_here, x_sum, squares, positive, negative = sums
        found.append(Weighed(n_here, x_sum, squares, positive, negative, least, most))
    return found


def sum_buckets(
    weighed: Sequence[Weighed], others: Counts, sizes: Sequence[int], *, is_average: bool
) -> Estimated:
    """Sum, or average, over all buckets what x values and s matches of the other side allow.

    Parameters
    ----------
    weighed : sequence of Weighed
    others : list of ndarray of uint16
        s of each bucket.
    sizes : sequence of int
    is_average : bool

    Notes
    -----
    **Source:** docs/estimation.md. The same numbers as the statement's, up to rounding.
    """
    totals = np.zeros(9)
    least, most = math.inf, -math.inf
    for size, w, counts in zip(sizes, weighed, others, strict=True):
        at = (w.n > 0) & (counts > 0)
        q, x, low, high = w.n[at], w.x[at], w.least[at], w.most[at]
        if not q.size:
            continue
        s = counts[at].astype(np.float64)
        lo, hi = np.maximum(q + s - size, 0), np.minimum(q, s)
        rest = (s - s * s / size) / max(size - 1, 1)
        # Between lo and hi of the q are meant; each bound takes what so many can reach.
        upper = np.minimum.reduce(
            [
                w.positive[at],
                np.maximum(lo * high, hi * high),
                np.maximum(x - (q - lo) * low, x - (q - hi) * low),
            ]
        )
        lower = np.maximum.reduce(
            [
                w.negative[at],
                np.minimum(lo * low, hi * low),
                np.minimum(x - (q - lo) * high, x - (q - hi) * high),
            ]
        )
        totals += [
            float(part.sum())
            for part in (
                x * s / size,
                q * s / size,
                (w.squares[at] - x * x / size) * rest,
                (q - q * q / size) * rest,
                (x - x * q / size) * rest,
                lower,
                upper,
                lo,
                hi,
            )
        ]
        least, most = min(least, float(low.min())), max(most, float(high.max()))
    t, c, tt, cc, tc, t_low, t_high, c_low, c_high = totals.tolist()
    if c == 0:
        return NOTHING
    if not is_average:
        return Estimated(t, math.sqrt(max(tt, 0)), t_low, t_high)
    mean = t / c
    error = math.sqrt(max(tt - 2 * mean * tc + mean * mean * cc, 0)) / c
    if c_low == c_high:
        least, most = max(least, t_low / c), min(most, t_high / c)
    return Estimated(mean, error, least, most)
