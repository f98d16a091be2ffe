"""Publishes bucketizations of records on many machines: writes, verifies and attacks QIT and SAT.

Nothing is learned here: questions are answered by the paper's estimator, until a publication is
loaded into PostgreSQL.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kanon_db.algorithms.bucketization.privacy import PrivacySpecification
from kanon_db.catalog.entries import Publication, Source
from kanon_db.errors import InfeasibleError, InvalidParameterError
from kanon_db.publications.buckets.bucket_measurement import attack_buckets, evaluate_buckets
from kanon_db.publications.buckets.bucket_relations import bucket_layout
from kanon_db.publications.buckets.kind import BucketFindings, CountedBuckets
from kanon_db.publications.buckets.methods import SensitiveValues, ValueProtection
from kanon_db.publications.buckets.request import BucketRequest
from kanon_db.publications.guarantees import exposure_statement
from kanon_db.publications.kind import MethodResult, Workload, Written
from kanon_db.publications.results import Attack, Check, CountAccuracy, Examination
from kanon_db.query.layout import QIT, SAT, BucketTables
from kanon_db.spark._coded_records import (
    BEFORE,
    CODE,
    RECORDS,
    VALUE,
    ValueList,
    read_values,
)
from kanon_db.spark._publication_folder import Folder, Manifest
from kanon_db.spark._spark_kind import SparkJob, SparkKind, SparkResult, SparkTarget
from kanon_db.spark._tables import (
    ORDER_KEY,
    SCHEMA,
    PublishedTables,
    fetch_one,
    folder_of,
    read_table,
    text_of_column,
    write_table,
)
from kanon_db.spark.environment import failures_as_errors, own_session
from kanon_db.spark.kinds import _bucket_dealing
from kanon_db.spark.kinds._bucket_dealing import BUCKET, DealtRecords, n_parts, part_of
from kanon_db.transfer.columns import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


# A bucketization as one table, in which ``sum(weight)`` counts: QIT joined with SAT.


def weighted_view(session: SparkSession, target: str) -> DataFrame:
    """Join QIT and SAT, as the view of this name does in PostgreSQL."""
    own = own_session(session)
    folder = Folder(own, target)
    manifest = Manifest.of(folder)
    publication = manifest.publication
    if publication.kind != "buckets":
        raise InvalidParameterError(
            "only buckets have a weighted view",
            detail=f"{folder} is of the kind {publication.kind}",
        )
    tables = PublishedTables(
        own,
        {
            publication.name + suffix: read_table(
                own, folder / manifest.release / folder_of(suffix), manifest.tables[suffix]
            )
            for suffix in (QIT, SAT)
        },
    )
    names = BucketTables.of(tables, SCHEMA, publication.name, publication.layout)
    columns = ", ".join(f"q.{name}" for name in names.quasi_identifiers)
    found = tables.select(
        f"SELECT {columns}, {names.values('s')},"
        f" s.{names.count}::float8 / {names.size(f's.{names.bucket_id}')} AS {names.weight}"
        f" FROM {names.qit} AS q JOIN {names.sat} AS s ON q.{names.bucket_id} = s.{names.bucket_id}"
    )
    tables.drop()
    return found


# Writing QIT and SAT to files that say nothing about who has which value.
#
# The rows of the QIT are in the order of a random key of their own: sorted by bucket or by what
# ranks were drawn by, neighbors would tell of each other. Which file a row is in follows from this
# key alone, and so do the sizes of files and what their statistics say.


def write_qit(job: SparkJob, assigned: DataFrame, layout: Mapping[str, Any]) -> None:
    """Write the quasi-identifiers with their bucket, in a new random order."""
    from pyspark.sql import functions as f

    parts = n_parts(job.snapshot.n_records)
    published = [
        f.col(job.snapshot.column(name)).alias(name) for name in layout["quasi_identifiers"]
    ]
    with failures_as_errors("the quasi-identifier table could not be written"):
        ordered = assigned.repartitionById(parts, part_of(ORDER_KEY, parts)).sortWithinPartitions(
            ORDER_KEY
        )
        rows = ordered.select(*published, f.col(BUCKET).alias(layout["bucket_id"]))
        write_table(rows, job.staging.tables / folder_of(QIT))


def write_sat(
    job: SparkJob,
    assigned: DataFrame,
    values: ValueList,
    layout: Mapping[str, Any],
    n_buckets: int,
) -> DataFrame:
    """Write how often each sensitive value occurs in each bucket, by value and bucket."""
    from pyspark.sql import functions as f

    folder = job.staging.tables / folder_of(SAT)
    known = values.frame(job.session, _type_of_values(job)).withColumnRenamed(CODE, "place")
    # Files ascend with value and bucket, and have about as many rows each.
    parts = n_parts(job.snapshot.n_records)
    share = f.col(RECORDS) * (f.col(BUCKET) - 1).cast("double") / n_buckets
    file = ((f.col(BEFORE) + share) * parts / max(1, job.snapshot.n_records)).cast("int")
    in_turn = f.shiftleft(f.col("place").cast("long"), 31) + f.col(BUCKET)
    with failures_as_errors("the sensitive table could not be written"):
        counted = assigned.groupBy(BUCKET, CODE).agg(f.count("*").cast("int").alias("n"))
        rows = (
            counted.join(f.broadcast(known), counted[CODE] == f.col("place"))
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


def _type_of_values(job: SparkJob) -> DataType:
    column = job.snapshot.column(str(job.source.sensitive))
    return job.snapshot.frame.schema[column].dataType


# Verifying and measuring a bucketization in files.
#
# The statements are written for PostgreSQL, and translated; that on thresholds is the one which
# runs there, too. They share nothing with the algorithms, and read all files.


def examine_spark_buckets(
    tables: PublishedTables, publication: Publication, whole: Check
) -> Examination:
    """Check everything that a bucketization promises, and measure it."""
    layout, parameters = publication.layout, publication.parameters
    names = BucketTables.of(tables, SCHEMA, publication.name, layout)
    qit = _counted(tables, names, f"SELECT q.{names.bucket_id} AS id, 1 AS n FROM {names.qit} AS q")
    sat = _counted(
        tables, names, f"SELECT s.{names.bucket_id} AS id, s.{names.count} AS n"
        f" FROM {names.sat} AS s"
    )  # fmt: skip
    repeated = fetch_one(
        tables,
        "SELECT count(*) AS n FROM (SELECT 1 AS one FROM"
        f" {names.sat} AS s GROUP BY s.{names.bucket_id}, {names.values('s')}"
        " HAVING count(*) > 1) AS pair",
    )["n"]
    findings = BucketFindings(
        qit, sat, repeated, count_certain(tables, names),
        {str(layout["sensitive"]): _exposure(tables, publication, names)},
    )  # fmt: skip
    return findings.judged(names.n_buckets, parameters, publication.records, whole)


def count_certain(tables: PublishedTables, names: BucketTables) -> int:
    """Count the people whose bucket has no other value than theirs."""
    found = fetch_one(
        tables,
        f"SELECT coalesce(sum(s.{names.count}), 0)::int8 AS n FROM {names.sat} AS s"
        f" WHERE s.{names.count} = {names.size(f's.{names.bucket_id}')}",
    )
    return int(found["n"])


def _counted(tables: PublishedTables, names: BucketTables, rows: str) -> CountedBuckets:
    """Count the records of each bucket, of rows with its number and how many records they are."""
    found = tables.fetch(
        "SELECT b.is_readable, b.n, b.size, count(*) AS buckets, sum(b.rows)::int8 AS rows"
        f" FROM (SELECT k.is_readable, {names.size('k.id')} AS size, sum(k.n)::int8 AS n,"
        " count(*) AS rows FROM (SELECT r.id, r.n,"
        f" coalesce(r.id BETWEEN 1 AND {names.n_buckets} AND r.n >= 1, false) AS is_readable"
        f" FROM ({rows}) AS r) AS k GROUP BY k.is_readable, k.id) AS b"
        " GROUP BY b.is_readable, b.n, b.size"
    )
    known = [row for row in found if row["is_readable"]]
    of_sizes: Counter[int] = Counter()
    for row in known:
        of_sizes[row["n"]] += row["buckets"]
    as_promised = sum(row["buckets"] for row in known if row["n"] == row["size"])
    return CountedBuckets(
        records=sum(row["n"] * row["buckets"] for row in known),
        differing=names.n_buckets - as_promised,
        unreadable=sum(row["rows"] for row in found if not row["is_readable"]),
        of_sizes=dict(sorted(of_sizes.items())),
    )


def _exposure(tables: PublishedTables, publication: Publication, names: BucketTables) -> Any:
    """Compare how frequent values are with their thresholds, by the statement of PostgreSQL."""
    layout, parameters = publication.layout, publication.parameters
    privacy = PrivacySpecification.parse(json.dumps(parameters["privacy"]))
    sensitive = str(layout["sensitive"])
    sat = tables.frames[publication.name + SAT]
    column = ColumnType(sensitive, str(layout["types"][sensitive]["type"]), "", None, True)
    labelled = PublishedTables(
        tables.session,
        {
            "sat": sat.select(
                text_of_column(sat["`" + sensitive + "`"], column).alias("value"),
                sat["`" + layout["count"] + "`"].alias("count"),
                sat["`" + layout["bucket_id"] + "`"].alias("id"),
            )
        },
    )
    profile = (
        "SELECT p.value, p.count::numeric AS count, p.size::numeric AS size,"
        " count(*)::numeric AS buckets FROM (SELECT s.value, s.count,"
        f" {names.size('s.id')} AS size FROM sat AS s) AS p GROUP BY p.value, p.count, p.size"
    )
    statement, bound = exposure_statement(privacy, profile, l=str(parameters.get("l", 1)))
    try:
        return fetch_one(labelled, statement, *bound)
    finally:
        labelled.drop()


# Publishing a bucketization from records on many machines; see the kind in PostgreSQL.


_MOST_BUCKETS: Final = 2**28
"""Their numbers are a permutation, which every machine gets: a gigabyte."""

_REFUSED: Final = {
    "m_invariant": "who keeps which signature follows from a refresh, which is made in PostgreSQL",
}
"""Assignments that stay on one machine, and why."""


class SparkBuckets(SparkKind):
    """The kind ``buckets``."""

    suffixes = (QIT, SAT)
    shows_values = True

    def refuse(self, request: BucketRequest, source: Source) -> None:  # noqa: ARG002
        """Refuse assignments that stay on one machine, and weights that are not learned."""
        if not hasattr(_bucket_dealing, request.assignment):
            raise InvalidParameterError(
                f"the assignment {request.assignment} is not made on Spark",
                detail=_REFUSED.get(request.assignment, ""),
                hint="give assignment => 'random', or publish in PostgreSQL",
            )
        if request.estimates == "uncapped":
            raise InvalidParameterError(
                "uncapped weights of values are not learned on Spark",
                detail="questions to files are answered by the paper's estimator, and loading into"
                " PostgreSQL learns weights that keep the thresholds",
                hint="leave out estimates, or publish in PostgreSQL",
            )

    def make(self, job: SparkJob) -> SparkResult:
        """Find a bucket setting, and the bucket of each record; write QIT and SAT."""
        values = read_values(job, str(job.source.sensitive))
        protection = ValueProtection.of(job.request, {str(job.source.sensitive): values})
        (privacy,) = protection.privacies
        data = SensitiveValues(values.counts, privacy, values.labels)
        found: MethodResult = getattr(_bucket_dealing, job.request.assignment)(job, data, values)
        return SparkResult(found, self._write(job, found.result, values, protection))

    def _write(
        self,
        job: SparkJob,
        assigned: DealtRecords,
        values: ValueList,
        protection: ValueProtection,
    ) -> Written:
        setting = assigned.setting
        if setting.n_buckets > _MOST_BUCKETS:
            raise InfeasibleError(
                "there are too many buckets",
                detail=f"{setting.n_buckets:,}, of which {_MOST_BUCKETS:,} can be numbered",
                hint="publish parts of the source, such as regions, apart",
            )
        # Both tables are written from files, so that neither depends on how the other is made.
        folder = job.staging.scratch("assigned")
        with failures_as_errors("buckets could not be assigned"):
            assigned.frame.write.parquet(folder.path)
            frame = job.session.read.parquet(folder.path)
        layout = bucket_layout(job.source, setting)
        job.voice.step("writing the quasi-identifier table")
        write_qit(job, frame, layout)
        job.voice.step("writing the sensitive table")
        sat = write_sat(job, frame, values, layout, setting.n_buckets)
        is_random = job.request.assignment == "random" or assigned.cells == 1
        layout["assignment"] = "random" if is_random else job.request.assignment
        name = job.request.publication
        tables = PublishedTables(job.session, {name + SAT: sat})
        names = BucketTables.of(tables, SCHEMA, name, layout)
        certain = count_certain(tables, names)
        tables.drop()
        l = protection.l
        return Written(
            protection.guarantee(job.request, certain, job.voice),
            layout=layout,
            parameters={} if l is None else {"l": l},
            metrics={} if assigned.cells is None else {"cells": assigned.cells},
        )

    def examine(
        self, tables: PublishedTables, publication: Publication, whole: Check
    ) -> Examination:
        """See :func:`examine_spark_buckets`."""
        return examine_spark_buckets(tables, publication, whole)

    def attack(self, target: SparkTarget) -> list[Attack]:
        """See :func:`attack_buckets`."""
        return attack_buckets(target)

    def evaluate(self, target: SparkTarget, workload: Workload) -> list[CountAccuracy]:
        """See :func:`evaluate_buckets`."""
        return evaluate_buckets(target, workload)


KIND: Final[Any] = SparkBuckets()
