"""Several releases of people who come and go, to somebody who knows the method: all worlds.

For every table of a few people, every outcome of every release is enumerated. Nothing of the proof
in ``algorithms/releases/m_invariance.py`` is used here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.algorithms.releases.m_invariance import NEW, refresh, renew
from tests.attacks.posterior import every_outcome
from tests.profiles import long_but

Signature = tuple[int, ...]
Seen = frozenset[tuple[frozenset[int], Signature]]
"""What a release shows: the people of each bucket, and its values."""

History = tuple[Seen, ...]


@cache
def outcomes(
    values: tuple[int, ...], under: tuple[Signature | None, ...], m: int
) -> dict[Seen, Fraction]:
    """What one release can show, and how likely each of it is; people are positions."""
    signatures = tuple(sorted({one for one in under if one is not None}))
    position = np.array([NEW if one is None else signatures.index(one) for one in under])
    position = position.astype(np.int64)

    def publish(random: object) -> Seen:
        found = renew(np.array(values), position, signatures, m, random)
        buckets: dict[int, set[int]] = defaultdict(set)
        for person, bucket in enumerate(found.bucket_of.tolist()):
            if bucket >= 0:
                buckets[bucket].add(person)
        return frozenset(
            (frozenset(people), found.signatures[found.signature_of_bucket[bucket]])
            for bucket, people in buckets.items()
        )

    found: dict[Seen, Fraction] = defaultdict(Fraction)
    for seen, probability in every_outcome(publish):
        found[seen] += probability
    return dict(found)


def histories(
    table: tuple[int, ...], present: Sequence[Sequence[int]], m: int, *, is_first: bool = False
) -> dict[History, Fraction]:
    """What all releases show of a table, and how likely that is."""
    found: dict[History, Fraction] = {(): Fraction(1)}
    for people in present:
        following: dict[History, Fraction] = defaultdict(Fraction)
        for history, weight in found.items():
            under = {} if is_first else signatures_of(history)
            last = {one for bucket, _ in history[-1] for one in bucket} if history else set()
            # Whoever was published and left out is not published again.
            asked = [one for one in people if one in last or one not in under]
            shown = outcomes(
                tuple(table[one] for one in asked),
                tuple(under.get(one) for one in asked), m,
            )  # fmt: skip
            for seen, probability in shown.items():
                named = frozenset(
                    (frozenset(asked[position] for position in bucket), signature)
                    for bucket, signature in seen
                )
                following[*history, named] += weight * probability
        found = dict(following)
    return found


def signatures_of(history: History) -> dict[int, Signature]:
    """Under which signature everybody was published first."""
    found: dict[int, Signature] = {}
    for seen in history:
        for people, signature in seen:
            for one in people:
                found.setdefault(one, signature)
    return found


def worst(
    present: Sequence[Sequence[int]], n_values: int, m: int, *, is_first: bool = False
) -> tuple[Fraction, int]:
    """The largest probability of a published person's value, and in how many histories."""
    n = 1 + max(one for people in present for one in people)
    joint: dict[History, dict[tuple[int, int], Fraction]] = defaultdict(
        lambda: defaultdict(Fraction)
    )
    total: dict[History, Fraction] = defaultdict(Fraction)
    for table in product(range(n_values), repeat=n):
        counts = np.bincount([table[one] for one in present[0]], minlength=n_values)
        # Everybody sees how often each value occurs: other counts are other cases, or the same one
        # with other names of the values. If nobody is published first, nobody has a signature.
        if (np.diff(counts) > 0).any() or counts[0] * m > counts.sum():
            continue
        for history, weight in histories(table, present, m, is_first=is_first).items():
            total[history] += weight
            for one, v in enumerate(table):
                joint[history][one, v] += weight
    largest, number = Fraction(0), 0
    for history, shares in joint.items():
        published = signatures_of(history)
        came: set[int] = set()
        has_waited = False
        for people, seen in zip(present, history, strict=True):
            shown = {one for bucket, _ in seen for one in bucket}
            has_waited |= bool(set(people) - came - shown)
            came |= set(people)
        if has_waited:  # not covered
            continue
        number += 1
        for (one, _), weight in shares.items():
            if one in published:
                largest = max(largest, weight / total[history])
    return largest, number


CASES = [
    ([[0, 1, 2, 3], [1, 2, 3]], 3, 2),
    ([[0, 1, 2, 3], [1, 2, 3, 4, 5]], 2, 2),
    ([[0, 1, 2, 3], [0, 2, 3, 4, 5], [0, 3, 5]], 2, 2),
    ([[0, 1, 2, 3], [0, 1, 3], [1, 3]], 3, 2),
    ([[0, 1, 2], [0, 1, 2], [0, 1, 3, 4]], 3, 2),
]


@pytest.mark.slow("every history of small tables")
@pytest.mark.pitfall(14, 30)
@pytest.mark.parametrize(("present", "n_values", "m"), long_but(CASES[::3], CASES))
def test_no_reader_exceeds_the_bound(present: list[list[int]], n_values: int, m: int) -> None:
    """Two and three releases: nobody who knows the method is surer of a value than 1/m."""
    largest, number = worst(present, n_values, m)
    assert number > 1
    assert largest == Fraction(1, m)


def test_published_again_somebody_is_surer() -> None:
    """The same people, each time as if for the first time."""
    largest, _ = worst([[0, 1, 2, 3], [0, 1, 2, 3]], 3, 2, is_first=True)
    assert largest > Fraction(1, 2)


def test_new_people_in_the_places_of_those_who_left_tell() -> None:
    """Why ``renew`` does not take them: the paper's algorithm does, where their values are needed.

    0 and 1 were in one bucket of the values 0 and 1; 0 has left, and 2, 3 and 4 have come.
    """
    shown = {(frozenset({1, 2}), (0, 1)), (frozenset({3, 4}), (0, 2))}
    likelihood = {0: Fraction(0), 1: Fraction(0)}
    for one, others in product((0, 1), ((0, 2), (2, 0))):
        values = np.array([one, 1 - one, *others])

        def publish(random: object, values: AnyIntArray = values) -> bool:
            found = refresh(values, np.array([0, NEW, NEW, NEW]), [(0, 1)], 2, random)  # type: ignore[arg-type]
            buckets = found.bucket_of.tolist()
            return shown == {
                (
                    frozenset(1 + at for at, own in enumerate(buckets) if own == bucket),
                    found.signatures[found.signature_of_bucket[bucket]],
                )
                for bucket in buckets
                if bucket >= 0
            }

        likelihood[one] += sum(
            (probability for is_shown, probability in every_outcome(publish) if is_shown),
            Fraction(0),
        )
    assert likelihood[0] / sum(likelihood.values()) == Fraction(2, 3)
