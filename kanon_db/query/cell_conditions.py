"""Writes the values that a cell may stand for, and those that meet a condition, as SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kanon_db.query import expressions as ex
from kanon_db.query.layout import ANYTHING, CellDescription
from kanon_db.query.sql import Constants

BEGINS: Final = 32

ANY_END: Final = 1 << BEGINS


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
    # PostgreSQL compares a floating-point number with others as such, where 0.1 is not 1/10. Its
    # shortest text is as good: texts of greater numbers stand for greater numerics.
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


def ends_of(cell: CellDescription, sql: str) -> tuple[str, str]:
    """Write where on the axis a range begins and ends, as float8.

    A whole number takes the space from half a number below it to half a number above.
    """
    half = " - 0.5" if cell.is_discrete else ""
    low, high = (place_of(cell.column.type, f"{end}({sql})") for end in ("lower", "upper"))
    return f"(({low})::float8{half})", f"(({high})::float8{half})"


def _is_number(type_: ex.Type) -> bool:
    return type_.category in ex.NUMBERS


def can_cover(cell: CellDescription, condition: ex.Expression) -> bool:
    """Whether a condition on a cell's column cuts its values into intervals of their axis."""
    type_ = cell.column.type

    def fits(constant: ex.Constant) -> bool:
        return constant.text is not None and place_of(type_, "", constant.type) is not None

    if sum(bool(ex.children(part)) for part in ex.walk(condition)) > _MOST_OPERATORS:
        return False
    constants = (part for part in ex.walk(condition) if isinstance(part, ex.Constant))
    if place_of(type_, "") is None or not all(map(fits, constants)):
        return False
    return multirange_of(condition, type_, Constants()) is not None


def on_axis(cell: CellDescription, sql: str) -> str:
    """Write the range of a cell on the axis of its column."""
    type_ = cell.column.type
    low, high = (place_of(type_, f"{end}({sql})") for end in ("lower", "upper"))
    if cell.is_discrete:
        return f"numrange({low}, {high} - 1, '[]')"
    if type_.category in ("moment", "float"):
        return f"numrange({low}, {high}, CASE WHEN upper_inc({sql}) THEN '[]' ELSE '[)' END)"
    return sql


# Labels of a hierarchy as the sets of values that they stand for, as SQL.
#
# The catalog keeps them as JSON: ``values``, in an order in which each label's values follow each
# other, and ``labels``, each with the places of its first and its last value, from 0. A value is
# the label of itself, and ``*`` that of anything, NULL too.


def texts(described: str) -> str:
    """Write all values as one array, ``texts``.

    `described`: SQL of the JSON, as jsonb.
    """
    values = f"jsonb_array_elements_text({described} -> 'values')"
    return f"SELECT array_agg(t.v ORDER BY t.i) AS texts FROM {values} WITH ORDINALITY AS t (v, i)"


def labels(described: str) -> str:
    """Write each ``label`` with the places of its ``first`` and its ``last`` value."""
    values = f"{described} -> 'values'"
    return (
        "SELECT e.x ->> 0 AS label, (e.x ->> 1)::int AS first, (e.x ->> 2)::int AS last"
        f" FROM jsonb_array_elements({described} -> 'labels') AS e (x)"
        " UNION ALL SELECT t.v, t.i::int - 1, t.i::int - 1"
        f" FROM jsonb_array_elements_text({values}) WITH ORDINALITY AS t (v, i)"
        f" UNION ALL SELECT '{ANYTHING}', 0, jsonb_array_length({values}) - 1"
    )


def members_of(label: str, alias: str, texts_sql: str) -> str:
    """Write the values of a label as an array.

    `alias`: A row of :func:`labels`, joined by the label, if it has one.
    """
    # `texts_sql`: the array of :func:`texts`. Only that of labels that occur is cut, which takes
    # long.
    nothing = f"CASE {label} WHEN '{ANYTHING}' THEN ARRAY[NULL::text] ELSE '{{}}' END"
    cut = f"({texts_sql})[{alias}.first + 1 : {alias}.last + 1]"
    return f"CASE WHEN num_nulls({label}) > 0 THEN ARRAY[NULL::text] ELSE {cut} || {nothing} END"


def check_described(described: object) -> str | None:
    """Return what the catalog has as JSON again; None if it is not what is described above."""
    if not isinstance(described, Mapping):
        return None
    values, spans = described.get("values"), described.get("labels")
    if not isinstance(values, list) or not isinstance(spans, list) or not values:
        return None
    if not all(_is_span(span, len(values)) for span in spans):
        return None
    texts = [*values, *(span[0] for span in spans), ANYTHING]
    if not all(isinstance(text, str) for text in texts) or len(set(texts)) < len(texts):
        return None
    return json.dumps({"values": values, "labels": spans}, ensure_ascii=False)


def _is_span(span: Any, n_values: int) -> bool:
    if not isinstance(span, list) or len(span) != 3:
        return False
    first, last = span[1:]
    return type(first) is type(last) is int and 0 <= first <= last < n_values


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
