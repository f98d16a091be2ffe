"""What all heuristics have in common: refusals, small tables, cancelling, wide attributes."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from kanon_db.algorithms.generalization.greedy_classes import greedy_search, initial, k_member
from kanon_db.algorithms.generalization.mondrian import MedianCut, mondrian
from kanon_db.algorithms.generalization.optimal_classes import optimal, split_carry
from kanon_db.algorithms.generalization.postprocessing import refine, suppress
from kanon_db.algorithms.ground import computation
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata, sort_order
from kanon_db.errors import InfeasibleError, InvalidParameterError
from tests import generalization_plain as plain

Method = Callable[..., np.ndarray]

mondrian_module = importlib.import_module("kanon_db.algorithms.generalization.mondrian")

METHODS: dict[str, Method] = {
    "greedy_search": lambda t, k, **o: greedy_search(t, k, **o).class_of_record,
    "in_blocks": lambda t, k, **o: greedy_search(t, k, block_size=4, **o).class_of_record,
    "k_member": lambda t, k, **o: (
        k_member(t, k, random=np.random.default_rng(1), **o).class_of_record
    ),
    "strict": lambda t, k, **o: mondrian(t, k, **o).class_of_record,
    "relaxed": lambda t, k, **o: mondrian(t, k, cut="relaxed", **o).class_of_record,
    "split_carry": lambda t, k, **o: split_carry(t, k, **o).class_of_record,
    "optimal": lambda t, k, **o: optimal(t, k, **o).class_of_record,
    "initial": lambda t, k, **_: initial(t, k).class_of_record,
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())


class StoppedError(RuntimeError):
    pass


def stop() -> None:
    raise StoppedError


def random_table(n_records: int, sizes: list[int], seed: int = 0) -> Microdata:
    """Categorical attributes, the last one numeric."""
    random = np.random.default_rng(seed)
    codes = np.column_stack([random.integers(size, size=n_records) for size in sizes])
    numbers = np.arange(sizes[-1], dtype=np.float64)
    last = Attribute(sizes[-1], numbers, 0.0, float(sizes[-1] - 1))
    return Microdata(codes.astype(np.int32), (*(Attribute(size) for size in sizes[:-1]), last))


@every_method
def test_small_tables(method: Method) -> None:
    few, more = random_table(7, [3, 5]), random_table(60, [3, 4, 9])
    assert method(few, 7).tolist() == [0] * 7
    assert Ncp.of(more).total(method(more, 1)) == 0
    assert method(random_table(0, [3, 5]), 2).size == 0
    assert (method(more, 3) == method(more, 3)).all()
    twins = Microdata(np.repeat([[1, 2], [0, 0]], 8, axis=0), (Attribute(2), Attribute(3)))
    found = method(twins, 4)
    assert np.bincount(found).min() >= 4
    assert Ncp.of(twins).total(found) == 0
    with pytest.raises(InfeasibleError, match="k must not exceed the number of records"):
        method(few, 8)
    with pytest.raises(InvalidParameterError, match="k must be at least 1"):
        method(few, 0)


@every_method
def test_null_among_numbers_is_kept_apart_where_it_can(method: Method) -> None:
    age = Attribute(3, np.array([20.0, 80.0, np.nan]), 20.0, 80.0)
    table = Microdata([[0], [2], [1], [2], [0], [2]], (age,))
    classes = method(table, 3)
    assert len(set(classes[[1, 3, 5]].tolist())) == 1
    assert len(set(classes[[0, 2, 4]].tolist())) == 1


@pytest.mark.parametrize(("sizes", "k"), [([6, 6, 6, 30], 10), ([40, 40, 500], 4)])
def test_greedy_search_on_larger_tables(sizes: list[int], k: int) -> None:
    table = random_table(150, sizes, seed=k)
    expected = plain.greedy_search(table, sort_order(table), k)
    found = plain.as_classes(greedy_search(table, k).class_of_record)
    assert found == [sorted(members) for members in expected]


def test_unknown_options_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="the kind of cut is unknown"):
        mondrian(random_table(7, [3, 5]), 2, cut="diagonal")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="block_size must be at least 2"):
        greedy_search(random_table(7, [3, 5]), 2, block_size=1)


def test_a_heavier_attribute_is_generalized_less() -> None:
    codes = random_table(200, [9, 9]).codes
    numbers = np.arange(9, dtype=np.float64)
    lost = []
    for weight in (0.1, 10.0):
        pair = (Attribute(9, numbers, 0.0, 8.0, weight), Attribute(9, numbers, 0.0, 8.0))
        classes = mondrian(Microdata(codes, pair), 5).class_of_record
        alone = Microdata(codes[:, [0]], (Attribute(9, numbers, 0.0, 8.0),))
        lost.append(Ncp.of(alone).total(classes))
    assert lost[1] < lost[0]


def test_numbers_of_wide_range_are_rounded_not_refused() -> None:
    random = np.random.default_rng(0)
    numbers = np.sort(random.random(50)) * 1e9
    column = Attribute(50, numbers, float(numbers[0]), float(numbers[-1]))
    table = Microdata(np.arange(50).reshape(-1, 1), (column,))
    found = greedy_search(table, 5).class_of_record
    spans = [np.ptp(numbers[found == g]) for g in range(10)]
    expected = sum(5 * span for span in spans) / np.ptp(numbers)
    assert float(Ncp.of(table).total(found)) == pytest.approx(expected, rel=1e-6)


def test_refine_ends_when_the_time_is_long_over() -> None:
    """The clock ends it at four times the limit, before which seconds are counted in changes."""
    table = random_table(60, [3, 4, 9])
    before = greedy_search(table, 3).class_of_record
    calls = 0

    class Slow(Pulse):
        @property
        def spent(self) -> float:
            nonlocal calls
            calls += 1
            return calls

    random = np.random.default_rng(0)
    found = refine(table, before, 3, random=random, effort=10**9, pulse=Slow())
    assert calls == 4
    assert Ncp.of(table).total(found.class_of_record) <= Ncp.of(table).total(before)


def test_refine_refuses_what_is_not_k_anonymous() -> None:
    table, random = random_table(6, [3, 5]), np.random.default_rng(0)
    with pytest.raises(InvalidParameterError, match="at least k records") as caught:
        refine(table, [0, 0, 0, 0, 1, 1], 3, random=random)
    assert "1 classes have fewer than k = 3" in caught.value.detail
    with pytest.raises(InvalidParameterError, match="must have a class"):
        refine(table, [0, 0, 0], 3, random=random)
    with pytest.raises(InvalidParameterError, match="effort must be at least 0"):
        refine(table, [0] * 6, 3, random=random, effort=-1)
    suppressed = refine(table, [-1] * 6, 3, random=random)  # they are left alone
    assert suppressed.class_of_record.tolist() == [-1] * 6


def test_suppress_an_outlier() -> None:
    age = Attribute(3, np.array([20.0, 21.0, 90.0]), 20.0, 90.0)
    table = Microdata([[0], [1], [0], [1], [2]], (age,))
    # Once; then no record may go: neither by k nor by the limit.
    for k, most, last in ((4, "1/5", -1), (5, "1/5", 0), (4, "19/100", 0)):
        found = suppress(table, np.zeros(5, dtype=np.int64), k, Fraction(most))
        assert found.class_of_record.tolist() == [0, 0, 0, 0, last]
    with pytest.raises(InvalidParameterError, match="max_suppressed"):
        suppress(table, np.zeros(5, dtype=np.int64), 4, Fraction(2))


def test_suppress_brings_a_record_in_for_an_outlier() -> None:
    # The class of the outlier has only k records; a larger one spares a record like the others.
    numbers = np.array([20.0, 21.0, 90.0])
    age, place = Attribute(3, numbers, 20.0, 90.0), Attribute(2)
    rows = [[0, 0], [1, 0], [2, 0], [0, 0], [0, 0], [1, 0], [1, 0]]
    table = Microdata(rows, (age, place))
    found = suppress(table, [0, 0, 0, 1, 1, 1, 1], 3, Fraction(1, 4)).class_of_record
    assert found[2] == -1
    assert np.bincount(found[found >= 0]).tolist() == [3, 3]


@pytest.mark.parametrize("cut", ["strict", "relaxed"])
def test_mondrian_in_threads_finds_the_same(
    cut: MedianCut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mondrian_module, "_FEWEST_IN_THREADS", 1)
    for seed in range(5):
        table = random_table(200 + seed, [9, 4, 7])
        k = int(np.random.default_rng(seed).integers(1, 40))
        alone = mondrian(table, k, cut=cut).class_of_record.tolist()
        for workers in (2, 3, 100):
            found = mondrian(table, k, cut=cut, workers=workers)
            assert found.class_of_record.tolist() == alone, workers


def test_a_cancel_ends_the_threads_of_mondrian(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mondrian_module, "_FEWEST_IN_THREADS", 1)
    monkeypatch.setattr(computation, "_POLL_SECONDS", 0)  # Within these, two threads may be done.
    n_before = threading.active_count()
    with pytest.raises(StoppedError):
        mondrian(random_table(200_000, [500, 400]), 2, workers=2, pulse=Pulse(heartbeat=stop))
    assert threading.active_count() == n_before


def test_mondrian_leaves_the_codes_of_its_caller_as_they_are() -> None:
    """Of one attribute, too, whose transposed codes are contiguous."""
    codes = np.arange(40, dtype=np.int32)[::-1].reshape(-1, 1) % 7
    age = Attribute(7, numbers=np.arange(7.0), lower=0, upper=6)
    table = Microdata(codes.copy(), (age,))
    mondrian(table, 2)
    assert (table.codes == codes).all()
