"""Finds optimal classes by set partitioning: enumeration or column generation, with a proof.

HiGHS solves the restricted master problem; an exact search over given classes proves the optimum.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.generalization._class_search import (
    NO_LIMIT,
    CandidateClasses,
    ClassSearch,
    DistinctRecords,
    PairCuts,
    loss_of_pair,
)
from kanon_db.algorithms.ground.arrays import (
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    SmallIntArray,
)
from kanon_db.algorithms.ground.computation import Proof, Pulse, kernel
from kanon_db.algorithms.ground.solver import new_solver, run
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError

_DONE, _PAUSED = 0, 1
_VISITS_PER_BEAT = 2**20  # some milliseconds


class _CoverColumns(NamedTuple):
    """The types of each class, and its number of records of each."""

    types: IntArray  # (c, 2k - 1)
    counts: IntArray  # (c, 2k - 1)
    n_types: IntArray  # (c,)
    losses: IntArray  # (c,)


class _CoverState(NamedTuple):
    """State of the depth-first search; row d describes the partial partition of d classes."""

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
    """Finds the partition of all records into classes of a list that loses least."""

    # Depth first, on the type that the fewest classes hold. Duals raised until a reduced cost is 0
    # bound what is still to come from below; in whole units, so exactly.

    # HiGHS in its place took 3 to 20 times as long for k = 3 and 5 (20 to 80 records), and its
    # tolerances let it prove 2910/41 where 2895/41 is the optimum (80 records of four numbers).

    def __init__(
        self,
        classes: CandidateClasses,  # Each may be used any number of times
        reduced_costs: IntArray,
        copies: IntArray,  # (t,): records of each type
        bound: int,  # Lower bound on the loss of a partition, to which its reduced costs are added
        limit: int,  # Loss must be less
        *,
        pulse: Pulse,
    ) -> None:
        n_classes, width = classes.members.shape
        self._classes = classes
        self._columns = _columns(classes)
        self._pulse = pulse
        depth = int(copies.sum()) // max(int(classes.sizes.min(initial=NO_LIMIT)), 1) + 2
        t = copies.size
        self._state = _CoverState(
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
        """Search to the end or until time runs out; tell whether it ended."""
        while True:
            self._pulse.beat()
            if _search(self._columns, self._state, _VISITS_PER_BEAT) == _DONE:
                return True
            if self._pulse.is_over:
                return False

    @property
    def best(self) -> CandidateClasses | None:
        """The classes of the best partition below the limit, if there is one."""
        n = self._state.n_best[0]
        return self._classes.take(self._state.best_taken[:n]) if n else None


def _columns(classes: CandidateClasses) -> _CoverColumns:
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
    return _CoverColumns(types, counts, first.sum(axis=1), classes.losses)


@kernel
def _search(columns: _CoverColumns, state: _CoverState, budget: int) -> int:
    """Continue the search until a number of classes is examined."""
    while budget > 0:
        d = state.depth[0]
        if not state.entered[d]:
            budget -= state.n_columns[d] + 1
            state.entered[d] = True
            state.position[d] = 0
            state.n_children[d] = 0
            if _is_covered(state, d):
                if state.loss[d] < state.best[0]:
                    state.best[0] = state.loss[d]
                    state.n_best[0] = d
                    for i in range(d):
                        state.best_taken[i] = state.taken[i]
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


@kernel
def _is_covered(state: _CoverState, d: int) -> bool:
    """Tell whether the classes taken hold all records."""
    for n_left in state.left[d]:  # noqa: SIM110  # compiled
        if n_left:
            return False
    return True


@kernel
def _raise_duals(columns: _CoverColumns, state: _CoverState, d: int) -> bool:
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


@kernel
def _count(columns: _CoverColumns, state: _CoverState, d: int, place: int, t: int) -> int:
    """Return the number of records of type t in the class at a place of the node's list."""
    column = state.columns[d, place]
    for i in range(columns.n_types[column]):
        if columns.types[column, i] == t:
            return int(columns.counts[column, i])
    return 0


@kernel
def _index(columns: _CoverColumns, state: _CoverState, d: int) -> None:
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


@kernel
def _branch(columns: _CoverColumns, state: _CoverState, d: int) -> None:
    """Keep the classes below the limit; branch on the type that the fewest of them hold."""
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


