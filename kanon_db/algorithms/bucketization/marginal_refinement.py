"""Swaps of records with the same sensitive value, which bring estimates closer to the counts."""

from __future__ import annotations

from itertools import combinations
from typing import Final

import numpy as np

from kanon_db.algorithms.bucketization.marginals import Marginals, Shares, add_errors
from kanon_db.algorithms.bucketization.random_assignment import Permuter
from kanon_db.algorithms.bucketization.window_swaps import find_swaps, make_swaps
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.ground.sort_keys import sort_keys
from kanon_db.algorithms.ground.sorting import order_of, taken
from kanon_db.algorithms.ground.threads import Threads

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
    windows is looked at by another thread, while nothing is changed; then the swaps are made, one
    by one, as far as they gain (:func:`.make_swaps`). So the result does not depend on the threads.
    The refinement ends early when two passes together lower the objective by less than a hundredth.
    Equal records never differ in how likely they are to be swapped, so which of them ends up where
    stays a matter of chance.

    Beyond 36 marginals, those of two quasi-identifiers are left out. Where there would be more
    than 8 million errors, neighboring codes are joined.
    """
    marginals = _marginals(qi_codes, n_values)
    shares = Shares.of(buckets, sa_codes, n_values)
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
    """Choose the marginals; their errors are those of no record at all."""
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
