"""Reads rows in files as types of records, which Spark counts, and their cells."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.algorithms.recoding import Sets
from kanon_db.algorithms.recoding.generalized_cells import (
    MOST_CELLS,
    Axis,
    RangeDistributions,
    SetDistributions,
)
from kanon_db.answers.rows.cell_evidence import CellEvidence, KnownTypes, TriedColumn
from kanon_db.answers.rows.pieces import Pieces
from kanon_db.catalog.entries import Publication, changed
from kanon_db.catalog.published_types import PublishedTypes
from kanon_db.dataclasses import dataclass
from kanon_db.errors import UnsupportedQueryError
from kanon_db.publications.registry import kind_named
from kanon_db.publications.rows.cell_columns import (
    Cells,
    KnownCells,
    NotReadError,
    RangeColumn,
    RangeEnds,
    SetColumn,
    ValueColumn,
    doubt_hidden,
)
from kanon_db.publications.rows.row_kind import RowKind
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import refusal
from kanon_db.query.layout import SHARES, CellDescription, CellLayout, RowView, is_vague
from kanon_db.query.layout import Shares as WhatIsKnown
from kanon_db.query.ranges import type_in_range
from kanon_db.query.sql import Request
from kanon_db.spark._spark_query import (
    AxisValue,
    SparkQuery,
    SparkTries,
    array_of_axis_values,
    array_of_texts,
    axis_values,
    coordinate,
    nearest_axis_value,
    only_in_postgresql,
)
from kanon_db.spark._tables import SCHEMA, PublishedTables, TableSession, column_type
from kanon_db.spark.environment import failures_as_errors, quote_column
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.tries import ColumnValues

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


LOWER_END: Final = "lower"
UPPER_END: Final = "upper"


def view_of(tables: PublishedTables, publication: Publication) -> RowView:
    """Return the names of a publication of rows."""
    return RowView.of(tables, SCHEMA, publication.name, publication.layout)


def rows_of(tables: PublishedTables, publication: Publication) -> DataFrame:
    """Return the published rows."""
    return tables.frames[publication.name]


def cell_layout(session: TableSession, publication: Publication, *, is_paper: bool) -> CellLayout:
    """Describe published rows by what the manifest says and the files have."""
    described = publication.layout
    view, types = view_of(session.tables, publication), PublishedTypes(session, publication)
    schema = {one.name: one.dataType for one in rows_of(session.tables, publication).schema}
    cells: dict[str, CellDescription] = {}
    for position, written in enumerate(described["quasi_identifiers"], start=1):
        name, mark = str(written["name"]), None if view.pattern is None else position
        published = _describe_column(name, written, schema[name])
        cells[name] = types.cell(published, written["cell"], mark, written.get("labels"))
    for name in described["others"]:
        cells[name] = types.cell(column_type(name, schema[name]), "value", None)
    cells = {
        name: cell._replace(column=without_order(cell.column), shares=None)
        for name, cell in cells.items()
    }
    left_out = publication.left_out
    n_rows = publication.records - left_out
    k = int(publication.parameters.get("k", 1))
    return CellLayout(view, cells, left_out, n_rows, is_paper=is_paper, k=k)


def _describe_column(name: str, written: Mapping[str, Any], type_: Any) -> ColumnType:
    """Return what PostgreSQL would make of a column of cells."""
    range_type = str(written.get("range_type"))
    if written["cell"] == "range" and type_in_range(range_type, None) is not None:
        return ColumnType(name, range_type, "R", None, has_constant_input=True)
    if type_.simpleString() == "array<string>":
        return ColumnType(name, "text[]", "A", None, has_constant_input=True)
    return column_type(name, type_)


def without_order(column: ex.Column) -> ex.Column:
    """Take the order from texts: Spark's is by bytes, and PostgreSQL's by a collation."""
    if column.type.category != "text":
        return column
    return replace(column, type=replace(column.type, is_ordered=False))


Key: TypeAlias = Any
"""What a cell is known by: a tuple of a set's texts; of a range, its ends, or None for NULL."""


