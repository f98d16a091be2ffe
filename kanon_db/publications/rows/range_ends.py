"""Where ranges begin and end, for columns with too many different ones to number them.

A cell of the table of classes holds all ranges of a column; each class has where its own begins and
ends in it. So a condition on the column is tried once for each value in that cell, not for each
range.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.counting.layout import ClassTable
from kanon_db.counting.read_pieces import ANYTHING, BEGINS
from kanon_db.counting.writing.cell_values import holds_anything, is_endless
from kanon_db.publications.rows.cell_table import CellColumn
from kanon_db.publications.rows.numbered_rows import NumberedRows
from kanon_db.publications.rows.numbering import Numbering
from kanon_db.session import Session, fetch_one

_FIRST_DAY: Final = "'2000-01-01'::date"
_PLACES: Final = {
    "int4range": ("{}::int8", "{}::int4"),
    "int8range": ("{}", "{}"),
    "daterange": (f"({{}} - {_FIRST_DAY})::int8", f"({_FIRST_DAY} + ({{}})::int4)"),
}
"""A value as a whole number, and the other way round, by the type of the ranges."""

_MOST: Final = 1 << (BEGINS - 1)
_LARGEST: Final = 1 << 61

_NULL, _RANGE, _ANYTHING, _ODD = range(4)
_ENDS: Final = [("number", ">i4"), ("kind", ">i4"), ("low", ">i8"), ("high", ">i8")]


def write_ends(
    numbering: Numbering, name: str, cells: CellColumn, records: IntArray
) -> AnyIntArray | None:
    """Write the cell that holds all ranges of a column.

    Parameters
    ----------
    numbering : Numbering
    name : str
    cells : CellColumn
        The distinct ranges.
    records : ndarray of int64, shape (n_cells,)
        How many rows have each.

    Returns
    -------
    ndarray of int64, shape (n_cells + 1,), or None
        Of each, its code (:class:`~kanon_db.counting.layout.ClassTable`), and -1 for suppressed
        cells; None if they are no ranges of whole numbers or days, or one has no end.
    """
    session, table = numbering.session, numbering.table
    type_ = numbering.type_of(name)
    if type_ not in _PLACES:
        return None
    place, value = _PLACES[type_]
    sql = f"c.{cells.cell}"
    kind = (
        f"CASE WHEN num_nulls({sql}) = 1 THEN {_NULL}"
        f" WHEN {holds_anything(sql)} THEN {_ANYTHING}"
        f" WHEN {is_endless(sql)} OR isempty({sql}) THEN {_ODD}"
        f" ELSE {_RANGE} END"
    )
    low, high = (f"coalesce({place.format(f'{end}({sql})')}, 0)" for end in ("lower", "upper"))
    row = fetch_one(
        session,
        f"SELECT string_agg(int4send(c.{cells.number}) || int4send({kind}) || int8send({low})"
        f" || int8send({high}), ''::bytea) AS ends FROM {cells.table} AS c",
    )
    read = np.frombuffer(row["ends"], dtype=_ENDS)
    found = np.zeros(cells.n_cells, dtype=read.dtype)
    found[read["number"]] = read
    used = records > 0
    there = used & (found["kind"] == _RANGE)
    begins, ends = (found[end][there].astype(np.int64) for end in ("low", "high"))
    if not begins.size or (found["kind"][used] == _ODD).any():
        return None
    least, most = int(begins.min()), int(ends.max())
    if max(-least, most) > _LARGEST or most - least >= _MOST:
        return None
    column = session.identifier(name)
    of_all = ", ".join(value.format(f"${n}::int8") for n in (3, 4))
    session.fetch(
        f"INSERT INTO {table.table} ({table.attribute}, {table.number}, {table.records},"
        f" {table.hidden}, {column})"
        f" SELECT $1::text, 0, $2::int8, false, {type_}({of_all})",
        name, str(int(records.sum())), str(least), str(most),
    )  # fmt: skip
    codes = np.full(1 + cells.n_cells, -1, dtype=np.int64)
    codes[:-1][used] = np.where(found["kind"][used] == _ANYTHING, ANYTHING, 0)
    codes[:-1][there] = (begins - least) << BEGINS | (ends - least)
    return codes


def count_loose_ends(session: Session, table: ClassTable, rows: NumberedRows) -> int:
    """Count the columns whose cell of all ranges is not the smallest one, or is not there."""
    differing = 0
    for name, codes in zip(rows.cells, rows.of_classes, strict=True):
        if name not in rows.ends:
            continue
        sql = f"t.{session.identifier(name)}"
        (found,) = session.fetch(
            f"SELECT min(upper({sql}) - lower({sql}))::int8 AS n FROM {table.table} AS t"
            f" WHERE t.{table.attribute} = $1::text AND t.{table.codes} IS NULL",
            name,
        )
        ends = codes & ((1 << BEGINS) - 1)
        there = codes[ends > 0]
        differing += int((there >> BEGINS).min()) != 0 or int(ends.max()) != found["n"]
    return differing
