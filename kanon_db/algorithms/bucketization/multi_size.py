"""Finds bucket settings of any number of sizes: by splitting, or optimal ones ([GB] Section 6)."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from math import ceil, isfinite
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.bucket_assignment import partition_records, transport
from kanon_db.algorithms.bucketization.buckets import BucketSetting, record_counts
from kanon_db.algorithms.bucketization.joint_assignment import (
    JointPlan,
    SensitiveCombinations,
    arrange,
    by_size,
)
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.two_size import anatomy, joint_problem, two_size
from kanon_db.algorithms.ground.arrays import BoolArray, IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Proof, Pulse
from kanon_db.algorithms.ground.solver import HIGHS, LinearModel, Solution, solve, solve_problem
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InfeasibleError, InvalidParameterError


def multi_size(
    counts: npt.ArrayLike,
    privacy: FPrimePrivacy,
    max_bucket_size: int,
    *,
    pulse: Pulse = UNLIMITED,
) -> BucketSetting:
    """Find a good bucket setting of any number of sizes, never worse than the best of two.

    Every record finds a place, and no bucket holds a sensitive value more often than its
    threshold allows: see
    :func:`~kanon_db.algorithms.bucketization.bucket_assignment.partition_records`.

    Parameters
    ----------
    counts : array_like of int, shape (m,)
        Records of each sensitive value: o_i.
    privacy : FPrimePrivacy
        Thresholds of the m values.
    max_bucket_size : int
        M', the most records in a bucket, in [1, 5000].
    pulse : Pulse
        Beaten every few milliseconds of work; what that raises ends the search.

    Returns
    -------
    BucketSetting
        Empty for an empty table.

    Raises
    ------
    IneligibleError, InfeasibleError, InvalidParameterError
        As :func:`~kanon_db.algorithms.bucketization.two_size.two_size`. There can be a valid
        setting of more sizes when there is none of two:
        :func:`~kanon_db.algorithms.bucketization.multi_size.optimal` finds it.

    Notes
    -----
    **Source:** [GB] Algorithm 4: split the table by its best setting of two sizes, then the
    records of each size by theirs, as long as that lowers the loss.

    Deviations:

    - Begun with a single bucket of all records, the algorithm returns that bucket where no two
      sizes do better; but it may exceed M' or break privacy. Here there is no setting then. The
      records of one size always have one, the buckets that they come from.
    - Thresholds are those of the whole table at every depth.
    - Which records the partition moves decides how well each part can be split, and so up to a
      third of the loss. Three rules are tried, and the best result kept: to move records of all
      values in proportion, of the values with the lowest thresholds first, or the highest.
    - In the end, the records of any two sizes are put together and split anew if that lowers the
      loss, until no two are left where it does: that mends most of what an early split
      has done. Each step lowers the loss or the number of parts, so that it ends.

    Cost: hundreds to some thousands of searches by two_size, on counts alone; it grows with the
    number of sizes that the result has, not with the number of records.

    Examples
    --------
    >>> from fractions import Fraction
    >>> thresholds = ("11/50", "31/50", "21/50", "1", "41/50", "41/50")
    >>> privacy = FPrimePrivacy(tuple(map(Fraction, thresholds)))
    >>> table = [1, 3, 2, 6, 4, 4]
    >>> two_size(table, privacy, 8).loss, multi_size(table, privacy, 8).pairs
    (32, ((1, 5), (2, 5), (5, 1)))
    """
    checked, _ = record_counts(counts, len(privacy.thresholds))
    single = two_size(checked, privacy, max_bucket_size, pulse=pulse)
    by_threshold = np.array(
        sorted(range(checked.size), key=lambda i: (privacy.thresholds[i], checked[i])),
        dtype=np.int64,
    )
    best = single
    for order in (None, by_threshold, by_threshold[::-1]):
        splitter = _Splitter(privacy, max_bucket_size, order, pulse)
        parts = splitter.join_and_split(splitter.split(checked, single))
        united = BucketSetting.of([part.size for part in parts], [part.n_buckets for part in parts])
        best = min(best, united, key=lambda setting: setting.loss)
    return best


@dataclass(frozen=True, eq=False)
class _SplitPart:
    """Records, as counts of each value, that fill buckets of one size."""

    counts: IntArray
    size: int
    n_buckets: int

    @property
    def loss(self) -> int:
        return self.n_buckets * (self.size - 1) ** 2


@dataclass(frozen=True, eq=False)
class _Splitter:
    """Splits tables under the thresholds of one; ``order`` is that in which values are moved."""

    privacy: FPrimePrivacy
    max_bucket_size: int
    order: IntArray | None
    pulse: Pulse

    def split(self, counts: IntArray, setting: BucketSetting) -> list[_SplitPart]:
        """Split a table by its best setting, then each side by its own."""
        parts = []
        waiting = [(counts, setting)]
        while waiting:
            counts, setting = waiting.pop()
            sides = self._partition(counts, setting).T
            for side, (size, n_buckets) in zip(sides, setting.pairs, strict=True):
                part = _SplitPart(side, size, n_buckets)
                finer = self._best_setting(side) if setting.sizes.size > 1 else setting
                if finer.loss < part.loss:
                    waiting.append((side, finer))
                else:
                    parts.append(part)
        return parts

    def join_and_split(self, parts: list[_SplitPart]) -> list[_SplitPart]:
        """Merge and split again any two parts, until that lowers the loss of none."""
        settled: list[_SplitPart] = []
        while parts:
            part = parts.pop()
            for other in settled:
                joined = part.counts + other.counts
                setting = self._best_setting(joined)
                if part.size == other.size or setting.loss < part.loss + other.loss:
                    settled.remove(other)
                    parts += self.split(joined, setting)
                    break
            else:
                settled.append(part)
        return settled

    def _best_setting(self, counts: IntArray) -> BucketSetting:
        """Find the best setting of two sizes; the records of one size always have one."""
        present = np.flatnonzero(counts)
        thresholds = tuple(self.privacy.thresholds[i] for i in present)
        return two_size(
            counts[present],
            FPrimePrivacy(thresholds),
            self.max_bucket_size,
            pulse=self.pulse,
        )

    def _partition(self, counts: IntArray, setting: BucketSetting) -> IntArray:
        """Divide the records between the sizes, [GB] Algorithm 1."""
        limits = self.privacy.occurrence_limits(setting.sizes)
        if self.order is None or setting.sizes.size < 2:
            return partition_records(counts, limits, setting)
        available = np.minimum(limits * setting.counts, counts[:, np.newaxis])
        first = available[:, 0]
        excess = int(first.sum()) - int(setting.sizes[0] * setting.counts[0])
        room = (available[:, 1] - (counts - first))[self.order]
        first[self.order] -= np.clip(excess - (np.cumsum(room) - room), 0, room)
        return np.column_stack([first, counts - first])


@dataclass(frozen=True, eq=False)
class SettingProgram:
    """Numbers of buckets of each size that hold all records, at the lowest loss.

    **Source:** [GB] Section 6.1, without the v_ij; see :func:`.optimal`.
    """

    sizes: IntArray  # (q,): bucket sizes, at least one
    n_records: int  # Records to hold
    # (c, q): most records that one bucket of each size takes of a set of values, for c sets
    room: IntArray
    needed: IntArray  # (c,): records of each set


def solve_setting(
    program: SettingProgram, near: IntArray, start: IntArray | None, *, integral: bool, pulse: Pulse
) -> Solution:
    """Solve a program by HiGHS."""
    # The solver works on the differences from ``near``: the better that is, the fewer digits it
    # needs.
    terms = np.vstack([program.sizes, program.room])
    lacking = np.append(program.n_records, program.needed) - terms @ near
    rows, columns = np.nonzero(terms)
    most = lacking.astype(np.float64)
    most[1:] = np.inf  # all records are held exactly once, and those of a set at least once
    model = LinearModel(
        costs=(program.sizes - 1) ** 2,
        lower=-near,
        upper=program.n_records // program.sizes - near,
        is_whole=np.full(near.size, integral),
        row_lower=lacking,
        row_upper=most,
        rows=rows,
        columns=columns,
        coefficients=terms[rows, columns],
    )
    # Losses are whole numbers, so that a gap of less than 1 is none.
    highs = model.load_solver(gap=0.99)
    answer = solve(highs, pulse, None if start is None else (start - near).tolist())
    return answer if answer.values is None else answer._replace(values=near + answer.values)


def solve_paper_program(
    counts: IntArray, privacy: FPrimePrivacy, sizes: IntArray, pulse: Pulse, solver: str
) -> Solution:
    """Solve the paper's program by a solver of PuLP's.

    The solution has no values where the solver's, as whole numbers, break a constraint.
    """
    from kanon_db.algorithms.programs import bucket_program

    smallest, largest = int(sizes[0]), int(sizes[-1])
    program = bucket_program(counts.tolist(), privacy.thresholds, smallest, largest)
    answer = solve_problem(program.problem, pulse, solver=solver)
    if answer.values is None:
        return answer
    b, v = program.whole_values("b"), program.whole_values("v")
    holds = (
        (b >= 0).all()
        and (v >= 0).all()
        and (v.sum(axis=1) == counts).all()
        and (v.sum(axis=0) == sizes * b).all()
        and (v <= privacy.occurrence_limits(sizes) * b).all()
    )
    return answer._replace(values=b.astype(np.float64) if holds else None)


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
    """A bucket setting, and how close to the optimum it is known to be."""

    setting: BucketSetting  # Valid, whether or not it is optimal
    proof: Proof  # Loss of the setting, and a bound on that of any valid one


def optimal(
    counts: npt.ArrayLike,
    privacy: FPrimePrivacy,
    max_bucket_size: int,
    *,
    formulation: Formulation = "projected",
    solver: str = HIGHS,
    pulse: Pulse = UNLIMITED,
) -> OptimalSetting:
    """Find the bucket setting with the smallest loss, of any number of sizes.

    Every record finds a place, and no bucket holds a sensitive value more often than its
    threshold allows: see
    :func:`~kanon_db.algorithms.bucketization.bucket_assignment.partition_records`.

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
    solver : str
        PuLP's name of the solver of the formulation ``paper``.
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

    HiGHS gets ``projected`` as arrays: PuLP would state it for seconds, deaf to a cancel.

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
    search = _SettingSearch(_TypedTable.of(checked, privacy, sizes, pulse))
    search.keep(start)
    if formulation == "paper":
        search.take(solve_paper_program(checked, privacy, sizes, pulse, solver))
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
class _TypedTable:
    """A table whose values with equal count and threshold are merged into types."""

    sizes: IntArray  # (q,)
    counts: IntArray  # (t,): records of each type
    limits: IntArray  # (t, q): most records of each type in one bucket

    @classmethod
    def of(
        cls, counts: IntArray, privacy: FPrimePrivacy, sizes: IntArray, pulse: Pulse
    ) -> _TypedTable:
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

    def find_crowded(self, n_buckets: IntArray, unit: int) -> list[BoolArray]:
        """Find likely sets of types with more records than the buckets may hold.

        Records and buckets are counted in multiples of 1 / ``unit``.
        """
        # These are single types, and sets that the smaller or the larger buckets cannot hold.
        counts = unit * self.counts
        capacities = self.limits * n_buckets
        lacking = counts - capacities.sum(axis=1)
        worst = np.argsort(-lacking, kind="stable")[:_MAX_SINGLE_TYPES]
        crowds = [np.arange(counts.size) == i for i in worst[lacking[worst] > 0]]
        demands = self.sizes * n_buckets
        for order in (slice(None), slice(None, None, -1)):
            held = np.cumsum(capacities[:, order], axis=1)
            filled = np.minimum(held, counts[:, np.newaxis]).sum(axis=0)
            unfilled = np.flatnonzero(np.cumsum(demands[order]) > filled)
            crowds += [counts > held[:, j] for j in unfilled]
        return crowds

    def find_stranded(self, n_buckets: IntArray, unit: int, pulse: Pulse) -> BoolArray:
        """Find a set of types with more records than the buckets may hold; empty if none has."""
        return transport(
            unit * self.counts, self.sizes * n_buckets, self.limits * n_buckets, pulse=pulse
        ).stranded


