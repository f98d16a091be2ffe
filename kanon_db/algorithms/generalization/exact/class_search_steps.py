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


class PricingProblem(NamedTuple):
    """Which classes are looked for; see :class:`.class_search.ClassSearch`."""

    types: DistinctRecords
    cuts: PairCuts
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


def new_state(problem: PricingProblem) -> SearchState:
    """Stand at the root, where any record may come first.

    Parameters
    ----------
    problem : PricingProblem

    Returns
    -------
    SearchState
    """
    types, k = problem.types, problem.k
    n_types, m = types.values.shape
    categories = types.values[:, ~types.numeric].max(initial=0) + 1

    def integers(*shape: int, value: int = 0) -> IntArray:
        return np.full((2 * k, *shape), value, dtype=np.int64)

    state = SearchState(
        depth=np.zeros(1, dtype=np.int64),
        chosen=integers(),
        used=integers(),
        dual=integers(),
        odd=np.zeros((2 * k, problem.cuts.prices.size), dtype=np.bool_),
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
    problem: PricingProblem, state: SearchState, d: int, first: int, size: int
) -> int:
    """Sum the largest duals of 0, 1, … candidates of depth d from the first; return how many.

    The class has ``size`` records already, the last of which may be one of these; so many are
    summed as it may still take.
    """
    n, total = 0, 0
    state.best[0] = 0
    for i in range(first, state.n_candidates[d]):
        t = state.candidates[d, i]
        copies = problem.types.copies[t]
        if t == state.chosen[size]:
            copies -= state.used[size]
        for _ in range(copies):
            if n == 2 * problem.k - 1 - size:
                return n
            n += 1
            total += problem.duals[t]
            state.best[n] = total
    return n


@numba.njit(cache=True, nogil=True)
def _keep(
    problem: PricingProblem, state: SearchState, size: int, place: int, n_best: int,
    u: int, loss: int, dual: int,
) -> int:  # fmt: skip
    """Keep a candidate if a class with it, and one record or more, can stay below the limit.

    Return the place of the next one to be kept.
    """
    k, joined = problem.k, size + 1
    for r in range(max(1, k - joined), min(2 * k - 1 - joined, n_best) + 1):
        if (joined + r) * loss - dual - state.best[r] < problem.limit:
            state.candidates[size, place] = u
            state.candidate_losses[size, place] = loss
            state.candidate_duals[size, place] = dual
            return place + 1
    return place


@numba.njit(cache=True, nogil=True)
def _choose(problem: PricingProblem, state: SearchState, d: int, t: int) -> None:
    """Go from the class at depth d to that with one more record, of type t."""
    cuts, size = problem.cuts, d + 1
    state.chosen[size] = t
    state.used[size] = state.used[d] + 1 if d > 0 and state.chosen[d] == t else 1
    state.dual[size] = state.dual[d] + problem.duals[t] - _price(cuts, state, d, t)
    state.odd[size] = state.odd[d]
    for c in range(cuts.starts[t], cuts.starts[t + 1]):
        state.odd[size, cuts.of_type[c]] ^= True
    _join(problem.types, state, d, t)


@numba.njit(cache=True, nogil=True)
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


@numba.njit(cache=True, nogil=True)
def _extend(
    problem: PricingProblem, state: SearchState, found: FoundClasses, d: int, first: int
) -> int:
    """Note classes of one more record below the limit; return how many may grow further.

    Candidates for that record are those of depth d from the first on.
    """
    size, n_kept = d + 1, 0
    n_best = _largest_duals(problem, state, d, first, size)
    for c in range(first, state.n_candidates[d]):
        u = state.candidates[d, c]
        loss = _loss_with(problem.types, state, size, u)
        dual = state.dual[size] + problem.duals[u] - _price(problem.cuts, state, size, u)
        if size + 1 >= problem.k and (size + 1) * loss - dual < problem.limit:
            _note(state, found, size, u, loss, dual)
        n_kept = _keep(problem, state, size, n_kept, n_best, u, loss, dual)
    return n_kept


@numba.njit(cache=True, nogil=True)
def _thin_out(problem: PricingProblem, state: SearchState, size: int, n_kept: int) -> int:
    """With the duals of some candidates gone, let others go; return how many are left."""
    before = -1
    while n_kept != before and n_kept > 0:
        before = state.n_candidates[size] = n_kept
        n_best = _largest_duals(problem, state, size, 0, size)
        n_kept = 0
        for c in range(before):
            u = state.candidates[size, c]
            loss, dual = state.candidate_losses[size, c], state.candidate_duals[size, c]
            n_kept = _keep(problem, state, size, n_kept, n_best, u, loss, dual)
    return n_kept


@numba.njit(cache=True, nogil=True)
def search_on(
    problem: PricingProblem, state: SearchState, found: FoundClasses, budget: int
) -> tuple[int, bool]:
    """Go on with the search.

    Parameters
    ----------
    problem : PricingProblem
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
        if d > 0 and state.n_at_root[0] >= problem.quota:
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
        _choose(problem, state, d, t)
        first = i if state.used[d + 1] < problem.types.copies[t] else i + 1
        budget -= state.n_candidates[d] - first
        n_kept = _extend(problem, state, found, d, first)
        n_kept = _thin_out(problem, state, d + 1, n_kept)
        if n_kept > 0:
            state.n_candidates[d + 1] = n_kept
            state.position[d + 1] = 0
            state.depth[0] = d + 1
    return PAUSED, is_complete
