"""Makes the cells of quasi-identifiers: ranges, sets, and labels of hierarchies.

Values may be coarsened before the search: rounded, and coded at the top and the bottom. Which bin a
value is in depends only on what the source was registered with, so all batches have the same bins.
Bins are [begin, end), where the next one begins; the first and the last may have no end.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Final, Self

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray
from kanon_db.algorithms.recoding import Ranges
from kanon_db.algorithms.recoding.generalized_cells import NumberedCells, Sets
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata, Taxonomy
from kanon_db.catalog.attributes import BINNED, UNITS, Hierarchy
from kanon_db.catalog.entries import Source
from kanon_db.dataclasses import dataclass
from kanon_db.errors import DatabaseError, SchemaMismatchError
from kanon_db.publications.relations import StagedRelations
from kanon_db.publications.rows.distinct_cells import CellColumn, CellTable, SourceColumns
from kanon_db.query.expressions import TEXT, Column
from kanon_db.query.layout import (
    ANYTHING,
    CellDescription,
    Quotes,
    RowView,
    check_described,
    labels,
)
from kanon_db.query.ranges import AXES, DISCRETE_RANGES, RANGES, describe_cells
from kanon_db.randomness import SecureRandom
from kanon_db.session.protocol import (
    Session,
    fetch_one,
    roomy,
    temporary_table,
)
from kanon_db.transfer.columns import (
    ColumnType,
    fix_labels,
    int4_bytes,
    label,
    label_of,
    number_bytes,
    text_in_set,
    with_numbers,
)
from kanon_db.transfer.snapshot import Records, Snapshot
from kanon_db.transfer.values import DistinctValues, read_numbers

# A bin depends only on what the source was registered with, so all batches have the same bins.

FLOATS: Final = ("real", "double precision")
_WHOLE: Final = {
    "smallint": (-(2**15), 2**15), "integer": (-(2**31), 2**31), "bigint": (-(2**63), 2**63 - 1),
}  # fmt: skip
"""The least value of a type, and the largest end of its ranges."""


@dataclass(frozen=True, eq=False)
class Bins:
    """The bins of a column that have a value, in their order; NULL's comes last."""

    session: Session
    # Temporary table ``(code, low, high, is_closed)``, quoted: where each bin begins and ends, NULL
    # without an end; and whether its end belongs to it.
    table: str
    codes: CodeArray  # shape (n_values,); the bin of each distinct value
    # Shape (n_bins,); the ends as numbers, NaN of NULL; where there is no end, that of the values
    # in the bin.
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
    """Write a value as one that the bins of its column are compared with, exactly."""
    return f"{AXES[column.type_name].end.format(value)}::{column.bound_type}"


def bin_of(column: ColumnType, described: Mapping[str, Any], value: str) -> tuple[str, str]:
    """Write where the bin of a value begins, and where it ends; NULL where it has no end.

    Values of `described`, without a unit, are parameters, in its order; `value` is what
    :func:`element_of` wrote, and not NULL.

    Examples
    --------
    >>> age = ColumnType("age", "integer", "N", None, True)
    >>> low, high = bin_of(age, {"top": 90}, "v")
    >>> low
    'CASE WHEN v >= $1::text::integer::numeric THEN $1::text::integer::numeric ELSE v END'
    >>> high
    'CASE WHEN v >= $1::text::integer::numeric THEN NULL ELSE v END'
    """
    bound = {
        key: f"${i}::text::numeric" if key == "round"
        else element_of(column, f"${i}::text::{column.type_name}")
        for i, key in enumerate(_bound(described), start=1)
    }  # fmt: skip
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
    """Find the bins of a column's values; None if it has none, or is not coarsened."""
    if not any(key in described for key in BINNED):
        return None
    column, session = values.column, values.session
    numbers = read_numbers(values)
    if numbers is None:
        raise SchemaMismatchError(
            "a column with infinite values, or what is no number, cannot be coarsened",
            detail=_describe(column),
            hint="publish a view that has NULL in place of them",
        )
    if np.isnan(numbers).all():
        return None
    table = temporary_table(session, "bins")
    with _within_type(session, column, "a bin", "round to a smaller unit"):
        codes = _write_bins(values, described, table)
    low, high = (column.number_of_end(end) for end in ("low", "high"))
    ends = fetch_one(
        session,
        "SELECT string_agg(float8send(l) || float8send(h), ''::bytea ORDER BY code) AS ends FROM"
        f" (SELECT code, coalesce({low}, first_number, 'NaN') AS l,"
        f" coalesce({high}, last_number, 'NaN') AS h FROM {table}) AS numbered",
    )
    lows, highs = np.frombuffer(ends["ends"], dtype=">f8").reshape(-1, 2).T.astype(np.float64)
    return Bins(session, table, codes, lows, np.maximum(lows, highs))