class _SettingSearch:
    """Solves programs to which violated constraints are added."""

    def __init__(self, table: _TypedTable) -> None:
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
            counts = self._solve(pulse, integral=False).values
            if counts is None:
                return
            loss = float(self._table.losses @ counts)
            self._raise_bound(loss - _PRECISION * loss)
            self._near = np.maximum(np.floor(counts), 0).astype(np.int64)
            fractions = np.maximum(np.rint(unit * counts), 0).astype(np.int64)
            pulse.beat()
            incomplete = self._add(self._table.find_crowded(fractions, unit), counts) or self._add(
                [self._table.find_stranded(fractions, unit, pulse)], counts
            )

    def branch(self, pulse: Pulse, seconds: float) -> None:
        """Look for whole numbers of buckets, in rounds of growing length."""
        progress = True
        while progress and not pulse.is_over and not self.is_proven:
            turn = pulse.within(seconds)
            answer = self._solve(turn, integral=True)
            if isfinite(answer.lower_bound):
                self._raise_bound(int(self._table.losses @ self._near) + answer.lower_bound)
            progress = turn.is_over
            if progress:
                seconds *= 2
            if answer.values is not None:
                progress |= self._consider(np.rint(answer.values).astype(np.int64), pulse)

    def take(self, answer: Solution) -> None:
        """Take over the solution of the paper's program: a valid setting, and a bound."""
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
        """Keep a valid setting, or add the constraints it violates; tell whether any are new."""
        table = self._table
        if (n_buckets < 0).any() or int(table.sizes @ n_buckets) != table.n_records:
            return False
        if self._add(table.find_crowded(n_buckets, 1), n_buckets):
            return True
        stranded = table.find_stranded(n_buckets, 1, pulse)
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

    def _solve(self, pulse: Pulse, *, integral: bool) -> Solution:
        table, sets = self._table, self._sets.values()
        shape = len(sets), table.sizes.size
        start = None
        if integral and self.best is not None:
            start = np.zeros_like(table.sizes)
            start[np.searchsorted(table.sizes, self.best.sizes)] = self.best.counts
        program = SettingProgram(
            sizes=table.sizes,
            n_records=table.n_records,
            room=np.array([table.room(members) for members in sets], dtype=np.int64).reshape(shape),
            needed=np.array([table.counts[members].sum() for members in sets], dtype=np.int64),
        )
        answer = solve_setting(program, self._near, start, integral=integral, pulse=pulse)
        self._require_one(answer)
        return answer

    def _require_one(self, answer: Solution) -> None:
        table = self._table
        if answer.is_infeasible and self.best is None:
            raise InfeasibleError(
                "no bucket setting is valid",
                detail=f"bucket sizes {table.sizes[0]} to {table.sizes[-1]}, "
                f"n_records = {table.n_records:,}",
                hint="raise max_bucket_size, or the thresholds of the privacy specification",
            )


