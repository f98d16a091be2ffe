"""Cuts of a table, which tell the cell of a record by its quasi-identifiers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray


@dataclass(frozen=True)
class Cut:
    """A condition ``code <= last`` on one attribute.

    Attributes
    ----------
    attribute : int
        Its position.
    last : int
        The last code on the lower side.
    """

    attribute: int
    last: int


@dataclass(frozen=True, eq=False)
class CutTree:
    """Cuts of cuts, which tell the cell of a record by its codes alone.

    Attributes
    ----------
    attribute, last : ndarray of int32, shape (n_places,)
        The cut at each place, from the root on; any at a place that is a cell.
    below : ndarray of int32, shape (n_places, 2)
        Where its lower and its upper side are; a cell is below itself.
    cell : ndarray of int32, shape (n_places,)
        The number of the cell; -1 where there is a cut.
    """

    attribute: CodeArray
    last: CodeArray
    below: CodeArray
    cell: CodeArray

    @classmethod
    def of(
        cls,
        cuts: Sequence[Cut | None],
        sides: Sequence[tuple[int, int]],
        numbers: Mapping[int, int],
    ) -> CutTree:
        """Make a tree of the cuts at each place, where their sides are, and numbers of cells."""
        return cls(
            np.array([0 if cut is None else cut.attribute for cut in cuts], dtype=np.int32),
            np.array([0 if cut is None else cut.last for cut in cuts], dtype=np.int32),
            np.array(
                [
                    (place, place) if cut is None else below
                    for place, (cut, below) in enumerate(zip(cuts, sides, strict=True))
                ],
                dtype=np.int32,
            ).reshape(-1, 2),
            np.array([numbers.get(place, -1) for place in range(len(cuts))], dtype=np.int32),
        )

    def cell_of(self, codes: CodeArray) -> CodeArray:
        """Find the cells of records, given codes of shape (n_records, n_qi).

        Examples
        --------
        >>> tree = CutTree.of([Cut(0, 1), None, None], [(1, 2), (-1, -1), (-1, -1)], {1: 0, 2: 1})
        >>> tree.cell_of(np.array([[0], [1], [2]], dtype=np.int32)).tolist()
        [0, 0, 1]
        """
        places = np.zeros(len(codes), dtype=np.int32)
        records = np.arange(len(codes))
        while (self.cell[places] < 0).any():
            is_upper = codes[records, self.attribute[places]] > self.last[places]
            places = self.below[places, is_upper.astype(np.int8)]
        found: CodeArray = self.cell[places]
        return found
