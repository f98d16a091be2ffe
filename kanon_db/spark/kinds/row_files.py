"""What the three kinds of rows share: cells in files, writing, measuring and attacking rows.

A range is a structure of both of its ends, which belong to it, and a set is an array. Rows are
compared with the source before they are written, in an order that tells nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray
from kanon_db.algorithms.recoding.generalized_cells import Ranges, Sets
from kanon_db.algorithms.recoding.microdata import Attribute
from kanon_db.catalog.entries import Publication, Source
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InfeasibleError
from kanon_db.metrics.count_queries import CountQuery
from kanon_db.publications import KINDS
from kanon_db.publications.kind import Workload, accuracy_of, compare_counts
from kanon_db.publications.results import Attack, Check, CountAccuracy, Examination
from kanon_db.publications.rows.cell_columns import RangeColumn, SetColumn, ValueColumn
from kanon_db.publications.rows.distinct_cells import ClassSizes, class_statement
from kanon_db.publications.rows.published_rows import (
    AskedColumn,
    AskedNumbers,
    AskedValues,
    AttackedRows,
    AttackedValues,
    TypedColumn,
    answer_from_types,
)
from kanon_db.publications.rows.row_kind import RowKind, row_layout
from kanon_db.query.layout import RowView
from kanon_db.spark._coded_records import CodedQuasiIdentifier, number_of_value, other_columns
from kanon_db.spark._publication_folder import digest_of_table
from kanon_db.spark._row_store import (
    LOWER_END,
    UPPER_END,
    CountedColumn,
    CountedRecordTypes,
    add_value_shares,
    cell_layout,
    rows_of,
    view_of,
)
from kanon_db.spark._spark_kind import (
    MOST_RECORDS_ON_DRIVER,
    NumberedColumn,
    SparkJob,
    SparkKind,
    SparkTarget,
)
from kanon_db.spark._spark_query import axis_values, coordinate
from kanon_db.spark._tables import (
    ORDER_KEY,
    RECORD,
    PublishedTables,
    folder_of,
    text_of_column,
    write_table,
)
from kanon_db.spark.environment import failures_as_errors, quote_column
from kanon_db.spark.kinds._bucket_dealing import n_parts, part_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


# Cells in files: ranges are structures of both ends, which belong to them, and sets are arrays.
#
# A range of ``[20, 40]`` is ``{lower: 20, upper: 40}``; a NULL stands for NULL, and a range without
# ends for anything, NULL too. PostgreSQL's range of the type that the layout names follows from it:
# ``int4range(lower, upper, '[]')``. A set has texts, of which one may be NULL.


def cell_of(place: int) -> str:
    """Name the column with the cells of a quasi-identifier, before they are published."""
    return f"q{place}"


def cell_type(column: CodedQuasiIdentifier) -> DataType:
    """Return the type of a quasi-identifier's cells."""
    from pyspark.sql.types import ArrayType, StringType, StructType

    if column.range_type is None:
        return ArrayType(StringType(), containsNull=True)
    return StructType().add(LOWER_END, column.type).add(UPPER_END, column.type)


def cell_array(
    cells: Ranges | Sets, numbers: FloatArray | None, ends: pa.Array, of_record: AnyIntArray
) -> pa.Array:
    """Return the cell of each record."""
    # `of_record` has the number of a record's cell; -1 for none, which is NULL.
    import pyarrow as pa

    of_record = pa.array(of_record, mask=of_record < 0)
    if isinstance(cells, Sets):
        offsets = pa.array(np.append(0, cells.ends).astype(np.int32))
        return pa.ListArray.from_arrays(offsets, ends.take(pa.array(cells.codes))).take(of_record)
    is_null = np.zeros(cells.low.size, dtype=np.bool_)
    if numbers is not None:
        is_null = np.isnan(numbers)[cells.low] & ~cells.tells_nothing
    low, high = (
        ends.take(pa.array(codes, mask=cells.tells_nothing)) for codes in (cells.low, cells.high)
    )
    ranges = pa.StructArray.from_arrays(
        [low, high],
        fields=[pa.field(LOWER_END, ends.type), pa.field(UPPER_END, ends.type)],
        mask=pa.array(is_null),
    )
    return ranges.take(of_record)


