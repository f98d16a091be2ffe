"""A query that Spark answers, and what it tries of values, which are numbers on an axis."""

from __future__ import annotations

import json
import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.answers.scope import OpenQuery
from kanon_db.errors import ServerError, UnsupportedQueryError
from kanon_db.publications.rows.cell_columns import Flags
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Type, refusal
from kanon_db.query.sql import Constants, write
from kanon_db.spark._tables import PublishedTables
from kanon_db.spark.environment import failures_as_errors, quiet
from kanon_db.transfer.tries import (
    FALSE,
    TRUE,
    UNKNOWN,
    AxisCut,
    Combinations,
    ContinuousValues,
    Domain,
    Probe,
    Ranked,
    Tries,
    WholeValues,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


IN_POSTGRESQL: Final = "load the publication into PostgreSQL (kanon spark load), and ask there"


def only_in_postgresql() -> UnsupportedQueryError:
    """Make the refusal of what takes more memory than the driver has."""
    return refusal(
        "the values that this depends on are too many for the driver",
        hint=IN_POSTGRESQL,
        detail="rows are asked here where conditions and groups have few enough values to try them"
        " one by one",
    )


class SparkQuery(OpenQuery):
    """A query of a publication in files."""

    def frugal(self) -> AbstractContextManager[None]:
        """Leave memory to Spark's own settings."""
        return nullcontext()

    def n_absent(self, column: ex.Column, constants: Sequence[ex.Constant]) -> int:  # noqa: ARG002
        """Count nothing: the files would be read once more."""
        return 0

    @contextmanager
    def _own_words(self) -> Iterator[None]:
        """Say in our own words why a statement of the query failed.

        Raises UnsupportedQueryError where it is the query's fault.
        """
        try:
            yield
        except ServerError as error:
            what = error.detail.partition(".")[0]
            if what in _ARITHMETIC:
                raise refusal(
                    "the query's arithmetic fails on some value",
                    hint="exclude such values with CASE or another condition",
                    detail=what,
                ) from None
            if what.isupper() and what not in _FAILED:
                raise refusal(
                    "the query cannot be answered on Spark", hint=IN_POSTGRESQL, detail=what
                ) from None
            raise


_ARITHMETIC: Final = (
    "DIVIDE_BY_ZERO", "ARITHMETIC_OVERFLOW", "BINARY_ARITHMETIC_OVERFLOW", "CAST_OVERFLOW",
    "NUMERIC_VALUE_OUT_OF_RANGE", "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION",
)  # fmt: skip
_FAILED: Final = ("FAILED_READ_FILE", "INTERNAL_ERROR", "CONNECT", "JOB_CANCELLED")
"""Conditions of Spark that say nothing about the query."""


def value_of_key(text: str) -> str:
    """Write the only value of a group's key, as jsonb does."""
    (value,) = json.loads(text, parse_float=Decimal, parse_int=Decimal).values()
    return f"{value:f}" if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


class SparkTries(Tries):
    """Asks Spark what conditions and expressions give for distinct values."""

    # `own_words` returns a context in which errors of the query's arithmetic become refusals;
    # `distinct` a column's values as an Arrow array; of ranges, their ends, ascending.

    def __init__(
        self,
        session: SparkSession,
        own_words: Callable[[], AbstractContextManager[None]],
        distinct: Callable[[str], pa.Array],
    ) -> None:
        super().__init__()
        self._session, self._own_words, self._distinct = session, own_words, distinct

    def answer(self, wanted: Sequence[Probe]) -> None:
        """Try all that is asked of the same combinations together."""
        groups: dict[int, list[Probe]] = {}
        for probe in wanted:
            if probe.what == "cut":
                probe.answer = self._cut(probe)
            else:
                groups.setdefault(id(probe.of), []).append(probe)
        for group in groups.values():
            table = self._calculate(group)
            for number, probe in enumerate(group):
                own = [
                    table[f"{name}{number}"].combine_chunks() for name in _CALCULATED[probe.what]
                ]
                if probe.what == "number":
                    probe.answer = self._numbers(probe, *own)
                else:
                    probe.answer = _READ[probe.what](*own)

    def _numbers(self, probe: Probe, column: pa.Array) -> FloatArray:
        is_null = np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.bool_)
        numbers = np.array(column.to_numpy(zero_copy_only=False), np.float64)
        return self.read_numbers(probe, numbers, is_null)

    def _cut(self, probe: Probe) -> AxisCut:
        column = probe.column
        if column is None:
            raise TypeError("an axis is that of a column")
        regions = AxisRegions(probe.expression, column.type)
        for domain in probe.of.domains.values():
            places = axis_values(self._values(column.name, domain), column.type)
            return regions.cut([place for place in places if place is not None], column.type)
        return regions.cut([], None)

    def _values(self, name: str, domain: Domain) -> pa.Array:
        """Return the values of a column as Arrow has them."""
        match domain:
            case WholeValues(type_, numbers):
                return array_of_axis_values([*numbers.tolist(), None], type_)
            case ContinuousValues(type_, of_ends, others):
                ends = [] if of_ends is None else axis_values(self._distinct(name), type_)
                more = [nearest_axis_value(at, type_) for at in others]
                return array_of_axis_values([*ends, *more, None], type_)
        return self._distinct(name)

    def _combine(self, of: Combinations) -> dict[str, pa.Array]:
        """Return the values of each combination, by their columns."""
        if not of.domains:
            return {}
        numbers = of.numbers
        if numbers is None:
            shape = [max(domain.n, 1) for domain in of.domains.values()]
            numbers = np.stack(np.unravel_index(np.arange(of.n), shape), axis=1)
        return {
            name: self._values(name, domain).take(own)
            for (name, domain), own in zip(of.domains.items(), numbers.T, strict=True)
        }

    def _calculate(self, group: Sequence[Probe]) -> Any:
        """Calculate what is asked, for each combination of values."""
        import pyarrow as pa

        of = group[0].of
        number = {name: f"v{place}" for place, name in enumerate(of.domains)}
        given = pa.table(
            {"i": pa.array(np.arange(of.n))}
            | {number[name]: own for name, own in self._combine(of).items()}
        )
        constants, selected = Constants(), ["d.i AS i"]
        for place, probe in enumerate(group):
            text = write(probe.expression, lambda column: f"d.{number[column.name]}", constants)
            selected += [
                f"{sql.format(text)} AS {name}{place}"
                for name, sql in _CALCULATED[probe.what].items()
            ]
        with self._own_words(), failures_as_errors("values could not be tried"), quiet():
            frame = self._session.createDataFrame(given)
            tables = PublishedTables(self._session, {_TRIED_VALUES: frame})
            try:
                statement = f'SELECT {", ".join(selected)} FROM "{_TRIED_VALUES}" AS d'
                calculated = tables.select(statement, *constants.bound).toArrow()
            finally:
                tables.drop()
        return calculated.sort_by("i")


