from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.generalization.initial import classes_of_k, sort_order
from kanon_db.algorithms.recoding.ncp import Ncp
from kanon_db.algorithms.recoding.type_annealing import RowTypes, Schedule, annealed_classes
from tests.unit.generalization.exhaustive import random_microdata


def beat() -> None:
    pass


def in_order(seed: int, n_records: int = 60) -> tuple[Ncp, RowTypes]:
    table = random_microdata(np.random.default_rng(seed), n_records, "n0c", 3)
    ncp = Ncp.of(table).of_records(sort_order(table))
    return ncp, RowTypes.of(ncp, np.random.default_rng(seed), beat)


def test_row_types_by_the_definition() -> None:
    ncp, types = in_order(4)
    rows = list(dict.fromkeys(map(tuple, ncp.values.tolist())))
    assert [rows[t] for t in types.type_of_record] == list(map(tuple, ncp.values.tolist()))
    sizes = np.bincount(types.type_of_record)
    assert np.array_equal(np.diff(types.first_of_type), sizes)
    assert len(rows) < sizes.sum()
    assert types.near.shape[0] == len(rows)
    itself = (types.near == np.arange(len(rows))[:, np.newaxis]).any(axis=1)
    assert np.array_equal(itself, sizes > 1)


def test_steps_propose_as_much_as_was_asked_for() -> None:
    beats = []
    steps = list(Schedule(100_000).steps(50.0, lambda: beats.append(1)))
    assert sum(n_proposals for n_proposals, _ in steps) == 100_000
    assert len(beats) > len(steps)
    temperatures = [temperature for _, temperature in steps]
    assert temperatures[0] == 50.0 * 0.4
    assert temperatures == sorted(temperatures, reverse=True)
    assert temperatures[-1] == 0.0
    assert all(not temperature for _, temperature in Schedule(10**5, hottest=0.0).steps(50.0, beat))
    assert not list(Schedule(0).steps(50.0, beat))


def test_the_time_spent_cools_and_ends_the_work() -> None:
    shares = iter([0.0, 0.5, 0.96, 1.0])
    steps = Schedule(10**9, 1.0, 0.25, lambda: next(shares)).steps(1.0, beat)
    temperatures = [temperature for _, temperature in steps]
    assert temperatures == pytest.approx([1.0, 0.25 ** (0.5 / 0.95), 0.0])


def test_annealed_classes_keep_k_records_and_lose_less() -> None:
    for seed in range(5):
        ncp, types = in_order(seed, 200)
        before = classes_of_k(200, 4)
        after = annealed_classes(
            types, before, 4, Schedule(50_000), np.random.default_rng(seed), beat
        )
        assert np.bincount(after).min() >= 4
        assert ncp.total(after) < ncp.total(before)
