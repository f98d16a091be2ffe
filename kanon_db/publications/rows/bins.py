"""Values that are coarsened before the search: rounded, and coded at the top and the bottom.

Which bin a value is in depends on what the source was registered with, and on nothing else: so all
batches of a publication have the same ones. Bins are [begin, end), where the next one begins; the
first and the last may have no end. A column that is only coded at its ends keeps single values
between them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray
from kanon_db.catalog.attributes import BINNED, UNITS
from kanon_db.errors import DatabaseError, SchemaMismatchError
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.session.server_errors import DATA_EXCEPTION_CLASS
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.labels import fixed_labels
from kanon_db.transfer.values import DistinctValues, read_numbers

FLOATS: Final = ("real", "double precision")
_WHOLE: Final = {
    "smallint": (-(2**15), 2**15), "integer": (-(2**31), 2**31), "bigint": (-(2**63), 2**63 - 1),
}  # fmt: skip
"""The least value of a type, and the largest end of its ranges."""


@dataclass(frozen=True, eq=False)
class Bins:
    """The bins of a column that have a value, in their order; NULL's comes last.

    Attributes
    ----------
    table : str
        Temporary table ``(code, low, high, is_closed)``, quoted: where each bin begins and ends,
        NULL without an end; and whether its end belongs to it.
    codes : ndarray of int32, shape (n_values,)
        The bin of each distinct value.
    lows, highs : ndarray of float64, shape (n_bins,)
        The ends as numbers, NaN of NULL; where there is no end, that of the values in the bin.
    """

    session: Session
    table: str
    codes: CodeArray
    lows: FloatArray
    highs: FloatArray

    @property
    def largest(self) -> float:
        """The largest number of all ends, whatever its sign."""
        return float(np.nanmax(np.abs([self.lows, self.highs])))

    def drop(self) -> None:
        """Remove the table before the transaction ends."""
        self.session.fetch(f"DROP TABLE {self.table}")


def element_of(column: ColumnType, value: str) -> str:
    """Write a value as one that the bins of its column are compared with, exactly.

    A number of floating point is the one that its shortest text says: a cast has fewer digits.
    """
    if column.type_name in FLOATS:
        return f"{value}::text::numeric"
    return f"{value}::{column.bound_type}"


def bin_of(column: ColumnType, described: Mapping[str, Any], value: str) -> tuple[str, str]:
    """Write where the bin of a value begins, and where it ends; NULL where it has no end.

    Parameters
    ----------
    column : ColumnType
        Of numbers, dates or timestamps.
    described : mapping
        How it was registered. Its values, without a unit, are parameters, in its order.
    value : str
        What :func:`element_of` wrote; not NULL.

    Examples
    --------
    >>> age = ColumnType("age", "integer", "N", None, True)
    >>> low, high = bin_of(age, {"top": 90}, "v")
    >>> low
    'CASE WHEN v >= $1::text::numeric THEN $1::text::numeric ELSE v END'
    >>> high
    'CASE WHEN v >= $1::text::numeric THEN NULL ELSE v END'
    """
    bound = {
        key: f"${i}::text::{column.bound_type}" for i, key in enumerate(_bound(described), start=1)
    }
    low, high = value, value
    if "round" in described:
        low, high = _rounded(column, described["round"], value, bound.get("round", ""))
        low = f"greatest({low}, {bound['bottom']})" if "bottom" in bound else low
        high = f"least({high}, {bound['top']})" if "top" in bound else high
    whens = [("", "")]
    if "bottom" in bound:
        is_below = f" WHEN {value} < {bound['bottom']} THEN "
        whens.append((f"{is_below}NULL", is_below + bound["bottom"]))
    if "top" in bound:
        is_above = f" WHEN {value} >= {bound['top']} THEN "
        whens.append((is_above + bound["top"], f"{is_above}NULL"))
    if len(whens) == 1:
        return low, high
    of_low, of_high = ("".join(each) for each in zip(*whens, strict=True))
    return f"CASE{of_low} ELSE {low} END", f"CASE{of_high} ELSE {high} END"


def _bound(described: Mapping[str, Any]) -> list[str]:
    """Name what is passed as a parameter."""
    named = (key for key in BINNED if key in described)
    return [key for key in named if key != "round" or not isinstance(described[key], str)]


def _rounded(column: ColumnType, unit: str | float, value: str, width: str) -> tuple[str, str]:
    if not isinstance(unit, str):
        # numeric's mod() is exact, and has the sign of the value.
        # Without the zeros that come from the value: they would tell how many decimals it has.
        low = f"trim_scale({value} - mod(mod({value}, {width}) + {width}, {width}))"
        high = f"trim_scale({low} + {width})"
        if column.type_name in _WHOLE:  # no end is as good as one that no value can reach
            least, most = _WHOLE[column.type_name]
            low = f"CASE WHEN {low} >= {least} THEN {low} END"
            high = f"CASE WHEN {high} <= {most} THEN {high} END"
        return low, high
    # Weeks begin on Mondays; where a time has a zone, all units are those of UTC.
    zone = " AT TIME ZONE 'UTC'" if column.type_name == "timestamp with time zone" else ""
    begin = f"date_trunc('{unit}', ({value}{zone})::timestamp)"
    end = f"({begin} + interval '{UNITS[unit]}')"
    return f"({begin}{zone})::{column.bound_type}", f"({end}{zone})::{column.bound_type}"


def read_bins(values: DistinctValues, described: Mapping[str, Any]) -> Bins | None:
    """Find the bins of a column's values; None if it has none, or is not coarsened.

    Parameters
    ----------
    values : DistinctValues
    described : mapping
        How the column was registered.

    Raises
    ------
    SchemaMismatchError
        When a value is infinite or no number, or a bin would end beyond all values of its type.
    """
    if not any(key in described for key in BINNED):
        return None
    column, session = values.column, values.session
    detail = f'column "{column.name}" of type {column.type_name}'
    numbers = read_numbers(values)
    if numbers is None:
        raise SchemaMismatchError(
            "a column with infinite values, or what is no number, cannot be coarsened",
            detail=detail,
            hint="publish a view that has NULL in place of them",
        )
    if np.isnan(numbers).all():
        return None
    table = session.identifier("pg_temp", f"kanon_bins_{secrets.token_hex(8)}")
    try:
        with session.savepoint():
            codes = _write_bins(values, described, table)
    except DatabaseError as error:
        if not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
            raise
        raise SchemaMismatchError(
            "a bin would end beyond all values of the column's type",
            detail=detail,
            hint="give the source a view without such values, or round to a smaller unit",
        ) from None
    ends = fetch_one(
        session,
        "SELECT string_agg(float8send(l) || float8send(h), ''::bytea ORDER BY code) AS ends FROM"
        f" (SELECT code, coalesce({column.number('low')}, first_number, 'NaN') AS l,"
        f" coalesce({column.number('high')}, last_number, 'NaN') AS h FROM {table}) AS numbered",
    )
    lows, highs = np.frombuffer(ends["ends"], dtype=">f8").reshape(-1, 2).T.astype(np.float64)
    return Bins(session, table, codes, lows, np.maximum(lows, highs))


def _write_bins(values: DistinctValues, described: Mapping[str, Any], table: str) -> CodeArray:
    """Write the table of bins, and return that of each value."""
    column, session = values.column, values.session
    value = element_of(column, "v.value")
    low, high = (
        f"CASE WHEN num_nulls(b.element) = 0 THEN {end} END"
        for end in bin_of(column, described, "b.element")
    )
    member = session.identifier("pg_temp", f"kanon_bin_of_{secrets.token_hex(8)}")
    # A value has itself as its bin; bins of several end before the next one.
    closed = "false" if "round" in described else "num_nulls(e.low) = 0"
    if column.type_name in FLOATS and "round" in described:
        # The end of a bin may be less than one digit above a number of floating point.
        closed = f"e.value >= e.high::{column.type_name}"
    with fixed_labels(session):
        session.fetch(
            f"CREATE TEMPORARY TABLE {member} ON COMMIT DROP AS SELECT e.*, {closed} AS is_closed,"
            " CASE WHEN num_nulls(e.value) > 0 THEN 2 WHEN num_nulls(e.low) > 0 THEN 0 ELSE 1 END"
            f" AS part FROM (SELECT b.code, b.value, b.number, {low} AS low, {high} AS high FROM"
            f" (SELECT v.code, v.value, {value} AS element, {column.number('v.value')} AS number"
            f" FROM {values.table} AS v) AS b) AS e",
            *(str(described[key]) for key in _bound(described)),
        )
    session.fetch(
        f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS"
        " SELECT (row_number() OVER (ORDER BY part, low))::int4 - 1 AS code, part, low, high,"
        " bool_or(is_closed) AS is_closed, min(number) AS first_number, max(number) AS last_number"
        f" FROM {member} GROUP BY part, low, high"
    )
    row = fetch_one(
        session,
        "SELECT string_agg(int4send(t.code), ''::bytea ORDER BY m.code) AS codes"
        f" FROM {member} AS m JOIN {table} AS t ON t.part = m.part"
        " AND CASE WHEN num_nulls(t.low, m.low) = 0 THEN t.low = m.low ELSE true END",
    )
    session.fetch(f"DROP TABLE {member}")
    codes: CodeArray = np.frombuffer(row["codes"], dtype=">i4").astype(np.int32)
    return codes
