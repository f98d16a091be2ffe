"""All worlds that are consistent with several releases, counted one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, FloatArray, IntArray, Integer
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.releases.components import components_of
from kanon_db.algorithms.releases.forced import FREE, Forced
from kanon_db.algorithms.releases.placements import NOWHERE, Releases

MAX_WORLDS = 20_000
_STEPS_PER_WORLD = 20
_MAX_PEOPLE = 64
_MAX_OPTIONS = 4096
_MAX_STEPS = 400_000_000
_STEPS_PER_BEAT = 1_000_000


@dataclass(frozen=True, eq=False)
class Posterior:
    """How likely the candidates of tuples are, where all worlds were counted.

    Parameters
    ----------
    share : ndarray of float64, shape (n_candidates,)
        The share of each candidate, aligned with the candidates' values; 1 in total for a tuple.
    is_known : ndarray of bool, shape (n_all,)
        For which tuples.
    """

    share: FloatArray
    is_known: BoolArray


def count_worlds(
    releases: Releases,
    forced: Forced,
    max_worlds: int = MAX_WORLDS,
    pulse: Pulse = UNLIMITED,
) -> Posterior:
    """Count the worlds of each component of buckets that has few.

    Exact, where all worlds are equally likely: for a reader who knows that who gets into which
    bucket is random, given the values that each bucket holds. A world says which person has which
    value and is in which bucket. Certain tuples are known, too.

    Parameters
    ----------
    releases : Releases
    forced : Forced
        What follows from the releases.
    max_worlds : int
        For components with more, nothing is known.
    pulse : Pulse

    Returns
    -------
    Posterior

    Notes
    -----
    Counting them all is #P-hard: one release is a permanent. People of a tuple are ordered, and
    the first of them are in every release that has as many.

    Examples
    --------
    >>> from kanon_db.algorithms.releases.forced import force
    >>> from kanon_db.algorithms.releases.placements import Release
    >>> bucket, values = np.zeros(3, dtype=np.int64), np.array([0, 0, 1])
    >>> one = Release.of(np.array([0, 1, 2]), bucket, values)
    >>> two = Release.of(np.array([0, 3, 4]), bucket, values)
    >>> both = Releases.of([one, two], 5, 2)
    >>> count_worlds(both, force(both)).share[:2].tolist()
    [0.8, 0.2]
    """
    candidates = forced.candidates
    share = np.zeros(candidates.value.size)
    is_known = np.zeros(releases.n_all, dtype=np.bool_)
    certain = np.flatnonzero(candidates.number == 1)
    share[candidates.first[certain]] = 1
    is_known[certain] = True
    is_open = (candidates.number > 1) & ~forced.is_contradicted
    links = (forced.value_of == FREE) & (releases.bucket != NOWHERE)
    component_of_bucket = components_of(releases, links)
    component = np.full(releases.n_all, -1, dtype=np.int64)
    component[releases.tuple_of[links]] = component_of_bucket[releases.bucket[links]]
    _settle(
        np.flatnonzero(is_open & (component < 0)), share, is_known, candidates.first,
        candidates.value, candidates.number, forced.value_of, releases.first_placement,
        releases.release, releases.bucket, releases.people, releases.total,
    )  # fmt: skip
    # Nothing is known of components with a contradiction.
    spoilt = np.zeros(int(component_of_bucket.max(initial=-1)) + 2, dtype=np.bool_)
    spoilt[component[forced.is_contradicted]] = True
    is_open &= (component >= 0) & ~spoilt[component]
    opened = np.flatnonzero(is_open)
    tuples = opened[np.argsort(component[opened], kind="stable")]
    ends = np.flatnonzero(np.diff(component[tuples], append=-1)) + 1
    people = np.diff(np.cumsum(releases.total[tuples])[ends - 1], prepend=0)
    left = forced.left.astype(np.int64)
    room = releases.people.astype(np.int64)
    steps, since = 0, 0
    for number in np.argsort(people, kind="stable").tolist():
        if people[number] > _MAX_PEOPLE or steps > _MAX_STEPS:
            break
        members = tuples[ends[number - 1] if number else 0 : ends[number]]
        taken = _enumerate(
            members, max_worlds, max_worlds * _STEPS_PER_WORLD, left, room, share, is_known,
            candidates.first, candidates.value, candidates.number, forced.value_of, releases.total,
            releases.first_placement, releases.release, releases.bucket, releases.first_cell,
            releases.value, releases.n_releases,
        )  # fmt: skip
        steps, since = steps + taken, since + taken + 1000
        if since > _STEPS_PER_BEAT:
            pulse.beat()
            since = 0
    return Posterior(share, is_known)


@numba.njit(cache=True, nogil=True)
def _settle(
    tuples: IntArray,
    share: FloatArray,
    is_known: BoolArray,
    first: IntArray,
    value: CodeArray,
    number: IntArray,
    value_of: CodeArray,
    first_placement: IntArray,
    release: CodeArray,
    bucket: CodeArray,
    people: CodeArray,
    total: IntArray,
) -> None:
    """Add up the values of tuples whose buckets are all settled, from a release with all people."""
    for t in tuples:
        is_known[t] = True
        start, end = first_placement[t], first_placement[t + 1]
        while start < end:
            stop, is_whole = start, True
            while stop < end and release[stop] == release[start]:
                is_whole &= bucket[stop] != NOWHERE
                stop += 1
            if is_whole:
                for p in range(start, stop):
                    for j in range(first[t], first[t] + number[t]):
                        if value[j] == value_of[p]:
                            share[j] += people[p] / total[t]
                break
            start = stop


@numba.njit(cache=True, nogil=True)
def _list_options(
    t: Integer,
    rank: Integer,
    n_options: Integer,
    options: IntArray,
    places: IntArray,
    room: IntArray,
    first: IntArray,
    value: CodeArray,
    number: IntArray,
    value_of: CodeArray,
    first_placement: IntArray,
    release: CodeArray,
    bucket: CodeArray,
    first_cell: IntArray,
    cell_value: CodeArray,
    left: IntArray,
) -> Integer:
    """List the ways in which a person may have a value and be in buckets; -1 if too many.

    An option has the candidate, and a placement and a cell for each release; -1 for none.
    """
    start, end = first_placement[t], first_placement[t + 1]
    for j in range(first[t], first[t] + number[t]):
        # How many placements of each release are tried: an odometer.
        lows = places[0]
        n_releases = 0
        p = start
        while p < end:
            lows[n_releases] = p
            n_releases += 1
            q = p
            while q < end and release[q] == release[p]:
                q += 1
            places[1, n_releases - 1] = q
            p = q
        n_ways = 1
        for r in range(n_releases):
            places[2, r] = lows[r]
            n_ways *= places[1, r] - lows[r]
            if n_ways > options.shape[0]:
                return -1
        while True:
            fits = True
            if n_options == options.shape[0]:
                return -1
            options[n_options, 0] = j
            for r in range(n_releases):
                p = places[2, r]
                n_here = 0
                for q in range(lows[r], places[1, r]):
                    if bucket[q] != NOWHERE:
                        n_here += room[q]
                cell = -1
                if (bucket[p] == NOWHERE) == (rank < n_here):
                    fits = False
                elif bucket[p] == NOWHERE or value_of[p] != FREE:
                    fits = bucket[p] == NOWHERE or value_of[p] == value[j]
                else:
                    for c in range(first_cell[bucket[p]], first_cell[bucket[p] + 1]):
                        if cell_value[c] == value[j] and left[c] > 0:
                            cell = c
                    fits = cell >= 0
                if not fits:
                    break
                options[n_options, 1 + 2 * r] = p
                options[n_options, 2 + 2 * r] = cell
            if fits:
                for r in range(n_releases, (options.shape[1] - 1) // 2):
                    options[n_options, 1 + 2 * r] = -1
                    options[n_options, 2 + 2 * r] = -1
                n_options += 1
            r = n_releases - 1
            while r >= 0 and places[2, r] + 1 == places[1, r]:
                places[2, r] = lows[r]
                r -= 1
            if r < 0:
                break
            places[2, r] += 1
    return n_options


@numba.njit(cache=True, nogil=True)
def _enumerate(
    members: IntArray,
    max_worlds: int,
    max_steps: int,
    left: IntArray,
    room: IntArray,
    share: FloatArray,
    is_known: BoolArray,
    first: IntArray,
    value: CodeArray,
    number: IntArray,
    value_of: CodeArray,
    total: IntArray,
    first_placement: IntArray,
    release: CodeArray,
    bucket: CodeArray,
    first_cell: IntArray,
    cell_value: CodeArray,
    n_releases: int,
) -> int:
    """Count the worlds of a component; returns the number of steps.

    ``left`` and ``room`` are as before in the end.
    """
    n_people = 0
    for t in members:
        n_people += total[t]
    options = np.empty((_MAX_OPTIONS, 1 + 2 * n_releases), dtype=np.int64)
    places = np.empty((3, n_releases), dtype=np.int64)
    ends = np.empty(n_people + 1, dtype=np.int64)
    ends[0], at = 0, 0
    for t in members:
        for rank in range(total[t]):
            found = _list_options(
                t, rank, ends[at], options, places, room, first, value, number, value_of,
                first_placement, release, bucket, first_cell, cell_value, left,
            )  # fmt: skip
            if found < 0:
                return _MAX_OPTIONS
            at += 1
            ends[at] = found
    having = np.zeros(ends[n_people], dtype=np.int64)
    option = ends[:-1].copy()
    before = np.zeros(n_people, dtype=np.int64)
    n_worlds, n_steps, depth = 0, 0, 0
    is_entered = True
    while depth >= 0:
        n_steps += 1
        if not is_entered:
            chosen = option[depth]
            having[chosen] += n_worlds - before[depth]
            _move(options[chosen], left, room, 1)
            option[depth] += 1
        is_entered = False
        while option[depth] < ends[depth + 1] and not _fits(options[option[depth]], left, room):
            option[depth] += 1
        if option[depth] == ends[depth + 1] or n_worlds > max_worlds or n_steps > max_steps:
            option[depth] = ends[depth]
            depth -= 1
            continue
        _move(options[option[depth]], left, room, -1)
        before[depth] = n_worlds
        if depth + 1 == n_people:
            n_worlds += 1
        else:
            depth += 1
            is_entered = True
    if 0 < n_worlds <= max_worlds and n_steps <= max_steps:
        at = 0
        for t in members:
            is_known[t] = True
            for _ in range(total[t]):
                for o in range(ends[at], ends[at + 1]):
                    share[options[o, 0]] += having[o] / (n_worlds * total[t])
                at += 1
    return n_steps


@numba.njit(cache=True, nogil=True)
def _fits(option: IntArray, left: IntArray, room: IntArray) -> bool:
    for i in range(1, option.size, 2):
        if option[i] >= 0 and room[option[i]] == 0:
            return False
        if option[i + 1] >= 0 and left[option[i + 1]] == 0:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def _move(option: IntArray, left: IntArray, room: IntArray, amount: int) -> None:
    for i in range(1, option.size, 2):
        if option[i] >= 0:
            room[option[i]] += amount
        if option[i + 1] >= 0:
            left[option[i + 1]] += amount
