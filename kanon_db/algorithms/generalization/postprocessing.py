"""Postprocesses classes of any method: enforces constraints, lowers losses, suppresses records."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.generalization.greedy_classes import Generalization, split
from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, IntArray, Integer
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, inlined, kernel
from kanon_db.algorithms.recoding.annealing import Schedule, TypedRecords, anneal_classes
from kanon_db.algorithms.recoding.changing_classes import (
    NO_RULES,
    NONE,
    ClassSummaries,
    Constraint,
    ConstraintRules,
    PackedRecords,
    bits_loss,
    counts_hold,
    departure,
    exchange,
    holds_after,
    make_move,
    members_hold,
    members_of,
    move,
    summarize,
    union_loss,
)
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.algorithms.recoding.microdata import Microdata, check_k, sort_order
from kanon_db.errors import InvalidParameterError


def check_classes(
    microdata: Microdata,
    class_of_record: npt.ArrayLike,  # (n_records,): classes; -1 for a suppressed record
    k: int,
    constraint: Constraint | None = None,
) -> IntArray:
    """Check given classes, and renumber them."""
    check_k(k, microdata.n_records)
    classes = np.array(class_of_record, dtype=np.int64)
    if classes.shape != (microdata.n_records,) or (classes < -1).any():
        raise InvalidParameterError(
            "each record must have a class number, or -1",
            detail=f"classes: shape {classes.shape}, records: {microdata.n_records}",
        )
    published = classes >= 0
    classes[published] = np.unique(classes[published], return_inverse=True)[1]
    n_small = int((np.bincount(classes[published]) < k).sum())
    if n_small:
        raise InvalidParameterError(
            "each class must have at least k records",
            detail=f"{n_small:,} classes have fewer than k = {k}",
        )
    if constraint is not None:
        constraint.check_matches(microdata.n_records)
        n_broken = int((~constraint.holds_for(classes)).sum())
        if n_broken:
            raise InvalidParameterError(
                "the constraint must hold for each class",
                detail=f"{n_broken:,} classes violate it",
                hint="enforce it first",
            )
    return classes


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

    A class that violates the constraint is merged with another one: the one that raises the loss
    least among those whose union fulfils the constraint, or among all if there are none. In the
    end each class that grew is split again, as long as both parts keep ``k`` records and fulfil
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
    classes = check_classes(microdata, class_of_record, k)
    constraint.check_matches(microdata.n_records)
    published = np.flatnonzero(classes >= 0)
    constraint.restricted_to(published).check_eligible()
    holds = constraint.holds_for(classes)
    if holds.all():
        return Generalization(classes)
    records, rules = PackedRecords.of(Ncp.of(microdata, pulse=pulse)), constraint.rules
    state = ClassSummaries.of(records, classes)
    counts = np.zeros((holds.size, rules.totals.size), dtype=np.int32)
    for codes in constraint.codes_of_all:
        np.add.at(counts, (classes[published], codes[published]), 1)
    parent = np.arange(holds.size)
    following = np.full(holds.size, -1, dtype=np.int64)
    unions = _Unions(holds, parent, counts, following, parent.copy())
    failing = np.flatnonzero(~holds)
    # Classes of little loss are the cheapest to merge.
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
    """The classes that have been merged.

    Only a summary of each union is kept, in the place of one of its classes.
    """

    holds: BoolArray  # (n_classes,): whether the constraint holds for it
    parent: IntArray  # (n_classes,): the class that it went into; itself where its place is in use
    counts: CodeArray  # (n_classes, v): records of each sensitive value
    # (n_classes,): the classes of each union as a list: the next one, or -1, and the last one
    following: IntArray
    last: IntArray


def _split_grown(
    records: PackedRecords,
    rules: ConstraintRules,
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


@kernel
def _unite_failing(
    records: PackedRecords,
    classes: ClassSummaries,
    rules: ConstraintRules,
    failing: IntArray,
    start: Integer,
    n_unions: Integer,
    unions: _Unions,
) -> Integer:
    """Merge classes that violate the constraint, up to a number of times."""
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


@kernel
def _best_partner(
    records: PackedRecords,
    classes: ClassSummaries,
    rules: ConstraintRules,
    unions: _Unions,
    g: Integer,
) -> tuple[Integer, bool]:
    """Find the class to merge with class g, and tell whether their union fulfils the constraint."""
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


@kernel
def _union_holds(
    rules: ConstraintRules,
    classes: ClassSummaries,
    unions: _Unions,
    g: Integer,
    h: Integer,
    joint: IntArray,
) -> bool:
    """Whether the union of two classes fulfils the constraint; ``joint`` holds their counts."""
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


@kernel
def _unite(
    records: PackedRecords, classes: ClassSummaries, unions: _Unions, g: Integer, h: Integer
) -> None:
    """Merge class g into class h."""
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


@kernel
def _split_near(
    records: PackedRecords,
    rules: ConstraintRules,
    members: IntArray,
    seed: Integer,
    k: Integer,
    best: BoolArray,
    least: Integer,
) -> Integer:
    """Try to split off the records nearest to one member, in several numbers."""
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
            for i in range(size):
                best[order[i]] = True
    return least


@kernel
def _distances(records: PackedRecords, members: IntArray, seed: Integer) -> IntArray:
    """Loss, in units, of a class of one record and each of some others."""
    distances = np.empty(members.size, dtype=np.int64)
    for i in range(members.size):
        distances[i] = _set_loss(records, np.array([seed, members[i]]))
    return distances


@kernel
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


def refine(
    microdata: Microdata,
    class_of_record: npt.ArrayLike,
    k: int,
    *,
    random: np.random.Generator,
    effort: int = 1000,
    constraint: Constraint | None = None,
    pulse: Pulse = UNLIMITED,
    workers: int = 1,
) -> Generalization:
    """Lower the loss of equivalence classes.

    The result never loses more than what is given, all its classes have at least ``k`` records,
    and the constraint holds for them if it held before. Suppressed records stay so.

    Parameters
    ----------
    microdata : Microdata
    class_of_record : array_like of int, shape (n_records,)
        Equivalence class of each record; -1 for a suppressed one.
    k : int
        Fewest records of a class, at least 1.
    random : numpy.random.Generator
        Draws the changes to propose.
    effort : int
        Changes to be proposed for each record, at least 0.
    constraint : Constraint, optional
        On the sensitive values of each class.
    pulse : Pulse
        The schedule follows the fraction of its time or of ``effort`` that is used, whichever is
        larger, and the work ends when either is used up.
    workers : int
        Threads that propose changes.

    Returns
    -------
    Generalization
        Classes numbered from 0, anew.

    Raises
    ------
    InfeasibleError
        If there are records, but fewer than ``k``.
    InvalidParameterError
        If ``k`` is less than 1, ``effort`` less than 0, a class smaller than ``k``, or the
        constraint does not hold for a class.

    Notes
    -----
    Classes of 2k records or more are split first, which never loses more. Then simulated annealing:
    a random record moves to the class of a similar record, or changes places with a record of
    that class. Changes that raise the loss are accepted with a probability that falls over time.
    Some classes are dissolved at the start and their records dispersed, so that others have more
    than k records and moves are possible.

    Losses after a change follow from summaries of the classes, not from their records
    (:mod:`~kanon_db.algorithms.recoding.changing_classes`), so a proposal takes about a
    microsecond; only a change that is made takes time that grows with k. Memory grows with the
    number of records, and with the number of classes times that of categorical values, two bits
    each.
    """
    classes = check_classes(microdata, class_of_record, k, constraint)
    if effort < 0:
        raise InvalidParameterError("effort must be at least 0", detail=f"effort = {effort}")
    published = np.flatnonzero(classes >= 0)
    if not published.size:
        return Generalization(classes)
    if published.size < classes.size:
        microdata = Microdata(microdata.codes[published], microdata.attributes)
        constraint = constraint and constraint.restricted_to(published)
    classes[published] = _refined(
        microdata, classes[published], k, random, effort, constraint, pulse, workers
    )
    return Generalization(classes)


def _refined(
    microdata: Microdata,
    class_of_record: IntArray,
    k: int,
    random: np.random.Generator,
    effort: int,
    constraint: Constraint | None,
    pulse: Pulse,
    workers: int,
) -> IntArray:
    """Refine classes of all records."""
    before = class_of_record
    if constraint is None:
        before = split(microdata, class_of_record, k, pulse=pulse)
    ncp = Ncp.of(microdata, pulse=pulse)
    if ncp.total(before) == 0:
        return before
    order = sort_order(microdata)
    typed = TypedRecords.of(ncp.of_records(order), random, pulse)
    after = np.empty_like(before)
    after[order] = anneal_classes(
        typed, before[order], k, Schedule(effort * order.size), random,
        constraint=constraint and constraint.restricted_to(order), pulse=pulse, workers=workers,
    )  # fmt: skip
    return after if ncp.total(after) < ncp.total(before) else before


_NONE = -(2**62)
# Inlined: in the loops, a call costs more than its work.
_departure = inlined(departure.__wrapped__)  # type: ignore[attr-defined]

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
    """Suppress the records that raise the loss most, one by one, as long as the total loss falls.

    The next record is the one whose suppression lowers the loss most, as far as is known. It leaves
    a class of more than ``k`` records, or one of ``k`` that a record of a larger class then joins.

    Parameters
    ----------
    microdata : Microdata
    class_of_record : array_like of int, shape (n_records,)
        Equivalence class of each record; -1 for one that is suppressed already, and counts.
    k : int
        Fewest records of a class, at least 1.
    max_suppressed : Fraction
        Largest fraction of the records to suppress, in [0, 1].
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
    classes = check_classes(microdata, class_of_record, k, constraint)
    if not 0 <= max_suppressed <= 1:
        raise InvalidParameterError("max_suppressed must lie in [0, 1]")
    limit = int(max_suppressed * classes.size) - int((classes < 0).sum())
    if limit <= 0 or not classes.size:
        return Generalization(classes)
    ncp = Ncp.of(microdata, pulse=pulse)
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
    """The best record to suppress in each class."""

    gains: IntArray  # (n_classes,): by how much the loss would fall, in units
    # (n_classes,): the record, and the one that would join the class for it; -1: none
    leaving: IntArray
    entering: IntArray
    stale: BoolArray  # (n_classes,): whether the choice is out of date

    @classmethod
    def of(cls, n_classes: int) -> _Choices:
        gains = np.full(n_classes, _NONE, dtype=np.int64)
        leaving, entering = np.full((2, n_classes), -1, dtype=np.int64)
        return cls(gains, leaving, entering, np.ones(n_classes, dtype=np.bool_))


