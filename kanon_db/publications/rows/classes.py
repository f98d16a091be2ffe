"""The published rows once more, as numbers: a table that the estimator reads instead of the view.

Each distinct cell of a column has a number, in the order of their texts. Rows whose
quasi-identifiers have the same cells are a class: its cells are written once, with its size; the
other columns follow row by row. All of it is sorted, so that it follows from the published rows
alone, whatever their order: it tells nothing that they do not.

Columns with more distinct cells than :data:`MOST_CELLS` have no numbers. If these are ranges of
whole numbers, or of days, their ends are written (:mod:`~kanon_db.publications.rows.range_ends`);
other columns are left out, and questions that mention them are answered from the view.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.algorithms.ground.sort_keys import sort_keys
from kanon_db.catalog.entries import Publication
from kanon_db.catalog.names import free_column_name
from kanon_db.counting.layout import CLASSES, ClassTable, RowView
from kanon_db.publications.results import Check
from kanon_db.publications.rows.cell_table import CellColumn
from kanon_db.publications.rows.class_sizes import ClassSizes
from kanon_db.publications.rows.numbered_rows import CODES, NumberedRows, packed_rows
from kanon_db.publications.rows.numbering import Numbering
from kanon_db.publications.rows.range_ends import count_loose_ends, write_ends
from kanon_db.publications.rows.row_hashes import shows_rows
from kanon_db.publications.rows.shown_rows import ShownRows
from kanon_db.publications.staging import Staging
from kanon_db.session import Session, fetch_one
from kanon_db.session.protocol import Value
from kanon_db.session.settings import grouping_by_hash
from kanon_db.transfer.columns import int4_bytes, with_numbers
from kanon_db.transfer.labels import fixed_labels, label

MOST_CELLS: Final = 1 << 16
"""Of a column: a number takes two bytes."""


@dataclass(frozen=True)
class WrittenClasses:
    """The table of classes, as it was written.

    Attributes
    ----------
    layout : dict
        What the publication's layout keeps of it.
    table : ClassTable
    classes_of_cells : dict of str to ndarray of int64, shape (n_cells,)
        Of each quasi-identifier whose cells have numbers: how many classes have each of them.
    """

    layout: dict[str, Any]
    table: ClassTable
    classes_of_cells: dict[str, IntArray]


def write_classes(
    staging: Staging, view: RowView, described: Mapping[str, Any], rows: ShownRows
) -> WrittenClasses:
    """Write the table of classes.

    Parameters
    ----------
    staging : Staging
    view : RowView
        Already materialized.
    described : mapping
        The publication's layout.
    rows : ShownRows
        Those of the view.
    """
    session = staging.session
    session.step("numbering the cells of the rows")
    table, layout = _create_table(staging, view, described)
    numbering = Numbering(session, view, table, described)
    loose = _loosely_equal(session, view)
    found: dict[str, AnyIntArray | None] = {}
    ended: dict[str, AnyIntArray] = {}
    for name, column in rows.others.items():
        cells = CellColumn.of_values(column.values, column.codes)
        records = np.bincount(column.codes, minlength=cells.n_cells)
        found[name] = _number(numbering, name, cells, records, 0, is_loose=name in loose)
    sizes = np.bincount(rows.combination_of_row)
    for name, cells in rows.cells.items():
        of_cell = np.bincount(cells.of_combination + 1, sizes, minlength=1 + cells.n_cells)
        hidden, records = int(of_cell[0]), of_cell[1:].astype(np.int64)
        is_loose = name in loose and not cells.is_spelled_once
        found[name] = _number(numbering, name, cells, records, hidden, is_loose=is_loose)
        if found[name] is None and not hidden:
            codes = write_ends(numbering, name, cells, records)
            if codes is not None:
                ended[name] = codes
    staging.analyze(CLASSES)
    numbers = {name: of_cell for name, of_cell in found.items() if of_cell is not None}
    coded = numbers | ended
    named = [name for name in rows.cells if name in coded]
    others = [name for name in rows.others if name in numbers]
    of_combinations = {name: _of_combinations(coded[name], rows.cells[name]) for name in named}
    of_rows = [numbers[name][rows.others[name].codes] for name in others]
    bases = [CODES if name in ended else 2 + int(coded[name].max()) for name in (*named, *others)]
    packed = packed_rows(bases, list(of_combinations.values()), rows.combination_of_row, of_rows)
    numbered = NumberedRows.of(named, others, bases, packed, frozenset(ended))
    is_complete = numbered is not None
    layout["columns"] = [*others, *(n for n in named if n in numbers)] if is_complete else []
    layout["ends"] = list(ended) if is_complete else []
    if numbered is not None:
        _write_blocks(session, table, numbered)
    # Combinations that look the same are one class.
    ids = (1 + _of_combinations(found[name], cells) for name, cells in rows.cells.items())
    merged = np.unique(sort_keys(ids), return_index=True)[1]
    return WrittenClasses(
        layout,
        table,
        {
            name: np.bincount(of_combination[merged])
            for name, of_combination in of_combinations.items()
            if name in numbers and of_combination.min() >= 0
        },
    )


def _create_table(
    staging: Staging, view: RowView, described: Mapping[str, Any]
) -> tuple[ClassTable, dict[str, Any]]:
    """Create the table, without rows; return it with its layout."""
    session = staging.session
    names = [*view.columns]
    layout: dict[str, Any] = {}
    for own in ("attribute", "number", "records", "hidden", "codes"):
        layout[own] = free_column_name(own, names)
        names.append(layout[own])
    table = ClassTable.of(session, staging.schema, staging.name, layout | {"columns": []})
    cells = [str(cell["name"]) for cell in described["quasi_identifiers"]]
    shown = [*cells, *(str(name) for name in described["others"])]
    columns = ", ".join(f"c.{session.identifier(name)}" for name in shown)
    staging.create_table(
        CLASSES,
        f"SELECT ''::text AS {table.attribute}, 0::int4 AS {table.number}, 0::int8 AS"
        f" {table.records}, false AS {table.hidden}, {columns}, ''::bytea AS {table.codes}"
        f" FROM {view.view} AS c",
        uncompressed=[layout["codes"]],
    )
    return table, layout


def _write_blocks(session: Session, table: ClassTable, rows: NumberedRows) -> None:
    for block, written in rows.blocks():
        for name, numbers in written.items():
            session.fetch(
                f"INSERT INTO {table.table} ({table.attribute}, {table.number}, {table.codes})"
                " VALUES (nullif($1::text, ''), $2::int4, $3::bytea)",
                name,
                str(block),
                numbers,
            )


def _of_combinations(of_cell: AnyIntArray | None, cells: CellColumn) -> AnyIntArray:
    """Return the number of each combination's cell; any other one, if cells have no numbers."""
    if of_cell is None:
        return cells.of_combination
    return of_cell.astype(np.min_scalar_type(-2 - int(of_cell.max())))[cells.of_combination]


