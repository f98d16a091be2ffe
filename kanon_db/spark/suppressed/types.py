"""Choosing a pattern for each row type: distinct quasi-identifiers, and how many records have them.

Which pattern comes next is global, and so is what remains at the end. A type is a row here, however
many records it has. While there are too many for one machine, patterns are tried by Spark: one
GROUP BY for each. Those that are left are chosen for on the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.suppression import (
    LEFT_OVER,
    PatternSet,
    RowTypes,
    Suppression,
    check_left_over,
    greedy_on_types,
    join_left_over,
)
from kanon_db.errors import InfeasibleError
from kanon_db.publications.suppressed.request import SuppressedRequest
from kanon_db.randomness import SecureRandom
from kanon_db.spark.environment import in_own_words, through_arrow
from kanon_db.spark.kind import SparkJob
from kanon_db.spark.rows.columns import code_of
from kanon_db.spark.rows.parts import Batches, codes_in
from kanon_db.spark.rows.writing import PATTERN

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

MOST_TYPES: Final = 2**21
"""Row types that the driver chooses for."""

MOST_TO_JOIN: Final = 2**23
"""Records among which those are drawn that join the left-over ones."""

TYPE: Final = "type"
NUMBER: Final = "number"
"""The place of a type's pattern; -1 for what is left over."""

GIVEN: Final = "given"
"""How many records of a type go to the pattern of the left-over ones."""

_COUNT: Final = "n"


@dataclass(frozen=True, eq=False)
class ChosenPatterns:
    """What was chosen for each row type.

    Attributes
    ----------
    types : DataFrame
        The codes of each, ``number``, ``pattern`` (its text) and ``given``.
    joined : int
        The place of the pattern of the records that were left over; -1 if they did not join others.
    n_left_over : int
        Records that are left over, and did not join others.
    """

    types: DataFrame
    joined: int
    n_left_over: int


def choose_patterns(job: SparkJob, records: DataFrame, patterns: PatternSet) -> ChosenPatterns:
    """Choose a pattern for each row type; see :func:`greedy_suppression`.

    Parameters
    ----------
    job : SparkJob
    records : DataFrame
        As :func:`.coded_records` returns them.
    patterns : PatternSet

    Raises
    ------
    InfeasibleError
        When some records fit none of the patterns, or are too many to join others.
    """
    from pyspark.sql import functions as f

    request: SuppressedRequest = job.request
    columns = [code_of(place) for place in range(patterns.n_columns)]
    joins = request.options.left_over == "join"
    if joins and job.snapshot.n_records > MOST_TO_JOIN:
        raise InfeasibleError(
            "there are too many records to draw those that join the left-over ones",
            detail=f"{job.snapshot.n_records:,}, of which one machine draws among {MOST_TO_JOIN:,}",
            hint='leave out left_over, so that fewer than k are left out, or give "publish"',
        )
    folder = job.staging.scratch("types")
    with in_own_words("row types could not be counted"):
        counted = records.groupBy(*columns).agg(f.count("*").alias(_COUNT))
        counted.select(
            f.monotonically_increasing_id().alias(TYPE), *columns, _COUNT,
            f.lit(LEFT_OVER).cast("int").alias(NUMBER),
        ).write.parquet(folder.path)  # fmt: skip
        types = job.session.read.parquet(folder.path)
        n_types = types.count()
    place = 0
    while n_types > MOST_TYPES and not joins and place < len(patterns):
        types, n_types = _tried(job, types, patterns, place)
        place += 1
    job.voice.step("choosing patterns")
    with in_own_words("row types could not be read"):
        left = types.where(f.col(NUMBER) == LEFT_OVER).drop(NUMBER).toArrow()
    codes = codes_in(left, columns).astype(np.int64)
    counts = left.column(_COUNT).to_numpy().astype(np.int64)
    found = RowTypes(codes, counts, np.arange(counts.size))
    number = greedy_on_types(found, patterns, request.k, pulse=job.pulse())
    n_left = int(counts[number == LEFT_OVER].sum())
    check_left_over(patterns, request.k, n_left, job.snapshot.n_records)
    given, joined = np.zeros_like(counts), LEFT_OVER
    if joins and n_left:
        number, given, joined = _joined(job, codes, counts, Suppression(patterns, number))
        n_left = 0
    ids = left.column(TYPE).to_numpy()
    return ChosenPatterns(_with_numbers(types, patterns, ids, number, given), joined, n_left)


