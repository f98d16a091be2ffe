"""Verifies, measures and attacks a publication of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final, Protocol

from kanon_db.catalog.entries import (
    Publication,
    changed,
    find_publication,
    published_schema,
    record_attacks,
    require_publisher,
    require_whole,
    source_of,
)
from kanon_db.catalog.sources import open_source
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.kind import AttackTarget, Workload
from kanon_db.publications.publish_request import RISKS
from kanon_db.publications.registry import kind_named
from kanon_db.publications.results import (
    Attack,
    Check,
    CountAccuracy,
    Examination,
    Metric,
    Remark,
)
from kanon_db.session import Session
from kanon_db.transfer.allowance import Allowance


def verify(session: Session, name: str) -> list[Check]:
    """Check a publication, using only its published relations."""
    session.phase("verifying")
    publication = find_publication(session, name)
    if not publication.is_whole:
        return [
            Check(
                "the published relations are there, and belong to kanon_owner",
                "all of them",
                "some are missing, or belong to others",
                holds=False,
            )
        ]
    return _examine(session, publication).checks + accepted_checks(publication)


def accepted_checks(publication: Publication) -> list[Check]:
    """Say which risks were accepted, and why."""
    accepted = publication.parameters.get("accept", {})
    if not isinstance(accepted, dict):
        return [Check("accepted risks are recorded", "an object", "none", holds=False)]
    return [
        Remark(f"accepted risk: {risk}", RISKS.get(risk, ""), f"because: {reason}")
        for risk, reason in accepted.items()
    ]


def metrics(session: Session, name: str) -> list[Metric]:
    """Measure a publication from its published relations.

    Metrics that need the source are repeated as they were measured when publishing.
    """
    session.phase("measuring")
    publication = find_publication(session, name)
    measured = _examine(session, publication).metrics if publication.is_whole else {}
    if not measured:
        raise changed(publication)
    found = {**measured, **publication.metrics, **measured}
    return [Metric(name, value) for name, value in found.items()]


def _examine(session: Session, publication: Publication) -> Examination:
    return kind_named(publication.kind).load().examine(session, publication)


class AttackSession(Protocol):
    """Hears of the steps of an attack; implemented by sessions."""

    def step(self, name: str) -> None:
        """Hear what is done next."""

    def tell(self, message: str) -> None:
        """Hear what is worth knowing."""


def attack(session: Session, name: str) -> list[Attack]:
    """Play known attacks against a publication, and keep what they achieve.

    Guesses are made from the published relations; the source scores them, and teaches the one
    attacker who knows its correlations.

    Only the publishing role may do this, and everything runs with its rights.
    """
    session.plan(["verifying", "attacking"])
    target = open_target(session, name)
    session.phase("attacking")
    found = list(kind_named(target.publication.kind).load().attack(target))
    record_attacks(session, name, [asdict(line) for line in found])
    return found


def open_target(session: Session, name: str) -> AttackTarget:
    """Open a publication with its source, for the role that published it."""
    publication = find_publication(session, name)
    # Not a superuser either: a source may be a view, which runs code.
    require_publisher(
        session, name, "play attacks against it", "ask this role to play them", or_superuser=False
    )
    require_whole(publication)
    kind = kind_named(publication.kind).load()
    target = _with_source(session, publication)
    session.phase("verifying")
    # Whatever has taken the place of a published relation is not read. Bitmaps are not read, so it
    # suffices to sample them.
    if not all(check.holds for check in kind.examine(session, publication, is_new=True).checks):
        raise changed(publication)
    return target


def _with_source(session: Session, publication: Publication) -> AttackTarget:
    source, types = open_source(session, source_of(session, publication.name).quoted(session))
    return AttackTarget(
        session, publication, source, types, published_schema(session), Allowance.of(session)
    )


EVALUATING: Final = (
    "reading the source", "drawing the queries", "counting in the source",
    "estimating from the publication",
)  # fmt: skip


def evaluate_counts(
    session: Session,  # the session of a role that may read both
    name: str,  # the publication
    *,
    queries: int = 1000,  # how many queries, up to 100,000
    dimensionality: Sequence[int] | None = None,
    selectivity: Sequence[float] | None = None,
    seed: int | None = None,
) -> list[CountAccuracy]:
    """Answer random count queries from a bucketization and from its source, and compare them."""
    publication = find_publication(session, name)
    declared = kind_named(publication.kind)
    if declared.shape != "buckets":
        raise InvalidParameterError(
            "only buckets can be evaluated with count queries",
            detail=f'publication "{name}" is of the kind {publication.kind}',
        )
    require_whole(publication)
    session.plan(EVALUATING)
    target = _with_source(session, publication)
    workload = Workload.of(queries, dimensionality, selectivity, seed)
    return list(declared.load().evaluate(target, workload))