_OUT_OF_RANGE: Final = ("22003", "22008")
"""The SQLSTATEs of numbers, and of dates and times, that their types do not have."""


@contextmanager
def _within_type(session: Session, column: ColumnType, what: str, way_out: str) -> Iterator[None]:
    """Refuse values of a column that are so large that what the block writes ends beyond them."""
    try:
        with session.savepoint():
            yield
    except DatabaseError as error:
        if error.sqlstate not in _OUT_OF_RANGE:
            raise
        raise SchemaMismatchError(
            f"{what} would end beyond all values of the column's type",
            detail=_describe(column),
            hint=f"give the source a view without such values, or {way_out}",
        ) from None


def _describe(column: ColumnType) -> str:
    return f'column "{column.name}" of type {column.type_name}'


def _write_bins(values: DistinctValues, described: Mapping[str, Any], table: str) -> CodeArray:
    """Write the table of bins, and return that of each value."""
    column, session = values.column, values.session
    value = element_of(column, "v.value")
    low, high = (
        f"CASE WHEN num_nulls(b.element) = 0 THEN {end} END"
        for end in bin_of(column, described, "b.element")
    )
    member = temporary_table(session, "bin_of")
    # A value has itself as its bin; bins of several end before the next one.
    closed = "false" if "round" in described else "num_nulls(e.low) = 0"
    if column.type_name in FLOATS and "round" in described:
        # The end of a bin may be less than one digit above a number of floating point.
        closed = f"e.value >= e.high::{column.type_name}"
    with fix_labels(session):
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


_NULL_LABEL = -1  # instead of a label


