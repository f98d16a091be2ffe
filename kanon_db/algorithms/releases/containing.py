"""Whether the cells of some classes lie within those of others."""

from __future__ import annotations

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.releases.fitting import Boxes


def are_within(inner: Boxes, outer: Boxes, outer_of: IntArray) -> bool:
    """Tell whether each class covers nothing that its counterpart does not cover.

    Parameters
    ----------
    inner, outer : Boxes
        Of the same quasi-identifiers.
    outer_of : ndarray of int64, shape (n_inner,)
        The counterpart of each inner class.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.cells import Sets
    >>> from kanon_db.algorithms.releases.fitting import boxes_of
    >>> few, more = Sets(np.array([1, 3]), np.array([2])), Sets(np.array([0, 1, 3]), np.array([3]))
    >>> boxes = [boxes_of([one], np.array([[0]]), [4]) for one in (few, more)]
    >>> are_within(*boxes, np.array([0])), are_within(*boxes[::-1], np.array([0]))
    (True, False)
    """
    return bool(
        _are_within(
            inner.low, inner.high, inner.first, inner.last, inner.members,
            outer.low, outer.high, outer.first, outer.last, outer.members, outer_of,
        )
    )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _are_within(
    low: IntArray,
    high: IntArray,
    first: IntArray,
    last: IntArray,
    members: IntArray,
    outer_low: IntArray,
    outer_high: IntArray,
    outer_first: IntArray,
    outer_last: IntArray,
    outer_members: IntArray,
    outer_of: IntArray,
) -> bool:
    for c in range(outer_of.size):
        d = outer_of[c]
        for a in range(low.shape[1]):
            if low[c, a] < outer_low[d, a] or high[c, a] > outer_high[d, a]:
                return False
            if outer_last[d, a] < 0:
                continue
            its = outer_members[outer_first[d, a] : outer_last[d, a]]
            if last[c, a] < 0:
                between = np.searchsorted(its, high[c, a] + 1) - np.searchsorted(its, low[c, a])
                if between != high[c, a] - low[c, a] + 1:
                    return False
                continue
            j = 0
            for i in range(first[c, a], last[c, a]):
                while j < its.size and its[j] < members[i]:
                    j += 1
                if j == its.size or its[j] != members[i]:
                    return False
    return True
