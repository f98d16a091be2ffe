"""Publishes rows with suppressed cells: a pattern is chosen for each type of row.

A type of row is a combination of quasi-identifiers, with the number of records that have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, ClassVar, Final

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
from kanon_db.catalog.entries import Publication
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InfeasibleError
from kanon_db.publications.kind import MethodResult, Written
from kanon_db.publications.results import Examination
from kanon_db.publications.rows.distinct_cells import ClassSizes
from kanon_db.publications.rows.row_kind import require_k, row_layout
from kanon_db.publications.suppressed.kind import SuppressedGuarantee, examine_suppressed
from kanon_db.publications.suppressed.methods import (
    allowed_patterns,
    order_of_patterns,
    recorded_patterns,
)
from kanon_db.publications.suppressed.request import SuppressedRequest
from kanon_db.randomness import SecureRandom
from kanon_db.spark._coded_records import (
    CodedQuasiIdentifier,
    code_column,
    codes_in,
    number_of_value,
    read_quasi_identifiers,
    write_coded_records,
)
from kanon_db.spark._row_store import view_of
from kanon_db.spark._spark_kind import SparkJob, SparkResult
from kanon_db.spark._tables import RANK_KEY, RECORD, PublishedTables
from kanon_db.spark.environment import failures_as_errors, quote_column, through_arrow
from kanon_db.spark.kinds.row_files import (
    LEFT_OUT,
    PATTERN_NUMBER,
    SparkRows,
    cell_of,
    compare_with_source,
    keep_recoded,
    name_copied_columns,
    write_rows,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame


# Choosing a pattern for each row type: distinct quasi-identifiers, and how many records have them.
#
# Which pattern comes next is global, and so is what remains at the end. A type is a row here,
# however many records it has. While there are too many for one machine, patterns are tried by
# Spark: one GROUP BY for each. Those that are left are chosen for on the driver.


MOST_ROW_TYPES: Final = 2**21
"""Row types that the driver chooses for."""

MOST_TO_JOIN: Final = 2**23
"""Records among which those are drawn that join the left-over ones."""

ROW_TYPE: Final = "type"
NUMBER: Final = "number"
"""The place of a type's pattern; -1 for what is left over."""

GIVEN: Final = "given"
"""How many records of a type go to the pattern of the left-over ones."""

_COUNT: Final = "n"


@dataclass(frozen=True, eq=False)
class ChosenPatterns:
    """What was chosen for each row type."""

    types: DataFrame  # The codes of each, ``number``, ``pattern`` (its text) and ``given``
    # The place of the pattern of the records that were left over; -1 if they did not join others
    joined: int
    n_left_over: int  # Records that are left over, and did not join others


def choose_patterns(job: SparkJob, records: DataFrame, patterns: PatternSet) -> ChosenPatterns:
    """Choose a pattern for each row type; see :func:`greedy_suppression`."""
    from pyspark.sql import functions as f

    request: SuppressedRequest = job.request
    columns = [code_column(place) for place in range(patterns.n_columns)]
    joins = request.options.left_over == "join"
    if joins and job.snapshot.n_records > MOST_TO_JOIN:
        raise InfeasibleError(
            "there are too many records to draw those that join the left-over ones",
            detail=f"{job.snapshot.n_records:,}, of which one machine draws among {MOST_TO_JOIN:,}",
            hint='leave out left_over, so that fewer than k are left out, or give "publish"',
        )
    counted = records.groupBy(*columns).agg(f.count("*").alias(_COUNT))
    counted = counted.select(
        f.monotonically_increasing_id().alias(ROW_TYPE), *columns, _COUNT,
        f.lit(LEFT_OVER).cast("int").alias(NUMBER),
    )  # fmt: skip
    failure = "row types could not be counted"
    types = job.keep(counted, "types", failure)
    with failures_as_errors(failure):
        n_types = types.count()
    order, place = order_of_patterns(request, patterns, SecureRandom()), 0
    while n_types > MOST_ROW_TYPES and not joins and place < len(patterns):
        types, n_types = _assign_patterns(job, types, patterns, int(order[place]))
        place += 1
    job.voice.step("choosing patterns")
    with failures_as_errors("row types could not be read"):
        left = types.where(f.col(NUMBER) == LEFT_OVER).drop(NUMBER).toArrow()
    codes = codes_in(left, columns).astype(np.int64)
    counts = left.column(_COUNT).to_numpy().astype(np.int64)
    row_types = RowTypes(codes, counts, np.arange(counts.size))
    place_in_order = greedy_on_types(
        row_types, patterns.in_order(order), request.k, pulse=job.pulse()
    )
    number = np.append(order, LEFT_OVER)[place_in_order]  # which is -1, the last place
    n_left = int(counts[number == LEFT_OVER].sum())
    check_left_over(patterns, request.k, n_left, job.snapshot.n_records)
    given, joined = np.zeros_like(counts), LEFT_OVER
    if joins and n_left:
        number, given, joined = _join_left_over(job, codes, counts, Suppression(patterns, number))
        n_left = 0
    ids = left.column(ROW_TYPE).to_numpy()
    return ChosenPatterns(_with_numbers(types, patterns, ids, number, given), joined, n_left)


