"""Publishing freeform rows of records on many machines; see the kind in PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kanon_db.algorithms.freeform import check_partition_size
from kanon_db.catalog.entries import Publication, Source
from kanon_db.publications.freeform import methods
from kanon_db.publications.freeform.kind import (
    SAME_ROWS,
    check_graph,
    freeform_guarantee,
    judge_freeform,
)
from kanon_db.publications.freeform.request import FreeformRequest
from kanon_db.publications.kind import MethodResult, Written
from kanon_db.publications.results import Check, Examination
from kanon_db.publications.rows.row_kind import loss_metrics, require_k, weights_of
from kanon_db.publications.rows.row_relations import same_digest
from kanon_db.spark.environment import in_own_words, through_arrow
from kanon_db.spark.freeform.segments import (
    COUNTED,
    HOLDS,
    SegmentSearch,
    in_segments,
    matching,
)
from kanon_db.spark.kind import Made, SparkJob
from kanon_db.spark.ledger import digest
from kanon_db.spark.rows.columns import attributes_of, coded_records, read_quasi_identifiers
from kanon_db.spark.rows.examine import check_columns, class_sizes, rows_of, view_of
from kanon_db.spark.rows.kind import SparkRows
from kanon_db.spark.rows.layout import (
    recoded_layout,
    refuse_coarsened,
    refuse_method,
    require_room,
)
from kanon_db.spark.rows.losses import measure_rows
from kanon_db.spark.rows.recoded import covered, passed_on, recoded_schema
from kanon_db.spark.rows.writing import compare_with_source, keep, write_rows
from kanon_db.spark.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OTHERS: Final = "use sort_greedy, which searches segments, or publish in PostgreSQL"

_REFUSED: Final = {
    "optimal": ("the optimum is sought among all records at once", _OTHERS),
    "k_concealment": ("each record is compared with all others", _OTHERS),
}
"""Methods that stay on one machine: why, and what to do instead."""


class Freeform(SparkRows):
    """The kind ``freeform``."""

    def refuse(self, request: FreeformRequest, source: Source) -> None:
        """Refuse methods that stay on one machine, and coarsened columns."""
        if request.method in _REFUSED:
            raise refuse_method(request.method, *_REFUSED[request.method])
        check_partition_size(methods.partition_size(request), request.k)
        refuse_coarsened(source)

    def make(self, job: SparkJob) -> Made:
        """Match the records of each segment, and write the rows."""
        from pyspark.sql.types import BooleanType, LongType

        request: FreeformRequest = job.request
        require_k(job.source, request.k, job.snapshot.n_records)
        columns = read_quasi_identifiers(job, with_ranges=True)
        attributes = attributes_of(job, columns, weights_of(job.source, request.weights))
        size = methods.partition_size(request)
        require_room(columns, 3 * min(job.snapshot.n_records, 2 * size))
        records = coded_records(job, columns)
        divided, n_segments = in_segments(job, records, attributes, size)
        passed = passed_on(job)
        schema = recoded_schema(records, passed, columns)
        for name in COUNTED:
            schema.add(name, LongType())
        schema.add(HOLDS, BooleanType())
        job.voice.step(f"matching records: {request.method}")
        search = SegmentSearch(
            attributes,
            [column.ends() for column in columns],
            replace(request, weights=None),
            passed,
            schema.names,
        )
        context: Any = job.session.sparkContext
        recoded = keep(job, through_arrow(divided, matching(context.broadcast(search)), schema))
        checks, _ = compare_with_source(
            job, recoded, covered(columns), "every original value lies within its cell"
        )
        layout = recoded_layout(job.source, columns)
        check, rows, checksum = write_rows(job, recoded, layout)
        measured = measure_rows(rows, columns, attributes, job.snapshot.n_records)
        return Made(
            MethodResult(None),
            Written(
                freeform_guarantee(request),
                checks=[*checks, check, _check_graphs(recoded, request.k)],
                metrics={**loss_metrics(job.source, measured), "segments": n_segments},
                layout={**layout, "digest": checksum},
            ),
        )

    def examine(self, tables: Tables, publication: Publication, whole: Check) -> Examination:
        """Check that the rows are those whose matches were checked, and measure them."""
        rows = rows_of(tables, publication)
        columns = check_columns(rows, publication)
        if not columns.holds:
            return Examination([whole, columns], {})
        same = same_digest(SAME_ROWS, same=digest([rows]) == publication.layout["digest"])
        counted = class_sizes(tables, view_of(tables, publication))
        examined = judge_freeform(publication, counted, same)
        return Examination([whole, columns, *examined.checks], examined.metrics)


KIND: Final[Any] = Freeform()


def _check_graphs(recoded: DataFrame, k: int) -> Check:
    """Check the graphs that were drawn in all segments."""
    from pyspark.sql import functions as f

    originals, published, outside = COUNTED
    with in_own_words("matches could not be counted"):
        (row,) = recoded.agg(
            f.min(originals).alias("o"), f.min(published).alias("p"), f.max(outside).alias("n"),
            f.bool_and(HOLDS).alias("holds"),
        ).collect()  # fmt: skip
    return check_graph(k, row["o"], row["p"], row["n"], holds=bool(row["holds"]))
