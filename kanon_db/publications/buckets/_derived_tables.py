"""Writes what follows from QIT and SAT: their view, the codes, and the weights of values.

Where records were put into buckets just now, it is written from what is in memory; otherwise it is
read from the two tables. A batch of new people gets buckets of its own, beside those of before: no
bucket of before changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kanon_db.algorithms.bucketization.buckets import (
    BucketContents,
    BucketSetting,
    bit_positions,
)
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, order_of, sort_keys, taken
from kanon_db.catalog.entries import Publication
from kanon_db.errors import VerificationError
from kanon_db.publications.buckets.bucket_relations import (
    Thresholds,
    first_bucket_ids,
    learnable_attributes,
    most_values,
    write_weights,
)
from kanon_db.publications.codes import byte_ranks, write_bucket_codes
from kanon_db.publications.kind import Job, Written
from kanon_db.publications.relations import StagedRelations
from kanon_db.query.layout import LIKELY, QIT, SAT, SHARES, BucketTables
from kanon_db.randomness import SecureRandom
from kanon_db.session.protocol import Session
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.coded_columns import read_few_values
from kanon_db.transfer.columns import ColumnType, Relation
from kanon_db.transfer.snapshot import take_snapshot
from kanon_db.transfer.values import (
    CodedColumn,
    DistinctCombinations,
    RankedColumn,
    distinct_values,
    number_column,
    read_codes,
    read_integers,
)


def write_codes_and_weights(
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
    """Write the codes, the weights of sensitive values, and the view of these.

    Parameters
    ----------
    layout : mapping
        The names of the columns.
    columns : mapping of str to CodedColumn
        The quasi-identifiers that may be learned from.
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
        What the layout says of it: the ``store``, the attributes that are ``weighted``, the
        ``strengths`` of dependences, and how
        records take the slots of their bucket: in the order of the columns ``placed_by``, whose
        texts are compared byte by byte where they are ``bytewise``.

    Notes
    -----
    The slots of records follow from QIT, so that SQL finds a record's weights, and those of
    sensitive values from SAT: a slot links neither.
    """
    session = staging.session
    session.step("writing the codes")
    n_values = {name: len(column.values.labels) for name, column in columns.items()}
    of_sensitive = {
        name: len(values.labels)
        for name, values in zip(tables.sensitive, found.columns, strict=True)
    }
    learned = learnable_attributes(of_sensitive, n_values, tables.sizes, order.size)
    own = {name: RankedColumn.of(column) for name, column in columns.items()} | wide
    placed = [own[name] for name in layout["quasi_identifiers"]]
    bytewise = [one.name for one in placed if _is_bytewise(session, one.table)]
    ranks = [
        taken(byte_ranks(session, one.table, "value", "code"), one.codes)
        if one.name in bytewise
        else one.codes
        for one in placed
    ]
    positions, at_slots = bit_positions(
        bucket_ids, order_of(sort_keys(ranks), stable=True), contents.setting
    )
    del ranks
    stored = write_bucket_codes(
        staging,
        tables,
        layout["quasi_identifiers"],
        contents.setting,
        (one._replace(codes=taken(one.codes, at_slots)) for one in placed),
        (
            RankedColumn(name, values.table, len(values.labels), taken(codes, contents.in_slots))
            for name, values, codes in zip(
                tables.sensitive, found.columns, found.values.T, strict=True
            )
        ),
    )
    del at_slots  # of as many records, what is learned needs as much
    weighted, planes, strengths = write_weights(
        staging,
        tables,
        layout,
        placed,
        [column for name, column in columns.items() if name in learned],
        {name for name in of_sensitive if name in learned},
        found,
        contents,
        positions,
        taken(order, order_of(taken(bucket_ids, order), stable=True)),
        thresholds,
        random,
    )
    added = {
        "strengths": strengths,
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
    written = write_codes_and_weights(
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
    # How many buckets of each size come before those of a batch
    earlier = [
        {size: number - first for size, first, number in zip(*runs, strict=True)}
        for runs in ((before.sizes, before.first_bucket_ids, one) for one in before.batches)
    ]
    earlier.append(dict(zip(before.sizes, before.buckets_of_sizes, strict=True)))
    begins = [{size: first + one.get(size, 0) for size, first in firsts.items()} for one in earlier]
    # Where each batch is one cell, its buckets are drawn from the whole batch.
    are_random = "random" == old.layout.get("assignment") == batch.layout["assignment"]
    layout = {
        **batch.layout,
        "assignment": "random" if are_random else job.request.assignment,
        "n_buckets": setting.n_buckets,
        "sizes": setting.sizes.tolist(),
        "first_bucket_ids": list(firsts.values()),
        "batches": [list(one.values()) for one in begins],
    }
    own, theirs = _numbers(before, firsts), _numbers(now, begins[-1])
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
