from __future__ import annotations

import importlib
import threading

import numpy as np
import pytest

from kanon_db.algorithms import programs
from kanon_db.algorithms.generalization.optimal_classes import optimal
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.errors import InfeasibleError, InvalidParameterError
from tests.unit.generalization.exhaustive import (
    assert_valid,
    exhaustive_optimum,
    random_microdata,
    total_loss,
)

# The package's attribute of this name is the function.
set_partition = importlib.import_module("kanon_db.algorithms.generalization.set_partition")


class StoppedError(RuntimeError):
    pass


@pytest.fixture(scope="module")
def hard() -> Microdata:
    """Records so different that pairs of nearest neighbors prove nothing."""
    return random_microdata(np.random.default_rng(7), 40, "nncccc", 12)


@pytest.fixture
def no_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Column generation even where a few classes would do."""
    monkeypatch.setattr(set_partition, "_enumerate", lambda *_: None)


@pytest.mark.parametrize("loss", ["ncp", "binary"])
@pytest.mark.parametrize(("kinds", "k"), [("ncc", 2), ("0c", 3), ("nn", 2), ("c0n", 2)])
def test_all_partitions_of_small_tables(kinds: str, k: int, loss: str) -> None:
    for seed in range(4):
        microdata = random_microdata(np.random.default_rng(seed), 8, kinds, 4)
        found = optimal(microdata, k, loss=loss)  # type: ignore[arg-type]
        assert (found.proof.status, found.proof.gap) == ("optimal", 0)
        assert (
            found.proof.objective
            == found.proof.lower_bound
            == exhaustive_optimum(microdata, k, loss)
        )
        assert found.proof.objective == total_loss(microdata, found.class_of_record, loss)
        assert_valid(found.class_of_record, 8, k)


@pytest.mark.usefixtures("no_enumeration")
@pytest.mark.parametrize(("kinds", "k"), [("ncc", 2), ("0c", 3), ("nnn", 3)])
def test_column_generation_on_small_tables(kinds: str, k: int) -> None:
    for seed in range(4):
        microdata = random_microdata(np.random.default_rng(seed), 9, kinds, 4, "1 0.2 3")
        found = optimal(microdata, k)
        assert found.proof.status == "optimal"
        assert found.proof.objective == found.proof.lower_bound == exhaustive_optimum(microdata, k)


@pytest.mark.parametrize("loss", ["ncp", "binary"])
def test_both_formulations_agree(loss: str) -> None:
    for seed in range(3):
        microdata = random_microdata(np.random.default_rng(seed), 7, "nc", 4, "1 0.5")
        found = [
            optimal(microdata, 2, formulation=formulation, loss=loss)  # type: ignore[arg-type]
            for formulation in ("set_partition", "paper")
        ]
        assert [one.proof.status for one in found] == ["optimal"] * 2
        assert found[0].proof.objective == found[1].proof.objective
        assert found[1].proof.objective == total_loss(microdata, found[1].class_of_record, loss)


def test_column_generation_agrees_with_enumeration(
    hard: Microdata, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Microdata(hard.codes[:24], hard.attributes)
    monkeypatch.setattr(set_partition, "_MAX_ENUMERATED", 0)
    by_generation = optimal(records, 3)
    monkeypatch.setattr(set_partition, "_MAX_ENUMERATED", 10**6)
    by_enumeration = optimal(records, 3)
    assert by_generation.proof.status == by_enumeration.proof.status == "optimal"
    assert by_generation.proof.objective == by_enumeration.proof.objective
    assert by_generation.n_classes < by_enumeration.n_classes


def test_identical_records() -> None:
    microdata = Microdata([[0]] * 7 + [[1]] * 2, (Attribute(5, np.arange(5.0), 0, 4),))
    found = optimal(microdata, 3)
    # One 0 must join the two 1s.
    assert (found.proof.status, found.proof.objective) == ("optimal", 3 / 4)
    assert_valid(found.class_of_record, 9, 3)


def test_one_class_and_classes_of_one() -> None:
    microdata = random_microdata(np.random.default_rng(8), 5, "nc", 4)
    assert optimal(microdata, 5).class_of_record.tolist() == [0] * 5
    alone = optimal(microdata, 1)
    assert (alone.proof.status, alone.proof.objective) == ("optimal", 0)
    assert sorted(alone.class_of_record.tolist()) == list(range(5))


def test_no_records() -> None:
    microdata = Microdata(np.zeros((0, 2), dtype=np.int32), (Attribute(1), Attribute(1)))
    for formulation in ("set_partition", "paper"):
        found = optimal(microdata, 2, formulation=formulation)  # type: ignore[arg-type]
        assert (found.proof.status, found.proof.objective, found.proof.gap) == ("optimal", 0, 0)


@pytest.mark.parametrize("seconds", [1e-9, 0.2])
def test_out_of_time(hard: Microdata, seconds: float) -> None:
    best = optimal(hard, 4)
    assert best.proof.status == "optimal"
    found = optimal(hard, 4, pulse=Pulse(seconds))
    assert found.proof.lower_bound <= best.proof.objective <= found.proof.objective
    assert found.proof.status == (
        "optimal" if found.proof.lower_bound == found.proof.objective else "feasible"
    )
    assert found.proof.gap == float(
        (found.proof.objective - found.proof.lower_bound) / found.proof.objective
    )
    assert_valid(found.class_of_record, 40, 4)


def test_out_of_time_at_once(hard: Microdata) -> None:
    few = Microdata(hard.codes[:20, :2], hard.attributes[:2])
    for records, formulation in ((hard, "set_partition"), (few, "paper")):
        found = optimal(records, 3, pulse=Pulse(1e-9), formulation=formulation)  # type: ignore[arg-type]
        assert found.proof.status == "feasible"
        assert 0 <= found.proof.lower_bound < found.proof.objective
        assert_valid(found.class_of_record, records.n_records, 3)


def assert_no_threads_but(before: set[threading.Thread]) -> None:
    """Check that the solver's thread has ended, or has nothing left to do but end."""
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=5)
        assert not thread.is_alive()


