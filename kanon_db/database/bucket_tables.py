"""The published relations of a bucketization: names, columns, expressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.database.catalog import Publication, Source, published_schema
from kanon_db.database.names import free_column_name
from kanon_db.database.session import Session

SUFFIXES = ("", "_qit", "_sat")
"""Of the weighted view, the quasi-identifier table and the sensitive table."""


@dataclass(frozen=True)
class BucketTables:
    """QIT, SAT and view of one publication; every attribute is quoted, safe in statements.

    Bucket numbers count from 1 and ascend with the bucket size (within a size they are a random
    permutation), so that a bucket's size follows from its number and a few constants: neither
    the view nor the estimator has to count it.
    """

    view: str
    qit: str
    sat: str
    quasi_identifiers: tuple[str, ...]
    sensitive: str
    bucket_id: str
    count: str
    weight: str
    sizes: tuple[int, ...]
    first_bucket_ids: tuple[int, ...]

    @classmethod
    def of(cls, session: Session, schema: str, name: str, layout: Mapping[str, Any]) -> Self:
        """Read a publication's layout as the catalog holds it."""
        view, qit, sat = (session.identifier(schema, name + suffix) for suffix in SUFFIXES)
        return cls(
            view=view,
            qit=qit,
            sat=sat,
            quasi_identifiers=tuple(map(session.identifier, layout["quasi_identifiers"])),
            sensitive=session.identifier(layout["sensitive"]),
            bucket_id=session.identifier(layout["bucket_id"]),
            count=session.identifier(layout["count"]),
            weight=session.identifier(layout["weight"]),
            sizes=tuple(layout["sizes"]),
            first_bucket_ids=tuple(layout["first_bucket_ids"]),
        )

    @classmethod
    def of_publication(cls, session: Session, publication: Publication) -> Self:
        """Find the tables of a publication."""
        return cls.of(session, published_schema(session), publication.name, publication.layout)

    def size(self, bucket_id: str) -> str:
        """Return SQL for the size of the bucket whose number `bucket_id`, an expression, gives."""
        if len(self.sizes) == 1:
            return str(self.sizes[0])
        firsts = ", ".join(map(str, self.first_bucket_ids))
        sizes = ", ".join(map(str, self.sizes))
        return f"(ARRAY[{sizes}])[width_bucket({bucket_id}, ARRAY[{firsts}])]"


def first_bucket_ids(setting: BucketSetting) -> list[int]:
    """Return the lowest bucket number of each size."""
    first, numbers = 1, []
    for count in setting.counts.tolist():
        numbers.append(first)
        first += count
    return numbers


def layout_of(source: Source, setting: BucketSetting) -> dict[str, Any]:
    """Choose the layout of a publication: what the catalog keeps for :meth:`BucketTables.of`."""
    columns = [*source.quasi_identifiers, str(source.sensitive)]
    return {
        "quasi_identifiers": list(source.quasi_identifiers),
        "sensitive": source.sensitive,
        "bucket_id": free_column_name("bucket_id", columns),
        "count": free_column_name("count", columns),
        "weight": free_column_name("weight", columns),
        "sizes": setting.sizes.tolist(),
        "first_bucket_ids": first_bucket_ids(setting),
    }
