"""Counts the worlds that are consistent with several releases, and derives forced values.

An oracle: what the package measures of releases is compared with what is so in all worlds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, FloatArray, IntArray, Integer
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.algorithms.releases.bucket_releases import (
    NOWHERE,
    BucketRelease,
    BucketReleases,
    PossibleValues,
    components_of,
    in_steps,
    possible_values,
)
from kanon_db.algorithms.releases.release_measures import (
    _ROUNDING,
    Differences,
    Kind,
    ReleaseCheck,
    _check_candidates,
    compare_all,
    measure_releases,
    people_of,
)

FREE: Final = -1
"""The value of a placement whose people's values are open."""


@dataclass(frozen=True, eq=False)
class ForcedValues:
    """Values that follow from several releases.

    Parameters
    ----------
    candidates : PossibleValues
        The candidates that are left.
    value_of : ndarray of int32, shape (n_placements,)
        The value that everybody of a placement has, or :data:`FREE`.
    left : ndarray of int32, shape (n_cells,)
        How often a value is left in a bucket for people whose values are open.
    rounds : int
    is_contradicted : ndarray of bool, shape (n_all,)
        Tuples for which no value is left: the releases contradict each other, so somebody's value
        or quasi-identifiers changed. Nothing is claimed of them.
    """

    candidates: PossibleValues
    value_of: CodeArray
    left: CodeArray
    rounds: int
    is_contradicted: BoolArray


def force(
    releases: BucketReleases,
    candidates: PossibleValues | None = None,
    pulse: Pulse = UNLIMITED,
) -> ForcedValues:
    """Propagate forced values until nothing more follows.

    Sound, but incomplete: in every world consistent with the releases, people have one of their
    tuple's candidates, some of which may be impossible. A tuple with one candidate is certain.

    Parameters
    ----------
    releases : BucketReleases
    candidates : PossibleValues, optional
        Those of :func:`possible_values`; changed in place.
    pulse : Pulse

    Returns
    -------
    ForcedValues

    Notes
    -----
    Three rules, until nothing changes. A placement with one candidate has it, and uses it up in its
    bucket. Nobody else there has a value that is used up. If a bucket has as many copies of a value
    left as people who may have it, they all have it. Cost: near-linear for each round; only tuples
    and buckets whose buckets or tuples changed are examined again.

    Examples
    --------
    >>> from kanon_db.algorithms.releases.bucket_releases import BucketRelease
    >>> values = np.array([0, 1, 2])
    >>> one = BucketRelease.of(np.array([0, 1, 2]), np.array([0, 0, 0]), values)
    >>> two = BucketRelease.of(np.array([0, 1, 3]), np.array([0, 1, 0]), np.array([0, 1, 3]))
    >>> force(BucketReleases.of([one, two], 4, 4)).candidates.number.tolist()
    [1, 1, 1, 1]
    """
    found = possible_values(releases, pulse) if candidates is None else candidates
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
    return ForcedValues(found, value_of, left, rounds, contradicted)


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
    """Fix the people of a placement to the value of a cell, and flag what that affects."""
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

    A value's mark counts the releases that allow it; if all do, it ends at ``n_marks``.
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
    """Fix a value for everybody who may have it, if as many copies are left as people."""
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


MAX_WORLDS = 20_000
_STEPS_PER_WORLD = 20
_MAX_PEOPLE = 64
_MAX_OPTIONS = 4096
_MAX_STEPS = 200_000_000
_STEPS_PER_BEAT = 1_000_000


@dataclass(frozen=True, eq=False)
class Posterior:
    """Probabilities of candidates, for tuples whose worlds were all counted.

    Parameters
    ----------
    share : ndarray of float64, shape (n_candidates,)
        Probability of each candidate, aligned with the candidates' values; 1 in total for a tuple.
    is_known : ndarray of bool, shape (n_all,)
        Which tuples have probabilities.
    """

    share: FloatArray
    is_known: BoolArray


def count_worlds(
    releases: BucketReleases,
    forced: ForcedValues,
    max_worlds: int = MAX_WORLDS,
    pulse: Pulse = UNLIMITED,
    *,
    n_real: int | None = None,
) -> Posterior:
    """Count the worlds of each component of buckets that has few.

    Exact, where all worlds are equally likely: for a reader who knows that who gets into which
    bucket is random, given the values that each bucket holds. A world says which person has which
    value and is in which bucket. Certain tuples are known, too.

    Parameters
    ----------
    releases : BucketReleases
    forced : ForcedValues
        What follows from the releases.
    max_worlds : int
        Components with more worlds are skipped.
    pulse : Pulse
    n_real : int, optional
        How many releases are real; the later ones are virtual, which follow from the others and are
        ignored.

    Returns
    -------
    Posterior

    Notes
    -----
    Counting worlds is #P-hard: for one release it is a permanent. People of a tuple are ordered; a
    release that has n of them has the first n.

    Examples
    --------
    >>> from kanon_db.algorithms.releases.bucket_releases import BucketRelease
    >>> bucket, values = np.zeros(3, dtype=np.int64), np.array([0, 0, 1])
    >>> one = BucketRelease.of(np.array([0, 1, 2]), bucket, values)
    >>> two = BucketRelease.of(np.array([0, 3, 4]), bucket, values)
    >>> both = BucketReleases.of([one, two], 5, 2)
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
    last = releases.n_releases if n_real is None else n_real
    links = (forced.value_of == FREE) & (releases.bucket != NOWHERE) & (releases.release < last)
    component_of_bucket = components_of(releases, links)
    component = np.full(releases.n_all, -1, dtype=np.int64)
    component[releases.tuple_of[links]] = component_of_bucket[releases.bucket[links]]
    _settle(
        np.flatnonzero(is_open & (component < 0)), share, is_known, candidates.first,
        candidates.value, candidates.number, forced.value_of, releases.first_placement,
        releases.release, releases.bucket, releases.people, releases.total,
    )  # fmt: skip
    # Components with a contradiction are skipped.
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
            releases.value, last,
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
    """Add up the values of tuples whose buckets are all settled, in a release with all people."""
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
    """List a person's options, each a value with a bucket in each release; -1 if too many.

    An option has the candidate, and a placement and a cell for each release; -1 for none.
    """
    start, end = first_placement[t], first_placement[t + 1]
    for j in range(first[t], first[t] + number[t]):
        # An odometer over the placements of each release.
        lows = places[0]
        n_releases = 0
        p = start
        while p < end and release[p] < places.shape[1]:
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

    ``left`` and ``room`` are restored in the end.
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


@dataclass(frozen=True)
class WorldMeasures:
    """What several releases disclose together: the package's checks, forced values and worlds."""

    checks: tuple[ReleaseCheck, ...]
    people: int
    contradicted: int
    contradicted_groups: int
    counted: int  # People whose worlds were all counted: those in ``worlds``
    uncounted: int  # Others, not contradicted, with too many worlds to count

    def check(self, name: str) -> ReleaseCheck:
        return next(check for check in self.checks if check.name == name)


