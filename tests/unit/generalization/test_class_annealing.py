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
from tests.generalization_plain import random_table


def in_order(seed: int, n_records: int = 60) -> tuple[Ncp, TypedRecords]:
    table = random_table(np.random.default_rng(seed), n_records, "n0c", 3)
    ncp = Ncp.of(table).of_records(sort_order(table))
    return ncp, TypedRecords.of(ncp, np.random.default_rng(seed), UNLIMITED)


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
