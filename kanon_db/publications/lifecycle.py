"""The names of publications: given, given to another publication, taken back."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from kanon_db.catalog.entries import Publication, Source, published_schema
from kanon_db.catalog.errands import run_errand
from kanon_db.errors import (
    DatabaseError,
    DuplicateError,
    NotFoundError,
    PermissionDeniedError,
)
from kanon_db.publications.notes import Note
from kanon_db.publications.staging import Staging
from kanon_db.session import Session, fetch_one
from kanon_db.session.server_errors import (
    DUPLICATE_TABLE,
    INSUFFICIENT_PRIVILEGE,
    LOCK_NOT_AVAILABLE,
)
from kanon_db.session.settings import settings

_LOCK_MILLISECONDS: Final = 100
"""How long readers may have to wait behind one attempt to take the place of a publication."""

_PAUSE_SECONDS: Final = 0.3
_WITHDRAWAL_SECONDS: Final = 1.0
"""How long a withdrawal waits for readers to pass; then it takes their rights and no more."""

_PATIENCE_SECONDS: Final = 60.0
"""How long to try; the caller's own lock_timeout comes first."""


_CLOSED: Final = "withdrawn from kanon_db: nobody may read it"
"""How the comment on relations begins that were closed; see ``sql/20_withdrawing.sql``."""


def check_name(session: Session, name: str, suffixes: Sequence[str], *, replace: bool) -> None:
    """Refuse a name that the publication could not get in the end.

    Nothing is locked: whoever finishes first gets the name.

    Raises
    ------
    DuplicateError
        When a publication has the name and `replace` is false, or any other relation has it.
    PermissionDeniedError
        When another role published what has the name.
    """
    if session.fetch("SELECT 1 FROM kanon.publication WHERE name = $1::text", name):
        if not replace:
            raise already_there(name)
        _require_publisher(session, name)
    rows = session.fetch(
        "SELECT c.relname::text AS name FROM pg_class AS c"
        " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = $1::text AND c.relname = ANY ($2::text[])"
        " AND NOT EXISTS (SELECT FROM kanon.publication AS p"
        "  WHERE p.name = $3::text AND c.relname = ANY (p.relations))"
        # What was only closed makes way when nobody keeps it in use.
        " AND NOT starts_with(coalesce(obj_description(c.oid, 'pg_class'), ''), $4::text)",
        published_schema(session),
        [name + suffix for suffix in suffixes],
        name,
        _CLOSED,
    )
    if rows:
        raise _is_taken(rows[0]["name"])


def enter_publication(
    staging: Staging,
    publication: Publication,
    source: Source | None,
    *,
    metrics: Mapping[str, float],
    suffixes: Sequence[str],
    closed: Collection[str],
    notes: Mapping[str, Note],
    release: Mapping[str, Any],
    replace: bool,
) -> int:
    """Give staged relations the publication's name, and enter it into the catalog; return its id.

    Parameters
    ----------
    staging : Staging
    publication : Publication
    source : Source or None
        None if it is elsewhere; the release then has its ``label``.
    metrics : mapping of str to float
        Those that follow from the published relations.
    suffixes, closed, notes, replace
        See :meth:`Staging.publish`.
    release : mapping
        What the ledger keeps.

    Raises
    ------
    DuplicateError, PermissionDeniedError
        As :func:`check_name`, if this has changed since then.
    DatabaseError
        When the source was registered anew meanwhile, or an old publication of this name is in use
        all the time; publishing again may then succeed.
    """
    name = publication.name
    registered = {}
    if source is not None:
        registered = {"source_id": source.source_id, "registered_at": source.registered_at}
    entry: dict[str, Any] = {
        **registered,
        "kind": publication.kind,
        "method": publication.method,
        "parameters": publication.parameters,
        "layout": publication.layout,
        "records": publication.records,
        "guarantee": publication.guarantee,
        "metrics": metrics,
        "source_metrics": publication.metrics,
        **release,
    }
    with in_words(name):
        publication_id: int = _patiently(
            staging.session,
            name,
            lambda: staging.publish(
                name,
                entry,
                suffixes=suffixes,
                closed=closed,
                readers=publication.parameters["readers"],
                notes=notes,
                replace=replace,
            ),
        )
    return publication_id