def _tried(
    job: SparkJob, types: DataFrame, patterns: PatternSet, place: int
) -> tuple[DataFrame, int]:
    """Give a pattern to all types with which k records agree; return how many types have none."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    job.voice.step(f"trying pattern {place + 1}")
    kept = [code_of(i) for i, star in enumerate(patterns.stars[place].tolist()) if not star]
    is_left = f.col(NUMBER) == LEFT_OVER
    total = f.sum(f.when(is_left, f.col(_COUNT)).otherwise(0)).over(Window.partitionBy(*kept))
    number = f.when(is_left & (total >= job.request.k), f.lit(place)).otherwise(f.col(NUMBER))
    folder = job.staging.scratch(f"types-{place}")
    with in_own_words("a pattern could not be tried"):
        types.withColumn(NUMBER, number.cast("int")).write.parquet(folder.path)
        tried = job.session.read.parquet(folder.path)
        return tried, tried.where(is_left).count()


def _joined(
    job: SparkJob, codes: IntArray, counts: IntArray, suppression: Suppression
) -> tuple[IntArray, IntArray, int]:
    """Let the left-over records join others; return patterns, who gives how many, and to which.

    The records of a type are alike, so that it does not matter here which of them are drawn.
    """
    type_of_record = np.repeat(np.arange(counts.size), counts)
    before = suppression.pattern_of_record
    found = join_left_over(
        codes[type_of_record], Suppression(suppression.patterns, before[type_of_record]),
        job.request.k, SecureRandom(), pulse=job.pulse(),
    ).pattern_of_record  # fmt: skip
    is_left = before == LEFT_OVER
    joined = int(found[is_left[type_of_record]][0])
    went = (found != before[type_of_record]) & ~is_left[type_of_record]
    given = np.bincount(type_of_record[went], minlength=counts.size)
    return np.where(is_left, joined, before), given, joined


def _with_numbers(
    types: DataFrame, patterns: PatternSet, ids: IntArray, number: IntArray, given: IntArray
) -> DataFrame:
    """Add what the driver has found to the types that it was asked for."""
    from pyspark.sql.types import LongType, StringType, StructType

    context: Any = types.sparkSession.sparkContext
    order = np.argsort(ids)
    texts = [*patterns.texts, "*" * patterns.n_columns]  # the last one is that of -1
    known = context.broadcast((ids[order], number[order].astype(np.int32), given[order], texts))
    schema = StructType([*types.schema.fields])
    schema.add(PATTERN, StringType(), nullable=False).add(GIVEN, LongType(), nullable=False)
    return through_arrow(types, looking_up(known), schema).drop(TYPE, _COUNT)


def looking_up(known: Any) -> Batches:
    """Return the function that adds to types what was chosen for them.

    Parameters
    ----------
    known : Broadcast
        Of the types, in order, their patterns, how many records they give, and all patterns' texts.
    """

    def look_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        ids, number, given, texts = known.value
        named = pa.array(texts)
        for batch in batches:
            own = batch.column(TYPE).to_numpy()
            place = np.minimum(np.searchsorted(ids, own), max(ids.size - 1, 0))
            found, gives = (
                batch.column(NUMBER).to_numpy().copy(),
                np.zeros(own.size, dtype=np.int64),
            )
            if ids.size:
                is_known = ids[place] == own
                found[is_known] = number[place[is_known]]
                gives[is_known] = given[place[is_known]]
            columns = [
                pa.array(found) if name == NUMBER else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            text = named.take(pa.array(found % len(texts)))
            yield pa.RecordBatch.from_arrays(
                [*columns, text, pa.array(gives)], [*batch.schema.names, PATTERN, GIVEN]
            )

    return look_up
