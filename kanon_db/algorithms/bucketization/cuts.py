"""The cut that divides records into two sets of the most similar quasi-identifiers."""

from __future__ import annotations

import numba
import numpy as np

from kanon_db.algorithms.bucketization.cut_tree import Cut
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray

_MOST_LOOKED_AT = 2**15
_MOST_COMPARED = 2**23  # records times attributes squared: some dozen milliseconds of work


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

    Cost: O(n n_qi²) for the n records that are looked at, which is bounded.

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
    looked_at, n_codes = _looked_at(codes, among)
    # Codes are few in a small set, however many there are in the table.
    kept = {}
    for a in np.flatnonzero(n_codes > 2 * among.size).tolist():
        kept[a], looked_at[:, a] = np.unique(looked_at[:, a], return_inverse=True)
        n_codes[a] = kept[a].size
    attribute, last = _best_cut(looked_at, n_codes, max(1, least // stride))
    if attribute < 0:
        return None
    return Cut(attribute, int(kept[attribute][last]) if attribute in kept else last)


@numba.njit(cache=True, nogil=True)
def _looked_at(codes: CodeArray, records: IntArray) -> tuple[CodeArray, IntArray]:
    """Return the codes of some records, and how many codes of each attribute there are at most."""
    n_qi = codes.shape[1]
    looked_at = np.empty((records.size, n_qi), dtype=codes.dtype)
    n_codes = np.zeros(n_qi, dtype=np.int64)
    for i in range(records.size):
        record = records[i]
        for a in range(n_qi):
            looked_at[i, a] = codes[record, a]
    for a in range(n_qi):
        largest = looked_at[0, a]
        for i in range(records.size):
            largest = max(largest, looked_at[i, a])
        n_codes[a] = largest + 1
    return looked_at, n_codes


@numba.njit(cache=True, nogil=True)
def _best_cut(codes: CodeArray, n_codes: IntArray, least: int) -> tuple[int, int]:
    n, n_qi = codes.shape
    first = np.zeros(n_qi + 1, dtype=np.int64)  # where the codes of each attribute begin
    first[1:] = np.cumsum(n_codes)
    totals = np.zeros(first[n_qi], dtype=np.int64)
    cells = np.empty((n, n_qi), dtype=np.int32)
    for i in range(n):
        for a in range(n_qi):
            cells[i, a] = first[a] + codes[i, a]
            totals[cells[i, a]] += 1
    together = np.zeros(n, dtype=np.int64)  # how many have each code of a record, in sum
    for i in range(n):
        for a in range(n_qi):
            together[i] += totals[cells[i, a]]
    squares = (totals**2).sum()
    best = 0.0
    best_attribute = -1
    best_last = -1
    order = np.empty(n, dtype=np.int64)
    for attribute in range(n_qi):
        if n_codes[attribute] == 1:
            continue
        # Counting sort: the records of code c end at ends[c + 1].
        ends = np.zeros(n_codes[attribute] + 1, dtype=np.int64)
        ends[1:] = np.cumsum(totals[first[attribute] : first[attribute + 1]])
        place = ends[:-1].copy()
        for i in range(n):
            code = codes[i, attribute]
            order[place[code]] = i
            place[code] += 1
        # The sides' sums of squared counts. Where c of all t records with a code are below, one
        # more adds 2 c + 1 to the one, and takes 2 (t - c) - 1 from the other.
        lower = np.zeros_like(totals)
        lower_squares = 0
        upper_squares = squares
        for code in range(n_codes[attribute] - 1):
            if ends[code + 1] == ends[code]:
                continue
            for k in range(ends[code], ends[code + 1]):
                i = order[k]
                there = 0
                for a in range(n_qi):
                    there += lower[cells[i, a]]
                    lower[cells[i, a]] += 1
                lower_squares += 2 * there + n_qi
                upper_squares -= 2 * (together[i] - there) - n_qi
            n_lower = ends[code + 1]
            if n_lower < least or n - n_lower < least:
                continue
            fall = lower_squares / n_lower + upper_squares / (n - n_lower) - squares / n
            if fall > best * (1 + 1e-12):
                best = fall
                best_attribute = attribute
                best_last = code
    return best_attribute, best_last
