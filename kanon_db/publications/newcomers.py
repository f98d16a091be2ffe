"""The people that came since a publication was made or refreshed: a batch of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kanon_db.catalog.entries import Publication, published_schema
from kanon_db.catalog.sources import require_unchanged
from kanon_db.errors import IneligibleError, InfeasibleError, KanonError, TooFewError
from kanon_db.publications.drawing import drawn
from kanon_db.publications.entities import read_entities
from kanon_db.publications.entity_hashes import (
    Entities,
    can_be_hashed,
    digest_of,
    stage_published,
    stage_unknown,
)
from kanon_db.publications.job import Job
from kanon_db.publications.kind import Written
from kanon_db.publications.refreshed import Made, Task, Waits
from kanon_db.publications.results import require_checks
from kanon_db.publications.staging import Staging
from kanon_db.publications.waiting import WARNING
from kanon_db.transfer.room import Room
from kanon_db.transfer.snapshot import count_records, take_snapshot
from kanon_db.transfer.source_types import describe_types


def extended(task: Task) -> Made | Waits:
    """Publish the records that came since as a batch of their own, and put it with the others.

    They have a later arrival than all that are published, and another entity, whose hash the ledger
    does not have: as far as the source says either.

    Raises
    ------
    InvalidParameterError
        Where nothing says who is new.
    """
    session, source, kind, old = task.session, task.source, task.kind, task.old
    batch = _Newcomers(task)
    n_new, waiting, missing = batch.count()
    if not n_new:
        batch.drop()
        return Waits(waiting, missing)
    try:
        with session.savepoint():
            job, written = batch.write()
    except (IneligibleError, InfeasibleError, TooFewError) as error:
        batch.drop()
        if isinstance(error, IneligibleError):
            session.warn(WARNING)
        return Waits(waiting + n_new, _said(error))
    batch.drop()
    described = describe_types(session, source.relation, batch.published)
    n_added = job.snapshot.n_records
    alone = replace(
        old, name=job.staging.name, records=n_added,
        parameters={**old.parameters, **task.request.recorded, **written.parameters},
        layout={**written.layout, "types": described},
    )  # fmt: skip
    # Whoever has a copy of before can tell the batch from the others.
    require_checks([*kind.examine(session, alone, is_new=True).checks, *written.checks])
    whole = Staging.begin(session, published_schema(session))
    both = kind.extend(job, old, written, whole)
    job.staging.drop(kind.suffixes)
    return Made(
        waiting, missing, whole, both, batch.published, described, records=old.records + n_added,
        added=n_added, metrics=_together(old, written.metrics, n_added), upto=batch.upto,
        entities=batch.entities,
        parameters={"batches": int(old.parameters.get("batches", 1)) + 1},
    )  # fmt: skip


class _Newcomers:
    """The records that came since, of people who are not published yet."""

    def __init__(self, task: Task) -> None:
        self._task = task
        session, source, types = task.session, task.source, task.types
        self.published: list[str] = []
        self.entities: Entities | None = None
        self.upto = task.upto
        self._by_hash = task.knows_entities and can_be_hashed(session, source, types)
        by_time = source.arrival is not None and task.upto is not None
        if not self._by_hash and not by_time:
            raise task.not_known()
        self._later = self._new = "true"
        if by_time:
            later = f"{session.identifier(str(source.arrival))} > {session.literal(str(self.upto))}"
            self._later = self._new = f"s.{later}"
        self._unknown: Entities | None = None
        if self._by_hash:
            column = types[str(source.entity)]
            self._unknown = stage_unknown(
                session, published_schema(session), source, column, task.old.name, self._later
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
        session, source, old = self._task.session, self._task.source, self._task.old
        if self._unknown is None:
            n_new = count_records(session, source.relation, self._new)
        else:
            # Each record was looked at already, but for those without an entity.
            entity = self._task.types[str(source.entity)].read(session)
            without = f"({self._later}) AND {entity} IS NULL"
            n_new = self._unknown.count() + count_records(session, source.relation, without)
        n_all = count_records(session, source.relation)
        n_since = n_all
        if self._later != "true":
            n_since = count_records(session, source.relation, self._later)
        n_late = max(n_all - n_since - old.records, 0)
        n_again, at_least = n_since - n_new, ""
        if self._later == "true":
            # How many records somebody had is not kept; those who are gone may hide further ones.
            n_again, at_least = max(n_again - old.records, 0), "at least "
        reasons = []
        if n_late:
            reasons.append(f"{n_late:,} came late: not after the last one that was published")
        if n_again:
            reasons.append(f"{at_least}{n_again:,} are of people who are published")
        return n_new, n_late + n_again, "; ".join(reasons) or None

    def write(self) -> tuple[Job[Any], Written]:
        """Search and write them, as a publication of their own."""
        task = self._task
        session, source, kind = task.session, task.source, task.kind
        kind.prepare(task.request, source)
        self.published = kind.columns(source, task.types)
        entity = [] if source.entity is None else [source.entity]
        arrival = [] if source.arrival in (None, *self.published) else [str(source.arrival)]
        room = Room.of(session)
        columns = [*self.published, *entity, *arrival]
        snapshot = take_snapshot(session, source.relation, columns, room, where=self._new)
        require_unchanged(session, source)
        if source.arrival is not None:
            self.upto = snapshot.greatest(source.arrival) or self.upto
        deciding = [*self.published, *(entity if kind.counts_entities else ())]
        snapshot, random = drawn(
            session, task.request, source, snapshot, [task.types[name] for name in deciding]
        )
        entities = read_entities(snapshot, source, are_counted=kind.counts_entities)
        schema = published_schema(session)
        staging = Staging.begin(session, schema)
        job = Job(
            session, task.request, source, task.types, staging, snapshot, room, random, entities
        )
        session.phase("searching")
        found = kind.search(job)
        session.phase("writing")
        written = kind.write(job, found)
        if self._by_hash:
            column = task.types[str(source.entity)]
            self.entities = stage_published(session, schema, snapshot, column)
        snapshot.drop()
        return job, written

    def drop(self) -> None:
        """Drop what was only needed to find them."""
        if self._unknown is not None:
            self._unknown.drop()


def _together(old: Publication, new: Mapping[str, float], n_new: int) -> dict[str, float]:
    """Average what was measured from the source, by records."""
    n_old = max(old.records, 1)
    return {
        name: (old.metrics[name] * n_old + value * n_new) / (n_old + n_new)
        for name, value in new.items()
        if name in old.metrics
    }


def _said(error: KanonError) -> str:
    return ": ".join(part for part in (error.message, error.detail) if part)
