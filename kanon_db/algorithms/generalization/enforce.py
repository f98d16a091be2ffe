"""Making the classes of any method fulfil a constraint on the sensitive attribute."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.generalization.result import Generalization
from kanon_db.algorithms.generalization.split import checked_classes
from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, IntArray, Integer
from kanon_db.algorithms.ground.pulse import no_heartbeat
from kanon_db.algorithms.recoding.classes import (
    Classes,
    PackedRecords,
    bits_loss,
    union_loss,
)
from kanon_db.algorithms.recoding.constraints import Constraint, Rules, counts_hold
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.algorithms.recoding.ncp import Ncp

_PAIRS_PER_CALL = 2**17  # of classes, compared between two heartbeats: some milliseconds
_MAX_SEEDS = 16  # records of a class that a part may be nearest to
_MAX_SIZES = 16  # of such a part, about


def enforce(
    microdata: Microdata,
    class_of_record: npt.ArrayLike,
    k: int,
    constraint: Constraint,
    *,
    heartbeat: Callable[[], None] = no_heartbeat,
) -> Generalization:
    """Merge classes until the constraint holds for each, then split where it lets.

    A class that the constraint does not hold for is united with the class by which the loss grows
    least, if one makes the constraint hold, among these. In the end each class that grew is split
    again, as long as both parts keep ``k`` records and fulfil the constraint.

    Parameters
    ----------
    microdata : Microdata
    class_of_record : array_like of int, shape (n_records,)
        Equivalence class of each record; -1 for a suppressed one.
    k : int
        Fewest records of a class, at least 1.
    constraint : Constraint
    heartbeat : callable
        Called every few milliseconds; what it raises ends the work.

    Returns
    -------
    Generalization
        Classes numbered from 0, anew; the given ones, if the constraint holds for all of them.

    Raises
    ------
    IneligibleError
        If not even one class of all published records fulfils the constraint.
    InfeasibleError
        If there are records, but fewer than ``k``.
    InvalidParameterError
        If ``k`` is less than 1, there is not one class and one sensitive value for each record, or
        a class has fewer than ``k`` records.

    Notes
    -----
    Cost: each class that fails is compared with all others.
    """
    classes = checked_classes(microdata, class_of_record, k)
    constraint.check_matches(microdata.n_records)
    published = np.flatnonzero(classes >= 0)
    constraint.restricted_to(published).check_eligible()
    holds = constraint.holds_for(classes)
    if holds.all():
        return Generalization(classes)
    records, rules = PackedRecords.of(Ncp.of(microdata)), constraint.rules
    state = Classes.of(records, classes)
    counts = np.zeros((holds.size, constraint.n_values), dtype=np.int32)
    np.add.at(counts, (classes[published], rules.codes[published]), 1)
    failing = np.flatnonzero(~holds)
    # Those that lose least are the cheapest to unite.
    failing = failing[np.argsort(state.losses[failing], kind="stable")]
    parent = np.arange(holds.size)
    n_per_call = max(_PAIRS_PER_CALL // holds.size, 1)
    for start in range(0, failing.size, n_per_call):
        heartbeat()
        _unite_failing(
            records, state, rules, failing[start : start + n_per_call], holds, parent, counts
        )
    while (parent != parent[parent]).any():
        parent = parent[parent]
    classes[published] = parent[classes[published]]
    grown = np.flatnonzero(np.bincount(parent, minlength=holds.size) > 1)
    classes = _split_grown(records, rules, classes, grown, k, heartbeat)
    classes[published] = np.unique(classes[published], return_inverse=True)[1]
    return Generalization(classes)


def _split_grown(
    records: PackedRecords,
    rules: Rules,
    class_of_record: IntArray,
    grown: IntArray,
    k: int,
    heartbeat: Callable[[], None],
) -> IntArray:
    """Split classes, and their parts, in two as long as both parts are allowed."""
    classes = class_of_record.copy()
    number = int(classes.max()) + 1
    order = np.argsort(classes, kind="stable")
    starts = np.searchsorted(classes[order], grown)
    ends = np.searchsorted(classes[order], grown, side="right")
    parts = [order[start:end] for start, end in zip(starts, ends, strict=True)]
    while parts:
        members = parts.pop()
        if members.size < 2 * k:
            continue
        near = np.zeros(members.size, dtype=np.bool_)
        least: Integer = -1
        n_seeds = min(members.size, _MAX_SEEDS)
        for seed in members[np.arange(n_seeds) * members.size // n_seeds].tolist():
            heartbeat()
            least = _split_near(records, rules, members, seed, k, near, least)
        if near.any():
            classes[members[near]] = number
            number += 1
            parts += [members[near], members[~near]]
    return classes


@numba.njit(cache=True, nogil=True)
def _unite_failing(
    records: PackedRecords,
    classes: Classes,
    rules: Rules,
    failing: IntArray,
    holds: BoolArray,
    parent: IntArray,
    counts: CodeArray,
) -> None:
    """Unite classes with others until the constraint holds for them.

    Of a union, only summaries are kept, in the place of one of the two; ``parent`` tells which.
    """
    joint = np.zeros(counts.shape[1], dtype=np.int64)
    for first in failing:
        g = first
        while parent[g] != g:
            g = parent[g]
        while not holds[g]:
            best, best_more, best_holds = -1, 0, False
            for h in range(holds.size):
                if h == g or parent[h] != h:
                    continue
                size = classes.sizes[g] + classes.sizes[h]
                more = union_loss(records, classes, g, h) * size
                more -= classes.losses[g] * classes.sizes[g]
                more -= classes.losses[h] * classes.sizes[h]
                if best >= 0 and best_holds and more >= best_more:
                    continue
                for i in range(joint.size):
                    joint[i] = counts[g, i] + counts[h, i]
                is_enough = counts_hold(rules, joint)
                if (
                    best < 0
                    or (is_enough and not best_holds)
                    or (is_enough == best_holds and more < best_more)
                ):
                    best, best_more, best_holds = h, more, is_enough
            classes.losses[best] = union_loss(records, classes, g, best)
            classes.sizes[best] += classes.sizes[g]
            counts[best] += counts[g]
            for word in range(records.bit_loss.size // 64):
                classes.present[best, word] |= classes.present[g, word]
            for j in range(records.whole.size):
                ends, others = classes.ends[best, j], classes.ends[g, j]
                ends[0], ends[2] = min(ends[0], others[0]), max(ends[2], others[2])
            parent[g] = best
            g = best
            holds[g] = best_holds


@numba.njit(cache=True, nogil=True)
def _split_near(
    records: PackedRecords,
    rules: Rules,
    members: IntArray,
    seed: Integer,
    k: Integer,
    best: BoolArray,
    least: Integer,
) -> Integer:
    """Try to split off the records nearest to one of them, in several numbers.

    Returns
    -------
    int
        Least loss so far, and in ``best`` which members to split off for it; -1 if there is no
        allowed split.
    """
    stride = max((members.size - 2 * k) // _MAX_SIZES, 1)
    near_counts = np.zeros(rules.totals.size, dtype=np.int64)
    far_counts = np.zeros(rules.totals.size, dtype=np.int64)
    distances = np.empty(members.size, dtype=np.int64)
    pair = np.empty(2, dtype=np.int64)
    pair[0] = seed
    for i in range(members.size):
        pair[1] = members[i]
        distances[i] = _set_loss(records, pair)
    order = np.argsort(distances, kind="mergesort")
    for i in range(members.size):
        far_counts[rules.codes[members[i]]] += 1
    n_near = 0
    for size in range(k, members.size - k + 1, stride):
        while n_near < size:
            code = rules.codes[members[order[n_near]]]
            near_counts[code] += 1
            far_counts[code] -= 1
            n_near += 1
        if not counts_hold(rules, near_counts) or not counts_hold(rules, far_counts):
            continue
        loss = _set_loss(records, members[order[:size]]) * size
        loss += _set_loss(records, members[order[size:]]) * (members.size - size)
        if least < 0 or loss < least:
            least = loss
            best[:] = False
            best[order[:size]] = True
    return least


@numba.njit(cache=True, nogil=True)
def _set_loss(records: PackedRecords, members: IntArray) -> Integer:
    """Loss, in units, of each of some records as one class."""
    total = 0
    for group in range(records.words.shape[1]):
        for i in range(members.size):
            # Each value counts where it occurs first.
            word, new = records.words[members[i], group], records.bits[members[i], group]
            for earlier in range(i):
                if records.words[members[earlier], group] == word:
                    new &= ~records.bits[members[earlier], group]
                if not new:
                    break
            if new and i:
                total += bits_loss(new, word, records.bit_loss)
    for j in range(records.whole.size):
        low, high = records.numbers[members[0], j], records.numbers[members[0], j]
        for record in members:
            low = min(low, records.numbers[record, j])
            high = max(high, records.numbers[record, j])
        total += min(np.int64(high) - low, records.whole[j])
    return total
