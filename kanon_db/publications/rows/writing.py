"""Writing the relations of published rows: the view, and what the estimator reads beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.algorithms.ground.sorting import taken
from kanon_db.counting.layout import CELLS, ROWS, Cell, RowView
from kanon_db.publications.decoding import DecodedRows
from kanon_db.publications.job import Job
from kanon_db.publications.rows.cell_table import CellTable
from kanon_db.publications.rows.classes import write_classes
from kanon_db.publications.rows.shares import write_shares
from kanon_db.publications.rows.shown_rows import ShownRows
from kanon_db.publications.staging import Staging
from kanon_db.session import Session, fetch_one
from kanon_db.session.settings import helped, roomy
from kanon_db.transfer.coded import CodedRecords
from kanon_db.transfer.columns import inverse_permutation, number_bytes, with_numbers


@dataclass(frozen=True)
class Covering:
    """How to see that the original values of a record lie within its cells.

    Attributes
    ----------
    cells : str
        SQL for the table of cells, with what `inside` needs.
    inside : str
        A condition on a record ``s`` and its cells ``c``.
    """

    cells: str
    inside: str

    def kept(self, number: str, of_record: str) -> str:
        """Write the join of records ``s`` with their cells, by their numbers, and the condition."""
        return f"JOIN {self.cells} AS c ON c.{number} = s.{of_record} WHERE {self.inside}"


def write_row_view(
    job: Job[Any],
    view: RowView,
    cells: CellTable,
    combination_of_record: AnyIntArray,
    covering: Covering | None = None,
) -> int:
    """Write the published rows in a random order, and materialize the view.

    Rows are written with the numbers of their cells, a fraction as wide as with the cells. To join
    them in the view, the server may read either table first: both are in a random order.

    Parameters
    ----------
    cells : CellTable
    combination_of_record : ndarray of int, shape (n_records,)
        The cells with which the other columns of each record are published; -1 for a record that is
        left out.
    covering : Covering, optional
        Rows are only written where it holds.

    Returns
    -------
    int
        How many were not written because it does not.
    """
    session = job.session
    session.step("writing the published rows")
    # Two results of one seed, as of searches that ended at other times, must not share an order: by
    # their places, readers of both would join the rows of each person.
    job.random.absorb(
        repr((job.source.published, job.source.quasi_identifiers)).encode(),
        np.ascontiguousarray(combination_of_record, dtype=np.int64).tobytes(),
    )
    names = [session.identifier(column) for column in view.columns]
    others = [name for name in names if name not in cells.columns]
    if isinstance(job.records, CodedRecords):
        _write_decoded(job, job.records, view, cells, combination_of_record, covering, others)
    else:
        _write_copied(job, cells, combination_of_record, covering, others)
    session.step("materializing the view")
    with roomy(session), helped(session):
        job.staging.materialize_join(ROWS, CELLS, cells.name, view.columns)
    row = fetch_one(session, f"SELECT count(*) AS n FROM {view.rows}")
    return int(np.count_nonzero(combination_of_record >= 0)) - int(row["n"])


def write_batches(staging: Staging, before: RowView, now: RowView, number: str | None) -> bool:
    """Write the rows of two publications as those of one, and materialize the view.

    As long as both have numbers of cells, so does what comes of them: the view is made as before,
    and what others have made of it lives on.

    Parameters
    ----------
    number : str or None
        The column of the numbers in the newer one, not quoted.

    Returns
    -------
    bool
        Whether rows have numbers of their cells.
    """
    session = staging.session
    tables = [_columns(session, one.rows, one.cells) for one in (before, now)]
    is_numbered = number is not None and before.number == now.number and tables[0] == tables[1]
    session.step("writing the published rows")
    if not is_numbered:
        columns = ", ".join(session.identifier(column) for column in now.columns)
        staging.fill_table(
            ROWS, f"SELECT {columns} FROM {before.view} UNION ALL SELECT {columns} FROM {now.view}"
        )
        session.step("materializing the view")
        staging.materialize(ROWS)
        return False
    first = f"(SELECT coalesce(max({before.number}) + 1, 0) FROM {before.cells})"
    for suffix, names, old, new in zip(
        (ROWS, CELLS), tables[0], (before.rows, before.cells), (now.rows, now.cells), strict=True
    ):
        shifted = [f"{name} + {first}" if name == now.number else name for name in names]
        staging.fill_table(
            suffix,
            f"SELECT {', '.join(names)} FROM {old}"
            f" UNION ALL SELECT {', '.join(shifted)} FROM {new}",
        )
    staging.analyze(CELLS, columns=[str(number)])
    session.step("materializing the view")
    with roomy(session), helped(session):
        staging.materialize_join(ROWS, CELLS, str(number), now.columns)
    return True


def _columns(session: Session, *tables: str) -> list[list[str]]:
    """Return the quoted names of the columns of tables; none where there is no table."""
    return [
        [
            session.identifier(row["name"])
            for row in session.fetch(
                "SELECT attname::text AS name FROM pg_attribute"
                " WHERE attrelid = to_regclass($1::text) AND attnum > 0 ORDER BY attnum",
                table,
            )
        ]
        for table in tables
    ]


def _write_copied(
    job: Job[Any],
    cells: CellTable,
    combination_of_record: AnyIntArray,
    covering: Covering | None,
    others: Sequence[str],
) -> None:
    """Write the rows of records of which the server has a copy."""
    session, snapshot = job.session, job.snapshot
    index = f"r.{snapshot.record}"
    numbers, width = number_bytes(cells.numbers_of(combination_of_record))
    places, place_width = number_bytes(
        inverse_permutation(job.random.permutation(snapshot.n_records))
    )
    numbered, (its_cells, place) = with_numbers(
        session, snapshot.table, (1, index), (2, index), widths=(width, place_width)
    )
    shown = [f"s.{its_cells} AS {cells.number}", *(f"s.{name}" for name in others)]
    kept = f"WHERE s.{its_cells} < {cells.n_combinations}"
    if covering is not None:
        kept = covering.kept(cells.number, its_cells)
    with roomy(session):
        job.staging.fill_table(
            ROWS,
            f"SELECT {', '.join(shown)} FROM {numbered} AS s {kept} ORDER BY s.{place}",
            numbers,
            places,
        )


def _write_decoded(
    job: Job[Any],
    records: CodedRecords,
    view: RowView,
    cells: CellTable,
    combination_of_record: AnyIntArray,
    covering: Covering | None,
    others: Sequence[str],
) -> None:
    """Write the rows of records that are known by their codes."""
    session = job.session
    known = {session.identifier(name): column for name, column in records.columns.items()}
    columns = known if covering is not None else {name: known[name] for name in others}
    numbers = cells.numbers_of(combination_of_record)
    rows = DecodedRows(session, columns, {cells.number: numbers})
    shown = f"s.{cells.number}", *(f"s.{name}" for name in others)
    select = f"SELECT {', '.join(shown)} FROM"
    job.staging.create_table(ROWS, f"{select} ({rows.shape}) AS s")
    kept = "" if covering is None else covering.kept(cells.number, cells.number)
    order = job.random.permutation(records.n_records)
    with roomy(session):
        for part, bound in rows.parts(order[taken(combination_of_record, order) >= 0]):
            session.fetch(f"INSERT INTO {view.rows} {select} ({part} OFFSET 0) AS s {kept}", *bound)


def finish_rows(
    job: Job[Any],
    view: RowView,
    table: CellTable,
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
    table : CellTable
        From which it was.
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
    numbered = {**layout, "number": table.name}
    found = write_for_estimator(job.staging, view, numbered, rows, cells, matches)
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
