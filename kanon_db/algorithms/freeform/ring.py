"""Ring generalization: small partitions, each record matching its successors in a ring (NH)."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.freeform.losses import pair_units
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.ncp import Ncp


def ring(ncp: Ncp, k: int, *, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Partition the records, and let each one match its k - 1 successors in its partition.

    Parameters
    ----------
    ncp : Ncp
    k : int
        Matches of each record, from 1 to the number of records.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    ndarray of int32, shape (n, k)
        As in :class:`~kanon_db.algorithms.freeform.result.Freeform`.

    Notes
    -----
    **Source:** the baseline NH of [FF] Sections 2.1 and 8: Wong, Mamoulis and Cheung:
    Non-homogeneous generalization in privacy preserving data publishing, 2010. [FF] says that its
    partitions have k to 2k - 1 records, but not how they are found. Here a partition is cut
    in two as long as it has 2k records: two records that lose much together are sought, by going
    twice to the farthest one; the others are sorted by how much closer they are to one of the
    two than to the other, and cut at the multiple of k next to where that changes its sign. The
    ring goes from each record to the nearest that is left.

    Cost: a few passes over the records for each level of cuts.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
    >>> age = Attribute(5, numbers=np.array([20.0, 30, 50, 55, 60]), lower=20, upper=60)
    >>> table = Microdata([[0], [1], [2], [3], [4]], (age,))
    >>> ring(Ncp.of(table), 2).tolist()
    [[0, 1], [1, 2], [2, 0], [3, 4], [4, 3]]
    """
    n = ncp.values.shape[0]
    matches = np.empty((n, k), dtype=np.int32)
    parts = [np.arange(n)]
    while parts:
        pulse.beat()
        part = parts.pop()
        if part.size >= 2 * k:
            parts += _halves(ncp, part, k)
            continue
        tour = _tour(ncp, part)
        for r in range(k):
            matches[tour, r] = np.roll(tour, -r)
    return matches


def _halves(ncp: Ncp, part: IntArray, k: int) -> list[IntArray]:
    """Cut a partition of at least 2k records in two, of at least k records each."""
    first = part[np.argmax(pair_units(ncp, part[0], part))]
    to_first = pair_units(ncp, first, part)
    to_second = pair_units(ncp, part[np.argmax(to_first)], part)
    closer = to_first - to_second
    order = np.argsort(closer, kind="stable")
    cut = int(np.count_nonzero(closer < 0))
    cut = min(max(round(cut / k), 1), part.size // k - 1) * k
    return [np.sort(part[order[cut:]]), np.sort(part[order[:cut]])]


def _tour(ncp: Ncp, part: IntArray) -> IntArray:
    """Go from each record to the nearest that is left."""
    left = list(range(part.size))
    tour = [left.pop(0)]
    while left:
        distances = pair_units(ncp, part[tour[-1]], part[left])
        tour.append(left.pop(int(np.argmin(distances))))
    return part[tour]