def cell_covers(column: CodedQuasiIdentifier, cell: Column, value: Column) -> Column:
    """Say whether a value lies within a cell; never NULL."""
    from pyspark.sql import functions as f

    if column.range_type is None:
        text = text_of_column(value, column.column)
        with_null = f.exists(cell, lambda member: member.isNull())
        inside = f.when(value.isNull(), with_null).otherwise(f.array_contains(cell, text))
        return f.coalesce(inside, f.lit(False))
    low, high = cell[LOWER_END], cell[UPPER_END]
    is_anything = cell.isNotNull() & low.isNull() & high.isNull()
    inside = f.when(value.isNull(), cell.isNull()).otherwise((low <= value) & (value <= high))
    return is_anything | f.coalesce(inside, f.lit(False))


def cell_losses(column: CodedQuasiIdentifier, cell: Column, extent: float) -> tuple[Column, Column]:
    """Return what a cell loses: its NCP by [FF], and by [OB]."""
    # As :func:`kanon_db.metrics.information_loss.class_ncp`, from the published cells alone.
    from pyspark.sql import functions as f

    if column.range_type is None:
        n_values, n_more = len(column.values.labels), f.size(cell) - 1
        return n_more / float(max(n_values - 1, 1)), n_more / float(n_values)
    low, high = (number_of_value(cell[end], column.column) for end in (LOWER_END, UPPER_END))
    assert low is not None  # noqa: S101  # for the type checker
    assert high is not None  # noqa: S101
    width = (high - low) / extent if extent > 0 else f.lit(0.0)
    loss = f.when(cell.isNull(), 0.0).when(cell[LOWER_END].isNull(), 1.0).otherwise(width)
    return loss, loss


_MOST_BYTES = 2**28
"""Of sets that a machine keeps at a time."""


def require_room(columns: Sequence[CodedQuasiIdentifier], n_sets: int) -> None:
    """Refuse sets of so many values that a machine could not keep those of its records."""
    n_values = sum(len(c.values.labels) for c in columns if c.range_type is None)
    if n_sets * n_values / 8 > _MOST_BYTES:
        raise InfeasibleError(
            "there are too many values in sets for one machine",
            detail=f"{n_sets:,} sets of {n_values:,} values at a time",
            hint="leave out quasi-identifiers with very many values, or coarsen them",
        )


def choose_layout(source: Source, columns: Sequence[CodedQuasiIdentifier]) -> dict[str, Any]:
    """Choose the layout, with the types that ranges have in PostgreSQL."""
    layout = row_layout(source, [column.cell for column in columns])
    for described, column in zip(layout["quasi_identifiers"], columns, strict=True):
        described.update(column.described)
    return layout


@dataclass(frozen=True, eq=False)
class RowLoss:
    """As :class:`kanon_db.metrics.information_loss.GeneralizationMetrics` has it."""

    gcp: float
    weighted_loss: float
    ob_gcp: float
    loss_by_attribute: FloatArray  # (m,)


def measure_rows(
    rows: DataFrame,
    columns: Sequence[CodedQuasiIdentifier],
    attributes: Sequence[Attribute],
    n_records: int,
    left_out: int = 0,
) -> RowLoss:
    """Measure published rows."""
    # Each cell of a record that is left out loses 1.
    from pyspark.sql import functions as f

    sums = []
    for column, attribute in zip(columns, attributes, strict=True):
        extent = attribute.upper - attribute.lower
        of_cell = cell_losses(column, f.col(quote_column(column.name)), extent)
        sums += [f.coalesce(f.sum(loss.cast("double")), f.lit(0.0)) for loss in of_cell]
    with failures_as_errors("the loss could not be measured"):
        (row,) = rows.agg(*(one.alias(f"l{i}") for i, one in enumerate(sums))).collect()
    ncp, ob_ncp = np.array(list(row), dtype=np.float64).reshape(-1, 2).T + left_out
    weights = np.array([attribute.weight for attribute in attributes])
    return RowLoss(
        float(ncp.sum()) / max(n_records * ncp.size, 1),
        float(ncp @ weights),
        float(ob_ncp.sum()),
        ncp / max(n_records, 1),
    )


