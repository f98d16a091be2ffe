"""Writes what follows from QIT and SAT: their view, the bitmaps, and the weights of values.

Where records were put into buckets just now, it is written from what is in memory; otherwise it is
read from the two tables. A batch of new people gets buckets of its own, beside those of before: no
bucket of before changes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.bucketization.buckets import (
    BitmapBalance,
    BucketContents,
    BucketSetting,
    bit_positions,
    in_slots,
)
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, order_of, sort_keys, taken
from kanon_db.catalog.entries import Publication
from kanon_db.errors import VerificationError
from kanon_db.publications.buckets.bucket_relations import (
    Thresholds,
    attributes_with_bitmaps,
    first_bucket_ids,
    most_values,
    write_weights,
)
from kanon_db.publications.codes import byte_ranks, write_bucket_codes
from kanon_db.publications.kind import Job, Written
from kanon_db.publications.relations import StagedRelations
from kanon_db.query.layout import BIT, LIKELY, QIT, SAT, SHARES, BucketTables
from kanon_db.randomness import SecureRandom
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.coded_columns import read_few_values
from kanon_db.transfer.columns import ColumnType, Relation
from kanon_db.transfer.snapshot import take_snapshot
from kanon_db.transfer.values import (
    CodedColumn,
    DistinctCombinations,
    DistinctValues,
    RankedColumn,
    distinct_values,
    number_column,
    read_codes,
    read_integers,
)

# The format of the bitmaps is described in `kanon_db.answers._bitmap_sums`.

_BATCH_BYTES: Final = 1 << 25
"""Size of what is written at once, so that memory does not grow with the number of values."""

_AUDITED_BUCKETS: Final = 10_000
_AUDITED_BYTES: Final = 1 << 28
"""Size of what is compared at once: bitmaps, and the bucket numbers of records."""

_MOST_GROUPED: Final = 31
"""The number of columns that PostgreSQL's GROUPING() can take."""