@pytest.mark.parametrize("n_beats", [1, 5, 30])
def test_the_heartbeat_stops_the_search(hard: Microdata, n_beats: int) -> None:
    beats = 0

    def heartbeat() -> None:
        nonlocal beats
        beats += 1
        if beats == n_beats:
            raise StoppedError

    before = set(threading.enumerate())
    with pytest.raises(StoppedError):
        optimal(hard, 5, pulse=Pulse(heartbeat=heartbeat))
    assert beats == n_beats
    assert_no_threads_but(before)


def test_the_heartbeat_stops_the_solver() -> None:
    microdata = random_microdata(np.random.default_rng(9), 20, "nnn", 9)
    before, caller, solving = set(threading.enumerate()), threading.get_ident(), False

    def heartbeat() -> None:
        nonlocal solving
        assert threading.get_ident() == caller
        if set(threading.enumerate()) - before:
            solving = True
            raise StoppedError

    with pytest.raises(StoppedError):
        optimal(microdata, 3, formulation="paper", pulse=Pulse(heartbeat=heartbeat))
    assert solving
    assert_no_threads_but(before)


def test_refusals(hard: Microdata, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidParameterError, match="k must be at least 1"):
        optimal(hard, 0)
    with pytest.raises(InfeasibleError, match="must not exceed the number of records"):
        optimal(hard, 41)
    with pytest.raises(InvalidParameterError, match="unknown formulation"):
        optimal(hard, 3, formulation="cplex")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="unknown loss"):
        optimal(hard, 3, loss="square")  # type: ignore[arg-type]
    many = random_microdata(np.random.default_rng(1), 1001, "n", 9)
    with pytest.raises(InvalidParameterError, match="too many records for an exact search"):
        optimal(many, 3)
    nulls = random_microdata(np.random.default_rng(1), 12, "0", 2)
    with pytest.raises(InvalidParameterError, match="cannot handle NULL in numeric columns"):
        optimal(nulls, 3, formulation="paper")
    monkeypatch.setattr(programs, "MAX_CONSTRAINTS", 100)
    with pytest.raises(InvalidParameterError, match="too large for the formulation paper"):
        optimal(hard, 3, formulation="paper")
