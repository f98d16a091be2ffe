"""Writing QIT and SAT to files that say nothing about who has which value.

The rows of the QIT are in the order of a random key of their own: sorted by bucket or by what ranks
were drawn by, neighbors would tell of each other. Which file a row is in follows from this key
alone, and so do the sizes of files and what their statistics say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kanon_db.query.layout import QIT, SAT
from kanon_db.spark.buckets.dealing import BUCKET, n_parts, part_of
from kanon_db.spark.buckets.values import BEFORE, CODE, RECORDS, VALUE, NumberedValues
from kanon_db.spark.chance import ORDER
from kanon_db.spark.environment import in_own_words
from kanon_db.spark.kind import SparkJob
from kanon_db.spark.tables import folder_of, write_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_qit(job: SparkJob, assigned: DataFrame, layout: Mapping[str, Any]) -> None:
    """Write the quasi-identifiers with their bucket, in a new random order."""
    from pyspark.sql import functions as f

    parts = n_parts(job.snapshot.n_records)
    published = [
        f.col(job.snapshot.column(name)).alias(name) for name in layout["quasi_identifiers"]
    ]
    with in_own_words("the quasi-identifier table could not be written"):
        ordered = assigned.repartitionById(parts, part_of(ORDER, parts)).sortWithinPartitions(ORDER)
        rows = ordered.select(*published, f.col(BUCKET).alias(layout["bucket_id"]))
        write_table(rows, job.staging.tables / folder_of(QIT))


def write_sat(
    job: SparkJob,
    assigned: DataFrame,
    values: NumberedValues,
    layout: Mapping[str, Any],
    n_buckets: int,
) -> DataFrame:
    """Write how often each sensitive value occurs in each bucket, by value and bucket."""
    from pyspark.sql import functions as f

    folder = job.staging.tables / folder_of(SAT)
    known = f.broadcast(values.frame.withColumnRenamed(CODE, "place"))
    # Files ascend with value and bucket, and have about as many rows each.
    parts = n_parts(job.snapshot.n_records)
    share = f.col(RECORDS) * (f.col(BUCKET) - 1).cast("double") / n_buckets
    file = ((f.col(BEFORE) + share) * parts / max(1, job.snapshot.n_records)).cast("int")
    in_turn = f.shiftleft(f.col("place").cast("long"), 31) + f.col(BUCKET)
    with in_own_words("the sensitive table could not be written"):
        counted = assigned.groupBy(BUCKET, CODE).agg(f.count("*").cast("int").alias("n"))
        rows = (
            counted.join(known, counted[CODE] == f.col("place"))
            .repartitionById(parts, file)
            .sortWithinPartitions(in_turn)
            .select(
                f.col(BUCKET).alias(layout["bucket_id"]),
                f.col(VALUE).alias(layout["sensitive"]),
                f.col("n").alias(layout["count"]),
            )
        )
        write_table(rows, folder)
        return job.session.read.parquet(folder.path)
