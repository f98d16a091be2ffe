"""Answering queries from files: read, checked and written as in PostgreSQL, run by Spark.

What is asked of QIT and SAT is the very statement that PostgreSQL runs, translated; what follows
from its numbers is calculated by the same code. There are no bitmaps here, which give the same
numbers faster. Rows are counted by their cells; see `kanon_db.spark.answering`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from kanon_db.answers.estimates import AnswerRow, QueryAnswer, counts, one_count
from kanon_db.answers.rewrite import rewritten
from kanon_db.answers.scope import (
    ASSIGNMENTS,
    Estimator,
    Limits,
    OpenQuery,
    PublishedTypes,
    checked_query,
    read_query,
)
from kanon_db.catalog.entries import Publication, changed
from kanon_db.declaration import unknown
from kanon_db.errors import NotFoundError
from kanon_db.publications.registry import kind_named
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import refusal
from kanon_db.query.formulas import MOST_CORRECTED, Estimated
from kanon_db.query.layout import QIT, SAT, BucketLayout, BucketTables, CellLayout
from kanon_db.spark.answering.rows import cell_layout, row_query, unordered
from kanon_db.spark.environment import own_session, require_spark
from kanon_db.spark.examination import check_files
from kanon_db.spark.files import Folder
from kanon_db.spark.manifest import Manifest
from kanon_db.spark.query import IN_POSTGRESQL, SparkQuery
from kanon_db.spark.reading import TableSession
from kanon_db.spark.source import column_type
from kanon_db.spark.tables import SCHEMA, opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MEMORY: Final = 200 << 20
"""What an answer may take on the driver, as in PostgreSQL."""

_T = TypeVar("_T")


def estimate_count(session: SparkSession, target: str, query: str, **given: Any) -> Estimated:
    """Answer a COUNT query without groups."""
    return _asked(session, target, query, one_count, **given)


def estimate_counts(
    session: SparkSession, target: str, query: str, **given: Any
) -> list[AnswerRow]:
    """Answer a COUNT query with GROUP BY."""
    return _asked(session, target, query, counts, **given)


def estimate(session: SparkSession, target: str, query: str, **given: Any) -> list[AnswerRow]:
    """Answer a query with any aggregates."""
    return _asked(session, target, query, _rows, **given)


def rewrite_count(session: SparkSession, target: str, query: str) -> str:
    """Return the paper's estimate of a query as one statement of Spark."""
    return _asked(session, target, query, lambda one: rewritten(one, "spark"), estimator="paper")


def _rows(query: OpenQuery) -> list[AnswerRow]:
    return QueryAnswer.of(query).rows


def _asked(
    session: SparkSession,
    target: str,
    query: str,
    answered: Callable[[OpenQuery], _T],
    *,
    estimator: str = "published",
    on_warning: Callable[[str], None] | None = None,
) -> _T:
    require_spark()
    if estimator not in get_args(Estimator):
        raise unknown("estimator", estimator, get_args(Estimator))
    own = own_session(session)
    folder = Folder(own, str(target))
    manifest = Manifest.of(folder)
    text = read_query(query, SCHEMA, lambda: None)
    publication = manifest.publication
    if text.publication.name != publication.name:
        raise NotFoundError(
            "the query asks another publication",
            detail=f'"{text.publication.name}", and not "{publication.name}" in {folder}',
        )
    if text.lookups:
        raise refusal("lookup tables are joined in PostgreSQL only", hint=IN_POSTGRESQL)
    if not check_files(folder / manifest.release, manifest).holds:
        raise changed(publication)
    shape = kind_named(publication.kind).shape
    if shape not in ("buckets", "rows"):
        raise refusal(
            "publications of this kind answer no counts on Spark",
            detail=f"kind {publication.kind}",
            hint=IN_POSTGRESQL,
        )
    is_paper = estimator == "paper"
    with opened(own, folder, manifest) as tables:
        reading = TableSession(tables, on_warning=on_warning)
        if shape == "rows":
            layout: BucketLayout | CellLayout = cell_layout(reading, publication, is_paper=is_paper)
        else:
            layout = _bucket_layout(reading, publication, is_paper=is_paper)
        checked, _ = checked_query(text, layout, [])
        for part in (*checked.evaluated, *checked.selected):
            _require_same_meaning(part)
        asked = SparkQuery(reading, text, checked, publication, layout, (), Limits(_MEMORY))
        _require_dates_as_keys(asked)
        if isinstance(layout, CellLayout):
            asked = row_query(asked, layout, (folder / manifest.release).path)
        return answered(asked)


def _bucket_layout(
    reading: TableSession, publication: Publication, *, is_paper: bool
) -> BucketLayout:
    """Describe QIT and SAT by what the manifest says and the files have."""
    described = publication.layout
    tables = BucketTables.of(reading, SCHEMA, publication.name, {**described, "with_bitmaps": []})
    types = PublishedTypes(reading, publication)
    columns = {
        field.name: types.column(column_type(field.name, field.dataType))
        for suffix in (QIT, SAT)
        for field in reading.tables.frames[publication.name + suffix].schema.fields
    }
    columns = {name: unordered(column) for name, column in columns.items()}
    n_directions = 0 if tables.spectrum is None else len(tables.spectrum.eigenvalues)
    return BucketLayout(
        tables,
        {name: columns[name] for name in described["quasi_identifiers"]},
        columns[described["sensitive"]],
        ASSIGNMENTS.get(described.get("assignment"), "random"),
        is_paper or n_directions >= MOST_CORRECTED,
    )


# -- what means the same in both --------------------------------------------------------------

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

    Raises
    ------
    UnsupportedQueryError
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
            own = [inner for side in (left, right) for inner in ex.columns(side)]
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
        case ex.Pattern(_, _, escape, _, _):
            return escape is None
        case _:
            return True


def _require_dates_as_keys(query: OpenQuery) -> None:
    """Refuse groups of points in time, which JSON has in several spellings."""
    for key in query.query.keys:
        if any(column.type.name.startswith("timestamp") for column in ex.columns(key.expression)):
            raise refusal("GROUP BY accepts no points in time on Spark", hint=IN_POSTGRESQL)