@dataclass(frozen=True, eq=False)
class HierarchyLabels:
    """A hierarchy, and which of its values each value of a column is."""

    values: DistinctValues
    hierarchy: Hierarchy
    taxonomy: Taxonomy
    # Shape (n_values,); the place of each distinct value in the hierarchy; NULL's comes after them.
    codes: CodeArray
    table: str  # temporary table ``(label, first, last)`` of the labels, quoted
    places: str  # temporary table ``(label, first)`` of the values alone, by their texts, quoted

    @classmethod
    def of(cls, values: DistinctValues, described: object) -> Self:
        """Find the values of a column in a hierarchy."""
        hierarchy, column, session = Hierarchy.of(described), values.column, values.session
        places: dict[str | None, int] = {text: at for at, text in enumerate(hierarchy.values)}
        places[None] = len(places)
        is_padded = column.type_name == "bpchar"
        texts = [None if t is None else t.rstrip(" ") if is_padded else t for t in values.labels]
        n_missing = sum(text not in places for text in texts)
        if n_missing:
            raise SchemaMismatchError(
                "the hierarchy of a column lacks values that the column has",
                detail=f'column "{column.name}": {n_missing:,} of {len(texts):,} distinct values',
                hint="list every value of the column, as PostgreSQL writes it: SELECT DISTINCT"
                f" {session.identifier(column.name)} shows them",
            )
        suffix = secrets.token_hex(8)
        table, own = (
            session.identifier("pg_temp", f"kanon_{what}_{suffix}") for what in ("labels", "places")
        )
        with roomy(session):
            session.fetch(
                f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS SELECT l.label, l.first, l.last"
                f" FROM ({labels('$1::text::jsonb')}) AS l",
                json.dumps(hierarchy.described, ensure_ascii=False),
            )
            session.fetch(
                f"CREATE TEMPORARY TABLE {own} ON COMMIT DROP AS SELECT u.label, u.i::int4 - 1 AS"
                " first FROM unnest($1::text[]) WITH ORDINALITY AS u (label, i)",
                list(hierarchy.values),
            )
        for each in (table, own):  # looked up for each record
            session.fetch(f"CREATE INDEX ON {each} (label)")
            session.fetch(f"ANALYZE {each}")
        codes = np.array([places[text] for text in texts], dtype=np.int32)
        return cls(values, hierarchy, Taxonomy.of(hierarchy.levels), codes, table, own)

    def covers(self, name: str) -> str:
        """Return SQL for whether the label ``c.name`` stands for the value ``s.name``, quoted."""
        text = text_in_set(self.values.column, label_of(self.values.column, f"s.{name}"))
        return (
            f"CASE WHEN num_nulls(s.{name}) > 0 THEN coalesce(c.{name} = '{ANYTHING}', true) ELSE"
            f" EXISTS (SELECT FROM {self.table} AS l JOIN {self.places} AS v"
            f" ON v.first BETWEEN l.first AND l.last WHERE l.label = c.{name} AND v.label = {text})"
            " END"
        )

    def write(self, session: Session, part: str, cells: Ranges) -> None:
        """Write the lowest label that covers the values of each cell, numbered from 0."""
        n, levels = self.taxonomy.n_values, self.hierarchy.levels
        is_known = ~cells.tells_nothing & (cells.low < n)
        low, high = cells.low[is_known], cells.high[is_known]
        level = self.taxonomy.levels_of(low, high)
        first = self.taxonomy.firsts[level, low]
        nodes, number = np.unique(level * n + first, return_inverse=True)
        named = [self.hierarchy.values, *levels, (ANYTHING,) * n]
        texts = [named[node // n][node % n] for node in nodes.tolist()]
        of_cell = np.where(cells.tells_nothing, len(texts), _NULL_LABEL)
        of_cell[is_known] = number
        numbered, (label_of,) = with_numbers(
            session, "(SELECT generate_series(0, $3::int4 - 1) AS i)", (1, "r.i")
        )
        with roomy(session):
            session.fetch(
                f"CREATE TEMPORARY TABLE {part} ON COMMIT DROP AS SELECT c.i AS number,"
                f" t.label AS cell FROM {numbered} AS c LEFT JOIN unnest($2::text[])"
                f" WITH ORDINALITY AS t (label, i) ON t.i = c.{label_of} + 1",
                int4_bytes(of_cell),
                [*texts, ANYTHING],
                str(of_cell.size),
            )

    def drop(self) -> None:
        """Remove the tables before the transaction ends."""
        self.values.session.fetch(f"DROP TABLE {self.table}, {self.places}")


_NULL, _ANYTHING = -1, -2  # instead of a code: only NULL, or NULL and numbers together


@dataclass(frozen=True, eq=False)
class GeneralizedColumn:
    """A quasi-identifier that is to be generalized."""

    values: DistinctValues
    attribute: Attribute  # its domain, as the algorithms see it
    range_type: str | None  # the type of its cells; None if they are sets of texts
    # The bins of its values, if it has any: the codes that the algorithms see.
    bins: Bins | None = None
    # The hierarchy of its values, if it has one: its values are the codes.
    labels: HierarchyLabels | None = None

    @property
    def cell(self) -> str:
        """The name of this kind of cells in the layout."""
        if self.labels is not None:
            return "label"
        return "set" if self.range_type is None else "range"

    @property
    def has_whole_ends(self) -> bool:
        """Tell whether its ranges always include their first value, so that ends define them."""
        return self.range_type in DISCRETE_RANGES

    @property
    def element(self) -> str:
        """The type of the bounds of its ranges."""
        return RANGES[self.range_type].end if self.range_type else self.values.column.bound_type

    def bound(self, value: str) -> str:
        """Write a value as the ends of its ranges are written: no digit of it is lost."""
        return f"{AXES[self.values.column.type_name].end.format(value)}::{self.element}"

    def published(self, quotes: Quotes) -> CellDescription:
        """Describe its cells as the estimator reads them."""
        name, given = self.values.column.name, self.values.column.type_name
        column = Column(name, quotes.identifier(name), TEXT)
        return describe_cells(column, self.range_type or "", given)._replace(
            is_tight=self.bins is None and self.labels is None,
            labels=None
            if self.labels is None
            else check_described(self.labels.hierarchy.described),
        )

    def covers(self, name: str, low: str, high: str) -> str:
        """Return SQL for whether the value ``s.name``, quoted, lies within the cell ``c.name``.

        `low` and `high` are columns of ``c`` with what :meth:`ends` says, quoted; the cell itself
        must be there unless :attr:`has_whole_ends`.
        """
        value = f"s.{name}"
        if self.labels is not None:
            return self.labels.covers(name)
        if self.range_type is None:
            text = text_in_set(self.values.column, label_of(self.values.column, value))
            return f"array_position(c.{name}, {text}) IS NOT NULL"
        element = self.bound(value)
        of_null = f"num_nulls(c.{name}) > 0 OR (lower_inf(c.{name}) AND upper_inf(c.{name}))"
        otherwise = f"coalesce({element} <@ c.{name}, false)"
        if self.has_whole_ends:
            of_null = f"coalesce(c.{low} > c.{high}, num_nulls(c.{low}, c.{high}) = 2)"
            otherwise = (
                f"coalesce({element} >= c.{low}, num_nulls(c.{low}) = 1)"
                f" AND coalesce({element} < c.{high}, num_nulls(c.{high}) = 1)"
            )
        # Two comparisons of numbers take a fraction of the time of <@, and decide nearly always.
        return (
            f"CASE WHEN {element} >= c.{low} AND {element} < c.{high} THEN true"
            f" WHEN num_nulls({value}) > 0 THEN {of_null} ELSE {otherwise} END"
        )

    def ends(self, name: str, low: str, high: str) -> list[tuple[str, str]]:
        """Return SQL for where the range ``c.name``, quoted, begins and ends, with these names.

        An end is NULL where there is none, or where the range begins after it; cells that are no
        ranges have none. Of :attr:`has_whole_ends`, the cell of NULL alone ends before it begins.
        """
        if self.range_type is None:
            return []
        cell = f"c.{name}"
        if self.has_whole_ends:
            return [
                (f"CASE WHEN num_nulls({cell}) > 0 THEN {value} ELSE {end}({cell}) END", alias)
                for end, value, alias in zip(
                    ("lower", "upper"), RANGES[self.range_type].never, (low, high), strict=True
                )
            ]
        return [
            (f"CASE WHEN lower_inc({cell}) THEN lower({cell}) END", low),
            (f"upper({cell})", high),
        ]

    def drop(self) -> None:
        """Remove its tables before the transaction ends."""
        self.values.drop()
        for more in (self.bins, self.labels):
            if more is not None:
                more.drop()


def microdata_of(
    records: Records,
    source: Source,
    read: SourceColumns,
    weights: Sequence[int | float | Fraction] | None,
) -> tuple[Microdata, list[GeneralizedColumn]]:
    """Return the quasi-identifiers of records as codes, and their domains."""
    columns = []
    named = zip(source.quasi_identifiers, read.values, strict=True)
    for position, (name, values) in enumerate(named):
        weight = 1.0 if weights is None else float(weights[position])
        described = source.attributes.get(name, {})
        if "hierarchy" in described:
            _require_texts_of_values(records, values)
            columns.append(
                _labelled(values, HierarchyLabels.of(values, described["hierarchy"]), weight)
            )
            continue
        bins = read_bins(values, described)
        if bins is not None:
            columns.append(_binned(values, bins, source, weight))
            continue
        numbers = None if source.is_categorical(name) else read_numbers(values)
        if numbers is None and values.column.number("value") and not source.is_categorical(name):
            records.session.warn(
                f'column "{name}" has values that are infinite, no number, or too far apart for a'
                " range: its cells are sets"
            )
        range_type = None
        if numbers is not None and not np.isnan(numbers).all():
            range_type = values.column.range_type(float(np.nanmax(numbers)))
        if range_type is None or numbers is None:
            _require_texts_of_values(records, values)
            attribute = Attribute(len(values.labels), weight=weight)
        else:
            lower, upper = _bounds(values, source)
            attribute = Attribute(
                len(values.labels),
                numbers=numbers,
                # Values outside widen the bounds, since they must be published, too.
                lower=float(np.nanmin([*numbers, lower])),
                upper=float(np.nanmax([*numbers, upper])),
                weight=weight,
            )
        columns.append(GeneralizedColumn(values, attribute, range_type))
    codes = read.codes(np.dtype(np.int32))
    for position, column in enumerate(columns):
        coarse = column.bins or column.labels
        if coarse is not None:
            codes[:, position] = coarse.codes[codes[:, position]]
    return Microdata(codes, tuple(column.attribute for column in columns)), columns


def _binned(values: DistinctValues, bins: Bins, source: Source, weight: float) -> GeneralizedColumn:
    """Describe a column whose values are coarsened."""
    lower, upper = _bounds(values, source)
    attribute = Attribute(
        bins.lows.size,
        numbers=bins.lows,
        ends=bins.highs,
        lower=float(np.nanmin([*bins.lows, lower])),
        upper=float(np.nanmax([*bins.highs, upper])),
        weight=weight,
    )
    return GeneralizedColumn(values, attribute, values.column.range_type(bins.largest), bins)


def _labelled(values: DistinctValues, labels: HierarchyLabels, weight: float) -> GeneralizedColumn:
    """Describe a column whose cells are labels."""
    positions = labels.taxonomy.positions
    with_null = [np.nan] if None in values.labels else []
    attribute = Attribute(
        positions.size + len(with_null),
        numbers=np.append(positions, with_null),
        lower=float(positions[0]),
        upper=float(positions[-1]),
        weight=weight,
        taxonomy=labels.taxonomy,
    )
    return GeneralizedColumn(values, attribute, None, labels=labels)


def _require_texts_of_values(records: Records, values: DistinctValues) -> None:
    """Refuse a column whose equal values may have different texts (`SchemaMismatchError`)."""
    # A condition on a set compares texts, so equal values, such as the numerics 1.0 and 1.00, must
    # have the same text, and equality must be that of texts.
    column, session = values.column, records.session
    own_equality = column.operator_schema is not None and column.type_category == "S"
    # Where records were read as codes, equal values are the same value.
    has_texts = column.type_category in ("S", "E", "B")
    if isinstance(records, Snapshot) and not own_equality and not has_texts:
        name = session.identifier(column.name)
        with fix_labels(session):
            own_equality = fetch_one(
                session,
                f"SELECT EXISTS (SELECT FROM {records.table} GROUP BY {name}"
                f" HAVING min({label(name)}) <> max({label(name)})) AS found",
            )["found"]
    if own_equality:
        raise SchemaMismatchError(
            "equal values of a column have different texts",
            detail=f'column "{column.name}" of type {column.type_name}, whose cells are sets of'
            " texts",
            hint="publish a view that casts the column to text so that equal values have one text,"
            " for example lower(city::text)",
        )


def _bounds(values: DistinctValues, source: Source) -> tuple[float, float]:
    """Return the registered bounds as numbers; a missing bound is NaN."""
    described = source.attributes.get(values.column.name, {})
    bounds = [None if (b := described.get(key)) is None else str(b) for key in ("lower", "upper")]
    lower, upper = (values.column.number(f"${i}::text::{values.column.type_name}") for i in (1, 2))
    row = fetch_one(values.session, f"SELECT {lower} AS lower, {upper} AS upper", *bounds)
    return tuple(float("nan") if row[key] is None else row[key] for key in ("lower", "upper"))  # type: ignore[return-value]


def write_cells(
    staging: StagedRelations,
    view: RowView,
    columns: Sequence[GeneralizedColumn],
    cells: Sequence[NumberedCells],  # the cells of each quasi-identifier, the same number for each
    random: SecureRandom,
) -> CellTable:
    """Write the cells of the rows that are to be published."""
    session = staging.session
    session.step("writing the cells")
    suffix = secrets.token_hex(8)
    parts = {}
    for position, (column, (few, numbers)) in enumerate(zip(columns, cells, strict=True)):
        part = session.identifier("pg_temp", f"kanon_cells_{suffix}_{position}")
        if column.labels is not None and isinstance(few, Ranges):
            column.labels.write(session, part, few)
        elif isinstance(few, Sets):
            _write_sets(session, part, column, few)
        else:
            _write_ranges(session, part, column, few)
        name = view.quasi_identifiers[position]
        parts[name] = CellColumn(part, "number", "cell", few.n_cells, numbers)
    return CellTable.write(staging, view, parts, random)


def _write_ranges(session: Session, part: str, column: GeneralizedColumn, cells: Ranges) -> None:
    numbers = column.attribute.numbers
    low, high = cells.low.copy(), cells.high.copy()
    if numbers is not None:
        low[np.isnan(numbers)[cells.low]] = _NULL
    low[cells.tells_nothing] = _ANYTHING
    numbered, (lower, upper) = with_numbers(
        session, "(SELECT generate_series(0, $3::int4 - 1) AS i)", (1, "r.i"), (2, "r.i")
    )
    kind, element = column.range_type, column.element
    table, ends, bounds = column.values.table, ("value", "value"), "'[]'"
    if column.bins is not None:
        table, ends = column.bins.table, ("low", "high")
        bounds = "CASE WHEN u.is_closed THEN '[]' ELSE '[)' END"
    first, last = (f"{end}::{element}" for end in (f"l.{ends[0]}", f"u.{ends[1]}"))
    if column.bins is None:
        first, last = column.bound("l.value"), column.bound("u.value")
    way_out = "give the column a top, from which on values are not told apart"
    with roomy(session), _within_type(session, column.values.column, "a range", way_out):
        session.fetch(
            f"CREATE TEMPORARY TABLE {part} ON COMMIT DROP AS SELECT c.i AS number,"
            f" CASE c.{lower} WHEN {_NULL} THEN NULL WHEN {_ANYTHING} THEN '(,)'::{kind}"
            f" ELSE {kind}({first}, {last}, {bounds}) END AS cell"
            f" FROM {numbered} AS c LEFT JOIN {table} AS l ON l.code = c.{lower}"
            f" LEFT JOIN {table} AS u ON u.code = c.{upper}",
            int4_bytes(low),
            int4_bytes(high),
            str(low.size),
        )


def _write_sets(session: Session, part: str, column: GeneralizedColumn, cells: Sets) -> None:
    text = text_in_set(column.values.column, "v.label")
    owners = np.repeat(np.arange(cells.n_cells, dtype=np.int32), cells.sizes)
    (numbers, width), (codes, code_width) = number_bytes(owners), number_bytes(cells.codes)
    del owners
    numbered, (number, code) = with_numbers(
        session, "(SELECT generate_series(0, $3::int4 - 1) AS i)", (1, "r.i"), (2, "r.i"),
        widths=(width, code_width),
    )  # fmt: skip
    with roomy(session):
        session.fetch(
            f"CREATE TEMPORARY TABLE {part} ON COMMIT DROP AS SELECT c.{number} AS number,"
            f" array_agg({text} ORDER BY v.code) AS cell FROM {numbered} AS c"
            f" JOIN {column.values.table} AS v ON v.code = c.{code} GROUP BY c.{number}",
            numbers,
            codes,
            str(cells.codes.size),
        )