def drop_publication(session: Session, name: str) -> None:
    """Drop a publication's relations and its catalog entry.

    Relations that something depends on lose their rows, rights and names instead, and are dropped
    when nothing depends on them any more. Nobody's reading delays it: where somebody keeps the
    publication in use, all rights on it are taken within a second or two, and rows and names when
    something is next published or dropped.

    Raises
    ------
    NotFoundError
    PermissionDeniedError
        When another role published it.
    DatabaseError
        When it is being replaced all the time.
    """
    if not session.fetch("SELECT 1 FROM kanon.publication WHERE name = $1::text", name):
        raise NotFoundError(
            "there is no such publication",
            detail=f'name "{name}"',
            hint="TABLE kanon.publications lists the ones that you may read",
        )
    _require_publisher(session, name)
    with in_words(name):
        try:
            _patiently(
                session,
                name,
                lambda: run_errand(session, "drop", name=name),
                at_most=_WITHDRAWAL_SECONDS,
            )
        except DatabaseError as error:
            if error.sqlstate != LOCK_NOT_AVAILABLE:
                raise
            # REVOKE waits for no reader.
            _patiently(session, name, lambda: run_errand(session, "close", name=name))
            session.warn(
                f'somebody keeps publication "{name}" in use: nobody may read it any more, and it'
                " is dropped when you next publish or drop anything and it is not in use"
                " (pg_locks shows who holds locks)"
            )


def _patiently(
    session: Session, name: str, work: Callable[[], Any], at_most: float = math.inf
) -> Any:
    """Do what needs a publication for itself, without making its readers wait for each other.

    While somebody waits for a lock, everybody else queues behind. So each attempt waits only for
    a moment, and lets readers pass before the next one.
    """
    setting = fetch_one(
        session, "SELECT setting::int4 AS ms FROM pg_settings WHERE name = 'lock_timeout'"
    )
    limit = min(setting["ms"] / 1000 or _PATIENCE_SECONDS, at_most)
    started = time.monotonic()
    while True:
        try:
            with (
                session.savepoint(),
                settings(session, {"lock_timeout": f"{_LOCK_MILLISECONDS}ms"}),
            ):
                return work()
        except DatabaseError as error:
            if error.sqlstate != LOCK_NOT_AVAILABLE:
                raise
        if time.monotonic() - started > limit:
            raise DatabaseError(
                "the publication has been in use all the time",
                sqlstate=LOCK_NOT_AVAILABLE,
                detail=f'publication "{name}": no pause within {limit:g} seconds',
                hint="try again later: somebody reads it without a pause, or another publication of"
                " the source is being made; pg_locks shows who holds locks",
            )
        session.heartbeat()
        time.sleep(_PAUSE_SECONDS)


@contextmanager
def in_words(name: str) -> Iterator[None]:
    """Say what a refusal of the owner of all publications means."""
    try:
        yield
    except DatabaseError as error:
        if error.sqlstate == DuplicateError.sqlstate:
            raise already_there(name) from None
        if error.sqlstate == DUPLICATE_TABLE:
            raise _is_taken(name) from None
        if error.sqlstate == INSUFFICIENT_PRIVILEGE:
            raise PermissionDeniedError(error.message, detail=f'publication "{name}"') from None
        raise


def _require_publisher(session: Session, name: str) -> None:
    rows = session.fetch(
        "SELECT published_by, published_by = current_user"
        " OR (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS allowed"
        " FROM kanon.publications WHERE name = $1::text",
        name,
    )
    if not rows:  # not for this role, or without a relation that tells whose it is
        with in_words(name):
            run_errand(session, "batches", name=name)
    elif not rows[0]["allowed"]:
        raise PermissionDeniedError(
            "only the role that published a publication can drop or replace it",
            detail=f'publication "{name}" belongs to role "{rows[0]["published_by"]}"',
        )


def already_there(name: str) -> DuplicateError:
    """Say that a publication of this name exists."""
    return DuplicateError(
        "a publication of this name exists",
        detail=f'name "{name}"',
        hint="choose another name, or pass replace => true to replace it",
    )


def _is_taken(relation: str) -> DuplicateError:
    return DuplicateError(
        "a relation of this name exists, and kanon_db may not replace it",
        detail=f'relation "{relation}" in the schema of publications',
        hint="choose another name, or drop the relation yourself",
    )
