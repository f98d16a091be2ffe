"""Repairing what a dump cannot bring into a server that lacks its roles."""

from __future__ import annotations

import json
from typing import Any, Final

from kanon_db.installation.releases import find_again
from kanon_db.publications.registry import kind_named
from kanon_db.session.protocol import fetch_one
from kanon_db.session.psycopg_session import PsycopgSession

_HERE: Final = """
SELECT format('%s/%s', system_identifier, d.oid) AS value
FROM pg_control_system() CROSS JOIN pg_database AS d WHERE d.datname = current_database()
"""

# Publications that nobody may replace or drop any more: the dump's grants were lost.
_LOST: Final = """
SELECT p.name, p.kind, p.relations, p.published_by::text AS publisher,
       (p.parameters -> 'readers')::text AS readers,
       EXISTS (SELECT FROM pg_roles WHERE rolname = p.published_by) AS has_publisher
FROM kanon.publication AS p
WHERE EXISTS (SELECT FROM kanon.owned(p))
  AND NOT EXISTS (
    SELECT FROM kanon.owned(p) AS o JOIN pg_class AS c ON c.oid = o.relation
    CROSS JOIN aclexplode(c.relacl) AS a WHERE a.is_grantable AND a.grantee <> c.relowner)
ORDER BY p.publication_id
"""


def repair_restored(session: PsycopgSession, schema: str) -> list[str]:
    """Grant publications to those who were named when they were published, after a restore.

    Only in another database than the one where kanon_db was last installed, and only publications
    whose grants were lost altogether. Elsewhere, a role of the same name may be a stranger, and
    what has been granted and revoked since then stays as it is.

    Returns
    -------
    list of str
        What was done, for people to read.
    """
    here = fetch_one(session, _HERE)["value"]
    rows = session.fetch("SELECT value FROM kanon.setting WHERE name = 'home'")
    is_elsewhere = bool(rows) and rows[0]["value"] != here
    if is_elsewhere:
        find_again(session)
    lost = session.fetch(_LOST) if is_elsewhere else []
    done = [_grant_again(session, schema, found) for found in lost if found["has_publisher"]]
    if any(not found["has_publisher"] for found in lost):
        missing = sorted({found["publisher"] for found in lost if not found["has_publisher"]})
        return [*done, f"there is no role {', '.join(missing)}: create it, and install again"]
    session.fetch(
        "INSERT INTO kanon.setting (name, value) VALUES ('home', $1::text)"
        " ON CONFLICT ON CONSTRAINT setting_pkey DO UPDATE SET value = excluded.value",
        here,
    )
    return done


def _grant_again(session: PsycopgSession, schema: str, found: Any) -> str:
    closed = kind_named(found["kind"]).load().closed
    wanted = json.loads(found["readers"] or "[]")
    rows = session.fetch(
        "SELECT rolname::text AS role FROM pg_roles WHERE rolname = ANY ($1::text[])", wanted
    )
    readers = [row["role"] for row in rows]
    publisher = session.identifier(found["publisher"])
    for relation in found["relations"]:
        name = session.identifier(schema, relation)
        if relation[len(found["name"]) :] in closed:
            session.fetch(f"GRANT SELECT ON {name} TO {publisher}")
            continue
        for reader in readers:
            session.fetch(f"GRANT SELECT ON {name} TO {session.identifier(reader)}")
        session.fetch(f"GRANT SELECT ON {name} TO {publisher} WITH GRANT OPTION")
    missing = sorted(set(wanted) - set(readers))
    return (
        f'publication "{found["name"]}" granted again to {found["publisher"]}, who published it,'
        f" and to its readers {', '.join(readers) or '(none)'}"
        + (f"; there is no role {', '.join(missing)}" if missing else "")
    )
