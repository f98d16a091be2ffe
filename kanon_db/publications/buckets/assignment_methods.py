"""Assigns records to buckets: a function for each assignment, all with the same signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from kanon_db.algorithms.bucketization.bucket_assignment import (
    draw_allotted,
    partition_records,
    round_robin,
)
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.joint_assignment import (
    JointPlan,
    SensitiveCombinations,
    deal_randomly,
)
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, CodeArray, IntArray
from kanon_db.algorithms.ground.computation import Proof, Pulse
from kanon_db.algorithms.releases.m_invariance import NEW, renew
from kanon_db.algorithms.releases.m_invariance import MInvariantRelease as Dealt
from kanon_db.catalog.entries import Publication
from kanon_db.dataclasses import dataclass
from kanon_db.publications.buckets import methods
from kanon_db.publications.buckets.methods import CombinedValues, SensitiveValues
from kanon_db.publications.buckets.request import BucketRequest
from kanon_db.publications.kind import Job, MethodResult, SearchJob, run_method
from kanon_db.randomness import SecureRandom
from kanon_db.transfer.values import CodedColumn, distinct_values, read_codes


class CellSearch:
    """Finds the setting of each cell by the method that is asked for.

    Parameters
    ----------
    job : SearchJob
    data : SensitiveValues or CombinedValues
        The sensitive values of the whole table.

    Attributes
    ----------
    pulse : Pulse
        With one time limit for all cells.
    max_bucket_size : int
        The most records in a bucket.
    """

    def __init__(self, job: SearchJob, data: BucketData) -> None:
        request = job.request
        self._job = job
        self._privacies = thresholds_of(data)
        # Anatomy knows l only, and has sizes of its own.
        self._is_anatomy = request.method == "anatomy"
        self._proofs: list[Proof] = []
        self.pulse = job.pulse(
            request.options.time_limit if request.method == "optimal" else float("inf")
        )
        self.max_bucket_size: int = (
            int(data.counts.sum()) if self._is_anatomy else request.max_bucket_size
        )

    def tightened(self, factor: Fraction) -> FPrimePrivacy:
        """Return the thresholds for a factor by which the odds of a guess may have been raised."""
        return self.tightened_each(factor)[0]

    def tightened_each(self, factor: Fraction) -> tuple[FPrimePrivacy, ...]:
        """Return them for each attribute."""
        each = tuple(privacy.tightened(factor) for privacy in self._privacies)
        if not self._is_anatomy:
            return each
        # The same for all: no value of any attribute may occur twice in a bucket.
        l = max(privacy.corresponding_l() for privacy in each)
        return tuple(privacy.diverse(l) for privacy in each)

    def plan(self, data: SensitiveCombinations) -> JointPlan:
        """Find the buckets of a cell, for several attributes."""
        found = run_method(methods, self._job, data, self.pulse)
        if found.proof is not None:
            self._proofs.append(found.proof)
        plan: JointPlan = found.result
        return plan

    def setting(self, counts: IntArray, privacy: FPrimePrivacy) -> BucketSetting:
        """Find the setting of a cell."""
        found = run_method(methods, self._job, SensitiveValues(counts, privacy), self.pulse)
        if found.proof is not None:
            self._proofs.append(found.proof)
        setting: BucketSetting = found.result.setting
        return setting

    @property
    def proof(self) -> Proof | None:
        """How close all cells together are to the optimum, by a method that knows."""
        if not self._proofs:
            return None
        return Proof(
            sum((proof.objective for proof in self._proofs), Fraction(0)),
            sum((proof.lower_bound for proof in self._proofs), Fraction(0)),
        )


@dataclass(frozen=True, eq=False)
class AssignedRecords:
    """A bucket setting, and the bucket of each record: numbered by size, from 0."""

    setting: BucketSetting
    slots: CodeArray  # (n_records,)
    # How many cells no bucket crosses; None if buckets do not depend on quasi-identifiers, or on
    # more than these
    cells: int | None = None
    signed: BucketSignatures | None = None  # The signatures of buckets that keep them


Columns = Mapping[str, CodedColumn]
"""The quasi-identifiers with few values, by name."""

BucketData: TypeAlias = SensitiveValues | CombinedValues
"""The sensitive values of the whole table, of one attribute or of several."""


def thresholds_of(data: BucketData) -> tuple[FPrimePrivacy, ...]:
    """Return the thresholds of each attribute's values."""
    return data.privacies if isinstance(data, CombinedValues) else (data.privacy,)


