"""Swaps of records that have the same sensitive value: found in windows, made one by one."""

from __future__ import annotations

from typing import Final

import numba
import numpy as np

from kanon_db.algorithms.bucketization.marginals import Marginals, Shares, find_cells
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, SingleArray

_LANES: Final = 16
"""Numbers of a window's values are rounded up to a multiple of this: loops of whole vectors."""

_DIFFERENT: Final = np.float32(0.7)
"""The share of their weights in which two records are expected to differ."""

_LEAST_GAIN: Final = 1e-9
"""A swap that only rounding makes look better would go to and fro."""


@numba.njit(cache=True, nogil=True)
def find_swaps(
    records: IntArray,
    partners: IntArray,
    sa_codes: CodeArray,
    buckets: IntArray,
    shares_of_buckets: Shares,
    marginals: Marginals,
    window: int,
) -> None:
    """Look for a promising partner of each record.

    Parameters
    ----------
    records : ndarray of int64, shape (n,)
    partners : ndarray of int64, shape (n,)
        Gets how many places later a record's partner is, with which it is to change buckets; 0 for
        none. The swaps are meant to be made in the order of the records.
    sa_codes : ndarray of int32, shape (n_records,)
    buckets : ndarray of int64, shape (n_records,)
    shares_of_buckets : Shares
    marginals : Marginals
    window : int
        So many records are looked at by themselves: a partner is in the same window.

    Notes
    -----
    With the errors E and the weights w, A_ri = sum_t w_v E_vi is what the cells v of a record r
    say about the value i. A swap of r and x, from buckets with the shares p and q, changes the
    objective by 2 (p - q) (A_r - A_x) + |p - q|² W, where W is the weight of all cells in which
    only one of the records is. So the cells are looked at once for each record, not for each
    pair. It is an estimate, in single precision: W is taken as a share of the weight of all cells
    of both records, and of the swaps that come before, only those of the same window are taken
    into account, by what they change of the partner.
    """
    ends, values, shares = shares_of_buckets
    codes, _, widths, _, weights, errors = marginals
    n_qi, m = codes.shape[1], errors.shape[1]
    own_codes = np.empty((window, n_qi), dtype=np.int32)
    own_values, own_buckets = np.empty(window, dtype=np.int64), np.empty(window, dtype=np.int64)
    cells = np.empty(widths.size, dtype=np.int64)
    # The values in the buckets of a window, their shares there, and what the records' cells say.
    most = -(-m // _LANES) * _LANES
    listed, place = np.zeros(most, dtype=np.int64), np.full(m, -1, dtype=np.int64)
    inside = np.empty((window, most), dtype=np.float32)
    said = np.empty((window, most), dtype=np.float32)
    weight = np.empty(window, dtype=np.float32)
    for start in range(0, records.size, window):
        n = min(window, records.size - start)
        # Records lie anywhere in memory: a loop that does nothing else waits for many at once.
        for j in range(n):
            record = records[start + j]
            own_buckets[j], own_values[j] = buckets[record], sa_codes[record]
            for a in range(n_qi):
                own_codes[j, a] = codes[record, a]
        n_listed = 0
        for j in range(n):
            for e in range(ends[own_buckets[j]], ends[own_buckets[j] + 1]):
                i = values[e]
                if place[i] < 0:
                    place[i] = n_listed
                    listed[n_listed] = i
                    n_listed += 1
        width = -(-n_listed // _LANES) * _LANES
        listed[n_listed:width] = 0  # any value: none of the buckets has a share of it there
        inside[:n, :width] = 0
        for j in range(n):
            for e in range(ends[own_buckets[j]], ends[own_buckets[j] + 1]):
                inside[j, place[values[e]]] = shares[e]
        for k in range(n_listed):
            place[listed[k]] = -1
        for j in range(n):
            find_cells(marginals, own_codes[j], cells)
            row = said[j]
            row[:width] = 0
            total = 0.0
            for t in range(cells.size):
                of_cell, w = errors[cells[t]], weights[cells[t]]
                total += w
                for k in range(width):
                    row[k] += w * of_cell[listed[k]]
            weight[j] = total
        for j in range(n):
            best, chosen = np.float32(0), 0
            for c in range(j + 1, n):
                if own_buckets[c] == own_buckets[j] or own_values[c] != own_values[j]:
                    continue
                of_both = _DIFFERENT * (weight[j] + weight[c])
                gain = _gain(inside, said, j, c, of_both, width)
                if gain > best:
                    best, chosen = gain, c
            partners[start + j] = max(0, chosen - j)
            if chosen:
                for k in range(width):
                    said[chosen, k] -= weight[chosen] * (inside[j, k] - inside[chosen, k])
                    inside[chosen, k] = inside[j, k]
                own_buckets[chosen] = own_buckets[j]


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "nsz", "contract"})
def _gain(
    inside: SingleArray, said: SingleArray, r: int, x: int, weight: float, width: int
) -> np.float32:
    """Estimate by how much a swap lowers the objective."""
    product, norm = np.float32(0), np.float32(0)
    for k in range(width):
        difference = inside[r, k] - inside[x, k]
        product += difference * (said[r, k] - said[x, k])
        norm += difference * difference
    return -2 * product - weight * norm


@numba.njit(cache=True, nogil=True)
def make_swaps(
    records: IntArray,
    partners: IntArray,
    buckets: IntArray,
    shares_of_buckets: Shares,
    marginals: Marginals,
) -> None:
    """Make those of the swaps that lower the objective.

    Parameters
    ----------
    records, partners
        As :func:`find_swaps` takes and gives them.
    buckets, marginals
        Changed in place.
    shares_of_buckets
    """
    ends, values, shares = shares_of_buckets
    codes, _, widths, _, weights, errors = marginals
    dense = np.zeros(errors.shape[1])  # p - q, for the values listed
    listed = np.empty(errors.shape[1], dtype=np.int64)
    cells = np.empty((2, widths.size), dtype=np.int64)
    for position in range(records.size):
        if not partners[position]:
            continue
        r, x = records[position], records[position + partners[position]]
        g, h = buckets[r], buckets[x]
        n_listed = 0
        for e in range(ends[g], ends[g + 1]):
            dense[values[e]] = shares[e]
            listed[n_listed] = values[e]
            n_listed += 1
        for e in range(ends[h], ends[h + 1]):
            i = values[e]
            if dense[i] == 0.0:
                listed[n_listed] = i
                n_listed += 1
            dense[i] -= shares[e]
        norm = 0.0
        for k in range(n_listed):
            norm += dense[listed[k]] ** 2
        find_cells(marginals, codes[r], cells[0])
        find_cells(marginals, codes[x], cells[1])
        gain = 0.0
        for t in range(widths.size):
            v, y = cells[0, t], cells[1, t]
            if v == y:
                continue
            # Record r takes the shares q instead of p: row v gains p - q, row y loses it.
            with_v, with_y = 0.0, 0.0
            for k in range(n_listed):
                i = listed[k]
                with_v += errors[v, i] * dense[i]
                with_y += errors[y, i] * dense[i]
            gain -= weights[v] * (norm + 2 * with_v) + weights[y] * (norm - 2 * with_y)
        if g != h and gain > _LEAST_GAIN:
            buckets[r], buckets[x] = h, g
            for t in range(widths.size):
                v, y = cells[0, t], cells[1, t]
                if v == y:
                    continue
                for k in range(n_listed):
                    i = listed[k]
                    errors[v, i] += dense[i]
                    errors[y, i] -= dense[i]
        for k in range(n_listed):
            dense[listed[k]] = 0.0
