"""Random orders: all of them, each as likely as the others."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.algorithms.ground import arrays
from kanon_db.algorithms.ground.arrays import shuffled
from kanon_db.heartbeat import beating


@pytest.fixture(params=["at once", "in groups"])
def _how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in groups":
        monkeypatch.setattr(arrays, "MOST_AT_ONCE", 2)
        monkeypatch.setattr(arrays, "_BITS_OF_GROUPS", 1)


@pytest.mark.usefixtures("_how")
def test_all_orders_are_as_likely() -> None:
    """A chi-squared statistic with 23 degrees of freedom is above 60 once in 30,000 times."""
    random = np.random.default_rng(5)
    n_draws = 4_800
    found = Counter(tuple(shuffled(4, random.bytes).tolist()) for _ in range(n_draws))
    assert set(found) == set(permutations(range(4)))
    expected = n_draws / len(found)
    assert sum((n - expected) ** 2 / expected for n in found.values()) < 60


@given(st.integers(0, 3000), st.integers(0, 9))
def test_each_place_comes_once(n: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    found = shuffled(n, random.bytes)
    assert found.dtype == np.int32
    assert sorted(found.tolist()) == list(range(n))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "MOST_AT_ONCE", 100)
        assert sorted(shuffled(n, random.bytes).tolist()) == list(range(n))


def test_numbers_that_would_come_too_often_are_refused() -> None:
    """Of 2^32 words, one too many would give 0 of 3; it is word 0."""
    words = iter([np.zeros(19, np.uint32), np.array([0, 2**31, 2**31], np.uint32)])
    # Refused until 2^31 comes: 3 / 2 is 1, so that 1 changes places with 2; then 2 / 2 is 1.
    assert shuffled(3, lambda _: next(words).tobytes()).tolist() == [0, 2, 1]


def test_long_orders_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MOST_AT_ONCE", 10)
    n_beats = 0

    def stop() -> None:
        nonlocal n_beats
        n_beats += 1
        if n_beats == 7:
            raise InterruptedError

    with beating(stop), pytest.raises(InterruptedError):
        shuffled(1000, np.random.default_rng(1).bytes)
