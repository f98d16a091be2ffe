"""What generalized and freeform publications share: the source as codes, and the rows as cells."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol, Self

from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, FloatArray
from kanon_db.algorithms.recoding import Microdata, NumberedCells
from kanon_db.catalog.entries import Source
from kanon_db.counting.layout import RowView
from kanon_db.publications.job import Job
from kanon_db.publications.kind import Written
from kanon_db.publications.rows.all_matches import count_outside
from kanon_db.publications.rows.cell_table import CellTable
from kanon_db.publications.rows.cells import GeneralizedColumn, microdata_of, write_cells
from kanon_db.publications.rows.shown_rows import SourceColumns
from kanon_db.publications.rows.view import check_k, layout_of, weights_of
from kanon_db.publications.rows.writing import Covering, finish_rows, write_row_view
from kanon_db.transfer.coded import CodedRecords
from kanon_db.transfer.labels import fixed_labels
from kanon_db.transfer.room import Needs
from kanon_db.transfer.values import read_known_codes


@dataclass(frozen=True, eq=False)
class RecodedRows:
    """A source whose quasi-identifiers are going to be published as ranges and sets.

    Attributes
    ----------
    view : RowView
    layout : dict
        The publication's layout, as the catalog keeps it.
    """

    view: RowView
    layout: Mapping[str, Any]
    _job: Job[Any]
    _read: SourceColumns
    _columns: Sequence[GeneralizedColumn]

    @classmethod
    def of(
        cls, job: Job[Any], k: int, weights: Mapping[str, Fraction] | None
    ) -> tuple[Self, Microdata]:
        """Read the source; return what is to be published, and the quasi-identifiers as codes.

        Raises
        ------
        InvalidParameterError
            When it has fewer than k records.
        """
        check_k(job, k)
        read = SourceColumns.of(job)
        microdata, columns = microdata_of(
            job.records, job.source, read, weights_of(job.source, weights)
        )
        layout = layout_of(job.source, [column.cell for column in columns])
        for described, column in zip(layout["quasi_identifiers"], columns, strict=True):
            if column.labels is not None:
                described["labels"] = column.labels.hierarchy.described
            if column.labels is not None or column.bins is not None:
                described["is_coarse"] = True
        view = RowView.of(job.session, job.schema, job.staging.name, layout)
        return cls(view, layout, job, read, columns), microdata

    def require_room(self, n_sets: int, n_records: int, hint: str) -> None:
        """Refuse a search that keeps more sets of categorical values than there is memory for.

        Parameters
        ----------
        n_sets : int
            At a time; each has a bit for every value of the records that are searched together.
        n_records : int
            How many these are.
        hint : str
            How to need less.

        Raises
        ------
        InfeasibleError
        """
        n_values = sum(
            min(attribute.n_values, n_records)
            for attribute in (column.attribute for column in self._columns)
            if not attribute.is_numeric
        )
        self._job.room.require(
            Needs(n_sets * n_values / 8, 0), f"{n_sets:,} sets of {n_values:,} values", hint
        )

    def write_cells(self, cells: Sequence[NumberedCells]) -> CellTable:
        """Write the cells of each quasi-identifier."""
        return write_cells(self._job.staging, self.view, self._columns, cells, self._job.random)

    def write(self, table: CellTable, cell_of_record: AnyIntArray) -> int:
        """Write the rows in random order, each with the other columns of a record and its cells.

        Parameters
        ----------
        table : CellTable
        cell_of_record : ndarray of int, shape (n_records,)
            The number of each record's cells; -1 for a record that is left out.

        Returns
        -------
        int
            Records with an original value that is not in its cell: they are not written.
        """
        with fixed_labels(self._job.session):
            return write_row_view(
                self._job, self.view, table, cell_of_record, self._covering(table)
            )

    def count_outside(self, table: CellTable, assignments: CodeArray) -> int:
        """Count the records with an original value outside its cell; see :mod:`.all_matches`."""
        job, records = self._job, self._job.records
        if isinstance(records, CodedRecords):
            codes = [column.codes for column in self._read.quasi_identifiers]
        else:
            codes = list(read_known_codes(job.snapshot, self._read.values).T)
        return count_outside(job.session, codes, self._columns, table, assignments)

    def _covering(self, table: CellTable) -> Covering:
        suffix, shown, inside, whole = secrets.token_hex(8), list[str](), list[str](), list[str]()
        named = zip(self._columns, self.view.quasi_identifiers, strict=True)
        for place, (column, name) in enumerate(named):
            low, high = (f"kanon_{end}_{place}_{suffix}" for end in ("low", "high"))
            shown += (f"{sql} AS {end}" for sql, end in column.ends(name, low, high))
            inside.append(column.covers(name, low, high))
            if not column.has_whole_ends:
                whole.append(f"c.{name}")
        # What comes first is found first in a row; and a narrow table is joined in less time.
        shown = [f"c.{table.number}", *shown, *whole]
        cells = f"(SELECT {', '.join(shown)} FROM {table.table} AS c OFFSET 0)"
        return Covering(cells, " AND ".join(inside))

    def finish(
        self,
        table: CellTable,
        cell_of_record: AnyIntArray,
        written: Written,
        matches: int | None = None,
    ) -> Written:
        """Complete what was written, and drop what is no longer needed.

        Parameters
        ----------
        cell_of_record : ndarray of int, shape (n_records,)
            As of :meth:`write`.
        matches : int, optional
            See :func:`.write_shares`.
        """
        session = self._job.session
        cells = {column.values.column.name: column.published(session) for column in self._columns}
        named = dict(zip(cells, table.columns.values(), strict=True))
        layout = finish_rows(
            self._job, self.view, table, {**self.layout, **written.layout},
            self._read.shown(named, cell_of_record), cells, matches,
        )  # fmt: skip
        for column in self._columns:
            column.drop()
        self._read.drop()
        table.drop(session)
        return replace(written, layout=layout, cells=cells, matches=matches)


class MeasuredLoss(Protocol):
    """What both kinds measure with the source."""

    @property
    def gcp(self) -> float: ...  # noqa: D102
    @property
    def weighted_loss(self) -> float: ...  # noqa: D102
    @property
    def loss_by_attribute(self) -> FloatArray: ...  # noqa: D102


def loss_metrics(source: Source, measured: MeasuredLoss, **others: float) -> dict[str, float]:
    """Return what was measured with the source as metrics."""
    by_column = zip(source.quasi_identifiers, measured.loss_by_attribute, strict=True)
    return {
        "gcp": measured.gcp,
        **others,
        "weighted_loss": measured.weighted_loss,
        **{f"loss_of_{column}": float(loss) for column, loss in by_column},
    }
