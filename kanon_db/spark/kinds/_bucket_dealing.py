"""Assigns records on many machines to buckets: at random, within cells, or to similar records.

Cells are cut on the driver, from the histogram of the quasi-identifiers. Each record is dealt to a
bucket by its rank among the records of its value in its cell, so that a task that is run again
assigns it to the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.bucketization.bucket_assignment import (
    Allotment,
    partition_records,
    round_robin,
)
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.cell_assignment import CutTree
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, IntArray, sort_keys
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.dataclasses import dataclass
from kanon_db.publications.buckets import methods
from kanon_db.publications.buckets.assignment_methods import CellSearch
from kanon_db.publications.buckets.bucket_relations import number_buckets
from kanon_db.publications.buckets.methods import SensitiveValues
from kanon_db.publications.kind import MethodResult, run_method
from kanon_db.randomness import SecureRandom
from kanon_db.spark._coded_records import (
    CHOICES,
    CODE,
    MOST_BITS,
    RECORDS,
    ValueList,
    count_combinations,
    group_codes,
    groups_of,
    read_values,
    with_codes,
)
from kanon_db.spark._spark_kind import SparkJob
from kanon_db.spark._tables import ORDER_KEY, RANK_KEY, RECORD
from kanon_db.spark.environment import failures_as_errors, through_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from kanon_db.algorithms.bucketization.cell_assignment import CutCell, Tightened


# The histogram of the quasi-identifiers of records on many machines, with their sensitive values.
#
# From it, the driver cuts the table into cells, by the very decisions that it makes in PostgreSQL.
# Where quasi-identifiers have too many combinations for the driver, neighboring values of each
# attribute are taken together, about as many records in each group, until they have few enough.
# Then there are cuts between groups only. Groups follow from the quasi-identifiers alone, so that
# cells tell no more than they do without them.


_MOST_NUMBERS: Final = 2**25
"""Of the histogram: its rows times its columns; some hundred megabytes, and a few seconds."""


@dataclass(frozen=True, eq=False)
class QuasiIdentifierHistogram:
    """How often each combination of quasi-identifiers has each sensitive value."""

    # (n_rows, n_qi): in their order; codes of values, or numbers of their groups
    qi_codes: CodeArray
    sa_codes: CodeArray  # (n_rows,)
    weights: IntArray  # (n_rows,): records of each row
    # For each attribute whose values are in groups, the last code up to each group
    last_codes: list[CodeArray | None]

    def in_codes(self, tree: CutTree) -> CutTree:
        """Return cuts between groups as cuts between codes."""
        last = tree.last.copy()
        for attribute, codes in enumerate(self.last_codes):
            if codes is not None:
                own = tree.attribute == attribute
                last[own] = codes[last[own]]
        return CutTree(tree.attribute, last, tree.below, tree.cell)


@dataclass(frozen=True, eq=False)
class HistogramColumns:
    """The quasi-identifiers of a snapshot as numbers."""

    columns: Sequence[str]  # What the snapshot calls them
    values: Sequence[ValueList]

    @classmethod
    def of(cls, job: SparkJob) -> HistogramColumns:
        """Count and number the values of each."""
        names = job.source.quasi_identifiers
        return cls(list(map(job.snapshot.column, names)), [read_values(job, one) for one in names])

    @property
    def names(self) -> list[str]:
        """The columns of codes in :meth:`coded`."""
        return [f"q{i}" for i in range(len(self.values))]

    def coded(self, job: SparkJob, records: DataFrame) -> DataFrame:
        """Add the codes of all quasi-identifiers, and keep the records in files."""
        job.voice.step("numbering quasi-identifiers")
        codes = list(zip(self.columns, self.values, self.names, strict=True))
        records = with_codes(records, codes, records.columns)
        return job.keep(records, "numbered", "quasi-identifiers could not be numbered")

    def histogram(self, job: SparkJob, coded: DataFrame, n_values: int) -> QuasiIdentifierHistogram:
        """Count the records with their codes and that of their value."""
        from pyspark.sql import functions as f

        job.voice.step("counting combinations of quasi-identifiers")
        bits = self._bits(job.snapshot.n_records, coded, n_values)
        counted = coded.select(*self.names, CODE)
        last_codes: list[CodeArray | None] = [None for _ in self.values]
        if bits is not None:
            groups = [groups_of(one.counts, bits) for one in self.values]
            last_codes = [_last_codes(own, bits) for own in groups]
            counted = through_arrow(counted, group_codes, counted.schema, (self.names, groups))
        with failures_as_errors("combinations of quasi-identifiers could not be counted"):
            found = counted.groupBy(*self.names, CODE).agg(f.count("*").alias(RECORDS)).toArrow()
        qi_codes = np.column_stack(
            [found.column(name).to_numpy().astype(np.int32) for name in self.names]
        )
        order = np.argsort(sort_keys(list(qi_codes.T)), kind="stable")
        return QuasiIdentifierHistogram(
            qi_codes[order],
            found.column(CODE).to_numpy().astype(np.int32)[order],
            found.column(RECORDS).to_numpy().astype(np.int64)[order],
            last_codes,
        )

    def _bits(self, n_records: int, coded: DataFrame, n_values: int) -> int | None:
        """Choose how fine groups are; None if values need not be taken together."""
        # It follows from the quasi-identifiers, and from how many sensitive values there are.

        def fits(combinations: float) -> bool:
            rows = min(n_records, combinations * n_values)
            return rows * (len(self.values) + 2) <= _MOST_NUMBERS

        if fits(float(np.prod([float(one.counts.size) for one in self.values]))):
            return None
        finest = [groups_of(one.counts, MOST_BITS) for one in self.values]
        counts = count_combinations(coded, self.names, finest)
        return next((bits for bits, n in zip(CHOICES, counts, strict=True) if fits(n)), 0)


def _last_codes(groups: CodeArray, bits: int) -> CodeArray:
    """Return, for each group, the last code that is in it or in one before it."""
    codes = np.searchsorted(groups, np.arange(1 << bits), side="right") - 1
    return codes.astype(np.int32)


# Dealing records to buckets, each by its rank among the records of its value in its cell.
#
# The rank of a record needs no machine to see all of them. Cells are divided into slices by the
# upper bits of random keys, so that the slices of a cell follow each other in the order of keys.
# How many records of each value are in each slice is counted first; their sums say with which rank
# a value begins in a slice, and sorting each slice does the rest.


BUCKET: Final = "bucket"
SLICE: Final = "slice"
PART_OF_VALUE: Final = "part"

_RECORDS_OF_PART: Final = 2**19
_MOST_COUNTS: Final = 2**23
"""Of values in slices: 64 MB on each machine."""


def n_parts(n_records: int, n_values: int = 1) -> int:
    """Choose a number of parts, a power of two, so that neither parts nor counts are too large."""
    wanted = 1 << max(0, (n_records - 1).bit_length() - _RECORDS_OF_PART.bit_length() + 1)
    possible = 1 << max(0, (_MOST_COUNTS // max(1, n_values)).bit_length() - 1)
    return min(wanted, possible)


def part_of(key: str, parts: int) -> Column:
    """Return the part of a key: its upper bits, so that parts ascend with keys."""
    from pyspark.sql import functions as f

    bits = parts.bit_length() - 1
    if not bits:
        return f.lit(0)
    return (f.shiftright(f.col(key), 64 - bits) + f.lit(parts // 2)).cast("int")


@dataclass(frozen=True, eq=False)
class Slices:
    """How cells are divided among the machines."""

    first: IntArray  # (n_cells,): the number of each cell's first slice
    n_slices: IntArray  # (n_cells,): A power of two for each cell
    # (sum of n_slices,): what is sorted together: a slice of a large cell, or some small cells
    part: AnyIntArray

    @classmethod
    def of(cls, records_of_cells: AnyIntArray, n_values: int) -> Slices:
        """Divide cells, given how many records each has."""
        records = records_of_cells.tolist()
        n_records = sum(records)
        fewer = n_parts(n_records) // n_parts(n_records, n_values)  # where values are many
        n_slices = np.array([max(1, n_parts(n) // fewer) for n in records], dtype=np.int64)
        part: list[int] = []
        last, filled = -1, _RECORDS_OF_PART
        for n, of_cell in zip(records, n_slices.tolist(), strict=True):
            if of_cell > 1 or filled + n > _RECORDS_OF_PART:
                part += range(last + 1, last + 1 + of_cell)
                last += of_cell
                filled = n if of_cell == 1 else _RECORDS_OF_PART
            else:
                part.append(last)
                filled += n
        return cls(np.cumsum(n_slices) - n_slices, n_slices, np.array(part, dtype=np.int32))

    @property
    def cell(self) -> IntArray:
        """The cell of each slice."""
        return np.repeat(np.arange(self.first.size), self.n_slices)

    def of_keys(self, cells: AnyIntArray, keys: IntArray) -> IntArray:
        """Find the slices of records, given their cells and random keys."""
        bits = np.frexp(self.n_slices[cells].astype(np.float64))[1] - 1
        # Shifted twice, since a shift by 64 bits is not defined.
        upper = (keys.view(np.uint64) ^ np.uint64(1 << 63)) >> np.uint64(1)
        slices: IntArray = self.first[cells] + (upper >> (63 - bits).astype(np.uint64)).astype(
            np.int64
        )
        return slices


def deal_records(
    records: DataFrame, slices: Slices, n_values: int, allotment: Allotment, numbers: AnyIntArray
) -> DataFrame:
    """Add to each record the number of its bucket."""
    # The values of the allotment are ``cell * n_values + code``.
    from pyspark.sql import functions as f
    from pyspark.sql.types import IntegerType, StructType

    before = _records_before(records, slices, n_values)
    known = slices.cell, n_values, *before, allotment, numbers
    n_partitions = int(slices.part.max(initial=0)) + 1
    # What decides most comparisons is one number, which Spark keeps beside its pointers to rows.
    run = f.col(SLICE).cast("long") * n_values + f.col(CODE)
    bits = 63 - (int(slices.part.size) * n_values).bit_length()
    first = f.shiftleft(run, bits) + f.shiftrightunsigned(f.col(RANK_KEY), 64 - bits)
    ordered = records.repartitionById(n_partitions, f.col(PART_OF_VALUE)).sortWithinPartitions(
        first, RANK_KEY, RECORD
    )
    schema = StructType([*ordered.schema.fields]).add(BUCKET, IntegerType(), nullable=False)
    dealt = through_arrow(ordered, deal, schema, known)
    return dealt.drop(SLICE, PART_OF_VALUE, RANK_KEY, RECORD)


def _records_before(records: DataFrame, slices: Slices, n_values: int) -> tuple[IntArray, IntArray]:
    """Count how many records of each value come before each slice in its cell."""
    # Returned are the row in which the counts of a slice are, row 0 for the only slice of a cell,
    # and these counts, of shape (n_rows, n_values).
    from pyspark.sql import functions as f

    nothing = np.zeros(0, dtype=np.int64)
    of, code, n = nothing, nothing, nothing
    if (slices.n_slices > 1).any():
        with failures_as_errors("records could not be counted"):
            counts = records.groupBy(SLICE, CODE).agg(f.count("*").alias("n")).toArrow()
        of, code, n = (counts.column(name).to_numpy() for name in (SLICE, CODE, "n"))
    return begun(slices, n_values, of, code, n)


def begun(
    slices: Slices, n_values: int, of: AnyIntArray, code: AnyIntArray, n: AnyIntArray
) -> tuple[IntArray, IntArray]:
    """Work out how many records of each value come before each slice; see above."""
    # `n` records of value `code` are in slice `of`, of divided cells at least.
    row = np.zeros(slices.part.size, dtype=np.int64)
    divided = np.flatnonzero((slices.n_slices > 1)[slices.cell])
    row[divided] = np.arange(1, divided.size + 1)
    counts = np.zeros((divided.size + 1, n_values), dtype=np.int64)
    counted = row[of] > 0
    counts[row[of[counted]], code[counted]] = n[counted]
    before = np.cumsum(counts, axis=0) - counts
    # Each cell begins anew.
    first = row[slices.first[slices.cell]]
    before[row[divided]] -= before[first[divided]]
    return row, before


def deal(known: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Find the buckets of sorted records."""
    import pyarrow as pa

    cell, n_values, row, before, allotment, numbers = known
    last, seen = None, 0
    for batch in batches:
        if not batch.num_rows:
            continue
        own, code = (batch.column(name).to_numpy() for name in (SLICE, CODE))
        run = own.astype(np.int64) * n_values + code
        position = positions(run)
        if run[0] == last:
            position[run == last] += seen
        last, seen = run[-1], int(position[-1]) + 1
        rank = before[row[own], code] + position
        bucket = numbers[allotment.bucket_of(cell[own] * n_values + code, rank)]
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, pa.array(bucket.astype(np.int32))], [*batch.schema.names, BUCKET]
        )


