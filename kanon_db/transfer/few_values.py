"""Columns with few values: which records have each of them, of all columns in one pass."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from kanon_db.session.protocol import fetch_one
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.snapshot import Snapshot
from kanon_db.transfer.values import (
    CodedColumn,
    distinct_values,
    least_type,
    number_values,
    read_codes,
)
from kanon_db.transfer.whole_numbers import are_close, read_whole_numbers

_SAMPLE: Final = 10_000
"""Number of records in which we look for columns with too many values."""

_FEW: Final = 1000
"""Values in the sample: a group of records has a buffer of its own, of a kilobyte at least."""

MOST_GROUPED: Final = 31
"""The number of columns that PostgreSQL's GROUPING() can take."""

_MOST_GROUPED_BYTES: Final = 1 << 28
"""Size of the positions of all values, which the server collects in memory: 4 bytes for each, and
as much again when its buffers grow by doubling."""


_MOST_NAMED: Final = 1 << 27
"""Records whose numbers fit into one value of the server, which may have a gigabyte."""


def read_few_values(
    snapshot: Snapshot, columns: Sequence[ColumnType], most: int
) -> dict[str, CodedColumn]:
    """Read the columns that have few values.

    Parameters
    ----------
    snapshot : Snapshot
    columns : sequence of ColumnType
        Each with an equality and an order.
    most : int
        How many values are few, in a sample; altogether a column may have more.

    Returns
    -------
    dict of str to CodedColumn
        By name, in the order of `columns`.
    """
    n_values = count_in_sample(snapshot, columns)
    few = [column for column in columns if n_values[column.name] <= most]
    found = _read_few(snapshot, few)
    return {column.name: found[column.name] for column in few}


def read_columns(
    snapshot: Snapshot, columns: Sequence[ColumnType], n_values: Mapping[str, int]
) -> dict[str, CodedColumn]:
    """Read columns, whatever number of values they have.

    Parameters
    ----------
    snapshot : Snapshot
    columns : sequence of ColumnType
        Each with an equality and an order.
    n_values : mapping of str to int
        How many values they have in a sample; see :func:`count_in_sample`.

    Returns
    -------
    dict of str to CodedColumn
        By name, in the order of `columns`.

    Raises
    ------
    InfeasibleError, SchemaMismatchError
        As :func:`distinct_values` and :func:`read_codes`.
    """
    found = _read_few(
        snapshot,
        [
            column
            for column in columns
            if n_values[column.name] <= _FEW or are_close(snapshot.ends, column)
        ],
    )
    others = [column for column in columns if column.name not in found]
    values = [distinct_values(snapshot, column) for column in others]
    if values:
        for each, codes in zip(values, read_codes(snapshot, values).T, strict=True):
            found[each.column.name] = CodedColumn(each, codes.astype(least_type(each)))
    return {column.name: found[column.name] for column in columns}


def _read_few(snapshot: Snapshot, few: Sequence[ColumnType]) -> dict[str, CodedColumn]:
    close = [column for column in few if are_close(snapshot.ends, column)]
    found = read_whole_numbers(snapshot, close)
    few = [column for column in few if column.name not in found]
    if snapshot.n_records > _MOST_NAMED:
        return found | {column.name: _looked_up(snapshot, column) for column in few}
    at_once = most_grouped(snapshot.n_records)
    for start in range(0, len(few), at_once):
        found |= _grouped(snapshot, few[start : start + at_once])
    return found


def most_grouped(n_records: int) -> int:
    """Return how many columns of a table of so many records are read by one statement."""
    return min(MOST_GROUPED, max(1, _MOST_GROUPED_BYTES // (8 * n_records)))


def most_bytes_read(n_records: int, n_columns: int) -> float:
    """Return how much memory the server takes at most for the columns that it reads at once."""
    return 8.0 * n_records * min(n_columns, most_grouped(n_records))


def count_in_sample(snapshot: Snapshot, columns: Sequence[ColumnType]) -> dict[str, int]:
    """Count the values that each column has in some records from all over the table.

    NULL is not counted.
    """
    counts = ", ".join(
        f"count(DISTINCT {snapshot.session.identifier(column.name)})" for column in columns
    )
    row = fetch_one(
        snapshot.session,
        f"SELECT ARRAY[{counts}] AS n_values FROM (SELECT * FROM {snapshot.table}"
        f" WHERE {snapshot.record} % greatest(1, $1::int4 / {_SAMPLE}) = 0) AS sample",
        str(snapshot.n_records),
    )
    return {column.name: n for column, n in zip(columns, row["n_values"], strict=True)}


def _grouped(snapshot: Snapshot, columns: Sequence[ColumnType]) -> dict[str, CodedColumn]:
    """Collect the records of all values of all columns in one pass."""
    session = snapshot.session
    session.step("reading values")
    collected = session.identifier("pg_temp", f"kanon_places_{secrets.token_hex(8)}")
    names = [f"s.{session.identifier(column.name)}" for column in columns]
    select = (
        f"SELECT grouping({', '.join(names)}) AS grouped_by,"
        f" {', '.join(f'{name} AS value_{i}' for i, name in enumerate(names))},"
        f" count(*) AS records, string_agg(int4send(s.{snapshot.record}), ''::bytea) AS places"
        f" FROM {snapshot.table} AS s"
        f" GROUP BY GROUPING SETS ({', '.join(f'({name})' for name in names)})"
    )
    session.fetch(f"CREATE TEMPORARY TABLE {collected} ON COMMIT DROP AS {select} WITH NO DATA")
    # Compressing takes longer than writing what it saves.
    session.fetch(f"ALTER TABLE {collected} ALTER places SET STORAGE EXTERNAL")
    session.fetch(f"INSERT INTO {collected} {select}")
    found = {}
    # GROUPING has a 1 for each column that is *not* grouped by; the first is the highest bit.
    everything = (1 << len(columns)) - 1
    for i, column in enumerate(columns):
        grouped_by = everything ^ (1 << len(columns) - 1 - i)
        values = number_values(
            snapshot,
            column,
            f"SELECT value_{i} AS value, records FROM {collected} WHERE grouped_by = {grouped_by}",
        )
        codes = np.empty(snapshot.n_records, dtype=least_type(values))
        rows = session.stream(
            1,
            f"SELECT places FROM {collected} WHERE grouped_by = {grouped_by} ORDER BY value_{i}",
        )
        for code, row in enumerate(rows):
            codes[np.frombuffer(row["places"], dtype=">i4")] = code
        found[column.name] = CodedColumn(values, codes)
    session.fetch(f"DROP TABLE {collected}")
    return found


def _looked_up(snapshot: Snapshot, column: ColumnType) -> CodedColumn:
    """Count the values of a column, and then look up that of each record."""
    values = distinct_values(snapshot, column)
    codes = read_codes(snapshot, [values])[:, 0]
    return CodedColumn(values, codes.astype(least_type(values)))
