"""How likely people's values are, by iterative scaling, where worlds are too many to be counted."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, FloatArray, IntArray, Integer
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.releases.candidates import in_steps
from kanon_db.algorithms.releases.forced import FREE, Forced
from kanon_db.algorithms.releases.placements import NOWHERE, Releases

TOLERANCE = 0.001
_FEWEST_SWEEPS, _MOST_SWEEPS = 5, 200
_STEPS = 2_000_000_000
_STEPS_OF_PLACEMENT = 20
"""What it takes to look a placement up, as a multiple of a candidate's step."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """Shares that fit the releases.

    Parameters
    ----------
    share : ndarray of float64, shape (n_candidates,)
        The share of each candidate, aligned with the candidates' values; 1 in total for a tuple.
    residual : float
        In the last sweep, the share of the people in open buckets by which the expected numbers of
        the values were off; the most of all releases. 1 without any sweep.
    sweeps : int
    is_converged : bool
        Whether the residual is within the tolerance.
    """

    share: FloatArray
    residual: float
    sweeps: int
    is_converged: bool


def estimate_shares(
    releases: Releases,
    forced: Forced,
    share: FloatArray,
    is_known: BoolArray,
    *,
    max_sweeps: int | None = None,
    tolerance: float = TOLERANCE,
    pulse: Pulse = UNLIMITED,
) -> Estimate:
    """Estimate the shares of the candidates of those tuples for which they are not known.

    An estimate: shares are products of a weight for each value of each bucket, such that the
    expected numbers of the values are the published ones, as if people were independent otherwise.

    Parameters
    ----------
    releases : Releases
    forced : Forced
    share : ndarray of float64, shape (n_candidates,)
        Filled in place for the other tuples.
    is_known : ndarray of bool, shape (n_all,)
        Tuples whose shares are known; whoever shares an open bucket with one is known, too.
    max_sweeps : int, optional
        By default from 5 to 200, the fewer the more there is to do in each.
    tolerance : float
        Sweeps end when the residual is not above it.
    pulse : Pulse
        When its time is over, what is reached is returned.

    Returns
    -------
    Estimate

    Notes
    -----
    **Source:** J. N. Darroch, D. Ratcliff, *Generalized iterative scaling for log-linear models*,
    1972, in its cyclic form (iterative proportional fitting): the maximum of entropy under the
    expected numbers. A tuple of several people has a weight for each of its buckets, too, so that
    as many as published are expected there.

    In small buckets, a person's own share of the counts makes the weights too even. The weights of
    those who share two buckets with nobody are therefore corrected by one step of scaling in which
    the person is a stranger there, of whom no other release tells anything:
    ``count / (count - share + share of a stranger)``. Where only one person is in several releases,
    this comes close to the product of the counts, which is exact there.

    Examples
    --------
    >>> from kanon_db.algorithms.releases.forced import force
    >>> from kanon_db.algorithms.releases.placements import Release
    >>> bucket, values = np.zeros(3, dtype=np.int64), np.array([0, 0, 1])
    >>> one = Release.of(np.array([0, 1, 2]), bucket, values)
    >>> two = Release.of(np.array([0, 3, 4]), bucket, values)
    >>> both = Releases.of([one, two], 5, 2)
    >>> found = estimate_shares(both, force(both), np.zeros(10), np.zeros(5, dtype=np.bool_))
    >>> found.share[:2].round(2).tolist()
    [0.8, 0.2]
    """
    weights = forced.left.astype(np.float64)
    placed = np.ones(releases.release.size)
    several = releases.total[releases.tuple_of] > 1
    placed[several] = releases.people[several]
    expected = np.empty(weights.size)
    widest = int(forced.candidates.number.max(initial=0))
    sums = np.empty((max(1, releases.n_releases), max(1, widest)))
    open_ones = np.flatnonzero(
        ~is_known & ~forced.is_contradicted & (forced.candidates.number > 1)
    ).astype(np.int64)  # fmt: skip
    release_of_bucket = np.zeros(releases.n_buckets, dtype=np.int64)
    somewhere = releases.bucket != NOWHERE
    release_of_bucket[releases.bucket[somewhere]] = releases.release[somewhere]
    release_of_cell = np.repeat(release_of_bucket, np.diff(releases.first_cell))
    is_alone = _alone(releases, open_ones)
    residual, sweeps = float(open_ones.size > 0), 0

    def run(number: int, *, is_last: bool) -> None:
        for low, high in in_steps(open_ones.size, pulse):
            _scale(
                open_ones[low:high], number, is_last, expected, weights, placed, sums, share,
                is_alone, forced.left, forced.candidates.first, forced.candidates.value,
                forced.candidates.number, forced.value_of, releases.total, releases.people,
                releases.first_placement, releases.release, releases.bucket, releases.first_cell,
                releases.value,
            )  # fmt: skip

    most = _most_sweeps(releases, forced, open_ones) if max_sweeps is None else max_sweeps
    while open_ones.size and sweeps < most and not pulse.is_over:
        sweeps += 1
        residual = 0.0
        for number in range(releases.n_releases):
            expected[:] = 0
            run(number, is_last=False)
            cells = np.flatnonzero((release_of_cell == number) & (expected > 0))
            gap = np.abs(expected[cells] - forced.left[cells]).sum() / 2
            residual = max(residual, float(gap / max(1, forced.left[cells].sum())))
            weights[cells] *= forced.left[cells] / expected[cells]
        if residual <= tolerance:
            break
    run(-1, is_last=True)
    return Estimate(share, residual, sweeps, residual <= tolerance)


def _most_sweeps(releases: Releases, forced: Forced, open_ones: IntArray) -> int:
    placements = np.diff(releases.first_placement)[open_ones]
    steps = placements @ (forced.candidates.number[open_ones] + _STEPS_OF_PLACEMENT)
    wanted = _STEPS // max(1, int(steps) * releases.n_releases)
    return min(max(wanted, _FEWEST_SWEEPS), _MOST_SWEEPS)


def _alone(releases: Releases, open_ones: IntArray) -> BoolArray:
    """Tell which people, the only ones of their tuple, share two buckets with no other of them."""
    is_open = np.zeros(releases.n_all, dtype=np.bool_)
    is_open[open_ones] = True
    found: BoolArray = is_open & (releases.total == 1)
    bucket_of = np.full((releases.n_releases, releases.n_all), NOWHERE, dtype=np.int64)
    placed = np.flatnonzero(is_open[releases.tuple_of])
    bucket_of[releases.release[placed], releases.tuple_of[placed]] = releases.bucket[placed]
    for one, other in combinations(range(releases.n_releases), 2):
        both = np.flatnonzero((bucket_of[one] != NOWHERE) & (bucket_of[other] != NOWHERE))
        keys = bucket_of[one, both] * releases.n_buckets + bucket_of[other, both]
        _, numbers, sizes = np.unique(keys, return_inverse=True, return_counts=True)
        found[both[sizes[numbers] > 1]] = False
    return found


@numba.njit(cache=True, nogil=True)
def _scale(
    tuples: IntArray,
    number: int,
    is_last: bool,
    expected: FloatArray,
    weights: FloatArray,
    placed: FloatArray,
    sums: FloatArray,
    share: FloatArray,
    is_alone: BoolArray,
    left: CodeArray,
    first: IntArray,
    value: CodeArray,
    n_left: IntArray,
    value_of: CodeArray,
    total: IntArray,
    people: CodeArray,
    first_placement: IntArray,
    release: CodeArray,
    bucket: CodeArray,
    first_cell: IntArray,
    cell_value: CodeArray,
) -> None:
    """Add what tuples expect of each cell of a release; in the end, keep their shares."""
    product, row = np.empty(sums.shape[1]), np.empty(sums.shape[1])
    for t in tuples:
        values = value[first[t] : first[t] + n_left[t]]
        start, end = first_placement[t], first_placement[t + 1]
        if total[t] == 1:
            _multiply(values, start, end, product, weights, bucket, first_cell, cell_value)
            if is_last:
                shares = share[first[t] : first[t] + n_left[t]]
                shares[:] = product[: values.size]
                if is_alone[t]:
                    _correct(
                        values, start, end, shares, weights, left, bucket, first_cell, cell_value
                    )  # fmt: skip
                continue
            for p in range(start, end):
                if release[p] == number:
                    c = first_cell[bucket[p]]
                    for j in range(values.size):
                        while cell_value[c] < values[j]:
                            c += 1
                        expected[c] += product[j]
            continue
        is_here = _sum_up(
            values, start, end, number, product, sums, row, weights, placed, value_of, release,
            bucket, first_cell, cell_value,
        )  # fmt: skip
        if is_last:
            share[first[t] : first[t] + n_left[t]] = product[: values.size]
        elif is_here:
            _expect(
                values, start, end, number, total[t], product, sums, row, expected, weights,
                placed, people, value_of, release, bucket, first_cell, cell_value,
            )  # fmt: skip


@numba.njit(cache=True, nogil=True, inline="always")
def _expect(
    values: CodeArray,
    start: Integer,
    end: Integer,
    number: int,
    total: Integer,
    product: FloatArray,
    sums: FloatArray,
    row: FloatArray,
    expected: FloatArray,
    weights: FloatArray,
    placed: FloatArray,
    people: CodeArray,
    value_of: CodeArray,
    release: CodeArray,
    bucket: CodeArray,
    first_cell: IntArray,
    cell_value: CodeArray,
) -> None:
    """Add what several people expect, scaled to as many as are in each bucket."""
    for p in range(start, end):
        if release[p] != number:
            continue
        is_open = value_of[p] == FREE and bucket[p] != NOWHERE
        _weigh(values, p, row, weights, value_of, bucket, first_cell, cell_value)
        reached = 0.0
        for j in range(values.size):
            if row[j] > 0:
                row[j] *= total * product[j] * placed[p] / sums[number, j]
                reached += row[j]
        if reached == 0:
            continue
        factor = people[p] / reached
        placed[p] *= factor
        if is_open:
            c = first_cell[bucket[p]]
            for j in range(values.size):
                if row[j] > 0:
                    while cell_value[c] < values[j]:
                        c += 1
                    expected[c] += row[j] * factor


@numba.njit(cache=True, nogil=True, inline="always")
def _multiply(
    values: CodeArray,
    start: Integer,
    end: Integer,
    product: FloatArray,
    weights: FloatArray,
    bucket: CodeArray,
    first_cell: IntArray,
    cell_value: CodeArray,
) -> None:
    """Multiply the weights of each candidate of a person in all buckets, to 1 in total."""
    product[: values.size] = 1
    for p in range(start, end):
        c = first_cell[bucket[p]]
        for j in range(values.size):
            while cell_value[c] < values[j]:
                c += 1
            product[j] *= weights[c]
    _normalize(product[: values.size])


@numba.njit(cache=True, nogil=True, inline="always")
def _normalize(product: FloatArray) -> None:
    whole = product.sum()
    if whole > 0:
        product /= whole
    else:
        product[:] = 1 / product.size


@numba.njit(cache=True, nogil=True)
def _correct(
    values: CodeArray,
    start: Integer,
    end: Integer,
    shares: FloatArray,
    weights: FloatArray,
    left: CodeArray,
    bucket: CodeArray,
    first_cell: IntArray,
    cell_value: CodeArray,
) -> None:
    """Take a person's own share out of the weights of the buckets; see the Notes above."""
    corrected = np.ones(values.size)
    for p in range(start, end):
        cells = slice(first_cell[bucket[p]], first_cell[bucket[p] + 1])
        whole = weights[cells].sum()
        c = first_cell[bucket[p]]
        for j in range(values.size):
            while cell_value[c] < values[j]:
                c += 1
            stranger = weights[c] / whole
            corrected[j] *= weights[c] * left[c] / max(left[c] - shares[j] + stranger, 1e-9)
    shares[:] = corrected
    _normalize(shares)


