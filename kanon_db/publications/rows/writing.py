"""Writing the relations of published rows: the view, and what the estimator reads beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.counting.layout import ROWS, Cell, RowView
from kanon_db.publications.kind import Job
from kanon_db.publications.rows.cell_table import CellTable
from kanon_db.publications.rows.classes import write_classes
from kanon_db.publications.rows.shares import write_shares
from kanon_db.publications.rows.shown_rows import ShownRows
from kanon_db.publications.staging import Staging
from kanon_db.randomness import SecureRandom
from kanon_db.session.settings import roomy
from kanon_db.transfer.columns import inverse_permutation, number_bytes, with_numbers


def write_row_view(
    job: Job[Any], view: RowView, cells: CellTable, combination_of_record: AnyIntArray
) -> None:
    """Write the published rows in a random order, and materialize the view.

    Parameters
    ----------
    cells : CellTable
    combination_of_record : ndarray of int, shape (n_records,)
        The cells with which the other columns of each record are published; -1 for a record that is
        left out.
    """
    session, snapshot = job.session, job.snapshot
    session.step("writing the published rows")
    names = [session.identifier(column) for column in view.columns]
    others = [name for name in names if name not in cells.columns]
    index = f"r.{snapshot.record}"
    numbers, width = number_bytes(cells.numbers_of(combination_of_record))
    places, place_width = number_bytes(
        inverse_permutation(SecureRandom().permutation(snapshot.n_records))
    )
    numbered, (its_cells, place) = with_numbers(
        session, snapshot.table, (1, index), (2, index), widths=(width, place_width)
    )
    # Sorted before cells are joined to them, rows are a fraction as wide. Whichever side the server
    # reads first, the order of either is random.
    shuffled = (
        f"(SELECT {', '.join(f's.{name}' for name in (*others, its_cells))} FROM {numbered} AS s"
        f" ORDER BY s.{place} OFFSET 0)"
    )
    columns = ", ".join(f"{'c' if name in cells.columns else 's'}.{name}" for name in names)
    with roomy(session):
        job.staging.fill_table(
            ROWS,
            f"SELECT {columns} FROM {shuffled} AS s"
            f" JOIN {cells.table} AS c ON c.{cells.number} = s.{its_cells}",
            numbers,
            places,
        )
    session.step("materializing the view")
    job.staging.materialize(ROWS)


def finish_rows(
    job: Job[Any],
    view: RowView,
    layout: Mapping[str, Any],
    rows: ShownRows,
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
    rows : ShownRows
        Those of the view.
    cells : mapping of str to Cell, optional
        The quasi-identifiers, if their cells stand for several values; see :func:`.write_shares`.
    matches : int, optional

    Returns
    -------
    dict
        The layout, with what it keeps of these relations.
    """
    found = write_for_estimator(job.staging, view, layout, rows, cells, matches)
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
    rows: ShownRows,
    cells: Mapping[str, Cell] | None,
    matches: int | None,
) -> dict[str, Any]:
    """Write the numbers of cells, and the shares of values in them; see :func:`finish_rows`."""
    written = write_classes(staging, view, layout, rows)
    found = {**layout, "classes": written.layout}
    if cells is not None:
        found["shares"] = write_shares(staging, written, cells, matches)
    return found
