"""Repairs what a dump does not have, once it was restored: owners, grants, roles of the ledger."""

from __future__ import annotations

from typing import Any, Final

from kanon_db.catalog.entries import OWNER
from kanon_db.publications.registry import kind_named
from kanon_db.session.protocol import fetch_one
from kanon_db.session.psycopg_session import PsycopgSession

# Where the roles of a dump are missing, whoever restores it owns its relations. Only who owns a
# relation can give it the mark of a publication.
_UNOWNED: Final = """
SELECT c.relname::text AS name, CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE'
    WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'TABLE' END AS kind
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_roles AS r ON r.oid = c.relowner
WHERE n.nspname = $1::text AND r.rolname <> $2::text
  AND (r.rolname = current_user OR r.rolsuper AND (
    SELECT u.rolsuper FROM pg_roles AS u WHERE u.rolname = current_user))
  AND (c.relkind IN ('r', 'v', 'm') AND EXISTS (
        SELECT FROM kanon.publication AS p WHERE c.relname = ANY (p.relations)
        AND starts_with(obj_description(c.oid, 'pg_class'), kanon.mark(p.publication_id)))
    OR c.relkind = 'S' AND EXISTS (SELECT FROM kanon.budget AS b WHERE b.counter = c.relname))
ORDER BY c.relname
"""


def give_back(session: PsycopgSession, schema: str) -> list[str]:
    """Make restored relations and counters belong to the owner of all publications again.

    Returns what was done, for people to read.
    """
    rows = session.fetch(_UNOWNED, schema, OWNER)
    for row in rows:
        name, owner = session.identifier(schema, row["name"]), session.identifier(OWNER)
        session.fetch(f"ALTER {row['kind']} {name} OWNER TO {owner}")
        if row["kind"] != "SEQUENCE":
            session.fetch("SELECT kanon.owner_close_type($1::text::regclass)", name)
    return [f"{len(rows)} relations of publications belong to {OWNER} again"] if rows else []


# The number of another server's role is that of anybody here: so first, each gets one of nobody's,
# from the end, which no two rows have. The numbers of an earlier try are there already.
_OF_NOBODY: Final = """
UPDATE kanon.{0} AS t SET role = n.role::oid FROM (
    SELECT o.ctid, (SELECT coalesce(min(l.role::int8), 4294967295) FROM kanon.{0} AS l
        WHERE l.role::int8 > 4200000000) - row_number() OVER () AS role
    FROM kanon.{0} AS o
) AS n WHERE n.ctid = t.ctid
"""
_BY_NAME: Final = """
UPDATE kanon.{0} AS t SET role = u.oid FROM pg_roles AS u WHERE u.rolname = t.role_name
"""
_WITH_ROLES: Final = ("release_reader", "budget", "job")
_RELATIONS: Final = """
UPDATE kanon.release AS r SET
    publisher = (SELECT u.oid FROM pg_roles AS u WHERE u.rolname = r.released_by),
    source_oid = (SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE format('%I.%I', n.nspname, c.relname) = r.source
          AND kanon.name_elsewhere(r.source) <> ALL (r.base_names)),
    bases = ARRAY(SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE format('%I.%I', n.nspname, c.relname) = ANY (r.base_names) ORDER BY c.oid)
"""
"""The label of a source elsewhere is no name, whatever it looks like."""


def find_again(session: PsycopgSession) -> bool:
    """Look up roles and relations by their names, in another database than theirs.

    It tells whether this is another one, whose publications are not all repaired yet.
    """
    rows = session.fetch("SELECT value FROM kanon.setting WHERE name = 'home'")
    if not rows or rows[0]["value"] == _here(session):
        return False
    for table in _WITH_ROLES:
        for statement in (_OF_NOBODY, _BY_NAME):
            session.fetch(statement.format(table))
    session.fetch(_RELATIONS)
    # What has these numbers here is another relation; names and columns' names are left.
    session.fetch("UPDATE kanon.source SET relation_oid = NULL, numbers = '{}'")
    return True


def _here(session: PsycopgSession) -> str:
    return str(fetch_one(session, _HERE)["value"])


_HERE: Final = """
SELECT format('%s/%s', system_identifier, d.oid) AS value
FROM pg_control_system() CROSS JOIN pg_database AS d WHERE d.datname = current_database()
"""

# Publications that nobody may replace or drop any more: the dump's grants were lost.
_LOST: Final = """
SELECT p.name, p.kind, p.relations, p.published_by::text AS publisher,
       -- Whoever published wrote the entry: it may be anything, and must stop nothing.
       ARRAY(SELECT r.name #>> '{}' FROM jsonb_path_query(
            p.parameters, '$.readers[*] ? (@.type() == "string")') AS r (name)) AS readers,
       EXISTS (SELECT FROM pg_roles WHERE rolname = p.published_by) AS has_publisher
FROM kanon.publication AS p
WHERE EXISTS (SELECT FROM kanon.owned(p))
  AND NOT EXISTS (
    SELECT FROM kanon.owned(p) AS o JOIN pg_class AS c ON c.oid = o.relation
    CROSS JOIN aclexplode(c.relacl) AS a WHERE a.is_grantable AND a.grantee <> c.relowner)
ORDER BY p.publication_id
"""


def repair_restored(session: PsycopgSession, schema: str, *, is_elsewhere: bool) -> list[str]:
    """Grant publications to those who were named when they were published, after a restore.

    Returns what was done, for people to read.
    """
    # Only in another database than the one where kanon_db was last installed, and only publications
    # whose grants were lost altogether. Elsewhere, a role of the same name may be a stranger, and
    # what has been granted and revoked since then stays as it is.
    lost = session.fetch(_LOST) if is_elsewhere else []
    done = [
        _grant_again(session, schema, publication)
        for publication in lost
        if publication["has_publisher"]
    ]
    if any(not publication["has_publisher"] for publication in lost):
        missing = sorted(
            {publication["publisher"] for publication in lost if not publication["has_publisher"]}
        )
        return [*done, f"there is no role {', '.join(missing)}: create it, and install again"]
    session.fetch(
        "INSERT INTO kanon.setting (name, value) VALUES ('home', $1::text)"
        " ON CONFLICT ON CONSTRAINT setting_pkey DO UPDATE SET value = excluded.value",
        _here(session),
    )
    return done


def _grant_again(session: PsycopgSession, schema: str, publication: Any) -> str:
    closed = kind_named(publication["kind"]).load().closed
    wanted = publication["readers"]
    rows = session.fetch(
        "SELECT rolname::text AS role FROM pg_roles WHERE rolname = ANY ($1::text[])", wanted
    )
    readers = [row["role"] for row in rows]
    publisher = session.identifier(publication["publisher"])
    for relation in publication["relations"]:
        name = session.identifier(schema, relation)
        if relation[len(publication["name"]) :] in closed:
            session.fetch(f"GRANT SELECT ON {name} TO {publisher}")
            continue
        for reader in readers:
            session.fetch(f"GRANT SELECT ON {name} TO {session.identifier(reader)}")
        session.fetch(f"GRANT SELECT ON {name} TO {publisher} WITH GRANT OPTION")
    missing = sorted(set(wanted) - set(readers))
    return (
        f'publication "{publication["name"]}" granted again to {publication["publisher"]},'
        " who published it,"
        f" and to its readers {', '.join(readers) or '(none)'}"
        + (f"; there is no role {', '.join(missing)}" if missing else "")
    )
