"""Questions about published rows: what Spark counts of them, and what is calculated from it.

Spark counts the rows with the same cells in the columns that a question mentions. What each cell
tells, and the answer, are calculated on the driver by the code that reads the table of classes in
PostgreSQL. Nothing but the published files is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, cast

from kanon_db.answers.scope import PublishedTypes
from kanon_db.catalog.entries import Publication, changed
from kanon_db.publications.registry import kind_named
from kanon_db.publications.rows.row_kind import RowKind
from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import is_vague
from kanon_db.query.expressions import refusal, type_in_range
from kanon_db.query.layout import SHARES, CellDescription, CellLayout, ClassTable
from kanon_db.query.likelihoods import MOST_GROUPED, TypeWriter
from kanon_db.spark.answering.cells import CellShares
from kanon_db.spark.query import SparkQuery, only_in_postgresql, read_or_refused
from kanon_db.spark.reading import TableSession
from kanon_db.spark.rows.examine import rows_of, view_of
from kanon_db.spark.source import column_type
from kanon_db.spark.tables import SCHEMA
from kanon_db.transfer.columns import ColumnType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
    from kanon_db.answers.evidence import KnownColumn, KnownTypes
    from kanon_db.answers.evidence_sql import Pieces
    from kanon_db.query.sql import Request
    from kanon_db.session.protocol import Row, Value
    from kanon_db.spark.answering.columns import Rungs
    from kanon_db.spark.answering.pieces import FoundPieces
    from kanon_db.spark.answering.trying import SparkTries
    from kanon_db.spark.answering.types import CountedTypes

_NUMBERED: Final = ("attribute", "number", "records", "hidden", "codes")


@dataclass(frozen=True)
class SparkRowQuery(SparkQuery):
    """A query of published rows in files.

    Attributes
    ----------
    rows : DataFrame
    shares : mapping of str to CellShares
        Of the columns that it mentions.
    counted : dict
        What was counted for its other aggregates, by the columns.
    ladders : dict
        The values of each expression of which a percentile was asked.
    """

    rows: DataFrame
    shares: Mapping[str, CellShares | None]
    counted: dict[tuple[str, ...], CountedTypes] = field(default_factory=dict)
    ladders: dict[tuple[ex.Expression, ex.Type], Rungs] = field(default_factory=dict)

    def known_types(self, request: Request, layout: CellLayout, pieces: Pieces) -> KnownTypes:
        """Count the types of records, and calculate what their cells tell."""
        from kanon_db.spark.answering.pieces import FoundPieces

        counted = self._counted(layout, tuple(pieces.places))
        found = FoundPieces(pieces, request, layout, counted.columns, self._tries)
        return _Known(found, counted)

    def column(self, request: Request, layout: CellLayout, name: str) -> KnownColumn:
        """Find what is known of the cells of a column, in the types that a request tells apart."""
        from kanon_db.spark.answering.columns import CountedColumn

        names = TypeWriter(request, layout, (name,)).columns
        own = self._counted(layout, names).columns[names.index(name)]
        return CountedColumn(own, self._tries, layout.rarity)

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

    def _rungs(self, layout: CellLayout, operand: ex.Expression, type_: ex.Type) -> Rungs:
        from kanon_db.spark.answering.columns import Rungs

        names = tuple(name for name in layout.cells if name in ex.attributes(operand))
        if len(names) > 1:
            counted = self._counted(layout, names)
            return Rungs.of_columns(counted, names, operand, type_, self._tries)
        known = next((one for one in self.counted if names[0] in one), names)
        own = self._counted(layout, known).columns[known.index(names[0])]
        return Rungs.of_column(own, operand, type_, self._tries)

    def value_sums(self, request: Request, layout: CellLayout, most: int) -> list[Row]:
        """Count the records with each value of what is summed, and between which these are."""
        from kanon_db.spark.answering.sums import value_sums

        return value_sums(self, request, layout, most)

    def _counted(self, layout: CellLayout, names: tuple[str, ...]) -> CountedTypes:
        """Count the types of records that some columns tell apart."""
        from kanon_db.spark.answering.types import CountedTypes

        if names not in self.counted:
            numbered = {name: place for place, name in enumerate(names)}
            pattern = self.publication.layout.get("pattern")
            self.counted[names] = CountedTypes.of(
                self.rows, layout.cells, numbered, pattern, self.shares
            )
        counted = self.counted[names]
        if counted.n.sum() != layout.n_rows:
            raise changed(self.publication)
        return counted

    @property
    def _tries(self) -> SparkTries:
        from kanon_db.spark.answering.trying import SparkTries

        return SparkTries(self.rows.sparkSession, self._own_words)

    def is_wide(self, layout: CellLayout, cell: CellDescription) -> bool:  # noqa: ARG002
        """Whether a cell of a column of discrete ranges has too many values, or says nothing."""
        from kanon_db.spark.answering.types import is_wide

        return is_wide(self.rows, cell, MOST_GROUPED)

    def fetch(self, statement: str, *values: Value) -> list[Row]:  # noqa: ARG002
        """Refuse statements over cells, which are written with PostgreSQL's ranges."""
        raise only_in_postgresql()

    def fetch_plain(self, statement: str, *values: Value) -> list[Row]:
        """Run a statement that reads no ranges and no sets."""
        return super().fetch(statement, *values)


