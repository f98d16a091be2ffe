"""Whether what is said about a quasi-identifier fits the type of its column."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kanon_db.catalog.attributes import BINNED, UNITS
from kanon_db.errors import DatabaseError, InvalidParameterError, SchemaMismatchError
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.session.server_errors import DATA_EXCEPTION_CLASS
from kanon_db.transfer.columns import ColumnType

_NUMERIC_CATEGORIES: Final = "NDT"
"""`pg_type.typcategory`: numbers, dates and times, intervals."""

_MOVING: Final = re.compile(r"\b(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_MOVES: Final = "a time must not depend on when it is read"
_HINT: Final = "write the date, such as 2026-01-31"

_WHOLE: Final = ("smallint", "integer", "bigint")


def check_attribute(session: Session, column: ColumnType, described: Mapping[str, Any]) -> None:
    """Refuse a description that does not fit the column's type.

    Raises
    ------
    SchemaMismatchError
        When it is one of numbers or times, or a coarsening, and the column has none.
    InvalidParameterError
        When a bound cannot be read as the column's type, or bounds are in another order.
    """
    require_fitting(column, described)
    where = _where(column)
    if "hierarchy" in described:
        _check_values(session, column, list(described["hierarchy"]), where)
    _check_bounds(session, column, described, ("lower", "upper"), where)
    _check_bounds(session, column, described, ("bottom", "top"), where)


def require_fitting(column: ColumnType, described: Mapping[str, Any]) -> None:
    """Refuse a description of values that a column of this type cannot have.

    Raises
    ------
    SchemaMismatchError, InvalidParameterError
        As :func:`check_attribute`, without its bounds.
    """
    where = _where(column)
    is_numeric = column.type_category in _NUMERIC_CATEGORIES
    if not is_numeric and (
        described.get("kind") == "numeric" or {"lower", "upper"} & described.keys()
    ):
        raise SchemaMismatchError(
            "only columns of numbers, dates or times can be numeric",
            detail=f"{where}: its type is {column.type_name}",
            hint="leave out kind, lower and upper, or use categorical",
        )
    coarse = [key for key in BINNED if key in described]
    if coarse and column.range_type(0) is None:
        raise SchemaMismatchError(
            f"only numbers, dates and timestamps can have {coarse[0]}",
            detail=f"{where}: its type is {column.type_name}",
            hint=f"leave out {' and '.join(coarse)}",
        )
    if "round" in described:
        _check_round(column, described["round"], where)


def _where(column: ColumnType) -> str:
    return f'attributes of column "{column.name}"'


def _check_round(column: ColumnType, given: str | float, where: str) -> None:
    """Check that a unit is one of times, and a width one of the column's numbers."""
    is_number = column.bound_type == "numeric"
    detail = f"{where}: its type is {column.type_name}"
    if is_number and isinstance(given, str):
        raise InvalidParameterError(
            "numbers are rounded to a number", detail=detail, hint='such as {"round": 5}'
        )
    if not is_number and not isinstance(given, str):
        raise InvalidParameterError(
            "dates and times are rounded to a unit",
            detail=detail,
            hint=f'such as {{"round": "month"}}; units are {", ".join(UNITS)}',
        )
    if column.type_name in _WHOLE and given != int(given):
        raise InvalidParameterError(
            "whole numbers are rounded to a whole number", detail=detail, hint="such as 5"
        )
    if column.type_name == "date" and given == "hour":
        raise InvalidParameterError(
            "a date has no hours", detail=detail, hint='the least unit is "day"'
        )


def _check_bounds(
    session: Session,
    column: ColumnType,
    described: Mapping[str, Any],
    keys: tuple[str, str],
    where: str,
) -> None:
    """Check that the server can read the bounds as values of the column's type, in order."""
    given = [key for key in keys if key in described]
    if not given:
        return
    type_ = column.type_name
    if any(_is_moving(column, str(described[key])) for key in given):
        raise InvalidParameterError(_MOVES, detail=where, hint=_HINT)
    try:
        with session.savepoint():
            found = fetch_one(
                session,
                f"SELECT $1::text::{type_} <= $2::text::{type_} AS ordered,"
                f" {_is_finite(column)} AS finite",
                str(described[given[0]]),
                str(described[given[-1]]),
            )
    except DatabaseError as error:
        if not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
            raise
        raise InvalidParameterError(
            "a bound cannot be read as the column's type",
            detail=f"{where}: its type is {type_}",
        ) from None
    if not found["ordered"]:
        raise InvalidParameterError(f"{keys[0]} must not exceed {keys[1]}", detail=where)
    if keys[0] in BINNED and not found["finite"]:
        raise InvalidParameterError(f"{' and '.join(given)} must be finite", detail=where)


def _check_values(session: Session, column: ColumnType, values: Sequence[str], where: str) -> None:
    """Check that the values of a hierarchy are finite ones of the column's type, each once."""
    type_ = column.type_name
    if any(_is_moving(column, text) for text in values):
        raise InvalidParameterError(_MOVES, detail=where, hint=_HINT)
    value = f"v::{type_}"
    number = column.number(value)
    is_finite = "true" if number is None else f"abs({number}) < 'Infinity'"
    is_ordered = column.range_type(0) is not None
    different = f"count(DISTINCT {value})" if is_ordered else "count(*)"
    try:
        with session.savepoint():
            found = fetch_one(
                session,
                f"SELECT count({value}) AS n, {different} AS different,"
                f" bool_and({is_finite}) AS finite FROM json_array_elements_text($1::text::json)"
                " AS v",
                json.dumps(list(values)),
            )
    except DatabaseError as error:
        if not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
            raise
        raise InvalidParameterError(
            "a value of a hierarchy cannot be read as the column's type",
            detail=f"{where}: its type is {type_}",
            hint="the values are those of the column; the first line of a file is one, too",
        ) from None
    if not found["finite"]:
        raise InvalidParameterError("the values of a hierarchy must be finite", detail=where)
    if found["different"] < found["n"]:
        raise InvalidParameterError(
            "a hierarchy has the same value twice",
            detail=f"{where}: {found['n'] - found['different']} times",
            hint="write each value once, as 7 and not also as 07",
        )


def _is_moving(column: ColumnType, text: str) -> bool:
    """Whether a time depends on when it is read."""
    return column.type_category == "D" and _MOVING.search(text) is not None


def _is_finite(column: ColumnType) -> str:
    """Write whether both bounds are finite; neither infinite, nor no number at all."""
    numbers = [column.number(f"${i}::text::{column.type_name}") for i in (1, 2)]
    if None in numbers:
        return "true"
    return " AND ".join(f"abs({n}) < 'Infinity'" for n in numbers)
