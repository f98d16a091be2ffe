"""Publishing with suppressed cells [PG]: each row keeps the cells that a pattern vector keeps."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.algorithms.suppression import LEFT_OVER, PatternSet, Suppression, classes_of
from kanon_db.catalog.entries import Source
from kanon_db.counting.layout import RowView
from kanon_db.metrics.suppression import RowTypeDiversity
from kanon_db.publications.job import Job
from kanon_db.publications.kind import Found, Written
from kanon_db.publications.needs import bytes_of_texts, bytes_of_values
from kanon_db.publications.rows.cell_table import CellColumn, CellTable
from kanon_db.publications.rows.entities import CountedRows, counted_layout, counted_parameters
from kanon_db.publications.rows.shown_rows import SourceColumns
from kanon_db.publications.rows.view import RowKind, check_k, layout_of
from kanon_db.publications.rows.writing import finish_rows, write_row_view
from kanon_db.publications.searching import run_method
from kanon_db.publications.suppressed import methods
from kanon_db.publications.suppressed.examine import examine_suppressed
from kanon_db.publications.suppressed.methods import CodedRows
from kanon_db.publications.suppressed.patterns import allowed_patterns, recorded_patterns
from kanon_db.publications.suppressed.promises import guarantee
from kanon_db.publications.suppressed.request import SuppressedRequest
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.records import Size
from kanon_db.transfer.room import Needs, as_text
from kanon_db.transfer.values import DistinctValues, read_numbers


class Suppressed(RowKind):
    """The kind ``suppressed``.

    Notes
    -----
    **Source:** [PG] Sections 1 and 2. A kept cell is published as the first of the values that
    are equal for its type; otherwise 1.0 and 1.00 would distinguish two rows of a class.
    Where several records are about the same entity, k entities share what is kept of them.
    """

    counts_entities = True
    takes_codes = True
    examine_rows = staticmethod(examine_suppressed)

    def prepare(self, request: SuppressedRequest, source: Source) -> None:
        """Refuse patterns, rules and weights that do not fit the quasi-identifiers."""
        _allowed(request, source)

    def risks(self, request: SuppressedRequest) -> Sequence[str]:
        """Who is left over follows from the quasi-identifiers, which others may know."""
        return ["left_over_records"] if request.options.left_over == "publish" else []

    def needs(
        self,
        request: SuppressedRequest,
        source: Source,
        types: Mapping[str, ColumnType],  # noqa: ARG002
        size: Size,
    ) -> Needs:
        """See :meth:`Kind.needs`; only after reading it is known what an integer program takes."""
        n, width = size.n_records, size.width
        record = 70 + 10 * len(source.published)
        memory = 130e6 + record * n + bytes_of_values(size) + bytes_of_texts(size)
        if request.method == "optimal":
            memory = _bytes_of_optimum(n * len(_allowed(request, source)))
        return Needs(memory, (60 + 3.4 * width + 20 * len(source.quasi_identifiers)) * n)

    def search(self, job: Job[SuppressedRequest]) -> Found:
        """Choose a pattern for each record."""
        check_k(job, job.request.k)
        read = SourceColumns.of(job)
        data = CodedRows(
            read.codes(),
            _allowed(job.request, job.source),
            job.random,
            None if job.entities is None else job.entities.codes,
            lambda n: _require_program(job, n),
        )
        job.session.step("choosing patterns")
        found = run_method(methods, job, data)
        return Found((data, read, found.result), found.proof)

    def write(self, job: Job[SuppressedRequest], found: Found) -> Written:
        """Write the rows, each with the cells that it keeps."""
        session, request, source = job.session, job.request, job.source
        data: CodedRows
        read: SourceColumns
        suppression: Suppression
        data, read, suppression = found.hand_over()
        values = read.values
        layout = layout_of(source, ["value"] * len(source.quasi_identifiers), with_pattern=True)
        view = RowView.of(session, job.schema, job.staging.name, layout)
        pattern = suppression.pattern_of_record
        with_all = request.options.left_over == "publish"
        published = np.flatnonzero((pattern != LEFT_OVER) | with_all)
        codes, shown = data.codes[published], Suppression(data.patterns, pattern[published])
        cells, class_of_row = _write_cells(job, view, values, codes, shown)
        metrics = _loss(source, values, codes, class_of_row)
        cell_of_record = np.full(pattern.size, -1, dtype=np.int32)
        cell_of_record[published] = class_of_row
        n_left_out = pattern.size - published.size
        del codes, class_of_row, published  # as long as the table, as is what is written now
        write_row_view(job, view, cells, cell_of_record)
        if request.weights is not None or data.patterns.cost_unit != 1:
            metrics["suppression_cost"] = float(shown.cost)
        checks = []
        if job.entities is not None:
            counted = CountedRows.of(job, view, cells, cell_of_record)
            checks = counted.check(request.k)
            counted.drop()
        named = dict(zip(source.quasi_identifiers, cells.columns.values(), strict=False))
        layout = finish_rows(job, view, cells, layout, read.shown(named, cell_of_record))
        cells.drop(session)
        read.drop()
        return Written(
            guarantee(
                request, suppression.n_left_over, with_entities=job.source.entity is not None
            ),
            layout={**layout, **counted_layout(job, view)},
            checks=checks,
            metrics=metrics,
            parameters={
                **recorded_patterns(request, data.patterns),
                "suppressed": n_left_out,
                **counted_parameters(job),
            },
        )


KIND: Final = Suppressed()


def _bytes_of_optimum(n_cells: int, n_variables: int = 0) -> float:
    """Forecast what the optimum of records and patterns takes, and an integer program for it."""
    return 400e6 + 80.0 * n_cells + 2000.0 * n_variables


def _require_program(job: Job[SuppressedRequest], n_variables: int) -> None:
    """Refuse an integer program that there is no room for, or say what it needs."""
    patterns = _allowed(job.request, job.source)
    needs = Needs(_bytes_of_optimum(job.records.n_records * len(patterns), n_variables), 0)
    what = f"an integer program of {n_variables:,} variables"
    job.room.require(needs, what, "use the method greedy, or fewer patterns")
    job.session.tell(f"{what} needs some {as_text(needs.memory)} of memory")


def _allowed(request: SuppressedRequest, source: Source) -> PatternSet:
    return allowed_patterns(source, request.patterns, request.rules, request.weights)


def _loss(
    source: Source, values: Sequence[DistinctValues], codes: AnyIntArray, class_of_row: IntArray
) -> dict[str, float]:
    diversity, total = RowTypeDiversity(class_of_row), 0.0
    for column, its_codes in zip(values, codes.T, strict=True):
        numbers = None
        if not source.is_categorical(column.column.name):
            numbers = read_numbers(column)
        if numbers is None or np.isnan(numbers).any():
            total += diversity.of_categories(its_codes)
        else:
            total += diversity.of_numbers(numbers[its_codes])
    return {"usefulness_loss": total / max(diversity.n_row_types, 1)}


def _write_cells(
    job: Job[SuppressedRequest],
    view: RowView,
    values: Sequence[DistinctValues],
    codes: AnyIntArray,
    suppression: Suppression,
) -> tuple[CellTable, IntArray]:
    """Write which quasi-identifiers the rows of each class show, and by which pattern.

    Parameters
    ----------
    codes : ndarray of int, shape (n, m)
        Of the records that are published.
    suppression : Suppression
        Their patterns.

    Returns
    -------
    cells : CellTable
    class_of_row : ndarray of int64, shape (n,)
    """
    session = job.session
    session.step("writing the classes")
    patterns = suppression.patterns
    # Left-over records exist only where the last pattern suppresses everything.
    pattern = np.where(
        suppression.pattern_of_record == LEFT_OVER, len(patterns) - 1, suppression.pattern_of_record
    )
    class_of_row = classes_of(codes, suppression, pattern)
    member = np.empty(class_of_row.max() + 1, dtype=np.int64)
    member[class_of_row] = np.arange(class_of_row.size)
    pattern = pattern[member]
    shown = np.where(patterns.stars[pattern], -1, codes[member].astype(np.int64))

    texts = session.identifier("pg_temp", f"kanon_patterns_{secrets.token_hex(8)}")
    session.fetch(
        f"CREATE TEMPORARY TABLE {texts} ON COMMIT DROP AS SELECT u.i::int4 - 1 AS number, u.cell"
        " FROM unnest($1::text[]) WITH ORDINALITY AS u (cell, i)",
        list(patterns.texts),
    )
    columns = {
        name: CellColumn.of_values(column, its_codes)
        for name, column, its_codes in zip(view.quasi_identifiers, values, shown.T, strict=True)
    }
    columns[str(view.pattern)] = CellColumn(texts, "number", "cell", len(patterns), pattern)
    return CellTable.write(job.staging, view, columns, job.random), class_of_row
