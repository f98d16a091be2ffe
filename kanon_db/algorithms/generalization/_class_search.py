"""Searches for the classes of low reduced cost, record by record: pricing in column generation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, IntArray, Integer, WordArray
from kanon_db.algorithms.ground.computation import Pulse, kernel
from kanon_db.algorithms.recoding.loss import NULL, ExactLoss
from kanon_db.dataclasses import dataclass

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
    """Subset-row inequalities: sets of types that limit pairs of their records within classes."""

    # Those of three rows (Jepsen, Petersen, Spoorendonk, Pisinger 2008): all classes hold at most
    # half as many pairs of a set as the set has records.

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
    quota: int  # of classes found for one first record; then only better ones count


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
    least_at_root: IntArray  # (1,): their least reduced cost
    limits: IntArray  # (t,): no class is missing that costs less, by its first record


class FoundClasses(NamedTuple):
    """Classes found so far."""

    n: IntArray  # (1,)
    members: IntArray  # (capacity, 2k - 1)
    sizes: IntArray  # (capacity,)
    losses: IntArray  # (capacity,)
    reduced_costs: IntArray  # (capacity,)


def new_state(types: DistinctRecords, k: int, n_cuts: int, limit: int) -> SearchState:
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
        least_at_root=np.zeros(1, dtype=np.int64),
        limits=np.full(n_types, limit, dtype=np.int64),
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
    """Sum the largest duals of 0, 1, … candidates of depth d from the first; return how many."""
    # The class has ``size`` records, the last of which may be one of these candidates; there are as
    # many sums as the class can still take records.
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
def _note(
    goal: SearchGoal, state: SearchState, found: FoundClasses, size: int, u: int, loss: int,
    dual: int,
) -> None:  # fmt: skip
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
    state.least_at_root[0] = min(state.least_at_root[0], found.reduced_costs[row])
    if state.n_at_root[0] >= goal.quota:
        state.limits[state.chosen[1]] = state.least_at_root[0]


@kernel(forceinline=True)
def _extend(
    types: DistinctRecords, cuts: PairCuts, goal: SearchGoal, state: SearchState, found:
    FoundClasses, d: int, first: int,
) -> Integer:  # fmt: skip
    """Record classes of one more record below the limit; return how many may grow further.

    That record is one of the candidates of depth d from the first on.
    """
    k, root = goal.k, state.chosen[1]
    size = d + 1
    n_kept: Integer = np.int64(0)  # a constant would compile what it is given to again
    n_best = _largest_duals(types, goal, state, d, first, size)
    for c in range(first, state.n_candidates[d]):
        u = state.candidates[d, c]
        loss = _loss_with(types, state, size, u)
        dual = state.dual[size] + goal.duals[u] - _price(cuts, state, size, u)
        if size + 1 >= k and (size + 1) * loss - dual < state.limits[root]:
            _note(goal, state, found, size, u, loss, dual)
        if _is_within(state, k, size + 1, loss, dual, n_best, state.limits[root]):
            _keep(state, size, n_kept, u, loss, dual)
            n_kept += 1
    return n_kept


@kernel(forceinline=True)
def _thin_out(
    types: DistinctRecords, goal: SearchGoal, state: SearchState, size: int, n_kept: Integer
) -> Integer:
    """Drop candidates that the bound excludes once others are gone; return how many are left."""
    k, limit = goal.k, state.limits[state.chosen[1]]
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
) -> int:
    """Go on with the search."""
    while budget > 0:
        d = state.depth[0]
        i = state.position[d]
        if i == state.n_candidates[d]:
            if d == 0:
                return DONE
            state.depth[0] -= 1
            continue
        # The classes found in one step must fit.
        if found.n[0] + state.n_candidates[d] - i > found.sizes.size:
            return FULL
        state.position[d] += 1
        if d == 0:
            state.n_at_root[0] = 0
            state.least_at_root[0] = goal.limit
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
    return PAUSED


_LOSSES_PER_BEAT = 2**17  # some milliseconds


class ClassSearch:
    """Classes of k to 2k - 1 records whose reduced cost is below a limit."""

    # Depth first, by descending duals. Loss grows with the class, so the loss of a class less the
    # largest duals left bounds the reduced cost of all that contain it. Whole units: exact.

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
        quota: int = NO_LIMIT,  # Classes for each first record; after them, only better ones count
        pulse: Pulse,
    ) -> None:
        self._order = np.argsort(-duals, kind="stable")
        cuts = PairCuts.none(duals.size) if cuts is None else cuts
        rank = np.argsort(self._order)
        self._types = types.take(self._order)
        self._cuts = PairCuts.of(rank[cuts.members], cuts.prices, duals.size)
        self._goal = SearchGoal(duals[self._order], k, limit, quota)
        self._pulse = pulse
        self._state = new_state(self._types, k, cuts.prices.size, limit)
        self._state.dual[0] = -price
        self._found = FoundClasses(
            np.zeros(1, dtype=np.int64),
            np.full((capacity, 2 * k - 1), -1, dtype=np.int64),
            *(np.zeros(capacity, dtype=np.int64) for _ in range(3)),
        )

    def all(self) -> CandidateClasses | None:
        """Return the classes found; None if they exceed the capacity or time ran out."""
        while True:
            self._pulse.beat()
            status = search_on(
                self._types, self._cuts, self._goal, self._state, self._found, _LOSSES_PER_BEAT
            )
            if status != PAUSED:
                return self._classes() if status == DONE else None
            if self._pulse.is_over:
                return None

    @property
    def reduced_costs(self) -> IntArray:
        """Reduced costs of the classes found."""
        return self._found.reduced_costs[: self._found.n[0]].copy()

    @property
    def limits(self) -> IntArray:
        """By type: the other classes whose first record has it do not cost less than this."""
        limits = np.empty_like(self._state.limits)
        limits[self._order] = self._state.limits
        return limits

    def _classes(self) -> CandidateClasses:
        n = self._found.n[0]
        members = np.append(self._order, -1)[self._found.members[:n]]
        return CandidateClasses(
            members, self._found.sizes[:n].copy(), self._found.losses[:n].copy()
        )
