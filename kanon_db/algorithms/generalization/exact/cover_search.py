"""Exact search for a partition of the records into given classes, at the least loss."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.generalization.exact.candidate_classes import NO_LIMIT, CandidateClasses
from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse

_DONE, _PAUSED = 0, 1
_VISITS_PER_BEAT = 2**20  # some milliseconds


class _Columns(NamedTuple):
    """Types of each class, and how many records of them."""

    types: IntArray  # (c, 2k - 1)
    counts: IntArray  # (c, 2k - 1)
    n_types: IntArray  # (c,)
    losses: IntArray  # (c,)


class _State(NamedTuple):
    """Where the depth-first search stands; row d is of the partial partition of d classes."""

    depth: IntArray  # (1,)
    entered: BoolArray  # (depth,): whether the node has its children
    left: IntArray  # (depth, t): records of each type not yet in a class
    bound: IntArray  # (depth,): lower bound on the loss of a partition with the classes taken
    n_columns: IntArray  # (depth,)
    columns: CodeArray  # (depth, c): classes that may still be taken
    costs: IntArray  # (depth, c): their reduced costs
    children: CodeArray  # (depth, c): positions of the classes to be tried, in this order
    n_children: IntArray  # (depth,)
    position: IntArray  # (depth,)
    taken: IntArray  # (depth,): class taken
    loss: IntArray  # (depth,): loss of the classes taken
    best: IntArray  # (1,): least loss
    best_taken: IntArray  # (depth,)
    n_best: IntArray  # (1,)
    starts: IntArray  # (t + 1,): scratch
    of_type: CodeArray  # (c * (2k - 1),): scratch


class CoverSearch:
    """The partition of all records into classes out of a list with the least loss.

    Parameters
    ----------
    classes : CandidateClasses
        Any number of times each.
    reduced_costs : ndarray of int64, shape (c,)
        At least 0, in units. A partition loses what they add up to beyond the bound, or more.
    copies : ndarray of int64, shape (t,)
        Records of each type.
    bound : int
        Lower bound on the loss of a partition, which the reduced costs of its classes add to.
    limit : int
        Loss must be less.
    pulse : Pulse
        Beaten every few milliseconds; :meth:`run` stops when its time is over.

    Notes
    -----
    Depth first: of the type that the fewest classes hold, one record must be in one of them. At
    each node the duals of the types are raised, one after the other, as far as no reduced cost
    falls below 0; what they add up to bounds the reduced costs of the classes still to be taken
    from below, and no class that exceeds what is left of the limit can be taken. Everything is in
    whole units: the bounds are exact.
    """

    def __init__(
        self,
        classes: CandidateClasses,
        reduced_costs: IntArray,
        copies: IntArray,
        bound: int,
        limit: int,
        *,
        pulse: Pulse,
    ) -> None:
        n_classes, width = classes.members.shape
        self._classes = classes
        self._columns = _columns(classes)
        self._pulse = pulse
        depth = int(copies.sum()) // max(int(classes.sizes.min(initial=NO_LIMIT)), 1) + 2
        t = copies.size
        self._state = _State(
            depth=np.zeros(1, dtype=np.int64),
            entered=np.zeros(depth, dtype=np.bool_),
            left=np.zeros((depth, t), dtype=np.int64),
            bound=np.zeros(depth, dtype=np.int64),
            n_columns=np.zeros(depth, dtype=np.int64),
            columns=np.zeros((depth, n_classes), dtype=np.int32),
            costs=np.zeros((depth, n_classes), dtype=np.int64),
            children=np.zeros((depth, n_classes), dtype=np.int32),
            n_children=np.zeros(depth, dtype=np.int64),
            position=np.zeros(depth, dtype=np.int64),
            taken=np.zeros(depth, dtype=np.int64),
            best=np.array([limit]),
            loss=np.zeros(depth, dtype=np.int64),
            best_taken=np.zeros(depth, dtype=np.int64),
            n_best=np.zeros(1, dtype=np.int64),
            starts=np.zeros(t + 2, dtype=np.int64),
            of_type=np.zeros(n_classes * width, dtype=np.int32),
        )
        state = self._state
        state.left[0] = copies
        state.bound[0] = bound
        state.n_columns[0] = n_classes
        state.columns[0] = np.arange(n_classes)
        state.costs[0] = reduced_costs

    def run(self) -> bool:
        """Search until the end, or until time is over; tell whether it ended."""
        while True:
            self._pulse.beat()
            if _search(self._columns, self._state, _VISITS_PER_BEAT) == _DONE:
                return True
            if self._pulse.is_over:
                return False

    @property
    def best(self) -> CandidateClasses | None:
        """Classes of the best partition below the limit, if there is one."""
        n = self._state.n_best[0]
        return self._classes.take(self._state.best_taken[:n]) if n else None


def _columns(classes: CandidateClasses) -> _Columns:
    n_classes, width = classes.members.shape
    members = np.sort(classes.members, axis=1)
    first = np.ones((n_classes, width), dtype=np.bool_)
    first[:, 1:] = members[:, 1:] != members[:, :-1]
    first &= members >= 0
    slot = np.cumsum(first, axis=1) - 1
    types = np.full((n_classes, width), -1, dtype=np.int64)
    counts = np.zeros((n_classes, width), dtype=np.int64)
    row, place = np.nonzero(members >= 0)
    np.add.at(counts, (row, slot[row, place]), 1)
    types[row, slot[row, place]] = members[row, place]
    return _Columns(types, counts, first.sum(axis=1), classes.losses)


@numba.njit(cache=True, nogil=True)
def _search(columns: _Columns, state: _State, budget: int) -> int:
    """Go on with the search for so many looks at classes."""
    while budget > 0:
        d = state.depth[0]
        if not state.entered[d]:
            budget -= state.n_columns[d] + 1
            state.entered[d] = True
            state.position[d] = 0
            state.n_children[d] = 0
            if not state.left[d].any():
                if state.loss[d] < state.best[0]:
                    state.best[0] = state.loss[d]
                    state.n_best[0] = d
                    state.best_taken[:d] = state.taken[:d]
            elif _raise_duals(columns, state, d):
                _branch(columns, state, d)
        if state.position[d] == state.n_children[d]:
            if d == 0:
                return _DONE
            state.depth[0] -= 1
            continue
        child = state.children[d, state.position[d]]
        state.position[d] += 1
        budget -= state.n_columns[d] + 1
        _take(columns, state, d, child)
    return _PAUSED


@numba.njit(cache=True, nogil=True)
def _raise_duals(columns: _Columns, state: _State, d: int) -> bool:
    """Raise the duals of the node; tell whether it can still lead below the limit."""
    left, starts, of_type = state.left[d], state.starts, state.of_type
    _index(columns, state, d)
    for t in range(left.size):
        if left[t] == 0:
            continue
        if starts[t] == starts[t + 1]:
            return False
        slack = NO_LIMIT
        for i in range(starts[t], starts[t + 1]):
            place = of_type[i]
            slack = min(slack, state.costs[d, place] // _count(columns, state, d, place, t))
        if slack > 0:
            for i in range(starts[t], starts[t + 1]):
                place = of_type[i]
                state.costs[d, place] -= slack * _count(columns, state, d, place, t)
            state.bound[d] += slack * left[t]
            if state.bound[d] >= state.best[0]:
                return False
    return True


@numba.njit(cache=True, nogil=True)
def _count(columns: _Columns, state: _State, d: int, place: int, t: int) -> int:
    """Count the records of type t in the class at a place of the node's list."""
    column = state.columns[d, place]
    for i in range(columns.n_types[column]):
        if columns.types[column, i] == t:
            return int(columns.counts[column, i])
    return 0


