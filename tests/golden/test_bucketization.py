"""Settings and refusals against golden/bucket_*.json, found by slow exact enumeration."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kanon_db.algorithms.bucketization.bucket_assignment import (
    is_valid,
    partition_records,
    round_robin,
)
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.multi_size import multi_size, optimal
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy, PrivacySpecification
from kanon_db.algorithms.bucketization.two_size import Pruning, anatomy, two_size
from kanon_db.errors import IneligibleError, InfeasibleError

Golden = Callable[[str], Any]

FILES = ["bucket_small", "bucket_census_like", "bucket_adult"]


def privacy_of(case: dict[str, Any]) -> FPrimePrivacy:
    if "f_prime" in case:
        return FPrimePrivacy(tuple(Fraction(threshold) for threshold in case["f_prime"]))
    spec = PrivacySpecification.parse(f'{{"theta": {case["theta"]}, "base": 0.02}}')
    return spec.thresholds([str(i) for i in range(len(case["o"]))], case["o"])


def settings_of(case: dict[str, Any]) -> set[tuple[tuple[int, int], ...]]:
    listed = case.get("two_size_settings") or case["two_size_optimal_settings"]
    return {tuple((size, count) for size, count in setting if count) for setting in listed}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("pruning", ["full", "loss", "none"])
def test_two_size(golden: Golden, file: str, pruning: Pruning) -> None:
    for case in golden(file):
        privacy = privacy_of(case)
        assert privacy.smallest_bucket_size() == case["M"], case["id"]
        if case["two_size_loss"] is None:
            refusal = InfeasibleError if case["eligible"] else IneligibleError
            with pytest.raises(refusal):
                two_size(case["o"], privacy, case["M_prime"], pruning=pruning)
            continue
        setting = two_size(case["o"], privacy, case["M_prime"], pruning=pruning)
        assert setting.loss == case["two_size_loss"], case["id"]
        assert setting.pairs in settings_of(case), case["id"]
        assert setting.msbs == pytest.approx(case["two_size_msbs"], rel=1e-12), case["id"]


@pytest.mark.parametrize("name", ["wrong_candidate", "none_valid_but_paper_returns"])
def test_first_valid_candidate(golden: Golden, name: str) -> None:
    case = golden("bucket_first_valid_candidate")[name]
    privacy = FPrimePrivacy(tuple(Fraction(threshold) for threshold in case["fp"]))
    sizes = [case["S1"], case["S2"]]

    def valid(candidate: list[int]) -> bool:
        setting = BucketSetting.of(sizes, candidate)
        return is_valid(case["o"], privacy.occurrence_limits(setting.sizes), setting)

    assert not valid(case["paper"])
    first = next((i for i, candidate in enumerate(case["Gamma"]) if valid(candidate)), None)
    assert first == case["true_index"]
    if case["true"] is None:
        # Were the paper's setting found, its loss would be the smallest of sizes 2 and 3.
        loss = BucketSetting.of(sizes, case["paper"]).loss
        try:
            found = two_size(case["o"], privacy, case["S2"])
        except InfeasibleError:
            return
        assert set(found.sizes) != set(sizes), loss
    else:
        assert two_size(case["o"], privacy, case["S2"]).pairs == tuple(
            zip(sizes, case["true"], strict=True)
        )


@pytest.mark.parametrize("file", FILES)
def test_anatomy(golden: Golden, file: str) -> None:
    for case in golden(file):
        expected = case["anatomy"]
        l = expected["l"]
        assert privacy_of(case).corresponding_l() == l, case["id"]
        if expected["eligible"]:
            anatomy(case["o"], l)
        else:
            with pytest.raises(IneligibleError):
                anatomy(case["o"], l)
        # Sizes follow from the number of records alone; with all values distinct it is eligible.
        setting = anatomy(np.ones(case["T"], dtype=np.int64), l)
        assert setting.n_buckets == expected["groups"], case["id"]
        if "setting" in expected:
            assert [list(pair) for pair in setting.pairs] == expected["setting"], case["id"]
            assert setting.loss == expected["loss"], case["id"]
            assert setting.msbs == pytest.approx(expected["msbs"], rel=1e-12), case["id"]


def general_settings_of(case: dict[str, Any]) -> list[tuple[int, BucketSetting]]:
    """All settings of any number of sizes in a case, with their losses."""
    listed = list(case.get("multisize_by_partition_rule", {}).values())
    listed += [case[key] for key in ("general", "general_optimum") if key in case]
    if case.get("general_setting"):
        listed.append({"loss": case["general_loss"], "setting": case["general_setting"]})
    return [
        (entry["loss"], BucketSetting.of(*zip(*entry["setting"], strict=True))) for entry in listed
    ]


def general_loss_of(case: dict[str, Any]) -> int | None:
    if "general_loss" in case:
        return case["general_loss"]
    return (case.get("general") or case["general_optimum"])["loss"]


@pytest.mark.parametrize("file", FILES)
def test_listed_settings_have_an_assignment(golden: Golden, file: str) -> None:
    for case in golden(file):
        listed = [BucketSetting.of(*zip(*one, strict=True)) for one in settings_of(case)]
        of_two_sizes = [(setting.loss, setting) for setting in listed]
        for loss, setting in general_settings_of(case) + of_two_sizes:
            assert setting.loss == loss, case["id"]
            limits = privacy_of(case).occurrence_limits(setting.sizes)
            assert is_valid(case["o"], limits, setting), case["id"]
            partition = partition_records(case["o"], limits, setting)
            assert partition.sum(axis=1).tolist() == case["o"], case["id"]
            assert (-(-partition // setting.counts) <= limits).all(), case["id"]
            assert round_robin(partition, setting).n_records.sum() == case["T"], case["id"]


@pytest.mark.parametrize("file", FILES)
def test_optimal(golden: Golden, file: str) -> None:
    for case in golden(file):
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


def test_the_paper_s_program(golden: Golden) -> None:
    for case in golden("bucket_small"):
        expected = general_loss_of(case)
        if expected is not None:
            found = optimal(case["o"], privacy_of(case), case["M_prime"], formulation="paper")
            assert found.proof.objective == found.proof.lower_bound == expected, case["id"]


@pytest.mark.parametrize("file", FILES)
def test_multi_size_is_as_good_as_the_best_partition_rule(golden: Golden, file: str) -> None:
    for case in golden(file):
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
        assert optimum <= setting.loss <= best_rule, case["id"]
        limits = privacy.occurrence_limits(setting.sizes)
        assert is_valid(case["o"], limits, setting), case["id"]
