"""Rows as the numbers of their cells, whatever the order of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, Self

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.algorithms.ground.sorting import order_of, taken

CODES: Final = 2**63
"""What the digits of a row can be, in one number; and the base of codes of ends."""

_BLOCK: Final = 1 << 18
"""Rows that are written, and read, at a time; a larger class is written as several."""


@dataclass(frozen=True, eq=False)
class NumberedRows:
    """The rows of a view as numbers.

    Attributes
    ----------
    cells, others : sequence of str
        The columns of quasi-identifiers, and the other ones.
    sizes : ndarray of int64, shape (n_classes,)
    of_classes : list of ndarray of int, shape (n_classes,)
        Of each quasi-identifier the numbers of its cells, or their ends as codes; ascending.
        Classes that differ only in columns without either are one.
    of_rows : sequence of ndarray of uint16, shape (n_rows,)
        Of each other column; class by class, ascending.
    ends : frozenset of str
        Columns with ends.
    """

    cells: Sequence[str]
    others: Sequence[str]
    sizes: IntArray
    of_classes: Sequence[AnyIntArray]
    of_rows: Sequence[AnyIntArray]
    ends: frozenset[str]

    @classmethod
    def of(
        cls,
        cells: Sequence[str],
        others: Sequence[str],
        bases: Sequence[int],
        packed: list[IntArray],
        ends: frozenset[str] = frozenset(),
    ) -> Self | None:
        """Sort rows by the cells, then by the other columns; None where a cell has no number.

        Parameters
        ----------
        cells, others : sequence of str
        bases : sequence of int
            More than the largest digit of each column.
        packed : list of ndarray of int64, shape (n_rows,)
            The digits of the rows, as :func:`packing` groups the columns; it is emptied. A digit
            is a number, or a code of ends, plus 1; or 0.
        ends : frozenset of str
            Columns with ends.
        """
        groups = packing(bases)
        if len(groups) == 1:
            ordered = [packed.pop()]
            ordered[0].sort()  # which is faster than to sort by their order
        else:
            order = order_of(packed[-1])
            for digits in packed[-2::-1]:
                order = taken(order, order_of(taken(digits, order), stable=True))
            ordered = [taken(packed.pop(0), order) for _ in groups]
        n_rows, n_cells = ordered[0].size, len(cells)
        is_first = np.zeros(n_rows, dtype=np.bool_)
        is_first[:1] = True
        for (start, end), digits in zip(groups, ordered, strict=True):
            if start < n_cells:
                of_cells = digits // prod(bases[max(start, n_cells) : end])
                is_first[1:] |= of_cells[1:] != of_cells[:-1]
        firsts = np.flatnonzero(is_first)
        found: list[AnyIntArray] = []
        for (start, end), digits in zip(groups, ordered, strict=True):
            for column in range(start, end):
                shown = digits[firsts] if column < n_cells else digits
                numbers = shown // prod(bases[column + 1 : end])
                numbers = (numbers % bases[column] if column > start else numbers) - 1
                if numbers.min(initial=0) < 0:
                    return None
                is_code = column < n_cells and cells[column] in ends
                found.append(numbers if is_code else numbers.astype(np.uint16))
        sizes = np.diff(firsts, append=n_rows)
        return cls(cells, others, sizes, found[:n_cells], found[n_cells:], ends)

    def patterns(self, hidden: Sequence[int]) -> tuple[list[str], IntArray]:
        """Return the distinct patterns of suppressed cells, and which of them each class has.

        Parameters
        ----------
        hidden : sequence of int
            The number of the suppressed cells of each quasi-identifier; -1 if there are none.

        Returns
        -------
        patterns : list of str
        pattern_of_class : ndarray of int64, shape (n_classes,)
        """
        stars = np.zeros(self.sizes.size, dtype=np.int64)
        for place, number in enumerate(hidden):
            if number >= 0:
                stars |= (self.of_classes[place] == number).astype(np.int64) << place
        found, pattern_of_class = np.unique(stars, return_inverse=True)
        texts = [
            "".join("*" if mask >> place & 1 else "." for place in range(len(hidden)))
            for mask in found.tolist()
        ]
        return texts, pattern_of_class

    def blocks(self) -> Iterator[tuple[int, dict[str, bytes]]]:
        """Return the number of each block, and the bytes of each column in it, by its name.

        The sizes of classes are those of the column ``""``.
        """
        class_of, sizes = self._parts()
        ends = np.cumsum(sizes)
        number, first, first_row = 0, 0, 0
        while first < sizes.size:
            last = int(np.searchsorted(ends, first_row + _BLOCK, side="right"))
            last_row = int(ends[last - 1])
            some = class_of[first:last]
            written = {"": sizes[first:last].astype("<u4").tobytes()}
            for name, numbers in zip(self.cells, self.of_classes, strict=True):
                width = "<i8" if name in self.ends else "<u2"
                written[name] = numbers[some].astype(width).tobytes()
            for name, of_rows in zip(self.others, self.of_rows, strict=True):
                written[name] = of_rows[first_row:last_row].astype("<u2").tobytes()
            yield number, written
            number, first, first_row = number + 1, last, last_row

    def _parts(self) -> tuple[IntArray, IntArray]:
        """Divide classes larger than a block; the class of each part, and its size."""
        n_parts = -(-self.sizes // _BLOCK)
        class_of = np.repeat(np.arange(self.sizes.size), n_parts)
        sizes = np.full(class_of.size, _BLOCK, dtype=np.int64)
        sizes[np.cumsum(n_parts) - 1] = self.sizes - (n_parts - 1) * _BLOCK
        return class_of, sizes

    def records(self) -> Iterator[tuple[str, IntArray]]:
        """Return how many rows have each cell of a column, by its name; of ends, the one of all."""
        for name, numbers in zip(self.cells, self.of_classes, strict=True):
            own = np.zeros_like(numbers) if name in self.ends else numbers
            yield name, np.bincount(own, self.sizes).astype(np.int64)
        for name, of_rows in zip(self.others, self.of_rows, strict=True):
            yield name, np.bincount(of_rows)


def packing(bases: Sequence[int]) -> list[tuple[int, int]]:
    """Group columns so that the digits of each group are those of one number of 63 bits.

    Returns
    -------
    list of (int, int)
        The first column of each group, and that after its last; one empty group of no columns.

    Examples
    --------
    >>> packing([2**20, 2**40, 2**4, 2]), packing([])
    ([(0, 2), (2, 4)], [(0, 0)])
    """
    groups, start = [], 0
    for end in range(1, 1 + len(bases)):
        if prod(bases[start:end]) > CODES:
            groups.append((start, end - 1))
            start = end - 1
    return [*groups, (start, len(bases))]


def packed_rows(
    bases: Sequence[int],
    of_classes: Sequence[AnyIntArray],
    class_of_row: AnyIntArray,
    of_rows: Sequence[AnyIntArray],
) -> list[IntArray]:
    """Pack the numbers of each row as digits, each plus 1; see :func:`packing`.

    Parameters
    ----------
    bases : sequence of int
        More than the largest digit of each column.
    of_classes : sequence of ndarray of int, shape (n_classes,)
        The columns whose numbers follow from a row's class; they come first.
    class_of_row : ndarray of int, shape (n_rows,)
    of_rows : sequence of ndarray of int, shape (n_rows,)
        The other columns.

    Examples
    --------
    >>> packed_rows([5, 9], [np.array([3, 0])], np.array([0, 0, 1]), [np.array([7, 1, 2])])
    [array([44, 38, 12])]
    """
    packed = []
    for start, end in packing(bases):
        n_own = max(min(end, len(of_classes)) - start, 0)
        digits = _appended(
            np.zeros(of_classes[0].size if of_classes else 1, dtype=np.int64),
            of_classes[start : start + n_own],
            bases[start : start + n_own],
        )
        digits = digits[class_of_row] if n_own else np.zeros(class_of_row.size, dtype=np.int64)
        first = start + n_own
        others = of_rows[first - len(of_classes) : end - len(of_classes)] if end > first else []
        packed.append(_appended(digits, others, bases[first:end]))
    return packed


def _appended(digits: IntArray, columns: Sequence[AnyIntArray], bases: Sequence[int]) -> IntArray:
    for column, base in zip(columns, bases, strict=True):
        digits *= min(base, CODES - 1)  # where a base is larger, the digits before are 0
        digits += column
        digits += 1
    return digits
