"""Layouts of publications that no database holds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from kanon_db.query.layout import BucketTables


class Quotes:
    """Quotes names as PostgreSQL does."""

    def identifier(self, *parts: str) -> str:
        return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def bucket_tables(
    sizes: Sequence[int], n_buckets: Sequence[int], *, quasi_identifiers: Sequence[str] = ("age",)
) -> BucketTables:
    """Describe buckets of some sizes, with so many of each."""
    return BucketTables.of(
        Quotes(),
        "published",
        "t",
        {
            "quasi_identifiers": quasi_identifiers,
            "sensitive": "illness",
            "bucket_id": "bucket_id",
            "count": "count",
            "attribute": "attribute",
            "weight": "weight",
            "weights": "weights",
            "parts": "parts",
            "n_buckets": sum(n_buckets),
            "sizes": sizes,
            "first_bucket_ids": list(accumulate(n_buckets, initial=1))[:-1],
        },
    )
