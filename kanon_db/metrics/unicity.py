"""Finds the columns, and combinations of columns, that tell records apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import prod

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, sort_keys
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse

LARGEST = 3
"""Most columns of a combination, besides that of all columns: there are too many larger ones."""


@dataclass(frozen=True)
class Unique:
    """The number of records whose values in some columns no other record has.

    Attributes
    ----------
    columns : tuple of int
    records : int
    """

    columns: tuple[int, ...]
    records: int


def unique_records(codes: CodeArray, *, pulse: Pulse = UNLIMITED) -> Iterator[Unique]:
    """Count the records that have combinations of values that no other has.

    Parameters
    ----------
    codes : ndarray of int32, shape (n_records, n_columns)
        Not negative.
    pulse : Pulse
        When its time runs out, the remaining combinations are omitted.

    Yields
    ------
    Unique
        For all columns together, each single column, each pair, and each triple.

    Examples
    --------
    >>> codes = np.array([[0, 0], [0, 1], [1, 0], [1, 0]], dtype=np.int32)
    >>> [(found.columns, found.records) for found in unique_records(codes)]
    [((0, 1), 2), ((0,), 0), ((1,), 1)]
    """
    n_columns = codes.shape[1]
    everything = tuple(range(n_columns))
    yield Unique(everything, _n_unique(codes, everything))
    for size in range(1, min(LARGEST, n_columns - 1) + 1):
        for columns in combinations(everything, size):
            pulse.beat()
            if pulse.is_over and size > 1:
                return
            yield Unique(columns, _n_unique(codes, columns))


def _n_unique(codes: CodeArray, columns: tuple[int, ...]) -> int:
    n_values = [int(codes[:, a].max(initial=0)) + 1 for a in columns]
    counts: IntArray
    if prod(n_values) <= max(4 * codes.shape[0], 1 << 16):
        keys = np.zeros(codes.shape[0], dtype=np.int64)
        for a, n in zip(columns, n_values, strict=True):
            keys = keys * n + codes[:, a]
        counts = np.bincount(keys)
    else:
        counts = np.unique(sort_keys([codes[:, a] for a in columns]), return_counts=True)[1]
    return int((counts == 1).sum())
