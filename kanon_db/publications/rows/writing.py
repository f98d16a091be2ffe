"""Writing the relations of published rows: the view, and what the estimator reads beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.counting.layout import ROWS, Cell, RowView
from kanon_db.publications.kind import Job
from kanon_db.publications.rows.classes import writing_classes
from kanon_db.publications.rows.shares import write_shares
from kanon_db.publications.staging import Staging
from kanon_db.randomness import SecureRandom
from kanon_db.session.settings import roomy
from kanon_db.transfer.columns import int4_bytes, inverse_permutation, with_numbers


@dataclass(frozen=True)
class CellTable:
    """A temporary table of cells, one row for each number from 0; names are quoted."""

    table: str
    number: str


def write_row_view(
    job: Job[Any], view: RowView, cells: CellTable, cell_of_record: AnyIntArray
) -> None:
    """Write the published rows in a random order, and materialize the view.

    Parameters
    ----------
    cells : CellTable
    cell_of_record : ndarray of int, shape (n_records,)
        The number of the cells with which the other columns of each record are published; -1 for a
        record that is left out.
    """
    session, snapshot = job.session, job.snapshot
    order = SecureRandom().permutation(snapshot.n_records)
    session.step("writing the published rows")
    of_cells = {*view.quasi_identifiers, *([] if view.pattern is None else [view.pattern])}
    names = [session.identifier(column) for column in view.columns]
    columns = ", ".join(f"{'c' if name in of_cells else 's'}.{name}" for name in names)
    index = f"r.{snapshot.record}"
    numbered, (its_cell, place) = with_numbers(session, snapshot.table, (1, index), (2, index))
    with roomy(session):
        job.staging.fill_table(
            ROWS,
            f"SELECT {columns} FROM {numbered} AS s"
            f" JOIN {cells.table} AS c ON c.{cells.number} = s.{its_cell} ORDER BY s.{place}",
            int4_bytes(cell_of_record),
            int4_bytes(inverse_permutation(order)),
        )
    session.step("materializing the view")
    job.staging.materialize(ROWS)


def finish_rows(
    job: Job[Any],
    view: RowView,
    layout: Mapping[str, Any],
    cells: Mapping[str, Cell] | None = None,
    matches: int | None = None,
) -> dict[str, Any]:
    """Write what the estimator reads, gather statistics, and warn of columns that may be missed.

    Parameters
    ----------
    job : Job
    view : RowView
        Already materialized.
    layout : mapping
    cells : mapping of str to Cell, optional
        The quasi-identifiers, if their cells stand for several values; see :func:`.write_shares`.
    matches : int, optional

    Returns
    -------
    dict
        The layout, with what it keeps of these relations.
    """
    found = write_for_estimator(job.staging, view, layout, cells, matches)
    job.session.step("gathering statistics")
    job.staging.analyze("")
    missed = job.source.without_role
    if missed:
        job.session.tell(
            f"columns without a role are not published: {', '.join(missed)}; those that are to be"
            " published as they are must be registered as insensitive"
        )
    return found


def write_for_estimator(
    staging: Staging,
    view: RowView,
    layout: Mapping[str, Any],
    cells: Mapping[str, Cell] | None,
    matches: int | None,
) -> dict[str, Any]:
    """Write the numbers of cells, and the shares of values in them; see :func:`finish_rows`."""
    with writing_classes(staging, view, layout) as written:
        found = {**layout, "classes": written.layout}
        if cells is not None:
            found["shares"] = write_shares(staging, written.classes, cells, matches)
    return found
