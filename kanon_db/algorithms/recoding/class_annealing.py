"""Simulated annealing of equivalence classes: records move and change places."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, IntArray, Integer, WordArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.ground.threads import Threads
from kanon_db.algorithms.recoding.class_summaries import (
    NONE,
    ClassSummaries,
    departure,
    entry,
    exchange,
    make_move,
    members_of,
    move,
    summarize,
)
from kanon_db.algorithms.recoding.constraint_rules import NO_RULES, Rules, holds_after
from kanon_db.algorithms.recoding.constraints import Constraint
from kanon_db.algorithms.recoding.cooling import (
    Schedule,
    random_bits,
    random_state,
    scaled,
    threshold_of,
)
from kanon_db.algorithms.recoding.packed_records import PackedRecords
from kanon_db.algorithms.recoding.typed_records import TypedRecords

_DISPERSED_SHARE = 0.015  # of the classes are given up first
_TRIES = 5  # members of the other class that a record may change places with, at each proposal
_RECORDS_PER_THREAD = 5_000  # with fewer, neighbours are too often in the part of another thread
_PROPOSALS_PER_PART = 2  # for each record, before the parts are others


def annealed_classes(
    typed: TypedRecords,
    class_of_record: IntArray,
    k: int,
    schedule: Schedule,
    random: np.random.Generator,
    *,
    constraint: Constraint | None = None,
    pulse: Pulse = UNLIMITED,
    workers: int = 1,
) -> IntArray:
    """Anneal equivalence classes.

    Without a constraint some classes are given up first, their records dispersed, so that others
    have more than k records and can lose some.

    Parameters
    ----------
    typed : TypedRecords
    class_of_record : ndarray of int64, shape (n_records,)
        Classes of at least k records, numbered from 0 without gaps.
    k : int
    schedule : Schedule
    random : numpy.random.Generator
    constraint : Constraint, optional
        On the records in the order of ``typed``; it holds for each class, and keeps holding.
    pulse : Pulse
        When its time ends, so does the annealing.
    workers : int
        Threads. Each has a part of the classes for some time, and changes no others; parts are
        drawn anew again and again, so that records get everywhere.

    Returns
    -------
    ndarray of int64, shape (n_records,)
        Classes of at least k records, numbered from 0 without gaps. They may lose more than those
        before.
    """
    if constraint is None:
        class_of_record = _dispersed(typed, class_of_record, k, random)
    classes = ClassSummaries.of(typed.records, class_of_record, room=k)
    rules = NO_RULES if constraint is None else constraint.rules
    workers = max(1, min(workers, class_of_record.size // _RECORDS_PER_THREAD))
    states = [random_state(random) for _ in range(workers)]
    mean_loss = float(classes.losses @ classes.sizes) / class_of_record.size
    parts = _parts(classes, workers, random)
    n_left = n_until = _PROPOSALS_PER_PART * class_of_record.size
    with Threads(workers) as threads:
        for n_proposals, temperature in schedule.steps(mean_loss, pulse, workers):
            if workers > 1 and n_left <= 0:
                parts, n_left = _parts(classes, workers, random), n_until
            n_left -= n_proposals
            given = [
                (typed, classes, part, k, rules, n_proposals // workers, temperature, state)
                for part, state in zip(parts, states, strict=True)
            ]
            others = [threads.start(_anneal, *one) for one in given[1:]]
            _anneal(*given[0])
            for other in others:
                other.result()
    return classes.class_of_record


class _Part(NamedTuple):
    """The classes that one thread changes.

    Parameters
    ----------
    number : int
    of_class : ndarray of int64, shape (n_classes,)
        The part of each class.
    records : ndarray of int64
        The records of its own classes. They stay there as long as the parts do.
    """

    number: Integer
    of_class: IntArray
    records: IntArray


def _parts(classes: ClassSummaries, workers: int, random: np.random.Generator) -> list[_Part]:
    """Divide the classes in their order, closed to a ring that is cut anywhere."""
    class_of_record = classes.class_of_record
    n_classes = classes.sizes.size
    of_class = np.zeros(n_classes, dtype=np.int64)
    if workers == 1:
        return [_Part(np.int64(0), of_class, np.arange(class_of_record.size))]
    middle = np.bincount(class_of_record, np.arange(class_of_record.size), n_classes)
    order = np.roll(np.argsort(middle / np.maximum(classes.sizes, 1)), random.integers(n_classes))
    ends = np.cumsum(classes.sizes[order])
    of_class[order] = np.minimum(ends * workers // max(int(ends[-1]), 1), workers - 1)
    part_of_record = of_class[class_of_record]
    return [
        _Part(np.int64(part), of_class, np.flatnonzero(part_of_record == part))
        for part in range(workers)
    ]


def _dispersed(
    typed: TypedRecords, class_of_record: IntArray, k: int, random: np.random.Generator
) -> IntArray:
    """Give up some classes; their records join the classes of records much like them.

    A class stays if one of its records finds no other class.
    """
    n_classes = int(class_of_record.max()) + 1
    given_up = random.permutation(n_classes)[: int(n_classes * _DISPERSED_SHARE)]
    classes = ClassSummaries.of(typed.records, class_of_record, room=k)
    _disperse(typed, classes, given_up)
    numbers: IntArray = np.unique(classes.class_of_record, return_inverse=True)[1]
    return numbers


@numba.njit(cache=True, nogil=True)
def _disperse(typed: TypedRecords, classes: ClassSummaries, given_up: IntArray) -> None:
    is_given_up = np.zeros(classes.sizes.size, dtype=np.bool_)
    is_given_up[given_up] = True
    for g in given_up:
        members = members_of(classes, g).copy()
        targets = np.empty(members.size, dtype=np.int64)
        for i in range(members.size):
            record = np.int64(members[i])
            targets[i] = _best_other_class(typed, classes, record, members.size, is_given_up)
        if (targets < 0).any():
            is_given_up[g] = False
            continue
        for i in range(members.size):
            make_move(typed.records, classes, np.int64(members[i]), targets[i])


@numba.njit(cache=True, nogil=True)
def _best_other_class(
    typed: TypedRecords,
    classes: ClassSummaries,
    record: Integer,
    room: Integer,
    is_given_up: BoolArray,
) -> Integer:
    """Find the class that a record enters at the least loss, of those that it has near; -1: none.

    The class must have room for so many records: all those that look for one.
    """
    best: Integer = -1
    least = 0
    for near in typed.near[typed.type_of_record[record]]:
        if near < 0:
            break
        for other in range(typed.first_of_type[near], typed.first_of_type[near + 1]):
            h = classes.class_of_record[other]
            space = classes.starts[h + 1] - classes.starts[h] - classes.sizes[h]
            if is_given_up[h] or space < room:
                continue
            after = classes.losses[h] + entry(typed.records, classes, h, record)
            more = after * (classes.sizes[h] + 1) - classes.losses[h] * classes.sizes[h]
            if best < 0 or more < least:
                best, least = h, more
    return best


@numba.njit(cache=True, nogil=True)
def _anneal(
    typed: TypedRecords,
    classes: ClassSummaries,
    part: _Part,
    k: Integer,
    rules: Rules,
    n_proposals: Integer,
    temperature: float,
    state: WordArray,
) -> None:
    """Propose changes; make those that lose less, and others with a chance that falls with loss.

    A change that loses ``temperature`` units more is made with a chance of 1 / e. The rules keep
    holding for all classes.
    """
    # All in one loop: calls of steps that make calls themselves would double its time.
    records, near, first_of_type = typed.records, typed.near, typed.first_of_type
    type_of_record = typed.type_of_record
    is_constrained = rules.codes.size > 0
    n_records, n_near = np.uint64(part.records.size), np.uint64(near.shape[1])
    low_bits = np.uint64(0xFFFFFFFF)
    counts = np.zeros(rules.totals.size, dtype=np.int64)
    for _ in range(n_proposals):
        draw = random_bits(state)
        record = part.records[np.int64(scaled(draw >> np.uint64(32), n_records))]
        target = near[type_of_record[record], np.int64(scaled(draw & low_bits, n_near))]
        if target < 0:
            continue
        draw = random_bits(state)
        alike = np.uint64(first_of_type[target + 1] - first_of_type[target])
        other = first_of_type[target] + np.int64(scaled(draw >> np.uint64(32), alike))
        g, h = classes.class_of_record[record], classes.class_of_record[other]
        # A record of another thread's may be in no class at the moment.
        if g == h or h < 0 or part.of_class[h] != part.number:
            continue
        if classes.losses[g] + classes.losses[h] == 0:
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
                    holds_after(rules, classes, g, record, NONE, counts)
                    and holds_after(rules, classes, h, NONE, record, counts)
                )
            ):
                move(classes, record, h)
                _update(records, classes, g, less, h, more)
                continue
        place: Integer = np.int64(scaled(draw & low_bits, np.uint64(size_h)))
        for _ in range(min(size_h, _TRIES)):
            place = place + 1 if place + 1 < size_h else 0
            other = np.int64(classes.members[classes.starts[h] + place])
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
            move(classes, record, NONE)
            move(classes, other, g)
            move(classes, record, h)
            _update(records, classes, g, change_g, h, change_h)
            break


@numba.njit(cache=True, nogil=True)
def _update(
    records: PackedRecords,
    classes: ClassSummaries,
    g: Integer,
    change_g: Integer,
    h: Integer,
    change_h: Integer,
) -> None:
    classes.losses[g] += change_g
    classes.losses[h] += change_h
    summarize(records, classes, g)
    summarize(records, classes, h)
