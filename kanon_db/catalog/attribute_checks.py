"""Whether what is said about a quasi-identifier fits the type of its column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kanon_db.catalog.attributes import BINNED, UNITS
from kanon_db.errors import DatabaseError, InvalidParameterError, SchemaMismatchError
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.session.server_errors import DATA_EXCEPTION_CLASS
from kanon_db.transfer.columns import ColumnType

_NUMERIC_CATEGORIES: Final = "NDT"
"""`pg_type.typcategory`: numbers, dates and times, intervals."""

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
    where = f'attributes of column "{column.name}"'
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
    _check_bounds(session, column, described, ("lower", "upper"), where)
    _check_bounds(session, column, described, ("bottom", "top"), where)


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


def _is_finite(column: ColumnType) -> str:
    """Write whether both bounds are finite; neither infinite, nor no number at all."""
    numbers = [column.number(f"${i}::text::{column.type_name}") for i in (1, 2)]
    if None in numbers:
        return "true"
    return " AND ".join(f"abs({n}) < 'Infinity'" for n in numbers)
