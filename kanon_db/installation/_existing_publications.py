"""Takes care of publications that exist when kanon_db is upgraded, or a dump was restored.

Publications of earlier versions become `kanon_owner`'s and enter the ledger of releases; after a
restore without roles, grants and the ledger's references are repaired.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any, Final

from kanon_db.catalog.entries import OWNER
from kanon_db.errors import DatabaseError
from kanon_db.publications.registry import kind_named
from kanon_db.query.layout import BucketTables, RowView
from kanon_db.session.protocol import fetch_one
from kanon_db.session.psycopg_session import PsycopgSession

# Earlier versions published relations as the publisher's own; they become `kanon_owner`'s.

_UNOWNED: Final = """
SELECT p.publication_id, p.name, p.kind, p.layout::text AS layout, p.relations,
       array_agg(c.oid::text ORDER BY r.position) AS oids,
       array_agg(c.relkind::text ORDER BY r.position) AS kinds,
       -- Where a dump was restored without its roles, a superuser owns what others published.
       (SELECT r.rolname::text FROM pg_roles AS r
        WHERE r.oid = min(c.relowner) AND NOT r.rolsuper OR r.rolname = p.published_by
        ORDER BY r.oid = min(c.relowner) DESC LIMIT 1) AS publisher,
       count(c.oid) = cardinality(p.relations) AND count(DISTINCT c.relowner) = 1 AS is_complete
FROM kanon.publication AS p CROSS JOIN unnest(p.relations) WITH ORDINALITY AS r (name, position)
LEFT JOIN pg_namespace AS n ON n.nspname = $1::text
LEFT JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = r.name
GROUP BY p.publication_id
HAVING bool_or(pg_get_userbyid(c.relowner) IS DISTINCT FROM $2::text)
ORDER BY p.publication_id
"""

# The comments that begin with a mark, and NULL for others.
_MARKED: Final = """
SELECT CASE WHEN starts_with(obj_description(r.oid, 'pg_class'), $2::text)
            THEN obj_description(r.oid, 'pg_class') END AS comment
FROM unnest($1::text[]::oid[]) WITH ORDINALITY AS r (oid, position) ORDER BY r.position
"""

# Everything with which an owner can attach code to a relation, and types that others own.
_ATTACHED: Final = """
SELECT count(*) AS n FROM unnest($1::text[]::oid[]) AS r (oid) WHERE
    EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = r.oid)
    OR EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = r.oid)
    OR EXISTS (SELECT FROM pg_rewrite AS w WHERE w.ev_class = r.oid AND w.rulename <> '_RETURN')
    OR EXISTS (SELECT FROM pg_policy AS p WHERE p.polrelid = r.oid)
    OR EXISTS (SELECT FROM pg_constraint AS k WHERE k.conrelid = r.oid)
    OR EXISTS (SELECT FROM pg_attrdef AS d WHERE d.adrelid = r.oid)
    OR EXISTS (SELECT FROM pg_inherits AS i WHERE r.oid IN (i.inhrelid, i.inhparent))
    OR EXISTS (SELECT FROM pg_statistic_ext AS s WHERE s.stxrelid = r.oid)
    OR EXISTS (SELECT FROM pg_class AS c WHERE c.oid = r.oid AND c.relrowsecurity)
    OR EXISTS (SELECT FROM pg_attribute AS a
               WHERE a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
               AND NOT (kanon.is_safe_type(a.atttypid) AND kanon.is_safe_collation(a.attcollation)))
"""

_UNGUARDED: Final = """
SELECT p.name, p.layout::text AS layout
FROM kanon.publication AS p CROSS JOIN kanon.owned(p) AS o
WHERE o.kind = 'v' AND NOT EXISTS (
    SELECT FROM pg_rewrite AS r JOIN pg_depend AS d ON d.objid = r.oid
    WHERE r.ev_class = o.relation AND d.refobjid = 'kanon.require_visible'::regproc)
