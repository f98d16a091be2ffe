"""What generalized and freeform publications share: the source as codes, and the rows as cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.algorithms.recoding.cells import Ranges, Sets
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.catalog.entries import Source
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.options import attribute_weights
from kanon_db.publications.pipeline import check_readers, reserve_name
from kanon_db.publications.rows.cells import (
    GeneralizedColumn,
    count_outside,
    read_microdata,
    write_cells,
)
from kanon_db.publications.rows.view import (
    SUFFIXES,
    CellTable,
    RowView,
    grant_row_view,
    layout_of,
    write_row_view,
)
from kanon_db.randomness import SecureRandom
from kanon_db.session.protocol import Session
from kanon_db.transfer.columns import ColumnType, check_comparable
from kanon_db.transfer.snapshot import Snapshot, take_snapshot


@dataclass(frozen=True, eq=False)
class Recoding:
    """A source whose quasi-identifiers are about to be published as ranges and sets.

    Attributes
    ----------
    snapshot : Snapshot
    microdata : Microdata
        The quasi-identifiers' codes and domains.
    layout : dict
        Of the publication, as the catalog keeps it.
    view : RowView
    readers : tuple of str
        Roles that may read the publication.
    """

    session: Session
    snapshot: Snapshot
    microdata: Microdata
    layout: Mapping[str, Any]
    view: RowView
    readers: tuple[str, ...]
    _columns: Sequence[GeneralizedColumn]

    def write(self, cells: Sequence[Ranges | Sets], cell_of_record: AnyIntArray) -> CellTable:
        """Write the rows, in a random order: each record's other columns with one of the cells.

        Parameters
        ----------
        cells : sequence of Ranges or Sets
            Of each quasi-identifier.
        cell_of_record : ndarray of int, shape (n_records,)
            Number of the cells; -1 for a record that is left out.
        """
        table = write_cells(self.session, self.view, self._columns, cells)
        order = SecureRandom().permutation(cell_of_record.size)
        write_row_view(self.session, self.view, self.snapshot, table, cell_of_record, order)
        return table

    def count_outside(self, table: CellTable, cell_of_record: AnyIntArray) -> int:
        """Count the records with an original value that the cell of this number does not cover."""
        return count_outside(
            self.session, self.view, self.snapshot, self._columns, table, cell_of_record
        )

    def finish(self, table: CellTable) -> None:
        """Drop what readers do not need, and let them read the rest."""
        for column in self._columns:
            column.values.drop()
        self.session.fetch(f"DROP TABLE {table.table}")
        self.snapshot.drop()
        grant_row_view(self.session, self.view, self.readers)


def start_recoding(
    session: Session,
    source: Source,
    types: Mapping[str, ColumnType],
    name: str,
    *,
    k: int,
    weights: str | None,
    readers: Sequence[str] | None,
    replace: bool,
) -> Recoding:
    """Reserve the publication's name, and read the source.

    Raises
    ------
    KanonError
        When a parameter is refused, or the source cannot be read.
    """
    costs = attribute_weights(source, weights)
    schema = reserve_name(session, name, SUFFIXES, replace=replace)
    roles = check_readers(session, readers, schema)
    columns = [column for column in types if column not in source.identifiers]
    snapshot = take_snapshot(session, source.relation, columns)
    check_comparable(session, source.relation, source.quasi_identifiers)
    if not 1 <= k <= snapshot.n_records:
        raise InvalidParameterError(
            "k must lie between 1 and the number of records",
            detail=f"{source.relation}: k = {k}, n_records = {snapshot.n_records}",
        )
    microdata, generalized = read_microdata(snapshot, source, types, costs)
    layout = layout_of(source, types, [column.cell for column in generalized])
    view = RowView.of(session, schema, name, layout)
    return Recoding(session, snapshot, microdata, layout, view, roles, generalized)
