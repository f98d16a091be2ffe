"""What the distinct cells of a column tell together of the values in each of them.

Of the records that have a cell in common, some are known to have a certain value of it (its
*witnesses*); how likely the others have each value follows from all cells
(:mod:`~kanon_db.algorithms.recoding.cell_shares`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.algorithms.recoding.cell_shares import Axis, axis_of_ranges, shares_of_sets
from kanon_db.algorithms.recoding.cells import Sets

MOST_CELLS: Final = 50_000
"""Distinct cells of a column, and values in its sets: with more, all values are as likely."""

_LARGEST: Final = 2.0**51
"""Half a number below a whole one is as exact up to there; beyond, all values are as likely."""


@dataclass(frozen=True, eq=False)
class KnownSets:
    """What is known of a column of sets.

    Attributes
    ----------
    shares : ndarray of float64, shape (total,)
        Of each value of each cell, in the order of the cells and of their values.
    known : ndarray of float64, shape (n_cells,)
        The share of each cell's records whose value is known.
    """

    shares: FloatArray
    known: FloatArray

    @classmethod
    def of(
        cls, cells: Sets, records: IntArray, witnesses: FloatArray, *, is_tight: bool
    ) -> KnownSets | None:
        """Share out the records of each cell; None if there are too many values.

        Parameters
        ----------
        cells : Sets
            The distinct cells.
        records : ndarray of int64, shape (n_cells,)
            How many records have each.
        witnesses : ndarray of float64, shape (n_cells,)
            How many of these are known to have any one value, at least.
        is_tight : bool
            Whether each value is that of a record at all.
        """
        if not records.size or cells.codes.size > MOST_CELLS:
            return None
        witnesses = np.minimum(witnesses, records / cells.sizes) * is_tight
        shares = shares_of_sets(cells, records, witnesses)
        return cls(shares, witnesses * cells.sizes / records)


@dataclass(frozen=True, eq=False)
class KnownRanges:
    """What is known of a column of ranges.

    Attributes
    ----------
    axis : Axis
    first, last : ndarray of int64, shape (n_cells,)
        The parts of the axis that each range covers, from 0.
    own : ndarray of float64, shape (n_cells,)
        The share of its records that are known to be at either end.
    is_each : bool
        Whether each part is one value of the column.
    """

    axis: Axis
    first: IntArray
    last: IntArray
    own: FloatArray
    is_each: bool

    @classmethod
    def of(
        cls,
        low: FloatArray,
        high: FloatArray,
        records: IntArray,
        witnesses: FloatArray,
        *,
        is_tight: bool,
        is_discrete: bool,
    ) -> KnownRanges | None:
        """Find the distribution of a column's numbers; None if they are not exact enough.

        Parameters
        ----------
        low, high : ndarray of float64, shape (n_cells,)
            The ends of the distinct ranges; where the values are whole numbers, half a number below
            the least and above the greatest.
        records, witnesses, is_tight
            As of :meth:`KnownSets.of`; witnesses are those of either end.
        is_discrete : bool
            Whether all values are whole numbers.
        """
        if not records.size or max(np.abs(low).max(), np.abs(high).max()) > _LARGEST:
            return None
        witnesses = np.minimum(witnesses, records / 2) * is_tight
        is_whole = is_discrete
        if (
            is_tight
            and not is_whole
            and (low == np.floor(low)).all()
            and (high == np.floor(high)).all()
        ):
            # Whole numbers of another type: what lies between them does not occur.
            is_whole, low, high = True, low - 0.5, high + 0.5
        axis = axis_of_ranges(low, high, records, witnesses, is_whole=is_whole)
        first, last = axis.parts_of(low, high)
        return cls(axis, first, last, witnesses / records, axis.is_each and is_discrete)
