"""Growing classes of k records, one after the other, from the records that are left."""

from __future__ import annotations

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, IntArray, Integer
from kanon_db.algorithms.recoding.ncp import Ncp

_NO_BOUND = 2**31 - 1
_COMPARISONS_PER_CALL = 2**24  # of a row type with a class in one attribute: some milliseconds


class Pool:
    """Records that are not yet in a class, by row type, in a given order.

    Parameters
    ----------
    ncp : Ncp
    order : ndarray of int64, shape (n_records,)
        Records, identical ones next to each other.
    k : int
        Records of each class.
    block_size : int, optional
        Most row types to search among; None: all.
    """

    def __init__(self, ncp: Ncp, order: IntArray, k: int, *, block_size: int | None = None) -> None:
        self.ncp = ncp
        self._order, self._k = order, k
        values = ncp.values[order]
        is_first = np.ones(order.size, dtype=np.bool_)
        is_first[1:] = (values[1:] != values[:-1]).any(axis=1)
        self._starts = np.flatnonzero(is_first)
        self._ends = np.append(self._starts[1:], order.size)[: self._starts.size]
        self._values = values[self._starts]
        self._class_in_order = np.full(order.size, -1, dtype=np.int64)
        self._last: Integer = 0
        self.n_left: Integer = order.size
        self._n_classes: Integer = 0
        self._reach = np.zeros(1, dtype=np.int64)
        self._present = np.zeros(_offsets(ncp)[-1], dtype=np.bool_)
        self._block_size = block_size or max(self._starts.size, 1)
        self._n_read = 0
        self._types = np.empty(0, dtype=np.int64)
        self._next = np.empty(0, dtype=np.int64)
        self._fill()

    def grow_from_first(self) -> None:
        """Grow some classes, each from the first record that is left."""
        self._grow(0, _COMPARISONS_PER_CALL)

    def grow_from(self, row_type: Integer) -> None:
        """Grow one class from a record of a row type.

        Parameters
        ----------
        row_type : int
            As given by :meth:`furthest`.
        """
        self._grow(row_type, 0)

    def furthest(self, row_type: Integer) -> int:
        """Find the first row type, of those left, that is furthest from another.

        Parameters
        ----------
        row_type : int
            Number of a row type, which may have no records left.

        Returns
        -------
        int

        Notes
        -----
        **Source:** Byun et al. 2007, Definition 2: the distance of two numbers is their difference
        as a share of the range, that of two categories 1 unless they are equal.
        """
        return int(
            _furthest(
                self._columns, self._next < self._ends[self._types], self._values[row_type],
                self.ncp.numeric, self.ncp.whole, self._types,
            )
        )  # fmt: skip

    @property
    def last(self) -> Integer:
        """Row type of the record that was last put into a class."""
        return self._last

    @property
    def n_types(self) -> int:
        """Number of row types, with records left or without."""
        return self._starts.size

    @property
    def class_of_record(self) -> IntArray:
        """Class of each record, -1 for those that are left; shape (n_records,)."""
        classes = np.empty_like(self._class_in_order)
        classes[self._order] = self._class_in_order
        return classes

    def left_over(self) -> IntArray:
        """List the records that are left, in order.

        Returns
        -------
        ndarray of int64
        """
        return self._order[self._class_in_order < 0]

    def type_of_record(self, record: int) -> int:
        """Row type of a record.

        Parameters
        ----------
        record : int

        Returns
        -------
        int
        """
        position = np.flatnonzero(self._order == record)[0]
        return int(np.searchsorted(self._starts, position, side="right")) - 1

    def _grow(self, row_type: Integer, n_comparisons: int) -> None:
        """Grow classes until so many comparisons are done or the pool needs filling."""
        n_types_left, n_grown, self._last = _grow(
            self._columns, self._types, self._next, self._ends, self._class_in_order,
            self._k, self._n_classes, row_type, n_comparisons,
            self.ncp.numeric, self.ncp.whole, self.ncp.step, _offsets(self.ncp),
            self._present, self._reach,
        )  # fmt: skip
        self._n_classes += n_grown
        self.n_left -= n_grown * self._k
        if not n_grown or n_types_left <= self._types.size * 3 // 4:
            self._fill()

    @property
    def _n_records_read(self) -> int:
        return int(self._ends[self._n_read - 1]) if self._n_read else 0

    def _fill(self) -> None:
        """Drop the row types without records left, and read on."""
        kept = self._next < self._ends[self._types]
        types, following = self._types[kept], self._next[kept]
        # A class needs k records, however few row types that may be.
        n_missing = self._k - int((self._ends[types] - following).sum())
        n_needed = np.searchsorted(self._ends, self._n_records_read + n_missing) + 1 - self._n_read
        n_new = min(
            max(self._block_size - types.size, int(n_needed)), self._starts.size - self._n_read
        )
        new = np.arange(self._n_read, self._n_read + n_new)
        self._n_read += n_new
        self._types = np.append(types, new)
        self._next = np.append(following, self._starts[new])
        self._columns = np.ascontiguousarray(self._values[self._types].T)


