"""Verifying and measuring a publication of any kind."""

from __future__ import annotations

from kanon_db.catalog.entries import Publication, changed, find_publication
from kanon_db.publications.registry import kind_named
from kanon_db.publications.results import Check, Examination, Metric
from kanon_db.publications.risks import RISKS
from kanon_db.session import Session


def verify(session: Session, name: str) -> list[Check]:
    """Check a publication, using only its published relations.

    Raises
    ------
    NotFoundError
        When there is no such publication, or the role may not read it.
    """
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
        Check(f"accepted risk: {risk}", RISKS.get(risk, ""), f"because: {reason}", holds=True)
        for risk, reason in accepted.items()
    ]


def metrics(session: Session, name: str) -> list[Metric]:
    """Measure a publication from its published relations.

    Metrics that need the source are repeated as they were measured when publishing.

    Raises
    ------
    NotFoundError
        When there is no such publication, or the role may not read it.
    VerificationError
        When its relations are gone, or have been replaced by others.
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
