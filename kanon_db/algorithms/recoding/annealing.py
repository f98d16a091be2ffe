"""Anneals equivalence classes: records move and change places, while a temperature falls.

The schedule, the acceptance rule and the random numbers also serve the annealing of graphs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, IntArray, Integer, WordArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, Threads, kernel
from kanon_db.algorithms.recoding.changing_classes import (
    NO_RULES,
    NONE,
    ClassSummaries,
    Constraint,
    ConstraintRules,
    PackedRecords,
    departure,
    entry,
    exchange,
    have_same_values,
    holds_after,
    make_move,
    members_of,
    move,
    summarize,
)
from kanon_db.algorithms.recoding.loss import Ncp, Units
from kanon_db.algorithms.recoding.microdata import is_first_of_equal
from kanon_db.dataclasses import dataclass

_COLD_SHARE = 0.05  # of the proposals come last, without any heat
_PROPOSALS_PER_CALL = 2**13  # some milliseconds

PROPOSALS_PER_SECOND = 1_000_000
"""Proposals that a second of a time limit stands for, per worker; most machines make more."""

_OVERDUE = 4.0  # times its seconds, after which annealing ends all the same


@dataclass(frozen=True)
class Schedule:
    """How many changes are proposed, and how the temperature falls from the first to the last."""

    n_proposals: int
    # Temperatures as shares of the mean loss; with 0 as ``hottest`` there is no heat at all. The
    # default is for equivalence classes.
    hottest: float = 0.4
    coldest: float = 0.06

    def steps(
        self, mean_loss: float, pulse: Pulse, workers: int = 1, width: int = 1
    ) -> Iterator[tuple[int, float]]:
        """Divide the work into calls of some milliseconds."""
        # The seconds of the pulse are counted in proposals, so that the same request finds the same
        # on a busy machine; the clock ends the work after ``_OVERDUE`` times as long.
        n_done = 0
        in_time = max(pulse.seconds, 0.0) * workers * PROPOSALS_PER_SECOND * min(16 / width, 1.0)
        n_planned = int(min(self.n_proposals, in_time))
        while True:
            pulse.beat()
            if n_done >= n_planned or pulse.spent >= _OVERDUE:
                return
            n_proposals = min(workers * _PROPOSALS_PER_CALL, n_planned - n_done)
            yield n_proposals, mean_loss * self._temperature(n_done / n_planned)
            n_done += n_proposals

    def _temperature(self, done: float) -> float:
        """Temperature after a share of the work, as a share of the mean loss."""
        if not self.hottest or done >= 1 - _COLD_SHARE:
            return 0.0
        return float(self.hottest * (self.coldest / self.hottest) ** (done / (1 - _COLD_SHARE)))


def random_state(random: np.random.Generator) -> WordArray:
    """Draw where the random numbers of an annealing begin."""
    return random.integers(1, 2**64, size=1, dtype=np.uint64)


@kernel
def threshold_of(temperature: float, state: WordArray) -> Integer:
    """Draw the largest loss at which a change is accepted: exponentially distributed."""
    if temperature <= 0.0:
        return 0
    share = (np.float64(random_bits(state) >> np.uint64(11)) + 0.5) * 2.0**-53
    return np.int64(-math.log(share) * temperature)


@kernel
def random_bits(state: WordArray) -> np.uint64:
    """Draw the next 64 bits of xorshift64*."""
    bits = state[0]
    bits ^= bits >> np.uint64(12)
    bits ^= bits << np.uint64(25)
    bits ^= bits >> np.uint64(27)
    state[0] = bits
    return np.uint64(bits * np.uint64(2685821657736338717))


@kernel
def scaled(bits: np.uint64, end: np.uint64) -> np.uint64:
    """Scale 32 random bits to a number below ``end``."""
    return (bits * end) >> np.uint64(32)


_NONE = -1
_N_NEAR = 12
_WINDOW = 24
_MAX_ORDERS = 12
_COMPARISONS_PER_CALL = 2**17  # of two row types: some milliseconds
_FAR = 2**31 - 1


class TypedRecords(NamedTuple):
    """Records in an order in which those with the same row, a row type, lie side by side."""

    records: PackedRecords
    first_of_type: IntArray  # (t + 1,): first record of each row type, and the number of records
    type_of_record: CodeArray
    # (t, 12): row types that lose little in a class with each row type; the type itself is among
    # them if it has several records; -1: none
    near: CodeArray

    @classmethod
    def of(cls, ncp: Ncp, random: np.random.Generator, pulse: Pulse) -> TypedRecords:
        """Find the row types, and for each the types that lose little in a class with it."""
        is_first = is_first_of_equal(ncp.values)
        first_of_type = np.append(np.flatnonzero(is_first), is_first.size)
        type_of_record = (np.cumsum(is_first) - 1).astype(np.int32)
        near = _nearest(ncp.values[is_first], ncp.units, random, pulse)
        repeated = np.flatnonzero(np.diff(first_of_type) > 1)
        near[repeated, -1] = repeated
        return cls(PackedRecords.of(ncp), first_of_type, type_of_record, near)


def _nearest(
    values: CodeArray, units: Units, random: np.random.Generator, pulse: Pulse
) -> CodeArray:
    """Find row types that lose little in a class with each row type, nearest first."""
    # Rows are sorted several times, each attribute being the least significant once, and rows
    # within 24 places of each other are compared: that finds rows that differ in one or two
    # attributes.
    n_types, m = values.shape
    nearest = np.full((n_types, _N_NEAR), _NONE, dtype=np.int32)
    losses = np.full((n_types, _N_NEAR), _FAR, dtype=np.int32)
    n_rows = _COMPARISONS_PER_CALL // _WINDOW
    for last in random.permutation(m)[:_MAX_ORDERS]:
        others = random.permutation(np.delete(np.arange(m), last))
        order = np.lexsort(values.T[[last, *others[::-1]]])
        for start in range(0, n_types, n_rows):
            pulse.beat()
            end = min(start + n_rows, n_types)
            _compare(values, units, order, start, end, nearest, losses)
    return nearest


@kernel
def _compare(
    values: CodeArray,
    units: Units,
    order: IntArray,
    start: Integer,
    end: Integer,
    nearest: CodeArray,
    losses: CodeArray,
) -> None:
    """Compare each row in a part of the order with those behind it."""
    for i in range(start, end):
        a = order[i]
        for following in range(i + 1, min(i + 1 + _WINDOW, order.size)):
            b = order[following]
            loss: Integer = np.int64(0)
            for j in range(units.numeric.size):
                if units.numeric[j]:
                    loss += min(abs(np.int64(values[a, j]) - values[b, j]), units.whole[j])
                elif values[a, j] != values[b, j]:
                    loss += units.step[j]
            _keep(nearest[a], losses[a], b, loss)
            _keep(nearest[b], losses[b], a, loss)


@kernel
def _keep(nearest: CodeArray, losses: CodeArray, other: Integer, loss: Integer) -> None:
    """Insert a row type into the nearest if it belongs there and is not there yet."""
    if loss >= losses[-1]:
        return
    place = losses.size - 1
    while place > 0 and losses[place - 1] >= loss:
        place -= 1
        if nearest[place] == other:
            return
    while losses[place] == loss:  # behind its equals
        place += 1
    for later in range(losses.size - 1, place, -1):
        nearest[later], losses[later] = nearest[later - 1], losses[later - 1]
    nearest[place], losses[place] = other, loss


_DISPERSED_SHARE = 0.03  # of the classes are given up first
# Members of the other class that are looked at, and with whom an exchange is weighed
_MEMBERS = 64
_TRIES = 12
_STILL = np.uint64(7)  # of 8 exchanges that change no loss, which cost most where k is large
_RECORDS_PER_THREAD = 5_000  # with fewer, neighbours are too often in the part of another thread
_PROPOSALS_PER_PART = 2  # for each record, before the parts are others


def anneal_classes(
    typed: TypedRecords,
    # (n_records,): classes of at least k records, numbered from 0 without gaps
    class_of_record: IntArray,
    k: int,
    schedule: Schedule,
    random: np.random.Generator,
    *,
    # On the records in the order of ``typed``; it holds for each class, and keeps holding
    constraint: Constraint | None = None,
    pulse: Pulse = UNLIMITED,
    # Threads. Each changes only its own part of the classes; the parts are redrawn repeatedly, so
    # that records can reach every class.
    workers: int = 1,
) -> IntArray:
    """Anneal equivalence classes."""
    # Without a constraint, some classes are dissolved first and their records dispersed, so that
    # others have more than k records and can spare some.
    if constraint is None:
        class_of_record = _dispersed(typed, class_of_record, k, random)
    classes = ClassSummaries.of(typed.records, class_of_record, room=k)
    spared = _spared(typed.records, classes)
    rules = NO_RULES if constraint is None else constraint.rules
    workers = max(1, min(workers, class_of_record.size // _RECORDS_PER_THREAD))
    states = [random_state(random) for _ in range(workers)]
    mean_loss = float(classes.losses @ classes.sizes) / class_of_record.size
    parts = _parts(classes, workers, random)
    n_left = n_until = _PROPOSALS_PER_PART * class_of_record.size
    width = typed.records.words.shape[1] + typed.records.numbers.shape[1]
    with Threads(workers) as threads:
        for n_proposals, temperature in schedule.steps(mean_loss, pulse, workers, max(width, 1)):
            if workers > 1 and n_left <= 0:
                parts, n_left = _parts(classes, workers, random), n_until
            n_left -= n_proposals
            given = [
                (typed, classes, spared, part, k, rules, n_proposals // workers, temperature, state)
                for part, state in zip(parts, states, strict=True)
            ]
            others = [threads.start(_anneal, *one) for one in given[1:]]
            _anneal(*given[0])
            for other in others:
                other.result()
    return classes.class_of_record


class _ThreadPart(NamedTuple):
    """The classes that one thread changes."""

    number: Integer
    of_class: IntArray  # (n_classes,): the part of each class
    records: IntArray  # The records of its own classes. They stay there as long as the parts do.


def _parts(classes: ClassSummaries, workers: int, random: np.random.Generator) -> list[_ThreadPart]:
    """Divide the classes, in their order closed to a ring, from a random cut on."""
    class_of_record = classes.class_of_record
    n_classes = classes.sizes.size
    of_class = np.zeros(n_classes, dtype=np.int64)
    if workers == 1:
        return [_ThreadPart(np.int64(0), of_class, np.arange(class_of_record.size))]
    middle = np.bincount(class_of_record, np.arange(class_of_record.size), n_classes)
    order = np.roll(np.argsort(middle / np.maximum(classes.sizes, 1)), random.integers(n_classes))
    ends = np.cumsum(classes.sizes[order])
    of_class[order] = np.minimum(ends * workers // max(int(ends[-1]), 1), workers - 1)
    part_of_record = of_class[class_of_record]
    return [
        _ThreadPart(np.int64(part), of_class, np.flatnonzero(part_of_record == part))
        for part in range(workers)
    ]


def _dispersed(
    typed: TypedRecords, class_of_record: IntArray, k: int, random: np.random.Generator
) -> IntArray:
    """Dissolve some classes; their records join the classes of similar records.

    A class stays if one of its records finds no other class.
    """
    n_classes = int(class_of_record.max()) + 1
    given_up = random.permutation(n_classes)[: int(n_classes * _DISPERSED_SHARE)]
    classes = ClassSummaries.of(typed.records, class_of_record, room=k)
    _disperse(typed, classes, given_up)
    numbers: IntArray = np.unique(classes.class_of_record, return_inverse=True)[1]
    return numbers


@kernel
def _disperse(typed: TypedRecords, classes: ClassSummaries, given_up: IntArray) -> None:
    is_given_up = np.zeros(classes.sizes.size, dtype=np.bool_)
    for g in given_up:
        is_given_up[g] = True
    for g in given_up:
        members = np.empty(classes.sizes[g], dtype=np.int64)
        targets = np.empty(members.size, dtype=np.int64)
        is_alone = False
        for i in range(members.size):
            record = members[i] = np.int64(classes.members[classes.starts[g] + i])
            targets[i] = _best_other_class(typed, classes, record, members.size, is_given_up)
            is_alone = is_alone or targets[i] < 0
        if is_alone:
            is_given_up[g] = False
            continue
        for i in range(members.size):
            make_move(typed.records, classes, members[i], targets[i])


@kernel
def _best_other_class(
    typed: TypedRecords,
    classes: ClassSummaries,
    record: Integer,
    room: Integer,
    is_given_up: BoolArray,
) -> Integer:
    """Find the class of a near record type that a record enters at the least loss; -1: none.

    The class must have room for all records that are looking for one.
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


