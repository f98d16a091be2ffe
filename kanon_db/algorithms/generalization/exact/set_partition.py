"""Optimal classes as a set-partitioning problem: enumeration or column generation, and proof."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from kanon_db.algorithms.generalization.exact.candidate_classes import (
    NO_LIMIT,
    CandidateClasses,
    PairCuts,
)
from kanon_db.algorithms.generalization.exact.class_search import ClassSearch
from kanon_db.algorithms.generalization.exact.cover_search import CoverSearch
from kanon_db.algorithms.generalization.exact.distinct_records import DistinctRecords, loss_of_pair
from kanon_db.algorithms.generalization.exact.restricted_master import Duals, RestrictedMaster
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.proof import Proof
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.errors import InvalidParameterError

MAX_RECORDS = 1000
"""Most records: of more, it would not learn more about the optimum than a trivial bound."""

_MAX_ENUMERATED = 5000  # classes, without column generation
_MAX_CLASSES = 200_000  # for the proof
_MAX_CELLS = 2**23  # of its search: some 130 MB
_CAPACITY = 20_000
_CLASSES_PER_ROUND = 300
_CLASSES_PER_RECORD = 100
_FEW_CLASSES = 20
_MAX_ROUNDS_OF_CUTS = 40
_FIRST_STEP = 256  # steps that the bound has; those of the proof become larger
_PRECISION = 2**36


@dataclass(frozen=True, eq=False)
class Partition:
    """What is known about the best partition of records into classes.

    Parameters
    ----------
    classes : CandidateClasses or None
        The best partition found, if it is better than what was known before.
    proof : Proof
        Loss of the best partition known, in units, and a bound on that of any.
    n_classes : int
        Classes that the search looked at as columns of the model.
    """

    classes: CandidateClasses | None
    proof: Proof
    n_classes: int


def set_partition(types: DistinctRecords, k: int, upper: int, *, pulse: Pulse) -> Partition:
    """Find the partition of records into classes of k to 2k - 1 with the least loss.

    Parameters
    ----------
    types : DistinctRecords
    k : int
        At least 2.
    upper : int
        Loss of a known partition in units: only better ones count.
    pulse : Pulse
        Beaten every few milliseconds. When its time is over, the best partition and bound so far
        are returned.

    Returns
    -------
    Partition

    Raises
    ------
    InvalidParameterError
        If there are more than :data:`MAX_RECORDS` records.

    Notes
    -----
    **Source:** the model is [OB] Eq. (21) to (28) with one variable for each class in place of one
    for each pair of records, as a class of 2k records or more never beats its split.

    1. The duals of :func:`nearest_neighbor_duals` leave few classes worth a look in a small table:
       these are enumerated and searched.
    2. Otherwise the linear relaxation is solved by column generation, and tightened by
       subset-row inequalities; there are at most n // k classes.
    3. Of all classes, those whose reduced cost is below a step are enumerated and searched for a
       partition that exceeds the bound by less than the step. There is none, and the bound rises;
       or the best of them is optimal. Steps become larger unless there are too many classes.

    Floating point numbers only decide where to look: bounds are calculated from rounded duals,
    with the least reduced cost of all classes, in whole fractions of a unit.
    """
    check_size(int(types.copies.sum()))
    quick = _enumerate(types, k, upper, pulse)
    if quick is not None:
        return quick
    factor = 1
    while 2 * factor * types.largest_loss <= _PRECISION:
        factor *= 2
    fine = types.scaled(factor)
    search = _Search(fine, k, upper * factor, pulse)
    search.run()
    found = search.best
    classes = None
    if found is not None:
        classes = CandidateClasses(found.members, found.sizes, found.losses // factor)
        upper = int(classes.losses.sum())
    return Partition(classes, Proof.of(upper, -(-search.bound // factor)), search.n_classes)


def check_size(n_records: int) -> None:
    """Refuse a table that is too large.

    Parameters
    ----------
    n_records : int

    Raises
    ------
    InvalidParameterError
        If there are more than :data:`MAX_RECORDS` records.
    """
    if n_records > MAX_RECORDS:
        raise InvalidParameterError(
            "there are too many records for an exact search",
            detail=f"{n_records:,} records; the limit is {MAX_RECORDS:,}",
            hint="use the method split_carry with smaller sub-problems, or greedy_search",
        )


def _enumerate(types: DistinctRecords, k: int, upper: int, pulse: Pulse) -> Partition | None:
    """Search all classes that can be part of a better partition, if they are few."""
    duals = nearest_neighbor_duals(types, k)
    bound = int(duals @ types.copies)
    if bound >= upper:
        return Partition(None, Proof.of(upper, upper), 0)
    capacity = _MAX_ENUMERATED + duals.size
    search = ClassSearch(types, k, duals, upper - bound, capacity=capacity, pulse=pulse)
    classes = search.all()
    if classes is None:
        return None
    cover = CoverSearch(classes, search.reduced_costs, types.copies, bound, upper, pulse=pulse)
    ended = cover.run()
    if cover.best is not None:
        upper = int(cover.best.losses.sum())
    return Partition(cover.best, Proof.of(upper, upper if ended else bound), len(classes))


@numba.njit(cache=True, nogil=True)
def nearest_neighbor_duals(types: DistinctRecords, k: int) -> IntArray:
    """Bound the loss of a record of each type from below by that with its k-1st nearest neighbor.

    Parameters
    ----------
    types : DistinctRecords
    k : int

    Returns
    -------
    ndarray of int64, shape (t,)
        Duals for which no class has a reduced cost below 0: a class has k - 1 others, and loses
        no less than any two of its records.
    """
    n_types = types.copies.size
    duals = np.zeros(n_types, dtype=np.int64)
    nearest = np.empty(k, dtype=np.int64)
    for t in range(n_types):
        nearest[:] = NO_LIMIT
        for u in range(n_types):
            loss = loss_of_pair(types, t, u)
            for _ in range(min(types.copies[u], k)):
                if loss >= nearest[-1]:
                    break
                i = k - 1
                while i > 0 and nearest[i - 1] > loss:
                    nearest[i] = nearest[i - 1]
                    i -= 1
                nearest[i] = loss
        duals[t] = nearest[-1]
    return duals


class _Search:
    """Column generation, cuts, and proof; losses are in fractions of a unit."""

    def __init__(self, types: DistinctRecords, k: int, upper: int, pulse: Pulse) -> None:
        self._types, self._k, self._pulse = types, k, pulse
        self._upper = upper
        self._n_records = int(types.copies.sum())
        # The solver's own tolerance is 1e-7 of the losses that it is given.
        self._tolerance = types.largest_loss >> 22
        self._most_classes = self._n_records // k
        none = PairCuts.none(types.copies.size)
        self._duals = Duals(nearest_neighbor_duals(types, k), 0, none)
        self.bound = self._duals.bound(types.copies, self._most_classes)
        """Lower bound on the loss of any partition."""
        self.best: CandidateClasses | None = None
        """The best partition found."""
        self.n_classes = 0
        """Columns of the model."""

    def run(self) -> None:
        """Work until the optimum is proven, or the time is over."""
        master = RestrictedMaster(self._types, self._k)
        for _ in range(_MAX_ROUNDS_OF_CUTS):
            if not self._generate(master) or not master.add_cuts():
                break
        self.n_classes = len(master)
        if not self._pulse.is_over:
            self._prove()

    def _generate(self, master: RestrictedMaster) -> bool:
        """Solve the linear relaxation; tell whether that succeeded."""
        while not self._pulse.is_over:
            duals = master.solve(self._pulse)
            search = self._classes_below(-self._tolerance, duals, _CAPACITY, _CLASSES_PER_RECORD)
            classes = search.best(_CLASSES_PER_ROUND)
            if not search.is_complete and len(classes) < _FEW_CLASSES:
                search = self._classes_below(-self._tolerance, duals, _CAPACITY)
                classes = search.best(_CLASSES_PER_ROUND)
            if search.is_complete:
                least = int(search.reduced_costs.min(initial=-self._tolerance))
                self._raise_bound(duals, least)
            if not len(classes) or not master.add(classes):
                return search.is_complete
        return False

    def _classes_below(
        self, limit: int, duals: Duals, capacity: int, quota: int = NO_LIMIT
    ) -> ClassSearch:
        return ClassSearch(
            self._types,
            self._k,
            duals.types,
            limit,
            price=duals.price,
            cuts=duals.cuts,
            capacity=capacity + self._types.copies.size,
            quota=quota,
            pulse=self._pulse,
        )

    def _raise_bound(self, duals: Duals, least: int) -> None:
        """Take the duals if they prove more, no class having a reduced cost below ``least``."""
        duals = duals._replace(price=duals.price - min(least, 0))
        bound = duals.bound(self._types.copies, self._most_classes)
        if bound > self.bound:
            self.bound = bound
            self._duals = duals

    def _prove(self) -> None:
        """Raise the bound step by step, until it meets a partition."""
        base = self.bound
        step = base // _FIRST_STEP + 1
        n_levels = self._most_classes + 2
        capacity = min(_MAX_CLASSES, _MAX_CELLS // n_levels)
        while self.bound < self._upper and step:
            limit = min(self.bound + step, self._upper)
            search = self._classes_below(limit - base, self._duals, capacity)
            classes = search.all()
            if self._pulse.is_over:
                return
            if classes is None:
                step = (limit - self.bound) // 4
                continue
            self.n_classes = max(self.n_classes, len(classes))
            cover = CoverSearch(
                classes, search.reduced_costs, self._types.copies, base, limit, pulse=self._pulse
            )
            ended = cover.run()
            if cover.best is not None:
                self.best = cover.best
                self._upper = limit = int(cover.best.losses.sum())
            if not ended:
                return
            self.bound = limit
            step += step // 2
