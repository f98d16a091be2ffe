"""Conditions that cut a column's values into intervals, and how much of a range they cover.

Numbers, dates (as days) and timestamps (as seconds) stand on one axis of numerics, where the set
of values that meet a condition is a multirange.
"""

from __future__ import annotations

from collections.abc import Sequence

from kanon_db.counting import expressions as ex
from kanon_db.counting.layout import Cell
from kanon_db.counting.writing.sql import Constants

_MOST_CHAINED = 50
_MOST_OPERATORS = 500  # statements repeat all intervals several times
_EVERYTHING = "nummultirange(numrange(NULL, NULL))"
_NOTHING = "nummultirange()"
_RANGES = {
    "<": "numrange(NULL, {0}, '()')", "<=": "numrange(NULL, {0}, '(]')",
    ">": "numrange({0}, NULL, '()')", ">=": "numrange({0}, NULL, '[)')",
    "=": "numrange({0}, {0}, '[]')",
}  # fmt: skip
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}


def covered(condition: ex.Expression, column: ex.Type, constants: Constants) -> str | None:
    """Write the values that meet a condition as a multirange of numerics.

    Parameters
    ----------
    condition : Expression
    column : Type
        Of the column that the condition is on, which decides on the axis.
    constants : Constants

    Returns
    -------
    str or None
        None for a condition that is not made of comparisons of one column with constants.
    """
    match condition:
        case ex.And(parts) | ex.Or(parts):
            sets = [covered(part, column, constants) for part in parts]
            sign = " * " if isinstance(condition, ex.And) else " + "
            known = [part for part in sets if part is not None]
            return _combined(sign, known) if len(known) == len(sets) else None
        case ex.Not(part):
            inside = covered(part, column, constants)
            return None if inside is None else f"({_EVERYTHING} - {inside})"
        case ex.NullTest(ex.Column(), negated):
            return _EVERYTHING if negated else _NOTHING
        case ex.Comparison(operator, ex.Column(), ex.Constant() as constant):
            return _compared(operator, constant, column, constants)
        case ex.Comparison(operator, ex.Constant() as constant, ex.Column()):
            return _compared(_FLIPPED[operator], constant, column, constants)
        case ex.Membership(ex.Column(), items, negated, ex.Type() as type_) if (
            place := _place(column, "m.v", type_)
        ) and (array := constants.array(items, type_)):
            equal = _RANGES["="].format(place)
            found = f"(SELECT range_agg({equal}) FROM unnest({array}) AS m (v))"
            return f"({_EVERYTHING} - {found})" if negated else found
        case ex.Range(ex.Column()) | ex.Membership(ex.Column()):
            return covered(ex.spelled_out(condition), column, constants)
        case _:
            return None


def _combined(sign: str, parts: Sequence[str]) -> str:
    """Write many multiranges in groups of groups: each of a chain would hold all before it."""
    while len(parts) > _MOST_CHAINED:
        starts = range(0, len(parts), _MOST_CHAINED)
        parts = [f"({sign.join(parts[start : start + _MOST_CHAINED])})" for start in starts]
    return f"({sign.join(parts)})"


def _compared(
    operator: str, constant: ex.Constant, column: ex.Type, constants: Constants
) -> str | None:
    place = _place(column, constants.write(constant), constant.type)
    if place is None:
        return None
    if operator == "<>":
        return f"({_EVERYTHING} - nummultirange({_RANGES['='].format(place)}))"
    return f"nummultirange({_RANGES[operator].format(place)})"


def _place(column: ex.Type, value: str, type_: ex.Type | None = None) -> str | None:
    """Write the place of a value on the axis of a column; None if it has none there.

    PostgreSQL compares a floating-point number with others as such, where 0.1 is not 1/10. Its
    shortest text is as good: texts of greater numbers stand for greater numerics.

    Parameters
    ----------
    column : Type
        Of the column.
    value : str
    type_ : Type, optional
        Of the value, if it is a constant's.
    """
    of = (type_ or column).name
    if column.category == "float":
        # The end of a range is the shortest text of a number, which has fewer digits of a real.
        exact = f"{value}::real" if of == "real" else value
        return f"{exact}::float8::text::numeric" if _is_number(type_ or column) else None
    if column.category in ex.NUMBERS:
        return f"{value}::numeric" if _is_number(type_ or column) else None
    match column.name, of:
        case "date", "date":
            return f"({value} - '2000-01-01'::date)::numeric"
        case "date", "timestamp without time zone":
            return f"(EXTRACT(epoch FROM {value} - '2000-01-01'::timestamp) / 86400)"
        case "timestamp without time zone", "date" | "timestamp without time zone":
            return f"EXTRACT(epoch FROM {value}::timestamp - '2000-01-01'::timestamp)"
        case "timestamp with time zone", _ if (type_ or column).category == "moment":
            return f"EXTRACT(epoch FROM {value}::timestamptz)"
    return None


