"""Publishes freeform rows of records on many machines: matches are found in segments.

Segments are runs of the sorted records; each is searched where its records are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from kanon_db.algorithms.freeform import check_partition_size, draw_assignments, segment_starts
from kanon_db.algorithms.freeform.matches import cells as cells_of_matches
from kanon_db.algorithms.freeform.matching_checks import verify_matching
from kanon_db.algorithms.ground.computation import UNLIMITED
from kanon_db.algorithms.recoding import Microdata
from kanon_db.algorithms.recoding.microdata import Attribute
from kanon_db.catalog.entries import Publication, Source
from kanon_db.dataclasses import dataclass
from kanon_db.publications.freeform import methods
from kanon_db.publications.freeform.kind import (
    SAME_ROWS,
    FreeformGuarantee,
    check_graph,
    judge_freeform,
)
from kanon_db.publications.freeform.request import FreeformRequest
from kanon_db.publications.kind import MethodResult, Written
from kanon_db.publications.results import Check, Examination
from kanon_db.publications.rows.distinct_cells import ClassSizes
from kanon_db.publications.rows.row_kind import loss_metrics, require_k, weights_of
from kanon_db.publications.rows.row_relations import same_digest
from kanon_db.randomness import SecureRandom
from kanon_db.spark._coded_records import (
    attributes_of,
    code_column,
    codes_in,
    read_quasi_identifiers,
    write_coded_records,
)
from kanon_db.spark._publication_folder import digest_of_table
from kanon_db.spark._row_store import rows_of
from kanon_db.spark._spark_kind import SparkJob, SparkResult
from kanon_db.spark._tables import RECORD, PublishedTables
from kanon_db.spark.environment import failures_as_errors, through_arrow
from kanon_db.spark.kinds.row_files import (
    SparkRows,
    all_covered,
    cell_array,
    choose_layout,
    compare_with_source,
    keep_recoded,
    make_recoded_schema,
    measure_rows,
    name_copied_columns,
    require_room,
    write_rows,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


# Segments of the sorted records, and the search for matches in each, where its records are.
#
# Segments are those of one machine: the records are sorted by all quasi-identifiers, those with the
# fewest values first, and cut where :func:`~kanon_db.algorithms.freeform.segment_starts` says.


_RECORDS_OF_TASK: Final = 2**16
_CHUNK: Final = "chunk"
_PLACE: Final = "place"
_SEGMENT: Final = "segment"

ORIGINALS: Final = "originals"
PUBLISHED: Final = "published"
OUTSIDE: Final = "outside"
HOLDS: Final = "holds"
COUNTED: Final = (ORIGINALS, PUBLISHED, OUTSIDE)
"""What was counted of the graph of a record's segment."""


def in_segments(
    job: SparkJob, records: DataFrame, attributes: Sequence[Attribute], partition_size: int
) -> tuple[DataFrame, int]:
    """Sort records, and send the segments to partitions, in order; return how many there are."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import IntegerType, LongType, StructType

    job.voice.step("sorting records")
    by_size = sorted(range(len(attributes)), key=lambda place: attributes[place].n_values)
    ordered = records.orderBy(*(code_column(place) for place in by_size), RECORD)
    schema = StructType([*records.schema.fields])
    schema.add(_CHUNK, IntegerType(), nullable=False).add(_PLACE, LongType(), nullable=False)
    failure = "records could not be sorted"
    placed = job.keep(through_arrow(ordered, place_records, schema), "sorted", failure)
    with failures_as_errors(failure):
        counts = dict(map(tuple, placed.groupBy(_CHUNK).count().collect()))
    before = np.zeros(max(counts, default=0) + 1, dtype=np.int64)
    for chunk, count in counts.items():
        before[chunk + 1 :] += count
    starts = segment_starts(job.snapshot.n_records, partition_size)
    n_tasks = min(
        starts.size,
        max(
            -(-job.snapshot.n_records // _RECORDS_OF_TASK),
            int(job.session.sparkContext.defaultParallelism),
        ),
    )
    schema = StructType([*placed.schema.fields]).add(_SEGMENT, IntegerType(), nullable=False)
    numbered = through_arrow(placed, number_segments, schema, (before, starts))
    task = (f.col(_SEGMENT) * f.lit(n_tasks).cast("long") / starts.size).cast("int")
    sent = numbered.repartitionById(n_tasks, task).sortWithinPartitions(_SEGMENT, _CHUNK, _PLACE)
    return sent, int(starts.size)


def place_records(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the number of a partition, and the place of each record in it."""
    import pyarrow as pa
    from pyspark import TaskContext

    chunk, place = TaskContext.get().partitionId(), 0  # type: ignore[union-attr]
    for batch in batches:
        n = batch.num_rows
        added = [np.full(n, chunk, dtype=np.int32), np.arange(place, place + n)]
        place += n
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, *map(pa.array, added)], [*batch.schema.names, _CHUNK, _PLACE]
        )


