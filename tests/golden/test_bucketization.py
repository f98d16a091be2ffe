"""Settings and refusals against golden/bucket_*.json, found by slow exact enumeration."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kanon_db.algorithms.bucketization.anatomy import anatomy
from kanon_db.algorithms.bucketization.assignment import (
    is_valid,
    partition_records,
    round_robin,
)
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy, PrivacySpecification
from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.algorithms.bucketization.two_size import Pruning, two_size
from kanon_db.errors import IneligibleError, InfeasibleError, InvalidParameterError

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


@pytest.mark.parametrize("file", FILES)
def test_the_listed_optima_have_an_assignment(golden: Golden, file: str) -> None:
    for case in golden(file):
        for pairs in settings_of(case):
            setting = BucketSetting.of(*zip(*pairs, strict=True))
            limits = privacy_of(case).occurrence_limits(setting.sizes)
            partition = partition_records(case["o"], limits, setting)
            most = -(-partition // setting.counts)
            assert (most <= limits).all(), case["id"]
            assert round_robin(partition, setting).n_records.sum() == case["T"], case["id"]


@pytest.mark.parametrize("file", ["bucket_small"])
def test_the_general_optimum_is_never_beaten(golden: Golden, file: str) -> None:
    for case in golden(file):
        if case["two_size_loss"] is not None:
            setting = two_size(case["o"], privacy_of(case), case["M_prime"])
            assert setting.loss >= case["general_loss"], case["id"]


def test_adult_needs_two_sizes_3_and_45(golden: Golden) -> None:
    (case,) = golden("bucket_adult")
    setting = two_size(case["o"], privacy_of(case), 50)
    assert setting.pairs == ((3, 8809), (45, 83))
    assert setting.loss == 195_924


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


def test_more_than_two_sizes_are_refused(golden: Golden) -> None:
    for case in golden("bucket_adult"):
        setting = BucketSetting.of(*zip(*case["general"]["setting"], strict=True))
        assert setting.loss == case["general"]["loss"]
        with pytest.raises(InvalidParameterError, match="at most two sizes"):
            is_valid(case["o"], privacy_of(case).occurrence_limits(setting.sizes), setting)
