"""Finds classes of the least total loss, with a proof of optimality ([OB] Section 2).

For larger tables, Split & Carry ([OB] Algorithm 1) solves a few neighboring classes at a time.
Of one numeric attribute, dynamic programming finds the optimum: docs/understand/methods.md proves
that classes of neighbors, and single ones around some of them, suffice.
"""

from __future__ import annotations

from math import ceil, isfinite
from typing import Literal, NamedTuple, Self, get_args

import numpy as np

from kanon_db.algorithms.generalization._class_search import DistinctRecords
from kanon_db.algorithms.generalization.greedy_classes import classes_of_k, greedy_search, split
from kanon_db.algorithms.generalization.postprocessing import refine
from kanon_db.algorithms.generalization.set_partition import (
    check_size,
    search_partition,
    set_partition,
)
from kanon_db.algorithms.ground.arrays import (
    FloatArray,
    IntArray,
    Integer,
    SmallIntArray,
    components,
    number_as_seen,
    numbered,
    order_of,
    taken,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Proof, Pulse, inlined, kernel
from kanon_db.algorithms.ground.solver import HIGHS, solve_problem
from kanon_db.algorithms.recoding.loss import NULL, ExactLoss, Loss
from kanon_db.algorithms.recoding.microdata import Microdata, Sorting, check_k, sort_order
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError

MOST_RECORDS = 15
"""Most records: there are 3^15 = 14 million pairs of a set and a part of it."""


def members_of_sets(n_records: int) -> tuple[IntArray, IntArray]:
    """List the members of every subset of the records, each with the number of its subset."""
    sets, records = np.nonzero(np.arange(2**n_records)[:, np.newaxis] >> np.arange(n_records) & 1)
    return records, sets


def best_partition(
    losses: FloatArray, of_suppressed: float, most_suppressed: int, *, pulse: Pulse = UNLIMITED
) -> tuple[IntArray, float]:
    """Find the partition of least loss of a few records, some of which may be suppressed.

    Dynamic programming over sets: the first record of a set is in one of the classes that are parts
    of the set, or is suppressed.
    """
    n = int(losses.size).bit_length() - 1
    best = np.full((most_suppressed + 1, losses.size), np.inf)
    chosen = np.zeros(best.shape, dtype=np.int64)
    best[:, 0] = 0.0
    for left_out in range(most_suppressed + 1):
        pulse.beat()
        _fill(losses, of_suppressed, left_out, best, chosen)
    classes = np.full(n, -1, dtype=np.int64)
    rest, number, left_out = losses.size - 1, 0, most_suppressed
    loss = float(best[left_out, rest])
    while rest and loss < np.inf:
        part = int(chosen[left_out, rest])
        if part:
            classes[[record for record in range(n) if part >> record & 1]] = number
            number += 1
        else:
            part = rest & -rest
            left_out -= 1
        rest &= ~part
    return classes, loss


@kernel
def _fill(
    losses: FloatArray, of_suppressed: float, left_out: Integer, best: FloatArray, chosen: IntArray
) -> None:
    """Find the best partition of each set with a given most number of suppressed records."""
    for whole in range(1, losses.size):
        first = whole & -whole
        rest = whole ^ first
        if left_out:
            best[left_out, whole] = best[left_out - 1, rest] + of_suppressed
        part = rest
        while True:
            loss = losses[part | first] + best[left_out, rest ^ part]
            if loss < best[left_out, whole]:
                best[left_out, whole] = loss
                chosen[left_out, whole] = part | first
            if not part:
                break
            part = (part - 1) & rest


MOST_K = 128
"""Largest k of a search: what it keeps grows with the cube, to 70 MB."""

_UNREACHABLE = 2**60
_WORK_PER_BEAT = 2**24  # additions: some milliseconds


def has_nested_optimum(microdata: Microdata, k: int) -> bool:
    """Tell whether `find_nested_classes` can search these records."""
    attribute, *more = microdata.attributes
    if more or attribute.numbers is None or not 2 <= k <= MOST_K:
        return False
    n_nulls = int((microdata.codes == np.flatnonzero(np.isnan(attribute.numbers))).sum())
    # Fewer NULLs would share a class with numbers, which could be any.
    n_numbers = microdata.n_records - n_nulls
    return n_nulls == 0 or n_numbers == 0 or min(n_nulls, n_numbers) >= k


def find_nested_classes(exact: ExactLoss, k: int, *, pulse: Pulse) -> tuple[IntArray, Proof]:
    """Find classes of at least k records with the least loss, and prove it.

    When time is over, only classes of neighbors are sought for the rest of the records.
    """
    order = order_of(exact.values[:, 0], stable=True)
    positions = taken(exact.values[:, 0], order)
    n_nulls = int(np.searchsorted(positions, NULL, side="right"))
    parts = _SortedParts.of(positions, n_nulls, k)
    class_of_place = np.full(order.size, -1, dtype=np.int64)
    class_of_place[:n_nulls] = 0
    n_classes = int(n_nulls > 0)
    for begin, end in parts.of_one_value.tolist():
        class_of_place[begin:end] = n_classes
        n_classes += 1
    search = _NestedSearch(positions, parts.of_several, k, pulse)
    search.run()
    search.trace(class_of_place, n_classes)
    loss = search.loss
    bound = loss if search.is_complete else _least_windows(positions, parts.of_several, k)
    if n_nulls:  # A class of NULLs and numbers would lose this, or more.
        bound = min(bound, k * int(exact.whole[0]))
    class_of_record = np.empty_like(class_of_place)
    class_of_record[order] = number_as_seen(class_of_place)
    return class_of_record, Proof.of(loss, exact.lower(bound), exact.unit)


class _SortedParts(NamedTuple):
    """The sorted records in parts that share no class: where each begins and ends."""

    of_one_value: IntArray  # (p, 2)
    of_several: IntArray  # (q, 2)

    @classmethod
    def of(cls, positions: IntArray, first: int, k: int) -> Self:
        """Cut within values of at least 7k records, of which each side needs 3k - 2 at most."""
        n, needed = positions.size, 3 * k - 2
        starts = np.flatnonzero(np.diff(positions[first:], prepend=NULL)) + first
        ends = np.append(starts[1:], n)[: starts.size]
        is_frequent = ends - starts >= 7 * k
        starts, ends = starts[is_frequent], ends[is_frequent]
        between = np.column_stack([np.append(first, ends), np.append(starts, n)])
        shared = needed * (between[:, 0] < between[:, 1])  # of the values on both sides
        between[1:, 0] -= shared[1:]
        between[:-1, 1] += shared[:-1]
        own = np.column_stack([starts + shared[:-1], ends - shared[1:]])
        return cls(own, between[between[:, 0] < between[:, 1]])


class _NestedState(NamedTuple):
    """State of the dynamic program; a place is the number of sorted records before it."""

    at: IntArray  # (2,): part, and the last place reached
    least: IntArray  # (n + 1,): least loss of the classes of the records of a part up to a place
    around: SmallIntArray  # (n + 1,): records of the class around others that ends there, or 0
    # (2k, k - 1, 2k - 3): least loss with a class of k + i records open, j + 1 of which are taken,
    # less that class's loss if it lay between 0 and its first record; by place modulo 2k.
    opened: IntArray
    n_open: IntArray  # (2k, k - 1): of these, how many can be part of an optimum; others follow
    lowest: IntArray  # (2k, k - 1): the least of these


class _NestedSearch:
    """Dynamic programming over the sorted records."""

    def __init__(self, positions: IntArray, parts: IntArray, k: int, pulse: Pulse) -> None:
        self._positions, self._parts, self._k, self._pulse = positions, parts, k, pulse
        n = positions.size
        self._state = _NestedState(
            at=np.array([0, -1]),
            least=np.empty(n + 1, dtype=np.int64),
            around=np.zeros(n + 1, dtype=np.int16),
            opened=np.empty((2 * k, k - 1, 2 * k - 3), dtype=np.int64),
            n_open=np.zeros((2 * k, k - 1), dtype=np.int64),
            lowest=np.zeros((2 * k, k - 1), dtype=np.int64),
        )
        self.is_complete = True
        """Whether classes around others were sought everywhere."""

    def run(self) -> None:
        """Reach the end of each part."""
        k, n_sizes = self._k, self._k - 1
        while self._state.at[0] < len(self._parts):
            self._pulse.beat()
            if self._pulse.is_over and n_sizes:
                n_sizes, self.is_complete = 0, False
            n_places = _WORK_PER_BEAT // (k * (n_sizes * k + 1)) + 1
            _advance(self._positions, self._parts, k, n_sizes, self._state, n_places)

    @property
    def loss(self) -> int:
        """Least loss, in units."""
        return sum(self._state.least[self._parts[:, 1]].tolist())

    def trace(self, class_of_place: IntArray, n_classes: int) -> None:
        """Give the classes numbers, from one on."""
        for part in range(len(self._parts)):
            place = int(self._parts[part, 1])
            while place > self._parts[part, 0]:
                self._pulse.beat()
                place, n_classes = _trace(
                    self._positions, int(self._parts[part, 0]), place, self._k, self._state,
                    class_of_place, n_classes,
                )  # fmt: skip


@kernel
def _advance(
    positions: IntArray, parts: IntArray, k: int, n_sizes: int, state: _NestedState, n_places: int
) -> None:
    """Find the least loss up to some further places."""
    least, opened, n_open, width = state.least, state.opened, state.n_open, 2 * k
    losses = np.zeros(width, dtype=np.int64)  # of the last records as one class, by their number
    cheapest = np.zeros(width - 2, dtype=np.int64)  # by the records that are still to be taken
    for _ in range(n_places):
        if state.at[0] == len(parts):
            return
        begin, end = parts[state.at[0]]
        place = state.at[1] + 1
        if place <= begin:
            least[begin], state.at[1] = 0, begin
            n_open[:], state.lowest[:] = 0, _UNREACHABLE
            continue
        last = positions[place - 1]
        best, size = _UNREACHABLE, 0
        for t in range(k, min(width - 1, place - begin) + 1):
            losses[t] = t * (last - positions[place - t])
            best = min(best, least[place - t] + losses[t])
        for i in range(n_sizes):
            s = k + i
            before = (place - 1) % width
            if n_open[before, i] == s - 1 and opened[before, i, s - 2] + s * last < best:
                best, size = opened[before, i, s - 2] + s * last, s
        least[place], state.around[place] = best, size
        cheapest[:k], cheapest[k:] = _UNREACHABLE, best
        cheapest[0] = 0
        most = _UNREACHABLE
        for i in range(n_sizes):
            _open(state, losses, cheapest, most, place, place - begin, last, k + i, i)
            if i == 0:
                most = cheapest.max()
        state.at[1] = place
        if place == end:
            state.at[0] += 1


@inlined
def _open(
    state: _NestedState, losses: IntArray, cheapest: IntArray, most: int, place: int,
    n_records: int, last: int, s: int, i: int,
) -> None:  # fmt: skip
    """Find the least loss up to a place with a class of s records open."""
    opened, n_open, lowest, width = state.opened, state.n_open, state.lowest, losses.size
    now = place % width
    before = now - 1 if now else width - 1
    n = min(n_open[before, i] + 1, s - 1)
    opened[now, i, 0] = state.least[place - 1] - s * last
    for j in range(1, n):
        opened[now, i, j] = opened[before, i, j - 1]
    for t in range(s + 1, min(width, n_records)):
        earlier = now - t if now >= t else now - t + width
        if lowest[earlier, i] + losses[t] + s * last >= most:
            continue
        for j in range(n, n_open[earlier, i]):
            opened[now, i, j] = _UNREACHABLE
        n = max(n, n_open[earlier, i])
        for j in range(n_open[earlier, i]):
            opened[now, i, j] = min(opened[now, i, j], opened[earlier, i, j] + losses[t])
    n_open[now, i], lowest[now, i] = 0, _UNREACHABLE
    for j in range(n):
        # With as many records to be taken, a smaller class that loses less can take them.
        left, loss = s - 1 - j, opened[now, i, j] + s * last
        if loss < cheapest[left]:
            cheapest[left] = loss
            n_open[now, i] = j + 1
            lowest[now, i] = min(lowest[now, i], opened[now, i, j])
        else:
            opened[now, i, j] = _UNREACHABLE


_CLASSES_PER_BEAT = 2**14


@kernel
def _trace(
    positions: IntArray,
    begin: int,
    place: int,
    k: int,
    state: _NestedState,
    class_of_place: IntArray,
    n_classes: int,
) -> tuple[int, int]:
    """Give some classes numbers, the last first; return the place before them, and a number."""
    least = state.least
    for _ in range(_CLASSES_PER_BEAT):
        if place == begin:
            break
        if state.around[place]:
            place, n_classes = _trace_around(
                positions, place, state.around[place], k, state, class_of_place, n_classes
            )
            continue
        t = k
        last = positions[place - 1]
        while least[place - t] + t * (last - positions[place - t]) != least[place]:
            t += 1
        class_of_place[place - t : place] = n_classes
        place, n_classes = place - t, n_classes + 1
    return place, n_classes


@kernel
def _trace_around(
    positions: IntArray,
    place: int,
    s: int,
    k: int,
    state: _NestedState,
    class_of_place: IntArray,
    n_classes: int,
) -> tuple[int, int]:
    """Give numbers to a class that ends at a place, and to those that it lies around."""
    rest = state.least[place] - s * positions[place - 1]
    # Least loss of the classes of the last d records but c, which are of the class around them
    inner = np.full((4 * k, s + 1), _UNREACHABLE, dtype=np.int64)
    inner[1, 1] = 0
    d = 1
    while True:
        d += 1
        first = place - d
        if inner[d - 1, s - 1] + state.least[first] - s * positions[first] == rest:
            break
        if d == len(inner):
            longer = np.full((2 * d, s + 1), _UNREACHABLE, dtype=np.int64)
            for row in range(d):  # numba compiles copies of slices for two seconds
                for c in range(s + 1):
                    longer[row, c] = inner[row, c]
            inner = longer
        for c in range(2, s + 1):
            inner[d, c] = inner[d - 1, c - 1]
        for t in range(s + 1, min(2 * k, d)):
            loss = t * (positions[first + t - 1] - positions[first])
            for c in range(1, s + 1):
                inner[d, c] = min(inner[d, c], inner[d - t, c] + loss)
    class_of_place[first] = n_classes
    c, number = s - 1, n_classes + 1
    d -= 1
    while d > 1:
        next_place = place - d
        if c > 1 and inner[d, c] == inner[d - 1, c - 1]:
            class_of_place[next_place] = n_classes
            d, c = d - 1, c - 1
            continue
        t = s + 1
        loss = t * (positions[next_place + t - 1] - positions[next_place])
        while inner[d - t, c] + loss != inner[d, c]:
            t += 1
            loss = t * (positions[next_place + t - 1] - positions[next_place])
        class_of_place[next_place : next_place + t] = number
        d, number = d - t, number + 1
    class_of_place[place - 1] = n_classes
    return first, number


@kernel
def _least_windows(positions: IntArray, parts: IntArray, k: int) -> int:
    """Add up what each record loses at least in a class of k records of its part."""
    total = 0
    for part in range(len(parts)):
        begin, end = parts[part]
        for place in range(begin, end):
            least = _UNREACHABLE
            for first in range(max(begin, place - k + 1), min(place, end - k) + 1):
                least = min(least, positions[first + k - 1] - positions[first])
            total += least
    return total


def solve_pairwise(
    microdata: Microdata,
    loss: Loss,
    k: int,
    start: IntArray,  # (n_records,): classes to start from
    pulse: Pulse,
    solver: str,
) -> tuple[IntArray | None, float]:
    """Solve the program of [OB], with a variable for each pair of records, by a solver of PuLP's.

    Returns classes, or None if no solution was found, and a lower bound of the loss.
    """
    from kanon_db.algorithms.programs import class_program

    program = class_program(microdata, k, loss=loss, start=start)
    answer = solve_problem(program.problem, pulse, solver=solver)
    if answer.values is None:
        return None, answer.lower_bound
    equivalent = np.argwhere(program.whole_values("v"))
    return numbered(components(microdata.n_records, *equivalent.T)), answer.lower_bound


_GROUPS = (4, 6, 8)  # of k records in a neighborhood: the small ones first


def improve_neighborhoods(
    exact: ExactLoss,
    order: IntArray,  # (n_records,): records in order, equal ones adjacent
    class_of_record: IntArray,  # (n_records,): classes of k to 2k - 1 records
    k: int,  # At least 2
    *,
    pulse: Pulse,
) -> IntArray:
    """Repartition each class and its neighbors optimally, until the loss no longer falls.

    The neighbors of a class are the classes that lose least when merged with it.
    """
    rank = np.argsort(order)
    classes = [np.sort(rank[class_of_record == number]) for number in np.unique(class_of_record)]
    for n_groups in _GROUPS:
        _improve(exact, order, classes, k, n_groups * k, pulse)
    result = np.empty_like(class_of_record)
    for number, positions in enumerate(part for part in classes if part.size):
        result[order[positions]] = number
    return result


def _improve(
    exact: ExactLoss,
    order: IntArray,
    classes: list[IntArray],
    k: int,
    largest: int,
    pulse: Pulse,
) -> None:
    """Improve classes of positions in the order, until the loss no longer falls."""
    waiting = [i for i, positions in enumerate(classes) if positions.size]
    while waiting and not pulse.is_over:
        pulse.beat()
        center = waiting.pop(0)
        chosen = _neighborhood(exact, order, classes, center, largest)
        rows = np.sort(np.concatenate([classes[i] for i in chosen]))
        ends = np.cumsum([classes[i].size for i in chosen])
        before = order[np.concatenate([classes[i] for i in chosen])]
        upper = int(exact.of_classes(before, ends).sum())
        found = set_partition(DistinctRecords.of(exact, order[rows]), k, upper, pulse=pulse)
        if found.classes is None:
            continue
        numbers = found.classes.of_records()
        parts = [rows[numbers == number] for number in range(len(found.classes))]
        # The number of classes may change; the first ones take the old numbers.
        for i, part in zip(chosen, parts, strict=False):
            classes[i] = part
        changed = chosen[: len(parts)] + list(
            range(len(classes), len(classes) + len(parts) - len(chosen))
        )
        classes += parts[len(chosen) :]
        for i in chosen[len(parts) :]:
            classes[i] = classes[i][:0]
        waiting = [i for i in waiting if i not in chosen] + changed


def _neighborhood(
    exact: ExactLoss, order: IntArray, classes: list[IntArray], center: int, largest: int
) -> list[int]:
    """Choose a class and those that lose least when merged with it, up to a number of records."""
    sizes = np.array([positions.size for positions in classes])
    others = np.flatnonzero(sizes)
    others = others[others != center]
    if not others.size:
        return [center]
    joined = [np.concatenate([classes[center], classes[i]]) for i in others]
    ends = np.cumsum(sizes[others] + sizes[center])
    losses = exact.of_classes(order[np.concatenate(joined)], ends)
    nearest = others[np.argsort(losses, kind="stable")]
    fitting = np.cumsum(sizes[nearest]) + sizes[center] <= largest
    return [center, *nearest[fitting].tolist()]


@dataclass(frozen=True, eq=False)
class SplitCarry:
    """Classes found by Split & Carry."""

    # (n_records,): number of the class of each record, in the order in which classes became final
    class_of_record: IntArray
    sizes: IntArray  # (p,): records of each sub-problem
    n_cut_short: int  # Sub-problems without a proof of optimality, because their time ran out


def split_carry(
    microdata: Microdata,
    k: int,
    *,
    s: int = 3,
    carry: int | None = None,
    bubble: tuple[int, int] | None = None,
    sorting: Sorting = "alternating",
    loss: Loss = "ncp",
    pulse: Pulse = UNLIMITED,
) -> SplitCarry:
    """Split the sorted records into small problems, solve these, and carry classes to the next.

    Each class has k to 2k - 1 records. Without ``bubble``, the loss is never
    above that of the initial classes.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Fewest records of a class, at least 1. Time grows steeply with it.
    s : int
        New groups of k records in each sub-problem, at least 1.
    carry : int, optional
        Number of last records whose classes go on to the next sub-problem; ``k`` by default.
    bubble : tuple of two ints, optional
        P and A: each sub-problem has P records; the A classes that lose least become final, the
        others go on. In place of ``s`` and ``carry``.
    sorting : {"alternating", "ascending"}
        See :func:`~kanon_db.algorithms.recoding.microdata.sort_order`.
    loss : {"ncp", "binary"}
        See :class:`~kanon_db.algorithms.recoding.loss.ExactLoss`.
    pulse : Pulse
        Its time is divided evenly among the sub-problems; later ones get what earlier ones leave.
        When time runs out, the best classes so far remain. Beaten every few milliseconds.

    Returns
    -------
    SplitCarry

    Raises
    ------
    InfeasibleError
        If there are fewer than ``k`` records.
    InvalidParameterError
        If ``k``, ``s``, ``carry`` or ``bubble`` is out of range, or a sub-problem has more than
        :data:`~.set_partition.MAX_RECORDS` records.

    Notes
    -----
    **Source:** [OB] Algorithm 1, Section 6 (parameters l, P and A), Appendix C.

    - There are no classes of 2k records or more, since they never beat their split. So all
      indirectly equivalent records of a class are carried with it, and Lemma 2 holds. A
      sub-problem has at most l (2k - 1) + (s + 1) k - 1 records.
    - Left-over records join the last group of k, as in Appendix C: there are ⌈⌊n / k⌋ / s⌉
      sub-problems.
    - A sub-problem keeps its initial classes unless others lose less.
    - Instead of a mixed integer linear program, each sub-problem is solved by
      :func:`~kanon_db.algorithms.generalization.set_partition.set_partition`.
    """
    n_records = microdata.n_records
    check_k(k, n_records)
    carry = k if carry is None else carry
    _check_sizes(k, s, carry, bubble)
    exact = ExactLoss.of(microdata, loss, pulse=pulse)
    order = sort_order(microdata, sorting)
    chain = _Chain(exact, order, k)
    if k > 1:
        rows_per_problem = k * s if bubble is None else max(bubble[0] - k, k)
        n_problems = -(-n_records // rows_per_problem)
        while chain.n_read < n_records:
            # This sub-problem may take all time but the equal parts of those to come.
            turn = pulse.until(min(1.0, (len(chain.sizes) + 1) / n_problems))
            if bubble is None:
                chain.read(s)
                chain.solve(turn)
                chain.accept_before(carry)
            else:
                chain.read_up_to(bubble[0])
                chain.solve(turn)
                chain.accept_least(bubble[1])
    return SplitCarry(
        chain.class_of_record(), np.array(chain.sizes, dtype=np.int64), chain.n_cut_short
    )


def _check_sizes(k: int, s: int, carry: int, bubble: tuple[int, int] | None) -> None:
    if s < 1 or carry < 1:
        raise InvalidParameterError("s and carry must be at least 1", detail=f"{s = }, {carry = }")
    if bubble is not None and not (bubble[0] >= 2 * k and bubble[1] >= 1):
        raise InvalidParameterError(
            "bubble must be two numbers: of records, at least 2k, and of classes, at least 1",
            detail=f"{bubble = }, {k = }",
        )


class _Chain:
    """The chain of sub-problems: classes of positions in sorted order, and losses in units."""

    def __init__(self, exact: ExactLoss, order: IntArray, k: int) -> None:
        self._exact, self._order, self._k = exact, order, k
        n_records = order.size
        self._n_groups = n_records // k
        self._group_ends = np.arange(1, self._n_groups + 1) * k
        self._group_ends[-1:] = n_records
        self._group_losses = (
            exact.of_classes(order, self._group_ends) if n_records else np.zeros(0, np.int64)
        )
        self._next_group = 0
        self._open: list[tuple[int, IntArray]] = []
        self._final: list[IntArray] = []
        self.sizes: list[int] = []
        self.n_cut_short = 0
        self.n_read = 0 if k > 1 else n_records

    def class_of_record(self) -> IntArray:
        """Return the class of each record."""
        classes = np.empty(self._order.size, dtype=np.int64)
        if self._k == 1:
            classes[self._order] = classes_of_k(self._order.size, 1)
        for number, positions in enumerate(self._final):
            classes[self._order[positions]] = number
        return classes

    def read(self, n_groups: int) -> None:
        """Add the next initial classes."""
        for group in range(self._next_group, min(self._next_group + n_groups, self._n_groups)):
            end = int(self._group_ends[group])
            self._open.append((int(self._group_losses[group]), np.arange(self.n_read, end)))
            self.n_read = end
            self._next_group += 1

    def read_up_to(self, size: int) -> None:
        """Add records until there are ``size``, or all records if fewer than k would be left."""
        n_open = sum(positions.size for _, positions in self._open)
        end = self.n_read + max(size - n_open, 1)
        if self._order.size - end < self._k:
            end = self._order.size
        n_new = end - self.n_read
        if n_new < self._k:
            _, positions = self._open.pop()
            n_new += positions.size
            positions = np.append(positions, np.arange(self.n_read, end))
        else:
            positions = np.arange(self.n_read, end)
        for part in np.split(positions, np.arange(self._k, n_new - self._k + 1, self._k)):
            ends = np.array([part.size])
            self._open.append((int(self._exact.of_classes(self._order[part], ends)[0]), part))
        self.n_read = end

    def solve(self, pulse: Pulse) -> None:
        """Find the best classes of the open records."""
        rows = np.sort(np.concatenate([positions for _, positions in self._open]))
        self.sizes.append(rows.size)
        upper = sum(loss for loss, _ in self._open)
        pulse.beat()
        if not upper:
            return
        if pulse.is_over:
            self.n_cut_short += 1
            return
        records = DistinctRecords.of(self._exact, self._order[rows])
        found = set_partition(records, self._k, upper, pulse=pulse)
        if found.classes is not None:
            class_of_row = found.classes.of_records()
            by_class = rows[np.argsort(class_of_row, kind="stable")]
            parts = np.split(by_class, np.cumsum(found.classes.sizes)[:-1])
            self._open = list(zip(found.classes.losses.tolist(), parts, strict=True))
        self.n_cut_short += not found.proof.is_optimal

    def accept_before(self, carry: int) -> None:
        """Make final the classes that hold none of the last records."""
        rows = np.sort(np.concatenate([positions for _, positions in self._open]))
        boundary = rows[-carry:][0] if self.n_read < self._order.size else self._order.size
        self._final += [positions for _, positions in self._open if positions[-1] < boundary]
        self._open = [one for one in self._open if one[1][-1] >= boundary]

    def accept_least(self, n_classes: int) -> None:
        """Make final the classes that lose least."""
        if self.n_read == self._order.size:
            n_classes = len(self._open)
        self._open.sort(key=lambda one: one[0])
        self._final += [positions for _, positions in self._open[:n_classes]]
        self._open = self._open[n_classes:]


Formulation = Literal["set_partition", "paper"]

_SHARE_OF_START = 1 / 6  # of the time, each of two steps
_N_ANNEALED = 4
_EFFORT = 2_000  # proposals for each record
_TOLERANCE = 1e-6  # of the solver's bound, relative


@dataclass(frozen=True, eq=False)
class OptimalGeneralization:
    """Classes, and how close to the optimum they are known to be.

    Parameters
    ----------
    class_of_record : ndarray of int64, shape (n_records,)
        Number of the class of each record.
    proof : Proof
        Loss of all records, which is the sum over records and attributes, times the attributes'
        weights; and a bound on that of any classes.
    n_classes : int
        Most columns, which are classes, of the search's model at a time; 0 where it has none.
    """

    class_of_record: IntArray
    proof: Proof
    n_classes: int


def optimal(
    microdata: Microdata,
    k: int,
    *,
    formulation: Formulation = "set_partition",
    loss: Loss = "ncp",
    solver: str = HIGHS,
    pulse: Pulse = UNLIMITED,
) -> OptimalGeneralization:
    """Find classes of at least k records with the least total loss.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Fewest records of a class, at least 1.
    formulation : {"set_partition", "paper"}
        The program to solve: one variable for each promising class, or the paper's, one for each
        pair of records, for some ten records.
    loss : {"ncp", "binary"}
        See :class:`~kanon_db.algorithms.recoding.loss.ExactLoss`.
    solver : str
        PuLP's name of the solver of the formulation ``paper``.
    pulse : Pulse
        Beaten every few milliseconds, in the thread of the caller; what that raises ends the work.

    Returns
    -------
    OptimalGeneralization
        The best classes found, with the bound proven when the time ran out.

    Raises
    ------
    InfeasibleError
        If there are fewer than ``k`` records.
    InvalidParameterError
        If ``k``, ``formulation`` or ``loss`` is out of range, there are more than
        :data:`~.set_partition.MAX_RECORDS` records (but see Notes), or the table is not for the
        formulation ``paper``: it is too large, or a numeric attribute holds NULL.

    Notes
    -----
    **Source:** [OB] Section 2.2, Eq. (34); see
    :func:`~kanon_db.algorithms.generalization.set_partition.set_partition` and
    :func:`~kanon_db.algorithms.programs.class_program`.

    A single numeric attribute needs no program: dynamic programming finds the optimum in time
    linear in the records, however many there are, for k up to 128. It has no NULL, or at least k,
    and then at least k numbers, too. In units of the loss, the proof's gap is 0, but if time ran
    out, or numbers in a class of NULLs could lose less (those alone lose more than k records can).

    HiGHS gets ``set_partition`` as arrays: PuLP would state it for seconds, deaf to a cancel.

    The search starts from Split & Carry or Greedy Search, whichever loses less, improved by
    annealing and by the best partition of neighboring classes.
    With ``set_partition``, losses and bounds are whole units throughout, so that optimality depends
    on no tolerance; if losses are rounded, the bound is lowered by what that may be
    (``ExactLoss.lower``).

    Examples
    --------
    >>> import numpy as np
    >>> from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
    >>> age = Attribute(4, numbers=np.array([20.0, 30.0, 50.0, 60.0]), lower=20, upper=60)
    >>> found = optimal(Microdata([[0], [1], [2], [3]], (age,)), 2)
    >>> found.proof.status, found.proof.objective, found.class_of_record.tolist()
    ('optimal', Fraction(1, 1), [0, 0, 1, 1])
    """
    n_records = microdata.n_records
    check_k(k, n_records)
    _check(formulation, loss)
    is_nested = formulation == "set_partition" and has_nested_optimum(microdata, k)
    if formulation == "set_partition" and not is_nested:
        check_size(n_records)
    exact = ExactLoss.of(microdata, loss, pulse=pulse)
    if is_nested:
        return OptimalGeneralization(*find_nested_classes(exact, k, pulse=pulse), 0)
    order = sort_order(microdata)
    seconds = pulse.seconds * _SHARE_OF_START
    classes = split_carry(microdata, k, loss=loss, pulse=pulse.within(seconds)).class_of_record
    bound = n_classes = 0
    greedy = greedy_search(microdata, k, pulse=pulse).class_of_record
    if exact.units_of(greedy) < exact.units_of(classes):
        classes = greedy
    if k > 1 and n_records and formulation == "set_partition":
        half = seconds / 2
        if loss == "ncp":
            classes = _annealed(microdata, exact, classes, k, pulse.within(half))
        classes = improve_neighborhoods(exact, order, classes, k, pulse=pulse.within(half))
        records = DistinctRecords.of(exact, order)
        found = set_partition(records, k, exact.units_of(classes), pulse=pulse)
        bound, n_classes = int(found.proof.lower_bound), found.n_classes
        if found.classes is not None:
            classes[order] = found.classes.of_records()
    elif k > 1 and n_records:
        better, least = solve_pairwise(microdata, loss, k, classes, pulse, solver)
        if isfinite(least):
            units = least / float(exact.unit)
            bound = max(ceil(units - _TOLERANCE * abs(units)), 0)
        if better is not None and exact.units_of(better) < exact.units_of(classes):
            classes = better
    proof = Proof.of(exact.units_of(classes), exact.lower(bound), exact.unit)
    return OptimalGeneralization(classes, proof, n_classes)


def _annealed(
    microdata: Microdata, exact: ExactLoss, classes: IntArray, k: int, pulse: Pulse
) -> IntArray:
    """Anneal classes several times; return the best, without classes of 2k records or more."""
    best = classes
    for seed in range(_N_ANNEALED):
        random, part = np.random.default_rng(seed), pulse.within(pulse.seconds_left / _N_ANNEALED)
        found = refine(microdata, classes, k, random=random, effort=_EFFORT, pulse=part)
        other = split(microdata, found.class_of_record, k, pulse=pulse)
        if exact.units_of(other) < exact.units_of(best):
            best = other
    return best


def _check(formulation: Formulation, loss: Loss) -> None:
    if formulation not in get_args(Formulation):
        raise InvalidParameterError(
            "unknown formulation", hint=f"use one of {', '.join(get_args(Formulation))}"
        )
    if loss not in get_args(Loss):
        raise InvalidParameterError("unknown loss", hint=f"use one of {', '.join(get_args(Loss))}")


def prove_least_loss(
    microdata: Microdata, k: int, class_of_record: IntArray, *, pulse: Pulse = UNLIMITED
) -> Proof:
    """Bound the loss of all classes of at least k records from below, beside that of some.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Fewest records of a class, at least 2.
    class_of_record : ndarray of int64, shape (n_records,)
        Classes of at least k records, whose loss the bound is compared with.
    pulse : Pulse
        When time is over, the bound is the best that was reached. Beaten every few milliseconds.

    Returns
    -------
    Proof
        The loss of the classes, and the bound.

    Notes
    -----
    **Source:** the dual of set partitioning ([OB] Eq. (21) to (28) with a variable for each class),
    by column generation.

    Let each record have a number such that those of any class of k to 2k - 1 records add up to at
    most its loss. All numbers together are then a bound, since larger classes never beat their
    split. The solver proposes numbers, in floating point; an exact search lists the classes whose
    records have too much, and that is taken from them again. So a bound is proven in each round, in
    whole units, whatever the solver says. Prices of pairs (:class:`PairCuts`) tighten it further.
    Of a single numeric attribute, the bound is the least loss (see `optimal`).

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
    >>> age = Attribute(4, numbers=np.array([20.0, 30.0, 50.0, 60.0]), lower=20, upper=60)
    >>> prove_least_loss(Microdata([[0], [1], [2], [3]], (age,)), 2, np.array([0, 0, 1, 1])).gap
    0.0
    """
    check_k(k, microdata.n_records)
    exact = ExactLoss.of(microdata, "ncp", pulse=pulse)
    objective = exact.units_of(class_of_record)
    if not objective:
        return Proof.of(0, 0, exact.unit)
    if has_nested_optimum(microdata, k):
        bound = int(find_nested_classes(exact, k, pulse=pulse)[1].lower_bound / exact.unit)
        return Proof.of(objective, bound, exact.unit)
    types = DistinctRecords.of(exact, sort_order(microdata))
    bound = int(search_partition(types, k, objective, pulse).proof.lower_bound)
    return Proof.of(objective, exact.lower(bound), exact.unit)
