"""Values that are drawn for the records of buckets have exact margins, and their own chances."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.algorithms.bucketization import bucket_assignment
from kanon_db.algorithms.bucketization.bucket_assignment import draw_matchings
from kanon_db.algorithms.ground.computation import Pulse

WHOLE = bucket_assignment._WHOLE

Buckets = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@st.composite
def buckets(draw: st.DrawFn, most: int = 4) -> Buckets:
    """Weights of buckets, between 0 and caps that are at least the shares."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    weights, starts, firsts, counts, caps = [], [0], [0], [], []
    for _ in range(draw(st.integers(1, most))):
        n = draw(st.integers(1, 9))
        its = np.bincount(random.integers(0, draw(st.integers(1, 5)), n))
        its = its[its > 0]
        room = draw(st.sampled_from([0.0, 0.3, 1.0]))
        limits = np.minimum(1, its / n + room * random.random(its.size))
        own = np.minimum(random.random((n, its.size)), limits)
        weights.append(np.where(random.random(own.shape) < 0.2, 0, own).ravel())
        starts.append(starts[-1] + n)
        firsts.append(firsts[-1] + its.size)
        counts.append(its)
        caps.append(limits)
    return (
        np.concatenate(weights), np.array(starts), np.array(firsts), np.concatenate(counts),
        np.concatenate(caps),
    )  # fmt: skip


def each(of: Buckets) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """Return the records, the values and the weights of each bucket."""
    weights, starts, firsts, *_ = of
    begin = 0
    for g in range(starts.size - 1):
        records, values = slice(starts[g], starts[g + 1]), slice(firsts[g], firsts[g + 1])
        shape = records.stop - records.start, values.stop - values.start
        yield records, values, weights[begin : begin + shape[0] * shape[1]].reshape(shape)
        begin += shape[0] * shape[1]


@given(buckets(), st.integers(0, 2**32))
def test_each_value_is_drawn_as_often_as_its_bucket_has_it(of: Buckets, seed: int) -> None:
    drawn = draw_matchings(*of, np.random.default_rng(seed))
    assert np.bincount(drawn, minlength=of[3].size).tolist() == of[3].tolist()
    for records, values, _ in each(of):
        assert ((drawn[records] >= values.start) & (drawn[records] < values.stop)).all()
    again = draw_matchings(*of, np.random.default_rng(seed))
    assert drawn.tolist() == again.tolist()


@given(buckets())
def test_chances_have_exact_margins_and_stay_below_their_caps(of: Buckets) -> None:
    for records, values, weights in each(of):
        counts, caps = of[3][values], of[4][values]
        chances = bucket_assignment._fit_chances(weights, counts, caps)
        assert chances.min() >= 0
        assert (chances.sum(axis=1) == WHOLE).all()
        assert (chances.sum(axis=0) == counts * WHOLE).all()
        least = -(-counts * WHOLE // len(weights))  # shares of a bucket are rounded up, too
        assert (chances <= np.maximum(np.ceil(caps * WHOLE), least)).all()
        fits = np.isclose(weights.sum(axis=1), 1, atol=1e-12).all()
        if fits and np.allclose(weights.sum(axis=0), counts, atol=1e-12):
            assert np.allclose(chances / WHOLE, weights, atol=1e-5)
        assert records.stop - records.start == len(weights)


def test_a_record_draws_each_value_with_its_chance() -> None:
    weights = np.array([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])
    counts, caps = np.array([2, 1, 1]), np.array([0.8, 0.5, 0.7])
    ends = np.array([0, 4]), np.array([0, 3])
    n = 4_000
    found = np.zeros_like(weights)
    for seed in range(n):
        drawn = draw_matchings(
            weights.ravel(), *ends, counts, caps, np.random.default_rng(seed)
        )  # fmt: skip
        found[np.arange(4), drawn] += 1
    assert np.abs(found / n - weights).max() < 5 * (0.25 / n) ** 0.5


def test_a_cancel_is_heard() -> None:
    class Cancelled(Exception):  # noqa: N818
        pass

    def cancelled() -> None:
        raise Cancelled

    one = np.array([0, 1])
    with pytest.raises(Cancelled):
        draw_matchings(
            np.ones(1), one, one, np.ones(1, dtype=np.int64), np.ones(1),
            np.random.default_rng(0), Pulse(heartbeat=cancelled),
        )  # fmt: skip