def _assign_patterns(
    job: SparkJob, types: DataFrame, patterns: PatternSet, place: int
) -> tuple[DataFrame, int]:
    """Give a pattern to all types with which k records agree; return how many types have none."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    job.voice.step(f"trying pattern {place + 1}")
    kept = [code_column(i) for i, star in enumerate(patterns.stars[place].tolist()) if not star]
    is_left = f.col(NUMBER) == LEFT_OVER
    total = f.sum(f.when(is_left, f.col(_COUNT)).otherwise(0)).over(Window.partitionBy(*kept))
    number = f.when(is_left & (total >= job.request.k), f.lit(place)).otherwise(f.col(NUMBER))
    failure = "a pattern could not be tried"
    tried = job.keep(types.withColumn(NUMBER, number.cast("int")), f"types-{place}", failure)
    with failures_as_errors(failure):
        return tried, tried.where(is_left).count()


def _join_left_over(
    job: SparkJob, codes: IntArray, counts: IntArray, suppression: Suppression
) -> tuple[IntArray, IntArray, int]:
    """Let the left-over records join others; return patterns, who gives how many, and to which."""
    # The records of a type are alike, so that it does not matter here which of them are drawn.
    type_of_record = np.repeat(np.arange(counts.size), counts)
    before = suppression.pattern_of_record
    partners = join_left_over(
        codes[type_of_record], Suppression(suppression.patterns, before[type_of_record]),
        job.request.k, SecureRandom(), pulse=job.pulse(),
    ).pattern_of_record  # fmt: skip
    is_left = before == LEFT_OVER
    joined = int(partners[is_left[type_of_record]][0])
    went = (partners != before[type_of_record]) & ~is_left[type_of_record]
    given = np.bincount(type_of_record[went], minlength=counts.size)
    return np.where(is_left, joined, before), given, joined


def _with_numbers(
    types: DataFrame, patterns: PatternSet, ids: IntArray, number: IntArray, given: IntArray
) -> DataFrame:
    """Add what the driver has found to the types that it was asked for."""
    from pyspark.sql.types import LongType, StringType, StructType

    order = np.argsort(ids)
    texts = [*patterns.texts, "*" * patterns.n_columns]  # the last one is that of -1
    known = ids[order], number[order].astype(np.int32), given[order], texts
    schema = StructType([*types.schema.fields])
    schema.add(PATTERN_NUMBER, StringType(), nullable=False).add(GIVEN, LongType(), nullable=False)
    return through_arrow(types, look_up_patterns, schema, known).drop(ROW_TYPE, _COUNT)


def look_up_patterns(known: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add to types what was chosen for them."""
    import pyarrow as pa

    ids, number, given, texts = known
    named = pa.array(texts)
    for batch in batches:
        own = batch.column(ROW_TYPE).to_numpy()
        place = np.minimum(np.searchsorted(ids, own), max(ids.size - 1, 0))
        numbers, gives = (
            batch.column(NUMBER).to_numpy().copy(),
            np.zeros(own.size, dtype=np.int64),
        )
        if ids.size:
            is_known = ids[place] == own
            numbers[is_known] = number[place[is_known]]
            gives[is_known] = given[place[is_known]]
        columns = [
            pa.array(numbers) if name == NUMBER else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        text = named.take(pa.array(numbers % len(texts)))
        yield pa.RecordBatch.from_arrays(
            [*columns, text, pa.array(gives)], [*batch.schema.names, PATTERN_NUMBER, GIVEN]
        )


class SparkSuppressed(SparkRows):
    """The kind ``suppressed``."""

    on_one_machine: ClassVar = {
        "optimal": (
            "its integer program has a variable for each cell of all records",
            "use greedy, or publish in PostgreSQL",
        ),
        "two_anonymity": (
            "its matchings are of all records",
            "use greedy, or publish in PostgreSQL",
        ),
    }

    def make(self, job: SparkJob) -> SparkResult:
        """Choose a pattern for each record, and write the rows."""
        request, source = job.request, job.source
        require_k(source, request.k, job.snapshot.n_records)
        columns = read_quasi_identifiers(job, with_ranges=False)
        patterns = allowed_patterns(source, request.patterns, request.rules, request.weights)
        records = write_coded_records(job, columns)
        chosen = choose_patterns(job, records, patterns)
        job.voice.step("suppressing cells")
        recoded = keep_recoded(job, _recode(job, records, columns, patterns, chosen))
        checks, left_out = compare_with_source(
            job, recoded, _inside(columns), "every cell that is kept is the record's own"
        )
        layout = row_layout(source, ["value"] * len(columns), with_pattern=True)
        check, rows, _ = write_rows(job, recoded, layout)
        metrics = {"usefulness_loss": _usefulness_loss(job, recoded, columns)}
        if request.weights is not None or patterns.cost_unit != 1:
            metrics["suppression_cost"] = _cost(rows, layout["pattern"], patterns)
        return SparkResult(
            MethodResult(None),
            Written(
                SuppressedGuarantee.of(request, chosen.n_left_over),
                layout=layout,
                checks=[*checks, check],
                metrics=metrics,
                parameters={**recorded_patterns(request, patterns), "suppressed": left_out},
            ),
        )

    def judge(
        self, tables: PublishedTables, publication: Publication, counted: ClassSizes
    ) -> Examination:
        """See :func:`examine_suppressed`."""
        return examine_suppressed(tables, view_of(tables, publication), publication, counted)


KIND: Final[Any] = SparkSuppressed()


def _recode(
    job: SparkJob,
    records: DataFrame,
    columns: Sequence[CodedQuasiIdentifier],
    patterns: PatternSet,
    chosen: ChosenPatterns,
) -> DataFrame:
    """Give each record its pattern, and the cells that it keeps."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    codes = [code_column(place) for place in range(len(columns))]
    coded = records.join(chosen.types, codes)
    if chosen.joined != LEFT_OVER:
        # Of a type whose records are alike, those go whose random keys are the smallest.
        place = f.row_number().over(Window.partitionBy(*codes).orderBy(RANK_KEY, RECORD))
        givers = coded.where(f.col(GIVEN) > 0).withColumn("place", place)
        going = givers.where(f.col("place") <= f.col(GIVEN)).select(f.col(RECORD).alias("going"))
        coded = coded.join(going, f.col(RECORD) == f.col("going"), "left").withColumn(
            PATTERN_NUMBER,
            f.when(f.col("going").isNotNull(), f.lit(patterns.texts[chosen.joined])).otherwise(
                f.col(PATTERN_NUMBER)
            ),
        )
    left_out = f.lit(False)
    if job.request.options.left_over != "publish":
        left_out = f.col(NUMBER) == LEFT_OVER
    passed = [*name_copied_columns(job), *codes]
    marked = coded.select(*passed, PATTERN_NUMBER, left_out.alias(LEFT_OUT))
    schema = StructType([*marked.schema.fields])
    for place_of, column in enumerate(columns):
        schema.add(cell_of(place_of), column.type)
    known = [column.values.array for column in columns], codes, schema.names
    return through_arrow(marked, hide_cells, schema, known)


def hide_cells(known: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Show the cells which a pattern keeps."""
    import pyarrow as pa
    import pyarrow.compute as pc

    arrays, codes, names = known
    for batch in batches:
        cells = []
        for place, values in enumerate(arrays):
            mark = pc.utf8_slice_codeunits(batch.column(PATTERN_NUMBER), place, place + 1)
            kept = pc.if_else(
                pc.equal(mark, "."), batch.column(codes[place]), pa.scalar(None, pa.int32())
            )
            cells.append(values.take(kept))
        yield pa.RecordBatch.from_arrays([*batch.columns, *cells], names)


def _mark(place: int, pattern: Column) -> Column:
    from pyspark.sql import functions as f

    return f.substring(pattern, place + 1, 1)


def _inside(columns: Sequence[CodedQuasiIdentifier]) -> Column:
    """Say whether each cell shows what its record has, or nothing where it is suppressed."""
    from pyspark.sql import functions as f

    checked = []
    for place, column in enumerate(columns):
        cell, is_kept = f.col(cell_of(place)), _mark(place, f.col(PATTERN_NUMBER)) == "."
        own = f.when(is_kept, cell.eqNullSafe(f.col(column.source))).otherwise(cell.isNull())
        checked.append(own)
    return reduce(and_, checked)


def _cost(rows: DataFrame, pattern: str, patterns: PatternSet) -> float:
    """Add up the weights of the suppressed cells of published rows."""
    with failures_as_errors("patterns could not be counted"):
        counted = rows.groupBy(quote_column(pattern)).count().collect()
    costs = dict(zip(patterns.texts, patterns.costs.tolist(), strict=True))
    return float(Fraction(sum(costs[text] * n for text, n in counted), patterns.cost_unit))


def _usefulness_loss(
    job: SparkJob, recoded: DataFrame, columns: Sequence[CodedQuasiIdentifier]
) -> float:
    """Measure as :func:`kanon_db.metrics.information_loss.usefulness_loss`."""
    from pyspark.sql import functions as f

    job.voice.step("measuring the loss")
    codes = [code_column(place) for place in range(len(columns))]
    numbers = [
        None if c.numbers is None else number_of_value(f.col(c.source), c.column) for c in columns
    ]
    shown = recoded.where(~f.col(LEFT_OUT))
    own = job.snapshot.frame.select(
        f.col(RECORD).alias("own"),
        *(one.alias(f"n{place}") for place, one in enumerate(numbers) if one is not None),
    )
    joined = shown.join(own, f.col(RECORD) == f.col("own"))
    spans = [
        f.struct(f.min(f"n{place}").alias("low"), f.max(f"n{place}").alias("high"))
        if one is not None
        else f.lit(None)
        for place, one in enumerate(numbers)
    ]
    with failures_as_errors("the loss could not be measured"):
        (domain,) = joined.agg(
            *(f.count_distinct(code).alias(f"d_{code}") for code in codes),
            *(span.alias(f"s_{code}") for span, code in zip(spans, codes, strict=True)),
            *(
                f.count_if(f.col(f"n{place}").isNull()).alias(f"u{place}")
                for place, one in enumerate(numbers)
                if one is not None
            ),
        ).collect()
        of_class = [f.size(f.collect_set(code)).alias(f"d_{code}") for code in codes]
        of_class += [span.alias(f"s_{code}") for span, code in zip(spans, codes, strict=True)]
        hidden = [
            f.when(_mark(place, f.col(PATTERN_NUMBER)) == ".", f.col(code)).otherwise(-1)
            for place, code in enumerate(codes)
        ]
        classes = joined.groupBy(*hidden).agg(*of_class)
        terms: list[Column] = []
        for place, code in enumerate(codes):
            is_numeric = numbers[place] is not None and not domain[f"u{place}"]
            if not is_numeric:
                terms.append(f.sum(f.col(f"d_{code}")) / float(max(domain[f"d_{code}"], 1)))
                continue
            span = domain[f"s_{code}"]
            extent = 0.0 if span["low"] is None else span["high"] - span["low"]
            width = f.col(f"s_{code}.high") - f.col(f"s_{code}.low")
            terms.append(f.sum(width) / extent if extent else f.lit(0.0))
        (row,) = classes.agg(
            f.count("*").alias("n"), *(term.alias(f"t{i}") for i, term in enumerate(terms))
        ).collect()
    return (
        float(sum(row[f"t{i}"] or 0.0 for i in range(len(terms))) / row["n"]) if row["n"] else 0.0
    )
