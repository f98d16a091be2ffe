"""Verifies the k-anonymity of a freeform view, from its graph, its cells and the source."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, IntArray, distinct
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, in_threads, n_cores
from kanon_db.algorithms.recoding.generalized_cells import NumberedCells, Ranges, Sets
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.dataclasses import dataclass

_ORIGINALS_PER_CALL = 64
_MATCHES_PER_CALL = 2**16


@dataclass(frozen=True, eq=False)
class MatchingChecks:
    """Counts that decide whether a freeform view is k-anonymous.

    Parameters
    ----------
    k : int
        What is asked for.
    n_unknown : int
        Matches that are no record.
    least_originals : int
        Fewest different originals that a published record matches.
    least_published : int
        Fewest different published records that an original matches.
    is_regular : bool
        Whether all of them match exactly ``k``: then the graph is k-regular.
    n_outside : int
        Pairs of a published record and one of its matches, where the value of some attribute
        does not lie in the cell.
    """

    k: int
    n_unknown: int
    least_originals: int
    least_published: int
    is_regular: bool
    n_outside: int

    @property
    def holds(self) -> bool:
        """Whether the view is k-anonymous by its graph."""
        return self.is_regular and not self.n_unknown and not self.n_outside


def verify_matching(
    matches: AnyIntArray,
    microdata: Microdata,
    k: int,
    cells: Sequence[Ranges | Sets | NumberedCells],
    *,
    pulse: Pulse = UNLIMITED,
) -> MatchingChecks:
    """Check a generalization graph and the cells published for it.

    Parameters
    ----------
    matches : ndarray of int, shape (n_records, q)
        Originals that each published record matches; repeated ones count once.
    microdata : Microdata
        The source.
    k : int
    cells : sequence of Ranges, Sets or NumberedCells, length m
        What is published.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    MatchingChecks

    Notes
    -----
    **Source:** [FF] Section 2.1 (k-regularity), Definition 1. Only someone who has the graph can
    check it: a published range may contain more originals than its matches, and how many it
    contains says nothing about how likely each of them is the true one.

    It shares no code with the methods that build the graph. Cells are read by `taken`, as the
    writer of the view reads them.

    Examples
    --------
    >>> from kanon_db.algorithms.freeform.matches import cells
    >>> from kanon_db.algorithms.recoding.microdata import Attribute
    >>> table = Microdata([[0], [1], [2]], (Attribute(3),))
    >>> matches = np.array([[0, 1], [1, 2], [2, 0]])
    >>> verify_matching(matches, table, 2, cells(table, matches)).holds
    True
    """
    n = microdata.n_records
    of_published = np.zeros(n, dtype=np.int64)
    n_rows = max(_MATCHES_PER_CALL // max(matches.shape[1], 1), 1)

    def count(rows: slice, pulse: Pulse) -> tuple[int, int, IntArray]:
        n_unknown, n_outside, of_originals = 0, 0, np.zeros(n, dtype=np.int64)
        for start in range(rows.start, rows.stop, n_rows):
            pulse.beat()
            end = min(start + n_rows, rows.stop)
            part = matches[start:end].astype(np.int64)
            known = (part >= 0) & (part < n)
            n_unknown += int((~known).sum())
            pairs = distinct(np.argwhere(known)[:, 0] * n + part[known])
            published, originals = np.divmod(pairs, max(n, 1))
            of_published[start:end] = np.bincount(published, minlength=end - start)
            np.add.at(of_originals, originals, 1)
            inside = np.ones(pairs.size, dtype=np.bool_)
            for j, its_cells in enumerate(cells):
                codes, cell = microdata.codes[originals, j], its_cells.taken(slice(start, end))
                if isinstance(cell, Ranges):
                    low, high = cell.low[published], cell.high[published]
                    within = (codes >= low) & (codes <= high)
                    inside &= within | cell.tells_nothing[published]
                else:
                    n_values = microdata.attributes[j].n_values
                    inside &= np.isin(published * n_values + codes, _keys(cell, n_values))
            n_outside += int((~inside).sum())
        return n_unknown, n_outside, of_originals

    bounds = [n * part // n_cores() for part in range(1 + n_cores())]
    counted = in_threads(count, [slice(*part) for part in pairwise(bounds)], n_cores(), pulse)
    n_unknown = sum(unknown for unknown, _, _ in counted)
    n_outside = sum(outside for _, outside, _ in counted)
    of_originals = np.sum([own for _, _, own in counted], axis=0)
    return MatchingChecks(
        k,
        n_unknown,
        int(of_published.min(initial=n)),
        int(of_originals.min(initial=n)),
        bool((of_published == k).all() and (of_originals == k).all()),
        n_outside,
    )


def _keys(cells: Sets, n_values: int) -> IntArray:
    """Return a number for each pair of a cell and its value; ascending."""
    keys: IntArray = np.repeat(np.arange(cells.n_cells), cells.sizes) * n_values + cells.codes
    return keys


def least_coverage(
    microdata: Microdata,
    cells: Sequence[Ranges | Sets | NumberedCells],
    *,
    pulse: Pulse = UNLIMITED,
) -> tuple[int, int]:
    """Count coverings by published cells, intended or by chance; k-concealment bounds the least.

    Parameters
    ----------
    microdata : Microdata
        The source.
    cells : sequence of Ranges, Sets or NumberedCells, length m
        What is published.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    least_published : int
        Fewest published records that cover an original.
    least_originals : int
        Fewest originals that a published record covers.

    Examples
    --------
    >>> from kanon_db.algorithms.freeform.matches import cells
    >>> from kanon_db.algorithms.recoding.microdata import Attribute
    >>> table = Microdata([[0], [1], [2]], (Attribute(3),))
    >>> least_coverage(table, cells(table, np.array([[0, 1], [1, 2], [2, 1]])))
    (1, 2)
    """
    n = microdata.n_records
    of_published = np.zeros(n, dtype=np.int64)
    of_originals = np.zeros(n, dtype=np.int64)
    every = [its_cells.taken(slice(None)) for its_cells in cells]
    members = [
        _members(cell, attribute.n_values) if isinstance(cell, Sets) else None
        for attribute, cell in zip(microdata.attributes, every, strict=True)
    ]
    for original, codes in enumerate(microdata.codes):
        if original % _ORIGINALS_PER_CALL == 0:
            pulse.beat()
        covered = np.ones(n, dtype=np.bool_)
        for code, cell, is_member in zip(codes, every, members, strict=True):
            if isinstance(cell, Ranges):
                covered &= (cell.low <= code) & (code <= cell.high) | cell.tells_nothing
            elif is_member is not None:
                covered &= is_member[code]
        of_originals[original] = covered.sum()
        of_published += covered
    return int(of_originals.min(initial=n)), int(of_published.min(initial=n))


def _members(cells: Sets, n_values: int) -> BoolArray:
    """Tell which cells hold each value, shape (n_values, n_cells)."""
    is_member = np.zeros((n_values, cells.ends.size), dtype=np.bool_)
    is_member[cells.codes, np.repeat(np.arange(cells.ends.size), cells.sizes)] = True
    return is_member