def jointly_two_size(
    data: SensitiveCombinations, max_bucket_size: int, pulse: Pulse = UNLIMITED
) -> JointPlan:
    """Find a setting of at most two sizes of little loss that holds for each attribute.

    Raises InfeasibleError where no arrangement is found.
    """
    # Settings that hold for each attribute, and for combinations, are looked at from the least loss
    # on, one of each loss; the first one for which an arrangement is found is taken. After eight of
    # them, losses are skipped in growing steps. In the end come settings of nearly equal sizes. Of
    # two attributes, there is an arrangement wherever there are buckets of nearly equal sizes for
    # each attribute; of more, that none is found is no proof that there is none.
    if not data.n_records:
        return JointPlan(BucketSetting.of([], []), np.empty(0, dtype=np.int32))
    problem = joint_problem(list(data.bounded()), max_bucket_size, pulse)
    above, tries = -1, 0
    while problem is not None and tries < _MOST_SETTINGS:
        best = problem.best("full", pulse, above=above)
        if best is None:
            break
        buckets = arrange(data, best, pulse)
        if buckets is not None:
            return JointPlan(best, buckets)
        tries += 1
        above = best.loss
        if tries > _EXACT_SETTINGS:
            above += above * 2 ** (tries - _EXACT_SETTINGS) // 4096
    equal = _equal_settings(data, max_bucket_size)
    at = 0
    while at < len(equal):
        buckets = arrange(data, equal[at], pulse)
        if buckets is not None:
            return JointPlan(equal[at], buckets)
        # Of two attributes, the first one is right. The last one is a single bucket, if it may be.
        at = max(at + 1, min(at + at // _EXACT_SETTINGS, len(equal) - 1))
    is_proof = len(data.privacies) == 2 and not tries
    raise InfeasibleError(
        "no arrangement of the sensitive attributes in buckets was found",
        detail=f"{data.n_records:,} records, {len(data.privacies)} sensitive attributes, buckets of"
        f" at most {max_bucket_size} records"
        + ("" if is_proof else "; that none was found is no proof that there is none"),
        hint="raise max_bucket_size or the thresholds, or protect fewer attributes",
    )


_MOST_SETTINGS: Final = 24
_EXACT_SETTINGS: Final = 8


def _equal_settings(data: SensitiveCombinations, max_bucket_size: int) -> list[BucketSetting]:
    """Return the settings of two neighboring sizes that each attribute allows, small ones first."""
    n, settings = data.n_records, []
    smallest = max(privacy.smallest_bucket_size() for _, privacy in data.bounded())
    for size in range(smallest, min(max_bucket_size, n) + 1):
        n_buckets = n // size
        n_larger = n - n_buckets * size
        if n_larger > n_buckets or (n_larger and size == max_bucket_size):
            continue
        if all(
            # Where the limit is the size, the threshold is 1.
            ((counts <= limit[:, 0] * n_buckets) | (limit[:, 0] == size)).all()
            for counts, limit in zip(
                data.counts_of_values, data.limits(np.array([size])), strict=True
            )
        ):
            settings.append(BucketSetting.of([size, size + 1], [n_buckets - n_larger, n_larger]))
    return settings


def jointly_anatomy(data: SensitiveCombinations, l: int, pulse: Pulse = UNLIMITED) -> JointPlan:
    """Make buckets of l and l + 1 records, in which no value of an attribute occurs twice."""
    diverse = tuple(privacy.diverse(l) for privacy in data.privacies)
    for counts in data.counts_of_values:
        setting = anatomy(counts, l)
    bounded = replace(data, privacies=diverse)
    buckets = arrange(bounded, setting, pulse)
    if buckets is None:
        raise InfeasibleError(
            "no arrangement of the sensitive attributes in buckets was found",
            detail=f"l = {l}, {len(data.privacies)} sensitive attributes; that none was found is no"
            " proof that there is none",
            hint="use another method, or protect fewer attributes",
        )
    return JointPlan(setting, buckets)


def jointly_multi_size(
    data: SensitiveCombinations, max_bucket_size: int, pulse: Pulse = UNLIMITED
) -> JointPlan:
    """Split the records of each size again, as long as that loses less.

    **Source:** [GB] Algorithm 4, as :func:`.multi_size`, but parts are not joined again.
    """
    plan = jointly_two_size(data, max_bucket_size, pulse)
    places = np.arange(data.n_records)
    combination = np.repeat(np.arange(data.counts.size), data.counts)
    sizes: list[int] = []
    buckets = np.empty(data.n_records, dtype=np.int64)
    waiting = [(plan, places)]
    while waiting:
        pulse.beat()
        plan, places = waiting.pop()
        first_bucket = 0
        for size, n in plan.setting.pairs:
            is_own = (plan.buckets >= first_bucket) & (plan.buckets < first_bucket + n)
            own = places[is_own]
            finer = None
            if plan.setting.sizes.size > 1:
                counts = np.bincount(combination[own], minlength=data.counts.size)
                # Of three attributes or more, what is arranged already may not be found again.
                with suppress(InfeasibleError):
                    finer = jointly_two_size(data.having(counts), max_bucket_size, pulse)
            if finer is not None and finer.setting.loss < n * (size - 1) ** 2:
                waiting.append((finer, own))
            else:
                buckets[own] = len(sizes) + plan.buckets[is_own] - first_bucket
                sizes += [size] * n
            first_bucket += n
    return JointPlan(
        BucketSetting.of(*np.unique(sizes, return_counts=True)),
        by_size(buckets.astype(np.int32), len(sizes)),
    )


def jointly_optimal(
    data: SensitiveCombinations,
    max_bucket_size: int,
    *,
    formulation: Literal["projected", "paper"] = "projected",
    solver: str = HIGHS,
    pulse: Pulse = UNLIMITED,
) -> JointPlan:
    """Find the setting that loses least, by integer programming, or say how much less might do."""
    # No setting can lose less than the optimum for one of the attributes, or for combinations,
    # alone. Where the setting that loses most of these holds for all of them, it is the optimum;
    # otherwise what `jointly_multi_size` finds is returned with that bound.
    bound, best = Fraction(0), None
    for counts, privacy in data.bounded():
        optimum = optimal(
            counts, privacy, max_bucket_size, formulation=formulation, solver=solver, pulse=pulse
        )
        if optimum.proof.lower_bound >= bound:
            bound, best = optimum.proof.lower_bound, optimum.setting
    assert best is not None  # noqa: S101  # there is an attribute
    buckets = arrange(data, best, pulse)
    if buckets is None:
        plan = jointly_multi_size(data, max_bucket_size, pulse)
        return replace(plan, proof=Proof(Fraction(plan.setting.loss), bound))
    return JointPlan(best, buckets, Proof(Fraction(best.loss), bound))