@dataclass(frozen=True)
class SparkRowQuery(SparkQuery):
    """A query of published rows in files."""

    rows: DataFrame
    shares: Mapping[str, CellShares | None]  # Of the columns that it mentions
    # What was counted for its other aggregates, by the columns
    counted: dict[tuple[str, ...], CountedRecordTypes] = field(default_factory=dict)

    def known_types(
        self, request: Request, layout: CellLayout, also: Sequence[str], *, lists_values: bool
    ) -> KnownTypes:
        """Count the types of records, and try what is asked of their cells."""
        return SparkTypes(Pieces.of(request, layout, also, lists_values=lists_values), self, layout)

    def too_much(self) -> UnsupportedQueryError:
        """Refuse what would list or try more than the driver holds."""
        return only_in_postgresql()

    def count_types(self, layout: CellLayout, names: tuple[str, ...]) -> CountedRecordTypes:
        """Count the types of records that some columns tell apart."""
        if names not in self.counted:
            pattern = self.publication.layout.get("pattern")
            self.counted[names] = CountedRecordTypes.of(
                self.rows, layout, names, pattern, self.shares
            )
        counted = self.counted[names]
        if counted.n.sum() != layout.n_rows:
            raise changed(self.publication)
        return counted

    def tries_of(self, counted: CountedRecordTypes) -> SparkTries:
        """Return what asks Spark of the values of some columns."""
        return SparkTries(self.rows.sparkSession, self._own_words, counted.distinct)

    def has_cells(self, cell: CellDescription, *, hidden: bool) -> bool:
        """Whether some cells of a column are suppressed, or some are not."""
        if cell.mark is None:
            return not hidden
        mark = self.rows[self.publication.layout["pattern"]].substr(cell.mark, 1)
        is_wanted = mark == "*" if hidden else mark != "*"
        with failures_as_errors("suppressed cells could not be counted"):
            return bool(self.rows.where(is_wanted).limit(1).count())


class SparkTypes:
    """:class:`~kanon_db.answers.rows.cell_evidence.KnownTypes` that Spark has counted."""

    def __init__(self, pieces: Pieces, query: SparkRowQuery, layout: CellLayout) -> None:
        self.pieces, self._query = pieces, query
        self._counted = query.count_types(layout, tuple(pieces.places))
        columns, codes = self._counted.columns, dict(enumerate(self._counted.codes))
        self._cells = {place: one.cells for place, one in enumerate(columns)}
        tries = query.tries_of(self._counted)
        self.read = CellEvidence(
            pieces, self._cells, tries, self._counted.ends_of_two, lambda _: codes, has_types=True
        )

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return all types at once."""
        counted = self._counted
        if counted.n.sum():
            yield dict(enumerate(counted.codes)), counted.n

    def column(self, name: str) -> TriedColumn:
        """Return what is known of the cells of one column."""
        tries = self._query.tries_of(self._counted)
        return TriedColumn(name, self._cells[self.pieces.places[name]], tries)


MOST_RECORD_TYPES: Final = 2_000_000
"""Combinations of cells that are read onto the driver."""

_COUNT: Final = "n"


@dataclass(frozen=True)
class CellColumns:
    """What is read of a column, under names of its own."""

    cell: CellDescription
    place: int
    pattern: str | None  # The column that marks suppressed cells

    @property
    def names(self) -> list[str]:
        """The names of what is read."""
        parts = {"range": ["low", "high", "null"], "set": ["set"], "value": ["value"]}
        marks = [] if self.cell.mark is None else ["hidden"]
        return [f"{part}{self.place}" for part in (*parts[self.cell.kind], *marks)]

    def __call__(self, column: Column) -> list[Column]:
        """Return what is read of a column."""
        from pyspark.sql import functions as f

        match self.cell.kind:
            case "range":
                read = [column[LOWER_END], column[UPPER_END], column.isNull()]
            case "set":
                read = [f.to_json(column)]
            case _:
                read = [column]
        if self.cell.mark is not None and self.pattern is not None:
            mark = f.substring(f.col(quote_column(self.pattern)), self.cell.mark, 1)
            read.append(mark == f.lit("*"))
        return [one.alias(name) for one, name in zip(read, self.names, strict=True)]


def cell_keys(cell: CellDescription, place: int, table: Any) -> tuple[list[Key], IntArray]:
    """Return the distinct cells of a column of ranges or sets, and the number of each row's."""
    if cell.kind == "set":
        texts, codes = _encode(table[f"set{place}"])
        return [tuple(json.loads(text or "[null]")) for text in texts.to_pylist()], codes
    coded = [_encode(table[f"{part}{place}"]) for part in ("low", "high", "null")]
    number = np.zeros(table.num_rows, dtype=np.int64)
    for values, codes in coded:
        number = number * max(len(values), 1) + codes
    _, first, of_row = np.unique(number, return_index=True, return_inverse=True)
    type_ = cell.column.type
    low, high = (axis_values(values, type_) for values, _ in coded[:2])
    is_null = coded[2][0].to_pylist()
    ends = zip(*(codes[first].tolist() for _, codes in coded), strict=True)
    keys: list[Key] = [None if is_null[null] else (low[a], high[b]) for a, b, null in ends]
    return keys, of_row.astype(np.int64)


