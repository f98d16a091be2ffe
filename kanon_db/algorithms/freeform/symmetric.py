"""Reciprocal graphs: records match each other or not at all ([FF] Sections 1 and 2.2)."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.freeform.assignments import as_assignments
from kanon_db.algorithms.freeform.graph import (
    FAR,
    NONE,
    Graph,
    build,
    extend,
    matches_of_records,
    nearest,
    open_round,
    take,
)
from kanon_db.algorithms.freeform.result import Freeform, no_heartbeat
from kanon_db.algorithms.freeform.rounds import VISITS_PER_CALL
from kanon_db.algorithms.freeform.sort_greedy import sift
from kanon_db.algorithms.generalization.initial import check_k
from kanon_db.algorithms.generalization.loss import IntArray, Ncp
from kanon_db.algorithms.generalization.microdata import Microdata
from kanon_db.errors import InfeasibleError


def symmetric(
    microdata: Microdata, k: int, *, heartbeat: Callable[[], None] = no_heartbeat
) -> Freeform:
    """Build a reciprocal graph by taking the pair of records of least weight again and again.

    Whoever learns the true matches of c records can use that against the others: in a reciprocal
    graph these keep k - c possible matches, as in equivalence classes; in one that is not they
    may keep fewer.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Matches of each record, itself included, at least 1.
    heartbeat : callable
        Called every few milliseconds; what it raises ends the work.

    Returns
    -------
    Freeform
        Record i matches record j whenever j matches i. No column but the first need be so.

    Raises
    ------
    InfeasibleError
        If there are fewer than ``k`` records, or the number of records and k - 1 are both odd:
        then no reciprocal graph is k-regular.
    InvalidParameterError
        If ``k`` is less than 1.

    Notes
    -----
    **Source:** [FF] Section 2.2 (after Choromanski, Jebara and Tang) says what it is good for, and
    that all its algorithms can be tuned to it, not how. Here each round is one of SortGreedy on
    pairs of records instead of edges: the weight of a pair is that of both edges. Records that
    are left without partner are made up for in the end: two of them that lack a match, or one
    that lacks two, take the place of a pair, whose records they match instead. Where no pair can
    be replaced so, which takes k close to the number of records, each record matches its
    neighbors in the order of the tree.

    Examples
    --------
    >>> from kanon_db.algorithms.generalization.microdata import Attribute
    >>> age = Attribute(4, numbers=np.array([20.0, 30, 50, 60]), lower=20, upper=60)
    >>> symmetric(Microdata([[0], [1], [2], [3]], (age,)), 2).matches.tolist()
    [[0, 1], [1, 0], [2, 3], [3, 2]]
    """
    check_k(k, microdata.n_records)
    return Freeform(symmetric_matches(Ncp.of(microdata), k, heartbeat))


def symmetric_matches(ncp: Ncp, k: int, heartbeat: Callable[[], None]) -> npt.NDArray[np.int32]:
    """Do the same for records whose losses are known in units.

    Parameters
    ----------
    ncp : Ncp
    k : int
        From 1 to the number of records.
    heartbeat : callable

    Returns
    -------
    ndarray of int32, shape (n, k)

    Raises
    ------
    InfeasibleError
        If the number of records and k - 1 are both odd.
    """
    n = ncp.values.shape[0]
    if n * (k - 1) % 2:
        raise InfeasibleError(
            "no reciprocal graph exists",
            detail=f"n_records = {n}, k = {k}: n_records * (k - 1) must be even",
            hint="take another k",
        )
    if not n:
        return np.empty((0, k), dtype=np.int32)
    graph = build(ncp, k)
    for n_rounds in range(1, k):
        partner = np.full(n, NONE, dtype=np.int64)
        _pair(graph, n_rounds, partner, heartbeat)
        extend(graph, partner, n_rounds)
    rows = graph.matches
    if not _make_up(graph, rows, heartbeat):
        rows[:] = _neighbors(n, k)
    return as_assignments(matches_of_records(graph), heartbeat=heartbeat)


def _pair(graph: Graph, n_rounds: int, partner: IntArray, heartbeat: Callable[[], None]) -> None:
    """Find a partner for as many records as possible, lightest pairs first."""
    n = partner.size
    open_round(graph)
    keys = np.empty(n, dtype=np.int64)
    wanted = np.full(n, NONE, dtype=np.int64)
    start = size = 0
    while start < n:
        start, size = _search(graph, n_rounds, keys, wanted, start, size)
        heartbeat()
    keys[:size].sort()
    while size:
        size = _take(graph, n_rounds, partner, keys, wanted, size)
        heartbeat()


@numba.njit(cache=True, nogil=True)
def _search(
    graph: Graph, n_rounds: int, keys: IntArray, wanted: IntArray, start: int, size: int
) -> tuple[int, int]:
    """Find the best partner of each record."""
    n_visits = 0
    n = wanted.size
    while start < n and n_visits < VISITS_PER_CALL:
        cell, least, visits = nearest(graph, start, n_rounds, 0, True)
        n_visits += visits
        if cell != NONE:
            wanted[start] = cell
            keys[size] = least * n + start
            size += 1
        start += 1
    return start, size


@numba.njit(cache=True, nogil=True)
def _take(
    graph: Graph, n_rounds: int, partner: IntArray, keys: IntArray, wanted: IntArray, size: int
) -> int:
    """Take the lightest pairs, out of a heap; tell how many records are left in it."""
    n_visits = 0
    n = wanted.size
    while size and n_visits < VISITS_PER_CALL:
        record = keys[0] % n
        other = wanted[record]
        key = FAR
        n_visits += 1
        if partner[record] == NONE and graph.available[other]:
            partner[record], partner[other] = other, record
            take(graph, record)
            take(graph, other)
        elif partner[record] == NONE:
            other, least, visits = nearest(graph, record, n_rounds, keys[0] // n, True)
            n_visits += visits
            wanted[record] = other
            if other != NONE:
                key = least * n + record
        if key == FAR:
            size -= 1
            key = keys[size]
        sift(keys, size, key)
    return size


def _make_up(graph: Graph, rows: npt.NDArray[np.int32], heartbeat: Callable[[], None]) -> bool:
    """Give all records their number of matches; tell whether that worked."""
    n = rows.shape[0]
    lacking = np.repeat(np.arange(n), (rows == NONE).sum(axis=1)).tolist()
    while lacking:
        heartbeat()
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
        gain = _apart(graph, first, one) + _apart(graph, second, other) - _apart(graph, one, other)
        best = int(np.argmin(gain))
        a, b = int(one[best]), int(other[best])
        rows[a][rows[a] == b] = NONE
        rows[b][rows[b] == a] = NONE
        _connect(rows, first, a)
        _connect(rows, second, b)
    return True


def _connect(rows: npt.NDArray[np.int32], one: int, other: int) -> None:
    rows[one, np.flatnonzero(rows[one] == NONE)[0]] = other
    rows[other, np.flatnonzero(rows[other] == NONE)[0]] = one


def _apart(graph: Graph, ones: int | IntArray, others: npt.NDArray[np.integer]) -> IntArray:
    """Loss of two records in one class, in units."""
    ranges = np.abs(graph.numbers[ones].astype(np.int64) - graph.numbers[others])
    loss = np.minimum(ranges, graph.whole).sum(axis=1)
    total: IntArray = loss + ((graph.bits[ones] != graph.bits[others]) * graph.step).sum(axis=1)
    return total


def _neighbors(n: int, k: int) -> npt.NDArray[np.int32]:
    """Let each position match as many positions before it in a ring as behind it."""
    half = (k - 1) // 2
    shifts = [0, *range(1, half + 1), *range(-half, 0)] + ([n // 2] if k % 2 == 0 else [])
    rows = np.empty((n, k), dtype=np.int32)
    for column, shift in enumerate(shifts):
        rows[:, column] = np.roll(np.arange(n), -shift)
    return rows
