"""Writing, checking and reading a publication's bitmaps; see `kanon_db.counting.bitmaps`."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray
from kanon_db.publications.buckets.tables import BIT, BucketTables
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.transfer.columns import int4_bytes, with_numbers

if TYPE_CHECKING:  # the estimator imports this module, too, and does not need numpy
    from kanon_db.algorithms.bucketization.setting import BucketSetting
    from kanon_db.publications.staging import Staging
    from kanon_db.transfer.snapshot import Snapshot
    from kanon_db.transfer.values import DistinctValues

_MOST_BITS_PER_RECORD: Final = 512
"""For all bitmaps together: 64 bytes for each record, about the size of a row of the QIT."""

_MOST_BITMAP_BYTES: Final = 1 << 30
_BATCH_BYTES: Final = 1 << 25
"""Size of what is written at once, so that memory does not grow with the number of values."""

_MOST_OPERATIONS: Final = 100_000
"""Operations of one count query, which needs (S + 1)**2 for each bucket size S."""

_SAMPLE: Final = 10_000
"""Number of records in which we look for attributes with too many values."""

_MOST_GROUPED: Final = 31
"""The number of columns that PostgreSQL's GROUPING() can take."""

_MOST_GROUPED_BYTES: Final = 1 << 28
"""Size of the positions of all values, which the server collects in memory: 4 bytes for each, and
as much again when its buffers grow by doubling."""

_AUDITED_BUCKETS: Final = 10_000


