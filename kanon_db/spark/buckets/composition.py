"""What buckets tell of how values go together, from the SAT; see the same in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.bucketization.buckets import Composition, decomposed
from kanon_db.publications.buckets.bucket_relations import composition_layout, is_composed
from kanon_db.query.layout import SHARES, BucketTables
from kanon_db.spark.buckets.dealing import n_parts
from kanon_db.spark.buckets.values import CODE, VALUE, NumberedValues
from kanon_db.spark.environment import in_own_words, through_arrow
from kanon_db.spark.kind import SparkJob
from kanon_db.spark.tables import Tables, folder_of, write_table

if TYPE_CHECKING:
    import pyarrow as pa

    from kanon_db.algorithms.ground.arrays import FloatArray

_ID: Final = "id"
_SIZE: Final = "size"
_PAIR: Final = "pair"
_N: Final = "n"
_COLUMNS: Final = (_ID, _SIZE, CODE, _N)

_BUCKETS_AT_ONCE: Final = 4096
"""Of which the counts of all values are held in memory."""


def write_composition(
    job: SparkJob, tables: Tables, names: BucketTables, values: NumberedValues, *, is_random: bool
) -> dict[str, list[float]] | None:
    """Write the directions in which buckets differ, a row for each sensitive value.

    Parameters
    ----------
    job : SparkJob
    tables : Tables
        With the SAT.
    names : BucketTables
    values : NumberedValues
    is_random : bool
        Whether records of the whole table were drawn into each bucket.

    Returns
    -------
    dict or None
        The spectrum, as the manifest keeps it; None if there is none. The table then has no rows.
    """
    spectrum, found, n_values = None, None, len(values.counts)
    if is_composed(n_values, is_random=is_random):
        job.voice.step("finding how the values of buckets go together")
        found = decomposed(_together(tables, names, values), values.counts)
        spectrum = composition_layout(found)
    lines = _lines(found) if found is not None and spectrum is not None else []
    arrays = job.session.createDataFrame(
        lines, "code int, directions array<double>, hidden array<double>"
    )
    frame = values.frame.join(arrays, values.frame[CODE] == arrays["code"])
    directions, hidden, sensitive = (
        _unquoted(name) for name in (names.directions, names.hidden, names.sensitive)
    )
    with in_own_words("the composition of buckets could not be written"):
        rows = frame.select(
            frame[VALUE].alias(sensitive),
            frame["directions"].alias(directions),
            frame["hidden"].alias(hidden),
        )
        write_table(rows.coalesce(1), job.staging.tables / folder_of(SHARES))
    return spectrum


def _lines(found: Composition) -> list[Any]:
    pairs = zip(found.directions.tolist(), found.hidden.tolist(), strict=True)
    return [(code, directions, hidden) for code, (directions, hidden) in enumerate(pairs)]


def _together(tables: Tables, names: BucketTables, values: NumberedValues) -> FloatArray:
    """Add up, over the buckets, n_g n_g' / |g| of each pair of values.

    Whole numbers of the buckets of each size are added up, so that no order rounds anything.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import IntegerType, LongType, StructType

    n_values = len(values.counts)
    shown = tables.select(
        f"SELECT s.{names.bucket_id} AS {_ID}, s.{names.sensitive} AS v,"
        f" {names.size(f's.{names.bucket_id}')}::int8 AS {_SIZE}, s.{names.count}::int8 AS {_N}"
        f" FROM {names.sat} AS s"
    )
    sent = (
        replace(values, column="v")
        .coded(shown)
        .repartition(n_parts(int(values.counts.sum())), _ID)
        .select(_ID, _SIZE, CODE, _N)
    )
    schema = StructType().add(_SIZE, LongType()).add(_PAIR, IntegerType()).add(_N, LongType())
    with in_own_words("the values of buckets could not be compared"):
        pairs = through_arrow(sent, multiplying(n_values), schema)
        rows = pairs.groupBy(_SIZE, _PAIR).agg(f.sum(_N).alias(_N)).toArrow().sort_by(_SIZE)
    found = np.zeros(n_values * n_values)
    size, pair, n = (rows.column(name).to_numpy() for name in (_SIZE, _PAIR, _N))
    for one in np.unique(size):
        of_size = size == one
        found[pair[of_size]] += n[of_size] / one
    return found.reshape(n_values, n_values)


def multiplying(n_values: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that adds up the products of counts, of whole buckets.

    Parameters
    ----------
    n_values : int
        m; a pair of values is ``m * one + other``.
    """

    def multiply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        part = [
            np.stack([batch.column(name).to_numpy().astype(np.int64) for name in _COLUMNS])
            for batch in batches
        ]
        if not part:
            return
        ids, size, code, n = np.concatenate(part, axis=1)
        for one in np.unique(size):
            of_size = np.flatnonzero(size == one)
            bucket = np.unique(ids[of_size], return_inverse=True)[1]
            of_size = of_size[np.argsort(bucket, kind="stable")]
            bucket = np.sort(bucket)
            total = np.zeros((n_values, n_values))
            for first in range(0, int(bucket[-1]) + 1, _BUCKETS_AT_ONCE):
                rows = slice(*np.searchsorted(bucket, (first, first + _BUCKETS_AT_ONCE)))
                counts = np.zeros((_BUCKETS_AT_ONCE, n_values))
                counts[bucket[rows] - first, code[of_size[rows]]] = n[of_size[rows]]
                total += counts.T @ counts  # whole numbers below 2**53: exact
            pairs = np.flatnonzero(total)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(np.full(pairs.size, one)),
                    pa.array(pairs.astype(np.int32)),
                    pa.array(total.ravel()[pairs].astype(np.int64)),
                ],
                [_SIZE, _PAIR, _N],
            )

    return multiply


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"')
