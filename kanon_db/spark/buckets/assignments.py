"""The assignments of records to buckets, all with the same signature."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from kanon_db.algorithms.bucketization import two_size
from kanon_db.algorithms.bucketization.bucket_assignment import partition_records, round_robin
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.publications.buckets import methods
from kanon_db.publications.buckets.assignment_methods import CellSearch
from kanon_db.publications.buckets.bucket_relations import number_buckets
from kanon_db.publications.buckets.methods import SensitiveValues
from kanon_db.publications.kind import MethodResult, run_method
from kanon_db.randomness import SecureRandom
from kanon_db.spark.buckets.cutting import cut
from kanon_db.spark.buckets.dealing import PART, SLICE, Slices, dealt, part_of
from kanon_db.spark.buckets.gathering import RECORDS_OF_PART, gathered
from kanon_db.spark.buckets.values import CODE, NumberedValues
from kanon_db.spark.chance import ORDER, RANK
from kanon_db.spark.kind import SparkJob
from kanon_db.spark.snapshot import RECORD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, eq=False)
class Assigned:
    """A bucket setting, and the bucket of each record.

    Attributes
    ----------
    setting : BucketSetting
    frame : DataFrame
        Of the snapshot the quasi-identifiers and the key of its order, with ``bucket`` (the
        published number) and ``code`` (of the sensitive value).
    cells : int or None
        How many cells no bucket crosses; None if buckets do not depend on quasi-identifiers, or
        on more than these.
    """

    setting: BucketSetting
    frame: DataFrame
    cells: int | None = None


def random(job: SparkJob, data: SensitiveValues, values: NumberedValues) -> MethodResult:
    """Draw records into buckets, from the whole table."""
    job.voice.step("searching the bucket setting")
    found = run_method(methods, job, data)
    plan = found.result
    allotment = round_robin(partition_records(data.counts, plan.limits, plan.setting), plan.setting)
    numbers = number_buckets(plan.setting, SecureRandom())
    job.voice.step("assigning records to buckets")
    slices = Slices.of(np.array([job.snapshot.n_records]), data.counts.size)
    own = part_of(RANK, slices.part.size)
    coded = _coded(job, values).withColumns({SLICE: own, PART: own})
    frame = dealt(coded, slices, data.counts.size, allotment, numbers)
    return MethodResult(Assigned(plan.setting, frame), found.proof)


def cells(job: SparkJob, data: SensitiveValues, values: NumberedValues) -> MethodResult:
    """Draw records into buckets, inside cells of similar records."""
    from kanon_db.algorithms.bucketization.cell_assignment import allot_cells  # a compiler

    if not job.snapshot.n_records:
        return random(job, data, values)
    search, m = CellSearch(job, data), data.counts.size
    found = cut(
        job, _coded(job, values), m, search.tightened, search.max_bucket_size,
        search.pulse,
    )  # fmt: skip
    job.voice.step("searching the bucket settings of cells")
    setting, allotment = allot_cells(found.cells, search.setting, m, pulse=search.pulse)
    numbers = number_buckets(setting, SecureRandom())
    job.voice.step("assigning records to buckets in cells")
    slices = Slices.of(np.array([cell.n_records for cell in found.cells]), m)
    frame = dealt(found.placed(job, slices), slices, m, allotment, numbers)
    return MethodResult(Assigned(setting, frame, len(found.cells)), search.proof)


def local(job: SparkJob, data: SensitiveValues, values: NumberedValues) -> MethodResult:
    """Put records with similar quasi-identifiers into the same bucket, within parts of the table.

    Parts are cut like cells, but large: of at least 262,144 records, so that where
    one machine would be enough there is one part. Each is one for which there are buckets.
    """

    def unchanged(_factor: Fraction) -> FPrimePrivacy:
        return data.privacy

    largest = job.request.max_bucket_size
    coded = _coded(job, values)
    if not job.snapshot.n_records:
        return random(job, data, values)
    found = cut(
        job, coded, data.counts.size, unchanged, largest, job.pulse(), least=RECORDS_OF_PART
    )
    for part in found.cells:  # says why not, where there are no buckets
        two_size(part.counts, data.privacy, largest)
    job.voice.step("gathering similar records")
    setting, frame = gathered(job, found, data.privacy, largest)
    return MethodResult(Assigned(setting, frame), method="local")


def _coded(job: SparkJob, values: NumberedValues) -> DataFrame:
    """Return what is needed of records, with the codes of their sensitive values."""
    shown = [job.snapshot.column(name) for name in job.source.quasi_identifiers]
    return values.coded(job.snapshot.frame).select(RECORD, RANK, ORDER, *shown, CODE)
