"""Writes and checks what the estimator reads beside a view of rows.

The store of codes has each class of rows with the same cells once, with its size; the other columns
follow row by row. The table of shares has how often each value occurs in each distinct cell. Both
follow from the published rows alone, whatever their order, so they tell nothing that the rows do
not. Hashes of all cells, with seeds drawn anew each time, tell whether a view has the rows of the
store.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    CodeArray,
    FloatArray,
    IntArray,
    WordArray,
    distinct,
    hash_numbers,
    sort_keys,
)
from kanon_db.algorithms.recoding import Sets
from kanon_db.algorithms.recoding.generalized_cells import (
    MOST_CELLS,
    RangeDistributions,
    SetDistributions,
)
from kanon_db.catalog.entries import Publication
from kanon_db.dataclasses import dataclass
from kanon_db.publications.codes import (
    HASHES,
    SIZES_OF_CLASSES,
    Chunk,
    CodeTables,
    Store,
    StoredColumn,
    StoreWriter,
    count_loose_chunks,
    count_loose_values,
    hash_value,
)
from kanon_db.publications.relations import StagedRelations
from kanon_db.publications.results import Check
from kanon_db.publications.rows.distinct_cells import (
    CellColumn,
    CellNumbers,
    ClassSizes,
    NumberedRows,
    ShownRows,
    count_loose_ends,
    packed_rows,
    packing,
    write_ends,
)
from kanon_db.query.layout import SHARES, CellDescription, RowView, labels, members_of, texts
from kanon_db.query.layout import Shares as WhatIsKnown
from kanon_db.query.ranges import end_at, ends_of, is_endless
from kanon_db.session import Row, Session, fetch_one
from kanon_db.session.protocol import (
    Value,
    grouping_by_hash,
    roomy,
    run_with_helper,
    temporary_table,
)
from kanon_db.transfer.columns import fix_labels, int4_bytes, label, parts_of, with_numbers
from kanon_db.transfer.values import RankedColumn, inconsistent_equality, presence

# Hashing the cells of a million rows takes a third of the time of looking up their numbers. Each
# row's hashes become one 64-bit number, by exclusive or; these are added up, so the order of rows
# does not matter. Nobody can foresee the seeds: missing a difference is as likely as guessing one.
#
# **Source:** hashes of the cells of a row, one function for each column, combined by exclusive or:
# simple tabulation (M. Patrascu and M. Thorup, JACM 2012), with the server's own hash functions.

_ROWS_AT_ONCE: Final = 1 << 20


def shows_rows(numbering: CellNumbers, rows: NumberedRows) -> bool:
    """Tell whether the rows of the view are those of the store."""
    hashing = _Hashing(numbering, rows)
    return hashing.of_view() == hashing.of_table()


class _Hashing:
    """Hash functions drawn at random for each column, and the sums of their hashes of all rows."""

    def __init__(self, numbering: CellNumbers, rows: NumberedRows) -> None:
        self._numbering, self._rows = numbering, rows
        self._seeds = {
            name: (secrets.randbits(62), secrets.randbits(62))  # of values, and of NULL
            for name in (*rows.cells, *rows.others)
            if name not in rows.ends and numbering.type_of(name) in HASHES
        }
        # A cell that the table has twice is looked up, and found twice.
        self._hashed = {
            name: hashes for name in self._seeds if (hashes := self._of_cells(name)) is not None
        }
        self._marks, self._start = secrets.randbits(62), np.uint64(secrets.randbits(64))
        self._cells, self._others = (
            {
                name: numbers
                for name, numbers in zip(names, columns, strict=True)
                if name not in self._hashed
            }
            for names, columns in ((rows.cells, rows.of_classes), (rows.others, rows.of_rows))
        )
        self._bases = [numbering.base(name) for name in (*self._cells, *self._others)]

    def of_view(self) -> tuple[int, int]:
        """Return how many rows the view has, and the sum."""
        session, view = self._numbering.session, self._numbering.view
        hashes = [self._hash(name, "v") for name in self._hashed]
        if view.pattern is not None:
            marks = self._numbering.marks(self._rows.cells, "v")
            hashes.append(f"hashtextextended({marks}, {self._marks})")
        sent = [f"int8send({' # '.join(hashes) or '0'})"]
        digits, joins = self._numbering.looked_up([*self._cells, *self._others])
        groups = packing(self._bases) if digits else []
        for first, end in groups:
            number = digits[first]
            for digit, base in zip(
                digits[first + 1 : end], self._bases[first + 1 : end], strict=True
            ):
                number = f"({number})::int8 * {base} + {digit}"
            sent.append(f"int8send({number})")
        n_rows, total = 0, 0
        for part in parts_of(session, view.view, int(self._rows.sizes.sum()), "v"):
            with run_with_helper(session):
                row = fetch_one(
                    session,
                    # A statement without parameters, so that the server may make a parallel plan,
                    # and OFFSET, in quotes as in :func:`.digest`, so that cells stay where they
                    # are read.
                    f"SELECT string_agg(r.hashes, ''::bytea) AS hashes FROM"
                    f" (SELECT {' || '.join(sent)} AS hashes"
                    f" FROM {view.view} AS v{joins} WHERE {part} OFFSET '0') AS r",
                )
            found = np.frombuffer(row["hashes"] or b"", dtype=">u8").reshape(-1, 1 + len(groups))
            n_rows += len(found)
            total += self._sum(found[:, 0], list(found[:, 1:].T))
        return n_rows, total % 2**64

    def of_table(self) -> tuple[int, int]:
        """Return how many rows the table has, and the sum."""
        rows, session = self._rows, self._numbering.session
        of_class = np.zeros(rows.sizes.size, dtype=np.uint64)
        if self._numbering.view.pattern is not None:
            patterns, pattern_of_class = rows.patterns(
                [self._numbering.special(name).hidden for name in rows.cells]
            )
            found = fetch_one(
                session,
                f"SELECT string_agg(int8send(hashtextextended(u.marks, {self._marks})), ''::bytea"
                " ORDER BY u.i) AS hashes FROM unnest($1::text[]) WITH ORDINALITY AS u (marks, i)",
                patterns,
            )
            of_class ^= np.frombuffer(found["hashes"] or b"", dtype=">u8")[pattern_of_class]
        for name, numbers in zip(rows.cells, rows.of_classes, strict=True):
            if name in self._hashed:
                of_class ^= self._hashed[name][numbers]
        class_of_row = np.repeat(np.arange(rows.sizes.size, dtype=np.int32), rows.sizes)
        hashes = of_class[class_of_row]
        for name, numbers in zip(rows.others, rows.of_rows, strict=True):
            if name in self._hashed:
                hashes ^= self._hashed[name][numbers]
        packed: list[IntArray] = []
        if self._bases:
            packed = packed_rows(
                self._bases, list(self._cells.values()), class_of_row, list(self._others.values())
            )
        return class_of_row.size, self._sum(hashes, packed) % 2**64

    def _of_cells(self, name: str) -> WordArray | None:
        """Return the hash of each cell of a column, by its number; None if two have the same."""
        tables = self._numbering.tables
        row = fetch_one(
            self._numbering.session,
            f"SELECT string_agg(int8send({self._hash(name, 't')}), ''::bytea"
            f" ORDER BY t.{tables.code}) AS hashes FROM {tables.of_column(name)} AS t",
        )
        found = np.frombuffer(row["hashes"], dtype=">u8").astype(np.uint64)
        shown = found[: tables.columns[name].n_shown]
        return found if distinct(shown).size == shown.size else None

    def _hash(self, name: str, alias: str) -> str:
        """Write the hash of a cell."""
        of_value, of_null = self._seeds[name]
        cell = f"{alias}.{self._numbering.session.identifier(name)}"
        return f"coalesce({hash_value(self._numbering.type_of(name), cell, of_value)}, {of_null})"

    def _sum(self, hashes: AnyIntArray, groups: Sequence[AnyIntArray]) -> int:
        """Add up what the hashes and the digits of all rows make together."""
        total = 0
        for first in range(0, hashes.size, _ROWS_AT_ONCE):
            own = slice(first, first + _ROWS_AT_ONCE)
            mixed = hash_numbers(hashes[own] ^ self._start)
            for group in groups:
                mixed = hash_numbers(mixed ^ group[own].astype(np.uint64))
            total += int(mixed.sum())
        return total


# Cells are numbered in the order of their texts, and everything is sorted. Of ranges of whole
# numbers or days that are too many, each class has the ends in place of a number
# (:mod:`~kanon_db.publications.rows.distinct_cells`).

MOST_RANGES: Final = 1 << 16
"""Distinct ranges of whole numbers or days that have numbers."""


@dataclass(frozen=True)
class WrittenCodes:
    """The store of codes, as it was written."""

    layout: dict[str, Any]  # what the publication's layout keeps of it
    tables: CodeTables
    # Shape (n_cells,); how many records and classes have each cell, for each quasi-identifier that
    # is not known by ends.
    counts_of_cells: dict[str, tuple[IntArray, IntArray]]


def write_cell_codes(
    staging: StagedRelations, view: RowView, described: Mapping[str, Any], rows: ShownRows
) -> WrittenCodes:
    """Write the store of codes."""
    session = staging.session
    session.step("numbering the cells of the rows")
    shown = [str(cell["name"]) for cell in described["quasi_identifiers"]]
    shown += [str(name) for name in described["others"]]
    writer = StoreWriter(
        staging, {name: f"c.{session.identifier(name)}" for name in shown}, f"{view.view} AS c"
    )
    numbering = CellNumbers(session, view, writer.tables, described)
    loose = _loosely_equal(session, view)
    found: dict[str, AnyIntArray] = {}
    for name, column in rows.others.items():
        records = np.bincount(column.codes, minlength=column.n_values)
        if _may_be_spelled_twice(session, view, column, loose.get(name)):
            cells = CellColumn.of_ranked(column)
            found[name] = _number(writer, numbering, name, cells, records, is_loose=True)
        else:
            found[name] = _number_values(writer, view, column, records)
    sizes = np.bincount(rows.combination_of_row)
    for name, cells in rows.cells.items():
        of_cell = np.bincount(cells.of_combination + 1, sizes, minlength=1 + cells.n_cells)
        records = of_cell[1:].astype(np.int64)
        has_hidden = bool(of_cell[0])
        is_loose = name in loose and not cells.is_spelled_once
        numbers = None
        if not has_hidden and np.count_nonzero(records) > MOST_RANGES:
            numbers = write_ends(writer, numbering.type_of(name), name, cells, records)
        if numbers is None:
            numbers = _number(
                writer, numbering, name, cells, records,
                is_loose=is_loose, of_classes=True, has_hidden=has_hidden,
            )  # fmt: skip
        found[name] = numbers
    named, others = list(rows.cells), list(rows.others)
    of_combinations = {name: _of_combinations(found[name], rows.cells[name]) for name in named}
    of_rows = [found[name][rows.others[name].codes] for name in others]
    bases = [numbering.base(name) for name in (*named, *others)]
    packed = packed_rows(bases, list(of_combinations.values()), rows.combination_of_row, of_rows)
    numbered = NumberedRows.of(named, others, bases, packed, numbering.ends)
    if numbered is None:
        raise TypeError("each cell has a number")
    # Combinations that look the same are one class.
    ids = (1 + of_combination for of_combination in of_combinations.values())
    merged = np.unique(sort_keys(ids), return_index=True)[1]
    return WrittenCodes(
        writer.layout(_write_chunks(writer, numbered)),
        writer.tables,
        {
            name: (
                np.bincount(of_combination, sizes).astype(np.int64),
                np.bincount(of_combination[merged]),
            )
            for name, of_combination in of_combinations.items()
            if name not in numbering.ends
        },
    )


def _write_chunks(writer: StoreWriter, rows: NumberedRows) -> list[Chunk]:
    chunks = []
    for chunk, codes in rows.chunks():
        for name, of_column in codes.items():
            column = writer.columns[name] if name else SIZES_OF_CLASSES
            writer.write_codes(column, chunk.number, of_column)
        chunks.append(chunk)
    return chunks


def _of_combinations(of_cell: AnyIntArray, cells: CellColumn) -> AnyIntArray:
    """Return the number of each combination's cell."""
    return of_cell.astype(np.min_scalar_type(-2 - int(of_cell.max())))[cells.of_combination]


