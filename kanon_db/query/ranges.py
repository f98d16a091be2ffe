"""The types of ranges, and which values of a range meet a condition.

`RANGES` are the types of ranges; `AXES` are the types of their values, and say where these stand on
an axis of numbers, which a condition cuts into intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from kanon_db.query import expressions as ex
from kanon_db.query.layout import CellDescription
from kanon_db.query.sql import Constants

BEGINS: Final = 32

ANY_END: Final = 1 << BEGINS

MOST_VALUES: Final = 1000
"""The most values of a discrete range that are listed; wider ones give so many, evenly spaced."""


class RangeType(NamedTuple):
    """A type of ranges, as far as statements depend on it."""

    end: str  # The type of its ends
    # If its values can be counted: an end as an int8, and the end at one; empty otherwise
    number: str = ""
    at: str = ""
    # The largest value that it covers, as a double: ranges of whole numbers end before the next
    # number, and the largest number has no next one
    largest: float = math.inf

    @property
    def never(self) -> tuple[str, str]:
        """Two ends between which no value lies, if values can be counted."""
        return self.at.format(1), self.at.format(0)


_FIRST_DAY: Final = "'2000-01-01'::date"

RANGES: Final[Mapping[str, RangeType]] = {
    "int4range": RangeType("integer", "{}::int8", "{}::int4", largest=2**31 - 2),
    "int8range": RangeType("bigint", "{}::int8", "{}::int8", largest=2**53),  # exact as a double
    "daterange": RangeType(
        "date", f"({{}} - {_FIRST_DAY})::int8", f"({_FIRST_DAY} + ({{}})::int4)"
    ),
    "numrange": RangeType("numeric"),
    "tsrange": RangeType("timestamp without time zone"),
    "tstzrange": RangeType("timestamp with time zone"),
}
"""The types of ranges that cells may have."""

DISCRETE_RANGES: Final = frozenset(name for name, one in RANGES.items() if one.number)
"""The types of ranges whose values can be counted."""


class AxisType(NamedTuple):
    """A type whose values stand on an axis of numbers, where ranges cover them.

    All but `ranges` is SQL with ``{0}`` in the place of what it is said of.
    """

    ranges: tuple[str, ...]  # That may cover its values: the first one that covers the largest
    number: str  # A value as a float8, by which distances are measured
    # Where values and constants stand on the axis, a numeric, by their types
    places: Mapping[str, str]
    value: str  # The value that is nearest to a place, a float8
    end: str = "{0}"  # The end of a range at a value, from which no digit is missing
    # Where an end is a number, and no value: the value that it stands for, and its place
    of_end: str = ""
    place_of_end: str = ""

    @property
    def number_of_end(self) -> str:
        """The number that an end stands for."""
        return "{0}::float8" if self.of_end else self.number


_NUMBER_NAMES: Final = tuple(name for name, of in ex.CATEGORIES.items() if of in ex.NUMBERS)
_EXACT: Final = dict.fromkeys(_NUMBER_NAMES, "{0}::numeric")
# PostgreSQL compares a floating-point number with others as such, where 0.1 is not 1/10. Its
# shortest text is as good: texts of greater numbers stand for greater numerics.
_SHORTEST: Final = "{0}::float8::text::numeric"
# The end of a range is the shortest text of a number, which has fewer digits of a real.
_SHORT: Final = {
    **dict.fromkeys(_NUMBER_NAMES, _SHORTEST),
    "real": "{0}::real::float8::text::numeric",
}
_EPOCH: Final = "extract(epoch FROM {0})::float8"
_SINCE_2000: Final = "EXTRACT(epoch FROM {0}::timestamp - '2000-01-01'::timestamp)"

# The last timestamp, as the float8 before its place rounds up: of later places it is the nearest.
_LAST: Final = "CASE WHEN {{0}} > {0} THEN {0} ELSE {{0}} END"
_BY_2000: Final = _LAST.format("9223371331199.998")
_BY_EPOCH: Final = _LAST.format("9224318015999.998")


def _in_seconds(name: str, seconds: str, value: str) -> AxisType:
    """Describe a type that PostgreSQL has no ranges of: their ends are seconds."""
    # Longer ones do not fit an interval of days and seconds, as which places are read.
    number = f"CASE WHEN abs({seconds}) > 1e14 THEN 'Infinity' ELSE ({seconds})::float8 END"
    end = f"trim_scale({seconds})"
    return AxisType(("numrange",), number, {name: seconds}, value, end, value, "{0}")


# PostgreSQL compares intervals as if a month had 30 days, but says that 12 are 365.25 days long.
_LENGTH: Final = "(EXTRACT(epoch FROM {0}) - 453600 * EXTRACT(year FROM {0}))"
# A bin may end anywhere; no end is NULL, which greatest() and least() would leave out.
_NEAR: Final = "CASE WHEN {0} > 1e14 THEN 1e14 WHEN {0} < -1e14 THEN -1e14 ELSE {0} END"
_INTERVAL: Final = (
    f"make_interval(days => trunc(({_NEAR}) / 86400)::int,"
    f" secs => (({_NEAR}) - 86400 * trunc(({_NEAR}) / 86400))::float8)"
)

AXES: Final[Mapping[str, AxisType]] = {
    "smallint": AxisType(("int4range",), "{0}::float8", _EXACT, "{0}::smallint"),
    "integer": AxisType(("int4range", "int8range"), "{0}::float8", _EXACT, "{0}::integer"),
    "bigint": AxisType(("int8range", "numrange"), "{0}::float8", _EXACT, "{0}::bigint"),
    "numeric": AxisType(
        ("numrange",), "{0}::float8", _EXACT, "{0}::numeric", place_of_end="{0}",
    ),
    **{
        name: AxisType(
            ("numrange",), "{0}::float8", _SHORT, f"{{0}}::{name}", "{0}::text::numeric",
            f"{{0}}::{name}", _SHORT[name],
        )
        for name in ("real", "double precision")
    },
    "date": AxisType(
        ("daterange",), _EPOCH,
        {
            "date": f"({{0}} - {_FIRST_DAY})::numeric",
            "timestamp without time zone":
                "(EXTRACT(epoch FROM {0} - '2000-01-01'::timestamp) / 86400)",
        },
        f"({_FIRST_DAY} + round({{0}})::int)",
    ),
    "timestamp without time zone": AxisType(
        ("tsrange",), _EPOCH,
        dict.fromkeys(("date", "timestamp without time zone"), _SINCE_2000),
        f"('2000-01-01'::timestamp + make_interval(secs => {_BY_2000}))",
    ),
    "timestamp with time zone": AxisType(
        ("tstzrange",), _EPOCH,
        dict.fromkeys(
            ("date", "timestamp without time zone", "timestamp with time zone"),
            "EXTRACT(epoch FROM {0}::timestamptz)",
        ),
        f"to_timestamp({_BY_EPOCH})",
    ),
    "interval": _in_seconds("interval", _LENGTH, _INTERVAL),
    "time without time zone": _in_seconds(
        "time without time zone", "EXTRACT(epoch FROM {0})",
        "CASE WHEN {0} >= 86399.9999995 THEN '24:00'"
        " ELSE '00:00'::time + make_interval(secs => {0}::float8) END",
    ),
}  # fmt: skip
"""The types of values that may be published as ranges."""


def choose_range(type_name: str, largest: float) -> str | None:
    """Return the type of ranges that cover values of a type; None if there is no such type."""
    axis = AXES.get(type_name)
    fitting = () if axis is None else axis.ranges
    return next((name for name in fitting if largest <= RANGES[name].largest), None)


def type_in_range(range_type: str, described: object) -> ex.Type | None:
    """Return the type of the values in a range; None if the two types do not go together.

    `described`: name of the source's type, if the catalog has one.
    """
    if range_type not in RANGES:
        return None
    name = RANGES[range_type].end
    if isinstance(described, str) and described in AXES and range_type in AXES[described].ranges:
        name = described
    category = ex.CATEGORIES.get(name, "other")
    return ex.Type(name, category, has_constant_input=category in ex.NUMBERS)


def describe_cells(column: ex.Column, type_name: str, described: object) -> CellDescription:
    """Describe the cells of a column by their type: ranges of the source's type, or sets of texts.

    `described`: as of :func:`type_in_range`.
    """
    inside = type_in_range(type_name, described)
    if inside is None:
        return CellDescription(replace(column, type=ex.TEXT), "set", is_discrete=False)
    is_discrete = type_name in DISCRETE_RANGES
    return CellDescription(replace(column, type=inside), "range", is_discrete=is_discrete)


# Conditions that cut a column's values into intervals, and how much of a range they cover.
#
# Numbers, dates (as days) and timestamps (as seconds) stand on one axis of numerics, where the set
# of values that meet a condition is a multirange.


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


def multirange_of(condition: ex.Expression, column: ex.Type, constants: Constants) -> str | None:
    """Write the values that meet a condition as a multirange, on the axis of the column's type.

    None for a condition that is not made of comparisons of one column with constants.
    """
    match condition:
        case ex.And(parts) | ex.Or(parts):
            sets = [multirange_of(part, column, constants) for part in parts]
            sign = " * " if isinstance(condition, ex.And) else " + "
            known = [part for part in sets if part is not None]
            return _combine(sign, known) if len(known) == len(sets) else None
        case ex.Not(part):
            inside = multirange_of(part, column, constants)
            return None if inside is None else f"({_EVERYTHING} - {inside})"
        case ex.NullTest(ex.Column(), negated):
            return _EVERYTHING if negated else _NOTHING
        case ex.Comparison(operator, ex.Column(), ex.Constant() as constant):
            return _write_comparison(operator, constant, column, constants)
        case ex.Comparison(operator, ex.Constant() as constant, ex.Column()):
            return _write_comparison(_FLIPPED[operator], constant, column, constants)
        case ex.Membership(ex.Column(), items, negated, ex.Type() as type_) if (
            place := place_of(column, "m.v", type_)
        ) and (array := constants.array(items, type_)):
            equal = _RANGES["="].format(place)
            matching = f"(SELECT range_agg({equal}) FROM unnest({array}) AS m (v))"
            return f"({_EVERYTHING} - {matching})" if negated else matching
        case ex.Range(ex.Column()) | ex.Membership(ex.Column()):
            return multirange_of(ex.spell_out(condition), column, constants)
        case _:
            return None


def _combine(sign: str, parts: Sequence[str]) -> str:
    """Write many multiranges in groups of groups: each of a chain would hold all before it."""
    while len(parts) > _MOST_CHAINED:
        starts = range(0, len(parts), _MOST_CHAINED)
        parts = [f"({sign.join(parts[start : start + _MOST_CHAINED])})" for start in starts]
    return f"({sign.join(parts)})"


def _write_comparison(
    operator: str, constant: ex.Constant, column: ex.Type, constants: Constants
) -> str | None:
    place = place_of(column, constants.write(constant), constant.type)
    if place is None:
        return None
    if operator == "<>":
        return f"({_EVERYTHING} - nummultirange({_RANGES['='].format(place)}))"
    return f"nummultirange({_RANGES[operator].format(place)})"


def place_of(column: ex.Type, value: str, type_: ex.Type | None = None) -> str | None:
    """Write the place of a value on the axis of a column; None if it has none there.

    `column`: of the column. `type_`: of the value, if it is a constant's.
    """
    axis = AXES.get(column.name)
    place = None if axis is None else axis.places.get((type_ or column).name)
    return None if place is None else place.format(value)


def place_of_end(column: ex.Type, end: str) -> str:
    """Write the place of an end of a column's ranges on its axis."""
    axis = AXES[column.name]
    return (axis.place_of_end or axis.places[column.name]).format(end)


