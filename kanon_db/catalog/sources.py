"""Registers sources, and opens them if they are what they were when they were registered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kanon_db.catalog.attributes import KeepRule
from kanon_db.catalog.entries import (
    LOST_COLUMNS,
    Source,
    find_source,
    require_harmless,
    run_errand,
    source_of,
)
from kanon_db.catalog.names import require_plain
from kanon_db.catalog.source_checks import (
    check_attribute,
    check_roles,
    read_prefix,
    warn_of_roles,
)
from kanon_db.errors import (
    DatabaseError,
    InUseError,
    InvalidParameterError,
    NotFoundError,
    PermissionDeniedError,
    SchemaMismatchError,
)
from kanon_db.session.protocol import (
    LOCK_NOT_AVAILABLE,
    UNDEFINED_FUNCTION,
    Session,
    fetch_one,
    patient,
)
from kanon_db.transfer.columns import (
    ColumnType,
    Relation,
    check_comparable,
    column_types,
    find_relation,
)

_KINDS: Final = ("r", "p", "v", "m", "f")
"""`pg_class.relkind`: tables, partitioned tables, views, materialized views, foreign tables."""

_PATIENCE: Final = "2s"
"""For others who describe the source, or are about to publish it."""


def register_source(
    session: Session,
    source: str,
    quasi_identifiers: Sequence[str],  # columns that others may know about a person, at least one
    sensitive: str | None = None,  # the column to protect
    identifiers: Sequence[str] = (),  # columns that name a person, which are never published
    attributes: Mapping[str, Any] | None = None,
    insensitive: Sequence[str] = (),
    entity: str | None = None,
    arrival: str | None = None,
    also_sensitive: Sequence[str] = (),
    keep: str | None = None,
) -> int:
    """Describe microdata, or describe them anew; return the id of the description.

    While there are publications, only columns without a role, and identifiers, can change.
    """
    relation, oid, kind = find_relation(session, source)
    if kind == "t":
        raise InvalidParameterError(
            "a temporary relation cannot be registered",
            detail=f"relation {relation}",
            hint="copy it into an ordinary table",
        )
    require_rows(session, relation, oid, kind)
    require_harmless(session, relation, oid)
    types = column_types(session, oid)
    keep = None if keep is None else str(KeepRule.of(keep))
    new = Source(
        0, relation, tuple(quasi_identifiers), sensitive, tuple(identifiers),
        dict(attributes or {}), tuple(types), tuple(insensitive), entity, arrival=arrival,
        also_sensitive=tuple(also_sensitive), keep=keep,
    )  # fmt: skip
    for name in (relation.schema, relation.name):
        require_plain("a relation or its schema", name)
    check_roles(new)
    new = new.with_kept(types)
    used = (*new.all_sensitive, entity, arrival, new.kept_by)
    others = [name for name in dict.fromkeys(used) if name is not None]
    compared = [*quasi_identifiers, *(name for name in others if name not in quasi_identifiers)]
    require_readable(session, relation, oid, [*compared, *insensitive])
    check_comparable(session, relation, compared)
    if arrival is not None:
        _check_arrival(session, relation, arrival)
    _check_aggregates(session, new)
    described = dict(new.attributes)
    for column, attribute in new.attributes.items():
        if column not in quasi_identifiers:
            raise InvalidParameterError(
                "attributes can only describe quasi-identifiers",
                detail=f'"{column}" is not one of {", ".join(quasi_identifiers)}',
            )
        check_attribute(session, types[column], attribute)
        if "prefix" in attribute:
            described[column] = read_prefix(session, new.relation, types[column], attribute)
    new = new._replace(attributes=described).with_shortened(session, types)
    warn_of_roles(session, new)

    try:
        with patient(session, _PATIENCE):
            answer = run_errand(
                session,
                "register",
                relation=oid,
                quasi_identifiers=quasi_identifiers,
                sensitive=sensitive,
                identifiers=identifiers,
                attributes=new.attributes,
                insensitive=insensitive,
                entity=entity,
                arrival=arrival,
                also_sensitive=also_sensitive,
                keep=keep,
            )
    except DatabaseError as error:
        if error.sqlstate == LOCK_NOT_AVAILABLE:
            raise DatabaseError(
                "another transaction is describing or publishing the source",
                sqlstate=LOCK_NOT_AVAILABLE,
                detail=f"relation {relation}",
                hint="try again when it has ended; pg_locks shows who holds locks on kanon.source",
            ) from None
        if error.sqlstate != PermissionDeniedError.sqlstate:
            raise
        raise PermissionDeniedError(
            "the source's description cannot be written",
            detail=f"relation {relation}: {error.message}",
            hint="ask the role that registered it or owns it, or ask for the role kanon_publisher",
        ) from None
    if "published" in answer:
        raise InUseError(
            "the source has live publications",
            detail=f"{relation} is published as {', '.join(answer['published'])}, and a column has"
            " another role, or another column has its name",
            hint="register it with the roles that it has (TABLE kanon.source); to give others, drop"
            f" them first, such as kanon.drop_publication('{answer['published'][0]}')",
        )
    return int(answer["source_id"])


def open_source(session: Session, source: str) -> tuple[Source, dict[str, ColumnType]]:
    """Look up a registered source, which must be what it was when it was registered."""
    # `SchemaMismatchError`: created anew, with other columns, or over a view that was redefined.
    # `PermissionDeniedError`: reading it would run the code of others with the rights of a
    # superuser, or a role that does not own it has registered it.
    relation, oid, kind = find_relation(session, source)
    require_rows(session, relation, oid, kind)
    require_harmless(session, relation, oid)
    registered = find_source(session, relation)
    _require_known_author(session, registered, oid)
    types = column_types(session, oid)
    needed = [*registered.quasi_identifiers, *registered.all_sensitive]
    missing = [column for column in needed if column not in types]
    if missing:
        raise SchemaMismatchError(
            "the source has lost columns since it was registered",
            detail=f"{relation} has no {', '.join(missing)}",
            hint=LOST_COLUMNS,
        )
    if registered.columns != tuple(types):
        added = [column for column in types if column not in registered.columns]
        gone = [column for column in registered.columns if column not in types]
        raise SchemaMismatchError(
            "the source's columns have changed since it was registered",
            detail=f"{relation}: {len(added)} added ({', '.join(added)}),"
            f" {len(gone)} gone ({', '.join(gone)})"
            if added or gone
            else f"{relation}: its columns are in another order",
            hint="register it again with the roles that it has; what is new identifies people, or"
            " has no role",
        )
    require_unchanged(session, registered)
    return registered, types


def open_source_of(session: Session, publication: str) -> tuple[Source, dict[str, ColumnType]]:
    """Look up the source of a publication, as `open_source` does."""
    relation = source_of(session, publication).quoted(session)
    if fetch_one(session, "SELECT to_regclass($1::text) IS NULL AS gone", relation)["gone"]:
        raise NotFoundError(
            "the source of the publication does not exist any more",
            detail=f'publication "{publication}" was made from {relation}',
            hint="it is answered as before; to go on with it, create its source again with the"
            " columns that are registered (TABLE kanon.source), and register it again",
        )
    return open_source(session, relation)


def require_unchanged(session: Session, source: Source) -> None:
    """Refuse a source that is not what it was when it was registered.

    After it has been read, others cannot change it before the transaction ends.
    """
    row = fetch_one(
        session,
        "SELECT kanon.fingerprint(to_regclass($1::text)) AS value",
        source.relation.quoted(session),
    )
    if source.fingerprint != row["value"]:
        raise SchemaMismatchError(
            "the source has changed since it was registered",
            detail=f"{source.relation}: it was created anew, a column got another type, or a view"
            " behind it was redefined",
            hint="register it again",
        )


def _require_known_author(session: Session, source: Source, oid: str) -> None:
    """Refuse a description by a role that merely may read the source, unless it is the caller.

    Whoever may read a source may describe it, and could call a name insensitive.
    """
    rows = session.fetch(
        "SELECT s.registered_by = u.oid OR r.rolsuper OR pg_has_role(r.oid, c.relowner, 'USAGE')"
        " AS known FROM kanon.source AS s JOIN pg_class AS c ON c.oid = $2::text::oid"
        " JOIN pg_roles AS u ON u.rolname = current_user"
        " LEFT JOIN pg_roles AS r ON r.oid = s.registered_by WHERE s.source_id = $1::text::int8",
        str(source.source_id),
        oid,
    )
    if not rows:
        raise NotFoundError(
            "the source relation does not exist any more",
            detail=f"relation {source.relation}",
            hint="create it and register it again",
        )
    if not rows[0]["known"]:
        raise PermissionDeniedError(
            "the source was registered by a role that does not own it",
            detail=f'{source.relation} was registered by role "{source.registered_by}"'
            if source.registered_by
            else f"{source.relation}: the role that registered it is gone",
            hint="its owner, or a superuser, can register it again",
        )


def require_rows(session: Session, relation: Relation, oid: str, kind: str) -> None:
    """Refuse a relation without rows to read: an index, or a view that was never filled."""
    if kind not in (*_KINDS, "t"):
        raise InvalidParameterError(
            "only tables and views have records",
            detail=f"relation {relation} is neither",
            hint="name the table that it belongs to",
        )
    if kind == "m":
        row = fetch_one(
            session, "SELECT relispopulated AS filled FROM pg_class WHERE oid = $1::text::oid", oid
        )
        if not row["filled"]:
            raise InvalidParameterError(
                "the materialized view has not been filled",
                detail=f"relation {relation}",
                hint=f"REFRESH MATERIALIZED VIEW {relation.quoted(session)}",
            )


def require_sensitive(source: Source, message: str) -> str:
    """Return the sensitive attribute of a source that must have one."""
    if source.sensitive is None:
        raise InvalidParameterError(
            message,
            detail=f"{source.relation} was registered without one",
            hint="register it again with sensitive => ...",
        )
    return source.sensitive


def require_readable(
    session: Session, relation: Relation, oid: str, columns: Sequence[str]
) -> None:
    """Refuse to read columns on which the role has no SELECT."""
    rows = session.fetch(
        "SELECT name FROM unnest($2::text[]) AS name"
        " WHERE NOT has_column_privilege($1::text::oid, name, 'SELECT')",
        oid,
        list(columns),
    )
    if rows:
        role = fetch_one(session, "SELECT quote_ident(current_user) AS name")["name"]
        raise PermissionDeniedError(
            "the source cannot be read",
            detail=f"no SELECT on {len(rows)} of the named columns of {relation}",
            hint=f"ask its owner for GRANT SELECT ON {relation.quoted(session)} TO {role}",
        )


def _check_aggregates(session: Session, source: Source) -> None:
    """Refuse an aggregate that the values of a column do not have."""
    if source.relation.kept is None:
        return
    for column, function in source.relation.kept.aggregates:
        try:
            with session.savepoint():
                session.fetch(
                    f"SELECT {function}({column.read(session)})::{column.type_name}"
                    f" FROM {source.relation.quoted(session)} WHERE false"
                )
        except DatabaseError as error:
            if error.sqlstate != UNDEFINED_FUNCTION:
                raise
            raise SchemaMismatchError(
                "a column has no such aggregate",
                detail=f'{function} of column "{column.name}" of {source.relation}: its type is'
                f" {column.type_name}",
                hint="leave it out: the kept record has a value of its own",
            ) from None


def _check_arrival(session: Session, relation: Relation, arrival: str) -> None:
    """Refuse a column of a type without a greatest value."""
    try:
        with session.savepoint():
            session.fetch(
                f"SELECT max({session.identifier(arrival)}) FROM {relation.quoted(session)}"
                " WHERE false"
            )
    except DatabaseError as error:
        if error.sqlstate != UNDEFINED_FUNCTION:
            raise
        raise InvalidParameterError(
            "the column that says when a record came has no greatest value",
            detail=f'column "{arrival}" of {relation}',
            hint="take a time, a date or a running number",
        ) from None
