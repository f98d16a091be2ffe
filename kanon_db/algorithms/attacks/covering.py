"""Which published rows may be a person's, and which people may be a row's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
)
from kanon_db.algorithms.recoding.cells import Ranges, Sets


class Covering:
    """Classes of rows with the same cells.

    Parameters
    ----------
    cells : sequence of Ranges or Sets
        The distinct cells of each quasi-identifier.
    cell_of_class : ndarray of int, shape (n_classes, n_qi)
        Which of them each class has.
    n_codes : sequence of int
        How many values each quasi-identifier has.
    """

    def __init__(
        self,
        cells: Sequence[Ranges | Sets],
        cell_of_class: AnyIntArray,
        n_codes: Sequence[int],
    ) -> None:
        self.cells = cells
        self.cell_of_class = cell_of_class
        self.n_codes = n_codes
        self._low_high = [
            _ends(c, n)[:, cell_of_class[:, a]] if isinstance(c, Ranges) else None
            for a, (c, n) in enumerate(zip(cells, n_codes, strict=True))
        ]
        self._cells_of_code = [_inverted(c, n) for c, n in zip(cells, n_codes, strict=True)]
        width = [_mean_size(c, n) / n for c, n in zip(cells, n_codes, strict=True)]
        self._narrowest_first = np.argsort(width, kind="stable").tolist()

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return int(self.cell_of_class.shape[0])

    def classes_of(self, codes: AnyIntArray) -> IntArray:
        """Return the classes whose cells cover a person, ascending.

        Parameters
        ----------
        codes : ndarray of int, shape (n_qi,)
            The person's quasi-identifiers.
        """
        found: IntArray | slice = slice(None)
        for attribute in self._narrowest_first:
            code, ends = int(codes[attribute]), self._low_high[attribute]
            if ends is not None:
                inside = (ends[0, found] <= code) & (code <= ends[1, found])
            else:
                has = self._having(attribute, code)
                inside = has[self.cell_of_class[found, attribute]]
            kept = np.flatnonzero(inside)
            found = kept if isinstance(found, slice) else found[kept]
        return found if not isinstance(found, slice) else np.arange(self.n_classes)

    def people_of(self, number: int, codes: CodeArray) -> IntArray:
        """Return the people whom the cells of a class cover, ascending.

        Parameters
        ----------
        number : int
            The class.
        codes : ndarray of int32, shape (n_people, n_qi)
            The people's quasi-identifiers.
        """
        found: IntArray | slice = slice(None)
        for attribute in self._narrowest_first:
            column, ends = codes[found, attribute], self._low_high[attribute]
            if ends is not None:
                inside = (ends[0, number] <= column) & (column <= ends[1, number])
            else:
                inside = self.values_of(number, attribute)[column]
            kept = np.flatnonzero(inside)
            found = kept if isinstance(found, slice) else found[kept]
        return found if not isinstance(found, slice) else np.arange(codes.shape[0])

    def values_of(self, number: int, attribute: int) -> BoolArray:
        """Return which values of an attribute the cell of a class covers, shape (n_codes,)."""
        covered = np.zeros(self.n_codes[attribute], dtype=np.bool_)
        cells, cell = self.cells[attribute], int(self.cell_of_class[number, attribute])
        if isinstance(cells, Sets):
            start = int(cells.ends[cell - 1]) if cell else 0
            covered[cells.codes[start : cells.ends[cell]]] = True
        else:
            ends = self._low_high[attribute]
            assert ends is not None  # noqa: S101  # for the type checker
            covered[ends[0, number] : ends[1, number] + 1] = True
        return covered

    def _having(self, attribute: int, code: int) -> BoolArray:
        inverted = self._cells_of_code[attribute]
        cells = self.cells[attribute]
        assert inverted is not None  # noqa: S101  # for the type checker
        assert isinstance(cells, Sets)  # noqa: S101  # the same
        starts, members = inverted
        has = np.zeros(cells.ends.size, dtype=np.bool_)
        has[members[starts[code] : starts[code + 1]]] = True
        return has


def spread_values(
    cells: Ranges | Sets,
    cell: IntArray,
    value: IntArray,
    count: FloatArray,
    bin_of_code: IntArray,
    n_values: int,
) -> FloatArray:
    """Count how often bins of codes go with values, if each cell spreads evenly over its codes.

    Parameters
    ----------
    cells : Ranges or Sets
    cell, value : ndarray of int64, shape (n,)
        Cells of rows, each with a sensitive value.
    count : ndarray of float64, shape (n,)
        How many rows have both.
    bin_of_code : ndarray of int64, shape (n_codes,)
        Not decreasing, from 0 without gaps.
    n_values : int

    Returns
    -------
    ndarray of float64, shape (n_bins, n_values)

    Examples
    --------
    >>> cells = Ranges(np.array([0, 1]), np.array([1, 1]), np.array([False, False]))
    >>> one = np.ones(2)
    >>> spread_values(cells, np.array([0, 1]), np.array([0, 1]), one, np.arange(2), 2).tolist()
    [[0.5, 0.0], [0.5, 1.0]]
    """
    n_bins = int(bin_of_code[-1]) + 1
    size = (n_bins + 1) * n_values
    if isinstance(cells, Sets):
        joint: FloatArray = np.zeros(size)
        for at, owner, codes in _members(cells, cell):
            weights = (count[at] / np.maximum(cells.sizes[cell[at]], 1))[owner]
            pairs = bin_of_code[codes] * n_values + value[at][owner]
            joint = joint + np.bincount(pairs, weights, size)
        return joint[: n_bins * n_values].reshape(n_bins, n_values)
    ends = _ends(cells, bin_of_code.size)[:, cell]
    covers = ends[0] <= ends[1]  # not so for values that the source no longer has
    low, high = bin_of_code[ends[:, covers]]
    value, count = value[covers], count[covers]
    share = count / (high - low + 1)
    begins = np.bincount(low * n_values + value, share, size)
    steps = begins - np.bincount((high + 1) * n_values + value, share, size)
    spread: FloatArray = np.cumsum(steps.reshape(n_bins + 1, n_values), axis=0)[:n_bins]
    return np.maximum(spread, 0)  # sums that cancel leave a rounding error


def masses_of_cells(
    cells: Ranges | Sets,
    cell: IntArray,
    value: IntArray,
    bin_of_code: IntArray,
    table: FloatArray,
) -> FloatArray:
    """Add up what a table has for the bins that cells cover.

    Parameters
    ----------
    cells, cell, value, bin_of_code
        As for :func:`spread_values`.
    table : ndarray of float64, shape (n_bins, n_values)

    Returns
    -------
    ndarray of float64, shape (n,)
        1 for a cell that covers no code.

    Examples
    --------
    >>> cells = Ranges(np.array([0, 1]), np.array([1, 1]), np.array([False, False]))
    >>> table = np.array([[0.25, 0.5], [0.75, 0.125]])
    >>> value = np.array([0, 1])
    >>> masses_of_cells(cells, np.array([0, 1]), value, np.arange(2), table).tolist()
    [1.0, 0.125]
    """
    masses = np.zeros(cell.size)
    if isinstance(cells, Sets):
        for at, owner, codes in _members(cells, cell):
            weights = table[bin_of_code[codes], value[at][owner]]
            masses[at] = np.bincount(owner, weights, at.stop - at.start)
    else:
        ends = _ends(cells, bin_of_code.size)[:, cell]
        covers = ends[0] <= ends[1]
        low, high = bin_of_code[ends[:, covers]]
        sums = np.concatenate([np.zeros((1, table.shape[1])), np.cumsum(table, axis=0)])
        masses[covers] = sums[high + 1, value[covers]] - sums[low, value[covers]]
    return np.where(masses > 0, masses, 1)


_CODES_PER_BLOCK = 2**21


def _members(cells: Sets, cell: IntArray) -> Iterator[tuple[slice, IntArray, CodeArray]]:
    """List the codes of many cells, a block of some million codes at a time.

    Yields
    ------
    at : slice
        The cells of the block.
    owner : ndarray of int64
        Which of them each code belongs to, from 0.
    codes : ndarray of int32
    """
    starts = np.append(0, cells.ends)
    sizes = cells.sizes[cell]
    sums = np.cumsum(sizes)
    first = 0
    while first < cell.size:
        base = sums[first - 1] if first else 0
        end = max(first + 1, int(np.searchsorted(sums, base + _CODES_PER_BLOCK)))
        at = slice(first, end)
        owner = np.repeat(np.arange(end - first), sizes[at])
        rank = np.arange(owner.size) - np.repeat(np.cumsum(sizes[at]) - sizes[at], sizes[at])
        yield at, owner, cells.codes[starts[cell[at]][owner] + rank]
        first = end


def _ends(cells: Ranges, n_codes: int) -> IntArray:
    """Return the first and the last code of each range, shape (2, n_cells)."""
    low = np.where(cells.tells_nothing, 0, cells.low)
    return np.stack([low, np.where(cells.tells_nothing, n_codes - 1, cells.high)]).astype(np.int64)


def _inverted(cells: Ranges | Sets, n_codes: int) -> tuple[IntArray, IntArray] | None:
    """Return the sets that have each code: where they begin, and the sets."""
    if isinstance(cells, Ranges):
        return None
    order = np.argsort(cells.codes, kind="stable")
    owners = np.repeat(np.arange(cells.ends.size), cells.sizes)
    return np.searchsorted(cells.codes[order], np.arange(n_codes + 1)), owners[order]


def _mean_size(cells: Ranges | Sets, n_codes: int) -> float:
    if isinstance(cells, Sets):
        return float(cells.sizes.mean()) if cells.ends.size else 0.0
    low, high = _ends(cells, n_codes)
    return float((high - low + 1).mean()) if low.size else 0.0
