"""Whether a view shows the cells that were made, by the numbers that these have in Python.

Values are checked against numbered cells (:mod:`~kanon_db.publications.rows.all_matches`). So the
server looks up the number of each cell of the view, and the rows of numbers are compared.
"""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.counting.layout import RowView
from kanon_db.publications.results import Check
from kanon_db.publications.rows.cell_table import CellColumn, CellTable
from kanon_db.publications.rows.numbered_rows import packed_rows, packing
from kanon_db.session import Session, fetch_one
from kanon_db.session.settings import grouping_by_hash, joining_by_hash
from kanon_db.transfer.columns import parts_of


def check_cells(session: Session, view: RowView, table: CellTable) -> Check:
    """Check that the view shows the cells that were made, each combination of them once.

    Parameters
    ----------
    session : Session
    view : RowView
    table : CellTable
        The columns' cells are looked up in their own tables, not in that of the combinations.
    """
    bases = [1 + column.n_cells for column in table.columns.values()]
    expected, digits, joins = [], [], ""
    for i, (name, column) in enumerate(table.columns.items()):
        first = _first_numbers(session, column)
        expected.append(first[column.of_combination])
        cells, number, cell = f"{column.table} AS c", f"c.{column.number}", f"c.{column.cell}"
        looked_up = f"(SELECT {number} AS number, {cell} AS cell FROM {cells})"
        if (first < np.arange(column.n_cells)).any():
            looked_up = f"(SELECT min({number}) AS number, {cell} AS cell FROM {cells} GROUP BY 2)"
        joins += f" LEFT JOIN {looked_up} AS p{i} ON v.{name} OPERATOR(pg_catalog.=) p{i}.cell"
        null = f"(SELECT min({number}) FROM {cells} WHERE num_nulls({cell}) = 1)"
        digits.append(
            f"coalesce(p{i}.number, CASE WHEN num_nulls(v.{name}) = 1 THEN {null} END, -1) + 1"
        )
    sent = []
    for start, end in packing(bases):
        digit = digits[start]
        for i in range(start + 1, end):
            digit = f"({digit})::int8 * {bases[i]} + {digits[i]}"
        sent.append(f"int8send({digit})")
    found = [np.empty((0, len(sent)), dtype=np.int64)]
    for part in parts_of(session, view.view, table.n_combinations, "v"):
        with joining_by_hash(session):
            row = fetch_one(
                session,
                f"SELECT string_agg({' || '.join(sent)}, ''::bytea) AS numbers"
                f" FROM {view.view} AS v{joins} WHERE {part}",
            )
        numbers = np.frombuffer(row["numbers"] or b"", dtype=">i8").astype(np.int64)
        found.append(numbers.reshape(-1, len(sent)))
    shown = _in_order(np.concatenate(found))
    del found, row, numbers
    made = packed_rows(bases, [], np.arange(table.n_combinations), expected)
    del expected
    same = np.array_equal(shown, _in_order(np.column_stack(made)))
    return Check(
        "the view shows the cells that were made",
        "the same combinations",
        f"{'the same' if same else 'other'} combinations",
        holds=same,
    )


def _first_numbers(session: Session, column: CellColumn) -> AnyIntArray:
    """Return, for each number of a cell, the least one of those that look the same.

    They may be of different codes: where two labels of a hierarchy have the same text, for example.
    """
    numbers = np.arange(column.n_cells, dtype=np.min_scalar_type(-1 - column.n_cells))
    cells, number = f"{column.table} AS c", f"c.{column.number}"
    with grouping_by_hash(session):
        found = session.fetch(
            f"SELECT {number} AS number, d.first FROM (SELECT c.{column.cell} AS cell,"
            f" min({number}) AS first FROM {cells} GROUP BY 1 HAVING count(*) > 1) AS d"
            f" JOIN {cells} ON c.{column.cell} OPERATOR(pg_catalog.=) d.cell"
        )
    for row in found:
        numbers[row["number"]] = row["first"]
    return numbers


def _in_order(rows: AnyIntArray) -> AnyIntArray:
    return rows[np.lexsort(rows.T)]
