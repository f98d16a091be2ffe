"""Mondrian: the table cut in two at medians again and again (LeFevre et al. 2006)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numba
import numpy as np

from kanon_db.algorithms.generalization.initial import check_k
from kanon_db.algorithms.generalization.result import Generalization
from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, IntArray, Integer
from kanon_db.algorithms.ground.pulse import no_heartbeat
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.algorithms.recoding.ncp import Ncp
from kanon_db.errors import InvalidParameterError

Cut = Literal["strict", "relaxed"]

_VALUES_PER_CALL = 2**20  # looked at between two heartbeats: some milliseconds


def mondrian(
    microdata: Microdata,
    k: int,
    *,
    cut: Cut = "strict",
    heartbeat: Callable[[], None] = no_heartbeat,
) -> Generalization:
    """Cut the table in two, and each part again, as long as parts keep k records.

    A part is cut at the median of the attribute in which it loses most; where that would leave
    fewer than ``k`` records on one side, at that of the next. It ends as a class if no attribute
    is left.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Fewest records of a class, at least 1.
    cut : {"strict", "relaxed"}
        Whether all records with the median value go to the same side, or as many to the lower one
        as halve the part, so that classes overlap there.
    heartbeat : callable
        Called every few milliseconds; what it raises ends the work.

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
        raise InvalidParameterError("the kind of cut is unknown", hint="take strict or relaxed")
    n_records = microdata.n_records
    n_values = np.array([attribute.n_values for attribute in microdata.attributes])
    offsets = np.cumsum(n_values) - n_values
    ncp = Ncp.of(microdata)
    position_of_code = np.zeros(int(n_values.sum()), dtype=np.int64)
    for j in range(n_values.size):
        position_of_code[offsets[j] + microdata.codes[:, j]] = ncp.values[:, j]
    order = np.arange(n_records)
    class_of_record = np.empty(n_records, dtype=np.int64)
    # Parts still to be cut, as first and last record in order; each cut replaces one by two.
    parts = np.zeros((n_records // max(k, 1) + 2, 2), dtype=np.int64)
    parts[0] = 0, n_records
    n_parts: Integer = int(n_records > 0)
    n_classes: Integer = 0
    while n_parts:
        heartbeat()
        n_parts, n_classes = _cut(
            microdata.codes, ncp.step, ncp.whole, ncp.numeric, offsets, position_of_code, k,
            cut == "relaxed", order, class_of_record, parts, n_parts, n_classes,
        )  # fmt: skip
    return Generalization(class_of_record)


@numba.njit(cache=True, nogil=True)
def _cut(
    codes: CodeArray,
    step: IntArray,
    whole: IntArray,
    numeric: BoolArray,
    offsets: IntArray,
    position_of_code: IntArray,
    k: Integer,
    is_relaxed: bool,
    order: IntArray,
    class_of_record: IntArray,
    parts: IntArray,
    n_parts: Integer,
    n_classes: Integer,
) -> tuple[Integer, Integer]:
    """Cut some parts, the last one first; those that cannot be cut become classes."""
    m = codes.shape[1]
    seen_in = np.full(position_of_code.size, -1, dtype=np.int64)
    low, high = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64)
    width, n_distinct = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64)
    n_looked_at, number = 0, 0
    while n_parts and n_looked_at < _VALUES_PER_CALL:
        n_parts -= 1
        number += 1
        start, end = parts[n_parts, 0], parts[n_parts, 1]
        n_lower: Integer = 0
        if end - start >= 2 * k:
            low[:], high[:], n_distinct[:] = codes.shape[0] + position_of_code.size, -1, 0
            for i in range(start, end):
                row = codes[order[i]]
                for j in range(m):
                    code = row[j]
                    low[j], high[j] = min(low[j], code), max(high[j], code)
                    if not numeric[j] and seen_in[offsets[j] + code] != number:
                        seen_in[offsets[j] + code] = number
                        n_distinct[j] += 1
            for j in range(m):
                if numeric[j]:
                    span = position_of_code[offsets[j] + high[j]]
                    span -= position_of_code[offsets[j] + low[j]]
                    width[j] = min(span, whole[j])
                else:
                    width[j] = (n_distinct[j] - 1) * step[j]
            n_looked_at += (end - start) * m
            while n_lower == 0 and width.max() > 0:
                widest = np.argmax(width)
                n_lower = _cut_at_median(
                    codes[:, widest], order[start:end], low[widest], high[widest], k, is_relaxed
                )
                n_looked_at += 2 * (end - start)
                width[widest] = 0
        if n_lower:
            # The lower side is to be cut next.
            parts[n_parts, 0], parts[n_parts, 1] = start + n_lower, end
            parts[n_parts + 1, 0], parts[n_parts + 1, 1] = start, start + n_lower
            n_parts += 2
        else:
            class_of_record[order[start:end]] = n_classes
            n_classes += 1
    return n_parts, n_classes


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
