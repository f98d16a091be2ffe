"""Everything that is measured of several releases, one row for each check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, FloatArray, IntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.releases.candidates import Candidates, candidates_of
from kanon_db.algorithms.releases.differencing import (
    Differences,
    compare_all,
    people_of,
    virtual_releases,
)
from kanon_db.algorithms.releases.forced import Forced, force
from kanon_db.algorithms.releases.placements import Release, Releases
from kanon_db.algorithms.releases.worlds import MAX_WORLDS, count_worlds

Kind = Literal["exact", "sound"]
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Check:
    """What one check found.

    Parameters
    ----------
    name : str
        ``inserted``, ``deleted``, ``candidates``, ``forced`` or ``worlds``.
    kind : str
        ``exact``: this is what a reader of that kind knows. ``sound``: at least this much is known.
    people : int
        How many people's value exceeds its bound: some value is more likely, or more frequent among
        those who came or went, than its bound allows.
    certain : int
        How many of them have a value that is certain.
    value, bound : float
        The share that exceeds its bound by the largest factor, or comes closest, and the bound. For
        candidates and forced values, 1 by the number of candidates, and the mean of their bounds.
    holds : bool
        Whether nobody's value exceeds its bound.
    """

    name: str
    kind: Kind
    people: int
    certain: int
    value: float
    bound: float
    holds: bool


@dataclass(frozen=True)
class Measured:
    """What several releases tell together.

    Parameters
    ----------
    checks : tuple of Check
    people : int
        People in some release.
    contradicted : int
        How many of them have no value that all their releases allow.
    contradicted_groups : int
        In how many groups of two releases more values came than people. If either is not 0, values
        or quasi-identifiers changed between releases, and what is said of others may be wrong.
    counted : int
        For how many people all worlds were counted: those in ``worlds``.
    uncounted : int
        For how many others, who are not contradicted, there are too many worlds to be counted: how
        likely their values are is not known.
    """

    checks: tuple[Check, ...]
    people: int
    contradicted: int
    contradicted_groups: int
    counted: int
    uncounted: int

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)

    def check(self, name: str) -> Check:
        """Return the check with a name."""
        return next(check for check in self.checks if check.name == name)


def measure(
    releases: Sequence[Release],
    n_tuples: int,
    bounds: Sequence[Fraction],
    pulse: Pulse = UNLIMITED,
    *,
    max_worlds: int = MAX_WORLDS,
) -> Measured:
    """Measure what readers of all of the releases know, who know everybody's quasi-identifiers.

    Parameters
    ----------
    releases : sequence of Release
        In the order in which they were published.
    n_tuples : int
    bounds : sequence of Fraction, shape (n_values,)
        The largest probability allowed for each value, such as f' or 1/l; 1 for none.
    pulse : Pulse
    max_worlds : int
        In components with at most as many worlds, all are counted.

    Returns
    -------
    Measured

    Notes
    -----
    Readers take equal quasi-identifiers for the same people; see
    :class:`~kanon_db.algorithms.releases.placements.Releases`. Values of people do not change.

    Examples
    --------
    >>> before = Release.of(np.arange(4), np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
    >>> after = Release.of(np.arange(5), np.array([0, 0, 1, 1, 1]), np.array([0, 1, 0, 1, 1]))
    >>> found = measure([before, after], 5, [Fraction(1, 2), Fraction(2, 3)])
    >>> [(check.name, check.people, check.certain) for check in found.checks if not check.holds]
    [('inserted', 1, 1), ('forced', 1, 1), ('worlds', 1, 1)]
    """
    limits = np.array([float(bound) for bound in bounds])
    together = Releases.of(releases, n_tuples, len(bounds))
    compared, checks = _compared_all(together, bounds, pulse)
    candidates = candidates_of(together, pulse)
    checks.append(_narrowed("candidates", "exact", together, candidates, limits))
    if virtual := virtual_releases(together, compared):
        together = Releases.of([*releases, *virtual], n_tuples, len(bounds))
        candidates = candidates_of(together, pulse)
    forced = force(together, candidates, pulse=pulse)
    checks.append(_narrowed("forced", "sound", together, forced.candidates, limits))
    counted = count_worlds(together, forced, max_worlds, pulse, n_real=len(releases))
    checks.append(
        _likely("worlds", "exact", together, forced, counted.share, limits, counted.is_known)
    )
    others = ~counted.is_known & ~forced.is_contradicted
    is_person = together.is_person
    return Measured(
        checks=tuple(checks),
        people=together.n_people,
        contradicted=int(together.total[is_person & forced.is_contradicted].sum()),
        contradicted_groups=sum(int(one.is_contradicted.sum()) for one in compared),
        counted=int(together.total[is_person & counted.is_known].sum()),
        uncounted=int(together.total[is_person & others].sum()),
    )


def measure_differences(
    releases: Sequence[Release], n_tuples: int, bounds: Sequence[Fraction], pulse: Pulse = UNLIMITED
) -> list[Check]:
    """Measure what counts alone tell of those who came or went, as :func:`measure` does."""
    return _compared_all(Releases.of(releases, n_tuples, len(bounds)), bounds, pulse)[1]


def _compared_all(
    releases: Releases, bounds: Sequence[Fraction], pulse: Pulse
) -> tuple[list[Differences], list[Check]]:
    compared = compare_all(releases, pulse)
    return compared, [
        _differenced(releases, compared, bounds, inserted=came) for came in (True, False)
    ]


def _differenced(
    releases: Releases,
    compared: Sequence[Differences],
    bounds: Sequence[Fraction],
    *,
    inserted: bool,
) -> Check:
    """Find groups of which more came, or went, with a value than its bound allows."""
    people, certain = np.zeros(releases.n_all), np.zeros(releases.n_all)
    worst: tuple[Fraction, Fraction, bool] = (Fraction(0), Fraction(1), True)
    for found in compared:
        group, value, least, size = found.surely(inserted=inserted)
        if not group.size:
            continue
        exceeds, ratio = _compared(value, least, size, bounds)
        top = int(ratio.argmax())
        share = Fraction(int(least[top]), int(size[top]))
        bound = bounds[int(value[top])]
        if share * worst[1] > worst[0] * bound:
            worst = (share, bound, bool(found.is_one_sided[group[top]]))
        for numbers, wanted in ((people, exceeds), (certain, exceeds & (least == size))):
            if not wanted.any():
                continue
            groups = np.zeros(found.inserted.size, dtype=np.bool_)
            groups[group[wanted]] = True
            _, tuples, change = people_of(releases, found, groups, inserted=inserted)
            np.maximum(numbers, np.bincount(tuples, change, numbers.size), out=numbers)
    n_people = int(people[: releases.n_tuples].sum())
    return Check(
        name="inserted" if inserted else "deleted",
        kind="exact" if worst[2] else "sound",
        people=n_people,
        certain=int(certain[: releases.n_tuples].sum()),
        value=float(worst[0]),
        bound=float(worst[1]),
        holds=n_people == 0,
    )


def _compared(
    value: IntArray, least: IntArray, size: IntArray, bounds: Sequence[Fraction]
) -> tuple[BoolArray, FloatArray]:
    """Tell where a share exceeds its bound, exactly, and by which factor, rounded."""
    above, below = ([getattr(b, k) for b in bounds] for k in ("numerator", "denominator"))
    largest = int(size.max(initial=1)) * max(below, default=1)
    integer = np.int64 if largest < 2**63 else object
    allowed = np.array(above, dtype=integer)[value] * size.astype(integer)
    reached = np.array(below, dtype=integer)[value] * least.astype(integer)
    exceeds: BoolArray = (reached > allowed).astype(np.bool_)
    return exceeds, (reached / allowed).astype(np.float64)


def _narrowed(
    name: str, kind: Kind, releases: Releases, candidates: Candidates, limits: FloatArray
) -> Check:
    """Find people whose candidates' bounds add up to less than 1: one of them is exceeded."""
    sums = _bounds_left(candidates.first, candidates.value, candidates.number, limits)
    looked_at = releases.is_person & (candidates.number > 0)
    exceeding = looked_at & (sums < 1 - _ROUNDING)
    top = int(np.where(looked_at, sums, np.inf).argmin()) if looked_at.any() else -1
    number = int(candidates.number[top]) if top >= 0 else 1
    return Check(
        name=name,
        kind=kind,
        people=int(releases.total[exceeding].sum()),
        certain=int(releases.total[exceeding & (candidates.number == 1)].sum()),
        value=1 / number if top >= 0 else 0.0,
        bound=float(sums[top]) / number if top >= 0 else 1.0,
        holds=not exceeding.any(),
    )


def _likely(
    name: str,
    kind: Kind,
    releases: Releases,
    forced: Forced,
    share: FloatArray,
    limits: FloatArray,
    among: BoolArray,
) -> Check:
    """Find people with a candidate that is more likely than its bound."""
    candidates = forced.candidates
    worst = _worst(candidates.first, candidates.value, candidates.number, share, limits)
    looked_at = releases.is_person & among & (worst >= 0)
    reached, bound = np.zeros(releases.n_all), np.ones(releases.n_all)
    reached[looked_at] = share[worst[looked_at]]
    bound[looked_at] = limits[candidates.value[worst[looked_at]]]
    exceeding = looked_at & (reached > bound + _ROUNDING)
    top = int(np.where(looked_at, reached / bound, -1).argmax()) if looked_at.any() else -1
    return Check(
        name=name,
        kind=kind,
        people=int(releases.total[exceeding].sum()),
        certain=int(releases.total[exceeding & (reached >= 1 - _ROUNDING)].sum()),
        value=float(reached[top]) if top >= 0 else 0.0,
        bound=float(bound[top]) if top >= 0 else 1.0,
        holds=not exceeding.any(),
    )


@numba.njit(cache=True, nogil=True)
def _bounds_left(
    first: IntArray, value: CodeArray, number: IntArray, limits: FloatArray
) -> FloatArray:
    """Add up the bounds of each tuple's candidates."""
    sums = np.zeros(number.size)
    for t in range(number.size):
        for j in range(first[t], first[t] + number[t]):
            sums[t] += limits[value[j]]
    return sums


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
