"""Publishing the people that came since, as a batch of their own.

Everybody is in one batch only, so that a reader of all states of the publication knows no more of
anybody than a reader of their batch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kanon_db.catalog.entries import (
    Publication,
    find_publication,
    published_schema,
    source_of,
)
from kanon_db.catalog.errands import run_errand
from kanon_db.catalog.sources import open_source
from kanon_db.declaration import parameters_of, read_request
from kanon_db.errors import (
    IneligibleError,
    InfeasibleError,
    KanonError,
    PermissionDeniedError,
    TooFewError,
)
from kanon_db.publications.examination import require_whole
from kanon_db.publications.lifecycle import enter_publication
from kanon_db.publications.newcomers import Newcomers
from kanon_db.publications.notes import ShownNames
from kanon_db.publications.registry import DeclaredKind, kind_named
from kanon_db.publications.releases.combining import describe_release, require_compatible
from kanon_db.publications.releases.ledger import earlier_releases
from kanon_db.publications.request import PublishRequest
from kanon_db.publications.results import require_checks
from kanon_db.publications.staging import Staging
from kanon_db.session import Session
from kanon_db.transfer.source_types import describe_types


@dataclass(frozen=True)
class Refreshed:
    """What came of it.

    Attributes
    ----------
    publication_id : int
    name, guarantee : str
    records : int
        Of all batches.
    added : int
        Records of the new batch; 0 if nobody came, or too few to keep the guarantee.
    waiting : int
        Records that came, and are not published: too few, or late, or of people who are published.
    missing : str or None
        Why they wait.
    metrics : dict of str to float
    seconds : float
    """

    publication_id: int
    name: str
    guarantee: str
    records: int
    added: int
    waiting: int
    missing: str | None
    metrics: Mapping[str, float]
    seconds: float


def refresh(
    session: Session, publication: str, accept: Mapping[str, str] | None = None
) -> Refreshed:
    """Publish the people that came since the last batch, under the guarantee of the publication.

    A batch ends when this is called: with the greatest value that the source's column ``arrival``
    has then. What comes later with a value that is not greater is late, and waits. Records of an
    ``entity`` that is published wait, too.

    Parameters
    ----------
    session : Session
        Of the role that published it, which needs SELECT on the source.
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
    old = find_publication(session, name)
    state = run_errand(session, "batches", name=name)
    if state is None or not state["is_own"]:
        raise PermissionDeniedError(
            "only the role that published a publication can refresh it",
            detail=f'publication "{name}"',
            hint="a superuser can become this role with SET ROLE",
        )
    require_whole(old)
    declared = kind_named(old.kind)
    kind = declared.load()
    source, types = open_source(session, source_of(session, name).quoted(session))
    kept = old.parameters.get("accept", {})
    accepted = {**kept, **(accept or {})}
    request = _request(declared, source.relation.quoted(session), old, accepted)
    request = kind.frozen(session, old, request)
    batch = Newcomers(
        session, source, types, state["upto"], old, knows_entities=state["knows_entities"]
    )
    n_new, waiting, missing = batch.count()

    def unchanged(waiting: int, missing: str | None) -> Refreshed:
        batch.drop()
        return Refreshed(
            state["publication_id"], name, old.guarantee, old.records, 0, waiting, missing,
            old.metrics, time.perf_counter() - started,
        )  # fmt: skip

    if not n_new:
        return unchanged(waiting, missing)
    try:
        with session.savepoint():
            job, written = batch.write(kind, request)
    except (IneligibleError, InfeasibleError, TooFewError) as error:
        return unchanged(waiting + n_new, _said(error))
    batch.drop()
    schema = published_schema(session)
    described = describe_types(session, source.relation, batch.published)
    alone = replace(
        old, name=job.staging.name, records=job.snapshot.n_records,
        parameters={**old.parameters, **request.recorded, **written.parameters},
        layout={**written.layout, "types": described},
    )  # fmt: skip
    # Whoever has a copy of before can tell the batch from the others.
    require_checks([*kind.examine(session, alone, is_new=True).checks, *written.checks])
    whole = Staging.begin(session, schema)
    both = kind.extend(job, old, written, whole)
    job.staging.drop(kind.suffixes)
    n_added = job.snapshot.n_records
    records = old.records + n_added
    parameters = {
        **old.parameters, **request.recorded, **both.parameters,
        "readers": state["grantees"], "accept": dict(request.accept),
    }  # fmt: skip
    new = replace(
        old, name=whole.name, method=request.method, parameters=parameters,
        layout={**both.layout, "types": described},
        records=records, guarantee=both.guarantee,
        metrics=_together(old, written.metrics, n_added),
    )  # fmt: skip
    session.step("verifying")
    examined = kind.examine(session, new, is_new=True)
    require_checks(examined.checks)
    earlier = earlier_releases(
        session, source.source_id, state["grantees"], state["publication_id"]
    )  # fmt: skip
    combined = require_compatible(session, new, name, earlier, request.accept)
    release = describe_release(
        session, source, batch.published, [whole.name + end for end in kind.digested], combined
    )
    new = replace(new, name=name)
    publication_id = enter_publication(
        whole, new, source, metrics=examined.metrics, suffixes=kind.suffixes,
        closed=kind.closed, notes=kind.notes(new, ShownNames(session)),
        release={
            **release, "upto": batch.upto, "refreshes": state["publication_id"],
            "keeps_grants": True,
            "entities": None if batch.entities is None else batch.entities.staging.name,
        },
        replace=True,
    )  # fmt: skip
    return Refreshed(
        publication_id, name, new.guarantee, records, n_added, waiting, missing,
        {**examined.metrics, **new.metrics}, time.perf_counter() - started,
    )  # fmt: skip


_NOT_GIVEN: Final = ("source", "publication", "replace", "dry_run", "readers")


def _request(
    declared: DeclaredKind, source: str, old: Publication, accept: Mapping[str, str]
) -> PublishRequest:
    """Ask again for what was asked for."""
    names = {item.name for item in parameters_of(declared.request)} - set(_NOT_GIVEN)
    given = {name: value for name, value in old.parameters.items() if name in names}
    given |= {
        "source": source, "publication": old.name, "method": old.method,
        "accept": dict(accept),
    }  # fmt: skip
    request: PublishRequest = read_request(declared.request, given)
    return request


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
