"""Bounds from below what any classes of a table lose, whatever method finds them.

Each record pays for itself. No class may be paid more than it loses, so that what all records pay
together is at most the loss of any classes: the dual of set partitioning.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from kanon_db.algorithms.generalization._class_search import (
    NO_LIMIT,
    DistinctRecords,
    loss_of_pair,
)
from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, FloatArray, IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Proof, Pulse, kernel
from kanon_db.algorithms.recoding.loss import NULL, ExactLoss
from kanon_db.algorithms.recoding.microdata import Microdata, check_k, sort_order

_PRECISION: Final = 2**36  # of the loss of a record, so that rounding down costs nothing
_MOST_NODES: Final = 3000  # of the search for one record; beyond, open ones keep their bounds
_TOLERANCE: Final = 13  # Each node lets the search end 1 / 2^13 of the record's loss earlier
_MOST_OPEN: Final = 64
_TYPES_PER_PART: Final = 256
_MOMENTUM: Final = 0.6
_LEAST_STEP: Final = 2.0**-6
_PATIENCE: Final = 4  # Rounds without a better bound, until steps are halved


class _Node(NamedTuple):
    """Open nodes of the search: boxes that classes must cover at least."""

    low: IntArray  # (depth, m): least number of the box, NO_LIMIT if it has none
    high: IntArray  # (depth, m)
    null: BoolArray  # (depth, m): whether it has NULL
    has: BoolArray  # (depth, m, c): which categories it has
    count: IntArray  # (depth, m): how many
    candidates: CodeArray  # (depth, t): types that classes may hold
    n_candidates: IntArray  # (depth,)


class _Top(NamedTuple):
    """The largest multipliers among some records."""

    values: IntArray  # (2k - 2,): descending
    types: IntArray
    size: IntArray  # (1,)


class Companions(NamedTuple):
    """For each type, the class that it would overpay most: what is left to pay, and who is in it."""

    shortages: IntArray  # (t,): least of (loss - mean multiplier), rounded down
    members: CodeArray  # (t, 2k - 1): types of that class, filled up with -1
    sizes: IntArray  # (t,)


@kernel
def _loss_with(types: DistinctRecords, node: _Node, d: int, u: int) -> int:
    """Return the loss of the box of a node, made to cover a type."""
    loss = 0
    for j in range(types.numeric.size):
        value = types.values[u, j]
        if not types.numeric[j]:
            loss += types.of_count[j, node.count[d, j] + (not node.has[d, j, value])]
            continue
        null = node.null[d, j] or value == NULL
        low, high = node.low[d, j], node.high[d, j]
        if value != NULL:
            low, high = min(low, value), max(high, value)
        if low <= high:
            loss += types.whole[j] if null else high - low
    return loss


@kernel
def _covers(types: DistinctRecords, node: _Node, d: int, u: int, wanted: int) -> bool:
    """Tell whether the box of a node, made to cover a type, covers another one."""
    for j in range(types.numeric.size):
        value, sought = types.values[u, j], types.values[wanted, j]
        if not types.numeric[j]:
            if sought != value and not node.has[d, j, sought]:
                return False
            continue
        null = node.null[d, j] or value == NULL
        low, high = node.low[d, j], node.high[d, j]
        if value != NULL:
            low, high = min(low, value), max(high, value)
        if null and low <= high:
            continue
        if sought == NULL:
            if not null:
                return False
        elif not low <= sought <= high:
            return False
    return True


@kernel
def _cover(types: DistinctRecords, node: _Node, d: int, u: int) -> None:
    """Make the box of a node cover a type."""
    for j in range(types.numeric.size):
        value = types.values[u, j]
        if not types.numeric[j]:
            node.count[d, j] += not node.has[d, j, value]
            node.has[d, j, value] = True
        elif value == NULL:
            node.null[d, j] = True
        else:
            node.low[d, j] = min(node.low[d, j], value)
            node.high[d, j] = max(node.high[d, j], value)


@kernel
def _insert(top: _Top, value: int, kind: int, copies: int) -> bool:
    """Insert the multiplier of some records of a type; tell whether any is among the largest."""
    n, most = top.size[0], top.values.size
    changed = False
    for _ in range(min(copies, most)):
        if n == most and value <= top.values[n - 1]:
            break
        place = min(n, most - 1)
        while place > 0 and top.values[place - 1] < value:
            top.values[place], top.types[place] = top.values[place - 1], top.types[place - 1]
            place -= 1
        top.values[place], top.types[place] = value, kind
        n = min(n + 1, most)
        changed = True
    top.size[0] = n
    return changed


@kernel
def _best_size(top: _Top, own: int, k: int) -> tuple[int, int]:
    """Return the sum of the multipliers of the class with the largest mean, and its size."""
    total = own
    for i in range(k - 1):
        total += top.values[i]
    size = k
    while size - 1 < top.size[0] and top.values[size - 1] * size > total:
        total += top.values[size - 1]
        size += 1
    return total, size


@kernel
def _search(
    types: DistinctRecords,
    k: int,
    multipliers: IntArray,  # (t,)
    largest_mean: int,  # of any class
    t: int,
    node: _Node,
    top: _Top,
    distances: IntArray,  # (t,): scratch
    least: int,  # A class that is known
    members: CodeArray,  # (2k - 1,): its members, to be overwritten by better ones
) -> tuple[int, int]:
    """Find what is left to pay for the class that is paid best, and its size (0: the known one)."""
    n_types, scale = types.copies.size, max(multipliers[t], abs(least))
    own, size_found, open_bound, n_nodes = multipliers[t], 0, NO_LIMIT, 0
    node.low[0], node.high[0], node.null[0] = NO_LIMIT, -NO_LIMIT, False
    node.has[0], node.count[0] = False, 0
    _cover(types, node, 0, t)
    n = 0
    for u in range(n_types):
        if loss_of_pair(types, t, u) < least + largest_mean:
            node.candidates[0, n] = u
            n += 1
    node.n_candidates[0] = n
    d = 0
    while d >= 0:
        n_nodes += 1
        # The candidates by what the box loses with them
        n = 0
        for i in range(node.n_candidates[d]):
            u = node.candidates[d, i]
            loss = _loss_with(types, node, d, u)
            if loss < least + largest_mean:
                node.candidates[d, n] = u
                distances[n] = loss
                n += 1
        order = np.argsort(distances[:n])
        found = node.candidates[d, :n][order]
        losses = distances[:n][order]
        # What classes lose at least whose farthest record is that one
        top.size[0] = 0
        bound, place, last, total, size = NO_LIMIT, -1, -1, 0, 0
        for i in range(n):
            u = found[i]
            if _insert(top, multipliers[u], u, types.copies[u] - (u == t)) and (
                top.size[0] >= k - 1
            ):
                total, size = _best_size(top, own, k)
            if size:
                at_least = losses[i] + (-total) // size
                if at_least < least:
                    last = i
                if at_least < bound:
                    bound, place = at_least, i
        if bound >= least - (scale * n_nodes >> _TOLERANCE):
            open_bound = min(open_bound, bound)
            d -= 1
            continue
        top.size[0] = 0
        for i in range(place + 1):
            u = found[i]
            _insert(top, multipliers[u], u, types.copies[u] - (u == t))
        total, size = _best_size(top, own, k)
        # The box of these records: the next node's place is free for it
        loss, farthest = _loss_of(types, node, d, t, top, size, n_types), -1
        shortage = loss + (-total) // size
        if shortage < least:
            least, size_found = shortage, size
            members[:] = -1
            members[0] = t
            for i in range(size - 1):
                members[i + 1] = top.types[i]
        if shortage == bound:
            d -= 1
            continue
        if n_nodes >= _MOST_NODES or d + 2 >= _MOST_OPEN:
            open_bound = min(open_bound, bound)
            d -= 1
            continue
        dearest = -1
        for i in range(size - 1):
            at = _loss_with(types, node, d, top.types[i])
            if at > dearest:
                dearest, farthest = at, top.types[i]
        # Either the box covers that record, or none whose box would
        node.low[d + 1], node.high[d + 1], node.null[d + 1] = node.low[d], node.high[d], node.null[d]
        node.has[d + 1], node.count[d + 1] = node.has[d], node.count[d]
        _cover(types, node, d + 1, farthest)
        node.n_candidates[d + 1] = last + 1
        rest = 0
        for i in range(last + 1):
            node.candidates[d + 1, i] = found[i]
            if not _covers(types, node, d, found[i], farthest):
                node.candidates[d, rest] = found[i]
                rest += 1
        node.n_candidates[d] = rest
        d += 1
    return min(least, open_bound), size_found


@kernel
def _loss_of(
    types: DistinctRecords, node: _Node, d: int, t: int, top: _Top, size: int, n_types: int
) -> int:
    """Return the loss of a record in the class of a type and the first records of the top."""
    e = d + 1
    node.low[e], node.high[e], node.null[e] = NO_LIMIT, -NO_LIMIT, False
    node.has[e], node.count[e] = False, 0
    for i in range(size - 1):
        _cover(types, node, e, top.types[i])
    return _loss_with(types, node, e, t)


@kernel
def _price(
    types: DistinctRecords, k: int, multipliers: IntArray, first: int, last: int,
    largest_mean: int, companions: Companions, node: _Node, top: _Top, distances: IntArray,
) -> None:  # fmt: skip
    """Find the shortages of some types, starting from the classes that are known."""
    for t in range(first, last):
        size = companions.sizes[t]
        top.size[0] = 0
        total = multipliers[t]
        for i in range(size - 1):
            u = companions.members[t, i + 1]
            top.types[i] = u
            total += multipliers[u]
        least = _loss_of(types, node, 0, t, top, size, 0) + (-total) // size
        shortage, better = _search(
            types, k, multipliers, largest_mean, t, node, top, distances, least,
            companions.members[t],
        )  # fmt: skip
        companions.shortages[t] = shortage
        if better:
            companions.sizes[t] = better


def bound_loss(
    microdata: Microdata, k: int, class_of_record: IntArray, *, pulse: Pulse = UNLIMITED
) -> Proof:
    """Bound the loss of all classes of at least k records from below, beside that of some.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Fewest records of a class, at least 2.
    class_of_record : ndarray of int64, shape (n_records,)
        Classes of at least k records, whose loss the bound is compared with.
    pulse : Pulse
        When time is over, the bound is the best that was found. Beaten every few milliseconds.

    Returns
    -------
    Proof
        The loss of the classes, and the bound.

    Notes
    -----
    **Source:** the dual of set partitioning, raised by subgradients (Held, Wolfe and Crowder 1974).

    For any multipliers y, record i pays y_i + min (c(S) - mean of y in S), over the classes S with
    i of k to 2k - 1 records, each of which loses c(S). So the records of a class S together pay at
    most its loss, |S| c(S). Larger classes never beat their split. Without multipliers, each record
    pays for the least box that holds k records, and it itself; they charge outliers for the
    companions that they need.

    The minimum is found exactly by branch and bound: each record either lies in the box of the
    class, or neither it nor any record lies there with which the box would hold it. Where that
    takes long, it is bounded. All numbers are whole.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
    >>> age = Attribute(4, numbers=np.array([20.0, 30.0, 50.0, 60.0]), lower=20, upper=60)
    >>> bound_loss(Microdata([[0], [1], [2], [3]], (age,)), 2, np.array([0, 0, 1, 1])).gap
    0.0
    """
    check_k(k, microdata.n_records)
    exact = ExactLoss.of(microdata, "ncp")
    objective = exact.units_of(class_of_record)
    if not objective:
        return Proof.of(0, 0, exact.unit)
    types = DistinctRecords.of(exact, sort_order(microdata))
    factor = 1
    while 2 * factor * types.largest_loss <= _PRECISION:
        factor *= 2
    payments = _Payments(types.scaled(factor), k, objective * factor)
    payments.raise_bound(pulse)
    return Proof.of(objective, -(-payments.bound // factor), exact.unit)


class _Payments:
    """What the records of each type pay."""

    def __init__(self, types: DistinctRecords, k: int, objective: int) -> None:
        self._types, self._k, self._objective = types, k, objective
        n_types, m = types.values.shape
        n_categories = types.of_count.shape[1]
        self._scratch = (
            _Node(
                np.zeros((_MOST_OPEN, m), dtype=np.int64),
                np.zeros((_MOST_OPEN, m), dtype=np.int64),
                np.zeros((_MOST_OPEN, m), dtype=np.bool_),
                np.zeros((_MOST_OPEN, m, n_categories), dtype=np.bool_),
                np.zeros((_MOST_OPEN, m), dtype=np.int64),
                np.zeros((_MOST_OPEN, n_types), dtype=np.int32),
                np.zeros(_MOST_OPEN, dtype=np.int64),
            ),
            _Top(
                np.zeros(2 * k - 2, dtype=np.int64),
                np.zeros(2 * k - 2, dtype=np.int64),
                np.zeros(1, dtype=np.int64),
            ),
            np.zeros(n_types, dtype=np.int64),
        )
        self._companions = Companions(
            np.zeros(n_types, dtype=np.int64),
            _neighbors(types.copies, k),
            np.full(n_types, k, dtype=np.int64),
        )
        self._best = np.zeros(n_types, dtype=np.int64)
        self.bound = 0
        """What all records pay together."""

    def raise_bound(self, pulse: Pulse) -> None:
        """Change the multipliers until the bound meets the loss, rises no more, or time is over."""
        copies = self._types.copies
        multipliers, direction = np.zeros(copies.size, dtype=np.int64), np.zeros(copies.size)
        step, waited = 1.0, 0
        while step >= _LEAST_STEP and self.bound < self._objective:
            paid = self._pay(multipliers, pulse)
            if paid is None:
                return
            total = int(paid @ copies)
            waited = 0 if total > self.bound + (self.bound >> 12) else waited + 1
            if total > self.bound:
                self.bound, self._best = total, paid
            if waited == _PATIENCE:
                step, waited = step / 2, 0
                paid, direction = self._best, np.zeros(copies.size)
            direction = self._uses() + _MOMENTUM * direction
            length = float(copies @ direction**2)
            if not length:
                multipliers = paid
                step /= 2
                continue
            move = step * (self._objective - total) / length * direction
            multipliers = paid + np.rint(move).astype(np.int64)

    def _pay(self, multipliers: IntArray, pulse: Pulse) -> IntArray | None:
        """Find what each type pays; without multipliers, those not reached in time pay nothing."""
        types, k, companions = self._types, self._k, self._companions
        largest = np.sort(multipliers)[::-1][:k]
        copies = types.copies[np.argsort(multipliers)[::-1][:k]]
        largest_mean = int(-(-np.repeat(largest, copies)[:k].sum() // k))
        companions.shortages[:] = 0
        for first in range(0, types.copies.size, _TYPES_PER_PART):
            pulse.beat()
            if pulse.is_over:
                if multipliers.any():
                    return None
                break
            last = min(first + _TYPES_PER_PART, types.copies.size)
            _price(types, k, multipliers, first, last, largest_mean, companions, *self._scratch)
        paid: IntArray = multipliers + companions.shortages
        return paid

    def _uses(self) -> FloatArray:
        """Tell how much more often each record pays than it is needed as a companion."""
        copies, found = self._types.copies, self._companions
        shares = np.repeat(copies / found.sizes, found.members.shape[1])
        members = found.members.reshape(-1)
        is_member = members >= 0
        needed = np.bincount(members[is_member], shares[is_member], minlength=copies.size)
        return 1 - needed / copies


def _neighbors(copies: IntArray, k: int) -> CodeArray:
    """Take for each type k records that are neighbors in the order of the types, one of its own."""
    record = np.repeat(np.arange(copies.size, dtype=np.int32), copies)
    first = np.cumsum(copies) - copies
    start = np.minimum(first, record.size - k)
    members = np.full((copies.size, 2 * k - 1), -1, dtype=np.int32)
    members[:, :k] = record[start[:, np.newaxis] + np.arange(k)]
    # The type's own record comes first.
    place = first - start
    rows = np.arange(copies.size)
    members[rows, place] = members[:, 0]
    members[:, 0] = rows
    return members