@kernel
def _take(columns: _CoverColumns, state: _CoverState, d: int, child: int) -> None:
    """Descend to the node in which the class at this place is taken."""
    column, cost = state.columns[d, child], state.costs[d, child]
    bound = state.bound[d] + cost
    if bound >= state.best[0]:
        return
    left = state.left[d + 1]
    for t in range(left.size):
        left[t] = state.left[d, t]
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
    # The child covers all partitions with this class.
    state.costs[d, child] = NO_LIMIT
    state.n_columns[d + 1] = n
    state.bound[d + 1] = bound
    state.loss[d + 1] = state.loss[d] + columns.losses[column]
    state.taken[d] = column
    state.entered[d + 1] = False
    state.depth[0] = d + 1


_LEAST_VIOLATION = 0.02
_LEAST_CUTS_PER_ROUND = 60  # or half as many as types
_MAX_FOUND = 20_000
_POSITIVE = 1e-7
_LEAST_CENTER = 2.0**-10  # of the largest loss


class Duals(NamedTuple):
    """Dual values in units."""

    types: IntArray  # (t,): dual value of a record of each type
    price: int  # Price of a class, at least 0
    cuts: PairCuts  # Inequalities with their prices

    def bound(self, copies: IntArray, most_classes: int) -> int:
        """Bound the loss of a partition from below, if no class has a reduced cost below 0."""
        return int(self.types @ copies) - self.price * most_classes - self.cuts.worth(copies)


