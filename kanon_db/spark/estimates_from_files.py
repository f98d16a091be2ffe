"""Answers queries from the files of a publication, with the errors and bounds of PostgreSQL.

Queries are read, checked and written as in PostgreSQL, and run by Spark; of rows, Spark counts
types of records, and the answer is calculated from these on the driver.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast, get_args

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.answers.estimates import AnswerRow, QueryAnswer, counts, one_count
from kanon_db.answers.rewrite import rewritten
from kanon_db.answers.rows.cell_evidence import MOST_COMBINED
from kanon_db.answers.rows.coded_rows import combinations
from kanon_db.answers.rows.evidence import Flags, NotReadError, distinct
from kanon_db.answers.rows.pieces import Pieces
from kanon_db.answers.scope import (
    ASSIGNMENTS,
    Estimator,
    Limits,
    OpenQuery,
    PublishedTypes,
    check_query,
    read_query,
)
from kanon_db.catalog.entries import Publication, changed
from kanon_db.declaration import unknown
from kanon_db.errors import NotFoundError, UnsupportedQueryError
from kanon_db.publications.registry import kind_named
from kanon_db.publications.rows.row_kind import RowKind
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import refusal, type_in_range
from kanon_db.query.formulas import Estimated
from kanon_db.query.layout import (
    QIT,
    SAT,
    SHARES,
    BucketLayout,
    BucketTables,
    CellDescription,
    CellLayout,
    is_vague,
)
from kanon_db.query.likelihoods import MOST_GROUPED, MOST_RUNGS, most_listed
from kanon_db.session.protocol import Row
from kanon_db.spark._bucket_store import SparkBucketQuery
from kanon_db.spark._cell_values import (
    AxisValue,
    CellShares,
    ColumnCells,
    ConditionOutcomes,
    Key,
    outcomes_of_cells,
    text_of_axis_value,
)
from kanon_db.spark._publication_folder import Folder, Manifest
from kanon_db.spark._row_evidence import (
    IN_POSTGRESQL,
    SparkConditions,
    SparkQuery,
    only_in_postgresql,
    read_or_refused,
)
from kanon_db.spark._spark_kind import check_files
from kanon_db.spark._tables import SCHEMA, TableSession, column_type, open_tables
from kanon_db.spark.environment import (
    own_session,
    require_spark,
)
from kanon_db.spark.kinds.row_files import rows_of, view_of
from kanon_db.transfer.columns import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kanon_db.algorithms.ground.arrays import IntArray
    from kanon_db.answers.rows.evidence import KnownColumn, KnownTypes
    from kanon_db.query.sql import Request
    from kanon_db.spark._row_evidence import CalculatedEvidence, CountedRecordTypes


# What MIN, MAX, percentiles and COUNT(DISTINCT ...) need of a column, found on the driver.
#
# It is what `kanon_db.answers.rows.evidence_sql` and `measures` write as SQL.


_MOST_ROWS: Final = 5_000_000
"""Combinations of values of all types."""


@dataclass(frozen=True, eq=False)
class CountedColumn:
    """:class:`~kanon_db.answers.rows.evidence.KnownColumn` of cells that Spark has counted."""

    own: ColumnCells
    tries: SparkConditions
    rarity: float  # See :class:`~kanon_db.query.layout.CellLayout`

    def values(
        self,
        operand: ex.Expression,
        condition: ex.Expression,
        type_: ex.Type,
        most: int | None,
    ) -> list[Row]:
        """Return what values an expression on the column has in each cell.

        Raises UnsupportedQueryError if there are too many of them, or one is not finite.
        """
        own, name = self.own, self.own.cell.column.name

        def tried(values: Any) -> tuple[Flags, Flags]:
            return self.tries.flags(condition, {name: values})

        with read_or_refused():
            truths = outcomes_of_cells(condition, own, tried, self.rarity, is_tabled=False)
            of_each = list(
                self._ends(type_)
                if most is None
                else self._list_values(operand, tried, type_, most)
            )
        return [
            {
                "suppressed": bool(own.hidden[i]), "n": int(own.n[i]),
                "t": float(truths.true[i]), "st": bool(truths.surely[i]),
                "pt": bool(truths.possibly[i]), **told,
            }
            for i, told in enumerate(of_each)
        ]  # fmt: skip

    def axis(self) -> Row | None:
        """Return the ``points`` and ``shares`` of the parts of an axis of ranges, if known."""
        shares, type_ = self.own.shares, self.own.cell.column.type
        if shares is None:
            return None
        points = [text_of_axis_value(point, type_) for point in shares.points]
        return {"points": points, "shares": np.diff(shares.upto).tolist()}

    def cells(self, numbers: Sequence[int]) -> list[Row]:
        """Return cells with these numbers."""
        keys = [self.own.keys[number] for number in numbers]
        if self.own.cell.kind == "set":
            return [{"elements": json.dumps(list(key))} for key in keys]
        ends = (_ends_of(key, self.own.cell.column.type) for key in keys)
        return [{"low": low, "high": high} for low, high in ends]

    def _ends(self, type_: ex.Type) -> Iterator[Row]:
        """Return the ends of ranges, and what is known of their shares."""
        of_ranges = {} if self.own.shares is None else self.own.shares.of_ranges
        for key in self.own.keys:
            least, most = _ends_of(key, type_)
            known = of_ranges.get(key)
            # The parts of the table of shares are counted from 1.
            first, last, own = (
                (None,) * 3 if known is None else (known[0] + 1, known[1] + 1, known[2])
            )
            yield {"least": least, "most": most, "first": first, "last": last, "own": own}

    def _list_values(
        self, operand: ex.Expression, outcome_of: ConditionOutcomes, type_: ex.Type, most: int
    ) -> Iterator[Row]:
        """Return the values of each cell that meet the condition, and between which they lie."""
        own, listed = self.own, self.own.listed(most)
        x = self.tries.values(operand, {own.cell.column.name: listed.values}, type_)
        numbers = np.array([np.nan if one is None else float(one) for one in x])
        exact = [None if one is None else Decimal(text_of_axis_value(one, type_)) for one in x]
        is_met = outcome_of(listed.values)[0][listed.value]
        ends = np.cumsum(np.bincount(listed.cell, minlength=own.n.size))
        for key, cell in zip(
            self._keys, np.split(np.arange(listed.cell.size), ends[:-1]), strict=True
        ):
            met = cell[is_met[cell]]
            values = listed.value[met]
            least = most_ = None
            if not listed.is_open[cell].any():
                known = [one for value in values.tolist() if (one := exact[value]) is not None]
                if known:
                    least, most_ = str(min(known)), str(max(known))
            elif isinstance(operand, ex.Column):
                least, most_ = _ends_of(key, type_)
            yield {
                "least": least, "most": most_,
                "xs": numbers[values].tolist(), "ws": listed.w[met].tolist(),
            }  # fmt: skip

    @property
    def _keys(self) -> Sequence[Key]:
        return self.own.keys or [None] * self.own.n.size


def _ends_of(key: Key, type_: ex.Type) -> tuple[str | None, str | None]:
    """Write the ends of a range; None where it has none."""
    low, high = (None, None) if key is None else key
    return (
        None if low is None else text_of_axis_value(low, type_),
        None if high is None else text_of_axis_value(high, type_),
    )


@dataclass(frozen=True, eq=False)
class OperandValues:
    """The values that an operand may have, each of them once, in their order."""

    exact: list[Decimal]
    rows: list[Row]  # Its ``rung`` and ``place``

    @classmethod
    def of(cls, values: Iterable[AxisValue | None], type_: ex.Type) -> Self:
        """Put values in order."""
        rungs: dict[Decimal, Row] = {}
        for value in values:
            if value is not None:
                text = text_of_axis_value(value, type_)
                rungs.setdefault(Decimal(text), {"rung": text, "place": float(value)})
        ordered = sorted(rungs)
        return cls(ordered, [rungs[one] for one in ordered])

    @classmethod
    def of_column(
        cls, own: ColumnCells, operand: ex.Expression, type_: ex.Type, tries: SparkConditions
    ) -> Self:
        """List the ends of ranges, or the values of an expression on a column.

        Raises NotReadError if there are too many of them, or one is not finite.
        """
        if isinstance(operand, ex.Column) and own.cell.kind == "range":
            return cls.of((end for key in own.keys if key is not None for end in key), type_)
        listed = own.listed(with_shares=False)
        x = tries.values(operand, {own.cell.column.name: listed.values}, type_)
        return cls.of((x[value] for value in np.unique(listed.value).tolist()), type_)

    @classmethod
    def of_columns(
        cls,
        counted: CountedRecordTypes,
        names: Sequence[str],
        operand: ex.Expression,
        type_: ex.Type,
        tries: SparkConditions,
    ) -> Self:
        """List the values of an expression on the columns that types are told apart by.

        Raises NotReadError if there are too many of them, or one is not finite.
        """
        import pyarrow as pa

        columns = counted.columns
        most = most_listed(own.cell for own in columns.values() if is_vague(own.cell))
        listed = {place: own.listed(most, with_shares=False) for place, own in columns.items()}
        lists = {place: one.listing(columns[place].n.size) for place, one in listed.items()}
        n_rows = np.ones(counted.n.size)
        for place, listing in lists.items():
            n_rows = n_rows * listing.lengths[counted.codes[place]]
        if n_rows.sum() > _MOST_ROWS:
            raise NotReadError
        rows = combinations(lists, counted.codes, counted.n.size)
        values = {place: lists[place].value[at] for place, at in rows.at.items()}
        first, _ = distinct(list(values.values()), [len(one.values) for one in listed.values()])
        if first.size > MOST_COMBINED:
            raise NotReadError
        given = {name: listed[place].values.take(pa.array(values[place][first]))
                 for place, name in enumerate(names)}  # fmt: skip
        return cls.of(tries.values(operand, given, type_), type_)

    def between(self, above: str | None, below: str | None) -> list[Row]:
        """Return those between two, both included: of too many, some at equal distances."""
        low, high = (None if end is None else Decimal(end) for end in (above, below))
        rows = [
            row
            for one, row in zip(self.exact, self.rows, strict=True)
            if (low is None or one >= low) and (high is None or one <= high)
        ]
        n = len(rows)
        step = max(n - 2, 0) // MOST_RUNGS + 1
        return [{**row, "n": n} for i, row in enumerate(rows) if i % step == 0 or i == n - 1]


# Questions about published rows: what Spark counts of them, and what is calculated from it.
#
# Spark counts the rows with the same cells in the columns that a question mentions. What each cell
# tells, and the answer, are calculated on the driver by the code that reads the table of classes in
# PostgreSQL. Nothing but the published files is read.


@dataclass(frozen=True)
class SparkRowQuery(SparkQuery):
    """A query of published rows in files."""

    rows: DataFrame
    shares: Mapping[str, CellShares | None]  # Of the columns that it mentions
    # What was counted for its other aggregates, by the columns
    counted: dict[tuple[str, ...], CountedRecordTypes] = field(default_factory=dict)
    # The values of each expression of which a percentile was asked
    ladders: dict[tuple[ex.Expression, ex.Type], OperandValues] = field(default_factory=dict)

    def known_types(
        self, request: Request, layout: CellLayout, also: Sequence[str], *, lists_values: bool
    ) -> Sequence[Callable[[], KnownTypes]]:
        """Count the types of records, and calculate what their cells tell."""
        from kanon_db.spark._row_evidence import CalculatedEvidence

        def counted() -> KnownTypes:
            pieces = Pieces.of(request, layout, also, lists_values=lists_values)
            types = self._count_record_types(layout, tuple(pieces.places))
            read = CalculatedEvidence(pieces, request, layout, types.columns, self._tries)
            return _CellsOnDriver(pieces, read, types, self._tries, layout.rarity)

        return [counted]

    def too_much(self) -> UnsupportedQueryError:
        """Refuse what would list or try more than the driver holds."""
        return only_in_postgresql()

    def rungs(
        self, aggregate: ex.Aggregate, above: str | None = None, below: str | None = None
    ) -> list[Row]:
        """List the values that an aggregate's operand may have, in their order."""
        operand, type_, layout = aggregate.operand, aggregate.type, self.layout
        if operand is None or type_ is None or not isinstance(layout, CellLayout):
            raise TypeError("the values of an operand are asked for")
        if (operand, type_) not in self.ladders:
            with read_or_refused():
                self.ladders[operand, type_] = self._rungs(layout, operand, type_)
        return self.ladders[operand, type_].between(above, below)

    def _rungs(self, layout: CellLayout, operand: ex.Expression, type_: ex.Type) -> OperandValues:

        names = tuple(name for name in layout.cells if name in ex.attributes(operand))
        if len(names) > 1:
            counted = self._count_record_types(layout, names)
            return OperandValues.of_columns(counted, names, operand, type_, self._tries)
        known = next((one for one in self.counted if names[0] in one), names)
        own = self._count_record_types(layout, known).columns[known.index(names[0])]
        return OperandValues.of_column(own, operand, type_, self._tries)

    def _count_record_types(self, layout: CellLayout, names: tuple[str, ...]) -> CountedRecordTypes:
        """Count the types of records that some columns tell apart."""
        from kanon_db.spark._row_evidence import CountedRecordTypes

        if names not in self.counted:
            numbered = {name: place for place, name in enumerate(names)}
            pattern = self.publication.layout.get("pattern")
            self.counted[names] = CountedRecordTypes.of(
                self.rows, layout.cells, numbered, pattern, self.shares
            )
        counted = self.counted[names]
        if counted.n.sum() != layout.n_rows:
            raise changed(self.publication)
        return counted

    @property
    def _tries(self) -> SparkConditions:
        from kanon_db.spark._row_evidence import SparkConditions

        return SparkConditions(self.rows.sparkSession, self._own_words)

    def has_cells(self, cell: CellDescription, *, hidden: bool) -> bool:
        """Whether some cells of a column are suppressed, or some are not."""
        if cell.mark is None:
            return not hidden
        mark = self.rows[self.publication.layout["pattern"]].substr(cell.mark, 1)
        is_wanted = mark == "*" if hidden else mark != "*"
        return bool(self.rows.where(is_wanted).limit(1).count())

    def is_wide(self, layout: CellLayout, cell: CellDescription) -> bool:  # noqa: ARG002
        """Whether a cell of a column of discrete ranges has too many values, or says nothing."""
        from kanon_db.spark._row_evidence import is_wide

        return is_wide(self.rows, cell, MOST_GROUPED)


