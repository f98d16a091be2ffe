"""Values of columns as numbers on an axis, and as Arrow has them.

Whole numbers are themselves, days count from 2000 on, points in time are microseconds: from 2000
on, or from 1970 where they have a time zone, as in `kanon_db.query.cell_conditions`. Decimal
numbers are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np

from kanon_db.query.expressions import Type

Place: TypeAlias = Any
"""A value on its column's axis: a whole number, a Decimal, or one of floating point."""

_FIRST_DAY: Final = date(2000, 1, 1)
_DAYS: Final = (_FIRST_DAY - date(1970, 1, 1)).days
_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_OFFSETS: Final = {
    "timestamp without time zone": _DAYS * _DAY, "timestamp with time zone": 0,
}  # fmt: skip
_EXACT: Final = Context(prec=80)
_QUOTIENT: Final = Decimal(1).scaleb(-20)
"""How PostgreSQL rounds the quotient of such small numbers."""


def places(array: Any, type_: Type) -> list[Place | None]:
    """Return where the values of an Arrow array are."""
    import pyarrow as pa

    if type_.name == "date":
        days = array.cast(pa.int32()).to_pylist()
        return [None if day is None else day - _DAYS for day in days]
    if type_.name in _OFFSETS:
        moments = array.cast(pa.int64()).to_pylist()
        return [None if one is None else one - _OFFSETS[type_.name] for one in moments]
    found = array.to_pylist()
    if type_.category == "float":
        return [None if one is None else float(one) for one in found]
    return list(found)


def array_of(values: Sequence[Place | None], type_: Type) -> Any:
    """Return the values at some places as Arrow has them."""
    import pyarrow as pa

    if type_.name == "date":
        days = [None if day is None else int(day) + _DAYS for day in values]
        return pa.array(days, pa.int32()).cast(pa.date32())
    if type_.name in _OFFSETS:
        zone = "UTC" if type_.name == "timestamp with time zone" else None
        moments = [None if one is None else int(one) + _OFFSETS[type_.name] for one in values]
        return pa.array(moments, pa.int64()).cast(pa.timestamp("us", zone))
    if type_.name == "numeric":
        known = [one for one in values if one is not None]
        return pa.array(values) if known else pa.array(values, pa.decimal128(1, 0))
    whole = {"smallint": pa.int16(), "integer": pa.int32(), "bigint": pa.int64()}
    if type_.name in whole:
        return pa.array([None if v is None else int(v) for v in values], whole[type_.name])
    return pa.array(values, pa.float32() if type_.name == "real" else pa.float64())


def array_of_texts(texts: Sequence[str | None], type_: Type) -> Any:
    """Return the values that the texts of sets stand for."""
    import pyarrow as pa

    if type_.category == "boolean":
        return pa.array([None if text is None else text == "t" for text in texts], pa.bool_())
    if type_.category in ("text", "label"):
        return pa.array(texts, pa.string())
    return array_of(
        [None if text is None else place_of(text, type_, type_) for text in texts], type_
    )


def place_of(text: str, type_: Type, column: Type) -> Any:
    """Return where a constant is on the axis of a column; a fraction if it lies between values.

    Parameters
    ----------
    text : str
    type_ : Type
        Of the constant.
    column : Type
        Of the column.
    """
    if column.category == "float":
        return float(text)
    if column.name == "numeric" and type_ is column:
        return Decimal(text)
    if column.category != "moment":
        found = Fraction(text)
        return int(found) if found.denominator == 1 else found
    if type_.name == "date":
        at = datetime.combine(date.fromisoformat(text), datetime.min.time(), tzinfo=UTC)
    else:
        at = datetime.fromisoformat(text).replace(tzinfo=UTC)
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    micros = since.days * _DAY + since.seconds * _SECOND + since.microseconds
    if column.name == "date":
        days = Fraction(micros, _DAY) - _DAYS
        return int(days) if days.denominator == 1 else days
    return micros - _OFFSETS[column.name]


def text_of(place: Place, type_: Type) -> str:
    """Write a number as PostgreSQL does: the shortest text of one of floating point."""
    if isinstance(place, float):
        return str(np.float32(place)) if type_.name == "real" else repr(place)
    return f"{place:f}" if isinstance(place, Decimal) else str(place)


def coordinate(place: Place, type_: Type) -> float:
    """Return a place as a number of floating point: points in time in seconds."""
    return float(place / _SECOND if type_.name in _OFFSETS else place)


def nearest(at: float, type_: Type) -> Place:
    """Return the value that is nearest to a coordinate, as PostgreSQL casts it."""
    if type_.name in _OFFSETS:
        return round(at * _SECOND)
    if type_.category == "float":
        return at
    if type_.name == "numeric":
        return Decimal(f"{at:.15g}")
    return round(at)


def between(low: Place, high: Place, part: Fraction, type_: Type) -> Place:
    """Return the value at a part of the way from one to another, as PostgreSQL calculates it."""
    if isinstance(low, float):
        return low + (high - low) * float(part)
    if type_.name in _OFFSETS:
        return round(low + (int(high) - int(low)) * float(part))
    at = _EXACT.divide(Decimal(part.numerator), Decimal(part.denominator))
    at = at.quantize(_QUOTIENT, ROUND_HALF_UP, _EXACT).normalize(_EXACT)
    found = _EXACT.fma(_EXACT.subtract(Decimal(high), Decimal(low)), at, Decimal(low))
    if type_.name == "numeric":
        return found
    return int(found.to_integral_value(ROUND_HALF_UP))