@kernel
def _choose(
    records: PackedRecords,
    classes: ClassSummaries,
    rules: ConstraintRules,
    choices: _Choices,
    k: Integer,
    of_suppressed: Integer,
) -> bool:
    """Renew stale choices for some classes; tell whether any are left."""
    counts = np.zeros(rules.totals.size, dtype=np.int64)
    donors = np.empty(classes.sizes.size, dtype=np.int64)
    n_donors = 0
    for g in range(classes.sizes.size):
        if classes.sizes[g] > k:
            donors[n_donors] = g
            n_donors += 1
    donors = donors[:n_donors]
    n_looked_at = 0
    for g in range(choices.stale.size):
        if not choices.stale[g]:
            continue
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


@kernel
def _choose_leaving(
    records: PackedRecords,
    classes: ClassSummaries,
    rules: ConstraintRules,
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


@kernel
def _choose_replaced(
    records: PackedRecords,
    classes: ClassSummaries,
    rules: ConstraintRules,
    choices: _Choices,
    g: Integer,
    donors: IntArray,
    of_suppressed: Integer,
    counts: IntArray,
) -> Integer:
    """Choose a record of class g, of k records, and one of a larger class to take its place."""
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
        # No record frees more than the loss of its whole class.
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


@kernel(inline="always")
def _freed(
    records: PackedRecords, classes: ClassSummaries, g: Integer, leaving: Integer
) -> Integer:
    """Return how much less class g and a record that leaves it lose in total."""
    less = _departure(records, classes, g, leaving)
    return int(classes.losses[g] - less * (classes.sizes[g] - 1))


@kernel
def _suppress(
    records: PackedRecords, classes: ClassSummaries, choices: _Choices, g: Integer
) -> None:
    """Suppress the record chosen in class g; the choices of other classes are kept."""
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
