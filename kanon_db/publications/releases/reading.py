"""Several partitions as arrays, with the same numbers for the same people and values in all."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.algorithms.releases.merging import Contents, Merged, merge
from kanon_db.algorithms.releases.placements import Release
from kanon_db.catalog.entries import Source
from kanon_db.publications.partition import Classes, Partition
from kanon_db.publications.releases.reading_rows import (
    People,
    ReadClasses,
    read_classes,
    read_people,
)
from kanon_db.session.protocol import Session
from kanon_db.transfer.labels import fixed_labels, label

_PLACED = np.dtype([("person", ">i8"), ("bucket", ">i4")])
_HELD = np.dtype([("bucket", ">i4"), ("count", ">i4")])


@dataclass(frozen=True, eq=False)
class ReadRows:
    """A release of rows, and what may be somebody's.

    Attributes
    ----------
    read : ReadClasses
    contents : Contents
        The sensitive values of each class.
    merged : Merged
    """

    read: ReadClasses
    contents: Contents
    merged: Merged


@dataclass(frozen=True, eq=False)
class ReadReleases:
    """Releases of the same people.

    Attributes
    ----------
    releases : list of Release
        Of rows, with classes put together that somebody fits both of.
    n_tuples : int
    labels : list of str or None
        The sensitive values, as texts, in the order of their codes; None is NULL.
    rows : list of ReadRows or None
        Of each release of rows.
    people : People or None
        Everybody who is in the source, if there are releases of rows.
    linked : ndarray of int64, shape (n,)
        The tuples of these people.
    """

    releases: list[Release]
    n_tuples: int
    labels: list[str | None]
    rows: list[ReadRows | None]
    people: People | None
    linked: IntArray


def read_releases(
    session: Session, source: Source, partitions: Sequence[Partition | Classes], sensitive: str
) -> ReadReleases:
    """Read partitions, with the values of one sensitive attribute.

    People are told apart by the quasi-identifiers that all partitions show. Who is who is only
    known while this runs: each combination is a keyed hash, with a key of its own for each call.

    Parameters
    ----------
    session : Session
    source : Source
        It says who may be in classes of rows.
    partitions : sequence of Partition or Classes
        Buckets are all of the sensitive attribute.
    sensitive : str
        Without such a column, all rows have the same value.

    Raises
    ------
    SchemaMismatchError, InfeasibleError, PermissionDeniedError
        See :func:`.read_people` and :func:`.read_classes`.
    """
    common = [
        name
        for name in partitions[0].quasi_identifiers
        if all(name in partition.quasi_identifiers for partition in partitions)
    ]
    key = secrets.randbits(62)
    classes = [one for one in partitions if isinstance(one, Classes)]
    people = None
    if classes:
        people = read_people(session, source, classes, *_hashed_people(session, common, key))
    read = [
        read_classes(session, one, people) if isinstance(one, Classes) and people else None
        for one in partitions
    ]
    nobody = np.zeros(0, dtype=np.int64)
    with fixed_labels(session):
        placed = [
            _read_people(session, one, common, key)
            if isinstance(one, Partition)
            else (nobody, nobody)
            for one in partitions
        ]
        held = [
            _read_contents(session, one) if isinstance(one, Partition) else {} for one in partitions
        ]
    texts = {text for found in held for text in found}
    for rows in read:
        texts.update(_values_of(rows, sensitive)[0] if rows else ())
    labels = sorted(texts, key=lambda x: (x is not None, x))
    codes = {text: code for code, text in enumerate(labels)}
    distinct, numbers = np.unique(
        np.concatenate([*(one for one, _ in placed), nobody if people is None else people.person]),
        return_inverse=True,
    )
    numbers = numbers.astype(np.int64)
    ends = np.cumsum([0, *(one.size for one, _ in placed)])
    linked = numbers[ends[-1] :]
    if people is not None:
        people.drop()
    releases: list[Release] = []
    merged: list[ReadRows | None] = []
    for first, last, (_, buckets), found, rows in zip(
        ends, ends[1:], placed, held, read, strict=False
    ):
        if rows is None or people is None:
            merged.append(None)
            releases.append(_release(numbers[first:last], buckets, found, codes))
            continue
        own, value_of_row = _values_of(rows, sensitive)
        known = np.array([codes[text] for text in own], dtype=np.int64)[value_of_row]
        contents = Contents.of(rows.class_of_row, known, rows.n_classes)
        put_together = merge(rows.fits, people.number, linked, contents)
        merged.append(ReadRows(rows, contents, put_together))
        releases.append(put_together.release)
    return ReadReleases(releases, int(distinct.size), labels, merged, people, linked)


def _values_of(rows: ReadClasses, sensitive: str) -> tuple[list[str | None], AnyIntArray]:
    """Return the sensitive values of rows; the same for all, where they show none."""
    nothing: tuple[list[str | None], AnyIntArray] = [None], np.zeros_like(rows.class_of_row)
    return rows.others.get(sensitive, nothing)


def _hashed_people(session: Session, common: Sequence[str], key: int) -> tuple[str, set[str]]:
    columns = ", ".join(f"s.{session.identifier(name)}" for name in common)
    return f"hashtextextended(ROW({columns})::text, {key})", set(common)


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