def random(
    job: Job[BucketRequest],
    data: BucketData,
    codes: CodeArray,
    columns: Columns,  # noqa: ARG001
) -> MethodResult:
    """Draw records into buckets, from the whole table."""
    job.session.step("searching the bucket setting")
    found = run_method(methods, job, data)
    plan = found.result
    job.session.step("assigning records to buckets")
    if isinstance(plan, JointPlan):
        job.random.settle(data.labels, plan.buckets)
        slots = deal_randomly(codes, plan, job.random)
    else:
        partition = partition_records(data.counts, plan.limits, plan.setting)
        allotment = round_robin(partition, plan.setting)
        job.random.settle(data.labels, *allotment.arrays)
        slots = draw_allotted(codes, allotment, job.random)
    return MethodResult(AssignedRecords(plan.setting, slots), found.proof)


def cells(
    job: Job[BucketRequest], data: BucketData, codes: CodeArray, columns: Columns
) -> MethodResult:
    """Draw records into buckets, inside cells of similar records."""
    from kanon_db.algorithms.bucketization import cell_assignment  # a compiler

    search = CellSearch(job, data)
    qi_codes = _quasi_identifiers(job, columns)
    settle = partial(job.random.settle, data.labels)
    job.session.step("assigning records to buckets in cells")
    if isinstance(data, CombinedValues):
        found = cell_assignment.assign_jointly_in_cells(
            qi_codes, codes, data.values, search.tightened_each, search.max_bucket_size,
            search.plan, job.random, settle=settle, pulse=search.pulse,
        )  # fmt: skip
    else:
        found = cell_assignment.assign_in_cells(
            qi_codes, codes, search.tightened, search.max_bucket_size, search.setting, job.random,
            settle=settle, pulse=search.pulse,
        )  # fmt: skip
    assigned = AssignedRecords(found.setting, found.bucket_of_record, len(found.tightening))
    return MethodResult(assigned, search.proof)


def m_invariant(
    job: Job[BucketRequest],
    data: BucketData,
    codes: CodeArray,
    columns: Columns,  # noqa: ARG001
) -> MethodResult:
    """Draw records into buckets with the same values each, from the whole table."""
    assert isinstance(data, SensitiveValues)  # noqa: S101  # the request refuses others
    l = data.privacy.corresponding_l()
    job.random.settle(data.labels, l)
    job.session.step("assigning records to buckets")
    drawn = draw_buckets(codes, data.labels, l, job.random, job.pulse())
    return MethodResult(
        AssignedRecords(drawn.setting, drawn.slots, signed=drawn.signed), method="m_invariant"
    )


def _quasi_identifiers(job: Job[BucketRequest], columns: Columns) -> AnyIntArray:
    """Return the codes of quasi-identifiers, of shape (n_records, n_qi)."""
    names = sorted(job.source.quasi_identifiers)  # in whatever order they were registered
    left = [i for i, name in enumerate(names) if name not in columns]
    types = [np.int32 if name not in columns else columns[name].codes.dtype for name in names]
    codes = np.empty((job.records.n_records, len(names)), dtype=np.result_type(*types))
    for i, name in enumerate(names):
        if name in columns:
            codes[:, i] = columns[name].codes
    if left:
        values = [distinct_values(job.snapshot, job.types[names[i]]) for i in left]
        codes[:, left] = read_codes(job.snapshot, values)
        for one in values:
            one.drop()
    return codes


# Buckets whose sets of values, their signatures, stay while people come and go.


FEWEST_BUCKETS: Final = 10
"""Buckets that must share a signature before the ledger keeps who has it: with fewer, the signature
would come close to naming the bucket."""

Labels = tuple[str | None, ...]


@dataclass(frozen=True, eq=False)
class BucketSignatures:
    """The signatures of a bucketization."""

    labels: list[Labels]  # The values of each signature that enough buckets have, as texts
    # (n_records,): the number of each record's signature from 1 on; 0 for another one
    numbers: CodeArray


@dataclass(frozen=True, eq=False)
class DrawnBuckets:
    """Buckets of equal sizes, numbered together, and their signatures."""

    setting: BucketSetting
    slots: CodeArray
    signed: BucketSignatures


