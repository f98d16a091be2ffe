"""Publishes bucketizations of records on many machines: writes, verifies and attacks QIT and SAT.

The weights of values are learned on the driver, from a sample of whole buckets, and the workers
apply the model to all of them. The QIT has a column with the levels of each record.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.bucketization.buckets import (
    BucketedRecords,
    BucketSetting,
    WeightUnits,
    extreme_shares,
)
from kanon_db.algorithms.bucketization.privacy import PrivacySpecification
from kanon_db.algorithms.bucketization.value_model import (
    MOST_VALUES,
    ValueModel,
    learn,
    levels_of,
    sample_size,
)
from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray
from kanon_db.catalog.entries import Publication, Source
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InfeasibleError, InvalidParameterError, ServerError
from kanon_db.metrics.count_queries import CountQuery
from kanon_db.publications.buckets.bucket_measurement import attack_buckets, evaluate_buckets
from kanon_db.publications.buckets.bucket_relations import (
    Thresholds,
    bucket_layout,
    learnable_attributes,
    most_values,
    weights_check,
)
from kanon_db.publications.buckets.bucket_workload import BucketWorkload, recode
from kanon_db.publications.buckets.kind import (
    BucketFindings,
    CountedBuckets,
    asked_for,
    largest_weights,
    limits_of,
)
from kanon_db.publications.buckets.methods import SensitiveValues, ValueProtection
from kanon_db.publications.buckets.request import BucketRequest
from kanon_db.publications.guarantees import exposure_statement
from kanon_db.publications.kind import MethodResult, Workload, Written
from kanon_db.publications.pipeline import require_protected
from kanon_db.publications.results import Attack, Check, CountAccuracy, Examination
from kanon_db.query.layout import QIT, SAT, SHARES, BucketTables, weight_field
from kanon_db.randomness import SecureRandom
from kanon_db.spark._bucket_store import FieldLevels, SparkStore
from kanon_db.spark._coded_records import (
    BEFORE,
    CODE,
    RECORDS,
    VALUE,
    ValueList,
    as_counted,
    code_column,
    read_few_values,
    read_values,
    with_codes,
)
from kanon_db.spark._spark_kind import (
    NumberedColumn,
    PublishedFolder,
    SparkJob,
    SparkKind,
    SparkResult,
    SparkTarget,
)
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
from kanon_db.spark.environment import (
    failures_as_errors,
    quote_column,
    through_arrow,
)
from kanon_db.spark.kinds import _bucket_dealing
from kanon_db.spark.kinds._bucket_dealing import BUCKET, DealtRecords, n_parts, part_of
from kanon_db.transfer.columns import ColumnType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


def weighted_view(session: SparkSession, target: str) -> DataFrame:
    """Join QIT and SAT, as the view of this name does in PostgreSQL."""
    published = PublishedFolder.of(session, target)
    own, publication = published.session, published.publication
    if publication.kind != "buckets":
        raise InvalidParameterError(
            "only buckets have a weighted view",
            detail=f"{published.folder} is of the kind {publication.kind}",
        )
    tables = PublishedTables(
        own,
        {
            publication.name + suffix: read_table(
                own, published.release / folder_of(suffix), published.manifest.tables[suffix]
            )
            for suffix in (QIT, SAT)
        },
    )
    names = BucketTables.of(tables, SCHEMA, publication.name, publication.layout)
    columns = ", ".join(f"q.{name}" for name in names.quasi_identifiers)
    view = tables.select(
        f"SELECT {columns}, {names.values('s')},"
        f" s.{names.count}::float8 / {names.size(f's.{names.bucket_id}')} AS {names.weight}"
        f" FROM {names.qit} AS q JOIN {names.sat} AS s ON q.{names.bucket_id} = s.{names.bucket_id}"
    )
    tables.drop()
    return view


# Writing QIT and SAT to files that say nothing about who has which value.
#
# The rows of the QIT are in the order of a random key of their own: sorted by bucket or by what
# ranks were drawn by, neighbors would tell of each other. Which file a row is in follows from this
# key alone, and so do the sizes of files and what their statistics say.


def write_qit(
    job: SparkJob, assigned: DataFrame, layout: Mapping[str, Any], n_weights: int = 0
) -> None:
    """Write the quasi-identifiers with their bucket, and so many levels, in a new random order."""
    from pyspark.sql import functions as f

    parts = n_parts(job.snapshot.n_records)
    published = [
        f.col(job.snapshot.column(name)).alias(name) for name in layout["quasi_identifiers"]
    ]
    published.append(f.col(BUCKET).alias(layout["bucket_id"]))
    with failures_as_errors("the quasi-identifier table could not be written"):
        ordered = assigned.repartitionById(parts, part_of(ORDER_KEY, parts)).sortWithinPartitions(
            ORDER_KEY
        )
        if n_weights:
            fields = [weight_field(place) for place in range(n_weights)]
            ordered = through_arrow(ordered, name_levels, _with_levels(ordered, fields), fields)
            published.append(f.col(LEVELS).alias(layout["weights"]))
        write_table(ordered.select(*published), job.staging.tables / folder_of(QIT))


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


# The weights of sensitive values: as in PostgreSQL, learned from QIT and SAT alone.
#
# A model is fitted on the driver to a random sample of whole buckets. Workers get the model, and
# whole buckets: the records of each in the order of their random keys, in which they are published,
# and its values in ascending order, so that nothing says whose value is whose. What they draw
# follows from a seed of the driver and from the bucket that a run begins with. It goes to files
# before anything depends on it, since machines may round differently.


LEVELS: Final = "levels"

_RECORDS_OF_RUN: Final = 2**15
"""Of whole buckets, to which the model is applied at once."""

_RECORDS_OF_TASK: Final = 2**17


@dataclass(frozen=True, eq=False)
class LearnedWeights:
    """A model of the sensitive value, and what its weights are written in."""

    model: ValueModel
    units: WeightUnits
    columns: Mapping[str, ValueList]  # By what the snapshot calls them: it was learned from these
    n_values: int

    @classmethod
    def of(
        cls,
        job: SparkJob,
        assigned: DataFrame,
        sat: PublishedTables,
        values: ValueList,
        setting: BucketSetting,
        layout: Mapping[str, Any],
        parameters: Mapping[str, Any],
    ) -> LearnedWeights | None:
        """Learn from a sample; None where weights are not asked for, or nothing is learned."""
        source, n_records, n_values = job.source, job.snapshot.n_records, values.counts.size
        sensitive = str(source.sensitive)
        names = BucketTables.of(sat, SCHEMA, job.request.publication, layout)
        thresholds = largest_weights(asked_for(job.request, parameters), names)
        if thresholds is None or not n_records or n_values > MOST_VALUES:
            return None
        # Less is learned from in huge tables, for whose levels there would be no room; here is.
        n_alike = min(n_records, _MOST_ALIKE)
        few = read_few_values(job, source.quasi_identifiers, most_values(n_alike))
        n_of_each = {name: len(own.labels) for name, own in few.items()}
        known = learnable_attributes({sensitive: n_values}, n_of_each, names.sizes, n_alike)
        columns = {job.snapshot.column(name): own for name, own in few.items() if name in known}
        if sensitive not in known or not columns:
            return None
        limits = thresholds(sensitive, values.labels, values.counts)
        units = WeightUnits.between(limits, *_extreme_shares(sat, names, values))
        if units is None:
            return None
        job.voice.step("learning how likely values are")
        random = SecureRandom().generator()
        n_codes = [len(own.labels) for own in columns.values()]
        chosen = sample_buckets(setting, sample_size(n_records, n_codes), random)
        sample = _records_of(job, assigned, chosen, columns)
        records = bucketed(sample, [code_column(i) for i in range(len(columns))], n_values)
        model = learn(records, random, job.pulse(), n_codes)
        return None if model is None else cls(model, units, columns, n_values)

    def applied(self, job: SparkJob, assigned: DataFrame) -> DataFrame:
        """Add the levels of each record, and leave out the code of its own value."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import BinaryType, StructType

        job.voice.step("weighing values for each record")
        # Numbers ascend with sizes, which each part has some of.
        parts = max(1, -(-job.snapshot.n_records // _RECORDS_OF_TASK))
        by_bucket = assigned.repartitionById(
            parts, f.col(BUCKET) % f.lit(parts)
        ).sortWithinPartitions(BUCKET, ORDER_KEY)
        fields = [field for field in by_bucket.schema.fields if field.name != CODE]
        schema = StructType([*fields]).add(LEVELS, BinaryType(), nullable=False)
        values = {name: own.array for name, own in self.columns.items()}
        seed = int.from_bytes(SecureRandom().bytes(16))
        known = self.model, self.units, values, self.n_values, seed, schema.names
        weighed = through_arrow(by_bucket, weigh, schema, known)
        return job.keep(weighed, "weighed", "values could not be weighed")

    def write(self, job: SparkJob, values: ValueList, layout: Mapping[str, Any]) -> None:
        """Write which field of the levels each value has, and what a level stands for."""
        from pyspark.sql import functions as f

        known = values.frame(job.session, _type_of_values(job))
        parts = f.array(*(f.lit(one).cast("int") for one in self.units.parts.tolist()))
        rows = known.coalesce(1).sortWithinPartitions(CODE).select(
            f.col(VALUE).alias(layout["sensitive"]), f.col(CODE).alias(layout["weights"]),
            parts[f.col(CODE)].alias(layout["parts"]),
        )  # fmt: skip
        with failures_as_errors("the table of weights could not be written"):
            write_table(rows, job.staging.tables / folder_of(SHARES))


_MOST_ALIKE: Final = 2**24
"""Records up to which attributes of as many values are learned in PostgreSQL."""


def _extreme_shares(
    sat: PublishedTables, names: BucketTables, values: ValueList
) -> tuple[list[Fraction], list[Fraction]]:
    """Find the least and the largest share of each value in the buckets that have it."""
    import pyarrow.compute as pc

    (value,) = names.sensitive.values()
    size = names.size(f"s.{names.bucket_id}")
    statement = (
        f"SELECT DISTINCT s.{value} AS value, s.{names.count} AS n, {size} AS size"
        f" FROM {names.sat} AS s"
    )
    with failures_as_errors("shares of values could not be counted"):
        extremes = sat.select(statement).toArrow()
    codes = pc.index_in(extremes.column("value"), value_set=values.array).to_numpy()
    counts, sizes = (extremes.column(name).to_numpy() for name in ("n", "size"))
    return extreme_shares(codes, counts, sizes, values.counts.size)


def sample_buckets(
    setting: BucketSetting, n_records: int, random: np.random.Generator
) -> CodeArray:
    """Draw buckets that have so many records together, or a few more; return their numbers.

    Examples
    --------
    >>> setting = BucketSetting.of([2, 5], [3, 1])
    >>> sample_buckets(setting, 11, np.random.default_rng(0)).tolist()
    [1, 2, 3, 4]
    """
    n_buckets, ends = setting.n_buckets, np.cumsum(setting.counts)
    n = min(n_buckets, 100 + 2 * n_records * n_buckets // setting.n_records)
    drawn = random.choice(n_buckets, n, replace=False)
    sizes = setting.sizes[np.searchsorted(ends, drawn, side="right")]
    last = int(np.searchsorted(np.cumsum(sizes), n_records, side="left"))
    return np.sort(drawn[: last + 1] + 1).astype(np.int32)


def _records_of(
    job: SparkJob, assigned: DataFrame, chosen: CodeArray, columns: Mapping[str, ValueList]
) -> pa.Table:
    """Read the records of some buckets, as codes."""
    import pyarrow as pa
    from pyspark.sql import functions as f

    own = job.session.createDataFrame(pa.table({BUCKET: chosen}))
    codes = [(name, of, code_column(i)) for i, (name, of) in enumerate(columns.items())]
    with failures_as_errors("a sample of buckets could not be read"):
        kept = assigned.join(f.broadcast(own), BUCKET, "left_semi")
        table = with_codes(kept, codes, [BUCKET, CODE, ORDER_KEY]).toArrow()
    return table.sort_by([(BUCKET, "ascending"), (ORDER_KEY, "ascending")])


def bucketed(records: pa.Table, columns: Sequence[str], n_values: int) -> BucketedRecords:
    """Return the records of whole buckets, which follow each other, apart from their values."""
    buckets, codes = (records.column(name).to_numpy() for name in (BUCKET, CODE))
    starts = np.flatnonzero(np.diff(buckets, prepend=-1, append=-1))
    values = codes[np.lexsort((codes, buckets))].astype(np.int32)
    own = [records.column(name).to_numpy() for name in columns]
    return BucketedRecords(own, values, starts, n_values)


def weigh(known: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add levels to the records of sorted buckets."""
    import pyarrow as pa
    import pyarrow.compute as pc

    model, units, values, n_values, seed, names = known
    for run in whole_buckets(batches, _RECORDS_OF_RUN):
        coded = {
            name: pc.index_in(as_counted(run.column(name)), value_set=of)
            for name, of in values.items()
        }
        if any(codes.null_count for codes in coded.values()):
            raise ServerError("the records have changed while they were weighed")
        own = pa.table({BUCKET: run.column(BUCKET), CODE: run.column(CODE), **coded})
        records = bucketed(own, list(coded), n_values)
        random = np.random.default_rng([seed, run.column(BUCKET)[0].as_py()])
        levels = levels_of(model, units, records, random)
        ends = np.arange(run.num_rows + 1, dtype=np.int32) * n_values
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(levels)]
        added = pa.Array.from_buffers(pa.binary(), run.num_rows, buffers)
        kept = run.append_column(LEVELS, added).select(names).combine_chunks()
        yield from kept.to_batches()


def whole_buckets(batches: Iterator[pa.RecordBatch], n_records: int) -> Iterator[pa.Table]:
    """Divide sorted records into runs of whole buckets, of so many records or a few more."""
    # Where runs end does not depend on how records come in batches.
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    n_waiting = 0
    for batch in batches:
        waiting.append(batch)
        n_waiting += batch.num_rows
        while n_waiting > n_records:
            table = pa.Table.from_batches(waiting)
            numbers = table.column(BUCKET).to_numpy()
            end = int(np.searchsorted(numbers, numbers[n_records - 1], side="right"))
            if end == n_waiting:  # the last bucket may go on
                break
            yield table.slice(0, end)
            waiting, n_waiting = table.slice(end).to_batches(), n_waiting - end
    if n_waiting:
        yield pa.Table.from_batches(waiting)


def name_levels(
    fields: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the levels of records as numbers with names."""
    import pyarrow as pa

    for batch in batches:
        packed = batch.column(LEVELS)
        ends = np.frombuffer(packed.buffers()[1], dtype=np.int32)[packed.offset :]
        own = slice(int(ends[0]), int(ends[batch.num_rows]))
        levels = np.frombuffer(packed.buffers()[2], dtype=np.uint8)[own]
        levels = levels.reshape(-1, len(fields))
        each = [pa.array(column.astype(np.int16)) for column in levels.T]
        at = batch.schema.get_field_index(LEVELS)
        columns = [*batch.columns]
        columns[at] = pa.StructArray.from_arrays(each, list(fields))
        yield pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _with_levels(frame: DataFrame, fields: Sequence[str]) -> Any:
    """Return the schema of records whose levels are numbers with names."""
    from pyspark.sql.types import ShortType, StructField, StructType

    levels = StructType([StructField(name, ShortType(), nullable=False) for name in fields])
    return StructType(
        [
            StructField(LEVELS, levels, nullable=False) if one.name == LEVELS else one
            for one in frame.schema.fields
        ]
    )


# Verifying and measuring a bucketization in files.
#
# The statements are written for PostgreSQL, and translated; that on thresholds is the one which
# runs there, too. They share nothing with the algorithms, and read all files.


def examine_spark_buckets(
    tables: PublishedTables, publication: Publication, files_check: Check
) -> Examination:
    """Check everything that a bucketization promises, and measure it."""
    layout, parameters = publication.layout, publication.parameters
    names = BucketTables.of(tables, SCHEMA, publication.name, layout)
    qit = _count_records(
        tables, names, f"SELECT q.{names.bucket_id} AS id, 1 AS n FROM {names.qit} AS q"
    )
    sat = _count_records(
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
    further = []
    if names.weighted:
        further.append(check_levels(tables, publication, limits_of(parameters, names)))
    return findings.judged(names.n_buckets, parameters, publication.records, files_check, further)


def check_levels(
    tables: PublishedTables, publication: Publication, thresholds: Thresholds | None
) -> Check:
    """Check that weights add up to the numbers of values in each bucket, below the thresholds."""
    from pyspark.sql import functions as f

    layout, own, name = publication.layout, publication.layout["sensitive"], publication.name
    amiss = weights_check(int(layout["n_buckets"]), None if thresholds is None else 0)
    value, bucket, count, weights, parts = (
        quote_column(str(layout[name]))
        for name in ("sensitive", "bucket_id", "count", "weights", "parts")
    )
    qit = tables.frames[name + QIT]
    if name + SHARES not in tables.frames or str(layout["weights"]) not in qit.columns:
        return amiss
    known = tables.frames[name + SHARES].select(
        f.col(value).alias("value"), f.col(weights).alias("place"),
        f.col(parts).cast("long").alias("parts"),
    )  # fmt: skip
    sat = tables.frames[name + SAT].select(
        f.col(value).alias("of"), f.col(bucket).alias("bucket"), f.col(count).alias("times")
    )
    levels_type: Any = qit.schema[str(layout["weights"])].dataType
    n_fields = len(levels_type.fieldNames())
    levels = [f.col(f"{weights}.{weight_field(place)}") for place in range(n_fields)]
    # The number of each value in each bucket, less what the weights say it is.
    is_same = f.col("of").eqNullSafe(f.col("value"))
    in_sat = sat.join(f.broadcast(known), is_same, "left").select(
        "bucket",
        f.coalesce("place", f.lit(-1)).alias("place"),
        f.coalesce(-f.col("parts") * f.col("times"), f.lit(-1)).alias("n"),
    )
    sums = qit.groupBy(f.col(bucket).alias("bucket")).agg(
        f.array(*map(f.sum, levels)).alias("sums")
    )
    in_qit = sums.select("bucket", f.posexplode("sums").alias("place", "n")).where("n <> 0")
    differing = in_sat.unionByName(in_qit).groupBy("bucket", "place").agg(f.sum("n").alias("n"))
    is_amiss = f.exists(f.array(*levels), lambda level: level.isNull() | (level < 0))
    column = ColumnType(own, str(layout["types"][own]["type"]), "", None, True)
    of_values = sat.groupBy("of").agg(f.sum("times").alias("records"))
    labelled = known.join(of_values, is_same, "left").select(
        "place", "parts", "records", text_of_column(f.col("value"), column).alias("label")
    )
    with failures_as_errors("weights could not be added up"):
        stated = [row.asDict() for row in labelled.collect()]
        n_differing = differing.where("n <> 0").count()
        (row,) = qit.agg(f.sum(is_amiss.cast("int")), *map(f.max, levels)).collect()
    n_amiss, *most = row
    if (
        n_amiss != 0
        or len(stated) != n_fields
        or {row["place"] for row in stated} != set(range(n_fields))
        or len({row["label"] for row in stated}) != n_fields
        or not all((row["parts"] or 0) >= 1 and row["records"] for row in stated)
    ):
        return amiss
    above = None
    if thresholds is not None:
        counts = np.array([row["records"] for row in stated], dtype=np.int64)
        limits = thresholds(own, [row["label"] for row in stated], counts)
        above = sum(
            Fraction(most[row["place"]], row["parts"]) > limit
            for row, limit in zip(stated, limits, strict=True)
        )
    return weights_check(n_differing, above)


def count_certain(tables: PublishedTables, names: BucketTables) -> int:
    """Count the people whose bucket has no other value than theirs."""
    counted = fetch_one(
        tables,
        f"SELECT coalesce(sum(s.{names.count}), 0)::int8 AS n FROM {names.sat} AS s"
        f" WHERE s.{names.count} = {names.size(f's.{names.bucket_id}')}",
    )
    return int(counted["n"])


def _count_records(tables: PublishedTables, names: BucketTables, rows: str) -> CountedBuckets:
    """Count the records of each bucket, of rows with its number and how many records they are."""
    counts = tables.fetch(
        "SELECT b.is_readable, b.n, b.size, count(*) AS buckets, sum(b.rows)::int8 AS rows"
        f" FROM (SELECT k.is_readable, {names.size('k.id')} AS size, sum(k.n)::int8 AS n,"
        " count(*) AS rows FROM (SELECT r.id, r.n,"
        f" coalesce(r.id BETWEEN 1 AND {names.n_buckets} AND r.n >= 1, false) AS is_readable"
        f" FROM ({rows}) AS r) AS k GROUP BY k.is_readable, k.id) AS b"
        " GROUP BY b.is_readable, b.n, b.size"
    )
    known = [row for row in counts if row["is_readable"]]
    of_sizes: Counter[int] = Counter()
    for row in known:
        of_sizes[row["n"]] += row["buckets"]
    as_promised = sum(row["buckets"] for row in known if row["n"] == row["size"])
    return CountedBuckets(
        records=sum(row["n"] * row["buckets"] for row in known),
        differing=names.n_buckets - as_promised,
        unreadable=sum(row["rows"] for row in counts if not row["is_readable"]),
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


_MOST_BUCKETS: Final = 2**28
"""Their numbers are a permutation, which every machine gets: a gigabyte."""

_REFUSED: Final = {
    "m_invariant": "who keeps which signature follows from a refresh, which is made in PostgreSQL",
}
"""Assignments that stay on one machine, and why."""


class SparkBuckets(SparkKind):
    """The kind ``buckets``."""

    suffixes = (QIT, SAT, SHARES)
    shows_values = True

    def refuse(self, request: BucketRequest, source: Source) -> None:
        """Refuse several sensitive attributes, and assignments that stay on one machine."""
        require_protected(source, protects_several=self.protects_several)
        if not hasattr(_bucket_dealing, request.assignment):
            raise InvalidParameterError(
                f"the assignment {request.assignment} is not made on Spark",
                detail=_REFUSED.get(request.assignment, ""),
                hint="give assignment => 'random', or publish in PostgreSQL",
            )

    def make(self, job: SparkJob) -> SparkResult:
        """Find a bucket setting, and the bucket of each record; write QIT and SAT."""
        values = read_values(job, str(job.source.sensitive))
        protection = ValueProtection.of(job.request, {str(job.source.sensitive): values})
        (privacy,) = protection.privacies
        data = SensitiveValues(values.counts, privacy, values.labels)
        assignment: MethodResult = getattr(_bucket_dealing, job.request.assignment)(
            job, data, values
        )
        return SparkResult(assignment, self._write(job, assignment.result, values, protection))

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
        frame = job.keep(assigned.frame, "assigned", "buckets could not be assigned")
        layout = bucket_layout(job.source, setting)
        job.voice.step("writing the sensitive table")
        sat = write_sat(job, frame, values, layout, setting.n_buckets)
        name, l = job.request.publication, protection.l
        parameters = {} if l is None else {"l": l}
        tables = PublishedTables(job.session, {name + SAT: sat})
        learned = LearnedWeights.of(job, frame, tables, values, setting, layout, parameters)
        if learned is not None:
            frame = learned.applied(job, frame)
            learned.write(job, values, layout)
            layout["weighted"] = [job.source.sensitive]
        job.voice.step("writing the quasi-identifier table")
        write_qit(job, frame, layout, 0 if learned is None else learned.n_values)
        is_random = job.request.assignment == "random" or assigned.cells == 1
        layout["assignment"] = "random" if is_random else job.request.assignment
        names = BucketTables.of(tables, SCHEMA, name, layout)
        certain = count_certain(tables, names)
        tables.drop()
        return Written(
            protection.guarantee(job.request, certain, job.voice),
            layout=layout,
            parameters=parameters,
            metrics={} if assigned.cells is None else {"cells": assigned.cells},
        )

    def examine(
        self, tables: PublishedTables, publication: Publication, files_check: Check
    ) -> Examination:
        """See :func:`examine_spark_buckets`."""
        return examine_spark_buckets(tables, publication, files_check)

    def attack(self, target: SparkTarget) -> list[Attack]:
        """See :func:`attack_buckets`."""
        return attack_buckets(target)

    def evaluate(self, target: SparkTarget, workload: Workload) -> list[CountAccuracy]:
        """See :func:`evaluate_buckets`."""
        return evaluate_buckets(target, workload, partial(answer_from_files, target))


def answer_from_files(
    target: SparkTarget,
    columns: Sequence[NumberedColumn],
    sensitive: NumberedColumn,
    queries: Sequence[CountQuery],
) -> FloatArray:
    """Answer count queries where the buckets are, as :func:`.answer_from_buckets`."""
    frames, publication = target.session.tables.frames, target.publication
    tables = BucketTables.of(target.session, SCHEMA, publication.name, publication.layout)
    every = [*columns, sensitive]
    name = sensitive.column.name
    store = SparkStore(frames, publication, tables, [one.column.name for one in every])
    stored, levels = [store.columns[one] for one in store.names], None
    if name in tables.weighted:
        n_values = store.columns[name].n_values
        levels = FieldLevels(store.fields(name, range(n_values)), n_values)
    places = [values.codes(store.distinct(values.column.name)) for values in every]
    workload = BucketWorkload(stored, recode(queries, places), levels)
    totals = workload.begin()
    for part in store.each(store.names, workload):
        totals = totals + part
    return workload.estimates(totals)


KIND: Final[Any] = SparkBuckets()
