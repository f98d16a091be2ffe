"""Errors of the estimates on one or two quasi-identifiers, as buckets cause them."""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.ground.threads import in_threads, n_cores

_RECORDS_PER_BLOCK: Final = 2**15
"""Some ten milliseconds of work."""


class Marginals(NamedTuple):
    """Errors of all estimates on one or two quasi-identifiers and the sensitive attribute.

    Parameters
    ----------
    codes : ndarray of int32, shape (n_records, n_qi)
        Quasi-identifiers, similar values joined where they are too many to tell all apart.
    pairs : ndarray of int64, shape (t, 2)
        The two quasi-identifiers of each marginal, the same twice if it has one.
    widths : ndarray of int64, shape (t,)
        Number of codes of the second quasi-identifier; 0 if there is none.
    first_cell : ndarray of int64, shape (t,)
        Where the cells of each marginal begin.
    weights : ndarray of float64, shape (n_cells,)
        Weight of a squared error in the objective: 0 for cells of few records.
    errors : ndarray of float64, shape (n_cells, m)
        Records of each cell and sensitive value, less their estimate from the buckets.
    """

    codes: CodeArray
    pairs: IntArray
    widths: IntArray
    first_cell: IntArray
    weights: FloatArray
    errors: FloatArray

    @property
    def objective(self) -> float:
        """Weighted sum of the squared errors."""
        return float(self.weights @ np.square(self.errors).sum(axis=1))


class Shares(NamedTuple):
    """Share of each sensitive value in each bucket; values of a bucket follow each other.

    Parameters
    ----------
    ends : ndarray of int64, shape (n_buckets + 1,)
        Entries of bucket g are those from ``ends[g]`` up to, not including, ``ends[g + 1]``.
    values : ndarray of int64, shape (e,)
    shares : ndarray of float64, shape (e,)
    """

    ends: IntArray
    values: IntArray
    shares: FloatArray

    @classmethod
    def of(cls, buckets: IntArray, sa_codes: CodeArray, n_values: int) -> Shares:
        """Find the shares in buckets that are numbered without gaps."""
        sizes = np.bincount(buckets)
        keys, counts = np.unique(buckets * n_values + sa_codes, return_counts=True)
        owners = keys // n_values
        ends = np.searchsorted(owners, np.arange(sizes.size + 1)).astype(np.int64)
        return cls(ends, keys % n_values, counts / sizes[owners])


def add_errors(
    buckets: IntArray, sa_codes: CodeArray, shares: Shares, marginals: Marginals, pulse: Pulse
) -> IntArray:
    """Add the errors of all records to the marginals.

    Each half of the records is added up by a thread of its own: in the same order, and so to the
    same sums, however many threads there are.

    Returns
    -------
    ndarray of int64, shape (n_cells,)
        Records of each cell.
    """
    n_records, n_cells = sa_codes.size, marginals.weights.size
    halves = tuple(pairwise((0, n_records // 2, n_records)))
    counts = np.zeros((len(halves), n_cells), dtype=np.int64)
    parts = [marginals, marginals._replace(errors=np.zeros_like(marginals.errors))]

    def add(half: int, pulse: Pulse) -> None:
        start, end = halves[half]
        for first in range(start, end, _RECORDS_PER_BLOCK):
            pulse.beat()
            last = min(end, first + _RECORDS_PER_BLOCK)
            _add(first, last, buckets, sa_codes, shares, parts[half], counts[half])

    in_threads(add, range(len(halves)), n_cores(), pulse.of_part())
    np.add(marginals.errors, parts[1].errors, out=marginals.errors)
    total: IntArray = counts.sum(axis=0)
    return total


@numba.njit(cache=True, nogil=True)
def find_cells(marginals: Marginals, codes: CodeArray, cells: IntArray) -> None:
    """Find the cell of each marginal that a record with these codes is in."""
    _, pairs, widths, first_cell, _, _ = marginals
    for t in range(widths.size):
        cell = first_cell[t] + codes[pairs[t, 0]] * max(1, widths[t])
        if widths[t]:
            cell += codes[pairs[t, 1]]
        cells[t] = cell


@numba.njit(cache=True, nogil=True)
def _add(
    first: int,
    last: int,
    buckets: IntArray,
    sa_codes: CodeArray,
    shares_of_buckets: Shares,
    marginals: Marginals,
    counts: IntArray,
) -> None:
    """Add some of the records, and what they contribute to the errors."""
    ends, values, shares = shares_of_buckets
    codes, _, widths, _, _, errors = marginals
    cells = np.empty(widths.size, dtype=np.int64)
    amounts = np.empty(errors.shape[1])
    for record in range(first, last):
        find_cells(marginals, codes[record], cells)
        start, n = ends[buckets[record]], ends[buckets[record] + 1] - ends[buckets[record]]
        for k in range(n):
            amounts[k] = (values[start + k] == sa_codes[record]) - shares[start + k]
        for t in range(cells.size):
            v = cells[t]
            counts[v] += 1
            for k in range(n):
                errors[v, values[start + k]] += amounts[k]
