"""Swaps records with the same sensitive value between buckets, to lower the errors of estimates.

The errors are those of estimates on one or two quasi-identifiers, the marginals ([GB] Section 3.2).
"""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Final, NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.bucketization.bucket_assignment import Permuter
from kanon_db.algorithms.ground.arrays import (
    CodeArray,
    FloatArray,
    IntArray,
    SingleArray,
    order_of,
    sort_keys,
    taken,
)
from kanon_db.algorithms.ground.computation import Pulse, Threads, in_threads, n_cores

_RECORDS_PER_BLOCK: Final = 2**15
"""Some ten milliseconds of work."""


class Marginals(NamedTuple):
    """Errors of all estimates on one or two quasi-identifiers and the sensitive attribute."""

    # (n_records, n_qi): quasi-identifiers, similar values joined where they are too many to tell
    # all apart
    codes: CodeArray
    # (t, 2): the two quasi-identifiers of each marginal, the same twice if it has one
    pairs: IntArray
    widths: IntArray  # (t,): number of codes of the second quasi-identifier; 0 if there is none
    first_cell: IntArray  # (t,): where the cells of each marginal begin
    # (n_cells,): weight of a squared error in the objective: 0 for cells of few records
    weights: FloatArray
    # (n_cells, m): records of each cell and sensitive value, less their estimate from the buckets
    errors: FloatArray

    @property
    def objective(self) -> float:
        """Weighted sum of the squared errors."""
        return float(self.weights @ np.square(self.errors).sum(axis=1))


class BucketShares(NamedTuple):
    """The fraction of each sensitive value in each bucket; a bucket's values follow each other."""

    # (n_buckets + 1,): entries of bucket g are those from ``ends[g]`` up to, not including,
    # ``ends[g + 1]``
    ends: IntArray
    values: IntArray  # (e,)
    shares: FloatArray  # (e,)

    @classmethod
    def of(cls, buckets: IntArray, sa_codes: CodeArray, n_values: int) -> BucketShares:
        """Compute the fractions in buckets that are numbered without gaps."""
        sizes = np.bincount(buckets)
        keys, counts = np.unique(buckets * n_values + sa_codes, return_counts=True)
        owners = keys // n_values
        ends = np.searchsorted(owners, np.arange(sizes.size + 1)).astype(np.int64)
        return cls(ends, keys % n_values, counts / sizes[owners])


