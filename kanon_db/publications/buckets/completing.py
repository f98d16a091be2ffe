"""What follows from QIT and SAT: their view, the bitmaps, and the composition of buckets.

Where records were put into buckets just now, it is written from what is in memory; here it is found
again from the two tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kanon_db.algorithms.bucketization.contents import Contents
from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.algorithms.ground.sorting import order_of
from kanon_db.errors import VerificationError
from kanon_db.publications.buckets.bitmaps import most_values, write_bitmaps
from kanon_db.publications.buckets.regression import write_composition
from kanon_db.publications.buckets.tables import QIT, SAT, BucketTables
from kanon_db.publications.staging import Staging
from kanon_db.randomness import SecureRandom
from kanon_db.session.protocol import Session
from kanon_db.transfer.columns import ColumnType, Relation
from kanon_db.transfer.few_values import read_few_values
from kanon_db.transfer.room import Room
from kanon_db.transfer.snapshot import take_snapshot
from kanon_db.transfer.values import DistinctValues, distinct_values, read_codes, read_integers


def completed(
    session: Session,
    staging: Staging,
    layout: Mapping[str, Any],
    types: Mapping[str, ColumnType],
    room: Room,
    random: SecureRandom,
) -> dict[str, Any]:
    """Write what follows from the staged QIT and SAT, and return the layout with it.

    Parameters
    ----------
    session : Session
    staging : Staging
        Where QIT and SAT are.
    layout : mapping
    types : mapping of str to ColumnType
        Of the published columns.
    room : Room
    random : SecureRandom
    """
    layout = dict(layout)
    staging.create_weighted_view(layout, QIT, SAT)
    tables = BucketTables.of(session, staging.schema, staging.name, layout)
    setting = BucketSetting.of(list(tables.sizes), tables.buckets_of_sizes)
    quasi_identifiers = list(map(str, layout["quasi_identifiers"]))
    named = Relation(staging.schema, staging.name + QIT)
    qit = take_snapshot(session, named, [*quasi_identifiers, str(layout["bucket_id"])], room)
    bucket_ids = read_integers(qit, f"s.{tables.bucket_id}").astype(np.int32)
    _require_sizes(tables, bucket_ids)
    values, contents = _sensitive(session, staging, tables, layout, types, setting, room)
    order = random.permutation(qit.n_records)
    columns = read_few_values(
        qit, [types[name] for name in quasi_identifiers], most_values(qit.n_records)
    )
    layout["with_bitmaps"] = write_bitmaps(
        staging, tables, layout, columns, values, contents, bucket_ids, order
    )
    layout["spectrum"] = write_composition(
        staging, tables, values, contents, is_random=layout.get("assignment") == "random"
    )
    for one in (values, *(column.values for column in columns.values())):
        one.drop()
    qit.drop()
    session.step("gathering statistics")
    staging.analyze(QIT, SAT)
    return layout


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
    staging: Staging,
    tables: BucketTables,
    layout: Mapping[str, Any],
    types: Mapping[str, ColumnType],
    setting: BucketSetting,
    room: Room,
) -> tuple[DistinctValues, Contents]:
    """Read which values buckets have."""
    names = [str(layout[name]) for name in ("bucket_id", "sensitive", "count")]
    sat = take_snapshot(session, Relation(staging.schema, staging.name + SAT), names, room)
    values = distinct_values(sat, types[str(layout["sensitive"])])
    codes = read_codes(sat, [values])[:, 0]
    buckets, counts = (
        read_integers(sat, f"s.{session.identifier(name)}") for name in (names[0], names[2])
    )
    sat.drop()
    _require_sizes(tables, buckets, counts)
    order = order_of(codes, stable=True)
    order = order[order_of(buckets[order], stable=True)]
    contents = Contents(np.repeat(codes[order], counts[order]), setting)
    numbers = np.bincount(contents.codes, minlength=len(values.labels)).astype(np.int64)
    return replace(values, counts=numbers), contents
