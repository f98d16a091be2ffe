"""Answers queries from the files of a publication, with the errors and bounds of PostgreSQL.

Queries are read, checked and written as in PostgreSQL, and run by Spark; of rows, Spark counts
types of records, and the answer is calculated from these on the driver.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from kanon_db.answers import VALUES
from kanon_db.answers.estimates import AnswerRow, QueryAnswer, counts, one_count, open_settled
from kanon_db.answers.rewrite import rewritten
from kanon_db.answers.scope import (
    Limits,
    OpenQuery,
    check_query,
    read_query,
    require_kept_cells,
)
from kanon_db.catalog.entries import Publication
from kanon_db.catalog.published_types import Estimator, PublishedTypes
from kanon_db.declaration import unknown
from kanon_db.errors import NotFoundError
from kanon_db.figures import FIGURES
from kanon_db.publications.registry import kind_named
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Query, QueryText, refusal
from kanon_db.query.formulas import Estimated
from kanon_db.query.layout import (
    QIT,
    SAT,
    BucketLayout,
    BucketTables,
    CellLayout,
    is_drawn_from_all,
)
from kanon_db.spark._bucket_store import SparkBucketQuery
from kanon_db.spark._row_store import (
    SparkRowQuery,
    add_value_shares,
    cell_layout,
    keep_value_shares,
    rows_of,
    without_order,
)
from kanon_db.spark._spark_kind import PublishedFolder
from kanon_db.spark._spark_query import IN_POSTGRESQL, SparkQuery
from kanon_db.spark._tables import SCHEMA, TableSession, column_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def row_query(query: SparkQuery, layout: CellLayout, release: str) -> SparkRowQuery:
    """Find what else the answer to a query of rows needs.

    Raises UnsupportedQueryError if nothing is known of a column.
    """
    session, publication = query.session, query.publication
    if not isinstance(session, TableSession):
        raise TypeError("these are no files")
    rows = rows_of(session.tables, publication)
    names = sorted({n for part in query.query.evaluated for n in ex.attributes(part)})
    layout, shares = add_value_shares(
        layout, rows, publication, names, partial(keep_value_shares, release)
    )
    given = {one.name: getattr(query, one.name) for one in fields(query)}
    given["layout"] = layout
    opened = SparkRowQuery(**given, rows=rows, shares=shares)
    require_kept_cells(opened)
    return opened


# Answering queries from files: read, checked and written as in PostgreSQL, run by Spark.
#
# Buckets become codes where their rows are (`_bucket_store`), and are counted there by the code
# that counts in PostgreSQL. Rows are counted by their cells; see `row_query`.


_MEMORY: Final = 200 << 20
"""What an answer may take on the driver, as in PostgreSQL."""

_T = TypeVar("_T")


def estimate_count(session: SparkSession, target: str, query: str, **given: Any) -> Estimated:
    """Answer a COUNT query without groups."""
    return _ask(session, target, query, one_count, **given)


def estimate_counts(
    session: SparkSession, target: str, query: str, **given: Any
) -> list[AnswerRow]:
    """Answer a COUNT query with GROUP BY."""
    return _ask(session, target, query, counts, **given)


def estimate(session: SparkSession, target: str, query: str, **given: Any) -> list[AnswerRow]:
    """Answer a query with any aggregates."""
    return _ask(session, target, query, _rows, **given)


def rewrite_count(session: SparkSession, target: str, query: str, **given: Any) -> str:
    """Return the paper's estimate of a query as one statement of Spark."""
    return _ask(
        session, target, query, lambda one: rewritten(one, "spark"), estimator="paper", **given
    )


def _rows(query: OpenQuery) -> list[AnswerRow]:
    return QueryAnswer.told(query).rows


def _ask(
    session: SparkSession,
    target: str,
    query: str,
    answered: Callable[[OpenQuery], _T],
    *,
    estimator: str = "published",
    on_warning: Callable[[str], None] | None = None,
    figures: str | Mapping[str, Any] | None = None,
    params: str | Mapping[str, Any] | Sequence[Any] | None = None,
) -> _T:
    if estimator not in get_args(Estimator):
        raise unknown("estimator", estimator, get_args(Estimator))
    published = PublishedFolder.of(session, target)
    publication = published.publication
    values = None if params is None else VALUES.read(params, "params")
    text = read_query(query, SCHEMA, lambda: None, values=values)
    names = {one.publication.name for one in (text, *text.questions)}
    if names != {publication.name}:
        raise NotFoundError(
            "the query asks another publication",
            detail=f'"{min(names - {publication.name})}", and not "{publication.name}" in'
            f" {published.folder}",
        )
    if any(one.lookups for one in (text, *text.questions)):
        raise refusal("lookup tables are joined in PostgreSQL only", hint=IN_POSTGRESQL)
    published.require_files()
    shape = kind_named(publication.kind).shape
    if shape not in ("buckets", "rows"):
        raise refusal(
            "publications of this kind answer no counts on Spark",
            detail=f"kind {publication.kind}",
            hint=IN_POSTGRESQL,
        )
    is_paper = estimator == "paper"
    with published.open() as tables:
        reading = TableSession(tables, on_warning=on_warning)
        if shape == "rows":
            layout: BucketLayout | CellLayout = cell_layout(reading, publication, is_paper=is_paper)
        else:
            layout = _bucket_layout(reading, publication, is_paper=is_paper)

        def open_text(one: QueryText) -> OpenQuery:
            checked, _ = check_query(one, layout, [])
            _require_same_query(checked)
            of_kind = SparkBucketQuery if shape == "buckets" else SparkQuery
            rule = FIGURES.read(figures or {}, "figures")
            opened = of_kind(
                reading, one, checked, publication, layout, (), Limits(_MEMORY), SCHEMA,
                asked_figures=rule,
            )  # fmt: skip
            _require_dates_as_keys(opened)
            if isinstance(layout, CellLayout):
                return row_query(opened, layout, published.release.path)
            return opened

        return answered(open_settled(text, open_text))


