"""Plays the minimality attack (Wong et al. 2007) on buckets: names who opened or closed each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from kanon_db.algorithms.attacks.attack_scores import AttackScore, TrueValues
from kanon_db.algorithms.attacks.bucket_beliefs import BucketValues
from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    sort_keys,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse

ALL_ORDERS_OF = 4
"""Most attributes of which all orders are tried."""


@dataclass(frozen=True)
class SweepOrder:
    """An order in which records may have been gathered.

    Attributes
    ----------
    attributes : tuple of int
        The quasi-identifiers to sort by, the first foremost.
    reflected : bool
        Whether the order within an attribute turns back and forth (see :func:`.sort_keys`).
    """

    attributes: tuple[int, ...]
    reflected: bool


def sweep_orders(qi_codes: CodeArray) -> list[SweepOrder]:
    """List the orders to try.

    Parameters
    ----------
    qi_codes : ndarray of int32, shape (n_records, n_qi)

    Returns
    -------
    list of SweepOrder
        All orders of up to four attributes. If there are more, all orders of the four in which most
        records agree, followed by the others, and one order that starts with each of the others.
        Each order comes plain and reflected.

    Examples
    --------
    >>> len(sweep_orders(np.zeros((2, 3), np.int32))), len(sweep_orders(np.zeros((2, 8), np.int32)))
    (12, 56)
    """
    n_records = qi_codes.shape[0]
    agreement = [
        float(np.square(np.bincount(column) / max(n_records, 1)).sum()) for column in qi_codes.T
    ]
    own = np.argsort(np.negative(agreement), kind="stable").tolist()
    head, tail = own[:ALL_ORDERS_OF], own[ALL_ORDERS_OF:]
    orders = [(*first, *tail) for first in permutations(head)]
    orders += [(a, *(b for b in own if b != a)) for a in tail]
    return [SweepOrder(order, reflected) for order in orders for reflected in (True, False)]


def ends_of_buckets(
    keys: IntArray, by_bucket: IntArray, starts: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the first and the last record of each bucket by their keys."""
    ordered = keys[by_bucket]
    bucket = np.repeat(np.arange(starts.size), np.diff(starts, append=keys.size))
    found = []
    for extreme in (np.minimum, np.maximum):
        at = np.flatnonzero(ordered == extreme.reduceat(ordered, starts)[bucket])
        _, first = np.unique(bucket[at], return_index=True)
        found.append(by_bucket[at[first]])
    return found[0], found[1]


def name_rarest(
    qi_codes: CodeArray,
    buckets: AnyIntArray,
    values: BucketValues,
    tuples: AnyIntArray,
    truth: TrueValues,
    bounds: FloatArray,
    orders: Sequence[SweepOrder],
    half: BoolArray,
    pulse: Pulse = UNLIMITED,
) -> AttackScore:
    """Name the opening or the closing record of each bucket as the holder of its rarest value.

    Parameters
    ----------
    qi_codes : ndarray of int32, shape (n_records, n_qi)
        The QIT; codes of ordered types in the type's order.
    buckets : ndarray of int, shape (n_records,)
        Each record's bucket, from 0 without gaps.
    values : BucketValues
        The SAT.
    tuples : ndarray of int, shape (n_records,)
        Each record's combination of quasi-identifiers, as `truth` numbers them.
    truth : TrueValues
        Only scores what was guessed.
    bounds : ndarray of float64, shape (n_values,)
        The thresholds f'. Buckets whose rarest value has a threshold of 1 are left out.
    orders : sequence of SweepOrder
    half : ndarray of bool, shape (n_buckets,)
        A random half of the buckets.

    Returns
    -------
    AttackScore
        The score of the best order and end. One half of the buckets chooses the best, and the other
        half scores it, in both directions; otherwise the luckiest of many orders would look like
        an attack where there is none.

    Notes
    -----
    **Source:** R. C.-W. Wong, A. W.-C. Fu, K. Wang, J. Pei, *Minimality attack in privacy
    preserving data publishing*, VLDB 2007, which shows that knowing the algorithm helps. We
    play it against the buckets of a sweep: a bucket that is closed as soon as it satisfies the
    thresholds was kept open by its rarest value.
    """
    table = np.bincount(values.value, values.count, bounds.size)
    rarest = values.last_by(-table[values.value])
    chosen = np.flatnonzero(bounds[rarest] < 1)
    guessed = rarest[chosen]
    by_bucket = np.argsort(buckets, kind="stable")
    starts = np.searchsorted(buckets[by_bucket], np.arange(rarest.size))
    columns = [qi_codes[:, a] for a in range(qi_codes.shape[1])]
    found = []
    for order in orders:
        pulse.beat()
        keys = sort_keys([columns[a] for a in order.attributes], reflected=order.reflected)
        for records in ends_of_buckets(keys, by_bucket, starts):
            persons = tuples[records[chosen]]
            found.append(_Tried.of(truth, persons, guessed, bounds, half[chosen]))
    best_of_first = max(found, key=lambda tried: tried.rate(0))
    best_of_second = max(found, key=lambda tried: tried.rate(1))
    return _Tried.joined(best_of_second, best_of_first)


@dataclass(frozen=True)
class _Tried:
    """Sums of one variant over the buckets of each half: people, right, base and bound."""

    sums: tuple[tuple[float, float, float, float], ...]

    @classmethod
    def of(
        cls,
        truth: TrueValues,
        tuples: AnyIntArray,
        guessed: IntArray,
        bounds: FloatArray,
        half: BoolArray,
    ) -> _Tried:
        right = truth.share(tuples, guessed)
        base = truth.share(tuples, np.full(tuples.size, truth.most_frequent))
        scored = ~np.isnan(right)
        return cls(
            tuple(
                (
                    float(at.sum()),
                    float(right[at].sum()),
                    float(base[at].sum()),
                    float(bounds[guessed[at]].sum()),
                )
                for at in (scored & half, scored & ~half)
            )
        )

    def rate(self, side: int) -> float:
        people, right, *_ = self.sums[side]
        return right / people if people else 0.0

    @staticmethod
    def joined(first: _Tried, second: _Tried) -> AttackScore:
        """Take the first half of one variant and the second half of another."""
        sums = [a + b for a, b in zip(first.sums[0], second.sums[1], strict=True)]
        people, right, base, bound = sums
        if not people:
            return AttackScore(0, None, None, None)
        return AttackScore(int(people), right / people, base / people, bound / people)