def measure_worlds(
    releases: Sequence[BucketRelease],
    n_tuples: int,
    bounds: Sequence[Fraction],
    max_worlds: int = MAX_WORLDS,
) -> WorldMeasures:
    """Measure releases as the package does, and then forced values and all worlds."""
    measured = measure_releases(releases, n_tuples, bounds)
    limits = np.array([float(bound) for bound in bounds])
    together = BucketReleases.of(releases, n_tuples, len(bounds))
    if virtual := virtual_releases(together, compare_all(together)):
        together = BucketReleases.of([*releases, *virtual], n_tuples, len(bounds))
    forced = force(together)
    counted = count_worlds(together, forced, max_worlds, n_real=len(releases))
    others = ~counted.is_known & ~forced.is_contradicted
    return WorldMeasures(
        checks=(
            *measured.checks,
            _check_candidates("forced", "sound", together, forced.candidates, limits),
            _likely("worlds", "exact", together, forced, counted.share, limits, counted.is_known),
        ),
        people=measured.people,
        contradicted=int(together.total[together.is_person & forced.is_contradicted].sum()),
        contradicted_groups=measured.contradicted_groups,
        counted=int(together.total[together.is_person & counted.is_known].sum()),
        uncounted=int(together.total[together.is_person & others].sum()),
    )


def virtual_releases(
    releases: BucketReleases, compared: Sequence[Differences]
) -> list[BucketRelease]:
    """Make releases of groups whose values are known by differencing.

    Sound: they state what follows from the releases, for algorithms that examine single buckets.

    Parameters
    ----------
    releases : BucketReleases
    compared : sequence of Differences

    Returns
    -------
    list of BucketRelease
        Those who came or left between two releases, from one-sided groups.
    """
    found: list[BucketRelease] = []
    for one in compared:
        for came, wanted, empty in (
            (True, one.inserted, one.deleted),
            (False, one.deleted, one.inserted),
        ):
            known = (wanted > 0) & (empty == 0) & ~one.is_contradicted
            if known.any():
                found.append(_virtual(releases, one, known, inserted=came))
    return found


def _virtual(
    releases: BucketReleases, compared: Differences, wanted: BoolArray, *, inserted: bool
) -> BucketRelease:
    group, tuples, people = people_of(releases, compared, wanted, inserted=inserted)
    number = np.cumsum(wanted) - 1
    cells = wanted[compared.group]
    return BucketRelease(
        tuple_of=tuples,
        bucket_of=number[group],
        people=people,
        bucket=number[compared.group[cells]],
        value=compared.value[cells],
        count=np.abs(compared.change[cells]),
    )


def _likely(
    name: str,
    kind: Kind,
    releases: BucketReleases,
    forced: ForcedValues,
    share: FloatArray,
    limits: FloatArray,
    among: BoolArray,
) -> ReleaseCheck:
    """Find people with a candidate that is more likely than its bound."""
    candidates = forced.candidates
    worst = _worst(candidates.first, candidates.value, candidates.number, share, limits)
    looked_at = releases.is_person & among & (worst >= 0)
    reached, bound = np.zeros(releases.n_all), np.ones(releases.n_all)
    reached[looked_at] = share[worst[looked_at]]
    bound[looked_at] = limits[candidates.value[worst[looked_at]]]
    exceeding = looked_at & (reached > bound + _ROUNDING)
    top = int(np.where(looked_at, reached / bound, -1).argmax()) if looked_at.any() else -1
    return ReleaseCheck(
        name=name,
        kind=kind,
        people=int(releases.total[exceeding].sum()),
        certain=int(releases.total[exceeding & (reached >= 1 - _ROUNDING)].sum()),
        value=float(reached[top]) if top >= 0 else 0.0,
        bound=float(bound[top]) if top >= 0 else 1.0,
        holds=not exceeding.any(),
    )


@numba.njit(cache=True, nogil=True)
def _worst(
    first: IntArray, value: CodeArray, number: IntArray, share: FloatArray, limits: FloatArray
) -> IntArray:
    """Return the candidate of each tuple that is the most above its bound; -1 without any."""
    worst = np.full(number.size, -1)
    for t in range(number.size):
        most = -1.0
        for j in range(first[t], first[t] + number[t]):
            if share[j] / limits[value[j]] > most:
                most = share[j] / limits[value[j]]
                worst[t] = j
    return worst
