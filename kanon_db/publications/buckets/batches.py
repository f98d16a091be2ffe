"""A bucketization with a batch of new people: buckets of their own, beside those of before.

Nobody's bucket changes, and no bucket gets anybody new, so that whoever has a copy of before learns
nothing of the people in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.catalog.entries import Publication
from kanon_db.publications.buckets.completing import completed
from kanon_db.publications.buckets.tables import QIT, SAT, BucketTables, first_bucket_ids
from kanon_db.publications.guarantees import of_both
from kanon_db.publications.job import Job
from kanon_db.publications.kind import Written
from kanon_db.publications.staging import Staging
from kanon_db.transfer.room import Room


def extended(job: Job[Any], old: Publication, batch: Written, whole: Staging) -> Written:
    """Write QIT and SAT of both, and what follows from them.

    Parameters
    ----------
    job : Job
        Of the batch, which is staged.
    old : Publication
    batch : Written
    whole : Staging
        Where to write both together.
    """
    session, schema = job.session, job.schema
    before = BucketTables.of(session, schema, old.name, old.layout)
    now = BucketTables.of(session, schema, job.staging.name, batch.layout)
    counts: Counter[int] = Counter()
    for tables in (before, now):
        counts.update(dict(zip(tables.sizes, tables.buckets_of_sizes, strict=True)))
    setting = BucketSetting.of(list(counts), list(counts.values()))
    firsts = dict(zip(setting.sizes.tolist(), first_bucket_ids(setting), strict=True))
    # Of batches in one cell each, buckets are drawn from the whole of their batch.
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
    values_of = f"s.{before.sensitive}, s.{before.count}"
    whole.fill_table(
        SAT,
        f"SELECT {own.format('s')} AS {before.bucket_id}, {values_of} FROM {before.sat} AS s"
        f" UNION ALL SELECT {theirs.format('s')}, {values_of} FROM {now.sat} AS s",
    )
    layout = completed(session, whole, layout, job.types, Room.of(session), job.random)
    return replace(batch, guarantee=of_both(old.guarantee, batch.guarantee), layout=layout)


def _numbers(tables: BucketTables, firsts: dict[int, int]) -> str:
    """Write the new number of a bucket of the rows ``{}``."""
    shifts = [
        str(firsts[size] - first)
        for size, first in zip(tables.sizes, tables.first_bucket_ids, strict=True)
    ]
    number = f"{{0}}.{tables.bucket_id}"
    place = f"width_bucket({number}, ARRAY[{', '.join(map(str, tables.first_bucket_ids))}])"
    return f"{number} + (ARRAY[{', '.join(shifts)}])[{place}]"
