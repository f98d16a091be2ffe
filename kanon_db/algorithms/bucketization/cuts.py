"""The cut that divides records into two sets of the most similar quasi-identifiers."""

from __future__ import annotations

import numba
import numpy as np

from kanon_db.algorithms.bucketization.cut_tree import Cut
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.compiled import innermost
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse

_MOST_LOOKED_AT = 2**15
_MOST_COMPARED = 2**23  # records times attributes squared: some dozen milliseconds of work
_DIVIDED_AT_ONCE = 2**21


def best_cut(
    codes: CodeArray, records: IntArray, least: int, weights: IntArray | None = None
) -> Cut | None:
    """Find the cut that reduces the disagreement of all attributes most.

    Parameters
    ----------
    codes : ndarray of int32, shape (n_records, n_qi)
        Codes from 0, of ordered types in the type's order.
    records : ndarray of int64, shape (n,)
        The records to divide, in an order that depends on their codes alone: of more than 32,768,
        or 2^23 / n_qi² if that is less, only every so-many-th is looked at.
    least : int
        Fewest of the records on either side, at least 1.
    weights : ndarray of int64, shape (n_records,), optional
        How many records each one stands for; the cut is that of these.

    Returns
    -------
    Cut or None
        None if no attribute has a cut with enough records on both sides. Of several equally good
        ones the first. It depends on the codes alone.

    Notes
    -----
    The disagreement of a set is the sum over the attributes of the Gini impurity, the chance that
    two records differ. The best cut is that of the largest fall of the impurity, weighted by the
    sizes of the sides, as in L. Breiman et al., *Classification and Regression Trees*, 1984,
    chapter 4; there is no class to predict here, and all attributes count.

    The sides' counts of pairs of codes are taken from a table for each two attributes, unless it
    would have more cells than there are records. Cost: O(n n_qi²) for the n records that are looked
    at, which is bounded.

    Examples
    --------
    >>> codes = np.array([[0, 5], [1, 5], [2, 0], [3, 0]], dtype=np.int32)
    >>> best_cut(codes, np.arange(4), 1)
    Cut(attribute=0, last=1)
    """
    most = min(_MOST_LOOKED_AT, max(1, _MOST_COMPARED // codes.shape[1] ** 2))
    if weights is None:
        stride = -(-records.size // most)
        among = np.ascontiguousarray(records[::stride])
    else:
        ends = np.cumsum(weights[records])
        stride = -(-int(ends[-1]) // most)
        among = records[np.searchsorted(ends, np.arange(0, ends[-1], stride), side="right")]
    looked_at, lowest, n_codes = _looked_at(codes, among)
    # Codes are few in a small set, however far apart they are.
    kept = {}
    for a in np.flatnonzero(n_codes > 2 * among.size).tolist():
        kept[a], looked_at[a] = np.unique(looked_at[a], return_inverse=True)
        n_codes[a] = kept[a].size
    attribute, last = _best_cut(looked_at, n_codes, max(1, least // stride))
    if attribute < 0:
        return None
    return Cut(attribute, int(lowest[attribute] + kept.get(attribute, range(last + 1))[last]))


def divided(
    qi_codes: CodeArray,
    sa_codes: CodeArray,
    records: IntArray,
    cut: Cut,
    n_values: int,
    weights: IntArray | None = None,
    pulse: Pulse = UNLIMITED,
) -> tuple[IntArray, IntArray, IntArray]:
    """Divide records by a cut, and count the sensitive values on both sides.

    Parameters
    ----------
    qi_codes, records, weights
        As for :func:`best_cut`.
    sa_codes : ndarray of int32, shape (n_records,)
    cut : Cut
    n_values : int
    pulse : Pulse
        Beaten every few dozen milliseconds of work.

    Returns
    -------
    lower, upper : ndarray of int64
        The records on each side, in their order.
    counts : ndarray of int64, shape (2, n_values)

    Examples
    --------
    >>> codes = np.array([[0], [1], [2]], dtype=np.int32)
    >>> lower, upper, counts = divided(codes, codes[:, 0], np.arange(3), Cut(0, 1), 3)
    >>> lower.tolist(), upper.tolist(), counts.tolist()
    ([0, 1], [2], [[1, 1, 0], [0, 0, 1]])
    """
    found = np.empty_like(records)
    counts = np.zeros((2, n_values), dtype=np.int64)
    n_lower = 0
    for start in range(0, records.size, _DIVIDED_AT_ONCE):
        pulse.beat()
        n_lower = _divide(
            qi_codes, cut.attribute, cut.last, sa_codes, records, weights,
            start, min(start + _DIVIDED_AT_ONCE, records.size), n_lower, found, counts,
        )  # fmt: skip
    return found[:n_lower].copy(), found[n_lower:][::-1].copy(), counts


@numba.njit(cache=True, nogil=True)
def _divide(
    qi_codes: CodeArray,
    attribute: int,
    last: int,
    sa_codes: CodeArray,
    records: IntArray,
    weights: IntArray | None,
    start: int,
    end: int,
    n_lower: int,
    found: IntArray,
    counts: IntArray,
) -> int:
    """Put lower records at the front and upper ones at the back; return how many are lower."""
    for i in range(start, end):
        record = records[i]
        is_upper = int(qi_codes[record, attribute] > last)
        # Each is put at both ends, only one of which moves on: there is no branch to be guessed.
        found[n_lower] = record
        found[records.size - 1 - i + n_lower] = record
        n_lower += 1 - is_upper
        counts[is_upper, sa_codes[record]] += 1 if weights is None else weights[record]
    return n_lower


@numba.njit(cache=True, nogil=True)
def _looked_at(codes: CodeArray, records: IntArray) -> tuple[CodeArray, CodeArray, IntArray]:
    """Return the codes of some records, by attribute and above the lowest, which comes second.

    The third is how many codes of each attribute there are at most.
    """
    n_qi = codes.shape[1]
    looked_at = np.empty((n_qi, records.size), dtype=codes.dtype)
    lowest = codes[records[0]].copy()
    highest = lowest.copy()
    for i in range(records.size):
        record = records[i]
        for a in range(n_qi):
            code = codes[record, a]
            looked_at[a, i] = code
            lowest[a] = min(lowest[a], code)
            highest[a] = max(highest[a], code)
    for a in range(n_qi):
        looked_at[a] -= lowest[a]
    return looked_at, lowest, highest.astype(np.int64) - lowest + 1


@numba.njit(cache=True, nogil=True)
def _best_cut(codes: CodeArray, n_codes: IntArray, least: int) -> tuple[int, int]:
    """Weigh all cuts of all attributes, given codes of shape (n_qi, n)."""
    # An attribute of one code adds as much to what is divided as to the sides, and is left out.
    varied = np.flatnonzero(n_codes > 1)
    n = codes.shape[1]
    first = np.zeros(n_codes.size + 1, dtype=np.int64)  # where the codes of each attribute begin
    first[1:] = np.cumsum(n_codes)
    totals = np.zeros(first[-1], dtype=np.int64)
    for a in varied:
        for i in range(n):
            totals[first[a] + codes[a, i]] += 1
    together = np.zeros(n, dtype=np.int64)  # how many have each code of a record, in sum
    for a in varied:
        for i in range(n):
            together[i] += totals[first[a] + codes[a, i]]
    lower_squares = _lower_squares(codes, n_codes, first, varied, totals)
    squares = (totals**2).sum()
    best = 0.0
    best_attribute = -1
    best_last = -1
    for a in varied:
        shared = np.zeros(n_codes[a], dtype=np.int64)
        for i in range(n):
            shared[codes[a, i]] += together[i]
        n_lower = 0
        n_shared = 0
        for code in range(n_codes[a] - 1):
            place = first[a] + code
            n_lower += totals[place]
            n_shared += shared[code]
            if totals[place] == 0 or n_lower < least or n - n_lower < least:
                continue
            # Where c of all t records with a code are below, (t - c)² = t² - 2 t c + c².
            upper_squares = squares - 2 * n_shared + lower_squares[place]
            fall = lower_squares[place] / n_lower + upper_squares / (n - n_lower) - squares / n
            if fall > best * (1 + 1e-12):
                best = fall
                best_attribute = int(a)
                best_last = code
    return best_attribute, best_last


@numba.njit(cache=True, nogil=True)
def _lower_squares(
    codes: CodeArray, n_codes: IntArray, first: IntArray, varied: IntArray, totals: IntArray
) -> IntArray:
    """Return the sum of squared counts of all codes, of the records below a cut at each code.

    For two attributes with few codes, it follows from a table of their pairs, each of which is
    found with one step for each record; the others take several.
    """
    n = codes.shape[1]
    squares = np.zeros_like(totals)
    lower = np.empty_like(totals)
    table = np.empty(n, dtype=np.int32)
    cells = np.empty((0, 0), dtype=np.int32)
    for a in varied:
        of_a = slice(first[a], first[a + 1])
        squares[of_a] += np.cumsum(totals[of_a] ** 2)
        is_wide = n_codes[varied] * n_codes[a] > n
        for b in varied[~is_wide]:
            if b < a:
                _count_pairs(codes[a], codes[b], n_codes[b], table[: n_codes[a] * n_codes[b]])
                _add_of_table(table, n_codes[b], 1, squares[of_a], lower[: n_codes[b]])
                _add_of_table(
                    table, 1, n_codes[b], squares[first[b] : first[b + 1]], lower[: n_codes[a]]
                )
        others = varied[is_wide & (varied != a)]
        if others.size:
            if not cells.size:
                cells = _cells(codes, first)
            lower[:] = 0
            _add_of_records(codes[a], totals[of_a], cells, others, lower, squares[of_a])
    return squares


@innermost
def _count_pairs(codes: CodeArray, others: CodeArray, n_others: int, table: CodeArray) -> None:
    """Count the records with each code of one attribute, row by row, and of another."""
    table[:] = 0
    for i in range(codes.size):
        table[codes[i] * n_others + others[i]] += 1


@innermost
def _add_of_table(
    table: CodeArray, row: int, column: int, squares: IntArray, lower: IntArray
) -> None:
    """Add the squared counts of another attribute's codes, below each code of one.

    The table has its steps from row to row, and from column to column, so that it can be turned.
    """
    lower[:] = 0
    for code in range(squares.size):
        for other in range(lower.size):
            lower[other] += table[code * row + other * column]
            squares[code] += lower[other] ** 2


@numba.njit(cache=True, nogil=True)
def _cells(codes: CodeArray, first: IntArray) -> CodeArray:
    """Return the codes of each record, those of one attribute after those of the one before."""
    n_qi, n = codes.shape
    cells = np.empty((n, n_qi), dtype=np.int32)
    for i in range(n):
        for a in range(n_qi):
            cells[i, a] = first[a] + codes[a, i]
    return cells


@numba.njit(cache=True, nogil=True)
def _add_of_records(
    codes: CodeArray,
    totals: IntArray,
    cells: CodeArray,
    others: IntArray,
    lower: IntArray,
    squares: IntArray,
) -> None:
    """Add the same of several attributes, whose tables would have more cells than records."""
    # Counting sort: the records of code c end at ends[c].
    ends = np.cumsum(totals)
    place = ends - totals
    order = np.empty(codes.size, dtype=np.int64)
    for i in range(codes.size):
        order[place[codes[i]]] = i
        place[codes[i]] += 1
    below = 0
    begin = 0
    for code in range(ends.size):
        for k in range(begin, ends[code]):
            i = order[k]
            there = 0
            for b in others:
                there += lower[cells[i, b]]
                lower[cells[i, b]] += 1
            below += 2 * there + others.size  # (c + 1)² = c² + 2 c + 1
        begin = ends[code]
        squares[code] += below
