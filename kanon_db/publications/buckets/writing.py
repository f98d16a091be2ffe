"""Writing QIT and SAT."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray
from kanon_db.publications.buckets.tables import QIT, SAT, BucketTables, first_bucket_ids
from kanon_db.publications.staging import Staging
from kanon_db.randomness import SecureRandom
from kanon_db.transfer.columns import int4_bytes, inverse_permutation, with_numbers
from kanon_db.transfer.snapshot import Snapshot
from kanon_db.transfer.values import DistinctValues


def number_buckets(setting: BucketSetting, random: SecureRandom) -> CodeArray:
    """Return the published number of each bucket; numbers are random within each size."""
    return np.concatenate(
        [
            np.int32(first) + random.permutation(n_buckets).astype(np.int32)
            for first, n_buckets in zip(
                first_bucket_ids(setting), setting.counts.tolist(), strict=True
            )
        ]
    )


def write_qit(
    staging: Staging,
    tables: BucketTables,
    snapshot: Snapshot,
    bucket_ids: CodeArray,
    order: AnyIntArray,
) -> None:
    """Write the quasi-identifiers with their bucket, in the given order."""
    session = snapshot.session
    session.step("writing the quasi-identifier table")
    names = ", ".join(f"s.{name}" for name in tables.quasi_identifiers)
    index = f"r.{snapshot.record}"
    numbered, (bucket_id, place) = with_numbers(session, snapshot.table, (1, index), (2, index))
    staging.fill_table(
        QIT,
        f"SELECT {names}, s.{bucket_id} AS {tables.bucket_id}"
        f" FROM {numbered} AS s ORDER BY s.{place}",
        int4_bytes(bucket_ids),
        int4_bytes(inverse_permutation(order)),
    )


def write_sat(
    staging: Staging,
    tables: BucketTables,
    snapshot: Snapshot,
    values: DistinctValues,
    codes: CodeArray,
    bucket_ids: CodeArray,
) -> None:
    """Write how often each sensitive value occurs in each bucket, by value and bucket.

    The join may change the order of the rows, but nothing in it depends on the records' order.
    """
    session = snapshot.session
    session.step("writing the sensitive table")
    pairs = codes.astype(np.int64)
    pairs <<= 32
    pairs |= bucket_ids
    pairs.sort()  # in place, while np.unique would make several copies
    starts = np.flatnonzero(np.diff(pairs, prepend=-1))
    counts = np.diff(starts, append=pairs.size)
    numbered, (code, bucket_id, count) = with_numbers(
        session,
        "(SELECT generate_series(0, $3::int4 - 1) AS i)",
        (1, "2 * r.i"),
        (1, "2 * r.i + 1"),
        (2, "r.i"),
    )
    staging.fill_table(
        SAT,
        f"SELECT b.{bucket_id} AS {tables.bucket_id},"
        f" v.value AS {tables.sensitive}, b.{count} AS {tables.count}"
        f" FROM {numbered} AS b JOIN {values.table} AS v ON v.code = b.{code}",
        pairs[starts].astype(">i8").tobytes(),  # each value's code, then its bucket
        int4_bytes(counts),
        str(starts.size),
    )
