"""Finds a bucket setting: a function for each method, all with the same signature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from kanon_db.algorithms.bucketization import anatomy as anatomy_setting
from kanon_db.algorithms.bucketization import multi_size as multi_size_setting
from kanon_db.algorithms.bucketization import optimal as optimal_setting
from kanon_db.algorithms.bucketization import two_size as two_size_setting
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.joint_assignment import (
    SensitiveCombinations,
    jointly_anatomy,
    jointly_multi_size,
    jointly_optimal,
    jointly_two_size,
)
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.publications.buckets.request import BucketRequest
from kanon_db.publications.kind import MethodResult
from kanon_db.transfer.values import DistinctCombinations


@dataclass(frozen=True, eq=False)
class SensitiveValues:
    """The frequency and the threshold of each sensitive value: all that a method needs."""

    counts: IntArray  # (n_values,)
    privacy: FPrimePrivacy  # The thresholds
    labels: Sequence[str | None] = ()  # Their texts, where signatures are kept


@dataclass(frozen=True, eq=False)
class CombinedValues(SensitiveCombinations):
    """The same of several sensitive attributes, of whose values records have combinations."""

    texts: Sequence[Sequence[str | None]] = ()  # Of the values of each attribute

    @property
    def labels(self) -> object:
        """The texts of all combinations."""
        return [*map(list, self.texts)], self.values.tolist()


def data_of(
    sensitive: DistinctCombinations, privacies: Sequence[FPrimePrivacy]
) -> SensitiveValues | CombinedValues:
    """Return what a method needs of the values that were read, and their thresholds."""
    texts = [column.labels for column in sensitive.columns]
    if len(texts) == 1:
        return SensitiveValues(sensitive.counts, privacies[0], texts[0])
    return CombinedValues(sensitive.counts, sensitive.values, tuple(privacies), texts)


@dataclass(frozen=True, eq=False)
class BucketPlan:
    """A bucket setting, and how often each value may occur in a bucket of each size."""

    setting: BucketSetting
    limits: IntArray  # (n_values, n_sizes)
    l: int | None = None  # The diversity of Anatomy's buckets; None for other methods


# A method returns a :class:`BucketPlan`, or of combinations a :class:`.JointPlan`.

Data: TypeAlias = SensitiveValues | SensitiveCombinations


def anatomy(data: Data, request: BucketRequest, pulse: Pulse) -> MethodResult:  # noqa: ARG001
    """Make buckets of l and l + 1 records; neither sizes nor time need limits."""
    if isinstance(data, SensitiveCombinations):
        l = max(privacy.corresponding_l() for privacy in data.privacies)
        return MethodResult(jointly_anatomy(data, l, pulse))
    l = data.privacy.corresponding_l()
    setting = anatomy_setting(data.counts, l)
    limits = np.ones((data.counts.size, len(setting.sizes)), dtype=np.int64)
    return MethodResult(BucketPlan(setting, limits, l))


def two_size(data: Data, request: BucketRequest, pulse: Pulse) -> MethodResult:
    """Find the setting of one or two sizes that loses least."""
    if isinstance(data, SensitiveCombinations):
        return MethodResult(jointly_two_size(data, request.max_bucket_size, pulse))
    setting = two_size_setting(data.counts, data.privacy, request.max_bucket_size, pulse=pulse)
    return MethodResult(plan_of(data, setting))


def multi_size(data: Data, request: BucketRequest, pulse: Pulse) -> MethodResult:
    """Find a setting of more sizes, which loses less."""
    if isinstance(data, SensitiveCombinations):
        return MethodResult(jointly_multi_size(data, request.max_bucket_size, pulse))
    setting = multi_size_setting(data.counts, data.privacy, request.max_bucket_size, pulse=pulse)
    return MethodResult(plan_of(data, setting))


def optimal(data: Data, request: BucketRequest, pulse: Pulse) -> MethodResult:
    """Find the setting that loses least of all."""
    formulation, pulse = request.options.formulation, pulse.within(request.options.time_limit)
    if isinstance(data, SensitiveCombinations):
        plan = jointly_optimal(data, request.max_bucket_size, formulation=formulation, pulse=pulse)
        return MethodResult(plan, plan.proof)
    found = optimal_setting(
        data.counts, data.privacy, request.max_bucket_size, formulation=formulation, pulse=pulse
    )
    return MethodResult(plan_of(data, found.setting), found.proof)


def plan_of(data: SensitiveValues, setting: BucketSetting) -> BucketPlan:
    """Return a setting with the limits that follow from the thresholds."""
    return BucketPlan(setting, data.privacy.occurrence_limits(setting.sizes))
