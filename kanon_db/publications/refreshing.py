"""Publishing the people that came since, as a batch of their own; or everybody anew.

Everybody is in one batch only, so that a reader of all states of the publication knows no more of
anybody than a reader of their batch. Where people may leave, everybody is published anew, under
m-invariance.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kanon_db.catalog.entries import (
    Publication,
    find_publication,
    require_whole,
    source_of,
)
from kanon_db.catalog.errands import run_errand
from kanon_db.catalog.sources import open_source
from kanon_db.declaration import parameters_of, read_request
from kanon_db.declaration.shown import Shown
from kanon_db.errors import (
    PermissionDeniedError,
)
from kanon_db.publications.lifecycle import enter_publication, in_words
from kanon_db.publications.newcomers import extended
from kanon_db.publications.notes import ShownNames
from kanon_db.publications.pipeline import PHASES
from kanon_db.publications.refreshed import Made, Task
from kanon_db.publications.registry import DeclaredKind, kind_named
from kanon_db.publications.releases.combining import describe_release, require_compatible
from kanon_db.publications.releases.ledger import earlier_releases
from kanon_db.publications.renewing import renewed
from kanon_db.publications.request import PublishRequest
from kanon_db.publications.results import require_checks
from kanon_db.session import Session


@dataclass(frozen=True)
class Refreshed(Shown):
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
    withdrawn : int
        Records of before that are not published any more, where people can leave.
    left_out : int
        Those of them whose people are still in the source, and are never published again.
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
    withdrawn: int = 0
    left_out: int = 0


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
    with in_words(name):
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
    task = Task(session, source, types, old, kind, request, state["upto"], state["knows_entities"])
    session.plan(PHASES)
    session.phase("reading the source")
    made = renewed(task) if kind.renews(old) else extended(task)
    if not isinstance(made, Made):
        return Refreshed(
            state["publication_id"], name, old.guarantee, old.records, 0, made.waiting,
            made.missing, old.metrics, time.perf_counter() - started,
        )  # fmt: skip
    parameters = {
        **old.parameters, **request.recorded, **made.written.parameters, **made.parameters,
        "readers": state["grantees"], "accept": dict(request.accept),
    }  # fmt: skip
    staging = made.staging
    new = replace(
        old, name=staging.name, parameters=parameters,
        layout={**made.written.layout, "types": made.types}, records=made.records,
        guarantee=made.written.guarantee, metrics=made.metrics,
    )  # fmt: skip
    session.phase("verifying")
    examined = kind.examine(session, new, is_new=True)
    require_checks(examined.checks)
    session.phase("comparing releases")
    earlier = earlier_releases(
        session, source.source_id, state["grantees"], state["publication_id"]
    )  # fmt: skip
    combined = require_compatible(session, source, new, name, earlier, request.accept)
    session.phase("publishing")
    digested = [staging.name + end for end in kind.digested(new.layout)]
    release = describe_release(session, source, made.published, digested, combined)
    new = replace(new, name=name)
    publication_id = enter_publication(
        staging, new, source, metrics=examined.metrics, suffixes=kind.made(new.layout),
        closed=kind.closed, notes=kind.notes(new, ShownNames(session)),
        release={
            **release, "upto": made.upto, "refreshes": state["publication_id"],
            "keeps_grants": True, "added": made.added,
            **({} if made.withdrawn is None else {"withdrawn": made.withdrawn}),
            "entities": None if made.entities is None else made.entities.staging.name,
        },
        replace=True,
    )  # fmt: skip
    return Refreshed(
        publication_id, name, new.guarantee, made.records, made.added, made.waiting, made.missing,
        {**examined.metrics, **new.metrics}, time.perf_counter() - started,
        withdrawn=made.withdrawn or 0, left_out=made.left_out,
    )  # fmt: skip


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