def draw_buckets(
    codes: CodeArray, labels: Sequence[str | None], l: int, random: SecureRandom, pulse: Pulse
) -> DrawnBuckets:
    """Draw everybody into buckets that hold l values or more, each once, of few kinds.

    Parameters
    ----------
    codes : ndarray of int32, shape (n_records,)
        The sensitive values; none has more than 1/l of the records.
    labels : sequence of (str or None)
        The values' texts.
    l : int
    random : SecureRandom
    pulse : Pulse
    """
    new = np.full(codes.size, NEW, dtype=np.int64)
    dealt = renew(codes, new, (), l, random, pulse)
    return _numbered(dealt, ~dealt.waits, labels)


@dataclass(frozen=True, eq=False)
class RedrawnRecords:
    """The buckets that :func:`redraw_buckets` found, with the people left in the snapshot."""

    job: Job[Any]
    drawn: DrawnBuckets
    n_stay: int  # See :class:`~kanon_db.publications.kind.RedrawnBuckets`
    n_new: int
    n_left_out: int
    n_waiting: int


def redraw_buckets(job: Job[Any], old: Publication, signature_of: CodeArray) -> RedrawnRecords:
    """Draw people who stay into new buckets of their signatures, and new people into others.

    Parameters
    ----------
    job : Job
        Of everybody who stays or came.
    old : Publication
    signature_of : ndarray of int32, shape (n_records,)
        The number of each record's signature, as in :class:`BucketSignatures`; -1 for new people.
    """
    session = job.session
    values = distinct_values(job.snapshot, job.types[str(job.source.sensitive)])
    codes = read_codes(job.snapshot, [values])[:, 0]
    values.drop()
    labels = list(values.labels)
    known: dict[str | None, int] = {label: code for code, label in enumerate(labels)}
    signatures = []
    for signature in old.layout["signatures"]:
        for label in signature:
            if known.setdefault(label, len(labels)) == len(labels):
                labels.append(label)
        signatures.append(tuple(sorted(known[label] for label in signature)))
    session.step("assigning records to buckets")
    # Whoever has a signature that was not kept cannot be published again.
    l, renewals = int(old.parameters["l"]), int(old.parameters.get("renewals", 0))
    job.random.settle(l, renewals + 1, labels, signatures, signature_of)
    is_known = signature_of != 0
    position = np.where(signature_of > 0, signature_of - 1, NEW)[is_known]
    dealt = renew(codes[is_known], position, signatures, l, job.random, job.pulse())
    placed = is_known.copy()
    placed[is_known] = ~dealt.waits
    is_new = signature_of == NEW
    drawn = _numbered(dealt, ~dealt.waits, labels)
    places = np.where(placed, np.cumsum(placed) - 1, -1).astype(np.int32)
    job = replace(job, records=job.snapshot.keeping(places))
    return RedrawnRecords(
        job,
        drawn,
        int((placed & ~is_new).sum()),
        int((placed & is_new).sum()),
        int((~placed & ~is_new).sum()),
        int((~placed & is_new).sum()),
    )


def _numbered(dealt: Dealt, placed: BoolArray, labels: Sequence[str | None]) -> DrawnBuckets:
    """Give numbers to buckets, by their sizes, and to signatures, as they were found."""
    widths = np.array([len(signature) for signature in dealt.signatures], dtype=np.int64)
    of_bucket: AnyIntArray = dealt.signature_of_bucket
    sizes = widths[of_bucket]
    slot_of_bucket = np.empty(of_bucket.size, dtype=np.int32)
    slot_of_bucket[np.argsort(sizes, kind="stable")] = np.arange(of_bucket.size, dtype=np.int32)
    buckets = dealt.bucket_of[placed]
    heights = np.bincount(of_bucket, minlength=widths.size)
    is_kept = heights >= FEWEST_BUCKETS
    numbers = np.where(is_kept, np.cumsum(is_kept), 0).astype(np.int32)
    kept = [
        tuple(labels[value] for value in dealt.signatures[number])
        for number in np.flatnonzero(is_kept).tolist()
    ]
    return DrawnBuckets(
        BucketSetting.of(*np.unique(sizes, return_counts=True)),
        slot_of_bucket[buckets],
        BucketSignatures(kept, numbers[of_bucket[buckets]]),
    )
