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
        looked_at = codes[records[::stride]]
    else:
        ends = np.cumsum(weights[records])
        stride = -(-int(ends[-1]) // most)
        among = np.searchsorted(ends, np.arange(0, ends[-1], stride), side="right")
        looked_at = codes[records[among]]
    # Codes are few in a small set, however many there are in the table.
    kept = {
        a: np.unique(column, return_inverse=True)
        for a, column in enumerate(looked_at.T)
        if column.max() >= 2 * column.size
    }
    for a, (_, positions) in kept.items():
        looked_at[:, a] = positions
    attribute, last = _best_cut(looked_at, looked_at.max(axis=0) + 1, max(1, least // stride))
    if attribute < 0:
        return None
    return Cut(attribute, int(kept[attribute][0][last]) if attribute in kept else last)


@numba.njit(cache=True, nogil=True)
def _best_cut(codes: CodeArray, n_codes: CodeArray, least: int) -> tuple[int, int]:
    n, n_qi = codes.shape
    totals = np.zeros((n_qi, n_codes.max()), dtype=np.int64)
    for i in range(n):
        for a in range(n_qi):
            totals[a, codes[i, a]] += 1
    best = 0.0
    best_attribute = -1
    best_last = -1
    order = np.empty(n, dtype=np.int64)
    for attribute in range(n_qi):
        if n_codes[attribute] == 1:
            continue
        # Counting sort: the records of code c end at ends[c].
        ends = np.zeros(n_codes[attribute] + 1, dtype=np.int64)
        ends[1:] = np.cumsum(totals[attribute, : n_codes[attribute]])
        place = ends[:-1].copy()
        for i in range(n):
            code = codes[i, attribute]
            order[place[code]] = i
            place[code] += 1
        # The sides' sums of squared counts; they are whole, and exact below 2^53.
        lower = np.zeros_like(totals)
        lower_squares = np.zeros(n_qi)
        upper_squares = np.zeros(n_qi)
        for a in range(n_qi):
            upper_squares[a] = (totals[a].astype(np.float64) ** 2).sum()
        whole = upper_squares.sum() / n
        for code in range(n_codes[attribute] - 1):
            if ends[code + 1] == ends[code]:
                continue
            for i in order[ends[code] : ends[code + 1]]:
                for a in range(n_qi):
                    there = lower[a, codes[i, a]]
                    lower_squares[a] += 2 * there + 1
                    upper_squares[a] -= 2 * (totals[a, codes[i, a]] - there) - 1
                    lower[a, codes[i, a]] = there + 1
            n_lower = ends[code + 1]
            if n_lower < least or n - n_lower < least:
                continue
            fall = lower_squares.sum() / n_lower + upper_squares.sum() / (n - n_lower) - whole
            if fall > best * (1 + 1e-12):
                best = fall
                best_attribute = attribute
                best_last = code
    return best_attribute, best_last
