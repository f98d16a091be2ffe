"""One consistent copy of a source's published columns, private to the transaction."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Final, Literal

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray, IntArray
from kanon_db.errors import (
    DatabaseError,
    InfeasibleError,
    PermissionDeniedError,
    SchemaMismatchError,
)
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.session.server_errors import INSUFFICIENT_PRIVILEGE, withheld
from kanon_db.transfer.columns import ColumnType, Relation, selected
from kanon_db.transfer.labels import fixed_labels, label

MAX_RECORDS = 50_000_000
"""Whole columns go into numpy arrays, whose positions are numbers of 4 bytes."""

_ROW_HEADER: Final = 28
"""Bytes that a row takes in a table beside its values."""


@dataclass(frozen=True)
class Size:
    """How much there is to read.

    Attributes
    ----------
    n_records : int
    width : float
        Bytes of a row of a table, its header included.
    """

    n_records: int
    width: float


@dataclass(frozen=True)
class Snapshot:
    """A temporary table ``(record, columns…)`` with records numbered from 0.

    Everything is computed from this copy: each SQL statement of a READ COMMITTED transaction sees
    a newer state of the source, and LOCK … IN SHARE MODE would need more rights than SELECT.
    """

    session: Session
    table: str
    record: str
    n_records: int

    def size(self) -> Size:
        """Return how much was read, as the server has stored it."""
        row = fetch_one(
            self.session, "SELECT pg_table_size(to_regclass($1::text)) AS bytes", self.table
        )
        return Size(self.n_records, int(row["bytes"]) / self.n_records)

    def drop(self) -> None:
        """Remove the copy before the transaction ends."""
        self.session.fetch(f"DROP TABLE {self.table}")


@dataclass(frozen=True)
class DistinctValues:
    """The distinct values of a column of a snapshot, in their type's order.

    Attributes
    ----------
    column : ColumnType
    table : str
        Temporary table ``(code, value)``, quoted.
    labels : list of (str or None)
        The values' texts, None for NULL; ``labels[code]``.
    counts : ndarray of int64, shape (n_values,)
        Records of each value.
    """

    session: Session
    column: ColumnType
    table: str
    labels: list[str | None]
    counts: IntArray

    def drop(self) -> None:
        """Remove the table before the transaction ends."""
        self.session.fetch(f"DROP TABLE {self.table}")


def expected_size(session: Session, source: Relation, columns: Sequence[str]) -> Size:
    """Ask the server's planner how much there is to read, without reading it.

    Raises
    ------
    PermissionDeniedError
        As :func:`take_snapshot`.
    """
    names = selected(session, source, columns)
    with _all_rows(session, source):
        (row,) = session.fetch(
            f"EXPLAIN (FORMAT JSON) SELECT {names} FROM {source.quoted(session)}"
        )
    (plan,) = row.values()
    (planned,) = json.loads(plan) if isinstance(plan, str) else plan
    return Size(planned["Plan"]["Plan Rows"], planned["Plan"]["Plan Width"] + _ROW_HEADER)


def count_records(session: Session, source: Relation) -> int:
    """Count the rows of a source.

    Raises
    ------
    PermissionDeniedError
        As :func:`take_snapshot`.
    """
    session.step("counting the rows of the source")
    with _all_rows(session, source):
        row = fetch_one(session, f"SELECT count(*) AS n FROM {source.quoted(session)}")
    return int(row["n"])


def take_snapshot(
    session: Session, source: Relation, columns: Sequence[str], most: int = MAX_RECORDS
) -> Snapshot:
    """Copy the columns of all rows of `source` in one statement.

    Parameters
    ----------
    most : int
        How many rows may be copied.

    Raises
    ------
    PermissionDeniedError
        When the role lacks SELECT, or row-level security would hide rows from it.
    InfeasibleError
        When the source has no rows, or more than `most`; no more than one row above is copied.
    """
    session.step("reading the source")
    suffix = secrets.token_hex(8)
    table = session.identifier("pg_temp", f"kanon_snapshot_{suffix}")
    record = session.identifier(f"kanon_record_{suffix}")
    names = selected(session, source, columns)
    with _all_rows(session, source):
        session.fetch(
            f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS"
            f" SELECT (row_number() OVER ())::int4 - 1 AS {record}, {names}"
            f" FROM {source.quoted(session)} LIMIT {most + 1}"
        )
    n_records = int(fetch_one(session, f"SELECT count(*) AS n FROM {table}")["n"])
    if n_records > most:
        raise InfeasibleError(
            "the source has too many rows",
            detail=f"{source} has more than {most:,} rows, which is all that may be read",
            hint="read a part of it, through a view; docs/operation.md says what limits it",
        )
    if n_records == 0:
        raise InfeasibleError("the source has no rows", detail=f"relation {source}")
    return Snapshot(session, table, record, n_records)


@contextmanager
def _all_rows(session: Session, source: Relation) -> Iterator[None]:
    """Read a source in the block, whole: refuse where the role may not read all of its rows."""
    # With row_security off a query fails where a policy would silently leave rows out.
    (before,) = session.fetch("SELECT current_setting('row_security') AS value")
    session.fetch("SELECT set_config('row_security', 'off', true)")
    try:
        with session.savepoint():
            yield
    except DatabaseError as error:
        if error.sqlstate != INSUFFICIENT_PRIVILEGE:
            raise withheld(error.sqlstate) from None
        _require_unrestricted(session)
        raise PermissionDeniedError(
            "not all of the source can be read",
            detail=f"relation {source}",
            hint="this needs SELECT on the columns, TEMPORARY on the database, and no "
            "row-level security policy that applies to the role (be the owner, or have BYPASSRLS)",
        ) from None
    session.fetch("SELECT set_config('row_security', $1::text, true)", before["value"])


def _require_unrestricted(session: Session) -> None:
    """Refuse to run where PostgreSQL allows nobody to create a temporary table."""
    (may,) = session.fetch("SELECT has_database_privilege(current_database(), 'TEMP') AS create")
    if not may["create"]:
        return
    try:
        with session.savepoint():
            table = session.identifier("pg_temp", f"kanon_none_{secrets.token_hex(8)}")
            session.fetch(f"CREATE TEMPORARY TABLE {table} () ON COMMIT DROP")
    except DatabaseError as error:
        if error.sqlstate == INSUFFICIENT_PRIVILEGE:
            raise PermissionDeniedError(
                "this operation cannot be part of a security-restricted one",
                detail="such as REFRESH MATERIALIZED VIEW, CREATE INDEX or ANALYZE, in which"
                " PostgreSQL creates no temporary tables",
                hint="call it in a statement of its own",
            ) from None
        raise


def distinct_values(snapshot: Snapshot, column: ColumnType) -> DistinctValues:
    """Count the distinct values of a snapshot's column, and number them in order, NULL last."""
    session = snapshot.session
    session.step("counting values")
    name = session.identifier(column.name)
    table = session.identifier("pg_temp", f"kanon_values_{secrets.token_hex(8)}")
    # GROUP BY and ORDER BY use the type's own equality and order, whatever the search path is.
    with fixed_labels(session):
        session.fetch(
            f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS"
            " SELECT (row_number() OVER (ORDER BY value))::int4 - 1 AS code, value, records,"
            f" {label('value')} AS label"
            f" FROM (SELECT {name} AS value, count(*) AS records FROM {snapshot.table}"
            f" GROUP BY {name}) AS counted"
        )
    rows = session.fetch(f"SELECT label, records FROM {table} ORDER BY code")
    return DistinctValues(
        session=session,
        column=column,
        table=table,
        labels=[row["label"] for row in rows],
        counts=np.array([row["records"] for row in rows], dtype=np.int64),
    )


