"""The published relations of a bucketization; their layout is chosen when publishing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kanon_db.catalog.entries import Publication, Source, published_schema
from kanon_db.catalog.names import free_column_name
from kanon_db.counting.layout import BIT, QIT, SAT, SUFFIXES, BucketTables
from kanon_db.session.protocol import Session

if TYPE_CHECKING:
    from kanon_db.algorithms.bucketization.setting import BucketSetting

__all__ = [
    "BIT",
    "QIT",
    "SAT",
    "SUFFIXES",
    "BucketTables",
    "first_bucket_ids",
    "layout_of",
    "tables_of",
]


def tables_of(session: Session, publication: Publication) -> BucketTables:
    """Find the relations of a publication."""
    return BucketTables.of(session, published_schema(session), publication.name, publication.layout)


def first_bucket_ids(setting: BucketSetting) -> list[int]:
    """Return the lowest bucket number of each size."""
    firsts: list[int] = (1 + setting.counts.cumsum() - setting.counts).tolist()
    return firsts


def layout_of(source: Source, setting: BucketSetting) -> dict[str, Any]:
    """Choose the layout of a publication: what the catalog keeps for :meth:`BucketTables.of`."""
    columns = [*source.quasi_identifiers, str(source.sensitive)]
    return {
        "quasi_identifiers": list(source.quasi_identifiers),
        "sensitive": source.sensitive,
        "bucket_id": free_column_name("bucket_id", columns),
        "count": free_column_name("count", columns),
        "attribute": free_column_name("attribute", columns),
        "bits": free_column_name("bits", columns),
        "with_bitmaps": [],
        "weight": free_column_name("weight", columns),
        "directions": free_column_name("directions", columns),
        "hidden": free_column_name("hidden", columns),
        "n_buckets": setting.n_buckets,
        "sizes": setting.sizes.tolist(),
        "first_bucket_ids": first_bucket_ids(setting),
    }
