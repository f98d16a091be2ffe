"""Verifying and measuring a publication of any kind."""

from __future__ import annotations

from kanon_db.database.bucket_tables import BucketTables
from kanon_db.database.bucket_verification import Examination, examine_buckets
from kanon_db.database.catalog import find_publication
from kanon_db.database.publishing import Check
from kanon_db.database.session import Session
from kanon_db.errors import VerificationError


def verify(session: Session, name: str) -> list[Check]:
    """Check a publication from its published relations alone.

    Raises
    ------
    NotFoundError
        When there is no such publication, or the role may not read it.
    """
    return _examine(session, name).checks


def metrics(session: Session, name: str) -> dict[str, float]:
    """Measure a publication from its published relations.

    Raises
    ------
    NotFoundError
        When there is no such publication, or the role may not read it.
    VerificationError
        When its relations are gone, or others stand in their place.
    """
    examined = _examine(session, name)
    if not examined.metrics:
        raise VerificationError(
            "the published relations are not the ones that were published",
            detail=f'publication "{name}"',
            hint="kanon.verify names the check that fails; publish again with replace => true",
        )
    return examined.metrics


def _examine(session: Session, name: str) -> Examination:
    publication = find_publication(session, name)
    return examine_buckets(
        session,
        BucketTables.of_publication(session, publication),
        publication.parameters,
        records=publication.records,
    )