def count_class_differences(
    session: Session, view: RowView, schema: str, publication: Publication
) -> tuple[ClassSizes | None, Check]:
    """Compare the store with what follows from it, and its rows with the view's.

    There are no sizes unless all quasi-identifiers have numbers, and these are right.
    """
    session.step("checking the numbers of cells")
    name, described = publication.name, publication.layout
    tables = CodeTables.of(session, schema, name, described)
    numbering = CellNumbers(session, view, tables, described)
    rows = None
    cells = [str(cell["name"]) for cell in described["quasi_identifiers"]]
    differing = len({*cells, *map(str, described["others"])} - tables.columns.keys())
    if not differing:
        rows = numbering.stored(publication.records)
        differing = 1 if rows is None else _count_differences(session, tables, rows)
    if rows is not None and not differing and not shows_rows(numbering, rows):
        differing = 1
    check = Check(
        "the numbers of the cells are those of the rows",
        "0 parts differ",
        f"{differing} parts differ",
        holds=differing == 0,
    )
    sizes = None
    if rows is not None and check.holds:
        sizes = ClassSizes.of_numbers(rows, [numbering.special(name).hidden for name in cells])
    return sizes, check


_LOOSELY_EQUAL: Final = """
SELECT a.attname::text AS name, format_type(a.atttypid, NULL) AS type
FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped
  AND (a.atttypid <> ALL ('{bool,int2,int4,int8,date,timestamp,timestamptz,uuid,text,varchar,'
        'int4range,int8range,daterange,tsrange,tstzrange,text[]}'::regtype[])
       OR NOT coalesce(c.collisdeterministic, true))
"""


