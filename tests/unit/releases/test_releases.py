"""Intersection and differencing are found, on small examples."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.releases import (
    NEW,
    BucketRelease,
    BucketReleases,
    ReleaseCheck,
    ReleaseMeasures,
    compare_all,
    measure_releases,
    refresh,
)
from kanon_db.algorithms.releases.release_measures import differences
from kanon_db.errors import InvalidParameterError

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def release(*buckets: tuple[str, list[int]]) -> BucketRelease:
    """Each bucket has people, one letter each, and the values of all, in any order."""
    people = [(ord(who) - ord("a"), b) for b, (names, _) in enumerate(buckets) for who in names]
    pairs, numbers = np.unique(people, axis=0, return_counts=True)
    contents = [(b, v) for b, (_, values) in enumerate(buckets) for v in values]
    cells, counts = np.unique(contents, axis=0, return_counts=True)
    return BucketRelease(*pairs.T, numbers, *cells.T, counts)


def measured(*releases: BucketRelease, bounds: list[Fraction]) -> ReleaseMeasures:
    return measure_releases(releases, 26, bounds)


def broken(found: ReleaseMeasures) -> dict[str, ReleaseCheck]:
    return {check.name: check for check in found.checks if not check.holds}


def test_intersection() -> None:
    """Ganta et al. 2008: a has the one value that both buckets hold."""
    found = broken(
        measured(
            release(("abc", [0, 1, 2]), ("def", [3, 4, 5])),
            release(("ade", [0, 3, 4]), ("bcf", [1, 2, 5])),
            bounds=[THIRD] * 6,
        )
    )
    assert found["candidates"].kind == "exact"
    assert found["candidates"].certain == 2  # a, and f
    assert found["candidates"].people == 6  # b, c, d, e have two values left, of which one exceeds


def test_differencing_of_one_person() -> None:
    """Whatever the buckets: the counts of the whole tell the value of somebody who came."""
    before = release(("abc", [0, 1, 2]), ("def", [0, 1, 2]))
    after = release(("adg", [0, 0, 2]), ("bcef", [1, 1, 2, 2]))
    with_g = release(("abc", [0, 1, 2]), ("defg", [0, 1, 2, 0]))
    for later in (after, with_g):
        bounds = [Fraction(2, 3), HALF, HALF]
        came = broken(measured(before, later, bounds=bounds))["inserted"]
        assert (came.kind, came.people, came.certain, came.value) == ("exact", 1, 1, 1.0)
        went = broken(measured(later, before, bounds=bounds))["deleted"]
        assert (went.kind, went.people, went.certain, went.value) == ("exact", 1, 1, 1.0)


def test_differencing_of_groups_that_hide_in_the_whole() -> None:
    """Two people came whose values differ, to components that have nothing in common."""
    before = release(("ab", [0, 1]), ("cd", [0, 1]))
    after = release(("abe", [0, 1, 0]), ("cdf", [0, 1, 1]))
    found = measured(before, after, bounds=[Fraction(2, 3)] * 2)
    assert found.check("inserted").certain == 2


def test_differencing_with_both_is_a_lower_bound() -> None:
    """Three came, one went: at least two of the three have the value that became more."""
    before = release(("abc", [0, 1, 2]))
    after = release(("bcdef", [0, 0, 1, 2, 0]))
    found = measured(before, after, bounds=[HALF] * 3).check("inserted")
    assert (found.kind, found.people, found.certain) == ("sound", 3, 0)
    assert found.value == pytest.approx(2 / 3)


def test_differencing_by_cells() -> None:
    """For cells with exact counts in both releases, other buckets give no protection."""
    before = release(("ab", [0, 1]), ("cd", [0, 1]))
    after = release(("ac", [0, 1]), ("bdx", [0, 1, 1]))
    both = BucketReleases.of([before, after], 26, 2)
    found = differences(both, 0, 1, np.zeros(4, dtype=np.int64))
    assert found.surely(inserted=True)[1].tolist() == [1]
    with pytest.raises(InvalidParameterError, match="different groups"):
        differences(both, 0, 1, np.array([0, 1, 0, 1]))


def test_what_tells_nothing_more_holds() -> None:
    """The same buckets again, and unions of them; new people in buckets of their own."""
    first = release(("abc", [0, 1, 2]), ("def", [0, 1, 2]))
    coarser = release(("abcdef", [0, 0, 1, 1, 2, 2]))
    more = release(("abc", [0, 1, 2]), ("def", [0, 1, 2]), ("ghi", [0, 1, 2]))
    found = measured(first, first, coarser, more, bounds=[THIRD] * 3)
    assert found.holds
    assert found.people == 9
    assert found.contradicted == 0


def test_people_with_equal_quasi_identifiers_hide_each_other() -> None:
    """Each of two may be in either bucket; linking them arbitrarily would contradict itself."""
    found = measured(
        release(("aab", [0, 1, 2]), ("cde", [0, 1, 2])),
        release(("acd", [0, 1, 1]), ("abe", [0, 2, 2])),
        bounds=[Fraction(3, 4)] * 3,
    )
    assert found.contradicted == 0
    assert found.people == 6


def test_values_that_changed_are_a_contradiction() -> None:
    found = measured(
        release(("ab", [0, 1]), ("cd", [0, 1])),
        release(("ab", [2, 3]), ("cd", [0, 1])),
        bounds=[HALF] * 4,
    )
    assert (found.contradicted, found.contradicted_groups) == (2, 2)
    assert found.check("candidates").holds


def test_a_bucket_holds_a_value_for_everybody() -> None:
    with pytest.raises(InvalidParameterError, match="fewer values than people"):
        BucketReleases.of([release(("abc", [0, 1]))], 3, 2)


def test_a_cancel_is_noticed_everywhere() -> None:
    """Each step beats, and what a beat raises ends it."""
    arrays = [release(("ab", [0, 1])), release(("ab", [0, 1]))]
    releases = BucketReleases.of(arrays, 2, 2)

    def cancel() -> None:
        raise KeyboardInterrupt

    cancelled = Pulse(heartbeat=cancel)
    for step in (
        lambda: measure_releases(arrays, 2, [HALF] * 2, cancelled),
        lambda: compare_all(releases, cancelled),
        lambda: refresh(np.arange(4), np.full(4, NEW), (), 2, np.random.default_rng(0),
                        pulse=cancelled),
    ):  # fmt: skip
        with pytest.raises(KeyboardInterrupt):
            step()


@pytest.mark.parametrize(
    ("values", "signature_of", "signatures", "m", "message"),
    [
        ([0, 1], [NEW, NEW], (), 1, "m must be at least 2"),
        ([0, 1], [0, 0], ((0,),), 2, "signatures must be distinct"),
        ([0, 1], [0, 0], ((1, 0),), 2, "signatures must be distinct"),
        ([0, 1], [0, 0], ((0, 1), (0, 1)), 2, "signatures must be distinct"),
        ([0, 2], [0, 0], ((0, 1),), 2, "a survivor's value is not in the signature"),
    ],
)
def test_what_cannot_be_refreshed_is_refused(
    values: list[int],
    signature_of: list[int],
    signatures: tuple[tuple[int, ...], ...],
    m: int,
    message: str,
) -> None:
    random = np.random.default_rng(0)
    with pytest.raises(InvalidParameterError, match=message):
        refresh(np.array(values), np.array(signature_of), signatures, m, random)


def test_new_people_who_are_not_eligible_all_wait() -> None:
    """If only those with the frequent value waited, to wait would tell it."""
    values = np.array([0, 0, 0, 0, 1, 2])
    found = refresh(values, np.full(6, NEW), (), 3, np.random.default_rng(0))
    assert found.waits.all()
    assert found.signature_of_bucket.size == 0


@pytest.mark.parametrize("counterfeits", [False, True])
def test_a_survivor_without_company(counterfeits: bool) -> None:
    """One of three is left: with two counterfeits, or not at all."""
    found = refresh(
        np.array([1]), np.array([0]), ((0, 1, 2),), 3, np.random.default_rng(0),
        counterfeits=counterfeits,
    )  # fmt: skip
    assert found.waits.tolist() == [not counterfeits]
    assert sorted(found.counterfeit_value.tolist()) == ([0, 2] if counterfeits else [])


def test_new_people_take_the_places_of_those_who_left() -> None:
    """As long as the other new people stay eligible."""
    values = np.array([0, 1, 2, 3, 4, 5])
    signature_of = np.array([0, 0, NEW, NEW, NEW, NEW])
    found = refresh(values, signature_of, ((0, 1, 2),), 3, np.random.default_rng(0))
    assert not found.waits.any()
    assert found.signatures == ((0, 1, 2), (3, 4, 5))
    assert len(set(found.bucket_of[:3].tolist())) == 1
