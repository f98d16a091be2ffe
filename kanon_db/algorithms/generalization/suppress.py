"""Suppressing the records that make their classes lose most."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.generalization.checked_classes import checked_classes
from kanon_db.algorithms.generalization.result import Generalization
from kanon_db.algorithms.ground.arrays import BoolArray, IntArray, Integer
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.class_summaries import (
    NONE,
    ClassSummaries,
    departure,
    exchange,
    make_move,
    members_of,
    move,
    summarize,
)
from kanon_db.algorithms.recoding.constraint_rules import NO_RULES, Rules, holds_after
from kanon_db.algorithms.recoding.constraints import Constraint
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.algorithms.recoding.ncp import Ncp
from kanon_db.algorithms.recoding.packed_records import PackedRecords
from kanon_db.errors import InvalidParameterError

_NONE = -(2**62)
# Compiled into the loops: there a call costs more than its work.
_departure = numba.njit(inline="always")(departure.py_func)

_RECORDS_PER_CALL = 2**18  # looked at between two heartbeats: some milliseconds


def suppress(
    microdata: Microdata,
    class_of_record: npt.ArrayLike,
    k: int,
    max_suppressed: Fraction,
    *,
    constraint: Constraint | None = None,
    pulse: Pulse = UNLIMITED,
) -> Generalization:
    """Suppress records, one by one, as long as the total loss falls.

    The next record is the one by which the loss falls most, as far as is known. It leaves a class
    of more than ``k`` records, or one of ``k`` that a record from a larger class then joins.

    Parameters
    ----------
    microdata : Microdata
    class_of_record : array_like of int, shape (n_records,)
        Equivalence class of each record; -1 for one that is suppressed already, and counts.
    k : int
        Fewest records of a class, at least 1.
    max_suppressed : Fraction
        Largest share of the records to be suppressed, in [0, 1].
    constraint : Constraint, optional
        On the sensitive values of each class.
    pulse : Pulse
        Only its heartbeat is used.

    Returns
    -------
    Generalization
        Classes numbered from 0, anew; -1 for a suppressed record.

    Raises
    ------
    InfeasibleError
        If there are records, but fewer than ``k``.
    InvalidParameterError
        If ``k`` is less than 1, ``max_suppressed`` is out of its range, a class is smaller than
        ``k``, or the constraint does not hold for a class.

    Notes
    -----
    Each cell of a suppressed record loses 1, times its weight. So suppression pays where one
    record widens a large class, and hardly ever for small k. Refining the classes in between makes
    room for more.
    """
    classes = checked_classes(microdata, class_of_record, k, constraint)
    if not 0 <= max_suppressed <= 1:
        raise InvalidParameterError("max_suppressed must lie in [0, 1]")
    limit = int(max_suppressed * classes.size) - int((classes < 0).sum())
    if limit <= 0 or not classes.size:
        return Generalization(classes)
    ncp = Ncp.of(microdata)
    records = PackedRecords.of(ncp)
    state = ClassSummaries.of(records, classes, room=1)
    rules = NO_RULES if constraint is None else constraint.rules
    choices = _Choices.of(state.sizes.size)
    for _ in range(limit):
        pulse.beat()
        while _choose(records, state, rules, choices, k, math.ceil(ncp.of_suppressed)):
            pulse.beat()
        if choices.gains.max() <= 0:
            break
        _suppress(records, state, choices, int(np.argmax(choices.gains)))
    return Generalization(state.class_of_record)


class _Choices(NamedTuple):
    """Which record would best be suppressed in each class.

    Parameters
    ----------
    gains : ndarray of int64, shape (n_classes,)
        By how much the loss would fall, in units.
    leaving, entering : ndarray of int64, shape (n_classes,)
        The record, and the one that would join the class for it; -1: none.
    stale : ndarray of bool, shape (n_classes,)
        Whether the choice is to be made again.
    """

    gains: IntArray
    leaving: IntArray
    entering: IntArray
    stale: BoolArray

    @classmethod
    def of(cls, n_classes: int) -> _Choices:
        gains = np.full(n_classes, _NONE, dtype=np.int64)
        leaving, entering = np.full((2, n_classes), -1, dtype=np.int64)
        return cls(gains, leaving, entering, np.ones(n_classes, dtype=np.bool_))


@numba.njit(cache=True, nogil=True)
def _choose(
    records: PackedRecords,
    classes: ClassSummaries,
    rules: Rules,
    choices: _Choices,
    k: Integer,
    of_suppressed: Integer,
) -> bool:
    """Choose anew for some classes; tell whether there are more to choose for."""
    counts = np.zeros(rules.totals.size, dtype=np.int64)
    donors = np.flatnonzero(classes.sizes > k)
    n_looked_at = 0
    for g in np.flatnonzero(choices.stale):
        if n_looked_at > _RECORDS_PER_CALL:
            return True
        choices.stale[g] = False
        choices.gains[g], choices.leaving[g], choices.entering[g] = _NONE, -1, -1
        n_looked_at += classes.sizes[g]
        if classes.sizes[g] > k:
            _choose_leaving(records, classes, rules, choices, g, of_suppressed, counts)
        else:
            n_looked_at += _choose_replaced(
                records, classes, rules, choices, g, donors, of_suppressed, counts
            )
    return False


@numba.njit(cache=True, nogil=True)
def _choose_leaving(
    records: PackedRecords,
    classes: ClassSummaries,
    rules: Rules,
    choices: _Choices,
    g: Integer,
    of_suppressed: Integer,
    counts: IntArray,
) -> None:
    """Choose a record that class g, of more than k records, can spare."""
    for number in members_of(classes, g):
        member = np.int64(number)
        gain = _freed(records, classes, g, member) - of_suppressed
        if gain > choices.gains[g] and holds_after(rules, classes, g, member, NONE, counts):
            choices.gains[g], choices.leaving[g] = gain, member


@numba.njit(cache=True, nogil=True)
def _choose_replaced(
    records: PackedRecords,
    classes: ClassSummaries,
    rules: Rules,
    choices: _Choices,
    g: Integer,
    donors: IntArray,
    of_suppressed: Integer,
    counts: IntArray,
) -> Integer:
    """Choose a record of class g, of k records, and one of a larger class to take its place.

    Returns
    -------
    int
        How many records were looked at.
    """
    size = classes.sizes[g]
    record: Integer = -1
    least: Integer = 0
    for number in members_of(classes, g):
        member = np.int64(number)
        less = _departure(records, classes, g, member) if size > 1 else -classes.losses[g]
        if less < least:
            record, least = member, less
    if record < 0:
        return 0
    n_looked_at = 0
    best = choices.gains[g]
    for h in donors:
        # No member frees more than all that its class loses.
        if classes.losses[h] * classes.sizes[h] - least * size <= of_suppressed:
            continue
        n_looked_at += classes.sizes[h]
        for number in members_of(classes, h):
            other = np.int64(number)
            freed = _freed(records, classes, h, other) - of_suppressed
            if freed - least * size <= best:
                continue
            gain = freed - exchange(records, classes, g, record, other) * size
            if (
                gain > best
                and holds_after(rules, classes, g, record, other, counts)
                and holds_after(rules, classes, h, other, NONE, counts)
            ):
                best, choices.leaving[g], choices.entering[g] = gain, record, other
    choices.gains[g] = best
    return n_looked_at


@numba.njit(cache=True, nogil=True, inline="always")
def _freed(
    records: PackedRecords, classes: ClassSummaries, g: Integer, leaving: Integer
) -> Integer:
    """Tell what class g and a record that leaves it lose less, all together."""
    less = _departure(records, classes, g, leaving)
    return int(classes.losses[g] - less * (classes.sizes[g] - 1))


@numba.njit(cache=True, nogil=True)
def _suppress(
    records: PackedRecords, classes: ClassSummaries, choices: _Choices, g: Integer
) -> None:
    """Suppress the record chosen in class g; other classes' choices are kept as they were found."""
    record, other = choices.leaving[g], choices.entering[g]
    donor = g
    if other < 0:
        make_move(records, classes, record, NONE)
    else:
        donor = classes.class_of_record[other]
        classes.losses[g] += exchange(records, classes, g, record, other)
        classes.losses[donor] += departure(records, classes, donor, other)
        move(classes, record, NONE)
        move(classes, other, g)
        summarize(records, classes, donor)
        summarize(records, classes, g)
    for h in range(choices.stale.size):
        entering = choices.entering[h]
        changed = h if entering < 0 else classes.class_of_record[entering]
        if h in (g, donor) or changed in (g, donor):
            choices.stale[h] = True