def _loosely_equal(session: Session, view: RowView) -> dict[str, str]:
    """Return the types of columns where values written differently may be equal: 1.0 and 1.00."""
    return {row["name"]: row["type"] for row in session.fetch(_LOOSELY_EQUAL, view.view)}


_MARKS: Final = {
    "numeric": "scale({0})",
    **dict.fromkeys(("real", "double precision"), "({0} = 0 AND {0}::text = '-0')"),
}
"""What equal values have in common that are written in one way."""


def _may_be_spelled_twice(
    session: Session, view: RowView, column: RankedColumn, type_: str | None
) -> bool:
    """Whether equal values may be written differently, in the rows or where values are listed."""
    if type_ not in _MARKS or not column.is_comparable:
        return type_ is not None and column.is_comparable
    shown, listed = f"v.{session.identifier(column.name)}", "t.value"
    row = fetch_one(
        session,
        "SELECT count(DISTINCT m.mark) > 1 AS may FROM ("
        f"SELECT {_MARKS[type_].format(shown)} AS mark FROM {view.view} AS v"
        f" UNION ALL SELECT {_MARKS[type_].format(listed)} FROM {column.table} AS t) AS m",
    )
    return bool(row["may"])


def _number(
    writer: StoreWriter,
    numbering: CellNumbers,
    name: str,
    cells: CellColumn,
    records: IntArray,  # shape (n_cells,); how many rows have each cell
    *,
    is_loose: bool,
    of_classes: bool = False,
    has_hidden: bool = False,  # whether it is suppressed in some rows
) -> AnyIntArray:
    """Write the distinct cells of a column with their numbers.

    Where `is_loose`, equal cells may have several texts: the first one stands for them, whatever
    the order of the rows, which have to be read for it. Returns the number of each cell, and of the
    suppressed ones, shape (n_cells + 1,); -1 where there is none.
    """
    session = numbering.session
    bound: list[Value] = []
    if is_loose:
        column, hidden = f"v.{session.identifier(name)}", numbering.hidden(name, "v")
        shown = (
            f"SELECT DISTINCT ON (hidden, value) value, hidden FROM (SELECT {column} AS value,"
            f" {hidden} AS hidden FROM {numbering.view.view} AS v GROUP BY 1, 2, {label(column)})"
            f" AS spelled ORDER BY hidden, value, {_text('value')}"
        )
    else:
        numbered, (of_cell,) = with_numbers(session, cells.table, (1, f"r.{cells.number}"))
        shown = (
            "SELECT value, hidden FROM ("
            f"SELECT c.{cells.cell} AS value, false AS hidden, c.{of_cell} AS records"
            f" FROM {numbered} AS c UNION ALL SELECT NULL, true, $2::int4) AS cell"
            " WHERE records > 0 GROUP BY value, hidden"
        )
        bound = [int4_bytes(records), str(int(has_hidden))]
    counted = temporary_table(session, "cells")
    with fix_labels(session), grouping_by_hash(session):
        session.fetch(f"CREATE TEMPORARY TABLE {counted} ON COMMIT DROP AS {shown}", *bound)
        n_values = int(fetch_one(session, f"SELECT count(*) AS n FROM {counted}")["n"])
        writer.write_values(
            StoredColumn(name, len(writer.columns), n_values, 0, of_classes, has_hidden),
            f"SELECT row_number() OVER (ORDER BY hidden, {_text('value')}) - 1 AS code, value"
            f" FROM {counted} AS c",
        )
        session.fetch(f"DROP TABLE {counted}")
    numbers = numbering.of_cells(name, cells)
    if numbers[:-1][records > 0].min(initial=0) < 0:
        raise inconsistent_equality(name)
    return numbers