@dataclass(frozen=True, eq=False)
class _Known:
    """:class:`~kanon_db.answers.evidence.KnownTypes` that Spark has counted."""

    read: FoundPieces
    _counted: CountedTypes

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return all types."""
        return self._counted.all()


def cell_layout(session: TableSession, publication: Publication, *, is_paper: bool) -> CellLayout:
    """Describe published rows by what the manifest says and the files have."""
    described = publication.layout
    view, types = view_of(session.tables, publication), PublishedTypes(session, publication)
    schema = {one.name: one.dataType for one in rows_of(session.tables, publication).schema}
    cells: dict[str, CellDescription] = {}
    for position, written in enumerate(described["quasi_identifiers"], start=1):
        name, mark = str(written["name"]), None if view.pattern is None else position
        published = _published(name, written, schema[name])
        cells[name] = types.cell(published, written["cell"], mark, written.get("labels"))
    for name in described["others"]:
        cells[name] = types.cell(column_type(name, schema[name]), "value", None)
    cells = {
        name: cell._replace(column=unordered(cell.column), shares=None)
        for name, cell in cells.items()
    }
    # Types of records are told apart as if there were a table of classes.
    described_classes = {column: column for column in _NUMBERED} | {"columns": list(cells)}
    classes = ClassTable.of(session, SCHEMA, publication.name, described_classes)
    left_out = publication.left_out
    n_rows = publication.records - left_out
    return CellLayout(view, cells, left_out, n_rows, is_paper=is_paper, classes=classes)


def _published(name: str, written: Mapping[str, Any], type_: Any) -> ColumnType:
    """Return what PostgreSQL would make of a column of cells."""
    range_type = str(written.get("range_type"))
    if written["cell"] == "range" and type_in_range(range_type, None) is not None:
        return ColumnType(name, range_type, "R", None, has_constant_input=True)
    if type_.simpleString() == "array<string>":
        return ColumnType(name, "text[]", "A", None, has_constant_input=True)
    return column_type(name, type_)


def unordered(column: ex.Column) -> ex.Column:
    """Take the order from texts: Spark's is by bytes, and PostgreSQL's by a collation."""
    if column.type.category != "text":
        return column
    return replace(column, type=replace(column.type, is_ordered=False))


def row_query(asked: SparkQuery, layout: CellLayout, release: str) -> SparkRowQuery:
    """Find what else the answer to a query of rows needs.

    Parameters
    ----------
    asked : SparkQuery
    layout : CellLayout
        That of :func:`cell_layout`.
    release : str
        The path of the files.

    Raises
    ------
    UnsupportedQueryError
        If nothing is known of a column.
    """
    from kanon_db.spark.answering.shares import find_shares, kept_shares
    from kanon_db.spark.answering.types import is_known

    session, publication = asked.session, asked.publication
    if not isinstance(session, TableSession):
        raise TypeError("these are no files")
    rows = rows_of(session.tables, publication)
    names = sorted({n for part in asked.query.evaluated for n in ex.attributes(part)})
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
                return find_shares(rows, quasi_identifiers, cell, matches)

            found = shares[name] = kept_shares(release, name, find)
            if found is not None:
                cells[name] = cell._replace(shares=found.kind)
    given = {one.name: getattr(asked, one.name) for one in fields(asked)}
    given["layout"] = layout._replace(cells=cells)
    return SparkRowQuery(**given, rows=rows, shares=shares)
