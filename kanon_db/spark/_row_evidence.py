"""Finds what published rows tell of a query: records of each type, and conditions on their cells.

Spark counts the types of records, and evaluates conditions and expressions once for each distinct
value or combination of values; the likelihood of a condition for each cell is calculated on the
driver.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.algorithms.recoding import Sets
from kanon_db.algorithms.recoding.generalized_cells import (
    MOST_CELLS,
    RangeDistributions,
    SetDistributions,
)
from kanon_db.answers.rows.cell_evidence import MOST_COMBINED
from kanon_db.answers.rows.evidence import (
    Cells,
    Flags,
    Listing,
    Moments,
    NotReadError,
    Truths,
)
from kanon_db.answers.rows.pieces import Pieces
from kanon_db.answers.scope import GroupValues, OpenQuery
from kanon_db.errors import ServerError, UnsupportedQueryError
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import refusal
from kanon_db.query.layout import CellDescription, CellLayout, condition_of
from kanon_db.query.likelihoods import most_listed
from kanon_db.query.sql import Constants, Request, leaves, write
from kanon_db.session.protocol import Row, Value
from kanon_db.spark._cell_values import (
    ANYTHING,
    AxisValue,
    CellShares,
    ColumnCells,
    Key,
    ListedCellValues,
    axis_values,
    coordinate,
    nearest_axis_value,
    outcomes_of_cells,
)
from kanon_db.spark._tables import PublishedTables
from kanon_db.spark.environment import failures_as_errors, quiet, quote_column
from kanon_db.spark.kinds.row_files import LOWER_END, UPPER_END

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


IN_POSTGRESQL: Final = "load the publication into PostgreSQL (kanon spark load), and ask there"


def only_in_postgresql() -> UnsupportedQueryError:
    """Make the refusal of what takes PostgreSQL's ranges, or more memory than the driver has."""
    return refusal(
        "this is answered by a statement over ranges and sets, which Spark cannot run",
        hint=IN_POSTGRESQL,
        detail="rows are asked here where conditions and groups have few enough values to try them"
        " one by one",
    )


@contextmanager
def read_or_refused() -> Iterator[None]:
    """Refuse what has too many values.

    Raises UnsupportedQueryError.
    """
    try:
        yield
    except NotReadError:
        raise only_in_postgresql() from None


class SparkQuery(OpenQuery):
    """A query of a publication in files."""

    def frugal(self) -> AbstractContextManager[None]:
        """Leave memory to Spark's own settings."""
        return nullcontext()

    def n_absent(self, column: ex.Column, constants: Sequence[ex.Constant]) -> int:  # noqa: ARG002
        """Count nothing: the files would be read once more."""
        return 0

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run a statement of this query; keys of groups are written as PostgreSQL does."""
        with self._own_words():
            rows = self.session.fetch(statement, *values)
        return [
            {**row, "group_key": group_key(row["group_key"])} if "group_key" in row else row
            for row in rows
        ]

    def stream(self, n: int, statement: str, *values: Value) -> Iterator[Row]:
        """Run a statement of this query; keys are written as PostgreSQL does."""
        for row in super().stream(n, statement, *values):
            keys = [name for name in row if _VALUE_OF_KEY.fullmatch(name)]
            yield {**row, **{name: value_of_key(row[name]) for name in keys}}

    def key(self, values: GroupValues) -> str:
        """Write a group's key as PostgreSQL does."""
        return group_key(super().key(values))

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


_VALUE_OF_KEY: Final = re.compile(r"j\d+")


def group_key(text: str) -> str:
    """Write a group's key as jsonb does."""
    key = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    items = sorted(key.items(), key=lambda item: (len(item[0].encode()), item[0].encode()))
    return (
        "{" + ", ".join(f"{json_value(name)}: {json_value(value)}" for name, value in items) + "}"
    )


def value_of_key(text: str) -> str:
    """Write the only value of a group's key, as jsonb does."""
    (value,) = json.loads(text, parse_float=Decimal, parse_int=Decimal).values()
    return json_value(value)