def write_bitmaps(
    staging: StagedRelations,
    tables: BucketTables,
    layout: Mapping[str, Any],
    columns: Mapping[str, CodedColumn],
    wide: dict[str, RankedColumn],
    found: DistinctCombinations,
    contents: BucketContents,
    bucket_ids: CodeArray,
    order: AnyIntArray,
    thresholds: Thresholds | None,
    random: SecureRandom,
) -> dict[str, Any]:
    """Write the codes, the bitmaps, the weights of sensitive values, and the view of these.

    Parameters
    ----------
    layout : mapping
        The names of the columns.
    columns : mapping of str to CodedColumn
        The quasi-identifiers that may have bitmaps.
    wide : mapping of str to RankedColumn
        The other ones.
    found : DistinctCombinations
        The values of the sensitive attributes.
    contents : BucketContents
    bucket_ids : ndarray of int32, shape (n_records,)
    order : ndarray of int, shape (n_records,)
        A random permutation of the records, in which weights are learned.
    thresholds : callable, optional
    random : SecureRandom
        See :func:`.write_weights`.

    Returns
    -------
    dict
        What the layout says of it: the attributes ``with_bitmaps``, those that are ``weighted``,
        and how records take the slots of their bucket: in the order of the columns ``placed_by``,
        whose texts are compared byte by byte where they are ``bytewise``.

    Notes
    -----
    The slots of records follow from QIT, so that SQL finds a record's weights, and those of
    sensitive values from SAT: a slot links neither.
    """
    session = staging.session
    session.step("writing the bitmaps")
    names = ", ".join(f"q.{name}" for name in tables.quasi_identifiers)
    staging.create_table(
        BIT,
        f"SELECT ''::text AS {tables.attribute}, {names}, {tables.values('s')},"
        f" ''::bytea AS {tables.bits} FROM {tables.qit} AS q, {tables.sat} AS s",
        uncompressed=[layout["bits"]],
    )
    n_values = {name: len(column.values.labels) for name, column in columns.items()}
    of_sensitive = {
        name: len(values.labels)
        for name, values in zip(tables.sensitive, found.columns, strict=True)
    }
    written = attributes_with_bitmaps(of_sensitive, n_values, tables.sizes, order.size)
    of_contents = contents.in_slots
    for name, values, codes in zip(tables.sensitive, found.columns, found.values.T, strict=True):
        if name in written:
            narrow = taken(codes.astype(np.min_scalar_type(of_sensitive[name])), of_contents)
            _insert(session, tables, name, values, narrow)
    own = {name: RankedColumn.of(column) for name, column in columns.items()} | wide
    placed = [own[name] for name in layout["quasi_identifiers"]]
    bytewise = [one.name for one in placed if _is_bytewise(session, one.table)]
    ranks = [
        taken(byte_ranks(session, one.table, "value", "code"), one.codes)
        if one.name in bytewise
        else one.codes
        for one in placed
    ]
    positions, by_bucket = bit_positions(
        bucket_ids, order_of(sort_keys(ranks), stable=True), contents.setting
    )
    at_slots = in_slots(by_bucket, contents.setting)
    for name in written:
        if name in columns:
            _insert(
                session, tables, name, columns[name].values, taken(columns[name].codes, at_slots)
            )
    stored = write_bucket_codes(
        staging,
        tables,
        layout["quasi_identifiers"],
        contents.setting,
        (one._replace(codes=taken(one.codes, at_slots)) for one in placed),
        (
            RankedColumn(name, values.table, len(values.labels), taken(codes, of_contents))
            for name, values, codes in zip(
                tables.sensitive, found.columns, found.values.T, strict=True
            )
        ),
    )
    learned_from = [column for name, column in columns.items() if name in written]
    tables = replace(tables, with_bitmaps=tuple(written))
    weighted, planes = write_weights(
        staging,
        tables,
        layout,
        learned_from,
        found,
        contents,
        positions,
        taken(order, order_of(taken(bucket_ids, order), stable=True)),
        thresholds,
        random,
    )
    added = {
        "with_bitmaps": written,
        "weighted": weighted,
        "placed_by": list(layout["quasi_identifiers"]),
        "bytewise": bytewise,
        "store": stored,
        "planes": planes,
    }
    # A combination of several attributes has no weight of its own.
    is_likely = bool(weighted) and len(tables.sensitive) == 1
    staging.create_weighted_view(
        {**layout, **added}, QIT, SAT, SHARES if is_likely else "", suffix=LIKELY
    )
    return added


def _is_bytewise(session: Session, table: str) -> bool:
    """Tell whether a column has texts of which no two that differ are equal.

    Their order byte by byte is the same on every server, unlike that of other collations.
    """
    return bool(
        session.fetch(
            "SELECT 1 FROM pg_attribute AS a LEFT JOIN pg_collation AS c ON c.oid = a.attcollation"
            " WHERE a.attrelid = to_regclass($1::text) AND a.attname = 'value' AND a.atttypid"
            " = ANY ('{text,varchar,bpchar}'::regtype[]) AND c.collisdeterministic",
            table,
        )
    )


