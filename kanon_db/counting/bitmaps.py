"""Counting with bitmaps: predicates and bucket sums on all records at once.

A bitmap is a Python integer with one bit a record, placed as
:mod:`kanon_db.algorithms.bucketization.slots` says. Integers of a million bits are combined and
counted in microseconds, which no scan of a table is, and need no import.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kanon_db.counting.predicate import And, Condition, Not, Or, Predicate


@dataclass(frozen=True, slots=True)
class Truth:
    """For each record whether a predicate is true, or unknown for a NULL; else it is false."""

    true: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Counted:
    """The answer to a count query; see docs/estimation.md."""

    estimate: float
    std_error: float
    lower_bound: int
    upper_bound: int


def evaluate(
    predicate: Predicate | None, read: Callable[[Condition], Truth], everything: int
) -> Truth:
    """Evaluate a predicate in SQL's three-valued logic.

    Parameters
    ----------
    predicate : Predicate or None
        None is true for every record.
    read : callable
        Finds the truth of a condition on one column.
    everything : int
        The bitmap of all records.
    """
    match predicate:
        case None:
            return Truth(everything, 0)
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
        case _:
            return read(predicate)


def count_exactly(true: int) -> Counted:
    """Answer a query on one side only."""
    n = true.bit_count()
    return Counted(float(n), 0.0, n, n)


def count_buckets(
    records: int, values: int, sizes: Sequence[int], n_buckets: Sequence[int]
) -> Counted:
    """Sum over all buckets what is known from q matching records and s matching values.

    Parameters
    ----------
    records, values : int
        Bitmaps of the records that match on the quasi-identifiers, and of the sensitive values
        that match; a bucket's records and values stand in its slots in unrelated orders.
    sizes, n_buckets : sequence of int
        Each bucket size, ascending, with its number of buckets.

    Returns
    -------
    Counted

    Notes
    -----
    **Source:** [GB] section 3.2 for the estimate; docs/estimation.md for the rest.

    For each size S, bitmaps over buckets say where q >= t, and where s >= u; the number of
    buckets in both gives the joint distribution of q and s. It takes (S + 1)**2 operations on
    bitmaps of as many bits as there are buckets of that size.
    """
    estimate = variance = 0.0
    lower = upper = 0
    for size, n in zip(sizes, n_buckets, strict=True):
        q_from = _at_least(records, size, n)
        s_from = _at_least(values, size, n)
        records >>= size * n
        values >>= size * n
        both = [[(q & s).bit_count() for s in s_from] for q in q_from]
        lower += sum(both[t][size + 1 - t] for t in range(1, size + 1))
        upper += sum(both[t][t] for t in range(1, size + 1))
        # q s is the number of pairs (t, u) with t <= q and u <= s.
        estimate += sum(sum(row[1:]) for row in both[1:]) / size
        variance += _variance(both, size)
    return Counted(estimate, math.sqrt(variance), lower, upper)


def _at_least(bitmap: int, size: int, n_buckets: int) -> list[int]:
    """Return, for t from 0 to size, which buckets have at least t bits set."""
    mask = (1 << n_buckets) - 1
    at_least = [mask] + [0] * size
    for slot in range(size):
        bits = (bitmap >> (slot * n_buckets)) & mask
        if bits:
            for t in range(slot + 1, 0, -1):
                at_least[t] |= at_least[t - 1] & bits
    return at_least


def _variance(both: list[list[int]], size: int) -> float:
    """Sum the hypergeometric variances of the buckets of one size."""
    if size == 1:
        return 0.0
    total = 0
    for q in range(1, size):
        for s in range(1, size):
            n = both[q][s] - both[q + 1][s] - both[q][s + 1] + both[q + 1][s + 1]
            total += n * q * s * (size - q) * (size - s)
    return total / (size * size * (size - 1))
