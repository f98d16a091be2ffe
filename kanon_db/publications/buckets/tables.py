"""The published relations of a bucketization: names, columns, expressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from kanon_db.catalog.entries import Publication, Source, published_schema
from kanon_db.catalog.names import free_column_name
from kanon_db.session.protocol import Session

if TYPE_CHECKING:  # the estimator comes here, too, and has no use for numpy
    from kanon_db.algorithms.bucketization.setting import BucketSetting

SUFFIXES: Final = ("", "_qit", "_sat", "_bit")
"""Of the weighted view, the quasi-identifier table, the sensitive table, and their bitmaps."""


@dataclass(frozen=True)
class BucketTables:
    """The relations of one publication; every name is quoted, safe in statements.

    Bucket numbers count from 1 and ascend with the bucket size (within a size they are a random
    permutation), so that a bucket's size follows from its number and a few constants: neither
    the view nor the estimator has to count it.

    The bitmaps repeat QIT and SAT for the estimator: a row for each distinct value of an
    attribute, with one bit for each record (see `kanon_db.counting.bitmaps`). Attributes with too
    many values have none.
    """

    view: str
    qit: str
    sat: str
    bit: str
    quasi_identifiers: tuple[str, ...]
    sensitive: str
    bucket_id: str
    count: str
    attribute: str
    bits: str
    weight: str
    with_bitmaps: tuple[str, ...]
    n_buckets: int
    sizes: tuple[int, ...]
    first_bucket_ids: tuple[int, ...]

    @classmethod
    def of(cls, session: Session, schema: str, name: str, layout: Mapping[str, Any]) -> Self:
        """Read a publication's layout as the catalog holds it."""
        view, qit, sat, bit = (session.identifier(schema, name + suffix) for suffix in SUFFIXES)
        return cls(
            view=view,
            qit=qit,
            sat=sat,
            bit=bit,
            quasi_identifiers=tuple(map(session.identifier, layout["quasi_identifiers"])),
            sensitive=session.identifier(layout["sensitive"]),
            bucket_id=session.identifier(layout["bucket_id"]),
            count=session.identifier(layout["count"]),
            attribute=session.identifier(layout["attribute"]),
            bits=session.identifier(layout["bits"]),
            with_bitmaps=tuple(layout["with_bitmaps"]),
            weight=session.identifier(layout["weight"]),
            # The only numbers that reach statements unbound: int() lets nothing else through.
            n_buckets=int(layout["n_buckets"]),
            sizes=tuple(map(int, layout["sizes"])),
            first_bucket_ids=tuple(map(int, layout["first_bucket_ids"])),
        )

    @classmethod
    def of_publication(cls, session: Session, publication: Publication) -> Self:
        """Find the tables of a publication."""
        return cls.of(session, published_schema(session), publication.name, publication.layout)

    @property
    def relations(self) -> list[str]:
        """The relations that exist, quoted."""
        return [self.view, self.qit, self.sat, self.bit]

    @property
    def buckets_of_sizes(self) -> list[int]:
        """The number of buckets of each size."""
        ends = [*self.first_bucket_ids[1:], self.n_buckets + 1]
        return [end - first for first, end in zip(self.first_bucket_ids, ends, strict=True)]

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
        "attribute": free_column_name("attribute", columns),
        "bits": free_column_name("bits", columns),
        "with_bitmaps": [],
        "weight": free_column_name("weight", columns),
        "n_buckets": setting.n_buckets,
        "sizes": setting.sizes.tolist(),
        "first_bucket_ids": first_bucket_ids(setting),
    }
