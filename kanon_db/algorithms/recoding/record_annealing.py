"""Simulated annealing of equivalence classes: records move and change places."""

from __future__ import annotations

import math

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, Integer, WordArray
from kanon_db.algorithms.recoding.classes import (
    Classes,
    PackedRecords,
    departure,
    entry,
    exchange,
    move,
    summarize,
)
from kanon_db.algorithms.recoding.constraints import Rules, holds_after

_TRIES = 5  # members of the other class that a record may change places with, at each proposal


@numba.njit(cache=True, nogil=True)
def anneal(
    records: PackedRecords,
    classes: Classes,
    k: Integer,
    neighbors: CodeArray,
    first_of_type: IntArray,
    type_of_record: CodeArray,
    rules: Rules,
    is_constrained: bool,
    n_proposals: Integer,
    temperature: float,
    state: WordArray,
) -> None:
    """Propose changes; make those that lose less, and others with a chance that falls with loss.

    Parameters
    ----------
    records : PackedRecords
        In order of their row types.
    classes : Classes
        Changed in place; each record is in one.
    k : int
    neighbors : ndarray of int32, shape (t, q)
        Row types that each one is to be brought together with; -1: none.
    first_of_type : ndarray of int64, shape (t + 1,)
        First record of each row type, and the number of records.
    type_of_record : ndarray of int32, shape (n_records,)
    rules : Rules
        Which classes keep fulfilling.
    is_constrained : bool
        Whether there are any rules.
    n_proposals : int
    temperature : float
        In units of loss: a change that loses so much more is made with a chance of 1 / e.
    state : ndarray of uint64, shape (1,)
        Of the random numbers; not 0.
    """
    n_records = np.uint64(type_of_record.size)
    n_neighbors = np.uint64(neighbors.shape[1])
    counts = np.zeros(rules.totals.size, dtype=np.int64)
    for _ in range(n_proposals):
        draw = random_bits(state)
        record = np.int64(scaled(draw >> np.uint64(32), n_records))
        near = neighbors[
            type_of_record[record], np.int64(scaled(draw & np.uint64(0xFFFFFFFF), n_neighbors))
        ]
        if near < 0:
            continue
        draw = random_bits(state)
        alike = np.uint64(first_of_type[near + 1] - first_of_type[near])
        other = first_of_type[near] + np.int64(scaled(draw >> np.uint64(32), alike))
        g, h = classes.class_of_record[record], classes.class_of_record[other]
        if g == h or classes.losses[g] + classes.losses[h] == 0:
            continue
        size_g, size_h = classes.sizes[g], classes.sizes[h]
        has_room = classes.starts[h] + size_h < classes.starts[h + 1]
        if size_g > k and has_room:
            less = departure(records, classes, g, record)
            more = entry(records, classes, h, record)
            difference = (
                less * (size_g - 1) - classes.losses[g] + more * (size_h + 1) + classes.losses[h]
            )
            if difference <= threshold_of(temperature, state) and (
                not is_constrained
                or (
                    holds_after(rules, classes, g, record, -1, counts)
                    and holds_after(rules, classes, h, -1, record, counts)
                )
            ):
                move(classes, record, h)
                _update(records, classes, g, less, h, more)
                continue
        place: Integer = np.int64(scaled(draw & np.uint64(0xFFFFFFFF), np.uint64(size_h)))
        for _ in range(min(size_h, _TRIES)):
            place = place + 1 if place + 1 < size_h else 0
            other = classes.members[classes.starts[h] + place]
            if type_of_record[other] == type_of_record[record]:
                continue
            threshold = threshold_of(temperature, state)
            change_h = exchange(records, classes, h, other, record)
            if change_h * size_h - classes.losses[g] * size_g > threshold:
                continue  # whatever the other class saves
            change_g = exchange(records, classes, g, record, other)
            if change_h * size_h + change_g * size_g > threshold:
                continue
            if (
                is_constrained
                and rules.codes[record] != rules.codes[other]
                and not (
                    holds_after(rules, classes, g, record, other, counts)
                    and holds_after(rules, classes, h, other, record, counts)
                )
            ):
                continue
            move(classes, record, -1)
            move(classes, other, g)
            move(classes, record, h)
            _update(records, classes, g, change_g, h, change_h)
            break


@numba.njit(cache=True, nogil=True)
def _update(
    records: PackedRecords,
    classes: Classes,
    g: Integer,
    change_g: Integer,
    h: Integer,
    change_h: Integer,
) -> None:
    classes.losses[g] += change_g
    classes.losses[h] += change_h
    summarize(records, classes, g)
    summarize(records, classes, h)


@numba.njit(cache=True, nogil=True)
def threshold_of(temperature: float, state: WordArray) -> Integer:
    """Most that a change may lose more, exponentially distributed."""
    if temperature <= 0.0:
        return 0
    share = (np.float64(random_bits(state) >> np.uint64(11)) + 0.5) * 2.0**-53
    return np.int64(-math.log(share) * temperature)


@numba.njit(cache=True, nogil=True)
def random_bits(state: WordArray) -> np.uint64:
    """Draw the next 64 bits of xorshift64*."""
    bits = state[0]
    bits ^= bits >> np.uint64(12)
    bits ^= bits << np.uint64(25)
    bits ^= bits >> np.uint64(27)
    state[0] = bits
    return np.uint64(bits * np.uint64(2685821657736338717))


@numba.njit(cache=True, nogil=True)
def scaled(bits: np.uint64, end: np.uint64) -> np.uint64:
    """Make a number below ``end`` of 32 random bits."""
    return (bits * end) >> np.uint64(32)
