from __future__ import annotations

import importlib
from fractions import Fraction

import numpy as np
import pytest

from kanon_db.algorithms.bucketization.bucket_assignment import is_valid
from kanon_db.algorithms.bucketization.multi_size import MAX_RECORDS, multi_size, optimal
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.errors import InfeasibleError, InvalidParameterError

module = importlib.import_module("kanon_db.algorithms.bucketization.multi_size")

HARD = tuple(Fraction(i, 40) for i in (3, 4, 5, 6, 7, 9, 12, 16))
HARD_COUNTS = [40, 53, 99, 101, 135, 202, 233, 477]


def privacy(*thresholds: str) -> FPrimePrivacy:
    return FPrimePrivacy(tuple(Fraction(threshold) for threshold in thresholds))


def test_no_setting_of_two_sizes_exists() -> None:
    thresholds = privacy("52/225", "139/450", "67/225", "109/450")
    found = optimal([19, 26, 25, 20], thresholds, 20)
    assert (found.proof.objective, found.proof.status) == (1196, "optimal")
    limits = thresholds.occurrence_limits(found.setting.sizes)
    assert is_valid([19, 26, 25, 20], limits, found.setting)
    # There, Algorithm 4 returns one bucket of the whole table.
    with pytest.raises(InfeasibleError, match="at most two sizes"):
        multi_size([19, 26, 25, 20], thresholds, 20)


def test_no_setting_exists() -> None:
    with pytest.raises(InfeasibleError, match="no bucket setting is valid") as caught:
        optimal([504, 505], privacy("504/1009", "505/1009"), 50)
    assert caught.value.detail == "bucket sizes 2 to 50, n_records = 1,009"


def test_too_large_a_table_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="too large for the method optimal"):
        optimal([MAX_RECORDS // 2 + 1] * 2, privacy("1/2", "1/2"), 2)


def test_too_many_thresholds() -> None:
    n_values = 5000
    thresholds = FPrimePrivacy(tuple(Fraction(1, 2) + Fraction(1, 3 + i) for i in range(n_values)))
    with pytest.raises(InvalidParameterError, match="too large for the method optimal") as caught:
        optimal([1] * n_values, thresholds, 900)
    assert caught.value.detail.startswith("5,000 distinct pairs")


def test_billions_of_records() -> None:
    factor = 10**6 + 3
    counts = [1, 1, 5, 3, 2]
    thresholds = privacy("29/100", "3/5", "7/10", "3/5", "7/20")
    found = optimal([factor * count for count in counts], thresholds, 8)
    assert found.proof.status == "optimal"
    assert found.setting.n_records == 12 * factor
    limits = thresholds.occurrence_limits(found.setting.sizes)
    assert is_valid([factor * count for count in counts], limits, found.setting)
    assert found.proof.objective <= 18 * factor


def test_out_of_time_the_heuristic_remains() -> None:
    thresholds = FPrimePrivacy(HARD)
    best = optimal(HARD_COUNTS, thresholds, 40)
    heuristic = multi_size(HARD_COUNTS, thresholds, 40)
    assert best.proof.status == "optimal"
    assert best.proof.objective < heuristic.loss
    found = optimal(HARD_COUNTS, thresholds, 40, pulse=Pulse(1e-9))
    assert (found.proof.status, found.proof.objective) == ("feasible", heuristic.loss)
    assert found.proof.lower_bound <= best.proof.objective
    assert 0 < found.proof.gap < 1


def test_out_of_time_without_a_heuristic() -> None:
    thresholds = privacy("52/225", "139/450", "67/225", "109/450")
    with pytest.raises(InfeasibleError, match="within the time limit"):
        optimal([19, 26, 25, 20], thresholds, 20, pulse=Pulse(1e-9))


def test_settings_that_the_solver_gets_wrong_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds = FPrimePrivacy(HARD)
    solve = module.solve_setting

    def mistaken(program, near, start, *, whole, pulse):  # type: ignore[no-untyped-def]
        answer = solve(program, near, start, whole=whole, pulse=pulse)
        if whole:
            n_buckets = np.zeros(program.sizes.size)
            n_buckets[0] = program.n_records / program.sizes[0]
            return answer._replace(values=n_buckets, is_infeasible=False)
        return answer

    monkeypatch.setattr(module, "solve_setting", mistaken)
    found = optimal(HARD_COUNTS, thresholds, 40)
    assert found.proof.status == "feasible"
    assert found.setting.pairs == multi_size(HARD_COUNTS, thresholds, 40).pairs