@dataclass(frozen=True, eq=False)
class _CellsOnDriver:
    """:class:`~kanon_db.answers.rows.evidence.KnownTypes` that Spark has counted."""

    pieces: Pieces
    read: CalculatedEvidence
    _counted: CountedRecordTypes
    _tries: SparkConditions
    _rarity: float

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return all types."""
        return self._counted.all()

    def column(self, name: str) -> KnownColumn:
        """Return what is known of the cells of one column."""
        own = self._counted.columns[self.pieces.places[name]]
        return CountedColumn(own, self._tries, self._rarity)


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
    return CellLayout(view, cells, left_out, n_rows, is_paper=is_paper)


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


def row_query(query: SparkQuery, layout: CellLayout, release: str) -> SparkRowQuery:
    """Find what else the answer to a query of rows needs.

    Raises UnsupportedQueryError if nothing is known of a column.
    """
    from kanon_db.spark._row_evidence import find_value_shares, is_known, keep_value_shares

    session, publication = query.session, query.publication
    if not isinstance(session, TableSession):
        raise TypeError("these are no files")
    rows = rows_of(session.tables, publication)
    names = sorted({n for part in query.query.evaluated for n in ex.attributes(part)})
    pattern = publication.layout.get("pattern")
    for name in names:
        mark = layout.cells[name].mark
        if mark is not None and pattern is not None and not is_known(rows, pattern, mark):
            raise refusal(
                "nothing is known of a column: all of its cells are suppressed",
                hint="ask about other columns",
                detail=f'column "{name}"',
            )
    kind = cast("RowKind", kind_named(publication.kind).load())
    matches, shares = kind.matches(publication), {}
    cells = dict(layout.cells)
    quasi_identifiers = [str(cell["name"]) for cell in publication.layout["quasi_identifiers"]]
    if SHARES in kind.suffixes and not layout.is_paper:
        for name in names:
            cell = layout.cells[name]
            if not is_vague(cell):
                continue

            def find(cell: CellDescription = cell) -> CellShares | None:
                return find_value_shares(rows, quasi_identifiers, cell, matches)

            own_shares = shares[name] = keep_value_shares(release, name, find)
            if own_shares is not None:
                cells[name] = cell._replace(shares=own_shares.kind)
    given = {one.name: getattr(query, one.name) for one in fields(query)}
    given["layout"] = layout._replace(cells=cells)
    return SparkRowQuery(**given, rows=rows, shares=shares)


# Answering queries from files: read, checked and written as in PostgreSQL, run by Spark.
#
# Buckets become codes where their rows are (`_bucket_store`), and are counted there by the code
# that counts in PostgreSQL. Rows are counted by their cells; see `row_query`.


_MEMORY: Final = 200 << 20
"""What an answer may take on the driver, as in PostgreSQL."""

_T = TypeVar("_T")


def estimate_count(session: SparkSession, target: str, query: str, **given: Any) -> Estimated:
    """Answer a COUNT query without groups."""
    return _ask(session, target, query, one_count, **given)


def estimate_counts(
    session: SparkSession, target: str, query: str, **given: Any
) -> list[AnswerRow]:
    """Answer a COUNT query with GROUP BY."""
    return _ask(session, target, query, counts, **given)


def estimate(session: SparkSession, target: str, query: str, **given: Any) -> list[AnswerRow]:
    """Answer a query with any aggregates."""
    return _ask(session, target, query, _rows, **given)


def rewrite_count(session: SparkSession, target: str, query: str) -> str:
    """Return the paper's estimate of a query as one statement of Spark."""
    return _ask(session, target, query, lambda one: rewritten(one, "spark"), estimator="paper")


