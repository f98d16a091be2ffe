"""Intersects releases of rows by all columns that they show, to find the rows of each person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, FloatArray, IntArray, Integer
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.algorithms.releases.row_releases import ClassContents, ClassFits

MOST_CELLS: Final = 2_000_000_000
"""Most cells of classes examined; tuples with fewer come first."""

_PER_BEAT: Final = 20_000


@dataclass(frozen=True, eq=False)
class ShownRelease:
    """One release as the intersection of releases needs it."""

    # The classes of rows that each tuple fits, or the buckets that its people are in
    fits: ClassFits
    # Contents of classes, by record: what all releases of rows show beside cells. Contents of
    # buckets, by sensitive value.
    contents: ClassContents
    # (n_tuples,): whether a tuple's people are surely in the release; otherwise it says nothing
    # about them
    is_bound: BoolArray
    k: int | None  # Least number of rows that may be a person's; None for buckets


@dataclass(frozen=True, eq=False)
class PossibleRows:
    """The possible rows and values of each tuple; all shapes are (n_tuples,)."""

    rows: IntArray  # Number of possible rows in the release where it is smallest relative to k
    k: IntArray  # The k of that release
    values: IntArray  # Number of possible sensitive values
    limit: FloatArray  # The sum of their bounds
    # Whether it was examined: not if no release covers it, nor beyond the most cells
    is_seen: BoolArray
    # Whether nothing is possible, so that rows or quasi-identifiers have changed
    is_contradicted: BoolArray
    n_beyond: int  # Tuples beyond the most cells


def possible(
    shown: Sequence[ShownRelease],  # At least one is of rows
    sensitive_of: IntArray,  # (n_records,): the sensitive value of each distinct record
    limits: FloatArray,  # (n_values,): the largest probability allowed for each sensitive value
    pulse: Pulse = UNLIMITED,
    *,
    most: int = MOST_CELLS,
) -> PossibleRows:
    """Intersect releases: a person's record is in a class that they fit, in each release.

    Exact for a reader who only intersects what the releases show. Tuples that fit the same classes
    are examined once.
    """
    n = shown[0].is_bound.size
    work = np.zeros(n, dtype=np.int64)
    # Tuples that fit the same classes get the same sum of random numbers.
    random = np.random.default_rng()
    mark = np.zeros(n, dtype=np.uint64)
    for one in shown:
        cells = np.diff(one.contents.first)
        tuples = one.fits.tuples
        bound = one.is_bound[tuples]
        pairs = tuples[bound], one.fits.classes[bound]
        work += np.bincount(pairs[0], cells[pairs[1]], n).astype(np.int64)
        key = random.integers(1, 2**63, one.contents.n_classes, dtype=np.uint64)
        np.add.at(mark, pairs[0], key[pairs[1]])
        mark += one.is_bound.astype(np.uint64) * random.integers(1, 2**63, dtype=np.uint64)
    some = np.any([one.is_bound for one in shown], axis=0)
    _, looked_at, same = np.unique(mark, return_index=True, return_inverse=True)
    looked_at = looked_at[some[looked_at]]
    looked_at = looked_at[np.argsort(work[looked_at], kind="stable")]
    n_looked_at = int(np.searchsorted(np.cumsum(work[looked_at]), most, side="right"))
    found = _looked_at(shown, looked_at[:n_looked_at], sensitive_of, limits, pulse)
    place = np.full(int(same.max(initial=-1)) + 1, -1, dtype=np.int64)
    place[same[looked_at[:n_looked_at]]] = np.arange(n_looked_at)
    of = place[same]
    is_seen = of >= 0
    rows, k, values, limit = (np.append(one, 0)[of] for one in found)
    return PossibleRows(
        rows, k, values, limit, is_seen, is_seen & (values == 0), int((some & ~is_seen).sum())
    )


def _looked_at(
    shown: Sequence[ShownRelease],
    tuples: IntArray,
    sensitive_of: IntArray,
    limits: FloatArray,
    pulse: Pulse,
) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """Return the rows, the k, the values and the sum of bounds of tuples."""
    bases = np.cumsum([0, *(one.contents.n_classes for one in shown)])
    ends = np.cumsum([0, *(one.contents.value.size for one in shown)])
    starts = np.cumsum([0, *(one.fits.classes.size for one in shown)])
    first_fit = np.stack([one.fits.first + at for one, at in zip(shown, starts, strict=False)])
    fit = np.concatenate([one.fits.classes + at for one, at in zip(shown, bases, strict=False)])
    first_cell = np.append(
        np.concatenate(
            [one.contents.first[:-1] + at for one, at in zip(shown, ends, strict=False)]
        ),
        ends[-1],
    )
    value = np.concatenate([one.contents.value for one in shown])
    count = np.concatenate([one.contents.count for one in shown])
    bound = np.stack([one.is_bound for one in shown])
    k = np.array([one.k or 0 for one in shown])
    rows, of_k, values = (np.zeros(tuples.size, dtype=np.int64) for _ in range(3))
    limit = np.zeros(tuples.size)
    marks = np.zeros((3, max(sensitive_of.size, limits.size) + 1), dtype=np.int64)
    for low in range(0, tuples.size, _PER_BEAT):
        pulse.beat()
        _intersect(
            low, min(low + _PER_BEAT, tuples.size), tuples, first_fit, fit, first_cell, value,
            count, bound, k, sensitive_of, limits, marks, rows, of_k, values, limit,
        )  # fmt: skip
    return rows, of_k, values, limit


@numba.njit(cache=True, nogil=True)
def _intersect(
    low: Integer,
    high: Integer,
    tuples: IntArray,
    first_fit: IntArray,
    fit: IntArray,
    first_cell: IntArray,
    value: IntArray,
    count: IntArray,
    bound: BoolArray,
    k: IntArray,
    sensitive_of: IntArray,
    limits: FloatArray,
    marks: IntArray,
    rows: IntArray,
    of_k: IntArray,
    values: IntArray,
    limit: FloatArray,
) -> None:
    """Intersect what releases show about tuples.

    Marks count the releases that allow a record or a sensitive value, above a base that stands for
    none; the third array marks the values that were counted.
    """
    last = marks.shape[1] - 1  # where the greatest mark is kept
    for i in range(low, high):
        t = tuples[i]
        base = marks[0, last]
        n_allowing = np.zeros(2, dtype=np.int64)
        for r in range(k.size):
            if not bound[r, t]:
                continue
            side = 0 if k[r] > 0 else 1
            before = base + n_allowing[side]
            for f in range(first_fit[r, t], first_fit[r, t + 1]):
                for c in range(first_cell[fit[f]], first_cell[fit[f] + 1]):
                    v = value[c]
                    if marks[side, v] == before or (
                        n_allowing[side] == 0 and marks[side, v] <= before
                    ):
                        marks[side, v] = before + 1
            n_allowing[side] += 1
        marks[0, last] = base + k.size + 1
        for r in range(k.size):
            if not bound[r, t] or (k[r] == 0 and n_allowing[0] > 0):
                continue
            left = 0
            for f in range(first_fit[r, t], first_fit[r, t + 1]):
                for c in range(first_cell[fit[f]], first_cell[fit[f] + 1]):
                    v = value[c]
                    if k[r] > 0:
                        if marks[0, v] != base + n_allowing[0]:
                            continue
                        v = sensitive_of[v]
                    if n_allowing[1] > 0 and marks[1, v] != base + n_allowing[1]:
                        continue
                    left += count[c]
                    if marks[2, v] <= base:
                        marks[2, v] = base + 1
                        values[i] += 1
                        limit[i] += limits[v]
            if k[r] > 0 and (of_k[i] == 0 or left * of_k[i] < rows[i] * k[r]):
                rows[i], of_k[i] = left, k[r]