def _require_same_query(query: Query) -> None:
    """Refuse a query of which Spark would calculate some part in another way."""
    calculated = [part for formula in query.formulas for part in ex.walk(formula.expression)]
    totals = [part for part in calculated if isinstance(part, ex.WindowTotal)]
    for part in (*query.evaluated, *query.selected, *totals):
        _require_same_meaning(part)


def _bucket_layout(
    reading: TableSession, publication: Publication, *, is_paper: bool
) -> BucketLayout:
    """Describe QIT and SAT by what the manifest says and the files have."""
    described = publication.layout
    tables = BucketTables.of(reading, SCHEMA, publication.name, described)
    types = PublishedTypes(reading, publication)
    columns = {
        field.name: types.column(column_type(field.name, field.dataType))
        for suffix in (QIT, SAT)
        for field in reading.tables.frames[publication.name + suffix].schema.fields
        if field.name != described.get("weights")
    }
    columns = {name: without_order(column) for name, column in columns.items()}
    return BucketLayout(
        tables,
        {name: columns[name] for name in described["quasi_identifiers"]},
        {name: columns[name] for name in tables.sensitive},
        described.get("strengths", {}),
        is_drawn_from_all(described, publication.parameters),
        is_paper,
    )


_SAME: Final = (
    ex.Column, ex.Constant, ex.Negative, ex.Case, ex.Coalesce, ex.NullIf, ex.Aggregate,
    ex.Comparison, ex.Distinct, ex.Membership, ex.Range, ex.NullTest, ex.TruthTest, ex.And, ex.Or,
    ex.Not, ex.Pattern, ex.Arithmetic, ex.DatePart, ex.Cast,
)  # fmt: skip
_FIELDS: Final = ("year", "month", "day", "quarter")
_EXACT_TYPES: Final = ("integer", "bigint", "double precision", "date")
_CONSTANTS: Final = {
    "date": r"\d{4}-\d\d-\d\d",
    "timestamp without time zone": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?",
    "timestamp with time zone": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?[+]00",
    "numeric": r"-?\d{1,20}(\.\d{1,18})?",
    **dict.fromkeys(("smallint", "integer", "bigint"), r"-?\d{1,19}"),
    **dict.fromkeys(("real", "double precision"), r"-?\d+(\.\d+)?([eE][+-]?\d{1,3})?"),
    "boolean": "true|false",
    "text": "(?s).*",
}
"""How constants are written that both read in the same way, by type."""


def _require_same_meaning(expression: ex.Expression | None) -> None:
    """Refuse what Spark would calculate in another way than PostgreSQL.

    Raises UnsupportedQueryError.
    """
    for part in ex.walk(expression):
        if not isinstance(part, _SAME) or not _means_the_same(part):
            raise refusal(
                "a part of the query means something else on Spark, or is not known there",
                hint=IN_POSTGRESQL,
                detail=type(part).__name__,
            )


def _means_the_same(part: ex.Expression) -> bool:
    match part:
        case ex.Constant(text, type_):
            shape = _CONSTANTS.get(type_.name)
            return text is None or (shape is not None and re.fullmatch(shape, text) is not None)
        case ex.Column():
            return part.type.name in _CONSTANTS and part.lookup is None
        case ex.Arithmetic(operator, left, right):
            own = _calculated_columns(part)
            inexact = any(
                isinstance(inner, ex.Cast) and inner.to == "double precision"
                for side in (left, right)
                for inner in ex.walk(side)
            )
            are_numbers = all(column.type.category in ex.NUMBERS for column in own)
            # Whole numbers have a whole quotient in PostgreSQL.
            return are_numbers and (operator in ("+", "-", "*") or (operator == "/" and inexact))
        case ex.DatePart(function, field, _):
            return function == "extract" and field.lower() in _FIELDS
        case ex.Cast(_, to):
            return to in _EXACT_TYPES
        case ex.Pattern(escape=escape):
            return escape is None and not part.is_regular
        case _:
            return True


def _calculated_columns(expression: ex.Expression) -> list[ex.Column]:
    """Return the columns whose values enter a calculation; CASE's conditions may be on others."""
    columns, pending = [], [expression]
    while pending:
        match pending.pop():
            case ex.Column() as column:
                columns.append(column)
            case ex.Case(branches, default):
                pending += [result for _, result in branches]
                pending += [] if default is None else [default]
            case inner:
                pending += inner.children
    return columns


def _require_dates_as_keys(query: OpenQuery) -> None:
    """Refuse groups of points in time, which JSON has in several spellings."""
    for key in query.query.keys:
        if any(column.type.name.startswith("timestamp") for column in ex.columns(key.expression)):
            raise refusal("GROUP BY accepts no points in time on Spark", hint=IN_POSTGRESQL)