@kernel
def _anneal(
    typed: TypedRecords,
    classes: ClassSummaries,
    spared: CodeArray,
    part: _ThreadPart,
    k: Integer,
    rules: ConstraintRules,
    n_proposals: Integer,
    temperature: float,
    state: WordArray,
) -> None:
    """Propose changes; make those that lose less, and others with a chance that falls with loss."""
    # A change that loses ``temperature`` units more is made with a chance of 1 / e. The rules keep
    # holding for all classes.
    # All in one loop: nested calls would double its time.
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
        threshold = threshold_of(temperature, state)
        more = entry(records, classes, h, record)
        if size_g > k and classes.starts[h] + size_h < classes.starts[h + 1]:
            difference = (
                classes.losses[h] - classes.losses[g]
                + more * (size_h + 1) - spared[record] * (size_g - 1)
            )  # fmt: skip
            if difference <= threshold and (
                not is_constrained
                or (
                    holds_after(rules, classes, g, record, NONE, counts)
                    and holds_after(rules, classes, h, NONE, record, counts)
                )
            ):
                less = -spared[record]
                move(classes, record, h)
                _update(records, classes, spared, g, less, h, more)
                continue
        least = more * size_h - spared[record] * size_g
        place: Integer = np.int64(scaled(draw & low_bits, np.uint64(size_h)))
        n_tries = 0
        for _ in range(min(size_h, _MEMBERS)):
            place = place + 1 if place + 1 < size_h else 0
            other = np.int64(classes.members[classes.starts[h] + place])
            # Losses are submodular: an exchange saves no more than a departure without an entry.
            bound = least - spared[other] * size_h
            if bound > threshold or type_of_record[other] == type_of_record[record]:
                continue
            n_tries += 1
            if n_tries > _TRIES:
                break
            threshold = threshold_of(temperature, state)
            if bound + entry(records, classes, g, other) * size_g > threshold:
                continue
            change_h = exchange(records, classes, h, other, record)
            change_g = exchange(records, classes, g, record, other)
            if change_h * size_h + change_g * size_g > threshold:
                continue
            if change_h == 0 and change_g == 0 and draw & _STILL:
                continue
            if (
                is_constrained
                and not have_same_values(rules, record, other)
                and not (
                    holds_after(rules, classes, g, record, other, counts)
                    and holds_after(rules, classes, h, other, record, counts)
                )
            ):
                continue
            move(classes, record, NONE)
            move(classes, other, g)
            move(classes, record, h)
            _update(records, classes, spared, g, change_g, h, change_h)
            break


@kernel
def _update(
    records: PackedRecords,
    classes: ClassSummaries,
    spared: CodeArray,
    g: Integer,
    change_g: Integer,
    h: Integer,
    change_h: Integer,
) -> None:
    classes.losses[g] += change_g
    classes.losses[h] += change_h
    _summarize(records, classes, spared, g)
    _summarize(records, classes, spared, h)


@kernel
def _summarize(
    records: PackedRecords, classes: ClassSummaries, spared: CodeArray, g: Integer
) -> None:
    summarize(records, classes, g)
    _spare(records, classes, spared, g)


@kernel
def _spare(records: PackedRecords, classes: ClassSummaries, spared: CodeArray, g: Integer) -> None:
    """Find what each record of a class would lose less, in units, without each of them."""
    for record in members_of(classes, g):
        spared[record] = 0
        if classes.sizes[g] > 1:
            spared[record] = -departure(records, classes, g, np.int64(record))


@kernel
def _spared(records: PackedRecords, classes: ClassSummaries) -> CodeArray:
    spared = np.zeros(classes.class_of_record.size, dtype=np.int32)
    for g in range(classes.sizes.size):
        _spare(records, classes, spared, g)
    return spared
