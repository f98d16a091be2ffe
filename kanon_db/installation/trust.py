"""Whether what is in the schema kanon can be trusted."""

from __future__ import annotations

from typing import Final

from kanon_db.catalog.errands import OWNER
from kanon_db.errors import PermissionDeniedError
from kanon_db.session import fetch_one
from kanon_db.session.psycopg_session import PsycopgSession


def require_trusted(session: PsycopgSession) -> None:
    """Make sure that the schema kanon, if it exists, and everything in it belong to superusers.

    The owner of an object can change it, even after CREATE OR REPLACE, and somebody else's view or
    function can run with the rights of whoever reads or calls it. So this check comes first.

    One function belongs to the role that owns publications, which nobody can become.

    Raises
    ------
    PermissionDeniedError
    """
    require_trusted_owner(session, "kanon")
    n = fetch_one(
        session,
        "SELECT count(*) AS n FROM ("
        "SELECT proowner, pronamespace FROM pg_proc UNION ALL"
        " SELECT relowner, relnamespace FROM pg_class UNION ALL"
        " SELECT typowner, typnamespace FROM pg_type) AS o (owner, namespace)"
        " JOIN pg_roles AS r ON r.oid = o.owner"
        " WHERE o.namespace = to_regnamespace('kanon') AND NOT r.rolsuper"
        " AND r.rolname <> $1::text",
        OWNER,
    )["n"]
    if n:
        raise PermissionDeniedError(
            "the schema kanon contains objects that are not owned by a superuser",
            detail=f"{n} functions, relations or types",
            hint=NOT_ADOPTED,
        )


def require_trusted_owner(session: PsycopgSession, schema: str) -> None:
    """Make sure that a schema, if it exists, belongs to a superuser."""
    rows = session.fetch(
        "SELECT r.rolname::text AS owner FROM pg_namespace AS n"
        " JOIN pg_roles AS r ON r.oid = n.nspowner WHERE n.nspname = $1::text AND NOT r.rolsuper",
        schema,
    )
    if rows:
        raise PermissionDeniedError(
            "a schema of this name belongs to somebody else",
            detail=f'schema "{schema}" is owned by role "{rows[0]["owner"]}"',
            hint=NOT_ADOPTED,
        )


NOT_ADOPTED: Final = "drop or rename it; kanon_db does not adopt foreign objects"