class RestrictedMaster:
    """The restricted master problem: fractions of classes that hold every record once."""

    # Boxes are those of R. Marsten, W. Hogan, J. Blankenship, *The boxstep method* (1975). Two
    # columns for each type, one record more and one fewer, keep duals near known ones. Without the
    # row "at most n // k classes", the relaxation has up to n / k, which matters in small tables.

    def __init__(self, types: DistinctRecords, k: int) -> None:
        n_types = types.copies.size
        self._copies = types.copies
        # Losses are scaled to about 1 for the solver.
        self._scale = 1 / max(types.largest_loss, 1)
        self._members = np.zeros((0, 2 * k - 1), dtype=np.int32)
        self._cuts = np.zeros((0, 3), dtype=np.int64)
        self._known: set[bytes] = set()
        self._highs = highs = new_solver()
        nothing = np.zeros(0)
        copies = types.copies.astype(np.float64)
        highs.addRows(n_types, copies, copies, 0, _int32([0] * n_types), _int32([]), nothing)
        most_classes = float(int(types.copies.sum()) // k)
        highs.addRow(-inf, most_classes, 0, _int32([]), nothing)
        self._n_of_boxes = 2 * n_types
        numbers = np.arange(2 * n_types)
        signs = np.repeat([1.0, -1.0], n_types)
        self._add_columns(np.zeros(2 * n_types), numbers, numbers % n_types, signs)

    def __len__(self) -> int:
        return len(self._members)

    def add(self, classes: CandidateClasses) -> bool:
        """Add classes as columns; tell whether any are new.

        By the solver's tolerances, an existing column may seem to have a negative reduced cost.
        """
        members = np.sort(classes.members, axis=1).astype(np.int32)
        keys = [row.tobytes() for row in members]
        new = np.array([key not in self._known for key in keys], dtype=np.bool_)
        if not new.any():
            return False
        self._known.update(keys)
        members, n_types = members[new], self._copies.size
        column, place = np.nonzero(members >= 0)
        records = column * n_types + members[column, place]
        records, values = np.unique(records, return_counts=True)
        pairs = _count_pairs(members, self._cuts)
        of_pairs, cut = np.nonzero(pairs)
        n_classes = len(members)
        columns = np.concatenate([records // n_types, np.arange(n_classes), of_pairs])
        rows = np.concatenate([records % n_types, np.full(n_classes, n_types), n_types + 1 + cut])
        values = np.concatenate([values, np.ones(n_classes), pairs[of_pairs, cut]])
        order = np.argsort(columns, kind="stable")
        starts = np.searchsorted(columns[order], np.arange(n_classes))
        costs = classes.losses[new] * self._scale
        self._add_columns(costs, starts, rows[order], values[order])
        self._members = np.concatenate([self._members, members])
        return True

    def solve(self, center: IntArray, width: float, pulse: Pulse) -> Duals | None:
        """Solve the linear program, its duals within a box; None if time ran out."""
        centers = center * self._scale
        half = width * np.maximum(centers, max(centers.mean(), _LEAST_CENTER))
        self._highs.changeColsCost(
            self._n_of_boxes,
            _int32(np.arange(self._n_of_boxes)),
            np.concatenate([centers + half, half - centers]),
        )
        if pulse.seconds_left < inf:
            # The solver adds up the time of all runs.
            limit = self._highs.getRunTime() + max(pulse.seconds_left, 0.0)
            self._highs.setOptionValue("time_limit", limit)
        run(self._highs, pulse)
        if pulse.is_over:
            return None
        duals = np.array(self._highs.getSolution().row_dual) / self._scale
        whole = np.rint(duals).astype(np.int64)
        n_types = self._copies.size
        price, prices = np.split(np.maximum(-whole[n_types:], 0), [1])
        active = prices > 0
        cuts = PairCuts.of(self._cuts[active], prices[active], n_types)
        return Duals(whole[:n_types], int(price[0]), cuts)

    @property
    def is_at_the_box(self) -> bool:
        """Whether the box, not classes alone, holds the duals."""
        chosen = np.array(self._highs.getSolution().col_value[: self._n_of_boxes])
        return bool((chosen > _POSITIVE).any())

    def add_cuts(self) -> bool:
        """Add the inequalities that the solution violates most; tell whether there are any."""
        chosen = np.array(self._highs.getSolution().col_value[self._n_of_boxes :])
        positive = np.flatnonzero(chosen > _POSITIVE)
        counts = np.zeros((self._copies.size + 1, positive.size), dtype=np.int16)
        for member in self._members[positive].T:
            counts[member, np.arange(positive.size)] += 1
        counts = counts[:-1]
        found = np.zeros((_MAX_FOUND, 3), dtype=np.int64)
        violations = np.zeros(_MAX_FOUND)
        n = _separate(counts, chosen[positive], self._copies, found, violations)
        order = np.argsort(-violations[:n], kind="stable")
        # Many violated inequalities share types; a few of them are enough.
        uses = np.zeros(self._copies.size, dtype=np.int64)
        n_added = max(_LEAST_CUTS_PER_ROUND, uses.size // 2)
        most = max(5, 6 * n_added // uses.size)
        added: list[IntArray] = []
        for members in found[order]:
            if (uses[members] < most).all() and len(added) < n_added:
                uses[members] += 1
                added.append(members)
        for members in added:
            pairs = _count_pairs(self._members, members[np.newaxis])[:, 0]
            columns = np.flatnonzero(pairs)
            self._highs.addRow(
                -inf,
                float(self._copies[members].sum() // 2),
                columns.size,
                _int32(self._n_of_boxes + columns),
                pairs[columns].astype(np.float64),
            )
        self._cuts = np.concatenate([self._cuts, np.array(added, dtype=np.int64).reshape(-1, 3)])
        return bool(added)

    def _add_columns(
        self,
        costs: npt.NDArray[np.floating],
        starts: IntArray,
        rows: IntArray,
        values: npt.NDArray[np.number],
    ) -> None:
        n = costs.size
        unlimited = np.full(n, inf)
        self._highs.addCols(
            n,
            costs.astype(np.float64),
            np.zeros(n),
            unlimited,
            rows.size,
            _int32(starts),
            _int32(rows),
            values.astype(np.float64),
        )


def _int32(values: npt.ArrayLike) -> CodeArray:
    return np.asarray(values, dtype=np.int32)


def _count_pairs(members: CodeArray, cuts: IntArray) -> IntArray:
    """Count the pairs of records of each set of types that each class holds: (classes, sets)."""
    pairs = np.zeros((len(members), len(cuts)), dtype=np.int64)
    for kind in cuts.T:
        pairs += (members[:, :, np.newaxis] == kind).sum(axis=1)
    return pairs // 2


@kernel
def _separate(
    counts: SmallIntArray,
    chosen: FloatArray,
    copies: IntArray,
    found: IntArray,
    violations: FloatArray,
) -> int:
    """Find sets of three types with more pairs within the chosen classes than there can be."""
    n_types, n_classes = counts.shape
    together = np.zeros((n_types, n_types))
    for c in range(n_classes):
        for a in range(n_types):
            if counts[a, c] > 0:
                for b in range(n_types):
                    if b != a and counts[b, c] > 0:
                        together[a, b] += chosen[c]
    n = 0
    for a in range(n_types):
        for b in range(n_types):
            if together[a, b] == 0:
                continue
            for c in range(b + 1, n_types):
                # Type a, the first such one, shares classes with both others.
                if together[a, c] == 0 or (together[b, c] > 0 and a > b):
                    continue
                n_records = copies[a] + copies[b] + copies[c]
                if n_records % 2 == 0:
                    continue
                violation = -float(n_records // 2)
                for i in range(n_classes):
                    violation += chosen[i] * ((counts[a, i] + counts[b, i] + counts[c, i]) // 2)
                if violation > _LEAST_VIOLATION and n < violations.size:
                    found[n, 0], found[n, 1], found[n, 2] = a, b, c
                    violations[n] = violation
                    n += 1
    return n


MAX_RECORDS = 1000
"""Most records of an exact search: it has not come close to a proof with as many."""

_MAX_ENUMERATED = 5000  # classes, without column generation
_MAX_CLASSES = 200_000  # for the proof
_MAX_CELLS = 2**23  # of its search: some 130 MB
_CAPACITY = 20_000
_CLASSES_PER_ROUND = 300
_MORE_CLASSES_PER_ROUND = 3  # for each type of records
_CLASSES_PER_RECORD = 20
_FIRST_WIDTH = 0.5  # of the box around duals, relative
_LARGEST_WIDTH = 2.0**20  # beyond, only the solver's tolerance holds the duals
_MAX_ROUNDS_OF_CUTS = 40
_TYPES_PER_PART = 64  # between beats
_FIRST_STEP = 256  # steps that the bound has; those of the proof become larger
_PRECISION = 2**36


@dataclass(frozen=True, eq=False)
class ClassPartition:
    """The best known partition of records into classes, and a bound on any."""

    # The best partition found, if it is better than the one known before
    classes: CandidateClasses | None
    proof: Proof  # Loss of the best partition known, in units, and a bound on that of any
    n_classes: int  # Number of columns of the model, which are classes


def set_partition(types: DistinctRecords, k: int, upper: int, *, pulse: Pulse) -> ClassPartition:
    """Find the partition of records into classes of k to 2k - 1 with the least loss.

    **Source:** [OB] Eq. (21) to (28) with a variable for each class.
    """
    # A class of 2k records or more never beats its split. Bounds come from rounded duals, as whole
    # numbers.
    check_size(int(types.copies.sum()))
    return search_partition(types, k, upper, pulse)


def search_partition(types: DistinctRecords, k: int, upper: int, pulse: Pulse) -> ClassPartition:
    """Enumerate or generate classes; of a large table, only bound the loss."""
    duals = _nearest_neighbor_duals(types, k, pulse)
    if types.copies.sum() <= MAX_RECORDS:
        quick = _enumerate(types, k, duals, upper, pulse)
        if quick is not None:
            return quick
    factor = 1
    while 2 * factor * types.largest_loss <= _PRECISION:
        factor *= 2
    search = _ColumnGeneration(types.scaled(factor), k, duals * factor, upper * factor, pulse)
    search.run()
    found = search.best
    classes = None
    if found is not None:
        classes = CandidateClasses(found.members, found.sizes, found.losses // factor)
        upper = int(classes.losses.sum())
    return ClassPartition(classes, Proof.of(upper, -(-search.bound // factor)), search.n_classes)


def check_size(n_records: int) -> None:
    """Refuse a table that is too large."""
    if n_records > MAX_RECORDS:
        raise InvalidParameterError(
            "there are too many records for an exact search",
            detail=f"{n_records:,} records; the limit is {MAX_RECORDS:,}",
            hint="use the method split_carry with smaller sub-problems, or greedy_search",
        )


def _enumerate(
    types: DistinctRecords, k: int, duals: IntArray, upper: int, pulse: Pulse
) -> ClassPartition | None:
    """Enumerate and search all classes that a better partition can contain, if they are few."""
    bound = int(duals @ types.copies)
    if bound >= upper:
        return ClassPartition(None, Proof.of(upper, upper), 0)
    capacity = _MAX_ENUMERATED + duals.size
    search = ClassSearch(types, k, duals, upper - bound, capacity=capacity, pulse=pulse)
    classes = search.all()
    if classes is None:
        return None
    cover = CoverSearch(classes, search.reduced_costs, types.copies, bound, upper, pulse=pulse)
    ended = cover.run()
    if cover.best is not None:
        upper = int(cover.best.losses.sum())
    return ClassPartition(cover.best, Proof.of(upper, upper if ended else bound), len(classes))


def _nearest_neighbor_duals(types: DistinctRecords, k: int, pulse: Pulse) -> IntArray:
    """Bound the loss of a record of each type by the loss with its (k - 1)th nearest neighbor."""
    # A class has k - 1 others, and loses no less than any two of its records: no reduced cost is
    # below 0. Types that are not reached in time have duals of 0.
    duals = np.zeros(types.copies.size, dtype=np.int64)
    for first in range(0, duals.size, _TYPES_PER_PART):
        pulse.beat()
        if pulse.is_over:
            break
        _measure_neighbors(types, k, duals, first, min(first + _TYPES_PER_PART, duals.size))
    return duals


@kernel
def _measure_neighbors(
    types: DistinctRecords, k: int, duals: IntArray, first: int, last: int
) -> None:
    """Measure the loss with the (k - 1)th nearest neighbor of some types."""
    nearest = np.empty(k, dtype=np.int64)
    for t in range(first, last):
        nearest[:] = NO_LIMIT
        for u in range(types.copies.size):
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


class _ColumnGeneration:
    """Column generation, cuts, and proof; losses are in fractions of a unit."""

    def __init__(
        self, types: DistinctRecords, k: int, duals: IntArray, upper: int, pulse: Pulse
    ) -> None:
        self._types, self._k, self._pulse = types, k, pulse
        self._upper = upper
        self._n_records = int(types.copies.sum())
        # The solver's own tolerance is 1e-7 of the losses that it is given.
        self._tolerance = types.largest_loss >> 22
        self._most_classes = self._n_records // k
        self._duals = Duals(duals, 0, PairCuts.none(types.copies.size))
        self.bound = self._duals.bound(types.copies, self._most_classes)
        """Lower bound on the loss of any partition."""
        self.best: CandidateClasses | None = None
        """The best partition found."""
        self.n_classes = 0
        """Columns of the model."""

    def run(self) -> None:
        """Work until the optimum is proven, or the time is over."""
        master = RestrictedMaster(self._types, self._k)
        # Cuts, and searches of partitions, would take gigabytes in a large table.
        is_small = self._n_records <= MAX_RECORDS
        for _ in range(_MAX_ROUNDS_OF_CUTS):
            if not self._generate(master) or not is_small or not master.add_cuts():
                break
        self.n_classes = len(master)
        if is_small and not self._pulse.is_over:
            self._prove()

    def _generate(self, master: RestrictedMaster) -> bool:
        """Solve the linear relaxation; tell whether that succeeded."""
        n_types, width = self._types.copies.size, _FIRST_WIDTH
        most = max(_CLASSES_PER_ROUND, _MORE_CLASSES_PER_ROUND * n_types)
        while (duals := master.solve(self._duals.types, width, self._pulse)) is not None:
            search = self._classes_below(
                -self._tolerance, duals, _CAPACITY + 2 * _CLASSES_PER_RECORD * n_types,
                _CLASSES_PER_RECORD,
            )  # fmt: skip
            classes = search.all()
            if classes is None:
                return False
            has_risen = self._raise_bound(duals, classes, search)
            if len(classes) > most:
                classes = classes.take(np.argpartition(search.reduced_costs, most)[:most])
            if len(classes) and master.add(classes):
                if not has_risen:
                    width /= 2
            elif width > _LARGEST_WIDTH or not master.is_at_the_box:
                return True
            else:
                width *= 2
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

    def _raise_bound(self, duals: Duals, classes: CandidateClasses, search: ClassSearch) -> bool:
        """Lower the duals until no reduced cost is below 0; take them if they prove more."""
        types = duals.types.copy()
        _lower_duals(types, classes.members, search.reduced_costs, search.limits)
        duals = duals._replace(types=types)
        bound = duals.bound(self._types.copies, self._most_classes)
        if bound <= self.bound:
            return False
        self.bound, self._duals = bound, duals
        return True

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


@kernel
def _lower_duals(
    duals: IntArray,  # (t,): changed
    members: IntArray,  # (c, 2k - 1)
    reduced_costs: IntArray,  # (c,): below 0
    limits: IntArray,  # (t,): below 0, of the classes that are not listed, by the first record
) -> None:
    """Lower the duals until no class has a reduced cost below 0.

    The first records pay for classes that are not listed, all members for those that are.
    """
    before = duals.copy()
    for t in range(duals.size):
        duals[t] += limits[t]
    for c in np.argsort(reduced_costs):
        missing, size = -reduced_costs[c], 0
        for t in members[c]:
            if t >= 0:
                missing -= before[t] - duals[t]
                size += 1
        if missing > 0:
            for t in members[c]:
                if t >= 0:
                    duals[t] -= -(-missing // size)