LEFT_OUT: Final = "left_out"
"""Whether a record has no published row."""

PATTERN_NUMBER: Final = "pattern"


def keep_recoded(job: SparkJob, recoded: DataFrame, name: str = "recoded") -> DataFrame:
    """Write recoded records to files, once: what follows reads the same ones again."""
    return job.keep(recoded, name, "records could not be recoded")


def compare_with_source(
    job: SparkJob, recoded: DataFrame, inside: Column, promise: str
) -> tuple[list[Check], int]:
    """Compare recoded records with the snapshot, one by one."""
    # `inside` says whether a record's own values, under the snapshot's names, are in its cells.
    # Returned are the checks, and how many records have no row.
    from pyspark.sql import functions as f

    job.voice.step("comparing rows with the source")
    columns_beside = [job.snapshot.column(name) for name in other_columns(job)]
    there = recoded.select(
        f.col(RECORD).alias("its_record"), LEFT_OUT,
        *(name for name in recoded.columns if name.startswith("q") or name == PATTERN_NUMBER),
        *(f.col(other).alias(f"its_{other}") for other in columns_beside),
    )  # fmt: skip
    same = f.lit(True)
    for other in columns_beside:
        same = same & f.col(other).eqNullSafe(f.col(f"its_{other}"))
    is_shown = f.col(LEFT_OUT).eqNullSafe(False)
    joined = job.snapshot.frame.join(there, f.col(RECORD) == f.col("its_record"), "full")
    with failures_as_errors("rows could not be compared with the source"):
        (row,) = joined.agg(
            f.count_if(f.col(RECORD).isNull() | f.col("its_record").isNull()).alias("lost"),
            f.count("*").alias("pairs"),
            f.count_if(is_shown & ~inside).alias("outside"),
            f.count_if(is_shown & ~same).alias("others"),
            f.count_if(LEFT_OUT).alias("left_out"),
        ).collect()
    # Where none is lost, each record is in one pair at least: so many pairs are one of each.
    repeated = max(row["pairs"] - job.snapshot.n_records, 0)
    wrong = row["lost"] + repeated + row["others"]
    return [
        Check(
            promise,
            "0 records outside",
            f"{row['outside']} records outside",
            holds=row["outside"] == 0,
        ),
        Check(
            "every record of the source was recoded once, with its own other columns",
            "0 records differ",
            f"{wrong} records differ",
            holds=wrong == 0,
        ),
    ], int(row["left_out"])


def write_rows(
    job: SparkJob, recoded: DataFrame, layout: Mapping[str, Any]
) -> tuple[Check, DataFrame, str]:
    """Write the published rows, in the order of a random key of their own."""
    # Returned are a check that the files have just these rows, the rows as read, and a checksum.
    from pyspark.sql import functions as f

    job.voice.step("writing the published rows")
    own = {cell["name"]: cell_of(i) for i, cell in enumerate(layout["quasi_identifiers"])}
    own |= {name: job.snapshot.column(name) for name in other_columns(job)}
    if layout.get("pattern") is not None:
        own[layout["pattern"]] = PATTERN_NUMBER
    published = [f.col(own[name]).alias(name) for name in layout["columns"]]
    parts, folder = n_parts(job.snapshot.n_records), job.staging.tables / folder_of("")
    with failures_as_errors("the published rows could not be written"):
        shown = recoded.where(~f.col(LEFT_OUT))
        ordered = shown.repartitionById(parts, part_of(ORDER_KEY, parts)).sortWithinPartitions(
            ORDER_KEY, RECORD
        )
        write_table(ordered.select(*published), folder)
        rows = job.session.read.parquet(folder.path)
        checksum = digest_of_table([rows])
        same = checksum == digest_of_table([shown.select(*published)])
    check = Check(
        "the files have the rows that were compared with the source",
        "the same checksum",
        f"{'the same' if same else 'another'} checksum",
        holds=same,
    )
    return check, rows, checksum


