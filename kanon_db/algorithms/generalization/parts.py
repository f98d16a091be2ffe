"""Parts of a table too large for one machine, from counts alone: as Mondrian cuts, or at gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Self

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.algorithms.recoding.ncp import Ncp, Units

NO_CUT = -1

_FEWEST = 8
"""One side of a cut at a gap has at least one record in so many."""


@dataclass(frozen=True)
class Cut:
    """Where a part is cut in two.

    Attributes
    ----------
    attribute : int
    last : int
        The largest code of the lower side.
    n_lower : int
        Records of the lower side.
    """

    attribute: int
    last: int
    n_lower: int


class CutTree:
    """Which part each record is in, by the cuts that were made.

    Attributes
    ----------
    sizes : list of int
        Records of each node; the first one is the whole table.

    Examples
    --------
    >>> tree = CutTree(5)
    >>> tree.cut(0, Cut(0, 2, 3))
    (1, 2)
    >>> tree.nodes_of(np.array([[4, 0], [2, 1], [1, 1]])).tolist(), tree.leaves
    ([2, 1, 1], [1, 2])
    """

    def __init__(self, n_records: int) -> None:
        self.sizes = [n_records]
        self._attribute = [NO_CUT]
        self._last = [0]
        self._lower = [0]

    def cut(self, node: int, cut: Cut) -> tuple[int, int]:
        """Cut a part in two, and return both sides."""
        lower = len(self.sizes)
        self._attribute[node], self._last[node], self._lower[node] = cut.attribute, cut.last, lower
        self.sizes += [cut.n_lower, self.sizes[node] - cut.n_lower]
        for known, value in ((self._attribute, NO_CUT), (self._last, 0), (self._lower, 0)):
            known += [value, value]
        return lower, lower + 1

    def undo(self, node: int) -> None:
        """Make a part whole again whose sides have not been cut; their numbers are not used."""
        self._attribute[node] = NO_CUT

    @property
    def leaves(self) -> list[int]:
        """The parts that are not cut, from the lower to the upper sides."""
        found, stack = [], [0]
        while stack:
            node = stack.pop()
            if self._attribute[node] == NO_CUT:
                found.append(node)
            else:
                stack += [self._lower[node] + 1, self._lower[node]]
        return found

    def nodes_of(self, codes: AnyIntArray) -> IntArray:
        """Return the part of each record.

        Parameters
        ----------
        codes : ndarray of int, shape (n, m)

        Returns
        -------
        ndarray of int64, shape (n,)
        """
        attribute, last, lower = map(np.array, (self._attribute, self._last, self._lower))
        nodes = np.zeros(codes.shape[0], dtype=np.int64)
        while True:
            inside = np.flatnonzero(attribute[nodes] != NO_CUT)
            if not inside.size:
                return nodes
            at = nodes[inside]
            is_upper = codes[inside, attribute[at]] > last[at]
            nodes[inside] = lower[at] + is_upper


@dataclass(frozen=True, eq=False)
class Domains:
    """What the domains of attributes are, as cuts depend on it.

    Attributes
    ----------
    units : Units
    positions : list of ndarray of int64
        Of each code of each attribute, in units.
    """

    units: Units
    positions: Sequence[IntArray]

    @classmethod
    def of(cls, attributes: Sequence[Attribute]) -> Self:
        """Express domains in units of loss."""
        n_values = [attribute.n_values for attribute in attributes]
        codes = np.minimum(np.arange(max(n_values))[:, np.newaxis], np.array(n_values) - 1)
        ncp = Ncp.of(Microdata(codes.astype(np.int32), tuple(attributes)))
        return cls(ncp.units, [ncp.values[:n, j].astype(np.int64) for j, n in enumerate(n_values)])

    def gaps(self, j: int, there: IntArray) -> IntArray:
        """Return what a class loses at least that has both of two neighbouring values.

        Parameters
        ----------
        j : int
            The attribute.
        there : ndarray of int64, shape (n,)
            Codes of those of its values that occur, ascending.

        Returns
        -------
        ndarray of int64, shape (n - 1,)
        """
        apart: IntArray = np.full(there.size - 1, self.units.step[j], dtype=np.int64)
        if self.units.numeric[j]:
            apart = np.minimum(np.diff(self.positions[j][there]), self.units.whole[j])
        return apart

    def widths(self, counts: Sequence[IntArray]) -> IntArray:
        """Return what a part loses in each attribute.

        Parameters
        ----------
        counts : sequence of ndarray of int64
            How many of its records have each code, attribute by attribute.
        """
        found = np.zeros(len(self.positions), dtype=np.int64)
        for j, (positions, its_counts) in enumerate(zip(self.positions, counts, strict=True)):
            there = np.flatnonzero(its_counts)
            if self.units.numeric[j]:
                span = positions[there[-1]] - positions[there[0]]
                found[j] = min(span, self.units.whole[j])
            else:
                found[j] = self.units.step[j] * (there.size - 1)
        return found


def best_cut(domains: Domains, counts: Sequence[IntArray], k: int) -> Cut | None:
    """Cut a part where :func:`.mondrian` does; None where no cut leaves k records on either side.

    Parameters
    ----------
    domains : Domains
    counts : sequence of ndarray of int64, shape (n_values,)
        How many records of the part have each code, attribute by attribute.
    k : int

    Notes
    -----
    **Source:** that of :func:`~kanon_db.algorithms.generalization.mondrian.mondrian`, whose strict
    cuts depend on these counts alone: a table that is cut by this until nothing can be cut has the
    same classes.

    Examples
    --------
    >>> age = Attribute(5, numbers=np.array([20.0, 30, 31, 52, 60]), lower=20, upper=60)
    >>> best_cut(Domains.of([age]), [np.array([1, 1, 1, 1, 1])], 2)
    Cut(attribute=0, last=2, n_lower=3)
    """
    widths = domains.widths(counts)
    while widths.max() > 0:
        widest = int(np.argmax(widths))
        found = _cut_at_median(counts[widest], k)
        if found is not None:
            return Cut(widest, *found)
        widths[widest] = 0
    return None


def cut_at_gap(domains: Domains, counts: Sequence[IntArray], k: int) -> Cut | None:
    """Cut a part between neighbouring values that lie furthest apart, and then near the median.

    Parameters
    ----------
    domains : Domains
    counts : sequence of ndarray of int64, shape (n_values,)
        As in :func:`best_cut`.
    k : int
        Fewest records on either side; there is also at least an eighth of them, so that few cuts
        make the parts small. Where that is not possible, the cut is that of :func:`best_cut`.

    Notes
    -----
    A method that grows classes from records that lie close would build few across such a gap, so
    that few are missing when each side is searched by itself; the median of an attribute with many
    values runs through many. How much less is lost: "What parts cost" in docs/benchmarks.md.

    Examples
    --------
    >>> age = Attribute(5, numbers=np.array([20.0, 30, 31, 52, 60]), lower=20, upper=60)
    >>> cut_at_gap(Domains.of([age]), [np.array([1, 1, 1, 1, 1])], 1)
    Cut(attribute=0, last=2, n_lower=3)
    >>> sex = Attribute(2)
    >>> cut_at_gap(Domains.of([age, sex]), [np.array([1, 1, 1, 1, 1]), np.array([4, 1])], 1)
    Cut(attribute=1, last=0, n_lower=4)
    """
    size = int(counts[0].sum())
    least, found = max(k, -(-size // _FEWEST)), []
    for j, its_counts in enumerate(counts):
        there = np.flatnonzero(its_counts)
        n_lower = np.cumsum(its_counts[there])[:-1]
        of_smaller, gaps = np.minimum(n_lower, size - n_lower), domains.gaps(j, there)
        found += [
            (gaps[i], of_smaller[i], Cut(j, int(there[i]), int(n_lower[i])))
            for i in np.flatnonzero(of_smaller >= least)
        ]
    if not found:
        return best_cut(domains, counts, k)
    return max(found, key=itemgetter(0, 1))[2]


def _cut_at_median(counts: IntArray, k: int) -> tuple[int, int] | None:
    """Return the last code of the lower side, and how many records that has."""
    below = np.cumsum(counts)
    size = int(below[-1])
    half = (size + 1) // 2
    median = int(np.searchsorted(below, half))
    n_with = int(below[median])
    n_below = n_with - int(counts[median])
    below_allowed = n_below >= k and size - n_below >= k
    if below_allowed and (size - n_with < k or half - n_below < n_with - half):
        return median - 1, n_below
    return (median, n_with) if size - n_with >= k else None
