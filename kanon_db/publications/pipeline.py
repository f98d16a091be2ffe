"""What every kind of publication shares: names, readers, replacement, the catalog entry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kanon_db.catalog.entries import published_schema
from kanon_db.catalog.names import check_publication_name
from kanon_db.errors import (
    DatabaseError,
    DuplicateError,
    InUseError,
    InvalidParameterError,
    NotFoundError,
    PermissionDeniedError,
    VerificationError,
)
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.session.server_errors import DEPENDENT_OBJECTS, INSUFFICIENT_PRIVILEGE
from kanon_db.transfer.columns import Relation

DEFAULT_READERS: Final = ("kanon_analyst",)


@dataclass(frozen=True)
class Published:
    """What a `publish_*` call returns.

    Attributes
    ----------
    publication_id : int
    name : str
    guarantee : str
        The privacy guarantee in words.
    records : int
    metrics : dict of str to float
        The headline metrics.
    seconds : float
        Wall-clock time of the call.
    """

    publication_id: int
    name: str
    guarantee: str
    records: int
    metrics: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class Check:
    """One line of a verification: what must hold, its bound, what was measured."""

    check: str
    bound: str
    measured: str
    holds: bool


@dataclass(frozen=True)
class Examination:
    """What was found in the published relations.

    Attributes
    ----------
    checks : list of Check
    metrics : dict of str to float
        Empty where the relations are not of the kinds that were published: what stands in their
        place is not read, since that would run it with the rights of whoever verifies.
    """

    checks: list[Check]
    metrics: dict[str, float]


_RELATIONS = """
SELECT v.relkind::text IS NOT DISTINCT FROM $3::text AND (
           SELECT bool_and(coalesce(t.relkind = 'r' AND NOT t.relrowsecurity, false))
           FROM unnest($2::text[]) AS name LEFT JOIN pg_class AS t ON t.oid = to_regclass(name)
       ) AS kinds,
       (SELECT count(*) FROM pg_rewrite AS r JOIN pg_depend AS d
        ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
        WHERE r.ev_class = v.oid AND (
            d.refclassid <> 'pg_class'::regclass OR d.refobjid <> v.oid
            AND d.refobjid NOT IN (SELECT to_regclass(name) FROM unnest($2::text[]) AS name))
       ) AS others
FROM (SELECT) AS one LEFT JOIN pg_class AS v ON v.oid = to_regclass($1::text)
"""


def check_relations(
    session: Session, promise: str, view: str, tables: Sequence[str], *, materialized: bool = False
) -> Check:
    """Look at what the published relations are, reading the server's catalogs alone.

    Parameters
    ----------
    promise : str
        What the check is called.
    view : str
        A view, quoted, that reads nothing but the tables.
    tables : sequence of str
        Tables without row-level security, quoted.
    materialized : bool
        Whether the view is materialized.
    """
    kind = "m" if materialized else "v"
    found = fetch_one(session, _RELATIONS, view, list(tables), kind)
    return Check(
        promise,
        "0 other objects in the view",
        f"{'as' if found['kinds'] else 'not as'} published, {found['others']} other objects",
        holds=found["kinds"] and found["others"] == 0,
    )


def reserve_name(session: Session, name: str, suffixes: Sequence[str], *, replace: bool) -> str:
    """Make sure that the publication's relations can be created; return their schema.

    The name stays reserved until the transaction ends.

    Raises
    ------
    InvalidNameError
    DuplicateError
        When a publication, or any other relation, has the name and `replace` does not apply.
    """
    check_publication_name(name)
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
                hint="choose another name, or pass replace => true (--replace) to publish anew",
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
            "a relation of this name exists and is not kanon_db's to replace",
            detail=f'schema "{schema}", relation "{rows[0]["name"]}"',
            hint="choose another name, or drop the relation yourself",
        )
    return schema


def check_readers(session: Session, readers: Sequence[str] | None, schema: str) -> tuple[str, ...]:
    """Return the roles that may read a publication, refusing those that could not reach it.

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
                hint="GRANT kanon_analyst TO it first",
            )
    return roles


def grant_select(session: Session, relations: Sequence[str], roles: Sequence[str]) -> None:
    """Let the readers, and nobody else, read the quoted relations."""
    # ALTER DEFAULT PRIVILEGES gives rights on new relations to whomever it names.
    others = session.fetch(
        "SELECT DISTINCT r.rolname::text AS role FROM unnest($1::text[]) AS name"
        " JOIN pg_class AS c ON c.oid = to_regclass(name) CROSS JOIN aclexplode(c.relacl) AS a"
        " LEFT JOIN pg_roles AS r ON r.oid = a.grantee WHERE a.grantee <> c.relowner",
        list(relations),
    )
    on = f"ON {', '.join(relations)}"
    for row in others:
        grantee = "PUBLIC" if row["role"] is None else session.identifier(row["role"])
        session.fetch(f"REVOKE ALL {on} FROM {grantee}")
    if roles:
        session.fetch(f"GRANT SELECT {on} TO {', '.join(map(session.identifier, roles))}")


def warn_of_other_publications(session: Session, source: Relation, roles: Sequence[str]) -> None:
    """Warn when a reader can set the new publication against an older one of the same rows.

    Two publications of one source, each private alone, can together tell more than either.
    """
    rows = session.fetch(
        "SELECT p.name FROM kanon.publication AS p"
        " WHERE p.source_schema = $1::text AND p.source_relation = $2::text AND EXISTS ("
        "  SELECT 1 FROM unnest($3::text[]) AS role, kanon.setting AS s, pg_class AS c"
        "  JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        "  WHERE s.name = 'published_schema' AND n.nspname = s.value AND c.relname = p.name"
        "  AND has_table_privilege(role, c.oid, 'SELECT'))"
        " ORDER BY p.name",
        source.schema,
        source.name,
        list(roles),
    )
    if rows:
        session.warn(
            "the same readers can read other publications of this source"
            f" ({', '.join(row['name'] for row in rows)}): set against each other they can tell"
            " more about a person than each bound allows"
        )


def require_checks(checks: Sequence[Check]) -> None:
    """Refuse to publish unless every check holds.

    Raises
    ------
    VerificationError
        Naming the checks that fail. The caller's transaction must not commit.
    """
    failed = [check.check for check in checks if not check.holds]
    if failed:
        raise VerificationError(
            "the published relations fail their verification; nothing was published",
            detail=f"failed: {', '.join(failed)}",
            hint="this is a defect of kanon_db: please report it with the method and parameters",
        )


def drop_publication(session: Session, name: str) -> None:
    """Drop a publication's relations and its catalog entry.

    Raises
    ------
    NotFoundError
    PermissionDeniedError
        When another role published it.
    InUseError
        When somebody made views or other objects of it.
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
        "only the role that published can drop or replace a publication",
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
            continue  # somebody dropped it by hand: the entry must go all the same
        try:
            session.fetch(f"DROP {rows[0]['kind']} {session.identifier(schema, relation)}")
        except DatabaseError as error:
            if error.sqlstate == INSUFFICIENT_PRIVILEGE:
                raise refused from None
            if error.sqlstate == DEPENDENT_OBJECTS:
                raise InUseError(
                    "other objects depend on the publication",
                    detail=f'relation "{schema}.{relation}"',
                    hint="drop the views or tables that were made of it first",
                ) from None
            raise


def check_choice(parameter: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value that is not among the choices of a parameter.

    Raises
    ------
    InvalidParameterError
    """
    if value not in choices:
        raise InvalidParameterError(
            f"the {parameter} is not known", hint=f"choose one of {', '.join(choices)}"
        )