def value_at(type_: ex.Type, place: str) -> str:
    """Write the value of a type at a place on its axis, a float8; the nearest one."""
    match type_.name:
        case "date":
            return f"('2000-01-01'::date + round({place})::int)"
        case "timestamp without time zone":
            return f"('2000-01-01'::timestamp + make_interval(secs => {place}))"
        case "timestamp with time zone":
            return f"to_timestamp({place})"
    return f"{place}::{type_.name}"


def ends_of(cell: Cell, sql: str) -> tuple[str, str]:
    """Write where on the axis a range begins and ends, as float8.

    A whole number takes the space from half a number below it to half a number above.
    """
    half = " - 0.5" if cell.is_discrete else ""
    low, high = (_place(cell.column.type, f"{end}({sql})") for end in ("lower", "upper"))
    return f"(({low})::float8{half})", f"(({high})::float8{half})"


def _is_number(type_: ex.Type) -> bool:
    return type_.category in ex.NUMBERS


def share(cell: Cell, sql: str, covered_sql: str) -> tuple[str, str, str]:
    """Write which share of a range is covered, whether all of it is, and whether any of it.

    Parameters
    ----------
    cell : Cell
        One of kind ``range``.
    sql : str
        The range; not NULL.
    covered_sql : str
        What :func:`covered` returned.
    """
    range_ = on_axis(cell, sql)
    pieces = f"unnest({covered_sql} * nummultirange({range_})) AS piece"
    if cell.is_discrete:
        count = (
            "(SELECT coalesce(sum(greatest(CASE WHEN upper_inc(piece) THEN floor(upper(piece))"
            " ELSE ceil(upper(piece)) - 1 END - CASE WHEN lower_inc(piece)"
            " THEN ceil(lower(piece)) ELSE floor(lower(piece)) + 1 END + 1, 0)), 0)"
            f" FROM {pieces})"
        )
        size = f"(upper({range_}) - lower({range_}) + 1)"
        part = f"({count} / {size})::float8"
        return part, f"{part} = 1", f"{part} > 0"
    length = f"(SELECT coalesce(sum(upper(piece) - lower(piece)), 0) FROM {pieces})"
    size = f"(upper({range_}) - lower({range_}))"
    inside = f"({covered_sql} @> {range_})"
    return (
        f"CASE WHEN {size} = 0 THEN {inside}::int::float8 ELSE ({length} / {size})::float8 END",
        inside,
        f"({covered_sql} && {range_})",
    )


def can_cover(cell: Cell, condition: ex.Expression) -> bool:
    """Whether a condition on a cell's column cuts its values into intervals of their axis."""
    type_ = cell.column.type

    def fits(constant: ex.Constant) -> bool:
        return constant.text is not None and _place(type_, "", constant.type) is not None

    if sum(bool(ex.children(part)) for part in ex.walk(condition)) > _MOST_OPERATORS:
        return False
    constants = (part for part in ex.walk(condition) if isinstance(part, ex.Constant))
    if _place(type_, "") is None or not all(map(fits, constants)):
        return False
    return covered(condition, type_, Constants()) is not None


def on_axis(cell: Cell, sql: str) -> str:
    """Write the range of a cell on the axis of its column."""
    type_ = cell.column.type
    low, high = (_place(type_, f"{end}({sql})") for end in ("lower", "upper"))
    if cell.is_discrete:
        return f"numrange({low}, {high} - 1, '[]')"
    if type_.category in ("moment", "float"):
        return f"numrange({low}, {high}, CASE WHEN upper_inc({sql}) THEN '[]' ELSE '[)' END)"
    return sql