def _rows(query: OpenQuery) -> list[AnswerRow]:
    return QueryAnswer.told(query).rows


def _ask(
    session: SparkSession,
    target: str,
    query: str,
    answered: Callable[[OpenQuery], _T],
    *,
    estimator: str = "published",
    on_warning: Callable[[str], None] | None = None,
) -> _T:
    require_spark()
    if estimator not in get_args(Estimator):
        raise unknown("estimator", estimator, get_args(Estimator))
    own = own_session(session)
    folder = Folder(own, str(target))
    manifest = Manifest.of(folder)
    text = read_query(query, SCHEMA, lambda: None)
    publication = manifest.publication
    if text.publication.name != publication.name:
        raise NotFoundError(
            "the query asks another publication",
            detail=f'"{text.publication.name}", and not "{publication.name}" in {folder}',
        )
    if text.lookups:
        raise refusal("lookup tables are joined in PostgreSQL only", hint=IN_POSTGRESQL)
    if not check_files(folder / manifest.release, manifest).holds:
        raise changed(publication)
    shape = kind_named(publication.kind).shape
    if shape not in ("buckets", "rows"):
        raise refusal(
            "publications of this kind answer no counts on Spark",
            detail=f"kind {publication.kind}",
            hint=IN_POSTGRESQL,
        )
    is_paper = estimator == "paper"
    with open_tables(own, folder, manifest) as tables:
        reading = TableSession(tables, on_warning=on_warning)
        if shape == "rows":
            layout: BucketLayout | CellLayout = cell_layout(reading, publication, is_paper=is_paper)
        else:
            layout = _bucket_layout(reading, publication, is_paper=is_paper)
        checked, _ = check_query(text, layout, [])
        calculated = [part for formula in checked.formulas for part in ex.walk(formula.expression)]
        totals = [part for part in calculated if isinstance(part, ex.WindowTotal)]
        for part in (*checked.evaluated, *checked.selected, *totals):
            _require_same_meaning(part)
        of_kind = SparkBucketQuery if shape == "buckets" else SparkQuery
        opened = of_kind(reading, text, checked, publication, layout, (), Limits(_MEMORY))
        _require_dates_as_keys(opened)
        if isinstance(layout, CellLayout):
            opened = row_query(opened, layout, (folder / manifest.release).path)
        return answered(opened)