def write_bitmaps(
    staging: Staging,
    tables: BucketTables,
    snapshot: Snapshot,
    layout: Mapping[str, Any],
    values: DistinctValues,
    codes: CodeArray,
    bucket_ids: CodeArray,
    setting: BucketSetting,
    order: AnyIntArray,
) -> list[str]:
    """Create the table of bitmaps.

    Parameters
    ----------
    layout : mapping
        The names of the columns.
    order : ndarray of int, shape (n_records,)
        A random permutation: records take the slots of their bucket in this order. Sensitive
        values take theirs in the order of the values, so that a slot does not link the two.

    Returns
    -------
    list of str
        The attributes that have bitmaps.
    """
    from kanon_db.algorithms.bucketization.slots import bit_positions

    session = snapshot.session
    session.step("writing the bitmaps")
    columns = [f"s.{column}" for column in tables.quasi_identifiers]
    columns.append(f"v.value AS {tables.sensitive}")
    staging.create_table(
        BIT,
        f"SELECT ''::text AS {tables.attribute}, {', '.join(columns)},"
        f" ''::bytea AS {tables.bits} FROM {snapshot.table} AS s, {values.table} AS v",
        uncompressed=[layout["bits"]],
    )
    if sum((size + 1) ** 2 for size in tables.sizes) > _MOST_OPERATIONS:
        return []
    budget = min(_MOST_BITS_PER_RECORD, 8 * _MOST_BITMAP_BYTES // snapshot.n_records)
    positions = bit_positions(bucket_ids, order, setting)
    written = []
    sensitive = str(layout["sensitive"])
    n_values = len(values.labels)
    if n_values <= budget:
        budget -= n_values
        by_value = codes.argsort(kind="stable")
        value_positions = bit_positions(bucket_ids, by_value, setting)[by_value]
        starts = values.counts.cumsum() - values.counts
        _insert(
            session,
            tables,
            sensitive,
            tables.sensitive,
            f"SELECT value, code AS number FROM {values.table}",
            [
                value_positions[start : start + count]
                for start, count in zip(starts.tolist(), values.counts.tolist(), strict=True)
            ],
            snapshot.n_records,
        )
        written.append(sensitive)
    candidates = list(_with_few_values(snapshot, layout["quasi_identifiers"], budget).items())
    at_once = min(_MOST_GROUPED, max(1, _MOST_GROUPED_BYTES // (8 * snapshot.n_records)))
    for start in range(0, len(candidates), at_once):
        some = dict(candidates[start : start + at_once])
        counts = _write_quasi_identifiers(tables, snapshot, some, positions, budget)
        budget -= sum(counts.values())
        written += counts
    return written


def _with_few_values(
    snapshot: Snapshot, quasi_identifiers: Sequence[str], limit: int
) -> dict[str, str]:
    """Return the names, also quoted, of attributes with at most `limit` values in a sample."""
    quoted = {name: snapshot.session.identifier(name) for name in quasi_identifiers}
    counts = ", ".join(f"count(DISTINCT {column})" for column in quoted.values())
    row = fetch_one(
        snapshot.session,
        f"SELECT ARRAY[{counts}] AS n_values FROM (SELECT * FROM {snapshot.table}"
        f" WHERE {snapshot.record} % greatest(1, $1::int4 / {_SAMPLE}) = 0) AS sample",
        str(snapshot.n_records),
    )
    return {
        name: column
        for (name, column), n in zip(quoted.items(), row["n_values"], strict=True)
        if n <= limit
    }


def _write_quasi_identifiers(
    tables: BucketTables,
    snapshot: Snapshot,
    candidates: Mapping[str, str],
    positions: CodeArray,
    budget: int,
) -> dict[str, int]:
    """Collect the positions of all values of all attributes in one pass, and pack them.

    Returns
    -------
    dict of str to int
        The attributes that were written, with their numbers of values.
    """
    import numpy as np

    session = snapshot.session
    collected = session.identifier("pg_temp", f"kanon_positions_{secrets.token_hex(8)}")
    columns = [f"s.{column}" for column in candidates.values()]
    # GROUPING has a 1 for each column that is *not* grouped by; the first is the highest bit.
    everything = (1 << len(columns)) - 1
    numbers = [everything ^ (1 << i) for i in reversed(range(len(columns)))]
    numbered, (position,) = with_numbers(session, snapshot.table, (1, f"r.{snapshot.record}"))
    session.fetch(
        f"CREATE TEMPORARY TABLE {collected} ON COMMIT DROP AS"
        f" SELECT grouping({', '.join(columns)}) AS attribute,"
        " (row_number() OVER ())::int4 AS number,"
        f" {', '.join(f'{column} AS value_{i}' for i, column in enumerate(columns))},"
        f" string_agg(int4send(s.{position}), ''::bytea) AS positions FROM {numbered} AS s"
        f" GROUP BY GROUPING SETS ({', '.join(f'({column})' for column in columns)})",
        int4_bytes(positions),
    )
    counts = {
        row["attribute"]: int(row["n"])
        for row in session.fetch(
            f"SELECT attribute, count(*) AS n FROM {collected} GROUP BY attribute"
        )
    }
    written: dict[str, int] = {}
    attributes = [
        (name, f"value_{i}", number)
        for i, (name, number) in enumerate(zip(candidates, numbers, strict=True))
    ]
    for name, value, number in sorted(attributes, key=lambda attribute: counts[attribute[2]]):
        if counts[number] > budget:
            break
        budget -= counts[number]
        rows = session.fetch(
            f"SELECT positions FROM {collected} WHERE attribute = $1::int4 ORDER BY number",
            str(number),
        )
        _insert(
            session,
            tables,
            name,
            candidates[name],
            f"SELECT {value} AS value, row_number() OVER (ORDER BY number) - 1 AS number"
            f" FROM {collected} WHERE attribute = {number}",
            [np.frombuffer(row["positions"], dtype=">i4") for row in rows],
            snapshot.n_records,
        )
        written[name] = counts[number]
    session.fetch(f"DROP TABLE {collected}")
    return written


def _insert(
    session: Session,
    tables: BucketTables,
    attribute: str,
    column: str,
    numbered: str,
    positions: Sequence[AnyIntArray],
    n_records: int,
) -> None:
    """Write an attribute's bitmaps; `numbered` selects its values with their numbers from 0."""
    from kanon_db.algorithms.bucketization.slots import pack_bits

    length = (n_records + 7) // 8
    n_values = max(1, _BATCH_BYTES // length)
    session.step("writing the bitmaps of a column")
    for start in range(0, len(positions), n_values):
        session.done(start, len(positions))
        session.fetch(
            f"INSERT INTO {tables.bit} ({tables.attribute}, {column}, {tables.bits})"
            " SELECT $1::text, v.value,"
            " substr($2::bytea, (v.number - $3::int8)::int4 * $4::int4 + 1, $4::int4)"
            f" FROM ({numbered}) AS v WHERE v.number >= $3::int8 AND v.number < $3::int8 + $5::int8"
            " ORDER BY v.number",
            attribute,
            b"".join(pack_bits(at, n_records) for at in positions[start : start + n_values]),
            str(start),
            str(length),
            str(n_values),
        )


def count_bitmap_differences(session: Session, tables: BucketTables, *, whole: bool) -> int:
    """Count where the bitmaps have other values in a bucket than QIT or SAT.

    Parameters
    ----------
    whole : bool
        Compare all buckets. Otherwise compare 10,000 of them, which are a random sample since
        bucket numbers are random; a bug in writing bitmaps would show up there.

    Returns
    -------
    int
        Pairs of bucket and value, summed over the attributes.
    """
    if not tables.with_bitmaps:
        return 0
    if not whole:
        return _differences(session, tables, 0.0, min(1.0, _AUDITED_BUCKETS / tables.n_buckets))
    n_bytes = fetch_one(session, f"SELECT sum(length({tables.bits})) AS n FROM {tables.bit}")["n"]
    n_parts = 1 + int(n_bytes or 0) // _BATCH_BYTES
    return sum(
        _differences(session, tables, part / n_parts, (part + 1) / n_parts)
        for part in range(n_parts)
    )


def _differences(session: Session, tables: BucketTables, low: float, high: float) -> int:
    """Compare a part of the buckets of each size: from the share `low` of their numbers to `high`.

    Only the bits of these buckets are fetched: one run of bits for each size and slot.
    """
    import numpy as np

    first_bits, n_compared = 0, 0
    starts, lengths, skipped, bucket_at, ranges = [], [], [], [], []
    for first, n, size in zip(
        tables.first_bucket_ids, tables.buckets_of_sizes, tables.sizes, strict=True
    ):
        # Rounded up at both ends, so that consecutive parts leave nothing out.
        begin, end = math.ceil(low * n), math.ceil(high * n)
        if begin < end:
            ranges.append((first + begin, first + end - 1))
            compared = np.arange(n_compared, n_compared + end - begin)
            n_compared += end - begin
            for slot in range(size):
                bit = first_bits + slot * n + begin
                starts.append(bit // 8)
                skipped.append(bit % 8)
                lengths.append((bit % 8 + end - begin + 7) // 8)
                bucket_at.append(compared)
        first_bits += size * n
    if not ranges:
        return 0
    firsts = np.array([first for first, _ in ranges])
    offsets = np.cumsum([0, *(last - first + 1 for first, last in ranges)])[:-1] - firsts
    differing = 0
    for row in session.fetch(
        _both_sides(session, tables, ranges), list(map(str, starts)), list(map(str, lengths))
    ):
        if row["length"] != (first_bits + 7) // 8:
            differing += n_compared
            continue
        bits = np.frombuffer(row["bits"], dtype=np.uint8)
        found = np.zeros(n_compared, dtype=np.int64)
        taken = 0
        for length, skip, compared in zip(lengths, skipped, bucket_at, strict=True):
            run = np.unpackbits(bits[taken : taken + length], bitorder="little")
            found[compared] += run[skip : skip + compared.size]
            taken += length
        pairs = np.frombuffer(row["pairs"] or b"", dtype=[("bucket", ">i4"), ("count", ">i4")])
        size_class = np.searchsorted(firsts, pairs["bucket"], side="right") - 1
        expected = np.zeros(n_compared, dtype=np.int64)
        np.add.at(expected, pairs["bucket"] + offsets[size_class], pairs["count"])
        differing += int((found != expected).sum())
    return differing


def _both_sides(session: Session, tables: BucketTables, ranges: Sequence[tuple[int, int]]) -> str:
    """Select parts of each value's bitmap, with the value's (bucket, count) pairs in QIT or SAT.

    The parts begin at the bytes ``$1`` and have the lengths ``$2``. GROUP BY brings both sides
    together for values of any type, including NULL.
    """
    compared = " OR ".join(f"{tables.bucket_id} BETWEEN {low} AND {high}" for low, high in ranges)
    columns = [session.identifier(attribute) for attribute in tables.with_bitmaps]
    values = [f"value_{i}" for i in range(len(columns))]
    named = ", ".join(f"{column} AS {value}" for column, value in zip(columns, values, strict=True))
    sides = [
        (
            f"SELECT {tables.attribute} AS attribute, {named}, length({tables.bits}) AS length,"
            f" (SELECT string_agg(substr({tables.bits}, r.start + 1, r.length), ''::bytea"
            "   ORDER BY r.number) FROM runs AS r) AS bits,"
            f" NULL::bytea AS pairs FROM {tables.bit}"
        )
    ]
    for attribute, column in zip(tables.with_bitmaps, columns, strict=True):
        table, count = ("s", tables.count) if column == tables.sensitive else ("q", "1")
        others = ", ".join(name if name == column else "NULL" for name in columns)
        sides.append(
            f"SELECT {session.literal(attribute)}, {others}, NULL, NULL, string_agg(int8send("
            f"({tables.bucket_id}::int8 << 32) | ({count}::int8 & 4294967295)), ''::bytea)"
            f" FROM {table} GROUP BY {column}"
        )
    return (
        f"WITH q AS MATERIALIZED (SELECT * FROM {tables.qit} WHERE {compared}),"
        f" s AS MATERIALIZED (SELECT * FROM {tables.sat} WHERE {compared})"
        ", runs AS MATERIALIZED (SELECT * FROM unnest($1::text[]::int4[], $2::text[]::int4[])"
        " WITH ORDINALITY AS r (start, length, number))"
        " SELECT sum(length) AS length, string_agg(bits, ''::bytea) AS bits,"
        " string_agg(pairs, ''::bytea) AS pairs"
        f" FROM ({' UNION ALL '.join(sides)}) AS b GROUP BY attribute, {', '.join(values)}"
    )
