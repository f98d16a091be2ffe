"""Publishing freeform rows [FF]: each record matches k originals, and each original k records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from kanon_db.algorithms.freeform import (
    Assignments,
    draw_assignments,
    least_coverage,
    numbered_cells,
    verify_matching,
)
from kanon_db.algorithms.ground.memory import giving_back
from kanon_db.algorithms.recoding import Microdata, NumberedCells
from kanon_db.catalog.entries import Publication, Source
from kanon_db.counting.layout import RECODED_SUFFIXES
from kanon_db.metrics.freeform import measure
from kanon_db.publications.freeform import methods
from kanon_db.publications.freeform.examine import examine_freeform
from kanon_db.publications.freeform.promises import check_graph, guarantee
from kanon_db.publications.freeform.request import FreeformRequest
from kanon_db.publications.freeform.shown_cells import check_cells
from kanon_db.publications.job import Job
from kanon_db.publications.kind import Found, Written
from kanon_db.publications.needs import bytes_of_texts, bytes_of_values
from kanon_db.publications.results import Check
from kanon_db.publications.rows.digest import digest_rows
from kanon_db.publications.rows.needs import bytes_of_cells, bytes_of_shares
from kanon_db.publications.rows.recoding import RecodedRows, loss_metrics
from kanon_db.publications.rows.view import RowKind
from kanon_db.publications.searching import run_method
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.records import Size
from kanon_db.transfer.room import Needs


class FreeformRows(RowKind):
    """The kind ``freeform``.

    Notes
    -----
    **Source:** [FF]; see the modules of :mod:`kanon_db.algorithms.freeform`. The other columns of
    each record are published with the cells that it has in one of k disjoint assignments. These are
    drawn at random, and one of them is chosen uniformly (Section 2.2). This and the order of the
    rows come from the operating system's cryptographic source. The graph is not kept anywhere:
    someone who had it would know k candidates for each row, and with the assignment, the person.
    """

    suffixes = RECODED_SUFFIXES

    coarsens = True
    examine_rows = staticmethod(examine_freeform)
    shares_cells = False
    takes_codes = True
    memory = staticmethod(giving_back)

    def needs(
        self, request: FreeformRequest, source: Source, types: Mapping[str, ColumnType], size: Size
    ) -> Needs:
        """See :meth:`Kind.needs`; each row has cells of its own, and k matches."""
        together = 2 * methods.partition_size(request) * methods.n_workers(request)
        record = 20 + 25 * len(source.quasi_identifiers) + 14 * request.k
        memory = 160e6 + record * size.n_records
        memory += 400 * min(together, size.n_records)
        memory += bytes_of_values(size) + bytes_of_texts(size)
        memory += bytes_of_shares(source, types, size.n_records, size)
        return Needs(memory, 1.7 * bytes_of_cells(source, types, request.k, size))

    def matches(self, publication: Publication) -> int:
        """Return k: a cell covers as many originals."""
        return int(publication.parameters["k"])

    def search(self, job: Job[FreeformRequest]) -> Found:
        """Find the matches, what covers them, and an assignment; the matches are not kept."""
        rows, microdata = RecodedRows.of(job, job.request.k, job.request.weights)
        together = min(microdata.n_records, 2 * methods.partition_size(job.request))
        rows.require_room(
            3 * together * methods.n_workers(job.request),
            together,
            "leave out quasi-identifiers with very many values, or take a smaller partition_size",
        )
        job.session.step(f"matching records: {job.request.method}")
        found = run_method(methods, job, microdata)
        cells = numbered_cells(microdata, found.result, pulse=job.pulse())
        for part in found.result.parts:
            job.random.absorb(part.records.tobytes(), part.matches.tobytes())
        job.session.step("drawing the assignment")
        if job.request.method == "k_concealment":
            # There need not be k disjoint assignments here, so each record keeps its own cells.
            own = np.arange(microdata.n_records, dtype=np.int32)
            drawn = Assignments(own[np.newaxis], 0)
        else:
            drawn = draw_assignments(
                found.result, job.random, workers=methods.n_workers(job.request),
                pulse=job.pulse(),
            )  # fmt: skip
        found = replace(found, result=None)  # of which there are k for each record
        job.session.step("checking the matches")
        check = (
            _check_concealment(job, microdata, cells)
            if job.request.method == "k_concealment"
            else _check_graph(job, microdata, drawn, cells)
        )
        return replace(found, result=(rows, cells, drawn, check, measure(microdata, cells)))

    def write(self, job: Job[FreeformRequest], found: Found) -> Written:
        """Write cells and rows; check every original value with all its cells."""
        session, request = job.session, job.request
        rows: RecodedRows
        cells: tuple[NumberedCells, ...]
        drawn: Assignments
        rows, cells, drawn, check, lost = found.hand_over()
        table = rows.write_cells(cells)
        del cells  # which may be as large as the source
        outside, n_assignments = rows.count_outside(table, drawn.cell_of_original), drawn.k
        chosen = drawn.cells.copy()
        del drawn  # k times as large
        outside += rows.write(table, chosen)
        checks = [
            check_cells(session, rows.view, table),
            Check(
                "every original value lies in all the cells that its record matches",
                "0 records outside",
                f"{outside} outside, in {n_assignments} assignments",
                holds=outside == 0,
            ),
            check,
        ]
        written = Written(
            guarantee(request),
            layout={"digest": digest_rows(session, rows.view)},
            checks=checks,
            metrics=loss_metrics(job.source, lost),
        )
        return rows.finish(table, chosen, written, request.k)


KIND: Final = FreeformRows()


def _check_graph(
    job: Job[FreeformRequest],
    microdata: Microdata,
    drawn: Assignments,
    cells: Sequence[NumberedCells],
) -> Check:
    """Check the graph that was drawn, rather than the one that was found."""
    graph = verify_matching(drawn.matches, microdata, job.request.k, cells, pulse=job.pulse())
    return check_graph(
        job.request.k, graph.least_originals, graph.least_published, graph.n_outside,
        holds=graph.holds,
    )  # fmt: skip


def _check_concealment(
    job: Job[FreeformRequest], microdata: Microdata, cells: Sequence[NumberedCells]
) -> Check:
    published, originals = least_coverage(microdata, cells, pulse=job.pulse())
    return Check(
        "k-concealment: every record has k possible matches on both sides",
        f"k = {job.request.k}",
        f"at least {originals} and {published}",
        holds=min(published, originals) >= job.request.k,
    )
