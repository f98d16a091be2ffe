"""Finds a bucket setting: a function for each method, all with the same signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from kanon_db.algorithms.bucketization import anatomy as anatomy_setting
from kanon_db.algorithms.bucketization import two_size as two_size_setting
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.joint_assignment import SensitiveCombinations
from kanon_db.algorithms.bucketization.multi_size import (
    jointly_anatomy,
    jointly_multi_size,
    jointly_optimal,
    jointly_two_size,
)
from kanon_db.algorithms.bucketization.multi_size import multi_size as multi_size_setting
from kanon_db.algorithms.bucketization.multi_size import optimal as optimal_setting
from kanon_db.algorithms.bucketization.privacy import (
    FPrimePrivacy,
    check_eligible,
    describe_rules,
)
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, taken
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.dataclasses import dataclass
from kanon_db.publications.buckets.request import BucketRequest
from kanon_db.publications.guarantees import (
    CORRELATIONS_NOT_COVERED,
    Guarantee,
    SensitiveCounts,
    WarnsCaller,
    largest,
    lists_in_words,
    share_unbounded,
    summed,
    threshold_of_1,
)
from kanon_db.publications.kind import MethodResult
from kanon_db.publications.results import WAITING_NOT_COVERED
from kanon_db.transfer.cell_texts import ListedParts
from kanon_db.transfer.columns import inverse_permutation
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


@dataclass(frozen=True)
class ValueProtection:
    """The greatest frequency that each sensitive value may have in a bucket."""

    attributes: tuple[str, ...]  # The sensitive attributes
    privacies: tuple[FPrimePrivacy, ...]  # The thresholds of each attribute's values
    l: int | None  # The diversity of buckets that have one
    # The greatest share, of all attributes, of the records whose value has a threshold of 1
    unbounded: float
    lists: tuple[str, ...] = ()  # The attributes whose values are lists of codes

    @classmethod
    def of(cls, request: BucketRequest, columns: Mapping[str, SensitiveCounts]) -> ValueProtection:
        """Find the thresholds of the values that a source has.

        Parameters
        ----------
        request : BucketRequest
        columns : mapping of str to SensitiveCounts
            The values of each sensitive attribute.

        Raises
        ------
        IneligibleError
            When no bucketization can keep them.
        InvalidParameterError
            When they bound nothing.
        """
        names, privacies, unbounded = tuple(columns), [], 0.0
        for name, column in columns.items():
            specification = request.privacy.of_attribute(name, names)
            its_name = name if len(names) > 1 else None
            check_eligible(specification, column.labels, column.counts, its_name)
            privacy = specification.thresholds(column.labels, column.counts)
            unbounded = max(unbounded, share_unbounded(privacy, column.counts))
            privacies.append(privacy)
        is_diverse = request.method == "anatomy" or request.assignment == "m_invariant"
        l = max(privacy.corresponding_l() for privacy in privacies) if is_diverse else None
        lists = [n for n, c in columns.items() if ListedParts.of(c.labels, c.counts.tolist())]
        return cls(names, tuple(privacies), l, unbounded, tuple(lists))

    def data_of(
        self, sensitive: DistinctCombinations, codes: CodeArray
    ) -> tuple[SensitiveValues | CombinedValues, CodeArray]:
        """Return what a method needs of the values that were read, and the code of each record's.

        Attributes are in the order of their names: which is registered first decides nothing.
        """
        if len(self.attributes) == 1:
            (own,) = sensitive.columns
            return SensitiveValues(sensitive.counts, self.privacies[0], own.labels), codes
        places = sorted(range(len(self.attributes)), key=self.attributes.__getitem__)
        values = sensitive.values[:, places]
        order = np.lexsort(values.T[::-1])
        found = CombinedValues(
            sensitive.counts[order], values[order],
            tuple(self.privacies[place] for place in places),
            [sensitive.columns[place].labels for place in places],
        )  # fmt: skip
        return found, taken(inverse_permutation(order), codes)

    def guarantee(
        self, request: BucketRequest, certain: int, session: WarnsCaller
    ) -> BucketGuarantee:
        """Say what is guaranteed, and warn of the people for whom it is not.

        Parameters
        ----------
        request : BucketRequest
        certain : int
            People whose bucket has no other value than theirs.
        session : WarnsCaller
        """
        unbounded = self.unbounded if self.l is None else 0.0
        if unbounded:
            session.warn(f"the threshold is 1 for {unbounded:.1%} of the records: no bound")
        if certain:
            session.warn(f"the value of {certain} people is certain: their buckets have no other")
        return BucketGuarantee(
            attributes=self.attributes,
            l=self.l,
            rules=request.privacy.figures,
            is_over_time=request.assignment == "m_invariant",
            lists=self.lists,
            unbounded=unbounded,
            certain=certain if self.l is None else 0,
        )


@dataclass(frozen=True, kw_only=True)
class BucketGuarantee(Guarantee):
    """No value is inferred with a probability above its threshold, or above 1/l."""

    attributes: tuple[str, ...]  # The sensitive attributes
    l: int | None  # The diversity of buckets that have one; others keep thresholds
    rules: Mapping[str, Any]  # From which the thresholds follow; see `PrivacySpecification`
    is_over_time: bool = False  # Whether it holds for all states of a publication together
    lists: tuple[str, ...] = ()  # Those whose values are lists of codes
    unbounded: float = largest()  # The share of the records whose value has a threshold of 1
    certain: int = summed()  # People whose bucket has no other value than theirs

    @property
    def bounded(self) -> Sequence[str]:
        """All of them."""
        return self.attributes

    @property
    def short(self) -> str:
        """See :attr:`.Guarantee.short`."""
        of = ", ".join(self.attributes)
        if self.l is not None:
            return f"{self.l}-diversity of {of}"
        return f"F'-privacy of {of} ({describe_rules(self.rules)})"

    @property
    def promise(self) -> str:
        """See :attr:`.Guarantee.promise`."""
        value = "sensitive value"
        if len(self.attributes) > 1:
            value = f"{', '.join(self.attributes[:-1])} or {self.attributes[-1]}"
        inferred = f"no person's {value} can be inferred with a probability above"
        if self.l is not None:
            over_time = ", also from all its states together while people come and go, unless"
            said = f"{self.l}-diversity: {inferred} 1/{self.l}"
            return f"{said}{over_time} values change" if self.is_over_time else said
        return (
            f"bound on guessing (F'-privacy): {inferred} the threshold of that value"
            f" ({describe_rules(self.rules)})"
        )

    @property
    def conditions(self) -> Sequence[str]:
        """See :attr:`.Guarantee.conditions`."""
        said = [
            "whoever knows one person's value can learn those of many who left"
            if self.is_over_time
            else "",
            "whoever knows one of these of a person can be surer of another, without a bound,"
            " since buckets show which of them go together"
            if len(self.attributes) > 1
            else "",
            lists_in_words(self.lists),
            CORRELATIONS_NOT_COVERED,
            f"{WAITING_NOT_COVERED}, is not covered",
            threshold_of_1(self.unbounded),
            f"the value of {self.certain} people is certain" if self.certain else "",
        ]
        return [one for one in said if one]


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
    options, most = request.options, request.max_bucket_size
    formulation, solver, pulse = (
        options.formulation, options.solver, pulse.within(options.time_limit)
    )  # fmt: skip
    if isinstance(data, SensitiveCombinations):
        plan = jointly_optimal(data, most, formulation=formulation, solver=solver, pulse=pulse)
        return MethodResult(plan, plan.proof)
    found = optimal_setting(
        data.counts, data.privacy, most, formulation=formulation, solver=solver, pulse=pulse
    )
    return MethodResult(plan_of(data, found.setting), found.proof)


def plan_of(data: SensitiveValues, setting: BucketSetting) -> BucketPlan:
    """Return a setting with the limits that follow from the thresholds."""
    return BucketPlan(setting, data.privacy.occurrence_limits(setting.sizes))
