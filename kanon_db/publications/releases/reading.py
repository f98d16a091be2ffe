"""Several partitions as arrays, with the same numbers for the same people and values in all."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.releases.placements import Release
from kanon_db.publications.partition import Partition
from kanon_db.session.protocol import Session
from kanon_db.transfer.labels import fixed_labels, label

_PLACED = np.dtype([("person", ">i8"), ("bucket", ">i4")])
_HELD = np.dtype([("bucket", ">i4"), ("count", ">i4")])


@dataclass(frozen=True, eq=False)
class ReadReleases:
    """Releases of the same people.

    Attributes
    ----------
    releases : list of Release
    n_tuples : int
    labels : list of str or None
        The values, as texts, in the order of their codes; None is NULL.
    """

    releases: list[Release]
    n_tuples: int
    labels: list[str | None]


def read_releases(session: Session, partitions: Sequence[Partition]) -> ReadReleases:
    """Read partitions of the same sensitive attribute.

    People are told apart by the quasi-identifiers that all partitions show. Who is who is only
    known while this runs: each combination is a keyed hash, with a key of its own for each call.
    """
    common = [
        name
        for name in partitions[0].quasi_identifiers
        if all(name in partition.quasi_identifiers for partition in partitions)
    ]
    key = secrets.randbits(62)
    with fixed_labels(session):
        placed = [_read_people(session, partition, common, key) for partition in partitions]
        held = [_read_contents(session, partition) for partition in partitions]
    labels = sorted({text for found in held for text in found}, key=lambda x: (x is not None, x))
    codes = {text: code for code, text in enumerate(labels)}
    distinct, numbers = np.unique(
        np.concatenate([people for people, _ in placed]), return_inverse=True
    )
    ends = np.cumsum([0, *(people.size for people, _ in placed)])
    releases = [
        _release(numbers[first:last].astype(np.int64), buckets, found, codes)
        for first, last, (_, buckets), found in zip(ends, ends[1:], placed, held, strict=False)
    ]
    return ReadReleases(releases, int(distinct.size), labels)


def _read_people(
    session: Session, partition: Partition, names: Sequence[str], key: int
) -> tuple[IntArray, IntArray]:
    columns = ", ".join(f"p.{partition.quasi_identifiers[name]}" for name in names)
    hashed = f"hashtextextended(ROW({columns})::text, {key})"
    (row,) = session.fetch(
        f"SELECT string_agg(int8send({hashed}) || int4send(p.{partition.bucket}::int4), ''::bytea)"
        f" AS placed FROM {partition.people} AS p"
    )
    found = np.frombuffer(row["placed"] or b"", dtype=_PLACED)
    return found["person"].astype(np.int64), found["bucket"].astype(np.int64)


def _read_contents(
    session: Session, partition: Partition
) -> dict[str | None, tuple[IntArray, IntArray]]:
    """Return the buckets that hold each value, and how often."""
    text = label(f"c.{partition.value}")
    found = {}
    for row in session.fetch(
        f"SELECT {text} AS label, string_agg(int4send(c.{partition.bucket}::int4)"
        f" || int4send(c.{partition.count}::int4), ''::bytea) AS held"
        f" FROM {partition.contents} AS c GROUP BY 1"
    ):
        held = np.frombuffer(row["held"], dtype=_HELD)
        found[row["label"]] = held["bucket"].astype(np.int64), held["count"].astype(np.int64)
    return found


def _release(
    people: IntArray,
    buckets: IntArray,
    held: dict[str | None, tuple[IntArray, IntArray]],
    codes: dict[str | None, int],
) -> Release:
    numbers, dense = np.unique(buckets, return_inverse=True)
    n_buckets = max(int(numbers.size), 1)
    keys, n = np.unique(people * n_buckets + dense, return_counts=True)
    value = np.concatenate([np.full(b.size, codes[text]) for text, (b, _) in held.items()])
    bucket, count = (np.concatenate([one[k] for one in held.values()]) for k in range(2))
    return Release(
        keys // n_buckets, keys % n_buckets, n,
        np.searchsorted(numbers, bucket), value.astype(np.int64), count,
    )  # fmt: skip
