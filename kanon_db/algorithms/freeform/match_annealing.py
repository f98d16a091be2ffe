"""Simulated annealing of a generalization graph: two cells exchange one original each."""

from __future__ import annotations

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, Integer, WordArray
from kanon_db.algorithms.recoding.class_summaries import (
    ClassSummaries,
    exchange,
    summarize,
    union_loss,
)
from kanon_db.algorithms.recoding.cooling import random_bits, scaled, threshold_of
from kanon_db.algorithms.recoding.packed_records import PackedRecords

_TRIES = 5  # originals of the other cell that one may change places with, at each proposal


@numba.njit(cache=True, nogil=True)
def anneal(
    records: PackedRecords,
    cells: ClassSummaries,
    cells_of: CodeArray,
    neighbors: CodeArray,
    first_of_type: IntArray,
    type_of_record: CodeArray,
    n_proposals: Integer,
    temperature: float,
    state: WordArray,
) -> None:
    """Propose exchanges; make those that lose less, and others with a chance that falls with loss.

    Parameters
    ----------
    records : PackedRecords
        In order of their row types.
    cells : ClassSummaries
        Changed in place. Its members are the k matches of each cell, cell after cell; records
        are in several.
    cells_of : ndarray of int32, shape (n, k)
        Cells that cover each original, changed in place.
    neighbors : ndarray of int32, shape (t, q)
        Row types that each one is to be brought together with; -1: none.
    first_of_type : ndarray of int64, shape (t + 1,)
        First record of each row type, and the number of records.
    type_of_record : ndarray of int32, shape (n,)
    n_proposals : int
    temperature : float
        In units of loss: an exchange that loses so much more is made with a chance of 1 / e.
    state : ndarray of uint64, shape (1,)
        Of the random numbers; not 0.

    Notes
    -----
    An original wants to leave one of its cells for one that covers an original much like it, and
    changes places with an original that is there. Every record keeps its number of matches.
    """
    n, k = cells_of.shape
    rows = cells.members.reshape(n, k)
    low_bits = np.uint64(0xFFFFFFFF)
    for _ in range(n_proposals):
        draw = random_bits(state)
        original = np.int64(scaled(draw >> np.uint64(32), np.uint64(n)))
        which = np.int64(scaled(draw & low_bits, np.uint64(neighbors.shape[1])))
        near = neighbors[type_of_record[original], which]
        if near < 0:
            continue
        draw = random_bits(state)
        alike = np.uint64(first_of_type[near + 1] - first_of_type[near])
        other = first_of_type[near] + np.int64(scaled(draw >> np.uint64(32), alike))
        cell_place = np.int64(scaled(draw & low_bits, np.uint64(k)))
        draw = random_bits(state)
        a = np.int64(cells_of[original, cell_place])
        b = np.int64(cells_of[other, np.int64(scaled(draw >> np.uint64(32), np.uint64(k)))])
        if a == b or cells.losses[a] + cells.losses[b] == 0 or _place_of(rows[b], original) >= 0:
            continue
        place: Integer = np.int64(scaled(draw & low_bits, np.uint64(k)))
        for _ in range(min(k, _TRIES)):
            place = place + 1 if place + 1 < k else 0
            other = np.int64(rows[b, place])
            if type_of_record[other] == type_of_record[original]:
                continue
            threshold = threshold_of(temperature, state)
            change_b = exchange(records, cells, b, other, original)
            if change_b - cells.losses[a] > threshold:
                continue  # whatever the other cell saves
            change_a = exchange(records, cells, a, original, other)
            if change_a + change_b > threshold or _place_of(rows[a], other) >= 0:
                continue
            rows[a, _place_of(rows[a], original)] = other
            rows[b, place] = original
            cells_of[other, _place_of(cells_of[other], b)] = a
            cells_of[original, cell_place] = b
            cells.losses[a] += change_a
            cells.losses[b] += change_b
            summarize(records, cells, a)
            summarize(records, cells, b)
            break


@numba.njit(cache=True, nogil=True)
def summarize_cells(records: PackedRecords, cells: ClassSummaries) -> None:
    """Find the sets, ends and losses of all cells from their members.

    Parameters
    ----------
    records : PackedRecords
    cells : ClassSummaries
        Changed in place.
    """
    for cell in range(cells.sizes.size):
        summarize(records, cells, cell)
        cells.losses[cell] = union_loss(records, cells, cell, cell)


@numba.njit(cache=True, nogil=True)
def _place_of(row: CodeArray, number: Integer) -> int:
    """Find a number in a row, -1 if it is not there."""
    for place in range(row.size):
        if row[place] == number:
            return place
    return -1