def name_copied_columns(job: SparkJob) -> list[str]:
    """Name the columns of a record that go with its cells."""
    return [RECORD, ORDER_KEY, *(job.snapshot.column(name) for name in other_columns(job))]


def make_recoded_schema(
    records: DataFrame, passed: Sequence[str], columns: Sequence[CodedQuasiIdentifier]
) -> Any:
    """Return the schema of recoded records: what is passed on, the cells, and ``left_out``."""
    from pyspark.sql.types import BooleanType, StructType

    schema = StructType([records.schema[name] for name in passed])
    for place, column in enumerate(columns):
        schema.add(cell_of(place), cell_type(column))
    return schema.add(LEFT_OUT, BooleanType())


def all_covered(columns: Sequence[CodedQuasiIdentifier]) -> Column:
    """Say whether the values of a record, by the snapshot's names, lie within its cells."""
    from pyspark.sql import functions as f

    inside = [
        cell_covers(column, f.col(cell_of(place)), f.col(column.source))
        for place, column in enumerate(columns)
    ]
    return reduce(and_, inside)


def check_columns(rows: DataFrame, publication: Publication) -> Check:
    """Check that the rows have the published columns."""
    columns = list(publication.layout["columns"])
    differing = len(set(columns).symmetric_difference(rows.columns))
    return Check(
        "the rows have the published columns, and no identifier",
        f"{len(columns)} columns, 0 differ",
        f"{len(rows.columns)} columns, {differing} differ",
        holds=columns == rows.columns,
    )


def count_classes(tables: PublishedTables, view: RowView) -> ClassSizes:
    """Count the rows that have the same cells, and the same pattern."""
    counts = tables.fetch(
        "SELECT c.pattern, c.n, count(*) AS classes, sum(c.n * c.shown) AS shown"
        f" FROM ({class_statement(view)}) AS c GROUP BY c.pattern, c.n"
    )
    patterns = list(dict.fromkeys(row["pattern"] for row in counts))
    number = np.array([row["classes"] for row in counts], dtype=np.int64)
    sizes = np.array([row["n"] for row in counts], dtype=np.int64)
    of_row = np.array([patterns.index(row["pattern"]) for row in counts], dtype=np.int64)
    n_shown = sum(int(row["shown"]) for row in counts)
    return ClassSizes(np.repeat(sizes, number), patterns, np.repeat(of_row, number), n_shown)


class SparkRows(SparkKind):
    """A kind that publishes rows."""

    protects_several = True

    suffixes = ("",)

    @abstractmethod
    def judge(
        self, tables: PublishedTables, publication: Publication, counted: ClassSizes
    ) -> Examination:
        """Check what the kind promises of its rows, and measure them."""

    def examine(
        self, tables: PublishedTables, publication: Publication, files_check: Check
    ) -> Examination:
        """Check what is promised of the rows, and measure them, with the files alone."""
        columns = check_columns(rows_of(tables, publication), publication)
        if not columns.holds:
            return Examination([files_check, columns], {})
        counted = count_classes(tables, view_of(tables, publication))
        examined = self.judge(tables, publication, counted)
        return Examination([files_check, columns, *examined.checks], examined.metrics)

    def attack(self, target: SparkTarget) -> list[Attack]:
        """Play all attacks; see :func:`published_rows.attack_read_rows`."""
        kind = _in_postgresql(target)
        return kind.play(target.session, target.pulse(), target.publication, read_rows(target), {})

    def evaluate(self, target: SparkTarget, workload: Workload) -> list[CountAccuracy]:
        """Compare the answers to random count queries with the source."""
        publication = target.publication
        names = [str(cell["name"]) for cell in publication.layout["quasi_identifiers"]]
        sensitive = next(iter(publication.all_sensitive), None)
        answer = partial(answer_from_files, target)
        return accuracy_of(workload, *compare_counts(target, workload, names, sensitive, answer))


