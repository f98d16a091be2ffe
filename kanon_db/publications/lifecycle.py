"""The names of publications: reserved, replaced, dropped."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kanon_db.catalog.entries import published_schema
from kanon_db.errors import (
    DatabaseError,
    DuplicateError,
    InUseError,
    NotFoundError,
    PermissionDeniedError,
)
from kanon_db.session import Session
from kanon_db.session.server_errors import DEPENDENT_OBJECTS, INSUFFICIENT_PRIVILEGE


def reserve_name(session: Session, name: str, suffixes: Sequence[str], *, replace: bool) -> str:
    """Make sure that the publication's relations can be created; return their schema.

    The name stays reserved until the transaction ends.

    Raises
    ------
    DuplicateError
        When a publication has the name and `replace` is false, or any other relation has it.
    """
    session.fetch(
        "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))::text",
        f"kanon publication {json.dumps(name)}",
    )
    schema = published_schema(session)
    if session.fetch("SELECT 1 FROM kanon.publication WHERE name = $1::text", name):
        if not replace:
            raise DuplicateError(
                "a publication of this name exists",
                detail=f'name "{name}"',
                hint="choose another name, or pass replace => true (--replace) to replace it",
            )
        drop_publication(session, name)
    rows = session.fetch(
        "SELECT c.relname::text AS name FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = $1::text AND c.relname = ANY ($2::text[])",
        schema,
        [name + suffix for suffix in suffixes],
    )
    if rows:
        raise DuplicateError(
            "a relation of this name exists, and kanon_db may not replace it",
            detail=f'schema "{schema}", relation "{rows[0]["name"]}"',
            hint="choose another name, or drop the relation yourself",
        )
    return schema


def drop_publication(session: Session, name: str) -> None:
    """Drop a publication's relations and its catalog entry.

    Raises
    ------
    NotFoundError
    PermissionDeniedError
        When another role published it.
    InUseError
        When views or other objects depend on it.
    """
    rows = session.fetch(
        "SELECT published_by::text, relations FROM kanon.publication WHERE name = $1::text", name
    )
    if not rows:
        raise NotFoundError(
            "there is no such publication",
            detail=f'name "{name}"',
            hint="TABLE kanon.publications lists the ones that you may read",
        )
    (publication,) = rows
    refused = PermissionDeniedError(
        "only the role that published a publication can drop or replace it",
        detail=f'publication "{name}" belongs to role "{publication["published_by"]}"',
    )
    if not session.fetch(
        "DELETE FROM kanon.publication WHERE name = $1::text RETURNING publication_id", name
    ):
        raise refused
    schema = published_schema(session)
    for relation in publication["relations"]:
        rows = session.fetch(
            "SELECT CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW'"
            " ELSE 'TABLE' END AS kind FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = $1::text AND c.relname = $2::text",
            schema,
            relation,
        )
        if not rows:
            continue  # somebody dropped it by hand; the entry must go anyway
        try:
            session.fetch(f"DROP {rows[0]['kind']} {session.identifier(schema, relation)}")
        except DatabaseError as error:
            if error.sqlstate == INSUFFICIENT_PRIVILEGE:
                raise refused from None
            if error.sqlstate == DEPENDENT_OBJECTS:
                raise InUseError(
                    "other objects depend on the publication",
                    detail=f'relation "{schema}.{relation}"',
                    hint="first drop the views or tables that were made from it",
                ) from None
            raise
