"""Whether originals lie in all the cells that their records match, not only in the published ones.

A record has k matches, so that there are k times as many pairs of an original and its cell as
records. But few different values occur with few different cells of their column, and whether a
value lies in a cell is the same for all records. So the server says of each value and cell that
occur together whether the one covers the other. Which value each record has, it is asked again
where there is a copy of the source; what was read as codes, by one statement, is not read again,
since the source may have changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, CodeArray, IntArray
from kanon_db.algorithms.ground.distinct import distinct
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.ground.threads import in_threads, n_cores
from kanon_db.publications.rows.cell_table import CellColumn, CellTable
from kanon_db.publications.rows.cells import GeneralizedColumn
from kanon_db.session import Session, fetch_one
from kanon_db.session.settings import roomy
from kanon_db.transfer.columns import int4_bytes, with_numbers
from kanon_db.transfer.labels import fixed_labels

_MOST_MARKS: Final = 1 << 26
"""Pairs of a value and a cell that may each have a byte."""

_AT_ONCE: Final = 1 << 18
"""Pairs that are sent to the server at a time."""

_BLOCK: Final = 1 << 17
"""Records whose pairs are looked at together."""


def count_outside(
    session: Session,
    codes: Sequence[AnyIntArray],
    columns: Sequence[GeneralizedColumn],
    table: CellTable,
    assignments: CodeArray,
) -> int:
    """Count the records with an original value that is not in the cell of an assignment.

    Parameters
    ----------
    session : Session
    codes : sequence of ndarray of int, shape (n_records,)
        What value of each column each record has; -1 for one that is not listed.
    columns : sequence of GeneralizedColumn
        In the order of the table's.
    table : CellTable
    assignments : ndarray of int32, shape (k, n_records)
        The combination of cells of each record, in each assignment.

    Returns
    -------
    int
        Of all assignments together.
    """
    session.step("checking each original value")
    outside = [np.zeros(0, dtype=np.int64)]  # numbers of pairs of an assignment and a record
    for own, column, cells in zip(codes, columns, table.columns.values(), strict=True):
        found, is_unknown = _outside(session, column, cells, own, assignments), own < 0
        for number, one in enumerate(assignments) if found.size or is_unknown.any() else ():
            keys = _keys(own, cells, one, len(column.values.labels))
            own_outside = np.flatnonzero(is_unknown | np.isin(keys, found))
            outside.append(number * own.size + own_outside)
    return distinct(np.concatenate(outside)).size


def _outside(
    session: Session,
    column: GeneralizedColumn,
    cells: CellColumn,
    codes: AnyIntArray,
    assignments: CodeArray,
) -> IntArray:
    """Return the keys of values and cells that occur together, and do not belong together."""
    n_values = len(column.values.labels)
    name, low, high = "shown", "low", "high"  # a column's own name could be one of the others
    ends = "".join(f", {sql} AS {end}" for sql, end in column.ends(name, low, high))
    found = [np.zeros(0, dtype=np.int64)]
    for keys in _occurring(session, codes, cells, assignments, n_values):
        numbers, values = np.divmod(keys, n_values)
        pairs, (number, code) = with_numbers(
            session, "(SELECT generate_series(0, $3::int4 - 1) AS i)", (1, "r.i"), (2, "r.i")
        )
        with fixed_labels(session), roomy(session):
            row = fetch_one(
                session,
                # Pairs are joined first: a condition on values and cells would compare all of them.
                "SELECT string_agg(int4send(u.i), ''::bytea)"
                f" FILTER (WHERE NOT ({column.covers(name, low, high)})) AS found FROM {pairs} AS u"
                f" JOIN (SELECT v.code, v.value AS {name} FROM {column.values.table} AS v) AS s"
                f" ON s.code = u.{code}"
                f" JOIN (SELECT c.*{ends} FROM (SELECT p.{cells.number} AS number,"
                f" p.{cells.cell} AS {name} FROM {cells.table} AS p) AS c OFFSET 0) AS c"
                f" ON c.number = u.{number}",
                int4_bytes(numbers),
                int4_bytes(values),
                str(keys.size),
            )
        found.append(keys[np.frombuffer(row["found"] or b"", dtype=">i4")])
    return np.concatenate(found)


def _occurring(
    session: Session,
    codes: AnyIntArray,
    cells: CellColumn,
    assignments: CodeArray,
    n_values: int,
) -> Iterator[IntArray]:
    """Return the keys of values and cells that occur together, some at a time."""
    n_keys = cells.n_cells * n_values
    pulse = Pulse(heartbeat=session.heartbeat)

    def keys_of(some: slice, pulse: Pulse) -> Iterator[IntArray]:
        own = codes[some]
        is_known = own >= 0
        for one in assignments:
            pulse.beat()
            yield _keys(own[is_known], cells, one[some][is_known], n_values)

    if n_keys <= _MOST_MARKS:
        marks: BoolArray = np.zeros(n_keys, dtype=np.bool_)

        def mark(some: slice, pulse: Pulse) -> None:
            for keys in keys_of(some, pulse):
                marks[keys] = True

        blocks = [slice(start, start + _BLOCK) for start in range(0, codes.size, _BLOCK)]
        in_threads(mark, blocks, n_cores(), pulse)
        occurring: AnyIntArray = np.flatnonzero(marks).astype(np.int32)
    else:
        occurring = np.zeros(0, dtype=np.int64)
        for keys in keys_of(slice(None), pulse):
            occurring = distinct(np.concatenate([occurring, distinct(keys)]))
    for start in range(0, occurring.size, _AT_ONCE):
        yield occurring[start : start + _AT_ONCE].astype(np.int64)


def _keys(codes: AnyIntArray, cells: CellColumn, one: AnyIntArray, n_values: int) -> IntArray:
    keys: IntArray = cells.of_combination[one].astype(np.int64) * n_values + codes
    return keys