def read_codes(snapshot: Snapshot, columns: Sequence[DistinctValues]) -> CodeArray:
    """Return the code of each record's value in each column, shape (n_records, n_columns)."""
    codes = read_known_codes(snapshot, columns)
    for values, column_codes in zip(columns, codes.T, strict=True):
        if column_codes.min() < 0:
            raise SchemaMismatchError(
                "a column's equality is not consistent",
                detail=f'column "{values.column.name}": GROUP BY and = disagree on its values',
                hint="publish a view that casts the column to text",
            )
    return codes


def read_known_codes(snapshot: Snapshot, columns: Sequence[DistinctValues]) -> CodeArray:
    """Return the code of each record's value in each column, -1 for a value that is not listed.

    The listed values may come from another relation, whose columns have these names and types.
    """
    codes = np.empty((snapshot.n_records, len(columns)), dtype=np.int32)
    start = 0
    while start < len(columns):
        end = start + 1
        # As many columns as fit become digits of one number: one pass, a few bytes for each record.
        while end < len(columns) and _n_numbers(columns[start : end + 1]) <= _MOST_NUMBERS:
            end += 1
        _read_digits(snapshot, columns[start:end], codes[:, start:end])
        start = end
    return codes


_MOST_NUMBERS: Final = 2**63


def _n_numbers(columns: Sequence[DistinctValues]) -> int:
    """Return how many numbers the codes of several columns can form; a digit 0 means no code."""
    return prod(len(values.labels) + 1 for values in columns)