def _bucket_layout(
    reading: TableSession, publication: Publication, *, is_paper: bool
) -> BucketLayout:
    """Describe QIT and SAT by what the manifest says and the files have."""
    described = publication.layout
    tables = BucketTables.of(reading, SCHEMA, publication.name, described)
    types = PublishedTypes(reading, publication)
    columns = {
        field.name: types.column(column_type(field.name, field.dataType))
        for suffix in (QIT, SAT)
        for field in reading.tables.frames[publication.name + suffix].schema.fields
        if field.name != described.get("weights")
    }
    columns = {name: without_order(column) for name, column in columns.items()}
    return BucketLayout(
        tables,
        {name: columns[name] for name in described["quasi_identifiers"]},
        {name: columns[name] for name in tables.sensitive},
        ASSIGNMENTS.get(described.get("assignment"), "random"),
        is_paper,
    )


_SAME: Final = (
    ex.Column, ex.Constant, ex.Negative, ex.Case, ex.Coalesce, ex.NullIf, ex.Aggregate,
    ex.Comparison, ex.Distinct, ex.Membership, ex.Range, ex.NullTest, ex.TruthTest, ex.And, ex.Or,
    ex.Not, ex.Pattern, ex.Arithmetic, ex.DatePart, ex.Cast,
)  # fmt: skip
_FIELDS: Final = ("year", "month", "day", "quarter")
_EXACT_TYPES: Final = ("integer", "bigint", "double precision", "date")
_CONSTANTS: Final = {
    "date": r"\d{4}-\d\d-\d\d",
    "timestamp without time zone": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?",
    "timestamp with time zone": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?[+]00",
    "numeric": r"-?\d{1,20}(\.\d{1,18})?",
    **dict.fromkeys(("smallint", "integer", "bigint"), r"-?\d{1,19}"),
    **dict.fromkeys(("real", "double precision"), r"-?\d+(\.\d+)?([eE][+-]?\d{1,3})?"),
    "boolean": "true|false",
    "text": "(?s).*",
}
"""How constants are written that both read in the same way, by type."""