def _encode(column: Any) -> tuple[Any, IntArray]:
    """Return the distinct values of an Arrow column, NULL too, and the code of each row's."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)


class CountedColumn(NamedTuple):
    """The distinct cells of a column."""

    cells: KnownCells
    keys: Sequence[Key]  # Of ranges
    values: Any  # As an Arrow array: of values, those of each cell; of sets and ranges, all
    texts: Sequence[str | None] = ()  # Of sets, those of the values


@dataclass(frozen=True, eq=False)
class CountedRecordTypes:
    """Types of records."""

    names: Sequence[str]
    columns: Sequence[CountedColumn]
    codes: Sequence[IntArray]  # Of each column, (n_types,): the number of each type's cell
    n: FloatArray  # (n_types,): the records of each

    @classmethod
    def of(
        cls,
        rows: DataFrame,
        layout: CellLayout,
        names: Sequence[str],
        pattern: str | None,
        shares: Mapping[str, CellShares | None],
        *,
        most: int = MOST_RECORD_TYPES,
        in_order: bool = False,  # Whether their order follows from their cells
    ) -> CountedRecordTypes:
        """Count the rows that have the same cells in some columns.

        Raises UnsupportedQueryError if the driver would have more than `most` of them.
        """
        from pyspark.sql import functions as f

        read = {
            name: CellColumns(layout.cells[name], place, pattern)
            for place, name in enumerate(names)
        }
        selected = [one for name, of in read.items() for one in of(f.col(quote_column(name)))]
        by = [alias for of in read.values() for alias in of.names]
        with failures_as_errors("the rows could not be counted"):
            counted = rows.select(*selected).groupBy(*by).agg(f.count("*").alias(_COUNT))
            table = counted.limit(most + 1).toArrow()
        if table.num_rows > most:
            raise refusal(
                "the columns of a question have too many different combinations for the driver",
                hint="ask about fewer columns, or load the publication into PostgreSQL"
                " (kanon spark load), and ask there",
                detail=f"more than {most:,} combinations of the cells of {', '.join(names)}",
            )
        if in_order:
            table = table.sort_by([(name, "ascending") for name in by])
        cells = _CellReader(layout, table)
        read_cells = [cells.read(name, place, shares.get(name)) for place, name in enumerate(names)]
        columns, codes = [one for one, _ in read_cells], [own for _, own in read_cells]
        return cls(names, columns, codes, cells.n)

    def distinct(self, name: str) -> Any:
        """Return the values of a column as an Arrow array; of ranges, their ends."""
        return self.columns[self.names.index(name)].values

    def ends_of_two(self, one: int, other: int) -> tuple[Any, ...]:
        """Return the places of the ends of two columns' ranges on one axis; 0 for none.

        Of the lower and the upper ends of one, then of the other; then whether there are any.
        """
        sides = [self.columns[place].keys for place in (one, other)]
        ends = [[(None, None) if key is None else key for key in keys] for keys in sides]
        known = sorted({end for side in ends for key in side for end in key if end is not None})
        rank = {end: place for place, end in enumerate(known, start=1)} | {None: 0}
        coded = [
            np.array([rank[key[end]] for key in side], dtype=np.int64)
            for side in ends
            for end in (0, 1)
        ]
        there = [np.array([key is not None for key in keys], dtype=np.bool_) for keys in sides]
        return (*coded, *there)


class _CellReader:
    """Makes cells of the rows that Spark has counted."""

    def __init__(self, layout: CellLayout, table: Any) -> None:
        self._layout, self._table = layout, table
        self.n = table[_COUNT].to_numpy().astype(np.float64)

    def read(
        self, name: str, place: int, shares: CellShares | None
    ) -> tuple[CountedColumn, IntArray]:
        """Read the cells of a column, and the number of that of each row."""
        cell = self._layout.cells[name]
        if cell.kind == "value":
            return self._values(name, place)
        keys, of_row = cell_keys(cell, place, self._table)
        n = self._count(of_row, len(keys))
        known = np.zeros(n.size)
        if shares is not None:
            known = np.array([shares.known(key) for key in keys])
        none = np.zeros(n.size, dtype=np.bool_)
        cells = Cells(n, 1 - known, none, none, none)
        make = self._sets if cell.kind == "set" else self._ranges
        return make(name, cells, keys, shares), of_row

    def _count(self, of_row: IntArray, n_cells: int) -> FloatArray:
        return np.bincount(of_row, self.n, n_cells).astype(np.float64)

    def _values(self, name: str, place: int) -> tuple[CountedColumn, IntArray]:
        cell = self._layout.cells[name]
        values, codes = _encode(self._table[f"value{place}"])
        marks = np.zeros(self.n.size, dtype=np.int64)
        if cell.mark is not None:
            marks = np.asarray(self._table[f"hidden{place}"].to_numpy(), dtype=np.int64)
        _, first, of_row = np.unique(codes * 2 + marks, return_index=True, return_inverse=True)
        of_row, n = of_row.astype(np.int64), first.size
        none, hidden = np.zeros(n, dtype=np.bool_), marks[first] == 1
        records = self._count(of_row, n)
        cells = Cells(records, doubt_hidden(hidden, records, self._layout.k), hidden, none, none)
        column = ValueColumn(name, cells, ColumnValues(_of_spark, n), self._layout.rarity)
        return CountedColumn(column, [], values.take(codes[first])), of_row

    def _sets(
        self, name: str, cells: Cells, keys: Sequence[Key], shares: CellShares | None
    ) -> CountedColumn:
        known = {} if shares is None else shares.of_sets
        texts = sorted({text for key in keys for text in key if text is not None})
        number = {text: place for place, text in enumerate(texts)} | {None: len(texts)}
        lengths = [len(key) for key in keys]
        members = np.array([number[text] for key in keys for text in key], dtype=np.int64)
        w = [known[key][0] if key in known else [1 / len(key)] * len(key) for key in keys]
        column = SetColumn(
            name, cells, ColumnValues(_of_spark, len(texts) + 1),
            np.repeat(np.arange(len(keys)), lengths), members,
            np.array([share for own in w for share in own], dtype=np.float64), self._layout.rarity,
        )  # fmt: skip
        type_ = self._layout.cells[name].column.type
        every = [*texts, None]
        return CountedColumn(column, keys, array_of_texts(every, type_), every)

    def _ranges(
        self, name: str, cells: Cells, keys: Sequence[Key], shares: CellShares | None
    ) -> CountedColumn:
        cell = self._layout.cells[name]
        type_ = cell.column.type
        ends = [(None, None) if key is None else key for key in keys]
        at, of_ends, values = None, None, None
        if not cell.is_discrete:
            there = sorted({end for key in ends for end in key if end is not None})
            number = {end: place for place, end in enumerate(there)}
            values = array_of_axis_values(there, type_)
            at = np.array([coordinate(end, type_) for end in there], dtype=np.float64)
            of_ends = ColumnValues(_of_spark, at.size)
            ends = [(number.get(low), number.get(high)) for low, high in ends]
        is_null = np.array([key is None for key in keys], dtype=np.bool_)
        (low, from_all), (high, to_all) = (
            (
                np.array([key[side] or 0 for key in ends], dtype=np.int64),
                np.array([key[side] is None for key in ends], dtype=np.bool_) & ~is_null,
            )
            for side in (0, 1)
        )
        of_cells = RangeEnds(low, high, is_null, from_all, to_all, at, of_ends)
        cells = Cells(cells.n, cells.u, cells.hidden, of_cells.anything, of_cells.endless)
        axis = None if shares is None else shares.axis(keys, cell)
        return CountedColumn(RangeColumn(name, cell, cells, of_cells, axis), keys, values)


def _of_spark(_: Any) -> str:
    raise NotReadError  # values that Spark has take no statement


@dataclass(frozen=True, eq=False)
class CellShares:
    """How often each value occurs in the cells of a column; see the table of shares."""

    kind: WhatIsKnown
    # The shares of a set's values, and of the records whose value is known
    of_sets: Mapping[Key, tuple[Sequence[float], float]]
    # The parts that a range covers, from 0, the share of either end, and that of the known records
    of_ranges: Mapping[Key, tuple[int, int, float, float]]
    upto: FloatArray  # (n_parts + 1,): the share of all records below each part of the axis
    points: Sequence[AxisValue]  # A value of each part
    trust: float = 0.0  # As of :class:`.Axis`

    def axis(self, keys: Sequence[Key], cell: CellDescription) -> Axis:
        """Return what is known of ranges, by their numbers."""
        known = [self.of_ranges.get(key, (0, 0, np.nan, 0.0)) for key in keys]
        first, last, own = (np.array([one[part] for one in known]) for part in range(3))
        at = [p if cell.is_discrete else coordinate(p, cell.column.type) for p in self.points]
        points = np.array(at, dtype=np.int64 if cell.is_discrete else np.float64)
        return Axis(
            self.kind == "of_each", self.upto, points, first.astype(np.int64),
            last.astype(np.int64), own.astype(np.float64), self.trust,
        )  # fmt: skip

    def known(self, key: Key) -> float:
        """Return the share of a cell's records whose value is known."""
        if key in self.of_sets:
            return self.of_sets[key][1]
        return self.of_ranges[key][3] if key in self.of_ranges else 0.0


