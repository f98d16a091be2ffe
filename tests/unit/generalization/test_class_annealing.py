from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.generalization.greedy_classes import classes_of_k
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.algorithms.recoding import annealing
from kanon_db.algorithms.recoding.annealing import (
    PROPOSALS_PER_SECOND,
    Schedule,
    TypedRecords,
    annealed_classes,
)
from kanon_db.algorithms.recoding.changing_classes import Constraint
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.algorithms.recoding.microdata import sort_order
from tests.unit.generalization.exhaustive import random_microdata


def in_order(seed: int, n_records: int = 60) -> tuple[Ncp, TypedRecords]:
    table = random_microdata(np.random.default_rng(seed), n_records, "n0c", 3)
    ncp = Ncp.of(table).of_records(sort_order(table))
    return ncp, TypedRecords.of(ncp, np.random.default_rng(seed), UNLIMITED)


def test_row_types_by_the_definition() -> None:
    ncp, typed = in_order(4)
    rows = list(dict.fromkeys(map(tuple, ncp.values.tolist())))
    assert [rows[t] for t in typed.type_of_record] == list(map(tuple, ncp.values.tolist()))
    sizes = np.bincount(typed.type_of_record)
    assert np.array_equal(np.diff(typed.first_of_type), sizes)
    assert len(rows) < sizes.sum()
    assert typed.near.shape[0] == len(rows)
    itself = (typed.near == np.arange(len(rows))[:, np.newaxis]).any(axis=1)
    assert np.array_equal(itself, sizes > 1)


def test_steps_propose_as_much_as_was_asked_for() -> None:
    beats = []
    steps = list(Schedule(100_000).steps(50.0, Pulse(heartbeat=lambda: beats.append(1))))
    assert sum(n_proposals for n_proposals, _ in steps) == 100_000
    assert len(beats) > len(steps)
    temperatures = [temperature for _, temperature in steps]
    assert temperatures[0] == 50.0 * 0.4
    assert temperatures == sorted(temperatures, reverse=True)
    assert temperatures[-1] == 0.0
    cold = Schedule(10**5, hottest=0.0).steps(50.0, UNLIMITED)
    assert all(not temperature for _, temperature in cold)
    assert not list(Schedule(0).steps(50.0, UNLIMITED))


class Slow(Pulse):
    """A machine on which the time is over after some calls."""

    def __init__(self, seconds: float, shares: list[float]) -> None:
        super().__init__(seconds)
        self._shares = iter(shares)

    @property
    def spent(self) -> float:
        return next(self._shares)


@pytest.mark.parametrize("workers", [1, 2])
def test_seconds_are_counted_in_proposals(workers: int) -> None:
    """However long they take: the same request does the same."""
    in_time = PROPOSALS_PER_SECOND * workers
    quick = list(Schedule(10**9).steps(1.0, Slow(1.0, [0.0] * 1000), workers))
    slow = list(Schedule(10**9).steps(1.0, Slow(1.0, [3.9] * 1000), workers))
    assert quick == slow
    assert sum(n_proposals for n_proposals, _ in quick) == in_time
    assert [temperature for _, temperature in quick][-1] == 0.0
    assert not list(Schedule(10**9).steps(1.0, Pulse(0.0)))
    wide = Schedule(10**9).steps(1.0, Slow(1.0, [3.9] * 1000), workers, width=160)
    assert sum(n_proposals for n_proposals, _ in wide) == in_time // 10


def test_what_takes_far_too_long_ends() -> None:
    steps = Schedule(10**9).steps(1.0, Slow(60.0, [0.0, 3.9, 4.0]))
    assert len(list(steps)) == 2


def test_annealed_classes_keep_k_records_and_lose_less() -> None:
    for seed in range(5):
        ncp, typed = in_order(seed, 200)
        before = classes_of_k(200, 4)
        random = np.random.default_rng(seed)
        after = annealed_classes(typed, before, 4, Schedule(50_000), random)
        assert np.bincount(after).min() >= 4
        assert ncp.total(after) < ncp.total(before)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("is_constrained", [False, True])
def test_threads_keep_what_one_keeps(
    workers: int, is_constrained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(annealing, "_RECORDS_PER_THREAD", 50)
    monkeypatch.setattr(annealing, "_PROPOSALS_PER_PART", 50)
    for seed in range(3):
        ncp, typed = in_order(seed, 2_000)
        before = classes_of_k(2_000, 4)
        values = np.tile([0, 1, 2, 3], 500)
        constraint = Constraint(values, 4, l=3) if is_constrained else None
        after = annealed_classes(
            typed, before, 4, Schedule(400_000), np.random.default_rng(seed),
            constraint=constraint, workers=workers,
        )  # fmt: skip
        assert np.bincount(after).min() >= 4
        assert ncp.total(after) < ncp.total(before)
        if is_constrained:
            pairs = np.unique(np.column_stack([after, values]), axis=0)
            assert np.bincount(pairs[:, 0]).min() >= 3


def test_parts_share_out_all_classes_and_records() -> None:
    _, typed = in_order(1, 1_000)
    of = annealing.ClassSummaries.of(typed.records, classes_of_k(1_000, 4), room=4)
    parts = annealing._parts(of, 3, np.random.default_rng(2))
    records = np.concatenate([part.records for part in parts])
    assert np.array_equal(np.sort(records), np.arange(1_000))
    for part in parts:
        assert 250 < part.records.size < 420
        assert (part.of_class[of.class_of_record[part.records]] == part.number).all()
