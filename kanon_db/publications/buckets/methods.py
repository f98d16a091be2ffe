"""Finds a bucket setting: a function for each method, all with the same signature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kanon_db.algorithms.bucketization import anatomy as anatomy_setting
from kanon_db.algorithms.bucketization import multi_size as multi_size_setting
from kanon_db.algorithms.bucketization import optimal as optimal_setting
from kanon_db.algorithms.bucketization import two_size as two_size_setting
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.publications.buckets.request import BucketRequest
from kanon_db.publications.kind import MethodResult


@dataclass(frozen=True, eq=False)
class SensitiveValues:
    """The frequency and the threshold of each sensitive value: all that a method needs."""

    counts: IntArray  # (n_values,)
    privacy: FPrimePrivacy  # The thresholds
    labels: Sequence[str | None] = ()  # Their texts, where signatures are kept


@dataclass(frozen=True, eq=False)
class BucketPlan:
    """A bucket setting, and how often each value may occur in a bucket of each size."""

    setting: BucketSetting
    limits: IntArray  # (n_values, n_sizes)
    l: int | None = None  # The diversity of Anatomy's buckets; None for other methods


def anatomy(data: SensitiveValues, request: BucketRequest, pulse: Pulse) -> MethodResult:  # noqa: ARG001
    """Make buckets of l and l + 1 records; neither sizes nor time need limits."""
    l = data.privacy.corresponding_l()
    setting = anatomy_setting(data.counts, l)
    limits = np.ones((data.counts.size, len(setting.sizes)), dtype=np.int64)
    return MethodResult(BucketPlan(setting, limits, l))


def two_size(data: SensitiveValues, request: BucketRequest, pulse: Pulse) -> MethodResult:
    """Find the setting of one or two sizes that loses least."""
    setting = two_size_setting(data.counts, data.privacy, request.max_bucket_size, pulse=pulse)
    return MethodResult(plan_of(data, setting))


def multi_size(data: SensitiveValues, request: BucketRequest, pulse: Pulse) -> MethodResult:
    """Find a setting of more sizes, which loses less."""
    setting = multi_size_setting(data.counts, data.privacy, request.max_bucket_size, pulse=pulse)
    return MethodResult(plan_of(data, setting))


def optimal(data: SensitiveValues, request: BucketRequest, pulse: Pulse) -> MethodResult:
    """Find the setting that loses least of all."""
    found = optimal_setting(
        data.counts,
        data.privacy,
        request.max_bucket_size,
        formulation=request.options.formulation,
        pulse=pulse.within(request.options.time_limit),
    )
    return MethodResult(plan_of(data, found.setting), found.proof)


def plan_of(data: SensitiveValues, setting: BucketSetting) -> BucketPlan:
    """Return a setting with the limits that follow from the thresholds."""
    return BucketPlan(setting, data.privacy.occurrence_limits(setting.sizes))
