"""Random orders: all of them, each as likely as the others."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.algorithms.ground import arrays
from kanon_db.algorithms.ground.arrays import give_back, giving_back, order_of, shuffled, taken
from kanon_db.algorithms.ground.computation import UNLIMITED, in_threads
from kanon_db.heartbeat import beat, beating


@pytest.fixture(params=["few", "at once", "in groups"])
def _how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "few":
        monkeypatch.setattr(arrays, "_FEW_SHUFFLED", 0)
    if request.param == "in groups":
        monkeypatch.setattr(arrays, "MOST_AT_ONCE", 2)
        monkeypatch.setattr(arrays, "_BITS_OF_GROUPS", 1)


@pytest.mark.long
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
        patch.setattr(arrays, "_FEW_SHUFFLED", 0)
        assert shuffled(n, np.random.default_rng(seed).bytes).tolist() == found.tolist()
        patch.setattr(arrays, "MOST_AT_ONCE", 100)
        assert sorted(shuffled(n, random.bytes).tolist()) == list(range(n))


@pytest.mark.parametrize("most", [0, 3])
def test_numbers_that_would_come_too_often_are_refused(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Of 2^32 words, one too many would give 0 of 3; it is word 0."""
    monkeypatch.setattr(arrays, "_FEW_SHUFFLED", most)
    words = iter([np.zeros(19, np.uint32), np.array([0, 2**31, 2**31], np.uint32)])
    # Refused until 2^31 comes: 3 / 2 is 1, so that 1 changes places with 2; then 2 / 2 is 1.
    assert shuffled(3, lambda _: next(words).tobytes()).tolist() == [0, 2, 1]


def test_long_orders_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_FEW_SHUFFLED", 0)
    monkeypatch.setattr(arrays, "MOST_AT_ONCE", 10)
    n_beats = 0

    def stop() -> None:
        nonlocal n_beats
        n_beats += 1
        if n_beats == 7:
            raise InterruptedError

    with beating(stop), pytest.raises(InterruptedError):
        shuffled(1000, np.random.default_rng(1).bytes)


@pytest.fixture(autouse=True, scope="module")
def everything_is_long() -> None:
    """Short arrays are sorted as long ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "LONG", 4)
        yield


NUMBERS = {
    "int64": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    "uint64": st.integers(0, 2**64 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1) | st.just(5),
    "uint16": st.integers(0, 2**16 - 1),
}


@pytest.mark.parametrize("kind", NUMBERS)
@given(data=st.data())
def test_orders_are_those_of_numpy(kind: str, data: st.DataObject) -> None:
    numbers = np.array(data.draw(st.lists(NUMBERS[kind], max_size=60)), dtype=kind)
    order = np.argsort(numbers, kind="stable")
    assert order_of(numbers, stable=True).tolist() == order.tolist()
    found = order_of(numbers)
    assert sorted(found.tolist()) == list(range(numbers.size))
    assert numbers[found].tolist() == taken(numbers, order).tolist() == numbers[order].tolist()


@pytest.mark.parametrize("kind", NUMBERS)
@given(data=st.data())
def test_orders_of_short_arrays_are_those_of_numpy(kind: str, data: st.DataObject) -> None:
    """By one digit, by several, or as numpy finds it."""
    repeated = data.draw(st.integers(1, 40))
    drawn = data.draw(st.lists(NUMBERS[kind], max_size=60))
    numbers = np.tile(np.array(drawn, dtype=kind), repeated)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "LONG", 1 << 22)
        patch.setattr(arrays, "_FEW", data.draw(st.sampled_from([0, 500])))
        found = order_of(numbers, stable=True)
    assert found.tolist() == np.argsort(numbers, kind="stable").tolist()


def test_many_numbers_most_of_them_in_one_group() -> None:
    numbers = np.random.default_rng(1).integers(0, 1000, 2000)
    numbers[7] = 2**62
    order = order_of(numbers, stable=True)
    assert (order == np.argsort(numbers, kind="stable")).all()


class StoppedError(Exception):
    pass


@pytest.mark.long
def test_a_heartbeat_that_raises_ends_it() -> None:
    """Wherever it is by then, and without leaving a thread."""
    numbers = np.random.default_rng(2).integers(0, 2**62, 10_000)
    n_beats = 0

    def stop() -> None:
        nonlocal n_beats
        n_beats += 1
        if n_beats == n_most:
            raise StoppedError

    n_most = 0
    with beating(stop):
        order_of(numbers)
    n_all, n_threads = n_beats, threading.active_count()
    assert n_all > 5000  # after every four numbers, twice
    for n_most in (1, n_all // 3, n_all // 2 + 100, 5001):
        n_beats = 0
        with beating(stop), pytest.raises(StoppedError):
            order_of(numbers)
        assert n_beats == n_most
        assert threading.active_count() == n_threads


def test_there_is_no_heartbeat_after_it() -> None:
    with pytest.raises(StoppedError), beating(lambda: (_ for _ in ()).throw(StoppedError)):
        beat()
    beat()


pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="it asks Linux how large a process is"
)


def test_what_was_freed_is_given_back() -> None:
    assert _kept(8_000, then=give_back) < 40 * 2**20


@pytest.mark.long
def test_arrays_are_given_back_at_once() -> None:
    """In a process that has had larger ones, as each has; what is chosen would outlive the test."""
    with get_context("spawn").Pool(1) as process:
        assert process.apply(_kept, [200_000]) > 20 * 2**20
        assert process.apply(_kept_while_giving_back, [200_000]) < 5 * 2**20
        assert process.apply(_kept, [200_000]) > 20 * 2**20


def test_what_threads_have_freed_is_given_back() -> None:
    """They have no heaps of their own, of each of which glibc would keep the end."""
    with get_context("spawn").Pool(1) as process:
        assert process.apply(_kept_by_threads) < 4 * 2**20


def _kept_by_threads() -> int:
    bytearray(8 << 20)
    both = threading.Barrier(2)
    in_threads(lambda *_: both.wait(), range(2), 2, UNLIMITED)  # so that all is imported
    before = _resident()

    def fill(*_: object) -> None:
        array = np.ones(7 << 17)
        both.wait()
        del array

    in_threads(fill, range(2), 2, UNLIMITED)
    give_back()
    return _resident() - before


def _kept_while_giving_back(n_numbers: int) -> int:
    with giving_back():
        return _kept(n_numbers)


def _nothing() -> None:
    pass


def _kept(n_numbers: int, *, then: Callable[[], None] = _nothing) -> int:
    """Fill 128 MB with arrays, free nearly all of them; how much of it the process still has."""
    bytearray(8 << 20)
    before = _resident()
    kept = []
    for i in range((128 << 20) // (8 * n_numbers)):
        array = np.ones(n_numbers)
        if i % 2:  # one that is kept lies behind each other one
            kept.append(array)
    kept = kept[-1:]
    then()
    return _resident() - before


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