def _require_same_meaning(expression: ex.Expression | None) -> None:
    """Refuse what Spark would calculate in another way than PostgreSQL.

    Raises UnsupportedQueryError.
    """
    for part in ex.walk(expression):
        if not isinstance(part, _SAME) or not _means_the_same(part):
            raise refusal(
                "a part of the query means something else on Spark, or is not known there",
                hint=IN_POSTGRESQL,
                detail=type(part).__name__,
            )


def _means_the_same(part: ex.Expression) -> bool:
    match part:
        case ex.Constant(text, type_):
            shape = _CONSTANTS.get(type_.name)
            return text is None or (shape is not None and re.fullmatch(shape, text) is not None)
        case ex.Column():
            return part.type.name in _CONSTANTS and part.lookup is None
        case ex.Arithmetic(operator, left, right):
            own = [inner for side in (left, right) for inner in ex.columns(side)]
            inexact = any(
                isinstance(inner, ex.Cast) and inner.to == "double precision"
                for side in (left, right)
                for inner in ex.walk(side)
            )
            are_numbers = all(column.type.category in ex.NUMBERS for column in own)
            # Whole numbers have a whole quotient in PostgreSQL.
            return are_numbers and (operator in ("+", "-", "*") or (operator == "/" and inexact))
        case ex.DatePart(function, field, _):
            return function == "extract" and field.lower() in _FIELDS
        case ex.Cast(_, to):
            return to in _EXACT_TYPES
        case ex.Pattern(_, _, escape, _, _):
            return escape is None
        case _:
            return True


def _require_dates_as_keys(query: OpenQuery) -> None:
    """Refuse groups of points in time, which JSON has in several spellings."""
    for key in query.query.keys:
        if any(column.type.name.startswith("timestamp") for column in ex.columns(key.expression)):
            raise refusal("GROUP BY accepts no points in time on Spark", hint=IN_POSTGRESQL)