"""

_GUARD: Final = " WHERE kanon.require_visible("

_MALFORMED: Final = (
    ArithmeticError, AttributeError, LookupError, TypeError, ValueError, DatabaseError,
)  # fmt: skip
"""Errors of reading an entry into which its publisher wrote anything; they must stop nothing."""

_KINDS: Final = {"r": "TABLE", "v": "VIEW", "m": "MATERIALIZED VIEW"}


def note_fingerprints(session: PsycopgSession) -> None:
    """Note what sources of earlier versions are made of today; from now on changes are noticed."""
    session.fetch(
        "UPDATE kanon.source SET fingerprint = kanon.fingerprint(to_regclass("
        " quote_ident(schema_name) || '.' || quote_ident(relation_name))) WHERE fingerprint IS NULL"
    )


def adopt_publications(session: PsycopgSession, schema: str) -> list[str]:
    """Make publications of earlier versions belong to the owner of all publications.

    Nothing in them is run: only the server's catalogs are read, while the relations are locked. A
    publication to which its publisher has attached anything stays as it is, and is not answered
    from any more.

    Returns
    -------
    list of str
        What was done, for people to read.
    """
    done = []
    for found in session.fetch(_UNOWNED, schema, OWNER):
        names = [session.identifier(schema, name) for name in found["relations"]]
        try:
            with session.savepoint():
                _adopt(session, schema, found, names)
        except (_ChangedError, *_MALFORMED):
            done.append(
                f'publication "{found["name"]}" is not answered from: its relations are missing or'
                " were changed; publish it again under another name, then drop it"
            )
        else:
            done.append(f'publication "{found["name"]}" now belongs to {OWNER}')
    return done


def adopt_counters(session: PsycopgSession, schema: str) -> None:
    """Make what counts the answers of models belong to the owner of all publications.

    A superuser owns it where a dump was restored without its roles.
    """
    rows = session.fetch(
        "SELECT c.relname::text AS name FROM kanon.budget AS b"
        " JOIN pg_class AS c ON c.relname = b.counter AND c.relkind = 'S'"
        " JOIN pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = $1::text"
        " WHERE pg_get_userbyid(c.relowner) <> $2::text",
        schema,
        OWNER,
    )
    for row in rows:
        name, owner = session.identifier(schema, row["name"]), session.identifier(OWNER)
        session.fetch(f"ALTER SEQUENCE {name} OWNER TO {owner}")


def guard_views(session: PsycopgSession, schema: str) -> list[str]:
    """Make views of earlier versions fail, rather than look empty, in an older snapshot.

    Returns
    -------
    list of str
        What could not be done, for people to read.
    """
    undone = []
    for found in session.fetch(_UNGUARDED):
        try:
            with session.savepoint():
                layout = json.loads(found["layout"])
                tables = BucketTables.of(session, schema, found["name"], layout)
                definition = _weighted_join(session, found["layout"], tables)
                session.fetch(f"CREATE OR REPLACE VIEW {tables.view} AS {definition}")
        except _MALFORMED:
            undone.append(
                f'publication "{found["name"]}" is not what it is described as: its view stays as'
                " it is, and may look empty in a snapshot from before it took another's place"
            )
    return undone


class _ChangedError(Exception):
    """The relations are not as kanon_db publishes them."""


def _adopt(session: PsycopgSession, schema: str, found: Any, names: Sequence[str]) -> None:
    if not found["is_complete"]:
        raise _ChangedError
    mark = fetch_one(
        session, "SELECT kanon.mark($1::text::int8) AS value", str(found["publication_id"])
    )["value"]
    # Once they belong to somebody else, and are locked, the publisher cannot change them any more.
    rows = session.fetch(_MARKED, found["oids"], mark)
    for name, kind, comment in zip(
        names, found["kinds"], (row["comment"] for row in rows), strict=True
    ):
        session.fetch(f"ALTER {_KINDS[kind]} {name} OWNER TO {session.identifier(OWNER)}")
        # Comments that say how to use it come with a dump; everybody reads them: no guarantee here.
        session.fetch(f"COMMENT ON {_KINDS[kind]} {name} IS {session.literal(comment or mark)}")
    if fetch_one(session, _ATTACHED, found["oids"])["n"]:
        raise _ChangedError
    if found["kinds"][0] != "r":
        _check_view(session, names[0], _definitions(session, schema, found))
    if kind_named(found["kind"]).shape == "buckets":
        tables = BucketTables.of(session, schema, found["name"], json.loads(found["layout"]))
        if tables.has_likely:
            _check_view(session, tables.likely, [_likely_join(session, found["layout"], tables)])
        elif found["kinds"].count("v") > 1:  # nothing says what the other one reads
            raise _ChangedError
    if found["publisher"] is None:  # see kanon_db.installation._existing_publications
        return
    closed = kind_named(found["kind"]).load().closed
    publisher = session.identifier(found["publisher"])
    for name, relation in zip(names, found["relations"], strict=True):
        option = "" if relation[len(found["name"]) :] in closed else " WITH GRANT OPTION"
        session.fetch(f"GRANT SELECT ON {name} TO {publisher}{option}")


def _check_view(session: PsycopgSession, view: str, definitions: Sequence[str]) -> None:
    expected = session.identifier("pg_temp", f"kanon_view_{secrets.token_hex(8)}")
    for definition in definitions:
        session.fetch(f"CREATE TEMPORARY VIEW {expected} AS {definition}")
        same = fetch_one(
            session,
            "SELECT pg_get_viewdef(to_regclass($1::text)) = pg_get_viewdef(to_regclass($2::text))"
            " AS value",
            view,
            expected,
        )
        session.fetch(f"DROP VIEW {expected}")
        if same["value"]:
            return
    raise _ChangedError


def _definitions(session: PsycopgSession, schema: str, found: Any) -> list[str]:
    """Return the queries that the view may be: of this version, and of earlier ones."""
    layout = json.loads(found["layout"])
    if kind_named(found["kind"]).shape == "buckets":
        tables = BucketTables.of(session, schema, found["name"], layout)
        definition = _weighted_join(session, found["layout"], tables)
        return [definition, definition.partition(_GUARD)[0]]
    view = RowView.of(session, schema, found["name"], layout)
    columns = ", ".join(session.identifier(column) for column in view.columns)
    joined = "" if view.number is None else f" JOIN {view.cells} USING ({view.number})"
    return [f"SELECT {columns} FROM {view.rows}{joined}"]


def _weighted_join(session: PsycopgSession, layout: str, tables: BucketTables) -> str:
    row = fetch_one(
        session,
        "SELECT kanon.weighted_join($1::text::jsonb, $2::text, $3::text) AS value",
        layout,
        tables.qit,
        tables.sat,
    )
    return str(row["value"])


def _likely_join(session: PsycopgSession, layout: str, tables: BucketTables) -> str:
    if not tables.is_likely:
        return _weighted_join(session, layout, tables)
    row = fetch_one(
        session,
        "SELECT kanon.learned_join($1::text::jsonb, $2::text, $3::text, $4::text) AS value",
        layout,
        tables.qit,
        tables.sat,
        tables.learned,
    )
    return str(row["value"])


def enter_releases(session: PsycopgSession) -> list[str]:
    """Enter publications of earlier versions into the ledger, with who can read them today.

    Returns
    -------
    list of str
        What was done, for people to read.
    """
    rows = session.fetch(
        "SELECT p.name, kanon.owner_release(p, NULL, '{}') AS done FROM kanon.publication AS p"
        " WHERE NOT EXISTS (SELECT FROM kanon.release AS r"
        "  WHERE r.publication_id = p.publication_id) ORDER BY p.publication_id"
    )
    session.fetch(
        "UPDATE kanon.budget AS b SET role = u.oid FROM pg_roles AS u WHERE u.rolname = b.role_name"
    )
    session.fetch(
        "UPDATE kanon.release AS r SET publisher = g.grantee FROM kanon.publication AS p,"
        " LATERAL (SELECT * FROM kanon.granted(p) AS g WHERE g.is_publisher LIMIT 1) AS g"
        " WHERE r.publication_id = p.publication_id AND r.publisher IS NULL"
    )
    session.fetch("SELECT kanon.owner_note_readers(p) FROM kanon.publication AS p")
    return [f"{len(rows)} publications entered into the ledger of releases"] if rows else []


def find_again(session: PsycopgSession) -> None:
    """Look up the ledger's roles and relations by their names, in another database than theirs."""
    session.fetch(
        "UPDATE kanon.release_reader AS d SET role = u.oid FROM pg_roles AS u"
        " WHERE u.rolname = d.role_name"
    )
    session.fetch(
        "UPDATE kanon.release AS r SET publisher = (SELECT u.oid FROM pg_roles AS u"
        " WHERE u.rolname = r.released_by), source_oid = to_regclass(r.source),"
        " bases = ARRAY(SELECT to_regclass(n)::oid FROM unnest(r.base_names) AS n"
        "  WHERE to_regclass(n) IS NOT NULL)"
    )


# A dump lacks the roles of its server, and so the grants to them.

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
