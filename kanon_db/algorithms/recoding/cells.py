"""Cells of generalized rows: ranges of numbers and sets of categories that cover several values."""

from __future__ import annotations

from dataclasses import dataclass

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


def distinct_cells(cells: Ranges | Sets) -> tuple[Ranges | Sets, IntArray]:
    """Find the cells that differ.

    Parameters
    ----------
    cells : Ranges or Sets
        Of an attribute; no set is empty.

    Returns
    -------
    cells : Ranges or Sets
        Each of them once, in an order that follows from what they cover.
    numbers : ndarray of int64, shape (n_cells,)
        Which of them each cell is.

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
        return Ranges(cells.low[first], cells.high[first], cells.tells_nothing[first]), numbers
    if not cells.ends.size:
        return cells, cells.ends
    sizes = cells.sizes
    starts = cells.ends - sizes
    first, numbers = _numbered(np.add.reduceat(scattered(cells.codes), starts).view(np.int64))
    if not (sizes == sizes[first[numbers]]).all():
        return cells, np.arange(sizes.size)
    # Where the codes of the first set that is the same begin, beside those of each.
    places = np.arange(cells.codes.size) + np.repeat(starts[first[numbers]] - starts, sizes)
    if not (cells.codes == cells.codes[places]).all():
        return cells, np.arange(sizes.size)
    ends = np.cumsum(sizes[first])
    kept = np.arange(ends[-1]) + np.repeat(starts[first] - (ends - sizes[first]), sizes[first])
    return Sets(cells.codes[kept], ends), numbers


def _numbered(keys: IntArray) -> tuple[IntArray, IntArray]:
    """Give the distinct keys numbers in order; return where each is first, and all numbers."""
    order = np.argsort(keys)
    is_new = np.ones(keys.size, dtype=np.bool_)
    is_new[1:] = keys[order[1:]] != keys[order[:-1]]
    numbers = np.empty(keys.size, dtype=np.int64)
    numbers[order] = np.cumsum(is_new) - 1
    return order[is_new], numbers


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
