"""Whether a freeform view keeps its promise, counted from its graph, its cells and the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.freeform.result import Ranges, Sets
from kanon_db.algorithms.generalization.microdata import Microdata


@dataclass(frozen=True, eq=False)
class MatchingChecks:
    """What was counted.

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
    matches: npt.NDArray[np.integer],
    microdata: Microdata,
    k: int,
    cells: Sequence[Ranges | Sets],
) -> MatchingChecks:
    """Check a generalization graph and the cells published for it.

    Parameters
    ----------
    matches : ndarray of int, shape (n_records, q)
        Originals that each published record matches; repeated ones count once.
    microdata : Microdata
        The source.
    k : int
    cells : sequence of Ranges or Sets, length m
        What is published.

    Returns
    -------
    MatchingChecks

    Notes
    -----
    **Source:** [FF] Section 2.1 (k-regularity), Definition 1. Only who has the graph can check
    it: a published range may contain more originals than its matches, and how many it contains
    says nothing about how likely each is the true one.

    It shares no code with the methods that build the graph.

    Examples
    --------
    >>> from kanon_db.algorithms.freeform.result import cells
    >>> from kanon_db.algorithms.generalization.microdata import Attribute
    >>> table = Microdata([[0], [1], [2]], (Attribute(3),))
    >>> matches = np.array([[0, 1], [1, 2], [2, 0]])
    >>> verify_matching(matches, table, 2, cells(table, matches)).holds
    True
    """
    n = microdata.n_records
    known = (matches >= 0) & (matches < n)
    pairs = np.unique(np.argwhere(known)[:, 0] * max(n, 1) + matches[known])
    published, originals = np.divmod(pairs, max(n, 1))
    of_published = np.bincount(published, minlength=n)
    of_originals = np.bincount(originals, minlength=n)
    outside = np.zeros(pairs.size, dtype=np.bool_)
    for j, (attribute, cell) in enumerate(zip(microdata.attributes, cells, strict=True)):
        codes = microdata.codes[originals, j].astype(np.int64)
        if isinstance(cell, Sets):
            size = attribute.n_values
            of_cell = np.repeat(np.arange(n), np.diff(cell.ends, prepend=0))
            inside = np.isin(published * size + codes, of_cell * size + cell.codes)
        else:
            inside = (codes >= cell.low[published]) & (codes <= cell.high[published])
            inside |= cell.tells_nothing[published]
        outside |= ~inside
    return MatchingChecks(
        k,
        int((~known).sum()),
        int(of_published.min(initial=n)),
        int(of_originals.min(initial=n)),
        of_published.size == n and bool((of_published == k).all() and (of_originals == k).all()),
        int(outside.sum()),
    )
