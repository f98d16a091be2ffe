"""Constraints as compiled code reads and checks them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, IntArray, Integer
from kanon_db.algorithms.recoding.class_summaries import ClassSummaries, members_of

_ENTROPY_TOLERANCE = 1e-9


class Rules(NamedTuple):
    """A constraint as compiled code reads it.

    Parameters
    ----------
    codes : ndarray of int64, shape (n_records,)
        Sensitive value of each record, plus v times its entity where entities are counted; empty
        where there is no constraint.
    totals : ndarray of int64, shape (v,)
        Records of each value in the whole table.
    distinct : int
        Fewest distinct values of a class.
    entropy : float
        Least entropy of a class.
    closeness : tuple of (int, int)
        t as a fraction; negative: none.
    is_ordered : bool
        Whether distributions are compared by the ordered distance.
    thresholds : ndarray of int64, shape (2, v) or (2, 0)
        Numerators and denominators of the largest share of each value in a class.
    entities : int
        Fewest entities of a class; 0: records are counted.
    missing : int
        The value that is none, NULL; -1: there is no such one. It makes no class more diverse.
    """

    codes: IntArray
    totals: IntArray
    distinct: int
    entropy: float
    closeness: tuple[int, int]
    is_ordered: bool
    thresholds: IntArray
    entities: int
    missing: int


NO_RULES = Rules(
    np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), 0, 0.0, (-1, 1), False,
    np.zeros((2, 0), dtype=np.int64), 0, -1,
)  # fmt: skip
"""What every class fulfils."""


@numba.njit(cache=True, nogil=True)
def counts_hold(rules: Rules, counts: IntArray, size: Integer) -> bool:
    """Whether a class of ``size`` records, or entities, of which so many have each value, does."""
    n_distinct, known = 0, size
    for i in range(counts.size):
        n_distinct += counts[i] > 0 and i != rules.missing
    if rules.missing >= 0:
        known -= counts[rules.missing]
    if n_distinct < rules.distinct:
        return False
    if rules.entropy > 0.0:
        entropy = 0.0
        for i in range(counts.size):
            if counts[i] and i != rules.missing:
                entropy -= counts[i] / known * math.log(counts[i] / known)
        if entropy < rules.entropy - _ENTROPY_TOLERANCE:
            return False
    for i in range(rules.thresholds.shape[1]):
        if counts[i] * rules.thresholds[1, i] > rules.thresholds[0, i] * size:
            return False
    if rules.closeness[0] >= 0:
        n_records = rules.totals.sum()
        difference, running = 0, 0
        for i in range(counts.size):
            surplus = counts[i] * n_records - rules.totals[i] * size
            running += surplus
            difference += abs(running) if rules.is_ordered else abs(surplus)
        scale = counts.size - 1 if rules.is_ordered else 2
        limit = rules.closeness[0] * size * n_records * scale
        if difference * rules.closeness[1] > limit:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def members_hold(rules: Rules, members: IntArray, counts: IntArray) -> bool:
    """Whether a class of these records fulfils the constraint.

    ``counts`` is room for the number of records, or entities, of each value.
    """
    counts[:] = 0
    if not rules.entities:
        for record in members:
            counts[rules.codes[record]] += 1
        return counts_hold(rules, counts, members.size)
    n_entities, entity, last = 0, -1, -1
    for code in np.sort(rules.codes[members]):
        if code != last:  # an entity counts once for each of its values
            counts[code % counts.size] += 1
        if code // counts.size != entity:
            n_entities += 1
        entity, last = code // counts.size, code
    return n_entities >= rules.entities and counts_hold(rules, counts, n_entities)


@numba.njit(cache=True, nogil=True)
def holds_after(
    rules: Rules,
    classes: ClassSummaries,
    g: Integer,
    leaving: Integer,
    entering: Integer,
    counts: IntArray,
) -> bool:
    """Whether class g fulfils the constraint if one record leaves and another enters; -1: none.

    ``counts`` is room for the number of records, or entities, of each value.
    """
    if not rules.codes.size:
        return True
    after = np.empty(classes.sizes[g] + 1, dtype=np.int64)
    size = 0
    for record in members_of(classes, g):
        if record != leaving:
            after[size] = record
            size += 1
    if entering >= 0:
        after[size] = entering
        size += 1
    return members_hold(rules, after[:size], counts)


@numba.njit(cache=True, nogil=True)
def all_hold(rules: Rules, counts: IntArray) -> BoolArray:
    """Check classes of which so many records have each value, a row for each class."""
    hold = np.empty(counts.shape[0], dtype=np.bool_)
    for g in range(counts.shape[0]):
        hold[g] = counts_hold(rules, counts[g], counts[g].sum())
    return hold


@numba.njit(cache=True, nogil=True)
def classes_hold(rules: Rules, order: IntArray, classes: IntArray) -> BoolArray:
    """Check classes whose records lie one after the other in ``order``."""
    n_classes = classes[order[-1]] + 1 if order.size else 0
    hold = np.empty(n_classes, dtype=np.bool_)
    counts = np.zeros(rules.totals.size, dtype=np.int64)
    start = 0
    for i in range(order.size):
        if i + 1 == order.size or classes[order[i + 1]] != classes[order[i]]:
            hold[classes[order[i]]] = members_hold(rules, order[start : i + 1], counts)
            start = i + 1
    return hold
