"""Cells of generalized quasi-identifiers: ranges of numbers and times, sets of everything else."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from kanon_db.algorithms.recoding.cells import NumberedCells, Ranges, Sets
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.catalog.entries import Source
from kanon_db.counting.expressions import Column, Type
from kanon_db.counting.layout import Cell, Quotes, RowView
from kanon_db.counting.types import DISCRETE_RANGES, type_in_range
from kanon_db.counting.writing.labels import checked
from kanon_db.errors import SchemaMismatchError
from kanon_db.publications.rows.bins import FLOATS, Bins, element_of, read_bins
from kanon_db.publications.rows.cell_table import CellColumn, CellTable
from kanon_db.publications.rows.labelled import Labels
from kanon_db.publications.rows.shown_rows import SourceColumns
from kanon_db.publications.staging import Staging
from kanon_db.randomness import SecureRandom
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.session.settings import roomy
from kanon_db.transfer.columns import int4_bytes, number_bytes, with_numbers
from kanon_db.transfer.labels import fixed_labels, label, label_of, text_in_set
from kanon_db.transfer.records import Records
from kanon_db.transfer.snapshot import Snapshot
from kanon_db.transfer.values import DistinctValues, read_numbers

_NEVER: Final = {
    "int4range": ("1", "0"),
    "int8range": ("1::int8", "0::int8"),
    "daterange": ("'2000-01-02'::date", "'2000-01-01'::date"),
}
"""By the type of ranges, two ends between which no value lies."""

_NULL, _ANYTHING = -1, -2  # instead of a code: only NULL, or NULL and numbers together


@dataclass(frozen=True, eq=False)
class GeneralizedColumn:
    """A quasi-identifier that is to be generalized.

    Attributes
    ----------
    values : DistinctValues
    attribute : Attribute
        Its domain, as the algorithms see it.
    range_type : str or None
        The type of its cells; None if they are sets of texts.
    bins : Bins or None
        The bins of its values, if it has any: the codes that the algorithms see.
    labels : Labels or None
        The hierarchy of its values, if it has one: its values are the codes.
    """

    values: DistinctValues
    attribute: Attribute
    range_type: str | None
    bins: Bins | None = None
    labels: Labels | None = None

    @property
    def cell(self) -> str:
        """What the layout calls its kind of cells."""
        if self.labels is not None:
            return "label"
        return "set" if self.range_type is None else "range"

    @property
    def has_whole_ends(self) -> bool:
        """Whether its ranges always have their first value, so that the ends tell all of them."""
        return self.range_type in _NEVER

    @property
    def element(self) -> str:
        """The type of the bounds of its ranges."""
        if self.range_type in ("int4range", "int8range"):
            return self.range_type.removesuffix("range")
        return self.values.column.bound_type

    def bound(self, value: str) -> str:
        """Write a value as the ends of its ranges are written: no digit of it is lost."""
        is_exact = self.bins is None and self.values.column.type_name not in FLOATS
        exact = value if is_exact else element_of(self.values.column, value)
        return f"{exact}::{self.element}"

    def published(self, quotes: Quotes) -> Cell:
        """Describe its cells as the estimator reads them."""
        name, given = self.values.column.name, self.values.column.type_name
        inside = None if self.range_type is None else type_in_range(self.range_type, given)
        return Cell(
            Column(name, quotes.identifier(name), inside or Type("text", "text")),
            "set" if inside is None else "range",
            is_discrete=self.range_type in DISCRETE_RANGES,
            is_tight=self.bins is None and self.labels is None,
            labels=None if self.labels is None else checked(self.labels.hierarchy.described),
        )

    def covers(self, name: str, low: str, high: str) -> str:
        """Return SQL for whether the value ``s.name``, quoted, lies within the cell ``c.name``.

        Parameters
        ----------
        name : str
        low, high : str
            Columns of ``c`` with what :meth:`ends` says, quoted; the cell itself must be there
            unless :attr:`has_whole_ends`.
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
                    ("lower", "upper"), _NEVER[str(self.range_type)], (low, high), strict=True
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
            columns.append(_labelled(values, Labels.of(values, described["hierarchy"]), weight))
            continue
        bins = read_bins(values, described)
        if bins is not None:
            columns.append(_binned(values, bins, source, weight))
            continue
        numbers = None if source.is_categorical(name) else read_numbers(values)
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


def _labelled(values: DistinctValues, labels: Labels, weight: float) -> GeneralizedColumn:
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
    """Refuse a column whose sets of texts would not tell which values are meant.

    Sets hold texts, and a condition on them compares texts. So values that are equal, such as the
    numerics 1.0 and 1.00, must not have different ones, and equality must be that of texts.

    Raises
    ------
    SchemaMismatchError
    """
    column, session = values.column, records.session
    own_equality = column.operator_schema is not None and column.type_category == "S"
    # Of records that were read as codes, equal values are the same value.
    has_texts = column.type_category in ("S", "E", "B")
    if isinstance(records, Snapshot) and not own_equality and not has_texts:
        name = session.identifier(column.name)
        with fixed_labels(session):
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
    staging: Staging,
    view: RowView,
    columns: Sequence[GeneralizedColumn],
    cells: Sequence[NumberedCells],
    random: SecureRandom,
) -> CellTable:
    """Write the cells of the rows that are to be published.

    Parameters
    ----------
    cells : sequence of NumberedCells
        The cells of each quasi-identifier, the same number for each.
    """
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
    with roomy(session):
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
