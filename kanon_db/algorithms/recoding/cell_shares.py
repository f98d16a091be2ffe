"""How often each value occurs in a cell, as far as the cells of all records tell.

**Source:** Turnbull (1976), "The empirical distribution function with arbitrarily grouped, censored
and truncated data": the distribution of a column for which its cells are the most likely, by
expectation and maximization. Two deviations: cells are as tight as their records allow, so some of
these are known (*witnesses*: one for each value of a set, one for each end of a range); and the
iteration ends early, after :data:`ITERATIONS`, since the most likely distribution of all is one of
a few spikes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.algorithms.recoding.cells import Sets

ITERATIONS: Final = 10

MOST_PARTS: Final = 2_000
"""Of an axis; whole numbers are parts of their own if there are no more of them."""

_NARROW: Final = 1e-9
"""The width of parts that are not divided, relative to the numbers."""

_LEAST: Final = 1e-12
"""The least share of a value: sums of shares can tell it from none."""


@dataclass(frozen=True, eq=False)
class Axis:
    """The numbers of a column, in parts that follow each other.

    Attributes
    ----------
    edges : ndarray of float64, shape (n_parts + 1,)
        Ascending. Where numbers are whole, they lie in the middle between two halves.
    shares : ndarray of float64, shape (n_parts,)
        The share of all records in each part.
    is_each : bool
        Whether each part is one whole number.
    """

    edges: FloatArray
    shares: FloatArray
    is_each: bool

    @property
    def middles(self) -> FloatArray:
        """The middle of each part."""
        middles: FloatArray = (self.edges[:-1] + self.edges[1:]) / 2
        return middles

    def parts_of(self, low: FloatArray, high: FloatArray) -> tuple[IntArray, IntArray]:
        """Return the first and the last part that a range covers; one at least.

        Parameters
        ----------
        low, high : ndarray of float64, shape (n,)
            As those of :func:`axis_of_ranges`.
        """
        n_parts, high = self.shares.size, _apart(low, high)
        first = np.clip(np.searchsorted(self.edges, low, side="right") - 1, 0, n_parts - 1)
        last = np.clip(np.searchsorted(self.edges, high, side="left") - 1, first, n_parts - 1)
        return first.astype(np.int64), last.astype(np.int64)


def shares_of_sets(cells: Sets, records: IntArray, witnesses: FloatArray) -> FloatArray:
    """Share out the records of each set among its values.

    Parameters
    ----------
    cells : Sets
        The distinct cells of a column, of at least one value each.
    records : ndarray of int64, shape (n_cells,)
        How many records have each cell.
    witnesses : ndarray of float64, shape (n_cells,)
        How many of these are known to have any one of its values; times the number of its values,
        not more than its records.

    Returns
    -------
    ndarray of float64, shape (total,)
        The share of the cell's records for each of its values, as in ``cells.codes``.

    Examples
    --------
    Most records of the second cell have the value 1, as most others do.

    >>> cells = Sets(np.array([1, 0, 1], dtype=np.int32), np.array([1, 3]))
    >>> shares_of_sets(cells, np.array([90, 10]), np.array([0.0, 1.0])).round(2).tolist()
    [1.0, 0.11, 0.89]
    """
    sizes = cells.sizes
    starts = cells.ends - sizes
    owner = np.repeat(np.arange(sizes.size), sizes)
    rest = records - witnesses * sizes
    n_values = int(cells.codes.max(initial=0)) + 1
    known = np.bincount(cells.codes, weights=witnesses[owner], minlength=n_values)
    p: FloatArray = np.full(n_values, 1 / n_values)
    for _ in range(ITERATIONS):
        inside = np.add.reduceat(p[cells.codes], starts)
        expected = np.bincount(cells.codes, weights=(rest / inside)[owner], minlength=n_values)
        p = np.maximum((known + p * expected) / records.sum(), _LEAST)
    inside = np.add.reduceat(p[cells.codes], starts)
    found: FloatArray = witnesses[owner] + (rest / inside)[owner] * p[cells.codes]
    return found / records[owner]


def axis_of_ranges(
    low: FloatArray,
    high: FloatArray,
    records: IntArray,
    witnesses: FloatArray,
    *,
    is_whole: bool,
) -> Axis:
    """Find the distribution of numbers from the ranges in which they lie.

    Parameters
    ----------
    low, high : ndarray of float64, shape (n_cells,)
        The ends of the distinct ranges of a column; where numbers are whole, half a number below
        the least and above the greatest.
    records : ndarray of int64, shape (n_cells,)
    witnesses : ndarray of float64, shape (n_cells,)
        How many records are known to lie at either end; at most half of the range's.
    is_whole : bool
        Whether all numbers are whole.

    Examples
    --------
    Nine people are 20; of ten more, from 20 to 22, one is known to be 20, and one 22.

    >>> low, high = np.array([19.5, 19.5]), np.array([20.5, 22.5])
    >>> axis = axis_of_ranges(low, high, np.array([9, 10]), np.array([4.5, 1.0]), is_whole=True)
    >>> axis.middles.tolist(), axis.shares.round(2).tolist()
    ([20.0, 21.0, 22.0], [0.91, 0.0, 0.09])
    """
    edges = np.unique(np.concatenate([low, _apart(low, high)]))
    is_each = is_whole and edges[-1] - edges[0] <= MOST_PARTS
    if is_each:
        edges = np.arange(edges[0], edges[-1] + 1)
    elif edges.size > MOST_PARTS + 1:
        edges = edges[np.linspace(0, edges.size - 1, MOST_PARTS + 1).round().astype(np.int64)]
    n_parts = edges.size - 1
    axis = Axis(edges, np.diff(edges) / (edges[-1] - edges[0]), is_each)
    first, last = axis.parts_of(low, high)
    known = np.bincount(first, weights=witnesses, minlength=n_parts)
    known += np.bincount(last, weights=witnesses, minlength=n_parts)
    rest = records - 2 * witnesses
    p = axis.shares
    for _ in range(ITERATIONS):
        upto = np.concatenate([[0.0], np.cumsum(p)])
        weight = rest / np.maximum(upto[last + 1] - upto[first], _LEAST)
        change = np.bincount(first, weights=weight, minlength=n_parts + 1)
        change -= np.bincount(last + 1, weights=weight, minlength=n_parts + 1)
        p = (known + p * np.maximum(np.cumsum(change)[:-1], 0)) / records.sum()
        p = np.maximum(p / p.sum(), _LEAST)
    p = p / p.sum()
    if is_each:
        return Axis(edges, p, is_each)
    return _divided(edges, p, is_whole=is_whole)


def _apart(low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the upper ends, of single numbers a little above: they are parts of their own."""
    apart: FloatArray = np.where(high > low, high, low + _NARROW * (1 + np.abs(low)))
    return apart


def _divided(edges: FloatArray, p: FloatArray, *, is_whole: bool) -> Axis:
    """Divide parts evenly, the more the more records they hold, so that each is a small one."""
    times = np.maximum(1, np.floor(p * (MOST_PARTS - p.size))).astype(np.int64)
    times[np.diff(edges) <= _NARROW * (1 + np.abs(edges[:-1])) * MOST_PARTS] = 1
    if is_whole:
        times = np.minimum(times, np.diff(edges).astype(np.int64))
    inside = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    width = np.repeat(np.diff(edges), times)
    low = np.repeat(edges[:-1], times)
    step = inside * width / np.repeat(times, times)
    found = low + (np.floor(step) if is_whole else step)
    return Axis(np.append(found, edges[-1]), np.repeat(p / times, times), is_each=False)
