"""Buckets of several releases that have people in common, directly or through others."""

from __future__ import annotations

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, IntArray
from kanon_db.algorithms.releases.placements import Releases


def components_of(releases: Releases, links: BoolArray) -> IntArray:
    """Find the connected components of buckets that tuples link.

    Parameters
    ----------
    releases : Releases
    links : ndarray of bool, shape (n_placements,)
        Which placements link the buckets of their tuple; none that are nowhere.

    Returns
    -------
    ndarray of int64, shape (n_buckets,)
        From 0 without gaps.

    Examples
    --------
    >>> from kanon_db.algorithms.releases.placements import Release
    >>> one = Release.of(np.arange(4), np.array([0, 0, 1, 1]), np.arange(4))
    >>> both = Releases.of([one, one], 4, 4)
    >>> components_of(both, np.ones(8, dtype=np.bool_)).tolist()
    [0, 1, 0, 1]
    """
    roots = _roots(releases.n_buckets, releases.first_placement, releases.bucket, links)
    return (np.cumsum(roots == np.arange(roots.size)) - 1)[roots]


@numba.njit(cache=True, nogil=True)
def _roots(
    n_buckets: int, first_placement: IntArray, bucket: CodeArray, links: BoolArray
) -> IntArray:
    """Return the lowest bucket of each bucket's component."""
    root = np.arange(n_buckets)
    for t in range(first_placement.size - 1):
        a = -1
        for p in range(first_placement[t], first_placement[t + 1]):
            if not links[p]:
                continue
            b = bucket[p]
            while root[b] != b:
                root[b] = root[root[b]]
                b = root[b]
            if a >= 0 and a != b:
                a, b = min(a, b), max(a, b)
                root[b] = a
            else:
                a = b
    for b in range(n_buckets):
        root[b] = root[root[b]]
    return root
