"""Values that follow from several releases, propagated until nothing more follows."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, IntArray, Integer
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.releases.candidates import Candidates, candidates_of, in_steps
from kanon_db.algorithms.releases.placements import NOWHERE, Releases

FREE = -1
"""The value of a placement whose people's values are open."""


@dataclass(frozen=True, eq=False)
class Forced:
    """What follows.

    Parameters
    ----------
    candidates : Candidates
        Those that are left.
    value_of : ndarray of int32, shape (n_placements,)
        The value that everybody of a placement has, or :data:`FREE`.
    left : ndarray of int32, shape (n_cells,)
        How often a value is left in a bucket for people whose values are open.
    rounds : int
    is_contradicted : ndarray of bool, shape (n_all,)
        Tuples for which no value is left: the releases contradict each other, so somebody's value
        or quasi-identifiers changed. Nothing is claimed of them.
    """

    candidates: Candidates
    value_of: CodeArray
    left: CodeArray
    rounds: int
    is_contradicted: BoolArray


def force(
    releases: Releases,
    candidates: Candidates | None = None,
    known: tuple[IntArray, IntArray] | None = None,
    pulse: Pulse = UNLIMITED,
) -> Forced:
    """Propagate what must be so.

    Sound, and incomplete: in every world that is consistent with the releases, people have one of
    their tuple's candidates, and there may be fewer. A tuple with one candidate is certain.

    Parameters
    ----------
    releases : Releases
    candidates : Candidates, optional
        Those of :func:`candidates_of`; changed in place.
    known : tuple of two ndarrays of int64, optional
        Tuples, each with a value that is known to be that of all of its people.
    pulse : Pulse

    Returns
    -------
    Forced

    Notes
    -----
    Three rules, until nothing changes. A placement with one candidate has it, and uses it up in its
    bucket. A value that is used up is nobody else's there. If a value is as often left in a bucket
    as there are people who may have it, they all have it. Cost: near-linear a round; only tuples
    and buckets are looked at again whose buckets or tuples changed.

    Examples
    --------
    >>> from kanon_db.algorithms.releases.placements import Release
    >>> values = np.array([0, 1, 2])
    >>> one = Release.of(np.array([0, 1, 2]), np.array([0, 0, 0]), values)
    >>> two = Release.of(np.array([0, 1, 3]), np.array([0, 1, 0]), np.array([0, 1, 3]))
    >>> force(Releases.of([one, two], 4, 4)).candidates.number.tolist()
    [1, 1, 1, 1]
    """
    found = candidates_of(releases, pulse) if candidates is None else candidates
    if known is not None:
        _know(known[0], known[1], found.first, found.value, found.number)
    value_of = np.full(releases.release.size, FREE, dtype=np.int32)
    left = releases.count.copy()
    tuple_flags = releases.total > 0
    bucket_flags = np.ones(releases.n_buckets, dtype=np.bool_)
    contradicted = np.zeros(releases.n_all, dtype=np.bool_)
    mark = np.zeros(max(1, releases.n_values), dtype=np.int64)
    room = np.zeros(releases.value.size, dtype=np.int64)
    rounds = 0
    while tuple_flags.any() or bucket_flags.any():
        rounds += 1
        for low, high in in_steps(releases.n_all, pulse):
            _narrow(
                low, high, tuple_flags, bucket_flags, contradicted, mark, found.first, found.value,
                found.number, value_of, left, releases.first_placement, releases.release,
                releases.bucket, releases.people, releases.first_cell, releases.value,
                releases.first_member, releases.member, releases.tuple_of,
            )  # fmt: skip
        for low, high in in_steps(releases.n_buckets, pulse):
            _count(
                low, high, tuple_flags, bucket_flags, contradicted, room, found.first, found.value,
                found.number, value_of, left, releases.people, releases.first_cell, releases.value,
                releases.first_member, releases.member, releases.tuple_of,
            )  # fmt: skip
    return Forced(found, value_of, left, rounds, contradicted)


@numba.njit(cache=True, nogil=True)
def _know(
    tuples: IntArray, values: IntArray, first: IntArray, value: CodeArray, number: IntArray
) -> None:
    """Leave tuples one candidate, if they have it."""
    for i in range(tuples.size):
        t = tuples[i]
        start = first[t]
        for j in range(start, start + number[t]):
            if value[j] == values[i]:
                value[start] = values[i]
                number[t] = 1
                break


@numba.njit(cache=True, nogil=True)
def _fix(
    p: Integer,
    c: Integer,
    tuple_flags: BoolArray,
    bucket_flags: BoolArray,
    value_of: CodeArray,
    left: CodeArray,
    b: Integer,
    people: CodeArray,
    cell_value: CodeArray,
    first_member: IntArray,
    member: CodeArray,
    tuple_of: CodeArray,
) -> None:
    """Give the people of a placement the value of a cell, and flag whom that concerns."""
    value_of[p] = cell_value[c]
    left[c] -= people[p]
    tuple_flags[tuple_of[p]] = True
    bucket_flags[b] = True
    if left[c] == 0:
        for i in range(first_member[b], first_member[b + 1]):
            if value_of[member[i]] == -1:
                tuple_flags[tuple_of[member[i]]] = True


