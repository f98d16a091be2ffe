"""The published rows once more, as numbers: a table that the estimator reads instead of the view.

Each distinct cell of a column has a number. Rows whose quasi-identifiers have the same cells are a
class: its cells are written once, with its size; the other columns follow row by row. All of it is
sorted, so that it follows from the published rows alone, whatever their order: it tells nothing
that they do not.

Columns with more distinct cells than :data:`.MOST_CELLS` are left out; questions that mention them
are answered from the view.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kanon_db.catalog.entries import Publication
from kanon_db.catalog.names import free_column_name
from kanon_db.counting.layout import CLASSES, ClassTable, RowView
from kanon_db.publications.results import Check
from kanon_db.publications.rows.numbering import NumberedColumn, number_rows
from kanon_db.publications.staging import Staging
from kanon_db.session import Session, fetch_one
from kanon_db.transfer.columns import Relation
from kanon_db.transfer.labels import fixed_labels, label


def write_classes(staging: Staging, view: RowView, described: Mapping[str, Any]) -> dict[str, Any]:
    """Write the table of classes, and return what the layout keeps of it.

    Parameters
    ----------
    staging : Staging
    view : RowView
        Already materialized.
    described : mapping
        The publication's layout.
    """
    session = staging.session
    session.step("numbering the cells of the rows")
    names = [*view.columns]
    layout: dict[str, Any] = {}
    for own in ("attribute", "number", "records", "hidden", "codes"):
        layout[own] = free_column_name(own, names)
        names.append(layout[own])
    table = ClassTable.of(session, staging.schema, staging.name, layout | {"columns": []})
    names = [cell["name"] for cell in described["quasi_identifiers"]] + list(described["others"])
    columns = ", ".join(f"c.{session.identifier(name)}" for name in names)
    staging.create_table(
        CLASSES,
        f"SELECT ''::text AS {table.attribute}, 0::int4 AS {table.number}, 0::int8 AS"
        f" {table.records}, false AS {table.hidden}, {columns}, ''::bytea AS {table.codes}"
        f" FROM {view.view} AS c",
        uncompressed=[layout["codes"]],
    )
    numbered = number_rows(session, view, Relation(staging.schema, staging.name), described)
    if numbered is None:
        return {**layout, "columns": []}
    for column in numbered.columns:
        session.fetch(
            f"INSERT INTO {table.table} ({table.attribute}, {table.number}, {table.records},"
            f" {table.hidden}, {session.identifier(column.name)})"
            f" SELECT $1::text, number, records, hidden, value FROM {column.table} ORDER BY number",
            column.name,
        )
    for block, written in numbered.blocks():
        for name, numbers in written.items():
            session.fetch(
                f"INSERT INTO {table.table} ({table.attribute}, {table.number}, {table.codes})"
                " VALUES (nullif($1::text, ''), $2::int4, $3::bytea)",
                name,
                str(block),
                numbers,
            )
    numbered.drop(session)
    staging.analyze(CLASSES)
    return {**layout, "columns": [column.name for column in numbered.columns]}


def check_classes(session: Session, view: RowView, schema: str, publication: Publication) -> Check:
    """Compare the table of classes with the rows of the view, numbered once more."""
    name, described = publication.name, publication.layout
    table = ClassTable.of(session, schema, name, described["classes"])
    numbered = number_rows(session, view, Relation(schema, name), described, table.columns)
    differing = 0
    if numbered is None:
        differing += len(table.columns)
    elif {column.name for column in numbered.columns} != set(table.columns):
        differing += 1
    else:
        with fixed_labels(session):
            differing += sum(_differ(session, table, column) for column in numbered.columns)
        written = dict(numbered.blocks())
        stored = session.stream(
            1,
            f"SELECT coalesce({table.attribute}, '') AS attribute, {table.number} AS block,"
            f" {table.codes} AS codes FROM {table.table} WHERE {table.codes} IS NOT NULL",
        )
        found = 0
        for row in stored:
            found += 1
            differing += written.get(row["block"], {}).get(row["attribute"]) != row["codes"]
        differing += found != sum(map(len, written.values()))
        numbered.drop(session)
    return Check(
        "the numbers of the cells are those of the rows",
        "0 parts differ",
        f"{differing} parts differ",
        holds=differing == 0,
    )


def _differ(session: Session, table: ClassTable, column: NumberedColumn) -> int:
    """Count the numbers of a column that have another cell, or none."""
    stored = (
        f"SELECT {table.number} AS number, {label(session.identifier(column.name))} AS label,"
        f" {table.hidden} AS hidden, {table.records} AS records FROM {table.table}"
        f" WHERE {table.attribute} = $1::text AND {table.codes} IS NULL"
    )
    counted = f"SELECT number, {label('value')} AS label, hidden, records FROM {column.table}"
    row = fetch_one(
        session,
        f"SELECT count(*) AS n FROM (({stored} EXCEPT ALL {counted})"
        f" UNION ALL ({counted} EXCEPT ALL {stored})) AS d",
        column.name,
    )
    return int(row["n"])
