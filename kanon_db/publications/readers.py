"""Who may read a publication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kanon_db.catalog.names import require_plain
from kanon_db.errors import InvalidParameterError, NotFoundError
from kanon_db.session import Session

DEFAULT_READERS: Final = ("kanon_analyst",)


def check_readers(session: Session, readers: Sequence[str] | None, schema: str) -> tuple[str, ...]:
    """Return the roles that may read a publication; refuse roles that could not reach it.

    Raises
    ------
    InvalidNameError
        When a role's name has control characters.
    NotFoundError
        When a role does not exist.
    InvalidParameterError
        When a role cannot use the schema of publications.
    """
    roles = DEFAULT_READERS if readers is None else tuple(dict.fromkeys(readers))
    for role in roles:
        require_plain("a reader", role)
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
