"""Values of a categorical attribute whose sets have labels: a tree of what each label stands for.

The search takes the values as places on an axis, in the order of the tree, where two neighbours are
the further apart the higher the label is that they first share. A class is generalized to the
lowest label that covers all of its values: LeFevre, DeWitt and Ramakrishnan, "Incognito" (2005) and
"Mondrian" (2006), where recodings of ordered and of hierarchical domains are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray, IntArray

_TIMES: Final = 3.0
"""How many times further apart values are that share only the next label; more would not fit."""


@dataclass(frozen=True, eq=False)
class Taxonomy:
    """The labels of values that lie in the order of the tree.

    Attributes
    ----------
    lasts : ndarray of int64, shape (n_levels, n_values)
        The last value that has the same label as each value, at each level; that of values
        themselves is level 0, and that of all values together the last one.
    firsts : ndarray of int64, shape (n_levels, n_values)
    """

    firsts: IntArray
    lasts: IntArray

    @classmethod
    def of(cls, levels: Sequence[Sequence[str]]) -> Self:
        """Read the labels of each value at each level; those of a label follow each other.

        Examples
        --------
        >>> tree = Taxonomy.of([["x", "x", "y", "y"]])
        >>> tree.positions.tolist()
        [0.0, 1.0, 4.0, 5.0]
        >>> tree.levels_of(np.array([0, 0, 1]), np.array([0, 1, 2])).tolist()
        [0, 1, 2]
        """
        n = len(levels[0])
        places = np.arange(n)
        firsts, lasts = [places], [places]
        for level in (*levels, [""] * n):
            starts = np.array([i == 0 or level[i] != level[i - 1] for i in range(n)])
            begin = np.flatnonzero(starts)
            ends = np.append(begin[1:], n) - 1
            number = np.cumsum(starts) - 1
            firsts.append(begin[number])
            lasts.append(ends[number])
        return cls(np.array(firsts), np.array(lasts))

    @property
    def n_values(self) -> int:
        """Number of values."""
        return int(self.lasts.shape[1])

    @property
    def positions(self) -> FloatArray:
        """Where each value lies on the axis."""
        shared = self.levels_of(np.arange(self.n_values - 1), np.arange(1, self.n_values))
        return np.concatenate([[0.0], np.cumsum(_TIMES ** (shared - 1.0))])

    def levels_of(self, low: AnyIntArray, high: AnyIntArray) -> IntArray:
        """Return the lowest level at which two values, and all between them, have one label.

        Parameters
        ----------
        low, high : ndarray of int, shape (n,)
            Places of values; ``low <= high``.
        """
        found: IntArray = np.argmax(self.lasts[:, low] >= high, axis=0)
        return found

    def spans_of(self, low: AnyIntArray, high: AnyIntArray) -> tuple[IntArray, IntArray]:
        """Return the first and the last value that this label stands for."""
        level = self.levels_of(low, high)
        return self.firsts[level, low], self.lasts[level, low]

    def losses_of(self, low: AnyIntArray, high: AnyIntArray) -> FloatArray:
        """Return what is lost: (n - 1) / (N - 1), if the label stands for n of N values."""
        first, last = self.spans_of(low, high)
        losses: FloatArray = (last - first) / max(self.n_values - 1, 1)
        return losses