def number_again(
    session: Session, view: RowView, schema: str, publication: Publication
) -> tuple[ClassSizes | None, Check]:
    """Compare the table of classes with what follows from it, and its rows with those of the view.

    Returns
    -------
    sizes : ClassSizes or None
        None unless all quasi-identifiers have numbers, and these are right.
    check : Check
    """
    session.step("checking the numbers of cells")
    name, described = publication.name, publication.layout
    table = ClassTable.of(session, schema, name, described["classes"])
    numbering = Numbering(session, view, table, described)
    rows, differing = None, 0
    if table.columns or table.ends:
        rows = numbering.stored(publication.records)
        differing = 1 if rows is None else _count_differences(session, table, rows)
    if rows is not None and not differing and not shows_rows(numbering, rows):
        differing = 1
    check = Check(
        "the numbers of the cells are those of the rows",
        "0 parts differ",
        f"{differing} parts differ",
        holds=differing == 0,
    )
    sizes = None
    cells = [str(cell["name"]) for cell in described["quasi_identifiers"]]
    if rows is not None and check.holds and list(rows.cells) == cells:
        sizes = ClassSizes.of_numbers(rows, [numbering.special(name).hidden for name in cells])
    return sizes, check


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


def _number(
    numbering: Numbering,
    name: str,
    cells: CellColumn,
    records: IntArray,
    n_hidden: int,
    *,
    is_loose: bool,
) -> AnyIntArray | None:
    """Write the distinct cells of a column with their numbers, unless there are too many.

    Parameters
    ----------
    numbering : Numbering
    name : str
    cells : CellColumn
    records : ndarray of int64, shape (n_cells,)
        How many rows have each cell.
    n_hidden : int
        In how many rows it is suppressed.
    is_loose : bool
        Whether equal cells may have several texts: the first one stands for them, whatever the
        order of the rows, which have to be read for it.

    Returns
    -------
    ndarray of int32, shape (n_cells + 1,), or None
        The number of each cell, and of the suppressed ones; -1 where there is none.
    """
    session, table = numbering.session, numbering.table
    bound: list[Value] = []
    if is_loose:
        column, hidden = f"v.{session.identifier(name)}", numbering.hidden(name, "v")
        shown = (
            "SELECT DISTINCT ON (hidden, value) value, hidden, sum(records) OVER (PARTITION BY"
            f" hidden, value)::int8 AS records FROM (SELECT {column} AS value, {hidden} AS hidden,"
            f" count(*) AS records FROM {numbering.view.view} AS v GROUP BY 1, 2, {label(column)})"
            f" AS spelled ORDER BY hidden, value, {_text('value')}"
        )
    else:
        numbered, (of_cell,) = with_numbers(session, cells.table, (1, f"r.{cells.number}"))
        shown = (
            "SELECT value, hidden, sum(records)::int8 AS records FROM ("
            f"SELECT c.{cells.cell} AS value, false AS hidden, c.{of_cell} AS records"
            f" FROM {numbered} AS c UNION ALL SELECT NULL, true, $2::int4) AS cell"
            " WHERE records > 0 GROUP BY value, hidden"
        )
        bound = [int4_bytes(records), str(n_hidden)]
    counted = session.identifier("pg_temp", f"kanon_cells_{secrets.token_hex(8)}")
    with fixed_labels(session), grouping_by_hash(session):
        session.fetch(
            f"CREATE TEMPORARY TABLE {counted} ON COMMIT DROP AS {shown} LIMIT {MOST_CELLS + 1}",
            *bound,
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
    return numbering.of_cells(name, cells) if is_few else None


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
    differing += count_loose_ends(session, table, rows)
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
        sorted(table.columns | table.ends),
    )
    return differing + (n_stored != sum(map(len, written.values()))) + int(others["n"])