_TRIED_VALUES: Final = "tried"

_CALCULATED: Final = {
    "truth": {"t": "({} IS TRUE)", "f": "({} IS FALSE)"},
    "number": {"x": "({})::float8"},
    "rank": {"k": "{}"},
    "key": {"k": "{}", "j": "jsonb_build_object('k', {})::text"},
}
"""What Spark calculates of each expression."""


def _read_truth(true: pa.Array, false: pa.Array) -> Any:
    flags = [np.asarray(one.to_numpy(zero_copy_only=False), np.bool_) for one in (true, false)]
    return np.where(flags[0], TRUE, np.where(flags[1], FALSE, UNKNOWN)).astype(np.uint8)


def _read_ranks(key: pa.Array) -> FloatArray:
    import pyarrow.compute as pc

    distinct = pc.unique(key)
    ordered = distinct.take(pc.sort_indices(distinct))  # NULL last
    ranks = np.asarray(pc.index_in(key, value_set=ordered).to_numpy(), dtype=np.float64)
    return np.where(key.is_valid().to_numpy(zero_copy_only=False), ranks, np.nan)


def _read_keys(key: pa.Array, texts: pa.Array) -> Ranked:
    numbers = _read_ranks(key)
    ranks = np.nan_to_num(numbers, nan=np.nanmax(numbers, initial=-1) + 1).astype(np.int64)
    _, first = np.unique(ranks, return_index=True)
    return Ranked(ranks, [value_of_key(text) for text in texts.take(first).to_pylist()])


