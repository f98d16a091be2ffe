"""Who may read a publication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kanon_db.errors import InvalidParameterError, NotFoundError
from kanon_db.session import Session
from kanon_db.transfer.columns import Relation

DEFAULT_READERS: Final = ("kanon_analyst",)


def check_readers(session: Session, readers: Sequence[str] | None, schema: str) -> tuple[str, ...]:
    """Return the roles that may read a publication; refuse roles that could not reach it.

    Raises
    ------
    NotFoundError
        When a role does not exist.
    InvalidParameterError
        When a role cannot use the schema of publications.
    """
    roles = DEFAULT_READERS if readers is None else tuple(dict.fromkeys(readers))
    for role in roles:
        rows = session.fetch(
            "SELECT has_schema_privilege(oid, $2::text, 'USAGE') AS reaches"
            " FROM pg_roles WHERE rolname = $1::text",
            role,
            schema,
        )
        if not rows:
            raise NotFoundError("a reader is not a role of this server", detail=f'role "{role}"')
        if not rows[0]["reaches"]:
            raise InvalidParameterError(
                "a reader cannot use the schema of publications",
                detail=f'role "{role}" has no USAGE on schema "{schema}"',
                hint="grant it kanon_analyst first",
            )
    return roles


def warn_of_other_publications(
    session: Session, source: Relation, roles: Sequence[str], name: str
) -> None:
    """Warn when a reader can combine the new publication with an older one of the same source.

    Two publications, each of them private by itself, can together reveal more than either.
    """
    rows = session.fetch(
        "SELECT p.name FROM kanon.publication AS p"
        " WHERE p.source_schema = $1::text AND p.source_relation = $2::text"
        " AND p.name <> $4::text AND EXISTS ("
        "  SELECT 1 FROM unnest($3::text[]) AS role, kanon.setting AS s, pg_class AS c"
        "  JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        "  WHERE s.name = 'published_schema' AND n.nspname = s.value AND c.relname = p.name"
        "  AND has_table_privilege(role, c.oid, 'SELECT'))"
        " ORDER BY p.name",
        source.schema,
        source.name,
        list(roles),
        name,
    )
    if rows:
        session.warn(
            "the same readers can read other publications of this source"
            f" ({', '.join(row['name'] for row in rows)}): combined, they can reveal more"
            " about a person than the bound of each allows"
        )
