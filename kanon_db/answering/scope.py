"""What a query's names mean: the publication, the lookup tables, and their columns and types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kanon_db.answering.estimator import chosen_estimator
from kanon_db.answering.limits import Limits
from kanon_db.answering.opened import OpenQuery
from kanon_db.answering.published_types import PublishedTypes, plain_column
from kanon_db.catalog.entries import Publication, find_publication, published_schema, require_whole
from kanon_db.catalog.owners import require_harmless
from kanon_db.counting.checking import LookupTable, Query, check, check_relations, join
from kanon_db.counting.expressions import Constant, attributes, columns
from kanon_db.counting.layout import (
    Assignment,
    BucketLayout,
    BucketTables,
    CellLayout,
    ClassTable,
    Lookup,
    RowView,
)
from kanon_db.counting.reading import QueryText, RelationText, parse_query
from kanon_db.counting.refusals import refusal
from kanon_db.counting.regression import MOST_CORRECTED
from kanon_db.counting.types import CATEGORIES
from kanon_db.errors import DatabaseError, NotFoundError, PermissionDeniedError
from kanon_db.publications.registry import kind_named
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.session.server_errors import (
    DATA_EXCEPTION_CLASS,
    INSUFFICIENT_PRIVILEGE,
)
from kanon_db.transfer.columns import ColumnType, Relation, column_types

_LOOKUP = """
SELECT c.oid::text AS oid, c.relkind::text AS kind
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1::text AND c.relname = $2::text
  AND has_schema_privilege(n.oid, 'USAGE')
  AND (has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT'))
"""


def open_query(session: Session, query: str) -> OpenQuery:
    """Read a query, look up its names, and check it.

    Raises
    ------
    UnsupportedQueryError
        It gives the reason, and what is allowed.
    NotFoundError
        When there is no such publication or lookup table, or the role may not read it.
    """
    schema = published_schema(session)
    limits = Limits.of(session)
    if "\\" in query:
        _require_plain_backslashes(session)
    text = read_query(query, schema, session.heartbeat)
    publication = find_publication(session, text.publication.name)
    require_whole(publication)
    shape = kind_named(publication.kind).shape
    if shape not in _LAYOUTS:
        raise refusal(
            "publications of this kind answer no counts",
            detail=f'publication "{publication.name}" is of the kind {publication.kind}',
            hint="ask a model with kanon.classify",
        )
    layout = _LAYOUTS[shape](session, schema, publication)
    tables = [_lookup_table(session, written.relation, schema) for written in text.lookups]
    checked, lookups = checked_query(text, layout, tables)
    opened = OpenQuery(session, text, checked, publication, layout, lookups, limits)
    _require_readable_constants(opened)
    with opened.frugal():
        _require_kept_cells(opened)
        for number, lookup in enumerate(lookups):
            _require_unique(opened, lookup)
            _require_short(opened, number, lookup)
    return opened


def _require_plain_backslashes(session: Session) -> None:
    """Refuse a backslash where a quoted constant would mean something else on the source."""
    (row,) = session.fetch("SELECT current_setting('standard_conforming_strings') AS found")
    if row["found"] != "on":
        raise refusal(
            "a backslash means something else while standard_conforming_strings is off",
            hint="SET standard_conforming_strings = on, and ask again",
        )


def read_query(query: str, schema: str, heartbeat: Callable[[], None]) -> QueryText:
    """Read a query, and see that it asks about one publication.

    Raises
    ------
    UnsupportedQueryError
    """
    text = parse_query(query, schema, heartbeat)
    check_relations(text)
    return text


def checked_query(
    text: QueryText, layout: BucketLayout | CellLayout, tables: Sequence[LookupTable]
) -> tuple[Query, tuple[Lookup, ...]]:
    """Check a query by what is known of the publication and of the lookup tables in its text.

    Raises
    ------
    UnsupportedQueryError
    """
    joined = join(text, layout.columns, tables)
    return check(text, joined.scopes, joined.matches), joined.lookups


def _published_types(
    session: Session, publication: Publication, view: str
) -> dict[str, ColumnType]:
    """Return the columns of a publication's view, which has those of all that it is made from.

    Raises
    ------
    NotFoundError
        When one has a type that does not belong to a superuser any more: its new owner can attach
        code to it, which would run with the rights of whoever asks.
    """
    row = fetch_one(session, "SELECT to_regclass($1::text)::oid::text AS oid", view)
    types = column_types(session, row["oid"])
    others = [name for name, column in types.items() if column.is_others]
    if others:
        raise NotFoundError(
            "the type of a published column belongs to somebody else by now",
            detail=f"{publication.name}: {', '.join(others)}",
            hint="the publisher can publish again; it is then published as text",
        )
    return types


def _bucket_layout(session: Session, schema: str, publication: Publication) -> BucketLayout:
    tables = BucketTables.of(session, schema, publication.name, publication.layout)
    types = _published_types(session, publication, tables.view)
    described, published = publication.layout, PublishedTypes(session, publication)
    asked = publication.parameters.get("assignment")
    return BucketLayout(
        tables,
        {
            name: published.column(column)
            for name, column in types.items()
            if name in described["quasi_identifiers"]
        },
        published.column(types[described["sensitive"]]),
        ASSIGNMENTS.get(described.get("assignment", asked), "random"),
        chosen_estimator(session) == "paper"
        or (tables.spectrum is not None and len(tables.spectrum.eigenvalues) >= MOST_CORRECTED),
    )


ASSIGNMENTS: Final[Mapping[object, Assignment]] = {
    "random": "random", "cells": "cells", "local": "local", "m_invariant": "random",
}  # fmt: skip


def _cell_layout(session: Session, schema: str, publication: Publication) -> CellLayout:
    view = RowView.of(session, schema, publication.name, publication.layout)
    types = _published_types(session, publication, view.view)
    described: dict[str, Any] = dict(publication.layout)
    estimator = chosen_estimator(session)
    published = PublishedTypes(session, publication, estimator)
    cells = {
        str(written["name"]): published.cell(
            types[written["name"]],
            written["cell"],
            None if view.pattern is None else position,
            written.get("labels"),
        )
        for position, written in enumerate(described["quasi_identifiers"], start=1)
    }
    cells |= {name: published.cell(types[name], "value", None) for name in described["others"]}
    left_out = publication.left_out
    n_rows = publication.records - left_out
    return CellLayout(
        view, cells, left_out, n_rows, is_paper=estimator == "paper",
        classes=_class_table(session, schema, publication),
    )  # fmt: skip


def _class_table(session: Session, schema: str, publication: Publication) -> ClassTable | None:
    """Return the table of classes, if there is one that the role may read."""
    described = publication.layout.get("classes")
    if not isinstance(described, dict):
        return None
    table = ClassTable.of(session, schema, publication.name, described)
    row = fetch_one(
        session,
        "SELECT coalesce(has_table_privilege(to_regclass($1::text), 'SELECT'), false) AS may_read",
        table.table,
    )
    return table if row["may_read"] else None


_LAYOUTS: Final[Mapping[str, Callable[[Session, str, Publication], BucketLayout | CellLayout]]] = {
    "buckets": _bucket_layout,
    "rows": _cell_layout,
}
"""How a publication is read, by the shape of its kind."""


def _lookup_table(session: Session, relation: RelationText, published: str) -> LookupTable:
    """Find a lookup table that the role may read, with its columns of ordinary types.

    Raises
    ------
    NotFoundError
        When there is none, or the role may not read it; both look the same.
    """
    schema = relation.schema or ""
    if schema in (published, "kanon", "information_schema") or schema.startswith("pg_"):
        raise refusal(
            "relations in this schema cannot be lookup tables",
            hint="join your own table that describes values, like regions by zip code",
        )
    rows = session.fetch(_LOOKUP, schema, relation.name)
    if not rows:
        raise NotFoundError(
            "there is no such lookup table, or you may not read it",
            detail=f'name "{relation.name}" in schema "{schema}"',
            hint="name a table that you may SELECT from, with its schema",
        )
    if rows[0]["kind"] not in ("r", "p", "m"):
        raise refusal(
            "only a table or a materialized view can be a lookup table",
            hint="copy what the view shows into a table",
        )
    require_harmless(session, Relation(schema, relation.name), rows[0]["oid"])
    return LookupTable(
        session.identifier(schema, relation.name),
        {
            name: plain_column(session, column)
            for name, column in column_types(session, rows[0]["oid"]).items()
            if column.type_name in CATEGORIES and not column.is_others
        },
    )


def _require_kept_cells(opened: OpenQuery) -> None:
    """Refuse a query on a column of which nothing is known."""
    layout = opened.layout
    if not isinstance(layout, CellLayout) or layout.view.pattern is None:
        return
    names = {name for part in opened.query.evaluated for name in attributes(part)}
    for name in sorted(names):
        mark = layout.cells[name].mark
        if mark is None:
            continue
        (row,) = opened.fetch(
            f"SELECT EXISTS (SELECT FROM {layout.view.view} AS c"
            f" WHERE substr(c.{layout.view.pattern}, {mark}, 1) <> '*') AS is_known"
        )
        if not row["is_known"]:
            raise refusal(
                "nothing is known of a column: all of its cells are suppressed",
                hint="ask about other columns",
                detail=f'column "{name}"',
            )


def _require_unique(query: OpenQuery, lookup: Lookup) -> None:
    """Refuse a lookup table that would duplicate records."""
    rows = query.fetch(
        f"SELECT EXISTS (SELECT FROM {lookup.relation} AS l WHERE l.{lookup.key.sql} IS NOT NULL"
        f" GROUP BY l.{lookup.key.sql} HAVING count(*) > 1) AS repeats"
    )
    if rows[0]["repeats"]:
        raise refusal(
            "the lookup table has several rows for one value of its join column",
            hint="join a table that has each value once",
            detail=f'column "{lookup.key.name}"',
        )


def _require_short(query: OpenQuery, number: int, lookup: Lookup) -> None:
    """Refuse texts of a lookup table that are longer than published ones can be."""
    from kanon_db.transfer.snapshot import MOST_BYTES  # what makes copies: not for a first estimate

    named = {column for part in query.query.evaluated for column in columns(part)} | {lookup.key}
    texts = sorted(
        column.name
        for column in named
        if column.lookup == number and column.type.category in ("text", "char")
    )
    if not texts:
        return
    lengths = ", ".join(f"max(octet_length(l.{query.session.identifier(t)}))" for t in texts)
    (row,) = query.fetch(f"SELECT ARRAY[{lengths}]::int4[] AS longest FROM {lookup.relation} AS l")
    for name, longest in zip(texts, row["longest"], strict=True):
        if longest is not None and longest > MOST_BYTES:
            raise refusal(
                f"a lookup table has a text of more than {MOST_BYTES:,} bytes",
                hint="join a table with shorter texts",
                detail=f'column "{name}"',
            )


def _require_readable_constants(opened: OpenQuery) -> None:
    """Make sure that every constant can be read as its type; the server's error would quote it."""
    session = opened.session
    by_type: dict[str, list[str]] = {}
    for constant in opened.query.constants:
        if constant.text is not None and not _reads_for_certain(constant):
            by_type.setdefault(constant.type.name, []).append(constant.text)
    for type_name, texts in sorted(by_type.items()):
        try:
            with session.savepoint():
                session.fetch(f"SELECT count(c::{type_name}) FROM unnest($1::text[]) AS c", texts)
        except DatabaseError as error:
            if error.sqlstate == INSUFFICIENT_PRIVILEGE:
                raise PermissionDeniedError(
                    "the role may not use a column's type",
                    detail=f"type {type_name}",
                    hint="the owner of the type's schema can GRANT USAGE on it to kanon_analyst",
                ) from None
            if not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
                raise
            raise refusal(
                f"a constant cannot be read as {type_name}",
                hint="write it as PostgreSQL prints values of this type",
            ) from None


def _reads_for_certain(constant: Constant) -> bool:
    text, type_name = constant.text or "", constant.type.name
    if type_name == "text":
        return True
    if type_name in ("integer", "bigint", "numeric"):
        return text.lstrip("-").isdecimal() and len(text) < 10 and text.isascii()
    return type_name == "boolean" and text in ("true", "false")
