"""Writing QIT and SAT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kanon_db.algorithms.bucketization.contents import Contents
from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray
from kanon_db.publications.buckets.tables import QIT, SAT, BucketTables, first_bucket_ids
from kanon_db.publications.decoding import DecodedRows, number_of_row
from kanon_db.publications.staging import Staging
from kanon_db.randomness import SecureRandom
from kanon_db.session.protocol import Session, Value
from kanon_db.transfer.columns import inverse_permutation, number_bytes, with_numbers
from kanon_db.transfer.snapshot import Snapshot
from kanon_db.transfer.values import CodedColumn, DistinctValues


def number_buckets(setting: BucketSetting, random: SecureRandom) -> CodeArray:
    """Return the published number of each bucket; numbers are random within each size."""
    numbers = np.empty(setting.n_buckets, dtype=np.int32)
    for first, n_buckets in zip(first_bucket_ids(setting), setting.counts.tolist(), strict=True):
        own = slice(first - 1, first - 1 + n_buckets)
        numbers[own] = first + random.permutation(n_buckets)
    return numbers


def write_qit(
    staging: Staging,
    tables: BucketTables,
    snapshot: Snapshot,
    bucket_ids: CodeArray,
    order: AnyIntArray,
) -> None:
    """Copy the quasi-identifiers with their bucket, in the given order."""
    places = inverse_permutation(order)
    parts: list[str] = []
    bound: list[bytes] = []
    for start in range(0, order.size, _NUMBERS_AT_ONCE):
        part = slice(start, start + _NUMBERS_AT_ONCE)
        select, numbers = _numbered_part(
            tables, snapshot, bucket_ids[part], places[part], start, len(bound)
        )
        parts.append(select)
        bound += numbers
    names = ", ".join(f"s.{name}" for name in (*tables.quasi_identifiers, tables.bucket_id))
    staging.fill_table(
        QIT,
        f"SELECT {names} FROM ({' UNION ALL '.join(parts)}) AS s ORDER BY s.{snapshot.record}",
        *bound,
    )


def write_coded_qit(
    staging: Staging,
    tables: BucketTables,
    columns: Sequence[CodedColumn],
    bucket_ids: CodeArray,
    order: AnyIntArray,
) -> None:
    """Write the quasi-identifiers, given by their codes, with their bucket, in the given order."""
    named = dict(zip(tables.quasi_identifiers, columns, strict=True))
    rows = DecodedRows(staging.session, named, {tables.bucket_id: bucket_ids})
    staging.create_table(QIT, rows.shape)
    for select, bound in rows.parts(order):
        staging.session.fetch(
            f"INSERT INTO {tables.qit} ({', '.join(rows.names)}) {select}", *bound
        )


def _numbered_part(
    tables: BucketTables,
    snapshot: Snapshot,
    bucket_ids: CodeArray,
    places: CodeArray,
    start: int,
    n_bound: int,
) -> tuple[str, list[bytes]]:
    """Select the records from `start` on with their bucket, and as their number, their new place.

    Returns
    -------
    select : str
    bound : list of bytes
        What it has bound, after `n_bound` others.
    """
    table, index = snapshot.table, f"r.{snapshot.record}"
    if bucket_ids.size < snapshot.n_records:
        end = start + bucket_ids.size
        table = (
            f"(SELECT * FROM {table} AS r WHERE {index} >= {start}::int4 AND {index} < {end}::int8)"
        )
        index = f"{index} - {start}::int4"
    buckets, width = number_bytes(bucket_ids)
    order, order_width = number_bytes(places)
    numbered, (bucket_id, place) = with_numbers(
        snapshot.session,
        table,
        (n_bound + 1, index),
        (n_bound + 2, index),
        widths=(width, order_width),
    )
    names = ", ".join(f"n.{name}" for name in tables.quasi_identifiers)
    select = (
        f"SELECT {names}, n.{bucket_id} AS {tables.bucket_id}, n.{place} AS {snapshot.record}"
        f" FROM {numbered} AS n"
    )
    return select, [buckets, order]


_NUMBERS_AT_ONCE: Final = 1 << 27
"""Records whose numbers are bound as one value, which may have a gigabyte."""


def write_sat(
    staging: Staging, tables: BucketTables, values: DistinctValues, contents: Contents
) -> int:
    """Write how often each sensitive value occurs in each bucket, by value and bucket.

    The join may change the order of the rows, but nothing in it depends on the records' order.

    Returns
    -------
    int
        People whose bucket has no other value than theirs.
    """
    session = staging.session
    session.step("writing the sensitive table")
    codes, bucket_ids, counts = contents.pairs()
    staging.create_table(
        SAT,
        f"SELECT 0 AS {tables.bucket_id}, v.value AS {tables.sensitive}, 0 AS {tables.count}"
        f" FROM {values.table} AS v",
    )
    for start in range(0, codes.size, _PAIRS_AT_ONCE):
        session.done(start, codes.size)
        some = slice(start, start + _PAIRS_AT_ONCE)
        _insert_pairs(session, tables, values, codes[some], bucket_ids[some], counts[some])
    is_certain = counts == contents.sizes[bucket_ids - 1]
    return int(counts[is_certain].sum())


_PAIRS_AT_ONCE: Final = 1 << 23
"""Rows that are written by one statement, so that what is bound stays small."""


def _insert_pairs(
    session: Session,
    tables: BucketTables,
    values: DistinctValues,
    codes: AnyIntArray,
    bucket_ids: CodeArray,
    counts: CodeArray,
) -> None:
    """Insert rows of the SAT, which come by code."""
    firsts = np.flatnonzero(np.diff(codes, prepend=-1))
    ends = [*firsts[1:].tolist(), codes.size]
    bound: list[Value] = [
        list(map(str, one)) for one in (codes[firsts].tolist(), firsts.tolist(), ends)
    ]
    bucket_id, count = (number_of_row(one, bound) for one in (bucket_ids, counts))
    session.fetch(
        f"INSERT INTO {tables.sat} ({tables.bucket_id}, {tables.sensitive}, {tables.count})"
        f" SELECT {bucket_id}, r.value, {count} FROM"
        " (SELECT v.value, generate_series(f.low, f.high - 1) AS i FROM"
        " unnest($1::text[]::int4[], $2::text[]::int4[], $3::text[]::int4[]) AS f (code, low, high)"
        f" JOIN {values.table} AS v ON v.code = f.code) AS r",
        *bound,
    )