@numba.njit(cache=True, nogil=True, inline="always")
def _weigh(
    values: CodeArray,
    p: Integer,
    row: FloatArray,
    weights: FloatArray,
    value_of: CodeArray,
    bucket: CodeArray,
    first_cell: IntArray,
    cell_value: CodeArray,
) -> None:
    """Look up the weight of each candidate in a placement; 1 for those who are nowhere."""
    b = bucket[p]
    c, end = 0, 0
    if b != NOWHERE and value_of[p] == FREE:
        c, end = first_cell[b], first_cell[b + 1]
    for j in range(values.size):
        v = values[j]
        while c < end and cell_value[c] < v:
            c += 1
        if b == NOWHERE or value_of[p] == v:
            row[j] = 1.0
        elif c < end and cell_value[c] == v:
            row[j] = weights[c]
        else:
            row[j] = 0.0


@numba.njit(cache=True, nogil=True, inline="always")
def _sum_up(
    values: CodeArray,
    start: Integer,
    end: Integer,
    number: int,
    product: FloatArray,
    sums: FloatArray,
    row: FloatArray,
    weights: FloatArray,
    placed: FloatArray,
    value_of: CodeArray,
    release: CodeArray,
    bucket: CodeArray,
    first_cell: IntArray,
    cell_value: CodeArray,
) -> bool:
    """Add up the weights of each candidate of several people, and multiply over the releases."""
    product[: values.size] = 1
    is_here = False
    p = start
    while p < end:
        r = release[p]
        is_here |= r == number
        sums[r, : values.size] = 0
        while p < end and release[p] == r:
            _weigh(values, p, row, weights, value_of, bucket, first_cell, cell_value)
            for j in range(values.size):
                sums[r, j] += placed[p] * row[j]
            p += 1
        for j in range(values.size):
            product[j] *= sums[r, j]
        _normalize(product[: values.size])
    return is_here