def _number_values(
    writer: StoreWriter, view: RowView, column: RankedColumn, records: IntArray
) -> CodeArray:
    """Write the values that rows have of a column, each of which is listed once.

    Returns the number of each, shape (n_values,); -1 of those that no row has.
    """
    session, values = writer.session, column.table
    if not column.is_comparable:  # the row's value with the first text stands for all
        own = f"v.{session.identifier(column.name)}"
        values = (
            f"(SELECT DISTINCT ON (c.code) c.code, {own} AS value FROM {values} AS c"
            f" JOIN {view.view} AS v ON {presence('c.value')} = {presence(own)}"
            f" ORDER BY c.code, {_text(own)} NULLS FIRST)"
        )
    ordered = temporary_table(session, "values")
    listed, (n_rows,) = with_numbers(session, values, (1, "r.code"))
    with fix_labels(session), roomy(session):
        session.fetch(
            f"CREATE TEMPORARY TABLE {ordered} ON COMMIT DROP AS SELECT v.code, v.value,"
            f" (row_number() OVER (ORDER BY {_text('v.value')}))::int4 - 1 AS number"
            f" FROM {listed} AS v WHERE v.{n_rows} > 0",
            int4_bytes(records),
        )
    row = fetch_one(
        session,
        "SELECT string_agg(int4send(o.code) || int4send(o.number), ''::bytea) AS numbers"
        f" FROM {ordered} AS o",
    )
    numbers = np.full(column.n_values, -1, dtype=np.int32)
    codes, of_codes = np.frombuffer(row["numbers"], ">i4").reshape(-1, 2).T
    numbers[codes] = of_codes
    writer.write_values(
        StoredColumn(
            column.name, len(writer.columns), codes.size, tells_presence=not column.is_comparable
        ),
        f"SELECT o.number AS code, o.value FROM {ordered} AS o",
    )
    session.fetch(f"DROP TABLE {ordered}")
    return numbers