_READ: Final[dict[str, Callable[..., Any]]] = {
    "truth": _read_truth, "rank": _read_ranks, "key": _read_keys
}  # fmt: skip


AxisValue: TypeAlias = Any
"""A value on its column's axis: a whole number, a Decimal, or one of floating point.

Days count from 2000 on, points in time are microseconds: from 2000 on, or from 1970 where they have
a time zone, as in `kanon_db.query.ranges`.
"""

_FIRST_DAY: Final = date(2000, 1, 1)
_DAYS: Final = (_FIRST_DAY - date(1970, 1, 1)).days
_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_OFFSETS: Final = {
    "timestamp without time zone": _DAYS * _DAY, "timestamp with time zone": 0,
}  # fmt: skip


def axis_values(array: Any, type_: Type) -> list[AxisValue | None]:
    """Return where the values of an Arrow array are."""
    import pyarrow as pa

    if type_.name == "date":
        days = array.cast(pa.int32()).to_pylist()
        return [None if day is None else day - _DAYS for day in days]
    if type_.name in _OFFSETS:
        moments = array.cast(pa.int64()).to_pylist()
        return [None if one is None else one - _OFFSETS[type_.name] for one in moments]
    places = array.to_pylist()
    if type_.category == "float":
        return [None if one is None else float(one) for one in places]
    return list(places)


def array_of_axis_values(values: Sequence[AxisValue | None], type_: Type) -> Any:
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
    return array_of_axis_values(
        [None if text is None else axis_value_of_text(text, type_, type_) for text in texts], type_
    )


def axis_value_of_text(text: str, type_: Type, column: Type) -> Any:
    """Return where a constant is on the axis of a column; a fraction if it lies between values.

    `type_`: of the constant. `column`: of the column.
    """
    if column.category == "float":
        return float(text)
    if column.name == "numeric" and type_ is column:
        return Decimal(text)
    if column.category != "moment":
        number = Fraction(text)
        return int(number) if number.denominator == 1 else number
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


def coordinate(place: AxisValue, type_: Type) -> float:
    """Return a place as a number of floating point: points in time in seconds."""
    return float(place / _SECOND if type_.name in _OFFSETS else place)


def nearest_axis_value(at: float, type_: Type) -> AxisValue:
    """Return the value that is nearest to a coordinate, as PostgreSQL casts it."""
    if type_.name in _OFFSETS:
        return round(at * _SECOND)
    if type_.category == "float":
        return at
    if type_.name == "numeric":
        return Decimal(f"{at:.15g}")
    return round(at)


_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_OPERATORS: Final = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq,
    "<>": operator.ne,
}  # fmt: skip


_FAR: Final = 1 << 61
"""Beyond all whole numbers of an axis."""


def _nearer(number: int) -> int:
    return min(max(number, -_FAR), _FAR)


