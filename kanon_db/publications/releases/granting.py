"""Measuring a release against others, and letting more roles read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kanon_db.catalog.entries import (
    Publication,
    Source,
    find_publication,
    find_source,
    published_schema,
    require_whole,
    source_of,
)
from kanon_db.catalog.errands import run_errand
from kanon_db.errors import InvalidParameterError, PermissionDeniedError, SchemaMismatchError
from kanon_db.publications.notes import ShownNames
from kanon_db.publications.readers import check_readers
from kanon_db.publications.registry import kind_named
from kanon_db.publications.releases.combining import RISK, combine, require_compatible
from kanon_db.publications.releases.findings import Finding
from kanon_db.publications.releases.ledger import Earlier, earlier_releases
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.transfer.columns import find_relation


def check_release(
    session: Session, source: str, publication: str, readers: Sequence[str] | None = None
) -> list[Finding]:
    """Measure what a publication would tell together with earlier releases of the same people.

    Nothing is published, granted or kept. The publication is there already: as a draft, which
    nobody may read, if it was published with ``readers => '{}'``.

    Parameters
    ----------
    session : Session
        Of the role that published it.
    source : str
        The relation that it was made from.
    publication : str
    readers : sequence of str, optional
        Roles that are to read it; by default those that may read it now, or kanon_analyst.

    Returns
    -------
    list of Finding
        None if it may be granted without a word.

    Raises
    ------
    NotFoundError
        When there is no such publication, or a role does not exist.
    PermissionDeniedError
        When another role published it.
    SchemaMismatchError
        When it was made from another source.
    """
    found = _own(session, publication)
    relation, _, _ = find_relation(session, source)
    if relation != source_of(session, publication):
        raise SchemaMismatchError(
            "the publication was made from another source",
            detail=f'publication "{publication}": made from {found.source}',
        )
    wanted = readers
    if wanted is None:
        wanted = [str(role) for role in found.parameters.get("readers") or ()] or None
    roles = check_readers(session, wanted, published_schema(session))
    session.plan(["looking for earlier releases", "comparing releases"])
    session.phase("looking for earlier releases")
    made_from, earlier = _earlier(session, found, roles)
    session.phase("comparing releases")
    return combine(session, made_from, found, publication, earlier).findings


def grant_publication(
    session: Session, name: str, readers: Sequence[str], accept: Mapping[str, str]
) -> None:
    """Let more roles read a publication, under the rules for publishing it to them.

    Parameters
    ----------
    session : Session
        Of the role that published it.
    name : str
    readers : sequence of str
    accept : mapping of str to str
        ``combined_releases`` with a reason, if it may be set against other releases.

    Raises
    ------
    NotFoundError
        When there is no such publication, or a role does not exist.
    PermissionDeniedError
        When another role published it.
    RiskError
        When a reader could set it against another release, which was not accepted.
    """
    found = _own(session, name)
    if not readers:
        raise InvalidParameterError("no role is named", hint="name the roles that may read it")
    roles = check_readers(session, readers, published_schema(session))
    source, earlier = _earlier(session, found, roles)
    combined = require_compatible(session, source, found, name, earlier, accept)
    kind = kind_named(found.kind).load()
    notes = kind.notes(found, ShownNames(session))
    run_errand(
        session,
        "grant",
        name=name,
        readers=list(roles),
        notes={suffix: note.plain for suffix, note in notes.items()},
        accept={RISK: accept[RISK]} if combined.refused and RISK in accept else {},
        measured=combined.described,
        seen=combined.seen,
    )


def _earlier(
    session: Session, publication: Publication, readers: Sequence[str]
) -> tuple[Source, list[Earlier]]:
    """Return the source, and the releases of it that readers could set against a publication."""
    row = fetch_one(
        session,
        "SELECT publication_id AS id FROM kanon.publication WHERE name = $1::text",
        publication.name,
    )
    source = find_source(session, source_of(session, publication.name))
    return source, earlier_releases(session, source.source_id, readers, row["id"])


def _own(session: Session, name: str) -> Publication:
    found = find_publication(session, name)
    row = fetch_one(
        session,
        "SELECT published_by = current_user"
        " OR (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS allowed"
        " FROM kanon.publications WHERE name = $1::text",
        name,
    )
    if not row["allowed"]:
        raise PermissionDeniedError(
            "only the role that published a publication can grant it, or set it against others",
            detail=f'publication "{name}"',
        )
    require_whole(found)
    return found
