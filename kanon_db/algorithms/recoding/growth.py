"""One class after the other grown from the records that are left: compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, IntArray, Integer
from kanon_db.algorithms.recoding.ncp import Ncp, Units

_NO_BOUND = 2**31 - 1
_COMPARISONS_PER_CALL = 2**24  # of a row type with a class in one attribute: some milliseconds


class Left(NamedTuple):
    """The row types of a block, and which of their records are left.

    Parameters
    ----------
    columns : ndarray of int32, shape (m, n_types)
        Value of each row type in each attribute.
    types : ndarray of int64, shape (n_types,)
        Their numbers, ascending.
    following, ends : ndarray of int64, shape (n_types,)
        In the order of the records, the first one left of each row type, and where they end.
    n_left : ndarray of int64, shape (2,)
        How many records and how many row types are left.
    class_in_order : ndarray of int64, shape (n_records,)
        Class of each record, in order; -1 for those that are left.
    """

    columns: CodeArray
    types: IntArray
    following: IntArray
    ends: IntArray
    n_left: IntArray
    class_in_order: IntArray


class Growing(NamedTuple):
    """The class that is growing, and the candidates that may join it next.

    Parameters
    ----------
    low, high : ndarray of int64, shape (m,)
        Least and greatest value of the class.
    present : ndarray of bool
        Whether it has a categorical value; those of attribute j from ``offsets[j]`` on.
    offsets : ndarray of int64, shape (m,)
    loss : ndarray of int32, shape (n_types,)
        What the class was found to lose with each row type.
    candidates : ndarray of int64, shape (n_types,)
        The first ``n_candidates[0]`` are positions of the row types with such a loss within reach.
    bound : ndarray of int64, shape (n_types,)
        What the class loses, at least, with each candidate.
    n_candidates : ndarray of int64, shape (1,)
    reach : ndarray of int64, shape (1,)
        Greatest loss of a candidate.
    n_compared : ndarray of int64, shape (1,)
        Comparisons with row types in one attribute since the last heartbeat.
    """

    low: IntArray
    high: IntArray
    present: BoolArray
    offsets: IntArray
    loss: CodeArray
    candidates: IntArray
    bound: IntArray
    n_candidates: IntArray
    reach: IntArray
    n_compared: IntArray

    @classmethod
    def of(cls, ncp: Ncp) -> Growing:
        """Make room for a class without records or candidates.

        Parameters
        ----------
        ncp : Ncp

        Returns
        -------
        Growing
        """
        n_codes = np.where(ncp.numeric, 0, ncp.values.max(axis=0, initial=-1).astype(np.int64) + 1)
        low, high = np.empty((2, n_codes.size), dtype=np.int64)
        present, offsets = np.zeros(n_codes.sum(), dtype=np.bool_), np.cumsum(n_codes) - n_codes
        n_candidates, reach, n_compared = np.zeros((3, 1), dtype=np.int64)
        none = np.empty(0, dtype=np.int64)
        loss = np.empty(0, dtype=np.int32)
        return cls(low, high, present, offsets, loss, none, none, n_candidates, reach, n_compared)

    def among(self, n_types: int) -> Growing:
        """Make room for so many candidates.

        Parameters
        ----------
        n_types : int

        Returns
        -------
        Growing
        """
        candidates, bound = np.empty((2, n_types), dtype=np.int64)
        loss = np.empty(n_types, dtype=np.int32)
        return self._replace(loss=loss, candidates=candidates, bound=bound)


@numba.njit(cache=True, nogil=True)
def grow_from_first(
    left: Left, units: Units, growing: Growing, k: Integer, number: Integer
) -> Integer:
    """Grow classes until it is time for a heartbeat, or to read on; return how many."""
    n_grown = 0
    first: Integer = 0
    growing.n_compared[0] = 0
    while not is_used_up(left, k) and growing.n_compared[0] < _COMPARISONS_PER_CALL:
        first = _first_left(left, first)
        _grow(left, units, growing, k, number + n_grown, first, first)
        n_grown += 1
    return n_grown


@numba.njit(cache=True, nogil=True)
def grow_from(
    left: Left, units: Units, growing: Growing, k: Integer, number: Integer, row_type: Integer
) -> Integer:
    """Grow a class from a record of a row type; return the row type that joined last."""
    seed = np.searchsorted(left.types, row_type)
    return int(left.types[_grow(left, units, growing, k, number, seed, _first_left(left, 0))])


@numba.njit(cache=True, nogil=True)
def is_used_up(left: Left, k: Integer) -> bool:
    """Whether too few records, or too few of the row types, are left to search on."""
    return bool(left.n_left[0] < k or left.n_left[1] <= left.types.size * 3 // 4)


@numba.njit(cache=True, nogil=True, inline="always")
def _first_left(left: Left, first: Integer) -> Integer:
    while left.following[first] == left.ends[first]:
        first += 1
    return first


@numba.njit(cache=True, nogil=True)
def _grow(
    left: Left,
    units: Units,
    growing: Growing,
    k: Integer,
    number: Integer,
    seed: Integer,
    first: Integer,
) -> Integer:
    """Grow one class from the row type at position ``seed``; ``first`` is the first one left.

    Returns
    -------
    int
        Position of the row type whose record joined last.
    """
    members = np.empty(k, dtype=np.int64)
    growing.low[:] = growing.high[:] = left.columns[:, seed]
    chosen: Integer = seed
    loss: Integer = np.int64(0)
    is_searching = False
    for size in range(k):
        # Nothing is closer to the first one than its like.
        if size and (is_searching or seed != first or left.following[seed] == left.ends[seed]):
            if not is_searching:
                _compare_with_one(left, units, growing, seed, first)
                is_searching = True
            chosen, loss = _closest(left, units, growing, first, loss)
        members[size] = chosen
        _join(left, units, growing, chosen, number)
    # Reach a little further than this class needed to.
    growing.reach[0] = max(loss + loss // 8, growing.reach[0] - growing.reach[0] // 16)
    for j in range(units.numeric.size):
        if not units.numeric[j]:
            for chosen in members:
                growing.present[growing.offsets[j] + left.columns[j, chosen]] = False
    return int(members[-1])


@numba.njit(cache=True, nogil=True, inline="always")
def _join(left: Left, units: Units, growing: Growing, i: Integer, number: Integer) -> None:
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


@numba.njit(cache=True, nogil=True, inline="always")
def _closest(
    left: Left, units: Units, growing: Growing, first: Integer, loss: Integer
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


@numba.njit(cache=True, nogil=True)
def _compare_with_one(
    left: Left, units: Units, growing: Growing, seed: Integer, first: Integer
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


@numba.njit(cache=True, nogil=True)
def _compare_with_class(
    left: Left, units: Units, growing: Growing, first: Integer, loss: Integer
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


@numba.njit(cache=True, nogil=True)
def _joint_loss(left: Left, units: Units, growing: Growing, i: Integer, loss: Integer) -> Integer:
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


@numba.njit(cache=True, nogil=True)
def _collect(left: Left, growing: Growing, first: Integer) -> None:
    """List the row types within reach that have records left."""
    reach = growing.reach[0]
    n_candidates = 0
    for i in range(first, left.types.size):
        if growing.loss[i] <= reach and left.following[i] < left.ends[i]:
            growing.candidates[n_candidates] = i
            growing.bound[n_candidates] = growing.loss[i]
            n_candidates += 1
    growing.n_candidates[0] = n_candidates


@numba.njit(cache=True, nogil=True)
def furthest(left: Left, units: Units, values: CodeArray) -> Integer:
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