def add_errors(
    buckets: IntArray, sa_codes: CodeArray, shares: BucketShares, marginals: Marginals, pulse: Pulse
) -> IntArray:
    """Add the errors of all records to the marginals.

    Each half of the records is added up by a thread of its own: in the same order, and so to the
    same sums, however many threads there are.
    """
    n_records, n_cells = sa_codes.size, marginals.weights.size
    halves = tuple(pairwise((0, n_records // 2, n_records)))
    counts = np.zeros((len(halves), n_cells), dtype=np.int64)
    parts = [marginals, marginals._replace(errors=np.zeros_like(marginals.errors))]

    def add(half: int, pulse: Pulse) -> None:
        start, end = halves[half]
        for first in range(start, end, _RECORDS_PER_BLOCK):
            pulse.beat()
            last = min(end, first + _RECORDS_PER_BLOCK)
            _add(first, last, buckets, sa_codes, shares, parts[half], counts[half])

    in_threads(add, range(len(halves)), n_cores(), pulse.of_part())
    np.add(marginals.errors, parts[1].errors, out=marginals.errors)
    total: IntArray = counts.sum(axis=0)
    return total


@numba.njit(cache=True, nogil=True)
def find_cells(marginals: Marginals, codes: CodeArray, cells: IntArray) -> None:
    """Find the cell of each marginal that a record with these codes is in."""
    _, pairs, widths, first_cell, _, _ = marginals
    for t in range(widths.size):
        cell = first_cell[t] + codes[pairs[t, 0]] * max(1, widths[t])
        if widths[t]:
            cell += codes[pairs[t, 1]]
        cells[t] = cell


@numba.njit(cache=True, nogil=True)
def _add(
    first: int,
    last: int,
    buckets: IntArray,
    sa_codes: CodeArray,
    shares_of_buckets: BucketShares,
    marginals: Marginals,
    counts: IntArray,
) -> None:
    """Add some of the records, and what they contribute to the errors."""
    ends, values, shares = shares_of_buckets
    codes, _, widths, _, _, errors = marginals
    cells = np.empty(widths.size, dtype=np.int64)
    amounts = np.empty(errors.shape[1])
    for record in range(first, last):
        find_cells(marginals, codes[record], cells)
        start, n = ends[buckets[record]], ends[buckets[record] + 1] - ends[buckets[record]]
        for k in range(n):
            amounts[k] = (values[start + k] == sa_codes[record]) - shares[start + k]
        for t in range(cells.size):
            v = cells[t]
            counts[v] += 1
            for k in range(n):
                errors[v, values[start + k]] += amounts[k]


_LANES: Final = 16
"""The number of values in a window is rounded up to a multiple of this, for whole vectors."""

_DIFFERENT: Final = np.float32(0.7)
"""Expected fraction of the weights of two records in whose cells only one of them is."""

_LEAST_GAIN: Final = 1e-9
"""Least gain of a swap: rounding errors alone would swap records back and forth."""


@numba.njit(cache=True, nogil=True)
def find_swaps(
    records: IntArray,
    # (n,): gets how many places later a record's partner is, with which it is to change buckets; 0
    # for none. The swaps are meant to be made in the order of the records.
    partners: IntArray,
    sa_codes: CodeArray,
    buckets: IntArray,
    shares_of_buckets: BucketShares,
    marginals: Marginals,
    window: int,  # Size of a window, in records: a record's partner is in the same window
) -> None:
    """Look for a promising partner of each record.

    With the errors E and weights w, A_ri = sum_t w_v E_vi is what the cells v of record r say of
    value i. A swap changes the objective by 2 (p - q) (A_r - A_x) + |p - q|² W, estimated here.
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
    shares_of_buckets: BucketShares,
    marginals: Marginals,
) -> None:
    """Make those of the swaps that lower the objective."""
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


_LEAST_RECORDS: Final = 100  # fewer records of a cell could be moved for the sake of one of them
_MAX_MARGINALS: Final = 36  # as many as 8 quasi-identifiers have: more take time and add little
_MAX_ERRORS: Final = 2**23  # errors held at once: 64 MB
_WINDOW: Final = 64  # records among which each one looks for a partner
_LEAST_WINDOW: Final = 8  # the same, where buckets have many values
_VALUES_OF_WINDOW: Final = 256  # more of them make the window smaller
_WINDOWS_PER_BLOCK: Final = 64  # a few milliseconds of work; the next ones see what it changed
_MOST_PASSES: Final = 40
_LEAST_FALL: Final = 0.01  # of the objective in two passes; less is not worth their time


def refine(
    buckets: IntArray,
    qi_codes: CodeArray,
    sa_codes: CodeArray,
    n_values: int,
    random: Permuter,
    *,
    n_terms: int,
    pulse: Pulse,
) -> Marginals:
    """Swap records with the same sensitive value between buckets while estimates improve.

    Which values a bucket holds, and how often, stays as it is, and so does every limit on them.

    Parameters
    ----------
    buckets : ndarray of int64, shape (n_records,)
        Bucket of each record, numbered without gaps; changed in place.
    qi_codes : ndarray of int32, shape (n_records, n_qi)
    sa_codes : ndarray of int32, shape (n_records,)
    n_values : int
        Number of sensitive values.
    random : Permuter
        Source of randomness: one permutation for each pass.
    n_terms : int
        How much work to do: terms of the objective that proposals may look at, roughly. It is
        rounded to whole passes, at least one and at most 40; each looks for a partner of each
        record, and costs a sort besides.
    pulse : Pulse
        Beaten every few milliseconds of work, sorts excepted; what that raises ends the refinement.

    Returns
    -------
    Marginals
        The errors that remain.

    Notes
    -----
    For a cell v of a marginal (a value of one quasi-identifier, or a pair of values of two) and a
    sensitive value i, the estimate of [GB] Section 3.2 is off by
    E_vi = sum over the records r of v of ([S(r) = i] - p_i of the bucket of r), where p are the
    shares in a bucket. The error of any count query on these quasi-identifiers is a sum of such
    E_vi, so the objective is the sum of w_v E_vi², with w_v = 1 / sqrt(records of v): errors of
    small counts matter more. But w_v = 0 where v has fewer than 100 records: a cell with a single
    record comes closest to its count when that record moves to a bucket rich in its own value,
    and that the most frequent value of its bucket is its own would then be more likely than the
    share says. In larger cells, a small error means that the shares are right on average, for
    these quasi-identifiers, too. A swap moves two rows of E by p_g - p_h for each marginal in which
    its records differ; it is made if and only if that lowers the objective.

    In each pass, the records of a value are put in random order, in every other pass in that of a
    sort by their quasi-identifiers, which begins with another one each time: swaps of neighbors
    there disturb few marginals. Among 64 that follow each other, each record looks for the partner
    with which a swap is estimated to gain most (:func:`.find_swaps`). Half of a block of these
    windows is searched by another thread, while nothing is changed; then the swaps are made, one
    by one, as far as they gain (:func:`.make_swaps`). So the result does not depend on the threads.
    The refinement ends early when two passes together lower the objective by less than a hundredth.
    Equal records never differ in how likely they are to be swapped, so which of them ends up where
    stays a matter of chance.

    Beyond 36 marginals, those of two quasi-identifiers are left out. Where there would be more
    than 8 million errors, neighboring codes are joined.
    """
    marginals = _marginals(qi_codes, n_values)
    shares = BucketShares.of(buckets, sa_codes, n_values)
    counts = add_errors(buckets, sa_codes, shares, marginals, pulse)
    is_weighted = counts >= _LEAST_RECORDS
    marginals.weights[is_weighted] = counts[is_weighted] ** -0.5
    n_qi, n = qi_codes.shape[1], sa_codes.size
    if not n_qi or not n:
        return marginals
    values_of_bucket = shares.values.size // (shares.ends.size - 1)
    window = max(_LEAST_WINDOW, min(_WINDOW, _VALUES_OF_WINDOW // values_of_bucket))
    if n_values <= _VALUES_OF_WINDOW:
        window = _WINDOW
    terms_per_pass = n * (len(marginals.pairs) + window) * min(n_values, _VALUES_OF_WINDOW)
    n_passes = min(max(1, n_terms // terms_per_pass), _MOST_PASSES)
    objectives = [marginals.objective]
    with Threads(1) as threads:
        for number in range(n_passes):
            order = _order(number, qi_codes, sa_codes, random, pulse)
            for start in range(0, n, _WINDOWS_PER_BLOCK * window):
                pulse.beat()
                records = order[start : start + _WINDOWS_PER_BLOCK * window]
                partners = np.empty_like(records)
                middle = _WINDOWS_PER_BLOCK // 2 * window
                given = sa_codes, buckets, shares, marginals, window
                other = threads.start(find_swaps, records[middle:], partners[middle:], *given)
                find_swaps(records[:middle], partners[:middle], *given)
                other.result()
                make_swaps(records, partners, buckets, shares, marginals)
            objectives.append(marginals.objective)
            if number % 2 and objectives[-1] >= (1 - _LEAST_FALL) * objectives[-3]:
                break
    return marginals


def _order(
    number: int, qi_codes: CodeArray, sa_codes: CodeArray, random: Permuter, pulse: Pulse
) -> IntArray:
    """Return the order of records in a pass: by value, in every other one by similarity, too."""
    pulse.beat()
    shuffled = random.permutation(sa_codes.size).astype(np.int64, copy=False)
    pulse.beat()
    if number % 2 == 0:
        return shuffled[order_of(sa_codes[shuffled], stable=True)]
    attributes = np.roll(np.arange(qi_codes.shape[1]), -(number // 2)).tolist()
    keys = sort_keys([sa_codes, *(qi_codes[:, a] for a in attributes)])
    # However a sort orders equal keys: that records come to it at random makes their order random.
    return taken(shuffled, order_of(taken(keys, shuffled)))


def _marginals(qi_codes: CodeArray, n_values: int) -> Marginals:
    """Choose the marginals, with all errors 0."""
    n_qi = qi_codes.shape[1]
    singles = [(a, a) for a in range(n_qi)]
    # Pairs of neighbors first, so that each quasi-identifier takes part in about as many.
    couples = sorted(combinations(range(n_qi), 2), key=lambda pair: (pair[1] - pair[0], pair))
    chosen = singles + couples[: max(0, _MAX_MARGINALS - n_qi)]
    n_codes = qi_codes.max(axis=0, initial=0).astype(np.int64) + 1
    most = largest = int(n_codes.max(initial=1))

    def cells(limit: int) -> list[int]:
        kept = np.minimum(n_codes, limit).tolist()
        return [kept[a] * (kept[b] if a != b else 1) for a, b in chosen]

    while most > 1 and sum(cells(most)) * n_values > _MAX_ERRORS:
        most = (most + 1) // 2
    kept = np.minimum(n_codes, most)
    codes = qi_codes if most == largest else qi_codes * kept // n_codes
    n_cells = cells(most)
    pairs = np.array(chosen, dtype=np.int64).reshape(-1, 2)
    widths = np.array([kept[b] if a != b else 0 for a, b in chosen], dtype=np.int64)
    first_cell = np.cumsum([0, *n_cells])[:-1].astype(np.int64)
    weights = np.zeros(sum(n_cells))
    errors = np.zeros((weights.size, n_values))
    return Marginals(codes.astype(np.int32), pairs, widths, first_cell, weights, errors)
