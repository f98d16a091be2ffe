"""Copies of a source that advice is made from: all of it, and a random sample to try things on."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kanon_db.catalog.entries import Source
from kanon_db.session import Session, fetch_one
from kanon_db.transfer.columns import ColumnType, Relation, column_types, find_relation
from kanon_db.transfer.room import Room
from kanon_db.transfer.snapshot import Snapshot, count_records, take_snapshot

MOST_RECORDS: Final = 1_000_000
"""From more, a random sample is looked at."""

MOST_TRIED: Final = 10_000
"""From more records, candidates are searched and attacked on a random sample of about so many."""

MOST_DRAWN: Final = 60_000
"""The same for how well buckets answer counts, which takes less time and depends on their number.

Of a smaller table, buckets are drawn several times, with so many records in all.
"""

_HASHES: Final = 2**31


@dataclass(frozen=True)
class Copy:
    """A temporary table with the published columns of a source, and that of the entities.

    Attributes
    ----------
    snapshot : Snapshot
    source : Source
        The copy, with the roles of the source's columns.
    types : dict of str to ColumnType
    n_source : int
        How many records the source has.
    """

    snapshot: Snapshot
    source: Source
    types: Mapping[str, ColumnType]
    n_source: int

    @property
    def n_records(self) -> int:
        """How many records the copy has."""
        return self.snapshot.n_records

    @property
    def is_sample(self) -> bool:
        """Whether it has only some of the source's records."""
        return self.n_records < self.n_source

    def has_entities(self, session: Session) -> bool:
        """Whether several records are about the same person."""
        if self.source.entity is None:
            return False
        name = session.identifier(self.source.entity)
        row = fetch_one(
            session,
            f"SELECT EXISTS (SELECT FROM {self.snapshot.table} GROUP BY {name}"
            " HAVING count(*) > 1) AS found",
        )
        return bool(row["found"])

    def sampled(self, session: Session, room: Room, most: int) -> Copy:
        """Return a copy of about so many records at most; itself if it has no more."""
        if self.n_records <= most:
            return self
        where = _drawn(session, self.source, most / self.n_records)
        return _copied(session, self.source, self.n_source, room, where)


def copy_source(session: Session, source: Source, room: Room) -> Copy:
    """Copy what would be published of a source, at most :data:`MOST_RECORDS` records.

    Raises
    ------
    PermissionDeniedError, InfeasibleError
        As :func:`~kanon_db.transfer.snapshot.take_snapshot`.
    """
    n_source = count_records(session, source.relation)
    share = MOST_RECORDS / max(n_source, 1)
    where = "true" if share >= 1 else _drawn(session, source, share)
    # What came since does not matter, nor does what it says of new people.
    return _copied(session, source._replace(arrival=None), n_source, room, where)


def _drawn(session: Session, source: Source, share: float) -> str:
    """Write a condition that a share of the records meets by chance: of the people, all or none."""
    if source.entity is None:
        return f"random() < {share!r}::float8"
    key = session.literal(secrets.token_hex(16))
    # format() calls the type's output function, and no cast, which could be anybody's code.
    entity = f"format('%s', s.{session.identifier(source.entity)})"
    return f"hashtext({key} || {entity}) & {_HASHES - 1} < {int(share * _HASHES)}"


def _copied(session: Session, source: Source, n_source: int, room: Room, where: str) -> Copy:
    entity = [] if source.entity is None else [source.entity]
    columns = list(dict.fromkeys([*source.published, *entity]))
    snapshot = take_snapshot(session, source.relation, columns, room, where=where)
    session.fetch(f"ANALYZE {snapshot.table}")
    relation, oid, _ = find_relation(session, snapshot.table)
    copied = source._replace(relation=Relation(relation.schema, relation.name))
    return Copy(snapshot, copied, column_types(session, oid), n_source)