def _insert(
    session: Session,
    tables: BucketTables,
    attribute: str,
    values: DistinctValues,
    code_at: AnyIntArray,
) -> None:
    """Write an attribute's bitmaps, given the code at each bit."""
    session.step("writing the bitmaps of a column")
    n_values = len(values.labels)
    length = (code_at.size + 7) // 8
    at_once = max(1, _BATCH_BYTES // length)
    for start in range(0, n_values, at_once):
        session.done(start, n_values)
        some = range(start, min(start + at_once, n_values))
        session.fetch(
            f"INSERT INTO {tables.bit} ({tables.attribute}, {session.identifier(attribute)},"
            f" {tables.bits}) SELECT $1::text, v.value,"
            " substr($2::bytea, (v.code - $3::int4) * $4::int4 + 1, $4::int4)"
            f" FROM {values.table} AS v WHERE v.code >= $3::int4 AND v.code < $3::int4 + $5::int4"
            " ORDER BY v.code",
            attribute,
            b"".join(np.packbits(code_at == code, bitorder="little").tobytes() for code in some),
            str(start),
            str(length),
            str(at_once),
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
    found = fetch_one(session, f"SELECT sum(length({tables.bits})) AS n FROM {tables.bit}")
    n_bytes = int(found["n"] or 0) + 4 * len(tables.with_bitmaps) * tables.n_records
    n_parts = 1 + n_bytes // _AUDITED_BYTES
    return sum(
        _differences(session, tables, part / n_parts, (part + 1) / n_parts)
        for part in range(n_parts)
    )


def _differences(session: Session, tables: BucketTables, low: float, high: float) -> int:
    """Compare a part of the buckets of each size: from the share `low` of their numbers to `high`.

    Only the bits of these buckets are fetched: one run of bits for each size and slot.
    """
    n_bits, n_compared = 0, 0
    starts, lengths, ranges = [], [], []
    # Buckets that are compared are numbered: that number by bit fetched, and by bucket.
    bucket_at_bit: list[AnyIntArray] = []
    number_of = np.full(tables.n_buckets + 1, -1, dtype=np.int32)
    for first, n, size in zip(
        tables.first_bucket_ids, tables.buckets_of_sizes, tables.sizes, strict=True
    ):
        # Rounded up at both ends, so that consecutive parts leave nothing out.
        begin, end = math.ceil(low * n), math.ceil(high * n)
        if begin < end:
            ranges.append((first + begin, first + end - 1))
            compared = np.arange(n_compared, n_compared + end - begin, dtype=np.int32)
            number_of[first + begin : first + end] = compared
            n_compared += end - begin
            for slot in range(size):
                bit = n_bits + slot * n + begin
                length = (bit % 8 + end - begin + 7) // 8
                starts.append(bit // 8)
                lengths.append(length)
                run = np.full(8 * length, -1, dtype=np.int32)
                run[bit % 8 : bit % 8 + compared.size] = compared
                bucket_at_bit.append(run)
        n_bits += size * n
    if not ranges:
        return 0
    balance = BitmapBalance(np.concatenate(bucket_at_bit), n_compared)
    differing = 0
    statement = _both_sides(session, tables, ranges, starts, lengths)
    # Only a statement that is fetched at once may have a parallel plan.
    is_small = n_compared <= _AUDITED_BUCKETS + len(ranges)
    rows = session.fetch(statement) if is_small else session.stream(_VALUES_AT_ONCE, statement)
    for row in rows:
        if row["length"] != (n_bits + 7) // 8:
            differing += n_compared
            continue
        bits = np.frombuffer(row["bits"], dtype=np.uint8)
        if row["pairs"] is None:  # a quasi-identifier's value: a bucket for each of its records
            buckets = np.frombuffer(row["buckets"] or b"", dtype=">i4")
            differing += balance.differing(bits, number_of[buckets])
        else:
            pairs = np.frombuffer(row["pairs"], dtype=[("bucket", ">i4"), ("count", ">i4")])
            counts = pairs["count"].astype(np.int32)
            differing += balance.differing(bits, number_of[pairs["bucket"]], counts)
    return differing


_VALUES_AT_ONCE: Final = 16


def count_misplaced(session: Session, tables: BucketTables, *, whole: bool) -> int:
    """Count the bits of quasi-identifiers that are not where the view of weights looks for them.

    Otherwise the view would give a record the weights of another one of its bucket. Not of the
    `whole` table, the first 10,000 buckets of each size are looked at, whose numbers are random.
    """
    columns = {name: session.identifier(name) for name in tables.with_bitmaps}
    columns = {name: one for name, one in columns.items() if name not in tables.sensitive}
    numbers = ", ".join(f"c{i}" for i in range(len(columns)))
    chosen = "true"
    if not whole:
        chosen = " OR ".join(
            f"q.{tables.bucket_id} BETWEEN {first} AND {first + _AUDITED_BUCKETS - 1}"
            for first in tables.first_bucket_ids
        )
    differing = 0
    names = list(columns)
    for start in range(0, len(names), _MOST_GROUPED):
        some = range(start, min(start + _MOST_GROUPED, len(names)))
        everything = (1 << len(some)) - 1
        attribute = " ".join(
            f"WHEN {everything ^ (1 << len(some) - 1 - i)} THEN {session.literal(names[start + i])}"
            for i in range(len(some))
        )
        own = ", ".join(f"c{i}" for i in some)
        equal = " AND ".join(f"b.{columns[names[i]]} IS NOT DISTINCT FROM g.c{i}" for i in some)
        selected = ", ".join(f"q.{one}" for one in columns.values())
        rows = session.stream(
            _VALUES_AT_ONCE,
            f"WITH records (bit, {numbers}) AS MATERIALIZED (SELECT {tables.place}, {selected}"
            f" FROM {tables.qit} AS q WHERE {chosen}), g AS (SELECT {own}, CASE grouping({own})"
            f" {attribute} END AS attribute, string_agg(int4send(bit::int4), ''::bytea) AS places"
            f" FROM records GROUP BY GROUPING SETS ({', '.join(f'(c{i})' for i in some)}))"
            f" SELECT g.places, b.{tables.bits} AS bits FROM g LEFT JOIN {tables.bit} AS b"
            f" ON b.{tables.attribute} = g.attribute AND {equal}",
        )
        for row in rows:
            places = np.frombuffer(row["places"], dtype=">i4")
            bits = np.frombuffer(row["bits"] or b"", dtype=np.uint8)
            inside = places[(places >= 0) & (places < 8 * bits.size)]
            differing += places.size - int((bits[inside >> 3] >> (inside & 7) & 1).sum())
    return differing


def _lies_in(bucket_id: str, ranges: Sequence[tuple[int, int]]) -> str:
    """Write the condition that a bucket's number lies in one of the ranges, which are ascending."""
    # With cells there are many sizes. The server finds a number among the ends of the ranges by
    # binary search; a number between two ranges has passed an even number of ends.
    ends: list[int] = []
    for low, high in ranges:
        if ends and ends[-1] == low:  # they touch
            ends.pop()
        else:
            ends.append(low)
        ends.append(high + 1)
    if len(ends) == 2:
        return f"{bucket_id} BETWEEN {ends[0]} AND {ends[1] - 1}"
    return f"width_bucket({bucket_id}, {_array(ends)}) % 2 = 1"


def _array(numbers: Sequence[int]) -> str:
    return f"'{{{', '.join(map(str, numbers))}}}'::int4[]"


def _both_sides(
    session: Session,
    tables: BucketTables,
    ranges: Sequence[tuple[int, int]],
    starts: Sequence[int],
    lengths: Sequence[int],
) -> str:
    """Select the given bytes of each value's bitmap, with the value's buckets in the QIT or SAT."""
    # GROUP BY brings both sides together for values of any type, including NULL.
    columns = [session.identifier(attribute) for attribute in tables.with_bitmaps]
    values = [f"value_{i}" for i in range(len(columns))]
    named = ", ".join(f"{column} AS {value}" for column, value in zip(columns, values, strict=True))
    compared = _lies_in(tables.bucket_id, ranges)
    sides = [
        (
            f"SELECT {tables.attribute} AS attribute, {named}, length({tables.bits}) AS length,"
            f" (SELECT string_agg(substr({tables.bits}, r.start + 1, r.length), ''::bytea"
            "   ORDER BY r.number) FROM runs AS r) AS bits,"
            f" NULL::bytea AS buckets, NULL::bytea AS pairs FROM {tables.bit}"
        )
    ]
    for name, own in tables.sensitive.items():
        if name in tables.with_bitmaps:
            shown = [column if column == own else "NULL" for column in columns]
            sides.append(
                f"SELECT {session.literal(name)}, {', '.join(shown)}, NULL, NULL, NULL,"
                f" string_agg(int4send({tables.bucket_id}) || int4send({tables.count}), ''::bytea)"
                f" FROM {tables.sat} WHERE {compared} GROUP BY {own}"
            )
    others = [column for column in columns if column not in tables.sensitive.values()]
    for start in range(0, len(others), _MOST_GROUPED):
        grouped = others[start : start + _MOST_GROUPED]
        # GROUPING has a 1 for each column that is *not* grouped by; the first is the highest bit.
        everything = (1 << len(grouped)) - 1
        attribute = " ".join(
            f"WHEN {everything ^ (1 << len(grouped) - 1 - i)}"
            f" THEN {session.literal(tables.with_bitmaps[columns.index(column)])}"
            for i, column in enumerate(grouped)
        )
        sides.append(
            f"SELECT CASE grouping({', '.join(grouped)}) {attribute} END,"
            f" {', '.join(c if c in grouped else 'NULL' for c in columns)}, NULL, NULL,"
            f" string_agg(int4send({tables.bucket_id}), ''::bytea), NULL"
            f" FROM {tables.qit} WHERE {compared}"
            f" GROUP BY GROUPING SETS ({', '.join(f'({column})' for column in grouped)})"
        )
    return (
        f"WITH runs AS MATERIALIZED (SELECT * FROM unnest({_array(starts)}, {_array(lengths)})"
        " WITH ORDINALITY AS r (start, length, number))"
        " SELECT sum(length) AS length, string_agg(bits, ''::bytea) AS bits,"
        " string_agg(buckets, ''::bytea) AS buckets, string_agg(pairs, ''::bytea) AS pairs"
        f" FROM ({' UNION ALL '.join(sides)}) AS b GROUP BY attribute, {', '.join(values)}"
    )


def write_derived_tables(
    session: Session,
    staging: StagedRelations,
    layout: Mapping[str, Any],
    types: Mapping[str, ColumnType],
    room: Allowance,
    random: SecureRandom,
    thresholds: Thresholds | None,
) -> dict[str, Any]:
    """Write what follows from the staged QIT and SAT, and return the layout with it.

    Parameters
    ----------
    session : Session
    staging : StagedRelations
        Where QIT and SAT are.
    layout : mapping
    types : mapping of str to ColumnType
        The types of the published columns.
    room : Allowance
    random : SecureRandom
    thresholds : callable, optional
        See :func:`.write_weights`.
    """
    staging.create_weighted_view(layout, QIT, SAT)
    tables = BucketTables.of(session, staging.schema, staging.name, layout)
    setting = BucketSetting.of(list(tables.sizes), tables.buckets_of_sizes)
    quasi_identifiers = list(map(str, layout["quasi_identifiers"]))
    named = Relation(staging.schema, staging.name + QIT)
    qit = take_snapshot(session, named, [*quasi_identifiers, str(layout["bucket_id"])], room)
    bucket_ids = read_integers(qit, f"s.{tables.bucket_id}").astype(np.int32)
    _require_sizes(tables, bucket_ids)
    found, contents = _sensitive(session, staging, tables, layout, types, setting, room)
    order = random.permutation(qit.n_records)
    columns = read_few_values(
        qit, [types[name] for name in quasi_identifiers], most_values(qit.n_records)
    )
    wide = {
        name: number_column(qit, types[name]) for name in quasi_identifiers if name not in columns
    }
    written = write_bitmaps(
        staging, tables, layout, columns, wide, found, contents, bucket_ids, order, thresholds,
        random,
    )  # fmt: skip
    found.drop()
    for column in columns.values():
        column.values.drop()
    qit.drop()
    session.step("gathering statistics")
    staging.analyze(QIT, SAT)
    return {**layout, **written}


def _require_sizes(
    tables: BucketTables, bucket_ids: AnyIntArray, counts: AnyIntArray | None = None
) -> None:
    """Refuse a table whose buckets do not have the sizes that follow from their numbers.

    Raises
    ------
    VerificationError
    """
    expected = np.repeat(tables.sizes, tables.buckets_of_sizes)
    are_known = (
        bucket_ids.size > 0 and bucket_ids.min() >= 1 and bucket_ids.max() <= tables.n_buckets
    )
    if are_known and (counts is None or counts.min() >= 1):
        found = np.bincount(bucket_ids, counts, tables.n_buckets + 1)[1:]
        if np.array_equal(found, expected):
            return
    raise VerificationError(
        "buckets do not have the sizes that follow from their numbers",
        detail="QIT" if counts is None else "SAT",
        hint="the tables are not those that were published: publish again",
    )


def _sensitive(
    session: Session,
    staging: StagedRelations,
    tables: BucketTables,
    layout: Mapping[str, Any],
    types: Mapping[str, ColumnType],
    setting: BucketSetting,
    room: Allowance,
) -> tuple[DistinctCombinations, BucketContents]:
    """Read which values buckets have."""
    numbers = [str(layout[name]) for name in ("bucket_id", "count")]
    names = [*tables.sensitive, *numbers]
    sat = take_snapshot(session, Relation(staging.schema, staging.name + SAT), names, room)
    its_columns = [distinct_values(sat, types[name]) for name in tables.sensitive]
    found, codes = DistinctCombinations.of(its_columns, [*read_codes(sat, its_columns).T])
    buckets, counts = (read_integers(sat, f"s.{session.identifier(name)}") for name in numbers)
    sat.drop()
    _require_sizes(tables, buckets, counts)
    order = order_of(codes, stable=True)
    order = order[order_of(buckets[order], stable=True)]
    contents = BucketContents(np.repeat(codes[order], counts[order]), setting)
    records = np.bincount(contents.codes, minlength=len(found.values)).astype(np.int64)
    return replace(found, counts=records), contents


# No bucket of an earlier batch changes, so that an earlier copy tells nothing of the new people.


def write_batch(
    job: Job[Any],
    old: Publication,
    batch: Written,
    whole: StagedRelations,
    thresholds: Thresholds | None,
) -> Written:
    """Write QIT and SAT with the old buckets and the batch's, and what follows from them.

    Parameters
    ----------
    job : Job
        The job of the batch, which is staged.
    old : Publication
    batch : Written
    whole : StagedRelations
        Where to write both together.
    thresholds : callable, optional
        See :func:`.write_weights`.
    """
    session, schema = job.session, job.schema
    before = BucketTables.of(session, schema, old.name, old.layout)
    now = BucketTables.of(session, schema, job.staging.name, batch.layout)
    counts: Counter[int] = Counter()
    for tables in (before, now):
        counts.update(dict(zip(tables.sizes, tables.buckets_of_sizes, strict=True)))
    setting = BucketSetting.of(list(counts), list(counts.values()))
    firsts = dict(zip(setting.sizes.tolist(), first_bucket_ids(setting), strict=True))
    # Where each batch is one cell, its buckets are drawn from the whole batch.
    are_random = "random" == old.layout.get("assignment") == batch.layout["assignment"]
    layout = {
        **batch.layout,
        "assignment": "random" if are_random else job.request.assignment,
        "n_buckets": setting.n_buckets,
        "sizes": setting.sizes.tolist(),
        "first_bucket_ids": list(firsts.values()),
    }
    own = _numbers(before, firsts)
    after = dict(zip(before.sizes, before.buckets_of_sizes, strict=True))
    later = {size: first + after.get(size, 0) for size, first in firsts.items()}
    theirs = _numbers(now, later)
    names = ", ".join(f"q.{name}" for name in before.quasi_identifiers)
    whole.fill_table(
        QIT,
        f"SELECT {names}, {own.format('q')} AS {before.bucket_id} FROM {before.qit} AS q"
        f" UNION ALL SELECT {names}, {theirs.format('q')} FROM {now.qit} AS q",
    )
    values_of = f"{before.values('s')}, s.{before.count}"
    whole.fill_table(
        SAT,
        f"SELECT {own.format('s')} AS {before.bucket_id}, {values_of} FROM {before.sat} AS s"
        f" UNION ALL SELECT {theirs.format('s')}, {values_of} FROM {now.sat} AS s",
    )
    layout = write_derived_tables(
        session, whole, layout, job.types, Allowance.of(session), job.random,
        thresholds,
    )  # fmt: skip
    return replace(batch, guarantee=batch.guarantee.with_earlier(old), layout=layout)


def _numbers(tables: BucketTables, firsts: dict[int, int]) -> str:
    """Write the new number of a bucket of the rows ``{}``."""
    shifts = [
        str(firsts[size] - first)
        for size, first in zip(tables.sizes, tables.first_bucket_ids, strict=True)
    ]
    number = f"{{0}}.{tables.bucket_id}"
    place = f"width_bucket({number}, ARRAY[{', '.join(map(str, tables.first_bucket_ids))}])"
    return f"{number} + (ARRAY[{', '.join(shifts)}])[{place}]"
