"""What is not counted, refreshing, and what all of it has in common."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.releases import (
    NEW,
    BucketRelease,
    BucketReleases,
    compare_all,
    force,
    measure_releases,
    refresh,
)
from kanon_db.errors import InvalidParameterError


def random_releases(
    n: int, size: int, n_values: int, alike: int, n_releases: int
) -> BucketReleases:
    random = np.random.default_rng(3)
    values = random.integers(0, n_values, n)
    tuples = np.arange(n) // alike
    arrays = [
        BucketRelease.of(tuples, random.permutation(n) // size, values) for _ in range(n_releases)
    ]  # fmt: skip
    return BucketReleases.of(arrays, n, n_values)


def test_more_people_of_a_tuple_are_less_certain() -> None:
    """Five alike in different buckets: of three releases, hardly anything follows."""
    alone, together = random_releases(600, 3, 6, 1, 3), random_releases(600, 3, 6, 5, 3)
    assert (force(alone).candidates.number == 1).sum() == 600
    assert (force(together).candidates.number == 1).sum() < 30


def test_a_cancel_is_noticed_everywhere() -> None:
    """Each step beats, and what a beat raises ends it."""
    releases = random_releases(300, 10, 4, 1, 2)

    def cancel() -> None:
        raise KeyboardInterrupt

    cancelled = Pulse(heartbeat=cancel)
    for step in (
        lambda: force(releases, pulse=cancelled),
        lambda: compare_all(releases, cancelled),
        lambda: refresh(np.arange(4), np.full(4, NEW), (), 2, np.random.default_rng(0),
                        pulse=cancelled),
    ):  # fmt: skip
        with pytest.raises(KeyboardInterrupt):
            step()


def test_people_in_too_many_worlds_are_said_to_be_uncounted() -> None:
    """Whoever is in a release is counted, contradicted, or said to be neither."""
    random = np.random.default_rng(1)
    values = random.integers(0, 3, 900)
    arrays = [
        BucketRelease.of(np.arange(900), random.permutation(900) // 30, values) for _ in range(3)
    ]  # fmt: skip
    found = measure_releases(arrays, 900, [Fraction(1, 2)] * 3)
    assert found.uncounted > 0
    assert found.counted + found.uncounted == found.people == 900


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