def _read_digits(snapshot: Snapshot, columns: Sequence[DistinctValues], codes: CodeArray) -> None:
    session = snapshot.session
    session.step("reading values")
    number, joins = "0", []
    kind: Literal["int4", "int8"] = "int4" if _n_numbers(columns) <= _MOST_NUMBERS >> 32 else "int8"
    for position, values in enumerate(columns):
        alias, name = f"v{position}", f"s.{session.identifier(values.column.name)}"
        code = coalesced_codes(name, values, alias)
        number = f"({number}) * {len(values.labels) + 1}::{kind} + {code} + 1"
        equal = values.column.operator(session, "=")
        joins.append(f"LEFT JOIN {values.table} AS {alias} ON {name} {equal} {alias}.value")
    numbers = read_integers(snapshot, number, " ".join(joins), kind=kind)
    for values, column in zip(reversed(columns), reversed(codes.T), strict=True):
        numbers, digits = np.divmod(numbers, len(values.labels) + 1)
        column[:] = digits - 1


def coalesced_codes(value: str, values: DistinctValues, alias: str) -> str:
    """Return SQL for the code of the value that an expression gives, -1 if it has none.

    ``alias`` is the alias of the table of codes, joined with the row of the value, if it has one.
    """
    null_code = values.labels.index(None) if None in values.labels else -1
    return f"coalesce({alias}.code, CASE WHEN num_nulls({value}) = 0 THEN -1 ELSE {null_code} END)"


def read_integers(
    snapshot: Snapshot, expression: str, joins: str = "", *, kind: Literal["int4", "int8"] = "int4"
) -> CodeArray | IntArray:
    """Return a whole number for each record of the snapshot ``s``, shape (n_records,)."""
    row = fetch_one(
        snapshot.session,
        # Record and number are sent together, so that nothing depends on the order of rows.
        f"SELECT string_agg(int4send(s.{snapshot.record}) || {kind}send({expression}), ''::bytea)"
        f" AS pairs FROM {snapshot.table} AS s {joins}",
    )
    number = np.dtype(np.int32 if kind == "int4" else np.int64)
    pair = np.dtype([("record", ">i4"), ("number", number.newbyteorder(">"))])
    pairs = np.frombuffer(row["pairs"], dtype=pair)
    numbers = np.empty(snapshot.n_records, dtype=number)
    numbers[pairs["record"]] = pairs["number"]
    return numbers


def read_numbers(values: DistinctValues) -> FloatArray | None:
    """Return each distinct value of a column as a number, shape (n_values,).

    Dates and times are in seconds; NULL, which comes last, is NaN. The result is None for columns
    of other types, and for columns with an infinite value.
    """
    expression = values.column.number("value")
    if expression is None:
        return None
    row = fetch_one(
        values.session,
        f"SELECT string_agg(float8send({expression}), ''::bytea ORDER BY code) AS numbers"
        f" FROM {values.table}",
    )
    has_null = None in values.labels
    numbers = np.full(len(values.labels), np.nan)
    numbers[: numbers.size - has_null] = np.frombuffer(row["numbers"] or b"", dtype=">f8")
    return numbers if np.isfinite(numbers[: numbers.size - has_null]).all() else None
