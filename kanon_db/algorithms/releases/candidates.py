"""Intersection: the values that are possible for a tuple in all its releases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, FloatArray, IntArray, Integer
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.releases.placements import NOWHERE, Releases

PER_BEAT = 20_000
"""Tuples or buckets for which a compiled loop runs without a beat."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """The values that the people of each tuple may have.

    Parameters
    ----------
    first : ndarray of int64, shape (n_all + 1,)
        Where those of each tuple begin.
    value : ndarray of int32, shape (n_candidates,)
        Ascending for each tuple.
    number : ndarray of int64, shape (n_all,)
        How many of them are left. Those left come first.
    """

    first: IntArray
    value: CodeArray
    number: IntArray

    def lowest_sum(self, bounds: FloatArray) -> FloatArray:
        """Add up the bounds of each tuple's candidates, shape (n_all,).

        Parameters
        ----------
        bounds : ndarray of float64, shape (n_values,)

        Notes
        -----
        Probabilities add up to 1. Where the bounds add up to less, some value exceeds its bound,
        whatever else is known.
        """
        position = np.arange(self.value.size) - np.repeat(self.first[:-1], np.diff(self.first))
        left = position < np.repeat(self.number, np.diff(self.first))
        sums = np.append(0, np.cumsum(np.where(left, bounds[self.value], 0)))
        found: FloatArray = sums[self.first[1:]] - sums[self.first[:-1]]
        return found


def candidates_of(releases: Releases, pulse: Pulse = UNLIMITED) -> Candidates:
    """List which values each tuple may have: those that all its releases allow.

    Exact for a reader who intersects, and nothing else. Of a tuple with several people, each may be
    in any of its buckets: a release allows all values of these buckets. A release that has fewer
    of them than another says nothing of the others.

    Parameters
    ----------
    releases : Releases
    pulse : Pulse

    Returns
    -------
    Candidates
        Of a tuple without any, the releases contradict each other: its people changed.

    Notes
    -----
    **Source:** S. R. Ganta, S. P. Kasiviswanathan, A. Smith, *Composition attacks and auxiliary
    information in data privacy*, KDD 2008, the intersection attack. Cost: one pass over the cells
    of each placement.

    Examples
    --------
    >>> from kanon_db.algorithms.releases.placements import Release
    >>> one = Release.of(np.array([0, 1, 2]), np.array([0, 0, 0]), np.array([0, 1, 2]))
    >>> two = Release.of(np.array([0, 3]), np.array([0, 0]), np.array([2, 3]))
    >>> found = candidates_of(Releases.of([one, two], 4, 4))
    >>> found.number.tolist(), found.value[:1].tolist()
    ([1, 3, 3, 2], [2])
    """
    number = np.zeros(releases.n_all, dtype=np.int64)
    mark = np.zeros(releases.n_values, dtype=np.int64)
    nothing = np.zeros(1, dtype=np.int32)

    def listed(first: IntArray, value: CodeArray, *, is_kept: bool) -> None:
        for low, high in in_steps(releases.n_all, pulse):
            _list(
                low, high, is_kept, first, value, number, mark, releases.first_placement,
                releases.release, releases.bucket, releases.first_cell, releases.value,
            )  # fmt: skip
        mark[:] = 0

    listed(np.zeros(1, dtype=np.int64), nothing, is_kept=False)
    first = np.append(0, np.cumsum(number))
    value = np.empty(int(first[-1]), dtype=np.int32)
    listed(first, value, is_kept=True)
    sort_each(first, value)
    return Candidates(first, value, number)


def product_posterior(releases: Releases, candidates: Candidates) -> FloatArray:
    """Multiply the counts of each candidate in the tuple's buckets, to 1 for each tuple.

    An estimate; exact if nobody else is in two of the buckets, or in further releases.

    Parameters
    ----------
    releases : Releases
    candidates : Candidates

    Returns
    -------
    ndarray of float64, shape (n_candidates,)
        0 for tuples of several people.
    """
    found = np.zeros(candidates.value.size)
    _multiply(
        candidates.first, candidates.value, found, releases.total, releases.first_placement,
        releases.bucket, releases.first_cell, releases.value, releases.count,
    )  # fmt: skip
    return found


def in_steps(n: int, pulse: Pulse) -> Iterator[tuple[int, int]]:
    """Divide a compiled loop into parts, with a beat before each."""
    for low in range(0, n, PER_BEAT):
        pulse.beat()
        yield low, min(low + PER_BEAT, n)


@numba.njit(cache=True, nogil=True)
def _list(
    low: Integer,
    high: Integer,
    is_kept: bool,
    first: IntArray,
    value: CodeArray,
    number: IntArray,
    mark: IntArray,
    first_placement: IntArray,
    release: CodeArray,
    bucket: CodeArray,
    first_cell: IntArray,
    cell_value: CodeArray,
) -> None:
    """Count the candidates of tuples, or keep them. A mark says how many releases allow a value."""
    n_marks = 0
    for v in range(mark.size):
        n_marks = max(n_marks, mark[v])
    for t in range(low, high):
        base, n_before, found = n_marks, 0, 0
        start, end = first_placement[t], first_placement[t + 1]
        while start < end:
            stop = start + 1
            constrains = bucket[start] != NOWHERE
            while stop < end and release[stop] == release[start]:
                constrains &= bucket[stop] != NOWHERE
                stop += 1
            if constrains:
                found = 0
                for p in range(start, stop):
                    for c in range(first_cell[bucket[p]], first_cell[bucket[p] + 1]):
                        v = cell_value[c]
                        allowed = mark[v] <= base if n_before == 0 else mark[v] == base + n_before
                        if allowed:
                            mark[v] = base + n_before + 1
                            if is_kept and found < first[t + 1] - first[t]:
                                value[first[t] + found] = v
                            found += 1
                n_before += 1
            start = stop
        number[t] = found
        n_marks = base + n_before


@numba.njit(cache=True, nogil=True)
def sort_each(first: IntArray, value: CodeArray) -> None:
    """Sort the values of each tuple."""
    for t in range(first.size - 1):
        value[first[t] : first[t + 1]].sort()


@numba.njit(cache=True, nogil=True)
def _multiply(
    first: IntArray,
    value: CodeArray,
    found: FloatArray,
    total: IntArray,
    first_placement: IntArray,
    bucket: CodeArray,
    first_cell: IntArray,
    cell_value: CodeArray,
    count: CodeArray,
) -> None:
    for t in range(total.size):
        if total[t] != 1:
            continue
        found[first[t] : first[t + 1]] = 1
        for p in range(first_placement[t], first_placement[t + 1]):
            c, size = first_cell[bucket[p]], 0
            for other in range(c, first_cell[bucket[p] + 1]):
                size += count[other]
            for j in range(first[t], first[t + 1]):
                while cell_value[c] < value[j]:
                    c += 1
                found[j] *= count[c] / size
        whole = found[first[t] : first[t + 1]].sum()
        if whole > 0:
            found[first[t] : first[t + 1]] /= whole


def certain_people(releases: Releases, candidates: Candidates) -> BoolArray:
    """Tell which tuples, not counterfeits, have a single candidate left, shape (n_all,)."""
    certain: BoolArray = releases.is_person & (candidates.number == 1)
    return certain
