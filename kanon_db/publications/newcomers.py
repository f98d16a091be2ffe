"""The records that came since a publication was made or refreshed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kanon_db.catalog.entries import Publication, Source, published_schema
from kanon_db.catalog.sources import require_unchanged
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.entities import read_entities
from kanon_db.publications.entity_hashes import (
    Entities,
    can_be_hashed,
    digest_of,
    stage_published,
    stage_unknown,
)
from kanon_db.publications.kind import Job, Kind, Written
from kanon_db.publications.request import PublishRequest
from kanon_db.publications.staging import Staging
from kanon_db.session import Session
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.room import Room
from kanon_db.transfer.snapshot import count_records, take_snapshot


class Newcomers:
    """The records that came since, of people who are not published yet.

    They have a later arrival than all that are published, and another entity, whose hash the ledger
    does not have: as far as the source says either.

    Parameters
    ----------
    session : Session
    source : Source
    types : dict of str to ColumnType
    upto : str or None
        The greatest arrival that is published; None if no arrival is known.
    old : Publication
    knows_entities : bool
        Whether the ledger has the hashes of those that are published.

    Attributes
    ----------
    published : list of str
        The columns that were published, after :meth:`write`.
    entities : Entities or None
        Their hashes, to keep with the publication, after :meth:`write`.
    upto : str or None
        Up to when they came, after :meth:`write`.

    Raises
    ------
    InvalidParameterError
        Where nothing says who is new.
    """

    def __init__(
        self,
        session: Session,
        source: Source,
        types: Mapping[str, ColumnType],
        upto: str | None,
        old: Publication,
        *,
        knows_entities: bool,
    ) -> None:
        self._session, self._source, self._types, self._old = session, source, types, old
        self.published: list[str] = []
        self.entities: Entities | None = None
        self.upto = upto
        by_hash = knows_entities and can_be_hashed(session, source, types)
        by_time = source.arrival is not None and upto is not None
        if not by_hash and not by_time:
            raise _not_known(source, old)
        self._by_hash = by_hash
        self._later = self._new = "true"
        if by_time:
            later = f"{session.identifier(str(source.arrival))} > {session.literal(str(upto))}"
            self._later = self._new = f"s.{later}"
        self._unknown: Entities | None = None
        if by_hash:
            column = types[str(source.entity)]
            self._unknown = stage_unknown(
                session, published_schema(session), source, column, old.name, self._later
            )
            digest = digest_of(column, column.read(session))
            # A record without an entity is refused when it is read, not left out.
            self._new += (
                f" AND ({column.read(session)} IS NULL OR {digest} IN"
                f" (SELECT u.digest FROM {self._unknown.table} AS u))"
            )
        elif source.entity is not None:
            entity = session.identifier(source.entity)
            relation = source.relation.quoted(session)
            self._new += (
                f" AND NOT EXISTS (SELECT FROM {relation} AS o WHERE o.{entity} = s.{entity}"
                f" AND (o.{later}) IS NOT TRUE)"
            )

    def count(self) -> tuple[int, int, str | None]:
        """Count the records to publish, and those that wait, with the reason."""
        session, source = self._session, self._source
        n_new = count_records(session, source.relation, self._new)
        n_all = count_records(session, source.relation)
        n_since = n_all
        if self._later != "true":
            n_since = count_records(session, source.relation, self._later)
        n_late = max(n_all - n_since - self._old.records, 0)
        n_again = n_since - n_new
        at_least = ""
        if self._later == "true":
            # How many records somebody had is not kept; those who are gone may hide further ones.
            n_again, at_least = max(n_again - self._old.records, 0), "at least "
        reasons = []
        if n_late:
            reasons.append(f"{n_late:,} came late: not after the last one that was published")
        if n_again:
            reasons.append(f"{at_least}{n_again:,} are of people who are published")
        return n_new, n_late + n_again, "; ".join(reasons) or None

    def write(self, kind: Kind, request: PublishRequest) -> tuple[Job[Any], Written]:
        """Search and write them, as a publication of their own."""
        session, source = self._session, self._source
        kind.prepare(request, source)
        self.published = kind.columns(source, self._types)
        entity = [] if source.entity is None else [source.entity]
        arrival = [] if source.arrival in (None, *self.published) else [str(source.arrival)]
        room = Room.of(session)
        columns = [*self.published, *entity, *arrival]
        snapshot = take_snapshot(session, source.relation, columns, room, where=self._new)
        require_unchanged(session, source)
        if source.arrival is not None:
            self.upto = snapshot.greatest(source.arrival) or self.upto
        entities = read_entities(snapshot, source, are_counted=kind.counts_entities)
        schema = published_schema(session)
        staging = Staging.begin(session, schema)
        job = Job(session, request, source, self._types, staging, snapshot, room, entities)
        written = kind.write(job, kind.search(job))
        if self._by_hash:
            column = self._types[str(source.entity)]
            self.entities = stage_published(session, schema, snapshot, column)
        snapshot.drop()
        return job, written

    def drop(self) -> None:
        """Drop what was only needed to find them."""
        if self._unknown is not None:
            self._unknown.drop()


def _not_known(source: Source, old: Publication) -> InvalidParameterError:
    if source.arrival is None and source.entity is None:
        why = "no column says when a record came, or whom it is about"
    elif source.entity is None:
        why = (
            f'publication "{old.name}" was made before {source.arrival} was known to say so, or it'
            " is NULL in every record"
        )
    else:
        why = (
            f'publication "{old.name}" was made before entities were kept, or equal entities of the'
            f" type of {source.entity} can be written in different ways"
        )
    return InvalidParameterError(
        "it is not known who came since",
        detail=f"{source.relation}: {why}",
        hint="register the source with arrival => a time or a running number, or with entity => a"
        " column of whole numbers, numeric, uuid or text, then publish",
    )
