"""Answering count queries from published tables, with the caller's own rights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kanon_db.counting.check import CountQuery, check
from kanon_db.counting.layout import BucketLayout, Category, Column
from kanon_db.counting.parse import parse_count
from kanon_db.counting.predicate import Predicate, conditions, literals
from kanon_db.counting.refusals import refusal
from kanon_db.counting.rewrite import Statement, join_statement, rewrite, sent_type
from kanon_db.database.bucket_tables import BucketTables
from kanon_db.database.catalog import find_publication, published_schema
from kanon_db.database.columns import ColumnType, column_types
from kanon_db.database.session import Row, Session, fetch_one
from kanon_db.errors import DatabaseError

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
_DATA_EXCEPTION: Final = "22"


@dataclass(frozen=True)
class CountPlan:
    """A statement ready to run.

    Attributes
    ----------
    statement : Statement
    matches : bytes or None
        ``$2`` of the statement, if it has one: how many sensitive values match in each bucket.
    """

    statement: Statement
    matches: bytes | None


def estimate_count(session: Session, query: str) -> Row:
    """Answer a COUNT query from a publication.

    Returns
    -------
    mapping
        ``estimate``, ``std_error``, ``lower_bound``, ``upper_bound``; see docs/estimation.md.

    Raises
    ------
    UnsupportedQueryError
        With the reason, and what is allowed.
    NotFoundError
        When there is no such publication, or the role may not read it.
    """
    plan = plan_count(session, query)
    bound: list[Any] = [list(plan.statement.values)] if plan.statement.values else []
    if plan.matches is not None:
        bound.append(plan.matches)
    return fetch_one(session, plan.statement.text, *bound)


def plan_count(session: Session, query: str) -> CountPlan:
    """Read, check and rewrite a query; see :func:`estimate_count`."""
    checked, layout, n_buckets = _read(session, query)
    statements = rewrite(checked, layout)
    if statements.vectors is None:
        return CountPlan(statements.answer, None)
    vectors = session.fetch(statements.vectors.text, list(statements.vectors.values))
    # Bucket by bucket, the counts of distinct values add up to at most the bucket's size, which
    # one count can hold: no carry crosses from one to the next, and the vectors add as numbers.
    total = sum(int.from_bytes(row["counts"], "big") for row in vectors)
    return CountPlan(statements.answer, total.to_bytes((n_buckets + 1) * layout.count_width, "big"))


def rewrite_count(session: Session, query: str) -> str:
    """Return one statement over QIT and SAT that answers a query, constants included.

    Raises
    ------
    UnsupportedQueryError, NotFoundError
        As :func:`estimate_count`.
    """
    checked, layout, _ = _read(session, query)
    return join_statement(checked, layout, session.literal).text


def _read(session: Session, query: str) -> tuple[CountQuery, BucketLayout, int]:
    schema = published_schema(session)
    parsed = parse_count(query, schema)
    publication = find_publication(session, parsed.relation)
    tables = BucketTables.of(session, schema, publication.name, publication.layout)
    layout = _layout(session, tables, publication.layout["sensitive"])
    checked = check(parsed.predicate, layout)
    for predicate in (checked.quasi_identifiers, checked.sensitive):
        if predicate is not None:
            _check_constants(session, predicate, layout)
    return checked, layout, tables.n_buckets


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
        vec=tables.vec if tables.count_width else None,
        bucket_id=tables.bucket_id,
        count=tables.count,
        counts=tables.counts,
        count_width=tables.count_width,
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
        for literal in literals(condition):
            type_name, _ = sent_type(column, literal)
            if type_name in ("text", "bool", "int8"):
                continue  # reads for certain
            try:
                with session.savepoint():
                    session.fetch(f"SELECT num_nulls($1::text::{type_name})", literal.text)
            except DatabaseError as error:
                if not error.sqlstate.startswith(_DATA_EXCEPTION):
                    raise
                raise refusal(
                    f'a constant compared with column "{column.name}" does not read as {type_name}',
                    hint="write it as PostgreSQL prints values of this type",
                ) from None
