"""Searches for the classes of least reduced cost: the pricing step of column generation.

In a small table, for all of them, record by record; in a large one, for one with each type of
records, by the boxes that cover classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, IntArray, Integer, WordArray
from kanon_db.algorithms.ground.computation import Pulse, kernel
from kanon_db.algorithms.recoding.loss import NULL, ExactLoss

_BITS = 64


class DistinctRecords(NamedTuple):
    """Distinct records and how often each occurs; the fields are those of ExactLoss."""

    values: IntArray  # (t, m)
    copies: IntArray  # (t,): records of each type
    numeric: BoolArray  # (m,)
    whole: IntArray  # (m,)
    of_count: IntArray  # (m, c)

    @classmethod
    def of(cls, loss: ExactLoss, records: IntArray) -> DistinctRecords:
        """Find the distinct records among some."""
        values = loss.values[records]
        first = np.flatnonzero(np.append(True, (values[1:] != values[:-1]).any(axis=1)))
        copies = np.diff(first, append=records.size)
        values = values[first]
        if loss.of_count.shape[1] > _BITS:
            values = _dense(values, loss.numeric)
        return cls(values, copies, loss.numeric, loss.whole, loss.of_count)

    def take(self, order: IntArray) -> DistinctRecords:
        """Return these types in this order."""
        return self._replace(values=self.values[order], copies=self.copies[order])

    def scaled(self, factor: int) -> DistinctRecords:
        """Return the same types with losses in units smaller by a factor."""
        positions = self.numeric & (self.values != NULL)
        values = np.where(positions, self.values * factor, self.values)
        whole, of_count = self.whole * factor, self.of_count * factor
        return self._replace(values=values, whole=whole, of_count=of_count)

    @property
    def largest_loss(self) -> int:
        """Loss of a record whose cells all cover the whole domain."""
        return int(np.where(self.numeric, self.whole, self.of_count.max(axis=1)).sum())


def _dense(values: IntArray, numeric: BoolArray) -> IntArray:
    """Give the categories that occur numbers from 0, to keep bit sets short."""
    dense = values.copy()
    for j in np.flatnonzero(~numeric):
        dense[:, j] = np.unique(values[:, j], return_inverse=True)[1].reshape(-1)
    return dense


@kernel
def loss_of_pair(types: DistinctRecords, t: int, u: int) -> int:
    """Return the loss of a record of type t in a class with one of type u."""
    loss = 0
    for j in range(types.numeric.size):
        a, b = types.values[t, j], types.values[u, j]
        if not types.numeric[j]:
            loss += types.of_count[j, 1 if a == b else 2]
        elif a != b:
            loss += types.whole[j] if a == NULL or b == NULL else abs(a - b)
    return loss


NO_LIMIT = 2**62
"""A loss or reduced cost above any other."""


@dataclass(frozen=True, eq=False)
class CandidateClasses:
    """Classes of records, by the types of these."""

    members: IntArray  # (c, 2k - 1): types of each class, once for each record, filled up with -1
    sizes: IntArray  # (c,)
    losses: IntArray  # (c,): loss of all records of the class in units

    def __len__(self) -> int:
        return self.sizes.size

    def take(self, which: IntArray | BoolArray) -> CandidateClasses:
        """Return some of these classes."""
        return CandidateClasses(self.members[which], self.sizes[which], self.losses[which])

    def of_records(self) -> IntArray:
        """Return the class of each record, type by type; the classes hold each record once."""
        members = self.members.reshape(-1)
        class_of_member = np.repeat(np.arange(len(self)), self.members.shape[1])
        is_record = members >= 0
        order = np.argsort(members[is_record], kind="stable")
        return class_of_member[is_record][order]


class PairCuts(NamedTuple):
    """Subset-row inequalities: sets of types that limit the pairs of their records within classes.

    **Source:** subset-row inequalities of three rows (Jepsen, Petersen, Spoorendonk, Pisinger
    2008): all classes hold at most half as many pairs of a set as the set has records.
    """

    members: IntArray  # (s, 3): types of each set
    prices: IntArray  # (s,): price of a pair, in units, at least 0
    starts: IntArray  # (t + 1,)
    of_type: IntArray  # (3 s,): sets of type i are ``of_type[starts[i] : starts[i + 1]]``

    @classmethod
    def of(cls, members: IntArray, prices: IntArray, n_types: int) -> PairCuts:
        """Index the sets by their types."""
        flat = members.reshape(-1)
        order = np.argsort(flat, kind="stable")
        starts = np.searchsorted(flat[order], np.arange(n_types + 1))
        return cls(members, prices, starts, order // max(members.shape[1], 1))

    def worth(self, copies: IntArray) -> int:
        """Add up the prices of the most pairs possible."""
        return int(self.prices @ (copies[self.members].sum(axis=1) // 2))

    @classmethod
    def none(cls, n_types: int) -> PairCuts:
        """No sets at all."""
        return cls.of(np.zeros((0, 3), dtype=np.int64), np.zeros(0, dtype=np.int64), n_types)


DONE, PAUSED, FULL = 0, 1, 2
"""Why the search stopped."""


class SearchGoal(NamedTuple):
    """The classes to be found; see :class:`ClassSearch`."""

    duals: IntArray  # (t,), descending
    k: int
    limit: int  # of the reduced cost
    quota: int  # of classes found for one first record


class SearchState(NamedTuple):
    """State of the depth-first search; row d is the class of d records on the current path."""

    depth: IntArray  # (1,)
    chosen: IntArray  # (2k,): type of the d-th record
    used: IntArray  # (2k,): copies of it
    dual: IntArray  # (2k,): sum of the duals, less the prices
    odd: BoolArray  # (2k, s): sets with an odd number of records
    low: IntArray  # (2k, m)
    high: IntArray  # (2k, m)
    null: BoolArray  # (2k, m)
    seen: WordArray  # (2k, m, words)
    n_seen: IntArray  # (2k, m)
    candidates: IntArray  # (2k, t): types that may come next
    candidate_losses: IntArray  # (2k, t): loss of a record then
    candidate_duals: IntArray  # (2k, t): sum of the duals, less the prices, then
    n_candidates: IntArray  # (2k,)
    position: IntArray  # (2k,)
    best: IntArray  # (2k,): scratch, largest sums of duals
    n_at_root: IntArray  # (1,): classes found since the first record was chosen


class FoundClasses(NamedTuple):
    """Classes found so far."""

    n: IntArray  # (1,)
    members: IntArray  # (capacity, 2k - 1)
    sizes: IntArray  # (capacity,)
    losses: IntArray  # (capacity,)
    reduced_costs: IntArray  # (capacity,)


def new_state(types: DistinctRecords, k: int, n_cuts: int) -> SearchState:
    """Begin at the root, where any record may come first."""
    n_types, m = types.values.shape
    categories = types.values[:, ~types.numeric].max(initial=0) + 1

    def integers(*shape: int, value: int = 0) -> IntArray:
        return np.full((2 * k, *shape), value, dtype=np.int64)

    state = SearchState(
        depth=np.zeros(1, dtype=np.int64),
        chosen=integers(),
        used=integers(),
        dual=integers(),
        odd=np.zeros((2 * k, n_cuts), dtype=np.bool_),
        low=integers(m, value=NO_LIMIT),
        high=integers(m, value=NULL),
        null=np.zeros((2 * k, m), dtype=np.bool_),
        seen=np.zeros((2 * k, m, (categories + 63) // 64), dtype=np.uint64),
        n_seen=integers(m),
        candidates=integers(n_types),
        candidate_losses=integers(n_types),
        candidate_duals=integers(n_types),
        n_candidates=integers(),
        position=integers(),
        best=integers(),
        n_at_root=np.zeros(1, dtype=np.int64),
    )
    state.candidates[0] = np.arange(n_types)
    state.n_candidates[0] = n_types
    return state


@kernel
def _loss_with(types: DistinctRecords, state: SearchState, d: int, t: int) -> int:
    """Return the loss of one record of the class at depth d if a record of type t joins."""
    loss = 0
    for j in range(types.numeric.size):
        value = types.values[t, j]
        if not types.numeric[j]:
            n_seen = state.n_seen[d, j]
            bit = np.uint64(1) << np.uint64(value & 63)
            if not state.seen[d, j, value >> 6] & bit:
                n_seen += 1
            loss += types.of_count[j, n_seen]
        elif value == NULL:
            loss += types.whole[j] if state.high[d, j] != NULL else 0
        elif state.null[d, j]:
            loss += types.whole[j]
        else:
            loss += max(state.high[d, j], value) - min(state.low[d, j], value)
    return loss


@kernel
def _join(types: DistinctRecords, state: SearchState, d: int, t: int) -> None:
    """Make the class at depth d + 1 that at depth d with a record of type t."""
    for j in range(types.numeric.size):
        value = types.values[t, j]
        if types.numeric[j]:
            is_null = value == NULL
            state.null[d + 1, j] = state.null[d, j] or is_null
            state.low[d + 1, j] = state.low[d, j] if is_null else min(state.low[d, j], value)
            state.high[d + 1, j] = max(state.high[d, j], value)
            continue
        for word in range(state.seen.shape[2]):
            state.seen[d + 1, j, word] = state.seen[d, j, word]
        bit = np.uint64(1) << np.uint64(value & 63)
        state.n_seen[d + 1, j] = state.n_seen[d, j]
        if not state.seen[d, j, value >> 6] & bit:
            state.seen[d + 1, j, value >> 6] |= bit
            state.n_seen[d + 1, j] += 1


@kernel
def _price(cuts: PairCuts, state: SearchState, d: int, t: int) -> int:
    """Price of the pairs that a record of type t makes with the class at depth d."""
    price = 0
    for c in range(cuts.starts[t], cuts.starts[t + 1]):
        if state.odd[d, cuts.of_type[c]]:
            price += cuts.prices[cuts.of_type[c]]
    return price


@kernel
def _largest_duals(
    types: DistinctRecords, goal: SearchGoal, state: SearchState, d: int, first: Integer, size: int
) -> int:
    """Sum the largest duals of 0, 1, … candidates of depth d from the first; return how many.

    The class has ``size`` records, the last of which may be one of these candidates; there are as
    many sums as the class can still take records.
    """
    most = 2 * goal.k - 1 - size
    n, total = 0, 0
    state.best[0] = 0
    for i in range(first, state.n_candidates[d]):
        t = state.candidates[d, i]
        copies = types.copies[t]
        if t == state.chosen[size]:
            copies -= state.used[size]
        for _ in range(copies):
            if n == most:
                return n
            n += 1
            total += goal.duals[t]
            state.best[n] = total
    return n


@kernel
def _is_within(
    state: SearchState, k: int, size: int, loss: int, dual: int, n_best: int, limit: int
) -> bool:
    """Tell whether a class can gain a record or more and stay below the limit."""
    for r in range(max(1, k - size), min(2 * k - 1 - size, n_best) + 1):
        if (size + r) * loss - dual - state.best[r] < limit:
            return True
    return False


@kernel(forceinline=True)
def _keep(state: SearchState, size: int, place: Integer, u: int, loss: int, dual: int) -> None:
    """Make type u a candidate at depth ``size``."""
    state.candidates[size, place] = u
    state.candidate_losses[size, place] = loss
    state.candidate_duals[size, place] = dual


@kernel(forceinline=True)
def _choose(
    types: DistinctRecords, cuts: PairCuts, goal: SearchGoal, state: SearchState, d: int, t: int
) -> None:
    """Go from the class at depth d to that with one more record, of type t."""
    size = d + 1
    state.chosen[size] = t
    state.used[size] = state.used[d] + 1 if d > 0 and state.chosen[d] == t else 1
    state.dual[size] = state.dual[d] + goal.duals[t] - _price(cuts, state, d, t)
    for c in range(state.odd.shape[1]):
        state.odd[size, c] = state.odd[d, c]
    for c in range(cuts.starts[t], cuts.starts[t + 1]):
        state.odd[size, cuts.of_type[c]] ^= True
    _join(types, state, d, t)


@kernel(forceinline=True)
def _note(state: SearchState, found: FoundClasses, size: int, u: int, loss: int, dual: int) -> None:
    """Add the class at depth ``size``, joined by a record of type u, to those found."""
    row = found.n[0]
    for r in range(size):
        found.members[row, r] = state.chosen[r + 1]
    found.members[row, size] = u
    for r in range(size + 1, found.members.shape[1]):
        found.members[row, r] = -1
    found.sizes[row] = size + 1
    found.losses[row] = (size + 1) * loss
    found.reduced_costs[row] = (size + 1) * loss - dual
    found.n[0] += 1
    state.n_at_root[0] += 1


@kernel(forceinline=True)
def _extend(
    types: DistinctRecords, cuts: PairCuts, goal: SearchGoal, state: SearchState, found:
    FoundClasses, d: int, first: int,
) -> Integer:  # fmt: skip
    """Record classes of one more record below the limit; return how many may grow further.

    That record is one of the candidates of depth d from the first on.
    """
    k, limit = goal.k, goal.limit
    size = d + 1
    n_kept: Integer = np.int64(0)  # a constant would compile what it is given to again
    n_best = _largest_duals(types, goal, state, d, first, size)
    for c in range(first, state.n_candidates[d]):
        u = state.candidates[d, c]
        loss = _loss_with(types, state, size, u)
        dual = state.dual[size] + goal.duals[u] - _price(cuts, state, size, u)
        if size + 1 >= k and (size + 1) * loss - dual < limit:
            _note(state, found, size, u, loss, dual)
        if _is_within(state, k, size + 1, loss, dual, n_best, limit):
            _keep(state, size, n_kept, u, loss, dual)
            n_kept += 1
    return n_kept


@kernel(forceinline=True)
def _thin_out(
    types: DistinctRecords, goal: SearchGoal, state: SearchState, size: int, n_kept: Integer
) -> Integer:
    """Drop candidates that the bound excludes once others are gone; return how many are left."""
    k, limit = goal.k, goal.limit
    none: Integer = np.int64(0)
    before: Integer = np.int64(-1)
    while n_kept != before and n_kept > 0:
        before = state.n_candidates[size] = n_kept
        n_best = _largest_duals(types, goal, state, size, none, size)
        n_kept = none
        for c in range(before):
            u = state.candidates[size, c]
            loss, dual = state.candidate_losses[size, c], state.candidate_duals[size, c]
            if _is_within(state, k, size + 1, loss, dual, n_best, limit):
                _keep(state, size, n_kept, u, loss, dual)
                n_kept += 1
    return n_kept


@kernel
def search_on(
    types: DistinctRecords,
    cuts: PairCuts,
    goal: SearchGoal,
    state: SearchState,
    found: FoundClasses,
    budget: int,  # Losses to compute before a pause
) -> tuple[int, bool]:
    """Go on with the search."""
    is_complete = True
    while budget > 0:
        d = state.depth[0]
        if d > 0 and state.n_at_root[0] >= goal.quota:
            is_complete = False
            state.depth[0] = d = 0
        i = state.position[d]
        if i == state.n_candidates[d]:
            if d == 0:
                return DONE, is_complete
            state.depth[0] -= 1
            continue
        # The classes found in one step must fit.
        if found.n[0] + state.n_candidates[d] - i > found.sizes.size:
            return FULL, is_complete
        state.position[d] += 1
        if d == 0:
            state.n_at_root[0] = 0
        t = state.candidates[d, i]
        _choose(types, cuts, goal, state, d, t)
        first = i if state.used[d + 1] < types.copies[t] else i + 1
        budget -= state.n_candidates[d] - first
        n_kept = _extend(types, cuts, goal, state, found, d, first)
        n_kept = _thin_out(types, goal, state, d + 1, n_kept)
        if n_kept > 0:
            state.n_candidates[d + 1] = n_kept
            state.position[d + 1] = 0
            state.depth[0] = d + 1
    return PAUSED, is_complete


_LOSSES_PER_BEAT = 2**17  # some milliseconds


class ClassSearch:
    """Classes of k to 2k - 1 records whose reduced cost is below a limit.

    Depth first, by descending duals. Loss grows with the class, so the loss of a class less the
    largest duals left bounds the reduced cost of all that contain it. Whole units: exact.
    """

    def __init__(
        self,
        types: DistinctRecords,
        k: int,
        duals: IntArray,  # (t,): dual value of a record of each type, in units
        limit: int = NO_LIMIT,  # Reduced costs must be less
        *,
        price: int = 0,  # Price of a class, in units
        cuts: PairCuts | None = None,  # Prices of pairs
        capacity: int,  # Most classes to be kept
        quota: int = NO_LIMIT,  # Most classes for each first record; the search is then incomplete
        pulse: Pulse,
    ) -> None:
        self._order = np.argsort(-duals, kind="stable")
        cuts = PairCuts.none(duals.size) if cuts is None else cuts
        rank = np.argsort(self._order)
        self._types = types.take(self._order)
        self._cuts = PairCuts.of(rank[cuts.members], cuts.prices, duals.size)
        self._goal = SearchGoal(duals[self._order], k, limit, quota)
        self._pulse = pulse
        self._state = new_state(self._types, k, cuts.prices.size)
        self._state.dual[0] = -price
        self._found = FoundClasses(
            np.zeros(1, dtype=np.int64),
            np.full((capacity, 2 * k - 1), -1, dtype=np.int64),
            *(np.zeros(capacity, dtype=np.int64) for _ in range(3)),
        )
        self.is_complete = True
        """Whether the search is complete."""

    def all(self) -> CandidateClasses | None:
        """Return all classes below the limit; None if they exceed the capacity or time ran out."""
        return self._classes() if self._run() == DONE and self.is_complete else None

    def best(self, n: int) -> CandidateClasses:
        """Return n classes of least reduced cost; n is less than the capacity."""
        while self._run() == FULL:
            self._keep(n)
        if self._found.n[0] > n:
            self._keep(n)
        return self._classes()

    @property
    def reduced_costs(self) -> IntArray:
        """Reduced costs of the classes returned."""
        return self._found.reduced_costs[: self._found.n[0]].copy()

    def _run(self) -> int:
        while True:
            self._pulse.beat()
            status, complete = search_on(
                self._types, self._cuts, self._goal, self._state, self._found, _LOSSES_PER_BEAT
            )
            self.is_complete &= complete
            if status != PAUSED:
                return status
            if self._pulse.is_over:
                self.is_complete = False
                return DONE

    def _keep(self, n: int) -> None:
        found = self._found
        costs = found.reduced_costs[: found.n[0]]
        kept = np.argpartition(costs, n - 1)[:n]
        for column in found[1:]:
            column[:n] = column[kept]
        found.n[0] = n
        limit = min(self._goal.limit, int(found.reduced_costs[:n].max()))
        self._goal = self._goal._replace(limit=limit)

    def _classes(self) -> CandidateClasses:
        n = self._found.n[0]
        members = np.append(self._order, -1)[self._found.members[:n]]
        return CandidateClasses(
            members, self._found.sizes[:n].copy(), self._found.losses[:n].copy()
        )


_MOST_NODES: Final = 3000  # of the search for one record; beyond, open ones keep their bounds
_TOLERANCE: Final = 13  # Each node lets the search end 1 / 2^13 of the record's loss earlier
MOST_OPEN: Final = 64
"""Open nodes of the search for one record."""


class OpenBoxes(NamedTuple):
    """Open nodes of the search: boxes that classes must cover at least."""

    low: IntArray  # (depth, m): least number of the box, NO_LIMIT if it has none
    high: IntArray  # (depth, m)
    null: BoolArray  # (depth, m): whether it has NULL
    has: BoolArray  # (depth, m, c): which categories it has
    n_has: IntArray  # (depth, m): how many
    candidates: CodeArray  # (depth, t): types that classes may hold
    n_candidates: IntArray  # (depth,)


class LargestDuals(NamedTuple):
    """The largest multipliers among some records."""

    values: IntArray  # (2k - 2,): descending
    types: IntArray
    size: IntArray  # (1,)


class Companions(NamedTuple):
    """For each type, the class that is paid best with it: what is left to pay, and its members."""

    shortages: IntArray  # (t,): least of (loss - mean multiplier), rounded down
    members: CodeArray  # (t, 2k - 1): types of that class, filled up with -1
    sizes: IntArray  # (t,)


@kernel
def _measure_box(types: DistinctRecords, node: OpenBoxes, d: int, u: int) -> int:
    """Return the loss of the box of a node, made to cover a type."""
    loss = 0
    for j in range(types.numeric.size):
        value = types.values[u, j]
        if not types.numeric[j]:
            loss += types.of_count[j, node.n_has[d, j] + (not node.has[d, j, value])]
            continue
        null = node.null[d, j] or value == NULL
        low, high = node.low[d, j], node.high[d, j]
        if value != NULL:
            low, high = min(low, value), max(high, value)
        if low <= high:
            loss += types.whole[j] if null else high - low
    return loss


@kernel
def _covers(types: DistinctRecords, node: OpenBoxes, d: int, u: int, wanted: int) -> bool:
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
def _cover(types: DistinctRecords, node: OpenBoxes, d: int, u: int) -> None:
    """Make the box of a node cover a type."""
    for j in range(types.numeric.size):
        value = types.values[u, j]
        if not types.numeric[j]:
            node.n_has[d, j] += not node.has[d, j, value]
            node.has[d, j, value] = True
        elif value == NULL:
            node.null[d, j] = True
        else:
            node.low[d, j] = min(node.low[d, j], value)
            node.high[d, j] = max(node.high[d, j], value)


@kernel
def _insert_dual(top: LargestDuals, value: int, kind: int, copies: int) -> bool:
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
def _choose_size(top: LargestDuals, own: int, k: int) -> tuple[int, int]:
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
def _price_class(
    types: DistinctRecords,
    k: int,
    multipliers: IntArray,  # (t,)
    largest_mean: int,  # of any class
    t: int,
    node: OpenBoxes,
    top: LargestDuals,
    distances: IntArray,  # (t,): scratch
    least: int,  # A class that is known
    members: CodeArray,  # (2k - 1,): its members, to be overwritten by better ones
) -> tuple[int, int]:
    """Find what is left to pay for the class that is paid best, and its size (0: the known one)."""
    scale = max(multipliers[t], abs(least))
    own, better_size, open_bound, n_nodes = multipliers[t], 0, NO_LIMIT, 0
    node.low[0], node.high[0], node.null[0] = NO_LIMIT, -NO_LIMIT, False
    node.has[0], node.n_has[0] = False, 0
    _cover(types, node, 0, t)
    n = 0
    for u in range(types.copies.size):
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
            loss = _measure_box(types, node, d, u)
            if loss < least + largest_mean:
                node.candidates[d, n] = u
                distances[n] = loss
                n += 1
        order = np.argsort(distances[:n])
        near = node.candidates[d, :n][order]
        losses = distances[:n][order]
        # What classes lose at least whose farthest record is that one
        top.size[0] = 0
        bound, place, last, total, size = NO_LIMIT, -1, -1, 0, 0
        for i in range(n):
            u = near[i]
            if _insert_dual(top, multipliers[u], u, types.copies[u] - (u == t)) and (
                top.size[0] >= k - 1
            ):
                total, size = _choose_size(top, own, k)
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
            u = near[i]
            _insert_dual(top, multipliers[u], u, types.copies[u] - (u == t))
        total, size = _choose_size(top, own, k)
        # The box of these records: the next node's place is free for it
        loss, farthest = _measure_class(types, node, d, t, top, size), -1
        shortage = loss + (-total) // size
        if shortage < least:
            least, better_size = shortage, size
            members[:] = -1
            members[0] = t
            for i in range(size - 1):
                members[i + 1] = top.types[i]
        if shortage == bound:
            d -= 1
            continue
        if n_nodes >= _MOST_NODES or d + 2 >= MOST_OPEN:
            open_bound = min(open_bound, bound)
            d -= 1
            continue
        dearest = -1
        for i in range(size - 1):
            at = _measure_box(types, node, d, top.types[i])
            if at > dearest:
                dearest, farthest = at, top.types[i]
        # Either the box covers that record, or none whose box would
        node.low[d + 1], node.high[d + 1], node.null[d + 1] = (
            node.low[d],
            node.high[d],
            node.null[d],
        )
        node.has[d + 1], node.n_has[d + 1] = node.has[d], node.n_has[d]
        _cover(types, node, d + 1, farthest)
        node.n_candidates[d + 1] = last + 1
        rest = 0
        for i in range(last + 1):
            node.candidates[d + 1, i] = near[i]
            if not _covers(types, node, d, near[i], farthest):
                node.candidates[d, rest] = near[i]
                rest += 1
        node.n_candidates[d] = rest
        d += 1
    return min(least, open_bound), better_size


@kernel
def _measure_class(
    types: DistinctRecords, node: OpenBoxes, d: int, t: int, top: LargestDuals, size: int
) -> int:
    """Return the loss of a record in the class of a type and the first records of the top."""
    e = d + 1
    node.low[e], node.high[e], node.null[e] = NO_LIMIT, -NO_LIMIT, False
    node.has[e], node.n_has[e] = False, 0
    for i in range(size - 1):
        _cover(types, node, e, top.types[i])
    return _measure_box(types, node, e, t)


@kernel
def find_companions(
    types: DistinctRecords, k: int, multipliers: IntArray, first: int, last: int,
    largest_mean: int, companions: Companions, node: OpenBoxes, top: LargestDuals,
    distances: IntArray,
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
        least = _measure_class(types, node, 0, t, top, size) + (-total) // size
        shortage, better = _price_class(
            types, k, multipliers, largest_mean, t, node, top, distances, least,
            companions.members[t],
        )  # fmt: skip
        companions.shortages[t] = shortage
        if better:
            companions.sizes[t] = better
