"""Dealing records to buckets, each by its rank among the records of its value.

The rank of a record needs no machine to see all of them. Records are sent to parts by the upper
bits of their random keys, so that the parts follow each other in the order of keys. How many
records of each value are in each part is counted first; their sums say with which rank a value
begins in a part, and sorting each part does the rest.

With cells, what is dealt apart is the value within its cell; here that is a *group*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.bucketization.assignment import Allotment
from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.spark.chance import RANK
from kanon_db.spark.environment import in_own_words, through_arrow
from kanon_db.spark.snapshot import RECORD

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

GROUP: Final = "code"
BUCKET: Final = "bucket"
_PART: Final = "part"

_RECORDS_OF_PART: Final = 2**19
_MOST_COUNTS: Final = 2**23
"""Of groups in parts: 64 MB on each machine."""


def n_parts(n_records: int, n_groups: int = 1) -> int:
    """Choose a number of parts, a power of two, so that neither parts nor counts are too large."""
    wanted = 1 << max(0, (n_records - 1).bit_length() - _RECORDS_OF_PART.bit_length() + 1)
    possible = 1 << max(0, (_MOST_COUNTS // max(1, n_groups)).bit_length() - 1)
    return min(wanted, possible)


def part_of(key: str, parts: int) -> Column:
    """Return the part of a key: its upper bits, so that parts ascend with keys."""
    from pyspark.sql import functions as f

    bits = parts.bit_length() - 1
    if not bits:
        return f.lit(0)
    return (f.shiftright(f.col(key), 64 - bits) + f.lit(parts // 2)).cast("int")


def dealt(
    records: DataFrame, n_records: int, n_groups: int, allotment: Allotment, numbers: AnyIntArray
) -> DataFrame:
    """Add to each record the number of its bucket.

    Parameters
    ----------
    records : DataFrame
        With ``record``, ``rank_key`` and the group, ``code``, from files.
    n_records, n_groups : int
    allotment : Allotment
        Its values are groups.
    numbers : ndarray of int32, shape (n_buckets,)
        The published number of each bucket.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import IntegerType, StructType

    parts = n_parts(n_records, n_groups)
    parted = records.withColumn(_PART, part_of(RANK, parts))
    with in_own_words("records could not be counted"):
        counted = parted.groupBy(_PART, GROUP).agg(f.count("*").alias("n")).toArrow()
    counts = np.zeros((parts, n_groups), dtype=np.int64)
    counts[counted.column(_PART).to_numpy(), counted.column(GROUP).to_numpy()] = counted.column(
        "n"
    ).to_numpy()
    before = np.cumsum(counts, axis=0) - counts
    context: Any = records.sparkSession.sparkContext
    known = context.broadcast((before, allotment, numbers))
    ordered = parted.repartitionById(parts, f.col(_PART)).sortWithinPartitions(
        _PART, GROUP, RANK, RECORD
    )
    schema = StructType([*ordered.schema.fields]).add(BUCKET, IntegerType(), nullable=False)
    return through_arrow(ordered, dealing(known), schema).drop(_PART, RANK, RECORD)


def dealing(known: Any) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that finds the buckets of sorted records.

    Parameters
    ----------
    known : Broadcast
        Of how many records of each group come before each part, the allotment, and the numbers.
    """

    def deal(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        before, allotment, numbers = known.value
        last, seen = None, 0
        for batch in batches:
            if not batch.num_rows:
                continue
            part, group = (batch.column(name).to_numpy() for name in (_PART, GROUP))
            run = part.astype(np.int64) * before.shape[1] + group
            position = positions(run)
            if run[0] == last:
                position[run == last] += seen
            last, seen = run[-1], int(position[-1]) + 1
            bucket = numbers[allotment.bucket_of(group, before[part, group] + position)]
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
