"""Records by row type, and which row types lose little together.

Those are found in windows of sorted orders.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, Integer
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.recoding.ncp import Ncp, Units
from kanon_db.algorithms.recoding.order import is_first_of_equal
from kanon_db.algorithms.recoding.packed_records import PackedRecords

_NONE = -1
_N_NEAR = 12
_WINDOW = 24
_MAX_ORDERS = 12
_COMPARISONS_PER_CALL = 2**17  # of two row types: some milliseconds
_FAR = 2**31 - 1


class TypedRecords(NamedTuple):
    """Records in an order in which those with the same row, a row type, lie side by side.

    Parameters
    ----------
    records : PackedRecords
    first_of_type : ndarray of int64, shape (t + 1,)
        First record of each row type, and the number of records.
    type_of_record : ndarray of int32, shape (n_records,)
    near : ndarray of int32, shape (t, 12)
        Row types that lose little together with each one, itself being one of them if it has
        several records; -1: none.
    """

    records: PackedRecords
    first_of_type: IntArray
    type_of_record: CodeArray
    near: CodeArray

    @classmethod
    def of(cls, ncp: Ncp, random: np.random.Generator, pulse: Pulse) -> TypedRecords:
        """Find the row types, and for each those that it loses little with.

        Parameters
        ----------
        ncp : Ncp
            Of records in such an order, at least one.
        random : numpy.random.Generator
        pulse : Pulse
            Only its heartbeat is used.

        Returns
        -------
        TypedRecords
        """
        is_first = is_first_of_equal(ncp.values)
        first_of_type = np.append(np.flatnonzero(is_first), is_first.size)
        type_of_record = (np.cumsum(is_first) - 1).astype(np.int32)
        near = _nearest(ncp.values[is_first], ncp.units, random, pulse)
        repeated = np.flatnonzero(np.diff(first_of_type) > 1)
        near[repeated, -1] = repeated
        return cls(PackedRecords.of(ncp), first_of_type, type_of_record, near)


def _nearest(
    values: CodeArray, units: Units, random: np.random.Generator, pulse: Pulse
) -> CodeArray:
    """Find row types that lose little in one class with each of them, nearest first.

    Rows are sorted several times, each attribute being the last, and so the least, in one of the
    orders; compared are those at most 24 places apart in one of them. That brings rows together
    that differ in one or two attributes. It takes time linear in the number of rows, apart from
    sorting.
    """
    n_types, m = values.shape
    nearest = np.full((n_types, _N_NEAR), _NONE, dtype=np.int32)
    losses = np.full((n_types, _N_NEAR), _FAR, dtype=np.int32)
    n_rows = _COMPARISONS_PER_CALL // _WINDOW
    for last in random.permutation(m)[:_MAX_ORDERS]:
        others = random.permutation(np.delete(np.arange(m), last))
        order = np.lexsort(values.T[[last, *others[::-1]]])
        for start in range(0, n_types, n_rows):
            pulse.beat()
            end = min(start + n_rows, n_types)
            _compare(values, units, order, start, end, nearest, losses)
    return nearest


@numba.njit(cache=True, nogil=True)
def _compare(
    values: CodeArray,
    units: Units,
    order: IntArray,
    start: Integer,
    end: Integer,
    nearest: CodeArray,
    losses: CodeArray,
) -> None:
    """Compare each row in a part of the order with those behind it."""
    for i in range(start, end):
        a = order[i]
        for following in range(i + 1, min(i + 1 + _WINDOW, order.size)):
            b = order[following]
            loss: Integer = np.int64(0)
            for j in range(units.numeric.size):
                if units.numeric[j]:
                    loss += min(abs(np.int64(values[a, j]) - values[b, j]), units.whole[j])
                elif values[a, j] != values[b, j]:
                    loss += units.step[j]
            _keep(nearest[a], losses[a], b, loss)
            _keep(nearest[b], losses[b], a, loss)


@numba.njit(cache=True, nogil=True)
def _keep(nearest: CodeArray, losses: CodeArray, other: Integer, loss: Integer) -> None:
    """Enter a row type among the nearest if it belongs there and is not there yet."""
    if loss >= losses[-1]:
        return
    place = losses.size - 1
    while place > 0 and losses[place - 1] >= loss:
        place -= 1
        if nearest[place] == other:
            return
    while losses[place] == loss:  # behind its equals
        place += 1
    for later in range(losses.size - 1, place, -1):
        nearest[later], losses[later] = nearest[later - 1], losses[later - 1]
    nearest[place], losses[place] = other, loss