def json_value(value: Any) -> str:
    """Write a value of a group's key as jsonb does."""
    return f"{value:f}" if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


_TRIED_VALUES: Final = "tried"


class SparkConditions:
    """:class:`~kanon_db.spark._row_evidence.ConditionsOnValues` of a session.

    `own_words`: returns a context in which errors of the query's arithmetic become refusals.
    """

    def __init__(
        self, session: SparkSession, own_words: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._session, self._own_words = session, own_words

    def flags(self, condition: ex.Expression, values: Mapping[str, Any]) -> tuple[Flags, Flags]:
        """Say where a condition is true, and where it is false."""
        outcome = self._calculate(condition, values, {"t": "{} IS TRUE", "f": "{} IS FALSE"})
        true, false = (np.asarray(outcome[name].to_numpy(), dtype=np.bool_) for name in "tf")
        return true, false

    def numbers(self, expression: ex.Expression, values: Mapping[str, Any]) -> FloatArray:
        """Return the values of an expression; NaN for NULL.

        Raises
        ------
        NotReadError
            If one is not finite.
        """
        column = self._calculate(expression, values, {"x": "({})::float8"})["x"]
        numbers = np.asarray(column.to_numpy(), dtype=np.float64)  # NULL is NaN
        is_known = np.asarray(column.is_valid().to_numpy(), dtype=np.bool_)
        if not np.isfinite(numbers[is_known]).all():
            raise NotReadError
        return numbers

    def values(
        self, expression: ex.Expression, values: Mapping[str, Any], type_: ex.Type
    ) -> list[AxisValue | None]:
        """Return the values of an expression, a number, as they are.

        Raises NotReadError if one is not finite.
        """
        if isinstance(expression, ex.Column):
            column = axis_values(values[expression.name], type_)
        else:
            # Decimals have the digits that they were calculated with: a cast would drop these.
            sql = "({})" if type_.category == "numeric" else f"({{}})::{type_.name}"
            column = self._calculate(expression, values, {"x": sql})["x"].to_pylist()
        if any(isinstance(x, float) and not math.isfinite(x) for x in column):
            raise NotReadError
        return column

    def keys(
        self, expression: ex.Expression, values: Mapping[str, Any]
    ) -> tuple[IntArray, list[str]]:
        """Return the places of an expression's values in their order, and these as JSON."""
        import pyarrow.compute as pc

        columns = {"k": "{}", "t": "jsonb_build_object('k', {})::text"}
        table = self._calculate(expression, values, columns)
        key = table["k"].combine_chunks()
        distinct = pc.unique(key)
        ordered = distinct.take(pc.sort_indices(distinct))  # NULL last
        ranks = np.asarray(pc.index_in(key, value_set=ordered).to_numpy(), dtype=np.int64)
        _, first = np.unique(ranks, return_index=True)
        return ranks, [value_of_key(text) for text in table["t"].take(first).to_pylist()]

    def _calculate(
        self, expression: ex.Expression, values: Mapping[str, Any], columns: Mapping[str, str]
    ) -> Any:
        """Calculate what follows from an expression, for each row of values."""
        import pyarrow as pa

        number = {name: f"v{place}" for place, name in enumerate(values)}
        n = max((len(array) for array in values.values()), default=1)
        given = pa.table(
            {"i": pa.array(np.arange(n)), **{number[name]: own for name, own in values.items()}}
        )
        constants = Constants()
        text = write(expression, lambda column: f"d.{number[column.name]}", constants)
        selected = ", ".join(f"{sql.format(text)} AS {name}" for name, sql in columns.items())
        with self._own_words(), failures_as_errors("values could not be tried"), quiet():
            frame = self._session.createDataFrame(given)
            tables = PublishedTables(self._session, {_TRIED_VALUES: frame})
            try:
                statement = f'SELECT d.i AS i, {selected} FROM "{_TRIED_VALUES}" AS d'
                calculated = tables.select(statement, *constants.bound).toArrow()
            finally:
                tables.drop()
        return calculated.sort_by("i")


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


@dataclass(frozen=True, eq=False)
class CountedRecordTypes:
    """Types of records."""

    columns: dict[int, ColumnCells]  # The distinct cells of each column, by its number
    codes: dict[int, IntArray]  # (n_types,): the number of each type's cell
    n: FloatArray  # (n_types,): the records of each

    @classmethod
    def of(
        cls,
        rows: DataFrame,
        cells: Mapping[str, CellDescription],
        numbered: Mapping[str, int],
        pattern: str | None,
        shares: Mapping[str, CellShares | None],
    ) -> CountedRecordTypes:
        """Count the rows that have the same cells in some columns.

        Raises UnsupportedQueryError if the driver would have too many of them.
        """
        from pyspark.sql import functions as f

        read = {name: CellColumns(cells[name], place, pattern)
                for name, place in numbered.items()}  # fmt: skip
        selected = [one for name, of in read.items() for one in of(f.col(quote_column(name)))]
        by = [alias for of in read.values() for alias in of.names]
        with failures_as_errors("the rows could not be counted"):
            counted = rows.select(*selected).groupBy(*by).agg(f.count("*").alias(_COUNT))
            table = counted.limit(MOST_RECORD_TYPES + 1).toArrow()
        if table.num_rows > MOST_RECORD_TYPES:
            raise refusal(
                "the columns of a question have too many different combinations for the driver",
                hint="ask about fewer columns, or load the publication into PostgreSQL"
                " (kanon spark load), and ask there",
                detail=f"more than {MOST_RECORD_TYPES:,} combinations of the cells of"
                f" {', '.join(numbered)}",
            )
        n = table[_COUNT].to_numpy().astype(np.float64)
        columns, codes = {}, {}
        for name, place in numbered.items():
            found, own = _cells(cells[name], place, table, n, shares.get(name))
            columns[place], codes[place] = found, own
        return cls(columns, codes, n)

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return all of them at once."""
        if self.n.sum():
            yield self.codes, self.n


def _cells(
    cell: CellDescription, place: int, table: Any, n: FloatArray, shares: CellShares | None
) -> tuple[ColumnCells, IntArray]:
    if cell.kind != "value":
        keys, of_row = cell_keys(cell, place, table)
        records = np.bincount(of_row, n, len(keys)).astype(np.int64)
        hidden = np.zeros(len(keys), dtype=np.bool_)
        return ColumnCells(cell, records, hidden, keys, None, shares), of_row
    values, codes = _encode(table[f"value{place}"])
    marks = np.zeros(n.size, dtype=np.int64)
    if cell.mark is not None:
        marks = np.asarray(table[f"hidden{place}"].to_numpy(), dtype=np.int64)
    _, first, of_row = np.unique(codes * 2 + marks, return_index=True, return_inverse=True)
    of_row = of_row.astype(np.int64)
    records = np.bincount(of_row, n, first.size).astype(np.int64)
    hidden = marks[first] == 1
    return ColumnCells(cell, records, hidden, [], values.take(codes[first]), None), of_row


def is_wide(rows: DataFrame, cell: CellDescription, most: int) -> bool:
    """Whether a cell of a column of discrete ranges has more values, or says nothing."""
    from pyspark.sql import functions as f

    column = f.col(quote_column(cell.column.name))
    low, high = column[LOWER_END], column[UPPER_END]
    width = high.cast("bigint") - low.cast("bigint")
    if cell.column.type.name == "date":
        width = f.datediff(high, low)
    with failures_as_errors("the widths of cells could not be found"):
        (row,) = rows.select(
            f.max(width).alias("width"),
            f.max(column.isNotNull() & (low.isNull() | high.isNull())).alias("anything"),
        ).collect()
    return bool((row["width"] or 0) + 1 > most or row["anything"])


def is_known(rows: DataFrame, pattern: str, mark: int) -> bool:
    """Whether some cell of a column is not suppressed."""
    from pyspark.sql import functions as f

    kept = f.substring(f.col(quote_column(pattern)), mark, 1) != f.lit("*")
    with failures_as_errors("suppressed cells could not be counted"):
        return bool(rows.where(kept).limit(1).count())


# How often values occur in the cells of published rows, found from the files alone.
#
# PostgreSQL keeps this beside the rows (`kanon_db.publications.rows.class_table`). Here it is found
# when a question first needs it, by the same algorithm, and kept in memory for the next ones.


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
        classes = rows.select(*named, f.lit(1).alias("n"))
        if matches is None:
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
    there = [i for i, key in enumerate(keys) if key not in (None, ANYTHING)]
    keys, records = [keys[i] for i in there], records[there]
    witnesses = n_classes[there] if matches is None else records / float(matches)
    return (_of_sets if cell.kind == "set" else _of_ranges)(cell, keys, records, witnesses)


def _of_sets(
    cell: CellDescription, keys: list[Any], records: Any, witnesses: Any
) -> CellShares | None:
    codes: dict[str | None, int] = {}
    total = [codes.setdefault(text, len(codes)) for key in keys for text in key]
    ends = np.cumsum([len(key) for key in keys], dtype=np.int64)
    cells = Sets(np.array(total, dtype=np.int32), ends)
    distributions = SetDistributions.of(cells, records, witnesses, is_tight=cell.is_tight)
    if distributions is None:
        return None
    shares = np.split(distributions.shares, ends[:-1])
    return CellShares(
        "of_each",
        {key: (own.tolist(), known)
         for key, own, known in zip(keys, shares, distributions.known.tolist(), strict=True)},
        {}, np.zeros(1), [],
    )  # fmt: skip


def _of_ranges(
    cell: CellDescription, keys: list[Any], records: Any, witnesses: Any
) -> CellShares | None:
    type_ = cell.column.type
    half = 0.5 if cell.is_discrete else 0.0
    low = np.array([coordinate(key[0], type_) for key in keys]) - half
    high = np.array([coordinate(key[1], type_) for key in keys]) + half
    distributions = RangeDistributions.of(
        low, high, records, witnesses, is_tight=cell.is_tight, is_discrete=cell.is_discrete
    )
    if distributions is None:
        return None
    parts = zip(
        distributions.first.tolist(),
        distributions.last.tolist(),
        distributions.own.tolist(),
        strict=True,
    )
    return CellShares(
        "of_each" if distributions.is_each else "of_parts",
        {},
        dict(zip(keys, parts, strict=True)),
        np.append(0.0, np.cumsum(distributions.axis.shares)),
        [nearest_axis_value(at, type_) for at in distributions.axis.middles.tolist()],
    )


# The pieces of an answer, calculated on the driver; see `kanon_db.answers.rows.evidence_sql`.
#
# PostgreSQL finds them with one statement (`answers.rows.evidence_sql`). Its ranges are not known
# to Spark, so that what they tell is calculated here; conditions and expressions on values
# are tried by Spark, once for each distinct value or combination of values.


class ConditionsOnValues(Protocol):
    """Calculates with values as Spark does."""

    def flags(self, condition: ex.Expression, values: Mapping[str, Any]) -> tuple[Flags, Flags]:
        """Say where a condition is true, and where it is false.

        `values`: of each column that it mentions, side by side.
        """

    def numbers(self, expression: ex.Expression, values: Mapping[str, Any]) -> FloatArray:
        """Return the values of an expression; NaN for NULL."""

    def keys(
        self, expression: ex.Expression, values: Mapping[str, Any]
    ) -> tuple[IntArray, list[str]]:
        """Return the places of an expression's values in their order, and these as JSON."""


class CalculatedEvidence:
    """:class:`~kanon_db.answers.rows.evidence.PieceReader` of what is calculated.

    Raises NotReadError when there is too much to be listed or tried.
    """

    def __init__(
        self,
        pieces: Pieces,
        request: Request,
        layout: CellLayout,
        columns: Mapping[int, ColumnCells],
        tries: ConditionsOnValues,
    ) -> None:
        self._pieces, self._request, self._layout = pieces, request, layout
        self._columns, self._tries = columns, tries
        self._names = {place: name for name, place in pieces.places.items()}
        self.cells: dict[int, Cells] = {}
        self.sizes = {place: own.n.size for place, own in columns.items()}
        for place in pieces.vague:
            own = columns[place]
            self.cells[place] = Cells(
                own.n.astype(np.float64), own.unknown, own.hidden, own.anything, own.anything
            )
        self._domains: dict[int, Any] = {
            place: own.values for place, own in columns.items() if own.cell.kind == "value"
        }
        self.lists: dict[int, Listing] = {}
        self.met: dict[tuple[int, ...], IntArray] = {}
        for place, most in pieces.most_listed.items():
            self.lists[place] = self._listing(place, most)
        self.n_values = self.sizes | {
            place: len(self._domains[place]) for place in self.lists
        }  # fmt: skip

    # -- conditions ---------------------------------------------------------------------------

    def outcomes(self, leaf: ex.Expression, place: int) -> Truths:
        """Return what each cell of a column tells of a condition."""
        own = self._columns[place]

        def tried(values: Any) -> tuple[Flags, Flags]:
            return self._tries.flags(leaf, {self._names[place]: values})

        return outcomes_of_cells(leaf, own, tried, self._layout.rarity)

    def tried(self, leaf: ex.Expression, places: Sequence[int]) -> Truths:
        """Return what each combination of values tells of a condition."""
        return Truths.known(*self._tries.flags(leaf, self._combine(places)))

    def ends(
        self,
        leaf: ex.Expression,  # noqa: ARG002
        one: int,
        other: int,
    ) -> tuple[IntArray, IntArray, IntArray, IntArray, Flags, Flags]:
        """Return the places of the lower and upper ends of two columns' cells on their axis."""
        sides = [self._columns[place].keys for place in (one, other)]
        known = sorted({end for keys in sides for key in keys if key is not None for end in key
                        if end is not None})  # fmt: skip
        rank = {end: place for place, end in enumerate(known, start=1)}
        coded = [
            np.array([0 if key is None else rank.get(key[end], 0) for key in keys], dtype=np.int64)
            for keys in sides
            for end in (0, 1)
        ]
        there = [np.array([key is not None for key in keys], dtype=np.bool_) for keys in sides]
        return coded[0], coded[1], coded[2], coded[3], there[0], there[1]

    # -- groups and sums ----------------------------------------------------------------------

    def key(self, number: int, places: Sequence[int]) -> tuple[IntArray, list[str]]:
        """Return the number of each combination's group value, and the values as JSON."""
        key = self._request.query.keys[number]
        return self._tries.keys(key.expression, self._combine(places))

    def numbers(self, places: Sequence[int]) -> FloatArray:
        """Return the number of each combination of values; NaN where there is none."""
        return self._tries.numbers(self._weighed, self._combine(places))

    def moments(self) -> Moments:
        """Return what is summed of each cell of a column."""
        summed = self._pieces.summed
        if summed is None or summed.moments is None:
            raise TypeError("nothing is summed")
        place = summed.moments
        own, n_cells = self._columns[place], self.sizes[place]
        listed = own.listed(most_listed([own.cell]))
        x = self._tries.numbers(self._weighed, {self._names[place]: listed.values})
        is_column = isinstance(self._weighed, ex.Column)
        least, most = listed.extremes(x) if is_column else (x[listed.value],) * 2
        is_wild = own.anything
        if not is_column:
            is_wild = np.bincount(listed.cell, listed.is_open, n_cells) > 0
        columns = [_average(listed.cell, listed.w, x[listed.value], n_cells)]
        columns.append(_average(listed.cell, listed.w, x[listed.value] ** 2, n_cells))
        is_there = ~np.isnan(x[listed.value])
        lowest, highest = np.full(n_cells, np.inf), np.full(n_cells, -np.inf)
        np.fmin.at(lowest, listed.cell[is_there], least[is_there])
        np.fmax.at(highest, listed.cell[is_there], most[is_there])
        columns += [np.where(np.isfinite(ends), ends, np.nan) for ends in (lowest, highest)]
        if own.cell.mark is not None:
            value, w = self._read_kept(place, listed)
            x = x[value]
            none = np.zeros(value.size, dtype=np.int64)
            of_kept = [_average(none, w, x, 1)[0], _average(none, w, x * x, 1)[0],
                       _extreme(np.nanmin, x), _extreme(np.nanmax, x)]  # fmt: skip
            for column, one in zip(columns, of_kept, strict=True):
                column[own.hidden] = one
            is_wild = is_wild | own.hidden
        return Moments(columns[0], columns[1], columns[2], columns[3], is_wild)

    @property
    def _weighed(self) -> ex.Expression:
        operand = self._request.aggregate.operand
        if operand is None:
            raise TypeError("nothing is summed")
        return operand

    # -- values -------------------------------------------------------------------------------

    def _listing(self, place: int, most: int) -> Listing:
        """List the values of a column's cells; of suppressed ones, those that are kept."""
        own = self._columns[place]
        listed = own.listed(most)
        cell, value, w, is_open = listed.cell, listed.value, listed.w, listed.is_open
        numbers = np.full(len(listed.values), np.nan)
        summed = self._pieces.summed
        is_own = summed is not None and summed.own == place
        if is_own:
            numbers = self._tries.numbers(own.cell.column, {self._names[place]: listed.values})
        least, most_ = listed.extremes(numbers)
        if own.hidden.any():
            kept, shares = self._read_kept(place, listed)
            hidden = np.flatnonzero(own.hidden)
            cell = np.append(cell, np.repeat(hidden, kept.size))
            value = np.append(value, np.tile(kept, hidden.size))
            w = np.append(w, np.tile(shares, hidden.size))
            is_open = np.append(is_open, np.ones(hidden.size * kept.size, dtype=np.bool_))
            extremes = np.tile(numbers[kept], hidden.size)
            least, most_ = np.append(least, extremes), np.append(most_, extremes)
            order = np.argsort(cell, kind="stable")
            cell, value, w, is_open = cell[order], value[order], w[order], is_open[order]
            least, most_ = least[order], most_[order]
        self._domains[place] = listed.values
        lengths = np.bincount(cell, minlength=own.n.size)
        return Listing(np.cumsum(lengths) - lengths, lengths, value, w, is_open, least, most_)

    def _read_kept(self, place: int, listed: ListedCellValues) -> tuple[IntArray, FloatArray]:
        """Return the values of cells that are kept, with their shares in those that are not."""
        own = self._columns[place]
        n = np.bincount(listed.value, own.n[listed.cell] * listed.w, len(listed.values))
        value = np.flatnonzero(np.bincount(listed.value, minlength=n.size))
        weight = n[value] ** self._layout.rarity
        return value, weight / weight.sum()

    def _combine(self, places: Sequence[int]) -> dict[str, Any]:
        """Combine the values of some columns, those of the last one first."""
        import pyarrow as pa

        sizes = [len(self._domains[place]) for place in places]
        n = int(np.prod(sizes, dtype=np.float64)) if places else 1
        if n > _most_combined(self._request):
            raise NotReadError
        values, number = {}, np.arange(n)
        for place, size in zip(reversed(places), reversed(sizes), strict=True):
            values[self._names[place]] = self._domains[place].take(pa.array(number % max(size, 1)))
            number = number // max(size, 1)
        return values


_FULL: Final = 8


def _most_combined(request: Request) -> int:
    """Return how many combinations of values are tried for each condition."""
    n_leaves = len(set(leaves(condition_of(request.query, request.aggregate))))
    return MOST_COMBINED * _FULL // max(n_leaves, _FULL)


def _average(cell: IntArray, w: FloatArray, x: FloatArray, n_cells: int) -> FloatArray:
    """Average numbers over the values of cells; those that are not there do not count."""
    is_there = ~np.isnan(x)
    total = np.bincount(cell[is_there], w[is_there], n_cells)
    summed = np.bincount(cell[is_there], (w * x)[is_there], n_cells)
    means = np.full(n_cells, np.nan)
    np.divide(summed, total, out=means, where=total != 0)
    return means


def _extreme(of: Any, x: FloatArray) -> float:
    return float(of(x)) if not np.isnan(x).all() else float("nan")
