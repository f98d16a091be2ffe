"""Reciprocal graphs: records match each other or not at all ([FF] Sections 1 and 2.2)."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.freeform.assignments import as_assignments
from kanon_db.algorithms.freeform.box_tree import extend, open_round
from kanon_db.algorithms.freeform.descent import search_for
from kanon_db.algorithms.freeform.graph import NONE, build
from kanon_db.algorithms.freeform.losses import pair_units
from kanon_db.algorithms.freeform.sort_greedy import take_lightest
from kanon_db.algorithms.ground.arrays import CodeArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.ncp import Ncp
from kanon_db.errors import InfeasibleError


def symmetric(ncp: Ncp, k: int, *, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Build a reciprocal graph by taking the pair of records of least weight again and again.

    It promises no more than any other k-regular graph. Whoever learns the true matches of c records
    can use that against the others. In an equivalence class these keep k - c possible matches or
    more; in a connected graph, reciprocal or not, somebody may keep a single one.

    Parameters
    ----------
    ncp : Ncp
    k : int
        Matches of each record, from 1 to the number of records.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    ndarray of int32, shape (n, k)
        As in :class:`~kanon_db.algorithms.freeform.result.Freeform`; record i matches record j
        whenever j matches i. No column but the first need be so.

    Raises
    ------
    InfeasibleError
        If the number of records and k - 1 are both odd: then no reciprocal graph is k-regular.

    Notes
    -----
    **Source:** [FF] Section 2.2 (after Choromanski, Jebara and Tang) says that all its algorithms
    can be tuned to it, but not how; and that c known matches leave k - c, which does not hold
    (``tests/attacks/test_known_matches.py``). Here each round is one of SortGreedy on
    pairs of records instead of edges: the weight of a pair is that of both edges. Records that
    are left without a partner are made up for in the end: two of them that lack a match, or one
    that lacks two, take the place of a pair, whose records they match instead. Where no pair can
    be replaced so, which takes k close to the number of records, each record matches its
    neighbors in the order of the tree.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
    >>> age = Attribute(4, numbers=np.array([20.0, 30, 50, 60]), lower=20, upper=60)
    >>> table = Microdata([[0], [1], [2], [3]], (age,))
    >>> symmetric(Ncp.of(table), 2).tolist()
    [[0, 1], [1, 0], [2, 3], [3, 2]]
    """
    n = ncp.values.shape[0]
    if n * (k - 1) % 2:
        raise InfeasibleError(
            "no reciprocal graph exists",
            detail=f"n_records = {n}, k = {k}: n_records * (k - 1) must be even",
            hint="choose another k",
        )
    graph = build(ncp, k)
    for n_rounds in range(1, k):
        partner = np.full(n, NONE, dtype=np.int64)
        open_round(graph)
        take_lightest(graph, search_for(1, n_rounds, mutual=True), partner, pulse)
        extend(graph, partner, n_rounds)
    rows = graph.cells_of  # and the originals that each cell covers
    if not _make_up(ncp.of_records(graph.record), rows, pulse):
        rows[:] = _neighbors(n, k)
    matches = np.empty_like(rows)
    matches[graph.record] = graph.record[rows]
    return as_assignments(matches, pulse=pulse)


def _make_up(ncp: Ncp, rows: CodeArray, pulse: Pulse) -> bool:
    """Give all records their number of matches; tell whether that worked."""
    n = rows.shape[0]
    lacking = np.repeat(np.arange(n), (rows == NONE).sum(axis=1)).tolist()
    while lacking:
        pulse.beat()
        first = lacking.pop()
        matched = np.zeros(n, dtype=np.bool_)
        matched[rows[first][rows[first] != NONE]] = True
        apart = [place for place, other in enumerate(lacking) if not matched[other]]
        if apart:
            _connect(rows, first, lacking.pop(apart[-1]))
            continue
        second = lacking.pop()
        taken = np.zeros(n, dtype=np.bool_)
        taken[rows[second][rows[second] != NONE]] = True
        one, column = np.nonzero(rows[:, 1:] != NONE)
        other = rows[one, column + 1]
        free = ~matched[one] & ~taken[other]
        if not free.any():
            return False
        one, other = one[free], other[free]
        increase = pair_units(ncp, first, one) + pair_units(ncp, second, other)
        best = int(np.argmin(increase - pair_units(ncp, one, other)))
        a, b = int(one[best]), int(other[best])
        rows[a][rows[a] == b] = NONE
        rows[b][rows[b] == a] = NONE
        _connect(rows, first, a)
        _connect(rows, second, b)
    return True


def _connect(rows: CodeArray, one: int, other: int) -> None:
    rows[one, np.flatnonzero(rows[one] == NONE)[0]] = other
    rows[other, np.flatnonzero(rows[other] == NONE)[0]] = one


def _neighbors(n: int, k: int) -> CodeArray:
    """Let each position match as many positions before it in a ring as behind it."""
    half = (k - 1) // 2
    shifts = [0, *range(1, half + 1), *range(-half, 0)] + ([n // 2] if k % 2 == 0 else [])
    rows = np.empty((n, k), dtype=np.int32)
    for column, shift in enumerate(shifts):
        rows[:, column] = np.roll(np.arange(n), -shift)
    return rows
