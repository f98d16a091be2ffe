"""Publishes and verifies freeform rows [FF]: each record matches k originals, and each original k.

The guarantee rests on the graph of matches, which readers must not have, so it is checked when
publishing. Afterwards, a digest of the rows tells whether the view is still the published one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.attacks import Deductions, MatchCount
from kanon_db.algorithms.freeform import (
    Assignments,
    FreeformMatches,
    draw_assignments,
    least_coverage,
    numbered_cells,
    verify_matching,
)
from kanon_db.algorithms.ground.arrays import giving_back
from kanon_db.algorithms.recoding import Microdata, NumberedCells
from kanon_db.catalog.entries import Publication, Source
from kanon_db.dataclasses import dataclass
from kanon_db.metrics.information_loss import measure_freeform
from kanon_db.publications.freeform import methods
from kanon_db.publications.freeform.request import FreeformRequest
from kanon_db.publications.guarantees import Guarantee
from kanon_db.publications.kind import (
    AttackTarget,
    Job,
    MethodResult,
    Written,
    bytes_of_texts,
    bytes_of_values,
    run_method,
)
from kanon_db.publications.results import Check, Examination
from kanon_db.publications.rows.distinct_cells import (
    ClassSizes,
)
from kanon_db.publications.rows.published_rows import AttackedRows
from kanon_db.publications.rows.row_kind import (
    RecodedRows,
    RowKind,
    bytes_of_cells,
    bytes_of_shares,
    check_cells,
    loss_metrics,
    tight_attributes,
)
from kanon_db.query.layout import RECODED_SUFFIXES, RowView
from kanon_db.session import Session
from kanon_db.transfer.allowance import Needs
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.snapshot import Size


@dataclass(frozen=True, kw_only=True)
class FreeformGuarantee(Guarantee):
    """Every record matches k others, all of which are as likely to be it, or weaker: at least k."""

    k: int
    is_weaker: bool = False
    is_symmetric: bool = False

    @classmethod
    def of(cls, request: FreeformRequest) -> FreeformGuarantee:
        """Say what holds for every row."""
        is_weaker = request.method == "k_concealment"
        return cls(
            k=request.k, is_weaker=is_weaker,
            is_symmetric=not is_weaker and request.options.symmetric,
        )  # fmt: skip

    @property
    def short(self) -> str:
        """See :attr:`.Guarantee.short`."""
        return f"{self.k}-{'concealment' if self.is_weaker else 'anonymity'}"

    @property
    def promise(self) -> str:
        """See :attr:`.Guarantee.promise`."""
        k = self.k
        if self.is_weaker:
            return (
                f"{k}-concealment, which is weaker than k-anonymity: each record may be any of at"
                f" least {k} published ones, but not with the same probability: readers who know"
                " the method may be certain"
            )
        return (
            f"k-anonymity with k = {k} by freeform generalization: each published record covers"
            f" {k} originals, each original is covered {k} times, and each of these is its own with"
            f" probability 1/{k}"
        )

    @property
    def conditions(self) -> Sequence[str]:
        """See :attr:`.Guarantee.conditions`."""
        if self.is_weaker:
            return ()
        known = "whoever knows which record is somebody's can be certain of others'"
        mutual = "matches are mutual, which does not change that"
        return [known, mutual] if self.is_symmetric else [known]


def check_graph(k: int, originals: int, published: int, outside: int, *, holds: bool) -> Check:
    """Judge what was counted of the graph of matches.

    `originals, published`: the fewest that a record matches on either side; `outside`: the matches
    outside of their cells.
    """
    return Check(
        "k-anonymity: every record has k matches on both sides",
        f"k = {k}",
        f"at least {originals} and {published}, {outside} matches outside their cells",
        holds=holds,
    )


# The view alone does not show how likely each record belongs to a person.


def examine_freeform(
    session: Session,  # noqa: ARG001
    view: RowView,  # noqa: ARG001
    publication: Publication,
    counted: ClassSizes,
) -> Examination:
    """Check what can be checked with the view alone, and measure it."""
    return judge_freeform(publication, counted)


SAME_ROWS: Final = "the rows are those whose matches were checked when they were published"


def judge_freeform(publication: Publication, counted: ClassSizes) -> Examination:
    """Judge what was counted, with the number of distinct combinations of cells."""
    n_rows = int(counted.sizes.sum())
    return Examination(
        [
            Check(
                "every record is published once",
                f"{publication.records} records",
                f"{n_rows} records",
                holds=n_rows == publication.records,
            ),
        ],
        {"records": n_rows, "distinct_rows": counted.sizes.size},
    )


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

    protects_several = True
    coarsens = True
    is_slow_if_wide = True
    examine_rows = staticmethod(examine_freeform)
    same_rows = SAME_ROWS
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

    def promise_in_words(self, target: AttackTarget, linked: str) -> str:
        """See :meth:`RowKind.promise_in_words`; k-concealment promises less."""
        names, k = target.publication.all_sensitive, target.publication.parameters["k"]
        if target.publication.method != "k_concealment":
            return super().promise_in_words(target, linked)
        return (
            f"each row fits at least {k} people, who need not be equally likely: readers who know"
            " the method may be certain"
            + (f"; what is inferred about {' or '.join(names)} has no bound" if names else "")
        )

    def matches(self, publication: Publication) -> int:
        """Return k: a cell covers as many originals."""
        return int(publication.parameters["k"])

    def search(self, job: Job[FreeformRequest]) -> MethodResult:
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
        # In one order, however the graph was found.
        graph = FreeformMatches(
            [replace(one, matches=np.sort(one.matches, axis=1)) for one in found.result.parts]
        )
        found = replace(found, result=None)
        job.random.settle(sorted(job.source.published), sorted(job.source.quasi_identifiers))
        for part in graph.parts:
            job.random.settle(part.records, part.matches)
        job.session.step("drawing the assignment")
        if job.request.method == "k_concealment":
            # There need not be k disjoint assignments here, so each record keeps its own cells.
            own = np.arange(microdata.n_records, dtype=np.int32)
            drawn = Assignments(own[np.newaxis], 0)
        else:
            drawn = draw_assignments(
                graph, job.random, workers=methods.n_workers(job.request),
                pulse=job.pulse(),
            )  # fmt: skip
        del graph  # of which there are k for each record
        job.session.step("checking the matches")
        check = (
            _check_concealment(job, microdata, cells)
            if job.request.method == "k_concealment"
            else _check_graph(job, microdata, drawn, cells)
        )
        return replace(
            found, result=(rows, cells, drawn, check, measure_freeform(microdata, cells))
        )

    def deductions(
        self,
        publication: Publication,
        attacked: AttackedRows,  # noqa: ARG002
        attributes: Mapping[str, Mapping[str, Any]],  # noqa: ARG002
    ) -> Deductions:
        """Rows cover the records that they match, and each record is matched as often."""
        is_weaker = publication.method == "k_concealment"
        return Deductions(
            int(publication.parameters["k"]), tight_attributes(publication),
            matches=MatchCount.AT_LEAST_K if is_weaker else MatchCount.EXACTLY_K,
        )  # fmt: skip

    def write(self, job: Job[FreeformRequest], found: MethodResult) -> Written:
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
        outside += rows.count_outside(table, chosen[np.newaxis])
        rows.write(table, chosen)
        checks = [
            check_cells(session, rows.view.view, table),
            Check(
                "every original value lies in all the cells that its record matches",
                "0 records outside",
                f"{outside} outside, in {n_assignments} assignments",
                holds=outside == 0,
            ),
            check,
        ]
        written = Written(
            FreeformGuarantee.of(request),
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
