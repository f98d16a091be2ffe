"""Refreshes a publication: with a batch of the people that came since, or for everybody anew.

Everybody is in one batch only, so that a reader of all states of the publication knows no more of
anybody than a reader of their batch, unless people had to wait for it. Where people may leave,
everybody is published anew, under m-invariance: those who stay keep their signatures.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from kanon_db.catalog.entries import (
    Publication,
    Source,
    find_publication,
    published_schema,
    require_whole,
    run_errand,
)
from kanon_db.catalog.sources import open_source_of, require_unchanged
from kanon_db.dataclasses import dataclass
from kanon_db.declaration import parameters_of, read_request
from kanon_db.declaration.shown import ShownResult
from kanon_db.errors import (
    IneligibleError,
    InfeasibleError,
    InvalidParameterError,
    KanonError,
    PermissionDeniedError,
    TooFewError,
)
from kanon_db.publications.draws import write_draws
from kanon_db.publications.kind import Job, Kind, Written
from kanon_db.publications.lifecycle import (
    enter_publication,
    refusal_of_owner,
    released_columns,
)
from kanon_db.publications.pipeline import (
    PHASES,
    accept_free_texts,
    count_kept,
    draw_records,
)
from kanon_db.publications.publish_request import PublishRequest
from kanon_db.publications.registry import DeclaredKind, kind_named
from kanon_db.publications.relations import StagedRelations
from kanon_db.publications.releases.entities import (
    RecognizedRecords,
    StagedEntities,
    can_be_hashed,
    digest_of,
    is_staged,
    read_entities,
    stage_published,
    stage_unknown,
)
from kanon_db.publications.releases.ledger import earlier_releases
from kanon_db.publications.releases.release_check import require_compatible
from kanon_db.publications.results import HELD, WAITING_WARNING, HeldRecords, require_checks
from kanon_db.session import Session
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.columns import ColumnType, describe_types
from kanon_db.transfer.snapshot import count_records, take_snapshot
from kanon_db.transfer.values import read_integers


@dataclass(frozen=True, eq=False)
class RefreshTask:
    """A publication to refresh."""

    session: Session
    source: Source
    types: Mapping[str, ColumnType]  # all columns of the source, in their order
    old: Publication
    kind: Kind
    request: PublishRequest  # what was asked for, under the same guarantee
    upto: str | None  # the greatest arrival that is published; None if no arrival is known
    knows_entities: bool  # whether the ledger has the hashes of those that are published

    def not_known(self) -> InvalidParameterError:
        """Make the refusal where nothing says who is new."""
        source = self.source
        if source.arrival is None and source.entity is None:
            why = "no column says when a record came, or whom it is about"
        elif source.entity is None:
            why = (
                f'publication "{self.old.name}" was made before {source.arrival} was known to say'
                " so, or it is NULL in every record"
            )
        else:
            why = (
                f'publication "{self.old.name}" was made before entities were kept, or equal'
                f" entities of the type of {source.entity} can be written in different ways"
            )
        return InvalidParameterError(
            "it is not known who came since",
            detail=f"{source.relation}: {why}",
            hint="register the source with arrival => a time or a running number, or with"
            " entity => a column of whole numbers, numeric, uuid or text, then publish",
        )


@dataclass(frozen=True, eq=False)
class NothingToPublish:
    """Nothing changes."""

    held: Sequence[HeldRecords]  # what is in the source, or was, and is not published as it is


@dataclass(frozen=True, eq=False)
class StagedRefresh(NothingToPublish):
    """A staged publication that will take the place of the old one."""

    staging: StagedRelations
    written: Written  # of everybody
    published: Sequence[str]  # the columns of the source that it shows
    types: Mapping[str, Any]  # their types, for the catalog
    records: int
    added: int  # records that are new in it
    metrics: Mapping[str, float]  # those that were measured from the source
    upto: str | None
    entities: StagedEntities | None  # the hashes to keep
    # Records of before that are not in it any more; None if nobody can leave.
    withdrawn: int | None = None
    left_out: int = 0  # those of them whose people are still in the source
    corrected: int = 0  # records of before that had changed, and were drawn anew
    # What the catalog keeps in addition.
    parameters: Mapping[str, Any] = field(default_factory=dict)


def add_batch(task: RefreshTask) -> StagedRefresh | NothingToPublish:
    """Publish the records that came since as a batch of their own, beside the earlier batches.

    They have another entity, whose hash the ledger does not have, or a later arrival than all that
    are published: as far as the source says either.
    """
    session, source, kind, old = task.session, task.source, task.kind, task.old
    batch = _Newcomers(task)
    n_new, held = batch.count()
    if not n_new:
        batch.drop()
        return NothingToPublish(held)
    try:
        with session.savepoint():
            job, written = batch.write()
    except (IneligibleError, InfeasibleError, TooFewError) as error:
        batch.drop()
        if isinstance(error, IneligibleError):
            session.warn(WAITING_WARNING)
        return NothingToPublish([HeldRecords("new", n_new, why=_said(error)), *held])
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
    whole = StagedRelations.begin(session, published_schema(session))
    both = kind.extend(job, old, written, whole)
    job.staging.drop(kind.suffixes)
    return StagedRefresh(
        held, whole, both, batch.published, described, records=old.records + n_added,
        added=n_added, metrics=_together(old, written.metrics, n_added), upto=batch.upto,
        entities=batch.entities,
        parameters={"batches": int(old.parameters.get("batches", 1)) + 1},
    )  # fmt: skip


class _Newcomers:
    """The records that came since, of people who are not published yet."""

    def __init__(self, task: RefreshTask) -> None:
        self._task = task
        session, source, types = task.session, task.source, task.types
        self.published = task.kind.columns(source, types)
        self.entities: StagedEntities | None = None
        self.upto = task.upto
        self._unknown: tuple[StagedEntities, RecognizedRecords] | None = None
        if task.knows_entities and can_be_hashed(session, source, types):
            column = types[str(source.entity)]
            self._unknown = stage_unknown(
                session, published_schema(session), source, column,
                [types[name] for name in self.published], task.old,
            )  # fmt: skip
            read = column.read(session)
            self._without = f"{read} IS NULL"
            self._new = is_staged(column, read, self._unknown[0])
            return
        if source.arrival is None or task.upto is None:
            raise task.not_known()
        later = f"{session.identifier(source.arrival)} > {session.literal(task.upto)}"
        self._later = self._new = f"s.{later}"
        if source.entity is not None:
            entity = session.identifier(source.entity)
            relation = source.relation.quoted(session)
            self._new += (
                f" AND NOT EXISTS (SELECT FROM {relation} AS o WHERE o.{entity} = s.{entity}"
                f" AND (o.{later}) IS NOT TRUE)"
            )

    def count(self) -> tuple[int, list[HeldRecords]]:
        """Count the records to publish, and those that are held back whatever they are."""
        session, source, old = self._task.session, self._task.source, self._task.old
        if self._unknown is not None:
            # Each record was looked at already, but for those without an entity.
            unknown, has = self._unknown
            n_new = unknown.count() + count_records(session, source.relation, self._without)
            return n_new, _held_back(has, source)
        n_new = count_records(session, source.relation, self._new)
        n_since = count_records(session, source.relation, self._later)
        # Who is gone may hide who came late.
        n_late = count_records(session, source.relation) - n_since - old.records
        return n_new, [
            HeldRecords("late", max(n_late, 0), is_exact=False),
            HeldRecords(
                "again", None if source.entity is None else n_since - n_new, hint=_BY_ENTITY
            ),
            HeldRecords("corrected", None, hint=_BY_ENTITY),
            HeldRecords("deleted", max(-n_late, 0), is_exact=False),
        ]

    def write(self) -> tuple[Job[Any], Written]:
        """Search and write the new records, as a publication of their own."""
        task = self._task
        session, source, kind = task.session, task.source, task.kind
        kind.prepare(task.request, source)
        job = _read(task, self._new, are_counted=kind.counts_entities)
        if self._unknown is None and source.arrival is not None:
            self.upto = job.snapshot.greatest(source.arrival) or self.upto
        session.phase("searching")
        found = kind.search(job)
        session.phase("writing")
        written = kind.write(job, found)
        if self._unknown is not None:
            self.entities = _stage_published(task, job, self.published)
        job.snapshot.drop()
        return job, written

    def drop(self) -> None:
        """Drop the tables that only finding the new records needed."""
        if self._unknown is not None:
            self._unknown[0].drop()


_BY_ENTITY: Final = "an entity would tell: register the source with one, then publish anew"
_UNKNOWN: Final = (
    "it was published before this was kept, or restored since: it is known once it is published"
    " anew"
)


def _held_back(has: RecognizedRecords, source: Source) -> list[HeldRecords]:
    """Say what batches hold back: whoever is published stays as they are."""
    why = "" if source.keeps_first else "or another record of theirs is kept by now"
    hint = _UNKNOWN if has.corrected is None else ""
    return [
        HeldRecords("again", has.again, has.is_exact),
        HeldRecords("corrected", has.corrected, why=why, hint=hint),
        HeldRecords("deleted", has.deleted, has.is_exact),
    ]


def _stage_published(
    task: RefreshTask, job: Job[Any], published: Sequence[str], written: Written | None = None
) -> StagedEntities:
    return stage_published(
        task.session, job.schema, job.snapshot, task.types[str(task.source.entity)],
        [task.types[name] for name in published], None if written is None else written.signatures,
    )  # fmt: skip


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


def redraw_everybody(task: RefreshTask) -> StagedRefresh | NothingToPublish:
    """Publish those who stay and those who came, in new buckets."""
    session, source, kind = task.session, task.source, task.kind
    if not task.knows_entities or not can_be_hashed(session, source, task.types):
        raise task.not_known()
    kind.prepare(task.request, source)
    schema, column = published_schema(session), task.types[str(source.entity)]
    columns = kind.columns(source, task.types)
    known, has = stage_unknown(
        session, schema, source, column, [task.types[name] for name in columns], task.old
    )
    job = _read(task, is_staged(column, column.read(session), known), are_counted=False)
    session.phase("searching")
    found = kind.renew(*_with_signatures(task, job, known))
    known.drop()
    job = found.job
    if found.n_waiting:
        session.warn(WAITING_WARNING)
    why = "too many of them have the same value"
    held = [HeldRecords("new", found.n_waiting, why=why)]
    if not has.deleted and not found.n_new:
        # Nobody left, so nobody has to be left out.
        job.snapshot.drop()
        hint = _UNKNOWN if has.corrected is None else _WHEN_DRAWN
        held.append(HeldRecords("corrected", has.corrected, hint=hint))
        return NothingToPublish([*held, HeldRecords("left_out", has.out)])
    if not job.snapshot.n_records:
        raise InfeasibleError(
            "nobody is left to publish",
            detail=f"{source.relation}: everybody who was published has left, or too few others are"
            " left with their buckets' values",
            hint="drop the publication",
        )
    described = describe_types(session, source.relation, columns)
    session.phase("writing")
    written = kind.write(job, found.found)
    require_checks(written.checks)
    entities = _stage_published(task, job, columns, written)
    job.snapshot.drop()
    return StagedRefresh(
        [*held, HeldRecords("left_out", has.out + found.n_left_out)], job.staging, written,
        columns, described,
        records=job.snapshot.n_records, added=found.n_new, metrics=written.metrics,
        upto=task.upto, entities=entities, withdrawn=task.old.records - found.n_stay,
        left_out=found.n_left_out, corrected=has.corrected or 0,
        parameters={"renewals": int(task.old.parameters.get("renewals", 0)) + 1},
    )  # fmt: skip


_WHEN_DRAWN: Final = "they are drawn anew, as they are, when somebody comes or leaves"


def _read(task: RefreshTask, where: str, *, are_counted: bool) -> Job[Any]:
    """Copy the records ``s`` that a condition chooses.

    Entities decide about the draw where they are counted, or where everybody is drawn anew.
    """
    session, kind = task.session, task.kind
    source = kind.in_order(task.source)
    published = kind.columns(source, task.types)
    room = Allowance.of(session)
    columns = source.with_origin(published)
    snapshot = take_snapshot(session, source.relation, columns, room, where=where)
    require_unchanged(session, source)
    accept_free_texts(task.request, source, snapshot, [task.types[name] for name in published])
    deciding = source.entity if are_counted or kind.renews(task.old) else None
    snapshot, random = draw_records(
        session, task.request, source, snapshot, [task.types[name] for name in published],
        None if deciding is None else task.types[deciding],
    )  # fmt: skip
    entities = read_entities(snapshot, source, are_counted=are_counted)
    staging = StagedRelations.begin(session, published_schema(session))
    return Job(session, task.request, source, task.types, staging, snapshot, room, random, entities)


def _with_signatures(
    task: RefreshTask, job: Job[Any], known: StagedEntities
) -> tuple[Job[Any], Any, Any]:
    entity = task.types[str(task.source.entity)]
    digest = digest_of(entity, f"s.{task.session.identifier(entity.name)}")
    # As a condition of the join, it would be calculated again for each row found.
    signature_of = read_integers(
        job.snapshot, "coalesce(k.signature, -1)",
        f"CROSS JOIN LATERAL (SELECT {digest} AS digest OFFSET 0) AS d"
        f" JOIN {known.table} AS k ON k.digest = d.digest",
    )  # fmt: skip
    return job, task.old, signature_of


@dataclass(frozen=True)
class Refreshed(ShownResult):
    """The result of a refresh."""

    publication_id: int
    name: str
    guarantee: str
    records: int  # number of records, in all batches
    added: int  # records of the new batch; 0 if nobody came, or too few to keep the guarantee
    # Records that are in the source, or were, and are not published as they are there.
    waiting: int
    missing: str | None  # why they wait
    metrics: Mapping[str, float]
    seconds: float
    withdrawn: int = 0  # records of before that are not published any more, where people can leave
    # Those of them whose people are still in the source, and are never published again.
    left_out: int = 0
    corrected: int = 0  # records of before that had changed, where everybody is drawn anew
    # What waits, by kind: how many records, since when, and what to do about it.
    waits: Mapping[str, Any] = field(default_factory=dict)


def refresh(
    session: Session, publication: str, accept: Mapping[str, str] | None = None
) -> Refreshed:
    """Publish the people that came since the last batch, under the guarantee of the publication.

    New people are those of an ``entity`` that was never published. Without one, a batch ends with
    the greatest value that the source's column ``arrival`` has when this is called: what comes
    later with a value that is not greater is late. Late, further, corrected and deleted records are
    held back, and counted.

    Parameters
    ----------
    session : Session
        A session of the role that published it, which needs SELECT on the source.
    publication : str
    accept : mapping of str to str, optional
        Known risks, each with a reason, in addition to those that were accepted before.

    Raises
    ------
    InvalidParameterError
        When the source has neither a column ``arrival`` nor an ``entity``, or the publication was
        made without it.
    RiskError
        When readers could set the new people against another release.
    KanonError
        For everything that publishing refuses, unless more people can mend it.
    """
    started, name = time.perf_counter(), publication
    with refusal_of_owner(name):
        # Waits for whoever replaces it; reading it first would lock out them, who wait for readers.
        state = run_errand(session, "batches", name=name)
    old = find_publication(session, name)
    if state is None or not state["is_own"]:
        raise PermissionDeniedError(
            "only the role that published a publication can refresh it",
            detail=f'publication "{name}"',
            hint="a superuser can become this role with SET ROLE",
        )
    require_whole(old)
    declared = kind_named(old.kind)
    kind = declared.load()
    source, types = open_source_of(session, name)
    kept = old.parameters.get("accept", {})
    accepted = {**kept, **(accept or {})}
    request = _request(declared, source.relation.quoted(session), old, accepted)
    request = kind.frozen(session, old, request)
    task = RefreshTask(
        session, source, types, old, kind, request, state["upto"], state["knows_entities"]
    )
    session.plan(PHASES)
    session.phase("reading the source")
    made = redraw_everybody(task) if kind.renews(old) else add_batch(task)
    held = [one for one in made.held if one.records != 0]
    waiting = sum(one.records or 0 for one in held)
    missing = "; ".join(one.said for one in held if one.records) or None
    if not isinstance(made, StagedRefresh):
        return Refreshed(
            state["publication_id"], name, old.guarantee, old.records, 0, waiting, missing,
            old.metrics, time.perf_counter() - started, waits=_keep(session, name, held),
        )  # fmt: skip
    parameters = {
        **old.parameters, **request.recorded, **made.written.parameters, **made.parameters,
        "readers": state["grantees"], "accept": dict(request.accept), **count_kept(session, source),
    }  # fmt: skip
    staging = made.staging
    guarantee = made.written.guarantee.about_kept(source)
    new = replace(
        old, name=staging.name, parameters=parameters,
        layout={**made.written.layout, "types": made.types}, records=made.records,
        guarantee=str(guarantee), promise=guarantee.plain, metrics=made.metrics,
    )  # fmt: skip
    session.phase("verifying")
    examined = kind.examine(session, new, is_new=True)
    require_checks(examined.checks)
    write_draws(staging, new)
    session.phase("comparing releases")
    earlier = earlier_releases(
        session, source.source_id, state["grantees"], state["publication_id"]
    )  # fmt: skip
    combined = require_compatible(session, source, new, name, earlier, request.accept)
    session.phase("publishing")
    publication_id = enter_publication(
        staging, new, name, source, metrics=examined.metrics,
        columns=released_columns(source, made.published), combined=combined, replace=True,
        upto=made.upto, refreshes=state["publication_id"], keeps_grants=True, added=made.added,
        **({} if made.withdrawn is None else {"withdrawn": made.withdrawn}),
        entities=None if made.entities is None else made.entities.staging.name,
    )  # fmt: skip
    return Refreshed(
        publication_id, name, new.guarantee, made.records, made.added, waiting, missing,
        {**examined.metrics, **new.metrics}, time.perf_counter() - started,
        withdrawn=made.withdrawn or 0, left_out=made.left_out, corrected=made.corrected,
        waits=_keep(session, name, held),
    )  # fmt: skip


def _keep(session: Session, name: str, held: Sequence[HeldRecords]) -> dict[str, Any]:
    """Keep what waits with a publication, and return it with since when, and what to do."""
    given = {one.kind: {"records": one.records, "is_exact": one.is_exact} for one in held}
    kept = run_errand(session, "keep waits", name=name, waits=given)
    return {one.kind: {**kept[one.kind], "hint": one.hint or HELD[one.kind].hint} for one in held}


_NOT_GIVEN: Final = ("source", "publication", "replace", "dry_run", "readers")


def _request(
    declared: DeclaredKind, source: str, old: Publication, accept: Mapping[str, str]
) -> PublishRequest:
    """Ask again for what was asked for."""
    items = {item.name: item for item in parameters_of(declared.request)}
    names = items.keys() - set(_NOT_GIVEN)
    given = {name: value for name, value in old.parameters.items() if name in names}
    given |= {"source": source, "publication": old.name, "accept": dict(accept)}
    # An assignment that needs no method is kept in its place.
    if old.method in items["method"].type.choices:
        given["method"] = old.method
    request: PublishRequest = read_request(declared.request, given)
    return request
