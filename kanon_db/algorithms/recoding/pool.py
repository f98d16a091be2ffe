"""The records that are not yet in a class, from which classes of k records are grown."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray, Integer
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding import growth
from kanon_db.algorithms.recoding.growth import Growing, Left
from kanon_db.algorithms.recoding.left_over import LeftOverRule, place_left_over
from kanon_db.algorithms.recoding.ncp import Ncp
from kanon_db.algorithms.recoding.order import is_first_of_equal


def grown_classes(
    ncp: Ncp,
    order: IntArray,
    k: int,
    *,
    block_size: int | None = None,
    left_over: LeftOverRule = "least_increase",
    pulse: Pulse = UNLIMITED,
) -> IntArray:
    """Grow classes, each from the first record that is left, and place those left over.

    Parameters
    ----------
    ncp : Ncp
        Of at least k records.
    order : ndarray of int64, shape (n_records,)
        Records, identical ones next to each other.
    k : int
        Records of each class.
    block_size : int, optional
        The number of row types to search among; None: all.
    left_over : {"least_increase", "least_result"}
        Which class a record joins if fewer than k are left.
    pulse : Pulse
        Only its heartbeat is used.

    Returns
    -------
    ndarray of int64, shape (n_records,)
        Classes numbered in the order in which they were grown.
    """
    pool = Pool(ncp, order, k, block_size=block_size)
    while pool.n_left >= k:
        pulse.done(order.size - pool.n_left, order.size)
        pool.grow_from_first()
    return pool.finished(left_over, pulse)


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
        The number of row types to search among; None: all.
    """

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
        self._growing = Growing.of(ncp)
        self._read(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def grow_from_first(self) -> None:
        """Grow some classes, each from the first record that is left."""
        n_grown = growth.grow_from_first(
            self._left, self._ncp.units, self._growing, self._k, self._n_classes
        )
        self._update(n_grown)

    def grow_from(self, row_type: Integer) -> Integer:
        """Grow one class from a record of a row type.

        Parameters
        ----------
        row_type : int
            As given by :meth:`furthest`.

        Returns
        -------
        int
            Row type of the record that joined last.
        """
        last = growth.grow_from(
            self._left, self._ncp.units, self._growing, self._k, self._n_classes, row_type
        )
        self._update(1)
        return last

    def furthest(self, row_type: Integer) -> int:
        """Find the row type, of those with records left, that is furthest from another.

        Parameters
        ----------
        row_type : int
            Number of a row type, which may have no records left.

        Returns
        -------
        int
            The first of several that are equally far.

        Notes
        -----
        **Source:** Byun et al. 2007, Definition 2: the distance of two numbers is their difference
        as a share of the range, that of two categories 1 unless they are equal.
        """
        return int(growth.furthest(self._left, self._ncp.units, self._values[row_type]))

    def type_of_record(self, record: int) -> int:
        """Return the row type of a record.

        Parameters
        ----------
        record : int

        Returns
        -------
        int
        """
        position = np.flatnonzero(self._order == record)[0]
        return int(np.searchsorted(self._starts, position, side="right")) - 1

    def finished(self, left_over: LeftOverRule, pulse: Pulse) -> IntArray:
        """Place the records that are left over, fewer than k.

        Parameters
        ----------
        left_over : {"least_increase", "least_result"}
        pulse : Pulse

        Returns
        -------
        ndarray of int64, shape (n_records,)
            Class of each record.
        """
        classes = np.empty_like(self._class_in_order)
        classes[self._order] = self._class_in_order
        remaining = self._order[self._class_in_order < 0]
        return place_left_over(self._ncp, classes, remaining, left_over, pulse)

    def _update(self, n_grown: Integer) -> None:
        """Count the classes that were grown, and read on where too little is left of the block."""
        self._n_classes += n_grown
        self.n_left -= n_grown * self._k
        if growth.is_used_up(self._left, self._k):
            kept = self._left.following < self._left.ends
            self._read(self._left.types[kept], self._left.following[kept])

    def _read(self, types: IntArray, following: IntArray) -> None:
        """Fill up the block, of which these row types have records left."""
        n_records_read = int(self._ends[self._n_read - 1]) if self._n_read else 0
        # A class needs k records, however few row types that may be.
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
        self._left = Left(
            np.ascontiguousarray(self._values[types].T), types, following, ends,
            np.array([(ends - following).sum(), types.size]), self._class_in_order,
        )  # fmt: skip
        self._growing = self._growing.among(types.size)