_MOST_KEPT: Final = 64
"""Columns whose shares are kept."""

_kept: dict[tuple[str, ...], CellShares | None] = {}


def keep_value_shares(
    release: str, name: str, find: Callable[[], CellShares | None]
) -> CellShares | None:
    """Return the shares of a column of a release, which never change."""
    key = release, name
    if key not in _kept:
        while len(_kept) >= _MOST_KEPT:
            del _kept[next(iter(_kept))]
        _kept[key] = find()
    return _kept[key]


def add_value_shares(
    layout: CellLayout,
    rows: DataFrame,
    publication: Publication,
    names: Sequence[str],
    keep: Callable[[str, Callable[[], CellShares | None]], CellShares | None],
) -> tuple[CellLayout, dict[str, CellShares | None]]:
    """Find the shares of columns, and describe these by them; `keep` returns what was found."""
    kind = cast("RowKind", kind_named(publication.kind).load())
    matches, cells, shares = kind.matches(publication), dict(layout.cells), {}
    if SHARES not in kind.suffixes or layout.is_paper:
        return layout, {}
    quasi_identifiers = [str(cell["name"]) for cell in publication.layout["quasi_identifiers"]]
    for name in names:
        cell = layout.cells[name]
        if is_vague(cell):
            find = partial(find_value_shares, rows, quasi_identifiers, cell, matches)
            own = shares[name] = keep(name, find)
            if own is not None:
                cells[name] = cell._replace(shares=own.kind)
    return layout._replace(cells=cells), shares


