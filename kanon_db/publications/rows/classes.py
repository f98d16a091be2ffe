"""The published rows once more, as numbers: a table that the estimator reads instead of the view.

Each distinct cell of a column has a number, in the order of their texts. Rows whose
quasi-identifiers have the same cells are a class: its cells are written once, with its size; the
other columns follow row by row. All of it is sorted, so that it follows from the published rows
alone, whatever their order: it tells nothing that they do not.

Columns with more distinct cells than :data:`MOST_CELLS` are left out; questions that mention them
are answered from the view.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kanon_db.catalog.entries import Publication
from kanon_db.catalog.names import free_column_name
from kanon_db.counting.layout import CLASSES, ClassTable, RowView
from kanon_db.publications.results import Check
from kanon_db.publications.rows.numbering import NumberedRows, Numbering
from kanon_db.publications.staging import Staging
from kanon_db.session import Session, fetch_one
from kanon_db.session.settings import grouping_by_hash
from kanon_db.transfer.columns import Relation, incomparable
from kanon_db.transfer.labels import fixed_labels, label

MOST_CELLS: Final = 1 << 16
"""Of a column: a number takes two bytes."""

_SAMPLE: Final = 10_000
"""In so many rows we look for columns with too many cells."""

_MOST_IN_SAMPLE: Final = 5_000


@dataclass(frozen=True)
class WrittenClasses:
    """The table of classes in the making.

    Attributes
    ----------
    layout : dict
        What the publication's layout keeps of it.
    classes : str
        A temporary table of the classes, as :meth:`.Numbering.classes` writes it.
    """

    layout: dict[str, Any]
    classes: str


@contextmanager
def writing_classes(
    staging: Staging, view: RowView, described: Mapping[str, Any]
) -> Iterator[WrittenClasses]:
    """Write the table of classes; within the block, the classes can be read.

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
    cells = [str(cell["name"]) for cell in described["quasi_identifiers"]]
    others = [str(name) for name in described["others"]]
    columns = ", ".join(f"c.{session.identifier(name)}" for name in [*cells, *others])
    staging.create_table(
        CLASSES,
        f"SELECT ''::text AS {table.attribute}, 0::int4 AS {table.number}, 0::int8 AS"
        f" {table.records}, false AS {table.hidden}, {columns}, ''::bytea AS {table.codes}"
        f" FROM {view.view} AS c",
        uncompressed=[layout["codes"]],
    )
    numbering = Numbering(session, view, table, described)
    unequal = incomparable(session, Relation(staging.schema, staging.name), others)
    loose = _loosely_equal(session, view)
    numbered = [
        name
        for name in others
        if name not in unequal
        and _has_few_values(session, view, session.identifier(name))
        and _number_cells(
            session, table, name, view.view, session.identifier(name), is_loose=name in loose
        )
    ]
    staging.analyze(CLASSES)
    classes = session.identifier("pg_temp", f"kanon_classes_{secrets.token_hex(8)}")
    with grouping_by_hash(session):
        session.fetch(
            f"CREATE TEMPORARY TABLE {classes} ON COMMIT DROP AS {numbering.classes(numbered)}"
        )
    for place, name in enumerate(cells, start=1):
        if name in loose:  # a class has any of the cells that are equal
            source, column, records = view.view, session.identifier(name), "1"
            hidden = numbering.hidden(place, "v", view.pattern)
        else:
            source, column, records = classes, f"c{place}", "v.size"
            hidden = numbering.hidden(place, "v")
        is_loose = name in loose
        if _number_cells(
            session, table, name, source, column, records, hidden, is_loose=is_loose
        ):  # fmt: skip
            numbered.append(name)
    staging.analyze(CLASSES)
    rows = numbering.read(numbered, classes)
    layout["columns"] = numbered if rows is not None else []
    if rows is not None:
        for block, written in rows.blocks():
            for name, numbers in written.items():
                session.fetch(
                    f"INSERT INTO {table.table} ({table.attribute}, {table.number}, {table.codes})"
                    " VALUES (nullif($1::text, ''), $2::int4, $3::bytea)",
                    name,
                    str(block),
                    numbers,
                )
    yield WrittenClasses(layout, classes)
    session.fetch(f"DROP TABLE {classes}")


def number_again(
    session: Session, view: RowView, schema: str, publication: Publication
) -> tuple[NumberedRows | None, Check]:
    """Compare the table of classes with the rows of the view, numbered once more."""
    name, described = publication.name, publication.layout
    table = ClassTable.of(session, schema, name, described["classes"])
    rows = Numbering(session, view, table, described).read(sorted(table.columns))
    differing = 1 if rows is None else 0
    if rows is not None and table.columns:
        differing = _count_differences(session, table, rows)
    check = Check(
        "the numbers of the cells are those of the rows",
        "0 parts differ",
        f"{differing} parts differ",
        holds=differing == 0,
    )
    return rows, check


