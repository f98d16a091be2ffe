"""Dealing records to buckets, each by its rank among the records of its value in its cell.

The rank of a record needs no machine to see all of them. Cells are divided into slices by the upper
bits of random keys, so that the slices of a cell follow each other in the order of keys. How many
records of each value are in each slice is counted first; their sums say with which rank a value
begins in a slice, and sorting each slice does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.bucketization.bucket_assignment import Allotment
from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.spark.buckets.values import CODE
from kanon_db.spark.chance import RANK
from kanon_db.spark.environment import in_own_words, through_arrow
from kanon_db.spark.snapshot import RECORD

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

BUCKET: Final = "bucket"
SLICE: Final = "slice"
PART: Final = "part"

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
    """How cells are divided among the machines.

    Attributes
    ----------
    first : ndarray of int64, shape (n_cells,)
        The number of each cell's first slice.
    n_slices : ndarray of int64, shape (n_cells,)
        A power of two for each cell.
    part : ndarray of int32, shape (sum of n_slices,)
        What is sorted together: a slice of a large cell, or some small cells.
    """

    first: IntArray
    n_slices: IntArray
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
        found: IntArray = self.first[cells] + (upper >> (63 - bits).astype(np.uint64)).astype(
            np.int64
        )
        return found


def dealt(
    records: DataFrame, slices: Slices, n_values: int, allotment: Allotment, numbers: AnyIntArray
) -> DataFrame:
    """Add to each record the number of its bucket.

    Parameters
    ----------
    records : DataFrame
        With ``record``, ``rank_key``, ``code`` (of the value), ``slice`` and ``part``, from files.
    slices : Slices
    n_values : int
    allotment : Allotment
        Its values are ``cell * n_values + code``.
    numbers : ndarray of int32, shape (n_buckets,)
        The published number of each bucket.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import IntegerType, StructType

    context: Any = records.sparkSession.sparkContext
    before = _records_before(records, slices, n_values)
    known = context.broadcast((slices.cell, n_values, *before, allotment, numbers))
    n_partitions = int(slices.part.max(initial=0)) + 1
    # What decides most comparisons is one number, which Spark keeps beside its pointers to rows.
    run = f.col(SLICE).cast("long") * n_values + f.col(CODE)
    bits = 63 - (int(slices.part.size) * n_values).bit_length()
    first = f.shiftleft(run, bits) + f.shiftrightunsigned(f.col(RANK), 64 - bits)
    ordered = records.repartitionById(n_partitions, f.col(PART)).sortWithinPartitions(
        first, RANK, RECORD
    )
    schema = StructType([*ordered.schema.fields]).add(BUCKET, IntegerType(), nullable=False)
    return through_arrow(ordered, dealing(known), schema).drop(SLICE, PART, RANK, RECORD)


def _records_before(records: DataFrame, slices: Slices, n_values: int) -> tuple[IntArray, IntArray]:
    """Count how many records of each value come before each slice in its cell.

    Returns
    -------
    row : ndarray of int64, shape (n_slices,)
        Where the counts of a slice are; those of a cell's only slice are in row 0.
    before : ndarray of int64, shape (n_rows, n_values)
    """
    from pyspark.sql import functions as f

    nothing = np.zeros(0, dtype=np.int64)
    of, code, n = nothing, nothing, nothing
    if (slices.n_slices > 1).any():
        with in_own_words("records could not be counted"):
            found = records.groupBy(SLICE, CODE).agg(f.count("*").alias("n")).toArrow()
        of, code, n = (found.column(name).to_numpy() for name in (SLICE, CODE, "n"))
    return begun(slices, n_values, of, code, n)


def begun(
    slices: Slices, n_values: int, of: AnyIntArray, code: AnyIntArray, n: AnyIntArray
) -> tuple[IntArray, IntArray]:
    """Work out how many records of each value come before each slice; see above.

    Parameters
    ----------
    slices : Slices
    n_values : int
    of, code, n : ndarray of int
        How many records of which value are in which slice; of divided cells at least.
    """
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


def dealing(known: Any) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that finds the buckets of sorted records.

    Parameters
    ----------
    known : Broadcast
        Of the cells of slices, the number of values, how many records come before each slice, the
        allotment, and the numbers.
    """

    def deal(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        cell, n_values, row, before, allotment, numbers = known.value
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

    return deal


def positions(runs: IntArray) -> IntArray:
    """Give the members of each run of equal numbers their places in it.

    Examples
    --------
    >>> positions(np.array([7, 7, 3, 7])).tolist()
    [0, 1, 0, 0]
    """
    starts = np.flatnonzero(np.append(True, runs[1:] != runs[:-1]))
    lengths = np.diff(np.append(starts, runs.size))
    found: IntArray = np.arange(runs.size) - np.repeat(starts, lengths)
    return found