def read_rows(target: SparkTarget) -> AttackedRows:
    """Read the published rows, and the source, as :func:`.published_rows.read_rows`."""
    publication = target.publication
    names = [str(cell["name"]) for cell in publication.layout["quasi_identifiers"]]
    sensitive, n_qi = publication.all_sensitive, len(names)
    source = target.original([*names, *sensitive])
    columns = [source.values(name) for name in (*names, *sensitive)]
    people = source.codes(columns)
    layout = cell_layout(target.session, publication, is_paper=False)
    # In another order, the same seed would draw other samples.
    counted = CountedRecordTypes.of(
        rows_of(target.session.tables, publication), layout, [*names, *sensitive],
        publication.layout.get("pattern"), {}, most=MOST_RECORDS_ON_DRIVER, in_order=True,
    )  # fmt: skip
    number = counted.n.astype(np.int64)
    values = []
    for place, name in enumerate(sensitive, start=n_qi):
        own, column = counted.columns[place].values, columns[place]
        labels = NumberedColumn(column.column, own, column.session).labels
        of_rows = np.repeat(counted.codes[place], number)
        in_source = column.codes(own).astype(np.int64)
        values.append(AttackedValues.of(name, labels, in_source, of_rows, people[:, place]))
    cells = [
        _match_cells(own, column).covers()
        for own, column in zip(counted.columns[:n_qi], columns[:n_qi], strict=True)
    ]
    class_of_row = np.repeat(np.arange(number.size), number)
    n_codes = [len(column) for column in columns[:n_qi]]
    cell_of_type = np.stack(counted.codes[:n_qi], axis=1)
    return AttackedRows.of(cells, cell_of_type, class_of_row, people[:, :n_qi], n_codes, values)


def answer_from_files(
    target: SparkTarget,
    columns: Sequence[NumberedColumn],
    sensitive: NumberedColumn | None,
    queries: Sequence[CountQuery],
) -> FloatArray:
    """Answer count queries from the types of records, as :func:`.answer_from_rows`."""
    publication = target.publication
    every = [*columns, *([] if sensitive is None else [sensitive])]
    names = [values.column.name for values in every]
    layout = cell_layout(target.session, publication, is_paper=False)
    rows = rows_of(target.session.tables, publication)
    layout, shares = add_value_shares(layout, rows, publication, names, lambda _, find: find())
    pattern = publication.layout.get("pattern")
    counted = CountedRecordTypes.of(
        rows, layout, names, pattern, shares, most=MOST_RECORDS_ON_DRIVER
    )
    known = [
        TypedColumn(_match_cells(column, values), place)
        for place, (column, values) in enumerate(zip(counted.columns, every, strict=True))
    ]
    types = [(dict(enumerate(counted.codes)), counted.n)]
    own, last = known[: len(columns)], None if sensitive is None else known[-1]
    heartbeat = target.session.heartbeat
    return answer_from_types(types, own, last, queries, layout, heartbeat).answers


def _match_cells(counted: CountedColumn, values: NumberedColumn) -> AskedColumn:
    """Find the source's values among those that cells may stand for."""
    cells = counted.cells
    if isinstance(cells, RangeColumn):
        type_ = cells.cell.column.type
        at = axis_values(values.array.drop_null(), type_)
        places = np.array(at if cells.ends.at is None else [coordinate(one, type_) for one in at])
        return AskedNumbers(cells, places, len(values))
    if isinstance(cells, SetColumn):
        code_of = {text: code for code, text in enumerate(values.labels)}
        codes = np.array([code_of.get(text, -1) for text in counted.texts])
        return AskedValues(cells, codes, len(values))
    if not isinstance(cells, ValueColumn):
        raise TypeError("cells are values, sets or ranges")
    return AskedValues(cells, values.codes(counted.values).astype(np.int64), len(values))


def _in_postgresql(target: SparkTarget) -> RowKind:
    """Return the kind that plays the same there."""
    return cast("RowKind", KINDS[target.publication.kind].load())
