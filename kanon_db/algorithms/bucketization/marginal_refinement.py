"""Swaps of records with the same sensitive value, which bring estimates closer to the counts."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.bucketization.random_assignment import Permuter
from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray, IntArray, Integer
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.ground.sort_keys import sort_keys

_LEAST_RECORDS = 100  # fewer records of a cell could be moved for the sake of one of them
_MAX_MARGINALS = 36  # as many as 8 quasi-identifiers have: more take time and add little
_MAX_ERRORS = 2**23  # errors held at once: 64 MB
_PROPOSALS_PER_BLOCK = 2**14  # some ten milliseconds of work
_MOST_PASSES = 40


class Marginals(NamedTuple):
    """Errors of all estimates on one or two quasi-identifiers and the sensitive attribute.

    Parameters
    ----------
    codes : ndarray of int32, shape (n_records, n_qi)
        Quasi-identifiers, similar values joined where they are too many to tell all apart.
    pairs : ndarray of int64, shape (t, 2)
        The two quasi-identifiers of each marginal, the same twice if it has one.
    widths : ndarray of int64, shape (t,)
        Number of codes of the second quasi-identifier; 0 if there is none.
    first_cell : ndarray of int64, shape (t,)
        Where the cells of each marginal begin.
    weights : ndarray of float64, shape (n_cells,)
        Weight of a squared error in the objective: 0 for cells of fewer than 100 records.
    errors : ndarray of float64, shape (n_cells, m)
        Records of each cell and sensitive value, less their estimate from the buckets.
    """

    codes: CodeArray
    pairs: IntArray
    widths: IntArray
    first_cell: IntArray
    weights: FloatArray
    errors: FloatArray

    @property
    def objective(self) -> float:
        """Weighted sum of the squared errors."""
        return float(self.weights @ np.square(self.errors).sum(axis=1))


class Shares(NamedTuple):
    """Share of each sensitive value in each bucket; values of a bucket follow each other.

    Parameters
    ----------
    ends : ndarray of int64, shape (n_buckets + 1,)
        Entries of bucket g are those from ``ends[g]`` up to, not including, ``ends[g + 1]``.
    values : ndarray of int64, shape (e,)
    shares : ndarray of float64, shape (e,)
    """

    ends: IntArray
    values: IntArray
    shares: FloatArray

    @classmethod
    def of(cls, buckets: IntArray, sa_codes: CodeArray, n_values: int) -> Shares:
        """Find the shares in buckets that are numbered without gaps."""
        sizes = np.bincount(buckets)
        keys, counts = np.unique(buckets * n_values + sa_codes, return_counts=True)
        owners = keys // n_values
        ends = np.searchsorted(owners, np.arange(sizes.size + 1)).astype(np.int64)
        return cls(ends, keys % n_values, counts / sizes[owners])


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
        Source of randomness: two permutations for each pass.
    n_terms : int
        How much work to do: terms of the objective that proposals may look at, roughly. It is
        rounded to whole passes, at least one and at most 40; each proposes two swaps for each
        record, and costs two sorts besides.
    pulse : Pulse
        Beaten every few dozen milliseconds of work; what that raises ends the refinement.

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

    Half of the proposals are neighbors in a sort by value and quasi-identifiers, which begins with
    another quasi-identifier in each pass: such swaps disturb few marginals. The other half are
    random. Equal records never differ in how likely they are to be swapped, so which of them ends
    up where stays a matter of chance.

    Beyond 36 marginals, those of two quasi-identifiers are left out. Where there would be more
    than 8 million errors, neighboring codes are joined.
    """
    marginals = _marginals(qi_codes, n_values)
    n_qi = qi_codes.shape[1]
    shares = Shares.of(buckets, sa_codes, n_values)
    # Each proposal looks at two cells of each marginal, for each value in either bucket.
    terms_per_pass = 8 * marginals.widths.size * int(np.diff(shares.ends)[buckets].sum())
    n_passes = min(max(1, n_terms // max(1, terms_per_pass)), _MOST_PASSES)
    for start in range(0, sa_codes.size, _PROPOSALS_PER_BLOCK):
        pulse.beat()
        _add_errors(start, start + _PROPOSALS_PER_BLOCK, sa_codes, buckets, shares, marginals)
    for number in range(n_passes if n_qi and sa_codes.size else 0):
        pulse.beat()
        shuffled = random.permutation(sa_codes.size).astype(np.int64, copy=False)
        by_value = shuffled[np.argsort(sa_codes[shuffled], kind="stable")]
        pulse.beat()
        shuffled = random.permutation(sa_codes.size).astype(np.int64, copy=False)
        attributes = np.roll(np.arange(n_qi), -number).tolist()
        keys = sort_keys([sa_codes, *(qi_codes[:, a] for a in attributes)])
        similar = shuffled[np.argsort(keys[shuffled], kind="stable")]
        lag = 1 + number % 3
        for first, second in ((by_value[:-1], by_value[1:]), (similar[:-lag], similar[lag:])):
            for start in range(0, first.size, _PROPOSALS_PER_BLOCK):
                pulse.beat()
                block = slice(start, start + _PROPOSALS_PER_BLOCK)
                _swap(first[block], second[block], sa_codes, buckets, shares, marginals)
    return marginals


def _marginals(qi_codes: CodeArray, n_values: int) -> Marginals:
    """Choose the marginals; their errors are those of no record at all."""
    n_qi = qi_codes.shape[1]
    singles = [(a, a) for a in range(n_qi)]
    # Pairs of neighbors first, so that each quasi-identifier takes part in about as many.
    couples = sorted(combinations(range(n_qi), 2), key=lambda pair: (pair[1] - pair[0], pair))
    chosen = singles + couples[: max(0, _MAX_MARGINALS - n_qi)]
    n_codes = qi_codes.max(axis=0, initial=0).astype(np.int64) + 1
    most = int(n_codes.max(initial=1))

    def cells(limit: int) -> list[int]:
        kept = np.minimum(n_codes, limit).tolist()
        return [kept[a] * (kept[b] if a != b else 1) for a, b in chosen]

    while most > 1 and sum(cells(most)) * n_values > _MAX_ERRORS:
        most = (most + 1) // 2
    kept = np.minimum(n_codes, most)
    codes = (qi_codes * kept // n_codes).astype(np.int32)
    n_cells = cells(most)
    pairs = np.array(chosen, dtype=np.int64).reshape(-1, 2)
    widths = np.array([kept[b] if a != b else 0 for a, b in chosen], dtype=np.int64)
    first_cell = np.cumsum([0, *n_cells])[:-1].astype(np.int64)
    counts = np.zeros(sum(n_cells), dtype=np.int64)
    for (a, b), width, first, size in zip(chosen, widths, first_cell, n_cells, strict=True):
        cell = codes[:, a] * width + codes[:, b] if width else codes[:, a]
        counts[first : first + size] = np.bincount(cell, minlength=size)
    weights = np.where(counts < _LEAST_RECORDS, 0, 1 / np.sqrt(np.maximum(counts, 1)))
    errors = np.zeros((counts.size, n_values))
    return Marginals(codes, pairs, widths, first_cell, weights, errors)


@numba.njit(cache=True, nogil=True)
def _cell(marginals: Marginals, record: int, t: int) -> Integer:
    """Find the cell of marginal t that a record is in."""
    codes, (a, b), width = marginals.codes, marginals.pairs[t], marginals.widths[t]
    cell: Integer = marginals.first_cell[t] + codes[record, a] * max(1, width)
    if width:
        cell += codes[record, b]
    return cell


@numba.njit(cache=True, nogil=True)
def _add_errors(
    start: int,
    end: int,
    sa_codes: CodeArray,
    buckets: IntArray,
    shares: Shares,
    marginals: Marginals,
) -> None:
    """Add what some of the records contribute to the errors."""
    errors = marginals.errors
    for record in range(start, min(end, sa_codes.size)):
        g = buckets[record]
        for t in range(marginals.widths.size):
            v = _cell(marginals, record, t)
            errors[v, sa_codes[record]] += 1
            for k in range(shares.ends[g], shares.ends[g + 1]):
                errors[v, shares.values[k]] -= shares.shares[k]


@numba.njit(cache=True, nogil=True)
def _swap(
    first: IntArray,
    second: IntArray,
    sa_codes: CodeArray,
    buckets: IntArray,
    shares_of_buckets: Shares,
    marginals: Marginals,
) -> None:
    """Make those of the proposed swaps that lower the objective."""
    ends, values, shares = shares_of_buckets
    codes, pairs, widths, _, weights, errors = marginals
    dense = np.zeros(errors.shape[1])  # p_g - p_h, for the values listed
    listed = np.empty(errors.shape[1], dtype=np.int64)
    cells = np.empty((2, widths.size), dtype=np.int64)
    for proposal in range(first.size):
        r, x = first[proposal], second[proposal]
        g, h = buckets[r], buckets[x]
        if g == h or sa_codes[r] != sa_codes[x]:
            continue
        n_listed = 0
        for k in range(ends[g], ends[g + 1]):
            dense[values[k]] = shares[k]
            listed[n_listed] = values[k]
            n_listed += 1
        for k in range(ends[h], ends[h + 1]):
            i = values[k]
            if dense[i] == 0.0:
                listed[n_listed] = i
                n_listed += 1
            dense[i] -= shares[k]
        norm = 0.0
        for k in range(n_listed):
            norm += dense[listed[k]] ** 2
        if norm > 0.0:
            n_cells = 0
            gain = 0.0
            for t in range(widths.size):
                a, b = pairs[t]
                if codes[r, a] == codes[x, a] and codes[r, b] == codes[x, b]:
                    continue
                v, y = _cell(marginals, r, t), _cell(marginals, x, t)
                # Record r takes the shares p_h instead of p_g: row v gains p_g - p_h, row y loses.
                with_v, with_y = 0.0, 0.0
                for k in range(n_listed):
                    i = listed[k]
                    with_v += errors[v, i] * dense[i]
                    with_y += errors[y, i] * dense[i]
                gain -= weights[v] * (norm + 2 * with_v) + weights[y] * (norm - 2 * with_y)
                cells[0, n_cells], cells[1, n_cells] = v, y
                n_cells += 1
            # A swap that only rounding makes look better would go to and fro.
            if gain > 1e-9:
                buckets[r], buckets[x] = h, g
                for c in range(n_cells):
                    for k in range(n_listed):
                        i = listed[k]
                        errors[cells[0, c], i] += dense[i]
                        errors[cells[1, c], i] -= dense[i]
        for k in range(n_listed):
            dense[listed[k]] = 0.0
