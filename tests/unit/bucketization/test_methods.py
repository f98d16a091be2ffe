"""Methods that find bucket settings: small tables, limits and refusals."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kanon_db.algorithms.bucketization import BucketSetting
from kanon_db.algorithms.bucketization.bucket_assignment import is_valid
from kanon_db.algorithms.bucketization.multi_size import MAX_RECORDS, multi_size, optimal
from kanon_db.algorithms.bucketization.multi_size import optimal as optimal_setting
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.two_size import anatomy, two_size
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.errors import IneligibleError, InfeasibleError, InvalidParameterError


def privacy(*thresholds: str) -> FPrimePrivacy:
    return FPrimePrivacy(tuple(map(Fraction, thresholds)))


HALF = privacy("1/2", "1/2")
METHODS: dict[str, Callable[..., BucketSetting]] = {
    "two_size": two_size,
    "multi_size": multi_size,
    "optimal": lambda *given: optimal_setting(*given).setting,
    "paper": lambda *given: optimal_setting(*given, formulation="paper").setting,
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


@every_method
def test_small_tables(method: Callable[..., BucketSetting]) -> None:
    assert method([], FPrimePrivacy(()), 10).pairs == ()
    assert method([3, 4], privacy("1", "1"), 10).pairs == ((1, 7),)
    counts = np.array([2, 2])
    assert method(counts, HALF, 2).pairs == ((2, 2),)
    assert counts.tolist() == [2, 2]
    assert method([1, 1], HALF, 100).pairs == ((2, 1),)  # sizes beyond the table are not used


@every_method
@pytest.mark.parametrize(
    ("counts", "largest", "error", "message"),
    [
        ([3, 1], 4, IneligibleError, "no publication can satisfy"),
        ([1, 1], 0, InvalidParameterError, r"must lie in \[1, 5000\]"),
        ([1, 1], 5001, InvalidParameterError, "max_bucket_size"),
        ([1, 1, 1], 2, InvalidParameterError, "for each sensitive value"),
        ([1, 1], 1, InfeasibleError, "smaller than the smallest possible bucket"),
    ],
)
def test_refusals(
    method: Callable[..., BucketSetting], counts: list[int], largest: int, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        method(counts, HALF, largest)


def test_unknown_pruning() -> None:
    with pytest.raises(InvalidParameterError, match="pruning"):
        two_size([1, 1], HALF, 2, pruning="some")  # type: ignore[arg-type]


THREE_SIZES = ([19, 26, 25, 20], privacy("52/225", "139/450", "67/225", "109/450"))
# Only a single bucket of all 1,009 records (a prime number) keeps both frequencies.
ONE_BUCKET = ([504, 505], privacy("504/1009", "505/1009"))


@pytest.mark.parametrize(
    ("table", "largest", "hint"),
    [
        (([1] * 10, privacy(*["1/10"] * 10)), 9, "raise max_bucket_size to at least 10"),
        (([1] * 6000, privacy(*["1/6000"] * 6000)), 5000, "raise the thresholds"),
        (THREE_SIZES, 20, "raise max_bucket_size to 27"),
        (ONE_BUCKET, 50, "no max_bucket_size up to 200 suffices"),
        (ONE_BUCKET, 1000, "raise the thresholds of the privacy specification"),
    ],
    ids=range(5),
)
def test_hints(table: tuple[list[int], FPrimePrivacy], largest: int, hint: str) -> None:
    with pytest.raises(InfeasibleError) as caught:
        two_size(*table, largest)
    assert hint in caught.value.hint
    if "to 27" in hint:
        assert caught.value.detail == "bucket sizes 4 to 20, n_records = 90"
        two_size(*table, 27)


def test_too_many_thresholds_for_memory() -> None:
    n_values = 20_000
    thresholds = FPrimePrivacy(tuple(Fraction(1, 1 + i) for i in range(n_values)))
    counts = np.zeros(n_values, dtype=np.int64)
    counts[0] = 10_000
    with pytest.raises(InvalidParameterError, match="too much memory") as caught:
        two_size(counts, thresholds, 5000)
    assert caught.value.hint == "lower max_bucket_size to at most 3355"


def test_a_large_residue_is_spread_evenly() -> None:
    # 11 records, l = 4: two buckets, three records left over; Anatomy's sizes would be 4 and 5.
    assert anatomy([2, 2, 2, 2, 2, 1], 4).pairs == ((5, 1), (6, 1))
    assert anatomy([1] * 11, 6).pairs == ((11, 1),)


@pytest.mark.parametrize("l", [0, -2, 3])
def test_anatomy_refuses(l: int) -> None:
    with pytest.raises((IneligibleError, InvalidParameterError)) as caught:
        anatomy([6, 3, 4], l)
    if l < 1:
        assert caught.value.message.startswith("l must be at least 1")
    else:
        assert caught.value.detail == (
            "l = 3; 1 of 3 sensitive values have more than 4 of 13 records"
        )
        assert caught.value.hint == "lower l to 2"


module = importlib.import_module("kanon_db.algorithms.bucketization.multi_size")

HARD = tuple(Fraction(i, 40) for i in (3, 4, 5, 6, 7, 9, 12, 16))
HARD_COUNTS = [40, 53, 99, 101, 135, 202, 233, 477]


def test_no_setting_of_two_sizes_exists() -> None:
    counts, thresholds = THREE_SIZES
    found = optimal(counts, thresholds, 20)
    assert (found.proof.objective, found.proof.status) == (1196, "optimal")
    assert is_valid(counts, thresholds.occurrence_limits(found.setting.sizes), found.setting)
    # There, Algorithm 4 returns one bucket of the whole table.
    with pytest.raises(InfeasibleError, match="at most two sizes"):
        multi_size(counts, thresholds, 20)
    with pytest.raises(InfeasibleError, match="within the time limit"):
        optimal(counts, thresholds, 20, pulse=Pulse(1e-9))
    with pytest.raises(InfeasibleError, match="no bucket setting is valid") as caught:
        optimal(*ONE_BUCKET, 50)
    assert caught.value.detail == "bucket sizes 2 to 50, n_records = 1,009"


def test_too_large_a_table_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="too large for the method optimal"):
        optimal([MAX_RECORDS // 2 + 1] * 2, HALF, 2)
    many = FPrimePrivacy(tuple(Fraction(1, 2) + Fraction(1, 3 + i) for i in range(5000)))
    with pytest.raises(InvalidParameterError, match="too large for the method optimal") as caught:
        optimal([1] * 5000, many, 900)
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


def test_settings_that_the_solver_gets_wrong_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds = FPrimePrivacy(HARD)
    solve = module.solve_setting

    def mistaken(program, near, start, *, integral, pulse):  # type: ignore[no-untyped-def]
        answer = solve(program, near, start, integral=integral, pulse=pulse)
        if integral:
            n_buckets = np.zeros(program.sizes.size)
            n_buckets[0] = program.n_records / program.sizes[0]
            return answer._replace(values=n_buckets, is_infeasible=False)
        return answer

    monkeypatch.setattr(module, "solve_setting", mistaken)
    found = optimal(HARD_COUNTS, thresholds, 40)
    assert found.proof.status == "feasible"
    assert found.setting.pairs == multi_size(HARD_COUNTS, thresholds, 40).pairs
