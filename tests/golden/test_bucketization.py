"""Settings and refusals against golden/bucket_*.json, found by slow exact enumeration."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from kanon_db.algorithms.bucketization.bucket_assignment import is_valid
from kanon_db.algorithms.bucketization.multi_size import multi_size, optimal
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy, PrivacySpecification
from kanon_db.algorithms.bucketization.two_size import two_size
from kanon_db.errors import IneligibleError, InfeasibleError

Golden = Callable[[str], Any]


@pytest.fixture(scope="module")
def cases(golden: Golden) -> list[Any]:
    files = ("bucket_small", "bucket_census_like", "bucket_adult")
    return [case for file in files for case in golden(file)]


def privacy_of(case: dict[str, Any]) -> FPrimePrivacy:
    if "f_prime" in case:
        return FPrimePrivacy(tuple(Fraction(threshold) for threshold in case["f_prime"]))
    spec = PrivacySpecification.parse(f'{{"theta": {case["theta"]}, "base": 0.02}}')
    return spec.thresholds([str(i) for i in range(len(case["o"]))], case["o"])


def settings_of(case: dict[str, Any]) -> set[tuple[tuple[int, int], ...]]:
    listed = case.get("two_size_settings") or case["two_size_optimal_settings"]
    return {tuple((size, count) for size, count in setting if count) for setting in listed}


def test_two_size(cases: list[Any]) -> None:
    for case in cases:
        privacy = privacy_of(case)
        assert privacy.smallest_bucket_size() == case["M"], case["id"]
        if case["two_size_loss"] is None:
            refusal = InfeasibleError if case["eligible"] else IneligibleError
            with pytest.raises(refusal):
                two_size(case["o"], privacy, case["M_prime"])
            continue
        setting = two_size(case["o"], privacy, case["M_prime"])
        assert setting.loss == case["two_size_loss"], case["id"]
        assert setting.pairs in settings_of(case), case["id"]
        assert setting.msbs == pytest.approx(case["two_size_msbs"], rel=1e-12), case["id"]


def general_loss_of(case: dict[str, Any]) -> int | None:
    if "general_loss" in case:
        return case["general_loss"]
    return (case.get("general") or case["general_optimum"])["loss"]


def test_optimal(cases: list[Any]) -> None:
    for case in cases:
        privacy, expected = privacy_of(case), general_loss_of(case)
        if expected is None:
            refusal = InfeasibleError if case.get("eligible", True) else IneligibleError
            with pytest.raises(refusal):
                optimal(case["o"], privacy, case["M_prime"])
            continue
        found = optimal(case["o"], privacy, case["M_prime"])
        assert (found.proof.objective, found.proof.status, found.proof.gap) == (
            expected,
            "optimal",
            0,
        ), case["id"]
        limits = privacy.occurrence_limits(found.setting.sizes)
        assert is_valid(case["o"], limits, found.setting), case["id"]


def test_multi_size_is_as_good_as_the_best_partition_rule(cases: list[Any]) -> None:
    for case in cases:
        privacy = privacy_of(case)
        if case["two_size_loss"] is None:
            with pytest.raises((InfeasibleError, IneligibleError)):
                multi_size(case["o"], privacy, case["M_prime"])
            continue
        if "multisize_loss_range_over_23_partition_rules" in case:
            best_rule = case["multisize_loss_range_over_23_partition_rules"][0]
        else:
            best_rule = min(rule["loss"] for rule in case["multisize_by_partition_rule"].values())
        setting = multi_size(case["o"], privacy, case["M_prime"])
        optimum = general_loss_of(case)
        assert optimum is not None
        assert optimum <= setting.loss <= min(best_rule, case["two_size_loss"]), case["id"]
        limits = privacy.occurrence_limits(setting.sizes)
        assert is_valid(case["o"], limits, setting), case["id"]
