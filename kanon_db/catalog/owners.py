"""Whose code runs when a relation is read."""

from __future__ import annotations

from kanon_db.errors import PermissionDeniedError
from kanon_db.session.protocol import Session
from kanon_db.transfer.columns import Relation

_OTHERS = """
SELECT count(DISTINCT r.owner) AS n
FROM pg_roles AS u CROSS JOIN LATERAL kanon.reached($1::text::oid) AS r
JOIN pg_roles AS o ON o.oid = r.owner
WHERE u.rolname = current_user AND u.rolsuper AND NOT o.rolsuper
"""


def require_harmless(session: Session, relation: Relation, oid: str) -> None:
    """Refuse to read, as a superuser, what belongs to somebody else.

    Reading a table runs what its owner has attached to it (an index on an expression, a policy, a
    view's functions) with the rights of whoever reads, even if the query is only planned. So does
    any SELECT in PostgreSQL. For other roles this is documented in ``docs/operation.md``.

    Raises
    ------
    PermissionDeniedError
    """
    (row,) = session.fetch(_OTHERS, oid)
    if row["n"]:
        raise PermissionDeniedError(
            "a superuser does not read what belongs to others",
            detail=f"{relation}, or what it is made from, belongs to other roles, whose code would"
            " run with the rights of a superuser",
            hint="SET ROLE to its owner, or to a role that has few other rights",
        )