def find_value_shares(
    rows: DataFrame, quasi_identifiers: list[str], cell: CellDescription, matches: int | None
) -> CellShares | None:
    """Find the shares of a column; None if it has too many different cells.

    `matches`: how many originals each cell covers, if it is not all of a class.
    """
    from pyspark.sql import functions as f

    by_cell = CellColumns(cell, 0, None)
    aliases = [f"k{place}" for place in range(len(quasi_identifiers))]
    named = [f.col(quote_column(name)).alias(alias)
             for name, alias in zip(quasi_identifiers, aliases, strict=True)]  # fmt: skip
    own = f.col(aliases[quasi_identifiers.index(cell.column.name)])
    with failures_as_errors("the cells of the rows could not be counted"):
        classes = rows.select(*named).groupBy(*aliases).agg(f.count("*").alias("n"))
        counted = (
            classes.select(*by_cell(own), "n")
            .groupBy(*by_cell.names)
            .agg(f.sum("n").alias("records"), f.count("*").alias("classes"))
            .limit(MOST_CELLS + 1)
            .toArrow()
        )
    if counted.num_rows > MOST_CELLS:
        return None
    keys, of_row = cell_keys(cell, 0, counted)
    records = np.bincount(of_row, counted["records"].to_numpy(), len(keys)).astype(np.int64)
    n_classes = np.bincount(of_row, counted["classes"].to_numpy(), len(keys))
    different = None if matches is None else float(n_classes.sum() / records.sum())
    is_whole = [key is not None and (cell.kind == "set" or None not in key) for key in keys]
    there = np.flatnonzero(is_whole)
    keys, records = [keys[i] for i in there], records[there]
    witnesses = n_classes[there] if matches is None else records / float(matches)
    of_cells = _of_sets if cell.kind == "set" else _of_ranges
    return of_cells(cell, keys, records, witnesses, different)