class AxisRegions:
    """A condition on one column, which :func:`.can_cover` accepts.

    `column`: of the column. `of_null`: whether it is true of NULL.
    """

    def __init__(self, condition: ex.Expression, column: ex.Type) -> None:
        self._column = column
        constants = (part for part in ex.walk(condition) if isinstance(part, ex.Constant))
        self._points: list[Any] = sorted({self._place(constant) for constant in constants})
        self._is_true = self._find_regions(condition)
        self.of_null = _of_null(condition)

    def cut(self, places: Sequence[AxisValue], type_: Type | None) -> AxisCut:
        """Return the pieces of the axis where it is true, and where some values are.

        `type_`: of continuous values, whose pieces have coordinates; None for whole numbers.
        """
        true = np.concatenate([[False], self._is_true, [False]])
        first, last = np.flatnonzero(~true[:-1] & true[1:]), np.flatnonzero(true[:-1] & ~true[1:])
        last -= 1
        region = np.array([self._region(place) for place in places], dtype=np.int64)
        n_below = np.searchsorted(last, region, "left")
        is_inside = self._is_true[region]
        dtype = np.int64 if type_ is None else np.float64
        low = np.array([self._begin(one, type_) for one in first.tolist()], dtype)
        high = np.array([self._end(one, type_) for one in last.tolist()], dtype)
        shown = low <= high
        return AxisCut(
            low[shown], high[shown], bool(self._is_true[0]), bool(self._is_true[-1]),
            {True: TRUE, False: FALSE, None: UNKNOWN}[self.of_null], n_below, is_inside,
        )  # fmt: skip

    def _begin(self, region: int, type_: Type | None) -> float:
        """Return the first whole number of a region, or the coordinate of its lower end."""
        if not region:
            return -_FAR if type_ is None else -math.inf
        point = self._points[(region - 1) // 2]
        if type_ is not None:
            return coordinate(point, type_)
        return _nearer(math.ceil(point) if region % 2 else math.floor(point) + 1)

    def _end(self, region: int, type_: Type | None) -> float:
        """Return the last whole number of a region, or the coordinate of its upper end."""
        if region == 2 * len(self._points):
            return _FAR if type_ is None else math.inf
        point = self._points[region // 2]
        if type_ is not None:
            return coordinate(point, type_)
        return _nearer(math.floor(point) if region % 2 else math.ceil(point) - 1)

    def _place(self, constant: ex.Constant) -> Any:
        return axis_value_of_text(constant.text or "", constant.type, self._column)

    def _region(self, place: Any) -> int:
        """Return the number of a place's region; even ones lie between points."""
        at = bisect_left(self._points, place)
        return 2 * at + (bisect_right(self._points, place, lo=at) > at)

    def _find_regions(self, condition: ex.Expression) -> Flags:
        """Say in which regions a condition is true."""
        n, regions = 2 * len(self._points) + 1, np.zeros(0, dtype=np.bool_)
        match condition:
            case ex.And(parts):
                regions = np.logical_and.reduce([self._find_regions(part) for part in parts])
            case ex.Or(parts):
                regions = np.logical_or.reduce([self._find_regions(part) for part in parts])
            case ex.Not(part):
                regions = ~self._find_regions(part)
            case ex.NullTest(_, negated):
                regions = np.full(n, negated)
            case ex.Comparison(sign, ex.Column(), ex.Constant() as constant):
                regions = self._compare(sign, constant)
            case ex.Comparison(sign, ex.Constant() as constant, ex.Column()):
                regions = self._compare(_FLIPPED[sign], constant)
            case ex.Membership(_, items, negated):
                regions = np.full(n, negated)
                for item in items:
                    if isinstance(item, ex.Constant):
                        regions[self._region(self._place(item))] = not negated
            case ex.Range():
                regions = self._find_regions(ex.spell_out(condition))
            case _:
                raise TypeError(f"{type(condition).__name__} cuts no axis")
        return regions

    def _compare(self, sign: str, constant: ex.Constant) -> Flags:
        region, at = np.arange(2 * len(self._points) + 1), self._region(self._place(constant))
        flags: Flags = _OPERATORS[sign](region, at)
        return flags


def _of_null(condition: ex.Expression) -> bool | None:
    match condition:
        case ex.And(parts):
            truths = [_of_null(part) for part in parts]
            return False if False in truths else None if None in truths else True
        case ex.Or(parts):
            truths = [_of_null(part) for part in parts]
            return True if True in truths else None if None in truths else False
        case ex.Not(part):
            truth = _of_null(part)
            return None if truth is None else not truth
        case ex.NullTest(_, negated):
            return not negated
    return None
