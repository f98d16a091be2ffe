"""The assignments of records to buckets, all with the same signature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kanon_db.algorithms.bucketization.assignment import partition_records, round_robin
from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.publications.buckets import methods
from kanon_db.publications.buckets.methods import SensitiveValues
from kanon_db.publications.buckets.writing import number_buckets
from kanon_db.publications.kind import Found
from kanon_db.publications.searching import run_method
from kanon_db.randomness import SecureRandom
from kanon_db.spark.buckets.dealing import dealt
from kanon_db.spark.buckets.values import NumberedValues
from kanon_db.spark.kind import SparkJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, eq=False)
class Assigned:
    """A bucket setting, and the bucket of each record.

    Attributes
    ----------
    setting : BucketSetting
    frame : DataFrame
        The snapshot without its number and the key of its rank, with ``bucket`` (the published
        number) and ``code`` (of the sensitive value) in place of that.
    cells : int or None
        How many cells no bucket crosses; None if buckets do not depend on quasi-identifiers.
    """

    setting: BucketSetting
    frame: DataFrame
    cells: int | None = None


def random(job: SparkJob, data: SensitiveValues, values: NumberedValues) -> Found:
    """Draw records into buckets, from the whole table."""
    job.voice.step("searching the bucket setting")
    found = run_method(methods, job, data)
    plan = found.result
    allotment = round_robin(partition_records(data.counts, plan.limits, plan.setting), plan.setting)
    numbers = number_buckets(plan.setting, SecureRandom())
    job.voice.step("assigning records to buckets")
    coded = values.coded(job.snapshot.frame, job.snapshot.column(str(job.source.sensitive)))
    frame = dealt(coded, job.snapshot.n_records, len(data.counts), allotment, numbers)
    return Found(Assigned(plan.setting, frame), found.proof)
