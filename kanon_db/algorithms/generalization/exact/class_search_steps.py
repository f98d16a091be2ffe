"""The steps of the search for classes, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.generalization.exact.candidate_classes import NO_LIMIT, PairCuts
from kanon_db.algorithms.generalization.exact.distinct_records import DistinctRecords
from kanon_db.algorithms.ground.arrays import BoolArray, IntArray, WordArray
from kanon_db.algorithms.recoding.exact_loss import NULL

DONE, PAUSED, FULL = 0, 1, 2
"""Why the search stopped."""


class Goal(NamedTuple):
    """Which classes are looked for; see :class:`.class_search.ClassSearch`."""

    duals: IntArray  # (t,), descending
    k: int
    limit: int  # of the reduced cost
    quota: int  # of classes found for one first record


class SearchState(NamedTuple):
    """Where the depth-first search stands; row d is of the class of d records on the way."""

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
    """Stand at the root, where any record may come first.

    Parameters
    ----------
    types : DistinctRecords
    k : int
    n_cuts : int

    Returns
    -------
    SearchState
    """
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


@numba.njit(cache=True, nogil=True)
def _loss_with(types: DistinctRecords, state: SearchState, d: int, t: int) -> int:
    """Loss of one record of the class at depth d if a record of type t joined."""
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


@numba.njit(cache=True, nogil=True)
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


@numba.njit(cache=True, nogil=True)
def _price(cuts: PairCuts, state: SearchState, d: int, t: int) -> int:
    """Price of the pairs that a record of type t makes with the class at depth d."""
    price = 0
    for c in range(cuts.starts[t], cuts.starts[t + 1]):
        if state.odd[d, cuts.of_type[c]]:
            price += cuts.prices[cuts.of_type[c]]
    return price


@numba.njit(cache=True, nogil=True)
def _largest_duals(
    types: DistinctRecords, goal: Goal, state: SearchState, d: int, first: int, size: int
) -> int:
    """Sum the largest duals of 0, 1, … candidates of depth d from the first; return how many.

    The class has ``size`` records already, the last of which may be one of these; so many are
    summed as it may still take.
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


@numba.njit(cache=True, nogil=True)
def _is_within(
    state: SearchState, k: int, size: int, loss: int, dual: int, n_best: int, limit: int
) -> bool:
    """Tell whether a class can be joined by one record or more and stay below the limit."""
    for r in range(max(1, k - size), min(2 * k - 1 - size, n_best) + 1):
        if (size + r) * loss - dual - state.best[r] < limit:
            return True
    return False


@numba.njit(cache=True, nogil=True, forceinline=True)
def _keep(state: SearchState, size: int, place: int, u: int, loss: int, dual: int) -> None:
    """Let a record of type u come next at depth ``size``."""
    state.candidates[size, place] = u
    state.candidate_losses[size, place] = loss
    state.candidate_duals[size, place] = dual


@numba.njit(cache=True, nogil=True, forceinline=True)
def _choose(
    types: DistinctRecords, cuts: PairCuts, goal: Goal, state: SearchState, d: int, t: int
) -> None:
    """Go from the class at depth d to that with one more record, of type t."""
    size = d + 1
    state.chosen[size] = t
    state.used[size] = state.used[d] + 1 if d > 0 and state.chosen[d] == t else 1
    state.dual[size] = state.dual[d] + goal.duals[t] - _price(cuts, state, d, t)
    state.odd[size] = state.odd[d]
    for c in range(cuts.starts[t], cuts.starts[t + 1]):
        state.odd[size, cuts.of_type[c]] ^= True
    _join(types, state, d, t)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _note(state: SearchState, found: FoundClasses, size: int, u: int, loss: int, dual: int) -> None:
    """Add the class at depth ``size``, joined by a record of type u, to those found."""
    row = found.n[0]
    for r in range(size):
        found.members[row, r] = state.chosen[r + 1]
    found.members[row, size] = u
    found.members[row, size + 1 :] = -1
    found.sizes[row] = size + 1
    found.losses[row] = (size + 1) * loss
    found.reduced_costs[row] = (size + 1) * loss - dual
    found.n[0] += 1
    state.n_at_root[0] += 1


@numba.njit(cache=True, nogil=True, forceinline=True)
def _extend(
    types: DistinctRecords, cuts: PairCuts, goal: Goal, state: SearchState, found: FoundClasses,
    d: int, first: int,
) -> int:  # fmt: skip
    """Note classes of one more record below the limit; return how many may grow further.

    Candidates for that record are those of depth d from the first on.
    """
    k, limit = goal.k, goal.limit
    size, n_kept = d + 1, 0
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


@numba.njit(cache=True, nogil=True, forceinline=True)
def _thin_out(
    types: DistinctRecords, goal: Goal, state: SearchState, size: int, n_kept: int
) -> int:
    """With the duals of some candidates gone, let others go; return how many are left."""
    k, limit = goal.k, goal.limit
    before = -1
    while n_kept != before and n_kept > 0:
        before = state.n_candidates[size] = n_kept
        n_best = _largest_duals(types, goal, state, size, 0, size)
        n_kept = 0
        for c in range(before):
            u = state.candidates[size, c]
            loss, dual = state.candidate_losses[size, c], state.candidate_duals[size, c]
            if _is_within(state, k, size + 1, loss, dual, n_best, limit):
                _keep(state, size, n_kept, u, loss, dual)
                n_kept += 1
    return n_kept


@numba.njit(cache=True, nogil=True)
def search_on(
    types: DistinctRecords,
    cuts: PairCuts,
    goal: Goal,
    state: SearchState,
    found: FoundClasses,
    budget: int,
) -> tuple[int, bool]:
    """Go on with the search.

    Parameters
    ----------
    types : DistinctRecords
    cuts : PairCuts
    goal : Goal
    state : SearchState
    found : FoundClasses
    budget : int
        Losses to be calculated before it pauses.

    Returns
    -------
    int
        Why it stopped.
    bool
        Whether no first record was given up on.
    """
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
        # What one step can find must fit in.
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
