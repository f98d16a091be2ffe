"""Publishing rows with suppressed cells of records on many machines; see that in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final

from kanon_db.algorithms.suppression import LEFT_OVER, PatternSet
from kanon_db.catalog.entries import Publication, Source
from kanon_db.publications.kind import MethodResult, Written
from kanon_db.publications.results import Check, Examination
from kanon_db.publications.rows.row_kind import require_k, row_layout
from kanon_db.publications.suppressed.kind import examine_suppressed, suppressed_guarantee
from kanon_db.publications.suppressed.methods import allowed_patterns, recorded_patterns
from kanon_db.publications.suppressed.request import SuppressedRequest
from kanon_db.spark.chance import ORDER, RANK
from kanon_db.spark.environment import in_own_words, through_arrow
from kanon_db.spark.kind import Made, SparkJob
from kanon_db.spark.names import quoted
from kanon_db.spark.rows.cells import cell_of
from kanon_db.spark.rows.columns import (
    QuasiIdentifier,
    code_of,
    coded_records,
    other_columns,
    read_quasi_identifiers,
)
from kanon_db.spark.rows.examine import check_columns, class_sizes, rows_of, view_of
from kanon_db.spark.rows.kind import SparkRows
from kanon_db.spark.rows.layout import refuse_method
from kanon_db.spark.rows.values import number
from kanon_db.spark.rows.writing import (
    LEFT_OUT,
    PATTERN,
    compare_with_source,
    keep,
    write_rows,
)
from kanon_db.spark.snapshot import RECORD
from kanon_db.spark.suppressed.types import GIVEN, NUMBER, ChosenPatterns, choose_patterns
from kanon_db.spark.tables import Tables

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame


class Suppressed(SparkRows):
    """The kind ``suppressed``."""

    def refuse(self, request: SuppressedRequest, source: Source) -> None:  # noqa: ARG002
        """Refuse the optimum."""
        if request.method == "optimal":
            raise refuse_method(
                "optimal", "its integer program has a variable for each cell of all records",
                "use greedy, or publish in PostgreSQL",
            )  # fmt: skip

    def make(self, job: SparkJob) -> Made:
        """Choose a pattern for each record, and write the rows."""
        request, source = job.request, job.source
        require_k(source, request.k, job.snapshot.n_records)
        columns = read_quasi_identifiers(job, with_ranges=False)
        patterns = allowed_patterns(source, request.patterns, request.rules, request.weights)
        records = coded_records(job, columns)
        chosen = choose_patterns(job, records, patterns)
        job.voice.step("suppressing cells")
        recoded = keep(job, _recoded(job, records, columns, patterns, chosen))
        checks, left_out = compare_with_source(
            job, recoded, _inside(columns), "every cell that is kept is the record's own"
        )
        layout = row_layout(source, ["value"] * len(columns), with_pattern=True)
        check, rows, _ = write_rows(job, recoded, layout)
        metrics = {"usefulness_loss": _usefulness_loss(job, recoded, columns)}
        if request.weights is not None or patterns.cost_unit != 1:
            metrics["suppression_cost"] = _cost(rows, layout["pattern"], patterns)
        return Made(
            MethodResult(None),
            Written(
                suppressed_guarantee(request, chosen.n_left_over),
                layout=layout,
                checks=[*checks, check],
                metrics=metrics,
                parameters={**recorded_patterns(request, patterns), "suppressed": left_out},
            ),
        )

    def examine(self, tables: Tables, publication: Publication, whole: Check) -> Examination:
        """Check what is promised of the rows, and measure them, with the files alone."""
        columns = check_columns(rows_of(tables, publication), publication)
        if not columns.holds:
            return Examination([whole, columns], {})
        view = view_of(tables, publication)
        examined = examine_suppressed(tables, view, publication, class_sizes(tables, view))
        return Examination([whole, columns, *examined.checks], examined.metrics)


KIND: Final[Any] = Suppressed()


def _recoded(
    job: SparkJob,
    records: DataFrame,
    columns: Sequence[QuasiIdentifier],
    patterns: PatternSet,
    chosen: ChosenPatterns,
) -> DataFrame:
    """Give each record its pattern, and the cells that it keeps."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    codes = [code_of(place) for place in range(len(columns))]
    found = records.join(chosen.types, codes)
    if chosen.joined != LEFT_OVER:
        # Of a type whose records are alike, those go whose random keys are the smallest.
        place = f.row_number().over(Window.partitionBy(*codes).orderBy(RANK, RECORD))
        givers = found.where(f.col(GIVEN) > 0).withColumn("place", place)
        going = givers.where(f.col("place") <= f.col(GIVEN)).select(f.col(RECORD).alias("going"))
        found = found.join(going, f.col(RECORD) == f.col("going"), "left").withColumn(
            PATTERN,
            f.when(f.col("going").isNotNull(), f.lit(patterns.texts[chosen.joined])).otherwise(
                f.col(PATTERN)
            ),
        )
    left_out = f.lit(False)
    if job.request.options.left_over != "publish":
        left_out = f.col(NUMBER) == LEFT_OVER
    passed = [RECORD, ORDER, *(job.snapshot.column(name) for name in other_columns(job)), *codes]
    marked = found.select(
        *passed,
        PATTERN,
        left_out.alias(LEFT_OUT),
    )
    context: Any = job.session.sparkContext
    known = context.broadcast([column.values.array for column in columns])
    schema = StructType([*marked.schema.fields])
    for place_of, column in enumerate(columns):
        schema.add(cell_of(place_of), column.type)
    return through_arrow(marked, hiding(known, codes, schema.names), schema)