def _offsets(ncp: Ncp) -> IntArray:
    """Where the codes of each categorical attribute begin among those of all."""
    sizes = np.where(ncp.numeric, 0, ncp.values.max(axis=0, initial=-1).astype(np.int64) + 1)
    return np.concatenate([[0], np.cumsum(sizes)])


@numba.njit(cache=True, nogil=True)
def _grow(
    columns: CodeArray,
    types: IntArray,
    following: IntArray,
    ends: IntArray,
    class_in_order: IntArray,
    k: Integer,
    n_classes: Integer,
    seed_type: Integer,
    n_comparisons: Integer,
    numeric: BoolArray,
    whole: IntArray,
    step: IntArray,
    offsets: IntArray,
    present: BoolArray,
    reach: IntArray,
) -> tuple[Integer, Integer, Integer]:
    """Grow one class from ``seed_type``, or several from the first record that is left.

    Returns
    -------
    n_types_left, n_grown, last_type : int
    """
    m, n_types = columns.shape
    loss = np.empty(n_types, dtype=np.int32)
    members = np.empty(k, dtype=np.int64)
    candidates = np.empty(n_types, dtype=np.int64)
    bound = np.empty(n_types, dtype=np.int64)
    low, high = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64)
    n_left, n_types_left = 0, 0
    for i in range(n_types):
        n_left += ends[types[i]] - following[i]
        n_types_left += ends[types[i]] > following[i]
    n_grown, done, first = 0, 0, 0
    seed: Integer
    chosen: Integer
    best: Integer
    best_loss: Integer
    n_candidates: Integer
    current: Integer
    last: Integer = -1
    while n_left >= k and n_types_left > n_types * 3 // 4:
        while following[first] == ends[types[first]]:
            first += 1
        seed = first
        if n_comparisons == 0:
            seed = np.searchsorted(types, seed_type)
        # The class holds the seed alone.
        current = 0
        for j in range(m):
            low[j] = high[j] = columns[j, seed]
            if not numeric[j]:
                present[offsets[j] + columns[j, seed]] = True
        chosen, needed, n_candidates = seed, k, -1
        while True:
            class_in_order[following[chosen]] = n_classes + n_grown
            following[chosen] += 1
            n_types_left -= following[chosen] == ends[types[chosen]]
            last = types[chosen]
            needed -= 1
            members[needed] = chosen
            if needed == 0:
                break
            if n_candidates < 0 and following[seed] < ends[types[seed]] and seed == first:
                continue  # nothing is closer than its like
            if n_candidates < 0:
                _pair_losses(columns, seed, first, numeric, whole, step, loss)
                n_candidates = _collect(
                    loss, types, following, ends, first, reach[0], candidates, bound
                )
                done += m * (n_types - first)
            best, best_loss = -1, _NO_BOUND
            while True:
                for c in range(n_candidates):
                    i = candidates[c]
                    if bound[c] < best_loss and following[i] < ends[types[i]]:
                        bound[c] = _joint_loss(
                            columns, i, numeric, whole, step, offsets, present, low, high, current
                        )
                        if bound[c] < best_loss:
                            best, best_loss = i, bound[c]
                            if best_loss == current:
                                break
                if best >= 0 and best_loss <= reach[0]:
                    break
                # A row type out of reach may lose less: look at all, as they are now.
                least: Integer = _NO_BOUND
                for i in range(first, n_types):
                    if following[i] < ends[types[i]]:
                        loss[i] = _joint_loss(
                            columns, i, numeric, whole, step, offsets, present, low, high, current
                        )
                        least = min(least, loss[i])
                reach[0] = max(reach[0] + reach[0] // 4, least + least // 4)
                n_candidates = _collect(
                    loss, types, following, ends, first, reach[0], candidates, bound
                )
                done += 4 * m * (n_types - first)
                best, best_loss = -1, _NO_BOUND
            chosen, current = best, best_loss
            for j in range(m):
                low[j] = min(low[j], columns[j, chosen])
                high[j] = max(high[j], columns[j, chosen])
                if not numeric[j]:
                    present[offsets[j] + columns[j, chosen]] = True
        # Some more than this class needed.
        reach[0] = max(current + current // 8, reach[0] - reach[0] // 16)
        for j in range(m):
            if not numeric[j]:
                for chosen in members:
                    present[offsets[j] + columns[j, chosen]] = False
        n_left -= k
        n_grown += 1
        if done >= n_comparisons:
            break
    return n_types_left, n_grown, last


@numba.njit(cache=True, nogil=True)
def _pair_losses(
    columns: CodeArray,
    seed: Integer,
    first: Integer,
    numeric: BoolArray,
    whole: IntArray,
    step: IntArray,
    loss: CodeArray,
) -> None:
    """Loss of a class of one record with one of each row type."""
    n_types = columns.shape[1]
    loss[first:] = 0
    for j in range(columns.shape[0]):
        column = columns[j]
        value, limit, one_more = column[seed], np.int32(whole[j]), np.int32(step[j])
        if numeric[j]:
            for i in range(first, n_types):
                loss[i] += min(abs(column[i] - value), limit)
        else:
            for i in range(first, n_types):
                loss[i] += one_more if column[i] != value else np.int32(0)


@numba.njit(cache=True, nogil=True)
def _joint_loss(
    columns: CodeArray,
    i: Integer,
    numeric: BoolArray,
    whole: IntArray,
    step: IntArray,
    offsets: IntArray,
    present: BoolArray,
    low: IntArray,
    high: IntArray,
    current: Integer,
) -> Integer:
    """Loss of a class with one more record."""
    total = current
    for j in range(columns.shape[0]):
        value = columns[j, i]
        if not numeric[j]:
            if not present[offsets[j] + value]:
                total += step[j]
        elif value < low[j] or value > high[j]:
            total += min(max(high[j], value) - min(low[j], value), whole[j])
            total -= min(high[j] - low[j], whole[j])
    return total


@numba.njit(cache=True, nogil=True)
def _collect(
    loss: CodeArray,
    types: IntArray,
    following: IntArray,
    ends: IntArray,
    first: Integer,
    reach: Integer,
    candidates: IntArray,
    bound: IntArray,
) -> Integer:
    """List the row types within reach that have records left."""
    n_candidates = 0
    for i in range(first, loss.size):
        if loss[i] <= reach and following[i] < ends[types[i]]:
            candidates[n_candidates] = i
            bound[n_candidates] = loss[i]
            n_candidates += 1
    return n_candidates


@numba.njit(cache=True, nogil=True)
def _furthest(
    columns: CodeArray,
    is_left: BoolArray,
    values: CodeArray,
    numeric: BoolArray,
    whole: IntArray,
    types: IntArray,
) -> Integer:
    m, n_types = columns.shape
    distance = np.zeros(n_types)
    for j in range(m):
        column, value = columns[j], values[j]
        if whole[j] == 0:
            continue
        if numeric[j]:
            for i in range(n_types):
                distance[i] += min(abs(column[i] - value), whole[j]) / whole[j]
        else:
            for i in range(n_types):
                distance[i] += 1.0 if column[i] != value else 0.0
    best, furthest = -1, -1.0
    for i in range(n_types):
        if is_left[i] and distance[i] > furthest:
            best, furthest = types[i], distance[i]
    return best
