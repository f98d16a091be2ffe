"""Grows equivalence classes of k records, and places the records left over ([OB] Section 3.2)."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, IntArray, Integer
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, kernel
from kanon_db.algorithms.recoding.changing_classes import (
    NONE,
    ClassSummaries,
    PackedRecords,
    entry,
    make_move,
)
from kanon_db.algorithms.recoding.loss import Ncp, Units
from kanon_db.algorithms.recoding.microdata import is_first_of_equal

_NO_BOUND = 2**31 - 1
_COMPARISONS_PER_CALL = 2**24  # of a row type with a class in one attribute: some milliseconds


class RemainingRecords(NamedTuple):
    """The row types of a block, and which of their records are left."""

    columns: CodeArray  # (m, n_types): value of each row type in each attribute
    types: IntArray  # (n_types,): their numbers, ascending
    # (n_types,): positions, in the order of the records, of the first record left of each row type
    # and of the end of its records
    following: IntArray
    ends: IntArray
    n_left: IntArray  # (2,): how many records and how many row types are left
    # (n_records,): class of each record, in order; -1 for those that are left
    class_in_order: IntArray


class GrowingClass(NamedTuple):
    """The class that is growing, and the candidates that may join it next."""

    low: IntArray  # (m,): least and greatest value of the class
    high: IntArray
    # Whether it has a categorical value; those of attribute j from ``offsets[j]`` on
    present: BoolArray
    offsets: IntArray  # (m,)
    loss: CodeArray  # (n_types,): loss of the class with each row type when last computed
    # (n_types,): the first ``n_candidates[0]`` are positions of the row types whose loss is within
    # reach
    candidates: IntArray
    bound: IntArray  # (n_types,): lower bound of the loss of the class with each candidate
    n_candidates: IntArray  # (1,)
    reach: IntArray  # (1,): greatest loss of a candidate
    # (1,): comparisons with row types in one attribute since the last heartbeat
    n_compared: IntArray
    members: IntArray  # (k,): positions of the row types of its records

    @classmethod
    def of(cls, ncp: Ncp, k: int) -> GrowingClass:
        """Make room for a class without records or candidates."""
        n_codes = np.where(ncp.numeric, 0, ncp.values.max(axis=0, initial=-1).astype(np.int64) + 1)
        low, high = np.empty((2, n_codes.size), dtype=np.int64)
        present, offsets = np.zeros(n_codes.sum(), dtype=np.bool_), np.cumsum(n_codes) - n_codes
        n_candidates, reach, n_compared = np.zeros((3, 1), dtype=np.int64)
        none = np.empty(0, dtype=np.int64)
        loss = np.empty(0, dtype=np.int32)
        return cls(
            low, high, present, offsets, loss, none, none, n_candidates, reach, n_compared,
            np.empty(k, dtype=np.int64),
        )  # fmt: skip

    def among(self, n_types: int) -> GrowingClass:
        """Make room for so many candidates."""
        candidates, bound = np.empty((2, n_types), dtype=np.int64)
        loss = np.empty(n_types, dtype=np.int32)
        return self._replace(loss=loss, candidates=candidates, bound=bound)


@kernel
def grow_from_first(
    left: RemainingRecords, units: Units, growing: GrowingClass, k: Integer, number: Integer
) -> Integer:
    """Grow classes until a heartbeat or more row types are due; return how many grew."""
    n_grown = 0
    first: Integer = 0
    growing.n_compared[0] = 0
    while not is_used_up(left, k) and growing.n_compared[0] < _COMPARISONS_PER_CALL:
        first = _first_left(left, first)
        _grow(left, units, growing, k, number + n_grown, first, first)
        n_grown += 1
    return n_grown


@kernel
def grow_from(
    left: RemainingRecords,
    units: Units,
    growing: GrowingClass,
    k: Integer,
    number: Integer,
    row_type: Integer,
) -> Integer:
    """Grow a class from a record of a row type; return the row type that joined last."""
    seed = np.searchsorted(left.types, row_type)
    return int(left.types[_grow(left, units, growing, k, number, seed, _first_left(left, 0))])


@kernel
def is_used_up(left: RemainingRecords, k: Integer) -> bool:
    """Whether too few records or row types are left to search on."""
    return bool(left.n_left[0] < k or left.n_left[1] <= left.types.size * 3 // 4)


@kernel(inline="always")
def _first_left(left: RemainingRecords, first: Integer) -> Integer:
    while left.following[first] == left.ends[first]:
        first += 1
    return first


@kernel
def _grow(
    left: RemainingRecords,
    units: Units,
    growing: GrowingClass,
    k: Integer,
    number: Integer,
    seed: Integer,
    first: Integer,
) -> Integer:
    """Grow one class from the row type at position ``seed``; ``first`` is the first one left."""
    for j in range(units.numeric.size):
        growing.low[j] = growing.high[j] = left.columns[j, seed]
    chosen: Integer = seed
    loss: Integer = np.int64(0)
    is_searching = False
    for size in range(k):
        # Identical records are the closest to the first one.
        if size and (is_searching or seed != first or left.following[seed] == left.ends[seed]):
            if not is_searching:
                _compare_with_one(left, units, growing, seed, first)
                is_searching = True
            chosen, loss = _closest(left, units, growing, first, loss)
        growing.members[size] = chosen
        _join(left, units, growing, chosen, number)
    # Reach a little further than this class needed.
    growing.reach[0] = max(loss + loss // 8, growing.reach[0] - growing.reach[0] // 16)
    for j in range(units.numeric.size):
        if not units.numeric[j]:
            for chosen in growing.members:
                growing.present[growing.offsets[j] + left.columns[j, chosen]] = False
    return int(growing.members[-1])


@kernel(inline="always")
def _join(
    left: RemainingRecords, units: Units, growing: GrowingClass, i: Integer, number: Integer
) -> None:
    """Let the next record of a row type join the class."""
    left.class_in_order[left.following[i]] = number
    left.following[i] += 1
    left.n_left[0] -= 1
    left.n_left[1] -= left.following[i] == left.ends[i]
    for j in range(units.numeric.size):
        value = left.columns[j, i]
        growing.low[j] = min(growing.low[j], value)
        growing.high[j] = max(growing.high[j], value)
        if not units.numeric[j]:
            growing.present[growing.offsets[j] + value] = True


@kernel(inline="always")
def _closest(
    left: RemainingRecords, units: Units, growing: GrowingClass, first: Integer, loss: Integer
) -> tuple[Integer, Integer]:
    """Find the first row type that the class, with its ``loss``, loses least with."""
    while True:
        best: Integer = -1
        least: Integer = _NO_BOUND
        for c in range(growing.n_candidates[0]):
            i = growing.candidates[c]
            if growing.bound[c] < least and left.following[i] < left.ends[i]:
                growing.bound[c] = _joint_loss(left, units, growing, i, loss)
                if growing.bound[c] < least:
                    best, least = i, growing.bound[c]
                    if least == loss:
                        break
        if best >= 0 and least <= growing.reach[0]:
            return best, least
        # A row type out of reach may lose less.
        _compare_with_class(left, units, growing, first, loss)


@kernel
def _compare_with_one(
    left: RemainingRecords, units: Units, growing: GrowingClass, seed: Integer, first: Integer
) -> None:
    """Find the candidates of a class of one record."""
    n_types = left.types.size
    loss = growing.loss
    loss[first:] = 0
    for j in range(units.numeric.size):
        column = left.columns[j]
        value, limit, one_more = column[seed], np.int32(units.whole[j]), np.int32(units.step[j])
        if units.numeric[j]:
            for i in range(first, n_types):
                loss[i] += min(abs(column[i] - value), limit)
        else:
            for i in range(first, n_types):
                loss[i] += one_more if column[i] != value else np.int32(0)
    growing.n_compared[0] += left.columns[:, first:].size
    _collect(left, growing, first)


@kernel
def _compare_with_class(
    left: RemainingRecords, units: Units, growing: GrowingClass, first: Integer, loss: Integer
) -> None:
    """Reach further, and find the candidates of the class as it is now."""
    least: Integer = _NO_BOUND
    for i in range(first, left.types.size):
        if left.following[i] < left.ends[i]:
            growing.loss[i] = _joint_loss(left, units, growing, i, loss)
            least = min(least, growing.loss[i])
    reach = growing.reach[0]
    growing.reach[0] = max(reach + reach // 4, least + least // 4)
    growing.n_compared[0] += 4 * left.columns[:, first:].size
    _collect(left, growing, first)


@kernel
def _joint_loss(
    left: RemainingRecords, units: Units, growing: GrowingClass, i: Integer, loss: Integer
) -> Integer:
    """Loss of the class with one more record."""
    total = loss
    for j in range(units.numeric.size):
        value = left.columns[j, i]
        if not units.numeric[j]:
            if not growing.present[growing.offsets[j] + value]:
                total += units.step[j]
        elif value < growing.low[j] or value > growing.high[j]:
            low, high = growing.low[j], growing.high[j]
            total += min(max(high, value) - min(low, value), units.whole[j])
            total -= min(high - low, units.whole[j])
    return total


@kernel
def _collect(left: RemainingRecords, growing: GrowingClass, first: Integer) -> None:
    """List the row types within reach that have records left."""
    reach = growing.reach[0]
    n_candidates = 0
    for i in range(first, left.types.size):
        if growing.loss[i] <= reach and left.following[i] < left.ends[i]:
            growing.candidates[n_candidates] = i
            growing.bound[n_candidates] = growing.loss[i]
            n_candidates += 1
    growing.n_candidates[0] = n_candidates


@kernel
def furthest(left: RemainingRecords, units: Units, values: CodeArray) -> Integer:
    """Find the number of the first row type that is left and furthest from a row."""
    n_types = left.types.size
    distance = np.zeros(n_types)
    for j in range(units.numeric.size):
        column, value, whole = left.columns[j], values[j], units.whole[j]
        if whole == 0:
            continue
        if units.numeric[j]:
            for i in range(n_types):
                distance[i] += min(abs(column[i] - value), whole) / whole
        else:
            for i in range(n_types):
                distance[i] += 1.0 if column[i] != value else 0.0
    best, furthest = -1, -1.0
    for i in range(n_types):
        if left.following[i] < left.ends[i] and distance[i] > furthest:
            best, furthest = left.types[i], distance[i]
    return best


LeftOverRule = Literal["least_increase", "least_result"]

_RECORDS_PER_BEAT = 8


def place_left_over_records(
    ncp: Ncp,
    # (n_records,): classes numbered from 0 without gaps; -1 for a record in none
    class_of_record: IntArray,
    left_over: IntArray,  # Records to be placed, in this order
    # Whether the increase of a class's loss is to be least, or the loss that it has afterwards. The
    # first of several such classes is taken.
    rule: LeftOverRule = "least_increase",
    pulse: Pulse = UNLIMITED,
) -> IntArray:
    """Put records, one by one, into the classes that lose least by taking them.

    **Source:** [OB] Section 3.2, Table 7.
    """
    if not left_over.size:
        return class_of_record
    records = PackedRecords.of(ncp)
    classes = ClassSummaries.of(records, class_of_record, left_over.size)
    for start in range(0, left_over.size, _RECORDS_PER_BEAT):
        pulse.beat()
        some = left_over[start : start + _RECORDS_PER_BEAT]
        _place(records, classes, some, rule == "least_increase")
    return classes.class_of_record


@kernel
def _place(
    records: PackedRecords, classes: ClassSummaries, left_over: IntArray, by_increase: bool
) -> None:
    for record in left_over:
        best: Integer = NONE
        best_loss = 0
        for g in range(classes.sizes.size):
            after = classes.losses[g] + entry(records, classes, g, record)
            loss = after * (classes.sizes[g] + 1)
            if by_increase:
                loss -= classes.losses[g] * classes.sizes[g]
            if best < 0 or loss < best_loss:
                best, best_loss = g, loss
        make_move(records, classes, record, best)


def grow_classes(
    ncp: Ncp,  # Of at least k records
    order: IntArray,  # (n_records,): records, identical ones next to each other
    k: int,  # Records of each class
    *,
    block_size: int | None = None,  # The number of row types to search among; None: all
    # Which class a record joins if fewer than k are left
    left_over: LeftOverRule = "least_increase",
    pulse: Pulse = UNLIMITED,
) -> IntArray:
    """Grow classes, each from the first record that is left, and place those left over."""
    pool = RecordPool(ncp, order, k, block_size=block_size)
    while pool.n_left >= k:
        pulse.done(order.size - pool.n_left, order.size)
        pool.grow_from_first()
    return pool.finished(left_over, pulse)


class RecordPool:
    """Records that are not yet in a class, by row type; classes of k records grow from them."""

    def __init__(self, ncp: Ncp, order: IntArray, k: int, *, block_size: int | None = None) -> None:
        self._ncp, self._order, self._k = ncp, order, k
        values = ncp.values[order]
        self._starts = np.flatnonzero(is_first_of_equal(values))
        self._ends = np.append(self._starts[1:], order.size)[: self._starts.size]
        self._values = values[self._starts]
        self._class_in_order = np.full(order.size, -1, dtype=np.int64)
        self.n_left: Integer = order.size
        self._n_classes: Integer = 0
        self._block_size = block_size or max(self._starts.size, 1)
        self._n_read = 0
        self._growing = GrowingClass.of(ncp, k)
        self._read(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def grow_from_first(self) -> None:
        """Grow some classes, each from the first record that is left."""
        n_grown = grow_from_first(
            self._left, self._ncp.units, self._growing, self._k, self._n_classes
        )
        self._update(n_grown)

    def grow_from(self, row_type: Integer) -> Integer:
        """Grow one class from a record of a row type."""
        last = grow_from(
            self._left, self._ncp.units, self._growing, self._k, self._n_classes, row_type
        )
        self._update(1)
        return last

    def furthest(self, row_type: Integer) -> int:
        """Find the row type, of those with records left, that is furthest from another.

        **Source:** Byun et al. 2007, Definition 2: numbers differ by their share of the range,
        categories by 1.
        """
        return int(furthest(self._left, self._ncp.units, self._values[row_type]))

    def type_of_record(self, record: int) -> int:
        """Return the row type of a record."""
        position = np.flatnonzero(self._order == record)[0]
        return int(np.searchsorted(self._starts, position, side="right")) - 1

    def finished(self, left_over: LeftOverRule, pulse: Pulse) -> IntArray:
        """Place the records that are left over, fewer than k."""
        classes = np.empty_like(self._class_in_order)
        classes[self._order] = self._class_in_order
        remaining = self._order[self._class_in_order < 0]
        return place_left_over_records(self._ncp, classes, remaining, left_over, pulse)

    def _update(self, n_grown: Integer) -> None:
        """Count the classes that were grown, and read on where too little is left of the block."""
        self._n_classes += n_grown
        self.n_left -= n_grown * self._k
        if is_used_up(self._left, self._k):
            kept = self._left.following < self._left.ends
            self._read(self._left.types[kept], self._left.following[kept])

    def _read(self, types: IntArray, following: IntArray) -> None:
        """Fill up the block, of which these row types have records left."""
        n_records_read = int(self._ends[self._n_read - 1]) if self._n_read else 0
        # A class needs k records, of however few row types.
        n_missing = self._k - int((self._ends[types] - following).sum())
        n_needed = np.searchsorted(self._ends, n_records_read + n_missing) + 1 - self._n_read
        n_new = min(
            max(self._block_size - types.size, int(n_needed)), self._starts.size - self._n_read
        )
        new = np.arange(self._n_read, self._n_read + n_new)
        self._n_read += n_new
        types = np.append(types, new)
        following = np.append(following, self._starts[new])
        ends = self._ends[types]
        self._left = RemainingRecords(
            np.ascontiguousarray(self._values[types].T), types, following, ends,
            np.array([(ends - following).sum(), types.size]), self._class_in_order,
        )  # fmt: skip
        self._growing = self._growing.among(types.size)
