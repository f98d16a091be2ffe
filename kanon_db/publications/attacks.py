"""Playing known attacks against a publication of any kind."""

from __future__ import annotations

from dataclasses import asdict
from typing import Protocol

from kanon_db.catalog.entries import (
    changed,
    find_publication,
    published_schema,
    record_attacks,
    require_whole,
    source_of,
)
from kanon_db.catalog.sources import open_source
from kanon_db.errors import PermissionDeniedError
from kanon_db.publications.kind import Target
from kanon_db.publications.registry import kind_named
from kanon_db.publications.results import Attack
from kanon_db.session import Session, fetch_one
from kanon_db.transfer.room import Room


class Listener(Protocol):
    """Who hears of an attack; a session does."""

    def step(self, name: str) -> None:
        """Hear what is done next."""

    def tell(self, message: str) -> None:
        """Hear what is worth knowing."""


def attack(session: Session, name: str) -> list[Attack]:
    """Play known attacks against a publication, and keep what they achieve.

    Guesses are made from the published relations; the source scores them, and teaches the one
    attacker who knows its correlations.

    Parameters
    ----------
    session : Session
        The session of the role that published it, which needs SELECT on the source. Everything runs
        with the rights of this role.
    name : str
        The publication.

    Returns
    -------
    list of Attack
        Which attacks there are depends on the kind.

    Raises
    ------
    NotFoundError
        When there is no such publication, or its source is gone.
    PermissionDeniedError
        When another role published it, or this one cannot read all of the source.
    SchemaMismatchError
        When the source's columns have changed since it was registered.
    VerificationError
        When the published relations are not those that were published.
    """
    session.plan(["verifying", "attacking"])
    target = open_target(session, name)
    session.phase("attacking")
    found = list(kind_named(target.publication.kind).load().attack(target))
    record_attacks(session, name, [asdict(line) for line in found])
    return found


def open_target(session: Session, name: str) -> Target:
    """Open a publication with its source, for the role that published it.

    Raises
    ------
    NotFoundError, PermissionDeniedError, SchemaMismatchError, VerificationError
        As :func:`attack`.
    """
    publication = find_publication(session, name)
    _check_role(session, name)
    require_whole(publication)
    kind = kind_named(publication.kind).load()
    source, types = open_source(session, source_of(session, name).quoted(session))
    session.phase("verifying")
    # Whatever has taken the place of a published relation is not read. Bitmaps are not read, so it
    # suffices to sample them.
    if not all(check.holds for check in kind.examine(session, publication, is_new=True).checks):
        raise changed(publication)
    return Target(session, publication, source, types, published_schema(session), Room.of(session))


def _check_role(session: Session, name: str) -> None:
    """Refuse everybody but the one who published: a source may be a view, which runs code."""
    row = fetch_one(
        session,
        "SELECT published_by AS publisher, published_by = current_user AS allowed"
        " FROM kanon.publications WHERE name = $1::text",
        name,
    )
    if not row["allowed"]:
        raise PermissionDeniedError(
            "only the role that published a publication can play attacks against it",
            detail=f'publication "{name}" belongs to role "{row["publisher"]}"',
            hint="ask this role to play them",
        )
