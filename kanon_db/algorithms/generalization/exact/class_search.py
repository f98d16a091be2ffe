"""Search for the classes of least reduced cost: the pricing of the set-partitioning model."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.generalization.exact.candidate_classes import (
    NO_LIMIT,
    CandidateClasses,
    PairCuts,
)
from kanon_db.algorithms.generalization.exact.class_search_steps import (
    DONE,
    FULL,
    PAUSED,
    FoundClasses,
    Goal,
    new_state,
    search_on,
)
from kanon_db.algorithms.generalization.exact.distinct_records import DistinctRecords
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.pulse import Pulse

_LOSSES_PER_BEAT = 2**17  # some milliseconds


class ClassSearch:
    """Classes of k to 2k - 1 records whose reduced cost is below a limit.

    The reduced cost of a class is its loss and price, and the prices of its pairs, less the duals
    of its records.

    Parameters
    ----------
    types : DistinctRecords
    k : int
    duals : ndarray of int64, shape (t,)
        Dual value of a record of each type, in units.
    limit : int
        Reduced costs must be less.
    price : int
        Price of a class, in units.
    cuts : PairCuts, optional
        Prices of pairs.
    capacity : int
        Most classes to be kept.
    quota : int, optional
        Give up on a first record after so many classes; the search is then not complete.
    pulse : Pulse
        Beaten every few milliseconds; when its time is over, the whole search is given up on.

    Notes
    -----
    Depth first, records in descending order of their duals. Loss grows with the class, so that a
    class and one more record, together with the largest duals that are left for r others, bounds
    the reduced cost of all classes that hold them from below. Those that stay below the limit
    are the only ones to be looked at deeper in the tree; the bound is taken again with the duals
    of these alone. Everything is in whole units: the bounds are exact.
    """

    def __init__(
        self,
        types: DistinctRecords,
        k: int,
        duals: IntArray,
        limit: int = NO_LIMIT,
        *,
        price: int = 0,
        cuts: PairCuts | None = None,
        capacity: int,
        quota: int = NO_LIMIT,
        pulse: Pulse,
    ) -> None:
        self._order = np.argsort(-duals, kind="stable")
        cuts = PairCuts.none(duals.size) if cuts is None else cuts
        rank = np.argsort(self._order)
        self._types = types.take(self._order)
        self._cuts = PairCuts.of(rank[cuts.members], cuts.prices, duals.size)
        self._goal = Goal(duals[self._order], k, limit, quota)
        self._pulse = pulse
        self._state = new_state(self._types, k, cuts.prices.size)
        self._state.dual[0] = -price
        self._found = FoundClasses(
            np.zeros(1, dtype=np.int64),
            np.full((capacity, 2 * k - 1), -1, dtype=np.int64),
            *(np.zeros(capacity, dtype=np.int64) for _ in range(3)),
        )
        self.is_complete = True
        """Whether nothing was given up on."""

    def all(self) -> CandidateClasses | None:
        """Return all classes below the limit; None if they exceed the capacity, or on giving up."""
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
