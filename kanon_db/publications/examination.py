"""Verifying and measuring a publication of any kind."""

from __future__ import annotations

from kanon_db.catalog.entries import Publication, find_publication
from kanon_db.errors import VerificationError
from kanon_db.publications.buckets.examine import examine_buckets
from kanon_db.publications.buckets.tables import tables_of
from kanon_db.publications.freeform.examine import examine_freeform
from kanon_db.publications.pipeline import Check, Examination
from kanon_db.publications.rows.view import RowView
from kanon_db.publications.suppressed.examine import examine_suppressed
from kanon_db.session.protocol import Session


def verify(session: Session, name: str) -> list[Check]:
    """Check a publication from its published relations alone.

    Raises
    ------
    NotFoundError
        When there is no such publication, or the role may not read it.
    """
    return _examine(session, find_publication(session, name)).checks


def metrics(session: Session, name: str) -> dict[str, float]:
    """Measure a publication from its published relations.

    What only the source can tell is repeated as it was measured when publishing.

    Raises
    ------
    NotFoundError
        When there is no such publication, or the role may not read it.
    VerificationError
        When its relations are gone, or others stand in their place.
    """
    publication = find_publication(session, name)
    examined = _examine(session, publication)
    if not examined.metrics:
        raise VerificationError(
            "the published relations are not the ones that were published",
            detail=f'publication "{name}"',
            hint="kanon.verify names the check that fails; publish again with replace => true",
        )
    return examined.metrics


def _examine(session: Session, publication: Publication) -> Examination:
    if publication.kind == "buckets":
        return examine_buckets(
            session,
            tables_of(session, publication),
            publication.parameters,
            records=publication.records,
        )
    view = RowView.of_publication(session, publication)
    if publication.kind == "suppressed":
        examined = examine_suppressed(
            session, view, publication.parameters, records=publication.records
        )
    elif publication.kind == "freeform":
        examined = examine_freeform(
            session, view, records=publication.records, digest=publication.layout["digest"]
        )
    else:
        from kanon_db.publications.generalized.examine import examine_generalized

        examined = examine_generalized(
            session,
            view,
            publication.parameters,
            records=publication.records,
            sensitive=publication.layout["sensitive"],
        )
    if examined.metrics:  # what only the source can tell was measured when publishing
        examined.metrics.update({**publication.metrics, **examined.metrics})
    return examined
