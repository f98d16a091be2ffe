"""Optimal classes, and those that are found in sub-problems."""

from __future__ import annotations

import importlib
import threading

import numpy as np
import pytest

from kanon_db.algorithms import programs
from kanon_db.algorithms.generalization.optimal_classes import (
    OptimalGeneralization,
    optimal,
    split_carry,
)
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.errors import InvalidParameterError
from tests.generalization_plain import (
    assert_valid,
    optimal_loss,
    random_table,
    total_loss,
)

# The package's attribute of this name is the function.
set_partition = importlib.import_module("kanon_db.algorithms.generalization.set_partition")


@pytest.fixture(scope="module")
def hard() -> Microdata:
    """Records so different that pairs of nearest neighbors prove nothing."""
    return random_table(np.random.default_rng(7), 40, "nncccc", 12)


def by_generation(table: Microdata, k: int) -> OptimalGeneralization:
    """Column generation even where a few classes would do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_partition, "_enumerate", lambda *_: None)
        return optimal(table, k)


@pytest.mark.parametrize(("kinds", "k"), [("ncc", 2), ("0c", 3), ("nnn", 3)])
def test_column_generation_on_small_tables(kinds: str, k: int) -> None:
    for seed in range(2):
        microdata = random_table(np.random.default_rng(seed), 9, kinds, 4, "1 0.2 3")
        found = by_generation(microdata, k)
        assert found.proof.status == "optimal"
        assert found.proof.objective == found.proof.lower_bound == optimal_loss(microdata, k)


@pytest.mark.long
def test_column_generation_agrees_with_enumeration(
    hard: Microdata, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Microdata(hard.codes[:24], hard.attributes)
    generated = by_generation(records, 3)
    monkeypatch.setattr(set_partition, "_MAX_ENUMERATED", 10**6)
    enumerated = optimal(records, 3)
    assert generated.proof.status == enumerated.proof.status == "optimal"
    assert generated.proof.objective == enumerated.proof.objective
    assert generated.n_classes < enumerated.n_classes


@pytest.mark.long
def test_out_of_time(hard: Microdata) -> None:
    best = optimal(hard, 4)
    assert best.proof.status == "optimal"
    found = optimal(hard, 4, pulse=Pulse(0.2))
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


def test_the_heartbeat_stops_the_solver() -> None:
    microdata = random_table(np.random.default_rng(9), 20, "nnn", 9)
    before, caller = set(threading.enumerate()), threading.get_ident()

    def heartbeat() -> None:
        assert threading.get_ident() == caller
        if set(threading.enumerate()) - before:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        optimal(microdata, 3, formulation="paper", pulse=Pulse(heartbeat=heartbeat))
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=5)  # it has ended, or has nothing left to do but end
        assert not thread.is_alive()


def test_refusals(hard: Microdata, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidParameterError, match="unknown formulation"):
        optimal(hard, 3, formulation="cplex")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="unknown loss"):
        optimal(hard, 3, loss="square")  # type: ignore[arg-type]
    many = random_table(np.random.default_rng(1), 1001, "nn", 9)
    with pytest.raises(InvalidParameterError, match="too many records for an exact search"):
        optimal(many, 3)
    nulls = random_table(np.random.default_rng(1), 12, "0", 2)
    with pytest.raises(InvalidParameterError, match="cannot handle NULL in numeric columns"):
        optimal(nulls, 3, formulation="paper")
    monkeypatch.setattr(programs, "MAX_CONSTRAINTS", 100)
    with pytest.raises(InvalidParameterError, match="too large for the formulation paper"):
        optimal(hard, 3, formulation="paper")


@pytest.fixture(scope="module")
def records() -> Microdata:
    return random_table(np.random.default_rng(10), 70, "n0cn", 6)


def test_one_sub_problem_is_the_whole_problem() -> None:
    microdata = random_table(np.random.default_rng(11), 16, "nc", 5)
    whole = optimal(microdata, 3).proof.objective
    for options in ({"s": 5}, {"s": 9}, {"bubble": (16, 1)}, {"bubble": (15, 1)}):
        found = split_carry(microdata, 3, **options)  # type: ignore[arg-type]
        assert found.sizes.tolist() == [16]
        assert total_loss(microdata, found.class_of_record) == whole


@pytest.mark.parametrize(("k", "s", "carry"), [(2, 3, 2), (3, 2, 3), (3, 3, 1), (3, 1, 7)])
def test_sizes_of_sub_problems(records: Microdata, k: int, s: int, carry: int) -> None:
    sizes = split_carry(records, k, s=s, carry=carry).sizes
    n_groups = 70 // k
    assert sizes.size == -(-n_groups // s)
    assert sizes[0] == k * s
    # Lemma 2, with l in place of k, and what is left over in the last sub-problem.
    assert sizes[:-1].max() <= carry * (2 * k - 1) + k * s
    assert sizes[-1] <= carry * (2 * k - 1) + k * (s + 1) - 1


def test_sub_problems_of_bubble_carry_have_one_size(records: Microdata) -> None:
    sizes = split_carry(records, 3, bubble=(13, 1)).sizes
    assert set(sizes[:-1].tolist()) == {13}
    assert 3 <= sizes[-1] <= 13 + 3 - 1


def test_bubble_carry_leaves_no_record_without_a_class() -> None:
    for n_records in range(6, 16):
        microdata = random_table(np.random.default_rng(n_records), n_records, "nn", 5)
        for n_accepted in (1, 9):
            found = split_carry(microdata, 3, bubble=(7, n_accepted))
            assert_valid(found.class_of_record, n_records, 3)


def test_cut_short() -> None:
    microdata = random_table(np.random.default_rng(12), 60, "nncccc", 12)
    found = split_carry(microdata, 6, s=5, pulse=Pulse(1e-9))
    assert found.n_cut_short > 0
    assert_valid(found.class_of_record, 60, 6)


def test_refusals_of_split_carry(records: Microdata) -> None:
    for options in ({"s": 0}, {"carry": 0}):
        with pytest.raises(InvalidParameterError, match="s and carry"):
            split_carry(records, 3, **options)  # type: ignore[arg-type]
    many = random_table(np.random.default_rng(1), 1001, "nn", 99)
    with pytest.raises(InvalidParameterError, match="too many records for an exact search"):
        split_carry(many, 2, s=501)
    for bubble in ((5, 1), (12, 0)):
        with pytest.raises(InvalidParameterError, match="bubble"):
            split_carry(records, 3, bubble=bubble)