def _has_few_values(session: Session, view: RowView, column: str) -> bool:
    """Whether a column has few values in some rows, which are in a random order."""
    row = fetch_one(
        session,
        f"SELECT count(*) AS n FROM (SELECT DISTINCT s.{column}"
        f" FROM (SELECT v.{column} FROM {view.view} AS v LIMIT {_SAMPLE}) AS s) AS d",
    )
    return int(row["n"]) <= _MOST_IN_SAMPLE


_LOOSELY_EQUAL: Final = """
SELECT a.attname::text AS name
FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped
  AND (a.atttypid <> ALL ('{bool,int2,int4,int8,date,timestamp,timestamptz,uuid,text,varchar,'
        'int4range,int8range,daterange,tsrange,tstzrange,text[]}'::regtype[])
       OR NOT coalesce(c.collisdeterministic, true))
"""


def _loosely_equal(session: Session, view: RowView) -> set[str]:
    """Find the columns where values that are written differently may be equal, as 1.0 and 1.00."""
    return {row["name"] for row in session.fetch(_LOOSELY_EQUAL, view.view)}


def _number_cells(
    session: Session,
    table: ClassTable,
    name: str,
    source: str,
    column: str,
    records: str = "1",
    hidden: str = "false",
    *,
    is_loose: bool,
) -> bool:
    """Give the distinct cells of a column numbers, unless there are too many.

    Parameters
    ----------
    table : ClassTable
    name : str
    source : str
        It gets the alias ``v``.
    column : str
        Of the source, quoted.
    records : str
        How many rows each of its rows stands for.
    hidden : str
        Whether a cell is suppressed.
    is_loose : bool
        Whether equal cells may have several texts: the first one stands for them, whatever the
        order of the rows.
    """
    counted = session.identifier("pg_temp", f"kanon_cells_{secrets.token_hex(8)}")
    cells = (
        f"SELECT v.{column} AS value, {hidden} AS hidden, sum({records})::int8 AS records"
        f" FROM {source} AS v GROUP BY 1, 2"
    )
    if is_loose:
        cells = (
            "SELECT DISTINCT ON (hidden, value) value, hidden, sum(records) OVER (PARTITION BY"
            f" hidden, value)::int8 AS records FROM ({cells}, {label(f'v.{column}')}) AS spelled"
            f" ORDER BY hidden, value, {_text('value')}"
        )
    with fixed_labels(session), grouping_by_hash(session):
        session.fetch(
            f"CREATE TEMPORARY TABLE {counted} ON COMMIT DROP AS {cells} LIMIT {MOST_CELLS + 1}"
        )
        row = fetch_one(session, f"SELECT count(*) AS n FROM {counted}")
        is_few = int(row["n"]) <= MOST_CELLS
        if is_few:
            session.fetch(
                f"INSERT INTO {table.table} ({table.attribute}, {table.number}, {table.records},"
                f" {table.hidden}, {session.identifier(name)})"
                f" SELECT $1::text, row_number() OVER (ORDER BY hidden, {_text('value')}) - 1,"
                f" records, hidden, value FROM {counted} ORDER BY 2",
                name,
            )
        session.fetch(f"DROP TABLE {counted}")
    return is_few


def _text(value: str) -> str:
    return f'{label(value)} COLLATE "C"'


def _count_differences(session: Session, table: ClassTable, rows: NumberedRows) -> int:
    """Count the columns and blocks that are not those of the rows."""
    differing = 0
    for name, records in rows.records():
        by = f"t.{table.hidden}, {_text(f't.{session.identifier(name)}')}"
        with fixed_labels(session):
            found = session.fetch(
                f"SELECT t.{table.number} AS number, t.{table.records} AS records,"
                f" row_number() OVER (ORDER BY {by}) - 1 AS place"
                f" FROM {table.table} AS t WHERE t.{table.attribute} = $1::text"
                f" AND t.{table.codes} IS NULL ORDER BY 3",
                name,
            )
        places = list(range(len(found)))
        differing += (
            [row["number"] for row in found] != places
            or [row["place"] for row in found] != places
            or [row["records"] for row in found] != records.tolist()
        )
    written = dict(rows.blocks())
    n_stored = 0
    for row in session.stream(
        1,
        f"SELECT coalesce(t.{table.attribute}, '') AS attribute, t.{table.number} AS block,"
        f" t.{table.codes} AS codes FROM {table.table} AS t WHERE t.{table.codes} IS NOT NULL",
    ):
        n_stored += 1
        differing += written.get(row["block"], {}).get(row["attribute"]) != row["codes"]
    others = fetch_one(
        session,
        f"SELECT count(*) AS n FROM {table.table} AS t WHERE t.{table.codes} IS NULL"
        f" AND (t.{table.attribute} = ANY ($1::text[])) IS NOT TRUE",
        sorted(table.columns),
    )
    return differing + (n_stored != sum(map(len, written.values()))) + int(others["n"])