def _text(value: str) -> str:
    return f'{label(value)} COLLATE "C"'


def _count_differences(session: Session, tables: CodeTables, rows: NumberedRows) -> int:
    """Count the columns and chunks that are not those of the rows."""
    with fix_labels(session):
        differing = count_loose_values(session, tables, _text)
    differing += count_loose_chunks(session, tables) + count_loose_ends(session, tables, rows)
    if differing:
        return differing
    of_columns = zip((*rows.cells, *rows.others), (*rows.of_classes, *rows.of_rows), strict=True)
    for name, own in of_columns:
        if name not in rows.ends:
            differing += distinct(own).size != tables.columns[name].n_values
    chunks = list(rows.chunks())
    if [chunk for chunk, _ in chunks] != list(tables.chunks):
        return differing + 1
    store = Store(session, tables)
    for chunk, codes in chunks:
        stored = store.arrays(chunk, list(codes))
        differing += sum(
            not np.array_equal(stored[name], own.astype(stored[name].dtype))
            for name, own in codes.items()
        )
    return differing


# The ends of a column's ranges cut its values into parts. The table has a row for each distinct
# cell: the shares of a set's values, or the first and the last part of a range, with the range's
# share at either end; and the share of the records that do not add to errors. The row without a
# cell has the share and the middle of each part, and as `known` the part of what lies between the
# ends of ranges that follows these shares; the rest lies evenly.

_TABLE: Final = (
    "SELECT * FROM json_to_recordset($1::text::json) AS r (attribute text, cell text,"
    " shares float8[], first int4, last int4, own float8, known float8, points text[])"
)

_AMISS: Final = """
SELECT (SELECT count(*) - count(DISTINCT (d.attribute, d.cell)) FROM {0} AS d) + count(*) AS n
FROM {0} AS e
LEFT JOIN {0} AS parts ON parts.attribute = e.attribute AND parts.cell IS NULL
WHERE coalesce(e.attribute = ANY ($1::text[]) AND e.known BETWEEN -1e-6 AND 1 + 1e-6 AND CASE
    WHEN e.shares IS NULL THEN e.first BETWEEN 1 AND e.last
        AND e.last <= cardinality(parts.shares) AND e.own BETWEEN 0 AND 0.5
    ELSE (SELECT abs(sum(s) - 1) < 1e-6 AND min(s) >= 0 FROM unnest(e.shares) AS s)
        AND (e.cell IS NOT NULL OR cardinality(e.points) = cardinality(e.shares))
END, false) IS FALSE
"""

