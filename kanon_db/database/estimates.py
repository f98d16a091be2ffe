"""Answering count queries from published tables, with the caller's own rights."""

from __future__ import annotations

from typing import Final

from kanon_db.counting.bitmaps import Counted, Truth, count_buckets, count_exactly, evaluate
from kanon_db.counting.check import CountQuery, check
from kanon_db.counting.layout import BucketLayout, Category, Column
from kanon_db.counting.parse import parse_count
from kanon_db.counting.predicate import Condition, Predicate, conditions, literals
from kanon_db.counting.refusals import refusal
from kanon_db.counting.rewrite import condition_statement, rewrite, sent_type
from kanon_db.database.bitmaps import read_truth
from kanon_db.database.bucket_tables import BucketTables
from kanon_db.database.catalog import find_publication, published_schema
from kanon_db.database.columns import ColumnType, column_types
from kanon_db.database.server_errors import DATA_EXCEPTION_CLASS, INSUFFICIENT_PRIVILEGE
from kanon_db.database.session import Session, fetch_one
from kanon_db.errors import DatabaseError, PermissionDeniedError

_CATEGORIES: Final[dict[str, Category]] = {
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


def estimate_count(session: Session, query: str) -> Counted:
    """Answer a COUNT query from a publication.

    Returns
    -------
    Counted

    Raises
    ------
    UnsupportedQueryError
        With the reason, and what is allowed.
    NotFoundError
        When there is no such publication, or the role may not read it.

    Notes
    -----
    Counts with bitmaps where every attribute of the query has them: some milliseconds for a
    million records, where joining QIT and SAT takes some hundred. Both give the same numbers.
    """
    checked, tables, layout = _read(session, query)
    mentioned = {
        condition.column
        for predicate in (checked.quasi_identifiers, checked.sensitive)
        if predicate is not None
        for condition in conditions(predicate)
    }
    if mentioned <= set(tables.with_bitmaps):
        return _count_bitmaps(session, checked, tables, layout)
    statement = rewrite(checked, layout)
    values = [list(statement.values)] if statement.values else []
    return Counted(**fetch_one(session, statement.text, *values))


def rewrite_count(session: Session, query: str) -> str:
    """Return one statement over QIT and SAT that answers a query, constants included.

    Raises
    ------
    UnsupportedQueryError, NotFoundError
        As :func:`estimate_count`.
    """
    checked, _, layout = _read(session, query)
    return rewrite(checked, layout, session.literal).text


def _read(session: Session, query: str) -> tuple[CountQuery, BucketTables, BucketLayout]:
    schema = published_schema(session)
    parsed = parse_count(query, schema)
    publication = find_publication(session, parsed.relation)
    tables = BucketTables.of(session, schema, publication.name, publication.layout)
    layout = _layout(session, tables, publication.layout["sensitive"])
    checked = check(parsed.predicate, layout)
    for predicate in (checked.quasi_identifiers, checked.sensitive):
        if predicate is not None:
            _check_constants(session, predicate, layout)
    return checked, tables, layout


def _count_bitmaps(
    session: Session, query: CountQuery, tables: BucketTables, layout: BucketLayout
) -> Counted:
    columns = {**layout.quasi_identifiers, layout.sensitive.name: layout.sensitive}

    def read(condition: Condition) -> Truth:
        column = columns[condition.column]
        statement = condition_statement(condition, column, "b")
        return read_truth(session, tables, column.name, statement.text, statement.values)

    n_buckets = tables.buckets_of_sizes
    n_records = sum(size * n for size, n in zip(tables.sizes, n_buckets, strict=True))
    everything = (1 << n_records) - 1
    if query.sensitive is None:
        return count_exactly(evaluate(query.quasi_identifiers, read, everything).true)
    values = evaluate(query.sensitive, read, everything).true
    if query.quasi_identifiers is None:
        return count_exactly(values)
    records = evaluate(query.quasi_identifiers, read, everything).true
    return count_buckets(records, values, tables.sizes, n_buckets)


def _layout(session: Session, tables: BucketTables, sensitive: str) -> BucketLayout:
    oids = fetch_one(
        session,
        "SELECT to_regclass($1::text)::oid::text AS qit, to_regclass($2::text)::oid::text AS sat",
        tables.qit,
        tables.sat,
    )
    qit = column_types(session, oids["qit"])
    quasi_identifiers = {
        name: _column(session, column)
        for name, column in qit.items()
        if session.identifier(name) in tables.quasi_identifiers
    }
    return BucketLayout(
        quasi_identifiers=quasi_identifiers,
        sensitive=_column(session, column_types(session, oids["sat"])[sensitive]),
        qit=tables.qit,
        sat=tables.sat,
        bucket_id=tables.bucket_id,
        count=tables.count,
        size=tables.size("bucket_id"),
    )


def _column(session: Session, column: ColumnType) -> Column:
    schema = column.operator_schema
    return Column(
        name=column.name,
        sql=session.identifier(column.name),
        type_name=column.type_name,
        category=_CATEGORIES.get(column.type_name, "other"),
        operator_schema=None if schema is None else session.identifier(schema),
        has_constant_input=column.has_constant_input,
    )


def _check_constants(session: Session, predicate: Predicate, layout: BucketLayout) -> None:
    """Make sure that every quoted constant reads as its column's type.

    The server's own complaint would come later, and quote the constant.
    """
    columns = {**layout.quasi_identifiers, layout.sensitive.name: layout.sensitive}
    for condition in conditions(predicate):
        column = columns[condition.column]
        by_type: dict[str, list[str]] = {}
        for literal in literals(condition):
            by_type.setdefault(sent_type(column, literal)[0], []).append(literal.text)
        for type_name in by_type.keys() - {"text", "bool", "int8"}:  # these read for certain
            try:
                with session.savepoint():
                    session.fetch(
                        f"SELECT count(c::{type_name}) FROM unnest($1::text[]) AS c",
                        by_type[type_name],
                    )
            except DatabaseError as error:
                if error.sqlstate == INSUFFICIENT_PRIVILEGE:
                    raise PermissionDeniedError(
                        "the role may not use a column's type",
                        detail=f'column "{column.name}" of type {type_name}',
                        hint="the type's owner can GRANT USAGE ON its SCHEMA to kanon_analyst",
                    ) from None
                if not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
                    raise
                raise refusal(
                    f'a constant compared with column "{column.name}" does not read as {type_name}',
                    hint="write it as PostgreSQL prints values of this type",
                ) from None
