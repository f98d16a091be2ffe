"""Reads the values of a snapshot's columns, as codes and as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final, Literal, NamedTuple, Self

import numpy as np

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    CodeArray,
    FloatArray,
    IntArray,
    sort_keys,
)
from kanon_db.dataclasses import dataclass
from kanon_db.errors import SchemaMismatchError
from kanon_db.session.protocol import Session, Value, fetch_one, temporary_table
from kanon_db.transfer.columns import ColumnType, fix_labels, label
from kanon_db.transfer.snapshot import MOST_BYTES, Records, Snapshot, too_long

_BATCH_BYTES: Final = 1 << 24
"""Texts that are fetched at once."""

_BYTES_OF_VALUE: Final = 100
"""Bytes that Python takes for a value and its count, without the text (measured)."""

_TIMES_TEXT: Final = 1.5
"""Bytes that Python takes for a byte of text (measured)."""


@dataclass(frozen=True)
class DistinctValues:
    """The distinct values of a column of a snapshot, in their type's order."""

    session: Session
    column: ColumnType
    table: str  # Temporary table ``(code, value)``, quoted
    labels: list[str | None]  # The values' texts, None for NULL; ``labels[code]``
    counts: IntArray  # (n_values,): records of each value

    def drop(self) -> None:
        """Remove the table before the transaction ends."""
        self.session.fetch(f"DROP TABLE {self.table}")


@dataclass(frozen=True, eq=False)
class CodedColumn:
    """A column with few values."""

    values: DistinctValues
    # (n_records,): the code of each record's value, in as few bytes as these take
    codes: AnyIntArray


class RankedColumn(NamedTuple):
    """A column with any number of values, which stay on the server; in order, NULL last.

    Of :func:`number_column`, they are in no order if it is not asked for.
    """

    name: str
    table: str  # temporary table ``(code, value)``, quoted
    n_values: int
    codes: AnyIntArray  # (n_records,)
    is_comparable: bool = True  # Otherwise, it is only told apart who has a value

    @classmethod
    def of(cls, column: CodedColumn, codes: AnyIntArray | None = None) -> Self:
        """Take the values of a column with few."""
        values = column.values
        return cls(
            values.column.name,
            values.table,
            len(values.labels),
            column.codes if codes is None else codes,
        )


@dataclass(frozen=True, eq=False)
class DistinctCombinations:
    """The distinct combinations of values that records have in some columns, in their order.

    Of one column, they are its values.
    """

    columns: tuple[DistinctValues, ...]
    values: IntArray  # (n_combinations, n_columns): the code of each column's value
    counts: IntArray  # (n_combinations,): records of each combination
    table: str  # Temporary table with the ``code`` of each and its ``values_in``, quoted

    @classmethod
    def of(
        cls, columns: Sequence[DistinctValues], codes: Sequence[AnyIntArray]
    ) -> tuple[Self, CodeArray]:
        """Find the combinations that records have, and give them numbers.

        `codes`: (n_records,) of each column; returns each record's combination too, int32.
        """
        if len(columns) == 1:
            own = columns[0]
            values = np.arange(own.counts.size)[:, np.newaxis]
            return cls((own,), values, own.counts, own.table), codes[0].astype(np.int32, copy=False)
        keys: AnyIntArray = sort_keys(codes)
        _, firsts, numbers, counts = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
        values = np.column_stack([of_column[firsts] for of_column in codes]).astype(np.int64)
        session = columns[0].session
        table = temporary_table(session, "values")
        places = range(len(columns))
        session.fetch(
            f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS SELECT (c.code - 1)::int4 AS code, "
            + ", ".join(f"v{i}.value AS value_{i}" for i in places)
            + f" FROM unnest({', '.join(f'${i + 1}::text[]::int4[]' for i in places)})"
            f" WITH ORDINALITY AS c ({', '.join(f'k{i}' for i in places)}, code) "
            + " ".join(
                f"JOIN {own.table} AS v{i} ON v{i}.code = c.k{i}" for i, own in enumerate(columns)
            ),
            *([str(code) for code in of_column] for of_column in values.T.tolist()),
        )
        combinations = cls(tuple(columns), values, counts.astype(np.int64), table)
        return combinations, numbers.astype(np.int32)

    def values_in(self, alias: str) -> list[str]:
        """Return SQL for the value of each column, in a row of the table."""
        if len(self.columns) == 1:
            return [f"{alias}.value"]
        return [f"{alias}.value_{i}" for i in range(len(self.columns))]

    def drop(self) -> None:
        """Remove the tables before the transaction ends."""
        for column in self.columns:
            column.drop()
        if len(self.columns) > 1:
            self.columns[0].session.fetch(f"DROP TABLE {self.table}")


def least_type(values: DistinctValues) -> np.dtype[np.unsignedinteger]:
    """Return the type of the fewest bytes that holds the codes of these values."""
    return np.dtype(np.min_scalar_type(max(len(values.labels) - 1, 0)))