@numba.njit(cache=True, nogil=True)
def _index(columns: _Columns, state: _State, d: int) -> None:
    """List the node's classes by type."""
    starts, of_type = state.starts, state.of_type
    starts[:] = 0
    for place in range(state.n_columns[d]):
        column = state.columns[d, place]
        for i in range(columns.n_types[column]):
            starts[columns.types[column, i] + 2] += 1
    for t in range(2, starts.size):
        starts[t] += starts[t - 1]
    for place in range(state.n_columns[d]):
        column = state.columns[d, place]
        for i in range(columns.n_types[column]):
            t = columns.types[column, i] + 1
            of_type[starts[t]] = place
            starts[t] += 1


@numba.njit(cache=True, nogil=True)
def _branch(columns: _Columns, state: _State, d: int) -> None:
    """Keep the classes that fit below the limit; branch on the type that fewest of them hold."""
    n = 0
    for place in range(state.n_columns[d]):
        if state.bound[d] + state.costs[d, place] < state.best[0]:
            state.columns[d, n] = state.columns[d, place]
            state.costs[d, n] = state.costs[d, place]
            n += 1
    state.n_columns[d] = n
    _index(columns, state, d)
    branch = -1
    for t in range(state.left.shape[1]):
        if state.left[d, t] > 0 and (
            branch < 0
            or state.starts[t + 1] - state.starts[t]
            < state.starts[branch + 1] - state.starts[branch]
        ):
            branch = t
    first, last = state.starts[branch], state.starts[branch + 1]
    costs = np.empty(last - first, dtype=np.int64)
    for i in range(last - first):
        costs[i] = state.costs[d, state.of_type[first + i]]
    for i, child in enumerate(np.argsort(costs)):
        state.children[d, i] = state.of_type[first + child]
    state.n_children[d] = last - first


@numba.njit(cache=True, nogil=True)
def _take(columns: _Columns, state: _State, d: int, child: int) -> None:
    """Go down to the node in which the class at this place is taken."""
    column, cost = state.columns[d, child], state.costs[d, child]
    bound = state.bound[d] + cost
    if bound >= state.best[0]:
        return
    left = state.left[d + 1]
    left[:] = state.left[d]
    for i in range(columns.n_types[column]):
        left[columns.types[column, i]] -= columns.counts[column, i]
    n = 0
    for place in range(state.n_columns[d]):
        other, other_cost = state.columns[d, place], state.costs[d, place]
        if other_cost == NO_LIMIT or bound + other_cost >= state.best[0]:
            continue
        fits = True
        for i in range(columns.n_types[other]):
            if columns.counts[other, i] > left[columns.types[other, i]]:
                fits = False
                break
        if fits:
            state.columns[d + 1, n] = other
            state.costs[d + 1, n] = other_cost
            n += 1
    # Partitions with this class are dealt with below this child.
    state.costs[d, child] = NO_LIMIT
    state.n_columns[d + 1] = n
    state.bound[d + 1] = bound
    state.loss[d + 1] = state.loss[d] + columns.losses[column]
    state.taken[d] = column
    state.entered[d + 1] = False
    state.depth[0] = d + 1