def type_of_ends(cell: CellDescription) -> str:
    """Name the type of the ends of a cell's ranges."""
    return next(
        RANGES[name].end
        for name in AXES[cell.column.type.name].ranges
        if (name in DISCRETE_RANGES) == cell.is_discrete
    )


def value_of_end(column: ex.Type, end: str) -> str:
    """Write the value that an end of a column's ranges stands for."""
    return (AXES[column.name].of_end or f"{{0}}::{column.name}").format(end)


def value_at(type_: ex.Type, place: str) -> str:
    """Write the value of a type at a place on its axis, a float8; the nearest one."""
    return AXES[type_.name].value.format(place)


def end_at(type_: ex.Type, place: str) -> str:
    """Write the end of a range at a place on the axis of a type, a float8."""
    return AXES[type_.name].end.format(value_at(type_, place))


def ends_of(cell: CellDescription, sql: str) -> tuple[str, str]:
    """Write where on the axis a range begins and ends, as float8.

    A whole number takes the space from half a number below it to half a number above.
    """
    half = " - 0.5" if cell.is_discrete else ""
    low, high = (place_of_end(cell.column.type, f"{end}({sql})") for end in ("lower", "upper"))
    return f"(({low})::float8{half})", f"(({high})::float8{half})"


def can_cover(cell: CellDescription, condition: ex.Expression) -> bool:
    """Whether a condition on a cell's column cuts its values into intervals of their axis."""
    type_ = cell.column.type

    def fits(constant: ex.Constant) -> bool:
        return constant.text is not None and place_of(type_, "", constant.type) is not None

    if sum(bool(part.children) for part in ex.walk(condition)) > _MOST_OPERATORS:
        return False
    constants = (part for part in ex.walk(condition) if isinstance(part, ex.Constant))
    if place_of(type_, "") is None or not all(map(fits, constants)):
        return False
    return multirange_of(condition, type_, Constants()) is not None