_STRAY: Final = """
SELECT count(*) AS n FROM ({1}) AS c
FULL JOIN (SELECT e.cell, cardinality(e.shares) AS n FROM {0} AS e
           WHERE e.attribute = $1::text AND e.cell IS NOT NULL) AS e ON e.cell = c.cell
WHERE num_nulls(c.cell, e.cell) > 0 OR c.n IS DISTINCT FROM e.n
"""
"""Counts cells without a line, and lines without a cell, or with shares of more or fewer values."""

ShareLine = dict[str, Any]


def write_value_shares(
    staging: StagedRelations,
    written: WrittenCodes,
    cells: Mapping[str, CellDescription],  # the quasi-identifiers, in the view's order
    matches: int | None,
) -> dict[str, WhatIsKnown]:
    """Write the table of shares.

    Each cell covers `matches` originals as tightly as possible or, if that is None, those of all
    records with the same cells. Columns with too many different cells are left out.
    """
    session = staging.session
    session.step("finding the shares of values in cells")
    lines: list[ShareLine] = []
    known: dict[str, WhatIsKnown] = {}
    counted = _counted(session, written, cells, matches)
    for (name, cell), rows in zip(cells.items(), counted, strict=True):
        of_cells = _of_ranges if cell.kind == "range" else _of_sets
        different = None if matches is None else _different(written, name)
        found, own = of_cells(session, cell, rows, different)
        session.heartbeat()
        if own:
            known[name] = found
            lines += [{"attribute": name, **line} for line in own]
    staging.fill_table(SHARES, _TABLE, json.dumps(lines))
    staging.analyze(SHARES)
    return known


def check_value_shares(
    session: Session, view: RowView, schema: str, publication: Publication
) -> Check:
    """Check that each cell has shares, which add up to one: estimates then lie within bounds."""
    layout, shares = publication.layout, publication.layout["shares"]
    tables = CodeTables.of(session, schema, publication.name, layout)
    amiss = fetch_one(session, _AMISS.format(view.shares), list(shares))["n"]
    for described in layout["quasi_identifiers"]:
        name = str(described["name"])
        if name in shares and name in tables.columns:
            cells, *bound = _cells_with_shares(session, tables, described)
            row = fetch_one(session, _STRAY.format(view.shares, cells), name, *bound)
            amiss += row["n"]
    return Check(
        "the shares of the values of each cell add up to one",
        "0 cells differ",
        f"{amiss} cells differ",
        holds=amiss == 0,
    )


def _cells_with_shares(
    session: Session, tables: CodeTables, described: Mapping[str, Any]
) -> tuple[str, *tuple[str, ...]]:
    """Write the cells that have a line in the table, and how many values the sets of texts have."""
    name = str(described["name"])
    value, source = f"t.{session.identifier(name)}", f"{tables.of_column(name)} AS t"
    if described["cell"] == "range":
        shown = f"{value}::text AS cell, NULL::int4 AS n FROM {source}"
        return (f"SELECT {shown} WHERE num_nulls({value}) = 0 AND NOT {is_endless(value)}",)
    members, bound = value, list[str]()
    if described["cell"] == "label":
        kept = "$2::text::jsonb"
        bound.append(json.dumps(described["labels"], ensure_ascii=False))
        members = members_of(value, "l", texts(kept))
        source += f" JOIN ({labels(kept)}) AS l ON l.label = {value}"
    sets = f"SELECT {members} AS members FROM {source} WHERE num_nulls({value}) = 0"
    shown = "s.members::text AS cell, cardinality(s.members) AS n"
    return (f"SELECT DISTINCT {shown} FROM ({sets}) AS s", *bound)


