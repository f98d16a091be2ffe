"""What a query's names mean: the publication, the lookup tables, their columns and types."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from kanon_db.catalog.entries import Publication, find_publication, published_schema
from kanon_db.counting.check import Query, Scope, check
from kanon_db.counting.expressions import Category, Column, Constant, Matched, Type
from kanon_db.counting.layout import BucketLayout, Cell, CellLayout, Lookup
from kanon_db.counting.parse import parse_query
from kanon_db.counting.query import LookupText, QueryText, RelationText
from kanon_db.counting.refusals import refusal
from kanon_db.errors import DatabaseError, NotFoundError, PermissionDeniedError
from kanon_db.publications.buckets.tables import BucketTables
from kanon_db.session.protocol import Row, Session, Value, fetch_one
from kanon_db.session.server_errors import (
    DATA_EXCEPTION_CLASS,
    INSUFFICIENT_PRIVILEGE,
    UNDEFINED_FUNCTION,
    withheld,
)
from kanon_db.transfer.columns import ColumnType, column_types

CATEGORIES: Final[dict[str, Category]] = {
    "smallint": "integer",
    "integer": "integer",
    "bigint": "integer",
    "numeric": "numeric",
    "real": "float",
    "double precision": "float",
    "text": "text",
    "character varying": "text",
    "bpchar": "text",
    "boolean": "boolean",
    "date": "moment",
    "timestamp without time zone": "moment",
    "timestamp with time zone": "moment",
}

_MOST_LOOKUPS: Final = 8

_ORIGINAL_TYPES: Final = {
    "int4range": "integer",
    "int8range": "bigint",
    "numrange": "numeric",
    "daterange": "date",
    "tsrange": "timestamp without time zone",
    "tstzrange": "timestamp with time zone",
    "text[]": "text",
}
"""Of what a range or a set of texts holds."""

_LOOKUP = """
SELECT c.oid::text AS oid, c.relkind::text AS kind
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1::text AND c.relname = $2::text
  AND has_schema_privilege(n.oid, 'USAGE')
  AND (has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT'))
"""


@dataclass(frozen=True)
class OpenQuery:
    """A query with all that its names mean; `tables` are those of a bucketization."""

    session: Session
    text: QueryText
    query: Query
    publication: Publication
    layout: BucketLayout | CellLayout
    lookups: tuple[Lookup, ...]
    tables: BucketTables | None = None

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run a statement of this query, saying in words of ours what its data make fail.

        Raises
        ------
        UnsupportedQueryError
            When its arithmetic fails on a value, or an operator does not exist for its types.
        DatabaseError
            For anything else; without the server's words where a lookup table takes part: its
            owner decides what its policies say.
        """
        try:
            return self.session.fetch(statement, *values)
        except DatabaseError as error:
            if error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
                failed = refusal(
                    "the query's arithmetic fails on some value",
                    hint="leave such values out by CASE or another condition",
                )
                failed.detail = f"SQLSTATE {error.sqlstate}, as for a division by zero"
                raise failed from None
            if error.sqlstate == UNDEFINED_FUNCTION:
                raise refusal(
                    "the query compares values of types that do not compare",
                    hint="compare values of the same kind",
                ) from None
            if self.lookups:
                raise withheld(error.sqlstate) from None
            raise


def open_query(session: Session, query: str) -> OpenQuery:
    """Read a query, find what it names, and check it.

    Raises
    ------
    UnsupportedQueryError
        With the reason, and what is allowed.
    NotFoundError
        When there is no such publication or lookup table, or the role may not read it.
    """
    schema = published_schema(session)
    text = parse_query(query, schema)
    publication = find_publication(session, text.publication.name)
    tables = None
    layout: BucketLayout | CellLayout
    if publication.kind == "buckets":
        tables = BucketTables.of(session, schema, publication.name, publication.layout)
        layout = _bucket_layout(session, tables, publication.layout["sensitive"])
    else:
        layout = _cell_layout(session, schema, publication)
    scopes = [Scope(text.publication, layout.columns)]
    lookups: list[Lookup] = []
    matches: list[Matched] = []
    if len(text.lookups) > _MOST_LOOKUPS:
        raise refusal(f"more than {_MOST_LOOKUPS} lookup tables are not supported")
    names = {_name(text.publication)}
    for written in text.lookups:
        if _name(written.relation) in names:
            raise refusal(
                "two relations have the same name", hint="give each a name of its own with AS"
            )
        names.add(_name(written.relation))
        lookup, scope = _lookup(session, written, len(lookups), schema, scopes[0])
        lookups.append(lookup)
        scopes.append(scope)
        if not written.is_outer:
            matches.append(Matched(lookup.key))
    checked = check(text, scopes, matches)
    _check_constants(session, checked)
    found = OpenQuery(session, text, checked, publication, layout, tuple(lookups), tables)
    for lookup in lookups:
        _require_unique(found, lookup)
    return found


def _name(relation: RelationText) -> str:
    return relation.alias or relation.name


def make_type(session: Session, column: ColumnType) -> Type:
    """Describe a column's type for the estimator."""
    schema = column.operator_schema
    return Type(
        column.type_name,
        CATEGORIES.get(column.type_name, "other"),
        None if schema is None else session.identifier(schema),
        column.has_constant_input,
    )


def _column(session: Session, column: ColumnType) -> Column:
    return Column(column.name, session.identifier(column.name), make_type(session, column))


def _bucket_layout(session: Session, tables: BucketTables, sensitive: str) -> BucketLayout:
    oids = fetch_one(
        session,
        "SELECT to_regclass($1::text)::oid::text AS qit, to_regclass($2::text)::oid::text AS sat",
        tables.qit,
        tables.sat,
    )
    qit = column_types(session, oids["qit"])
    return BucketLayout(
        quasi_identifiers={
            name: _column(session, column)
            for name, column in qit.items()
            if session.identifier(name) in tables.quasi_identifiers
        },
        sensitive=_column(session, column_types(session, oids["sat"])[sensitive]),
        qit=tables.qit,
        sat=tables.sat,
        bucket_id=tables.bucket_id,
        count=tables.count,
        size=tables.size("bucket_id"),
        n_records=sum(
            size * n for size, n in zip(tables.sizes, tables.buckets_of_sizes, strict=True)
        ),
        n_buckets=tables.n_buckets,
    )


def _cell_layout(session: Session, schema: str, publication: Publication) -> CellLayout:
    relation = session.identifier(schema, publication.name)
    row = fetch_one(session, "SELECT to_regclass($1::text)::oid::text AS oid", relation)
    types = column_types(session, row["oid"])
    described: dict[str, Any] = dict(publication.layout)
    pattern = described.get("pattern")
    cells: dict[str, Cell] = {}
    for position, written in enumerate(described["quasi_identifiers"], start=1):
        column = _column(session, types[written["name"]])
        if written["cell"] != "value":
            original = _ORIGINAL_TYPES.get(column.type.name)
            if original is None:
                raise NotFoundError(
                    "a published column holds no cells that can be read",
                    detail=f'column "{column.name}" of {publication.name}, type {column.type.name}',
                    hint="publish the source again",
                )
            category = CATEGORIES[original]
            column = replace(column, type=Type(original, category, None, category != "moment"))
        cells[column.name] = Cell(
            column,
            written["cell"],
            is_discrete=column.type.name in ("integer", "bigint", "date"),
            mark=None if pattern is None else position,
        )
    for name in described["others"]:
        cells[name] = Cell(_column(session, types[name]), "value")
    return CellLayout(cells, relation, None if pattern is None else session.identifier(pattern))


def _lookup(
    session: Session, written: LookupText, number: int, published: str, publication: Scope
) -> tuple[Lookup, Scope]:
    """Find a lookup table that the role may read, with its columns of ordinary types.

    Raises
    ------
    NotFoundError
        When there is none, or the role may not read it: the two look the same.
    """
    relation = written.relation
    schema = relation.schema or ""
    if schema in (published, "kanon", "information_schema") or schema.startswith("pg_"):
        raise refusal(
            "a relation of this schema is no lookup table",
            hint="join a table of yours that describes values, like regions by zip code",
        )
    rows = session.fetch(_LOOKUP, schema, relation.name)
    if not rows:
        raise NotFoundError(
            "there is no such lookup table, or it is not yours to read",
            detail=f'name "{relation.name}" in schema "{schema}"',
            hint="name a table that you may SELECT from, with its schema",
        )
    if rows[0]["kind"] not in ("r", "p", "m"):
        raise refusal(
            "only a table or a materialized view can be a lookup table",
            hint="make a table of what the view shows",
        )
    columns = {
        name: Column(name, session.identifier(name), make_type(session, column), number)
        for name, column in column_types(session, rows[0]["oid"]).items()
        if column.type_name in CATEGORIES
    }
    own, key = _join_columns(written, publication, columns)
    via = {name: replace(column, via=own.name) for name, column in columns.items()}
    lookup = Lookup(session.identifier(schema, relation.name), via[key.name], own)
    return lookup, Scope(relation, via, hidden=key.name if written.is_using else None)


def _join_columns(
    written: LookupText, publication: Scope, columns: dict[str, Column]
) -> tuple[Column, Column]:
    """Tell the publication's join column from the lookup table's."""

    def find(parts: tuple[str, ...], relation: RelationText, known: Any) -> Column | None:
        *qualifier, name = parts
        if qualifier and not relation.answers_to(tuple(qualifier)):
            return None
        found = known.get(name)
        return found if isinstance(found, Column) else None

    left, right = written.left.parts, written.right.parts
    pairs = [
        (own, key)
        for one, other in ((left, right), (right, left))
        if (own := find(one, publication.relation, publication.columns)) is not None
        and (key := find(other, written.relation, columns)) is not None
    ]
    if not pairs or (len(pairs) > 1 and left != right):
        raise refusal(
            "the join does not compare a column of the publication with one of the lookup table",
            hint="write ON <publication>.<column> = <lookup table>.<column>; the lookup table's"
            " column has an ordinary type",
        )
    own, key = pairs[0]
    is_whole = own.type.category in ("integer", "numeric")
    if not (
        own.type.name == key.type.name
        or (is_whole and key.type.category in ("integer", "numeric"))
        or ({own.type.name, key.type.name} <= {"text", "character varying"})
    ):
        error = refusal(
            f"a column of type {own.type.name} is not joined with one of type {key.type.name}",
            hint="give the lookup table's column the type of the publication's",
        )
        error.detail = f'columns "{own.name}" and "{key.name}"'
        raise error
    return own, key


def _require_unique(query: OpenQuery, lookup: Lookup) -> None:
    """Refuse a lookup table that would repeat records."""
    rows = query.fetch(
        f"SELECT EXISTS (SELECT FROM {lookup.relation} AS l WHERE l.{lookup.key.sql} IS NOT NULL"
        f" GROUP BY l.{lookup.key.sql} HAVING count(*) > 1) AS repeats"
    )
    if rows[0]["repeats"]:
        error = refusal(
            "the lookup table has several rows for one value of its join column",
            hint="join a table that has each value once",
        )
        error.detail = f'column "{lookup.key.name}"'
        raise error


@contextmanager
def _unread(type_name: str) -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        if error.sqlstate == INSUFFICIENT_PRIVILEGE:
            raise PermissionDeniedError(
                "the role may not use a column's type",
                detail=f"type {type_name}",
                hint="the type's owner can GRANT USAGE ON its SCHEMA to kanon_analyst",
            ) from None
        if not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
            raise
        raise refusal(
            f"a constant does not read as {type_name}",
            hint="write it as PostgreSQL prints values of this type",
        ) from None


def _check_constants(session: Session, query: Query) -> None:
    """Make sure that every constant reads as its type; the server's complaint would quote it."""
    by_type: dict[str, list[str]] = {}
    for constant in query.constants:
        if constant.text is not None and not _reads_for_certain(constant):
            by_type.setdefault(constant.type.name, []).append(constant.text)
    for type_name, texts in sorted(by_type.items()):
        with _unread(type_name), session.savepoint():
            session.fetch(f"SELECT count(c::{type_name}) FROM unnest($1::text[]) AS c", texts)


def _reads_for_certain(constant: Constant) -> bool:
    text, type_name = constant.text or "", constant.type.name
    if type_name == "text":
        return True
    if type_name in ("integer", "bigint", "numeric"):
        return text.lstrip("-").isdecimal() and len(text) < 10 and text.isascii()
    return type_name == "boolean" and text in ("true", "false")