def hiding(known: Any, codes: list[str], names: list[str]) -> Any:
    """Return the function that shows the cells which a pattern keeps.

    Parameters
    ----------
    known : Broadcast
        Of the values of each quasi-identifier. A cell is one of these: otherwise 0.0 and -0.0,
        which are equal, would tell two records of a class apart.
    codes : list of str
    names : list of str
        Of the result.
    """

    def hide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in batches:
            cells = []
            for place, values in enumerate(known.value):
                mark = pc.utf8_slice_codeunits(batch.column(PATTERN), place, place + 1)
                kept = pc.if_else(
                    pc.equal(mark, "."), batch.column(codes[place]), pa.scalar(None, pa.int32())
                )
                cells.append(values.take(kept))
            yield pa.RecordBatch.from_arrays([*batch.columns, *cells], names)

    return hide


def _mark(place: int, pattern: Column) -> Column:
    from pyspark.sql import functions as f

    return f.substring(pattern, place + 1, 1)


def _inside(columns: Sequence[QuasiIdentifier]) -> Column:
    """Say whether each cell shows what its record has, or nothing where it is suppressed."""
    from pyspark.sql import functions as f

    checked = []
    for place, column in enumerate(columns):
        cell, is_kept = f.col(cell_of(place)), _mark(place, f.col(PATTERN)) == "."
        own = f.when(is_kept, cell.eqNullSafe(f.col(column.source))).otherwise(cell.isNull())
        checked.append(own)
    return reduce(and_, checked)


def _cost(rows: DataFrame, pattern: str, patterns: PatternSet) -> float:
    """Add up the weights of the suppressed cells of published rows."""
    with in_own_words("patterns could not be counted"):
        counted = rows.groupBy(quoted(pattern)).count().collect()
    costs = dict(zip(patterns.texts, patterns.costs.tolist(), strict=True))
    return float(Fraction(sum(costs[text] * n for text, n in counted), patterns.cost_unit))


def _usefulness_loss(
    job: SparkJob, recoded: DataFrame, columns: Sequence[QuasiIdentifier]
) -> float:
    """Measure as :func:`kanon_db.metrics.information_loss.usefulness_loss`."""
    from pyspark.sql import functions as f

    job.voice.step("measuring the loss")
    codes = [code_of(place) for place in range(len(columns))]
    numbers = [None if c.numbers is None else number(f.col(c.source), c.column) for c in columns]
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
    with in_own_words("the loss could not be measured"):
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
            f.when(_mark(place, f.col(PATTERN)) == ".", f.col(code)).otherwise(-1)
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