def _of_sets(
    cell: CellDescription, keys: list[Any], records: Any, witnesses: Any, different: float | None
) -> CellShares | None:
    cells, _ = Sets.number(keys)
    distributions = SetDistributions.of(
        cells, records, witnesses, is_tight=cell.is_tight, different=different
    )
    if distributions is None:
        return None
    shares = np.split(distributions.shares, cells.ends[:-1])
    return CellShares(
        "of_each",
        {key: (own.tolist(), known)
         for key, own, known in zip(keys, shares, distributions.known.tolist(), strict=True)},
        {}, np.zeros(1), [],
    )  # fmt: skip


def _of_ranges(
    cell: CellDescription, keys: list[Any], records: Any, witnesses: Any, different: float | None
) -> CellShares | None:
    type_ = cell.column.type
    half = 0.5 if cell.is_discrete else 0.0
    low = np.array([coordinate(key[0], type_) for key in keys]) - half
    high = np.array([coordinate(key[1], type_) for key in keys]) + half
    distributions = RangeDistributions.of(
        low,
        high,
        records,
        witnesses,
        is_tight=cell.is_tight,
        different=different,
        is_discrete=cell.is_discrete,
    )
    if distributions is None:
        return None
    parts = zip(
        distributions.first.tolist(),
        distributions.last.tolist(),
        distributions.own.tolist(),
        distributions.known.tolist(),
        strict=True,
    )
    return CellShares(
        "of_each" if distributions.is_each else "of_parts",
        {},
        dict(zip(keys, parts, strict=True)),
        np.append(0.0, np.cumsum(distributions.axis.shares)),
        [nearest_axis_value(at, type_) for at in distributions.axis.middles.tolist()],
        distributions.trust,
    )
