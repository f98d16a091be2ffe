"""Estimates of shares, refreshing, and what all of it has in common."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.releases import (
    NEW,
    Estimate,
    Release,
    Releases,
    compare_all,
    count_worlds,
    estimate_shares,
    force,
    measure,
    refresh,
)
from kanon_db.errors import InvalidParameterError


def estimated(releases: Releases, **given: int) -> tuple[Estimate, Callable[[int], list[float]]]:
    """Estimate for everybody, and return the shares of each tuple."""
    forced = force(releases)
    none = np.zeros(releases.n_all, dtype=np.bool_)
    found = estimate_shares(releases, forced, np.zeros(forced.candidates.value.size), none, **given)
    first, number = forced.candidates.first, forced.candidates.number
    return found, lambda t: found.share[first[t] : first[t] + number[t]].tolist()


def random_releases(n: int, size: int, n_values: int, alike: int, n_releases: int) -> Releases:
    random = np.random.default_rng(3)
    values = random.integers(0, n_values, n)
    tuples = np.arange(n) // alike
    arrays = [
        Release.of(tuples, random.permutation(n) // size, values) for _ in range(n_releases)
    ]  # fmt: skip
    return Releases.of(arrays, n, n_values)


@pytest.mark.parametrize("size", [3, 12, 60])
def test_products_of_counts_where_nobody_else_is_in_two_releases(size: int) -> None:
    """Two thirds in two buckets: odds of 4. Counted exactly if small, estimated well if not."""
    values = np.arange(size) % 3 // 2
    one = Release.of(np.arange(size), np.zeros(size, dtype=np.int64), values)
    two = Release.of(np.append(0, np.arange(size, 2 * size - 1)), one.bucket_of, values)
    releases = Releases.of([one, two], 2 * size, 2)
    _, shares = estimated(releases)
    assert shares(0) == pytest.approx([0.8, 0.2], abs=0.003)
    assert shares(1) == pytest.approx([2 / 3, 1 / 3], abs=0.1 / size**0.5)


def test_balanced_buckets_keep_their_shares() -> None:
    values = np.tile(np.arange(4), 30)
    random = np.random.default_rng(0)
    arrays = []
    for _ in range(3):
        # Each bucket has each value once: buckets of equal signatures.
        rows = np.column_stack([random.permutation(np.flatnonzero(values == v)) for v in range(4)])
        buckets = np.empty(120, dtype=np.int64)
        buckets[rows] = np.arange(30)[:, np.newaxis]
        arrays.append(Release.of(np.arange(120), buckets, values))
    found, shares = estimated(Releases.of(arrays, 120, 4))
    assert found.residual < 1e-9
    assert all(shares(t) == pytest.approx([0.25] * 4) for t in range(120))


def test_the_same_buckets_again_keep_their_shares() -> None:
    values = np.array([0, 0, 1] * 20)
    one = Release.of(np.arange(60), np.arange(60) // 6, values)
    found, shares = estimated(Releases.of([one, one, one], 60, 2))
    assert found.is_converged
    assert shares(7) == pytest.approx([2 / 3, 1 / 3])


@pytest.mark.parametrize("alike", [1, 5])
def test_expected_numbers_are_the_published_ones(alike: int) -> None:
    """Over all people, each value is expected as often as it occurs."""
    releases = random_releases(3000, 50, 6, alike, 3)
    found, shares = estimated(releases, max_sweeps=100)
    assert found.is_converged
    candidates = force(releases).candidates
    expected = np.zeros(6)
    for t in range(3000 // alike):
        at = candidates.first[t]
        values = candidates.value[at : at + candidates.number[t]]
        expected[values] += np.array(shares(t)) * releases.total[t]
    published = np.bincount(releases.value, releases.count) / 3
    assert np.allclose(expected, published, rtol=0.01)


def test_estimates_are_close_to_what_all_worlds_say() -> None:
    """Twelve people, too entangled for products: on average within a few hundredths."""
    gaps = []
    random = np.random.default_rng(5)
    for _ in range(40):
        values = random.integers(0, 3, 12)
        arrays = [
            Release.of(np.arange(12), random.permutation(12) // 4, values) for _ in range(2)
        ]  # fmt: skip
        releases = Releases.of(arrays, 12, 3)
        forced = force(releases)
        exact = count_worlds(releases, forced, 1_000_000)
        none = np.zeros(12, dtype=np.bool_)
        found = estimate_shares(releases, forced, np.zeros(exact.share.size), none)
        is_open = np.repeat(exact.is_known & (forced.candidates.number > 1), np.diff(
            forced.candidates.first
        ))  # fmt: skip
        gaps.append((found.share - exact.share)[is_open])
    gap = np.concatenate(gaps)
    assert gap.size > 500
    assert np.abs(gap).mean() < 0.04


def test_more_people_of_a_tuple_are_less_certain() -> None:
    """Five alike in different buckets: of three releases, hardly anything follows."""
    alone, together = random_releases(600, 3, 6, 1, 3), random_releases(600, 3, 6, 5, 3)
    assert (force(alone).candidates.number == 1).sum() == 600
    assert (force(together).candidates.number == 1).sum() < 30


def test_a_cancel_is_noticed_everywhere() -> None:
    """Each step beats, and what a beat raises ends it."""
    releases = random_releases(300, 10, 4, 1, 2)
    forced = force(releases)
    share, none = np.zeros(forced.candidates.value.size), np.zeros(300, dtype=np.bool_)

    def cancel() -> None:
        raise KeyboardInterrupt

    cancelled = Pulse(heartbeat=cancel)
    for step in (
        lambda: force(releases, pulse=cancelled),
        lambda: estimate_shares(releases, forced, share, none, pulse=cancelled),
        lambda: compare_all(releases, cancelled),
        lambda: refresh(np.arange(4), np.full(4, NEW), (), 2, np.random.default_rng(0),
                        pulse=cancelled),
    ):  # fmt: skip
        with pytest.raises(KeyboardInterrupt):
            step()


def test_an_estimate_without_time_is_returned_as_such() -> None:
    releases = random_releases(300, 10, 4, 1, 2)
    forced = force(releases)
    none = np.zeros(300, dtype=np.bool_)
    share = np.zeros(forced.candidates.value.size)
    found = estimate_shares(releases, forced, share, none, pulse=Pulse(0))
    assert (found.sweeps, found.is_converged) == (0, False)


def test_estimates_that_did_not_converge_say_so() -> None:
    random = np.random.default_rng(1)
    values = random.integers(0, 3, 900)
    arrays = [
        Release.of(np.arange(900), random.permutation(900) // 30, values) for _ in range(3)
    ]  # fmt: skip
    found = measure(arrays, 900, [Fraction(1, 2)] * 3, Pulse(0))
    assert not found.is_converged
    assert found.counted < 900


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