def positions(runs: IntArray) -> IntArray:
    """Give the members of each run of equal numbers their places in it.

    Examples
    --------
    >>> positions(np.array([7, 7, 3, 7])).tolist()
    [0, 1, 0, 0]
    """
    starts = np.flatnonzero(np.append(True, runs[1:] != runs[:-1]))
    lengths = np.diff(np.append(starts, runs.size))
    places: IntArray = np.arange(runs.size) - np.repeat(starts, lengths)
    return places


@dataclass(frozen=True, eq=False)
class CutRecords:
    """Cells, and the records that are in them."""

    cells: list[CutCell]
    # The snapshot's columns, the code of the sensitive value, and those of quasi-identifiers
    frame: DataFrame
    names: list[str]  # The columns of the latter
    tree: CutTree  # By which the cell of a record is found

    def place_records(self, job: SparkJob, slices: Slices) -> DataFrame:
        """Put the slice and the part of each record in place of quasi-identifiers' codes."""
        from pyspark.sql.types import IntegerType, StructType

        schema = StructType([*self.frame.schema.fields])
        for name in (SLICE, PART_OF_VALUE):
            schema.add(name, IntegerType(), nullable=False)
        located = through_arrow(self.frame, locate, schema, (self.tree, slices, self.names))
        return job.keep(
            located.drop(*self.names), "place_records", "records could not be put into cells"
        )


