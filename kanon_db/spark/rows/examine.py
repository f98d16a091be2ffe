"""Counting the classes of published rows, from all of their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kanon_db.catalog.entries import Publication
from kanon_db.publications.results import Check
from kanon_db.publications.rows.distinct_cells import ClassSizes
from kanon_db.query.layout import RowView
from kanon_db.spark.tables import SCHEMA, Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def view_of(tables: Tables, publication: Publication) -> RowView:
    """Return the names of a publication of rows."""
    return RowView.of(tables, SCHEMA, publication.name, publication.layout)


def rows_of(tables: Tables, publication: Publication) -> DataFrame:
    """Return the published rows."""
    return tables.frames[publication.name]


def check_columns(rows: DataFrame, publication: Publication) -> Check:
    """Check that the rows have the published columns."""
    columns = list(publication.layout["columns"])
    differing = len(set(columns).symmetric_difference(rows.columns))
    return Check(
        "the rows have the published columns, and no identifier",
        f"{len(columns)} columns, 0 differ",
        f"{len(rows.columns)} columns, {differing} differ",
        holds=columns == rows.columns,
    )


def class_sizes(tables: Tables, view: RowView) -> ClassSizes:
    """Count the rows that have the same cells, and the same pattern."""
    pattern = "''" if view.pattern is None else view.pattern
    names = ", ".join([*view.quasi_identifiers, *([view.pattern] if view.pattern else [])])
    found = tables.fetch(
        "SELECT c.pattern, c.n, count(*) AS classes FROM"
        f" (SELECT {pattern} AS pattern, count(*) AS n FROM {view.view} GROUP BY {names}) AS c"
        " GROUP BY c.pattern, c.n"
    )
    patterns = list(dict.fromkeys(row["pattern"] for row in found))
    number = np.array([row["classes"] for row in found], dtype=np.int64)
    sizes = np.array([row["n"] for row in found], dtype=np.int64)
    of_row = np.array([patterns.index(row["pattern"]) for row in found], dtype=np.int64)
    return ClassSizes(np.repeat(sizes, number), patterns, np.repeat(of_row, number))