def _counted(
    session: Session,
    written: WrittenCodes,
    cells: Mapping[str, CellDescription],
    matches: int | None,
) -> Iterator[list[Row]]:
    """Count the records of each column's distinct cells; no rows if there are too many."""
    # Among the records that share all cells, at least one has each value of a set and each end of a
    # range, unless the column was coarsened. Where a freeform cell covers as many originals as it
    # has matches, each is as likely to be its own: one in so many records has it.
    for name, cell in cells.items():
        n_records, n_classes = written.counts_of_cells.get(name, (None, None))
        if n_records is None or n_classes is None or n_classes.size > MOST_CELLS:
            yield []
            continue
        place = f"r.{written.tables.code}"
        numbered, (records, its_classes) = with_numbers(
            session, written.tables.of_column(name), (1, place), (2, place)
        )
        value = f"n.{cell.column.sql}"
        witnesses = f"n.{its_classes}"
        if matches is not None:  # not a whole number
            witnesses = f"n.{records} / {matches}::float8"
        shown = {"members": "c.cell"}
        if cell.kind == "range":
            shown = dict(zip(("low", "high"), ends_of(cell, "c.cell"), strict=True))
        listed = ", ".join(f"{sql} AS {alias}" for alias, sql in shown.items())
        where = f"num_nulls({value}) = 0"
        if cell.kind == "range":
            where += f" AND NOT {is_endless(value)}"
        counted = (
            f"(SELECT {value} AS cell, n.{records} AS records,"
            f" ({witnesses})::float8 AS witnesses FROM {numbered} AS n WHERE {where})"
        )
        described = [] if cell.labels is None else [cell.labels]
        if described:
            kept = "$3::text::jsonb"
            members = members_of("c.cell", "l", texts(kept))
            counted = (
                f"(SELECT {members} AS cell, c.records, c.witnesses FROM {counted} AS c"
                f" JOIN ({labels(kept)}) AS l ON l.label = c.cell)"
            )
        with grouping_by_hash(session):
            yield session.fetch(
                f"SELECT c.cell::text AS cell, {listed}, c.records, c.witnesses"
                f" FROM {counted} AS c",
                int4_bytes(n_records),
                int4_bytes(n_classes),
                *described,
            )


def _different(written: WrittenCodes, name: str) -> float:
    """Return the part of the rows that have different cells."""
    n_records, n_classes = written.counts_of_cells.get(name, (np.ones(1), np.ones(1)))
    return float(n_classes.sum() / n_records.sum())


def _column(rows: Sequence[Row], name: str) -> FloatArray:
    return np.array([row[name] for row in rows], dtype=np.float64)


def _of_sets(
    session: Session,  # noqa: ARG001
    cell: CellDescription,
    rows: Sequence[Row],
    different: float | None,
) -> tuple[WhatIsKnown, list[ShareLine]]:
    cells, _ = Sets.number(row["members"] for row in rows)
    records, witnesses = _column(rows, "records").astype(np.int64), _column(rows, "witnesses")
    found = SetDistributions.of(
        cells, records, witnesses, is_tight=cell.is_tight, different=different
    )
    if found is None:
        return "of_each", []
    return "of_each", [
        {"cell": row["cell"], "shares": own.tolist(), "known": known}
        for row, own, known in zip(
            rows, np.split(found.shares, cells.ends[:-1]), found.known.tolist(), strict=True
        )
    ]


def _of_ranges(
    session: Session, cell: CellDescription, rows: Sequence[Row], different: float | None
) -> tuple[WhatIsKnown, list[ShareLine]]:
    low, high = (_column(rows, name) for name in ("low", "high"))
    records, witnesses = _column(rows, "records").astype(np.int64), _column(rows, "witnesses")
    found = RangeDistributions.of(
        low,
        high,
        records,
        witnesses,
        is_tight=cell.is_tight,
        different=different,
        is_discrete=cell.is_discrete,
    )
    if found is None:
        return "of_parts", []
    end = end_at(cell.column.type, "p")
    points = session.fetch(
        f"SELECT array_agg(({end})::text ORDER BY i) AS points"
        " FROM unnest($1::text[]::float8[]) WITH ORDINALITY AS u (p, i)",
        list(map(repr, found.axis.middles.tolist())),
    )
    lines: list[ShareLine] = [
        {
            "shares": found.axis.shares.tolist(),
            "points": list(points[0]["points"]),
            "known": found.trust,
        }
    ]
    lines += [
        {"cell": row["cell"], "first": one, "last": other, "own": own, "known": known}
        for row, one, other, own, known in zip(
            rows,
            (1 + found.first).tolist(),
            (1 + found.last).tolist(),
            found.own.tolist(),
            found.known.tolist(),
            strict=True,
        )
    ]
    return ("of_each" if found.is_each else "of_parts"), lines
