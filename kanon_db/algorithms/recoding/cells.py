"""Cells of generalized rows: ranges of numbers and sets of categories that cover several values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, CodeArray, IntArray
from kanon_db.algorithms.ground.distinct import distinct
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.ground.scattering import scattered
from kanon_db.algorithms.ground.sorting import order_of
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata


@dataclass(frozen=True, eq=False)
class Ranges:
    """The cells of a numeric attribute.

    Parameters
    ----------
    low, high : ndarray of int32, shape (n_cells,)
        Code of the smallest and of the largest number that is covered. Both are NULL's code where
        NULL alone is.
    tells_nothing : ndarray of bool, shape (n_cells,)
        Whether numbers and NULL are covered: then the cell is the whole domain.
    """

    low: CodeArray
    high: CodeArray
    tells_nothing: BoolArray

    @property
    def n_cells(self) -> int:
        """How many there are."""
        return self.low.size

    def taken(self, some: slice | AnyIntArray) -> Ranges:
        """Return some of them, in the order of their places."""
        return Ranges(self.low[some], self.high[some], self.tells_nothing[some])


@dataclass(frozen=True, eq=False)
class Sets:
    """The cells of a categorical attribute.

    Parameters
    ----------
    codes : ndarray of int32, shape (total,)
        The distinct codes of each cell, ascending, cell after cell.
    ends : ndarray of int64, shape (n_cells,)
        Where the next cell begins.
    """

    codes: CodeArray
    ends: IntArray

    @property
    def sizes(self) -> IntArray:
        """Number of codes of each cell."""
        return np.diff(self.ends, prepend=0)

    @property
    def n_cells(self) -> int:
        """How many there are."""
        return self.ends.size

    def taken(self, some: slice | AnyIntArray) -> Sets:
        """Return some of them, in the order of their places.

        Examples
        --------
        >>> cells = Sets(np.array([7, 8, 9], dtype=np.int32), np.array([1, 3]))
        >>> found = cells.taken(np.array([1, 0]))
        >>> found.codes.tolist(), found.ends.tolist()
        ([8, 9, 7], [2, 3])
        """
        if isinstance(some, slice):
            some = np.arange(*some.indices(self.n_cells))
        last = self.ends[some]
        sizes = last - np.where(some > 0, self.ends[some - 1], 0)
        ends = np.cumsum(sizes)
        places = np.arange(int(sizes.sum())) + np.repeat(last - ends, sizes)
        return Sets(self.codes[places], ends)


class NumberedCells(NamedTuple):
    """The cells of an attribute, of which many are the same.

    Parameters
    ----------
    cells : Ranges or Sets
        Each of them once.
    numbers : ndarray of int, shape (n_cells,)
        Which of them each cell is; of the narrowest signed type that holds ``cells.n_cells``.
    """

    cells: Ranges | Sets
    numbers: AnyIntArray

    @property
    def n_cells(self) -> int:
        """How many there are, those that are the same included."""
        return self.numbers.size

    def taken(self, some: slice | AnyIntArray) -> Ranges | Sets:
        """Return some of them, in the order of their places."""
        return self.cells.taken(self.numbers[some])


def cells_of_classes(
    microdata: Microdata, class_of_record: AnyIntArray, pulse: Pulse = UNLIMITED
) -> tuple[Ranges | Sets, ...]:
    """Generalize each equivalence class to what covers its records, as tightly as possible.

    Parameters
    ----------
    microdata : Microdata
    class_of_record : ndarray of int, shape (n_records,)
        Classes numbered from 0 without gaps; -1 for a suppressed record, which no cell covers.
    pulse : Pulse
        Only its heartbeat is used, before each attribute.

    Returns
    -------
    tuple of Ranges or Sets, length m
        Cells of each attribute: ranges of a numeric one, sets of a categorical one.

    Notes
    -----
    **Source:** [OB] Section 2.2. A numeric cell with NULLs and numbers tells nothing
    (:class:`~kanon_db.algorithms.recoding.microdata.Attribute`).

    Examples
    --------
    >>> age = Attribute(3, numbers=np.array([20.0, 40.0, np.nan]), lower=20, upper=40)
    >>> table = Microdata([[0, 1], [1, 0], [2, 1], [2, 1]], (age, Attribute(2)))
    >>> ages, jobs = cells_of_classes(table, np.array([0, 0, 1, 0]))
    >>> ages.low.tolist(), ages.high.tolist(), ages.tells_nothing.tolist()
    ([0, 2], [1, 2], [True, False])
    >>> jobs.codes.tolist(), jobs.ends.tolist()
    ([0, 1, 1], [2, 3])
    """
    order = order_of(class_of_record + 1, stable=True)
    order = order[np.count_nonzero(class_of_record < 0) :]
    classes = class_of_record[order].astype(np.int64)
    starts = np.flatnonzero(np.diff(classes, prepend=-1))
    result: list[Ranges | Sets] = []
    for j, attribute in enumerate(microdata.attributes):
        pulse.beat()
        codes = microdata.codes[order, j]
        if attribute.numbers is None:
            keys = distinct(classes * attribute.n_values + codes)
            owners, members = np.divmod(keys, attribute.n_values)
            ends = np.cumsum(np.bincount(owners, minlength=starts.size))
            result.append(Sets(members.astype(np.int32), ends))
        else:
            result.append(_ranges(attribute, codes, starts))
    return tuple(result)


def distinct_cells(cells: Ranges | Sets) -> NumberedCells:
    """Find the cells that differ.

    Parameters
    ----------
    cells : Ranges or Sets
        Of an attribute; no set is empty.

    Returns
    -------
    NumberedCells
        Each of them once, in an order that follows from what they cover.

    Notes
    -----
    Sets are told apart by sums of a number that each code has. Should different sets have the same
    sum, which takes luck, all cells are kept as they are.

    Examples
    --------
    >>> sets = Sets(np.array([1, 2, 0, 1, 2], dtype=np.int32), np.array([2, 3, 5]))
    >>> found, numbers = distinct_cells(sets)
    >>> numbers.tolist() in ([0, 1, 0], [1, 0, 1]), sorted(found.sizes.tolist())
    (True, [1, 2])
    """
    if isinstance(cells, Ranges):
        covered = (cells.low.astype(np.int64) << 32) | (cells.high.astype(np.int64) << 1)
        covered[cells.tells_nothing] = 1  # whatever its codes are
        first, numbers = _numbered(covered)
        return NumberedCells(cells.taken(first), numbers)
    if not cells.n_cells:
        return NumberedCells(cells, _narrow(cells.ends))
    sizes = cells.sizes
    starts = cells.ends - sizes
    first, numbers = _numbered(np.add.reduceat(scattered(cells.codes), starts).view(np.int64))
    if not (sizes == sizes[first[numbers]]).all():
        return NumberedCells(cells, _narrow(np.arange(sizes.size)))
    # Where the codes of the first set that is the same begin, beside those of each.
    places = np.arange(cells.codes.size) + np.repeat(starts[first[numbers]] - starts, sizes)
    if not (cells.codes == cells.codes[places]).all():
        return NumberedCells(cells, _narrow(np.arange(sizes.size)))
    return NumberedCells(cells.taken(first), numbers)


def joined_cells(parts: Sequence[Ranges | Sets]) -> Ranges | Sets:
    """Put the cells of an attribute one after the other.

    Parameters
    ----------
    parts : sequence of Ranges, or of Sets
        At least one.
    """
    ranges = [part for part in parts if isinstance(part, Ranges)]
    if ranges:
        return Ranges(
            np.concatenate([part.low for part in ranges]),
            np.concatenate([part.high for part in ranges]),
            np.concatenate([part.tells_nothing for part in ranges]),
        )
    sets = [part for part in parts if isinstance(part, Sets)]
    sizes = np.concatenate([part.sizes for part in sets])
    return Sets(np.concatenate([part.codes for part in sets]), np.cumsum(sizes))


def _numbered(keys: IntArray) -> tuple[IntArray, AnyIntArray]:
    """Give the distinct keys numbers in order; return where each is first, and all numbers."""
    order = np.argsort(keys)
    is_new = np.ones(keys.size, dtype=np.bool_)
    is_new[1:] = keys[order[1:]] != keys[order[:-1]]
    in_order = _narrow(np.cumsum(is_new) - 1)
    numbers = np.empty_like(in_order)
    numbers[order] = in_order
    return order[is_new], numbers


def _narrow(ascending: IntArray) -> AnyIntArray:
    """Take the narrowest signed type that holds all numbers, and one more than the last."""
    return ascending.astype(np.min_scalar_type(-2 - int(ascending[-1]) if ascending.size else -1))


def _ranges(attribute: Attribute, codes: CodeArray, starts: IntArray) -> Ranges:
    """Cover the codes of each class; the classes lie one after the other."""
    if not starts.size:
        return Ranges(codes, codes, np.zeros(0, dtype=np.bool_))
    assert attribute.numbers is not None  # noqa: S101  # for the type checker
    # NULL's code is the last one: it is the smallest where there is no number.
    low = np.minimum.reduceat(codes, starts)
    if not np.isnan(attribute.numbers).any():
        return Ranges(low, np.maximum.reduceat(codes, starts), np.zeros(starts.size, np.bool_))
    is_null = np.isnan(attribute.numbers)[codes]
    high = np.maximum.reduceat(np.where(is_null, np.int32(-1), codes), starts)
    with_null = np.logical_or.reduceat(is_null, starts)
    return Ranges(low, np.maximum(low, high), with_null & (high >= 0))