@numba.njit(cache=True, nogil=True)
def _narrow(
    low: Integer,
    high: Integer,
    tuple_flags: BoolArray,
    bucket_flags: BoolArray,
    contradicted: BoolArray,
    mark: IntArray,
    first: IntArray,
    value: CodeArray,
    number: IntArray,
    value_of: CodeArray,
    left: CodeArray,
    first_placement: IntArray,
    release: CodeArray,
    bucket: CodeArray,
    people: CodeArray,
    first_cell: IntArray,
    cell_value: CodeArray,
    first_member: IntArray,
    member: CodeArray,
    tuple_of: CodeArray,
) -> None:
    """Drop candidates that a release no longer allows; fix placements with a single one.

    A mark of a value says how many releases allow it; where all do, it ends at ``n_marks``.
    """
    n_marks = mark.max()
    for t in range(low, high):
        if not tuple_flags[t] or contradicted[t]:
            tuple_flags[t] = False
            continue
        tuple_flags[t] = False
        n_marks += 1
        list_start = first[t]
        for j in range(list_start, list_start + number[t]):
            mark[value[j]] = n_marks
        start, end = first_placement[t], first_placement[t + 1]
        while start < end:
            stop = start + 1
            constrains = bucket[start] != NOWHERE
            while stop < end and release[stop] == release[start]:
                constrains &= bucket[stop] != NOWHERE
                stop += 1
            if constrains:
                for p in range(start, stop):
                    if value_of[p] != FREE:
                        if mark[value_of[p]] == n_marks:
                            mark[value_of[p]] = n_marks + 1
                        continue
                    for c in range(first_cell[bucket[p]], first_cell[bucket[p] + 1]):
                        if left[c] > 0 and mark[cell_value[c]] == n_marks:
                            mark[cell_value[c]] = n_marks + 1
                n_marks += 1
            start = stop
        kept = 0
        for j in range(list_start, list_start + number[t]):
            if mark[value[j]] == n_marks:
                value[list_start + kept] = value[j]
                kept += 1
        is_narrower = kept < number[t]
        number[t] = kept
        if kept == 0:
            contradicted[t] = True
            continue
        for p in range(first_placement[t], end):
            if value_of[p] != FREE or bucket[p] == NOWHERE:
                continue
            if is_narrower:
                bucket_flags[bucket[p]] = True
            n_possible, cell = 0, 0
            for c in range(first_cell[bucket[p]], first_cell[bucket[p] + 1]):
                if left[c] > 0 and mark[cell_value[c]] == n_marks:
                    n_possible += 1
                    cell = c
            if n_possible == 1 and left[cell] >= people[p]:
                _fix(
                    p, cell, tuple_flags, bucket_flags, value_of, left, bucket[p], people,
                    cell_value, first_member, member, tuple_of,
                )  # fmt: skip
            elif n_possible <= 1:
                contradicted[t] = True
    mark[0] = n_marks


@numba.njit(cache=True, nogil=True)
def _count(
    low: Integer,
    high: Integer,
    tuple_flags: BoolArray,
    bucket_flags: BoolArray,
    contradicted: BoolArray,
    room: IntArray,
    first: IntArray,
    value: CodeArray,
    number: IntArray,
    value_of: CodeArray,
    left: CodeArray,
    people: CodeArray,
    first_cell: IntArray,
    cell_value: CodeArray,
    first_member: IntArray,
    member: CodeArray,
    tuple_of: CodeArray,
) -> None:
    """Where as many people may have a value as there are copies of it left, they have it."""
    for b in range(low, high):
        if not bucket_flags[b]:
            continue
        bucket_flags[b] = False
        room[first_cell[b] : first_cell[b + 1]] = 0
        is_sound = True
        for i in range(first_member[b], first_member[b + 1]):
            p = member[i]
            t = tuple_of[p]
            if value_of[p] != FREE:
                continue
            if contradicted[t]:
                is_sound = False
                break
            c = first_cell[b]
            for j in range(first[t], first[t] + number[t]):
                while c < first_cell[b + 1] and cell_value[c] < value[j]:
                    c += 1
                if c < first_cell[b + 1] and cell_value[c] == value[j]:
                    room[c] += people[p]
        if not is_sound:
            continue
        for c in range(first_cell[b], first_cell[b + 1]):
            if left[c] == 0 or room[c] != left[c]:
                continue
            for i in range(first_member[b], first_member[b + 1]):
                p = member[i]
                t = tuple_of[p]
                if value_of[p] != FREE:
                    continue
                for j in range(first[t], first[t] + number[t]):
                    if value[j] == cell_value[c]:
                        _fix(
                            p, c, tuple_flags, bucket_flags, value_of, left, b, people,
                            cell_value, first_member, member, tuple_of,
                        )  # fmt: skip
                        break
