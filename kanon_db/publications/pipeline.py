"""Publishing, in the same steps for all kinds.

The request has been validated when this begins. Then the data is read once, searched, written to
relations that nobody else sees, and examined; at the end they get the publication's name. If
anything is refused, no trace remains, since the caller's transaction, or subtransaction, is rolled
back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kanon_db.algorithms.ground.memory import give_back
from kanon_db.catalog.entries import Publication, Source, published_schema
from kanon_db.catalog.errands import run_errand
from kanon_db.catalog.sources import open_source, require_unchanged
from kanon_db.publications.cautions import warn_of_gap, warn_of_unused_options
from kanon_db.publications.drawing import drawn
from kanon_db.publications.entities import read_entities
from kanon_db.publications.entity_hashes import can_be_hashed, stage_published
from kanon_db.publications.forecast import Forecast
from kanon_db.publications.job import Job
from kanon_db.publications.kind import Target
from kanon_db.publications.lifecycle import check_name, enter_publication
from kanon_db.publications.notes import ShownNames
from kanon_db.publications.readers import check_readers
from kanon_db.publications.registry import kind_of
from kanon_db.publications.releases.combining import RISK as COMBINED
from kanon_db.publications.releases.combining import describe_release, weigh
from kanon_db.publications.releases.ledger import earlier_releases
from kanon_db.publications.request import PublishRequest
from kanon_db.publications.results import FIGURES, Published, require_checks
from kanon_db.publications.risks import accepted_risks
from kanon_db.publications.staging import Staging
from kanon_db.publications.trial import measure_staged
from kanon_db.session import Session, undone
from kanon_db.transfer.coded import read_coded
from kanon_db.transfer.columns import ColumnType, check_comparable
from kanon_db.transfer.room import Room
from kanon_db.transfer.snapshot import Snapshot, expected_values, take_snapshot
from kanon_db.transfer.source_types import describe_types

PHASES: Final = (
    "reading the source", "searching", "writing", "verifying", "comparing releases", "publishing",
)  # fmt: skip
"""Of publishing; a dry run measures instead of the last one."""

MEASURING: Final = "measuring"


def publish(session: Session, request: PublishRequest) -> Published:
    """Publish a source, verified before anybody sees it; a dry run leaves nothing behind.

    Parameters
    ----------
    session : Session
        In a transaction of the publishing role, which needs SELECT on the source.
    request : PublishRequest
        The request of a registered kind.

    Returns
    -------
    Published

    Raises
    ------
    IneligibleError
        When no publication at all can satisfy the request.
    InfeasibleError
        When no publication exists within the given limits.
    KanonError
        For everything else that is refused. The transaction must then be rolled back.

    Notes
    -----
    Rows are published in a random order; see :mod:`kanon_db.publications.drawing`.
    """
    source, types = open_source(session, request.source)
    session.plan([*PHASES[:-1], MEASURING] if request.dry_run else PHASES)
    if not request.dry_run:
        return _publish(session, request, source, types)
    with undone(session):
        return _publish(session, request, source, types)


def _publish(
    session: Session, request: PublishRequest, source: Source, types: Mapping[str, ColumnType]
) -> Published:
    started = time.perf_counter()
    name = request.publication
    kind = kind_of(request).load()
    schema = published_schema(session)
    check_name(session, name, kind.suffixes, replace=request.replace)
    readers, keeps_grants = _readers(session, request, schema)
    staged = stage(session, request, source, types, readers)
    require_unchanged(session, source)
    publication, accepted = staged.publication, staged.accepted
    session.phase("comparing releases")
    earlier = earlier_releases(session, source.source_id, readers)
    combined, refusal = weigh(session, source, publication, name, earlier, request.accept)
    if combined.refused and COMBINED in request.accept:
        accepted[COMBINED] = request.accept[COMBINED]

    def published(publication_id: int | None, measured: Mapping[str, Any]) -> Published:
        return Published(
            publication_id=publication_id,
            name=name,
            guarantee=publication.guarantee,
            records=publication.records,
            metrics={**staged.metrics, **publication.metrics, **measured},
            seconds=time.perf_counter() - started,
        )

    if request.dry_run:
        session.phase(MEASURING)
        if refusal is not None:
            session.warn(f"publishing it would be refused: {refusal.message}")
        target = Target(session, publication, source, types, schema, staged.room)
        return published(None, {FIGURES: measure_staged(kind, target, accepted, refusal)})
    if refusal is not None:
        raise refusal
    session.phase("publishing")
    digested = [publication.name + suffix for suffix in kind.digested(publication.layout)]
    release = describe_release(session, source, staged.columns, digested, combined)
    entered = replace(publication, name=name)
    publication_id = enter_publication(
        staged.staging,
        entered,
        source,
        metrics=staged.metrics,
        suffixes=kind.made(entered.layout),
        closed=kind.closed,
        notes=kind.notes(entered, ShownNames(session)),
        release={
            **release,
            "upto": staged.upto,
            "keeps_grants": keeps_grants,
            "entities": staged.entities,
        },
        replace=request.replace,
    )
    return published(publication_id, {})


@dataclass(frozen=True, eq=False)
class Staged:
    """A publication that is written and verified, and that nobody else can read yet.

    Attributes
    ----------
    publication : Publication
        Under the name of its staged relations.
    accepted : dict of str to str
        The known risks that it takes, with the reasons; the publication's own record of them.
    metrics : dict of str to float
        Those that follow from the published relations.
    columns : list of str
        The columns of the source that it shows.
    upto : str or None
        The greatest value of the column that says when a record came.
    entities : str or None
        The staged relation of the hashes of its entities, if it is to have one.
    """

    staging: Staging
    publication: Publication
    accepted: dict[str, str]
    metrics: Mapping[str, float]
    columns: list[str]
    upto: str | None
    entities: str | None
    room: Room


def stage(
    session: Session,
    request: PublishRequest,
    source: Source,
    types: Mapping[str, ColumnType],
    readers: Sequence[str],
) -> Staged:
    """Read, search, write and verify: all of publishing but the publication's name and readers.

    Raises
    ------
    KanonError
        As :func:`publish`.
    """
    declared = kind_of(request)
    kind = declared.load()
    session.phase("reading the source")
    kind.require_shown(source)
    kind.prepare(request, source)
    accepted = accepted_risks(request.accept, kind.risks(request))
    warn_of_unused_options(session, request)
    entity = [] if source.entity is None else [source.entity]
    published = kind.chosen(request, source, types)
    arrival = [source.arrival] if source.arrival and source.arrival not in published else []
    columns = [*published, *entity, *arrival]
    _warn_of_texts(session, [types[column] for column in published])
    room = Room.of(session)
    n_values = expected_values(session, source.relation, source.quasi_identifiers)
    forecast = Forecast(kind, request, source, types, room, n_values)
    most = forecast.begin(session, columns)
    coded = None
    if kind.takes_codes and source.entity is None and source.arrival is None:
        read = [types[column] for column in columns]
        coded = read_coded(session, source.relation, read, room, most)
    records = coded or take_snapshot(session, source.relation, columns, room, most)
    records.hold(forecast.require(records.size()).memory, "the rows")
    described = describe_types(session, source.relation, published)
    check_comparable(session, source.relation, [*kind.comparable(source), *entity])
    # Whose records they are decides something only where it counts; when they came, nothing.
    deciding = [types[name] for name in (*published, *(entity if kind.counts_entities else ()))]
    records, random = drawn(session, request, source, records, deciding)
    entities, upto = None, None
    if isinstance(records, Snapshot):
        entities = read_entities(records, source, are_counted=kind.counts_entities)
        upto = None if source.arrival is None else records.greatest(source.arrival)
    staging = Staging.begin(session, published_schema(session))
    job = Job(session, request, source, types, staging, records, room, random, entities)
    with kind.memory():
        session.phase("searching")
        found = kind.search(job)
        give_back()
        warn_of_gap(session, request.method, found.proof)
        session.phase("writing")
        written = kind.write(job, found)
        give_back()
    known = None
    if can_be_hashed(session, source, types):
        known = stage_published(
            session, staging.schema, job.snapshot, types[str(source.entity)], written.signatures
        )
    records.drop()

    session.phase("verifying")
    publication = Publication(
        name=staging.name,
        kind=declared.name,
        method=found.method or request.method,
        source=str(source.relation),
        parameters={
            **request.recorded,
            **written.parameters,
            "readers": list(readers),
            "accept": accepted,
        },
        layout={**written.layout, "types": described},
        records=records.n_records,
        guarantee=written.guarantee,
        metrics={**written.metrics, **({} if found.proof is None else found.proof.metrics)},
    )
    examined = kind.examine(session, publication, is_new=True)
    require_checks([*examined.checks, *written.checks])
    named = None if known is None else known.staging.name
    return Staged(staging, publication, accepted, examined.metrics, published, upto, named, room)


def _readers(session: Session, request: PublishRequest, schema: str) -> tuple[Sequence[str], bool]:
    """Return who is to read it, and whether these are the readers of what it takes the place of."""
    if request.replace and request.readers is None:
        state = run_errand(session, "batches", name=request.publication)
        if state is not None:
            return tuple(state["grantees"]), True
    return check_readers(session, request.readers, schema), False


def _warn_of_texts(session: Session, columns: Sequence[ColumnType]) -> None:
    others = [column.name for column in columns if column.is_others]
    if others:
        session.warn(
            f"published as texts, since their types do not belong to a superuser:"
            f" {', '.join(others)}; questions about < and > need an enumeration's order"
        )