def on_axis(cell: CellDescription, sql: str) -> str:
    """Write the range of a cell on the axis of its column."""
    type_ = cell.column.type
    if AXES[type_.name].place_of_end == "{0}":
        return sql
    low, high = (place_of_end(type_, f"{end}({sql})") for end in ("lower", "upper"))
    if cell.is_discrete:
        return f"numrange({low}, {high} - 1, '[]')"
    return f"numrange({low}, {high}, CASE WHEN upper_inc({sql}) THEN '[]' ELSE '[)' END)"


def holds_anything(sql: str) -> str:
    """Write whether a range says nothing: NULL and values lie in it together."""
    return f"coalesce(lower_inf({sql}) AND upper_inf({sql}), false)"


def is_endless(sql: str) -> str:
    """Write whether a range has no end on one side at least, so that it cannot be divided."""
    return f"coalesce(lower_inf({sql}) OR upper_inf({sql}), false)"


def divides(expression: ex.Expression) -> bool:
    """Whether something is divided by what depends on the value."""
    return any(
        isinstance(part, ex.Arithmetic)
        and part.operator in "/%"
        and not isinstance(part.right, ex.Constant)
        for part in ex.walk(expression)
    )


def may_fail(expression: ex.Expression) -> bool:
    """Whether the server may fail to calculate an expression for values that are not large."""
    return divides(expression) or any(
        isinstance(part, ex.Cast)
        and any(column.type.category in ("text", "char") for column in ex.columns(part))
        for part in ex.walk(expression)
    )
