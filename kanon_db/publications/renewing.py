"""Publishing everybody anew where people come and go: those who stay keep their signatures."""

from __future__ import annotations

from typing import Any

from kanon_db.catalog.entries import published_schema
from kanon_db.catalog.sources import require_unchanged
from kanon_db.errors import InfeasibleError
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
from kanon_db.publications.refreshed import Made, Task, Waits
from kanon_db.publications.results import require_checks
from kanon_db.publications.staging import Staging
from kanon_db.publications.waiting import WARNING
from kanon_db.transfer.room import Room
from kanon_db.transfer.snapshot import take_snapshot
from kanon_db.transfer.source_types import describe_types
from kanon_db.transfer.values import read_integers


def renewed(task: Task) -> Made | Waits:
    """Publish those who stay and those who came, in new buckets.

    Raises
    ------
    InvalidParameterError
        Where the ledger does not know who was published.
    InfeasibleError
        Where nobody is left to publish.
    """
    session, source, kind = task.session, task.source, task.kind
    if not task.knows_entities or not can_be_hashed(session, source, task.types):
        raise task.not_known()
    kind.prepare(task.request, source)
    schema, column = published_schema(session), task.types[str(source.entity)]
    known = stage_unknown(session, schema, source, column, task.old.name, "true")
    job = _read(task, known)
    session.phase("searching")
    found = kind.renew(*_with_signatures(task, job, known))
    known.drop()
    job = found.job
    if found.n_waiting:
        session.warn(WARNING)
    if not known.n_gone and not found.n_new:
        # Nobody left, so nobody has to be left out.
        job.snapshot.drop()
        return Waits(found.n_waiting, _missing(0, found.n_waiting))
    if not job.snapshot.n_records:
        raise InfeasibleError(
            "nobody is left to publish",
            detail=f"{source.relation}: everybody who was published has left, or too few others are"
            " left with their buckets' values",
            hint="drop the publication",
        )
    columns = kind.columns(source, task.types)
    described = describe_types(session, source.relation, columns)
    session.phase("writing")
    written = kind.write(job, found.found)
    require_checks(written.checks)
    entities = stage_published(session, schema, job.snapshot, column, written.signatures)
    job.snapshot.drop()
    return Made(
        found.n_waiting, _missing(found.n_left_out, found.n_waiting), job.staging, written,
        columns, described,
        records=job.snapshot.n_records, added=found.n_new, metrics=written.metrics,
        upto=task.upto, entities=entities, withdrawn=task.old.records - found.n_stay,
        left_out=found.n_left_out,
        parameters={"renewals": int(task.old.parameters.get("renewals", 0)) + 1},
    )  # fmt: skip


def _read(task: Task, known: Entities) -> Job[Any]:
    """Copy the records of those who stay, and of those who came."""
    session, source = task.session, task.source
    entity = task.types[str(source.entity)]
    read = entity.read(session)
    # A record without an entity is refused when it is read, not left out.
    where = (
        f"{read} IS NULL OR {digest_of(entity, read)} IN (SELECT k.digest FROM {known.table} AS k)"
    )
    room = Room.of(session)
    columns = [*task.kind.columns(source, task.types), str(source.entity)]
    snapshot = take_snapshot(session, source.relation, columns, room, where=where)
    require_unchanged(session, source)
    snapshot, random = drawn(
        session, task.request, source, snapshot, [task.types[name] for name in columns]
    )
    read_entities(snapshot, source, are_counted=False)
    staging = Staging.begin(session, published_schema(session))
    return Job(session, task.request, source, task.types, staging, snapshot, room, random)


def _with_signatures(task: Task, job: Job[Any], known: Entities) -> tuple[Job[Any], Any, Any]:
    entity = task.types[str(task.source.entity)]
    digest = digest_of(entity, f"s.{task.session.identifier(entity.name)}")
    signature_of = read_integers(
        job.snapshot, "coalesce(k.signature, -1)",
        f"JOIN {known.table} AS k ON k.digest = {digest}",
    )  # fmt: skip
    return job, task.old, signature_of


def _missing(n_left_out: int, n_waiting: int) -> str | None:
    reasons = []
    if n_left_out:
        reasons.append(
            f"{n_left_out:,} who stay are left out from now on: too few others are left with"
            " their buckets' values"
        )
    if n_waiting:
        reasons.append(f"{n_waiting:,} who came wait: too many of them have the same value")
    return "; ".join(reasons) or None
