"""Suppressing the records that make their classes lose most."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numba
import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.generalization.result import Generalization
from kanon_db.algorithms.generalization.split import checked_classes
from kanon_db.algorithms.ground.arrays import BoolArray, IntArray, Integer
from kanon_db.algorithms.ground.pulse import no_heartbeat
from kanon_db.algorithms.recoding.classes import (
    Classes,
    PackedRecords,
    departure,
    exchange,
    move,
    summarize,
)
from kanon_db.algorithms.recoding.constraints import (
    NO_RULES,
    Constraint,
    Rules,
    holds_after,
)
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.algorithms.recoding.ncp import Ncp
from kanon_db.errors import InvalidParameterError

_NONE = -(2**62)
_RECORDS_PER_CALL = 2**18  # looked at between two heartbeats: some milliseconds


def suppress(
    microdata: Microdata,
    class_of_record: npt.ArrayLike,
    k: int,
    max_suppressed: Fraction,
    *,
    constraint: Constraint | None = None,
    heartbeat: Callable[[], None] = no_heartbeat,
) -> Generalization:
    """Suppress records, one by one, as long as the total loss falls.

    The record is taken by which the loss falls most, as far as known. It leaves a class of more
    than ``k`` records, or one of ``k`` into which a record comes from a larger class.

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
    heartbeat : callable
        Called before each record; what it raises ends the work.

    Returns
    -------
    Generalization
        Classes numbered from 0, anew; -1 for a suppressed record.

    Raises
    ------
    InfeasibleError
        If there are records, but fewer than ``k``.
    InvalidParameterError
        If ``k`` is less than 1, ``max_suppressed`` out of its range, a class smaller than ``k``, or
        the constraint does not hold for a class.

    Notes
    -----
    Each cell of a suppressed record loses 1, times its weight. So suppression pays where one
    record widens a large class, and hardly ever for small k. Refining in between lets more follow.
    """
    classes = checked_classes(microdata, class_of_record, k, constraint)
    if not 0 <= max_suppressed <= 1:
        raise InvalidParameterError("max_suppressed must be in [0, 1]")
    limit = int(max_suppressed * classes.size) - int((classes < 0).sum())
    if limit <= 0 or not classes.size:
        return Generalization(classes)
    ncp = Ncp.of(microdata)
    records = PackedRecords.of(ncp)
    state = Classes.of(records, classes, room=1)
    rules = NO_RULES if constraint is None else constraint.rules
    gains = np.full(state.sizes.size, _NONE, dtype=np.int64)
    choices = np.full((state.sizes.size, 2), -1, dtype=np.int64)
    stale = np.ones(state.sizes.size, dtype=np.bool_)
    for _ in range(limit):
        heartbeat()
        while _choose(
            records, state, rules, constraint is not None, k, math.ceil(ncp.of_suppressed), gains,
            choices, stale,
        ):  # fmt: skip
            heartbeat()
        if gains.max() <= 0:
            break
        _suppress(records, state, int(np.argmax(gains)), choices, stale)
    return Generalization(state.class_of_record)


@numba.njit(cache=True, nogil=True)
def _choose(
    records: PackedRecords,
    classes: Classes,
    rules: Rules,
    is_constrained: bool,
    k: Integer,
    of_suppressed: Integer,
    gains: IntArray,
    choices: IntArray,
    stale: BoolArray,
) -> bool:
    """Find the best record to suppress in some classes, and which one comes in for it.

    Returns
    -------
    bool
        Whether there are more classes to look at.
    """
    counts = np.zeros(rules.totals.size, dtype=np.int64)
    donors = np.flatnonzero(classes.sizes > k)
    n_looked_at = 0
    for g in np.flatnonzero(stale):
        if n_looked_at > _RECORDS_PER_CALL:
            return True
        stale[g] = False
        gains[g] = _NONE
        choices[g, 0], choices[g, 1] = -1, -1
        size = classes.sizes[g]
        n_looked_at += size
        record, least = -1, 0
        for member in classes.members[classes.starts[g] : classes.starts[g] + size]:
            less = -classes.losses[g]
            if size > 1:
                less = departure(records, classes, g, member)
            if size > k:
                gain = classes.losses[g] - less * (size - 1) - of_suppressed
                if gain > gains[g] and (
                    not is_constrained or holds_after(rules, classes, g, member, -1, counts)
                ):
                    gains[g], choices[g, 0] = gain, member
            elif less < least:
                record, least = member, less
        if record < 0:
            continue
        for h in donors:
            start, end = classes.starts[h], classes.starts[h] + classes.sizes[h]
            # No member frees more than all that its class loses.
            if classes.losses[h] * classes.sizes[h] - least * size <= of_suppressed:
                continue
            n_looked_at += end - start
            for other in classes.members[start:end]:
                freed = classes.losses[h]
                freed -= departure(records, classes, h, other) * (classes.sizes[h] - 1)
                if freed - least * size - of_suppressed <= gains[g]:
                    continue
                gain = freed - exchange(records, classes, g, record, other) * size - of_suppressed
                if gain > gains[g] and (
                    not is_constrained
                    or (
                        holds_after(rules, classes, g, record, other, counts)
                        and holds_after(rules, classes, h, other, -1, counts)
                    )
                ):
                    gains[g], choices[g, 0], choices[g, 1] = gain, record, other
    return False


@numba.njit(cache=True, nogil=True)
def _suppress(
    records: PackedRecords,
    classes: Classes,
    g: Integer,
    choices: IntArray,
    stale: BoolArray,
) -> None:
    """Suppress the record chosen in class g; other classes' choices are kept as they were found."""
    record, other = choices[g]
    donor = g
    if other < 0:
        classes.losses[g] += departure(records, classes, g, record)
        move(classes, record, -1)
    else:
        donor = classes.class_of_record[other]
        classes.losses[g] += exchange(records, classes, g, record, other)
        classes.losses[donor] += departure(records, classes, donor, other)
        move(classes, record, -1)
        move(classes, other, g)
        summarize(records, classes, donor)
    summarize(records, classes, g)
    for changed in (g, donor):
        stale[changed] = True
    for h in range(stale.size):
        came_in = choices[h, 1]
        if came_in >= 0 and classes.class_of_record[came_in] in (g, donor):
            stale[h] = True