def distinct_values(snapshot: Snapshot, column: ColumnType) -> DistinctValues:
    """Count the distinct values of a snapshot's column, and number them in order, NULL last.

    Raises InfeasibleError for lack of memory, or a text longer than :data:`MOST_BYTES`.
    """
    snapshot.session.step("counting values")
    name = snapshot.session.identifier(column.name)
    return number_values(
        snapshot,
        column,
        f"SELECT {name} AS value, count(*) AS records FROM {snapshot.table} GROUP BY {name}",
    )


def number_values(
    records: Records, column: ColumnType, counted: str, *bound: Value
) -> DistinctValues:
    """Give numbers to the values of a column that `counted` selects, with their ``records``.

    Raises InfeasibleError as :func:`distinct_values`.
    """
    session = records.session
    table = temporary_table(session, "values")
    # GROUP BY and ORDER BY use the type's own equality and order, whatever the search path is.
    with fix_labels(session):
        session.fetch(
            f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS"
            " SELECT (row_number() OVER (ORDER BY value))::int4 - 1 AS code, value, records,"
            f" {label('value')} AS label FROM ({counted}) AS counted",
            *bound,
        )
    survey = fetch_one(
        session,
        # Python takes two bytes for each character of a text with some that are not Latin.
        "SELECT count(*) AS n, coalesce(max(n_bytes), 0) AS longest, coalesce(sum("
        "CASE WHEN n_bytes > n_chars THEN greatest(n_bytes, 2 * n_chars) ELSE n_bytes END), 0)"
        "::float8 AS bytes FROM (SELECT octet_length(label) AS n_bytes,"
        f" char_length(label) AS n_chars FROM {table}) AS labels",
    )
    if survey["longest"] > MOST_BYTES and not column.type_name.endswith("[]"):  # sets may be longer
        raise too_long(column.name, "the source")
    records.hold(
        _BYTES_OF_VALUE * survey["n"] + _TIMES_TEXT * survey["bytes"],
        f'reading column "{column.name}", {survey["n"]:,} values of'
        f" {survey['bytes'] / survey['n']:,.0f} bytes on average, beside what else is read",
    )
    labels: list[str | None] = []
    counts = np.empty(survey["n"], dtype=np.int64)
    at_once = max(1, min(10_000, _BATCH_BYTES // (survey["longest"] + 1)))
    for row in session.stream(at_once, f"SELECT label, records FROM {table} ORDER BY code"):
        counts[len(labels)] = row["records"]
        labels.append(row["label"])
    return DistinctValues(session, column, table, labels, counts)


def read_codes(snapshot: Snapshot, columns: Sequence[DistinctValues]) -> CodeArray:
    """Return the code of each record's value in each column, shape (n_records, n_columns)."""
    codes = read_known_codes(snapshot, columns)
    for values, column_codes in zip(columns, codes.T, strict=True):
        _require_known(values.column, column_codes)
    return codes


def _require_known(column: ColumnType, codes: AnyIntArray) -> None:
    if codes.min() < 0:
        raise inconsistent_equality(column.name)


def inconsistent_equality(column: str) -> SchemaMismatchError:
    """Say that some value of a column is not equal to itself."""
    return SchemaMismatchError(
        "a column's equality is not consistent",
        detail=f'column "{column}": GROUP BY and = disagree on its values',
        hint="publish a view that casts the column to text",
    )


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
    for values in columns:
        # The planner expects a thousand rows of an unknown table, and so several times as many
        # records after each join: it would sort them.
        session.fetch(f"ANALYZE {values.table} (value)")
    number, joins = "0", []
    kind: Literal["int4", "int8"] = "int4" if _n_numbers(columns) <= _MOST_NUMBERS >> 32 else "int8"
    for position, values in enumerate(columns):
        alias, name = f"v{position}", f"s.{session.identifier(values.column.name)}"
        code = code_expression(name, values, alias)
        number = f"({number}) * {len(values.labels) + 1}::{kind} + {code} + 1"
        matches = f"{name} {values.column.operator(session, '=')} {alias}.value"
        if set(values.labels) == {None}:  # some types have no equality of their own
            matches = f"num_nulls({name}) = 1"
        joins.append(f"LEFT JOIN {values.table} AS {alias} ON {matches}")
    numbers = read_integers(snapshot, number, " ".join(joins), kind=kind)
    for values, column in zip(reversed(columns), reversed(codes.T), strict=True):
        numbers, digits = np.divmod(numbers, len(values.labels) + 1)
        column[:] = digits - 1


def number_column(snapshot: Snapshot, column: ColumnType, *, in_order: bool = True) -> RankedColumn:
    """Give numbers to the values of a snapshot's column, without reading them."""
    session = snapshot.session
    session.step("reading values")
    table = temporary_table(session, "values")
    own = f"s.{session.identifier(column.name)}"
    session.fetch(
        f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS"
        f" SELECT (row_number() OVER ({'ORDER BY value' if in_order else ''}))::int4 - 1 AS code,"
        f" value FROM (SELECT {own} AS value FROM {snapshot.table} AS s GROUP BY {own}) AS v"
    )
    session.fetch(f"ANALYZE {table} (value)")
    (row,) = session.fetch(
        "SELECT count(*) AS n, coalesce(max(code) FILTER (WHERE num_nulls(value) = 1), -1) AS null"
        f" FROM {table}"
    )
    codes = read_integers(
        snapshot,
        f"coalesce(v.code, CASE WHEN num_nulls({own}) = 1 THEN {row['null']} ELSE -1 END)",
        f"LEFT JOIN {table} AS v ON {own} {column.operator(session, '=')} v.value",
    )
    _require_known(column, codes)
    return RankedColumn(column.name, table, int(row["n"]), codes)


def number_presence(snapshot: Snapshot, column: ColumnType) -> RankedColumn:
    """Tell apart who has a value of a type without an equality, such as json, and who has none."""
    session, own = snapshot.session, f"s.{snapshot.session.identifier(column.name)}"
    session.step("reading values")
    table = temporary_table(session, "values")
    session.fetch(
        f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS"
        " SELECT (row_number() OVER (ORDER BY v.presence))::int4 - 1 AS code, v.value"
        f" FROM (SELECT DISTINCT ON ({presence(own)}) {presence(own)} AS presence,"
        f" {own} AS value FROM {snapshot.table} AS s ORDER BY {presence(own)}) AS v"
    )
    codes = read_integers(
        snapshot, "v.code", f"JOIN {table} AS v ON {presence('v.value')} = {presence(own)}"
    )
    n_values = 1 + int(codes.max())
    return RankedColumn(column.name, table, n_values, codes, is_comparable=False)


def presence(value: str) -> str:
    """Write what IS NULL and IS NOT NULL say of a value: of a row, neither may be true."""
    return f"(({value} IS NULL)::int4 - ({value} IS NOT NULL)::int4)"


def code_expression(value: str, values: DistinctValues, alias: str) -> str:
    """Return SQL for the code of the value that an expression gives, -1 if it has none.

    ``alias`` is the alias of the table of codes, joined with the row of the value, if it has one.
    """
    null_code = values.labels.index(None) if None in values.labels else -1
    return f"coalesce({alias}.code, CASE WHEN num_nulls({value}) = 0 THEN -1 ELSE {null_code} END)"


def match_values(
    values: DistinctValues, source: str, *bound: Value, matches: str | None = None
) -> IntArray:
    """Return the code of each value ``v`` that a query selects, in the order of its ``i``; or -1.

    `matches` says whether a value ``s.v`` is that of a row ``d`` of codes; by default if equal.
    """
    if matches is None:
        matches = f"s.v {values.column.operator(values.session, '=')} d.value"
        if set(values.labels) == {None}:  # some types have no equality of their own
            matches = "num_nulls(s.v) = 1"
    row = fetch_one(
        values.session,
        f"SELECT string_agg(int4send({code_expression('s.v', values, 'd')}), ''::bytea"
        f" ORDER BY s.i) AS codes FROM ({source}) AS s LEFT JOIN {values.table} AS d ON {matches}",
        *bound,
    )
    return np.frombuffer(row["codes"] or b"", ">i4").astype(np.int64)


def read_integers(
    snapshot: Snapshot,
    expression: str,
    joins: str = "",
    *bound: Value,
    kind: Literal["int4", "int8"] = "int4",
) -> CodeArray | IntArray:
    """Return a whole number for each record of the snapshot ``s``, shape (n_records,).

    Where the expression is NULL, it is -1.
    """
    number = np.dtype(np.int32 if kind == "int4" else np.int64)
    pair = np.dtype([("record", ">i4"), ("number", number.newbyteorder(">"))])
    numbers = np.full(snapshot.n_records, -1, dtype=number)
    for part in snapshot.parts("s"):
        row = fetch_one(
            snapshot.session,
            # Record and number are sent together, so that nothing depends on the order of rows.
            f"SELECT string_agg(int4send(s.{snapshot.record}) || {kind}send({expression}),"
            f" ''::bytea) AS pairs FROM {snapshot.table} AS s {joins} WHERE {part}",
            *bound,
        )
        pairs = np.frombuffer(row["pairs"] or b"", dtype=pair)
        numbers[pairs["record"]] = pairs["number"]
    return numbers


def read_numbers(values: DistinctValues) -> FloatArray | None:
    """Return each distinct value of a column as a number, shape (n_values,)."""
    # Dates and times are in seconds; NULL, which comes last, is NaN. The result is None for columns
    # of other types, for columns with an infinite value, and for those whose values are so far
    # apart that their distance is infinite as a double-precision number.
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
    known = numbers[: numbers.size - has_null]
    with np.errstate(over="ignore", invalid="ignore"):
        return numbers if not known.size or np.isfinite(np.ptp(known)) else None
