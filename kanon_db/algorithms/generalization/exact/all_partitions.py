"""The best of all partitions of a few records, whatever is lost and whatever is allowed."""

from __future__ import annotations

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray, Integer
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse

MOST_RECORDS = 15
"""Most records: there are 3^15 = 14 million pairs of a set and a part of it."""


def members_of_sets(n_records: int) -> tuple[IntArray, IntArray]:
    """List the records of every set of some of them, and the number of the set beside each.

    Examples
    --------
    >>> records, sets = members_of_sets(2)
    >>> records.tolist(), sets.tolist()
    ([0, 1, 0, 1], [1, 2, 3, 3])
    """
    sets, records = np.nonzero(np.arange(2**n_records)[:, np.newaxis] >> np.arange(n_records) & 1)
    return records, sets


def best_partition(
    losses: FloatArray, of_suppressed: float, most_suppressed: int, *, pulse: Pulse = UNLIMITED
) -> tuple[IntArray, float]:
    """Find the classes with the least loss of all, some records perhaps left out.

    Parameters
    ----------
    losses : ndarray of float64, shape (2 ** n_records,)
        Loss of all records of each set as one class, by :func:`members_of_sets`; infinity for one
        that is not allowed. That of the empty set, 0, is not used.
    of_suppressed : float
        Loss of a record that is left out.
    most_suppressed : int
        Most records that may be left out.
    pulse : Pulse
        Only its heartbeat is used, once for each record that may be left out.

    Returns
    -------
    class_of_record : ndarray of int64, shape (n_records,)
        From 0; -1 for a record that is left out.
    loss : float
        Infinity if nothing is allowed.

    Notes
    -----
    Dynamic programming over sets: the first record of a set is in one of the classes that are
    parts of the set, or is left out.

    Examples
    --------
    >>> losses = np.array([0, np.inf, np.inf, 3.0, np.inf, 1.0, np.inf, 6.0])
    >>> best_partition(losses, 2.0, 1)
    (array([ 0, -1,  0]), 3.0)
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


@numba.njit(cache=True, nogil=True)
def _fill(
    losses: FloatArray, of_suppressed: float, left_out: Integer, best: FloatArray, chosen: IntArray
) -> None:
    """Find the best partition of each set, so many records left out at most; 0: its first one."""
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
