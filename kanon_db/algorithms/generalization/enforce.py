"""Making the classes of any method fulfil a constraint on sensitive values and entities."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.generalization.checked_classes import checked_classes
from kanon_db.algorithms.generalization.result import Generalization
from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, IntArray, Integer
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.class_summaries import ClassSummaries, union_loss
from kanon_db.algorithms.recoding.constraint_rules import Rules, counts_hold, members_hold
from kanon_db.algorithms.recoding.constraints import Constraint
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.algorithms.recoding.ncp import Ncp
from kanon_db.algorithms.recoding.packed_records import PackedRecords, bits_loss

_COUNTS_PER_CALL = 2**20  # of values in pairs of classes, between two heartbeats: milliseconds
_FEW_MEMBERS = 64  # compared with one another, rather than kept in a table of all values
_MAX_SEEDS = 16  # records of a class that a part may be nearest to
_MAX_SIZES = 16  # of such a part, about


def enforce(
    microdata: Microdata,
    class_of_record: npt.ArrayLike,
    k: int,
    constraint: Constraint,
    *,
    pulse: Pulse = UNLIMITED,
) -> Generalization:
    """Merge classes until the constraint holds for each of them, then split where it allows that.

    A class that the constraint does not hold for is united with another one: with that by which the
    loss grows least among those with which the constraint holds, or among all if there are none. In
    the end each class that grew is split again, as long as both parts keep ``k`` records and fulfil
    the constraint.

    Parameters
    ----------
    microdata : Microdata
    class_of_record : array_like of int, shape (n_records,)
        Equivalence class of each record; -1 for a suppressed one.
    k : int
        Fewest records of a class, at least 1.
    constraint : Constraint
    pulse : Pulse
        Only its heartbeat is used.

    Returns
    -------
    Generalization
        Classes numbered from 0, anew; those given if the constraint holds for all of them.

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
    state = ClassSummaries.of(records, classes)
    counts = np.zeros((holds.size, constraint.n_values), dtype=np.int32)
    np.add.at(counts, (classes[published], constraint.codes[published]), 1)
    parent = np.arange(holds.size)
    following = np.full(holds.size, -1, dtype=np.int64)
    unions = _Unions(holds, parent, counts, following, parent.copy())
    failing = np.flatnonzero(~holds)
    # Those that lose least are the cheapest to unite.
    failing = failing[np.argsort(state.losses[failing], kind="stable")]
    n_per_call = max(_COUNTS_PER_CALL // counts.size, 1)
    place: Integer = 0
    while place < failing.size:
        pulse.beat()
        place = _unite_failing(records, state, rules, failing, place, n_per_call, unions)
    while (parent != parent[parent]).any():
        parent = parent[parent]
    classes[published] = parent[classes[published]]
    grown = np.flatnonzero(np.bincount(parent, minlength=holds.size) > 1)
    classes = _split_grown(records, rules, classes, grown, k, pulse)
    classes[published] = np.unique(classes[published], return_inverse=True)[1]
    return Generalization(classes)


class _Unions(NamedTuple):
    """Which classes have been united.

    Of a union only a summary is kept, in the place of one of its classes.

    Parameters
    ----------
    holds : ndarray of bool, shape (n_classes,)
        Whether the constraint holds for it.
    parent : ndarray of int64, shape (n_classes,)
        The class that it went into; itself where its place is in use.
    counts : ndarray of int32, shape (n_classes, v)
        Records of each sensitive value.
    following, last : ndarray of int64, shape (n_classes,)
        The classes of each union as a list: the next one, or -1, and the last one.
    """

    holds: BoolArray
    parent: IntArray
    counts: CodeArray
    following: IntArray
    last: IntArray


def _split_grown(
    records: PackedRecords,
    rules: Rules,
    class_of_record: IntArray,
    grown: IntArray,
    k: int,
    pulse: Pulse,
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
            pulse.beat()
            least = _split_near(records, rules, members, seed, k, near, least)
        if near.any():
            classes[members[near]] = number
            number += 1
            parts += [members[near], members[~near]]
    return classes


@numba.njit(cache=True, nogil=True)
def _unite_failing(
    records: PackedRecords,
    classes: ClassSummaries,
    rules: Rules,
    failing: IntArray,
    start: Integer,
    n_unions: Integer,
    unions: _Unions,
) -> Integer:
    """Unite classes with others until the constraint holds for them, so often at most.

    Returns
    -------
    int
        The place of the first class to go on with.
    """
    for place in range(start, failing.size):
        g = failing[place]
        while unions.parent[g] != g:
            g = unions.parent[g]
        while not unions.holds[g]:
            if not n_unions:
                return place
            n_unions -= 1
            best, unions.holds[best] = _best_partner(records, classes, rules, unions, g)
            _unite(records, classes, unions, g, best)
            g = best
    return failing.size


@numba.njit(cache=True, nogil=True)
def _best_partner(
    records: PackedRecords, classes: ClassSummaries, rules: Rules, unions: _Unions, g: Integer
) -> tuple[Integer, bool]:
    """Find the class to unite with class g, and tell whether the constraint holds for both."""
    joint = np.empty(unions.counts.shape[1], dtype=np.int64)
    best, least, best_holds = -1, 0, False
    for h in range(unions.holds.size):
        if h == g or unions.parent[h] != h:
            continue
        size = classes.sizes[g] + classes.sizes[h]
        more = union_loss(records, classes, g, h) * size
        more -= classes.losses[g] * classes.sizes[g]
        more -= classes.losses[h] * classes.sizes[h]
        if best_holds and more >= least:
            continue
        holds = _union_holds(rules, classes, unions, g, h, joint)
        if best < 0 or (holds and not best_holds) or (holds == best_holds and more < least):
            best, least, best_holds = h, more, holds
    return best, best_holds


@numba.njit(cache=True, nogil=True)
def _union_holds(
    rules: Rules,
    classes: ClassSummaries,
    unions: _Unions,
    g: Integer,
    h: Integer,
    joint: IntArray,
) -> bool:
    """Whether the constraint holds for two classes as one; ``joint`` is room for their counts."""
    size = classes.sizes[g] + classes.sizes[h]
    if not rules.entities:
        for i in range(joint.size):
            joint[i] = unions.counts[g, i] + unions.counts[h, i]
        return counts_hold(rules, joint, size)
    members = np.empty(size, dtype=np.int64)
    n = 0
    for union in (g, h):
        part = union
        while part >= 0:
            for place in range(classes.starts[part], classes.starts[part + 1]):
                members[n] = classes.members[place]
                n += 1
            part = unions.following[part]
    return members_hold(rules, members, joint)


@numba.njit(cache=True, nogil=True)
def _unite(
    records: PackedRecords, classes: ClassSummaries, unions: _Unions, g: Integer, h: Integer
) -> None:
    """Let class g go into class h."""
    classes.losses[h] = union_loss(records, classes, g, h)
    classes.sizes[h] += classes.sizes[g]
    classes.present[h] |= classes.present[g]
    for j in range(records.whole.size):
        ends, others = classes.ends[h, j], classes.ends[g, j]
        ends[0], ends[2] = min(ends[0], others[0]), max(ends[2], others[2])
    unions.counts[h] += unions.counts[g]
    unions.parent[g] = h
    unions.following[unions.last[h]] = g
    unions.last[h] = unions.last[g]


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
    order = np.argsort(_distances(records, members, seed), kind="mergesort")
    counts = np.zeros(rules.totals.size, dtype=np.int64)
    for size in range(k, members.size - k + 1, max((members.size - 2 * k) // _MAX_SIZES, 1)):
        near, far = members[order[:size]], members[order[size:]]
        if not members_hold(rules, near, counts) or not members_hold(rules, far, counts):
            continue
        loss = _set_loss(records, near) * size + _set_loss(records, far) * far.size
        if least < 0 or loss < least:
            least = loss
            best[:] = False
            best[order[:size]] = True
    return least


@numba.njit(cache=True, nogil=True)
def _distances(records: PackedRecords, members: IntArray, seed: Integer) -> IntArray:
    """Loss, in units, of a class of one record and each of some others."""
    distances = np.empty(members.size, dtype=np.int64)
    for i in range(members.size):
        distances[i] = _set_loss(records, np.array([seed, members[i]]))
    return distances


@numba.njit(cache=True, nogil=True)
def _set_loss(records: PackedRecords, members: IntArray) -> Integer:
    """Loss, in units, of each of some records as one class."""
    total = 0
    if members.size > _FEW_MEMBERS:
        present = np.zeros(records.bit_loss.size // 64 + 1, dtype=np.uint64)
        for group in range(records.words.shape[1]):
            first = True
            for member in members:
                word = records.words[member, group]
                new = records.bits[member, group] & ~present[word]
                present[word] |= new
                if new and not first:
                    total += bits_loss(new, word, records.bit_loss)
                first = False
    for group in range(records.words.shape[1] if members.size <= _FEW_MEMBERS else 0):
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
