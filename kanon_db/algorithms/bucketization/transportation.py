"""Transportation problems: records of values to buckets of sizes, as many as each takes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, IntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse


@dataclass(frozen=True, eq=False)
class Transport:
    """Amounts sent from supplies to demands.

    Parameters
    ----------
    amounts : ndarray of int64, shape (m, q)
        Within the capacities. If nothing is stranded, rows add up to the supplies, and columns to
        no more than the demands.
    stranded : ndarray of bool, shape (m,)
        Supplies that are, together, more than the demands can take from them: the sum over j of
        min{demand_j, sum of their capacities to j} is less than their sum. None if the problem
        is solved.
    """

    amounts: IntArray
    stranded: BoolArray


def transport(
    supplies: IntArray,
    demands: IntArray,
    capacities: IntArray,
    *,
    pulse: Pulse = UNLIMITED,
) -> Transport:
    """Send all supplies to the demands within the capacities, spread evenly, or prove it hopeless.

    Parameters
    ----------
    supplies : ndarray of int64, shape (m,)
    demands : ndarray of int64, shape (q,)
        Their sum is that of the supplies, or else not all of them are met exactly.
    capacities : ndarray of int64, shape (m, q)
        Most that each supply may send to each demand; all sums must stay below 2**63.
    pulse : Pulse
        Beaten every few milliseconds of work; what that raises ends it.

    Returns
    -------
    Transport

    Notes
    -----
    **Source:** the criterion for a solution is D. Gale's, *A theorem on flows in networks*,
    Pacific J. Math. 7 (1957); shortest augmenting paths and their number: E. Dinic (1970).

    Every supply begins with shares in proportion to its capacities. Demands with too much then
    pass on to those with too little, along shortest paths of demands: what j can pass on to k is
    the sum over i of min{amount_ij, capacity_ik - amount_ik}, and all supplies contribute in
    proportion to it. A pass along a shortest path creates no path as short or shorter, and uses
    up a pair of demands or one of the two ends. So there are at most about q³ of them; in
    practice a few for each demand. Each costs O(m q) and the length of the path.

    Examples
    --------
    >>> both = np.array([[2, 2], [2, 2]])
    >>> transport(np.array([2, 3]), np.array([1, 4]), both).amounts.tolist()
    [[0, 2], [1, 2]]
    >>> narrow = np.array([[3, 0], [2, 2]])
    >>> transport(np.array([3, 2]), np.array([2, 3]), narrow).stranded.tolist()
    [True, False]
    """
    # What a supply cannot send anywhere is sent to a last demand, which is 0.
    capacity = np.vstack([capacities.T, np.maximum(supplies - capacities.sum(axis=1), 0)])
    demands = np.append(demands, 0)
    amount = _in_proportion(supplies, capacity)
    room = capacity - amount
    excess = amount.sum(axis=1) - demands
    has, free = amount > 0, room > 0
    passes = np.empty((demands.size, demands.size), dtype=np.bool_)
    for j in range(demands.size):
        pulse.beat()
        passes[j] = (has[j] & free).any(axis=1)
    while True:
        pulse.beat()
        path, reached = _shortest_path(excess, passes)
        if not path:
            break
        steps = list(pairwise(path))
        passable = [int(np.minimum(amount[j], room[k]).sum()) for j, k in steps]
        passed = min(int(excess[path[0]]), -int(excess[path[-1]]), *passable)
        # Backward, so that every step finds the room that the next one made.
        for j, k in reversed(steps):
            shares = in_shares(passed, np.minimum(amount[j], room[k]))
            amount[j] -= shares
            room[j] += shares
            amount[k] += shares
            room[k] -= shares
        excess[path[0]] -= passed
        excess[path[-1]] += passed
        has[path], free[path] = amount[path] > 0, room[path] > 0
        for j in path:
            passes[j] = (has[j] & free).any(axis=1)
            passes[:, j] = (has & free[j]).any(axis=1)
    stranded = np.zeros(supplies.size, dtype=np.bool_)
    if (excess > 0).any():
        # What is beyond reach is saturated by these, and takes all of the others.
        stranded = supplies > capacity[:-1][~reached[:-1]].sum(axis=0)
    return Transport(np.ascontiguousarray(amount[:-1].T), stranded)


def in_shares(total: int, weights: IntArray) -> IntArray:
    """Divide a whole number in proportion to weights.

    Parameters
    ----------
    total : int
        From 0 to the sum of the weights.
    weights : ndarray of int64, shape (n,)

    Returns
    -------
    ndarray of int64, shape (n,)
        They add up to ``total``; each is within 1 of its proportion, and at most its weight.

    Examples
    --------
    >>> in_shares(3, np.array([1, 3, 2])).tolist()
    [0, 2, 1]
    """
    return _in_proportion(np.array([total]), weights[:, np.newaxis])[:, 0]


def _in_proportion(totals: IntArray, weights: IntArray) -> IntArray:
    """Divide each total in proportion to its column of weights, which adds up to no less."""
    # Rounding the running total, not each share, makes the shares add up.
    reached = np.cumsum(weights, axis=0)
    if reached.size == 0:
        return reached
    largest = int(reached[-1].max()) * int(totals.max())
    integer = np.int64 if largest < 2**63 else object
    whole = np.maximum(reached[-1], 1).astype(integer)
    shares: IntArray = (reached.astype(integer) * totals.astype(integer) // whole).astype(np.int64)
    shares[1:] -= shares[:-1].copy()
    return shares


def _shortest_path(excess: IntArray, passes: BoolArray) -> tuple[list[int], BoolArray]:
    """Find a shortest path from too much to too little; if there is none, what can be reached."""
    reached = excess > 0
    came_from = np.full(excess.size, -1)
    front = np.flatnonzero(reached)
    while front.size:
        ends = front[excess[front] < 0]
        if ends.size:
            path = [int(ends[0])]
            while came_from[path[0]] >= 0:
                path.insert(0, int(came_from[path[0]]))
            return path, reached
        ahead = np.flatnonzero(~reached)
        steps = passes[np.ix_(front, ahead)]
        entered = steps.any(axis=0)
        came_from[ahead[entered]] = front[steps[:, entered].argmax(axis=0)]
        front = ahead[entered]
        reached[front] = True
    return [], reached
