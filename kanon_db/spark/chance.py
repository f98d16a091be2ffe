"""Randomness for records that are spread over many machines.

Each run draws a secret key from the operating system. What is random about a record is its keyed
BLAKE2b (RFC 7693), of its number in the snapshot: whoever does not know the key cannot tell it from
chance, and a task that is run again finds the same. ``rand()`` would give other numbers then, so
that records are lost or published twice (SPARK-38160), and its generator is not cryptographic.

The key is part of a function that Spark sends to workers. Plans, logs and the event log name the
function and its columns, and have nothing of what is in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import numpy as np

from kanon_db.spark.environment import through_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

RANK: Final = "rank_key"
"""Decides which records share a bucket."""

ORDER: Final = "order_key"
"""Decides where a record stands in the published files: the order of ranks would tell buckets."""

_KEY_BYTES: Final = 32


def drawn(frame: DataFrame) -> DataFrame:
    """Add two random numbers of 64 bits to records, whose own number is the first column.

    They are two halves of one hash, and independent. Two of n records have the same number with a
    probability below n**2 / 2**65; which of these comes first is decided by their own number.
    """
    from pyspark.sql.types import LongType, StructType

    schema = StructType([*frame.schema.fields])
    schema.add(RANK, LongType(), nullable=False).add(ORDER, LongType(), nullable=False)
    return through_arrow(frame, keyed_hashes(os.urandom(_KEY_BYTES)), schema)


Batches = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def keyed_hashes(key: bytes) -> Batches:
    """Return the function that hashes the first column of batches, with a key."""

    def draw(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            numbers = batch.column(0).to_numpy().astype("<i8").tobytes()
            hashes = b"".join(
                blake2b(numbers[i : i + 8], digest_size=16, key=key).digest()
                for i in range(0, len(numbers), 8)
            )
            halves = np.frombuffer(hashes, dtype="<i8").reshape(-1, 2)
            arrays = [*batch.columns, *(pa.array(np.ascontiguousarray(h)) for h in halves.T)]
            yield pa.RecordBatch.from_arrays(arrays, [*batch.schema.names, RANK, ORDER])

    return draw