def cut_records(
    job: SparkJob,
    coded: DataFrame,
    n_values: int,
    tightened: Tightened,
    max_bucket_size: int,
    pulse: Pulse,
) -> CutRecords:
    """Cut the records into cells, as :func:`.assign_in_cells` does."""
    from kanon_db.algorithms.bucketization.cell_assignment import CellCutter, fewest_records_of_cell

    quasi_identifiers = HistogramColumns.of(job)
    coded = quasi_identifiers.coded(job, coded)
    histogram = quasi_identifiers.histogram(job, coded, n_values)
    job.voice.step("cutting the table into cells")
    cutter = CellCutter(
        histogram.qi_codes, histogram.sa_codes, tightened, max_bucket_size, SecureRandom(),
        fewest_records_of_cell(job.snapshot.n_records), pulse, histogram.weights,
    )  # fmt: skip
    cells = cutter.cells()
    return CutRecords(
        cells,
        coded,
        quasi_identifiers.names,
        histogram.in_codes(cutter.tree()),
    )


def locate(known: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Find the slices and parts of records, from their cells."""
    import pyarrow as pa

    tree, slices, names = known
    for batch in batches:
        codes = np.column_stack([batch.column(name).to_numpy() for name in names])
        cells = tree.cell_of(codes)
        own = slices.of_keys(cells, batch.column(RANK_KEY).to_numpy())
        added = {SLICE: own.astype(np.int32), PART_OF_VALUE: slices.part[own]}
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, *map(pa.array, added.values())], [*batch.schema.names, *added]
        )


@dataclass(frozen=True, eq=False)
class DealtRecords:
    """A bucket setting, and the bucket of each record."""

    setting: BucketSetting
    # Of the snapshot the quasi-identifiers and the key of its order, with ``bucket`` (the published
    # number) and ``code`` (of the sensitive value)
    frame: DataFrame
    # How many cells no bucket crosses; None if buckets do not depend on quasi-identifiers, or on
    # more than these
    cells: int | None = None


def random(job: SparkJob, data: SensitiveValues, values: ValueList) -> MethodResult:
    """Draw records into buckets, from the whole table."""
    job.voice.step("searching the bucket setting")
    planned = run_method(methods, job, data)
    plan = planned.result
    allotment = round_robin(partition_records(data.counts, plan.limits, plan.setting), plan.setting)
    numbers = number_buckets(plan.setting, SecureRandom())
    job.voice.step("assigning records to buckets")
    slices = Slices.of(np.array([job.snapshot.n_records]), data.counts.size)
    own = part_of(RANK_KEY, slices.part.size)
    coded = _code_values(job, values).withColumns({SLICE: own, PART_OF_VALUE: own})
    frame = deal_records(coded, slices, data.counts.size, allotment, numbers)
    return MethodResult(DealtRecords(plan.setting, frame), planned.proof)


def cells(job: SparkJob, data: SensitiveValues, values: ValueList) -> MethodResult:
    """Draw records into buckets, inside cells of similar records."""
    from kanon_db.algorithms.bucketization.cell_assignment import allot_cells  # a compiler

    if not job.snapshot.n_records:
        return random(job, data, values)
    search, m = CellSearch(job, data), data.counts.size
    cut = cut_records(
        job, _code_values(job, values), m, search.tightened, search.max_bucket_size,
        search.pulse,
    )  # fmt: skip
    job.voice.step("searching the bucket settings of cells")
    setting, allotment = allot_cells(cut.cells, search.setting, m, pulse=search.pulse)
    numbers = number_buckets(setting, SecureRandom())
    job.voice.step("assigning records to buckets in cells")
    slices = Slices.of(np.array([cell.n_records for cell in cut.cells]), m)
    frame = deal_records(cut.place_records(job, slices), slices, m, allotment, numbers)
    return MethodResult(DealtRecords(setting, frame, len(cut.cells)), search.proof)


def _code_values(job: SparkJob, values: ValueList) -> DataFrame:
    """Return what is needed of records, with the codes of their sensitive values."""
    shown = [job.snapshot.column(name) for name in job.source.quasi_identifiers]
    coded = (job.snapshot.column(str(job.source.sensitive)), values, CODE)
    return with_codes(job.snapshot.frame, [coded], [RECORD, RANK_KEY, ORDER_KEY, *shown])