def number_segments(known: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the number of its segment to each record."""
    import pyarrow as pa

    before, starts = known
    for batch in batches:
        chunk, place = (batch.column(name).to_numpy() for name in (_CHUNK, _PLACE))
        segment = np.searchsorted(starts, before[chunk] + place, side="right") - 1
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, pa.array(segment.astype(np.int32))],
            [*batch.schema.names, _SEGMENT],
        )


@dataclass(frozen=True, eq=False)
class SegmentSearch:
    """What each machine knows of the whole table."""

    attributes: tuple[Attribute, ...]
    ends: list[pa.Array]  # What the cells of each quasi-identifier are made of
    request: FreeformRequest
    passed: list[str]  # Columns that are passed on
    names: list[str]  # Columns of the result

    def run(self, segment: pa.Table) -> pa.RecordBatch:
        """Match the records of a segment; give each the cells of one of its matches."""
        # Which one is drawn from the operating system's source, where the work is done. A task that
        # runs again draws again; only what one attempt has drawn is kept.
        import pyarrow as pa

        codes = codes_in(segment, [code_column(place) for place in range(len(self.attributes))])
        data, k, n = Microdata(codes, self.attributes), self.request.k, segment.num_rows
        matched = getattr(methods, self.request.method)(data, self.request, UNLIMITED).result
        cells = cells_of_matches(data, matched.matches)
        drawn = draw_assignments(matched, SecureRandom())
        graph = verify_matching(drawn.matches, data, k, cells)
        shown = [
            cell_array(its_cells, attribute.numbers, ends, drawn.cells)
            for its_cells, attribute, ends in zip(cells, self.attributes, self.ends, strict=True)
        ]
        passed = [pa.concat_arrays(segment.column(name).chunks) for name in self.passed]
        counts = [graph.least_originals, graph.least_published, graph.n_outside]
        counted = [pa.array(np.full(n, count, dtype=np.int64)) for count in counts]
        flags = [pa.array(np.full(n, flag)) for flag in (False, graph.holds)]
        return pa.RecordBatch.from_arrays(
            [*passed, *shown, flags[0], *counted, flags[1]], self.names
        )


def match_segments(known: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Search one segment after the other."""
    for segment in runs(batches, _SEGMENT):
        yield known.run(segment)


def runs(batches: Iterator[pa.RecordBatch], name: str) -> Iterator[pa.Table]:
    """Take sorted records together whose numbers are the same."""
    import pyarrow as pa

    kept: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        numbers = batch.column(name).to_numpy()
        ends = [*np.flatnonzero(np.diff(numbers)) + 1, numbers.size]
        start = 0
        for end in ends:
            piece = batch.slice(start, int(end) - start)
            if kept and kept[-1].column(name)[0] != piece.column(name)[0]:
                yield pa.Table.from_batches(kept)
                kept = []
            kept.append(piece)
            start = int(end)
    if kept:
        yield pa.Table.from_batches(kept)


_OTHERS: Final = "use sort_greedy, which searches segments, or publish in PostgreSQL"


class SparkFreeform(SparkRows):
    """The kind ``freeform``."""

    on_one_machine: ClassVar = {
        "optimal": ("the optimum is sought among all records at once", _OTHERS),
        "k_concealment": ("each record is compared with all others", _OTHERS),
    }

    def refuse(self, request: FreeformRequest, source: Source) -> None:
        """Refuse methods that stay on one machine."""
        super().refuse(request, source)
        check_partition_size(methods.partition_size(request), request.k)

    def make(self, job: SparkJob) -> SparkResult:
        """Match the records of each segment, and write the rows."""
        from pyspark.sql.types import BooleanType, LongType

        request: FreeformRequest = job.request
        require_k(job.source, request.k, job.snapshot.n_records)
        columns = read_quasi_identifiers(job, with_ranges=True)
        attributes = attributes_of(job, columns, weights_of(job.source, request.weights))
        size = methods.partition_size(request)
        require_room(columns, 3 * min(job.snapshot.n_records, 2 * size))
        records = write_coded_records(job, columns)
        divided, n_segments = in_segments(job, records, attributes, size)
        passed = name_copied_columns(job)
        schema = make_recoded_schema(records, passed, columns)
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
        recoded = keep_recoded(job, through_arrow(divided, match_segments, schema, search))
        checks, _ = compare_with_source(
            job, recoded, all_covered(columns), "every original value lies within its cell"
        )
        layout = choose_layout(job.source, columns)
        check, rows, checksum = write_rows(job, recoded, layout)
        measured = measure_rows(rows, columns, attributes, job.snapshot.n_records)
        return SparkResult(
            MethodResult(None),
            Written(
                FreeformGuarantee.of(request),
                checks=[*checks, check, _check_graphs(recoded, request.k)],
                metrics={**loss_metrics(job.source, measured), "segments": n_segments},
                layout={**layout, "digest": checksum},
            ),
        )

    def judge(
        self, tables: PublishedTables, publication: Publication, counted: ClassSizes
    ) -> Examination:
        """Check that the rows are those whose matches were checked."""
        digest = digest_of_table([rows_of(tables, publication)])
        same = same_digest(SAME_ROWS, same=digest == publication.layout["digest"])
        found = judge_freeform(publication, counted)
        return replace(found, checks=[*found.checks, same])


KIND: Final[Any] = SparkFreeform()


def _check_graphs(recoded: DataFrame, k: int) -> Check:
    """Check the graphs that were drawn in all segments."""
    from pyspark.sql import functions as f

    originals, published, outside = COUNTED
    with failures_as_errors("matches could not be counted"):
        (row,) = recoded.agg(
            f.min(originals).alias("o"), f.min(published).alias("p"), f.max(outside).alias("n"),
            f.bool_and(HOLDS).alias("holds"),
        ).collect()  # fmt: skip
    return check_graph(k, row["o"], row["p"], row["n"], holds=bool(row["holds"]))
