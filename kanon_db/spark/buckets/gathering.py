"""Buckets of similar records, within parts of a table that is spread over many machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.errors import InfeasibleError
from kanon_db.publications.buckets.bucket_relations import number_buckets
from kanon_db.randomness import SecureRandom
from kanon_db.spark.buckets.cutting import CELL, CutRecords
from kanon_db.spark.buckets.dealing import BUCKET
from kanon_db.spark.buckets.values import CODE
from kanon_db.spark.environment import in_own_words, quiet, through_arrow
from kanon_db.spark.kind import SparkJob
from kanon_db.spark.snapshot import RECORD

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

RECORDS_OF_PART: Final = 2**18
"""At least, of parts into which a table is cut."""

_MOST_OF_PART: Final = 2**24
"""Records that a worker can gather: some gigabytes."""

_OWN: Final = "own"
"""The number of a bucket in its part."""


def gathered(
    job: SparkJob, parts: CutRecords, privacy: FPrimePrivacy, max_bucket_size: int
) -> tuple[BucketSetting, DataFrame]:
    """Put similar records into the same bucket, in each part as on one machine.

    Parameters
    ----------
    job : SparkJob
    parts : CutRecords
        For each there are buckets.
    privacy : FPrimePrivacy
    max_bucket_size : int

    Returns
    -------
    setting : BucketSetting
        Of all parts.
    frame : DataFrame
        See :class:`~kanon_db.spark.buckets.assignments.Assigned`.

    Raises
    ------
    InfeasibleError
        When a part has too many records for a worker.

    Notes
    -----
    What is drawn is drawn by the workers, from the operating system. It is written to files before
    anything depends on it: a task that is run again writes all of its records anew.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import IntegerType, StructType

    largest = max(part.n_records for part in parts.cells)
    if largest > _MOST_OF_PART:
        raise InfeasibleError(
            "too many records cannot be told apart by the cuts that are possible",
            detail=f"a part of the table has {largest:,} records, of which a worker gathers"
            f" {_MOST_OF_PART:,}",
            hint="give assignment => 'cells', or thresholds that allow more cuts",
        )
    placed = parts.in_cells().drop(RECORD)
    kept = [field for field in placed.schema.fields if field.name not in parts.names]
    schema = StructType(kept).add(_OWN, IntegerType(), nullable=False)
    context: Any = job.session.sparkContext
    known = context.broadcast((privacy, max_bucket_size))
    folder = job.staging.scratch("gathered")
    with in_own_words("records could not be gathered"):
        with quiet():
            in_parts = placed.groupBy(CELL).applyInArrow(gathering(known, parts.names), schema)
        in_parts.write.parquet(folder.path)
        frame = job.session.read.parquet(folder.path)
        sizes = frame.groupBy(CELL, _OWN).agg(f.count("*").alias("size"))
        found = sizes.groupBy(CELL, "size").agg(f.count("*").alias("n")).toArrow()
    cell, size, n = (found.column(name).to_numpy() for name in (CELL, "size", "n"))
    order = np.lexsort((size, cell))  # as the buckets of a part are numbered
    cell, size, n = cell[order], size[order], n[order]
    setting = BucketSetting.of(np.unique(size), [n[size == one].sum() for one in np.unique(size)])
    known = context.broadcast((*_places(cell, size, n), number_buckets(setting, SecureRandom())))
    schema = StructType([*frame.schema.fields]).add(BUCKET, IntegerType(), nullable=False)
    return setting, through_arrow(frame, renumbering(known), schema).drop(CELL, _OWN)


def _places(cell: Any, size: Any, n: Any) -> tuple[Any, Any]:
    """Find the places of buckets in the whole table, by size, from their places in parts.

    Returns
    -------
    first_of_part : ndarray of int64, shape (n_parts,)
        What the buckets of a part are numbered from, one part after the other.
    steps : tuple of ndarray of int64
        These numbers, of the first bucket of each size in each part, and its place in the whole.
    """
    first = np.cumsum(n) - n
    by_size = np.lexsort((cell, size))
    place = np.empty(n.size, dtype=np.int64)
    place[by_size] = np.cumsum(n[by_size]) - n[by_size]
    first_of_part = first[np.searchsorted(cell, np.arange(cell.max() + 1))]
    return first_of_part, (first, place)


def gathering(known: Any, names: Sequence[str]) -> Callable[[pa.Table], pa.Table]:
    """Return the function that finds the buckets of a part.

    Parameters
    ----------
    known : Broadcast
        Of the thresholds, and the most records in a bucket.
    names : sequence of str
        The columns of the quasi-identifiers' codes.
    """

    def gather(part: pa.Table) -> pa.Table:
        import pyarrow as pa

        from kanon_db.algorithms.bucketization.local_assignment import assign_locally

        privacy, max_bucket_size = known.value
        columns = [np.unique(part.column(name), return_inverse=True)[1] for name in names]
        found = assign_locally(
            np.column_stack(columns).astype(np.int32),
            part.column(CODE).to_numpy().astype(np.int32),
            privacy,
            max_bucket_size,
            SecureRandom(),
        )
        return part.drop_columns(list(names)).append_column(_OWN, pa.array(found.bucket_of_record))

    return gather


def renumbering(known: Any) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that finds the published numbers of buckets.

    Parameters
    ----------
    known : Broadcast
        Of the places of buckets, and their published numbers.
    """

    def renumber(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        first_of_part, (first, place), numbers = known.value
        for batch in batches:
            own = batch.column(_OWN).to_numpy()
            in_turn = first_of_part[batch.column(CELL).to_numpy()] + own
            step = np.searchsorted(first, in_turn, side="right") - 1
            bucket = numbers[place[step] + in_turn - first[step]].astype(np.int32)
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(bucket)], [*batch.schema.names, BUCKET]
            )

    return renumber
