"""Optimal bucket setting of any number of sizes ([GB] Section 6.1)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.multi_size import multi_size
from kanon_db.algorithms.bucketization.optimal_model import (
    SettingProgram,
    solve_paper_program,
    solve_setting,
)
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.setting import BucketSetting, record_counts
from kanon_db.algorithms.bucketization.transportation import transport
from kanon_db.algorithms.bucketization.two_size import two_size
from kanon_db.algorithms.ground.arrays import BoolArray, IntArray
from kanon_db.algorithms.ground.proof import Proof
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.ground.solver import Answer
from kanon_db.errors import InfeasibleError, InvalidParameterError

Formulation = Literal["projected", "paper"]

MAX_CELLS = 2**22
"""Most pairs of a bucket size and a distinct pair of count and threshold."""

MAX_RECORDS = 2**32
"""Largest table: the solver has been seen to run on and on with numbers of ten times that."""

_MAX_SINGLE_TYPES = 256  # added at once
_LARGEST_SUPPLY = 2**31  # of fractional settings, in fractions of a record
_TOLERANCE = 1e-4  # of the solver, in records and in loss, both of which are whole
_PRECISION = 1e-9


@dataclass(frozen=True, eq=False)
class OptimalSetting:
    """A bucket setting, and how close to the optimum it is known to be.

    Parameters
    ----------
    setting : BucketSetting
        Valid, whether or not it is optimal.
    proof : Proof
        Loss of the setting, and a bound on that of any valid one.
    """

    setting: BucketSetting
    proof: Proof


def optimal(
    counts: npt.ArrayLike,
    privacy: FPrimePrivacy,
    max_bucket_size: int,
    *,
    formulation: Formulation = "projected",
    pulse: Pulse = UNLIMITED,
) -> OptimalSetting:
    """Find the bucket setting with the smallest loss, of any number of sizes.

    Every record finds a place, and no bucket holds a sensitive value more often than its
    threshold allows: see :func:`~kanon_db.algorithms.bucketization.assignment.partition_records`.

    Parameters
    ----------
    counts : array_like of int, shape (m,)
        Records of each sensitive value: o_i.
    privacy : FPrimePrivacy
        Thresholds of the m values.
    max_bucket_size : int
        M', the most records in a bucket, in [1, 5000].
    formulation : {"projected", "paper"}
        The program to solve: one variable for each bucket size, or the paper's, also one for each
        value and bucket size, for some tens of values and sizes.
    pulse : Pulse
        Its time limit is for the solver: heuristics to start from, and constraints that are being
        looked for, are finished. That may take a second or two for 50 distinct values, up to a
        minute for thousands with thresholds of their own. Beaten every few milliseconds, in the
        thread of the caller; what that raises ends the search as soon as the solver, which runs
        in a thread of its own, takes notice.

    Returns
    -------
    OptimalSetting
        The best setting found, with the bound proven when the time ran out. Empty for an empty
        table.

    Raises
    ------
    IneligibleError
        If a value is more frequent in the table than its threshold.
    InfeasibleError
        If no setting of sizes up to ``max_bucket_size`` is valid, or none was found in time.
    InvalidParameterError
        If ``max_bucket_size`` or ``formulation`` is out of range, ``counts`` and ``privacy`` do not
        match, records exceed :data:`MAX_RECORDS`, distinct pairs of count and threshold times sizes
        exceed :data:`MAX_CELLS`, or the table is too large for the formulation ``paper``.

    Notes
    -----
    **Source:** [GB] Section 6.1, with u_ij = floor(f'_i S_j) b_j, where the paper prints f'_j and
    calls u_ij a constant. The formulation ``paper`` is that program as it is:
    :func:`~kanon_db.algorithms.programs.bucket_program`.

    Deviations of ``projected``, none of which changes the optimum:

    - For given b_j the v_ij solve a transportation problem, which by Gale's theorem has a solution
      if and only if no set U of values has more records than the buckets may hold of it:
      sum_j min{S_j, sum_{i in U} floor(f'_i S_j)} b_j >= sum_{i in U} o_i. These constraints, one
      for each U, take the place of all v_ij, which leaves as many variables as sizes.
    - Of the 2^m constraints those are added which the last solution violates, first without and
      then with the b_j being whole, until it violates none (J. F. Benders, 1962). Sets are looked
      for among those that no smaller, or no larger, sizes can hold; if there is none, a maximum
      flow either finds one or proves that there is none.
    - Values with equal counts and thresholds count as one.
    - The program starts from the best setting of two sizes, and if an eighth of the time has not
      solved it, anew from that of
      :func:`~kanon_db.algorithms.bucketization.multi_size.multi_size`.

    The solver calculates in floating point: its settings are taken only if they are valid in exact
    integers. Its lower bound is trusted to within 10^-4 of a whole loss.

    Examples
    --------
    >>> from fractions import Fraction
    >>> privacy = FPrimePrivacy(tuple(map(Fraction, ("29/100", "3/5", "7/10", "3/5", "7/20"))))
    >>> found = optimal([1, 1, 5, 3, 2], privacy, 8)
    >>> found.setting.pairs, int(found.proof.objective), found.proof.status
    (((2, 1), (3, 2), (4, 1)), 18, 'optimal')
    """
    if formulation not in get_args(Formulation):
        raise InvalidParameterError(
            "unknown formulation", hint=f"use one of {', '.join(get_args(Formulation))}"
        )
    checked, n_records = record_counts(counts, len(privacy.thresholds))
    if n_records > MAX_RECORDS:
        raise InvalidParameterError(
            "the table is too large for the method optimal",
            detail=f"n_records = {n_records:,}, limit = {MAX_RECORDS:,}",
            hint="use the method multi_size",
        )
    smallest = privacy.smallest_bucket_size()
    try:
        start = two_size(checked, privacy, max_bucket_size, pulse=pulse)
    except InfeasibleError:
        if max_bucket_size < smallest:
            raise
        start = None
    if n_records == 0:
        return OptimalSetting(BucketSetting.of([], []), Proof.of(0, 0))
    sizes = np.arange(smallest, min(max_bucket_size, n_records) + 1)
    search = _Search(_Table.of(checked, privacy, sizes, pulse))
    search.keep(start)
    if formulation == "paper":
        search.take(solve_paper_program(checked, privacy, sizes, pulse))
    else:
        search.relax(pulse)
        # Most programs are solved in a moment, sooner than the heuristic is.
        search.branch(pulse.until(1 / 8), pulse.seconds / 8)
        if start is not None and not search.is_proven:
            search.keep(multi_size(checked, privacy, max_bucket_size, pulse=pulse))
        search.branch(pulse, pulse.seconds / 4)
    if search.best is None:
        raise InfeasibleError(
            "no bucket setting was found within the time limit",
            detail=f"time_limit = {pulse.seconds} s, bucket sizes {smallest} to {sizes[-1]}",
            hint="raise time_limit or max_bucket_size",
        )
    return OptimalSetting(search.best, Proof.of(search.best.loss, search.lower_bound))


@dataclass(frozen=True, eq=False)
class _Table:
    """Values of equal count and threshold are one: the limits of a type are those of all of it."""

    sizes: IntArray  # (q,)
    counts: IntArray  # (t,): records of each type
    limits: IntArray  # (t, q): most records of each type in one bucket

    @classmethod
    def of(cls, counts: IntArray, privacy: FPrimePrivacy, sizes: IntArray, pulse: Pulse) -> _Table:
        types = Counter(zip(counts.tolist(), privacy.thresholds, strict=True))
        if len(types) * sizes.size > MAX_CELLS:
            raise InvalidParameterError(
                "the table is too large for the method optimal",
                detail=f"{len(types):,} distinct pairs of count and threshold, {sizes.size:,} "
                f"bucket sizes; the limit for their product is {MAX_CELLS:,}",
                hint="use the method multi_size, or lower max_bucket_size",
            )
        n_values = np.array(list(types.values()))
        of_types = FPrimePrivacy(tuple(threshold for _, threshold in types))
        limits = of_types.limits_of_many(sizes, pulse) * n_values[:, np.newaxis]
        return cls(
            sizes,
            np.array([count for count, _ in types]) * n_values,
            np.minimum(limits, sizes),
        )

    @property
    def n_records(self) -> int:
        return int(self.counts.sum())

    @property
    def losses(self) -> IntArray:
        return (self.sizes - 1) ** 2

    def room(self, members: BoolArray) -> IntArray:
        """Most records of a set of types in one bucket of each size."""
        room: IntArray = np.minimum(self.sizes, self.limits[members].sum(axis=0))
        return room

    def crowded(self, n_buckets: IntArray, unit: int) -> list[BoolArray]:
        """Find sets of types with more records than the buckets may hold, the likely ones.

        These are single types, and those that the smaller, or the larger, of the buckets cannot
        hold. Both records and buckets are counted in fractions of 1 / ``unit``.
        """
        counts = unit * self.counts
        capacities = self.limits * n_buckets
        lacking = counts - capacities.sum(axis=1)
        worst = np.argsort(-lacking, kind="stable")[:_MAX_SINGLE_TYPES]
        found = [np.arange(counts.size) == i for i in worst[lacking[worst] > 0]]
        demands = self.sizes * n_buckets
        for order in (slice(None), slice(None, None, -1)):
            held = np.cumsum(capacities[:, order], axis=1)
            filled = np.minimum(held, counts[:, np.newaxis]).sum(axis=0)
            unfilled = np.flatnonzero(np.cumsum(demands[order]) > filled)
            found += [counts > held[:, j] for j in unfilled]
        return found

    def stranded(self, n_buckets: IntArray, unit: int, pulse: Pulse) -> BoolArray:
        """Find a set of types with more records than the buckets may hold; empty if none has."""
        return transport(
            unit * self.counts, self.sizes * n_buckets, self.limits * n_buckets, pulse=pulse
        ).stranded


class _Search:
    """Solves programs of more and more constraints."""

    def __init__(self, table: _Table) -> None:
        self._table = table
        self._sets: dict[bytes, BoolArray] = {}
        self._near = np.zeros_like(table.sizes)
        self.best: BucketSetting | None = None
        # Loss per record is least in the smallest buckets.
        smallest = int(table.sizes[0])
        self.lower_bound = -(-table.n_records * (smallest - 1) ** 2 // smallest)

    def relax(self, pulse: Pulse) -> None:
        """Collect the constraints that hold for any numbers of buckets, whole or not."""
        unit = max(1, _LARGEST_SUPPLY // self._table.n_records)
        incomplete = True
        while incomplete and not pulse.is_over:
            counts = self._solve(pulse, whole=False).values
            if counts is None:
                return
            loss = float(self._table.losses @ counts)
            self._raise_bound(loss - _PRECISION * loss)
            self._near = np.maximum(np.floor(counts), 0).astype(np.int64)
            fractions = np.maximum(np.rint(unit * counts), 0).astype(np.int64)
            pulse.beat()
            incomplete = self._add(self._table.crowded(fractions, unit), counts) or self._add(
                [self._table.stranded(fractions, unit, pulse)], counts
            )

    def branch(self, pulse: Pulse, seconds: float) -> None:
        """Look for whole numbers of buckets, in rounds of growing length."""
        progress = True
        while progress and not pulse.is_over and not self.is_proven:
            turn = pulse.within(seconds)
            answer = self._solve(turn, whole=True)
            if isfinite(answer.lower_bound):
                self._raise_bound(int(self._table.losses @ self._near) + answer.lower_bound)
            progress = turn.is_over
            if progress:
                seconds *= 2
            if answer.values is not None:
                progress |= self._consider(np.rint(answer.values).astype(np.int64), pulse)

    def take(self, answer: Answer) -> None:
        """Take what the paper's program has shown: a setting known to be valid, and a bound."""
        self._require_one(answer)
        if isfinite(answer.lower_bound):
            self._raise_bound(answer.lower_bound)
        if answer.values is not None:
            self.keep(BucketSetting.of(self._table.sizes, answer.values.astype(np.int64)))

    @property
    def is_proven(self) -> bool:
        """Whether the best setting is known to be optimal."""
        return self.best is not None and self.best.loss <= self.lower_bound

    def _consider(self, n_buckets: IntArray, pulse: Pulse) -> bool:
        """Keep a setting if it is the best, or the constraints that it violates; if any are new."""
        table = self._table
        if (n_buckets < 0).any() or int(table.sizes @ n_buckets) != table.n_records:
            return False
        if self._add(table.crowded(n_buckets, 1), n_buckets):
            return True
        stranded = table.stranded(n_buckets, 1, pulse)
        if stranded.any():
            return self._add([stranded], n_buckets)
        self.keep(BucketSetting.of(table.sizes, n_buckets))
        return False

    def keep(self, setting: BucketSetting | None) -> None:
        """Keep a valid setting if it is the best."""
        known = filter(None, (self.best, setting))
        self.best = min(known, key=lambda setting: setting.loss, default=None)

    def _add(self, sets: list[BoolArray], solution: npt.NDArray[np.number]) -> bool:
        """Add the constraints of sets that a solution violates; tell whether any is new."""
        n_known = len(self._sets)
        for members in sets:
            lacking = self._table.counts[members].sum() - self._table.room(members) @ solution
            if lacking > _TOLERANCE:
                self._sets.setdefault(members.tobytes(), members)
        return len(self._sets) > n_known

    def _raise_bound(self, bound: float) -> None:
        self.lower_bound = max(self.lower_bound, ceil(bound - _TOLERANCE))

    def _solve(self, pulse: Pulse, *, whole: bool) -> Answer:
        table, sets = self._table, self._sets.values()
        shape = len(sets), table.sizes.size
        start = None
        if whole and self.best is not None:
            start = np.zeros_like(table.sizes)
            start[np.searchsorted(table.sizes, self.best.sizes)] = self.best.counts
        program = SettingProgram(
            sizes=table.sizes,
            n_records=table.n_records,
            room=np.array([table.room(members) for members in sets], dtype=np.int64).reshape(shape),
            needed=np.array([table.counts[members].sum() for members in sets], dtype=np.int64),
        )
        answer = solve_setting(program, self._near, start, whole=whole, pulse=pulse)
        self._require_one(answer)
        return answer

    def _require_one(self, answer: Answer) -> None:
        table = self._table
        if answer.is_infeasible and self.best is None:
            raise InfeasibleError(
                "no bucket setting is valid",
                detail=f"bucket sizes {table.sizes[0]} to {table.sizes[-1]}, "
                f"n_records = {table.n_records:,}",
                hint="raise max_bucket_size, or the thresholds of the privacy specification",
            )
