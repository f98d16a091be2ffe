"""What cells of given originals lose, in units: the yardstick of every method."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray, Integer
from kanon_db.algorithms.recoding.ncp import Ncp


def units_lost(ncp: Ncp, matches: AnyIntArray) -> int:
    """Add up the loss of all cells.

    Parameters
    ----------
    ncp : Ncp
    matches : ndarray of int, shape (n, q)
        Originals that each cell covers.

    Returns
    -------
    int
        In units. Multiplied by ``ncp.unit`` and divided by the number of cells of all attributes,
        it is GCP.
    """
    return int(cell_units(ncp, matches).sum())


def cell_units(ncp: Ncp, matches: AnyIntArray) -> IntArray:
    """Find what each cell loses in all attributes.

    Parameters
    ----------
    ncp : Ncp
    matches : ndarray of int, shape (c, q)
        Originals that each cell covers.

    Returns
    -------
    ndarray of int64, shape (c,)
        In units.
    """
    units = np.zeros(matches.shape[0], dtype=np.int64)
    for j in range(ncp.numeric.size):
        values = np.sort(ncp.values[:, j][matches].astype(np.int64), axis=1)
        if ncp.numeric[j]:
            units += np.minimum(values[:, -1] - values[:, 0], ncp.whole[j])
        else:
            units += (values[:, 1:] != values[:, :-1]).sum(axis=1) * ncp.step[j]
    return units


def pair_units(ncp: Ncp, ones: Integer | AnyIntArray, others: AnyIntArray) -> IntArray:
    """Find what a cell of two records loses in all attributes.

    Parameters
    ----------
    ncp : Ncp
    ones : int, or ndarray of int, shape (c,)
        The first record, of all cells or of each.
    others : ndarray of int, shape (c,)
        The second ones.

    Returns
    -------
    ndarray of int64, shape (c,)
        In units.
    """
    apart = np.abs(ncp.values[others].astype(np.int64) - ncp.values[ones])
    by_attribute = np.where(ncp.numeric, np.minimum(apart, ncp.whole), (apart > 0) * ncp.step)
    units: IntArray = by_attribute.sum(axis=1)
    return units
