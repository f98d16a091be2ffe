from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.algorithms.ground import arrays
from kanon_db.algorithms.ground.arrays import order_of, taken
from kanon_db.heartbeat import beat, beating


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
