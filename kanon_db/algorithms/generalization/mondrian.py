"""Mondrian: the table cut in two at medians again and again (LeFevre et al. 2006)."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numba
import numpy as np

from kanon_db.algorithms.generalization.result import Generalization
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, Integer
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.ground.threads import in_threads
from kanon_db.algorithms.recoding.microdata import Microdata, check_k
from kanon_db.algorithms.recoding.ncp import Ncp, Units
from kanon_db.errors import InvalidParameterError

Cut = Literal["strict", "relaxed"]

_VALUES_PER_CALL = 2**20  # looked at between two heartbeats: some milliseconds
_BEYOND = 2**31
_FEWEST_IN_THREADS = 100_000  # records


def mondrian(
    microdata: Microdata,
    k: int,
    *,
    cut: Cut = "strict",
    workers: int = 1,
    pulse: Pulse = UNLIMITED,
) -> Generalization:
    """Cut the table in two, and each part again, as long as parts keep k records.

    A part is cut at the median of the attribute in which it loses most; where that would leave
    fewer than ``k`` records on one side, at that of the next attribute. A part that cannot be cut
    in any attribute becomes a class.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Fewest records of a class, at least 1.
    cut : {"strict", "relaxed"}
        Whether all records with the median value go to the same side, or as many of them to the
        lower side as it takes to halve the part, so that classes overlap there.
    workers : int
        Threads that cut large tables; the classes do not depend on it.
    pulse : Pulse
        Only its heartbeat is used.

    Returns
    -------
    Generalization
        Classes numbered from the lower to the upper sides.

    Raises
    ------
    InfeasibleError
        If there are fewer than ``k`` records.
    InvalidParameterError
        If ``k`` is less than 1, or ``cut`` is unknown.

    Notes
    -----
    **Source:** LeFevre, DeWitt and Ramakrishnan: Mondrian multidimensional k-anonymity, 2006,
    Section 4; the baseline of [OB] Section 4. There a strict cut leaves the median on the lower
    side. Here it goes to the upper side if that halves the part better, or if only that is
    allowed: where most records share one of the last categories, the paper's rule ends at once.

    The width of a part in an attribute is its weighted NCP; of equal widths, the first attribute
    counts. Categories are in the order of their codes, without hierarchies, and NULL is the last.

    Cost: one pass over the records for each level of cuts, about log2(n_records / k).

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute
    >>> age = Attribute(5, numbers=np.array([20.0, 30, 31, 52, 60]), lower=20, upper=60)
    >>> mondrian(Microdata([[0], [2], [4], [1], [3]], (age,)), 2).class_of_record.tolist()
    [0, 0, 1, 0, 1]
    """
    check_k(k, microdata.n_records)
    if cut not in get_args(Cut):
        raise InvalidParameterError("the kind of cut is unknown", hint="use strict or relaxed")
    n_records = microdata.n_records
    n_values = np.array([attribute.n_values for attribute in microdata.attributes])
    offsets = np.cumsum(n_values) - n_values
    ncp = Ncp.of(microdata)
    positions = np.zeros(int(n_values.sum()), dtype=np.int64)
    for j in range(n_values.size):
        positions[offsets[j] + microdata.codes[:, j]] = ncp.values[:, j]
    table = _Table(microdata.codes, ncp.units, offsets, positions)
    state = _Parts(
        np.arange(n_records),
        np.empty(n_records, dtype=np.int64),
        np.zeros((n_records // max(k, 1) + 2, 2), dtype=np.int64),
    )

    def run(part: tuple[int, int], pulse: Pulse) -> int:
        own = state._replace(stack=np.zeros_like(state.stack))
        return _cut_all(table, own, [part], k, cut == "relaxed", pulse)

    # A large table is cut until each thread has a part of its own.
    parts = [(0, n_records)] if n_records else []
    while 0 < len(parts) < workers and n_records >= _FEWEST_IN_THREADS:
        largest = max(range(len(parts)), key=lambda i: parts[i][1] - parts[i][0])
        found = _cut_once(table, state, parts[largest], k, cut == "relaxed")
        if len(found) < 2:
            break
        parts[largest : largest + 1] = found
    if len(parts) < 2:
        _cut_all(table, state, parts, k, cut == "relaxed", pulse)
        return Generalization(state.class_of_record)
    n_before = 0
    for (start, end), n_classes in zip(parts, in_threads(run, parts, workers, pulse), strict=True):
        state.class_of_record[state.order[start:end]] += n_before
        n_before += n_classes
    return Generalization(state.class_of_record)


def _cut_once(
    table: _Table, state: _Parts, part: tuple[int, int], k: int, is_relaxed: bool
) -> list[tuple[int, int]]:
    """Cut a part in two; return both sides, or nothing if it cannot be cut."""
    state.stack[0] = part
    n_parts, n_classes = _cut(table, state, 1, 0, k, is_relaxed, 1)
    return [] if n_classes else [(int(a), int(b)) for a, b in state.stack[:n_parts][::-1]]


def _cut_all(
    table: _Table,
    state: _Parts,
    parts: list[tuple[int, int]],
    k: int,
    is_relaxed: bool,
    pulse: Pulse,
) -> int:
    """Cut parts until they are classes; return how many there are."""
    n_parts: Integer = len(parts)
    n_classes: Integer = 0
    state.stack[:n_parts] = np.array(parts, dtype=np.int64).reshape(-1, 2)
    while n_parts:
        # What comes before the part that is cut next is done.
        pulse.done(int(state.stack[n_parts - 1, 0]), state.order.size)
        n_parts, n_classes = _cut(table, state, n_parts, n_classes, k, is_relaxed, _VALUES_PER_CALL)
    return int(n_classes)


class _Table(NamedTuple):
    """The records as compiled code reads them.

    Parameters
    ----------
    codes : ndarray of int32, shape (n_records, m)
    units : Units
    offsets : ndarray of int64, shape (m,)
        Where the codes of each attribute begin among those of all.
    positions : ndarray of int64
        Position in units of each code of a numeric attribute.
    """

    codes: CodeArray
    units: Units
    offsets: IntArray
    positions: IntArray


class _Parts(NamedTuple):
    """Into which parts the records have been cut.

    Parameters
    ----------
    order : ndarray of int64, shape (n_records,)
        Records, part by part.
    class_of_record : ndarray of int64, shape (n_records,)
    stack : ndarray of int64, shape (n, 2)
        Parts still to be cut: where each begins and ends in ``order``.
    """

    order: IntArray
    class_of_record: IntArray
    stack: IntArray


class _Spread(NamedTuple):
    """How far a part spreads in each attribute.

    Parameters
    ----------
    low, high : ndarray of int64, shape (m,)
        Least and greatest code.
    width : ndarray of int64, shape (m,)
        Loss in units.
    seen_in : ndarray of int64
        The last part in which each code of a categorical attribute was seen.
    """

    low: IntArray
    high: IntArray
    width: IntArray
    seen_in: IntArray


@numba.njit(cache=True, nogil=True)
def _cut(
    table: _Table,
    parts: _Parts,
    n_parts: Integer,
    n_classes: Integer,
    k: Integer,
    is_relaxed: bool,
    n_values: Integer,
) -> tuple[Integer, Integer]:
    """Cut parts until so many values were looked at; those that cannot be cut become classes.

    The last part is cut first.
    """
    low, high, width = np.empty((3, table.offsets.size), dtype=np.int64)
    spread = _Spread(low, high, width, np.full(table.positions.size, -1, dtype=np.int64))
    n_looked_at, number = 0, 0
    while n_parts and n_looked_at < n_values:
        n_parts -= 1
        number += 1
        start, end = parts.stack[n_parts]
        part = parts.order[start:end]
        n_lower: Integer = 0
        if part.size >= 2 * k:
            _measure(table, part, spread, number)
            n_looked_at += part.size * table.offsets.size
            while n_lower == 0 and width.max() > 0:
                widest = np.argmax(width)
                n_lower = _cut_at_median(
                    table.codes[:, widest], part, low[widest], high[widest], k, is_relaxed
                )
                n_looked_at += 2 * part.size
                width[widest] = 0
        if n_lower:
            # The lower side is to be cut next.
            parts.stack[n_parts] = start + n_lower, end
            parts.stack[n_parts + 1] = start, start + n_lower
            n_parts += 2
        else:
            parts.class_of_record[part] = n_classes
            n_classes += 1
    return n_parts, n_classes


@numba.njit(cache=True, nogil=True)
def _measure(table: _Table, part: IntArray, spread: _Spread, number: Integer) -> None:
    """Find how far a part spreads; it has the ``number`` by which its codes are marked as seen."""
    units, width = table.units, spread.width
    spread.low[:], spread.high[:], width[:] = _BEYOND, -1, -units.step
    for record in part:
        row = table.codes[record]
        for j in range(row.size):
            spread.low[j] = min(spread.low[j], row[j])
            spread.high[j] = max(spread.high[j], row[j])
            if not units.numeric[j] and spread.seen_in[table.offsets[j] + row[j]] != number:
                spread.seen_in[table.offsets[j] + row[j]] = number
                width[j] += units.step[j]
    for j in range(width.size):
        if units.numeric[j]:
            span = table.positions[table.offsets[j] + spread.high[j]]
            span -= table.positions[table.offsets[j] + spread.low[j]]
            width[j] = min(span, units.whole[j])


@numba.njit(cache=True, nogil=True)
def _cut_at_median(
    column: CodeArray, part: IntArray, low: Integer, high: Integer, k: Integer, is_relaxed: bool
) -> Integer:
    """Put the lower side of a part first, and count its records; 0: no allowed cut."""
    size = part.size
    half = (size + 1) // 2
    median: Integer
    n_below: Integer
    n_median: Integer
    n_taken: Integer
    if high - low < 4 * size:
        counts = np.zeros(high - low + 1, dtype=np.int64)
        for record in part:
            counts[column[record] - low] += 1
        median, n_below = low, 0
        while n_below + counts[median - low] < half:
            n_below += int(counts[median - low])
            median += 1
        n_median = int(counts[median - low])
    else:
        ordered = np.sort(column[part])
        median = np.int64(ordered[half - 1])
        n_below = np.searchsorted(ordered, median)
        n_median = np.searchsorted(ordered, median, side="right") - n_below
    # Of the records with the median, so many go to the lower side.
    n_taken = half - n_below
    if not is_relaxed:
        n_taken = n_median
        below_allowed = n_below >= k and size - n_below >= k
        at_allowed = size - n_below - n_median >= k
        if below_allowed and (not at_allowed or half - n_below < n_below + n_median - half):
            n_taken = 0
    n_lower = n_below + n_taken
    if n_lower < k or size - n_lower < k:
        return 0
    upper = np.empty(size - n_lower, dtype=np.int64)
    next_lower, next_upper = 0, 0
    for i in range(size):
        record = part[i]
        is_lower = column[record] < median
        if column[record] == median and n_taken > 0:
            n_taken -= 1
            is_lower = True
        if is_lower:
            part[next_lower] = record
            next_lower += 1
        else:
            upper[next_upper] = record
            next_upper += 1
    part[n_lower:] = upper
    return n_lower
